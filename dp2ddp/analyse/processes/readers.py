"""Files beside a program that read its checkpoints by the keys of a wrapped model, and are not converted with it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from dp2ddp.analyse import wrappers
from dp2ddp.analyse.api.files import SAVES
from dp2ddp.analyse.api.layers import FILLS_STATE
from dp2ddp.analyse.api.parallel import WRAP
from dp2ddp.analyse.context import Context, once
from dp2ddp.analyse.processes import checkpoints, paths
from dp2ddp.analyse.processes.conditions import assigned
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.program.values import Func
from dp2ddp.facts import NO_TIER, Obstacle, Problem, StateDict
from dp2ddp.plan import Anchor
from dp2ddp.source import Project, importers_beside

KEYED = frozenset({"save", "either", "other"})
"""The kinds of states that are asked for by a wrapped model's keys."""


def find(training: Context, project: Project, states: tuple[StateDict, ...]) -> Iterator[Obstacle]:
    """A note for the first place of every such file, where programs of its folder save models that are wrapped.

    ``training``: the programs that train; what stands beside that in their files may read whole models.
    """
    pickling = frozenset(path for it in checkpoints.pickled(training) for path in training.run_by(it))
    yield from _unwrapping(project, training, pickling)
    saving = {path for state in states if state.kind in checkpoints.SAVED for path in state.scripts}
    loading = _loading(training, states)
    ways = [training.program.file(it) for it in (*(call.node for call in training.wraps), *loading)]
    shared = {it.path: it for it in ways if it not in training.scripts}
    importers = importers_beside(project, frozenset(shared))
    found = {**project.beside, **{it.path: it for it in importers if "load_state_dict" in it.text}}
    beside = {path: file for path, file in found.items() if _folder(project, path, saving | pickling)}
    if not beside:
        return
    linked, key = _linked(training.program), frozenset((*beside, *shared))
    if key not in linked:
        files = replace(project, files={**project.files, **beside})
        linked[key] = Context(wrappers.linked(files, (*beside.values(), *shared.values())))
    context = linked[key]
    yield from _unwrapping(project, context, pickling)
    first: dict[Path, tuple[Anchor, str]] = {}
    passing_over: set[Path] = set()
    for place, silent in sorted(_places(context), key=lambda it: (it[0].path, it[0].span)):
        first.setdefault(place.path, (place, ""))
        passing_over |= {place.path} if silent else set()
    for call in _given_to(context, {_place(training, it) for it in loading}):
        place = context.program.anchor(call)
        first.setdefault(place.path, (place, ast.unparse(call.func)))
    for path, (place, function) in first.items():
        if path not in beside:
            continue
        scripts = frozenset(_folder(project, path, saving))
        names = " and ".join(sorted(it.name for it in scripts))
        both = " ".join(_shown(project, it) for it in (*sorted(scripts), path))
        help = f"convert both: dp2ddp convert {both}"
        message = (
            f"{_code(context, place)} expects keys with `module.`, which new checkpoints of {names} lack"
        )
        if path in passing_over:
            message += " (nothing is loaded then)"
        if function:
            message = f"`{function}()` now expects keys without `module.`, but those of this call may have it"
        else:
            help = f"if it loads those, {help}"
        problem = Problem(message, help, NO_TIER, works=True)
        yield Obstacle(at=place, ddp="ddp", scripts=scripts, problem=problem)


@once
def _linked(_: Program) -> dict[frozenset[Path], Context]:
    """The files beside a program that have been linked, by their paths: it is analysed several times."""
    return {}


def _code(context: Context, place: Anchor) -> str:
    """What stands at a place, in one line."""
    node = context.program.node_at(place)
    around = context.program.parent(node) if node is not None else None
    shown = around if isinstance(around, ast.Attribute) and around.attr == "load_state_dict" else node
    return "this" if shown is None else f"`{' '.join(ast.unparse(shown).split())}`"


def _loading(training: Context, states: tuple[StateDict, ...]) -> list[ast.FunctionDef]:
    """The functions that put values into a wrapped model's state by its keys, which have no prefix now."""
    found: dict[int, ast.FunctionDef] = {}
    for state in states:
        node = training.program.node_at(state.at) if state.kind in KEYED else None
        function = None if node is None else training.program.scope(node).node
        if isinstance(function, ast.FunctionDef):
            methods = {it.attr for it in ast.walk(function) if isinstance(it, ast.Attribute)}
            if methods & FILLS_STATE:
                found[id(function)] = function
    return [*found.values()]


def _place(context: Context, function: ast.FunctionDef) -> tuple[Path, int]:
    return context.program.file(function).path, function.lineno


def _given_to(context: Context, functions: set[tuple[Path, int]]) -> Iterator[ast.Call]:
    """The calls that give some functions a wrapped model."""
    scopes = context.program.scopes
    for call in context.program.calls if functions else ():
        entered = (scopes[it.scope].node for it in call.callees if isinstance(it, Func))
        if any(isinstance(it, ast.FunctionDef) and _place(context, it) in functions for it in entered):
            if any(context.made(context.program.values(it), WRAP) for it in handed(call.node)):
                yield call.node


def _shown(project: Project, path: Path) -> str:
    """A file as a command names it in the working folder."""
    return path.relative_to(project.root).as_posix() if path.is_relative_to(project.root) else str(path)


def _unwrapping(project: Project, context: Context, saving: frozenset[Path]) -> Iterator[Obstacle]:
    """Notes where ``.module`` is asked of what ``saving`` programs pickle bare now, in what they do not run."""
    for node in checkpoints.unwrapped(context) if saving else ():
        place = context.program.anchor(node)
        if _folder(project, place.path, saving) and not context.runs_in_training(node):
            problem = Problem(
                f"`{ast.unparse(node)}` expects a wrapped model, but {' and '.join(sorted(it.name for it in saving))} "
                "now saves the bare one",
                "if it loads that checkpoint, remove `.module`",
                NO_TIER,
                works=True,
            )
            yield Obstacle(at=place, ddp="ddp", scripts=saving, problem=problem)


