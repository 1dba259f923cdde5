"""Programs train as nn.DataParallel did, and print the same, whatever puts their batches together or asks about them."""

from __future__ import annotations

import re

import pytest
from batches import CASES, FITTING, HEAD, TAIL

from dp2ddp.convert import convert
from dp2ddp.source import Project
from parity.harness import Lab, Run
from parity.test_tier_training import PATH, differences, seeded, write

PROCESSES = [2, pytest.param(3, marks=pytest.mark.slow)]
# Those of which three processes would have failed, or have no equal parts.
THREE = {
    "a sample by its number",
    "a label by its number",
    "an accuracy without a tensor",
    "padding to the longest",
}
# What torch's CTC refuses: it is converted, and stops as before.
STOPS = {"speech, not turned", "speech, turned elsewhere"}
UNEVEN = {
    "ten": ("", "batch_size=10"),
    "eleven and the rest dropped": ("", "batch_size=11, drop_last=True"),
    "five": ("", "batch_size=5"),
    "a sum": ("nn.CrossEntropyLoss(reduction='sum')", "batch_size=10"),
    "class weights": ("nn.CrossEntropyLoss(torch.tensor([1.0, 3.0]))", "batch_size=10"),
    "workers": ("", "batch_size=10, num_workers=1"),
}


def trained(lab: Lab, text: str, processes: int) -> tuple[Run, Run]:
    text = seeded(text)
    conversion = convert(Project.of({PATH: text}))
    assert not conversion.errors, conversion.errors
    found = []
    for kind, code, options in (
        ("before", text, {"replicas": processes}),
        ("after", conversion.changes[0].after, {"processes": processes}),
    ):
        path = write(lab, kind, code)
        (path.parent / "fitting.py").write_text(FITTING)
        (path.parent / "scales.csv").write_text("0.5\n2.0\n")
        found.append(lab.run(path, timeout=60, folder=path.parent, **options).ok())
    return found[0], found[1]


@pytest.mark.sample(processes=(2, 3), every=7)
@pytest.mark.parametrize(
    ("name", "processes"),
    [*((name, 2) for name in CASES if name not in STOPS), *((name, 3) for name in sorted(THREE))],
)
def test_what_batches_are_made_of_changes_no_step(lab: Lab, name: str, processes: int) -> None:
    before, after = trained(lab, CASES[name].text, processes)
    assert len(after.ranks) == processes
    assert differences(before, after, losses=False) == []
    assert rounded(after.printed) == rounded(before.printed)


@pytest.mark.sample(processes=3, every=3)
@pytest.mark.parametrize("name", UNEVEN)
@pytest.mark.parametrize("processes", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_batches_that_the_processes_do_not_divide_are_dealt_all_the_same(
    lab: Lab, name: str, processes: int
) -> None:
    """With an uneven last batch; the numbers that are printed count every sample once."""
    loss, size = UNEVEN[name]
    text = HEAD.replace("48", "44") + f"loader = DataLoader(data, {size})\n" + TAIL
    text = text.replace("for epoch in range(2):\n", "for epoch in range(2):\n    right = seen = 0\n")
    text = text.replace("nn.CrossEntropyLoss()", loss or "nn.CrossEntropyLoss()").replace("lr=0.1", "lr=0.02")
    text += "        right += (outputs.argmax(1) == targets).sum().item()\n        seen += len(targets)\n"
    text += "    print(right, seen, len(loader), len(loader.dataset))\n"
    before, after = trained(lab, text, processes)
    assert len(after.ranks) == processes
    assert differences(before, after, losses=False) == []
    assert after.printed == before.printed != ""


def rounded(printed: str) -> str:
    return re.sub(r"\d+\.\d+", lambda found: f"{float(found[0]):.6f}", printed)
