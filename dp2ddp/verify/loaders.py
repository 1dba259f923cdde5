"""Which samples a process draws, and when it is handed them; and, where runs are aligned, which it shall draw.

A *pass* is one iteration of a loader. It trains if a backward pass runs while its batches are in use. Passes of two
runs correspond by the data set they are over and their number among the passes over it.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import dataloader
from torch.utils.data._utils import fetch

from dp2ddp.runtime import held
from dp2ddp.verify import draws
from dp2ddp.verify.doubles import widened
from dp2ddp.verify.journal import Journal, hashable

WATCHED = 4
"""Of how many batches of a pass it is noted what their samples draw from."""


class Keyed(list):
    """The indices of a batch whose samples draw random numbers by the data set's pass and their own index."""

    key: Any = None
    watched: bool = False
    """Whether it is to be noted which generators the samples draw from."""


@dataclass
class Pass:
    """One iteration of a loader."""

    number: int
    data: tuple[str, int | None]
    """The data set's class and length."""
    ordinal: int
    first_step: int
    drawn: list[Any] = field(default_factory=list)
    handed: int = 0
    in_use: bool = False
    trains: bool = False
    ended: bool = False
    drawn_by: Callable[[], Any] = lambda: None
    """The iterator, as long as there is one: ``next(iter(loader))`` leaves none."""


