"""Starting: from one command to its ranks.

The first process that reaches ``launch`` or ``init`` becomes torchrun's agent: it runs the same command again once for
each rank, waits, and exits (``agent``). In the ranks the same call joins the process group, and so it does in ranks
that torchrun, Slurm or Open MPI started (``places``). Nothing is pickled, and what stands above the call runs in the
agent and in every rank.
"""

from __future__ import annotations

import inspect
import os
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from . import (
    again,
    agent,
    aside,
    debug,
    downloads,
    fetching,
    hash_seed,
    loopback,
    options,
    output,
    overlaps,
    places,
    ranks,
    rendezvous,
    seeds,
    teardown,
    torchmetrics_apart,
)
from . import devices as devices_
from .messages import say
from .options import PATIENCE, Devices, Options

Result = TypeVar("Result")


def launch(
    main: Callable[..., Result],
    *args: Any,
    devices: Devices = None,
    num_machines: int = 1,
    machine_rank: int = 0,
    dist_url: str | None = None,
    processes: int | None = None,
    backend: str | None = None,
    timeout: float | timedelta | None = None,
    own_ranks: bool = False,
    **kwargs: Any,
) -> Result | None:
    """Run ``main(*args, **kwargs)`` in every rank.

    The named options are ``launch``'s own and do not reach ``main``. All but ``devices`` have an environment variable
    that wins, ``DP2DDP_PROCESSES`` and so on. Where torchrun, Slurm or Open MPI has started the ranks, only
    ``devices``, ``backend``, ``timeout`` and ``own_ranks`` count.

    Args:
        main: any callable; it is not pickled.
        devices: which GPUs, one rank each: ``None`` for all that are visible, a number for the first so many, or a
            sequence of indices, ``"cuda:1"`` or ``torch.device``. Local rank ``i`` gets ``devices[i]``. 0, -1 and an
            empty sequence are one rank on the CPU: programs say so that don't wrap then. On a machine without CUDA
            it is ignored. Programs that choose later call ``use_devices``.
        num_machines: on how many machines the same command is started by hand.
        machine_rank: which of them this is: 0 to ``num_machines - 1``.
        dist_url: where they meet: ``tcp://<host of machine 0>:<free port>``, ``env://`` (MASTER_ADDR and
            MASTER_PORT), ``file:///<new file that all machines see>``; ``"auto"`` (a free port) on one machine.
        processes: the number of ranks on this machine, if not one for each device. More than there are GPUs share
            them, and talk over gloo.
        backend: as in ``torch.distributed.init_process_group``; default: NCCL where each rank has a GPU, and gloo.
        timeout: of the collectives, in seconds; default: torch's.
        own_ranks: whether the program may go on in ranks of its own, and asks for them what torchrun says in the
            environment (WORLD_SIZE, LOCAL_RANK, …): then this stays there, until a model is wrapped all the same:
            there it is started again. Else the program sees none of it, as where it is started by hand.

    Returns:
        What ``main`` returned, in each rank. In the process that starts the ranks the call does not return: it exits
        with the first failing rank's code, 128 + signal if it was killed. In a process started by multiprocessing
        (a DataLoader's worker that imports the script again) ``main`` is not called and the result is None.

    Raises:
        Exception: whatever ``main`` raises, its rank named in a note.
        RuntimeError: several processes are wanted and there is no command to run again (notebook, REPL); ranks or
            machines did not come.
        ValueError: an option or a variable makes no sense here, or an option is a parameter of ``main`` too.
    """
    if ranks.is_helper():
        return None
    own = {
        "devices": devices,
        "num_machines": num_machines,
        "machine_rank": machine_rank,
        "dist_url": dist_url,
        "processes": processes,
        "backend": backend,
        "timeout": timeout,
        "own_ranks": own_ranks,
    }
    _refuse_ambiguous(main, own)
    init(**own)
    try:
        return main(*args, **kwargs)
    except BaseException as error:
        clean = isinstance(error, SystemExit) and error.code in (None, 0)
        if ranks.count() > 1 and not clean:
            teardown.fail(error)
        raise


