"""Normalisation over all processes, where DataParallel had none."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.analyse.api.handing import CONVERTS_NORMS
from dp2ddp.analyse.context import Context
from dp2ddp.facts import NO_TIER, Obstacle


def obstacles(context: Context) -> Iterator[Obstacle]:
    """BatchNorm that is synchronized now that there are several processes."""
    for call in context.program.calls:
        if not context.runs_in_training(call.node):
            continue
        if call.names & CONVERTS_NORMS:
            yield context.obstacle(
                call.node,
                "SyncBatchNorm does nothing in DataParallel, but in DDP it averages over all ranks",
                "remove it if you want to train as before",
                NO_TIER,
                works=_is_asked_for(context, call.node),
            )


def _is_asked_for(context: Context, node: ast.AST) -> bool:
    """Whether a condition stands round a place: an option that says so, of which whoever gives it knows."""
    return any(isinstance(around, ast.If) for around in context.program.ancestors(node))
