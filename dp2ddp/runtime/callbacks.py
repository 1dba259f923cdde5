"""Layers that hear of their replicas: synchronised BatchNorm that was written for nn.DataParallel.

Such a layer has a method ``__data_parallel_replicate__(ctx, copy_id)``, which a ``replicate`` of the program calls on
the layers of every copy. The copy with the id 0 leaves a master in ``ctx``; every other one registers there and gets a
pipe. In the forward each copy hands in its sums, and the master's callback, a method of the layer, makes of all of them
what each copy goes on with. Here copies are in other processes: each rank's layer registers with a master that gathers
the sums of all ranks, with their graph, and asks the callback for its own answer. The numbers are the layer's own.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from queue import Queue, SimpleQueue
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.modules.batchnorm import _NormBase

from . import nested, ranks, rows
from .bypass import in_a_copy
from .exchange import exchange

METHOD = "__data_parallel_replicate__"
_ABSENT = object()
_watched: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()


def refuse_waiting(module: torch.nn.Module) -> None:
    """Have norms raise that would wait for their likes in the other replicas of the same process, for ever.

    They wait in training mode only. Those that hold queues talk through them; those that are called back are told where
    the others are.
    """
    for name, layer in module.named_modules() if ranks.get_world_size() > 1 else ():
        if not isinstance(layer, _NormBase) or hasattr(type(layer), METHOD) or layer in _watched:
            continue
        held = (it for value in vars(layer).values() for it in (value if type(value) is list else [value]))
        if any(isinstance(it, Queue | SimpleQueue) for it in held):
            _watched.add(layer)
            layer.register_forward_pre_hook(_Refusal(name))


class _Refusal:
    """A hook that raises before a norm waits."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> Any:
        return in_a_copy()

    def __call__(self, layer: torch.nn.Module, _: Any) -> None:
        if layer.training:
            raise RuntimeError(
                f"{self.name or 'the model'} is a {type(layer).__name__}, which waits for other replicas in "
                "the same process, but each rank has only one: use torch.nn.SyncBatchNorm"
            )


class Heard:
    """Which layers of which copies were called back."""

    def __init__(self) -> None:
        self._places: dict[int, list[int]] = {}

    def listen(self, copy: int, layers: Sequence[torch.nn.Module]) -> None:
        """Note the calls of the layers of a copy, and let them through."""
        for place, layer in enumerate(layers):
            if hasattr(type(layer), METHOD):
                layer.__dict__[METHOD] = partial(self._note, copy, place, layer)

    def _note(self, copy: int, place: int, layer: torch.nn.Module, *arguments: Any) -> Any:
        self._places.setdefault(copy, []).append(place)
        return getattr(type(layer), METHOD)(layer, *arguments)

    def layers(self, copy: int, module: torch.nn.Module) -> list[torch.nn.Module]:
        """The layers of ``module`` whose likes in a copy were called back."""
        every = list(module.modules())
        return [every[place] for place in dict.fromkeys(self._places.get(copy, ()))]


@contextmanager
def in_step(layers: Sequence[torch.nn.Module], counts: bool) -> Iterator[None]:
    """Have layers share their sums with those of the other ranks, within the block; a collective in each layer.

    Args:
        counts: whether this rank's sums count; else it goes on with what the first rank whose do goes on with.
    """
    before = [(layer, dict(layer.__dict__)) for layer in layers]
    for layer in layers:
        if layer not in _watched:
            _watched.add(layer)
            layer.register_forward_pre_hook(_Watch())
        _register(layer, counts)
    changed = [
        (
            layer,
            {
                name: kept.get(name, _ABSENT)
                for name, value in layer.__dict__.items()
                if value is not kept.get(name)
            },
        )
        for layer, kept in before
    ]
    try:
        yield
    finally:
        for layer, values in changed:
            for name, value in values.items():
                if value is _ABSENT:
                    layer.__dict__.pop(name, None)
                else:
                    layer.__dict__[name] = value


class _Watch:
    """A hook that complains of a layer which is run again in the backward pass: the ranks' likes do not meet there."""

    def __reduce__(self) -> Any:
        return in_a_copy()

    def __call__(self, layer: torch.nn.Module, _: Any) -> None:
        if torch._C._current_graph_task_id() != -1 and layer.training:
            raise RuntimeError(
                f"{type(layer).__name__} communicates between ranks in its forward, which "
                "torch.utils.checkpoint runs again in the backward pass: use torch.nn.SyncBatchNorm, or "
                "remove the checkpoint"
            )


def _register(layer: torch.nn.Module, counts: bool) -> None:
    called = getattr(type(layer), METHOD)
    context = SimpleNamespace()
    called(layer, context, 0)
    masters = {name: it for name, it in vars(context).items() if hasattr(it, "_master_callback")}
    if not masters:
        raise RuntimeError(
            f"{type(layer).__name__} shares data between replicas in a way that doesn't work between "
            "processes: use another layer, such as torch.nn.SyncBatchNorm"
        )
    for name, master in masters.items():
        setattr(context, name, _Master(master._master_callback, type(layer).__name__, counts))
    called(layer, context, 1 + ranks.get_rank())  # as one that is not the master


class _Master:
    """Stands for a master, and for the pipe to it."""

    def __init__(self, callback: Any, name: str, counts: bool) -> None:
        self._callback = callback
        self._what = f"the forward of {name}"
        self._counts = counts

    def register_slave(self, _: Any) -> _Master:
        """The pipe of a copy."""
        return self

    def run_slave(self, message: Any) -> Any:
        """The master's answer to a copy's ``message``."""
        leaves = nested.flatten(message)
        plain = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        others = exchange(self._what, (self._counts, plain))
        world = ranks.get_world_size()
        whole = [rows.sum_back(it, world) if isinstance(it, torch.Tensor) else None for it in leaves]
        counted = [rank for rank, (counts, _) in enumerate(others) if counts]
        messages = []
        for place, rank in enumerate(counted):
            theirs = zip(whole, others[rank][1], strict=True)
            filled = [other if every is None else every[rank] for every, other in theirs]
            messages.append((place, nested.unflatten(message, filled)))
        answers = dict(self._callback(messages))
        return answers[counted.index(ranks.get_rank()) if self._counts else 0]
