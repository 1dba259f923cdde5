"""In which order a sharded loader draws: in rank 0's, on every rank.

torch's own samplers draw all that is random with their first batch, from torch's global generator or one of their own.
So every rank draws with them itself, having taken rank 0's states for that moment. Any other sampler may draw whenever
it likes from whatever it likes, or follow what it sees of the training: there rank 0 draws and tells the others
through the store. They draw as well, for what a sampler may change beside (generators, its length), and go by what
rank 0 says.
"""

from __future__ import annotations

import itertools
import os
import pickle
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import sampler as torchs

from . import debug, lines, ranks, rendezvous, streams

_END = object()
_FIXED = (list, tuple, range, torch.Tensor)
_AT_ONCE = (
    torchs.SequentialSampler,
    torchs.RandomSampler,
    torchs.SubsetRandomSampler,
    torchs.WeightedRandomSampler,
)
_PAUSE = 0.0001  # seconds between two looks for what rank 0 draws

_left: list[str] = []  # keys of what rank 0 told and nobody may have read


# Beginning together


@dataclass(frozen=True)
class Meeting:
    """What the ranks told each other when they began to iterate a loader.

    Args:
        number: of this iteration among all iterations of sharded loaders.
        told: what rank 0 told.
        depth: the most batches that a rank draws ahead; known on rank 0 only.
    """

    number: int
    told: Any
    depth: int


def meet(what: str, told: Any = None, depth: int = 1) -> Meeting:
    """Begin to iterate a loader, on all ranks together, however long one of them takes to come.

    Args:
        what: which loader, in words that are the same on every rank.
        told: what rank 0 has to tell the others; anything that can be pickled.
        depth: how many batches this rank draws ahead, that in use included.

    Raises:
        RuntimeError: the ranks begin to iterate different loaders, or one has ended.
    """
    if ranks.is_alone(what):
        return Meeting(0, told, depth)
    debug.meet(f"the iterator of {what}", patient=True)
    store, rank, site = rendezvous.store(), ranks.get_rank(), lines.site()
    number = rendezvous.next_call("shard")
    store.set(f"shard/{number}/{rank}", pickle.dumps((what, site, told if rank == 0 else None, depth)))
    others = range(ranks.get_world_size()) if rank == 0 else [0]
    keys = [f"shard/{number}/{other}" for other in others]
    rendezvous.wait(lambda: store.check(keys), lambda: _missing(others, number))
    answers = [pickle.loads(store.get(key)) for key in keys]
    for other, (theirs, there, _, _) in zip(others, answers, strict=True):
        if theirs != what:
            raise RuntimeError(
                f"the ranks must iterate their sharded loaders together, but rank {rank} begins with {what} at {site}, "
                f"rank {other} with {theirs} at {there}"
            )
    if rank == 0:  # who has come here has read what was told before
        for key in [*(f"shard/{number - 1}/{other}" for other in others), *_left]:
            store.delete_key(key)
        _left.clear()
    return Meeting(number, answers[0][2], max(depth for _, _, _, depth in answers))


def _missing(others: Sequence[int], number: int) -> str | None:
    return rendezvous.needed(rendezvous.ended_before(others, "shard", number), "to iterate a sharded loader")


# Drawing


def draw(sampler: Any, source: Iterator[Any], what: str, depth: int, seed: int | None) -> Iterator[Any]:
    """What rank 0's ``source`` yields, on every rank.

    Args:
        sampler: what ``source`` is the iterator of.
        source: this rank's own.
        what: which loader, for ``meet``.
        depth: how many batches this rank draws ahead, that in use included.
        seed: where the draws begin that follow neither the generators' states nor a seed of the sampler's; None for
            where rank 0's generators are.
    """
    if _draws_at_once(sampler):
        return _draw_at_once(sampler, source, what, depth, seed)
    return _draw_on_rank_0(source, what, depth, seed)


def _draws_at_once(sampler: Any) -> bool:
    """Whether what is random in ``sampler`` follows from the states of torch's global generator and its own."""
    if type(sampler) is torchs.BatchSampler:
        return _draws_at_once(sampler.sampler)
    return type(sampler) in (*_AT_ONCE, *_FIXED)


