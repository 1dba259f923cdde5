"""torch's DistributedDataParallel, with its arguments chosen and DataParallel's tolerance.

What nn.DataParallel takes and torch's DDP does not is settled here, at run time:

- *Parameters a forward leaves unused.* DDP's reducer waits for every parameter. ``find_unused_parameters=True`` walks
  the graph at every forward, and fails if a parameter is used by the first of two forwards only. Here every parameter
  says when its gradient has arrived, and at the end of the backward pass the reducer is told of the others, whose
  gradients become zero. nn.DataParallel gives them zeros as well (the backward of its broadcast fills them in).
- *Several forwards and backwards, and forwards that go past the wrapper* (``model.module(x)``, a method that runs
  layers). The reducer is made ready by the first gradient that arrives in a backward pass, and not by the last forward.
- *A parameter whose gradient arrives twice in a pass* (layers checkpointed with ``use_reentrant=True`` that share it).
  The reducer then gets all gradients at the end of the pass. So it does in the first pass of all, in which there is
  nothing to gain: its one bucket is sent when the last gradient is there.
- *Parts of a global batch that differ in size.* What a part's size weighs is multiplied in at the output (see
  ``weighing``). A forward that goes past the wrapper can't be weighed: it is refused.
- *Parameters moved, trained from now on or replaced* after the model was wrapped. The reducer is made anew.
- *Buffers.* Rank 0's are broadcast before each training forward, as DataParallel copies replica 0's, but past
  autograd's version counters: a second forward before the backward pass may not invalidate the first.
- *Nothing to train.* A model without a trainable parameter only has its buffers kept in step.
- *A group of one.* No reducer, no collective: the call goes to the module.
"""

from __future__ import annotations

import logging
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd import Variable
from torch.distributed.utils import _to_kwargs
from torch.nn.parallel import distributed as torch_ddp

from . import bypass, debug, parts, ranks, weighing

logger = logging.getLogger("dp2ddp")

_preparing = threading.Lock()  # gradients of a model on several GPUs arrive in several threads


