"""Forwards that go past a wrapped model while the ranks' parts differ in size: what their gradients weigh.

The wrapper's forward knows that. So in such a batch the layers of the model look whether they run inside of it. One
that runs on what the wrapper has handed out, ``model.module.head(model(x))``, weighs as that does; on the rows of all
ranks it needs no weight. Of anything else it isn't known: a gradient that comes back is refused, with the line that
called. Terms of the loss that use parameters alone (a penalty) are the same on every rank and need no weight.
"""

from __future__ import annotations

import weakref
from contextlib import nullcontext
from typing import Any, NoReturn

import torch

from . import graph, lines, parts, weighing


def guard(module: torch.nn.Module, inside: Any, name: str = "the wrapped model") -> list[Any]:
    """Have the layers of a ``module`` look out from now on; handles whose ``remove()`` ends that.

    Args:
        inside: true while a forward runs that weighs.
        name: what makes it weigh.
    """
    hook = _Guard(module, inside, name)
    layers = [layer for layer in module.modules() if layer._parameters]
    before = _Before(hook)
    handles = [it.register_forward_pre_hook(before, with_kwargs=True) for it in layers]
    return handles + [it.register_forward_hook(hook, prepend=True, with_kwargs=True) for it in layers]


class Inside:
    """Whether a forward that weighs is running: this wrapper's, or another's whose model has this one's in it."""

    _running = 0

    def __enter__(self) -> None:
        Inside._running += 1

    def __exit__(self, *_: Any) -> None:
        Inside._running -= 1

    def __bool__(self) -> bool:
        return Inside._running > 0


def in_a_copy() -> Any:
    """What a hook reduces to, so that a copy of its module does nothing there, and can be read without dp2ddp."""
    return getattr, (nullcontext(), "__exit__")  # takes any arguments, and returns None


class _Guard:
    """A forward hook."""

    def __init__(self, module: torch.nn.Module, inside: Any, name: str) -> None:
        self._module = weakref.ref(module)
        self._inside = inside
        self._name = name

    def __reduce__(self) -> Any:
        return in_a_copy()

    def __call__(self, layer: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        if not self.is_passed((args, kwargs)):
            return None
        weight = _weight(args, kwargs)
        if weight is not None:
            return weighing.weighed(output, weight)
        message = _message(self._module(), layer, self._name)

        def refuse(_: torch.Tensor) -> NoReturn:
            raise RuntimeError(message)

        for tensor in parts.tensors(output):
            if tensor.requires_grad:
                tensor.register_hook(refuse)
        return None

    def is_passed(self, inputs: Any) -> bool:
        """Whether a layer runs outside of what weighs, in a batch whose parts differ."""
        if self._module() is None or self._inside or not torch.is_grad_enabled():
            return False
        if torch._C._current_graph_task_id() != -1:  # a checkpointed layer, run again in the backward pass
            return False
        return parts.may_differ(inputs) and not _is_whole(inputs)


class _Before:
    """A hook before the forward: a gradient through the inputs meets the wrapper, which weighs it once more."""

    def __init__(self, guard: _Guard) -> None:
        self._guard = guard

    def __reduce__(self) -> Any:
        return in_a_copy()

    def __call__(self, _: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        weight = _weight(args, kwargs) if self._guard.is_passed((args, kwargs)) else None
        return None if weight is None else weighing.unweighed((args, kwargs), weight)


def _is_whole(inputs: Any) -> bool:
    """Whether all that a layer is given that has a graph is made of the rows of all ranks."""
    linked = [it for it in parts.tensors(inputs) if it.requires_grad]
    return bool(linked) and all(map(graph.is_whole, linked))


def _weight(*inputs: Any) -> float | None:
    """What the gradients through a layer's inputs weigh; None where that isn't known."""
    linked = [it for it in parts.tensors(inputs) if it.requires_grad]
    if any(map(graph.is_whole, linked)):
        return None
    try:
        return graph.forward_weight(*linked)
    except RuntimeError:  # several batches
        return None


def _message(module: torch.nn.Module, layer: torch.nn.Module, weighs: str) -> str:
    name = next((name for name, other in module.named_modules() if other is layer), "")
    called = f"layer {name!r}" if name else "the module"
    return (
        f"{_caller(module)} calls {called} of {type(module).__name__} directly, bypassing {weighs}: local "
        "batches differ in size here, so its gradients can't be weighted. Call model(…) instead, with an "
        "argument that chooses the method in its forward, or use a number of processes that divides the batch "
        "size"
    )


def _caller(module: torch.nn.Module) -> str:
    """The line that called into the model, outside of its own methods and those of its parts."""
    own = set(map(id, module.modules()))
    return lines.site(passed_over=lambda frame: id(frame.f_locals.get("self")) in own)
