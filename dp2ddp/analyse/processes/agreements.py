"""Values that every process makes for itself where all need the same: folders named by the clock, seeds, decisions.

What the main process writes under such a name, no other process finds. So the way goes back from the paths that all
processes read, and that the program writes, to clocks, folders of a process's own, listings and questions for files.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dp2ddp.analyse.api.files import (
    EXISTENCE,
    IS_THERE,
    LISTS_FOLDER,
    LISTS_STEPWISE,
    MAKES,
    MAKES_EMPTY,
    NO_PATH_PARTS,
    PATH_ARGUMENTS,
    PATH_PARTS,
    WALKS_FOLDERS,
    WRITERS,
)
from dp2ddp.analyse.api.numbers import AGREED_TOGETHER
from dp2ddp.analyse.api.processes import AGREED
from dp2ddp.analyse.api.randomness import FORMATS_TIME, OF_PROCESS_OR_MACHINE, SEED_ARGUMENTS
from dp2ddp.analyse.context import LOOPS, Context, once, option_names
from dp2ddp.analyse.processes import alike, paths
from dp2ddp.analyse.processes.answers import is_options
from dp2ddp.analyse.processes.conditions import returned
from dp2ddp.analyse.processes.downloads import asks_files, caching, is_inside, keeps_in_memory
from dp2ddp.analyse.processes.effects import all_pass, already, covered
from dp2ddp.analyse.processes.folders import is_own, may_exist
from dp2ddp.analyse.processes.writes import is_of_writer, leaves_any_file, reads_file
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.program.sources import How
from dp2ddp.analyse.program.values import Inst, Made, Mod, full_name
from dp2ddp.facts import Agreement, Effect

_DECIDES = ast.Assign | ast.AugAssign | ast.Return | ast.Continue
"""What a handler of an exception decides by."""


@dataclass(frozen=True)
class Origin:
    """An expression that each process has its own value of; or a ``name``, after a statement that asks for files."""

    node: ast.AST
    name: str = ""


def find(context: Context, effects: tuple[Effect, ...]) -> list[Origin]:
    """The values that all processes must have alike, and make each for itself: what they agree on from now on."""
    context.agreed = set()
    guards = [effect for effect in effects if effect.kind in ("guard", "test")]
    made, read = _Origins(context).of(_made(context)), _Origins(context).of(_read(context, guards))
    clocks = _Origins(context, files=False)
    found = [origin for origin in read if origin in made]
    found += [*clocks.of(_seeds(context)), *(Origin(it) for it in _decisions(context, guards))]
    cached = caching(context) if found else set()
    found = [
        it
        for it in dict.fromkeys(found)
        if not is_object(context, it.node)
        and not _is_stepwise(context, it.node)
        and _can_meet(context, it.node, guards, cached)
    ]
    context.agreed = {id(it.node) for it in found}
    return found


def listed(context: Context, effects: Iterable[Effect]) -> frozenset[int]:
    """The calls that list folders where every process reads what its own listing names."""
    guards = [effect for effect in effects if effect.kind in ("guard", "test")]
    origins = _Origins(context).of(_read(context, guards))
    origins = [it for it in origins if id(it.node) not in context.agreed]
    inside = {id(it) for origin in origins for it in context.program.descendants(origin.node)}
    return frozenset(id(it.node) for it in context.program.calls if id(it.node) in inside)


def has_own_path(context: Context, call: Call) -> bool:
    """Whether the path that a call is given has a name of each process's own: by the clock, by what is there."""
    return bool(_Origins(context).of(_path(call)))


def facts(context: Context, found: list[Origin]) -> Iterator[Agreement]:
    """Where the main process's value is taken for all."""
    for origin in found:
        what = origin.name or ast.unparse(origin.node)
        yield Agreement(**context.place(origin.node), what=what, name=origin.name)