class DistributedDataParallel(torch_ddp.DistributedDataParallel):
    """torch's DistributedDataParallel with the arguments chosen.

    Gradients are averaged over the ranks in the backward pass. ``.module`` and the ``module.`` of the state dict's keys
    are torch's. Inputs are moved to the module's GPU. A parameter that the backward pass does not reach gets a gradient
    of zero where there are several ranks, as with several replicas of nn.DataParallel. What was arranged is logged once
    (logger ``dp2ddp``, level INFO). In a plain process or a group of one nothing is synchronised.

    Where the ranks hold parts of a global batch that ``shard`` dealt and that differ in size, each forward's gradients
    are weighed, W * n_r / N, so that the gradient of a mean over the part becomes that of the mean over the batch.

    Args:
        module: the model, on one device or, split by hand, on several GPUs. It may be moved later.

    Raises:
        ValueError: some parameters are on the CPU and some on a GPU.
        RuntimeError: there are other ranks, but the process group does not exist yet.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        torch.nn.Module.__init__(self)
        self.module = module
        self.dim = 0
        self.require_backward_grad_sync = True
        self._alone = ranks.is_alone("DistributedDataParallel()")
        self._weighs = True
        self._reset()
        self._arrange(new=True)

    def _reset(self) -> None:
        self.process_group = None if self._alone else dist.group.WORLD
        self._reduces = False
        self._stale = (
            False  # whether the buffers may differ between ranks, where torch does not look after them
        )
        self._logged = False
        self._late = False  # whether gradients arrive twice in a pass
        self._unsettled = True  # whether parameters may have been moved or replaced
        self._parameters_seen: list[torch.nn.Parameter] = []
        self._forget()

    def _forget(self) -> None:
        """What is no part of a copy."""
        self._pass: Callable[[], _Pass | None] = _no_pass
        self._expected = False  # whether a forward has been made that is to be synchronised
        self._failed = (
            False  # whether a synchronised pass has begun and not ended: it is running, or has failed
        )
        self.in_forward = 0  # how many forwards of this wrapper are running
        self._hooks: dict[int, Any] = {}
        self._guards: list[Any] = []

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        self._settle()
        if not self._reduces:
            return self._forward_alone(*inputs, **kwargs)
        if not torch.is_grad_enabled():
            return super().forward(*inputs, **kwargs)
        weight = parts.weight(inputs, kwargs) if self._weighs else 1.0
        if weight not in (0.0, 1.0):
            inputs, kwargs = weighing.unweighed((inputs, kwargs), weight)
        self.in_forward += 1
        try:
            output = super().forward(*inputs, **kwargs)
        finally:
            self.in_forward -= 1
        if self.require_backward_grad_sync and not torch.compiler.is_compiling():
            self._expect_backward(output, (inputs, kwargs))
        return weighing.weighed(output, weight) if parts.are_drawn() else output

    def _forward_alone(self, *inputs: Any, **kwargs: Any) -> Any:
        if self._stale:
            self._broadcast(self.module.buffers())
        self._stale = self.process_group is not None and self.module.training
        if self.device_ids:
            device = torch.device("cuda", self.device_ids[0])
            moved, moved_kwargs = _to_kwargs(inputs, kwargs, device, False)
            inputs, kwargs = moved[0], moved_kwargs[0]
        return self.module(*inputs, **kwargs)

    def join(self, *args: Any, **kwargs: Any) -> AbstractContextManager:
        """torch's join; nothing to do where nothing is synchronised."""
        return super().join(*args, **kwargs) if self._reduces else nullcontext()

    # What may change after the model was wrapped

    def train(self, mode: bool = True) -> DistributedDataParallel:
        self._unsettled = True
        return super().train(mode)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        self._unsettled = True
        return super().load_state_dict(*args, **kwargs)

    def _apply(self, *args: Any, **kwargs: Any) -> DistributedDataParallel:
        self._unsettled = True
        return super()._apply(*args, **kwargs)

    def _settle(self, in_backward: bool = False) -> None:
        """Follow what became of the parameters since the last time."""
        seen, replaced = self._parameters_seen, False
        if self._unsettled and not in_backward:
            self._unsettled = False
            current = list(self.module.parameters())
            replaced = len(seen) != len(current) or any(
                a is not b for a, b in zip(seen, current, strict=True)
            )
            moved = not replaced and list(map(_place, seen)) != self._places
            self._say_once()
        else:
            moved = bool(seen) and _place(seen[0]) != self._places[0]
        if replaced or moved or any(parameter.requires_grad for parameter in self._untrained):
            self._arrange(new=replaced)
        elif self._failed and (in_backward or self._pass() is None):
            self._renew_reducer()

    def _arrange(self, new: bool) -> None:
        """Arrange what the parameters need as they are now.

        Args:
            new: whether they are to be made the same on all ranks, which is a collective.
        """
        index = _cuda_index(self.module)
        trains = any(parameter.requires_grad for parameter in self.module.parameters())
        if self._alone or not (trains or self._reduces):
            self._place_at(index)
            if new and not self._alone:
                self._broadcast([*self.module.parameters(), *self.module.buffers()])
        elif new or not self._reduces:
            self._start_reducing(index)
        else:
            self._place_at(index)
            self._renew_reducer()
        self._follow_parameters()

    def _place_at(self, index: int | None) -> None:
        devices = {parameter.device for parameter in self.module.parameters()}
        self.device_ids = None if index is None else [index]
        self.output_device = index
        self.is_multi_device_module = len(devices) > 1
        self.device = next((p.device for p in self.module.parameters()), torch.device("cpu"))
        self.device_type = self.device.type

    def _start_reducing(self, index: int | None) -> None:
        # torch's __init__ resets what a module has: mode, hooks
        kept = {name: self.__dict__[name] for name in vars(torch.nn.Module())}
        hooks = self.__dict__.get("_comm_hooks", [])
        super().__init__(self.module, device_ids=None if index is None else [index])
        self.__dict__.update(kept)
        self.reducer._remove_autograd_hooks()  # they are lost when a parameter is moved: ours take their place
        self._reduces = True
        for hook, state in hooks:
            self.register_comm_hook(state, hook)
        parts.watch(self)

    def _renew_reducer(self) -> None:
        """Make another reducer; what the old one has sent stays its own, and is of no use."""
        named = self.module.named_parameters()
        self._module_parameters = [p for name, p in named if name not in self.parameters_to_ignore]
        parameters, sparse = self._build_params_for_reducer()
        names = self._build_debug_param_to_name_mapping(parameters)
        self._ddp_init_helper(parameters, sparse, names, self.static_graph)
        self.reducer._remove_autograd_hooks()
        self._has_rebuilt_buckets = self._failed = False
        for hook, state in self._comm_hooks:
            dist._register_comm_hook(self.reducer, state, hook)

    def _follow_parameters(self) -> None:
        """Have every parameter say when its gradient has arrived."""
        self._parameters_seen = list(self.module.parameters())
        self._places = list(map(_place, self._parameters_seen))
        followed = [] if self._alone else self._parameters_seen
        if self._reduces:
            followed = self._module_parameters
            self._trained, self._sparse = self._build_params_for_reducer()  # in the reducer's order
            self._indices = {id(parameter): index for index, parameter in enumerate(self._trained)}
        self._untrained = [p for p in followed if not p.requires_grad]
        if self._reduces:
            present = {id(p): p for p in followed if p.is_floating_point() or p.is_complex()}
            for key in self._hooks.keys() - present.keys():
                self._hooks.pop(key).remove()
            for key in present.keys() - self._hooks.keys():
                self._hooks[key] = _on_arrival(present[key], key, self)

    # The backward pass

    def _post_forward(self, output: Any) -> Any:
        # torch's makes the reducer ready here, for the one backward pass that it expects
        if self._check_sync_bufs_post_fwd():
            self._sync_buffers()
        self.require_forward_param_sync = torch.is_grad_enabled() and self.require_backward_grad_sync
        return output

    def _expect_backward(self, output: Any, arguments: Any) -> None:
        """Note the backward pass when it comes to the output, even if it reaches no parameter."""
        self._expected = True
        reference = weakref.ref(self)

        def begin(_: torch.Tensor) -> None:
            wrapper = reference()
            if wrapper is not None and wrapper._pass() is None:
                wrapper._begin_pass()

        for tensor in torch_ddp._find_tensors(output):
            if tensor.requires_grad and not (tensor.is_leaf and _is_older(tensor, arguments)):
                tensor.register_hook(begin)

    def _begin_pass(self) -> _Pass:
        current = _Pass(self)
        self._pass = weakref.ref(current)
        Variable._execution_engine.queue_callback(current)
        return current

    def _note_arrival(self, key: int) -> None:
        current = self._pass()
        if current is None or not current.is_prepared:
            with _preparing:
                current = self._pass() or self._begin_pass()
                if not current.is_prepared:
                    self._prepare(current)
        if key in current.arrived:
            self._late = True
            if current.is_synchronised and not current.is_late:
                self._renew_reducer()
                current.is_late = True
        current.arrived[key] = None
        if current.is_synchronised and not current.is_late:
            self.reducer._autograd_hook(self._indices[key])

    def _prepare(self, current: _Pass) -> None:
        """Make the reducer ready for a pass."""
        self._settle(in_backward=True)
        current.is_synchronised = self._expected or self.require_backward_grad_sync
        if current.is_synchronised:
            debug.meet(f"the backward pass of {type(self.module).__name__}")
            self._failed = True
            # torch does so before a forward: it can't do with two backward passes before the second forward
            if not self._has_rebuilt_buckets and self.reducer._rebuild_buckets():
                self._has_rebuilt_buckets = True
            current.is_late = self._late or not self._has_rebuilt_buckets
            if not current.is_late:
                self.reducer.prepare_for_backward([])
        current.is_prepared = True

    def _end_pass(self, current: _Pass) -> None:
        try:
            if not current.is_prepared and self._expected and self._should_give_zeros():
                self._prepare(current)
            if current.is_synchronised:
                self._complete(current)
                self._expected = self._failed = False
        finally:
            self._pass = _no_pass

    def _should_give_zeros(self) -> bool:
        """Whether a pass that came to the output and to no parameter is one in which other ranks may reach some."""
        return _is_accumulating() and any(parameter.requires_grad for parameter in self._trained)

    def _complete(self, current: _Pass) -> None:
        """Tell the reducer of all parameters that it has not heard of in this pass."""
        if current.is_late:
            self.reducer.prepare_for_backward([])
            for key in current.arrived:
                self.reducer._autograd_hook(self._indices[key])
        missing = [parameter for parameter in self._trained if id(parameter) not in current.arrived]
        frozen = {parameter: parameter.grad for parameter in missing if not parameter.requires_grad}
        for parameter in missing:
            if parameter in frozen:
                parameter.grad = None
            elif self._sparse[self._indices[id(parameter)]] and parameter.grad is None:
                parameter.grad = _no_rows(parameter)
            self.reducer._autograd_hook(self._indices[id(parameter)])
        if frozen:  # once the reducer, which queued its own end first, has given them zeros
            Variable._execution_engine.queue_callback(lambda: _put_back(frozen))
        self._log_pass(missing)

    # Forwards past the wrapper

    def parts_differ(self, differ: bool) -> None:
        """Hear whether the batch that is being drawn is dealt in parts that weigh differently."""
        for guard in self._guards:
            guard.remove()
        self._guards = bypass.guard(self) if differ and self._weighs else []

    # Saying what was arranged

    def _say_once(self) -> None:
        if self._logged:
            return
        if self.device.type == "cpu" and ranks.device().type == "cuda" and ranks.is_main_process():
            warnings.warn(f"the model trains on the CPU, though there is {ranks.device()}", stacklevel=4)
        if not self._reduces:
            self._logged = True
            what = "nothing to synchronise in a group of one" if self._alone else "nothing to train"
            self._log(what)

    def _log_pass(self, missing: list[torch.nn.Parameter]) -> None:
        if self._logged:
            return
        self._logged = True
        arranged = [f"gradients averaged over {ranks.get_world_size()} ranks"]
        if self.will_sync_module_buffers():
            arranged.append(f"rank 0's {len(self.modules_buffers)} buffers before each training forward")
        if missing:
            names = {id(p): name for name, p in self.module.named_parameters()}
            few = ", ".join(names.get(id(p), "?") for p in missing[:3]) + ", …" * (len(missing) > 3)
            arranged.append(
                f"{len(missing)} parameters not reached by the forward get zero gradients ({few})"
            )
        self._log("; ".join(arranged))

    def _log(self, arranged: str) -> None:
        if ranks.is_main_process() and logger.isEnabledFor(logging.INFO):
            count = len(self._parameters_seen)
            numbers = sum(p.numel() for p in self._parameters_seen)
            name = type(self.module).__name__
            logger.info(f"{name} on {self.device}, {count} parameters ({numbers:,} numbers): {arranged}")

    # Buffers

    def _default_broadcast_coalesced(self, bufs=None, bucket_size=None, authoritative_rank=0) -> None:
        # `.data` has a version counter of its own
        buffers = [buffer.data for buffer in (self.modules_buffers if bufs is None else bufs)]
        super()._default_broadcast_coalesced(buffers, bucket_size, authoritative_rank)

    def _broadcast(self, tensors: Any) -> None:
        for tensor in tensors:
            dist.broadcast(tensor.data, src=0)

    # Copies (copy.deepcopy for a moving average, pickle)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__() if self._reduces else self.__dict__.copy()
        state.pop("process_group", None)
        for name in (
            "_pass",
            "_hooks",
            "_guards",
            "_trained",
            "_indices",
            "_untrained",
            "_parameters_seen",
            "_places",
        ):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._alone = ranks.is_alone("DistributedDataParallel()")
        if state["_reduces"] and not self._alone:
            super().__setstate__(state)
            self.reducer._remove_autograd_hooks()
            self._forget()
            self._follow_parameters()
            parts.watch(self)
            return
        torch.nn.Module.__setstate__(self, {**state, "_alone": self._alone})
        self._reset()  # what it needs here is arranged at the first forward
        self._follow_parameters()
        if not self._alone:
            self._parameters_seen = []


