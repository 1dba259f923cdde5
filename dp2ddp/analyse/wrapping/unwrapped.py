"""Where a program needs a model unwrapped that may be wrapped, and whether it is unwrapped there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.analyse.api.layers import MODULE_NAMES
from dp2ddp.analyse.api.parallel import WRAP
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.processes.answers import Answers, Literals
from dp2ddp.analyse.program.calls import handed
from dp2ddp.analyse.program.values import Bound, Cls, Func


def in_wrapped(used: ast.Attribute) -> str:
    """What is written for an attribute of a model where the model is wrapped."""
    named = isinstance(used.value, ast.Name | ast.Attribute)
    return f"`{ast.unparse(used.value) if named else ''}.module.{used.attr}`"


def named_again(context: Context, call: ast.expr) -> Iterator[ast.expr]:
    """Where a model that may be wrapped gets another name: ``net = model.module if several else model``."""
    program = context.program
    for node in program.nodes.values():
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            around = program.parent(node)
            named = isinstance(around, ast.IfExp) and node is not around.test
            named = named or isinstance(around, ast.Assign | ast.Return)
            if named and id(call) in context.made(program.values(node), WRAP):
                yield node


def bare_uses(
    context: Context, call: ast.expr, access: type[ast.expr_context] = ast.Load
) -> Iterator[ast.Attribute]:
    """What a program asks of a model that may be wrapped, or sets, and that only a bare one has."""
    site = id(call)
    for node in context.program.nodes.values():
        if isinstance(node, ast.Attribute) and node.attr not in MODULE_NAMES and isinstance(node.ctx, access):
            values = context.program.values(node.value)
            if site in context.made(values, WRAP):
                yield node


def given_bare(context: Context, call: ast.expr) -> ast.Call | None:
    """A call outside the project that is given the model where it is not wrapped: ``torch.jit.script(model)``."""
    program, answers = context.program, Answers(context)
    said = answers.around(call)
    for other in program.calls:
        outside = bool(other.names) and not any(isinstance(it, Func | Bound | Cls) for it in other.callees)
        if not outside or WRAP in other.names or not context.runs_in_training(other.node):
            continue
        named = (it for it in handed(other.node) if isinstance(it, ast.Name | ast.Attribute))
        if any(id(call) in context.made(program.values(it), WRAP) for it in named):
            if contradicts(context, answers, other.node, said):
                return other.node
    return None


def contradicts(context: Context, answers: Answers, node: ast.AST, said: Literals, depth: int = 0) -> bool:
    """Whether a place is come to only where something that is said does not hold, by its conditions or its calls'."""
    if answers.contradict(answers.around(node), said):
        return True
    calls = context.callers.get(context.program.scope(node).index, ()) if depth < 4 else ()
    return bool(calls) and all(contradicts(context, answers, it, said, depth + 1) for it in calls)
