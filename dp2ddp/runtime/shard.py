"""Sharding a DataLoader: each rank is dealt its chunk of every global batch that the loader would have drawn.

For an evaluation whole batches can be dealt instead, in turn: then each is computed as in one process.

A sharded loader is a copy of the loader, of a class derived from the loader's own, that lends torch's iterators other
indices: those of this rank's chunk (``order`` says in whose order, ``dealing`` deals). The stream of an IterableDataset
has none: every rank reads all of it, with the same random numbers, and collates its chunk of the samples.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, IterDataPipe, MapDataPipe
from torch.utils.data import sampler as torchs
from torch.utils.data.dataloader import _BaseDataLoaderIter

from . import aside, dealing, evaluation, parts, persample, ranks, unwrapped
from .share import sharing

_BATCHES = "_dp2ddp_batches"  # where a loader keeps what shard_batches() made of it
_DIVIDED = "_dp2ddp_divided"  # and divide_batches()
_numbers = itertools.count(1)


def shard(
    loader: DataLoader,
    training: bool = True,
    weighed: bool = True,
    if_wrapped: bool = False,
    whole: bool = False,
) -> DataLoader:
    """Give each rank its part of every global batch that ``loader`` would have drawn.

    A batch of N samples is cut as nn.DataParallel cuts it, ``torch.chunk(batch, W)``: ranks get ceil(N / W) samples in
    a row, the last ones fewer or none. The order is rank 0's on every rank, whatever sampler the loader has; with one
    seed it is that of ``loader`` itself in a single process, as long as nothing else draws other amounts from the
    generators that the sampler draws from. It is a new one in each epoch, without being told. Where the parts differ
    in size, ``DistributedDataParallel`` weighs them.

    Args:
        loader: any DataLoader, also of a derived class. ``batch_size``, ``len()``, ``dataset`` and the samplers keep
            their meaning: they speak of global batches. ``in_order=False`` has no effect. Samples are fetched with
            random numbers of each rank's own, here and in workers; those of an IterableDataset with the same, and it
            must have as many workers on every rank.
        training: what a rank gets of a batch with fewer samples than ranks, if none of them is its own. True: rank
            0's chunk, which then weighs 0, since every rank must take part in the step. False, for evaluation: no
            batch.
        weighed: whether parts weigh by their numbers of samples, for a mean over the samples. False for a model that
            returns its own loss, ``model(inputs, targets).mean()``: nn.DataParallel averages its replicas' losses as
            they are, so all parts with samples count the same.
        if_wrapped: for a model that is wrapped under a condition only. If none is wrapped when a loop over ``loader``
            begins, rank 0 goes on alone, with whole batches, and the other ranks end: the program as it was.
        whole: for a ``collate_fn`` that looks at several samples: that pads to the longest, sorts, mixes. It gets whole
            batches, which are loaded as by ``share``, and each rank its part of what it returns, as from
            ``local_batch``.

    Returns:
        A DataLoader, an instance of ``loader``'s class, with a method ``set_epoch(epoch)``: a sampler or data set that
        has such a method is told; if it is none of the samplers, this and the following epochs are drawn from
        ``torch.initial_seed() + epoch`` of rank 0, so that a run that is resumed repeats them. All ranks must iterate
        it equally often. In a plain process or a group of one, ``loader`` itself.

    Raises:
        TypeError: not a DataLoader.
        ValueError: a loader without batches of samples (``batch_size=None``, unless its sampler draws lists of
            indices), with a DistributedSampler, or over a data pipe; the message names it.
    """
    if ranks.is_alone("shard()"):
        if isinstance(loader, DataLoader) and not hasattr(loader, "set_epoch"):
            loader.set_epoch = functools.partial(_set_epoch_alone, loader)
        return loader
    loader = _divisible(loader, "shard()")
    if training:
        unwrapped.divided(if_wrapped)
    cut = dealing.Cut(ranks.get_rank(), ranks.get_world_size(), training, stands_in=training)
    return _copied(loader, cut, weighed, if_wrapped, whole)


def shard_batches(loader: DataLoader) -> DataLoader:
    """Give each rank some of the batches, for an evaluation: rank r of W gets the batches r, r + W, r + 2 W and so on.

    Each batch of ``loader`` is computed once, on one rank, just as in a single process; what the loop adds up is
    then combined with ``sum`` or ``gather(…, samples_of=loader)``. Where all ranks begin to iterate, models wrapped in
    ``DistributedDataParallel`` get rank 0's buffers. Until a rank's last batch their forwards are its own, so that
    ranks may have different numbers of batches, or none; there must be no backward pass among them.

    Args:
        loader: any DataLoader, drawn from as by ``shard``.

    Returns:
        A DataLoader as from ``shard``; its ``len()`` is the number of this rank's batches. The same one at each call.
        In a plain process or a group of one, ``loader`` itself.

    Raises:
        TypeError, ValueError: as in ``shard``.
    """
    turn = dealing.Turn(ranks.get_rank(), ranks.get_world_size())
    return _evaluated(loader, "shard_batches()", _BATCHES, turn)


def divide_batches(loader: DataLoader, whole: bool = False) -> DataLoader:
    """Give each rank its part of every batch, for an evaluation that joins the outputs again by ``whole_batch``.

    ``whole_batch`` makes the outputs of the model whole again, and what else the loop looks at. All that follows is
    then as in one process, on every rank::

        for i, (images, labels) in enumerate(ddp.divide_batches(loader)):
            outputs, labels = ddp.whole_batch((model(images), labels))
            ...

    As with ``shard_batches``, models get rank 0's buffers where the loop begins, and compute on their own in it. All
    ranks have as many batches, and must leave the loop together.

    Args:
        loader: any DataLoader, drawn from and cut as by ``shard``. A rank without a sample of its own gets rank 0's
            part, of which ``whole_batch`` takes nothing.
        whole: as in ``shard``, for a ``collate_fn`` that looks at several samples.

    Returns:
        A DataLoader as from ``shard``. The same one at each call. In a plain process or a group of one, ``loader``
        itself.

    Raises:
        TypeError, ValueError: as in ``shard``.
    """
    cut = dealing.Cut(ranks.get_rank(), ranks.get_world_size(), training=False, stands_in=True)
    return _evaluated(loader, "divide_batches()", _DIVIDED, cut, whole)


def _evaluated(
    loader: DataLoader, what: str, name: str, cut: dealing.Cut | dealing.Turn, whole: bool = False
) -> DataLoader:
    """What deals a loader's batches for evaluation, kept under a name by the loader."""
    if ranks.is_alone(what):
        return loader
    loader = _divisible(loader, what)
    if name not in loader.__dict__:
        loader.__dict__[name] = _copied(loader, cut, whole=whole)
    return loader.__dict__[name]


