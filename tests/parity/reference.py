"""nn.DataParallel on W GPUs, played on one CPU, so that there is something to agree with.

`nn.DataParallel` is the identity where there is no GPU. `pretend(W)` therefore makes a script see W GPUs
(all of them the CPU) and gives it a DataParallel that does what torch's does: chunk the batch, run one
replica per chunk, keep what replica 0 does to the buffers, and gather the outputs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


class DataParallel(nn.Module):
    """torch.nn.DataParallel's arithmetic for `replicas` devices that are all the CPU."""

    replicas = 1

    def __init__(
        self, module: nn.Module, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        self.module = module
        self.dim = dim
        self.device_ids = list(device_ids) if device_ids is not None else list(range(self.replicas))
        self.output_device = self.device_ids[0] if output_device is None else output_device

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Scatter, run every replica on its part, gather."""
        positional = _scatter(inputs, len(self.device_ids), self.dim) if inputs else []
        named = _scatter(kwargs, len(self.device_ids), self.dim) if kwargs else []
        parts = max(len(positional), len(named))
        positional += [()] * (parts - len(positional))
        named += [{}] * (parts - len(named))
        # Every replica starts from the buffers as they are now; only replica 0, the module itself, keeps its own.
        copies = [
            {name: buffer.clone() for name, buffer in self.module.named_buffers()} for _ in range(parts - 1)
        ]
        outputs = [self.module(*positional[0], **named[0])]
        for buffers, arguments, keywords in zip(copies, positional[1:], named[1:], strict=True):
            outputs.append(torch.func.functional_call(self.module, buffers, arguments, keywords))
        return _gather(outputs, self.dim)


def _scatter(value: Any, parts: int, dim: int) -> list[Any]:
    """One value per replica, fewer where a tensor has fewer chunks: torch's scatter_kwargs without devices."""
    if isinstance(value, torch.Tensor):
        return list(value.chunk(parts, dim))
    if isinstance(value, (tuple, list)) and value:
        columns = zip(*(_scatter(item, parts, dim) for item in value), strict=False)
        return [_like(value, part) for part in columns]
    if isinstance(value, dict) and value:
        columns = (_scatter(item, parts, dim) for item in value.values())
        return [dict(zip(value, part, strict=True)) for part in zip(*columns, strict=False)]
    return [value] * parts


def _gather(outputs: list[Any], dim: int) -> Any:
    """The replicas' outputs as one: tensors joined, containers by their items."""
    first = outputs[0]
    if first is None:
        return None
    if isinstance(first, torch.Tensor):
        if first.dim() == 0:
            return torch.stack(outputs)
        return torch.cat(outputs, dim)
    if isinstance(first, dict):
        return type(first)((key, _gather([output[key] for output in outputs], dim)) for key in first)
    return _like(first, [_gather(list(items), dim) for items in zip(*outputs, strict=True)])


def _like(value: Any, items: Any) -> Any:
    """A list, tuple or named tuple of `items`, as `value` is one."""
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)


def _to_cpu(value: Any) -> Any:
    """`value`, with a CUDA device in any of its spellings replaced by the CPU."""
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    return value


def _on_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, called with the CPU wherever its arguments name a CUDA device."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*map(_to_cpu, args), **{name: _to_cpu(value) for name, value in kwargs.items()})

    return call


class _OnCpu(TorchFunctionMode):
    """Every torch function that names a CUDA device gets the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _on_cpu(func)(*args, **(kwargs or {}))


def _itself(self: Any, *_args: Any, **_kwargs: Any) -> Any:
    return self


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    return None


def pretend(replicas: int) -> None:
    """Make this process see `replicas` GPUs, all of them the CPU, and DataParallel run on them."""
    cuda = torch.cuda
    cuda.is_available = lambda: True
    cuda.device_count = lambda: replicas
    cuda.current_device = lambda: 0
    cuda.is_current_stream_capturing = lambda: False
    torch.optim.Optimizer._accelerator_graph_capture_health_check = _nothing
    cuda.set_device = cuda.synchronize = cuda.manual_seed = cuda.manual_seed_all = _nothing
    torch.Tensor.cuda = nn.Module.cuda = _itself
    torch.Tensor.to = _on_cpu(torch.Tensor.to)
    nn.Module.to = _on_cpu(nn.Module.to)
    torch.load = _on_cpu(torch.load)
    torch.Tensor.pin_memory = _itself
    _OnCpu().__enter__()

    made = torch.utils.data.DataLoader.__init__

    @functools.wraps(made)
    def without_pinning(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **{**kwargs, "pin_memory": False})

    torch.utils.data.DataLoader.__init__ = without_pinning

    DataParallel.replicas = replicas
    torch.nn.DataParallel = torch.nn.parallel.DataParallel = DataParallel
    torch.nn.parallel.data_parallel.__globals__["DataParallel"] = DataParallel
