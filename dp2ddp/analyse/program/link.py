"""Who is who: follows values through all files of a project. ``Program`` answers what the analysis asks.

Every expression is given the set of *values* it may have: classes, functions, modules, and objects named by the
place that makes them. Names, attributes, arguments, return values and containers pass values on until nothing
new arrives (a points-to analysis, insensitive to calling context). Names are sensitive to the order of
statements: a use sees the assignments that can reach it.

README.md, beside this file, says what is where.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from dp2ddp.analyse.program.appending import Appending
from dp2ddp.analyse.program.attributes import Attributes
from dp2ddp.analyse.program.by_text import ByText
from dp2ddp.analyse.program.callers import Callers
from dp2ddp.analyse.program.calling import Calling
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.classes import Classes
from dp2ddp.analyse.program.commands import Commands
from dp2ddp.analyse.program.containers import Containers
from dp2ddp.analyse.program.definitions import Reaching
from dp2ddp.analyse.program.dispatch import Dispatch
from dp2ddp.analyse.program.entering import Entering
from dp2ddp.analyse.program.fitting import Fitting
from dp2ddp.analyse.program.handing import HandingOn
from dp2ddp.analyse.program.interpreter import Interpreter
from dp2ddp.analyse.program.members import Members
from dp2ddp.analyse.program.moments import WhenRun
from dp2ddp.analyse.program.names import Lookup
from dp2ddp.analyse.program.outside import Outside
from dp2ddp.analyse.program.scopes import Tree
from dp2ddp.analyse.program.sources import Source, source
from dp2ddp.analyse.program.special import Nothing, Special
from dp2ddp.analyse.program.store import Store
from dp2ddp.source import Project, SourceFile, namespace


class Linker:
    """The parts that link, each of which knows only those that are made before it, and what they find out."""

    def __init__(self, project: Project, tree: Tree, special: Special) -> None:
        self.tree = tree
        self.store = store = Store(tree)
        self.classes = classes = Classes(tree, store)
        self.reaching = reaching = Reaching(tree, special.always_runs)
        self.names = names = Lookup(project, tree, store, reaching, WhenRun(tree), special)
        self.members = members = Members(tree, store, classes, reaching)
        self.outside = outside = Outside()
        self.containers = containers = Containers(tree, store, classes, outside, Appending(tree, store))
        self.handing = handing = HandingOn(tree, store, classes)
        commands = Commands(tree, store)
        self.calling = calling = Calling(
            tree, store, classes, containers, handing, members, commands, special
        )
        self.attributes = attributes = Attributes(
            project, store, classes, names, members, containers, outside, calling, commands, special
        )
        by_text = ByText(project, tree, store, classes, containers, attributes, calling, special)
        fitting = Fitting(tree, classes)
        dispatch = Dispatch(
            tree, store, classes, members, containers, outside, calling, fitting, commands, by_text, special
        )
        self.interpreter = Interpreter(
            tree, store, classes, names, containers, outside, calling, attributes, dispatch, special
        )
        self.entering = Entering(tree, store, containers, calling, commands, by_text)
        self.callers = Callers(tree, store, classes, members)
        special.attach(self)

    def run(self) -> None:
        """Find out all there is."""
        self.store.settle(self.interpreter.execute)


class Program:
    """A linked project: ask it for the values of an expression, the calls, and what stands round a node.

    Args:
        project: all files.
        files: those that are linked.
        special: what is known of objects from outside with rules of their own.
    """

    def __init__(self, project: Project, files: Iterable[SourceFile], special: Special | None = None) -> None:
        self.project = project
        self.special = special or Nothing()
        self._tree = tree = Tree(files)
        linker = Linker(project, tree, self.special)
        linker.run()
        if self.special.learns():
            linker = Linker(project, tree, self.special)
            linker.run()
        self._linker = linker
        self._answers: dict[tuple, tuple] = {}
        """What ``context.once`` keeps."""

        # The trees: see ``scopes.Tree``.
        self.files, self.scopes, self.modules = tree.files, tree.scopes, tree.modules
        self.nodes, self.order, self.by_node = tree.nodes, tree.order, tree.by_node
        self.in_order = tree.in_order
        self.scope_of, self.file_of, self.misplaced = tree.scope_of, tree.file_of, tree.misplaced
        self.parent, self.ancestors, self.statement = tree.parent, tree.ancestors, tree.statement
        self.scope, self.file, self.block, self.node = tree.scope, tree.file, tree.block, tree.node
        self.descendants, self.body, self.is_inside = tree.descendants, tree.body, tree.is_inside
        self.results = tree.results
        self.generator_of = tree.generator_of
        self.anchor, self.node_at, self.location = tree.anchor, tree.node_at, tree.location
        self.is_placed = tree.is_placed

        # What expressions may be, and calls: see ``store.Store``, ``callers.Callers`` and ``entering.Entering``.
        self.values, self.ordered, self.call = linker.store.values, linker.store.ordered, linker.store.call
        self.calls, self.callers = linker.store.in_order, linker.callers.callers
        self.targets, self.given = linker.callers.targets, linker.callers.given
        self.called_scopes, self.entered = linker.entering.called_scopes, linker.entering.entered
        self.entered_by, self.entered_itself = (
            linker.entering.entered_by_call,
            linker.entering.entered_itself,
        )

        # Names, classes, objects and containers: see the modules of these names.
        names, members = linker.names, linker.members
        self.definitions, self.variable, self.exported = names.definitions, names.variable, names.exported
        self.parameter_values, self.module_names = names.parameter_values, names.module_names
        self.reaching, self.surviving = linker.reaching.among, linker.reaching.surviving
        self.bases, self.derives = linker.classes.bases, linker.classes.derives
        self.methods, self.fields, self.getters = (
            members.methods,
            members.fields,
            linker.attributes.getters_of,
        )
        self.entries, self.contents = linker.containers.entries, linker.containers.contents

    def handed_on(self, call: Call) -> list[ast.expr]:
        """What a call gives functions of the project that they return, or something that goes through it."""
        return self._linker.handing.handed(call.callees, call.node)

    def source(self, definition: ast.AST) -> Source:
        """What a definition takes its value from."""
        return source(definition, self.parent)

    def names_of(self, node: ast.AST) -> frozenset[str]:
        """The names of what a call may call, outside the project; nothing of what is no call."""
        call = self.call(node)
        return call.names if call is not None else frozenset()

    def namespaces(self, node: ast.expr) -> list[ast.expr]:
        """The objects whose attributes an expression holds by their names: ``vars(it)``, or what has got that."""
        if isinstance(node, ast.Name):
            made = [it for it in self.definitions(node) if self.scope_of.get(id(it)) is self.scope(node)]
            found = [namespace(it.plain) for it in map(self.source, made) if it.plain is not None]
        else:
            found = [namespace(node)]
        return [it for it in found if it is not None]
