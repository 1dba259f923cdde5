"""Numbers that the training loop makes of samples one by one, or of outputs that it keeps: of all samples' rows.

A confusion matrix, counts by class, a list of outputs: parts of them do not add up to those of the whole batch by any
rule that could be proven for all of them. Made of the rows of all ranks, each is what it was.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from dp2ddp.analyse.api.containers import FEEDS, FILLS_FIRST
from dp2ddp.analyse.api.naming import LOADER
from dp2ddp.analyse.api.tensors import LEAVES_TORCH, TO_HOST
from dp2ddp.analyse.context import Context, once
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.kinds import AVERAGED, DEALT, NUMBERS, PLAIN, Kind, Unclear, Value
from dp2ddp.analyse.program.calls import handed
from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.program.sources import How
from dp2ddp.analyse.program.updates import updated
from dp2ddp.analyse.program.values import Inst

SETTLED = (*PLAIN, Kind.WHOLE)
LOOPS = ast.For | ast.AsyncFor | ast.While
STEPS = 2000
"""How many expressions one question may lead to."""


@dataclass(frozen=True)
class Rows:
    """Rows to be gathered where they stand; or before a loop over samples, in which their name stands repeatedly."""

    node: ast.expr
    before: ast.For | None = None


class Values(Protocol):
    """What is known of the values of the training loop: ``whole_batch.WholeBatch``."""

    program: Program

    def of(self, node: ast.AST) -> Value: ...
    def drawn(self, source: ast.expr) -> Value: ...
    def before_index(self, node: ast.expr) -> ast.expr: ...
    def meets(self, node: ast.expr) -> bool: ...
    def is_settled(self, test: ast.expr) -> bool: ...
    def is_trained(self, node: ast.AST) -> bool: ...
    def is_written_from(self, rows: ast.expr, place: ast.AST) -> bool: ...


def candidates(
    context: Context, values: Values, nodes: list[ast.AST], reports: list[ast.Call]
) -> Iterator[ast.stmt]:
    """The statements of a training loop that make what is reported of samples, as far as they are not settled."""
    needed = _Needed(context)
    needed.statements |= {id(context.program.statement(it)) for it in reports}
    needed.follow([given for it in reports for given in handed(it)])
    loops = [it for it in nodes if isinstance(it, ast.For) and _is_over_samples(context, values, it)]
    inside = {id(part) for loop in loops for part in ast.walk(loop) if part is not loop}
    for node in nodes:
        if (
            not isinstance(node, ast.stmt)
            or id(node) in inside
            or (isinstance(node, LOOPS) and node not in loops)
        ):
            continue
        parts = ast.walk(node) if node in loops else [node]
        if any(id(it) in needed.statements for it in parts) and not _trains(context, values, node):
            if not is_settled(values, node):
                yield node


def _trains(context: Context, values: Values, statement: ast.stmt) -> bool:
    """Whether a statement is a part of the training itself, or what it calls is."""
    if not context.runs(statement).isdisjoint(_steps(context)):
        return True
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and values.is_trained(node):
            return True
        if isinstance(node, ast.Call):
            fed = isinstance(node.func, ast.Attribute) and values.is_trained(node.func.value)
            if fed and node.func.attr in FEEDS:  # type: ignore[attr-defined]
                return True
    return False


@once
def _steps(context: Context) -> frozenset[int]:
    """The backward passes, and the forwards of wrapped models."""
    forwards = (it.node for it in context.program.calls if context.is_wrapped(it.callees))
    return frozenset(id(it) for it in (*context.backwards, *forwards))


def rows(context: Context, values: Values, statement: ast.stmt) -> list[Rows]:
    """What of a statement is to be gathered; none where that does not help, or can't be done there."""
    found = list(_rows_of(context, values, statement))
    once = [it for it in found if it.before is None]
    fine = all(values.meets(it.node) for it in once) and all(
        values.meets(it.before.iter if isinstance(it.before, ast.For) else it.node)
        for it in found
        if it.before is not None
    )
    fine = fine and not any(values.is_written_from(it.node, it.before or statement) for it in found)
    return found if fine else []


