"""How the paths end that a program reads and writes: two that end differently are not the same file."""

from __future__ import annotations

import ast
import re

from dp2ddp.analyse.conditions import assigned, returned
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.link import Call

OPENS = {"builtins.open", "io.open", "dp2ddp.runtime.open", "gzip.open", "codecs.open", "bz2.open"}
# What writes to what it is given second, and what copies there or into such a folder.
SECOND = {"torch.save", "dp2ddp.runtime.save", "json.dump", "pickle.dump", "joblib.dump"}
BETWEEN = ("shutil.copy", "shutil.move", "os.rename", "os.replace")
# What a format stands in place of, up to the last one.
_UP_TO_FORMAT = re.compile(r".*(%[^a-zA-Z%]*[a-zA-Z]|\})", re.DOTALL)

Endings = frozenset[str] | None


def may_be_same(one: Endings, other: Endings) -> bool:
    """Whether two files may be one; None: nothing is known of how a path ends."""
    if one is None or other is None:
        return True
    return any(a.endswith(b) or b.endswith(a) for a in one for b in other)


def read(context: Context, call: Call) -> Endings:
    """How the path may end that a call reads: the first thing it is given."""
    return _ending(context, call.node.args[0]) if call.node.args else None


def written(context: Context, call: Call) -> Endings:
    """How the path may end that a call writes."""
    arguments = call.node.args
    if len(arguments) < 2:
        return None
    if call.names <= SECOND:
        return _ending(context, arguments[1])
    if call.names and all(name.startswith(BETWEEN) for name in call.names):
        source, target = (_ending(context, it) for it in arguments[:2])
        return None if source is None or target is None else source | target
    return None


def _ending(context: Context, node: ast.expr, depth: int = 0) -> Endings:
    """The texts that a path, or the path of an open file, may end with."""
    found: list[ast.expr] = []
    match node:
        case ast.Constant(value=str(text)):
            return frozenset([text])
        case ast.JoinedStr(values=[*_, ast.Constant(value=str(text))]):
            return frozenset([text])
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod()):
            return frozenset([_UP_TO_FORMAT.sub("", text)])
        case ast.BinOp(op=ast.Add() | ast.Div(), right=right):
            found = [right]
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            return frozenset([_UP_TO_FORMAT.sub("", text)])
        case ast.Call(args=arguments):
            call = context.program.call(node)
            names = call.names if call is not None else set()
            if names & OPENS and arguments:
                found = arguments[:1]
            elif names & {"os.path.join", "pathlib.Path"} and arguments:
                found = arguments[-1:]
            else:
                found = returned(context, node)
        case ast.Name() | ast.Attribute():
            found = _named(context, node)
        case ast.IfExp(body=body, orelse=other):
            found = [body, other]
    if depth > 8 or not found or any(isinstance(it, ast.Starred) for it in found):
        return None
    endings = [_ending(context, it, depth + 1) for it in found]
    return None if None in endings else frozenset().union(*endings)  # type: ignore[arg-type]


def _named(context: Context, node: ast.Name | ast.Attribute) -> list[ast.expr]:
    """What a name may stand for; empty where something else may be it."""
    program = context.program
    definitions = program.definitions(node)
    if definitions and all(isinstance(it, ast.arg) for it in definitions):
        given = [program.given(it) for it in definitions]  # type: ignore[arg-type]
        return [it for some in given for it in some] if all(given) else []
    around = [program.parent(it) for it in definitions]
    if around and all(isinstance(it, ast.withitem) for it in around):
        return [it.context_expr for it in around]  # type: ignore[union-attr]
    return assigned(context, node)
