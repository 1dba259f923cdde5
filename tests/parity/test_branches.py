"""A distributed branch beside DataParallel goes on as it was: its own command lines start its ranks, and no others."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from beside import APEX_RANKS, COUNTED, PROGRAM, SEQUENTIAL, SETTING
from programs import PATH
from spellings import SPELLINGS, Spelling

from dp2ddp.convert import convert
from dp2ddp.source import Project, read
from parity.harness import FIXTURES, REPOSITORY, Lab, Run, environment, free_port
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
    state = torch.load(path)
    state = state.get("state_dict", state)
    return {name.removeprefix("module."): value for name, value in state.items()}


@pytest.fixture(scope="module")
def trained(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Where two nodes have trained a side in its distributed branch, and what they printed, once for each side."""

    @functools.cache
    def sides(side: str, *more: str) -> tuple[Path, list[str]]:
        folder = tmp_path_factory.mktemp("nodes")
        return folder, nodes(folder, side, lab.data(), *more)

    return sides


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_setting_in_the_file_starts_the_ranks_of_the_other_branch(lab: Lab, tmp_path: Path) -> None:
    """As it is set, the program makes DataParallel's steps; set otherwise, under torchrun, its own ranks' as before."""
    (change,) = convert(Project.of({PATH: SETTING})).changes
    before = lab.run(write(lab, "before", SETTING), replicas=2, timeout=60).ok()
    after = lab.run(write(lab, "after", change.after), processes=2, timeout=60).ok()
    assert differences(before, after, losses=False) == []
    printed = []
    for name, text in (("own", SETTING), ("converted", change.after)):
        (tmp_path / f"{name}.py").write_text(text.replace("distributed = False", "distributed = True"))
        # A file for each rank's output: in a common one their lines may run into each other.
        logs = ["--redirects", "1", "--log-dir", name]
        launched = [
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
            *logs,
            f"{name}.py",
        ]
        env = {**environment(), "PYTHONPATH": str(REPOSITORY)}
        for _ in range(3):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
            run = subprocess.run(
                [sys.executable, *launched],
                cwd=tmp_path,
                env=env,
                capture_output=True,
                text=True,
                timeout=120,
            )
            if "terminate called without an active exception" not in run.stderr:
                break  # else gloo's threads have outlived the interpreter, which happens to any such program
        assert run.returncode == 0, run.stderr
        printed.append(sorted(it.read_text() for it in (tmp_path / name).rglob("stdout.log")))
    assert printed[0] == printed[1] and len(list(filter(str.strip, printed[0]))) == 2


LOSS = "            loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))\n"
WHOLE = """\
            losses = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device), reduction="none")
            loss = torch.logsumexp(losses, 0)
"""
PREPARED = """\
            order = torch.arange(len(inputs) - 1, -1, -1)
            mixed = 0.7 * inputs + 0.3 * inputs[order]
            losses = nn.functional.cross_entropy(model(mixed.to(device)), targets.to(device))
            loss = losses.mean()
"""


@pytest.mark.parametrize("name", ["joined", "prepared"])
def test_parts_are_joined_and_taken_beside_a_branch(lab: Lab, tmp_path: Path, name: str) -> None:
    """In ranks of the program's own nothing is joined, and no part taken: they train as they did."""
    assert LOSS in PROGRAM
    text = PROGRAM.replace(LOSS, WHOLE if name == "joined" else PREPARED)
    text = text.replace(
        'print("epoch", epoch)',
        'print("epoch", epoch, f"{sum(it.abs().sum().item() for it in model.parameters()):.6f}")',
    )
    conversion = convert(Project.of({PATH: text}))
    (script,), (change,) = conversion.scripts, conversion.changes
    assert script.tier == "sharded", [it.message for it in conversion.findings]
    assert ("ddp.whole_batch(" if name == "joined" else "ddp.local_batch(") in change.after
    before = lab.run(write(lab, "before", text), replicas=2, timeout=60).ok()
    after = lab.run(write(lab, "after", change.after), processes=2, timeout=60).ok()
    assert len(after.ranks) == 2 and after.printed == before.printed
    assert differences(before, after, losses=False) == []
    printed = []
    for side, it in {"own": text, "converted": change.after}.items():
        for _ in range(3):
            (tmp_path / f"{side}.py").write_text(it.replace(":29500", f":{free_port()}"))
            how = {"launcher": "plain", "recorded": False, "timeout": 90, "processes": 2}
            run = lab.run(tmp_path / f"{side}.py", ["--spread"], **how)
            if "SIGABRT" not in run.errors:
                break  # else gloo's threads have outlived the interpreter, which happens to any such program
        printed.append(re.findall(r"\.\d{6}", run.ok().printed))  # the ranks' lines run into each other
    assert sorted(printed[0]) == sorted(printed[1]) and len({*printed[0]}) > 1


