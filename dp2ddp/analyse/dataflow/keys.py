"""Keys of dicts: indices that no tensor can have, as a text is in them: ``losses["loss"]``, ``x[("disp", scale)]``."""

from __future__ import annotations

import ast

from dp2ddp.analyse.api.operations import written
from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.program.values import Const

ANY = ...
"""In a key: what is only known when the program runs."""


def is_written_out(index: ast.expr) -> bool:
    """Whether all of an index is a text or a number, or texts and numbers: ``0``, ``"loss"``, ``("color", -1, 0)``."""
    if not isinstance(index, ast.Tuple):
        return isinstance(index, ast.Constant) and isinstance(index.value, int | str)
    texts = [isinstance(_text(it), str) for it in index.elts]
    return any(texts) and all(
        text or written(it) is not None for it, text in zip(index.elts, texts, strict=True)
    )


def key_of(program: Program, index: ast.expr) -> object | None:
    """The key of a dict that an index is, ``ANY`` for what is not known of it; None for what may index a tensor."""
    if not isinstance(index, ast.Tuple):
        return _text(index)
    parts = [_part(program, it) for it in index.elts]
    is_key = any(isinstance(it, str) for it in parts) or any(_text(it) is ANY for it in index.elts)
    return tuple(parts) if is_key else None


def is_known(key: object) -> bool:
    """Whether all of a key is known."""
    return key is not None and ANY not in (key if isinstance(key, tuple) else (key,))


def may_be(one: object, other: object) -> bool:
    """Whether two keys may be the same."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(may_be, one, other))
    if one is ANY or other is ANY:
        return not isinstance(one, tuple) and not isinstance(other, tuple)
    return one == other


def _part(program: Program, node: ast.expr) -> object:
    """One of several parts of an index."""
    found = _text(node)
    if found is None:
        found = written(node)
    if found is not None:
        return found
    values = program.values(node)
    value = next(iter(values)) if len(values) == 1 else None
    return value.value if isinstance(value, Const) and isinstance(value.value, int | str) else ANY


def _text(node: ast.expr) -> object | None:
    """The text that an expression is, as it is written; ``ANY`` for one that is put together."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr() | ast.Call(func=ast.Attribute(value=ast.Constant(value=str()), attr="format")):
            return ANY
        case ast.Call(func=ast.Name(id="str")) | ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod()):
            return ANY
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return ANY if _text(left) is not None or _text(right) is not None else None
    return None
