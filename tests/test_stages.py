"""Files that one stage of a program writes and a later one reads, converted and run by two and three processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import command
import pytest
from parity.harness import Lab

# Rank 0 is late wherever it writes, so that the others find nothing if they do not wait.
LATE = """\
import os
import time


def late():
    time.sleep(0.7 * (os.environ.get("LAB_RANK", "0") == "0"))
"""
TRAIN = """\
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from late import late


def train(args):
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(24, 4), torch.randn(24, 2))
    model = nn.DataParallel(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in DataLoader(data, batch_size=6, shuffle=True):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    late()
    SAVE


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="out")
    return parser.parse_args()
"""
RUN = """\
from stage import use
from train import options, train

if __name__ == "__main__":
    args = options()
    train(args)
    use(args)
"""
SAVE = 'torch.save(model.module.state_dict(), args.name + ".pth")'
STAGE = """\
import torch


def use(args):
    print(sorted(torch.load(args.name + ".pth")))
"""
LINES = """\
with open("lines.txt", "w") as file:
        file.writelines(["1\\n", "2\\n"])
"""
READING = """\
import os
from pathlib import Path

import numpy as np

FILE = "lines.txt"


def use(args):
    READ
"""

STAGES = {
    "the same expression": (SAVE, STAGE),
    "the same expression, opened": (
        'with open(args.name + "_1", "w") as file:\n        file.write("1 2")',
        READING.replace("READ", 'print(open(args.name + "_1").read())'),
    ),
    "a formatted one": (
        'with open(f"{args.name}-{args.name}", "w") as file:\n        file.write("1 2")',
        READING.replace("READ", 'print(open(f"{args.name}-{args.name}").read())'),
    ),
    "a constant of the same value": (
        LINES,
        READING.replace("READ", "with open(FILE) as file:\n        print(file.readlines())"),
    ),
    "a loop over its lines": (
        LINES,
        READING.replace("READ", "for line in open(FILE):\n        print(line)"),
    ),
    "by numpy": (LINES, READING.replace("READ", "print(np.genfromtxt(FILE).sum())")),
    "by pathlib": (
        'Path("lines.txt").write_text("1 2")',
        READING.replace("READ", "print(Path(FILE).read_text())"),
    ),
    "before processes that do the rest": (
        SAVE,
        """\
import torch
import torch.multiprocessing as mp


def work(index, state):
    print(index, sorted(state))


def use(args):
    state = torch.load(args.name + ".pth")
    mp.spawn(work, nprocs=2, args=(state,), join=True)
""",
    ),
}


def files(save: str, stage: str) -> dict[str, str]:
    train = TRAIN.replace("SAVE", save).replace(
        "import argparse\n", "import argparse\nfrom pathlib import Path\n"
    )
    return {"late.py": LATE, "train.py": train, "stage.py": stage, "run.py": RUN}


def converted(folder: Path, texts: Mapping[str, str]) -> Path:
    for name, text in texts.items():
        (folder / name).write_text(text)
    done = command.run("convert", "run.py", "--inplace", cwd=folder)
    assert done.returncode == 0, done.stderr.decode()
    return folder / "run.py"


@pytest.mark.parametrize(
    ("name", "processes"),
    [*((name, 2) for name in STAGES), ("the same expression", 3), ("a constant of the same value", 3)],
)
def test_a_later_stage_waits_for_what_it_reads(lab: Lab, tmp_path: Path, name: str, processes: int) -> None:
    texts = files(*STAGES[name])
    place = lab.place("before")
    for file, text in texts.items():
        (place / file).write_text(text)
    before = lab.run(place / "run.py", folder=place, recorded=False).ok()
    script = converted(tmp_path, texts)
    after = lab.run(script, processes=processes, folder=tmp_path, recorded=False).ok()
    # Ranks that somebody else has started all go on where the program starts its own.
    assert set(after.printed.splitlines()) == set(before.printed.splitlines())


@pytest.mark.parametrize(
    ("save", "read"),
    {
        "another file": (LINES, 'open("other.txt").read()'),
        "another one of its kind": (LINES, 'open(args.name + ".txt").read()'),
        "one that is not known": (LINES, "open(args.name).read()"),
        "a temporary one": (
            "import tempfile\n    with open(os.path.join(tempfile.mkdtemp(), 'a.txt'), 'w') as file:\n"
            "        file.write('1')",
            'open("a.txt").read()',
        ),
    }.values(),
)
def test_no_stage_waits_for_what_is_not_written(tmp_path: Path, save: str, read: str) -> None:
    texts = files(save, READING.replace("READ", f"print({read})"))
    texts["train.py"] = "import os\n" + texts["train.py"]
    converted(tmp_path, texts)
    assert not any("barrier" in it.read_text() for it in tmp_path.glob("*.py"))
