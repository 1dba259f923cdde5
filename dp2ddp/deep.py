"""Room for programs that are nested deeply: a stack of our own, as large as the deepest that is read needs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_SIZES = (512 << 20, 128 << 20, 32 << 20)
"""Bytes of stack, of which only those that are used take memory; less where the system gives less."""

_FRAME = 8 << 10
"""Bytes of stack for one call, those of C between two of Python's included."""


def deeply(call: Callable[[], T]) -> T:
    """What ``call`` returns or raises, where 65,000 calls may be inside of each other, if there is room for that."""
    if threading.current_thread().name == __name__:
        return call()
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
