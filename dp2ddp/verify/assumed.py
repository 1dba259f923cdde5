"""Test what a conversion assumes: verify it on several numbers of processes, in float64 where the program runs so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dp2ddp.verify.report import headline
from dp2ddp.verify.run import Request, verify
from dp2ddp.verify.verdict import Result, Verdict

COUNTS = (2, 3)
"""How many processes: with 3, parts of batches differ in size more often than not."""
_INSTEAD = {3: 4}
"""Where a program, or the original, runs only with parts of the same size."""


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
        if trial.result.unfit and trials and count in _INSTEAD:
            say(f"not on {count} processes: {trial.result.unfit}")
            trial = _trial(replace(request, processes=_INSTEAD[count]), say)
        trials.append(trial)
        if trial.result.verdict is not Verdict.MATCH:
            break
    return trials


def _trial(request: Request, say: Callable[[str], None]) -> Trial:
    """Verify in float64, where rounding hides nothing; as the program is where that comes to no answer."""
    if not request.float64 and not request.as_is:
        result = verify(replace(request, float64=True), say)
        failed = bool(result.errors) or any(it.cause == "error" for it in result.differences)
        if result.indivisible or (result.verdict is not Verdict.INCONCLUSIVE and not failed):
            return Trial(request.processes, True, result)
        say(f"not in float64: {headline(result)}")
    return Trial(request.processes, request.float64, verify(request, say))


def outcome(trials: Sequence[Trial]) -> Verdict:
    """What they come to together."""
    return trials[-1].result.verdict


def all_reached(trials: Sequence[Trial], assumptions: Sequence[str]) -> bool:
    """Whether the program has run every line at which something is assumed."""
    return len(_reached(trials)) == len(assumptions)


def _reached(trials: Sequence[Trial]) -> frozenset[int]:
    return frozenset().union(*(trial.result.reached for trial in trials))


def lines(trials: Sequence[Trial], assumptions: Sequence[str]) -> list[str]:
    """What was measured, and what that says of each assumption: nothing of those whose lines the program did not run.

    Of several that it ran, a difference does not tell which is broken.
    """
    said = [str(trial) for trial in trials]
    tested = _reached(trials)
    match outcome(trials):
        case Verdict.MATCH:
            words = "held"
        case Verdict.INCONCLUSIVE:
            words, tested = "not tested", frozenset(range(len(assumptions)))
        case _:
            words = "broken" if len(tested) < 2 else "may be broken"
    for number, text in enumerate(assumptions):
        said.append(f"{words if number in tested else 'not reached'}: {text}")
    return said
