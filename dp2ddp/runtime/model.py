"""torch's DistributedDataParallel, with its arguments chosen and DataParallel's tolerance.

What nn.DataParallel takes and torch's DDP does not is settled here, at run time:

- *Parameters a forward leaves unused.* DDP's reducer waits for every parameter. ``find_unused_parameters=True`` walks
  the graph at every forward, and fails if a parameter is used by the first of two forwards only. Here, when the
  backward pass reaches the model's output, the autograd engine is asked which parameters it will reach; at the end of
  the pass the others get a gradient of zero through the same reducer. nn.DataParallel gives them zeros as well (the
  backward of its broadcast fills in what is missing).
- *Several forwards and backwards.* The reducer is made ready at the start of each backward pass, not only by the last
  forward, so that forward, forward, backward, backward synchronises both.
- *Buffers.* Rank 0's are broadcast before each training forward, as DataParallel copies replica 0's, but past
  autograd's version counters: a second forward before the backward pass may not invalidate the first.
- *Nothing to train.* A model without a trainable parameter only has its buffers kept in step.
- *A group of one.* No reducer, no collective: the call goes to the module.
"""

from __future__ import annotations

import warnings
import weakref
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd import Variable
from torch.distributed.utils import _to_kwargs
from torch.nn.parallel import distributed as torch_ddp

from . import ranks


class DistributedDataParallel(torch_ddp.DistributedDataParallel):
    """torch's DistributedDataParallel with the arguments chosen.

    Gradients are averaged over the ranks in the backward pass. ``.module`` and the ``module.`` of the state dict's keys
    are torch's. Inputs are moved to the module's GPU. A parameter that the backward pass does not reach gets a gradient
    of zero where there are several ranks, as with several replicas of nn.DataParallel; unless it reaches none at all,
    when every rank must agree. In a plain process or a group of one nothing is synchronised.

    Args:
        module: the model, already on the device it computes on.

    Raises:
        ValueError: some parameters are on the CPU and some on a GPU.
        RuntimeError: there are other ranks, but the process group does not exist yet.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        index = _cuda_index(module)
        alone = ranks.is_alone("DistributedDataParallel()")
        trains = any(parameter.requires_grad for parameter in module.parameters())
        if trains and not alone:
            super().__init__(module, device_ids=None if index is None else [index])
            self._local = False
            self._follow_parameters()
            return
        torch.nn.Module.__init__(self)
        self._local = True
        self._stale = False
        self.module = module
        self.dim = 0
        self.device_ids = None if index is None else [index]
        self.output_device = index
        self.device = next((p.device for p in module.parameters()), torch.device("cpu"))
        self.device_type = self.device.type
        self.require_backward_grad_sync = True
        self.process_group = None if alone else dist.group.WORLD
        if not alone:
            self._broadcast([*module.parameters(), *module.buffers()])

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if not self._local:
            output = super().forward(*inputs, **kwargs)
            if (
                torch.is_grad_enabled()
                and self.require_backward_grad_sync
                and not torch.compiler.is_compiling()
            ):
                self._expect_backward(output)
            return output
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
        return nullcontext() if self._local else super().join(*args, **kwargs)

    # Unused parameters

    def _follow_parameters(self) -> None:
        self._trained = [p for p in self._module_parameters if p.requires_grad]
        # The graph's node where a parameter's gradient arrives; there is one as long as somebody holds it.
        self._arrivals = [p.expand_as(p).grad_fn.next_functions[0][0] for p in self._trained]
        self._pass = None  # the backward pass we are in, by the autograd engine's number

    def _expect_backward(self, output: Any) -> None:
        """Have the first gradient that arrives at the output begin the backward pass."""
        reference = weakref.ref(self)

        def begin(_: torch.Tensor) -> None:
            wrapper = reference()
            if wrapper is not None:
                wrapper._begin_backward()

        for tensor in torch_ddp._find_tensors(output):
            if tensor.requires_grad and not tensor.is_leaf:
                tensor.register_hook(begin)

    def _begin_backward(self) -> None:
        current = torch._C._current_graph_task_id()
        if current == self._pass:
            return
        self._pass = current
        try:
            reached = [torch._C._will_engine_execute_node(node) for node in self._arrivals]
        except RuntimeError:  # torch.autograd.grad with respect to the parameters: accumulates no gradient
            return
        if not any(
            reached
        ):  # torch.autograd.grad with respect to an input, or all parameters frozen for the moment
            return
        self.reducer.prepare_for_backward([])
        missing = [p for p, is_reached in zip(self._trained, reached, strict=True) if not is_reached]
        if missing:
            Variable._execution_engine.queue_callback(lambda: _give_zeros(missing))

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
        if self._local:
            state = self.__dict__.copy()
            state["process_group"] = None
            return state
        state = super().__getstate__()
        for name in ("_trained", "_arrivals", "_pass"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["_local"]:
            torch.nn.Module.__setstate__(self, state)
            several = ranks.has_group() and dist.get_world_size() > 1
            self.process_group = dist.group.WORLD if several else None
        else:
            super().__setstate__(state)
            self._follow_parameters()


def _cuda_index(module: torch.nn.Module) -> int | None:
    """The GPU that holds all parameters, if one does."""
    devices = {parameter.device for parameter in module.parameters()}
    kinds = {device.type for device in devices}
    if len(kinds) > 1 and "cpu" in kinds:
        raise ValueError(
            "some parameters are on the CPU and some on a GPU: move the whole model first, "
            "DistributedDataParallel(model.to(ddp.device()))"
        )
    if kinds == {"cpu"} and ranks.device().type == "cuda" and ranks.is_main_process():
        warnings.warn(f"the model trains on the CPU, though there is {ranks.device()}", stacklevel=3)
    return devices.pop().index if len(devices) == 1 and next(iter(devices)).type == "cuda" else None


def _give_zeros(missing: list[torch.nn.Parameter]) -> None:
    """Let the reducer have a gradient of zero for each parameter that the backward pass did not reach."""
    frozen = {p: p.grad for p in missing if not p.requires_grad}
    for parameter in frozen:
        parameter.requires_grad_(True)
    try:
        torch.autograd.backward(missing, [torch.zeros_like(p) for p in missing])
    finally:
        for parameter, gradient in frozen.items():
            parameter.requires_grad_(False)
            parameter.grad = gradient
