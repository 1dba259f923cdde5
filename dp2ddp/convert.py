"""The pipeline, from paths to changes. Read this first.

    paths ─read─▶ Project ─analyse, decide─▶ Facts ─check─▶ Plan ─divide─▶ Transactions ─carry─▶ Changes ─▶ Conversion

The conversion of a program is a transaction: a wrapped model without sharded data is worse than no change. One error in
what it runs, and nothing of it changes, and the findings say why; programs that share no changed line with it are
converted all the same. Nothing here writes: ``emit`` shows or writes the result.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dp2ddp.analyse import link, wraps
from dp2ddp.beside import programs_beside
from dp2ddp.carry import Assumed, Carried, Request, carry, marked, open_marks
from dp2ddp.changes import Change, Conversion, Idle, Script
from dp2ddp.decided import decided
from dp2ddp.deep import deeply
from dp2ddp.defects import DEFECT, INTERNAL, defect
from dp2ddp.facts import ANY_TIER, Facts, Loader, Proof, Tier, Unused, Wrap
from dp2ddp.facts import Script as Start
from dp2ddp.ignored import Pattern
from dp2ddp.ignores import heeded
from dp2ddp.notices import NOTICES, UNREADABLE
from dp2ddp.plan import Anchor, Finding, Plan, Rule, Severity
from dp2ddp.rules import RULES, check
from dp2ddp.source import (
    Installed,
    Location,
    Project,
    SourceFile,
    Span,
    Unreadable,
    alike,
    dotted,
    installed,
    load,
    read,
)
from dp2ddp.transactions import Transaction, divided, needed, placed
from dp2ddp.vendored import Misplaced, moved

NAMED = "it names DataParallel, but no training loop with a wrapped model was found"
DISTRIBUTED = "it uses DistributedDataParallel already"
NOTEBOOK = "a notebook can't start ranks: export it by jupyter nbconvert --to script, and convert the script"
JOINS = "ddp.whole_batch, as what follows the forward needs the whole batch"
NOT_DONE = "not changed until the errors in this program are fixed"
Tell = Callable[[str], object]

EXPLAINED = (*NOTICES.values(), *RULES.values())
"""All that a finding's code may stand for."""

__all__ = [
    "EXPLAINED",
    "Conversion",
    "Installed",
    "Misplaced",
    "alike",
    "convert",
    "convert_paths",
    "explain",
    "installed",
    "naming",
]


def convert_paths(
    paths: Iterable[str | Path],
    stdin: bytes | None = None,
    exclude: Iterable[Pattern] = (),
    vendor: Path | None = None,
    tell: Tell = str,
    **options: bool,
) -> Conversion:
    """Plan the conversion of files and folders; ``-`` among them is what was read from standard input.

    Folders are searched without what ``exclude`` names. ``tell`` is told what is being done.
    """
    return deeply(lambda: convert(read(paths, stdin, exclude), vendor=vendor, tell=tell, **options))


def convert(
    project: Project,
    *,
    exact: bool = False,
    force: bool = False,
    mark: bool = False,
    sharded: bool = False,
    no_gather: bool = False,
    vendor: Path | None = None,
    tell: Tell = str,
) -> Conversion:
    """Plan the conversion of a project.

    Args:
        exact: in the batch-exact form: every batch of a sharded program is one of the original's.
        force: convert what can be, although errors are left.
        mark: put a comment above every place that is left to a person, or that something is assumed of.
        sharded: shard programs that are not known to allow it, where nothing is known that forbids it.
        no_gather: keep whole batches where what follows the forward needs them. Otherwise a rank may train on its part
            all the same, and gets the other ranks' outputs and labels there.
        vendor: the folder of a copy of the runtime, which may not be there yet: all that is converted, or was before,
            imports that. Raises ``Misplaced`` if a program could not. None: a copy that the project has, if any.
    """
    return deeply(lambda: _convert(project, _Form(exact, sharded, not no_gather), force, mark, vendor, tell))


