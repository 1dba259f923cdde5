"""What a value is to the samples of a batch, and what comes of computing with such values.

The question behind it: each process has a part of every batch, and the gradients of the processes are averaged. Which
losses of parts average to the loss of the whole batch?
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from dp2ddp.analyse.dataflow.keys import may_be
from dp2ddp.facts import Problem


class Kind(Enum):
    """What the samples of a batch have to do with a value."""

    UNKNOWN = auto()
    """Nothing is known yet: a value that is made from itself, in a loop."""
    ZERO = auto()
    """A literal 0, where a sum begins."""
    SAME = auto()
    """No sample has a part in it: the same in every process."""
    ROWS = auto()
    """A tensor with the samples in dimension 0, each computed by itself."""
    BATCH = auto()
    """What the loader hands out: rows, or a structure of them."""
    OUTPUT = auto()
    """What the model hands out: the same, and nothing says whether it is a list."""
    EACH = auto()
    """A sample, or its number, where a loop takes one after the other."""
    NUMBERED = auto()
    """The numbers of the rows, from 0 on: those of a part begin again."""
    SECOND = auto()
    """Rows that were turned, so that the samples are in dimension 1; turned back they are rows again."""
    COLUMNS = auto()
    """A tensor with the samples in dimension 1, each computed by itself: sequences side by side."""
    STATES = auto()
    """The same, or a structure of such: what a model hands on from step to step."""
    FLAT = auto()
    """All numbers of columns in one dimension, in which the samples take turns."""
    LINES = auto()
    """The same in two, the second of a size that is given."""
    MOVED = auto()
    """Every sample computed by itself, in dimensions that are not followed."""
    PICKED = auto()
    """Some of the rows, or of their numbers, as many as the data say."""
    PLACES = auto()
    """Where such rows stand, in one dimension: `torch.where(mask)[0]`."""
    SHAPE = auto()
    """The shape of rows: its first number is that of the samples."""
    COUNT = auto()
    """A number in proportion to that of the samples."""
    SHARE = auto()
    """A number in inverse proportion to that: `1 / len(inputs)`."""
    MEAN = auto()
    """A mean over the samples, or a sum of such means: the parts' average is the whole batch's."""
    OWN = auto()
    """A number that the model computes of what it is given, one for each replica, or the mean of these."""
    EITHER = auto()
    """The mean of what the model hands out: over its rows, or of such numbers of its own."""
    EVEN = auto()
    """One or the other of these three, or a sum of several: the parts' average, if all have one size."""
    HANDED = auto()
    """What the model hands out, or the mean of that; OWN, if a backward pass starts from it."""
    TOTAL = auto()
    """A sum over the samples."""
    WHOLE = auto()
    """Computed from the rows of the whole batch, which every process has then."""


@dataclass(frozen=True)
class Held:
    """A tuple, list or dict of known entries."""

    entries: tuple[tuple[object, Value], ...]


@dataclass(frozen=True)
class Every:
    """A collection with as many elements as there are, the same number in every process."""

    element: Value


@dataclass(frozen=True)
class Unclear:
    """A value that may look at several samples at once, or is not followed; ``problem`` where that has a name.

    ``refuted``: it is known that the values of parts don't come to that of the whole batch.
    """

    place: ast.AST
    problem: Problem | None = None
    refuted: bool = False


Value = Kind | Held | Every | Unclear

PLAIN = (Kind.ZERO, Kind.SAME)
DEALT = (Kind.ROWS, Kind.BATCH, Kind.OUTPUT)
ELSEWHERE = (Kind.SECOND, Kind.MOVED)
BY_SAMPLE = (*DEALT, *ELSEWHERE)
COLUMNS = (Kind.COLUMNS, Kind.STATES, Kind.FLAT, Kind.LINES)
AVERAGED = (Kind.MEAN, Kind.OWN, Kind.EITHER, Kind.EVEN)
NUMBERS = (*PLAIN, *AVERAGED, Kind.TOTAL, Kind.COUNT, Kind.SHARE)


def join(values: list[Value], place: ast.AST) -> Value:
    """What a value is that may be any of some."""
    found: Value = Kind.UNKNOWN
    for value in values:
        found = _either(found, value, place)
    return found


