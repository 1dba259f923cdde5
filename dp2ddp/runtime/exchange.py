"""Objects between ranks: every rank gives one and gets all.

Each rank also says what it calls. So ranks that call different things get an error and not each other's answers.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch
import torch.distributed as dist

from . import debug, lines, ranks

_FIRST = 4096  # bytes that the first collective holds: what is shorter needs no second one


def exchange(what: str, value: Any) -> list[Any]:
    """The ranks' values, in the order of ranks.

    Args:
        what: the collective, as a user knows it.
        value: anything that can be pickled. Tensors come back without a graph; those on a GPU, on each rank's own.

    Raises:
        RuntimeError: another rank calls something else, or its value can't be pickled.
        Exception: whatever pickling this rank's value raises.
    """
    debug.meet(what)
    problem = None
    try:
        own = pickled((what, lines.site(), "", value))
    except Exception as error:  # every rank has to come to the collective
        own, problem = pickled((what, lines.site(), f"{type(error).__name__}: {error}", None)), error
    answers = [pickle.loads(data) for data in _exchange_bytes(own)]
    if any(other != what for other, *_ in answers):
        calls = ", ".join(
            f"rank {rank} calls {other} at {site}" for rank, (other, site, *_) in enumerate(answers)
        )
        raise RuntimeError(f"every rank must make the same calls in the same order, but {calls}")
    if problem:
        raise problem
    for rank, (_, _, said, _) in enumerate(answers):
        if said:
            raise RuntimeError(f"rank {rank}: the value passed to {what} can't be pickled: {said}")
    return [answer for *_, answer in answers]


class _Pickler(pickle.Pickler):
    """Pickles tensors without their graph, without the rest of the storage they are a view of, and off the GPU."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) not in (torch.Tensor, torch.nn.Parameter):
            return NotImplemented
        tensor = obj.detach()
        if tensor.device.type != "cpu":
            return _to_own_device, (tensor.cpu(),)
        if tensor.layout is torch.strided and tensor.untyped_storage().nbytes() > tensor.nbytes:
            tensor = tensor.clone()
        return tensor.__reduce_ex__(pickle.HIGHEST_PROTOCOL)


def _to_own_device(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(ranks.device())


def pickled(value: Any) -> bytes:
    """A value for other ranks: tensors without their graph, those on a GPU for the GPU of whoever reads it."""
    file = io.BytesIO()
    _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getvalue()


def _exchange_bytes(data: bytes) -> list[bytearray]:
    """Every rank's bytes, in the order of ranks."""
    framed = len(data).to_bytes(8, "little") + data
    starts = _all_gather(framed[:_FIRST], _FIRST)
    sizes = [8 + int.from_bytes(start[:8], "little") for start in starts]
    longest = max(sizes)
    rests = (
        _all_gather(framed[_FIRST:], longest - _FIRST) if longest > _FIRST else [bytearray()] * len(starts)
    )
    return [(start + rest)[8:size] for start, rest, size in zip(starts, rests, sizes, strict=True)]


def _all_gather(data: bytes, size: int) -> list[bytearray]:
    """Every rank's ``data``, filled up to ``size`` bytes."""
    # torch.distributed's own all_gather_object needs numpy in torch 2.4, and two collectives
    mine = torch.zeros(size, dtype=torch.uint8, device="cpu")
    if data:
        mine[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    mine = mine.to(ranks.talk_device())
    everyone = [torch.empty_like(mine) for _ in range(ranks.get_world_size())]
    dist.all_gather(everyone, mine)
    received = [bytearray(size) for _ in everyone]
    for buffer, theirs in zip(received, everyone, strict=True):
        torch.frombuffer(buffer, dtype=torch.uint8).copy_(theirs)
    return received
