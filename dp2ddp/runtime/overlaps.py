"""Files that several ranks of a machine write are noticed, and said once for each line that does.

What a program writes is the main process's. Where something else writes, too, and nothing in the program's source says
so (a package's own writer, a callback that is found by its name), the ranks would write one file over each other
without a word. So each rank tells the store which files it creates or appends to; the one that is not the first says
it. What is written in ``main_process_first`` is written in turn, and caches have locks of their own. Only what Python
or torch.save opens is seen: other libraries in C that open a path themselves are not.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from . import lines, ranks, rendezvous
from .messages import say
from .unwrapped import VARIABLE

_FILES = 512  # of a rank that are told
_CREATES = os.O_CREAT | os.O_TRUNC | os.O_APPEND
_PASSING = (".lock", ".pyc", ".tmp")
_LIBRARIES = (lines.PYTHON, *lines.INSTALLED)

_watch: _Watch | None = None


def begin() -> None:
    """Watch what this rank writes, from now on, if ``DP2DDP_CHECK=0`` does not turn that off."""
    global _watch
    if os.environ.get(VARIABLE, "1") == "0":
        return
    _watch = _Watch()
    sys.addaudithook(_watch.hear)
    torchs = torch.save
    if hasattr(torchs, "dp2ddp"):
        return

    @functools.wraps(torchs)
    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(f, str | os.PathLike):
            wrote(f)  # torch opens it in C++
        torchs(obj, f, *args, **kwargs)

    save.dp2ddp = True  # type: ignore[attr-defined]
    torch.save = save


def wrote(path: str | os.PathLike[str]) -> None:
    """Note what this rank writes in a way that is not seen."""
    if _watch is not None:
        _watch.hear("open", (path, "w", 0))


class _Watch:
    """Tells of what this process opens; an audit hook stays for ever, so it asks each time whether that matters."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._told: set[str] = set()
        self._said: set[str] = set()
        self._inside = threading.local()
        caches = os.environ.get("XDG_CACHE_HOME") or os.path.join(Path.home(), ".cache")
        self._passing = ("/dev/", "/proc/", os.path.join(caches, ""))

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        """Look at one of Python's audit events."""
        if event != "open" or not _creates(args[1], args[2]) or getattr(self._inside, "busy", False):
            return
        if os.getpid() != self._process or ranks.takes_turns() or ranks.stands_aside():
            return
        self._inside.busy = True
        try:
            with suppress(Exception):  # the file is opened, whatever comes of this
                self._look(args[0])
        finally:
            self._inside.busy = False

    def _look(self, name: Any) -> None:
        path = os.path.realpath(os.fsdecode(name))
        if path in self._told or len(self._told) >= _FILES or ranks.count() == 1:
            return
        if path.startswith((*self._passing, *_LIBRARIES)) or path.endswith(_PASSING) or os.path.isdir(path):
            return
        self._told.add(path)
        key = hashlib.sha256(f"{ranks.machine()} {path}".encode()).hexdigest()[:20]
        if rendezvous.store().add(f"writes/{key}", 1) == 1:
            return
        site = lines.site(_is_librarys)
        if site not in self._said:
            self._said.add(site)
            say(
                f"rank {ranks.own_rank()} writes {os.path.basename(path)} at {site}, and so does another rank: "
                'if one is enough, put it under "if ddp.is_main_process():"'
            )


def _creates(mode: Any, flags: Any) -> bool:
    """Whether a file is opened to be made, emptied or added to: one that is only changed in place is left out."""
    return bool(set(mode) & set("wxa")) if isinstance(mode, str) else bool(flags & _CREATES)


def _is_librarys(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith((*_LIBRARIES, "<frozen")) or "site-packages" in file
