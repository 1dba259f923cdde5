"""What ranks tell each other beside the collectives: through the store, by polling, without a collective's timeout.

The agent of machine 0 serves the store, so that it outlives any rank (where there is no such agent, rank 0 does). This
module has its own connection to it, because a connection is blocked while another thread waits on it.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import distributed_c10d

from . import lines, messages, places, ranks

SILENCE = 20.0  # seconds that a server which listens may take to answer
WHILE = 1.0  # seconds after which a rank that waits tells the others
HINT = 15.0  # seconds after which it is said once for whom a process waits

_store: dist.Store | None = None
_calls: dict[str, int] = {}
_IN_ORDER = (
    "barrier",
    "first",
    "value",
)  # the calls that all ranks make in the same order as their collectives


def address(place: places.Place) -> tuple[str, int]:
    """Where the job's store is.

    Raises:
        ValueError: the environment does not say it.
    """
    if not place.address or place.port is None:
        missing = "MASTER_PORT" if place.address else "MASTER_ADDR"
        raise ValueError(
            f"this is rank {place.rank} of {place.world_size}, but {missing} is not set: all ranks need MASTER_ADDR, "
            "the machine of rank 0, and MASTER_PORT, a free port there"
        )
    if not 0 < place.port < 65536:
        raise ValueError(f"MASTER_PORT={place.port}: ports are 1 to 65535")
    return place.address, place.port


def connect(host: str, port: int, timeout: timedelta) -> dist.Store:
    """Open this rank's own connection to the job's store, if that is not open; rank 0 serves it, if no agent does.

    Returns:
        Another connection, for the process group. torch would make it itself, but with the keys of the attempt before
        in it if torchrun has restarted the ranks: gloo then waits for ranks that are gone.

    Raises:
        RuntimeError: the store can't be reached, or its port is taken.
    """
    global _store
    said = places.variables(os.environ)
    serve = ranks.own_rank() == 0 and said.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    attempt = said.get("TORCHELASTIC_RESTART_COUNT", "0")
    if _store is None:
        _calls.clear()
        _store = dist.PrefixStore(f"dp2ddp/{attempt}", open_store(host, port, serve=serve, timeout=timeout))
    return dist.PrefixStore(f"group/{attempt}", open_store(host, port, serve=serve, timeout=timeout))


def open_store(host: str, port: int, *, serve: bool, timeout: timedelta) -> dist.TCPStore:
    """A connection to the store at ``host`` and ``port``, which this process serves or waits for.

    What torch opens there in the serving process shares the server. Port 0 is any free one.

    Raises:
        RuntimeError: the store can't be reached, or its port is taken, here or there.
    """
    options = {"world_size": None, "timeout": timeout, "wait_for_workers": False, "multi_tenant": True}
    if not serve:
        _wait_for_server(host, port, timeout)
        return _open_client(lambda: dist.TCPStore(host, port, is_master=False, **options), f"{host}:{port}")
    try:
        return dist.TCPStore(host, port, is_master=True, **options)
    except RuntimeError as error:
        if "EADDRINUSE" in str(error):
            raise RuntimeError(f"port {port} is taken on this machine: choose another") from None
        raise


def _open_client(make: Callable[[], dist.TCPStore], address: str) -> dist.TCPStore:
    """What ``make`` returns, in a thread: torch waits without any limit for a server that listens and never answers."""
    made: list[dist.TCPStore] = []
    errors: list[str] = []

    def run() -> None:
        try:
            store = make()
            store.add("dp2ddp/asked", 0)  # torch 2.4 asks nothing before
            made.append(store)
        except RuntimeError as error:
            errors.append(str(error).partition("\n")[0])

    thread = threading.Thread(target=run, name="dp2ddp-store", daemon=True)
    thread.start()
    thread.join(SILENCE)
    if made:
        return made[0]
    reason = errors[0] if errors else f"no answer in {SILENCE:g} s"
    raise RuntimeError(
        f"{address} answers, but not as this job's store ({reason}): if another program uses this port, choose "
        "another"
    )


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
                f"can't connect to rank 0 at {host}:{port} within {timeout.total_seconds():g} s ({reason}): "
                "start the script there, too, and check that the address is reachable"
            ) from None
        if now > hint:
            messages.say(f"waiting for rank 0 at {host}:{port} ({reason})")
            hint = end
        time.sleep(0.1)


def disconnect() -> None:
    global _store
    _store = None


def collect(name: str, value: object, timeout: timedelta = timedelta.max) -> list:
    """What every rank has for ``name``, in the order of ranks; JSON values. None for a rank that left before.

    Raises:
        RuntimeError: a rank has ended without coming here, or ranks have not come in time; it names them.
    """
    store().set(f"{name}/{ranks.own_rank()}", json.dumps(value))
    keys = {rank: f"{name}/{rank}" for rank in range(ranks.count())}
    waiting = set(keys)
    end = time.monotonic() + timeout.total_seconds()

    def all_there() -> bool:
        if store().check([keys[rank] for rank in waiting]):
            return True
        waiting.difference_update([rank for rank in waiting if store().check([keys[rank]]) or has_left(rank)])
        return not waiting

    def missing() -> str | None:
        gone = next((rank for rank in sorted(waiting) if ended_count() and ended(rank)), None)
        if gone is not None or time.monotonic() < end:
            return needed(gone, "to begin with")
        who = messages.listing("rank", sorted(waiting))
        return f"{who} of {len(keys)} did not join within {timeout.total_seconds():g} s"

    wait(all_there, missing, reports=False)
    return [json.loads(store().get(key)) if store().check([key]) else None for key in keys.values()]


def report_leaving() -> None:
    """Tell the others that this rank leaves before it is settled who trains."""
    if _store is not None:
        store().set(f"left/{ranks.own_rank()}", "")
        store().add("left", 1)


def has_left(rank: int) -> bool:
    """Whether one of the ranks that were started has left before it was settled who trains."""
    return left_count() > 0 and (ranks.has_begun() or ranks.is_settling()) and store().check([f"left/{rank}"])


def left_count() -> int:
    """How many ranks have left before it was settled who trains."""
    return store().add("left", 0)


def store() -> dist.Store:
    """The store: our own connection, or that of a group which somebody else made."""
    if _store is not None:
        return _store
    return dist.PrefixStore("dp2ddp", distributed_c10d._get_default_store())


def connection() -> dist.Store | None:
    """Our own connection to the store, if there is one: as long as it is kept, a server in this process goes on."""
    return _store


def next_call(name: str) -> int:
    """Number this rank's calls of a store collective, from 1: all ranks make them in the same order."""
    _calls[name] = _calls.get(name, 0) + 1
    return _calls[name]


