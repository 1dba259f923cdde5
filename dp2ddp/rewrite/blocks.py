"""Putting a block together again: what is removed, inserted and enclosed, and which comments go where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import libcst as cst

from dp2ddp.rewrite.errors import RewriteError
from dp2ddp.rewrite.parentheses import code
from dp2ddp.source import Span

Lines = list[cst.EmptyLine]


@dataclass
class Unit:
    """One statement of a block, or some that share a line, with all that is to stand round it.

    ``keys`` are the original statements, ``nodes`` what became of them, ``leading`` the blank lines and
    comments above, ``trailing`` comments that outlive what they stood in, ``before`` and ``after`` what is
    inserted.
    """

    keys: tuple[cst.CSTNode, ...]
    nodes: list[cst.BaseStatement]
    leading: Lines = field(default_factory=list)
    trailing: Lines = field(default_factory=list)
    before: list[cst.BaseStatement] = field(default_factory=list)
    after: list[cst.BaseStatement] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.nodes or self.before or self.after)


@dataclass(frozen=True)
class Enclosure:
    """The units ``first`` to ``last`` under a header."""

    first: int
    last: int
    header: cst.BaseCompoundStatement
    span: Span


@dataclass
class Body:
    """A block in the making. ``pending`` are lines that belong above the next statement.

    A ``headless`` one does not start with blank lines where its first statement is gone.
    """

    headless: bool = True
    nodes: list[cst.BaseStatement] = field(default_factory=list)
    pending: Lines = field(default_factory=list)
    starts_late: bool = False

    def add(self, statements: Sequence[cst.BaseStatement], leading: Iterable[cst.EmptyLine] = ()) -> None:
        """Put statements down, with these lines above the first."""
        if not statements:
            self.pending += leading
            return
        lines = _joined(self.pending, list(leading))
        if self.headless and not self.nodes and (self.starts_late or self.pending):
            lines = lines[_blanks(lines) :]
        self.pending = []
        first, *rest = statements
        self.nodes += [with_leading(first, [*lines, *leading_lines(first)]), *rest]

    def put(self, unit: Unit) -> None:
        """Put a unit down."""
        leading = unit.leading
        if unit.before:
            detached, leading = split(leading)
            self.add(unit.before, detached)
        if not unit.nodes and not self.nodes:
            self.starts_late = True
        self.add(unit.nodes, leading)
        self.pending += unit.trailing
        self.add(unit.after)

    def footer(self, lines: Sequence[cst.EmptyLine]) -> Lines:
        """The lines below the last statement."""
        if any(line.comment for line in lines):
            return _joined(self.pending, list(lines))
        pending = list(self.pending)
        while pending and pending[-1].comment is None:
            pending.pop()
        return [*pending, *lines]


def assemble(units: Sequence[Unit], enclosures: Iterable[Enclosure], body: Body) -> Body:
    """Put all units down, those that are to be enclosed under their headers."""
    spans = sorted(_merged(units, list(enclosures)), key=lambda it: (it.first, -it.last))
    _check_nesting(spans)
    _emit(units, 0, len(units) - 1, spans, body)
    return body


def _emit(units: Sequence[Unit], first: int, last: int, spans: Sequence[Enclosure], body: Body) -> None:
    at = first
    while at <= last:
        span = next((it for it in spans if it.first == at), None)
        if span is None:
            body.put(units[at])
            at += 1
            continue
        inner = [it for it in spans if it is not span and it.last <= span.last]
        spans = [it for it in spans if it.first > span.last]
        _enclose(units, span, inner, body)
        at = span.last + 1


def _enclose(units: Sequence[Unit], span: Enclosure, inner: Sequence[Enclosure], body: Body) -> None:
    """Comments right above the first statement go in with it; blank lines and inserted ones do not."""
    first, last = units[span.first], units[span.last]
    before, after = first.before, last.after
    first.before, last.after = [], []
    detached, first.leading = split(first.leading)
    for unit in units[span.first : span.last + 1]:
        unit.leading = [flush(line) for line in unit.leading]
    within = Body()
    _emit(units, span.first, span.last, inner, within)
    body.add(before, detached)
    if within.nodes:
        comment = span.header.body.header  # type: ignore[union-attr]
        block = cst.IndentedBlock(body=within.nodes, header=comment, footer=within.footer(()))
        body.add([span.header.with_changes(body=block)])
    else:
        body.starts_late = body.starts_late or not body.nodes
        body.pending += within.pending
    body.add(after)


def _merged(units: Sequence[Unit], spans: list[Enclosure]) -> list[Enclosure]:
    """One enclosure for those with the same header that touch, unless something is inserted where they do."""
    result: list[Enclosure] = []
    for span in spans:
        same = [it for it in result if code(it.header) == code(span.header) and _touch(units, it, span)]
        for it in same:
            span = replace(span, first=min(it.first, span.first), last=max(it.last, span.last))
        at = result.index(same[0]) if same else len(result)
        result = [it for it in result if it not in same]
        result.insert(min(at, len(result)), span)
    return result


def _touch(units: Sequence[Unit], one: Enclosure, other: Enclosure) -> bool:
    upper, lower = sorted((one, other), key=lambda it: (it.first, it.last))
    if lower.first <= upper.last:
        return True
    between = units[upper.last + 1 : lower.first]
    seam = units[upper.last].after or units[lower.first].before
    return not seam and all(unit.is_empty for unit in between)


def _check_nesting(spans: Sequence[Enclosure]) -> None:
    for at, outer in enumerate(spans):
        for inner in spans[at + 1 :]:
            if inner.first <= outer.last < inner.last:
                raise RewriteError("two blocks to be enclosed overlap", inner.span)


def split(leading: Lines) -> tuple[Lines, Lines]:
    """Lines above a statement: those that stand apart, and the comments right above it."""
    at = len(leading)
    while at and leading[at - 1].comment is not None:
        at -= 1
    return leading[:at], leading[at:]


def leading_lines(node: cst.CSTNode) -> Lines:
    """The blank lines and comments above a statement."""
    return list(getattr(node, "leading_lines", ()))


def with_leading(node: cst.BaseStatement, lines: Sequence[cst.EmptyLine]) -> cst.BaseStatement:
    """A statement with these lines above it."""
    return node.with_changes(leading_lines=lines)


def comment_line(comment: cst.Comment) -> cst.EmptyLine:
    """A comment on a line of its own."""
    return cst.EmptyLine(indent=True, comment=comment)


def flush(line: cst.EmptyLine) -> cst.EmptyLine:
    """A blank line without the indentation that it would get in a deeper block."""
    return line if line.comment else line.with_changes(indent=False)


def _blanks(lines: Sequence[cst.EmptyLine]) -> int:
    """How many blank lines stand at the head."""
    return next((at for at, line in enumerate(lines) if line.comment is not None), len(lines))


def _joined(upper: Lines, lower: Lines) -> Lines:
    """Two runs of lines, with as many blank lines between them as the more spacious asks for."""
    trailing = _blanks(upper[::-1])
    leading = _blanks(lower)
    if not upper or not trailing or not leading:
        return [*upper, *lower]
    blanks = max(upper[len(upper) - trailing :], lower[:leading], key=len)
    return [*upper[: len(upper) - trailing], *blanks, *lower[leading:]]
