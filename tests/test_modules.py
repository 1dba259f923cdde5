"""Modules by names that several files have, or that lie where only a shell script says: what is followed is what runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command import run
from parity.harness import Lab

IMPORTS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
"""
DATA = """\
torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 4), torch.randint(0, 2, (32,)))
loader = DataLoader(data, batch_size=8)
net = nn.DataParallel(nn.Linear(4, 2))
optimizer = torch.optim.SGD(net.parameters(), 0.1)
"""
LOGGED = f"""\
{IMPORTS}
from utils.logging import init_log

log = init_log(".")
show = log.info
{DATA}
for epoch in range(2):
    for inputs, targets in loader:
        output = net(inputs)
        loss = nn.functional.cross_entropy(output, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        correct = (output.argmax(1) == targets).sum().item()
        show("loss %.4f, accuracy %.4f", loss.item(), correct / targets.size(0))
"""
OWN_LOG = """\
import logging
import os


def init_log(folder):
    logging.basicConfig(level=logging.INFO, filename=os.path.join(folder, "log.log"), filemode="w", format="%(message)s")
    return logging
"""
DRIVER = """\
from torch import nn


class Trainer:
    def __init__(self, model, loader, optimizer):
        self.model, self.loader, self.optimizer = model, loader, optimizer

    def run(self):
        for inputs, targets in self.loader:
            loss = nn.functional.cross_entropy(self.model(inputs), targets)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
"""
DRIVEN = f"""\
{IMPORTS}
from driver import Trainer

{DATA}
Trainer(net, loader, optimizer).run()
print("weights", " ".join(f"{{it:.5f}}" for it in net.module.weight.flatten().tolist()))
"""
DERIVED = "from driver import Trainer\n\n\nclass Own(Trainer):\n    def more(self):\n        return 1\n"
BY_OWN = DRIVEN.replace("from driver import Trainer", "from own import Own").replace("Trainer(", "Own(")


def write(files: dict[str, str], folder: Path) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.sample(every=5)
@pytest.mark.parametrize(
    ("module", "text"),
    {
        "the module": ("logging", OWN_LOG),
        "a part of it": ("logging", OWN_LOG.replace("import os", "from logging import handlers\nimport os")),
        "from the package": ("logging", "from . import names\n" + OWN_LOG),
        "another file in the package": ("logs", OWN_LOG),
    }.values(),
)
def test_a_file_of_a_package_does_not_hide_the_standard_library(
    lab: Lab, tmp_path: Path, module: str, text: str
) -> None:
    """``import logging`` in ``utils/logging.py``, or beside it, is of the standard library: what it returns writes."""
    script = LOGGED.replace("utils.logging", f"utils.{module}")
    files = {"train.py": script, "utils/__init__.py": "", "utils/names.py": "", "utils/logging.py": "x = 1\n"}
    write({**files, f"utils/{module}.py": text}, tmp_path)
    (tmp_path / "before.py").write_text(script)
    done = run("convert", "train.py", "--inplace", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ddp.sum(" in (tmp_path / "train.py").read_text()
    changed = (tmp_path / f"utils/{module}.py").read_text()
    assert "if ddp.is_main_process():\n        logging.basicConfig(" in changed
    if text != OWN_LOG:
        return  # it trains as the others do
    ran = (("before.py", 1), ("train.py", 2))
    before, after = (
        lab.run(tmp_path / it, launcher="plain", processes=n, recorded=False).ok() for it, n in ran
    )
    logged = [(it.folder / "log.log").read_text() for it in (before, after)]
    assert logged[0] == logged[1] and logged[0].count("accuracy") == 8


def test_a_trainer_on_pythonpath_is_found_and_trains(lab: Lab, tmp_path: Path) -> None:
    """Two folders have such a module: the shell script beside the program says which."""
    files = {"local/train.py": DRIVEN, "src/driver.py": DRIVER, "far/driver.py": "Trainer = print\n"}
    write({**files, "path.sh": 'export PYTHONPATH="./src:$PYTHONPATH"\n'}, tmp_path)
    env = {"PYTHONPATH": os.pathsep.join([str(tmp_path / "src"), os.environ.get("PYTHONPATH", "")])}
    before = lab.run(tmp_path / "local/train.py", launcher="plain", recorded=False, env=env).ok()
    done = run("convert", "local/train.py", "--inplace", cwd=tmp_path)
    assert done.returncode == 0 and b"sharded" in done.stderr, done.stderr
    after = lab.run(tmp_path / "local/train.py", launcher="plain", processes=2, recorded=False, env=env).ok()
    assert before.printed == after.printed and "weights" in before.printed


MISSING = b"may train it, but `driver` was not found; install it, or tell dp2ddp its folder by PYTHONPATH"
SEVERAL = b"may train it, but several folders have a `driver`; tell dp2ddp its folder by PYTHONPATH"


@pytest.mark.parametrize(
    ("files", "said"),
    {
        "nowhere": ({}, MISSING),
        "in several folders": ({"src/driver.py": DRIVER, "far/driver.py": DRIVER}, SEVERAL),
        "a base, nowhere": ({"local/train.py": BY_OWN, "local/own.py": DERIVED}, MISSING),
        "a base, in several folders": (
            {
                "local/train.py": BY_OWN,
                "local/own.py": DERIVED,
                "src/driver.py": DRIVER,
                "far/driver.py": DRIVER,
            },
            SEVERAL,
        ),
    }.values(),
)
def test_a_trainer_that_is_not_found_is_an_error(tmp_path: Path, files: dict[str, str], said: bytes) -> None:
    write({"local/train.py": DRIVEN, **files}, tmp_path)
    done = run("convert", "local/train.py", cwd=tmp_path)
    assert done.returncode == 3 and not done.stdout
    assert said in done.stderr and b"nothing to do" not in done.stderr


@pytest.mark.parametrize("mark", ["setup.py", "README.md"])
def test_what_was_not_found_is_where_pythonpath_says(
    mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the folder in which the command is given if it is of the same repository; else from where both are."""
    write({mark: "", "local/train.py": DRIVEN, "mine/driver.py": DRIVER, "far/driver.py": DRIVER}, tmp_path)
    assert run("convert", "train.py", cwd=tmp_path / "local").returncode == 3
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "mine"))
    cwd, name = (tmp_path / "local", "train.py") if mark == "setup.py" else (tmp_path, "local/train.py")
    assert run("convert", name, cwd=cwd).returncode == 0


def test_a_program_that_only_predicts_needs_no_module(tmp_path: Path) -> None:
    """Nothing is said of a model that something unknown gets where there is no optimizer."""
    script = DRIVEN.replace("optimizer = torch.optim.SGD(net.parameters(), 0.1)\n", "").replace(
        ", optimizer)", ")"
    )
    write({"test.py": script}, tmp_path)
    done = run("convert", "test.py", cwd=tmp_path)
    assert done.returncode == 0 and b"nothing to do" in done.stderr
