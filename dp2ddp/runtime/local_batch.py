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
from functools import partial
from types import CodeType
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from . import aside, dealing, digests, lines, parts, ranks, unwrapped
from .exchange import exchange

_EVERY = 1000  # batches after which they are compared once more


@dataclass(eq=False)
class _Site:
    """A line that takes parts of batches."""

    taken: int = 0


_sites: dict[tuple[CodeType, int], _Site] = {}


def local_batch(batch: Any, weighed: bool = True, if_wrapped: bool = False) -> Any:
    """This rank's part of a batch that all ranks have made, for training.

    It is cut as nn.DataParallel cuts it, ``torch.chunk(batch, W)``: ranks get ceil(N / W) samples in a row, the last
    ones fewer. A rank for which none is left gets rank 0's, which then weigh 0, as with ``shard``::

        for start in range(0, len(order), 64):
            picked = ddp.local_batch(order[start : start + 64])
            loss = criterion(model(inputs[picked]), targets[picked])

    The ranks must have made the same batch: after 1, 2, 4, 8, … and then every 1,000 batches that a line has cut they
    compare it (``DP2DDP_CHECK=0`` turns that off, too).

    Args:
        batch: a tensor, array or list with a sample in each place of dimension 0; or a tuple or dict of these, all
            with as many samples. A tuple in a tuple may also have a sample in each place. Numbers, strings and None in
            it are handed on.
        weighed: whether parts weigh by their numbers of samples, as in ``shard``.
        if_wrapped: for a model that is wrapped under a condition only, as in ``shard``.

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
    batch = tuple(batch) if isinstance(batch, zip | map) else batch
    total = _total(batch)
    site = _site(sys._getframe(1))
    _compare(site, batch)
    world = ranks.get_world_size()
    own = dealing.chunk(total, ranks.get_rank(), world)
    parts.handed(site, parts.Part(own.stop - own.start, total, weighed), training=True)
    return _cut(batch, total, own if own.stop > own.start else dealing.chunk(total, 0, world))


def _site(frame: Any) -> _Site:
    return _sites.setdefault((frame.f_code, frame.f_lasti), _Site())


def _total(batch: Any) -> int:
    """How many samples a batch has."""
    found = [_sizes(it) for it in _entries(batch)] if _is_structure(batch) else [{len(batch)} if _is_sized(batch) else {}]
    sizes = [set(it) for it in found if it]
    common = set.intersection(*sizes) if sizes else set()
    if len(common) == 1 and (total := common.pop()):
        return total
    raise ValueError(f"local_batch() can't tell how many samples {_shown(batch)} has, called at {lines.site()}")


def _sizes(value: Any) -> set[int]:
    """What numbers of samples an entry of a batch may have; empty for what is handed on."""
    if isinstance(value, PackedSequence):
        return {-1}
    if not _is_structure(value):
        return {len(value)} if _is_sized(value) else set()
    inner = [found for it in _entries(value) if (found := _sizes(it))]
    within = set.intersection(*inner) if inner else set()
    return within | ({len(value)} if isinstance(value, tuple) else set())


def _is_structure(value: Any) -> bool:
    return isinstance(value, tuple | Mapping) and not isinstance(value, PackedSequence)


def _entries(value: Any) -> Iterator[Any]:
    return iter(value.values() if isinstance(value, Mapping) else value)


def _is_sized(value: Any) -> bool:
    """Whether a value has a sample in each of its places."""
    if isinstance(value, torch.Tensor):
        return value.dim() > 0
    if isinstance(value, str | bytes):
        return False
    return hasattr(value, "__len__") and hasattr(value, "__getitem__") and getattr(value, "shape", None) != ()


def _cut(value: Any, total: int, own: slice, inside: bool = False) -> Any:
    if not _is_structure(value):
        return value[own] if _is_sized(value) else value
    cut = partial(_cut, total=total, own=own, inside=True)
    if isinstance(value, Mapping):
        new: Any = copy(value)
        for key, it in value.items():
            new[key] = cut(it)
        return new
    if inside and not all(total in found for it in value if (found := _sizes(it))) or not any(map(_sizes, value)):
        return value[own]
    entries = [cut(it) for it in value]
    return type(value)(*entries) if hasattr(value, "_fields") else type(value)(entries)


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {_shown(it)}" for key, it in value.items()) + "}"
    if _is_structure(value):
        return "(" + ", ".join(map(_shown, value)) + ")"
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"{type(value).__name__}{list(shape)}"
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
    if _is_structure(value) or type(value) is list:
        for it in _entries(value):
            yield from _leaves(it)
    else:
        yield value


def _bytes(value: Any) -> bytes:
    try:
        return pickle.dumps(value)
    except Exception:  # what can't be pickled is not compared
        return b""
