"""Which attributes the forward of a model stores, as far as the compiled code of its classes says so.

Followed are methods by their names, hooks, and functions and objects that code names by global names or holds in a
closure. Where code stores by a name that is not known before (``setattr``), that is said.
"""

from __future__ import annotations

import dis
import functools
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from .lines import INSTALLED, PYTHON

_ANY_NAME = {"setattr", "delattr", "vars", "exec", "__dict__", "__setattr__", "__delattr__", "__init__"} | {
    *{"_parameters", "_buffers", "_modules"},
    *{"register_buffer", "register_parameter", "register_module", "add_module"},
}
_OF_TORCH = {"train": "training", "eval": "training"}  # what torch's own methods store
_NOT_CALLED = {"__init__", "__new__", "__init_subclass__", "__repr__", "__deepcopy__"} | {
    *{"__getstate__", "__setstate__", "__reduce__", "__reduce_ex__"}
}
_OF_ITSELF = {"__setattr__", "__delattr__", "__getattribute__"}  # what objects other than modules store so
_CONTAINERS = (list, tuple, set, dict)
_NOT_LOOKED_AT = tuple(
    os.path.join(folder, "") for folder in (os.path.dirname(torch.__file__), os.path.dirname(__file__))
)


@dataclass(frozen=True)
class Stored:
    """What a forward stores.

    Args:
        names: of attributes, of whatever object.
        any_name: whether there may be others.
    """

    names: frozenset[str]
    any_name: bool

    def __bool__(self) -> bool:
        return self.any_name or bool(self.names)


def stored(modules: Iterable[torch.nn.Module]) -> Stored:
    """What the forward of a model stores, that consists of ``modules``."""
    look = _Look()
    for module in modules:
        look.add_class(type(module))
        held = vars(module)
        for hooks in (held.get("_forward_hooks"), held.get("_forward_pre_hooks")):
            for hook in (hooks or {}).values():
                look.take(hook)
        for name, value in held.items():
            if name[:1] != "_" or not isinstance(value, dict):
                for it in _inside(value):
                    look.take(it)
    look.follow()
    return Stored(frozenset(look.names), look.any_name)


def is_torch_s(kind: type) -> bool:
    """Whether a class is torch's or this package's, with all that it derives from."""
    return not any(map(_is_foreign, kind.__mro__))


@functools.cache
def _is_foreign(kind: type) -> bool:
    if kind.__module__ in ("builtins", "abc", "typing"):
        return False
    return not f"{kind.__module__}.".startswith(("torch.", f"{__package__}."))


def _inside(value: Any) -> Iterator[Any]:
    if type(value) in _CONTAINERS:
        yield from value.values() if isinstance(value, dict) else value
    else:
        yield value


class _Look:
    """What has been seen so far."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.any_name = False
        self._methods: dict[str, list[FunctionType]] = {}
        self._mentioned = {"forward"}
        self._has_taken_all = False
        self._seen: set[Any] = set()
        self._left: list[FunctionType] = []

    def add_class(self, kind: type) -> None:
        """Have the methods of a class called by their names, and special ones in any case."""
        for base in kind.__mro__:
            if base in self._seen or not _is_foreign(base):
                continue
            self._seen.add(base)
            for name, value in vars(base).items():
                if name in _NOT_CALLED:
                    continue
                if isinstance(value, functools.cached_property):
                    self.names.add(value.attrname or name)
                if name in _OF_ITSELF and not issubclass(base, torch.nn.Module):
                    continue
                functions = [*_functions(value)]
                self._methods.setdefault(name, []).extend(functions)
                if name in self._mentioned or name.startswith("__") or self._has_taken_all:
                    self._left += functions

    def take(self, value: Any) -> None:
        """Have a value called, or its methods."""
        functions = [*_functions(value)]
        self._left += functions
        if not functions and not isinstance(value, ModuleType):
            self.add_class(value if isinstance(value, type) else type(value))

    def follow(self) -> None:
        """Look at all code that may be reached."""
        while self._left:
            function = self._left.pop()
            if function.__code__ not in self._seen and _is_looked_at(function.__code__.co_filename):
                self._seen.add(function.__code__)
                self._look_at(function)

    def _look_at(self, function: FunctionType) -> None:
        for cell in function.__closure__ or ():
            with suppress(ValueError):  # it is empty yet
                self.take(cell.cell_contents)
        names, loaded = _said(function.__code__)
        self.names |= names
        self.names |= {_OF_TORCH[name] for name in loaded & _OF_TORCH.keys()}
        self.any_name |= not loaded.isdisjoint(_ANY_NAME)
        if "getattr" in loaded and not self._has_taken_all:
            self._has_taken_all = True
            self._left += [it for functions in self._methods.values() for it in functions]
        for name in loaded - self._mentioned:
            self._mentioned.add(name)
            self._left += self._methods.get(name, ())
        self._take_named(function.__globals__, loaded, set())

    def _take_named(self, scope: dict[str, Any], names: frozenset[str], seen: set[int]) -> None:
        for name in names & scope.keys():
            value = scope[name]
            if not isinstance(value, ModuleType):
                self.take(value)
            elif id(value) not in seen and _is_looked_at(getattr(value, "__file__", None) or PYTHON):
                seen.add(id(value))
                self._take_named(vars(value), names, seen)


def _functions(value: Any) -> Iterator[FunctionType]:
    """The functions with Python code that a value is made of."""
    if isinstance(value, FunctionType):
        yield value
    elif isinstance(value, property):
        yield from (it for it in (value.fget, value.fset, value.fdel) if isinstance(it, FunctionType))
    elif isinstance(value, staticmethod | classmethod | MethodType):
        yield from _functions(value.__func__)
    elif isinstance(value, functools.partial | functools.cached_property):
        yield from _functions(value.func)
    elif isinstance(value, functools._lru_cache_wrapper):
        yield from _functions(value.__wrapped__)


@functools.cache
def _is_looked_at(file: str) -> bool:
    if file.startswith((*_NOT_LOOKED_AT, "<frozen")):
        return False
    return not file.startswith(PYTHON) or file.startswith(INSTALLED)


@functools.lru_cache(maxsize=4096)
def _said(code: CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """The names of attributes that code stores or deletes, and all names that it has."""
    names, every = set(), set(code.co_names)
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("STORE_ATTR", "DELETE_ATTR"):
            names.add(instruction.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            its, their = _said(inner)
            names |= its
            every |= their
    return frozenset(names), frozenset(every)
