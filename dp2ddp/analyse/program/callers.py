"""Which calls enter a function, and what they give its parameters."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from dp2ddp.analyse.program import signature
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.classes import Classes
from dp2ddp.analyse.program.members import Members
from dp2ddp.analyse.program.scopes import Tree
from dp2ddp.analyse.program.signature import is_spread
from dp2ddp.analyse.program.store import Store
from dp2ddp.analyse.program.values import Bound, Cls, Func, Inst, Value


@dataclass
class Callers:
    """Asked when all is linked."""

    tree: Tree
    store: Store
    classes: Classes
    members: Members
    _given: dict[int, list[ast.expr]] = field(default_factory=dict)

    def targets(self, callee: object, call: Call) -> Iterator[tuple[int, Value | None, bool]]:
        """The functions behind a callee, the object of each, and whether that is its first parameter."""
        match callee:
            case Func():
                yield callee.scope, None, False
            case Bound():
                yield callee.func.scope, callee.owner, not self.classes.is_static(callee.func)
            case Cls():
                made = Inst(callee, id(call.node))
                yield from ((it, made, True) for it in self.members.methods(made, "__init__", call.node))
            case Inst():
                called = self.members.methods(callee, "__call__", call.node)
                called = called or self.members.methods(callee, "forward", call.node)
                yield from ((it, callee, True) for it in called)

    def given(self, parameter: ast.arg) -> list[ast.expr]:
        """What the calls of a function give a parameter, its default included; empty where one can't be seen."""
        if id(parameter) not in self._given:
            self._given[id(parameter)] = self._given_by_calls(parameter)
        return list(self._given[id(parameter)])

    def _given_by_calls(self, parameter: ast.arg) -> list[ast.expr]:
        scope = self.tree.scope(parameter)
        if scope.index in self.store.unseen:
            return []
        found: list[ast.expr | None] = []
        for call, bound in self.callers.get(scope.index, ()):
            if bound and parameter in scope.signature.places[:1]:
                return []  # the object whose method it is
            taken = scope.takes(bound)
            written = any(it is parameter for it, _ in signature.bind(call.node, taken).given)
            if is_spread(call.node) and not written:
                return []  # not seen
            found.append(signature.given(call.node, taken, parameter))
        return list(dict.fromkeys(it for it in found if it is not None))

    @cached_property
    def callers(self) -> dict[int, list[tuple[Call, bool]]]:
        """The calls that enter each function, in source order, and whether the first parameter is an object's."""
        found: dict[int, list[tuple[Call, bool]]] = defaultdict(list)
        for call in self.store.in_order:
            for callee in call.callees:
                for index, _, bound in self.targets(callee, call):
                    found[index].append((call, bound))
        return found
