"""Combining what ranks hold: every rank calls, every rank gets the result.

All of it begins with one exchange, in which each rank also says what it holds. So ranks that call with different
structures get an error and not each other's numbers.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterable
from contextlib import suppress
from copy import copy
from itertools import chain
from typing import Any, NamedTuple, NoReturn, TypeVar

import torch
import torch.distributed as dist

from . import nested, parts, plain, ranks
from .dtypes import common_type
from .exchange import exchange
from .shard import batches, positions

Value = TypeVar("Value")

_ADDEND = "\0"  # stands for an addend in a structure in words
_FEW = 64  # elements: a tensor on the CPU with no more of them travels with the exchange


def sum(value: Value) -> Value:
    """The sum of ``value`` over all ranks.

    Args:
        value: a number, a tensor or array, a meter (an object with the numbers ``sum``, or ``total``, and ``count``),
            or lists, tuples and dicts of these, nested in any way: then element by element. The structure, and the
            shapes and types of tensors, are the same on every rank; but where some have tensors or arrays others may
            have the number 0, with which their sums begin. It is not changed.

    Returns:
        As ``value``: new tensors on the same device, without a graph; a copy of a meter with the sums, and with
        ``avg`` their ratio if it has that attribute. Booleans count as integers; integers wrap around at the end of
        their type. In a plain process, the value itself.

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


def local_sum(value: Value) -> Value:
    """What this rank adds to a sum over the samples of the batch that is trained on.

    Of a batch with fewer samples than ranks, some ranks have none: they take part in the step with samples of rank 0's,
    which count there. What a loop adds up is combined once, by ``sum``, after it::

        correct += ddp.local_sum((outputs.argmax(1) == labels).sum().item())

    Args:
        value: of this rank's part of the batch: a number, a tensor or array, or lists, tuples and dicts of these.

    Returns:
        ``value``, or zeros of its kind on a rank that has no sample of the batch. No rank waits for others.

    Raises:
        TypeError: none of these.
    """
    leaves = nested.flatten(value)
    _check("local_sum()", leaves, meters=False)
    return nested.unflatten(value, [_zeros(leaf) for leaf in leaves]) if parts.stands_by() else value


def batch_sum(value: Value) -> Value:
    """The sum of ``value`` over the samples of the batch that is trained on: that of all ranks' ``local_sum(value)``.

    After a loop over batches of one size (``drop_last=True``) also that of what the loop added up.

    Args, Returns, Raises: as in ``sum``, but for meters.
    """
    return sum(local_sum(value))


def mean(value: Value) -> Value:
    """The mean of ``value`` over the ranks, each counting the same, however many samples it stands for.

    For a metric over samples divide sums instead, ``sum(correct) / sum(count)``, or pass a meter, which is weighed.

    Args:
        value: as in ``sum``; integers give floats.

    Returns:
        As in ``sum``; for a meter its average over what all ranks counted, a number (NaN if they counted nothing).

    Raises:
        TypeError, RuntimeError: as in ``sum``.
    """
    leaves = nested.flatten(value)
    if ranks.is_alone("mean()"):
        _check("mean()", leaves)
        return nested.unflatten(value, [_own_mean(leaf) for leaf in leaves])
    totals = _totals("mean()", _with_floats(value, leaves))
    return nested.unflatten(value, [_mean(leaf, *total) for leaf, total in zip(leaves, totals, strict=True)])


def gather(value: Any, *, samples_of: Any = None) -> Any:
    """The ranks' values, in the order of ranks; or, with ``samples_of``, the samples' values in the loader's order.

    Args:
        value: anything that can be pickled; tensors come back without a graph, on each rank's own device. With
            ``samples_of`` a list, tuple, tensor or array, or a dict of these, with one entry for each sample that
            this rank drew, in that order; or, of a loader given to ``shard_batches``, for each batch.
        samples_of: the loader whose last epoch these samples were: one that ``shard`` made, one given to
            ``shard_batches``, or a DataLoader with torch's DistributedSampler.

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
    return values if samples_of is None else _in_order(values, positions(samples_of), batches(samples_of))


# Sums


def _totals(what: str, value: Any) -> list[list[Any]]:
    """For each leaf of ``value`` the sums over all ranks of its addends: tensors, arrays or Python's numbers."""
    leaves, problem, structure, addends, likes = nested.flatten(value), "", "", [], []
    try:
        _check(what, leaves)
        structure = nested.describe(value, _form_of)
        given = [addend for leaf in leaves for addend in _addends(leaf)]
        addends = [_plain(addend) for addend in given]
        likes = [_like(*pair) for pair in zip(given, addends, strict=True)]
    except TypeError as error:
        problem = str(error)
    lights = [None if _is_heavy(addend) else _light(addend) for addend in addends]
    answers = exchange(what, (problem, structure, likes, lights))
    _compare(what, answers)
    columns = list(zip(*(likes for _, _, likes, _ in answers), strict=True))
    forms = [_form_of_all(column) for column in columns]
    if None in forms:
        _complain(what, answers)
    addends = [_begun(addend, form) for addend, form in zip(addends, forms, strict=True)]
    heavy = iter(_all_reduce([addend for addend in addends if _is_heavy(addend)]))
    numbers = zip(*(lights for _, _, _, lights in answers), strict=True)
    sums = [
        next(heavy) if _is_heavy(addend) else _from_light(_add(column, addend), addend)
        for addend, column in zip(addends, numbers, strict=True)
    ]
    totals = iter(
        total.numpy() if form and form.place == "array" else total
        for total, form in zip(sums, forms, strict=True)
    )
    return [[next(totals) for _ in _addends(leaf)] for leaf in leaves]


