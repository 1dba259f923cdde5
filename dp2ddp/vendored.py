"""Copies of the runtime in a project: what names they have, and import lines that take the runtime from one.

convert --vendor tools/ddp_runtime:   from dp2ddp import runtime as ddp  →  from tools import ddp_runtime as ddp
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

from dp2ddp.changes import Change
from dp2ddp.source import Project, parse


class Misplaced(Exception):
    """A copy that a program could not import from where it is: which program, and where it would have to be."""


def moved(
    changes: Iterable[Change],
    project: Project,
    copy: Path,
    starts: Mapping[Path, str],
    others: bool = True,
) -> tuple[Change, ...]:
    """The changes, and those of other converted files, so that all take the runtime from a copy in the project.

    Args:
        changes: what is written otherwise.
        project: before them.
        copy: the folder of the copy.
        starts: the programs, with the dotted name of those that ``-m`` starts.
        others: whether files that were converted before take it from there, too.

    Raises ``Misplaced``.
    """
    made = {change.path: change for change in changes}
    for path, file in project.files.items():
        after = made[path].after if path in made else file.written
        is_new = path in made and not _imports_installed(file.written)
        if (others or is_new) and _imports_installed(after):
            name = _name(path, project, copy, starts)
            text = _renamed(after, name)
            made[path] = Change(path, file.written, text, file.encoding)
    return tuple(made[path] for path in sorted(made))


def _imports_installed(text: str) -> bool:
    return "dp2ddp" in text and any(map(_is_import, ast.walk(parse(text))))


def _is_import(node: ast.AST) -> bool:
    """``from dp2ddp import runtime as ddp``, the one way in which scripts that were converted import it."""
    names = node.names if isinstance(node, ast.ImportFrom) and node.module == "dp2ddp" else []
    return [it.name for it in names] == ["runtime"]


def _name(path: Path, project: Project, copy: Path, starts: Mapping[Path, str]) -> str:
    """The dotted name of a copy in a file, which every program that runs the file can import it by."""
    programs = [it for it in starts or _tops(project) if path in project.reaches(it)] or [path]
    found = [_names(project.searched(it, by_module=bool(starts.get(it))), copy) for it in programs]
    for program, names in zip(programs, found, strict=True):
        if not names:
            here = project.searched(program, by_module=bool(starts.get(program)))[0]
            raise Misplaced(f"{program} could not import it from there; it can from {here / copy.name}")
    common = [name for name in found[0] if all(name in names for names in found)]
    if not common:
        first, other = programs[0], next(
            it for it, names in zip(programs, found, strict=True) if names != found[0]
        )
        raise Misplaced(f"{path} is run by {first} and {other}, which would import it under different names")
    return common[0]


def _tops(project: Project) -> list[Path]:
    """The files asked for that no other one of them imports."""
    inner = {path for it in project.asked for path in project.reaches(it) if path != it}
    return [path for path in project.asked if path not in inner]


def _names(folders: Iterable[Path], copy: Path) -> list[str]:
    parts = (copy.relative_to(folder).parts for folder in folders if copy.is_relative_to(folder))
    return [".".join(it) for it in parts if it and all(part.isidentifier() for part in it)]


def _renamed(text: str, module: str) -> str:
    lines = text.splitlines(keepends=True)
    package, _, last = module.rpartition(".")
    for node in ast.walk(parse(text)):
        if _is_import(node):
            assert isinstance(node, ast.ImportFrom)
            name = node.names[0].asname or "runtime"
            bound = last if name == last else f"{last} as {name}"
            line = f"from {package} import {bound}" if package else f"import {bound}"
            end = (node.end_lineno or node.lineno) - 1
            after = lines[end].encode()[node.end_col_offset :].decode()
            before = lines[node.lineno - 1].encode()[: node.col_offset].decode()
            lines[node.lineno - 1 : end + 1] = [before + line + after, *[""] * (end - node.lineno + 1)]
    return "".join(lines)
