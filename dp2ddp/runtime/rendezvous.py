"""What ranks tell each other beside the collectives: through the store, by polling, without a collective's timeout.

torchrun's agent serves the store, so that it outlives any rank. This module has its own connection to it, because a
connection is blocked while another thread waits on it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import distributed_c10d

from . import ranks

_store: dist.Store | None = None
_calls: dict[str, int] = {}


def connect() -> None:
    """Open this rank's own connection to the store that ``MASTER_ADDR`` and ``MASTER_PORT`` name."""
    global _store
    _calls.clear()
    server = dist.TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        world_size=None,
        is_master=False,
        timeout=timedelta(seconds=60),
        wait_for_workers=False,
    )
    _store = dist.PrefixStore(f"dp2ddp/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", server)


def disconnect() -> None:
    global _store
    _store = None


def store() -> dist.Store:
    """The store: our own connection, or that of a group which somebody else made."""
    if _store is not None:
        return _store
    return dist.PrefixStore("dp2ddp", distributed_c10d._get_default_store())


def next_call(name: str) -> int:
    """Number this rank's calls of a store collective, from 1: all ranks make them in the same order."""
    _calls[name] = _calls.get(name, 0) + 1
    return _calls[name]


def claim(key: str) -> bool:
    """Whether this rank is the first of all to claim ``key``."""
    return store().add(f"claim/{key}", 1) == 1


def report_end(sequence: int) -> None:
    """Tell the others that this rank has ended, having started ``sequence`` collectives."""
    value = {"sequence": sequence, "calls": _calls}
    store().set(f"end/{ranks.get_rank()}", json.dumps(value))
    store().add("ended", 1)


def ended_count() -> int:
    return store().add("ended", 0)


def ended(rank: int) -> dict | None:
    """What a rank reported at its end, or None while it runs."""
    key = f"end/{rank}"
    return json.loads(store().get(key)) if store().check([key]) else None


def wait(done: Callable[[], bool], missing: Callable[[], str | None]) -> None:
    """Poll until ``done()``, however long it takes.

    Args:
        done: whether what this rank waits for has happened.
        missing: a message, if it can't happen any more.

    Raises:
        RuntimeError: with that message.
    """
    pause = 0.002
    while not done():
        message = missing()
        if message is not None and not done():
            raise RuntimeError(message)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.2)
