"""Evaluation in shards: while ranks have different batches, or none, wrapped models compute on their own.

All ranks begin to iterate the loader together. There they get rank 0's buffers, once; after that a wrapped model's
forward is that of its module, without a collective, until the rank's last batch.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any

from .exchange import exchange

_numbers = itertools.count()
_models: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_running: set[int] = set()


def register(model: Any) -> None:
    """Have ``model.share_buffers()`` called where an evaluation begins; in the same order on all ranks."""
    _models[next(_numbers)] = model


def begin(loop: Any, what: str) -> None:
    """Note that an evaluation begins; a collective."""
    alive = exchange(what, sorted(_models))  # a rank may have freed a model that another one still has
    for number in sorted(set.intersection(*map(set, alive))):
        _models[number].share_buffers()
    _running.add(id(loop))


def end(loop: Any) -> None:
    """Note that this rank's part of an evaluation has ended, or was left."""
    _running.discard(id(loop))


def is_running() -> bool:
    """Whether this rank is evaluating batches of its own."""
    return bool(_running)
