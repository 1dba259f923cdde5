"""Files that one stage of a program writes and a later one reads, converted and run by two and three processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import command
import pytest
from parity.harness import Lab, free_port

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
    "by what is no part of the project": (
        LINES.replace("lines.txt", "lines.toml").replace(
            '"1\\n", "2\\n"', '"[tool.black]\\n", "line-length = 9\\n"'
        ),
        READING.replace("import os\n", "import os\n\nimport black\n")
        .replace("lines.txt", "lines.toml")
        .replace("READ", "print(sorted(black.parse_pyproject_toml(FILE)))"),
    ),
    "by what is no part of the project, for what it does": (
        LINES.replace("lines.txt", "lines.toml").replace(
            '"1\\n", "2\\n"', '"[tool.black]\\n", "line-length = 9\\n"'
        ),
        READING.replace("import os\n", "import os\n\nimport black\n")
        .replace("lines.txt", "lines.toml")
        .replace("READ", "black.parse_pyproject_toml(FILE)"),
    ),
    "by pathlib": (
        'Path("lines.txt").write_text("1 2")',
        READING.replace("READ", "print(Path(FILE).read_text())"),
    ),
    "one that is not known, of its format": (
        'np.savez(args.name + "_1.npz", np.ones(2))',
        READING.replace(
            "READ", 'print(np.load(sorted(os.listdir("."), key=lambda it: "_1.np" not in it)[0])["arr_0"])'
        ),
    ),
    "before processes that do the rest": (
        SAVE,
        """\
import torch
import torch.multiprocessing as mp


def work(index, state):
    print(f"{index} {sorted(state)}\\n", end="")  # at once: others print, too


def use(args):
    state = torch.load(args.name + ".pth")
    mp.spawn(work, nprocs=2, args=(state,), join=True)
""",
    ),
}


FIRST = '    torch.save(["first"], args.name + ".pth")\n'
# What is written before, and again under a condition, where it is read: all must read what was written last.
AGAIN = {
    "where nothing tells that all come": """\
    if torch.initial_seed() >= 0:
        late()
        store(args.name + ".pth", ["again"])
        assert torch.load(args.name + ".pth") == ["again"]
""",
    "in a loop": """\
    for again in range(2):
        if torch.initial_seed() >= 0:
            late()
            torch.save([again], args.name + ".pth")
            assert torch.load(args.name + ".pth") == [again]
""",
    "under two conditions": """\
    if torch.initial_seed() >= 0:
        late()
        torch.save(["again"], args.name + ".pth")
        if args.name:
            assert torch.load(args.name + ".pth") == ["again"]
""",
    "where it is tried": """\
    try:
        late()
        torch.save(["again"], args.name + ".pth")
        assert torch.load(args.name + ".pth") == ["again"]
    except KeyError:
        pass
""",
}


def files(save: str, stage: str) -> dict[str, str]:
    train = TRAIN.replace("SAVE", save).replace(
        "import argparse\n", "import argparse\nfrom pathlib import Path\n\nimport numpy as np\n"
    )
    return {"late.py": LATE, "train.py": train, "stage.py": stage, "run.py": RUN}


def converted(folder: Path, texts: Mapping[str, str]) -> Path:
    for name, text in texts.items():
        (folder / name).write_text(text)
    done = command.run("convert", "run.py", "--inplace", cwd=folder)
    assert done.returncode == 0, done.stderr.decode()
    return folder / "run.py"


@pytest.mark.sample(processes=(2, 3), every=3)
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
    assert any(".barrier()" in it.read_text() for it in tmp_path.glob("*.py"))
    after = lab.run(script, processes=processes, folder=tmp_path, recorded=False).ok()
    # Ranks that somebody else has started all go on where the program starts its own.
    assert set(after.printed.splitlines()) == set(before.printed.splitlines())


@pytest.mark.sample(processes=(2, 3), every=3)
@pytest.mark.parametrize(("name", "processes"), [*((name, 2) for name in AGAIN), (next(iter(AGAIN)), 3)])
def test_a_barrier_above_a_block_settles_nothing_in_it(
    lab: Lab, tmp_path: Path, name: str, processes: int
) -> None:
    stage = "import torch\n\nfrom late import late\n\n\ndef store(path, value):\n    torch.save(value, path)\n\n\n"
    script = converted(tmp_path, files(SAVE, f"{stage}def use(args):\n{FIRST}{AGAIN[name]}"))
    lab.run(script, processes=processes, folder=tmp_path, recorded=False).ok()


FOLDS = """\
import json
import os

from late import late


def read(path):
    with open(path) as file:
        return json.load(file)


def write(value, path):
    late()
    with open(path, "w") as file:
        json.dump(value, file)


def folds(count):
    names = []
    for number in range(count):
        names.append(f"fold{number}.json")
        write({"number": number}, names[-1])
    return names


def each_fold(count):
    for number in range(count):
        write({"number": number}, f"fold{number}.json")
        yield f"fold{number}.json"


def has_written(path):
    write({"number": 0}, path)
    return True


"""
# What a statement writes before it begins, in its last round, or where it was tried, and then reads.
ROUNDS = {
    "a function that calls itself": """\
def run(path):
    config = read(path)
    if "folds" in config:
        for name in folds(config["folds"]):
            run(name)
    else:
        print(config["number"])


def use(args):
    write({"folds": 3}, "config.json")
    run("config.json")
""",
    "a function that calls itself before it writes": """\
def run(path, depth, number):
    assert read(path) == number
    for _ in range(2 * depth):
        number = run(path, depth - 1, number)
    write(number + 1, path)
    return number + 1


def use(args):
    write(0, "count.json")
    print(run("count.json", 1, 0))
""",
    "a loop over what is written": """\
def use(args):
    for name in folds(2):
        print(read(name))
""",
    "a loop over what is written in between": """\
def use(args):
    for name in each_fold(2):
        print(read(name))
""",
    "a loop over a list of what is written": """\
def use(args):
    for name, _ in [(name, write(1, name)) for name in ("one.json", "two.json")]:
        print(read(name))
""",
    "a function that reads first and writes last": """\
def step():
    count = read("count.json")
    write(count + 1, "count.json")
    return count


def use(args):
    write(0, "count.json")
    for number in range(3):
        assert step() == number
""",
    "a condition that writes": """\
def use(args):
    if has_written("one.json"):
        print(read("one.json"))
""",
    "a loop as long as it writes": """\
def use(args):
    count = 0
    while has_written("one.json") and count < 2:
        print(read("one.json"))
        count += 1
""",
    "where it was tried": """\
def use(args):
    try:
        write(1, "one.json")
    finally:
        print(read("one.json"))
    try:
        write(2, "two.json")
    except OSError:
        pass
    else:
        print(read("two.json"))
""",
    "after the last round": """\
def use(args):
    for number in range(2):
        write(number, "one.json")
    else:
        print(read("one.json"))
""",
}


@pytest.mark.sample(processes=(2, 3), every=3)
@pytest.mark.parametrize(
    ("name", "processes"), [*((name, 2) for name in ROUNDS), ("a function that calls itself", 3)]
)
def test_all_wait_for_what_a_statement_writes_first(
    lab: Lab, tmp_path: Path, name: str, processes: int
) -> None:
    script = converted(tmp_path, files("pass", FOLDS + ROUNDS[name]))
    lab.run(script, processes=processes, folder=tmp_path, recorded=False).ok()


def test_all_wait_once_for_what_they_read_twice(tmp_path: Path) -> None:
    stage = STAGE + "\n\ndef again(args):\n    use(args)\n"
    texts = files(SAVE, stage)
    texts["run.py"] = RUN.replace("import use", "import again, use").replace(
        "    use(args)", "    for _ in range(2):\n        again(args)\n        use(args)\n        train(args)"
    )
    assert converted(tmp_path, texts).read_text().count("ddp.barrier()") == 1


@pytest.mark.parametrize("given", [[], ["--use"]])
def test_all_wait_only_where_an_option_has_them_read(lab: Lab, tmp_path: Path, given: list[str]) -> None:
    texts = files(SAVE, STAGE)
    texts["run.py"] = RUN.replace("    use(args)", "    if args.use:\n        use(args)")
    texts["train.py"] = texts["train.py"].replace(
        "    return parser", '    parser.add_argument("--use", action="store_true")\n    return parser'
    )
    script = converted(tmp_path, texts)
    assert "    if args.use:\n        ddp.barrier()\n        use(args)" in script.read_text()
    lab.run(script, given, processes=2, folder=tmp_path, recorded=False).ok()


@pytest.mark.parametrize(
    ("save", "read"),
    {
        "another file": (LINES, 'open("other.txt").read()'),
        "what is told of another file": (
            LINES,
            "max('other.txt', __import__('black').format_str(FILE + 's'))",
        ),
        "a text that names it": (LINES, "'written: {}'.format('lines.txt'), 'lines.txt'.upper()"),
        "another one of its kind": (LINES, 'open(args.name + ".txt").read()'),
        "one that is not known": (LINES, "open(args.name).read()"),
        "one that is not known of another format": (SAVE, "np.load(args.name)"),
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


# A stage that reads what was written only under conditions that a call's arguments answer.
ASKED = """\
import torch
from torch import nn


