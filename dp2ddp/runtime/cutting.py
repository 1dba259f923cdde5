"""What in a batch has an entry for each sample, and a part of all that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from typing import Any

from torch.nn import Module
from torch.nn.utils.rnn import PackedSequence


def total(batch: Any, what: str, where: str, likely: int = 0) -> int:
    """How many samples a batch has.

    Args:
        what, where: who asks.
        likely: how many were put together; they are that many where it may be so.

    Raises:
        ValueError: its entries have different numbers, or it is not clear how many.
    """
    found = _within(batch) if is_structure(batch) else {len(batch)} if is_sized(batch) else set()
    if likely in found:
        return likely
    if isinstance(batch, list) and len(batch) > 3 and all(map(_is_array, batch)):
        if len({shown(it) for it in batch}) == 1:  # views of a batch, or samples
            found = set()
    if len(found) == 1 and (number := max(found)) > 0:
        return number
    raise ValueError(
        f"{what} can't tell how many samples {shown(batch)} has, {where}: give it a tensor, or a "
        "tuple of tensors with as many rows each"
    )


def is_structure(batch: Any) -> bool:
    """Whether a batch is one of several tensors or the like; else it has a sample in each place.

    DataLoaders hand out lists of those: of tensors, and of lists with a string for each sample beside them.
    """
    if isinstance(batch, list):
        arrays = [*map(_is_array, batch)]
        return all(arrays) or (any(arrays) and bool(_within(batch)))
    return isinstance(batch, tuple | Mapping) or has_arrays(batch)


def _within(value: Any) -> set[int]:
    """The numbers of samples that all entries may have."""
    found = [sizes for it in _entries(value) if (sizes := _sizes(it))]
    return set.intersection(*found) if found else set()


def _sizes(value: Any) -> set[int]:
    """How many samples a value may have; none for what is handed on."""
    if isinstance(value, PackedSequence):
        return {-1}  # nothing has as many
    if isinstance(value, Mapping) or has_arrays(value):
        return _within(value)
    if isinstance(value, list | tuple):
        within = _within(value)
        return {-1} if within == {len(value)} and len(value) > 1 else within | {len(value)}
    return {len(value)} if is_sized(value) else set()


def _entries(value: Any) -> Iterator[Any]:
    if has_arrays(value):
        return iter(vars(value).values())
    return iter(value.values() if isinstance(value, Mapping) else value)


def has_arrays(value: Any) -> bool:
    """Whether something is an object of a class of somebody's own, which keeps a batch's tensors in attributes."""
    if (
        is_sized(value)
        or isinstance(value, type | Module)
        or _is_array(value)
        or not hasattr(value, "__dict__")
    ):
        return False
    return any(map(_is_array, vars(value).values()))


def _is_array(value: Any) -> bool:
    """Whether a value is a tensor, or an array of any library, with dimensions."""
    return bool(getattr(value, "shape", ())) and hasattr(value, "dtype")


def is_sized(value: Any) -> bool:
    """Whether a value has a sample in each of its places."""
    if isinstance(value, str | bytes):
        return False
    return hasattr(value, "__len__") and hasattr(value, "__getitem__") and getattr(value, "shape", None) != ()


def _cut(value: Any, total: int, own: slice) -> Any:
    """The samples ``own`` of a batch, or of an entry of one."""
    if isinstance(value, Mapping):
        new: Any = copy(value)
        for key, it in value.items():
            new[key] = _cut(it, total, own)
        return new
    if has_arrays(value):
        new = copy(value)
        vars(new).update({name: _cut(it, total, own) for name, it in vars(value).items()})
        return new
    if isinstance(value, list | tuple) and _within(value) == {total}:
        entries = [_cut(it, total, own) for it in value]
        return type(value)(*entries) if hasattr(value, "_fields") else type(value)(entries)
    return value[own] if is_sized(value) else value


def part(batch: Any, total: int, own: slice) -> Any:
    """The samples ``own`` of a batch that has ``total``."""
    return _cut(batch, total, own) if is_structure(batch) else batch[own]


def shown(value: Any) -> str:
    """What a value is, without its numbers."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {shown(it)}" for key, it in value.items()) + "}"
    if has_arrays(value):
        return f"{type(value).__name__}({', '.join(f'{key}={shown(it)}' for key, it in vars(value).items())})"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(shown, value)) + ")"
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"{type(value).__name__}{list(shape)} of {getattr(value, 'dtype', 'numbers')}"
    return f"{type(value).__name__} of {len(value)}" if is_sized(value) else type(value).__name__


def leaves(value: Any) -> Iterator[Any]:
    """All that tuples, lists, dicts and objects with tensors hold."""
    if isinstance(value, list | tuple | Mapping) or has_arrays(value):
        for it in _entries(value):
            yield from leaves(it)
    else:
        yield value


class Opened(dict[str, Any]):
    """The attributes of an object that has tensors in them, in its place."""

    def __init__(self, like: Any, held: Mapping[str, Any]) -> None:
        super().__init__(held)
        self.like = like

    def __copy__(self) -> Opened:
        return Opened(self.like, self)

    copy = __copy__

    def closed(self) -> Any:
        """An object of the same class with these attributes."""
        made = copy(self.like)
        vars(made).update(self)
        return made


def opened(value: Any) -> Any:
    """A structure with the attributes of objects that have tensors in them in their places."""
    if has_arrays(value):
        return Opened(value, {name: opened(it) for name, it in vars(value).items()})
    return _rebuilt(value, opened)


def closed(value: Any) -> Any:
    """The structure that ``opened`` has opened, or one with other tensors in it."""
    return _rebuilt(value, closed).closed() if isinstance(value, Opened) else _rebuilt(value, closed)


def _rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """A structure with each of its entries changed; itself where none is."""
    if isinstance(value, dict):
        changed = {key: change(it) for key, it in value.items()}
        if all(changed[key] is it for key, it in value.items()):
            return value
        new = copy(value)
        new.update(changed)
        return new
    if isinstance(value, list | tuple):
        entries = [change(it) for it in value]
        if all(one is other for one, other in zip(entries, value, strict=True)):
            return value
        return type(value)(*entries) if hasattr(value, "_fields") else type(value)(entries)
    return value
