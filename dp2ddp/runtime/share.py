"""Whole batches, each loaded once: the ranks of a machine divide a loader's workers, and every rank gets every batch.

Rank r runs the workers r, r + W, … of the N that the loader asks for; each of them hands its batches to all ranks (see
``lanes``). A worker is the original's own: it has its number of N, its seed, ``base_seed`` + number, and its tasks, the
batches w, w + N, …. So what it draws for its samples, augmentation for one, is the original's to the last bit. What
follows is torch's own iterator, on every rank: it draws from the sampler, gives out tasks, restarts workers that
persist, pins memory and raises what a worker has raised. Only the queues and the processes that it makes are others:
those of foreign workers note what they would be given.

Steps per second and their ratio to the sharded form (``python -m tests.benchmarks shared``: two processes and two
workers on two CPU cores, 64 images a step, six paired rounds of 24 steps on a machine that did other things, too):

    ===============================  =================  =================  ===================
    form                             cheap images       computed images    8 residual blocks
    ===============================  =================  =================  ===================
    the original, one process        84.9    1.40       3.9    0.67        18.8    0.93
    sharded                          58.6    1          6.2    1           21.0    1
    whole, each process loads all    44.2    0.79       3.3    0.48        20.7    1.04
    whole, shared                    47.1    0.82       5.8    1.09        17.7    0.89
    ===============================  =================  =================  ===================

The middle half of the ratios is 0.2 to 0.6 wide. With cheap images what the forward exchanges decides, not loading.
"""

from __future__ import annotations

import functools
import itertools
import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import DataLoader, IterDataPipe, MapDataPipe
from torch.utils.data._utils import MP_STATUS_CHECK_INTERVAL
from torch.utils.data._utils.worker import _ResumeIteration
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from . import debug, fetching, lanes, ranks, rendezvous
from .data import all_workers

_WHAT = "the iterator of a loader that share() got"
_CONTEXT = "_DataLoader__multiprocessing_context"
_numbers = itertools.count(1)


def share(loader: DataLoader) -> DataLoader:
    """Load each batch once on a machine, for all ranks that compute on it: for a loop that draws whole batches.

    For the form in which every rank draws every batch (``DataParallel``). Every rank still gets all batches, in order
    and to the last bit those of one process, but the workers are divided among the ranks: the machine has as many as
    the loader asks for, and the memory of a batch is there once, until a rank writes to it. Several machines load each
    by itself.

    Without workers (``num_workers=0``) nothing changes, and each rank loads for itself; nor for what can't be divided
    so: data pipes, loaders that are dealt already, classes with an iterator of their own, systems other than Linux.

    Args:
        loader: any DataLoader. All ranks must iterate it equally often, and leave its loops at the same batches.
            ``in_order=False`` has no effect.

    Returns:
        ``loader`` itself, of a class derived from its own: ``len()``, attributes and samplers are as they were. In a
        plain process or a group of one, as it was.

    Raises:
        TypeError: not a DataLoader.
    """
    if not isinstance(loader, DataLoader):
        raise TypeError(f"share() takes a DataLoader, not a {type(loader).__name__}")
    if ranks.is_helper() or ranks.stands_aside() or ranks.count() == 1 or not lanes.IS_POSSIBLE:
        return loader
    if type(loader)._get_iterator is DataLoader._get_iterator:
        loader.num_workers = all_workers(loader.num_workers)
        loader.__class__ = _class(type(loader))
        loader.__dict__["_share"] = _State(next(_numbers))
    return loader


def sharing(loader: DataLoader) -> tuple[type[DataLoader], dict[str, Any]]:
    """The class of a copy of a loader that is shared, and what more it knows; the loader's own where none can be."""
    kind = type(loader)
    if not lanes.IS_POSSIBLE or kind._get_iterator is not DataLoader._get_iterator:
        return kind, {}
    return _class(kind), {"_share": _State(next(_numbers))}


