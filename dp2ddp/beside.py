"""Programs that use changed files and are not converted: which files, and what becomes of them."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from dp2ddp.analyse import wrappers
from dp2ddp.analyse import wraps as names_wrap
from dp2ddp.analyse.api.layers import DATA_PARALLEL_WORDS
from dp2ddp.analyse.api.parallel import STEPS, WRAP
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.processes.checkpoints import KEYED_LIKE_FILES, conditions, names_prefix, own_names
from dp2ddp.analyse.program.values import Inst, Made
from dp2ddp.changes import Beside
from dp2ddp.defects import defect
from dp2ddp.plan import Anchor
from dp2ddp.source import NOTEBOOK, Location, Project, SourceFile, importers_beside

# What a model is asked for by the keys of its state.
STATE = KEYED_LIKE_FILES | {"load_state_dict"}


def programs_beside(
    project: Project, changed: Iterable[Path], unconditional: Container[Anchor | None] = ()
) -> tuple[Beside, ...]:
    """The programs in the folders of a project, beside those asked for, that import any of the ``changed`` files.

    ``unconditional``: the wraps that stood under conditions, and no longer do.
    """
    wanted = frozenset(changed)
    importers = importers_beside(project, wanted)
    found = [it for it in importers if _does_something(it)]
    whole = replace(project, files={**project.files, **{it.path: it for it in importers}})
    used = {it.path: whole.reaches(it.path) for it in found}
    try:
        wraps = _wrapping(whole, found, wanted, unconditional)
    except Exception as error:  # what they do is told beside the conversion: it is none of it
        defect(error)
        wraps = {}
    return tuple(
        Beside(
            it.path, tuple(sorted(used[it.path] & wanted)), *wraps.get(it.path, (False, False, None, False))
        )
        for it in found
    )


def _wrapping(
    project: Project,
    programs: list[SourceFile],
    changed: frozenset[Path],
    unconditional: Container[Anchor | None],
) -> dict[Path, tuple[bool, bool, Location | None, bool]]:
    """Whether each of some programs trains a wrapped model, and whether it runs a wrap that was converted.

    With where it takes a model for a bare one that is always wrapped now, and whether by the keys of its state.
    """
    wrapping = {path for path, file in project.files.items() if names_wrap(file.text) and _spells_wrap(file)}
    programs = [it for it in programs if project.reaches(it.path) & wrapping]  # the others need no linking
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
    always = {id(it) for it in shared if context.program.anchor(it) in unconditional}
    bare = [it for it in _taken_for_bare(context, always) if context.program.file(it).path not in changed]

    def told(path: Path) -> tuple[bool, bool, Location | None, bool]:
        ran = runs.get(path, set())
        wraps = any(id(node) in ran for node in shared)
        uses = [(it.attr in STATE, context.program.anchor(it)) for it in bare if id(it) in ran]
        by_keys, first = min(((by, Location(it.path, it.span)) for by, it in uses), default=(False, None))
        return path in trains and path.suffix != NOTEBOOK, wraps, first, by_keys

    return {it.path: told(it.path) for it in apart}


def _spells_wrap(file: SourceFile) -> bool:
    """Whether the code of a file has to do with DataParallel, or with its steps: not only what is said of it."""
    said = {
        id(it.value) for it in file.nodes if isinstance(it, ast.Expr) and isinstance(it.value, ast.Constant)
    }
    code = (it for it in file.nodes if id(it) not in said)
    words = (word for node in code for _, value in ast.iter_fields(node) for word in _words(value))
    return any(it in word for word in words for it in (*DATA_PARALLEL_WORDS, *STEPS))


def _words(value: object) -> list[str]:
    """The names, or the text, that a part of a node is."""
    return [it for it in (value if isinstance(value, list) else [value]) if isinstance(it, str)]


def _taken_for_bare(context: Context, wraps: Container[int]) -> Iterator[ast.Attribute]:
    """Where a model is asked for its state, or something of its own, that some wraps may be round."""
    for node in context.program.nodes.values() if wraps else ():
        if isinstance(node, ast.Attribute) and not any(map(names_prefix, conditions(context, node))):
            values = context.program.values(node.value)
            wrapped = [it for it in values if isinstance(it, Made) and it.name == WRAP and it.site in wraps]
            inner = {model for it in wrapped for model in context.inside(it) if isinstance(model, Inst)}
            own = {name for it in inner for name in own_names(context, it)} - {"forward"}
            if wrapped and (node.attr in STATE or node.attr in own):
                yield node


def _does_something(file: SourceFile) -> bool:
    """Whether a file is more than a module that others import."""
    return (
        file.path.suffix == NOTEBOOK
        or "__main__" in file.text
        or any(
            isinstance(it, ast.For | ast.While | ast.With) or isinstance(getattr(it, "value", None), ast.Call)
            for it in file.tree.body
            if not isinstance(it, ast.Assign | ast.AnnAssign)
        )
    )
