"""Which parameter takes which argument: the one place that knows how Python binds a call to a function."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Generic, TypeVar

Given = TypeVar("Given")


@dataclass(frozen=True)
class Signature:
    """The parameters of a function: by place, by name only, ``*rest``, ``**others``, and what is their default."""

    places: tuple[ast.arg, ...] = ()
    keywords: tuple[ast.arg, ...] = ()
    rest: ast.arg | None = None
    others: ast.arg | None = None
    defaults: tuple[tuple[ast.arg, ast.expr], ...] = ()

    @classmethod
    def of(cls, function: ast.AST) -> Signature:
        """The parameters of a function or lambda; none of anything else."""
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return cls()
        args = function.args
        places = (*args.posonlyargs, *args.args)
        defaults = [*zip(reversed(places), reversed(args.defaults), strict=False)]
        defaults += ((arg, it) for arg, it in zip(args.kwonlyargs, args.kw_defaults, strict=True) if it)
        return cls(places, tuple(args.kwonlyargs), args.vararg, args.kwarg, tuple(defaults))

    @cached_property
    def bound(self) -> Signature:
        """The parameters without the first one, which is the object that a method is called of."""
        return replace(self, places=self.places[1:])

    @property
    def named(self) -> tuple[ast.arg, ...]:
        """The parameters that take one argument each."""
        return *self.places, *self.keywords

    @property
    def every(self) -> tuple[ast.arg, ...]:
        """All parameters."""
        return *self.named, *(it for it in (self.rest, self.others) if it is not None)

    @cached_property
    def _by_name(self) -> dict[str, ast.arg]:
        return {it.arg: it for it in self.named}

    def parameter(self, name: str) -> ast.arg | None:
        """The parameter that an argument of that name is for, ``**others`` left out."""
        return self._by_name.get(name)

    def default(self, parameter: ast.arg) -> ast.expr | None:
        """What a parameter is where nothing is given for it."""
        return next((value for it, value in self.defaults if it is parameter), None)

    def bind(self, places: Sequence[Given], names: Iterable[tuple[str, Given]] = ()) -> Bindings[Given]:
        """What each parameter is given by arguments that are written out: those by place come first."""
        given = [*zip(self.places, places, strict=False)]
        surplus = places[len(self.places) :]
        rest = [(str(index), it) for index, it in enumerate(surplus)] if self.rest is not None else []
        others, nowhere = [], [*surplus] if self.rest is None else []
        for name, value in names:
            parameter = self.parameter(name)
            if parameter is not None:
                given.append((parameter, value))
            elif self.others is not None:
                others.append((name, value))
            else:
                nowhere.append(value)
        return Bindings(tuple(given), tuple(rest), tuple(others), tuple(nowhere))


@dataclass(frozen=True)
class Bindings(Generic[Given]):
    """What parameters are given: each its own; ``*rest`` by index and ``**others`` by name; what ``nothing`` takes."""

    given: tuple[tuple[ast.arg, Given], ...]
    rest: tuple[tuple[str, Given], ...]
    others: tuple[tuple[str, Given], ...]
    nothing: tuple[Given, ...]
    spread: tuple[Given, ...] = field(default=())
    """``x`` of ``*x`` and ``**x``, and what stands behind ``*x``: any parameter may take some of them."""


def bind(call: ast.Call, taken: Signature, before: Sequence[ast.expr] = ()) -> Bindings[ast.expr]:
    """What a call gives the parameters of a function.

    Args:
        call: the call.
        taken: the parameters, without that of the object which the function is called of.
        before: what ``functools.partial`` gives before the call's own arguments.
    """
    places: list[ast.expr] = []
    spread: list[ast.expr] = []
    for argument in (*before, *call.args):
        if isinstance(argument, ast.Starred):
            spread.append(argument.value)
        elif spread:
            spread.append(argument)
        else:
            places.append(argument)
    spread += [it.value for it in call.keywords if it.arg is None]
    names = [(it.arg, it.value) for it in call.keywords if it.arg is not None]
    return replace(taken.bind(places, names), spread=tuple(spread))


def given(call: ast.Call, taken: Signature, parameter: ast.arg) -> ast.expr | None:
    """What a call gives a parameter, its default included; ``taken`` as in ``bind``."""
    written = bind(call, taken).given
    return next((value for it, value in written if it is parameter), taken.default(parameter))


def is_spread(call: ast.Call) -> bool:
    """Whether a call has ``*x`` or ``**x`` among its arguments, so that what it gives cannot be seen."""
    return any(isinstance(it, ast.Starred) for it in call.args) or any(not it.arg for it in call.keywords)
