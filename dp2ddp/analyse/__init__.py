"""Project → Facts: link the project once, then let each collector say what it sees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from dp2ddp.analyse import outdated, proofs, wrappers
from dp2ddp.analyse.apex import apex
from dp2ddp.analyse.api.layers import DATA_PARALLEL_WORDS
from dp2ddp.analyse.context import Context, is_main_guard, once
from dp2ddp.analyse.evaluation import evaluations
from dp2ddp.analyse.processes import (
    agreements,
    alike,
    branches,
    checkpoints,
    devices,
    downloads,
    effects,
    entry,
    questions,
    readers,
    rereads,
)
from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.rank_variance import decisions, differing
from dp2ddp.analyse.training import (
    bare,
    collating,
    columns,
    drawing,
    hooks,
    joints,
    loaders,
    loops,
    metrics,
    nested,
    own_batches,
    padding,
    placing,
    precision,
    prepared,
    rebound,
    reports,
    squeezing,
    untrained,
)
from dp2ddp.analyse.wrapping import functional, models, parallel, unconverted, unused
from dp2ddp.facts import Facts, Gather, Joint, Lines, Loader, Number, Obstacle, Outdated, Scaled
from dp2ddp.legacy import Mend, unmended
from dp2ddp.plan import Anchor
from dp2ddp.source import Project, SourceFile


@dataclass(frozen=True)
class Linked:
    """A project whose programs today's Python and libraries run: ``outdated`` says what had to be mended for that."""

    project: Project
    program: Program
    outdated: tuple[Outdated, ...] = ()


def link(project: Project) -> Linked:
    """Link a project, mended where it needs that."""
    program = wrappers.linked(project, _concerned(project))
    found = outdated.find(Context(program))
    mends: dict[Path, list[Mend]] = {}
    for fact in found:
        mends.setdefault(fact.path, []).extend(fact.mends)
    changed = {path: some for path, some in mends.items() if some}
    if not changed:
        return Linked(project, program, found)
    mended = project.mended(changed)
    of_disk = {path: project.files[path].mends for path in changed}
    found = tuple(
        replace(fact, mends=tuple(unmended(mend, of_disk.get(fact.path, ())) for mend in fact.mends))
        for fact in found
    )
    return Linked(mended, wrappers.linked(mended, _concerned(mended)), found)


@dataclass(frozen=True)
class Looks:
    """How programs are looked at, where not as they are.

    ``unsharded``: those not as if loaders handed out the batches that they make themselves. ``joining``: those as if
    parts of batches were joined behind the forward, but for the places ``needless``. ``preparing``: those as if loaders
    handed out what they make of a loader's batches.
    """

    unsharded: frozenset[Path] = frozenset()
    joining: frozenset[Path] = frozenset()
    needless: frozenset[Anchor] = frozenset()
    preparing: frozenset[Path] = frozenset()


@dataclass(frozen=True)
class _Apart:
    """The programs before batches are looked at: ``whole`` as they are, ``plain`` as they run with DataParallel.

    ``sites``: the batches that they make themselves. ``taken``: what is made of a loader's of which parts are taken,
    in the programs ``prepares``; ``sources``: what whole batches are drawn from then.
    """

    spelled: tuple[Outdated, ...]
    whole: Context
    plain: Context
    batch_loops: list[loops.BatchLoop]
    sites: list[own_batches.Site]
    taken: list[own_batches.Site]
    sources: list[ast.expr]
    prepares: frozenset[Path]


@dataclass(frozen=True)
class _View:
    """The programs as they are looked at: ``whole`` as they are, ``context`` with what stands for what they do."""

    spelled: tuple[Outdated, ...]
    whole: Context
    context: Context
    batch_loops: list[loops.BatchLoop]


@once
def _separated(program: Program) -> tuple[tuple[Outdated, ...], Context, Context]:
    """What is spelled anew in the programs, these as they are, and as they run with DataParallel."""
    context = Context(program)
    spelled = tuple(outdated.spelled(context))
    calls = functional.find(context)
    if calls:
        context = functional.wrapped_once(context, calls)
    return spelled, *branches.separated(context)


