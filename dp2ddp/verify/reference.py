"""nn.DataParallel on W GPUs, played on one device, so that there is something to agree with.

``nn.DataParallel`` is the identity where there are not several GPUs. ``play(W)`` puts a DataParallel in its place that
does what torch's does: chunk the batch, run one replica per chunk, keep what replica 0 does to buffers and parameters,
and gather the outputs. Its steps can be replaced as torch's can, and ``torch.nn.parallel``'s functions are played, too.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import torch
from torch import nn

from dp2ddp.verify import turns

GATHERED = "dp2ddp.gathered"
"""What the graph's nodes say that join the replicas' outputs."""
_COPY = "_dp2ddp_copy"  # where a copy keeps whose copy it is
_CALLBACK = "__data_parallel_replicate__"  # layers that share sums among replicas have it

cuts: set[int] = set()
"""How many parts the tensors of one call were cut into: of several numbers, what the fewest leave over is lost."""
running: ContextVar[int] = ContextVar("running", default=0)
"""The number of the replica whose forward runs."""


class _Copy:
    """Which of a module's replicas a copy is."""

    def __init__(self, module: nn.Module, index: int) -> None:
        self.module = module
        self.index = index
        self.is_called_back = False


class DataParallel(nn.Module):
    """torch.nn.DataParallel's arithmetic for devices that are all the same."""

    replicas: int | None = None
    """As many as are compared with, whatever devices the program names; None: as many as it names."""

    def __init__(
        self, module: nn.Module, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        self.module = module
        self.dim = dim
        named = list(device_ids) if device_ids is not None else [0]
        self.device_ids = named if self.replicas in (None, len(named)) else list(range(self.replicas))
        self.output_device = self.device_ids[0] if output_device is None else output_device

    @property
    def src_device_obj(self) -> torch.device:
        """The device of the module."""
        return next(self.module.parameters()).device

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Scatter, run every replica on its part, gather."""
        positional, named = self.scatter(inputs, kwargs, self.device_ids)
        if not positional and not named:
            positional, named = ((),), ({},)
        if len(self.device_ids) == 1:
            return self.module(*positional[0], **named[0])
        replicas = self.replicate(self.module, self.device_ids[: len(positional)])
        return self.gather(self.parallel_apply(replicas, positional, named), self.output_device)

    def replicate(self, module: nn.Module, device_ids: Sequence[Any]) -> list[nn.Module]:
        """See the function."""
        return replicate(module, device_ids)

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Sequence[Any]) -> Any:
        """See ``scatter_kwargs``."""
        return scatter_kwargs(inputs, kwargs, device_ids, self.dim)

    def parallel_apply(self, replicas: Any, inputs: Any, kwargs: Any) -> list[Any]:
        """See the function."""
        return parallel_apply(replicas, inputs, kwargs)

    def gather(self, outputs: Any, output_device: Any) -> Any:
        """See the function."""
        return gather(outputs, output_device, self.dim)


def data_parallel(
    module: nn.Module,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: Any = None,
) -> Any:
    """torch.nn.parallel.data_parallel: one call of a module on its replicas."""
    positional = inputs if isinstance(inputs, tuple) else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*positional, **(module_kwargs or {}))


def original(module: nn.Module) -> nn.Module:
    """The module that a replica is a copy of; itself, if it is none."""
    copy = module.__dict__.get(_COPY)
    return copy.module if isinstance(copy, _Copy) else module


# The steps, as torch.nn.parallel has them


def replicate(network: nn.Module, devices: Sequence[Any], detach: bool = False) -> list[nn.Module]:
    """Copies that share the parameters; the first has the buffers too, the others have buffers like them."""
    modules = list(network.modules())
    found = []
    for index in range(len(devices)):
        twins = {id(module): module._replicate_for_data_parallel() for module in modules}
        buffers = {id(it): it if index == 0 else it.detach().clone() for it in network.buffers()}
        for module in modules:
            twin = twins[id(module)]
            twin._parameters = dict(module._parameters)
            twin._buffers = {
                name: None if it is None else buffers[id(it)] for name, it in module._buffers.items()
            }
            twin._modules = {
                name: None if it is None else twins[id(it)] for name, it in module._modules.items()
            }
        copy = _Copy(network, index)
        twins[id(network)].__dict__[_COPY] = copy
        for twin in twins.values():
            if hasattr(type(twin), _CALLBACK):
                twin.__dict__[_CALLBACK] = functools.partial(_called_back, copy, twin)
        found.append(twins[id(network)])
    return found


def _called_back(copy: _Copy, layer: nn.Module, *arguments: Any) -> Any:
    copy.is_called_back = True
    return getattr(type(layer), _CALLBACK)(layer, *arguments)


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> list[Any]:
    """One value per replica, fewer where a tensor has fewer chunks: without devices."""
    return _scatter(inputs, len(target_gpus), dim)


def scatter_kwargs(inputs: Any, kwargs: Any, target_gpus: Sequence[Any], dim: int = 0) -> tuple[Any, Any]:
    """The arguments of each replica's call."""
    positional = _scatter(inputs, len(target_gpus), dim) if inputs else []
    named = _scatter(kwargs, len(target_gpus), dim) if kwargs else []
    parts = max(len(positional), len(named))
    positional += [()] * (parts - len(positional))
    named += [{}] * (parts - len(named))
    return tuple(positional), tuple(named)


def parallel_apply(modules: Any, inputs: Any, kwargs_tup: Any = None, devices: Any = None) -> list[Any]:
    """The replicas' outputs, one after the other; in turns where layers wait for their likes in other replicas."""
    positional = [it if isinstance(it, list | tuple) else (it,) for it in inputs]
    named = kwargs_tup or [{} for _ in positional]
    assert len(modules) == len(positional) == len(named)
    copies = [module.__dict__.get(_COPY) for module in modules]

    def call(place: int) -> Any:
        token = running.set(copies[place].index if isinstance(copies[place], _Copy) else place)
        try:
            return modules[place](*positional[place], **named[place])
        finally:
            running.reset(token)

    if any(isinstance(copy, _Copy) and copy.is_called_back for copy in copies) and len(modules) > 1:
        outputs = turns.taken(call, len(modules))
    else:
        values = _Values(modules) if len(modules) > 1 and any(it.training for it in modules) else None
        outputs = []
        for place, module in enumerate(modules):
            if values is not None and place:
                values.begin(module)
            outputs.append(call(place))
            if values is not None:
                values.end(is_first=place == 0)
    is_replicated = len(modules) > 1 or any(original(it) is not it for it in modules)  # also of one chunk
    if is_replicated and torch.is_grad_enabled():
        trained = {id(it): it for module in modules for it in module.parameters() if it.requires_grad}
        outputs = [_reaching(output, list(trained.values())) for output in outputs]
    return outputs


class _Values:
    """What parameters hold while replicas run, one after the other: each begins with the same, the first one's stay."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        parameters = {id(it): it for module in modules for it in module.parameters()}
        parameters = {key: it for key, it in parameters.items() if not nn.parameter.is_lazy(it)}
        self._before = {key: (it, it.detach().clone()) for key, it in parameters.items()}
        self._written: set[int] = set()  # what the first replica wrote

    def begin(self, module: nn.Module) -> None:
        """Give a replica tensors of its own for what the first one wrote."""
        for layer in module.modules() if self._written else ():
            for name, it in layer._parameters.items():
                if it is not None and id(it) in self._written:
                    layer._parameters[name] = _Began.apply(*self._before[id(it)])

    def end(self, is_first: bool) -> None:
        """Note what the first replica wrote; undo what another one did."""
        for key, (parameter, before) in self._before.items():
            same = (parameter.detach() == before) | ((parameter != parameter) & (before != before))
            if key in self._written or bool(same.all()):
                continue
            if is_first:
                self._written.add(key)
            else:
                parameter.data.copy_(before)


class _Began(torch.autograd.Function):
    """A parameter's former value, whose gradient is the parameter's."""

    @staticmethod
    def forward(ctx: Any, parameter: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        return before.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


def gather(outputs: Any, target_device: Any = None, dim: int = 0) -> Any:
    """The replicas' outputs as one: tensors joined, containers by their items."""
    first = outputs[0]
    if first is None:
        return None
    if isinstance(first, torch.Tensor):
        joined = torch.stack(tuple(outputs)) if first.dim() == 0 else torch.cat(tuple(outputs), dim)
        if joined.grad_fn is not None:
            joined.grad_fn.metadata[GATHERED] = True
        return joined
    if isinstance(first, dict):
        return type(first)((key, gather([output[key] for output in outputs], dim=dim)) for key in first)
    return _like(first, [gather(list(items), dim=dim) for items in zip(*outputs, strict=True)])


def _scatter(value: Any, parts: int, dim: int) -> list[Any]:
    if isinstance(value, torch.Tensor):
        chunks = list(value.chunk(parts, dim))
        cuts.add(len(chunks))
        return chunks
    if isinstance(value, (tuple, list)) and value:
        columns = zip(*(_scatter(item, parts, dim) for item in value), strict=False)
        return [_like(value, part) for part in columns]
    if isinstance(value, dict) and value:
        columns = (_scatter(item, parts, dim) for item in value.values())
        return [dict(zip(value, part, strict=True)) for part in zip(*columns, strict=False)]
    return [value] * parts


def _reaching(output: Any, parameters: list[torch.Tensor]) -> Any:
    """An output whose backward pass gives every parameter a gradient."""
    if isinstance(output, torch.Tensor):
        if output.grad_fn is None:
            return output
        output = _Reaching.apply(output, *parameters)
        output.grad_fn.metadata[GATHERED] = True
        return output
    if isinstance(output, dict):
        items = {key: _reaching(item, parameters) for key, item in output.items()}
        return items if type(output) is dict else type(output)(items)
    return (
        _like(output, [_reaching(it, parameters) for it in output])
        if isinstance(output, (list, tuple))
        else output
    )


class _Reaching(torch.autograd.Function):
    """Outputs whose backward pass gives every parameter a gradient, of 0 at least, as that of torch's replicas does."""

    @staticmethod
    def forward(ctx: Any, output: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        ctx.shapes = [(parameter.shape, parameter.dtype, parameter.device) for parameter in parameters]
        return output.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
        zeros = (torch.zeros(shape, dtype=dtype, device=device) for shape, dtype, device in ctx.shapes)
        return gradient, *zeros


def _like(value: Any, items: Any) -> Any:
    """A list, tuple or named tuple of `items`, as `value` is one."""
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)


_PLAYED = {
    "": (data_parallel, gather, parallel_apply, replicate, scatter),
    ".data_parallel": (data_parallel, gather, parallel_apply, replicate, scatter_kwargs),
    ".parallel_apply": (parallel_apply,),
    ".replicate": (replicate,),
    ".scatter_gather": (gather, scatter, scatter_kwargs),
}
"""What of torch.nn.parallel's modules is played, beside DataParallel itself."""


def play(replicas: int) -> None:
    """Put ``replicas`` replicas in the place of nn.DataParallel."""
    DataParallel.replicas = replicas
    torch.nn.DataParallel = torch.nn.parallel.DataParallel = DataParallel
    for name, functions in _PLAYED.items():
        module = sys.modules[f"torch.nn.parallel{name}"]
        for function in functions:
            setattr(module, function.__name__, function)
        if hasattr(module, "DataParallel"):
            module.DataParallel = DataParallel
