"""Parameters that get other data in a model's own forward."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.analyse.context import Context
from dp2ddp.facts import NO_TIER, Obstacle


def obstacles(context: Context) -> Iterator[Obstacle]:
    """``self.u.data = …`` in the forward of a wrapped model.

    nn.DataParallel's replicas have parameters of their own, which share the memory of the model's or have a copy of it:
    what is written in place stays, in the first of them, and what is put in its place is forgotten.
    """
    runs = set().union(
        *(context.runs(it.node) for it in context.program.calls if context.is_wrapped(it.callees))
    )
    for node in context.program.nodes.values():
        if id(node) not in runs or not context.runs_in_training(node):
            continue
        match node:
            case ast.Assign(targets=[ast.Attribute(value=held, attr="data")]):
                yield context.obstacle(
                    node,
                    f"nn.DataParallel on several GPUs forgets what a forward assigns to `{ast.unparse(held)}.data`; "
                    "here it is kept, as on one GPU",
                    "nothing to do if it should be kept",
                    NO_TIER,
                )
