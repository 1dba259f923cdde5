"""Values that every process makes for itself where all need the same: folders named by the clock, seeds, decisions.

What the main process writes under such a name, no other process finds. So the way goes back from the paths that all
processes read, and that the program writes, to clocks, folders of a process's own, listings and questions for files.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from dp2ddp.analyse.api.files import (
    EXISTENCE,
    LISTS_FOLDER,
    LISTS_STEPWISE,
    MAKES,
    PATH_ARGUMENTS,
    WALKS_FOLDERS,
    WRITERS,
)
from dp2ddp.analyse.api.randomness import SEED_ARGUMENTS
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.processes import alike, paths, questions
from dp2ddp.analyse.processes.downloads import asks_files, caching, is_inside, keeps_in_memory
from dp2ddp.analyse.processes.effects import all_pass, already, covered
from dp2ddp.analyse.processes.folders import is_own
from dp2ddp.analyse.processes.origins import Origin, Origins
from dp2ddp.analyse.processes.writes import leaves_any_file, reads_file
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.values import Inst, Made
from dp2ddp.facts import Agreement, Effect


def find(context: Context, effects: tuple[Effect, ...]) -> list[Origin]:
    """The values that all processes must have alike, and make each for itself: what they agree on from now on."""
    context.agreed = set()
    guards = [effect for effect in effects if effect.kind in ("guard", "test")]
    made, read = Origins(context).of(_made(context)), Origins(context).of(_read(context, guards))
    clocks = Origins(context, files=False)
    # Of what all only ask for, listings don't count: that asks what is there of others' making.
    asked = Origins(context, files=False).of(_asked_for(context, guards))
    found = [origin for origin in (*read, *asked) if origin in made]
    found += [*clocks.of(_seeds(context)), *(Origin(it) for it in _decisions(context, guards))]
    cached = caching(context) if found else set()
    found = [
        it
        for it in dict.fromkeys(found)
        if not is_object(context, it.node)
        and not _is_stepwise(context, it.node)
        and _can_meet(context, it.node, guards, cached)
    ]
    context.agreed = {id(it.node) for it in found}
    return found


def listed(context: Context, effects: Iterable[Effect]) -> frozenset[int]:
    """The calls that list folders where every process reads what its own listing names."""
    guards = [effect for effect in effects if effect.kind in ("guard", "test")]
    origins = Origins(context).of(_read(context, guards))
    origins = [it for it in origins if id(it.node) not in context.agreed]
    inside = {id(it) for origin in origins for it in context.program.descendants(origin.node)}
    return frozenset(id(it.node) for it in context.program.calls if id(it.node) in inside)


def has_own_path(context: Context, call: Call) -> bool:
    """Whether the path that a call is given has a name of each process's own: by the clock, by what is there.

    Not where they have agreed on it.
    """
    return any(id(it.node) not in context.agreed for it in Origins(context).of(_path(call)))


def facts(context: Context, found: list[Origin]) -> Iterator[Agreement]:
    """Where the main process's value is taken for all."""
    for origin in found:
        what = origin.name or ast.unparse(origin.node)
        yield Agreement(**context.place(origin.node), what=what, name=origin.name)


def is_object(context: Context, node: ast.AST) -> bool:
    """Whether something may be an object of torch's or the project's: a copy of the main process's would be another."""
    values = context.program.values(node) if isinstance(node, ast.expr) else ()
    return any(
        isinstance(it, Inst) or (isinstance(it, Made) and it.name.startswith("torch.")) for it in values
    )


def _is_stepwise(context: Context, node: ast.AST) -> bool:
    """Whether a value hands out names one by one, and can't be sent."""
    call = context.program.call(node)
    return call is not None and bool(call.names & LISTS_STEPWISE)


def _can_meet(context: Context, node: ast.AST, guards: list[Effect], cached: set[int]) -> bool:
    """Whether all processes come by, one at a time nowhere: what is ``cached``, one makes first."""
    return (
        all_pass(context, node, guards)
        and not is_inside(context, node, cached)
        and not alike.in_worker(context, node)
        and not _in_rounds(context, node)
    )


def _in_rounds(context: Context, node: ast.AST) -> bool:
    """Whether a place is run once for each element: in a comprehension, but for what that goes through first."""
    kinds = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    around = (it for it in context.program.ancestors(node) if isinstance(it, kinds))
    return any(not context.program.is_inside(node, it.generators[0].iter) for it in around)


# Where values are needed


def _made(context: Context) -> Iterator[ast.expr]:
    """The paths that the program makes or writes; what stays in a temporary folder, each process does for itself."""
    for call in context.program.calls:
        if context.runs_in_training(call.node) and (
            call.names & (MAKES | WRITERS) or leaves_any_file(context, call)
        ):
            yield from (it for it in _path(call) if not is_own(context, it))


def _read(context: Context, guards: list[Effect]) -> Iterator[ast.expr]:
    """The paths that all processes read."""
    for call in context.program.calls:
        reads = reads_file(call) or call.names & (LISTS_FOLDER | WALKS_FOLDERS)
        if reads or any(name.endswith(".from_pretrained") for name in call.names):
            if _is_of_all(context, call, guards):
                yield from _path(call)


def _asked_for(context: Context, guards: list[Effect]) -> Iterator[ast.expr]:
    """The paths of files and folders that all processes ask for, where the answer is not agreed on."""
    for call in context.program.calls:
        if call.names & EXISTENCE and _is_of_all(context, call, guards):
            if not questions.is_about_made(context, call):
                yield from _path(call)


def _is_of_all(context: Context, call: Call, guards: list[Effect]) -> bool:
    """Whether a call is every process's, and not the main process's alone."""
    alone = covered(context, call.node, guards) or already(context, call.node)
    return context.runs_in_training(call.node) and not alone


def _path(call: Call) -> Iterator[ast.expr]:
    yield from paths.given(call)
    yield from (it.value for it in call.node.keywords if it.arg in PATH_ARGUMENTS)


def _seeds(context: Context) -> Iterator[ast.expr]:
    for call in context.program.calls:
        if call.names & (alike.SEEDS | alike.UNSEEDED) and context.runs_in_training(call.node):
            yield from call.node.args[:1]
            yield from (it.value for it in call.node.keywords if it.arg in SEED_ARGUMENTS)


def _decisions(context: Context, guards: list[Effect]) -> Iterator[ast.expr]:
    """The conditions that ask the clock, and decide how the training goes on; and whether a file is there yet.

    That is asked by all before one makes it, where more than the file comes of making it.
    """
    for node in context.program.nodes.values():
        if isinstance(node, ast.If | ast.While) and context.runs_in_training(node):
            if alike.asks_the_clock(context, node) or _makes_more_than_a_file(context, node):
                yield node.test


def _makes_more_than_a_file(context: Context, node: ast.If | ast.While) -> bool:
    """Whether a statement makes a file that is not there, and something in memory with it."""
    if not isinstance(node, ast.If) or node.orelse or not asks_files(context, node.test):
        return False
    runs = set().union(*map(context.runs, node.body))
    leaves = any(id(it.node) in runs and leaves_any_file(context, it) for it in context.program.calls)
    return leaves and keeps_in_memory(context, node.test)
