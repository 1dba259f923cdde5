"""What is written into rows in place: each sample's own, or something that is not, by whichever name."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from dp2ddp.analyse.api.iteration import HANDS_FIRST_OUT
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.definitions import right_side
from dp2ddp.analyse.dataflow.keys import key_of
from dp2ddp.analyse.dataflow.kinds import BY_SAMPLE, DEALT, PLAIN, Kind, Unclear, Value, is_of_samples
from dp2ddp.analyse.dataflow.samples.conditions import guarded, loops_apart, may_run
from dp2ddp.analyse.dataflow.samples.frames import OPEN, Frame
from dp2ddp.analyse.dataflow.samples.indices import keeps_all
from dp2ddp.analyse.dataflow.samples.writes.looks import looks_in, writes
from dp2ddp.analyse.dataflow.samples.writes.rounds import Rounds
from dp2ddp.analyse.dataflow.samples.writes.stores import hands_on, with_stores, written_into
from dp2ddp.analyse.program.calls import handed
from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.program.sources import How

if TYPE_CHECKING:
    from dp2ddp.analyse.dataflow.samples.follower import Samples


def with_changes(
    samples: Samples, name: ast.expr, definitions: list[ast.AST], value: Value, frame: Frame
) -> Value:
    """A value with what is stored into it: ``x.append(…)``, ``x[…] = …``."""
    value = with_stores(samples, name, definitions, value, frame)
    if kinds.tensor(value, name) in kinds.COLUMNS:
        written = next(iter(looks_in(samples.context).places(name)), None)
        return value if written is None else Unclear(written)
    return _with_writes(samples, name, value, frame) if value in BY_SAMPLE else value


def _with_writes(samples: Samples, name: ast.expr, value: Value, frame: Frame) -> Value:
    """Rows, unless something that is not each sample's own is written into them, by whichever name."""
    for place in looks_in(samples.context).places(name):
        own = samples.program.scope(place) is samples.program.scope(name)
        inside = frame if own else OPEN
        if own and not may_run(samples.context, place, frame):
            continue
        if (blamed := _mixed(samples, place, name, inside)) is not None:
            return blamed
    return value


def _mixed(samples: Samples, place: ast.AST, name: ast.expr, frame: Frame) -> Unclear | None:
    """What a place writes into rows that is not each sample's own; None where all is."""
    statement = samples.program.statement(place)
    if isinstance(place, ast.Subscript) and hands_on(getattr(statement, "value", place), place):
        return None
    changed = [
        (it, kinds.tensor(samples.value(it, frame), it)) for it in looks_in(samples.context).changed(place)
    ]
    looked = [(it, value) for it, value in changed if value in (*BY_SAMPLE, Kind.EACH)]
    if changed and not looked:
        return next((value for _, value in changed if isinstance(value, Unclear)), None)
    rounds = Rounds(samples, frame)
    loops = rounds.around(place)
    for held, value in looked:
        own = value is Kind.EACH or (len(loops) == 1 and _is_at_number(place, loops[0], rounds))
        if loops and not own:
            return Unclear(place)
        if (blamed := _written_by(samples, place, held, value, own, frame)) is not None:
            return blamed
    if loops:
        found = rounds.other(place, _reads(place, statement), loops[0]) if len(loops) == 1 else place
        if found is not None:
            return Unclear(found, refuted=True)
    repeated = _repeated_apart(samples, statement, name, frame)
    return repeated or kinds.unclear([guarded(samples, statement, name, Kind.SAME, frame)])


def _repeated_apart(samples: Samples, statement: ast.stmt, name: ast.expr, frame: Frame) -> Unclear | None:
    """Another loop round a statement whose rounds are not known to be as many in every process."""
    for around in loops_apart(samples.program, statement, name):
        drawn = samples.drawn_in(around.iter, frame)
        if isinstance(drawn, Unclear) and not is_of_samples(drawn):
            return drawn
    return None


def _is_at_number(place: ast.AST, loop: ast.For, rounds: Rounds) -> bool:
    """Whether a place stores at the number of the sample that a loop is at."""
    if not isinstance(place, ast.Subscript):
        return False
    parts = getattr(place.slice, "elts", [place.slice])
    return bool(parts) and rounds.is_number(parts[0], loop)


