"""Tensors, and what else is saved, in a few numbers each."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Iterator
from typing import Any

import torch

_DEEPEST, _LONGEST = 6, 1000


@functools.lru_cache(maxsize=512)
def _signs(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.randint(2, (count,), generator=generator, dtype=torch.int8, device="cpu") * 2 - 1


def digest(tensor: torch.Tensor | None) -> list[float] | None:
    """A tensor in two numbers, of which one shows any change: its norm, and its sum with fixed random signs."""
    if tensor is None:
        return None
    with torch.no_grad():
        flat = tensor.detach()
        if flat.is_meta:
            return [0.0, 0.0]
        if flat.is_nested:
            flat = torch.cat([torch.empty(0), *(it.flatten() for it in flat.unbind())])
        flat = flat.dequantize() if flat.is_quantized else flat
        flat = (flat if flat.layout is torch.strided else flat.to_dense()).flatten()
        flat = torch.view_as_real(flat.resolve_conj()).flatten() if flat.is_complex() else flat
        flat = flat.double().cpu()
        return [flat.norm().item(), torch.dot(flat, _signs(flat.numel()).double()).item()]


def values_of(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """What stands in a saved value, by its path: numbers, words, and tensors as their sizes and digests."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        if value.dtype.kind not in "biuf":
            return
        value = torch.as_tensor(value) if value.ndim else value.item()
    if isinstance(value, torch.Tensor):
        yield path, {
            "size": value.numel(),
            "whole": not value.dtype.is_floating_point,
            "digest": digest(value),
        }
    elif isinstance(value, (bool, int, float, str)):
        yield path, value
    elif depth < _DEEPEST:
        for key, item in _items(value):
            yield from values_of(item, f"{path}/{key}" if path else str(key), depth + 1)


def wrapped_in(value: Any, path: str = "", depth: int = 0) -> Iterator[str]:
    """Where wrapped models are in what is saved, by their paths: not those that are written bare."""
    if isinstance(value, torch.nn.Module):
        if any(is_wrapper(part) and not _is_written_bare(part) for part in value.modules()):
            yield path or type(bare(value)).__name__
    elif depth < _DEEPEST:
        for key, item in _items(value):
            yield from wrapped_in(item, f"{path}/{key}" if path else str(key), depth + 1)


def is_wrapper(module: Any) -> bool:
    """Whether this is what stands around a model to train it on several devices."""
    return isinstance(module, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel))


def bare(model: torch.nn.Module) -> torch.nn.Module:
    """The model in a wrapper; any other as it is."""
    return model.module if is_wrapper(model) else model


def _is_written_bare(model: torch.nn.Module) -> bool:
    """Whether a wrapped model is pickled as what is in it: so the runtime saves its own."""
    return model.__reduce_ex__(2)[0] is operator.getitem


def _items(value: Any) -> Any:
    if isinstance(value, torch.nn.Module):
        return value.state_dict().items()
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, (list, tuple)) and len(value) <= _LONGEST:
        return enumerate(value)
    return ()