def claim(key: str) -> bool:
    """Whether this rank is the first of all to claim ``key``."""
    return store().add(f"claim/{key}", 1) == 1


def claimed(key: str) -> bool:
    """Whether a rank has claimed ``key``."""
    return store().check([f"claim/{key}"])


def started() -> int:
    """How many collectives this rank has started in the default group, over all its backends: to make it is one."""
    group = dist.group.WORLD
    if group is None:
        return int(ranks.is_settling())
    try:
        backends = {id(b): b for b in (group._get_backend(kind) for kind in group._device_types)}.values()
        return sum(backend._get_sequence_number_for_group() for backend in backends)
    except (AttributeError, RuntimeError):
        return group._get_sequence_number_for_group()


def report_end(sequence: int) -> None:
    """Tell the others that this rank has ended, having started ``sequence`` collectives."""
    report = {"rank": ranks.own_rank(), "pid": os.getpid(), "sequence": sequence, "calls": _calls}
    value = json.dumps(report)
    store().set(f"end/{ranks.own_rank()}", value)
    if claim(f"end at {sequence}"):
        store().set(f"ends/{store().add('ends', 1)}", value)
    store().add("ended", 1)


def ends(known: int) -> list[dict]:
    """What ranks reported at their end, but the first ``known``; of those that started as many collectives, one."""
    found = []
    for number in range(known + 1, store().add("ends", 0) + 1):
        key = f"ends/{number}"
        if not store().check([key]):  # just being written, over this connection perhaps: never wait for it
            break
        found.append(json.loads(store().get(key)))
    return found


def ended_before(others: Iterable[int], name: str, number: int) -> int | None:
    """The first of the ranks ``others`` that has ended before its ``number``-th call of ``name``."""
    if ended_count() == 0:
        return None
    for rank in others:
        report = ended(rank)
        if report and report["calls"].get(name, 0) < number:
            return rank
    return None


def needed(rank: int | None, what: str) -> str | None:
    """What to say when ``rank`` has ended; nothing if it is None."""
    if rank is None:
        return None
    return f"rank {rank} has ended, but rank {ranks.own_rank()} still needs it ({what})"


def ended_count() -> int:
    return store().add("ended", 0)


def ended(rank: int) -> dict | None:
    """What a rank reported at its end, or None while it runs."""
    key = f"end/{rank}"
    return json.loads(store().get(key)) if store().check([key]) else None


def report_wait() -> None:
    """Tell the others that this rank has been waiting for a while, and in which call."""
    calls = {name: _calls[name] for name in _IN_ORDER if name in _calls}
    report = {"rank": ranks.own_rank(), "sequence": started(), "calls": calls, "site": lines.site()}
    store().set("wait", json.dumps(report))


def waits_in_vain() -> tuple[int, str] | None:
    """The rank that waits in a call to which this one can't come, as it waits for that one in a collective; its line.

    There the call came before the collective, and here after it.
    """
    if not store().check(["wait"]):
        return None
    report = json.loads(store().get("wait"))
    behind = any(number > _calls.get(name, 0) for name, number in report["calls"].items())
    return (report["rank"], report["site"]) if behind and started() > report["sequence"] else None


def wait(
    done: Callable[[], bool], missing: Callable[[], str | None], pause: float = 0.002, *, reports: bool = True
) -> None:
    """Poll until ``done()``, however long it takes.

    Args:
        done: whether what this rank waits for has happened.
        missing: a message, if it can't happen any more.
        pause: seconds before the second look; later ones come less often.
        reports: whether the others hear of a long wait. Only the last report is kept: one that counts as a collective
            itself would take the place of the report that shows why it waits in vain.

    Raises:
        RuntimeError: with that message.
    """
    report_at = time.monotonic() + WHILE
    while not done():
        message = missing()
        if message is not None and not done():
            raise RuntimeError(message)
        if reports and time.monotonic() > report_at:
            report_at = float("inf")
            report_wait()
        time.sleep(pause)
        pause = min(pause * 1.5, 0.2)
