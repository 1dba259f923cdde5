"""float64 as the default type, and in the place of float32 where a program names it or its data have it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def use() -> None:
    """Make float64 the default type, and what tensors and modules become that are made float32."""
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float, nn.Module.float = torch.Tensor.double, nn.Module.double
    torch.FloatTensor = torch.DoubleTensor
    for kind in (torch.Tensor, nn.Module):
        kind.to, kind.type = _widening(kind.to), _widening(kind.type)


def _widening(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*map(_wider, args), **{name: _wider(value) for name, value in kwargs.items()})

    return call


def _wider(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("FloatTensor", "DoubleTensor")
    return torch.float64 if value is torch.float32 else value


def widened(batch: Any) -> Any:
    """A batch with its float32 tensors as float64."""
    if isinstance(batch, torch.Tensor):
        return batch.double() if batch.dtype is torch.float32 else batch
    if type(batch) is dict:
        return {key: widened(item) for key, item in batch.items()}
    if type(batch) in (list, tuple):
        return type(batch)(widened(item) for item in batch)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(widened, batch))
    return batch
