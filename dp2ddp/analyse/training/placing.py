"""Where a number that is reported is combined: in its place, or under a name that is made before."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from dp2ddp.analyse.api.tensors import NO_NUMBERS_IN_PLACE
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.training.metrics import given_to, reporters_of
from dp2ddp.analyse.training.reports import Reports, added_to
from dp2ddp.analyse.training.whole_batch import Combined
from dp2ddp.facts import Effect, Number, told_by


def numbers(context: Context, reports: Reports, effects: tuple[Effect, ...]) -> Iterator[Number]:
    """What becomes of each: in its place, or under a name where it is used twice or by the main process alone."""
    program = context.program
    for totals in reports.totals:
        yield Number(
            **context.place(totals.loop), kind="totals", what=" and ".join(totals.names), names=totals.names
        )
        for value in totals.added:
            yield Number(**context.place(value), kind="added", what=ast.unparse(value))
    running = {
        id(part): part for it in reports.combined if it.kind == "sum" for part in added_to(context, it.node)
    }
    for value in running.values():
        yield Number(**context.place(value), kind="added", what=ast.unparse(value))
    groups: dict[object, list[Combined]] = defaultdict(list)
    for it in sorted(reports.combined, key=lambda it: program.order[id(it.node)]):
        groups[_same(context, it)].append(it)
    for group in groups.values():
        yield from _placed(context, group, effects)


def _same(context: Context, it: Combined) -> object:
    """What tells numbers apart that are one."""
    program = context.program
    names = [node for node in ast.walk(it.node) if isinstance(node, ast.Name)]
    held = frozenset(id(definition) for name in names for definition in program.definitions(name))
    if it.before is not None:
        return id(it.before), ast.unparse(it.node), held
    if it.kind == "rows":
        return id(it.node)
    return program.scope(it.node).index, it.kind, ast.unparse(it.node), held


def _placed(context: Context, group: list[Combined], effects: tuple[Effect, ...]) -> Iterator[Number]:
    program = context.program
    first, start = group[0], program.statement(group[0].node)
    if first.before is not None:
        name, place = _called(context, first), program.anchor(first.before)
        yield from (
            _number(context, it, name=name, before=None if it is not first else place) for it in group
        )
        return
    block = program.block(start)
    later = {id(statement) for statement in block[block.index(start) :]}
    shared = first.kind != "rows" and all(
        any(id(around) in later for around in program.ancestors(it.node)) for it in group
    )
    shared = shared and not _is_made_anew(context, first.node, block[block.index(start) :], group[-1].node)
    for part in [group] if shared and len(group) > 1 else [[it] for it in group]:
        yield from _named(context, part, _guard(context, part[0].node, effects))


def _is_made_anew(context: Context, node: ast.expr, block: list[ast.stmt], last: ast.expr) -> bool:
    """Whether a number may be another one in some place up to its last, or in the next round of a loop there."""
    program = context.program
    called = [it for it in ast.walk(node) if isinstance(it, ast.Call)]
    if any(program.entered(it) or context.is_wrapped(program.values(it.func)) for it in called):
        return True  # the model, say, which is trained in between
    texts = {
        ast.unparse(it) for it in ast.walk(node) if isinstance(it, ast.Name | ast.Attribute | ast.Subscript)
    }
    for statement in block:
        for inner in ast.walk(statement):
            match inner:
                case ast.Name(ctx=ast.Store()) | ast.Attribute(ctx=ast.Store()) if (
                    ast.unparse(inner) in texts
                ):
                    return True
                case ast.Subscript(ctx=ast.Store(), value=held) if ast.unparse(held) in texts:
                    return True
                case ast.Call(func=ast.Attribute(value=held, attr=method)) if method.endswith("_"):
                    if ast.unparse(held) in texts and method not in NO_NUMBERS_IN_PLACE:
                        return True
        if program.is_inside(last, statement):
            break
    return False


def _named(context: Context, part: list[Combined], guard: Effect | None) -> Iterator[Number]:
    """In its place; or under a name, made before what only the main process runs."""
    program = context.program
    first = part[0]
    statement = program.statement(first.node)
    if guard is None and (len(part) == 1 or not _is_plain(context, first.node, guard)):
        yield from (_number(context, it) for it in part)
    elif guard is not None and not _is_plain(context, first.node, guard):
        what = ast.unparse(first.node)
        before = f", before the condition in line {guard.at.span.line}"
        told = told_by("mean" if first.kind == "mean" else "sum", what) + before
        left = Number.left(what, told=told, **context.place(statement))
        yield from [left.as_picture if _is_pictured(context, first.node) else left] * len(part)
    else:
        name = _called(context, first)
        before = program.anchor(statement) if guard is None else guard.at
        for it in part:
            yield _number(context, it, name=name, before=before if it is first else None)


def _is_plain(context: Context, node: ast.expr, guard: Effect | None) -> bool:
    """Whether an expression may be written again before a place: nothing in it is edited, or made after that."""
    program = context.program
    simple = (
        ast.Name | ast.Attribute | ast.Call | ast.keyword | ast.List | ast.Tuple | ast.Constant | ast.UnaryOp
    )
    made = [it for name in ast.walk(node) if isinstance(name, ast.Name) for it in program.definitions(name)]
    around = (outer for it in made for outer in program.ancestors(it) if not isinstance(it, ast.arg))
    if any(isinstance(it, ast.comprehension) for it in around):
        return False
    return all(isinstance(it, simple | ast.expr_context | ast.unaryop) for it in ast.walk(node)) and (
        guard is None
        or not any(
            guard.covers(program.anchor(program.statement(it)))
            for it in made
            if id(it) in program.order and not isinstance(it, ast.arg)
        )
    )


def _is_pictured(context: Context, node: ast.expr) -> bool:
    """Whether something is only given to what makes pictures."""
    reporters = reporters_of(context)
    calls = (it for it in context.program.ancestors(node) if isinstance(it, ast.Call) and reporters.has(it))
    return any(map(reporters.only_pictures, calls))


def _number(context: Context, it: Combined, **more: object) -> Number:
    place = context.place(it.node) if it.call is None else given_to(context, it.call, it.node)
    what = ast.unparse(it.node)
    place |= dict(kind=it.kind, average=it.average, in_loop=it.in_loop, entries=context.lists_are_entries)
    place |= dict(rows=None if it.inner is None else context.program.anchor(it.inner))
    return Number(**place, what=what, **more)  # type: ignore[arg-type]


def _called(context: Context, it: Combined) -> str:
    """A new name for a number."""
    path, text = context.program.file(it.node).path, ast.unparse(it.node)
    if it.kind == "sum":
        is_size = it.size or "size" in text or "len(" in text
        wanted = ["batch_size", "global_batch_size"] if is_size else ["batch_sum"]
    elif it.kind == "rows" and not isinstance(it.node, ast.Name):
        wanted = ["batch_rows"]
    else:
        wanted = [f"batch_{it.node.id}"] if isinstance(it.node, ast.Name) else ["batch_mean"]
    free = (name for name in wanted if name not in context.names(path))
    return context.fresh(path, next(free, wanted[-1]))


def _guard(context: Context, node: ast.expr, effects: tuple[Effect, ...]) -> Effect | None:
    place = context.program.anchor(node)
    return next((effect for effect in effects if effect.covers(place)), None)