def use(args, load=False, model=None, *more, again=0):
    if load or again == 1:
        print(torch.load(args.name + ".pth"))
    if not more and model is not None:
        return
    if model is None:
        print(torch.load(args.name + ".pth"))


def through(args, model=None):
    use(args, model=model)


def later(args):
    model = nn.Linear(4, 2)
    if args.name:
        model = nn.DataParallel(model.to("cpu"))
    use(args, model=model)
    through(args, model)
"""


@pytest.mark.parametrize(
    ("use", "waits"),
    {
        "a model": ("use(args, False, nn.Linear(1, 1))", False),
        "a model by name": ("use(args, model=nn.Linear(1, 1))", False),
        "a model that is wrapped": ("later(args)", False),
        "no model": ("use(args)", True),
        "perhaps a model": ("use(args, model=max(None, nn.Linear(1, 1)))", True),
        "that it is read": ("use(args, load=True, model=nn.Linear(1, 1))", True),
        "another number": ("use(args, model=nn.Linear(1, 1), again=2)", False),
        "the number": ("use(args, model=nn.Linear(1, 1), again=1)", True),
        "what is not seen": ("use(*[args], model=nn.Linear(1, 1))", True),
    }.values(),
)
def test_no_call_waits_that_does_not_read(tmp_path: Path, use: str, waits: bool) -> None:
    texts = files(SAVE, ASKED)
    texts["run.py"] = RUN.replace("    use(args)", f"    {use}").replace(
        "import use", "import later, use\nfrom torch import nn"
    )
    script = converted(tmp_path, texts)
    assert ("ddp.barrier()" in script.read_text()) == waits


# The other ranks are late wherever they read, so that they find something else if rank 0 does not wait.
SLOW = """\
import os
import time


def slow():
    time.sleep(0.5 * (os.environ.get("LAB_RANK", "0") != "0"))
"""
CHANGING = """\
import glob
import json
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch

from slow import slow


def store(path, value):
    torch.save(value, path)


def use(args):
"""
ROWS = 'np.savetxt("rows.txt", np.ones(3))'
HISTORY = 'with open("history.json", "w") as file:\n        json.dump([0], file)'
PARTS = 'os.makedirs("parts")\n    for part in range(3):\n        torch.save(part, f"parts/{part}.pt")'
# What is written first, and what changes it where all have read it; it prints what every rank must have read.
CHANGED = {
    "written again": (
        ROWS,
        """\
    for epoch in range(3):
        slow()
        rows = np.loadtxt("rows.txt")
        print(rows)
        rows = rows + 1
        np.savetxt("rows.txt", rows)
    assert rows[0] == 4, rows
""",
    ),
    "opened again": (
        HISTORY,
        """\
    path = args.name if args.name.endswith(".json") else "history.json"
    for epoch in range(3):
        slow()
        with open(path) as file:
            history = json.load(file)
        history.append(epoch)
        with open(path, "w") as file:
            json.dump(history, file)
    assert history == [0, 0, 1, 2], history
""",
    ),
    "by another function": (
        'torch.save(1, "count.pt")',
        """\
    for epoch in range(3):
        slow()
        count = torch.load("count.pt")
        store("count.pt", count + 1)
    assert count == 3, count
""",
    ),
    "removed one by one": (
        PARTS,
        """\
    total = 0
    for part in range(3):
        slow()
        total += torch.load(f"parts/{part}.pt")
        os.remove(f"parts/{part}.pt")
    assert total == 3, total
""",
    ),
    "removed with its folder": (
        PARTS,
        """\
    folder = Path("parts")
    slow()
    total = sum(torch.load(folder / f"{part}.pt") for part in range(3))
    assert total == 3, total
    if folder.exists():
        shutil.rmtree(folder)
""",
    ),
    "moved over": (
        ROWS,
        """\
    slow()
    rows = np.loadtxt("rows.txt")
    np.savetxt("new.txt", rows + 1)
    os.replace("new.txt", "rows.txt")
    assert rows[0] == 1, rows
""",
    ),
    "by a command": (
        ROWS,
        """\
    slow()
    rows = np.loadtxt("rows.txt")
    os.system("rm -f rows.txt")
    assert rows[0] == 1, rows
""",
    ),
    "by a command, with its folder": (
        PARTS,
        """\
    folder = "parts"
    slow()
    total = sum(torch.load(os.path.join(folder, f"{part}.pt")) for part in range(3))
    assert total == 3, total
    os.system(f"rm -rf {folder}")
""",
    ),
    "by pathlib": (
        ROWS,
        """\
    slow()
    assert Path("rows.txt").read_text().startswith("1.0")
    Path("rows.txt").unlink()
""",
    ),
    "copied to a place of its own": (
        PARTS,
        """\
    folder = "parts"
    with tempfile.TemporaryDirectory() as own:
        slow()
        shutil.copy(os.path.join(folder, "2.pt"), own)
        assert torch.load(os.path.join(own, "2.pt")) == 2
    shutil.rmtree(folder)
""",
    ),
    "copied as a folder": (
        PARTS,
        """\
    with tempfile.TemporaryDirectory() as own:
        slow()
        shutil.copytree("parts", os.path.join(own, "parts"))
        assert len(os.listdir(os.path.join(own, "parts"))) == 3
    os.remove("parts/1.pt")
""",
    ),
    "listed": (
        PARTS,
        """\
    folder = "parts"
    slow()
    total = sum(torch.load(os.path.join(folder, it)) for it in os.listdir(folder))
    assert total == 3, total
    os.unlink(os.path.join(folder, "2.pt"))
""",
    ),
    "only listed": (
        PARTS,
        """\
    slow()
    count = len(glob.glob("parts/*.pt"))
    assert count == 3, count
    shutil.move("parts/2.pt", "others.pt")
""",
    ),
    "all in a folder": (
        PARTS,
        """\
    folder = "parts"
    slow()
    last = torch.load(os.path.join(folder, "2.pt"))
    for name in os.listdir(folder):
        os.remove(os.path.join(folder, name))
    assert last == 2
""",
    ),
    "all of a pattern": (
        PARTS,
        """\
    slow()
    last = torch.load("parts/2.pt")
    for name in glob.glob("parts/*"):
        os.remove(name)
    assert last == 2
""",
    ),
    "moved by pathlib": (
        PARTS,
        """\
    folder = "parts"
    slow()
    last = torch.load(os.path.join(folder, "2.pt"))
    Path(folder).rename("others")
    assert last == 2
""",
    ),
}


@pytest.mark.sample(processes=(2, 3), every=3)
@pytest.mark.parametrize(("name", "processes"), [*((name, 2) for name in CHANGED), ("written again", 3)])
def test_what_all_read_is_changed_when_all_have_read_it(
    lab: Lab, tmp_path: Path, name: str, processes: int
) -> None:
    save, use = CHANGED[name]
    texts = files(save, CHANGING + use)
    texts["train.py"] = "import json\nimport os\n\nimport numpy as np\n" + texts["train.py"]
    script = converted(tmp_path, {**texts, "slow.py": SLOW})
    lab.run(script, processes=processes, folder=tmp_path, recorded=False).ok()


# What one function writes and another reads, by paths that each puts together for itself. Rank 0 is late where it writes,
# the others where they read: nobody may find too little, or what is there no longer.
SCRATCH = """\
import glob
import json
import os
import shutil
import time

import numpy as np
from PIL import Image

RANK = os.environ.get("LAB_RANK", "0")


def late(slow):
    time.sleep(0.4 * ((RANK == "0") == slow))


def pause(path):
    late(True)
    return path


"""
FOLDERS_OF_TEXTS = """\
class Scores:
    def __init__(self, folder=".scores"):
        self.folder = folder

    def write(self, name, value, folder):
        late(True)
        file = open(os.path.join(folder, "found/" + name + ".txt"), "w")
        file.write(str(value))
        file.close()

    def end(self, round):
        for name in ("found", "truth"):
            if not os.path.exists(os.path.join(self.folder, name)):
                os.makedirs(os.path.join(self.folder, name))
        for index in range(2):
            self.write(str(index), index + round, self.folder)
        SCORE
        shutil.rmtree(self.folder)
        return score


class Listed:
    def __init__(self, path):
        with open(path) as file:
            self.values = json.load(file)


def lines(path):
    late(False)
    with open(path) as file:
        return file.read()


def collect(folder):
    return [float(lines(os.path.join(folder, it))) for it in os.listdir(folder)]