class _Pass:
    """One backward pass, as long as autograd has it to call at its end: a pass that fails is over as well."""

    def __init__(self, wrapper: DistributedDataParallel) -> None:
        self._wrapper = weakref.ref(wrapper)
        self.arrived: dict[int, None] = {}  # in the order of arrival
        self.is_prepared = False
        self.is_synchronised = False
        self.is_late = False  # whether the reducer hears of the gradients at the end

    def __call__(self) -> None:
        wrapper = self._wrapper()
        if wrapper is not None:
            wrapper._end_pass(self)


def _no_pass() -> None:
    return None


def _on_arrival(parameter: torch.nn.Parameter, key: int, wrapper: DistributedDataParallel) -> Any:
    """Have ``wrapper`` know whenever a gradient was added to ``parameter.grad``."""
    reference = weakref.ref(wrapper)

    def note(_: torch.Tensor) -> None:
        wrapper = reference()
        if wrapper is not None:
            wrapper._note_arrival(key)

    trained = parameter.requires_grad
    parameter.requires_grad_(True)  # torch registers no hook on one that is frozen for now
    handle = parameter.register_post_accumulate_grad_hook(note)
    parameter.requires_grad_(trained)
    return handle


def _is_accumulating() -> bool:
    """Whether the pass adds to the gradients of all it reaches: no ``torch.autograd.grad``, no ``inputs=``."""
    # of any thread: with a GPU, hooks run in one of autograd's own
    for frame in sys._current_frames().values():
        while frame is not None and frame.f_code is not torch.autograd.grad.__code__:
            if frame.f_code is torch.autograd.backward.__code__:
                return not frame.f_locals["inputs"]
            frame = frame.f_back
    return False


