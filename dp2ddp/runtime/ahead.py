"""Ranks that wait for each other above the line that makes them ranks: what an import runs may wait, fetch or ask.

A model that is built when its module is imported comes before ``init`` or ``launch`` of the program that imports it.
What needs no process group, but the store alone, works there, too: the environment says where the store is.
"""

from __future__ import annotations

from . import hash_seed, options, ranks, rendezvous
from .options import PATIENCE


def is_alone(what: str) -> bool:
    """Whether ``what``, which needs the store and not the process group, has nobody to talk to.

    Raises:
        RuntimeError: the store can't be reached.
        ValueError: the environment does not say where the store is.
    """
    if _is_ahead():
        place = ranks.place()
        if place is None or place.world_size == 1 or _starts_ranks(place.one_per_machine):
            return True
        hash_seed.agree(place)
        rendezvous.connect(*rendezvous.address(place), PATIENCE)
        return False
    return ranks.is_alone(what, settled=False)


def _is_ahead() -> bool:
    """Whether this process may be a rank, and neither ``init`` nor the program has come to the group."""
    return not (ranks.is_helper() or ranks.has_group() or ranks.has_begun() or ranks.stands_aside())


def _starts_ranks(one_per_machine: bool) -> bool:
    """Whether this process will be the agent of its machine, whose ranks come by here themselves."""
    return one_per_machine and options.read().process_count() > 1
