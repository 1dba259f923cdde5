"""Calls: of wrapped models, losses, functions of the project, builtins, and what has a name outside."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from dp2ddp.analyse.api import operations
from dp2ddp.analyse.api.containers import BEGINS_EMPTY, PLAIN_DICTS, SEQUENCES
from dp2ddp.analyse.api.files import BUILTIN_OPENERS, JOINS_PATHS
from dp2ddp.analyse.api.inspection import ASKS_TYPE
from dp2ddp.analyse.api.layers import GRAD, HANDS_OUT_PARAMETERS, SCALES_LOSS
from dp2ddp.analyse.api.losses import LOSS_CLASSES, LOSS_FUNCTIONS
from dp2ddp.analyse.api.naming import LOADER
from dp2ddp.analyse.api.numbers import HANDS_TENSOR_ON, OF_ONE, OF_SEVERAL
from dp2ddp.analyse.api.purity import COMPUTES_OR_COPIES
from dp2ddp.analyse.api.tensors import LIKE_ITS_TENSOR, OF_LISTS, STACKS, TENSOR_ARGUMENTS, TENSOR_HOMES
from dp2ddp.analyse.dataflow import kinds, losses
from dp2ddp.analyse.dataflow.kinds import (
    AVERAGED,
    BY_SAMPLE,
    DEALT,
    ELSEWHERE,
    PLAIN,
    Every,
    Held,
    Kind,
    Unclear,
    Value,
)
from dp2ddp.analyse.dataflow.samples import columns
from dp2ddp.analyse.dataflow.samples.batches import holds_tensor, is_list, is_only_counted, is_table
from dp2ddp.analyse.dataflow.samples.frames import Frame
from dp2ddp.analyse.dataflow.samples.functions import call_in, returned
from dp2ddp.analyse.dataflow.samples.labels import are_listed
from dp2ddp.analyse.dataflow.samples.layers import called, layers_applied
from dp2ddp.analyse.dataflow.samples.operations import applied
from dp2ddp.analyse.dataflow.samples.sizes import OF_SIZES, filled
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.values import Bound, Ext, Func, Inst, Made, full_name
from dp2ddp.facts import Problem

if TYPE_CHECKING:
    from dp2ddp.analyse.dataflow.samples.follower import Samples


def result(samples: Samples, node: ast.Call, frame: Frame) -> Value:
    """What a call gives, by what it may call."""
    call = call_in(samples, node, frame)
    if call is None:
        return Unclear(node)
    if samples.context.is_wrapped(samples.program.values(called(node))):
        return _called(samples, call, frame)  # what may be called beside it is looked at there
    made = frozenset(it for it in call.callees if isinstance(it, Made) and it.name in LOSS_CLASSES)
    functions = frozenset(it for it in call.callees if full_name(it) in LOSS_FUNCTIONS)
    entered = frozenset(it for it in call.callees - made if any(samples.program.targets(it, call)))
    apart = (it for it in (made, functions, entered, call.callees - made - functions - entered) if it)
    parts = [replace(call, callees=it) for it in apart]  # a criterion of torch, say, or one of the project
    return kinds.join([_called(samples, it, frame) for it in (parts if len(parts) > 1 else [call])], node)


def _called(samples: Samples, call: Call, frame: Frame) -> Value:
    """What a call gives that is of losses of torch, of functions of the project, or of others."""
    node, names = call.node, call.names
    function, given = node.func, handed(node)
    if any(name.endswith(SCALES_LOSS) for name in names) and node.args:
        return samples.value(node.args[0], frame)
    model = called(node)
    if samples.context.is_wrapped(samples.program.values(model)):
        return kinds.join([samples.forward(call, frame), *_beside_wrapped(samples, call, frame)], node)
    if losses.is_loss(samples.context, call):
        return _loss(samples, call, frame)
    if names == {GRAD}:
        return _gradients(samples, call, frame)
    if isinstance(function, ast.Attribute) and function.attr in HANDS_OUT_PARAMETERS:
        owners = samples.program.values(function.value)
        if owners and all(map(samples.context.module_class, owners)):
            return Every(Kind.SAME)
    callees = [it for it in call.callees if full_name(it) != "torch.nn.Module.forward"]  # overridden
    entered = [
        (scope, bound) for callee in callees for scope, _, bound in samples.program.targets(callee, call)
    ]
    if entered and all(isinstance(callee, Func | Bound | Inst) for callee in callees):
        return kinds.join([returned(samples, call, *target, frame) for target in entered], node)
    made = samples.program.values(node)
    if made and all(is_table(samples.program, it) for it in made):
        return kinds.same_or_unclear([kinds.tensor(it, node) for it in samples.values(given, frame)], node)
    outside = bool(names) and all(isinstance(callee, Ext) for callee in call.callees)
    if names and names <= STACKS and len(node.args) == 1 and not node.keywords:
        if samples.value(node.args[0], frame) is Kind.ROWS:  # a list with an entry for each sample
            return Kind.ROWS
    if (
        outside
        and given
        and all(map(_is_of_numpy, names))
        and kinds.tensor(samples.value(given[0], frame), node) in BY_SAMPLE
    ):
        return _named_operation(samples, call, names, frame)
    if names == {"collections.namedtuple.__call__"}:
        parts = [
            kinds.element(it, node) if isinstance(it, Every) else it for it in samples.values(given, frame)
        ]
        return Every(kinds.join(parts, node))
    if outside and names <= BUILTIN_OPENERS and _only_reads(call):
        return kinds.same_or_unclear(samples.values(given, frame), node)
    if outside and names <= BEGINS_EMPTY and not given:
        return Held(())  # as `[]` and `{}`
    if outside and names <= PLAIN_DICTS:
        return _dictionary(samples, node, frame)
    if outside and all(name.startswith("builtins.") for name in names):
        return _builtin(samples, call, frame)
    if outside and all(name.startswith(COMPUTES_OR_COPIES) for name in names):
        values = [kinds.tensor(value, node) for value in samples.values(given, frame)]
        sized = values if all(name.startswith("numpy.random.") for name in names) else values[:1]
        if node.args and isinstance(node.args[0], ast.Tuple):  # `np.zeros((len(inputs), 3))`
            sized = samples.values(node.args[0].elts, frame)
        if all(name.startswith("numpy.") for name in names) and any(it in OF_SIZES for it in sized):
            return filled(samples, node, frame)
        return kinds.same_or_unclear(values, node)
    like = isinstance(function, ast.Attribute) and function.attr in LIKE_ITS_TENSOR
    if len(node.args) == 1 and (like or (names and names <= OF_LISTS - STACKS)):
        made = samples.value(node.args[0], frame)
        if (made in (*PLAIN, Kind.WHOLE) and like) or isinstance(made, Held):
            if (value := kinds.tensor(made, node)) in (*PLAIN, Kind.WHOLE):
                return Kind.WHOLE if value is Kind.WHOLE else Kind.SAME
        if like:
            return applied(samples, operations.operation("torch.tensor"), "tensor", node.args, call, frame)
    layers = samples.program.values(model)
    if layers and all(isinstance(it, Made) and operations.operation(it.name) for it in layers):
        return samples.layer(call, frame)
    if any(isinstance(layer, Made) and layer.name.startswith("torch.nn.") for layer in layers):
        return samples.layer(call, frame)
    if names:
        return _named_operation(samples, call, names, frame)
    if isinstance(function, ast.Attribute):
        row = operations.method(function.attr)
        return applied(samples, row, function.attr, [function.value, *node.args], call, frame)
    return Unclear(node)


def _is_of_numpy(name: str) -> bool:
    """Whether a name is one of numpy's operations on arrays."""
    return name.startswith("numpy.") and operations.operation(name) is not None


