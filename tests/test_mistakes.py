"""What a person may do, or their machine: said in a line, and never a defect of dp2ddp."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_cli import KEPT, PYTHON, TRAIN, run, tree, write
from test_cli import folder as folder  # every test here has one

from dp2ddp import cli

NOTEBOOK = json.dumps({"cells": [{"cell_type": "code", "source": ["nn.DataParallel(model)"]}]})


def one_line(stderr: bytes) -> str:
    (line,) = stderr.decode().splitlines()
    assert "defect" not in line and "DDP000" not in line
    return line


@pytest.mark.parametrize(
    ("report", "words"), [("no/such/report.html", "there is no such folder"), (".", "this is a folder")]
)
def test_a_report_that_cannot_be_written_is_said_before_the_run(report: str, words: str) -> None:
    write({"train.py": TRAIN})
    start = time.monotonic()
    done = run("verify", "train.py", "--report", report)
    assert (done.returncode, done.stdout) == (2, b"")
    assert f"argument --report: {report}: {words}" in one_line(done.stderr)
    assert time.monotonic() - start < 5


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device here")
@pytest.mark.parametrize(
    "arguments", [["convert", "train.py"], ["convert", "train.py", "--format", "json"], ["explain"]]
)
def test_a_full_disk_is_no_defect(arguments: list[str]) -> None:
    write({"train.py": TRAIN})
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*PYTHON, *arguments], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 4
    assert one_line(done.stderr) == "dp2ddp: standard output: no space left on device"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize(
    "arguments", [["convert", "."], ["convert", ".", "--format", "json"], ["explain", "ddp102"]]
)
def test_a_closed_pipe_is_no_defect(arguments: list[str], stream: str) -> None:
    write({"train.py": TRAIN, "kept.py": KEPT})
    theirs, ours = os.pipe()
    os.close(theirs)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: ours}
    done = subprocess.run([*PYTHON, *arguments], **streams)  # type: ignore[call-overload]
    os.close(ours)
    assert done.returncode in (0, 3)
    for said in (done.stdout or b"", done.stderr or b""):
        assert b"BrokenPipe" not in said and b"DDP000" not in said and b"Exception" not in said


def test_an_interruption_is_said_and_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import dp2ddp.carry

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    write({"train.py": TRAIN})
    monkeypatch.setattr(dp2ddp.carry, "rewrite", interrupt)
    assert cli.main(["convert", "train.py", "--inplace"]) == 130
    assert capsys.readouterr().err == "dp2ddp: interrupted\n"
    assert Path("train.py").read_text() == TRAIN


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("seconds", [1, 1.5, 2])
def test_an_interrupted_process_ends_at_once(seconds: float) -> None:
    write({f"train{number}.py": TRAIN for number in range(30)})
    before = tree()
    done = subprocess.Popen([*PYTHON, "convert", ".", "--inplace"], stderr=subprocess.PIPE)
    time.sleep(seconds)
    done.send_signal(signal.SIGINT)
    _, said = done.communicate(timeout=30)
    assert done.returncode in (130, 0, -2)
    if done.returncode:
        assert b"Traceback" not in said or b"import" in said  # it was still starting
        assert tree() == before


def test_after_force_what_is_open_is_said_again() -> None:
    hook = "    model.module.weight.register_post_accumulate_grad_hook(print)\n"
    write({"kept.py": KEPT, "hook.py": TRAIN.replace("    optimizer =", f"{hook}    optimizer =")})
    first = run("convert", ".", "--force", "--inplace")
    assert first.returncode == 3
    again = run("convert", ".")
    assert again.returncode == 3
    assert b"already converted" not in again.stderr
    for name, code in (("kept.py", "DDP102"), ("hook.py", "DDP503")):
        assert re.search(rf"^{name}:\d+: {code} error: ", again.stderr.decode(), re.MULTILINE)


def test_refused_scripts_are_marked() -> None:
    write({"kept.py": KEPT, "train.py": TRAIN})
    done = run("convert", ".", "--mark")
    mark = (
        "    # dp2ddp: DDP102 error: arguments of nn.DataParallel are passed by `*` or `**`: the model is unknown; "
        "write them out: `nn.DataParallel(model)`\n"
    )
    assert f"+{mark}".encode() in done.stdout
    done = run("convert", ".", "--mark", "--inplace")
    assert done.returncode == 3
    assert (
        b"kept.py: refused: 1 error" in done.stderr
        and b"wrote: kept.py (comments only), train.py" in done.stderr
    )
    assert Path("kept.py").read_text() == KEPT.replace("    model =", f"{mark}    model =")
    run("convert", ".", "--mark", "--inplace")
    assert Path("kept.py").read_text().count(mark) == 1


def test_nothing_to_do_is_only_said_where_that_is_so() -> None:
    write(
        {
            "models.py": "from torch import nn\n\n\ndef wrap(net):\n    return getattr(nn, 'DataParallel')(net)\n"
        }
    )
    said = run("convert", "models.py").stderr
    assert b"(no DataParallel)" not in said


def test_a_notebook_is_told_what_to_do() -> None:
    write({"train.ipynb": NOTEBOOK, "other.ipynb": "{}", "eval.py": "x = 1\n"})
    done = run("convert", "train.ipynb")
    assert done.returncode == 4
    assert one_line(done.stderr) == (
        "train.ipynb: a notebook can't start ranks: make a script of it by jupyter nbconvert --to script train.ipynb, "
        "and convert train.py"
    )
    done = run("convert", ".")
    assert done.returncode == 0
    assert b"train.ipynb: nothing to do (a notebook can't start ranks: " in done.stderr
    assert b"other.ipynb" not in done.stderr


def test_explain_lists_all_and_knows_numbers() -> None:
    listed = run("explain").stdout.decode().splitlines()
    assert listed == sorted(listed) and len(listed) > 20
    for code in ("DDP000", "DDP001", "DDP002", "DDP201"):
        assert any(line.startswith(f"{code} ") for line in listed)
        done = run("explain", code[3:])
        assert done.returncode == 0 and done.stdout.startswith(f"{code} ".encode())
    assert b"did you mean ddp203?" in run("explain", "ddp2033").stderr


def on_a_terminal(*arguments: str) -> bytes:
    """What the command says there, until it ends."""
    ours, theirs = pty.openpty()
    code = "import sys, time, dp2ddp.source as s; from dp2ddp import cli; read = s._Reader.read\n"
    code += "s._Reader.read = lambda *a: (time.sleep(1.7), read(*a))[1]; sys.exit(cli.main(sys.argv[1:]))"
    done = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.DEVNULL, stderr=theirs
    )
    os.close(theirs)
    said = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            said += os.read(ours, 65536)
        except OSError:
            break
    os.close(ours)
    assert done.wait() == 0
    return said


def test_long_work_is_seen_on_a_terminal_and_gone_after_it() -> None:
    write({"train.py": TRAIN})
    said = on_a_terminal("convert", "train.py").decode()
    assert re.search(r"\r\x1b\[Kdp2ddp: reading … \d s", said)
    last = said.rindex("\r\x1b[K")
    assert said[last:].startswith("\r\x1b[Ktrain.py: ")
    assert b"reading" not in on_a_terminal("convert", "train.py", "-q")
