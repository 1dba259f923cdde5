"""Stands in for tensorboardX."""

from __future__ import annotations

import os
from collections.abc import Callable

from tracked import note


class SummaryWriter:
    """Makes its folder, and notes what it is given."""

    def __init__(self, logdir: str = "runs", comment: str = "") -> None:
        self.logdir = f"{logdir}{comment}"
        os.makedirs(self.logdir, exist_ok=True)
        note(f"SummaryWriter({self.logdir})")

    def get_logdir(self) -> str:
        """Where it writes."""
        return self.logdir

    def add_scalar(self, tag: str, value: object, step: int = 0) -> None:
        """Note a number's name and step."""
        note(f"{self.logdir}: {tag} {step}")

    def add_graph(self, model: Callable[[object], object], inputs: object) -> None:
        """Run a model, as drawing its graph does."""
        model(inputs)
        note(f"{self.logdir}: graph")

    def close(self) -> None:
        """Note the end."""
        note(f"{self.logdir}: closed")

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
