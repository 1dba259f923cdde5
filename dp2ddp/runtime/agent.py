"""The agent: torchrun's, in the process that was started by hand, running the same command again for each rank."""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from . import aside, hash_seed, loopback, machines, output, places, ranks, teardown
from .messages import say
from .options import Options

_FOLDER = os.getcwd()  # where the command was given, if the program changes its folder later

# Puts what torch's agent says of a rank out of the program's sight, and becomes the program. A program that has a
# distributed branch of its own, and chooses it by these variables, chooses as it did when it was started alone.
_BECOME = f"""
import json, os, sys
names, begin = {places.OF_TORCHRUN}, {places.ALSO_OF_TORCHRUN}
kept = {{name: os.environ.pop(name) for name in list(os.environ) if name in names or name.startswith(begin)}}
os.environ[{places.KEPT!r}] = json.dumps(kept)
os.environ[{ranks.OWNER!r}] = str(os.getpid())
os.execv(sys.argv[1], sys.argv[1:])
"""


def start(options: Options) -> NoReturn:
    """Be this machine's agent: start its ranks, wait, exit.

    Raises:
        ValueError, RuntimeError: before any rank has been started; see ``machines.meet``.
    """
    command = _command()
    link = machines.meet(options)
    count = options.process_count()
    os.environ[aside.BEFORE] = aside.as_started()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // count)))
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "5")
    if options.num_machines == 1 or link.host in ("localhost", "127.0.0.1", "::1"):
        os.environ.update(loopback.variable())
    os.environ[ranks.AGENT] = str(os.getpid())
    # Sets of texts are in one order in all ranks, another one each time, as they are in one process.
    os.environ.setdefault(hash_seed.VARIABLE, hash_seed.of_job(link.run_id))
    os.chdir(_FOLDER)
    output.flush()
    logging.disable(logging.CRITICAL)  # the agent says itself what became of the ranks
    code = 1
    folder = os.environ[teardown.FOLDER] = tempfile.mkdtemp(prefix="dp2ddp_")
    try:
        code = _run(command, options, link, folder)
    finally:
        if sys.exc_info()[0] is not None:
            sys.excepthook(*sys.exc_info())
        shutil.rmtree(folder, ignore_errors=True)
        # Not SystemExit: code around the call would see it. What the code above it registered still runs.
        atexit._run_exitfuncs()
        output.flush()
        os._exit(code)


def _run(command: list[str], options: Options, link: machines.Link, folder: str) -> int:
    """Run the ranks to their end; the exit code of the job."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    def stop(number: int, _: Any) -> None:
        raise SignalException(f"signal {number}", signal.Signals(number))

    config = LaunchConfig(
        min_nodes=options.num_machines,
        max_nodes=options.num_machines,
        nproc_per_node=options.process_count(),
        run_id=link.run_id,
        rdzv_backend="static",
        rdzv_endpoint=f"[{link.host}]:{link.port}" if ":" in link.host else f"{link.host}:{link.port}",
        rdzv_configs={"rank": options.machine_rank},
        max_restarts=0,
        monitor_interval=0.1,
        logs_specs=DefaultLogsSpecs(log_dir=folder),
    )
    failure = None
    try:
        with _signals(stop):  # torch's agent sets the same, but later
            link.watch()
            become = (sys.executable, "-I", "-S", "-c", _BECOME) if os.name == "posix" else ()
            entry, *rest = (*become, *command)
            elastic_launch(config, entry)(*rest)
    except ChildFailedError as error:
        failure = _first(error.failures, options)
        teardown.end_workers(error.failures.values())
    except SignalException as error:
        number = int(error.sigval)
        where = f"machine {options.machine_rank} was " if options.num_machines > 1 else ""
        failure = machines.Failure(
            options.machine_rank, 128 + number, f"{where}stopped by {signal.Signals(number).name}"
        )
    except BaseException as error:
        link.leave(machines.Failure(options.machine_rank, 1, f"machine {options.machine_rank}: {error}"))
        raise
    failure = link.leave(failure)
    if failure is None:
        return 0
    if not teardown.is_wrong_usage(failure.code, folder):
        say(failure.text)
    return failure.code


@contextmanager
def _signals(handler: Any) -> Iterator[None]:
    """Have ``handler`` called at Ctrl-C and SIGTERM, and afterwards nothing: the end is under way then."""
    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    for number in numbers:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)


def _command() -> list[str]:
    """The command that started this program, to be run again."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    typed = file == "<stdin>" or (file is None and "-c" not in sys.orig_argv[1:])
    if typed or "ipykernel" in sys.modules or hasattr(sys, "ps1"):
        raise RuntimeError(
            "several ranks can't be started from a notebook, a REPL or standard input: put the program in a "
            "file and start it with `python file.py`, or use a single process: devices=1 or DP2DDP_PROCESSES=1"
        )
    return [sys.executable, *sys.orig_argv[1:]]


def _first(failures: dict[int, Any], options: Options) -> machines.Failure:
    """The rank of this machine that failed first, and how."""
    stopped = (-signal.SIGTERM, 128 + signal.SIGTERM)  # as the agent ends the others
    causes = {rank: f for rank, f in failures.items() if f.exitcode not in stopped} or failures
    rank = min(causes, key=lambda rank: causes[rank].timestamp)
    code = causes[rank].exitcode
    who = f"rank {rank}" + f" (on machine {options.machine_rank})" * (options.num_machines > 1)
    if code >= 0:
        return machines.Failure(options.machine_rank, code, f"{who} failed with exit code {code}")
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    return machines.Failure(options.machine_rank, 128 - code, f"{who} was killed by signal {-code} ({name})")


def die_with_agent() -> None:
    """Have the kernel end this rank if its agent is killed (Linux); torchrun's own ranks are left as they are."""
    if not ranks.has_own_agent() or not sys.platform.startswith("linux"):
        return
    set_death_signal = 1  # PR_SET_PDEATHSIG, prctl(2)
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGTERM, 0, 0, 0)
