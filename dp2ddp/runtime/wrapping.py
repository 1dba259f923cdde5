"""What wrappers are to the models in them.

In one process a wrapper stands for the bare model, too: what it lacks itself, it has of the model. Programs wrap where
there are several GPUs, and ask the bare model elsewhere: ``model.decode(x)``. Converted, they wrap always, and both
ways lead to the same.
"""

from __future__ import annotations

from typing import Any

import torch

from . import ranks


def unwrapped(module: torch.nn.Module, *kinds: type) -> torch.nn.Module:
    """The model in a wrapper of just one of some classes: wrapped twice, its parts would count twice."""
    while type(module) in kinds:
        module = module.module
    return module


class StandsForModel(torch.nn.Module):
    """A wrapper with its model in ``module``."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            module = self.__dict__.get("_modules", {}).get("module")
            if module is None or name.startswith("__") or ranks.get_world_size() > 1:
                raise
            return getattr(module, name)
