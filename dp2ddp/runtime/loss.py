"""Losses of the whole batch, from what each rank has of it.

DistributedDataParallel averages the ranks' gradients. That is the gradient of a mean over the whole batch only if
every rank's part counts the same in it. A sum, class weights, ``ignore_index`` and losses that compare samples with
each other need a factor or the other ranks' rows. It *replaces* what a forward weighs for the size of its part: both
together would be wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from . import cutting, debug, graph, nested, parts, persample, plain, ranks
from .exchange import exchange

Rows = TypeVar("Rows")
Loss = TypeVar("Loss")


def whole_batch(values: Rows, dim: int = 0, entries: bool | None = None, if_grad: bool = False) -> Rows:
    """The rows of all ranks, in the global batch's order, with the graph kept.

    For a loss that looks at the whole batch (contrastive, triplet, Dice ratios)::

        loss = contrastive(ddp.whole_batch(features), ddp.whole_batch(labels))

    The loss is then the whole batch's on every rank, and the step that of one process: call no ``batch_loss`` on it.
    The outputs of ``DataParallel`` are the whole batch's already.

    Args:
        values: this rank's rows, a tensor or array, or lists, tuples, dicts and objects of these; all ranks must call.
            The numbers of rows may differ between ranks. A rank whose part of the global batch is empty adds none. A
            list with an entry for each sample (strings, boxes, dicts of them) is joined as a list: one that has as many
            entries as this rank's part has samples, where the entries have other numbers of rows, or had them at this
            line before. None stays None, and other numbers and strings stay as they are, if all ranks have the same.
        dim: the dimension of the samples.
        entries: whether a list has an entry for each sample whose sizes don't tell: it has as many entries as this
            rank's part has samples, and these have as many rows, such as two boxes for each of two samples. False for
            one of several tensors with a row for each sample.
        if_grad: only where gradients are recorded: for a function that an evaluation uses, too, of which every rank
            evaluates whole batches under ``torch.no_grad()``. There ``values`` itself is returned.

    Returns:
        As ``values``: new tensors on the same device with N rows in place of this rank's. Where the ranks' types
        differ, as that of a batch may depend on its samples: of the type to which torch promotes them. Of a tensor
        without dimensions, such as a loss that a model returns: a vector of the ranks' that have samples, as
        nn.DataParallel makes it of its replicas'. In a plain process, ``values`` itself.

    Raises:
        TypeError: something else.
        ValueError: the other dimensions differ between ranks, types do that torch has none in common for, or numbers
            that are of no sample do.
        RuntimeError: another rank calls something else, as in ``sum``; the rows come from several batches; or a list
            may be one with an entry for each sample, or one of several tensors.
    """
    if if_grad and not torch.is_grad_enabled():
        return values
    if ranks.is_alone("whole_batch()"):
        _check(nested.flatten(cutting.opened(values)))
        return values
    values = persample.marked(cutting.opened(values), "whole_batch()", sys._getframe(1), entries)
    leaves = nested.flatten(values)
    _check(leaves)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    lists = [leaf for leaf in leaves if isinstance(leaf, persample.Entries)]
    held = [*tensors, *(tensor for entries in lists for tensor in entries.tensors)]
    weight = graph.forward_weight(*held)
    is_empty = (parts.share(values) if weight is None else weight) == 0
    if weight not in (None, 0, 1):
        tensors = [_without_weight(tensor) for tensor in tensors]
        lists = [entries.changed(_without_weight) for entries in lists]
    tensors = [tensor.reshape(1) if tensor.dim() == 0 else tensor for tensor in tensors]
    if is_empty:
        tensors = [tensor.narrow(dim, 0, 0) for tensor in tensors]
    gathered = graph.gather_all_rows(tensors, dim, "whole_batch()")
    graph.mark_whole(gathered)
    joined = persample.gathered(lists, "whole_batch()", is_empty)
    others = [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor | persample.Entries | None)]
    whole = {
        torch.Tensor: iter(gathered),
        persample.Entries: iter(joined),
        object: _others(others, dim, is_empty),
    }
    found = [None if leaf is None else next(whole[_kind(leaf)]) for leaf in leaves]
    first: dict[int, Any] = {}  # what was one tensor by two names still is
    found = [first.setdefault(id(leaf), it) for leaf, it in zip(leaves, found, strict=True)]
    return cutting.closed(nested.unflatten(values, found))


def _kind(leaf: Any) -> type:
    return next(kind for kind in (torch.Tensor, persample.Entries, object) if isinstance(leaf, kind))


def _check(leaves: list[Any]) -> None:
    """Complain about what has no rows."""
    for leaf in leaves:
        fits = isinstance(leaf, torch.Tensor | persample.Entries | str | bytes | None) or plain.is_number(
            leaf
        )
        if not (fits or plain.is_array(leaf, kinds="")):
            raise TypeError(
                f"whole_batch() takes tensors with one row for each sample, not {type(leaf).__name__}"
            )


def _others(leaves: list[Any], dim: int, is_empty: bool) -> Iterator[Any]:
    """Arrays joined, numbers and strings as they are."""
    if not leaves:
        return
    own = [leaf.take([], dim) if is_empty and plain.is_array(leaf, kinds="") else leaf for leaf in leaves]
    for column in zip(*exchange("whole_batch()", own), strict=True):
        if any(plain.is_array(it, kinds="") for it in column):
            yield sys.modules["numpy"].concatenate(column, axis=dim)
        elif all(it == column[0] or it != it for it in column):
            yield column[0]
        else:
            have = ", ".join(f"rank {rank} has {it!r}" for rank, it in enumerate(column))
            raise ValueError(
                f"whole_batch() takes rows, one for each sample: a number must be the same on every rank, but {have}"
            )


def _without_weight(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, its gradient divided by what the forward that it comes from multiplies with."""
    weight = graph.forward_weight(tensor, alone=True) or 1.0
    return tensor if weight == 1 else _Replaced.apply(tensor, tensor.detach(), 1 / weight)