@dataclass
class _State:
    """What a shared loader knows beside what a DataLoader does: which it is, and how many iterators it has had."""

    number: int
    iterators: itertools.count = field(default_factory=itertools.count)


@functools.cache
def _class(base: type[DataLoader]) -> type[DataLoader]:
    """The class of ``base``'s loaders that are shared."""

    class Shared(base):
        __doc__ = base.__doc__

        def _get_iterator(self) -> Any:
            state, group = self.__dict__.get("_share"), _group_for(self)
            if state is None or group is None:
                return super()._get_iterator()
            self.check_worker_number_rationality()
            return _Iterator(self, group, f"{state.number}-{next(state.iterators)}")

        def __reduce_ex__(self, protocol: Any) -> Any:
            attributes = {name: it for name, it in self.__dict__.items() if name != "_share"}
            return _remade, (base, attributes)

    Shared.__name__, Shared.__qualname__, Shared.__module__ = (
        base.__name__,
        base.__qualname__,
        base.__module__,
    )
    return Shared


def _remade(base: type[DataLoader], attributes: dict[str, Any]) -> DataLoader:
    """A copy of a shared loader, which is not shared itself."""
    loader = object.__new__(base)
    loader.__dict__.update(attributes)
    return loader


# Who shares


@dataclass(frozen=True)
class _Group:
    """The ranks that share: those that reach each other's memory.

    Args:
        members: their ranks, and the name by which each is found.
        own: this rank's place among them.
    """

    members: tuple[tuple[int, str], ...]
    own: int


_group: _Group | None = None  # once the ranks have met


def _group_for(loader: Any) -> _Group | None:
    """Who shares a loader's batches; None where this rank draws them by itself.

    All ranks have the same answer.
    """
    if (
        ranks.takes_turns()
        or loader.num_workers == 0
        or isinstance(loader.dataset, IterDataPipe | MapDataPipe)
    ):
        return None
    dealt = getattr(loader, "_shard", None)
    if (dealt is not None and not dealt.plan.whole) or fetching.is_divided(loader) or not _is_settled():
        return None
    debug.meet(_WHAT)
    found = _met()
    return found if len(found.members) > 1 else None


def _is_settled() -> bool:
    """Whether there are other ranks, and it is settled who trains; that is done here, where the device is chosen."""
    if ranks.is_helper() or ranks.stands_aside():
        return False
    if ranks.has_begun() and not (torch.cuda.device_count() and ranks.chosen_device() is None):
        ranks.settle(_WHAT)
    return ranks.has_group() and ranks.count() > 1


def _met() -> _Group:
    """Meet all ranks, once."""
    global _group
    if _group is None:
        mine = (_reach(), f"\0dp2ddp-{secrets.token_hex(16)}")
        everyone = rendezvous.collect("share", mine)
        members = [(rank, name) for rank, (reach, name) in enumerate(everyone) if reach == mine[0]]
        _group = _Group(tuple(members), [rank for rank, _ in members].index(ranks.own_rank()))
    return _group


def _reach() -> str:
    """Ranks with the same answer reach each other: they run on one machine, and in one space of names."""
    parts = [str(ranks.machine()), socket.gethostname(), str(os.getuid())]
    try:
        parts.append(os.readlink("/proc/self/ns/net"))
        with open("/proc/sys/kernel/random/boot_id") as file:
            parts.append(file.read().strip())
    except OSError:
        parts.append(str(ranks.own_rank()))  # it can't be told
    return " ".join(parts)


# Its iterators


