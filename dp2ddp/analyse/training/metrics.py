"""What a loss is made of, and which numbers of the training are reported."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from dp2ddp.analyse.api.containers import APPENDS, CHANGES, RECORDS_VALUES
from dp2ddp.analyse.api.files import ACTS_ON_FILES, PICTURES, PROGRESS, SAVES, has_known_home
from dp2ddp.analyse.api.layers import BACKWARDS, TRAINS_OR_KEEPS
from dp2ddp.analyse.api.operations import written
from dp2ddp.analyse.api.processes import PRINTS
from dp2ddp.analyse.api.python import SHOWS_PARTS
from dp2ddp.analyse.api.randomness import PERMUTATIONS
from dp2ddp.analyse.api.tensors import ADDS_IN_PLACE, OF_TENSORS
from dp2ddp.analyse.context import Context, once
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.definitions import reaching, right_side
from dp2ddp.analyse.dataflow.forwards import Forwards
from dp2ddp.analyse.dataflow.kinds import BY_SAMPLE, DEALT, PLAIN, Kind
from dp2ddp.analyse.dataflow.samples.follower import Samples
from dp2ddp.analyse.processes.alike import draws
from dp2ddp.analyse.processes.conditions import is_rate
from dp2ddp.analyse.processes.writes import is_line_written, is_write
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.signature import is_spread
from dp2ddp.analyse.program.values import Inst
from dp2ddp.analyse.training import assuming, causes, remedies
from dp2ddp.analyse.training.combining import Combining
from dp2ddp.analyse.training.kept import indices
from dp2ddp.analyse.training.loops import BatchLoop
from dp2ddp.facts import SHARDED_ONLY, Gather, Loss, Number, Obstacle, Problem, Scaled


@dataclass(frozen=True)
class Judged:
    """What the losses of the training are.

    ``losses``: those that parts of a batch can't be trained with. ``gathers``: rows to be gathered for the others;
    ``scaled``: those of them that get a factor.
    ``asked``: what conditions round these ask of a part, and must ask of the whole batch then.
    ``whole``: the expressions that are the whole batch's then, the same in every process, and the ``backward`` calls
    on such. ``fed``: all that losses are made of.
    """

    losses: tuple[Loss, ...]
    gathers: tuple[Gather, ...]
    scaled: tuple[Scaled, ...]
    asked: tuple[ast.expr, ...]
    whole: frozenset[int]
    fed: frozenset[int]


def judge(context: Context, loops: list[BatchLoop]) -> Judged:
    """Which losses are a mean over the samples of a batch, or can be computed from the rows of all processes."""
    samples = Forwards(context)
    found: list[Loss] = []
    gathers: dict[int, Gather] = {}
    scaled: dict[int, Scaled] = {}
    asked: dict[int, ast.expr] = {}
    whole: set[int] = set()
    fed: set[int] = set()
    for node in context.backwards:
        if not context.runs_in_training(node):
            continue
        if not any(loop.trains and id(node) in loop.runs for loop in loops):
            found.append(Loss(**context.place(node)))  # there are no parts: of what, the obstacle says
            continue
        average, problem = _average(context, samples, node)
        if average or problem is None:
            found.append(Loss(**context.place(node), average=average, problem=problem))
            continue
        gathering = Combining(context, loops)
        gathered, uneven = _average(context, gathering, node)
        if is_total := uneven is not None and gathering.total(context.loss(node)):
            uneven = None
        if uneven is None and not gathering.holds():
            gathered, uneven = "", problem
        if uneven is None and gathering.weighs_parameters and (gathering.scaled or gathering.combined):
            found.append(Loss(**context.place(node), problem=_of_parameters(context, context.loss(node))))
            continue
        if uneven is None and gathering.spans_batches and (gathering.scaled or gathering.combined):
            gathered, uneven = "even", _of_batches(context, context.loss(node))
        fed |= gathering.followed
        assumed = False
        if not gathered and uneven is not None:
            trial = assuming.trial(context, loops, node)
            assumes = problem.assumes
            if isinstance(trial, assuming.Trial):
                assumes = trial.assumptions
            elif trial is not None:
                problem, assumes = _average(context, trial, node)[1] or problem, ()
            problem = replace(
                problem, forbids=SHARDED_ONLY, assumes=assumes, gist="the loss needs the whole batch"
            )
            if not isinstance(trial, assuming.Trial):
                found += _apart(context, loops, node, problem)
                continue
            if not context.assumes:
                found.append(Loss(**context.place(node), problem=problem))
                continue
            context.taken.update(trial.samples.taken)
            gathering, assumed = trial.samples, True
            gathered, uneven = _average(context, gathering, node)[0], problem
            fed |= gathering.followed
        found.append(Loss(**context.place(node), average=gathered, problem=uneven, assumed=assumed))
        for call, rows, why in gathering.gathered.values():
            gathers |= {id(row): _gather(context, call, row, why) for row in rows}
        scaled |= {key: _scaled(context, *it) for key, it in gathering.scaled.items()}
        scaled |= {key: _combined(context, *it) for key, it in gathering.combined.items()}
        asked |= gathering.asked
        whole |= gathering.gathered.keys() | gathering.scaled.keys() | gathering.combined.keys()
        if is_total or gathering.of(context.loss(node)) is Kind.WHOLE:
            whole.add(id(node))
    return Judged(
        losses=tuple(found),
        gathers=tuple(gathers.values()),
        scaled=tuple(scaled.values()),
        asked=tuple(asked.values()),
        whole=frozenset(whole),
        fed=frozenset(fed | samples.followed),
    )


def _gather(context: Context, call: ast.Call, row: ast.expr, why: str) -> Gather:
    return Gather(**given_to(context, call, row), why=why, entries=context.lists_are_entries)


def _apart(context: Context, loops: list[BatchLoop], backward: ast.Call, refuted: Problem) -> Iterator[Loss]:
    """A loss that is refuted, and what it is in those programs that give its function what does not refute it."""
    place = context.place(backward)
    left = place["scripts"]
    for program in sorted(left) if len(left) > 1 else ():
        samples = Forwards(context)
        samples.only = program
        average, problem = _average(context, samples, backward)
        assumed = False
        if not average and problem is not None:
            trial = assuming.trial(context, loops, backward, program)
            if not isinstance(trial, assuming.Trial) or trial.samples.gathered or trial.samples.scaled:
                continue  # what is gathered is written where the others run it, too
            problem = replace(problem, forbids=SHARDED_ONLY, assumes=trial.assumptions, gist=refuted.gist)
            if assumed := context.assumes:
                context.taken.update(trial.samples.taken)
                average = _average(context, trial.samples, backward)[0]
        yield Loss(
            **{**place, "scripts": frozenset([program])}, average=average, problem=problem, assumed=assumed
        )
        left -= {program}
    if left or not place["scripts"]:
        yield Loss(**{**place, "scripts": left}, problem=refuted)


def _scaled(context: Context, call: ast.Call, labels: ast.expr | None) -> Scaled:
    criterion, target = (ast.unparse(call.func), ast.unparse(labels)) if labels is not None else ("", "")
    return Scaled(**context.place(call), criterion=criterion, target=target)


def _combined(context: Context, number: ast.expr, kind: Kind) -> Scaled:
    return Scaled(**context.place(number), is_part=True, is_mean=kind is Kind.MEAN)


def given_to(context: Context, call: ast.Call, given: ast.expr) -> dict[str, Any]:
    """Where an argument is, and how a call is given it: by keyword, at a position, or by neither.

    That is how it is given all elements of something, and what it is a method of.
    """
    anchor = context.program.anchor(call)
    if isinstance(given, ast.Starred) or given not in handed(call):
        given = given.value if isinstance(given, ast.Starred) else given
        return {**context.place(given), "call": anchor, "keyword": "", "position": None}
    keyword = next((str(it.arg) for it in call.keywords if it.value is given), "")
    position = None if keyword else call.args.index(given)
    return {**context.place(given), "call": anchor, "keyword": keyword, "position": position}


def _of_parameters(context: Context, loss: ast.expr) -> Problem:
    """What is said of a loss of rows that meet parameters: these weigh no part of the batch, as a forward does."""
    shown = causes.shown(context, loss)
    message = f"the loss `{shown}` uses parameters outside of the model's forward"
    return Problem(message, "use them in the forward", SHARDED_ONLY)


def _of_batches(context: Context, loss: ast.expr) -> Problem:
    """What is said of a loss that is made of the means over parts of several batches, which weigh each otherwise."""
    message = (
        f"the loss `{causes.shown(context, loss)}` combines several batches, whose parts may differ in size"
    )
    return Problem(message, "", SHARDED_ONLY)


def _weight(context: Context, backward: ast.Call, loss: ast.expr) -> ast.expr | None:
    """What the gradient of a loss is multiplied with: ``loss.backward(weight)``."""
    call = context.program.call(backward)
    for name in context.takers(call) if call is not None else ():
        weight = BACKWARDS[name][1]
        return call.argument(weight, 1) if weight else None  # type: ignore[union-attr]
    return None if call is None or loss in backward.args else call.argument("gradient", 0)


def _average(context: Context, samples: Forwards, backward: ast.Call) -> tuple[str, Problem | None]:
    """How the losses of parts average to that of the whole batch, and what is in the way of it."""
    loss = context.loss(backward)
    shown = causes.shown(context, loss)
    whole = context.assumption(loss, f"the loss `{shown}` is a mean over the samples of the batch")
    uneven = Problem(causes.unknown(context, loss, inside=True), "", SHARDED_ONLY, assumes=(whole,))
    given = [*backward.args, *(it for it in backward.keywords if it.arg == "gradient")]
    is_number = loss in given or not given
    weight = _weight(context, backward, loss)
    if weight is not None and kinds.tensor(samples.of(weight), weight) not in PLAIN:
        return "", Problem(
            f"the loss `{shown}` is multiplied by `{ast.unparse(weight)}`, a value of the local batch",
            "",
            SHARDED_ONLY,
        )
    match samples.of(loss):
        case Kind.WHOLE | Kind.SAME | Kind.ZERO:
            return "", None
        case Kind.MEAN | Kind.OWN if samples.weighs_parameters:
            return "even", _of_parameters(context, loss)
        case Kind.MEAN | Kind.OWN if samples.spans_batches:
            return "even", _of_batches(context, loss)
        case Kind.MEAN:
            return "samples", None
        case Kind.OWN:
            return "parts", uneven
        case Kind.OUTPUT | Kind.HANDED if is_number:
            return "parts", uneven
        case Kind.EITHER | Kind.EVEN:
            return "even", uneven
        case Kind.TOTAL:
            return "", Problem(
                f"the loss `{shown}` is a sum over the samples, not a mean",
                "divide it by the batch size, and adapt the learning rate",
            )
    return "", causes.of_loss(context, samples, backward)


def obstacles(context: Context, loops: list[BatchLoop]) -> Iterator[Obstacle]:
    """Samples of a batch mixed with each other while training."""
    training = set().union(*(loop.runs for loop in loops if loop.trains))
    training -= context.runs_before_own | context.joined.behind
    samples = Samples(context)
    for call in context.program.calls:
        if id(call.node) in training and call.names & PERMUTATIONS:
            same = all(samples.of(it) is Kind.SAME for it in handed(call.node))
            if same if context.whole_loaders else not _has_samples(samples, call.node):
                continue  # what is made of a part is seen where it is indexed
            yield context.obstacle(
                call.node,
                f"`{ast.unparse(call.node)}` permutes the samples of the batch: if sharded, a rank has only its own",
                "",
                SHARDED_ONLY,
                gist="samples are permuted",
            )


def _has_samples(samples: Samples, node: ast.AST) -> bool:
    """Whether the function round a place has anything of a batch."""
    body = samples.program.body(samples.program.scope(node))
    return any(isinstance(it, ast.expr) and samples.of(it) in (*BY_SAMPLE, Kind.COUNT) for it in body)


def picked(context: Context, loops: list[BatchLoop], samples: Samples) -> Iterator[ast.Subscript]:
    """Where samples of a batch are taken by their number in it: a part has others there, or none.

    The first is that of the main process's part, too.
    """
    training = set().union(*(loop.runs for loop in loops if loop.trains))
    training -= set().union(*(loop.runs for loop in loops if not loop.trains))
    for node in context.program.nodes.values():
        if (
            not isinstance(node, ast.Subscript)
            or not isinstance(node.ctx, ast.Load)
            or id(node) not in training
        ):
            continue
        several = isinstance(node.slice, ast.Tuple) and len(node.slice.elts) > 1
        place = node.slice.elts[0] if several else node.slice  # type: ignore[attr-defined]
        if written(place) not in (None, 0) and _has_rows(samples, node.value, several):
            yield node


def numbered(context: Context, loops: list[BatchLoop], whole: frozenset[int]) -> Iterator[Obstacle]:
    """Samples of a local batch that are taken by their number in it; ``whole``: what is the whole batch's."""
    for node in picked(context, loops, Samples(context)):
        if id(node.value) not in whole:
            yield context.obstacle(
                node,
                f"`{ast.unparse(node)}` takes a sample by index: if sharded, a rank has only its own",
                "take `[0]`, if any sample will do",
                SHARDED_ONLY,
            )


