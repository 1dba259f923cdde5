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
    """The last part that a loader handed out.

    Args:
        number: counts the parts of all loaders.
        ended: the loader had no more.
        dropped: the loop over the loader was left.
    """

    part: Part
    number: int
    ended: bool = False
    dropped: bool = False


_numbers = itertools.count()
_drawn: weakref.WeakKeyDictionary[Any, _Drawn] = weakref.WeakKeyDictionary()
_latest: _Drawn | None = None
_watchers: weakref.WeakSet[Any] = weakref.WeakSet()
_differ = False


def drawn(loader: Any, part: Part) -> None:
    """Note that ``loader`` is about to hand out ``part``."""
    global _differ, _latest
    before = _drawn.get(loader)
    if before is not None and before is _latest and before == _Drawn(part, before.number):
        return  # nothing changes
    _drawn[loader] = _latest = _Drawn(part, next(_numbers))
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
    return [d.part for d in recent if not d.ended and (not d.dropped or d is recent[-1])] or [recent[-1].part]


def exhausted(loader: Any) -> None:
    """Note that ``loader`` has no more parts in this epoch."""
    if loader in _drawn:
        _drawn[loader].ended = True


def dropped(loader: Any) -> None:
    """Note that the loop over ``loader`` was left, perhaps before its end."""
    if loader in _drawn:
        _drawn[loader].dropped = True


def weight(*values: Any) -> float:
    """What the gradients of a forward on ``values`` weigh: that of the part they were drawn as.

    Args:
        values: the forward's arguments, nested in any way.

    Returns:
        The weight of the last part drawn; where several loaders are being drawn from and their parts weigh
        differently, of the one with as many samples as ``values`` has rows. 1 where nothing was sharded.

    Raises:
        RuntimeError: several parts could be meant.
    """
    if not _drawn:
        return 1.0
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
