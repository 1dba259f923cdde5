"""What would have to hold for a loss that is not known to be a mean over the samples to be one.

Where following a loss ends at something unknown, it goes on with what that has to be: a function that is not known
treats every sample by itself, a loss that is not known is a mean over them. Each is an assumption, at the place of the
cause. What is known to mix samples, or to weigh parts in another way, is refuted: then there is nothing to assume. What
is unknown hides nothing of that: a loss is followed past all of it, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from dp2ddp.analyse.api import operations
from dp2ddp.analyse.api.tensors import HANDS_ON
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.dataflow import losses
from dp2ddp.analyse.dataflow.definitions import behind, right_sides
from dp2ddp.analyse.dataflow.forwards import Forwards
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
from dp2ddp.analyse.dataflow.samples.follower import Samples
from dp2ddp.analyse.dataflow.samples.frames import Frame
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.training.combining import Combining
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

    samples: Combining
    assumptions: tuple[Assumption, ...]


def trial(
    context: Context, loops: list[BatchLoop], backward: ast.Call, only: Path | None = None
) -> Trial | Forwards | None:
    """What has to hold for the loss of a backward pass to be a mean over the samples; None where that is refuted.

    Where it is refuted by a place that is not the first which is not known, what follows it up to that place.
    ``only``: the program that it is asked for.
    """
    loss = context.loss(backward)
    numbers = scalars(context, loss)
    gathered = _supposing(_SupposingCombined(context, loops), numbers, only)
    if _is_refuted(gathered.of(loss)):
        return gathered
    found: dict[int, Assumption] = {}
    taken: dict[int, Value] = {}
    for _ in range(MOST + 1):
        samples = _samples(context, loops, taken, only)
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
    if _is_weighed(context, numbers & gathered.followed):
        return None
    if (refuting := _refuting(context, loss, numbers, only)) is not None:
        return refuting
    shown = _shown(loss)
    whole = context.assumption(loss, f"the loss `{shown}` is a mean over the samples of the batch")
    samples = _samples(context, loops, {id(part): Kind.MEAN for part in _uses(context, loss)}, only)
    return Trial(samples, (whole,)) if samples.of(loss) is Kind.MEAN else None


def _refuting(
    context: Context, loss: ast.expr, numbers: frozenset[int], only: Path | None
) -> _Supposing | None:
    """What shows that a loss is no mean over the samples, whatever is not known of it; no rows are gathered for it."""
    samples = _supposing(_Supposing(context), numbers, only)
    value = samples.of(loss)
    if value is Kind.TOTAL:  # what it is divided by may be the number of the samples
        other = _supposing(_Supposing(context), numbers, only, Kind.COUNT)
        return samples if other.of(loss) is not Kind.MEAN else None
    return samples if _is_refuted(value) else None


def _is_refuted(value: Value) -> bool:
    return isinstance(value, Unclear) and value.refuted


class _Supposing(Forwards):
    """Follows a loss past all that is not known, as far as something is known to mix samples."""

    numbers: frozenset[int] = frozenset()
    """What are single numbers."""
    alike = Kind.SAME
    """What is supposed of that which is made of no sample, as far as is known."""

    @cached_property
    def _supposed(self) -> set[int]:
        return set()

    def take(self, value: Value, node: ast.AST, frame: Frame) -> Value:
        value = super().take(value, node, frame)
        if not isinstance(value, Unclear) or value.refuted or self._fuel < 0:
            return value
        given = [leaf for it in parts_of(self.context, node) for leaf in leaves(self.value(it, frame))]
        if (refuted := next(filter(_is_refuted, given), None)) is not None:
            return refuted
        wanted = supposed(self, node, frame, self.numbers)
        if wanted is None:
            return replace(value, refuted=True)
        self._supposed.add(id(node))
        call = self.program.call(node) if isinstance(node, ast.Call) else None
        if call is not None and call.names == {"builtins.len"}:
            return Kind.COUNT
        if _moves(call) and any(it in OF_SAMPLES for it in given):
            return Kind.MOVED  # in which dimension the samples are then is not known
        if wanted[0] is not Kind.UNKNOWN:
            return self.alike if wanted[0] is Kind.SAME else wanted[0]
        if any(it in OF_SAMPLES or it is Kind.COUNT for it in given):
            return Kind.ROWS
        return Kind.MEAN if any(it in LINEAR for it in given) else self.alike

    def is_data(self, test: ast.AST, frame: Frame) -> bool:
        """Whether a condition asks for numbers of the batch: not what is only supposed to be made of them."""
        asks = isinstance(test, ast.BoolOp | ast.UnaryOp | ast.Compare | ast.Constant)
        if asks or not self._is_supposed(test, frame):
            return super().is_data(test, frame)
        match test:
            case ast.Call(func=ast.Attribute(value=receiver), args=given):
                return any(self.is_data(part, frame) for part in (receiver, *given))
        return False

    def _is_supposed(self, node: ast.AST, frame: Frame) -> bool:
        """Whether an expression is not known itself, or a name is given one that is not."""
        self.value(node, frame)
        made = self.program.definitions(node) if isinstance(node, ast.Name) else ()
        held = [it for one in made for it in behind(self.program, one)]
        return id(node) in self._supposed or any(id(it) in self._supposed for it in held)


def _moves(call: Call | None) -> bool:
    """Whether a call is one of torch's that only give another shape: ``torch.stack``, ``x.permute``."""
    if call is None:
        return False
    rows = [operations.operation(name) for name in call.names]
    if not rows and isinstance(call.node.func, ast.Attribute):
        rows = [operations.method(call.node.func.attr)]
    return bool(rows) and all(row is not None and row.shapes for row in rows)