COUNTS = {
    "an option": [],
    "options that are parsed twice": [
        ("    args = options()\n", "    print(options().gpus)\n    args = options()\n")
    ],
    "a flag": [
        ('"--gpus", type=int, default=2', '"--one", action="store_true"'),
        ("args.gpus > 1", "not args.one"),
    ],
    "a method that wraps": [
        ("def main():\n    args = options()\n", """class Wrapper:
    def __init__(self, args):
        self.args = args

    def wrapped(self, model):
        if self.args.gpus > 1:
            if self.args.spread:
                return nn.parallel.DistributedDataParallel(model)
            model = nn.DataParallel(model)
        return model


def main():
    args = options()
"""),
        ("""    if args.gpus > 1:
        if args.spread:
            model = nn.parallel.DistributedDataParallel(model)
        else:
            model = nn.DataParallel(model)
""", "    model = Wrapper(args).wrapped(model)\n"),
    ],
}  # fmt: skip


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("alone", [False, True], ids=["several", "alone"])
@pytest.mark.parametrize("name", COUNTS)
def test_an_option_for_one_gpu_trains_on_one_beside_a_branch(lab: Lab, name: str, alone: bool) -> None:
    text = COUNTED
    for old, new in COUNTS[name]:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    options = [] if not alone else ["--one"] if name == "a flag" else ["--gpus", "1"]
    (change,) = convert(Project.of({PATH: text})).changes
    how = {"launcher": "plain", "recorded": False, "timeout": 60}
    before, after = (
        lab.run(write(lab, side, it), options, **(how | more if alone else more)).ok()
        for side, it, more in (
            ("before", text, {} if alone else {"replicas": 2}),
            ("after", change.after, {"processes": 2}),
        )
    )
    assert after.printed == before.printed != ""
    had, has = (weights(it.folder / "model.pt") for it in (before, after))
    for key in had:
        torch.testing.assert_close(has[key], had[key])
    assert alone or differences(before, after, losses=False) == []


ASKS = [
    ("    torch.manual_seed(3)\n", '    torch.manual_seed(3)\n    several = int(os.environ.get("WORLD_SIZE", 1))\n'),
    ("torch.randn(60, 8), torch.randint(2, (60,))", "torch.randn(60 // several, 8), torch.randint(2, (60 // several,))"),
    ("import argparse", "import argparse\nimport os"),
]  # fmt: skip


@pytest.mark.parametrize("launcher", ["warm", "warm torchrun"])
def test_a_program_that_asks_how_many_processes_there_are_trains_on_all_data(lab: Lab, launcher: str) -> None:
    """However it is started: it has no ranks of its own that could divide the data."""
    text = PROGRAM
    begin, end = text.index("    if args.spread"), text.index("def wrapped")
    text = text[:begin] + "    worker(-1, args)\n\n\n" + text[end:]
    begin, end = text.index("    if several:\n        model.to"), text.index("    elif device.type")
    text = text[:begin] + text[end:].replace("elif", "if", 1)
    begin, end = text.index("    if args.several:\n        dist.init"), text.index("    model = wrapped")
    text = text[:begin] + text[end:].replace("        if args.several:\n            dist.barrier()\n", "")
    for old, new in ASKS:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (change,) = convert(Project.of({PATH: text}), exact=True).changes
    before = lab.run(write(lab, "before", text), replicas=2, timeout=60).ok()
    after = lab.run(write(lab, "after", change.after), processes=2, launcher=launcher, timeout=60).ok()
    assert after.printed == before.printed and differences(before, after, losses=False) == []


