"""Batches that a program makes itself are divided, and train to the same numbers, those that are printed included."""

from __future__ import annotations

import pytest
from own_batches import ACTING, BEWARE, DIVIDED, _program
from programs import OTHERS_HANDED, PATH

from dp2ddp.convert import convert
from dp2ddp.source import Project
from parity.harness import Lab
from parity.test_tier_training import differences, runs


@pytest.mark.sample(processes=(2, 3), every=9)
@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("name", DIVIDED)
def test_they_are_divided(lab: Lab, name: str, processes: int) -> None:
    text = _program(DIVIDED[name])
    conversion = convert(Project.of({PATH: text}))
    (script,) = conversion.scripts
    assert script.tier.startswith("sharded"), [it.message for it in conversion.findings]
    trains_alike(lab, text, processes)


def trains_alike(lab: Lab, text: str, processes: int, **given: bool) -> None:
    """Compare a program before and after: its steps, and the numbers that it prints; ``given``: see ``runs``."""
    before, after = runs(lab, text, processes, **given)
    assert len(after.ranks) == processes
    assert differences(before, after, losses=False) == []
    assert before.printed
    assert same_numbers(before.printed, after.printed)


def same_numbers(one: str, other: str) -> bool:
    """Whether two texts say the same, but for the order in which numbers were added up."""
    words, others = one.split(), other.split()
    return len(words) == len(others) and all(map(_is_same, words, others))


def _is_same(word: str, other: str) -> bool:
    try:
        return float(word) == pytest.approx(float(other), rel=1e-9)
    except ValueError:
        return word == other


@pytest.mark.sample(processes=(2, 3), every=9)
@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("name", BEWARE)
def test_what_is_not_so_simple_trains_to_the_same_numbers(lab: Lab, name: str, processes: int) -> None:
    trains_alike(lab, _program(BEWARE[name]), processes)


def test_a_model_that_draws_as_it_acts_keeps_batches_whole() -> None:
    """Each rank would act otherwise, and so have another memory."""
    body, (plain, drawing) = ACTING
    forms = []
    for text in (_program(body), _program(body).replace(plain, drawing)):
        (script,) = convert(Project.of({PATH: text})).scripts
        forms.append(script.tier)
    assert forms == ["sharded", "whole batch"]


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("name", OTHERS_HANDED)
def test_what_an_object_does_to_a_loader_s_batches_is_done_to_whole_ones(lab: Lab, name: str) -> None:
    text = OTHERS_HANDED[name]
    (script,) = convert(Project.of({PATH: text})).scripts
    assert script.tier == "sharded"
    before, after = runs(lab, text, 2)
    assert differences(before, after, losses=False) == []
    assert same_numbers(before.printed, after.printed)