def _either(one: Value, other: Value, place: ast.AST) -> Value:
    if one == other or other is Kind.UNKNOWN:
        return one
    if one is Kind.UNKNOWN:
        return other
    if (blamed := unclear([one, other])) is not None:
        return blamed
    if isinstance(one, Kind) and isinstance(other, Kind):
        if Kind.ZERO in (one, other):
            return one if other is Kind.ZERO else other
        if Kind.SAME in (one, other):
            rest = one if other is Kind.SAME else other
            return (
                rest
                if rest in (*BY_SAMPLE, *AVERAGED, Kind.PICKED, Kind.EACH, Kind.WHOLE, Kind.HANDED)
                else Unclear(place)
            )
        if {one, other} == {Kind.MEAN, Kind.WHOLE}:
            return Kind.MEAN
        if one in AVERAGED and other in AVERAGED:
            return Kind.EVEN
        if {one, other} <= {Kind.OUTPUT, Kind.HANDED, Kind.OWN, Kind.EITHER}:
            return Kind.HANDED
        if one in BY_SAMPLE and other in BY_SAMPLE:
            if Kind.SECOND in (one, other):
                return Kind.MOVED
            order = (Kind.MOVED, Kind.OUTPUT, Kind.BATCH, Kind.ROWS)
            return next(kind for kind in order if kind in (one, other))
        if {one, other} == {Kind.COLUMNS, Kind.STATES}:
            return Kind.STATES
        if Kind.PICKED in (one, other) and (one in BY_SAMPLE or other in BY_SAMPLE):
            return Kind.PICKED
        return Unclear(place)
    if isinstance(one, Held) and isinstance(other, Held):
        keys = [key for key, _ in one.entries]
        if keys == [key for key, _ in other.entries]:
            pairs = zip(one.entries, other.entries, strict=True)
            return Held(tuple((key, _either(a, b, place)) for (key, a), (_, b) in pairs))
    if isinstance(one, Held | Every) and isinstance(other, Held | Every):
        return Every(_either(element(one, place), element(other, place), place))
    rest, collection = (one, other) if isinstance(one, Kind) else (other, one)
    inner = tensor(collection, place)
    if rest is Kind.STATES and inner in (Kind.COLUMNS, Kind.STATES, Kind.UNKNOWN):
        return rest
    fits = (*PLAIN, Kind.UNKNOWN) if rest in PLAIN else (*DEALT, *PLAIN, Kind.UNKNOWN)
    return rest if rest in (*DEALT, *PLAIN) and inner in fits else Unclear(place)


def unclear(values: Iterable[Value]) -> Unclear | None:
    """The first of some values that is not known; before these, one that is known to mix samples."""
    found = [value for value in values if isinstance(value, Unclear)]
    return next((value for value in found if value.refuted), found[0] if found else None)


def same_or_unclear(values: list[Value], place: ast.AST) -> Value:
    """What is computed from what is the same in all processes; of anything else it is not known what comes."""
    left = {tensor(value, place) for value in values if value not in PLAIN}
    if left == {Kind.UNKNOWN}:
        return Kind.UNKNOWN  # what it is made from is still being asked for
    return blame(values, place) if left else Kind.SAME


def blame(values: list[Value], place: ast.AST) -> Unclear:
    """A value that is not known because of one that it is computed from, or else by itself."""
    return unclear(tensor(value, place) for value in values) or Unclear(place)


def element(value: Value, place: ast.AST) -> Value:
    """What any element of a collection is."""
    match value:
        case Held():
            return join([entry for _, entry in value.entries], place)
        case Every():
            return value.element
        case Kind.BATCH | Kind.SAME | Kind.WHOLE | Kind.UNKNOWN | Kind.STATES:
            return value
    return value if isinstance(value, Unclear) else Unclear(place)


def entry(value: Value, key: object, place: ast.AST) -> Value:
    """What one element of a collection is, or what an index takes of every sample."""
    if isinstance(value, Held):
        found = [entry for own, entry in value.entries if may_be(own, key)]
        return join(found, place) if found else element(value, place)
    if value is Kind.SHAPE:
        return Kind.COUNT if key == 0 else Kind.SAME
    if value is Kind.SECOND:
        return Kind.ROWS if isinstance(key, int) and not isinstance(key, bool) else Kind.MOVED
    return value if value in (Kind.OUTPUT, Kind.MOVED) else element(value, place)


def is_deep(value: Value, depth: int) -> bool:
    """Whether a structure has more levels than that, as one that a function wraps again and again."""
    match value:
        case Held(entries=entries):
            return depth == 0 or any(is_deep(entry, depth - 1) for _, entry in entries)
        case Every(element=inner):
            return depth == 0 or is_deep(inner, depth - 1)
    return False


def tensor(value: Value, place: ast.AST) -> Value:
    """What all tensors of a structure are together."""
    return tensor(element(value, place), place) if isinstance(value, Held | Every) else value


def holds(value: Value, kind: Kind) -> bool:
    """Whether a value, or any part of a structure, is of a kind."""
    match value:
        case Held(entries=entries):
            return any(holds(entry, kind) for _, entry in entries)
        case Every(element=inner):
            return holds(inner, kind)
    return value is kind


def is_of_samples(value: Value) -> bool:
    """Whether a loop that draws this takes one sample, or its number, after the other."""
    return value is Kind.EACH or (
        isinstance(value, Held) and any(is_of_samples(it) for _, it in value.entries)
    )


