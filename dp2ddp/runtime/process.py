"""One process, or one after the other: printing, saving, writing, asking, waiting."""

from __future__ import annotations

import builtins
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, TypeVar

import torch

from . import ahead, checkpoint, debug, exchange, files, lines, nowhere, overlaps, ranks, rendezvous, streams

Value = TypeVar("Value")

_DONE = b"done"  # what stands in the store where a block has ended without an error


def print(*values: Any, **options: Any) -> None:
    """Python's ``print`` on rank 0; nothing on the others. No collective: it may stand under any condition."""
    if ranks.is_main_process():
        builtins.print(*values, **options)


def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
    """``torch.save`` on rank 0; nothing on the others. No collective: it may stand under any condition.

    A path gets the whole file or none, whatever happens while it is written. Call ``barrier`` before another rank
    reads it. Wrapped models in it are saved as the bare ones, so that whoever loads the file needs no dp2ddp.

    Args:
        obj, f, *args, **kwargs: as in ``torch.save``; ``f`` is a path or a file-like object.

    Raises:
        OSError: the disk is full, the folder cannot be written; then the file is as it was and no other is left.
        Exception: whatever else ``torch.save`` raises; likewise.
    """
    if not ranks.is_main_process():
        return
    with checkpoint.bare():
        if not isinstance(f, str | os.PathLike):
            torch.save(obj, f, *args, **kwargs)
            return
        with files.whole(f) as file:
            torch.save(obj, file, *args, **kwargs)
        overlaps.wrote(f)