def batch_loss(loss: Loss, weight: float | torch.Tensor | None = None, reduction: str = "mean") -> Loss:
    """The loss of the whole batch, from each rank's loss of its part.

    Its gradient makes the step that of one process with the whole batch. Accumulated steps divide it as they did::

        loss = ddp.batch_loss(criterion(output, target), weight=ddp.loss_weight(criterion, target))
        (loss / accumulation).backward()

    A penalty on parameters is added to what this returns, not before. For a model in ``DistributedDataParallel``: in
    ``DataParallel`` every rank has the loss of the whole batch.

    Args:
        loss: one element, of this rank's samples, as ``backward()`` takes it; or a number of Python's or numpy's, for
            a metric. All ranks must call.
        weight: what this rank's part counts in a mean that does not count every sample the same: the sum of the target
            classes' weights, or the number of targets that are not ignored. ``loss_weight`` computes it. Without it
            parts weigh by their sizes.
        reduction: ``"mean"``, or ``"sum"`` where ``loss`` is a sum over the samples.

    Returns:
        As ``loss``, the same number on every rank: sum_r(D_r loss_r) / sum_r(D_r) with D_r the ``weight`` of rank r, or
        sum_r(loss_r). Its gradient reaches this rank's ``loss`` times W D_r / sum_r(D_r), or W, because
        DistributedDataParallel divides by the W ranks. A rank with D_r = 0 adds nothing, even if its loss is NaN;
        where all D_r are 0 the loss is what it is for nothing. Of a number, a number, without a gradient: of the same
        type, but for the mean of integers. In a plain process, ``loss`` itself.

    Raises:
        TypeError, ValueError: ``loss`` is neither tensor nor number or has several elements, ``reduction`` is neither,
            or ``weight`` is given with a sum.
        RuntimeError: ``loss`` comes from several batches, or a part of it not through the wrapped model.
    """
    if plain.is_number(loss) or plain.is_array(loss):
        return _of_number(loss, weight, reduction)
    if not isinstance(loss, torch.Tensor):
        raise TypeError(f"batch_loss() takes a tensor or a number, not {type(loss).__name__}")
    if loss.numel() != 1:
        raise ValueError(
            f"batch_loss() takes one number, not a loss of shape {list(loss.shape)}: reduce it first"
        )
    if reduction not in ("mean", "sum") or (reduction == "sum" and weight is not None):
        raise ValueError(f"reduction={reduction!r}: 'mean', or 'sum' without a weight, is needed")
    if ranks.is_alone("batch_loss()"):
        return loss
    forward = graph.forward_weight(loss, alone=reduction == "sum" or weight is not None)
    if forward is None and reduction == "sum":
        counts = float(parts.adds())  # what the part weighs is of no matter, and may not be known
    else:
        counts = parts.share() if forward is None else forward
    if counts and weight is not None:
        counts = float(torch.as_tensor(weight).detach())
    elif counts and reduction == "sum":
        counts = 1.0
    debug.meet("batch_loss()")
    own = loss.detach().double().reshape(())
    nothing = torch.zeros_like(own)
    total = torch.stack([own * counts, nothing + counts, nothing] if counts else [nothing, nothing, own])
    sent = total.to(ranks.talk_device(total.device))
    dist.all_reduce(sent)
    total = sent.to(total.device)
    divisor = total[1] if reduction == "mean" else nothing + 1
    counted = (
        divisor != 0
    )  # else the loss of nothing, 0 / 0 or what the criterion makes of it, is one process's too
    if not counts:
        graph.without_nan(loss, where=counted)
    value = torch.where(counted, total[0] / divisor, total[2] / ranks.get_world_size())
    share = ranks.get_world_size() * counts / (forward or 1.0) / divisor
    return _Replaced.apply(loss, value.reshape(loss.shape), torch.where(counted, share, 1.0))


