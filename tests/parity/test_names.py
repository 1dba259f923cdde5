"""Rules follow meaning, not names: the flat program under other names converts and trains the same."""

from __future__ import annotations

import ast
from pathlib import Path

import command

from parity import compare
from parity.harness import BATCH, SAMPLES, SHAPES, Lab

NAMES = {
    "torch": "th",
    "nn": "layers",
    "optim": "tuning",
    "torchvision": "vision",
    "transforms": "changes",
    "args": "options",
    "device": "place",
    "trainset": "digits",
    "trainloader": "feed",
    "testset": "held_out",
    "testloader": "held_out_feed",
    "LeNet": "Reader",
    "net": "reader",
    "criterion": "objective",
    "optimizer": "descent",
    "scheduler": "cooling",
    "train": "study",
    "test": "exam",
    "epoch": "ddp",  # the runtime's usual name is taken
    "batch_idx": "train_sampler",  # so is the sampler's
    "inputs": "images",
    "targets": "labels",
    "outputs": "guesses",
    "loss": "cost",
    "checkpoint": "stored",
    "state": "content",
}


def renamed(text: str) -> str:
    """The program with every name of `NAMES` exchanged, and DataParallel and DataLoader imported in other ways."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        match node:
            case ast.Name():
                node.id = NAMES.get(node.id, node.id)
            case ast.arg():
                node.arg = NAMES.get(node.arg, node.arg)
            case ast.FunctionDef() | ast.ClassDef():
                node.name = NAMES.get(node.name, node.name)
            case ast.Global():
                node.names = [NAMES.get(name, name) for name in node.names]
            case ast.Import():
                for alias in node.names:
                    bound = alias.asname or alias.name
                    alias.asname = NAMES.get(bound, alias.asname)
    changed = ast.unparse(tree)
    for old, new in (
        ("th.nn.DataParallel(", "Replicated("),
        ("th.utils.data.DataLoader(", "feeding.DataLoader("),
    ):
        assert old in changed
        changed = changed.replace(old, new)
    return f"import torch.utils.data as feeding\nfrom torch.nn.parallel import DataParallel as Replicated\n{changed}\n"


def convert(folder: Path) -> None:
    """Convert the program in a folder by the command."""
    done = command.run("convert", "train.py", "--inplace", cwd=folder)
    assert done.returncode == 0, done.stderr.decode()


def test_the_flat_program_under_other_names_trains_the_same(lab: Lab) -> None:
    shape = SHAPES["flat"]
    before, after = lab.place("renamed"), lab.place("renamed-converted")
    text = renamed((shape.before / "train.py").read_text())
    for folder in (before, after):
        (folder / "train.py").write_text(text)
    convert(after)
    converted = (after / "train.py").read_text()
    assert "Replicated" not in converted

    ours = lab.run(after / "train.py", lab.arguments(), processes=2).ok()
    plan = str(lab.plan(ours))
    theirs = lab.run(before / "train.py", lab.arguments(), replicas=2, plan=plan).ok()
    assert compare.training(theirs.ranks[0], ours.ranks, losses=1e-9, parameters=1e-12, first=20) == []
    assert compare.order(ours.ranks, samples=SAMPLES, batch=BATCH, drop_last=False) == []
    assert shape.numbers(ours.printed) == shape.numbers(theirs.printed) != []

    twice = lab.place("renamed-twice")
    (twice / "train.py").write_text(converted)
    convert(twice)
    assert (twice / "train.py").read_text() == converted
