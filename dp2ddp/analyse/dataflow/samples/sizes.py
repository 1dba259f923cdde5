"""Sizes and shapes: the number of samples, and tensors that are made with it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from dp2ddp.analyse.api.operations import Arguments, Does, written
from dp2ddp.analyse.api.tensors import NUMBER_ARGUMENTS, OVERWRITES, SIZE_ARGUMENTS, SIZE_PLACES
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.kinds import DEALT, ELSEWHERE, PLAIN, Held, Kind, Unclear, Value
from dp2ddp.analyse.dataflow.samples.frames import Frame
from dp2ddp.analyse.program.calls import handed
from dp2ddp.analyse.program.link import Program

if TYPE_CHECKING:
    from dp2ddp.analyse.dataflow.samples.follower import Samples

OF_SIZES = (Kind.COUNT, Kind.SHAPE)


def counted(node: ast.expr) -> ast.expr | None:
    """What an expression counts the rows of: ``x.size(0)``, ``x.shape[0]``, ``x.size()[0]``, ``len(x)``."""
    match node:
        case ast.Call(func=ast.Attribute(value=rows, attr="size"), args=[ast.Constant(value=0)]):
            return rows
        case ast.Subscript(value=ast.Attribute(value=rows, attr="shape"), slice=ast.Constant(value=0)):
            return rows
        case ast.Subscript(
            value=ast.Call(func=ast.Attribute(value=rows, attr="size"), args=[]), slice=ast.Constant(value=0)
        ):
            return rows
        case ast.Call(func=ast.Name(id="len"), args=[rows]):
            return rows
    return None


def counts(samples: Samples, size: ast.expr, frame: Frame) -> bool:
    """Whether a size is the number of samples, or a shape that begins with it."""
    value = samples.value(size.value if isinstance(size, ast.Starred) else size, frame)
    return value in OF_SIZES


def numbered(samples: Samples, node: ast.Call, frame: Frame) -> Value:
    """``torch.arange(len(inputs))``: the numbers of the rows, where they are those of a part."""
    values = samples.values(handed(node), frame)
    if values == [Kind.COUNT] or (values[:1] == [Kind.COUNT] and all(it in PLAIN for it in values[1:])):
        if "torch.arange" in samples.program.call(node).names:  # type: ignore[union-attr]
            return Kind.NUMBERED
    return kinds.same_or_unclear(values, node)


def filled(samples: Samples, node: ast.Call, frame: Frame) -> Value:
    """``torch.zeros(len(inputs), 3)``: rows, where the first size is that of the samples."""
    given, limits = _sized(samples.program, node)
    sizes = [size for it in given for size in getattr(it, "elts", [it])]
    bounds = samples.values(limits, frame)
    if not all(value in PLAIN for value in bounds):
        return kinds.blame(bounds, node)
    values = samples.values([it.value if isinstance(it, ast.Starred) else it for it in sizes], frame)
    if values == [Kind.ROWS] and given[0] not in node.keywords:
        return Kind.ROWS  # `torch.FloatTensor(rows)`
    if values and values[0] in OF_SIZES and all(it in PLAIN for it in values[1:]):
        return Kind.ROWS
    return kinds.same_or_unclear(values, node)


def resized(samples: Samples, node: ast.Call, frame: Frame) -> Value:
    """``x.resize_(len(inputs), 3)`` and ``x.resize_as_(inputs)``, where all that ``x`` holds is written anew then."""
    around = samples.program.parent(node)
    if not isinstance(around, ast.Attribute) or around.attr not in OVERWRITES or len(node.args) == 0:
        return Unclear(node)
    if node.func.attr == "resize_as_":  # type: ignore[attr-defined]
        value = samples.value(node.args[0], frame)
        return Kind.ROWS if value in DEALT else kinds.same_or_unclear([value], node)
    return filled(samples, node, frame)


def _sized(program: Program, node: ast.Call) -> tuple[list[ast.expr], list[ast.expr]]:
    """What a call that fills a tensor is given as its sizes, and the limits of what it fills it with."""
    named = [it.value for it in node.keywords if it.arg in SIZE_ARGUMENTS]
    limits = [it.value for it in node.keywords if it.arg in NUMBER_ARGUMENTS]
    if getattr(node.func, "attr", "") != "randint":
        return [*node.args, *named], limits
    call = program.call(node)
    names = call.names if call is not None else set()
    given = len(node.args)
    first = (SIZE_PLACES.get(name, given) for name in names)
    place = min((at if at >= 0 else given + at for at in first), default=given)
    place = given if named else place
    return [*node.args[place:], *named], [*node.args[:place], *limits]


def of_second(dimension: int | None, node: ast.AST) -> Value:
    """The size in a dimension of what has its samples in dimension 1."""
    if dimension is None or dimension < 0:
        return Unclear(node)
    return Kind.COUNT if dimension == 1 else Kind.SAME


def size_of(does: Does, value: Value, arguments: Arguments, node: ast.Call) -> Value:
    given = arguments.get(0, "dim")
    if value in PLAIN:
        return Kind.SAME
    if value in (Kind.PLACES, Kind.PICKED):
        sizes = shape_of_some(node)
        whole = sizes if given is None else kinds.entry(sizes, written(given), node)
        return Kind.TOTAL if does is Does.COUNTS else whole
    if value is Kind.SECOND and does is Does.SHAPE:
        return of_second(None if given is None else written(given), node)
    if value not in DEALT:
        return Kind.COUNT if does is Does.COUNTS and value in ELSEWHERE else Unclear(node)
    if does is Does.COUNTS:
        return Kind.COUNT
    return Kind.SHAPE if given is None else kinds.entry(Kind.SHAPE, written(given), node)


def shape_of_some(place: ast.AST) -> Value:
    """The shape of as many rows as the data say: the parts' first sizes add up to the whole batch's."""
    return Held(((0, Kind.TOTAL), (None, Unclear(place))))
