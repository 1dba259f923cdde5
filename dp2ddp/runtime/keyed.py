"""Stores of values by keys in a file, on ranks that do not write it: they read it, and keep in memory what is new."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import suppress
from typing import Any

# What opens such stores; the default of the flag that says how.
OPENING = {"shelve.open": "c", "dbm.dumb.open": "c", "dbm.open": "r"}


def opened(make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Open a store, ``make(path, flag)``, without writing to it.

    Args:
        make: one of ``OPENING``.
        args: what it is given.
        kwargs: what it is given by name.

    Returns:
        What ``make`` opens, for reading, if that is all that the flag asks for; else a ``Store``.
    """
    flag = kwargs.get("flag", args[1] if len(args) > 1 else OPENING[f"{make.__module__}.{make.__qualname__}"])
    if flag == "r":
        return make(*args, **kwargs)
    path = args[0] if args else kwargs.get("filename", kwargs.get("file"))
    held = None
    if flag != "n":
        with suppress(Exception):  # it is not there yet, or the main process writes it at this moment
            held = make(path, "r")
    return Store(held, pickles=make.__module__ == "shelve")


class Store(MutableMapping[Any, Any]):
    """A store's contents, with what this process puts into it: that is seen here, and written by nobody.

    Args:
        held: the store in the file, open for reading; None if there is nothing in it yet.
        pickles: whether values are kept as they are pickled, as a shelf does; else bytes by bytes, as dbm does.
    """

    def __init__(self, held: Any, pickles: bool) -> None:
        self._held, self._pickles = held, pickles
        self._new: dict[Any, bytes] = {}
        self._gone: set[Any] = set()

    def _key(self, key: Any) -> Any:
        return key.encode() if isinstance(key, str) and not self._pickles else key

    def __getitem__(self, key: Any) -> Any:
        key = self._key(key)
        if key in self._new:
            return pickle.loads(self._new[key]) if self._pickles else self._new[key]
        if key in self._gone or self._held is None:
            raise KeyError(key)
        return self._held[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        plain = value.encode() if isinstance(value, str) else value
        self._new[self._key(key)] = pickle.dumps(value) if self._pickles else plain

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        self._new.pop(self._key(key), None)
        self._gone.add(self._key(key))

    def __contains__(self, key: object) -> bool:
        known = self._key(key)
        there = self._held is not None and known not in self._gone and known in self._held
        return known in self._new or there

    def __iter__(self) -> Iterator[Any]:
        yield from self._new
        for key in [] if self._held is None else self._held.keys():
            if key not in self._new and key not in self._gone:
                yield key

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sync(self) -> None:
        """Nothing is written."""

    def close(self) -> None:
        """Close the file."""
        if self._held is not None:
            self._held.close()
        self._held = None
