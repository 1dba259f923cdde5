"""Rounds that need the whole batch behind the forward train to the same numbers, those printed included."""

from __future__ import annotations

import pytest
from joints import APART, HEAD, JOINED
from own_batches import with_steps
from programs import PATH

from dp2ddp.convert import convert
from dp2ddp.source import Project
from parity.harness import Lab
from parity.test_own_batches import trains_alike


@pytest.mark.sample(processes=(2, 3), every=4)
@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("name", JOINED)
def test_parts_are_joined_behind_the_forward(lab: Lab, name: str, processes: int) -> None:
    text = with_steps(HEAD, JOINED[name])
    conversion = convert(Project.of({PATH: text}))
    (script,) = conversion.scripts
    assert script.tier == "sharded", [it.message for it in conversion.findings]
    assert "ddp.whole_batch(" in conversion.changes[0].after
    trains_alike(lab, text, processes, exact=True)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", APART)
def test_what_cannot_be_joined_trains_alike_all_the_same(lab: Lab, name: str) -> None:
    text = with_steps(HEAD, APART[name])
    (script,) = convert(Project.of({PATH: text})).scripts
    assert not any("ddp.whole_batch" in how for _, how in script.dealt)
    trains_alike(lab, text, 3, exact=True)