def is_object(context: Context, node: ast.AST) -> bool:
    """Whether something may be an object of torch's or the project's: a copy of the main process's would be another."""
    values = context.program.values(node) if isinstance(node, ast.expr) else ()
    return any(
        isinstance(it, Inst) or (isinstance(it, Made) and it.name.startswith("torch.")) for it in values
    )


def _is_stepwise(context: Context, node: ast.AST) -> bool:
    """Whether a value hands out names one by one, and can't be sent."""
    call = context.program.call(node)
    return call is not None and bool(call.names & LISTS_STEPWISE)


def _can_meet(context: Context, node: ast.AST, guards: list[Effect], cached: set[int]) -> bool:
    """Whether all processes come by, one at a time nowhere: what is ``cached``, one makes first."""
    return (
        all_pass(context, node, guards)
        and not is_inside(context, node, cached)
        and not alike.in_worker(context, node)
        and not _in_rounds(context, node)
    )


def _in_rounds(context: Context, node: ast.AST) -> bool:
    """Whether a place is run once for each element: in a comprehension, but for what that goes through first."""
    kinds = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    around = (it for it in context.program.ancestors(node) if isinstance(it, kinds))
    return any(not context.program.is_inside(node, it.generators[0].iter) for it in around)


# Where values are needed


def _made(context: Context) -> Iterator[ast.expr]:
    """The paths that the program makes or writes; what stays in a temporary folder, each process does for itself."""
    for call in context.program.calls:
        if context.runs_in_training(call.node) and (
            call.names & (MAKES | WRITERS) or leaves_any_file(context, call)
        ):
            yield from (it for it in _path(call) if not is_own(context, it))


def _read(context: Context, guards: list[Effect]) -> Iterator[ast.expr]:
    """The paths that all processes read."""
    for call in context.program.calls:
        if reads_file(call) or any(name.endswith(".from_pretrained") for name in call.names):
            alone = covered(context, call.node, guards) or already(context, call.node)
            if context.runs_in_training(call.node) and not alone:
                yield from _path(call)


def _path(call: Call) -> Iterator[ast.expr]:
    yield from paths.given(call)
    yield from (it.value for it in call.node.keywords if it.arg in PATH_ARGUMENTS)


def _seeds(context: Context) -> Iterator[ast.expr]:
    for call in context.program.calls:
        if call.names & (alike.SEEDS | alike.UNSEEDED) and context.runs_in_training(call.node):
            yield from call.node.args[:1]
            yield from (it.value for it in call.node.keywords if it.arg in SEED_ARGUMENTS)


def _decisions(context: Context, guards: list[Effect]) -> Iterator[ast.expr]:
    """The conditions that ask the clock, and decide how the training goes on; and whether a file is there yet.

    That is asked by all before one makes it, where more than the file comes of making it.
    """
    for node in context.program.nodes.values():
        if isinstance(node, ast.If | ast.While) and context.runs_in_training(node):
            if alike.asks_the_clock(context, node) or _makes_more_than_a_file(context, node):
                yield node.test


def _makes_more_than_a_file(context: Context, node: ast.If | ast.While) -> bool:
    """Whether a statement makes a file that is not there, and something in memory with it."""
    if not isinstance(node, ast.If) or node.orelse or not asks_files(context, node.test):
        return False
    runs = set().union(*map(context.runs, node.body))
    leaves = any(id(it.node) in runs and leaves_any_file(context, it) for it in context.program.calls)
    return leaves and keeps_in_memory(context, node.test)


# Where they come from


