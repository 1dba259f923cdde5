"""What goes wrong in dp2ddp itself: said in one line, and in full where ``DP2DDP_DEBUG=1`` asks for it."""

from __future__ import annotations

import os

INTERNAL = "DDP000"
"""The code of findings about dp2ddp itself."""

DEBUG = "DP2DDP_DEBUG"
DEFECT = (
    f"this is a bug in dp2ddp, nothing is changed: please report it with the traceback that {DEBUG}=1 shows"
)


def defect(error: Exception) -> str:
    """An unexpected error in one line; with ``DP2DDP_DEBUG=1`` it is raised again instead."""
    if os.environ.get(DEBUG):
        raise error
    return " ".join(f"{type(error).__name__}: {error}".split())
