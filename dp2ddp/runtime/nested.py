"""Nested lists, tuples and dicts: their leaves in an order that all ranks share, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import Any


def flatten(value: Any) -> list[Any]:
    """The leaves, a dict's in the order of its keys' names: insertion order may differ between ranks."""
    if isinstance(value, dict):
        return [leaf for key in _keys(value) for leaf in flatten(value[key])]
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in flatten(item)]
    return [value]


def unflatten(like: Any, leaves: Iterable[Any]) -> Any:
    """A new structure of the form and types of ``like`` with other leaves, in the order that ``flatten`` has."""
    return _fill(like, iter(leaves))


def describe(value: Any, leaf: Callable[[Any], str]) -> str:
    """The structure in words that are the same on two ranks if it is, each leaf in those of ``leaf``."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {describe(value[key], leaf)}" for key in _keys(value)) + "}"
    if isinstance(value, list | tuple):
        inner = ", ".join(describe(item, leaf) for item in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    return leaf(value)


def _keys(value: dict[Any, Any]) -> list[Any]:
    return sorted(value, key=repr)


def _fill(like: Any, leaves: Iterator[Any]) -> Any:
    if isinstance(like, dict):
        filled = copy(like)  # keeps the order of keys, and a defaultdict's factory
        for key in _keys(like):
            filled[key] = _fill(like[key], leaves)
        return filled
    if isinstance(like, list | tuple):
        items = [_fill(item, leaves) for item in like]
        return type(like)(*items) if hasattr(like, "_fields") else type(like)(items)
    return next(leaves)
