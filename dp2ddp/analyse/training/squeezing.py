"""``x.squeeze()`` in a training loop: a rank's part of one sample would lose the dimension of the samples."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from dp2ddp.analyse.api.tensors import SQUEEZES
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.dataflow.kinds import BY_SAMPLE
from dp2ddp.analyse.dataflow.samples.follower import Samples
from dp2ddp.analyse.program.calls import Call
from dp2ddp.facts import Squeeze


def facts(context: Context, on_parts: Iterable[Call]) -> Iterator[Squeeze]:
    """The calls, of those that run on parts of the batches, that squeeze the samples without naming a dimension."""
    samples = Samples(context)
    for call in on_parts:
        squeezed = _squeezed(call)
        if squeezed is not None and samples.of(squeezed) in BY_SAMPLE:
            values = context.program.anchor(squeezed)
            yield Squeeze(**context.place(call.node), values=values, what=ast.unparse(call.node))


def _squeezed(call: Call) -> ast.expr | None:
    """What a call squeezes: ``x`` of ``x.squeeze()`` and of ``torch.squeeze(x)``."""
    match call.node:
        case ast.Call(func=ast.Attribute(attr="squeeze", value=owner), args=[], keywords=[]):
            return owner
        case ast.Call(args=[values], keywords=[]) if call.names & SQUEEZES and not isinstance(
            values, ast.Starred
        ):
            return values
    return None
