"""What a call of the project's own does: its arguments go to parameters, what it returns comes back."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass, field

from dp2ddp.analyse.api.layers import CALLS
from dp2ddp.analyse.api.python import CONSTRUCTING
from dp2ddp.analyse.program.calls import Arguments
from dp2ddp.analyse.program.classes import Classes
from dp2ddp.analyse.program.commands import Commands
from dp2ddp.analyse.program.containers import Containers
from dp2ddp.analyse.program.handing import HandingOn
from dp2ddp.analyse.program.members import Members
from dp2ddp.analyse.program.scopes import Scope, Tree
from dp2ddp.analyse.program.special import Special
from dp2ddp.analyse.program.store import Store
from dp2ddp.analyse.program.values import NOTHING, Bound, Cls, Coll, Func, Inst, Made, Value, Values


@dataclass
class Calling:
    """Functions, methods, classes and prepared calls of the project, called."""

    tree: Tree
    store: Store
    classes: Classes
    containers: Containers
    handing: HandingOn
    members: Members
    commands: Commands
    special: Special
    stand_ins: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """The functions that run in place of one: those that its decorators make."""
    _put_in_place: set[tuple[int, Value]] = field(default_factory=set)

    def invoke(
        self,
        func: Func,
        owner: Value | None,
        given: Arguments,
        seen: bool = True,
        site: ast.Call | None = None,
    ) -> Values:
        """Pass arguments to the function's parameters; its return values come back: by ``site``, those of this call."""
        inner = self.tree.scopes[func.scope]
        if not seen:
            self.store.unseen.add(func.scope)
        taken = inner.signature
        if owner is not None and taken.places and not self.classes.is_static(func):
            self.store.define(inner, taken.places[0].arg, taken.places[0], [owner])
            taken = taken.bound
        bindings = taken.bind(given.places, ((name, (node, values)) for name, node, values in given.names))
        for parameter, (_, values) in bindings.given:
            self.store.define(inner, parameter.arg, parameter, values)
        for key, (node, values) in bindings.rest:
            self._surplus(inner, taken.rest, key, node, values)
        for key, (node, values) in bindings.others:
            self._surplus(inner, taken.others, key, node, values)
        if given.rest is not None:
            node, values = given.rest
            left = taken.places[len(given.places) :]
            items = self.containers.items(values, [str(index) for index in range(len(left))])
            for parameter, item in zip(left, items, strict=True):
                if item:
                    self.store.define(inner, parameter.arg, parameter, item)
            self._surplus(inner, taken.rest, "*", node, self.containers.elements(values))
        for node, values in given.behind:
            one = self.containers.elements(values) if isinstance(node, ast.Starred) else values
            for parameter in taken.places[len(given.places) :]:
                self.store.define(inner, parameter.arg, parameter, one)
            self._surplus(inner, taken.rest, "*", node, one)
        own = {id(parameter) for parameter, _ in bindings.given}
        left_over = [it for it in taken.named if id(it) not in own]  # none is given twice
        for values in given.dictionaries:
            items = self.containers.items(values, [it.arg for it in left_over])
            for parameter, item in zip(left_over, items, strict=True):
                if item:
                    self.store.define(inner, parameter.arg, parameter, item)
            if taken.others is not None and (colls := {it for it in values if isinstance(it, Coll)}):
                self.store.define(inner, taken.others.arg, taken.others, colls)
        self.store.read(~func.scope)
        if site is not None:
            passed = {parameter.arg: values for parameter, (_, values) in bindings.given}
            own = self.handing.returned(inner, passed, site)
            if own is not None:
                return own
        return frozenset(self.store.returns[func.scope])

    def _surplus(
        self, inner: Scope, parameter: ast.arg | None, key: str, node: ast.AST, values: Values
    ) -> None:
        """Put what no other parameter takes into that of ``*args`` or ``**kwargs``, if there is one."""
        if parameter is not None:
            collection = Coll(id(parameter))
            self.store.set_field(collection, f"[{key}]", node, values)
            self.store.define(inner, parameter.arg, parameter, [collection])

    def apply(
        self, callee: Value, given: Arguments, site: ast.AST, seen: bool = True, depth: int = 0
    ) -> Values:
        """Call something of the project; what it returns comes back. ``seen``: by a call with these arguments."""
        own = site if seen and isinstance(site, ast.Call) else None
        match callee:
            case Func():
                return self.invoke(callee, None, given, seen, own)
            case Bound():
                return self.invoke(callee.func, callee.owner, given, seen, own)
            case Cls():
                made = Inst(callee, id(site))
                for name in CONSTRUCTING:
                    for method in self.members.member(made, name, site):
                        if isinstance(method, Bound):
                            self.invoke(method.func, made, given, seen)
                if self.classes.is_table(made):
                    self.containers.fill(made, given)
                for place, name in enumerate(self.classes.recorded(callee)):
                    for node, values in [
                        *given.places[place : place + 1],
                        *((n, v) for it, n, v in given.names if it == name),
                    ]:
                        self.store.set_field(made, name, node, values)
                return frozenset([made])
            case Inst():
                methods = (self.members.member(callee, name, site) for name in CALLS)
                called = [it for found in methods for it in found if isinstance(it, Bound)]
                return frozenset().union(*(self.invoke(it.func, callee, given, seen) for it in called))
            case Made(name="functools.partial") if depth < 3 and callee.site in self.store.calls:
                prepared = given.after(self.arguments(self.store.calls[callee.site].node, first=1))
                targets = self.containers.argument_values(callee, 0)
                return frozenset().union(
                    *(self.apply(it, prepared, site, False, depth + 1) for it in targets)
                )
        return NOTHING

    def arguments(self, node: ast.Call, first: int = 0) -> Arguments:
        """What a call gives, from one place on."""
        places: list[tuple[ast.AST, Values]] = []
        behind: list[tuple[ast.AST, Values]] = []
        rest: tuple[ast.AST, Values] | None = None
        for argument in node.args[first:]:
            values = self.store.of(argument)
            if rest is not None:
                behind.append((argument, values))
            elif isinstance(argument, ast.Starred):
                rest = argument, values
            else:
                places.append((argument, values))
        names, dictionaries = [], []
        for keyword in node.keywords:
            values = self.store.of(keyword.value)
            if keyword.arg is None:
                dictionaries.append(values)
            else:
                names.append((keyword.arg, keyword.value, values))
        return Arguments(tuple(places), rest, tuple(behind), tuple(names), tuple(dictionaries))

    def functions(self, value: Value, node: ast.AST, called: bool, depth: int = 0) -> set[int]:
        """The functions that calling a value enters."""
        match value:
            case Func():
                return {value.scope}
            case Bound():
                return {value.func.scope}
            case Cls():
                made = Inst(value, id(node))
                return set().union(*(self.members.methods(made, name, node) for name in CONSTRUCTING))
            case Inst() if called:
                return self.members.methods(value, "__call__", node) | self.members.methods(
                    value, "forward", node
                )
            case Made() if called and (entered := self.special.entered(value)) is not None:
                return entered
            case Made(name="functools.partial") if depth < 3:
                targets = self.containers.argument_values(value, 0)
                return set().union(*(self.functions(it, node, called, depth + 1) for it in targets))
        return set()

    def decorated(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, value: Value
    ) -> set[Value]:
        """What a definition gives its name: itself, and the objects of the project that decorators make of it.

        Decorators run, and may keep what they are given; a function that one puts in its place is known to call it.
        """
        found = {value}
        for decorator in reversed(node.decorator_list):
            for callee in self.store.of(decorator):
                if isinstance(callee, Func | Bound | Cls | Inst | Made):
                    made = self.apply(callee, Arguments(((node, frozenset([value])),)), decorator, False)
                    self.store.implicit[id(node)] |= self.functions(callee, decorator, True)
                    found |= {it for it in made if isinstance(it, Inst)}
                    if isinstance(value, Func):
                        self._wrap_in(value, made)
            if isinstance(value, Func):
                self.commands.known_outside(decorator, value)
        return found

    def _wrap_in(self, value: Func, made: Values) -> None:
        """Know the functions that take another one's place when they are called: those that a decorator makes."""
        wrappers = {it.scope for it in made if isinstance(it, Func)} & self.tree.inner_functions
        wrappers.discard(value.scope)
        if not wrappers <= self.stand_ins[value.scope]:
            self.stand_ins[value.scope] |= wrappers
            self._put_in_place |= {(it, value) for it in wrappers}
            self.store.changed = True

    def announced(self, node: ast.ClassDef, made: Cls) -> None:
        """Tell bases and metaclass of a new class, as ``__init_subclass__`` and ``__init__`` are told."""
        given = Arguments(
            names=tuple((it.arg, it.value, self.store.values(it.value)) for it in node.keywords if it.arg)
        )
        for base in self.classes.bases(made)[1:]:
            if isinstance(base, Cls):
                for value in self.classes.own(base, "__init_subclass__"):
                    self.invoke(value, made, given, False)
        for keyword in node.keywords:
            for meta in self.store.values(keyword.value) if keyword.arg == "metaclass" else ():
                for value in self.classes.own(meta, "__init__") if isinstance(meta, Cls) else ():
                    self.invoke(value, made, Arguments(), False)

    def enter_by(self, node: ast.AST, values: Values, *names: str, implicit: bool = True) -> Values:
        """Know the methods of objects that a statement runs. Returns what the first one returns.

        ``implicit``: whether it is not known otherwise that it enters them.
        """
        found: set[Value] = set()
        for value in values:
            for name in names if isinstance(value, Inst) else ():
                methods = (it for it in self.members.member(value, name, node) if isinstance(it, Bound))
                for method in methods:  # type: ignore[arg-type]
                    if implicit:
                        self.store.implicit[id(node)].add(method.func.scope)
                    returned = self.invoke(method.func, value, Arguments(), False)
                    found |= returned if name == names[0] else NOTHING
        return frozenset(found)

    def outside_wrappers(self, node: ast.Call, callees: Values) -> Values:
        """Callees without what a wrapper calls in whose place it stands: calls of that lead there by themselves."""
        if isinstance(node.func, ast.Name) and self._put_in_place:
            scope: Scope | None = self.tree.scope_of[id(node)]
            while scope is not None and not scope.is_module:
                index = scope.index
                if node.func.id in scope.names:
                    break
                callees = frozenset(it for it in callees if (index, it) not in self._put_in_place)
                scope = scope.parent
        return callees