def _place(tensor: torch.Tensor) -> tuple[torch.device, torch.dtype]:
    return tensor.device, tensor.dtype


def _cuda_index(module: torch.nn.Module) -> int | None:
    """The GPU that holds all parameters, if one does."""
    devices = {parameter.device for parameter in module.parameters()}
    kinds = {device.type for device in devices}
    if len(kinds) > 1 and "cpu" in kinds:
        raise ValueError(
            "some parameters are on the CPU and some on a GPU: move the whole model first, "
            "DistributedDataParallel(model.to(ddp.device()))"
        )
    return devices.pop().index if len(devices) == 1 and next(iter(devices)).type == "cuda" else None


def _is_older(tensor: torch.Tensor, arguments: Any) -> bool:
    """Whether a leaf was there before the forward: a hook would stay on it."""
    if isinstance(tensor, torch.nn.Parameter):
        return True
    return any(tensor is argument for argument in torch_ddp._find_tensors(arguments))


def _no_rows(parameter: torch.nn.Parameter) -> torch.Tensor:
    """A sparse gradient of zero, as a torch.nn.Embedding has it."""
    indices = torch.empty(1, 0, dtype=torch.long, device=parameter.device)
    return torch.sparse_coo_tensor(
        indices, parameter.detach()[:0], parameter.shape, check_invariants=False, is_coalesced=True
    )


def _put_back(gradients: dict[torch.nn.Parameter, torch.Tensor | None]) -> None:
    for parameter, gradient in gradients.items():
        parameter.grad = gradient
