"""More processes, each started by the real launchers: slow, so a command of its own (`pytest -m slow`)."""

from __future__ import annotations

import pytest

from parity import compare
from parity.harness import SHAPES, Lab, Shape

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("launcher", ["plain", "torchrun"])
@pytest.mark.parametrize(("processes", "batch"), [(3, 33), (4, 32)])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_three_and_four_processes(lab: Lab, shape: Shape, processes: int, batch: int, launcher: str) -> None:
    """DataParallel's steps, on 253 samples, to the end of every epoch."""
    which = {"batch": batch, "samples": 253, "launcher": launcher}
    after = lab.after(shape.name, processes, **which).ok()
    before = lab.before(shape.name, processes, **which).ok()
    assert len(after.ranks) == processes
    assert compare.order(after.ranks, samples=253, batch=batch, drop_last=shape.drop_last) == []
    assert compare.training(before.ranks[0], after.ranks, losses=1e-9, parameters=1e-12, first=20) == []
    assert shape.numbers(after.printed) == shape.numbers(before.printed) != []


@pytest.mark.parametrize("launcher", ["plain", "torchrun"])
@pytest.mark.parametrize(("processes", "batch"), [(3, 32), (4, 2)])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_a_batch_that_cannot_be_divided_ends_the_command(
    lab: Lab, shape: Shape, processes: int, batch: int, launcher: str
) -> None:
    """A clear end before training, however the ranks were started."""
    after = lab.after(shape.name, processes, launcher, batch=batch)
    assert after.code not in (0, 124)
    assert not any(notes["losses"] for notes in after.ranks)
    assert after.files() == []
    assert str(batch) in after.errors
    assert str(processes) in after.errors
