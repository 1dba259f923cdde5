"""Start recorded ranks from one process that has imported torch already.

Importing torch and torchvision takes seconds per process, and on a small machine that is most of a short run. This
server imports once and forks: a job is one line of JSON on standard input, the answer one line on standard output.
The ranks see what torchrun's ranks see. Real launchers have runs of their own.

    {"command": ["train.py", "--epochs", "2"], "cwd": "…", "ranks": [{"RANK": "0", …}, …], "timeout": 60,
     "stdout": "out.txt", "stderr": "err.txt"}
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress

import record
import torch.distributed
import torch.distributed.run
import torch.nn.parallel
import torchvision

IMPORTED_FOR_THE_RANKS = [torch.distributed.run, torch.nn.parallel, torchvision]
with suppress(ImportError):
    IMPORTED_FOR_THE_RANKS.append(importlib.import_module("torch.utils.tensorboard"))


def rank(job: dict, environment: dict[str, str]) -> None:
    """Become one rank of `job`: never returns."""
    code = 1
    try:
        os.setpgid(0, 0)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(job["cwd"])
        for name, descriptor in (("stdout", 1), ("stderr", 2)):
            opened = os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(opened, descriptor)
            os.close(opened)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.argv = ["record.py", *job["command"]]
        record.main()
        code = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - whatever it is belongs on the rank's standard error
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            threading._shutdown()
        with suppress(BaseException):
            atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait(pids: list[int], timeout: float) -> list[int]:
    """The exit codes of `pids`; what is still running when `timeout` seconds are over is killed."""
    codes: dict[int, int] = {}
    end = time.monotonic() + timeout
    while len(codes) < len(pids):
        for pid in pids:
            if pid not in codes:
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    codes[pid] = os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            for pid in pids:
                if pid not in codes:
                    with suppress(ProcessLookupError):
                        os.killpg(pid, signal.SIGKILL)
            end = float("inf")
        time.sleep(0.02)
    for pid in pids:  # workers that outlived their rank
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    return [codes[pid] for pid in pids]


def main() -> None:
    """Answer jobs until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        job = json.loads(line)
        pids = []
        for environment in job["ranks"]:
            pid = os.fork()
            if pid == 0:
                rank(job, environment)
            pids.append(pid)
        answers.write(json.dumps(wait(pids, job["timeout"])) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
