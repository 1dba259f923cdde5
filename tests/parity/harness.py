"""Start recorded runs of the fixtures, each one once, and read back what they did."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mnist
import torch

from dp2ddp.convert import mended_paths
from dp2ddp.verify import notes
from dp2ddp.verify.jobs import (
    Server,
    environment,
    free_port,
    ranks_environment,
    run_command,
    torchrun_environment,
    variable,
)
from parity import compare

REPOSITORY = Path(__file__).resolve().parents[2]
FIXTURES = REPOSITORY / "fixtures"
RECORD = ("-m", "dp2ddp.verify.record")
__all__ = ["Lab", "Run", "Shape", "environment", "free_port"]
SAMPLES, TESTS, BATCH, EPOCHS = 250, 150, 32, 2
"""A data set that leaves an uneven last batch, and twice eight steps: the first 20 are what counts."""


@dataclass(frozen=True)
class Shape:
    """One fixture, and where its program keeps what the tests look at."""

    name: str
    evaluation: str
    """Matches the printed evaluation numbers."""
    checkpoint: str
    weights: str | None
    """The key of the model's weights in the checkpoint; None where it holds nothing else."""
    resume: tuple[str, ...] = ()
    """Arguments that continue from the checkpoint for one more epoch after the first `EPOCHS`."""
    drop_last: bool = False

    @property
    def before(self) -> Path:
        """The folder of the program as people wrote it."""
        return FIXTURES / self.name / "before"

    def numbers(self, printed: str) -> list[str]:
        """The evaluation numbers in what the program printed."""
        return re.findall(self.evaluation, printed, re.MULTILINE)


SHAPES = {
    shape.name: shape
    for shape in (
        Shape(
            "flat",
            evaluation=r"^Test Loss: .*$",
            checkpoint="checkpoint/ckpt.pth",
            weights="net",
            resume=("--resume", "--epochs", "1"),
        ),
        Shape(
            "main",
            evaluation=r"^ \* Acc@1 .*$|^Best accuracy: .*$",
            checkpoint="checkpoint.pth.tar",
            weights="state_dict",
            resume=("--resume", "checkpoint.pth.tar", "--epochs", str(EPOCHS + 1)),
            drop_last=True,
        ),
        Shape("tutorial", evaluation=r"test accuracy .*$", checkpoint="mnist.pt", weights=None),
        Shape(
            "trainer",
            evaluation=r"test loss .*$",
            checkpoint="output/checkpoint.pth",
            weights="state_dict",
            resume=("--resume", "output/checkpoint.pth", "--epochs", str(EPOCHS + 1)),
        ),
    )
}


@dataclass
class Run:
    """What one run of a script did."""

    code: int
    printed: str
    errors: str
    folder: Path
    seconds: float
    ranks: list[compare.Notes] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)

    def files(self) -> list[str]:
        """The files the script wrote, relative to where it ran; of event files, all but time and machine."""
        return sorted(
            re.sub(r"tfevents\..*", "tfevents", str(path.relative_to(self.folder)))
            for path in self.folder.rglob("*")
            if path.is_file()
        )

    def load(self, path: str) -> Any:
        """A file that the script saved."""
        return torch.load(self.folder / path, weights_only=True)

    def ok(self) -> Run:
        """This run; an error with its output where it failed, or where several ranks wrote one file."""
        if self.code != 0 or "and so does another rank" in self.errors:
            raise RuntimeError(
                f"exit code {self.code} ({self.codes})\n{self.printed[-3000:]}\n{self.errors[-6000:]}"
            )
        return self


def view(rank: notes.Notes) -> compare.Notes:
    """What `compare` looks at of a rank's notes."""
    training = [one for one in rank.passes if one.trains]
    return {
        "rank": rank.rank,
        "losses": rank.losses,
        "parameters": rank.parameters,
        "steps": len(rank.steps),
        "epochs": [one.drawn for one in training],
        "evaluations": [one.drawn for one in rank.passes if not one.trains],
        "own_sizes": [[one.own_size(place) for place in range(len(one.own))] for one in training],
        "notes": rank,
    }


def _needs_gpus(script: Path) -> bool:
    """Whether a program moves something to the current GPU, so that it must see some."""
    texts = (path.read_text(errors="replace") for path in script.parent.rglob("*.py"))
    return not torch.cuda.is_available() and any(".cuda(" in text for text in texts)


