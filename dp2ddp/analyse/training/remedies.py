"""What to do for a number that a training loop shows to be that of all ranks: one way, by what is known of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.analyse.api.containers import FEEDS_METERS
from dp2ddp.analyse.api.numbers import MAKES_NUMBER, NUMBERS
from dp2ddp.analyse.api.tensors import SIZE_WORDS
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.dataflow.definitions import is_fixed
from dp2ddp.analyse.processes.conditions import returned
from dp2ddp.analyse.program.updates import updated
from dp2ddp.facts import told_by
from dp2ddp.plan import place_beside

_COUNTS = (".size(0)", ".shape[0]", ".numel()", "batch_size", "bs")
_OF_ONE = ("rank", "main_process", "master")


def told(context: Context, statement: ast.stmt, what: str, kept: bool) -> str:
    """What to do about a name that a statement shows, as a template; ``kept``: it is an object that keeps numbers.

    Nothing where it is not known to be a number: pictures, points and texts of samples have no mean.
    """
    if kept:
        fed = _fed(context, statement, what)
        line = "" if fed is None else f" (line {context.program.location(fed).span.line})"
        names = [] if fed is None else _numbers_of(fed)
        if len(names) > 1:
            return "give it `{ddp}.batch_loss` of each number in it" + line
        return f"give it `{{ddp}}.batch_loss({names[0] if names else 'loss'})`{line}"
    guard = _guard(context, statement)
    before = "" if guard is None else f", before the condition in line {guard}"
    if _is_text(context, statement, what):
        return "use `{ddp}.mean` on the numbers in it" + before
    beside = _divisor(statement, what)
    if beside is not None and _is_total(context, statement, beside):
        return f"use `{{ddp}}.sum({what}) / {{ddp}}.sum({beside})`" + before
    if _is_total(context, statement, what):
        return told_by("sum", what) + before
    if not _is_number(context, statement, what):
        return ""
    losses = {ast.unparse(context.loss(it)) for it in context.backwards}
    if what not in losses and (division := _division(context, statement, what)) is not None:
        return _of_division(context, statement, division)
    return told_by("mean", what) + before


def _function(context: Context, statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of the function, or file, that a statement stands in."""
    return context.program.body(context.program.scope(statement))


def _fed(context: Context, statement: ast.stmt, what: str) -> ast.Call | None:
    """The call by which an object is given its numbers, if that is beside the statement that shows it."""
    found = [
        node
        for node in _function(context, statement)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in FEEDS_METERS
        and (node.args or node.keywords)
        and ast.unparse(node.func.value) == what
    ]
    here = context.program.location(statement).span.line
    found.sort(key=lambda it: context.program.location(it).span.line)
    before = [it for it in found if context.program.location(it).span.line <= here]
    return next(iter([*before[-1:], *found[-1:]]), None)


def _numbers_of(fed: ast.Call) -> list[str]:
    """The tensors that a call is given as numbers: ``loss`` of ``meter.update(loss.item(), n)``."""
    asked = (it.value for it in ast.walk(fed) if isinstance(it, ast.Attribute) and it.attr == "item")
    return list(dict.fromkeys(ast.unparse(it) for it in asked if isinstance(it, ast.Name | ast.Attribute)))


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


def _guard(context: Context, statement: ast.stmt) -> int | None:
    """The line of a condition that has only one rank come there, where it can't wait for the others."""
    around = (it for it in context.program.ancestors(statement) if isinstance(it, ast.If))
    guards = [it for it in around if any(word in ast.unparse(it.test) for word in _OF_ONE)]
    return context.program.location(guards[-1]).span.line if guards else None


def _is_number(context: Context, statement: ast.stmt, what: str) -> bool:
    """Whether a name is known to be a number: by how it is shown, or by what it is given."""
    losses = (context.loss(it) for it in context.backwards)
    if _is_of_numbers(what) or any(ast.unparse(it) == what for it in losses):
        return True
    shown = (it for it in ast.walk(statement) if isinstance(it, ast.expr) and ast.unparse(it) == what)
    return any(_is_shown_as_number(context, it) for it in shown) or any(
        map(_makes_number, _made(context, statement, what))
    )


