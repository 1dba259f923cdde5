"""A distributed branch beside: a program that can start ranks of its own, in place of DataParallel.

Such a program is converted as it runs with DataParallel. What never runs then is left out of what the collectors see,
and stays as it is. Where an option that is at hand says which way the program goes, no ranks are started for the other
one (``enabled=``); else the runtime stands aside when the program starts its own.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from pathlib import Path

from dp2ddp.analyse import wrappers
from dp2ddp.analyse.api.devices import AVAILABLE, BINDS, COUNT
from dp2ddp.analyse.api.parallel import WRAP
from dp2ddp.analyse.api.processes import LAUNCHER_VARIABLES
from dp2ddp.analyse.context import Context, is_main_guard
from dp2ddp.analyse.processes import own_ranks
from dp2ddp.analyse.processes.answers import (
    LEAVING,
    NOTHING,
    OPTION,
    Answers,
    Literal,
    Literals,
    is_options,
    is_parsed,
)
from dp2ddp.analyse.processes.conditions import is_call_of
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.facts import NO_TIER, Aside, Obstacle, OwnGroup
from dp2ddp.plan import Anchor
from dp2ddp.source import SourceFile


@dataclass(frozen=True)
class Decided:
    """A place before or ``after`` a statement, and how to say there that a program doesn't train with DataParallel."""

    at: Anchor
    after: bool
    text: str


@dataclass(frozen=True)
class Branches:
    """What is so whenever the programs train with DataParallel (``assumed``), and where they have ranks of their own.

    Both are empty where the options do not say it. ``scripts``: the programs. ``binds``: where they do not train with
    DataParallel, they make the GPUs that they use the current ones. ``alone``: identities of what only runs with
    DataParallel, and of statements which, as they were, start ranks or join their group (``starting``). ``mixed``: the
    calls that wrap a model for either. ``asks``: whether the programs may ask the environment what a launcher says of
    their own ranks. ``decided``: where they may also ask for a single process, the places
    at which it is known that they ask for another way.
    """

    assumed: Literals
    own: Literals
    scripts: frozenset[Path]
    binds: bool
    mixed: frozenset[Anchor]
    asks: bool
    decided: tuple[Decided, ...]
    alone: frozenset[int] = frozenset()
    starting: frozenset[int] = frozenset()


def separated(context: Context) -> tuple[Context, Context]:
    """The same programs, and those as they run with DataParallel: without the code that never runs then.

    Programs whose DistributedDataParallel can't be told apart from it are ``beside``: they stay as they are.
    """
    whole = context
    for again in (False, True):  # what is left out leaves fewer values to what is left
        if not any(_concerns(context, call) for call in context.program.calls):
            break
        context = _pruned(context, again)
    calls = context.program.calls
    wraps = [call for call in calls if own_ranks.wraps(context, call) and WRAP not in call.names]
    beside = {path: call.node for call in wraps for path in context.run_by(call.node)} | _alike(
        context, wraps
    )
    return (replace(whole, beside=beside), replace(context, beside=beside)) if beside else (whole, context)


def _alike(context: Context, wraps: list[Call]) -> dict[Path, ast.AST]:
    """The programs that have ranks of their own, and beside them a DataParallel that is not torch's."""
    others = [call.node for call in context.program.calls if own_ranks.is_alike(call)]
    others = [node for node in others if all(node is not call.node for call in wraps)] if wraps else []
    found: dict[Path, ast.AST] = {}
    for file in context.program.files if others else ():
        runs = context.program_runs(file)
        own = next((call.node for call in wraps if id(call.node) in runs), None)
        if own is not None and any(id(node) in runs for node in others):
            found[file.path] = own
    return found


def is_left(context: Context, obstacle: Obstacle) -> bool:
    """Whether something in the way is so for programs that stay as they are, and for no others."""
    left = (context.program.project.reaches(path) for path in context.beside)
    in_the_way = obstacle.problem is not None and obstacle.problem.forbids
    return (
        bool(in_the_way) and obstacle.path not in context.reached and any(obstacle.path in it for it in left)
    )


def _concerns(context: Context, call: Call) -> bool:
    asks = own_ranks.is_query(call) or own_ranks.wraps(context, call) or own_ranks.needs_them(context, call)
    return asks and context.runs_in_training(call.node)


