"""Losses that are no mean over the samples of the batch, made those of the whole batch.

Sums, and means that count some samples more than others, need a factor. Any function of rows is the same where the rows
of all processes are gathered before. So a loss that can't be shown to be a mean over the samples can still be trained
with in parts, if it is one call in the training loop that is given nothing but rows, and numbers that every process
has alike.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set

from dp2ddp.analyse.api.losses import LOSS_CLASSES
from dp2ddp.analyse.api.tensors import OF_LISTS
from dp2ddp.analyse.context import Context, once
from dp2ddp.analyse.dataflow import kinds, losses
from dp2ddp.analyse.dataflow.definitions import right_sides
from dp2ddp.analyse.dataflow.forwards import Forwards
from dp2ddp.analyse.dataflow.kinds import AVERAGED, DEALT, PLAIN, Every, Held, Kind, Unclear, Value
from dp2ddp.analyse.dataflow.samples.frames import OPEN, Frame
from dp2ddp.analyse.dataflow.samples.functions import call_in
from dp2ddp.analyse.dataflow.samples.writes.looks import looks_in
from dp2ddp.analyse.dataflow.samples.writes.stores import kept_of_samples
from dp2ddp.analyse.processes import alike
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.values import Bound, Func, Inst, Made
from dp2ddp.analyse.training.loops import BatchLoop

ROWS = (*DEALT, Kind.PICKED)
ADDITIVE = (Kind.TOTAL, Kind.COUNT)


class Gathering(Forwards):
    """Follows the values of one loss, scaled or computed from the rows of all processes where that helps."""

    def __init__(self, context: Context, loops: list[BatchLoop]) -> None:
        super().__init__(context)
        self.gathered: dict[int, tuple[ast.Call, list[ast.expr], str]] = {}
        """The calls that are given rows to be gathered, these, and why."""
        self.scaled: dict[int, tuple[ast.Call, ast.expr | None]] = {}
        """The calls whose numbers need a factor; the labels that it is made of, where it is a weighted mean's."""
        self.asked: dict[int, ast.expr] = {}
        """What conditions round these calls ask of a part, and are to ask of the whole batch: sums and counts."""
        self._loops = loops
        self._rounds = frozenset(id(loop.node) for loop in loops)
        self._feeding = feeding(context)
        self._homes: dict[int, bool] = {}

    def call(self, node: ast.Call, frame: Frame) -> Value:
        value = super().call(node, frame)
        if isinstance(value, Unclear) and not value.refuted and self._is_made_before(node):
            return Kind.SAME
        call = call_in(self, node, frame)
        if call is None or not self._needs_all(call, value) or not self._is_at_home(node):
            return value
        if id(node) in self._feeding:
            return value  # given the rows of all, each rank's model would compute the whole batch
        self.refuel()  # these are questions of their own
        if not self._is_alike(node, frame):
            return value
        labels = self._weighing(call, frame)
        if value is Kind.TOTAL or labels is not None:
            self.scaled[id(node)] = node, labels
            self.asked |= {id(part): part for part in self._asked(node)}
            return Kind.WHOLE
        rows = self._rows(call, frame)
        if losses.is_loss(self.context, call) and losses.is_of_pairs(call):
            if [self.value(it, frame) for it in (losses.tensors(call) or ())[1:2]] == [Kind.SAME]:
                return value  # which of the labels are whose is not known
        if not rows or not self._is_function(call) or any(self.is_written_from(it, node) for it in rows):
            return value
        meetings = list(self._meetings(node, frame))
        if None in meetings:
            return value
        for whole, given in [(node, rows), *filter(None, meetings)]:
            self.gathered[id(whole)] = whole, given, _why(value)
            self.asked |= {id(part): part for part in self._asked(whole)}
        return Kind.WHOLE

    def _is_made_before(self, node: ast.Call) -> bool:
        """Whether a tensor is made before the training, and of no loader's batches: class weights, anchors."""
        call = self.program.call(node)
        if call is None or not call.names or not call.names <= OF_LISTS:
            return False
        runs = self.context.runs(node)
        return not any(id(node) in loop.runs or id(loop.node) in runs for loop in self._loops)

    def _needs_all(self, call: Call, value: Value) -> bool:
        """Whether a call is a loss whose parts do not average to that of the whole batch."""
        if losses.is_any_loss(self.context, call):
            return isinstance(value, Unclear) or value is Kind.TOTAL
        own = call.callees and all(
            isinstance(callee, Func | Bound | Inst)
            or (isinstance(callee, Made) and callee.name in (*LOSS_CLASSES, "functools.partial"))
            for callee in call.callees
        )
        return bool(own) and (_is_unclear(value) or value is Kind.TOTAL)

    def _weighing(self, call: Call, frame: Frame) -> ast.expr | None:
        """The labels by which a criterion's mean counts some samples more than others, where they have a name."""
        output, target = call.argument("input", 0), call.argument("target", 1)
        if output is None or target is None or not losses.is_weighted(self.context, call):
            return None
        given = [kinds.tensor(self.value(it, frame), it) for it in (output, target)]
        match target:
            case ast.Call(func=ast.Attribute(attr="cuda", value=moved)):
                target = moved  # they count the same where they were
        names = _is_name(call.node.func) and _is_name(target)
        return target if names and all(value in DEALT for value in given) else None

    def is_written_from(self, rows: ast.expr, place: ast.AST) -> bool:
        """Whether rows may be written into at a place or after it: a copy of them, of all ranks', would not be."""
        return looks_in(self.context).is_written_from(rows, place, self._rounds)

    def _is_function(self, call: Call) -> bool:
        """Whether a function of the project computes its result from what it is given, and in every process alike."""
        entered = self.program.entered(call.node)
        given = (it for part in handed(call.node) for it in self.program.values(part))
        functions = entered | {it.scope for it in given if isinstance(it, Func)}
        for index in functions:
            scope = self.program.scopes[index]
            for node in self.program.body(scope):
                if isinstance(node, ast.Name) and self._is_part_outside(node, functions):
                    return False
                if isinstance(node, ast.Call):
                    if hasattr(node, "own_batch"):
                        return False
                    inner = self.program.call(node)
                    if inner is None or alike.works(self.context, node):
                        return False
                elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    own = ast.unparse(node.value) in scope.params[:1]
                    if own and self._is_of_the_batch(node, call, entered):
                        return False
                elif isinstance(node, ast.Attribute) and self._is_read_outside(node, entered):
                    return False
                elif isinstance(node, ast.Global | ast.Nonlocal):
                    return False
        return True

    def _is_part_outside(self, name: ast.Name, functions: Set[int]) -> bool:
        """Whether a function reads, by a name of a function or module round it, what is of a part of the batch."""
        if not isinstance(name.ctx, ast.Load):
            return False
        made = self.program.definitions(name)
        if not made or any(self.program.scope(it).index in functions for it in made):
            return False
        value = kinds.tensor(self.value(name, OPEN), name)
        return isinstance(value, Kind) and value not in (*PLAIN, Kind.WHOLE, Kind.UNKNOWN)

    def _is_of_the_batch(self, node: ast.Attribute, call: Call, entered: Set[int]) -> bool:
        """Whether an attribute of an object may be given something of a part of the batch, in the loop over batches.

        ``entered``: the functions that run with all ranks' rows when ``call`` does. What these leave there is alike on
        all ranks, if nothing else runs them.
        """
        if kept_of_samples(self, node, entered) is not None:
            return True
        made = [it for it in self.program.definitions(node) if not self._is_run_by(it, call.node)]
        inside = any(id(it) in loop.runs for it in made for loop in self._loops)
        return inside and kinds.tensor(self.value(node, OPEN), node) not in PLAIN

    def _is_run_by(self, place: ast.AST, call: ast.Call) -> bool:
        """Whether nothing but a call runs the function that a place stands in."""
        waiting, seen = [place], set[int]()
        while waiting:
            index = self.program.scope(waiting.pop()).index
            callers = self.context.callers.get(index, [])
            if index not in seen and not callers:
                return False
            waiting += (it for it in callers if it is not call and index not in seen)
            seen.add(index)
        return True

    def _is_read_outside(self, node: ast.Attribute, entered: Set[int]) -> bool:
        """Whether others read rows, or sums, that a function leaves in an attribute: to them they are a part's."""
        others = _reads(self.context).get(node.attr, []) if isinstance(node.ctx, ast.Store) else []
        others = [it for it in others if self.program.scope(it).index not in entered]
        value = kinds.tensor(self.value(node, OPEN), node) if others else Kind.SAME
        if isinstance(value, Unclear) or value in (*PLAIN, *AVERAGED, Kind.WHOLE, Kind.UNKNOWN):
            return False
        owners = self.program.values(node.value)
        return any(owners & self.program.values(it.value) for it in others)

    def _rows(self, call: Call, frame: Frame) -> list[ast.expr]:
        """The rows that a call is given; none where it is given something else that differs between parts."""
        rows = []
        places = call.node.args
        starred = next((place for place, it in enumerate(places) if isinstance(it, ast.Starred)), len(places))
        for given in handed(call.node):
            spread = isinstance(given, ast.Starred)
            value = self.value(given.value if spread else given, frame)  # type: ignore[attr-defined]
            leaf = kinds.tensor(value, given)
            if leaf in ROWS:
                if given in places[starred + 1 :]:
                    return []  # at which position it is given can't be told
                rows.append(given)
            elif leaf not in (*PLAIN, Kind.WHOLE) and not (
                isinstance(value, Held | Every) and leaf is Kind.UNKNOWN
            ):
                return []
        if isinstance(call.node.func, ast.Attribute) and self.value(call.node.func.value, frame) in ROWS:
            return []
        return rows

    def _meetings(self, node: ast.Call, frame: Frame) -> Iterator[tuple[ast.Call, list[ast.expr]] | None]:
        """Where something else that a call returns, of the whole batch, meets rows of this process's part.

        Those that are calls of functions which can be given the rows of all, too, with these rows; None for others.
        """
        statement = self.program.parent(node)
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        for name in target.elts if isinstance(target, ast.Tuple) else ():
            for use in self.program.body(self.program.scope(node)):
                if isinstance(use, ast.Name) and name in self.program.definitions(use):
                    rows = [it for it in self._beside(use) if self.value(it, frame) in DEALT]
                    if rows:
                        yield self._joined_by(use, rows, frame)

    def _joined_by(
        self, use: ast.Name, rows: list[ast.expr], frame: Frame
    ) -> tuple[ast.Call, list[ast.expr]] | None:
        """The call of a function of the project that rows are given beside a name, if it may be given those of all."""
        parent = self.program.parent(rows[0])
        call = self.program.call(parent) if isinstance(parent, ast.Call) else None
        if call is None or not self.program.entered(call.node) or not self._is_at_home(call.node):
            return None
        given = handed(call.node)
        rest = [it for it in given if it not in rows and not any(inner is use for inner in ast.walk(it))]
        fine = all(it in given for it in rows) and all(self.value(it, frame) in PLAIN for it in rest)
        alike_ = self._is_alike(call.node, frame) and self._is_function(call)
        fine = fine and not any(self.is_written_from(it, call.node) for it in rows)
        return (call.node, rows) if fine and alike_ else None

    def _beside(self, use: ast.AST) -> Iterator[ast.expr]:
        """What is given to a call, or computed with, together with a name."""
        inside = use
        for around in self.program.ancestors(use):
            if isinstance(around, ast.stmt):
                return
            if isinstance(around, ast.Call | ast.BinOp | ast.Compare) and not self.only_shows(around):
                parts = handed(around) if isinstance(around, ast.Call) else None
                parts = parts or [it for it in ast.iter_child_nodes(around) if isinstance(it, ast.expr)]
                yield from (it for it in parts if it is not inside)
            inside = around

    def only_shows(self, node: ast.expr) -> bool:
        """Whether what a call is given stands there side by side, and nothing is computed of it."""
        return False

    def _is_at_home(self, node: ast.Call) -> bool:
        """Whether a call stands in the training alone: beside the model's forward or the backward pass."""
        scope = self.program.scope(node)
        if scope.index not in self._homes:
            self._homes[scope.index] = any(
                isinstance(other, ast.Call)
                and (
                    other in self.context.backwards
                    or self.context.is_wrapped(self.program.values(other.func))
                )
                for other in self.program.body(scope)
            )
        if not self._homes[scope.index]:
            return False
        runs = [(loop.trains, id(node) in loop.runs) for loop in self._loops]
        return (True, True) in runs and (False, True) not in runs

    def _is_alike(self, node: ast.Call, frame: Frame) -> bool:
        """Whether every process comes to a place, whatever its part of the batch is."""
        inside: ast.AST = node
        for around in self.program.ancestors(node):
            if isinstance(around, ast.If | ast.IfExp | ast.While) and inside is not around.test:
                if not self._is_settled(around.test, frame) or self.is_drawn(around.test):
                    return False
            if isinstance(around, ast.BoolOp):
                before = around.values[: around.values.index(inside)]  # type: ignore[arg-type]
                if not all(self._is_settled(it, frame) and not self.is_drawn(it) for it in before):
                    return False
            if isinstance(around, ast.Lambda | ast.Try | ast.ExceptHandler):
                return False
            if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
                break
            inside = around
        return True

    def _is_settled(self, test: ast.expr, frame: Frame) -> bool:
        """Whether a condition has the same answer in every process, or can be asked of the whole batch."""
        return self.value(test, frame) in PLAIN or all(
            self.value(part, frame) in (*PLAIN, Kind.WHOLE) or self.value(part, OPEN) in ADDITIVE
            for part in self.compared_in(test, frame)
        )

    def compared_in(self, test: ast.expr, frame: Frame) -> list[ast.expr]:
        """What a condition asks for, without collections that are only asked for a name: ``"loss" in outputs``."""
        return [
            it
            for it in compared(test)
            if not (
                _is_asked_for_name(it, self.program.parent(it))
                and isinstance(self.value(it, frame), Held | Every)
            )
        ]

    def _asked(self, node: ast.AST) -> Iterator[ast.expr]:
        """The sums over a part of the batch that the conditions round a place ask for."""
        for around in self.program.ancestors(node):
            if isinstance(around, ast.If | ast.IfExp | ast.While):
                yield from (it for it in compared(around.test) if self.value(it, OPEN) in ADDITIVE)
            if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
                break

    def is_drawn(self, test: ast.expr) -> bool:
        """Whether random numbers answer a condition."""
        return any(
            alike.draws(call)
            for inner in ast.walk(test)
            for source in (inner, *self._given_parts(inner))
            if (call := self.program.call(source)) is not None
        )

    def _given_parts(self, node: ast.AST) -> list[ast.AST]:
        """All parts of what a name may be given."""
        held = [
            self.program.statement(it) for it in self.program.definitions(node) if not isinstance(it, ast.arg)
        ]
        given = [
            part
            for statement in held
            for part in ast.iter_child_nodes(statement)
            if not isinstance(part, ast.stmt | ast.ExceptHandler)
        ]
        return [inner for part in given for inner in ast.walk(part)]