def _draw_at_once(
    sampler: Any, source: Iterator[Any], what: str, depth: int, seed: int | None
) -> Iterator[Any]:
    own = _own_generator(sampler)
    if seed is None:
        states = [g and streams.of_torch(g) for g in (torch.default_generator, own)]
    else:
        states = [streams.seeded_torch(seed)] * 2
    common, of_own = meet(what, states, depth).told
    if own is not None and of_own is not None:
        streams.set_torch(own, of_own)
    with streams.Stream({"torch": common}).entered():
        first = next(source, _END)
    if first is not _END:
        yield first
        yield from source


def _own_generator(sampler: Any) -> torch.Generator | None:
    if type(sampler) is torchs.BatchSampler:
        return _own_generator(sampler.sampler)
    return getattr(sampler, "generator", None)


@dataclass(frozen=True)
class _Block:
    """Batches in a row, and what follows them: more, the end, an error, or nothing since rank 0 stopped there."""

    batches: list[Any]
    follows: str = "more"
    error: str = ""


def _draw_on_rank_0(source: Iterator[Any], what: str, depth: int, seed: int | None) -> Iterator[Any]:
    meeting = meet(what, None, depth)
    inside = nullcontext if seed is None else streams.Stream(streams.seeded(seed)).entered
    if ranks.get_rank() == 0:
        yield from _tell(source, meeting.number, max(1, meeting.depth - 1), meeting.depth - depth, inside)
    else:
        yield from _hear(source, meeting.number, inside)


def _tell(source: Iterator[Any], number: int, size: int, ahead: int, inside: Any) -> Iterator[Any]:
    """Draw on rank 0 and tell the others, in blocks of ``size`` batches, ``ahead`` of what this rank needs itself.

    A rank that draws further ahead than rank 0 would wait in vain: it may have to train with rank 0 before that one
    needs so much.
    """
    process, drawn, told, block, error = os.getpid(), deque(), 0, _Block([]), None
    try:
        while True:
            while len(drawn) <= ahead and block.follows == "more":
                with inside():
                    block, error = _draw_block(source, size)
                _tell_block(number, told, block)
                told += 1
                drawn.extend(block.batches)
            if not drawn:
                break
            yield drawn.popleft()
        if error is not None:
            raise error
    finally:
        if block.follows == "more" and os.getpid() == process:  # a worker inherits this generator
            with suppress(RuntimeError, ValueError):  # the store is gone at the end of the program
                _tell_block(number, told, _Block([], "nothing"))
                unread = [_block_key(number, count) for count in range(max(0, told - 3), told + 1)]
                _left.extend([*unread, *map(_readers_key, unread)])


def _draw_block(source: Iterator[Any], size: int) -> tuple[_Block, Exception | None]:
    batches = []
    try:
        for _ in range(size):
            batch = next(source, _END)
            if batch is _END:
                return _Block(batches, "the end"), None
            batches.append(batch)
    except Exception as error:  # every rank shall get it
        return _Block(batches, "an error", f"{type(error).__name__}: {error}"), error
    return _Block(batches), None


def _hear(source: Iterator[Any], number: int, inside: Any) -> Iterator[Any]:
    """Draw what rank 0 told."""
    store, readers = rendezvous.store(), ranks.get_world_size() - 1
    for count in itertools.count():
        key = _block_key(number, count)
        rendezvous.wait(lambda: store.check([key]), _ended_main, _PAUSE)  # noqa: B023 (called at once)
        block = pickle.loads(store.get(key))
        if store.add(_readers_key(key), 1) == readers:
            store.delete_key(key)
            store.delete_key(_readers_key(key))
        with inside():
            for _ in range(len(block.batches) + (block.follows == "the end")):
                next(source, None)
        yield from block.batches
        if block.follows == "an error":
            raise RuntimeError(f"rank 0 raised {block.error} in its sampler")
        if block.follows != "more":
            return


def _ended_main() -> str | None:
    main = None if rendezvous.ended(0) is None else 0
    return rendezvous.needed(main, "for the order of a sharded loader")


def _tell_block(number: int, count: int, block: _Block) -> None:
    if not ranks.is_alone("a sharded loader"):
        rendezvous.store().set(_block_key(number, count), pickle.dumps(block))


def _block_key(number: int, count: int) -> str:
    return f"shard/{number}/block/{count}"


def _readers_key(key: str) -> str:
    return f"{key}/readers"
