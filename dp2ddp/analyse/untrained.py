"""Calls of wrapped models that train nothing, outside of evaluations."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from dp2ddp.analyse import functional
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.loops import BatchLoop
from dp2ddp.analyse.reports import Reports
from dp2ddp.facts import Functional


def collect(context: Context, loops: Iterable[BatchLoop], reported: Reports) -> Iterator[Functional]:
    """Calls of wrapped models in training mode that train nothing, on what every process has: a GAN's fixed noise.

    nn.DataParallel normalises each replica's part of that by itself.
    """
    evaluating = set().union(*(loop.runs for loop in loops if not loop.trains))
    for call in context.program.calls:
        node = call.node
        if (
            not context.is_wrapped(call.callees)
            or id(node) in evaluating
            or not functional.is_untrained(context, call)
        ):
            continue
        if len(node.args) != 1 or node.keywords or _is_evaluated(context, node):
            continue
        if reported.is_whole(node.args[0]) and reported.values.meets(node):
            anchor = context.program.anchor
            yield Functional(
                **context.place(node), value=anchor(node.func), target=anchor(node.args[0]), whole=True
            )


def _is_evaluated(context: Context, node: ast.Call) -> bool:
    """Whether a function has put a model into evaluation mode when it calls it."""
    mode = "train"
    before = (it for it in context.program.body(context.program.scope(node)) if isinstance(it, ast.Call))
    order = context.program.order
    for call in sorted(before, key=lambda it: order[id(it)]):
        match call.func:
            case ast.Attribute(value=model, attr="train" | "eval" as called) if (
                order[id(call)] < order[id(node)]
            ):
                mode = called if ast.unparse(model) == ast.unparse(node.func) else mode
    return mode == "eval"
