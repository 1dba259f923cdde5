"""What is counted and kept of a part of each batch, and what is trained beside the models' forwards."""

import subprocess
import sys
from pathlib import Path

import pytest
from forms import ungathered as convert_project
from programs import PATH

from dp2ddp.source import Project

PROGRAM = """\
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

class Named(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        return torch.randn(6), i % 3, f"s{{i}}"

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.scale = nn.Parameter(torch.ones(()))
    def forward(self, x):
        return self.layer(x)

loader = DataLoader(Named(), batch_size=16)
model = nn.DataParallel(Net().cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    running, hits = 0.0, [[0, 0], [0, 0], [0, 0]]
    for x, y, names in loader:
        out = model(x.cuda())
        loss = {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {body}
    print(running, hits)
"""
MEAN = "F.cross_entropy(out, y.cuda())"


def convert(tmp_path: Path, body: str, loss: str = MEAN, *options: str) -> tuple[str, str]:
    """The diff of the program, and what is said of it."""
    (tmp_path / "main.py").write_text(PROGRAM.format(body=body, loss=loss))
    command = [sys.executable, "-m", "dp2ddp", "convert", "--no-gather", "main.py", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


def test_the_length_of_a_list_of_names_is_that_of_the_whole_batch(tmp_path: Path) -> None:
    diff, _ = convert(tmp_path, "running += loss.item() * len(names)")
    assert "+    running = ddp.sum(running)" in diff


@pytest.mark.parametrize(
    "shown",
    [
        "sys.stderr.write(f'{right}')",
        "sys.__stdout__.buffer.write(str(right).encode())",
        "warnings.warn(f'{right}')",
        "tqdm.write(f'{right}')",
        "bar.write(f'{right}')",
        "bar.set_postfix_str(f'{right}')",
        "bar.set_description_str(f'{right}')",
        "secho(f'{right}')",
    ],
)
def test_what_is_shown_in_any_way_is_of_all(tmp_path: Path, shown: str) -> None:
    body = (
        "import sys, warnings; from click import secho; from tqdm.auto import tqdm; bar = tqdm()\n"
        "        right = (out.argmax(1) == y.cuda()).sum().item()\n        "
    )
    diff, said = convert(tmp_path, body + shown)
    assert f"+        {shown.replace('right', 'ddp.sum(right)')}" in diff and "  sharded" in said


def test_what_is_counted_sample_by_sample_is_of_all(tmp_path: Path) -> None:
    diff, said = convert(tmp_path, "for t in y.tolist(): hits[t][1] += 1")
    assert "+        for t in ddp.whole_batch(y).tolist(): hits[t][1] += 1" in diff and "  sharded" in said


def test_parameters_beside_the_forward_need_parts_of_one_size(tmp_path: Path) -> None:
    loss = f"model.module.scale.exp() * {MEAN}"
    _, said = convert(tmp_path, "pass", loss, "--exact")
    assert "whole batch" in said and "outside of the model's forward" in said


def test_a_penalty_beside_the_forward_is_the_same_in_every_process(tmp_path: Path) -> None:
    _, said = convert(tmp_path, "pass", f"{MEAN} + model.module.scale ** 2", "--exact")
    assert "  sharded" in said


def test_to_ask_whether_a_dict_has_a_name_settles_a_place(tmp_path: Path) -> None:
    """What is kept there is that of the whole batch, as nothing of the samples answers that."""
    body = "found = dict(count=x.size(0))\n        if 'count' in found: hits.append(found['count'])"
    diff, said = convert(tmp_path, body)
    assert "hits.append(ddp.sum(found['count']))" in diff and "  sharded" in said


KEEPING = """\
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.arange(64), torch.randn(64, 8))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.DataParallel(nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


class Bank(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(64, 4))
        self.other = nn.Linear(4, 4)

    def forward(self, z):
        return (z @ self.rows.t()).logsumexp(1).mean()

    def keep(self, i, z):
        KEEP


bank = Bank()
for epoch in range(2):
    for i, x in loader:
        z = F.normalize(model(x), dim=1)
        loss = bank(z)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        bank.keep(i, z)
"""


@pytest.mark.parametrize(
    "keep",
    [
        "self.rows[i] = z.detach()",
        "self.rows.data[i] = z.detach()",
        "self.rows.index_copy_(0, i, z.detach())",
        "self.rows[: len(z)].copy_(z.detach())",
        "self.rows = torch.cat([z.detach(), self.rows[len(z) :]])",
        "self.rows.mul_(0.9).add_(z.detach().mean(0))",
    ],
)
def test_a_loss_of_rows_that_earlier_batches_left_is_not_sharded(keep: str) -> None:
    """Each rank would keep those of its own parts."""
    conversion = convert_project(Project.of({PATH: KEEPING.replace("KEEP", keep)}))
    assert "ddp.DataParallel(" in conversion.changes[0].after


@pytest.mark.parametrize("keep", ["pass", "self.rows[0] = 1.0", "self.other.weight.data.clamp_(-1, 1)"])
def test_a_loss_of_what_no_batch_has_left_is(keep: str) -> None:
    conversion = convert_project(Project.of({PATH: KEEPING.replace("KEEP", keep)}))
    assert "ddp.DistributedDataParallel(" in conversion.changes[0].after


NAMED = """\
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Named(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return {"x": torch.randn(6), "y": i % 3, "name": f"s{i}"}


def move(batch):
    for key, value in batch.items():
        batch[key] = value.cuda() if torch.is_tensor(value) else value
    return batch


loader = DataLoader(Named(), batch_size=16, shuffle=True)
model = nn.DataParallel(nn.Linear(6, 3)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in loader:
    BODY
    loss = F.cross_entropy(model(batch["x"]), batch["y"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
OVER = "for key, value in batch.items():"
MOVED = [
    f"{OVER} batch[key] = value.cuda()",
    f"{OVER}\n        if torch.is_tensor(value):\n            batch[key] = value.to('cuda')",
    f"{OVER}\n        if isinstance(value, torch.Tensor):\n            value = value.cuda()\n            batch[key] = value",
    f"{OVER}\n        if key in ['name']: continue\n        batch[key] = torch.autograd.Variable(value.cuda())",
    "for key, value in list(batch.items()): batch[key] = value.cuda().float()",
    "for i, (key, value) in enumerate(batch.items()): batch[key] = value.cuda()",
    f"{OVER} batch[key] = [it.cuda() for it in value] if isinstance(value, list) else value.cuda()",
    "for key in batch.keys(): batch[key] = batch[key].float().cuda()",
    "batch = move(batch)",
]
OTHER_ROWS = [
    f"{OVER} batch[key] = value.cuda().flip(0)",
    f"{OVER} batch[key] = value.cuda() - value.cuda().float().mean(0)",
]


@pytest.mark.parametrize("body", MOVED + OTHER_ROWS)
def test_the_entries_of_a_batch_are_moved_one_by_one(body: str) -> None:
    """What is stored at the keys of a dict, which a loop takes of it, is each sample's own where that is."""
    conversion = convert_project(Project.of({PATH: NAMED.replace("BODY", body)}))
    assert (
        "DistributedSampler(" in conversion.changes[0].after
        and "local_batch(" not in (conversion.changes[0].after)
    ) is (body in MOVED)


KEYS = """\
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Frames(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return {("x", 0): torch.randn(6), ("x", -1): torch.randn(6)}


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(6, 6) for _ in range(2)])

    def forward(self, x):
        return {("disp", i): head(x) for i, head in enumerate(self.heads)}


scales = [0, 1]
loader = DataLoader(Frames(), batch_size=16, shuffle=True)
model = nn.DataParallel(Decoder()).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs in loader:
    outputs, losses = model(inputs["x", 0].cuda()), {}
    for scale in scales:
        target, found = inputs[("x", -1)].cuda(), outputs[("disp", scale)]
        BODY
        losses["loss", scale] = (found - target).abs().mean()
    loss = losses[("loss", 0)] + losses["loss", 1]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
OF_KEYS = [
    "pass",
    "outputs[('depth', scale)] = found + 1\n        found = outputs['depth', scale]",
    "outputs[f'depth_{scale}'] = found + 1\n        found = outputs[f'depth_{scale}']",
    "outputs['depth_{}'.format(scale)] = found + 1\n        found = outputs['depth_' + str(scale)]",
    "made = {('a', 0): found, ('b', -1): 3, 'mixed': found.roll(1, 0)}\n        found = made['a', 0] * made[('b', -1)]",
    "for frame in [0, -1]: outputs['warped', frame, scale] = inputs['x', frame].cuda() * found\n"
    "        found = outputs['warped', 0, scale] + outputs['warped', -1, scale]",
]
OF_OTHERS = [
    "inputs['x', -1] = inputs[('x', -1)].flip(0)\n        target = inputs['x', -1].cuda()",
    "inputs[('x', -1)][0] = 0\n        target = inputs['x', -1].cuda()",
    "first = inputs['x', -1]\n        first[1:] = first[:-1].clone()\n        target = inputs[('x', -1)].cuda()",
    "made = {('a', 0): found, ('a', 1): found.roll(1, 0)}\n        found = made['a', scale]",
    "made = {('a', 0): found, ('a', scale): found.roll(1, 0)}\n        found = made['a', 0]",
    "outputs['disp', scale] = found.roll(1, 0)\n        found = outputs['disp', scale]",
]


@pytest.mark.parametrize("body", OF_KEYS + OF_OTHERS)
def test_keys_with_a_text_are_of_dicts(body: str) -> None:
    after = convert_project(Project.of({PATH: KEYS.replace("BODY", body)})).changes[0].after
    whole = ("ddp.DataParallel(", "ddp.whole_batch(", "ddp.local_batch(")
    assert any(it in after for it in whole) is (body not in OF_KEYS)
