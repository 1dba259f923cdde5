"""What the runtime itself has to say."""

from __future__ import annotations

import builtins
import sys


def say(text: str) -> None:
    """One line on standard error, from whichever process calls."""
    builtins.print(f"dp2ddp: {text}", file=sys.stderr, flush=True)


def listing(what: str, numbers: list[int]) -> str:
    """``rank 3``, ``ranks 1, 2 and 5``: for messages."""
    words = [str(number) for number in numbers]
    if len(words) == 1:
        return f"{what} {words[0]}"
    return f"{what}s {', '.join(words[:-1])} and {words[-1]}"
