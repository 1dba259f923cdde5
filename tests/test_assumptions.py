"""What is not proven and not refuted is an assumption: it is said, taken as true if asked for, and tested."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from assumed import BREAKING, HOLDING, REFUTED, Planted
from command import Done, here
from forms import ungathered as convert
from parity.harness import Lab
from programs import PATH

from dp2ddp.source import Project

UNPROVEN = {**HOLDING, **BREAKING}
COLLATED = {it for it in UNPROVEN if it.startswith("samples ")}
QUICK = ("a mean of losses", "samples that are scaled", "a sum of losses", "rows less their mean")


@pytest.fixture
def command(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """Runs ``dp2ddp`` in this process and a folder of its own, with the tests' own server to start runs."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    called = here(lab.warm, monkeypatch, capsys)

    def run(text: str, *arguments: str) -> Done:
        Path("train.py").write_text(text)
        return called(*arguments)

    return run


@pytest.mark.parametrize("name", UNPROVEN)
def test_what_is_not_known_is_said_at_the_place_of_its_cause(name: str) -> None:
    program = UNPROVEN[name]
    plain = convert(Project.of({PATH: program.text}))
    (found,) = plain.scripts
    conversion = convert(Project.of({PATH: program.text}), sharded=True)
    assert not conversion.errors
    (taken,) = conversion.scripts
    ((place, text),) = taken.assumptions
    assert taken.tier == "sharded" and taken.is_assumed
    assert program.says in text
    assert program.line in program.text.splitlines()[place.span.line - 1]
    if name in COLLATED:  # whole batches are collated, and then divided
        assert found.tier == "sharded" and "ddp.local_batch(" in plain.changes[0].after
    else:
        assert found.tier == "whole batch" and found.reasons and found.assumptions == taken.assumptions
    after = conversion.changes[0].after
    assert "DistributedSampler(" in after and "ddp.DistributedDataParallel(" in after


@pytest.mark.parametrize("name", REFUTED)
def test_what_is_known_to_be_in_the_way_is_not_assumed_away(name: str) -> None:
    project = Project.of({PATH: REFUTED[name].text})
    (found,) = convert(project).scripts
    assert not found.assumptions
    proven, assumed = convert(project), convert(project, sharded=True)
    assert proven.changes == assumed.changes and proven.findings == assumed.findings


def test_marks_stand_where_something_is_assumed() -> None:
    text = HOLDING["a mean of losses"].text
    after = convert(Project.of({PATH: text}), sharded=True, mark=True).changes[0].after
    mark = r"\n        # dp2ddp: assumes: `hidden\(.*\)` is a mean over the samples of the batch\n        loss = hidden"
    assert re.search(mark, after)
    assert "# dp2ddp" not in convert(Project.of({PATH: text}), mark=True).changes[0].after
    assert "# dp2ddp" not in convert(Project.of({PATH: text}), sharded=True).changes[0].after


def test_a_cause_is_said_once() -> None:
    """A function of three losses, and what is reported of them."""
    text = HOLDING["each number by itself"].text.replace(
        "        loss.backward()",
        "        loss = loss + 2 * criterion(-outputs, targets)\n        loss.backward()",
    )
    (found,) = convert(Project.of({PATH: text}), sharded=True).scripts
    assert found.tier == "sharded" and len(found.assumptions) == 1


def test_a_loss_that_is_assumed_is_reported_as_one() -> None:
    text = HOLDING["a mean of losses"].text + "        print(loss.item())\n"
    after = convert(Project.of({PATH: text}), sharded=True).changes[0].after
    assert "print(ddp.batch_loss(loss).item())" in after


