"""Code that names devices by their numbers, run by a rank that has one device."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode

from . import ranks


def at_home(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function, whose tensors stay on this rank's device, whichever GPU it names."""

    @functools.wraps(function)
    def here(*args: Any, **kwargs: Any) -> Any:
        if ranks.get_world_size() == 1:
            return function(*args, **kwargs)
        with _AtHome(ranks.device()):
            return function(*args, **kwargs)

    return here


@contextmanager
def away() -> Iterator[None]:
    """Within the block, as outside of such functions: models are not looked after, which costs time."""
    left = []
    while isinstance(mode := _get_current_function_mode(), _AtHome):
        mode.__exit__(None, None, None)
        left.append(mode)
    try:
        yield
    finally:
        for mode in reversed(left):
            mode.__enter__()


class _AtHome(TorchFunctionMode):
    """Every torch function that is told a GPU gets this rank's device."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {name: self._own(it) if name == "device" else it for name, it in (kwargs or {}).items()}
        name = getattr(func, "__name__", "")
        if name == "cuda" and args:
            blocks = {it: kwargs[it] for it in ("non_blocking", "memory_format") if it in kwargs}
            return args[0].to(self._device, **blocks)
        if name == "to" and len(args) > 1:
            args = (args[0], self._own(args[1]), *args[2:])
        return func(*args, **kwargs)

    def _own(self, device: Any) -> Any:
        if isinstance(device, int) and not isinstance(device, bool):
            return torch.device("cpu") if device < 0 else self._device
        if isinstance(device, str) and device.partition(":")[0] == "cuda":
            return self._device
        return self._device if isinstance(device, torch.device) and device.type == "cuda" else device
