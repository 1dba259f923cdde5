"""What autograd has to know about ranks: outputs whose gradients weigh, and rows gathered with their graph.

DistributedDataParallel averages the ranks' gradients. So a mean over a part of n of the global batch's N samples has
to count W * n / N, and a loss that every rank computes on all rows may only send back what belongs to this rank's
rows, W times, for the average to cancel the W.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.autograd.graph import Node
from torch.utils.weak import WeakIdKeyDictionary

from . import parts, rows
from .dtypes import common_type
from .exchange import exchange

_WEIGHT = "dp2ddp.weight"
_WHOLE = "dp2ddp.whole"

_whole = WeakIdKeyDictionary()  # the rows of all ranks


def weigh(output: Any, weight: float) -> None:
    """Multiply the gradients that will arrive at the tensors of ``output`` by ``weight``; 0 stops NaN as well."""
    for tensor in parts.tensors(output):
        if tensor.requires_grad and not tensor.is_leaf:
            if weight != 1:
                tensor.register_hook(lambda gradient: _times(gradient, weight))
            tensor.grad_fn.metadata[_WEIGHT] = weight


def _times(gradient: torch.Tensor, weight: float) -> torch.Tensor:
    if weight:
        return scaled(gradient, weight)
    # a gradient with respect to the inputs (for a penalty) is needed as it is: its square root may be taken
    return gradient if torch.is_grad_enabled() and not is_accumulating() else torch.zeros_like(gradient)


def scaled(gradient: torch.Tensor, factor: float) -> torch.Tensor:
    """``gradient * factor``, whose own derivative is 1: each gradient meets the places that weigh once."""
    if not torch.is_grad_enabled():
        return gradient * factor
    return gradient + gradient.detach() * (factor - 1)


def is_accumulating() -> bool:
    """Whether the backward pass adds to all gradients it reaches: no ``torch.autograd.grad``, no ``inputs=``."""
    # of any thread: with a GPU, hooks run in one of autograd's own
    for frame in sys._current_frames().values():
        while frame is not None and frame.f_code is not torch.autograd.grad.__code__:
            if frame.f_code is torch.autograd.backward.__code__:
                return not frame.f_locals["inputs"]
            frame = frame.f_back
    return False


def forward_weight(*tensors: torch.Tensor, alone: bool = False) -> float | None:
    """The one weight that lies between ``tensors`` and the parameters; None where nothing weighs.

    Args:
        tensors: a loss, or several tensors that were computed from one forward.
        alone: whether every parameter must be behind the weight, because it will be replaced by another factor.

    Raises:
        RuntimeError: different weights lie there; or, with ``alone``, some parameters have one other than 1 and some
            have none.
    """
    found, is_bare = set(), False
    for tensor in tensors:
        its, bare = _look(tensor)
        found |= its
        is_bare |= bare
    if len(found) > 1:
        raise RuntimeError(
            "this value combines several batches, in which this rank's local batch has different weights "
            f"({', '.join(f'{weight:g}' for weight in sorted(found))}): combine each batch separately"
        )
    if alone and is_bare and found - {1.0}:
        raise RuntimeError(
            "a part of this loss bypasses the wrapped model (a penalty on its parameters, or a layer outside "
            "of it): add a penalty to what batch_loss() returns, and wrap such a layer together with the model"
        )
    return found.pop() if found else None


def _look(loss: torch.Tensor) -> tuple[set[float], bool]:
    """The weights behind ``loss``, and whether there are parameters with none before them."""
    found, is_bare = set(), False
    for node in _until_weighed(loss):
        if _WEIGHT in node.metadata:
            found.add(node.metadata[_WEIGHT])
        elif isinstance(getattr(node, "variable", None), torch.nn.Parameter):
            is_bare = True
    return found, is_bare


def _until_weighed(loss: torch.Tensor) -> list[Node]:
    """The nodes of the graph of ``loss``, up to the weighed ones, and with them."""
    seen: dict[Node, None] = {}
    left = [loss.grad_fn]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen[node] = None
        if _WEIGHT not in node.metadata:
            left += [following for following, _ in node.next_functions]
    return list(seen)


def mark_whole(tensors: list[torch.Tensor]) -> None:
    """Note that tensors are the rows of all ranks: what is computed from them is the same on every rank."""
    for tensor in tensors:
        _whole[tensor] = True
        if tensor.grad_fn is not None:
            tensor.grad_fn.metadata[_WHOLE] = True


def is_whole(tensor: torch.Tensor) -> bool:
    """Whether a tensor is made of the rows of all ranks."""
    return tensor in _whole or any(_WHOLE in node.metadata for node in _until_weighed(tensor))


def without_nan(loss: torch.Tensor, where: torch.Tensor) -> None:
    """Let no NaN come out of the graph of ``loss``, if ``where``: 0 times the derivative of 0 / 0 is 0 then.

    Args:
        where: 0-dim, boolean; looked at in the backward pass, without waiting for a GPU before.
    """

    def hook(gradients: tuple[torch.Tensor | None, ...], _: Any) -> tuple[torch.Tensor | None, ...]:
        return tuple(
            g if g is None else torch.where(g.isnan() & where, torch.zeros_like(g), g) for g in gradients
        )

    for node in _until_weighed(loss):
        if _WEIGHT not in node.metadata and node.next_functions:
            node.register_hook(hook)


def gather_all_rows(tensors: list[torch.Tensor], dim: int, what: str) -> list[torch.Tensor]:
    """Several tensors of all ranks, each joined along ``dim`` as ``rows.gather_rows`` does; sizes may differ there.

    Where types differ, as the samples of a part may decide, all become what torch makes of them together.

    Args:
        what: the collective that a user knows, for messages.

    Raises:
        ValueError: the ranks' tensors differ in another dimension, or their types have none in common.
    """
    own = [(tensor.size(dim), tensor.dtype, _others(tensor, dim)) for tensor in tensors]
    shapes = exchange(what, own)
    kinds = [[[str(dtype), others] for _, dtype, others in shape] for shape in shapes]
    columns = [*zip(*shapes, strict=True)] if len({len(shape) for shape in shapes}) == 1 else None
    types = [common_type(dtype for _, dtype, _ in column) for column in columns or ()]
    alike = all(others == column[0][2] for column in columns or () for *_, others in column)
    if columns is None or None in types or not alike:
        have = ", ".join(f"rank {rank} has {kind}" for rank, kind in enumerate(kinds))
        raise ValueError(
            f"{what} needs the same type and shape on every rank, but for dimension {dim}: {have}"
        )
    return [
        rows.gather_rows(tensor.to(dtype), dim, [size for size, *_ in column])
        for tensor, dtype, column in zip(tensors, types, columns, strict=True)
    ]


def _others(tensor: torch.Tensor, dim: int) -> list[int]:
    """The sizes that must be the same on every rank."""
    shape = list(tensor.shape)
    del shape[dim]
    return shape
