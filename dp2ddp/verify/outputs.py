"""What a process gives away: lines that it prints, files that it writes, keys of what it saves."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import torch

from dp2ddp.runtime import files
from dp2ddp.verify.digests import bare, values_of, wrapped_in
from dp2ddp.verify.journal import Journal

_WRITES = os.O_WRONLY | os.O_RDWR
_COPIES = ("os.rename", "os.link", "shutil.copyfile")
_ENTRIES = ("os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree")
_NOT_THEIRS = ("torch", "dp2ddp", "matplotlib", "PIL")
"""How the names of loggers begin that are not the program's."""
_DEEPEST, _MOST = 3, 5000


class Outputs:
    """Notes what leaves the process.

    Args:
        journal: gets it.
        evaluated: tells whether an evaluation has run since the last step.
        protected: a folder in which nothing may be written, nor where links lead: the user's own.
        work: the copy of it to work in.
    """

    def __init__(
        self, journal: Journal, evaluated: Callable[[], bool], protected: str | None, work: str | None
    ) -> None:
        self.journal = journal
        self.evaluated = evaluated
        self.protected = protected
        self._start = os.path.realpath(os.getcwd())
        self._own = (os.path.dirname(os.path.realpath(work)) if work else self._start) + os.sep
        self._passing = (
            tempfile.gettempdir() + os.sep,
            "/dev/",
            "/proc/",
            str(Path.home() / ".cache") + os.sep,
        )
        self._process = os.getpid()
        self._seen: set[str] = set()
        self._saved: dict[str, Any] | None = None
        self._checkpoints: dict[str, dict[str, Any]] = {}
        self._inside = threading.local()

    def patch(self) -> None:
        """Watch standard output, logging, files and torch.save."""
        sys.stdout = _Lines(sys.stdout, self._note_line)
        handle = logging.Logger.handle

        def noted_record(logger: logging.Logger, record: logging.LogRecord) -> None:
            if not logger.name.startswith(_NOT_THEIRS):
                self._note_line(record.getMessage())
            record.lineno = 0  # the conversion moves lines
            handle(logger, record)

        logging.Logger.handle = noted_record
        sys.addaudithook(self._audit)
        save = torch.save

        def noted(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            self._save(obj, f)
            return save(obj, f, *args, **kwargs)

        torch.save = noted
        whole = files.whole

        def in_the_copy(path: str | os.PathLike[str]) -> AbstractContextManager[BinaryIO]:
            self._check(path, anew=True)  # before it is asked where a link leads
            return whole(path)

        files.whole = in_the_copy  # type: ignore[assignment]

    def _note_line(self, text: str) -> None:
        if text.strip():
            self.journal.add("line", text=text[:2000], evaluated=self.evaluated())

    def _save(self, obj: Any, f: Any) -> None:
        saved = {
            "keys": list(islice(keys_of(obj), _MOST)),
            "values": dict(islice(values_of(obj), _MOST)),
            "wrapped": list(islice(wrapped_in(obj), _MOST)),
        }
        name = f if isinstance(f, (str, os.PathLike)) else getattr(f, "name", None)
        if isinstance(name, (str, os.PathLike)):
            self._check(name, anew=True)
            self._note_file(name)
            self._keep(name, saved)
        elif isinstance(name, int):  # a file without a name yet
            self._saved = saved

    def _keep(self, path: Any, saved: dict[str, Any]) -> None:
        self._checkpoints[_real(path)] = saved
        self.journal.add("save", path=self._shown(path), **saved)

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in ("open", *_COPIES, *_ENTRIES) or getattr(self._inside, "busy", False):
            return
        if os.getpid() != self._process:
            return
        self._inside.busy = True
        try:
            if event == "open":
                self._opened(*args)
            elif event in _COPIES:
                self._copied(event, *args[:2])
            elif args[-1] in (-1, None):  # else the name is one in an open folder
                self._check(args[0], follows=False)
        finally:
            self._inside.busy = False

    def _opened(self, path: Any, mode: Any, flags: int) -> None:
        writes = set(mode) & set("wax+") if isinstance(mode, str) else flags & _WRITES
        if writes and isinstance(path, (str, bytes, os.PathLike)) and not os.path.isdir(path):
            self._check(path, anew="w" in mode if isinstance(mode, str) else bool(flags & os.O_TRUNC))
            self._note_file(path)
            self._checkpoints.pop(_real(path), None)

    def _copied(self, event: str, source: Any, target: Any) -> None:
        """A file gets another name, or its contents another file: a checkpoint is saved there, too."""
        self._check(target, follows=event == "shutil.copyfile", anew=True)
        self._note_file(target)
        saved = self._checkpoints.get(_real(source))
        if event == "os.rename":
            self._check(source, follows=False)
            if saved is None:
                saved, self._saved = self._saved, None
        if saved is not None and self._shown(target) is not None:
            self._keep(target, saved)

    def _check(self, path: Any, follows: bool = True, anew: bool = False) -> None:
        """Stop what would change the user's files; ``follows`` tells whether a link stands for what it leads to.

        A large file is a link in the copy of the user's folder: what is written ``anew`` takes the link's place.
        """
        path = os.path.abspath(os.fsdecode(path))
        real = _real(path) if follows else os.path.join(_real(os.path.dirname(path)), os.path.basename(path))
        by_link = path.startswith(self._own)
        theirs = self.protected and real.startswith(self.protected + os.sep)
        if (theirs or (self.protected and by_link)) and not real.startswith(self._own):
            if (
                anew
                and os.path.islink(path)
                and (_real(os.path.dirname(path)) + os.sep).startswith(self._own)
            ):
                with suppress(FileNotFoundError):  # another rank was first
                    os.unlink(path)
                return
            raise PermissionError(f"dp2ddp verify changes nothing of yours: {real} is not to be written")

    def _note_file(self, path: Any) -> None:
        shown = self._shown(path)
        if shown is not None and shown not in self._seen:
            self._seen.add(shown)
            self.journal.add("file", path=shown)

    def _shown(self, path: Any) -> str | None:
        """How a file is called in both runs; None for what is no result."""
        real = _real(path)
        name = os.path.basename(real)
        if name.endswith((".tmp", ".pyc", ".lock")) or "__pycache__" in real:
            return None
        if real.startswith(self._own):
            return os.path.relpath(real, self._start)
        return None if real.startswith(self._passing) else real


def _real(path: Any) -> str:
    return os.path.realpath(os.fsdecode(path))


class _Lines:
    """Standard output, whose whole lines somebody hears of."""

    def __init__(self, stream: Any, note: Callable[[str], None]) -> None:
        self._stream = stream
        self._note = note
        self._begun = ""

    def write(self, text: str) -> int:
        """Write, and tell of the lines that ended."""
        *lines, self._begun = (self._begun + text).split("\n")
        for one in lines:
            self._note(_left_standing(one))
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_stream"], name)


def _left_standing(line: str) -> str:
    """What a terminal shows at last of a line in which progress bars went back."""
    shown: list[str] = []
    place = 0
    for character in line.strip("\r").rpartition("\r")[2]:
        if character == "\b":
            place = max(0, place - 1)
        else:
            shown[place : place + 1] = character
            place += 1
    return "".join(shown)


def keys_of(value: Any, prefix: str = "", depth: int = 0) -> Any:
    """The keys of nested dictionaries, as paths."""
    if depth == 0 and not isinstance(value, dict) and hasattr(value, "state_dict"):
        yield f"<{type(bare(value)).__name__}>"
    elif isinstance(value, dict) and depth < _DEEPEST:
        for key, item in value.items():
            yield f"{prefix}{key}"
            yield from keys_of(item, f"{prefix}{key}/", depth + 1)
