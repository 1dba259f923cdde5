"""Random numbers: ranks that nobody seeded draw the same."""

from __future__ import annotations

import pickle

from . import ranks, rendezvous, streams


def agree() -> None:
    """Give every rank the state of rank 0's generators: torch's on the CPU, Python's, and numpy's if it is loaded.

    What was seeded alike in all ranks stays as it is. What was not seeded would differ: a random split would put
    one rank's validation samples into another's training set.
    """
    store = rendezvous.store()
    if ranks.get_rank() == 0:
        store.set("random", pickle.dumps(streams.states()))
    else:
        streams.set_states(pickle.loads(store.get("random")))
