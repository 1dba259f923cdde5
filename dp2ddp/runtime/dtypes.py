"""Types of numbers that differ between ranks, where a sample decides its own and a batch takes what all fit into."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import torch


def common_type(types: Iterable[torch.dtype]) -> torch.dtype | None:
    """What torch makes of several types, as ``torch.stack`` and a DataLoader do of a batch's; None if it refuses.

    A DataLoader with workers takes the first sample's for what it stacks, which may round others; this never does.
    """
    try:
        return functools.reduce(torch.promote_types, types)
    except RuntimeError:  # torch has no rule for float8 and unsigned integers
        return None