class _Origins:
    """Follows values back to where they are made; ``files``: what is asked of the file system counts, too."""

    def __init__(self, context: Context, files: bool = True) -> None:
        self.context = context
        self.program = context.program
        self.files = files
        self._found: dict[Origin, None] = {}
        self._seen: set[int] = set()
        self._waiting: list[ast.expr] = []

    def of(self, nodes: Iterable[ast.expr]) -> list[Origin]:
        """Where some expressions come from."""
        self._waiting += nodes
        while self._waiting:
            node = self._waiting.pop()
            if id(node) not in self._seen:
                self._seen.add(id(node))
                self._waiting += self._behind(node)
        return list(self._found)

    def _behind(self, node: ast.expr) -> Iterator[ast.expr]:
        match node:
            case ast.Call():
                yield from self._call(node)
            case ast.Name():
                yield from self._named(node)
            case ast.Attribute():
                yield from self._named(node) if self.program.definitions(node) else self._attribute(node)
            case ast.Compare() | ast.Lambda():
                return
            case ast.IfExp(body=body, orelse=other):
                yield from (body, other)
            case ast.Subscript(value=held, slice=ast.Constant(value=key)):
                values = self.program.values(held)
                for target, statement in self.context.entry_assignments.get(key, ()):
                    if self.program.values(target.value) & values:
                        yield statement.value
                yield held
            case _:
                yield from (it for it in ast.iter_child_nodes(node) if isinstance(it, ast.expr))

    def _call(self, node: ast.Call) -> Iterator[ast.expr]:
        call = self.program.call(node)
        names = call.names if call is not None else set()
        told = [
            node.args[place]
            for name, place in FORMATS_TIME.items()
            if name in names and len(node.args) > place
        ]
        if told:
            yield from told
        elif names & OF_PROCESS_OR_MACHINE or (
            self.files and (names & (LISTS_FOLDER | WALKS_FOLDERS) or any(map(is_of_writer, names)))
        ):
            self._found[Origin(_whole(self.context, node))] = None
        elif inner := returned(self.context, node):
            for value in inner:
                if self._asked(value, node) is not None:
                    self._found[Origin(node)] = None
                else:
                    yield value
        elif _makes_text(node) or (
            not names & NO_PATH_PARTS and all(name.startswith(PATH_PARTS) for name in names)
        ):
            yield from handed(node)
            if isinstance(node.func, ast.Attribute):
                yield node.func.value
        elif isinstance(node.func, ast.Attribute) and any(name.startswith(PATH_PARTS) for name in names):
            yield node.func.value  # what may be a time, or an option of that name

    def _named(self, node: ast.Name | ast.Attribute) -> Iterator[ast.expr]:
        for definition in self.program.definitions(node):
            if isinstance(definition, ast.alias):
                yield from self._imported(definition)
            elif isinstance(definition, ast.arg):
                yield from self.program.given(definition)
            elif asking := self._asked(definition, node):
                self._found[Origin(asking, ast.unparse(node))] = None
            else:
                yield from self._assigned(definition)

    def _assigned(self, definition: ast.AST) -> Iterator[ast.expr]:
        """What a name is assigned, or taken from."""
        source = self.program.source(definition)
        if source.value is None:
            return
        if source.how is not How.ASSIGNED or not source.place:
            yield source.value
            return
        place = source.place[0]
        for part in returned(self.context, source.value) or [source.value]:
            entries = part.elts if isinstance(part, ast.Tuple | ast.List) else []
            yield entries[place] if place is not None and place < len(entries) else part

    def _attribute(self, node: ast.Attribute) -> Iterator[ast.expr]:
        """``args.name``, ``settings.NAME``, ``path.stem``."""
        values = self.program.values(node.value)
        if self.files and any(is_of_writer(full_name(it)) for it in self.program.values(node)):
            self._found[Origin(_whole(self.context, node))] = None  # `wandb.run.dir`
            return
        for target, statement in self.context.attribute_assignments.get(node.attr, ()):
            if self.program.values(target.value) & values:
                yield statement.value
        for value in values:
            if isinstance(value, Mod):
                yield from self._global(value, node.attr)
        if is_options(self.context, node.value):
            yield from self._defaults(node.attr)
        yield node.value

    def _global(self, module: Mod, name: str) -> Iterator[ast.expr]:
        for definition in self.program.exported(module.path, name):
            if not isinstance(definition, ast.alias):
                yield from self._assigned(definition)

    def _imported(self, alias: ast.alias) -> Iterator[ast.expr]:
        """What a name of another file is there."""
        statement = self.program.statement(alias)
        if isinstance(statement, ast.ImportFrom):
            here = self.program.file(alias).path
            there = self.program.project.resolve(here, statement.module or "", statement.level)
            yield from self._global(Mod(there), alias.name) if there else ()

    def _defaults(self, option: str) -> Iterator[ast.expr]:
        for names, default in _options(self.program):
            if option in names:
                yield default

    def _asked(self, made: ast.AST, use: ast.AST) -> ast.stmt | None:
        """The outermost statement that asks for files and decides what is made in it, if it is used outside."""
        around = list(self.program.ancestors(use))
        found = None
        for outer in self.program.ancestors(made) if self.files else ():
            if outer in around:
                break
            if isinstance(outer, ast.If | ast.While | ast.For | ast.Try) and self._asks(outer):
                found = outer
        return found

    def _asks(self, node: ast.If | ast.While | ast.For | ast.Try) -> bool:
        """Whether a condition asks for a file, or a loop lists them or ends by what it asks; or making one asks."""
        if isinstance(node, ast.Try):
            return self._tries(node)
        if self._mentions(node.iter if isinstance(node, ast.For) else node.test):
            return True
        inside = list(ast.walk(node)) if isinstance(node, LOOPS) else []
        ends = (
            it for it in inside if isinstance(it, ast.If) and isinstance(it.body[-1], ast.Break | ast.Return)
        )
        return any(self._mentions(it.test) for it in ends) or any(
            isinstance(it, ast.Try) and self._tries(it) for it in inside
        )

    def _tries(self, node: ast.Try) -> bool:
        """Whether a folder is made if it is not there, and something else is done where it is: it gets another name."""
        handlers = [it for it in node.handlers if it.type is None or _names(it.type) & IS_THERE]
        decided = (it for handler in handlers for it in ast.walk(handler))
        if not any(isinstance(it, _DECIDES) for it in decided):
            return False
        tried = (
            self.program.call(it) for part in node.body for it in ast.walk(part) if isinstance(it, ast.Call)
        )
        return any(call is not None and call.names & MAKES_EMPTY and not may_exist(call) for call in tried)

    def _mentions(self, test: ast.expr) -> bool:
        """Whether a condition, or what a loop goes through, asks for files."""
        calls = [self.program.call(it) for it in ast.walk(test) if isinstance(it, ast.Call)]
        names = set().union(*(call.names for call in calls if call is not None))
        return bool(names & (EXISTENCE | LISTS_FOLDER | WALKS_FOLDERS)) and AGREED not in names


