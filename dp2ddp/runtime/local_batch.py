"""Batches that the program makes itself, of slices or a replay buffer: each rank takes its part of them.

All ranks make the same batch, and so draw alike. What a rank takes of it is noted as the part of a loader is (see
``parts``), so that parts of different sizes weigh by these.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.optim.optimizer import register_optimizer_step_post_hook

from . import aside, dealing, digests, lines, nested, parts, ranks, unwrapped
from .exchange import exchange

_EVERY = 1000  # batches after which they are compared once more


@dataclass(eq=False)
class _Site:
    """A line that takes parts of batches."""

    taken: int = 0


_sites: dict[tuple[CodeType, int], _Site] = {}
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
            out, all with as many samples; or a list of anything else with a sample in each place. Lists and tuples in
            another one may be either. Numbers, strings and None are handed on, and None alone.
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
    if all(it is None for it in _leaves(batch)):  # by which some say that there are no more
        return batch
    batch = tuple(batch) if isinstance(batch, zip | map) else batch
    total = _total_along(batch, dim) if dim else _total(batch)
    site = _site(sys._getframe(1))
    _compare(site, batch)
    _begin_round(site)
    world = ranks.get_world_size()
    own = dealing.chunk(total, ranks.get_rank(), world)
    parts.handed(site, parts.Part(own.stop - own.start, total, weighed), training=True)
    taken = own if own.stop > own.start else dealing.chunk(total, 0, world)
    if dim:
        return _cut_along(batch, dim, taken)
    return _cut(batch, total, taken) if _is_structure(batch) else batch[taken]


def is_used() -> bool:
    """Whether the program has taken parts of batches."""
    return bool(_sites)


def _site(frame: Any) -> _Site:
    if not _sites:
        register_optimizer_step_post_hook(_stepped)
    return _sites.setdefault((frame.f_code, frame.f_lasti), _Site())


def _begin_round(site: _Site) -> None:
    """Forget what other lines took before an optimizer's step: this round may take another branch, and come to none."""
    global _has_stepped
    if _has_stepped:
        _has_stepped = False
        parts.forget(it for it in _sites.values() if it is not site)


def _total(batch: Any) -> int:
    """How many samples a batch has."""
    found = _within(batch) if _is_structure(batch) else {len(batch)} if _is_sized(batch) else set()
    if isinstance(batch, list) and len(batch) > 3 and all(map(_is_array, batch)):
        if len({_shown(it) for it in batch}) == 1:  # views of a batch, or samples
            found = set()
    if len(found) == 1 and (total := max(found)) > 0:
        return total
    raise ValueError(
        f"local_batch() can't tell how many samples {_shown(batch)} has, at {lines.site()}: give it a tensor, or "
        "a tuple of tensors with as many rows each"
    )


def _is_structure(batch: Any) -> bool:
    """Whether a batch is one of several tensors or the like; else it has a sample in each place."""
    if isinstance(batch, list):
        return all(map(_is_array, batch))
    return isinstance(batch, tuple | Mapping)


def _within(value: Any) -> set[int]:
    """The numbers of samples that all entries may have."""
    found = [sizes for it in _entries(value) if (sizes := _sizes(it))]
    return set.intersection(*found) if found else set()


def _sizes(value: Any) -> set[int]:
    """How many samples a value may have; none for what is handed on."""
    if isinstance(value, PackedSequence):
        return {-1}  # nothing has as many
    if isinstance(value, Mapping):
        return _within(value)
    if isinstance(value, list | tuple):
        within = _within(value)
        return {-1} if within == {len(value)} and len(value) > 1 else within | {len(value)}
    return {len(value)} if _is_sized(value) else set()


def _entries(value: Any) -> Iterator[Any]:
    return iter(value.values() if isinstance(value, Mapping) else value)


def _is_array(value: Any) -> bool:
    """Whether a value is a tensor, or an array of any library, with dimensions."""
    return bool(getattr(value, "shape", ())) and hasattr(value, "dtype")


def _is_sized(value: Any) -> bool:
    """Whether a value has a sample in each of its places."""
    if isinstance(value, str | bytes):
        return False
    return hasattr(value, "__len__") and hasattr(value, "__getitem__") and getattr(value, "shape", None) != ()


def _cut(value: Any, total: int, own: slice) -> Any:
    """The samples ``own`` of a batch, or of an entry of one."""
    if isinstance(value, Mapping):
        new: Any = copy(value)
        for key, it in value.items():
            new[key] = _cut(it, total, own)
        return new
    if isinstance(value, list | tuple) and _within(value) == {total}:
        entries = [_cut(it, total, own) for it in value]
        return type(value)(*entries) if hasattr(value, "_fields") else type(value)(entries)
    return value[own] if _is_sized(value) else value


def _total_along(batch: Any, dim: int) -> int:
    """How many samples tensors have in a dimension other than 0, all of them as many."""
    found = {it.shape[dim] if it.dim() > dim else -1 for it in parts.tensors(batch)}
    if len(found) == 1 and (total := max(found)) > 0:
        return total
    raise ValueError(
        f"local_batch() can't tell how many samples {_shown(batch)} has in dimension {dim}, at {lines.site()}: give it "
        "tensors that have as many there"
    )


def _cut_along(value: Any, dim: int, own: slice) -> Any:
    """The samples ``own`` of tensors that have them in a dimension other than 0, in memory of their own."""
    leaves = nested.flatten(value, dataclasses=True)
    index = (slice(None),) * dim + (own,)
    cut = [it[index].contiguous() if isinstance(it, torch.Tensor) else it for it in leaves]
    return nested.unflatten(value, cut, dataclasses=True)


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {_shown(it)}" for key, it in value.items()) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_shown, value)) + ")"
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"{type(value).__name__}{list(shape)} of {getattr(value, 'dtype', 'numbers')}"
    return f"{type(value).__name__} of {len(value)}" if _is_sized(value) else type(value).__name__


# Whether the ranks have made the same batch


def _compare(site: _Site, batch: Any) -> None:
    taken = site.taken
    site.taken += 1
    if taken & (taken - 1) and taken % _EVERY:
        return
    wanted = os.environ.get(unwrapped.VARIABLE, "1") != "0"
    said = exchange("local_batch()", (wanted, _digest(batch) if wanted else ""))
    if said[0][0] and len({digest for _, digest in said}) > 1:
        raise RuntimeError(
            f"the ranks have made different batches at {lines.site()}: draw them alike, from seeded generators, and "
            f"of the same data. {unwrapped.HOW_TO_GO_ON}"
        )


def _digest(batch: Any) -> str:
    """What batches are compared by: their structure, and what is no number that a GPU has computed."""
    found = hashlib.sha256(_shown(batch).encode())
    for leaf in _leaves(batch):
        if isinstance(leaf, torch.Tensor):
            if leaf.device.type == "cpu" or not leaf.is_floating_point():
                found.update(str(digests.fetched([digests.digest(leaf)])).encode())
        elif _is_sized(leaf):
            found.update(_bytes(leaf))
    return found.hexdigest()


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple | Mapping):
        for it in _entries(value):
            yield from _leaves(it)
    else:
        yield value


def _bytes(value: Any) -> bytes:
    try:
        return pickle.dumps(value)
    except Exception:  # what can't be pickled is not compared
        return b""
