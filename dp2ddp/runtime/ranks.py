"""Who am I: rank, world size, device.

Every query answers from the process group where there is one, else from the environment that torchrun (or
``launch``) gives its ranks, else as the only process there is.
"""

from __future__ import annotations

import multiprocessing
import os

import torch
import torch.distributed as dist

AGENT = "DP2DDP_AGENT"  # the agent's process id, in the ranks that `launch` or `init` started
OWNER = "DP2DDP_RANK_PID"  # which process the variables RANK, WORLD_SIZE, … speak of, once it has joined

# The device this rank was given when it joined; None before that.
_chosen: torch.device | None = None


def get_rank() -> int:
    """This process's rank: 0 to ``get_world_size() - 1``; 0 in a plain process."""
    return dist.get_rank() if has_group() else environment("RANK", 0)


def get_world_size() -> int:
    """How many processes train together, on all machines; 1 in a plain process."""
    return dist.get_world_size() if has_group() else environment("WORLD_SIZE", 1)


def get_local_rank() -> int:
    """This process's rank among those on its machine; 0 in a plain process."""
    return environment("LOCAL_RANK", 0)


def get_local_world_size() -> int:
    """How many processes train together on this machine; 1 in a plain process."""
    return environment("LOCAL_WORLD_SIZE", 1)


def is_main_process() -> bool:
    """Whether this is rank 0, the one that prints and saves."""
    return get_rank() == 0


def device() -> torch.device:
    """The device this process computes on.

    Returns:
        ``cuda`` with an index where there is CUDA, else ``cpu``. Before ``init`` or ``launch`` the index is the
        local rank (modulo the number of GPUs); asking does not initialise CUDA.
    """
    if _chosen is not None:
        return _chosen
    if not torch.cuda.is_available():
        return torch.device("cpu")
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


def has_group() -> bool:
    """Whether this process is in a process group."""
    return dist.is_available() and dist.is_initialized()


def talk_device() -> torch.device:
    """Where a small tensor lies best that ranks exchange: the CPU, if the group can talk from there."""
    cpu = torch.device("cpu")
    return cpu if cpu in dist.group.WORLD._device_types else device()


def is_helper() -> bool:
    """Whether multiprocessing started this process: a DataLoader's worker, say. Such a process is no rank."""
    # While a spawned process imports the main script, only the second of the two is so.
    return multiprocessing.parent_process() is not None or hasattr(
        multiprocessing.current_process(), "_inheriting"
    )


def environment(name: str, default: int) -> int:
    """One of torchrun's variables, if it speaks of this process.

    A program that a rank starts inherits the variables and is no rank; workers that multiprocessing starts for a
    rank are part of it.
    """
    if is_foreign() or not is_started():
        return default
    return int(os.environ.get(name, default))


def is_started() -> bool:
    """Whether the environment is that of a rank."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


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