def _of_number(number: Any, weight: float | torch.Tensor | None, reduction: str) -> Any:
    """``batch_loss`` of what has no graph: in double precision, given back as it was."""
    value = torch.as_tensor(number, dtype=torch.float64)
    total = batch_loss(value, weight, reduction)
    if total is value:
        return number
    if plain.is_array(number):
        return total.numpy().astype(number.dtype if number.dtype.kind == "f" else float)
    whole = total.item()
    counts = reduction == "sum" and whole.is_integer() and not isinstance(plain.of_python(number), float)
    return plain.as_was(number, int(whole) if counts else whole)


class _Replaced(torch.autograd.Function):
    """Another value in place of a tensor, and a factor to its gradient."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, value: torch.Tensor, factor: torch.Tensor | float
    ) -> torch.Tensor:
        ctx.factor = factor
        return value.to(tensor.dtype, copy=True)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return (gradient * ctx.factor).to(gradient.dtype), None, None


def loss_weight(criterion: nn.Module, target: torch.Tensor) -> float | torch.Tensor:
    """What the samples of ``target`` count in the mean that ``criterion`` takes: the ``weight`` of ``batch_loss``.

    CrossEntropyLoss and NLLLoss divide by the sum of the target classes' weights over the targets that are not
    ``ignore_index`` (https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html), with class
    probabilities for targets by their number; the other losses divide by the number of elements or samples.

    Args:
        criterion: a loss of torch.nn with ``reduction="mean"``.
        target: what the criterion is called with, class indices (also pixel by pixel) or values.

    Raises:
        ValueError: the criterion's ``reduction`` is no mean.
        TypeError: the criterion is none of torch.nn's, or CTCLoss or TripletMarginLoss: pass the number.
    """
    reduction = getattr(criterion, "reduction", "mean")
    if reduction not in ("mean", "batchmean"):
        hint = ": call batch_loss(loss, reduction='sum')" if reduction == "sum" else ""
        raise ValueError(
            f"loss_weight() needs a criterion that takes a mean, not reduction={reduction!r}{hint}"
        )
    if isinstance(criterion, nn.CrossEntropyLoss | nn.NLLLoss):
        return _class_weight(criterion, target)
    if type(criterion).__module__ != nn.MSELoss.__module__ or isinstance(criterion, _NO_COUNT):
        raise TypeError(
            f"loss_weight() does not know what {type(criterion).__name__} divides by: pass that number, "
            "batch_loss(loss, weight=…), or no weight if every sample counts the same"
        )
    return target.numel()


_NO_COUNT = (nn.CTCLoss, nn.TripletMarginLoss, nn.TripletMarginWithDistanceLoss)


def _class_weight(criterion: nn.CrossEntropyLoss | nn.NLLLoss, target: torch.Tensor) -> float | torch.Tensor:
    if target.is_floating_point():  # class probabilities, the classes in dimension 1 or alone
        return target.numel() / target.shape[min(1, target.dim() - 1)]
    counts = target != criterion.ignore_index
    if criterion.weight is None:
        return counts.sum()
    weights = criterion.weight.to(target.device)[target.masked_fill(~counts, 0)]
    return weights.masked_fill(~counts, 0).sum()
