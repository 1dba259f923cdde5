"""Numbers of the training loop that are reported, made those of the whole batch.

Each process has a part of every batch: what it measures there is its own. Any function of numbers of the whole batch is
again one, so it is enough to combine them where they are made: a mean where it leaves the graph, a sum or a count where
it is added up or reported, rows where a function makes a number of them. What is built on that - averages, meters,
returned values, decisions - is then the whole batch's too.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from dp2ddp.analyse.api.containers import FEEDS
from dp2ddp.analyse.api.iteration import COUNTERS, RANGES
from dp2ddp.analyse.api.purity import KEEPS_NOTHING
from dp2ddp.analyse.api.tensors import PLACES_OF, TO_HOST
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.kinds import AVERAGED, DEALT, PLAIN, Every, Held, Kind, Unclear
from dp2ddp.analyse.dataflow.samples.follower import Samples
from dp2ddp.analyse.dataflow.samples.indices import first_of, is_everything
from dp2ddp.analyse.program.calls import handed
from dp2ddp.analyse.program.sources import How, Source
from dp2ddp.analyse.program.updates import updated
from dp2ddp.analyse.training import kept
from dp2ddp.analyse.training.gathering import ADDITIVE, compared
from dp2ddp.analyse.training.loops import BatchLoop
from dp2ddp.analyse.training.metrics import deciding, is_unknown, picked, reporters_of
from dp2ddp.analyse.training.tensors import Tensors
from dp2ddp.analyse.training.totals import Adding, Totals
from dp2ddp.analyse.training.whole_batch import UNWEIGHED, Combined, WholeBatch, average_of
from dp2ddp.facts import SHARDED_ONLY, Obstacle


@dataclass(frozen=True)
class Reports:
    """What is to be combined.

    ``whole``: what is the whole batch's then. ``is_whole`` says of an expression whether it is, or has nothing to do
    with the samples, ``is_settled`` of a condition whether all processes answer it alike, ``values`` what others are.
    ``unmet``: what is kept elsewhere of a part, by objects that are not followed. ``ordered``: the programs that keep
    or show rows of the whole batch, which are to stand in its order.
    """

    combined: tuple[Combined, ...]
    totals: tuple[Totals, ...]
    whole: frozenset[int]
    is_whole: Callable[[ast.AST], bool]
    is_settled: Callable[[ast.expr], bool]
    values: Samples
    unmet: tuple[ast.expr, ...] = ()
    ordered: frozenset[Path] = frozenset()

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
    inside = finder.values.rounds
    combined = tuple(
        replace(
            it,
            size=it.kind == "sum" and finder.values.is_size(it.node),
            in_loop=not (it.kind == "sum" and added_to(context, it.node))
            and (id(it.node) in inside or finder.values.is_of_last_batch(it.node, inside)),
        )
        for it in finder.values.combined.values()
    )
    totals = tuple(finder.adding.totals)
    whole, unmet = frozenset(finder.values.whole), tuple(finder.unmet())
    asked = Samples(context)  # by which rows are those of a part
    rows = [
        it.node
        for it in combined
        if it.kind == "rows"
        and (it.call is None or isinstance(asked.of(it.call), Every) or _goes_by_place(asked, it.call))
    ]
    ordered = frozenset[Path]().union(*(context.run_by(context.program.statement(it)) for it in rows))
    return Reports(
        combined,
        totals,
        whole,
        finder.values.is_whole,
        finder.values.is_settled,
        finder.values,
        unmet,
        ordered,
    )


class _Finder:
    """Goes from where numbers are kept, reported or decide to where they are made."""

    def __init__(
        self,
        context: Context,
        loops: list[BatchLoop],
        whole: frozenset[int],
        asked: tuple[ast.expr, ...],
    ) -> None:
        self.context, self.program, self.loops = context, context.program, loops
        self.values = WholeBatch(context, loops, whole, asked)
        self.tensors = Tensors(context, self.values)
        self.adding = Adding(context, self.values, self.tensors, loops)
        self._reporters = reporters_of(context)
        self._seen: set[int] = set()

    def search(self) -> None:
        home = {self.program.scope(call).index for call in self.context.backwards}
        home |= {
            self.program.scope(call.node).index
            for call in self.program.calls
            if self.context.is_wrapped(self.program.values(call.node.func))
        }
        looping = {self.program.scope(loop.node).index for loop in self.loops if loop.trains}
        self.tensors.above = looping - home
        home |= looping
        self.tensors.own = home | self._helpers(home)
        nodes = [self._nodes(index) for index in sorted(home)]
        for part in nodes:
            self.adding.add_up(part)
        helpers = [self._nodes(index) for index in sorted(self.tensors.own - home)]
        for value in self._added([node for part in nodes for node in part]):
            self._visit(value)
        for it in picked(self.context, self.loops, self.values):
            if not self._is_of_loss(it):
                self.values.combine("rows", it.value)
        self._fed = [node for part in nodes for node in part if self._is_fed(node)]
        for call in self._fed:
            for given in handed(call):
                self._visit(given)
                base = self.values.peeled(given)
                if self.values.of(base) in DEALT and id(base) not in self.values.whole:
                    self.values.combine("rows", base)
        steps = (
            (self._given, nodes),
            (self._left, nodes + helpers),
            (self._deciding, nodes),
            (self._deciding_inside, helpers),
            (self._reported, nodes),
        )
        for step, places in steps:
            if step == self._reported:
                self.values.try_again()  # now that what decides is the whole batch's, and before its sums are reported
            for part in places:
                for node in part:
                    for value in step(node):
                        self._visit(value)
            self.values.forget()
        self.values.drop_alone()
        self._keep_rows([node for part in nodes for node in part])
        self.values.leave_whole()

    def _keep_rows(self, nodes: list[ast.AST]) -> None:
        """Have what is made of samples one by one, or kept of them, made of those of the whole batch."""
        reports = [it.node for it in self.program.calls if self._reporters.has(it.node)]
        for statement in kept.candidates(self.context, self.values, nodes, reports):
            found = kept.rows(self.context, self.values, statement)
            if not found or any(
                self.values.of(it.node) in AVERAGED
                and (not self.tensors.is_tensor(it.node) or self.values.is_mixed(it.node))
                for it in found
            ):
                continue
            combined, whole = dict(self.values.combined), set(self.values.whole)
            for it in found:
                value = self.values.of(it.node)
                averages = value in AVERAGED and not self.values.is_of_replicas(it.node)
                kind = "sum" if value in ADDITIVE else "mean" if averages else "rows"
                average = average_of(value) if kind == "mean" else ""
                self.values.combined[id(it.node)] = Combined(kind, it.node, average=average, before=it.before)
                self.values.whole.add(id(it.node))
            self.values.forget()
            if not kept.is_settled(self.values, statement):
                self.values.combined, self.values.whole = combined, whole
                self.values.forget()

    def _nodes(self, scope: int) -> list[ast.AST]:
        """The nodes of a function that are run in the training."""
        return [
            node
            for node in self.program.body(self.program.scopes[scope])
            if self.context.runs_in_training(node) and not self.values.evaluates(node)
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
                    and self.values.trains(call.node)
                    and self.values.meets(call.node)
                    for call, _ in callers
                )
            }
            if not new:
                return found - home
            found |= new

    def _is_of_loss(self, node: ast.expr) -> bool:
        """Whether the training may go on with what an expression makes; else it is only kept or shown."""
        match self.program.statement(node):
            case ast.Assign(targets=targets):
                names = [it for target in targets for it in ast.walk(target) if isinstance(it, ast.expr)]
                return any(not isinstance(it, ast.Name) or self.values.is_trained(it) for it in names)
            case ast.Expr(value=ast.Call() as call):
                return not (self._reporters.has(call) or self._is_fed(call))
        return True

    def _added(self, nodes: list[ast.AST]) -> Iterator[ast.expr]:
        """What is added to something; first what is added to numbers that are added themselves."""
        waiting = [
            it
            for it in filter(None, map(updated, nodes))
            if isinstance(it.op, ast.Add | ast.Sub)
            and id(it.statement) not in self.adding.summed
            and not self.values.is_trained(it.target)
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
                if self.values.is_trained(holder):
                    return
                for given in handed(node):
                    if (
                        method == "update"
                        or self.values.peeled(given) is not given
                        or not self.tensors.is_tensor(given)
                        or self._holds_unclear(given)
                    ):
                        yield given

    def _holds_unclear(self, node: ast.expr) -> bool:
        """Whether a collection holds what is not followed: nothing of that is trained with in parts."""
        value = self.values.of(node)
        return isinstance(value, Held | Every) and isinstance(kinds.tensor(value, node), Unclear)

    def _is_fed(self, node: ast.AST) -> bool:
        """Whether an object that is not torch's may keep what it is given here: ``scaler.partial_fit(x)``."""
        call = self.program.call(node) if isinstance(self.program.parent(node), ast.Expr) else None
        outside = call is not None and call.names and not self.program.entered(call.node)
        return (
            bool(outside)
            and isinstance(call.node.func, ast.Attribute)  # type: ignore[union-attr]
            and self.context.method(call.node) != "backward"  # type: ignore[union-attr]
            and not any(name.startswith(KEEPS_NOTHING) for name in call.names)  # type: ignore[union-attr]
            and self.values.trains(node)
            and not self._reporters.has(node)
        )

    def unmet(self) -> Iterator[ast.expr]:
        """What such objects are given that is of this process's part all the same."""
        for call in self._fed:
            for given in handed(call):
                if kinds.tensor(self.values.of(given), given) not in (*PLAIN, Kind.WHOLE):
                    yield given

    def _left(self, node: ast.AST) -> Iterator[ast.expr]:
        """Numbers made of a mean over the samples."""
        if (
            isinstance(node, ast.Call)
            and self.values.of(node) in (*AVERAGED, Kind.HANDED)
            and self.values.peeled(node) is not node
        ):
            if not self.tensors.is_tensor(node):
                yield node

    def _deciding(self, node: ast.AST) -> Iterator[ast.expr]:
        """What decides."""
        is_report = isinstance(node, ast.Call) and self._reporters.has(node)
        yield from [] if is_report else deciding(self.context, node, self._reporters.has)
        if isinstance(node, ast.Assert):
            tests = node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]
            for test in tests:
                yield from self._sums_asked(test)

    def _deciding_inside(self, node: ast.AST) -> Iterator[ast.expr]:
        """The same in a function that a training loop asks, by what it is given there."""
        self.tensors.asks_callers = True
        yield from self._deciding(node)
        self.tensors.asks_callers = False

    def _sums_asked(self, test: ast.expr) -> Iterator[ast.expr]:
        """The sums over samples that are held against something else: those of one part may be too small for it."""
        sides = list(compared(test))
        sums = [it for it in sides if self.values.of(it) in ADDITIVE]
        yield from sums if len(sums) < len(sides) or isinstance(test, ast.UnaryOp | ast.Name) else ()

    def _reported(self, node: ast.AST) -> Iterator[ast.expr]:
        """What is printed, logged or written."""
        if isinstance(node, ast.Call) and self._reporters.has(node):
            self.values.shows = True
            yield from handed(node)
            self.values.shows = False

    def _visit(self, node: ast.expr) -> None:
        """Have an expression made of numbers of the whole batch."""
        if id(node) in self._seen or any(id(it) in self.values.whole for it in self.program.ancestors(node)):
            return
        self._seen.add(id(node))
        value = self.values.of(node)
        base = self.values.peeled(node)
        if kinds.tensor(value, node) in (*PLAIN, Kind.WHOLE):
            return
        if value in ADDITIVE:
            self.values.combine("sum", node)
        elif self.values.of(base) in UNWEIGHED and self.values.gather(base):
            return
        elif self.values.is_of_replicas(base):
            self.values.combine("rows", base)
        elif self.values.is_averaged(base) and (
            self.tensors.is_tensor(base) or self.tensors.is_added_up(node, base)
        ):
            self.values.combine("mean", base)
        elif value in DEALT and self._is_kept_outside(node):
            self.values.combine("rows", self.values.before_index(base))
        elif isinstance(base, ast.Subscript) and self._takes_samples(base):
            self.values.combine("rows", base.value)
        elif not self.values.is_trained(base) and not self.values.gather(base):
            for part in self._parts(base):
                self._visit(part)

    def _parts(self, node: ast.expr) -> Iterator[ast.expr]:
        """What an expression is computed from, number by number."""
        match node:
            case ast.Name():
                yield from self._assigned(node)
            case ast.Call():
                owner = node.func.value if isinstance(node.func, ast.Attribute) else None
                if owner is not None and (
                    not isinstance(owner, ast.Name)
                    or self._is_sample(owner)
                    or self.values.is_of_replicas(owner)
                ):
                    yield owner
                if not self.program.entered(node):
                    yield from (it for it in node.args if not isinstance(it, ast.Starred))
                    yield from (keyword.value for keyword in node.keywords)
            case ast.Subscript(value=ast.Name() as held, slice=ast.Constant(value=key)):
                yield from self._entries(held, key)
            case ast.Subscript():
                yield node.value
            case ast.FormattedValue() | ast.Starred():
                yield node.value
            case ast.DictComp(value=made) | ast.ListComp(elt=made) | ast.GeneratorExp(elt=made):
                yield made
            case ast.Attribute() | ast.Lambda():
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
            if self.values.gather(statement.value):
                continue
            for value in self.tensors.handed_back(statement.value):
                if place is not None and isinstance(value, ast.Tuple) and len(value.elts) > place:
                    value = value.elts[place]
                if not self.values.evaluates(value):
                    yield value

    def _is_sample(self, name: ast.Name) -> bool:
        """Whether a name is given some samples of the batch, and no more."""
        given = list(self._assigned(name))
        return any(isinstance(it, ast.Subscript) and self._takes_samples(it) for it in given)

    def _takes_samples(self, node: ast.Subscript) -> bool:
        """Whether some samples are taken of rows by their place in the batch: ``x[0]``, ``x[0, 1]``, ``x[:4]``."""
        if not isinstance(self.values.of(node), Unclear) or self.values.of(node.value) not in DEALT:
            return False
        first = first_of(node.slice)
        bounds = (first.lower, first.upper, first.step) if isinstance(first, ast.Slice) else (first,)
        return all(it is None or self.values.of(it) in (*PLAIN, Kind.WHOLE) for it in bounds)

    def _is_kept_outside(self, node: ast.expr) -> bool:
        """Whether rows are made something that nothing is trained with: an array, a list, a tensor off the GPU."""
        inside = [it for it in ast.walk(node) if isinstance(it, ast.Attribute)]
        return self.values.peeled(node) is not node and any(it.attr in TO_HOST for it in inside)


