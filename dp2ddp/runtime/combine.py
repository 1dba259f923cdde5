"""Combining what ranks hold: every rank calls, every rank gets the result.

All of it begins with one exchange of bytes, in which each rank also says what it calls and what it holds. So ranks that
call different things, or the same with different structures, get an error and not each other's numbers.
"""

from __future__ import annotations

import builtins
import io
import pickle
import sys
from collections.abc import Iterable
from contextlib import suppress
from copy import copy
from itertools import chain
from numbers import Number
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from . import debug, nested, ranks
from .shard import positions

Value = TypeVar("Value")

_FIRST = 4096  # bytes that the first exchange holds: what is shorter needs no second one
_FEW = 64  # elements: a tensor on the CPU with no more of them travels with that exchange


def sum(value: Value) -> Value:
    """The sum of ``value`` over all ranks.

    Args:
        value: a number, a tensor or array, a meter (an object with the numbers ``sum``, or ``total``, and ``count``),
            or lists, tuples and dicts of these, nested in any way: then element by element. The structure, and the
            shapes and types of tensors, are the same on every rank. It is not changed.

    Returns:
        As ``value``: new tensors on the same device, without a graph; a copy of a meter with the sums, and with
        ``avg`` their ratio if it has that attribute. Booleans count as integers. In a plain process, the value itself.

    Raises:
        TypeError: none of these.
        RuntimeError: the ranks' values differ in structure, or another rank calls something else of this package. A
            rank that is in another library's collective is noticed with ``DP2DDP_DEBUG=1`` only.
    """
    leaves = nested.flatten(value)
    if ranks.is_alone("sum()"):
        _check("sum()", leaves)
        return value
    totals = _totals("sum()", value)
    return nested.unflatten(
        value, [_with_sum(leaf, *total) for leaf, total in zip(leaves, totals, strict=True)]
    )


def mean(value: Value) -> Value:
    """The mean of ``value`` over the ranks, each counting the same, however many samples it stands for.

    For a metric over samples divide sums instead, ``sum(correct) / sum(count)``, or pass a meter, which is weighed.

    Args:
        value: as in ``sum``; a tensor of integers gives a tensor of floats.

    Returns:
        As in ``sum``; for a meter its average over what all ranks counted, a number (NaN if they counted nothing).

    Raises:
        TypeError, RuntimeError: as in ``sum``.
    """
    leaves = nested.flatten(value)
    if ranks.is_alone("mean()"):
        _check("mean()", leaves)
        if not any(map(_is_meter, leaves)):
            return value
        return nested.unflatten(value, [_ratio(*_addends(x)) if _is_meter(x) else x for x in leaves])
    totals = _totals("mean()", value)
    return nested.unflatten(value, [_mean(leaf, *total) for leaf, total in zip(leaves, totals, strict=True)])


def gather(value: Any, *, samples_of: Any = None) -> Any:
    """The ranks' values, in the order of ranks; or, with ``samples_of``, the samples' values in the loader's order.

    Args:
        value: anything that can be pickled; tensors come back without a graph, on each rank's own device. With
            ``samples_of`` a list, tuple, tensor or array, or a dict of these, with one entry for each sample that
            this rank drew, in that order.
        samples_of: the loader whose last epoch these samples were: one that ``shard`` made, or a DataLoader with
            torch's DistributedSampler.

    Returns:
        A list as long as the world, on every rank; ``[value]`` in a plain process. With ``samples_of``, as ``value``
        with the entries of all ranks in the order of the loader's global batches (that of the data set, if it is not
        shuffled), each sample once: what padding repeats is left out. In a plain process, the value itself.

    Raises:
        ValueError: with ``samples_of``, a rank has more or fewer entries than samples.
        TypeError: with ``samples_of``, a value has no entries.
        RuntimeError: another rank calls something else, as in ``sum``; with ``samples_of``, the structures differ.
    """
    if ranks.is_alone("gather()"):
        return [value] if samples_of is None else value
    values = exchange("gather()", value)
    return values if samples_of is None else _in_order(values, positions(samples_of))


def exchange(what: str, value: Any) -> list[Any]:
    """The ranks' values, in the order of ranks, if every rank is in the collective ``what``."""
    debug.meet(what)
    answers = [pickle.loads(data) for data in _exchange_bytes(_pickled((what, debug.site(), value)))]
    if any(other != what for other, _, _ in answers):
        calls = ", ".join(
            f"rank {rank} calls {other} at {site}" for rank, (other, site, _) in enumerate(answers)
        )
        raise RuntimeError(f"every rank must make the same calls in the same order, but {calls}")
    return [answer for _, _, answer in answers]


# Sums


