"""What loops and comprehensions get in each round."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from dp2ddp.analyse.api.iteration import HANDS_OUT, RANGES
from dp2ddp.analyse.api.naming import LOADER
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.kinds import DEALT, PLAIN, Every, Held, Kind, Unclear, Value
from dp2ddp.analyse.dataflow.samples.batches import gives_tensors, is_list, of_columns
from dp2ddp.analyse.dataflow.samples.frames import Frame
from dp2ddp.analyse.dataflow.samples.labels import are_listed
from dp2ddp.analyse.processes.conditions import assigned

if TYPE_CHECKING:
    from dp2ddp.analyse.dataflow.samples.follower import Samples


def drawn(samples: Samples, source: ast.expr, frame: Frame) -> Value:
    """What a loop over ``source`` gets in each round."""
    loaders = samples.context.made(samples.context.iterated(samples.program.values(source)), LOADER)
    named = assigned(samples.context, source) if isinstance(source, ast.Name) and not loaders else []
    iterator = named[0] if len(named) == 1 and isinstance(named[0], ast.Call) else source
    if loaders and isinstance(source, ast.Name):
        iterator = _numbering(samples, source) or source
    call = samples.program.call(iterator) if isinstance(iterator, ast.Call) else None
    names = call.names if call is not None else set()
    given = iterator.args if isinstance(iterator, ast.Call) else []
    if names & RANGES:
        ends = samples.values(given, frame)
        if ends == [Kind.COUNT]:
            return Kind.EACH
        return kinds.same_or_unclear(ends, source)
    if "builtins.enumerate" in names:
        each = samples.drawn_in(given[0], frame)
        return Held(((0, _number(iterator, each)), (1, each)))
    if names == {"builtins.zip"}:
        return Held(tuple(enumerate(_paired([samples.drawn_in(it, frame) for it in given], source))))
    if names and names <= HANDS_OUT and given:
        return samples.drawn_in(given[0], frame)
    if loaders:
        if (found := of_columns(samples, loaders)) is not None:
            return found
        if known := [it for loader in loaders if (it := samples.context.handed.get(loader)) is not None]:
            alike = len({*known}) == 1 and len(known) == len(loaders)
            return known[0] if alike else Unclear(source)
        return Kind.ROWS if all(gives_tensors(samples, it) for it in loaders) else Kind.BATCH
    if isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute) and not given:
        held = samples.value(source.func.value, frame)
        if source.func.attr == "items" and isinstance(held, Held | Every | Kind):
            return Held(((0, Kind.SAME), (1, kinds.element(held, source))))
    value = samples.value(source, frame)
    if value in DEALT and is_list(samples.context, source):
        return value
    if value in (Kind.OUTPUT, Kind.ROWS) and are_listed(samples, source, frame):
        return value
    by_sample = value is Kind.ROWS or (value is Kind.BATCH and samples.context.hands_lists)
    return Kind.EACH if by_sample else kinds.element(value, source)


def _numbering(samples: Samples, source: ast.expr, seen: frozenset[int] = frozenset()) -> ast.Call | None:
    """The ``enumerate`` that all goes through which a name may be: ``bar = enumerate(loader)``, ``tqdm(bar)``."""
    seen |= {id(source)}
    if isinstance(source, ast.Call):
        call = samples.program.call(source)
        names = call.names if call is not None else frozenset()
        if "builtins.enumerate" in names:
            return source if len(names) == 1 and source.args else None
        hands_on = names and names <= HANDS_OUT - {"builtins.zip"} and source.args
        return _numbering(samples, source.args[0], seen) if hands_on else None
    given = assigned(samples.context, source) if isinstance(source, ast.Name) else []
    found = [
        _numbering(samples, it, seen) for it in given if id(it) not in seen
    ]  # but itself: `bar = tqdm(bar)`
    alike = len({id(it) for it in found}) == 1
    return found[0] if alike else None


def _number(call: ast.Call, each: Value) -> Value:
    """The number of what ``enumerate`` hands out: of samples, it begins again in each part of the batch."""
    if not kinds.is_of_samples(each):
        return Kind.SAME
    begins = [*call.args[1:], *(it.value for it in call.keywords)]
    return (
        Kind.EACH if all(isinstance(it, ast.Constant) and it.value == 0 for it in begins) else Unclear(call)
    )


def _paired(drawn: list[Value], source: ast.expr) -> list[Value]:
    """What ``zip`` hands out: what is the same in every process, other samples get in each: ``zip(count(), rows)``."""
    if not any(map(kinds.is_of_samples, drawn)):
        return drawn
    return [Unclear(source) if it in PLAIN else it for it in drawn]


def _unclear(each: Value, source: ast.expr) -> Value | None:
    """What is not clear of what a round gets, whose parts have names of their own: ``k, (weight, output)``."""
    if isinstance(each, Held) and any(isinstance(it, Held) for _, it in each.entries):
        return next((it for _, part in each.entries if (it := _unclear(part, source)) is not None), None)
    found = kinds.tensor(each, source)
    return found if isinstance(found, Unclear) else None


def comprehended(samples: Samples, node: ast.AST, element: ast.expr, frame: Frame) -> Value:
    """What a comprehension makes, of what its element is."""
    by_sample = False
    for part in node.generators:  # type: ignore[attr-defined]
        each = samples.drawn_in(part.iter, frame)
        if (unclear := _unclear(each, part.iter)) is not None:
            return unclear
        if any(samples.is_data(test, frame) for test in part.ifs):
            return Unclear(node)
        by_sample |= kinds.is_of_samples(each)
        if by_sample and part.ifs:
            return Unclear(node)  # as many as the samples say
    one = node.generators[0] if len(node.generators) == 1 else None  # type: ignore[attr-defined]
    if one is not None and not one.ifs and _is_part_of(element, one.target):
        if samples.value(one.iter, frame) is Kind.ROWS:
            return Kind.ROWS  # an entry for each sample
    made = samples.value(element, frame)
    return Every(Kind.EACH if by_sample and made in PLAIN else made)


def _is_part_of(node: ast.expr, target: ast.expr) -> bool:
    """Whether an expression is a part of what a loop takes, by constant names and numbers: ``it.x``, ``it[0]``."""
    while isinstance(node, ast.Attribute) or (
        isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
    ):
        node = node.value
    names = {it.id for it in ast.walk(target) if isinstance(it, ast.Name)}
    return isinstance(node, ast.Name) and node.id in names
