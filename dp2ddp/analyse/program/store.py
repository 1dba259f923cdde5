"""What linking has found out so far, and who has read what of it: statements are run again when that grows."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.scopes import Scope, Tree
from dp2ddp.analyse.program.values import (
    NOTHING,
    Bound,
    Const,
    Ext,
    Func,
    Inst,
    Mod,
    Names,
    Ordered,
    Value,
    Values,
    place,
)

NO_FIELDS: dict[Any, Any] = {}
# What is never given a field.
NO_HOLDERS = Const | Ext | Func | Bound


class Store:
    """The values of expressions, names, attributes and returns. They only grow, until ``settle`` has nothing to run."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.definitions: dict[tuple[int, str], dict[int, set[Value]]] = defaultdict(dict)
        """The values of a name of a scope, by the node that gives them."""
        self.definition_nodes: dict[int, ast.AST] = {}
        self.fields: dict[Value, dict[str, dict[int, set[Value]]]] = defaultdict(dict)
        """The values of attributes, and of elements as ``[key]``, by the node that gives them."""
        self.returns: dict[int, set[Value]] = defaultdict(set)
        self.known: dict[int, Values] = {}
        """The values of expressions."""
        self.calls: dict[int, Call] = {}
        self.implicit: dict[int, set[int]] = defaultdict(set)
        """The functions that other nodes than calls enter."""
        self.unseen: set[int] = set()
        """The functions that something else than a call calls."""
        self.changed = False
        self._running: int | None = None
        self._readers: dict[object, set[int]] = defaultdict(set)
        """The statements that have read something: a name's definitions, an attribute, what is returned."""
        self._stale: set[int] = set()
        """The statements that have read what has changed since."""
        self._places: dict[Value, tuple[object, ...]] = {}

    def settle(self, execute: Callable[[ast.AST, Scope], None]) -> None:
        """Run every statement again and again until nothing new comes of it: first those that read what has changed.

        ``execute`` runs a statement of a scope, without the statements that stand in it.
        """
        statements = [(it, scope) for scope in self.tree.scopes for it in self.tree.statements(scope)]

        def run(index: int) -> None:
            self._stale.discard(index)
            self._running = index
            execute(*statements[index])

        for _ in range(50):
            self.changed = False
            for index in range(len(statements)):
                run(index)
            if not self.changed:
                break
            # What is not seen after so many runs is seen in the next round, or not at all.
            budget = 100 * len(statements)
            while self._stale and budget > 0:
                for index in sorted(
                    self._stale
                ):  # in turn, so that what grows step by step is read after several
                    budget -= 1
                    if index in self._stale:
                        run(index)
        self._running = None
        self._readers.clear()
        self._stale.clear()
        for key, call in self.calls.items():
            if len(call.callees) > 1:
                self.calls[key] = Call(call.node, call.scope, self.ordered(call.callees))

    def read(self, key: object) -> None:
        """Note what the statement that is run depends on."""
        if self._running is not None:
            self._readers[key].add(self._running)

    def wrote(self, key: object) -> None:
        self._stale |= self._readers.get(key, NOTHING)  # type: ignore[arg-type]

    def grow(self, target: set[Value], values: Iterable[Value], key: object) -> None:
        before = len(target)
        target.update(values)
        if len(target) != before:
            self.changed = True
            self.wrote(key)

    def define(self, scope: Scope, name: str, node: ast.AST, values: Iterable[Value]) -> None:
        self.give((self.tree.owner(scope, name).index, name), node, values)

    def give(self, key: tuple[int, str], node: ast.AST, values: Iterable[Value]) -> None:
        """Have a node give a name of a scope some values."""
        entries = self.definitions[key]
        if id(node) not in entries:
            self.definition_nodes[id(node)] = node
            entries[id(node)] = set()
            self.wrote(key)
        self.grow(entries[id(node)], values, key)

    def set_field(self, owner: Value, name: str, node: ast.AST, values: Iterable[Value]) -> None:
        if isinstance(owner, Inst):
            owner = owner.cls  # one set of fields for all objects of a class
        if isinstance(owner, Names):
            inner = owner.owner.cls if isinstance(owner.owner, Inst) else owner.owner
            text = name.removeprefix("[").removesuffix("]")
            owner, name = (inner, text) if text.isidentifier() else (Names(inner), text)
        if isinstance(owner, Mod):
            if owner.path in self.tree.modules:  # else it has nothing to do with what is linked
                self.give((self.tree.modules[owner.path].index, name), node, values)
        elif not isinstance(owner, NO_HOLDERS):
            self.definition_nodes[id(node)] = node
            entries = self.fields[owner].setdefault(name, {})
            before = len(entries), len(entries.get(id(node), ()))
            self.grow(entries.setdefault(id(node), set()), values, (owner, name))
            if before != (len(entries), len(entries[id(node)])):
                self.wrote((owner, name))
                self.wrote((owner, "[") if name.startswith("[") else None)

    def field(self, owner: Value, name: str) -> dict[int, set[Value]]:
        """What gives an owner a field its values, by the node that does."""
        held = self.held(owner, name)
        return held.get(name, NO_FIELDS)

    def held(self, owner: Value, name: str) -> dict[str, dict[int, set[Value]]]:
        """The fields of an owner, asked for one of them; for any of its elements, with ``[`` as the name."""
        held = self.fields.get(owner)
        if held is None and isinstance(owner, NO_HOLDERS):
            return NO_FIELDS
        self.read((owner, name))
        return NO_FIELDS if held is None else held

    def values(self, node: ast.AST) -> Values:
        """What an expression may be."""
        found = self.of(node)
        if len(found) > 1 and not isinstance(found, Ordered):
            found = self.known[id(node)] = self.ordered(found)
        return found

    def ordered(self, values: Iterable[Value]) -> Values:
        """Values in an order that is the same in each run."""
        distinct = [*values] if isinstance(values, Ordered) else sorted({*values}, key=self._place)
        return Ordered.of(distinct)

    def _place(self, value: Value) -> tuple[object, ...]:
        """What a value is sorted by: the same ones are put in order whenever there are more."""
        found = self._places.get(value)
        if found is None:
            found = self._places[value] = place(value, self.tree.order)
        return found

    def of(self, node: ast.AST) -> Values:
        """What an expression may be, in any order: for what runs while linking."""
        return self.known.get(id(node), NOTHING)

    def looked_up(self, node: ast.AST) -> Values:
        """The same, of an expression in another statement than the one that is run: that one depends on it."""
        self.read(id(node))
        return self.of(node)

    def call(self, node: ast.AST) -> Call | None:
        """What is known of a call."""
        return self.calls.get(id(node))

    @cached_property
    def in_order(self) -> list[Call]:
        """Every call of the project, in source order; asked when all is linked."""
        return sorted(self.calls.values(), key=lambda call: self.tree.order[id(call.node)])
