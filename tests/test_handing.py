"""Functions that hand on what they are given: each call has its own, whatever others hand through the same function."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.program.values import Inst, Made
from dp2ddp.convert import convert
from dp2ddp.source import Project

PATH = Path("/example/train.py")
TRAINS = """\
import argparse
import itertools

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

parser = argparse.ArgumentParser()
parser.add_argument("--quiet", action="store_true")
args = parser.parse_args()


{bar}

def main():
    torch.manual_seed(0)
    train_set = TensorDataset(torch.randn(64, 10), torch.randint(0, 3, (64,)))
    test_set = TensorDataset(torch.randn(64, 10), torch.randint(0, 3, (64,)))
    train_loader = DataLoader(train_set, batch_size=16, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=16)
    model = nn.DataParallel(nn.Linear(10, 3)).cuda()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    best = 0.0
    rounds = bar(list(range(3)))
    for epoch in rounds:
        model.train()
        shown = bar(train_loader)
        for i, (inputs, target) in enumerate(shown):
            loss = criterion(model(inputs.cuda()), target.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch % 2 == 0:
            model.eval()
            right = 0
            with torch.no_grad():
                for inputs, target in bar(test_loader):
                    right += (model(inputs.cuda()).argmax(1).cpu() == target).sum().item()
            best = max(best, right / len(test_set))
            print("accuracy", best)


if __name__ == "__main__":
    main()
"""
BARS = {
    "one or the other": "def bar(it):\n    if args.quiet:\n        made = it\n    else:\n"
    "        made = tqdm(it, total=len(it))\n    return made\n",
    "two returns": "def bar(it):\n    if args.quiet:\n        return it\n    return tqdm(it)\n",
    "in one expression": "def bar(it, total=None):\n    return it if args.quiet else tqdm(it, total=total)\n",
    "under its own name": "def bar(it):\n    if not args.quiet:\n        it = tqdm(it)\n    return it\n",
    "through another": "def inner(it):\n    return tqdm(it)\n\n\ndef bar(it):\n    return it if args.quiet else inner(it)\n",
    "a lambda": "bar = lambda it: it if args.quiet else tqdm(it)\n",
}


@pytest.mark.parametrize("bar", BARS)
def test_what_trains_what_evaluates_and_what_counts_are_told_apart(bar: str) -> None:
    """The loop over epochs is none over batches, and the loader of the training is no other's."""
    conversion = convert(Project.of({PATH: TRAINS.format(bar=BARS[bar])}))
    assert not conversion.errors, conversion.errors
    said = [
        it.message
        for it in conversion.findings
        if "both training" in it.message or "control flow" in it.message
    ]
    assert said == []
    after = conversion.changes[0].after
    assert "train_sampler.set_epoch(epoch)" in after and "bar(ddp.divide_batches(test_loader))" in after


def test_what_hands_out_some_batches_only_is_not_divided() -> None:
    bar = "def bar(it):\n    return tqdm(itertools.islice(it, 2))\n"
    after = convert(Project.of({PATH: TRAINS.format(bar=bar)})).changes[0].after
    assert "divide_batches" not in after and "shard_batches" not in after


HEAD = "from tqdm import tqdm\n\n\nclass Net:\n    pass\n\n\nclass Other:\n    pass\n\n\n"
HANDED = {
    "as it is": ("def bar(it):\n    return it\n", {"Net"}),
    "one of two": ("def bar(it, other=Other()):\n    return it if input() else other\n", {"Net", "Other"}),
    "given another value": ("def bar(it):\n    it = Other()\n    return it\n", {"Other"}),
    "that a nested function changes": (
        "def bar(it):\n    def change():\n        nonlocal it\n        it = Other()\n\n    change()\n    return it\n",
        {"Net", "Other"},
    ),
    "in a loop": (
        "def bar(it):\n    for it in [it, Other()]:\n        pass\n    return it\n",
        {"Net", "Other"},
    ),
    "decorated": ("def kept(f):\n    return f\n\n\n@kept\ndef bar(it):\n    return it\n", {"Net", "Other"}),
    "changed by what it is given to": (
        "def bar(it):\n    return make(it)\n\n\ndef make(it):\n    return Other()\n",
        {"Other"},
    ),
    "that calls itself": ("def bar(it):\n    return bar(it) if input() else it\n", {"Net", "Other"}),
}


@pytest.mark.parametrize("form", HANDED)
def test_a_call_returns_what_it_gives_itself(form: str) -> None:
    """Or what any gives, where it is not seen which."""
    text, names = HANDED[form]
    program = Program(
        project := Project.of({PATH: f"{HEAD}{text}\n\nbar(Other())\nfound = bar(Net())\nfound\n"}),
        project.files.values(),
    )
    use = next(
        it
        for it in program.nodes.values()
        if isinstance(it, ast.Name) and it.id == "found" and isinstance(it.ctx, ast.Load)
    )
    assert {program.scopes[it.cls.scope].node.name for it in program.values(use) if isinstance(it, Inst)} == names  # type: ignore[attr-defined]


def test_what_goes_through_an_argument_is_named_by_the_call() -> None:
    text = f"{HEAD}def bar(name, it):\n    return tqdm(it)\n\n\na, b = [1], [2]\nbar('a', a)\nfound = bar('b', it=b)\nfound\n"
    project = Project.of({PATH: text})
    program = Program(project, project.files.values())
    use = next(
        it
        for it in program.nodes.values()
        if isinstance(it, ast.Name) and it.id == "found" and isinstance(it.ctx, ast.Load)
    )
    (made,) = program.values(use)
    assert isinstance(made, Made) and made.name == "tqdm.tqdm"
    call = program.call(program.node(made.site))
    assert call is not None and [ast.unparse(it) for it in program.handed_on(call)] == ["b"]