def _beside_wrapped(samples: Samples, call: Call, frame: Frame) -> Iterator[Value]:
    """What modules give that a call may be of instead of a wrapped one, and that no wrap has."""
    context = samples.context
    held = samples.program.values(called(call.node)) - context.wrapped
    beside = (it for it in held if context.module_class(it) and not context.is_wrapped(frozenset([it])))
    others = [it for it in beside if not context.is_made_instead(it)]
    for it in others:
        for scope, _, bound in samples.program.targets(it, call) if isinstance(it, Inst) else ():
            yield returned(samples, call, scope, bound, frame)
    if made := frozenset(it for it in others if isinstance(it, Made)):
        yield layers_applied(samples, call, frame, made)


def _named_operation(samples: Samples, call: Call, names: frozenset[str], frame: Frame) -> Value:
    """A call of what has a name outside the project: only torch's operations are known by it."""
    node = call.node
    rows = {id(row): row for name in names if (row := operations.operation(name)) is not None}
    functions = all(operations.operation(name) is not None for name in names)
    if functions and len(rows) == 1:
        (row,) = rows.values()
        first = next((it.value for it in node.keywords if it.arg in TENSOR_ARGUMENTS), None)
        given = [first, *node.args] if first is not None else node.args
        return applied(samples, row, row.name, given, call, frame)
    if isinstance(node.func, ast.Attribute):
        given = [node.func.value, *node.args]
        known = all(name.startswith(TENSOR_HOMES) for name in names)
        # What the model or a loader hands out is a tensor, wherever their classes come from.
        known = known or kinds.tensor(samples.value(node.func.value, frame), node) not in PLAIN
        row = operations.method(node.func.attr) if known else None
        return applied(samples, row, node.func.attr, given, call, frame)
    values = [kinds.tensor(value, node) for value in samples.values(handed(node), frame)]
    known = all(name.startswith("torch.") or name in JOINS_PATHS for name in names)
    return kinds.same_or_unclear(values, node) if known and values else Unclear(node)