def test_the_summary_says_what_would_shard_a_program(command: Callable[..., Done]) -> None:
    done = command(HOLDING["a mean of losses"].text, "convert", "--no-gather", "train.py")
    assert "  sharded if 1 assumption holds: dp2ddp convert --sharded train.py\n" in done.err
    assert "dp2ddp convert --prove train.py\n" in done.err
    done = command(HOLDING["a mean of losses"].text, "convert", "--no-gather", "train.py", "--sharded")
    assert "sharded, by 1 assumption: each rank loads its part of every batch\n" in done.err
    assert re.search(
        r"\n  train.py:\d+ assumes: `hidden\(.*` is a mean over the samples of the batch\n", done.err
    )
    assert "DDP501" not in done.err


def check(command: Callable[..., Done], program: Planted, holds: bool) -> None:
    done = command(program.text, "convert", "--no-gather", "--prove", "train.py", "--inplace")
    said = done.err + done.out
    after = Path("train.py").read_text()
    assert done.code == 0, said
    if holds:
        assert "measured: MATCH over 8 steps on 2 processes" in said
        assert re.search("measured: MATCH over 8 steps on [34] processes", said)
        assert "so train.py is sharded\n" in said
        assert "DistributedSampler(" in after and "ddp.DistributedDataParallel(" in after
    else:
        told = ("INCONCLUSIVE", "not tested") if "nn.DataParallel" == program.line else ("DIFFERS", "broken")
        assert f"measured: {told[0]}" in said and f"measured: {told[1]}: train.py:" in said
        assert "DistributedSampler" not in after
        if "ddp.local_batch(" in after:  # of batches that every rank collates whole, nothing is assumed
            assert "so train.py is sharded, without them\n" in said
        else:
            assert "so train.py is whole batch\n" in said and "ddp.DataParallel(" in after


@pytest.mark.parametrize("name", [name for name in HOLDING if name in QUICK])
def test_what_holds_is_sharded(name: str, command: Callable[..., Done]) -> None:
    check(command, HOLDING[name], holds=True)


@pytest.mark.parametrize("name", [name for name in BREAKING if name in QUICK])
def test_what_does_not_hold_is_not(name: str, command: Callable[..., Done]) -> None:
    check(command, BREAKING[name], holds=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in UNPROVEN if name not in QUICK])
def test_every_planted_truth_is_found(name: str, command: Callable[..., Done]) -> None:
    check(command, UNPROVEN[name], holds=name in HOLDING)


def test_nothing_is_run_where_no_assumption_helps(command: Callable[..., Done]) -> None:
    done = command(
        REFUTED["a permutation beside something unknown"].text,
        *("convert", "--no-gather", "--prove", "train.py", "--inplace"),
    )
    assert "measured: nothing, as no assumption is needed or helps" in done.err
    assert "step" not in done.err
    assert "ddp.DataParallel(" in Path("train.py").read_text()


def test_one_program_is_tested_at_a_time(command: Callable[..., Done]) -> None:
    text = HOLDING["a mean of losses"].text
    Path("other.py").write_text(text)
    done = command(text, "convert", "--no-gather", "--prove", "train.py", "other.py")
    assert done.code == 2 and "one script at a time, of other.py, train.py" in done.err
    done = command(text, "convert", "--no-gather", "--prove", "-")
    assert done.code == 2 and "not allowed with standard input" in done.err
    done = command(text, "convert", "--no-gather", "--prove", "--sharded", "train.py")
    assert done.code == 2 and "not allowed with" in done.err


def test_what_stands_after_the_dashes_is_the_programs(command: Callable[..., Done]) -> None:
    """Here it decides whether what is assumed holds."""
    begin = "import sys\n\n"
    text = begin + BREAKING["a sum of losses"].text.replace("reduction='sum') / 16", "reduction=sys.argv[1])")
    done = command(text, "convert", "--no-gather", "--prove", "train.py", "--", "mean")
    assert "so train.py is sharded" in done.err, done.err
    assert "measured: MATCH over 8 steps on 3 processes" in done.err
    done = command(text, "convert", "--no-gather", "--prove", "train.py", "--", "sum")
    assert "so train.py is whole batch" in done.err, done.err


