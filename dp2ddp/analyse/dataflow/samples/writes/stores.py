"""What is stored into collections, tensors and attributes: ``x.append(…)``, ``x[…] = …``, ``x.add_(…)``."""

from __future__ import annotations

import ast
from collections.abc import Set
from typing import TYPE_CHECKING

from dp2ddp.analyse.api import operations
from dp2ddp.analyse.api.containers import LIST_ADDS
from dp2ddp.analyse.api.tensors import HANDS_ON
from dp2ddp.analyse.context import Context, once
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.definitions import text
from dp2ddp.analyse.dataflow.kinds import BY_SAMPLE, PLAIN, Every, Held, Kind, Unclear, Value
from dp2ddp.analyse.dataflow.samples.conditions import guarded, repeated
from dp2ddp.analyse.dataflow.samples.frames import OPEN, Frame
from dp2ddp.analyse.dataflow.samples.writes.looks import writes
from dp2ddp.analyse.program.calls import handed
from dp2ddp.analyse.program.scopes import Scope

if TYPE_CHECKING:
    from dp2ddp.analyse.dataflow.samples.follower import Samples


@once
def stores_in(context: Context, scope: Scope) -> dict[str, list[ast.expr]]:
    """Where a function stores into collections and tensors, by their names."""
    found: dict[str, list[ast.expr]] = {}
    for node in context.program.body(scope):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            adds = node.func.attr in LIST_ADDS and node.args
            if adds or writes(node.func.attr):
                found.setdefault(ast.unparse(written_to(node)), []).append(node)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            if isinstance(context.program.parent(node), ast.Assign | ast.AugAssign):
                found.setdefault(ast.unparse(node.value), []).append(node)
    return found


def written_to(call: ast.Call) -> ast.expr:
    """What methods write into, one after the other: ``x`` of ``x.resize_as_(y).copy_(y)``."""
    held: ast.expr = call
    while isinstance(held, ast.Call) and isinstance(held.func, ast.Attribute):
        if held is not call and not writes(held.func.attr):
            break
        held = held.func.value
    return held


def hands_on(value: ast.AST, place: ast.expr) -> bool:
    """``batch[i].cuda()``, which is stored where it was."""
    while (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in HANDS_ON
    ):
        value = value.func.value
        if ast.unparse(value) == ast.unparse(place):
            return True
    return False


def _stored_in(place: ast.expr) -> ast.expr:
    """What a place stores into, by whichever name of its data: ``self.queue`` of ``self.queue.data[index]``."""
    held: ast.expr = place
    while True:
        match held:
            case ast.Call(func=ast.Attribute(value=inner)) | ast.Subscript(value=inner):
                held = inner
            case ast.Attribute(value=inner, attr="data"):
                held = inner
            case _:
                return held


def with_stores(
    samples: Samples, name: ast.expr, definitions: list[ast.AST], value: Value, frame: Frame
) -> Value:
    """A collection or a tensor that is not of samples, with what its function stores into it."""
    stores = stores_in(samples.context, samples.program.scope(name))
    added: list[Value] = []
    for node in stores.get(text(name), ()) if stores and value not in BY_SAMPLE else ():
        held = written_to(node) if isinstance(node, ast.Call) else node.value  # type: ignore[attr-defined]
        if not any(it in definitions for it in samples.program.definitions(held)):
            continue
        if isinstance(node, ast.Call) and writes(node.func.attr):  # type: ignore[attr-defined]
            value = written_into(samples, node, value, frame)
            if isinstance(value, Unclear):
                return value
            continue
        if isinstance(node, ast.Call):
            if not isinstance(value, Held | Every):
                continue
            new = samples.value(node.args[-1], frame)
            new = kinds.element(new, node) if node.func.attr == "extend" else new  # type: ignore[attr-defined]
            statement = samples.program.statement(node)
        else:
            statement = samples.program.statement(node)
            if hands_on(statement.value, node):  # type: ignore[attr-defined]
                continue
            new = samples.value(statement.value, frame)  # type: ignore[attr-defined]
            if (blamed := _chosen_by(samples, node.slice, frame)) is not None:  # type: ignore[attr-defined]
                return blamed
            if isinstance(statement, ast.AugAssign):
                added_up = repeated(samples, statement, name, new, frame)
                if guarded(samples, statement, name, added_up, frame) in (*PLAIN, Kind.WHOLE):
                    continue
        stored = repeated(samples, statement, name, new, frame)
        added.append(guarded(samples, statement, name, stored, frame))
    if not added:
        return value
    if isinstance(value, Held | Every):
        before = [] if value == Held(()) else [kinds.element(value, name)]
        return Every(kinds.join(before + added, name))
    return kinds.elementwise([value, *added], name) if value in (*PLAIN, Kind.UNKNOWN) else value


