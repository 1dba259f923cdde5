"""What goes wrong in training jobs, as data: a script, what is done to it, and how the job has to end.

`test_faults.py` checks it. ``python tests/runtime/faults.py`` prints the table of dp2ddp/runtime/README.md with the times
measured here (``--update`` writes it there); its exit code is 1 if a job ends otherwise than it has to.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jobs
import torch

START = 90.0  # seconds a job may take to get as far as its fault
CACHE = "torchinductor_"  # torch's own folder, empty, which every program leaves

TRAINING = """
import signal
from pathlib import Path
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def fault():
    print("fault", time.monotonic(), flush=True)

class Deadly:
    def __reduce__(self):
        fault()
        os.kill(os.getpid(), signal.SIGKILL)

def main():
    rank, last = ddp.get_rank(), ddp.get_world_size() - 1
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    ddp.save(model.state_dict(), "model.pt")
    {wrap}
    loader = DataLoader(TensorDataset(torch.ones({samples}, 4)), num_workers=1)
    for step, (x,) in enumerate(loader):
        at(step, rank, last)
        model(x).sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        time.sleep(0.01)
    {after}

def at(step, rank, last):
{at}

{before}
ddp.launch(main{options})
"""

SAVING = """
if (step, rank) == (5, 0):
    large, present = torch.ones(100_000), sorted(os.listdir())
    {prepare}
    fault()
    for form in ({{"f": "model.pt"}}, {{"f": Path("new.pt")}}, {{"f": "link.pt"}},
                 {{"f": "model.pt", "_use_new_zipfile_serialization": False}}):
        try:
            ddp.save(large, **form)
        except (OSError, RuntimeError) as error:
            assert {error!r} in str(error), error
        else:
            raise AssertionError(form)
        assert sorted(os.listdir()) == present, os.listdir()
    ddp.save(large, "model.pt")
"""

FULL = """
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
"""

READ_ONLY = """
    os.chmod(".", 0o555)
    if os.geteuid() == 0:  # may write everywhere
        os.seteuid(65534)
"""

WRAP = "model = ddp.DistributedDataParallel(model)"

TAKEN = """
if "DP2DDP_PLACE" not in os.environ:
    import socket
    taken = socket.create_server(("127.0.0.1", 0))
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(taken.getsockname()[1])}
"""


def training(
    at: str, samples: str = "10_000", before: str = "", wrap: str = "", after: str = "", options: str = ""
) -> str:
    """A script that trains with a loader's worker; ``at`` is run at each step. Without DDP it starts sooner."""
    block = textwrap.indent(textwrap.dedent(at).strip("\n"), "    ")
    return TRAINING.format(at=block, samples=samples, before=before, wrap=wrap, after=after, options=options)


def on_last(action: str) -> str:
    """A script whose last rank does something at its fifth step: the fault."""
    return training(f"if (step, rank) == (5, last):\n    fault()\n    {action}")


def saving(prepare: str, error: str) -> str:
    """A script whose rank 0 saves what cannot be saved, in each way that ``save`` knows."""
    link = "if 'DP2DDP_PLACE' not in os.environ: os.symlink('model.pt', 'link.pt')"
    return training(SAVING.format(prepare=prepare.strip(), error=error), before=link)


WAITING = training("if (step, rank) == (5, 0):\n    fault()")


def failed(rank: str, code: int = 1) -> str:
    """The pattern of what the agent says of a rank that failed."""
    return rf"dp2ddp: rank {rank} failed with exit code {code}\n"


def raised(error: str, rank: str = "{last}", note: str = "") -> str:
    """The pattern of one traceback, with a rank and ``note``, and of what the agent says of it."""
    lines = rf"Traceback \(most recent call last\):\n(?:(?!Traceback).)*\n{error}\non rank {rank} of {{world}}\n{note}"
    return lines + failed(rank)


