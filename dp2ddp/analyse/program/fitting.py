"""Which of several functions a call may mean: what does not take its arguments is not what is called."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from dp2ddp.analyse.api.layers import HAVE_ONLY
from dp2ddp.analyse.program.classes import Classes
from dp2ddp.analyse.program.scopes import Tree
from dp2ddp.analyse.program.signature import bind, is_spread
from dp2ddp.analyse.program.values import Bound, Cls, Func, Made, Member, Value


@dataclass
class Fitting:
    """Whether a function fits a call."""

    tree: Tree
    classes: Classes
    _returning: dict[int, bool] = field(default_factory=dict)
    _asked: dict[int, bool] = field(default_factory=dict)

    def fits(self, callee: Value, node: ast.Call) -> bool:
        """Whether a function, or the constructor of a class, takes what a call gives: else it is not what is called."""
        if isinstance(callee, Member) and isinstance(callee.owner, Made) and callee.owner.name in HAVE_ONLY:
            return callee.name.startswith("_") or callee.name in HAVE_ONLY[callee.owner.name]
        func, bound = (callee.func, True) if isinstance(callee, Bound) else (callee, False)
        if isinstance(callee, Cls):
            first = next(
                (
                    it
                    for it in self.classes.bases(callee)
                    if not isinstance(it, Cls) or self.classes.own(it, "__init__")
                ),
                None,
            )
            func, bound = (
                (self.classes.own(first, "__init__")[0], True) if isinstance(first, Cls) else (None, True)
            )
        if not isinstance(func, Func) or is_spread(node):
            return True
        inner = self.tree.scopes[func.scope]
        if getattr(inner.node, "decorator_list", ()) and not isinstance(callee, Cls):
            return True  # it may be given something more, or less
        signature = inner.takes(bound)
        bindings = bind(node, signature)
        known = {id(it) for it, _ in (*bindings.given, *signature.defaults)}
        return not bindings.nothing and all(id(it) in known for it in signature.named)

    def returns_it(self, callee: Value, node: ast.Call) -> bool:
        """Whether a function returns something, where a call's result is asked for an attribute: None has none."""
        func = callee.func if isinstance(callee, Bound) else callee
        if not isinstance(func, Func) or not self._is_asked(node):
            return True
        inner = self.tree.scopes[func.scope]
        if isinstance(inner.node, ast.Lambda) or inner.node.decorator_list:  # type: ignore[attr-defined]
            return True
        if func.scope not in self._returning:
            found = (it for part in inner.body for it in self.tree.descendants(part))
            self._returning[func.scope] = any(
                isinstance(it, ast.Yield | ast.YieldFrom)
                or (isinstance(it, ast.Return) and it.value is not None)
                for it in found
            )
        return self._returning[func.scope]

    def _is_asked(self, node: ast.expr) -> bool:
        """Whether what an expression gives is asked for an attribute, at once or by the name that it is given."""
        parent = self.tree.parents[id(node)]
        if isinstance(parent, ast.Attribute):
            return True
        if not isinstance(parent, ast.Assign) or [type(it) for it in parent.targets] != [ast.Name]:
            return False
        if id(node) not in self._asked:
            name = parent.targets[0].id  # type: ignore[attr-defined]
            uses = (it for it in ast.walk(self.tree.scope_of[id(node)].node) if isinstance(it, ast.Attribute))
            self._asked[id(node)] = any(isinstance(it.value, ast.Name) and it.value.id == name for it in uses)
        return self._asked[id(node)]
