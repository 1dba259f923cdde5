"""Batches that ``collate_fn`` makes of all their samples are divided after that, and train to the same numbers."""

from __future__ import annotations

import pytest
from own_batches import with_steps
from padded import DIVIDED, HEAD, TRAINED, WHOLE
from programs import PATH

from dp2ddp.convert import convert
from dp2ddp.source import Project
from parity.harness import Lab
from parity.test_own_batches import trains_alike


def program(body: str) -> str:
    return with_steps(HEAD, body.replace("MODEL", TRAINED))


@pytest.mark.sample(processes=(2, 3), every=4)
@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("name", DIVIDED)
def test_they_are_divided(lab: Lab, name: str, processes: int) -> None:
    text = program(DIVIDED[name])
    conversion = convert(Project.of({PATH: text}))
    (script,) = conversion.scripts
    assert script.tier.startswith("sharded"), [it.message for it in conversion.findings]
    trains_alike(lab, text, processes)


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", WHOLE)
def test_what_has_its_samples_elsewhere_trains_to_the_same_numbers(lab: Lab, name: str) -> None:
    text = program(WHOLE[name])
    (script,) = convert(Project.of({PATH: text})).scripts
    assert script.tier == "whole batch"
    trains_alike(lab, text, 2)
