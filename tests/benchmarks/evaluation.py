"""Seconds of an evaluation: of all of it on every process, and of a part on each."""

from __future__ import annotations

import statistics
from pathlib import Path

from .rounds import machine, ratio
from .steps import measure

ROUNDS = 40
EVALUATIONS = Path(__file__).with_name("evaluations.py")
NAMES = {
    "whole": "every process evaluates everything",
    "again": "the same once more, for how much is chance",
    "batches": "`ddp.shard_batches(loader)`, `ddp.sum` of the counts (where a loop only adds up)",
    "divided": "`ddp.divide_batches(loader)`, `ddp.whole_batch` of outputs and targets (where a loop does more)",
    "parts": "`ddp.shard(loader, training=False)`, `ddp.sum` of the counts",
}


def table(rounds: int | None) -> str:
    """Measure, and lay out what came of it."""
    seconds = measure(EVALUATIONS, 2, rounds or ROUNDS)
    rows = [
        f"| {what} | {statistics.median(seconds[name]):.3f} s | "
        f"{'1' if name == 'whole' else ratio(seconds[name], seconds['whole'])} |"
        for name, what in NAMES.items()
    ]
    return "\n".join(
        [
            "| an evaluation on 4113 images of MNIST's size, 2 processes | time | ratio |",
            "|---|---|---|",
            *rows,
            "",
            machine(),
        ]
    )
