"""Commands that a program runs others by: what they unpack, and which files and folders they are told."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dp2ddp import texts
from dp2ddp.analyse.api.files import (
    LEAVES_NOTHING,
    REMOVING,
    RUNS_COMMANDS,
    SAME_COMMAND_AS,
    SAME_COMMAND_OF,
    SHELL_UNPACKS,
    STARTS_COMMANDS,
)
from dp2ddp.analyse.api.processes import POPEN_ANSWERS
from dp2ddp.analyse.context import Context, once
from dp2ddp.analyse.processes import paths
from dp2ddp.analyse.processes.conditions import assigned
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.values import Made, Member

_BETWEEN = re.compile(r"&&|\|\||[;|\n]")
_WORDS = re.compile(r"[^\s;|&<>\"']+")
_DEEPEST = 8


def runs(call: Call) -> bool:
    """Whether a call runs a command."""
    return bool(call.names & (RUNS_COMMANDS | STARTS_COMMANDS))


def unpacks(context: Context, call: Call) -> bool:
    """Whether a command unpacks an archive: what that holds, nothing names."""
    return runs(call) and bool(SHELL_UNPACKS.search(_text(context, call)))


def ends(context: Context, call: Call) -> list[ast.Call]:
    """Where a command has ended: where it is run, or waited for."""
    waits = [
        it.node for it in context.program.calls if it.names & POPEN_ANSWERS and _starts(it) == id(call.node)
    ]
    return waits or [call.node]


def _starts(call: Call) -> int | None:
    """The call of ``Popen`` whose object a method is of."""
    for callee in call.callees:
        owner = callee
        while isinstance(owner, Member):
            owner = owner.owner
        if isinstance(owner, Made):
            return owner.site
    return None


def removes(context: Context, call: Call) -> bool:
    """Whether a command takes files or folders away."""
    return runs(call) and not REMOVING.isdisjoint(_programs(_text(context, call)))


def written(context: Context, call: Call) -> paths.File:
    """What a command may write, or fill: all that it is told; nothing where no file is left with something in it."""
    text = _text(context, call)
    leaves = ">" in text or not LEAVES_NOTHING.issuperset(_programs(text))
    return told(context, call) if leaves else paths.File(frozenset())


def _programs(text: str) -> set[str]:
    """The names of the programs that a command runs."""
    return {words[0].rpartition("/")[2] for it in _BETWEEN.split(text) if (words := it.split())}


@once
def told(context: Context, call: Call) -> paths.File:
    """The files and folders that a command is told, as they are spelled."""
    pieces = list(_pieces(context, _command(call), 0))
    spelled: set[str] = set()
    endings: set[str] = set()
    for piece in pieces:
        if isinstance(piece, ast.Constant):
            words = _WORDS.findall(str(piece.value))
            spelled.update(repr(it.rstrip("/")) for it in words if not it.startswith("-"))
            endings.update(it for it in words if "." in it and not it.startswith("-"))
        else:
            spelled |= paths.spelled(context, piece)
    return paths.File(frozenset(endings), frozenset(spelled))


@once
def _text(context: Context, call: Call) -> str:
    """The words of a command, with ``*`` for what is not known."""
    pieces = _pieces(context, _command(call), 0)
    return " ".join(str(it.value) if isinstance(it, ast.Constant) else texts.ANY for it in pieces)


def _command(call: Call) -> list[ast.expr]:
    given = call.argument("args", 0) or call.argument("command", 0) or call.argument("cmd", 0)
    return [given] if given is not None else []


def _pieces(context: Context, nodes: list[ast.expr], depth: int) -> Iterator[ast.expr]:
    """The literals and values that a command is made of, in their order."""
    for node in nodes if depth < _DEEPEST else []:
        if inner := _inner(context, node):
            yield from _pieces(context, inner, depth + 1)
        elif isinstance(node, ast.Name | ast.Attribute) and (held := _held(context, node)):
            yield from _pieces(context, held, depth + 1)
        else:
            yield node


def _inner(context: Context, node: ast.expr) -> list[ast.expr]:
    """What a command is put together of, as it is written."""
    if together := texts.parts(node):
        return [it for it in together if it is not None]
    match node:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return parts
        case ast.Starred(value=inner) | ast.FormattedValue(value=inner):
            return [inner]
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str()), attr="join"), args=[given]):
            return [given]
        case ast.Call(func=func, args=[given, *_]) if ast.unparse(func) in SAME_COMMAND_AS:
            return [given]
        case ast.Call(func=ast.Attribute(value=owner, attr=attr)) if attr in SAME_COMMAND_OF:
            return [owner]
        case ast.BinOp(left=left, op=ast.Mod(), right=right):
            return [left, *(right.elts if isinstance(right, ast.Tuple) else [right])]
        case ast.IfExp(body=body, orelse=other):
            return [body, other]
    return []


def _held(context: Context, node: ast.Name | ast.Attribute) -> list[ast.expr]:
    """What a name stands for that is a command, or a part of one that is put together: no path."""
    found = paths.named_values(context, node) or assigned(context, node)
    made = [it for it in found if _inner(context, it) or isinstance(it, ast.Constant | ast.Name)]
    return [*made, *paths.put_into(context, node)] if len(made) == len(found) else []
