"""What stands in for trackers and plotters: each call of anything in them adds a line to ``tracked.txt``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def note(name: str) -> None:
    """Add a line, where the program runs."""
    with open("tracked.txt", "a") as notes:
        notes.write(f"{name}\n")


def names_of(module: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module in which there is anything."""

    def get(name: str) -> Tracked:
        if name.startswith("__"):
            raise AttributeError(name)
        return Tracked(f"{module}.{name}")

    return get


class Tracked:
    """Anything: it has any attribute and item, and may be called."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Tracked:
        if name.startswith("__"):
            raise AttributeError(name)
        return Tracked(f"{self._name}.{name}")

    def __getitem__(self, key: object) -> Tracked:
        return Tracked(f"{self._name}[]")

    def __setitem__(self, key: object, value: object) -> None:
        note(f"{self._name}[] = {value}")

    def __call__(self, *args: object, **kwargs: object) -> Tracked:
        note(self._name)
        return Tracked(f"{self._name}()")

    def __enter__(self) -> Tracked:
        note(f"with {self._name}")
        return self

    def __exit__(self, *error: object) -> None:
        note(f"end of {self._name}")
