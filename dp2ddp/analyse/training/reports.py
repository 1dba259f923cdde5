"""Numbers of the training loop that are reported, made those of the whole batch.

Each process has a part of every batch: what it measures there is its own. Any function of numbers of the whole batch is
again one, so it is enough to combine them where they are made: a mean where it leaves the graph, a sum or a count where
it is added up or reported, rows where a function makes a number of them. What is built on that - averages, meters,
returned values, decisions - is then the whole batch's too.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from dp2ddp.analyse.api.containers import FEEDS
from dp2ddp.analyse.api.iteration import RANGES
from dp2ddp.analyse.api.naming import LOADER
from dp2ddp.analyse.api.numbers import CASTS_NUMBER
from dp2ddp.analyse.api.parallel import is_runtime
from dp2ddp.analyse.api.purity import ARRAYS_AND_BUILTINS, KEEPS_NOTHING
from dp2ddp.analyse.api.tensors import (
    LEAVES_TORCH,
    OF_ALL_ROWS,
    ONE_WITHOUT_GRAPH,
    STATISTICS,
    TO_HOST,
    WITHOUT_GRAPH,
)
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.dataflow import kinds, losses
from dp2ddp.analyse.dataflow.kinds import AVERAGED, DEALT, NUMBERS, PLAIN, Kind, Unclear, Value
from dp2ddp.analyse.dataflow.samples import OPEN, Frame, Samples, right_side
from dp2ddp.analyse.processes.conditions import assigned
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.sources import How
from dp2ddp.analyse.program.updates import Update, updated
from dp2ddp.analyse.training import kept
from dp2ddp.analyse.training.gathering import ADDITIVE, Gathering, compared
from dp2ddp.analyse.training.loops import BatchLoop, drawn, is_of_round, training_loaders
from dp2ddp.analyse.training.metrics import Reporters, deciding, given_to
from dp2ddp.analyse.wrapping import functional
from dp2ddp.facts import SHARDED_ONLY, Effect, Number, Obstacle

UNWEIGHED = (Kind.EITHER, Kind.EVEN)
"""Means of which it is not known how those of parts weigh."""
STEPS = 2000
"""How many expressions one question may lead to."""


@dataclass(frozen=True)
class Combined:
    """An expression that is of this process's part, and how it becomes the whole batch's.

    ``average`` says of a mean how those of parts average to it, as that of ``Loss`` does; ``size`` of a sum that it is
    the number of samples in the batch, ``in_loop`` that it is made anew of each
    batch. ``before``: the loop over samples before which rows get a name for it. ``inner``: what a mean is of.
    """

    kind: str
    node: ast.expr
    call: ast.Call | None = None
    average: str = ""
    size: bool = False
    in_loop: bool = False
    before: ast.For | None = None
    inner: ast.expr | None = None


@dataclass(frozen=True)
class Totals:
    """Sums that a loop over batches adds up for what comes after it, and what it adds to them."""

    loop: ast.For
    names: tuple[str, ...]
    added: tuple[ast.expr, ...]


@dataclass(frozen=True)
class Reports:
    """What is to be combined.

    ``whole``: what is the whole batch's then. ``is_whole`` says of an expression whether it is, or has nothing to do
    with the samples, ``is_settled`` of a condition whether all processes answer it alike, ``values`` what others are.
    ``unmet``: what is kept elsewhere of a part, by objects that are not followed.
    """

    combined: tuple[Combined, ...]
    totals: tuple[Totals, ...]
    whole: frozenset[int]
    is_whole: Callable[[ast.AST], bool]
    is_settled: Callable[[ast.expr], bool]
    values: Samples
    unmet: tuple[ast.expr, ...] = ()

    def statements(self, context: Context) -> frozenset[int]:
        """The statements in which all processes meet."""
        return frozenset(id(context.program.statement(it.node)) for it in self.combined)


def find(
    context: Context, loops: list[BatchLoop], whole: frozenset[int], asked: tuple[ast.expr, ...]
) -> Reports:
    """What the training loops measure and report.

    ``whole`` is the whole batch's already; ``asked`` are sums over a part which must become those over the whole.
    """
    finder = _Finder(context, loops, whole, asked)
    finder.search()
    inside = finder.rounds
    combined = tuple(
        replace(
            it,
            size=it.kind == "sum" and finder.is_size(it.node),
            in_loop=not (it.kind == "sum" and _added_to(context, it.node))
            and (id(it.node) in inside or finder.is_of_last_batch(it.node, inside)),
        )
        for it in finder.combined.values()
    )
    totals = tuple(finder.totals)
    whole, unmet = frozenset(finder.whole), tuple(finder.unmet())
    return Reports(combined, totals, whole, finder.is_whole, finder.is_settled, finder, unmet)


class _Finder(Gathering):
    """Goes from where numbers are kept, reported or decide to where they are made."""

    def __init__(
        self,
        context: Context,
        loops: list[BatchLoop],
        whole: frozenset[int],
        asked: tuple[ast.expr, ...],
    ) -> None:
        super().__init__(context, loops)
        self._steps = STEPS
        self.combined = {id(part): Combined("sum", part) for part in asked}
        self._asked_for = frozenset(self.combined)
        self.totals: list[Totals] = []
        self.whole = {*whole, *self.combined}
        self._training = training_loaders(loops)
        self.rounds = frozenset[int]().union(*(loop.runs for loop in loops if loop.trains))
        draws, self._dealt = drawn(context, loops)
        sources = [*draws, *(loop.source for loop in loops if loop.trains)]
        self._draws = {id(node) for source in sources for node in ast.walk(source)}
        self._reporters = Reporters(context)
        self._seen: set[int] = set()
        self._shows = False  # what is shown may be rounded otherwise on another GPU, what decides may not
        self._apart: list[tuple[str, ast.expr]] = (
            []
        )  # to be combined, where not all processes were known to come to
        self._summed: set[int] = set()
        self._own: set[int] = set()  # the functions of the training loop
        self._above: set[int] = set()  # those that are handed numbers by another one, which runs the model

    def search(self) -> None:
        home = {self.program.scope(call).index for call in self.context.backwards}
        home |= {
            self.program.scope(call.node).index
            for call in self.program.calls
            if self.context.is_wrapped(self.program.values(call.node.func))
        }
        looping = {self.program.scope(loop.node).index for loop in self._loops if loop.trains}
        self._above = looping - home
        home |= looping
        self._own = home | self._helpers(home)
        nodes = [self._nodes(index) for index in sorted(home)]
        self._trained = self._graph()
        for part in nodes:
            self._add_up(part)
        helpers = [self._nodes(index) for index in sorted(self._own - home)]
        for value in self._added([node for part in nodes for node in part]):
            self._visit(value)
        self._fed = [node for part in nodes for node in part if self._is_fed(node)]
        for call in self._fed:
            for given in handed(call):
                self._visit(given)
                base = self._peeled(given)
                if self._of(base) in DEALT and id(base) not in self.whole:
                    self._combine("rows", base)
        steps = (
            (self._given, nodes),
            (self._left, nodes + helpers),
            (self._deciding, nodes),
            (self._reported, nodes),
        )
        for step, places in steps:
            if step == self._reported:
                self._try_again()  # now that what decides is the whole batch's, and before its sums are reported
            for part in places:
                for node in part:
                    for value in step(node):
                        self._visit(value)
            self._known.clear()
        while alone := [
            key for key, it in self.combined.items() if it.call is None and self._meets_others(it)
        ]:
            for key in alone:
                self.whole.discard(key)
                del self.combined[key]
            self._known.clear()
        self._keep_rows([node for part in nodes for node in part])
        self._leave_whole()

    def _leave_whole(self) -> None:
        """Leave what is made of the whole batch's rows and numbers by now as it is."""
        for key, it in list(self.combined.items()):
            if it.call is None and key not in self._asked_for:
                del self.combined[key]
                self.whole.discard(key)
                self._known.clear()
                if self._of(it.node) not in (*PLAIN, Kind.WHOLE):
                    self.combined[key] = it
                    self.whole.add(key)
        self._known.clear()

    def _try_again(self) -> None:
        """Combine where all processes come to after all."""
        while self._apart:
            left, self._apart = self._apart, []
            for kind, node in left:
                self._combine(kind, node)
            if len(self._apart) == len(left):
                return

    def _keep_rows(self, nodes: list[ast.AST]) -> None:
        """Have what is made of samples one by one, or kept of them, made of those of the whole batch."""
        reports = [it.node for it in self.program.calls if self._reporters.has(it.node)]
        for statement in kept.candidates(self.context, self, nodes, reports):
            found = kept.rows(self.context, self, statement)
            if any(self._of(it.node) in AVERAGED and not self._is_tensor(it.node) for it in found):
                continue
            combined, whole = dict(self.combined), set(self.whole)
            for it in found:
                value = self._of(it.node)
                kind = "sum" if value in ADDITIVE else "mean" if value in AVERAGED else "rows"
                average = _average(value) if kind == "mean" else ""
                self.combined[id(it.node)] = Combined(kind, it.node, average=average, before=it.before)
                self.whole.add(id(it.node))
            self._known.clear()
            if found and not kept.is_settled(self, statement):
                self.combined, self.whole = combined, whole
                self._known.clear()

    def _meets_others(self, it: Combined) -> bool:
        """Whether rows of the whole batch meet something of a part in one computation."""
        found = [kinds.tensor(self._of(other), other) for other in self._beside(it.node)]
        return it.kind == "rows" and any(value not in (*PLAIN, Kind.WHOLE) for value in found)

    def _nodes(self, scope: int) -> list[ast.AST]:
        """The nodes of a function that are run in the training."""
        return [
            node
            for node in self.program.body(self.program.scopes[scope])
            if self.context.runs_in_training(node) and not self._evaluates(node)
        ]

    def _helpers(self, home: set[int]) -> set[int]:
        """The functions that nothing but the training loops calls, once for each batch: none of a wrapped model."""
        found = set(home)
        while True:
            new = {
                scope
                for scope, callers in self.program.callers.items()
                if scope not in found
                and all(
                    self.program.scope(call.node).index in found
                    and not self.context.is_wrapped(self.program.values(call.node.func))
                    and self._trains(call.node)
                    and self.meets(call.node)
                    for call, _ in callers
                )
            }
            if not new:
                return found - home
            found |= new

    def _trains(self, node: ast.AST) -> bool:
        return any(loop.trains and id(node) in loop.runs for loop in self._loops)

    def _evaluates(self, node: ast.AST) -> bool:
        return any(not loop.trains and id(node) in loop.runs for loop in self._loops)

    def _graph(self) -> set[int]:
        """The definitions of names that a loss which is trained with may be made of."""
        found: set[int] = set()
        waiting: list[ast.AST] = [self.context.loss(call) for call in self.context.backwards]
        while waiting:
            for name in _with_graph(waiting.pop()):
                for definition in self.program.definitions(name):
                    if id(definition) not in found:
                        found.add(id(definition))
                        if not isinstance(definition, ast.arg):
                            statement = self.program.statement(definition)
                            if isinstance(statement, ast.Assign | ast.AugAssign):
                                waiting.append(statement.value)
        return found

    def is_trained(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and any(
            id(it) in self._trained for it in (node, *self.program.definitions(node))
        )

    # Where numbers are kept, reported or decide

    def _added(self, nodes: list[ast.AST]) -> Iterator[ast.expr]:
        """What is added to something; first what is added to numbers that are added themselves."""
        waiting = [
            it
            for it in filter(None, map(updated, nodes))
            if isinstance(it.op, ast.Add | ast.Sub)
            and id(it.statement) not in self._summed
            and not self.is_trained(it.target)
        ]
        while waiting:
            targets = {ast.unparse(it.target) for it in waiting}
            later = [it for it in waiting if _mentioned(it.value) & targets - {ast.unparse(it.target)}]
            if len(later) == len(waiting):
                later = []
            yield from (it.value for it in waiting if it not in later)
            waiting = later

    def _given(self, node: ast.AST) -> Iterator[ast.expr]:
        """What is given to a meter or a list."""
        match node:
            case ast.Call(func=ast.Attribute(attr=method, value=holder)) if method in FEEDS:
                if self.is_trained(holder):
                    return
                for given in handed(node):
                    if method == "update" or self._peeled(given) is not given or not self._is_tensor(given):
                        yield given

    def _is_fed(self, node: ast.AST) -> bool:
        """Whether an object that is not torch's may keep what it is given here: ``scaler.partial_fit(x)``."""
        call = self.program.call(node) if isinstance(self.program.parent(node), ast.Expr) else None
        outside = call is not None and call.names and not self.program.entered(call.node)
        return (
            bool(outside)
            and isinstance(call.node.func, ast.Attribute)  # type: ignore[union-attr]
            and self.context.method(call.node) != "backward"  # type: ignore[union-attr]
            and not any(name.startswith(KEEPS_NOTHING) for name in call.names)  # type: ignore[union-attr]
            and self._trains(node)
            and not self._reporters.has(node)
        )

    def unmet(self) -> Iterator[ast.expr]:
        """What such objects are given that is of this process's part all the same."""
        for call in self._fed:
            for given in handed(call):
                if kinds.tensor(self.of(given), given) not in (*PLAIN, Kind.WHOLE):
                    yield given

    def _left(self, node: ast.AST) -> Iterator[ast.expr]:
        """Numbers made of a mean over the samples."""
        if (
            isinstance(node, ast.Call)
            and self._of(node) in (*AVERAGED, Kind.HANDED)
            and self._peeled(node) is not node
        ):
            if not self._is_tensor(node):
                yield node

    def _deciding(self, node: ast.AST) -> Iterator[ast.expr]:
        """What decides."""
        is_report = isinstance(node, ast.Call) and self._reporters.has(node)
        yield from [] if is_report else deciding(self.context, node)
        if isinstance(node, ast.Assert):
            tests = node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]
            for test in tests:
                yield from self._sums_asked(test)

    def _sums_asked(self, test: ast.expr) -> Iterator[ast.expr]:
        """The sums over samples that are held against something else: those of one part may be too small for it."""
        sides = list(compared(test))
        sums = [it for it in sides if self._of(it) in ADDITIVE]
        yield from sums if len(sums) < len(sides) or isinstance(test, ast.UnaryOp | ast.Name) else ()

    def _reported(self, node: ast.AST) -> Iterator[ast.expr]:
        """What is printed, logged or written."""
        if isinstance(node, ast.Call) and self._reporters.has(node):
            self._shows = True
            yield from handed(node)
            self._shows = False

    # Where they are made

    def _visit(self, node: ast.expr) -> None:
        """Have an expression made of numbers of the whole batch."""
        if id(node) in self._seen or any(id(it) in self.whole for it in self.program.ancestors(node)):
            return
        self._seen.add(id(node))
        value = self._of(node)
        base = self._peeled(node)
        if kinds.tensor(value, node) in (*PLAIN, Kind.WHOLE):
            return
        if value in ADDITIVE:
            self._combine("sum", node)
        elif self._of(base) in UNWEIGHED and self._gather(base):
            return
        elif self._is_averaged(base) and (self._is_tensor(base) or self._is_added_up(node, base)):
            self._combine("mean", base)
        elif value in DEALT and self._is_kept_outside(node):
            self._combine("rows", base)
        elif not self.is_trained(base) and not self._gather(base):
            for part in self._parts(base):
                self._visit(part)

    def _parts(self, node: ast.expr) -> Iterator[ast.expr]:
        """What an expression is computed from, number by number."""
        match node:
            case ast.Name():
                yield from self._assigned(node)
            case ast.Call():
                if isinstance(node.func, ast.Attribute) and not isinstance(node.func.value, ast.Name):
                    yield node.func.value
                if not self.program.entered(node):
                    yield from (it for it in node.args if not isinstance(it, ast.Starred))
                    yield from (keyword.value for keyword in node.keywords)
            case ast.Subscript(value=ast.Name() as held, slice=ast.Constant(value=key)):
                yield from self._entries(held, key)
            case ast.Subscript():
                yield node.value
            case ast.FormattedValue() | ast.Starred():
                yield node.value
            case ast.Attribute() | ast.Lambda() | ast.ListComp() | ast.GeneratorExp() | ast.DictComp():
                return
            case _:
                yield from (it for it in ast.iter_child_nodes(node) if isinstance(it, ast.expr))

    def _entries(self, held: ast.expr, key: object, depth: int = 0) -> Iterator[ast.expr]:
        """What one entry of a collection is, or else all of it."""
        match held:
            case ast.Dict(keys=keys, values=values):
                found = {
                    it.value: value
                    for it, value in zip(keys, values, strict=True)
                    if isinstance(it, ast.Constant)
                }
                yield found.get(key, held)
            case ast.Tuple(elts=values) | ast.List(elts=values) if isinstance(key, int) and key < len(values):
                yield values[key]
            case ast.Name() if depth < 4:
                for value in self._assigned(held):
                    yield from self._entries(value, key, depth + 1)
            case _:
                yield held

    def _assigned(self, name: ast.Name) -> Iterator[ast.expr]:
        """The right sides that a name may have, those of its own where several are assigned at once."""
        for definition in self.program.definitions(name):
            statement = None if isinstance(definition, ast.arg) else self.program.statement(definition)
            if not isinstance(statement, ast.Assign) or self.program.scope(
                statement
            ) is not self.program.scope(name):
                continue
            target, place = statement.targets[0], None
            if isinstance(target, ast.Tuple) and definition in target.elts:
                place = target.elts.index(definition)
            if self._gather(statement.value):
                continue
            for value in self._handed_back(statement.value):
                if place is not None and isinstance(value, ast.Tuple) and len(value.elts) > place:
                    value = value.elts[place]
                if not self._evaluates(value):
                    yield value

    def _handed_back(self, value: ast.expr) -> list[ast.expr]:
        """What a function of the training loop returns, in the place of its call."""
        entered = self.program.entered(value) if isinstance(value, ast.Call) else frozenset()
        returned = [
            node.value
            for index in entered & self._own
            for node in self.program.body(self.program.scopes[index])
            if isinstance(node, ast.Return) and node.value is not None
        ]
        return returned or [value]

    def _gather(self, node: ast.expr) -> bool:
        """Have a function of rows given those of all processes."""
        call = self.program.call(node) if isinstance(node, ast.Call) else None
        unclear = self._is_unclear(node) or self._of(node) in UNWEIGHED
        if call is None or not unclear or not self.meets(node):
            return False
        selected = self._reduced(call)
        rows = [selected] if selected is not None else self._rows(call, OPEN)
        known = selected is not None or bool(self.program.entered(node)) or self._is_of_settings(call)
        if not rows or not known or not self._is_function(call):
            return False
        if any(self.is_written_from(it, node) for it in rows):
            return False
        for row in rows:
            self.combined[id(row)] = Combined("rows", row, call.node if selected is None else None)
        self.whole.add(id(node))
        self._known.clear()
        return True

    def _is_of_settings(self, call: Call) -> bool:
        """Whether something that the program looks up is called: whatever it does, it does with the whole batch."""
        function = call.node.func
        owner = function.value if isinstance(function, ast.Attribute) else function
        return not call.callees and kinds.tensor(self._of(owner), owner) in PLAIN

    def _reduced(self, call: Call) -> ast.expr | None:
        """The rows that a function of torch makes a number of, or several; None for other calls."""
        node, function = call.node, call.node.func
        if isinstance(function, ast.Attribute) and not call.names & OF_ALL_ROWS:
            rows, name, others = function.value, f"torch.{function.attr}", node.args
        else:
            rows, others = node.args[0] if node.args else None, node.args[1:]
            name = next(iter(call.names)) if len(call.names) == 1 else ""
        if rows is None or name not in OF_ALL_ROWS:
            return None
        others = [*others, *(it.value for it in node.keywords)]
        value = self._of(rows)
        if value is Kind.PICKED:
            return rows if name in STATISTICS and not others else None
        plain = all(self._of(it) in PLAIN for it in others)
        return rows if value in DEALT and plain and self._shows else None

    def _is_unclear(self, node: ast.expr) -> bool:
        return isinstance(kinds.tensor(self._of(node), node), Unclear)

    def _combine(self, kind: str, node: ast.expr) -> None:
        statement = self.program.parent(node)
        several = isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple)
        if several:
            return
        inside: ast.AST = node
        for around in self.program.ancestors(node):  # a condition on what is counted, `if total > 0`
            if isinstance(around, ast.If) and inside is not around.test and _only_divides(around):
                self._settle(around.test)
            inside = around
        average = _average(self._of(node)) if kind == "mean" else ""
        if kind == "rows" and self.is_written_from(node, self.program.statement(node)):
            return
        if not self.meets(node) and not self._meets_as_whole(node):
            self._apart.append((kind, node))
            return
        inner = self._mean_of(node) if average == "even" else None
        self.combined[id(node)] = Combined(kind, node, average=average, inner=inner)
        self.whole.add(id(node))
        self._known.clear()

    def _mean_of(self, node: ast.expr) -> ast.expr | None:
        """What of the batch a mean is of: ``outputs.abs().mean()``."""
        match node:
            case ast.Call(func=ast.Attribute(value=inner, attr="mean"), args=[], keywords=[]):
                return inner if kinds.tensor(self._of(inner), inner) in DEALT else None
        return None

    def _meets_as_whole(self, node: ast.expr) -> bool:
        """Whether every process comes to a place, as far as what is combined there is of the whole batch.

        ``if loss.item() < best: best = loss.item()``: what is kept under a condition decides it the next time.
        """
        self.whole.add(id(node))
        self._known.clear()
        meets = self.meets(node)
        self.whole.discard(id(node))
        self._known.clear()
        return meets

    def is_size(self, node: ast.expr) -> bool:
        """Whether a number is that of the samples in the batch: ``x.size(0)``, ``x.shape[0]``, ``len(x)``."""
        match node:
            case ast.Name():
                made = assigned(self.context, node)
                return bool(made) and not any(isinstance(it, ast.Name) or not self.is_size(it) for it in made)
            case ast.Call(func=ast.Attribute(value=rows, attr="size"), args=[ast.Constant(value=0)]):
                pass
            case ast.Subscript(value=ast.Attribute(value=rows, attr="shape"), slice=ast.Constant(value=0)):
                pass
            case ast.Subscript(
                value=ast.Call(func=ast.Attribute(value=rows, attr="size"), args=[]),
                slice=ast.Constant(value=0),
            ):
                pass
            case ast.Call(func=ast.Name(id="len"), args=[rows]):
                pass
            case _:
                return False
        return self._of(rows) in DEALT

    def _settle(self, test: ast.expr) -> None:
        """Have a condition ask for sums over the whole batch."""
        for part in compared(test):
            if self._of(part) in ADDITIVE and id(part) not in self.whole:
                self._combine("sum", part)

    def _is_settled(self, test: ast.expr, frame: Frame) -> bool:
        # a number is one on every rank, or none yet
        there = NUMBERS if self.context.asks_identity(test) else PLAIN
        return all(
            self._is_number_of_all(part) or self._value(part, frame) in (*there, Kind.WHOLE)
            for part in compared(test)
        )

    def _is_number_of_all(self, node: ast.expr) -> bool:
        combined = self.combined.get(id(node))
        return combined is not None and combined.kind != "rows"

    def meets(self, node: ast.expr) -> bool:
        """Whether every process comes to a place in the training, once for each batch or for what comes after it."""
        self._refuel()  # these are questions of their own
        return not self._evaluates(node) and self._is_alike(node, OPEN) and not self._is_looped(node)

    def _is_looped(self, node: ast.expr) -> bool:
        """Whether a comprehension, or a loop over samples, stands round a place, within the loop over batches."""
        batches = {id(loop.node) for loop in self._loops}
        inside: ast.AST = node
        for around in self.program.ancestors(node):
            inside, before = around, inside
            if isinstance(
                around, ast.comprehension | ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.SetComp
            ):
                return True
            if id(around) in batches:
                return False
            if isinstance(around, ast.For) and before is not around.iter:
                drawn = self._drawn(around.iter, OPEN)
                if kinds.tensor(drawn, around.iter) is Kind.EACH or (
                    isinstance(drawn, Unclear)
                    and not self._is_loader(around.iter)
                    and is_of_round(self.context, around.iter, self.rounds)
                ):
                    return True
            if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
                return False
        return False

    def _is_loader(self, source: ast.expr) -> bool:
        return bool(self.context.made(self.context.iterated(self.program.values(source)), LOADER))

    # Sums that are added up in the loop, and combined once after it

    def _add_up(self, nodes: list[ast.AST]) -> None:
        added: dict[str, list[Update]] = defaultdict(list)
        for it in filter(None, map(updated, nodes)):
            if isinstance(it.target, ast.Name):
                added[it.target.id].append(it)
        found: dict[int, list[str]] = defaultdict(list)
        values: dict[int, list[ast.expr]] = defaultdict(list)
        loops = {id(loop.node): loop.node for loop in self._loops if loop.trains}
        for name, updates in added.items():
            around = {self._loop(it.statement, loops) for it in updates}
            loop = around.pop() if len(around) == 1 else None
            if (
                loop is None
                or self.is_trained(updates[0].target)
                or not self._is_for_after(updates, loop)
                or not all(self._is_alike(it.value, OPEN) for it in updates)  # type: ignore[arg-type]
            ):
                continue
            if all(self._of(it.value) in ADDITIVE and isinstance(it.op, ast.Add) for it in updates):
                found[id(loop)].append(name)
                values[id(loop)] += [it.value for it in updates]
                self._summed |= {id(it.statement) for it in updates}
                self.whole |= {id(it.value) for it in updates}
        self._known.clear()
        self.totals += [
            Totals(loops[key], tuple(names), tuple(values[key]))  # type: ignore[arg-type]
            for key, names in found.items()
        ]

    def _loop(self, statement: ast.stmt, loops: dict[int, ast.AST]) -> ast.For | None:
        """The training loop over batches that a statement stands in."""
        for around in self.program.ancestors(statement):
            if id(around) in loops:
                return around if isinstance(around, ast.For) else None
            if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
                break
        return None

    def _is_for_after(self, updates: list[Update], loop: ast.For) -> bool:
        """Whether a sum begins at 0 right before a loop, and is looked at after it only; all processes come there."""
        program = self.program
        scope = program.scope(loop)
        block = program.block(loop)
        targets, reads = [it.target for it in updates], {id(it.read) for it in updates}
        name = targets[0].id  # type: ignore[union-attr]
        inside = {id(node) for node in ast.walk(loop)}
        tree = program.file(loop).tree if scope.is_module else scope.node
        seen = False
        for node in ast.walk(tree):
            if isinstance(node, ast.Global | ast.Nonlocal) and name in node.names:
                return False
            if not isinstance(node, ast.Name) or node.id != name or not isinstance(node.ctx, ast.Load):
                continue
            if id(node) in reads:
                continue
            if id(node) in inside or (
                program.scope(node) is not scope and name not in program.scope(node).names
            ):
                return False
            seen |= any(it in targets for it in program.definitions(node))
        looked = [it.read or it.target for it in updates]
        before = {it for node in looked for it in program.definitions(node)} - set(targets)
        begins = [
            self._right_side(it) for it in before if program.statement(it) in block and id(it) not in inside
        ]
        return (
            seen
            and len(begins) == len(before) > 0
            and all(isinstance(it, ast.Constant) and it.value == 0 for it in begins)
            and not loop.orelse
            and self._is_alike(loop, OPEN)  # type: ignore[arg-type]
        )

    # What numbers are

    def is_whole(self, node: ast.AST) -> bool:
        """Whether something is the whole batch's, or has nothing to do with its samples."""
        if id(node) in self.whole:
            return True
        if isinstance(node, ast.Call):
            return bool(self.program.entered(node)) and self._of(node) is Kind.WHOLE
        plain = isinstance(node, ast.Name | ast.Attribute | ast.Subscript)
        return plain and kinds.tensor(self._of(node), node) in (*PLAIN, Kind.WHOLE)  # type: ignore[arg-type]

    def is_of_last_batch(
        self, node: ast.expr, inside: frozenset[int], open_: frozenset[int] = frozenset()
    ) -> bool:
        """Whether what stands after a loop is made of its last batch alone, and nothing that the loop adds up."""
        parts = (it for it in self._references(node) if it is node or not self.is_whole(it))
        made = {id(it): it for part in parts for it in self.program.definitions(part)}
        return bool(made) and all(
            key in inside and key not in open_ and self._is_made_anew(it, inside, open_ | {key})
            for key, it in made.items()
        )

    def _is_made_anew(self, definition: ast.AST, inside: frozenset[int], open_: frozenset[int]) -> bool:
        source = self.program.source(definition)
        if source.how is How.ELEMENT:
            return True
        if (
            source.how is not How.ASSIGNED
            or source.value is None
            or updated(self.program.statement(definition))
        ):
            return False
        value, _ = source.written
        assert value is not None
        taken = not any(
            self.program.definitions(it) and not self.is_whole(it) for it in self._references(value)
        )
        return taken or self.is_of_last_batch(value, inside, open_)

    def _references(self, node: ast.AST) -> Iterator[ast.Name | ast.Attribute]:
        """The names in an expression, but for those of models and functions that it calls."""
        if isinstance(node, ast.Name | ast.Attribute):
            yield node
        is_called = isinstance(node, ast.Call) and (
            isinstance(node.func, ast.Name) or self.context.is_wrapped(self.program.values(node.func))
        )
        for child in ast.iter_child_nodes(node):
            if not (is_called and child is node.func):  # type: ignore[attr-defined]
                yield from self._references(child)

    def is_settled(self, test: ast.expr) -> bool:
        """Whether every process answers a condition alike."""
        self._refuel()
        return self._is_settled(test, OPEN)

    def _of(self, node: ast.expr) -> Value:
        return self.of(node)

    def _is_averaged(self, node: ast.expr) -> bool:
        """Whether an expression is a loss of this process's part."""
        return self._of(node) in AVERAGED or (self._of(node) is Kind.HANDED and self.is_trained(node))

    def _peeled(self, node: ast.expr) -> ast.expr:
        """The tensor that a number, or a tensor without graph, is made of."""
        match node:
            case ast.Call(func=ast.Attribute(value=inner, attr=method), args=[]) if method in WITHOUT_GRAPH:
                return self._peeled(inner)
            case ast.Call(args=[inner]) if "builtins.float" in _names(self, node):
                return self._peeled(inner)
            case ast.Attribute(value=inner, attr="data"):
                return self._peeled(inner)
            case ast.Subscript(value=inner, slice=ast.Constant(value=0)) if self._of(inner) in AVERAGED:
                return self._peeled(inner)
        return node

    def _is_kept_outside(self, node: ast.expr) -> bool:
        """Whether rows are made something that nothing is trained with: an array, a list, a tensor off the GPU."""
        inside = [it for it in ast.walk(node) if isinstance(it, ast.Attribute)]
        return self._peeled(node) is not node and any(it.attr in TO_HOST for it in inside)

    def _is_tensor(self, node: ast.expr, asked: frozenset[ast.AST] = frozenset()) -> bool:
        """Whether an expression is a tensor, and no number of Python's; ``asked`` are definitions in question."""
        if not asked:
            self._steps = STEPS
        self._steps -= 1
        if self._steps < 0:
            return False
        match node:
            case ast.Constant() | ast.Subscript(value=ast.Attribute(attr="shape")):
                return False
            case ast.Call(func=ast.Attribute(attr=method)) if method in (*LEAVES_TORCH, "size"):
                return False
            case ast.Call():
                own = [self.program.scopes[index] for index in self.program.called_scopes(node.func)]
                returned = [
                    it
                    for scope in own
                    for it in self.program.body(scope)
                    if isinstance(it, ast.Return) and it not in asked
                ]
                names = _names(self, node)
                if any(name.startswith(ARRAYS_AND_BUILTINS) for name in names):
                    return False
                method = node.func.value if isinstance(node.func, ast.Attribute) else None
                held = self.program.definitions(method) if isinstance(method, ast.Name) else []
                computed = isinstance(method, ast.Call | ast.BinOp | ast.Compare | ast.Subscript) or (
                    held and not any(isinstance(it, ast.arg) for it in held)
                )
                if computed and not own and not self._is_tensor(method, asked):  # type: ignore[arg-type]
                    return False
                return all(it.value is None or self._is_tensor(it.value, asked | {it}) for it in returned)
            case ast.Compare():
                return self._is_tensor(node.left, asked)
            case ast.BinOp():
                return self._is_tensor(node.left, asked) or self._is_tensor(node.right, asked)
            case ast.UnaryOp():
                return self._is_tensor(node.operand, asked)
            case ast.Name() if self.is_trained(node):
                return True
            case ast.Name() | ast.Attribute():
                found = frozenset(self.program.definitions(node))
                values = [part for it in found - asked for part in self._right_sides(it)]
                given = self.program.scope(node).index in self._above
                return bool(found) and all(
                    not given if it is None else self._is_tensor(it, asked | found) for it in values
                )
            case ast.Subscript() if self.program.scope(node).index in self._above:
                return False
        return True

    def _is_added_up(self, node: ast.expr, base: ast.expr) -> bool:
        """Whether ``base`` is tensors added to a number, and ``node`` a tensor's method of it, which no number has."""
        if not isinstance(base, ast.Name) or base is node:
            return False
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return False
        statements = [self.program.statement(it) for it in self.program.definitions(base)]
        sides = [it.value for it in statements if isinstance(it, ast.Assign | ast.AugAssign)]
        added = [it for it in sides if not isinstance(it, ast.Constant)]
        return bool(added) and len(sides) == len(statements) and all(map(self._is_sum, added))

    def _is_sum(self, node: ast.expr) -> bool:
        """Whether an expression is a tensor, or Python's sum of some."""
        if isinstance(node, ast.Call) and _names(self, node) == {"builtins.sum"} and node.args:
            summed = node.args[0]
            return isinstance(summed, ast.GeneratorExp | ast.ListComp) and self._is_tensor(summed.elt)
        return self._is_tensor(node)

    def _right_sides(self, definition: ast.AST) -> list[ast.expr | None]:
        """What a name may be assigned, its entries where a function of the training loop hands back several."""
        statement = self.program.statement(definition)
        around = self.program.parent(definition)
        if isinstance(statement, ast.AugAssign):  # `loss *= 0.5` is a tensor where it was one
            return [statement.target]
        if not isinstance(statement, ast.Assign) or not isinstance(around, ast.Tuple):
            return [self._right_side(definition)]
        place = around.elts.index(definition)  # type: ignore[arg-type]
        handed = self._handed_back(statement.value)
        entries = [it.elts for it in handed if isinstance(it, ast.Tuple) and len(it.elts) > place]
        return [it[place] for it in entries] if len(entries) == len(handed) else [None]

    def _right_side(self, definition: ast.AST) -> ast.expr | None:
        """What a name is assigned; None where it is taken out of something."""
        if isinstance(definition, ast.arg):
            return ast.Constant(None)
        return right_side(self.program.statement(definition), definition)

    # What evaluation has is whole

    def _drawn(self, source: ast.expr, frame: Frame) -> Value:
        sites = self.context.made(self.context.iterated(self.program.values(source)), LOADER)
        call = self.program.call(source) if isinstance(source, ast.Call) else None
        if call is not None and call.names & RANGES:
            if all(it in (*PLAIN, Kind.WHOLE) for it in self._all(call.node.args, frame)):
                return Kind.SAME
        sharded = self._training - (set() if id(source) in self._draws else self._dealt)
        if sites and not sites & sharded and not (call and "builtins.enumerate" in call.names):
            return Kind.WHOLE
        return super()._drawn(source, frame)

    def _compute(self, node: ast.AST, frame: Frame) -> Value:
        return Kind.WHOLE if id(node) in self.whole else super()._compute(node, frame)

    def _call(self, node: ast.Call, frame: Frame) -> Value:
        names = _names(self, node)
        if is_runtime(names):
            return Kind.WHOLE
        given = handed(node)
        if isinstance(node.func, ast.Attribute):
            given.append(node.func.value)
        call = self.program.call(node)
        own = call is not None and self.program.entered(node) and not self.context.is_wrapped(call.callees)
        if not own:
            found = [kinds.tensor(value, node) for value in self._all(given, frame)]
            is_model = call is not None and self.context.is_wrapped(self.program.values(node.func))
            is_loss = call is not None and losses.is_any_loss(self.context, call)
            plain = bool(found) and all(value in (*PLAIN, Kind.WHOLE) for value in found)
            if Kind.WHOLE in found and (is_model or is_loss or plain):
                return Kind.WHOLE
            if is_model and plain and call is not None and functional.is_untrained(self.context, call):
                return Kind.WHOLE
        return super(Gathering, self)._call(node, frame)

    def _attribute(self, node: ast.Attribute, frame: Frame) -> Value:
        value = super()._attribute(node, frame)
        if (
            isinstance(value, Unclear)
            and node.attr == "shape"
            and self._value(node.value, frame) is Kind.WHOLE
        ):
            return Kind.WHOLE
        return value