def _has_rows(samples: Samples, node: ast.expr, is_tensor: bool) -> bool:
    """Whether an expression is a tensor with a row for each sample, and no list of such."""
    value = samples.of(node)
    if value is Kind.ROWS or (value in DEALT and is_tensor):
        return True
    if value not in DEALT or not isinstance(node, ast.Name):
        return False
    program = samples.program
    made = reaching(samples.context, node)
    names = (it for it in program.body(program.scope(node)) if isinstance(it, ast.Name) and it.id == node.id)
    asked = [program.parent(it) for it in names if made == reaching(samples.context, it)]
    given = [right_side(program.statement(it), it) for it in made if not isinstance(it, ast.arg)]
    asked += [it.func for it in given if isinstance(it, ast.Call)]
    return any(isinstance(it, ast.Attribute) and it.attr in OF_TENSORS for it in asked)


# Numbers that are reported


class Known(Protocol):
    """What is known of the numbers of the training loop: ``reports.Reports``."""

    is_whole: Callable[[ast.AST], bool]
    is_settled: Callable[[ast.expr], bool]
    values: Samples


def measured(
    context: Context, loops: list[BatchLoop], reports: Known, gathers: tuple[Gather, ...]
) -> tuple[Number, ...]:
    """Reports of what the training loop measured: each rank's numbers speak of its own part of the batches.

    ``reports`` says what is the whole batch's all the same, and which conditions all ranks answer alike; what is given
    by ``gathers`` is, too.
    """
    program = context.program
    follow, reporters = _Followed(context, reports), reporters_of(context)
    waiting: list[tuple[Scope, set[int]]] = []
    for loop in loops:
        if loop.trains and (isinstance(loop.node, ast.For) or loop.pulls is not None):
            within = [it for it in loops if not it.trains and id(it.node) in loop.runs]
            runs = _runs_apart(context, loop, within)
            follow.trained |= runs
            waiting += follow.measured(loop, runs)
    follow.evaluated = set().union(*(it.runs for it in loops if not it.trains)) - follow.trained
    found: dict[int, Number] = {}
    entered: dict[int, set[int]] = {}
    whole, rows = {it.call for it in gathers}, {it.at for it in gathers}
    while waiting:
        scope, names = waiting.pop()
        if scope.index in entered and names <= entered[scope.index]:
            continue
        entered.setdefault(scope.index, set()).update(names)
        before = set(follow.known)
        follow.known |= names
        follow.spread(scope)
        waiting += follow.readers(follow.known - before)
        for node in program.body(scope):
            if isinstance(node, ast.Call) and (what := follow.given(node) or follow.shown(node)):
                if program.anchor(node) in whole:
                    others = (it for it in handed(node) if program.anchor(it) not in rows)
                    what = next(filter(None, map(follow.mentioned, others)), "")
                if what and reporters.has(node):
                    statement = program.statement(node)
                    kept = _is_object(context, statement, what)
                    told = remedies.told(context, statement, what, kept)
                    number = Number.left(what, kept=kept, told=told, **context.place(statement))
                    if reporters.only_pictures(node):
                        number = number.as_picture
                    found.setdefault(id(statement), number)
            elif isinstance(node, ast.Return) and node.value is not None and follow.mentioned(node.value):
                for receiver, names in follow.receivers(scope.index, node.value):
                    if follow.holding(node.value) is follow.handed:
                        follow.handed |= names
                    waiting.append((receiver, names))
    return tuple(sorted(found.values(), key=lambda number: (number.path, number.at.span)))


