"""Where all processes wait in a loop that trains: not at each step for what few steps write or read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import command
import pytest
from parity.harness import Lab
from test_stages import LATE

TRAIN = """\
import argparse
import json

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from late import late

FUNCTIONS


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=2)
    parser.add_argument("--test", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.randn(24, 4), torch.randn(24, 2)), batch_size=6, shuffle=True)
    model = nn.DataParallel(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    best = bad = 0
    for epoch in range(4):
        for step, (inputs, targets) in enumerate(loader):
            STEP
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
    END


if __name__ == "__main__":
    main()
"""
SAVES = """\
if step == 1:
                torch.save({"epoch": epoch}, "kept.pt")
            """
LOADS = 'print(torch.load("kept.pt")["epoch"])'
# Conditions that are the same on all ranks, and such as may not be.
ALIKE = {
    "counters": "epoch % args.every == 0 and step == 2",
    "counters and options": "(epoch % args.every == 0 and epoch > 0 and step == len(loader) - 1) or args.test",
    "a counter of one's own": "steps > 3",
    "one that is reset": "since == 2",
}
COUNTED = {
    "a counter of one's own": "steps = epoch * len(loader) + step\n            ",
    "one that is reset": "since += 1\n            if step == 0:\n                since = 0\n            ",
}
OTHERS = {
    "a number of the training": "model.module.bias.sum() > 3",
    "a count of what differs": "step == 2 and int(bad) < 100",
}


def converted(folder: Path, texts: Mapping[str, str]) -> str:
    for name, text in texts.items():
        (folder / name).write_text(text)
    done = command.run("convert", "train.py", "--inplace", cwd=folder)
    assert done.returncode == 0, done.stderr.decode()
    return (folder / "train.py").read_text()


def trains(step: str, functions: str = "", end: str = 'print("trained")') -> str:
    parts = {"STEP": step, "FUNCTIONS": functions, "END": end}
    text = TRAIN.replace("best = bad = 0", "best = bad = since = 0")
    for name, part in parts.items():
        text = text.replace(name, part)
    return text


def same(lab: Lab, folder: Path, texts: Mapping[str, str], *arguments: str) -> str:
    """The converted program, if two processes say what one does before."""
    place = lab.place("before")
    for name, text in texts.items():
        (place / name).write_text(text)
    before = lab.run(place / "train.py", *arguments, folder=place, recorded=False).ok()
    after = converted(folder, texts)
    done = lab.run(folder / "train.py", *arguments, processes=2, folder=folder, recorded=False).ok()
    assert done.printed == before.printed
    return after


@pytest.mark.parametrize("name", ALIKE)
def test_all_wait_where_a_condition_that_is_alike_has_them_read(lab: Lab, tmp_path: Path, name: str) -> None:
    saves = SAVES.replace('"kept.pt")', '"kept.pt") or late()')
    step = f"{COUNTED.get(name, '')}{saves}if {ALIKE[name]}:\n                {LOADS}"
    after = same(lab, tmp_path, {"train.py": trains(step), "late.py": LATE})
    assert after.count("ddp.barrier()") == 1
    assert "                ddp.barrier()\n                print(torch.load(" in after


@pytest.mark.parametrize("name", OTHERS)
def test_all_wait_outside_of_a_condition_that_may_differ(tmp_path: Path, name: str) -> None:
    counts = "if loss.item() > best:\n                bad += 1\n            "
    step = (
        f"loss = model(inputs).sum()\n            {counts}{SAVES}if {OTHERS[name]}:\n                {LOADS}"
    )
    after = converted(tmp_path, {"train.py": trains(step), "late.py": LATE})
    assert f"            ddp.barrier()\n            if {OTHERS[name]}:\n" in after


EVALUATES = """\
def evaluate(model):
    rows = [len(it) for it in model.module.weight]
    late()
    if len(rows) > 0:
        json.dump(rows, open("rows.json", "w"))
        return sum(json.load(open("rows.json")))
    return 0
"""
BESIDE = """\
        ddp.barrier()
        json.dump(rows, ddp.open("rows.json", "w"))
        ddp.barrier()
        return sum(json.load(open("rows.json")))
"""


def test_all_have_read_a_file_before_it_is_written_again(lab: Lab, tmp_path: Path) -> None:
    """They wait beside the place where they wait for it, not at each step that may come to it."""
    step = "if bad or (epoch % args.every == 0 and step == 0):\n                print(evaluate(model))"
    texts = {"train.py": trains(step, EVALUATES, "print(evaluate(model))"), "late.py": LATE}
    after = same(lab, tmp_path, texts)
    assert BESIDE in after and after.count("ddp.barrier()") == 2


KEEPS = """\
def keep(stage, path=None):
    held = {}
    late()
    if path:
        with open(path) as file:
            held = json.load(file)
    else:
        path = "other.json"
    held[str(stage)] = sum(held.values()) + 1
    with open(path, "w") as file:
        json.dump(held, file)
    return held
"""


def test_all_have_read_a_file_that_may_be_another_before_it_is_written(lab: Lab, tmp_path: Path) -> None:
    end = 'json.dump({"0": 1}, open("kept.json", "w"))\n    for stage in (1, 2):\n        print(keep(stage, "kept.json"))'
    others = LATE.replace('"LAB_RANK", "0") == "0"', '"LAB_RANK", "0") != "0"')
    after = same(lab, tmp_path, {"train.py": trains("late()", KEEPS, end), "late.py": others})
    assert '    ddp.barrier()\n    with ddp.open(path, "w") as file:\n' in after


SETTINGS = """\
import json
import os

from late import late


def read(path):
    with open(path) as file:
        return json.load(file)


class Settings:
    made = None

    @classmethod
    def get(cls):
        if not cls.made:
            cls.made = cls(os.environ.get("SETTINGS", "settings.json"))
        return cls.made

    def __init__(self, path):
        self.all = read(path)
        self.keep("kept.json")
        if os.path.isfile("kept.json"):
            print(sorted(read("kept.json")))

    def keep(self, path):
        late()
        with open(path, "w") as file:
            json.dump(self.all, file)
"""
LOSSES = """\
import torch
from torch import nn

from settings import Settings


def plain(outputs, targets):
    return nn.functional.mse_loss(outputs, targets)


class Own(nn.Module):
    def __init__(self, size=3, reduction="mean"):
        super().__init__()
        self.settings = Settings.get()

    def forward(self, outputs, targets):
        return nn.functional.mse_loss(outputs, targets)
"""
CHOSEN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import losses
from settings import Settings

settings = Settings.get()
torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(24, 4), torch.randn(24, 2)), batch_size=6, shuffle=True)
model = nn.DataParallel(nn.Linear(4, 2))
criterion = nn.MSELoss()
measure = getattr(losses, settings.all["measure"])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        criterion(model(inputs), targets).backward()
        optimizer.step()
    model.eval()
    total = 0
    with torch.no_grad():
        for inputs, targets in loader:
            total += measure(model(inputs), targets).item()
    model.train()
print(total > 0)
"""


WAITS = """\
        self.keep("kept.json")
        ddp.barrier()
        if os.path.isfile("kept.json"):
"""


def test_nobody_waits_at_each_batch_for_what_is_waited_for_where_it_is_written(
    lab: Lab, tmp_path: Path
) -> None:
    """By what is known, a measure that is chosen by name may make the settings anew, and write them."""
    texts = {"train.py": CHOSEN, "losses.py": LOSSES, "settings.py": SETTINGS, "late.py": LATE}
    texts["settings.json"] = '{"measure": "plain"}'
    after = same(lab, tmp_path, texts)
    assert "ddp.barrier()" not in after
    assert WAITS in (tmp_path / "settings.py").read_text()
