"""Checkpoints that wrapped models wrote, and bare ones."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from typing import Any

import torch

PREFIXES = ("module.", "_orig_mod.")
"""What DataParallel and DistributedDataParallel put before every key, and what torch.compile does."""

_is_saving = False  # whether wrapped models are pickled as the bare ones


def unwrap(model: Any) -> Any:
    """The bare model behind DataParallel's or DistributedDataParallel's wrap; any other as it is.

    A model of another kind may have a ``module``, too, and a state of its own beside it: that of
    ``torch.optim.swa_utils.AveragedModel`` says how often it was averaged. It stays.
    """
    wraps = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)
    return model.module if isinstance(model, wraps) else model


@contextmanager
def bare() -> Iterator[None]:
    """Have wrapped models pickled as the bare ones in a block: a file of them can be read without dp2ddp."""
    global _is_saving
    before, _is_saving = _is_saving, True
    try:
        yield
    finally:
        _is_saving = before


def reduced(model: torch.nn.Module, kind: type) -> Any:
    """What a wrapped model of the runtime's own class reduces to where it is to be bare; None elsewhere."""
    return (operator.getitem, ((model.module,), 0)) if _is_saving and type(model) is kind else None


def strip_module_prefix(state_dict: Any, model: torch.nn.Module | None = None) -> Any:
    """A state dict without the ``module.`` that DataParallel and DistributedDataParallel put before every key.

    And without the ``_orig_mod.`` of ``torch.compile``. Taken off as often as *every* key has it. A checkpoint of a
    bare model comes back as it is.

    Args:
        state_dict: what ``state_dict()`` gave; it is not changed. Anything but a mapping with keys of type str
            is returned as it is.
        model: the bare model that shall load it. Needed only if that has a submodule called ``module`` which holds
            everything: then no more is taken off than makes the keys the model's own.

    Returns:
        A mapping of the same type, its ``_metadata`` (which load_state_dict reads versions from) renamed likewise.
    """
    if not isinstance(state_dict, Mapping) or not all(isinstance(key, str) for key in state_dict):
        return state_dict
    own = set(model.state_dict()) if model is not None else None
    while (prefix := _prefix(state_dict)) and not _fits(state_dict, own):
        state_dict = _strip_once(state_dict, prefix)
    return state_dict


def _prefix(state_dict: Mapping[str, Any]) -> str:
    """What every key begins with, of what wrappers put there."""
    every = (it for it in PREFIXES if all(key.startswith(it) for key in state_dict))
    return next(every, "") if state_dict else ""


def _fits(state_dict: Mapping[str, Any], own: set[str] | None) -> bool:
    return own is not None and not own.isdisjoint(state_dict)


def _strip_once(state_dict: Mapping[str, Any], prefix: str) -> Mapping[str, Any]:
    items = [(key[len(prefix) :], value) for key, value in state_dict.items()]
    if isinstance(state_dict, dict):
        stripped = copy(state_dict)
        stripped.clear()
        stripped.update(items)
    else:
        stripped = type(state_dict)(items)
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is not None:
        # "" is the wrapper itself, "module" the model in it
        renamed = [
            (key[len(prefix) :], value) for key, value in metadata.items() if f"{key}.".startswith(prefix)
        ]
        stripped._metadata = OrderedDict(renamed)
    return stripped
