"""Where the weight of an uneven part acts: between a wrapped model's inputs and its outputs, and nowhere else.

The gradients of everything inside are multiplied by it, once: a gradient that comes from one output through another,
or from another wrapped model's input (a generator before a discriminator), has the weight taken off before it meets
the next place that weighs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from . import graph, nested

_PLAIN = (str, bytes, int, float, complex, torch.dtype, torch.device, type(None))

forwards: list[float | None] = (
    []
)  # what those weigh that run, but for wrapped models'; None where nothing does


def unweighed(arguments: Any, weight: float) -> Any:
    """A model's ``arguments`` as tensors that divide the gradients through them by ``weight``, if it is not 0."""

    def unweigh(gradient: torch.Tensor) -> torch.Tensor:
        if weight:
            return graph.scaled(gradient, 1 / weight)
        # what is computed from it (a penalty) shall not come back
        return gradient.detach() + 0 * gradient if torch.is_grad_enabled() else gradient

    def replacement(tensor: torch.Tensor) -> torch.Tensor:
        copy = tensor.clone()  # a view written in place forgets its hooks
        copy.register_hook(unweigh)
        return copy

    return _replaced(arguments, replacement)


def weighed(output: Any, weight: float) -> Any:
    """A model's ``output`` as tensors that multiply the gradients through them by ``weight``, and say so.

    They are copies without the old tensors' hooks, since a gradient may reach one output through another; a view would
    forget its own when it is written in place.

    Raises:
        TypeError: the output holds objects in which tensors may hide.
    """
    leaves = nested.flatten(output, dataclasses=True)
    if weight != 1.0:
        for leaf in leaves:
            _check(leaf)
        output = _replaced(output, torch.clone)
        leaves = nested.flatten(output, dataclasses=True)
    graph.weigh([leaf for leaf in leaves if isinstance(leaf, torch.Tensor)], weight)
    return output


def refused(output: Any) -> Any:
    """A model's ``output``, of which no backward pass may come: it is not known what its gradients weigh."""

    def refuse(_: torch.Tensor) -> NoReturn:
        raise RuntimeError(
            "this forward of a model in eval mode comes after the loop, so which batch it belongs to is "
            "unknown and its gradients can't be weighted: call it inside the loop, or use a number of "
            "processes that divides the batch size"
        )

    for leaf in nested.flatten(output, dataclasses=True):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            leaf.register_hook(refuse)
    return output


def _check(leaf: Any) -> None:
    if not isinstance(leaf, (torch.Tensor, *_PLAIN)):
        raise TypeError(
            f"the model returns an object of type {type(leaf).__name__} without tensors, so its gradients "
            "can't be weighted, but local batches differ in size here: return tensors, also in lists, tuples, "
            "dicts or dataclasses, or use a number of processes that divides the batch size"
        )


def _replaced(values: Any, replacement: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    leaves = nested.flatten(values, dataclasses=True)
    needed = [isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves]
    if not any(needed):
        return values
    new = [replacement(leaf) if needs else leaf for leaf, needs in zip(leaves, needed, strict=True)]
    return nested.unflatten(values, new, dataclasses=True)
