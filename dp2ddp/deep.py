"""Room for programs that are nested deeply, or large.

A stack of our own, as large as the deepest that is read needs; and a collector that looks less often through what is
made of them, which stays in use until the end.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

_SIZES = (512 << 20, 128 << 20, 32 << 20)
"""Bytes of stack, of which only those that are used take memory; less where the system gives less."""

_FRAME = 8 << 10
"""Bytes of stack for one call, those of C between two of Python's included."""

_NEW_OBJECTS = 50_000
"""New objects after which the collector looks for unused ones: after 700, as usual, a sixth of the time goes there."""


def deeply(call: Callable[[], T]) -> T:
    """What ``call`` returns or raises, where 65,000 calls may be inside of each other, if there is room for that."""
    if threading.current_thread().name == __name__:
        return call()
    with _collecting_rarely():
        return _called(call)


def _called(call: Callable[[], T]) -> T:
    """The same, in a thread of our own."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            errors.append(error)

    usual = sys.getrecursionlimit()
    for size in _SIZES:
        thread = _started(run, size)
        if thread is not None:
            break
    else:
        return call()
    try:
        thread.join()
    finally:
        sys.setrecursionlimit(usual)
    if errors:
        raise errors[0]
    return results[0]


def _started(run: Callable[[], None], size: int) -> threading.Thread | None:
    """A thread with a stack of so many bytes; None where there is none."""
    usual, limit = threading.stack_size(), sys.getrecursionlimit()
    try:
        threading.stack_size(size)
        sys.setrecursionlimit(max(limit, size // _FRAME))
        thread = threading.Thread(target=run, name=__name__, daemon=True)
        thread.start()
        return thread
    except (RuntimeError, ValueError):
        sys.setrecursionlimit(limit)
        return None
    finally:
        threading.stack_size(usual)


@contextmanager
def _collecting_rarely() -> Iterator[None]:
    """Have the collector begin later, if it is on, and as before afterwards."""
    usual = gc.get_threshold()
    if 0 < usual[0] < _NEW_OBJECTS:
        gc.set_threshold(_NEW_OBJECTS, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
