"""Files that lead nowhere: what ranks other than 0 write into, where rank 0 writes the file.

They behave as files do: what is asked of them works, and what was written can be read where the mode allows it. The
null device does not: it has no size that could be cut, and cannot be synced.
"""

from __future__ import annotations

import builtins
import io
import os
import tempfile
from typing import IO, Any


def open(
    file: Any,
    mode: str,
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    *_: Any,
) -> IO[Any]:
    """What ``open`` returns, for writing nowhere.

    Args:
        file, mode, buffering, encoding, errors, newline: as in ``open``. What is read and written, with a ``+`` in its
            mode, has the text of the file that is there.
    """
    raw = _Copy(_text_of(file, mode)) if "+" in mode else _Null()
    raw.name = file
    if "a" in mode:
        raw.seek(0, os.SEEK_END)
    if "b" in mode and (buffering == 0 or "+" in mode):
        return raw  # type: ignore[return-value]
    buffered = raw if "+" in mode else io.BufferedWriter(raw)  # type: ignore[type-var]
    if "b" in mode:
        return buffered  # type: ignore[return-value]
    return io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)  # type: ignore[arg-type]


def _text_of(file: Any, mode: str) -> bytes:
    if "w" in mode or "x" in mode:
        return b""
    try:
        with builtins.open(file, "rb") as there:
            return there.read()
    except FileNotFoundError:
        if "r" in mode:
            raise
        return b""


class _Descriptor:
    """Something with a name, and a file descriptor where one is asked for: that of an empty file without a name."""

    name: Any
    _file: IO[bytes] | None = None

    def fileno(self) -> int:
        if self._file is None:
            self._file = tempfile.TemporaryFile()
        return self._file.fileno()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()  # type: ignore[misc]


class _Copy(_Descriptor, io.BytesIO):
    """What is written goes into a copy in memory."""


class _Null(_Descriptor, io.RawIOBase):
    """What is written is gone; only where the file would end is known."""

    def __init__(self) -> None:
        self._at = self._end = 0

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._at += size
        self._end = max(self._end, self._at)
        return size

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._end)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def truncate(self, size: int | None = None) -> int:
        self._end = self._at if size is None else size
        return self._end
