"""What all collectors need: the linked program, the programs in it that train, and free names."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, field
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dp2ddp.analyse.api.downloads import OPENS_URL, STORES
from dp2ddp.analyse.api.files import EXISTENCE
from dp2ddp.analyse.api.iteration import HANDS_OUT, ITERATION, OWN_ITERATION, SAMPLER_ARGUMENTS
from dp2ddp.analyse.api.layers import BACKWARD_STEPS, BACKWARDS, ENABLES_GRADIENTS, LAYER_HOMES, NO_GRADIENTS
from dp2ddp.analyse.api.naming import LOADER
from dp2ddp.analyse.api.parallel import FUNCTION, STEP_FUNCTIONS, WRAP
from dp2ddp.analyse.api.processes import RUNTIME_NAMES
from dp2ddp.analyse.program import iterators, reach
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.iterators import Handing
from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.values import (
    Bound,
    Cls,
    Coll,
    Ext,
    Func,
    Inst,
    Made,
    Value,
    Values,
    closure,
    full_name,
)
from dp2ddp.analyse.wrappers import Wrappers
from dp2ddp.facts import ANY_TIER, Assumption, Obstacle, Problem, Tier
from dp2ddp.plan import Anchor
from dp2ddp.source import RUNTIME, Project, SourceFile

if TYPE_CHECKING:
    from dp2ddp.analyse.dataflow import kinds
    from dp2ddp.analyse.processes.branches import Branches

LOOPS = (ast.For, ast.AsyncFor, ast.While)
# A part of a wrapped model by its name in a checkpoint.
PREFIXED = re.compile(r"module\.\w[\w.]*")
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_Answer = TypeVar("_Answer")


def is_main_guard(test: ast.expr) -> bool:
    """``if __name__ == "__main__"``."""
    match test:
        case ast.Compare(
            left=ast.Name(id="__name__"), ops=[ast.Eq()], comparators=[ast.Constant(value="__main__")]
        ):
            return True
        case ast.Compare(
            left=ast.Constant(value="__main__"), ops=[ast.Eq()], comparators=[ast.Name(id="__name__")]
        ):
            return True
    return False


@dataclass(frozen=True)
class Rounds:
    """What the rounds of a training run before a rank has the whole batch again, and only after that: identities.

    ``apart``: what evaluations run, which no rank has the whole batches of.
    """

    before: frozenset[int] = frozenset()
    after: frozenset[int] = frozenset()
    apart: frozenset[int] = frozenset()

    @cached_property
    def behind(self) -> frozenset[int]:
        """What only runs with whole batches, on all ranks alike."""
        return self.after - self.apart


@dataclass
class Context:
    """A linked program with what the collectors ask of it again and again."""

    program: Program
    branches: Branches | None = None
    beside: dict[Path, ast.AST] = field(default_factory=dict)
    """Programs that have DistributedDataParallel already, which can't be told apart, and where: they stay as such."""
    agreed: set[int] = field(default_factory=set)
    """Identities of the nodes whose values the processes agree on."""
    hands_lists: bool = False
    """Whether a batch of the training may hold a list with an entry for each sample, of any size."""
    lists_are_entries: bool = False
    """Whether it may, and can't hold a list of several tensors with a row for each sample."""
    joins_samples: bool = False
    """Whether parts are taken of batches that may hold the numbers of all samples one after the other."""
    put_together: dict[int, str] = field(default_factory=dict)
    """Loaders whose batches are put together whole, of which parts are taken then, and what needs them whole."""
    handed: dict[int, kinds.Value] = field(default_factory=dict)
    """What such loaders hand out, where there are numbers for all samples in it."""
    assumes: bool = False
    """Whether what is not known of a loss is taken to be as it has to be."""
    taken: dict[int, kinds.Value] = field(default_factory=dict)
    """What is taken to be so: places whose values are not known, by their identities, and what they are then."""
    evaluated_apart: frozenset[int] = frozenset()
    """What rounds of the training run in functions that evaluate, and are given nothing of a batch: identities."""
    joined: Rounds = Rounds()
    """Where parts of batches are joined in each round of the training (see ``training.joints``)."""
    _names: dict[Path, set[str]] = field(default_factory=dict)
    _ddp: dict[Path, str] = field(default_factory=dict)
    _entered: dict[frozenset[int], frozenset[int]] = field(default_factory=dict)
    _program_runs: dict[Path, set[int]] = field(default_factory=dict)
    _imported: dict[Path, set[int]] = field(default_factory=dict)
    _handings: dict[Cls, Handing | None] = field(default_factory=dict)
    _generated: dict[Cls, ast.For | None] = field(default_factory=dict)
    _own_loaders: dict[Cls, Call | None] = field(default_factory=dict)
    _answers: dict[tuple, tuple] = field(default_factory=dict)
    """What ``once`` keeps."""

    @property
    def wrappers(self) -> Wrappers:
        """What is known of classes and objects that wrap models."""
        assert isinstance(self.program.special, Wrappers)
        return self.program.special

    # Names

    def names(self, path: Path) -> set[str]:
        """Every identifier that a file uses, and the ones promised to new code."""
        if path not in self._names:
            self._names[path] = set(self.program.project.files[path].identifiers)
        return self._names[path]

    def fresh(self, path: Path, wanted: str) -> str:
        """A name for new code that nothing in the file uses yet."""
        taken = self.names(path)
        name, count = wanted, 2
        while name in taken:
            name, count = f"{wanted}_{count}", count + 1
        taken.add(name)
        return name

    def ddp(self, path: Path) -> str:
        """What the runtime is called in a file: as it was imported there, else ``ddp`` if that name is free."""
        if path not in self._ddp:
            imported = _runtime_name(self.program.project, path)
            free = (name for name in RUNTIME_NAMES if name not in self.names(path))
            self._ddp[path] = imported or next(free)
        return self._ddp[path]

    def place(self, node: ast.AST) -> dict[str, Any]:
        """What every fact about a node holds: where it is, and which programs run it."""
        anchor = self.program.anchor(node)
        return {"at": anchor, "ddp": self.ddp(anchor.path), "scripts": self.run_by(node)}

    def obstacle(
        self,
        node: ast.AST,
        message: str,
        help: str,
        forbids: frozenset[Tier] = ANY_TIER,
        works: bool = False,
        assumes: str = "",
        cause: ast.AST | None = None,
        gist: str = "",
        of_parts: bool = False,
    ) -> Obstacle:
        """Something at a node that is in the way: what, and what a person can do.

        ``assumes``: what has to hold there for it not to be in the way, where that is not known. ``cause``: the node
        that it comes from, where that is another one. ``gist``: what is there, in a few words. ``of_parts``: see
        ``Problem``.
        """
        assumed = (self.assumption(node, assumes),) if assumes else ()
        problem = Problem(
            message, help, forbids, works, assumed, cause=self.cause(cause), gist=gist, of_parts=of_parts
        )
        return Obstacle(**self.place(node), problem=problem)

    def cause(self, node: ast.AST | None) -> Anchor | None:
        """The place of a node that something comes from, if it has one in the project."""
        return self.program.anchor(node) if node is not None and id(node) in self.program.file_of else None

    def assumption(self, node: ast.AST, text: str) -> Assumption:
        """What has to hold at a node, and is not known."""
        return Assumption(self.program.anchor(node), " ".join(text.split()))

    # Programs

    @cached_property
    def wraps(self) -> list[Call]:
        """Every place that gives a model to nn.DataParallel, or makes replicas of one by hand."""
        return [call for call in self._wraps if not self._is_switched_off(call.node)]

    @cached_property
    def idle_wraps(self) -> list[Call]:
        """The same under conditions that never hold: ``if parallel:``, where no call asks for that."""
        return [call for call in self._wraps if self._is_switched_off(call.node)]

    @cached_property
    def _wraps(self) -> list[Call]:
        return [call for call in self.program.calls if WRAP in call.names or self.replicates(call)]

    def _is_switched_off(self, node: ast.AST) -> bool:
        """Whether a parameter that has one constant value in all calls of its function keeps a place from running."""
        inside = node
        for around in self.program.ancestors(node):
            if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                return False
            if isinstance(around, ast.If | ast.IfExp) and inside is not around.test:
                body = around.body if isinstance(around, ast.If) else [around.body]
                answers = self._truths(around.test)
                if answers and (inside in body) not in answers:
                    return True
            inside = around
        return False

    def _truths(self, test: ast.expr, depth: int = 0) -> set[bool]:
        """What constants that a parameter is given answer; empty where it may be given others."""
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return {not it for it in self._truths(operand, depth)}
            case ast.Constant(value=value) if depth:
                return {bool(value)}
            case ast.Name() if depth < 5:
                found = self.program.definitions(test)
                given = (
                    self.program.given(found[0]) if len(found) == 1 and isinstance(found[0], ast.arg) else []
                )
                answers = [self._truths(it, depth + 1) for it in given]
                return set().union(*answers) if all(answers) else set()
        return set()

    def replicates(self, call: Call) -> bool:
        """Whether a call makes replicas of a model, outside of a DataParallel of the project's own."""
        return not self.in_own_wrapper(call) and any(
            STEP_FUNCTIONS.get(name) == "replicate" for name in call.names
        )

    def in_own_wrapper(self, call: Call) -> bool:
        """Whether a call stands in a DataParallel of the project's own."""
        scope: Scope | None = call.scope
        while scope is not None and scope.owner not in self.wrappers.classes:
            scope = scope.parent
        return scope is not None

    @cached_property
    def backwards(self) -> list[ast.Call]:
        """Every ``loss.backward()``, ``optimizer.backward(loss)``, and call of what takes a loss to do that."""
        found = [call for call in self.program.calls if self.method(call.node) == "backward"]
        passes = {id(call.node) for call in found}
        return [call.node for call in found if not self._runs_own(call) & passes]

    def _runs_own(self, call: Call) -> frozenset[int]:
        """What a call of a method of the project's own runs: ``self.backward(loss)``, which calls the loss's."""
        is_own = any(isinstance(it, Func | Bound) for it in call.callees)
        return self._runs_in(self.program.entered(call.node)) if is_own else frozenset()

    def method(self, node: ast.Call) -> str:
        """The name of the method that is called: of a call that is a backward pass by another name, ``backward``."""
        call = self.program.call(node)
        if call is not None and self.takers(call):
            return "backward"
        return node.func.attr if isinstance(node.func, ast.Attribute) else ""

    def takers(self, call: Call) -> frozenset[str]:
        """What a call is of that takes a loss and makes its backward pass: by name, or as a class derived from it."""
        names = call.names
        if not self.program.entered(call.node):
            bases = (
                base for it in call.callees if isinstance(it, Inst) for base in self.program.bases(it.cls)
            )
            names |= {f"{full_name(base)}.__call__" for base in bases}
        return names & BACKWARDS.keys()

    def loss(self, backward: ast.Call) -> ast.expr:
        """The loss that a backward pass starts from; of several, the collection."""
        call = self.program.call(backward)
        names = self.takers(call) if call is not None else ()
        for name in names:
            match given := call.argument(BACKWARDS[name][0], 0):  # type: ignore[union-attr]
                case ast.List(elts=[alone]) | ast.Tuple(elts=[alone]):
                    return alone
                case ast.expr():
                    return given
        if not isinstance(backward.func, ast.Attribute):
            return backward
        owner = backward.func.value
        optimizes = any(self.optimizes(value) for value in self.program.values(owner))
        return backward.args[0] if optimizes and len(backward.args) == 1 else owner

    @cached_property
    def steps(self) -> list[ast.Call]:
        """Every call of a method ``step``: of optimizers, schedulers, scalers; and of what makes that step, too."""
        return [
            it.node
            for it in self.program.calls
            if getattr(it.node.func, "attr", "") == "step" or self.takers(it) & BACKWARD_STEPS
        ]

    @cached_property
    def closures(self) -> set[int]:
        """The functions whose loss an optimizer steps by, as often as it likes: ``optimizer.step(closure)``."""
        given = (it for step in self.steps for it in handed(step))
        functions = (
            value.func if isinstance(value, Bound) else value
            for expression in given
            for value in self.program.values(expression)
        )
        return {function.scope for function in functions if isinstance(function, Func)}

    def optimizes(self, value: Value) -> bool:
        """Whether a value is an optimizer."""
        bases = self.program.bases(value.cls) if isinstance(value, Inst) else [value]
        return any("optim" in full_name(base).rpartition(".")[0] for base in bases)

    @cached_property
    def loaders(self) -> list[Call]:
        """Every DataLoader that is made, those of derived classes, too."""
        return [call for call in self.program.calls if LOADER in call.names or self.is_derived_loader(call)]

    @cached_property
    def runs_before_own(self) -> frozenset[int]:
        """Identities of what makes the batches that stand as a loader's, before a rank takes its part of them."""
        own = (it for it in self.program.nodes.values() if hasattr(it, "own_batch"))
        return frozenset[int]().union(*map(self.runs, own))

    @cached_property
    def whole_loaders(self) -> set[int]:
        """The loaders of which loops of the training get whole batches, the same on all ranks, to take parts later."""
        sources = [it.whole_source for it in self.program.nodes.values() if hasattr(it, "whole_source")]
        return set().union(*(self.made(self.iterated(self.program.values(it)), LOADER) for it in sources))

    def runs(self, node: ast.AST) -> frozenset[int]:
        """Identities of all nodes that running a piece of code may run, through calls too."""
        return self._runs_in(self.program.entered(node)).union(map(id, self.program.descendants(node)))

    def runs_one_of(self, node: ast.AST, nodes: Set[int]) -> bool:
        """Whether running a piece of code may run one of some nodes, by their identities."""
        called = self._runs_in(self.program.entered(node))
        return not called.isdisjoint(nodes) or any(id(it) in nodes for it in self.program.descendants(node))

    def _runs_in(self, entered: frozenset[int]) -> frozenset[int]:
        """Identities of all nodes that run when some functions do: many places enter the same ones."""
        if entered not in self._entered:
            bodies = (self.program.body(self.program.scopes[index]) for index in entered)
            self._entered[entered] = frozenset(id(node) for body in bodies for node in body)
        return self._entered[entered]

    @cached_property
    def callers(self) -> dict[int, list[ast.Call]]:
        """The calls that enter each function, directly."""
        found: dict[int, list[ast.Call]] = {}
        for call in self.program.calls:
            for scope in self.program.called_scopes(call.node):
                found.setdefault(scope, []).append(call.node)
        return found

    def program_runs(self, file: SourceFile) -> set[int]:
        """All nodes that running a file as a program may run, those of the modules that it imports included."""
        if file.path not in self._program_runs:
            imported = self.program.project.reaches(file.path) - {file.path}
            every = [self.runs(statement) for statement in file.tree.body]
            every += [self.runs_when_imported(path) for path in imported]
            self._program_runs[file.path] = set().union(*every)
        return self._program_runs[file.path]

    def runs_when_imported(self, path: Path) -> set[int]:
        """All nodes that importing a file may run, through calls too."""
        if path not in self._imported:
            statements = self._imported_statements(path)
            self._imported[path] = set().union(*(self.runs(statement) for statement in statements))
        return self._imported[path]

    def _imported_statements(self, path: Path) -> Iterator[ast.stmt]:
        """The statements that run when a file is imported: those under its main guard left out."""
        if path in self.program.modules:
            for statement in self.program.modules[path].body:
                if not (isinstance(statement, ast.If) and is_main_guard(statement.test)):
                    yield statement

    def imported_nodes(self, path: Path) -> Iterator[ast.AST]:
        """The nodes that run when a file is imported, those in functions left out."""
        for statement in self._imported_statements(path):
            yield from self.program.descendants(statement)

    def run_by(self, node: ast.AST) -> frozenset[Path]:
        """The programs which train with DataParallel that may run a node."""
        running = frozenset(file.path for file in self.scripts if id(node) in self.program_runs(file))
        home = self.program.file(node).path
        return (
            running if home not in running else frozenset(it for it in running if home in self._reached[it])
        )

    @cached_property
    def _reached(self) -> dict[Path, frozenset[Path]]:
        """The files that each program which trains imports: of another program it runs nothing without that.

        A helper that several programs give functions of theirs calls those of its own program.
        """
        return {it.path: self.program.project.reaches(it.path) for it in self.scripts}

    @cached_property
    def may_run(self) -> dict[Path, set[int]]:
        """All nodes that each program which trains may run, by whatever way."""
        return {it.path: reach.may_run(self.program, self.program_runs(it)) for it in self.scripts}

    def may_be_run_by(self, node: ast.AST) -> frozenset[Path]:
        """The programs which train with DataParallel that may run a node by a way that can't be followed."""
        return frozenset(path for path, nodes in self.may_run.items() if id(node) in nodes)

    @cached_property
    def scripts(self) -> list[SourceFile]:
        """The files that, run as programs, wrap a model in DataParallel and train it."""
        wraps = {id(call.node) for call in self.wraps}
        backwards = {id(node) for node in self.backwards}
        found = []
        for file in self.program.files:
            runs = self.program_runs(file) if file.path not in self.beside else frozenset()
            if runs & wraps and runs & backwards:
                found.append(file)
        return found

    @cached_property
    def trained(self) -> set[int]:
        """All nodes that a program which trains with DataParallel may run."""
        return set().union(*(self.program_runs(file) for file in self.scripts)) if self.scripts else set()

    @cached_property
    def reached(self) -> set[Path]:
        """All files that such a program imports, its own included."""
        project = self.program.project
        return set().union(*(project.reaches(file.path) for file in self.scripts)) if self.scripts else set()

    @cached_property
    def forwards(self) -> set[int]:
        """The functions that forwards of the project's modules run; a DataParallel of its own is none of these."""
        waiting = [
            scope
            for scope in self.program.scopes
            if isinstance(scope.node, ast.FunctionDef)
            and scope.node.name == "forward"
            and self.is_of_module(scope)
            and scope.owner not in self.wrappers.classes
        ]
        found: set[int] = set()
        while waiting:
            scope = waiting.pop()
            if scope.index not in found:
                found.add(scope.index)
                waiting += [
                    self.program.scopes[index]
                    for node in self.program.body(scope)
                    for index in (self.program.called_scopes(node) | self._own_methods(scope, node))
                ]
        return found

    def _own_methods(self, scope: Scope, node: ast.AST) -> set[int]:
        """The methods of its own that a method calls."""
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=me), attr=name)) if scope.params[:1] == [me]:
                return (
                    self.program.methods(Inst(scope.owner, 0), name, node)
                    if scope.owner is not None
                    else set()
                )
        return set()

    def runs_in_training(self, node: ast.AST) -> bool:
        return id(node) in self.trained

    @cached_property
    def trained_wraps(self) -> set[int]:
        """Identities of the wraps in programs that train them."""
        return {id(call.node) for call in self.wraps if self.runs_in_training(call.node)}

    @cached_property
    def attribute_assignments(self) -> dict[str, list[tuple[ast.Attribute, ast.Assign]]]:
        """The assignments to attributes of each name, in source order: ``args.cuda = …``."""
        found: dict[str, list[tuple[ast.Attribute, ast.Assign]]] = {}
        for node in self.program.nodes.values():
            for target in node.targets if isinstance(node, ast.Assign) else ():
                if isinstance(target, ast.Attribute):
                    found.setdefault(target.attr, []).append((target, node))
        return found

    @cached_property
    def attribute_stores(self) -> dict[str, list[tuple[ast.Attribute, ast.stmt]]]:
        """All that gives attributes of each name a value, unpacking and loops among it: ``device, args.gpus = …``."""
        found: dict[str, list[tuple[ast.Attribute, ast.stmt]]] = {}
        for node in self.program.nodes.values():
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found.setdefault(node.attr, []).append((node, self.program.statement(node)))
        return found

    @cached_property
    def entry_assignments(self) -> dict[object, list[tuple[ast.Subscript, ast.Assign]]]:
        """The assignments to entries of each constant key, in source order: ``config["cuda"] = …``."""
        found: dict[object, list[tuple[ast.Subscript, ast.Assign]]] = {}
        for node in self.program.nodes.values():
            for target in node.targets if isinstance(node, ast.Assign) else ():
                if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
                    found.setdefault(target.slice.value, []).append((target, node))
        return found

    @cached_property
    def entry_updates(self) -> list[ast.Call]:
        """The calls by which dicts are given entries by their names: ``config.update(path=folder)``."""
        return [
            it.node
            for it in self.program.calls
            if isinstance(it.node.func, ast.Attribute) and it.node.func.attr == "update"
        ]

    @cached_property
    def device_tests(self) -> set[str]:
        """Conditions that choose between ``"cuda"`` and ``"cpu"``, or stand round ``.cuda()``."""
        found = set()
        for node in self.program.nodes.values():
            if isinstance(node, ast.IfExp):
                branches = [
                    branch.value for branch in (node.body, node.orelse) if isinstance(branch, ast.Constant)
                ]
                if any(isinstance(value, str) and value.startswith("cuda") for value in branches):
                    found.add(ast.dump(node.test))
            elif isinstance(node, ast.Attribute) and node.attr == "cuda":
                found |= {
                    ast.dump(around.test)
                    for around in self.program.ancestors(node)
                    if isinstance(around, ast.If)
                }
        return found

    @cached_property
    def integer_options(self) -> set[str]:
        """Names of the programs' options that are numbers: ``add_argument("--gpu", type=int)``."""
        found = set()
        for call in self.program.calls:
            kind = call.argument("type")
            if any(name.endswith(".add_argument") for name in call.names) and isinstance(kind, ast.Name):
                if kind.id == "int" and call.argument("nargs") is None:
                    found |= option_names(call)
        return found

    @cached_property
    def downloaders(self) -> frozenset[int]:
        """The functions of the project that download a file unless it is there, and do nothing with a model."""
        found = set()
        for node in self.program.nodes.values():
            if (
                isinstance(node, ast.If)
                and self.runs_in_training(node)
                and self._called(node.test) & EXISTENCE
            ):
                called = set().union(*(self._called(statement) for statement in node.body))
                scope = self.program.scope(node)
                if called & OPENS_URL and called & STORES and isinstance(scope.node, ast.FunctionDef):
                    found.add(scope.index)
        training = self.trained_wraps | {id(node) for node in self.backwards}
        return frozenset(
            index
            for index in found
            if not any(self.runs(part) & training for part in self.program.scopes[index].body)
        )

    def _called(self, node: ast.AST) -> set[str]:
        """The full names of all that a piece of code may call."""
        nodes = (self.program.nodes.get(key) for key in self.runs(node))
        calls = (self.program.call(it) for it in nodes if isinstance(it, ast.Call))
        return {name for call in calls if call is not None for name in call.names}

    @cached_property
    def prefixing(self) -> frozenset[Path]:
        """The programs that ask for parts of checkpoints by names like ``module.encoder``: theirs keep the prefix."""
        asking = {
            self.program.file(node).path
            for node in list(self.program.nodes.values())
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and PREFIXED.fullmatch(node.value)
            and not isinstance(self.program.parent(node), ast.Expr)
        }
        reached = {it.path: self.program.project.reaches(it.path) for it in self.scripts} if asking else {}
        return frozenset(path for path, files in reached.items() if files & asking)

    # Values

    @cached_property
    def given(self) -> dict[int, ast.expr]:
        """What each wrap is given, by the identity of its call."""
        modules = ((id(call.node), self.module_of(call)) for call in self.wraps)
        return {site: module for site, module in modules if module is not None}

    def module_of(self, wrap: Call) -> ast.expr | None:
        """The model that a wrap is given."""
        if WRAP in wrap.names:
            return self.wrappers.argument(wrap, "module", 0)
        return wrap.argument("network", 0)

    @cached_property
    def wrapped(self) -> Values:
        """The modules that are wrapped."""
        return self._inside(self.given)

    @cached_property
    def trained_modules(self) -> Values:
        """The modules that are wrapped, and trained."""
        return self._inside(self.trained_wraps)

    def inside(self, value: Value) -> Values:
        """The modules that a wrapped one is made of."""
        return self._inside([value.site] if isinstance(value, Made) and value.name == WRAP else [])

    def _inside(self, sites: Iterable[int]) -> Values:
        modules = (self.given[site] for site in sites if site in self.given)
        return self.program.ordered(frozenset().union(*map(self.program.values, modules)))

    def is_wrapped(self, values: Values) -> bool:
        """Whether an expression may be a model that DataParallel wraps in a program that trains it."""
        sites = self.trained_wraps
        return any(
            (isinstance(value, Made) and value.name == WRAP and value.site in sites)
            or (isinstance(value, Ext) and value.name == FUNCTION)
            for value in values
        )

    def is_made_instead(self, value: object) -> bool:
        """Whether a model is made where none is wrapped, beside a branch that wraps one: one process trains it."""
        return isinstance(value, Inst | Made) and value.site in self._made_instead

    @cached_property
    def _made_instead(self) -> frozenset[int]:
        found = set[int]()
        for wrap in self.wraps:
            for around in self.program.ancestors(wrap.node):
                if isinstance(around, ast.If):
                    blocks = [
                        frozenset[int]().union(*({id(it) for it in ast.walk(part)} for part in block))
                        for block in (around.body, around.orelse)
                    ]
                    found |= frozenset[int]().union(
                        *(it for it in blocks if not any(id(other.node) in it for other in self.wraps))
                    )
        return frozenset(found)

    def iterated(self, values: Values) -> Values:
        """What a ``for`` really draws from: the loader behind ``enumerate``, ``tqdm`` and the like."""
        return self.program.ordered(value for value in self.behind(values) if not self.sources(value))

    def behind(self, values: Values) -> Values:
        """Values with all that they hand out the elements of."""
        return closure(
            values, lambda value: (it for node in self.sources(value) for it in self.program.values(node))
        )

    def sources(self, value: Value) -> list[ast.expr]:
        """What a value hands out the elements of, one by one: ``enumerate(x)``, ``zip(x, y)``, ``[it for it in x]``,
        ``Timed(x)``, ``bar(x)`` of a function that returns one of these.
        """
        if isinstance(value, Made) and value.name in HANDS_OUT:
            call = self.program.call(self.program.node(value.site))
            if call is not None and value.name not in call.names:  # made in a function that the call is of
                return self.program.handed_on(call)
            several = value.name == "builtins.zip"
            return [] if call is None else call.node.args if several else call.node.args[:1]
        if isinstance(value, Made) and value.name.endswith(".__iter__"):
            begun = self.program.node(value.site).func  # type: ignore[attr-defined]
            return [begun.value] if isinstance(begun, ast.Attribute) else []
        if isinstance(value, Inst):
            handed = self.handing(value)
            call = self.program.call(self.program.node(value.site)) if handed is not None else None
            given = call.argument(handed.parameter, handed.position) if call is not None else None
            if given is None and (loop := self.generated(value)) is not None:
                return [iterators.gone_through(loop)]
            return [] if given is None else [given]
        if isinstance(value, Coll):
            node = self.program.node(value.site)
            return [node.generators[0].iter] if isinstance(node, ast.ListComp) and is_copy(node) else []
        return []

    def is_of_module(self, scope: Scope) -> bool:
        """Whether a function is a method of a module."""
        return scope.owner is not None and self.module_class(Inst(scope.owner, 0))

    def generated(self, value: Inst) -> ast.For | None:
        """The loop by which an object yields each batch of a loader that it holds."""
        if value.cls not in self._generated:
            steps = [*self.program.methods(value, "__iter__", self.program.node(value.site))]
            alone = len(steps) == 1
            self._generated[value.cls] = (
                iterators.generating(self.program.scopes[steps[0]]) if alone else None
            )
        return self._generated[value.cls]

    def hands_out(self, loop: ast.AST) -> bool:
        """Whether a loop is one by which an object yields each batch of a loader that it holds."""
        scope = self.program.scope(loop)
        return getattr(scope.node, "name", "") == "__iter__" and iterators.generating(scope) is loop

    def handing(self, value: Inst) -> Handing | None:
        """How an object iterates over what it is made of, where it does so by itself alone."""
        if value.cls not in self._handings:
            found = iterators.handing(self.program, value.cls)
            steps = {
                step
                for name in ITERATION
                for step in self.program.methods(value, name, self.program.node(value.site))
            }
            self._handings[value.cls] = (
                None if found is None or steps & self.program.callers.keys() else found
            )
        return self._handings[value.cls]

    def made(self, values: Values, name: str) -> set[int]:
        """Where the objects of an outside class among some values are made; loaders may be of a derived class."""
        found = {value.site for value in values if isinstance(value, Made) and value.name == name}
        if name == LOADER:
            found |= {
                it.site for it in values if isinstance(it, Inst) and self._own_loader(it.cls) is not None
            }
        return found

    def _own_loader(self, cls: Cls) -> Call | None:
        """How a class of the project that derives from DataLoader begins it; None if it is none, or iterates itself."""
        if cls not in self._own_loaders:
            self._own_loaders[cls] = self._begun_loader(cls)
        return self._own_loaders[cls]

    def _begun_loader(self, cls: Cls) -> Call | None:
        family = self.program.bases(cls)
        if Ext(LOADER) not in family:
            return None
        bodies = [self.program.scopes[it.scope].body for it in family if isinstance(it, Cls)]
        if any(getattr(part, "name", "") in OWN_ITERATION for body in bodies for part in body):
            return None
        begun = [
            call
            for call in self.program.calls
            if f"{LOADER}.__init__" in call.names and call.scope.owner in family
        ]
        return _common(begun)

    def is_loader(self, value: Value) -> bool:
        """Whether a value is a DataLoader."""
        return bool(self.made(frozenset([value]), LOADER))

    def makes_loaders_only(self, made: ast.AST) -> bool:
        """Whether an expression that makes a loader makes nothing else: a call may make what is configured."""
        return all(map(self.is_loader, self.program.values(made)))

    def loader_call(self, site: int) -> Call | None:
        """The call that gives a loader its arguments: the one that makes it, or that of its class to DataLoader's."""
        call = self.program.call(self.program.node(site))
        return None if call is None else self.loader_arguments(call)

    def loader_arguments(self, call: Call) -> Call:
        """As ``loader_call``, for the call that makes a loader."""
        own = [
            begun
            for it in call.callees
            if isinstance(it, Cls) and (begun := self._own_loader(it)) is not None
        ]
        return own[0] if own else call

    def collates_later(self, site: int) -> list[ast.expr]:
        """What becomes the ``collate_fn`` of a loader after that has begun: its class, or the program, stores it."""
        return [
            value
            for owner, value in self._stored_collates
            if not (owners := self.program.values(owner)) or site in self.made(owners, LOADER)
        ]

    @cached_property
    def _stored_collates(self) -> list[tuple[ast.expr, ast.expr]]:
        """``loader.collate_fn = function``: whose, and what."""
        found = []
        for node in self.program.nodes.values():
            if (
                isinstance(node, ast.Attribute)
                and node.attr == "collate_fn"
                and isinstance(node.ctx, ast.Store)
            ):
                statement = self.program.statement(node)
                alone = isinstance(statement, ast.Assign) and node in statement.targets
                found.append((node.value, statement.value if alone else node))  # type: ignore[attr-defined]
        return found

    def is_derived_loader(self, call: Call) -> bool:
        """Whether a call makes loaders of a class of the project."""
        return self.loader_arguments(call) is not call

    def asks_identity(self, node: ast.AST) -> bool:
        """Whether a comparison asks which object something is, and nothing of its numbers: ``x is None``.

        So does ``x == None`` where it is a condition: elements can't be compared there.
        """
        if not isinstance(node, ast.Compare):
            return False
        if all(isinstance(it, ast.Is | ast.IsNot) for it in node.ops):
            return True
        match node:
            case ast.Compare(
                ops=[ast.Eq() | ast.NotEq()], comparators=[ast.Constant(value=None)]
            ) | ast.Compare(left=ast.Constant(value=None), ops=[ast.Eq() | ast.NotEq()]):
                around = self.program.parent(node)
                is_test = getattr(around, "test", None) is node or isinstance(around, ast.BoolOp)
                return is_test or isinstance(getattr(around, "op", None), ast.Not)
        return False

    def module_class(self, value: Value) -> bool:
        """Whether a value is a neural network module."""
        if isinstance(value, Inst):
            return any(_is_module(full_name(base)) for base in self.program.bases(value.cls))
        return _is_module(full_name(value))


