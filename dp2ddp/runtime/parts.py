"""Parts of global batches: which one this rank holds, and what it weighs.

A loader that ``shard`` made notes here each part that it hands out; the wrapped model looks here, at each training
forward, what that forward's gradients weigh. Whether a loop was left (``dropped``) is known when its iterator goes,
not at the same moment on every rank: no collective may depend on it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from . import evaluation, nested, ranks
from .exchange import exchange


@dataclass(frozen=True)
class Part:
    """This rank's part of one global batch.

    Args:
        size: its number of samples; 0 for a rank that only stands by, on samples of rank 0's.
        total: the number of samples in the global batch.
        weighed: whether it counts by its size; else all parts with samples count the same.
    """

    size: int
    total: int
    weighed: bool = True

    @cached_property
    def weight(self) -> float:
        """What this part's mean counts in the ranks' average: W * size / total; 1 where all parts are equal."""
        world = ranks.get_world_size()
        if self.weighed:
            return world * self.size / self.total
        return world / self.used if self.size else 0.0

    @property
    def used(self) -> int:
        """How many ranks have samples, as torch.chunk cuts them."""
        return -(-self.total // -(-self.total // ranks.get_world_size()))

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
_latest: list[_Drawn] = (
    []
)  # those that were drawn from in the latest loop, which may be over, and in loops around it
_watchers: weakref.WeakSet[Any] = weakref.WeakSet()
_differ = False
_evaluated: tuple[Any, Part] | None = None  # the part drawn last, if that was for evaluation, and its loader


def begun(loader: Any) -> None:
    """Note that an epoch of ``loader`` begins."""
    record = _drawn.get(loader)
    if record is not None and (record.lead is None or record.lead == 1):  # else some may still be trained on
        del _drawn[loader]
        _latest[:] = [it for it in _latest if it is not record]
        if record in _in_play:
            _in_play.remove(record)
            _tell_watchers()


def handed(loader: Any, part: Part, training: bool) -> None:
    """Note that ``loader`` is about to hand out ``part``, of a batch for training or for evaluation."""
    global _evaluated
    _evaluated = None if training else (loader, part)
    if training:
        drawn(loader, part)


def evaluated(loader: Any) -> None:
    """Note that the evaluation of what ``loader`` hands out is over."""
    global _evaluated
    if _evaluated is not None and _evaluated[0] is loader:
        _evaluated = None


def drawn(loader: Any, part: Part) -> None:
    """Note that ``loader`` is about to hand out ``part`` for training."""
    record = _drawn.setdefault(loader, _Drawn())
    same = _in_play[-1:] == [record] and [*record.last] == [part] and not record.ended
    if record not in _latest:
        _latest[:] = [it for it in _latest if not (it.ended or it.dropped)] + [record]
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


def forget(loaders: Iterable[Any]) -> None:
    """Forget the parts that some loaders have handed out: no more forward is about them."""
    found = [*map(_drawn.get, loaders)]
    _latest[:] = [it for it in _latest if it not in found]
    gone = [record for record in found if record in _in_play]
    if gone:
        _in_play[:] = [record for record in _in_play if record not in gone]
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
    candidates = _candidates()
    rows = {tensor.shape[0] for tensor in tensors(values) if tensor.dim()}
    fitting = [part for part in candidates.values() if part.rows in rows] or candidates.values()
    return any(part.weight != 1.0 for part in fitting)


def sizes() -> list[int]:
    """How many samples of its own this rank has of each batch that a forward may be about."""
    return [part.size for part in _candidates().values()]


def require(dim: int, does: str, *values: Any) -> None:
    """Look whether tensors of a training forward have the part's samples in a dimension other than 0.

    Raises:
        RuntimeError: one has another number there than any part that the forward may be about.
    """
    rows = {part.rows for part in _candidates().values()}
    for tensor in tensors(values) if rows else ():
        if tensor.dim() <= dim or tensor.shape[dim] not in rows:
            raise RuntimeError(
                f"the model {does} a tensor of shape {list(tensor.shape)}, but each rank's part has "
                f"{' or '.join(map(str, sorted(rows)))} samples in dimension {dim}: take the part of it by "
                f"ddp.local_batch(…, dim={dim}), or wrap the model in ddp.DataParallel and leave the batches whole"
            )


def _candidates() -> dict[int, Part]:
    """The parts that a forward may be about, by the size of the global batch."""
    return {part.total: part for record in _in_play for part in record.candidates()}


def weight(*values: Any, training: bool = True) -> float:
    """What the gradients of a training forward on ``values`` weigh: that of the part they were drawn as.

    Nearly always that is the last part drawn. Where several could be meant, which weigh differently, it is the one
    that fits the sizes of ``values`` on every rank: then the ranks talk, and all must call.

    Args:
        values: the forward's arguments, nested in any way, with the samples in dimension 0 or 1.
        training: whether the model is in training mode; else it may be evaluated, after the loop on some ranks only.

    Returns:
        The weight; 1 where nothing was sharded, and after the end of a loop, for tensors of other sizes than its last
        batch. NaN if several parts could be meant after a loop, for a model that is not in training mode: it is
        evaluated, or its gradients are wrong.

    Raises:
        RuntimeError: several parts could be meant.
    """
    for record in _in_play:
        if record.lead is None:
            record.lead = record.count
    candidates = _candidates()
    if all(total % ranks.get_world_size() == 0 for total in candidates):
        return 1.0
    ended = all(record.ended for record in _in_play)
    if len(candidates) == 1 and not ended:
        return next(iter(candidates.values())).weight
    fitting = _fitting(candidates, values)
    is_over = ended and all(record.lead == 1 for record in _in_play)  # there was a forward on the last part
    if is_over:
        fitting = {fit for fit in fitting if fit[-1] == 1}
    if _in_play[-1].ended and not training:
        found = _likeliest(fitting) or set(candidates)
        return candidates[found.pop()].weight if len(found) == 1 else float("nan")
    totals = _fewest_parts(candidates, _agree(candidates, fitting, bool(tensors(values))))
    if len(totals) == 1:
        return candidates[totals.pop()].weight
    if is_over and not totals:
        _in_play.clear()  # this is on something else
        _tell_watchers()
        return 1.0
    sizes = ", ".join(f"{part.size} of {part.total}" for part in candidates.values())
    shapes = ", ".join(str(list(tensor.shape)) for tensor in tensors(values)) or "no tensors"
    raise RuntimeError(
        f"the model is called with tensors of shape {shapes}, which can't be assigned to a batch of the "
        f"loaders in use (local batches: {sizes} samples): use a number of processes that divides these batch "
        "sizes"
    )


_Fit = tuple[int, int, int]
"""The size of a global batch, a dimension, and how often its part's number of samples fits there."""


