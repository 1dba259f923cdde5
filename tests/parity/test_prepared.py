"""Batches that are worked on as a whole are divided afterwards, and train to the same numbers, those printed included."""

from __future__ import annotations

import pytest
from own_batches import with_steps
from prepared import BEWARE, DIVIDED, HEAD
from programs import DRAWN_WHOLE, PATH, PREPARED

from dp2ddp.convert import convert
from dp2ddp.source import Project
from parity.harness import Lab
from parity.test_own_batches import same_numbers, trains_alike
from parity.test_tier_training import differences, runs


@pytest.mark.sample(processes=(2, 3), every=7)
@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("name", DIVIDED)
def test_they_are_divided(lab: Lab, name: str, processes: int) -> None:
    text = with_steps(HEAD, DIVIDED[name])
    conversion = convert(Project.of({PATH: text}))
    (script,) = conversion.scripts
    assert script.tier.startswith("sharded"), [it.message for it in conversion.findings]
    trains_alike(lab, text, processes)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", PREPARED)
def test_what_can_be_done_to_whole_batches_is_done_before(lab: Lab, name: str) -> None:
    text = PREPARED[name].text
    (script,) = convert(Project.of({PATH: text})).scripts
    assert script.tier.startswith("sharded")
    before, after = runs(lab, text, 2)
    assert differences(before, after, losses=False) == []


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("name", DRAWN_WHOLE)
def test_what_is_drawn_alike_is_divided_afterwards(lab: Lab, name: str, processes: int) -> None:
    text = DRAWN_WHOLE[name]
    (script,) = convert(Project.of({PATH: text})).scripts
    assert script.tier == "sharded"
    before, after = runs(lab, text, processes)
    assert differences(before, after, losses=False) == []
    assert same_numbers(before.printed, after.printed)


@pytest.mark.sample(processes=(2, 3), every=7)
@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("name", BEWARE)
def test_what_is_not_so_simple_trains_to_the_same_numbers(lab: Lab, name: str, processes: int) -> None:
    trains_alike(lab, with_steps(HEAD, BEWARE[name]), processes)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "labels that are whole where a number is made of them",
            "accuracy(ddp.whole_batch(pred), target.numpy())",
        ),
        ("mixed labels for a loss that compares samples", "contrast(ddp.whole_batch(out), y)"),
    ],
)
def test_what_is_whole_is_not_cut_to_be_joined_again(name: str, said: str) -> None:
    (change,) = convert(Project.of({PATH: with_steps(HEAD, DIVIDED[name])})).changes
    assert said in change.after