class Loaders:
    """Notes what is drawn.

    Args:
        journal: gets it.
        plan: the training batches to draw, by data set and ordinal; None for the script's own.
        keyed: whether random numbers of a sample follow from its index and its pass.
        steps: tells how many optimizer steps were made.
        limit: of optimizer steps in all; a training pass ends after half of them.
        wide: whether float32 data become float64.
        rank: tells this process's rank, or that whose worker it is.
    """

    def __init__(
        self,
        journal: Journal,
        plan: Any,
        keyed: bool,
        steps: Callable[[], int],
        limit: int | None,
        wide: bool = False,
        rank: Callable[[], int] = lambda: 0,
    ) -> None:
        self.journal = journal
        self.plan = plan
        self.keyed = keyed
        self.steps = steps
        self.limit = limit
        self.wide = wide
        self.rank = rank
        self.was_cut = False
        self.evaluated = False
        """Whether an evaluation has drawn since the last training batch."""
        self.on_batch: Callable[[], object] = lambda: None
        """Called before a batch is handed out."""
        self.on_training_batch: Callable[[Any], object] = lambda place: None
        """Called after that with what tells the batch, where it may train."""
        self._passes: list[Pass] = []
        self._last: Pass | None = None  # whose batch was handed out last
        self._ordinals: Counter[tuple[str, int | None]] = Counter()

    def patch(self) -> None:
        """Put the notes into torch's iterators."""
        kind = dataloader._BaseDataLoaderIter
        next_index, following, reset = kind._next_index, kind.__next__, kind._reset

        def noted_index(iterator: Any) -> Any:
            current = self._pass_of(iterator)  # of a rank without a batch, too: they are counted
            index = next_index(iterator)
            return self._draw(current, index, _stands_in(iterator))

        def noted_batch(iterator: Any) -> Any:
            current = getattr(iterator, "verify_pass", None)
            if current is not None and self._is_over(current):
                self.was_cut = True
                self._end(iterator)
                raise StopIteration
            try:
                batch = following(iterator)
            except StopIteration:
                self._end(iterator)
                raise
            self._hand(iterator.verify_pass)
            return widened(batch) if self.wide else batch

        def noted_reset(iterator: Any, *args: Any, **kwargs: Any) -> Any:
            self._end(iterator)
            return reset(iterator, *args, **kwargs)

        kind._next_index, kind.__next__, kind._reset = noted_index, noted_batch, noted_reset
        if self.keyed:
            _key_samples(self._note_draws)

    def note_backward(self) -> None:
        """Hear of a backward pass: the loaders whose batches are in use train."""
        self.evaluated = False
        used = [one for one in self._passes if one.in_use]
        lasting = [one for one in used if one.drawn_by() is not None]
        for one in lasting or used:  # a batch that was looked at before a loop trains nothing in it
            if not one.trains:
                one.trains = True
                self.journal.add("training", number=one.number)
        for one in used:
            one.in_use = False

    def note_evaluation(self) -> None:
        """Hear of a wrapped model's forward in evaluation mode: amid a training pass, its batch trains nothing."""
        last = self._last
        if last is not None and not last.trains and any(it.trains and not it.ended for it in self._passes):
            last.in_use = False

    def last(self) -> tuple[Any, int]:
        """The last pass, by its data and number among those over it, and how many batches were handed out in it."""
        last = self._passes[-1] if self._passes else None
        return (None, 0) if last is None else ((last.data, last.ordinal), last.handed)

    def rows(self) -> int:
        """How many samples the last training batch had; 0 where that is not known."""
        last = self._passes[-1] if self._passes else None
        drawn = (
            last.drawn[last.handed - 1] if last is not None and 0 < last.handed <= len(last.drawn) else None
        )
        return len(drawn or ())

    def _pass_of(self, iterator: Any) -> Pass:
        if getattr(iterator, "verify_pass", None) is None:
            dataset = iterator._dataset
            data = (type(dataset).__name__, len(dataset) if hasattr(dataset, "__len__") else None)
            current = Pass(len(self._passes), data, self._ordinals[data], self.steps())
            self._ordinals[data] += 1
            self._passes.append(current)
            iterator.verify_pass, current.drawn_by = current, weakref.ref(iterator)
            length = _length(iterator)
            self.journal.add(
                "begin", number=current.number, data=data, ordinal=current.ordinal, length=length
            )
        return iterator.verify_pass

    def _end(self, iterator: Any) -> None:
        current = getattr(iterator, "verify_pass", None)
        if current is not None:
            current.in_use, current.ended = False, True
            self.evaluated |= bool(current.handed) and not current.trains
            self.journal.add("end", number=current.number)
        iterator.verify_pass = None

    def _draw(self, current: Pass, index: Any, stands_in: bool) -> Any:
        own = _listed(index)
        planned = None if own is None else self._planned(current)
        drawn = own if planned is None else planned
        self.journal.add(
            "draw",
            number=current.number,
            own=None if own is None else own if planned is not None else len(own),
            indices=[] if stands_in else drawn,
        )
        current.drawn.append(drawn)
        if drawn is None or not isinstance(index, (list, tuple)):
            return index
        keyed = Keyed(drawn if planned is not None else index)
        keyed.key = (current.data, current.ordinal)
        keyed.watched = len(current.drawn) <= WATCHED
        return keyed if self.keyed else list(keyed)

    def _note_draws(self, index: Keyed, states: dict[str, str]) -> None:
        (name, length), ordinal = index.key
        what = f"{name} {length} {ordinal}"
        self.journal.add_anywhere(self.rank(), "stream", what=what, of="samples", states=states)

    def _planned(self, current: Pass) -> list[int] | None:
        if self.plan is None:
            return None
        batches = self.plan.get(f"{current.data[0]} {current.data[1]} {current.ordinal}", [])
        if len(current.drawn) >= len(batches):
            return None
        return list(map(_read, batches[len(current.drawn)]))

    def _hand(self, current: Pass) -> None:
        self.on_batch()
        current.in_use = torch.is_grad_enabled()
        self._last = current
        if current.in_use:
            self.on_training_batch((current.data, current.ordinal, current.handed))
        if not current.trains and (current.handed or not current.in_use):
            self.evaluated = True
        self.journal.add("batch", number=current.number)
        current.handed += 1

    def _is_over(self, current: Pass) -> bool:
        if self.limit is None or not current.trains:
            return False
        made = self.steps()
        return made >= self.limit or made - current.first_step >= -(-self.limit // 2)


def _listed(index: Any) -> list[Any] | None:
    """A batch of indices as a list; None for one that isn't a batch, or has no numbers."""
    if hasattr(index, "tolist"):
        index = index.tolist()
    return list(map(_plain, index)) if isinstance(index, (list, tuple)) else None


def _plain(index: Any) -> Any:
    """An index as Python's number, where numpy or torch drew it: it is written down, and drawn by another process."""
    if isinstance(index, dict):
        return {key: _plain(it) for key, it in index.items()}
    if type(index) in (list, tuple):
        return type(index)(map(_plain, index))
    return index.tolist() if hasattr(index, "tolist") else index


def _read(index: Any) -> Any:
    """An index that was written down: what is a list there was a tuple, as most are."""
    if isinstance(index, dict):
        return {key: _read(it) for key, it in index.items()}
    return tuple(map(_read, index)) if isinstance(index, list) else index


def _length(iterator: Any) -> int | None:
    try:
        return len(iterator)
    except TypeError:
        return None


def _stands_in(iterator: Any) -> bool:
    """Whether ``ddp.shard`` dealt this rank another one's part, because a batch has fewer samples than ranks."""
    cut = getattr(getattr(iterator._index_sampler, "_plan", None), "cut", None)
    if cut is None or not cut.training:
        return False
    own = cut.part(iterator._index_sampler._dealt[-1][0], cut.rank)
    return own.start >= own.stop


_OWN = "_dp2ddp_own_generators"


def _key_samples(note: Callable[[Keyed, dict[str, str]], None]) -> None:
    """Have samples draw their random numbers by their keys, and leave the generators alone.

    Args:
        note: is told, of a batch that is watched, which generators its samples would have drawn from in what states.
    """
    fetched = fetch._MapDatasetFetcher.fetch

    def by_key(fetcher: Any, index: Any) -> Any:
        if not isinstance(index, Keyed):
            return fetched(fetcher, index)
        dataset, samples = fetcher.dataset, []
        states: dict[str, str] = {}
        at_once = getattr(dataset, "__getitems__", None)
        if not hasattr(fetcher, _OWN):
            setattr(fetcher, _OWN, draws.Own(held.generators(dataset)))
        own: draws.Own = getattr(fetcher, _OWN)
        with draws.kept() as before, own.kept():
            for one in index:
                key = index.key, hashable(_plain(one))
                draws.seed(key)
                own.seed(key)
                watched = draws.Watched(before) if index.watched or at_once else None
                samples.append(at_once([one])[0] if at_once else dataset[one])
                states |= watched.drawn_from() | own.drawn_from() if watched else {}
            if at_once and not states:  # what it makes of all of them may be something else
                samples = at_once(list(index))
        if states and index.watched:
            note(index, states)
        return fetcher.collate_fn(samples)

    fetch._MapDatasetFetcher.fetch = by_key