@once
def _reads(context: Context) -> dict[str, list[ast.Attribute]]:
    """Where attributes are read that may have been set before, by their names."""
    found: dict[str, list[ast.Attribute]] = {}
    for node in context.program.nodes.values():
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            if getattr(context.program.scope(node).node, "name", "") != "__init__":
                found.setdefault(node.attr, []).append(node)
    return found


@once
def feeding(context: Context) -> frozenset[int]:
    """The expressions that a wrapped model is fed with, and all that they are made of, what is stored included."""
    program = context.program
    wrapped = (call.node for call in program.calls if context.is_wrapped(program.values(call.node.func)))
    waiting: list[ast.AST] = [given for call in wrapped for given in handed(call)]
    found: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) in found:
            continue
        found.add(id(node))
        waiting += ast.iter_child_nodes(node)
        if not isinstance(node, ast.Name | ast.Attribute):
            continue
        for made in program.definitions(node):
            if isinstance(made, ast.arg):
                waiting += program.given(made)
            else:
                waiting += right_sides(program.statement(made), made)
        waiting += _stored_into(context, node)
    return frozenset(found)


def _stored_into(context: Context, name: ast.Name | ast.Attribute) -> Iterator[ast.expr]:
    """What the function that uses a name stores into what has it: ``x[…] = …``."""
    program, text = context.program, ast.unparse(name)
    for node in program.body(program.scope(name)):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            if ast.unparse(node.value) == text:
                yield node
                yield from right_sides(program.statement(node), node)


