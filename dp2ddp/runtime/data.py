"""Keeping the global batch: sizes, workers, the seed of the order."""

from __future__ import annotations

import torch
import torch.distributed as dist

from . import debug, messages, ranks, rendezvous, uneven, unwrapped
from .process import from_main_process


def local_batch_size(n: int, weighed: bool | None = True) -> int:
    """This rank's part of a global batch of ``n`` samples, for a DataLoader: ``n / world size``.

    Steps per epoch and learning rate then keep their meaning: with a DistributedSampler every rank takes
    ceil(ceil(L / W) / (n / W)) = ceil(L / n) steps over L samples on W ranks. Where the number of ranks does not divide
    ``n``, the DataLoader that is given the result deals its batches as ``shard`` does, and speaks of global batches.
    10 samples on 4 ranks are parts of 3, 3, 3 and 1, as nn.DataParallel cuts them; where some would have none all
    differ by one sample at most: 12 on 8 ranks are 2, 2, 2, 2, 1, 1, 1 and 1.

    Args:
        n: the global batch size, in samples.
        weighed: whether parts of different sizes weigh by these, as in ``shard``. None where that is not known: then
            all must have one size.

    Returns:
        The number of samples; where parts differ in size a kind of int by which a DataLoader knows that.

    Raises:
        SystemExit: ``n`` is less than the world size; or can't be divided by it, and it is not known how parts weigh.
            Code 2, and the choices on standard error, once.
    """
    world = ranks.get_world_size()
    unwrapped.divided()
    if n >= world and n % world == 0:
        return n // world
    deals = n >= world and weighed is not None
    if _speaks_first("local_batch_size"):
        messages.say(_sizes(n, world, bool(weighed)) if deals else _choices(n, world))
    if not deals:
        raise SystemExit(2)
    return uneven.Size(n, bool(weighed))


def _sizes(n: int, world: int, weighed: bool) -> str:
    listed = ", ".join(map(str, uneven.sizes(n, weighed)))
    return f"a batch of {n} samples is split unevenly over {world} processes: {listed}"


def _choices(n: int, world: int) -> str:
    if n < 1:
        return f"a batch size of {n} can't be divided among {world} processes: it must be 1 or more"
    divisors = [str(d) for d in range(1, min(n, max(16, 2 * world)) + 1) if n % d == 0]
    below, above = n // world * world, -(-n // world) * world
    sizes = " or ".join(str(size) for size in (below, above) if size)
    reason = (
        "there are more processes than samples in a batch"
        if n < world
        else "there is a remainder, and how the loss weights local batches of different sizes is unknown"
    )
    alone = ". One process is as fast: start it with DP2DDP_PROCESSES=1" if n == 1 else ""
    return (
        f"a batch size of {n} can't be divided among {world} processes: {reason}. Choose a number of processes that "
        f"divides it ({', '.join(divisors)}) or another batch size ({sizes}){alone}"
    )


def _speaks_first(key: str) -> bool:
    """Whether this rank is the one to say what every rank has found out: the first, before any of them ends."""
    met = ranks.has_group() or ranks.has_begun()
    if ranks.is_helper() or not met or ranks.count() == 1:
        return ranks.is_main_process()
    return rendezvous.claim(key)


class _LocalWorkers(int):
    """A rank's part of ``all`` workers."""

    all: int


def local_workers(n: int) -> int:
    """This rank's part of ``n`` DataLoader workers on this machine, rounded up; 0 stays 0."""
    part = _LocalWorkers(-(-n // ranks.get_local_world_size()))
    part.all = n
    return part


def all_workers(n: int) -> int:
    """The number that ``local_workers`` got for ``n``, or else ``n``: what ranks divide that share a loader."""
    return n.all if isinstance(n, _LocalWorkers) else n


def shared_seed() -> int:
    """A seed on which all ranks agree: rank 0's ``torch.initial_seed()``, so what the user gave ``torch.manual_seed``.

    All ranks must call it. For ``DistributedSampler(seed=…)``, whose own default deals every run the same order.

    Returns:
        An int from 0 to 2**63 - 1 (initial_seed's lower 63 bits): ``seed + epoch`` still seeds a generator.
    """
    seed = torch.initial_seed() % 2**63
    if ranks.takes_turns():
        return from_main_process(seed)
    if ranks.is_alone("shared_seed()"):
        return seed
    debug.meet("shared_seed()")
    agreed = torch.tensor([seed], device=ranks.talk_device())
    dist.broadcast(agreed, src=0)
    return int(agreed)
