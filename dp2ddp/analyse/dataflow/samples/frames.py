"""Frames: what one call of a function gives its parameters."""

from __future__ import annotations

from dataclasses import dataclass, field

from dp2ddp.analyse.dataflow.kinds import Value
from dp2ddp.analyse.program.values import Values

GIVEN = "something of the batch"
"""What stands for an argument that is no literal, and not None."""


@dataclass(eq=False)
class Frame:
    """What the parameters of a function are in one call of it, and those that are given a literal, or ``GIVEN``."""

    given: dict[int, Value] = field(default_factory=dict)
    literals: dict[int, object] = field(default_factory=dict)
    depth: int = 0
    training: bool | None = None
    """What ``self.training`` is, in a module's forward."""
    called: dict[int, Values] = field(default_factory=dict)
    """What parameters are that are called, or handed on to be: one caller's function is none of the other's."""


OPEN = Frame()
"""Where the calls of a function are not told apart: a parameter is what any call gives it."""