def score_all(path):
    found, listed = os.path.join(path, "found"), os.path.join(path, "listed.json")
    values = collect(found)
    with open(pause(listed), "w") as file:
        json.dump(values, file)
    late(False)
    return sum(Listed(listed).values)


def fail(path):
    score_all(path)
    raise ValueError(path)


def use(args):
    scores = Scores()
    assert [scores.end(round) for round in range(2)] == [1, 3]
"""
PICTURES = """\
def by_format(path, name):
    path = os.path.join(path, name)
    for index in range(3):
        assert np.asarray(Image.open(os.path.join(path, "{:03d}_input.png".format(index)))).mean() == index


def by_value(path, name):
    for index in range(3):
        assert np.asarray(Image.open(f"{path}/{name}/{index}_value.png")).mean() == index


def by_sum(path, name):
    for index in range(3):
        assert np.asarray(Image.open(path + "/" + name + "/" + str(index) + "_sum.png")).mean() == index


def by_percent(path, name):
    for index in range(3):
        assert np.asarray(Image.open("%s/%s/%d_percent.png" % (path, name, index))).mean() == index


def use(args):
    kind = "png" if args.name else "tiff"
    for name in ("a", "b"):
        folder = os.path.join("shown", name)
        os.makedirs(folder, exist_ok=True)
        for index in range(3):
            picture = Image.fromarray(np.full((8, 8), index, np.uint8))
            path = os.path.join(folder, WRITTEN)
            picture.save(pause(path))
        READ(path=os.path.dirname(folder), name=name)
"""
SCRATCHES = {
    "a folder that is given by name": FOLDERS_OF_TEXTS.replace(
        "SCORE", "score = score_all(path=self.folder)"
    ),
    "where an exception leads": FOLDERS_OF_TEXTS.replace(
        "SCORE",
        """\
try:
            score = fail(path=self.folder)
        except Exception:
            score = score_all(path=self.folder)""",
    ),
    "used up one by one": """\
def use(args):
    folder = ".files"
    if not os.path.exists(folder):
        os.makedirs(folder)
    names = ["a", "b"]
    for name in names:
        with open(pause(folder) + "/" + name + ".json", "w") as file:
            json.dump({"used": False}, file)
    hits = 0
    for name in names * 2:
        path = folder + "/" + name + ".json"
        late(False)
        state = json.load(open(path))
        if not state["used"]:
            hits += 1
            state["used"] = True
            with open(pause(path), "w") as file:
                json.dump(state, file)
    late(False)
    shutil.rmtree(folder)
    assert hits == 2
""",
    "pictures of files": """\
def save(path, rows):
    try:
        os.makedirs(path)
    except OSError:
        pass
    for index in range(rows):
        file = open(pause(path) + "row_" + "%03d.txt" % index, "w")
        file.write(str(index))
        file.close()


def find(path):
    return glob.glob(path + "/*.txt")


def draw(value, path=None):
    picture = Image.fromarray(np.full((8, 8), value, np.uint8))
    if path is not None:
        picture.save(pause(path))


def show(path, most=9):
    total = 0
    for file in find(path)[0:most]:
        draw(np.loadtxt(file), path=file[:-4] + ".png")
        path = file[:-4] + ".png"
        total += np.asarray(Image.open(path)).mean()
    return total


def chain(path):
    files, paths = sorted(find(path)), []
    for index in range(len(files)):
        name = files[index][:-4] + "_.png"
        draw(np.loadtxt(files[index]), name)
        paths.append(name)
    return sum(np.asarray(Image.open(it)).mean() for it in paths)


def use(args):
    for round in range(2):
        save(f"out/{round}/", 3)
        assert show(f"out/{round}/") == chain(f"out/{round}/") == 3
""",
    **{
        f"pictures whose ending is a value: {written}": PICTURES.replace("WRITTEN", written).replace(
            "READ", read
        )
        for written, read in {
            '"{:03d}_input.{}".format(index, kind)': "by_format",
            'f"{index}_value.{kind}"': "by_value",
            'str(index) + "_sum." + args.name.replace("out", "png")': "by_sum",
            '"%d_percent.%s" % (index, args.name and "png")': "by_percent",
        }.items()
    },
    "made where it is asked for": """\
def made(folder):
    path = os.path.join(folder, "rows.npz")
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        np.savez_compressed(pause(path), rows=np.ones(3))
    return path


def rows(folder):
    with np.load(made(folder)) as file:
        return file["rows"]


def use(args):
    import train

    assert rows("data").sum() == 3
    for round in range(2):
        train.train(args)
        assert rows("more").sum() == 3
""",
}


@pytest.mark.sample("a folder that is given by name", "used up")
@pytest.mark.parametrize(
    ("name", "processes"), [*((name, 2) for name in SCRATCHES), ("pictures of files", 3)]
)
def test_all_wait_for_scratch_files(lab: Lab, tmp_path: Path, name: str, processes: int) -> None:
    texts = {**files("pass", SCRATCH + SCRATCHES[name]), "late.py": LATE.replace("0.7", "0.1")}
    place = lab.place("before")
    for file, text in texts.items():
        (place / file).write_text(text)
    lab.run(place / "run.py", folder=place, recorded=False).ok()
    script = converted(tmp_path, texts)
    lab.run(script, processes=processes, folder=tmp_path, recorded=False).ok()


# What is saved in the end of the last epoch, after the last step in which all wait, and found by what lists its folder.
EPOCHS = """\
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from late import late


def fit(model, loader, optimizer):
    for inputs, targets in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()


def train(args):
    torch.manual_seed(0)
    os.makedirs("out", exist_ok=True)
    model = nn.DataParallel(nn.Linear(4, 2))
    loader = DataLoader(TensorDataset(torch.randn(24, 4), torch.randn(24, 2)), batch_size=6, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        fit(model, loader, optimizer)
        late()
        torch.save({"epoch": epoch}, f"out/epoch{epoch}.pt")
    AFTER


def options():
    return None
"""
LISTINGS = """import glob
import os
from pathlib import Path

import torch


def use(args):
    PATH
    assert torch.load(path)["epoch"] == 1, path
"""
NEWEST = {
    "a pattern": 'path = sorted(glob.glob("out/epoch*.pt"))[-1]',
    "a pattern, one by one": 'path = max(glob.iglob("out/epoch*.pt"))',
    "by time": 'path = max(glob.glob("out/*.pt"), key=os.path.getmtime)',
    "a list": 'path = os.path.join("out", sorted(os.listdir("out"))[-1])',
    "a list that is kept": 'names = os.listdir("out")\n    names.sort()\n    path = f"out/{names[-1]}"',
    "entries": 'path = max(os.scandir("out"), key=lambda it: it.name).path',
    "entries of a block": 'with os.scandir("out") as entries:\n        path = max(it.path for it in entries)',
    "a folder": 'path = max(Path("out").glob("*.pt"))',
    "a folder and what is in it": 'path = sorted(Path("out").rglob("epoch*"))[-1]',
    "a folder's entries": 'folder = Path("out")\n    path = max(folder.iterdir())',
    "a walk": 'path = max(os.path.join(at, it) for at, _, names in os.walk("out") for it in names)',
    "a walk's first step": 'root, _, names = next(os.walk("out"))\n    path = os.path.join(root, max(names))',
}


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", NEWEST)
def test_all_wait_before_they_list_what_is_written(lab: Lab, tmp_path: Path, name: str) -> None:
    stage = LISTINGS.replace("PATH", NEWEST[name])
    texts = {"late.py": LATE, "train.py": EPOCHS.replace("AFTER", ""), "stage.py": stage, "run.py": RUN}
    script = converted(tmp_path, texts)
    assert script.read_text().count("ddp.barrier()") == 1  # and not again where it is read
    assert not any("barrier" in (tmp_path / it).read_text() for it in ("train.py", "stage.py"))
    lab.run(script, processes=2, folder=tmp_path, recorded=False).ok()


# A folder of runs, each with one of its own: the newest is gone on from, and must be the same in all processes, whoever
# comes first. It is listed after one process has made it, and before that makes the next run's folder in it.
RUNS = """\
import glob
import os
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

RANK = os.environ.get("LAB_RANK", "0")


def late(slow):
    time.sleep(0.7 * ((RANK == "0") == slow))


def newest(folder):
    late(False)
    LIST


torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(24, 4), torch.randn(24, 2)), batch_size=6, shuffle=True)
net = nn.Linear(4, 2)
root = "runs"
if not os.path.exists(root):
    late(True)
    os.mkdir(root)