def once(question: Callable[..., _Answer]) -> Callable[..., _Answer]:
    """Have a question about a context or a program, and parts of it, answered once: the answer is kept with either.

    For questions whose answer is the same as long as the program is.
    """

    @wraps(question)
    def ask(context: Context | Program, *parts: object, **options: bool) -> _Answer:
        key = (question, *map(id, parts), *options.items())
        if key not in context._answers:
            context._answers[key] = question(context, *parts, **options), parts  # whose identities stay taken
        return context._answers[key][0]

    return ask


def _is_module(name: str) -> bool:
    """Whether the full name of something outside the project is a module's, or its class's."""
    if name == WRAP:
        return True
    return name.startswith(LAYER_HOMES) and not name.startswith("torch.nn.functional")


def root_name(node: ast.AST) -> ast.Name | None:
    """The name at the root of ``x.y[z]()``."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node if isinstance(node, ast.Name) else None


def option_names(call: Call) -> set[str]:
    """What the options that ``add_argument("--batch-size", "-b")`` makes are called in the program."""
    words = (it.value for it in call.node.args if isinstance(it, ast.Constant))
    return {str(word).lstrip("-").replace("-", "_") for word in words}


def is_inserted(node: ast.AST) -> bool:
    """Whether a node is not the program's own: a wrap that stands for calls of ``data_parallel()``, or part of one."""
    return getattr(node, "inserted", False)


