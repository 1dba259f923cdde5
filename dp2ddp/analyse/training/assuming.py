"""What would have to hold for a loss that is not known to be a mean over the samples to be one.

Where following a loss ends at something unknown, it goes on with what that has to be: a function that is not known
treats every sample by itself, a loss that is not known is a mean over them. Each is an assumption, at the place of the
cause. What is known to mix samples, or to weigh parts in another way, is refuted: then there is nothing to assume.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.analyse.api.tensors import HANDS_ON
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.dataflow import losses
from dp2ddp.analyse.dataflow.kinds import (
    AVERAGED,
    BY_SAMPLE,
    NUMBERS,
    PLAIN,
    Every,
    Held,
    Kind,
    Unclear,
    Value,
)
from dp2ddp.analyse.dataflow.samples import Frame, Samples
from dp2ddp.analyse.program.calls import handed
from dp2ddp.analyse.training.gathering import Gathering
from dp2ddp.analyse.training.loops import BatchLoop
from dp2ddp.facts import Assumption
from dp2ddp.plan import shortened

MOST = 3
"""How many places one loss may be unknown at; where there are more, it is assumed of the loss as a whole."""
LONG = 60
OF_SAMPLES = (*BY_SAMPLE, Kind.PICKED, Kind.EACH, Kind.NUMBERED, Kind.PLACES)
LINEAR = (*AVERAGED, Kind.HANDED, Kind.TOTAL)
FINE = (*AVERAGED, Kind.WHOLE, Kind.OUTPUT, Kind.HANDED)


@dataclass(frozen=True)
class Trial:
    """A loss with what was assumed of it, and what follows it with that."""

    samples: Gathering
    assumptions: tuple[Assumption, ...]


def trial(context: Context, loops: list[BatchLoop], backward: ast.Call) -> Trial | None:
    """What has to hold for the loss of a backward pass to be a mean over the samples; None where that is refuted."""
    loss = context.loss(backward)
    numbers = scalars(context, loss)
    found: dict[int, Assumption] = {}
    taken: dict[int, Value] = {}
    for _ in range(MOST + 1):
        samples = _samples(context, loops, taken)
        value = samples.of(loss)
        if value in FINE and (found or value is not Kind.WHOLE):
            return Trial(samples, tuple(found.values()))
        if not isinstance(value, Unclear):
            if value in (Kind.TOTAL, Kind.COUNT) and not found:
                return None  # a sum over the samples, by what is known
            break
        if value.refuted:
            return None
        place = value.place
        if id(place) not in context.program.file_of or id(place) in taken or len(found) == MOST:
            break
        node, frame = samples.surfaced.get(id(place), (loss, None))
        if frame is None or (wanted := supposed(samples, node, frame, numbers)) is None:
            return None
        if wanted[0] is Kind.UNKNOWN:
            break
        taken[id(place)] = wanted[0]
        found[id(place)] = context.assumption(place, wanted[1])
    if _is_weighed(context, numbers):
        return None
    shown = _shown(loss)
    whole = context.assumption(loss, f"the loss `{shown}` is a mean over the samples of the batch")
    samples = _samples(context, loops, {id(part): Kind.MEAN for part in _uses(context, loss)})
    return Trial(samples, (whole,)) if samples.of(loss) is Kind.MEAN else None


def _is_weighed(context: Context, numbers: frozenset[int]) -> bool:
    """Whether a loss of torch's that is known to be no plain mean over samples is among some numbers."""
    calls = (context.program.call(context.program.nodes[it]) for it in numbers if it in context.program.nodes)
    known = (it for it in calls if it is not None and losses.is_loss(context, it))
    return any(losses.reduction(context, it)[1] is not None for it in known)


def _samples(context: Context, loops: list[BatchLoop], taken: dict[int, Value]) -> Gathering:
    samples = Gathering(context, loops)
    samples.taken = {**context.taken, **taken}
    return samples


def _uses(context: Context, loss: ast.expr) -> Iterator[ast.AST]:
    """Where a loss is looked at."""
    yield loss
    if isinstance(loss, ast.Name):
        made = set(context.program.definitions(loss))
        for node in context.program.body(context.program.scope(loss)):
            if (
                isinstance(node, ast.Name)
                and node.id == loss.id
                and made & {*context.program.definitions(node)}
            ):
                yield node


