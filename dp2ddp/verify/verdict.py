"""What a verification comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from dp2ddp.verify.notes import Notes
from dp2ddp.verify.rounding import Moved


class Verdict(Enum):
    """The three answers."""

    MATCH = "MATCH"
    DIFFERS = "DIFFERS"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True)
class Difference:
    """One thing in which the converted program is not the original."""

    step: int
    """The optimizer step in which it shows, from 1 on; 0: before the first."""
    what: str
    detail: str
    cause: str = ""
    """A name of the table in ``causes``."""
    tensor: str = ""
    """The first one that differs."""


@dataclass(frozen=True)
class Tolerance:
    """How close is equal."""

    losses: float
    gradients: float
    """Relative to the norm of all gradients."""
    parameters: float
    adaptive: float
    """Of parameters, where the optimizer divides gradients by their size."""
    moved: Moved = field(default_factory=Moved)
    """What rounding was measured to do, where that is more."""
    varying: Mapping[tuple[str, Any], str] = field(default_factory=dict)
    """What the original prints, writes and saves otherwise in each of its runs: see ``contents.varying``."""

    parts: bool = True
    """Whether numbers of training may be of the main process's part of a batch."""

    @property
    def written(self) -> float:
        """Of a number that is printed or saved, relative to its size."""
        return max(self.losses, self.adaptive)

    def stepped(self, adaptive: bool, spent: float) -> float:
        """Of parameters after steps whose learning rates come to ``spent``."""
        if not adaptive:
            return self.parameters
        return self.adaptive + (2 * spent if self.adaptive >= 1e-5 else 0.0)

    @staticmethod
    def of(float64: bool) -> Tolerance:
        """Those of a type: rounding is all that may differ."""
        return Tolerance(1e-9, 1e-8, 1e-12, 1e-7) if float64 else Tolerance(1e-4, 2e-4, 1e-5, 1e-5)


@dataclass
class Result:
    """A verification, ready to be shown."""

    verdict: Verdict
    reason: str = ""
    """Why it is inconclusive."""
    indivisible: bool = False
    """Because this number of processes can't divide the batches."""
    unfit: str = ""
    """Why another number of processes may tell more."""
    differences: list[Difference] = field(default_factory=list)
    """The first one first."""
    before: list[Notes] = field(default_factory=list)
    """One run; several with other seeds where nothing is aligned."""
    after: list[list[Notes]] = field(default_factory=list)
    steps: int = 0
    """How many were compared."""
    cut: Difference | None = None
    """What differs later, where rounding may have made another training of it."""
    parts: bool = False
    """Numbers of training that are shown are of the main process's part."""
    widened: bool = False
    """In float64, because rounding parts the programs in float32."""
    compared: list[tuple[str, str]] = field(default_factory=list)
    """What was compared, and how far apart it is at most."""
    aligned: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    errors: str = ""
    """What a run that failed said."""
    reached: frozenset[int] = frozenset()
    """Which of the places that were watched the original has run, by their numbers."""
    versions: list[tuple[str, str]] = field(default_factory=list)
    command: str = ""
    diff: str = ""
    seconds: float = 0.0