@once
def _options(program: Program) -> list[tuple[set[str], ast.expr]]:
    """The options of programs that have a default, with what they are called."""
    made = [call for call in program.calls if any(it.endswith(".add_argument") for it in call.names)]
    defaults = [(option_names(call), call.argument("default")) for call in made]
    return [(names, default) for names, default in defaults if default is not None]


def _makes_text(node: ast.Call) -> bool:
    """Whether a call is of a method that texts have: what comes of it is made of the text."""
    return isinstance(node.func, ast.Attribute) and hasattr(str, node.func.attr)


def _names(kinds: ast.expr) -> set[str]:
    """The names of the exceptions that are handled."""
    return {ast.unparse(it) for it in (kinds.elts if isinstance(kinds, ast.Tuple) else [kinds])}


def _whole(context: Context, node: ast.expr) -> ast.expr:
    """The expression that is agreed on: a text made of a time, the number of the files listed."""
    around = context.program.parent(node)
    match around:
        case ast.Attribute(value=inner) if inner is node:
            return _whole(context, around)
        case ast.Call(func=function) if function is node:
            return _whole(context, around)
        case ast.Call():
            call = context.program.call(around)
            together = call is not None and call.names and call.names <= AGREED_TOGETHER
            return _whole(context, around) if together else node
        case ast.Subscript(value=inner) if inner is node:
            return _whole(context, around)
        case ast.FormattedValue():
            return context.program.parent(around)  # type: ignore[return-value]
    return node