resume = newest(root)
epoch = torch.load(resume)["epoch"] + 1 if resume else 0
save_dir = os.path.join(root, f"run{epoch}")
MAKE
model = nn.DataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs, targets in loader:
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()
torch.save({"epoch": epoch}, os.path.join(save_dir, "model.pt"))
print(epoch, resume)
"""
MAKE = "if not os.path.exists(save_dir):\n    os.makedirs(save_dir)"
RESUMED = {
    "a list": (
        'runs = sorted(os.listdir(folder))\n    return os.path.join(folder, runs[-1], "model.pt") if runs else None',
        MAKE,
    ),
    "a pattern": (
        'runs = glob.glob(folder + "/run*")\n    return max(runs) + "/model.pt" if runs else None',
        "os.makedirs(save_dir, exist_ok=True)",
    ),
    "entries": (
        'runs = [it.path for it in os.scandir(folder)]\n    return max(runs) + "/model.pt" if runs else None',
        "os.mkdir(save_dir)",
    ),
    "a folder": (
        'runs = sorted(Path(folder).iterdir())\n    return runs[-1] / "model.pt" if runs else None',
        "Path(save_dir).mkdir(parents=True)",
    ),
    "a walk": (
        "_, runs, _ = next(os.walk(folder))\n"
        '    return os.path.join(folder, max(runs), "model.pt") if runs else None',
        "from torch.utils.tensorboard import SummaryWriter\n\n"
        "writer = SummaryWriter(log_dir=save_dir)\nwriter.close()",
    ),
}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", RESUMED)
def test_all_list_a_folder_as_it_is_before_the_next_one_is_made_in_it(
    lab: Lab, tmp_path: Path, name: str
) -> None:
    listing, make = RESUMED[name]
    text = RUNS.replace("LIST", listing).replace("MAKE", make)
    script = converted(tmp_path, {"run.py": text})
    assert script.read_text().count("ddp.barrier()") == (
        1 if name == "a pattern" else 2
    )  # finds none without a folder
    for said in ("0 None", "1 runs/run0/model.pt"):
        assert lab.run(script, processes=2, folder=tmp_path, recorded=False).ok().printed == f"{said}\n"


@pytest.mark.parametrize("name", NEWEST)
def test_the_wait_stands_above_the_list_in_the_same_function(tmp_path: Path, name: str) -> None:
    read = f"{NEWEST[name]}\n    print(torch.load(path))\n\n\nimport glob\nfrom pathlib import Path"
    texts = {"late.py": LATE, "run.py": EPOCHS.replace("AFTER", read) + "\n\ntrain(options())\n"}
    lines = converted(tmp_path, texts).read_text().splitlines()
    (place,) = (number for number, line in enumerate(lines) if "ddp.barrier()" in line)
    listing = next(
        it for it in NEWEST[name].splitlines() if "out" in it and "folder =" not in it or "iterdir" in it
    )
    assert lines[place + 1].strip() == listing.strip()


@pytest.mark.parametrize(
    "use",
    {
        "other folders": """\
    root = args.name
    os.makedirs(os.path.join(root, "logs"), exist_ok=True)
    for path in os.listdir(os.path.join(root, "rows")):
        print(np.load(os.path.join(root, "rows", path)))
    with open(os.path.join(root, "logs", "log.txt"), "w") as file:
        file.write("1")
    print(os.listdir(os.path.join(root, "rows")))
""",
        "other endings": """\
    with open(os.path.join(args.name, "log.txt"), "w") as file:
        file.write("1")
    print(np.loadtxt(os.path.join(args.name, "rows.csv")), glob.glob(args.name + "/*.png"))
""",
        "a program's own files": """\
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "logs", args.name), "w") as file:
        file.write("1")
    print(open(os.path.join(here, args.name)).read())
""",
        "a log": """\
    for name in ("a", "b"):
        with open(os.path.join("logs", args.name), "a") as file:
            file.write("1")
        print(open(os.path.join("logs", name)).read())
""",
    }.values(),
)
def test_nobody_waits_for_files_of_other_kinds_and_folders(tmp_path: Path, use: str) -> None:
    converted(tmp_path, files("pass", f"{SCRATCH}def use(args):\n{use}"))
    assert not any("barrier" in it.read_text() for it in tmp_path.glob("*.py"))


@pytest.mark.parametrize(
    "use",
    {
        "another file": '    print(np.loadtxt("rows.txt"))\n    np.savetxt("others.txt", np.ones(3))\n',
        "the same, in which something is put much later": '    print(open("log.txt").read())\n    args.log = open("log.txt", "a")\n',
        "where it is not there": "    try:\n        return torch.load('rows.pt')\n    except OSError:\n        pass\n"
        "    torch.save(1, 'rows.pt')\n",
        "listed for nobody else": '    old = glob.glob("parts/*.pt")\n    for name in old:\n'
        "        if os.path.exists(name):\n            os.remove(name)\n",
        "in a folder beside": '    print(os.listdir("out/rows"))\n    for name in glob.glob("out/best_*.pt"):\n'
        "        os.remove(name)\n",
        "in another folder of the same": "    def read(folder):\n        return [open(os.path.join(folder, it)).read() for it in os.listdir(folder)]\n\n"
        "    print(read('given'), read(os.path.join(args.name, 'rows')))\n"
        "    for name in glob.glob(args.name + '/best_*.pt'):\n        os.remove(name)\n",
        "on the main process only": '    json.dump([*json.load(open("history.json")), 1], open("history.json", "w"))\n',
    }.values(),
)
def test_what_nobody_else_reads_is_changed_at_once(tmp_path: Path, use: str) -> None:
    converted(tmp_path, {**files("pass", CHANGING + use), "slow.py": SLOW})
    assert not any("barrier" in it.read_text() for it in tmp_path.glob("*.py"))


# A stand-in for torch's compiler that takes its time, and says when it begins and when it ends.
COMPILER = """\
import os
import time

import torch.utils.cpp_extension


def build(name, sources, **settings):
    for part in ("begins", "ends"):
        with open("built.txt", "a") as built:
            built.write(f"{os.environ.get('LAB_RANK', '0')} {part}\\n")
        time.sleep(0.4)
    return torch


for name in ("load", "load_inline"):
    setattr(torch.utils.cpp_extension, name, build)
"""
# Where a project builds what its programs use.
BUILT = {
    "where it is imported": """\
from torch.utils.cpp_extension import load

extension = load(name="extension", sources=["extension.cpp"])
""",
    "where it is not installed": """\
import torch.utils.cpp_extension

try:
    import not_installed as extension
except ImportError:
    extension = torch.utils.cpp_extension.load(name="extension", sources=["extension.cpp"])
""",
    "by a function": """\
from torch.utils import cpp_extension


def built(name):
    return cpp_extension.load_inline(name=name, cpp_sources=[], sources=[])


extension = built("extension")
""",
}


@pytest.mark.sample(processes=(2, 3), every=3)
@pytest.mark.parametrize(("name", "processes"), [*((name, 2) for name in BUILT), ("by a function", 3)])
def test_an_extension_is_built_by_one_process_first(
    lab: Lab, tmp_path: Path, name: str, processes: int
) -> None:
    """All load it then, from where it was built: torch's own lock keeps them apart."""
    texts = files("pass", "from built import extension\n\n\ndef use(args):\n    assert extension\n")
    script = converted(tmp_path, texts | {"built.py": BUILT[name]})
    text = script.read_text()
    assert text.index("ddp.init()") < text.index("from stage import use")
    (tmp_path / "compiler.py").write_text(COMPILER)
    script.write_text(f"import compiler\n{text}")
    lab.run(script, processes=processes, folder=tmp_path, recorded=False).ok()
    lines = (tmp_path / "built.txt").read_text().splitlines()
    assert lines[:2] == ["0 begins", "0 ends"] and len(lines) == 2 * processes


def test_an_extension_that_a_model_builds_is_not_waited_for(tmp_path: Path) -> None:
    """Where only one process uses it, the others would never come."""
    stage = """\
from torch import nn
from torch.utils.cpp_extension import load


class Net(nn.Module):
    def forward(self, inputs):
        return load(name="extension", sources=["extension.cpp"]).scaled(inputs)


def use(args):
    print(Net()(args))
"""
    converted(tmp_path, files("pass", stage))
    assert not any("main_process_first" in it.read_text() for it in tmp_path.glob("*.py"))


HEADS = """\
import os
import shutil
import tarfile

import torch
from torch.utils.data import TensorDataset

from late import late

"""
EXTRACT = """\
def extract(path):
    with tarfile.open(path, "r") as archive:
        late()
        archive.extractall()


"""
NAMES = "    names = os.listdir('files')\n    assert len(names) == 40, len(names)\n    return len(names)\n"
UNPACKED = {
    "under a condition in what calls it": EXTRACT
    + "def use():\n    if not os.path.isdir('files'):\n        extract('files.tar')\n"
    + NAMES,
    "after a return": "def extract():\n    if os.path.isdir('files'):\n        return\n    late()\n"
    "    shutil.unpack_archive('files.tar')\n\n\ndef use():\n    extract()\n" + NAMES,
    "always": EXTRACT + "def use():\n    extract('files.tar')\n" + NAMES,
    "always, by one call": "def use():\n    shutil.unpack_archive('files.tar')\n" + NAMES,
}
USE = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from stage import use

