"""A batch cut as torch.nn.parallel.scatter_kwargs cuts it, without devices.

Tensors are chunked, containers are cut item by item and are as many as the shortest of their items gives, and anything
else goes to every chunk as it is. One thing is not torch's: keyword arguments without tensors, beside fewer chunks than
replicas, make torch call the others without positional arguments, which is an error in nearly every model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import parts

Cut = Callable[[torch.Tensor], Sequence[torch.Tensor]]
Call = tuple[tuple[Any, ...], dict[str, Any]]


def scatter(inputs: tuple[Any, ...], kwargs: dict[str, Any], count: int, cut: Cut) -> list[Call]:
    """The arguments of each replica's call.

    Args:
        inputs, kwargs: the arguments of the call on the whole batch.
        count: how many replicas there are; fewer calls are made where there are fewer chunks.
        cut: gives a tensor's chunks, at most ``count``.

    Returns:
        One ``(inputs, kwargs)`` for each call; one with nothing for a call without arguments.
    """
    positional = pieces(inputs, count, cut) if inputs else []
    named = pieces(kwargs, count, cut) if kwargs else []
    decisive = [calls for calls in (positional, named) if parts.tensors(calls)] or [positional, named]
    number = max(1, *map(len, decisive))
    positional += [()] * (number - len(positional))
    named += [{}] * (number - len(named))
    return list(zip(positional, named, strict=False))[:number]


def pieces(value: Any, count: int, cut: Cut) -> list[Any]:
    """What each replica gets of a value; as many as the shortest of its tensors gives."""
    if isinstance(value, torch.Tensor):
        return list(
            cut(value.as_subclass(torch.Tensor))
        )  # replicas get plain tensors, as from nn.DataParallel
    if isinstance(value, tuple | list | dict) and len(value) > 0:
        items = value.values() if isinstance(value, dict) else value
        calls = zip(*(pieces(item, count, cut) for item in items), strict=False)
        return [_like(value, call) for call in calls]
    return [value] * count


def _like(value: Any, items: tuple[Any, ...]) -> Any:
    if isinstance(value, dict):
        return type(value)(zip(value, items, strict=True))
    if hasattr(value, "_fields") and hasattr(value, "_asdict"):
        return type(value)(*items)
    return list(items) if isinstance(value, list) else tuple(items)
