"""Start recorded runs of the fixtures, each one once, and read back what they did."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mnist
import torch

from parity import compare

REPOSITORY = Path(__file__).resolve().parents[2]
FIXTURES = REPOSITORY / "fixtures"
RECORD = Path(__file__).with_name("record.py")
WARM = Path(__file__).with_name("warm.py")
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
        """This run; an error with its output where it failed."""
        if self.code != 0:
            raise RuntimeError(
                f"exit code {self.code} ({self.codes})\n{self.printed[-3000:]}\n{self.errors[-6000:]}"
            )
        return self


class Warm:
    """The server that forks ranks with torch already imported; see `warm`."""

    def __init__(self) -> None:
        self.server: subprocess.Popen[str] | None = None

    def run(self, job: dict[str, Any]) -> list[int]:
        """Run `job`, and return its ranks' exit codes."""
        if self.server is None:
            self.server = subprocess.Popen(
                [sys.executable, WARM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment(),
                start_new_session=True,
            )
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps(job) + "\n")
        self.server.stdin.flush()
        return json.loads(self.server.stdout.readline())

    def close(self) -> None:
        """End the server."""
        if self.server is not None:
            assert self.server.stdin is not None
            self.server.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self.server.wait(10)
            end_group(self.server)


def environment(**more: str) -> dict[str, str]:
    """This process's environment without traces of another job, able to import dp2ddp."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
        and not name.startswith(("DP2DDP_", "TORCHELASTIC_", "SLURM_", "PARITY"))
    }
    path = os.pathsep.join(filter(None, (str(REPOSITORY), kept.get("PYTHONPATH"))))
    return {**kept, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **more}


def end_group(process: subprocess.Popen[Any], mark: str = "") -> None:
    """Kill what is left of a process's group, and of the processes that carry `mark` in their environment."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for entry in Path("/proc").glob("[0-9]*/environ") if mark else ():
        with suppress(OSError):
            if mark.encode() in entry.read_bytes():
                os.kill(int(entry.parent.name), signal.SIGKILL)


def run_command(
    command: Sequence[str | Path], folder: Path, env: dict[str, str], timeout: float
) -> tuple[int, str, str]:
    """Run `command` with a time limit, leave nothing of it running, and return exit code and outputs."""
    mark = f"PARITY_RUN={uuid.uuid4().hex}"
    name, value = mark.split("=")
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd=folder,
            env={**env, name: value},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = 124
        finally:
            end_group(process, mark)
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


def free_port() -> int:
    """A port nobody listens on just now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Lab:
    """Runs scripts under a folder of its own; asks each question once and remembers the answer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.warm = Warm()
        self.runs: dict[Any, Run] = {}
        self.converted_: dict[str, Path] = {}
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

        `launcher` is "warm" (forked ranks that see what torchrun sets), "plain" (`python script`, with
        `DP2DDP_PROCESSES` where `processes` is more than one) or "torchrun".
        """
        folder = folder or self.place(script.parent.name)
        out = self.place("notes")
        settings = {"float64": True, **settings, "out": str(out)}
        base = environment(**({"PARITY": json.dumps(settings)} if recorded else {}), **(env or {}))
        if launcher != "warm" and processes > 1 and launcher != "torchrun":
            base["DP2DDP_PROCESSES"] = str(processes)
        started = time.monotonic()
        codes: list[int] = []
        if launcher == "warm":
            group = (
                {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)} if processes > 1 else {}
            )
            if group:
                group |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
                group |= {
                    "GROUP_RANK": "0",
                    "TORCHELASTIC_RUN_ID": "parity",
                    "TORCHELASTIC_RESTART_COUNT": "0",
                }
            places = [
                {"RANK": str(rank), "LOCAL_RANK": str(rank)} if group else {} for rank in range(processes)
            ]
            files = {name: str(out / name) for name in ("stdout", "stderr")}
            job = {
                "command": [str(script), *arguments],
                "cwd": str(folder),
                "ranks": [{**base, **group, **place} for place in places],
                "timeout": timeout,
                **files,
            }
            codes = self.warm.run(job)
            code = next((code for code in codes if code != 0), 0)
            printed, errors = (
                (Path(file).read_text() if Path(file).exists() else "") for file in files.values()
            )
        else:
            start = [sys.executable]
            if launcher == "torchrun":
                start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
            command = [*start, str(RECORD), str(script), *arguments]
            code, printed, errors = run_command(command, folder, base, timeout)
        ranks = [torch.load(path) for path in sorted(out.glob("*.pt"), key=lambda path: int(path.stem))]
        return Run(code, printed, errors, folder, time.monotonic() - started, ranks, codes)

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
        """The global batches of `after`, in a file that a reference run can draw from."""
        path = self.place("plan") / "plan.pt"
        torch.save(compare.global_batches(after.ranks), path)
        return path
