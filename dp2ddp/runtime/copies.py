"""Copies of a module, as nn.DataParallel makes them of its model for each GPU; here all are on this rank's device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from . import callbacks

_ABSENT = object()
_COPY = "_dp2ddp_copy_of"  # where a copy keeps whose copy it is


class Tag:
    """Which of a module's copies one is.

    Args:
        runner: that runs one of them on each rank; None where this process runs all.
    """

    def __init__(self, runner: Any, index: int, heard: callbacks.Heard) -> None:
        self.runner = runner
        self.index = index
        self.heard = heard
        self.layers: list[tuple[torch.nn.Module, dict[str, Any]]] = []

    def keep(self, layers: Sequence[torch.nn.Module]) -> None:
        """Remember the copy's layers, with what they have."""
        self.layers = [(layer, dict(layer.__dict__)) for layer in layers]


def made(network: torch.nn.Module, count: int, runner: Any = None) -> list[torch.nn.Module]:
    """Copies that share parameters; the first has the buffers too, the others have buffers like them."""
    heard, modules = callbacks.Heard(), list(network.modules())
    found = []
    for index in range(count):
        twins = {id(module): module._replicate_for_data_parallel() for module in modules}
        buffers = {id(it): it if index == 0 else it.detach().clone() for it in network.buffers()}
        for module in modules:
            twin = twins[id(module)]
            twin._parameters = dict(module._parameters)
            twin._buffers = {
                name: None if it is None else buffers[id(it)] for name, it in module._buffers.items()
            }
            twin._modules = {
                name: None if it is None else twins[id(it)] for name, it in module._modules.items()
            }
        copy = twins[id(network)]
        copy.__dict__[_COPY] = Tag(runner, index, heard)
        heard.listen(index, list(twins.values()))
        copy.__dict__[_COPY].keep(list(twins.values()))
        found.append(copy)
    return found


def tag(module: torch.nn.Module) -> Tag | None:
    """Which copy a module is; None if it is none."""
    found = module.__dict__.get(_COPY)
    return found if isinstance(found, Tag) else None


@contextmanager
def acting_as(copy: torch.nn.Module, module: torch.nn.Module, counts: bool) -> Iterator[None]:
    """Have a module stand for a copy of it: with what the copy's layers were given, or told, since it was made.

    Args:
        counts: whether what it computes is one of the parts.
    """
    its = tag(copy)
    assert its is not None
    called = its.heard.layers(its.index, module)
    given = []
    for layer, (twin, before) in zip(module.modules(), its.layers, strict=True):
        new = {name: it for name, it in vars(twin).items() if it is not before.get(name, _ABSENT)}
        if new and layer not in called:  # those have their own way
            given.append((layer, new, {name: vars(layer).get(name, _ABSENT) for name in new}))
    for layer, new, _ in given:
        vars(layer).update(new)
    try:
        with callbacks.in_step(called, counts) if called else nullcontext():
            yield
    finally:
        for layer, _, old in given:
            for name, value in old.items():
                if value is _ABSENT:
                    vars(layer).pop(name, None)
                else:
                    vars(layer)[name] = value
