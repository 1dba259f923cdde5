"""Where programs begin: at the top of the file that is run, or in the function that an installed command calls."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from dp2ddp.analyse.context import Context, is_main_guard
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.facts import Script
from dp2ddp.plan import Anchor
from dp2ddp.source import SourceFile


@dataclass(frozen=True)
class Entry:
    """The beginning of a program: the file that is run, and the statements that run first and can be edited.

    ``scope`` is what they stand in: that file, or the function that an installed command calls.
    """

    file: SourceFile
    scope: Scope
    block: list[ast.stmt]


def entries(context: Context) -> Iterator[Entry]:
    """The beginnings of all programs that train with DataParallel; several of one that calls one of some functions."""
    program = context.program
    for file in context.scripts:
        if file.path not in program.project.installed:
            yield Entry(file, program.modules[file.path], list(_top_level(file.tree.body)))
        else:
            yield from (Entry(file, scope, _body(scope)) for scope in _called(context, file))


def shared(context: Context, starts: Iterable[Script]) -> tuple[Script, ...]:
    """Starts of programs; one that begins with the function of an installed command starts where that does."""
    starts = list(starts)
    installed = context.program.project.installed
    inside = {_scope(context, it.at): it for it in starts if it.program in installed and it.problem is None}
    return tuple(_shared(context, it, inside) if it.program not in installed else it for it in starts)


def _shared(context: Context, start: Script, inside: dict[int, Script]) -> Script:
    node = context.program.node_at(start.at) if inside and not start.done and start.problem is None else None
    entered = context.program.called_scopes(node) if node is not None else set()
    for scope, other in inside.items():
        if scope in entered:
            return replace(other, program=start.program, scripts=start.scripts, reaches=start.reaches)
    return start


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run when the file is run, those under the main guard in place of the guard."""
    for statement in body:
        if isinstance(statement, ast.If) and is_main_guard(statement.test):
            yield from statement.body
        else:
            yield statement


def _called(context: Context, file: SourceFile) -> Iterator[Scope]:
    """The functions that a program calls first, and that train."""
    wraps, backwards = {id(call.node) for call in context.wraps}, {id(node) for node in context.backwards}
    for index in sorted(context.program.called_scopes(file.tree.body[-1])):
        scope = context.program.scopes[index]
        runs = set().union(*map(context.runs, scope.body))
        if runs & wraps and runs & backwards and not isinstance(scope.node, ast.Lambda):
            yield scope


def _body(scope: Scope) -> list[ast.stmt]:
    """The statements of a function, without its docstring."""
    first, *others = scope.body
    text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return others if text and others else [first, *others]


def _scope(context: Context, at: Anchor) -> int:
    node = context.program.node_at(at)
    return context.program.scope(node).index if node is not None else -1
