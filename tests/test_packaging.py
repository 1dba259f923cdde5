"""What is installed: the package without its READMEs, marked as typed, with the first page as its description."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SETUPTOOLS = "77"
"""The oldest that reads pyproject.toml, as it says itself."""


@pytest.mark.slow
def test_the_wheel_has_what_it_needs(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", minversion=SETUPTOOLS)
    source = tmp_path / "source"
    shutil.copytree(ROOT / "dp2ddp", source / "dp2ddp", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        ".",
        "--no-deps",
        "--no-build-isolation",
        "-q",
        "-w",
        tmp_path,
    ]
    subprocess.run(build, cwd=source, check=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (described,) = (archive.read(name).decode() for name in names if name.endswith("/METADATA"))
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "dp2ddp").rglob("*.py")}
    assert {name for name in names if "dist-info" not in name} == {*modules, "dp2ddp/py.typed"}
    metadata = message_from_string(described)
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == (ROOT / "README.md").read_text()
    assert "Typing :: Typed" in metadata.get_all("Classifier")