class _SupposingCombined(_Supposing, Combining):
    """The same, where the rows of all processes are gathered for what mixes them."""


def _supposing(
    samples: _Supposing, numbers: frozenset[int], only: Path | None, alike: Kind = Kind.SAME
) -> _Supposing:
    samples.numbers, samples.only, samples.alike = numbers, only, alike
    return samples


def _is_weighed(context: Context, numbers: frozenset[int]) -> bool:
    """Whether a loss of torch's that is known to be no plain mean over samples is among some numbers."""
    calls = (context.program.call(context.program.nodes[it]) for it in numbers if it in context.program.nodes)
    known = (it for it in calls if it is not None and losses.is_loss(context, it))
    return any(losses.reduction(context, it)[1] is not None for it in known)


def _samples(
    context: Context, loops: list[BatchLoop], taken: dict[int, Value], only: Path | None
) -> Combining:
    samples = Combining(context, loops)
    samples.only = only
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
    given = [leaf for it in parts_of(context, node) for leaf in leaves(samples.of(it, frame))]
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
        program = context.program
        given = [
            it
            for one in program.definitions(node)
            for it in (
                program.given(one) if isinstance(one, ast.arg) else right_sides(program.statement(one), one)
            )
        ]
        return [it for it in given if it is not node]
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
                    if isinstance(made, ast.arg):
                        waiting += program.given(made)
                    elif (held := _unpacked(context, made)) is not None:
                        waiting += held
                    else:
                        waiting += right_sides(program.statement(made), made)
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
                waiting += _returned(context, node)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                waiting += parts
    return frozenset(found)


def _returned(context: Context, node: ast.Call) -> Iterator[ast.expr]:
    """What the functions of the project that a call is of return."""
    program, call = context.program, context.program.call(node)
    scopes = (
        {it for one in call.callees for it, _, _ in program.targets(one, call)} if call is not None else ()
    )
    for index in scopes:
        for inner in program.body(program.scopes[index]):
            if isinstance(inner, ast.Return) and inner.value is not None:
                yield inner.value


def _unpacked(context: Context, made: ast.AST) -> list[ast.expr] | None:
    """What a name gets that is one of several to which what a function returns is unpacked; None for others."""
    match context.program.statement(made):
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Call() as call) if made in names:
            at = names.index(made)  # type: ignore[arg-type]
            returned = list(_returned(context, call))
            if returned and all(isinstance(it, ast.Tuple) and len(it.elts) == len(names) for it in returned):
                return [it.elts[at] for it in returned]  # type: ignore[attr-defined]
    return None


def _shown(node: ast.AST) -> str:
    """An expression as it is written; of a long one, its beginning."""
    return shortened(" ".join(ast.unparse(node).split()), LONG)
