"""Batches that are divided among the ranks, while nothing averages the gradients of what they train.

A model that is wrapped only under a condition may not be: without an option, or in a function that is not called. Each
rank would train another model on its parts of the batches. So if no model is wrapped when an optimizer has made its
first step, the ranks compare what it trains, once: a program that averages gradients by itself has the same everywhere.
``DP2DDP_CHECK=0`` turns the comparison off, and those of replicas (see ``watch``).

A loader that is divided only if a model is wrapped (``shard(…, if_wrapped=True)``) finds out when its first loop
begins. Several models may have conditions of their own. So in such a program every optimizer's first step is compared,
of what no wrapper has.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.weak import WeakIdKeyDictionary

from . import digests, ranks
from .exchange import exchange

VARIABLE = "DP2DDP_CHECK"
HOW_TO_GO_ON = f"{VARIABLE}=0 turns this comparison off"
_handles: list[Any] = []  # of the hook, which stays: torch goes over the hooks while one is called
_is_watching = False
_is_averaged = False
_is_any_wrapped = False
_is_doubtful = False  # whether models are wrapped under conditions
_averaged = WeakIdKeyDictionary()  # the parameters whose gradients are averaged
_compared: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()


def divided(if_wrapped: bool = False) -> None:
    """Note that a loader hands out parts of batches that a model is trained with; ``if_wrapped`` as in ``shard``."""
    global _is_doubtful, _is_watching
    _is_doubtful |= if_wrapped
    if (_is_doubtful or not _is_averaged) and ranks.get_world_size() > 1:
        _is_watching = True
        if not _handles:
            _handles.append(register_optimizer_step_post_hook(_compare))


def averaged(parameters: Iterable[torch.Tensor], is_wrapper: bool = False) -> None:
    """Note that the gradients of some parameters are averaged, ``is_wrapper``: by a wrapper round their model."""
    global _is_averaged, _is_any_wrapped
    _is_averaged = True
    _is_any_wrapped |= is_wrapper
    for parameter in parameters:
        _averaged[parameter] = True


def is_any_wrapped() -> bool:
    """Whether any model has been wrapped."""
    return _is_any_wrapped


def _compare(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    global _is_watching
    if not _is_watching or optimizer in _compared or ranks.get_world_size() == 1:
        return
    _compared.add(optimizer)
    _is_watching = _is_doubtful
    if _is_averaged and not _is_doubtful:
        return
    held = [it for group in optimizer.param_groups for it in group["params"]]
    tensors = [it for it in held if it not in _averaged]
    if not tensors:
        return
    own = digests.fetched(digests.digest(it) for it in tensors)
    is_wanted = os.environ.get(VARIABLE, "1") != "0"
    said = exchange("the comparison of parameters", (is_wanted, own))
    what = "not every model" if _is_averaged else "no model"
    if said[0][0] and any(it != own for _, it in said):
        raise RuntimeError(
            f"the ranks train different models: batches are sharded, but {what} is wrapped. Wrap it in "
            "ddp.DistributedDataParallel in this run, too, or use one process: DP2DDP_PROCESSES=1. "
            f"{HOW_TO_GO_ON}"
        )
