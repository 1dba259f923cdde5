"""What is known of how things differ between processes, by function and way of calling it, and who has asked."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.program.values import NOTHING, Value, Values

# How something differs: it is of the batch, or measured of it; it does so whatever its own assignments say; there is
# more of it in one process, or only there; it is the sizes of rows, the first of which differs.
DRAWN, MEASURED, SURELY, MANY, SIZED = 1, 2, 4, 8, 16
NUMBER = DRAWN | MEASURED
CHOSEN = MEASURED | SURELY | MANY
PARTS = ast.expr | ast.keyword | ast.comprehension | ast.FormattedValue | ast.Slice
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef


@dataclass(frozen=True)
class Frame:
    """One way in which a function is called: on which objects, and with which parameters that differ.

    ``chosen``: by some processes only. ``trains``: in a training loop. ``said``: the texts that it is given for the
    parameters by which it chooses a method, ``getattr(callback, name)``.
    """

    scope: int
    me: Values = NOTHING
    given: frozenset[tuple[int, int]] = frozenset()
    chosen: bool = False
    trains: bool = False
    said: frozenset[tuple[int, str]] = frozenset()


@dataclass
class Found:
    """What is known of a function that is called in one way.

    ``names``: how its definitions differ. ``tests``: its conditions and loops that do. ``spans``: places that some
    processes skip, by their order, with what says so. ``returned``: how its result differs, ``parts`` how the entries
    of that do. ``changed``: the parameters that it changes. ``fails``: whether some processes get an exception.
    """

    names: dict[int | Keyed, int]
    tests: set[int] = field(default_factory=set)
    spans: dict[tuple[int, int], ast.AST] = field(default_factory=dict)
    returned: int = 0
    parts: tuple[int, ...] | None = None
    changed: dict[int | Keyed, int] = field(default_factory=dict)
    fails: bool = False
    known: dict[int, tuple[int, int]] = field(default_factory=dict)
    """How expressions differ, with the state of knowledge in which that was found."""
    entered: dict[int, tuple[int, list[Entry]]] = field(default_factory=dict)
    """What calls enter, likewise."""


@dataclass(frozen=True)
class Entry:
    """A function that a call enters, and what it gives the parameters."""

    frame: Frame
    given: dict[int, ast.expr]


@dataclass(frozen=True)
class Keyed:
    """What a dict holds under a key: ``held`` is what the dict is known as."""

    held: object
    key: str


def any_of(found: Iterable[int]) -> int:
    """All the ways to differ that some things have."""
    how = 0
    for it in found:
        how |= it
    return how


def key_of(node: ast.AST | None) -> str | None:
    """The key of a dict that is written out; None where it is another index."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def plainly(how: int) -> int:
    """One of a few ways to differ, so that a function is not looked at more often than it needs."""
    return CHOSEN if how & MANY else how & SURELY | (MEASURED if how & NUMBER else how)


def _is_asked(inside: ast.AST, around: ast.AST) -> bool:
    """Whether a part of a condition, or of a loop, is run whatever comes of it."""
    match around:
        case ast.If(test=test) | ast.IfExp(test=test):
            return inside is test
        case ast.For(iter=source, target=target, orelse=after) | ast.AsyncFor(
            iter=source, target=target, orelse=after
        ):
            return inside in (source, target, *after)
        case ast.BoolOp(values=[first, *_]):
            return inside is first
        case ast.Match(subject=subject):
            return inside is subject
    return False


class Store:
    """What is known so far. Who has asked for something is looked at again when more of it differs."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.frames: dict[Frame, Found] = {}
        self.frame = Frame(0)
        """The one that is looked at."""
        self.waiting: dict[Frame, None] = {}
        self.asking: dict[object, dict[Frame, None]] = defaultdict(dict)
        """Which frames ask for what: the definition of a name, a container, an attribute, another frame."""
        self.fields: dict[str, dict[Value | None, int]] = defaultdict(dict)
        self.held: dict[object, int] = {}  # what containers hold
        self.shared: dict[object, int] = {}  # definitions, as other functions see them
        self.foreign: dict[object, int] = {}  # and those whose values others change
        self._entries: dict[object, dict[str, None]] = {}
        """The keys of dicts under which something has been put, by what the dict is known as."""
        self.bodies: dict[int, list[ast.AST]] = {}
        self.state = 0
        """Counts what is found: what was asked in the same state has the same answer."""

    def of(self, frame: Frame) -> Found:
        """What is found in a frame; where that is more later, the one that is looked at is again."""
        self.asking[frame][self.frame] = None
        if frame not in self.frames:
            self.frames[frame] = Found(dict(frame.given))
            self.waiting[frame] = None
        return self.frames[frame]

    def wake(self, key: object) -> None:
        self.state += 1
        self.waiting |= self.asking.get(key, {})

    def again(self, frame: Frame) -> None:
        self.state += 1
        self.waiting[frame] = None

    def read(self, found: Mapping[Any, int], key: object, entry: str | None = None) -> int:
        """How something differs; of a dict, the ``entry`` under one key, or any where none is named."""
        entries = self._entries.get(key, ()) if entry is None else (entry,)
        return found.get(key, 0) | any_of(found.get(Keyed(key, it), 0) for it in entries)

    def known(self, found: Mapping[Any, int]) -> set[Any]:
        """All of which something is known to differ, be it under a key."""
        return {it.held if isinstance(it, Keyed) else it for it in found}

    def held_by(self, values: Values, entry: str | None = None) -> int:
        """What containers hold."""
        for value in values:
            self.asking[value][self.frame] = None
        return any_of(self.read(self.held, it, entry) for it in values)

    def body(self, scope: int) -> list[ast.AST]:
        if scope not in self.bodies:
            self.bodies[scope] = list(self.program.body(self.program.scopes[scope]))
        return self.bodies[scope]

    def decider(self, node: ast.AST, found: Found, rounds: bool = True) -> ast.AST | None:
        """What keeps some processes from coming to a place in a function, where something does.

        ``rounds``: or has some come there more often.
        """
        inside = node
        for around in self.program.ancestors(node):
            if isinstance(around, FUNCTIONS):
                break
            if id(around) in found.tests and not _is_asked(inside, around):
                if rounds or not isinstance(around, ast.For | ast.AsyncFor):
                    return around
            inside = around
        place = self.program.order.get(id(node), 0)
        within = (why for (first, last), why in found.spans.items() if first <= place <= last)
        return min(within, key=lambda why: self.program.order[id(why)], default=None)

    def is_me(self, node: ast.AST, frame: Frame) -> bool:
        scope = self.program.scopes[frame.scope]
        return bool(frame.me) and isinstance(node, ast.Name) and scope.params[:1] == [node.id]

    def owners(self, node: ast.expr, frame: Frame) -> Values:
        """The objects that an expression may be; of a method's own, those that it is called on."""
        return frame.me if self.is_me(node, frame) else self.program.values(node)

    def add(self, found: set[int], node: ast.AST) -> None:
        if id(node) not in found:
            found.add(id(node))
            self.again(self.frame)

    def grow(
        self, found: dict, key: object, how: int, asked: object = None, entry: str | None = None
    ) -> None:
        """Have more differ, and look again at what asked for it; by default that has the same key.

        ``entry``: it is put into a dict, under this key, and says nothing of what is under others.
        """
        place = key if entry is None else Keyed(key, entry)
        if how & ~found.get(place, 0):
            found[place] = found.get(place, 0) | how
            if entry is not None:
                self._entries.setdefault(key, {})[entry] = None
            self.wake(key if asked is None else asked)
            self.waiting[self.frame] = None
