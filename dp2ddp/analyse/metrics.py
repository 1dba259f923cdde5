"""What a loss is made of, and which numbers of the training are reported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dp2ddp.analyse.conditions import assigned
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.effects import is_write
from dp2ddp.analyse.link import Bound, Call, Func, Made, Scope, full_name
from dp2ddp.analyse.loops import BatchLoop
from dp2ddp.analyse.samples import mixed
from dp2ddp.facts import SHARDED_ONLY, Loss, Number, Obstacle, Problem

# Losses that are a mean over the samples unless told otherwise, with their functional forms.
MEANS = {
    "CrossEntropyLoss": "cross_entropy",
    "NLLLoss": "nll_loss",
    "MSELoss": "mse_loss",
    "L1Loss": "l1_loss",
    "SmoothL1Loss": "smooth_l1_loss",
    "HuberLoss": "huber_loss",
    "BCELoss": "binary_cross_entropy",
    "BCEWithLogitsLoss": "binary_cross_entropy_with_logits",
    "MultiLabelSoftMarginLoss": "multilabel_soft_margin_loss",
    "MultiMarginLoss": "multi_margin_loss",
    "SoftMarginLoss": "soft_margin_loss",
    "PoissonNLLLoss": "poisson_nll_loss",
    "GaussianNLLLoss": "gaussian_nll_loss",
}
CLASSES = {f"torch.nn.{name}" for name in MEANS}
FUNCTIONS = {f"torch.nn.functional.{name}" for name in MEANS.values()}
# Arguments that make the mean weighted, so that parts of a batch no longer count by their number of samples.
WEIGHTED = {"weight": "class weights", "ignore_index": "ignore_index"}
BCE = {"BCEWithLogitsLoss", "binary_cross_entropy_with_logits", "BCELoss", "binary_cross_entropy"}


def collect(context: Context) -> tuple[Loss, ...]:
    """Losses that are not known to be a mean over the samples of a batch."""
    found = []
    for node in context.backwards:
        if context.runs_in_training(node):
            problem = _reason(context, node.func.value, 0)  # type: ignore[attr-defined]
            if problem is not None:
                found.append(Loss(**context.place(node), problem=replace(problem, forbids=SHARDED_ONLY)))
    return tuple(found)


def _unknown(context: Context, node: ast.AST) -> Problem:
    return Problem(
        f"the loss `{ast.unparse(node)}` can't be shown to be a mean over the samples of the batch",
        "use a mean-reduced loss of torch.nn",
    )


def _reason(context: Context, node: ast.AST, depth: int) -> Problem | None:
    """Why an expression is no mean over samples; None if it is one."""
    if depth > 12:
        return _unknown(context, node)
    match node:
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            return _reason(context, node.left, depth + 1) or _reason(context, node.right, depth + 1)
        case ast.BinOp(op=ast.Mult() | ast.Div()):
            if _is_plain(context, node.right):
                return _reason(context, node.left, depth + 1)
            if isinstance(node.op, ast.Mult) and _is_plain(context, node.left):
                return _reason(context, node.right, depth + 1)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
            return _reason(context, node.operand, depth + 1)
        case ast.Constant(value=int() | float()):
            return None
        case ast.Name() | ast.Attribute():
            return _assigned(context, node, depth)
        case ast.Call():
            return _call(context, node, depth)
    return _unknown(context, node)


def _is_plain(context: Context, node: ast.expr) -> bool:
    """A number that is the same for every sample: a constant, an option, an attribute."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float)
    if isinstance(node, ast.Name | ast.Attribute):
        names = {full_name(value) for value in context.program.values(node)}
        return bool(names) and all(name.startswith("argparse.") or not name for name in names)
    return False


def _assigned(context: Context, node: ast.expr, depth: int) -> Problem | None:
    definitions = context.program.definitions(node)
    if not definitions:
        return _unknown(context, node)
    for definition in definitions:
        statement = context.program.statement(definition) if not isinstance(definition, ast.arg) else None
        match statement:
            case ast.Assign(targets=[target]) if target is definition:
                problem = _reason(context, statement.value, depth + 1)
            case ast.AugAssign(op=ast.Add() | ast.Sub()):
                problem = _reason(context, statement.value, depth + 1)
            case ast.AugAssign(op=ast.Mult() | ast.Div()) if _is_plain(context, statement.value):
                problem = None
            case _:
                problem = _unknown(context, node)
        if problem is not None:
            return problem
    return None


