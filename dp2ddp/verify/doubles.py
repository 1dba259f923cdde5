"""float64 as the default type, and in the place of float32 where a program names it or its data have it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

_TAKING = {torch.tensor, torch.as_tensor, torch.asarray}
"""What makes a tensor of numbers that have a type of their own, as numpy's arrays do."""
_MODES = ("dp2ddp.verify.", "torch.overrides", "torch.utils._device")
"""Where other modes hand a call on."""


class _Wide(TorchFunctionMode):
    """Every torch function that is told float32, or takes an array of it, makes float64; amp counts in float32."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if named.get("dtype") is torch.float32 and not _is_apart(sys._getframe(1)):
            named = {**named, "dtype": torch.float64}
        made = func(*args, **named)
        return widened(made) if func in _TAKING else made


def _is_apart(frame: Any) -> bool:
    """Whether amp counts in float32, or a checkpoint's tensors get the type of their storage."""
    while _name(frame).startswith(_MODES) and frame.f_back is not None:
        frame = frame.f_back
    return _name(frame).startswith(("torch.amp.", "torch.cuda.amp.", "torch._utils"))


def _name(frame: Any) -> str:
    return str(frame.f_globals.get("__name__", ""))


def use() -> None:
    """Make float64 the default type, and what is float32 where it is made, or becomes that."""
    torch.set_default_dtype(torch.float64)
    for name in ("from_numpy", "frombuffer"):  # no mode hears of them
        setattr(torch, name, _widened(getattr(torch, name)))
    _Wide().__enter__()
    torch.Tensor.float, nn.Module.float = torch.Tensor.double, nn.Module.double
    torch.FloatTensor = torch.DoubleTensor
    for kind in (torch.Tensor, nn.Module):
        kind.to, kind.type = _widening(kind.to), _widening(kind.type)


def _widening(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*map(_wider, args), **{name: _wider(value) for name, value in kwargs.items()})

    return call


def _widened(function: Callable[..., Any]) -> Callable[..., Any]:
    return functools.wraps(function)(lambda *args, **kwargs: widened(function(*args, **kwargs)))


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
