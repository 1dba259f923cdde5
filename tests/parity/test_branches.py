"""A distributed branch beside DataParallel goes on as it was: its own command lines start its ranks, and no others."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from beside import PROGRAM, SEQUENTIAL
from programs import PATH

from dp2ddp.convert import convert
from dp2ddp.source import Project
from parity.harness import FIXTURES, REPOSITORY, Lab, environment, free_port
from parity.test_tier_training import differences, write

Trained = Callable[..., tuple[Path, list[str]]]
OWN = {
    "a process started by hand for each node": [],
    "processes that each node spawns": ["--multiprocessing-distributed"],
}


def nodes(folder: Path, side: str, data: Path, *more: str) -> list[str]:
    """What two nodes print that run a side of the fixture in its distributed branch, each in a folder of its own."""
    url = f"tcp://127.0.0.1:{free_port()}"
    running = []
    for rank in range(2):
        (folder / f"{side}{rank}").mkdir()
        options = ["--world-size", "2", "--rank", str(rank), "--dist-url", url, "--dist-backend", "gloo"]
        command = [sys.executable, FIXTURES / "ddp_branch" / side / "train.py", "--data", data, *options]
        running.append(
            subprocess.Popen(
                [*command, "--seed", "3", *more],
                cwd=folder / f"{side}{rank}",
                env={**environment(), "PYTHONPATH": str(REPOSITORY), "DP2DDP_PROCESSES": "2"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    try:
        said = [process.communicate(timeout=300)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0, 0], said
    return said


def numbers(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith((" *", "Epoch"))]


def weights(path: Path) -> dict[str, torch.Tensor]:
    state = torch.load(path)["state_dict"]
    return {name.removeprefix("module."): value for name, value in state.items()}


@pytest.fixture(scope="module")
def trained(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Where two nodes have trained a side in its distributed branch, and what they printed, once for each side."""

    @functools.cache
    def sides(side: str, *more: str) -> tuple[Path, list[str]]:
        folder = tmp_path_factory.mktemp("nodes")
        return folder, nodes(folder, side, lab.data(), *more)

    return sides


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(more, id=name, marks=[pytest.mark.slow] * ("--multiprocessing-distributed" in more))
        for name, more in OWN.items()
    ],
)
def test_the_distributed_branch_trains_as_it_did(trained: Trained, more: list[str]) -> None:
    (old, before), (new, after) = (trained(side, *more) for side in ("before", "after"))
    assert list(map(numbers, after)) == list(map(numbers, before))
    assert [len(numbers(text)) for text in before] == [4, 4]
    for rank in range(2):
        folders = old / f"before{rank}", new / f"after{rank}"
        assert os.listdir(folders[0]) == os.listdir(folders[1])
        one, other = (weights(folder / "checkpoint.pth.tar") for folder in folders)
        assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_checkpoints_of_both_branches_load_in_both(lab: Lab, trained: Trained, tmp_path: Path) -> None:
    script, data = FIXTURES / "ddp_branch" / "after" / "train.py", str(lab.data())
    own = str(trained("after")[0] / "after0" / "checkpoint.pth.tar")
    run = lab.run(script, ["--data", data, "--resume", own, "--epochs", "3"], processes=2).ok()
    assert run.printed.count("Epoch 2") == 1 and "Epoch 1" not in run.printed
    ours = str(run.folder / "checkpoint.pth.tar")
    said = nodes(tmp_path, "after", lab.data(), "--resume", ours, "--epochs", "4")
    assert all(text.count("Epoch 3") == 1 and "Epoch 2" not in text for text in said)


@pytest.mark.parametrize(
    ("changes", "processes"), [([], 2), ([], 3), (SEQUENTIAL, 2)], ids=["beside, 2", "beside, 3", "after, 2"]
)
def test_the_dataparallel_branch_makes_its_steps(
    lab: Lab, changes: list[tuple[str, str]], processes: int
) -> None:
    text = PROGRAM
    for old, new in changes:
        text = text.replace(old, new)
    (change,) = convert(Project.of({PATH: text})).changes
    before = lab.run(write(lab, "before", text), replicas=processes, timeout=60).ok()
    after = lab.run(write(lab, "after", change.after), processes=processes, timeout=60).ok()
    assert len(after.ranks) == processes and after.printed == before.printed
    assert differences(before, after, losses=False) == []
