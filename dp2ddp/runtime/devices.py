"""Which GPU is this rank's, and which ranks have none: those leave.

A program may choose its devices when its ranks run already: by ``use_devices``, or by setting CUDA_VISIBLE_DEVICES
before CUDA is used. Ranks are started for all GPUs then. Local rank ``i`` takes the ``i``-th of those chosen, and ranks
for which there is none end quietly with exit code 0, before the process group is made.
"""

from __future__ import annotations

import os
from typing import NoReturn

import torch

from . import lines, output, ranks, rendezvous
from .messages import say
from .options import VISIBLE, Devices, Options

_wanted = Options()
_visible: str | None = None  # CUDA_VISIBLE_DEVICES when `init` began


def begin(wanted: Options) -> None:
    """Note what ``init`` was asked for, and have this rank's GPU made the current one when CUDA comes into use."""
    global _wanted, _visible
    _wanted, _visible = wanted, os.environ.get(VISIBLE)
    if torch.cuda.is_initialized():
        _choose_at_once()


def use_devices(devices: Devices | str) -> None:
    """Say which GPUs the program uses, once it knows: its ``device_ids``.

    Local rank ``i`` computes on ``devices[i]``; ranks for which there is no device end here, quietly and with exit
    code 0, and the others train: ``use_devices([0])`` is one process. Call it after ``init`` or in the function given
    to ``launch``, where all ranks come by, before anything asks for a device, for a number of ranks or for a
    collective. Setting CUDA_VISIBLE_DEVICES there, before CUDA is used, does the same without a call. In a plain
    process the first of the devices becomes the current one. Without CUDA nothing happens; nor in a program that
    starts ranks of its own.

    Args:
        devices: as in ``launch``; a text like ``"0,2"`` names several, too. Numbers beyond the visible GPUs, all of
            which CUDA_VISIBLE_DEVICES names, are the machine's.

    Raises:
        RuntimeError: it is settled already who trains, and more ranks than these devices do.
        ValueError: there is no such GPU.
    """
    global _wanted
    if ranks.is_helper() or ranks.stands_aside():
        return
    _wanted = _wanted.on(_listed(devices))
    gpus = _wanted.gpus()
    if not gpus or devices is None:
        return
    before = ranks.chosen_device()
    if ranks.has_group() and _is_surplus(gpus):
        raise RuntimeError(
            f"use_devices({devices!r}) comes too late: {ranks.count()} processes train already; call it before "
            "anything asks for the number of processes or for a collective"
        )
    if before is None:
        choose()
    elif _is_surplus(gpus):
        leave()
    elif not _wanted.on_cpu() and before.index not in gpus and ranks.own_rank() == 0:
        say(
            f"{lines.site()} selects {devices!r}, but {before} is already in use and stays in use: select "
            "devices before the first use of a GPU"
        )


def map_location(storage: torch.UntypedStorage, location: str) -> torch.UntypedStorage:
    """Where ``torch.load(path, map_location=ddp.map_location)`` puts a tensor: from a GPU on this rank's device.

    What was saved on the CPU stays there, as without ``map_location``: data sets and random states.

    Args:
        storage: of the tensor, on the CPU.
        location: the device that it was saved on: ``cpu``, ``cuda:0``.

    Returns:
        The storage on its device.
    """
    own = str(ranks.device()) if location.startswith("cuda") else location
    return torch.serialization.default_restore_location(storage, own)


def _listed(devices: Devices | str) -> Devices:
    if not isinstance(devices, str):
        return devices
    parts = [part.strip() for part in devices.split(",") if part.strip()]
    return [int(part) if part.isdigit() else part for part in parts]


def choose() -> None:
    """Take this rank's device, or leave: the first need of a device has come."""
    gpus = _wanted.gpus()
    if _is_surplus(gpus):
        leave()
    ranks.choose_device(_own(gpus))


def _choose_at_once() -> None:
    """Take this rank's device where CUDA has come into use without a call of the runtime: ``model.cuda()``.

    Before ``init``, in a group that the program has made and in a DataLoader's worker, that is the device which
    ``device()`` names there.
    """
    if ranks.chosen_device() is not None or ranks.stands_aside():
        return
    if ranks.has_begun() and not ranks.is_helper():
        choose()
    elif ranks.get_local_world_size() > 1:
        torch.cuda.set_device(ranks.device())


# `torch.cuda.is_available()` asks NVML, then, and the driver not before a GPU is used: programs ask it, and set
# CUDA_VISIBLE_DEVICES after that, which the driver would not look at any more.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

# CUDA calls this when it comes into use, ahead of the seeds that wait for that.
torch.cuda._lazy_call(_choose_at_once)


def device(own: torch.device | str | int | None = None) -> torch.device:
    """The device this process computes on.

    Args:
        own: what it computes on where the program has ranks of its own. A text or device that is no GPU is what this
            process computes on everywhere; of a GPU, ``"cuda:0"`` in a configuration, the number counts for nothing.

    Returns:
        ``cuda`` with an index where there is CUDA, else ``cpu``. Before ``init`` or ``launch`` the index is the
        local rank (modulo the number of GPUs); asking does not initialise CUDA. After ``init(enabled=False)`` it is
        plain ``cuda``: whatever GPU the program makes the current one. Where no GPU is chosen, ``devices=[]``, it is
        the current one, too: a program that means the CPU then says so.
    """
    if isinstance(own, str | torch.device) and not ranks.stands_aside():
        if torch.device(own).type != "cuda":
            return torch.device(own)
        open_yet = not ranks.has_begun() and ranks.chosen_device() is None
        if open_yet and torch.cuda.device_count():
            return torch.device("cuda")  # the current one, whichever that will be
    found = ranks.device(own)
    chose_none = found.type == "cpu" and own is None and _wanted.on_cpu()
    return torch.device("cuda", 0) if chose_none and torch.cuda.device_count() else found


def bring(module: torch.nn.Module) -> None:
    """Move a model that several ranks train to this rank's GPU, if nothing has moved it to one.

    Raises:
        RuntimeError: it is on another rank's GPU.
    """
    first, own = next(module.parameters(), None), ranks.device()
    if first is None or own.type != "cuda":
        return
    if first.device.type == "cpu":
        module.to(own)
    elif first.device.type == "cuda" and first.device != own:
        raise RuntimeError(
            f"the model is on {first.device}, but this rank's GPU is {own}: move the model and its inputs to "
            "ddp.device(), not to a GPU that is named by its number"
        )


def _own(gpus: list[int]) -> int | None:
    if not gpus or _wanted.on_cpu():
        return None
    local_rank = ranks.get_local_rank()
    if ranks.is_foreign():  # a program that a rank started computes where the rank does
        local_rank = ranks.kept_local_rank()
    return gpus[local_rank % len(gpus)]


def _is_surplus(gpus: list[int]) -> bool:
    """Whether the program has chosen devices, and none of them is left for this rank."""
    return _has_chosen() and bool(gpus) and ranks.get_local_rank() >= len(gpus)


def _has_chosen() -> bool:
    """Whether the program has chosen devices, and nobody has said how many processes there are to be."""
    asks = _wanted.devices is not None or os.environ.get(VISIBLE) != _visible
    return asks and _wanted.processes is None


def limit() -> int | None:
    """How many ranks of a machine stay, as far as the program has chosen; None for all that were started."""
    gpus = _wanted.gpus() if _has_chosen() else []
    return len(gpus) or None


def leave() -> NoReturn:
    """End this rank: it has nothing to do."""
    rendezvous.report_leaving()
    output.flush()
    os._exit(0)  # what the program registered for its end is for those who train
