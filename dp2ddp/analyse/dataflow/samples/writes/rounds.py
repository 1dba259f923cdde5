"""Loops over the samples of a batch that write into rows: whether each round has to do with its own sample alone.

``labels[i] = -1`` is the same in parts of the batch, as long as no round knows how many there were before it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dp2ddp.analyse.api.containers import CHANGES
from dp2ddp.analyse.api.iteration import NUMBERS_OR_PAIRS, RANGES
from dp2ddp.analyse.dataflow.kinds import BY_SAMPLE, PLAIN, Every, Held, Kind, Value, is_of_samples
from dp2ddp.analyse.dataflow.samples.frames import Frame
from dp2ddp.analyse.dataflow.samples.writes.looks import looks_in

if TYPE_CHECKING:
    from dp2ddp.analyse.dataflow.samples.follower import Samples

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Rounds:
    """The loops in one call of a function, by what a follower finds in it."""

    def __init__(self, samples: Samples, frame: Frame) -> None:
        self.program = samples.program
        self.looks = looks_in(samples.context)
        self._samples = samples
        self._frame = frame

    def of(self, node: ast.AST) -> Value:
        return self._samples.value(node, self._frame)

    def around(self, place: ast.AST) -> list[ast.For]:
        """The loops over samples round a place in its function."""
        found = []
        for around in self.program.ancestors(place):
            if isinstance(around, FUNCTIONS):
                break
            if isinstance(around, ast.For) and is_of_samples(
                self._samples.drawn_in(around.iter, self._frame)
            ):
                found.append(around)
        return found

    def is_number(self, node: ast.AST, loop: ast.For) -> bool:
        """Whether an expression is the number of a round's sample."""
        return (
            isinstance(node, ast.Name)
            and self.of(node) in (Kind.EACH, Kind.UNKNOWN)
            and all(
                self.is_target(it, loop) and not self.is_sample(it, loop)
                for it in self.program.definitions(node)
            )
        )

    def other(self, place: ast.AST, reads: list[ast.AST], loop: ast.For) -> ast.AST | None:
        """What decides what a place in a loop writes, or whether it does, and is not of the round's own sample."""
        return _Round(self, place, loop).other(reads)

    def is_target(self, definition: ast.AST, loop: ast.For) -> bool:
        return any(it is definition for it in ast.walk(loop.target))

    def is_sample(self, definition: ast.AST, loop: ast.For) -> bool:
        """Whether a loop gives a name a sample, and no number."""
        return self._hands_samples(loop.target, loop.iter, definition)

    def _hands_samples(self, target: ast.expr, source: ast.expr, definition: ast.AST) -> bool:
        call = self.program.call(source) if isinstance(source, ast.Call) else None
        names = call.names if call is not None else frozenset[str]()
        if names & RANGES:
            return False
        if names & NUMBERS_OR_PAIRS and isinstance(target, ast.Tuple):
            parts = source.args  # type: ignore[attr-defined]
            targets = target.elts[1:] if "builtins.enumerate" in names else target.elts
            for place, part in zip(targets, parts, strict=False):
                if any(it is definition for it in ast.walk(place)):
                    return self._hands_samples(place, part, definition)
            return False
        return self.of(source) in BY_SAMPLE


