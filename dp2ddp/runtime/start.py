"""Starting: from one command to its ranks.

The first process that reaches ``launch`` or ``init`` becomes torchrun's agent: it runs the same command again once for
each rank, waits, and exits. In the ranks the same call joins the process group. Nothing is pickled, and what stands
above the call runs in the agent and in every rank.
"""

from __future__ import annotations

import atexit
import builtins
import ctypes
import os
import shutil
import signal
import socket
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as dist

from . import ranks, rendezvous, seeds, teardown

Result = TypeVar("Result")
Devices = int | Sequence[int | str | torch.device] | None

_FOLDER = os.getcwd()  # where the command was given, if the program changes its folder later


def launch(main: Callable[..., Result], *args: Any, devices: Devices = None, **kwargs: Any) -> Result | None:
    """Run ``main(*args, **kwargs)`` in every rank.

    Args:
        main: any callable; it is not pickled.
        devices: which GPUs, one rank each: ``None`` for all that are visible, a number for the first so many, or a
            sequence of indices, ``"cuda:1"`` or ``torch.device``. Rank ``i`` gets ``devices[i]``. On a machine without
            CUDA it is ignored. ``DP2DDP_PROCESSES`` overrides the number of processes, ``DP2DDP_BACKEND`` the backend,
            ``DP2DDP_TIMEOUT`` (seconds) the collectives' timeout.

    Returns:
        What ``main`` returned, in each rank. In the process that starts the ranks the call does not return: it exits
        with the first failing rank's code, 128 + signal if it was killed. In a process started by multiprocessing
        (a DataLoader's worker that imports the script again) ``main`` is not called and the result is None.

    Raises:
        Exception: whatever ``main`` raises, its rank named in a note.
        RuntimeError: several processes are wanted and there is no command to run again (notebook, REPL).
        ValueError: ``devices`` or a variable makes no sense here.
    """
    if ranks.is_helper() and not ranks.has_group():
        return None
    init(devices)
    try:
        return main(*args, **kwargs)
    except BaseException as error:
        clean = isinstance(error, SystemExit) and error.code in (None, 0)
        if ranks.get_world_size() > 1 and not clean:
            teardown.fail(error)
        raise


def init(devices: Devices = None) -> None:
    """Make this process a rank, or start the ranks and never return; for scripts whose training code is top level.

    Does nothing in a process group, and in a process started by multiprocessing. Every rank starts with rank 0's state
    of the random generators; a seed that differs by rank has to be set after this call.

    Args:
        devices: as in ``launch``.

    Raises:
        RuntimeError, ValueError: as in ``launch``.
    """
    if ranks.has_group() or ranks.is_helper():
        return
    if ranks.is_started() and not ranks.is_foreign():
        _join(devices)
        return
    count = 1 if ranks.is_foreign() else _process_count(devices)
    if count == 1:
        _join_alone(devices)
    else:
        _start(count, devices)


def _indices(devices: Devices) -> list[int]:
    """The chosen GPUs' indices."""
    visible = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not visible:
        return []
    if devices is None:
        return list(range(visible))
    if isinstance(devices, int):
        if not 0 <= devices <= visible:
            raise ValueError(f"devices={devices}, but {visible} GPUs are visible")
        return list(range(max(devices, 1)))
    indices = [d if isinstance(d, int) else torch.device(d).index or 0 for d in devices]
    wrong = [index for index in indices if not 0 <= index < visible]
    if wrong or not indices:
        raise ValueError(f"devices={list(devices)}, but the visible GPUs are 0 to {visible - 1}")
    return indices


def _process_count(devices: Devices) -> int:
    wanted = os.environ.get("DP2DDP_PROCESSES")
    if wanted is None:
        return max(1, len(_indices(devices)))
    if not wanted.isdigit() or int(wanted) < 1:
        raise ValueError(f"DP2DDP_PROCESSES={wanted!r}: a number of processes, 1 or more, is needed")
    return int(wanted)


def _group_options(processes: int, gpus: int) -> dict[str, Any]:
    """Backend and timeout of the process group."""
    backend = os.environ.get("DP2DDP_BACKEND")
    if backend is None:
        backend = "cpu:gloo,cuda:nccl" if 0 < processes <= gpus else "gloo"
    options: dict[str, Any] = {"backend": backend}
    seconds = os.environ.get("DP2DDP_TIMEOUT")
    if seconds is not None:
        try:
            options["timeout"] = timedelta(seconds=float(seconds))
        except ValueError:
            raise ValueError(f"DP2DDP_TIMEOUT={seconds!r}: a number of seconds is needed") from None
    return options


