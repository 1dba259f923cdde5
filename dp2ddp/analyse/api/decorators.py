"""Decorators, by the last part of their names: what they make of a function."""

from __future__ import annotations

# What marks a method that is called where an attribute is asked for.
PROPERTY_MARKS = ("property", "cached_property", "setter", "getter", "deleter")
# Decorators that keep a function nowhere.
KEEPS_NO_FUNCTION = (
    *(
        "staticmethod",
        "classmethod",
        "abstractmethod",
        "overload",
        "wraps",
        "contextmanager",
        "lru_cache",
        "cache",
    ),
    *(*PROPERTY_MARKS, "no_grad", "inference_mode", "enable_grad", "autocast", "jit", "njit", "script"),
)
