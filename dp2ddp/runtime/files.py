"""Whole files or none."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO


@contextmanager
def whole(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write, which appears as ``path`` when the block has ended: all of it, or nothing.

    While it is written it has no name, where the system can do that (Linux, on most local file systems): a process
    that is killed leaves nothing behind. Elsewhere its name is ``.{name}.….tmp``, in the same folder.

    Args:
        path: the file; a link stays a link, and a file that is there keeps its permissions. What is no regular file (a
            pipe, a device) is written as it is.

    Raises:
        OSError: it cannot be written; ``filename`` is the path. Of a full disk torch.save says it with a RuntimeError,
            which is not passed on (but for its old format, where nothing else is known).
        Exception: whatever the block raises. The file is then as it was.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as file:
            yield file
        return
    target = os.path.realpath(os.fsdecode(path))
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name[:200]}.{uuid.uuid4().hex[:8]}.tmp")
    named = False
    try:
        descriptor = _open_nameless(folder)
        if descriptor is None:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            named = True
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)  # before it gets its name: a machine may lose its power
            if os.path.exists(target):
                os.chmod(descriptor, os.stat(target).st_mode & 0o7777)
            if not named:
                # With a `dir_fd` (which an absolute path ignores) Python calls linkat, which follows the link
                os.link(f"/proc/self/fd/{descriptor}", temporary, src_dir_fd=descriptor)
                named = True
        os.replace(temporary, target)
    except BaseException as error:
        if named:
            os.unlink(temporary)
        hidden = isinstance(error, RuntimeError) and isinstance(error.__context__, OSError)
        cause = error.__context__ if hidden else error
        if isinstance(cause, OSError) and cause.errno is not None:
            if cause.filename in (None, temporary):
                cause.filename = target
            raise cause from None
        raise


def _open_nameless(folder: str) -> int | None:
    """A descriptor of a new file without a name on the folder's file system, or None where that is not possible."""
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o666)
    except OSError:
        return None
