"""Who am I: rank, world size, device.

Every query answers from the process group where there is one, else from the environment that torchrun, ``launch``,
Open MPI or Slurm gives its ranks, else as the only process there is.

``launch`` and ``init`` only begin: a program may choose its devices later, and some of the ranks leave then. The first
collective settles who stays, and makes the process group (``settle``); what asks for a device chooses this rank's.
Until then a rank counts those that stay by what has been chosen so far: asking is no collective.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from . import places, threads

AGENT = "DP2DDP_AGENT"  # the agent's process id, in the ranks that `launch` or `init` started
OWNER = "DP2DDP_RANK_PID"  # which process the variables RANK, WORLD_SIZE, … speak of, once that is known
ASIDE = "DP2DDP_ASIDE"  # set where the program starts ranks in a way of its own: in it, and in what it starts

_CPU = torch.device("cpu")

# The device this rank was given when it joined; None before that.
_chosen: torch.device | None = None

# The places of all ranks on their machines; none before the ranks have met.
_seats: list[places.Seat] = []

# The process group that this process got from its parent by fork, and which is not its own.
_inherited: dist.ProcessGroup | None = None

# What is done at the first need, once `init` has begun: this rank's device is chosen, the process group is made.
_choose: Callable[[], None] | None = None
_form: Callable[[str], None] | None = None
_settling = False
# How many ranks of each machine stay, as far as that is chosen; None for all.
_limit: Callable[[], int | None] | None = None


# Whether the ranks run a block one after the other: a collective there would wait for those that wait for their turn.
_takes_turns = False


def take_turns(running: bool) -> None:
    """Note that this rank begins, or ends, a block that the ranks run one after the other."""
    global _takes_turns
    _takes_turns = running


def takes_turns() -> bool:
    """Whether this rank runs a block that the ranks run one after the other."""
    return _takes_turns


def wait_for_need(
    choose: Callable[[], None], form: Callable[[str], None], limit: Callable[[], int | None]
) -> None:
    """From now on a device is chosen by ``choose``, and the process group made by ``form``, when it is needed first.

    A program may be the first to need the group, too: ``DistributedSampler(data)`` asks torch for the number of ranks.
    """
    global _choose, _form, _limit, _chosen
    _choose, _form, _limit, _chosen = choose, form, limit, None
    distributed_c10d.is_initialized = _is_initialized_when_needed


def has_begun() -> bool:
    """Whether ``init`` has begun, and the process group is not made yet."""
    return _form is not None


def settle(what: str) -> None:
    """Make the process group, if that is still to be done: from now on it is settled which ranks train.

    Args:
        what: the collective that needs it, as a user knows it.
    """
    global _form, _settling
    if _form is not None and not is_helper():
        form, _form = _form, None
        distributed_c10d.is_initialized = _is_initialized
        if dist.is_initialized():  # the program has made one itself
            return
        _settling = True
        try:
            form(what)
        finally:
            _settling = False


def is_settling() -> bool:
    """Whether this rank waits for the others to make the process group."""
    return _settling


# What torch's collectives ask, in their module; programs ask `torch.distributed.is_initialized`, and settle nothing.
_is_initialized = distributed_c10d.is_initialized


def _is_initialized_when_needed() -> bool:
    settle("a collective of torch's own")
    return _is_initialized()


def get_rank() -> int:
    """This process's rank: 0 to ``get_world_size() - 1``; 0 in a plain process."""
    limit = _ahead()
    return own_rank() if limit is None else _staying(_seats[: own_rank()], limit)


def get_world_size() -> int:
    """How many processes train together, on all machines; 1 in a plain process."""
    limit = _ahead()
    return count() if limit is None else _staying(_seats, limit)


def get_replica_count() -> int:
    """How many replicas a model has: the ranks that train together. See ``get_world_size``.

    For files that programs with nn.DataParallel share with converted ones. In a program that has not begun with
    ``init`` or ``launch``, or starts ranks of its own, it is the number of GPUs, as there, and at least 1.
    """
    if _choose is None and place() is None:
        return max(torch.cuda.device_count(), 1)
    return get_world_size()


def get_local_rank() -> int:
    """This process's rank among those on its machine; 0 in a plain process."""
    where = place()
    return where.local_rank or 0 if where else 0


def get_local_world_size() -> int:
    """How many processes train together on this machine; 1 in a plain process."""
    where = place()
    started = where.local_world_size or 1 if where else 1
    return min(started, _ahead() or started)


def _ahead() -> int | None:
    """How many ranks of each machine will train, where the others have not left yet; None for all."""
    begun = has_begun() and bool(_seats) and not is_helper()
    return _limit() if begun and _limit is not None else None


def _staying(seats: list[places.Seat], limit: int) -> int:
    return sum(seat.local_rank < limit for seat in seats)


def is_main_process() -> bool:
    """Whether this is rank 0, the one that prints and saves."""
    return own_rank() == 0


def own_rank() -> int:
    """This process's rank among those that are there: before it is settled who stays, all that were started."""
    if has_group():
        return dist.get_rank()
    where = place()
    return where.rank if where else 0


def count() -> int:
    """How many ranks there are now: before it is settled who stays, all that were started."""
    if has_group():
        return dist.get_world_size()
    where = place()
    return where.world_size if where else 1


