"""Generators of random numbers that a data set holds: its own, its transforms', those of a data set in it."""

from __future__ import annotations

import random
import sys
import types
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

_MOST = 2000  # objects that are looked through
_LONG = 64  # a longer collection is one of samples
_OPAQUE = (
    str,
    bytes,
    int,
    float,
    torch.Tensor,
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinMethodType,
)


@dataclass(frozen=True)
class Held:
    """A generator that is not a global one: Python's, numpy's or torch's."""

    generator: Any

    def get(self) -> Any:
        """Its state."""
        match self.generator:
            case random.Random():
                return self.generator.getstate()
            case torch.Generator():
                return self.generator.get_state()
        return self._numpys.state

    def set(self, state: Any) -> None:
        """Give it a state that ``get`` gave."""
        match self.generator:
            case random.Random():
                self.generator.setstate(state)
            case torch.Generator():
                self.generator.set_state(state)
            case _:
                self._numpys.state = state

    @property
    def _numpys(self) -> Any:
        own = self.generator
        return own._bit_generator if hasattr(own, "_bit_generator") else own.bit_generator

    def send_apart(self, number: int) -> None:
        """Give it a state that follows from its own and from ``number``."""
        state = self.get()
        shown = state.tolist() if isinstance(state, torch.Tensor) else _shown(state)
        seed = zlib.crc32(repr((shown, number)).encode())
        match self.generator:
            case random.Random():
                self.generator.seed(seed)
            case torch.Generator():
                self.generator.manual_seed(seed)
            case _:
                self._numpys.state = type(self._numpys)(seed).state


def _shown(state: Any) -> Any:
    """A state all of whose numbers ``repr`` shows."""
    if isinstance(state, dict):
        return {name: _shown(value) for name, value in state.items()}
    return state.tolist() if hasattr(state, "tolist") else state


def generators(*roots: Any) -> list[Held]:
    """The generators that objects hold; the global ones left out."""
    numpy = sys.modules.get("numpy")
    kinds: tuple[type, ...] = (random.Random, torch.Generator)
    left_out = [random._inst, torch.default_generator]  # type: ignore[attr-defined]
    if numpy is not None:
        kinds += (numpy.random.RandomState, numpy.random.Generator)
        left_out.append(numpy.random.mtrand._rand)
    found: list[Held] = []
    waiting, seen = list(roots), {id(it) for it in left_out}
    while waiting and len(seen) < _MOST:
        one = waiting.pop()
        if one is None or isinstance(one, _OPAQUE) or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, kinds):
            if getattr(one, "device", None) in (None, torch.device("cpu")):
                found.append(Held(one))
        else:
            waiting += _parts(one)
    return found


def _parts(one: Any) -> Iterator[Any]:
    """What an object is made of, as far as that may be generators or hold some."""
    if isinstance(one, types.MethodType):
        yield one.__self__
    elif isinstance(one, dict):
        yield from one.values() if len(one) <= _LONG else ()
    elif isinstance(one, list | tuple | set | frozenset):
        yield from one if len(one) <= _LONG else ()
    else:
        yield from getattr(one, "__dict__", {}).values()
