"""Databases and stores in files: made once, read by all ranks, written by the main process."""

from __future__ import annotations

import dbm
import shelve
import sqlite3
from pathlib import Path

import command
import pytest
from parity.harness import Lab

SHELF = """\
import os
import random
import shelve

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def create(path, count):
    generator = random.Random(3)
    with shelve.open(path, "n") as db:
        for i in range(count):
            db[f"x-{i}"] = [generator.random() for _ in range(4)]
        db["count"] = count


class Samples(Dataset):
    def __init__(self, path):
        self.db = shelve.open(path, FLAG)
        self.count = self.db["count"]

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        x = torch.tensor(self.db[f"x-{i}"])
        return x, x.sum()


def main():
    torch.manual_seed(0)
    if not os.listdir("data"):
        create("data/train", 60)
    loader = DataLoader(Samples("data/train"), batch_size=16, shuffle=True)
    net = nn.DataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with shelve.open("results") as results:
        for epoch in range(2):
            total = 0.0
            for x, y in loader:
                loss = nn.functional.mse_loss(net(x).squeeze(1), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item() * len(x)
            print("%d %.5f" % (epoch, total / len(loader.dataset)))
            results[str(epoch)] = round(total, 4)


if __name__ == "__main__":
    main()
"""
ROWS = """\
import os
import random
import sqlite3

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def build(path, count=60):
    generator = random.Random(3)
    connection = sqlite3.connect(path)
    cursor = connection.cursor()
    cursor.execute("CREATE TABLE samples (id INTEGER PRIMARY KEY, a REAL, b REAL)")
    for i in range(count):
        cursor.execute("INSERT INTO samples VALUES (?, ?, ?)", (i, generator.random(), generator.random()))
    connection.commit()
    connection.close()


class Samples(Dataset):
    def __init__(self, path):
        self.connection = sqlite3.connect(path)
        self.count = self.connection.execute("SELECT COUNT(*) FROM samples").fetchone()[0]

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        row = self.connection.execute("SELECT a, b FROM samples WHERE id = ?", (i,)).fetchone()
        return torch.tensor(row), torch.tensor(row[0] - row[1])


class Runs:
    def __init__(self, path):
        self.connection = sqlite3.connect(path)
        self.connection.execute("CREATE TABLE IF NOT EXISTS runs (epoch INTEGER, loss REAL)")

    def add(self, epoch, loss):
        self.connection.execute("INSERT INTO runs VALUES (?, ?)", (epoch, loss))
        self.connection.commit()


def main():
    torch.manual_seed(0)
    if not os.path.exists("samples.db"):
        build("samples.db")
    loader = DataLoader(Samples("samples.db"), batch_size=16, shuffle=True)
    net = nn.DataParallel(nn.Linear(2, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    runs = Runs("runs.db")
    for epoch in range(2):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(net(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(x)
        runs.add(epoch, round(total / len(loader.dataset), 5))
        print("%d %.5f" % (epoch, total / len(loader.dataset)))


if __name__ == "__main__":
    main()
"""


def shelved(place: Path) -> object:
    with shelve.open(str(place / "results"), "r") as results:
        return dict(results)


def rows(place: Path) -> object:
    connection = sqlite3.connect(place / "runs.db")
    try:
        return connection.execute("SELECT * FROM runs").fetchall()
    finally:
        connection.close()


CACHED = """\
import dbm
import pickle
import random

import torch
from torch import nn
from torch.utils.data import DataLoader


def load(path):
    with dbm.open(path, "c") as db:
        if b"meta" not in db:
            generator = random.Random(3)
            for i in range(60):
                db[str(i)] = pickle.dumps([generator.random() for _ in range(4)])
            db["meta"] = pickle.dumps({"count": 60})
        meta = pickle.loads(db[b"meta"])
        return [torch.tensor(pickle.loads(db[str(i)])) for i in range(meta["count"])]


def main():
    torch.manual_seed(0)
    loader = DataLoader(load("data/rows"), batch_size=16, shuffle=True)
    net = nn.DataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(2):
        for x in loader:
            loss = nn.functional.mse_loss(net(x).squeeze(1), x.sum(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print("%d %.5f" % (epoch, loss.item()))


if __name__ == "__main__":
    main()
"""


def filled(place: Path) -> list[bytes]:
    with dbm.open(str(place / "data" / "rows"), "r") as held:
        return list(held.keys())


PROGRAMS = {
    "a shelf": (SHELF.replace("FLAG", '"r"'), shelved),
    "a shelf that is only read, though it may be written": (SHELF.replace(", FLAG", ""), shelved),
    "a database": (ROWS, rows),
    "a store that is filled where it is empty, and read": (CACHED, lambda place: sorted(filled(place))),
}


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_store_is_made_once_and_written_by_one(lab: Lab, tmp_path: Path, name: str, processes: int) -> None:
    text, written = PROGRAMS[name]
    places = [tmp_path / it for it in ("before", "after")]
    for place in places:
        (place / "data").mkdir(parents=True)
        (place / "train.py").write_text(text)
    before, after = places
    done = command.run("convert", "train.py", "--inplace", "--exact", cwd=after)
    assert done.returncode == 0 and b" to do by hand" not in done.stderr, done.stderr.decode()
    one = lab.run(before / "train.py", folder=before, recorded=False).ok()
    several = lab.run(after / "train.py", processes=processes, folder=after, recorded=False).ok()
    assert several.printed == one.printed != ""
    assert written(after) == written(before)
