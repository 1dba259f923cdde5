"""Where values come from: the way back from an expression to the calls that make it, however it travels."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dp2ddp.analyse.api.files import (
    EXISTENCE,
    IS_THERE,
    LISTS_FOLDER,
    MAKES_EMPTY,
    NO_PATH_PARTS,
    OPENS_TEMPORARY,
    PATH_PARTS,
    WALKS_FOLDERS,
)
from dp2ddp.analyse.api.numbers import AGREED_TOGETHER
from dp2ddp.analyse.api.processes import AGREED
from dp2ddp.analyse.api.randomness import FORMATS_TIME, OF_PROCESS_OR_MACHINE
from dp2ddp.analyse.context import LOOPS, Context, once, option_names
from dp2ddp.analyse.processes.answers import is_options
from dp2ddp.analyse.processes.conditions import returned
from dp2ddp.analyse.processes.folders import may_exist
from dp2ddp.analyse.processes.writes import is_of_writer
from dp2ddp.analyse.program.calls import handed
from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.program.sources import How
from dp2ddp.analyse.program.values import Mod, full_name

_DECIDES = ast.Assign | ast.AugAssign | ast.Return | ast.Continue
"""What a handler of an exception decides by."""


@dataclass(frozen=True)
class Origin:
    """An expression that each process has its own value of; or a ``name``, after a statement that asks for files."""

    node: ast.AST
    name: str = ""


class Origins:
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
        call = self.program.call(source.value)
        if call is not None and call.names & OPENS_TEMPORARY and isinstance(definition, ast.Name):
            # The handle beside the path is each process's own.
            self._found[Origin(self.program.statement(definition), definition.id)] = None
            return
        place = source.place[0]
        for part in returned(self.context, source.value) or [source.value]:
            entries = part.elts if isinstance(part, ast.Tuple | ast.List) else []
            yield entries[place] if place is not None and place < len(entries) else part

    def _attribute(self, node: ast.Attribute) -> Iterator[ast.expr]:
        """``args.name``, ``settings.NAME``, ``path.stem``."""
        if self.files and any(is_of_writer(full_name(it)) for it in self.program.values(node)):
            self._found[Origin(_whole(self.context, node))] = None  # `wandb.run.dir`
            return
        yield from self._stored(node)
        if is_options(self.context, node.value):
            yield from self._defaults(node.attr)
        yield node.value

    def _stored(self, node: ast.Attribute) -> Iterator[ast.expr]:
        """What is stored under the name of an attribute, in an object or a module, or what a property returns."""
        values = self.program.values(node.value)
        for target, statement in self.context.attribute_assignments.get(node.attr, ()):
            if self.program.values(target.value) & values:
                yield statement.value
        for value in values:
            if isinstance(value, Mod):
                yield from self._global(value, node.attr)
        for getter in self.program.getters(node):
            results = self.program.results(self.program.scopes[getter.func.scope])
            yield from (it.value for it in results if isinstance(it, ast.Return) and it.value is not None)

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
