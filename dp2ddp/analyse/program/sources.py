"""What a definition takes its value from, in whatever form: the one place that knows them by their syntax.

``interpreter`` runs the same forms on values; who asks for expressions asks here.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class How(Enum):
    """By what a name, attribute or element gets its value."""

    ASSIGNED = "assigned"
    """``x = value``, ``x: int = value``, ``(x := value)``."""
    AUGMENTED = "augmented"
    """``x += value``."""
    ELEMENT = "element"
    """``for x in value``, also in a comprehension."""
    ENTERED = "entered"
    """``with value as x``."""
    OTHER = "other"
    """Parameters, imports, functions, classes, ``except … as x``, ``case x``."""


@dataclass(frozen=True)
class Source:
    """The expression that a definition takes its value from, and its place in what is unpacked of that.

    ``place``: ``(1, 0)`` for ``b`` in ``a, (b, c) = value``; None stands for a place behind a star.
    """

    how: How
    value: ast.expr | None = None
    place: tuple[int | None, ...] = ()

    @property
    def plain(self) -> ast.expr | None:
        """The expression whose value it is, where it is just that."""
        return self.value if self.how is How.ASSIGNED and not self.place else None

    @property
    def written(self) -> tuple[ast.expr | None, tuple[int | None, ...]]:
        """The expression, taken apart as far as it is written out, and the rest of the place."""
        value, left = self.value, [*self.place]
        while left and isinstance(value, ast.Tuple | ast.List):
            starred = any(isinstance(it, ast.Starred) for it in value.elts)
            if starred or left[0] is None or left[0] >= len(value.elts):
                break
            value = value.elts[left.pop(0)]  # type: ignore[arg-type]
        return value, tuple(left)


OTHER = Source(How.OTHER)


def source(definition: ast.AST, parent: Callable[[ast.AST], ast.AST | None]) -> Source:
    """What a definition takes its value from.

    Args:
        definition: the target, as ``Program.definitions`` has it.
        parent: what a node stands in.
    """
    inside, around = definition, parent(definition)
    place: list[int | None] = []
    while isinstance(around, ast.Tuple | ast.List | ast.Starred):
        if not isinstance(around, ast.Starred):
            before = around.elts[: around.elts.index(inside) + 1]  # type: ignore[arg-type]
            place.append(None if any(isinstance(it, ast.Starred) for it in before) else len(before) - 1)
        inside, around = around, parent(around)
    path = tuple(reversed(place))
    match around:
        case ast.Assign(targets=targets, value=value) if inside in targets:
            return Source(How.ASSIGNED, value, path)
        case ast.AnnAssign(target=target, value=ast.expr() as value) if inside is target:
            return Source(How.ASSIGNED, value, path)
        case ast.NamedExpr(target=target, value=value) if inside is target:
            return Source(How.ASSIGNED, value, path)
        case ast.AugAssign(target=target, value=value) if inside is target:
            return Source(How.AUGMENTED, value, path)
        case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value) if inside is target:
            return Source(How.ELEMENT, value, path)
        case ast.comprehension(target=target, iter=value) if inside is target:
            return Source(How.ELEMENT, value, path)
        case ast.withitem(optional_vars=target, context_expr=value) if inside is target:
            return Source(How.ENTERED, value, path)
    return OTHER
