"""Where an expression needs parentheses. libcst adds none by itself."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TypeVar

import libcst as cst

Expression = TypeVar("Expression", bound=cst.BaseExpression)

# How tightly an expression binds, loosest first, after the table in the language reference.
LAMBDA, TERNARY, OR, AND, NOT, COMPARISON, BIT_OR, BIT_XOR, BIT_AND, SHIFT, ADD, MULTIPLY = range(12)
UNARY, POWER, AWAIT, PRIMARY, ATOM = range(12, 17)

_OPERATORS: dict[type[cst.CSTNode], int] = {
    cst.Or: OR,
    cst.And: AND,
    cst.BitOr: BIT_OR,
    cst.BitXor: BIT_XOR,
    cst.BitAnd: BIT_AND,
    cst.LeftShift: SHIFT,
    cst.RightShift: SHIFT,
    cst.Add: ADD,
    cst.Subtract: ADD,
    cst.Power: POWER,
    cst.Not: NOT,
}
_EXPRESSIONS: dict[type[cst.CSTNode], int] = {
    cst.Lambda: LAMBDA,
    cst.IfExp: TERNARY,
    cst.Comparison: COMPARISON,
    cst.Await: AWAIT,
    cst.Call: PRIMARY,
    cst.Attribute: PRIMARY,
    cst.Subscript: PRIMARY,
}
# What a place asks for at least; places that are not listed take anything from a lambda upwards.
_PLACES: dict[tuple[type[cst.CSTNode], str], int] = {
    (cst.Comparison, "left"): BIT_OR,
    (cst.ComparisonTarget, "comparator"): BIT_OR,
    (cst.Await, "expression"): PRIMARY,
    (cst.Call, "func"): PRIMARY,
    (cst.Attribute, "value"): PRIMARY,
    (cst.Subscript, "value"): PRIMARY,
    (cst.IfExp, "body"): OR,
    (cst.IfExp, "test"): OR,
    (cst.StarredElement, "value"): BIT_OR,
    (cst.StarredDictElement, "value"): BIT_OR,
    (cst.CompFor, "iter"): OR,
    (cst.CompIf, "test"): OR,
    (cst.FormattedStringExpression, "expression"): TERNARY,
}
_VALUES = {(kind, "value") for kind in (cst.Assign, cst.AnnAssign, cst.AugAssign, cst.Expr)}
_TARGETS = {(kind, "target") for kind in (cst.AssignTarget, cst.For, cst.CompFor, cst.Del)}
# The three that stand outside of the order: each has places of its own where it may go bare.
_BARE: dict[type[cst.CSTNode], set[tuple[type[cst.CSTNode], str]]] = {
    cst.Tuple: {*_VALUES, *_TARGETS, (cst.Return, "value"), (cst.For, "iter")},
    cst.Yield: _VALUES,
    cst.NamedExpr: {(cst.Arg, "value"), (cst.If, "test"), (cst.While, "test")},
}


def code(node: cst.CSTNode) -> str:
    """The source of a node alone."""
    return cst.Module([]).code_for_node(node)


def parenthesised(node: Expression) -> Expression:
    """The expression in (one more pair of) parentheses."""
    return node.with_changes(lpar=[cst.LeftParen(), *node.lpar], rpar=[*node.rpar, cst.RightParen()])


def fit(node: Expression, ancestors: Sequence[cst.CSTNode], place: cst.CSTNode) -> Expression:
    """An expression, parenthesised if it must be to stand where ``place`` stands under its ancestors."""
    if node.lpar or not ancestors:
        return node
    if _binds_too_loosely(node, ancestors, place):
        return parenthesised(node)
    if not _in_brackets(ancestors, place) and spans_lines(node):
        return parenthesised(node)
    return node


def _binds_too_loosely(
    node: cst.BaseExpression, ancestors: Sequence[cst.CSTNode], place: cst.CSTNode
) -> bool:
    parent = ancestors[-1]
    role = next((name for name in parent.__dataclass_fields__ if getattr(parent, name) is place), "")
    if isinstance(node, cst.GeneratorExp):
        return not (isinstance(parent, cst.Arg) and len(ancestors) > 1 and _is_alone(parent, ancestors[-2]))
    for kind, places in _BARE.items():
        if isinstance(node, kind):
            named = isinstance(parent, cst.Arg) and (parent.keyword is not None or parent.star)
            return (type(parent), role) not in places or bool(named)
    if isinstance(parent, cst.Attribute) and isinstance(node, cst.Integer):
        return True  # 1.real is a broken float
    if isinstance(parent, cst.FormattedStringExpression) and code(node).startswith("{"):
        return True  # two braces are an escape
    return level(node) < _asked(parent, role)


def _is_alone(argument: cst.Arg, call: cst.CSTNode) -> bool:
    return (
        isinstance(call, cst.Call) and len(call.args) == 1 and argument.keyword is None and not argument.star
    )


def level(node: cst.BaseExpression) -> int:
    """How tightly an expression binds."""
    if isinstance(node, (cst.BinaryOperation, cst.BooleanOperation)):
        return _OPERATORS.get(type(node.operator), MULTIPLY)
    if isinstance(node, cst.UnaryOperation):
        return _OPERATORS.get(type(node.operator), UNARY)
    return _EXPRESSIONS.get(type(node), ATOM)


def _asked(parent: cst.CSTNode, role: str) -> int:
    if isinstance(parent, (cst.BinaryOperation, cst.BooleanOperation)):
        own = level(parent)
        if own == POWER:  # the only one that groups from the right
            return AWAIT if role == "left" else UNARY
        return own if role == "left" else own + 1
    if isinstance(parent, cst.UnaryOperation):
        return level(parent)
    return _PLACES.get((type(parent), role), LAMBDA)


def _in_brackets(ancestors: Sequence[cst.CSTNode], place: cst.CSTNode) -> bool:
    """Whether a line may end anywhere in this place."""
    inner = place
    for node in reversed(ancestors):
        match node:
            case cst.Call():
                enclosed = inner is not node.func
            case cst.Subscript():
                enclosed = inner is not node.value
            case cst.List() | cst.Set() | cst.Dict() | cst.ListComp() | cst.SetComp() | cst.DictComp():
                enclosed = True
            case cst.FunctionDef():
                enclosed = inner is node.params
            case cst.ClassDef():
                enclosed = isinstance(inner, cst.Arg)
            case cst.With():
                enclosed = isinstance(inner, cst.WithItem) and isinstance(node.lpar, cst.LeftParen)
            case _:
                enclosed = False
        if enclosed or (isinstance(node, cst.BaseExpression) and node.lpar):
            return True
        if isinstance(
            node,
            (
                cst.BaseSmallStatement,
                cst.BaseCompoundStatement,
                cst.BaseSuite,
                cst.BaseFormattedStringContent,
            ),
        ):
            return False
        inner = node
    return False


def spans_lines(node: cst.BaseExpression) -> bool:
    """Whether an expression has line ends outside of its own brackets."""
    source = code(node)
    if "\n" not in source and "\r" not in source:
        return False
    try:
        ast.parse(source, mode="eval")
    except SyntaxError:
        return True
    return False
