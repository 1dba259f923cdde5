"""What comparing replicas costs of a step of ResNet-50's size."""

from __future__ import annotations

import statistics
from pathlib import Path

from .rounds import machine
from .steps import measure

ROUNDS = 30
SCRIPT = Path(__file__).with_name("compared.py")


def table(rounds: int | None) -> str:
    """Measure, and lay out what came of it."""
    seconds = measure(SCRIPT, 2, rounds or ROUNDS)
    plain = statistics.median(seconds["plain"])
    more = [a - b for a, b in zip(seconds["compared"], seconds["plain"], strict=True)]
    low, middle, high = statistics.quantiles(more, n=4)
    shares = [f"{100 * it / plain / 1000:.4f} %" for it in (middle, low, high)]
    first = 100 * middle * 11 / plain / 1000  # the passes 1, 2, 3, 5, 9, … 513 and 1001
    return "\n".join(
        [
            "| a network of 25 million parameters, 2 images of 64 x 64 pixels a process | |",
            "|---|---|",
            f"| a step that is not compared | {plain:.3f} s |",
            f"| more, where it is | {middle:.3f} s ({low:.3f} to {high:.3f}) |",
            f"| of all steps' time, one in 1,000 | **{shares[0]}** ({shares[1]} to {shares[2]}) |",
            f"| of the first 1,000 steps' time | {first:.2f} % |",
            "",
            machine(),
        ]
    )
