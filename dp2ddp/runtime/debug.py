"""A check that all ranks stand at the same collective.

With ``DP2DDP_DEBUG=1`` every collective of this package first says in the store which line calls it, and waits until
every rank has said the same. A collective on some ranks only, or in another order, then ends in an error that names
the lines, where it would hang or, worse, be answered by another collective. Without the variable nothing is said.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta

from . import lines, ranks, rendezvous

VARIABLE = "DP2DDP_DEBUG"
DEFAULT_TIMEOUT = 30.0  # seconds; torch's own, 30 minutes, is long for whoever looks for a fault
GRACE = 1.0  # seconds for the other ranks to come once one is known to be elsewhere, so that all can be named
LEAD = timedelta(seconds=5)  # of a message of this check over a timeout of torch's


def _is_wanted() -> bool:
    return os.environ.get(VARIABLE, "0") not in ("", "0")


_limit = DEFAULT_TIMEOUT
_is_on = _is_wanted()


def begin(timeout: timedelta | None) -> None:
    """Look whether there is anything to do, and set how long ``meet`` waits; None for the default."""
    global _is_on, _limit
    _is_on = _is_wanted()
    _limit = DEFAULT_TIMEOUT if timeout is None else timeout.total_seconds()


def timeout_beside(timeout: timedelta | None) -> timedelta | None:
    """The timeout of torch's own collectives: longer where ``meet`` waits too, so that its message comes first."""
    return timeout + LEAD if timeout is not None and _is_on else timeout


def meet(what: str, patient: bool = False) -> None:
    """With ``DP2DDP_DEBUG=1``: wait until every rank is at this call of ``what``. Every collective begins so.

    Args:
        what: the collective's name, as a user writes it.
        patient: whether ranks may take any time to come, as at a barrier; else they have the ``timeout`` of ``launch``
            or ``init``, 30 seconds if none was given.

    Raises:
        RuntimeError: a rank is at another call, has ended, or has not come in time; the message names this call, the
            ranks that are missing and where they are. Without the variable, too: the others wait for their turn.
    """
    if ranks.takes_turns():
        raise RuntimeError(
            f"{what} at {lines.site()} needs every rank, but is inside main_process_first(), which ranks run "
            "one after another: move it out of that block"
        )
    if not _is_on:
        return
    limit = float("inf") if patient else _limit
    number, rank, store = rendezvous.next_call("debug"), ranks.own_rank(), rendezvous.store()
    here = f"{what} at {lines.site()}"
    store.set(_key(rank, number), here)
    store.set(_key(rank, "last"), here)
    elsewhere, late = _wait_for_others(number, here, limit)
    if elsewhere or late:
        where = elsewhere | {other: f"has not arrived within {limit:g} s{_last(other)}" for other in late}
        whereabouts = ", ".join(f"rank {other} {where[other]}" for other in sorted(where))
        hint = "; timeout= or DP2DDP_TIMEOUT sets how long to wait" if late else ""
        raise RuntimeError(f"rank {rank} calls {here}, which needs every rank, but {whereabouts}{hint}")
    if number > 1:  # who is here has read what was said before
        store.delete_key(_key(rank, number - 1))


def _wait_for_others(number: int, here: str, limit: float) -> tuple[dict[int, str], set[int]]:
    """Wait until every rank has made its ``number``-th call, for ``limit`` seconds at most.

    Returns:
        Where the ranks are that have come to another line than ``here`` or have ended, in words, and, if there are none
        such, which ranks have not come.
    """
    missing, elsewhere = set(range(ranks.count())) - {ranks.own_rank()}, {}
    begin, pause, grace = time.monotonic(), 0.001, float("inf")
    while missing and time.monotonic() < min(begin + limit, grace):
        for other in sorted(missing):
            if rendezvous.store().check([_key(other, number)]):
                there = rendezvous.store().get(_key(other, number)).decode()
                elsewhere |= {other: f"is at {there}"} if there != here else {}
            elif rendezvous.ended_before([other], "debug", number) is not None:
                elsewhere[other] = f"has ended{_last(other)}"
            elif not rendezvous.has_left(other):
                continue
            missing.remove(other)
        if elsewhere:
            grace = min(grace, time.monotonic() + GRACE)
        if missing:
            time.sleep(pause)
            pause = min(pause * 1.5, 0.05)
    return elsewhere, set() if elsewhere else missing


def _key(rank: int, number: int | str) -> str:
    return f"debug/{rank}/{number}"


def _last(rank: int) -> str:
    """What a rank said last."""
    key = _key(rank, "last")
    if not rendezvous.store().check([key]):
        return ""
    return f" (its last call was {rendezvous.store().get(key).decode()})"