def _join(devices: Devices) -> None:
    """Join the process group that the environment describes."""
    _die_with_agent()
    indices = _indices(devices)
    local_rank, local_size = ranks.get_local_rank(), ranks.get_local_world_size()
    ranks.choose_device(indices[local_rank % len(indices)] if indices else None)
    if 0 < len(indices) < local_size and local_rank == 0:
        _say(f"{local_size} processes share {len(indices)} GPU{'s' * (len(indices) > 1)}, and talk over gloo")
    os.environ[ranks.OWNER] = str(os.getpid())
    try:
        dist.init_process_group(**_group_options(local_size, len(indices)))
    except RuntimeError:  # another rank may have joined, failed and gone already: say what it said, not this
        if ranks.has_own_agent() or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            rendezvous.connect()
            teardown.listen()
        raise
    rendezvous.connect()
    teardown.watch()
    if ranks.get_world_size() > 1:
        seeds.agree()


def _join_alone(devices: Devices) -> None:
    """Make a process group of this process alone: no port, no other process."""
    indices = _indices(devices)
    if indices and ranks.is_foreign():  # a program that a rank started computes where the rank does
        indices = [indices[int(os.environ.get("LOCAL_RANK", "0")) % len(indices)]]
    ranks.choose_device(indices[0] if indices else None)
    with _gloo_on_loopback():
        dist.init_process_group(
            **_group_options(1, len(indices)), store=dist.HashStore(), rank=0, world_size=1
        )
    teardown.watch()


@contextmanager
def _gloo_on_loopback() -> Iterator[None]:
    """Spare gloo the look-up of this machine's name, which can take seconds or fail."""
    added = _loopback_variable()
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _loopback_variable() -> dict[str, str]:
    if "GLOO_SOCKET_IFNAME" in os.environ or not hasattr(socket, "if_nameindex"):
        return {}
    names = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    return {"GLOO_SOCKET_IFNAME": names[0]} if names else {}


def _start(count: int, devices: Devices) -> NoReturn:
    """Be the agent: run this command again in ``count`` ranks, wait, exit."""
    command = _command()
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    _group_options(count, len(_indices(devices)))  # complain here, once
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // count)))
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "5")
    os.environ.update(_loopback_variable())
    os.environ[ranks.AGENT] = str(os.getpid())
    server = rendezvous.serve()  # noqa: F841 (it lives as long as this call)
    os.chdir(_FOLDER)
    sys.stdout.flush()
    sys.stderr.flush()
    _silence_torch()
    folder = os.environ[teardown.FOLDER] = tempfile.mkdtemp(prefix="dp2ddp_")
    code = 1
    try:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=count,
            run_id=str(uuid.uuid4()),
            rdzv_backend="c10d",
            rdzv_endpoint="127.0.0.1:0",
            local_addr="127.0.0.1",
            max_restarts=0,
            monitor_interval=0.1,
            logs_specs=DefaultLogsSpecs(log_dir=folder),
        )
        elastic_launch(config, command[0])(*command[1:])
        code = 0
    except ChildFailedError as error:
        code = _report(error.failures)
        teardown.end_workers(error.failures.values())
    except SignalException as error:
        code = 128 + int(error.sigval)
        _say(f"stopped by {signal.Signals(error.sigval).name}")
    finally:
        if sys.exc_info()[0] is not None:
            sys.excepthook(*sys.exc_info())
        shutil.rmtree(folder, ignore_errors=True)
        # Not SystemExit: code around the call would see it. What the code above it registered still runs.
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                pass
        os._exit(code)


def _command() -> list[str]:
    """The command that started this program, to be run again."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    typed = file == "<stdin>" or (file is None and "-c" not in sys.orig_argv[1:])
    if typed or "ipykernel" in sys.modules or hasattr(sys, "ps1"):
        raise RuntimeError(
            "several processes are wanted, but there is no command that could be run again in each of them (this is a "
            "notebook, a REPL or standard input): put the program in a file and start it with `python file.py`, or "
            "stay in one process with devices=1 or DP2DDP_PROCESSES=1"
        )
    return [sys.executable, *sys.orig_argv[1:]]


def _report(failures: dict[int, Any]) -> int:
    """Say which rank failed first and how; the exit code of that."""
    stopped = (-signal.SIGTERM, 128 + signal.SIGTERM)  # as the agent ends the others
    causes = {rank: f for rank, f in failures.items() if f.exitcode not in stopped} or failures
    rank = min(causes, key=lambda rank: causes[rank].timestamp)
    code = causes[rank].exitcode
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = "unknown"
        _say(f"rank {rank} was killed by signal {-code} ({name})")
        return 128 - code
    _say(f"rank {rank} failed with exit code {code}")
    return code


def _silence_torch() -> None:
    """The agent says itself what became of the ranks."""
    import logging

    logging.disable(logging.CRITICAL)


def _die_with_agent() -> None:
    """Have the kernel end this rank if its agent is killed (Linux); torchrun's own ranks are left as they are."""
    if not ranks.has_own_agent() or not sys.platform.startswith("linux"):
        return
    set_death_signal = 1  # PR_SET_PDEATHSIG, prctl(2)
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGTERM, 0, 0, 0)


def _say(text: str) -> None:
    builtins.print(f"dp2ddp: {text}", file=sys.stderr, flush=True)