def _refuse_ambiguous(main: Callable, given: dict[str, Any]) -> None:
    """An option of ``launch`` that ``main`` has too was perhaps meant for ``main``."""
    try:
        parameters = inspect.signature(main).parameters
    except (TypeError, ValueError):  # built-in, or no function
        return
    defaults = {"num_machines": 1, "machine_rank": 0, "own_ranks": False}
    for name in parameters:
        if name in given and given[name] != defaults.get(name):
            raise ValueError(
                f"{name}= is an option of launch() and a parameter of {getattr(main, '__name__', main)}(): write "
                f"launch(lambda: main({name}=…)) if it is for the function, else launch(lambda: main(), {name}=…)"
            )


def init(
    devices: Devices = None,
    *,
    num_machines: int = 1,
    machine_rank: int = 0,
    dist_url: str | None = None,
    processes: int | None = None,
    backend: str | None = None,
    timeout: float | timedelta | None = None,
    own_ranks: bool = False,
    enabled: bool = True,
) -> None:
    """Make this process a rank, or start the ranks and never return; for scripts whose training code is top level.

    Every rank starts with rank 0's state of the random generators; a seed that differs by rank has to be set after this
    call. Does nothing in a process started by multiprocessing. In a process group that the program has made itself it
    only finds out which ranks share a machine, if the environment does not say it: seeds and end stay the program's.

    Args:
        devices, num_machines, machine_rank, dist_url, processes, backend, timeout, own_ranks: as in ``launch``.
        enabled: False where the program starts ranks in a way of its own, or is to run alone: then nothing is started
            or joined, and everything else of the runtime does what it does in a plain process, here and in the
            processes that this one starts.

    Raises:
        RuntimeError, ValueError: as in ``launch``.
    """
    if ranks.is_helper():
        return
    enabled = enabled and not aside.is_said()
    ranks.step_aside(not enabled)
    if not enabled:
        return
    if ranks.has_group():
        aside.join_given()
        _take_place_in_given_group()
        return
    if ranks.has_begun():
        return
    aside.begin()
    wanted = options.read(devices, num_machines, machine_rank, dist_url, processes, backend, timeout)
    debug.begin(wanted.timeout)
    place = ranks.place()
    if place is not None and place.one_per_machine and wanted.process_count() > 1:
        # srun gave each machine one task, and it has several GPUs
        host = f"[{place.address}]" if ":" in place.address else place.address
        url = f"tcp://{host}:{place.port}"
        agent.start(replace(wanted, num_machines=place.world_size, machine_rank=place.rank, dist_url=url))
    elif place is not None and (place.world_size > 1 or place.address):
        hash_seed.agree(place)
        if own_ranks and "RANK" in os.environ:
            again.begin()
        else:
            aside.when_standing_aside(places.hide(os.environ))
        aside.remember()
        _enter(place, wanted)
    elif place is None and not ranks.is_foreign() and wanted.process_count() * wanted.num_machines > 1:
        agent.start(wanted)
    else:
        ranks.wait_for_need(devices_.choose, lambda _: _join_alone(wanted), devices_.limit)
        devices_.begin(wanted)


def _enter(place: places.Place, wanted: Options) -> None:
    """Be one of the ranks that the environment describes: meet the others, and join their group at the first need."""
    agent.die_with_agent()
    output.begin(place.rank)
    aside.when_standing_aside(output.end)
    host, port = rendezvous.address(place)
    limit = max(PATIENCE, wanted.timeout or PATIENCE)
    store = rendezvous.connect(host, port, limit)
    _meet(place, limit)
    ranks.wait_for_need(devices_.choose, lambda what: _join(store, wanted, what), devices_.limit)
    devices_.begin(wanted)
    teardown.watch()
    if ranks.count() > 1:
        seeds.agree()
        fetching.begin()
        downloads.begin()
        overlaps.begin()
        torchmetrics_apart.begin()