def device(own: torch.device | str | int | None = None) -> torch.device:
    """The device this process computes on; the CPU where the program has chosen no GPU. See ``devices.device``."""
    if own is not None and stands_aside():
        return torch.device("cuda", own) if isinstance(own, int) else torch.device(own)
    if _chosen is None and _choose is not None and not is_helper():
        _choose()
    if _chosen is not None:
        return _chosen
    if not torch.cuda.device_count():
        return torch.device("cpu")
    if stands_aside():
        return torch.device("cuda")
    if get_local_world_size() == 1 and torch.cuda.is_initialized():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cuda", get_local_rank() % torch.cuda.device_count())


def chosen_device() -> torch.device | None:
    """The device this process was given; None before that."""
    return _chosen


def choose_device(index: int | None) -> None:
    """Remember this rank's GPU and make it CUDA's current one, in threads too; ``None`` means the CPU."""
    global _chosen
    if index is None:
        _chosen = torch.device("cpu")
    else:
        _chosen = torch.device("cuda", index)
        torch.cuda.set_device(_chosen)
        if index:  # it is 0 where nothing is said
            threads.bind(_chosen)


def machine() -> int:
    """The number of this rank's machine; 0 in a plain process."""
    where = place()
    return where.machine or 0 if where else 0


def first_of_machine() -> int:
    """The rank that is local rank 0 of this rank's machine."""
    if not _seats:
        return own_rank() - get_local_rank()
    here = _seats[own_rank()].machine
    return next(rank for rank, it in enumerate(_seats) if (it.machine, it.local_rank) == (here, 0))


def take_seat(
    rank: int, seats: list[places.Seat], address: str | None = None, port: int | None = None
) -> None:
    """Keep this rank's place in its environment: its DataLoader workers ask there.

    Args:
        rank: this one.
        seats: of all ranks.
        address, port: where rank 0's store is, if the environment does not say so yet.
    """
    global _seats
    _seats, seat = seats, seats[rank]
    kept = json.loads(os.environ.get(places.KEPT, "{}"))
    found = {
        "RANK": rank,
        "WORLD_SIZE": len(seats),
        "LOCAL_RANK": seat.local_rank,
        "LOCAL_WORLD_SIZE": seat.local_world_size,
        "GROUP_RANK": seat.machine,
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
    }
    kept |= {name: str(value) for name, value in found.items() if value is not None}
    os.environ[places.KEPT] = json.dumps(kept)
    os.environ[OWNER] = str(os.getpid())


def has_group() -> bool:
    """Whether this process is in a process group that is the runtime's concern."""
    return dist.is_available() and dist.is_initialized() and not stands_aside()


def step_aside(aside: bool) -> None:
    """Leave ranks and their group to the program, in this process and in those that it starts; or no longer."""
    global _chosen, _choose, _form, _limit, _seats
    if aside:
        os.environ[ASIDE] = "1"
        _chosen = _choose = _form = _limit = None
        _seats = []
    else:
        os.environ.pop(ASIDE, None)


def stands_aside() -> bool:
    """Whether the program has ranks of its own, so that everything works as in a plain process."""
    return ASIDE in os.environ


def talk_device(preferred: torch.device = _CPU) -> torch.device:
    """Where a tensor has to lie that ranks exchange: on ``preferred``, if the group can talk from there."""
    kinds = {kind.type for kind in dist.group.WORLD._device_types}
    return preferred if preferred.type in kinds else device()


def is_helper() -> bool:
    """Whether multiprocessing started this process, and it made no process group: a DataLoader's worker, say."""
    if has_group() and dist.group.WORLD is not _inherited:
        return False
    # While a spawned process imports the main script, only the second of the two is so.
    return multiprocessing.parent_process() is not None or hasattr(
        multiprocessing.current_process(), "_inheriting"
    )


def _note_inherited_group() -> None:
    global _inherited
    _inherited = dist.group.WORLD if has_group() else None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_inherited_group)


def place() -> places.Place | None:
    """This process's place among the ranks, as its environment says; None in a plain process.

    A program that a rank starts inherits the variables and is no rank; workers that multiprocessing starts for a
    rank are part of it.

    Raises:
        ValueError: a variable makes no sense.
    """
    if stands_aside() or is_foreign():
        return None
    if is_helper() or has_group():  # the program may have started it, and told it its rank
        return places.read(places.variables(os.environ, started={}))
    return places.find(os.environ)


def kept_local_rank() -> int:
    """The local rank that the environment speaks of, of whichever process."""
    return int(places.variables(os.environ).get("LOCAL_RANK", "0"))


def is_foreign() -> bool:
    """Whether the environment is that of a rank which is another process, and not this one's multiprocessing parent."""
    owner = os.environ.get(OWNER)
    return owner is not None and owner != str(os.getpid()) and not is_helper()


def has_own_agent() -> bool:
    """Whether ``launch`` or ``init`` started this rank, and not torchrun's command."""
    return os.environ.get(AGENT) == str(os.getppid())


def is_alone(what: str, *, settled: bool = True) -> bool:
    """Whether a collective has nobody to talk to, so that it does nothing.

    Args:
        what: the name of the collective, for the message.
        settled: whether it needs the process group, so that it is made now, and not only the store.

    Raises:
        RuntimeError: there are other ranks, but ``init`` or ``launch`` has not been called yet.
    """
    if is_helper():
        return True
    if settled:
        settle(what)
    if has_group() or has_begun():
        return count() == 1
    if count() == 1:
        return True
    raise RuntimeError(
        f"{what} needs the process group, which rank {own_rank()} of {count()} has not joined yet: "
        "call it inside the function given to launch(), or after init()"
    )
