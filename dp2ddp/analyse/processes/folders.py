"""Where paths begin: the folders they are in, and whether a process has these for itself."""

from __future__ import annotations

import ast

from dp2ddp.analyse.api.files import BETWEEN_PATHS, PATHS, TEMPORARY
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.processes import paths
from dp2ddp.analyse.processes.conditions import returned
from dp2ddp.analyse.program.calls import Call, handed


def in_own_folder(context: Context, call: Call) -> bool:
    """Whether a call writes into a temporary folder or file, which every process has one of."""
    given = handed(call.node)
    if isinstance(call.node.func, ast.Attribute):
        given.append(call.node.func.value)
    if any(name.startswith(BETWEEN_PATHS) for name in call.names):
        return all(is_own(context, it) for it in call.node.args[:2])
    return any(is_own(context, it) for it in given)


def is_own(context: Context, node: ast.expr, depth: int = 0) -> bool:
    """Whether a path begins with a temporary folder, or a file is temporary or in memory: every process has its own."""
    if depth > 8:
        return False
    call = context.program.call(node) if isinstance(node, ast.Call) else None
    if call is not None and any(name.startswith(TEMPORARY) for name in call.names):
        return True
    begins = _begins(context, node)
    return bool(begins) and all(is_own(context, it, depth + 1) for it in begins)


def _begins(context: Context, node: ast.expr) -> list[ast.expr]:
    """What a path begins with: the folder it is in, or what it is another name of."""
    match node:
        case ast.Call():
            return returned(context, node) or _first_part(node, context.program.call(node))
        case ast.Name() | ast.Attribute() if found := context.program.definitions(node):
            sources = [source for it in found for source in given_to(context, it)]
            return [it for it in sources if not (isinstance(it, ast.Constant) and it.value is None)]
        case ast.Attribute(value=inner) | ast.Subscript(value=inner):
            return [inner]
        case ast.BinOp(op=ast.Mod(), right=right):
            return right.elts[:1] if isinstance(right, ast.Tuple) else [right]
        case ast.BinOp(left=left):
            return [left]
        case ast.JoinedStr(values=[ast.FormattedValue(value=first), *_]):
            return [first]
        case ast.Constant(value=str(text)) if "/" in text.strip("/"):
            return [ast.Constant(text.rstrip("/").rpartition("/")[0])]
    return []


def with_folders(context: Context, node: ast.expr, depth: int = 0) -> frozenset[str]:
    """A path and the folders that it is in, as they are spelled."""
    same = paths.spelled(context, node) | _text_folders(node)
    begins = _begins(context, node) if depth < 8 else []
    return same.union(*(with_folders(context, it, depth + 1) for it in begins))


def _text_folders(node: ast.expr) -> frozenset[str]:
    """The folders that a text begins with, as they would be spelled: ``'a'`` and ``'a/b'`` of ``f"a/b/{name}"``."""
    match node:
        case ast.Constant(value=str(text)) | ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            parts = text.split("/")
            whole = isinstance(node, ast.Constant)
            return frozenset(
                repr("/".join(parts[:end])) for end in range(1, len(parts) + whole) if any(parts[:end])
            )
    return frozenset()


def _first_part(node: ast.Call, call: Call | None) -> list[ast.expr]:
    """What the path begins with that a call makes: of other paths, or of one that it is a method of."""
    if call is not None and any(name.startswith(PATHS) for name in call.names) and node.args:
        return node.args[:1]
    return [node.func.value] if isinstance(node.func, ast.Attribute) else []


def given_to(context: Context, definition: ast.AST) -> list[ast.expr]:
    """What a name stands for where something gives it a value; a literal where that is not known."""
    program = context.program
    if isinstance(definition, ast.arg):
        return program.given(definition)
    around = program.parent(definition)
    if isinstance(around, ast.withitem):
        return [around.context_expr]
    statement = program.statement(definition)
    if isinstance(statement, ast.Assign) and definition in statement.targets:
        return [statement.value]
    return [ast.Constant(...)]
