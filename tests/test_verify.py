"""`dp2ddp verify` says MATCH of right programs, and finds and names what is wrong with others."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pairs import AFTER, BEFORE, RIGHT, WRONG, Pair
from parity.harness import FIXTURES, REPOSITORY, Lab

from dp2ddp.verify import compare, outputs
from dp2ddp.verify.causes import CAUSES
from dp2ddp.verify.folders import mirror
from dp2ddp.verify.page import page
from dp2ddp.verify.report import report
from dp2ddp.verify.run import Request, verify
from dp2ddp.verify.verdict import Result, Verdict


def verified(lab: Lab, folder: Path, pair: Pair, **options: object) -> Result:
    """The verification of a pair over eight steps: two loops over its data."""
    for name, text in zip(("before.py", "after.py"), pair.texts, strict=True):
        (folder / name).write_text(text)
    wanted = {"steps": 8, "patience": 20.0, **options}
    return verify(Request(folder / "before.py", folder / "after.py", folder, **wanted), server=lab.warm)


@pytest.mark.parametrize(
    ("name", "float64"),
    [*((name, True) for name in RIGHT), ("the program", False), ("dropout", False), ("Adam", False)],
)
def test_right_ones_match(lab: Lab, tmp_path: Path, name: str, float64: bool) -> None:
    result = verified(lab, tmp_path, RIGHT[name], float64=float64)
    assert result.verdict is Verdict.MATCH, report(result)
    assert result.steps == 8
    assert sorted(path.name for path in tmp_path.iterdir()) == ["after.py", "before.py"]


@pytest.mark.parametrize("name", WRONG)
def test_planted_mistakes_are_found_and_named(lab: Lab, tmp_path: Path, name: str) -> None:
    pair = WRONG[name]
    options = {"patience": 6.0} if pair.cause == "collective" else {}
    result = verified(lab, tmp_path, pair, **options)
    assert result.verdict is Verdict.DIFFERS, report(result)
    first = result.differences[0]
    assert (first.what, first.cause) == (pair.what, pair.cause), report(result)
    assert pair.step is None or first.step == pair.step, report(result)
    assert first.tensor == pair.tensor, report(result)
    assert CAUSES[first.cause].split()[0] in report(result)


def test_three_processes(lab: Lab, tmp_path: Path) -> None:
    """A batch of 15 on three, then one that they do not divide."""
    pair = Pair(before=(("batch_size=16", "batch_size=15"),), after=(("size(16)", "size(15)"),))
    result = verified(lab, tmp_path, pair, processes=3, float64=True)
    assert result.verdict is Verdict.MATCH, report(result)


def test_a_hang_is_reported_with_where_the_ranks_are(lab: Lab, tmp_path: Path) -> None:
    result = verified(lab, tmp_path, WRONG["a collective of torch's is guarded"], patience=6.0)
    shown = report(result)
    assert "all_reduce at" in shown
    assert "after.py" in result.errors


def test_a_death_is_reported_with_rank_and_traceback(lab: Lab, tmp_path: Path) -> None:
    shown = report(verified(lab, tmp_path, WRONG["it fails"]))
    assert "rank 1 ends with AssertionError" in shown
    assert "assert ddp.get_rank() == 0" in shown


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (BEFORE.replace("    model.train()", "    raise ValueError('no')"), "ValueError: no"),
        ("print('nothing')\n", "no optimizer step"),
    ],
)
def test_what_cannot_be_compared_is_inconclusive(lab: Lab, tmp_path: Path, before: str, reason: str) -> None:
    (tmp_path / "before.py").write_text(before)
    (tmp_path / "after.py").write_text(AFTER)
    request = Request(tmp_path / "before.py", tmp_path / "after.py", tmp_path, steps=4)
    result = verify(request, server=lab.warm)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert reason in result.reason


def test_nothing_of_the_user_s_is_written(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_text("mine")
    result = verified(lab, tmp_path, RIGHT["the program"])
    assert result.verdict is Verdict.MATCH, report(result)
    assert (tmp_path / "model.pt").read_text() == "mine"


def test_standard_input_is_a_terminal_at_which_nobody_types(lab: Lab, tmp_path: Path) -> None:
    """Progress bars ask for its width, and what is asked of a person ends at once."""
    script = tmp_path / "asks.py"
    script.write_text("import os, sys\nprint(os.popen('stty size').read(), repr(sys.stdin.read()))\n")
    assert lab.run(script).ok().printed == "24 80\n ''\n"


def test_curves_are_compared_as_they_are(lab: Lab, tmp_path: Path) -> None:
    """Over three seeds, with samples and random numbers of their own: a right one, and a wrong one."""
    assert verified(lab, tmp_path, RIGHT["dropout"], as_is=True, steps=12).verdict is Verdict.MATCH
    wrong = WRONG["a sum is not scaled"]
    result = verified(lab, tmp_path, wrong, as_is=True, steps=12)
    assert result.verdict is Verdict.DIFFERS, report(result)


SYNTHETIC = """\
import torch
import torchvision
from torch import nn
from torchvision import transforms

