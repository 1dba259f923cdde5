"""Programs looked at in another form: copies of their trees with statements and expressions that are not their own.

What stands for something that happens at run time is put into a copy, and the copy is linked and followed as any
program is. Nodes that are not the program's own say so (``inserted``), and stand at the place of those beside them.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from dp2ddp.analyse import wrappers
from dp2ddp.analyse.context import Context


class View:
    """Copies of the trees of some programs, to be changed and linked anew; files without changes stay as they are."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._program = context.program
        self._trees: dict[Path, ast.Module] = {}
        self._twins: dict[int, ast.AST] = {}

    def twin(self, node: ast.AST) -> ast.AST:
        """What a node of the programs is in the copy."""
        self.tree(node)
        return self._twins[id(node)]

    def tree(self, node: ast.AST) -> ast.Module:
        """The copy of the file that a node of the programs stands in."""
        file = self._program.file(node)
        if file.path not in self._trees:
            self._trees[file.path] = made = copy.deepcopy(file.tree)
            pairs = zip(ast.walk(file.tree), ast.walk(made), strict=True)
            self._twins.update((id(old), new) for old, new in pairs)
        return self._trees[file.path]

    def linked(self) -> Context:
        """The programs as they are in the copies."""
        files = {
            file.path: replace(file, tree=self._trees[file.path]) if file.path in self._trees else file
            for file in self._program.files
        }
        project = self._program.project
        project = replace(project, files={**project.files, **files})
        linked = wrappers.linked(project, list(files.values()))
        branches = self._context.branches
        if branches is not None:
            branches = replace(
                branches, alone=self._there(branches.alone), starting=self._there(branches.starting)
            )
        return Context(linked, branches, self._context.beside)

    def _there(self, nodes: frozenset[int]) -> frozenset[int]:
        """Identities of what some nodes are in the copies."""
        return frozenset(id(self._twins[it]) if it in self._twins else it for it in nodes)


def put(tree: ast.Module, place: ast.AST, other: ast.AST) -> None:
    """Put a node in the place of another."""
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if value is place:
                setattr(node, name, other)
            elif isinstance(value, list) and place in value:
                setattr(node, name, [other if it is place else it for it in value])


def insert(tree: ast.Module, beside: ast.AST, statements: list[ast.stmt], after: bool = True) -> None:
    """Put statements, whose nodes are not the program's own, after a statement of a block or before it."""
    mark((node for statement in statements for node in ast.walk(statement)), beside)
    for around in ast.walk(tree):
        for _, block in ast.iter_fields(around):
            if isinstance(block, list) and any(it is beside for it in block):
                place = next(i for i, it in enumerate(block) if it is beside) + after
                block[place:place] = statements
                return


def insert_imports(tree: ast.Module, text: str) -> None:
    """Put imports at the top of a file."""
    imports = ast.parse(text).body
    mark((node for imported in imports for node in ast.walk(imported)), tree.body[0])
    future = [it for it in tree.body if isinstance(it, ast.ImportFrom) and it.module == "__future__"]
    place = tree.body.index(future[-1]) + 1 if future else 0
    tree.body[place:place] = imports


def mark(nodes: Iterable[ast.AST], beside: ast.AST) -> None:
    """Say of nodes that they are not the program's own, and stand where another does."""
    for node in nodes:
        ast.copy_location(node, beside)
        node.inserted = True  # type: ignore[attr-defined]
