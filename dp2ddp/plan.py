"""What we intend: findings, and the edits that answer them.

A plan is plain data. Edits name nodes by ``Anchor`` (file, kind, range), never hold them, so a plan can be
reviewed, filtered and replayed. ``rewrite`` carries it out.

Templates are Python source with ``{name}`` holes. A hole is either a string, put in as it is, or an ``Anchor``:
what lands there is the *edited* form of that piece of the original.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
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
    all of them are converted.
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
) -> Finding:
    """A rule's finding at a node; the registry adds the rule's code.

    ``help`` says what is done where there are edits, else what to do. Long code in both is shortened.
    """
    safety = Safety.SAFE if edits else Safety.MANUAL
    done = f"{help}; {DONE}" if edits and severity is Severity.NOTE and help else help
    message, help = fitted(message, done)
    return Finding("", Location(at.path, at.span), message, help, severity, safety, edits)


DONE = "no action needed"
"""What is said to do where nothing is."""
LONGEST = 160
"""How many characters a message may have together with its help; code in them is shortened to that."""
_SHORTEST = 16
_JOINT = len("; ")
_CODE = re.compile(r"`([^`]+)`")
_LAST_CALL = re.compile(r"\.\w+\([^()]*\)$")
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def fitted(message: str, help: str) -> tuple[str, str]:
    """A message and its help with as much of the code in them as there is room for: the longest is cut first."""
    spans = [len(span) for part in (message, help) for span in _CODE.findall(part)]
    over = len(message) + len(help) + _JOINT * bool(help) - LONGEST
    if over <= 0 or not spans:
        return message, help
    room = max(spans)
    while room > _SHORTEST and sum(max(span - room, 0) for span in spans) < over:
        room -= 1

    def cut(found: re.Match[str]) -> str:
        return f"`{shortened(found[1], room)}`"

    return _CODE.sub(cut, message), _CODE.sub(cut, help)


def shortened(code: str, room: int) -> str:
    """Code of at most so many characters: its beginning, and the call at its end or the brackets that are open."""
    if len(code) <= room:
        return code
    last = _LAST_CALL.search(code)
    if last is not None and len(last[0]) <= room // 2 + 2:
        return f"{code[: room - len(last[0]) - 1]}…{last[0]}"
    for end in range(room - 1, 0, -1):
        begin = code[:end]
        closing = ""
        for letter in begin:
            if letter in _CLOSING:
                closing = _CLOSING[letter] + closing
            elif closing.startswith(letter):
                closing = closing[1:]
        if end + 1 + len(closing) <= room:
            return f"{begin}…{closing}"
    return f"{code[: room - 1]}…"


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
