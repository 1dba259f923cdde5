"""Other looks at one tensor, by whichever name, and the places that write into it.

A copy of it, such as its rows of all ranks, does not change with it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dp2ddp.analyse.api.containers import CHANGES, CHANGES_FIRST
from dp2ddp.analyse.api.iteration import HANDS_PARTS_OUT
from dp2ddp.analyse.api.tensors import (
    GIVES_INDICES,
    IS_ITS_DATA,
    MAKES_INDICES,
    NO_NUMBERS_IN_PLACE,
    ORDERS_BY_VALUE,
    VIEWS,
)
from dp2ddp.analyse.context import Context, once
from dp2ddp.analyse.dataflow.keys import is_written_out
from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.signature import bind

Keys = frozenset[object]
"""What tells tensors apart: identities of definitions of their names, and ``self.x`` and ``batch[0]`` as written."""
CALLS = 4
"""How many functions deep a tensor is followed."""


def looks_at(
    value: ast.expr, is_copied: Callable[[ast.Subscript], bool] = lambda entry: False
) -> list[ast.expr]:
    """The names, attributes and entries of which a value may be a part, or another look; but for what is copied."""
    match value:
        case ast.Name():
            return [value]
        case ast.Attribute(value=inner, attr=name):
            return looks_at(inner, is_copied) if name in IS_ITS_DATA else [value]
        case ast.Subscript(slice=index) if is_written_out(index):
            return [value]
        case ast.Subscript(ctx=ast.Load()) if is_copied(value):
            return []
        case ast.Subscript(value=inner) | ast.Starred(value=inner) | ast.NamedExpr(value=inner):
            return looks_at(inner, is_copied)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return [it for part in parts for it in looks_at(part, is_copied)]
        case ast.IfExp(body=one, orelse=other):
            return looks_at(one, is_copied) + looks_at(other, is_copied)
        case ast.Call(func=ast.Name(id=function), args=parts) if function in HANDS_PARTS_OUT:
            return [it for part in parts for it in looks_at(part, is_copied)]
        case ast.Call(func=ast.Attribute(value=inner, attr=method)) if method in VIEWS or writes(method):
            return looks_at(inner, is_copied)
    return []


def writes(method: str) -> bool:
    """Whether a method writes into the tensor that it is called of."""
    return method.endswith("_") and not method.startswith("_") and method not in NO_NUMBERS_IN_PLACE


@dataclass(frozen=True)
class _Given:
    """What a function gives names: of what the value is a part or another look, if it is a call, and the names."""

    marks: Keys
    call: ast.Call | None
    names: frozenset[int]


@dataclass(frozen=True)
class _Writing:
    """A node that may write: into what, by itself, and into what at a place that is not written there."""

    node: ast.AST
    marks: Keys
    entries: str


@dataclass(frozen=True)
class _Taken:
    """What a call gives a function of the project: to each parameter, and to those that may be any."""

    scope: Scope
    given: tuple[tuple[int, Keys], ...]
    spread: Keys
    named: frozenset[int]


class Looks:
    """Asked of one program; what is the same for all tensors is worked out once."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._found: dict[tuple[int, Keys, int], list[ast.AST]] = {}
        self._places: dict[tuple[int, Keys], list[tuple[ast.AST, ast.AST]]] = {}
        self._spreads: dict[tuple[int, Keys, int], Keys] = {}
        self._marked: dict[ast.AST, Keys] = {}
        self._giving: dict[int, list[_Given]] = {}
        self._writing: dict[int, list[_Writing]] = {}
        self._withins: dict[int, list[Scope]] = {}
        self._takings: dict[ast.AST, list[_Taken]] = {}
        self._loops: dict[ast.AST, frozenset[int]] = {}

    def written(self, node: ast.expr) -> list[ast.AST]:
        """The places that may write into what an expression is, by whichever name its function has for it."""
        return self._written(self.program.scope(node), self.keys(node), 0)

    def places(self, node: ast.expr) -> list[ast.AST]:
        """Those that may come before an expression, with those in the functions that are given it."""
        scope, keys = self.program.scope(node), self.keys(node)
        if (scope.index, keys) not in self._places:
            self._places[scope.index, keys] = list(self._places_in(scope, keys, 0)) if keys else []
        found = [it for first, it in self._places[scope.index, keys] if self._comes_to(first, node, keys)]
        return list({id(it): it for it in found}.values())

    def _places_in(self, scope: Scope, keys: Keys, depth: int) -> Iterator[tuple[ast.AST, ast.AST]]:
        """Each with the one that it is reached by in the function itself."""
        if not (written := self._written(scope, keys, depth)):
            return
        spread = self._spread(scope, keys, depth)
        for place in written:
            yield place, place
            for inner, given in self._inside(place, spread, depth) if isinstance(place, ast.Call) else ():
                yield from ((place, it) for _, it in self._places_in(inner, given, depth + 1))

    def _comes_to(self, place: ast.AST, use: ast.AST, keys: Keys) -> bool:
        """Whether what a place has written may still be there at a use: earlier in a round, or in an earlier round."""
        program, order = self.program, self.program.order
        if program.scope(place) is not program.scope(use):
            return True
        itself = program.statement(place) is program.statement(use)
        if order[id(place)] < order[id(use)] and not itself:
            return True
        around = {id(it) for it in program.ancestors(place) if isinstance(it, ast.For | ast.While)}
        for loop in (it for it in program.ancestors(use) if id(it) in around):
            if isinstance(loop, ast.For) and program.is_inside(use, loop.iter):
                continue
            inside = self._nodes_in(loop)
            return not all(it in inside and order[it] < order[id(use)] for it in keys)  # type: ignore[index]
        return False

    def changed(self, place: ast.AST) -> list[ast.expr]:
        """What a place by itself writes into; nothing where a function that it calls does."""
        return list(self._changed(place))

    def is_written_from(self, node: ast.expr, start: ast.AST, loops: frozenset[int] = frozenset()) -> bool:
        """Whether what an expression is may be written into at a place or after it.

        ``loops``: those in each round of which it is another tensor.
        """
        keys = self.keys(node)
        return any(not self._is_before(place, start, loops, keys) for place in self.written(node))

    def _is_before(self, place: ast.AST, start: ast.AST, loops: frozenset[int], keys: Keys) -> bool:
        program = self.program
        if program.scope(place) is not program.scope(start):
            return False
        if program.order[id(place)] >= program.order[id(start)] or place in ast.walk(start):
            return False
        around = {id(it) for it in program.ancestors(place) if isinstance(it, ast.For | ast.While)}
        both = [it for it in program.ancestors(start) if id(it) in around]
        return not both or id(both[0]) in loops or self._is_made_in(both[0], keys)

    def _is_made_in(self, loop: ast.AST, keys: Keys) -> bool:
        """Whether each round of a loop makes some tensors anew."""
        return bool(keys) and keys <= self._nodes_in(loop)

    def _nodes_in(self, loop: ast.AST) -> frozenset[int]:
        if loop not in self._loops:
            self._loops[loop] = frozenset(id(it) for it in ast.walk(loop))
        return self._loops[loop]

    # What is one tensor

    def _is_copied(self, entry: ast.Subscript) -> bool:
        """Whether rows are picked by a tensor, ``labels[order]`` or ``labels[labels > 0]``: they are a copy."""
        parts = entry.slice.elts if isinstance(entry.slice, ast.Tuple) else [entry.slice]
        return any(self._is_index_tensor(it, 0) for it in parts)

    def _is_index_tensor(self, node: ast.expr, depth: int) -> bool:
        """Whether an expression is a tensor, by what makes it."""
        match node:
            case ast.Compare(ops=[ast.Eq() | ast.NotEq() | ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE()]):
                return True
            case ast.UnaryOp(op=ast.Invert(), operand=inner) | ast.Subscript(value=inner, slice=ast.Slice()):
                return self._is_index_tensor(inner, depth)
            case ast.Call(func=ast.Attribute(attr=method)):
                names = self.program.names_of(node)
                makes = bool(names) and all(
                    it.startswith("torch.") and it.rpartition(".")[2] in MAKES_INDICES for it in names
                )
                return makes or method in GIVES_INDICES
            case ast.Name() if depth < CALLS and (found := self.program.definitions(node)):
                return all(self._is_made_as_index(it, depth) for it in found)
        return False

    def _is_made_as_index(self, definition: ast.AST, depth: int) -> bool:
        if isinstance(definition, ast.arg):
            return False
        statement = self.program.statement(definition)
        match statement:
            case ast.Assign(
                targets=[ast.Tuple(elts=[_, second])], value=ast.Call(func=ast.Attribute(attr=method))
            ):
                return second is definition and method in ORDERS_BY_VALUE
            case ast.Assign(targets=[target], value=value):
                return target is definition and self._is_index_tensor(value, depth + 1)
        return False

    def keys(self, node: ast.expr) -> Keys:
        """What tells the tensor that an expression is, or is another look at, from others, with its other names."""
        found: set[object] = set()
        waiting = looks_at(node, self._is_copied)
        while waiting:
            leaf = waiting.pop()
            for key, behind in self._behind(leaf):
                if key not in found:
                    found.add(key)
                    waiting += behind
        return frozenset(found)

    def _behind(self, leaf: ast.expr) -> Iterator[tuple[object, list[ast.expr]]]:
        """What tells a name apart, each with what that is another look at."""
        if not isinstance(leaf, ast.Name):
            yield ast.unparse(leaf), []
            return
        for made in self.program.definitions(leaf):
            statement = None if isinstance(made, ast.arg) else self.program.statement(made)
            value = getattr(statement, "value", None)
            if isinstance(statement, ast.AugAssign):
                yield id(made), [statement.target]
            elif not isinstance(statement, ast.Assign) or not isinstance(value, ast.expr):
                yield id(made), []
            elif made in statement.targets:
                yield id(made), looks_at(value, self._is_copied)
            elif not (own := self.program.source(made).written)[1] and own[0] is not None:
                yield id(made), looks_at(own[0], self._is_copied)
            else:
                yield id(made), []
                yield from ((it, []) for it in self._unpacked(statement, made))

    def _unpacked(self, statement: ast.Assign, made: ast.AST) -> Iterator[str]:
        """``batch[0]``, where ``x, y = batch``; what is made there has no other name."""
        if not isinstance(statement.value, ast.Name | ast.Attribute | ast.Subscript):
            return
        for target in statement.targets:
            if isinstance(target, ast.Tuple | ast.List) and made in target.elts:
                yield f"{ast.unparse(statement.value)}[{target.elts.index(made)}]"  # type: ignore[arg-type]

    def _is_one_of(self, node: ast.expr, keys: Keys) -> bool:
        """Whether an expression is one of some tensors, a part of it or another look."""
        return not keys.isdisjoint(self._marks(node))

    def _marks(self, node: ast.expr) -> Keys:
        """What tells apart all of which an expression may be a part, or another look."""
        if node not in self._marked:
            leaves = looks_at(node, self._is_copied)
            self._marked[node] = frozenset(mark for leaf in leaves for mark in self._marks_of(leaf))
        return self._marked[node]

    def _marks_of(self, leaf: ast.expr) -> Iterator[object]:
        part = leaf
        while not isinstance(part, ast.Name):
            yield ast.unparse(part)
            if not isinstance(part, ast.Attribute | ast.Subscript):
                return
            part = part.value
        yield from map(id, self.program.definitions(part))

    def _spread(self, scope: Scope, keys: Keys, depth: int) -> Keys:
        """With the names that a function gives a part of it, or another look."""
        key = scope.index, keys, depth
        if key not in self._spreads:
            found, size, left = keys, -1, self._given_in(scope)
            while len(found) != size:
                size, waiting, left = len(found), left, []
                for it in waiting:
                    if not it.marks.isdisjoint(found) or self._is_handed_back(it.call, found, depth):
                        found |= it.names
                    else:
                        left.append(it)
            self._spreads[key] = found
        return self._spreads[key]

    def _given_in(self, scope: Scope) -> list[_Given]:
        """What a function gives names."""
        if scope.index not in self._giving:
            self._giving[scope.index] = [*self._all_given(scope)]
        return self._giving[scope.index]

    def _all_given(self, scope: Scope) -> Iterator[_Given]:
        for node in self.program.body(scope):
            match node:
                case ast.Assign(targets=targets, value=value):
                    pass
                case ast.For(target=target, iter=value) | ast.NamedExpr(target=target, value=value):
                    targets = [target]
                case _:
                    continue
            for target, part in ((one, part) for it in targets for one, part in _pairs(it, value)):
                names = (it for it in ast.walk(target) if isinstance(it, ast.Name))
                stored = frozenset(id(it) for it in names if isinstance(it.ctx, ast.Store))
                call = part if isinstance(part, ast.Call) else None
                marks = self._marks(part)
                if stored and (marks or call is not None):
                    yield _Given(marks, call, stored)

    def _is_handed_back(self, value: ast.Call | None, keys: Keys, depth: int) -> bool:
        """Whether a function of the project may return one of some tensors that it is given."""
        for scope, inner in self._inside(value, keys, depth) if value is not None else ():
            spread = self._spread(scope, inner, depth + 1)
            returned = [it.value for it in self.program.results(scope) if it.value is not None]
            if any(self._is_one_of(it, spread) for it in returned):
                return True
        return False

    def _inside(self, node: ast.Call, keys: Keys, depth: int) -> Iterator[tuple[Scope, Keys]]:
        """The functions of the project that a call gives one of some tensors, each with its parameters for it."""
        for it in self._taken_by(node) if depth < CALLS else ():
            inner = frozenset(parameter for parameter, marks in it.given if not keys.isdisjoint(marks))
            if not keys.isdisjoint(it.spread):
                inner |= it.named
            if inner:
                yield it.scope, inner

    def _taken_by(self, node: ast.Call) -> list[_Taken]:
        """What a call gives each function of the project that it may enter."""
        if node not in self._takings:
            self._takings[node] = [*self._all_taken(node)]
        return self._takings[node]

    def _all_taken(self, node: ast.Call) -> Iterator[_Taken]:
        call = self.program.call(node)
        for callee in call.callees if call is not None else ():
            for index, _, bound in self.program.targets(callee, call):  # type: ignore[arg-type]
                scope = self.program.scopes[index]
                taken = scope.takes(bound)
                bindings = bind(node, taken)
                given = tuple((id(it), self._marks(value)) for it, value in bindings.given)
                spread = frozenset[object]().union(*map(self._marks, bindings.spread))
                yield _Taken(scope, given, spread, frozenset(map(id, taken.named)))

    # What writes into it

    def _written(self, scope: Scope, keys: Keys, depth: int) -> list[ast.AST]:
        key = scope.index, keys, depth
        if key not in self._found:
            self._found[key] = []  # asked for by itself, where functions call one another
            spread = self._spread(scope, keys, depth)
            texts = tuple(it for it in spread if isinstance(it, str))
            self._found[key] = [
                it.node
                for inner in self._within(scope)
                for it in self._writing_in(inner)
                if not spread.isdisjoint(it.marks)
                or (it.entries and any(text.startswith(it.entries) for text in texts))
                or (isinstance(it.node, ast.Call) and self._is_written_inside(it.node, spread, depth))
            ]
        return self._found[key]

    def _writing_in(self, scope: Scope) -> list[_Writing]:
        """The nodes of a function that may write into a tensor."""
        if scope.index not in self._writing:
            found = [
                _Writing(
                    node, frozenset[object]().union(*map(self._marks, self._changed(node))), _entries(node)
                )
                for node in self.program.body(scope)
                if isinstance(node, ast.Subscript | ast.AugAssign | ast.Call)
            ]
            self._writing[scope.index] = [
                it for it in found if it.marks or it.entries or isinstance(it.node, ast.Call)
            ]
        return self._writing[scope.index]

    def _within(self, scope: Scope) -> list[Scope]:
        """A function, and those that stand in it."""
        if scope.index not in self._withins:
            inner = (it for it in self.program.scopes if self._stands_in(it, scope))
            self._withins[scope.index] = [scope, *inner]
        return self._withins[scope.index]

    def _stands_in(self, scope: Scope, outer: Scope) -> bool:
        around = scope.parent
        while around is not None and around is not outer:
            around = around.parent
        return around is outer

    def _is_written_inside(self, node: ast.Call, keys: Keys, depth: int) -> bool:
        return any(self._written(scope, inner, depth + 1) for scope, inner in self._inside(node, keys, depth))

    def _changed(self, node: ast.AST) -> Iterator[ast.expr]:
        """What a piece of code by itself writes into."""
        match node:
            case ast.Subscript(value=held, ctx=ast.Store() | ast.Del()):
                yield held
            case ast.AugAssign(target=ast.Name() | ast.Attribute() as target):
                yield target
            case ast.Call(func=function, args=given, keywords=keywords):
                if isinstance(function, ast.Attribute):
                    if writes(function.attr) or function.attr in CHANGES - {"add"}:
                        yield function.value
                yield from (it.value for it in keywords if it.arg == "out")
                call = self.program.call(node)
                names = call.names if call is not None else frozenset[str]()
                in_place = any(it.arg == "inplace" and ast.unparse(it.value) == "True" for it in keywords)
                named = any(name.startswith("torch.") and writes(name.rpartition(".")[2]) for name in names)
                if given and (in_place or named or names & CHANGES_FIRST):
                    yield given[0]


@once
def looks_in(context: Context) -> Looks:
    """Those of one program: asked again and again, by whichever follower."""
    return Looks(context.program)


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """What is given to what: ``x, y = x.cuda(), y.cuda()``."""
    match target, value:
        case ast.Tuple(elts=names), ast.Tuple(elts=values) if len(names) == len(values):
            if not any(isinstance(it, ast.Starred) for it in (*names, *values)):
                return list(zip(names, values, strict=True))
    return [(target, value)]


def _entries(node: ast.AST) -> str:
    """How entries of what a node stores into begin, where it is not written which: ``labels[mask] = …``."""
    stores = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del)
    return f"{ast.unparse(node.value)}[" if stores and not is_written_out(node.slice) else ""  # type: ignore[attr-defined]
