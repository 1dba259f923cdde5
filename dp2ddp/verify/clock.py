"""One clock for both programs: what a script measures of time is the same in both, and so is what it makes of that.

A time that is printed, averaged in a meter or part of a file's name would differ from run to run. Each time that the
program's own code asks for is a moment later than the one before. What libraries measure is the machine's time, as they
wait by it; the dates that they ask for to show them are the program's, and do not move it on. The ranks differ, as they
do elsewhere: what is not the same on all of them must not decide.
"""

from __future__ import annotations

import ctypes
import datetime
import gc
import logging
import sys
import threading
import time
import timeit
from collections.abc import Callable
from typing import Any

from dp2ddp.verify.asked import Asked, is_of

_MOMENT = 10_000_000
_BEHIND = 600 * 10**9
"""Nanoseconds: from one asking to the next, and how far it may be behind the machine's clock, so that waiting ends."""
_APART = 1_700_000_000
"""Nanoseconds that each rank begins later than the one before it."""

_machine = time.monotonic_ns
_OF_NOW = ("time", "perf_counter", "monotonic", "process_time", "thread_time")
_OF_SECONDS = ("localtime", "gmtime", "ctime")
"""They show the time that they are given, or the present one."""
_SHOWING = (("strftime", 1), ("asctime", 0))
"""They do that for a time in its parts: the name, and where it stands among the arguments."""


class Clock:
    """The time since a program began, by how often its main thread asked for it."""

    def __init__(self, began: float, folder: str, rank: int) -> None:
        self._began = int(began * 10**9) + rank * _APART
        self._moment = (1 + rank) * _MOMENT
        self._real = _machine()
        self._passed = 0
        self._thread = threading.main_thread()
        self._is_own = is_of(folder)

    def patch(self) -> None:
        """Have the program's own code ask this clock."""
        for name in _OF_NOW:
            for whole in (name, f"{name}_ns"):
                setattr(time, whole, self._instead_of(getattr(time, whole), whole))
        timeit.default_timer = time.perf_counter
        localtime = time.localtime
        for name in _OF_SECONDS:
            setattr(time, name, self._shown_by(getattr(time, name), 0, lambda now: now))
        for name, place in _SHOWING:
            setattr(time, name, self._shown_by(getattr(time, name), place, localtime))
        self._patch_dates()
        self._patch_records()

    def _instead_of(self, real: Callable[[], Any], name: str) -> Callable[[], Any]:
        since = self._began if name.startswith("time") else 0
        asks = self._ask

        def asked(file: str) -> Any:
            passed = asks(file)
            if passed is None:
                return real()
            return since + passed if name.endswith("_ns") else (since + passed) / 10**9

        return Asked(real, asked)

    def _shown_by(
        self, real: Callable[..., Any], place: int, form: Callable[[float], Any]
    ) -> Callable[..., Any]:
        """What shows a time, the present one of this clock where none is given at that ``place``, in its ``form``."""

        def asked(file: str, *args: Any) -> Any:
            if len(args) == place or (real.__name__ in _OF_SECONDS and args == (None,)):
                args = (*args[:place], form(self._date(file)))
            return real(*args)

        return Asked(real, asked)

    def _patch_dates(self) -> None:
        """Set ``now`` in the type itself, which is C's: another one in its place would part it from its instances.

        ``today`` asks ``time.time``.
        """
        kind = datetime.datetime
        own = gc.get_referents(kind.__dict__)[0]
        from_seconds = kind.__dict__["fromtimestamp"]

        def now(cls: type, tz: Any = None) -> Any:
            return from_seconds.__get__(None, cls)(self._date(sys._getframe(1).f_code.co_filename), tz)

        def utcnow(cls: type) -> Any:
            seconds = self._date(sys._getframe(1).f_code.co_filename)
            return from_seconds.__get__(None, cls)(seconds, datetime.timezone.utc).replace(tzinfo=None)

        own.update(now=classmethod(now), utcnow=classmethod(utcnow))
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))

    def _patch_records(self) -> None:
        """Date records of logs, which do not move the clock on."""
        handle = logging.Logger.handle

        def dated(logger: logging.Logger, record: logging.LogRecord) -> None:
            passed = self._now()
            record.created = (self._began + passed) / 10**9
            record.msecs = float((self._began + passed) // 10**6 % 1000)
            record.relativeCreated = passed / 10**6
            handle(logger, record)

        logging.Logger.handle = dated  # type: ignore[method-assign]

    def _date(self, file: str) -> float:
        """Seconds since 1970, for whoever asks."""
        passed = self._ask(file)
        return (self._began + (self._now() if passed is None else passed)) / 10**9

    def _now(self) -> int:
        return max(self._passed, _machine() - self._real - _BEHIND)

    def _ask(self, file: str) -> int | None:
        """Nanoseconds since the beginning; None where a library asks."""
        if not self._is_own(file):
            return None
        if threading.current_thread() is self._thread:
            behind = _machine() - self._real - _BEHIND
            self._passed = max(self._passed + self._moment, behind)
        return self._passed
