"""What an expression may be: classes, functions, modules, and objects named by the place that makes them.

A value is plain data. ``Values`` is what one expression may be; where nothing is known of it, it is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


def _hashed_once(value: object, *parts: object) -> int:
    """The hash of a value that is made of others: they are looked up again and again, and may be deep."""
    known = value.__dict__
    if "_hash" not in known:
        known["_hash"] = hash(parts)
    return known["_hash"]  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Ext:
    """Something outside the project, by its full name."""

    name: str


@dataclass(frozen=True)
class Mod:
    """A module of the project."""

    path: Path


@dataclass(frozen=True)
class Func:
    """A function or lambda of the project."""

    scope: int


@dataclass(frozen=True)
class Cls:
    """A class of the project."""

    scope: int


@dataclass(frozen=True)
class Inst:
    """An object of a project's class, by the call that makes it."""

    cls: Cls
    site: int


@dataclass(frozen=True)
class Bound:
    """A method of a project's class with its object."""

    func: Func
    owner: Value

    def __hash__(self) -> int:
        return _hashed_once(self, self.func, self.owner)


@dataclass(frozen=True)
class Made:
    """What a call of something outside the project returns: its full name and the call."""

    name: str
    site: int


@dataclass(frozen=True)
class Member:
    """An attribute of an object from outside the project."""

    owner: Value
    name: str

    def __hash__(self) -> int:
        return _hashed_once(self, self.owner, self.name)


@dataclass(frozen=True)
class Coll:
    """A tuple, list, set or dict display."""

    site: int


@dataclass(frozen=True, eq=False)
class Const:
    """A literal: ``1`` and ``True`` are equal in Python, and yet two."""

    value: object

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Const):
            return NotImplemented
        return type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


@dataclass(frozen=True)
class Names:
    """The names of a module, function, class or object as a dictionary: ``globals()``, ``vars(x)``, ``x.__dict__``."""

    owner: Value


Value = Ext | Mod | Func | Cls | Inst | Bound | Made | Member | Coll | Const | Names
Values = frozenset[Value]
NOTHING: Values = frozenset()
# What is the project's own: what a name may be of which nothing is known.
OWN = Mod | Func | Cls | Inst | Bound | Coll


class Ordered(frozenset[Value]):
    """Values that are gone through in the order of the source, not by where they lie in memory."""

    order: tuple[Value, ...]

    @classmethod
    def of(cls, values: Collection[Value]) -> Ordered:
        """Distinct values in the order in which they are given."""
        made = cls(values)
        made.order = tuple(values)
        return made

    def __iter__(self) -> Iterator[Value]:
        return iter(self.order)


def full_name(value: Value) -> str:
    """``torch.nn.DataParallel`` for the class, ``torch.nn.DataParallel.state_dict`` for a method of its object."""
    if isinstance(value, Ext | Made):
        return value.name
    if isinstance(value, Member):
        owner = full_name(value.owner)
        return f"{owner}.{value.name}" if owner else ""
    return ""


def closure(values: Values, after: Callable[[Value], Iterable[Value]]) -> Values:
    """Values with all that ``after`` leads to from them."""
    found: dict[Value, None] = {}
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if value not in found:
            found[value] = None
            waiting += after(value)
    return Ordered.of(found)


def place(value: Value, order: Mapping[int, int]) -> tuple[object, ...]:
    """What values are sorted by: ``order`` says where each node stands in the source, by its identity."""
    match value:
        case Ext():
            return 0, 0, value.name
        case Mod():
            return 1, 0, str(value.path)
        case Func() | Cls():
            return 2, value.scope, type(value).__name__
        case Inst():
            return 3, order.get(value.site, -1), str(value.cls.scope)
        case Bound():
            return 4, value.func.scope, "", *place(value.owner, order)
        case Made():
            return 5, order.get(value.site, -1), value.name
        case Member():
            return 6, 0, value.name, *place(value.owner, order)
        case Coll():
            return 7, order.get(value.site, -1), ""
        case Names():
            return 8, 0, "", *place(value.owner, order)
    return 9, 0, repr(value)


def is_outside_name(values: Values) -> bool:
    """Whether a value is a module, whose functions are called: ``torch`` in ``torch.randn(…)``."""
    return bool(values) and all(isinstance(it, Ext | Mod) for it in values)