class _Round:
    """One round of a loop, in which a place writes into rows."""

    def __init__(self, rounds: Rounds, place: ast.AST, loop: ast.For) -> None:
        self.program = rounds.program
        self._rounds = rounds
        self._place = place
        self._loop = loop
        self._inside = {id(it) for it in ast.walk(loop)}
        self._asked: set[int] = set()

    def other(self, reads: list[ast.AST]) -> ast.AST | None:
        for node in ast.walk(self._loop):
            if isinstance(node, ast.Break | ast.Return | ast.Raise):
                return node
        return self._first([*reads, *self._tests()])

    def _tests(self) -> Iterator[ast.AST]:
        """The conditions and inner loops on which it depends whether the place is come to, and how often."""
        for around in self.program.ancestors(self._place):
            if id(around) in self._inside and around is not self._loop:
                yield from _asked(around)
        for node in ast.walk(self._loop):
            if isinstance(node, ast.If) and any(isinstance(it, ast.Continue) for it in ast.walk(node)):
                yield node.test

    def _first(self, nodes: Iterator[ast.AST] | list[ast.AST]) -> ast.AST | None:
        return next((it for it in map(self._other, nodes) if it is not None), None)

    def _other(self, node: ast.AST) -> ast.AST | None:
        """What in an expression is not of the round's own sample, and may be something else in another round."""
        match node:
            case ast.Subscript(value=held, slice=index) if self._is_of_all(held):
                first, *rest = index.elts if isinstance(index, ast.Tuple) else [index]
                if self._rounds.is_number(first, self._loop):
                    return self._first(rest)
                return None if self._rounds.of(held) is Kind.UNKNOWN else node
            case ast.Name(ctx=ast.Load()):
                return self._named(node)
            case ast.Attribute() if self._is_kept(node):
                return node
            case ast.Call() if self._keeps(node):
                return node
            case ast.Call(func=ast.Name()):
                return self._first([*node.args, *node.keywords])
            case ast.Lambda():
                return node
        return self._first(list(ast.iter_child_nodes(node)))

    def _is_of_all(self, held: ast.expr) -> bool:
        """Whether an expression is rows from outside of the loop."""
        names = [it for it in ast.walk(held) if isinstance(it, ast.Name)]
        own = any(id(made) in self._inside for it in names for made in self.program.definitions(it))
        return not own and self._rounds.of(held) in (*BY_SAMPLE, Kind.UNKNOWN)

    def _is_kept(self, node: ast.Attribute) -> bool:
        """Whether an attribute is given something in the loop."""
        text = ast.unparse(node)
        stored = (
            it
            for it in ast.walk(self._loop)
            if isinstance(it, ast.Attribute) and isinstance(it.ctx, ast.Store)
        )
        return any(ast.unparse(it) == text for it in stored)

    def _keeps(self, node: ast.Call) -> bool:
        """Whether a call may leave something behind for the next round: ``seen.pop()``, ``next(numbers)``."""
        call = self.program.call(node)
        if "builtins.next" in (call.names if call is not None else ()):
            return True
        if isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES - {"add"}:
            return True
        for index in self.program.entered(node):
            for it in self.program.body(self.program.scopes[index]):
                if isinstance(it, ast.Global | ast.Nonlocal):
                    return True
                if isinstance(it, ast.Attribute) and isinstance(it.ctx, ast.Store):
                    return True
        return False

    def _named(self, name: ast.Name) -> ast.AST | None:
        made = self.program.definitions(name)
        own = [it for it in made if id(it) in self._inside]
        if not own:
            if (
                next((it for it in self._rounds.looks.written(name) if id(it) in self._inside), None)
                is not None
            ):
                return name
            scope = self.program.scope(name)
            is_object = name.id in scope.params[:1] and made and not self._is_data(self._rounds.of(name))
            return None if is_object or self._rounds.of(name) in (*PLAIN, Kind.WHOLE) else name
        if len(own) < len(made) or not self._is_made_anew(own, name):
            return name  # an earlier round may have left it
        for it in own:
            if id(it) not in self._asked:
                self._asked.add(id(it))
                if (found := self._made(it, name)) is not None:
                    return found
        return None

    def _is_data(self, value: Value) -> bool:
        return value in (*BY_SAMPLE, Kind.EACH) or isinstance(value, Held | Every)

    def _made(self, definition: ast.AST, name: ast.Name) -> ast.AST | None:
        """What is not the sample's own in what gives a name its value in the round."""
        if self._rounds.is_target(definition, self._loop):
            return None if self._rounds.is_sample(definition, self._loop) else name
        tests = [
            part
            for around in self.program.ancestors(definition)
            if id(around) in self._inside and around is not self._loop
            for part in _asked(around)
        ]
        named = self.program.parent(definition)
        match self.program.statement(definition):
            case _ if isinstance(named, ast.NamedExpr):
                return self._first([named.value, *tests])
            case _ if self.program.generator_of(definition) is not None:
                return self._first([self.program.generator_of(definition).iter, *tests])  # type: ignore[union-attr]
            case ast.AugAssign(target=ast.Name() as target, value=value):
                return self._named(target) or self._first([value, *tests])
            case ast.Assign(value=value) | ast.For(iter=value) | ast.AnnAssign(value=ast.expr() as value):
                return self._first([value, *tests])
        return name

    def _is_made_anew(self, made: list[ast.AST], name: ast.Name) -> bool:
        """Whether one of some definitions comes in each round before a name is used."""
        order = self.program.order
        if any(self.program.generator_of(it) is None and order[id(it)] > order[id(name)] for it in made):
            return False
        return any(self._is_on_the_way(it, name, made) for it in made)

    def _is_on_the_way(self, definition: ast.AST, name: ast.Name, made: list[ast.AST]) -> bool:
        round_use = {id(it) for it in self.program.ancestors(name)}
        for around in self.program.ancestors(definition):
            if id(around) in round_use or around is self._loop:
                return True
            if isinstance(around, ast.If) and not all(
                _holds(block, made) for block in (around.body, around.orelse)
            ):
                return False
            if isinstance(around, ast.While | ast.Try | ast.IfExp | ast.BoolOp):
                return False
            if isinstance(around, ast.For) and not any(it is definition for it in ast.walk(around.target)):
                return False
        return False


def _asked(node: ast.AST) -> list[ast.AST]:
    """What a statement asks before it does what is in it."""
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            return [test]
        case ast.For(iter=source):
            return [source]
    return []


def _holds(block: list[ast.stmt], nodes: list[ast.AST]) -> bool:
    inside = {id(it) for statement in block for it in ast.walk(statement)}
    return any(id(it) in inside for it in nodes)
