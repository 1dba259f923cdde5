"""``squeeze()`` of a part of a batch, which may be one sample."""

from __future__ import annotations

from typing import TypeVar

from . import ranks

Rows = TypeVar("Rows")


def squeeze(values: Rows) -> Rows:
    """``values.squeeze()``, which keeps the dimension of the samples where a rank has one sample.

    A batch of several samples keeps it in one process. A rank's part of that batch, with one sample, would lose it::

        loss = criterion(ddp.squeeze(model(inputs)), targets)

    Args:
        values: a tensor or NumPy array whose first dimension is that of the samples.

    Returns:
        As ``values``, a view without the dimensions of size 1, but the first. In a plain process, ``values.squeeze()``.
    """
    if ranks.get_world_size() == 1 or values.ndim == 0 or values.shape[0] != 1:
        return values.squeeze()
    return values.reshape([1, *(size for size in values.shape[1:] if size != 1)])
