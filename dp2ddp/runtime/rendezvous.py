"""What ranks tell each other beside the collectives: through the store, by polling, without a collective's timeout.

The agent serves the store, so that it outlives any rank (under torchrun 2.4 rank 0 does). This module has its own
connection to it, because a connection is blocked while another thread waits on it.
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

ADDRESS = "DP2DDP_STORE"  # host:port of the agent's store, in the ranks that `launch` or `init` started

_store: dist.Store | None = None
_calls: dict[str, int] = {}


def connect() -> None:
    """Open this rank's own connection to its agent's store, else to that of ``MASTER_ADDR`` and ``MASTER_PORT``."""
    global _store
    _calls.clear()
    host, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    if ranks.has_own_agent():
        host, _, port = os.environ[ADDRESS].rpartition(":")
    server = dist.TCPStore(
        host,
        int(port),
        world_size=None,
        is_master=False,
        timeout=timedelta(seconds=60),
        wait_for_workers=False,
    )
    _store = dist.PrefixStore(f"dp2ddp/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", server)


def serve() -> dist.Store:
    """Serve a store on a free port of this machine, for the ranks that this process will start."""
    server = dist.TCPStore("127.0.0.1", 0, world_size=None, is_master=True, wait_for_workers=False)
    os.environ[ADDRESS] = f"127.0.0.1:{server.port}"
    return server


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
