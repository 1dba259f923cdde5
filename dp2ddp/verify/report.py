"""A verification in plain text."""

from __future__ import annotations

from dp2ddp.verify.causes import CAUSES
from dp2ddp.verify.verdict import Difference, Result, Verdict


def report(result: Result, verbose: bool = False) -> str:
    """What the terminal shows; ``verbose``: how the runs were made comparable, too."""
    lines = [headline(result)]
    if result.differences:
        first = result.differences[0]
        lines += [f"  {first.detail}", *_wrapped(CAUSES.get(first.cause, ""), "  usual cause: ")]
        for other in _others(result):
            lines.append(f"  also: {where(other)}: {other.detail}")
    if result.errors:
        lines += ["", *(f"  | {line}" for line in result.errors.splitlines())]
    if result.compared:
        lines += ["", "compared"]
        width = max(len(name) for name, _ in result.compared)
        lines += [f"  {name:<{width}}  {text}" for name, text in result.compared]
    if len(result.aligned) == 1 or (result.aligned and verbose):
        lines += ["", "made equal for the comparison, so not tested"]
        lines += [part for text in result.aligned for part in _wrapped(text, "  ")]
    elif result.aligned[1:]:
        reference, *others = result.aligned
        names = ", ".join(text.partition(":")[0] for text in others)
        lines += ["", *_wrapped(reference, "")]
        lines += _wrapped(f"made equal for the comparison, so not tested: {names} (-v says how)", "", 120)
    if result.notes:
        lines += ["", "not covered, or worth knowing"]
        lines += [part for text in result.notes for part in _wrapped(text, "  ")]
    lines += ["", f"{', '.join(f'{name} {text}' for name, text in result.versions)}; {result.seconds:.0f} s"]
    return "\n".join(lines) + "\n"


def headline(result: Result) -> str:
    """The verdict in one line."""
    if result.verdict is Verdict.MATCH:
        shown = ", but for numbers of training that are shown (of rank 0's part of the batch?)" * result.parts
        return f"MATCH over {result.steps} steps" + ", in float64" * result.widened + shown
    if result.verdict is Verdict.INCONCLUSIVE:
        return f"INCONCLUSIVE: {result.reason}"
    return f"DIFFERS {where(result.differences[0])}"


def where(difference: Difference) -> str:
    """Where a difference shows, and in what."""
    if difference.what == "end":
        return f"after step {difference.step - 1}, where it stops"
    what = f"in the {difference.what}" + (f" of {difference.tensor}" if difference.tensor else "")
    return f"at step {difference.step} {what}" if difference.step else f"before the first step {what}"


def _others(result: Result) -> list[Difference]:
    seen, found = {result.differences[0].what}, []
    for one in result.differences[1:]:
        if one.what not in seen:
            seen.add(one.what)
            found.append(one)
    return found[:4]


def _wrapped(text: str, begin: str, width: int = 110) -> list[str]:
    lines, line = [], begin
    for word in text.split():
        if len(line) + len(word) > width and line.strip():
            lines.append(line.rstrip())
            line = " " * len(begin)
        line += word + " "
    return [*lines, line.rstrip()] if text else []
