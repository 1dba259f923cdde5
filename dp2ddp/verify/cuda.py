"""A machine with several GPUs, all of them one device: the CPU, or the only GPU there is.

A script that asks for CUDA is told that there are so many GPUs, and whatever it puts there goes to that device; so it
takes the branches that it takes on GPUs, the one that wraps its model among them. torch itself and dp2ddp ask too: they
are told the truth, because they act on it.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _device

from dp2ddp import runtime
from dp2ddp.verify import copies

_TENSORS = "Half Float Double BFloat16 Byte Char Short Int Long Bool".split()
_MODES = "dp2ddp.verify."
_TRUTHFUL = ("torch.", "torchvision.", "dp2ddp.")


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
        named = {
            name: _plain_or_mapped(_device_of(v) if name == "device" else v) for name, v in kwargs.items()
        }
        return function(*map(_plain_or_mapped, args), **named)

    return call


def _device_of(value: Any) -> Any:
    """A GPU's number as the real device."""
    return _Device.real if isinstance(value, int) else value


def _moving(function: Callable[..., Any]) -> Callable[..., Any]:
    """``to`` of tensors and modules, called with the real device wherever it is told a CUDA device."""
    mapped = _with_device(function)

    @functools.wraps(function)
    def move(self: Any, *args: Any, **kwargs: Any) -> Any:
        return mapped(self, *map(_device_of, args[:1]), *args[1:], **kwargs)

    return move


def _plain_or_mapped(value: Any) -> Any:
    return _mapped(value) if isinstance(value, (str, torch.device)) else value


class _OnDevice(TorchFunctionMode):
    """Every torch function that names a CUDA device gets the real one."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.device and not _is_truthful(_asking()):  # of a script: it says that it is a GPU
            return func(*args, **(kwargs or {}))
        return _with_device(func)(*args, **(kwargs or {}))


class _Within:
    """Functions of scripts that are called where torch has put the mode aside, or that run in other threads."""

    @staticmethod
    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, in which CUDA devices may be named."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with _OnDevice():
                return function(*args, **kwargs)

        return call

    @staticmethod
    def patch() -> None:
        """Have backward passes of functions, hooks of tensors and threads run so."""
        node = torch.autograd.function.BackwardCFunction
        node.apply = _Within.wrap(node.apply)
        register = torch.Tensor.register_hook
        torch.Tensor.register_hook = functools.wraps(register)(
            lambda self, hook: register(self, _Within.wrap(hook))
        )
        threading.Thread._bootstrap_inner = _Within.wrap(threading.Thread._bootstrap_inner)


def _asking() -> Any:
    """The frame of who calls a function of torch: behind the other modes that are in force."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_MODES):
        frame = frame.f_back
    return frame


def _is_truthful(frame: Any) -> bool:
    """Whether it is torch or dp2ddp that asks."""
    name = frame.f_globals.get("__name__", "")
    return name == "torch" or name.startswith(_TRUTHFUL)


def _for_scripts(answer: Any, truth: Callable[..., Any]) -> Callable[..., Any]:
    """A question to CUDA that scripts get ``answer`` to, and torch and the runtime the truth."""

    @functools.wraps(truth)
    def asked(*args: Any, **kwargs: Any) -> Any:
        if _is_truthful(sys._getframe(1)):
            return truth(*args, **kwargs)
        return answer(*args, **kwargs) if callable(answer) else answer

    return asked


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    return None


def _always(answer: Any) -> Callable[..., Any]:
    """A function by itself: torch.compile does not bear one under several names of torch's."""
    return lambda *_args, **_kwargs: answer


def _moved(self: Any, *_args: Any, **_kwargs: Any) -> Any:
    return self.to(_Device.real)


class _Event:
    """torch.cuda.Event: each that is recorded is 10 ms later than the one before, as by ``clock``."""

    _noted = 0

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self._time = 0.0

    def record(self, *_args: Any) -> None:
        """Note the time."""
        _Event._noted += 1
        self._time = 0.01 * _Event._noted

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
        return torch._C.Generator(_mapped(_device_of(device)))