def _pruned(context: Context, again: bool) -> Context:
    """Programs without what never runs; ``again``: it has been left out before, and may be all that is."""
    answers = Answers(context).read()
    branches = context.branches or _find(context, answers)
    if branches is not None:
        answers.read(branches.assumed)
    pruners = [_Pruner(file, context, answers, branches) for file in context.program.files]
    files = {pruner.file.path: pruner.pruned() for pruner in pruners}
    is_same = again and not any(it.changed for it in pruners)
    if branches is not None:
        alone = frozenset().union(*(it.noted(it.alone, is_same) for it in pruners))
        starting = frozenset().union(*(it.noted(it.starting, is_same) for it in pruners))
        branches = replace(branches, alone=alone, starting=starting)
    if is_same:
        return Context(context.program, branches)
    project = context.program.project
    project = replace(project, files={**project.files, **files})
    return Context(wrappers.linked(project, list(files.values())), branches)


def _find(context: Context, answers: Answers) -> Branches | None:
    """The programs that have ranks of their own, and which options choose them."""
    calls = [call for call in context.program.calls if context.runs_in_training(call.node)]
    own = [call.node for call in calls if own_ranks.wraps(context, call)]
    own = own or [call.node for call in calls if own_ranks.starts(context, call)]
    scripts = frozenset().union(*map(context.run_by, own))
    here = [answers.around(call.node) for call in context.wraps if context.run_by(call.node) & scripts]
    if not here:
        return None
    asked = frozenset.intersection(*(answers.around(node) for node in own))
    chosen = frozenset(it for it in asked if all(~it in literals for literals in here))
    if not chosen:
        chosen = frozenset(it for it in asked if ~it in answers.known)
    if not chosen:
        plain = frozenset(it for it in asked if it.subject.startswith(OPTION))
        chosen = plain if len(plain) == 1 and not any(plain & literals for literals in here) else NOTHING
    assumed = NOTHING
    if chosen and all(it.subject.startswith(OPTION) for it in chosen):
        others = frozenset.intersection(*here)
        options = (it for it in others if it.subject.startswith(OPTION))
        assumed = frozenset(~it for it in chosen)
        assumed |= frozenset(it for it in options if not _asks_for_gpus(context, it.subject))
    bound = [
        answers.implied(answers.around(call.node)) for call in context.program.calls if call.names & BINDS
    ]
    binds = all(any(~it in literals for literals in bound) for it in assumed)
    mixed = frozenset(context.program.anchor(it.node) for it in context.wraps if own_ranks.wraps(context, it))
    asks = any(_names_launcher_s(file.tree) for file in _files(context, scripts))
    found = Branches(assumed, chosen, scripts, binds, mixed, asks, (), starting=_starting(context))
    alone = frozenset(~it for it in found.own)
    if not found.assumed - alone:
        return found  # the runtime sees by itself that ranks are started
    decided = _decided(replace(context, branches=found), answers)
    return replace(found, decided=decided) if decided else replace(found, assumed=found.assumed & alone)


def _files(context: Context, scripts: frozenset[Path]) -> list[SourceFile]:
    """The files that programs are made of."""
    project = context.program.project
    paths = frozenset().union(*(project.reaches(path) | {path} for path in scripts))
    return [file for file in context.program.files if file.path in paths]


def _names_launcher_s(tree: ast.AST) -> bool:
    """Whether a file names a variable that a launcher sets for each rank, whatever it asks for it."""
    return any(isinstance(it, ast.Constant) and it.value in LAUNCHER_VARIABLES for it in ast.walk(tree))


def keeps_variables(context: Context, file: SourceFile) -> bool:
    """Whether what a launcher says in the environment has to stay there, for ranks that are the program's own."""
    branches = context.branches
    return branches is not None and branches.asks and file.path in branches.scripts


def choosing(context: Context, file: SourceFile) -> Iterator[ast.stmt]:
    """The statements that decide whether a program starts ranks by itself: they read options, or set one of them."""
    program, runs = context.program, context.program_runs(file)
    answers = Answers(context)
    for call in program.calls:
        if id(call.node) in runs and any(name.endswith(".parse_args") for name in call.names):
            yield program.statement(call.node)
    for literal in context.branches.assumed if context.branches is not None else ():
        for target, statement in context.attribute_assignments.get(literal.subject.removeprefix(OPTION), ()):
            if id(statement) in runs and is_options(context, target.value):
                if answers.subject(statement.value) != literal.subject:
                    yield statement


