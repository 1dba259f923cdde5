"""Programs of both tiers train as nn.DataParallel did, whatever their loss is and however their batches are drawn.

Nothing is planned here: with one seed a converted program draws by itself what the original draws.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import LOADER, PATH, PROGRAM, SHARDED_LOADERS, WHOLE_BATCH

from dp2ddp.convert import convert
from dp2ddp.source import Project
from parity import compare
from parity.harness import FIXTURES, Lab, Run

CHECKPOINTS = {"contrastive": "models/last.pth", "weighted_sampler": "best.pth.tar"}
SEED = "torch.manual_seed(3)\n"
SEEDED = PROGRAM.replace("data = ", SEED + "data = ", 1)


def write(lab: Lab, name: str, text: str) -> Path:
    path = lab.place(name) / "train.py"
    path.write_text(text)
    return path


def runs(lab: Lab, text: str, processes: int, **options: bool) -> tuple[Run, Run]:
    """A program on so many replicas, and converted on so many processes."""
    text = text.replace("data = ", SEED + "data = ", 1)
    conversion = convert(Project.of({PATH: text}), **options)
    assert not conversion.errors, conversion.errors
    before = lab.run(write(lab, "before", text), replicas=processes, timeout=60).ok()
    after = lab.run(write(lab, "after", conversion.changes[0].after), processes=processes, timeout=60).ok()
    return before, after


def differences(before: Run, after: Run, losses: bool = True) -> list[str]:
    """Where a rank's steps are not the original's: ``losses`` where each rank has that of the whole batch."""
    (expected,) = before.ranks
    found = []
    if not expected["parameters"]:
        found.append("nothing was trained")
    for notes in after.ranks:
        who = f"rank {notes['rank']}"
        if notes["steps"] != expected["steps"]:
            found.append(f"{who} made {notes['steps']} steps, not {expected['steps']}")
        for step, (one, other) in enumerate(zip(expected["parameters"], notes["parameters"], strict=False)):
            worst = (one - other).abs().max().item()
            if not worst <= 1e-12:
                found.append(f"{who}, step {step}: parameters differ by {worst:.2g}")
                break
        pairs = zip(expected["losses"], notes["losses"], strict=False) if losses else ()
        for step, (one, other) in enumerate(pairs):
            if not abs(one - other) <= 1e-9:
                found.append(f"{who}, step {step}: loss {other!r}, not {one!r}")
                break
    return found


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("name", WHOLE_BATCH)
def test_whole_batches_make_dataparallel_s_steps(lab: Lab, name: str, processes: int) -> None:
    """Losses and parameters of every rank, also where 16 samples are cut for three."""
    before, after = runs(lab, WHOLE_BATCH[name].text, processes)
    assert len(after.ranks) == processes
    assert differences(before, after) == []


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("name", SHARDED_LOADERS)
def test_sharded_loaders_make_dataparallel_s_steps(lab: Lab, name: str, processes: int) -> None:
    before, after = runs(lab, PROGRAM.replace(LOADER, SHARDED_LOADERS[name]), processes)
    assert len(after.ranks) == processes
    assert differences(before, after, losses=False) == []


@pytest.mark.parametrize("processes", [2, 3, 4])
def test_the_batch_exact_form_makes_dataparallel_s_steps(lab: Lab, processes: int) -> None:
    """With batches of 10, which no number of these divides, and an uneven last one."""
    before, after = runs(lab, PROGRAM.replace("batch_size=16", "batch_size=10"), processes, exact=True)
    assert differences(before, after, losses=False) == []


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize(("name", "checkpoint"), CHECKPOINTS.items())
def test_fixtures_make_dataparallel_s_steps(lab: Lab, name: str, checkpoint: str, processes: int) -> None:
    """In batches of 32, and an uneven last one; with what they print and save."""
    arguments = lab.arguments()
    script = FIXTURES / name / "before" / "train.py"
    before = lab.run(script, arguments, replicas=processes).ok()
    after = lab.run(lab.converted(name) / "train.py", arguments, processes=processes).ok()
    assert differences(before, after, losses=name == "contrastive") == []
    assert printed(after) == printed(before) != []
    pair = before.load(checkpoint), after.load(checkpoint)
    assert compare.checkpoints(*pair, tolerance=1e-9) == []
    assert before.files() == after.files()


def printed(run: Run) -> list[str]:
    """The lines that are the same in every run."""
    return [line for line in run.printed.splitlines() if "total time" not in line]


def test_mistakes_are_seen(lab: Lab) -> None:
    """A loss over the whole batch computed from parts, and ranks that draw each their own batches."""
    text = WHOLE_BATCH["similarities between samples"].text
    before, _ = runs(lab, text, 2)
    (sharded,) = convert(Project.of({PATH: SEEDED})).changes
    (whole,) = convert(Project.of({PATH: text.replace("data = ", SEED + "data = ", 1)})).changes
    loss = next(line for line in whole.after.splitlines() if "loss = " in line)
    given = next(line for line in sharded.after.splitlines() if "loss = " in line)
    for mistaken in (
        sharded.after.replace(given, loss),
        whole.after.replace(SEED, SEED + "torch.manual_seed(3 + ddp.get_rank())\n"),
    ):
        run = lab.run(write(lab, "mistaken", mistaken), processes=2, timeout=60).ok()
        assert any("parameters differ" in line for line in differences(before, run))
