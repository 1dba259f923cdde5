"""Steps per second: training loops in the same two processes, in turn."""

from __future__ import annotations

import json
import statistics
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..runtime import jobs
from .rounds import machine, ratio

ROUNDS = 150
LOOPS = Path(__file__).with_name("loops.py")
NAMES = {
    "hand": "by hand: DistributedSampler, torch's DistributedDataParallel",
    "again": "the same once more, for how much is chance",
    "sampler": "DistributedSampler, `ddp.DistributedDataParallel`",
    "shard": "`ddp.shard(loader)`, `ddp.DistributedDataParallel`",
    "accelerate": "accelerate",
    "fabric": "Lightning Fabric",
    "torch_wrap": "one fixed batch, torch's DistributedDataParallel",
    "wrap": "one fixed batch, `ddp.DistributedDataParallel`",
    "bare": "one process, neither wrapped nor sharded",
    "alone": "one process, `ddp.shard(loader)`, `ddp.DistributedDataParallel`",
    "bare_wrap": "one process, one fixed batch, bare model",
    "alone_wrap": "one process, one fixed batch, `ddp.DistributedDataParallel`",
}
AGAINST = {
    "again": "hand",
    "sampler": "hand",
    "shard": "hand",
    "accelerate": "hand",
    "fabric": "hand",
    "wrap": "torch_wrap",
    "alone": "bare",
    "alone_wrap": "bare_wrap",
}


def table(rounds: int | None) -> str:
    """Measure, and lay out what came of it."""
    rates = measure(LOOPS, 2, rounds or ROUNDS) | measure(LOOPS, 1, rounds or ROUNDS)
    rows = []
    for name, what in NAMES.items():
        if name not in rates:
            rows.append(f"| {what} | not installed | |")
            continue
        against = ratio(rates[name], rates[AGAINST[name]]) if name in AGAINST else "1"
        rows.append(f"| {what} | {statistics.median(rates[name]):.1f} | {against} |")
    return "\n".join(
        [
            "| a small convolutional network, 64 images of MNIST's size a step | steps per second | ratio |",
            "|---|---|---|",
            *rows,
            "",
            machine(*_versions("accelerate", "lightning")),
        ]
    )


def measure(script: Path, processes: int, rounds: int) -> dict[str, list[float]]:
    """What rank 0 of a script prints: a number for each round of each thing."""
    print(f"{script.stem}: {processes} processes", file=sys.stderr)
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes]
    process = jobs.start([*command, script, rounds], jobs.ROOT, processes, OMP_NUM_THREADS=1)
    out, err = process.communicate(timeout=1200)
    if process.returncode != 0:
        raise RuntimeError(f"{script.name} ended with {process.returncode}\n{out}\n{err}")
    return json.loads(jobs.unlabelled(out).splitlines()[-1])


def _versions(*packages: str) -> list[str]:
    found = []
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return found
