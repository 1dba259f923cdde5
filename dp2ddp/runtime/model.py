"""torch's DistributedDataParallel, with its arguments chosen and DataParallel's tolerance.

What nn.DataParallel takes and torch's DDP does not is settled here, at run time:

- *Parameters a forward leaves unused, several forwards and backwards, forwards that go past the wrapper*
  (``model.module(x)``). The reducer follows the gradients that arrive, and not the forward (see ``passes``).
  ``find_unused_parameters=True`` walks the graph at every forward, and fails if a parameter is used by the first of
  two forwards only. nn.DataParallel gives unused parameters gradients of zero too (the backward of its broadcast).
- *Parts of a global batch that differ in size.* What a part's size weighs is multiplied in at the output (see
  ``weighing``). A forward that goes past the wrapper can't be weighed: it is refused (see ``bypass``).
- *Parameters moved, trained from now on or replaced* after the model was wrapped. The reducer is made anew.
- *Buffers.* Rank 0's are broadcast before each training forward, as DataParallel copies replica 0's, and before the
  first one without gradients after that; but past autograd's version counters: a second forward before the backward
  pass may not invalidate the first.
- *Random numbers* of a forward (dropout) are each rank's own (see ``local_streams``): its samples are.
- *Parameters that a forward writes.* Rank 0's are broadcast with the buffers (see ``watch``, which also compares the
  ranks' parameters now and then).
- *Attributes that a forward stores* are forgotten after it (see ``attributes``).
- *Nothing to train.* A model without a trainable parameter only has its buffers kept in step.
- *A group of one.* No reducer, no collective: the call goes to the module.
"""

from __future__ import annotations

import itertools
import logging
import math
import warnings
import weakref
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.utils import _to_kwargs
from torch.nn.parallel import distributed as torch_ddp

from . import (
    again,
    attributes,
    bypass,
    callbacks,
    checkpoint,
    compiling,
    copies,
    debug,
    devices,
    evaluation,
    parts,
    persample,
    ranks,
    torchmetrics_apart,
    unstarted,
    watch,
    weighing,
    written,
)
from .local_streams import LocalStream
from .passes import Passes
from .wrapping import StandsForModel, unwrapped

logger = logging.getLogger("dp2ddp")
_numbers = itertools.count()
_wraps: weakref.WeakKeyDictionary[torch.nn.Module, int] = weakref.WeakKeyDictionary()
"""How many wrappers have been made round each layer with buffers: the same on all ranks, whatever is collected when."""

_BROADCAST_BYTES = 250 * 1024 * 1024  # as torch has it


def _memory(tensor: torch.Tensor) -> torch.Tensor:
    """What a broadcast writes of a tensor: in one dimension where that is possible, with a version counter of its own.

    torch's can't write into a tensor alone in a bucket whose strides are not the usual ones, as those of
    ``pe.unsqueeze(0).transpose(0, 1)``.
    """
    data = tensor.data
    plain = data.layout is torch.strided and not torch.nn.parameter.is_lazy(tensor)
    return data.view(-1) if plain and data.is_contiguous() else data


def _write_out(module: torch.nn.Module) -> None:
    """Give buffers that repeat numbers (``expand``) memory for each: nothing can be broadcast into them."""
    for buffer in module.buffers():
        if buffer.layout is torch.strided and not torch.nn.parameter.is_lazy(buffer):
            if any(
                not stride and size > 1 for size, stride in zip(buffer.shape, buffer.stride(), strict=True)
            ):
                buffer.data = buffer.data.contiguous()


