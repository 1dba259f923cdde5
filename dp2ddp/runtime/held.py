"""Generators of random numbers that a data set draws from, but for the global ones.

Those that it holds: its own, its transforms', those of a data set in it. And those that its code names: of a module, of
a class, of the function around it. What is made while it draws, or is found by a name that is computed, is not found.
"""

from __future__ import annotations

import functools
import random
import sys
import types
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

_MOST = 4000  # objects that are looked through
_LONG = 64  # a longer collection is one of samples
_OPAQUE = (str, bytes, int, float, torch.Tensor)
_CODE = (types.FunctionType, type)
_OF_OTHERS = {
    *sys.stdlib_module_names,
    "torch",
    "numpy",
}  # packages whose code names no generator of a program's


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
        self.seed(zlib.crc32(repr((shown, number)).encode()))

    def seed(self, seed: int) -> None:
        """Give it the state that follows from ``seed``."""
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
    """The generators that objects hold, or that their code names; the global ones left out."""
    numpy = sys.modules.get("numpy")
    kinds: tuple[type, ...] = (random.Random, torch.Generator)
    left_out = [random._inst, torch.default_generator]  # type: ignore[attr-defined]
    if numpy is not None:
        kinds += (numpy.random.RandomState, numpy.random.Generator)
        left_out.append(numpy.random.mtrand._rand)
    found: list[Held] = []
    held, named = deque(roots), deque[Any]()  # what is held comes first
    seen = {id(it) for it in left_out}
    while (held or named) and len(seen) < _MOST:
        one = (held or named).popleft()
        if one is None or isinstance(one, _OPAQUE) or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, kinds):
            has_state = not isinstance(one, random.SystemRandom)
            if has_state and getattr(one, "device", None) in (None, torch.device("cpu")):
                found.append(Held(one))
        else:
            held += _parts(one)
            named += _named(one)
    return found


def _parts(one: Any) -> Iterator[Any]:
    """What an object is made of, as far as that may be generators or hold some."""
    if isinstance(one, types.MethodType | types.BuiltinMethodType):
        yield one.__self__
    elif isinstance(one, dict):
        yield from one.values() if len(one) <= _LONG else ()
    elif isinstance(one, list | tuple | set | frozenset):
        yield from one if len(one) <= _LONG else ()
    elif isinstance(one, functools.partial):
        yield from (one.func, one.args, one.keywords)
    elif not isinstance(one, (types.ModuleType, *_CODE)):
        yield from getattr(one, "__dict__", {}).values()
        for kind in type(one).__mro__:
            slots = vars(kind).get("__slots__", ())
            yield from (getattr(one, it, None) for it in ([slots] if isinstance(slots, str) else slots))


def _named(one: Any) -> Iterator[Any]:
    """What the code of an object names, of a class or of a function."""
    if isinstance(one, types.MethodType):
        yield one.__func__
    elif isinstance(one, types.FunctionType):
        yield from _named_in(one)
    elif not isinstance(one, types.ModuleType | types.BuiltinMethodType):
        for kind in (one if isinstance(one, type) else type(one)).__mro__:
            if not _is_others(kind.__module__):
                yield from map(_undecorated, vars(kind).values())


def _undecorated(value: Any) -> Any:
    if isinstance(value, staticmethod | classmethod):
        return value.__func__
    return value.fget if isinstance(value, property) else value


def _named_in(function: types.FunctionType) -> Iterator[Any]:
    if _is_others(function.__module__):
        return
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    yield getattr(function, "__wrapped__", None)
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # nothing is there yet
            continue
    names = _names(function.__code__)
    modules = [function.__globals__]
    for variables in modules:  # names of modules that it names, too
        for name in names & variables.keys():
            value = variables[name]
            if not isinstance(value, types.ModuleType):
                yield value
            elif not _is_others(value.__name__) and all(vars(value) is not it for it in modules):
                modules.append(vars(value))


def _names(code: types.CodeType) -> set[str]:
    """The names in a function's code, and in what is defined in it."""
    inner = (it for it in code.co_consts if isinstance(it, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _is_others(module: str | None) -> bool:
    """Whether a module is none of the program's: the interpreter's, torch's, this package's."""
    name = module or ""
    return name.partition(".")[0] in _OF_OTHERS or name == __package__ or name.startswith(f"{__package__}.")