if __name__ == "__main__":
    torch.manual_seed(0)
    rows = use()
    data = TensorDataset(torch.randn(24, 4), torch.randn(24, 2))
    model = nn.DataParallel(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in DataLoader(data, batch_size=6, shuffle=True):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    print(rows)
"""


def archive(folder: Path) -> None:
    """Write an archive of 40 files into a folder."""
    with tarfile.open(folder / "files.tar", "w") as tar:
        for index in range(40):
            tar.addfile(tarfile.TarInfo(f"files/{index}.txt"))


@pytest.mark.parametrize(
    ("name", "processes"), [*((name, 2) for name in UNPACKED), ("under a condition in what calls it", 3)]
)
def test_what_is_unpacked_is_unpacked_once_and_waited_for(
    lab: Lab, tmp_path: Path, name: str, processes: int
) -> None:
    archive(tmp_path)
    script = converted(tmp_path, {"late.py": LATE, "stage.py": HEADS + UNPACKED[name], "run.py": USE})
    done = lab.run(script, processes=processes, folder=tmp_path, recorded=False).ok()
    assert set(done.printed.splitlines()) == {"40"}


@pytest.mark.parametrize("mode", ["r", "r:*", "r:gz", "r:xz", "r|xz"])
def test_an_archive_that_is_opened_for_reading_is_all_processes(tmp_path: Path, mode: str) -> None:
    stage = f"import tarfile\n\n\ndef use():\n    return len(tarfile.open('rows', '{mode}').getnames())\n"
    converted(tmp_path, {"stage.py": stage, "run.py": USE})
    assert (tmp_path / "stage.py").read_text() == stage


POINTS = """\
import os

import torch
from torch.utils.data import Dataset


def fetch(folder):
    if not os.path.exists(folder):
        os.mkdir(folder)
    if not os.path.exists(os.path.join(folder, "points.pt")):
        os.system(f"cp files.tar {folder}/points.pt")


class Points(Dataset):
    def __init__(self):
        fetch("data")
        self.size = os.path.getsize("data/points.pt")

    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.ones(4), torch.ones(2)
"""


def on_two_machines(place: Path, texts: Mapping[str, str]) -> None:
    """Convert and run a program in the folders "0" and "1": on machines that share no disk, with two processes each."""
    jobs = []
    meeting = {"DP2DDP_NUM_MACHINES": "2", "DP2DDP_DIST_URL": f"tcp://127.0.0.1:{free_port()}"}
    for machine in ("0", "1"):
        folder = place / machine
        folder.mkdir(exist_ok=True)
        archive(folder)
        script = converted(folder, texts)
        env = {**os.environ, **meeting, "DP2DDP_MACHINE_RANK": machine, "DP2DDP_PROCESSES": "2"}
        jobs.append(subprocess.Popen([sys.executable, script], cwd=folder, env=env))
    try:
        assert [job.wait(90) for job in jobs] == [0, 0]
    finally:
        for job in jobs:
            job.kill()


def test_each_machine_fetches_what_a_data_set_needs(tmp_path: Path) -> None:
    """Two machines that share no disk: on each, the first of its processes does it."""
    program = USE.replace("from stage import use", "from stage import Points").replace(
        "    rows = use()\n    data = TensorDataset(torch.randn(24, 4), torch.randn(24, 2))\n",
        "    data = Points()\n    rows = 40\n",
    )
    on_two_machines(tmp_path, {"stage.py": POINTS, "run.py": program})
    assert all((tmp_path / machine / "data" / "points.pt").exists() for machine in ("0", "1"))
    assert "dp2ddp" not in (tmp_path / "0" / "stage.py").read_text()


MAKE = """\
def make(folder):
    if not os.path.isdir(folder):
        os.makedirs(folder)
    late()
    for name in range(40):
        with open(os.path.join(folder, f"{name}.txt"), "w") as file:
            file.write(str(name))


"""
COUNT = "    names = [it for it in os.listdir('files') if open(os.path.join('files', it)).read()]\n    return len(names)\n"
MADE = {
    "by another function": MAKE
    + "def use():\n    if not os.path.exists('files'):\n        make('files')\n"
    + COUNT,
    "after a return": "def make(folder):\n    if os.path.exists(folder):\n        return\n    os.makedirs(folder)\n    late()\n"
    "    for name in range(40):\n        with open(folder + f'/{name}.txt', 'w') as file:\n            file.write('1')\n\n\n"
    "def use():\n    make('files')\n" + COUNT,
    "after a return, with pathlib": "import pathlib\n\n\ndef make(folder):\n    folder = pathlib.Path(folder)\n"
    "    if folder.exists():\n        return\n    folder.mkdir()\n    late()\n    for name in range(40):\n"
    "        torch.save(name, folder / f'{name}.txt')\n\n\ndef use():\n    make('files')\n"
    "    return len([torch.load(f'files/{it}.txt') for it in range(40)])\n",
    "by a file beside": "def make(folder):\n    os.makedirs(folder, exist_ok=True)\n    late()\n"
    "    for name in [*range(39), 'list']:\n        with open(os.path.join(folder, f'{name}.txt'), 'w') as file:\n"
    "            file.write('1')\n\n\n"
    "def use():\n    if not os.path.exists('files/list.txt'):\n        make('files')\n" + COUNT,
    "with a list in another folder": "def make(folder, listed):\n    os.makedirs(folder, exist_ok=True)\n"
    "    os.makedirs(os.path.dirname(listed), exist_ok=True)\n    late()\n    with open(listed, 'w') as file:\n"
    "        for name in range(40):\n            torch.save(name, f'{folder}/{name}.pt')\n            file.write(f'{name}.pt ')\n\n\n"
    "def use():\n    if not os.path.exists('./files/rows'):\n        make('./files/rows', './files/lists/all.txt')\n"
    "    return len([torch.load(f'files/rows/{it}') for it in open('./files/lists/all.txt').read().split()])\n",
    "by a loop": "def use():\n    if not os.path.exists('files/list.txt'):\n"
    "        os.makedirs('files', exist_ok=True)\n        late()\n        for name in range(40):\n"
    "            torch.save(name, f'files/{name}.pt')\n        open('files/list.txt', 'w').close()\n"
    "    return len([torch.load(f'files/{it}.pt') for it in range(40)])\n",
    "several, in a loop": MAKE
    + "def use():\n    for part in ('a', 'b'):\n        if not os.path.isdir('files/' + part):\n"
    "            make('files/' + part)\n    return sum(len(open(f'files/{part}/{it}.txt').read()) > 0 for part in 'ab' for it in range(20))\n",
    "sounds": "import wave\n\n\ndef make(folder):\n    os.makedirs(folder, exist_ok=True)\n    late()\n    for name in range(40):\n"
    "        with wave.open(os.path.join(folder, f'{name}.wav'), 'wb') as sound:\n            sound.setparams((1, 2, 8000, 0, 'NONE', ''))\n"
    "            sound.writeframes(bytes(80))\n\n\n"
    "def use():\n    if not os.path.isdir('files'):\n        make('files')\n"
    "    return len([wave.open(f'files/{it}.wav').readframes(9) for it in range(40)])\n",
    "pictures, in folders below": "import argparse\n\nfrom PIL import Image\n\n\ndef make(folder):\n"
    "    os.makedirs(os.path.join(folder, 'images'), exist_ok=True)\n    late()\n    for name in range(20):\n"
    "        Image.new('L', (2, 2)).save(os.path.join(folder, 'images', '%02d.png' % name))\n\n\n"
    "class Pictures(torch.utils.data.Dataset):\n    def __init__(self, root):\n        self.root = root\n"
    "        self.names = sorted(os.listdir(os.path.join(root, 'images')))\n\n"
    "    def read(self):\n        return [Image.open(os.path.join(self.root, 'images', it)) for it in self.names]\n\n\n"
    "def use():\n    parser = argparse.ArgumentParser()\n    parser.add_argument('--root', default='./files')\n"
    "    root = parser.parse_args().root\n    if not os.path.isdir(root):\n"
    "        make(os.path.join(root, 'train'))\n        make(os.path.join(root, 'test'))\n"
    "    train = Pictures(os.path.join(root, 'train'))\n    test = Pictures(os.path.join(root, 'test'))\n"
    "    return len(train.read()) + len(test.read())\n",
    "asked for by an option, made in a folder of its own": "import argparse\n\n\ndef make(root='files'):\n"
    "    os.makedirs(root, exist_ok=True)\n    late()\n    for name in [*range(39), 'list']:\n"
    "        with open(os.path.join(root, str(name) + '.txt'), 'w') as file:\n            file.write('1')\n\n\n"
    "def use():\n    parser = argparse.ArgumentParser()\n    parser.add_argument('--list', default='files/list.txt')\n"
    "    args = parser.parse_args()\n    if not os.path.exists(args.list):\n        make()\n"
    "    return len(open(args.list).read()) + 39\n",
    "by a class that a text names": "class Rows:\n    def __init__(self, root):\n        if not os.path.exists(root + '/done'):\n"
    "            self.prepare(root)\n        self.rows = torch.load(root + '/done/rows.pt')\n\n    def prepare(self, root):\n"
    "        if not os.path.exists(root + '/raw'):\n            self.fetch(root + '/raw')\n"
    "        count = len(open(root + '/raw/text').read())\n        os.makedirs(root + '/done', exist_ok=True)\n"
    "        torch.save(torch.ones(40) * count, root + '/done/rows.pt')\n\n    def fetch(self, folder):\n"
    "        import urllib.request\n        os.makedirs(folder, exist_ok=True)\n        late()\n"
    "        urllib.request.urlretrieve('file://' + os.path.abspath(__file__), folder + '/text')\n\n\n"
    "def use():\n    return len(eval(\"Rows('files')\").rows)\n",
    "by what nothing is known of": "import cProfile\nimport pstats\n\n\ndef make(path):\n    late()\n    assert not os.path.exists(path)\n    cProfile.run('sum(range(9))', path)\n\n\n"
    "def use():\n    if not os.path.exists('times'):\n        make('times')\n"
    "    return 40 if pstats.Stats('times').total_calls else 0\n",
    "a file itself": "def use():\n    path = 'rows.pt'\n    if not os.path.isfile(path):\n        late()\n"
    "        torch.save(torch.ones(40), path)\n    return len(torch.load('rows.pt'))\n",
    "with pathlib": "from pathlib import Path\n\n\ndef use():\n    folder = Path('files')\n    if not folder.exists():\n"
    "        folder.mkdir()\n        late()\n        for name in range(40):\n            (folder / f'{name}.txt').write_text('1')\n"
    + COUNT,
}


@pytest.mark.sample(every=4)
@pytest.mark.parametrize(("name", "processes"), [*((name, 2) for name in MADE), ("by another function", 3)])
def test_what_is_made_where_it_is_missing_is_made_once_and_waited_for(
    lab: Lab, tmp_path: Path, name: str, processes: int
) -> None:
    """What reads it names it otherwise: all wait for what stands under the question."""
    script = converted(tmp_path, {"late.py": LATE, "stage.py": HEADS + MADE[name], "run.py": USE})
    done = lab.run(script, processes=processes, folder=tmp_path, recorded=False).ok()
    assert set(done.printed.splitlines()) == {"40"}


FOLDERS = """\
import os
from pathlib import Path

import torch


def make_all(paths):
    if not isinstance(paths, list):
        paths = [paths]
    for path in paths:
        if not os.path.exists(path):
            os.makedirs(path)


def store(path):
    if not os.path.exists(path):
        torch.save(torch.ones(40), path)


def use():
"""
FILLED = {
    "from a list": """\
    folder = os.path.join("cache", "rows")
    make_all(folder)
    path = os.path.join(folder, "rows.pt")
""",
    "by its text": """\
    if not os.path.isdir("cache/"):
        os.mkdir("cache/")
        print("made")
    path = "cache/rows.pt"
""",
    "by pathlib, with what the main process writes": """\
    folder = Path("cache")
    folder.mkdir(exist_ok=True)
    Path("options.txt").write_text("1")
    path = folder / "rows.pt"
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILLED)
def test_each_machine_makes_the_folder_that_it_writes_into(tmp_path: Path, name: str) -> None:
    stage = FOLDERS + FILLED[name] + "    store(path)\n    return len(torch.load(path))\n"
    on_two_machines(tmp_path, {"stage.py": stage, "run.py": USE})
    assert all(len(list((tmp_path / it).glob("cache/**/*.pt"))) == 1 for it in "01")
    assert [(tmp_path / it / "options.txt").exists() for it in "01"] == ["options" in stage, False]


