"""Backward passes of a wrapped model: when its reducer begins, what it is told of, and when it ends.

torch's DistributedDataParallel makes its reducer ready in the forward, for one backward pass that reaches every
parameter once. Here every parameter says when its gradient has arrived, and the reducer is told of it from here:

- The first arrival of a pass makes the reducer ready. So it does not matter how many forwards there were, and whether
  they went through the wrapper (``model.module(x)``, a method that runs layers).
- Of the last one it is told at the end of the pass, with the parameters that were not reached, whose gradients become
  zero. Until then it writes no averages into the gradients.
- In a model's first pass the reducer is told of all at the end: nothing is lost, since it has one bucket then. So it
  stays if gradients arrive from passes within that pass (checkpoints with ``use_reentrant=True``): they may arrive
  twice. Where one does so in a later pass for the first time, that pass averages twice, since what was sent is not all;
  it must do so on every rank.
- A forward past the wrapper, with checkpoints of that kind, is a pass for each checkpoint: ranks need as many.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from threading import RLock
from typing import Any

import torch
from torch.autograd import Variable

from . import debug, graph, parts, torchmetrics_apart
from .parameter_hooks import Putting

_Gradients = dict[torch.nn.Parameter, torch.Tensor | None]

_preparing = RLock()  # gradients of a model on several GPUs arrive in several threads


class Passes:
    """The backward passes of ``wrapper``, one after the other."""

    def __init__(self, wrapper: Any) -> None:
        self._wrapper = weakref.ref(wrapper)
        self.current = _none
        # the reducer, and the parameters that a live pass has not reached yet: what the hooks look at
        self._tell: list[Callable[[int], None]] = []
        self._awaited: dict[int, int] = {}
        self._handles: dict[int, Any] = {}
        weakref.finalize(self, _remove, self._handles, self._tell).atexit = False
        self._late = False  # whether gradients arrive twice in a pass
        self._running = False  # whether a pass has begun and not ended; it may have failed
        self.expected = False  # whether a forward was made whose backward pass is to be synchronised
        self._name = f"the backward pass of {type(wrapper.module).__name__}"
        self._hooks = Putting(self._will_average)

    def follow(
        self,
        parameters: Sequence[torch.nn.Parameter],
        trained: Sequence[torch.nn.Parameter],
        sparse: Sequence[bool],
    ) -> None:
        """Hear of the gradients of a model.

        Args:
            parameters: all of the model's; one that is frozen may be trained later.
            trained: those that the reducer has, in its order.
            sparse: whether their gradients are sparse.
        """
        self._running = False
        self._awaited.clear()
        self._trained, self._sparse = list(trained), list(sparse)
        self._hooks.take(self._trained)
        self.indices = {id(parameter): index for index, parameter in enumerate(trained)}
        reducer = self._wrapper().reducer
        reducer._remove_autograd_hooks()
        self._tell[:] = [reducer._autograd_hook]
        with torch.enable_grad():
            self.nodes = {id(p): p.expand_as(p).grad_fn.next_functions[0][0] for p in trained}
        present = {id(p): p for p in parameters if p.is_floating_point() or p.is_complex()}
        for key in self._handles.keys() - present.keys():
            self._handles.pop(key).remove()
        for key in present.keys() - self._handles.keys():
            self._handles[key] = self._hear_of(present[key], key)

    def _hear_of(self, parameter: torch.nn.Parameter, key: int) -> Any:
        """Have ``note`` called whenever a gradient was added to ``parameter.grad``."""
        reference = weakref.ref(self)  # the parameter's node holds the parameter, and is held by the passes
        awaited, tell = self._awaited, self._tell

        def heard(_: torch.Tensor) -> None:
            index = awaited.pop(key, None)
            if index is not None and awaited:  # nearly always
                tell[0](index)
            elif (passes := reference()) is not None:
                passes.note(key, index)

        trained = parameter.requires_grad
        parameter.requires_grad_(True)  # torch registers no hook on one that is frozen for now
        handle = parameter.register_post_accumulate_grad_hook(heard)
        parameter.requires_grad_(trained)
        return handle

    def has_failed(self) -> bool:
        """Whether a pass has begun that will not end any more."""
        return self._running and self.current() is None

    def expect(self, output: Any, arguments: Any) -> None:
        """Expect the backward pass of a forward, and note it even if it reaches no parameter."""
        self.expected = True
        wrapper = self._wrapper()

        def begin(_: Any) -> None:  # the wrapper lives until then, whoever else has forgotten it
            wrapper._passes.begin()

        for tensor in parts.tensors(output):
            if tensor.grad_fn is not None:
                tensor.grad_fn.register_prehook(begin)  # half the price of a tensor's hook
            elif tensor.requires_grad and not _is_older(tensor, arguments):
                tensor.register_hook(begin)

    def begin(self) -> _Pass:
        """Note the pass that is running, if it is new."""
        with _preparing:
            current = self.current()
            if current is None:
                torchmetrics_apart.begin()  # it may be imported by now
                current = _Pass(self)
                self._hooks.begin(current.task, self._trained)
                awaited = self._awaited
                self.current = weakref.ref(current, lambda _: awaited.clear())
                Variable._execution_engine.queue_callback(current)
            return current

    def _will_average(self) -> bool:
        """Whether the pass that is running, which may begin just now, ends with the ranks' average."""
        if not graph.is_accumulating():
            return False
        current = self.begin()
        if current.is_prepared:
            return current.is_synchronised
        return self.expected or self._wrapper().require_backward_grad_sync

    def note(self, key: int, index: int | None) -> None:
        """Hear that a gradient has arrived.

        Args:
            key: of its parameter.
            index: where that is in the reducer, if the pass is live and did not know yet.
        """
        with _preparing:
            current = self.begin()
            if not current.is_prepared:
                self._prepare(current, key)
            if index is None:
                index = current.awaited.pop(key, None)
        if torch._C._current_graph_task_id() != current.task:
            self._late = True
        if index is None:
            self._late = True
            if current.is_live:
                current.is_repeated, current.is_live = True, False
                current.awaited = dict(self._awaited)
                self._awaited.clear()
        elif current.is_live and current.awaited:
            self._tell[0](index)
        else:
            current.untold.append(index)

    def _prepare(self, current: _Pass, key: int | None = None) -> None:
        """Make the reducer ready for a pass.

        Args:
            key: of the parameter whose gradient has arrived.
        """
        wrapper = self._wrapper()
        wrapper.settle(in_backward=True)
        current.is_synchronised = self.expected or wrapper.require_backward_grad_sync
        if current.is_synchronised:
            debug.meet(self._name)
            if self._running or (
                key is not None and torch._C._current_autograd_node() is not self.nodes[key]
            ):
                wrapper.renew_reducer()
            self._running = True
            # torch does so before a forward: it can't do with two backward passes before the second forward
            if not wrapper._has_rebuilt_buckets and wrapper.reducer._rebuild_buckets():
                wrapper._has_rebuilt_buckets = True
            current.is_live = wrapper._has_rebuilt_buckets and not self._late
            if current.is_live:
                wrapper.reducer.prepare_for_backward([])
                self._awaited.update(self.indices)
        current.awaited = self._awaited if current.is_live else dict(self.indices)
        current.is_prepared = True

    def _end(self, current: _Pass) -> None:
        wrapper = self._wrapper()
        try:
            if not current.is_prepared and self.expected and self._may_be_reached_elsewhere():
                self._prepare(current)
            if current.is_synchronised:
                wrapper.passed(self._complete(current, wrapper.reducer))
                self.expected = self._running = False
                if at_end := wrapper._watch.passed():  # when the reducer has ended, too
                    Variable._execution_engine.queue_callback(at_end)
            else:
                self._hooks.leave(current.task, current.is_prepared)
        finally:
            self.current = _none
            self._awaited.clear()

    def _may_be_reached_elsewhere(self) -> bool:
        """Whether a pass that came to the output and to no parameter is one in which other ranks may reach some."""
        return graph.is_accumulating() and any(parameter.requires_grad for parameter in self._trained)

    def _complete(self, current: _Pass, reducer: Any) -> list[torch.nn.Parameter]:
        """Tell the reducer of all parameters that it has not heard of, and return those that were not reached."""
        missing = [parameter for parameter in self._trained if id(parameter) in current.awaited]
        frozen = {parameter: parameter.grad for parameter in missing if not parameter.requires_grad}
        for parameter in missing:
            if parameter in frozen:
                parameter.grad = None
            elif self._sparse[self.indices[id(parameter)]] and parameter.grad is None:
                parameter.grad = _no_rows(parameter)
        own = {}
        if current.is_repeated:
            own = {p: None if p.grad is None else p.grad.clone() for p in self._trained}
        if not (current.is_live or current.is_repeated):
            reducer.prepare_for_backward([])
        for index in [*current.untold, *current.awaited.values()]:
            self._tell[0](index)
        # what follows comes after the reducer's own end, which it has queued now
        if own:
            again = partial(self._average_again, current.task, reducer, own, frozen)
            Variable._execution_engine.queue_callback(again)
        else:
            self._queue_end(current.task, frozen)
        return missing

    def _queue_end(self, task: int, frozen: _Gradients) -> None:
        """Have hooks called, and ``frozen`` gradients put back, when the reducer has ended."""
        Variable._execution_engine.queue_callback(partial(self._hooks.end, task))
        if frozen:
            Variable._execution_engine.queue_callback(lambda: _put_back(frozen))

    def _average_again(self, task: int, reducer: Any, own: _Gradients, frozen: _Gradients) -> None:
        """Average this rank's ``own`` gradients, in a pass in which some came too late for the first average."""
        for parameter, gradient in own.items():
            if gradient is None or gradient.is_sparse:
                parameter.grad = gradient
            else:  # in place: it may be a view of a larger tensor
                parameter.grad.copy_(gradient)
        debug.meet(f"{self._name}, again because a gradient arrived twice")
        reducer.prepare_for_backward([])
        for index in self.indices.values():
            self._tell[0](index)
        self._queue_end(task, frozen)


