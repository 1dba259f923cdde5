"""Start recorded ranks from one process that has imported torch already.

Importing torch takes seconds per process, and on a small machine that is most of a short run. This server imports once
and forks: a job is one line of JSON on standard input. The answers, a line each, are the ranks' process ids, every
rank's end, and at last all exit codes. The ranks see what torchrun's ranks see.

    {"command": ["train.py", "--epochs", "2"], "cwd": "…", "ranks": [{"RANK": "0", …}, …], "timeout": 60,
     "stdout": "{rank}.out", "stderr": "{rank}.err"}

Its arguments are names of further modules to import, where they are there.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import importlib
import io
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch._dynamo
import torch.distributed
import torch.nn.parallel

from dp2ddp.runtime import places, terminal
from dp2ddp.verify import record

PRELOADED = [torch.distributed, torch.nn.parallel, torch._dynamo]
"""The last is what every optimizer imports at its first step, in more than a second."""


def rank(job: dict[str, Any], number: int) -> None:
    """Become one rank of `job`: never returns."""
    code = 1
    try:
        os.setpgid(0, 0)
        os.environ.clear()
        os.environ.update(job["ranks"][number])
        places.start(os.environ)
        os.chdir(job["cwd"])
        for name, descriptor in (("stdout", 1), ("stderr", 2)):
            opened = os.open(job[name].format(rank=number), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(opened, descriptor)
            os.close(opened)
        os.dup2(terminal.idle(), 0)
        faulthandler.register(signal.SIGUSR1, file=2)
        sys.argv = ["record", *job["command"]]
        record.main()
        code = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - whatever it is belongs on the rank's standard error
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(BaseException):
            threading._shutdown()
        with suppress(BaseException):
            atexit._run_exitfuncs()
        _write_open_files()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _write_open_files() -> None:
    """Write what is in the buffers of files that are left open, as the interpreter does at its end.

    The collector would close what is under a text file before that is written, if it finds both at once.
    """
    for file in gc.get_objects():
        if issubclass(type(file), io.IOBase):
            with suppress(BaseException):
                file.flush()
    gc.collect()


def wait(pids: list[int], timeout: float, ended: Callable[[int, int], None]) -> list[int]:
    """The exit codes of ``pids``; what still runs after ``timeout`` seconds says where it is, and is killed."""
    codes: dict[int, int] = {}
    end, parent = time.monotonic() + timeout, os.getppid()
    while len(codes) < len(pids):
        for number, pid in enumerate(pids):
            if pid not in codes:
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    codes[pid] = os.waitstatus_to_exitcode(status)
                    ended(number, codes[pid])
        if time.monotonic() > end or os.getppid() != parent:  # nobody waits for them
            late = [pid for pid in pids if pid not in codes]
            for send, number in ((os.kill, signal.SIGUSR1), (os.killpg, signal.SIGKILL)):
                for pid in late:
                    with suppress(ProcessLookupError):
                        send(pid, number)
                time.sleep(0.5 if number == signal.SIGUSR1 else 0)
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
    for name in sys.argv[1:]:
        with suppress(ImportError):
            PRELOADED.append(importlib.import_module(name))
    gc.freeze()  # what is imported stays: no rank looks through it

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    for line in sys.stdin:
        job = json.loads(line)
        pids = []
        for number in range(len(job["ranks"])):
            pid = os.fork()
            if pid == 0:
                rank(job, number)
            pids.append(pid)
        answer(pids=pids)
        codes = wait(pids, job["timeout"], lambda number, code: answer(ended=number, code=code))
        answer(codes=codes)
    sys.stdout.flush()
    os._exit(0)  # what is kept from the collector would be complained of as leaked


if __name__ == "__main__":
    main()