def _copied(
    loader: DataLoader,
    cut: dealing.Cut | dealing.Turn,
    weighed: bool = True,
    if_wrapped: bool = False,
    whole: bool = False,
) -> DataLoader:
    """A sharded copy of a loader; ``whole``: one whose batches are loaded once per machine."""
    kind, more = sharing(loader) if whole else (type(loader), {})
    copy = _become_sharded(object.__new__(_class(kind)), loader, cut, weighed, if_wrapped, whole)
    copy.__dict__.update(more)
    return copy


def positions(loader: DataLoader) -> list[list[int | None]]:
    """Where the samples that each rank drew in the last epoch stand in the global order.

    Args:
        loader: one that ``shard`` made, or a DataLoader with torch's DistributedSampler.

    Returns:
        For each rank the positions in the order in which it drew them; None for a sample that another one repeats.

    Raises:
        ValueError: neither of these.
    """
    loader = getattr(loader, _BATCHES, loader)
    if _is_sharded(loader):
        return _dealt_positions(loader._shard.totals, loader._shard.plan.cut)
    sampler = next((s for s in _samplers(loader) if isinstance(s, DistributedSampler)), None)
    if sampler is None:
        raise ValueError(
            f"{_name(loader)} is not sharded: pass a loader from shard() or shard_batches(), or one with a "
            "DistributedSampler"
        )
    drawn, batches = sampler.num_samples, loader.batch_sampler
    if getattr(batches, "drop_last", False):
        drawn -= drawn % batches.batch_size
    # rank r's j-th sample, DistributedSampler: indices[rank : total_size : num_replicas]
    length, replicas = len(sampler.dataset), sampler.num_replicas
    own = [range(rank, drawn * replicas, replicas) for rank in range(replicas)]
    return [[position if position < length else None for position in places] for places in own]


