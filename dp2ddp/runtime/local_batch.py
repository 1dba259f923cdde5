"""Batches that the program makes itself, of slices or a replay buffer: each rank takes its part of them.

All ranks make the same batch, and so draw alike. What a rank takes of it is noted as the part of a loader is (see
``parts``), so that parts of different sizes weigh by these.
"""

from __future__ import annotations

import sys
from types import CodeType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from . import aside, cutting, dealing, lines, nested, parts, ranks, sameness, unwrapped

_sites: dict[tuple[CodeType, int], sameness.Compared] = {}
_has_stepped = False  # an optimizer, since a line took a part


def _stepped(*_: Any) -> None:
    global _has_stepped
    _has_stepped = True


def local_batch(batch: Any, weighed: bool = True, if_wrapped: bool = False, dim: int = 0) -> Any:
    """This rank's part of a batch that all ranks have made, for training.

    It is cut as nn.DataParallel cuts it, ``torch.chunk(batch, W)``: ranks get ceil(N / W) samples in a row, the last
    ones fewer. A rank for which none is left gets rank 0's, which then weigh 0, as with ``shard``::

        for start in range(0, len(order), 64):
            picked = ddp.local_batch(order[start : start + 64])
            loss = criterion(model(inputs[picked]), targets[picked])

    With ``dim=1`` the samples are columns, as in sequences that stand side by side. What batches are cut from along
    another dimension may be taken once, before the loop, and so may the state that is handed from step to step::

        text = ddp.local_batch(columns(corpus, 64), dim=1)  # (T, N)
        hidden = ddp.local_batch(model.init_hidden(64), dim=1)  # (layers, N, H)
        for start in range(0, len(text) - 1, 35):
            outputs, hidden = model(text[start : start + 35], hidden)

    The ranks must have made the same batch: after 1, 2, 4, 8, … and then every 1,000 batches that a line has cut they
    compare it (``DP2DDP_CHECK=0`` turns that off, too).

    Args:
        batch: a tensor or array with the samples in dimension 0; a tuple, dict or list of these, as a DataLoader hands
            out, or an object of another class with such attributes, all with as many samples; or a list of anything
            else with a sample in each place. Lists and tuples in another one may be either. Numbers, strings and None
            are handed on, and None alone.
        weighed: whether parts weigh by their numbers of samples, as in ``shard``.
        if_wrapped: for a model that is wrapped under a condition only, as in ``shard``.
        dim: the dimension of the samples. Where it is not 0, ``batch`` is a tensor, or tuples, dicts and lists of such.

    Returns:
        The part, in the same structure. In a plain process or a group of one, ``batch`` itself.

    Raises:
        ValueError: what ``batch`` holds has different numbers of samples, or it is not clear how many.
        RuntimeError: the ranks have different batches.
    """
    if if_wrapped and not unwrapped.is_any_wrapped():
        aside.go_on_alone("no model is wrapped in ddp.DistributedDataParallel")
    if ranks.is_alone("local_batch()"):
        return batch
    unwrapped.divided(if_wrapped)
    if all(it is None for it in cutting.leaves(batch)):  # by which some say that there are no more
        return batch
    batch = tuple(batch) if isinstance(batch, zip | map) else batch
    total = _total_along(batch, dim) if dim else cutting.total(batch, "local_batch()", f"at {lines.site()}")
    site = _site(sys._getframe(1))
    site.compare(batch, "local_batch()", f"at {lines.site()}")
    _begin_round(site)
    world = ranks.get_world_size()
    own = dealing.chunk(total, ranks.get_rank(), world)
    parts.handed(site, parts.Part(own.stop - own.start, total, weighed), training=True)
    taken = own if own.stop > own.start else dealing.chunk(total, 0, world)
    if dim:
        return _cut_along(batch, dim, taken)
    return cutting.part(batch, total, taken)


def _site(frame: Any) -> sameness.Compared:
    if not _sites:
        register_optimizer_step_post_hook(_stepped)
    return _sites.setdefault((frame.f_code, frame.f_lasti), sameness.Compared())


def _begin_round(site: sameness.Compared) -> None:
    """Forget what other lines took before an optimizer's step: this round may take another branch, and come to none."""
    global _has_stepped
    if _has_stepped:
        _has_stepped = False
        parts.forget(it for it in _sites.values() if it is not site)


def _total_along(batch: Any, dim: int) -> int:
    """How many samples tensors have in a dimension other than 0, all of them as many."""
    found = {it.shape[dim] if it.dim() > dim else -1 for it in parts.tensors(batch)}
    if len(found) == 1 and (total := max(found)) > 0:
        return total
    raise ValueError(
        f"local_batch() can't tell how many samples {cutting.shown(batch)} has in dimension {dim}, at {lines.site()}: "
        "give it tensors that have as many there"
    )


def _cut_along(value: Any, dim: int, own: slice) -> Any:
    """The samples ``own`` of tensors that have them in a dimension other than 0, in memory of their own."""
    leaves = nested.flatten(value, dataclasses=True)
    index = (slice(None),) * dim + (own,)
    cut = [it[index].contiguous() if isinstance(it, torch.Tensor) else it for it in leaves]
    return nested.unflatten(value, cut, dataclasses=True)
