"""Random numbers: ranks that nobody seeded draw the same."""

from __future__ import annotations

import pickle

import torch

from . import ranks, rendezvous, streams


def agree() -> None:
    """Give every rank the state of rank 0's generators: torch's on the CPU, Python's, and numpy's if it is loaded.

    What was seeded alike in all ranks stays as it is. What was not seeded would differ: a random split would put
    one rank's validation samples into another's training set. The GPUs' generators get the CPU's seed, as
    ``torch.manual_seed`` gives it to them: unseeded, each process's would begin elsewhere.
    """
    store = rendezvous.store()
    if ranks.own_rank() == 0:
        store.set("random", pickle.dumps(streams.states()))
    else:
        streams.set_states(pickle.loads(store.get("random")))
    torch.cuda.manual_seed_all(torch.initial_seed())  # it waits until CUDA is in use
