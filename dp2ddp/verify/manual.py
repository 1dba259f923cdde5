"""Parameters that a program updates by itself, without an optimizer of torch's: ``p.data.add_(-lr * p.grad)``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dp2ddp.verify.digests import digest


class Manual:
    """Stands in for the optimizer of such a program: a step is a change of parameters after a backward pass.

    Args:
        parameters: gives those of the wrapped models.
    """

    def __init__(self, parameters: Callable[[], Sequence[torch.nn.Parameter]]) -> None:
        self.param_groups: list[dict[str, Any]] = []
        self._parameters = parameters
        self._kept = False
        self.before: list[list[float] | None] = []
        """Digests of the parameters that the last backward pass was made with."""
        self.gradients: list[list[float] | None] = []
        """Digests of what it has given."""
        self.buffers: dict[str, list[float] | None] = {}

    def after_backward(self, buffers: dict[str, list[float] | None]) -> None:
        """Keep what the gradients and ``buffers`` are, and the parameters before they are changed."""
        self.buffers = buffers
        parameters = list(self._parameters())
        if not self.param_groups or len(self.param_groups[0]["params"]) != len(parameters):
            self.param_groups = [{"params": parameters}]
        self.gradients = [digest(it.grad) for it in parameters]
        self.before, self._kept = [digest(it) for it in parameters], True

    def has_stepped(self) -> bool:
        """Whether parameters were changed since the last backward pass; once for each such change."""
        if not self._kept:
            return False
        self._kept = False
        return [digest(it) for it in self.param_groups[0]["params"]] != self.before
