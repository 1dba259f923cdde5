"""Nested lists, tuples and dicts: their leaves in an order that all ranks share, and back."""

from __future__ import annotations

import dataclasses as datacls
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import Any


def flatten(value: Any, dataclasses: bool = False, texts: bool = False) -> list[Any]:
    """The leaves, a dict's in the order of its keys' names: insertion order may differ between ranks.

    Args:
        dataclasses: whether to look into instances of dataclasses as well.
        texts: whether a list of strings is one leaf.
    """
    return [*_leaves(value, dataclasses, texts)]


def unflatten(like: Any, leaves: Iterable[Any], dataclasses: bool = False, texts: bool = False) -> Any:
    """A new structure of the form and types of ``like`` with other leaves, in the order that ``flatten`` has."""
    return _fill(like, iter(leaves), dataclasses, texts)


def is_texts(value: Any) -> bool:
    """Whether a value is a list of strings, as a DataLoader makes it of the strings of its samples."""
    return (
        isinstance(value, list | tuple) and bool(value) and all(isinstance(it, str | bytes) for it in value)
    )


def describe(value: Any, leaf: Callable[[Any], str]) -> str:
    """The structure in words that are the same on two ranks if it is, each leaf in those of ``leaf``."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {describe(value[key], leaf)}" for key in _keys(value)) + "}"
    if isinstance(value, list | tuple):
        inner = ", ".join(describe(item, leaf) for item in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    return leaf(value)


def _leaves(value: Any, dataclasses: bool, texts: bool) -> Iterator[Any]:
    if texts and is_texts(value):
        yield value
        return
    inner: Iterable[Any]
    if isinstance(value, dict):
        inner = (value[key] for key in _keys(value))
    elif isinstance(value, list | tuple):
        inner = value
    elif dataclasses and _is_dataclass(value):
        inner = (getattr(value, name) for name in _fields(value))
    else:
        yield value
        return
    for item in inner:
        yield from _leaves(item, dataclasses, texts)


def _keys(value: dict[Any, Any]) -> list[Any]:
    return sorted(value, key=repr)


def _is_dataclass(value: Any) -> bool:
    return datacls.is_dataclass(value) and not isinstance(value, type)


def _fields(value: Any) -> list[str]:
    return [field.name for field in datacls.fields(value)]


def _fill(like: Any, leaves: Iterator[Any], dataclasses: bool, texts: bool) -> Any:
    if texts and is_texts(like):
        return next(leaves)
    if isinstance(like, dict):
        filled = copy(like)  # keeps the order of keys, and a defaultdict's factory
        for key in _keys(like):
            filled[key] = _fill(like[key], leaves, dataclasses, texts)
        return filled
    if isinstance(like, list | tuple):
        items = [_fill(item, leaves, dataclasses, texts) for item in like]
        return type(like)(*items) if hasattr(like, "_fields") else type(like)(items)
    if dataclasses and _is_dataclass(like):
        filled = copy(like)
        for name in _fields(like):
            value = _fill(getattr(like, name), leaves, dataclasses, texts)
            object.__setattr__(filled, name, value)  # frozen or not
        return filled
    return next(leaves)
