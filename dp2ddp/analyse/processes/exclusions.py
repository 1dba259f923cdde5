"""Which calls of a function come to a place in it: what they give it may answer the conditions round that."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from dp2ddp.analyse.api.devices import MOVES
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.processes.answers import compared
from dp2ddp.analyse.processes.conditions import assigned, returned
from dp2ddp.analyse.program import signature
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.signature import is_spread
from dp2ddp.analyse.program.values import Cls

Condition = tuple[ast.expr, bool]
"""A condition, and whether it holds where a place is come to."""


def may_come(context: Context, node: ast.Call, index: int, conditions: Iterable[Condition]) -> bool:
    """Whether a call of a function may come to where some conditions hold: what it gives may answer them."""
    scope = context.program.scopes[index]
    entering = [bound for call, bound in context.program.callers.get(index, ()) if call.node is node]
    if not entering or is_spread(node):
        return True
    return any(
        all(_answer(context, test, scope, node, bound) in (None, holds) for test, holds in conditions)
        for bound in entering
    )


def is_come_to(context: Context, node: ast.AST) -> bool:
    """Whether any call of the function round a node may come to it: not where all leave before, by what they give."""
    scope = context.program.scope(node)
    callers = [
        it for it in context.callers.get(scope.index, ()) if scope.index in context.program.entered_itself(it)
    ]
    if not callers:
        return True
    conditions = [*_round(context, node)]
    return any(may_come(context, it, scope.index, conditions) for it in callers)


def _round(context: Context, node: ast.AST) -> Iterator[Condition]:
    """The conditions that hold at a place in a function: of what stands round it, and of what leaves before it."""
    program, inside = context.program, context.program.statement(node)
    while True:
        block, outer = program.block(inside), program.parent(inside)
        for before in block[: block.index(inside)]:
            if isinstance(before, ast.If) and isinstance(before.body[-1], ast.Return | ast.Raise):
                yield before.test, False
        if isinstance(outer, ast.If):
            yield outer.test, inside in outer.body
        if not isinstance(outer, ast.stmt) or isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef):
            return
        inside = outer


def _answer(context: Context, test: ast.expr, scope: Scope, node: ast.Call, bound: bool) -> bool | None:
    """What a call's arguments answer a condition; None where they do not."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            answer = _answer(context, operand, scope, node, bound)
            return None if answer is None else not answer
        case ast.BoolOp(op=joins, values=parts):
            answers = {_answer(context, it, scope, node, bound) for it in parts}
            decides = isinstance(joins, ast.Or)
            if decides in answers:
                return decides
            return None if None in answers else not decides
        case ast.Compare(left=ast.Name() as name, ops=[asks], comparators=[ast.Constant(value=asked)]):
            given = _given(context, name, scope, node, bound)
            if isinstance(given, ast.Constant):
                same = given.value is asked if asked is None else given.value == asked
            elif given is not None and asked is None and _is_object(context, given):
                same = False
            else:
                return None
            if isinstance(asks, ast.Is | ast.Eq):
                return same
            if isinstance(asks, ast.IsNot | ast.NotEq):
                return not same
            numbers = getattr(given, "value", None), asked
            return compared(asks, *numbers) if all(isinstance(it, int | float) for it in numbers) else None
        case ast.Name():
            given = _given(context, test, scope, node, bound)
            return bool(given.value) if isinstance(given, ast.Constant) else None
    return None


def _given(context: Context, name: ast.Name, scope: Scope, node: ast.Call, bound: bool) -> ast.expr | None:
    """What a call gives the parameter that a name is, its default included; None where it is another thing."""
    definitions = context.program.definitions(name)
    if len(definitions) != 1 or not isinstance(definitions[0], ast.arg):
        return None
    (parameter,) = definitions
    if parameter not in scope.signature.named or (bound and parameter in scope.signature.places[:1]):
        return None
    given = signature.given(node, scope.takes(bound), parameter)
    return None if given is None else _constant(context, given)


def _constant(context: Context, node: ast.expr, depth: int = 0) -> ast.expr:
    """The constant that an expression is, behind parameters to which all calls give the same; else the expression."""
    definitions = context.program.definitions(node) if isinstance(node, ast.Name) else []
    if len(definitions) != 1 or not isinstance(definitions[0], ast.arg) or depth > 6:
        return node
    found = [_constant(context, it, depth + 1) for it in context.program.given(definitions[0])]
    values = {repr(it.value) for it in found if isinstance(it, ast.Constant)}
    return found[0] if len(values) == 1 and all(isinstance(it, ast.Constant) for it in found) else node


def _is_object(context: Context, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression is an object that a class has made, whatever leads there, and so never None."""
    program = context.program
    if depth > 6:
        return False
    if isinstance(node, ast.Name):
        definitions = program.definitions(node)
        sources = assigned(context, node)
        if definitions and all(isinstance(it, ast.arg) for it in definitions):
            given = [program.given(it) for it in definitions]  # type: ignore[arg-type]
            sources = [it for some in given for it in some] if all(given) else []
        return bool(sources) and all(_is_object(context, it, depth + 1) for it in sources)
    call = program.call(node) if isinstance(node, ast.Call) else None
    if call is None:
        return False
    if call.callees and all(isinstance(it, Cls) for it in call.callees):
        return True
    if call.names and len(call.names) == len(call.callees):
        if all(name.rpartition(".")[2][:1].isupper() for name in call.names):
            return True
    func = call.node.func
    if isinstance(func, ast.Attribute) and func.attr in MOVES and _is_object(context, func.value, depth + 1):
        return True
    made = returned(context, call.node)
    return bool(made) and all(_is_object(context, it, depth + 1) for it in made)
