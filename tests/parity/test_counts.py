"""Losses that are a sum over a count of the batch train to nn.DataParallel's numbers, the reported ones included."""

from __future__ import annotations

import pytest
from counts import BEWARE, DIVIDED
from programs import PATH

from dp2ddp.convert import convert
from dp2ddp.source import Project
from parity.harness import Lab
from parity.test_own_batches import trains_alike


@pytest.mark.sample(processes=(2, 3), every=9)
@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("name", DIVIDED)
def test_they_are_divided(lab: Lab, name: str, processes: int) -> None:
    text = DIVIDED[name]
    conversion = convert(Project.of({PATH: text}), exact=True)
    (script,) = conversion.scripts
    assert script.tier.startswith("sharded"), [it.message for it in conversion.findings]
    trains_alike(lab, text, processes, exact=True)


@pytest.mark.sample(processes=(2, 3), every=9)
@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("name", BEWARE)
def test_what_only_looks_like_them_trains_to_the_same_numbers(lab: Lab, name: str, processes: int) -> None:
    trains_alike(lab, BEWARE[name], processes, exact=True)
