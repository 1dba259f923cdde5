"""Outputs of any structure that several ranks hand out, for all of them, with their graph.

Structures may differ from rank to rank: lists of other lengths, rows of other numbers. The tensors of a type travel
together, flat; what else there is goes along as it is.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import nested, ranks, rows

_PLAIN = (type(None), bool, int, float, complex, str, bytes)


@dataclass(frozen=True)
class _Kind:
    """What tensors have in common that travel together."""

    dtype: torch.dtype
    device: str
    requires_grad: bool


class _Place:
    """Where a tensor stands in a structure."""

    def __init__(self, number: int, kind: _Kind, shape: tuple[int, ...]) -> None:
        self.number = number
        self.kind = kind
        self.shape = shape

    @property
    def size(self) -> int:
        return torch.Size(self.shape).numel()


@dataclass(frozen=True)
class Message:
    """What a rank tells the others of its output: the structure, with places for the tensors."""

    structure: Any
    places: tuple[_Place, ...]

    @staticmethod
    def of(output: Any, tensors: Sequence[torch.Tensor]) -> Message:
        places = tuple(_Place(number, _kind(it), tuple(it.shape)) for number, it in enumerate(tensors))
        waiting = iter(places)
        leaves = [
            next(waiting) if isinstance(leaf, torch.Tensor) else _checked(leaf)
            for leaf in nested.flatten(output, dataclasses=True)
        ]
        return Message(nested.unflatten(output, leaves, dataclasses=True), places)

    def filled(self, tensors: Sequence[torch.Tensor]) -> Any:
        """The output, with tensors in their places."""
        leaves = nested.flatten(self.structure, dataclasses=True)
        whole = [tensors[leaf.number] if isinstance(leaf, _Place) else leaf for leaf in leaves]
        return nested.unflatten(self.structure, whole, dataclasses=True)


def share(
    tensors: Sequence[torch.Tensor],
    ties: Sequence[torch.Tensor],
    messages: Sequence[Message],
    counts: bool,
    replica: Any,
) -> list[list[torch.Tensor]]:
    """The tensors of all ranks' outputs, in the order of ranks; those of this rank are its own ones, joined anew.

    Args:
        tensors: of this rank's output.
        ties: other tensors that a backward pass to the outputs has to come to, on every rank.
        messages: all ranks'.
        counts: whether this rank's output is one of them.
        replica: hears of the backward pass, where this rank's output has no graph and another one's has.
    """
    kinds = {place.kind for message in messages for place in message.places}
    found: list[dict[int, torch.Tensor]] = [{} for _ in messages]
    for kind in sorted(kinds, key=repr):
        device = ranks.device() if kind.device != "cpu" else torch.device("cpu")
        own = [it.flatten() for it in tensors if _kind(it) == kind]
        filled = (
            [it for it in own if it.numel()] or own[:1] or [torch.empty(0, dtype=kind.dtype, device=device)]
        )
        flat = torch.cat(filled) if len(filled) > 1 else filled[0]
        if not counts:
            flat = flat[:0]
        if kind.requires_grad:
            flat = _linked(flat, [*ties, *(it for it in own if not it.numel())], replica)
        sizes = [sum(place.size for place in it.places if place.kind == kind) for it in messages]
        whole = rows.gather_rows(flat, 0, sizes)
        if kind.requires_grad:
            whole.grad_fn.register_prehook(replica.refuse_own_gradients)
        places = [
            (rank, it) for rank, message in enumerate(messages) for it in message.places if it.kind == kind
        ]
        pieces = rows.separate(whole, [it.size for _, it in places], [it.shape for _, it in places])
        for (rank, place), piece in zip(places, pieces, strict=True):
            found[rank][place.number] = piece
    return [[its[number] for number in range(len(its))] for its in found]


def _linked(flat: torch.Tensor, ties: Sequence[torch.Tensor], replica: Any) -> torch.Tensor:
    if not flat.requires_grad:  # constants, where other ranks have a graph
        flat = flat.detach().requires_grad_()
        replica.expect_backward(flat)
    return _Tied.apply(flat, *ties) if ties else flat


class _Tied(torch.autograd.Function):
    """A tensor, whose backward pass comes to others too, with zeros.

    Not torch.cat with nothing of them: its backward forgets the graph of what is empty, on one rank and not on others.
    """

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, *ties: torch.Tensor) -> torch.Tensor:
        ctx.likes = [(tie.shape, tie.dtype, tie.device) for tie in ties]
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
        zeros = (torch.zeros(shape, dtype=dtype, device=device) for shape, dtype, device in ctx.likes)
        return gradient, *zeros


def own_part(calls: Sequence[Any], takers: Sequence[int], own: int) -> tuple[Any, list[torch.Tensor]]:
    """This rank's part of what is the same on every rank, so that gradients of all parts become whole again.

    Args:
        calls: the parts, each nested tensors.
        takers: the rank that takes each part.
        own: the part for this rank: one that it takes or, if it takes none, another's, which gets no gradient from it.

    Returns:
        The part; and tensors that a backward pass has to come to on every rank.
    """
    every = [nested.flatten(call, dataclasses=True) for call in calls]
    linked = [[it for it in leaves if _has_graph(it)] for leaves in every]
    for leaf in every[own] if torch.is_grad_enabled() else ():
        if not isinstance(leaf, torch.Tensor) and any(it.requires_grad for it in inside(leaf)):
            raise TypeError(
                f"an input of type {type(leaf).__name__} holds tensors that need gradients from all ranks: "
                "pass the tensors in a list, tuple, dict or dataclass"
            )
    if not torch.is_grad_enabled() or not any(linked):
        return calls[own], []
    order = sorted(range(len(calls)), key=lambda number: takers[number])
    replaced: dict[int, torch.Tensor] = {}
    ties = []
    for kind in sorted({_kind(it) for tensors in linked for it in tensors}, key=repr):
        of_kind = [[it for it in tensors if _kind(it) == kind] for tensors in linked]
        sizes = [0] * ranks.get_world_size()
        for number in order:
            sizes[takers[number]] = sum(it.numel() for it in of_kind[number])
        whole = torch.cat([it.flatten() for number in order for it in of_kind[number]])
        start = sum(sizes[: takers[own]])
        mine = rows.scatter_rows(whole, 0, sizes, slice(start, start + sizes[takers[own]]))
        ties.append(mine)
        if of_kind[own]:
            pieces = rows.separate(
                mine, [it.numel() for it in of_kind[own]], [it.shape for it in of_kind[own]]
            )
            replaced |= {id(it): piece for it, piece in zip(of_kind[own], pieces, strict=True)}
    leaves = nested.flatten(calls[own], dataclasses=True)
    return nested.unflatten(calls[own], [replaced.get(id(it), it) for it in leaves], dataclasses=True), ties


def joined(outputs: Sequence[Any], dim: int) -> Any:
    """Replicas' outputs as one, as torch.nn.parallel.gather joins them.

    Raises:
        TypeError: an output is neither a tensor nor None.
    """
    leaves = [nested.flatten(output, dataclasses=True) for output in outputs]
    whole = [_joined(column, dim) for column in zip(*leaves, strict=True)]
    return nested.unflatten(outputs[0], whole, dataclasses=True)


def _joined(column: tuple[Any, ...], dim: int) -> torch.Tensor | None:
    if column[0] is None:
        return None
    if not isinstance(column[0], torch.Tensor):
        raise TypeError(ungathered(column[0], "this model"))
    if column[0].dim() == 0:
        return torch.stack(column)
    return torch.cat(column, dim)


def ungathered(leaf: Any, name: str) -> str:
    """What to say of an output that can't be gathered."""
    return (
        f"{name} returns an object of type {type(leaf).__name__}, but ddp.DataParallel can only gather tensors "
        "and None, also in lists, tuples, dicts and dataclasses: return these"
    )


def _has_graph(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad


def _kind(tensor: torch.Tensor) -> _Kind:
    return _Kind(tensor.dtype, tensor.device.type, tensor.requires_grad and torch.is_grad_enabled())


def _checked(leaf: Any) -> Any:
    """An object that other ranks get a copy of."""
    if any(it.requires_grad for it in inside(leaf)):
        raise TypeError(
            f"an output of type {type(leaf).__name__} holds tensors that need gradients, which can't be sent "
            "to other ranks: return the tensors in a list, tuple, dict or dataclass"
        )
    return leaf


def inside(leaf: Any) -> list[torch.Tensor]:
    """The tensors that an object holds which is no container; none where that can't be seen."""
    if isinstance(leaf, _PLAIN):
        return []
    found: list[torch.Tensor] = []

    class Search(pickle.Pickler):
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, torch.Tensor):
                found.append(obj)
                return bool, ()
            return NotImplemented

    class Nowhere:
        def write(self, _: Iterable[int]) -> None:
            pass

    try:
        Search(Nowhere(), pickle.HIGHEST_PROTOCOL).dump(leaf)
    except Exception:  # what can't be pickled is complained of where it is sent
        return []
    return found