def _goes_by_place(samples: Samples, call: ast.expr) -> bool:
    """Whether a function may take rows by their places, or tell these: ``for i, row in enumerate(rows)``."""
    program = samples.program
    if (known := program.call(call)) is not None and is_unknown(samples.context, known):
        return True
    for scope in sorted(program.entered_itself(call)) if isinstance(call, ast.Call) else ():
        for node in program.body(program.scopes[scope]):
            match node:
                case ast.Subscript(value=rows, slice=index):
                    first = first_of(index)
                    some = isinstance(first, ast.Constant | ast.Slice) and not is_everything(first)
                    if some and samples.of(rows) is Kind.ROWS:
                        return True
                case ast.Name(ctx=ast.Load()) if _is_place(samples, node):
                    return True
                case ast.Call(func=ast.Attribute(attr=name), args=given):
                    if name in PLACES_OF or name == "where" and len(given) == 1:
                        return True
    return False


def _is_place(samples: Samples, name: ast.Name) -> bool:
    """Whether a name is the number of a sample, by which something else is done than to take what it has."""
    program = samples.program
    around = program.parent(name)
    if isinstance(around, ast.Tuple):
        around = program.parent(around) if around.elts[0] is name else None
    if isinstance(around, ast.Subscript) and around.value is not name:
        if kinds.tensor(samples.of(around.value), around) in kinds.BY_SAMPLE:
            return False
    return any(_is_number(samples, program.source(it)) for it in program.definitions(name))


