"""Batches that are divided among the ranks, while nothing averages the gradients of what they train.

A model that is wrapped only under a condition may not be: without an option, or in a function that is not called. Each
rank would train another model on its parts of the batches. So if no model is wrapped when an optimizer has made its
first step, the ranks compare what it trains, once: a program that averages gradients by itself has the same everywhere.
``DP2DDP_CHECK=0`` turns the comparison off, and those of replicas (see ``watch``).
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from . import digests, ranks
from .exchange import exchange

VARIABLE = "DP2DDP_CHECK"
HOW_TO_GO_ON = f"{VARIABLE}=0 turns this comparison off"
_handles: list[Any] = []
_is_averaged = False


def divided() -> None:
    """Note that a loader hands out parts of batches that a model is to be trained with."""
    if not _handles and not _is_averaged and ranks.get_world_size() > 1:
        _handles.append(register_optimizer_step_post_hook(_compare))


def averaged() -> None:
    """Note that gradients are averaged, of whatever model."""
    global _is_averaged
    _is_averaged = True


def _compare(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    while _handles:
        _handles.pop().remove()
    if _is_averaged:
        return
    tensors = [it for group in optimizer.param_groups for it in group["params"]]
    own = digests.fetched(digests.digest(it) for it in tensors)
    is_wanted = os.environ.get(VARIABLE, "1") != "0"
    said = exchange("the comparison of parameters", (is_wanted, own))
    if said[0][0] and any(it != own for _, it in said):
        raise RuntimeError(
            "the ranks train different models: batches are sharded, but no model is wrapped. Wrap it in "
            "ddp.DistributedDataParallel in this run, too, or use one process: DP2DDP_PROCESSES=1. "
            f"{HOW_TO_GO_ON}"
        )
