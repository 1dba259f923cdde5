"""Parts of global batches: which one this rank holds, and what it weighs.

A loader that ``shard`` made notes here each part that it hands out; the wrapped model looks here, at each training
forward, what that forward's gradients weigh.
"""

from __future__ import annotations

import itertools
import weakref
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from . import nested, ranks


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


@dataclass
class _Drawn:
    """The parts that a loader handed out last.

    Args:
        part: the last one.
        number: counts the parts of all loaders.
        before: the one before it in this epoch.
        count: how many there have been in this epoch.
        ahead: whether the loop draws a part before the forward on the one before it; None before the first forward.
        ended: the loader has no more.
        dropped: the loop over the loader was left.
    """

    part: Part
    number: int = 0
    before: Part | None = None
    count: int = 0
    ahead: bool | None = None
    ended: bool = False
    dropped: bool = False

    def current(self) -> Part:
        """The part that a forward is about."""
        return self.before if self.ahead and self.before is not None and not self.ended else self.part


_numbers = itertools.count()
_drawn: weakref.WeakKeyDictionary[Any, _Drawn] = weakref.WeakKeyDictionary()
_latest: _Drawn | None = None
_watchers: weakref.WeakSet[Any] = weakref.WeakSet()
_differ = False


def begun(loader: Any) -> None:
    """Note that an epoch of ``loader`` begins."""
    if loader in _drawn:
        record = _drawn[loader]
        record.before, record.count, record.ahead = None, 0, None


def drawn(loader: Any, part: Part) -> None:
    """Note that ``loader`` is about to hand out ``part``."""
    global _latest
    record = _drawn.get(loader)
    if record is None:
        record = _drawn[loader] = _Drawn(part)
    same = record is _latest and record.part == part and not (record.ended or record.dropped)
    record.before = record.part if record.count else None
    record.part, record.count, record.number = part, record.count + 1, next(_numbers)
    record.ended = record.dropped = False
    _latest = record
    if not same or record.before != part:
        _tell_watchers()


def exhausted(loader: Any) -> None:
    """Note that ``loader`` has no more parts in this epoch."""
    if loader in _drawn:
        _drawn[loader].ended = True
        _tell_watchers()


def dropped(loader: Any) -> None:
    """Note that the loop over ``loader`` was left, perhaps before its end."""
    if loader in _drawn:
        _drawn[loader].dropped = True


def _tell_watchers() -> None:
    global _differ
    differ = any(part.weight != 1.0 for part in _candidates())
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
    return bool(_drawn)


def _candidates() -> list[Part]:
    """The parts that a forward may be about: the last ones of the loaders being drawn from, else the very last.

    Of a loop that was left the last part may still be in use, as in ``next(iter(loader))``, as long as no other is
    drawn.
    """
    recent = sorted(_drawn.values(), key=lambda drawn: drawn.number)
    in_use = [d for d in recent if not d.ended and (not d.dropped or d is recent[-1])]
    return [d.current() for d in in_use or recent[-1:]]


def weight(*values: Any) -> float:
    """What the gradients of a forward on ``values`` weigh: that of the part they were drawn as.

    Args:
        values: the forward's arguments, nested in any way.

    Returns:
        The weight of the last part drawn, or of the one before it if the loop draws one ahead, which shows in two
        parts being drawn before the epoch's first forward. Where several loaders are being drawn from and their parts
        weigh differently, that of the one with as many samples as ``values`` has rows. 1 where nothing was sharded.

    Raises:
        RuntimeError: several parts could be meant.
    """
    if not _drawn:
        return 1.0
    for record in _drawn.values():
        if record.ahead is None and record.count:
            record.ahead = record.count == 2
    candidates = _candidates()
    weights = {part.weight for part in candidates}
    if len(weights) > 1:
        rows = {tensor.shape[0] for tensor in tensors(values) if tensor.dim()}
        weights = {part.weight for part in candidates if part.rows in rows} or weights
    if len(weights) > 1:
        sizes = ", ".join(f"{part.size} of {part.total}" for part in candidates)
        raise RuntimeError(
            f"the model is called with tensors of {sorted(rows)} rows, and it can't be told which batch they come "
            f"from: the loaders being drawn from gave parts of {sizes} samples. Choose a number of processes that "
            "divides these batches"
        )
    return weights.pop()


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in nested tuples, lists, dicts and dataclasses."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for leaf in nested.flatten(value, dataclasses=True) if isinstance(leaf, torch.Tensor)]
