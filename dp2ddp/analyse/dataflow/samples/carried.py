"""Means over parts of earlier batches, which meet that of a part of the current one: parts weigh otherwise in each.

``losses.append(loss)`` in a loop over batches, with ``sum(losses) / len(losses)`` in the loss; ``total += loss``.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dp2ddp.analyse.api.naming import LOADER
from dp2ddp.analyse.context import Context, once
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.definitions import reaching, text
from dp2ddp.analyse.dataflow.kinds import AVERAGED, PLAIN, Value
from dp2ddp.analyse.dataflow.samples.frames import OPEN
from dp2ddp.analyse.dataflow.samples.writes.stores import stores_in, written_to
from dp2ddp.analyse.program.sources import How

if TYPE_CHECKING:
    from dp2ddp.analyse.dataflow.samples.follower import Samples

CALLS = 4
"""Through how many calls what a function is given is followed."""


def is_carried(samples: Samples, node: ast.AST, value: Value) -> bool:
    """Whether a mean over a part of the batch, or several, is one that an earlier round over the batches has made."""
    match node:
        case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()):
            use = node
        case ast.AugAssign(target=ast.Name() | ast.Attribute() as use):
            pass
        case _:
            return False
    if kinds.tensor(value, node) not in AVERAGED:
        return False
    return _is_left_by_round(samples.context, use) or _is_kept(samples.context, use)


def are_of_one_batch(samples: Samples, nodes: Iterable[ast.expr], depth: int = 0) -> bool:
    """Whether all samples that expressions are made of come of one batch, which a loop takes of one loader.

    Parts of batches of several sizes may be as large all the same. In a function it is so where it is for each call.
    """
    program = samples.program
    drawn: set[int] = set()
    seen: set[int] = set()
    parameters: list[ast.arg] = []
    waiting = [*nodes]
    while waiting:
        for name in ast.walk(waiting.pop()):
            if not isinstance(name, ast.Name) or kinds.tensor(samples.value(name, OPEN), name) in PLAIN:
                continue
            for made in program.definitions(name):
                if isinstance(made, ast.arg):
                    parameters += [made] if made not in parameters else []
                    continue
                source = program.source(made)
                if source.value is None or source.how not in (How.ASSIGNED, How.ELEMENT):
                    return False
                taken = any(isinstance(it, ast.comprehension) for it in program.ancestors(made))
                if program.order[id(made)] >= program.order[id(name)] and not taken:
                    return False
                if id(made) not in seen:
                    seen.add(id(made))
                    waiting += [source.value] if source.how is How.ASSIGNED else []
                    drawn |= {id(source.value)} if source.how is How.ELEMENT else set()
                    if any("builtins.zip" in program.names_of(it) for it in ast.walk(source.value)):
                        return False
    if not parameters:
        return len(drawn) == 1
    given = [program.given(parameter) for parameter in parameters]
    if drawn or depth > CALLS or not all(given):
        return False
    calls: dict[int, list[ast.expr]] = defaultdict(list)
    for it in (it for some in given for it in some):
        calls[id(next((at for at in program.ancestors(it) if isinstance(at, ast.Call)), None))].append(it)
    return all(are_of_one_batch(samples, some, depth + 1) for some in calls.values())


@once
def _is_left_by_round(context: Context, use: ast.Name | ast.Attribute) -> bool:
    """Whether an earlier round of a loop over batches round a name has given it what it is."""
    program = context.program
    made = reaching(context, use)
    for loop in _batch_loops(context, use):
        inside = [it for it in made if program.is_inside(it, loop)]
        if len(inside) < len(made) and any(_comes_later(context, it, use) for it in inside):
            return True
    return False


def _comes_later(context: Context, definition: ast.AST, use: ast.AST) -> bool:
    """Whether a definition comes after a use in a round, or uses it itself: ``total = total + loss``."""
    program = context.program
    same = program.statement(definition) is program.statement(use)
    return same or program.order[id(definition)] > program.order[id(use)]


@once
def _is_kept(context: Context, use: ast.Name | ast.Attribute) -> bool:
    """Whether a collection gets something in each round of a loop over batches, and is none that the round makes."""
    program = context.program
    for place in stores_in(context, program.scope(use)).get(text(use), ()):
        held = written_to(place) if isinstance(place, ast.Call) else place.value  # type: ignore[attr-defined]
        made = program.definitions(held)
        for loop in _batch_loops(context, place):
            if not made or any(not program.is_inside(it, loop) for it in made):
                return True
    return False


def _batch_loops(context: Context, node: ast.AST) -> Iterator[ast.AST]:
    """The loops round a place in its function each of whose rounds has another batch."""
    for around in context.program.ancestors(node):
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return
        if isinstance(around, ast.For | ast.AsyncFor | ast.While) and _draws(context, around):
            yield around


@once
def _draws(context: Context, loop: ast.AST) -> bool:
    """Whether each round of a loop takes a batch of a loader."""
    program = context.program
    if isinstance(loop, ast.For | ast.AsyncFor):
        if context.made(context.iterated(program.values(loop.iter)), LOADER):
            return True
    return any(
        "builtins.next" in program.names_of(it)
        for part in loop.body  # type: ignore[attr-defined]
        for it in program.descendants(part)
        if isinstance(it, ast.Call)
    )
