"""What a call or subscript does, by what is called: of the project, a container, Python's own, or from outside."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from dp2ddp.analyse.api.containers import KEYED, MOVES_ELEMENTS, PLAIN_HOMES, SHUFFLES
from dp2ddp.analyse.api.handing import ASKING, COPIES, HANDS_BACK, SAME_OBJECT, SELECTS, TAKES_ONE
from dp2ddp.analyse.api.iteration import (
    COLLECTS_RETURNED,
    FOLDS,
    GOES_THROUGH,
    ITERATION,
    KEPT_ARGUMENTS,
    MAPS,
)
from dp2ddp.analyse.api.options import COMMANDS
from dp2ddp.analyse.api.processes import RUNS_TARGET
from dp2ddp.analyse.api.python import (
    DICTIONARIES,
    EVALUATES,
    LOADING,
    MODULE_LISTS,
    NAMESPACES,
    PUTS_ONE,
    TABLE_METHODS,
)
from dp2ddp.analyse.program.by_text import UNKNOWN, ByText
from dp2ddp.analyse.program.calling import Calling
from dp2ddp.analyse.program.calls import Arguments, Call, handed
from dp2ddp.analyse.program.classes import Classes, is_enumeration
from dp2ddp.analyse.program.commands import Commands
from dp2ddp.analyse.program.containers import Containers
from dp2ddp.analyse.program.fitting import Fitting
from dp2ddp.analyse.program.members import Members
from dp2ddp.analyse.program.outside import Outside
from dp2ddp.analyse.program.scopes import Scope, Tree
from dp2ddp.analyse.program.special import Special
from dp2ddp.analyse.program.store import Store
from dp2ddp.analyse.program.values import (
    NOTHING,
    OWN,
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
    full_name,
)


@dataclass
class Dispatch:
    """Calls and subscripts."""

    tree: Tree
    store: Store
    classes: Classes
    members: Members
    containers: Containers
    outside: Outside
    calling: Calling
    fitting: Fitting
    commands: Commands
    by_text: ByText
    special: Special

    def call(self, node: ast.Call, callees: Values, scope: Scope) -> Values:
        """What a call returns, whose parts are evaluated; ``callees``: what it may call."""
        if isinstance(node.func, ast.Name) and node.func.id == "super" and len(node.args) in (0, 2):
            self.store.calls[id(node)] = Call(node, scope, NOTHING)
            return self.members.super_(scope, node)
        callees = self.calling.outside_wrappers(node, callees)
        if len(callees) > 1:
            callees = (
                frozenset(
                    it for it in callees if self.fitting.fits(it, node) and self.fitting.returns_it(it, node)
                )
                or callees
            )
        callees = self.special.named(callees)
        self.store.calls[id(node)] = Call(node, scope, callees)
        given: Arguments | None = None
        found: set[Value] = set()
        for callee in callees:
            if isinstance(callee, Ext) and callee.name in GOES_THROUGH:
                for argument in node.args:
                    self.calling.enter_by(node, self.store.of(argument), *ITERATION)
            returned = self.special.called(callee, node) if isinstance(callee, Cls | Ext | Made) else None
            if returned is not None:
                found |= returned
                continue
            if isinstance(callee, Member) and callee.name in MOVES_ELEMENTS:
                self._moved(node)
            match callee:
                case Func() | Bound() | Cls() | Inst() | Made(name="functools.partial"):
                    given = given or self.calling.arguments(node)
                    found |= self.calling.apply(callee, given, node)
                case Member() if callee.name in TABLE_METHODS and isinstance(node.func, ast.Attribute):
                    found |= self._table_method(node, node.func, scope)
                    found |= self.outside.made(callee, node)
                case Member() if callee.name in SAME_OBJECT and isinstance(node.func, ast.Attribute):
                    found |= self.store.of(node.func.value)
                case Member(owner=Func()) if callee.owner in self.commands.groups:
                    self.commands.hold(callee.owner, node)
                case Member(owner=Cls()) if callee.name == "__subclasses__":
                    found |= self.containers.collected(node, self.classes.derived(callee.owner))
                case Ext(name="builtins.getattr") if len(node.args) > 1:
                    found |= self.outside.fewer(self.by_text.getattr(node, scope))
                case Ext(name="builtins.type") if len(node.args) == 1:
                    own = {it.cls for it in self.store.of(node.args[0]) if isinstance(it, Inst)}
                    found |= own or self.outside.made(callee, node)
                case Ext(name="builtins.setattr") if len(node.args) == 3:
                    self.by_text.setattr(node, scope)
                case Ext() if callee.name in NAMESPACES:
                    found |= self.by_text.namespace(callee.name, node, scope)
                case Ext() if (
                    callee.name in EVALUATES
                    and len(node.args) > 0
                    and id(node) not in scope.file.chosen_imports
                ):
                    found |= self.by_text.evaluated(node, scope) | self.outside.made(callee, node)
                case Ext() if callee.name in TAKES_ONE and node.args:
                    taken = self.containers.elements(self.store.of(node.args[0]))
                    found |= {it for it in taken if isinstance(it, OWN)} | self.outside.made(callee, node)
                case Ext(name="itertools.repeat") if node.args:
                    found |= self.containers.collected(node, self.store.of(node.args[0]))
                case Ext(name="inspect.getmembers") if node.args:
                    members = self.by_text.members(self.store.of(node.args[0]), UNKNOWN, node)
                    found |= self.containers.pairs(node, members)
                case Ext(name="builtins.exec") if id(node) in scope.file.chosen_imports:
                    self.by_text.executed(node, scope)
                case Ext() if callee.name in LOADING:
                    found |= self.by_text.modules(node, scope)
                case Member(owner=Mod(), name="load_module"):
                    found.add(callee.owner)
                case Ext(name="importlib.util.module_from_spec") if node.args:
                    found |= {it for it in self.store.of(node.args[0]) if isinstance(it, Mod)}
                case Ext() if callee.name in COMMANDS:
                    self.commands.offer(
                        self.containers.contents(frozenset().union(*map(self.store.values, handed(node))))
                    )
                    found |= self.outside.made(callee, node)
                case Ext() if callee.name in HANDS_BACK:
                    found |= self._handed_back(node, HANDS_BACK[callee.name])
                case Ext() if callee.name in DICTIONARIES:
                    made = self.containers.dictionary(node)
                    plain = callee.name.startswith(PLAIN_HOMES)
                    found |= made if made and plain else made | self.outside.made(callee, node)
                case Ext() if callee.name in MODULE_LISTS:
                    found |= self._module_list(callee, node)
                case Ext() if callee.name in SHUFFLES and node.args:
                    self.containers.move(self.store.of(node.args[0]), node)
                case Ext() if callee.name in COPIES and node.args:
                    found |= self.store.of(node.args[0])
                case Ext() if callee.name in SELECTS and node.args:
                    found |= self.store.of(node.args[0]) | self.outside.made(callee, node)
                case Ext() if callee.name in MAPS or callee.name in FOLDS:
                    found |= self._applied(callee.name, node)
                    found |= self.outside.made(callee, node) if callee.name in COLLECTS_RETURNED else NOTHING
                case Ext() | Member():
                    found |= self._made(callee, node)
                    self._hand_over(callee, node)
        return frozenset(found)

    def _module_list(self, callee: Ext, node: ast.Call) -> Values:
        """A list of modules, which holds what the collection holds that it is given."""
        made, places = self.outside.made(callee, node), self.calling.arguments(node).places
        for value in made:
            self.containers.fill(value, Arguments(places))  # type: ignore[arg-type]
        return made

    def _made(self, callee: Ext | Member, node: ast.Call) -> Values:
        """What something outside makes, with what that keeps of what it is given."""
        made, call = self.outside.made(callee, node), self.store.calls[id(node)]
        for name, place in KEPT_ARGUMENTS.get(full_name(callee), {}).items():
            given = call.argument(name, place)
            for value in made if given is not None else ():
                self.store.set_field(value, name, given, self.store.of(given))
        return made

    def _applied(self, name: str, node: ast.Call) -> Values:
        """What a function returns that is called with elements: ``map(f, rows)``, ``reduce(f, rows, start)``."""
        call = self.store.calls[id(node)]
        place, begins = FOLDS.get(name, (0, None))
        function = call.argument("func", place)
        start = call.argument("initial", begins) if name in FOLDS else None
        if function is None:
            return NOTHING
        rest = [it for it in node.args if it not in (function, start) and not isinstance(it, ast.Starred)]
        elements = [(it, self.containers.elements(self.store.of(it))) for it in rest]
        returned: Values = NOTHING
        if start is not None:
            returned |= self.store.of(start)
        elif name in FOLDS:
            returned |= frozenset().union(*(values for _, values in elements))
        for value in self.store.of(function):
            given = (((node, returned),) if name in FOLDS else ()) + tuple(elements)
            self.store.implicit[id(node)] |= self.calling.functions(value, node, True)
            returned |= self.calling.apply(value, Arguments(given), node, False)
        return self.containers.collected(node, returned) if name in COLLECTS_RETURNED else returned

    def _hand_over(self, callee: Ext | Member, node: ast.Call) -> None:
        """Give functions that something outside may call what is known of their arguments: at least their object."""
        given, starts = Arguments(), isinstance(callee, Ext) and callee.name in RUNS_TARGET
        if starts:
            named = {keyword.arg: keyword.value for keyword in node.keywords}
            rest = (named["args"], self.store.of(named["args"])) if "args" in named else None
            given = Arguments(
                (), rest, (), (), (self.store.of(named["kwargs"]),) if "kwargs" in named else ()
            )
        for argument in () if callee.name.startswith(ASKING) else handed(node):
            for value in self.store.values(argument):
                if isinstance(value, Bound):
                    self.calling.invoke(value.func, value.owner, given, starts)
                elif isinstance(value, Func) and starts:
                    self.calling.invoke(value, None, given)

    def _moved(self, node: ast.Call) -> None:
        """What a list has stands elsewhere after ``items.reverse()``, ``items.pop(0)`` and the like."""
        if isinstance(node.func, ast.Attribute):
            tables = (it for it in self.store.values(node.func.value) if self.classes.is_table(it))
            self.containers.move(frozenset(tables), node)

    def _table_method(self, node: ast.Call, function: ast.Attribute, scope: Scope) -> Values:
        """What a method of a list or dictionary does and returns: ``table.update(x)``, ``table.items()``."""
        owners = frozenset(it for it in self.store.values(function.value) if self.classes.is_table(it))
        given = [self.store.values(argument) for argument in node.args]
        match function.attr, node.args:
            case "append", [_]:
                self.containers.append(owners, node, given[0])
            case method, [_] if method in PUTS_ONE:
                self.containers.put(owners, "[*]", node, given[0])
            case "insert", [_, _]:
                self.containers.put(owners, "[*]", node, given[1])
            case "extend", [_]:
                self.containers.put(owners, "[*]", node, self.containers.elements(given[0]))
            case "update", _:
                for values in given:
                    tables = frozenset(it for it in values if isinstance(it, Coll))
                    self.containers.copy_entries(owners, tables, node)
                    self.containers.put(owners, "[*]", node, self.by_text.held_by(values - tables, node))
                for keyword in node.keywords:
                    key = "*" if keyword.arg is None else keyword.arg
                    values = self.store.values(keyword.value)
                    self.containers.put(
                        owners,
                        f"[{key}]",
                        keyword.value,
                        values if keyword.arg else self.containers.elements(values),
                    )
            case "copy", []:
                return owners
            case "pop" | "popleft", []:
                return self.containers.elements(owners)
            case "values", []:
                names = frozenset(it for it in owners if isinstance(it, Names))
                return (owners - names) | (
                    self.containers.collected(node, self.by_text.held_by(names, node)) if names else NOTHING
                )
            case "items", []:
                return self.containers.pairs(node, self.by_text.held_by(owners, node)) if owners else NOTHING
            case method, [key, *_] if method in KEYED:
                found = self.by_text.looked_up(owners, key, node)
                if function.attr == "setdefault" and len(given) > 1:
                    self.containers.put(owners, f"[{self.containers.key(key)}]", node, given[1])
                return found.union(*given[1:]) if owners else NOTHING
        return NOTHING

    def _handed_back(self, node: ast.Call, parameters: Sequence[str]) -> Values:
        """What a call is given by its first parameters, as it hands it back: alone, or in a tuple."""
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        given = [*node.args[: len(parameters)], *(named[it] for it in parameters if it in named)]
        handed = [self.store.of(it) for it in given]
        if len(given) != len(parameters):
            return handed[0] if handed else NOTHING
        collection = Coll(id(node))
        for index, values in enumerate(handed):
            self.store.set_field(collection, f"[{index}]", given[index], values)
        return frozenset([collection])

    def subscripted(self, owners: Values, node: ast.Subscript, scope: Scope) -> Values:
        """What ``table[key]`` may be."""
        found = set(self.by_text.looked_up(owners, node.slice, node))
        for owner in owners:
            if owner == Ext("sys.modules"):
                found |= self.by_text.module_named(node.slice, scope)
            elif isinstance(owner, Inst):
                given = Arguments(((node.slice, self.store.values(node.slice)),))
                for method in self.members.member(owner, "__getitem__", node):
                    if isinstance(method, Bound):
                        found |= self.calling.invoke(method.func, owner, given, False)
            elif isinstance(owner, Cls) and any(map(is_enumeration, self.classes.bases(owner))):
                found.add(Inst(owner, id(node)))
        return frozenset(found)
