"""A distributed branch beside: a program that an option lets start ranks of its own, in place of DataParallel.

Such a program is converted as it runs with DataParallel. What never runs then is left out of what the collectors see,
and stays as it is; the ranks start only where the option does not ask for others (``enabled=``).
"""

from __future__ import annotations

import ast
import copy
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from dp2ddp.analyse.conditions import AVAILABLE, COUNT, assigned, is_call_of
from dp2ddp.analyse.context import Context, option_names
from dp2ddp.analyse.link import OTHER_WRAPS, Program, Scope, Value, full_name
from dp2ddp.facts import Obstacle
from dp2ddp.source import SourceFile

BINDS = {"torch.cuda.set_device", "torch.accelerator.set_device_index"}
SPAWNS = {"torch.multiprocessing.spawn", "torch.multiprocessing.start_processes"}
ENVIRONMENT = re.compile(r"\benviron\.get\(|\bgetenv\(|\bin (\w+\.)*environ\b")
OPERATORS = {
    ast.Eq: ("==", "!=", operator.eq),
    ast.Is: ("is", "is not", operator.is_),
    ast.Gt: (">", "<=", operator.gt),
    ast.GtE: (">=", "<", operator.ge),
}
OPPOSITES = {ast.NotEq: ast.Eq, ast.IsNot: ast.Is, ast.LtE: ast.Gt, ast.Lt: ast.GtE}


@dataclass(frozen=True, order=True)
class Literal:
    """What a condition says of one value: that it is true, or compares so with a constant; or the opposite.

    ``subject`` names the value wherever it is used: ``option gpu`` is ``args.gpu``, and what that is given to.
    """

    subject: str
    comparison: tuple[str, ...] = ()
    positive: bool = True

    def __invert__(self) -> Literal:
        return replace(self, positive=not self.positive)

    def text(self, name: str) -> str:
        """How it is written where the value has this name."""
        if not self.comparison:
            return name if self.positive else f"not {name}"
        word, opposite, constant = self.comparison
        return f"{name} {word if self.positive else opposite} {constant}"


Literals = frozenset[Literal]
NOTHING: Literals = frozenset()
IMPOSSIBLE: Literals = frozenset([Literal(""), ~Literal("")])
OPTION = "option "


@dataclass(frozen=True)
class Branches:
    """What is so whenever the programs train with DataParallel (``assumed``), and where they have ranks of their own.

    ``scripts``: the programs. ``binds``: where they do not train with DataParallel, they make the GPUs that they use
    the current ones. ``alone``: identities of what only runs with DataParallel.
    """

    assumed: Literals
    own: Literals
    scripts: frozenset[Path]
    binds: bool
    alone: frozenset[int] = frozenset()


def find(context: Context) -> Branches | None:
    """The distributed branch that stands beside DataParallel, if an option chooses between them."""
    return _Conditions(context).branches()


def without_own_ranks(context: Context, branches: Branches) -> Context:
    """The same programs as they run with DataParallel: without the code that never runs then."""
    pruners = [_Pruner(file, _Conditions(context), branches) for file in context.program.files]
    files = {pruner.file.path: pruner.pruned() for pruner in pruners}
    project = context.program.project
    project = replace(project, files={**project.files, **files})
    alone = frozenset().union(*(pruner.alone for pruner in pruners))
    return Context(Program(project, list(files.values())), replace(branches, alone=alone))


def is_shared(context: Context, node: ast.AST) -> bool:
    """Whether the distributed branch that stands beside may run some code, too."""
    if context.branches is None or not context.run_by(node) & context.branches.scripts:
        return False
    around = (node, *context.program.ancestors(node))
    return not any(id(it) in context.branches.alone for it in around)


def subject(context: Context, node: ast.expr) -> str:
    """One name for a value, wherever it is used."""
    return _Conditions(context).subject(node)


