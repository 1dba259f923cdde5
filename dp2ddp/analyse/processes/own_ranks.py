"""What only runs where a program has started ranks by itself, or joined a group of its own.

With DataParallel alone there is no process group: a collective, a rank or a DistributedDataParallel that is come to
without one raises. So whatever always leads to such a call belongs to the distributed branch, however it is chosen.
"""

from __future__ import annotations

import ast

from dp2ddp.analyse.api.iteration import DISTRIBUTED_SAMPLER
from dp2ddp.analyse.api.parallel import WRAP
from dp2ddp.analyse.api.processes import (
    ASKS_FOR_GROUP,
    ASKS_RUNTIME_FOR_GROUP,
    DISTRIBUTED,
    JOINS,
    LAUNCHERS,
    NEEDS_NO_GROUP,
    PROCESSES,
    RUNS_PROGRAMS,
    SPAWNS,
)
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.values import Bound, Cls, Ext, Func, Value


def is_query(call: Call) -> bool:
    """Whether a call asks if there is a process group."""
    return bool(call.names & ASKS_FOR_GROUP)


def is_denied(call: Call) -> bool:
    """Whether a call asks what is never so with DataParallel alone."""
    return is_query(call) or bool(call.names & ASKS_RUNTIME_FOR_GROUP)


def wraps(context: Context, call: Call) -> bool:
    """Whether a call may wrap a model for ranks of the program's own."""
    return any(_is_wrap(context, callee) for callee in call.callees)


def is_alike(call: Call) -> bool:
    """Whether a call wraps a model in a DataParallel that is not torch's: ``MMDataParallel``."""
    names = (callee.name for callee in call.callees if isinstance(callee, Ext) and callee.name != WRAP)
    return any("DataParallel" in name.rpartition(".")[2] and not name.startswith("dp2ddp.") for name in names)


def starts(context: Context, call: Call) -> bool:
    """Whether a call starts ranks, or joins their group."""
    if call.names & JOINS:
        return not is_unused(context, call)
    return bool(call.names & SPAWNS) or opens(context, call)


def needs_them(context: Context, call: Call) -> bool:
    """Whether a call starts ranks, or raises where there are none, whatever it may call."""
    if call.names & JOINS:
        return starts(context, call)
    every = all(_needs(context, callee, call) for callee in call.callees)
    return starts(context, call) or (bool(call.callees) and every)


def is_unused(context: Context, call: Call) -> bool:
    """Whether a statement makes a group that nothing in the training asks for, and nothing meets in."""
    if context.branches is not None:  # the distributed branch, which isn't looked at, uses it
        return False
    others = (
        it for it in context.program.calls if not it.names & JOINS and context.runs_in_training(it.node)
    )
    return isinstance(context.program.parent(call.node), ast.Expr) and not any(
        is_query(it) or wraps(context, it) or needs_them(context, it) or _meets(it) for it in others
    )


def _meets(call: Call) -> bool:
    return any("SyncBatchNorm" in name for name in call.names)


def _needs(context: Context, callee: Value, call: Call) -> bool:
    if _is_wrap(context, callee):
        return True
    name = callee.name if isinstance(callee, Ext) else ""
    if name == DISTRIBUTED_SAMPLER:
        return call.argument("num_replicas", 1) is None or call.argument("rank", 2) is None
    home, _, function = name.rpartition(".")
    return (
        home in DISTRIBUTED
        and function.islower()
        and not function.startswith("is_")
        and function not in NEEDS_NO_GROUP
    )


def _is_wrap(context: Context, callee: Value) -> bool:
    """torch's DistributedDataParallel, apex's, a class of the same kind from elsewhere, or one derived from these."""
    family = context.program.bases(callee) if isinstance(callee, Cls) else [callee]
    return any(
        isinstance(base, Ext)
        and "DistributedDataParallel" in base.name.rpartition(".")[2]
        and not base.name.startswith("dp2ddp.")
        for base in family
    )


def opens(context: Context, call: Call) -> bool:
    """Whether a call makes a process in which the program joins a group: ``Process(target=worker)``."""
    target = call.argument("target", 1) if call.names & PROCESSES else None
    functions = context.program.values(target) if target is not None else ()
    scopes = [
        it.func.scope if isinstance(it, Bound) else it.scope
        for it in functions
        if isinstance(it, Func | Bound)
    ]
    runs = set().union(*(context.runs(part) for it in scopes for part in context.program.scopes[it].body))
    calls = (context.program.call(context.program.nodes[key]) for key in runs if key in context.program.nodes)
    return any(it is not None and it.names & JOINS for it in calls)


def launches(call: Call) -> bool:
    """Whether a call runs a command that starts ranks."""
    return any(name.startswith(RUNS_PROGRAMS) for name in call.names) and bool(
        LAUNCHERS.search(ast.unparse(call.node))
    )


def in_handler(context: Context, node: ast.AST) -> bool:
    """Whether what a node raises may be handled in its function, so that the program goes on."""
    inside = node
    for around in context.program.ancestors(node):
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return False
        if isinstance(around, ast.Try) and around.handlers and inside in around.body:
            return True
        inside = around
    return False