def _eagerly(compiled: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What torch.compile returns, which runs as it is: what is replaced here cannot be compiled."""
    if hasattr(torch.compiler, "set_stance"):
        torch.compiler.set_stance("force_eager")
        return compiled(*args, **kwargs)
    return compiled(*args, **{**kwargs, "disable": True})


class _Context(contextlib.ContextDecorator):
    """torch.cuda.device and its like: whichever it is, it is the one that there is."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        """Take what names a device or a stream."""

    def __enter__(self) -> _Context:
        return self

    def __exit__(self, *_: Any) -> None:
        return None


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
        _tell_devices(gpus)
    torch.Tensor.cuda = nn.Module.cuda = _moved
    torch.Tensor.is_cuda = property(_for_scripts(True, torch._C.TensorBase.is_cuda.__get__))
    torch.Tensor.to = _moving(torch.Tensor.to)
    nn.Module.to = _moving(nn.Module.to)
    load = torch.load
    torch.load = functools.wraps(load)(lambda *args, **kwargs: load(*_all(args), **_named(kwargs)))
    torch.Tensor.pin_memory = lambda self, *_: self
    _OnDevice().__enter__()
    _Within.patch()
    copies.replace()
    _keep_batches_unpinned()
    _map_groups()


def _tell_devices(gpus: int) -> None:
    """Where tensors are that are on the CPU, and where a rank computes: on the first GPU, and on its own."""
    every = [torch.device("cuda", number) for number in range(gpus)]
    where, number = torch._C.TensorBase.device.__get__, torch.Tensor.get_device

    def device(tensor: torch.Tensor, *_: Any) -> torch.device:
        found = where(tensor)
        return every[0] if found.type == "cpu" else found

    torch.Tensor.device = property(_for_scripts(device, where))
    torch.Tensor.get_device = _for_scripts(lambda _: 0, number)
    torch.Tensor.is_cpu = property(_for_scripts(False, torch._C.TensorBase.is_cpu.__get__))
    typed = torch.Tensor.type
    torch.Tensor.type = _for_scripts(lambda *args, **kwargs: _type_of_gpu(typed(*args, **kwargs)), typed)
    of_rank = runtime.device
    runtime.device = functools.wraps(of_rank)(
        lambda: every[runtime.get_local_rank() % gpus] if of_rank().type == "cpu" else of_rank()
    )


def _type_of_gpu(found: Any) -> Any:
    """The name of a tensor's type, where that was asked for."""
    return found.replace("torch.", "torch.cuda.", 1) if isinstance(found, str) else found


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
        setattr(cuda, name, _always(None))
    for name in (
        "reset_peak_memory_stats",
        "reset_max_memory_allocated",
        "reset_max_memory_cached",
        "set_sync_debug_mode",
        "reset_accumulated_memory_stats",
    ):
        setattr(cuda, name, _always(None))
    cuda.set_per_process_memory_fraction = _always(None)
    cuda.memory_summary = _always("")
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        setattr(cuda, name, _always(0))
    for name in ("utilization", "temperature", "power_draw", "clock_rate", "get_sync_debug_mode"):
        setattr(cuda, name, _always(0))
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
    cuda.is_current_stream_capturing = _always(False)
    context = _device.DeviceContext.__init__
    _device.DeviceContext.__init__ = functools.wraps(context)(
        lambda self, device: context(self, _mapped(_device_of(device)))
    )
    compiled = torch.compile
    torch.compile = functools.wraps(compiled)(lambda *args, **kwargs: _eagerly(compiled, *args, **kwargs))
    default = torch.set_default_tensor_type
    torch.set_default_tensor_type = functools.wraps(default)(lambda kind: default(_mapped(kind)))
    cuda.Event, cuda.Stream = _Event, _Stream
    for name in ("device", "device_of", "stream"):
        setattr(cuda, name, type(name, (_Context,), {}))
    cuda.current_stream, cuda.default_stream = (lambda *_: _Stream()), (lambda *_: _Stream())


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
