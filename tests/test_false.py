"""What is said of a program is so: nothing is named as what differs, draws batches or is missing that is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.convert import convert
from dp2ddp.source import Project

PATH = Path("/example/train.py")
RUNNER = """\
import json
import os
import os.path as osp
import torch
import torch.nn as nn
import torch.utils.data


class Runner:
    def __init__(self, **given):
        for name, value in given.items():
            setattr(self, name, value)
        self.model = nn.DataParallel(nn.Linear(4, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def save(self, filename):
        path = osp.join(self.work_dir, filename)
        torch.save(self.model.state_dict(), path)
        link = osp.join(self.work_dir, "latest.pth")
        if osp.lexists(link):
            os.remove(link)
        os.symlink(filename, link)
        with open(link + ".json", "w") as file:
            json.dump(self.meta, file)

    def train(self, loader):
        for x, y in loader:
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def run(self, loader, epochs):
        for epoch in range(epochs):
            self.call("train")(loader)
            self.save(f"{epoch}.pth")

    def call(self, mode):
        return getattr(self, mode)


def main():
    rows = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randint(0, 2, (32,)))
    loader = torch.utils.data.DataLoader(rows, batch_size=8, shuffle=True)
    given = {"loader": loader, "work_dir": "work", "meta": {"seed": 1}}
    Runner(**given).run(loader, 2)
MAIN"""


def said(text: str) -> list[str]:
    return [f"{it.message}; {it.help}" for it in convert(Project.of({PATH: text})).findings]


def test_paths_and_files_draw_no_batches() -> None:
    text = RUNNER.replace("MAIN", "\n\nif __name__ == '__main__':\n    main()\n")
    assert not [it for it in said(text) if "takes training batches" in it]


def test_a_main_that_nothing_calls_is_named() -> None:
    (found,) = [it for it in said(RUNNER.replace("MAIN", "")) if "not converted" in it]
    assert "`main()` is never called; call `main()`" in found


@pytest.mark.parametrize("imported", ["from train import main\n\nmain()\n", "import train\n\ntrain.main()\n"])
def test_a_main_that_another_script_calls_is_called(imported: str) -> None:
    found = convert(Project.of({PATH: RUNNER.replace("MAIN", ""), Path("/example/run.py"): imported}))
    assert not [it for it in found.findings if "never called" in it.message]


ADVERSARIAL = """\
import torch
import torch.nn as nn
import torch.utils.data
from torch.autograd import Variable

rows = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randint(0, 2, (32,)))
loader = torch.utils.data.DataLoader(rows, batch_size=8, shuffle=True)


def perturb(model, x):
    delta = Variable(torch.zeros_like(x).data, requires_grad=True)
    optimizer = torch.optim.SGD([delta], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        loss = -nn.functional.kl_div(model(x + delta).log_softmax(1), model(x).softmax(1), reduction="sum")
        loss.backward()
        delta.grad.div_(delta.grad.norm())
        optimizer.step()
        delta.data.add_(x)
        delta.data.clamp_(0, 1).sub_(x)
    return x + delta.data


def main():
    model = nn.DataParallel(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(perturb(model, x)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


main()
"""


def test_no_module_differs_and_nothing_comes_first_twice() -> None:
    found = said(ADVERSARIAL)
    assert not [it for it in found if "`torch.utils" in it]
    assert not [it for it in found if "first make it equal on all ranks first" in it]
