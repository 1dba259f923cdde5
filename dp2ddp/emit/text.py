"""A conversion in words: what is left to a person, what was done, and how to start what came out."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dp2ddp.changes import Beside, Conversion, Idle, Script
from dp2ddp.emit.vendor import copied
from dp2ddp.plan import Finding, Severity
from dp2ddp.source import STDIN, Location, Unreadable

NEEDED = (
    "the converted script imports dp2ddp: install dp2ddp where it trains, or convert with --vendor DIR to copy the "
    "runtime into your project"
)
UNPREFIXED = "checkpoints are saved without the `module.` prefix; old ones still load"
_NAMED = 10
_REASONS = 3


def report(
    conversion: Conversion,
    *,
    written: bool,
    moved: tuple[Path, Path] | None = None,
    command: str = "",
    verify: Sequence[str] = (),
    quiet: bool = False,
    verbose: bool = False,
    vendored: Path | None = None,
    measured: Sequence[str] = (),
    unsaved: Sequence[Path] = (),
) -> str:
    """Everything there is to say.

    Args:
        conversion: what came of a run.
        written: whether the files are changed now.
        moved: the folder that was copied, and its converted copy.
        command: what writes the files, where they are not.
        verify: options that ``verify`` needs to convert as this run did, or to find the original.
        quiet: only what was found.
        verbose: what was changed, and all reasons, too.
        vendored: the folder that becomes a copy of the runtime.
        measured: what was measured to choose the form.
        unsaved: files that are, or would be, rewritten in place, and that git does not have as they were.
    """
    told = {finding.location.path for finding in conversion.errors}
    lines = [_unreadable(file) for file in conversion.unreadable if file.path not in told]
    findings = (it for it in conversion.findings if verbose or is_shown(it))
    lines += [_finding(finding, others) for finding, others in grouped(findings)]
    if quiet:
        return "".join(f"{line}\n" for line in lines)
    several = sum(script.converted for script in conversion.scripts) > 1
    for script in conversion.scripts:
        lines += _script(script, moved_path(script.path, moved), gone=written and not moved)
        has_original = not written or moved or verify
        if several and has_original and (line := proof(script, moved, verify)):
            lines.append(f"   check it with: {line}")
    lines += _idle(conversion.idle)
    if not conversion.asked:
        lines.append("nothing to do: no Python file was found")
    if conversion.runtime is None and any(script.converted for script in conversion.scripts):
        lines.append(NEEDED)
    if any(script.converted and script.unprefixed for script in conversion.scripts):
        lines.append(UNPREFIXED)
    if conversion.changes or vendored:
        names = [_changed(it.path, conversion, moved) for it in conversion.changes if it.path.name != STDIN]
        if vendored is not None:
            size = f"dp2ddp's runtime, {len(list(copied()))} files"
            names.append(f"{shown(vendored)} ({size}{'' if written else ', not in the diff'})")
        if names:
            lines.append(f"{'wrote' if written else 'would write'}: {', '.join(names)}")
    if unsaved:
        lines.append(_unsaved(unsaved, written))
    lines += _beside(conversion.beside)
    lines += measured
    lines += _outcome(conversion, written, moved, command, verify)
    if vendored is not None and not conversion.scripts:
        copy = "the copy" if written else "that copy"
        lines.append(f"no script is newly converted; those that are import {copy}: start them as before")
    return "".join(f"{line}\n" for line in lines)


def _changed(path: Path, conversion: Conversion, moved: tuple[Path, Path] | None) -> str:
    """A file that changes, by comments alone or not."""
    return shown(moved_path(path, moved)) + " (comments only)" * (path in conversion.commented)


def _unsaved(paths: Sequence[Path], written: bool) -> str:
    """That nothing keeps what some files said before they were, or would be, rewritten."""
    names, one = _names(paths), len(paths) == 1
    if written:
        return f"{names} {'was' if one else 'were'} not committed to git, and no backup was kept"
    are = "is" if one else "are"
    advice = "commit first, or write a copy by --output DIR"
    return f"{names} {are} not committed to git; --inplace keeps no backup: {advice}"


def _beside(programs: Sequence[Beside]) -> list[str]:
    """The programs that use changed files, those together that use the same and of which the same comes."""
    groups: dict[tuple[tuple[Path, ...], bool, bool, Location | None, bool], list[Path]] = {}
    for it in programs:
        groups.setdefault((it.files, it.trains, it.wraps, it.bare, it.by_keys), []).append(it.path)
    return [_used(paths, *group) for group, paths in groups.items()]


def _used(
    paths: Sequence[Path],
    files: Sequence[Path],
    trains: bool,
    wraps: bool,
    bare: Location | None,
    by_keys: bool,
) -> str:
    one = len(paths) == 1
    uses, it, them = ("uses", "it", "it") if one else ("use", "they", "them")
    then = f"; {it} {uses} one GPU then" * wraps
    if bare is not None:
        place = f"{shown(bare.path)}:{bare.span.line}"
        then += f", and the model is always wrapped, which {place} does not expect: "
        then += f"convert {them}, too" if by_keys else "write `.module` there"
    else:
        then += f"; to train on several GPUs, convert {them}, too" * trains
    imports = "imports" if len(files) == 1 else "import"
    return (
        f"{_names(paths, _REASONS)} also {uses} {_names(files, _REASONS)}, which now {imports} dp2ddp{then}"
    )


def _names(paths: Sequence[Path], most: int = _NAMED) -> str:
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return f"{', '.join(map(shown, paths[:most]))}{more}"


def statistics(findings: Iterable[Finding], names: Mapping[str, str]) -> str:
    """One line for each rule that found something: how often, and how often something is left to a person."""
    lines = (
        f"{it.found:5} {it.rule} {names.get(it.rule, '')}" + f" ({it.left} to do by hand)" * bool(it.left)
        for it in counts(findings)
    )
    return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True)
class Count:
    """How often a rule found something, and in how many places something is left to a person."""

    rule: str
    found: int
    left: int


def counts(findings: Iterable[Finding]) -> tuple[Count, ...]:
    """What every rule found, the most frequent first."""
    findings = tuple(findings)
    found = Counter(finding.rule for finding in findings)
    left = Counter(finding.rule for finding in findings if finding.is_left)
    made = (Count(rule, number, left[rule]) for rule, number in found.items())
    return tuple(sorted(made, key=lambda it: (-it.found, it.rule)))


def shown(path: Path) -> str:
    """A path as a person types it here."""
    if path.name == STDIN:
        return STDIN
    cwd = Path.cwd()
    if path.is_relative_to(cwd):
        return os.fspath(path.relative_to(cwd))
    return min(os.fspath(path), os.path.relpath(path, cwd), key=len)


def is_shown(finding: Finding) -> bool:
    """Whether a person is told of a finding: notes of what is changed are in the diff, but for mends of old code."""
    return not finding.is_moot and (
        not finding.edits or finding.is_mend or finding.severity is not Severity.NOTE
    )


def grouped(findings: Iterable[Finding]) -> list[tuple[Finding, list[Location]]]:
    """Findings, those that say the same of several places once, with the other places; every error for itself."""
    groups: dict[object, tuple[Finding, list[Location]]] = {}
    for finding in findings:
        same = finding.rule, finding.severity, finding.message, finding.help, bool(finding.edits)
        key: object = id(finding) if finding.severity is Severity.ERROR else same
        if key in groups:
            groups[key][1].append(finding.location)
        else:
            groups[key] = finding, []
    return list(groups.values())


def words(finding: Finding) -> str:
    """What is so, and what to do about it."""
    return "; ".join(part for part in (finding.message, finding.help) if part)


def _finding(finding: Finding, others: Sequence[Location] = ()) -> str:
    place = f"{shown(finding.location.path)}:{finding.location.span.line}"
    line = finding.location.path, finding.location.span.line
    others = [it for it in others if (it.path, it.span.line) != line]
    also = f" (also in {places(finding.location.path, others)})" if others else ""
    return f"{place}: {finding.rule} {finding.severity.value}: {words(finding)}{also}"


def _unreadable(file: Unreadable) -> str:
    place = shown(file.path) + (f":{file.line}" if file.line else "")
    return f"{place}: {file.reason}"


def _script(script: Script, path: Path, gone: bool) -> list[str]:
    """What becomes of a program, and how it is started then, at its new place. ``gone``: the original is not there."""
    name, edits = script.command or shown(script.path), _count(script.edits, "edit")
    if not script.converted:
        first = f"{_count(script.blockers, 'error')} to fix, then " * bool(script.blockers)
        can = "can be made" if first else "would be made"
        return [f"{name}: refused: {first}{edits} {can}{_tie(script)}"]
    lines = [f"{name}: {edits}" + f", {script.left} to do by hand" * bool(script.left), f"  {tier(script)}"]
    lines += _assumptions(script, gone)
    if path.name != STDIN:
        target = f"-m {script.module}" if script.module else shlex.quote(shown(path))
        named = (
            f"-m -- {script.module}" if script.module else f"-- {target}"
        )  # else torchrun takes --m for its own
        alone, several = f"python {target}", named
        if script.command:
            alone = shlex.quote(script.command)
            several = f"--no-python -- {alone}"
        if script.single is not None:
            at = places(script.path, (script.single,))
            lines.append(f"  start it with: {alone} ...  (one process: {at} names one GPU only)")
            return lines
        lines.append(f"  start it with: {alone} ...  (one process per GPU)")
        lines.append(f"             or: torchrun --nproc-per-node N {several} ...")
    return lines


def _tie(script: Script) -> str:
    """The programs that a refused one would be converted with, and why."""
    if not script.tied:
        return ""
    others = ", ".join(map(shown, script.tied))
    return (
        f"; it can only be converted together with {others}, as both run {places(script.path, script.ties)}"
    )


def _outcome(
    conversion: Conversion,
    written: bool,
    moved: tuple[Path, Path] | None,
    command: str,
    verify: Sequence[str],
) -> list[str]:
    """One line for the whole run: how many programs are converted and refused, and what to do next."""
    done = [script for script in conversion.scripts if script.converted]
    refused = [script for script in conversion.scripts if not script.converted]
    if not conversion.scripts:
        return ["nothing is converted: see the errors above"] if conversion.errors else []
    parts = [f"{len(done)} converted"] if done else ["nothing is converted"]
    if refused:
        named = [f"{shown(it.path)}: {_why(it)}" for it in refused[:_NAMED]]
        more = [f"{len(refused) - _NAMED} more"] * (len(refused) > _NAMED)
        parts.append(f"{len(refused)} refused ({'; '.join([*named, *more])})")
    return [f"{', '.join(parts)}; next: {_next(done, written, moved, command, verify)}"]


def proof(script: Script, moved: tuple[Path, Path] | None, options: Sequence[str]) -> str:
    """The command that shows that a program trains the same, where it can be given one."""
    if not script.converted or script.path.name == STDIN:
        return ""
    place = _named(script, script.path)
    places = [place, *([_named(script, moved_path(script.path, moved))] if moved else [])]
    given = [*places, *["--synthetic"] * script.synthetic, *options]
    return shlex.join(["dp2ddp", "verify", *given]) + _after_dashes(script)


def _after_dashes(script: Script) -> str:
    """What a program has to be given to be run, as a command is told it."""
    after = " ".join(word if word == "..." else shlex.quote(word) for word in script.arguments)
    return f" -- {after}" * bool(after)


def _named(script: Script, path: Path) -> str:
    """What a person gives for a program: its path, or that of the command that installing the project makes."""
    return shown(path.with_name(script.command)) if script.command else shown(path)


def _why(script: Script) -> str:
    if not script.blockers:
        return f"can only be converted together with {', '.join(map(shown, script.tied))}"
    return _count(script.blockers, "error")


def _next(
    done: list[Script],
    written: bool,
    moved: tuple[Path, Path] | None,
    command: str,
    verify: Sequence[str],
) -> str:
    """What to run next."""
    if not done:
        return "fix the errors above and convert again, or convert the rest with --force"
    if done[0].path.name == STDIN:
        return "apply the diff to the file (patch FILE), then start it: python FILE"
    first = proof(done[0], moved, verify)
    start = f"start {'it' if len(done) == 1 else 'them'} as shown above"
    if moved is not None:
        return first
    if not first or (written and not verify):
        return start
    return f"{first}, then {start if written or not command else command}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def tier(script: Script) -> str:
    if not script.reasons:
        hows = dict.fromkeys(how for _, how in script.dealt)
        dealt = "; ".join(
            _divided(script.path, [at for at, it in script.dealt if it == how], how) for how in hows
        )
        by = f", by {_count(len(script.assumptions), 'assumption')}" * script.is_assumed
        gets = "takes" if "ddp.local_batch" in dealt else "loads"  # of what every rank loads whole
        return f"{script.tier}{by}: each rank {gets} its part of every batch" + f" ({dealt})" * bool(dealt)
    return f"{script.tier}, because of {places(script.path, script.reasons)}: every rank gets the whole batch"


def _divided(path: Path, found: Sequence[Location], how: str) -> str:
    lines = {(place.path, place.span.line) for place in found}
    return f"{places(path, found)} use{'s' * (len(lines) == 1)} {how}"


def _assumptions(script: Script, gone: bool) -> list[str]:
    """What a program is sharded by, or could be."""
    if not script.assumptions:
        return []
    if script.is_assumed:
        return [f"  {shown(at.path)}:{at.span.line} assumes: {text}" for at, text in script.assumptions]
    number, name = _count(len(script.assumptions), "assumption"), shlex.quote(_named(script, script.path))
    holds = f"{number} hold{'s' * (len(script.assumptions) == 1)}"
    if gone or script.path.name == STDIN:
        return [f"  sharded if {holds}: --sharded takes this as true" + ", --prove tests it" * gone]
    begin = f"  sharded if {holds}: "
    first = f"{begin}dp2ddp convert --sharded {name}"
    tested = "or, to test this: ".rjust(len(begin))
    return [first, f"{tested}dp2ddp convert --prove {name}{_after_dashes(script)}"]


def places(path: Path, found: Sequence[Location]) -> str:
    """Places as one file names them: ``line 17``, ``lines 17, 20 and 31``, ``lines 17, 20, x.py:4 and 3 more``."""
    own = dict.fromkeys(str(place.span.line) for place in found if place.path == path)
    others = dict.fromkeys(f"{shown(place.path)}:{place.span.line}" for place in found if place.path != path)
    named = [*own, *others][:_REASONS]
    left = len(own) + len(others) - len(named)
    *first, last = [*named, f"{left} more"] if left else named
    word = f"line{'s' * (len(own) > 1)} " if own else ""
    return word + (f"{', '.join(first)} and {last}" if first else last)


def _idle(idle: Sequence[Idle]) -> list[str]:
    lines = []
    for reason, unknown in dict.fromkeys((item.reason, item.unknown) for item in idle):
        names = _names([item.path for item in idle if item.reason == reason])
        lines.append(f"{names}: not converted: {reason}" if unknown else f"{names}: nothing to do ({reason})")
    return lines


def moved_path(path: Path, moved: tuple[Path, Path] | None) -> Path:
    """Where a file is after a folder was copied, the first of two, to the second."""
    return moved[1] / path.relative_to(moved[0]) if moved and path.is_relative_to(moved[0]) else path
