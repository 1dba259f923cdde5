"""What to do for a number that a training loop shows to be that of all ranks: one way, by what is known of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.analyse.api.containers import FEEDS_METERS
from dp2ddp.analyse.api.tensors import SIZE_WORDS
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.program.updates import updated
from dp2ddp.facts import told_by

_COUNTS = (".size(0)", ".shape[0]", ".numel()", "batch_size", "bs")
_OF_ONE = ("rank", "main_process", "master")


def told(context: Context, statement: ast.stmt, what: str, kept: bool) -> str:
    """What to do about a name that a statement shows, as a template; ``kept``: it is an object that keeps numbers."""
    if kept:
        line = _fed(context, statement, what)
        return "give it `{ddp}.batch_loss(loss)`" + (f" (line {line})" if line else "")
    if _is_text(context, statement, what):
        return "use `{ddp}.mean` on the numbers in it" + ", on all ranks" * _is_of_one(context, statement)
    beside = _divisor(statement, what)
    if beside is not None and _is_total(context, statement, beside):
        way = f"use `{{ddp}}.sum({what}) / {{ddp}}.sum({beside})`"
    else:
        way = told_by("sum" if _is_total(context, statement, what) else "mean", what)
    return way + ", computed on all ranks" * _is_of_one(context, statement)


def _function(context: Context, statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of the function, or file, that a statement stands in."""
    return context.program.body(context.program.scope(statement))


def _fed(context: Context, statement: ast.stmt, what: str) -> int | None:
    """The line in which an object is given its numbers, if that is beside the statement that shows it."""
    lines = [
        context.program.location(node).span.line
        for node in _function(context, statement)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in FEEDS_METERS
        and (node.args or node.keywords)
        and ast.unparse(node.func.value) == what
    ]
    here = context.program.location(statement).span.line
    return max((it for it in lines if it <= here), default=max(lines, default=None))


def _is_total(context: Context, statement: ast.stmt, what: str) -> bool:
    """Whether a name counts samples, or adds up what is weighed by their number."""
    for node in _function(context, statement):
        change = updated(node)
        if change is not None and isinstance(change.op, ast.Add) and ast.unparse(change.target) == what:
            if _is_of_samples(change.value):
                return True
    return False


def _is_text(context: Context, statement: ast.stmt, what: str) -> bool:
    """Whether a name is given a text, in which numbers are written."""
    for node in _function(context, statement):
        change = updated(node)
        if change is not None and ast.unparse(change.target) == what and _writes(change.value):
            return True
        if isinstance(node, ast.Assign) and any(ast.unparse(it) == what for it in node.targets):
            if _writes(node.value):
                return True
    return False


def _writes(node: ast.expr) -> bool:
    """Whether an expression is a text."""
    match node:
        case ast.JoinedStr() | ast.Constant(value=str()):
            return True
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _writes(left) or _writes(right)
        case ast.BinOp(left=left, op=ast.Mod()):
            return _writes(left)
        case ast.Call(func=ast.Attribute(value=text, attr="format" | "join")):
            return _writes(text)
        case ast.Call(func=ast.Name(id="str" | "repr")):
            return True
    return False


def _is_of_samples(added: ast.expr) -> bool:
    """Whether a sum over samples, or how many there are, is in what is added up: no mean."""
    match added:
        case ast.BinOp(op=ast.Div()):
            return False
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return any(word in ast.unparse(it) for it in (left, right) for word in SIZE_WORDS)
    called = [it for it in ast.walk(added) if isinstance(it, ast.Call) and isinstance(it.func, ast.Attribute)]
    text = ast.unparse(added)
    return any(it.func.attr == "sum" for it in called) or text.startswith("len(") or text.endswith(_COUNTS)  # type: ignore[attr-defined]


def _divisor(statement: ast.stmt, what: str) -> str | None:
    """The name that a statement divides another one by: ``count`` of ``total * 1.0 / count``."""
    for node in ast.walk(statement):
        match node:
            case ast.BinOp(left=total, op=ast.Div(), right=ast.Name(id=name)):
                while isinstance(total, ast.BinOp) and isinstance(total.op, ast.Mult):
                    total = total.right if isinstance(total.left, ast.Constant) else total.left
                if ast.unparse(total) == what:
                    return name
    return None


def _is_of_one(context: Context, statement: ast.stmt) -> bool:
    """Whether a condition has only one rank come there, where it can't wait for the others."""
    tests = (it.test for it in context.program.ancestors(statement) if isinstance(it, ast.If))
    return any(word in ast.unparse(test) for test in tests for word in _OF_ONE)
