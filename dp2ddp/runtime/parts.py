"""Parts of global batches: which one this rank holds, and what it weighs.

A loader that ``shard`` made notes here each part that it hands out; the wrapped model looks here, at each training
forward, what that forward's gradients weigh. Whether a loop was left (``dropped``) is known when its iterator goes,
not at the same moment on every rank: no collective may depend on it.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from . import nested, ranks
from .exchange import exchange


@dataclass(frozen=True)
class Part:
    """This rank's part of one global batch.

    Args:
        size: its number of samples; 0 for a rank that only stands by, on samples of rank 0's.
        total: the number of samples in the global batch.
    """

    size: int
    total: int

    @cached_property
    def weight(self) -> float:
        """What a mean over this part counts in the ranks' average: W * size / total; 1 where all parts are equal."""
        return ranks.get_world_size() * self.size / self.total

    @property
    def rows(self) -> int:
        """How many samples were handed out."""
        return self.size or -(-self.total // ranks.get_world_size())


@dataclass(eq=False)
class _Drawn:
    """The parts that a loader has handed out in this epoch.

    Args:
        last: the different parts, and which of the epoch each was when it was handed out last.
        count: how many there have been.
        lead: how many had been handed out at the epoch's first forward; None before it.
        ended: the loader has no more.
        dropped: the loop over the loader was left.
    """

    last: dict[Part, int] = field(default_factory=dict)
    count: int = 0
    lead: int | None = None
    ended: bool = False
    dropped: bool = False

    def candidates(self) -> list[Part]:
        """The parts that a forward may be about.

        That is the last one, or one of as many as had been drawn before the first forward: the loop may draw ahead, or
        have left out some.
        """
        window = self.lead or self.count
        return [part for part, index in self.last.items() if index > self.count - window]


_MOST = 64  # loops that may be left before their end and still be looked at

_drawn: weakref.WeakKeyDictionary[Any, _Drawn] = weakref.WeakKeyDictionary()
_in_play: list[_Drawn] = []  # the loaders that have more, and the one that was drawn from last, at the end
_watchers: weakref.WeakSet[Any] = weakref.WeakSet()
_differ = False


def begun(loader: Any) -> None:
    """Note that an epoch of ``loader`` begins."""
    if loader in _drawn:
        _drawn[loader].lead, _drawn[loader].count = None, 0


def drawn(loader: Any, part: Part) -> None:
    """Note that ``loader`` is about to hand out ``part``."""
    record = _drawn.setdefault(loader, _Drawn())
    same = _in_play[-1:] == [record] and [*record.last] == [part] and not record.ended
    if record.count == 0:
        record.last.clear()
    record.count += 1
    record.last[part] = record.count
    record.ended = record.dropped = False
    if not same:
        others = [other for other in _in_play if other is not record and not other.ended]
        _in_play[:] = [*others, record][-_MOST:]
        _tell_watchers()


def exhausted(loader: Any) -> None:
    """Note that ``loader`` has no more parts in this epoch."""
    if loader in _drawn:
        record = _drawn[loader]
        record.ended = True
        if record in _in_play[:-1]:
            _in_play.remove(record)
        _tell_watchers()


def dropped(loader: Any) -> None:
    """Note that the loop over ``loader`` was left, perhaps before its end."""
    if loader in _drawn:
        _drawn[loader].dropped = True


def _tell_watchers() -> None:
    global _differ
    differ = may_differ()
    if differ != _differ:
        _differ = differ
        for watcher in list(_watchers):
            watcher.parts_differ(differ)


def watch(watcher: Any) -> None:
    """Have ``watcher.parts_differ(bool)`` called when the parts in play begin, and cease, to weigh differently."""
    _watchers.add(watcher)
    watcher.parts_differ(_differ)


def are_drawn() -> bool:
    """Whether any loader deals parts."""
    return bool(_in_play)


def may_differ(*values: Any) -> bool:
    """Whether a forward, on ``values`` if they are given, may be about a batch whose parts differ in size."""
    candidates = {part.total: part for record in _in_play for part in record.candidates()}
    rows = _rows(values) if len(candidates) > 1 else set()
    fitting = [part for part in candidates.values() if part.rows in rows] or candidates.values()
    return any(part.weight != 1.0 for part in fitting)


def weight(*values: Any, training: bool = True) -> float:
    """What the gradients of a forward on ``values`` weigh: that of the part they were drawn as.

    Nearly always that is the last part drawn. Where several could be meant, which weigh differently, it is the one
    with as many samples as ``values`` has rows, on every rank: then the ranks talk, and all must call.

    Args:
        values: the forward's arguments, nested in any way.
        training: whether the model is in training mode; else it may be evaluated on some ranks only, after the loop.

    Returns:
        The weight; 1 where nothing was sharded, and after the end of a loop, for tensors with other numbers of rows
        than its last batch.

    Raises:
        RuntimeError: several parts could be meant.
    """
    for record in _in_play:
        if record.lead is None and record.count:
            record.lead = record.count
    candidates = {part.total: part for record in _in_play for part in record.candidates()}
    if all(total % ranks.get_world_size() == 0 for total in candidates):
        return 1.0
    ended = all(record.ended for record in _in_play)
    if len(candidates) == 1 and not ended or _in_play[-1].ended and not training:
        return next(reversed(candidates.values())).weight
    rows = _rows(values)
    totals = _agree(candidates, rows)
    if len(totals) == 1:
        return candidates[totals.pop()].weight
    if ended and not totals and all(record.lead == 1 for record in _in_play):
        _in_play.clear()  # there was a forward on the last part before the end: this is on something else
        _tell_watchers()
        return 1.0
    sizes = ", ".join(f"{part.size} of {part.total}" for part in candidates.values())
    raise RuntimeError(
        f"the model is called with tensors of {sorted(rows)} rows, and it can't be told which batch they come from: "
        f"the loaders being drawn from gave parts of {sizes} samples. Choose a number of processes that divides these "
        "batches"
    )


def _rows(values: Any) -> set[int]:
    return {tensor.shape[0] for tensor in tensors(values) if tensor.dim()}


def _agree(candidates: dict[int, Part], rows: set[int]) -> set[int]:
    """The totals of the parts that fit ``rows`` on every rank; of several, and of none, those of running loops."""
    exact = {total for total, part in candidates.items() if part.rows in rows}
    # a batch may be given in several views, or a sample in several rows
    several = {t for t, part in candidates.items() if any(row and row % part.rows == 0 for row in rows)}
    loops = [record for record in _in_play if not record.dropped and not (record.ended and rows)]
    running = {part.total for record in loops for part in record.candidates()}
    answers = exchange("the forward of a wrapped model", (exact, several, running))
    exact, several, running = (set.intersection(*sets) for sets in zip(*answers, strict=True))
    if exact or len(several) == 1:
        return exact or several
    return (several or set(candidates)) & running


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in nested tuples, lists, dicts and dataclasses."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for leaf in nested.flatten(value, dataclasses=True) if isinstance(leaf, torch.Tensor)]
