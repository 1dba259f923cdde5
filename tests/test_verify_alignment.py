"""Verify compares what is the same thing of both programs: lines that both printed, parameters as far on as they are."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from command import here
from parity.harness import Lab

from dp2ddp.verify import contents
from dp2ddp.verify.compare import starts
from dp2ddp.verify.verdict import Tolerance


def test_lines_that_one_alone_printed_are_left_out_before_numbers_are_compared() -> None:
    mine = ["shown a 0.5", *(f"train [1: {it}/5] loss: 0.{it}" for it in range(5)), "shown b 0.25"]
    theirs = [mine[0], *mine[2:4], "shown d 0.125", *mine[4:]]
    pairs = list(contents._matched(mine, theirs))
    assert pairs and all(one == other for one, other in pairs)


def test_numbers_that_count_otherwise_are_compared() -> None:
    mine = ["begin", "right 7 of 10", "train 1 0.5", "end"]
    theirs = ["begin", "right 8 of 10", "shown x", "train 1 0.5", "end"]
    assert ("train 1 0.5", "train 1 0.5") in list(contents._matched(mine, theirs))
    assert list(contents._matched(mine[:2], theirs[:2]))[1] == ("right 7 of 10", "right 8 of 10")


def _notes(*optimizers: float, rank: int = 0) -> SimpleNamespace:
    steps = [SimpleNamespace(optimizer=it, number=it + 1, rates=[1e-3]) for it in range(len(optimizers))]
    made = [
        SimpleNamespace(adaptive=True, names=["bias"], sizes=[1], digests=[[it, it]]) for it in optimizers
    ]
    return SimpleNamespace(optimizers=made, steps=steps, rank=rank)


def test_an_optimizer_made_in_the_loop_begins_with_what_others_have_stepped() -> None:
    """Rounding is then as large as after their steps."""
    tolerance = Tolerance.of(float64=True)
    assert not list(starts(_notes(1.0, 1.0), [_notes(1.0, 1.0 + 1e-11)], tolerance))
    (first,) = starts(_notes(1.0, 1.0), [_notes(1.0 + 1e-10, 1.0)], tolerance)
    assert first.step == 0
    (later,) = starts(_notes(1.0, 1.0), [_notes(1.0, 1.1)], tolerance)
    assert later.step == 2


DRAWING = """\
import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
random.seed(0)
held = torch.randn(28, 5), torch.randint(2, (28,))


class Noisy(Dataset):
    def __len__(self):
        return 28

    def __getitem__(self, index):
        return held[0][index] + 0.1 * torch.randn(5), held[1][index]


def attacked(x, y):
    moved = x + 0.1 * torch.randn_like(x)
    moved.requires_grad_()
    (slope,) = torch.autograd.grad(F.cross_entropy(model(moved), y), [moved])
    return (moved + 0.1 * slope.sign()).detach()


loader = DataLoader(Noisy(), batch_size=8, shuffle=True)
others = DataLoader(Noisy(), batch_size=12)
model = nn.DataParallel(nn.Linear(5, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        outputs = model(attacked(x, y))
        chosen = torch.randperm(outputs.size(0))
        apart = (outputs - outputs[chosen]).pow(2).topk(1, 1)[0].mean()
        loss = F.cross_entropy(outputs, y) + random.random() * apart
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    right = 0
    for x, y in others:
        right += (model(attacked(x, y)).argmax(1) == y).sum().item()
    print(right / 28)
"""


@pytest.mark.parametrize("processes", ["2", "3"])
def test_draws_for_samples_beside_those_for_all_are_no_difference(
    lab: Lab,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    processes: str,
) -> None:
    """Before the first step, behind a forward, and again after an evaluation that draws for its own samples."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(DRAWING)
    done = here(lab.warm, monkeypatch, capsys)("verify", "--exact", "train.py", "--processes", processes)
    assert done.code == 0 and done.out.startswith("MATCH over 8 steps"), done.out


ACTING = """\
import torch
from torch import nn
from torch.distributions import Normal

torch.manual_seed(0)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.value = nn.Linear(4, 2), nn.Linear(4, 1)

    def forward(self, seen, action=None):
        chosen = Normal(self.mean(seen), 0.5)
        if action is None:
            action = chosen.sample()
        return action, chosen.log_prob(action).sum(1), self.value(seen).view(-1)


agent = Agent()
wrapped = nn.DataParallel(agent)
optimizer = torch.optim.SGD(agent.parameters(), lr=0.05)
seen = torch.randn(3, 4)
for iteration in range(3):
    memory = []
    for step in range(8):
        with torch.no_grad():
            action, old, value = agent(seen)
        memory.append((seen, action, old, -action.pow(2).sum(1)))
        seen = seen + 0.1 * torch.cat([action, -action], 1)
    places, actions, olds, gains = (torch.cat(it) for it in zip(*memory))
    order = torch.randperm(len(places))
    for start in range(0, len(places), 8):
        rows = order[start : start + 8]
        _, new, value = wrapped(places[rows], actions[rows])
        gain = (gains[rows] - gains[rows].mean()) / gains[rows].std()
        loss = -((new - olds[rows]).exp() * gain).mean() + (value - gains[rows]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(iteration, loss.item(), gains.mean().item())
"""


def test_a_model_that_acts_past_its_wrapper_acts_alike_on_all_ranks(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(ACTING)
    done = here(lab.warm, monkeypatch, capsys)("verify", "train.py", "--processes", "2")
    assert done.code == 0 and done.out.startswith("MATCH over 9 steps"), done.out
