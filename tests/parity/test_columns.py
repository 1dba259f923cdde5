"""Sequences side by side are divided by columns, and train to the same numbers, those that are printed included."""

from __future__ import annotations

import pytest
from columns import DIVIDED, HEAD, WHOLE
from own_batches import with_steps
from programs import PATH

from dp2ddp.convert import convert
from dp2ddp.source import Project
from parity.harness import Lab
from parity.test_own_batches import trains_alike


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("name", DIVIDED)
def test_they_are_divided(lab: Lab, name: str, processes: int) -> None:
    text = with_steps(HEAD, DIVIDED[name])
    conversion = convert(Project.of({PATH: text}))
    (script,) = conversion.scripts
    assert script.tier == "sharded", [it.message for it in conversion.findings]
    trains_alike(lab, text, processes)


@pytest.mark.parametrize("name", WHOLE)
def test_what_looks_like_it_stays_whole(name: str) -> None:
    (script,) = convert(Project.of({PATH: with_steps(HEAD, WHOLE[name])})).scripts
    assert script.tier == "whole batch"


OPTION = """import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--multi", action="store_true")
args = parser.parse_args()
"""
WRAP = "model = nn.DataParallel(net, dim=1)\n"
HALF = "    model = nn.DataParallel(net, dim=1) if len(text) > 9 else net\nelse:\n    model = net\n"
CHOSEN = WRAP.replace("model", "    model") + "else:\n    model = net\n"


@pytest.mark.parametrize(
    ("asked", "tier"),
    [
        ("args.multi", "sharded"),
        ("args.multi and len(text) > 9", "whole batch"),
        ("len(text) > 9", "whole batch"),
    ],
)
def test_columns_are_taken_before_the_wrap(asked: str, tier: str) -> None:
    text = OPTION + with_steps(HEAD, DIVIDED["as usual"]).replace(WRAP, f"if {asked}:\n{CHOSEN}")
    (script,), (change,) = (conversion := convert(Project.of({PATH: text}))).scripts, conversion.changes
    assert script.tier == tier
    half = text.replace(CHOSEN, HALF)
    assert [it.tier for it in convert(Project.of({PATH: half})).scripts] == ["whole batch"]
    assert ("ddp.local_batch(batchify(text, WIDTH), dim=1)" in change.after) is (tier == "sharded")