def _apart(linked: Linked, unsharded: frozenset[Path], preparing: frozenset[Path]) -> _Apart:
    spelled, kept, pruned = _separated(linked.program)
    whole = Context(kept.program, kept.branches, kept.beside)  # nothing is taken to be so yet
    context = Context(pruned.program, pruned.branches, pruned.beside) if pruned is not kept else whole
    batch_loops = loops.batch_loops(context)
    covered = set[int]().union(*(it.runs for it in batch_loops if it.trains))
    own = columns.find(context, covered) or own_batches.find(context, covered)
    sites = [it for it in own if not context.run_by(it.node) & unsharded]
    of_loaders = [it for it in batch_loops if context.run_by(it.node) & preparing]
    taken, sources = prepared.find(context, of_loaders) if of_loaders else ([], [])
    prepares = frozenset[Path]().union(*(context.run_by(it.node) for it in of_loaders if taken))
    return _Apart(spelled, whole, context, batch_loops, sites, taken, sources, prepares)


@dataclass(frozen=True)
class Joined:
    """The programs that parts of batches can be joined in, and the view that shows it: for one analysis of these."""

    programs: frozenset[Path]
    looks: Looks
    view: _View


def _view(linked: Linked, looks: Looks) -> _View:
    apart = _apart(linked, looks.unsharded, looks.preparing)
    context, batch_loops = apart.plain, apart.batch_loops
    if apart.sites or apart.taken:
        context = own_batches.looked_at_as_loaders(context, [*apart.sites, *apart.taken], apart.sources)
        batch_loops = _loops(context)
    else:
        context.evaluated_apart = loops.evaluated_apart(context, batch_loops)
    if looks.joining:
        sites = joints.find(context, batch_loops, looks.joining, looks.needless)
        context, batch_loops, sites = _hoisted(context, batch_loops, sites, looks)
        if sites:
            context = joints.looked_at(context, sites)
            batch_loops = _loops(context)
        context.joined = joints.rounds(context, batch_loops)
    return _View(apart.spelled, apart.whole, context, batch_loops)


def _loops(context: Context) -> list[loops.BatchLoop]:
    """The loops over batches of programs that are looked at anew, with what these evaluate noted."""
    found = loops.batch_loops(context)
    context.evaluated_apart = loops.evaluated_apart(context, found)
    return found


def _hoisted(
    context: Context, batch_loops: list[loops.BatchLoop], sites: list[joints.Site], looks: Looks
) -> tuple[Context, list[loops.BatchLoop], list[joints.Site]]:
    """The programs with forwards in statements of their own, where only these can be followed by a joint."""
    joined = {program for it in sites for program in context.run_by(it.statement)}
    forwards = nested.find(context, batch_loops, looks.joining - joined)
    if not forwards:
        return context, batch_loops, sites
    hoisted = nested.looked_at(context, forwards)
    found = _loops(hoisted)
    more = joints.find(hoisted, found, looks.joining, looks.needless)
    return (hoisted, found, more) if len(more) > len(sites) else (context, batch_loops, sites)


def prepare(linked: Linked, programs: frozenset[Path], looks: Looks) -> frozenset[Path]:
    """The programs, of some, that can take a rank's part where models are given what is made of whole batches."""
    return _apart(linked, looks.unsharded, programs).prepares & programs


def join(linked: Linked, programs: frozenset[Path], looks: Looks) -> Joined:
    """The programs, of some, of which parts of batches can be joined behind a forward."""
    looks = replace(looks, joining=programs)
    view = _view(linked, looks)
    found = frozenset[Path]().union(*(it.scripts for it in joints.facts(view.context)))
    return Joined(found & programs, looks, view)


