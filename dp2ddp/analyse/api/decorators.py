"""Decorators, by the last part of their names: what they make of a function."""

from __future__ import annotations

# What marks a method that is called where an attribute is asked for.
PROPERTY_MARKS = ("property", "cached_property", "setter", "getter", "deleter")
# What marks a method that is given no object, or the class in its place.
STATIC_MARKS = frozenset({"staticmethod", "classmethod"})
# Decorators that keep a function nowhere.
KEEPS_NO_FUNCTION = (
    *(
        "abstractmethod",
        "overload",
        "wraps",
        "contextmanager",
        "lru_cache",
        "cache",
    ),
    *STATIC_MARKS,
    *(*PROPERTY_MARKS, "no_grad", "inference_mode", "enable_grad", "autocast", "jit", "njit", "script"),
)