def _totals(what: str, value: Any) -> list[list[Any]]:
    """For each leaf of ``value`` the sums over all ranks of its addends, as tensors or Python's numbers."""
    leaves, problem, signature, addends = nested.flatten(value), "", "", []
    try:
        _check(what, leaves)
        signature = nested.describe(value, _kind)
        addends = [_plain(addend) for leaf in leaves for addend in _addends(leaf)]
    except TypeError as error:
        problem = str(error)
    answers = exchange(what, (problem, signature, [_light(a) for a in addends if not _is_heavy(a)]))
    _compare(what, answers)
    light = map(_add, zip(*(numbers for _, _, numbers in answers), strict=True))
    heavy = iter(_all_reduce([addend for addend in addends if _is_heavy(addend)]))
    totals = iter([next(heavy) if _is_heavy(a) else _from_light(next(light), a) for a in addends])
    return [[next(totals) for _ in _addends(leaf)] for leaf in leaves]


def _check(what: str, leaves: list[Any]) -> None:
    for leaf in leaves:
        if not (_is_addend(leaf) or _is_meter(leaf)):
            raise TypeError(
                f"{what} takes numbers, tensors, arrays and meters (objects with the numbers sum and count), also in "
                f"lists, tuples and dicts, not {type(leaf).__name__}"
            )


def _compare(what: str, answers: list[tuple[str, str, Any]]) -> None:
    """Complain, on every rank, about what can't be added."""
    for rank, (problem, _, _) in enumerate(answers):
        if problem:
            raise TypeError(problem if rank == ranks.get_rank() else f"rank {rank}: {problem}")
    signatures = [signature for _, signature, _ in answers]
    if len(set(signatures)) > 1:
        has = ", ".join(f"rank {rank} has {_shortened(text)}" for rank, text in enumerate(signatures))
        raise RuntimeError(f"{what} needs the same structure on every rank, but {has}")


def _shortened(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:300]} …"


def _kind(leaf: Any) -> str:
    if _is_meter(leaf):
        return f"{type(leaf).__name__}({', '.join(map(_kind, _addends(leaf)))})"
    if _is_array(leaf):
        return f"array of {leaf.dtype} {list(leaf.shape)}"
    if isinstance(leaf, torch.Tensor):
        return f"{leaf.device.type} tensor of {str(leaf.dtype).removeprefix('torch.')} {list(leaf.shape)}"
    return "number"


