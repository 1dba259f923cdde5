"""Test what a conversion assumes: verify it on several numbers of processes, in float64 where the program runs so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dp2ddp.verify.report import headline
from dp2ddp.verify.run import Request, verify
from dp2ddp.verify.verdict import Result, Verdict

COUNTS = (2, 3)
"""How many processes: with 3, parts of batches differ in size more often than not."""


@dataclass(frozen=True)
class Trial:
    """One verification of several."""

    processes: int
    float64: bool
    result: Result

    def __str__(self) -> str:
        return f"{headline(self.result)} on {self.processes} processes" + ", in float64" * self.float64


def tested(
    request: Request, counts: Sequence[int] = COUNTS, say: Callable[[str], None] = lambda _: None
) -> list[Trial]:
    """Verify a conversion on so many processes each, up to the first that is no match."""
    trials: list[Trial] = []
    for count in counts:
        trial = _trial(replace(request, processes=count), say)
        trials.append(trial)
        if trial.result.verdict is not Verdict.MATCH:
            break
    return trials


def _trial(request: Request, say: Callable[[str], None]) -> Trial:
    """Verify in float64, where rounding hides nothing; as the program is where that comes to no answer."""
    if not request.float64 and not request.as_is:
        result = verify(replace(request, float64=True), say)
        failed = bool(result.errors) or any(it.cause == "error" for it in result.differences)
        if result.verdict is not Verdict.INCONCLUSIVE and not failed:
            return Trial(request.processes, True, result)
        say(f"not in float64: {headline(result)}")
    return Trial(request.processes, request.float64, verify(request, say))


def outcome(trials: Sequence[Trial]) -> Verdict:
    """What they come to together."""
    return trials[-1].result.verdict


def lines(trials: Sequence[Trial], assumptions: Sequence[str]) -> list[str]:
    """What was measured, and what that says of each assumption."""
    said = [str(trial) for trial in trials]
    if not assumptions:
        return said
    match outcome(trials):
        case Verdict.MATCH:
            words = "held in these runs"
        case Verdict.INCONCLUSIVE:
            words = "not tested"
        case _:
            words = "broken" if len(assumptions) == 1 else "at least one of these is broken"
    return [*said, f"assumed, and {words}:", *(f"  {text}" for text in assumptions)]
