"""Lists with an entry for each sample, where samples differ in size: their boxes, their texts, dicts of such.

A list of tensors may also be one of several tensors with a row for each sample, as a DataLoader makes it of pairs. It
is told apart by its sizes, and on all ranks alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from . import graph, nested, parts, plain, rows
from .exchange import exchange


@dataclass(eq=False)
class Entries:
    """A list with an entry for each sample of this rank's part; a leaf of nested structures."""

    values: list[Any]
    kind: Callable[[list[Any]], Any] = list

    @property
    def tensors(self) -> list[torch.Tensor]:
        return parts.tensors(self.values)

    def changed(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Entries:
        """The same with other tensors."""
        leaves = nested.flatten(self.values)
        made = [change(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        return Entries(nested.unflatten(self.values, made), self.kind)


def marked(values: Any, what: str) -> Any:
    """``values`` with ``Entries`` in place of the lists that have an entry for each sample; a collective.

    It is none where there is no list that may be one.

    Args:
        what: the collective that a user knows.
    """
    lists = [*_lists(values)]
    if not lists:
        return values
    known = parts.rows()
    answers = exchange(what, [_answer(it, values, known) for it in lists])
    chosen = {id(it) for it, said in zip(lists, zip(*answers, strict=False), strict=False) if _agreed(said)}
    return _marked(values, chosen)


def gathered(lists: list[Entries], what: str, is_empty: bool = False) -> list[list[Any]]:
    """The entries of all ranks, in their order: those of each list joined, tensors with their graph.

    Args:
        what: the collective that a user knows.
        is_empty: whether this rank's are of no sample: it adds none, and stays a part of the graph.
    """
    if not lists:
        return []
    held = [tensor for entries in lists for tensor in entries.tensors]
    if is_empty:
        lists = [Entries([], entries.kind) for entries in lists]
    tensors = [tensor for entries in lists for tensor in entries.tensors]
    slots = iter(range(len(tensors)))
    bones = [
        [nested.unflatten(it, [_slot(leaf, slots) for leaf in nested.flatten(it)]) for it in entries.values]
        for entries in lists
    ]
    answers = exchange(what, (bones, [(str(it.dtype), tuple(it.shape)) for it in tensors]))
    shapes = [shape for _, shape in answers]
    found: list[dict[int, torch.Tensor]] = [{} for _ in answers]
    for dtype in sorted({name for shape in shapes for name, _ in shape}):
        own = [it.reshape(-1)[:0] if is_empty else it.reshape(-1) for it in held if str(it.dtype) == dtype]
        _join(own, dtype, shapes, found, what)
    return [
        entries.kind(
            [_filled(it, own) for (bone, _), own in zip(answers, found, strict=True) for it in bone[place]]
        )
        for place, entries in enumerate(lists)
    ]


def _lists(value: Any) -> Iterator[Any]:
    """The lists of a structure that may have an entry for each sample, the outer ones first."""
    if isinstance(value, list | tuple) and value and not hasattr(value, "_fields"):
        kinds = {_kind(it) for it in value if it is not None}
        if len(kinds) == 1:
            yield value
    if isinstance(value, dict | list | tuple) and not nested.is_texts(value):
        inner = (value[key] for key in sorted(value, key=repr)) if isinstance(value, dict) else value
        for item in inner:
            yield from _lists(item)


def _kind(entry: Any) -> object:
    """What entries of samples have in common."""
    if isinstance(entry, torch.Tensor) or plain.is_array(entry, kinds=""):
        return type(entry), entry.dtype, entry.ndim
    if isinstance(entry, dict):
        return dict, frozenset(map(repr, entry))
    return "number" if plain.is_number(entry) else type(entry)


def _answer(entries: Any, values: Any, known: int | None) -> str:
    """Whether a list has an entry for each sample: "yes", "no", or "" where its sizes speak for both."""
    if nested.is_texts(entries):
        return "yes"
    count = len(entries)
    if known is not None and known != count:
        return "no"
    fits = known is not None or _has_rows(values, entries, count)
    leaves = [leaf for it in entries for leaf in nested.flatten(it)]
    sizes = {leaf.shape[0] if leaf.ndim else -1 for leaf in leaves if hasattr(leaf, "ndim")}
    speaks = len(sizes) != 1 if known is None else sizes != {known}
    return "yes" if fits and (speaks or not sizes) else ""


def _has_rows(values: Any, entries: Any, count: int) -> bool:
    """Whether anything beside a list has so many rows."""
    inside = {id(leaf) for leaf in nested.flatten(entries)}
    beside = (leaf for leaf in nested.flatten(values, texts=True) if id(leaf) not in inside)
    sizes = (len(leaf) if nested.is_texts(leaf) else getattr(leaf, "shape", (0,))[:1] for leaf in beside)
    return any(size in (count, (count,)) for size in sizes)


def _agreed(said: tuple[str, ...]) -> bool:
    return "yes" in said and "no" not in said


def _marked(value: Any, chosen: set[int]) -> Any:
    if id(value) in chosen:
        return Entries([*value], type(value))
    if isinstance(value, dict):
        leaves = {key: _marked(it, chosen) for key, it in value.items()}
        return type(value)(leaves) if type(value) is dict else _as(value, leaves)
    if isinstance(value, list | tuple):
        items = [_marked(it, chosen) for it in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _as(value: Any, leaves: dict[Any, Any]) -> Any:
    made = value.copy()
    made.update(leaves)
    return made


@dataclass(frozen=True)
class _Slot:
    """Where a tensor stands in what is sent without it."""

    number: int


def _slot(leaf: Any, slots: Iterator[int]) -> Any:
    return _Slot(next(slots)) if isinstance(leaf, torch.Tensor) else leaf


def _filled(value: Any, tensors: dict[int, torch.Tensor]) -> Any:
    leaves = nested.flatten(value)
    made = [tensors[leaf.number] if isinstance(leaf, _Slot) else leaf for leaf in leaves]
    return nested.unflatten(value, made)


def _join(
    own: list[torch.Tensor],
    dtype: str,
    shapes: list[list[tuple[str, tuple[int, ...]]]],
    found: list[dict[int, torch.Tensor]],
    what: str,
) -> None:
    """Gather the numbers of tensors of a type, and cut them up again as each rank had them."""
    flat = torch.cat(own) if own else torch.empty(0, dtype=getattr(torch, dtype.removeprefix("torch.")))
    (whole,) = graph.gather_all_rows([flat], 0, what)
    graph.mark_whole([whole])
    places = [
        (rank, number, shape)
        for rank, its in enumerate(shapes)
        for number, (name, shape) in enumerate(its)
        if name == dtype
    ]
    shapes_ = [shape for *_, shape in places]
    pieces = rows.separate(whole, [torch.Size(shape).numel() for shape in shapes_], shapes_)
    for (rank, number, _), piece in zip(places, pieces, strict=True):
        found[rank][number] = piece
