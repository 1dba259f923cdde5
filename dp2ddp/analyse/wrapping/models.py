"""Which models DataParallel wraps, where they are moved to the device, and under which condition."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from dp2ddp.analyse.context import Context, is_inserted, is_main_guard
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.signature import is_spread
from dp2ddp.analyse.wrapping import functional, parallel
from dp2ddp.analyse.wrapping.conditional import Unsettled, choice_of, condition_of, unclear
from dp2ddp.analyse.wrapping.moving import (
    asked_about,
    device_before,
    is_on_device,
    moved_on,
    moves_after,
    outermost,
)
from dp2ddp.facts import NO_TIER, SHARDED_ONLY, Condition, Problem, Script, Wrap
from dp2ddp.plan import Anchor


def collect(context: Context, starts: Iterable[Script]) -> tuple[Wrap, ...]:
    """Every wrap that a program runs and trains; ``starts``: where the programs start their ranks."""
    wraps = ((call, _wrap(context, call)) for call in context.wraps if context.runs_in_training(call.node))
    started = tuple(starts)
    return tuple(_assuming(context, call, wrap, started) for call, wrap in wraps)


def is_conditional(wrap: Wrap) -> bool:
    """Whether a model is wrapped under a condition that stays: one process is to train where it is not."""
    return wrap.problem is not None and wrap.problem.concerns == SHARDED_ONLY


def _assuming(context: Context, call: Call, wrap: Wrap, starts: tuple[Script, ...]) -> Wrap:
    """A wrap of which it can't be told when it is made, with what has to hold for the model to be trained in parts."""
    if not isinstance(wrap.problem, Unsettled):
        return wrap
    before = wrap.dim is not None  # parts may be taken before the wrap, and can't wait for it
    if wrap.problem.is_condition and before and _is_answered(context, call.node, starts):
        return replace(wrap, problem=replace(wrap.problem, help="", forbids=NO_TIER, works=True))
    if wrap.problem.is_condition and not before and _trains_by_optimizers(context):
        problem = replace(wrap.problem, help="", forbids=NO_TIER, works=True, concerns=SHARDED_ONLY)
        return replace(wrap, problem=problem)
    text = "with several ranks the model that is trained is always wrapped here"
    return replace(wrap, problem=replace(wrap.problem, assumes=(context.assumption(call.node, text),)))


def _is_answered(context: Context, wrap: ast.Call, starts: tuple[Script, ...]) -> bool:
    """Whether the condition of a wrap is asked where the ranks start: without it there is one process."""
    program, statement = context.program, context.program.statement(wrap)
    own = [it for it in starts if it.program in context.run_by(wrap)]
    around = [*program.ancestors(wrap)]
    chosen = any(isinstance(it, ast.IfExp | ast.BoolOp) for it in around)  # in the statement itself
    conditions = [it for it in around if isinstance(it, ast.If) and not is_main_guard(it.test)]
    if chosen or len(conditions) != 1 or program.parent(statement) is not conditions[0]:
        return False
    test = ast.unparse(conditions[0].test)
    asked = f"None if {test} else 1" if statement in conditions[0].body else f"1 if {test} else None"
    return bool(own) and all(it.devices == asked and not it.late for it in own)


def _trains_by_optimizers(context: Context) -> bool:
    """Whether optimizers make the steps: the runtime looks at what the first steps of torch's train."""
    return any(map(context.runs_in_training, context.steps))


def _wrap(context: Context, call: Call) -> Wrap:
    program = context.program
    anchor = program.anchor(call.node)
    if functional.is_of_call(context, call):
        return _of_call(context, call)
    if parallel.stays(context, call):
        return _staying(context, call)
    module = call.argument("module", 0)
    dim = call.argument("dim", 3)
    if isinstance(dim, ast.Constant) and dim.value == 0:
        dim = None
    wrap = Wrap(
        **context.place(call.node),
        module=program.anchor(module) if module is not None else anchor,
        imported=call.node.func.id if isinstance(call.node.func, ast.Name) else "",
        call=anchor,
        dim=program.anchor(dim) if dim is not None else None,
    )
    if module is None:
        return replace(
            wrap,
            problem=Problem(
                f"the model that `{ast.unparse(call.node)}` wraps is unknown",
                "assign the model to a variable first",
            ),
        )
    if is_spread(call.node):
        return replace(
            wrap,
            problem=Problem(
                "arguments of nn.DataParallel are passed by `*` or `**`: the model is unknown",
                "write them out: `nn.DataParallel(model)`",
            ),
        )
    if dim is not None and not _takes_columns(context, call):
        return replace(
            wrap,
            problem=Problem(
                f"`dim={ast.unparse(dim)}`: batches are split along a dimension other than 0",
                "put the batch in dimension 0",
                SHARDED_ONLY,
            ),
        )
    statement = program.statement(call.node)
    if context.branches is not None and anchor in context.branches.mixed:
        message = (
            f"`{ast.unparse(call.node.func)}` is DataParallel or a distributed wrapper, chosen elsewhere"
        )
        problem = unclear(message, "wrap the model in a separate statement for each")
        return replace(wrap, problem=problem, otherwise=tuple(_parts(context, call.node)))
    if is_inserted(statement):
        return _in_place_of_calls(context, wrap, module, statement)
    outer = outermost(context, call.node)
    condition = condition_of(context, call.node, module, statement)
    if isinstance(condition, Problem):
        return replace(wrap, problem=condition)
    choice = choice_of(context, call.node, module)
    device, moves = device_before(context, outer, module, statement, wrap.ddp, condition, choice is not None)
    if isinstance(condition, Condition) and condition.part:
        device, moves = None, ()
    elif outer.last is not None and outer.device is None:
        device = asked_about(context, statement) or device
    idle = moved_on(context, statement, condition) if device is not None and outer.last is None else None
    return replace(
        wrap,
        at=program.anchor(choice or outer.node),
        device=device,
        moves=moves,
        idle=(program.anchor(idle), program.anchor(idle.func.value)) if idle is not None else None,  # type: ignore[attr-defined]
        moved=outer.last is not None,
        condition=condition,
    )


