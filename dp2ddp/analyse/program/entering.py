"""Which functions running a piece of code may enter, directly and at any depth."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from dp2ddp.analyse.api.handing import ASKING
from dp2ddp.analyse.api.options import COMMANDS, RUNNING_DECORATORS
from dp2ddp.analyse.api.python import RUNS
from dp2ddp.analyse.program.by_text import UNKNOWN, ByText
from dp2ddp.analyse.program.calling import Calling
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.commands import Commands
from dp2ddp.analyse.program.containers import Containers
from dp2ddp.analyse.program.scopes import Tree
from dp2ddp.analyse.program.store import Store
from dp2ddp.analyse.program.values import (
    Bound,
    Cls,
    Ext,
    Func,
    Inst,
    Made,
    Member,
    Mod,
    Names,
    Value,
    full_name,
)


@dataclass
class Entering:
    """Asked when all is linked."""

    tree: Tree
    store: Store
    containers: Containers
    calling: Calling
    commands: Commands
    by_text: ByText
    _entering: dict[int, frozenset[int]] = field(default_factory=dict)
    _entering_of: dict[int, frozenset[int]] = field(default_factory=dict)
    _entering_deep: dict[frozenset[int], frozenset[int]] = field(default_factory=dict)

    def called_scopes(self, node: ast.AST) -> frozenset[int]:
        """The functions that running a piece of code may enter directly."""
        known = self._entering.get(id(node))
        if known is not None:
            return known
        entered: set[int] = set()
        for inner in self.tree.descendants(node):
            call = self.store.calls.get(id(inner))
            if call is not None:
                entered |= self.entered_by_call(call)
            elif isinstance(inner, ast.FunctionDef) and self._runs_itself(inner):
                entered.add(self.tree.by_node[id(inner)].index)
            if id(inner) in self.store.implicit:
                entered |= self.store.implicit[id(inner)]
        found = frozenset(entered)
        if id(node) in self.tree.nodes:
            self._entering[id(node)] = found
        return found

    def _runs_itself(self, node: ast.FunctionDef) -> bool:
        """Whether a decorator calls the function that it is given, where the file is run: ``@experiment.automain``."""
        values = (it for decorator in node.decorator_list for it in self.store.values(decorator))
        return any(full_name(value) in RUNNING_DECORATORS for value in values)

    def entered_by_call(self, call: Call) -> set[int]:
        found: set[int] = set()
        passed = [value for argument in handed(call.node) for value in self.store.values(argument)]
        outside = any(isinstance(callee, Ext | Member | Made) for callee in call.callees)
        outside = outside and not any(name.startswith(ASKING) for name in call.names)
        for value in (*call.callees, *(passed if outside else ())):
            found |= self.calling.functions(value, call.node, value in call.callees)
        if call.names & COMMANDS:
            found |= self._commanded(call, passed)
        if call.names & RUNS:
            modules = (it.owner for it in self.store.values(call.node) if isinstance(it, Names))
            found |= {
                self.tree.modules[it.path].index
                for it in modules
                if isinstance(it, Mod) and it.path in self.tree.modules
            }
        if self.commands.held:
            found |= {it.scope for it in self.commands.run_by_holder(call, passed) if isinstance(it, Func)}
        for index in list(found):
            found |= self.calling.stand_ins.get(index, set())
        return found

    def entered(self, node: ast.AST) -> frozenset[int]:
        """The functions that running a piece of code may enter, at any depth."""
        return self._deep(self.called_scopes(node))

    def entered_itself(self, node: ast.Call) -> frozenset[int]:
        """Those that a call may enter, at any depth, without the calls that make its arguments."""
        call = self.store.calls.get(id(node))
        return frozenset() if call is None else self._deep(frozenset(self.entered_by_call(call)))

    def _deep(self, first: frozenset[int]) -> frozenset[int]:
        if first not in self._entering_deep:
            found: set[int] = set()
            waiting = set(first)
            while waiting:
                index = waiting.pop()
                found.add(index)
                waiting |= self._entered_by(index) - found
            self._entering_deep[first] = frozenset(found)
        return self._entering_deep[first]

    def _entered_by(self, index: int) -> frozenset[int]:
        """The functions that a function may enter directly."""
        if index not in self._entering_of:
            every = map(self.called_scopes, self.tree.scopes[index].body)
            self._entering_of[index] = frozenset().union(*every)
        return self._entering_of[index]

    def _commanded(self, call: Call, passed: list[Value]) -> set[int]:
        """The functions that a command line may choose: those given, all methods of a class, all of the module."""
        owners = {it for it in passed if isinstance(it, Cls | Inst)}
        held = self.containers.contents(frozenset(passed))
        if not handed(call.node):
            held |= self.by_text.members(frozenset([Mod(call.scope.file.path)]), UNKNOWN, call.node)
        methods = self.by_text.members(frozenset(owners), UNKNOWN, call.node)
        functions = (it.func if isinstance(it, Bound) else it for it in held | methods)
        return {it.scope for it in functions if isinstance(it, Func)}
