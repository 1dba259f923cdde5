"""``--vendor``: the runtime in somebody's project, imported from there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_cli import REPOSITORY, SPLIT, TRAIN, run, tree, write
from test_cli import folder as folder  # every test here has one

from dp2ddp.emit.vendor import copied, is_current
from dp2ddp.emit.write import WriteError

NEEDED = b"the converted script imports dp2ddp: install dp2ddp where it trains, or convert with --vendor DIR"
ON_CPU = TRAIN.replace(".cuda()", "")
FILES = len(list(copied()))
# What a training machine does without: the rest of dp2ddp, and what that needs.
WITHOUT = """
import sys, runpy

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("dp2ddp", "black", "libcst"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Nothing())
sys.argv = sys.argv[1:]
sys.path[0] = sys.argv[0].rpartition("/")[0] or "."
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def trains(*command: str) -> str:
    environment = {**os.environ, "DP2DDP_PROCESSES": "2"}
    environment.pop("PYTHONPATH")
    done = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def imports(path: str) -> list[str]:
    return [
        line for line in Path(path).read_text().splitlines() if line.endswith(" ddp") and "import" in line
    ]


def test_a_vendored_program_trains_without_dp2ddp() -> None:
    write({"train.py": ON_CPU})
    done = run("convert", "train.py", "--vendor", "lib/ddp_runtime", "--inplace")
    assert done.returncode == 0 and NEEDED not in done.stderr
    assert b"wrote: train.py, lib/ddp_runtime (dp2ddp's runtime, %d files)\n" % FILES in done.stderr
    assert imports("train.py") == ["from lib import ddp_runtime as ddp"]
    assert is_current(Path("lib/ddp_runtime"))
    assert [it.name for it in Path("lib").iterdir()] == ["ddp_runtime"]
    Path("without.py").write_text(WITHOUT)
    assert trains("without.py", "train.py").split() == ["epoch", "0", "epoch", "1"]


def test_a_copy_is_recognised_and_left_alone() -> None:
    write(SPLIT)
    assert run("convert", ".", "--vendor", "ddp_runtime", "--inplace").returncode == 0
    assert imports("train.py") == imports("lib/data.py") == ["import ddp_runtime as ddp"]
    once = tree()
    for arguments in (["."], [".", "--vendor", "ddp_runtime"], [".", "--check"], ["train.py"]):
        done = run("convert", *arguments, *["--inplace"] * ("--check" not in arguments))
        assert (done.returncode, tree()) == (0, once)
        assert b"nothing to do (already converted)" in done.stderr and b"ddp_runtime" not in done.stderr
    write({"other.py": TRAIN})
    assert NEEDED not in run("convert", ".", "--inplace").stderr
    assert imports("other.py") == ["import ddp_runtime as ddp"]


def test_a_folder_that_was_copied_by_hand_is_a_copy() -> None:
    write({"train.py": ON_CPU, "kit/__init__.py": "", "kit/more.py": TRAIN})
    shutil.copytree(
        REPOSITORY / "dp2ddp/runtime", "kit/distributed", ignore=shutil.ignore_patterns("__pycache__")
    )
    done = run("convert", ".", "--inplace")
    assert done.returncode == 0, done.stderr.decode()
    assert imports("train.py") == ["from kit import distributed as ddp"]
    assert imports("kit/more.py") == ["import distributed as ddp"]


def test_what_was_converted_before_takes_it_from_there_too() -> None:
    write(SPLIT)
    done = run("convert", ".", "--inplace")
    assert NEEDED in done.stderr
    assert imports("train.py") == ["from dp2ddp import runtime as ddp"]
    done = run("convert", ".", "--vendor", "ddp_runtime", "--inplace")
    assert done.returncode == 0
    assert imports("train.py") == imports("lib/data.py") == ["import ddp_runtime as ddp"]
    assert is_current(Path("ddp_runtime"))


def test_an_older_copy_is_brought_up_to_date() -> None:
    write({"train.py": TRAIN})
    run("convert", "train.py", "--vendor", "ddp", "--inplace")
    assert imports("train.py") == ["import ddp"]
    Path("ddp/gone.py").write_text("")
    Path("ddp/ranks.py").write_text("# of an older version\n")
    done = run("convert", "train.py", "--vendor", "ddp")
    assert b"would write: ddp (dp2ddp's runtime, %d files, not in the diff)" % FILES in done.stderr
    assert done.stderr.endswith(b"those that are import that copy: start them as before\n")
    run("convert", "train.py", "--vendor", "ddp", "--inplace")
    assert is_current(Path("ddp")) and not Path("ddp/gone.py").exists()