def analyse(
    linked: Linked, looks: Looks = Looks(), *, assume: bool = False, seen: Joined | None = None
) -> Facts:
    """Collect what is known about a project's programs that train with DataParallel.

    ``assume``: go on from what is not known of a loss with what it would have to be. ``seen``: a view of them that has
    been made already; what is found out is noted in it, so that it is used up then.
    """
    view = seen.view if seen is not None and seen.looks == looks else _view(linked, looks)
    spelled, whole, context, batch_loops = view.spelled, view.whole, view.context, view.batch_loops
    context.assumes = assume
    draws, dealt = loops.drawn(context, batch_loops)
    training = loops.training_loaders(batch_loops) - dealt
    context.put_together = padding.whole(context, training)
    context.handed = padding.handed(context)
    context.hands_lists = collating.hand_lists(context, training) or padding.hand_lists(context)
    context.lists_are_entries = context.hands_lists and padding.lists_are_entries(context)
    context.joins_samples = collating.joins(context, training)
    trained = bare.find(context)
    at_once, pulled = loops.together(context, batch_loops), loops.pulled(batch_loops)
    asked = loaders.sized(context, batch_loops)
    asked |= dict.fromkeys(loops.evaluated(context, batch_loops), "it is also used for evaluation")
    asked |= dict.fromkeys(pulled, "its batches are taken with next()")
    made = (*loaders.collect(context, training, at_once, asked), *loaders.dealt(context, draws))
    epochs = loops.collect(context, batch_loops, made)
    uncounted = {loop.loader: loop.problem.message for loop in epochs if loop.problem is not None}
    judged = metrics.judge(context, batch_loops)
    reported = reports.find(context, batch_loops, judged.whole, judged.asked)
    joined = tuple(joints.facts(context))
    made = tuple(
        replace(
            it,
            shard=it.shard
            or uncounted.get(it.at, "")
            or _ordered(it, (*judged.gathers, *joined), reported.ordered)
            or _summed(it, judged.scaled),
        )
        for it in made
    )
    own = partial(agreements.has_own_path, context)
    acts = effects.collect(context, reported.statements(context), own)
    numbers = tuple(placing.numbers(context, reported, acts))
    made, numbers, gathers = _without_return(made, numbers, judged.gathers)
    origins = agreements.find(context, acts)
    if origins:  # what is agreed on is no process's own any more: all may make such a folder
        acts = effects.collect(context, reported.statements(context), own)
    starts = entry.collect(context)
    wrapped = models.collect(context, starts)
    made = loaders.conditional(made, [it.scripts for it in wrapped if models.is_conditional(it)])
    sharded = {loader.at for loader in made if loader.shard}
    agreed = (*agreements.facts(context, origins), *alike.seeds(context))
    early = entry.before_devices(context, starts)
    perhaps = checkpoints.unsettled(context, wrapped)
    evaluated = tuple(evaluations.collect(context, batch_loops, acts))
    alone = evaluations.undivided(context, batch_loops, evaluated)
    drawn = loops.drawn_anywhere(context, batch_loops)
    loading = loaders.loading(context, loops.drawn_together(context, batch_loops, acts, drawn), alone)
    waits = rereads.collect(context, whole, acts)
    agreed += tuple(decisions.collect(context, batch_loops, evaluated, acts, waits))
    replaced, stays = apex.collect(context, whole)
    on_parts = drawing.run_on_parts(context, batch_loops, judged.gathers)
    noise = drawing.Drawing(context, batch_loops, on_parts.values())
    left = metrics.measured(context, batch_loops, reported, judged.gathers)
    facts = Facts(
        scripts=starts,
        lines=tuple(_lines(context)),
        wraps=wrapped,
        parallel=parallel.collect(context),
        functional=(*functional.collect(context), *untrained.collect(context, batch_loops, reported)),
        bare=tuple(trained.values()),
        loaders=made,
        loading=loading,
        workers=loaders.workers(context, drawn, loading),
        loops=tuple(loop for loop in epochs if loop.loader not in sharded),
        losses=judged.losses,
        gathers=gathers,
        joints=joined,
        scaled=judged.scaled,
        devices=devices.collect(
            context,
            models.moves(context, wrapped),
            early,
            parallel.at_home(context),
            devices.unbound(context, starts),
        ),
        effects=acts,
        fetches=downloads.fetch_facts(context, loaders.hoisted(context, training)),
        rereads=waits,
        agreements=agreed,
        questions=questions.collect(context, acts, starts),
        states=checkpoints.collect(context, acts, perhaps),
        numbers=(*numbers, *left),
        draws=tuple(noise.facts()),
        squeezes=tuple(squeezing.facts(context, on_parts.values())),
        lacking=tuple(unconverted.lacking(context, perhaps)),
        evaluations=evaluated,
        precision=replaced,
        groups=tuple(branches.collect(whole)),
        proofs=tuple(proofs.collect(context, (start.program for start in starts), wrapped)),
        predictions=tuple(unused.predictions(context)),
        outdated=(*spelled, *linked.outdated),
        obstacles=(
            *branches.obstacles(context),
            *unconverted.obstacles(context),
            *unconverted.written(context),
            *parallel.obstacles(context),
            *loops.obstacles(context, batch_loops),
            *noise.obstacles(),
            *collating.obstacles(context, loops.training_loaders(batch_loops)),
            *joints.obstacles(context, batch_loops),
            *metrics.obstacles(context, batch_loops),
            *metrics.numbered(context, batch_loops, reported.whole),
            *reports.obstacles(context, reported),
            *differing.obstacles(context, batch_loops, judged, reported, noise.common()),
            *devices.obstacles(context, parallel.at_home(context)),
            *effects.obstacles(context),
            *evaluations.obstacles(context, batch_loops, acts, evaluated),
            *hooks.obstacles(context, bool(trained)),
            *hooks.returned(context),
            *hooks.forward(context, batch_loops),
            *hooks.of_inputs(context, batch_loops),
            *stays,
            *precision.obstacles(context),
            *alike.obstacles(context),
            *checkpoints.obstacles(context),
            *rebound.obstacles(context),
        ),
    )
    stand = (*facts.obstacles, *_misplaced(context))
    left = tuple(it for it in stand if not branches.is_left(context, it))
    beside = checkpoints.beside(whole, facts.states) if whole is not context else ()
    facts = replace(
        facts, states=(*facts.states, *beside), unprefixed=checkpoints.unprefixed(context, facts.states)
    )
    reading = readers.find(whole, linked.project, facts.states)
    return replace(facts, obstacles=(*left, *reading), beside=frozenset(context.beside))