@dataclass(frozen=True)
class _Form:
    """What was asked for: the original's batches, sharded by assumptions, parts that are joined."""

    exact: bool = False
    sharded: bool = False
    gather: bool = True


def _convert(
    project: Project, form: _Form, force: bool, mark: bool, vendor: Path | None, tell: Tell
) -> Conversion:
    exact = form.exact
    tell(f"following {len(project.files)} files")
    project = replace(project, copies=project.copies | {vendor}) if vendor else project
    followed, facts, plan, failed = _planned(project, form)
    groups = divided(plan, facts)
    assumed = tuple(_assumed(facts))
    request = Request(followed, plan, exact, force, mark, assumed)
    ready = [group for group in groups if force or not group.blockers]
    tell(f"rewriting {sum(len(group.scripts) for group in ready)} programs, and checking the result")
    carried = carry(request, ready) if ready or not groups else Carried((), ())
    changes, copy = _taken(carried.changes, project, facts, vendor)
    others: tuple[Change, ...] = ()
    if mark:
        others = marked(request, [group for group in groups if group not in carried.groups], changes)
        changes = tuple(sorted((*changes, *others), key=lambda change: change.path))
    findings = [*_honest(plan.findings, groups, carried), *carried.refused, *failed]
    found = [it for it in facts.scripts if not it.done or _in_question(it.program, findings)]
    scripts = {it.program: it for it in found}.values()  # one may start its ranks at several places
    written = {change.path for change in changes}
    needing = {change.path for change in changes if "from dp2ddp import" in change.after}
    told = [_script(project, facts, it, exact, groups, carried, findings) for it in scripts]
    told += [Script(it.location.path, project.reaches(it.location.path), blockers=1) for it in failed]
    return Conversion(
        changes=changes,
        findings=tuple(sorted(findings, key=lambda finding: (finding.location, finding.rule))),
        scripts=tuple(sorted(told, key=lambda script: script.path)),
        unreadable=tuple(_unread(project)),
        idle=tuple(it for it in _idle(project, facts, told) if it.path not in written),
        files=tuple(path for path in project.files if path not in project.installed),
        asked=project.asked,
        runtime=copy,
        commented=frozenset(it.path for it in others),
        beside=programs_beside(project, needing, {it.call for it in facts.wraps if it.condition is not None}),
    )


def _taken(
    changes: tuple[Change, ...], project: Project, facts: Facts, vendor: Path | None
) -> tuple[tuple[Change, ...], Path | None]:
    """The changes, so that they take the runtime from where it is to be, and that, if it is a copy in the project."""
    starts = {it.program: _module(project, it.program) for it in facts.scripts}
    if vendor is not None:
        return moved(changes, project, vendor, starts), vendor
    if len(project.copies) != 1 or not changes:
        return changes, None
    (copy,) = project.copies
    try:
        return moved(changes, project, copy, starts, others=False), copy
    except Misplaced:
        return changes, None


def mended_paths(
    paths: Iterable[str | Path], instead: Mapping[Path, bytes] | None = None
) -> tuple[Change, ...]:
    """What scripts need so that today's Python and libraries run them, and nothing else; ``instead`` as in ``read``."""
    project = deeply(lambda: link(read(paths, instead=instead)).project)
    used = set().union(*(project.reaches(path) for path in project.named))
    files = (file for path, file in project.files.items() if file.mends and path in used)
    return tuple(Change(file.path, file.written, file.text, file.encoding) for file in files)


def _planned(project: Project, form: _Form) -> tuple[Project, Facts, Plan, list[Finding]]:
    """What is known and intended of a project without the scripts that the analysis fails at, and why it does.

    The project is as today's Python and libraries run it: what is converted.
    """
    try:
        return *_plan(project, form), []
    except Exception as error:
        defect(error)
    found = {finding.location.path: finding for finding in _failing(project, form, project.asked)}
    left = project.only(path for path in project.asked if path not in found)
    inner = {path for path in found for other in found if path != other and path in project.reaches(other)}
    return *_plan(left, form), [finding for path, finding in found.items() if path not in inner]


