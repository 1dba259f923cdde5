"""The statements after which an expression has its value: those that assign it, and those that change it in place."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.analyse.api.devices import VISIBLE
from dp2ddp.analyse.api.settings import CONFIGURES, FILLS_SETTINGS
from dp2ddp.analyse.context import Context, once
from dp2ddp.analyse.program.values import Bound, Coll, Func, Made, Values
from dp2ddp.source import SourceFile


def deciders(context: Context, expression: ast.expr, file: SourceFile) -> Iterator[ast.stmt]:
    """The statements after which an expression has its value."""
    program, runs = context.program, context.program_runs(file)
    nodes = list(ast.walk(expression))
    for node in nodes:
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            known = program.definitions(node) if id(node) in program.nodes else []
            made = (it for it in known if not isinstance(it, ast.arg | ast.alias) and it not in nodes)
            yield from map(program.statement, made)
            yield from attribute_sets(context, node, runs)
            yield from changes(context, node, runs)
    configured = any(isinstance(node, ast.Attribute) for node in nodes)
    for node in program.nodes.values():
        if id(node) not in runs:
            continue
        if _sets_visible(context, node):  # which GPUs the numbers are of
            yield program.statement(node)
        elif configured and isinstance(node, ast.Attribute) and node.attr in CONFIGURES:
            yield program.statement(node)


def _sets_visible(context: Context, node: ast.AST) -> bool:
    """``os.environ["CUDA_VISIBLE_DEVICES"] = …``, ``os.environ.setdefault``, ``os.putenv``."""
    if not (isinstance(node, ast.Constant) and node.value == VISIBLE):
        return False
    match context.program.parent(node):
        case ast.Subscript(ctx=ast.Store()) | ast.Dict():
            return True
        case ast.Call(func=ast.Attribute(attr="setdefault" | "putenv")):
            return True
    return False


def attribute_sets(context: Context, node: ast.expr, runs: set[int]) -> list[ast.stmt]:
    """``args.gpus = …``, under whichever name the options have there."""
    if not isinstance(node, ast.Attribute):
        return []
    program = context.program
    values = program.values(node.value) if id(node.value) in program.nodes else frozenset()
    return [
        statement
        for target, statement in context.attribute_stores.get(node.attr, ())
        if id(statement) in runs
        and (ast.dump(target.value) == ast.dump(node.value) or program.values(target.value) & values)
    ]


def changes(context: Context, held: ast.Name | ast.Attribute, runs: set[int]) -> Iterator[ast.stmt]:
    """The statements that change an object in place, and those that run them, under whichever name it has there.

    ``ids.append(0)``, ``ids += [0]``, ``ids[0] = 1``, ``del ids[0]``, ``config.read(path)``, ``setattr(args, key, 1)``.
    """
    program = context.program
    values = _objects(context, held)
    for node, changed in _changing(context):
        if id(node) in runs and (_objects(context, changed) & values or _are_same(context, changed, held)):
            yield program.statement(node)


@once
def _changing(context: Context) -> list[tuple[ast.AST, ast.Name | ast.Attribute]]:
    """All places that change an object in place, with what it is called there."""
    found = ((node, _changed_in_place(context, node)) for node in context.program.nodes.values())
    return [(node, it) for node, it in found if isinstance(it, ast.Name | ast.Attribute)]


def _objects(context: Context, node: ast.expr) -> Values:
    """What an expression may be that has contents which can change."""
    known = context.program.values(node) if id(node) in context.program.nodes else frozenset()
    return frozenset(value for value in known if isinstance(value, Coll | Made))


def _are_same(context: Context, one: ast.expr, other: ast.expr) -> bool:
    """Whether two expressions name the same thing: the same variable, or the same attribute of one object."""
    program = context.program
    if isinstance(one, ast.Attribute) and isinstance(other, ast.Attribute):
        known = all(id(it.value) in program.nodes for it in (one, other))
        same = known and program.values(one.value) & program.values(other.value)
        return one.attr == other.attr and (bool(same) or ast.dump(one.value) == ast.dump(other.value))
    if isinstance(one, ast.Name) and isinstance(other, ast.Name) and one.id == other.id:
        found = [set(map(id, program.definitions(it))) for it in (one, other) if id(it) in program.nodes]
        return len(found) == 2 and bool(found[0] & found[1])
    return False


def _changed_in_place(context: Context, node: ast.AST) -> ast.expr | None:
    """The object that a piece of code changes; what a method of the project changes is found in the method."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name, value=changed)) if name in FILLS_SETTINGS or _is_ordered(
            context, node
        ):
            return _root(changed)
        case ast.Call(func=ast.Name(id="setattr"), args=[changed, *_]):
            return _root(changed)
        case ast.AugAssign(target=changed) | ast.Subscript(value=changed, ctx=ast.Store() | ast.Del()):
            return _root(changed)
    return None


def _is_ordered(context: Context, node: ast.Call) -> bool:
    """Whether a method of something outside the project is called for what it does, as a statement by itself."""
    if not isinstance(context.program.parent(node), ast.Expr):
        return False
    call = context.program.call(node)
    return call is None or not any(isinstance(it, Func | Bound) for it in call.callees)


def _root(changed: ast.expr) -> ast.expr:
    """What is changed with a part of it: ``d`` of ``d["a"]["b"]``, ``args`` of ``vars(args)``."""
    match changed:
        case ast.Subscript(value=inner) | ast.Attribute(value=inner, attr="__dict__"):
            return _root(inner)
        case ast.Call(func=ast.Name(id="vars"), args=[inner]):
            return _root(inner)
    return changed
