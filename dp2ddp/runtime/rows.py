"""Rows between ranks, with their graph.

Where every rank computes the loss of all rows, two kinds of tensors meet. *Whole* ones are the same on every rank, and
so is their gradient, that of the loss. *Own* ones are a rank's rows; their gradient is W times that of the loss,
because DistributedDataParallel divides what comes of it by the W ranks. ``gather_rows`` leads from own to whole,
``scatter_rows`` from whole to own. Each is the other's derivative up to a factor, so that gradients of gradients are
right too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from . import ranks


def gather_rows(tensor: torch.Tensor, dim: int, sizes: Sequence[int]) -> torch.Tensor:
    """All ranks' tensors joined along ``dim``, in the order of ranks, with a graph to this rank's own.

    Args:
        tensor: of any type; type and the other dimensions are the same on every rank.
        sizes: each rank's size along ``dim``, 0 or more.

    Returns:
        A new tensor, no view: it may be written in place. Backward takes the gradient to be the same on every rank, and
        gives this rank's slice, W times.
    """
    return _GatherRows.apply(tensor, dim, tuple(sizes))


def scatter_rows(tensor: torch.Tensor, dim: int, sizes: Sequence[int], rows: slice) -> torch.Tensor:
    """Some rows of a tensor that is the same on every rank, with a graph that makes its gradient whole again.

    Args:
        tensor: the same on every rank.
        sizes: how many rows along ``dim`` each rank takes, in the order of ranks and from the first row on; they need
            not take all.
        rows: those that this rank gets: its own or, if it takes none, another's, to which it sends no gradient back.

    Returns:
        A copy. Backward joins the gradients of all ranks' rows and divides by W, on every rank.
    """
    return _ScatterRows.apply(tensor, dim, tuple(sizes), rows, 1)


def sum_back(tensor: torch.Tensor, count: int) -> tuple[torch.Tensor, ...]:
    """All ranks' tensors, of one shape, where each rank goes on with them in its own way.

    Args:
        count: how many ranks there are.

    Returns:
        New tensors, in the order of ranks. Backward gives the sum of the gradients that all ranks have of this one's.
    """
    return separate(_SumBack.apply(tensor, count), [1] * count, [tensor.shape] * count)


def separate(
    rows: torch.Tensor, sizes: Sequence[int], shapes: Sequence[Sequence[int]]
) -> tuple[torch.Tensor, ...]:
    """Parts of ``rows`` along dimension 0, with their graph and each with memory of its own.

    Each may be written in place, as tensors that were never one. Of what ``split`` gives autograd allows no such thing.

    Args:
        sizes: of the parts; they take all rows.
        shapes: what the parts become.
    """
    return tuple(
        part.clone().view(shape) for part, shape in zip(rows.split(list(sizes)), shapes, strict=True)
    )


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, dim: int, sizes: tuple[int, ...]) -> torch.Tensor:
        ctx.dim, ctx.sizes = dim, sizes
        rows, longest = _plain(tensor.detach()).movedim(dim, 0).contiguous(), max(sizes)
        rows = rows.to(ranks.talk_device(rows.device))
        if len(rows) < longest:
            rows = torch.cat([rows, rows.new_zeros(longest - len(rows), *rows.shape[1:])])
        received = rows.new_empty(len(sizes) * longest, *rows.shape[1:])
        parts = [received.narrow(0, rank * longest, longest) for rank in range(len(sizes))]
        if rows.numel():
            dist.all_gather([_bytes(part) for part in parts], _bytes(rows))
        if min(sizes) < longest:
            received = torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])
        received = received.to(tensor.device)
        return _new(received.movedim(0, dim).contiguous()) if dim else received

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        rank = ranks.get_rank()
        start = sum(ctx.sizes[:rank])
        rows = slice(start, start + ctx.sizes[rank])
        return _ScatterRows.apply(gradient, ctx.dim, ctx.sizes, rows, len(ctx.sizes)), None, None


class _ScatterRows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, dim: int, sizes: tuple[int, ...], rows: slice, factor: int
    ) -> torch.Tensor:
        ctx.dim, ctx.sizes, ctx.factor, ctx.total = dim, sizes, factor, tensor.size(dim)
        return tensor.narrow(dim, rows.start, rows.stop - rows.start) * factor

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None, None]:
        own = gradient.narrow(ctx.dim, 0, ctx.sizes[ranks.get_rank()])
        whole = _GatherRows.apply(own, ctx.dim, ctx.sizes) * (ctx.factor / len(ctx.sizes))
        shape = list(whole.shape)
        shape[ctx.dim] = ctx.total - sum(ctx.sizes)
        if shape[ctx.dim]:
            whole = torch.cat([whole, whole.new_zeros(shape)], ctx.dim)
        return whole, None, None, None, None


class _SumBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, count: int) -> torch.Tensor:
        ctx.count = count
        own = _plain(tensor.detach()).contiguous()
        own = own.to(ranks.talk_device(own.device))
        received = own.new_empty(count, *own.shape)
        if own.numel():
            dist.all_gather([_bytes(part) for part in received], _bytes(own))
        return received.to(tensor.device)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _SumOwn.apply(gradient, ctx.count), None


class _SumOwn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradient: torch.Tensor, count: int) -> torch.Tensor:
        ctx.count = count
        whole = _plain(gradient.detach()).contiguous().clone()
        whole = whole.to(ranks.talk_device(whole.device))
        dist.all_reduce(whole)
        return whole[ranks.get_rank()].clone().to(gradient.device)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _SumBack.apply(gradient, ctx.count), None


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers in memory as they are, not to be conjugated or negated when they are read, and no more to it.

    A class of its own may refuse to be cut, or to make another tensor.
    """
    return tensor.as_subclass(torch.Tensor).resolve_conj().resolve_neg()


def _new(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, copied if it is a view: autograd lets nobody write in place to one that a function has made."""
    return tensor.clone() if tensor._is_view() else tensor


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a flat tensor of bytes, which every backend can send."""
    # one element keeps the stride of what it was taken from, which view() does not take
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)
