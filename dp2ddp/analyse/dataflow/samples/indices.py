"""Indices: what ``x[…]`` is, whether it takes the same from every sample, picks some, or puts them in another order."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from dp2ddp.analyse.api.operations import written
from dp2ddp.analyse.api.tensors import KEEPS_MASKS, MAKES_MASKS
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.definitions import NAMES, given_to, is_literal, is_option
from dp2ddp.analyse.dataflow.keys import key_of
from dp2ddp.analyse.dataflow.kinds import BY_SAMPLE, DEALT, PLAIN, Every, Held, Kind, Unclear, Value
from dp2ddp.analyse.dataflow.samples import columns
from dp2ddp.analyse.dataflow.samples.batches import holds_tensor, is_list
from dp2ddp.analyse.dataflow.samples.frames import OPEN, Frame
from dp2ddp.analyse.dataflow.samples.labels import are_listed, of_every
from dp2ddp.analyse.processes.conditions import assigned
from dp2ddp.analyse.program.calls import handed
from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.program.values import Const
from dp2ddp.facts import Problem

if TYPE_CHECKING:
    from dp2ddp.analyse.dataflow.samples.follower import Samples


def subscript(samples: Samples, node: ast.Subscript, frame: Frame) -> Value:
    """What an index takes."""
    if is_option(samples.program, node) or (
        is_literal(samples.program, node) and not samples.program.definitions(node.value)
    ):
        return Kind.SAME
    value = samples.value(node.value, frame)
    if isinstance(value, Unclear) or value is Kind.UNKNOWN:
        return value
    index = node.slice
    if value in kinds.COLUMNS:
        return columns.indexed(samples, node, value, frame)
    if value is Kind.BATCH and written(index) is not None and holds_tensor(samples, node.value):
        if not is_list(samples.context, node.value):
            return Unclear(node)  # one of its samples
    if isinstance(index, ast.Constant):
        return kinds.entry(value, index.value, node)
    if (key := key_of(samples.program, index)) and _is_plain_key(samples, index, frame):
        return kinds.entry(value, key, node)
    if (keys := _texts(samples.program, index)) and samples.value(index, frame) in PLAIN:
        return kinds.join([kinds.entry(value, key, node) for key in keys], node)
    if value is Kind.SHAPE:
        first = index.lower if isinstance(index, ast.Slice) else index
        number = first.operand if isinstance(first, ast.UnaryOp) else first
        return Kind.SAME if isinstance(number, ast.Constant) and number.value else Unclear(node)
    if isinstance(index, ast.Slice) and isinstance(value, Held | Every):
        return Every(kinds.element(value, node))
    if value is Kind.OUTPUT and isinstance(samples.program.parent(node), ast.Starred):
        return Every(value)  # `[first(x[0]), *x[1:]]` takes a list apart
    if isinstance(value, Held | Every):
        at = samples.value(index, frame)
        return kinds.element(value, node) if at in PLAIN else kinds.blame([at], node)
    at = samples.value(index, frame)
    if value in BY_SAMPLE:
        if value in DEALT and at is Kind.EACH:
            return Kind.EACH
        if value in DEALT and isinstance(index, ast.Slice) and is_list(samples.context, node.value):
            return Every(value)
        if keeps_all(samples, index) or (at in PLAIN and is_list(samples.context, node.value)):
            return value
        if value in (Kind.OUTPUT, Kind.ROWS) and at in PLAIN and are_listed(samples, node.value, frame):
            return value
        if value in DEALT and _is_of_each(samples, index, frame):
            return Kind.ROWS
        if value in DEALT and of_every(samples, node, frame):
            return Kind.ROWS
        picks = at is Kind.PLACES or (at in BY_SAMPLE and _is_mask(samples.context, index))
        if value in DEALT and not picks and _is_by_place(samples, index, frame):
            return Unclear(node, _by_place(node), refuted=True)
        bounds = [it for it in (index.lower, index.upper) if it] if isinstance(index, ast.Slice) else []
        return Kind.PICKED if picks else kinds.blame([at, *samples.values(bounds, frame)], node)
    if value in PLAIN and _looks_up(samples, index, frame):
        return Kind.ROWS
    by = kinds.tensor(at, index)
    if value in PLAIN and by is Kind.UNKNOWN:
        return Kind.UNKNOWN  # of what it is made from itself
    return value if by in PLAIN else kinds.blame([at], node)


def _is_plain_key(samples: Samples, index: ast.expr, frame: Frame) -> bool:
    """Whether a key is the same in every process, whatever is not known of it."""
    return kinds.tensor(samples.value(index, frame), index) in PLAIN


def _texts(program: Program, index: ast.expr) -> list[str]:
    """The names that an index may be: ``"A" if forwards else "B"``."""
    keys = [it.value if isinstance(it, Const) else None for it in program.values(index)]
    return sorted(map(str, keys)) if all(isinstance(it, str) for it in keys) else []


def _is_of_each(samples: Samples, index: ast.expr, frame: Frame) -> bool:
    """``outputs[torch.arange(len(outputs)), labels]``: a number of each sample."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    first, *rest = (
        [kinds.tensor(it, index) for it in samples.values(parts, frame)] if parts else [Kind.UNKNOWN]
    )
    return first is Kind.NUMBERED and all(it in (*PLAIN, Kind.ROWS, Kind.BATCH) for it in rest)


