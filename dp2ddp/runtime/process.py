"""One process, or one after the other: printing, saving, waiting."""

from __future__ import annotations

import builtins
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from . import debug, files, ranks, rendezvous


def print(*values: Any, **options: Any) -> None:
    """Python's ``print`` on rank 0; nothing on the others. No collective: it may stand under any condition."""
    if ranks.is_main_process():
        builtins.print(*values, **options)


def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
    """``torch.save`` on rank 0; nothing on the others. No collective: it may stand under any condition.

    A path gets the whole file or none, whatever happens while it is written. Call ``barrier`` before another rank
    reads it.

    Args:
        obj, f, *args, **kwargs: as in ``torch.save``; ``f`` is a path or a file-like object.

    Raises:
        OSError: the disk is full, the folder cannot be written; then the file is as it was and no other is left.
        Exception: whatever else ``torch.save`` raises; likewise.
    """
    if not ranks.is_main_process():
        return
    if not isinstance(f, str | os.PathLike):
        torch.save(obj, f, *args, **kwargs)
        return
    with files.whole(f) as file:
        torch.save(obj, file, *args, **kwargs)


def barrier() -> None:
    """Wait until every rank is here, however long one of them works: the collectives' timeout does not apply.

    Does nothing in a plain process.

    Raises:
        RuntimeError: a rank has ended without coming here, or the process group does not exist yet.
    """
    if ranks.is_alone("barrier()"):
        return
    debug.meet("barrier()", patient=True)
    number, world = rendezvous.next_call("barrier"), ranks.get_world_size()
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
    machines share. All ranks must pass here. However long the block takes, the collectives' timeout does not apply.
    In a plain process the block simply runs.

    Raises:
        RuntimeError: on every other rank, which then does not run the block, if it raised on rank 0 (on the ranks of
            one machine, if it raised on that machine's first); or rank 0 has ended without coming here.
    """
    if ranks.is_alone("main_process_first()"):
        yield
        return
    debug.meet("main_process_first()", patient=True)
    number, rank = rendezvous.next_call("first"), ranks.get_rank()
    main, local = f"first/{number}", f"first/{number}/{ranks.machine()}"
    if rank == 0:
        announce = [main, local]
    else:
        _wait_for_first(main, 0, number)
        announce = [local] if ranks.get_local_rank() == 0 else []
        if not announce:
            _wait_for_first(local, ranks.first_of_machine(), number)
    outcome = ""
    try:
        yield
    except BaseException as error:
        outcome = f"{type(error).__name__}: {error}"
        raise
    finally:
        for key in announce:
            rendezvous.store().set(key, f"!{outcome}" if outcome else "done")


def _wait_for_first(key: str, first: int, number: int) -> None:
    """Wait until rank ``first`` has run the block that ``key`` stands for."""
    store = rendezvous.store()

    def missing() -> str | None:
        return rendezvous.needed(rendezvous.ended_before([first], "first", number), "in main_process_first")

    rendezvous.wait(lambda: store.check([key]), missing)
    outcome = store.get(key).decode()
    if outcome.startswith("!"):
        raise RuntimeError(f"rank {first} raised {outcome[1:]} in main_process_first()")
