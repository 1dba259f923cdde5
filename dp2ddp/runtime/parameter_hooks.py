"""Hooks of a wrapped model's parameters get the averaged gradient, as those of nn.DataParallel get the replicas' sum.

Autograd calls a parameter's hook (``parameter.register_hook(clip)``) with what this rank computed of its local batch,
before the ranks average. So in a backward pass that is synchronised, a hook is put off until it has ended: it gets
what the pass has added to ``.grad``, averaged, and what it returns takes the place of that.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

Hook = Callable[[torch.Tensor], "torch.Tensor | None"]


class Putting:
    """Puts the hooks of some parameters off.

    Args:
        waits: a method, called within a backward pass: whether that will be synchronised. Its object is not kept alive.
    """

    def __init__(self, waits: Callable[[], bool]) -> None:
        self._waits = weakref.WeakMethod(waits)
        self._before: dict[torch.nn.Parameter, torch.Tensor | None] = {}  # the gradients of earlier passes

    def take(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Take the hooks that parameters have by now; each handle still removes its own."""
        for parameter in parameters:
            for key, hook in (parameter._backward_hooks or {}).items():
                if not isinstance(hook, _PutOff):
                    parameter._backward_hooks[key] = _PutOff(hook, self, parameter)

    def wait(self, parameter: torch.nn.Parameter) -> bool:
        """Whether a hook that is called now waits for the end of the pass."""
        waits = self._waits()
        if waits is None or not waits():
            return False
        if parameter not in self._before:
            self._before[parameter] = None if parameter.grad is None else parameter.grad.detach().clone()
        return True

    def forget(self) -> None:
        """Forget a pass that has begun and failed."""
        self._before.clear()

    @torch.no_grad()
    def call(self) -> None:
        """Call the hooks that have waited, now that the gradients are averaged."""
        waited, self._before = self._before, {}
        for parameter, before in waited.items():
            gradient = parameter.grad if before is None else parameter.grad - before
            for hook in list((parameter._backward_hooks or {}).values()):
                if isinstance(hook, _PutOff):
                    returned = hook.hook(gradient)
                    gradient = gradient if returned is None else returned
            whole = gradient if before is None else before + gradient
            if whole is not parameter.grad:
                _put(parameter, whole)


class _PutOff:
    """A hook in the place that it had."""

    def __init__(self, hook: Hook, putting: Putting, parameter: torch.nn.Parameter) -> None:
        self.hook = hook
        self._putting = weakref.ref(putting)
        self._parameter = weakref.ref(parameter)

    def __call__(self, gradient: torch.Tensor) -> Any:
        putting, parameter = self._putting(), self._parameter()
        if putting is None or parameter is None or not putting.wait(parameter):
            return self.hook(gradient)
        return None


def _put(parameter: torch.nn.Parameter, gradient: torch.Tensor) -> None:
    if gradient.is_sparse or parameter.grad.is_sparse:
        parameter.grad = gradient
    else:  # in place: it may be a view of a larger tensor
        parameter.grad.copy_(gradient)
