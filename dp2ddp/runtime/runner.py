"""One module's forwards on this rank's parts of whole batches.

- *Gradients.* The module runs in a DistributedDataParallel of its own, which averages over the W ranks what the rows'
  gradients (see ``rows``) count W times.
- *Random numbers.* Outside of a forward the ranks must go on drawing the same, but a forward draws other amounts on
  each of them (dropout on parts of 3 and of 1 row). So it draws from a stream of its own.
- *Parameters that a forward writes* become rank 0's: those that are trained before the next forward, since the backward
  pass needs what this rank's part was computed with; all others at once, with the buffers.
- *Ranks that hold different batches all the same* are noticed in the first training forwards, and now and then later.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import torch

from . import graph, home, parts
from .local_streams import LocalStream
from .model import DistributedDataParallel, cuda_index

_KEPT = "_dp2ddp_runner"  # where a module keeps its runner
_COMPARED_FIRST = 4  # training forwards whose inputs are compared, from the first one
_COMPARED_EVERY = 100  # and then one in so many
_ELEMENTS = 64  # that are compared of each tensor, evenly spread
_TOLERANCE = 1e-3  # relative: inputs that other layers computed differ in their last bits
_numbers = itertools.count()


class Runner:
    """Runs a module on this rank's parts. Making one is a collective, where something is to be trained.

    Args:
        module: the model.
        constant: whether nothing is trained by it, so that no rank's gradients are looked after.
    """

    def __init__(self, module: torch.nn.Module, constant: bool = False) -> None:
        self.module = module
        self.replica = _Constant(module) if constant else _Replica(module)
        self.name = type(module).__name__
        self._stream = LocalStream("whole batches", next(_numbers))
        self._forwards = 0  # training forwards so far

    @staticmethod
    def of(module: torch.nn.Module) -> Runner:
        """The one of a module, which the module keeps; no part of its copies, or of what is saved."""
        kept = module.__dict__.get(_KEPT)
        if not isinstance(kept, _Kept) or kept.runner.module is not module:
            kept = module.__dict__[_KEPT] = _Kept(Runner(module))
        return kept.runner

    def run(self, inputs: Any, kwargs: dict[str, Any]) -> Any:
        """The module's output for this rank's part, linked to what DistributedDataParallel averages."""
        if self.module.training or torch.is_grad_enabled():
            self.replica.share_written(trained=True)
        with home.away(), self._stream.drawn(self.replica.device):
            return self.replica(*inputs, **kwargs)

    def has_run(self) -> None:
        """Take rank 0's buffers, after a forward on all ranks, as nn.DataParallel keeps replica 0's; a collective."""
        if torch.is_grad_enabled() or self.module.training:
            self.replica.share_written(trained=False)

    # Whether the ranks agree

    def describe(self, arguments: Any) -> Inputs:
        """What to tell the other ranks of a forward's arguments."""
        tensors = parts.tensors(arguments)
        shapes = [(str(tensor.dtype), list(tensor.shape)) for tensor in tensors]
        if not torch.is_grad_enabled():
            return Inputs(shapes, None)
        number, self._forwards = self._forwards, self._forwards + 1
        is_compared = number < _COMPARED_FIRST or number % _COMPARED_EVERY == 0
        return Inputs(shapes, [_elements(tensor) for tensor in tensors] if is_compared else None)

    def compare(self, inputs: list[Inputs]) -> None:
        """Complain, on every rank, if what they say of their arguments can't be one batch."""
        for rank in range(1, len(inputs)):
            difference = inputs[0].difference(inputs[rank])
            if difference:
                raise RuntimeError(
                    f"the ranks were given different batches: {self.name} is called with "
                    f"{difference.format(one='rank 0', other=f'rank {rank}')}. ddp.DataParallel needs the same "
                    "batches on every rank, from the same seed; use ddp.DistributedDataParallel with a "
                    "sharded loader"
                )


@dataclass(frozen=True)
class _Kept:
    """A runner in the place where its module keeps it. A copy of the module has an empty dict there."""

    runner: Runner

    def __reduce__(self) -> Any:
        return dict, ()


class _Replica(DistributedDataParallel):
    """The module on this rank's part."""

    _weighs = False
    _shares_buffers = False
    _promises_buffers = True

    def share_written(self, trained: bool) -> None:
        """Give all ranks what rank 0's forward wrote; a collective.

        Args:
            trained: whether parameters that are trained, whose values the backward pass still needs after a forward;
                else all others, and the buffers.
        """
        parameters = [it for it in self._watch.shared_parameters() if it.requires_grad == trained]
        if parameters or not trained:
            self._broadcast(parameters if trained else [*self.module.buffers(), *parameters])

    def refuse_own_gradients(self, _: Any) -> None:
        """Complain in a pass that would return gradients of parameters without having them averaged."""
        if graph.is_accumulating():
            return
        for node in self._passes.nodes.values() if self._reduces else ():
            try:
                torch._C._will_engine_execute_node(node)
            except RuntimeError:  # torch can't say it of a leaf that torch.autograd.grad returns
                raise RuntimeError(
                    "torch.autograd.grad for parameters of a DataParallel model would return the gradients of "
                    "the rank's local batch only: call backward() and read .grad"
                ) from None


class _Constant(_Replica):
    """The module on this rank's part, with parameters that all ranks have alike and whose gradients none needs."""

    def _arrange(self, new: bool) -> None:
        self._place_at(cuda_index(self.module))
        self._follow_parameters()


@dataclass(frozen=True)
class Inputs:
    """What ranks tell each other of the batch they were given."""

    shapes: list[tuple[str, list[int]]]
    elements: list[list[float]] | None

    def difference(self, other: Inputs) -> str:
        """What differs, for ``str.format(one=…, other=…)``; empty where nothing does."""
        if self.shapes != other.shapes:
            mine, theirs = (listed([f"{kind} {size}" for kind, size in it.shapes]) for it in (self, other))
            return f"tensors of {mine} on {{one}} and {theirs} on {{other}}"
        pairs = enumerate(zip(self.elements or (), other.elements or (), strict=True))
        differing = [index for index, (mine, theirs) in pairs if not _is_close(mine, theirs)]
        return f"other values on {{one}} than on {{other}} in tensor {differing[0]}" if differing else ""


def _elements(tensor: torch.Tensor) -> list[float]:
    """Some elements of a tensor, and the sums of all and of their sizes."""
    flat = tensor.detach().as_subclass(torch.Tensor).flatten()
    if flat.is_complex():
        flat = torch.view_as_real(flat).flatten()
    some = flat[:: max(1, flat.numel() // _ELEMENTS)].double()
    floats = flat if flat.is_floating_point() else flat.double()
    sizes = torch.linalg.vector_norm(floats, 1, dtype=torch.double)
    return [*some.tolist(), *torch.stack([flat.sum(dtype=torch.double), sizes]).tolist()]


def _is_close(mine: list[float], theirs: list[float]) -> bool:
    (*some, total, size), (*other_some, other_total, _) = mine, theirs
    largest = max(map(abs, some), default=0.0)
    pairs = [(a, b, largest) for a, b in zip(some, other_some, strict=True)] + [(total, other_total, size)]
    return all(a == b or math.isnan(a) and math.isnan(b) or abs(a - b) <= _TOLERANCE * c for a, b, c in pairs)


def listed(values: list[Any]) -> str:
    """Values in a message."""
    return ", ".join(map(str, values)) or "none"