def _decided(context: Context, answers: Answers) -> tuple[Decided, ...]:
    """Where all that decides it has run in all programs, and nothing has trained; what to say there."""
    program, branches = context.program, context.branches
    files = [file for file in program.files if branches is not None and file.path in branches.scripts]
    deciders = list({id(it): it for file in files for it in choosing(context, file)}.values())
    blocks = [block for it in deciders for block in _leading_to(context, it)]
    for block in sorted(blocks, key=lambda it: program.order[id(it[0])], reverse=True):
        if any(holding(context, it, block) is None for it in deciders):
            continue
        places = list(_known_from(context, block, deciders, False))
        named = [_named(context, answers, program.scope(at), branches) for at, _ in places]  # type: ignore[arg-type]
        if all(named) and not any(after and isinstance(at, ast.Return) for at, after in places):
            texts = [" or ".join((~it).text(name) for it, name in literals) for literals in named]
            return tuple(
                Decided(program.anchor(at), after, text)
                for (at, after), text in zip(places, texts, strict=True)
            )
    return ()


def _leading_to(context: Context, decider: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The body of the function or module that a statement stands in, then of those that call it, from the one place."""
    seen: set[int] = set()
    statement: ast.stmt | None = decider
    while statement is not None:
        yield _function_body(context, statement)
        scope = context.program.scope(statement).index
        calls = [it for it in context.callers.get(scope, ()) if context.runs_in_training(it)]
        seen.add(scope)
        alone = len(calls) == 1 and context.program.scope(calls[0]).index not in seen
        statement = context.program.statement(calls[0]) if alone else None


def _known_from(
    context: Context, block: list[ast.stmt], deciders: list[ast.stmt], known: bool
) -> Iterator[tuple[ast.stmt, bool]]:
    """Places of a block, before a statement or (True) behind it: behind what decides it, before what wraps a model.

    A statement that does both is looked into, or into the functions that it calls. ``known``: whether something above
    the block has decided it.
    """
    program = context.program
    last = None
    for statement in block:
        runs = context.runs(statement)
        deciding = [it for it in deciders if id(it) in runs]
        if not any(id(call.node) in runs for call in context.wraps):
            last, known = (statement, True) if deciding else (last, known)
        elif deciding:
            inner = list(_blocks(statement))
            if not any(it in deciding for part in inner for it in _running(context, part)):
                inner = [list(it.body) for it in {id(it): it for it in map(program.scope, deciding)}.values()]
            for part in inner:
                yield from _known_from(context, part, deciders, True)
            last, known = None, False
        else:
            whole = next(_blocks(statement), None) is None
            calls = map(program.call, program.descendants(statement) if whole else ())
            if known and not any(call is not None and own_ranks.starts(context, call) for call in calls):
                yield (statement, False) if last is None else (last, True)
            last, known = None, False
    if last is not None:
        yield last, True


def _blocks(statement: ast.AST) -> Iterator[list[ast.stmt]]:
    """The blocks that a statement is made of."""
    for _, value in ast.iter_fields(statement):
        parts = value if isinstance(value, list) else []
        if parts and isinstance(parts[0], ast.stmt):
            yield parts
        for part in parts:
            if isinstance(part, ast.ExceptHandler | ast.match_case):
                yield from _blocks(part)


def _running(context: Context, block: list[ast.stmt]) -> Iterator[ast.AST]:
    for statement in block:
        yield from context.program.descendants(statement)


def _function_body(context: Context, statement: ast.stmt) -> list[ast.stmt]:
    """The statements of the function or module that a statement stands in."""
    node = context.program.scope(statement).node
    main = (it.body for it in node.body if isinstance(it, ast.If) and is_main_guard(it.test))  # type: ignore[attr-defined]
    inside = (body for body in main if any(statement is inner for it in body for inner in ast.walk(it)))
    return next(inside, node.body)  # type: ignore[attr-defined]


def holding(context: Context, part: ast.stmt, block: list[ast.stmt]) -> ast.stmt | None:
    """The statement of a block that another one is part of, or else the first that runs it; None if none does."""
    inside = (it for it in block if any(part is node for node in context.program.descendants(it)))
    return next(inside, None) or next((it for it in block if id(part) in context.runs(it)), None)


def leaving(context: Context, file: SourceFile) -> tuple[Aside, ...]:
    """Where a program that has begun with the runtime's ranks knows that it goes another way."""
    branches = context.branches
    if branches is None or file.path not in branches.scripts:
        return ()
    return tuple(
        Aside(it.at, context.ddp(it.at.path), it.after, it.text, scripts=frozenset([file.path]))
        for it in branches.decided
    )


def _starting(context: Context) -> frozenset[int]:
    """The statements that may start ranks or join their group, by themselves or in what they call."""
    program = context.program
    waiting = [
        call.node for call in program.calls if own_ranks.starts(context, call) or own_ranks.launches(call)
    ]
    found: set[int] = set()
    while waiting:
        node: ast.AST = waiting.pop()
        for around in (node, *program.ancestors(node)):
            if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                callers = context.callers.get(program.by_node[id(around)].index, ())
                waiting += [it for it in callers if id(program.statement(it)) not in found]
                break
            if isinstance(around, ast.stmt):
                found.add(id(around))
    return frozenset(found)


def is_start(context: Context, statement: ast.stmt) -> bool:
    """Whether a statement may, as it was, start ranks of the program's own, or join their group."""
    return context.branches is not None and id(statement) in context.branches.starting


def _asks_for_gpus(context: Context, option: str) -> bool:
    """Whether an option is computed from the GPUs that there are: without them there may be ranks, too."""
    places = context.attribute_assignments.get(option.removeprefix(OPTION), ())
    return any(
        is_call_of(context, it, AVAILABLE, COUNT)
        for _, statement in places
        for it in ast.walk(statement.value)
    )


def is_shared(context: Context, node: ast.AST) -> bool:
    """Whether the distributed branch that stands beside may run some code, too."""
    if context.branches is None or not context.run_by(node) & context.branches.scripts:
        return False
    around = (node, *context.program.ancestors(node))
    return not any(id(it) in context.branches.alone for it in around)


def condition(context: Context, place: ast.AST) -> str | None:
    """How to say at a place that the program trains with DataParallel; None where no option that has a name there does.

    Empty where there is no distributed branch beside.
    """
    branches = context.branches
    if branches is None or not context.run_by(place) & branches.scripts:
        return ""
    found = _named(context, Answers(context), context.program.scope(place), branches)
    return " and ".join(literal.text(name) for literal, name in found) or None


def unsaid(context: Context, test: ast.expr, positive: bool) -> bool:
    """Whether a condition asks for an option that the ranks' start, or where they stand aside, does not ask for."""
    assumed = context.branches.assumed if context.branches is not None else NOTHING
    options = (it for it in Answers(context).said(test, positive) if it.subject.startswith(OPTION))
    return any(it not in assumed and not _asks_for_gpus(context, it.subject) for it in options)


def _named(context: Context, answers: Answers, scope: Scope, branches: Branches) -> list[tuple[Literal, str]]:
    """All that is assumed, with the names that a place has for it; empty where one has none."""
    found = []
    for literal in sorted(branches.assumed, key=lambda it: (~it not in branches.own, it)):
        names = [
            *_options(context, scope, literal.subject),
            *_parameters(context, answers, scope, literal.subject),
        ]
        if not names:
            return []
        found.append((literal, names[0]))
    return found


def _parameters(context: Context, answers: Answers, scope: Scope, option: str) -> Iterator[str]:
    """The parameters of a function that are an option."""
    for arg in scope.signature.named:
        if {answers.subject(it) for it in context.program.given(arg)} == {option}:
            yield arg.arg


def _options(context: Context, scope: Scope, option: str) -> Iterator[str]:
    """An option by the names that a place has for what the parser made of the command line."""
    program = context.program
    for around in (scope, program.modules[scope.file.path]):
        for name in sorted(around.names):
            values = program.parameter_values(around, name)
            if values and all(map(is_parsed, values)):
                yield f"{name}.{option.removeprefix(OPTION)}"


def obstacles(context: Context) -> Iterator[Obstacle]:
    """Programs that stay as they are; and those that make a group of their own in DataParallel's way, too."""
    for path, node in context.beside.items():
        yield context.obstacle(
            node,
            f"{path.name} already has a DistributedDataParallel branch and is not changed; start it "
            f"with: torchrun --nproc-per-node N {path.name} ...",
            "",
            NO_TIER,
            works=True,
        )
    for call in context.program.calls:
        joins = call.names & own_ranks.JOINS and context.runs_in_training(call.node)
        if joins and not own_ranks.is_unused(context, call):
            yield context.obstacle(
                call.node,
                f"`{ast.unparse(call.node.func)}` also runs in the DataParallel branch, where dp2ddp makes the group",
                "call it only in the distributed branch",
            )


def collect(context: Context) -> Iterator[OwnGroup]:
    """Where programs ask for a process group of their own, or start ranks so that only they see it."""
    for call in context.program.calls:
        if not context.runs_in_training(call.node):
            continue
        if own_ranks.is_query(call):
            yield OwnGroup(**context.place(call.node))
        elif own_ranks.opens(context, call) or own_ranks.launches(call):
            yield OwnGroup(**context.place(context.program.statement(call.node)), starts=True)
        elif call.names & own_ranks.JOINS and own_ranks.is_unused(context, call):
            name = ast.unparse(call.node.func).partition(".")[0]
            yield OwnGroup(**context.place(context.program.statement(call.node)), unused=name)


class _Pruner(ast.NodeTransformer):
    """Takes the branches out of a file that never run; one that is left alone stays under True."""

    def __init__(
        self, file: SourceFile, context: Context, answers: Answers, branches: Branches | None
    ) -> None:
        self.file = file
        self.context = context
        self.answers = answers
        self.own = branches.own if branches is not None else NOTHING
        self.tree = copy.deepcopy(file.tree)
        self.twins = {id(new): old for old, new in zip(ast.walk(file.tree), ast.walk(self.tree), strict=True)}
        self.changed = False
        self.alone, self.starting = (
            {new for new, old in self.twins.items() if branches is not None and id(old) in before}
            for before in ((branches.alone, branches.starting) if branches is not None else ((), ()))
        )

    def pruned(self) -> SourceFile:
        return replace(self.file, tree=self.visit(self.tree))

    def noted(self, nodes: Set[int], before: bool) -> set[int]:
        """Nodes of the copy; ``before``: what they are copies of."""
        return {id(self.twins[it]) for it in nodes} if before else {*nodes}

    def visit_If(self, node: ast.If) -> ast.AST:
        answer = self._answer(node)
        self.generic_visit(node)
        if answer is not None:
            self.changed |= not (answer and _is_alone(node))
            left = node.body if answer else node.orelse
            node.test, node.orelse = ast.copy_location(ast.Constant(True), node.test), []
            node.body = left or [ast.copy_location(ast.Pass(), node)]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        answer = self._answer(node)
        self.generic_visit(node)
        self.changed |= answer is not None
        return node if answer is None else node.body if answer else node.orelse

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        scope = self.context.program.by_node.get(id(self.twins[id(node)]))
        trained = self.context.runs_in_training(self.twins[id(node.body[0])])
        never = scope is not None and trained and self.answers.never_runs(scope)
        self.generic_visit(node)
        if never:
            self.changed |= not (len(node.body) == 1 and isinstance(node.body[0], ast.Pass))
            node.body = [ast.copy_location(ast.Pass(), node.body[0])]
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name, block in ast.iter_fields(node):
            if isinstance(block, list):
                ends = (place for place, it in enumerate(block, 1) if _always_leaves(it))
                end = next(ends, len(block))
                self.changed |= end < len(block)
                setattr(node, name, block[:end])
        return node

    def _answer(self, node: ast.If | ast.IfExp) -> bool | None:
        """The only answer that a condition has; None if it may have both."""
        old: ast.If | ast.IfExp = self.twins[id(node)]  # type: ignore[assignment]
        if not self.context.runs_in_training(old):
            return None
        for answer in (True, False):
            body = node.body if answer else node.orelse
            ways = self._ways(old.test, answer)
            if ways and all(self.answers.contradict(way, self.own) for way in ways):
                self.alone |= {id(part) for part in (body if isinstance(body, list) else [body])}
        return self.answers.answer(old)

    def _ways(self, test: ast.expr, answer: bool) -> list[Literals]:
        """What is so in each case of a condition's answer.

        A flag beside counts for nothing: `if args.local_rank == -1 or args.no_cuda` is about DataParallel, too.
        """
        if not (answer and isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or)):
            return [self.answers.said(test, answer)]
        ways = [self.answers.said(it) for it in test.values]
        flags = [
            way for way in ways if len(way) == 1 and all(not it.comparison and it.positive for it in way)
        ]
        return [way for way in ways if way not in flags]


def _is_alone(node: ast.If) -> bool:
    """``if True: …``, what is left of a condition."""
    return isinstance(node.test, ast.Constant) and node.test.value is True and not node.orelse


def _always_leaves(statement: ast.AST) -> bool:
    """``if True: return``, what is left of a condition: nothing behind it ever runs."""
    match statement:
        case ast.If(test=ast.Constant(value=True), body=[*_, last], orelse=[]):
            return isinstance(last, LEAVING) or _always_leaves(last)
    return False
