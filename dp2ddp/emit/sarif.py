"""``--format sarif``: SARIF 2.1.0, which code scanning of GitHub and others take."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dp2ddp.emit.outcome import Outcome, place
from dp2ddp.emit.text import words
from dp2ddp.notices import UNREADABLE
from dp2ddp.plan import Rule
from dp2ddp.source import STDIN, Span

VERSION = "2.1.0"
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
_ROOT = "SRCROOT"


def document(outcome: Outcome) -> str:
    """The log of one run, with a line end."""
    codes = list(outcome.rules)
    conversion = outcome.conversion
    told = {finding.location.path for finding in conversion.errors}
    results = [
        _result(
            finding.rule, finding.severity.value, words(finding), finding.location.path, finding.location.span
        )
        for finding in conversion.findings
    ]
    results += [
        _result(UNREADABLE, "error", file.reason, file.path, Span(file.line or 1, 0, file.line or 1, 0))
        for file in conversion.unreadable
        if file.path not in told
    ]
    for result in results:
        result["ruleIndex"] = codes.index(result["ruleId"])
    driver = {
        "name": "dp2ddp",
        "version": outcome.version,
        "semanticVersion": outcome.version,
        "rules": [_rule(rule) for rule in outcome.rules.values()],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {_ROOT: {"uri": f"{outcome.cwd.as_uri()}/"}},
        "invocations": [{"executionSuccessful": True, "exitCode": outcome.code}],
        "results": results,
    }
    return json.dumps({"$schema": SCHEMA, "version": VERSION, "runs": [run]}, indent=2) + "\n"


def _rule(rule: Rule) -> Mapping[str, Any]:
    first, _, rest = rule.explanation.partition("\n\n")
    short = " ".join(first.split())
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": short},
        "fullDescription": {"text": " ".join(rest.split()) or short},
        "help": {"text": f"{rule.explanation}\n\nAn example: dp2ddp explain {rule.code}"},
    }


def _result(code: str, level: str, message: str, path: Path, span: Span) -> dict[str, Any]:
    region = {"startLine": span.line, "startColumn": span.column + 1}
    region |= {"endLine": span.end_line, "endColumn": span.end_column + 1}
    location = {"physicalLocation": {"artifactLocation": _artifact(path), "region": region}}
    return {"ruleId": code, "level": level, "message": {"text": message}, "locations": [location]}


def _artifact(path: Path) -> Mapping[str, str]:
    name = place(path)
    if Path(name).is_absolute() and path.name != STDIN:
        return {"uri": path.as_uri()}
    return {"uri": quote(name), "uriBaseId": _ROOT}