def _loss(samples: Samples, call: Call, frame: Frame) -> Value:
    """A loss of torch.nn."""
    node = call.node
    reduction, problem = losses.reduction(samples.context, call)
    given = losses.tensors(call)
    if given is None:
        return Unclear(node)
    values = [kinds.tensor(value, node) for value in samples.values(given, frame)]
    if (blamed := kinds.unclear(values)) is not None:
        return blamed
    if columns.are_among(*values):
        known = columns.lost(samples, call, values, reduction)
        return Unclear(node, problem, refuted=True) if problem is not None else known
    turned = losses.second(call)
    if turned is not None and any(it not in (*PLAIN, Kind.WHOLE) for it in values):
        if samples.context.joins_samples:
            return Unclear(node, _joined(node), refuted=True)
        at = given.index(turned)
        if values[at] is not Kind.SECOND or any(it not in DEALT for it in (*values[:at], *values[at + 1 :])):
            return Unclear(node)
        values[at] = Kind.ROWS
    if any(it in ELSEWHERE for it in values) and not losses.is_elementwise(call):
        return Unclear(node)
    if losses.is_of_pairs(call) and any(it in BY_SAMPLE for it in values[:1]) and values[1:2] == [Kind.SAME]:
        return Unclear(node, _of_all(given), refuted=True)
    value = kinds.elementwise(values, node)
    if value is Kind.PICKED and reduction == "mean":
        return Unclear(node, _picked(node.args[0] if node.args else node), refuted=True)
    if value is Kind.WHOLE:
        return value
    if isinstance(value, Unclear) or value in (*PLAIN, Kind.EACH) or problem is not None:
        return Unclear(node, problem, refuted=problem is not None)  # of one sample: their sum is no mean
    return {"none": value, "sum": Kind.TOTAL}.get(reduction, Kind.MEAN)


def _gradients(samples: Samples, call: Call, frame: Frame) -> Value:
    """``torch.autograd.grad(outputs, inputs)``: no sample's outputs depend on another's inputs, so each has its own.

    That is so of outputs with a row for each sample, and of their sum; the gradient of their mean has its size in it.
    """
    node = call.node
    outputs, inputs = call.argument("outputs", 0), call.argument("inputs", 1)
    if outputs is None or inputs is None:
        return Unclear(node)
    weights = call.argument("grad_outputs", 2)
    given = samples.values([outputs, *([weights] if weights is not None else [])], frame)
    values = [kinds.tensor(value, node) for value in (*given, samples.value(inputs, frame))]
    if (blamed := kinds.unclear(values)) is not None:
        return blamed
    if Kind.UNKNOWN in values:
        return Kind.UNKNOWN
    computed, *weighted, asked = values
    if asked not in DEALT or any(it not in (*DEALT, *PLAIN) for it in weighted):
        return Unclear(node)
    if computed in AVERAGED:
        return Unclear(node, refuted=True)
    return Every(Kind.ROWS) if computed in (*DEALT, Kind.TOTAL) else Unclear(node)