def condition(context: Context, place: ast.AST) -> str | None:
    """How to say at a place that the program trains with DataParallel; None where the options have no name there."""
    program = context.program
    here = program.scope(place)
    found = []
    branches = context.branches
    if branches is None or not context.run_by(place) & branches.scripts:
        return ""
    for literal in sorted(branches.assumed, key=lambda it: (~it not in branches.own, it)):
        names = [*_options(context, here, literal.subject), *_parameters(context, here, literal.subject)]
        if not names:
            return None
        found.append(literal.text(names[0]))
    return " and ".join(found)


def _parameters(context: Context, scope: Scope, option: str) -> Iterator[str]:
    """The parameters of a function that are an option."""
    args = getattr(scope.node, "args", None)
    conditions = _Conditions(context)
    for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs) if args is not None else ():
        if {conditions.subject(it) for it in context.program.given(arg)} == {option}:
            yield arg.arg


def _options(context: Context, scope: Scope, option: str) -> Iterator[str]:
    """An option by the names that a place has for what the parser made of the command line."""
    program = context.program
    for around in (scope, program.modules[scope.file.path]):
        for name in sorted(around.names):
            values = program.parameter_values(around, name)
            if values and all(map(_is_parsed, values)):
                yield f"{name}.{option.removeprefix(OPTION)}"


def obstacles(context: Context) -> Iterator[Obstacle]:
    """What a program with a distributed branch asks of a process group where it trains with DataParallel, too."""
    for call in context.program.calls if context.branches is not None else ():
        if not context.runs_in_training(call.node):
            continue
        asks = [name for name in call.names if name.startswith("torch.distributed.") or name in SPAWNS]
        if asks and "torch.distributed.is_available" not in asks:
            yield context.obstacle(
                call.node,
                f"{ast.unparse(call.node.func)}() runs in the DataParallel branch, too, which has ranks now",
                "put it under the option that chooses the distributed branch",
            )