def _runs_apart(context: Context, loop: BatchLoop, within: list[BatchLoop]) -> frozenset[int]:
    """What a training loop runs, but for what only evaluation loops ``within`` do."""
    program = context.program
    evaluated = frozenset().union(*(it.runs for it in within))
    inner = {id(node) for it in within for node in ast.walk(it.node)}
    outer = {id(node) for node in ast.walk(loop.node)} - inner
    kept: set[int] = set()
    while True:
        new = {
            index
            for index, callers in program.callers.items()
            if index not in kept
            and any(
                id(call.node) in outer
                or (id(call.node) in loop.runs - inner and program.scope(call.node).index in kept)
                for call, _ in callers
            )
        }
        if not within or not new:
            break
        kept |= new
    return frozenset(
        key
        for key in loop.runs
        if key not in evaluated
        or (key in program.nodes and key not in inner and program.scope(program.nodes[key]).index in kept)
    )


def _is_object(context: Context, statement: ast.stmt, what: str) -> bool:
    """Whether what a statement shows by a name is an object of the project's, or of a library: a meter."""
    shown = (
        it
        for it in ast.walk(statement)
        if isinstance(it, ast.Name | ast.Attribute) and ast.unparse(it) == what
    )
    values = (value for it in shown for value in context.program.values(it))
    return any(isinstance(it, Inst) and not context.module_class(it) for it in values)