def supposed(
    samples: Samples, node: ast.AST, frame: Frame, numbers: frozenset[int]
) -> tuple[Value, str] | None:
    """What a value that is not known has to be, and that in words; None where it is refuted, UNKNOWN for no idea."""
    context, shown = samples.context, _shown(node)
    call = context.program.call(node)
    given = [leaf for it in parts_of(context, node) for leaf in leaves(samples.value_in(it, frame))]
    if call is not None and losses.is_any_loss(context, call):
        return Kind.MEAN, f"the loss `{shown}` is a mean over the samples of the batch"
    rows = any(it in OF_SAMPLES for it in given) or (Kind.COUNT in given and isinstance(node, ast.Call))
    if rows and id(node) in numbers:
        return Kind.MEAN, f"`{shown}` is a mean over the samples of the batch"
    if rows:
        around = context.program.parent(node)
        several = isinstance(around, ast.Assign) and isinstance(around.targets[0], ast.Tuple)
        made = Every(Kind.ROWS) if several and around.value is node else Kind.ROWS  # type: ignore[union-attr]
        return made, f"`{shown}` does not mix samples"
    if any(it in LINEAR for it in given):
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            return Kind.MEAN, f"`{shown}` is a mean over the samples of the batch"
        if call is None or (call.names and all(it.startswith("torch.") for it in call.names)):
            return None  # a function of means that is known, and is no sum of them
        return Kind.MEAN, f"`{shown}` only adds up the means that it is given"
    if id(node) in numbers and not all(it in NUMBERS for it in given):
        return Kind.MEAN, f"`{shown}` is a mean over the samples of the batch"
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call):
        if given and not all(it in PLAIN for it in given):
            return Kind.UNKNOWN, ""
        if isinstance(node, ast.Call) and given:
            return Kind.SAME, f"`{shown}` is the same on all ranks"
        return Kind.SAME, f"`{shown}` does not depend on the samples"
    return Kind.UNKNOWN, ""


def leaves(value: Value) -> list[Value]:
    """What a structure has in it."""
    match value:
        case Held(entries=entries):
            return [leaf for _, entry in entries for leaf in leaves(entry)]
        case Every(element=inner):
            return leaves(inner)
    return [value]


def parts_of(context: Context, node: ast.AST) -> list[ast.expr]:
    """What an expression is made of; a name, what it is given."""
    if isinstance(node, ast.Name):
        made = [it for it in context.program.definitions(node) if not isinstance(it, ast.arg)]
        return [
            it for one in made for it in _right_sides(context.program.statement(one), one) if it is not node
        ]
    if isinstance(node, ast.Call):
        receiver = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return [*receiver, *(it.value if isinstance(it, ast.Starred) else it for it in handed(node))]
    return [it for it in ast.iter_child_nodes(node) if isinstance(it, ast.expr)]


def scalars(context: Context, loss: ast.expr) -> frozenset[int]:
    """The expressions that are single numbers, as a loss is made of them."""
    program = context.program
    found: set[int] = set()
    waiting: list[ast.AST] = [loss]
    while waiting:
        node = waiting.pop()
        if id(node) in found:
            continue
        found.add(id(node))
        match node:
            case ast.Name() | ast.Attribute() if program.definitions(node):
                for made in program.definitions(node):
                    statement = None if isinstance(made, ast.arg) else program.statement(made)
                    waiting += _right_sides(statement, made)
                    if isinstance(made, ast.arg):
                        waiting += program.given(made)
            case ast.BinOp(left=left, right=right, op=ast.Add() | ast.Sub()):
                waiting += (left, right)
            case ast.BinOp(left=left, right=right, op=ast.Mult()):
                waiting += (left, right)
            case ast.BinOp(left=left):
                waiting.append(left)
            case ast.UnaryOp(operand=operand):
                waiting.append(operand)
            case ast.IfExp(body=one, orelse=other):
                waiting += (one, other)
            case ast.Subscript(value=ast.Call() as call):
                waiting.append(call)
            case ast.Call(func=ast.Attribute(attr=name, value=inner)) if name in HANDS_ON:
                waiting.append(inner)
            case ast.Call():
                for index in program.called_scopes(node):
                    body = program.body(program.scopes[index])
                    waiting += (
                        it.value for it in body if isinstance(it, ast.Return) and it.value is not None
                    )
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                waiting += parts
    return frozenset(found)


def _right_sides(statement: ast.stmt | None, made: ast.AST) -> list[ast.expr]:
    """What a definition is given, with the whole of what it is taken out of."""
    match statement:
        case ast.Assign(targets=targets, value=value):
            pairs = [it for it in targets if isinstance(it, ast.Tuple) and made in it.elts]
            if pairs and isinstance(value, ast.Tuple) and len(value.elts) == len(pairs[0].elts):
                return [value.elts[pairs[0].elts.index(made)]]  # type: ignore[arg-type]
            return [value]
        case ast.AugAssign(target=target, value=value):
            return [value, target]
        case ast.AnnAssign(value=ast.expr() as value):
            return [value]
        case ast.For(iter=source):
            return [source]
    return []


def _shown(node: ast.AST) -> str:
    """An expression as it is written; of a long one, its beginning."""
    return shortened(" ".join(ast.unparse(node).split()), LONG)
