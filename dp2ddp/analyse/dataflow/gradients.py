"""Where no gradients are computed: in blocks and functions that disable them."""

from __future__ import annotations

import ast

from dp2ddp.analyse.api.layers import ENABLES_GRADIENTS, NO_GRADIENTS
from dp2ddp.analyse.program.link import Program


def disables_gradients(program: Program, around: ast.AST) -> bool:
    """Whether no gradients are computed for what stands in a block, or a function; none of it enables them again."""
    if isinstance(around, ast.With):
        managers = [item.context_expr for item in around.items]
    elif isinstance(around, ast.FunctionDef):
        managers = around.decorator_list
    else:
        return False
    if not NO_GRADIENTS & frozenset[str]().union(*map(program.names_of, managers)):
        return False
    return not any(
        ENABLES_GRADIENTS & program.names_of(it) for it in ast.walk(around) if isinstance(it, ast.Call)
    )
