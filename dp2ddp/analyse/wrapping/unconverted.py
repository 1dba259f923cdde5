"""Other ways to use several GPUs, which are not converted, and what a wrapped model lacks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.analyse.api.handing import ASKING
from dp2ddp.analyse.api.inspection import ASKS_FOR_WRAP
from dp2ddp.analyse.api.layers import WRAP_NAMES
from dp2ddp.analyse.api.parallel import DDP_WRAPS, FUNCTION, STEPS, WRAP
from dp2ddp.analyse.api.processes import STARTED
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.processes import checkpoints, writes
from dp2ddp.analyse.processes.answers import Answers
from dp2ddp.analyse.processes.conditions import assigned
from dp2ddp.analyse.processes.exclusions import is_come_to
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.values import Cls, Ext, Func, Made, full_name
from dp2ddp.analyse.wrapping import functional, parallel
from dp2ddp.analyse.wrapping.unused import unused, without_backward
from dp2ddp.analyse.wrapping.unwrapped import contradicts
from dp2ddp.facts import NO_TIER, SHARDED_ONLY, Lacking, Obstacle

KNOWN = {WRAP, *DDP_WRAPS}
"""What wraps, before and after a program is converted."""


def obstacles(context: Context) -> Iterator[Obstacle]:
    """Other ways to use several GPUs, which are not converted."""
    program = context.program
    for call in context.program.calls:
        if FUNCTION in call.names:
            yield _replicating(context, call)
        trained = context.runs_in_training(call.node)
        for callee in (
            call.callees if (trained or not context.scripts) and not _may_wrap(context, call) else ()
        ):
            if isinstance(callee, Ext) and _looks_alike(callee.name):
                yield context.obstacle(
                    call.node,
                    f"`{ast.unparse(call.node.func)}` is {callee.name}, neither torch's nor a class of this project",
                    "use torch's, or copy that class's file into the project if it derives from torch's",
                )
        yield from _handed_over(context, call)
    for step in STEPS:
        for target, statement in context.attribute_assignments.get(step, ()):
            if context.is_wrapped(program.values(target.value)):
                given = [it for it in program.values(statement.value) if isinstance(it, Func)]
                scopes = [program.scopes[it.scope] for it in given]
                if step == "replicate" and parallel.calls_back(context, scopes):
                    continue
                yield context.obstacle(
                    statement,
                    f"`{ast.unparse(target)} = …` replaces DataParallel's `{step}`",
                    "remove it; for BatchNorm use torch.nn.SyncBatchNorm",
                    SHARDED_ONLY,
                )
    # Where a program is converted already, a wrap that is left serves a script that only predicts.
    started = any(call.names & STARTED for call in program.calls)
    every = (*context.wraps, *context.idle_wraps)
    for call in every if not started else ():
        if not context.backwards:
            yield from without_backward(context, call)
        elif not context.runs_in_training(call.node):
            if not functional.is_of_call(context, call):
                yield from unused(context, call)
            elif _may_run(context, call):
                yield _replicating(context, call)


def written(context: Context) -> Iterator[Obstacle]:
    """What forwards write: each rank for its part of the batch, as each of nn.DataParallel's replicas did."""
    told: set[int] = set()
    for call in context.program.calls:
        place = call.scope.index
        if place not in context.forwards or place in told or context.runs_in_training(call.node):
            continue
        leaves = writes.leaves_any_file(context, call) or writes.leaves_picture(context, call)
        if leaves and _may_run(context, call) and is_come_to(context, call.node):
            told.add(place)
            yield context.obstacle(
                call.node,
                f"`{ast.unparse(call.node.func)}` in a forward writes on every rank, each for its local batch",
                "write in the training loop, what `ddp.whole_batch` gives there",
                NO_TIER,
            )


def _may_wrap(context: Context, call: Call) -> bool:
    """Whether a call makes one of nn.DataParallel's or the runtime's, or of a class that derives from it.

    Another class may be imported in its place, where that is installed.
    """
    bases = (it for callee in call.callees if isinstance(callee, Cls) for it in context.program.bases(callee))
    return bool((call.names | set(map(full_name, bases))) & KNOWN)