APEX_STEPS = {
    "a parameter that no loss reaches": [],
    "sent at the end": [("DDP(model)", "DDP(model, message_size=250000000, delay_allreduce=True)")],
    "divided before": [("DDP(model)", "DDP(model, gradient_predivide_factor=dist.get_world_size())")],
    "other parameters at every step": [
        ("DDP(model)", "DDP(model, delay_allreduce=True)"),
        ("return self.head(self.features(inputs))", "return self.pooled(self.features(inputs))"),
        (
            "    def forward",
            "    def pooled(self, found):\n        self.count = getattr(self, 'count', 0) + 1\n"
            "        return self.head(self.pooler(found) if self.count % 2 else found)\n\n    def forward",
        ),
    ],
    "outputs that the loss leaves out": [
        ("return self.head(self.features(inputs))", "found = self.features(inputs)\n        return self.head(found), self.pooler(found)"),
        ("model(inputs.to(device))", "model(inputs.to(device))[0]"),
    ],
    "a part that does not train": [("    model = wrapped(Net().to(device), args)\n", "    net = Net().to(device)\n    for it in net.features.parameters():\n        it.requires_grad = False\n    model = wrapped(net, args)\n")],
    "gradients added up over steps": [
        ("            optimizer.zero_grad()\n", ""),
        ("        for inputs, targets in loader:", "        for step, (inputs, targets) in enumerate(loader):"),
        ("            optimizer.step()\n", "            if step % 2:\n                optimizer.step()\n                optimizer.zero_grad()\n"),
    ],
}  # fmt: skip


@pytest.mark.sample(processes=2, every=3)
@pytest.mark.parametrize("processes", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", APEX_STEPS)
def test_ranks_of_apex_s_become_torch_s(lab: Lab, name: str, processes: int) -> None:
    """They make the same steps to the last bit, two of them, and keep buffers of their own.

    What has no gradient does not decay.
    """
    text = APEX_RANKS.replace("momentum=0.9", "momentum=0.9, weight_decay=0.01")
    for old, new in APEX_STEPS[name]:
        assert old in text, old
        text = text.replace(old, new)
    (change,) = convert(Project.of({PATH: text})).changes
    assert "apex" not in change.after
    before, after = (
        lab.run(
            write(lab, side, it), ["--several"], launcher="warm torchrun", processes=processes, timeout=60
        ).ok()
        for side, it in (("before", text), ("after", change.after))
    )
    assert len(before.ranks) == processes and all(rank["steps"] > 1 for rank in before.ranks)
    for one, other in zip(before.ranks, after.ranks, strict=True):
        for place, (had, has) in enumerate(zip(one["parameters"], other["parameters"], strict=True)):
            assert torch.equal(had, has) if processes == 2 else (had - has).abs().max() < 1e-12, place
    for rank in range(processes):
        had, has = (weights(it.folder / f"weights{rank}.pt") for it in (before, after))
        torch.testing.assert_close(has, had, rtol=0, atol=0 if processes == 2 else 1e-12)
    first, last = (weights(after.folder / f"weights{rank}.pt") for rank in (0, processes - 1))
    assert not torch.equal(first["features.1.running_mean"], last["features.1.running_mean"])


def test_the_other_branch_of_apex_s_ranks_makes_its_steps(lab: Lab) -> None:
    (change,) = convert(Project.of({PATH: APEX_RANKS})).changes
    before = lab.run(write(lab, "before", APEX_RANKS), replicas=2, timeout=60).ok()
    after = lab.run(write(lab, "after", change.after), processes=2, timeout=60).ok()
    assert len(after.ranks) == 2 and differences(before, after, losses=False) == []


def test_ranks_of_apex_s_get_torch_s_mixed_precision_too(lab: Lab) -> None:
    """Gradients are averaged while they are scaled, by the same scale in both."""
    text = APEX_RANKS
    scaled = (
        "            with amp.scale_loss(loss, optimizer) as scaled:\n                scaled.backward()\n"
    )
    start = '    net, optimizer = amp.initialize(net, optimizer, opt_level="O1")\n    model = wrapped(net, args)\n'
    for old, new in [
        ("import torch\n", "import torch\nfrom apex import amp\n"),
        ("    model = wrapped(Net().to(device), args)\n", "    net = Net().to(device)\n"),
        ("torch.optim.SGD(model", "torch.optim.SGD(net"),
        ("    for epoch", f"{start}    for epoch"),
        ("            loss.backward()\n", scaled),
    ]:
        assert old in text, old
        text = text.replace(old, new, 1)
    (change,) = convert(Project.of({PATH: text})).changes
    after = change.after.replace('GradScaler("cuda"', 'GradScaler("cpu"')
    assert after != change.after and "apex" not in after
    single = {"float64": False, "launcher": "warm torchrun", "processes": 2, "env": {"APEX_SCALE": "1024"}}
    before = lab.run(write(lab, "before", text), ["--several"], **single).ok().ranks
    after = lab.run(write(lab, "after", after), ["--several"], **single).ok().ranks
    for one, other in zip(before, after, strict=True):
        assert one["steps"] == other["steps"] > 4
        torch.testing.assert_close(other["parameters"], one["parameters"], rtol=0, atol=1e-6)


def started(lab: Lab, text: str, spelling: Spelling, *, own: bool, **how: object) -> Run:
    """A run of one side of a program, in its DataParallel branch or in ranks of its ``own``."""
    folder = lab.place("own" if own else "branch")
    script, url = folder / "train.py", f"tcp://127.0.0.1:{free_port()}"
    script.write_text(text)
    options = dict(spelling.options) if own else {"dist": False, "num_gpu": 2}
    (folder / "options.json").write_text(json.dumps(options).replace("URL", url))
    arguments = [it.replace("URL", url) for it in spelling.start if own and it != "torchrun"]
    return lab.run(script, arguments, folder=folder, timeout=120, **how).ok()


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("name", SPELLINGS)
def test_however_a_branch_is_chosen_dataparallel_makes_its_steps(lab: Lab, name: str) -> None:
    spelling = SPELLINGS[name]
    (change,) = convert(Project.of({PATH: spelling.text})).changes
    before = started(lab, spelling.text, spelling, own=False, replicas=2)
    after = started(lab, change.after, spelling, own=False, processes=2)
    assert len(after.ranks) == 2 and after.printed == before.printed != ""
    assert differences(before, after, losses=False) == []


LATE = "processes that are spawned, and an option that is read late"


@pytest.mark.sample("the local rank", "trainers in a table", "whether a variable is there")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (not spelling.is_launched and name != LATE))
        for name, spelling in SPELLINGS.items()
    ],
)
def test_however_a_branch_is_chosen_ranks_of_its_own_train_as_they_did(lab: Lab, name: str) -> None:
    """Under torchrun all of them go on; of those that were started before the program starts its own, one does."""
    spelling = SPELLINGS[name]
    (change,) = convert(Project.of({PATH: spelling.text})).changes
    how = {"launcher": "warm torchrun"} if spelling.is_launched else {"launcher": "plain", "recorded": False}
    before, after = (
        started(lab, text, spelling, own=True, processes=2, **how) for text in (spelling.text, change.after)
    )
    # before the program is in its own branch, the main process alone is heard
    assert set(after.printed.splitlines()) == set(before.printed.splitlines()) != set()
    had, has = (weights(it.folder / "weights.pt") for it in (before, after))
    assert all(torch.equal(had[key], has[key]) for key in had) and had.keys() == has.keys()
    for one, other in zip(before.ranks, after.ranks, strict=True):
        assert one["steps"] == other["steps"] > 1


