"""Which arguments reach a parameter, and which parameter an argument reaches."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.members import Members
from dp2ddp.analyse.program.scopes import Tree
from dp2ddp.analyse.program.store import Store
from dp2ddp.analyse.program.values import Bound, Cls, Func, Inst, Value


@dataclass
class Binding:
    """Asked when all is linked."""

    tree: Tree
    store: Store
    members: Members

    def targets(self, callee: object, call: Call) -> Iterator[tuple[int, Value | None, bool]]:
        """The functions behind a callee, the object of each, and whether that is its first parameter."""
        match callee:
            case Func():
                yield callee.scope, None, False
            case Bound():
                marks = getattr(self.tree.scopes[callee.func.scope].node, "decorator_list", ())
                yield callee.func.scope, callee.owner, "staticmethod" not in map(ast.unparse, marks)
            case Cls():
                made = Inst(callee, id(call.node))
                yield from ((it, made, True) for it in self.members.methods(made, "__init__", call.node))
            case Inst():
                called = self.members.methods(callee, "__call__", call.node)
                called = called or self.members.methods(callee, "forward", call.node)
                yield from ((it, callee, True) for it in called)

    def given(self, parameter: ast.arg) -> list[ast.expr]:
        """What the calls of a function give a parameter, its default included; empty where one can't be seen."""
        scope = self.tree.scope(parameter)
        args = scope.node.args  # type: ignore[attr-defined]
        every = [*args.posonlyargs, *args.args]
        pairs = [*zip(reversed(every), reversed(args.defaults), strict=False)]
        pairs += zip(args.kwonlyargs, args.kw_defaults, strict=True)
        default = next((default for arg, default in pairs if arg is parameter), None)
        found: list[ast.expr | None] = []
        if scope.index in self.store.unseen:
            return []
        for call, bound in self._passing.get(scope.index, ()):
            if any(isinstance(it, ast.Starred) for it in call.node.args) or any(
                keyword.arg is None for keyword in call.node.keywords
            ):
                return []
            position = every.index(parameter) - bound if parameter in every else None
            if position == -1:
                return []  # the object whose method it is
            found.append(call.argument(parameter.arg, position) or default)
        return list(dict.fromkeys(it for it in found if it is not None))

    @cached_property
    def _passing(self) -> dict[int, list[tuple[Call, bool]]]:
        """The calls that enter each function, in source order, and whether the first parameter is an object's."""
        found: dict[int, list[tuple[Call, bool]]] = defaultdict(list)
        for call in self.store.in_order:
            for callee in call.callees:
                for index, _, bound in self.targets(callee, call):
                    found[index].append((call, bound))
        return found