def _is_number(samples: Samples, source: Source) -> bool:
    """Whether a loop gives a name the number of a sample, as far as is known."""
    made = source.value if source.how is How.ELEMENT else None
    call = samples.program.call(made) if isinstance(made, ast.Call) else None
    if call is None or not call.node.args:
        return False
    drawn = kinds.tensor(samples.drawn(call.node), call.node)
    if drawn is not Kind.EACH and not isinstance(drawn, Unclear):
        return False
    if call.names & RANGES or "builtins.enumerate" in call.names and source.place[:1] == (0,):
        return True
    paired = source.place[0] if "builtins.zip" in call.names and len(source.place) == 1 else None
    counter = call.node.args[paired] if paired is not None and paired < len(call.node.args) else None
    return counter is not None and bool(samples.program.names_of(counter) & COUNTERS)


def _mentioned(node: ast.AST) -> set[str]:
    """The names and attributes of an expression."""
    return {ast.unparse(it) for it in ast.walk(node) if isinstance(it, ast.Name | ast.Attribute)}


def obstacles(context: Context, reports: Reports) -> Iterator[Obstacle]:
    """Parts of batches that an object is given which may keep something of them."""
    for given in reports.unmet:
        yield context.obstacle(
            given,
            f"`{ast.unparse(given)}` is passed to code that may store it: if sharded, of the local batch only",
            "pass the batch as the loader gives it",
            SHARDED_ONLY,
            assumes=f"the code that gets `{ast.unparse(given)}` stores nothing that the training depends on",
        )


def added_to(context: Context, node: ast.expr) -> list[ast.expr]:
    """What is added to a name, batch after batch, where it may be read before the loop has ended."""
    found = []
    for definition in context.program.definitions(node) if isinstance(node, ast.Name) else ():
        change = updated(context.program.statement(definition))
        if change is not None and isinstance(change.op, ast.Add) and change.target is definition:
            found.append(change.value)
    return found
