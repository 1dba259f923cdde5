"""Pairs of samples: tensors that meet themselves turned, ``x[None] - x[:, None]`` and ``x @ x.t()``."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from dp2ddp.analyse.api.operations import written
from dp2ddp.analyse.api.tensors import KEEPS_PLACES
from dp2ddp.analyse.dataflow.definitions import NAMES, behind
from dp2ddp.analyse.dataflow.kinds import BY_SAMPLE, Unclear, Value
from dp2ddp.analyse.program.link import Program


def of_pairs(
    program: Program, node: ast.BinOp | ast.Compare, found: Value, left: Value, right: Value
) -> Value:
    """What is computed of two tensors; or that it is of each pair of samples: ``x[None] - x[:, None]``."""
    if isinstance(found, Unclear) and found.refuted or not (left in BY_SAMPLE and right in BY_SAMPLE):
        return found
    one, other = node.left, node.right if isinstance(node, ast.BinOp) else node.comparators[0]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        pairs = turns(program, [one, other])
    else:
        sides = {_turned(program, one), _turned(program, other)}
        pairs = sides == {"across", "along"} or ("across" in sides and _is_turned_of(program, one, other))
    return Unclear(node, refuted=True) if pairs else found


def turns(program: Program, parts: Iterable[ast.expr]) -> bool:
    """Whether a product is one with a transposed matrix, so that each row meets every other one: ``x @ x.t()``."""
    return any(_turned(program, part) == "transposed" for part in parts)


def _is_turned_of(program: Program, one: ast.expr, other: ast.expr) -> bool:
    """Whether one of two tensors is the other one, turned: ``norms + norms.unsqueeze(0)``."""
    turned, straight = (one, other) if _turned(program, one) == "across" else (other, one)
    inner = (
        turned.func.value if isinstance(turned, ast.Call) and isinstance(turned.func, ast.Attribute) else None
    )
    return inner is not None and ast.unparse(inner) == ast.unparse(straight)


def _turned(program: Program, node: ast.expr, depth: int = 0) -> str:
    """Where a tensor has its samples: in dimension 1 ("across", "transposed"), or 0 before a new one ("along")."""
    if depth > NAMES:
        return ""
    match node:
        case ast.Attribute(attr="T") | ast.Call(func=ast.Attribute(attr="t"), args=[]):
            return "transposed"
        case ast.Call(func=ast.Attribute(attr="transpose" | "permute"), args=[one, other]):
            return "transposed" if {written(one), written(other)} in ({0, 1}, {0, -1}) else ""
        case ast.Call(func=ast.Attribute(attr="unsqueeze"), args=[place]):
            return {0: "across", 1: "along"}.get(written(place), "")  # type: ignore[arg-type]
        case ast.Call(func=ast.Attribute(attr="view" | "reshape"), args=[one, other]):
            sizes = written(one), written(other)
            return {(1, -1): "across", (-1, 1): "along"}.get(sizes, "")  # type: ignore[arg-type]
        case ast.Call(func=ast.Attribute(attr=name, value=inner)) if name in KEEPS_PLACES:
            return _turned(program, inner, depth + 1)
        case ast.Subscript(slice=ast.Constant(value=None)):
            return "across"
        case ast.Subscript(slice=ast.Tuple(elts=[ast.Constant(value=None), ast.Slice(), *_])):
            return "across"
        case ast.Subscript(slice=ast.Tuple(elts=[ast.Slice(), ast.Constant(value=None), *_])):
            return "along"
        case ast.Name():
            made = program.definitions(node)
            held = [it for one in made if not isinstance(one, ast.arg) for it in behind(program, one)]
            found = {_turned(program, it, depth + 1) for it in held}
            return found.pop() if len(found) == 1 and len(held) == len(made) else ""
    return ""