def _looks_up(samples: Samples, index: ast.expr, frame: Frame) -> bool:
    """Whether a row of a table is taken for each sample: ``torch.eye(n)[labels]``, ``table[labels, 0]``.

    A mask is no label: the table it fits has as many rows as the batch.
    """
    first, *rest = index.elts if isinstance(index, ast.Tuple) and index.elts else [index]
    by_sample = samples.value(first, frame) in DEALT and not _is_mask(samples.context, first)
    return by_sample and all(isinstance(it, ast.Constant) or keeps_all(samples, it) for it in rest)


def _is_by_place(samples: Samples, index: ast.expr, frame: Frame) -> bool:
    """Whether an index takes samples by their place in the batch, in another order: ``x[np.arange(len(x))[::-1]]``.

    It is computed from how many samples there are, and from nothing else of them.
    """
    first = index.elts[0] if isinstance(index, ast.Tuple) and index.elts else index
    if isinstance(first, ast.Slice) or samples.value(first, frame) is Kind.NUMBERED:
        return False
    waiting, counted, seen = [first], False, set[int]()
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        value = kinds.tensor(samples.value(part, frame), part)
        counted |= value in (Kind.COUNT, Kind.NUMBERED)
        if value in (*PLAIN, Kind.COUNT, Kind.NUMBERED):
            continue
        match part:
            case ast.Name():
                inner = given_to(samples.program, part)
            case ast.Call():
                receiver = [part.func.value] if isinstance(part.func, ast.Attribute) else []
                inner = [*receiver, *handed(part)]
            case ast.Subscript(value=held):
                inner = [held]
            case ast.BinOp() | ast.UnaryOp() | ast.List() | ast.Tuple():
                inner = [it for it in ast.iter_child_nodes(part) if isinstance(it, ast.expr)]
            case _:
                return False
        if not inner:
            return False
        waiting += inner
    return counted


def _is_mask(context: Context, index: ast.expr, depth: int = 0) -> bool:
    """Whether an index is made of yes and no, one for each row or number."""
    match index:
        case ast.Compare() | ast.UnaryOp(op=ast.Invert()) | ast.UnaryOp(op=ast.Not()):
            return True
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr()):
            return _is_mask(context, index.left, depth) and _is_mask(context, index.right, depth)
        case ast.Call(func=ast.Attribute(attr=name, value=value)):
            return name in MAKES_MASKS or (name in KEEPS_MASKS and _is_mask(context, value, depth))
        case ast.Name() | ast.Attribute() if depth < NAMES:
            held = assigned(context, index)
            return bool(held) and all(
                _is_mask(context, value, depth + 1) for value in held if value is not index
            )
    return False


def keeps_all(samples: Samples, index: ast.expr) -> bool:
    """Whether an index takes the same from every sample: slices and numbers after the samples' dimension."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    first = parts[0] if parts else None
    every = isinstance(first, ast.Constant) and first.value is Ellipsis
    return (is_everything(first) or every) and all(_is_place(samples, part) for part in parts[1:])


def first_of(index: ast.expr) -> ast.expr:
    """What an index says of dimension 0."""
    return index.elts[0] if isinstance(index, ast.Tuple) and index.elts else index


def is_everything(index: ast.expr | None) -> bool:
    """Whether an index is ``:``."""
    return isinstance(index, ast.Slice) and index.lower is index.upper is index.step is None


def _is_place(samples: Samples, index: ast.expr) -> bool:
    if isinstance(index, ast.Slice):
        bounds = (index.lower, index.upper, index.step)
        return all(bound is None or _is_plain(samples, bound) for bound in bounds)
    return _is_plain(samples, index)


def _is_plain(samples: Samples, node: ast.expr) -> bool:
    return samples.value(node, OPEN) in PLAIN


def _by_place(place: ast.AST) -> Problem:
    """What to say of samples in an order that is not that of the batch."""
    shown = ast.unparse(place)
    return Problem(
        f"the loss uses `{shown}`, samples taken by index: if sharded, a rank has only its own", ""
    )
