"""Programs that use changed files and are not converted: which files, and what becomes of them."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from dp2ddp.analyse import wrappers
from dp2ddp.analyse.context import Context
from dp2ddp.changes import Beside
from dp2ddp.defects import defect
from dp2ddp.source import Project, SourceFile, importers_beside


def programs_beside(project: Project, changed: Iterable[Path]) -> tuple[Beside, ...]:
    """The programs in the folders of a project, beside those asked for, that import any of the ``changed`` files."""
    wanted = frozenset(changed)
    importers = importers_beside(project, wanted)
    found = [it for it in importers if _does_something(it)]
    whole = replace(project, files={**project.files, **{it.path: it for it in importers}})
    used = {it.path: whole.reaches(it.path) for it in found}
    try:
        wraps = _wrapping(whole, found, wanted)
    except Exception as error:  # what they do is told beside the conversion: it is none of it
        defect(error)
        wraps = {}
    return tuple(
        Beside(it.path, tuple(sorted(used[it.path] & wanted)), *wraps.get(it.path, (False, False)))
        for it in found
    )


def _wrapping(
    project: Project, programs: list[SourceFile], changed: frozenset[Path]
) -> dict[Path, tuple[bool, bool]]:
    """Whether each of some programs trains a wrapped model, and whether it runs a wrap that was converted."""
    reached = frozenset().union(*(project.reaches(it.path) for it in programs))
    if not reached:
        return {}
    context = Context(wrappers.linked(project, [project.files[it] for it in sorted(reached)]))
    trains = {it.path for it in context.scripts}
    shared = [it.node for it in context.wraps if context.program.file(it.node).path in changed]
    apart = [
        it for it in programs if not project.reaches(it.path) & {*project.asked}
    ]  # others may start ranks
    runs = {it.path: context.program_runs(it) for it in apart if shared}
    return {it.path: (it.path in trains, any(id(node) in runs[it.path] for node in shared)) for it in apart}


def _does_something(file: SourceFile) -> bool:
    """Whether a file is more than a module that others import."""
    return "__main__" in file.text or any(
        isinstance(it, ast.For | ast.While | ast.With) or isinstance(getattr(it, "value", None), ast.Call)
        for it in file.tree.body
        if not isinstance(it, ast.Assign | ast.AnnAssign)
    )
