"""What ``owner.name`` is, whatever the owner is."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property

from dp2ddp.analyse.api.iteration import KEPT_ARGUMENTS
from dp2ddp.analyse.api.naming import canonical
from dp2ddp.analyse.api.options import PARSES
from dp2ddp.analyse.program.calling import Calling
from dp2ddp.analyse.program.calls import Arguments
from dp2ddp.analyse.program.classes import Classes, is_enumeration
from dp2ddp.analyse.program.commands import Commands
from dp2ddp.analyse.program.containers import Containers
from dp2ddp.analyse.program.members import Members
from dp2ddp.analyse.program.names import Lookup
from dp2ddp.analyse.program.outside import Outside
from dp2ddp.analyse.program.special import Special
from dp2ddp.analyse.program.store import Store
from dp2ddp.analyse.program.values import (
    NOTHING,
    Bound,
    Cls,
    Coll,
    Ext,
    Func,
    Inst,
    Made,
    Member,
    Mod,
    Names,
    Value,
    Values,
)
from dp2ddp.source import Project


@dataclass
class Attributes:
    """Attributes of anything. A property runs, and is what it returns."""

    project: Project
    store: Store
    classes: Classes
    names: Lookup
    members: Members
    containers: Containers
    outside: Outside
    calling: Calling
    commands: Commands
    special: Special
    _getters: dict[int, set[Bound]] = field(default_factory=lambda: defaultdict(set))

    def attribute(self, owner: Value, name: str, node: ast.AST) -> Values:
        """What an owner has under a name, asked at a node."""
        match owner:
            case Ext():
                return frozenset([Ext(canonical(f"{owner.name}.{name}"))])
            case Mod() | Cls() | Inst() if name == "__dict__":
                return frozenset([Names(owner)])
            case Mod():
                if values := self.names.of_module(owner.path, name):
                    return values
                inner = (
                    self.project.resolve(owner.path, name, 1) if owner.path.name == "__init__.py" else None
                )
                if inner is None and name == "load_module":  # of a loader, which stands for what it loads
                    return frozenset([Member(owner, name)])
                return frozenset([Mod(inner)]) if inner else NOTHING
            case Cls() if name == "__subclasses__":
                return frozenset([Member(owner, name)])
            case Inst() if name == "value" and any(map(is_enumeration, self.classes.bases(owner.cls))):
                return self.classes.enumerated(owner.cls)
            case Inst() if self.classes.is_table(owner) and (entry := self.containers.entry(owner, name)):
                return entry
            case Inst() | Cls():
                return self._got(self.members.member(owner, name, node), node) or self.members.set_by_name(
                    owner, name
                )
            case Names():
                return frozenset([Member(owner, name)])
            case Func() if owner in self.commands.groups:
                return frozenset([Member(owner, name)])
            case Made() | Member() | Coll():
                special = self.special.attribute(owner, name, node) if isinstance(owner, Made) else None
                if special is not None:
                    return special
                stored: set[Value] = set().union(*self.store.field(owner, name).values())
                if isinstance(owner, Coll) and (entry := self.store.field(owner, f"[{name}]")):
                    return frozenset(stored.union(*entry.values()))  # `options.name` of a dictionary
                if stored and isinstance(owner, Made) and name in KEPT_ARGUMENTS.get(owner.name, ()):
                    return frozenset(stored)
                if isinstance(owner, Made) and owner.name in PARSES and name in self._only_stored:
                    return frozenset(stored)
                part = self.outside.part(owner, name)
                return part.union(stored) if stored else part
        return NOTHING

    @cached_property
    def _only_stored(self) -> frozenset[str]:
        """What files set on other objects than ``self``, by names that no text of theirs has as an option."""
        nodes = [node for file in self.project.files.values() for node in file.nodes]
        texts = {it.value for it in nodes if isinstance(it, ast.Constant) and isinstance(it.value, str)}
        options = {text.lstrip("-").replace("-", "_") for text in texts}
        return frozenset(
            node.attr
            for node in nodes
            if isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and not (isinstance(node.value, ast.Name) and node.value.id == "self")
            and node.attr not in options
        )

    def getters_of(self, node: ast.AST) -> set[Bound]:
        """The properties that an attribute may be."""
        return self._getters.get(id(node), set())

    def _got(self, values: Values, node: ast.AST) -> Values:
        """What an attribute of an object is, where some of its values are properties: what those return."""
        found = set(values)
        for value in values:
            if (
                isinstance(value, Bound)
                and isinstance(value.owner, Inst)
                and self.classes.is_property(value.func)
            ):
                self._getters[id(node)].add(value)
                self.store.implicit[id(node)].add(value.func.scope)
                found = (found - {value}) | self.calling.invoke(value.func, value.owner, Arguments())
        return frozenset(found)
