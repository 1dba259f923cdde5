"""A machine with several GPUs, all of them one device: the CPU, or the only GPU there is.

A script that asks for CUDA is told that there are so many GPUs, and whatever it puts there goes to that device. torch
itself and dp2ddp's runtime ask too: they are told the truth, because they act on it.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from dp2ddp.verify import copies

_TENSORS = "Half Float Double BFloat16 Byte Char Short Int Long Bool".split()
_TRUTHFUL = ("torch.", "torchvision.", "dp2ddp.runtime")


_PROPERTIES = SimpleNamespace(
    name="a GPU that is not there", major=8, minor=0, total_memory=16 * 2**30, multi_processor_count=100
)


class _Device:
    """The device that stands for all GPUs."""

    real = torch.device("cpu")


def _mapped(value: Any) -> Any:
    """``value``, with a CUDA device in any of its spellings replaced by the real one."""
    if isinstance(value, torch.device) and value.type == "cuda":
        return _Device.real
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return str(_Device.real)
    if isinstance(value, str) and value.startswith("torch.cuda.") and _Device.real.type == "cpu":
        return value.replace("cuda.", "", 1)
    if isinstance(value, dict):
        return {_mapped(key): _mapped(item) for key, item in value.items()}
    return value


def _with_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, called with the real device wherever its arguments name a CUDA device."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        named = {name: _plain_or_mapped(_device(v) if name == "device" else v) for name, v in kwargs.items()}
        return function(*map(_plain_or_mapped, args), **named)

    return call


def _device(value: Any) -> Any:
    """A GPU's number as the real device."""
    return _Device.real if isinstance(value, int) else value


def _moving(function: Callable[..., Any]) -> Callable[..., Any]:
    """``to`` of tensors and modules, called with the real device wherever it is told a CUDA device."""
    mapped = _with_device(function)

    @functools.wraps(function)
    def move(self: Any, *args: Any, **kwargs: Any) -> Any:
        return mapped(self, *map(_device, args[:1]), *args[1:], **kwargs)

    return move


def _plain_or_mapped(value: Any) -> Any:
    return _mapped(value) if isinstance(value, (str, torch.device)) else value


class _OnDevice(TorchFunctionMode):
    """Every torch function that names a CUDA device gets the real one."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _with_device(func)(*args, **(kwargs or {}))


def _for_scripts(answer: Any, truth: Callable[..., Any]) -> Callable[..., Any]:
    """A question to CUDA that scripts get ``answer`` to, and torch and the runtime the truth."""

    @functools.wraps(truth)
    def asked(*args: Any, **kwargs: Any) -> Any:
        name = sys._getframe(1).f_globals.get("__name__", "")
        if name == "torch" or name.startswith(_TRUTHFUL):
            return truth(*args, **kwargs)
        return answer(*args, **kwargs) if callable(answer) else answer

    return asked


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    return None


def _moved(self: Any, *_args: Any, **_kwargs: Any) -> Any:
    return self.to(_Device.real)


class _Event:
    """torch.cuda.Event, by the clock."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self._time = 0.0

    def record(self, *_args: Any) -> None:
        """Note the time."""
        self._time = time.perf_counter()

    def elapsed_time(self, other: _Event) -> float:
        """Milliseconds from this event to the other one."""
        return 1000 * (other._time - self._time)

    def query(self) -> bool:
        """Whether it has happened."""
        return True

    synchronize = wait = _nothing


class _Stream:
    """torch.cuda.Stream: there is one."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self.device = _Device.real

    synchronize = wait_stream = wait_event = record_event = _nothing


class _Kind(type(torch.Generator)):
    """Of a class that stands for the one that its instances have."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.__mro__[1])