class Lab:
    """Runs scripts under a folder of its own; asks each question once and remembers the answer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.warm = Server("torchvision", "torch.distributed.run", "torch.utils.tensorboard", folder=folder)
        self.runs: dict[Any, Run] = {}
        self.converted_: dict[str, Path] = {}
        self.mended_: dict[str, Path] = {}
        self.count = 0

    def close(self) -> None:
        """End what was started."""
        self.warm.close()

    def data(self, train: int = SAMPLES, test: int = TESTS) -> Path:
        """The root of a small data set."""
        root = self.folder / f"data-{train}-{test}"
        return root if root.exists() else mnist.write(root, train, test)

    def place(self, name: str) -> Path:
        """A new empty folder."""
        self.count += 1
        path = self.folder / f"{self.count:03}-{name}"
        path.mkdir()
        return path

    def converted(self, name: str) -> Path:
        """The folder of a fixture's program as `dp2ddp convert` writes it."""
        if name not in self.converted_:
            output = self.folder / "converted" / name
            output.parent.mkdir(exist_ok=True)
            before = FIXTURES / name / "before"
            command = [sys.executable, "-m", "dp2ddp", "convert", before, "--output", output]
            code, out, err = run_command(command, self.folder, environment(), timeout=120)
            if code != 0:
                raise RuntimeError(f"convert ended with {code}\n{out[-3000:]}\n{err[-3000:]}")
            self.converted_[name] = next(iter(output.rglob("train.py"))).parent
        return self.converted_[name]

    def mended(self, name: str) -> Path:
        """The folder of a fixture's program as today's Python and PyTorch run it, otherwise as it was."""
        if name not in self.mended_:
            before, folder = FIXTURES / name / "before", self.folder / "mended" / name
            shutil.copytree(before, folder)
            for change in mended_paths([before / "train.py"]):
                (folder / change.path.relative_to(before)).write_bytes(change.after_bytes)
            self.mended_[name] = folder
        return self.mended_[name]

    def run(
        self,
        script: Path,
        arguments: Sequence[str] = (),
        *,
        launcher: str = "warm",
        processes: int = 1,
        folder: Path | None = None,
        timeout: float = 120,
        env: dict[str, str] | None = None,
        recorded: bool = True,
        **settings: Any,
    ) -> Run:
        """Run `script`, recorded unless told otherwise, in a folder of its own.

        `launcher` is "warm" (forked ranks that see what the runtime's own see), "warm torchrun" (what torchrun's see;
        in both, programs that are to differ by rank find it in LAB_RANK),
        "plain" (`python script`, with `DP2DDP_PROCESSES` where `processes` is more than one) or "torchrun".
        """
        folder = folder or self.place(script.parent.name)
        out = self.place("notes")
        settings = {"float64": True, "parameters": "all", **settings, "out": str(out)}
        if settings.get("replicas"):
            settings["gpus"] = settings["replicas"]
        elif _needs_gpus(script):
            settings.setdefault("gpus", processes)
        seen = {"gpus": settings["gpus"]} if "gpus" in settings else {}
        told = settings if recorded else seen
        base = environment(**(variable(told) if told else {}), **(env or {}))
        if launcher == "plain" and processes > 1:
            base["DP2DDP_PROCESSES"] = str(processes)
        started = time.monotonic()
        codes: list[int] = []
        if launcher.startswith("warm"):
            files = {name: str(out / name) for name in ("stdout", "stderr")}
            environments = ranks_environment if launcher == "warm" else torchrun_environment
            places = enumerate(environments(processes))
            ranks = [{**base, **place, "LAB_RANK": str(number)} for number, place in places]
            job = {"command": [str(script), *arguments], "cwd": str(folder), "timeout": timeout, **files}
            codes = self.warm.run({**job, "ranks": ranks}).codes
            code = next((code for code in codes if code != 0), 0)
            printed, errors = (
                (Path(file).read_text() if Path(file).exists() else "") for file in files.values()
            )
        else:
            start = [sys.executable]
            if launcher == "torchrun":
                start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
                start += ["-m", RECORD[1]]
            else:
                start += RECORD
            code, printed, errors = run_command([*start, script, *arguments], folder, base, timeout)
        found = [view(rank) for rank in notes.read(out)]
        return Run(code, printed, errors, folder, time.monotonic() - started, found, codes)

    def arguments(self, batch: int = BATCH, samples: int = SAMPLES, seed: int | None = None) -> list[str]:
        """The usual arguments of a short run."""
        seeding = [] if seed is None else ["--seed", str(seed)]
        data = str(self.data(samples))
        return ["--data", data, "--epochs", str(EPOCHS), "--batch-size", str(batch), *seeding]

    def after(
        self,
        name: str,
        processes: int = 2,
        launcher: str = "warm",
        *,
        batch: int = BATCH,
        samples: int = SAMPLES,
        seed: int | None = None,
        float64: bool = True,
    ) -> Run:
        """A short run of the converted fixture."""
        key = ("after", name, processes, launcher, batch, samples, seed, float64)
        if key not in self.runs:
            self.runs[key] = self.run(
                self.converted(name) / "train.py",
                self.arguments(batch, samples, seed),
                launcher=launcher,
                processes=processes,
                float64=float64,
            )
        return self.runs[key]

    def before(self, name: str, processes: int = 2, **which: Any) -> Run:
        """A short run of the fixture as it was, on as many replicas, drawing what `after` drew."""
        key = ("before", name, processes, *sorted(which.items()))
        if key not in self.runs:
            after = self.after(name, processes, **which).ok()
            self.runs[key] = self.run(
                SHAPES[name].before / "train.py",
                self.arguments(which.get("batch", BATCH), which.get("samples", SAMPLES), which.get("seed")),
                replicas=processes if processes > 1 else None,
                plan=str(self.plan(after)),
                float64=which.get("float64", True),
            )
        return self.runs[key]

    def plan(self, after: Run) -> Path:
        """The training batches of `after`, in a file that a reference run can draw from."""
        path = self.place("plan") / "plan.json"
        path.write_text(json.dumps(notes.plan([rank["notes"] for rank in after.ranks])))
        return path