def of_fixture(lab: Lab, name: str, side: str, arguments: list[str], **how: object) -> Run:
    script = FIXTURES / name / side / "train.py"
    return lab.run(script, arguments, processes=2, timeout=120, **how).ok()


def test_ranks_that_a_launcher_starts_for_a_fixture_s_own_branch_train_as_they_did(lab: Lab) -> None:
    arguments = ["--launcher", "pytorch"]
    before, after = (
        of_fixture(lab, "option_branch", side, arguments, launcher="warm torchrun", gpus=2)
        for side in ("before", "after")
    )
    said, shown = (  # two ranks print at once: a line's end may come after the other's line
        sorted(re.findall(r"[a-z]+|[0-9.]+", it.printed)) for it in (before, after)
    )
    assert shown == said and "psnr" in shown
    for one, other in zip(before.ranks, after.ranks, strict=True):
        assert [*map(torch.equal, one["parameters"], other["parameters"])] == [True] * 20


@pytest.mark.slow
def test_ranks_that_a_fixture_spawns_train_as_they_did(lab: Lab) -> None:
    runs = []
    for side in ("before", "after"):
        own = [
            "MULTIPROCESSING",
            "True",
            "DIST_BACKEND",
            "gloo",
            "DIST_URL",
            f"tcp://127.0.0.1:{free_port()}",
        ]
        arguments = ["--set", "ROOT", str(lab.data()), "SEED", "3", *own]
        runs.append(of_fixture(lab, "spawn_branch", side, arguments, launcher="plain", recorded=False))
    before, after = runs
    assert numbers(after.printed) == numbers(before.printed) and len(numbers(before.printed)) == 4
    had, has = (weights(it.folder / "last.pth") for it in runs)
    assert had["epoch"] == has["epoch"] and all(
        torch.equal(had["model"][it], has["model"][it]) for it in had["model"]
    )


