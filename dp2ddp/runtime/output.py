"""What is shown is the main process's: from ``init`` on, the other ranks are not heard.

Standard output of the other ranks goes nowhere, whoever writes to it: Python, C++, a program that they start. Logging
below ERROR is off there (loguru's, too), warnings and argparse's messages are not said again, tqdm draws nothing,
nothing is read from standard input (where that is a terminal, it is one at which nobody types). Standard error stays:
tracebacks, and the runtime's own messages, always come through.

``DP2DDP_OUTPUT=all`` shows every rank, its number before each line. Any other value is a folder: there, each rank
writes what it says into a file of its own, and the main process shows it, too.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any, TextIO

from . import terminal

VARIABLE = "DP2DDP_OUTPUT"
ALL = "all"

_restored: list[Callable[[], object]] = []  # what takes back what was arranged

# Copies its input, line by line, behind a prefix; it ends when nobody can write to it any more.
_LABEL = """
import os, sys
prefix, out = sys.argv[1].encode(), int(sys.argv[2])
rest = b""
while True:
    data = os.read(0, 65536)
    lines = (rest + data).split(b"\\n")
    rest = lines.pop()
    if not data and rest:
        lines.append(rest)
    if lines:
        os.write(out, b"".join(prefix + line + b"\\n" for line in lines))
    if not data:
        break
"""


def begin(rank: int) -> None:
    """Arrange what is seen of this rank from now on."""
    wanted = os.environ.get(VARIABLE, "")
    flush()
    if rank > 0:
        _keep(0)
        _give(_unread(), 0)
    if wanted == ALL:
        for number in (1, 2):
            _give(_labelled(f"[rank {rank}] ", number), number)
    elif wanted:
        _write_into(Path(wanted), rank)
    elif rank > 0:
        _keep(1)
        _give(os.open(os.devnull, os.O_WRONLY), 1)
        _silence()


def _unread() -> int:
    """What another rank has for standard input: a terminal where that is one, so that it can ask its size."""
    with suppress(OSError, ImportError):
        if os.isatty(0):
            return terminal.idle(0)
    return os.open(os.devnull, os.O_RDONLY)


def end() -> None:
    """Let a rank be heard again, as one of the program's own."""
    flush()
    while _restored:
        _restored.pop()()


def _keep(number: int) -> None:
    """Have a standard stream come back in the end, unless it is closed."""
    with suppress(OSError):
        _restored.append(partial(_give, os.dup(number), number))


def _give(descriptor: int, number: int) -> None:
    """Put an open file in the place of a standard stream's, for this process and for those that it starts."""
    os.dup2(descriptor, number)
    os.close(descriptor)


def _labelled(prefix: str, number: int) -> int:
    """A pipe whose lines come out where a standard stream led, behind a prefix: another process outlives this one."""
    read, write = os.pipe()
    command = [sys.executable, "-I", "-S", "-c", _LABEL, prefix, str(number)]
    subprocess.Popen(command, stdin=read, start_new_session=True)
    os.close(read)
    return write


def _write_into(folder: Path, rank: int) -> None:
    """Have this rank's output written into a file; the main process's is shown, too."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rank{rank}.log"
    if rank > 0:
        for number in (1, 2):
            _give(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666), number)
        return
    path.touch()
    for number in (1, 2):
        read, write = os.pipe()
        subprocess.Popen(["tee", "-a", str(path)], stdin=read, stdout=number, start_new_session=True)
        os.close(read)
        _give(write, number)


def flush() -> None:
    """Write what the standard streams hold back, before they are exchanged or the process ends at once."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass


def _silence() -> None:
    """Say nothing that the main process says as well."""
    _restored.append(partial(logging.disable, logging.root.manager.disable))
    logging.disable(logging.ERROR - 1)
    _replace(warnings, "showwarning", _nothing)
    _replace(argparse.ArgumentParser, "_print_message", _nothing)
    tqdm = getattr(sys.modules.get("tqdm.std"), "tqdm", None)  # torch has imported it, if it is installed
    if tqdm is not None:
        _replace(tqdm, "__init__", _drawing_nothing(tqdm.__init__))
    loguru = getattr(sys.modules.get("loguru._logger"), "Logger", None)
    if loguru is not None:
        _replace(loguru, "_log", _from_error_on(loguru._log))


def _replace(holder: Any, name: str, function: Callable[..., None]) -> None:
    _restored.append(partial(setattr, holder, name, getattr(holder, name)))
    setattr(holder, name, function)


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _from_error_on(log: Callable[..., None]) -> Callable[..., None]:
    """What loguru's logger says that is at least an error; it has handlers, and numbers for levels, of its own."""

    @wraps(log)
    def said(self: Any, level: Any, catches: bool, options: Any, *args: Any) -> None:
        number = self.level(level).no if isinstance(level, str) else level
        if number >= logging.ERROR:
            exception, depth, *others = options  # this is one function more than the line that logs
            log(self, level, catches, (exception, depth + 1, *others), *args)

    return said


_NOWHERE: list[TextIO] = []  # one open file for all progress bars


def _drawing_nothing(make: Callable[..., None]) -> Callable[..., None]:
    """Progress bars that count, since programs ask them how far they are, and are shown nowhere."""

    @wraps(make)
    def init(self: Any, *args: Any, **options: Any) -> None:
        if not _NOWHERE:
            _NOWHERE.append(open(os.devnull, "w", encoding="utf-8"))
        place = 5  # of `file` among the arguments
        if len(args) > place:
            args = (*args[:place], _NOWHERE[0], *args[place + 1 :])
        else:
            options["file"] = _NOWHERE[0]
        make(self, *args, **options)

    return init