class _Pass:
    """One backward pass. Autograd has it to call at the end, and nobody else: a pass that failed is gone."""

    __slots__ = (
        "_passes",
        "awaited",
        "is_live",
        "is_prepared",
        "is_repeated",
        "is_synchronised",
        "task",
        "untold",
        "__weakref__",
    )

    def __init__(self, passes: Passes) -> None:
        self._passes = weakref.ref(passes)
        self.task = torch._C._current_graph_task_id()
        self.awaited: dict[int, int] = {}  # what has not arrived
        self.untold: list[int] = []  # what has arrived and the reducer was not told of, in that order
        self.is_prepared = False
        self.is_synchronised = False
        self.is_live = False  # whether the reducer hears of each gradient as it arrives
        self.is_repeated = False  # whether it was live until a gradient arrived a second time

    def __call__(self) -> None:
        passes = self._passes()
        if passes is not None:
            passes._end(self)


def _none() -> None:
    return None


def _remove(handles: dict[int, Any], tell: list[Any]) -> None:
    for handle in handles.values():
        handle.remove()
    tell.clear()


def _is_older(tensor: torch.Tensor, arguments: Any) -> bool:
    """Whether a leaf was there before the forward: a hook would stay on it."""
    if isinstance(tensor, torch.nn.Parameter):
        return True
    return any(tensor is argument for argument in parts.tensors(arguments))


def _no_rows(parameter: torch.nn.Parameter) -> torch.Tensor:
    """A sparse gradient of zero, as a torch.nn.Embedding has it."""
    indices = torch.empty(1, 0, dtype=torch.long, device=parameter.device)
    return torch.sparse_coo_tensor(
        indices, parameter.detach()[:0], parameter.shape, check_invariants=False, is_coalesced=True
    )


def _put_back(gradients: _Gradients) -> None:
    for parameter, gradient in gradients.items():
        parameter.grad = gradient
