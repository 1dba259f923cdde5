"""Random numbers: ranks that nobody seeded draw the same."""

from __future__ import annotations

import pickle
import random
import sys
from typing import Any

import torch

from . import ranks, rendezvous


def agree() -> None:
    """Give every rank the state of rank 0's generators: torch's on the CPU, Python's, and numpy's if it is loaded.

    What was seeded alike in all ranks stays as it is. What was not seeded would differ: a random split would put
    one rank's validation samples into another's training set.
    """
    store = rendezvous.store()
    if ranks.get_rank() == 0:
        store.set("random", pickle.dumps(_states()))
        return
    state, python, numpy = pickle.loads(store.get("random"))
    torch.set_rng_state(torch.tensor(list(state), dtype=torch.uint8))
    random.setstate(python)
    if numpy is not None and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(numpy)


def _states() -> tuple[bytes, Any, Any]:
    numpy = sys.modules.get("numpy")
    state = bytes(torch.get_rng_state().tolist())
    return state, random.getstate(), numpy.random.get_state() if numpy is not None else None