class _Like(NamedTuple):
    """What an addend is, for ranks that have the number 0 in its place."""

    place: str
    dtype: torch.dtype | None = None
    shape: tuple[int, ...] = ()

    def __str__(self) -> str:
        if self.dtype is None:
            return "number"
        what = "array" if self.place == "array" else f"{self.place} tensor"
        return f"{what} of {str(self.dtype).removeprefix('torch.')} {list(self.shape)}"

    def zeros(self) -> torch.Tensor:
        device = ranks.device() if self.place == ranks.device().type else "cpu"
        return torch.zeros(self.shape, dtype=self.dtype, device=device)


_NUMBER, _ZERO = _Like("number"), _Like("0")


def _like(addend: Any, sent: Any) -> _Like:
    if not isinstance(sent, torch.Tensor):
        return _NUMBER if addend else _ZERO
    return _Like("array" if plain.is_array(addend) else sent.device.type, sent.dtype, tuple(sent.shape))


def _form_of_all(column: tuple[_Like, ...]) -> _Like | None:
    """What the ranks' addends are together, where some may be the number 0; None if they are different things."""
    forms = set(column) - {_ZERO}
    if len(forms) > 1 and len({(it.place, it.shape) for it in forms}) == 1 and _NUMBER not in forms:
        dtype = common_type(it.dtype for it in forms)  # the samples of a part may decide its type
        return forms.pop()._replace(dtype=dtype) if dtype is not None else None
    return forms.pop() if len(forms) == 1 else None if forms else _NUMBER


def _begun(addend: Any, form: _Like) -> Any:
    """An addend as the other ranks have it."""
    if form == _NUMBER:
        return addend
    return addend.to(form.dtype) if isinstance(addend, torch.Tensor) else form.zeros()


def _check(what: str, leaves: list[Any], meters: bool = True) -> None:
    for leaf in leaves:
        if not (_is_addend(leaf) or (meters and _is_meter(leaf))):
            kinds = "numbers, tensors and arrays"
            if meters:
                kinds = "numbers, tensors, arrays and meters (objects with the numbers sum and count)"
            raise TypeError(
                f"{what} takes {kinds}, also in lists, tuples and dicts, not {type(leaf).__name__}"
            )


def _zeros(leaf: Any) -> Any:
    """Nothing, as a number, tensor or array like another one."""
    if isinstance(leaf, torch.Tensor):
        return torch.zeros_like(leaf)
    return sys.modules["numpy"].zeros_like(leaf) if plain.is_array(leaf) else type(leaf)(0)


def _compare(what: str, answers: list[Any]) -> None:
    """Complain, on every rank, about what can't be added."""
    for rank, (problem, *_) in enumerate(answers):
        if problem:
            raise TypeError(problem if rank == ranks.get_rank() else f"rank {rank}: {problem}")
    if len({structure for _, structure, _, _ in answers}) > 1:
        _complain(what, answers)


def _complain(what: str, answers: list[Any]) -> NoReturn:
    words = [_words(structure, likes) for _, structure, likes, _ in answers]
    has = ", ".join(f"rank {rank} has {_shortened(text)}" for rank, text in enumerate(words))
    raise RuntimeError(f"{what} needs the same structure on every rank, but {has}")


def _shortened(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:300]} …"


def _words(structure: str, likes: list[_Like]) -> str:
    """A structure with what its addends are."""
    pieces = zip(structure.split(_ADDEND), [*map(str, likes), ""], strict=True)
    return "".join(chain.from_iterable(pieces))


