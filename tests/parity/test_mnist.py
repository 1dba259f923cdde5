"""A full epoch of the real MNIST, before and after: what all of this is for."""

from __future__ import annotations

import re

import mnist
import pytest

from parity.harness import SHAPES, Lab, Run, Shape

pytestmark = [pytest.mark.slow, pytest.mark.mnist]


def accuracy(shape: Shape, run: Run) -> float:
    """The accuracy in per cent that the program printed last."""
    last = shape.numbers(run.printed)[-1]
    found = re.search(r"(?:Acc|[Aa]ccuracy):? (\d+\.\d+)", last)
    assert found, last
    return float(found[1])


@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_an_epoch_of_mnist_reaches_the_same_accuracy(lab: Lab, shape: Shape) -> None:
    """Both pass 97 % on the test set, and differ by at most 0.3 points."""
    arguments = ["--data", str(mnist.real_root()), "--epochs", "1"]
    settings = {"launcher": "plain", "float64": False, "parameters": "last", "timeout": 280}
    before = lab.run(shape.before / "train.py", arguments, **settings).ok()
    after = lab.run(lab.converted(shape.name) / "train.py", arguments, processes=2, **settings).ok()
    pair = accuracy(shape, before), accuracy(shape, after)
    print(
        f"{shape.name}: before {pair[0]} %, after {pair[1]} %, {before.seconds:.0f} and {after.seconds:.0f} s"
    )
    assert before.ranks[0]["steps"] == after.ranks[0]["steps"] == after.ranks[1]["steps"]
    assert min(pair) > 97
    assert abs(pair[0] - pair[1]) <= 0.3
