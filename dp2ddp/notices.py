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
            """dp2ddp failed, or its result failed a check.

            The program is left unchanged: the bug is in dp2ddp, not in the program. ``DP2DDP_DEBUG=1`` shows the
            traceback; please report it with the lines that the message names. Other programs of the same run are
            converted.""",
        ),
        _notice(
            UNREADABLE,
            "unreadable-file",
            """A file that a training program needs can't be read or parsed.

            The program stays as it is, because it is unknown what the file does to the model, the data or the start of
            the ranks. Fix the file first; for Python 2 code the message says how. A file that no training program needs
            holds nothing back.""",
        ),
        _notice(
            UNUSED,
            "unused-ignore",
            """A comment ``# dp2ddp: ignore[...]`` has no effect.

            It names a rule that reports nothing on its line, that does not exist, or that can't be ignored: without the
            edits to the model, the data and the start of the ranks a program would be converted only in part. Put the
            comment at the end of the line or alone above it:
            ``# dp2ddp: ignore[DDP301] every rank has its own file``.""",
        ),
    )
}
