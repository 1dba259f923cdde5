"""Which of several functions a call may mean: what does not take its arguments is not what is called."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from dp2ddp.analyse.program.classes import Classes
from dp2ddp.analyse.program.scopes import Tree
from dp2ddp.analyse.program.values import Bound, Cls, Func, Value


@dataclass
class Fitting:
    """Whether a function fits a call."""

    tree: Tree
    classes: Classes
    _returning: dict[int, bool] = field(default_factory=dict)
    _asked: dict[int, bool] = field(default_factory=dict)

    def fits(self, callee: Value, node: ast.Call) -> bool:
        """Whether a function, or the constructor of a class, takes what a call gives: else it is not what is called."""
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
        starred = any(isinstance(it, ast.Starred) for it in node.args) or any(
            not it.arg for it in node.keywords
        )
        if not isinstance(func, Func) or starred:
            return True
        inner = self.tree.scopes[func.scope].node
        args: ast.arguments = inner.args  # type: ignore[attr-defined]
        marks = [ast.unparse(it) for it in getattr(inner, "decorator_list", ())]
        if marks and not isinstance(callee, Cls):
            return True  # it may be given something more, or less
        every = [it.arg for it in (*args.posonlyargs, *args.args)][bound:]
        named = {str(it.arg) for it in node.keywords}
        needed = set(every[: max(0, len(every) - len(args.defaults))])
        needed |= {
            it.arg for it, value in zip(args.kwonlyargs, args.kw_defaults, strict=True) if value is None
        }
        surplus = len(node.args) > len(every) and args.vararg is None
        unknown = args.kwarg is None and not named <= {*every, *(it.arg for it in args.kwonlyargs)}
        return not surplus and not unknown and needed <= {*every[: len(node.args)], *named}

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
