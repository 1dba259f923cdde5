"""The corpus command: it measures what the command did, and finds every kind of fault."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from corpus.__main__ import main
from corpus.checks import compile_error, new_undefined_names, rank_local_collectives, tier
from corpus.report import pattern
from corpus.run import SCRIPTS, Entry, _faults, entries

FLAT = Path(__file__).parents[1] / "fixtures" / "flat" / "before"
HEADER = "from dp2ddp import runtime as ddp\n"


def write(folder: Path, text: str, name: str = "a.py") -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(textwrap.dedent(text))
    return [Path(name)]


def test_the_list_is_read() -> None:
    listed = list(entries(SCRIPTS.read_text()))
    assert len(listed) == len(set(listed)) == 111
    assert Entry("Cysu/open-reid", "examples/softmax_loss.py") in listed
    assert len({entry.repository for entry in listed}) == 68


def test_scripts_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkouts = tmp_path / "checkouts"
    flat = (FLAT / "train.py").read_text()
    nested = checkouts / "a+nested" / "tools"
    for name, text in {
        "train.py": flat,
        "summed.py": flat.replace(
            "loss.backward()", "outputs.std().backward()\n        outputs = net(inputs)"
        ),
        "given.py": flat.replace("DataParallel(net)", "DataParallel(net, **{})"),
        "old.py": flat + "print 'done'\n",
        "plain.py": "print('hello')\n",
    }.items():
        write(nested, text, name)
    listed = write(
        tmp_path,
        "a/nested: tools/train.py, tools/summed.py, tools/given.py, tools/old.py, tools/plain.py, gone.py",
    )
    raw, why = tmp_path / "raw.json", tmp_path / "why.md"
    assert (
        main(
            [
                str(checkouts),
                "--scripts",
                str(tmp_path / listed[0]),
                "--json",
                str(raw),
                "--reasons",
                str(why),
            ]
        )
        == 0
    )

    printed = capsys.readouterr()
    assert "not here: a/nested: gone.py" in printed.err
    results = {result["entry"]["script"]: result for result in json.loads(raw.read_text())}
    outcomes = {script: (result["outcome"], result["tier"]) for script, result in results.items()}
    assert outcomes["tools/train.py"][1] == "sharded"
    assert outcomes["tools/train.py"][0] in ("converted fully", "with sites left")
    assert outcomes["tools/summed.py"][1] == "whole batch"
    assert outcomes["tools/given.py"] == ("refused", "")
    assert outcomes["tools/old.py"] == ("does not parse", "")
    assert outcomes["tools/plain.py"] == ("nothing to do", "")
    assert "tools/train.py" in results["tools/train.py"]["changed"]
    assert results["tools/train.py"]["found"] > 10 and results["tools/given.py"]["left"] > 10
    assert "5 scripts: " in printed.out and "1 refused, 1 does not parse" in printed.out
    assert "unstable: 0" in printed.out and "crashes: 0" in printed.out
    assert "tiers: 1 sharded, 1 whole batch" in printed.out
    assert (
        "1 scripts, in 1 the only reason: DDP501 not sharded (exact, less speedup): the loss"
        in why.read_text()
    )
    assert (
        "1 scripts, in 1 the only reason: DDP102 arguments of nn.DataParallel are passed by"
        in why.read_text()
    )
    assert "a/nested: tools/given.py: refused: tools/given.py:" in why.read_text()
    assert "a/nested: tools/summed.py: whole batch: tools/summed.py:" in why.read_text()
    assert "a/nested: tools/train.py: whole" not in why.read_text()
    assert (nested / "train.py").read_text() == flat


def test_a_broken_or_unfinished_result_is_a_fault(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    changed = write(before, "print(1)\n")
    write(after, (FLAT / "train.py").read_text())
    found = dict(_faults(Entry("a/b", "a.py"), before, after, changed, 60, ()))
    assert found["unstable"] and not found["do not compile"]
    write(after, "print(1\n")
    found = dict(_faults(Entry("a/b", "a.py"), before, after, changed, 60, ()))
    assert found["do not compile"] and found["unstable"]


def test_code_that_does_not_compile_is_found(tmp_path: Path) -> None:
    write(tmp_path, "def f():\n    return\nreturn 1\n")  # parses, and yet
    assert "a.py:3" in compile_error(tmp_path / "a.py")
    write(tmp_path, HEADER)
    assert compile_error(tmp_path / "a.py") == ""


@pytest.mark.parametrize(
    "before, after, expected",
    [
        ("print(1)\n", "ddp.print(1)\n", ["a.py: ddp"]),
        ("print(1)\n", HEADER + "ddp.print(1)\n", []),
        ("print(x)\n", HEADER + "ddp.print(x)\n", []),
        ("print(1)\n", HEADER + "ddp.prynt(1)\n", ["a.py: ddp.prynt"]),
        ("from os import *\nprint(1)\n", "from os import *\nddp.print(1)\n", ["a.py: ddp"]),
        (
            "x = 1\ndef f():\n    print(x)\n",
            "x = 1\ndef f():\n    print(x)\n    x = 2\n",
            ["a.py: x"],
        ),
    ],
)
def test_new_undefined_names_are_found(tmp_path: Path, before: str, after: str, expected: list[str]) -> None:
    write(tmp_path / "before", before)
    files = write(tmp_path / "after", after)
    assert new_undefined_names(tmp_path / "before", tmp_path / "after", files) == expected


@pytest.mark.parametrize(
    "body",
    [
        "if ddp.is_main_process():\n    ddp.barrier()\n",
        "if ok:\n    pass\nelif ddp.get_rank() == 0:\n    pass\nelse:\n    ddp.barrier()\n",
        "main = ddp.is_main_process()\nif main and ok:\n    x = ddp.sum(1)\n",
        "log = open('log', 'w') if ddp.is_main_process() else None\nif log:\n    log.write(ddp.mean(1))\n",
        "x = ddp.gather(1) if ddp.get_local_rank() else None\n",
        "x = ddp.is_main_process() and ddp.sum(1)\n",
        "def f():\n    if not ddp.is_main_process():\n        return\n    with ddp.main_process_first():\n        pass\n",
        "def f():\n    ddp.barrier()\nif ddp.is_main_process():\n    f()\n",
        "while ddp.get_rank() < n:\n    n = ddp.sum(n)\n",
    ],
)
def test_collectives_that_some_ranks_miss_are_found(tmp_path: Path, body: str) -> None:
    assert len(rank_local_collectives(tmp_path, write(tmp_path, HEADER + body))) == 1


@pytest.mark.parametrize(
    "body",
    [
        "if ok:\n    ddp.barrier()\n",
        "if ddp.is_main_process():\n    print(1)\nddp.barrier()\n",
        "if ddp.get_world_size() > 1:\n    ddp.barrier()\n",
        "if ddp.is_main_process():\n    ddp.save({}, 'x')\n    math.sum(1)\n",
        "ddp.sum(1) and ddp.is_main_process()\n",
    ],
)
def test_collectives_that_all_ranks_reach_are_none(tmp_path: Path, body: str) -> None:
    assert rank_local_collectives(tmp_path, write(tmp_path, HEADER + body)) == []


def test_the_tier_is_read_from_the_wraps(tmp_path: Path) -> None:
    assert tier(tmp_path, write(tmp_path, HEADER + "m = ddp.DistributedDataParallel(n)\n")) == "sharded"
    files = write(tmp_path, HEADER + "m = ddp.DataParallel(n)\nk = nn.DistributedDataParallel(n)\n")
    assert tier(tmp_path, files) == "whole batch"


def test_messages_are_grouped_without_what_is_the_programs() -> None:
    one = pattern("the loss `a + b` can't be shown to be a mean; use another")
    assert one == pattern("the loss `c` can't be shown to be a mean; use another")
    assert pattern("os.makedirs() runs when x") == pattern("shutil.copy() runs when x")
    assert pattern("line 12, several (0, 1)") == pattern("line 3, several (2)")
