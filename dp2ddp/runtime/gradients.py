"""Modules that are trained beside the wrapped model: a head, a loss with parameters of its own.

nn.DataParallel leaves them on one device, with the whole batch. Here each rank has a copy, which is given its part.

- *Nothing but hooks.* The module's class, attributes and keys stay; a copy of it is an ordinary module.
- *Order.* The wrapped models send gradients while a backward pass runs and when it ends. What is averaged here is sent
  after all of that, in the order of the calls of ``sync_gradients``: the same on every rank, whatever arrives when.
- *Parts of a global batch that differ in size* weigh at the module's outputs, as at a wrapped model's (see
  ``weighing``). What comes from such a model has its weight; what is given rows of the whole batch has none.
- *Parameters without a gradient.* Where a rank has none it counts as zero; where no rank has one there is none, so that
  the optimizer passes over the parameter as it did.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator
from threading import RLock
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd import Variable
from torch.nn.parallel import DistributedDataParallel
from torch.utils.weak import WeakIdKeyDictionary

from . import bypass, debug, evaluation, graph, parts, ranks, unwrapped, watch, weighing

_ROUNDS = 2  # of callbacks at the end of a backward pass, in which the wrapped models send

_averages: list[weakref.ref[_Averaged]] = []  # in the order of the calls, as on every rank
_passes: weakref.WeakValueDictionary[int, _Pass] = weakref.WeakValueDictionary()
_beginning = RLock()  # gradients on several GPUs arrive in several threads
_followed = WeakIdKeyDictionary()  # the parameters that are averaged
_weighing = WeakIdKeyDictionary()  # the modules that weigh


def sync_gradients(module: torch.nn.Module) -> None:
    """Train a module beside the wrapped model, the same on all ranks, though it is not wrapped itself.

    For a head, or a loss with parameters of its own, that is given this rank's part of a batch::

        model.encoder = ddp.DistributedDataParallel(model.encoder)
        ddp.sync_gradients(classifier)
        optimizer = torch.optim.SGD(classifier.parameters(), lr=0.1)

    Its parameters and buffers become rank 0's. From now on each backward pass ends with the mean of the ranks'
    gradients in ``.grad``, as of a wrapped model. The module stays as it is, and so do the keys of its state. Parts of
    it that are wrapped are left to their wrappers. Call it again after parameters were replaced.

    Layers that look at several samples (BatchNorm) see those of a rank's part only: wrap the module, then, or give it
    ``whole_batch`` rows. In a plain process nothing is done.

    Args:
        module: called as ``module(…)`` in the training. All ranks must call; a module without parameters is left alone.

    Raises:
        TypeError: not a module.
        RuntimeError: there are other ranks, but the process group does not exist yet; in the first forward that trains,
            there are parameters that were not there before; or, in a backward pass, a gradient is sparse.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"sync_gradients() takes a module, not {type(module).__name__}")
    if ranks.is_alone("sync_gradients()"):
        return
    bare = list(_bare(module))
    parameters = [
        parameter for part in bare for parameter in part._parameters.values() if parameter is not None
    ]
    buffers = [buffer for part in bare for buffer in part._buffers.values() if buffer is not None]
    if not parameters:
        return
    debug.meet(f"sync_gradients() of {type(module).__name__}")
    unwrapped.averaged(parameters)
    for tensor in [*parameters, *buffers]:
        sent = tensor.detach().contiguous().to(ranks.talk_device(tensor.device))
        dist.broadcast(sent, 0)
        tensor.data.copy_(sent)
    new = [it for it in parameters if it not in _followed]
    if new:
        watch.agree()
        names = {id(it): name for name, it in module.named_parameters()}
        _averages.append(weakref.ref(_Averaged(type(module).__name__, new, len(_averages), names)))
    for part in _callable(module):
        if part not in _weighing:
            _weighing[part] = _Weighing(part)