def _names(finder: Gathering, node: ast.Call) -> set[str]:
    call = finder.program.call(node)
    return call.names if call is not None else set()


def _only_divides(branch: ast.If) -> bool:
    """Whether a branch does nothing that a part without such samples could fail at: it computes with numbers."""
    fine = ast.Assign | ast.AugAssign | ast.Name | ast.Attribute | ast.Constant | ast.BinOp | ast.UnaryOp
    fine |= ast.operator | ast.unaryop | ast.expr_context
    calls = {id(it): it for part in branch.body for it in ast.walk(part) if isinstance(it, ast.Call)}
    plain = all(
        isinstance(it.func, ast.Name)
        and it.func.id in CASTS_NUMBER
        or isinstance(it.func, ast.Attribute)
        and it.func.attr in WITHOUT_GRAPH
        for it in calls.values()
    )
    return plain and all(
        isinstance(it, fine) or id(it) in calls for part in branch.body for it in ast.walk(part)
    )


def _average(value: Value) -> str:
    """How the means of parts average to that of the whole batch."""
    averages = {Kind.MEAN: "samples", Kind.OWN: "parts", Kind.HANDED: "parts"}
    return averages.get(value, "even")  # type: ignore[arg-type]


def _mentioned(node: ast.AST) -> set[str]:
    """The names and attributes of an expression."""
    return {ast.unparse(it) for it in ast.walk(node) if isinstance(it, ast.Name | ast.Attribute)}


