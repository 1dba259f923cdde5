"""Which files an installation put where they are: libraries, of which none is a project's own."""

from __future__ import annotations

import csv
import os
from functools import cache
from pathlib import Path

FOLDERS = frozenset({"site-packages", "dist-packages"})
"""Where Python looks for what is installed."""

_SAYING = ".dist-info"


def is_installed(path: Path) -> bool:
    """Whether a file or a folder was installed: among Python's packages, or by ``pip install --target``."""
    if not FOLDERS.isdisjoint(path.parts):
        return True
    return any(
        name in installed_in(folder) for folder, name in zip(path.parents, reversed(path.parts), strict=False)
    )


@cache
def installed_in(folder: Path) -> frozenset[str]:
    """What lies in a folder because it was installed into it, by name; what else is there is not in it."""
    try:
        saying = [it for it in os.listdir(folder) if it.endswith(_SAYING)]
    except OSError:
        return frozenset()
    return frozenset(name for it in saying for name in _installed_by(folder / it))


def _installed_by(saying: Path) -> set[str]:
    """The names that a package's installation put beside the folder that tells of it."""
    try:
        with (saying / "RECORD").open(encoding="utf-8", errors="replace", newline="") as record:
            names = {row[0].partition("/")[0] for row in csv.reader(record) if row}
    except (OSError, csv.Error):
        name = saying.name.partition("-")[0]
        names = {name, name.lower(), f"{name}.py", f"{name.lower()}.py"}
    return names - {"", ".."}
