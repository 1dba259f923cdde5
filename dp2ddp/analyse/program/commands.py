"""Functions that packages for command lines call, and what they give them."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass, field

from dp2ddp.analyse.api.options import CONFIGURED, GIVEN, OFFERED
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.scopes import Tree
from dp2ddp.analyse.program.store import Store
from dp2ddp.analyse.program.values import NOTHING, Func, Made, Member, Value, Values, closure, full_name


@dataclass
class Commands:
    """Which functions objects from outside know, and may call."""

    tree: Tree
    store: Store
    held: dict[Value, set[Value]] = field(default_factory=lambda: defaultdict(set))
    """The functions that an object from outside, or a command, knows."""
    groups: set[Value] = field(default_factory=set)
    """Functions that packages for command lines make commands of."""

    def known_outside(self, decorator: ast.expr, value: Func) -> None:
        """``@group.command()``: an object from outside knows a function, and may call it when it is called."""
        root = decorator
        while isinstance(root, ast.Attribute | ast.Call):
            root = root.value if isinstance(root, ast.Attribute) else root.func
        groups = {it for it in self.store.values(root) if it in self.groups and it != value}
        holders = (
            {it for it in self.store.values(root) if isinstance(it, Made)} if root is not decorator else set()
        )
        for owner in groups | holders:
            self.store.grow(self.held[owner], [value], ("held", owner))
        call = self.store.calls.get(id(decorator))
        names = {full_name(it) for it in (call.callees if call is not None else self.store.values(decorator))}
        offered = bool(groups) or any(name.startswith(OFFERED) for name in names)
        if offered and value not in self.groups:
            self.groups.add(value)
            self.store.changed = True
        if offered or names & CONFIGURED.keys():
            config = next((CONFIGURED[name] for name in names if name in CONFIGURED), GIVEN)
            self.offer(frozenset([value]), config)

    def hold(self, owner: Func, node: ast.Call) -> None:
        """``group.add_command(function)``."""
        for values in map(self.store.values, handed(node)):
            self.store.grow(
                self.held[owner], (it for it in values if isinstance(it, Func | Made)), ("held", owner)
            )

    def offer(self, values: Values, kind: str = GIVEN) -> None:
        """Know that functions are given options for their parameters."""
        for value in values:
            node = self.tree.scopes[value.scope].node if isinstance(value, Func) else None
            if isinstance(node, ast.FunctionDef):
                self.store.unseen.add(value.scope)
                for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                    self.store.define(self.tree.by_node[id(node)], arg.arg, arg, [Made(kind, id(arg))])

    def run_by_holder(self, call: Call, passed: list[Value]) -> Values:
        """The functions that an object knows which is called, or a method of it, unless it is told them here."""
        around = self.tree.parents[id(call.node)]
        decorates = call.node in getattr(around, "decorator_list", ())
        if decorates or any(isinstance(it, Func) or it in self.held for it in passed):
            return NOTHING
        owners = set()
        for callee in call.callees:
            while isinstance(callee, Member):
                callee = callee.owner
            owners.add(callee)
        return closure(frozenset(owners), lambda it: self.held.get(it, ())) - owners
