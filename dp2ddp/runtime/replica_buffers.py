"""On ranks other than the first, a forward with gradients has copies of the buffers.

So have nn.DataParallel's further replicas. The backward pass needs what its own forward wrote and used, while the
model's buffers take rank 0's values as the forward ends (whole batches) or as the next one begins (shards), which
autograd doesn't notice. What torch's own normalisation layers keep is of no use to a backward pass, and stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules.batchnorm import _NormBase

from .stores import is_torch_s


def may_be_needed(module: torch.nn.Module) -> bool:
    """Whether a backward pass may need the buffers that a module has."""
    if isinstance(module, torch.jit.ScriptModule) or not module._buffers:
        return False
    return not (isinstance(module, _NormBase) and is_torch_s(type(module)))


@contextmanager
def copied(modules: Iterable[torch.nn.Module]) -> Iterator[list[tuple[dict[str, Any], str, torch.Tensor]]]:
    """Run a forward on copies of the buffers of some modules, which get the values that it leaves.

    Yields:
        The tables that have a copy, with its name and the copy.
    """
    kept = [
        (module._buffers, name, buffer)
        for module in modules
        for name, buffer in module._buffers.items()
        if _may_be_copied(buffer)
    ]
    buffers = {id(buffer): buffer for _, _, buffer in kept}  # layers may share one
    copies = {key: buffer.detach().clone() for key, buffer in buffers.items()}
    made = [(table, name, copies[id(buffer)]) for table, name, buffer in kept]
    for table, name, copy in made:
        table[name] = copy
    try:
        yield made
    finally:
        for table, name, buffer in kept:
            if table.get(name) is copies[id(buffer)]:
                table[name] = buffer
        for key, buffer in buffers.items():
            _take(buffer, copies[key].detach())


def _may_be_copied(buffer: torch.Tensor | None) -> bool:
    """Whether a buffer has values, and no graph: that of an earlier forward would be lost."""
    return buffer is not None and not torch.nn.parameter.is_lazy(buffer) and not buffer.requires_grad


def _take(buffer: torch.Tensor, values: torch.Tensor) -> None:
    if buffer.shape == values.shape and buffer.dtype == values.dtype:
        buffer.data.copy_(values)
    else:  # memory of its own: the backward pass has that of the copy
        buffer.data = values.clone()
