"""What sharded loaders lend torch's iterators: this rank's indices, or a collate function that takes its samples."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sized
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from . import cutting, order, sameness, streams
from .fetching import lending, with_own_numbers


def chunk(total: int, rank: int, world: int) -> slice:
    """Which of ``total`` samples are the rank's, as torch.chunk cuts them."""
    size = -(-total // world)
    begin = min(rank * size, total)
    return slice(begin, min(begin + size, total))


def spread(total: int, rank: int, world: int) -> slice:
    """As ``chunk``; but where that leaves a rank without samples, in parts that differ by one sample at most."""
    if chunk(total, world - 1, world).start < total:
        return chunk(total, rank, world)
    size, more = divmod(total, world)
    begin = rank * size + min(rank, more)
    return slice(begin, begin + size + (rank < more))


@dataclass(frozen=True)
class Cut:
    """How this rank's part is cut from a global batch.

    Args:
        rank, world: of this process.
        training: whether gradients are taken of it.
        stands_in: whether a rank without a sample of its own gets rank 0's part.
        spreads: whether no rank is to be without samples, as ``spread`` cuts; else as torch.chunk.
    """

    rank: int
    world: int
    training: bool
    stands_in: bool
    spreads: bool = False

    @property
    def evaluates(self) -> bool:
        """Whether ranks have parts of their own that are evaluated, as many on each."""
        return self.stands_in and not self.training

    def takes(self, number: int) -> bool:
        """Whether the rank gets anything of the batch with this number."""
        return True

    def part(self, total: int, rank: int) -> slice:
        """Which of ``total`` samples are a rank's."""
        return (spread if self.spreads else chunk)(total, rank, self.world)

    def __call__(self, batch: Any) -> Any:
        """This rank's part of a sequence; None if it gets nothing."""
        own = batch[self.part(len(batch), self.rank)]
        if len(own) or not len(batch):
            return own
        return batch[self.part(len(batch), 0)] if self.stands_in else None


@dataclass(frozen=True)
class Turn:
    """Whole batches in turn: every W-th is this rank's.

    Args:
        rank, world: of this process.
    """

    rank: int
    world: int
    training: bool = False
    evaluates: bool = True

    def takes(self, number: int) -> bool:
        """As ``Cut.takes``."""
        return number % self.world == self.rank

    def __call__(self, batch: Any) -> Any:
        """As ``Cut``: all of it."""
        return batch


@dataclass
class Plan:
    """How a loader's batches are dealt.

    Args:
        name: which loader, in words that are the same on every rank.
        cut: this rank's part.
        whole: whether every rank loads whole batches, and gets its part of what was made of them.
        epoch: the number of the next epoch, once it was told.
        stream: of the random numbers that every rank reads an IterableDataset, or whole batches, with.
    """

    name: str
    cut: Cut | Turn
    whole: bool = False
    epoch: int | None = None
    stream: streams.Stream | None = None

    def next_seed(self) -> int | None:
        """The seed of the epoch that begins, if its number was told; the following ones count on from there."""
        if self.epoch is None:
            return None
        self.epoch += 1
        return (torch.initial_seed() + self.epoch - 1) % 2**63


class Indices:
    """This rank's indices of each batch: what the iterator over a data set of indexed samples draws.

    Args:
        plan: how to deal.
        loader: whose iterator is being made.
        sampler: the loader's own, of batches of indices.
    """

    def __init__(self, plan: Plan, loader: Any, sampler: Any) -> None:
        self._plan, self._sampler = plan, sampler
        self._depth = 1 + (loader.prefetch_factor or 0) * loader.num_workers
        self._generator = loader.generator
        self._seeds = torch.Generator() if plan.cut.rank else None
        self._dealt: deque[tuple[int, bool]] = (
            deque()
        )  # sizes of global batches, and whether this rank gets any

    def make(self, loader: Any, make: Callable[[], Any]) -> Any:
        """Have ``make`` make the loader's iterator on these indices."""
        lent = {"_lent_indices": self}
        if self._seeds is not None:
            lent["generator"] = self._seeds
        with lending(loader, lent):
            iterator = with_own_numbers(loader, make)
        self._seeds = None
        return iterator

    def reset(self, loader: Any, reset: Callable[[], Any]) -> None:
        """Have ``reset`` begin the next epoch of an iterator whose workers live on."""
        reset()

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        self._dealt.clear()
        source = iter(self._sampler)
        if self._seeds is not None:
            self._seed_workers()
        return self._deal(source)

    def _seed_workers(self) -> None:
        """Draw the seed of the iterator's workers where the iterator would, and make it another on each rank."""
        base = torch.empty((), dtype=torch.int64).random_(generator=self._generator).item()
        self._seeds.manual_seed((base + self._plan.cut.rank) % 2**63)
        self._seeds = None

    def _deal(self, source: Iterator[Any]) -> Iterator[Any]:
        plan = self._plan
        drawn = order.draw(self._sampler, source, plan.name, self._depth, plan.next_seed())
        for number, batch in enumerate(drawn):
            batch = self._sequence(batch)
            own = plan.cut(batch) if plan.cut.takes(number) else None
            self._dealt.append((len(batch), own is not None))
            if own is not None:
                yield own

    def _sequence(self, batch: Any) -> Any:
        if isinstance(batch, list | tuple | range):
            return batch
        if hasattr(batch, "shape") and len(batch.shape):
            return batch
        if isinstance(batch, Sized) and not hasattr(batch, "shape"):
            return list(batch)
        raise TypeError(
            f"shard() can't divide {self._plan.name}: its {type(self._sampler).__name__} draws {type(batch).__name__} "
            "where lists of indices are needed; give the DataLoader a batch_size"
        )

    def take(self, iterator: Any) -> tuple[list[int], Any]:
        """The next batch, and the sizes of the global batches since the last one, its own at the end.

        Raises:
            StopIteration: there is none.
        """
        batch = next(iterator)
        totals, given = [], False
        while not given:
            total, given = self._dealt.popleft()
            totals.append(total)
        return totals, batch

    def rest(self) -> list[int]:
        """The sizes of the global batches since the last one, at the end."""
        totals = [total for total, _ in self._dealt]
        self._dealt.clear()
        return totals


class Samples:
    """This rank's samples of each batch of a stream that every rank reads: for an IterableDataset.

    Args:
        plan: how to deal.
        loader: whose iterator is being made.
    """

    def __init__(self, plan: Plan, loader: Any) -> None:
        self._plan = plan
        self._reads_here = loader.num_workers == 0
        self._since: list[int] = []
        self._read = 0  # batches of this epoch

    def make(self, loader: Any, make: Callable[[], Any]) -> Any:
        """As ``Indices.make``."""
        with self._together(loader.generator), lending(loader, {"collate_fn": self._collate(loader)}):
            return make()

    def _collate(self, loader: Any) -> Callable[[Any], Any]:
        return _Collate(loader.collate_fn, self._plan.cut)

    def reset(self, loader: Any, reset: Callable[[], Any]) -> None:
        """As ``Indices.reset``."""
        with self._together(loader.generator):
            reset()

    def _together(self, generator: torch.Generator | None) -> AbstractContextManager[None]:
        """Begin an epoch with rank 0's random numbers, which seed the workers or are read with here."""
        plan, seed = self._plan, self._plan.next_seed()
        if seed is not None:
            common, own = streams.seeded(seed), streams.seeded_torch(seed)
        else:
            common = streams.states() if plan.stream is None else plan.stream.following()
            own = generator and streams.of_torch(generator)
        common, own = order.meet(plan.name, (common, own)).told
        if generator is not None and own is not None:
            streams.set_torch(generator, own)
        plan.stream = streams.Stream(common)
        self._since.clear()
        self._read = 0
        return plan.stream.entered()

    def take(self, iterator: Any) -> tuple[list[int], Any]:
        """As ``Indices.take``."""
        given = False
        while not given:
            with self._plan.stream.entered() if self._reads_here else nullcontext():
                total, given, batch = next(iterator)
            given = given and self._plan.cut.takes(self._read)
            self._read += 1
            self._since.append(total)
        totals, self._since = self._since, []
        return totals, batch

    def rest(self) -> list[int]:
        """As ``Indices.rest``."""
        totals, self._since = self._since, []
        return totals


@dataclass(frozen=True)
class _Collate:
    """Collates this rank's part of a batch: the size of the global batch, whether the rank gets any, its batch."""

    collate: Callable[[Any], Any]
    cut: Cut | Turn

    def __call__(self, samples: list[Any]) -> tuple[int, bool, Any]:
        own = self.cut(samples)
        return len(samples), own is not None, None if own is None else self.collate(own)


class Whole(Samples):
    """Whole batches, which every rank loads alike: it gets its part of what ``collate_fn`` has made of all samples."""

    def __init__(self, plan: Plan, loader: Any) -> None:
        super().__init__(plan, loader)
        self._compared = sameness.Compared()

    def _collate(self, loader: Any) -> Callable[[Any], Any]:
        return _Counted(loader.collate_fn)

    def take(self, iterator: Any) -> tuple[list[int], Any]:
        """As ``Indices.take``."""
        plan = self._plan
        with plan.stream.entered() if self._reads_here else nullcontext():
            count, batch = next(iterator)
        if all(it is None for it in cutting.leaves(batch)):  # nothing is left of the samples
            return [0], batch
        what, where = "shard(whole=True)", f"in {plan.name}"
        total = cutting.total(batch, what, where, likely=count)
        self._compared.compare(batch, what, where)
        own = plan.cut.part(total, plan.cut.rank)
        own = own if own.stop > own.start else plan.cut.part(total, 0)
        return [total], cutting.part(batch, total, own)


@dataclass(frozen=True)
class _Counted:
    """Collates a batch, and says of how many samples."""

    collate: Callable[[Any], Any]

    def __call__(self, samples: list[Any]) -> tuple[int, Any]:
        return len(samples), self.collate(samples)
