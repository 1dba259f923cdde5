"""Verify compares what is the same thing of both programs: lines that both printed, parameters as far on as they are."""

from __future__ import annotations

from types import SimpleNamespace

from dp2ddp.verify import contents
from dp2ddp.verify.compare import starts
from dp2ddp.verify.verdict import Tolerance


def test_lines_that_one_alone_printed_are_left_out_before_numbers_are_compared() -> None:
    mine = ["shown a 0.5", *(f"train [1: {it}/5] loss: 0.{it}" for it in range(5)), "shown b 0.25"]
    theirs = [mine[0], *mine[2:4], "shown d 0.125", *mine[4:]]
    pairs = list(contents._matched(mine, theirs))
    assert pairs and all(one == other for one, other in pairs)


def test_numbers_that_count_otherwise_are_compared() -> None:
    mine = ["begin", "right 7 of 10", "train 1 0.5", "end"]
    theirs = ["begin", "right 8 of 10", "shown x", "train 1 0.5", "end"]
    assert ("train 1 0.5", "train 1 0.5") in list(contents._matched(mine, theirs))
    assert list(contents._matched(mine[:2], theirs[:2]))[1] == ("right 7 of 10", "right 8 of 10")


def _notes(*optimizers: float, rank: int = 0) -> SimpleNamespace:
    steps = [SimpleNamespace(optimizer=it, number=it + 1, rates=[1e-3]) for it in range(len(optimizers))]
    made = [
        SimpleNamespace(adaptive=True, names=["bias"], sizes=[1], digests=[[it, it]]) for it in optimizers
    ]
    return SimpleNamespace(optimizers=made, steps=steps, rank=rank)


def test_an_optimizer_made_in_the_loop_begins_with_what_others_have_stepped() -> None:
    """Rounding is then as large as after their steps."""
    tolerance = Tolerance.of(float64=True)
    assert not list(starts(_notes(1.0, 1.0), [_notes(1.0, 1.0 + 1e-11)], tolerance))
    (first,) = starts(_notes(1.0, 1.0), [_notes(1.0 + 1e-10, 1.0)], tolerance)
    assert first.step == 0
    (later,) = starts(_notes(1.0, 1.0), [_notes(1.0, 1.1)], tolerance)
    assert later.step == 2
