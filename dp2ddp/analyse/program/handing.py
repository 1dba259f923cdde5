"""Functions that return what they are given, as it is or as something that goes through it: ``bar(loader)``.

What they return is told apart by call: of a parameter, a call returns what it gives for it itself, and not what others
do. What goes through a parameter, ``tqdm(loader)``, is named by the call of the function, not by its place in that.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from dp2ddp.analyse.api.decorators import STATIC_MARKS
from dp2ddp.analyse.api.iteration import HANDS_FIRST_OUT, HANDS_OUT_ALL
from dp2ddp.analyse.program.classes import Classes
from dp2ddp.analyse.program.scopes import Scope, Tree
from dp2ddp.analyse.program.signature import Signature, bind
from dp2ddp.analyse.program.store import Store
from dp2ddp.analyse.program.values import NOTHING, Bound, Ext, Func, Made, Value, Values

_DEEPEST = 5


@dataclass
class HandingOn:
    """What functions return of what they are given."""

    tree: Tree
    store: Store
    classes: Classes
    _results: dict[int, tuple[ast.expr, ...]] = field(default_factory=dict)
    _assigned: dict[tuple[int, str], tuple[ast.expr, ...] | None] = field(default_factory=dict)
    _met: dict[tuple[int, int, tuple[str, ...]], list[str]] = field(default_factory=dict)
    """The parameters that expressions may be, while one question is answered: more may be known at the next."""

    def returned(self, scope: Scope, given: dict[str, Values], site: ast.AST) -> Values | None:
        """What a call returns that gives some parameters these values; None where that is the same for all calls."""
        results = self._results_of(scope)
        if not results:
            return None
        self._met.clear()
        found: set[Value] = set()
        for result in results:
            held = self.store.looked_up(result)
            found |= {
                it for it in self._values(result, scope, given, site, 0, ()) if self._is_among(it, held)
            }
        return frozenset(found)

    def handed(self, callees: Values, call: ast.Call, depth: int = 0) -> list[ast.expr]:
        """What a call gives that comes back out of functions of the project, or is gone through by what does."""
        found: list[ast.expr] = []
        if depth == 0:
            self._met.clear()
        for callee in callees:
            if (target := self._target(callee)) is None:
                return []
            scope, taken = target
            given = {it.arg: value for it, value in bind(call, taken).given}
            names = [
                it for result in self._results_of(scope) for it in self._parameters(result, scope, depth, ())
            ]
            found += [given[it] for it in names if it in given]
        return list(dict.fromkeys(found))

    def _target(self, callee: Value) -> tuple[Scope, Signature] | None:
        """A function of the project, and the parameters that a call gives something."""
        bound = isinstance(callee, Bound) and not self.classes.is_static(callee.func)
        function = callee.func if isinstance(callee, Bound) else callee
        if not isinstance(function, Func):
            return None
        scope = self.tree.scopes[function.scope]
        return scope, scope.takes(bound)

    def _results_of(self, scope: Scope) -> tuple[ast.expr, ...]:
        """What a function returns, where a parameter is among it; nothing where it is not seen what it returns."""
        if scope.index not in self._results:
            self._results[scope.index] = ()  # of a function that calls itself
            node, results = scope.node, self.tree.results(scope)
            plain = isinstance(node, ast.Lambda) or (
                isinstance(node, ast.FunctionDef)
                and all(isinstance(it, ast.Name) and it.id in STATIC_MARKS for it in node.decorator_list)
            )
            values = [it.value for it in results if it.value is not None]
            if plain and all(isinstance(it, ast.Return) for it in results):
                if any(self._reaches(it, scope, ()) for it in values):
                    self._results[scope.index] = tuple(values)
        return self._results[scope.index]

    def _reaches(self, node: ast.expr, scope: Scope, seen: tuple[str, ...]) -> bool:
        """Whether an expression may be a parameter, or something that is given one first."""
        match node:
            case ast.Call(args=[first, *_]):
                return self._reaches(first, scope, seen)
            case ast.Name(id=name) if name not in seen and (held := self._held(name, scope)) is not None:
                own = scope.signature.parameter(name) is not None
                return own or any(self._reaches(it, scope, (*seen, name)) for it in held)
            case ast.IfExp(body=body, orelse=other):
                return self._reaches(body, scope, seen) or self._reaches(other, scope, seen)
        return False

    def _held(self, name: str, scope: Scope) -> tuple[ast.expr, ...] | None:
        """What is assigned to a name of a function; None where it may get its value otherwise."""
        key = scope.index, name
        if key not in self._assigned:
            found: list[ast.expr] = []
            stores = [
                it
                for it in self.tree.body(scope)
                if isinstance(it, ast.Name) and it.id == name and not isinstance(it.ctx, ast.Load)
            ]
            for store in stores:
                match self.tree.parent(store):
                    case ast.Assign(targets=[ast.Name()], value=value):
                        found.append(value)
            elsewhere = any(name in it.nonlocals for it in self.tree.scopes if it.parent is scope)
            own = name in scope.names and name not in scope.globals | scope.nonlocals
            known = own and len(found) == len(stores) and not elsewhere
            bound = bool(stores) or scope.signature.parameter(name) is not None
            self._assigned[key] = tuple(found) if known and bound else None
        return self._assigned[key]

    def _values(
        self,
        node: ast.expr,
        scope: Scope,
        given: dict[str, Values],
        site: ast.AST,
        depth: int,
        seen: tuple[str, ...],
    ) -> Values:
        """What an expression in a function may be in one call of it."""
        match node:
            case ast.IfExp(body=body, orelse=other):
                return self._values(body, scope, given, site, depth, seen) | self._values(
                    other, scope, given, site, depth, seen
                )
            case ast.Name(id=name) if name not in seen and (held := self._held(name, scope)) is not None:
                if scope.signature.parameter(name) is not None and name not in given:
                    return self.store.looked_up(node)
                inner = (self._values(it, scope, given, site, depth, (*seen, name)) for it in held)
                return given.get(name, NOTHING).union(*inner)
            case ast.Call(args=[first, *_]) if self._is_given(first, scope, given):
                call = self.store.call(node)
                found: set[Value] = set()
                for callee in call.callees if call is not None else ():
                    found |= self._called(callee, node, scope, given, site, depth, seen)
                return frozenset(found)
        return self.store.looked_up(node)

    def _is_given(self, node: ast.expr, scope: Scope, given: dict[str, Values]) -> bool:
        """Whether what a call in a function is given first comes of what the function is given."""
        names = set(self._parameters(node, scope, 0, ()))
        return bool(names) and names <= given.keys()

    def _called(
        self,
        callee: Value,
        node: ast.Call,
        scope: Scope,
        given: dict[str, Values],
        site: ast.AST,
        depth: int,
        seen: tuple[str, ...],
    ) -> Values:
        """What a call in a function returns, by one of the callees that it may have."""
        if self._hands_out(callee, node, scope):
            return frozenset([Made(callee.name, id(site))])  # type: ignore[union-attr]
        target = self._target(callee)
        if target is not None and self._results_of(target[0]) and depth < _DEEPEST:
            inner, taken = target
            passed = {
                it.arg: self._values(value, scope, given, site, depth + 1, seen)
                for it, value in bind(node, taken).given
            }
            found = (self._values(it, inner, passed, site, depth + 1, ()) for it in self._results_of(inner))
            return NOTHING.union(*found)
        hands_out = {it for it in self.store.call(node).callees if self._hands_out(it, node, scope)}  # type: ignore[union-attr]
        apart = {Made(it.name, id(node)) for it in hands_out}  # type: ignore[union-attr]
        return self.store.looked_up(node) - apart

    def _hands_out(self, callee: Value, node: ast.Call, scope: Scope) -> bool:
        """Whether a call in a function goes through all that the function is given."""
        through = isinstance(callee, Ext) and callee.name in HANDS_FIRST_OUT
        return through and self._is_whole(node.args[0], scope, ())

    def _is_whole(self, node: ast.expr, scope: Scope, seen: tuple[str, ...]) -> bool:
        """Whether an expression in a function hands out all that the function is given, in order."""
        match node:
            case ast.IfExp(body=body, orelse=other):
                return self._is_whole(body, scope, seen) and self._is_whole(other, scope, seen)
            case ast.Name(id=name) if name in seen:
                return True
            case ast.Name(id=name) if (held := self._held(name, scope)) is not None:
                return all(self._is_whole(it, scope, (*seen, name)) for it in held)
            case ast.Call(args=[first, *_]):
                call = self.store.call(node)
                names = (
                    {it.name if isinstance(it, Ext) else "" for it in call.callees}
                    if call is not None
                    else {""}
                )
                return names <= HANDS_OUT_ALL and self._is_whole(first, scope, seen)
        return False

    def _is_among(self, value: Value, held: Values) -> bool:
        """Whether a value is among those that all calls may return: no assignment on the way hides it."""
        if value in held:
            return True
        return isinstance(value, Made) and any(isinstance(it, Made) and it.name == value.name for it in held)

    def _parameters(self, node: ast.expr, scope: Scope, depth: int, seen: tuple[str, ...]) -> list[str]:
        """The parameters that an expression may be, or goes through."""
        key = id(node), depth, seen
        if key not in self._met:
            self._met[key] = list(dict.fromkeys(self._list_parameters(node, scope, depth, seen)))
        return self._met[key]

    def _list_parameters(
        self, node: ast.expr, scope: Scope, depth: int, seen: tuple[str, ...]
    ) -> Iterator[str]:
        match node:
            case ast.IfExp(body=body, orelse=other):
                yield from self._parameters(body, scope, depth, seen)
                yield from self._parameters(other, scope, depth, seen)
            case ast.Name(id=name) if name not in seen and (held := self._held(name, scope)) is not None:
                if scope.signature.parameter(name) is not None:
                    yield name
                for it in held:
                    yield from self._parameters(it, scope, depth, (*seen, name))
            case ast.Call(args=[first, *_]):
                call = self.store.call(node)
                callees = call.callees if call is not None else NOTHING
                handed = [first] if any(self._hands_out(it, node, scope) for it in callees) else []
                if depth < _DEEPEST:
                    handed += self.handed(callees, node, depth + 1)
                for it in handed:
                    yield from self._parameters(it, scope, depth, seen)