def _fitting(candidates: dict[int, Part], values: Any) -> set[_Fit]:
    """How parts fit tensors: a batch may be given in several views, or a sample in several rows."""
    shapes = {tuple(tensor.shape[:2]) for tensor in tensors(values)}
    sizes = {(dim, size) for shape in shapes for dim, size in enumerate(shape) if size}
    return {
        (total, dim, size // part.rows)
        for total, part in candidates.items()
        for dim, size in sizes
        if size == part.rows or dim == 0 and size % part.rows == 0
    }


def _likeliest(fitting: set[_Fit]) -> set[int]:
    """The sizes of the global batches whose parts fit best: rather in dimension 0 than in 1, and in one row each."""
    ways = ([0, 1], [1, 1])
    best = [{total for total, *how in fitting if how == way} for way in ways]
    return next(filter(None, best), {total for total, *_ in fitting})


def _agree(candidates: dict[int, Part], fitting: set[_Fit], has_tensors: bool) -> set[int]:
    """The sizes of the global batches that may be meant, of those that fit alike on every rank; a collective.

    Parts of which ranks have different numbers of rows do not fit alike by chance. Where none fits, it is one of a
    running loop.
    """
    loops = [record for record in _in_play if not record.dropped and not (record.ended and has_tensors)]
    running = {part.total for record in loops for part in record.candidates()}
    rows = {(total, part.rows) for total, part in candidates.items()}
    answers = exchange("the forward of a wrapped model", (fitting, running, rows))
    alike, running, rows = (set.intersection(*sets) for sets in zip(*answers, strict=True))
    unlike = {fit for fit in alike if (fit[0], candidates[fit[0]].rows) not in rows}
    found = _likeliest(unlike or alike) or set(candidates) & running
    return found if len(found) == 1 else found & running


def _fewest_parts(candidates: dict[int, Part], totals: set[int]) -> set[int]:
    """Of batches that all fit one forward, those with the fewest parts: nn.DataParallel calls as many replicas."""
    fewest = min((candidates[total].used for total in totals), default=0)
    return {total for total in totals if candidates[total].used == fewest}


def stands_by() -> bool:
    """Whether none of the samples of the batch that is trained on is this rank's: it takes part on some of rank 0's.

    That is the batch drawn last, or the one before it by as many as the loop draws ahead; after the loop the last one.
    No collective.
    """
    record = next(reversed(_in_play or _latest), None)
    if record is None:
        return False
    window = record.lead or 1
    drawn = {index: part for part, index in record.last.items() if index > record.count - window}
    return drawn[max(drawn) if record.ended else min(drawn)].size == 0


def share(*values: Any) -> float:
    """What a loss of ``values`` counts that has no graph: as ``weight``, but of a part drawn for evaluation too."""
    if _evaluated is not None and (evaluation.is_running() or not torch.is_grad_enabled()):
        return _evaluated[1].weight
    return weight(*values) if tensors(values) else _last_weight()


def _last_weight() -> float:
    """What the part weighs that was drawn last, also after the loop; no collective.

    Raises:
        RuntimeError: several parts could be meant, which weigh differently.
    """
    for record in _latest:
        if record.lead is None:  # nothing was trained on in this loop: it evaluates
            record.lead = 1 if record.ended else record.count
    candidates = [part for record in _latest for part in record.candidates()]
    weights = {part.weight for part in candidates}
    if len(weights) > 1:
        sizes = ", ".join(f"{part.size} of {part.total}" for part in candidates)
        raise RuntimeError(
            f"a number can't be assigned to a batch of the loaders in use (local batches: {sizes} samples): use a "
            "number of processes that divides these batch sizes"
        )
    return weights.pop() if weights else 1.0


def adds() -> bool:
    """Whether a sum that has no graph adds to that of the batch: it does where this rank has any sample of that."""
    if _evaluated is not None and (evaluation.is_running() or not torch.is_grad_enabled()):
        return _evaluated[1].size > 0
    return not stands_by()


def rows() -> int | None:
    """How many samples the part has that was handed out last; None where that can't be told."""
    if _evaluated is not None:
        return _evaluated[1].rows
    found = {part.rows for part in _candidates().values()}
    return found.pop() if len(found) == 1 else None


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in nested tuples, lists, dicts and dataclasses."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for leaf in nested.flatten(value, dataclasses=True) if isinstance(leaf, torch.Tensor)]