def is_settled(values: Values, statement: ast.stmt) -> bool:
    """Whether what a statement keeps is the same on all ranks."""
    match statement:
        case ast.For() if _stores_by_sample(values, statement):
            return True
        case ast.For():
            if not _is_made_of(values.drawn(statement.iter), (*SETTLED, Kind.UNKNOWN)):
                return False
            return all(
                is_settled(values, it)
                for it in ast.walk(statement)
                if isinstance(it, ast.stmt) and it is not statement
            )
        case ast.If() | ast.While():
            return values.is_settled(statement.test)
        case ast.Assign(targets=[ast.Name() | ast.Tuple()], value=value):
            # Rows may meet those of the local batch under their name, and sums may be combined later.
            return not (_is_number(value) and isinstance(values.of(value), Unclear))
        case ast.Assign() | ast.AugAssign() | ast.AnnAssign():
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if all(_is_of_samples(values, it) for it in targets):
                return True  # what is made of the samples then says `values`
            places = [part for it in targets for part in indices(it)]
            given = [] if statement.value is None else [statement.value]
            return all(_is_settled(values, it) for it in (*given, *places))
        case ast.Expr(value=ast.Call() as call):
            return all(_is_settled(values, it) for it in _taken(values, call))
    return True


def _stores_by_sample(values: Values, loop: ast.For) -> bool:
    """Whether all that a loop does is to store something into rows, whose values say whether that is by sample."""
    inside = {id(it) for it in ast.walk(loop)}
    stored = False
    for node in ast.walk(loop):
        match node:
            case ast.For() | ast.If() | ast.Pass() | ast.Continue():
                pass
            case ast.Assign(targets=[ast.Name() as name]):
                scope = values.program.scope(loop)
                for use in values.program.body(scope):
                    if isinstance(use, ast.Name) and use.id == name.id and id(use) not in inside:
                        if name in values.program.definitions(use):
                            return False
            case ast.Assign() | ast.AugAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if not all(_is_of_samples(values, it) for it in targets):
                    return False
                stored = True
            case ast.stmt():
                return False
    return stored


def _is_of_samples(values: Values, target: ast.expr) -> bool:
    """Whether something is stored into rows, or into one of them."""
    if not isinstance(target, ast.Subscript):
        return False
    if isinstance(target.value, ast.Name):  # what it was made as, before anything was stored
        program = values.program
        made = [program.source(it) for it in program.definitions(target.value)]
        begun = [it.written for it in made if it.how is How.ASSIGNED]
        if any(value is not None and not left and values.of(value) in PLAIN for value, left in begun):
            return False
    return kinds.tensor(values.of(target.value), target) in (*kinds.BY_SAMPLE, Kind.EACH)


def _fills_first(program: Program, call: ast.Call) -> bool:
    """Whether a call only writes into what it is given first: ``numpy.add.at(counts, labels, 1)``."""
    found = program.call(call)
    return found is not None and bool(found.names & FILLS_FIRST)


def _taken(values: Values, call: ast.Call) -> list[ast.expr]:
    """What a call is given to read."""
    given = handed(call)
    return given[1:] if _fills_first(values.program, call) else given


def _is_number(node: ast.expr) -> bool:
    """Whether an expression leaves torch as a number: ``torch.bincount(labels).max().item()``."""
    match node:
        case ast.Call(func=ast.Attribute(attr="item")) | ast.Call(func=ast.Name(id="float" | "int")):
            return True
    return False


def _is_settled(values: Values, node: ast.expr) -> bool:
    match node:
        case ast.JoinedStr():
            return all(
                _is_settled(values, it.value) for it in node.values if isinstance(it, ast.FormattedValue)
            )
        case ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod(), right=ast.Tuple(elts=parts)):
            return all(_is_settled(values, it) for it in parts)
        case ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod(), right=part):
            return _is_settled(values, part)
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return all(_is_settled(values, it) for it in parts)
    return kinds.tensor(values.of(node), node) in SETTLED


def _is_made_of(value: Value, kinds_: tuple[Kind, ...]) -> bool:
    """Whether a value, or each of its entries, is of some kinds: what ``zip`` and ``enumerate`` hand out."""
    entries = getattr(value, "entries", None)
    return value in kinds_ or (bool(entries) and all(_is_made_of(it, kinds_) for _, it in entries))


def indices(target: ast.expr) -> Iterator[ast.expr]:
    """``label`` and ``0`` of ``counts[label][0]``, the bounds of ``rows[at : at + len(y)]``."""
    while isinstance(target, ast.Subscript):
        for part in target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]:
            bounds = (part.lower, part.upper, part.step) if isinstance(part, ast.Slice) else (part,)
            yield from (it for it in bounds if it is not None)
        target = target.value


def _is_over_samples(context: Context, values: Values, loop: ast.For) -> bool:
    """Whether a loop takes the samples of a batch one by one: no loop over batches, or over numbers of a part."""
    if context.made(context.iterated(context.program.values(loop.iter)), LOADER):
        return False
    return not _is_made_of(values.drawn(loop.iter), (*SETTLED, *NUMBERS, Kind.HANDED))


