"""Whether the ranks have made the same batches, of which each takes a part."""

from __future__ import annotations

import hashlib
import os
import pickle
from dataclasses import dataclass
from typing import Any

import torch

from . import cutting, digests, unwrapped
from .exchange import exchange

_EVERY = 1000  # batches after which they are compared once more
_is_used = False


def is_used() -> bool:
    """Whether all ranks have made whole batches of which they have taken parts."""
    return _is_used


@dataclass(eq=False)
class Compared:
    """A line that takes parts of batches, or a loader: its batches are compared now and then."""

    taken: int = 0

    def compare(self, batch: Any, what: str, where: str) -> None:
        """Compare the next batch, on all ranks together, if it is its turn.

        Raises:
            RuntimeError: the ranks have different ones; ``what`` and ``where`` say who asks.
        """
        global _is_used
        _is_used = True
        taken = self.taken
        self.taken += 1
        if taken & (taken - 1) and taken % _EVERY:
            return
        wanted = os.environ.get(unwrapped.VARIABLE, "1") != "0"
        said = exchange(what, (wanted, _digest(batch) if wanted else ""))
        if said[0][0] and len({digest for _, digest in said}) > 1:
            raise RuntimeError(
                f"the ranks have made different batches {where}: draw them alike, from seeded generators, and of the "
                f"same data. {unwrapped.HOW_TO_GO_ON}"
            )


def _digest(batch: Any) -> str:
    """What batches are compared by: their structure, and what is no number that a GPU has computed."""
    found = hashlib.sha256(cutting.shown(batch).encode())
    for leaf in cutting.leaves(batch):
        if isinstance(leaf, torch.Tensor):
            if leaf.device.type == "cpu" or not leaf.is_floating_point():
                found.update(str(digests.fetched([digests.digest(leaf)])).encode())
        elif cutting.is_sized(leaf):
            found.update(_bytes(leaf))
    return found.hexdigest()


def _bytes(value: Any) -> bytes:
    try:
        return pickle.dumps(value)
    except Exception:  # what can't be pickled is not compared
        return b""