def _plan(project: Project, form: _Form) -> tuple[Project, Facts, Plan]:
    linked = link(project)
    facts = decided(linked, exact=form.exact, sharded=form.sharded, gather=form.gather)
    kept = heeded(check(facts).findings, linked.project)
    reached = {path for script in facts.scripts for path in script.reaches}
    unused = (it for it in kept.unused if it.location.path in reached)
    found = needed(kept.findings, facts)
    findings = (
        *found,
        *_left_open(linked.project, found),
        *unused,
        *_unreadable(linked.project, facts),
        *_halves(facts),
    )
    return linked.project, facts, placed(findings, facts)


def _dealt_by(loader: Loader) -> str:
    """How the runtime divides a loader's batches, and why."""
    if loader.own is not None:
        return f"ddp.local_batch, as {loader.shard}"
    if loader.whole:
        return f"ddp.shard with whole=True: {loader.shard}, so each rank loads it and takes its part"
    return f"ddp.shard instead of DistributedSampler: {loader.shard}"


def _assumed(facts: Facts) -> Iterable[Assumed]:
    """What was taken as true of the programs that are sharded by it."""
    for script in facts.scripts:
        for it in script.assumptions if script.tier is Tier.SHARDED else ():
            yield Assumed(script.program, Location(it.at.path, it.at.span), it.text)


def _failing(project: Project, form: _Form, paths: Sequence[Path]) -> list[Finding]:
    """A finding for each of some scripts that the analysis fails at."""
    try:
        _plan(project.only(paths), form)
        return []
    except Exception as error:
        words = defect(error)
    if len(paths) > 1:
        half = len(paths) // 2
        return [it for part in (paths[:half], paths[half:]) for it in _failing(project, form, part)]
    (path,) = paths
    scripts = frozenset([path])
    return [Finding(INTERNAL, _at(path, 1), words, DEFECT, Severity.ERROR, scripts=scripts)]


def explain(code: str) -> list[tuple[Rule, tuple[Conversion, ...]]]:
    """The rules with this code, number or name, or ``all`` of them, each with its examples converted."""
    wanted = code.lower().removeprefix("ddp")
    chosen = [rule for rule in EXPLAINED if wanted in ("all", rule.code[3:], rule.name)]
    example = Path.cwd() / "example.py"
    return [(rule, tuple(convert(Project.of({example: text})) for text in rule.examples)) for rule in chosen]


def naming(word: str) -> list[Rule]:
    """The rules of which the code begins like that, or the name or the text contains the word."""
    wanted = word.lower().removeprefix("ddp")
    if wanted.isdecimal():
        return [rule for rule in EXPLAINED if rule.code[3:].startswith(wanted)]
    return [
        rule for rule in EXPLAINED if wanted and (wanted in rule.name or wanted in rule.explanation.lower())
    ]


def _unreadable(project: Project, facts: Facts) -> Iterable[Finding]:
    """An error for every file that a training script needs and that cannot be read."""
    blocking: dict[Unreadable, list[Path]] = {}
    for script in facts.scripts:
        for file in project.unreadable_from(script.program):
            blocking.setdefault(file, []).append(script.program)
    for file, paths in blocking.items():
        names = " and ".join(project.installed.get(path, path.name) for path in paths)
        message = f"{names} can't be converted without this file: {file.reason}"
        at, scripts = _at(file.path, file.line), frozenset(paths)
        yield Finding(UNREADABLE, at, message, "fix the file first", Severity.ERROR, scripts=scripts)


def _unread(project: Project) -> Iterable[Unreadable]:
    """The files that cannot be read, but for those of an older Python that no program has to do with."""
    texts = {file.path: file.text for file in (*project.files.values(), *project.unreadable)}
    asked = project.named | {path for path, text in texts.items() if wraps(text)}
    needed = {file.path for path in asked for file in project.unreadable_from(path)}
    return (file for file in project.unreadable if not file.legacy or file.path in asked | needed)