class _Conditions:
    """What the conditions of a linked program say."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.program = context.program

    def branches(self) -> Branches | None:
        own = [call.node for call in self.program.calls if call.names & OTHER_WRAPS]
        scripts = frozenset().union(*map(self.context.run_by, own))
        wraps = [call.node for call in self.context.wraps if self.context.run_by(call.node) & scripts]
        if not wraps:
            return None
        own = [node for node in own if self.context.run_by(node)]
        asked = frozenset.intersection(*(self.around(node) for node in own))
        here = [self.around(node) for node in wraps]
        chosen = frozenset(it for it in asked if all(~it in literals for literals in here))
        if not chosen:
            plain = frozenset(it for it in asked if it.subject.startswith(OPTION))
            chosen = plain if len(plain) == 1 and not any(plain & literals for literals in here) else NOTHING
        if not chosen or not all(it.subject.startswith(OPTION) for it in chosen):
            return None
        others = frozenset.intersection(*here)
        assumed = frozenset(~it for it in chosen) | frozenset(
            it for it in others if it.subject.startswith(OPTION) and not self._asks_for_gpus(it.subject)
        )
        if any(self._is_of_the_environment(it.subject) for it in assumed | chosen):
            return None  # the ranks would read the runtime's own variables, and choose the other branch
        bound = [self._implied(self.around(call.node)) for call in self.program.calls if call.names & BINDS]
        binds = all(any(~it in literals for literals in bound) for it in assumed)
        return Branches(assumed, chosen, scripts, binds)

    def _asks_for_gpus(self, option: str) -> bool:
        """Whether an option is computed from the GPUs that there are: without them there may be ranks, too."""
        places = self.context.attribute_assignments.get(option.removeprefix(OPTION), ())
        return any(
            is_call_of(self.context, it, AVAILABLE, COUNT)
            for _, statement in places
            for it in ast.walk(statement.value)
        )

    def _is_of_the_environment(self, option: str, seen: frozenset[str] = frozenset()) -> bool:
        """Whether an environment variable, if it is set, has a say in what an option is."""
        if option in seen:
            return False
        name = option.removeprefix(OPTION)
        found: list[ast.AST] = []
        for _, statement in self.context.attribute_assignments.get(name, ()):
            tests = [it.test for it in self.program.ancestors(statement) if isinstance(it, ast.If)]
            found += [statement.value, *tests]
        for call in self.program.calls:
            if name in option_names(call):
                found += [keyword.value for keyword in call.node.keywords]
        for node in list(found):
            found += [
                value
                for it in ast.walk(node)
                if isinstance(it, ast.Name)
                for value in assigned(self.context, it)
            ]
        others = {
            OPTION + it.attr
            for node in found
            for it in ast.walk(node)
            if isinstance(it, ast.Attribute) and is_options(self.context, it.value)
        }
        return any(ENVIRONMENT.search(ast.unparse(node)) for node in found) or any(
            self._is_of_the_environment(other, seen | {option}) for other in others
        )

    def around(self, node: ast.AST) -> Literals:
        """What is so where a node runs, by the conditions round it in its function."""
        found = NOTHING
        inside = node
        for outer in self.program.ancestors(node):
            if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
                break
            if isinstance(outer, ast.If | ast.IfExp) and inside is not outer.test:
                body = outer.body if isinstance(outer.body, list) else [outer.body]
                found |= self.said(outer.test, any(part is inside for part in body))
            inside = outer
        return found

    def contradict(self, literals: Literals, assumed: Literals) -> bool:
        """Whether something can't be so where all that is assumed is."""
        every = self._implied(literals) | assumed
        equal = [(it.subject, it.comparison) for it in every if it.positive and it.comparison[:1] == ("==",)]
        several = len({subject for subject, _ in equal}) < len(equal)
        return several or any(~it in every for it in every)

    def said(self, test: ast.expr, positive: bool = True) -> Literals:
        """What is so where a condition is true, or where it is not."""
        match test:
            case ast.UnaryOp(op=ast.Not()):
                return self.said(test.operand, not positive)
            case ast.BoolOp() if isinstance(test.op, ast.And) is positive:
                return NOTHING.union(*(self.said(value, positive) for value in test.values))
            case ast.Compare(ops=[ast.In()], comparators=[ast.List() | ast.Tuple() as known]) if not positive:
                equal = [ast.Compare(test.left, [ast.Eq()], [it]) for it in known.elts]
                return NOTHING.union(*(self.said(it, False) for it in equal))
            case ast.Compare(ops=[ast.NotIn()]) if positive:
                return self.said(ast.Compare(test.left, [ast.In()], test.comparators), False)
            case ast.Compare(ops=[kind], comparators=[right]):
                return self._compared(test.left, type(kind), right, positive)
            case ast.Name() | ast.Attribute():
                return frozenset([replace(Literal(self.subject(test)), positive=positive)])
        return NOTHING

    def _compared(self, left: ast.expr, kind: type, right: ast.expr, positive: bool) -> Literals:
        if kind in OPPOSITES:
            kind, positive = OPPOSITES[kind], not positive
        constant = _constant(right)
        if kind not in OPERATORS or constant is None:
            return NOTHING
        word, opposite, compare = OPERATORS[kind]
        known = [_constant(it) for it in self._given(left)]
        if known and None not in known and kind is not ast.Is:
            answers = {compare(value, constant[0]) for (value,) in known}  # type: ignore[misc]
            return IMPOSSIBLE if answers == {not positive} else NOTHING
        comparison = (word, opposite, ast.unparse(right))
        return frozenset([Literal(self.subject(left), comparison, positive)])

    def _given(self, node: ast.expr) -> list[ast.expr]:
        """What the calls of a function give for the parameter that a name is; nothing for others."""
        definitions = self.program.definitions(node) if isinstance(node, ast.Name) else []
        alone = definitions[0] if len(definitions) == 1 else None
        return self.program.given(alone) if isinstance(alone, ast.arg) else []

    def subject(self, node: ast.expr, depth: int = 0) -> str:
        """One name for a value, wherever it is used."""
        given = self._given(node) if depth < 6 else []
        names = {self.subject(it, depth + 1) for it in given}
        if len(names) == 1:
            return names.pop()
        if isinstance(node, ast.Attribute) and is_options(self.context, node.value):
            return OPTION + node.attr
        if isinstance(node, ast.Name) and id(node) in self.program.nodes:
            found = [it for it in self.program.definitions(node) if not isinstance(it, ast.arg)]
            statement = self.program.statement(found[0]) if len(found) == 1 else None
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Attribute) and depth < 6:
                return self.subject(statement.value, depth + 1)
        known = id(node) in self.program.nodes
        return f"{self.program.scope(node).index if known else ''} {ast.unparse(node)}"

    def _implied(self, literals: Literals) -> Literals:
        """These, and what follows from how options are computed from others: ``a.x = a.y > 1 or a.z``."""
        found = set(literals)
        for literal in literals:
            for option, value in self._computed:
                whole = Literal(option)
                if literal == whole or literal == ~whole:
                    found |= self.said(value, literal.positive)
                elif isinstance(value, ast.BoolOp) and isinstance(value.op, ast.Or):
                    if any(self.said(it) == {literal} for it in value.values):
                        found.add(whole)
        return frozenset(found)

    @property
    def _computed(self) -> Iterator[tuple[str, ast.expr]]:
        """The options that a program computes, each in one place."""
        for name, places in self.context.attribute_assignments.items():
            found = [it.value for target, it in places if is_options(self.context, target.value)]
            if len(found) == 1:
                yield OPTION + name, found[0]