class DistributedDataParallel(StandsForModel, torch_ddp.DistributedDataParallel):
    """torch's DistributedDataParallel with the arguments chosen.

    Gradients are averaged over the ranks in the backward pass. ``.module`` and the ``module.`` of the state dict's keys
    are torch's. Inputs are moved to the module's GPU. A parameter that the backward pass does not reach gets a gradient
    of zero where there are several ranks, as with several replicas of nn.DataParallel. What was arranged is logged once
    (logger ``dp2ddp``, level DEBUG). In a plain process or a group of one nothing is synchronised.

    Where the ranks hold parts of a global batch that differ in size, each forward's gradients are weighed, W * n_r / N
    on a rank with n_r of N samples: the gradient of a mean over the part becomes that of the mean over the batch.

    Args:
        module: the model, on one device or, split by hand, on several GPUs. It may be moved later. Of a wrapper it is
            the model in it.
        device_ids, output_device: for classes that derive from it and did from nn.DataParallel. Each rank uses its
            own device.
        dim: the dimension in which parts have their samples. Where it is not 0, each forward on a part looks whether
            all tensors that the module takes and returns have as many there as the part, as nn.DataParallel would cut
            them and put them together.

    Raises:
        ValueError: some parameters are on the CPU and some on a GPU.
        RuntimeError: there are other ranks, but the process group does not exist yet.
    """

    _weighs = True  # what the parts in play weigh
    _shares_buffers = True  # rank 0's, by itself
    _promises_buffers = False  # to be the same on all ranks whenever a forward begins

    def __init__(
        self, module: torch.nn.Module, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        callbacks.refuse_waiting(module)
        again.start_if_misled()
        torch.nn.Module.__init__(self)
        module = unwrapped(module, DistributedDataParallel, torch.nn.DataParallel)
        self.module = module
        self.dim = 0
        self._dim = dim  # of the samples
        self.require_backward_grad_sync = True
        self._alone = ranks.is_alone("DistributedDataParallel()")
        if not self._alone:  # else it stays where the program has put it
            debug.meet("DistributedDataParallel()")
            devices.bring(module)
        self._reset()
        self._arrange(new=True)
        if not self._alone:
            evaluation.register(self)
            self._watch.accompany()

    def _reset(self) -> None:
        self.process_group = None if self._alone else dist.group.WORLD
        self._reduces = False
        self._stale = False  # whether buffers may differ between ranks, where torch does not look after them
        self._logged = False
        self._seen: list[torch.nn.Parameter] = []
        self._forget()

    def _forget(self) -> None:
        """What is no part of a copy."""
        self._unsettled = True  # whether parameters may have been moved or replaced
        self._passes = Passes(self)
        self._watch = watch.Watch(self, type(self.module).__name__, None if self._alone else self.module)
        self._inside = bypass.Inside()
        self._guards: list[Any] = []
        self._stream = LocalStream("model", next(_numbers))
        self._attributes = attributes.Attributes(self.module)
        for layer in self.module.modules():
            if layer._buffers:
                _wraps[layer] = _wraps.get(layer, 0) + 1

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if self._alone:
            unstarted.report()
            return self._forward_here(*inputs, **kwargs)
        torchmetrics_apart.begin()  # it may be imported by now
        with self._stream.drawn(self._placed) if self._is_on_part() else nullcontext():
            output = self._attributes.run(self._forward_here, inputs, kwargs)
        persample.note_output(output)
        return output

    def _is_on_part(self) -> bool:
        """Whether a forward is on samples of this rank's own; without gradients, all ranks may evaluate the same."""
        return self.module.training or torch.is_grad_enabled() or evaluation.is_running()

    def _forward_here(self, *inputs: Any, **kwargs: Any) -> Any:
        if evaluation.is_running():
            return self._forward_in_evaluation(*inputs, **kwargs)
        self.settle()
        if not (self._reduces and self._may_write() and self._watch.is_due):
            return self._forward_with_copies(*inputs, **kwargs)
        self._watch.begin()
        output = self._forward_with_copies(*inputs, **kwargs)
        self._watch.end()
        return output

    def _forward_with_copies(self, *inputs: Any, **kwargs: Any) -> Any:
        """On ranks other than the first, what is written and not trained is a copy's, as with further replicas."""
        if ranks.is_main_process() or not self._watch.written or not torch.is_grad_enabled():
            return self._forward_in_form(*inputs, **kwargs)
        with written.copied(self.module, self._watch.written):
            return self._forward_in_form(*inputs, **kwargs)

    def _may_write(self) -> bool:
        """Whether this is a forward in which a model may write its parameters."""
        return self.module.training or torch.is_grad_enabled()

    def _forward_in_form(self, *inputs: Any, **kwargs: Any) -> Any:
        if not self._reduces:
            with self._in_step(1.0):
                return self._forward_unreduced(*inputs, **kwargs)
        if not torch.is_grad_enabled():
            with self._in_step(1.0):
                return super().forward(*inputs, **kwargs)
        weighs = self._weighs and not any(weight is not None for weight in weighing.forwards)
        weight = parts.weight(inputs, kwargs, training=self.module.training) if weighs else 1.0
        if self._dim:
            parts.require(self._dim, "is given", inputs, kwargs)
        is_known = not math.isnan(weight)
        if is_known and weight != 1.0:
            inputs, kwargs = weighing.unweighed((inputs, kwargs), weight)
        with self._inside if self._guards else nullcontext(), self._in_step(weight):
            output = self._forward_reduced(*inputs, **kwargs)
        if self._dim:
            parts.require(self._dim, "returns", output)
        if not is_known:
            return weighing.refused(output)
        if self.require_backward_grad_sync:
            self._passes.expect(output, (inputs, kwargs))
        return weighing.weighed(output, weight) if weighs and parts.are_drawn() else output

    def _forward_reduced(self, *inputs: Any, **kwargs: Any) -> Any:
        if getattr(torch.autograd.profiler, "_is_profiler_enabled", True):
            return super().forward(*inputs, **kwargs)
        # as torch's, without the mark for the profiler, which costs more than all the rest
        inputs, kwargs = self._pre_forward(*inputs, **kwargs)
        return self._post_forward(self._run_ddp_forward(*inputs, **kwargs))

    def _post_forward(self, output: Any) -> Any:
        # torch's makes the reducer ready here, for the one backward pass that it expects
        if self._check_sync_bufs_post_fwd():
            self._sync_buffers()
        trains = torch.is_grad_enabled() and self.require_backward_grad_sync
        self.require_forward_param_sync = trains or self._is_beside_another()
        return output

    def _is_beside_another(self) -> bool:
        """Whether another wrapped model has buffers of this one: its forwards may have changed them, on each rank."""
        return any(_wraps.get(layer, 0) > 1 for layer in self.module.modules() if layer._buffers)

    def _forward_unreduced(self, *inputs: Any, **kwargs: Any) -> Any:
        if self._stale:
            self._broadcast([*self.module.buffers(), *self._watch.shared_parameters()])
        self._stale = self._shares_buffers and not self._alone and self.module.training
        return self._forward_module(*inputs, **kwargs)

    def _forward_in_evaluation(self, *inputs: Any, **kwargs: Any) -> Any:
        if self.module.training:
            raise RuntimeError(
                f"{type(self.module).__name__} is in training mode while each rank evaluates its own batches, "
                "so its buffers would differ across ranks: call model.eval() before the loop"
            )
        return self._forward_module(*inputs, **kwargs)

    def _forward_module(self, *inputs: Any, **kwargs: Any) -> Any:
        if self.device_ids:
            device = torch.device("cuda", self.device_ids[0])
            moved, moved_kwargs = _to_kwargs(inputs, kwargs, device, False)
            inputs, kwargs = moved[0], moved_kwargs[0]
        return self.module(*inputs, **kwargs)

    # Layers that hear of their likes in other replicas

    def replicate(self, module: torch.nn.Module, device_ids: Sequence[Any]) -> list[torch.nn.Module]:
        """Copies as nn.DataParallel makes them, for a class or an object that has their layers called back."""
        return copies.made(module, len(device_ids))

    def _in_step(self, weight: float) -> AbstractContextManager:
        """Where replicas would be called back: have the layers share their sums, unless this part counts nothing."""
        own = "replicate" in self.__dict__ or type(self).replicate is not DistributedDataParallel.replicate
        if not own or self._alone or not self.module.training:
            return nullcontext()
        world, rank = ranks.get_world_size(), ranks.get_rank()
        replicas = self.replicate(self.module, [ranks.device().index or 0] * world)
        if len(replicas) != world or any(copies.tag(it) is None for it in replicas):
            raise RuntimeError(
                f"the `replicate` of {type(self).__name__} returns other modules than it was given: use DataParallel"
            )
        return copies.acting_as(replicas[rank], self.module, weight != 0)

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

    def unsettle(self) -> None:
        """Have the next forward look whether parameters were replaced."""
        self._unsettled = True

    def settle(self, in_backward: bool = False) -> None:
        """Follow what became of the parameters since the last time."""
        seen, replaced, moved = self._seen, False, False
        if self._unsettled and not in_backward:
            self._unsettled = False
            current = list(self.module.parameters())
            replaced = [*map(id, seen)] != [*map(id, current)]
            moved = not replaced and [*map(_place, seen)] != self._places
            self._say_once()
        elif seen:
            moved = _place(seen[0]) != self._places[0]
        if replaced or moved or any(parameter.requires_grad for parameter in self._untrained):
            self._arrange(new=replaced)
        elif self._passes.has_failed():
            self.renew_reducer()

    def _arrange(self, new: bool) -> None:
        """Arrange what the parameters need as they are now.

        Args:
            new: whether they are to be made the same on all ranks, which is a collective.
        """
        # Before the training there may be an evaluation without any graphs, nor what finds the gradients' places
        with torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext():
            self._arrange_with_graphs(new)

    def _arrange_with_graphs(self, new: bool) -> None:
        index = cuda_index(self.module)
        if new and not self._alone:
            watch.agree()
            _write_out(self.module)
        trains = any(parameter.requires_grad for parameter in self.module.parameters())
        if not self._alone and trains and (new or not self._reduces):
            self._start_reducing(index)
            return
        self._place_at(index)
        if self._reduces:
            self.renew_reducer()
            return
        if new and not self._alone:
            self._broadcast([*self.module.parameters(), *self.module.buffers()])
        self._follow_parameters()

    def _place_at(self, index: int | None) -> None:
        devices = {parameter.device for parameter in self.module.parameters()}
        self.device_ids = None if index is None else [index]
        self.output_device = index
        self.is_multi_device_module = len(devices) > 1
        set_by_program = self._set_by_program()
        self.device = self._placed = next((p.device for p in self.module.parameters()), torch.device("cpu"))
        self.device_type = self.device.type
        self.__dict__.update(set_by_program)

    def _set_by_program(self) -> dict[str, Any]:
        """``device``, as torch's wrapper has one and nn.DataParallel has none: a program may keep its own there."""
        mine = self.__dict__.get("_placed")
        return {} if self.__dict__.get("device", mine) is mine else {"device": self.device}

    def _start_reducing(self, index: int | None) -> None:
        # torch's __init__ resets what a module has: mode, hooks
        kept = {name: self.__dict__[name] for name in vars(torch.nn.Module())}
        kept |= self._set_by_program()
        hooks = self.__dict__.get("_comm_hooks", [])
        with ExitStack() as stack:  # it writes rank 0's values, which graphs of before may hold
            for tensor in (*self.module.parameters(), *self.module.buffers()):
                stack.enter_context(torch.autograd._unsafe_preserve_version_counter(tensor))
            super().__init__(self.module, device_ids=None if index is None else [index])
        self._placed = self.device
        self.__dict__.update(kept)
        compiling.leave_out()
        for hook, state in hooks:
            self.register_comm_hook(state, hook)
        self._reduces = True
        self._follow_parameters()
        parts.watch(self)

    def renew_reducer(self) -> None:
        """Make another reducer; what the old one has sent meanwhile stays its own, and is of no use."""
        named = self.module.named_parameters()
        self._module_parameters = [p for name, p in named if name not in self.parameters_to_ignore]
        parameters, sparse = self._build_params_for_reducer()
        names = self._build_debug_param_to_name_mapping(parameters)
        self._ddp_init_helper(parameters, sparse, names, self.static_graph)
        self._has_rebuilt_buckets = False
        for hook, state in self._comm_hooks:
            dist._register_comm_hook(self.reducer, state, hook)
        self._follow_parameters()

    def _follow_parameters(self) -> None:
        self._seen = list(self.module.parameters())
        self._places = [*map(_place, self._seen)]
        self._untrained: list[torch.nn.Parameter] = []
        if not self._alone:
            followed = self._module_parameters if self._reduces else self._seen
            self._untrained = [parameter for parameter in followed if not parameter.requires_grad]
        if self._reduces:
            self._passes.follow(self._module_parameters, *self._build_params_for_reducer())

    def expect_backward(self, output: torch.Tensor) -> None:
        """Expect a backward pass that comes to ``output``, though that has no graph on this rank."""
        if self._reduces:
            self._passes.expect(output, ())

    def parts_differ(self, differ: bool) -> None:
        """Hear whether the batch that is being drawn is dealt in parts that weigh differently."""
        for guard in self._guards:
            guard.remove()
        self._guards = bypass.guard(self.module, self._inside) if differ and self._weighs else []

    # Saying what was arranged

    def _say_once(self) -> None:
        if self._logged:
            return
        if self._placed.type == "cpu" and ranks.device().type == "cuda" and ranks.is_main_process():
            warnings.warn(f"the model trains on the CPU, though there is {ranks.device()}", stacklevel=5)
        if not self._reduces:
            self._log("nothing to synchronise in a group of one" if self._alone else "nothing to train")

    def passed(self, missing: list[torch.nn.Parameter]) -> None:
        """Hear of the end of a synchronised backward pass, and of the parameters that it did not reach."""
        if self._logged:
            return
        arranged = [f"gradients averaged over {ranks.get_world_size()} ranks"]
        if self.modules_buffers and self._shares_buffers:
            arranged.append(f"rank 0's {len(self.modules_buffers)} buffers before each training forward")
        if missing:
            names = {id(parameter): name for name, parameter in self.module.named_parameters()}
            few = ", ".join(names[id(parameter)] for parameter in missing[:3]) + ", …" * (len(missing) > 3)
            arranged.append(
                f"{len(missing)} parameters not reached by the forward get zero gradients ({few})"
            )
        self._log("; ".join(arranged))

    def _log(self, arranged: str) -> None:
        self._logged = True
        if ranks.is_main_process() and logger.isEnabledFor(
            logging.DEBUG
        ):  # the program's own log stays as it was
            numbers = sum(parameter.numel() for parameter in self._seen)
            what = f"{type(self.module).__name__} on {self._placed}, {len(self._seen)} parameters ({numbers:,} numbers)"
            logger.debug("%s: %s", what, arranged)

    # Buffers

    def will_sync_module_buffers(self) -> bool:
        return self._shares_buffers and super().will_sync_module_buffers()

    def _assign_modules_buffers(self) -> None:
        super()._assign_modules_buffers()
        if "_watch" in self.__dict__:  # not yet in a copy that is being made
            self.modules_buffers = [*self.modules_buffers, *self._watch.shared_parameters()]

    def share_buffers(self) -> None:
        """Give all ranks rank 0's buffers, and parameters that forwards write; a collective."""
        self._broadcast([*self.module.buffers(), *self._watch.shared_parameters()])
        self._stale = False

    # Being watched

    def watched(self) -> dict[str, torch.Tensor]:
        """The parameters that are the same on all ranks."""
        ignored = getattr(self, "parameters_to_ignore", ())
        return {name: it for name, it in self.module.named_parameters() if name not in ignored}

    def promised(self) -> dict[str, torch.Tensor]:
        """The buffers that are the same on all ranks whenever a forward begins."""
        return dict(self.module.named_buffers()) if self._promises_buffers else {}

    def is_watched(self) -> bool:
        """Whether its passes are compared: not where parameters may differ by intent."""
        return self._reduces and not self._comm_hooks and not self._join_config.enable

    def is_frozen(self) -> bool:
        """Whether nothing of it is trained."""
        return not any(it.requires_grad for it in self.module.parameters())

    def _default_broadcast_coalesced(self, bufs=None, bucket_size=None, authoritative_rank=0) -> None:
        buffers = [_memory(buffer) for buffer in (self.modules_buffers if bufs is None else bufs)]
        if not buffers:  # what was shared once need not be any more
            return
        debug.meet(f"the broadcast of the buffers of {type(self.module).__name__}")
        super()._default_broadcast_coalesced(buffers, bucket_size, authoritative_rank)

    def _broadcast(self, tensors: Iterable[torch.Tensor]) -> None:
        debug.meet(f"the broadcast of the buffers of {type(self.module).__name__}")
        data = [_memory(tensor) for tensor in tensors]
        if data:
            dist._broadcast_coalesced(self.process_group, data, _BROADCAST_BYTES, 0)

    # Copies (copy.deepcopy for a moving average, pickle)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return checkpoint.reduced(self, DistributedDataParallel) or super().__reduce_ex__(protocol)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__() if self._reduces else self.__dict__.copy()
        for name in (
            "process_group",
            "_passes",
            "_watch",
            "_inside",
            "_guards",
            "_stream",
            "_attributes",
            "_untrained",
            "_seen",
            "_places",
        ):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        alone = ranks.is_alone("DistributedDataParallel()")
        if state["_reduces"] and not alone:
            super().__setstate__(state)
            self._forget()
            self._follow_parameters()
            parts.watch(self)
            evaluation.register(self)
            return
        torch.nn.Module.__setstate__(self, {**state, "_alone": alone})
        self._reset()
        self._follow_parameters()
        if not alone:
            evaluation.register(self)
            self._seen = []  # what it needs is arranged at the first forward, by all ranks


def _place(tensor: torch.Tensor) -> tuple[torch.device, torch.dtype]:
    return tensor.device, tensor.dtype


def cuda_index(module: torch.nn.Module) -> int | None:
    """The GPU that holds all parameters, if one does."""
    devices = {parameter.device for parameter in module.parameters()}
    kinds = {device.type for device in devices}
    if len(kinds) > 1 and "cpu" in kinds:
        raise ValueError(
            "some parameters are on the CPU and some on a GPU: move the whole model first, "
            "DistributedDataParallel(model.to(ddp.device()))"
        )
    return devices.pop().index if len(devices) == 1 and next(iter(devices)).type == "cuda" else None
