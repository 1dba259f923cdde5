"""Torch's operations: what comes of the values that a function or a method is given."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dp2ddp.analyse.api import operations
from dp2ddp.analyse.api.containers import DICT_CONTENTS, ONE_ELEMENT
from dp2ddp.analyse.api.operations import Arguments, Does, Operation
from dp2ddp.analyse.api.purity import NO_TENSORS_OF_OTHERS
from dp2ddp.analyse.api.tensors import (
    CONSTANTS_LIKE,
    FILLS_BY_INDEX,
    JOINS_BY_NAME,
    MAKES_ARRAY,
    PAIRS_ROWS,
    RESIZES,
    SHAPES_LIKE,
    SPREADS,
)
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.definitions import given_to, number_of
from dp2ddp.analyse.dataflow.kinds import (
    AVERAGED,
    BY_SAMPLE,
    DEALT,
    NUMBERS,
    PLAIN,
    Every,
    Held,
    Kind,
    Unclear,
    Value,
)
from dp2ddp.analyse.dataflow.samples import columns
from dp2ddp.analyse.dataflow.samples.frames import Frame
from dp2ddp.analyse.dataflow.samples.pairs import turns
from dp2ddp.analyse.dataflow.samples.sizes import counts, filled, numbered, resized, size_of
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.program.values import Const, full_name

if TYPE_CHECKING:
    from dp2ddp.analyse.dataflow.samples.follower import Samples


def applied(
    samples: Samples, row: Operation | None, name: str, given: list[ast.expr], call: Call, frame: Frame
) -> Value:
    """A function of torch, or a method: ``given[0]`` is what it works on. Without a row, it is not known."""
    node = call.node
    does = row.does(Arguments()) if row is not None and row.rule in operations.FIXED else None
    is_method = bool(given) and isinstance(node.func, ast.Attribute) and node.func.value is given[0]
    if does is Does.FILLS and not (is_method and name[:4] != "new_"):
        return filled(samples, node, frame)
    if not given:
        return Unclear(node)
    if is_method and name in RESIZES:
        return resized(samples, node, frame)
    if does is Does.ORDERS:
        return numbered(samples, node, frame)
    value = samples.value(given[0], frame)
    keywords = {it.arg: it.value for it in node.keywords if it.value is not given[0]}
    if value is Kind.UNKNOWN:
        return value
    rest = samples.values([*given[1:], *keywords.values()], frame)
    if isinstance(value, Unclear):
        return kinds.blame([value, *rest], node)
    if columns.are_among(value, *rest):
        given_beside = Arguments(tuple(given[1:]), keywords, number=partial(number_of, samples.program))
        return columns.applied(samples, row, [value, *rest], call, given_beside)
    is_plain = all(kinds.tensor(it, node) in PLAIN for it in rest)
    if name in DICT_CONTENTS and is_method and is_plain:
        return kinds.element(value, node) if name in ONE_ELEMENT else value
    if name == "where" and len(given) == 1:
        places = Held(((0, Kind.PLACES), (1, Unclear(node))))
        return places if value in BY_SAMPLE else Unclear(node)
    if value in PLAIN and does is not Does.HANDS_ON:
        if is_plain:
            return Kind.SAME
        if all(kinds.tensor(it, node) in (*PLAIN, Kind.UNKNOWN) for it in rest):
            return Kind.UNKNOWN  # `args.path = os.path.join(args.path, name)`
    if value is Kind.WHOLE and row is not None and not row.random:
        if all(kinds.tensor(it, node) in (*PLAIN, Kind.WHOLE) for it in rest):
            return value  # whatever mixes them
    if row is None or (
        is_method and value in PLAIN and not is_plain and _is_foreign(samples.program, given[0])
    ):
        return Unclear(node)
    shift = 0 if row.name == "einsum" else 1
    arguments = Arguments(
        tuple(given[shift:]),
        keywords,
        rank=samples.dimensions.rank(given[0]),
        is_flat=samples.dimensions.may_be_flat(given[0]),
        least=samples.dimensions.least_rank(given[0]),
        counts=lambda it: counts(samples, it, frame),
        is_of_batch=lambda it: kinds.tensor(samples.value(it, frame), it)
        not in (*PLAIN, Kind.COUNT, Kind.SHAPE),
        is_rows=lambda it: kinds.tensor(samples.value(it, frame), it) in DEALT,
        number=partial(number_of, samples.program),
        place=int(value is Kind.SECOND),
    )
    return _done(samples, row, row.does(arguments), [value, *rest], call, arguments)


def _done(
    samples: Samples, row: Operation, does: Does, values: list[Value], call: Call, arguments: Arguments
) -> Value:
    """What comes of an operation that does so much to what it is given."""
    node, value, rest = call.node, values[0], values[1:]
    if does is Does.HANDS_ON and value is Kind.SECOND and row.name == "squeeze":
        return Kind.MOVED  # a dimension before that of the samples may be gone
    if does is Does.HANDS_ON and row.name in MAKES_ARRAY and isinstance(value, Held | Every):
        if kinds.tensor(value, node) in BY_SAMPLE:
            return Kind.MOVED  # the samples are behind a dimension more
    if does is Does.HANDS_ON:
        return Kind.ROWS if value in (Kind.ROWS, Kind.BATCH) and row.name != "to" else value
    if does in (Does.MEAN, Does.TOTAL):
        if isinstance(value, Every) and value.element in (*AVERAGED, Kind.TOTAL, Kind.WHOLE):
            return value.element
        if isinstance(value, Held | Every):
            return Unclear(node)
        if row.name == "dot":
            return kinds.total(kinds.elementwise(values, node), node)
        found = kinds.mean(value, node) if does is Does.MEAN else kinds.total(value, node)
        return replace(found, refuted=value is Kind.PICKED) if isinstance(found, Unclear) else found
    if row.name in CONSTANTS_LIKE and value in NUMBERS and all(it in PLAIN for it in rest):
        return Kind.ZERO if CONSTANTS_LIKE[row.name] == 0 else Kind.SAME
    if does is Does.TELLS:
        return Kind.SAME if value in BY_SAMPLE else Unclear(node)
    if does in (Does.SHAPE, Does.COUNTS):
        return size_of(does, value, arguments, node)
    if row.shapes:
        return _reshaped(samples, row, does, value, rest, node)
    if does is Does.MIXES and row.name == "sum" and value is Kind.PICKED:
        along = arguments.get(0, "dim", "axis")
        return Kind.TOTAL if along is not None and arguments.numbers(along) == [0] else Unclear(node)
    last = len(values) if row.rows is None else row.rows
    found = kinds.elementwise(values[:last], node)
    if isinstance(found, Unclear) or any(kinds.tensor(it, node) not in PLAIN for it in values[last:]):
        factors = [*node.args, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
        pairs = row.name in PAIRS_ROWS or (row.name == "matmul" and turns(samples.program, factors))
        met = pairs and all(kinds.tensor(it, node) in BY_SAMPLE for it in values[:2])
        mixes = met or _surely_mixes(row, arguments, value)
        return found if isinstance(found, Unclear) and not mixes else Unclear(node, refuted=mixes)
    match does:
        case Does.NUMBERS:
            return found
        case Does.LOOKS_UP if kinds.tensor(value, node) in PLAIN and found in DEALT:
            return Kind.ROWS
        case Does.SAMPLES if value in PLAIN and row.name in FILLS_BY_INDEX:
            return Unclear(node)  # as many rows as it has, not as the part
        case Does.SAMPLES if found in DEALT:
            return Kind.ROWS
        case Does.SAMPLES if found is Kind.SECOND and row.keeps:
            return found
        case Does.PARTS if found in DEALT:
            return Every(Kind.ROWS)
        case Does.PICKS if found in BY_SAMPLE:
            return Kind.PICKED
    return Unclear(node, refuted=_surely_mixes(row, arguments, value))


def _is_foreign(program: Program, node: ast.expr) -> bool:
    """Whether what a method is called of is made by what is neither torch's nor the project's."""
    waiting: list[ast.AST] = [node]
    seen: set[int] = set()
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        names = {full_name(it) for it in program.values(part) if not isinstance(it, Const)}
        call = program.call(part) if isinstance(part, ast.Call) else None
        names |= call.names if call is not None else set()
        if any(name and not name.startswith(NO_TENSORS_OF_OTHERS) for name in names):
            return True
        if isinstance(part, ast.Name | ast.Attribute):
            waiting += given_to(program, part)
        elif isinstance(part, ast.BinOp | ast.UnaryOp | ast.IfExp | ast.Subscript):
            waiting += (it for it in ast.iter_child_nodes(part) if isinstance(it, ast.expr))
    return False


def _reshaped(
    samples: Samples, row: Operation, does: Does, value: Value, rest: list[Value], node: ast.Call
) -> Value:
    """Whether the samples are still in the first dimension."""
    inner = kinds.tensor(value, node)
    sizes = [kinds.tensor(it, node) for it in rest]
    if row.name == "stack" and inner in (*AVERAGED, Kind.TOTAL, Kind.WHOLE):
        return Every(inner)
    if does is Does.MIXES:
        return Unclear(node)
    if (
        inner is Kind.BATCH
        and row.name in JOINS_BY_NAME
        and row.name != "stack"
        and samples.context.hands_lists
    ):
        return Unclear(node)
    if inner in PLAIN and row.name in SPREADS:
        return Kind.ROWS if does is Does.SAMPLES else Unclear(node)
    if any(it not in (*PLAIN, Kind.COUNT, Kind.SHAPE) for it in sizes) and row.name not in SHAPES_LIKE:
        return kinds.blame(sizes, node)
    if does is Does.TURNS and inner in (*DEALT, Kind.SECOND):
        return Kind.ROWS if inner is Kind.SECOND else Kind.SECOND
    if inner is Kind.SECOND:
        return Kind.MOVED
    if inner in DEALT:
        return (
            inner
            if does is Does.SAMPLES and row.name in JOINS_BY_NAME
            else (Kind.ROWS if does is Does.SAMPLES else Kind.MOVED)
        )
    return inner if inner in (*PLAIN, Kind.MOVED) or isinstance(inner, Unclear) else Unclear(node)


def _surely_mixes(row: Operation, arguments: Arguments, value: Value) -> bool:
    """Whether an operation mixes samples: along dimension 0 only where it is known that they are there."""
    told = row.rule not in operations.FIXED and (arguments.given or arguments.keywords)
    return operations.surely_mixes(row, arguments) and not (value is Kind.MOVED and told)
