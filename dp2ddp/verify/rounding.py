"""How far rounding alone carries a program: the original against itself, with other rounding errors.

Several processes make sums in another order. In the gradients that is an ulp or so, and what follows may turn it into
much more: Adam and its like divide by a gradient's size, also where the true one is zero and all of it is rounding.
How much more hangs on the program, so it is measured: the original runs again with its losses' gradients a few ulps
larger or smaller, and what moves then, in each tensor, is what rounding moves.
"""

from __future__ import annotations

import math
import random
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from dp2ddp.verify.notes import Digest, Notes, distance, norm

ULPS = 4
"""By how many units in the last place a loss's gradient is changed, at most."""
RUNS = 2
"""How often it is measured: what rounding does to a single number may be little by chance."""
ROOM = 10.0
"""How much farther than measured two programs may be apart, as rounding errors are random."""
CHAOS = 1e-3
"""From what part of all gradients' norm on, moved by rounding alone, a training is chaotic: no step is comparable."""
LEAD = 0.1
"""How much earlier that may be for other rounding errors, as a part of the steps up to there."""


class Nudge:
    """Changes the gradients that backward passes begin with by a few ulps, which makes all rounding errors others.

    Args:
        seed: of the changes.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def __call__(self, tensor: torch.Tensor, gradient: Any) -> torch.Tensor:
        """The gradient that ``tensor.backward`` is to begin with, in the place of ``gradient`` or of one."""
        begun = torch.ones_like(tensor) if gradient is None else gradient
        ulps = self._random.choice([it for it in range(-ULPS, ULPS + 1) if it])
        return begun * (1 + ulps * torch.finfo(begun.dtype).eps)


@dataclass(frozen=True)
class Moved:
    """How far two programs may be apart by rounding, at each step: what was measured up to there, and room.

    Absolute distances, of digests where it is about tensors; 0 of what was not measured.
    """

    losses: list[float] = field(default_factory=list)
    gradients: list[dict[int, float]] = field(default_factory=list)
    """By place in the step's optimizer, as ``parameters``."""
    parameters: list[dict[int, float]] = field(default_factory=list)
    buffers: list[dict[str, float]] = field(default_factory=list)
    saved: dict[tuple[int, str, str], float] = field(default_factory=dict)
    """By step, path and bare key."""
    written: Mapping[tuple[str, int], float] = field(default_factory=dict)
    """Of numbers in lines: see ``contents.moved``."""
    chaotic: float = math.inf
    """The first step that is not to be compared, as rounding alone may have made another training of it by then."""

    def loss(self, step: int) -> float:
        """Of a loss of a step, from 1 on."""
        return self.losses[step - 1] if step <= len(self.losses) else 0.0

    def gradient(self, step: int, place: int) -> float:
        """Of a gradient before a step."""
        return self.gradients[step - 1].get(place, 0.0) if step <= len(self.gradients) else 0.0

    def parameter(self, step: int, place: int) -> float:
        """Of a parameter after a step."""
        return self.parameters[step - 1].get(place, 0.0) if step <= len(self.parameters) else 0.0

    def buffer(self, step: int, name: str) -> float:
        """Of a buffer after a step."""
        return self.buffers[step - 1].get(name, 0.0) if step <= len(self.buffers) else 0.0


def moved(run: Notes, others: Sequence[Notes]) -> Moved:
    """What was measured: a run of the original, and runs of it with other rounding errors."""
    found = Moved(chaotic=_chaotic(run, others))
    farthest: defaultdict[tuple[str, int, int | str], float] = defaultdict(float)

    def measured(kind: str, optimizer: int, pairs: Mapping[Any, tuple[Digest, Digest]]) -> dict[Any, float]:
        """How far it has been at most, up to this step."""
        for name, (one, other) in pairs.items():
            key = kind, optimizer, name
            farthest[key] = max(farthest[key], ROOM * distance(one, other))
        return {name: farthest[kind, optimizer, name] for name in pairs}

    for number, step in enumerate(run.steps):
        rows: dict[str, dict[Any, float]] = {}
        for other in (it.steps[number] for it in others if number < len(it.steps)):
            both = zip(step.losses, other.losses, strict=False)
            losses = {place: ([a], [b]) for place, (a, b) in enumerate(both) if None not in (a, b)}
            rows["losses"] = measured("losses", 0, losses)
            for kind in ("gradients", "digests"):
                pairs = enumerate(zip(getattr(step, kind), getattr(other, kind), strict=False))
                rows[kind] = measured(kind, step.optimizer, dict(pairs))
            names = step.buffers.keys() & other.buffers.keys()
            buffers = {name: (step.buffers[name], other.buffers[name]) for name in names}
            rows["buffers"] = measured("buffers", 0, buffers)
        found.losses.append(max(rows.get("losses", {}).values(), default=0.0))
        found.gradients.append(rows.get("gradients", {}))
        found.parameters.append(rows.get("digests", {}))
        found.buffers.append(rows.get("buffers", {}))
    for other in others:
        for one, another in zip(run.saves, other.saves, strict=False):
            for key, value in one.values.items() if one.path == another.path else ():
                theirs = another.values.get(key)
                if isinstance(value, dict) and isinstance(theirs, dict):
                    place = one.step, one.path, bare_key(key)
                    far = ROOM * distance(value["digest"], theirs["digest"])
                    found.saved[place] = max(found.saved.get(place, 0.0), far)
    return found


def _chaotic(run: Notes, others: Sequence[Notes]) -> float:
    for number, step in enumerate(run.steps):
        scale = max(norm(step.gradients), 1e-30)
        for other in (it.steps[number] for it in others if number < len(it.steps)):
            pairs = zip(step.gradients, other.gradients, strict=False)
            if any(distance(mine, theirs) > CHAOS * scale for mine, theirs in pairs):
                return max(2, step.number - math.ceil(LEAD * step.number))
    return math.inf


def bare_key(key: str) -> str:
    """The key of a checkpoint's value without what a wrapper adds."""
    return re.sub(r"(?<!\w)(_orig_mod\.)?module\.", "", key, count=1)