def is_options(context: Context, node: ast.expr) -> bool:
    """Whether an expression is what a parser made of the command line."""
    values = context.program.values(node)
    return bool(values) and all(map(_is_parsed, values))


def _is_parsed(value: Value) -> bool:
    return full_name(value).endswith(".parse_args")


def _constant(node: ast.expr) -> tuple[object] | None:
    """The value of a literal, in a tuple: it may be None."""
    try:
        return (ast.literal_eval(node),)
    except (ValueError, TypeError):
        return None


class _Pruner(ast.NodeTransformer):
    """Takes the branches out of a file that contradict what is assumed; one that is left alone stays under True."""

    def __init__(self, file: SourceFile, conditions: _Conditions, branches: Branches) -> None:
        self.file = file
        self.conditions = conditions
        self.branches = branches
        self.tree = copy.deepcopy(file.tree)
        self.twins = {id(new): old for old, new in zip(ast.walk(file.tree), ast.walk(self.tree), strict=True)}
        self.alone: set[int] = set()

    def pruned(self) -> SourceFile:
        return replace(self.file, tree=self.visit(self.tree))

    def visit_If(self, node: ast.If) -> ast.AST:
        answer = self._answer(node)
        self.generic_visit(node)
        if answer is not None:
            left = node.body if answer else node.orelse
            node.test, node.orelse = ast.copy_location(ast.Constant(True), node.test), []
            node.body = left or [ast.copy_location(ast.Pass(), node)]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        answer = self._answer(node)
        self.generic_visit(node)
        return node if answer is None else node.body if answer else node.orelse

    def _answer(self, node: ast.If | ast.IfExp) -> bool | None:
        """The only answer that a condition has; None if it may have both."""
        test: ast.expr = self.twins[id(node)].test  # type: ignore[attr-defined]
        said = {answer: self.conditions.said(test, answer) for answer in (True, False)}
        for answer in (True, False):
            body = node.body if answer else node.orelse
            # `if args.local_rank == -1 or args.no_cuda` is about DataParallel, too.
            or_ = answer and isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or)
            ways = [self.conditions.said(it) for it in test.values] if or_ else [said[answer]]
            if any(self.conditions.contradict(way, self.branches.own) for way in ways):
                self.alone |= {id(part) for part in (body if isinstance(body, list) else [body])}
        never = [it for it in said if self.conditions.contradict(said[it], self.branches.assumed)]
        return not never[0] if never else None