def _is_of_numbers(what: str) -> bool:
    """``meter.avg`` and ``loss.item()``."""
    owner, _, name = what.removesuffix("()").rpartition(".")
    return bool(owner) and name in NUMBERS


def _made(context: Context, statement: ast.stmt, what: str) -> Iterator[ast.expr]:
    """What a name is given, or has added, in the function; of a call of the project's, what that returns."""
    for node in _function(context, statement):
        if (change := updated(node)) is not None and ast.unparse(change.target) == what:
            yield change.value
        for target in node.targets if isinstance(node, ast.Assign) else ():
            values = [node.value, *returned(context, node.value)]  # type: ignore[attr-defined]
            if ast.unparse(target) == what:
                yield from values
            for place, it in enumerate(target.elts if isinstance(target, ast.Tuple) else ()):
                if ast.unparse(it) == what:
                    yield from (
                        value.elts[place]
                        for value in values
                        if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)  # type: ignore[attr-defined]
                    )


def _is_shown_as_number(context: Context, node: ast.expr) -> bool:
    """``{:.3f}``, ``round(x)``, ``x.item()``, ``add_scalar(name, x)`` and arithmetic."""
    match context.program.parent(node):
        case ast.Attribute(attr=name):
            return name in NUMBERS
        case ast.FormattedValue(format_spec=spec):
            return spec is not None
        case ast.BinOp(op=ast.Mod(), left=ast.Constant(value=str(text))):
            return "%s" not in text
        case ast.BinOp(op=op):
            return not isinstance(op, ast.Mod)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            return ":." in text or "f}" in text
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return "scalar" in name or name in MAKES_NUMBER
        case ast.Tuple() as around:
            outer = context.program.parent(around)
            return isinstance(outer, ast.BinOp) and _is_shown_as_number(context, around)
    return False


def _makes_number(value: ast.expr) -> bool:
    match value:
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in NUMBERS
        case ast.Call(func=ast.Name(id=name)):
            return name in MAKES_NUMBER or name == "sum"
        case ast.BinOp(left=left, right=right):
            return any(map(_makes_number, (left, right)))
        case ast.Constant(value=number):
            return isinstance(number, int | float)
        case ast.Attribute(attr=name):
            return name in NUMBERS
    return False


def _of_division(context: Context, statement: ast.stmt, division: ast.expr) -> str:
    """What to do about a quotient: both sides of it are sums over the samples, and it is none."""
    guard = _guard(context, context.program.statement(division))
    before = "" if guard is None else f", before the condition in line {guard}"
    place, here = context.program.location(division), context.program.location(statement)
    at = "" if place.span.line == here.span.line and place.path == here.path else " in "
    at += place_beside(place.path, place.span.line, here.path) if at else ""
    return f"use `{{ddp}}.sum` on both sides of the division{at}{before}"


def _division(context: Context, statement: ast.stmt, what: str) -> ast.expr | None:
    """Where a number is divided that is shown, or was to be made: not by a number that is fixed."""
    for node in ast.walk(statement):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and ast.unparse(node.left) == what:
            return None if is_fixed(context.program, node.right) else node
    return next(filter(None, (_divided(context, it) for it in _made(context, statement, what))), None)


def _divided(context: Context, value: ast.expr, depth: int = 0) -> ast.expr | None:
    """The division that a value is made by: its own, or that of a name in it; none of what is summed up."""
    parts: list[ast.expr] = []
    match value:
        case ast.BinOp(op=ast.Div(), left=left, right=right):
            if not is_fixed(context.program, right):
                return value
            parts = [left]
        case ast.BinOp(left=left, right=right):
            parts = [left, right]
        case ast.UnaryOp(operand=part) | ast.Subscript(value=part):
            parts = [part]
        case ast.Call(func=ast.Attribute(attr="sum") | ast.Name(id="sum")):
            pass
        case ast.Call(func=ast.Attribute(value=owner), args=given):  # of numpy, or of what is divided
            parts = [owner, *given[:1]]
        case ast.Call(args=given):
            parts = given[:1]
        case ast.Name() if depth < 2:
            parts = [*_made(context, context.program.statement(value), value.id)]
            depth += 1
    return next(filter(None, (_divided(context, it, depth) for it in parts)), None)
