"""What a converted program draws for samples is each rank's own, and what it draws for all of them alike on all ranks."""

from __future__ import annotations

import itertools
import json
import re
from functools import cache
from typing import Any

import pytest
from programs import PATH, WRAP
from programs import PROGRAM as LOADED

from dp2ddp.convert import convert
from dp2ddp.source import Project
from parity.harness import Lab
from parity.test_tier_training import differences, write

PROGRAM = """\
import json
import os
import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, random_split

SEED = {seed}
if SEED:
    torch.manual_seed(SEED)
    random.seed(SEED)
    np.random.seed(SEED)
seen = {{"data": [], "noise": [], "masks": [], "alike": [], "order": []}}


class Crops(Dataset):
    def __len__(self):
        return 36

    def __getitem__(self, index):
        left, top, flip = torch.rand(1).item(), random.random(), np.random.rand()
        crop = torch.tensor([left, top, flip, index], dtype=torch.float64)
        return torch.randn(6), crop, index % 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 64), nn.Dropout(0.5), nn.Linear(64, 2))

    def forward(self, x):
        hidden = self.layers[1](self.layers[0](x))
        if self.training:
            seen["masks"] += (hidden != 0).long().tolist()
            seen["masks"].append([random.random(), np.random.rand()])
        return self.layers[2](hidden)


def jitter(x, scale):
    return x + scale * torch.rand(x.size(0), 6)


{init}

def main():
    part, _ = random_split(Crops(), [24, 12])
    net = Net()
    seen["alike"] += net.layers[0].weight.flatten().tolist()
    model = nn.{wrapper}(net)
    loader = DataLoader(part, batch_size={batch}, shuffle=True, num_workers={workers}{options})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for x, crops, y in loader:
            seen["data"] += crops[:, :3].tolist()
            seen["order"] += crops[:, 3].tolist()
            seen["alike"].append(np.random.beta(1.0, 1.0))
            if random.random() < 0.5:
                x = x.flip(1)
            noise = torch.randn_like(x)
            moved = jitter(torch.zeros_like(x), 0.1)
            seen["noise"] += noise.tolist()
            seen["noise"] += moved.tolist()
            loss = {loss}
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen["alike"] += [random.random(), torch.rand(1).item(), np.random.rand()]
    print(json.dumps(seen))


main()
"""
MEAN = "F.cross_entropy(model(x + 0.1 * noise + moved), y)"
UNFOLLOWED = "F.cross_entropy(unknown(model(x + 0.1 * noise + moved)), y)"
SEEDED = """
def seed_worker(worker):
    torch.manual_seed(worker)
    random.seed(worker)
    np.random.seed(worker)

"""


@pytest.fixture(scope="module")
def numbers(lab: Lab) -> Any:
    """What each rank of the converted program has seen."""

    @cache
    def ran(processes: int, again: int = 0, exact: bool = False, **which: Any) -> tuple[dict[str, Any], ...]:
        given = {
            "seed": 3,
            "wrapper": "DataParallel",
            "workers": 0,
            "batch": 12,
            "options": "",
            "init": "",
            "loss": MEAN,
        }
        conversion = convert(Project.of({PATH: PROGRAM.format(**{**given, **which})}), exact=exact)
        assert not conversion.errors, conversion.errors
        script = lab.place("random") / "train.py"
        # what is noted stays each rank's own
        script.write_text(
            re.sub(r"ddp\.whole_batch\((.*)\)\.tolist", r"\1.tolist", conversion.changes[0].after)
        )
        env = {"DP2DDP_OUTPUT": "all"}
        run = lab.run(script, processes=processes, recorded=False, timeout=90, env=env).ok()
        said = sorted(re.findall(r"^\[rank (\d+)\] (\{.*\})$", run.printed, re.MULTILINE))
        assert len(said) == processes, run.printed
        return tuple(json.loads(text) for _, text in said)

    return ran


