"""What level O1 does on a CPU, where nothing is cast: losses are scaled, and gradients unscaled after backward().

``APEX_SCALE`` should be a power of two: then gradients are the same to the last bit. Without it there is no scale, as
torch's scaler has none on a CPU, and losses can be compared. It never changes, so its state is empty.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch

SCALE = float(os.environ.get("APEX_SCALE", "1"))


def initialize(
    models: torch.nn.Module,
    optimizers: torch.optim.Optimizer | None = None,
    enabled: bool = True,
    opt_level: str = "O1",
    **_: object,
) -> object:
    """The model and the optimizer, as they are."""
    return models if optimizers is None else (models, optimizers)


@contextlib.contextmanager
def scale_loss(loss: torch.Tensor, optimizers: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """The loss, scaled; what was there of the gradients before is scaled like what is added to it."""
    for parameter in master_params(optimizers):
        if parameter.grad is not None:
            parameter.grad *= SCALE
    yield loss * SCALE
    for parameter in master_params(optimizers):
        if parameter.grad is not None:
            parameter.grad /= SCALE


def master_params(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """All parameters of an optimizer."""
    for group in optimizer.param_groups:
        yield from group["params"]


def state_dict() -> dict[str, object]:
    """Nothing to keep."""
    return {}


def load_state_dict(state: dict[str, object]) -> None:
    """Nothing to take up again."""
