"""Whether running a piece of code twice does no harm."""

from __future__ import annotations

import ast

from dp2ddp.analyse.api.containers import PLAIN_METHODS
from dp2ddp.analyse.api.files import PATH_WRITES
from dp2ddp.analyse.api.purity import NO_SIDE_EFFECTS, SIDE_EFFECTS
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.values import Bound, Cls, Ext, Func, full_name


def is_pure(context: Context, statement: ast.stmt | ast.expr) -> bool:
    """Whether running a piece of code twice does no harm: nothing written, printed, drawn or fetched."""
    if isinstance(
        statement, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    ):
        return True
    return not any(_acts(context, node) for node in context.program.descendants(statement)) and not any(
        _acts(context, node)
        for index in context.program.entered(statement)
        for part in context.program.scopes[index].body
        for node in context.program.descendants(part)
    )


def _acts(context: Context, node: ast.AST) -> bool:
    if id(node) in context.agreed:
        return True  # where the processes agree, they must have met
    if not isinstance(node, ast.Call):
        return False
    call = context.program.call(node)
    if call is None or not call.callees:
        return not (isinstance(node.func, ast.Attribute) and node.func.attr in PLAIN_METHODS)
    return any(_impure(context, callee, call) for callee in call.callees)


def _impure(context: Context, callee: object, call: Call) -> bool:
    if isinstance(callee, Func | Bound):
        return False  # what it runs is looked at on its own
    if isinstance(callee, Cls):
        outside = [base for base in context.program.bases(callee) if isinstance(base, Ext)]
        return any(not base.name.startswith(NO_SIDE_EFFECTS) for base in outside)
    name = full_name(callee)  # type: ignore[arg-type]
    if name == "builtins.open":
        return not _only_reads(call)
    if name == "builtins.eval":
        return not isinstance(callee, Ext)  # an expression may be anything, and what it makes may do anything
    if not name:
        function = call.node.func
        return not (isinstance(function, ast.Attribute) and function.attr in PLAIN_METHODS)
    last = name.rpartition(".")[2]
    if name in SIDE_EFFECTS or (name.startswith("pathlib.") and (last in PATH_WRITES or last == "open")):
        return True
    return not name.startswith(NO_SIDE_EFFECTS)


def _only_reads(call: Call) -> bool:
    mode = call.argument("mode", 1)
    return mode is None or (isinstance(mode, ast.Constant) and mode.value in ("r", "rb", "rt"))