def _call(context: Context, node: ast.Call, depth: int) -> Problem | None:
    call = context.program.call(node)
    if call is None:
        return _unknown(context, node)
    function = node.func
    if call.names == {"torch.amp.GradScaler.scale"} or call.names == {"torch.cuda.amp.GradScaler.scale"}:
        return _reason(context, node.args[0], depth + 1)
    if call.callees and all(isinstance(callee, Made) and callee.name in CLASSES for callee in call.callees):
        for callee in call.callees:
            made = context.program.call(context.program.node(callee.site))  # type: ignore[union-attr]
            if made is not None and (problem := _reduction(made)) is not None:
                return problem
        return mixed(context, node.args)
    if call.callees and all(isinstance(callee, Func | Bound) for callee in call.callees):
        return _function(context, call, depth)
    if call.names and call.names <= FUNCTIONS:
        return _reduction(call) or mixed(context, node.args)
    if isinstance(function, ast.Attribute) and function.attr == "mean" and not node.args:
        held = assigned(context, function.value) if isinstance(function.value, ast.Name) else [function.value]
        inner = context.program.call(held[0]) if len(held) == 1 and isinstance(held[0], ast.Call) else None
        if inner is not None and _option(_maker(context, inner), "reduction") == "none":
            return mixed(context, inner.node.args)
    return _unknown(context, node)


def _maker(context: Context, call: Call) -> Call:
    """Where the reduction of a loss is given: at the call of a function, or where the criterion is made."""
    for callee in call.callees:
        if isinstance(callee, Made) and callee.name in CLASSES:
            return context.program.call(context.program.node(callee.site)) or call
    return call


def _function(context: Context, call: Call, depth: int) -> Problem | None:
    """A function of the project that returns a loss, on every path."""
    for callee in call.callees:
        func = callee.func if isinstance(callee, Bound) else callee
        scope = context.program.scopes[func.scope]  # type: ignore[union-attr]
        returned = [node.value for node in context.program.body(scope) if isinstance(node, ast.Return)]
        for value in returned or [None]:
            if value is None:
                return _unknown(context, call.node)
            if (problem := _reason(context, value, depth + 1)) is not None:
                return problem
    return None


def _option(call: Call, name: str) -> object:
    value = call.argument(name)
    return value.value if isinstance(value, ast.Constant) else (None if value is None else value)


def _reduction(call: Call) -> Problem | None:
    """Why a loss of torch.nn is no plain mean."""
    spelled = ast.unparse(call.node.func)
    reduction = _option(call, "reduction")
    if (
        reduction not in (None, "mean")
        or _option(call, "size_average") is False
        or _option(call, "reduce") is False
    ):
        shown = reduction if isinstance(reduction, str) else "of its own"
        return Problem(
            f"{spelled} has the reduction {shown!r}: parts of the batch don't average to its gradient",
            'use reduction="mean" (and scale the learning rate)',
        )
    last = next(iter(call.names)).rpartition(".")[2]
    positional = 0 if last in MEANS else 2
    weight = call.argument(
        "weight", positional if last not in ("MSELoss", "L1Loss", "mse_loss", "l1_loss") else None
    )
    if last in BCE:
        return None  # weights of these are divided by the number of elements, as without weights
    given = {"weight": weight, "ignore_index": call.argument("ignore_index")}
    for name, value in given.items():
        if value is not None and not (isinstance(value, ast.Constant) and value.value in (None, -100)):
            if name == "ignore_index" or last in ("CrossEntropyLoss", "NLLLoss", "cross_entropy", "nll_loss"):
                return Problem(
                    f"{spelled} is averaged with {WEIGHTED[name]}: parts of the batch weigh differently",
                    "",
                )
    return None


def obstacles(context: Context, loops: list[BatchLoop]) -> Iterator[Obstacle]:
    """Samples of a batch mixed with each other while training."""
    training = set().union(*(context.runs(loop.node) for loop in loops if loop.trains)) if loops else set()
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


def measured(context: Context, loops: list[BatchLoop]) -> Measured:
    """Follow what the training loop measured: each rank's numbers speak of its own part of the batches."""
    program = context.program
    decisions: dict[int, Obstacle] = {}
    tainted: dict[int, set[str]] = {}
    waiting: list[tuple[Scope, set[str]]] = []
    for loop in loops:
        if loop.trains and isinstance(loop.node, ast.For):
            waiting.append((program.scope(loop.node), _measured(context, loop.node)))
    found: dict[int, Number] = {}
    while waiting:
        scope, names = waiting.pop()
        known = tainted.setdefault(scope.index, set())
        if names <= known:
            continue
        known |= names
        _spread(context, scope, known)
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


def _measured(context: Context, loop: ast.For) -> set[str]:
    """Names that a training loop gives values of its losses and outputs, first of all the losses themselves."""
    names = set()
    for node in context.program.descendants(loop):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "backward"
        ):
            if isinstance(node.func.value, ast.Name):
                names.add(node.func.value.id)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            if context.is_wrapped(context.program.values(node.value.func)):
                names |= {
                    n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)
                }
    return names


def _spread(context: Context, scope: Scope, known: set[str]) -> None:
    """Follow measured values through the assignments of a function, and into the meters they are given to."""
    while True:
        before = len(known)
        for node in context.program.body(scope):
            if isinstance(node, ast.Assign | ast.AugAssign) and _mentions(node.value, known):
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


def _mentions(node: ast.AST, known: set[str]) -> str:
    """The first measured name that an expression uses for its value, not only for its size."""
    if isinstance(node, ast.Name):
        return node.id if node.id in known else ""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len":
        return ""
    children = ast.iter_child_nodes(node)
    return next((found for child in children if (found := _mentions(child, known))), "")


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
