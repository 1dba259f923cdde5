"""What a program is put together by: one author, who decides by chance and remembers what was decided."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Program:
    """A program: its files by path from the folder it is run in, and what its author decided."""

    files: Mapping[str, str]
    chosen: Mapping[str, str]
    start: str = "train.py"
    runs: int = 1
    """How often it is run, one time after the other in the same folder."""
    asks_for_gpus: bool = False
    """Whether it goes without DataParallel where there are none."""


@dataclass
class Author:
    """Who writes one program: what they have decided so far."""

    chance: random.Random
    chosen: dict[str, str] = field(default_factory=dict)
    rare: frozenset[str] = frozenset()
    """Ways that most authors don't know."""

    def pick(self, name: str, choices: Mapping[str, str]) -> str:
        """One of some ways to write something; the same one whenever it is asked for again."""
        return choices[self.one(name, choices)]

    def one(self, name: str, choices: Mapping[str, object]) -> str:
        """The name of one of some ways."""
        if name not in self.chosen:
            known = sorted(choices)
            if self.rare and not self.happens("unusual", 0.35):
                known = [it for it in known if it not in self.rare] or known
            self.chosen[name] = self.chance.choice(known)
        return self.chosen[name]

    def happens(self, name: str, share: float) -> bool:
        """Whether the program has something that so many have."""
        if name not in self.chosen:
            self.chosen[name] = "yes" if self.chance.random() < share else "no"
        return self.chosen[name] == "yes"