torch.manual_seed(0)
changes = transforms.Compose([transforms.RandomCrop(32, padding=4), transforms.ToTensor()])
data = torchvision.datasets.CIFAR10("nowhere", train=True, download=True, transform=changes)
loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
model = nn.DataParallel(nn.Sequential(nn.Flatten(), nn.Linear(3072, len(data.classes)))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs.cuda()), targets.cuda()).backward()
        optimizer.step()
"""


SHAPES = {
    "MNIST": (1, 28, 28),
    "FashionMNIST": (1, 28, 28),
    "CIFAR10": (3, 32, 32),
    "CIFAR100": (3, 32, 32),
    "SVHN": (3, 32, 32),
    "STL10": (3, 96, 96),
    "ImageFolder": (3, 224, 224),
    "ImageNet": (3, 224, 224),
}


def test_synthetic_data_has_the_shapes() -> None:
    """In a process of its own: what it replaces is torchvision's."""
    code = (
        "from dp2ddp.verify import synthetic; synthetic.replace()\n"
        "from torchvision import datasets, transforms\n"
        f"for kind in {list(SHAPES)}:\n"
        "    data = getattr(datasets, kind)('nowhere', transform=transforms.ToTensor())\n"
        "    image, label = data[len(data) - 1]\n"
        "    print(kind, tuple(image.shape), int(label) >= 0, len(data))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=60)
    assert done.stdout.splitlines() == [
        f"{kind} {shape} True 256" for kind, shape in SHAPES.items()
    ], done.stderr


# The pictures


def test_the_page_is_one_file_that_shows_both_curves(lab: Lab, tmp_path: Path) -> None:
    result = verified(lab, tmp_path, RIGHT["the program"])
    result.diff = "--- a\n+++ b\n-old <tag>\n+new\n"
    text = page(result)
    assert "MATCH over 8 steps" in text
    assert not re.search(r"(src|href)=|<script|url\(", text)
    pictures = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(pictures) == 3
    for picture in pictures:
        drawn = ElementTree.fromstring(picture)
        lines = [it for it in drawn.iter() if it.tag.endswith("polyline")]
        points = [pair.split(",") for line in lines for pair in line.attrib["points"].split()]
        assert len(points) in (8, 16)
        assert all(0 <= float(x) <= 640 and 0 <= float(y) <= 220 for x, y in points)
    assert "old &lt;tag&gt;" in text


# The command


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dp2ddp", "verify", *arguments]
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=280)


def test_the_command_converts_what_has_no_after(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BEFORE)
    done = run(tmp_path, "train.py", "--steps", "6", "--float64", "--report", "out.html")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("MATCH over 6 steps")
    assert "step" in done.stderr
    assert "ddp.DistributedDataParallel" in (tmp_path / "out.html").read_text()
    assert (tmp_path / "train.py").read_text() == BEFORE