def elementwise(values: list[Value], place: ast.AST) -> Value:
    """What comes of tensors put together number by number."""
    found = join([tensor(value, place) for value in values], place)
    kinds = {it for value in values if isinstance(it := tensor(value, place), Kind)}
    if kinds & {*ELSEWHERE} and kinds & {*DEALT, Kind.PICKED}:
        return Unclear(place)  # `x.unsqueeze(0) - x.unsqueeze(1)` has a row for each pair
    if found is Kind.ZERO:
        return Kind.SAME
    if found in DEALT:
        plain = all(tensor(value, place) in (*PLAIN, Kind.OUTPUT) for value in values)
        return Kind.OUTPUT if plain else Kind.ROWS
    fine = found in (Kind.SAME, Kind.UNKNOWN, Kind.PICKED, *ELSEWHERE, Kind.EACH, Kind.WHOLE)
    return found if fine or isinstance(found, Unclear) else Unclear(place)


def mean(value: Value, place: ast.AST) -> Value:
    """What the mean over all numbers of a tensor is."""
    if value in (Kind.OUTPUT, Kind.HANDED):
        return Kind.EITHER
    if value in (*BY_SAMPLE, *COLUMNS):
        return Kind.MEAN
    fine = value in (*PLAIN, *AVERAGED, Kind.WHOLE, Kind.UNKNOWN) or isinstance(value, Unclear)
    return value if fine else Unclear(place)


def total(value: Value, place: ast.AST) -> Value:
    """What the sum of all numbers of a tensor is; of each replica's, it is no mean of them."""
    if value in (Kind.OWN, Kind.HANDED):
        return Unclear(place)
    return Kind.TOTAL if value in (*BY_SAMPLE, *COLUMNS, Kind.PICKED) else mean(value, place)


def computed(operator: ast.operator, left: Value, right: Value, place: ast.AST) -> Value:
    """What comes of arithmetic."""
    if (blamed := unclear([left, right])) is not None:
        return blamed
    if Kind.UNKNOWN in (left, right):
        return Kind.UNKNOWN
    if isinstance(left, Held | Every) or isinstance(right, Held | Every):
        return _lists(operator, left, right, place)
    by_sample = (*BY_SAMPLE, Kind.PICKED, Kind.EACH)
    rows = [value for value in (left, right) if value in by_sample]
    if isinstance(operator, ast.MatMult):
        return left if left in (*DEALT, *PLAIN) and right in PLAIN else Unclear(place)
    if all(value in (*PLAIN, *by_sample) for value in (left, right)):
        both_zero = left is right is Kind.ZERO
        return (Kind.ZERO if both_zero else Kind.SAME) if not rows else elementwise([left, right], place)
    if Kind.WHOLE in (left, right) and all(value in (*PLAIN, Kind.WHOLE) for value in (left, right)):
        return Kind.WHOLE
    # No other arithmetic of numbers of parts comes to that of the whole batch's: a product of means, say.
    return _numbers(operator, left, right) or Unclear(place, refuted=left in NUMBERS and right in NUMBERS)


def _lists(operator: ast.operator, left: Value, right: Value, place: ast.AST) -> Value:
    """``first + second`` and ``[first] * 3``; also ``"%d %s" % (i, name)``, of what is the same on all ranks."""
    if isinstance(operator, ast.Add) and all(
        isinstance(it, Held | Every) or it in PLAIN for it in (left, right)
    ):
        return Every(join([element(left, place), element(right, place)], place))
    if all(tensor(value, place) in PLAIN for value in (left, right)):
        return Kind.SAME
    if isinstance(operator, ast.Mult) and Kind.SAME in (left, right):
        return Every(element(right if left is Kind.SAME else left, place))
    return Unclear(place)


def _numbers(operator: ast.operator, left: Value, right: Value) -> Value | None:
    """Arithmetic with numbers of the whole part: means, sums and counts."""
    pair = {left, right}
    adds, times = isinstance(operator, ast.Add | ast.Sub), isinstance(operator, ast.Mult)
    over = isinstance(operator, ast.Div)
    for kind in (*AVERAGED, Kind.HANDED, Kind.TOTAL, Kind.COUNT, Kind.SHARE):
        if pair == {kind} and adds:
            return kind
        if kind in pair and Kind.ZERO in pair and adds:
            return kind
        if kind in pair and Kind.SAME in pair:
            if times or (over and left is kind):
                return kind
    if pair == {Kind.MEAN, Kind.WHOLE} and adds:
        return Kind.MEAN
    if left in AVERAGED and right in AVERAGED and adds:
        return Kind.EVEN
    if Kind.SAME in pair and pair & {*AVERAGED, Kind.HANDED} and adds:
        return left if right is Kind.SAME else right
    if over and right is Kind.COUNT and left in (Kind.TOTAL, Kind.COUNT):
        return Kind.MEAN if left is Kind.TOTAL else Kind.SAME
    if over and left is Kind.SAME and right in (Kind.COUNT, Kind.SHARE):
        return Kind.SHARE if right is Kind.COUNT else Kind.COUNT
    if times and Kind.SHARE in pair and pair & {Kind.TOTAL, Kind.COUNT}:
        return Kind.MEAN if Kind.TOTAL in pair else Kind.SAME
    return Kind.TOTAL if pair == {Kind.MEAN, Kind.COUNT} and times else None
