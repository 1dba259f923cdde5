"""Convert one script as a person would, and look at what came of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .checks import REPOSITORY, compile_error, new_undefined_names, rank_local_collectives, tier

SCRIPTS = Path(__file__).with_name("scripts.txt")

FULLY, PARTLY, REFUSED, UNPARSED, IDLE, CRASHED = OUTCOMES = (
    "converted fully",
    "with sites left",
    "refused",
    "does not parse",
    "nothing to do",
    "crashed",
)

_FINDING = re.compile(
    r"(?P<place>[^:\n]+(?::\d+)?): (?:(?P<rule>DDP\d+) (?P<severity>\w+): )?(?P<message>.+)"
)
_DONE = re.compile(r"(?P<script>.+): (?P<edits>\d+) edits?(, (?P<left>\d+) to do by hand)?")
_KEPT = re.compile(
    r"(?P<script>.+): refused: ((?P<left>\d+) errors? to fix, then )?(?P<edits>\d+) edits? (can|would) be made(; .*)?"
)
_WHOLE = "not sharded"
_TALK = re.compile(
    r" .*|(\d+ converted|nothing is converted)\W.*|(would write|wrote): .*|.*: nothing to do \(.*\)"
    r"|.*: not converted: it imports .*|.* (is|are|was|were) not committed to git.*"
)


@dataclass(frozen=True)
class Entry:
    """A script of a repository, both as they are named in the list."""

    repository: str
    script: str

    def folder(self, checkouts: Path) -> Path:
        return checkouts / self.repository.replace("/", "+")

    def __str__(self) -> str:
        return f"{self.repository}: {self.script}"


@dataclass(frozen=True)
class Said:
    """One line of the command about one place. Lines without a rule are about files that cannot be read."""

    place: str
    rule: str
    severity: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.rule or 'unreadable'}: {self.message}"


@dataclass(frozen=True)
class Result:
    """What one conversion came to. ``faults`` say, by kind, what must never happen."""

    entry: Entry
    outcome: str
    tier: str
    found: int
    left: int
    said: tuple[Said, ...]
    seconds: float
    changed: tuple[str, ...]
    faults: dict[str, tuple[str, ...]]

    @property
    def reasons(self) -> tuple[Said, ...]:
        """What kept the script from being converted, or was left of it, or kept its batches whole."""
        severity = {UNPARSED: "", REFUSED: "error", PARTLY: "warning"}.get(self.outcome)
        return self.whole if severity is None else tuple(it for it in self.said if it.severity == severity)

    @property
    def whole(self) -> tuple[Said, ...]:
        """What kept its batches whole."""
        return tuple(it for it in self.said if _WHOLE in it.message)


FAULTS = (
    "crashes",
    "do not compile",
    "unstable",
    "undefined names",
    "collectives under rank-local conditions",
)


def entries(text: str) -> Iterator[Entry]:
    """Lines ``owner/name: script, script``."""
    for line in text.splitlines():
        repository, _, scripts = line.partition(": ")
        yield from (Entry(repository, script.strip()) for script in scripts.split(","))


def measure(entry: Entry, checkouts: Path, limit: float, options: Sequence[str] = ()) -> Result:
    """Convert a script into a copy, then the copy, and check what was written.

    Args:
        entry: the script.
        checkouts: the folder of the checkouts.
        limit: seconds for each of the two conversions.
        options: more options for the command.
    """
    checkout = entry.folder(checkouts).resolve()
    with tempfile.TemporaryDirectory() as name:
        made, after = Path(name) / "made", Path(name) / "after"
        started = time.monotonic()
        run = _command(checkout, limit, "convert", entry.script, *options, "--output", str(made))
        seconds = time.monotonic() - started
        faults = dict.fromkeys(FAULTS, ())
        changed: list[Path] = []
        if run is None:
            faults["crashes"] = (f"not done after {limit:.0f} s",)
            return Result(entry, CRASHED, "", 0, 0, (), seconds, (), faults)
        if made.exists():
            base = _original(made, checkout / entry.script, checkout)
            (after / base.relative_to(checkout)).parent.mkdir(parents=True, exist_ok=True)
            shutil.move(made, after / base.relative_to(checkout))
            changed = sorted(_changed(checkout, after))
            faults.update(_faults(entry, checkout, after, changed, limit, options))
        said = tuple(_said(run.stderr))
        crashed = [
            line for line in run.stderr.splitlines() if "DDP000" in line or line.startswith("Traceback")
        ]
        if crashed or run.returncode not in range(5):
            faults["crashes"] = tuple(crashed) or (f"exit code {run.returncode}: {run.stderr[-300:]}",)
        found, left = _sites(run.stderr)
        return Result(
            entry=entry,
            outcome=CRASHED if faults["crashes"] else _outcome(bool(changed), left, said),
            tier=tier(after, changed) if changed and not faults["do not compile"] else "",
            found=found,
            left=left,
            said=said,
            seconds=round(seconds, 1),
            changed=tuple(map(str, changed)),
            faults=faults,
        )


def _command(folder: Path, limit: float, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    """Run dp2ddp in a folder; None if it was not done in time."""
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-m", "dp2ddp", *arguments]
    try:
        return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return None


def _original(made: Path, script: Path, checkout: Path) -> Path:
    """The folder of the checkout that a copy is of: the command copies from the one that holds all files used."""
    files = [path.relative_to(made) for path in made.rglob("*.py")]
    for base in script.parents:
        if all((base / path).exists() for path in files) and script.relative_to(base) in files:
            return base
        if base == checkout:
            break
    raise LookupError(f"{made} is no copy of a part of {checkout}")


def _changed(before: Path, after: Path) -> Iterator[Path]:
    for path in after.rglob("*.py"):
        name = path.relative_to(after)
        if path.read_bytes() != (before / name).read_bytes():
            yield name


def _faults(
    entry: Entry, before: Path, after: Path, changed: list[Path], limit: float, options: Sequence[str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    broken = tuple(error for path in changed if (error := compile_error(after / path)))
    yield "do not compile", broken
    again = _command(after, limit, "convert", entry.script, *options)
    if again is None:
        yield "unstable", (f"converting the result again was not done after {limit:.0f} s",)
    elif again.stdout or (again.returncode and "--force" not in options):
        yield "unstable", tuple((again.stdout + again.stderr).splitlines()[:20])
    if not broken:
        yield "undefined names", tuple(new_undefined_names(before, after, changed))
        yield "collectives under rank-local conditions", tuple(rank_local_collectives(after, changed))


def _said(stderr: str) -> Iterator[Said]:
    for line in stderr.splitlines():
        if not any(pattern.fullmatch(line) for pattern in (_DONE, _KEPT, _TALK)):
            if match := _FINDING.fullmatch(line):
                yield Said(
                    match["place"], match["rule"] or "", match["severity"] or "", match["message"].strip()
                )


def _sites(stderr: str) -> tuple[int, int]:
    """Sites found, and left, of all scripts that the command names; those of a refused one are all left."""
    found = left = 0
    for line in stderr.splitlines():
        done, kept = _DONE.fullmatch(line), _KEPT.fullmatch(line)
        if match := done or kept:
            found += int(match["edits"]) + int(match["left"] or 0)
            left += int(match["left"] or 0) + (int(match["edits"]) if kept else 0)
    return found, left


def _outcome(converted: bool, left: int, said: Iterable[Said]) -> str:
    if converted:
        return PARTLY if left or any(each.severity == "error" for each in said) else FULLY
    if any(not each.rule or each.rule == "DDP001" for each in said):
        return UNPARSED
    return REFUSED if any(each.severity == "error" for each in said) else IDLE
