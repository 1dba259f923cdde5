"""What is heard of the ranks, and what is asked of whoever sits there."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
from pathlib import Path

import pytest
from jobs import ROOT, TORCHRUN, finish, run, start, write

LOUD = """
import argparse, atexit, logging, subprocess, warnings
from pprint import pprint
from tqdm import tqdm

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)

ddp.init()
args = parser.parse_args()
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
print("printed")
pprint({"printed": "nicely"})
sys.stdout.write("written\\n")
sys.stdout.flush()
os.write(1, b"by the descriptor\\n")
subprocess.run(["echo", "by another program"])
atexit.register(print, "at the end")
logging.info("told")
warnings.warn("warned")
bar = tqdm(range(3), desc="bar")
for _ in bar:
    bar.set_postfix(loss=1)
assert bar.n == 3
logging.error("failed on %s", ddp.get_rank())
"""
ONCE = [
    "printed",
    "{'printed': 'nicely'}",
    "written",
    "by the descriptor",
    "by another program",
    "at the end",
]


@pytest.mark.sample("torchrun")
@pytest.mark.parametrize("command", [[], TORCHRUN], ids=["python", "torchrun"])
def test_what_is_shown_is_the_main_process_s(tmp_path: Path, command: list[str]) -> None:
    write(tmp_path, LOUD)
    result = run([*command, "train.py"], tmp_path, DP2DDP_OUTPUT="")
    assert (result.code, result.left) == (0, []), result.err
    for line in ONCE:
        assert result.out.split("\n").count(line) == 1, (line, result.out)
    for text in ("INFO told", "UserWarning: warned", "bar: 100%"):
        assert result.err.count(text) == 1, (text, result.err)
    assert all(result.err.count(f"ERROR failed on {rank}") == 1 for rank in range(2)), result.err


LOGURU = """
from loguru import logger

logger.add("all.log")
ddp.init()
logger.info("told {}", 1)
logger.log(20, "by {}", "number")
logger.error("failed on {}", ddp.get_rank())
"""


def test_loguru_is_heard_of_the_main_process_and_in_errors(tmp_path: Path) -> None:
    write(tmp_path, LOGURU)
    result = run(["train.py"], tmp_path, DP2DDP_OUTPUT="", PYTHONPATH=f"{ROOT}:{ROOT / 'tests/stand_ins'}")
    assert (result.code, result.left) == (0, []), result.err
    said = ["20 | by number", "ERROR | failed on 0", "ERROR | failed on 1", "INFO | told 1"]
    assert sorted(it for it in result.err.splitlines() if " | " in it) == said
    assert sorted((tmp_path / "all.log").read_text().splitlines()) == said


def test_each_rank_is_heard_with_its_number(tmp_path: Path) -> None:
    script = write(tmp_path, LOUD)
    job = start([script], tmp_path, DP2DDP_OUTPUT="all")
    out, err = job.communicate(timeout=60)
    for rank in range(2):
        lines = out.split("\n")
        assert all(lines.count(f"[rank {rank}] {line}") == 1 for line in ONCE), out
        assert f"[rank {rank}] INFO told" in err and f"[rank {rank}] ERROR failed on {rank}" in err


@pytest.mark.slow
def test_each_rank_writes_a_file(tmp_path: Path) -> None:
    write(tmp_path, LOUD)
    result = run(["train.py"], tmp_path, DP2DDP_OUTPUT="logs/run")
    assert result.code == 0 and sorted(it.name for it in (tmp_path / "logs/run").iterdir()) == [
        "rank0.log",
        "rank1.log",
    ]
    for rank in range(2):
        text = (tmp_path / f"logs/run/rank{rank}.log").read_text()
        assert all(text.split("\n").count(line) == 1 for line in ONCE) and f"ERROR failed on {rank}" in text
    assert all(result.out.split("\n").count(line) == 1 for line in ONCE) and "failed on 1" not in result.err


@pytest.mark.sample("help-python")
@pytest.mark.parametrize("command", [[], TORCHRUN], ids=["python", "torchrun"])
@pytest.mark.parametrize("options", [["--help"], ["--epoch", "many"]], ids=["help", "wrong"])
def test_help_and_a_wrong_option_are_said_once(
    tmp_path: Path, command: list[str], options: list[str]
) -> None:
    write(tmp_path, LOUD)
    result = run([*command, "train.py", *options], tmp_path, DP2DDP_OUTPUT="")
    said = result.out + result.err
    assert said.count("usage: train.py") == 1 and result.left == [], said
    assert (result.code == 0) == (options == ["--help"])
    if not command and result.code:
        assert result.code == 2 and result.err.count("invalid int value") == 1


def test_an_end_with_a_text_is_said_once(tmp_path: Path) -> None:
    write(tmp_path, "ddp.init()\nsys.exit('no data')")
    result = run(["train.py"], tmp_path, DP2DDP_OUTPUT="")
    assert result.code == 1 and result.err.count("no data") == 1, result.err


def test_a_traceback_of_any_rank_comes_through(tmp_path: Path) -> None:
    write(tmp_path, "ddp.init()\nif ddp.get_rank() == 1:\n    raise ValueError('of rank 1')\nddp.barrier()")
    result = run(["train.py"], tmp_path, DP2DDP_OUTPUT="")
    assert result.code == 1 and result.err.count("ValueError: of rank 1") == 1


@pytest.mark.sample("python")
@pytest.mark.parametrize("command", [[], TORCHRUN], ids=["python", "torchrun"])
def test_a_question_is_asked_once_and_answered_for_all(tmp_path: Path, command: list[str]) -> None:
    write(
        tmp_path,
        """
        ddp.init()
        answer = ddp.input("go on? ")
        try:
            ddp.input()
        except EOFError as error:
            ended = str(error)
        sys.stderr.write(f"<{answer} {ended} {sys.stdin.read()!r} {ddp.gather(ddp.get_rank())}>" + os.linesep)
        """,
    )
    job = start([*command, "train.py"], tmp_path, stdin=subprocess.PIPE, DP2DDP_OUTPUT="")
    job.stdin.write("yes\n")
    job.stdin.close()
    job.stdin = None
    result = finish(job)
    assert (result.code, result.left) == (0, []), result.err
    assert result.out.count("go on? ") == 1
    assert result.err.count("<yes EOF when reading a line '' [0, 1]>") == 2, result.err


@pytest.mark.slow
@pytest.mark.parametrize("command", [[], TORCHRUN], ids=["python", "torchrun"])
def test_every_rank_can_ask_how_wide_the_terminal_is(tmp_path: Path, command: list[str]) -> None:
    """By standard input, as `stty size` does; what is typed there is the main process's."""
    write(
        tmp_path,
        """
        ddp.init()
        lines, columns = os.popen("stty size").read().split()
        typed = "" if ddp.is_main_process() else sys.stdin.read()
        sys.stderr.write(f"<{lines} {columns} {typed!r} {sys.stdin.isatty()}>" + os.linesep)
        """,
    )
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    result = finish(start([*command, "train.py"], tmp_path, stdin=theirs, DP2DDP_OUTPUT=""))
    os.close(ours)
    os.close(theirs)
    assert (result.code, result.left) == (0, []), result.err
    assert result.err.count("<30 100 '' True>") == 2, result.err