def _bare(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """A module and all within it that is not wrapped."""
    if not isinstance(module, DistributedDataParallel):
        yield module
        for child in module.children():
            yield from _bare(child)


def _callable(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The largest parts of a module that are called and hold nothing that is wrapped."""
    if isinstance(module, DistributedDataParallel) or next(module.parameters(), None) is None:
        return
    is_called = type(module).forward is not torch.nn.Module.forward  # a ModuleList is not
    if is_called and not _holds_wrapped(module):
        yield module
        return
    for child in module.children():
        yield from _callable(child)


def _holds_wrapped(module: torch.nn.Module) -> bool:
    return any(isinstance(part, DistributedDataParallel) for part in module.modules())


# Averages


class _Averaged:
    """Parameters whose gradients are averaged together, where a backward pass reaches one of them.

    Their hooks alone have it.
    """

    def __init__(
        self, name: str, parameters: list[torch.nn.Parameter], number: int, names: dict[int, str]
    ) -> None:
        self._name = name
        self.number = number
        self._names = [names[id(it)] for it in parameters]
        self._named = [*map(weakref.ref, parameters)]
        self._watch = watch.Watch(self, name)
        followed = {id(it): it for it in parameters if it.is_floating_point() or it.is_complex()}.values()
        self._parameters = [*map(weakref.ref, followed)]  # torch finds no cycle through a parameter's hook
        for parameter in followed:
            trained = parameter.requires_grad
            parameter.requires_grad_(True)  # torch registers no hook on one that is frozen for now
            _followed[parameter] = parameter.register_post_accumulate_grad_hook(self._note)
            parameter.requires_grad_(trained)

    def _note(self, parameter: torch.Tensor) -> None:
        if ranks.stands_aside():
            return
        with _beginning:
            task = torch._C._current_graph_task_id()
            current = _passes.get(task)
            if current is None:
                _passes[task] = current = _Pass()
                Variable._execution_engine.queue_callback(current)
            current.reached.add(self)
        if not current.is_weighed(parameter):
            raise RuntimeError(
                "local batches differ in size here, so the gradient of a parameter of shape "
                f"{list(parameter.shape)} beside a wrapped part of {self._name} can't be weighted: put it into "
                "a module of its own, or use a number of processes that divides the batch size"
            )

    def average(self) -> None:
        alike: dict[tuple[torch.device, torch.dtype], list[torch.nn.Parameter]] = {}
        for parameter in [reference() for reference in self._parameters]:
            if parameter is not None and parameter.requires_grad and parameter in _followed:
                alike.setdefault((parameter.device, parameter.dtype), []).append(parameter)
        debug.meet(f"the average of the gradients of {self._name}")
        for (device, _), parameters in alike.items():
            _average(parameters, device)
        if at_end := self._watch.passed():
            at_end()

    # Being watched

    def watched(self) -> dict[str, torch.Tensor]:
        """The parameters that are the same on all ranks."""
        pairs = zip(self._names, (reference() for reference in self._named), strict=True)
        return {name: it for name, it in pairs if it is not None}

    def promised(self) -> dict[str, torch.Tensor]:
        """No buffers."""
        return {}

    def is_watched(self) -> bool:
        """Its passes are compared."""
        return True

    def is_frozen(self) -> bool:
        """It is trained."""
        return False


class _Pass:
    """The end of a backward pass. Autograd alone has it: one that failed is gone."""

    __slots__ = ("_rounds", "_weighed", "reached", "__weakref__")

    def __init__(self) -> None:
        self.reached: set[_Averaged] = set()
        self._rounds = 0
        self._weighed: set[int] | None = None  # the parameters of modules that weigh, if parts differ
        if parts.may_differ():
            self._weighed = {id(parameter) for part in _weighing for parameter in part.parameters()}

    def is_weighed(self, parameter: torch.Tensor) -> bool:
        """Whether a gradient weighs as it must."""
        return self._weighed is None or id(parameter) in self._weighed

    def __call__(self) -> None:
        if self._rounds < _ROUNDS:
            self._rounds += 1
            Variable._execution_engine.queue_callback(self)
            return
        for averaged in _reached_anywhere(self.reached):
            averaged.average()


def _reached_anywhere(reached: set[_Averaged]) -> list[_Averaged]:
    """What a backward pass reaches, on any rank, in the same order on all."""
    if len(_averages) == 1:
        return [*reached]
    debug.meet("the end of a backward pass")
    mask = torch.zeros(len(_averages), dtype=torch.uint8, device="cpu")
    mask[[averaged.number for averaged in reached]] = 1
    mask = mask.to(ranks.talk_device())
    dist.all_reduce(mask, dist.ReduceOp.MAX)
    found = [
        reference() for reference, is_reached in zip(_averages, mask.tolist(), strict=True) if is_reached
    ]
    return [averaged for averaged in found if averaged is not None]


def _average(parameters: list[torch.nn.Parameter], device: torch.device) -> None:
    """Give parameters of one type, on one device, the mean of the ranks' gradients."""
    gradients = [parameter.grad for parameter in parameters]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is not None and gradient.is_sparse:
            raise RuntimeError(
                f"sync_gradients() can't average the sparse gradient of a parameter of shape {list(parameter.shape)}: "
                "wrap its module in DistributedDataParallel, or make it with sparse=False"
            )
    pieces = [
        (torch.zeros_like(parameter) if gradient is None else gradient).detach().reshape(-1)
        for parameter, gradient in zip(parameters, gradients, strict=True)
    ]
    present = pieces[0].new_tensor([gradient is not None for gradient in gradients])
    flat = torch.cat([*pieces, present]).to(ranks.talk_device(device))
    flat /= ranks.get_world_size()
    dist.all_reduce(flat)
    *means, present = flat.to(device).split([*(piece.numel() for piece in pieces), len(pieces)])
    somewhere = present.tolist() if None in gradients else []
    for index, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
        mean = means[index].view(parameter.shape)
        if gradient is not None:
            gradient.data.copy_(mean)
        elif somewhere[index]:
            parameter.grad = mean.clone()


# Weights


class _Hook:
    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *given: Any) -> Any:
        return self._call(*given)

    def __reduce__(self) -> Any:
        return bypass.in_a_copy()


class _Weighing:
    """Forward hooks that multiply the gradients within a module by what its rank's part weighs; none in a copy."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._weights: list[float | None] = []  # of the forwards that run
        self._guards: list[Any] = []
        self._is_settled = False
        self._module = weakref.ref(module)
        self._handles = [
            module.register_forward_pre_hook(_Hook(self._before), with_kwargs=True),
            module.register_forward_hook(_Hook(self._after), with_kwargs=True, always_call=True),
        ]
        parts.watch(self)

    def parts_differ(self, differ: bool) -> None:
        """Hear whether the batch that is being drawn is dealt in parts that weigh differently."""
        for guard in self._guards:
            guard.remove()
        module = self._module()
        self._guards = []
        if differ and module is not None:
            self._guards = bypass.guard(module, self._weights, "the module that sync_gradients() was given")

    def _before(self, module: torch.nn.Module, inputs: Any, kwargs: Any) -> Any:
        if module is not self._module():
            return None
        if not self._is_settled and torch.is_grad_enabled():
            self._is_settled = True
            if _holds_wrapped(module):  # since then a part of it was wrapped
                self._leave_to_parts(module)
                return None
            if any(it.requires_grad and it not in _followed for it in module.parameters()):
                raise RuntimeError(
                    f"parameters of {type(module).__name__} were replaced or added after sync_gradients() was "
                    "called: call it after that, on all ranks"
                )
        weight = self._weight(module, inputs, kwargs)
        self._weights.append(weight)
        weighing.forwards.append(weight)
        is_known = weight is not None and not math.isnan(weight)
        return weighing.unweighed((inputs, kwargs), weight) if is_known and weight != 1.0 else None

    def _weight(self, module: torch.nn.Module, *given: Any) -> float | None:
        """What the gradients of a forward weigh; None where nothing does."""
        if weighing.forwards or DistributedDataParallel._active_ddp_module is not None:
            return None  # what runs it does
        if not torch.is_grad_enabled() or not parts.are_drawn() or evaluation.is_running():
            return None
        tensors = parts.tensors(given)
        if any(map(graph.is_whole, tensors)):
            return None
        behind = graph.forward_weight(*(tensor for tensor in tensors if tensor.requires_grad))
        return parts.weight(given, training=module.training) if behind is None else behind

    def _after(self, module: torch.nn.Module, inputs: Any, kwargs: Any, output: Any) -> Any:
        if module is not self._module() or not self._weights:
            return None
        weight = self._weights.pop()
        weighing.forwards.pop()
        if weight is None:
            return None
        return weighing.refused(output) if math.isnan(weight) else weighing.weighed(output, weight)

    def _leave_to_parts(self, module: torch.nn.Module) -> None:
        for handle in (*self._handles, *self._guards):
            handle.remove()
        self._module = lambda: None
        del _weighing[module]
        for part in module.modules():
            if isinstance(part, DistributedDataParallel):
                for parameter in part.parameters():
                    if parameter in _followed:
                        _followed.pop(parameter).remove()
        for part in _callable(module):
            if part not in _weighing:
                _weighing[part] = _Weighing(part)
