"""What an object has under a name: its attributes, its methods, and those of the bases that ``super()`` stands for."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from dp2ddp.analyse.program.classes import Classes
from dp2ddp.analyse.program.definitions import Reaching
from dp2ddp.analyse.program.scopes import Scope, Tree
from dp2ddp.analyse.program.store import Store
from dp2ddp.analyse.program.values import (
    NOTHING,
    Bound,
    Cls,
    Ext,
    Func,
    Inst,
    Made,
    Member,
    Names,
    Value,
    Values,
    full_name,
)
from dp2ddp.texts import ANY, matches

# How many values may be stored under a name of which nothing is known, before what any name holds is unknown.
MOST = 24


@dataclass
class Members:
    """Attributes of objects of the project's classes. Nothing runs here: a property is its method."""

    tree: Tree
    store: Store
    classes: Classes
    reaching: Reaching
    supers: dict[int, Values] = field(default_factory=dict)
    """The objects that calls of ``super()`` stand for."""
    _known_assigned: dict[Cls, frozenset[str]] = field(default_factory=dict)
    _kept: dict[tuple[Value, str, int], tuple[int, list[int]]] = field(default_factory=dict)

    def member(self, owner: Inst | Cls, name: str, node: ast.AST) -> Values:
        cls = owner.cls if isinstance(owner, Inst) else owner
        family = [*self.classes.bases(cls), *self.classes.derived(cls)]
        found: set[Value] = set()
        is_set = False
        for base in family:
            stored = self.store.field(base, name)
            is_set = is_set or bool(stored)
            for entry in self._reaching(base, name, stored, node) if stored else ():
                found |= stored[entry]
        for base in self.classes.bases(cls):
            if isinstance(base, Cls):
                self.store.read((base.scope, name))
            if isinstance(base, Cls) and (base.scope, name) in self.store.definitions:
                for values in self.store.definitions[base.scope, name].values():
                    found |= self._methods(values, owner)
                break
        own = (
            self.tree.scopes[base.scope].names for base in self.classes.bases(cls) if isinstance(base, Cls)
        )
        # what a class sets itself is none of what its bases from outside have, even if it has not been run yet
        to_come = not is_set and any(name in self._assigned(it) for it in family if isinstance(it, Cls))
        if not found and not to_come and not any(name in names for names in own):
            outside = [base for base in self.classes.bases(cls) if isinstance(base, Ext)]
            outside = [base for base in outside if base.name != "builtins.object"]  # it has no attributes
            found.update(Member(Made(base.name, getattr(owner, "site", 0)), name) for base in outside)
        return frozenset(found)

    def _reaching(self, base: Value, name: str, stored: Iterable[int], node: ast.AST) -> list[int]:
        """Those that give an attribute a value which it may have at a node; kept until there are more of them."""
        nodes = [self.store.definition_nodes[key] for key in stored]
        key = base, name, id(node)
        size, kept = self._kept.get(key, (0, []))
        if size == len(nodes) and id(node) in self.tree.nodes:
            return kept
        self.reaching.undecided = False
        # In the method that sets it, an attribute follows the order of statements as a name does.
        near = [n for n in nodes if self.tree.scope_of.get(id(n)) is self.tree.scope_of.get(id(node))]
        chosen = (
            self.reaching.among(near, node) if near and isinstance(self.tree.parent(node), ast.AST) else []
        )
        kept = [id(it) for it in chosen or self.reaching.surviving(nodes)]
        if not self.reaching.undecided:  # else more may be known in the next round
            self._kept[key] = len(nodes), kept
        return kept

    def _methods(self, values: Iterable[Value], owner: Inst | Cls) -> Values:
        """What is found in a class, as it comes out of an object: that of ``super()`` is the object it stands for."""
        objects = (self.supers.get(owner.site) if isinstance(owner, Inst) else None) or (owner,)
        return frozenset(self.method(value, it) for value in values for it in objects)

    def method(self, value: Value, owner: Inst | Cls | Made) -> Value:
        """What is found in a class, as it comes out of an object or out of the class itself."""
        if not isinstance(value, Func):
            return value
        marks = getattr(self.tree.scopes[value.scope].node, "decorator_list", [])
        if any(isinstance(mark, ast.Name) and mark.id == "classmethod" for mark in marks):
            return Bound(value, owner.cls if isinstance(owner, Inst) else owner)
        return Bound(value, owner) if isinstance(owner, Inst | Made) else value

    def super_(self, scope: Scope, node: ast.Call) -> Values:
        """``super()``, or ``super(Own, self)``, in a method of a class."""
        current: Scope | None = scope
        while current is not None and not current.is_class:
            current = current.parent
        if current is None:
            return NOTHING
        own = Cls(current.index)
        if node.args and own not in self.store.of(node.args[0]):
            return NOTHING
        self.supers[id(node)] = self._selves(scope, current)
        return frozenset(  # what the bases inherit themselves is found through them
            Inst(base, id(node)) if isinstance(base, Cls) else Made(full_name(base), id(node))
            for given in current.node.bases  # type: ignore[attr-defined]
            for base in self.store.looked_up(given)
        )

    def _selves(self, scope: Scope, cls: Scope) -> Values:
        """The objects whose method of a class a place stands in: ``super()`` is these, looked at as one of a base."""
        while scope.parent is not cls and scope.parent is not None:
            scope = scope.parent
        if not scope.params:
            return NOTHING
        key = scope.index, scope.params[0]
        self.store.read(key)
        found = set().union(*self.store.definitions.get(key, {}).values())
        return frozenset(it for it in found if isinstance(it, Inst))

    def set_by_name(self, owner: Inst | Cls, name: str) -> Values:
        """What ``setattr`` with a name like this one gives an object, where nothing else does.

        A name of which nothing is known is none that the class assigns itself, to whatever.
        """
        found: set[Value] = set()
        bases = self.classes.bases(owner.cls if isinstance(owner, Inst) else owner)
        family = [*bases, *self.classes.derived(owner.cls if isinstance(owner, Inst) else owner)]
        is_assigned = any(name in self._assigned(it) for it in family if isinstance(it, Cls))
        for base in bases:
            for text, entries in self.store.fields.get(Names(base), {}).items():
                if matches([text], name) and not (is_assigned and text == ANY):
                    held = set[Value]().union(*entries.values())
                    found |= held if text != ANY or len(held) <= MOST else NOTHING
        return frozenset(found)

    def _assigned(self, cls: Cls) -> frozenset[str]:
        """The attributes that a class gives its objects in statements; None is the place of something to come."""
        if cls not in self._known_assigned:
            nodes = ast.walk(self.tree.scopes[cls.scope].node)
            held = [it for it in nodes if isinstance(it, ast.Attribute) and isinstance(it.ctx, ast.Store)]
            self._known_assigned[cls] = frozenset(
                it.attr
                for it in held
                if isinstance(it.value, ast.Name)
                and it.value.id in self.tree.scope_of[id(it)].params[:1]
                and not _is_none(getattr(self.tree.parents[id(it)], "value", it))
            )
        return self._known_assigned[cls]

    def methods(self, owner: Inst, name: str, node: ast.AST) -> set[int]:
        """The functions behind an object's method, at a place."""
        return {value.func.scope for value in self.member(owner, name, node) if isinstance(value, Bound)}

    def fields(self, owner: Inst) -> Iterator[tuple[str, Values]]:
        """The attributes of an object, with their values."""
        for base in self.classes.bases(owner.cls):
            for name, entries in self.store.fields.get(base, {}).items():
                yield name, self.store.ordered(frozenset().union(*entries.values()))


def _is_none(value: ast.AST | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)
