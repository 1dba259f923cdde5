"""What the caller and the environment want of starting: which devices, how many processes, on how many machines."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

Devices = int | Sequence[int | str | torch.device] | None

VISIBLE = "CUDA_VISIBLE_DEVICES"
PATIENCE = timedelta(minutes=15)  # torchrun's, for machines that are started one after the other


@dataclass(frozen=True)
class Options:
    """The options of ``launch``, each overridden by its environment variable."""

    devices: Devices = None
    num_machines: int = 1
    machine_rank: int = 0
    dist_url: str | None = None
    processes: int | None = None
    backend: str | None = None
    timeout: timedelta | None = None

    def gpus(self) -> list[int]:
        """The indices of the chosen GPUs, as they are visible now; none without CUDA."""
        visible = torch.cuda.device_count()
        return chosen(self.devices, visible, _named()) if visible else []

    def on_cpu(self) -> bool:
        """Whether no GPU is chosen, of those that are visible: 0, an empty list, ``[-1]``."""
        if self.devices is None:
            return False
        if isinstance(self.devices, int):
            return self.devices < 1
        return all(_index(device, self.devices) < 0 for device in _several(self.devices))

    def on(self, devices: Devices) -> Options:
        """The same on other devices."""
        return replace(self, devices=devices)

    def process_count(self) -> int:
        """How many ranks this machine has if nobody else has started them."""
        return self.processes or max(1, len(self.gpus()))


def read(
    devices: Devices = None,
    num_machines: int = 1,
    machine_rank: int = 0,
    dist_url: str | None = None,
    processes: int | None = None,
    backend: str | None = None,
    timeout: float | timedelta | None = None,
) -> Options:
    """The options of ``launch``, checked; a variable ``DP2DDP_<NAME>`` wins over the argument.

    Raises:
        ValueError: one of them makes no sense; the message names it.
    """
    machines = _whole("num_machines", num_machines, 1)
    rank = _whole("machine_rank", machine_rank, 0)
    if rank >= machines:
        raise ValueError(f"machine_rank={rank} of num_machines={machines}: it is 0 to {machines - 1}")
    count = None
    if processes is not None or "DP2DDP_PROCESSES" in os.environ:
        count = _whole("processes", processes, 1)
    return Options(
        devices,
        machines,
        rank,
        os.environ.get("DP2DDP_DIST_URL", dist_url),
        count,
        _backend(os.environ.get("DP2DDP_BACKEND", backend)),
        _timeout(timeout),
    )


def _given(name: str, argument: Any) -> tuple[str, Any]:
    """What is said of an option, and how to name it in a message."""
    variable = f"DP2DDP_{name.upper()}"
    if variable in os.environ:
        return f"{variable}={os.environ[variable]!r}", os.environ[variable]
    return f"{name}={argument!r}", argument


def _whole(name: str, argument: Any, least: int) -> int:
    said, value = _given(name, argument)
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = least - 1
    if number < least or number != value and not isinstance(value, str):
        raise ValueError(f"{said}: a whole number, {least} or more, is needed")
    return number


def _timeout(argument: float | timedelta | None) -> timedelta | None:
    said, value = _given("timeout", argument)
    if value is None or isinstance(value, timedelta):
        return value
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = 0
    if not 0 < seconds < float("inf"):
        raise ValueError(f"{said}: a number of seconds is needed")
    return timedelta(seconds=seconds)


def _backend(name: str | None) -> str | None:
    if name is None:
        return None
    known = dist.Backend.backend_list
    for part in name.split(","):
        if part.rpartition(":")[2].strip().lower() not in known:
            raise ValueError(
                f"backend={name!r}: torch knows {', '.join(b for b in known if b != 'undefined')}"
            )
    return name


def _named() -> list[int]:
    """The machine's numbers of the visible GPUs, in their order, where CUDA_VISIBLE_DEVICES names them so."""
    names = [name.strip() for name in os.environ.get(VISIBLE, "").split(",")]
    return [int(name) for name in names] if all(name.isdigit() for name in names) else []


def chosen(devices: Devices, visible: int, named: Sequence[int] = ()) -> list[int]:
    """The indices that ``devices`` means, of ``visible`` GPUs.

    A program may set CUDA_VISIBLE_DEVICES to ``"2,3"`` when CUDA has seen all GPUs already, and go on to name GPUs 2
    and 3. So numbers beyond those that are visible are the machine's, if it has ``named`` them all.

    Raises:
        ValueError: there is no such GPU.
    """
    if devices is None:
        return list(range(visible))
    if isinstance(devices, int):
        if devices > visible:
            raise ValueError(f"devices={devices}, but {visible} GPUs are visible")
        return list(range(max(devices, 1)))
    indices = [_index(device, devices) for device in _several(devices)]
    if not any(index >= 0 for index in indices):
        return [0]
    if not all(0 <= index < visible for index in indices):
        if set(indices) <= set(named[:visible]):
            return [named.index(index) for index in indices]
        raise ValueError(f"devices={devices!r}, but the visible GPUs are 0 to {visible - 1}")
    return indices


def _several(devices: Any) -> list[Any]:
    if isinstance(devices, str | torch.device):
        raise ValueError(f"devices={devices!r}: a number of GPUs or a list is needed, as [{devices!r}]")
    return list(devices)


def _index(device: Any, devices: Any) -> int:
    """The index of a GPU; -1 for the CPU. ``None`` is the first, as it is the current one where nothing is said."""
    if isinstance(device, int | None):
        return device or 0
    if isinstance(device, str) and device.strip().lstrip("-").isdigit():
        return int(device)
    try:
        parsed = torch.device(device)
    except (RuntimeError, TypeError):
        parsed = None
    if parsed is None or parsed.type not in ("cuda", "cpu"):
        raise ValueError(
            f"devices={devices!r}: {device!r} is no GPU; an index, or a name like 'cuda:1', is needed"
        )
    return -1 if parsed.type == "cpu" else parsed.index or 0
