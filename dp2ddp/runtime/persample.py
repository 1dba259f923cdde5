"""Lists with an entry for each sample, where samples differ in size: their boxes, their texts, dicts of such.

A list of tensors may also be one of several tensors with a row for each sample, as a DataLoader makes it of pairs. It
is told apart on all ranks alike: by its sizes; where these speak for both, by who made its tensors, or by what it was
at the same line before. Else that is said, and not guessed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch.utils.data import default_collate
from torch.utils.weak import WeakIdKeyDictionary

from . import cutting, graph, lines, nested, parts, plain, rows
from .exchange import exchange

_in_rows = (
    WeakIdKeyDictionary()
)  # tensors that wrapped models made: nn.DataParallel joins each along its rows
_collated: list[torch.Tensor] = []  # what torch put together for the last batch: rows
_told: dict[tuple[str, int], bool] = (
    {}
)  # by lines, and which of its lists: whether it had entries for samples


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


def note_output(output: Any) -> None:
    """Note what a wrapped model hands out: tensors with a row for each sample, in lists or not."""
    for tensor in parts.tensors(output):
        _in_rows[tensor] = True


def note_batch(loader: Any, batch: Any) -> None:
    """Note what a loader is about to hand out."""
    _collated.clear()
    if loader.collate_fn is default_collate:
        _collated.extend(parts.tensors(batch))


def marked(values: Any, what: str, frame: FrameType, undecided: bool | None = None) -> Any:
    """``values`` with ``Entries`` in place of the lists that have an entry for each sample; a collective.

    It is none where there is no list that may be one.

    Args:
        what: the collective that a user knows.
        frame: who calls it with ``values``.
        undecided: what a list is that nothing tells of, if the caller knows.

    Raises:
        RuntimeError: a list may have an entry for each sample, or be of several tensors.
    """
    lists = [*_lists(values)]
    if not lists:
        return values
    known = parts.rows()
    shown = id(values) if _is_display(values, frame) else None
    answers = exchange(what, [_answer(it, values, known, id(it) == shown) for it in lists])
    chosen = set()
    for place, (it, *said) in enumerate(zip(lists, *answers, strict=False)):
        where = lines.site(), place
        is_flat = not any(isinstance(entry, list | tuple) for entry in it)
        found = _decided(said, where, undecided if is_flat else None)
        if found is None:
            raise RuntimeError(_unclear(it, what, where[0]))
        if found:
            chosen.add(id(it))
    return _marked(values, chosen)


def _is_display(values: Any, frame: FrameType) -> bool:
    """Whether a tuple stands in the call itself, ``whole_batch((outputs, labels))``: nothing else has it."""
    named = itertools.chain(frame.f_locals.values(), frame.f_globals.values())
    return isinstance(values, tuple) and not any(it is values for it in named)


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


_YES, _NO, _BOTH = "yes", "no", "both"


def _answer(entries: Any, values: Any, known: int | None, is_display: bool) -> str:
    """Whether a list has an entry for each sample: "both" where its sizes speak for both, "" where for neither."""
    if nested.is_texts(entries):
        return _YES
    count = len(entries)
    if known is not None and known != count or is_display or _is_made_in_rows(entries):
        return _NO
    if known is None and not _has_rows(values, entries, count):
        return ""
    return _BOTH if _speaks_for_both(entries, known) else _YES


def _speaks_for_both(entries: Any, size: int | None) -> bool:
    """Whether the entries of a list of as many may have so many rows; any, but all the same number, for None."""
    if size is None:
        size = next((it.shape[0] for it in parts.tensors(entries) if it.dim()), -1)
    return all(_may_have_rows(it, size) for it in entries)


def _may_have_rows(value: Any, size: int) -> bool:
    if isinstance(value, dict):
        return all(_may_have_rows(it, size) for it in value.values())
    if isinstance(value, list | tuple):
        return len(value) == size or bool(value) and all(_may_have_rows(it, size) for it in value)
    return value is None or getattr(value, "shape", ())[:1] == (size,)


def _is_made_in_rows(entries: Any) -> bool:
    """Whether the tensors of a list are a wrapped model's, or are those that torch made of a batch's samples."""
    tensors = parts.tensors(entries)
    return bool(tensors) and (
        all(it in _in_rows for it in tensors)
        or all(any(_is_equal(it, other) for other in _collated) for it in tensors)
    )


def _is_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one is other or one.shape == other.shape and torch.equal(one, other.to(one))


def _has_rows(values: Any, entries: Any, count: int) -> bool:
    """Whether anything beside a list has so many rows."""
    inside = {id(leaf) for leaf in nested.flatten(entries)}
    beside = (leaf for leaf in nested.flatten(values, texts=True) if id(leaf) not in inside)
    sizes = (len(leaf) if nested.is_texts(leaf) else getattr(leaf, "shape", (0,))[:1] for leaf in beside)
    return any(size in (count, (count,)) for size in sizes)


def _decided(said: list[str], where: tuple[str, int], undecided: bool | None) -> bool | None:
    """Whether a list has an entry for each sample, by what all ranks say of theirs; None where nothing tells."""
    if _YES in said or _NO in said:
        _told[where] = _NO not in said
        return _told[where]
    if _BOTH not in said:  # the sizes speak for neither
        return bool(undecided)
    return _told.get(where) if undecided is None else undecided


def _unclear(entries: Any, what: str, site: str) -> str:
    return (
        f"{what} can't tell whether the {cutting.shown(entries)} at {site} has an entry for each sample or is of "
        f"several tensors with a row for each: it has {len(entries)} entries with as many rows, as many as each "
        "rank's part has samples. Say which: entries=True or entries=False"
    )


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