def deciding(context: Context, node: ast.AST, tells: Callable[[ast.AST], bool]) -> list[ast.expr]:
    """The expressions by which a statement lets a loop end early, sets the optimizer's state, or is shown.

    ``tells``: whether something reports.
    """
    if isinstance(node, ast.Return) and context.program.scope(node).index in context.closures:
        return [] if node.value is None else [node.value]
    if isinstance(node, ast.If | ast.While):
        leaves = any(
            isinstance(inner, ast.Break | ast.Continue | ast.Return | ast.Raise)
            or is_rate(context, inner)
            or (isinstance(inner, ast.Call) and context.method(inner) in TRAINS_OR_KEEPS)
            or tells(inner)
            or ((call := context.program.call(inner)) is not None and draws(call))
            for part in (*node.body, *node.orelse)
            for inner in context.program.descendants(part)
        )
        keeps = any(isinstance(it, ast.Assign | ast.AugAssign) for it in node.body)
        return [node.test] if leaves or keeps or isinstance(node, ast.While) else []
    if isinstance(node, ast.Assert):
        around = context.program.ancestors(node)
        return [node.test] if any(isinstance(it, ast.Try) and it.handlers for it in around) else []
    if isinstance(node, ast.Call) and _method(node) == "step":
        return list(node.args)
    if isinstance(node, ast.Assign | ast.AugAssign) and is_rate(context, node):
        return [node.value]
    return []


