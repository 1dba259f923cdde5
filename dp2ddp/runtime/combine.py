"""Combining what ranks hold: every rank calls, every rank gets the result."""

from __future__ import annotations

import builtins
import pickle
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from . import ranks

Value = TypeVar("Value", int, float, torch.Tensor)


def sum(value: Value) -> Value:
    """The sum of ``value`` over all ranks.

    Args:
        value: a number, or a tensor of the same shape and type on every rank; it is not changed.

    Returns:
        As ``value``: an int or float, or a new tensor on the same device, without a graph. In a plain process, the
        value itself.

    Raises:
        TypeError: neither a number nor a tensor.
    """
    if not isinstance(value, int | float | torch.Tensor):
        raise TypeError(f"sum() takes a number or a tensor, not {type(value).__name__}")
    if ranks.is_alone("sum()"):
        return value
    if not isinstance(value, torch.Tensor):
        return builtins.sum(gather(value))
    total = value.detach().clone()
    if total.dtype is torch.bool:
        total = total.long()
    dist.all_reduce(total)
    return total


def mean(value: Value) -> Value:
    """The mean of ``value`` over the ranks, each counting the same, however many samples it stands for.

    For a metric over samples divide sums instead: ``sum(correct) / sum(count)``.

    Args:
        value: as in ``sum``; a tensor of integers gives a tensor of floats.
    """
    if ranks.is_alone("mean()"):
        return value
    return sum(value) / ranks.get_world_size()


def gather(value: Any) -> list[Any]:
    """The ranks' values, in the order of ranks.

    Args:
        value: anything that can be pickled; tensors come back on the device index they had.

    Returns:
        A list as long as the world, on every rank; ``[value]`` in a plain process.
    """
    if ranks.is_alone("gather()"):
        return [value]
    mine = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8).to(ranks.talk_device())
    sizes = [torch.zeros_like(mine[:1], dtype=torch.long) for _ in range(ranks.get_world_size())]
    dist.all_gather(sizes, torch.tensor([len(mine)], device=mine.device))
    longest = max(int(size) for size in sizes)
    parts = [mine.new_empty(longest) for _ in sizes]
    dist.all_gather(parts, torch.cat([mine, mine.new_zeros(longest - len(mine))]))
    return [_unpickle(part[: int(size)]) for part, size in zip(parts, sizes, strict=True)]


def _unpickle(pickled: torch.Tensor) -> Any:
    # torch.distributed's own all_gather_object needs numpy in torch 2.4
    buffer = bytearray(len(pickled))
    torch.frombuffer(buffer, dtype=torch.uint8).copy_(pickled)
    return pickle.loads(buffer)
