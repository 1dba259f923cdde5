"""The classes of the project: their bases, what they inherit, and what is special about some."""

from __future__ import annotations

import ast
from bisect import insort
from dataclasses import dataclass, field

from dp2ddp.analyse.api.python import DICTIONARIES, ENUMERATIONS, LISTS, MODULE_LISTS, PROPERTIES, RECORDS
from dp2ddp.analyse.program.scopes import Tree
from dp2ddp.analyse.program.store import Store
from dp2ddp.analyse.program.values import (
    NOTHING,
    Cls,
    Coll,
    Ext,
    Func,
    Inst,
    Made,
    Names,
    Value,
    Values,
    full_name,
)


@dataclass
class Classes:
    """Families of classes, as far as bases are known."""

    tree: Tree
    store: Store
    _families: dict[Cls, list[Value]] = field(default_factory=dict)
    _subclasses: dict[Value, list[Cls]] = field(default_factory=dict)

    def grown(self, cls: Cls) -> None:
        """More is known of the bases of a class, and so of those that derive from it."""
        for it in (cls, *self._subclasses.get(cls, ())):
            before = self._families.get(it, [it])
            self._families[it] = family = self._family(it)
            self.store.wrote(("bases", it))
            for base in family:
                if base not in before:
                    insort(self._subclasses.setdefault(base, []), it, key=lambda other: other.scope)
                    self.store.wrote(("derived", base))

    def bases(self, cls: Cls) -> list[Value]:
        """A class of the project and all its bases, in the order in which attributes are looked up, roughly."""
        self.store.read(("bases", cls))
        return self._families.get(cls) or [cls]

    def _family(self, cls: Cls) -> list[Value]:
        """The same, found anew."""
        found: list[Value] = [cls]
        for value in found:
            if isinstance(value, Cls):
                node = self.tree.scopes[value.scope].node
                for base in node.bases:  # type: ignore[attr-defined]
                    found += [entry for entry in self.store.values(base) if entry not in found]
        return found

    def derives(self, value: Value, name: str) -> bool:
        """Whether an object's class derives from a class outside the project, by its full name."""
        if isinstance(value, Inst):
            return any(isinstance(base, Ext) and base.name == name for base in self.bases(value.cls))
        return False

    def derived(self, cls: Cls) -> list[Cls]:
        """Subclasses whose fields a method of the base may read."""
        self.store.read(("derived", cls))
        return self._subclasses.get(cls, [])

    def inherited(self, cls: Cls, name: str) -> Values:
        """What the project gives a class under a name: its own, or that of the first base that has one."""
        for base in self.bases(cls):
            if isinstance(base, Cls):
                self.store.read((base.scope, name))
            if isinstance(base, Cls) and (base.scope, name) in self.store.definitions:
                return frozenset().union(*self.store.definitions[base.scope, name].values())
        return NOTHING

    def own(self, cls: Cls, name: str) -> list[Func]:
        """The functions that a class itself defines by a name."""
        found = self.store.definitions.get((cls.scope, name), {}).values()
        return [it for values in found for it in values if isinstance(it, Func)]

    def enumerated(self, cls: Cls) -> Values:
        """The values of an enumeration."""
        found: set[Value] = set()
        for base in self.bases(cls):
            for name in self.tree.scopes[base.scope].names if isinstance(base, Cls) else ():
                found.update(*self.store.definitions.get((base.scope, name), {}).values())
        return frozenset(found)

    def recorded(self, cls: Cls) -> list[str]:
        """The fields of a class whose constructor is made of them, in their order."""
        found: dict[str, None] = {}
        for base in reversed(self.bases(cls)):
            node = self.tree.scopes[base.scope].node if isinstance(base, Cls) else None
            marks = [it for mark in getattr(node, "decorator_list", ()) for it in self.marks(mark)]
            outside = self.bases(base)[1:] if isinstance(base, Cls) else []
            if isinstance(node, ast.ClassDef) and any(full_name(it) in RECORDS for it in (*marks, *outside)):
                fields = (it.target for it in node.body if isinstance(it, ast.AnnAssign))
                found |= dict.fromkeys(it.id for it in fields if isinstance(it, ast.Name))
        return list(found)

    def marks(self, decorator: ast.expr) -> Values:
        """What a decorator is, without the arguments that it is given."""
        return self.store.values(decorator.func if isinstance(decorator, ast.Call) else decorator)

    def is_static(self, function: Func) -> bool:
        """Whether a method is given no object."""
        marks = getattr(self.tree.scopes[function.scope].node, "decorator_list", ())
        return any(isinstance(it, ast.Name) and it.id == "staticmethod" for it in marks)

    def is_property(self, function: Func) -> bool:
        """Whether a function is called where it is asked for as an attribute."""
        marks = getattr(self.tree.scopes[function.scope].node, "decorator_list", ())
        return any(full_name(it) in PROPERTIES for mark in marks for it in self.store.values(mark))

    def is_table(self, value: Value) -> bool:
        """Whether a value is a list or dictionary whose entries are known."""
        if isinstance(value, Inst):
            return any(
                isinstance(it, Ext) and it.name in DICTIONARIES | LISTS for it in self.bases(value.cls)
            )
        return isinstance(value, Coll | Names) or (
            isinstance(value, Made) and value.name in DICTIONARIES | LISTS | MODULE_LISTS
        )

    def holders(self, value: Value) -> list[Value]:
        """Whose fields hold the elements of a value."""
        return self.bases(value.cls) if isinstance(value, Inst) else [value]


def is_enumeration(base: Value) -> bool:
    """Whether a base makes a class an enumeration."""
    return isinstance(base, Ext) and base.name in ENUMERATIONS