def _join(store: dist.Store, wanted: Options, what: str) -> None:
    """Join the process group with the ranks that stay, as ``what`` needs it."""
    own = ranks.device()
    debug.meet(what)
    gpu = _gpu(own) if own.type == "cuda" else None
    started = rendezvous.collect("stays", [ranks.machine(), ranks.get_local_rank(), gpu])
    met = [it for it in started if it is not None]
    rank = sum(it is not None for it in started[: ranks.own_rank()])
    on_machine = Counter(machine for machine, *_ in met)
    seats = [places.Seat(local_rank, on_machine[machine], machine) for machine, local_rank, _ in met]
    ranks.take_seat(rank, seats)
    gpus = [(machine, gpu) for machine, _, gpu in met]
    if rank == 0 and len(met) < len(started) and not ranks.has_own_agent():
        many = f"{devices_.limit()} GPU{'s' * (devices_.limit() != 1)}"
        say(f"{len(met)} of {len(started)} processes train, as the program selects {many}")
    chosen = wanted.backend or backend_of(gpus)
    if rank == 0 and wanted.backend is None:
        _report_sharing([gpu for gpu in gpus if gpu[1] is not None])
    try:
        dist.init_process_group(
            **_group_options(chosen, wanted.timeout), store=store, rank=rank, world_size=len(seats)
        )
    except RuntimeError:  # another rank may have joined, failed and gone already: say what it said, not this
        teardown.listen()
        raise


def _report_sharing(gpus: list[tuple[int, str | None]]) -> None:
    """Say it where processes share GPUs."""
    different = len(set(gpus))
    if different < len(gpus):
        say(
            f"{len(gpus)} processes share {different} GPU{'s' * (different > 1)}, so they use the gloo backend"
        )


def _meet(place: places.Place, limit: timedelta) -> None:
    """Find out with the other ranks who is on which machine."""
    mine = [socket.gethostname(), place.local_rank, place.local_world_size, place.machine]
    met = rendezvous.collect("place", mine, limit)
    known = [places.Place(rank, len(met), *where) for rank, (_, *where) in enumerate(met)]
    ranks.take_seat(place.rank, places.seats([name for name, *_ in met], known), place.address, place.port)


def backend_of(met: list[tuple[int, str | None]]) -> str:
    """NCCL if each rank of the job has a GPU for itself.

    Args:
        met: for each rank its machine's number and the name of its GPU, or None.
    """
    own = all(gpu is not None for _, gpu in met) and len({tuple(pair) for pair in met}) == len(met)
    return "cpu:gloo,cuda:nccl" if own and dist.is_nccl_available() else "gloo"


def _gpu(own: torch.device) -> str:
    """What tells this rank's GPU from others of the machine."""
    if ranks.get_local_world_size() <= torch.cuda.device_count():
        return str(own.index)
    # Several ranks may share a GPU, or each may see another one alone, under the same index (Slurm's --gpus-per-task).
    return str(getattr(torch.cuda.get_device_properties(own), "uuid", own.index))


def _group_options(backend: str, timeout: timedelta | None) -> dict[str, Any]:
    timeout = debug.timeout_beside(timeout)
    return {"backend": backend} if timeout is None else {"backend": backend, "timeout": timeout}


def _join_alone(wanted: Options) -> None:
    """Make a process group of this process alone: no port, no other process."""
    own = ranks.device()
    nccl = own.type == "cuda" and dist.is_nccl_available()
    backend = wanted.backend or ("cpu:gloo,cuda:nccl" if nccl else "gloo")
    with loopback.only():
        dist.init_process_group(
            **_group_options(backend, wanted.timeout), store=dist.HashStore(), rank=0, world_size=1
        )
    teardown.watch()


def _take_place_in_given_group() -> None:
    """In a process group that the program made itself: find out who is on which machine, if nothing says so."""
    place = ranks.place() or places.Place(ranks.own_rank(), ranks.count())
    if ranks.count() > 1 and None in (place.local_rank, place.local_world_size, place.machine):
        _meet(replace(place, rank=ranks.own_rank()), PATIENCE)
