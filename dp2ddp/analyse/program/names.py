"""What a name is: by scopes, imports and star imports, and the assignments that reach it."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from dp2ddp.analyse.api.naming import DATA_NAMES, canonical
from dp2ddp.analyse.program.definitions import Definitions, Reaching
from dp2ddp.analyse.program.moments import WhenRun
from dp2ddp.analyse.program.scopes import Scope, Tree
from dp2ddp.analyse.program.special import Special
from dp2ddp.analyse.program.store import Store
from dp2ddp.analyse.program.values import NOTHING, Ext, Inst, Mod, Value, Values
from dp2ddp.source import Project


@dataclass
class Lookup:
    """Names, looked up as Python does."""

    project: Project
    tree: Tree
    store: Store
    reaching: Reaching
    when_run: WhenRun
    special: Special
    _in_order: dict[tuple[int, str], Definitions] = field(default_factory=dict)
    _kept: dict[tuple[int, int, str], tuple[int, list[int], list[tuple[int, ast.expr]]]] = field(
        default_factory=dict
    )
    _found: dict[int, list[ast.AST]] = field(default_factory=dict)

    def import_(self, node: ast.Import, alias: ast.alias, scope: Scope) -> None:
        whole = alias.name if alias.asname else alias.name.partition(".")[0]
        found = self.project.resolve(scope.file.path, whole)
        bound = alias.asname or whole
        outside = self.project.runtime(scope.file.path, whole) or canonical(whole)
        self.store.define(scope, bound, alias, [Mod(found) if found else Ext(outside)])

    def import_from(self, node: ast.ImportFrom, alias: ast.alias, scope: Scope) -> None:
        path = scope.file.path
        found = self.project.resolve(path, node.module or "", node.level)
        copied = self.project.runtime(path, node.module or "", node.level)
        if alias.name == "*":
            source: str | Path | None = found or copied or node.module
            if source and source not in scope.stars:
                scope.stars.append(source)
                self.store.changed = True
                self.store.wrote(("*", scope.index))
            return
        full = f"{node.module}.{alias.name}" if node.module else alias.name
        submodule = self.project.resolve(path, full, node.level)
        values: set[Value] = set()
        if found:
            values |= self.of_module(found, alias.name)
        if submodule and not values:
            values.add(Mod(submodule))
        copied = f"{copied}.{alias.name}" if copied else self.project.runtime(path, full, node.level)
        if copied:
            values.add(Ext(copied))
        elif not found and not submodule and not node.level:
            values.add(Ext(canonical(full)))
        self.store.define(scope, alias.asname or alias.name, alias, values)

    def of_module(self, path: Path, name: str, seen: frozenset[Path] = frozenset()) -> Values:
        """The values of a module's name, star imports included."""
        module = self.tree.modules.get(path)
        if module is None or path in seen:
            return NOTHING
        self.store.read((module.index, name))
        if (module.index, name) in self.store.definitions:
            return frozenset().union(*self.store.definitions[module.index, name].values())
        return self.starred(module, name, seen | {path})

    def starred(self, module: Scope, name: str, seen: frozenset[Path]) -> Values:
        self.store.read(("*", module.index))
        for source in reversed(module.stars):
            if isinstance(source, Path):
                if values := self.of_module(source, name, seen):
                    return values
        outside = [source for source in module.stars if isinstance(source, str)]
        if hasattr(builtins, name):
            return NOTHING
        if "torch.utils.data" in outside and len(outside) > 1:
            outside = [source for source in outside if (source == "torch.utils.data") == (name in DATA_NAMES)]
        return frozenset(Ext(canonical(f"{source}.{name}")) for source in outside)

    def name(self, node: ast.Name, scope: Scope) -> Values:
        """What a name may be at its use."""
        name, store = node.id, self.store
        owner: Scope | None = self.tree.owner(scope, name)
        direct = owner
        while owner is not None:
            key = owner.index, name
            store.read(key)
            if name in owner.names or key in store.definitions:
                if not (owner.is_class and owner is not direct):
                    return self._reaching(owner, name, node, same=owner is self.tree.scope_of.get(id(node)))
            owner = owner.parent
        module = self.tree.modules[scope.file.path]
        if values := self.starred(module, name, frozenset([module.file.path])):
            return values
        return frozenset([Ext(f"builtins.{name}")]) if hasattr(builtins, name) else NOTHING

    def _reaching(self, owner: Scope, name: str, use: ast.AST, same: bool) -> Values:
        definitions = self.store.definitions.get((owner.index, name), {})
        known = self._sorted((owner.index, name))
        around = self.tree.scope_of.get(id(use))
        place = id(use) if same else -1 - around.index if around is not None else 0
        key = place, owner.index, name
        size, kept, failed = self._kept.get(key, (0, [], []))
        if size != len(definitions):
            self.reaching.undecided = False
            found = self.reaching.reached(known, use) if same else self._from_outside(owner, known, use)
            kept = [id(it) for it in found]
            failed = list(self._failed(name, found, use)) if same and len(found) > 1 else []
            if not self.reaching.undecided:  # else more may be known in the next round
                self._kept[key] = len(definitions), kept, failed
        if not failed:
            return frozenset().union(*(definitions[it] for it in kept))
        values = {it: definitions[it] for it in kept}
        for it, test in failed:
            values[it] = self.special.otherwise(test, values[it])
        return frozenset().union(*values.values())

    def _failed(self, name: str, found: list[ast.AST], use: ast.AST) -> Iterator[tuple[int, ast.expr]]:
        """The assignments of a name that come to its use only where a test of the name has failed, with the test.

        As where a model is unwrapped: ``if isinstance(model, nn.DataParallel): model = model.module``.
        """
        order = self.tree.order
        for node in found:
            holder = self.tree.holder(node)
            choice = self.tree.parent(holder)
            if not isinstance(choice, ast.If) or choice.orelse or holder not in choice.body:
                continue
            match choice.test:
                case ast.Call(args=[ast.Name(id=asked), *_]) if asked == name and self._comes_by(choice, use):
                    begin, last = order[id(choice)], order[id(use)]
                    others = (it for it in found if not begin < order[id(it)] < last)
                    yield from ((id(it), choice.test) for it in others)

    def _comes_by(self, choice: ast.If, use: ast.AST) -> bool:
        """Whether a place is behind a condition, in its block."""
        outer = {id(it) for it in (use, *self.tree.ancestors(use))}
        within = any(id(it) in outer for it in self.tree.block(choice))
        return within and id(choice) not in outer and self.tree.order[id(choice)] < self.tree.order[id(use)]

    def _from_outside(self, owner: Scope, known: Definitions, use: ast.AST) -> list[ast.AST]:
        """What gives a name of a scope its value for a use that stands in a function or class of it.

        Of a module's, that is what reaches the calls of the function; else what is left when the scope has run.
        """
        surviving = self.reaching.surviving(known.nodes)
        own = [it for it in known.nodes if self.tree.scope_of.get(id(it)) is owner]
        if not owner.is_module or len(own) < 2:
            return surviving
        moments = self.when_run.moments(use)
        found = {id(it) for place in moments.places for it in self.reaching.among(own, place)}
        if moments.later or not found:
            found |= {id(it) for it in surviving}
        kept = {id(it) for it in surviving} - {id(it) for it in own} | found
        return [it for it in known.nodes if id(it) in kept]

    def _sorted(self, key: tuple[int, str]) -> Definitions:
        """What gives a name of a scope its values, in source order."""
        definitions = self.store.definitions.get(key, {})
        known = self._in_order.setdefault(key, Definitions())
        if known.count < len(definitions):
            self.reaching.add(
                known, (self.store.definition_nodes[it] for it in islice(definitions, known.count, None))
            )
        return known

    def definitions(self, name: ast.AST) -> list[ast.AST]:
        """The statements whose assignment to a name (or ``self.x``) can reach its use."""
        if id(name) not in self.tree.nodes:
            return self._defining(name)
        if id(name) not in self._found:
            self._found[id(name)] = self._defining(name)
        return list(self._found[id(name)])

    def _defining(self, name: ast.AST) -> list[ast.AST]:
        if isinstance(name, ast.Name):
            scope: Scope | None = self.tree.owner(self.tree.scope(name), name.id)
            while scope is not None:
                entries = self.store.definitions.get((scope.index, name.id))
                parameter = scope.signature.parameter(
                    name.id
                )  # which no call may give anything that is known
                unknown = [] if parameter is None else [parameter]
                if entries:
                    if scope is self.tree.scope(name):
                        return self.reaching.reached(self._sorted((scope.index, name.id)), name) or unknown
                    return [self.store.definition_nodes[key] for key in entries]
                if unknown:
                    return unknown
                scope = scope.parent
        if isinstance(name, ast.Attribute):
            found = []
            for owner in self.store.values(name.value):
                key = owner.cls if isinstance(owner, Inst) else owner
                found += [self.store.definition_nodes[entry] for entry in self.store.field(key, name.attr)]
            # An earlier call may have set it, where the method that asks for it does not always do so before.
            near = [node for node in found if self.tree.scope_of.get(id(node)) is self.tree.scope(name)]
            reached, around = self.reaching.among(near, name), self.reaching.around(
                [name, *self.tree.ancestors(name)]
            )
            return (
                reached if any(self.reaching.hides(self.tree.holder(it), around) for it in reached) else found
            )
        return []

    def variable(self, name: ast.Name) -> list[ast.AST]:
        """All that gives a name its value, wherever it stands: other functions may say ``global`` or ``nonlocal``."""
        scope: Scope | None = self.tree.owner(self.tree.scope(name), name.id)
        while scope is not None:
            if entries := self.store.definitions.get((scope.index, name.id)):
                return [self.store.definition_nodes[key] for key in entries]
            scope = scope.parent
        return []

    def exported(self, path: Path, name: str) -> list[ast.AST]:
        """What gives a file's name its values when it is imported."""
        module = self.tree.modules.get(path)
        entries = self.store.definitions.get((module.index, name), {}) if module is not None else {}
        return [self.store.definition_nodes[key] for key in entries]

    def parameter_values(self, scope: Scope, name: str) -> Values:
        """What a parameter may be given."""
        return self.store.ordered(
            frozenset().union(*self.store.definitions.get((scope.index, name), {}).values())
        )

    def module_names(self, module: Scope) -> Iterator[tuple[str, Values]]:
        """The names of a module, with their values."""
        for (index, name), entries in self.store.definitions.items():
            if index == module.index:
                yield name, self.store.ordered(frozenset().union(*entries.values()))
