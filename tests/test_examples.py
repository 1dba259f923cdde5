"""The program written by hand on the runtime trains, and the same however many processes there are."""

from __future__ import annotations

import re
from pathlib import Path

from parity.harness import Lab

SCRIPT = Path(__file__).parent.parent / "examples" / "runtime" / "train.py"


def test_the_program_written_by_hand_trains_the_same_in_one_two_and_three_processes(lab: Lab) -> None:
    """Batches of 20 leave three processes uneven parts, and a last batch of 10."""
    arguments = ["--data", str(lab.data()), "--epochs", "2", "--batch-size", "20"]
    runs = {n: lab.run(SCRIPT, arguments, processes=n).ok() for n in (1, 2, 3)}
    alone = runs[1]
    accuracy = [float(number) for number in re.findall(r"accuracy (\S+) %", alone.printed)]
    assert len(accuracy) == 2 and accuracy[1] > 90, alone.printed
    expected = alone.load("mnist.pt")
    for n, run in runs.items():
        assert run.printed == alone.printed, n
        assert [notes["steps"] for notes in run.ranks] == [26] * n
        found = run.load("mnist.pt")
        worst = max((found[key] - expected[key]).abs().max().item() for key in expected)
        assert worst < 1e-7, (n, worst)  # float64; Adam normalises rounding noise
