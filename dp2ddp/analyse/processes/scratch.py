"""Temporary files that become those of the program: `os.replace(temporary, path)`.

Each process would make one of its own, and only the main process moves it to its place: the others' would be left.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Iterator

from dp2ddp.analyse.api.files import BETWEEN_PATHS, MOVES_PATH
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.processes.folders import in_own_folder, is_own, is_temporary
from dp2ddp.analyse.program.calls import Call


def prepared(context: Context, statement: ast.stmt, does_more: Callable[[ast.stmt], bool]) -> list[ast.stmt]:
    """The statements before one that moves a temporary file, if they make that and do nothing but fill it.

    ``does_more``: whether a statement works on the model, too, or draws or takes something.
    """
    call = context.program.call(statement.value) if isinstance(statement, ast.Expr) else None
    if call is None or not any(is_own(context, it) for it in _moved(call)):
        return []
    block = context.program.block(statement)
    end = block.index(statement)
    for start in range(end - 1, -1, -1):
        if not _only_fills(context, block[start]) or does_more(block[start]):
            return []
        if _makes(context, block[start]):
            together = {id(it) for part in block[start : end + 1] for it in ast.walk(part)}
            names = (it for part in block[start:end] for it in _bound(part))
            return block[start:end] if all(_stays(context, it, together) for it in names) else []
    return []


def _moved(call: Call) -> list[ast.expr]:
    """The path that a call moves or copies to another place."""
    if call.names and call.names <= MOVES_PATH and isinstance(call.node.func, ast.Attribute):
        return [call.node.func.value]
    return call.node.args[:1] if any(name.startswith(BETWEEN_PATHS) for name in call.names) else []


def _only_fills(context: Context, statement: ast.stmt) -> bool:
    """Whether a statement only makes a temporary file, or names, opens, fills or closes it."""
    match statement:
        case ast.Assign(value=value):
            return is_own(context, value)
        case ast.Expr(value=ast.Call() as node):
            call = context.program.call(node)
            return call is not None and in_own_folder(context, call)
        case ast.With(items=items, body=body):
            return all(is_own(context, it.context_expr) for it in items) and all(
                _only_fills(context, it) for it in body
            )
    return isinstance(statement, ast.Pass)


def _makes(context: Context, statement: ast.stmt) -> bool:
    return any(isinstance(it, ast.Call) and is_temporary(context, it) for it in ast.walk(statement))


def _bound(statement: ast.stmt) -> Iterator[ast.expr]:
    """What a statement gives a value."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            yield node


def _stays(context: Context, target: ast.expr, together: Container[int]) -> bool:
    """Whether what is bound is a name that only some nodes use."""
    program = context.program
    if not isinstance(target, ast.Name):
        return False
    uses = (
        it
        for it in ast.walk(program.scope(target).node)
        if isinstance(it, ast.Name) and it.id == target.id and isinstance(it.ctx, ast.Load)
    )
    return all(id(it) in together or target not in program.definitions(it) for it in uses)
