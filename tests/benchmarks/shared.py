"""Steps per second where every process needs whole batches: loaded by each, and loaded once."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

from ..runtime import jobs
from .rounds import machine, ratio

ROUNDS = 12
SCRIPT = Path(__file__).with_name("loading.py")
CASES = {
    "cheap": "images that are there, a small network",
    "costly": "images that are computed, a small network",
    "resnet": "images that are there, 8 residual blocks",
}
FORMS = {
    "alone": "the original, one process",
    "sharded": "sharded: DistributedSampler, `ddp.DistributedDataParallel`",
    "whole": "whole batches, each process loads all: `ddp.DataParallel`",
    "shared": "whole batches, each loaded once: with `ddp.share(loader)`",
}


def table(rounds: int | None) -> str:
    """Measure, and lay out what came of it."""
    rates = {case: _measured(case, rounds or ROUNDS) for case in CASES}
    rows = [
        f"| {what} | "
        + " | ".join(
            f"{statistics.median(rates[case][form]):.1f}, {ratio(rates[case][form], rates[case]['sharded'])}"
            for case in CASES
        )
        + " |"
        for form, what in FORMS.items()
    ]
    return "\n".join(
        [
            "| steps per second, ratio to sharded | " + " | ".join(CASES.values()) + " |",
            "|---|" + "---|" * len(CASES),
            *rows,
            "",
            machine(),
        ]
    )


def _measured(case: str, rounds: int) -> dict[str, list[float]]:
    """What rank 0 prints: a number for each round of each form."""
    print(f"loading: {case}", file=sys.stderr)
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2]
    process = jobs.start([*command, SCRIPT, case, rounds], jobs.ROOT, 2, OMP_NUM_THREADS=1)
    out, err = process.communicate(timeout=1200)
    if process.returncode != 0:
        raise RuntimeError(f"{SCRIPT.name} ended with {process.returncode}\n{out}\n{err}")
    return json.loads(jobs.unlabelled(out).splitlines()[-1])