def _written_by(
    samples: Samples, place: ast.AST, held: ast.expr, value: Value, own: bool, frame: Frame
) -> Unclear | None:
    """What a place writes into rows, or into one sample's, of other samples'."""
    single = (*PLAIN, Kind.EACH, Kind.WHOLE, Kind.UNKNOWN)
    match place:
        case ast.Subscript(ctx=ast.Del()):
            return Unclear(place) if value is Kind.ROWS else None
        case ast.Subscript(slice=index):
            new = _stored_at(samples, place, frame)
            if own:
                return None if new in single else kinds.blame([new], place)
            return _written_at(samples, place, index, value, new, frame)
        case ast.Call(func=ast.Attribute(value=receiver, attr=method)) if receiver is held and not writes(
            method
        ):
            return Unclear(place) if value is Kind.ROWS else None  # a list's `insert`
        case ast.Call() if value is Kind.EACH:
            found = next((it for it in samples.values(handed(place), frame) if it not in single), None)
            return None if found is None else kinds.blame([found], place)
        case ast.Call():
            found = written_into(samples, place, value, frame)
            return found if isinstance(found, Unclear) else None
        case ast.AugAssign(value=added) if value is Kind.EACH:
            new = samples.value(added, frame)
            return None if new in single else kinds.blame([new], place)
        case ast.AugAssign():
            found = samples.value(place, frame)
            return None if found in (*BY_SAMPLE, Kind.UNKNOWN) else kinds.blame([found], place)
    return Unclear(place)


def _stored_at(samples: Samples, place: ast.Subscript, frame: Frame) -> Value:
    statement = samples.program.statement(place)
    stored = statement.value if isinstance(statement, ast.AugAssign) else right_side(statement, place)
    return Unclear(place) if stored is None else samples.value(stored, frame)


def _written_at(
    samples: Samples, place: ast.Subscript, index: ast.expr, value: Value, new: Value, frame: Frame
) -> Unclear | None:
    """What is stored into all rows, or where a mask is: as many, or those that the same mask picks."""
    if key_of(samples.program, index) is not None or _is_key(samples.program, place):
        new = kinds.tensor(new, place)
        fine = value in DEALT and new in (*DEALT, Kind.UNKNOWN)
        return None if fine else kinds.blame([new], place)
    at = samples.value(getattr(index, "elts", [index])[0], frame)
    if at is Kind.UNKNOWN or new is Kind.UNKNOWN:
        return None
    if not keeps_all(samples, index) and at not in BY_SAMPLE:
        return kinds.blame([at], place)
    fine = new in (*PLAIN, *BY_SAMPLE, Kind.WHOLE) or (
        new is Kind.PICKED and _picks_alike(samples, place, frame)
    )
    return None if fine else kinds.blame([new], place)


def _is_key(program: Program, place: ast.Subscript) -> bool:
    """Whether a place in a dict is at a key that a loop takes of it: ``for key, value in batch.items()``."""
    if not isinstance(place.slice, ast.Name):
        return False
    sources = [program.source(it) for it in program.definitions(place.slice)]
    held = ast.unparse(place.value)
    return bool(sources) and all(
        it.how is How.ELEMENT and it.value is not None and _hands_keys(program, it.value, it.place, held)
        for it in sources
    )


def _hands_keys(program: Program, source: ast.expr, place: tuple[int | None, ...], held: str) -> bool:
    """Whether a loop takes the keys of a dict, at a place of what it takes."""
    match source:
        case ast.Call(func=ast.Attribute(value=owner, attr="items"), args=[]):
            return place == (0,) and ast.unparse(owner) == held
        case ast.Call(func=ast.Attribute(value=owner, attr="keys"), args=[]):
            return not place and ast.unparse(owner) == held
        case ast.Call(args=[inner, *_]) if (names := program.names_of(source)) and names <= HANDS_FIRST_OUT:
            if "builtins.enumerate" in names:
                return place[:1] == (1,) and _hands_keys(program, inner, place[1:], held)
            return _hands_keys(program, inner, place, held)
    return False


def _picks_alike(samples: Samples, place: ast.Subscript, frame: Frame) -> bool:
    """``x[mask] = y[mask]``: what is picked of others is picked where it is stored."""
    waiting: list[ast.AST] = [samples.program.statement(place).value]  # type: ignore[attr-defined]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.expr) and samples.value(part, frame) is Kind.PICKED:
            if isinstance(part, ast.Subscript) and ast.unparse(part.slice) == ast.unparse(place.slice):
                continue
            if not isinstance(part, ast.BinOp | ast.UnaryOp):
                return False
            waiting += ast.iter_child_nodes(part)
    return True


def _reads(place: ast.AST, statement: ast.AST) -> list[ast.AST]:
    """What decides what a place writes, and where: but for the first index, and what is written into."""
    match place:
        case ast.Subscript(slice=index):
            value = getattr(statement, "value", None)
            return [
                *(index.elts[1:] if isinstance(index, ast.Tuple) else []),
                *([value] if value is not None else []),
            ]
        case ast.AugAssign(value=value):
            return [value]
        case ast.Call():
            return [*handed(place), *([place.func.value] if isinstance(place.func, ast.Attribute) else [])]
    return []