SHARED = """\
import torch


def setup(args):
    if args.local_rank == -1:
        args.n_gpu = torch.cuda.device_count()
    else:
        torch.distributed.init_process_group("gloo")
        args.n_gpu = 1


def wrap(model, n_gpu, local_rank):
    if n_gpu > 1:
        model = torch.nn.DataParallel(model)
    if local_rank != -1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    return model
"""
BESIDE = """\
import os
from types import SimpleNamespace

import torch
from torch import nn

from util import setup, wrap


def main():
    args = SimpleNamespace(local_rank=int(os.environ.get("LOCAL_RANK", "-1")))
    setup(args)
    torch.manual_seed(0)
    model = wrap(nn.Linear(4, 1), args.n_gpu, args.local_rank)
    data = torch.randn(32, 4) + max(args.local_rank, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for start in range(0, 32, 8):
        loss = (model(data[start : start + 8]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with open(f"found{args.local_rank}.txt", "w") as file:
        file.write(str(loss.item()))
    if args.local_rank != -1:
        torch.distributed.destroy_process_group()
        os._exit(0)  # gloo's threads can abort a process as Python ends (pytorch issue 190489)


if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
def test_a_program_that_is_not_converted_shares_the_file_that_wraps(tmp_path: Path) -> None:
    """Its own ranks have DistributedDataParallel alone, as before."""
    texts = {"util.py": SHARED, "train.py": BESIDE, "other.py": BESIDE}
    found = []
    for side in ("before", "after"):
        folder = tmp_path / side
        folder.mkdir()
        for name, text in texts.items():
            (folder / name).write_text(text)
        if side == "after":
            for change in convert(read([folder / "train.py"])).changes:
                change.path.write_text(change.after)
            assert "ddp.DistributedDataParallel" in (folder / "util.py").read_text()
            assert (folder / "other.py").read_text() == BESIDE
        run = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
            "other.py",
        ]
        more = {"PYTHONPATH": str(REPOSITORY)}
        done = subprocess.run(run, cwd=folder, env=environment() | more, capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr.decode()
        found.append([(folder / f"found{rank}.txt").read_text() for rank in range(2)])
    assert found[0] == found[1]


RESUMES = """\
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--distributed", action="store_true")
parser.add_argument("--resume", default="")
args = parser.parse_args()


def load(net, path):
    net.load_state_dict(torch.load(path))


def main():
    model = nn.Linear(8, 2)
    if args.distributed:
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
        if args.resume:
            LOAD
            print("resumed", model.module.bias.tolist())
    else:
        model = nn.DataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
    for x, y in DataLoader(data, batch_size=16):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    if not args.distributed or dist.get_rank() == 0:
        torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "load",
    [
        "model.load_state_dict(torch.load(args.resume))",
        "print(model.load_state_dict(torch.load(args.resume), strict=False))",
        "load(model, args.resume)",
    ],
)
def test_what_the_distributed_branch_alone_loads_are_bare_checkpoints_and_old_ones(
    lab: Lab, tmp_path: Path, load: str
) -> None:
    (change,) = convert(Project.of({PATH: RESUMES.replace("LOAD", load)})).changes
    saved = lab.run(write(lab, "after", change.after), processes=2).ok().folder / "model.pt"
    state = torch.load(saved)
    assert set(state) == {"weight", "bias"}
    torch.save({f"module.{name}": value for name, value in state.items()}, tmp_path / "old.pt")
    (tmp_path / "train.py").write_text(change.after)
    for path in (saved, tmp_path / "old.pt"):
        command = [sys.executable, "train.py", "--distributed", "--resume", str(path)]
        ranks = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        env = {**environment(), "PYTHONPATH": str(REPOSITORY), **ranks}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert f"resumed {state['bias'].float().tolist()}" in done.stdout
        assert set(torch.load(tmp_path / "model.pt")) == {"weight", "bias"}