def _with_graph(node: ast.AST) -> Iterator[ast.Name]:
    """The names of an expression, but for what is only a number in it."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ONE_WITHOUT_GRAPH
    ):
        return
    if isinstance(node, ast.Name):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _with_graph(child)


# Facts


def obstacles(context: Context, reports: Reports) -> Iterator[Obstacle]:
    """Parts of batches that an object is given which may keep something of them."""
    for given in reports.unmet:
        yield context.obstacle(
            given,
            f"`{ast.unparse(given)}`, of the local batch, is passed to code that may store it",
            "pass the batch as the loader gives it",
            SHARDED_ONLY,
            assumes=f"the code that gets `{ast.unparse(given)}` stores nothing that the training depends on",
        )


def _added_to(context: Context, node: ast.expr) -> list[ast.expr]:
    """What is added to a name, batch after batch, where it may be read before the loop has ended."""
    found = []
    for definition in context.program.definitions(node) if isinstance(node, ast.Name) else ():
        change = updated(context.program.statement(definition))
        if change is not None and isinstance(change.op, ast.Add) and change.target is definition:
            found.append(change.value)
    return found


def numbers(context: Context, reports: Reports, effects: tuple[Effect, ...]) -> Iterator[Number]:
    """What becomes of each: in its place, or under a name where it is used twice or by the main process alone."""
    program = context.program
    for totals in reports.totals:
        yield Number(
            **context.place(totals.loop), kind="totals", what=" and ".join(totals.names), names=totals.names
        )
        for value in totals.added:
            yield Number(**context.place(value), kind="added", what=ast.unparse(value))
    running = {
        id(part): part for it in reports.combined if it.kind == "sum" for part in _added_to(context, it.node)
    }
    for value in running.values():
        yield Number(**context.place(value), kind="added", what=ast.unparse(value))
    groups: dict[object, list[Combined]] = defaultdict(list)
    for it in sorted(reports.combined, key=lambda it: program.order[id(it.node)]):
        groups[_same(context, it)].append(it)
    for group in groups.values():
        yield from _placed(context, group, effects)


def _same(context: Context, it: Combined) -> object:
    """What tells numbers apart that are one."""
    program = context.program
    names = [node for node in ast.walk(it.node) if isinstance(node, ast.Name)]
    held = frozenset(id(definition) for name in names for definition in program.definitions(name))
    if it.before is not None:
        return id(it.before), ast.unparse(it.node), held
    if it.kind == "rows":
        return id(it.node)
    return program.scope(it.node).index, it.kind, ast.unparse(it.node), held


def _placed(context: Context, group: list[Combined], effects: tuple[Effect, ...]) -> Iterator[Number]:
    program = context.program
    first, start = group[0], program.statement(group[0].node)
    if first.before is not None:
        name, place = _called(context, first), program.anchor(first.before)
        yield from (
            _number(context, it, name=name, before=None if it is not first else place) for it in group
        )
        return
    block = program.block(start)
    later = {id(statement) for statement in block[block.index(start) :]}
    shared = first.kind != "rows" and all(
        any(id(around) in later for around in program.ancestors(it.node)) for it in group
    )
    for part in [group] if shared and len(group) > 1 else [[it] for it in group]:
        yield from _named(context, part, _guard(context, part[0].node, effects))


def _named(context: Context, part: list[Combined], guard: Effect | None) -> Iterator[Number]:
    """In its place; or under a name, made before what only the main process runs."""
    program = context.program
    first = part[0]
    statement = program.statement(first.node)
    if guard is None and len(part) == 1:
        yield _number(context, first)
    elif not _is_plain(context, first.node, guard):
        what = ast.unparse(first.node)
        yield from (
            _number(context, it) if guard is None else Number.left(what, **context.place(statement))
            for it in part
        )
    else:
        name = _called(context, first)
        before = program.anchor(statement) if guard is None else guard.at
        for it in part:
            yield _number(context, it, name=name, before=before if it is first else None)


def _is_plain(context: Context, node: ast.expr, guard: Effect | None) -> bool:
    """Whether an expression may be written again before a place: nothing in it is edited, or made after that."""
    program = context.program
    simple = ast.Name | ast.Attribute | ast.Call | ast.Constant | ast.expr_context
    made = [it for name in ast.walk(node) if isinstance(name, ast.Name) for it in program.definitions(name)]
    return all(isinstance(it, simple) for it in ast.walk(node)) and (
        guard is None
        or not any(
            guard.covers(program.anchor(program.statement(it)))
            for it in made
            if id(it) in program.order and not isinstance(it, ast.arg)
        )
    )


def _number(context: Context, it: Combined, **more: object) -> Number:
    place = context.place(it.node) if it.call is None else given_to(context, it.call, it.node)
    what = ast.unparse(it.node)
    place |= dict(kind=it.kind, average=it.average, in_loop=it.in_loop)
    place |= dict(rows=None if it.inner is None else context.program.anchor(it.inner))
    return Number(**place, what=what, **more)  # type: ignore[arg-type]


def _called(context: Context, it: Combined) -> str:
    """A new name for a number."""
    path, text = context.program.file(it.node).path, ast.unparse(it.node)
    if it.kind == "sum":
        is_size = it.size or "size" in text or "len(" in text
        wanted = ["batch_size", "global_batch_size"] if is_size else ["batch_sum"]
    else:
        wanted = [f"batch_{it.node.id}"] if isinstance(it.node, ast.Name) else ["batch_mean"]
    free = (name for name in wanted if name not in context.names(path))
    return context.fresh(path, next(free, wanted[-1]))


def _guard(context: Context, node: ast.expr, effects: tuple[Effect, ...]) -> Effect | None:
    place = context.program.anchor(node)
    return next((effect for effect in effects if effect.covers(place)), None)
