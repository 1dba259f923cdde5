"""Assignments that change what a name was: ``total += x``, ``total = total + x`` and ``total = x + total``."""

from __future__ import annotations

import ast
from dataclasses import dataclass

# What may be read from the right, too.
COMMUTES = (ast.Add, ast.Mult)


@dataclass(frozen=True)
class Update:
    """``target op= value``; ``read`` is the place that reads the target, where that is written out."""

    statement: ast.Assign | ast.AugAssign
    target: ast.expr
    op: ast.operator
    value: ast.expr
    read: ast.expr | None = None


def updated(node: ast.AST) -> Update | None:
    """What a statement changes, and by what; None for what is no such statement."""
    match node:
        case ast.AugAssign(target=target, op=op, value=value):
            return Update(node, target, op, value)
        case ast.Assign(targets=[target], value=ast.BinOp(left=left, op=op, right=right)) if not isinstance(
            target, ast.Tuple | ast.List
        ):
            text = ast.unparse(target)
            if ast.unparse(left) == text:
                return Update(node, target, op, right, left)
            if isinstance(op, COMMUTES) and ast.unparse(right) == text:
                return Update(node, target, op, left, right)
    return None