@pytest.mark.slow
def test_a_log_is_the_main_process_s_and_so_is_its_folder(tmp_path: Path) -> None:
    """It is only begun where it is not there, and added to later: no machine needs one of its own."""
    stage = FOLDERS + """\
    make_all(["logs"])
    path = os.path.join("logs", "log.txt")
    if not os.path.exists(path):
        with open(path, "w") as file:
            file.write("epoch loss")
    with open(path, "a") as file:
        file.write("1 0.5")
    return 40
"""
    on_two_machines(tmp_path, {"stage.py": stage, "run.py": USE})
    assert [(tmp_path / it / "logs").exists() for it in "01"] == [True, False]


@pytest.fixture
def served() -> Iterator[tuple[str, Counter[str]]]:
    """A server's address, and how often each path was asked for."""
    asked: Counter[str] = Counter()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked[self.path] += 1
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"1")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


DOWNLOADING = """\
import os
import urllib.request
from pathlib import Path


def tried():
    try:
        return open("tried").read()
    except FileNotFoundError:
        urllib.request.urlretrieve("URL/tried", "tried")
    return open("tried").read()


def get(name):
    urllib.request.urlretrieve("URL/" + name, name)


def tried_elsewhere():
    try:
        text = open("called").read()
    except FileNotFoundError:
        get("called")
        text = open("called").read()
    return text


def compared():
    if os.path.exists("compared") == False:
        urllib.request.urlretrieve("URL/compared", "compared")


def named():
    there = Path("named").is_file()
    if there is False:
        urllib.request.urlretrieve("URL/named", "named")


def skipped():
    for name in ("first", "second"):
        if os.path.exists(name):
            continue
        urllib.request.urlretrieve("URL/" + name, name)


def use():
    tried()
    tried_elsewhere()
    compared()
    named()
    skipped()
    urllib.request.urlretrieve("URL/always", "always")
    return 40
"""


@pytest.mark.slow
def test_each_machine_downloads_once_however_it_asks(
    served: tuple[str, Counter[str]], tmp_path: Path
) -> None:
    """One machine has a file already: its processes must not go on to where the others meet."""
    url, asked = served
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "tried").write_text("1")
    on_two_machines(tmp_path, {"stage.py": DOWNLOADING.replace("URL", url), "run.py": USE})
    names = ("called", "compared", "named", "first", "second", "always")
    assert asked == {"/tried": 1, **{f"/{name}": 2 for name in names}}


def test_python_wget_is_known(tmp_path: Path) -> None:
    stage = "import os\n\nimport wget\n\n\ndef use():\n    if not os.path.exists('a'):\n        wget.download('b', out='a')\n"
    converted(tmp_path, {"stage.py": stage, "run.py": USE})
    assert "main_process_first" in (tmp_path / "stage.py").read_text()


# A library that keeps what it downloads, slowly, in a file which others may find before all is in it.
HUB = """\
import os
import time

from torch import nn


class Pretrained(nn.Module):
    @classmethod
    def from_pretrained(cls, name):
        if not os.path.exists(name):
            with open(name, "w") as file:
                time.sleep(1)
                file.write("weights")
        with open(name) as file:
            assert file.read() == "weights"
        return cls()
"""
SUBCLASSES = {
    "of a class from outside": "class Net(hub.Pretrained):\n    pass\n",
    "of one that derives from it": "class Base(hub.Pretrained):\n    pass\n\n\nclass Net(Base):\n    width = 4\n",
    "that adds to it": "class Net(hub.Pretrained):\n    @classmethod\n    def from_pretrained(cls, name):\n"
    "        print('loading')\n        return super().from_pretrained(name)\n",
    "of a class that is looked up": "class Net(getattr(hub, os.environ.get('KIND', 'Pretrained'))):\n    pass\n",
    "one of several": "class Other(hub.Pretrained):\n    pass\n\n\n"
    "Net = {'a': Other, 'b': hub.Pretrained}[os.environ.get('KIND', 'a')]\n",
    "by an object": "class Loader(hub.Pretrained):\n    pass\n\n\nNet = Loader()\n",
    "in the module of another name": "from hub import *\n\n\nclass Net(Pretrained):\n    pass\n",
}


@pytest.mark.sample("of a class from outside", "that adds to it")
@pytest.mark.parametrize("name", SUBCLASSES)
def test_what_a_subclass_inherits_is_fetched_by_one_process_first(
    lab: Lab, tmp_path: Path, name: str
) -> None:
    stage = f"import os\n\nimport hub\n\n\n{SUBCLASSES[name]}\n\ndef use():\n    Net.from_pretrained('kept')\n    return 40\n"
    library = lab.place("library")
    (library / "hub.py").write_text(HUB)
    script = converted(tmp_path, {"stage.py": stage, "run.py": USE})
    assert "main_process_first" in (tmp_path / "stage.py").read_text()
    env = {"PYTHONPATH": os.pathsep.join([str(library), os.environ.get("PYTHONPATH", "")])}
    done = lab.run(
        script, processes=2, folder=tmp_path, recorded=False, launcher="plain", timeout=60, env=env
    )
    assert done.ok().printed.splitlines()[-1] == "40"


