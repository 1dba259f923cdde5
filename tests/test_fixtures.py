"""``after/`` and ``findings.txt`` of every fixture are what the command writes, byte for byte.

``python -m pytest tests/test_fixtures.py --update`` writes them anew; look at the difference before you commit it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command import run

ROOT = Path(__file__).parent.parent
FIXTURES = sorted(path.parent for path in (ROOT / "fixtures").glob("*/before"))


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.name)
def test_conversion_is_the_golden_one(fixture: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    shutil.copytree(fixture / "before", tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__"))
    done = run("convert", "train.py", "--inplace", cwd=tmp_path / "project")
    assert done.returncode == 0, done.stderr.decode()
    if request.config.getoption("--update"):
        shutil.rmtree(fixture / "after", ignore_errors=True)
        shutil.copytree(tmp_path / "project", fixture / "after")
        (fixture / "findings.txt").write_bytes(done.stderr)
    assert contents(tmp_path / "project") == contents(fixture / "after")
    assert done.stderr == (fixture / "findings.txt").read_bytes()


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.name)
def test_converting_twice_changes_nothing(fixture: Path, tmp_path: Path) -> None:
    shutil.copytree(fixture / "after", tmp_path / "project")
    done = run("convert", "train.py", "--check", cwd=tmp_path / "project")
    assert done.returncode == 0, done.stderr.decode()
    assert b"nothing to do" in done.stderr
    assert contents(tmp_path / "project") == contents(fixture / "after")


def test_the_example_is_current() -> None:
    """``python examples/mnist/build.py`` writes it anew."""
    for name in ("before", "after"):
        example = ROOT / "examples" / "mnist" / f"{name}.py"
        assert example.read_bytes() == (ROOT / "fixtures" / "main" / name / "train.py").read_bytes()
