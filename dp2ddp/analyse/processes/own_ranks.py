"""What only runs where a program has started ranks by itself, or joined a group of its own.

With DataParallel alone there is no process group: a collective, a rank or a DistributedDataParallel that is come to
without one raises. So whatever always leads to such a call belongs to the distributed branch, however it is chosen.
"""

from __future__ import annotations

import ast
import re

from dp2ddp.analyse.api.parallel import WRAP
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.values import Bound, Cls, Ext, Func, Value

HOMES = ("torch.distributed", "torch.distributed.distributed_c10d")
STARTS = {"torch.multiprocessing.spawn", "torch.multiprocessing.start_processes"}
JOINS = {f"{home}.init_process_group" for home in HOMES}
SAMPLER = "torch.utils.data.DistributedSampler"
# Functions of torch.distributed that need no group, beside those that only ask.
FREE = {"init_device_mesh", "get_node_local_rank", "register_backend"}
LAUNCHERS = re.compile(r"torchrun|torch\.distributed\.(launch|run)\b")
RUNS = ("os.system", "os.exec", "os.spawn", "os.popen", "subprocess.")
PROCESSES = {"multiprocessing.Process", "torch.multiprocessing.Process"}


def is_query(call: Call) -> bool:
    """Whether a call asks if there is a process group."""
    return bool(call.names & {f"{home}.is_initialized" for home in HOMES})


def is_denied(call: Call) -> bool:
    """Whether a call asks what is never so with DataParallel alone."""
    return is_query(call) or bool(
        call.names & {f"dp2ddp.runtime.{name}" for name in ("is_initialized", "stands_aside")}
    )


def wraps(context: Context, call: Call) -> bool:
    """Whether a call may wrap a model for ranks of the program's own."""
    return any(_is_wrap(context, callee) for callee in call.callees)


def is_alike(call: Call) -> bool:
    """Whether a call wraps a model in a DataParallel that is not torch's: ``MMDataParallel``."""
    names = (callee.name for callee in call.callees if isinstance(callee, Ext) and callee.name != WRAP)
    return any("DataParallel" in name.rpartition(".")[2] and not name.startswith("dp2ddp.") for name in names)


def starts(context: Context, call: Call) -> bool:
    """Whether a call starts ranks, or joins their group."""
    return bool(call.names & (STARTS | JOINS)) or opens(context, call)


def needs_them(context: Context, call: Call) -> bool:
    """Whether a call starts ranks, or raises where there are none, whatever it may call."""
    every = all(_needs(context, callee, call) for callee in call.callees)
    return starts(context, call) or (bool(call.callees) and every)


def _needs(context: Context, callee: Value, call: Call) -> bool:
    if _is_wrap(context, callee):
        return True
    name = callee.name if isinstance(callee, Ext) else ""
    if name == SAMPLER:
        return call.argument("num_replicas", 1) is None or call.argument("rank", 2) is None
    home, _, function = name.rpartition(".")
    return home in HOMES and function.islower() and not function.startswith("is_") and function not in FREE


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
    return any(name.startswith(RUNS) for name in call.names) and bool(
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
