"""Calls: what is called, and what it is given."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property

from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.values import Made, Values, full_name


@dataclass(frozen=True)
class Call:
    """A call: its node, the scope it stands in, and what it may call."""

    node: ast.Call
    scope: Scope
    callees: Values

    def argument(self, keyword: str, position: int | None = None) -> ast.expr | None:
        """The expression given for a parameter, by name or by position; None where it is not given."""
        for given in self.node.keywords:
            if given.arg == keyword:
                return given.value
        if position is not None and position < len(self.node.args):
            before = self.node.args[: position + 1]
            if not any(isinstance(argument, ast.Starred) for argument in before):
                return before[position]
        return None

    @cached_property
    def names(self) -> frozenset[str]:
        """Full names of the callees outside the project; calling an object is calling its ``__call__``."""
        return frozenset(
            f"{name}.__call__" if isinstance(callee, Made) else name
            for callee in self.callees
            if (name := full_name(callee))
        )

    @property
    def sets_attribute(self) -> bool:
        """``setattr(object, name, value)``."""
        return "builtins.setattr" in self.names and len(self.node.args) == 3


@dataclass(frozen=True)
class Arguments:
    """What something is called with: by place, up to ``rest`` that ``*x`` hands out; by name; what ``**x`` is.

    ``behind``: what stands behind ``*x``, at one of the places from there on.
    """

    places: tuple[tuple[ast.AST, Values], ...] = ()
    rest: tuple[ast.AST, Values] | None = None
    behind: tuple[tuple[ast.AST, Values], ...] = ()
    names: tuple[tuple[str, ast.AST, Values], ...] = ()
    dictionaries: tuple[Values, ...] = ()

    def after(self, first: Arguments) -> Arguments:
        """These arguments behind others."""
        if first.rest is not None:
            behind = first.behind + self.places + self.behind
            dictionaries = first.dictionaries + self.dictionaries
            return Arguments(first.places, first.rest, behind, first.names + self.names, dictionaries)
        return Arguments(
            first.places + self.places,
            self.rest,
            self.behind,
            first.names + self.names,
            first.dictionaries + self.dictionaries,
        )


def handed(node: ast.Call) -> list[ast.expr]:
    """All that a call is given, by place and by name."""
    return [*node.args, *(keyword.value for keyword in node.keywords)]
