"""How the paths end that a program reads and writes: two that end differently are not the same file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from itertools import islice, product

from dp2ddp import texts
from dp2ddp.analyse.api.files import (
    ADDED_ENDINGS,
    ANY_CHARACTERS,
    BETWEEN_PATHS,
    FILE_PATHS,
    JOINS_PATHS,
    LISTS_PATHS,
    OPENED_PATHS,
    PATH_ARGUMENTS,
    SAME_PATH,
    WRITERS,
    WRITING_DATA,
)
from dp2ddp.analyse.api.iteration import HANDS_OUT, NUMBERS_OR_PAIRS
from dp2ddp.analyse.context import Context, once
from dp2ddp.analyse.processes.conditions import assigned, held_as, returned
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.sources import How
from dp2ddp.texts import ANY

# A text that tells no file from others of its kind.
_KIND = re.compile(r"\.?\w*")

# What is more than marks between values.
_NAMES = re.compile(r"[^\W\d_]{2}")

Endings = frozenset[str] | None


@dataclass(frozen=True)
class File:
    """What is known of a file that is read or written: how its path ends, and the expressions that it is given by.

    An ending is open, with ``*`` behind it, where the last part of the path is a value that is not known.
    """

    endings: Endings = None
    spelled: frozenset[str] = frozenset()


def may_be_same(one: File, other: File) -> bool:
    """Whether two files may be one; None: nothing is known of how a path ends."""
    return one.endings is None or other.endings is None or any(_common(one.endings, other.endings))


def are_same(one: File, other: File) -> bool:
    """Whether two files are one by what is known of them: a name, or the same expression."""
    if one.spelled & other.spelled:
        return True
    common = _common(one.endings or frozenset(), other.endings or frozenset())
    return any(not _KIND.fullmatch(it) for it in common)


def _common(one: frozenset[str], other: frozenset[str]) -> Iterator[str]:
    """What each two endings that may be of one path have in common: the shorter one, or what stands before a ``*``."""
    for a, b in product(one, other):
        if not a.endswith(ANY) and not b.endswith(ANY):
            yield from [min(a, b, key=len)] * (a.endswith(b) or b.endswith(a))
        else:
            named = [it.removesuffix(ANY) for it in (a, b) if it.endswith(ANY)]
            first = min(named, key=len)
            yield first if first in a and first in b and _NAMES.search(first) else ""


def read(context: Context, call: Call) -> File:
    """The file that a call reads, or moves: the path that it is given first, or is a method of."""
    return file(context, taken(call))


def taken(call: Call) -> list[ast.expr]:
    """The path of what a call reads, moves or takes away: what it is given first, or is a method of."""
    return call.node.args[:1] if _goes_between(call) else given(call)


def given(call: Call) -> list[ast.expr]:
    """The path that a call is given, or is a method of: the one that it writes to where it is given two."""
    if owner := _owner(call):
        return owner
    places = {FILE_PATHS[it] for it in call.names if it in FILE_PATHS}
    if len(places) == 1:
        keyword, place = places.pop()
        found = call.argument(keyword, place)
        return [found] if found is not None else []
    place = 1 if _goes_between(call) else 0
    found = call.node.args[place : place + 1]
    if not found and call.names & WRITERS:
        found = [it.value for it in call.node.keywords if it.arg in PATH_ARGUMENTS][:1]
    return [it for it in found if not isinstance(it, ast.Starred)]


def _goes_between(call: Call) -> bool:
    """Whether a call copies or moves files."""
    return bool(call.names) and all(name.startswith(BETWEEN_PATHS) for name in call.names)


def written(context: Context, call: Call) -> File:
    """The file that a call writes."""
    found = file(context, given(call))
    if _goes_between(call):
        source = read(context, call)
        known = source.endings is not None and found.endings is not None
        endings = source.endings | found.endings if known else None  # type: ignore[operator]
        return File(endings, found.spelled)
    added = {ADDED_ENDINGS[it] for it in call.names if it in ADDED_ENDINGS}
    if found.endings is not None and added:
        return File(found.endings | {it + more for it in found.endings for more in added}, found.spelled)
    return found if _owner(call) or _writes_to_given(call) else File()


def _writes_to_given(call: Call) -> bool:
    """Whether it is known that a call writes to the path that it is given."""
    if call.names and all(it in FILE_PATHS or it.startswith("pandas.") for it in call.names):
        return True
    return isinstance(call.node.func, ast.Attribute) and call.node.func.attr in WRITING_DATA


def _owner(call: Call) -> list[ast.expr]:
    """The path of which a call is a method."""
    of_path = any(name.startswith("pathlib.Path.") for name in call.names)
    return [call.node.func.value] if of_path and isinstance(call.node.func, ast.Attribute) else []


def file(context: Context, given: list[ast.expr]) -> File:
    if not given or isinstance(given[0], ast.Starred):
        return File()
    return File(_ending(context, given[0]), spelled(context, given[0]))


def is_nothing(node: ast.expr) -> bool:
    """``None``, which is no path."""
    return isinstance(node, ast.Constant) and node.value is None


@once
def spelled(context: Context, node: ast.expr, depth: int = 0) -> frozenset[str]:
    """How a path, or that of an open file, is written where it is made of something."""
    found: list[ast.expr] = []
    if isinstance(node, ast.Name):
        found = named_values(context, node)
        if not found:  # the same name is the same path where it has its value from one place
            ways = [(it, _given(context, it)) for it in context.program.definitions(node)]
            known = [it for _, values in ways for it in values] if depth < 8 and len(ways) > 1 else []
            unknown = frozenset(f"{node.id}:{id(it)}" for it, _ in ways)
            return unknown.union(*(spelled(context, it, depth + 1) for it in known))
    elif isinstance(node, ast.Attribute | ast.Subscript):
        named = named_values(context, node) if isinstance(node, ast.Attribute) else []
        inner = [it for it in named or held_as(context, node) if not is_nothing(it)]
        known = [spelled(context, it, depth + 1) for it in inner] if depth < 8 else []
        return frozenset([ast.unparse(node)]).union(*known)
    elif isinstance(node, ast.Call):
        found = held_as(context, node)
        call = context.program.call(node)
        names = call.names if call is not None else set()
        if call is not None and names & OPENED_PATHS.keys():
            found = given(call)
        elif names & SAME_PATH and len(node.args) == 1 and not isinstance(node.args[0], ast.Starred):
            found = node.args
    if depth > 8 or not found:
        return frozenset([ast.unparse(node)])
    return frozenset().union(*(spelled(context, it, depth + 1) for it in found))


def _given(context: Context, definition: ast.AST) -> list[ast.expr]:
    """What one definition of a name may give it, as far as that is seen."""
    if isinstance(definition, ast.arg):
        return context.program.given(definition)
    value = context.program.source(definition).plain
    return [] if value is None else [value]


@once
def _ending(context: Context, node: ast.expr, depth: int = 0) -> Endings:
    """The texts that a path, or the path of an open file, may end with."""
    if together := texts.parts(node):
        return _ending_together(context, together, depth) if depth <= 8 else None
    found: list[ast.expr] = []
    match node:
        case ast.Constant(value=str(text)):
            end = text.rpartition(ANY_CHARACTERS)[2]
            return frozenset([end]) if end or not text else None
        case ast.BinOp(op=ast.Div(), right=right):
            found = [right]
        case ast.Call(args=arguments):
            call = context.program.call(node)
            names = call.names if call is not None else set()
            if call is not None and names & OPENED_PATHS.keys():
                found = given(call)
            elif names & JOINS_PATHS and arguments:
                found = arguments[-1:]
            else:
                found = returned(context, node) or held_as(context, node)
        case ast.Name() | ast.Attribute():
            found = named_values(context, node) or held_as(context, node)
        case ast.Subscript():
            found = held_as(context, node)
        case ast.IfExp(body=body, orelse=other):
            found = [body, other]
    if depth > 8 or not found or any(isinstance(it, ast.Starred) for it in found):
        return None
    endings = [_ending(context, it, depth + 1) for it in found]
    return None if None in endings else frozenset().union(*endings)  # type: ignore[arg-type]


def _ending_together(context: Context, parts: list[ast.expr | None], depth: int) -> Endings:
    """How a path ends that is put together: where its last part is a value, with what stands before that."""
    *before, last = parts
    if isinstance(last, ast.Constant) and not last.value:
        return _ending_together(context, before, depth) if before else None
    if last is not None and (isinstance(last, ast.Constant) or not before):
        return _ending(context, last, depth + 1)
    stems = _ending_together(context, before, depth) if before else None
    whole = _whole(context, last, depth + 1)
    if whole is not None:
        return (
            frozenset(stem + it for stem in stems or [""] for it in whole if not stem.endswith(ANY)) or whole
        )
    ends = _ending(context, last, depth + 1) if last is not None else None
    return ends if ends is not None or not stems else frozenset(f"{it.rstrip(ANY)}{ANY}" for it in stems)


@once
def _whole(context: Context, node: ast.expr | None, depth: int) -> Endings:
    """The texts that a value may be, where all are known."""
    found: list[ast.expr] = []
    match node:
        case ast.Constant(value=str(text)) if ANY_CHARACTERS not in text:
            return frozenset([text])
        case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
            found = [value]
        case ast.IfExp(body=body, orelse=other):
            found = [body, other]
        case ast.Name() | ast.Attribute():
            found = named_values(context, node)
    known = [_whole(context, it, depth + 1) for it in found] if depth <= 8 else []
    return None if None in known or not known else frozenset().union(*known)  # type: ignore[arg-type]


@once
def named_values(context: Context, node: ast.Name | ast.Attribute) -> list[ast.expr]:
    """What a name may stand for; empty where something else may be it."""
    program = context.program
    definitions = program.definitions(node)
    if definitions and all(isinstance(it, ast.arg) for it in definitions):
        given = [program.given(it) for it in definitions]  # type: ignore[arg-type]
        return [it for some in given for it in some] if all(given) else []
    around = [program.parent(it) for it in definitions]
    if around and all(isinstance(it, ast.withitem) for it in around):
        return [it.context_expr for it in around]  # type: ignore[union-attr]
    return assigned(context, node) or taken_apart(context, definitions)


def taken_apart(context: Context, definitions: list[ast.AST]) -> list[ast.expr]:
    """What a loop gives a name, or what it is in something that is unpacked; empty where that is not known."""
    found: list[ast.expr] = []
    for definition in definitions:
        source = context.program.source(definition)
        if source.value is None or source.how not in (How.ELEMENT, How.ASSIGNED):
            return []
        whole = elements(context, source.value) if source.how is How.ELEMENT else [source.value]
        parts = [part for it in whole for part in _at(context, it, source.place)]
        if not parts:
            return []
        found += parts
    return found


def _at(context: Context, node: ast.expr, place: tuple[int | None, ...], depth: int = 0) -> list[ast.expr]:
    """What stands at a place of something that is unpacked."""
    match place, node:
        case (), _:
            return [node]
        case (int(first), *rest), ast.Tuple(elts=parts) | ast.List(elts=parts) if first < len(parts):
            return _at(context, parts[first], tuple(rest), depth + 1)
        case (_, *rest), ast.ListComp(elt=part) | ast.GeneratorExp(elt=part):
            return _at(context, part, tuple(rest), depth + 1)
        case _, ast.Name() | ast.Attribute() if depth < 6:
            known = [it for name in context.program.definitions(node) for it in _given(context, name)]
            return [it for made in known for it in _at(context, made, place, depth + 1)]
        case _, ast.Call() if depth < 6:
            return [it for made in returned(context, node) for it in _at(context, made, place, depth + 1)]
    return []


@once
def elements(context: Context, node: ast.expr, depth: int = 0) -> list[ast.expr]:
    """The expressions that make the parts of a list of paths; the pattern of those that are looked for.

    What is not known to be a list stands for itself: one path may be given for several.
    """
    program = context.program
    found: list[ast.expr] = []
    if depth > 8:
        return [node]
    match node:
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
            return parts
        case ast.ListComp(elt=part) | ast.GeneratorExp(elt=part) | ast.SetComp(elt=part):
            return [part]
        case ast.Subscript(value=found_in, slice=ast.Slice()):
            found = [found_in]
        case ast.Name() | ast.Attribute():
            sources = [it for definition in program.definitions(node) for it in _sources(context, definition)]
            made = [it for whole in sources for it in elements(context, whole, depth + 1)]
            return [*made, *put_into(context, node)] or [node]
        case ast.Call(args=arguments):
            call = program.call(node)
            names = call.names if call is not None else set()
            if names & LISTS_PATHS and arguments:
                return arguments[:1]
            if names & HANDS_OUT and names & NUMBERS_OR_PAIRS:
                return _pairs([elements(context, it, depth + 1) for it in arguments], names)
            found = arguments[:1] if names & HANDS_OUT else returned(context, node)
    return [it for whole in found for it in elements(context, whole, depth + 1)] or [node]


def _sources(context: Context, definition: ast.AST) -> list[ast.expr]:
    """What a definition gives a name: arguments, or what is assigned."""
    if isinstance(definition, ast.arg):
        return context.program.given(definition)
    plain = context.program.source(definition).plain
    return [plain] if plain is not None else []


def _pairs(columns: list[list[ast.expr]], names: Set[str]) -> list[ast.expr]:
    """What ``zip()`` and ``enumerate()`` hand out."""
    if "builtins.enumerate" in names:
        columns = [[ast.Constant(0)], *columns[:1]]
    together = islice(product(*columns), 64)
    return [ast.Tuple(list(parts), ast.Load()) for parts in together]


def put_into(context: Context, name: ast.Name | ast.Attribute) -> list[ast.expr]:
    """What a function puts into a list that it has a name for."""
    return _appended(context).get((context.program.scope(name).index, ast.unparse(name)), [])


@once
def _appended(context: Context) -> dict[tuple[int, str], list[ast.expr]]:
    """What each function appends, by the names of the lists."""
    found: dict[tuple[int, str], list[ast.expr]] = {}
    for call in context.program.calls:
        func = call.node.func
        if isinstance(func, ast.Attribute) and func.attr == "append" and len(call.node.args) == 1:
            name = context.program.scope(call.node).index, ast.unparse(func.value)
            found.setdefault(name, []).append(call.node.args[0])
    return found
