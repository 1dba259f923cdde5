"""One clock for both programs: what a script measures of time is the same in both, and so is what it makes of that.

A time that is printed, averaged in a meter or part of a file's name would differ from run to run. Each time that the
program's own code asks for is a moment later than the one before; what libraries ask for is the machine's time. The
ranks differ, as they do elsewhere: what is not the same on all of them must not decide.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import timeit
from collections.abc import Callable
from typing import Any

_MOMENT = 10_000_000
_BEHIND = 600 * 10**9
"""Nanoseconds: from one asking to the next, and how far it may be behind the machine's clock, so that waiting ends."""
_APART = 1_700_000_000
"""Nanoseconds that each rank begins later than the one before it."""

_machine = time.monotonic_ns
_OF_NOW = ("time", "perf_counter", "monotonic", "process_time", "thread_time")


class Clock:
    """The time since a program began, by how often its main thread asked for it."""

    def __init__(self, began: float, folder: str, rank: int) -> None:
        self._began = int(began * 10**9) + rank * _APART
        self._moment = (1 + rank) * _MOMENT
        self._real = _machine()
        self._passed = 0
        self._thread = threading.main_thread()
        self._own = tuple({os.path.dirname(it) + os.sep for it in (folder, os.path.realpath(folder))})

    def patch(self) -> None:
        """Have the program's own code ask this clock."""
        for name in _OF_NOW:
            for whole in (name, f"{name}_ns"):
                setattr(time, whole, self._instead_of(getattr(time, whole), whole))
        timeit.default_timer = time.perf_counter

    def _instead_of(self, real: Callable[[], Any], name: str) -> Callable[[], Any]:
        since = self._began if name.startswith("time") else 0
        asks = self._ask

        def asked() -> Any:
            passed = asks(sys._getframe(1).f_code.co_filename)
            if passed is None:
                return real()
            return since + passed if name.endswith("_ns") else (since + passed) / 10**9

        return asked

    def _ask(self, file: str) -> int | None:
        """Nanoseconds since the beginning; None where a library asks."""
        if not file.startswith(self._own):
            return None
        if threading.current_thread() is self._thread:
            behind = _machine() - self._real - _BEHIND
            self._passed = max(self._passed + self._moment, behind)
        return self._passed
