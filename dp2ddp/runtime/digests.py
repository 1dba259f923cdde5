"""Digests of tensors: numbers that tell whether ranks have the same bits."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import torch

_BLOCK = 1 << 16  # int64s at a time: what a digest needs of memory, several times
_NEXT = 0x5851F42D4C957F2D  # odd, as the weights are: a change of one number changes the digest


def digest(tensor: torch.Tensor) -> torch.Tensor:
    """The raw bits of a tensor as one number, 0-dim and int64, on its device: nothing waits for a GPU.

    Tensors that differ in one number, or hold the same ones in another order, have different digests; others nearly
    always. Of a tensor that is not dense it is 0.
    """
    if not _is_dense(tensor) or torch.nn.parameter.is_lazy(tensor) or tensor.is_meta:
        return torch.zeros((), dtype=torch.int64, device="cpu")
    flat = tensor.detach()
    if flat.is_quantized:
        flat = flat.int_repr()
    if flat.is_complex():
        flat = torch.view_as_real(flat.resolve_conj())
    flat = flat.resolve_neg().reshape(-1)
    # Only numbers side by side are octets; for `contiguous()`, one number is so with any stride.
    if flat.stride(0) != 1 or flat.storage_offset() * flat.element_size() % 8:
        flat = flat.clone(memory_format=torch.contiguous_format)
    octets = flat.view(torch.uint8)
    whole = octets.numel() // 8 * 8
    weights = _weights(octets.device)
    rest = octets[whole:].long()
    total = (rest * weights[: rest.numel()]).sum()
    for block in octets[:whole].view(torch.int64).split(_BLOCK) if whole else ():
        total = total * _NEXT + (block * weights[: block.numel()]).sum()
    return total


def _is_dense(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_nested


def fetched(digests: Iterable[torch.Tensor]) -> list[int]:
    """Digests as numbers; waits once for each device."""
    digests = list(digests)
    found = [0] * len(digests)
    places: dict[torch.device, list[int]] = {}
    for place, it in enumerate(digests):
        places.setdefault(it.device, []).append(place)
    for its in places.values():
        for place, value in zip(its, torch.stack([digests[it] for it in its]).tolist(), strict=True):
            found[place] = value
    return found


@functools.cache
def _weights(device: torch.device) -> torch.Tensor:
    """Odd numbers, the same on all ranks."""
    generator = torch.Generator("cpu").manual_seed(0)
    drawn = torch.randint(-(2**62), 2**62, (_BLOCK,), generator=generator, device="cpu")
    return (drawn * 2 + 1).to(device)


def distance(mine: torch.Tensor, theirs: torch.Tensor) -> float:
    """How far apart two tensors of one type and shape are, in units of their type's rounding of the largest number.

    Infinite where they can't differ by rounding.
    """
    if torch.equal(mine, theirs):
        return 0.0
    if mine.is_complex():
        mine, theirs = torch.view_as_real(mine), torch.view_as_real(theirs)
    if not mine.is_floating_point():
        return float("inf")
    same = (mine == theirs) | (mine.isnan() & theirs.isnan())
    apart = (mine.double() - theirs.double()).abs().masked_fill(same, 0).max().item()
    largest = theirs.double().abs().nan_to_num(0, 0, 0).max().item()
    unit = largest * torch.finfo(mine.dtype).eps
    if apart != apart or not unit:
        return float("inf") if apart else 0.0
    return apart / unit