def _rows_of(context: Context, values: Values, statement: ast.stmt) -> Iterator[Rows]:
    match statement:
        case ast.For():
            named = [it for part in statement.body for it in _names(context, values, part, statement)]
            texts = {ast.unparse(it) for it in named}
            for it in _within(values, statement.iter):
                asked = [
                    name for name in ast.walk(it.node) if isinstance(name, ast.Name) and name.id in texts
                ]
                counted = asked and values.of(it.node) is Kind.COUNT  # `len(labels)` of those that get a name
                yield from (Rows(name, statement) for name in asked) if counted else [it]
            yield from (Rows(it, statement) for it in named)
        case ast.Expr(value=ast.Call() as call):
            for given in _taken(values, call):
                yield from _within(values, given)
        case ast.Assign(value=value) | ast.AugAssign(value=value):
            yield from _within(values, value)
            for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                for part in indices(target):
                    yield from _within(values, part)


def _within(values: Values, node: ast.expr) -> Iterator[Rows]:
    """The largest tensors of rows in an expression that is evaluated once."""
    value = values.of(node)
    match node:
        case ast.Call(func=ast.Attribute(value=inner, attr=method)) if method in LEAVES_TORCH | TO_HOST:
            yield from _within(values, inner)
        case _ if kinds.tensor(value, node) in SETTLED:
            return
        case _ if value in DEALT:
            yield Rows(values.before_index(node))
        case _ if value in (*AVERAGED, Kind.COUNT, Kind.TOTAL):
            yield Rows(node)
        case ast.Name():
            for part in _listed(values, node):
                yield from _within(values, part)
        case ast.Lambda() | ast.Starred():
            return
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            yield from _within(values, node.generators[0].iter)
        case ast.Call():
            owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            for part in (*owner, *handed(node)):
                yield from _within(values, part)
        case _:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    yield from _within(values, child)


def _listed(values: Values, name: ast.Name) -> list[ast.expr]:
    """The entries of a list or tuple that a name has been given to be used here and nowhere else."""
    program = values.program
    definitions = program.definitions(name)
    made = program.source(definitions[0]) if len(definitions) == 1 else None
    if made is None or not isinstance(made.plain, ast.List | ast.Tuple):
        return []
    named = (it for it in program.body(program.scope(name)) if isinstance(it, ast.Name) and it.id == name.id)
    uses = [it for it in named if isinstance(it.ctx, ast.Load) and definitions[0] in program.definitions(it)]
    return made.plain.elts if uses == [name] else []


def _names(context: Context, values: Values, part: ast.AST, loop: ast.For) -> Iterator[ast.expr]:
    """The names of rows that stand in a loop over samples, and are given their value before it."""
    inside = {id(it) for it in ast.walk(loop)}
    for node in ast.walk(part):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and values.of(node) in DEALT:
            if not any(id(it) in inside for it in context.program.definitions(node)):
                yield node