class _Generator(torch.Generator, metaclass=_Kind):
    """torch.Generator, on the real device."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return torch._C.Generator(_mapped(_device(device)))


def _context(*_args: Any, **_kwargs: Any) -> Any:
    return contextlib.nullcontext()


def pretend(gpus: int, device: str = "cpu") -> None:
    """Make this process see so many GPUs, all of them ``device``."""
    _Device.real = torch.device(device)
    cuda = torch.cuda
    answers: dict[str, Any] = {
        "is_available": True,
        "device_count": gpus,
        "current_device": 0,
        "get_device_name": _PROPERTIES.name,
        "get_device_capability": (_PROPERTIES.major, _PROPERTIES.minor),
        "get_device_properties": _PROPERTIES,
        "mem_get_info": (_PROPERTIES.total_memory, _PROPERTIES.total_memory),
        "can_device_access_peer": True,
        "is_initialized": True,
        "is_bf16_supported": False,
        "set_device": _nothing,
    }
    for name, answer in answers.items():
        setattr(cuda, name, _for_scripts(answer, getattr(cuda, name)))
    if hasattr(torch, "accelerator"):
        _pretend_accelerator(gpus)
    if _Device.real.type == "cpu":
        _replace_cuda()
    torch.Tensor.cuda = nn.Module.cuda = _moved
    torch.Tensor.is_cuda = property(_for_scripts(True, torch._C.TensorBase.is_cuda.__get__))
    torch.Tensor.to = _moving(torch.Tensor.to)
    nn.Module.to = _moving(nn.Module.to)
    load = torch.load
    torch.load = functools.wraps(load)(lambda *args, **kwargs: load(*_all(args), **_named(kwargs)))
    torch.Tensor.pin_memory = lambda self, *_: self
    _OnDevice().__enter__()
    copies.replace()
    _keep_batches_unpinned()
    _map_groups()


def _pretend_accelerator(gpus: int) -> None:
    """The same questions in the words that torch has for GPUs of all makers."""
    accelerator = torch.accelerator
    answers: dict[str, Any] = {
        "is_available": True,
        "device_count": gpus,
        "current_accelerator": torch.device("cuda"),
        "current_device_index": 0,
        "set_device_index": _nothing,
        "synchronize": _nothing,
        "empty_cache": _nothing,
    }
    for name, answer in answers.items():
        if hasattr(accelerator, name):
            setattr(accelerator, name, _for_scripts(answer, getattr(accelerator, name)))


def _all(args: Any) -> list[Any]:
    return [args[0], *map(_mapped, args[1:])] if args else []


def _named(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {name: _mapped(value) for name, value in kwargs.items()}


def _replace_cuda() -> None:
    """What scripts do with CUDA, where there is none."""
    cuda = torch.cuda
    for name in ("init", "synchronize", "manual_seed", "manual_seed_all", "empty_cache", "ipc_collect"):
        setattr(cuda, name, _nothing)
    for name in ("reset_peak_memory_stats", "reset_max_memory_allocated", "reset_accumulated_memory_stats"):
        setattr(cuda, name, _nothing)
    cuda.set_per_process_memory_fraction = _nothing
    cuda.memory_summary = lambda *_args, **_kwargs: ""
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        setattr(cuda, name, lambda *_args, **_kwargs: 0)
    cuda.get_rng_state = lambda *_args: torch.get_rng_state()
    cuda.set_rng_state = lambda state, *_args: torch.set_rng_state(state)
    cuda.get_rng_state_all = lambda: [torch.get_rng_state()]
    cuda.set_rng_state_all = lambda states: torch.set_rng_state(states[0])
    cuda.initial_seed = torch.initial_seed
    torch.Generator = _Generator
    fork = torch.random.fork_rng
    torch.random.fork_rng = functools.wraps(fork)(
        lambda devices=None, enabled=True, *_, **__: fork([], enabled)
    )
    for name in _TENSORS:
        setattr(cuda, f"{name}Tensor", getattr(torch, f"{name}Tensor"))
    made = torch.autocast.__init__
    torch.autocast.__init__ = functools.wraps(made)(
        lambda self, device_type, *_, **__: made(self, device_type, enabled=False)
    )
    cuda.Event, cuda.Stream = _Event, _Stream
    cuda.device = cuda.stream = _context
    cuda.current_stream = cuda.default_stream = _Stream


def _keep_batches_unpinned() -> None:
    made = torch.utils.data.DataLoader.__init__

    @functools.wraps(made)
    def without_pinning(self: Any, *args: Any, **kwargs: Any) -> None:
        if "pin_memory" in kwargs:
            kwargs["pin_memory"] = False
        made(self, *args, **kwargs)

    torch.utils.data.DataLoader.__init__ = without_pinning


def _map_groups() -> None:
    """Process groups talk over gloo, and torch's DistributedDataParallel has no device."""
    dist = torch.distributed
    if not dist.is_available():
        return
    join, made = dist.init_process_group, nn.parallel.DistributedDataParallel.__init__

    @functools.wraps(join)
    def over_gloo(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
        return join("gloo" if backend in (None, "nccl") else backend, *args, **{**kwargs, "device_id": None})

    @functools.wraps(made)
    def without_device(self: Any, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        if args or _Device.real.type == "cuda":
            args = (None if _Device.real.type == "cpu" else [_Device.real.index], *args[1:])
        for name in ("device_ids", "output_device"):
            if kwargs.get(name) is not None:
                kwargs[name] = (
                    None
                    if _Device.real.type == "cpu"
                    else [_Device.real.index] if name == "device_ids" else 0
                )
        made(self, module, *args, **kwargs)

    dist.init_process_group = over_gloo
    nn.parallel.DistributedDataParallel.__init__ = without_device