ONCE = """\
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision import models
from torchvision.datasets import FakeData

from late import late


class Fetched(FakeData):
    def __init__(self, size, download):
        if download and not os.path.exists("fetched"):
            late()
            with open("fetched", "x"):
                pass
        super().__init__(size)


class Numbered(Fetched):
    def __getitem__(self, index):
        return index


if __name__ == "__main__":
    torch.manual_seed(0)
    data = Numbered(4, download=True)
    network = eval("nn.Linear")(4, 2)
    model = nn.DataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", enabled=torch.cuda.is_available())
    if not os.path.exists(os.path.join("saved", "net.pth")):
        os.makedirs("saved")
        rows = TensorDataset(torch.randn(24, 4), torch.randn(24, 2))
        for inputs, targets in DataLoader(rows, batch_size=6, shuffle=True):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        torch.save(model.state_dict(), os.path.join("saved", "net.pth"))
    else:
        state = torch.load("saved/net.pth", map_location=lambda storage, place: storage.cuda(0))
        model.load_state_dict(state)
    print(len(data))
"""


def test_what_only_trains_where_nothing_is_saved_yet(lab: Lab, tmp_path: Path) -> None:
    """All ranks train together under a question for a file; the optimizer is each rank's own; what is saved, is read."""
    script = converted(tmp_path, {"late.py": LATE, "run.py": ONCE})
    text = script.read_text()
    assert "map_location=ddp.map_location" in text and "from_main_process(torch" not in text
    for _ in range(2):
        done = lab.run(script, processes=2, folder=tmp_path, recorded=False).ok()
        assert set(done.printed.splitlines()) == {"4"}


PREFIXED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(self, inputs):
        return self.head(self.encoder(inputs))


def encoder(path):
    prefix = "module.encoder."
    state = torch.load(path)["net"]
    found = nn.Linear(4, 3)
    found.load_state_dict({key[len(prefix) :]: state[key] for key in state if key.startswith(prefix)})
    return found


if __name__ == "__main__":
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(24, 4), torch.randn(24, 2))
    model = nn.DataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in DataLoader(data, batch_size=6):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    torch.save({"net": model.state_dict()}, "net.pt")
    print(torch.equal(encoder("net.pt").weight, model.module.encoder.weight))
    model.load_state_dict(torch.load("net.pt")["net"])
"""


def test_checkpoints_keep_the_prefix_that_parts_are_asked_for_by(lab: Lab, tmp_path: Path) -> None:
    script = converted(tmp_path, {"run.py": PREFIXED})
    done = lab.run(script, processes=2, folder=tmp_path, recorded=False).ok()
    assert set(done.printed.splitlines()) == {"True"}


FOLLOWING = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(24, 4), torch.randn(24, 2))
    model, target = nn.DataParallel(nn.Linear(4, 2)), nn.DataParallel(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def follow():
        kept, new = target.state_dict(), model.state_dict()
        for key in new:
            kept[key] = 0.5 * new[key] + 0.5 * kept[key]
        target.load_state_dict(kept)

    for inputs, targets in DataLoader(data, batch_size=6):
        optimizer.zero_grad()
        torch.cdist(model(inputs), targets + target(inputs).detach()).mean().backward()
        optimizer.step()
        follow()
    print(sum(it.sum().item() for it in target.parameters()))
"""


def test_states_whose_keys_meet_have_the_same(lab: Lab, tmp_path: Path) -> None:
    place = lab.place("before")
    (place / "run.py").write_text(FOLLOWING)
    before = lab.run(place / "run.py", folder=place, recorded=False).ok()
    done = lab.run(
        converted(tmp_path, {"run.py": FOLLOWING}), processes=2, folder=tmp_path, recorded=False
    ).ok()
    (value,) = map(float, set(done.printed.splitlines()))
    assert value == pytest.approx(float(before.printed), abs=1e-5)


REWINDING = """\
import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(24, 4), torch.randn(24, 2))
model = nn.DataParallel(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)))
beginning = copy.deepcopy(model.state_dict())
masks = {name: torch.ones_like(it) for name, it in model.named_parameters() if "weight" in name}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for level in range(2):
    for name, it in model.named_parameters():
        it.data = beginning[name] * masks[name] if name in masks else beginning[name].clone()
    for inputs, targets in DataLoader(data, batch_size=6):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    torch.save(model.state_dict(), "last.pth")
print(sum(it.sum().item() for it in model.parameters()))
"""


def test_a_state_that_is_asked_by_parameters_names_keeps_theirs(lab: Lab, tmp_path: Path) -> None:
    place = lab.place("before")
    (place / "run.py").write_text(REWINDING)
    before = lab.run(place / "run.py", folder=place, recorded=False).ok()
    script = converted(tmp_path, {"run.py": REWINDING})
    assert "model.module.state_dict()" in script.read_text()
    done = lab.run(script, processes=2, folder=tmp_path, recorded=False).ok()
    (value,) = map(float, set(done.printed.splitlines()))
    assert value == pytest.approx(float(before.printed), abs=1e-5)


COMMANDED = """\
import os

from late import late


def read(path):
    with open(path) as file:
        return len(file.read().split())


def use():
    out = os.path.join(os.getcwd(), "numbers.txt")
    late()
    os.system("sleep 0.5; echo " + "1 " * 40 + "> %s" % out)
    return read(out)
"""
IN_TEMPORARY = """\
import json
import os
import shutil
import tempfile

from late import late
from slow import slow


def use():
    scratch = os.path.join(tempfile.gettempdir(), "scratch")
    if os.path.exists(scratch):
        shutil.rmtree(scratch)
    os.makedirs(scratch)
    late()
    with open(os.path.join(scratch, "rows.json"), "w") as file:
        json.dump(list(range(40)), file)
    with tempfile.TemporaryDirectory() as own:
        slow()
        shutil.copy(os.path.join(scratch, "rows.json"), own)
        rows = json.load(open(os.path.join(own, "rows.json")))
    shutil.rmtree(scratch)
    return len(rows)
"""


def test_the_folder_of_temporary_files_is_one_for_all(lab: Lab, tmp_path: Path) -> None:
    """What a process makes there by a name of its own is its own; by one that all have it is everybody's."""
    slow = SLOW.replace("LAB_RANK", "RANK")  # the ranks are started by the program itself
    texts = {
        "late.py": LATE.replace("LAB_RANK", "RANK"),
        "slow.py": slow,
        "stage.py": IN_TEMPORARY,
        "run.py": USE,
    }
    script = converted(tmp_path, texts)
    env = {"TMPDIR": str(lab.place("temporary"))}
    done = lab.run(script, processes=2, folder=tmp_path, recorded=False, launcher="plain", env=env).ok()
    assert set(done.printed.splitlines()) == {"40"}


# A folder that is made where it is missing, and others in it, which make it, too.
NESTED = {
    "pathlib": "    root = Path('out')\n    if not root.exists():\n        late()\n        root.mkdir()\n"
    "    (root / 'rows' / 'first').mkdir(parents=True, exist_ok=True)\n",
    "os": "    root = 'out'\n    if not os.path.isdir(root):\n        late()\n        os.mkdir(root)\n"
    "    os.makedirs(os.path.join(root, 'rows', 'first'), exist_ok=True)\n",
    "one call for several": "    root = 'out/rows'\n    if not os.path.exists(root):\n        late()\n        os.makedirs(root)\n"
    "    for name in ('first', 'second'):\n        os.makedirs(f'{root}/{name}', exist_ok=True)\n",
}


@pytest.mark.parametrize("name", NESTED)
def test_a_folder_that_others_may_make_by_one_in_it_may_be_there(lab: Lab, tmp_path: Path, name: str) -> None:
    stage = f"import os\nfrom pathlib import Path\n\nfrom late import late\n\n\ndef use():\n{NESTED[name]}    return 40\n"
    script = converted(tmp_path, {"late.py": LATE, "stage.py": stage, "run.py": USE})
    lab.run(script, processes=2, folder=tmp_path, recorded=False).ok()
    assert (tmp_path / "out" / "rows" / "first").is_dir()


