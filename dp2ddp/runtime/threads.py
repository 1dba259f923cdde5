"""Threads that the program starts compute on this rank's GPU, too: CUDA's current device is each thread's own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial, wraps

import torch

_start = threading.Thread.start
_device: torch.device | None = None
_process: int | None = None  # DataLoader workers inherit what is set here, and must not touch CUDA


def bind(device: torch.device) -> None:
    """From now on, make ``device`` the current one of every thread that this process starts."""
    global _device, _process
    _device, _process = device, os.getpid()
    threading.Thread.start = _start_bound  # type: ignore[method-assign]


@wraps(_start)
def _start_bound(thread: threading.Thread) -> None:
    if thread.ident is None and _process == os.getpid():
        thread.run = partial(_run, thread.run)  # type: ignore[method-assign]
    _start(thread)


def _run(run: Callable[[], None]) -> None:
    if _device is not None:
        torch.cuda.set_device(_device)
    run()
