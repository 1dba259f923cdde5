"""Fetching the samples of a loader that is divided among the ranks: with random numbers of each rank's own.

torch draws the seed of a loader's workers from a generator that is in the same state on all ranks, and without workers
the data set itself draws from such: every rank would give its samples the same crops and flips. Here

- workers are seeded by rank, and after the program's own ``worker_init_fn``, which may seed them alike again, their
  generators are sent apart by rank;
- ``get_worker_info()`` counts the workers of all ranks, as a data set may seed by that when it is asked first;
- without workers, what an epoch draws comes from a stream of this rank's own.

The same holds of generators that the data set holds (``self.rng``), its transforms', say.

Rank 0's workers draw what they drew. Loaders that are not divided are left alone: all ranks draw the same of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from . import held, local_streams, ranks, streams

_CPU = torch.device("cpu")


def begin() -> None:
    """Have torch's loaders with a DistributedSampler fetch with random numbers of each rank's own."""
    torchs = DataLoader._get_iterator
    if hasattr(torchs, "dp2ddp"):
        return

    @functools.wraps(torchs)
    def get_iterator(loader: Any) -> Any:
        if not is_divided(loader):
            return torchs(loader)
        if ranks.get_rank() == 0:
            return with_own_numbers(loader, lambda: torchs(loader))
        base = torch.empty((), dtype=torch.int64).random_(generator=loader.generator).item()
        seeds = torch.Generator().manual_seed(local_streams.seed_of("workers", base))
        with lending(loader, {"generator": seeds}):
            return with_own_numbers(loader, lambda: torchs(loader))

    get_iterator.dp2ddp = True  # type: ignore[attr-defined]
    DataLoader._get_iterator = get_iterator  # type: ignore[method-assign]


def is_divided(loader: Any) -> bool:
    """Whether a loader deals each rank its part by its sampler."""
    batches = loader.batch_sampler
    samplers = (loader.sampler, batches, getattr(batches, "sampler", None))
    return any(getattr(it, "num_replicas", 1) > 1 for it in samplers)


def with_own_numbers(loader: Any, make: Callable[[], Any]) -> Any:
    """The iterator that ``make`` makes of a loader, fetching samples with random numbers of this rank's own.

    Args:
        loader: one that is divided, with a seed of its workers that is this rank's own.
    """
    begin = _SentApart(loader.worker_init_fn, loader.collate_fn, ranks.get_rank(), ranks.get_world_size())
    with lending(loader, {"worker_init_fn": begin}):
        iterator = make()
    if loader.num_workers == 0:
        own = held.generators(loader.dataset, loader.collate_fn)
        iterator._dataset_fetcher = _Fetching(iterator._dataset_fetcher, iterator._base_seed, own)
    return iterator


@contextmanager
def lending(loader: Any, attributes: dict[str, Any]) -> Iterator[None]:
    """Have ``loader`` show these attributes for a while."""
    own = {name: loader.__dict__[name] for name in attributes if name in loader.__dict__}
    loader.__dict__.update(attributes)  # past DataLoader.__setattr__
    try:
        yield
    finally:
        for name in attributes:
            del loader.__dict__[name]
        loader.__dict__.update(own)


class _Fetching:
    """One of torch's fetchers, in this process.

    Args:
        fetcher: torch's.
        seed: of the epoch.
        generators: that the data set holds: they draw for samples, too.
    """

    def __init__(self, fetcher: Any, seed: int, generators: Sequence[held.Held]) -> None:
        self._fetcher = fetcher
        self._stream = local_streams.LocalStream("samples", seed=seed)
        self._generators = generators
        self._states: list[Any] = []
        with self._kept():
            for generator in generators:
                generator.send_apart(local_streams.seed_of(seed))

    def fetch(self, index: Any) -> Any:
        """As torch's."""
        with self._stream.drawn(_CPU), self._kept():
            return self._fetcher.fetch(index)

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Leave the data set's generators as they are, but for what is done within such blocks."""
        before = [it.get() for it in self._generators]
        for generator, state in zip(self._generators, self._states, strict=False):
            generator.set(state)
        try:
            yield
        finally:
            self._states = [it.get() for it in self._generators]
            for generator, state in zip(self._generators, before, strict=True):
                generator.set(state)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_fetcher"], name)


@dataclass(frozen=True)
class _SentApart:
    """What a worker of one rank's loader begins with; it can be pickled.

    Args:
        begin: the program's own ``worker_init_fn``.
        collate: the loader's; torch hands it to the worker by itself.
        rank: whose worker it is.
        world: how many ranks have as many workers.
    """

    begin: Callable[[int], Any] | None
    collate: Any
    rank: int
    world: int

    def __call__(self, worker: int) -> None:
        info = get_worker_info()
        if not isinstance(info.dataset, IterableDataset):  # which may divide its part among them
            object.__setattr__(info, "id", self.rank * info.num_workers + info.id)
            object.__setattr__(info, "num_workers", self.world * info.num_workers)
        if self.begin is not None:
            self.begin(worker)
        if self.rank:
            streams.set_states(streams.sent_apart(self.rank))
            for generator in held.generators(info.dataset, self.collate):
                generator.send_apart(self.rank)
