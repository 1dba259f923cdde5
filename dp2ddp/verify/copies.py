"""What torch.nn.parallel copies between GPUs, where all of them are one device: nothing has to move."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.parallel import _functions

Tensors = Sequence[torch.Tensor]


def scatter(
    tensor: torch.Tensor, devices: Any = None, chunk_sizes: Any = None, dim: int = 0, *_: Any, **__: Any
) -> tuple[torch.Tensor, ...]:
    """A tensor's parts, of these sizes or alike."""
    if chunk_sizes is None:
        return tuple(tensor.chunk(len(devices), dim))
    return tuple(tensor.split(list(chunk_sizes), dim))


def gather(tensors: Tensors, dim: int = 0, *_: Any, **__: Any) -> torch.Tensor:
    """Tensors joined; numbers as a vector."""
    every = tuple(it.view(1) if it.dim() == 0 else it for it in tensors)
    return torch.cat(every, dim)


def broadcast(tensor: torch.Tensor, devices: Any = None, *_: Any, **__: Any) -> tuple[torch.Tensor, ...]:
    """As many of a tensor as there are devices."""
    return tuple(tensor.clone() for _ in devices)


def broadcast_coalesced(tensors: Tensors, devices: Any, *_: Any, **__: Any) -> list[list[torch.Tensor]]:
    """As many of some tensors."""
    return [[it.clone() for it in tensors] for _ in devices]


def reduce_add(tensors: Tensors, *_: Any, **__: Any) -> torch.Tensor:
    """The sum of tensors."""
    return torch.stack(tuple(tensors)).sum(0)


def reduce_add_coalesced(several: Sequence[Tensors], *_: Any, **__: Any) -> tuple[torch.Tensor, ...]:
    """The sums of the first tensors, of the second, and so on."""
    return tuple(map(reduce_add, zip(*several, strict=True)))


def replace() -> None:
    """Put them in the place of torch's, and of the functions of autograd that call those."""
    functions = (scatter, gather, broadcast, broadcast_coalesced, reduce_add, reduce_add_coalesced)
    for name in {"torch.nn.parallel.comm", "torch.cuda.comm"} & sys.modules.keys():
        for function in functions:
            setattr(sys.modules[name], function.__name__, function)
    _functions.Scatter.apply = lambda targets, sizes, dim, tensor: scatter(tensor, targets, sizes, dim)
    _functions.Gather.apply = lambda _, dim, *tensors: gather(tensors, dim)
    _functions.Broadcast.apply = lambda targets, *tensors: tuple(
        it.view_as(it) for _ in targets for it in tensors
    )
    _functions.ReduceAddCoalesced.apply = lambda _, count, *tensors: reduce_add_coalesced(
        [tensors[first : first + count] for first in range(0, len(tensors), count)]
    )
