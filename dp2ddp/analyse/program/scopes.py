"""The files as trees: what stands where, in what order, and which module, class or function binds a name."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from dp2ddp.analyse.program.signature import Signature
from dp2ddp.analyse.program.values import Cls
from dp2ddp.plan import Anchor
from dp2ddp.source import Location, SourceFile, span_of

_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_SCOPES = _DEFINITIONS | ast.Lambda
_BLOCKS = ("body", "orelse", "finalbody")


@dataclass
class Scope:
    """A module, class or function body, with the names it binds."""

    index: int
    node: ast.AST
    file: SourceFile
    parent: Scope | None
    names: set[str] = field(default_factory=set)
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)
    stars: list[str | Path] = field(default_factory=list)

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)

    @property
    def is_module(self) -> bool:
        return isinstance(self.node, ast.Module)

    @property
    def owner(self) -> Cls | None:
        """The class that a function is a method of."""
        return Cls(self.parent.index) if self.parent is not None and self.parent.is_class else None

    @cached_property
    def body(self) -> list[ast.stmt]:
        body = self.node.body  # type: ignore[attr-defined]
        return body if isinstance(body, list) else [ast.copy_location(ast.Return(value=body), body)]

    @cached_property
    def signature(self) -> Signature:
        return Signature.of(self.node)

    def takes(self, bound: bool) -> Signature:
        """The parameters that a call gives something; ``bound``: without that of the object which it is called of."""
        return self.signature.bound if bound else self.signature

    @cached_property
    def params(self) -> list[str]:
        return [it.arg for it in self.signature.places]


class Tree:
    """The parsed files. Nodes are told apart by their identities: ``order`` is their order in the source."""

    def __init__(self, files: Iterable[SourceFile]) -> None:
        self.files = list(files)
        self.scopes: list[Scope] = []
        self.scope_of: dict[int, Scope] = {}
        self.file_of: dict[int, SourceFile] = {}
        self.parents: dict[int, ast.AST] = {}
        self.nodes: dict[int, ast.AST] = {}
        self.order: dict[int, int] = {}
        self.modules: dict[Path, Scope] = {}
        self.by_node: dict[int, Scope] = {}
        self.misplaced: list[ast.stmt] = []
        """Statements that hold an anchored expression whose position is not known."""
        self.blocks: dict[int, list[ast.stmt]] = {}
        """The list of statements that each statement stands in."""
        self.ends: dict[int, int] = {}
        """The order of the last node in each."""
        self.base_nodes: dict[int, Cls] = {}
        """The expressions that name the bases of classes, with these classes."""
        self._results: dict[int, list[ast.Return | ast.Yield | ast.YieldFrom]] = {}
        for file in self.files:
            self._collect(file.tree, file, None)

    def _collect(self, tree: ast.Module, file: SourceFile, parent: Scope | None) -> None:
        scope = self._scope(tree, file, parent)
        self.modules[file.path] = scope
        self._walk(tree, scope, file)

    def _scope(self, node: ast.AST, file: SourceFile, parent: Scope | None) -> Scope:
        scope = Scope(len(self.scopes), node, file, parent)
        self.scopes.append(scope)
        self.by_node[id(node)] = scope
        if isinstance(node, ast.Lambda):
            (returned,) = scope.body
            self.scope_of[id(returned)], self.file_of[id(returned)] = scope, file
            self.parents[id(returned)] = node
        return scope

    def _walk(self, tree: ast.AST, scope: Scope, file: SourceFile) -> None:
        waiting = [(child, tree, scope) for child in reversed(self._children(tree))]
        walked = []
        around: dict[int, Scope] = {}
        while waiting:
            node, parent, scope = waiting.pop()
            key = id(node)
            if around:
                scope = around.pop(key, scope)
            self.parents[key] = parent
            self.nodes[key] = node
            self.order[key] = len(self.order)
            self.scope_of[key] = scope
            self.file_of[key] = file
            walked.append(node)
            inner = self._bound_by(node, scope, file)
            if inner is not scope:
                around.update((id(it), scope) for it in _beside_body(node))
            waiting += [(child, node, inner) for child in reversed(self._children(node))]
        for node in reversed(walked):
            end = self.ends.setdefault(id(node), self.order[id(node)])
            outer = id(self.parents[id(node)])
            self.ends[outer] = max(end, self.ends.get(outer, end))

    def _children(self, node: ast.AST) -> list[ast.AST]:
        """What a node is made of; the blocks of statements among that are noted."""
        for name in _BLOCKS if not isinstance(node, ast.expr) else ():
            block = getattr(node, name, None)
            if block and isinstance(block, list) and isinstance(block[0], ast.stmt):
                for it in block:
                    self.blocks[id(it)] = block
        return children(node)

    def _bound_by(self, node: ast.AST, scope: Scope, file: SourceFile) -> Scope:
        """Note the names that a node binds. Returns the scope of what stands in it."""
        if isinstance(node, ast.expr) and not isinstance(node, ast.Lambda):  # most are
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                scope.names.add(node.id)
            return scope
        if isinstance(node, _SCOPES):
            if not isinstance(node, ast.Lambda):
                scope.names.add(node.name)
            inner = self._scope(node, file, scope)
            if isinstance(node, ast.ClassDef):
                self.base_nodes.update((id(it), Cls(inner.index)) for it in node.bases)
            else:
                inner.names.update(arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg))
            return inner
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                scope.names.add(alias.asname or alias.name.partition(".")[0])
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            scope.names.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            scope.names.add(node.rest)
        elif isinstance(node, ast.Global):
            scope.globals.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            scope.nonlocals.update(node.names)
        return scope

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self.parents.get(id(node))

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """What stands round a node, inside out."""
        parents = self.parents
        current = parents.get(id(node))
        while current is not None:
            yield current
            current = parents.get(id(current))

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds a node."""
        while not isinstance(node, ast.stmt):
            node = self.parents[id(node)]
        return node

    def node(self, site: int) -> ast.AST:
        """The node that makes a value."""
        return self.nodes[site]

    def in_order(self, keys: Iterable[int]) -> list[ast.AST]:
        """The nodes of some identities, in source order."""
        return [self.nodes[it] for it in sorted(self.order.keys() & keys, key=self.order.__getitem__)]

    def scope(self, node: ast.AST) -> Scope:
        return self.scope_of[id(node)]

    def file(self, node: ast.AST) -> SourceFile:
        return self.file_of[id(node)]

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The list of statements that a statement stands in; what a lambda returns stands alone."""
        return self.blocks.get(id(statement), [statement])

    def anchor(self, node: ast.AST) -> Anchor:
        file = self.file(node)
        if not self.is_placed(node):
            self.misplaced.append(self.statement(node))
        return Anchor(file.path, "stmt" if isinstance(node, ast.stmt) else "expr", span_of(node, file))

    def node_at(self, at: Anchor) -> ast.stmt | ast.expr | None:
        """The node that an anchor stands for."""
        kind = ast.stmt if at.kind == "stmt" else ast.expr
        found = (it for it in self.nodes.values() if isinstance(it, kind) and it.lineno == at.span.line)
        return next((it for it in found if self.file(it).path == at.path and self.anchor(it) == at), None)

    def is_placed(self, node: ast.AST) -> bool:
        """Whether a node stands where it says: before Python 3.12, expressions inside f-strings may not."""
        inside = any(isinstance(around, ast.JoinedStr) for around in self.ancestors(node))
        if sys.version_info >= (3, 12) or not inside:
            return True
        try:
            there = ast.parse(ast.get_source_segment(self.file(node).text, node) or "", mode="eval").body
        except SyntaxError:
            return False
        return ast.dump(there) == ast.dump(node)

    def location(self, node: ast.AST) -> Location:
        file = self.file(node)
        return Location(file.path, span_of(node, file))

    def descendants(self, node: ast.AST) -> Iterator[ast.AST]:
        """A node and all below it that run with it: the bodies of functions are left out."""
        place = self._places.get(id(node))
        if place is not None:
            part, first, end = place
            return iter(part[first:end])
        return _walk_running(node)

    def body(self, scope: Scope) -> Iterator[ast.AST]:
        """All nodes that run when a module, class or function runs."""
        for statement in scope.body:
            yield from self.descendants(statement)

    def statements(self, scope: Scope) -> Iterator[ast.stmt]:
        """The statements of a scope, those in blocks of others included, in source order."""
        waiting: list[ast.AST] = [*reversed(scope.body)]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.stmt):
                yield node
            if not isinstance(node, _DEFINITIONS | ast.expr):
                waiting += reversed(children(node))

    def results(self, scope: Scope) -> list[ast.Return | ast.Yield | ast.YieldFrom]:
        """All by which a function hands out what it makes, in source order."""
        if scope.index not in self._results:
            kinds = ast.Return | ast.Yield | ast.YieldFrom
            self._results[scope.index] = [it for it in self.body(scope) if isinstance(it, kinds)]
        return self._results[scope.index]

    def is_inside(self, node: ast.AST, outer: ast.AST) -> bool:
        """Whether a node is another one, or a part of it."""
        if node is outer:
            return True
        first, last = self.order.get(id(outer)), self.ends.get(id(outer))
        place = self.order.get(id(node))
        return None not in (first, last, place) and first <= place <= last  # type: ignore[operator]

    @cached_property
    def _places(self) -> dict[int, tuple[list[ast.AST], int, int]]:
        """Where each node stands among those that run with it, from itself on to the last one below it.

        What runs with a module or function is listed once: whoever asks for a part of it gets a piece of that list.
        """
        places: dict[int, tuple[list[ast.AST], int, int]] = {}
        for scope in self.scopes:
            for statement in () if scope.is_class else scope.body:  # a class runs with what it stands in
                part: list[ast.AST] = []
                _list_running(statement, part, places)
        return places

    @cached_property
    def inner_functions(self) -> frozenset[int]:
        """The functions and classes that are defined in functions."""
        inner = (it for it in self.scopes if it.parent and not (it.parent.is_module or it.parent.is_class))
        return frozenset(it.index for it in inner)

    def owner(self, scope: Scope, name: str) -> Scope:
        if name in scope.globals:
            return self.modules[scope.file.path]
        if name in scope.nonlocals and scope.parent:
            return self.owner(scope.parent, name)
        return scope

    def holder(self, node: ast.AST) -> ast.AST:
        while not isinstance(node, ast.stmt) and id(node) in self.parents:
            node = self.parents[id(node)]
        return node

    def comprehension_of(self, node: ast.AST) -> ast.AST | None:
        """The comprehension that a name is the variable of."""
        part = self.generator_of(node)
        return None if part is None else self.parent(part)

    def generator_of(self, node: ast.AST) -> ast.comprehension | None:
        """The part of a comprehension, ``for x in y``, that a name is the variable of."""
        for around in self.ancestors(node):
            if isinstance(around, ast.stmt):
                return None
            if isinstance(around, ast.comprehension):
                return around
        return None

    def enclosing(self, node: ast.AST) -> Iterator[Scope]:
        """The functions and classes that a node stands in."""
        scope = self.scope_of.get(id(node))
        while scope is not None and not scope.is_module:
            yield scope
            scope = scope.parent


def children(node: ast.AST) -> list[ast.AST]:
    """What a node is made of, in source order: as ``ast.iter_child_nodes``, in half the time."""
    found: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, ast.AST):
            found.append(value)
        elif isinstance(value, list):
            found += [it for it in value if isinstance(it, ast.AST)]
    return found


def _beside_body(node: ast.AST) -> Iterator[ast.expr]:
    """What is evaluated where a function or class is defined, and not in its body."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            parameters = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            yield from (*node.args.defaults, *filter(None, node.args.kw_defaults))
            yield from (it.annotation for it in parameters if it.annotation is not None)
            if not isinstance(node, ast.Lambda):
                yield from (*node.decorator_list, *filter(None, [node.returns]))
        case ast.ClassDef():
            yield from (*node.decorator_list, *node.bases, *(it.value for it in node.keywords))


def _walk_running(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it that run with it, in their order."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting += reversed(_run_with(current))


def _list_running(
    node: ast.AST, part: list[ast.AST], places: dict[int, tuple[list[ast.AST], int, int]]
) -> None:
    """List a node with all below it that run with it, and note the place of each."""
    waiting: list[tuple[ast.AST, int | None]] = [(node, None)]
    while waiting:
        current, first = waiting.pop()
        if first is not None:
            places[id(current)] = part, first, len(part)
            continue
        waiting.append((current, len(part)))
        part.append(current)
        waiting += reversed([(it, None) for it in _run_with(current)])


def _run_with(node: ast.AST) -> list[ast.AST]:
    """The children of a node that run when it does."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]
        case ast.Lambda():
            return [*node.args.defaults, *filter(None, node.args.kw_defaults)]
    return children(node)