class _Needed:
    """What a reported number is made of, followed back to the statements that make it."""

    def __init__(self, context: Context) -> None:
        self.program = context.program
        forwards = (it.node for it in self.program.calls if context.is_wrapped(it.callees))
        scopes = (self.program.scope(it) for it in (*context.backwards, *forwards))
        self._is_wrapped = context.is_wrapped
        self._trainers = {it.owner for it in scopes} - {None}
        self.statements: set[int] = set()
        self._seen: set[int] = set()
        self._steps = STEPS
        self._kept: dict[int, dict[str, list[tuple[ast.stmt, list[ast.expr]]]]] = {}
        self._inner: dict[int, list[int]] = {}
        """The functions and classes that stand in each scope."""
        for scope in self.program.scopes:
            if scope.parent is not None:
                self._inner.setdefault(scope.parent.index, []).append(scope.index)

    def follow(self, reported: list[ast.expr]) -> None:
        waiting: list[ast.AST] = list(reported)
        while waiting and self._steps > 0:
            node = waiting.pop()
            if id(node) in self._seen:
                continue
            self._seen.add(id(node))
            self._steps -= 1
            parts: list[ast.AST] = [node]
            while parts:
                part = parts.pop()
                # What a model is fed with is no number of its outputs.
                if not (isinstance(part, ast.Call) and self._is_wrapped(self.program.values(part.func))):
                    parts += ast.iter_child_nodes(part)
                if isinstance(part, ast.Name | ast.Attribute):
                    waiting += self._made_of(part)
                elif isinstance(part, ast.Call):
                    waiting += self._returned(part)

    def _made_of(self, name: ast.Name | ast.Attribute) -> Iterator[ast.AST]:
        text = ast.unparse(name)
        scopes = {self.program.scope(name).index}
        for definition in self.program.definitions(name):
            if isinstance(definition, ast.arg):
                yield from self._given(definition)
                continue
            statement = self.program.statement(definition)
            scopes.add(self.program.scope(definition).index)
            yield from self._enter(statement)
        scopes = scopes.union(*(self._inner.get(it, ()) for it in scopes))
        everywhere = isinstance(name, ast.Attribute)  # other methods may put something into it
        for index in self._storing.get(text, ()) if everywhere else scopes:
            for statement, given in self._stores(index).get(text, ()):
                self.statements.add(id(statement))
                if self._is_from_outside(text, index):
                    self._enter_calls(index)
                yield from given

    def _given(self, parameter: ast.arg) -> Iterator[ast.expr]:
        """What a parameter is given; an object of the project's may keep it: ``writer.add("loss", loss)``."""
        for given in self.program.given(parameter):
            call = self.program.parent(given)
            call = self.program.parent(call) if isinstance(call, ast.keyword) else call
            statement = self.program.parent(call) if isinstance(call, ast.Call) else None
            if isinstance(statement, ast.Expr) and isinstance(call.func, ast.Attribute):  # type: ignore[union-attr]
                if self._is_object(call.func.value):  # type: ignore[union-attr]
                    self.statements.add(id(statement))
            yield given

    def _is_from_outside(self, text: str, index: int) -> bool:
        """Whether what a function calls so is not its own, but that of the function or module that it stands in."""
        name, scope = text.partition(".")[0], self.program.scopes[index]
        bound = scope.names - scope.globals - scope.nonlocals
        return scope.owner is None and not scope.is_module and name not in bound

    def _enter_calls(self, index: int) -> None:
        """What a function that keeps numbers outside of itself is given is kept, too."""
        for call, _ in self.program.callers.get(index, ()):
            statement = self.program.statement(call.node)
            if isinstance(statement, ast.Expr) and statement.value is call.node:
                self.statements.add(id(statement))

    def _enter(self, statement: ast.stmt) -> Iterator[ast.AST]:
        self.statements.add(id(statement))
        if isinstance(statement, ast.For):
            yield statement.iter
        elif isinstance(value := getattr(statement, "value", None), ast.expr):
            yield value

    def _returned(self, call: ast.Call) -> Iterator[ast.AST]:
        for index in self.program.called_scopes(call):
            for node in self.program.body(self.program.scopes[index]):
                if isinstance(node, ast.Return) and node.value is not None:
                    yield node.value

    def _stores(self, index: int) -> dict[str, list[tuple[ast.stmt, list[ast.expr]]]]:
        """Where a function puts something into a collection, or adds to a number, by its name."""
        if index not in self._kept:
            found: dict[str, list[tuple[ast.stmt, list[ast.expr]]]] = {}
            for node in self.program.body(self.program.scopes[index]):
                match node:
                    case ast.Call(func=ast.Attribute(value=holder, attr=method)) if method in FEEDS:
                        given = handed(node)
                    case ast.Subscript(ctx=ast.Store(), value=holder):
                        value = getattr(self.program.statement(node), "value", None)
                        given = [node.slice, *([value] if value is not None else [])]
                    case ast.Expr(value=ast.Call(args=[holder, *given]) as call) if _fills_first(
                        self.program, call
                    ):
                        given = [*given, *(it.value for it in call.keywords)]
                    case ast.Expr(value=ast.Call(func=ast.Name() | ast.Attribute() as holder) as call):
                        if not self._is_object(holder):
                            if not isinstance(holder, ast.Attribute) or not self._is_object(holder.value):
                                continue
                            holder = holder.value
                        given = handed(call)
                    case _ if (update := updated(node)) is not None:
                        holder, given = update.target, [update.value]
                    case _:
                        continue
                while isinstance(holder, ast.Subscript):
                    holder = holder.value
                found.setdefault(ast.unparse(holder), []).append((self.program.statement(node), given))
            self._kept[index] = found
        return self._kept[index]

    @cached_property
    def _storing(self) -> dict[str, list[int]]:
        """The functions that do so, by the name."""
        found: dict[str, list[int]] = {}
        for index in range(len(self.program.scopes)):
            for text in self._stores(index):
                found.setdefault(text, []).append(index)
        return found

    def _is_object(self, node: ast.expr) -> bool:
        """Whether an expression is an object of the project's that may keep what it is given, and does not train."""
        objects = [it for it in self.program.values(node) if isinstance(it, Inst)]
        return bool(objects) and not any(map(self._trains, objects))

    def _trains(self, value: Inst) -> bool:
        """Whether an object has the training in its methods, or the model in its attributes."""
        held = (values for _, values in self.program.fields(value))
        return bool(self._trainers & set(self.program.bases(value.cls))) or any(map(self._is_wrapped, held))
