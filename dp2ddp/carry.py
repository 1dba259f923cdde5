"""Plan → Changes that can be vouched for: valid Python, in which nothing is left to do, for whole programs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dp2ddp import legacy
from dp2ddp.analyse import link
from dp2ddp.changes import Change
from dp2ddp.decided import decided
from dp2ddp.defects import INTERNAL, defect
from dp2ddp.format import format_like
from dp2ddp.ignores import heeded
from dp2ddp.notices import UNUSED
from dp2ddp.plan import AddImport, DropImport, Edit, Enclose, Finding, Mark, Plan, Respell, Severity
from dp2ddp.rewrite import RewriteError, rewrite
from dp2ddp.rules import check
from dp2ddp.source import Location, Project, SourceFile, Span
from dp2ddp.transactions import Transaction, needed

_OPEN = re.compile(r"^[ \t]*# dp2ddp: (?P<code>DDP\d{3}) error: (?P<message>[^\r\n]*)", re.MULTILINE)
REPORT = "a bug in dp2ddp: nothing is written; please report this message with the file"


@dataclass(frozen=True)
class Assumed:
    """What was taken as true of a program, and where."""

    program: Path
    at: Location
    text: str


@dataclass(frozen=True)
class Request:
    """A project and its plan, in which every finding knows its programs, and what was asked for."""

    project: Project
    plan: Plan
    exact: bool = False
    force: bool = False
    mark: bool = False
    assumed: tuple[Assumed, ...] = ()

    def about(self, groups: Iterable[Transaction]) -> Plan:
        """What is found about some programs; and about none, in files in which nothing is in the way of that."""
        scripts = frozenset().union(*(group.scripts for group in groups))
        errors = [it for it in self.plan.findings if it.severity is Severity.ERROR and not it.scripts]
        blocked = {it.location.path for it in errors if not self.force}
        chosen = {
            id(it)
            for it in self.plan.findings
            if it.scripts & scripts or (not it.scripts and it.location.path not in blocked)
        }
        edited = {_path(edit) for it in self.plan.findings if id(it) in chosen for edit in it.edits}
        return Plan(
            tuple(
                it
                for it in self.plan.findings
                if id(it) in chosen or (it.is_mend and it.location.path in edited)
            )
        )


@dataclass(frozen=True)
class Carried:
    """The changes that convert some programs, and why the others can't be vouched for."""

    changes: tuple[Change, ...]
    groups: tuple[Transaction, ...]
    refused: tuple[Finding, ...] = ()


def carry(request: Request, groups: Sequence[Transaction]) -> Carried:
    """Convert some programs together; where that fails, those of them for which it does not."""
    try:
        changes = _carry_out(request, groups)
        _confirm(changes, request, groups)
        return Carried(changes, tuple(groups))
    except _Refused as refused:
        finding = refused.finding
    if len(groups) < 2:
        return Carried((), (), (_of(finding, groups),))
    half = len(groups) // 2
    parts = [carry(request, groups[:half]), carry(request, groups[half:])]
    kept = [group for part in parts for group in part.groups]
    failed = tuple(it for part in parts for it in part.refused)
    if not failed:  # each for itself, but not together
        return replace(parts[0], refused=(_of(finding, groups[half:]),))
    together = carry(request, kept) if kept else Carried((), ())
    return replace(together, refused=(*failed, *together.refused))


def marked(request: Request, groups: Iterable[Transaction], changes: Iterable[Change]) -> tuple[Change, ...]:
    """Comments in the files of programs that stay as they are, above every place that is left to a person."""
    scripts = frozenset().union(*(group.scripts for group in groups))
    written = {change.path for change in changes}
    marks: dict[Path, list[Edit]] = {}
    for finding in request.plan.findings:
        file = request.project.files.get(finding.location.path)
        about = finding.scripts & scripts and finding.is_left and finding.rule != UNUSED
        if about and file is not None and file.path not in written and not file.mends:
            mark = _mark(finding)
            if mark.comment not in file.text:  # of a run before
                marks.setdefault(file.path, []).append(mark)
    made = []
    for path, edits in sorted(marks.items()):
        file = request.project.files[path]
        try:
            made.append(Change(path, file.written, rewrite(file.written, edits), file.encoding))
            made[-1].after_bytes.decode(file.encoding)
        except (RewriteError, UnicodeError):
            made = [it for it in made if it.path != path]
    return tuple(made)


def _of(finding: Finding, groups: Iterable[Transaction]) -> Finding:
    return replace(finding, scripts=frozenset().union(*(group.scripts for group in groups)))


