"""Batches that the ranks can't have equal parts of, in a DataLoader with torch's DistributedSampler.

That sampler deals all ranks as many samples, so ranks with batches of different sizes would make different numbers of
steps. A DataLoader that is given such a size deals its batches as one that ``shard`` made, in the sampler's order.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Iterator
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, Sampler

from . import dealing, ranks, shard


def sizes(whole: int, weighed: bool) -> list[int]:
    """How many samples of a batch each rank gets.

    Where parts weigh by these, all ranks have some. Else parts are cut as nn.DataParallel cuts them.
    """
    cut = dealing.spread if weighed else dealing.chunk
    world = ranks.get_world_size()
    slices = [cut(whole, rank, world) for rank in range(world)]
    return [part.stop - part.start for part in slices]


class Size(int):
    """This rank's part of a batch, which a DataLoader knows as ``whole``."""

    whole: int
    weighed: bool

    def __new__(cls, whole: int, weighed: bool) -> Size:
        _teach()
        size = super().__new__(cls, sizes(whole, weighed)[ranks.get_rank()])
        size.whole, size.weighed = whole, weighed
        return size


class _Order(Sampler):
    """The samples of all ranks in the order in which a DistributedSampler deals them.

    Each once; but as with that sampler some begin anew at the end where a last batch has fewer samples than ``least``.
    """

    def __init__(self, sampler: DistributedSampler, size: int, least: int) -> None:
        self.dealt = sampler
        rest = len(sampler.dataset) % size
        self._more = least - rest if 0 < rest < least else 0

    def __iter__(self) -> Iterator[Any]:
        alone = copy.copy(self.dealt)
        alone.num_replicas, alone.rank, alone.drop_last = 1, 0, False
        alone.num_samples = alone.total_size = len(self.dealt.dataset)
        order = [*alone]
        return itertools.islice(itertools.cycle(order), len(self) if order else 0)

    def __len__(self) -> int:
        return len(self.dealt.dataset) + self._more

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next, counted from 0."""
        self.dealt.set_epoch(epoch)


@functools.cache
def _teach() -> None:
    """Let DataLoaders take such sizes."""
    original = DataLoader.__init__

    @functools.wraps(original)
    def init(self: Any, dataset: Any, batch_size: int | None = 1, *args: Any, **kwargs: Any) -> None:
        if not isinstance(batch_size, Size):
            original(self, dataset, batch_size, *args, **kwargs)
            return
        original(self, dataset, batch_size.whole, *args, **kwargs)
        if isinstance(self.sampler, DistributedSampler):
            least = ranks.get_world_size() if batch_size.weighed and not self.drop_last else 0
            order = _Order(self.sampler, batch_size.whole, least)
            batches = BatchSampler(order, batch_size.whole, self.drop_last)
            self.__dict__.update(sampler=order, batch_sampler=batches)  # __setattr__ refuses these
        shard.deal(self, batch_size.weighed, spreads=batch_size.weighed)

    DataLoader.__init__ = init  # type: ignore[method-assign]