def _takes_columns(context: Context, call: Call) -> bool:
    """Whether the programs of a wrap are trained on columns alone, of which each rank takes its part."""
    own = [it for it in context.program.nodes.values() if hasattr(it, "own_batch") and it.own_batch.dim]
    return context.run_by(call.node) <= frozenset[Path]().union(*map(context.run_by, own))


def _of_call(context: Context, call: Call) -> Wrap:
    """The wrap that a call of ``data_parallel()`` makes each time."""
    problem = Problem(
        "data_parallel() replicates the model at every call",
        "wrap the model once in nn.DataParallel",
        SHARDED_ONLY,
    )
    module = context.module_of(call)
    anchor = context.program.anchor(call.node)
    return Wrap(
        **context.place(call.node),
        module=context.program.anchor(module) if module is not None else anchor,
        imported="",
        call=anchor,
        stays=True,
        problem=problem,
    )


def _staying(context: Context, call: Call) -> Wrap:
    """A wrap in a class that is not torch's own: that needs a condition to go only where the batches are divided."""
    wrap = parallel.wrap(context, call)
    statement, module = context.program.statement(call.node), context.module_of(call)
    if wrap.problem is not None or module is None:
        return wrap
    condition = condition_of(context, call.node, module, statement)
    if condition is None or isinstance(condition, Problem):
        return replace(wrap, problem=condition)
    if condition.option or condition.alternative or condition.guard or not condition.whole:
        tests = (it.test for it in context.program.ancestors(call.node) if isinstance(it, ast.If | ast.IfExp))
        under = "".join(f" `if {ast.unparse(it)}`" for it in [*tests][:1]) or " a condition"
        return replace(wrap, problem=unclear(f"the model is wrapped only under{under}", "wrap it always"))
    return replace(wrap, condition=condition)


def _parts(context: Context, call: ast.Call) -> Iterator[tuple[str, Anchor]]:
    """The function of a call and its arguments, with what stands before each."""
    yield "", context.program.anchor(call.func)
    yield from (("", context.program.anchor(argument)) for argument in call.args)
    yield from ((f"{it.arg}=", context.program.anchor(it.value)) for it in call.keywords)


def _in_place_of_calls(context: Context, wrap: Wrap, module: ast.expr, statement: ast.stmt) -> Wrap:
    """The wrap of a network that calls ``data_parallel()``."""
    block = context.program.block(statement)
    last = block[block.index(statement) - 2]  # between them is the import
    device = None if is_on_device(context, module, statement) else f"{wrap.ddp}.device()"
    after = context.program.anchor(last)
    return replace(wrap, imported="", device=device, after=after, target=ast.unparse(module))


def moves(context: Context, wraps: tuple[Wrap, ...]) -> set[int]:
    """Identities of the moves that a wrap takes over: those chained to it, and later ones of the same model."""
    removed = {anchor for wrap in wraps for anchor in wrap.moves}
    unwritten = {wrap.idle[0] for wrap in wraps if wrap.idle is not None}
    taking = {wrap.call: wrap.condition for wrap in wraps if wrap.problem is None and not wrap.stays}
    found: set[int] = set()
    for call in context.wraps:
        anchor = context.program.anchor(call.node)
        if anchor not in taking:
            continue
        condition = taking[anchor]
        node: ast.AST | None = outermost(context, call.node).node
        while isinstance(node, ast.Call) and node is not call.node:
            found.add(id(node))
            node = node.func.value if isinstance(node.func, ast.Attribute) else None
        around = condition.at if condition is not None and not condition.option else None
        if (idle := moved_on(context, context.program.statement(call.node), condition)) is not None:
            found |= {id(idle)} if context.program.anchor(idle) in unwritten else set()
        for move in moves_after(context, context.program.statement(call.node), around):
            if context.program.anchor(move) in removed:
                found.add(id(move.value))  # type: ignore[attr-defined]
    return found
