"""What ranks tell each other beside the collectives: through the store, by polling, without a collective's timeout.

The agent of machine 0 serves the store, so that it outlives any rank (where there is no such agent, rank 0 does). This
module has its own connection to it, because a connection is blocked while another thread waits on it.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import distributed_c10d

from . import messages, ranks

HINT = 15.0  # seconds after which it is said once for whom a process waits

_store: dist.Store | None = None
_calls: dict[str, int] = {}


def connect(host: str, port: int, timeout: timedelta) -> dist.Store:
    """Open this rank's own connection to the job's store; rank 0 serves it, if no agent does.

    Returns:
        Another connection, for the process group. torch would make it itself, but with the keys of the attempt before
        in it if torchrun has restarted the ranks: gloo then waits for ranks that are gone.

    Raises:
        RuntimeError: the store can't be reached, or its port is taken.
    """
    global _store
    _calls.clear()
    serve = ranks.get_rank() == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    _store = dist.PrefixStore(f"dp2ddp/{attempt}", open_store(host, port, serve=serve, timeout=timeout))
    return dist.PrefixStore(f"group/{attempt}", open_store(host, port, serve=serve, timeout=timeout))


def open_store(host: str, port: int, *, serve: bool, timeout: timedelta) -> dist.TCPStore:
    """A connection to the store at ``host`` and ``port``, which this process serves or waits for.

    What torch opens there in the serving process shares the server. Port 0 is any free one.

    Raises:
        RuntimeError: the store can't be reached, or its port is taken.
    """
    if not serve:
        _wait_for_server(host, port, timeout)
    try:
        return dist.TCPStore(
            host,
            port,
            world_size=None,
            is_master=serve,
            timeout=timeout,
            wait_for_workers=False,
            multi_tenant=True,
        )
    except RuntimeError as error:
        if "EADDRINUSE" in str(error):
            raise RuntimeError(
                f"port {port} is taken on this machine: choose another in MASTER_PORT or dist_url"
            ) from None
        raise


def _wait_for_server(host: str, port: int, timeout: timedelta) -> None:
    # torch's own waiting writes a stack trace on standard error for each failed attempt
    end = time.monotonic() + timeout.total_seconds()
    hint = time.monotonic() + HINT
    while True:
        try:
            socket.create_connection((host, port), timeout=5).close()
            return
        except OSError as error:
            reason = error
        now = time.monotonic()
        if now > end:
            raise RuntimeError(
                f"nobody serves {host}:{port} after {timeout.total_seconds():g} s ({reason}): the program must have "
                "been started on that machine, which must be reachable, as the one with rank 0"
            ) from None
        if now > hint:
            messages.say(f"waiting for {host}:{port}, where rank 0's machine is expected ({reason})")
            hint = end
        time.sleep(0.1)


def disconnect() -> None:
    global _store
    _store = None


def collect(name: str, value: object, timeout: timedelta) -> list:
    """What every rank has for ``name``, in the order of ranks; JSON values.

    Raises:
        RuntimeError: ranks have not come in time; it names them.
    """
    store().set(f"{name}/{ranks.get_rank()}", json.dumps(value))
    keys = [f"{name}/{rank}" for rank in range(ranks.get_world_size())]
    end = time.monotonic() + timeout.total_seconds()

    def missing() -> str | None:
        if time.monotonic() < end:
            return None
        late = [rank for rank, key in enumerate(keys) if not store().check([key])]
        who = messages.listing("rank", late)
        return f"{who} of {len(keys)} did not come within {timeout.total_seconds():g} s"

    wait(lambda: store().check(keys), missing)
    values = store().multi_get(keys) if store().has_extended_api() else [store().get(key) for key in keys]
    return [json.loads(value) for value in values]


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


def wait(done: Callable[[], bool], missing: Callable[[], str | None], pause: float = 0.002) -> None:
    """Poll until ``done()``, however long it takes.

    Args:
        done: whether what this rank waits for has happened.
        missing: a message, if it can't happen any more.
        pause: seconds before the second look; later ones come less often.

    Raises:
        RuntimeError: with that message.
    """
    while not done():
        message = missing()
        if message is not None and not done():
            raise RuntimeError(message)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.2)
