"""Conditions that every process answers alike at the same place of its run: of options, settings and counters.

``if epoch % args.interval == 0 and step == 0``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.analyse.api.files import LOADS_SETTINGS
from dp2ddp.analyse.api.iteration import HANDS_OUT_ALL, RANGES
from dp2ddp.analyse.api.naming import LOADER
from dp2ddp.analyse.context import Context, is_main_guard, once
from dp2ddp.analyse.processes.answers import is_options
from dp2ddp.analyse.processes.conditions import origin
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.sources import How
from dp2ddp.analyse.program.values import full_name


@once
def is_alike(context: Context, test: ast.expr) -> bool:
    """Whether a condition asks for constants, options and settings, and counters alone."""
    return _Following(context).is_alike(test)


class _Following:
    """Follows values back to where they are made.

    What is asked for already is alike if all else is: ``epoch += 1``.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.program = context.program
        self._seen: set[int] = set()

    def is_alike(self, node: ast.expr | None) -> bool:
        parts: list[ast.expr] = []
        match node:
            case ast.Constant():
                return True
            case ast.UnaryOp(operand=operand):
                parts = [operand]
            case ast.BoolOp(values=values):
                parts = values
            case ast.Compare(left=left, comparators=others):
                parts = [left, *others]
            case ast.BinOp(left=left, right=right):
                parts = [left, right]
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                parts = elements
            case ast.Call(args=[given], keywords=[]):
                call = self.program.call(node)
                names = call.names if call is not None else set()
                if names == {"builtins.len"}:  # all have as many batches
                    values = self.program.values(given)
                    return bool(values) and all(full_name(it) == LOADER for it in values)
                parts = [given] if names == {"builtins.int"} else []
            case ast.Attribute(value=owner, attr=name) if is_options(self.context, owner):
                return all(
                    self._is_given_alike(it) for it, _ in self.context.attribute_assignments.get(name, ())
                )
            case ast.Attribute() | ast.Subscript() if self._is_of_file(node):
                return True
            case ast.Name():
                return self._is_counter(node)
            case ast.Attribute():
                return self._is_setting(node)
        return bool(parts) and all(map(self.is_alike, parts))

    def _is_of_file(self, node: ast.expr) -> bool:
        """Whether something is a part of a file of settings."""
        origins = [origin(value) for value in self.program.values(node)]
        return bool(origins) and all(it is not None and it.name in LOADS_SETTINGS for it in origins)

    def _is_counter(self, name: ast.Name) -> bool:
        """Whether all that a name is ever given in its function is alike: the number of a round, what adds these up."""
        found = self.program.definitions(name)
        scopes = {id(it): it for it in map(self.program.scope, found)}.values()
        if not found or any(it is not self.program.scope(name) and not it.is_module for it in scopes):
            return False
        return all(self._is_given_alike(it) for scope in scopes for it in self._given(scope, name.id))

    def _given(self, scope: Scope, name: str) -> Iterator[ast.AST]:
        """Where a name gets a value in a function or module: what adds to it has what it was before."""
        for node in ast.walk(scope.node):
            if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load):
                if self.program.scope(node) is scope:
                    yield node
        parameter = scope.signature.parameter(name)
        if parameter is not None:
            yield parameter

    def _is_setting(self, node: ast.Attribute) -> bool:
        """Whether an attribute has what the object was made with."""
        found = self.program.definitions(node)
        made = (getattr(self.program.scope(it).node, "name", "") == "__init__" for it in found)
        return bool(found) and all(made) and all(map(self._is_given_alike, found))

    def _is_given_alike(self, definition: ast.AST) -> bool:
        """Whether a name or attribute gets what is alike, and where all processes come by."""
        if id(definition) in self._seen:
            return True
        self._seen.add(id(definition))
        if isinstance(definition, ast.arg):
            given = self.program.given(definition)
            return bool(given) and all(map(self.is_alike, given))
        source = self.program.source(definition)
        if source.value is None or not self._is_come_to_alike(definition):
            return False
        if source.how is How.ELEMENT:
            return self._counts(source.value, source.place)
        value, place = source.written
        return source.how in (How.ASSIGNED, How.AUGMENTED) and not place and self.is_alike(value)

    def _is_come_to_alike(self, node: ast.AST) -> bool:
        """Whether all conditions round a place in its function are alike, and nothing there handles an exception."""
        for around in self.program.ancestors(node):
            if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                return True
            if isinstance(around, ast.ExceptHandler | ast.Match):
                return False
            if isinstance(around, ast.If | ast.IfExp) and not (
                is_main_guard(around.test) or self.is_alike(around.test)
            ):
                return False
        return True

    def _counts(self, gone_through: ast.expr, place: tuple[int | None, ...]) -> bool:
        """Whether a loop counts its rounds: what stands at a place of what it hands out is the number of that."""
        call = self.program.call(gone_through)
        names = call.names if call is not None else set()
        if names & RANGES:
            return not place
        if "builtins.enumerate" in names:
            return place == (0,)
        given = call.node.args[:1] if call is not None and names & HANDS_OUT_ALL else []
        return any(self._counts(it, place) for it in given)