def is_copy(node: ast.ListComp) -> bool:
    """``[batch for batch in loader]``."""
    first, *others = node.generators
    alone = not others and not first.ifs
    return alone and isinstance(node.elt, ast.Name) and ast.unparse(first.target) == node.elt.id


def _runtime_name(project: Project, path: Path) -> str:
    """The name by which a file imports the runtime, or a copy of it."""
    for node in project.files[path].nodes:
        match node:
            case ast.ImportFrom():
                start, level = f"{node.module or ''}.", node.level
            case ast.Import():
                start, level = ".", 0
            case _:
                continue
        for alias in node.names:
            module = (start + alias.name).strip(".")
            is_bound = isinstance(node, ast.ImportFrom) or alias.asname or "." not in module
            if is_bound and (
                module == RUNTIME and start != "." or project.runtime(path, module, level) == RUNTIME
            ):
                return alias.asname or alias.name
    return ""


def disables_gradients(program: Program, around: ast.AST) -> bool:
    """Whether no gradients are computed for what stands in a block, or a function; none of it enables them again."""
    if isinstance(around, ast.With):
        managers = [item.context_expr for item in around.items]
    elif isinstance(around, ast.FunctionDef):
        managers = around.decorator_list
    else:
        return False
    if not NO_GRADIENTS & frozenset[str]().union(*map(program.names_of, managers)):
        return False
    return not any(
        ENABLES_GRADIENTS & program.names_of(it) for it in ast.walk(around) if isinstance(it, ast.Call)
    )


def _common(begun: list[Call]) -> Call | None:
    """One call for several that begin a loader in different branches, where only what they draw differs."""
    if len(begun) < 2:
        return begun[0] if begun else None
    kept = [
        {it.arg: it for it in call.node.keywords if it.arg not in ("shuffle", *SAMPLER_ARGUMENTS)}
        for call in begun
    ]
    first, *others = ({name: ast.unparse(it.value) for name, it in one.items()} for one in kept)
    if any(call.node.args for call in begun) or any(it != first for it in others):
        return None
    node = copy.copy(begun[0].node)
    node.keywords = [*kept[0].values()]
    return Call(node, begun[0].scope, begun[0].callees)
