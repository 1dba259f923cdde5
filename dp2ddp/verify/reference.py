"""nn.DataParallel on W GPUs, played on one device, so that there is something to agree with.

``nn.DataParallel`` is the identity where there are not several GPUs. ``play(W)`` puts a DataParallel in its place that
does what torch's does: chunk the batch, run one replica per chunk, keep what replica 0 does to the buffers, and gather
the outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

GATHERED = "dp2ddp.gathered"
"""What the graph's nodes say that join the replicas' outputs."""


class DataParallel(nn.Module):
    """torch.nn.DataParallel's arithmetic for devices that are all the same."""

    replicas: int | None = None
    """As many as are compared with, whatever devices the program names; None: as many as it names."""
    running = 0
    """The number of the replica whose forward runs."""

    def __init__(
        self, module: nn.Module, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        self.module = module
        self.dim = dim
        named = list(device_ids) if device_ids is not None else [0]
        self.device_ids = named if self.replicas in (None, len(named)) else list(range(self.replicas))
        self.output_device = self.device_ids[0] if output_device is None else output_device

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Scatter, run every replica on its part, gather."""
        positional = _scatter(inputs, len(self.device_ids), self.dim) if inputs else []
        named = _scatter(kwargs, len(self.device_ids), self.dim) if kwargs else []
        parts = max(len(positional), len(named))
        positional += [()] * (parts - len(positional))
        named += [{}] * (parts - len(named))
        # Every replica starts from the buffers as they are now; only replica 0, the module itself, keeps its own.
        copies = [_copied_buffers(self.module) for _ in range(parts - 1)]
        outputs = [self.module(*positional[0], **named[0])]
        try:
            for buffers, arguments, keywords in zip(copies, positional[1:], named[1:], strict=True):
                DataParallel.running += 1
                with _in_place_of_buffers(self.module, buffers):
                    outputs.append(self.module(*arguments, **keywords))
        finally:
            DataParallel.running = 0
        trained = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        return _gather(outputs, self.dim, trained if parts > 1 and torch.is_grad_enabled() else [])


def data_parallel(
    module: nn.Module,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: Any = None,
) -> Any:
    """torch.nn.parallel.data_parallel: one call of a module on its replicas."""
    positional = inputs if isinstance(inputs, tuple) else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*positional, **(module_kwargs or {}))


def _copied_buffers(module: nn.Module) -> dict[int, torch.Tensor]:
    """Copies of a module's buffers, by the ids of the originals."""
    return {id(buffer): buffer.clone() for buffer in module.buffers()}


@contextmanager
def _in_place_of_buffers(module: nn.Module, copies: dict[int, torch.Tensor]) -> Iterator[None]:
    """Have ``module`` use other buffers for a while.

    By module and not by name: one that has two names would be given its own back under the first of them only.
    """
    own = [(part, dict(part._buffers)) for part in module.modules()]
    for part, buffers in own:
        part._buffers.update((name, copies.get(id(buffer), buffer)) for name, buffer in buffers.items())
    try:
        yield
    finally:
        for part, buffers in own:
            part._buffers.update(buffers)


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


def _gather(outputs: list[Any], dim: int, parameters: list[torch.Tensor]) -> Any:
    """The replicas' outputs as one: tensors joined, containers by their items."""
    first = outputs[0]
    if first is None:
        return None
    if isinstance(first, torch.Tensor):
        joined = torch.stack(outputs) if first.dim() == 0 else torch.cat(outputs, dim)
        if joined.grad_fn is not None:
            joined = _Reaching.apply(joined, *parameters)
            joined.grad_fn.metadata[GATHERED] = True
        return joined
    if isinstance(first, dict):
        return type(first)(
            (key, _gather([output[key] for output in outputs], dim, parameters)) for key in first
        )
    return _like(first, [_gather(list(items), dim, parameters) for items in zip(*outputs, strict=True)])


class _Reaching(torch.autograd.Function):
    """Outputs whose backward pass gives every parameter a gradient, of 0 at least, as that of torch's replicas does."""

    @staticmethod
    def forward(ctx: Any, output: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        ctx.shapes = [(parameter.shape, parameter.dtype, parameter.device) for parameter in parameters]
        return output.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
        zeros = (torch.zeros(shape, dtype=dtype, device=device) for shape, dtype, device in ctx.shapes)
        return gradient, *zeros


def _like(value: Any, items: Any) -> Any:
    """A list, tuple or named tuple of `items`, as `value` is one."""
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)


def play(replicas: int) -> None:
    """Put ``replicas`` replicas in the place of nn.DataParallel."""
    DataParallel.replicas = replicas
    torch.nn.DataParallel = torch.nn.parallel.DataParallel = DataParallel
    torch.nn.parallel.data_parallel = data_parallel
