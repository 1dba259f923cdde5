"""What is found by a text: ``getattr``, ``setattr``, ``vars``, ``globals``, ``eval``, imports by name."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from pathlib import Path

from dp2ddp.analyse.api.naming import canonical
from dp2ddp.analyse.api.python import IMPORTING, RUNS_MODULES
from dp2ddp.analyse.program.appending import LAST
from dp2ddp.analyse.program.attributes import Attributes
from dp2ddp.analyse.program.calling import Calling
from dp2ddp.analyse.program.calls import Arguments
from dp2ddp.analyse.program.classes import Classes
from dp2ddp.analyse.program.containers import Containers
from dp2ddp.analyse.program.scopes import Scope, Tree
from dp2ddp.analyse.program.special import Special
from dp2ddp.analyse.program.store import Store
from dp2ddp.analyse.program.values import (
    NOTHING,
    OWN,
    Cls,
    Coll,
    Ext,
    Func,
    Inst,
    Made,
    Mod,
    Names,
    Value,
    Values,
)
from dp2ddp.source import Import, Project
from dp2ddp.texts import ANY, matches

UNKNOWN = frozenset([ANY])
# Of how many things a name may be asked of which nothing is known, before what that gives is unknown: what has got it
# may be asked in the same way, in a loop, until it may be anything in the project.
MOST = 24


@dataclass
class ByText:
    """Members whose names are strings that the program makes: all that match what is known of them."""

    project: Project
    tree: Tree
    store: Store
    classes: Classes
    containers: Containers
    attributes: Attributes
    calling: Calling
    special: Special
    _known_texts: dict[int, frozenset[str]] = field(default_factory=dict)

    def texts(self, node: ast.expr) -> frozenset[str]:
        """The strings that an expression may be, with ``*`` for what is not known of them."""
        if id(node) not in self._known_texts:
            self._known_texts[id(node)] = self.tree.file_of[id(node)].texts.of(node)
        return self._known_texts[id(node)]

    def members(self, owners: Values, texts: frozenset[str], node: ast.AST) -> Values:
        """What owners have by a name of which not all is known: what is the project's own, if nothing is known."""
        found: set[Value] = set()
        exact = [text for text in texts if text.isidentifier()]
        for owner in owners:
            for name in exact:
                found |= self._member(owner, name, node)
            for name in self.member_names(owner) if len(exact) < len(texts) else ():
                if matches(texts, name) and not (name.startswith("__") and name.endswith("__")):
                    found |= self._member(owner, name, node)
            for holder in self.classes.holders(owner):
                for entries in self.store.fields.get(Names(holder), {}).values():
                    found |= set().union(*entries.values())
            if isinstance(owner, Mod) and texts != UNKNOWN and owner.path.name == "__init__.py":
                inner = (self.project.imported(owner.path, Import(text, 1)) for text in sorted(texts))
                found |= {Mod(path) for paths in inner for path in paths}
        if texts == UNKNOWN:  # nothing calls the function that it stands in by a name which may be any
            inside = {around.index for around in self.tree.enclosing(node)}
            here = {it for it in found if isinstance(it, Func) and it.scope in inside}
            found = {it for it in found if isinstance(it, OWN)} - here
        return frozenset(found)

    def _member(self, owner: Value, name: str, node: ast.AST) -> Values:
        """What an owner has under a name; of a function, what its own variable of that name may be."""
        found = self.attributes.attribute(owner, name, node)
        if isinstance(owner, Func):
            self.store.read((owner.scope, name))
            found = found.union(*self.store.definitions.get((owner.scope, name), {}).values())
        return found

    def member_names(self, owner: Value, seen: frozenset[Path] = frozenset()) -> set[str]:
        match owner:
            case Mod() if owner.path in self.tree.modules and owner.path not in seen:
                module = self.tree.modules[owner.path]
                starred = (it for it in module.stars if isinstance(it, Path))
                inherited = (self.member_names(Mod(it), seen | {owner.path}) for it in starred)
                return module.names.union(*inherited)
            case Func():
                return self.tree.scopes[owner.scope].names
            case Inst() | Cls():
                cls = owner.cls if isinstance(owner, Inst) else owner
                family = [it for it in self.classes.bases(cls) if isinstance(it, Cls)]
                own = (self.tree.scopes[it.scope].names for it in family)
                fields = (
                    {name for name in self.store.fields.get(it, {}) if name.isidentifier()} for it in family
                )
                return set().union(*own, *fields)
            case Coll():
                return {name for name in self.store.fields.get(owner, {}) if name.isidentifier()}
        return set()

    def namespace(self, name: str, node: ast.Call, scope: Scope) -> Values:
        """``globals()``, ``locals()``, ``vars(x)``."""
        if node.args:
            return frozenset(
                it for owner in self.store.values(node.args[0]) for it in self._dict_of(owner, node)
            )
        at = scope if name != "builtins.globals" and not scope.is_module else None
        owner = Func(at.index) if at is not None else Mod(scope.file.path)
        return frozenset([Names(owner)])

    def _dict_of(self, owner: Value, node: ast.Call) -> Values:
        if isinstance(owner, Mod | Cls | Inst):
            return frozenset([Names(owner)])
        return frozenset([owner]) if isinstance(owner, Coll) else frozenset([Made("builtins.vars", id(node))])

    def evaluated(self, node: ast.Call, scope: Scope) -> Values:
        """What ``eval`` makes of a name, or of a call: ``eval(f"models.{name}")``, ``eval(name + "()")``."""
        found: set[Value] = set()
        for text in self.texts(node.args[0]):
            path, called, _ = text.partition("(")
            if text == ANY and not self._is_called(node):
                continue
            first, *others = path.split(".")
            values = self._visible(first, node, scope)
            for name in others:
                values = self.members(values, frozenset([name]), node)
            if called:
                self.store.implicit[id(node)] |= set().union(
                    *(self.calling.functions(it, node, True) for it in values)
                )
                values = frozenset().union(
                    *(self.calling.apply(it, Arguments(), node, False) for it in values)
                )
            found |= values
        return frozenset(found)

    def _is_called(self, node: ast.expr) -> bool:
        """Whether what an expression gives is called, at once or by the name that it is given."""
        parent = self.tree.parents[id(node)]
        names = [ast.unparse(it) for it in parent.targets] if isinstance(parent, ast.Assign) else []
        calls = (
            (it for it in ast.walk(self.tree.scope_of[id(node)].node) if isinstance(it, ast.Call))
            if names
            else ()
        )
        return getattr(parent, "func", None) is node or any(ast.unparse(it.func) in names for it in calls)

    def _visible(self, text: str, node: ast.AST, scope: Scope) -> Values:
        """What names of a place may be that match a text."""
        owners: list[Value] = []
        around: Scope | None = scope
        while around is not None:
            if not around.is_class:
                owners.append(Mod(around.file.path) if around.is_module else Func(around.index))
            around = around.parent
        return self.members(frozenset(owners), frozenset([text]), node)

    def modules(self, node: ast.Call, scope: Scope) -> Values:
        """The modules that a call may import, by name or path: the project's, else what is known of others' names."""
        path = scope.file.path
        items = scope.file.chosen_imports.get(id(node), ())
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        named = len(node.args) > 3 or any(it.arg == "fromlist" for it in node.keywords)
        if called == "__import__" and not named:
            items = tuple(replace(it, module=it.module.partition(".")[0]) for it in items)
        found = {Mod(found) for item in items for found in self.project.imported(path, item)}
        if called in RUNS_MODULES:
            return frozenset(Names(it) for it in found)
        return frozenset(found) | self._outside_modules(node, whole=called != "__import__" or named)

    def _outside_modules(self, node: ast.Call, whole: bool) -> Values:
        """Modules outside the project that a call imports by a name that is known; if not ``whole``, their packages."""
        name = self.store.calls[id(node)].argument("name", 0)
        if name is None or not self.store.calls[id(node)].names & IMPORTING:
            return NOTHING
        path = self.tree.file_of[id(node)].path
        known = [it for it in self.texts(name) if all(part.isidentifier() for part in it.split("."))]
        outside = [it for it in known if not self.project.imported(path, Import(it))]
        return frozenset(Ext(canonical(it if whole else it.partition(".")[0])) for it in outside)

    def executed(self, node: ast.Call, scope: Scope) -> None:
        """Define what the import statements define that ``exec`` is given."""
        for item in scope.file.chosen_imports[id(node)]:
            found = self.project.imported(scope.file.path, item)
            if item.path:  # the text of a file, which runs here
                self.store.implicit[id(node)] |= {
                    self.tree.modules[it].index for it in found if it in self.tree.modules
                }
                continue
            modules = frozenset(map(Mod, found))
            for name in item.names or sorted(set().union(*map(self.member_names, modules))):
                self.store.define(scope, name, node, self.members(modules, frozenset([name]), node))

    def getattr(self, node: ast.Call, scope: Scope) -> Values:
        owners = self.store.values(node.args[0])
        texts = self.texts(node.args[1])
        default = self.store.values(node.args[2]) if len(node.args) > 2 else NOTHING
        found = self.special.otherwise(node, default)
        for text in texts:
            if ANY not in text and "\0" not in text:
                found = found.union(*(self.attributes.attribute(owner, text, node) for owner in owners))
            elif text != ANY or len(owners) <= MOST:
                found |= self.members(owners, frozenset([text]), node)
            else:
                return NOTHING  # not even that it is the default
        return found

    def setattr(self, node: ast.Call, scope: Scope) -> None:
        values = self.store.values(node.args[2])
        for text in self.texts(node.args[1]):
            for owner in self.store.values(node.args[0]):
                if ANY in text or "\0" in text:
                    self.store.set_field(Names(owner), text, node, values)
                else:
                    self.store.set_field(owner, text, node, values)

    def module_named(self, name: ast.expr, scope: Scope) -> Values:
        """``sys.modules[__name__]``."""
        if isinstance(name, ast.Name) and name.id == "__name__":
            return frozenset([Mod(scope.file.path)])
        path = self.project.resolve(scope.file.path, name.value) if _is_text(name) else None  # type: ignore[attr-defined]
        return frozenset([Mod(path)]) if path else NOTHING

    def looked_up(self, owners: Values, key: ast.expr, node: ast.AST) -> Values:
        """What owners hold under a key."""
        spaces = frozenset(it.owner for it in owners if isinstance(it, Names))
        named = self.members(spaces, self.texts(key), node) if spaces else NOTHING
        others = owners - {Names(it) for it in spaces} if spaces else owners
        if isinstance(key, ast.Slice) and (parts := frozenset(it for it in others if isinstance(it, Coll))):
            named |= self.containers.collected(node, self.containers.elements(parts))
            others -= parts
        if isinstance(key, ast.Constant):
            return named | self.containers.item(others, str(key.value))
        if isinstance(key, ast.UnaryOp) and ast.unparse(key) == LAST:
            return named | self.containers.item(others, LAST)
        return named | self.containers.elements(others)

    def held_by(self, owners: Values, node: ast.AST) -> Values:
        """What lists and dictionaries hold, under whatever key."""
        spaces = frozenset(it.owner for it in owners if isinstance(it, Names))
        return self.containers.elements(owners) | (self.members(spaces, UNKNOWN, node) if spaces else NOTHING)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