def floats(rows: list[Any]) -> set[float]:
    return {number for row in rows for number in (row if isinstance(row, list) else [row])}


def apart(ranks: tuple[dict[str, Any], ...]) -> None:
    """No two ranks have a number, or a mask, in common."""
    for one, other in itertools.combinations(ranks, 2):
        for what in ("data", "noise"):
            assert one[what] and not floats(one[what]) & floats(other[what]), what
        masks = [{str(row) for row in rank["masks"]} for rank in (one, other)]
        assert masks[0] and not masks[0] & masks[1]
        assert one["alike"] == other["alike"]


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_drawn_for_samples_is_each_ranks_own(numbers: Any, workers: int, processes: int) -> None:
    ranks = numbers(processes, workers=workers)
    apart(ranks)
    for rank in ranks:  # nor has a sample those of another one
        assert len(floats(rank["data"])) == 3 * len(rank["data"])
    dealt = [rank["order"] for rank in ranks]
    assert len({tuple(order) for order in dealt}) == processes
    assert len({index for order in dealt for index in order[: 24 // processes]}) == 24


def test_a_run_is_repeated_with_its_seed_and_with_no_other(numbers: Any) -> None:
    for workers in (0, 2):
        first = numbers(2, workers=workers)
        assert numbers(2, workers=workers, again=1) == first
        other = numbers(2, workers=workers, seed=4)
        apart((*first[:1], {**other[1], "alike": first[0]["alike"]}))
        assert first[0]["alike"] != other[0]["alike"]


def test_without_a_seed_ranks_are_apart_and_runs_are(numbers: Any) -> None:
    first, other = (numbers(2, seed="torch.seed() and 0", again=again) for again in range(2))
    apart(first)
    assert first[0]["alike"] != other[0]["alike"]


def test_workers_that_the_program_seeds_alike_are_apart(numbers: Any) -> None:
    ranks = numbers(2, workers=2, init=SEEDED, options=", worker_init_fn=seed_worker")
    apart(ranks)
    assert numbers(2, workers=2, init=SEEDED, options=", worker_init_fn=seed_worker", again=1) == ranks


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("workers", [0, 2])
def test_the_batches_of_the_original_in_parts(numbers: Any, workers: int) -> None:
    """With ``ddp.shard``: parts that differ in size, and on three ranks none of the last batch for one of them."""
    for processes in (2, 3):
        apart(numbers(processes, workers=workers, exact=True, batch=10))


@pytest.mark.parametrize("workers", [0, 2])
def test_whole_batches_are_alike_and_dropout_is_not(numbers: Any, workers: int) -> None:
    """Every rank draws for whole batches, and its wrapped model for a part."""
    unknown = "\nunknown = eval('lambda x: x')\n"
    ranks = numbers(2, workers=workers, loss=UNFOLLOWED, init=unknown)
    first, other = ranks
    assert first["data"] == other["data"] and first["noise"] == other["noise"]
    assert first["order"] == other["order"] and first["alike"] == other["alike"]
    masks = [{str(row) for row in rank["masks"]} for rank in ranks]
    assert not masks[0] & masks[1]


AMOUNTS = [
    "layers(outputs)",
    "standard.sample(outputs.shape)",
    "torch.distributions.Categorical(logits=outputs).sample()",
    "chosen(outputs)",
    "random.sample(range(99), len(y))",
]
UNEVEN = """
import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
random.seed(3)
loader = DataLoader(TensorDataset(torch.randn(22, 6), torch.randint(3, (22,))), batch_size=8)
model = nn.DataParallel(nn.Linear(6, 3))
layers = nn.Sequential(nn.ReLU())
layers.append(nn.Sequential(nn.Dropout(0.5)))
standard = torch.distributions.Normal(0.0, 1.0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def chosen(outputs):
    return torch.distributions.Bernoulli(outputs.sigmoid()).sample()


for epoch in range(2):
    for x, y in loader:
        outputs = model(x)
        with torch.no_grad():
            drawn = {drawn}
        factor = torch.rand(()).item() + random.random()
        loss = factor * F.cross_entropy(outputs, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("drawn", AMOUNTS)
def test_ranks_draw_alike_after_parts_of_different_sizes(lab: Lab, drawn: str) -> None:
    """What is drawn for the samples of a part is none of the numbers that all ranks draw alike."""
    (change,) = convert(Project.of({PATH: UNEVEN.format(drawn=drawn)}), exact=True).changes
    script = lab.place("uneven") / "train.py"
    script.write_text(change.after + "        print(factor)\n")
    env = {"DP2DDP_OUTPUT": "all"}
    run = lab.run(script, processes=3, recorded=False, timeout=60, env=env).ok()
    said = [re.findall(rf"^\[rank {rank}\] (.*)$", run.printed, re.MULTILINE) for rank in range(3)]
    assert said[0] == said[1] == said[2] and len(said[0]) == 6


DECIDED = {
    "a condition by the largest": "if x.abs().max() > 2.2:\n            torch.rand(1)",
    "an amount": "torch.rand(int(y.sum()))",
    "an amount of some": "torch.rand(y.nonzero().size(0))",
    "rounds until": "while torch.rand(1) < x.abs().max() / 4:\n            pass",
    "rounds over some": "for _ in range(len(y.nonzero())):\n            torch.rand(1)",
    "the second half of a condition": "x.sum() > 0 and torch.rand(1) > 2",
}
DECIDING = """\
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(44, 6), torch.randint(2, (44,)))
loader = DataLoader(data, batch_size=8)
model = nn.DataParallel(nn.Linear(6, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        {drawn}
        loss = torch.rand(1).item() * F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(round(loss.item(), 6))
"""


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("drawn", DECIDED)
def test_what_is_drawn_by_what_a_part_is_like_is_drawn_for_the_whole_batch(lab: Lab, drawn: str) -> None:
    """Else the ranks would draw different numbers from there on."""
    text = DECIDING.format(drawn=DECIDED[drawn])
    (change,) = convert(Project.of({PATH: text})).changes
    before, after = lab.place("before") / "train.py", lab.place("after") / "train.py"
    before.write_text(text)
    after.write_text(change.after)
    expected = lab.run(before, replicas=2, timeout=60).ok()
    found = lab.run(after, processes=2, timeout=60).ok()
    assert expected.printed.count("\n") == 12
    pairs = zip(expected.printed.split(), found.printed.split(), strict=True)
    assert all(abs(float(one) - float(other)) < 2e-6 for one, other in pairs)


LATE = {
    "in the next statement": "torch.manual_seed(3)\n",
    "in a function that a condition calls": """
def seed_all(seed):
    torch.manual_seed(seed)


if len(data) > 3:
    seed_all(3)
""",
    "in a constructor": """
class Trainer:
    def __init__(self):
        torch.manual_seed(3)


trainer = Trainer()
""",
}


@pytest.mark.parametrize("late", LATE)
def test_a_seed_that_is_set_after_the_loader_is_made_orders_its_samples(lab: Lab, late: str) -> None:
    """As it does in the original: each run draws the same batches."""
    drawn = "generator=torch.Generator().manual_seed(1)"
    text = LOADED.replace("torch.randn(64, 8)", f"torch.randn(64, 8, {drawn})")
    text = text.replace("torch.randint(2, (64,))", f"torch.randint(2, (64,), {drawn})")
    text = text.replace(WRAP, f"{LATE[late]}model.reset_parameters()\n{WRAP}")
    conversion = convert(Project.of({PATH: text}))
    assert conversion.scripts[0].tier == "sharded"
    before = lab.run(write(lab, "before", text), replicas=2).ok()
    after = lab.run(write(lab, "after", conversion.changes[0].after), processes=2).ok()
    assert differences(before, after, losses=False) == []
