"""What we intend: findings, and the edits that answer them.

A plan is plain data. Edits name nodes by ``Anchor`` (file, kind, range), never hold them, so a plan can be
reviewed, filtered and replayed. ``rewrite`` carries it out.

Templates are Python source with ``{name}`` holes. A hole is either a string, put in as it is, or an ``Anchor``:
what lands there is the *edited* form of that piece of the original.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from pathlib import Path

from dp2ddp.legacy import Mend
from dp2ddp.source import Location, Span


class Severity(Enum):
    """How much a finding matters (SARIF's words)."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Safety(Enum):
    """What may be done about a finding without a person (ruff's words)."""

    SAFE = "safe"
    UNSAFE = "unsafe"
    MANUAL = "manual"


@dataclass(frozen=True, order=True)
class Anchor:
    """One node of one file. ``kind`` is ``"expr"`` or ``"stmt"``."""

    path: Path
    kind: str
    span: Span


Holes = Mapping[str, "Anchor | str"]


@dataclass(frozen=True)
class Replace:
    """Put another expression in the place of an expression."""

    at: Anchor
    template: str
    holes: Holes = field(default_factory=dict)


@dataclass(frozen=True)
class SetArgument:
    """Give a call's argument a value: the one at ``position`` or named ``keyword``, else a new ``keyword=``."""

    at: Anchor
    keyword: str
    template: str
    holes: Holes = field(default_factory=dict)
    position: int | None = None


@dataclass(frozen=True)
class DropArgument:
    """Remove a call's argument, if it is there."""

    at: Anchor
    keyword: str
    position: int | None = None


@dataclass(frozen=True)
class AddParameter:
    """Give a function one more parameter, after those it has, with a default if ``default`` is one."""

    at: Anchor
    name: str
    default: str = ""


@dataclass(frozen=True)
class Insert:
    """Put statements before or after a statement, in its block."""

    at: Anchor
    template: str
    holes: Holes = field(default_factory=dict)
    after: bool = False


@dataclass(frozen=True)
class Enclose:
    """Put consecutive statements of one block, ``first`` to ``last``, under a header such as ``if x:``."""

    first: Anchor
    last: Anchor
    header: str
    holes: Holes = field(default_factory=dict)


@dataclass(frozen=True)
class Remove:
    """Remove a statement; a block left empty goes too."""

    at: Anchor


@dataclass(frozen=True)
class Unwrap:
    """Put the body of an ``if`` in its place; an ``elif`` becomes ``else``."""

    at: Anchor


@dataclass(frozen=True)
class AddImport:
    """Add an import line, once, where the file's imports stand: ``own`` ones as a block of their own."""

    path: Path
    statement: str


@dataclass(frozen=True)
class DropImport:
    """Remove the import that binds ``name``, if nothing uses the name any more."""

    path: Path
    name: str


@dataclass(frozen=True)
class Respell:
    """Other characters for some of a line, before anything else is done: ``at`` is in the file as it is on disk."""

    at: Location
    after: str


@dataclass(frozen=True)
class Mark:
    """Put a comment above the statement that holds a place."""

    at: Location
    comment: str


Edit = (
    Replace
    | SetArgument
    | DropArgument
    | AddParameter
    | Insert
    | Enclose
    | Remove
    | Unwrap
    | AddImport
    | DropImport
    | Respell
    | Mark
)


@dataclass(frozen=True)
class Finding:
    """A fact about the code, with what is done about it.

    ``message`` states the fact, ``help`` says what to do. No edits: it is left to a person. ``scripts`` are the
    programs that it is about, once the plan is divided among them; ``ties`` says whether its edits can only be made if
    all of them are converted; ``is_moot``, that it changes nothing while another finding stands.
    """

    rule: str
    location: Location
    message: str
    help: str = ""
    severity: Severity = Severity.NOTE
    safety: Safety = Safety.SAFE
    edits: tuple[Edit, ...] = ()
    scripts: frozenset[Path] = frozenset()
    ties: bool = True
    is_moot: bool = False

    @property
    def is_left(self) -> bool:
        """Whether something is left to a person here."""
        return not self.edits and self.severity is not Severity.NOTE

    @property
    def is_mend(self) -> bool:
        """Whether all that is done is what has the file run today. A file is mended wholly."""
        return bool(self.edits) and all(isinstance(edit, Respell) for edit in self.edits)


@dataclass(frozen=True)
class Rule:
    """One pattern of code: its explanation, the check that finds it in Facts, and programs that have it.

    ``ties``: its edits make a line something else to a program that is not converted. ``ignorable``: a program without
    its edits is still converted wholly, so that a comment may ask for that.
    """

    code: str
    name: str
    explanation: str
    check: Callable[..., Iterator[Finding]]
    examples: tuple[str, ...]
    ties: bool = True
    ignorable: bool = False


def finding(
    at: Anchor,
    message: str,
    help: str = "",
    edits: tuple[Edit, ...] = (),
    severity: Severity = Severity.NOTE,
    shorter: Sequence[tuple[str, str]] = (),
) -> Finding:
    """A rule's finding at a node; the registry adds the rule's code.

    ``help`` says what is done where there are edits, else what to do. ``shorter``: other words for message and help,
    for where there is no room for these, the shorter the later.
    """
    safety = Safety.SAFE if edits else Safety.MANUAL
    done = f"{help}; {DONE}" if edits and severity is Severity.NOTE and help else help
    message, help = fitted(message, done, shorter)
    return Finding("", Location(at.path, at.span), message, help, severity, safety, edits)


def place_beside(path: Path, line: int, beside: Path) -> str:
    """A place, as it is named in what is said of another file: with its folder, where that is another, too."""
    if path == beside:
        return f"line {line}"
    folder = f"{path.parent.name}/" * (path.parent != beside.parent)
    return f"{folder}{path.name}:{line}"


def elsewhere(at: Location | Anchor, beside: Location | Anchor) -> str:
    """A place in brackets, behind what is said of it beside another one; nothing where that is its line."""
    same = (at.path, at.span.line) == (beside.path, beside.span.line)
    return "" if same else f" ({place_beside(at.path, at.span.line, beside.path)})"


DONE = "no action needed"
"""What is said to do where nothing is."""
LONGEST = 160
"""How many characters a message may have together with its help; only names can make it longer."""
_SHORTEST = 24
"""Code of so many characters is shortened only where no other words help."""
_JOINT = len("; ")
_CODE = re.compile(r"`([^`]+)`")
_TOKEN = re.compile(
    r"""
    [rbfuRBFU]{0,2}(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")  # a string
    | \.?\w+(?:\.\w+)*                                        # a name with its attributes, a number, a keyword
    | \s+ | [^\w\s]
    """,
    re.VERBOSE,
)
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_JOINS = frozenset({"if", "else", "for", "in", "is", "not", "and", "or", "lambda", "await", "yield"})


def fitted(message: str, help: str, shorter: Sequence[tuple[str, str]] = ()) -> tuple[str, str]:
    """The first words for which there is room, with as much of the message's code as there is room for.

    Code in the help is to be typed: of that, something is left out only where all words are too long.
    """
    ways = [(message, help), *shorter]
    for least, both in ((_SHORTEST, False), (0, False), (0, True)):
        for way in ways:
            cut = _cut(*way, least, both)
            if _length(*cut) <= LONGEST:
                return cut
    return min((_cut(*way, 0, True) for way in ways), key=lambda it: _length(*it))


def _length(message: str, help: str) -> int:
    return len(message) + len(help) + _JOINT * bool(help)


def _cut(message: str, help: str, least: int, both: bool) -> tuple[str, str]:
    """A message, and its help if ``both``, whose code is as short as it has to be; what has ``least`` letters stays."""
    spans = [span for part in (message, help if both else "") for span in _CODE.findall(part)]
    room = min(max(map(len, spans), default=0), LONGEST)
    while True:

        def short(found: re.Match[str], room: int = room) -> str:
            return f"`{shortened(found[1], room)}`"

        cut = _CODE.sub(short, message), _CODE.sub(short, help) if both else help
        if room <= least or _length(*cut) <= LONGEST:
            return cut
        room -= 1


def shortened(code: str, room: int) -> str:
    """Code of at most so many characters, if that can be without a part of a name: what is left out is ``…``.

    What brackets hold is left out first, then the rest.
    """
    if len(code) <= room:
        return code
    whole, begun = _left_of(code)
    for found in (whole, begun):
        if (fitting := next((it for it in found if len(it) <= room), None)) is not None:
            return fitting
    return min([code, *whole, *_begun(code)], key=len)


@lru_cache(maxsize=16)
def _left_of(code: str) -> tuple[list[str], list[str]]:
    """What can be left of code, the longest first: with less in its brackets; and how it, and that, can begin.

    A message is tried with less and less room for its code: what can be left of that is found once.
    """
    whole = list(dict.fromkeys(_emptied(code)))
    begun = dict.fromkeys(it for short in (code, *whole) for it in _begun(short, LONGEST))
    return sorted(whole, key=len, reverse=True), sorted(begun, key=len, reverse=True)


def _emptied(code: str) -> Iterator[str]:
    """Code with less in its brackets, in those that hold the most first: ``f(x, …) + g(y)``, ``f(…) + g(…)``."""
    groups = sorted(_groups(code), key=lambda it: it[0] - it[1])
    empty: list[tuple[int, int]] = []
    for start, end in groups:
        if end - start > 1:
            for inner in [*_emptied(code[start:end]), *_begun(code[start:end]), "…"]:
                short = code
                for first, last in sorted([*empty, (start, end)], reverse=True):
                    short = short[:first] + (inner if first == start else "…") + short[last:]
                if re.search(r"\w", short):
                    yield short
            empty.append((start, end))


def _groups(code: str) -> Iterator[tuple[int, int]]:
    """Where what stands in each of the outermost brackets begins and ends."""
    depth = place = start = 0
    for token in _TOKEN.findall(code):
        place += len(token)
        if token in _CLOSING:
            depth += 1
            start = place if depth == 1 else start
        elif token in _CLOSING.values():
            depth -= 1
            if depth == 0:
                yield start, place - 1


def _begun(code: str, most: int = sys.maxsize) -> Iterator[str]:
    """How code can begin that goes on with something else, in ``most`` characters: nothing that names nothing."""
    closing = before = begin = ""
    is_named = False
    for token in _TOKEN.findall(code):
        if is_named and not closing and begin:
            if token in _CLOSING and _ends_value(before):
                yield f"{begin}{token}…{_CLOSING[token]}"
            elif token.isspace() == _ends_value(before):
                yield f"{begin}{' ' * token.isspace()}…"
        begin += token
        if len(begin) >= most:
            return
        if token in _CLOSING:
            closing = _CLOSING[token] + closing
        elif closing.startswith(token):
            closing = closing[1:]
        before = before if token.isspace() else token
        is_named = is_named or (_ends_value(token) and token not in _CLOSING.values())


def _ends_value(token: str) -> bool:
    """Whether a token can be the last of a value."""
    return token in _CLOSING.values() or (
        token not in _JOINS and (token[-1].isalnum() or token[-1] in "_'\"")
    )


def bare_model(path: Path, ddp: str, kind: str, model: Anchor) -> Iterator[Edit]:
    """The model in a wrapper in its place: where it may be bare ("either"), or have a ``module`` ("other"), too."""
    holes: dict[str, Anchor | str] = {"ddp": ddp, "x": model}
    if kind == "other":
        yield Replace(model, "{ddp}.unwrap({x})", holes)
        yield runtime_import(path, ddp)
    else:
        yield Replace(model, 'getattr({x}, "module", {x})' if kind == "either" else "{x}.module", holes)


def runtime_import(path: Path, name: str) -> AddImport:
    """The import that gives a file the runtime under a name."""
    return AddImport(path, "from dp2ddp import runtime" + ("" if name == "runtime" else f" as {name}"))


def respelled(path: Path, mends: Iterable[Mend]) -> tuple[Respell, ...]:
    """The edits that mends of a file are."""
    spans = ((Span(it.line, it.start, it.line, it.end), it.after) for it in mends)
    return tuple(Respell(Location(path, span), after) for span, after in spans)


def in_lines(lines: Sequence[int], named: int = 6) -> str:
    """Where the same stands, too: `` (also in lines 3 and 5)``, `` (also in 7 more lines)``."""
    if len(lines) > named:
        return f" (also in {len(lines)} more lines)"
    *others, last = map(str, lines) if lines else ("",)
    listed = f"{', '.join(others)} and {last}" if others else last
    return f" (also in line{'s' * bool(others)} {listed})" if lines else ""


def combined(names: Sequence[str], function: str = "sum") -> str:
    """The template of a statement that makes names what a function of the runtime makes of those of all processes."""
    listed = ", ".join(names)
    given = f"({listed})" if len(names) > 1 else listed
    return f"{listed} = {{ddp}}.{function}({given})"


def whole_batch(given: str, entries: bool, if_grad: bool = False) -> str:
    """The template of a call that joins what is given; ``entries``, ``if_grad``: as ``facts.Joint`` has them."""
    more = ", entries=True" * entries + ", if_grad=True" * if_grad
    return f"{{ddp}}.whole_batch({given}{more})"


@dataclass(frozen=True)
class Plan:
    """All findings of a run, in the order of files and lines."""

    findings: tuple[Finding, ...] = ()

    @property
    def blocked(self) -> bool:
        """Whether an error keeps the project from being converted."""
        return any(finding.severity is Severity.ERROR for finding in self.findings)

    @property
    def edits(self) -> tuple[Edit, ...]:
        return tuple(edit for finding in self.findings for edit in finding.edits)
