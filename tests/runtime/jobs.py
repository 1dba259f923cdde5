"""Run scripts as people do: a command, real processes, a time limit, nobody left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
MARK = "DP2DDP_TEST_JOB"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@dataclass
class Result:
    code: int
    out: str
    err: str
    seconds: float
    left: list[int]  # processes of the job that were still there 2 s after its end (and are ended now)


def write(folder: Path, body: str, name: str = "train.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    header = "import os, sys, time\nimport torch\nimport torch.distributed as dist\nfrom dp2ddp import runtime as ddp\n"
    path.write_text(header + textwrap.dedent(body))
    return path


def start(
    command: list, folder: Path, processes: int | None = 2, stdin: int = subprocess.DEVNULL, **env: object
) -> subprocess.Popen:
    """Start ``python *command`` with a clean environment, as the leader of a session."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("DP2DDP_", "TORCHELASTIC", "OMP_"))}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "PYTHONUNBUFFERED"):
        clean.pop(name, None)
    clean["PYTHONPATH"] = str(ROOT)
    clean[MARK] = uuid.uuid4().hex
    clean["DP2DDP_OUTPUT"] = "all"
    if processes is not None:
        clean["DP2DDP_PROCESSES"] = str(processes)
    clean |= {name: str(value) for name, value in env.items()}
    process = subprocess.Popen(
        [sys.executable, *map(str, command)],
        cwd=folder,
        env=clean,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    process.mark = clean[MARK]
    return process


def finish(process: subprocess.Popen, limit: float = 60) -> Result:
    """Wait for a job's end; over the limit it is ended and the test fails."""
    begin = time.monotonic()
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        for pid in alive(process.mark):
            end(pid)
        out, err = process.communicate()
        raise AssertionError(f"the job took more than {limit} s\n{out}\n{err}") from None
    seconds = time.monotonic() - begin
    deadline = time.monotonic() + 2
    while (left := alive(process.mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in left:
        end(pid)
    return Result(process.returncode, *map(unlabelled, (out, err)), seconds, left)


def line(process: subprocess.Popen) -> str:
    """The next line that any of a job's ranks says."""
    return unlabelled(process.stdout.readline())


def unlabelled(text: str) -> str:
    """What all ranks say, without their numbers."""
    return re.sub(r"^\[rank \d+\] ", "", text, flags=re.MULTILINE)


def run(command: list, folder: Path, processes: int | None = 2, limit: float = 60, **env: object) -> Result:
    return finish(start(command, folder, processes, **env), limit)


def alive(mark: str) -> list[int]:
    """The processes whose environment carries a job's mark."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def fill_readme(part: str, text: str) -> None:
    """Write what a command has measured between ``<!-- part -->`` and ``<!-- end -->`` in the runtime's README."""
    readme = ROOT / "dp2ddp" / "runtime" / "README.md"
    before, mark, after = readme.read_text().partition(f"<!-- {part} -->\n")
    if not mark:
        raise SystemExit(f"{readme} has no part <!-- {part} --> … <!-- end -->")
    readme.write_text(before + mark + text + after[after.index("\n<!-- end -->") :])
