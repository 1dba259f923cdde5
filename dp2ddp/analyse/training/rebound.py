"""Parameters that get other data in a model's own forward."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.analyse.api.layers import HANDS_OUT_PARAMETERS, LAYER_HOMES, NAMED
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.program.values import full_name
from dp2ddp.facts import NO_TIER, Obstacle


def obstacles(context: Context) -> Iterator[Obstacle]:
    """``self.u.data = …`` in the forward of a module that is wrapped, or part of one that is.

    nn.DataParallel's replicas have parameters of their own, which share the memory of the model's or have a copy of it:
    what is written in place stays, in the first of them, and what is put in its place is forgotten.
    """
    nodes = context.program.nodes
    for key in sorted(_replicated(context), key=lambda key: context.program.order.get(key, 0)):
        match nodes.get(key):
            case ast.Assign(targets=[ast.Attribute(value=held, attr="data")]) as node if _is_parameter(
                context, held
            ):
                yield context.obstacle(
                    node,
                    f"`{ast.unparse(held)}.data`, set in a forward, now stays set, as on one GPU "
                    "(nn.DataParallel on several lost it)",
                    "no action needed; if it should not stay, compute with a copy",
                    NO_TIER,
                )


def _is_parameter(context: Context, held: ast.expr, depth: int = 0) -> bool:
    """Whether data that is assigned may be a parameter's: nothing that a forward is given, or has computed."""
    program = context.program
    match held:
        case ast.Attribute(value=inner) | ast.Subscript(value=inner):
            return _is_parameter(context, inner, depth)
        case ast.Call(func=ast.Attribute(attr=method)):
            return method in HANDS_OUT_PARAMETERS | NAMED
        case ast.Call(func=ast.Name(id=name)):
            return name == "getattr"
        case ast.Name() if depth < 5:
            return any(_defines_parameter(context, it, depth) for it in program.definitions(held))
    return False


def _defines_parameter(context: Context, definition: ast.AST, depth: int) -> bool:
    program = context.program
    if isinstance(definition, ast.arg):
        scope = program.scope(definition)
        if scope.owner is not None and scope.params[:1] == [definition.arg]:
            return True  # the module itself
        forward = scope.owner is not None and getattr(scope.node, "name", "") == "forward"
        return not forward and any(_is_parameter(context, it, depth + 1) for it in program.given(definition))
    around = program.parent(definition)
    while isinstance(around, ast.Tuple):
        around = program.parent(around)
    if isinstance(around, ast.For | ast.comprehension):
        return _is_parameter(context, around.iter, depth + 1)
    value = program.source(definition).plain
    return value is not None and _is_parameter(context, value, depth + 1)


def _replicated(context: Context) -> set[int]:
    """What runs in the forwards of modules: not of those that call a wrapped model, or are known to run elsewhere."""
    program = context.program
    calls = [it for it in program.calls if context.is_wrapped(it.callees)]
    wrapped = {id(it.node) for it in calls}
    within = set().union(*(context.runs(it.node) for it in calls))
    found: set[int] = set()
    for scope in program.scopes if wrapped else ():
        if scope.owner is None or getattr(scope.node, "name", "") != "forward":
            continue
        if scope.index in context.callers and not within.issuperset(map(id, scope.body)):
            continue
        if any(full_name(it).startswith(LAYER_HOMES) for it in program.bases(scope.owner)):
            runs = set().union(*map(context.runs, scope.body))
            found |= set() if runs & wrapped else runs
    return found