class _Iterator(_MultiProcessingDataLoaderIter):
    """torch's own, whose workers run on all ranks of a group."""

    def __init__(self, loader: Any, group: _Group, name: str) -> None:
        self._lane = lanes.Lane(f"{group.members[group.own][1]}-{name}")
        self._group = group
        own = loader.multiprocessing_context or torch.multiprocessing
        context = _Context(own, self._lane, group, name)
        try:
            with fetching.lending(loader, {_CONTEXT: context, "in_order": True}):
                super().__init__(loader)
        except BaseException:
            self._lane.close()
            raise

    def _try_get_data(self, timeout: float = MP_STATUS_CHECK_INTERVAL) -> tuple[bool, Any]:
        try:
            found = super()._try_get_data(timeout)
        except RuntimeError as error:
            if self._lane.lost is not None:  # which says it itself, if it is another rank's
                error.raised_on_rank = self._rank_of(self._lane.lost)
            raise
        if not found[0]:
            self._look_for_ranks()
        return found

    def _rank_of(self, worker: int) -> int:
        return self._group.members[worker % len(self._group.members)][0]

    def _look_for_ranks(self) -> None:
        """Complain of a rank that has ended, and whose workers will load nothing."""
        if ranks.takes_turns():  # another rank's workers get their tasks when it is that rank's turn
            debug.meet(_WHAT)
        wanted = self._lane.wanted()
        if wanted is not None and rendezvous.ended_count():
            rank = self._rank_of(wanted)
            if rank != ranks.own_rank() and rendezvous.ended(rank):
                raise RuntimeError(rendezvous.needed(rank, f"for a batch, in {_WHAT}"))

    def _shutdown_workers(self) -> None:
        try:
            super()._shutdown_workers()
        finally:
            self._lane.close()


class _Context:
    """What torch's iterator makes its queues and processes with, in this order: results, event, then each worker's."""

    def __init__(self, own: Any, lane: lanes.Lane, group: _Group, name: str) -> None:
        self._own, self._lane, self._group, self._name = own, lane, group, name
        self._queues: list[_Tasks] = []
        self._started = 0
        self._has_results = False

    def Queue(self) -> Any:
        if not self._has_results:
            self._has_results = True
            return self._lane
        worker = len(self._queues)
        self._queues.append(_Tasks(self._lane, worker, self._own.Queue() if self._is_own(worker) else None))
        return self._queues[-1]

    def Event(self) -> Any:
        self._done = self._own.Event()
        return self._done

    def Process(self, target: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        worker, self._started = self._started, self._started + 1
        if not self._is_own(worker):
            return _Elsewhere(self._lane, worker)
        queue = self._queues[worker]
        given = {id(queue): queue.queue, id(self._lane): self._outlet(worker)}
        return self._own.Process(target=target, args=tuple(given.get(id(it), it) for it in args))

    def _is_own(self, worker: int) -> bool:
        return worker % len(self._group.members) == self._group.own

    def _outlet(self, worker: int) -> lanes.Outlet:
        names = [f"{name}-{self._name}" for _, name in self._group.members]
        own = names.pop(self._group.own)
        return lanes.Outlet(worker, [*names, own], self._done)


class _Tasks:
    """The queue of a worker's tasks: every rank notes them, and one of them hands them on.

    Args:
        queue: to the worker; None if it is another rank's.
    """

    def __init__(self, lane: lanes.Lane, worker: int, queue: Any) -> None:
        self._lane, self._worker, self.queue = lane, worker, queue

    def put(self, item: Any) -> None:
        if isinstance(item, _ResumeIteration):
            self._lane.resumed(self._worker)
        elif item is not None:
            number, index = item
            task = lanes.Task(number, lanes.digest(index))
            self._lane.given(self._worker, task)
            item = task, index
        if self.queue is not None:
            self.queue.put(item)

    def cancel_join_thread(self) -> None:
        if self.queue is not None:
            self.queue.cancel_join_thread()

    def close(self) -> None:
        if self.queue is not None:
            self.queue.close()


class _Elsewhere:
    """A worker that another rank runs, as far as torch's iterator asks."""

    daemon = True

    def __init__(self, lane: lanes.Lane, worker: int) -> None:
        self._lane, self._worker = lane, worker
        self.pid = os.getpid()  # torch looks whether its children have failed: this is none

    def is_alive(self) -> bool:
        return self._lane.lost != self._worker

    def start(self) -> None:
        """Its rank does."""

    def join(self, timeout: float | None = None) -> None:
        """Its rank does."""

    def terminate(self) -> None:
        """Its rank does."""
