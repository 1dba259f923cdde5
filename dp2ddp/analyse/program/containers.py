"""What lists, dictionaries and other collections hold, and by which key."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dp2ddp.analyse.api.containers import PLAIN_DICTS
from dp2ddp.analyse.api.handing import FILTERS, ITERATORS, REORDERS
from dp2ddp.analyse.api.python import DICTIONARIES, MAKES_ENTRIES, MODULE_LISTS, NAMED_TUPLE, TABLE_METHODS
from dp2ddp.analyse.api.python import LISTS as LISTS_BY_NAME
from dp2ddp.analyse.program.appending import LAST, Appending
from dp2ddp.analyse.program.calls import Arguments, handed
from dp2ddp.analyse.program.classes import Classes, is_enumeration
from dp2ddp.analyse.program.outside import Outside
from dp2ddp.analyse.program.scopes import Tree
from dp2ddp.analyse.program.store import NO_FIELDS, Store
from dp2ddp.analyse.program.values import NOTHING, Cls, Coll, Ext, Inst, Made, Member, Value, Values, closure
from dp2ddp.texts import ANY

BEGUN_EMPTY = PLAIN_DICTS | LISTS_BY_NAME | MODULE_LISTS
LISTS = ast.List | ast.Tuple | ast.Set | ast.ListComp | ast.SetComp | ast.GeneratorExp


@dataclass
class Containers:
    """Elements of containers: an element is an attribute named ``[key]``, or ``[*]`` where the key is not known."""

    tree: Tree
    store: Store
    classes: Classes
    outside: Outside
    appending: Appending

    def item(self, values: Values, key: str) -> Values:
        """What some values hold under a key."""
        (found,) = self.items(values, [key])
        return found

    def items(self, values: Values, keys: Sequence[str]) -> list[Values]:
        """What some values hold under each of several keys."""
        behind = self._behind(values)
        if any(isinstance(it, Made) and it.name in REORDERS for it in behind):
            return [self.elements(values)] * len(keys)
        held = [it for holder in self._holders(behind) if (it := self.store.held(holder, "["))]
        outside: set[Value] = set()
        tuples = []
        for value in behind:
            if not self._is_followed(value):
                outside |= self.outside.element(value)
            if isinstance(value, Inst) and self.classes.derives(value, NAMED_TUPLE):
                tuples.append(value.cls)
        if LAST in keys:
            return [frozenset(outside.union(*(_last(it) for it in held)))] * len(keys)
        names = {f"[{key}]": key for key in keys}
        parts: dict[str, list[set[Value]]] = {key: [] for key in keys}
        for fields in held:
            outside.update(*fields.get("[*]", NO_FIELDS).values())
            for name in names.keys() & fields.keys():
                parts[names[name]] += fields[name].values()
            for first, entries in _from_places(fields):
                for key in keys:
                    if key.isdigit() and first <= int(key):
                        parts[key] += entries
        for cls in tuples:
            recorded = self.classes.recorded(cls)
            for key in filter(str.isdigit, keys):
                for name in recorded[int(key) :][:1]:
                    parts[key] += self.store.field(cls, name).values()
        return [frozenset(outside.union(*parts[key])) for key in keys]

    def elements(self, values: Values) -> Values:
        found: set[Value] = set()
        behind = self._behind(values)
        for holder in self._holders(behind):
            for name, entries in self.store.held(holder, "[").items():
                if name.startswith("["):
                    found.update(*entries.values())
        for value in behind:
            if not self._is_followed(value):
                found |= self.outside.element(value)
            if isinstance(value, Cls) and any(map(is_enumeration, self.classes.bases(value))):
                found.add(Inst(value, id(self.tree.scopes[value.scope].node)))
        return frozenset(found)

    def _is_followed(self, value: Value) -> bool:
        """Whether all that a value from outside hands out is known otherwise."""
        return isinstance(value, Made) and (value.name in ITERATORS | FILTERS or self.is_filled(value))

    def is_filled(self, value: Value) -> bool:
        """Whether a value is a collection, all of whose elements are put into it by the project."""
        if not isinstance(value, Made) or value.name not in BEGUN_EMPTY:
            return False
        call = self.store.calls.get(value.site)
        if call is None or not handed(call.node):
            return call is not None
        if value.name not in MODULE_LISTS:
            return False
        given = self.argument_values(value, 0)
        return bool(given) and all(isinstance(it, Coll) for it in given)

    def _holders(self, values: Values) -> set[Value]:
        """Whose fields hold the elements of some values, once each: all objects of a class have one set of fields."""
        made = {it.cls for it in values if isinstance(it, Inst)}
        found = {it for it in values if not isinstance(it, Inst)}
        return found.union(*map(self.classes.bases, made))

    def _behind(self, values: Values) -> Values:
        """Values with those that they hand out the elements of."""
        return closure(
            values,
            lambda value: (
                self.argument_values(value, int(value.name in FILTERS))
                if isinstance(value, Made) and value.name in ITERATORS | FILTERS
                else NOTHING
            ),
        )

    def argument_values(self, made: Made, position: int) -> Values:
        call = self.store.calls.get(made.site)
        if call is None or position >= len(call.node.args):
            return NOTHING
        return self.store.looked_up(call.node.args[position])

    def entry(self, table: Inst, name: str) -> Values:
        """What a dictionary of a class of the project has under a name, which it may have as an attribute, too."""
        own = (
            self.tree.scopes[base.scope].names
            for base in self.classes.bases(table.cls)
            if isinstance(base, Cls)
        )
        known = name in TABLE_METHODS or any(name in names for names in own)
        return NOTHING if known else self.item(frozenset([table]), name)

    def entries(self, value: Value) -> Iterator[tuple[ast.AST, Values]]:
        """What a list or dictionary is known to hold, each with the node that puts it there."""
        for holder in self.classes.holders(value) if self.classes.is_table(value) else ():
            for name, entries in self.store.fields.get(holder, {}).items():
                if name.startswith("["):
                    yield from (
                        (self.store.definition_nodes[key], self.store.ordered(it))
                        for key, it in entries.items()
                    )

    def contents(self, values: Values) -> Values:
        """Values with all that they hold: elements of containers, at any depth."""
        found = set(values)
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            if isinstance(value, Coll):
                for entries in self.store.fields.get(value, {}).values():
                    new = set().union(*entries.values()) - found
                    found |= new
                    waiting += new
        return self.store.ordered(found)

    def collected(self, node: ast.AST, values: Iterable[Value]) -> Values:
        """A collection of some values, made by a node."""
        collection = Coll(id(node))
        self.store.set_field(collection, "[*]", node, values)
        return frozenset([collection])

    def pairs(self, node: ast.Call, values: Values) -> Values:
        """A collection of pairs of a name and one of some values."""
        pair = Coll(id(node.func))
        self.store.set_field(pair, "[1]", node, values)
        return self.collected(node, [pair])

    def dictionary(self, node: ast.Call) -> Values:
        """What ``dict(x, a=y)`` makes, or another class whose objects hold what they are given by name."""
        collection = Coll(id(node))
        found: set[Value] = set()
        given = self.store.values(node.args[0]) if node.args else NOTHING
        if self.store.calls[id(node)].names == {MAKES_ENTRIES}:
            self.store.set_field(
                collection, "[*]", node, self._made_by(node.args[0], given) if node.args else ()
            )
            found.add(collection)
            given = self.store.values(node.args[1]) if len(node.args) > 1 else NOTHING
        for value in given:
            pairs = [it for it in self.elements(frozenset([value])) if isinstance(it, Coll)]
            if (
                isinstance(value, Coll)
                and pairs
                and not isinstance(self.tree.nodes[value.site], ast.Dict | ast.Call)
            ):
                self.store.set_field(collection, "[*]", node, self.item(frozenset(pairs), "1"))
                found.add(collection)
            else:
                found.add(value)
        for keyword in node.keywords:
            values = self.store.values(keyword.value)
            if keyword.arg is not None:
                self.store.set_field(collection, f"[{keyword.arg}]", keyword.value, values)
                found.add(collection)
            else:
                found |= {it for it in values if isinstance(it, Coll)}
        return frozenset(found)

    def _made_by(self, factory: ast.expr, values: Values) -> Values:
        """What a ``defaultdict`` makes for a key: one stands for those of all keys."""
        found: set[Value] = set()
        for value in values:
            if isinstance(value, Ext) and value.name in (LISTS_BY_NAME | DICTIONARIES):
                found.add(Coll(id(factory)))
            elif isinstance(value, Cls):
                found.add(Inst(value, id(factory)))
        if isinstance(factory, ast.Lambda):
            found |= self.store.values(factory.body)
        return self.store.ordered(found)

    def fill(self, table: Inst | Coll | Made, given: Arguments) -> None:
        """Put what a dictionary of a class of the project is made of into it."""
        for node, values in given.places:
            for value in values:
                held = self.store.held(value, "[") if isinstance(value, Coll) else {}
                for name, entries in list(held.items()):
                    for values_of in list(entries.values()):
                        self.store.set_field(table, name, node, values_of)
                if isinstance(value, Made | Member):  # of something outside, one part is as good as another
                    part = Member(value, "[]") if isinstance(value, Made) else value
                    self.store.set_field(table, "[*]", node, [part])
        for name, node, values in given.names:
            self.store.set_field(table, f"[{name}]", node, values)

    def put(self, owners: Values, name: str, node: ast.AST, values: Iterable[Value]) -> None:
        for owner in owners:
            self.store.set_field(owner, name, node, values)

    def move(self, owners: Values, node: ast.AST) -> None:
        """Have what lists hold stand anywhere in them; what dicts hold keeps its keys."""
        for owner in owners:
            names = [it for it in self.store.held(owner, "[") if it.startswith("[")]
            if all(re.fullmatch(r"\[(\*|-?\d+:?)\]", it) for it in names):
                self.put(frozenset([owner]), f"[{ANY}]", node, self.elements(frozenset([owner])))

    def copy_entries(self, owners: Values, tables: Values, node: ast.AST) -> None:
        """Put what dictionaries, or lists of pairs, hold into others, each under its key."""
        lists = frozenset(it for it in tables if isinstance(self.tree.nodes[it.site], LISTS))  # type: ignore[union-attr]
        pairs = frozenset(it for it in self.elements(lists) if isinstance(it, Coll))
        self.put(owners, "[*]", node, self.item(pairs, "1"))
        for table in tables:
            self.store.read((table, "["))
            for name, entries in list(self.store.fields.get(table, {}).items()):
                if name.startswith("["):
                    self.put(owners, name, node, frozenset().union(*entries.values()))

    def append(self, owners: Values, call: ast.Call, values: Iterable[Value]) -> None:
        """Put what a call of ``append`` adds to lists into them, at its place as far as that is known."""
        for place in self.appending.places(call):
            self.put(owners, f"[{place}]", call, values)

    def key(self, node: ast.expr) -> str:
        """The key that an expression is, ``*`` where that is not known."""
        return str(node.value) if isinstance(node, ast.Constant) else ANY


def _last(fields: Mapping[str, Mapping[int, set[Value]]]) -> set[Value]:
    """What a collection may have as its last element."""
    known = f"[{LAST}]" in fields and "[*]" not in fields
    names = [it for it in fields if it == f"[{LAST}]" or (it.startswith("[") and not known)]
    return set[Value]().union(*(values for name in names for values in fields[name].values()))


def _from_places(
    fields: Mapping[str, Mapping[int, set[Value]]],
) -> Iterator[tuple[int, Iterable[set[Value]]]]:
    """What a list may have at any place from one on, with that place."""
    for name, entries in fields.items():
        if name.endswith(":]") and name[1:-2].isdigit():
            yield int(name[1:-2]), entries.values()
