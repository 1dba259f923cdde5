"""``--format json``: a run as one document. ``README.md`` beside this file says what each key holds.

``version`` grows when a key goes or means something else; new keys may come without that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dp2ddp.changes import Script
from dp2ddp.emit.diff import base_of, diff
from dp2ddp.emit.outcome import Outcome, place
from dp2ddp.emit.text import counts
from dp2ddp.plan import Finding
from dp2ddp.source import Location

VERSION = 1


def document(outcome: Outcome) -> str:
    """The document, with a line end."""
    return json.dumps(_run(outcome), indent=2) + "\n"


def _run(outcome: Outcome) -> Mapping[str, Any]:
    conversion = outcome.conversion
    return {
        "version": VERSION,
        "tool": {"name": "dp2ddp", "version": outcome.version},
        "exit_code": outcome.code,
        "written": outcome.written,
        "programs": [_program(script, outcome) for script in conversion.scripts],
        "findings": [_finding(finding, outcome) for finding in conversion.findings],
        "unreadable": [
            {"path": place(file.path), "line": file.line, "reason": file.reason}
            for file in conversion.unreadable
        ],
        "idle": [{"path": place(file.path), "reason": file.reason} for file in conversion.idle],
        "changes": [
            {
                "path": place(change.path),
                "diff": diff([change], base_of([change], outcome.cwd)).decode(errors="replace"),
            }
            for change in conversion.changes
        ],
        "beside": [place(it.path) for it in conversion.beside],
        "statistics": [
            {"rule": it.rule, "name": outcome.name(it.rule), "found": it.found, "left": it.left}
            for it in counts(conversion.findings)
        ],
    }


def _program(script: Script, outcome: Outcome) -> Mapping[str, Any]:
    return {
        "path": place(script.path),
        "command": script.command or None,
        "module": script.module or None,
        "converted": script.converted,
        "tier": script.tier if script.converted else None,
        "reasons": [_location(reason) for reason in script.reasons],
        "edits": script.edits,
        "left": script.left,
        "blockers": script.blockers,
        "together_with": [place(path) for path in script.tied],
        "verify": outcome.proofs.get(script.path) or None,
    }


def _finding(finding: Finding, outcome: Outcome) -> Mapping[str, Any]:
    return {
        "rule": finding.rule,
        "name": outcome.name(finding.rule),
        "severity": finding.severity.value,
        "message": finding.message,
        "help": finding.help or None,
        **_location(finding.location),
        "edited": outcome.is_applied(finding),
        "left": finding.is_left,
        "programs": sorted(place(path) for path in finding.scripts),
    }


def _location(location: Location) -> dict[str, Any]:
    span = location.span
    return {
        "path": place(location.path),
        "line": span.line,
        "column": span.column + 1,
        "end_line": span.end_line,
        "end_column": span.end_column + 1,
    }
