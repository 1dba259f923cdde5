"""Start-up: the same small program, started by torchrun and by itself."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from ..runtime import jobs
from .rounds import machine, order, ratio

ROUNDS = 9

BY_HAND = """
import torch
import torch.distributed as dist
import torchvision

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
assert total.item() == 2
dist.destroy_process_group()
"""

INIT = """
from dp2ddp import runtime as ddp

ddp.init()

import torch
import torch.distributed as dist
import torchvision

total = torch.ones(1)
dist.all_reduce(total)
assert total.item() == 2
"""

LAUNCH = """
import torch
import torch.distributed as dist
import torchvision

from dp2ddp import runtime as ddp


def main():
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == 2


ddp.launch(main)
"""

IMPORTS = "import torch, torch.distributed, torchvision"

COMMANDS = {
    "torchrun": [*jobs.TORCHRUN, "by_hand.py"],
    "init": ["init.py"],
    "launch": ["launch.py"],
    "imports": ["-c", IMPORTS],
}


def table(rounds: int | None) -> str:
    """Measure, and lay out what came of it."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        for name, script in {"by_hand": BY_HAND, "init": INIT, "launch": LAUNCH}.items():
            (Path(folder) / f"{name}.py").write_text(script)
        for number in range(-1, rounds or ROUNDS):  # the first one fills the caches
            for name in order(list(COMMANDS), number):
                seconds = _measure(COMMANDS[name], Path(folder))
                if number >= 0:
                    times[name].append(seconds)
            print(f"start: round {number + 1} of {rounds or ROUNDS}", file=sys.stderr)
    sums = [a + b for a, b in zip(times["torchrun"], times["imports"], strict=True)]

    def row(what: str, name: str, against: str) -> str:
        return f"| {what} | {statistics.median(times[name]):.2f} s | {against} |"

    return "\n".join(
        [
            "| a program that imports torchvision, 2 processes | start to end | ratio |",
            "|---|---|---|",
            row("`torchrun train.py`, written by hand", "torchrun", "1"),
            row(
                "`python train.py`, `init()` above the imports",
                "init",
                ratio(times["init"], times["torchrun"]),
            ),
            row(
                "`python train.py`, `launch(main)` at the end",
                "launch",
                f"{ratio(times['launch'], times['torchrun'])}; against torchrun and one import of the script, "
                f"{statistics.median(times['imports']):.2f} s: {ratio(times['launch'], sums)}",
            ),
            "",
            machine(f"torchvision {version('torchvision')}"),
        ]
    )


def _measure(command: list[str], folder: Path) -> float:
    begin = time.perf_counter()
    process = jobs.start(command, folder, 2, OMP_NUM_THREADS=1)
    out, err = process.communicate(timeout=120)
    seconds = time.perf_counter() - begin
    if process.returncode != 0:
        raise RuntimeError(f"{command} ended with {process.returncode}\n{out}\n{err}")
    return seconds
