"""What a loss is made of, and which numbers of the training are reported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dp2ddp.analyse.conditions import assigned
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.effects import is_write
from dp2ddp.analyse.gathering import Gathering
from dp2ddp.analyse.kinds import Kind, Unclear
from dp2ddp.analyse.link import Scope
from dp2ddp.analyse.loops import BatchLoop
from dp2ddp.analyse.samples import Samples
from dp2ddp.facts import SHARDED_ONLY, Gather, Loss, Number, Obstacle, Problem


@dataclass(frozen=True)
class Judged:
    """What the losses of the training are.

    ``losses``: those that parts of a batch can't be trained with. ``gathers``: rows to be gathered for the others.
    ``whole``: the expressions that are the whole batch's then, the same in every process, and the ``backward`` calls
    on such.
    """

    losses: tuple[Loss, ...]
    gathers: tuple[Gather, ...]
    whole: frozenset[int]


def judge(context: Context, loops: list[BatchLoop]) -> Judged:
    """Which losses are a mean over the samples of a batch, or can be computed from the rows of all processes."""
    samples = Samples(context)
    found: list[Loss] = []
    gathers: dict[int, Gather] = {}
    whole: set[int] = set()
    for node in context.backwards:
        if not context.runs_in_training(node):
            continue
        problem = _reason(context, samples, node)
        if problem is None:
            continue
        gathering = Gathering(context, loops)
        drawn = any(loop.trains and id(node) in loop.runs for loop in loops)
        if drawn and _reason(context, gathering, node) is None:
            for call, rows in gathering.gathered.values():
                gathers |= {id(row): _gather(context, call, row) for row in rows}
            whole |= gathering.gathered.keys()
            if gathering.of(context.loss(node)) is Kind.WHOLE:
                whole.add(id(node))
        else:
            found.append(Loss(**context.place(node), problem=replace(problem, forbids=SHARDED_ONLY)))
    return Judged(tuple(found), tuple(gathers.values()), frozenset(whole))


def _gather(context: Context, call: ast.Call, row: ast.expr) -> Gather:
    keyword = next((str(it.arg) for it in call.keywords if it.value is row), "")
    position = None if keyword else call.args.index(row)
    anchor = context.program.anchor(call)
    return Gather(**context.place(row), call=anchor, keyword=keyword, position=position)


def _reason(context: Context, samples: Samples, backward: ast.Call) -> Problem | None:
    """Why a loss is no mean over samples; None if it is one."""
    loss = context.loss(backward)
    shown = ast.unparse(_said(context, loss))
    unknown = f"the loss `{shown}` can't be shown to be a mean over the samples of the batch"
    match samples.of(loss):
        case Kind.MEAN | Kind.WHOLE | Kind.SAME | Kind.ZERO:
            return None
        case Kind.OUTPUT:
            return None  # one number, the model's own loss: each replica's is that of its part
        case Kind.TOTAL:
            return Problem(
                f"the loss `{shown}` is a sum over the samples of the batch: those of its parts don't average to it",
                "use a mean (and scale the learning rate)",
            )
        case Unclear(problem=Problem() as problem):
            return problem
        case Unclear(place=place) if ast.unparse(place) not in shown and id(place) in context.program.file_of:
            at = context.program.location(place)
            unknown += f", because of `{ast.unparse(place)}` in {at.path.name}:{at.span.line}"
    return Problem(unknown, "use a mean-reduced loss of torch.nn")


def _said(context: Context, node: ast.expr) -> ast.expr:
    """What a name was assigned, where that is one thing."""
    held = assigned(context, node)
    return held[0] if len(held) == 1 else node


def obstacles(context: Context, loops: list[BatchLoop]) -> Iterator[Obstacle]:
    """Samples of a batch mixed with each other while training."""
    training = set().union(*(loop.runs for loop in loops if loop.trains))
    for call in context.program.calls:
        if id(call.node) in training and call.names & {"torch.randperm", "numpy.random.permutation"}:
            yield context.obstacle(
                call.node,
                "the samples of a batch are permuted: each rank would permute its own part only",
                "",
                SHARDED_ONLY,
            )


# Numbers that are reported, or decide


@dataclass(frozen=True)
class Measured:
    """What becomes of the training loop's numbers: reports of them, and decisions that ranks take differently."""

    numbers: tuple[Number, ...]
    decisions: tuple[Obstacle, ...]


