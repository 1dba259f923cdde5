"""Programs that share no changed line are converted independently of each other; those that do, together."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from test_cli import IDLE, KEPT, TRAIN, folder, run, tree, write  # noqa: F401 - a fixture

import dp2ddp.carry
import dp2ddp.convert
import dp2ddp.decided
from dp2ddp import cli

# What two programs save by.
SHARED = """\
import torch


def save_first(model):
    torch.save(model.state_dict(), "first.pt")


def save_second(model):
    torch.save(model.state_dict(), "second.pt")
"""


def program(text: str, save: str) -> str:
    """A program that saves its model by a function of ``shared.py``."""
    imported = text.replace("import torch\n", f"import torch\nfrom shared import {save}\n", 1)
    return imported.replace('        print("epoch", epoch)\n', f"        {save}(model)\n")


def converted() -> set[str]:
    return {name for name, text in tree().items() if b"dp2ddp" in text}


def last(stderr: bytes) -> str:
    return stderr.decode().splitlines()[-1]


def test_a_refused_program_holds_back_no_other() -> None:
    write({"train_a.py": TRAIN, "train_b.py": KEPT, "train_c.py": TRAIN, "eval.py": IDLE})
    done = run("convert", ".", "--inplace")
    assert done.returncode == 3
    assert converted() == {"train_a.py", "train_c.py"}
    assert re.search(rb"\ntrain_b.py: refused: 1 error to fix, then \d edits can be made\n", done.stderr)
    assert b"\nwrote: train_a.py, train_c.py\n" in done.stderr
    assert (
        last(done.stderr) == "2 converted, 1 refused (train_b.py: 1 error); next: start them as shown above"
    )
    once = tree()
    again = run("convert", ".", "--inplace")
    assert (again.returncode, tree()) == (3, once)
    assert b"train_a.py, train_c.py: nothing to do (already converted)" in again.stderr


def test_programs_that_change_different_functions_of_one_file_are_independent() -> None:
    first, second = program(TRAIN, "save_first"), program(KEPT, "save_second")
    write({"first.py": first, "second.py": second, "shared.py": SHARED})
    done = run("convert", "first.py", "second.py", "--inplace")
    assert done.returncode == 3
    assert converted() == {"first.py", "shared.py"}
    after = Path("shared.py").read_text()
    assert 'ddp.save(model.module.state_dict(), "first.pt")' in after
    assert 'torch.save(model.state_dict(), "second.pt")' in after
    # What is left is said once more, and nothing else.
    again = run("convert", "first.py", "second.py", "--inplace")
    assert b"second.py: refused: 1 error" in again.stderr and converted() == {"first.py", "shared.py"}


# Where a program that is refused runs a line that another's conversion changes.
TIED = {
    "a function that both call": (
        {
            "first.py": program(TRAIN, "save_first"),
            "second.py": program(KEPT, "save_first"),
            "shared.py": SHARED,
        },
        "shared.py:5",
    ),
    "a line that is run when it is imported": (
        {
            "first.py": TRAIN.replace(
                "import torch\n", "import torch\nfrom second import main as other\n", 1
            ),
            "second.py": KEPT.replace("\n\ndef", '\n\ndevice = torch.device("cuda:0")\n\n\ndef', 1).replace(
                ".cuda()", ".to(device)"
            ),
        },
        "second.py:6",
    ),
}


@pytest.mark.parametrize("case", TIED)
def test_programs_that_run_the_same_changed_line_are_converted_together(case: str) -> None:
    files, place = TIED[case]
    write(files)
    done = run("convert", ".", "--inplace")
    assert done.returncode == 3
    assert converted() == set()
    tied = f"it can only be converted together with second.py, as both run {place}"
    line = next(it for it in done.stderr.decode().splitlines() if it.startswith("first.py: refused: "))
    assert line.endswith(tied) and "error" not in line
    assert last(done.stderr).startswith(
        "nothing is converted, 2 refused (first.py: can only be converted together with second.py; second.py: 1 error); next: "
    )
    write({name: text.replace(", **{})", ")") for name, text in files.items()})
    assert run("convert", ".", "--inplace").returncode == 0
    assert converted() == set(files)


def test_a_changed_line_that_still_does_the_same_holds_nothing_back() -> None:
    """The refused program runs it as before: it saves what it saved, in one process, with nn.DataParallel."""
    write(
        {
            "first.py": program(TRAIN, "note").replace("note(model)", "note('first.pt', epoch)"),
            "second.py": program(KEPT, "note")
            .replace("note(model)", "note('second.pt', epoch)")
            .replace(".cuda()", ""),
            "shared.py": "import torch\n\n\ndef note(path, epoch):\n    torch.save({'epoch': epoch}, path)\n",
        }
    )
    done = run("convert", ".", "--inplace")
    assert done.returncode == 3
    assert converted() == {"first.py", "shared.py"}
    assert "ddp.save(" in Path("shared.py").read_text()
    assert last(done.stderr).startswith("1 converted, 1 refused (second.py: 1 error); next: ")
    subprocess.run([sys.executable, "second.py"], check=True, capture_output=True)
    assert torch.load("second.pt") == {"epoch": 1}


def test_a_program_that_cannot_be_analysed_holds_back_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = dp2ddp.decided.analyse

    def analyse(linked: object, *looks: object, **options: object) -> object:
        if any(path.name == "lib.py" for path in linked.project.files):  # type: ignore[attr-defined]
            raise RecursionError("maximum recursion\ndepth exceeded")
        return usual(linked, *looks, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(dp2ddp.decided, "analyse", analyse)
    monkeypatch.delenv("DP2DDP_DEBUG", raising=False)
    names = ["a", "b", "c", "d"]
    write({f"{name}.py": TRAIN for name in names} | {"c.py": f"import lib\n{TRAIN}", "lib.py": IDLE})
    assert cli.main(["convert", ".", "--inplace"]) == 3
    assert converted() == {"a.py", "b.py", "d.py"}
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith(
        "c.py:1: DDP000 error: RecursionError: maximum recursion depth exceeded; this is a bug"
    )
    assert said[-1].startswith("3 converted, 1 refused (c.py: 1 error); next: ")
    monkeypatch.setenv("DP2DDP_DEBUG", "1")
    assert cli.main(["convert", "."]) == 3
    assert "Traceback" in capsys.readouterr().err


def test_a_change_that_cannot_be_vouched_for_holds_back_its_own_programs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = dp2ddp.carry.rewrite

    def rewrite(text: str, edits: object) -> str:
        if "# odd" in text:
            raise AssertionError("no such thing")
        return text if "# unstable" in text else usual(text, edits)  # type: ignore[arg-type]

    monkeypatch.setattr(dp2ddp.carry, "rewrite", rewrite)
    monkeypatch.delenv("DP2DDP_DEBUG", raising=False)
    write({f"{name}.py": TRAIN for name in "abcde"} | {"b.py": TRAIN + "# odd\n", "d.py": TRAIN + "# odd\n"})
    assert cli.main(["convert", ".", "--inplace"]) == 3
    assert converted() == {"a.py", "c.py", "e.py"}
    said = capsys.readouterr().err
    assert "b.py:1: DDP000 error: AssertionError: no such thing; a bug in dp2ddp" in said
    assert said.splitlines()[-1].startswith("3 converted, 2 refused (b.py: 1 error; d.py: 1 error); next: ")
