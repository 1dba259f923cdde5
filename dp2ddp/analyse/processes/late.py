"""Where a program chooses its devices after its ranks have started."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.analyse.context import LOOPS, Context, is_main_guard
from dp2ddp.analyse.processes.branches import holding
from dp2ddp.analyse.processes.conditions import leaves_before
from dp2ddp.analyse.processes.deciders import deciders
from dp2ddp.analyse.processes.device_ids import Devices, all_devices, each_wanted
from dp2ddp.analyse.processes.elsewhere import climb, hidden_name, with_condition
from dp2ddp.analyse.processes.entries import Entry
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.facts import Late


def late_choices(context: Context, entry: Entry, wanted: Devices) -> tuple[Late, ...]:
    """Where the devices are chosen later: for the first wrap, and for those that are come to on other ways."""
    first = _late(context, entry, wanted)
    found = [first] if first is not None else []
    others = [it for _, it in each_wanted(context, entry.file) if it.wrap is not wanted.wrap]
    for devices in others if found else ():
        late = _late(context, entry, devices)
        if late is not None and not any(_precedes(context, it, devices.wrap, late) for it in found):
            found.append(late)
    return tuple(found)


def _precedes(context: Context, late: Late, wrap: ast.Call | None, other: Late) -> bool:
    """Whether the devices are chosen already, wherever a program comes to a wrap."""
    at = context.program.node_at(late.at)
    if late.at == other.at or at is None or wrap is None:
        return True
    order = context.program.order
    earliest: dict[int, int] = {}
    for it, block, _ in _leading(context, context.program.statement(wrap)):
        earliest[id(block)] = min(order[id(it)], earliest.get(id(block), order[id(it)]))
    for it, block, always in _leading(context, context.program.statement(at)):
        then = earliest.get(id(block), -1)
        if always and (order[id(it)] < then or (it is at and order[id(it)] == then and not late.after)):
            return True
    return False


def _leading(context: Context, statement: ast.stmt) -> Iterator[tuple[ast.stmt, list[ast.stmt], bool]]:
    """The statements by which a program comes to one, each with its block, and whether it always comes there by it."""
    program, seen = context.program, set()
    waiting: list[tuple[ast.AST, bool]] = [(statement, True)]
    while waiting:
        node, surely = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for call in context.callers.get(program.by_node[id(node)].index, ()):
                found = program.call(call)
                alone = found is not None and len(found.callees) == 1
                waiting.append((program.statement(call), surely and alone))
        elif isinstance(node, ast.stmt) and id(node) not in seen:
            seen.add(id(node))
            yield node, program.block(node), surely
            around = program.parent(node)
            under = isinstance(around, (ast.If, ast.Try, *LOOPS)) and not (
                isinstance(around, ast.If) and is_main_guard(around.test)
            )
            if isinstance(around, ast.ExceptHandler | ast.match_case):
                around, under = program.parent(around), True
            if around is not None:
                waiting.append((around, surely and not under))


def _late(context: Context, entry: Entry, wanted: Devices) -> Late | None:
    """Where the devices are chosen after the ranks have started: as early as all that decides them has run."""
    program = context.program
    if wanted.expression is None or wanted.wrap is None:
        return None
    expression, scope = climb(context, wanted.expression, program.scope(wanted.wrap))
    if all_devices(context, expression):
        return None
    block = entry.block if scope is entry.scope else scope.body
    place = _place(context, block, list(deciders(context, expression, entry.file)), wanted.wrap)
    if place is None:
        return _at_wrap(context, wanted)
    statement, after = place
    anchor = program.anchor(statement)
    expression = _seen(context, expression, wanted, scope)
    written = with_condition(context, expression)
    return Late(anchor, context.ddp(anchor.path), after, written, scripts=frozenset([entry.file.path]))


def _at_wrap(context: Context, wanted: Devices) -> Late:
    """The devices are chosen where the model is wrapped, and by what stands there."""
    program = context.program
    wrap: ast.Call = wanted.wrap  # type: ignore[assignment]
    anchor = program.anchor(program.statement(wrap))
    chosen = _seen(context, wanted.expression, wanted, program.scope(wrap))
    return Late(
        anchor, context.ddp(anchor.path), False, ast.unparse(chosen), scripts=context.run_by(wanted.wrap)
    )


def _seen(context: Context, chosen: ast.expr | None, wanted: Devices, scope: Scope) -> ast.expr:
    """What chooses the devices, without options that have no name where the model is wrapped."""
    within: Scope | None = scope
    scopes = []
    while within is not None:
        scopes.append(within)
        within = within.parent
    own = scope.params[0] if scope.owner is not None and scope.params else ""
    if chosen is not None and hidden_name(context, chosen, scopes, own) is None:
        return chosen
    call = context.program.call(wanted.wrap)
    given = context.wrappers.argument(call, "device_ids", 1) if call is not None else None
    return given if given is not None else ast.Constant(None)


def _place(
    context: Context, block: list[ast.stmt], deciders: list[ast.stmt], wrap: ast.Call
) -> tuple[ast.stmt, bool] | None:
    """The statement of a block before which, or after which, the devices are chosen; None if the wrap comes earlier."""
    order = context.program.order
    until = holding(context, wrap, block)
    if until is None:
        return None
    left = leaves_before(context, until)
    on_the_way = [it for it in block if it not in left]
    holders = [it for it in (holding(context, decider, on_the_way) for decider in deciders) if it is not None]
    if not holders:
        first = next((it for it in block if not _is_docstring(it)), block[0])
        return first, False
    last = max(holders, key=lambda it: order[id(it)])
    if order[id(last)] < order[id(until)]:
        return last, True
    if last is not until:
        return until, False
    for inner in (getattr(last, field, None) for field in ("body", "orelse", "finalbody")):
        if isinstance(inner, list) and inner and not isinstance(last, (ast.ClassDef, *LOOPS)):
            here = [it for it in deciders if holding(context, it, inner) is not None]
            if here and holding(context, wrap, inner) is not None:
                return _place(context, inner, here, wrap)
    return None


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