def batches(loader: DataLoader) -> list[list[int]]:
    """The numbers of the batches that each rank drew in the last epoch, if ``shard_batches`` dealt them; else none."""
    loader = getattr(loader, _BATCHES, loader)
    world = ranks.get_world_size()
    dealt = len(loader._shard.totals) if _is_sharded(loader) and _in_turn(loader._shard.plan.cut) else 0
    return [[*range(rank, dealt, world)] for rank in range(world)]


def _in_turn(cut: dealing.Cut | dealing.Turn) -> bool:
    return isinstance(cut, dealing.Turn)


def _dealt_positions(totals: list[int], cut: dealing.Cut | dealing.Turn) -> list[list[int | None]]:
    world = cut.world
    places: list[list[int | None]] = [[] for _ in range(world)]
    for number, (total, stop) in enumerate(zip(totals, itertools.accumulate(totals), strict=True)):
        begin = stop - total
        if _in_turn(cut):
            places[number % world].extend(range(begin, stop))
            continue
        for rank in range(world):
            part = cut.part(total, rank)  # type: ignore[union-attr]
            own = range(begin + part.start, begin + part.stop)
            stands_in = not own and cut.stands_in
            places[rank].extend([None] * cut.part(total, 0).stop if stands_in else own)
    return places


# What can't be sharded


def _divisible(loader: DataLoader, what: str) -> DataLoader:
    """The loader itself, of which ``loader`` may be a copy that deals already; an error if it can't be divided."""
    if not isinstance(loader, DataLoader):
        raise TypeError(
            f"{what} takes a torch DataLoader, not {type(loader).__name__}: let it deal each rank its samples itself, "
            "by ddp.get_rank() and ddp.get_world_size()"
        )
    original = loader._shard.original if _is_sharded(loader) else loader
    problem = _problem(original)
    if problem:
        raise ValueError(f"{what} can't divide {_name(original)}: {problem}")
    return original


def _problem(loader: DataLoader) -> str | None:
    """Why ``loader`` can't be divided, and what to do instead."""
    for sampler in _samplers(loader):
        if hasattr(sampler, "num_replicas"):
            return (
                f"its {type(sampler).__name__} divides the samples among the ranks already; leave out shard(), or give "
                "it the loader with the sampler it would have in one process"
            )
    dataset = type(loader.dataset).__name__
    if isinstance(loader.dataset, IterDataPipe | MapDataPipe):
        return "torch divides data pipes itself; use sharding_filter() in the pipe, without shard()"
    if loader.batch_sampler is None and (
        isinstance(loader.dataset, IterableDataset)
        or type(loader.sampler) in (torchs.SequentialSampler, torchs.RandomSampler)
    ):
        return (
            f"with batch_size=None the {dataset} makes the batches; let it yield samples and give the DataLoader "
            "their number, or let it deal each rank its part by ddp.get_rank() and ddp.get_world_size()"
        )
    return None


def _samplers(loader: Any) -> list[Any]:
    batches = getattr(loader, "batch_sampler", None)
    return [getattr(loader, "sampler", None), batches, getattr(batches, "sampler", None)]


def _name(loader: Any) -> str:
    dataset = getattr(loader, "dataset", None)
    return f"a {type(loader).__name__}" + ("" if dataset is None else f" over {type(dataset).__name__}")


# The loader


@dataclass
class _State:
    """What a sharded loader knows beside what a DataLoader does."""

    original: DataLoader
    plan: dealing.Plan
    iterates_itself: bool  # its class does not leave iterating to DataLoader
    weighed: bool = True
    if_wrapped: bool = False
    handed: deque[_Handed] = field(default_factory=deque)  # by its last iterator of torch's
    totals: list[int] = field(default_factory=list)  # sizes of the global batches in the last epoch


