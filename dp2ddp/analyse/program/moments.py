"""When a function runs: at which places of its module it is called, by name, and whether it may be later, too."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from dp2ddp.analyse.program.scopes import Scope, Tree

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True)
class Moments:
    """The places of a module at which a piece of code runs; ``later``: it may also run when the module has."""

    places: tuple[ast.AST, ...]
    later: bool


LATER = Moments((), True)


@dataclass
class WhenRun:
    """Asked of one program, by how its functions are written: it needs no values."""

    tree: Tree
    _found: dict[int, Moments] = field(default_factory=dict)
    _uses: dict[int, dict[str, list[ast.AST]]] = field(default_factory=dict)

    def moments(self, node: ast.AST) -> Moments:
        """When a piece of code runs that stands in a function or class of a module."""
        around = [*self.tree.enclosing(node)]
        functions = [it for it in around if isinstance(it.node, _FUNCTIONS)]
        if not functions:
            return Moments((node,), False)
        outer = functions[-1]
        if outer.index not in self._found:
            self._found[outer.index] = LATER  # of itself, where functions call one another
            self._found[outer.index] = self._called(outer)
        found = self._found[outer.index]
        return (
            found if len(functions) == 1 else Moments(found.places, True)
        )  # who calls an inner one is not asked

    def _called(self, function: Scope) -> Moments:
        """When a function runs that stands in no other."""
        node, module = function.node, self.tree.modules[function.file.path]
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return LATER
        is_method = function.parent is not module
        places: dict[int, ast.AST] = {}
        elsewhere = self._takers.get(node.name, set()) - {function.file.path}
        later = is_method or bool(elsewhere) or _is_generator(self.tree, function)
        uses = [it for it in self._used(module, node.name) if isinstance(it, ast.Attribute) is is_method]
        for use in uses:
            call = self.tree.parent(use)
            later |= not (isinstance(call, ast.Call) and call.func is use)
            if any(it is function for it in self.tree.enclosing(use)):
                continue  # it calls itself
            found = self.moments(use)
            later |= found.later
            places |= {id(it): it for it in found.places}
        return Moments((*places.values(),), later or not places)

    def _used(self, module: Scope, name: str) -> list[ast.AST]:
        """Where a file reads a name of its module, and an attribute of that name."""
        if module.index not in self._uses:
            found: dict[str, list[ast.AST]] = {}
            for node in ast.walk(module.node):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    found.setdefault(node.attr, []).append(node)
                elif (
                    isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and self._is_of_module(node)
                ):
                    found.setdefault(node.id, []).append(node)
            self._uses[module.index] = found
        return self._uses[module.index].get(name, [])

    def _is_of_module(self, name: ast.Name) -> bool:
        """Whether no function or class round a name has one of its own."""
        inner = self.tree.scope_of.get(id(name))
        for scope in self.tree.enclosing(name):
            if name.id in scope.names - scope.globals and (scope is inner or not scope.is_class):
                return False
        return True

    @cached_property
    def _takers(self) -> dict[str, set[Path]]:
        """The files that may take a name from another file, by the name."""
        found: dict[str, set[Path]] = {}
        for path, module in self.tree.modules.items():
            for name in _taken_by(module.file.nodes):
                found.setdefault(name, set()).add(path)
        return found


def _taken_by(nodes: Sequence[ast.AST]) -> Iterator[str]:
    imported = [alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names]
    yield from imported
    for node in nodes:
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name) and "*" in imported:
            yield node.id


def _is_generator(tree: Tree, function: Scope) -> bool:
    """Whether what a function does is done as something asks for what it hands out."""
    return any(isinstance(it, ast.Yield | ast.YieldFrom) for it in tree.body(function))