def measured(context: Context, loops: list[BatchLoop], whole: frozenset[int]) -> Measured:
    """Follow what the training loop measured: each rank's numbers speak of its own part of the batches.

    ``whole``: what is the whole batch's all the same.
    """
    program = context.program
    decisions: dict[int, Obstacle] = {}
    tainted: dict[int, set[str]] = {}
    waiting: list[tuple[Scope, set[str]]] = []
    for loop in loops:
        if loop.trains and isinstance(loop.node, ast.For):
            waiting.append((program.scope(loop.node), _measured(context, loop.node, whole)))
    found: dict[int, Number] = {}
    while waiting:
        scope, names = waiting.pop()
        known = tainted.setdefault(scope.index, set())
        if names <= known:
            continue
        known |= names
        _spread(context, scope, known, whole)
        for node in program.body(scope):
            if context.runs_in_training(node) and (what := _decides(context, node, known)):
                decisions.setdefault(
                    id(node),
                    context.obstacle(
                        node,
                        f"`{what}` differs between the processes, and decides here how each goes on",
                        "let an evaluation decide, or something that every process has alike",
                        SHARDED_ONLY,
                    ),
                )
            if isinstance(node, ast.Call) and _reports(context, node):
                what = _mentions(node, known)
                if what and not _combined(context, node, what):
                    statement = program.statement(node)
                    found.setdefault(id(statement), Number(**context.place(statement), what=what))
            elif isinstance(node, ast.Return) and node.value is not None and _mentions(node.value, known):
                waiting += _receivers(context, scope.index, node.value, known)
    reports = tuple(sorted(found.values(), key=lambda number: (number.path, number.at.span)))
    return Measured(reports, tuple(decisions.values()))


def _decides(context: Context, node: ast.AST, known: set[str]) -> str:
    """The measured name that a statement lets a loop end early by, or sets the optimizer's state from."""
    if isinstance(node, ast.If | ast.While):
        leaves = any(
            isinstance(inner, ast.Break | ast.Continue | ast.Return | ast.Raise)
            or (
                isinstance(inner, ast.Call)
                and _method(inner) in ("load_state_dict", "deepcopy", "step", "backward")
            )
            for part in node.body
            for inner in context.program.descendants(part)
        )
        return _mentions(node.test, known) if leaves or isinstance(node, ast.While) else ""
    if isinstance(node, ast.Call) and _method(node) == "step" and isinstance(node.func, ast.Attribute):
        return next((what for given in node.args if (what := _mentions(given, known))), "")
    if isinstance(node, ast.Assign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any("param_group" in ast.unparse(target) for target in targets):
            return _mentions(node.value, known)
    return ""


def _method(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


def _measured(context: Context, loop: ast.For, whole: frozenset[int]) -> set[str]:
    """Names that a training loop gives values of its losses and outputs, first of all the losses themselves."""
    names = set()
    for node in context.program.descendants(loop):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "backward"
        ):
            loss = context.loss(node)
            if isinstance(loss, ast.Name) and id(node) not in whole:
                names.add(loss.id)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            if context.is_wrapped(context.program.values(node.value.func)):
                names |= {
                    n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)
                }
    return names


def _spread(context: Context, scope: Scope, known: set[str], whole: frozenset[int]) -> None:
    """Follow measured values through the assignments of a function, and into the meters they are given to."""
    while True:
        before = len(known)
        for node in context.program.body(scope):
            if isinstance(node, ast.Assign | ast.AugAssign) and _mentions(node.value, known, whole):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                known |= {
                    n.id
                    for target in targets
                    for n in ast.walk(target)
                    if isinstance(n, ast.Name) and n.id != "self"
                }
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("update", "append")
            ):
                given = [*node.args, *(keyword.value for keyword in node.keywords)]
                if isinstance(node.func.value, ast.Name) and any(
                    _mentions(argument, known) for argument in given
                ):
                    known.add(node.func.value.id)
        if len(known) == before:
            return


def _mentions(node: ast.AST, known: set[str], whole: frozenset[int] = frozenset()) -> str:
    """The first measured name that an expression uses for its value, not only for its size."""
    if id(node) in whole:
        return ""
    if isinstance(node, ast.Name):
        return node.id if node.id in known else ""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len":
        return ""
    children = ast.iter_child_nodes(node)
    return next((found for child in children if (found := _mentions(child, known, whole))), "")


def _reports(context: Context, node: ast.Call) -> bool:
    call = context.program.call(node)
    if call is None:
        return False
    return any(
        name in ("builtins.print", "dp2ddp.runtime.print")
        or name.startswith("logging.")
        or (is_write(name) and not name.startswith(("os.", "shutil.")))
        or name.endswith((".set_postfix", ".set_description"))
        for name in call.names
    )


def _combined(context: Context, node: ast.Call, what: str) -> bool:
    """Whether the number was combined over all ranks already."""
    return any(
        isinstance(inner, ast.Call)
        and (call := context.program.call(inner)) is not None
        and call.names & {"dp2ddp.runtime.mean", "dp2ddp.runtime.sum", "dp2ddp.runtime.gather"}
        and _mentions(inner, {what})
        for inner in ast.walk(node)
    )


def _receivers(
    context: Context, scope: int, returned: ast.expr, known: set[str]
) -> Iterator[tuple[Scope, set[str]]]:
    """The names that callers give to measured return values."""
    program = context.program
    for call in program.calls:
        if scope not in program.called_scopes(call.node):
            continue
        parent = program.parent(call.node)
        if not isinstance(parent, ast.Assign) or parent.value is not call.node:
            continue
        target = parent.targets[0]
        names: set[str] = set()
        if (
            isinstance(target, ast.Tuple)
            and isinstance(returned, ast.Tuple)
            and len(target.elts) == len(returned.elts)
        ):
            for name, value in zip(target.elts, returned.elts, strict=True):
                if isinstance(name, ast.Name) and _mentions(value, known):
                    names.add(name.id)
        else:
            names = {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
        yield program.scope(parent), names