def open(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> IO[Any]:
    """Python's ``open``; what is opened for writing leads nowhere on all ranks but 0. No collective.

    Args:
        file, mode, *args, **kwargs: as in ``open``.
    """
    writes = any(letter in mode for letter in "wax+")
    if writes and not ranks.is_main_process():
        return nowhere.open(file, mode, *args, **kwargs)
    return builtins.open(file, mode, *args, **kwargs)


def input(prompt: object = "") -> str:
    """Python's ``input`` on rank 0; all ranks get the answer. Every rank must call it.

    Raises:
        EOFError: on all ranks, where there is nothing to read on rank 0.
        RuntimeError: as in ``from_main_process``.
    """
    return _from_main_process("input()", lambda: builtins.input(prompt))


def from_main_process(value: Value) -> Value:
    """Rank 0's value, on all ranks; what the others give does not matter. Every rank must call it.

    For what each rank would find out for itself, and otherwise: the time, the name of a new folder, what a folder
    holds. It needs no process group, so that it may stand before devices are chosen, and waits as long as rank 0 takes.

    Args:
        value: anything that can be pickled. Tensors come back without a graph, those on a GPU on each rank's own. Of
            a file that is open, or another iterator that can't be pickled, every rank gets one: what it hands out on
            rank 0 comes when it is asked for, and all ranks must ask as often.

    Raises:
        RuntimeError: rank 0 has ended without coming here, or gives a value in another function.
        Exception: on all ranks, whatever pickling rank 0's value raises.
    """
    what = "from_main_process()"
    if ahead.is_alone(what):
        return value
    streams_it = ranks.is_main_process() and _is_stream(value)
    found = _from_main_process(what, lambda: _Stream() if streams_it else value)
    return _streamed(value, what) if isinstance(found, _Stream) else found


class _Stream:
    """What rank 0 says of a value that comes piece by piece."""


def _is_stream(value: Any) -> bool:
    """Whether a value hands out others, and is none that can be pickled."""
    if not hasattr(value, "__next__"):
        return False
    try:
        exchange.pickled(value)
    except Exception:  # noqa: BLE001 - whatever it is, it can't be sent as a whole
        return True
    return False


def _streamed(values: Any, what: str) -> Iterator[Any]:
    """What rank 0's ``values`` hand out, on all ranks."""

    def following() -> list[Any]:
        return [it for _, it in zip(range(1), values, strict=False)]

    while found := _from_main_process(what, following):
        yield found[0]


def _from_main_process(what: str, make: Callable[[], Value]) -> Value:
    """What ``make`` returns on rank 0, or raises there, on all ranks."""
    if ahead.is_alone(what):
        return make()
    if not ranks.takes_turns():  # there rank 0 has gone on when the others come
        debug.meet(what, patient=True)
    number = rendezvous.next_call("value")
    key, store = f"value/{number}", rendezvous.store()
    if ranks.is_main_process():
        try:
            value = make()
            store.set(key, exchange.pickled((value, b"", lines.function(), lines.site())))
        except Exception as error:
            store.set(key, exchange.pickled((None, _sent(error), lines.function(), lines.site())))
            raise
        return value
    _wait_for(key, 0, "value", number, f"in {what}")
    value, error, function, site = pickle.loads(store.get(key))
    if function != lines.function():
        raise RuntimeError(
            f"control flow differs across ranks: rank {ranks.own_rank()} is at {what} at {lines.site()}, rank "
            f"0 at {site}; make the condition before it equal on all ranks, e.g. by ddp.from_main_process(…)"
        )
    if store.add(f"{key}/read", 1) == ranks.count() - 1:
        store.delete_key(key)
    if error:
        raise _received(error, 0, what)
    return value


def barrier() -> None:
    """Wait until every rank is here, however long one of them works: the collectives' timeout does not apply.

    Does nothing in a plain process, nor within ``main_process_first``, where rank 0 has done all when the others come.

    Raises:
        RuntimeError: a rank has ended without coming here.
    """
    if ranks.takes_turns() or ahead.is_alone("barrier()"):
        return
    debug.meet("barrier()", patient=True)
    number, world = rendezvous.next_call("barrier"), ranks.count()
    store = rendezvous.store()
    store.add(f"barrier/{number}", 1)

    def missing() -> str | None:
        return rendezvous.needed(rendezvous.ended_before(range(world), "barrier", number), "at a barrier")

    rendezvous.wait(lambda: store.add(f"barrier/{number}", 0) >= world, missing)
    if ranks.is_main_process():  # who is here has left the one before
        store.delete_key(f"barrier/{number - 1}")


@contextmanager
def main_process_first() -> Iterator[None]:
    """Run a block on rank 0 first, then on the other machines' first ranks, then on all others.

    For what one rank fetches or writes and the others find: a download, a cache. Right with and without a disk that
    machines share. All ranks must pass here; within such a block, another one simply runs, a loader that is shared
    loads for each rank by itself, and what needs all ranks at once raises a RuntimeError. However long the block takes,
    the collectives' timeout does not apply. If rank 0 draws random numbers in it, to make what the others find, these
    go on with its generators' states.
    In a plain process the block simply runs.

    Raises:
        Exception: on every other rank, which then does not run the block, what it raised on rank 0 (on the ranks of one
            machine, on that machine's first): a handler round the block acts alike on all. A RuntimeError, where that
            can't be sent.
        RuntimeError: rank 0 has ended without coming here.
    """
    if ranks.takes_turns() or ahead.is_alone("main_process_first()"):
        yield
        return
    debug.meet("main_process_first()", patient=True)
    number, rank = rendezvous.next_call("first"), ranks.own_rank()
    main, local = f"first/{number}", f"first/{number}/{ranks.machine()}"
    before, drawn = streams.states(), b""
    if rank == 0:
        announce = [main, local]
    else:
        drawn = _wait_for_first(main, 0, number)
        announce = [local] if ranks.get_local_rank() == 0 else []
        if not announce:
            _wait_for_first(local, ranks.first_of_machine(), number)
    outcome = _DONE
    ranks.take_turns(True)
    try:
        yield
        after = streams.states()
        if rank == 0 and after != before:
            drawn = pickle.dumps(after)
        elif rank != 0 and (drawn or after != before):
            streams.set_states(pickle.loads(drawn) if drawn else before)
        outcome += drawn
    except BaseException as error:
        outcome = _sent(error)
        raise
    finally:
        ranks.take_turns(False)
        for key in announce:
            rendezvous.store().set(key, outcome)


def _wait_for_first(key: str, first: int, number: int) -> bytes:
    """Wait until rank ``first`` has run the block of ``key``: the random states that it left, if it drew."""
    _wait_for(key, first, "first", number, "in main_process_first()")
    outcome = rendezvous.store().get(key)
    if not outcome.startswith(_DONE):
        raise _received(outcome, first, "main_process_first()")
    return outcome[len(_DONE) :]


def _sent(error: BaseException) -> bytes:
    """An error as it reaches other ranks: of the same type, if it can be pickled and read again."""
    try:
        data = pickle.dumps(error)
        if type(pickle.loads(data)) is type(error):
            return data
    except Exception:
        pass
    return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))


def _received(data: bytes, rank: int, where: str) -> BaseException:
    """An error that another rank has sent."""
    error = pickle.loads(data)
    error.raised_on_rank = rank  # which says it
    if hasattr(error, "add_note"):
        error.add_note(f"raised on rank {rank}, in {where}")
    return error


def _wait_for(key: str, rank: int, call: str, number: int, what: str) -> None:
    """Wait until ``rank`` has made its ``number``-th ``call``, and said so under ``key``."""

    def missing() -> str | None:
        return rendezvous.needed(rendezvous.ended_before([rank], call, number), what)

    rendezvous.wait(lambda: rendezvous.store().check([key]), missing)
