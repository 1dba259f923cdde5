"""Whether a program has chosen its devices before its ranks start."""

from __future__ import annotations

import ast
from collections.abc import Set
from dataclasses import replace

from dp2ddp.analyse.context import Context
from dp2ddp.analyse.processes.branches import holding
from dp2ddp.analyse.processes.conditions import asks_machine
from dp2ddp.analyse.processes.deciders import deciders
from dp2ddp.analyse.processes.device_ids import Devices, all_devices
from dp2ddp.analyse.processes.elsewhere import folded, hidden_name, source_of
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.source import SourceFile


def devices_before(
    context: Context,
    file: SourceFile,
    wanted: Devices,
    scopes: list[Scope],
    block: list[ast.stmt],
    begin: ast.stmt,
    main: ast.stmt | None = None,
) -> Devices:
    """The devices as they can be said before a statement of a block; by what names stand for that come later."""
    devices = _at(context, file, wanted, scopes)
    if is_at_hand(context, devices, block, begin, scopes, main):
        return devices
    after = block[block.index(begin) :]
    late = {id(node) for statement in after for node in context.program.descendants(statement)}
    unfolded = _at(context, file, wanted, scopes, late)
    return unfolded if is_at_hand(context, unfolded, block, begin, scopes, main) else devices


def _at(
    context: Context, file: SourceFile, wanted: Devices, scopes: list[Scope], late: Set[int] = frozenset()
) -> Devices:
    """The devices, in the names that some scopes have, with all that decides them.

    Without names that are given their values by nodes in ``late``.
    """
    if wanted.expression is None:
        return wanted
    source = source_of(context, wanted.expression, scopes, late=late)
    expression = folded(source)
    if expression is not source and isinstance(expression, ast.IfExp):
        asked = (
            it for it in ast.walk(expression.test) if isinstance(it, ast.Call | ast.Name | ast.Attribute)
        )
        if all(id(it) in context.program.nodes for it in asked) and asks_machine(context, expression.test):
            expression = expression.body  # where there are not several, there is one process anyway
    if all_devices(context, expression):
        return Devices()
    return replace(wanted, expression=expression, deciders=tuple(deciders(context, expression, file)))


def literal_of(context: Context, wanted: Devices) -> ast.expr | None:
    """The devices, where they are the same in every run: ``range(2)`` for ``range(ngpu)`` after ``ngpu = 2``."""
    if wanted.expression is None:
        return None
    expression = source_of(context, wanted.expression, [])
    nodes = [it for it in ast.walk(expression) if isinstance(it, ast.Name | ast.Attribute)]
    known = all(isinstance(it, ast.Name) and id(it) in context.program.nodes for it in nodes)
    return expression if known and not any(map(context.program.definitions, nodes)) else None


def is_at_hand(
    context: Context,
    devices: Devices,
    block: list[ast.stmt],
    begin: ast.stmt,
    scopes: list[Scope],
    main: ast.stmt | None = None,
) -> bool:
    """Whether the devices are chosen before a statement of a block; ``main`` is the one that leads to the block."""
    if devices.expression is None:
        return True
    if hidden_name(context, devices.expression, scopes) is not None:
        return False
    order = context.program.order
    for decider in devices.deciders:
        holder = holding(context, decider, block)
        if holder is not None and order[id(holder)] >= order[id(begin)]:
            return False
        if holder is None and main is None:
            return False
    return True