def _dictionary(samples: Samples, node: ast.Call, frame: Frame) -> Value:
    """``dict(loss=loss, more=more)``, ``OrderedDict()``, ``dict(table, more=more)``."""
    tables = samples.values([*node.args, *(it.value for it in node.keywords if it.arg is None)], frame)
    named = [(it.arg, samples.value(it.value, frame)) for it in node.keywords if it.arg is not None]
    if len(tables) == 1 and not named and tables[0] in (*DEALT, Kind.MOVED):
        return tables[0]
    entries: dict[object, Value] = {}
    for table in tables:
        match table:
            case Held(entries=inner) if all(isinstance(key, str) for key, _ in inner):
                entries |= dict(inner)
            case _:
                values = [kinds.tensor(it, node) for it in (*tables, *dict(named).values())]
                return kinds.same_or_unclear(values, node)
    return Held(tuple((entries | dict(named)).items()))


def _builtin(samples: Samples, call: Call, frame: Frame) -> Value:
    node = call.node
    (name,) = {name.rpartition(".")[2] for name in call.names} if len(call.names) == 1 else ("",)
    if name == "len" and node.args:
        value = samples.value(node.args[0], frame)
        if value is Kind.UNKNOWN:
            return value
        if isinstance(value, Every) and value.element is Kind.EACH:
            return Kind.COUNT
        if isinstance(value, Every) and isinstance(value.element, Unclear):
            return value.element  # there may be as many as there are samples
        if isinstance(value, Held | Every) or value in (*PLAIN, Kind.WHOLE, Kind.COLUMNS, Kind.SHAPE):
            return Kind.SAME
        if is_list(samples.context, node.args[0]) or samples.context.made(
            samples.program.values(node.args[0]), LOADER
        ):
            return Kind.SAME
        part = node.args[0]
        if value in (Kind.OUTPUT, Kind.ROWS) and are_listed(samples, part, frame):
            return Kind.SAME
        if value is Kind.BATCH and (holds_tensor(samples, part) or is_only_counted(samples, part)):
            return Kind.COUNT
        counted = {Kind.ROWS: Kind.COUNT, Kind.PLACES: Kind.TOTAL, Kind.PICKED: Kind.TOTAL}
        return counted[value] if value in counted else Unclear(node)
    if name == "next" and node.args:
        return samples.drawn_in(node.args[0], frame)
    if name == "zip" and len(node.args) == 1 and isinstance(node.args[0], ast.Starred):
        rows = samples.value(node.args[0].value, frame)
        return Every(rows) if rows is Kind.ROWS else rows if isinstance(rows, Unclear) else Unclear(node)
    if name in ASKS_TYPE:
        return Kind.SAME
    if name in OF_ONE and len(node.args) == 1:
        value = samples.value(node.args[0], frame)
        keeps = name in HANDS_TENSOR_ON and not columns.are_among(value) or value in PLAIN
        keeps |= name in SEQUENCES and kinds.tensor(value, node) is Kind.STATES
        return value if keeps or isinstance(value, Unclear) else Unclear(node)
    if name == "sum" and len(node.args) == 1:
        element = samples.drawn_in(node.args[0], frame)
        return kinds.computed(ast.Add(), Kind.ZERO, element, node)
    if name in OF_SEVERAL:
        values = [kinds.tensor(value, node) for value in samples.values(node.args, frame)]
        return kinds.same_or_unclear(values, node)
    return Unclear(node)


def _picked(place: ast.AST) -> Problem:
    """What to say of a mean over as many elements as the data say."""
    shown = ast.unparse(place)
    return Problem(
        f"the loss is a mean over the selected elements `{shown}`, whose number differs across ranks", ""
    )


def _only_reads(call: Call) -> bool:
    """Whether a file is opened for nothing but reading."""
    mode = call.argument("mode", 1)
    return mode is None or (
        isinstance(mode, ast.Constant) and str(mode.value).startswith("r") and "+" not in str(mode.value)
    )


def _joined(loss: ast.Call) -> Problem:
    """What to say of targets of which no part can be taken by rows."""
    shown = ast.unparse(loss.func)
    return Problem(
        f"the loss `{shown}` may be given targets one after the other, which can't be cut by samples",
        "pad them: a row for each sample",
    )


def _of_all(given: list[ast.expr]) -> Problem:
    """What to say of labels that are made of no sample: there are as many as the whole batch has rows."""
    outputs, labels = (ast.unparse(it) for it in given[:2])
    return Problem(
        f"the labels `{labels}` fit the whole batch, not the rows of one rank",
        f"load them with the samples, or make `len({outputs})` of them",
        briefly="load them with the samples",
    )