def _is_addend(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or _is_array(value) or _is_number(value)


def _is_number(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return isinstance(value, Number) or (numpy is not None and isinstance(value, numpy.number | numpy.bool_))


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray) and value.dtype.kind in "biufc"


def _is_meter(leaf: Any) -> bool:
    return not _is_addend(leaf) and all(map(_is_addend, _meters_addends(leaf)))


def _addends(leaf: Any) -> list[Any]:
    return _meters_addends(leaf) if _is_meter(leaf) else [leaf]


def _meters_addends(meter: Any) -> list[Any]:
    return [getattr(meter, _sums_name(meter), None), getattr(meter, "count", None)]


def _sums_name(meter: Any) -> str:
    return "sum" if hasattr(meter, "sum") else "total"  # as torchvision's SmoothedValue calls it


def _plain(addend: Any) -> Any:
    if _is_array(addend):
        addend = torch.from_numpy(addend.copy())
    if isinstance(addend, torch.Tensor):
        return addend.detach().long() if addend.dtype is torch.bool else addend.detach()
    return addend.item() if hasattr(addend, "item") else addend


def _is_heavy(addend: Any) -> bool:
    return isinstance(addend, torch.Tensor) and (addend.device.type != "cpu" or addend.numel() > _FEW)


def _light(addend: Any) -> list[Any]:
    """The numbers in it: pickled, a list is a tenth of a tensor."""
    return addend.flatten().tolist() if isinstance(addend, torch.Tensor) else [addend]


def _from_light(total: list[Any], like: Any) -> Any:
    if isinstance(like, torch.Tensor):
        return torch.tensor(total, dtype=like.dtype, device=like.device).reshape(like.shape)
    return total[0]


def _add(lists: Iterable[list[Any]]) -> list[Any]:
    return [builtins.sum(rest, first) for first, *rest in zip(*lists, strict=True)]


def _all_reduce(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The sums over all ranks: one collective for all tensors of a device and type."""
    totals = list(tensors)
    groups: dict[Any, list[int]] = {}
    for index, tensor in enumerate(tensors):
        groups.setdefault((tensor.device, tensor.dtype), []).append(index)
    for indices in groups.values():
        joined = torch.cat([tensors[index].flatten() for index in indices])
        dist.all_reduce(joined)
        pieces = joined.split([tensors[index].numel() for index in indices])
        for index, piece in zip(indices, pieces, strict=True):
            totals[index] = piece.reshape(tensors[index].shape)
    return totals


def _with_sum(leaf: Any, total: Any, count: Any = None) -> Any:
    if count is None:
        return _as_was(leaf, total)
    meter, name = copy(leaf), _sums_name(leaf)
    setattr(meter, name, _as_was(getattr(leaf, name), total))
    meter.count = _as_was(leaf.count, count)
    if count and hasattr(leaf, "avg") and not callable(leaf.avg):
        with suppress(AttributeError):  # a property: it divides itself
            meter.avg = _as_was(leaf.avg, _ratio(total, count))
    return meter


def _mean(leaf: Any, total: Any, count: Any = None) -> Any:
    return _as_was(leaf, total / ranks.get_world_size()) if count is None else _ratio(total, count)


def _ratio(total: Any, count: Any) -> Any:
    return total / count if isinstance(count, torch.Tensor) or count else float("nan")


def _as_was(value: Any, total: Any) -> Any:
    """``total`` as numpy's, where ``value`` is."""
    if _is_array(value):
        return total.numpy()
    is_numpys = not isinstance(value, torch.Tensor) and hasattr(value, "item")
    return type(value)(total) if is_numpys and isinstance(total, type(value.item())) else total


# The samples' values


def _in_order(values: list[Any], drawn: list[list[int | None]]) -> Any:
    """The ranks' values as one, by the positions of the samples that each rank drew; None is left out."""
    for rank, (value, places) in enumerate(zip(values, drawn, strict=True)):
        for column in _columns(value):
            if not _has_entries(column):
                raise TypeError(
                    "gather(…, samples_of=loader) takes a list, tuple, tensor or array with one entry for each "
                    f"sample, or a dict of these, not {type(column).__name__}"
                )
            if len(column) != len(places):
                raise ValueError(
                    f"gather(…, samples_of=loader) needs one entry for each sample that a rank drew in the loader's "
                    f"last epoch, but rank {rank} has {len(column)} entries for {len(places)} samples"
                )
    places = enumerate(chain.from_iterable(drawn))
    order = [
        index
        for index, place in sorted(((i, p) for i, p in places if p is not None), key=lambda pair: pair[1])
    ]
    return _joined(values, order)


def _columns(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [column for item in value.values() for column in _columns(item)]
    return [value]


def _has_entries(column: Any) -> bool:
    if isinstance(column, torch.Tensor) or (hasattr(column, "shape") and hasattr(column, "dtype")):
        return len(column.shape) > 0
    return isinstance(column, list | tuple)


def _joined(parts: list[Any], order: list[int]) -> Any:
    """The parts one after the other, and of the result the entries that ``order`` names."""
    first = parts[0]
    forms = [_form(part) for part in parts]
    if len(set(forms)) > 1:
        have = ", ".join(f"rank {rank} has {form}" for rank, form in enumerate(forms))
        raise RuntimeError(f"gather(…, samples_of=loader) needs the same structure on every rank, but {have}")
    if isinstance(first, dict):
        return {key: _joined([part[key] for part in parts], order) for key in first}
    if isinstance(first, torch.Tensor):
        return torch.cat(parts)[torch.tensor(order, dtype=torch.long, device=first.device)]
    if isinstance(first, list | tuple):
        entries = list(chain.from_iterable(parts))
        return type(first)([entries[index] for index in order])
    return sys.modules["numpy"].concatenate(parts)[order]


def _form(part: Any) -> str:
    keys = f" of {', '.join(sorted(map(repr, part)))}" if isinstance(part, dict) else ""
    return type(part).__name__ + keys


# Bytes


class _Pickler(pickle.Pickler):
    """Pickles tensors without their graph, without the rest of the storage they are a view of, and off the GPU."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is not torch.Tensor or obj.layout is not torch.strided:
            return NotImplemented
        if obj.device.type != "cpu":
            return _to_own_device, (obj.detach().cpu(),)
        tensor = obj.detach()
        if tensor.untyped_storage().nbytes() > tensor.nbytes:
            tensor = tensor.clone()
        return tensor.__reduce_ex__(pickle.HIGHEST_PROTOCOL)


def _to_own_device(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(ranks.device())


def _pickled(value: Any) -> bytes:
    file = io.BytesIO()
    _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getvalue()


def _exchange_bytes(data: bytes) -> list[bytearray]:
    """Every rank's bytes, in the order of ranks."""
    framed = len(data).to_bytes(8, "little") + data
    starts = _all_gather(framed[:_FIRST], _FIRST)
    sizes = [8 + int.from_bytes(start[:8], "little") for start in starts]
    longest = max(sizes)
    rests = (
        _all_gather(framed[_FIRST:], longest - _FIRST) if longest > _FIRST else [bytearray()] * len(starts)
    )
    return [(start + rest)[8:size] for start, rest, size in zip(starts, rests, sizes, strict=True)]


def _all_gather(data: bytes, size: int) -> list[bytearray]:
    """Every rank's ``data``, filled up to ``size`` bytes."""
    # torch.distributed's own all_gather_object needs numpy in torch 2.4, and two collectives
    mine = torch.zeros(size, dtype=torch.uint8, device="cpu")
    if data:
        mine[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    mine = mine.to(ranks.talk_device())
    parts = [torch.empty_like(mine) for _ in range(ranks.get_world_size())]
    dist.all_gather(parts, mine)
    received = [bytearray(size) for _ in parts]
    for buffer, part in zip(received, parts, strict=True):
        torch.frombuffer(buffer, dtype=torch.uint8).copy_(part)
    return received
