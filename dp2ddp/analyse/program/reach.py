"""What a program may run without a call that can be followed: callbacks, decorators, what Python itself calls.

Too much rather than too little: it says where a program may write, never what its values are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.analyse.api.decorators import KEEPS_NO_FUNCTION, PROPERTY_MARKS
from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.program.values import Bound, Cls, Func, Inst, full_name


def may_run(program: Program, runs: set[int]) -> set[int]:
    """All nodes that a program may run, by those that it runs for sure."""
    return _Reach(program).of(runs)


class _Reach:
    """Adds the functions that are referred to, and the methods of classes that are used, until no more come."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._methods: dict[str, set[int]] = {}  # of the classes that are used
        self._asked: set[str] = set()  # names of methods whose object is not known
        self._patterns: list[list[str]] = []  # parts of such names
        self._waiting: list[int] = []
        self._seen: set[int] = set()  # functions and classes

    def of(self, runs: set[int]) -> set[int]:
        found = set(runs)
        for key in runs:
            self._look(key)
        while self._waiting:
            scope = self.program.scopes[self._waiting.pop()]
            keys = {id(node) for node in self.program.body(scope)} - found
            found |= keys
            for key in keys:
                self._look(key)
        return found

    def _look(self, key: int) -> None:
        """What a node leads to."""
        node = self.program.nodes.get(key)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_handed_on(node):
            self._enter(self.program.by_node[key].index)
        if isinstance(node, ast.Call):
            for index in self.program.called_scopes(node):
                self._enter(index)
            call = self.program.call(node)
            if isinstance(node.func, ast.Attribute) and (call is None or not call.callees):
                self._ask(node.func.attr)
            if call is not None and "builtins.getattr" in call.names and len(node.args) > 1:
                self._ask_for_any(node.args[1])
        if isinstance(node, ast.Name | ast.Attribute | ast.Call):
            for value in self.program.values(node):
                if isinstance(value, Func | Bound):
                    self._enter(value.scope if isinstance(value, Func) else value.func.scope)
                elif isinstance(value, Cls | Inst):
                    self._use(value if isinstance(value, Cls) else value.cls)

    def _enter(self, index: int) -> None:
        if index not in self._seen:
            self._seen.add(index)
            self._waiting.append(index)

    def _ask(self, name: str) -> None:
        """A method is called, whoever has it."""
        if name not in self._asked:
            self._asked.add(name)
            for index in self._methods.get(name, ()):
                self._enter(index)

    def _ask_for_any(self, name: ast.expr) -> None:
        """``getattr(self, "on_" + name)``: one of the methods whose names have these parts."""
        parts = [str(it.value) for it in ast.walk(name) if isinstance(it, ast.Constant)]
        if not isinstance(name, ast.Constant):
            self._patterns.append(parts)
            for method in list(self._methods):
                if all(part in method for part in parts):
                    self._ask(method)

    def _use(self, cls: Cls) -> None:
        """A class is used: Python may call some of its methods, and others are called by name."""
        if cls.scope in self._seen:
            return
        self._seen.add(cls.scope)
        bases = self.program.bases(cls)
        if any(full_name(base).endswith("Dataset") for base in bases):
            return  # its methods run in a loader's workers
        for base in bases:
            if isinstance(base, Cls):
                for method in self._methods_of(base):
                    self._methods.setdefault(method.name, set()).add(self.program.by_node[id(method)].index)
                    named = any(all(it in method.name for it in parts) for parts in self._patterns)
                    if named or _is_called_by_python(method) or method.name in self._asked:
                        self._enter(self.program.by_node[id(method)].index)

    def _methods_of(self, cls: Cls) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        body = self.program.scopes[cls.scope].body
        yield from (it for it in body if isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef))


def _is_called_by_python(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    marks = (ast.unparse(it).rpartition(".")[2] for it in method.decorator_list)
    special = method.name.startswith("__") and method.name.endswith("__")
    return special or any(mark in PROPERTY_MARKS for mark in marks)


def _is_handed_on(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a decorator may keep a function, and have it called later."""
    marks = [it.func if isinstance(it, ast.Call) else it for it in function.decorator_list]
    return any(ast.unparse(it).rpartition(".")[2] not in KEEPS_NO_FUNCTION for it in marks)
