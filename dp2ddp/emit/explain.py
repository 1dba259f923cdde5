"""A rule in words, and as the diffs that it makes of its examples."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dp2ddp.changes import Conversion
from dp2ddp.emit.diff import base_of, diff
from dp2ddp.emit.text import report

if TYPE_CHECKING:
    from pathlib import Path

    from dp2ddp.plan import Rule


def explanation(rule: Rule, examples: Iterable[Conversion], cwd: Path, *, color: bool = False) -> bytes:
    """What ``dp2ddp explain`` shows for one rule."""
    parts = [f"{rule.code} {rule.name}\n\n{inspect.cleandoc(rule.explanation)}\n".encode()]
    for example in examples:
        words = "" if example.changes else report(example, written=False)
        parts.append(
            b"\n" + diff(example.changes, base_of(example.changes, cwd), color=color) + words.encode()
        )
    return b"".join(parts)


def listing(rules: Iterable[Rule]) -> str:
    """One line for each rule: its code, its name, and what it finds."""
    rows = [(rule.code, rule.name, rule.explanation.split("\n\n")[0]) for rule in rules]
    width = max(len(name) for _, name, _ in rows)
    return "".join(f"{code} {name:{width}} {' '.join(found.split())}\n" for code, name, found in rows)
