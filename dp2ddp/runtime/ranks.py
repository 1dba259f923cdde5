"""Who am I: rank, world size, device.

Every query answers from the process group where there is one, else from the environment that torchrun, ``launch``,
Open MPI or Slurm gives its ranks, else as the only process there is.
"""

from __future__ import annotations

import json
import multiprocessing
import os

import torch
import torch.distributed as dist

from . import places

AGENT = "DP2DDP_AGENT"  # the agent's process id, in the ranks that `launch` or `init` started
OWNER = "DP2DDP_RANK_PID"  # which process the variables RANK, WORLD_SIZE, … speak of, once it has joined
ASIDE = "DP2DDP_ASIDE"  # set where the program starts ranks in a way of its own: in it, and in what it starts

_CPU = torch.device("cpu")

# The device this rank was given when it joined; None before that.
_chosen: torch.device | None = None

# The rank that is local rank 0 of this machine; None before the ranks have met.
_first: int | None = None

# The process group that this process got from its parent by fork, and which is not its own.
_inherited: dist.ProcessGroup | None = None


def get_rank() -> int:
    """This process's rank: 0 to ``get_world_size() - 1``; 0 in a plain process."""
    if has_group():
        return dist.get_rank()
    where = place()
    return where.rank if where else 0


def get_world_size() -> int:
    """How many processes train together, on all machines; 1 in a plain process."""
    if has_group():
        return dist.get_world_size()
    where = place()
    return where.world_size if where else 1


def get_local_rank() -> int:
    """This process's rank among those on its machine; 0 in a plain process."""
    where = place()
    return where.local_rank or 0 if where else 0


def get_local_world_size() -> int:
    """How many processes train together on this machine; 1 in a plain process."""
    where = place()
    return where.local_world_size or 1 if where else 1


def is_main_process() -> bool:
    """Whether this is rank 0, the one that prints and saves."""
    return get_rank() == 0


def device(own: torch.device | str | int | None = None) -> torch.device:
    """The device this process computes on.

    Args:
        own: what it computes on where the program has ranks of its own.

    Returns:
        ``cuda`` with an index where there is CUDA, else ``cpu``. Before ``init`` or ``launch`` the index is the
        local rank (modulo the number of GPUs); asking does not initialise CUDA. After ``init(enabled=False)`` it is
        plain ``cuda``: whatever GPU the program makes the current one.
    """
    if own is not None and stands_aside():
        return torch.device("cuda", own) if isinstance(own, int) else torch.device(own)
    if _chosen is not None:
        return _chosen
    if not torch.cuda.is_available():
        return torch.device("cpu")
    if stands_aside():
        return torch.device("cuda")
    if get_local_world_size() == 1 and torch.cuda.is_initialized():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cuda", get_local_rank() % torch.cuda.device_count())


def choose_device(index: int | None) -> None:
    """Remember this rank's GPU and make it CUDA's current one; ``None`` means the CPU."""
    global _chosen
    if index is None:
        _chosen = torch.device("cpu")
    else:
        _chosen = torch.device("cuda", index)
        torch.cuda.set_device(_chosen)


def machine() -> int:
    """The number of this rank's machine; 0 in a plain process."""
    where = place()
    return where.machine or 0 if where else 0


def first_of_machine() -> int:
    """The rank that is local rank 0 of this rank's machine."""
    return get_rank() - get_local_rank() if _first is None else _first


def take_seat(seats: list[places.Seat], address: str | None = None, port: int | None = None) -> None:
    """Keep this rank's place in its environment: its DataLoader workers ask there.

    Args:
        seats: of all ranks.
        address, port: where rank 0's store is, if the environment does not say so yet.
    """
    global _first
    seat = seats[get_rank()]
    _first = next(rank for rank, s in enumerate(seats) if (s.machine, s.local_rank) == (seat.machine, 0))
    found = {
        "RANK": get_rank(),
        "WORLD_SIZE": get_world_size(),
        "LOCAL_RANK": seat.local_rank,
        "LOCAL_WORLD_SIZE": seat.local_world_size,
        "GROUP_RANK": seat.machine,
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
    }
    kept = json.loads(os.environ.get(places.KEPT, "{}"))
    kept |= {name: str(value) for name, value in found.items() if value is not None}
    os.environ[places.KEPT] = json.dumps(kept)
    os.environ[OWNER] = str(os.getpid())


def has_group() -> bool:
    """Whether this process is in a process group that is the runtime's concern."""
    return dist.is_available() and dist.is_initialized() and not stands_aside()


def step_aside(aside: bool) -> None:
    """Leave ranks and their group to the program, in this process and in those that it starts; or no longer."""
    global _chosen, _first
    if aside:
        os.environ[ASIDE] = "1"
        _chosen = _first = None
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
    return None if stands_aside() or is_foreign() else places.read(places.variables(os.environ))


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


def is_alone(what: str) -> bool:
    """Whether a collective has nobody to talk to, so that it does nothing.

    Args:
        what: the name of the collective, for the message.

    Raises:
        RuntimeError: there are other ranks, but the process group does not exist yet.
    """
    if is_helper():
        return True
    if has_group():
        return dist.get_world_size() == 1
    if get_world_size() == 1:
        return True
    raise RuntimeError(
        f"{what} needs the process group, which rank {get_rank()} of {get_world_size()} has not joined yet: "
        "call it inside the function given to launch(), or after init()"
    )
