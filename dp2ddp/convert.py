"""The pipeline, from paths to changes. Read this first.

    paths ─read─▶ Project ─analyse, decide─▶ Facts ─check─▶ Plan ─rewrite, format─▶ Changes ─▶ Conversion

A conversion is a transaction: a wrapped model without sharded data is worse than no change. One error, and nothing
changes, and the findings say why. Nothing here writes: ``emit`` shows or writes the result.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dp2ddp import legacy
from dp2ddp.analyse import analyse, link, wraps
from dp2ddp.changes import Change, Conversion, Idle, Script
from dp2ddp.facts import Facts, Tier
from dp2ddp.facts import Script as Start
from dp2ddp.format import format_like
from dp2ddp.plan import AddImport, DropImport, Edit, Enclose, Finding, Mark, Plan, Respell, Rule, Severity
from dp2ddp.rewrite import RewriteError, rewrite
from dp2ddp.rules import RULES, check
from dp2ddp.source import Location, Project, SourceFile, Span, Unreadable, load, read
from dp2ddp.tiers import decide

INTERNAL = "DDP000"
UNREADABLE = "DDP001"
REPORT = "this is a defect of dp2ddp: nothing is changed; please report it with the lines around this one"

__all__ = ["Conversion", "convert", "convert_paths", "explain"]


def convert_paths(paths: Iterable[str | Path], stdin: bytes | None = None, **options: bool) -> Conversion:
    """Plan the conversion of files and folders; ``-`` among them is what was read from standard input."""
    return convert(read(paths, stdin), **options)


def convert(project: Project, *, exact: bool = False, force: bool = False, mark: bool = False) -> Conversion:
    """Plan the conversion of a project.

    Args:
        exact: in the batch-exact form: every batch of a sharded program is one of the original's.
        force: convert what can be, although errors are left.
        mark: put a comment above every place that is left to a person.
    """
    linked = link(project)
    project = linked.project  # as today's Python and libraries run it: what is converted
    facts = decide(analyse(linked), exact=exact)
    plan = _needed(check(facts), facts)
    findings = [*plan.findings, *_unreadable(project, facts)]
    changes: tuple[Change, ...] = ()
    if force or not Plan(tuple(findings)).blocked:
        try:
            changes = _carry_out(plan, project, mark)
            _confirm(changes, project, force)
        except _Refused as refused:
            changes = ()
            findings.append(refused.finding)
    scripts = [
        script for script in facts.scripts if not script.done or _in_question(script.reaches, findings)
    ]
    return Conversion(
        changes=changes,
        findings=tuple(sorted(findings, key=lambda finding: (finding.location, finding.rule))),
        scripts=tuple(_script(project, facts, it, exact) for it in scripts),
        unreadable=tuple(_unread(project)),
        idle=tuple(_idle(project, facts, scripts)),
        files=tuple(project.files),
        asked=project.asked,
    )


def mended_paths(paths: Iterable[str | Path]) -> tuple[Change, ...]:
    """What scripts need so that today's Python and libraries run them, and nothing else."""
    project = link(read(paths)).project
    needed = set().union(*(project.reaches(path) for path in project.named))
    files = (file for path, file in project.files.items() if file.mends and path in needed)
    return tuple(Change(file.path, file.written, file.text, file.encoding) for file in files)


def explain(code: str) -> list[tuple[Rule, tuple[Conversion, ...]]]:
    """The rules with this code or name, or ``all`` of them, each with its examples converted."""
    chosen = [
        rule for rule in RULES.values() if code.lower() in ("all", rule.code.lower(), rule.name.lower())
    ]
    example = Path.cwd() / "example.py"
    return [(rule, tuple(convert(Project.of({example: text})) for text in rule.examples)) for rule in chosen]


def _carry_out(plan: Plan, project: Project, mark: bool) -> tuple[Change, ...]:
    """Rewrite every file that has edits, and format those that were formatted before."""
    edits: dict[Path, list[Edit]] = {}
    for edit in (*plan.edits, *(_mark(finding) for finding in plan.findings if mark and finding.is_left)):
        edits.setdefault(_path(edit), []).append(edit)
    changes = []
    for path in sorted(edits):
        file = project.files[path]
        try:
            after = format_like(file.written, rewrite(_mended(file, edits[path]), edits[path]), path)
            after.encode(file.encoding)
        except RewriteError as error:
            raise _Refused(
                path, getattr(error, "span", None), f"an edit cannot be carried out: {error}"
            ) from error
        except UnicodeEncodeError as error:
            raise _Refused(
                path, None, f"the result has no form in {file.encoding}: {error.reason}"
            ) from error
        if after != file.written:
            changes.append(Change(path, file.written, after, file.encoding))
    return tuple(changes)


def _mended(file: SourceFile, edits: Iterable[Edit]) -> str:
    """What the other edits are made in: the file on disk after those that have it run today."""
    spans = ((edit.at.span, edit.after) for edit in edits if isinstance(edit, Respell))
    mends = [legacy.Mend(span.line, span.column, span.end_column, after) for span, after in spans]
    text = legacy.mended(file.written, mends)
    if text != file.text:
        raise RewriteError("what was parsed is not what the plan makes of the file")
    return text


