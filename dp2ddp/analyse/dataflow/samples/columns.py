"""Samples in dimension 1: sequences side by side, ``(T, N)``, and what a recurrent model hands on, ``(layers, N, H)``.

A part of the batch has all of dimension 0 and some of the columns. What is known of rows is not known of these: only
what is named here keeps each column by itself. Flattened, their numbers stand in an order in which the samples take
turns; numbers of two tensors meet sample by sample there if both were flattened from columns.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from dp2ddp.analyse.api import operations
from dp2ddp.analyse.api.operations import Arguments, Does, Operation
from dp2ddp.analyse.api.tensors import DESCRIBES, FLATTENS, TAKES_SIZES
from dp2ddp.analyse.dataflow import kinds, losses
from dp2ddp.analyse.dataflow.dimensions import NUMBER
from dp2ddp.analyse.dataflow.kinds import COLUMNS, PLAIN, Held, Kind, Unclear, Value
from dp2ddp.analyse.dataflow.samples.frames import Frame
from dp2ddp.analyse.dataflow.samples.sizes import of_second
from dp2ddp.analyse.program.calls import Call

if TYPE_CHECKING:
    from dp2ddp.analyse.dataflow.samples.follower import Samples

SHAPE = Held(((0, Kind.SAME), (1, Kind.COUNT)))
"""The sizes of columns; what others there are is not asked for."""


def are_among(*values: Value) -> bool:
    """Whether any of some values has to do with columns."""
    return any(kinds.tensor(it, ast.Constant(None)) in COLUMNS for it in values)


def computed(samples: Samples, node: ast.BinOp, left: Value, right: Value) -> Value:
    """Arithmetic number by number, with others of columns or with numbers; a tensor might be as wide as the batch."""
    sides = [(node.left, left), (node.right, right)]
    return _by_number(samples, sides, node)


def _by_number(samples: Samples, given: list[tuple[ast.expr, Value]], place: ast.AST) -> Value:
    values = [value for it, value in given if not _is_number(samples, it, value)]
    found = kinds.join([kinds.tensor(it, place) for it in values], place)
    if isinstance(found, Unclear) or found is Kind.UNKNOWN or (values and found in COLUMNS):
        return found
    return Unclear(place)


def _is_number(samples: Samples, node: ast.expr, value: Value) -> bool:
    return value in PLAIN and samples.dimensions.of(node) == NUMBER


def applied(
    samples: Samples, row: Operation | None, values: list[Value], call: Call, arguments: Arguments
) -> Value:
    """An operation of torch; ``values``: what it works on, and what it is given beside."""
    node, value, rest = call.node, values[0], values[1:]
    given = [*arguments.given, *arguments.keywords.values()]
    if row is None or row.random or value not in COLUMNS:
        return kinds.blame(values, node)
    does = row.does(arguments)
    if does is Does.HANDS_ON and row.name != "squeeze" and all(it in PLAIN for it in rest):
        return value
    if does in (Does.MEAN, Does.TOTAL) and not given:
        return kinds.mean(value, node) if does is Does.MEAN else kinds.total(value, node)
    if does is Does.NUMBERS and row.rule in operations.FIXED and not arguments.keywords:
        return _by_number(samples, [(node, value), *zip(arguments.given, rest, strict=True)], node)
    if value is Kind.COLUMNS and does in (Does.SHAPE, Does.COUNTS):
        return size(does, arguments, node)
    if value is Kind.COLUMNS and row.name in FLATTENS | TAKES_SIZES:
        return _flattened(row, arguments, node)
    return Unclear(node)


def size(does: Does, arguments: Arguments, node: ast.AST) -> Value:
    given = arguments.get(0, "dim")
    if does is Does.COUNTS:
        return Kind.COUNT
    if given is None:
        return SHAPE
    return of_second(arguments.number(given), node)


def _flattened(row: Operation, arguments: Arguments, node: ast.AST) -> Value:
    """``x.view(-1)``, and ``x.view(-1, classes)``: whether lines are a sample's, what they are given with decides."""
    sizes = arguments.sizes
    if arguments.keywords or row.name in FLATTENS:
        return Unclear(node) if sizes or arguments.keywords else Kind.FLAT
    if not sizes or arguments.number(sizes[0]) != -1 or len(sizes) > 2:
        return Unclear(node)
    return Kind.FLAT if len(sizes) == 1 else Kind.LINES


def attribute(node: ast.Attribute, value: Value) -> Value:
    """What an attribute of columns is."""
    if node.attr == "data":
        return value
    if node.attr == "shape" and value is Kind.COLUMNS:
        return SHAPE
    return Kind.SAME if node.attr in DESCRIBES and node.attr != "shape" else Unclear(node)


def indexed(samples: Samples, node: ast.Subscript, value: Value, frame: Frame) -> Value:
    """What an index takes: some of dimension 0, which leaves the columns, or one of what may be a structure."""
    index = node.slice
    if isinstance(index, ast.Slice) and value in (Kind.COLUMNS, Kind.STATES):
        bounds = samples.values([it for it in (index.lower, index.upper, index.step) if it], frame)
        known = value if all(it in PLAIN for it in bounds) else kinds.blame(bounds, node)
        return Kind.UNKNOWN if Kind.UNKNOWN in bounds and kinds.unclear(bounds) is None else known
    if value is Kind.STATES and not isinstance(index, ast.Tuple):
        at = samples.value(index, frame)
        return value if at in PLAIN else kinds.blame([at], node)
    return Unclear(node)


def lost(samples: Samples, call: Call, values: list[Value], reduction: str) -> Value:
    """A loss of torch.nn: number by number, or of the lines of outputs and as many targets.

    Outputs ``(T, N, C)`` have ``T * N`` lines of ``C`` numbers, and targets ``(T, N)`` as many numbers, in one order.
    With lines of other lengths there are as many lines as numbers only if each is a sample's.
    """
    if losses.is_elementwise(call):
        fits = len(values) > 1 and len({*values}) == 1 and values[0] in (Kind.COLUMNS, Kind.FLAT)
    else:
        fits = values == [Kind.LINES, Kind.FLAT] and reduction != "none"
    if not fits:
        return Unclear(call.node)
    return {"none": values[0], "sum": Kind.TOTAL}.get(reduction, Kind.MEAN)


def handed_out(value: Value, place: ast.AST) -> Value:
    """What a model hands out that is wrapped for samples in dimension 1, by what its forward returns.

    nn.DataParallel puts the replicas' tensors together along that dimension; numbers it can't.
    """
    match value:
        case Held(entries=entries):
            return Held(tuple((key, handed_out(entry, place)) for key, entry in entries))
        case kinds.Every(element=element):
            return kinds.Every(handed_out(element, place))
        case Kind.ROWS:
            return Kind.COLUMNS
        case Kind.OUTPUT:
            return Kind.STATES
    return value if isinstance(value, Unclear) or value is Kind.UNKNOWN else Unclear(place)


def forward(samples: Samples, given: list[ast.expr], values: list[Value]) -> Unclear | None:
    """What a model is given that is neither of columns nor a number; None where all is: tensors would be cut."""
    for it, value in zip(given, values, strict=True):
        if value not in (Kind.COLUMNS, Kind.STATES) and not _is_number(samples, it, value):
            return kinds.blame([value], it)
    return None
