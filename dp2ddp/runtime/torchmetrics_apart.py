"""Metrics of torchmetrics stay each rank's own, as in the one process of before: they are given whole batches already.

torchmetrics joins the states of all ranks in ``compute()`` wherever there is a process group. In a converted program
every rank feeds its metrics what one process fed them, so they would count everything once for each rank.
"""

from __future__ import annotations

import functools
import sys
from typing import Any


def begin() -> None:
    """Have no metric joined from now on."""
    metric = getattr(sys.modules.get("torchmetrics.metric"), "Metric", None)
    sync = getattr(metric, "sync", None)
    if sync is None or hasattr(sync, "__wrapped__"):
        return

    @functools.wraps(sync)
    def stays(*_: Any, **__: Any) -> None:
        """As torchmetrics does in one process."""

    metric.sync = stays  # type: ignore[union-attr]