# What a command writes that only one process runs, and all read.
READ_IN = "    with tarfile.open(os.path.join(folder, 'files.tar')) as archive:\n        return len(archive.getnames())\n"
MADE_FOLDER = "    folder = os.path.join(os.getcwd(), 'scratch')\n    os.makedirs(folder, exist_ok=True)\n"
COMMANDS = {
    "a list": f"def use():\n{MADE_FOLDER}    late()\n    subprocess.call(['cp', 'files.tar', folder])\n{READ_IN}",
    "a text": f"def use():\n{MADE_FOLDER}    late()\n    os.system('cp files.tar ' + folder)\n{READ_IN}",
    "a text that is filled": f"def use():\n{MADE_FOLDER}    late()\n    os.system('cp %s %s' % ('files.tar', folder))\n{READ_IN}",
    "an f-string": f"def use():\n{MADE_FOLDER}    late()\n    command = f'cp files.tar {{folder}}/files.tar'\n"
    f"    subprocess.run(command, shell=True, check=True)\n{READ_IN}",
    "words": f"def use():\n{MADE_FOLDER}    late()\n    subprocess.check_call(shlex.split(f'cp files.tar {{folder}}'))\n{READ_IN}",
    "put together": f"def use():\n{MADE_FOLDER}    late()\n    command = ['cp', '-f']\n    command.append('files.tar')\n"
    f"    command += [folder]\n    subprocess.run(args=command, check=True)\n{READ_IN}",
    "joined": f"def use():\n{MADE_FOLDER}    late()\n    os.system(' '.join(['cp', 'files.tar', folder]))\n{READ_IN}",
    "in functions": "def run(command):\n    late()\n    subprocess.run(command, shell=True)\n\n\n"
    "def copied(source, folder):\n    run('cp {} {}'.format(source, folder))\n\n\n"
    "def names(path):\n    return tarfile.open(path, 'r').getnames()\n\n\n"
    f"def use():\n{MADE_FOLDER}    copied('files.tar', folder)\n    return len(names(os.path.join(folder, 'files.tar')))\n",
    "waited for": f"def use():\n{MADE_FOLDER}    late()\n    process = subprocess.Popen(['cp', 'files.tar', folder])\n"
    f"    process.wait()\n{READ_IN}",
    "whose answer nobody takes": f"def use():\n{MADE_FOLDER}    late()\n"
    f"    subprocess.check_output(['mv', 'files.tar', folder])\n{READ_IN}",
    "listed": f"def use():\n{MADE_FOLDER}    late()\n    os.system(f'cp files.tar {{folder}}')\n"
    "    assert os.listdir(folder) == ['files.tar']\n    return 40\n",
    "unpacked": "def use():\n    late()\n    os.system('tar xf files.tar')\n    return len(os.listdir('files'))\n",
    "unpacked by words": "def use():\n    late()\n    command = ['tar', '-xf', 'files.tar']\n    subprocess.run(command)\n"
    "    return sum(os.path.exists(f'files/{index}.txt') for index in range(40))\n",
    "unpacked and waited for": "def use():\n    late()\n    process = subprocess.Popen(['tar', '-xf', 'files.tar'])\n"
    "    process.communicate()\n    return sum(os.path.exists(f'files/{index}.txt') for index in range(40))\n",
}


@pytest.mark.sample("a list", "in functions", "unpacked by words", "whose answer")
@pytest.mark.parametrize("name", COMMANDS)
def test_all_wait_for_what_a_command_writes(lab: Lab, tmp_path: Path, name: str) -> None:
    archive(tmp_path)
    head = HEADS.replace("import shutil\n", "import shlex\nimport subprocess\n")
    script = converted(tmp_path, {"late.py": LATE, "stage.py": head + COMMANDS[name], "run.py": USE})
    assert (tmp_path / "stage.py").read_text().count("ddp.barrier()") == 1
    done = lab.run(script, processes=2, folder=tmp_path, recorded=False).ok()
    assert set(done.printed.splitlines()) == {"40"}


@pytest.mark.parametrize(
    "command",
    [
        "os.system('mkdir -p ' + folder)",
        "os.system('nvidia-smi')",
        "subprocess.run(['rm', '-f', 'old.txt'])",
        "subprocess.call(f'cp stage.py {other}', shell=True)",
    ],
)
def test_nobody_waits_for_commands_that_leave_nothing_to_read(tmp_path: Path, command: str) -> None:
    stage = f"import subprocess\n\n\ndef use():\n{MADE_FOLDER}    other = 'another'\n    {command}\n{READ_IN}"
    converted(tmp_path, {"late.py": LATE, "stage.py": HEADS + stage, "run.py": USE})
    assert "barrier" not in (tmp_path / "stage.py").read_text()


COPIED = """\
import importlib
import os
import shutil
import sys
import tempfile


def use():
    with tempfile.TemporaryDirectory() as folder:
        shutil.copyfile("settings.txt", os.path.join(folder, "settings_of_a_run.py"))
        sys.path.insert(0, folder)
        rows = importlib.import_module("settings_of_a_run").ROWS
        sys.path.pop(0)
    return rows
"""
FOLDER_READ = """\
import os

import tabular
from late import late

OUT = "tables"


def use():
    os.makedirs(OUT, exist_ok=True)
    late()
    with open(os.path.join(OUT, "rows.txt"), "w") as file:
        file.write("1 " * 40)
    return tabular.read_all(OUT)
"""


@pytest.mark.parametrize("stage", [COMMANDED, COPIED, FOLDER_READ], ids=["a command", "a copy", "a package"])
def test_what_others_write_and_read_is_there(lab: Lab, tmp_path: Path, stage: str) -> None:
    """What a command writes is waited for, and so is a folder that a package reads; each process has its own copy."""
    (tmp_path / "settings.txt").write_text("ROWS = 40\n")
    script = converted(tmp_path, {"late.py": LATE, "stage.py": stage, "run.py": USE})
    done = lab.run(script, processes=2, folder=tmp_path, recorded=False).ok()
    assert set(done.printed.splitlines()) == {"40"}


# Ways in which the name of a folder comes to where it is read.
ROWS_OF = """\
import functools
import os
from types import SimpleNamespace

import numpy as np

from late import late


def rows(folder):
    return sum(float(open(os.path.join(folder, it)).read()) for it in os.listdir(folder))


def run(count, given):
    return count(given)


def both(first, second):
    return rows(second)


class Kept:
    def __init__(self, folder):
        self.place = folder

    def rows(self):
        return sum(float(open(os.path.join(self.place, it)).read()) for it in os.listdir(self.place))


def use():
    folder = os.path.join("out", "rows")
    os.makedirs(folder, exist_ok=True)
    late()
    for row in range(40):
        np.savetxt(os.path.join(folder, f"{row}.txt"), np.ones(1))
"""
TAKE = "    def take(given):\n        return rows(given['b'])\n\n"
HANDED = {
    "a function that is given": "    return run(rows, folder)\n",
    "a dict": f"{TAKE}    return take({{'a': 'x', 'b': folder}})\n",
    "a dict that is called": f"{TAKE}    return take(dict(b=folder))\n",
    "a dict that is filled": f"{TAKE}    places = {{}}\n    places['b'] = folder\n    return take(places)\n",
    "a dict that is updated": f"{TAKE}    places = {{}}\n    places.update(b=folder)\n    return take(places)\n",
    "a dict that is updated by another": f"{TAKE}    places = {{}}\n    places.update({{'b': folder}})\n"
    "    return take(places)\n",
    "a dict that is asked": "    def take(given):\n        return rows(given.get('b'))\n\n    return take({'b': folder})\n",
    "keywords": "    def take(**given):\n        return rows(given['b'])\n\n    return take(b=folder)\n",
    "a dict and a function": "    def take(given, count):\n        return count(given['a'], given['b'])\n\n"
    "    return take({'a': 'x', 'b': folder}, both)\n",
    "a list": "    def take(given):\n        return rows(given[1])\n\n    return take(['x', folder])\n",
    "a pair": "    def take(given):\n        first, second = given\n        return rows(second)\n\n"
    "    return take(('x', folder))\n",
    "an object": "    return Kept(folder).rows()\n",
    "an object of names": "    def take(given):\n        return rows(given.b)\n\n    return take(SimpleNamespace(b=folder))\n",
    "what is returned": "    def made():\n        return {'b': folder}\n\n    return rows(made()['b'])\n",
}


@pytest.mark.parametrize("name", HANDED)
def test_all_wait_for_a_folder_however_its_name_comes_to_what_reads_it(tmp_path: Path, name: str) -> None:
    converted(tmp_path, {"late.py": LATE, "stage.py": ROWS_OF + HANDED[name], "run.py": USE})
    assert (tmp_path / "stage.py").read_text().count("ddp.barrier()") == 1


@pytest.mark.parametrize("name", ["a dict and a function", "an object"])
def test_what_is_read_of_such_a_folder_is_all_there(lab: Lab, tmp_path: Path, name: str) -> None:
    script = converted(tmp_path, {"late.py": LATE, "stage.py": ROWS_OF + HANDED[name], "run.py": USE})
    done = lab.run(script, processes=2, folder=tmp_path, recorded=False).ok()
    assert set(done.printed.splitlines()) == {"40.0"}
