"""Where in a list what is appended to it stands, as far as that is known: ``items = []``, ``items.append(x)``, …"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from dp2ddp.analyse.api.containers import CHANGES, LIST_CHANGES
from dp2ddp.analyse.api.python import MODULE_LISTS
from dp2ddp.analyse.program.scopes import Scope, Tree
from dp2ddp.analyse.program.store import Store
from dp2ddp.analyse.program.values import full_name
from dp2ddp.texts import ANY

LAST = "-1"
MOVES = CHANGES | LIST_CHANGES


@dataclass
class Appending:
    """The places of what is appended, as keys: ``0``, ``1:`` for anywhere from there on, ``-1`` for the last."""

    tree: Tree
    store: Store
    _places: dict[tuple[int, str], dict[int, tuple[str, ...]]] = field(default_factory=dict)

    def places(self, call: ast.Call) -> tuple[str, ...]:
        """The keys under which a list has what a call of its ``append`` adds."""
        match call.func:
            case ast.Attribute(attr="append", value=ast.Name(id=name)):
                scope = self.tree.scope_of[id(call)]
                key = scope.index, name
                if key not in self._places:
                    self._places[key] = self._found(scope, name)
                return self._places[key].get(id(call), (ANY,))
        return (ANY,)

    def _found(self, scope: Scope, name: str) -> dict[int, tuple[str, ...]]:
        """What is added to a list that a function makes and keeps under one name, in the order of its statements."""
        named = (it for it in ast.walk(scope.node) if isinstance(it, ast.Name) and it.id == name)
        named = (it for it in named if not self._is_another(it, scope))
        uses = sorted(named, key=lambda it: self.tree.order.get(id(it), 0))
        own = all(self.tree.scope_of.get(id(it)) is scope for it in uses)
        begun = self.tree.statement(uses[0]) if own and name not in scope.params else None
        length = self._length(begun, uses[0])
        if length is None or not all(isinstance(it.ctx, ast.Load) for it in uses[1:]):
            return {}
        block = self.tree.block(begun)  # type: ignore[arg-type]
        found: dict[int, tuple[str, ...]] = {}
        exact = alone = True
        last: ast.Call | None = None
        for use in uses[1:]:
            called = self._called(use)
            method = called.func.attr if called is not None else ""  # type: ignore[attr-defined]
            if called is not None and method == "append" and len(called.args) == 1:
                always = any(self.tree.parents[id(called)] is it for it in block)
                found[id(called)] = (f"{length}" if exact and always else f"{length}:",)
                length, exact = length + always, exact and always
                last = called if always and alone else None
            elif method in MOVES or self._is_changed(use):
                return {}
            elif not method and not self._is_looked_up(use):
                exact = alone = False  # another may add to it
            elif not method and not self._is_counted(use):
                alone = False  # asked for the last one before that was there
        if last is not None and not any(map(_may_leave, block)):
            found[id(last)] = (*found[id(last)], LAST)
        return found

    def _is_another(self, use: ast.Name, scope: Scope) -> bool:
        """Whether a function within a scope, ``def train(items)`` in the module, has a variable of that name itself."""
        own = inner = self.tree.scope_of.get(id(use))
        while inner is not None and inner is not scope:
            seen = inner is own or not inner.is_class
            if seen and use.id in inner.names - inner.globals - inner.nonlocals:
                return True
            inner = inner.parent
        return False

    def _length(self, made: ast.stmt | None, target: ast.Name) -> int | None:
        """How many elements a new list has."""
        match made:
            case ast.Assign(targets=[only], value=ast.List() as held) if only is target:
                pass
            case ast.Assign(
                targets=[only], value=ast.Call(args=[ast.List() as held], keywords=[]) as call
            ) if only is target and self._is_list(call):
                pass
            case ast.Assign(
                targets=[only], value=ast.Call(args=[], keywords=[]) as call
            ) if only is target and self._is_list(call):
                return 0
            case _:
                return None
        return None if any(isinstance(it, ast.Starred) for it in held.elts) else len(held.elts)

    def _is_list(self, call: ast.Call) -> bool:
        return any(full_name(it) in MODULE_LISTS for it in self.store.of(call.func))

    def _called(self, use: ast.Name) -> ast.Call | None:
        """The call of a method of what is used."""
        method = self.tree.parents[id(use)]
        call = self.tree.parents[id(method)] if isinstance(method, ast.Attribute) else None
        return call if isinstance(call, ast.Call) and call.func is method else None

    def _is_looked_up(self, use: ast.Name) -> bool:
        """``items[0]``."""
        around = self.tree.parents[id(use)]
        return isinstance(around, ast.Subscript) and around.value is use

    def _is_changed(self, use: ast.Name) -> bool:
        """``items[0] = x`` puts what it does under that key; ``del items[0]`` moves the rest."""
        around = self.tree.parents[id(use)]
        return self._is_looked_up(use) and isinstance(around.ctx, ast.Del)  # type: ignore[attr-defined]

    def _is_counted(self, use: ast.Name) -> bool:
        """Whether an element is asked for by its place from the first one on."""
        around = self.tree.parents[id(use)]
        return isinstance(around, ast.Subscript) and isinstance(around.slice, ast.Constant)


def _may_leave(statement: ast.stmt) -> bool:
    """Whether a round of a loop may end in a statement, before what follows there is added."""
    return any(isinstance(it, ast.Break | ast.Continue) for it in ast.walk(statement))