def _left_open(project: Project, findings: Iterable[Finding]) -> Iterable[Finding]:
    """What ``--force`` left open in converted files and said in comments, where no rule finds it any more."""
    known = {(it.location.path, it.rule) for it in findings if it.severity is Severity.ERROR}
    for path in project.files:
        file = project.files[path]
        for line, code, message in open_marks(file.text) if project.has_runtime(file) else ():
            if (path, code) not in known:
                help = "fix the line below, then remove this comment"
                yield Finding(code, _at(path, line), message, help, Severity.ERROR)


def _halves(facts: Facts) -> Iterable[Finding]:
    """An error for every program whose model would change, and not where it starts or what it draws.

    Nothing that is known leads to one: this is the last look before something is written.
    """
    starting = {script.program: script for script in facts.scripts}
    drawing = set().union(*(loader.scripts for loader in facts.loaders))
    for wrap in facts.wraps:
        for path in sorted(wrap.scripts):
            script = starting.get(path)
            if script is None:
                what = "not the place where its ranks start"
            elif script.tier is Tier.SHARDED and path not in drawing:
                what = "not its loader"
            else:
                continue
            message = f"the model of {path.name} would be converted, and {what}"
            at, scripts = Location(wrap.path, wrap.at.span), frozenset([path])
            yield Finding(INTERNAL, at, message, DEFECT, Severity.ERROR, scripts=scripts)


def _in_question(path: Path, findings: Iterable[Finding]) -> bool:
    """Whether there is something to do for a program, or something in the way of it."""
    return any(path in it.scripts and (it.edits or it.severity is Severity.ERROR) for it in findings)


def _idle(project: Project, facts: Facts, scripts: Iterable[Script]) -> Iterable[Idle]:
    """The files asked for that no script to be converted uses."""
    used = facts.beside.union(*(script.reaches for script in scripts))
    wrapping = {it.path for it in (*facts.wraps, *facts.obstacles) if isinstance(it, Wrap | Unused)}
    stopped = {it.path for it in facts.obstacles if isinstance(it, Unused) and it.problem.forbids == ANY_TIER}
    unread = set(_unread(project))
    done = {script.path for script in scripts if script.converted}
    changed = {it.call for it in facts.wraps if it.scripts & done}
    wraps_of = {it.program: it.at for it in facts.predictions}
    for path in project.asked:
        file = project.files.get(path)
        if file and path not in used | stopped and (file.tree.body or path.name != "__init__.py"):
            if project.has_runtime(file):
                if not any(open_marks(file.text)):
                    yield Idle(path, "already converted")
            elif missing := [it.path for it in project.unreadable_from(path) if it in unread]:
                names = " and ".join(it.name for it in missing)
                yield Idle(path, f"it imports {names}, which can't be read", unknown=True)
            else:
                at = wraps_of.get(path)
                what = _named(file.text) if at is None else _predicts(path, at, changed)
                yield Idle(path, "no training script uses it" if path in wrapping else what)
    yield from (Idle(path, NOTEBOOK) for path in project.notebooks)


def _predicts(path: Path, at: Anchor, changed: Container[Anchor]) -> str:
    """What is said of a program that wraps a model and does not train; ``changed``: the wraps that are converted."""
    place = f"line {at.span.line}" if at.path == path else f"{at.path.name}:{at.span.line}"
    then = (
        "that line is converted, and this program uses one GPU then"
        if at in changed
        else "nn.DataParallel stays"
    )
    return f"it wraps a model at {place} but does not train; {then}"


def _named(text: str) -> str:
    """What of the kind a file names, that has nothing to convert."""
    if not wraps(text):
        return "no DataParallel"
    return NAMED if wraps(text.replace("DistributedDataParallel", "")) else DISTRIBUTED