def test_without_writing_there_is_no_copy() -> None:
    write({"train.py": TRAIN})
    done = run("convert", "train.py", "--vendor", "ddp_runtime")
    assert b"+import ddp_runtime as ddp\n" in done.stdout
    assert (
        b"would write: train.py, ddp_runtime (dp2ddp's runtime, %d files, not in the diff)" % FILES
        in done.stderr
    )
    assert b"dp2ddp convert train.py --vendor ddp_runtime --inplace" in done.stderr.splitlines()[-1]
    assert set(tree()) == {"train.py"}


def test_a_converted_copy_has_the_runtime_in_it() -> None:
    write({f"in/{name}": text for name, text in SPLIT.items()})
    done = run("convert", "in", "--output", "out", "--vendor", "in/ddp_runtime")
    assert done.returncode == 0, done.stderr.decode()
    assert is_current(Path("out/ddp_runtime")) and not Path("in/ddp_runtime").exists()
    assert imports("out/train.py") == ["import ddp_runtime as ddp"]


def test_a_package_that_is_started_as_a_module_imports_it_by_its_whole_name() -> None:
    relative = {name: text.replace("from lib", "from .lib") for name, text in SPLIT.items()}
    write({**{f"pkg/{name}": text for name, text in relative.items()}, "pkg/__init__.py": ""})
    assert run("convert", "pkg", "--vendor", "pkg/ddp_runtime", "--inplace").returncode == 0
    assert imports("pkg/train.py") == imports("pkg/lib/data.py") == ["from pkg import ddp_runtime as ddp"]


@pytest.mark.parametrize(
    ("files", "vendor", "words"),
    [
        ({"sub/train.py": TRAIN}, "ddp_runtime", "sub/train.py could not import it from there; it can from "),
        ({"train.py": TRAIN}, "my-runtime", "its name is no Python identifier"),
        ({"train.py": TRAIN, "lib/x.py": ""}, "lib", "is not empty, and no copy of the runtime"),
        ({"train.py": TRAIN, "lib": ""}, "lib", "lib is not a folder"),
    ],
)
def test_a_folder_that_would_not_do_is_refused(files: dict[str, str], vendor: str, words: str) -> None:
    write(files)
    before = tree()
    done = run("convert", ".", "--vendor", vendor, "--inplace")
    assert (done.returncode, done.stdout, tree()) == (2, b"", before)
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("dp2ddp convert: argument --vendor: ") and words in line


def test_the_table_says_where_the_copy_is() -> None:
    write({"src/train.py": TRAIN, "pyproject.toml": '[tool.dp2ddp]\nvendor = "src/ddp_runtime"\n'})
    assert run("convert", "train.py", "--inplace", cwd="src").returncode == 0
    assert is_current(Path("src/ddp_runtime"))


def test_a_copy_goes_again_if_the_rest_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    from dp2ddp.emit.vendor import vendoring

    with pytest.raises(WriteError), vendoring(Path("ddp_runtime")):
        raise WriteError("nothing is written")
    assert not Path("ddp_runtime").exists()


def test_a_vendored_program_is_verified() -> None:
    write({"train.py": ON_CPU, "before.py": ON_CPU})
    run("convert", "train.py", "--vendor", "ddp_runtime", "--inplace")
    done = run("verify", "before.py", "train.py", "--steps", "4")
    assert done.returncode == 0, done.stdout.decode()
    assert b"MATCH" in done.stdout


def test_an_installed_runtime_needs_neither_black_nor_libcst() -> None:
    write({"train.py": ON_CPU})
    run("convert", "train.py", "--inplace")
    Path("without.py").write_text(WITHOUT.replace('("dp2ddp", "black", "libcst")', '("black", "libcst")'))
    environment = {**os.environ, "DP2DDP_PROCESSES": "2"}
    done = subprocess.run(
        [sys.executable, "without.py", "train.py"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["epoch", "0", "epoch", "1"]
