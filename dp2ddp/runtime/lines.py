"""The user's line that calls into this package: for messages."""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
import threading
from collections.abc import Callable
from types import FrameType

import torch

# Where Python's own modules lie, and where packages are installed.
PYTHON = os.path.join(sysconfig.get_paths()["stdlib"], "")
INSTALLED = tuple(os.path.join(sysconfig.get_paths()[kind], "") for kind in ("purelib", "platlib"))
_PASSED_OVER = (
    os.path.dirname(__file__) + os.sep,
    os.path.join(os.path.dirname(os.path.dirname(__file__)), "verify") + os.sep,  # what records a run
    os.path.dirname(torch.__file__) + os.sep,
    contextlib.__file__,
)


def site(passed_over: Callable[[FrameType], bool] | None = None) -> str:
    """The line outside this package (and torch) that called into it, as ``file:line``.

    Args:
        passed_over: says of what other frames the callers are meant.
    """
    found = _outside(sys._getframe(1), passed_over)
    return site_of_program() if found is None else _named(found)  # None in one of autograd's threads


def function() -> str:
    """The function outside this package (and torch) that called into it, as ``file:name``."""
    found = _outside(sys._getframe(1), None)
    return "" if found is None else f"{os.path.basename(found.f_code.co_filename)}:{found.f_code.co_name}"


def site_of_program() -> str:
    """The line that the program's main thread is at, as ``file:line``, whichever thread asks."""
    found = _outside(sys._current_frames().get(threading.main_thread().ident))
    return "an unknown line" if found is None else _named(found)


def _named(frame: FrameType) -> str:
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def _outside(
    frame: FrameType | None, passed_over: Callable[[FrameType], bool] | None = None
) -> FrameType | None:
    while frame is not None and (
        frame.f_code.co_filename.startswith(_PASSED_OVER) or passed_over is not None and passed_over(frame)
    ):
        frame = frame.f_back
    return frame
