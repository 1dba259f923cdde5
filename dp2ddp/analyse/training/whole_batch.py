"""What of a training loop is the whole batch's, once some of its numbers are combined where they are made."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.analyse.api.handing import SAME_OBJECT
from dp2ddp.analyse.api.iteration import HANDS_OUT, RANGES
from dp2ddp.analyse.api.naming import LOADER
from dp2ddp.analyse.api.numbers import CASTS_NUMBER
from dp2ddp.analyse.api.operations import written
from dp2ddp.analyse.api.parallel import is_runtime
from dp2ddp.analyse.api.python import SHOWS_PARTS
from dp2ddp.analyse.api.tensors import (
    AVERAGING,
    HANDS_NUMBERS_ON,
    LEAVES_TORCH,
    OF_ALL_ROWS,
    ONE_WITHOUT_GRAPH,
    STATISTICS,
    WITHOUT_GRAPH,
)
from dp2ddp.analyse.context import COMPREHENSIONS, Context
from dp2ddp.analyse.dataflow import kinds, losses
from dp2ddp.analyse.dataflow.kinds import AVERAGED, DEALT, NUMBERS, PLAIN, Held, Kind, Unclear, Value
from dp2ddp.analyse.dataflow.samples.batches import is_part
from dp2ddp.analyse.dataflow.samples.frames import OPEN, Frame
from dp2ddp.analyse.dataflow.samples.joined import is_output
from dp2ddp.analyse.dataflow.samples.sizes import counted
from dp2ddp.analyse.processes.conditions import assigned
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.sources import How
from dp2ddp.analyse.program.updates import updated
from dp2ddp.analyse.training.gathering import ADDITIVE, Gathering, compared
from dp2ddp.analyse.training.loops import BatchLoop, drawn, is_of_round, own_batch, training_loaders
from dp2ddp.analyse.training.metrics import is_report
from dp2ddp.analyse.wrapping import functional

UNWEIGHED = (Kind.EITHER, Kind.EVEN)
"""Means of which it is not known how those of parts weigh."""


@dataclass(frozen=True)
class Combined:
    """An expression that is of this process's part, and how it becomes the whole batch's.

    ``average`` says of a mean how those of parts average to it, as that of ``Loss`` does; ``size`` of a sum that it is
    the number of samples in the batch, ``in_loop`` that it is made anew of each batch. ``before``: the loop over
    samples before which rows get a name for it. ``inner``: what a mean is of; ``made``: the number of rows.
    """

    kind: str
    node: ast.expr
    call: ast.Call | None = None
    average: str = ""
    size: bool = False
    in_loop: bool = False
    before: ast.For | None = None
    inner: ast.expr | None = None
    made: ast.expr | None = None


class WholeBatch(Gathering):
    """Follows the values of the training loops, where what is combined is the whole batch's."""

    def __init__(
        self,
        context: Context,
        loops: list[BatchLoop],
        whole: frozenset[int],
        asked: tuple[ast.expr, ...],
    ) -> None:
        super().__init__(context, loops)
        self.combined = {id(part): Combined("sum", part) for part in asked}
        self._asked_for = frozenset(self.combined)
        self.whole = {*whole, *self.combined}
        self._training = training_loaders(loops)
        self.rounds = frozenset[int]().union(*(loop.runs for loop in loops if loop.trains))
        draws, self._dealt = drawn(context, loops)
        sources = [*draws, *(loop.source for loop in loops if loop.trains)]
        self._draws = {id(node) for source in sources for node in ast.walk(source)}
        self._trained = self._graph()
        self.shows = False  # what is shown may be rounded otherwise on another GPU, what decides may not
        self._apart: list[tuple[str, ast.expr]] = []
        """To be combined, where not all processes were known to come to."""

    def forget(self) -> None:
        """Ask again what values are: more of them are the whole batch's by now."""
        self._known.clear()

    def comes_alike(self, node: ast.AST) -> bool:
        """Whether every process comes to a place, as often as the others."""
        return self._is_alike(node, OPEN)  # type: ignore[arg-type]

    def drop_alone(self) -> None:
        """Leave rows as they are that would meet something of a part."""
        while alone := [
            key for key, it in self.combined.items() if it.call is None and self.meets_others(it)
        ]:
            for key in alone:
                self.whole -= {key, id(self.combined[key].made)}
                del self.combined[key]
            self.forget()

    def leave_whole(self) -> None:
        """Leave what is made of the whole batch's rows and numbers by now as it is."""
        for key, it in list(self.combined.items()):
            if it.call is None and key not in self._asked_for:
                del self.combined[key]
                self.whole.discard(key)
                self._known.clear()
                if self.of(it.node) not in (*PLAIN, Kind.WHOLE):
                    self.combined[key] = it
                    self.whole.add(key)
        self._known.clear()

    def try_again(self) -> None:
        """Combine where all processes come to after all."""
        while self._apart:
            left, self._apart = self._apart, []
            for kind, node in left:
                self.combine(kind, node)
            if len(self._apart) == len(left):
                return

    def meets_others(self, it: Combined) -> bool:
        """Whether rows of the whole batch meet something of a part in one computation."""
        if it.kind != "rows":
            return False
        rows = it.made or it.node  # the number of all rows is what goes on
        found = [kinds.tensor(self.of(other), other) for other in self._beside(rows)]
        return any(value not in (*PLAIN, Kind.WHOLE) for value in found) or self._meets_later(rows, set())

    def only_shows(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Call) or self.program.entered(node):
            return False
        of_text = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Constant)
        return of_text or bool(self.program.names_of(node) & SHOWS_PARTS) or is_report(self.context, node)

    def _meets_later(self, node: ast.expr, seen: set[int]) -> bool:
        """Whether a name that is made of such rows does; a number that is one of the part is no row."""
        statement = self.program.statement(node)
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        for target in (it for it in targets if isinstance(it, ast.Name) and id(it) not in seen):
            seen.add(id(target))
            for use in self.program.body(self.program.scope(target)):
                if isinstance(use, ast.Name) and target in self.program.definitions(use):
                    found = [kinds.tensor(self.of(other), other) for other in self._beside(use)]
                    if any(value not in (*NUMBERS, Kind.WHOLE) for value in found):
                        return True
                    if self._meets_later(use, seen):
                        return True
        return False

    def trains(self, node: ast.AST) -> bool:
        return any(loop.trains and id(node) in loop.runs for loop in self._loops)

    def evaluates(self, node: ast.AST) -> bool:
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

    def gather(self, node: ast.expr) -> bool:
        """Have a function of rows given those of all processes."""
        call = self.program.call(node) if isinstance(node, ast.Call) else None
        unclear = self._is_unclear(node) or self.of(node) in UNWEIGHED
        if call is None or not unclear or not self.meets(node):
            return False
        selected = self._reduced(call)
        rows = [selected] if selected is not None else self._rows(call, OPEN)
        rows = [self.before_index(it) for it in rows]
        known = selected is not None or bool(self.program.entered(node)) or self._is_of_settings(call)
        if not rows or not known or not self._is_function(call):
            return False
        if any(self.is_written_from(it, node) for it in rows):
            return False
        for row in rows:
            made = call.node if selected is None else None
            self.combined[id(row)] = Combined("rows", row, made, made=None if selected is None else node)
        self.whole.add(id(node))
        self._known.clear()
        return True

    def _is_of_settings(self, call: Call) -> bool:
        """Whether something that the program looks up is called: whatever it does, it does with the whole batch."""
        function = call.node.func
        owner = function.value if isinstance(function, ast.Attribute) else function
        return not call.callees and kinds.tensor(self.of(owner), owner) in PLAIN

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
        value = self.of(rows)
        if value is Kind.PICKED:
            return rows if name in STATISTICS and not others else None
        plain = all(self.of(it) in PLAIN for it in others)
        return rows if value in DEALT and plain and self.shows else None

    def _is_unclear(self, node: ast.expr) -> bool:
        return isinstance(kinds.tensor(self.of(node), node), Unclear)

    def combine(self, kind: str, node: ast.expr) -> None:
        statement = self.program.parent(node)
        several = isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple)
        if several:
            return
        inside: ast.AST = node
        for around in self.program.ancestors(node):  # a condition on what is counted, `if total > 0`
            if isinstance(around, ast.If) and inside is not around.test and _only_divides(around):
                self._settle(around.test)
            inside = around
        average = average_of(self.of(node)) if kind == "mean" else ""
        if kind == "mean" and self.is_mixed(node):
            return
        if kind == "rows" and self.is_written_from(node, self.program.statement(node)):
            return
        if not self.meets(node) and not self._meets_as_whole(node):
            self._apart.append((kind, node))
            return
        inner = self._mean_of(node) if average == "even" else None
        self.combined[id(node)] = Combined(kind, node, average=average, inner=inner)
        self.whole.add(id(node))
        self._known.clear()

    def is_mixed(self, node: ast.expr) -> bool:
        """Whether a name gets something else in some rounds: ``for name, it in {"loss": loss, "by": "us"}.items()``."""
        sources = [self.program.source(it) for it in self.program.definitions(node)]
        found = [self._entries(it.value, it.place) for it in sources if it.how is How.ELEMENT]
        return any(entry in PLAIN for entries in found for entry in entries)

    def _entries(self, source: ast.expr | None, place: tuple[int | None, ...]) -> list[Value]:
        """What a loop gets at a place of its elements, round by round, where all are known by their names."""
        first, rest = (place[0], place[1:]) if place else (None, ())
        names = self.program.names_of(source) if source is not None else frozenset[str]()
        match source:
            case ast.Call(args=[inner, *_]) if "builtins.enumerate" in names:
                return self._entries(inner, rest) if first == 1 else []
            case ast.Call(args=given) if names == {"builtins.zip"}:
                return self._entries(given[first], rest) if first is not None and first < len(given) else []
            case ast.Call(args=[inner, *_]) if names and names <= HANDS_OUT:
                return self._entries(inner, place)
            case ast.Call(func=ast.Attribute(value=held, attr="items"), args=[]):
                return self._entries(held, rest) if first == 1 else []
        held = self.of(source) if source is not None else Kind.UNKNOWN
        found = [entry for _, entry in held.entries] if isinstance(held, Held) else []
        for index in place:
            found = [kinds.entry(it, index, source) for it in found]  # type: ignore[arg-type]
        return found

    def _mean_of(self, node: ast.expr) -> ast.expr | None:
        """What of the batch a mean is of: ``outputs.abs().mean()``."""
        match node:
            case ast.Call(func=ast.Attribute(value=inner, attr="mean"), args=[], keywords=[]):
                return inner if kinds.tensor(self.of(inner), inner) in DEALT else None
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
        if isinstance(node, ast.Name):
            made = assigned(self.context, node)
            return bool(made) and not any(isinstance(it, ast.Name) or not self.is_size(it) for it in made)
        rows = counted(node)
        return rows is not None and self.of(rows) in DEALT

    def _settle(self, test: ast.expr) -> None:
        """Have a condition ask for sums over the whole batch."""
        for part in compared(test):
            if self.of(part) in ADDITIVE and id(part) not in self.whole:
                self.combine("sum", part)

    def _is_settled(self, test: ast.expr, frame: Frame) -> bool:
        # a number, or a batch, is one on every rank, or none yet
        there = (*NUMBERS, *DEALT) if self.context.asks_identity(test) else PLAIN
        return self.value(test, frame) in PLAIN or all(
            self._is_number_of_all(part) or self.value(part, frame) in (*there, Kind.WHOLE)
            for part in self.compared_in(test, frame)
        )

    def _is_number_of_all(self, node: ast.expr) -> bool:
        combined = self.combined.get(id(node))
        return combined is not None and combined.kind != "rows"

    def meets(self, node: ast.expr) -> bool:
        """Whether every process comes to a place in the training, once for each batch or for what comes after it."""
        self.refuel()  # these are questions of their own
        return not self.evaluates(node) and self._is_alike(node, OPEN) and not self._is_looped(node)

    def _is_looped(self, node: ast.expr) -> bool:
        """Whether a comprehension, or a loop over samples, stands round a place, within the loop over batches."""
        batches = {id(loop.node) for loop in self._loops}
        inside: ast.AST = node
        for around in self.program.ancestors(node):
            inside, before = around, inside
            if isinstance(around, COMPREHENSIONS):
                once = self.program.is_inside(node, around.generators[0].iter)
                made = not isinstance(before, ast.comprehension) and self._is_gone_through(around)
                if not once and not made:
                    return True
            if id(around) in batches:
                return False
            if isinstance(around, ast.For) and before is not around.iter:
                drawn = self.drawn_in(around.iter, OPEN)
                if kinds.tensor(drawn, around.iter) is Kind.EACH or (
                    isinstance(drawn, Unclear)
                    and not self._is_loader(around.iter)
                    and is_of_round(self.context, around.iter, self.rounds)
                ):
                    return True
            if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
                return False
        return False

    def _is_gone_through(self, node: ast.expr) -> bool:
        """Whether a comprehension goes through what every process has as much of: ``for name in metrics``.

        What a generator makes is made where something takes it, which may be one process alone.
        """
        if isinstance(node, ast.GeneratorExp) and not isinstance(self.program.parent(node), ast.Call):
            return False
        return all(
            not part.ifs and kinds.tensor(self.drawn_in(part.iter, OPEN), part.iter) in (*NUMBERS, Kind.WHOLE)
            for part in node.generators  # type: ignore[attr-defined]
        )

    def _is_loader(self, source: ast.expr) -> bool:
        return bool(self.context.made(self.context.iterated(self.program.values(source)), LOADER))

    def is_whole(self, node: ast.AST) -> bool:
        """Whether something is the whole batch's, or has nothing to do with its samples."""
        if id(node) in self.whole:
            return True
        if isinstance(node, ast.Call):
            return bool(self.program.entered(node)) and self.of(node) is Kind.WHOLE
        plain = isinstance(node, ast.Name | ast.Attribute | ast.Subscript)
        plain = plain or (isinstance(node, COMPREHENSIONS) and self._is_gone_through(node))
        if isinstance(node, ast.Compare):  # of the sizes of one batch's tensors
            sized = self.of(node.left) in (Kind.COUNT, Kind.SHAPE)
            return sized and self.of(node) is Kind.SAME
        return plain and kinds.tensor(self.of(node), node) in (*PLAIN, Kind.WHOLE)  # type: ignore[arg-type]

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
        self.refuel()
        return self._is_settled(test, OPEN)

    def is_averaged(self, node: ast.expr) -> bool:
        """Whether an expression is a loss of this process's part."""
        return self.of(node) in AVERAGED or (self.of(node) is Kind.HANDED and self.is_trained(node))

    def is_of_replicas(self, node: ast.expr) -> bool:
        """Whether something is computed of numbers that the model has handed out, other than their mean.

        With nn.DataParallel they are a vector of the replicas': ``correct.sum()``, ``torch.stack(losses)``.
        """
        if self.of(node) is not Kind.OWN or not self._is_vector(node):
            return False
        inside: ast.AST = node
        while True:
            around = self.program.parent(inside)
            match around:
                case ast.Attribute(attr=method):
                    call = self.program.parent(around)
                    if (
                        not isinstance(call, ast.Call)
                        or call.func is not around
                        or method in AVERAGING | LEAVES_TORCH
                    ):
                        return False
                    if method not in HANDS_NUMBERS_ON:
                        return True
                    inside = call
                case ast.List() | ast.Tuple():
                    inside = around
                case ast.Call() if inside in around.args:
                    names = self.program.names_of(around)
                    return (
                        bool(names) and all(it.startswith("torch.") for it in names) and not names & AVERAGING
                    )
                case _:
                    return False

    def _is_vector(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether a number that the model hands out has not been averaged yet, wherever it is from."""
        if any(isinstance(it, ast.Attribute) and it.attr in AVERAGING for it in ast.walk(node)) or depth > 4:
            return False
        names = [it for it in ast.walk(node) if isinstance(it, ast.Name) and self.of(it) is Kind.OWN]
        made = [(it, self.program.source(it)) for name in names for it in self.program.definitions(name)]
        return bool(made) and all(
            is_output(self.context, it) or (of.plain is not None and self._is_vector(of.plain, depth + 1))
            for it, of in made
        )

    def peeled(self, node: ast.expr) -> ast.expr:
        """The tensor that a number, or a tensor without graph, is made of."""
        match node:
            case ast.Call(func=ast.Attribute(value=inner, attr=method), args=[]) if method in WITHOUT_GRAPH:
                return self.peeled(inner)
            case ast.Call(args=[inner]) if "builtins.float" in self.program.names_of(node):
                return self.peeled(inner)
            case ast.Attribute(value=inner, attr="data"):
                return self.peeled(inner)
            case ast.Subscript(value=inner, slice=ast.Constant(value=0)) if self.of(inner) in AVERAGED:
                return self.peeled(inner)
        return node

    def before_index(self, node: ast.expr) -> ast.expr:
        """What an index takes one of that may be a sample, or an entry of a structure: the whole batch has either.

        Also where it is moved, or without its graph, then: ``outputs[0].cpu()``.
        """
        inner, found = node, node
        while True:
            match inner:
                case ast.Call(func=ast.Attribute(value=moved, attr=method)) if (
                    method in SAME_OBJECT | WITHOUT_GRAPH
                ):
                    inner = moved
                case ast.Attribute(value=moved, attr="data"):
                    inner = moved
                case ast.Subscript(value=held, slice=index) if written(index) is not None and (
                    is_part(self, held) or self.of(held) is Kind.OUTPUT
                ):
                    inner = found = held
                case _:
                    return found

    def drawn_in(self, source: ast.expr, frame: Frame) -> Value:
        sites = self.context.made(self.context.iterated(self.program.values(source)), LOADER)
        call = self.program.call(source) if isinstance(source, ast.Call) else None
        if call is not None and call.names & RANGES:
            if all(it in (*PLAIN, Kind.WHOLE) for it in self.values(call.node.args, frame)):
                return Kind.SAME
        sharded = self._training - (set() if id(source) in self._draws else self._dealt)
        if sites and not sites & sharded and not (call and "builtins.enumerate" in call.names):
            return Kind.WHOLE
        return super().drawn_in(source, frame)

    def compute(self, node: ast.AST, frame: Frame) -> Value:
        if id(node) in self.whole:
            return Kind.WHOLE
        if (shown := _shown(node)) is not None:
            found = [kinds.tensor(it, node) for it in self.values(shown, frame)]
            if Kind.WHOLE in found and all(it in (*PLAIN, Kind.WHOLE) for it in found):
                return Kind.WHOLE
        return super().compute(node, frame)

    def call(self, node: ast.Call, frame: Frame) -> Value:
        names = self.program.names_of(node)
        if is_runtime(names):
            return Kind.WHOLE
        given = handed(node)
        if isinstance(node.func, ast.Attribute):
            given.append(node.func.value)
        call = self.program.call(node)
        own = call is not None and self.program.entered(node) and not self.context.is_wrapped(call.callees)
        if not own and own_batch(node) is None:  # a rank's part of what all of them have made
            found = [kinds.tensor(value, node) for value in self.values(given, frame)]
            is_model = call is not None and self.context.is_wrapped(self.program.values(node.func))
            is_loss = call is not None and losses.is_any_loss(self.context, call)
            plain = bool(found) and all(value in (*PLAIN, Kind.WHOLE) for value in found)
            if Kind.WHOLE in found and (is_model or is_loss or plain):
                return Kind.WHOLE
            if is_model and plain and call is not None and functional.is_untrained(self.context, call):
                return Kind.WHOLE
        return super(Gathering, self).call(node, frame)

    def attribute(self, node: ast.Attribute, frame: Frame) -> Value:
        value = super().attribute(node, frame)
        if (
            isinstance(value, Unclear)
            and node.attr == "shape"
            and self.value(node.value, frame) is Kind.WHOLE
        ):
            return Kind.WHOLE
        return value


def _shown(node: ast.AST) -> list[ast.expr] | None:
    """What a text is made of: ``f"{name}: {loss}"``, ``"%s: %f" % (name, loss)``; None where it is no text."""
    match node:
        case ast.JoinedStr(values=parts):
            return [it.value for it in parts if isinstance(it, ast.FormattedValue)]
        case ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod(), right=right):
            return [right]
    return None


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


def average_of(value: Value) -> str:
    """How the means of parts average to that of the whole batch."""
    averages = {Kind.MEAN: "samples", Kind.OWN: "parts", Kind.HANDED: "parts"}
    return averages.get(value, "even")  # type: ignore[arg-type]


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
