"""The reference that everything is measured against does what nn.DataParallel does."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dp2ddp.verify.reference import DataParallel
from parity import compare


def wrap(module: nn.Module, replicas: int) -> DataParallel:
    """`module` on so many replicas."""
    return DataParallel(module, device_ids=list(range(replicas)))


class Sees(nn.Module):
    """Notes the sizes it is called with."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def forward(self, x: torch.Tensor, extra: dict, scale: float = 1.0) -> dict:
        """A dictionary made from all arguments."""
        self.sizes.append(len(x))
        return {"sum": x * scale + extra["y"], "rows": (x, x)}


@pytest.mark.parametrize(
    ("rows", "sizes"), [(16, [4, 4, 4, 4]), (10, [3, 3, 3, 1]), (9, [3, 3, 3]), (2, [1, 1]), (1, [1])]
)
def test_batches_are_cut_as_torch_chunks_them(rows: int, sizes: list[int]) -> None:
    """Nine rows on four replicas make three parts; containers are cut alike, other values go to all."""
    module = Sees()
    x = torch.arange(float(rows))
    found = wrap(module, 4)(x, {"y": x, "unused": {}}, 2.0)
    assert module.sizes == sizes
    assert torch.equal(found["sum"], 3 * x)
    assert torch.equal(found["rows"][1], x)


def test_batch_norm_sees_a_chunk_and_keeps_replica_zero_s_statistics() -> None:
    """Each replica normalises its own chunk, and the buffers that stay are those of the first."""
    torch.manual_seed(0)
    x = torch.randn(10, 3)
    module, first = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    found = wrap(module, 2)(x)
    expected = torch.cat([nn.BatchNorm1d(3)(x[:5]), nn.BatchNorm1d(3)(x[5:])])
    first(x[:5])
    assert torch.equal(found, expected)
    assert compare.checkpoints(first.state_dict(), module.state_dict(), tolerance=0) == []


class TwoNames(nn.Module):
    """Calls a layer by one of its names."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.layers = nn.Sequential(self.norm, nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalised."""
        return self.layers(x)


def test_a_layer_with_two_names_keeps_replica_zero_s_statistics() -> None:
    """As `self.norm` and inside of a Sequential: it has one state."""
    torch.manual_seed(0)
    x = torch.randn(10, 3)
    module, first = TwoNames(), nn.BatchNorm1d(3)
    wrap(module, 2)(x)
    first(x[:5])
    assert module.layers[0].running_mean is module.norm.running_mean
    assert compare.checkpoints(first.state_dict(), module.norm.state_dict(), tolerance=0) == []


def test_gradients_are_those_of_the_whole_batch() -> None:
    """Replicas share the parameters, so their gradients add up."""
    torch.manual_seed(0)
    x = torch.randn(7, 3, dtype=torch.float64)
    module = nn.Linear(3, 2, dtype=torch.float64)
    wrap(module, 3)(x).square().mean().backward()
    found = module.weight.grad.clone()
    module.zero_grad()
    module(x).square().mean().backward()
    assert torch.allclose(found, module.weight.grad, rtol=0, atol=1e-15)


def test_keys_have_the_prefix() -> None:
    """Checkpoints of the reference are checkpoints of DataParallel."""
    assert list(wrap(nn.Linear(1, 1), 2).state_dict()) == ["module.weight", "module.bias"]