def _without_return(
    made: tuple[Loader, ...], numbers: tuple[Number, ...], gathers: tuple[Gather, ...]
) -> tuple[tuple[Loader, ...], tuple[Number, ...], tuple[Gather, ...]]:
    """Loaders, numbers and gathers without the parts that would be taken of whole batches only to be joined there."""
    own = {(it.path, it.at) for it in made if it.own is not None and not it.own.is_loop and not it.own.names}
    joined = (*(it for it in numbers if it.kind == "rows"), *gathers)
    both = own & {(it.path, it.at) for it in joined}
    return (
        tuple(it for it in made if (it.path, it.at) not in both),
        tuple(it for it in numbers if (it.path, it.at) not in both),
        tuple(it for it in gathers if (it.path, it.at) not in both),
    )


def _lines(context: Context) -> Iterator[Lines]:
    """Every function, and what runs only in the program that a file is, with the programs that run it."""
    program = context.program
    for scope in program.scopes:
        if isinstance(scope.node, ast.FunctionDef | ast.AsyncFunctionDef):
            first, last = scope.body[0].lineno, scope.body[-1].end_lineno or 0
            yield Lines(scope.file.path, first, last, context.run_by(scope.body[0]))
        for statement in scope.body if scope.is_module else ():
            if isinstance(statement, ast.If) and is_main_guard(statement.test):
                first, last = statement.body[0].lineno, statement.body[-1].end_lineno or 0
                yield Lines(scope.file.path, first, last, context.run_by(statement))


def _ordered(loader: Loader, gathers: tuple[Gather | Joint, ...], ordered: frozenset[Path]) -> str:
    """Why a loader must hand out the original's batches in their order: not shuffled, they are needed whole.

    ``ordered``: the programs that keep or show rows of whole batches.
    """
    if loader.shuffle is True:
        return ""
    if any(gather.scripts & loader.scripts for gather in gathers):
        return "a loss may depend on the order of its samples"
    return "the order of samples is kept or shown" if ordered & loader.scripts else ""


def _summed(loader: Loader, scaled: tuple[Scaled, ...]) -> str:
    """Why no sample of a loader may be drawn twice: a sum over a batch would grow with it."""
    sums = (it for it in scaled if not it.criterion and not it.is_mean)
    is_summed = not loader.full and any(it.scripts & loader.scripts for it in sums)
    return "the loss is a sum over its samples" if is_summed else ""


def _concerned(project: Project) -> list[SourceFile]:
    """The files that have to do with DataParallel, or with models that it wraps; the others need no linking."""
    wrapping = {path for path, file in project.files.items() if wraps(file.text)}
    if not wrapping:
        return []
    loading = {path for path, file in project.files.items() if _loads(file.text)}
    found: set[Path] = set()
    for path in project.files:
        reached = project.reaches(path)
        if reached & wrapping or path in loading:
            found |= reached
    return [file for path, file in project.files.items() if path in found]


def wraps(text: str) -> bool:
    """Whether a text has to do with DataParallel."""
    return any(word in text for word in DATA_PARALLEL_WORDS)


def _loads(text: str) -> bool:
    return "torch.load" in text and ("load_state_dict" in text or "module." in text)


def _misplaced(context: Context) -> Iterator[Obstacle]:
    """Expressions inside f-strings that this version of Python can't point at."""
    for statement in dict.fromkeys(context.program.misplaced):
        yield context.obstacle(
            statement,
            "code to convert is inside a multi-line f-string",
            "run dp2ddp with Python 3.12 or newer, or assign the value to a variable before this line",
        )
