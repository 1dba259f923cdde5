"""Which statements are to run under autocast, where every function of torch was cast before.

A training step's are those from its first forward to its loss. Elsewhere they are the calls of models and losses with
what is made of their outputs, wherever the program comes outside of a model's own methods.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from dp2ddp.analyse.api.layers import DISABLES_GRADIENTS, FUNCTIONS, MANAGES
from dp2ddp.analyse.api.precision import PRECISION_INVARIANT
from dp2ddp.analyse.context import LOOPS, Context
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.values import Bound, Cls, Ext, Func, Inst, Made, Member, Value, full_name

# The first and last statement, whose function it is, and whether casts may be kept for its other forwards.
Region = tuple[ast.stmt, ast.stmt, Scope, bool]


class Unfollowed(Exception):
    """Why something of apex's stays as it is."""


class Regions:
    """The statements of a program that are to run under autocast after ``start``.

    ``kept``: the statements of the training steps that must not: scaled losses and steps.
    """

    def __init__(self, context: Context, start: ast.stmt, kept: Sequence[ast.stmt]) -> None:
        self.context = context
        self.program: Program = context.program
        self._start = start
        self._kept = {id(it) for it in kept}
        self._covered: set[int] = set()

    def find(self, steps: Sequence[tuple[ast.stmt, ast.expr]]) -> list[Region]:
        """The first and last statement of each region; ``steps`` are the scaled losses, with their statements."""
        found = [self._step(statement, loss) for statement, loss in steps]
        return [*found, *self._elsewhere()]

    # Training steps

    def _step(self, statement: ast.stmt, loss: ast.expr) -> Region:
        """From the first forward before a scaled loss to the last statement that computes it."""
        if any(isinstance(it, ast.Call) for it in ast.walk(loss)):
            raise Unfollowed("a loss is computed where it is scaled")
        inner = statement
        while True:
            block = self.program.block(inner)
            before = block[: block.index(inner)]
            forwards = [at for at, it in enumerate(before) if self._runs_forward(it)]
            if forwards:
                break
            outer = self.program.parent(inner)
            if not isinstance(outer, ast.If | ast.With | ast.Try):
                raise Unfollowed("no forward was found before a scaled loss")
            inner = outer
        last = max(*forwards, *self._making(before, loss))
        return self._region(before[forwards[0] : last + 1])

    def _making(self, statements: Sequence[ast.stmt], loss: ast.expr) -> Iterator[int]:
        """Which statements compute what a loss is made of."""
        wanted = {it.id for it in ast.walk(loss) if isinstance(it, ast.Name)}
        yield 0
        for at in reversed(range(len(statements))):
            statement = statements[at]
            if _assigned(statement) & wanted:
                wanted |= _loaded(statement)
                if any(_computes(it) for it in ast.walk(statement)):
                    yield at

    def _runs_forward(self, statement: ast.stmt) -> bool:
        runs = self.context.runs(statement)
        return any(id(call.node) in runs and self._is_model(call) for call in self.program.calls)

    def _region(self, statements: Sequence[ast.stmt]) -> Region:
        inside = [node for it in statements for node in ast.walk(it)]
        runs = set().union(*map(self.context.runs, statements))
        if runs & self._kept or any(isinstance(it, ast.Yield | ast.YieldFrom) for it in inside):
            raise Unfollowed("forwards and steps can't be told apart")
        self._covered |= {id(node) for node in inside}
        keeps = not any(map(self._runs_without_gradients, statements))
        return statements[0], statements[-1], self.program.scope(statements[0]), keeps

    def _runs_without_gradients(self, statement: ast.stmt) -> bool:
        """Whether a forward is run without gradients: before torch 2.11, what has its casts kept gets none later."""
        nodes = (self.program.nodes.get(it) for it in self.context.runs(statement))
        blocks = [
            (it.body, [item.context_expr for item in it.items]) for it in nodes if isinstance(it, ast.With)
        ]
        entered = (self.program.scopes[it].node for it in self.program.entered(statement))
        blocks += [(it.body, it.decorator_list) for it in entered if isinstance(it, ast.FunctionDef)]
        return any(
            any(map(self._disables, managers)) and any(map(self._runs_forward, body))
            for body, managers in blocks
        )

    def _disables(self, manager: ast.expr) -> bool:
        call = self.program.call(manager) if isinstance(manager, ast.Call) else None
        return call is not None and any(it.endswith(DISABLES_GRADIENTS) for it in call.names)

    # Everything else

    def _elsewhere(self) -> Iterator[Region]:
        """The regions round forwards that no training step makes."""
        blocks: dict[int, tuple[list[ast.stmt], list[int]]] = {}
        for call in self._forwards():
            if isinstance(call.scope.node, ast.Lambda):
                raise Unfollowed("a forward is inside a lambda")
            statement = self._outermost(self.program.statement(call.node))
            block = self.program.block(statement)
            at = blocks.setdefault(id(block), (block, []))[1]
            at.append(block.index(statement))
        for block, places in blocks.values():
            for first, last in self._runs(block, sorted(set(places))):
                yield self._region(block[first : last + 1])

    def _forwards(self) -> Iterator[Call]:
        """The calls of models, losses and their functions that a program comes to outside of all these."""
        home = self.program.scope(self._start)
        waiting = [self.program.modules[path] for path in self.context.run_by(self._start)]
        seen = {scope.index for scope in waiting}
        while waiting:
            scope = waiting.pop()
            for node in self.program.body(scope):
                call = self.program.call(node) if isinstance(node, ast.Call) else None
                if call is None or id(node) in self._covered:
                    continue
                if scope is home and self.program.order[id(node)] < self.program.order[id(self._start)]:
                    continue
                if self._is_model(call) or self._is_function(call):
                    yield call
                    continue
                for index in self._entered(call) - seen:
                    seen.add(index)
                    waiting.append(self.program.scopes[index])

    def _entered(self, call: Call) -> set[int]:
        """The functions that a call enters, but for methods of models."""
        found: set[int] = set()
        for callee in call.callees:
            match callee:
                case Func():
                    found.add(callee.scope)
                case Bound() if not self.context.module_class(callee.owner):
                    found.add(callee.func.scope)
                case Cls() if not self.context.module_class(Inst(callee, id(call.node))):
                    found |= self.program.methods(Inst(callee, id(call.node)), "__init__", call.node)
        return found

    def _is_model(self, call: Call) -> bool:
        return any(map(self._computes, call.callees))

    def _computes(self, callee: Value) -> bool:
        """Whether a call of something is a forward of a model, or a part of one."""
        match callee:
            case Made() | Inst():
                return callee in self.context.wrapped or self.context.module_class(callee)
            case Member():
                of_model = callee.owner in self.context.wrapped or self.context.module_class(callee)
                return of_model and not self._manages(callee)
            case Bound():
                own = self.context.module_class(callee.owner)
                body = self.program.scopes[callee.func.scope].body
                return own and callee.owner is not None and any(map(self._has_layers, body))
        return False

    def _manages(self, callee: Value) -> bool:
        """Whether a method is none that computes, or one of what such a method hands out."""
        while isinstance(callee, Member) and callee.name not in MANAGES:
            callee = callee.owner
        return isinstance(callee, Member | Made) and full_name(callee).rpartition(".")[2] in MANAGES

    def _has_layers(self, statement: ast.stmt) -> bool:
        """Whether a statement of a model's method calls a layer, or a function of one."""
        calls = (self.program.call(it) for it in self.program.descendants(statement))
        return any(
            it is not None
            and (self._is_function(it) or any(isinstance(callee, Made | Inst) for callee in it.callees))
            for it in calls
        )

    def _is_function(self, call: Call) -> bool:
        names = {full_name(it) for it in call.callees if isinstance(it, Ext)} - PRECISION_INVARIANT
        return any(name.startswith(FUNCTIONS) for name in names)

    def _outermost(self, statement: ast.stmt) -> ast.stmt:
        """A statement, or the conditions round it in which no step is made."""
        found = statement
        while isinstance(outer := self.program.parent(statement), ast.If):
            if any(id(it) in self._kept or isinstance(it, (*LOOPS, ast.With)) for it in ast.walk(outer)):
                break
            statement, around = outer, self.program.parent(outer)
            is_elif = isinstance(around, ast.If) and around.col_offset == outer.col_offset
            found = found if is_elif else outer
        return found

    def _runs(self, block: Sequence[ast.stmt], places: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Places of a block, together where one uses what is made in those before."""
        first = last = places[0]
        for at in places[1:]:
            made = set().union(*map(_assigned, block[first:at]))
            between = [node for it in block[first:at] for node in ast.walk(it)]
            if at > last + 1 and not made & _loaded(block[at]) or any(id(it) in self._kept for it in between):
                yield first, last
                first = at
            last = at
        yield first, last


def _computes(node: ast.AST) -> bool:
    """Whether an expression does more than the four operations, which take no notice of autocast."""
    return isinstance(node, ast.Call | ast.Pow | ast.MatMult)


def _assigned(statement: ast.stmt) -> set[str]:
    return {it.id for it in ast.walk(statement) if isinstance(it, ast.Name) and isinstance(it.ctx, ast.Store)}


def _loaded(statement: ast.stmt) -> set[str]:
    return {it.id for it in ast.walk(statement) if isinstance(it, ast.Name) and isinstance(it.ctx, ast.Load)}
