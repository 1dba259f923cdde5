"""Results in words: a table of the scripts, and the reasons that keep them from being converted."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from .run import FAULTS, OUTCOMES, Entry, Result

_WIDEST = 110


def table(results: Sequence[Result]) -> str:
    """One line for each script, then the sums."""
    rows = [("script", "outcome", "tier", "error", "warn", "note", "left", "s", "first reason")]
    for result in results:
        severities = Counter(said.severity for said in result.said)
        counts = [str(severities[severity]) for severity in ("error", "warning", "note")]
        sites = f"{result.left}/{result.found}"
        rows.append(
            (
                str(result.entry),
                result.outcome,
                result.tier,
                *counts,
                sites,
                f"{result.seconds:.1f}",
                _short(result),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([*lines, "", *_sums(results), ""])


def _short(result: Result) -> str:
    text = str(next(iter(result.reasons), ""))
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def _sums(results: Sequence[Result]) -> Iterator[str]:
    outcomes = Counter(result.outcome for result in results)
    told = [f"{outcomes[outcome]} {outcome}" for outcome in OUTCOMES if outcomes[outcome]]
    yield f"{len(results)} scripts: {', '.join(told)}"
    tiers = Counter(result.tier for result in results if result.tier)
    yield f"tiers: {', '.join(f'{count} {name}' for name, count in tiers.most_common()) or 'none'}"
    slowest = max(results, key=lambda result: result.seconds)
    yield f"slowest: {slowest.entry}, {slowest.seconds:.1f} s"
    for kind in FAULTS:
        bad = [result for result in results if result.faults[kind]]
        yield f"{kind}: {len(bad)}"
        yield from (f"  {result.entry}: {fault}" for result in bad for fault in result.faults[kind])


def reasons(results: Sequence[Result]) -> str:
    """Why each script is not sharded; what keeps scripts from that, by pattern; then all that was said of each."""
    lines = ["# Scripts that are not sharded", "", *_not_sharded(results), ""]
    lines += ["# What keeps scripts from being converted", "", *_grouped(results, "error")]
    lines += ["", "# What keeps batches whole, and other notes", "", *_grouped(results, "note")]
    lines += ["", "# What is left to look at", "", *_grouped(results, "warning"), "", "# Scripts", ""]
    for result in results:
        tier = f", {result.tier}" if result.tier else ""
        lines.append(f"{result.entry}: {result.outcome}{tier}, {result.left} of {result.found} sites left")
        lines += [f"      {said.severity or 'error'}: {said}" for said in result.said]
    return "\n".join([*lines, ""])


def _not_sharded(results: Sequence[Result]) -> Iterator[str]:
    """One line for each script: the first line of it that forbids more, or says something that is known of it."""
    for result in results:
        why = result.whole or result.reasons
        if result.tier != "sharded" and why:
            first = min(why, key=lambda said: " may " in said.message)
            more = f" (and {len(why) - 1} more)" if len(why) > 1 else ""
            message = first.message.partition("; ")[0]
            yield f"{result.entry}: {result.tier or result.outcome}: {first.place}: {message}{more}"


def _grouped(results: Sequence[Result], severity: str) -> Iterator[str]:
    """The findings of one severity by their pattern, those of the most scripts first."""
    places: dict[str, dict[Entry, list[str]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        for said in result.said:
            if said.severity == severity:
                places[f"{said.rule} {pattern(said.message)}"][result.entry].append(said.place)
    kinds = Counter(entry for scripts in places.values() for entry in scripts)
    for reason, scripts in sorted(places.items(), key=lambda item: (-len(item[1]), item[0])):
        alone = sum(kinds[entry] == 1 for entry in scripts)
        yield f"{len(scripts):3} scripts, in {alone} the only reason: {reason}"
        yield from (f"      {entry}: {', '.join(dict.fromkeys(where))}" for entry, where in scripts.items())


def pattern(message: str) -> str:
    """A message without what is this program's: quoted code, names of files and functions, numbers; and without help."""
    text = message.partition("; ")[0]
    text = re.sub(r"`[^`]*`", "`…`", text)
    text = re.sub(r"[\w.]+\.py:?", "….py", text)
    text = re.sub(r"[\w.\]\['\"()]+\(\)", "…()", text)
    text = re.sub(r"^\S+ (has the reduction|is averaged|is a Data|is not torch)", r"… \1", text)
    text = re.sub(r"\(\d+(, \d+)*\)", "(n)", text)
    return re.sub(r"\b\d+\b", "n", text)
