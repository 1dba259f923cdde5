"""``--format markdown``: a run as a comment on a pull request, or as the summary of a job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dp2ddp.emit.diff import base_of, diff
from dp2ddp.emit.outcome import Outcome, place
from dp2ddp.emit.text import counts, grouped, is_shown, places, tier


def document(outcome: Outcome) -> str:
    """The programs, what is said about them, and the diff folded up."""
    conversion = outcome.conversion
    parts = ["## dp2ddp", *_programs(outcome), *_findings(outcome)]
    if conversion.idle and not conversion.scripts:
        parts.append("Nothing to do.")
    if conversion.changes:
        text = diff(conversion.changes, base_of(conversion.changes, outcome.cwd)).decode(errors="replace")
        what = "Changed" if outcome.written else "Would change"
        fence = "`" * max(3, 1 + max(map(len, _ticks(text)), default=0))
        title = (
            f"<summary>{what}: {len(conversion.changes)} file{'s' * (len(conversion.changes) > 1)}</summary>"
        )
        parts.append(f"<details>{title}\n\n{fence}diff\n{text}{fence}\n\n</details>")
    if conversion.findings:
        rows = ([it.rule, outcome.name(it.rule), it.found, it.left] for it in counts(conversion.findings))
        table = _table(["rule", "", "found", "to do by hand"], rows)
        parts.append(f"<details><summary>Statistics</summary>\n\n{table}\n\n</details>")
    return "\n\n".join(parts) + "\n"


def _programs(outcome: Outcome) -> Iterator[str]:
    rows = []
    for script in outcome.conversion.scripts:
        state = tier(script) if script.converted else "refused"
        proof = outcome.proofs.get(script.path, "")
        left = script.left if script.converted else script.blockers
        rows.append(
            [f"`{script.command or place(script.path)}`", state, script.edits, left, proof and f"`{proof}`"]
        )
    if rows:
        yield _table(["program", "", "edits", "to do by hand", "check it with"], rows)


def _findings(outcome: Outcome) -> Iterator[str]:
    lines = []
    for finding, others in grouped(filter(is_shown, outcome.conversion.findings)):
        at = f"`{place(finding.location.path)}:{finding.location.span.line}`"
        also = f" (and in {places(finding.location.path, others)})" if others else ""
        help = f"<br>{_escaped(finding.help)}" if finding.help else ""
        lines.append(
            f"- **{finding.severity.value}** {at} {finding.rule}: {_escaped(finding.message)}{also}{help}"
        )
    told = {finding.location.path for finding in outcome.conversion.errors}
    for file in outcome.conversion.unreadable:
        if file.path not in told:
            line = f":{file.line}" if file.line else ""
            lines.append(f"- **error** `{place(file.path)}{line}`: {_escaped(file.reason)}")
    if lines:
        yield "\n".join(lines)


def _table(head: list[str], rows: Iterable[list[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )


def _escaped(text: str) -> str:
    """Words with what HTML would take for a tag as it is; code in backticks stays code."""
    parts = text.split("`")
    return "`".join(part if index % 2 else part.replace("<", "&lt;") for index, part in enumerate(parts))


def _ticks(text: str) -> Iterator[str]:
    run = ""
    for character in text:
        run = run + "`" if character == "`" else ""
        if run:
            yield run