def _why(value: Value) -> str:
    """What is said of a loss that is computed from the rows of all processes."""
    if isinstance(value, Unclear) and value.problem is not None:
        return value.problem.message
    mixes = isinstance(value, Unclear) and value.refuted
    whole = "this loss mixes samples of the global batch"
    return whole if mixes else "this loss may not be a mean over samples"


def _is_name(node: ast.expr) -> bool:
    """Whether an expression only names something: ``labels``, ``self.criterion``, ``batch["labels"]``."""
    match node:
        case ast.Attribute(value=value) | ast.Subscript(value=value, slice=ast.Constant()):
            return _is_name(value)
    return isinstance(node, ast.Name)


def _is_unclear(value: Value) -> bool:
    """Whether a value, or something that it holds, may look at several samples at once."""
    match value:
        case Held():
            return any(_is_unclear(entry) for _, entry in value.entries)
        case Every():
            return _is_unclear(value.element)
    return isinstance(value, Unclear)


def _is_asked_for_name(node: ast.expr, test: ast.AST | None) -> bool:
    """Whether a comparison asks whether something has a name."""
    match test:
        case ast.Compare(left=ast.Constant(value=str()), ops=[ast.In() | ast.NotIn()], comparators=[held]):
            return held is node
    return False


def compared(test: ast.expr) -> Iterator[ast.expr]:
    """What a condition asks for."""
    match test:
        case ast.Compare(left=left, comparators=others):
            yield from (left, *others)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from compared(operand)
        case _:
            yield test
