"""The codes of what is said by no rule: about files, comments and dp2ddp itself. ``explain`` explains them, too."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping

from dp2ddp.defects import INTERNAL
from dp2ddp.plan import Finding, Rule

UNREADABLE = "DDP001"
UNUSED = "DDP002"


def _nothing(facts: object) -> Iterator[Finding]:
    return iter(())


def _notice(code: str, name: str, explanation: str) -> Rule:
    return Rule(code, name, inspect.cleandoc(explanation), _nothing, ())


NOTICES: Mapping[str, Rule] = {
    it.code: it
    for it in (
        _notice(
            INTERNAL,
            "internal-error",
            """dp2ddp failed, or what it made could not be vouched for.

            Nothing of the program is changed: the defect is in dp2ddp, not in the program. With ``DP2DDP_DEBUG=1`` it
            shows where it comes from; please report that with the lines that the message names. Other programs of the
            same run are converted.""",
        ),
        _notice(
            UNREADABLE,
            "unreadable-file",
            """A file that a training program needs can't be read or parsed.

            The program stays as it is, as what the file does to the model, the data or the start of the ranks is not
            known. Correct the file first; the message says what mends code of Python 2. A file that no training program
            needs keeps nobody back.""",
        ),
        _notice(
            UNUSED,
            "unused-ignore",
            """A comment ``# dp2ddp: ignore[...]`` has no effect.

            It names a rule that finds nothing at its line, that there is not, or that can't be ignored: without the
            edits of the rules about the model, the data and the start of the ranks a program would be converted by
            half. The comment stands at the end of the line or alone above it:
            ``# dp2ddp: ignore[DDP301] every rank has its own file``.""",
        ),
    )
}
