"""A copy of the user's folder for each run to work in, so that nothing of theirs is written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

_LARGE_FILE = 16 * 2**20
_MANY_FILES = 3000
OWN = "dp2ddp_verify_"
"""How the folders of runs begin."""
_LEFT_OUT = {".git", "__pycache__", ".venv", "venv", "node_modules", ".mypy_cache", ".pytest_cache"}


def link_neighbours(source: Path, place: Path) -> None:
    """Link what lies beside a folder into ``place``, where its copy lies: programs read ``../data``."""
    for entry in os.scandir(source.parent):
        if entry.name != source.name and not entry.name.startswith((".", OWN)):
            (place / entry.name).symlink_to(entry.path)


def mirror(source: Path, copy: Path, overlay: Mapping[Path, bytes]) -> None:
    """Copy a folder; large files, and folders of very many, become links, and links stay links.

    Args:
        overlay: contents of files that shall be others.
    """
    _mirror(source, copy, overlay, source.resolve())


def _mirror(source: Path, copy: Path, overlay: Mapping[Path, bytes], top: Path) -> None:
    copy.mkdir(parents=True)
    for entry in os.scandir(source):
        if entry.name in _LEFT_OUT or entry.name.startswith(OWN):
            continue
        target, path = copy / entry.name, Path(entry.path)
        if entry.is_symlink() and path not in overlay:
            within = path.resolve().is_relative_to(top)
            target.symlink_to(os.readlink(path) if within else path.resolve())
        elif entry.is_dir() and not _has_many(path):
            _mirror(path, target, overlay, top)
        elif path in overlay:
            target.write_bytes(overlay[path])
        elif entry.is_file() and entry.stat().st_size <= _LARGE_FILE:
            shutil.copy2(entry.path, target)
        elif entry.is_dir() or entry.is_file():
            target.symlink_to(path)


def _has_many(folder: Path) -> bool:
    count = 0
    for _, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]
        count += len(names) + len(folders)
        if count > _MANY_FILES:
            return True
    return False
