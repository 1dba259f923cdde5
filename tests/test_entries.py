"""Programs that begin elsewhere than in a script, or choose their parts by name, are converted as a whole and train."""

from __future__ import annotations

from pathlib import Path

import entries
import pytest
from command import run
from entries import Form
from parity.harness import Lab
from parity.test_tier_training import differences

TRAINED = {
    f"{kind}: {name}": form
    for kind, forms in {
        "entry": entries.ENTRIES,
        "name": entries.BY_NAME,
        "registry": entries.REGISTRIES,
        "import": entries.IMPORTED,
    }.items()
    for name, form in forms.items()
}


def write(form: Form, folder: Path) -> None:
    for name, text in form.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def convert(form: Form, folder: Path) -> str:
    """Convert what is asked for in place; what was said."""
    done = run("convert", *form.asked, "--inplace", cwd=folder)
    assert done.returncode == 0, done.stderr.decode()
    return done.stderr.decode()


def started(form: Form, folder: Path) -> Path:
    """The file that starts a program: its own, or one as an installer writes it."""
    if "\n" not in form.start:
        return folder / form.start
    start = folder / ("src" if (folder / "src").exists() else "") / "installed.py"
    start.write_text(form.start)
    return start


@pytest.mark.parametrize("name", [name for name, form in TRAINED.items() if not form.module])
def test_they_make_dataparallel_s_steps(lab: Lab, name: str, tmp_path: Path) -> None:
    form = TRAINED[name]
    folders = [tmp_path / "before", tmp_path / "after"]
    for folder in folders:
        write(form, folder)
    convert(form, folders[1])
    before, after = (
        lab.run(started(form, folder), form.arguments, folder=folder, timeout=60, **more).ok()
        for folder, more in zip(folders, ({"replicas": 2}, {"processes": 2}), strict=True)
    )
    assert len(after.ranks) == 2
    assert differences(before, after, losses=False) == []
    assert after.printed == before.printed