def _form_of(leaf: Any) -> str:
    """What a leaf is, apart from what its addends are."""
    return f"{type(leaf).__name__}({_ADDEND}, {_ADDEND})" if _is_meter(leaf) else _ADDEND


def _is_addend(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or plain.is_array(value) or plain.is_number(value)


def _is_meter(leaf: Any) -> bool:
    return not _is_addend(leaf) and all(map(_is_addend, _meters_addends(leaf)))


def _addends(leaf: Any) -> list[Any]:
    return _meters_addends(leaf) if _is_meter(leaf) else [leaf]


def _meters_addends(meter: Any) -> list[Any]:
    return [getattr(meter, _sums_name(meter), None), getattr(meter, "count", None)]


def _sums_name(meter: Any) -> str:
    return "sum" if hasattr(meter, "sum") else "total"  # as torchvision's SmoothedValue calls it


def _plain(addend: Any) -> Any:
    if plain.is_array(addend):
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
    if not isinstance(like, torch.Tensor):
        return total[0]
    if like.is_floating_point() or like.is_complex():
        return torch.tensor(total, dtype=like.dtype, device=like.device).reshape(like.shape)
    wrapped = [(number + 2**63) % 2**64 - 2**63 for number in total]  # as in a collective
    return torch.tensor(wrapped).to(like.device, like.dtype).reshape(like.shape)


def _add(lists: Iterable[list[Any]], like: Any) -> list[Any]:
    """The sums of the ranks' numbers, element by element; a 0 alone stands for as many as the others have."""
    count = like.numel() if isinstance(like, torch.Tensor) else 1
    full = [numbers if len(numbers) == count else [0] * count for numbers in lists]
    return [builtins.sum(rest, first) for first, *rest in zip(*full, strict=True)]


def _all_reduce(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The sums over all ranks: one collective for all tensors of a device and type."""
    totals = list(tensors)
    groups: dict[Any, list[int]] = {}
    for index, tensor in enumerate(tensors):
        groups.setdefault((tensor.device, tensor.dtype), []).append(index)
    for indices in groups.values():
        joined = torch.cat([tensors[index].flatten() for index in indices])
        sent = joined.to(ranks.talk_device(joined.device))
        dist.all_reduce(sent)
        pieces = sent.to(joined.device).split([tensors[index].numel() for index in indices])
        for index, piece in zip(indices, pieces, strict=True):
            totals[index] = piece.clone().reshape(tensors[index].shape)
    return totals


def _with_sum(leaf: Any, total: Any, count: Any = None) -> Any:
    if count is None:
        return plain.as_was(leaf, total)
    meter, name = copy(leaf), _sums_name(leaf)
    setattr(meter, name, plain.as_was(getattr(leaf, name), total))
    meter.count = plain.as_was(leaf.count, count)
    if count and hasattr(leaf, "avg") and not callable(leaf.avg):
        with suppress(AttributeError):  # a property: it divides itself
            meter.avg = plain.as_was(leaf.avg, _ratio(total, count))
    return meter


def _with_floats(value: Any, leaves: list[Any]) -> Any:
    """The value with double precision in place of integers, whose sums might wrap around."""
    return nested.unflatten(value, [_plain(leaf).double() if _is_integral(leaf) else leaf for leaf in leaves])


def _is_integral(leaf: Any) -> bool:
    if isinstance(leaf, torch.Tensor):
        return not (leaf.is_floating_point() or leaf.is_complex())
    return plain.is_array(leaf) and leaf.dtype.kind in "biu"


def _mean(leaf: Any, total: Any, count: Any = None) -> Any:
    if count is not None:
        return _ratio(total, count)
    mean = total / ranks.get_world_size()
    if isinstance(leaf, torch.Tensor) and _is_integral(leaf):
        mean = mean.to(torch.get_default_dtype())  # as a division gives it
    return plain.as_was(leaf, mean)


def _own_mean(leaf: Any) -> Any:
    """The mean over a group of one."""
    if _is_meter(leaf):
        return _ratio(*_addends(leaf))
    has_floats = (isinstance(leaf, torch.Tensor) or plain.is_array(leaf)) and not _is_integral(leaf)
    return leaf if has_floats else leaf / 1


def _ratio(total: Any, count: Any) -> Any:
    return total / count if isinstance(count, torch.Tensor) or count else float("nan")


# The samples' values


def _in_order(values: list[Any], samples: list[list[int | None]], batches: list[list[int]]) -> Any:
    """The ranks' values as one, by the positions of the samples, or batches, that each rank drew; None is left out."""
    lengths = [
        len(column) if _has_entries(column) else -1 for value in values for column in _columns(value)[:1]
    ]
    drawn = batches if any(batches) and lengths == [*map(len, batches)] else samples
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