def _carry_out(request: Request, groups: Sequence[Transaction]) -> tuple[Change, ...]:
    """Rewrite every file that has edits, and format those that were formatted before."""
    project, plan = request.project, request.about(groups)
    marks = [it for it in _marks(request, plan, groups) if it.comment not in project.files[it.at.path].text]
    edits: dict[Path, list[Edit]] = {}  # marks: but for those of a run before
    for edit in (*(it for it in plan.edits if not _is_imported(it, project)), *marks):
        edits.setdefault(_path(edit), []).append(edit)
    changes = []
    for path in sorted(edits):
        file = project.files[path]
        try:
            after = format_like(file.written, rewrite(_mended(file, edits[path]), edits[path]), path)
            after.encode(file.encoding)
        except RewriteError as error:
            raise _Refused(path, error.span, f"an edit failed: {error}") from error
        except UnicodeEncodeError as error:
            raise _Refused(
                path, None, f"the result can't be encoded in {file.encoding}: {error.reason}"
            ) from error
        except Exception as error:
            raise _Refused(path, None, defect(error)) from error
        if after != file.written:
            changes.append(Change(path, file.written, after, file.encoding))
    return tuple(changes)


def _is_imported(edit: Edit, project: Project) -> bool:
    """Whether an edit would import the runtime into a file that takes it from a copy."""
    own = isinstance(edit, AddImport) and edit.statement.startswith("from dp2ddp import runtime")
    return own and project.takes_copy(project.files[edit.path])  # type: ignore[union-attr]


def _mended(file: SourceFile, edits: Iterable[Edit]) -> str:
    """What the other edits are made in: the file on disk after those that have it run today."""
    spans = ((edit.at.span, edit.after) for edit in edits if isinstance(edit, Respell))
    mends = [legacy.Mend(span.line, span.column, span.end_column, after) for span, after in spans]
    text = legacy.mended(file.written, mends)
    if text != file.text:
        raise RewriteError("the rewritten file is not what was planned")
    return text


def _marks(request: Request, plan: Plan, groups: Sequence[Transaction]) -> Iterator[Mark]:
    """Comments that say what is left to a person, and what was assumed."""
    yield from (_mark(it) for it in plan.findings if _is_marked(it, request))
    scripts = frozenset().union(*(group.scripts for group in groups))
    own = (it for it in request.assumed if it.program in scripts and it.at.path in request.project.files)
    inside = (it for it in own if request.mark and it.at.path not in request.project.installed)
    for at, text in dict.fromkeys((it.at, it.text) for it in inside):
        yield _comment(at, f"assumes: {text}")


def _mark(finding: Finding) -> Mark:
    error = "error: " * (finding.severity is Severity.ERROR)
    words = "; ".join(filter(None, (finding.message, finding.help)))
    return _comment(finding.location, f"{finding.rule} {error}{words}")


def _comment(at: Location, text: str) -> Mark:
    """A comment; in one line, whatever was quoted."""
    return Mark(at, " ".join(f"# dp2ddp: {text}".split()))


def _is_marked(finding: Finding, request: Request) -> bool:
    """Whether a comment is put above a place: where that was asked for, and where ``force`` goes on over an error."""
    if not finding.is_left or finding.rule == UNUSED:
        return False
    return request.mark or (request.force and finding.severity is Severity.ERROR)


def open_marks(text: str) -> Iterator[tuple[int, str, str]]:
    """The errors that comments say are open: the line, the rule and the message of each."""
    for found in _OPEN.finditer(text) if "# dp2ddp: " in text else ():
        yield text.count("\n", 0, found.start("code")) + 1, found["code"], found["message"].strip()


def _confirm(changes: Iterable[Change], request: Request, groups: Sequence[Transaction]) -> None:
    """Refuse a result that is not valid Python, or in which there is still something to do, unless forced.

    What was there to do in other programs still is.
    """
    texts = {change.path: change.after for change in changes}
    if not texts:
        return
    for path, text in texts.items():
        try:
            request.project.with_texts({path: text})
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None)
            raise _Refused(
                path, None, f"the result would not be valid Python: {error} (its line {line})"
            ) from error
    if request.force:
        return
    ours = set(map(id, request.about(groups).findings))
    left = Counter(_kind(it) for it in request.plan.findings if id(it) not in ours)
    try:
        linked = link(request.project.with_texts(texts))
        facts = decided(linked, exact=request.exact and bool(left))
        findings = needed(heeded(check(facts).findings, linked.project).findings, facts)
    except Exception as error:
        raise _Refused(min(texts), None, defect(error)) from error
    for finding in findings:
        if not finding.edits and finding.severity is not Severity.ERROR:
            continue
        if left[_kind(finding)] > 0:
            left[_kind(finding)] -= 1
            continue
        where, what = finding.location, f"{finding.rule}, {finding.message}"
        message = f"the converted file would still be reported, in its line {where.span.line}: {what}"
        raise _Refused(where.path, None, message)


def _kind(finding: Finding) -> tuple[str, Path, str]:
    """What is the same of a finding when lines above it change."""
    return finding.rule, finding.location.path, re.sub(r"\d+", "0", finding.message)


def _path(edit: Edit) -> Path:
    if isinstance(edit, (AddImport, DropImport)):
        return edit.path
    if isinstance(edit, Mark):
        return edit.at.path
    return edit.first.path if isinstance(edit, Enclose) else edit.at.path


class _Refused(Exception):
    """No change can be vouched for."""

    def __init__(self, path: Path, span: Span | None, message: str) -> None:
        self.finding = Finding(
            INTERNAL, Location(path, span or Span(1, 0, 1, 0)), message, REPORT, Severity.ERROR
        )
