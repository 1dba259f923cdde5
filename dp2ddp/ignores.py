"""Comments that take a finding out of the plan: ``# dp2ddp: ignore[DDP301] every rank has its own file``.

The comment stands at the end of the line, or alone above it. The author answers for what it says: nothing is changed
there for this rule, and an error of it keeps nothing from being converted. Rules whose edits only make sense together,
those of the model, the data and the start of the ranks, can't be ignored: half of a conversion is worse than none.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dp2ddp.notices import UNUSED
from dp2ddp.plan import Finding, Severity
from dp2ddp.rules import RULES
from dp2ddp.source import Location, Project, Span

_COMMENT = re.compile(r"#\s*dp2ddp:\s*ignore\b\s*(?:\[(?P<codes>[^\]]*)\])?(?P<reason>.*)")
_LAYOUT = {tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENCODING}


@dataclass(frozen=True)
class Ignore:
    """One comment: the rules that it names, and the lines of the statement, or its header, that it is about."""

    at: Location
    codes: tuple[str, ...]
    first: int
    last: int

    def covers(self, finding: Finding, code: str) -> bool:
        place = finding.location
        same = place.path == self.at.path and finding.rule == code
        return same and self.first <= place.span.line <= self.last


@dataclass(frozen=True)
class Heeded:
    """The findings that are left, and what is to be said of comments that have no effect."""

    findings: tuple[Finding, ...]
    unused: tuple[Finding, ...] = ()


def heeded(findings: Iterable[Finding], project: Project) -> Heeded:
    """What comments of a project's files leave of findings."""
    findings = tuple(findings)
    ignores = [it for file in project.files.values() for it in _ignores(file.path, file.text)]
    if not ignores:
        return Heeded(findings)
    taken: set[int] = set()
    unused: list[Finding] = []
    for ignore in ignores:
        if not ignore.codes:
            unused.append(_said(ignore, "names no rule", "write ignore[DDP301], with the rule's code"))
        for code in ignore.codes:
            about = {id(it) for it in findings if ignore.covers(it, code)}
            if code not in RULES:
                unused.append(_said(ignore, f"names {code}, which does not exist", ""))
            elif not about:
                unused.append(
                    _said(ignore, f"ignores {code}, which is not reported here", "remove the comment")
                )
            elif not RULES[code].ignorable:
                why = f"{code} can't be ignored: the program would be converted only in part"
                unused.append(_said(ignore, why, "remove the comment", ""))
            else:
                taken |= about
    return Heeded(tuple(it for it in findings if id(it) not in taken), tuple(unused))


def _said(ignore: Ignore, message: str, help: str, start: str = "this comment ") -> Finding:
    return Finding(UNUSED, ignore.at, start + message, help, Severity.WARNING)


def _ignores(path: Path, text: str) -> Iterator[Ignore]:
    if not _COMMENT.search(text):
        return
    waiting: list[tuple[Location, tuple[str, ...]]] = []
    first = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT and (found := _COMMENT.search(token.string)):
                (line, start), (_, end) = token.start, token.end
                codes = re.split(r"[\s,]+", (found["codes"] or "").strip().upper())
                waiting.append((Location(path, Span(line, start, line, end)), tuple(filter(None, codes))))
            if token.type == tokenize.NEWLINE:
                yield from (Ignore(at, codes, first, token.start[0]) for at, codes in waiting)
                waiting, first = [], 0
            elif token.type not in _LAYOUT:
                first = first or token.start[0]
    except (tokenize.TokenError, SyntaxError):
        pass
    yield from (Ignore(at, codes, 0, 0) for at, codes in waiting)