def ended(rank: str, needing: str) -> str:
    """The pattern of what is said of a rank that ended too early."""
    return rf"dp2ddp: rank {rank} has ended, but rank {needing} of {{world}} still needs it \(in a collective at train\.py:\d+\): ending the job\n"


def stopped(name: str) -> str:
    return rf"dp2ddp: stopped by {name}\n"


def send(*numbers: int, group: bool = False) -> Callable[[subprocess.Popen], None]:
    """Send signals to the command, or to the terminal's whole foreground group, a tenth of a second apart."""

    def act(process: subprocess.Popen) -> None:
        for position, number in enumerate(numbers):
            time.sleep(0.1 * (position > 0))
            (os.killpg if group else os.kill)(process.pid, number)

    return act


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong, and how the job has to end."""

    name: str  # as in dp2ddp/runtime/README.md
    script: str
    code: int
    shown: str  # for people
    pattern: str  # all of standard error, without torch's `[rank1]: `; {last} and {world} are filled in
    act: Callable[[subprocess.Popen], None] | None = None  # when the script has printed its first line
    limit: float = 10.0  # seconds from the fault until the last process has gone
    env: dict[str, object] = field(default_factory=dict)
    torchrun: bool = False
    beside: bool = False  # a second job runs at the same time in the same folder, and goes on
    saved: Sequence[str] = ("model.pt",)
    variant: bool = False  # much like another one, or long: a slow test


FAULTS = [
    Fault(
        "a rank raises an exception",
        on_last("raise ValueError('bad sample')"),
        1,
        "its traceback, with the rank",
        raised("ValueError: bad sample"),
    ),
    Fault(
        "every rank raises it",
        training("if step == 5:\n    fault()\n    raise ValueError('bad sample')"),
        1,
        "one traceback, with the rank",
        raised("ValueError: bad sample", r"\d"),
        variant=True,
    ),
    Fault(
        "a rank is killed",
        on_last("os.kill(os.getpid(), 9)"),
        137,
        "the rank and the signal",
        r"dp2ddp: rank {last} was killed by signal 9 \(SIGKILL\)\n",
        variant=True,
    ),
    Fault(
        "a rank is killed, another job runs beside it",
        on_last("os.kill(os.getpid(), 9)"),
        137,
        "the rank and the signal; the other job goes on",
        r"dp2ddp: rank {last} was killed by signal 9 \(SIGKILL\)\n",
        limit=4.0,  # loader workers notice after 5 s that their rank is gone
        beside=True,
        variant=True,
    ),
    Fault(
        "a rank calls `sys.exit(3)`",
        on_last("sys.exit(3)"),
        3,
        "the rank and its exit code",
        failed("{last}", 3),
        variant=True,
    ),
    Fault(
        "a rank calls `sys.exit(0)`, others need it",
        on_last("sys.exit(0)"),
        1,
        "which rank has ended, and one that needs it",
        ended("{last}", r"\d") + failed(r"\d"),
    ),
    Fault(
        "the same under torchrun",
        on_last("sys.exit(0)"),
        1,
        "the same, then torchrun's report",
        ended("{last}", r"\d") + ".*ChildFailedError.*",
        torchrun=True,
        env={"OMP_NUM_THREADS": 1},
        variant=True,
    ),
    Fault(
        "a rank has one batch more",
        training("if step == 20:\n    fault()", samples="20 + (rank == last)", wrap=WRAP),
        1,
        "which rank has ended, and the one that needs it",
        ended(r"\d", "{last}") + failed("{last}"),
    ),
    Fault(
        "the same, the others are at `ddp.barrier()`",
        training("if step == 20:\n    fault()", samples="20 + (rank == last)", after="ddp.barrier()"),
        1,
        "which rank waits at the barrier, and which for it",
        r"dp2ddp: rank \d waits at a barrier at train\.py:\d+ for rank {last} of {world}, "
        r"which waits for it in a collective at train\.py:\d+: ending the job\n" + failed("{last}"),
    ),
    Fault(
        "a rank hangs, 5 s is the timeout",
        on_last("time.sleep(1000)"),
        1,
        "the traceback of one that waits; which rank has not come, and the line it is at",
        raised(
            r"RuntimeError: [^\n]*Timed out waiting[^\n]*",
            r"\d",
            r"rank {last} has not called this collective: it is at train.py:\d+\n",
        ),
        limit=30.0,
        env={"DP2DDP_TIMEOUT": 5},
    ),
    Fault(
        "Ctrl-C", WAITING, 130, "`stopped by SIGINT`", stopped("SIGINT"), send(2, group=True), variant=True
    ),
    Fault("Ctrl-C, twice", WAITING, 130, "`stopped by SIGINT`", stopped("SIGINT"), send(2, 2, group=True)),
    Fault(
        "SIGINT to the command alone",
        WAITING,
        130,
        "`stopped by SIGINT`",
        stopped("SIGINT"),
        send(2),
        variant=True,
    ),
    Fault(
        "Ctrl-C while the ranks import",
        training("pass", before="if 'DP2DDP_PLACE' in os.environ: fault()"),
        130,
        "what Python says of interrupted imports, `stopped by SIGINT`",
        ".*" + stopped("SIGINT"),
        send(2, group=True),
        saved=(),
        variant=True,
    ),
    Fault("SIGTERM to the command", WAITING, 143, "`stopped by SIGTERM`", stopped("SIGTERM"), send(15)),
    Fault(
        "the terminal is closed (SIGHUP)",
        WAITING,
        129,
        "`stopped by SIGHUP`",
        stopped("SIGHUP"),
        send(1),
        variant=True,
    ),
    Fault(
        "the disk is full while saving",
        saving(FULL, "File too large"),
        1,
        "the traceback with the file's name; the checkpoint is the last good one",
        raised(r"OSError: \[Errno 27\] File too large: '[^\n]*/model.pt'", "0"),
        saved=("link.pt", "model.pt"),
        variant=True,
    ),
    Fault(
        "the folder is read-only while saving",
        saving(READ_ONLY, "Permission denied"),
        1,
        "the same",
        raised(r"PermissionError: \[Errno 13\] Permission denied: '[^\n]*/model.pt'", "0"),
        saved=("link.pt", "model.pt"),
        variant=True,
    ),
    Fault(
        "rank 0 is killed while saving",
        training("if (step, rank) == (5, 0):\n    ddp.save([torch.ones(1000), Deadly()], 'model.pt')"),
        137,
        "the rank and the signal; the checkpoint is the last good one",
        r"dp2ddp: rank 0 was killed by signal 9 \(SIGKILL\)\n",
    ),
    Fault(
        "`MASTER_PORT` is taken",
        training("if step == 4:\n    fault()", samples="5", before=TAKEN),
        0,
        "nothing: it trains",
        "",
        variant=True,
    ),
    Fault(
        "the port of `dist_url` is taken",
        training("pass", before=f"{TAKEN}    fault()", options=", dist_url='env://'"),
        1,
        "`port … is taken on this machine: choose another`",
        r"Traceback.*\nRuntimeError: port \d+ is taken on this machine: choose another\n",
        saved=(),
    ),
]


BESIDE = training("""
    if step == 5 and rank == 0:
        fault()
    if step % 5 == 0 and ddp.gather(os.path.exists("stop"))[0]:
        sys.exit()
    """)


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    seconds: float  # from the fault until its last process had gone
    wrong: list[str]  # what is not as it has to be


def inflict(fault: Fault, processes: int, folder: Path) -> Outcome:
    """Start a job in ``folder``, wait for its fault, and watch its end."""
    place, temporary = folder / "job", folder / "tmp"
    temporary.mkdir(parents=True)
    jobs.write(place, fault.script)
    command = ["train.py"]
    if fault.torchrun:
        command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes, *command]
    other = None
    if fault.beside:
        jobs.write(place, BESIDE, "other.py")
        other = jobs.start(["other.py"], place, 2, TMPDIR=temporary)
        _wait_for_line(other)
    process = jobs.start(command, place, processes, TMPDIR=temporary, **fault.env)
    line = _wait_for_line(process)
    begin = time.monotonic()
    if fault.act is not None:
        fault.act(process)
    elif line:
        begin = float(line.split()[1])
    while (process.poll() is None or jobs.alive(process.mark)) and time.monotonic() < begin + fault.limit + 5:
        time.sleep(0.05)
    seconds = time.monotonic() - begin
    left = jobs.alive(process.mark)
    for pid in left:
        jobs.end(pid)
    errors = jobs.unlabelled(process.communicate()[1])
    errors = re.sub(r"^\[rank\d+\]: ", "", errors, flags=re.MULTILINE)

    wrong = [] if line else ["it never came to the fault"]
    if left or seconds > fault.limit:
        wrong.append(f"{len(left)} processes left after {seconds:.1f} s")
    if process.returncode not in (fault.code, 128 - fault.code):
        wrong.append(f"exit code {process.returncode}")
    pattern = fault.pattern.replace("{last}", str(processes - 1)).replace("{world}", str(processes))
    if not re.fullmatch(pattern, errors, re.DOTALL):
        wrong.append(f"it said:\n{errors}")
    if other is not None:
        (place / "stop").touch()
        result = jobs.finish(other)
        if (result.code, result.err, result.left) != (0, "", []):
            wrong.append(f"the other job: {result}")
    return Outcome(seconds, wrong + _strays(fault, place, temporary))


def _wait_for_line(process: subprocess.Popen) -> str:
    """The first line that a job prints; empty if it ends before, or takes too long."""
    timer = threading.Timer(START, lambda: [jobs.end(pid) for pid in jobs.alive(process.mark)])
    timer.start()
    try:
        return jobs.line(process)
    finally:
        timer.cancel()


def _strays(fault: Fault, place: Path, temporary: Path) -> list[str]:
    """What is wrong with the files that a job has left."""
    place.chmod(0o755)
    wrong = []
    expected = {"train.py", *fault.saved} | ({"other.py", "stop"} if fault.beside else set())
    present = {path.name for path in place.iterdir()}
    if present != expected:
        wrong.append(f"files: {sorted(present)}")
    elif fault.saved and torch.load(place / "model.pt").keys() != {"weight", "bias"}:
        wrong.append("the checkpoint is another")
    strays = [path.name for path in temporary.iterdir() if not path.name.startswith(CACHE)]
    if strays and not fault.torchrun:  # torchrun leaves a folder of its own
        wrong.append(f"temporary files: {strays}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--update", action="store_true", help="write the table into dp2ddp/runtime/README.md")
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4], metavar="N")
    parser.add_argument("--only", default="", metavar="WORD", help="faults whose name contains this")
    options = parser.parse_args()
    rows, wrong = [], 0
    for fault in FAULTS:
        if options.only not in fault.name:
            continue
        times = []
        for processes in options.processes:
            with tempfile.TemporaryDirectory() as folder:
                outcome = inflict(fault, processes, Path(folder))
            times.append(f"{outcome.seconds:.1f} s")
            wrong += bool(outcome.wrong)
            print(
                f"{fault.name}, {processes} processes: {times[-1]}",
                *outcome.wrong,
                sep="\n  ",
                file=sys.stderr,
            )
        rows.append(f"| {fault.name} | {fault.code} | {fault.shown} | {' | '.join(times)} |")
    heads = [f"gone after, {processes} processes" for processes in options.processes]
    table = "\n".join(
        [f"| | exit code | said | {' | '.join(heads)} |", "|---|---|---" + "|---" * len(heads) + "|", *rows]
    )
    print(table)
    if options.update and not wrong:
        jobs.fill_readme("faults", table)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