def _needed(plan: Plan, facts: Facts) -> Plan:
    """A plan that mends no file which isn't a converted program's, and which nothing else is done in."""
    used = {path for script in facts.scripts for path in script.reaches}
    for finding in plan.findings:
        if not all(isinstance(edit, Respell) for edit in finding.edits):
            used.add(finding.location.path)
    return Plan(tuple(it for it in plan.findings if it.location.path in used or not it.edits))


def _mark(finding: Finding) -> Mark:
    """A comment that says what is left to a person; in one line, whatever was quoted."""
    return Mark(finding.location, " ".join(f"# dp2ddp: {finding.rule} {finding.message}".split()))


def _confirm(changes: Iterable[Change], project: Project, force: bool) -> None:
    """Refuse a result that is not valid Python, or in which there is still something to do, unless forced."""
    texts = {change.path: change.after for change in changes}
    if not texts:
        return
    for path, text in texts.items():
        try:
            project.with_texts({path: text})
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None)
            raise _Refused(
                path, None, f"the result would not be valid Python: {error} (its line {line})"
            ) from error
    if force:
        return
    for finding in check(decide(analyse(link(project.with_texts(texts))))).findings:
        if finding.edits or finding.severity is Severity.ERROR:
            where, what = finding.location, f"{finding.rule}, {finding.message}"
            message = f"the result is not stable: in its line {where.span.line} there would still be {what}"
            raise _Refused(where.path, None, message)


def _unreadable(project: Project, facts: Facts) -> Iterable[Finding]:
    """An error for every file that a training script needs and that cannot be read."""
    blocking: dict[Unreadable, list[str]] = {}
    for script in facts.scripts:
        for file in project.unreadable_from(script.path):
            blocking.setdefault(file, []).append(script.path.name)
    for file, scripts in blocking.items():
        message = f"{' and '.join(scripts)} cannot be converted without this file: {file.reason}"
        yield Finding(
            UNREADABLE, _at(file.path, file.line), message, "correct the file first", Severity.ERROR
        )


def _unread(project: Project) -> Iterable[Unreadable]:
    """The files that cannot be read, but for those of an older Python that no program has to do with."""
    texts = {file.path: file.text for file in (*project.files.values(), *project.unreadable)}
    asked = project.named | {path for path, text in texts.items() if wraps(text)}
    needed = {file.path for path in asked for file in project.unreadable_from(path)}
    return (file for file in project.unreadable if not file.legacy or file.path in asked | needed)


def _in_question(paths: frozenset[Path], findings: Iterable[Finding]) -> bool:
    """Whether there is something to do in one of the files, or something in the way of it."""
    return any(
        finding.location.path in paths and (finding.edits or finding.severity is Severity.ERROR)
        for finding in findings
    )


def _idle(project: Project, facts: Facts, scripts: Iterable[Start]) -> Iterable[Idle]:
    """The files asked for that no script to be converted uses."""
    used = facts.beside.union(*(script.reaches for script in scripts))
    wraps = {wrap.path for wrap in facts.wraps}
    for path in project.asked:
        file = project.files.get(path)
        if file and path not in used and (file.tree.body or path.name != "__init__.py"):
            if _is_converted(file):
                yield Idle(path, "already converted")
            else:
                yield Idle(path, "no script trains with it" if path in wraps else "no DataParallel")


def is_converted(path: Path) -> bool:
    """Whether a script uses the runtime already."""
    file = load(path, path.read_bytes())
    return isinstance(file, SourceFile) and _is_converted(file)


def _is_converted(file: SourceFile) -> bool:
    return any(
        item.module.startswith("dp2ddp.runtime") or (item.module == "dp2ddp" and "runtime" in item.names)
        for item in file.imports
    )


def _script(project: Project, facts: Facts, start: Start, exact: bool) -> Script:
    reasons = dict.fromkeys(Location(fact.path, fact.at.span) for fact in start.reasons)
    tier = start.tier.value + ", in the original's batches" * (exact and start.tier is Tier.SHARDED)
    dealt = {
        Location(loader.path, loader.at.span): loader.shard
        for loader in facts.loaders
        if loader.shard and not exact and start.tier is Tier.SHARDED and start.path in loader.scripts
    }
    module = _module(project, start.path)
    return Script(
        start.path, start.reaches, module, tier, tuple(sorted(reasons)), tuple(sorted(dealt.items()))
    )


def _module(project: Project, path: Path) -> str:
    """The dotted name of a script that imports relative to its package: its path cannot start it."""
    if not any(item.level for item in project.files[path].imports):
        return ""
    names, folder = [path.stem], path.parent
    while folder / "__init__.py" in project.files:
        names.append(folder.name)
        folder = folder.parent
    return ".".join(reversed(names)) if len(names) > 1 else ""


def _path(edit: Edit) -> Path:
    if isinstance(edit, (AddImport, DropImport)):
        return edit.path
    if isinstance(edit, Mark):
        return edit.at.path
    return edit.first.path if isinstance(edit, Enclose) else edit.at.path


def _at(path: Path, line: int | None) -> Location:
    return Location(path, Span(line or 1, 0, line or 1, 0))


class _Refused(Exception):
    """No change can be vouched for."""

    def __init__(self, path: Path, span: Span | None, message: str) -> None:
        self.finding = Finding(
            INTERNAL, Location(path, span or Span(1, 0, 1, 0)), message, REPORT, Severity.ERROR
        )
