"""Parameters that are computed with outside of the models' forwards, where they may weigh their gradients."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from dp2ddp.analyse.api import operations
from dp2ddp.analyse.api.layers import LAYER_PARAMETERS, PARAMETERS
from dp2ddp.analyse.context import once
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.definitions import NAMES, given_to
from dp2ddp.analyse.dataflow.kinds import AVERAGED, BY_SAMPLE, PLAIN, Kind, Value
from dp2ddp.analyse.dataflow.samples.frames import Frame
from dp2ddp.analyse.program.calls import handed
from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.program.values import Made, full_name

if TYPE_CHECKING:
    from dp2ddp.analyse.dataflow.samples.follower import Samples


def weighs(samples: Samples, node: ast.AST, value: Value, frame: Frame) -> bool:
    """Whether parameters are computed with that no forward has, which could weigh their gradients."""
    match node:
        case ast.BinOp(left=left, right=right) if not isinstance(node.op, ast.Add | ast.Sub):
            parts = [left, right]
        case ast.Call() if not samples.program.entered(node):
            parts = [*handed(node), *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
        case _:
            return False
    if kinds.tensor(value, node) in (*BY_SAMPLE, *AVERAGED, Kind.TOTAL, Kind.PICKED, Kind.HANDED):
        plain = (it for it in parts if samples.value(it, frame) in PLAIN)
        return any(_is_trained_with(samples.program, it) for it in plain)
    return False


@once
def _is_trained_with(program: Program, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression is computed from a parameter that it takes from a model."""
    for part in ast.walk(node):
        if not isinstance(part, ast.Name | ast.Attribute):
            continue
        if any(full_name(it) in PARAMETERS for it in program.values(part)) or _is_of_layer(program, part):
            inside = isinstance(part, ast.Attribute) and _is_own(program, part)
            if not inside:
                return True
        elif isinstance(part, ast.Name) and depth < NAMES:
            given = given_to(program, part)
            if any(it is not node and _is_trained_with(program, it, depth + 1) for it in given):
                return True
    return False


def _is_of_layer(program: Program, node: ast.Name | ast.Attribute) -> bool:
    """``model.head.weight``, of a layer of torch's."""
    if not isinstance(node, ast.Attribute) or node.attr not in LAYER_PARAMETERS:
        return False
    layers = program.values(node.value)
    return any(isinstance(it, Made) and it.name in operations.LAYER_NAMES for it in layers)


def _is_own(program: Program, node: ast.Attribute) -> bool:
    """``self.scale`` in a method: the module's own forward, or what it calls, has that; so with its layers'."""
    held = node.value
    if isinstance(held, ast.Attribute) and _is_of_layer(program, node):
        held = held.value
    return ast.unparse(held) in program.scope(node).params[:1]