def test_verify_tests_what_is_assumed(command: Callable[..., Done]) -> None:
    done = command(
        BREAKING["a sum of losses"].text, "verify", "--no-gather", "--sharded", "train.py", "--steps", "4"
    )
    assert done.code == 1 and done.out.startswith("DIFFERS at step 1")
    assert re.search(r"broken: train.py:\d+ assumes: `hidden\(outputs", done.out)


TWO_LOSSES = """
        if sys.argv[1] != "mean":
            loss = hidden(outputs, targets.cuda(), "sum")
        if sys.argv[1] != "sum":
            loss = hidden(outputs, targets.cuda(), "mean")"""


def test_what_a_program_does_not_run_is_not_tested(command: Callable[..., Done]) -> None:
    """Two assumptions, of which the arguments choose one, the other, or both."""
    text = "import sys\n\n" + BREAKING["a sum of losses"].text
    text = text.replace("\n        loss = hidden(outputs, targets.cuda())", TWO_LOSSES)
    text = text.replace("def function(o, t)", "def function(o, t, r)").replace(
        "reduction='sum') / 16", "reduction=r)"
    )
    summed, averaged = (text.splitlines().index(line) + 1 for line in TWO_LOSSES.splitlines()[2::2])
    verified = ("verify", "--no-gather", "--sharded", "train.py", "--steps", "4", "--processes", "2", "--")
    done = command(text, *verified, "sum")
    assert f"\nbroken: train.py:{summed} assumes" in done.out
    assert f"\nnot reached: train.py:{averaged} assumes" in done.out
    done = command(text, *verified, "mean")
    assert done.out.startswith("MATCH")
    assert f"\nheld: train.py:{averaged} assumes" in done.out
    assert f"\nnot reached: train.py:{summed} assumes" in done.out
    done = command(text, *verified, "both")
    assert done.out.startswith("MATCH") or f"\nmay be broken: train.py:{summed} assumes" in done.out
    done = command(text, "convert", "--no-gather", "--prove", "train.py", "--inplace", "--", "mean")
    assert "so train.py is whole batch: not every assumption was reached" in done.err
    assert "ddp.DataParallel(" in Path("train.py").read_text()


HALVES = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 3)

    def forward(self, x, other):
        return self.body(x), self.body(other)


def pairs(batch):
    images, labels = [], []
    for x, y in batch:
        images += [x, -x]
        labels += [int(y), int(y)]
    return torch.stack(images), labels


torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(15, 4), torch.randint(3, (15,))), batch_size=4, shuffle=True, collate_fn=pairs)
model = nn.DataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
for epoch in range(2):
    for x, y in loader:
        y = torch.tensor(y)
        optimizer.zero_grad()
        whole, half = model(x, x[0:-1:2])
        loss = LOSS
        loss.backward()
        optimizer.step()
"""


@pytest.mark.sample(every=2)
@pytest.mark.parametrize(
    ("loss", "why"),
    [
        ("criterion(whole, y) + criterion(half, y[0:y.size(0):2])", "the original fails on as many replicas"),
        (
            "whole.pow(2).mean() + half.pow(2).mean()",
            "nn.DataParallel leaves samples out on as many replicas",
        ),
    ],
)
def test_replicas_among_which_the_original_does_not_divide_its_batches_accuse_nobody(
    command: Callable[..., Done], loss: str, why: str
) -> None:
    """Arguments of 8 and 4 rows are 3 and 2 parts on 3 replicas: torch leaves out what is over."""
    text = HALVES.replace("LOSS", loss)
    done = command(text, "verify", "--no-gather", "--sharded", "train.py", "--steps", "4")
    assert done.out.startswith("MATCH"), done.out
    assert "on 2 processes" in done.out and "on 4 processes" in done.out
    assert "broken" not in done.out and "held: " in done.out
    assert f"not on 3 processes: {why}" in done.err
    done = command(text, "verify", "--no-gather", "--sharded", "train.py", "--steps", "4", "--processes", "3")
    assert done.code == 3 and "not tested: " in done.out and "broken" not in done.out
