"""Forwards that go past a wrapped model while the ranks' parts differ in size: what they compute can't be weighed.

Only the wrapper's forward knows what a gradient weighs. So in such a batch the layers of the model look whether they
run inside of it; a gradient that comes back to one that did not is refused, with the line that called it. Terms of the
loss that use parameters alone (a penalty) are the same on every rank and need no weight.
"""

from __future__ import annotations

import weakref
from contextlib import nullcontext
from typing import Any, NoReturn

import torch

from . import lines, parts


def guard(module: torch.nn.Module, inside: Any, name: str = "the wrapped model") -> list[Any]:
    """Have the layers of a ``module`` look out from now on; handles whose ``remove()`` ends that.

    Args:
        inside: true while a forward runs that weighs.
        name: what makes it weigh.
    """
    hook = _Guard(module, inside, name)
    layers = [layer for layer in module.modules() if layer._parameters]
    return [layer.register_forward_hook(hook, prepend=True) for layer in layers]


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

    def __call__(self, layer: torch.nn.Module, inputs: Any, output: Any) -> None:
        module = self._module()
        if module is None or self._inside or not torch.is_grad_enabled():
            return
        if torch._C._current_graph_task_id() != -1:  # a checkpointed layer, run again in the backward pass
            return
        if not parts.may_differ(inputs):
            return
        message = _message(module, layer, self._name)

        def refuse(_: torch.Tensor) -> NoReturn:
            raise RuntimeError(message)

        for tensor in parts.tensors(output):
            if tensor.requires_grad:
                tensor.register_hook(refuse)


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
