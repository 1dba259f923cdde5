"""Hooks of a wrapped model's parameters get the averaged gradient, as those of nn.DataParallel get the replicas' sum.

Autograd calls a parameter's hook (``parameter.register_hook(clip)``) with what this rank computed of its local batch,
before the ranks average, and not at all where its own samples did not reach the parameter. So in a backward pass that
is synchronised, hooks are put off until it has ended: on every rank, each gets what the pass has added to ``.grad``,
averaged, and what it returns takes the place of that.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from . import graph

Hook = Callable[[torch.Tensor], "torch.Tensor | None"]


@dataclass
class _Task:
    """One run of autograd's engine, in which wrapped models have backward passes.

    Args:
        before: the gradients of earlier passes, of all parameters that have hooks.
        running: whose passes have not ended yet: models may share parameters.
    """

    before: dict[torch.nn.Parameter, torch.Tensor | None] = field(default_factory=dict)
    running: list[Putting] = field(default_factory=list)


_tasks: dict[int, _Task] = {}


class Putting:
    """Puts the hooks of one model's parameters off.

    Args:
        waits: a method, called within a backward pass: whether that will be synchronised. Its object is not kept alive.
    """

    def __init__(self, waits: Callable[[], bool]) -> None:
        self._waits = weakref.WeakMethod(waits)
        self._is_local = False  # whether gradients hold what no pass has averaged

    def take(self, parameters: Iterable[torch.nn.Parameter]) -> list[torch.nn.Parameter]:
        """Take the hooks that parameters have by now, whose handles still remove them; return those that have some."""
        hooked = [it for it in parameters if it._backward_hooks]
        for parameter in hooked:
            hooks = parameter._backward_hooks
            for key, hook in hooks.items():
                if not isinstance(hook, _PutOff):
                    hooks[key] = hook = _PutOff(hook)
                hook.by.add(self)
        return hooked

    def begin(self, task: int, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Note a pass that begins, in a run of autograd's engine; not of one that adds to no gradients."""
        for failed in [key for key, it in _tasks.items() if self in it.running]:
            self.leave(failed, False)
        hooked = self.take(parameters)
        if (
            not hooked or not graph.is_accumulating()
        ):  # nearly always the first: the second looks at all threads
            return
        noted = _tasks.setdefault(task, _Task())
        noted.running.append(self)
        for it in hooked:
            before = None if it.grad is None or self._is_local else it.grad.detach().clone()
            noted.before.setdefault(it, before)

    def waits(self) -> bool:
        """Whether a hook that is called now waits for the end of the pass."""
        waits = self._waits()
        return waits is not None and waits()

    def leave(self, task: int, is_local: bool) -> None:
        """Note that a pass has failed, or ended without an average; ``is_local``: and added to gradients."""
        noted = _tasks.get(task)
        self._is_local |= is_local
        if noted is not None and self in noted.running:
            noted.running.remove(self)
            if not noted.running:
                del _tasks[task]

    def end(self, task: int) -> None:
        """Call the hooks, when the last pass of the run is averaged."""
        noted = _tasks.get(task)
        self._is_local = False
        if noted is not None and self in noted.running:
            noted.running.remove(self)
            if not noted.running:
                del _tasks[task]
                _call(noted.before)


class _PutOff:
    """A hook in the place that it had; ``by``: for which models."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self.by: weakref.WeakSet[Putting] = weakref.WeakSet()

    def __call__(self, gradient: torch.Tensor) -> Any:
        return None if any([it.waits() for it in self.by]) else self.hook(gradient)


@torch.no_grad()
def _call(gradients: dict[torch.nn.Parameter, torch.Tensor | None]) -> None:
    """Call the hooks of parameters, given the gradients that these had before."""
    for parameter, before in reversed(gradients.items()):  # as backward passes come to them, mostly
        if parameter.grad is None or not parameter.requires_grad:
            continue
        gradient = parameter.grad if before is None else parameter.grad - before
        for hook in list((parameter._backward_hooks or {}).values()):
            if isinstance(hook, _PutOff):
                returned = hook.hook(gradient)
                gradient = gradient if returned is None else returned
        whole = gradient if before is None else before + gradient
        if whole is not parameter.grad:
            _put(parameter, whole)


def _put(parameter: torch.nn.Parameter, gradient: torch.Tensor) -> None:
    if gradient.is_sparse or parameter.grad.is_sparse:
        parameter.grad = gradient
    else:  # in place: it may be a view of a larger tensor
        parameter.grad.copy_(gradient)