def lacking(context: Context, perhaps: set[int]) -> Iterator[Lacking]:
    """``model.classifier`` of a wrapped model: an error wherever there were several GPUs.

    ``perhaps``: the wraps that may not happen, as ``checkpoints.unsettled`` has them.
    """
    program = context.program
    plain = {id(call.node) for call in context.wraps if call.callees == {Ext(WRAP)}}
    plain &= context.trained_wraps
    answers = Answers(context)
    for node in program.nodes.values():
        if not isinstance(node, ast.Attribute) or node.attr in WRAP_NAMES or node.attr.startswith("_"):
            continue
        values = program.values(node.value)
        sites = {value.site for value in values if isinstance(value, Made) and value.name == WRAP}
        if not isinstance(node.ctx, ast.Load) or not sites or len(sites) < len(values) or not sites <= plain:
            continue
        held = context.attribute_assignments.get(node.attr, ())
        if any(program.values(target.value) & values for target, _ in held) or _is_asked_before(
            context, node
        ):
            continue
        if not context.runs_in_training(node) or not _is_known(context, node.value):
            continue
        wraps = map(program.node, sites)
        if not any(contradicts(context, answers, node, answers.around(it)) for it in wraps):
            owner, bare = program.anchor(node.value), checkpoints.bare(context, node.value, perhaps).kind
            yield Lacking(**context.place(node), model=owner, what=ast.unparse(node), bare=bare)


def _is_known(context: Context, node: ast.expr, seen: frozenset[ast.AST] = frozenset()) -> bool:
    """Whether all that an expression may be is known: of a parameter, what every call gives it that may be run."""
    program = context.program
    if node in seen:
        return True
    parameters = [it for it in program.definitions(node) if isinstance(it, ast.arg)]
    given = [it for one in parameters for it in program.given(one) if context.runs_in_training(it)]
    sources = [*given, *assigned(context, node)] if isinstance(node, ast.Name | ast.Attribute) else []
    return bool(program.values(node)) and all(_is_known(context, it, seen | {node}) for it in sources)


def _is_asked_before(context: Context, node: ast.AST) -> bool:
    """Whether a place is only come to where a model turned out to be bare, or an error there is expected."""
    for around in context.program.ancestors(node):
        if isinstance(around, ast.Try) and around.handlers:
            return True
        if isinstance(around, ast.If | ast.IfExp):
            asked, whole = ast.unparse(around.test), ast.unparse(around)
            if any(word in asked for word in ASKS_FOR_WRAP) or ".module" in whole:
                return True
    return False


def _may_run(context: Context, call: Call) -> bool:
    """Whether a call stands in a network of the training, which some other module calls."""
    program = context.program
    owner = program.scope(call.node).owner
    makes = (it for it in program.calls if context.runs_in_training(it.node) or not context.scripts)
    return owner is None or any(
        isinstance(callee, Cls) and owner in (callee, *program.bases(callee))
        for it in makes
        for callee in it.callees
    )


def _handed_over(context: Context, call: Call) -> Iterator[Obstacle]:
    """nn.DataParallel itself, given to something outside: ``partial(nn.DataParallel, device_ids=ids)``."""
    outside = {name for name in call.names - {WRAP} if not name.startswith(ASKING)}
    for argument in handed(call.node) if outside else ():
        if Ext(WRAP) in context.program.values(argument) and not isinstance(argument, ast.Call):
            yield context.obstacle(
                call.node,
                f"nn.DataParallel is passed to {sorted(outside)[0]}(), whose result is unknown",
                "call nn.DataParallel directly",
            )


def _replicating(context: Context, call: Call) -> Obstacle:
    """A call of ``data_parallel()``."""
    if functional.is_untrained(context, call):
        return context.obstacle(
            call.node,
            "data_parallel() splits its input, but each rank already has only its local batch",
            "call the model directly here",
            SHARDED_ONLY,
        )
    return context.obstacle(
        call.node,
        "data_parallel() replicates the model at every call",
        "wrap the model once in nn.DataParallel and call that instead, then convert again",
    )


def _looks_alike(name: str) -> bool:
    last = name.rpartition(".")[2]
    return (
        "DataParallel" in last
        and "DistributedDataParallel" not in last
        and name != WRAP
        and not name.startswith("dp2ddp.")
    )