def is_converted(path: Path) -> bool:
    """Whether a script uses the runtime already."""
    project = read([path])
    file = project.files.get(Path(os.path.realpath(path)))
    return file is not None and project.has_runtime(file)


def _honest(
    findings: Iterable[Finding], groups: Iterable[Transaction], carried: Carried
) -> Iterator[Finding]:
    """Findings that say that nothing was done where all their programs are refused."""
    refused = frozenset().union(*(it.scripts for it in groups if it not in carried.groups))
    for finding in findings:
        is_left = bool(finding.edits and finding.scripts) and finding.scripts <= refused
        yield replace(finding, help=NOT_DONE) if is_left and not finding.is_mend else finding


def _script(
    project: Project,
    facts: Facts,
    start: Start,
    exact: bool,
    groups: Iterable[Transaction],
    carried: Carried,
    findings: Iterable[Finding],
) -> Script:
    """What is said of a program."""
    own = [finding for finding in findings if start.program in finding.scripts]
    group = next(group for group in groups if start.program in group.scripts)
    reasons = dict.fromkeys(Location(fact.cause.path, fact.cause.span) for fact in start.decisive)
    tier = start.tier.value + ", in the original's batches" * (exact and start.tier is Tier.SHARDED)
    dealt = {
        Location(loader.path, loader.at.span): _dealt_by(loader)
        for loader in facts.loaders
        if loader.shard and not exact and start.tier is Tier.SHARDED and start.program in loader.scripts
    }
    if start.tier is Tier.SHARDED:
        joints = (it for it in facts.joints if start.program in it.scripts)
        dealt |= {Location(it.path, it.at.span): JOINS for it in joints}
    proof = next((it for it in facts.proofs if it.program == start.program), Proof(start.program))
    return Script(
        path=start.program,
        reaches=start.reaches,
        command=project.installed.get(start.program, ""),
        module=_module(project, start.program),
        tier=tier,
        reasons=tuple(sorted(reasons)),
        dealt=tuple(sorted(dealt.items())),
        converted=group in carried.groups,
        edits=sum(bool(finding.edits) for finding in own),
        left=sum(finding.is_left for finding in own),
        blockers=sum(finding.severity is Severity.ERROR for finding in own),
        tied=tuple(sorted(group.scripts - {start.program})),
        ties=group.ties,
        wraps=tuple(_at(path, line) for path, line in proof.wraps),
        synthetic=proof.synthetic,
        unprefixed=start.program in facts.unprefixed,
        arguments=proof.arguments,
        assumptions=tuple((Location(it.at.path, it.at.span), it.text) for it in start.assumptions),
        single=_single(project, start),
    )


def _single(project: Project, start: Start) -> Location | None:
    """Where a program names one GPU, and no other: by a literal, ``device_ids=[0]``."""
    if not isinstance(start.devices, Anchor) or start.late:
        return None
    span, lines = start.devices.span, project.files[start.devices.path].lines
    if span.line != span.end_line:
        return None
    try:
        named = ast.literal_eval(lines[span.line - 1][span.column : span.end_column])
    except (ValueError, SyntaxError):
        return None
    alone = isinstance(named, list | tuple) and len(named) == 1
    return Location(start.devices.path, span) if alone else None


def _module(project: Project, path: Path) -> str:
    """The dotted name of a script that imports relative to its package: its path cannot start it."""
    if not project.files[path].is_relative:
        return ""
    name = dotted(path, project.files)
    return name if "." in name or path.name == "__main__.py" else ""


def module_of(path: Path) -> str:
    """The dotted name of a script on the disk that ``-m`` has to start; empty if its path does."""
    file = load(path, path.read_bytes())
    name = dotted(path) if isinstance(file, SourceFile) and file.is_relative else ""
    return name if "." in name or path.name == "__main__.py" else ""


def _at(path: Path, line: int | None) -> Location:
    return Location(path, Span(line or 1, 0, line or 1, 0))
