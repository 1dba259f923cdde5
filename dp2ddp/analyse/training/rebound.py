"""Parameters that get other data in a model's own forward."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.analyse.api.layers import LAYER_HOMES
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
            case ast.Assign(targets=[ast.Attribute(value=held, attr="data")]) as node:
                yield context.obstacle(
                    node,
                    f"nn.DataParallel on several GPUs forgets what a forward assigns to `{ast.unparse(held)}.data`; "
                    "here it is kept, as on one GPU",
                    "nothing to do if it should be kept",
                    NO_TIER,
                )


def _replicated(context: Context) -> set[int]:
    """What runs in the forwards of modules that don't call a wrapped model themselves."""
    program = context.program
    wrapped = {id(it.node) for it in program.calls if context.is_wrapped(it.callees)}
    found: set[int] = set()
    for scope in program.scopes if wrapped else ():
        if scope.owner is None or getattr(scope.node, "name", "") != "forward":
            continue
        if any(full_name(it).startswith(LAYER_HOMES) for it in program.bases(scope.owner)):
            runs = set().union(*map(context.runs, scope.body))
            found |= set() if runs & wrapped else runs
    return found