def test_data_that_is_not_there_is_made(tmp_path: Path) -> None:
    """torchvision's by an option, the user's own by a file of theirs; augmentation is aligned."""
    (tmp_path / "train.py").write_text(SYNTHETIC)
    done = run(tmp_path, "train.py", "--steps", "4", "--synthetic", "--float64")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "small synthetic ones" in done.stdout
    text = BEFORE.replace(
        "data = TensorDataset(torch.randn(64, 8)", "data = TensorDataset(torch.load('gone.pt')"
    )
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "own.py").write_text("import torch\ntorch.load = lambda *_, **__: torch.randn(64, 8)\n")
    assert run(tmp_path, "train.py", "--steps", "4").returncode == 3
    done = run(tmp_path, "train.py", "--steps", "4", "--prepare", "own.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "own.py" in done.stdout


def test_exit_codes(tmp_path: Path) -> None:
    (tmp_path / "before.py").write_text(BEFORE)
    (tmp_path / "after.py").write_text(WRONG["the batch size is not divided"].texts[1])
    (tmp_path / "idle.py").write_text("print('nothing')\n")
    assert run(tmp_path, "before.py", "after.py", "--steps", "4").returncode == 1
    assert run(tmp_path, "idle.py", "idle.py").returncode == 3
    assert run(tmp_path, "idle.py").returncode == 3
    assert run(tmp_path, "missing.py").returncode == 2
    assert run(tmp_path, "before.py", "--steps", "0").returncode == 2


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("epoch 1: accuracy 0.5 took 0:00:01.71", "epoch #: accuracy # took T"),
        ("loss 1.5e-3 in 2.25s, 3 s and 14 min", "loss # in T, T and T"),
        ("Step: 5s396ms | Tot: 1h2m", "Step: T | Tot: T"),
        ("model_2 has 3 heads", "model_2 has # heads"),
    ],
)
def test_times_are_no_results(text: str, shown: str) -> None:
    assert compare._NUMBER.sub("#", compare._TIME.sub("T", text)) == shown


def test_progress_bars_leave_what_they_end_with() -> None:
    lines: list[str] = []
    stream = outputs._Lines(io.StringIO(), lines.append)
    stream.write("[>...] loss 9.1\b\b\b8.5\r")
    stream.write("[=>..] loss 7.5\b\b\b\b\b\b\bacc  99\r\n")
    assert lines == ["[=>..] lacc  99"]


# The fixtures

ARGUMENTS = {
    "accumulation": "--gradient_accumulation_steps 2",
    "base_trainer": "--data DATA --batch-size 24",
    "contrastive": "--data DATA --epochs 2 --batch-size 32",
    "flat": "--data DATA --epochs 2 --batch-size 32",
    "gan": "--manualSeed 5 --batchSize 32",
    "identity_sampler": "--sampler identity",
    "iterations": "--gpus 0 1 --num_steps 17",
    "loader_factory": "--use-more --batch-size 16",
    "logs_and_copies": "--data DATA --batch-size 24",
    "main": "--data DATA --epochs 2 --batch-size 32",
    "predictions": "",
    "trainer": "--data DATA --epochs 2 --batch-size 32",
    "tutorial": "--data DATA --epochs 2 --batch-size 32",
    "weighted_sampler": "--data DATA --epochs 2 --batch-size 32",
}
QUICK = ("flat", "contrastive")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.parent.name, marks=() if path.parent.name in QUICK else pytest.mark.slow)
        for path in sorted(FIXTURES.glob("*/before"))
    ],
)
def test_fixtures_match(lab: Lab, name: str) -> None:
    arguments = [str(lab.data()) if word == "DATA" else word for word in ARGUMENTS[name].split()]
    before, after = (FIXTURES / name / side / "train.py" for side in ("before", "after"))
    request = Request(
        before, after, FIXTURES / name, arguments=tuple(arguments), float64=True, steps=16, patience=60.0
    )
    result = verify(request, server=lab.warm)
    assert result.verdict is Verdict.MATCH, report(result)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_fixtures_match_as_they_are(lab: Lab, name: str) -> None:
    arguments = [str(lab.data()) if word == "DATA" else word for word in ARGUMENTS[name].split()]
    before, after = (FIXTURES / name / side / "train.py" for side in ("before", "after"))
    request = Request(before, after, FIXTURES / name, arguments=tuple(arguments), as_is=True, steps=16)
    result = verify(request, server=lab.warm)
    assert result.verdict is Verdict.MATCH, report(result)


def test_links_in_a_folder_stay_links(tmp_path: Path) -> None:
    """One to a folder above would be followed for ever, one out of the folder leads where it did."""
    project, data = tmp_path / "project", tmp_path / "data"
    (project / "inner").mkdir(parents=True)
    data.mkdir()
    (data / "images").write_text("images")
    (project / "inner" / "up").symlink_to("..")
    (project / "data").symlink_to("../data")
    copy = tmp_path / "elsewhere" / "copy"
    mirror(project, copy, {})
    assert (copy / "data" / "images").read_text() == "images"
    assert (copy / "inner" / "up").resolve() == copy.resolve()
