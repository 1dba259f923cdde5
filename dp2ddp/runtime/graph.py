"""What autograd has to know about ranks: outputs whose gradients weigh, and rows gathered with their graph.

DistributedDataParallel averages the ranks' gradients. So a mean over a part of n of the global batch's N samples has
to count W * n / N, and a loss that every rank computes on all rows may only send back what belongs to this rank's
rows, W times, for the average to cancel the W.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from . import parts, ranks

_WEIGHT = "dp2ddp.weight"


def weigh(output: Any, weight: float) -> None:
    """Multiply the gradients that will arrive at the tensors of ``output`` by ``weight``."""
    for tensor in parts.tensors(output):
        if tensor.requires_grad and not tensor.is_leaf:
            tensor.register_hook(lambda gradient: gradient * weight)
            tensor.grad_fn.metadata[_WEIGHT] = weight


def weights(loss: torch.Tensor) -> set[float]:
    """The weights that lie between ``loss`` and the parameters; empty where nothing weighs."""
    found, seen, left = set(), set(), [loss.grad_fn]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if _WEIGHT in node.metadata:
            found.add(node.metadata[_WEIGHT])
        else:
            left += [following for following, _ in node.next_functions]
    return found


def gather_rows(tensor: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """All ranks' tensors joined along ``dim``, in the order of ranks, with a graph to this rank's own.

    The gradient that arrives is taken to be the same on every rank: each computes the same loss on the same rows.

    Args:
        tensor: of any type, the same on every rank; sizes may differ along ``dim`` and be 0.

    Returns:
        A new tensor. Backward gives this rank's slice of the gradient, W times.
    """
    return _GatherRows.apply(tensor, dim)


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        rows = tensor.detach().movedim(dim, 0).contiguous()
        sizes = _sizes(rows)
        ctx.dim, ctx.start, ctx.size = dim, sum(sizes[: ranks.get_rank()]), len(rows)
        padded = rows.new_zeros(max(sizes), *rows.shape[1:])
        padded[: len(rows)] = rows
        received = [torch.empty_like(padded) for _ in sizes]
        if padded.numel():
            dist.all_gather([_bytes(part) for part in received], _bytes(padded))
        joined = torch.cat([part[:size] for part, size in zip(received, sizes, strict=True)])
        return joined.movedim(0, dim).contiguous()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        own = gradient.narrow(ctx.dim, ctx.start, ctx.size)
        return own * ranks.get_world_size(), None


def _sizes(rows: torch.Tensor) -> list[int]:
    own = torch.tensor([len(rows)], device=ranks.talk_device())
    sizes = [torch.empty_like(own) for _ in range(ranks.get_world_size())]
    dist.all_gather(sizes, own)
    return [int(size) for size in sizes]


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a flat tensor of bytes, which every backend can send."""
    return tensor.view(-1).view(torch.uint8)
