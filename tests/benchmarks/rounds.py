"""Measurements in rounds: each round takes every thing once, in another order."""

from __future__ import annotations

import os
import platform
import random
import statistics
from collections.abc import Sequence

import torch


def order(names: Sequence[str], number: int) -> list[str]:
    """The names in the order of round ``number``: at random, since each slows down the next one by chance."""
    return random.Random(number).sample(names, len(names))


def ratio(above: Sequence[float], below: Sequence[float]) -> str:
    """The median of the rounds' ratios, with their quartiles."""
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"**{middle:.3f}** ({low:.3f} to {high:.3f})"


def machine(*versions: str) -> str:
    """What was measured with, for below a table."""
    named = ", ".join([f"torch {torch.__version__}", *versions])
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"({named}, Python {platform.python_version()}; {cores} CPU cores; medians, in brackets the middle half)"
