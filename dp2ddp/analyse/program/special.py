"""What linking is told of objects from outside that do not behave as others do: wrappers of models.

The linker knows nothing of them but the questions of ``Special``. ``Nothing`` answers them for programs without any.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Protocol

from dp2ddp.analyse.program.values import Value, Values

if TYPE_CHECKING:
    from dp2ddp.analyse.program.link import Linker


class Special(Protocol):
    """Objects with rules of their own."""

    def attach(self, linker: Linker) -> None:
        """Told what links, before it does."""

    def learns(self) -> bool:
        """Whether more is known after linking, so that all has to be linked anew."""

    def named(self, callees: Values) -> Values:
        """Callees with what else calling them is called."""

    def called(self, callee: Value, node: ast.Call) -> Values | None:
        """What a call of such a thing returns; None where it is as any other."""

    def attribute(self, owner: Value, name: str, node: ast.AST) -> Values | None:
        """What such an object has under a name; None where it is as any other."""

    def entered(self, value: Value) -> set[int] | None:
        """The functions that a call of such an object enters; None where it is as any other."""

    def always_runs(self, value: ast.Call) -> bool:
        """Whether what a call makes is assigned under whatever condition it stands."""

    def otherwise(self, test: ast.expr, values: Values) -> Values:
        """What is left of some values where a test, or a look for an attribute, has failed."""


class Nothing:
    """There are none."""

    def attach(self, linker: Linker) -> None:
        pass

    def learns(self) -> bool:
        return False

    def named(self, callees: Values) -> Values:
        return callees

    def called(self, callee: Value, node: ast.Call) -> Values | None:
        return None

    def attribute(self, owner: Value, name: str, node: ast.AST) -> Values | None:
        return None

    def entered(self, value: Value) -> set[int] | None:
        return None

    def always_runs(self, value: ast.Call) -> bool:
        return False

    def otherwise(self, test: ast.expr, values: Values) -> Values:
        return values
