"""What the training loop draws for samples becomes each rank's own; what it draws for the whole batch stays alike."""

from __future__ import annotations

import pytest
from programs import PATH

from dp2ddp.convert import convert
from dp2ddp.source import Project

PROGRAM = """\
import random

import numpy as np
import torch
from torch import nn
from torch.distributions import Normal
from torch.nn import functional as F
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset, WeightedRandomSampler


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(8, 2)

    def forward(self, x):
        return self.line(F.dropout(x + torch.randn_like(x), 0.5, self.training))


def shaken(x, scale):
    return x + scale * torch.rand(x.size(0), 8)


def shifted(x):
    return x + 1


def chosen(x):
    return x.flip(1) if random.random() < 0.5 else x


torch.manual_seed(1)
own = torch.Generator().manual_seed(1)
rng = np.random.RandomState(1)
drop = nn.Dropout(0.1)
layers = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.ReLU(), nn.RReLU()))
standard = Normal(0.0, 1.0)
model = nn.DataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16)
for epoch in range(2):
    for x, y in loader:
        n = x.size(0)
        {line}
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
EACH = """\
x = shifted(x)
        for i in range(n):
            if random.random() < 0.5:
                x[i] = 0
"""
LOCAL = {
    "x = x + torch.randn_like(x)": "x = x + ddp.local_random(torch.randn_like)(x)",
    "x = x + torch.randn(x.shape)": "x = x + ddp.local_random(torch.randn)(x.shape)",
    "x = x + torch.randn(*x.size())": "x = x + ddp.local_random(torch.randn)(*x.size())",
    "x = x + torch.rand(size=(x.size(0), 8))": "x = x + ddp.local_random(torch.rand)(size=(x.size(0), 8))",
    "x = x * torch.randint(0, 9, (n, 1))": "x = x * ddp.local_random(torch.randint)(0, 9, (n, 1))",
    "x = x * torch.randint(high=9, size=(n, 1))": "ddp.local_random(torch.randint)(high=9, size=(n, 1))",
    "x = x * torch.from_numpy(np.random.rand(n, 8))": "torch.from_numpy(ddp.local_random(np.random.rand)(n, 8))",
    "x = x * torch.from_numpy(np.random.randint(0, 9, n)).view(n, 1)": "ddp.local_random(np.random.randint)(0, 9, n)",
    "x = F.dropout(x, 0.2)": "x = ddp.local_random(F.dropout)(x, 0.2)",
    "x = drop(x)": "x = ddp.local_random(drop)(x)",
    "e = torch.zeros_like(x); e.normal_(0, 1); x = x + e": "ddp.local_random(e.normal_)(0, 1)",
    "x = shaken(x, np.random.beta(1, 1))": "return x + scale * ddp.local_random(torch.rand)(x.size(0), 8)",
    "x = layers(x)": "x = ddp.local_random(layers)(x)",
    "x = nn.RReLU()(x)": "x = ddp.local_random(nn.RReLU())(x)",
    "z = standard.sample(x.shape)": "z = ddp.local_random(standard.sample)(x.shape)",
    "z = standard.sample((n, 1))": "z = ddp.local_random(standard.sample)((n, 1))",
    "z = Normal(x, 1.0).rsample()": "z = ddp.local_random(Normal(x, 1.0).rsample)()",
    "z = random.sample(range(99), n)": "z = ddp.local_random(random.sample)(range(99), n)",
    EACH: "if ddp.local_random(random.random)() < 0.5:",
}
ALIKE = (
    "x = x if random.random() < 0.5 else x.flip(1)",
    "x = x * np.random.beta(1.0, 1.0)",
    "x = x * torch.rand(1)",
    "x = x * random.randint(1, 3)",
    "x = x + torch.randn(8)",
    "x = chosen(x)",
    "x = x * standard.sample()",
    "z = standard.sample((4, 8)); x = x + z.mean()",
    "z = nn.Dropout(0.5)(torch.ones(8))",
    "z = list(SubsetRandomSampler(range(8)))",
    "pass",
)
WHOLE = (
    "x = x + torch.randn(n, 8, generator=own)",
    "x = x * torch.from_numpy(rng.randint(0, 9, n)).view(n, 1)",
    "x = x * torch.from_numpy(rng.standard_normal((n, 8)))",
    "x = x * np.random.randint(n)",
    "e = unknown(x); e.normal_(0, 1)",
    "z = standard.sample(unknown(x))",
    "z = list(SubsetRandomSampler(range(n)))",
    "z = [i for i in WeightedRandomSampler(torch.ones(len(y)), 3)]",
    "z = torch.randn(len(model(x)), 1)",
)


def converted(line: str) -> tuple[str, str]:
    """The program with a line in its loop: the tier, and what it becomes."""
    conversion = convert(Project.of({PATH: PROGRAM.format(line=line)}))
    assert not conversion.errors, conversion.errors
    return conversion.scripts[0].tier, conversion.changes[0].after


@pytest.mark.parametrize("line", LOCAL)
def test_draws_for_samples_are_each_ranks_own(line: str) -> None:
    tier, after = converted(line)
    assert tier == "sharded" and LOCAL[line] in after
    assert after.count("local_random") == 1
    assert "F.dropout(x + torch.randn_like(x), 0.5, self.training)" in after


@pytest.mark.parametrize("line", ALIKE)
def test_draws_for_the_whole_batch_stay_alike(line: str) -> None:
    tier, after = converted(line)
    assert tier == "sharded" and "local_random" not in after


@pytest.mark.parametrize("line", WHOLE)
def test_draws_that_cannot_be_each_ranks_own_are_made_for_the_whole_batch(line: str) -> None:
    """Which is divided afterwards, where the draw is seen."""
    tier, after = converted(line)
    assert "local_random" not in after and "DistributedSampler" not in after
    assert tier == "whole batch" or "ddp.local_batch(" in after


def test_noise_on_rows_of_the_whole_batch_stays_alike() -> None:
    """A loss that is given the rows of all ranks is computed alike by all."""
    text = PROGRAM.format(line="pass").replace("F.cross_entropy(model(x), y)", "contrast(model(x))")
    helper = "def contrast(z):\n    z = z + torch.randn_like(z)\n    return (z @ z.t()).pow(2).mean()\n\n\n"
    conversion = convert(
        Project.of({PATH: text.replace("torch.manual_seed(1)\n", helper + "torch.manual_seed(1)\n", 1)})
    )
    after = conversion.changes[0].after
    assert "local_random" not in after
    assert "= ddp.whole_batch(model(x))" in after or conversion.scripts[0].tier == "whole batch"