def _chosen_by(samples: Samples, index: ast.expr, frame: Frame) -> Unclear | None:
    """The place of an index that samples choose, ``counts[label]``: each part stores something else there."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    values = [kinds.tensor(samples.value(it, frame), it) for it in parts if not isinstance(it, ast.Slice)]
    chosen = (it for it in values if it not in (*PLAIN, Kind.WHOLE, Kind.UNKNOWN))
    return next((it if isinstance(it, Unclear) else Unclear(index) for it in chosen), None)


def written_into(samples: Samples, call: ast.Call, value: Value, frame: Frame) -> Value:
    """A tensor with what a method like ``sub_`` writes into it: as many rows, each of them by itself."""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    row = operations.method(method)
    if value not in (*BY_SAMPLE, *PLAIN) or row is None and not call.args and not call.keywords:
        return value
    found = samples.value(call, frame)
    if found is value or found is Kind.UNKNOWN:
        return value
    return (
        found
        if found in BY_SAMPLE and value in PLAIN
        else kinds.blame([found], call) if found not in BY_SAMPLE else value
    )


def kept_of_samples(samples: Samples, node: ast.Attribute, within: Set[int] = frozenset()) -> Unclear | None:
    """An attribute into which another function stores what it has of the samples: a queue of earlier rows.

    Each rank would keep its own ones. What a wrapped model stores, each of its replicas stores for itself, too.
    ``within``: the scopes of functions that are given all ranks' rows.
    """
    for place in _attribute_stores(samples.context).get(node.attr, ()):
        owners = samples.program.values(_stored_in(place).value) & samples.program.values(node.value)  # type: ignore[attr-defined]
        scope = samples.program.scope(place)
        here = scope is samples.program.scope(node) or scope.index in within
        if (
            here
            or not owners
            or not samples.context.runs_in_training(place)
            or id(place) in _replicated(samples.context)
        ):
            continue
        statement = samples.program.statement(place)
        given = handed(place) if isinstance(place, ast.Call) else [getattr(statement, "value", None)]
        for value in (kinds.tensor(samples.value(it, OPEN), it) for it in given if it is not None):
            if value not in (*PLAIN, Kind.WHOLE, Kind.UNKNOWN):
                return Unclear(place, refuted=not isinstance(value, Unclear) or value.refuted)
    return None


@once
def _attribute_stores(context: Context) -> dict[str, list[ast.expr]]:
    """Where functions store into the tensors that attributes are, by the attributes' names."""
    found: dict[str, list[ast.expr]] = {}
    for scope in context.program.scopes:
        for places in stores_in(context, scope).values():
            for place in places:
                if isinstance(held := _stored_in(place), ast.Attribute):
                    found.setdefault(held.attr, []).append(place)
    return found


@once
def _replicated(context: Context) -> set[int]:
    """What runs in the forwards of wrapped models."""
    wrapped = (it.node for it in context.program.calls if context.is_wrapped(it.callees))
    return set().union(*map(context.runs, wrapped))
