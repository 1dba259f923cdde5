"""Checkpoints that wrapped models wrote, and bare ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from copy import copy
from typing import Any

import torch

PREFIX = "module."


def strip_module_prefix(state_dict: Any, model: torch.nn.Module | None = None) -> Any:
    """A state dict without the ``module.`` that DataParallel and DistributedDataParallel put before every key.

    Taken off as often as *every* key has it. A checkpoint of a bare model comes back as it is.

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
    while state_dict and all(key.startswith(PREFIX) for key in state_dict) and not _fits(state_dict, own):
        state_dict = _strip_once(state_dict)
    return state_dict


def _fits(state_dict: Mapping[str, Any], own: set[str] | None) -> bool:
    return own is not None and not own.isdisjoint(state_dict)


def _strip_once(state_dict: Mapping[str, Any]) -> Mapping[str, Any]:
    items = [(key[len(PREFIX) :], value) for key, value in state_dict.items()]
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
            (key[len(PREFIX) :], value) for key, value in metadata.items() if f"{key}.".startswith(PREFIX)
        ]
        stripped._metadata = OrderedDict(renamed)
    return stripped
