"""Programs whose DataParallel is not torch's own class make its steps, on two and on three processes."""

from __future__ import annotations

import pytest
from own_parallel import OWN
from programs import PATH

from dp2ddp.convert import convert
from dp2ddp.source import Project
from parity.harness import Lab
from parity.test_tier_training import differences, seeded, write

UNEVEN = ("a smaller part for the first", "a copy that divides in its own way")


@pytest.mark.sample(processes=(2, 3), every=3)
@pytest.mark.parametrize(
    ("name", "processes"),
    [
        pytest.param(name, processes, marks=pytest.mark.slow if processes > 2 and name not in UNEVEN else ())
        for name in OWN
        for processes in (2, 3)
    ],
)
def test_own_classes_make_dataparallel_s_steps(lab: Lab, name: str, processes: int) -> None:
    """Losses and parameters of every rank; the batches can't be divided evenly among three."""
    text = seeded(OWN[name])
    (change,) = convert(Project.of({PATH: text})).changes
    before = lab.run(write(lab, "before", text), replicas=processes, timeout=60).ok()
    # the classes ask how many GPUs there are
    after = lab.run(write(lab, "after", change.after), processes=processes, gpus=processes, timeout=60).ok()
    assert len(after.ranks) == processes
    assert differences(before, after) == []