@functools.cache
def _class(base: type[DataLoader]) -> type[DataLoader]:
    """The class of the sharded copies of ``base``'s loaders."""

    class Sharded(base):
        __doc__ = base.__doc__
        _shard: _State

        def __iter__(self) -> Iterator[Any]:
            if self._shard.if_wrapped and not unwrapped.is_any_wrapped():
                aside.go_on_alone("no model is wrapped in ddp.DistributedDataParallel")
            if ranks.stands_aside():
                self._shard.plan.cut = replace(self._shard.plan.cut, rank=0, world=1)
            return _Epoch(self, super().__iter__())

        @property
        def _index_sampler(self) -> Any:
            lent = self.__dict__.get("_lent_indices")
            return super()._index_sampler if lent is None else lent

        def _get_iterator(self) -> Any:
            plan = self._shard.plan
            if plan.whole and plan.cut.world > 1:
                dealer = dealing.Whole(plan, self)
            elif isinstance(self.dataset, IterableDataset):
                dealer = dealing.Samples(plan, self)
            else:
                dealer = dealing.Indices(plan, self, super()._index_sampler)
            return _Handing(self._shard, dealer, dealer.make(self, super()._get_iterator))

        def __len__(self) -> int:
            cut = self._shard.plan.cut
            batches = super().__len__()
            return len(range(cut.rank, batches, cut.world)) if _in_turn(cut) else batches

        def set_epoch(self, epoch: int) -> None:
            """Say which epoch comes next, counted from 0."""
            self._shard.plan.epoch = None if _tell_epoch(self, super(), epoch) else epoch

    Sharded.__name__ = Sharded.__qualname__ = f"Sharded{base.__name__}"
    return Sharded


def _is_sharded(loader: Any) -> bool:
    return isinstance(getattr(loader, "_shard", None), _State)


def _tell_epoch(loader: Any, own_class: Any, epoch: int) -> bool:
    """Tell the number of the epoch to whoever has a ``set_epoch``; whether that may decide the order."""
    samplers = [loader.sampler, loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None)]
    takers = {
        id(taker): taker for taker in (loader.dataset, own_class, *samplers) if hasattr(taker, "set_epoch")
    }
    for taker in takers.values():
        taker.set_epoch(epoch)
    return bool(takers.keys() - {id(loader.dataset)})


def _set_epoch_alone(loader: Any, epoch: int) -> None:
    """``set_epoch`` in a group of one: epochs whose numbers are told are those of any number of processes."""
    if _problem(loader):
        _tell_epoch(loader, None, epoch)
        return
    del loader.set_epoch
    deal(loader)
    loader.set_epoch(epoch)


def deal(loader: Any, weighed: bool = True, spreads: bool = False) -> None:
    """Make of a loader itself what ``shard`` makes a copy of; ``spreads``: as ``dealing.Cut`` has it."""
    _divisible(loader, "shard()")
    loader.__class__ = _class(type(loader))
    cut = dealing.Cut(
        ranks.get_rank(), ranks.get_world_size(), training=True, stands_in=True, spreads=spreads
    )
    _become_sharded(loader, loader, cut, weighed)


def _become_sharded(
    loader: Any,
    original: DataLoader,
    cut: dealing.Cut | dealing.Turn,
    weighed: bool = True,
    if_wrapped: bool = False,
    whole: bool = False,
) -> DataLoader:
    """Make ``loader`` the sharded copy of ``original``."""
    name = f"{_name(original)} (number {next(_numbers)} of those sharded)"
    if isinstance(original.dataset, IterableDataset):  # the workers are part of what is drawn
        name += f" with {original.num_workers} workers"
    plan = dealing.Plan(name, cut, whole)
    kind = type(original)
    iterates_itself = (kind.__iter__, kind._get_iterator) != (DataLoader.__iter__, DataLoader._get_iterator)
    state = _State(original, plan, iterates_itself, weighed, if_wrapped)
    # past DataLoader.__setattr__, which refuses some of these
    loader.__dict__.update(original.__dict__, _shard=state, _iterator=None, in_order=True)
    for attribute, value in vars(original).items():
        if isinstance(value, _BaseDataLoaderIter) and attribute != "_iterator":  # its workers live on
            loader.__dict__[attribute] = DataLoader.__iter__(loader)
    return loader


