"""Calls of wrapped models that train nothing, outside of evaluations."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from dp2ddp.analyse.context import Context
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.forwards import modes_before
from dp2ddp.analyse.dataflow.kinds import Kind
from dp2ddp.analyse.training.loops import BatchLoop, is_only_shown
from dp2ddp.analyse.training.reports import Reports
from dp2ddp.analyse.wrapping import functional
from dp2ddp.facts import Functional


def collect(context: Context, loops: Iterable[BatchLoop], reported: Reports) -> Iterator[Functional]:
    """Calls of wrapped models in training mode that train nothing, on what every process has: a GAN's fixed noise.

    nn.DataParallel normalises each replica's part of that by itself.
    """
    if not any(_normalises(name) for call in context.program.calls for name in call.names):
        return
    evaluating = set().union(*(loop.runs for loop in loops if not loop.trains))
    for call in context.program.calls:
        node = call.node
        if not context.is_wrapped(call.callees) or id(node) in evaluating:
            continue
        graph = not functional.is_untrained(context, call)
        if graph and not (context.runs_in_training(node) and is_only_shown(context, node)):
            continue
        if len(node.args) != 1 or node.keywords or _is_evaluated(context, node):
            continue
        drawn = kinds.tensor(reported.values.of(node.args[0]), node)
        if drawn is Kind.SAME and reported.values.meets(node):
            anchor = context.program.anchor
            parts = dict(value=anchor(node.func), target=anchor(node.args[0]))
            yield Functional(**context.place(node), **parts, whole=True, graph=graph)


def _normalises(name: str) -> bool:
    """Whether a layer of this name, or a model that is made so, may normalise over the samples it is given."""
    return "BatchNorm" in name or name.startswith("torchvision.models.")


def _is_evaluated(context: Context, node: ast.Call) -> bool:
    """Whether a function has put a model into evaluation mode when it calls it."""
    called = ast.unparse(node.func)
    modes = {model: mode for _, model, mode in modes_before(context.program, node)}
    return modes.get(called) == "eval"
