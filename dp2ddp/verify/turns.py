"""Threads that take turns: one runs until it waits for another one, with random numbers of its own.

So what they compute does not depend on how the system deals time to them.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack

from dp2ddp.verify import draws

_turn = threading.Lock()
_own = threading.local()  # in a thread that takes turns, whether it does


def taken(function: Callable[[int], Any], count: int) -> list[Any]:
    """What ``function`` returns for each number below ``count``, each in a thread, with the modes of this one.

    Raises:
        BaseException: what one of them raises; those that wait for it are left.
    """
    modes, enabled = _get_current_function_mode_stack(), torch.is_grad_enabled()
    begun = draws.states()
    ended = threading.Semaphore(0)
    results: dict[int, Any] = {}
    errors: list[BaseException] = []

    def run(number: int) -> None:
        _own.takes_turns = True
        with _turn:
            draws.restore(begun)
            entered = []
            try:
                for mode in modes:
                    mode.__enter__()
                    entered.append(mode)
                with torch.set_grad_enabled(enabled):
                    results[number] = function(number)
            except BaseException as error:
                errors.append(error)
            finally:
                for mode in reversed(entered):
                    mode.__exit__(None, None, None)
        ended.release()

    threading.Condition.wait = _waiting
    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(run, number), daemon=True)
        for number in range(count)
    ]
    for thread in threads:
        thread.start()
    for _ in threads:
        ended.acquire()
        if errors:
            raise errors[0]
    draws.restore(begun)
    return [results[number] for number in range(count)]


_wait = threading.Condition.wait


def _waiting(self: threading.Condition, timeout: float | None = None) -> bool:
    """Condition.wait, during which it is another thread's turn."""
    if not getattr(_own, "takes_turns", False):
        return _wait(self, timeout)
    kept = draws.states()
    _turn.release()
    try:
        return _wait(self, timeout)
    finally:
        self.release()  # the thread whose turn it is may need it
        _turn.acquire()
        self.acquire()
        draws.restore(kept)
