"""The losses of torch.nn: which are means over the samples, and what makes them something else."""

from __future__ import annotations

import ast

from dp2ddp.analyse.api.losses import (
    BATCH_MEANS,
    BCE,
    BY_NAME,
    ELEMENTWISE,
    ENDINGS,
    IGNORES,
    LOSS_CLASSES,
    LOSS_FUNCTIONS,
    MEANS,
    OF_PAIRS,
    REDUCTIONS,
    WEIGHTED,
    WEIGHTS,
)
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.signature import is_spread
from dp2ddp.analyse.program.values import Made, Value, full_name
from dp2ddp.facts import Problem


def is_callable_loss(callee: Value) -> bool:
    """Whether a value is a loss of torch.nn that was made, of any kind."""
    return isinstance(callee, Made) and callee.name.startswith("torch.nn.") and callee.name.endswith(ENDINGS)


def is_loss(context: Context, call: Call) -> bool:
    """Whether a call computes a loss of torch.nn, whichever of several it may be."""
    made = all(isinstance(callee, Made) and callee.name in LOSS_CLASSES for callee in call.callees)
    return bool(call.callees) and (made or all(full_name(it) in LOSS_FUNCTIONS for it in call.callees))


def is_elementwise(call: Call) -> bool:
    return all(_last(name) in ELEMENTWISE for name in call.names)


def is_of_pairs(call: Call) -> bool:
    """Whether a loss has a label for each row, and takes none for all of them."""
    return all(_last(name) in OF_PAIRS for name in call.names)


def tensors(call: Call) -> list[ast.expr] | None:
    """What a loss is computed of; None where that can't be seen, or more may be given."""
    loss = BY_NAME[_last(next(iter(call.names)))]
    if is_spread(call.node):
        return None
    given = [call.argument(name, position) for position, name in enumerate(loss.tensors)]
    rest = [call.argument(name) for name in WEIGHTS]
    return [it for it in (*given, *rest) if it is not None]


def second(call: Call) -> ast.expr | None:
    """What of these has the samples in dimension 1."""
    loss = BY_NAME[_last(next(iter(call.names)))]
    return call.argument(loss.second, loss.tensors.index(loss.second)) if loss.second else None


def reduction(context: Context, call: Call) -> tuple[str, Problem | None]:
    """How a loss is reduced, and what makes its mean a weighted one."""
    found = {_reduced(maker) for maker in _makers(context, call)}
    (kind, problem), *others = found or {("", None)}
    if others:
        return "", Problem(
            f"`{ast.unparse(call.node.func)}` is created with different reductions",
            'use one reduction, e.g. reduction="mean"',
        )
    return kind, problem


def is_weighted(context: Context, call: Call) -> bool:
    """Whether a criterion is called that takes a mean with class weights, or without labels that it ignores."""
    made = bool(call.callees) and all(isinstance(callee, Made) for callee in call.callees)
    kind, problem = reduction(context, call) if made and is_loss(context, call) else ("", None)
    return kind == "mean" and problem is not None


def _makers(context: Context, call: Call) -> list[Call]:
    """Where the reduction of a loss is given: at the call of a function, or where the criterion is made."""
    made = [
        context.program.call(context.program.node(callee.site))
        for callee in call.callees
        if isinstance(callee, Made) and callee.name in LOSS_CLASSES
    ]
    return [maker for maker in made if maker is not None] or [call]


def _last(name: str) -> str:
    return name.removesuffix(".__call__").rpartition(".")[2]


def _option(call: Call, name: str, position: int | None = None) -> object:
    value = call.argument(name, position)
    return value.value if isinstance(value, ast.Constant) else value


def _reduced(call: Call) -> tuple[str, Problem | None]:
    spelled = ast.unparse(call.node.func)
    last = _last(next(iter(call.names)))
    given = _option(call, "reduction")
    if given is None and (places := BY_NAME[last].reduction) is not None:
        given = _option(call, "reduction", places[last in MEANS])
    if _option(call, "size_average") is False or _option(call, "reduce") is False:
        given = "none" if _option(call, "reduce") is False else "sum"
    if given == "batchmean" and last in BATCH_MEANS:
        given = "mean"
    if given not in (None, *REDUCTIONS):
        return "", Problem(f"`{spelled}` has an unknown reduction", 'use reduction="mean"')
    if last in BCE:
        return (
            str(given or "mean"),
            None,
        )  # weights of these are divided by the number of elements, as without weights
    positional = 0 if last in MEANS else 2
    weight = call.argument("weight", positional if last not in ELEMENTWISE else None)
    weighing = {"weight": weight, "ignore_index": call.argument("ignore_index")}
    for name, value in weighing.items() if given in (None, "mean") else ():
        if value is not None and not (isinstance(value, ast.Constant) and value.value in (None, -100)):
            if name == "ignore_index" or last in IGNORES:
                return "mean", Problem(
                    f"`{spelled}` is a weighted mean ({WEIGHTED[name]}): the total weight differs across ranks",
                    "",
                )
    return str(given or "mean"), None


def is_any_loss(context: Context, call: Call) -> bool:
    """Whether a call computes a loss of torch.nn, of any kind: a function of what it is given."""
    return bool(call.names) and all(
        name.startswith("torch.nn.") and (_last(name).endswith(ENDINGS) or _last(name) in MEANS.values())
        for name in call.names
    )
