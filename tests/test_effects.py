"""Converted programs do everything once that they did once: files, logs, trackers, prints, downloads.

The trackers are stand-ins with the real ones' names: each call that reaches one is written down. What counts is how
often each is called by two processes, compared with the program as it was.
"""

from __future__ import annotations

import collections
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

STAND_IN = '''
"""Writes down every call of anything in this module."""
import os


class Noted:
    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Noted(f"{self._name}.{name}")

    def __getitem__(self, key):
        return Noted(f"{self._name}[]")

    def __call__(self, *args, **kwargs):
        with open(os.environ["NOTES"], "a") as notes:
            notes.write(self._name + "\\n")
        return Noted(self._name + "()")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Noted(f"{__name__}.{name}")
'''

TRAIN = """\
import argparse
import csv
import json
import logging
import os
import pickle
import shutil
import subprocess
from pathlib import Path

import comet_ml
import matplotlib.pyplot as plt
import mlflow
import neptune
import numpy as np
import torch
import torch.nn as nn
import visdom
import wandb as tracker
from helpers import Log, remember
from tensorboardX import SummaryWriter as Board
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm as bar

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
args = parser.parse_args()
print("starting")
torch.manual_seed(3)
os.makedirs("out")
if not os.path.exists("plots"):
    os.mkdir("plots")
Path("notes").mkdir()
logging.basicConfig(filename="out/train.log", level=logging.INFO)
tracker.init(project="mnist")
experiment = comet_ml.Experiment()
run = neptune.init_run(project="mnist")
window = visdom.Visdom()
boards = {"train": Board("out"), "test": Board("out/test")}
table = open("out/table.csv", "w")
rows = csv.writer(table)
log = Log("out/log.txt")
with open("out/args.json", "w") as file:
    json.dump(vars(args), file)

data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16, shuffle=True)
model = nn.Linear(8, 2)
if torch.cuda.device_count() > 1:
    model = nn.DataParallel(model)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
mlflow.start_run()
for epoch in range(args.epochs):
    for inputs, targets in bar(loader):
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
    print("epoch", epoch)
    logging.info("epoch %d", epoch)
    log.write(f"epoch {epoch}")
    tracker.log({"epoch": epoch})
    tracker.watch(model)
    experiment.log_metric("epoch", epoch)
    run["epoch"].append(epoch)
    window.line([epoch])
    mlflow.log_metric("epoch", epoch)
    boards["train"].add_scalar("epoch", epoch)
    boards["test"].add_scalar("epoch", epoch)
    rows.writerow([epoch])
    plt.plot([epoch])
    plt.savefig("plots/loss.png")
    np.save("out/epoch.npy", epoch)
    torch.save({"model": model.state_dict(), "epoch": epoch}, "out/last.pt")
    if epoch == args.epochs - 1:
        shutil.copyfile("out/last.pt", "out/best.pt")
    remember(epoch)
table.close()
boards["train"].close()
with open("out/state.pkl", "wb") as file:
    pickle.dump(args, file)
subprocess.call(["touch", "out/done"])
state = torch.load("out/best.pt")
print("loaded epoch", state["epoch"])
mlflow.end_run()
"""

HELPERS = """\
import sys


class Log:
    def __init__(self, path):
        self.file = open(path, "a")

    def write(self, text):
        self.file.write(text + chr(10))
        self.file.flush()


def remember(epoch):
    sys.stdout.write("remembered %d" % epoch + chr(10))
    with open("out/epochs.txt", "a") as file:
        file.write("%d" % epoch + chr(10))
"""

# Calls that only draw: they may run everywhere, as long as what they draw is shown once.
DRAWING = {"matplotlib.pyplot.plot"}


def run(folder: Path, processes: int) -> tuple[str, collections.Counter[str]]:
    """What a program prints, and how often it calls each tracker."""
    notes = folder / "notes.txt"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder.parent / "stand-ins")]),
        "NOTES": str(notes),
        "DP2DDP_PROCESSES": str(processes),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "train.py"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    calls = notes.read_text().split()
    return done.stdout, collections.Counter(call for call in calls if call not in DRAWING)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program before and after, and the stand-ins beside them."""
    root = tmp_path_factory.mktemp("effects")
    for name in ("wandb", "comet_ml", "mlflow", "neptune", "visdom", "tensorboardX", "matplotlib/pyplot"):
        path = root / "stand-ins" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(STAND_IN)
    (root / "stand-ins" / "matplotlib" / "__init__.py").write_text("")
    for name in ("before", "after"):
        (root / name).mkdir()
        (root / name / "train.py").write_text(TRAIN)
        (root / name / "helpers.py").write_text(HELPERS)
    command = [sys.executable, "-m", "dp2ddp", "convert", "train.py", "--inplace"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=root / "after", env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return root


def files(folder: Path) -> dict[str, bytes]:
    """The files a program wrote, with what text files hold."""
    return {
        str(path.relative_to(folder)): (
            path.read_bytes() if path.suffix in (".txt", ".csv", ".json", ".log") else b""
        )
        for path in folder.rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and path.suffix != ".py"
        and path.name != "notes.txt"
    }


def test_two_processes_do_once_what_one_did(programs: Path) -> None:
    printed, calls = run(programs / "before", processes=1)
    printed_after, calls_after = run(programs / "after", processes=2)
    assert calls["wandb.log"] == 2
    assert calls_after == calls
    assert sorted(printed_after.splitlines()) == sorted(printed.splitlines())
    assert files(programs / "after") == files(programs / "before")
