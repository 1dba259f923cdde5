"""Where paths begin: the folders they are in, and whether a process has these for itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from dp2ddp.analyse.api.files import (
    BETWEEN_PATHS,
    CONTENTS,
    COPIES_FILES,
    EVERYWHERE,
    JOINS_PATHS,
    MOVES_PATH,
    PATH_CONTENTS,
    PATHS,
    TEMPORARY,
    TEMPORARY_FOLDER,
    WRITTEN_PATHS,
)
from dp2ddp.analyse.context import Context, once
from dp2ddp.analyse.processes import paths
from dp2ddp.analyse.processes.conditions import held_as, returned
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.sources import How
from dp2ddp.texts import ANY


@once
def in_own_folder(context: Context, call: Call) -> bool:
    """Whether a call writes into a temporary folder or file, which every process has one of."""
    given = handed(call.node)
    owner = [call.node.func.value] if isinstance(call.node.func, ast.Attribute) else []
    if any(name.startswith(BETWEEN_PATHS) for name in call.names):
        copies = all(name.startswith(COPIES_FILES) for name in call.names)
        return all(is_own(context, it) for it in call.node.args[copies:2])
    if call.names and call.names <= MOVES_PATH:
        return all(is_own(context, it) for it in (*owner, *given))
    if call.names and call.names <= WRITTEN_PATHS.keys() | PATH_CONTENTS:
        given = paths.given(call)  # what it writes says nothing of the place
    else:
        given += owner
    return any(is_own(context, it) for it in given)


@once
def is_own(context: Context, node: ast.expr, depth: int = 0) -> bool:
    """Whether a path begins with a temporary folder, or a file is temporary or in memory: every process has its own."""
    if depth > 8:
        return False
    if is_temporary(context, node):
        return True
    begins = _begins(context, node)
    return bool(begins) and all(is_own(context, it, depth + 1) for it in begins)


def is_temporary(context: Context, node: ast.expr) -> bool:
    """Whether a call makes a temporary file or folder, or a file in memory."""
    call = context.program.call(node) if isinstance(node, ast.Call) else None
    names = call.names - TEMPORARY_FOLDER if call is not None else set()
    return any(it.startswith(TEMPORARY) for it in names)


@once
def _begins(context: Context, node: ast.expr) -> list[ast.expr]:
    """What a path begins with: the folder it is in, or what it is another name of."""
    match node:
        case ast.NamedExpr(value=inner):
            return [inner]
        case ast.Call():
            return (
                returned(context, node)
                or held_as(context, node)
                or _first_part(node, context.program.call(node))
            )
        case ast.Name() | ast.Attribute() if found := context.program.definitions(node):
            sources = [source for it in found for source in given_to(context, it)]
            return [it for it in sources if not paths.is_nothing(it)]
        case ast.Attribute(value=inner) | ast.Subscript(value=inner):
            return [it for it in held_as(context, node) if not paths.is_nothing(it)] or [inner]
        case ast.BinOp(op=ast.Mod(), right=right):
            return right.elts[:1] if isinstance(right, ast.Tuple) else [right]
        case ast.BinOp(left=left):
            return [left]
        case ast.JoinedStr(values=[ast.FormattedValue(value=first), *_]):
            return [first]
        case ast.Constant(value=str(text)) if "/" in text.strip("/"):
            return [ast.Constant(text.rstrip("/").rpartition("/")[0])]
    return []


@once
def with_folders(context: Context, node: ast.expr, depth: int = 0) -> frozenset[str]:
    """A path and the folders that it is in, as they are spelled."""
    same = paths.spelled(context, node) | _text_folders(node)
    begins = _begins(context, node) if depth < 8 else []
    return same.union(*(with_folders(context, it, depth + 1) for it in begins))


@once
def around(context: Context, node: ast.expr, depth: int = 0) -> frozenset[str]:
    """The folders that a path is in, or what its name begins with, as they are spelled: without the path itself.

    What a program's own files are in, and the user's, says nothing of it.
    """
    if depth > 8 or (
        isinstance(node, ast.Attribute | ast.Subscript)
        and not context.program.definitions(node)
        and not held_as(context, node)
    ):
        return frozenset()
    begins = _begins(context, node)
    found = frozenset().union(*(around(context, it, depth + 1) for it in begins))
    made = isinstance(node, ast.Call) and not returned(context, node)
    if made or isinstance(node, ast.BinOp | ast.JoinedStr):
        found = found.union(*(paths.spelled(context, it) for it in begins)) | _text_folders(node)
    elif isinstance(node, ast.Constant):
        found |= _text_folders(node) - paths.spelled(context, node)
    return frozenset(it for it in found if _is_place(it))


def ends_after(context: Context, node: ast.expr, folder: str, depth: int = 0) -> frozenset[str]:
    """How a path goes on after a folder that it is in: with ``*`` for what is not known."""
    if depth > 10:
        return frozenset([ANY])
    if folder in paths.spelled(context, node):
        return frozenset([""])
    parts: list[ast.expr] = []
    between = ""
    match node:
        case ast.Name() | ast.Attribute() if definitions := context.program.definitions(node):
            sources = [it for definition in definitions for it in given_to(context, definition)]
            return _ends_of_any(context, sources, folder, depth)
        case ast.Attribute() | ast.Subscript() if held := held_as(context, node):
            return _ends_of_any(context, held, folder, depth)
        case ast.FormattedValue(value=inner):
            return ends_after(context, inner, folder, depth + 1)
        case ast.Constant(value=str(text)):
            before = next((it for it in _leading(text) if repr(it) == folder), None)
            return frozenset([ANY if before is None else text[len(before) :].lstrip("/")])
        case ast.BinOp(op=ast.Mod(), left=ast.Constant(value=str(text))):
            known = ends_after(context, ast.Constant(text.partition("%")[0]), folder, depth + 1)
            return frozenset(f"{it}{ANY}" for it in known)
        case ast.Call(args=[_, *_] as given) if not returned(context, node):
            call = context.program.call(node)
            parts = given if call is not None and call.names & JOINS_PATHS else []
            between = "/"
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            parts, between = [left, right], "/"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = [left, right]
        case ast.JoinedStr(values=values):
            parts = values
    if not parts:
        return frozenset([ANY])
    rest = between.join(it.value if _is_text(it) else ANY for it in parts[1:])  # type: ignore[attr-defined]
    return frozenset(f"{it}{between}{rest}" for it in ends_after(context, parts[0], folder, depth + 1))


def _ends_of_any(context: Context, sources: list[ast.expr], folder: str, depth: int) -> frozenset[str]:
    """How those of several paths go on that are in a folder."""
    inside = [it for it in sources if folder in paths.spelled(context, it) | around(context, it)]
    return frozenset().union(*(ends_after(context, it, folder, depth + 1) for it in inside or sources))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def may_exist(call: Call) -> bool:
    """Whether a call that makes a folder takes the one that is there: with ``exist_ok=True``."""
    given = call.argument("exist_ok", 2)
    return isinstance(given, ast.Constant) and given.value is True


def may_meet(some: Iterable[str], others: Iterable[str]) -> bool:
    """Whether one of some ends of paths in a folder may be one of others, by what they begin with."""
    pairs = ((_known(a), _known(b)) for a in some for b in others)
    return any(a.startswith(b) or b.startswith(a) for a, b in pairs)


def _known(end: str) -> str:
    return re.sub("/+", "/", end.partition(ANY)[0]).lstrip("/")


def _is_place(text: str) -> bool:
    """Whether a folder, as it is spelled, is one of some files and no others."""
    return text != "None" and bool(text.strip("'./")) and not any(it in text for it in EVERYWHERE)


def _text_folders(node: ast.expr) -> frozenset[str]:
    """The folders that a text begins with, as they would be spelled: ``'a'`` and ``'a/b'`` of ``f"a/b/{name}"``."""
    match node:
        case ast.Constant(value=str(text)) | ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            whole = [text] if isinstance(node, ast.Constant) and text.strip("/") else []
            return frozenset(map(repr, (*_leading(text), *whole)))
    return frozenset()


def _leading(text: str) -> list[str]:
    """The folders that a text begins with: ``a`` and ``a/b`` of ``a/b/c``."""
    parts = text.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts)) if any(parts[:end])]


def _first_part(node: ast.Call, call: Call | None) -> list[ast.expr]:
    """What the path begins with that a call makes: of other paths, or of one that it is a method of."""
    owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
    names = call.names if call is not None else set()
    if owner and any(name.startswith("pathlib.Path.") for name in names):
        return owner
    if any(name.startswith(PATHS) for name in names) and node.args:
        return node.args[:1]
    return [] if owner and node.func.attr in CONTENTS else owner  # type: ignore[attr-defined]


def given_to(context: Context, definition: ast.AST) -> list[ast.expr]:
    """What a name stands for where something gives it a value; a literal where that is not known."""
    program = context.program
    if isinstance(definition, ast.arg):
        return program.given(definition)
    around = program.parent(definition)
    if isinstance(around, ast.withitem):
        return [around.context_expr]
    if (value := program.source(definition).plain) is not None:
        return [value]
    source = program.source(definition)
    if source.how is How.ASSIGNED and is_temporary(context, source.value):
        return [source.value]  # `handle, path = mkstemp()`
    return paths.taken_apart(context, [definition]) or [ast.Constant(...)]
