"""``--format github``: workflow commands, which GitHub shows as annotations at the lines of a pull request."""

from __future__ import annotations

from pathlib import Path

from dp2ddp.emit.outcome import Outcome, place
from dp2ddp.emit.text import is_shown, words
from dp2ddp.notices import UNREADABLE
from dp2ddp.plan import Severity
from dp2ddp.source import Span

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def document(outcome: Outcome) -> str:
    """One line for each finding; the errors first, as GitHub shows only some of each step."""
    conversion = outcome.conversion
    findings = sorted(filter(is_shown, conversion.findings), key=lambda it: list(Severity).index(it.severity))
    told = {finding.location.path for finding in conversion.errors}
    lines = [
        _line(
            "error", UNREADABLE, outcome, file.path, Span(file.line or 1, 0, file.line or 1, 0), file.reason
        )
        for file in conversion.unreadable
        if file.path not in told
    ]
    for it in findings:
        command = _COMMANDS[it.severity]
        lines.append(_line(command, it.rule, outcome, it.location.path, it.location.span, words(it)))
    for change in conversion.changes:
        what = "is converted" if outcome.written else "would be converted"
        lines.append(
            _line("notice", "", outcome, change.path, Span(1, 0, 1, 0), f"{place(change.path)} {what}")
        )
    return "".join(lines)


def _line(command: str, code: str, outcome: Outcome, path: Path, span: Span, message: str) -> str:
    where = {"file": place(path), "line": str(span.line), "endLine": str(span.end_line)}
    if span.line == span.end_line and span.end_column > span.column:  # GitHub takes columns for one line only
        where |= {"col": str(span.column + 1), "endColumn": str(span.end_column)}
    where["title"] = f"{code} {outcome.name(code)}" if code else "dp2ddp"
    named = ",".join(f"{name}={_property(value)}" for name, value in where.items())
    return f"::{command} {named}::{_data(message)}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