def _sources(iterated: ast.expr) -> list[ast.expr]:
    """What a loop takes its elements of, one after the other; not the entries that stand there: `(loss, other)`."""
    if isinstance(iterated, ast.Call):
        given = iterated.args if isinstance(iterated.func, ast.Name) else [iterated]
        return [it for it in given if not isinstance(it, ast.Tuple | ast.List)]
    return [] if isinstance(iterated, ast.Tuple | ast.List) else [iterated]


def _method(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


def is_report(context: Context, node: ast.Call) -> bool:
    """Whether a call prints, logs or writes."""
    return is_picture(context, node) or _is_told(context, node)


def is_picture(context: Context, node: ast.Call) -> bool:
    """Whether a call makes a picture of samples, or saves one."""
    call = context.program.call(node)
    return call is not None and any(is_write(name) and name.endswith(PICTURES) for name in call.names)


def _is_told(context: Context, node: ast.Call) -> bool:
    call = context.program.call(node)
    if call is None:
        return False
    return (
        is_line_written(context, call)
        or _is_for_unknown(context, call)
        or any(
            name in PRINTS | SAVES
            or name.startswith("logging.")
            or (is_write(name) and not name.startswith(ACTS_ON_FILES) and not name.endswith(PICTURES))
            or name.endswith(PROGRESS)
            for name in call.names
        )
    )


def _is_for_unknown(context: Context, call: Call) -> bool:
    """Whether a call gives something to code that is not at hand, for nothing in return: that may show or keep it.

    Not a backward pass, whose loss is the rank's own.
    """
    if not isinstance(context.program.parent(call.node), ast.Expr) or not is_unknown(context, call):
        return False
    return all(it is not call.node for it in context.backwards)


def is_unknown(context: Context, call: Call) -> bool:
    """Whether a call runs code that is not at hand, of a package or module that nothing is known of."""
    named = call.names or (not call.callees and isinstance(call.node.func, ast.Name))
    if not named or has_known_home(call.names):
        return False
    return not context.program.entered_itself(call.node)


class Reporters:
    """Which calls report: those that print, log or write, and those of the project's functions that do."""

    def __init__(self, context: Context) -> None:
        self._program = context.program
        self._context = context
        forwards = [
            it.node for it in self._program.calls if context.is_wrapped(self._program.values(it.node.func))
        ]
        self._training = {self._program.scope(call).index for call in (*context.backwards, *forwards)}
        told, pictured = (
            {self._program.scope(it.node).index for it in self._program.calls if reports(context, it.node)}
            for reports in (_is_told, is_picture)
        )
        self._telling, self._reporting = told, told | pictured

    def has(self, node: ast.AST) -> bool:
        """Whether a node is such a call; what runs the model reports for itself."""
        if not isinstance(node, ast.Call):
            return False
        entered = self._program.entered_itself(node)
        return is_report(self._context, node) or (
            bool(entered & self._reporting) and not entered & self._training
        )

    def only_pictures(self, node: ast.Call) -> bool:
        """Whether all that such a call does is to make or save pictures."""
        entered = self._program.entered_itself(node)
        return not _is_told(self._context, node) and not entered & self._telling


@once
def reporters_of(context: Context) -> Reporters:
    """Those of some programs."""
    return Reporters(context)


class _Followed:
    """What the training loop measured, followed from one assignment to the next.

    ``known``: the definitions that hold such a number. ``whole``: what is the whole batch's. ``settled``: the
    conditions that all ranks answer alike.
    """

    def __init__(self, context: Context, reports: Known) -> None:
        self.program = context.program
        self.context = context
        self.whole = reports.is_whole
        self.settled = reports.is_settled
        self._values = reports.values
        self.known: set[int] = set()
        self.counted: set[int] = set()  # those of them that are counted sample by sample, or set if
        self.handed: set[int] = set()  # and those that come from an object that was given one
        self.rows: set[int] = set()  # those that hold samples of a batch, or what is computed of them
        self.trained: set[int] = set()  # what training loops run
        self.evaluated: set[int] = set()  # what evaluation loops alone do

    def measured(self, loop: BatchLoop, runs: frozenset[int]) -> list[tuple[Scope, set[int]]]:
        """Where a training loop, and each function that it runs, is given its losses and outputs.

        ``runs`` is what it runs itself, no evaluation within it.
        """
        if loop.pulls is None:
            self.rows |= self._bound([self._taken(loop.node)])  # type: ignore[arg-type]
        else:
            self.rows |= self._bound(getattr(self.program.statement(loop.pulls), "targets", []))
        found: dict[int, set[int]] = defaultdict(set, {self.program.scope(loop.node).index: set()})
        for backward in self.context.backwards:
            if id(backward) in runs and not self.whole(backward):
                found[self.program.scope(backward).index] |= self._held(self.context.loss(backward))
        for it in self.program.calls:
            if id(it.node) in runs and self.context.is_wrapped(self.program.values(it.node.func)):
                statement = self.program.parent(it.node)
                named = isinstance(statement, ast.Assign) and statement.value is it.node
                targets = statement.targets if named else []  # type: ignore[union-attr]
                if isinstance(statement, ast.NamedExpr):
                    targets = [statement.target]
                bound = self._bound(targets) if targets else {id(it.node)}
                found[self.program.scope(it.node).index] |= bound
        return [(self.program.scopes[index], names) for index, names in found.items()]

    def _taken(self, loop: ast.For) -> ast.expr:
        """What a loop takes one after the other, without the number that ``enumerate`` gives it."""
        call = self.program.call(loop.iter)
        counted = call is not None and "builtins.enumerate" in call.names
        return loop.target.elts[-1] if counted and isinstance(loop.target, ast.Tuple) else loop.target

    def _pairs(self, loop: ast.For) -> list[tuple[ast.expr, ast.expr]]:
        """What a loop takes one after the other, and of what: each for itself where it takes of several at once."""
        target, source = self._taken(loop), loop.iter
        call = self.program.call(source)
        if target is not loop.target and isinstance(source, ast.Call) and source.args:
            source = source.args[0]
            call = self.program.call(source)
        if call is not None and call.names == {"builtins.zip"} and isinstance(target, ast.Tuple):
            if len(target.elts) == len(call.node.args) and not is_spread(call.node):
                return [*zip(target.elts, call.node.args, strict=True)]
        return [(target, source)]

    def spread(self, scope: Scope) -> None:
        """Follow measured values through the assignments of a function, and into the meters they are given to."""
        while True:
            before = len(self.known) + len(self.rows)
            for node in self.program.body(scope):
                if isinstance(node, ast.Assign) and self.mentioned(node.value):
                    self.holding(node.value).update(self._bound(node.targets))
                    for target in node.targets:
                        if isinstance(target, ast.Subscript):  # `fields[name] = loss` of `fields = vars(it)`
                            owners = self.program.namespaces(target.value)
                            self.handed |= set().union(*map(self._held, owners))
                call = self.program.call(node)
                if call is not None and call.sets_attribute and self.given(call.node):
                    self.handed |= self._held(call.node.args[0])  # `setattr(it, name, loss)`
                if isinstance(node, ast.Assign) and self._is_by_sample(node.value):
                    self.rows |= self._bound(node.targets)
                if isinstance(node, ast.Assign):
                    if self._is_chosen(node) or any(map(self._is_placed, node.targets)):
                        self.counted |= self._bound(node.targets)
                if isinstance(node, ast.AugAssign):
                    if self.mentioned(node.value) or self._defined(node.target) & self.known:
                        self.known |= self._bound([node.target])
                    elif isinstance(node.target, ast.Subscript) and (
                        self._is_placed(node.target) or self._is_each(node)
                    ):
                        self.counted |= self._bound([node.target])
                    elif self._is_chosen(node):
                        self.counted |= self._bound([node.target])
                    elif self._is_each(node) or self._is_of_part(node.value):
                        self.known |= self._bound([node.target])
                for target, source in self._pairs(node) if isinstance(node, ast.For) else ():
                    if self._hands_samples(source):
                        self.rows |= self._bound([target])
                    if self.mentioned(source):
                        self.holding(source).update(self._bound([target]))
                if isinstance(node, ast.Call) and self._records(node) and self.given(node):
                    keeper: ast.expr = node.func.value  # type: ignore[attr-defined]
                    is_object = any(isinstance(it, Inst) for it in self.program.values(keeper))
                    kept = self.handed if is_object else self.holding(*handed(node))
                    kept.update(self._held(keeper))
                if (
                    isinstance(node, ast.Call)
                    and _method(node) in CHANGES
                    and (
                        self._is_chosen(node)
                        or (_method(node) in APPENDS and any(map(self._is_of_part, handed(node))))
                    )
                ):
                    self.counted |= self._held(node.func.value)  # type: ignore[attr-defined]
                if isinstance(node, ast.Call) and _method(node) in ADDS_IN_PLACE:
                    if any(map(self._is_by_sample, node.args)):
                        self.counted |= self._held(node.func.value)  # type: ignore[attr-defined]
            self.known |= self.counted | self.handed
            if len(self.known) + len(self.rows) == before:
                return

    def holding(self, *nodes: ast.expr) -> set[int]:
        """Where a name is noted that gets some of a few expressions: what an object holds no value tells of."""
        return self.handed if any(self._uses(it, self.handed) for it in nodes) else self.known

    def _records(self, node: ast.Call) -> bool:
        """Whether a method keeps what it is given: by its name, or because it puts that into its object."""
        if _method(node) in RECORDS_VALUES:
            return True
        if not isinstance(node.func, ast.Attribute) or self.program.entered_itself(node) & self._trainers:
            return False
        for index in self.program.called_scopes(node):
            scope = self.program.scopes[index]
            me, *given = scope.params or ("",)
            for inner in self.program.body(scope) if given else ():
                targets = getattr(inner, "targets", None) or [getattr(inner, "target", None)]
                if (
                    isinstance(inner, ast.Call) and _method(inner) in RECORDS_VALUES
                ):  # `self.rows.append(value)`
                    targets = [inner.func.value]  # type: ignore[attr-defined]
                kept = any(
                    isinstance(it, ast.Attribute) and isinstance(it.value, ast.Name) and it.value.id == me
                    for it in targets
                )
                if kept and isinstance(inner, ast.Assign | ast.AugAssign | ast.Call):
                    values = handed(inner) if isinstance(inner, ast.Call) else [inner.value]
                    names = {it.id for value in values for it in ast.walk(value) if isinstance(it, ast.Name)}
                    if names & {*given}:
                        return True
        return False

    def _is_by_sample(self, node: ast.expr) -> bool:
        """Whether an expression is another for each sample of a batch."""
        return self._uses(node, self.rows | self.known)

    def _hands_samples(self, iterated: ast.expr) -> bool:
        """Whether a loop takes samples of the local batch, and not of the rows of all ranks."""
        return self._is_by_sample(iterated) and not self._is_made_of_whole(iterated)

    def _is_placed(self, target: ast.expr) -> bool:
        """Whether an entry is found by something of a sample; bounds that count the rows of all ranks are not."""
        for place in indices(target):
            is_bound = isinstance(self.program.parent(place), ast.Slice)
            if self._is_by_sample(place) and not (is_bound and self._is_made_of_whole(place)):
                return True
        return False

    def _is_made_of_whole(self, node: ast.AST) -> bool:
        """Whether what an expression is computed of is the whole batch's."""
        own = self._defined(node)
        if own & self.counted or isinstance(node, ast.expr) and self.whole(node):
            return not own & self.counted
        return not own & (self.rows | self.known) and all(
            map(self._is_made_of_whole, ast.iter_child_nodes(node))
        )

    def _is_each(self, statement: ast.AugAssign) -> bool:
        """Whether something is added for each sample of a part, where a loop takes one after the other."""
        if self.whole(statement.value):
            return False
        for around in self.program.ancestors(statement):
            if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
                return False
            if isinstance(around, ast.For) and any(map(self._hands_samples, _sources(around.iter))):
                return True
        return False

    def _is_of_part(self, node: ast.expr) -> bool:
        """Whether an expression is made of samples, and another in each part."""
        if not self._uses(node, self.rows) or self._is_made_of_whole(node):
            return False
        return kinds.tensor(self._values.of(node), node) not in (*PLAIN, Kind.WHOLE)

    def _is_chosen(self, statement: ast.AST) -> bool:
        """Whether a condition that each rank answers by its part decides if something is counted."""
        inside: ast.AST = statement
        for around in self.program.ancestors(statement):
            if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
                return False
            if isinstance(around, ast.If) and inside is not around.test:
                if self._is_by_sample(around.test) and not self.settled(around.test):
                    return True
            inside = around
        return False

    def _uses(self, node: ast.AST, definitions: set[int]) -> bool:
        return any(self._defined(it) & definitions for it in ast.walk(node))

    def mentioned(self, node: ast.AST) -> str:
        """The first measured name that an expression uses for its value, not only for its size or for being there."""
        own = self._defined(node) & self.known
        if id(node) in self.known and isinstance(node, ast.Call):
            return ast.unparse(node)
        sure = self.counted | self.handed
        if own & sure or own and not self.whole(node):
            return ast.unparse(node)
        if isinstance(node, ast.Name):
            return ""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len":
            is_own = (
                self._uses(node, self.rows) and not self.whole(node) and self._values.of(node) not in PLAIN
            )
            return ast.unparse(node) if is_own or self._uses(node, sure) else ""
        if self.context.asks_identity(node) or isinstance(node, ast.expr) and self.whole(node):
            if not self._uses(node, sure):
                return ""
        children = ast.iter_child_nodes(node)
        return next((found for child in children if (found := self.mentioned(child))), "")

    def given(self, node: ast.Call) -> str:
        """The first measured name that a call is given."""
        given = handed(node)
        return next((found for part in given if (found := self.mentioned(part))), "")

    def shown(self, node: ast.Call) -> str:
        """What of a call's arguments, and of the texts that it formats, is made of the samples of a part."""
        waiting = list(handed(node))
        if isinstance(node.func, ast.Attribute):
            waiting.append(node.func.value)
        while waiting:
            part = waiting.pop(0)
            match part:
                case ast.JoinedStr(values=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
                    waiting += parts
                case ast.Dict(values=parts):
                    waiting += parts
                case ast.FormattedValue(value=inner) | ast.Starred(value=inner):
                    waiting.append(inner)
                case ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod(), right=inner):
                    waiting.append(inner)
                case ast.BinOp(left=left, right=right) if not self.whole(part):
                    waiting += (left, right)
                case ast.Call(func=ast.Attribute(value=ast.Constant(value=str()))):
                    waiting += handed(part)
                case ast.Call() if (
                    (call := self.program.call(part)) and call.names & SHOWS_PARTS and not self.whole(part)
                ):
                    waiting += handed(part)
                case _ if self._is_of_part(part):
                    return ast.unparse(part)
        return ""

    def receivers(self, scope: int, returned: ast.expr) -> Iterator[tuple[Scope, set[int]]]:
        """Where callers put measured return values."""
        program = self.program
        for call in self.context.callers.get(scope, ()):
            if id(call) in self.evaluated:
                continue
            parent = program.parent(call)
            if not isinstance(parent, ast.Assign) or parent.value is not call:
                yield program.scope(call), {id(call)}  # in an expression: `print(train(epoch))`
                continue
            target = parent.targets[0]
            if (
                isinstance(target, ast.Tuple)
                and isinstance(returned, ast.Tuple)
                and len(target.elts) == len(returned.elts)
            ):
                pairs = zip(target.elts, returned.elts, strict=True)
                names = self._bound([name for name, value in pairs if self.mentioned(value)])
            else:
                names = self._bound([target])
            yield program.scope(parent), names

    def readers(self, definitions: set[int]) -> Iterator[tuple[Scope, set[int]]]:
        """The functions that ask for attributes which were given measured values."""
        for key in definitions & self._asking.keys():
            yield from ((self.program.scopes[index], {key}) for index in self._asking[key])

    @cached_property
    def _trainers(self) -> set[int]:
        """The functions that run a wrapped model, or a backward pass."""
        wrapped = (it.node for it in self.program.calls if self.context.is_wrapped(it.callees))
        return {self.program.scope(it).index for it in (*self.context.backwards, *wrapped)}

    @cached_property
    def _asking(self) -> dict[int, set[int]]:
        """The functions that ask for what defines an attribute."""
        found: dict[int, set[int]] = defaultdict(set)
        for node in self.program.nodes.values():
            if isinstance(node, ast.Attribute) and self.context.runs_in_training(node):
                for key in self._defined(node) if isinstance(node.ctx, ast.Load) else ():
                    found[key].add(self.program.scope(node).index)
        return found

    def _defined(self, node: ast.AST) -> set[int]:
        """What gives a name, or an object's attribute, its value."""
        if isinstance(node, ast.Attribute) and not self.program.values(node.value):
            return self._stored[node.attr]
        if isinstance(node, ast.Name) and node.id != "self" or isinstance(node, ast.Attribute):
            return {id(definition) for definition in self.program.definitions(node)}
        return set()

    @cached_property
    def _stored(self) -> dict[str, set[int]]:
        """What defines attributes, by their names: an object that is not followed may have any of them."""
        found: dict[str, set[int]] = defaultdict(set)
        for node in self.program.nodes.values():
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found[node.attr].add(id(node))
        return found

    def _held(self, holder: ast.expr) -> set[int]:
        """What a method's object is kept in: ``meters`` of ``meters[name].update(…)``."""
        while isinstance(holder, ast.Subscript):
            holder = holder.value
        return self._defined(holder)

    def _bound(self, targets: list[ast.expr]) -> set[int]:
        """What an assignment defines, with the objects that it changes: none of those that an index is made of."""
        names = [
            it
            for target in targets
            for it in _outside_indices(target)
            if isinstance(it, ast.Name | ast.Attribute)
        ]
        stored = {id(node) for node in names if isinstance(node.ctx, ast.Store)}
        return stored.union(*(self._defined(node) for node in names if isinstance(node.ctx, ast.Load)))


def _outside_indices(node: ast.AST) -> Iterator[ast.AST]:
    """A target with all that it is made of, but for indices: `kept[epoch + 1]`."""
    yield node
    for inner in ast.iter_child_nodes(node):
        if not (isinstance(node, ast.Subscript) and inner is node.slice):
            yield from _outside_indices(inner)