def _folder(project: Project, path: Path, saving: Iterable[Path]) -> list[Path]:
    """The programs of whose project a file is."""
    return [it for it in saving if path.is_relative_to(project.homes.get(it, it.parent))]


def _places(context: Context) -> Iterator[tuple[Anchor, bool]]:
    """Where keys with a prefix are expected: cut by its length, asked for by name, loaded into a wrapped model.

    With each, whether keys that do not fit are passed over there.
    """
    saved = [*_saving(context)]
    own = {context.program.file(it).path for it in context.backwards}
    own &= {context.program.file(it.node).path for it in saved}
    read = [
        (node, it.at)
        for node, it in checkpoints.read(context)
        if it.kind in ("prefix", "first", "save", "either")
        and not checkpoints.is_of_another_length_alike(context, node)
        and not _is_given_memory(context, node)
    ]
    found = [(node, place) for node, place in read if not _reads_both(context, node)]
    found += ((node, context.program.anchor(node)) for node in checkpoints.spelled(context))
    resumed = {place.path for node, place in found if _resumes(context, node)}
    others = {path for path in own if _reads_others(context, path, saved)}
    for node, place in found:
        # A program that trains reads its own where it goes on with an optimizer; elsewhere then another's.
        if place.path not in own or (place.path in resumed | others and _loads(context, node)):
            yield place, _is_silent(context, node)


def _is_given_memory(context: Context, node: ast.AST) -> bool:
    """Whether a model is given the state of another one, which no checkpoint has a part in."""
    function = context.program.parent(node)
    call = context.program.parent(function) if function is not None else None
    loads = isinstance(call, ast.Call) and call.func is function and bool(call.args)
    return (
        loads
        and getattr(function, "attr", "") == "load_state_dict"
        and checkpoints.is_of_memory(context, call.args[0])
    )


def _reads_both(context: Context, node: ast.AST) -> bool:
    """Whether the prefix is only cut where it is there, and other keys are taken as they are."""
    inside, of_each = node, False
    for around in context.program.ancestors(node):
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return False
        if (
            isinstance(around, ast.If | ast.IfExp)
            and inside is not around.test
            and checkpoints.names_prefix(around.test)
        ):
            renamed = isinstance(inside, ast.Assign) and isinstance(inside.targets[0], ast.Name)
            if of_each or renamed or around.orelse:
                return True
        of_each = of_each or isinstance(around, ast.For | ast.GeneratorExp | ast.ListComp | ast.DictComp)
        inside = around
    return False


def _is_silent(context: Context, node: ast.AST) -> bool:
    """Whether a place loads with ``strict=False``, or only what it finds by the model's keys."""
    if checkpoints.is_compared(context, node):
        return True
    calls = (it for it in (node, *context.program.ancestors(node)) if isinstance(it, ast.Call))
    loads = (it for it in calls if getattr(it.func, "attr", "") == "load_state_dict")
    return any(
        [ast.unparse(it.value) for it in call.keywords if it.arg == "strict"] == ["False"]
        or [ast.unparse(it) for it in call.args[1:2]] == ["False"]
        for call in loads
    )


def _saving(context: Context) -> Iterator[Call]:
    """The calls that save the state of a model, or one itself."""
    for call in context.program.calls:
        if call.names & SAVES and any(_is_model(context, it) for it in _parts(context, call.node)):
            yield call


def _reads_others(context: Context, path: Path, saved: list[Call]) -> bool:
    """Whether a file reads a checkpoint that is not known to be one that it saves."""
    own = [paths.written(context, it) for it in saved if context.program.file(it.node).path == path]
    reading = (
        it
        for it in context.program.calls
        if "torch.load" in it.names and context.program.file(it.node).path == path
    )
    return any(not any(paths.are_same(paths.read(context, it), file) for file in own) for it in reading)


def _parts(context: Context, call: ast.Call) -> Iterator[ast.AST]:
    """What a call is given is made of, followed through names."""
    for argument in handed(call):
        yield from context.program.descendants(argument)
        for name in context.program.definitions(argument):
            held = context.program.given(name) if isinstance(name, ast.arg) else assigned(context, argument)
            for it in held:
                yield from context.program.descendants(it)


def _is_model(context: Context, node: ast.AST) -> bool:
    """Whether a node is a model, or its state: what is not known counts, optimizers do not."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "state_dict":
        return not any(map(context.optimizes, context.program.values(node.func.value)))
    whole = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    return whole and any(map(context.module_class, context.program.values(node)))


def _resumes(context: Context, node: ast.AST) -> bool:
    """Whether the state of an optimizer is loaded beside a place, too."""
    block = context.program.block(context.program.statement(node))
    calls = (it for statement in block for it in ast.walk(statement) if isinstance(it, ast.Call))
    return any(
        isinstance(it.func, ast.Attribute)
        and it.func.attr == "load_state_dict"
        and any(map(context.optimizes, context.program.values(it.func.value)))
        for it in calls
    )


def _loads(context: Context, node: ast.AST) -> bool:
    """Whether a place loads a state that the program does not go on with."""
    inside = (it for it in context.program.ancestors(node) if isinstance(it, ast.Call))
    loads = checkpoints.is_compared(context, node) or any(
        getattr(it.func, "attr", "") == "load_state_dict"
        for it in (node, *inside)
        if isinstance(it, ast.Call)
    )
    return loads and not _resumes(context, node)
