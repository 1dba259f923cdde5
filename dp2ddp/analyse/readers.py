"""Files beside a program that read its checkpoints by the keys of a wrapped model, and are not converted with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from dp2ddp.analyse import checkpoints
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.link import Program
from dp2ddp.facts import NO_TIER, Obstacle, Problem, StateDict
from dp2ddp.plan import Anchor
from dp2ddp.source import Project

# The facts that say that a checkpoint is written from now on without what a wrap adds.
SAVED = {"save", "either", "other", "pickle"}


def find(project: Project, states: Iterable[StateDict]) -> Iterator[Obstacle]:
    """A note for the first place of every such file, where programs of its folder save models that are wrapped."""
    saving = {path for state in states if state.kind in SAVED for path in state.scripts}
    beside = {path: file for path, file in project.beside.items() if _folder(path, saving)}
    if not beside:
        return
    program = Program(replace(project, files={**project.files, **beside}), beside.values())
    context = Context(program)
    first: dict[Path, Anchor] = {}
    for place in sorted(_places(context), key=lambda it: (it.path, it.span)):
        first.setdefault(place.path, place)
    for path, place in first.items():
        scripts = frozenset(it for it in saving if path.is_relative_to(it.parent))
        names = " and ".join(sorted(it.name for it in scripts))
        problem = Problem(
            f"this reads checkpoints by the keys of a wrapped model, and those that {names} saves from now on have no "
            "`module.` before them",
            f"where it reads these, convert {path.name} with it",
            NO_TIER,
            works=True,
        )
        yield Obstacle(at=place, ddp="ddp", scripts=scripts, problem=problem)


def _folder(path: Path, saving: Iterable[Path]) -> bool:
    return any(path.is_relative_to(it.parent) for it in saving)


def _places(context: Context) -> Iterator[Anchor]:
    """Where keys with a prefix are expected: cut by its length, asked for by name, loaded into a wrapped model."""
    trains = {context.program.file(node).path for node in context.backwards}  # those read their own
    found = [it.at for it in checkpoints.read(context) if it.kind in ("prefix", "save")]
    found += map(context.program.anchor, checkpoints.spelled(context))
    return (it for it in found if it.path not in trains)
