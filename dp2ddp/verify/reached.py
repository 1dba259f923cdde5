"""Which of some lines a program runs: those at which a conversion assumes something."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

FILE = "reached"
"""What is appended to in the folder of the notes: a line with the number of each place that a process came to."""

Place = tuple[str, int, int]
"""A file, the first line, the last one."""


class Reached:
    """Notes which of some places this process comes to, and those that it forks (a loader's workers).

    Args:
        places: where to look.
        out: the folder of the notes.
    """

    def __init__(self, places: Sequence[Place], out: Path) -> None:
        self._open = {
            number: (os.path.realpath(path), *lines) for number, (path, *lines) in enumerate(places)
        }
        self._out = out / FILE
        self._known: dict[CodeType, dict[int, tuple[int, int]]] = {}

    def watch(self) -> None:
        """Begin: in this thread, and in those that start from now on."""
        sys.settrace(self._enter)
        threading.settrace(self._enter)

    def _places(self, code: CodeType) -> dict[int, tuple[int, int]]:
        """The places that lie in a function, or in what stands at the top of a file: first and last line."""
        if code not in self._known:
            file = os.path.realpath(code.co_filename)
            own = {line for _, _, line in code.co_lines() if line is not None}
            self._known[code] = {
                number: (first, last)
                for number, (path, first, last) in self._open.items()
                if file == path and own & {*range(first, last + 1)}
            }
        return self._known[code]

    def _enter(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._step if self._open and self._places(frame.f_code) else None

    def _step(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            for number, (first, last) in self._places(frame.f_code).items():
                if first <= frame.f_lineno <= last and self._open.pop(number, None):
                    with open(self._out, "a") as notes:
                        notes.write(f"{number}\n")
        return self._step if self._open else None


def read(out: Path) -> frozenset[int]:
    """The numbers of the places that the processes of a run came to."""
    path = out / FILE
    return frozenset(map(int, path.read_text().split())) if path.exists() else frozenset()
