"""Start recorded processes, watch them, and leave none behind."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dp2ddp.verify.record import PLACE, VARIABLE

_PACKAGE = Path(__file__).resolve().parents[2]
_PORTS = range(20000, 32768)
_given: deque[socket.socket] = deque(maxlen=256)
_FOREIGN = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}


def environment(**more: str) -> dict[str, str]:
    """This process's environment without traces of another job, able to import dp2ddp."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in _FOREIGN and not name.startswith(("DP2DDP_", "TORCHELASTIC_", "SLURM_", "OMPI_"))
    }
    path = os.pathsep.join(filter(None, (str(_PACKAGE), kept.get("PYTHONPATH"))))
    return {**kept, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **more}


def ranks_environment(count: int) -> list[dict[str, str]]:
    """What each of ``count`` ranks on this machine sees that the runtime starts; nothing for one alone.

    It keeps there what torchrun says: a program that asks for torchrun's variables is told that there are none.
    """
    shared = ("GLOO_SOCKET_IFNAME", "DP2DDP_PROCESSES")
    return [
        {name: told[name] for name in shared if name in told} | ({PLACE: json.dumps(told)} if told else {})
        for told in torchrun_environment(count)
    ]


def torchrun_environment(count: int) -> list[dict[str, str]]:
    """What torchrun tells each of ``count`` ranks on this machine; nothing to one alone."""
    if count == 1:
        return [{}]
    group = {
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "GROUP_RANK": "0",
        "TORCHELASTIC_RUN_ID": "verify",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "DP2DDP_PROCESSES": str(count),  # all of them, whichever devices the program chooses
    }
    loopback = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    group |= {"GLOO_SOCKET_IFNAME": loopback[0]} if loopback else {}
    return [{**group, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]


def free_port() -> int:
    """A port that nobody listens on, and that no other call on this machine gives out soon.

    Between its choice and its use another process could take it, and a rank would join that one's job: so it lies below
    what systems give to outgoing connections, and the same UDP port is kept to say that it is given.
    """
    for port in random.Random().sample(_PORTS, len(_PORTS)):
        given = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            given.bind(("127.0.0.1", port))
            with socket.socket() as listener:
                listener.bind(("127.0.0.1", port))
        except OSError:
            given.close()
            continue
        _given.append(given)
        return port
    raise RuntimeError(f"no port from {_PORTS[0]} to {_PORTS[-1]} is free")


def end_group(process: subprocess.Popen[Any], mark: str = "") -> None:
    """Kill what is left of a process's group, and of the processes that carry ``mark`` in their environment."""
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
    """Run ``command`` with a time limit, leave nothing of it running, and return exit code and outputs."""
    name, value = "DP2DDP_RUN", uuid.uuid4().hex
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
            end_group(process, f"{name}={value}")
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


@dataclass
class Ended:
    """How a job's processes ended."""

    codes: list[int]
    """Exit codes; minus the signal's number for a process that was killed."""
    stopped: str = ""
    """Why they were stopped, if they were."""
    traces: dict[int, str] = field(default_factory=dict)
    """Where the ranks were when they were stopped."""


class Server:
    """The process that forks recorded ranks; see ``server``."""

    def __init__(self, *modules: str, folder: Path | None = None) -> None:
        self.modules = modules
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""

    def run(
        self, job: dict[str, Any], *, patience: float | None = None, tick: Callable[[], None] | None = None
    ) -> Ended:
        """Run a job to its end.

        Args:
            job: as the server takes it.
            patience: seconds without a word in the journals, or after the first failure, until it is stopped.
            tick: called some times a second.
        """
        process = self._started()
        process.stdin.write(json.dumps(job).encode() + b"\n")
        process.stdin.flush()
        watch = _Watch(Path(job["out"]) if "out" in job else None, patience)
        while True:
            answer = self._answer(0.3)
            if answer and "codes" in answer:
                return Ended(answer["codes"], watch.stopped, watch.traces)
            if answer and "pids" in answer:
                watch.pids = dict(enumerate(answer["pids"]))
            elif answer:
                watch.hear(answer["ended"], answer["code"])
            watch.look()
            if tick is not None:
                tick()

    def close(self) -> None:
        """End the server."""
        if self._process is not None:
            self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
            end_group(self._process)
            self._process = None

    def _started(self) -> Any:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dp2ddp.verify.server", *self.modules],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=self.folder,
                env=environment(),
                start_new_session=True,
            )
        return self._process

    def _answer(self, limit: float) -> dict[str, Any] | None:
        stream = self._process.stdout
        end = time.monotonic() + limit
        while b"\n" not in self._unread:
            left = end - time.monotonic()
            if left <= 0 or not select.select([stream], [], [], left)[0]:
                return None
            read = os.read(stream.fileno(), 65536)
            if not read:
                raise RuntimeError(f"the process that starts the runs has ended ({self._process.wait()})")
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)


class _Watch:
    """Stops a job that has failed in part, or is silent."""

    def __init__(self, out: Path | None, patience: float | None) -> None:
        self.out = out
        self.patience = patience
        self.pids: dict[int, int] = {}
        self.stopped = ""
        self.traces: dict[int, str] = {}
        self._size = -1
        self._silent = 0.0
        self._looked = time.monotonic()
        self._failed: int | None = None

    def hear(self, rank: int, code: int) -> None:
        """Hear that a rank has ended."""
        self.pids.pop(rank, None)
        if code != 0 and self._failed is None:
            self._failed, self._silent = rank, 0.0

    def look(self) -> None:
        """Stop the job if it has to be."""
        if self.patience is None or self.out is None or self.stopped or not self.pids:
            return
        now = time.monotonic()
        self._silent += min(now - self._looked, 1.0)  # a machine that sleeps is not silent
        self._looked = now
        size = sum(path.stat().st_size for path in self.out.glob("*.jsonl"))
        if size != self._size and self._failed is None:
            self._size, self._silent = size, 0.0
        if self._silent > (self.patience if self._failed is None else min(self.patience, 15.0)):
            if self._failed is None:
                self._stop(f"no progress for {self._silent:.0f} s (--timeout sets the limit)")
            else:
                self._stop(f"rank {self._failed} had ended while other ranks waited for it")

    def _stop(self, why: str) -> None:
        self.stopped = why
        for pid in self.pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
        time.sleep(0.5)
        for rank, pid in self.pids.items():
            trace = self.out / f"{rank}.trace"
            self.traces[rank] = trace.read_text() if trace.exists() else ""
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)


def variable(settings: dict[str, Any]) -> dict[str, str]:
    """The variable that has a process recorded."""
    return {VARIABLE: json.dumps(settings)}