# Its iterators


@dataclass(frozen=True)
class _Handed:
    """A batch on its way to the loop.

    Args:
        totals: sizes of the global batches since the last one, its own at the end.
        tensor: one of its tensors, if that still exists; looked at where the loader's class iterates itself.
        is_batch: False for what remains at the end.
    """

    totals: list[int]
    tensor: Callable[[], Any]
    is_batch: bool = True


class _Handing:
    """One of torch's iterators, and what it hands out."""

    def __init__(self, state: _State, dealer: dealing.Indices | dealing.Samples, iterator: Any) -> None:
        self._dealer, self._iterator = dealer, iterator
        self._refers = state.iterates_itself
        self.handed = state.handed = deque()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            totals, batch = self._dealer.take(self._iterator)
        except StopIteration:
            self.handed.append(_Handed(self._dealer.rest(), _nothing, is_batch=False))
            raise
        self.handed.append(_Handed(totals, _reference(batch) if self._refers else _nothing))
        return batch

    def _reset(self, loader: Any, *args: Any) -> None:
        self.handed.clear()
        self._dealer.reset(loader, lambda: self._iterator._reset(loader, *args))

    def __len__(self) -> int:
        return len(self._iterator)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_iterator"], name)


def _nothing() -> None:
    return None


def _reference(batch: Any) -> Callable[[], Any]:
    tensors = parts.tensors(batch)
    return weakref.ref(tensors[0]) if tensors else _nothing


class _Epoch:
    """What a loop over a sharded loader iterates: it notes the part that each batch is."""

    def __init__(self, loader: Any, iterator: Any) -> None:
        self._loader, self._iterator, self._state = loader, iterator, loader._shard
        self._state.totals = self._totals = []
        self._total: int | None = None  # the size of the last global batch
        cut = self._state.plan.cut
        if cut.training:
            parts.begun(loader)
        elif cut.evaluates:
            evaluation.begin(self, "shard_batches()" if _in_turn(cut) else "divide_batches()")

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        cut = self._state.plan.cut
        try:
            batch = next(self._iterator)
        except StopIteration:
            handed = self._handed()
            while handed and not handed[0].is_batch:
                self._totals += handed.popleft().totals
            if cut.training:
                parts.exhausted(self._loader)
            self._end_evaluation()
            raise
        totals = self._totals_of(batch)
        self._totals += totals
        if totals:
            self._total = totals[-1]
        if self._total and not _in_turn(cut):
            part = _part(self._total, cut, self._state.weighed)
            parts.handed(self._loader, part, cut.training)
        persample.note_batch(self._loader, batch)
        return batch

    def _end_evaluation(self) -> None:
        evaluation.end(self)
        if self._state.plan.cut.evaluates and self._state.totals is self._totals:
            parts.evaluated(self._loader)

    def __del__(self) -> None:
        self._end_evaluation()
        if self._state.plan.cut.training and self._state.totals is self._totals:
            parts.dropped(self._loader)

    def _handed(self) -> deque[_Handed]:
        return self._iterator.handed if isinstance(self._iterator, _Handing) else self._state.handed

    def _totals_of(self, batch: Any) -> list[int]:
        """The sizes of the global batches since the last one; empty if this is more of that."""
        handed = self._handed()
        if len(handed) > 1:  # the class draws ahead, or leaves batches out
            inside = {id(tensor) for tensor in parts.tensors(batch)}
            place = next((i for i, item in enumerate(handed) if id(item.tensor()) in inside), 0)
            for _ in range(place):
                handed.popleft()
        if handed:
            return handed.popleft().totals
        if self._total is None:
            raise TypeError(
                f"shard() can't divide {self._state.plan.name}: its class does not draw through DataLoader's own "
                "iterator, super().__iter__()"
            )
        return []

    def __len__(self) -> int:
        return len(self._iterator)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_iterator"], name)


@functools.lru_cache
def _part(total: int, cut: dealing.Cut, weighed: bool) -> parts.Part:
    own = cut.part(total, cut.rank)
    return parts.Part(own.stop - own.start, total, weighed)
