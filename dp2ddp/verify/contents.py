"""What stands in what both programs wrote: numbers in lines and texts, values in checkpoints."""

from __future__ import annotations

import csv
import difflib
import json
import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from dp2ddp.verify import printed
from dp2ddp.verify.notes import Notes, Save, distance
from dp2ddp.verify.rounding import bare_key
from dp2ddp.verify.verdict import Tolerance

_TABLES = {".csv": ",", ".tsv": "\t"}
_TREES = (".json", ".jsonl", ".ndjson")
_TEXTS = ("", ".txt", ".log", ".out", ".yaml", ".yml", *_TABLES, *_TREES)
_LARGEST = 2**20
_LONGEST = 2000
"""Lines of a text whose lines are not the same ones, up to which they are matched."""
ROOM_WRITTEN = 3.0
"""How much farther than measured a number that is printed or written may be: it may count what rounding decides."""
_OF_A_PROCESS = frozenset("rng rank world size gpu gpus device devices".split())


@dataclass(frozen=True)
class Found:
    """A value that is another in what the converted program wrote."""

    what: str
    step: int
    path: str
    """Of the file; empty for what was printed."""
    detail: str
    trains: bool = False
    """Whether it is about training only: it may be of the main process's part."""


def found(before: Notes, after: Sequence[Notes], tolerance: Tolerance) -> list[Found]:
    """All that differs in what was printed, saved and written as text."""
    training = printed.Training.of(before, after) if tolerance.parts else printed.Training([], [])
    return [
        *_lines_printed(before, after[0], tolerance, training),
        *(_lines_alone(before, after[0], tolerance) if not tolerance.parts else ()),
        *_checkpoints(before, after, tolerance, training),
        *_texts(before, after[0], tolerance, training),
    ]


def read(folder: Path, paths: Sequence[str], place: Path) -> dict[str, str]:
    """The texts among the files that a run wrote in ``folder``, without the names of its own ``place``."""
    texts = {}
    for path in paths:
        file = folder / path
        suffix = file.suffix.lower()
        if (suffix in _TEXTS or suffix[1:].isdigit()) and file.is_file() and file.stat().st_size <= _LARGEST:
            try:
                text = file.read_text()
            except UnicodeDecodeError:
                continue
            if "\0" not in text:
                texts[path] = text.replace(f"{folder}{os.sep}", "").replace(str(place), "")
    return texts


def moved(run: Notes, others: Sequence[Notes]) -> dict[tuple[str, int], float]:
    """How far rounding moved what was printed and written: by the line without its numbers, and a number's place in it.

    ``run``: of the original. ``others``: runs of it with other rounding errors.
    """
    found: defaultdict[tuple[str, int], float] = defaultdict(float)
    for other in others:
        for line, theirs in _pairs(run, other):
            for place, (mine, number) in enumerate(printed.pairs(line, theirs)):
                far = abs(float(mine.text) - float(number.text))
                if math.isfinite(far):
                    key = printed.masked(line), place
                    found[key] = max(found[key], ROOM_WRITTEN * far)
    return dict(found)


def varying(run: Notes, again: Notes, tolerance: Tolerance) -> dict[tuple[str, Any], str]:
    """What the original itself prints, writes and saves otherwise when it runs once more, in words.

    By the line without its numbers, and a number's place in it; or by a checkpoint's path and key.
    """
    found: dict[tuple[str, Any], str] = {}
    for line, theirs in _pairs(run, again):
        for place, (mine, number) in enumerate(printed.pairs(line, theirs)):
            if mine.text != number.text:
                found[printed.masked(line), place] = repr(line.strip()[:100])
    mine, theirs = (Counter(_said(text) for _, text, _ in notes.lines) for notes in (run, again))
    for line in (mine - theirs) + (theirs - mine):
        found[line, None] = repr(line.strip()[:100])
    for one, another in zip(run.saves, again.saves, strict=False):
        allowed = _Allowed.of(run, one, tolerance)
        for key, value in _bare(one.values).items() if one.path == another.path else ():
            other = _bare(another.values).get(key)
            if not (allowed.same(key, value, other) if isinstance(value, dict) else other == value):
                found[one.path, key] = f"{one.path}: {key}"
    return found


def _pairs(run: Notes, other: Notes) -> Iterator[tuple[str, str]]:
    """The lines of two runs of the original, printed and written, that are the same ones."""
    yield from _matched([text for _, text, _ in run.lines], [text for _, text, _ in other.lines])
    for path, one, another in _both(run.texts, other.texts):
        yield from _matched(_lines(path, one), _lines(path, another))


# Lines


def _lines_printed(
    before: Notes, after: Notes, tolerance: Tolerance, training: printed.Training
) -> Iterator[Found]:
    """The first number that differs in what was printed after evaluations, and the first about training."""
    about = set()
    for evaluated in (True, False):
        mine, theirs = (
            [(step, text) for step, text, flag in notes.lines[: notes.compared] if flag is evaluated]
            for notes in (before, after)
        )
        for place, other in _places([text for _, text in mine], [text for _, text in theirs]):
            (step, line), (_, another) = mine[place], theirs[other]
            trains = _first_other(line, another, tolerance, training, is_log=not evaluated)
            if trains is None:
                continue
            trains = trains or not evaluated
            if trains not in about:
                about.add(trains)
                detail = f"printed {another.strip()!r}, original {line.strip()!r}"
                yield Found("evaluation", step, "", detail[:300], trains)


def _lines_alone(before: Notes, after: Notes, tolerance: Tolerance) -> Iterator[Found]:
    """The first line that only one of the programs prints, whatever its numbers."""
    mine, theirs = (
        Counter(_said(text) for _, text, _ in notes.lines[: notes.compared]) for notes in (before, after)
    )
    known = {key for key, place in tolerance.varying if place is None}
    for notes, alone, words in (
        (before, mine - theirs, "is not printed, the original does"),
        (after, theirs - mine, "is printed, the original does not"),
    ):
        for step, text, evaluated in notes.lines[: notes.compared]:
            if alone[_said(text)] and _said(text) not in known:
                yield Found("evaluation", step, "", f"{text.strip()[:200]!r} {words}", not evaluated)
                return


def _said(line: str) -> str:
    """A line without its numbers, whatever wraps a model that is printed."""
    return printed.masked(line).replace("DistributedDataParallel", "DataParallel")


# Text


def _texts(before: Notes, after: Notes, tolerance: Tolerance, training: printed.Training) -> Iterator[Found]:
    """The first number that differs in each text that both wrote, and the first about training."""
    for path, one, other in _both(before.texts, after.texts):
        is_log = Path(path).suffix.lower() not in (*_TABLES, *_TREES)
        mine, theirs = _lines(path, one), _lines(path, other)
        matched = list(_matched(mine, theirs))
        if not is_log and len(matched) < max(len(mine), len(theirs)):
            detail = (
                f"{len(theirs)} rows or values, {len(matched)} of them equal to the original's {len(mine)}"
            )
            yield Found("contents", len(before.steps), path, detail)
            continue
        about = set()
        for line, another in matched:
            trains = _first_other(line, another, tolerance, training, is_log)
            if trains is not None and trains not in about:
                about.add(trains)
                detail = f"{another.strip()!r}, original {line.strip()!r}"
                yield Found("contents", len(before.steps), path, detail[:300], trains)


def count(before: Notes, after: Notes) -> dict[str, int]:
    """How many numbers of each text were compared."""
    found = {}
    for path, one, other in _both(before.texts, after.texts):
        matched = _matched(_lines(path, one), _lines(path, other))
        found[path] = sum(len(printed.numbers(line)) for line, _ in matched)
    return found


def _both(mine: dict[str, Any], theirs: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """What has one name in both, but for what differs from run to run in it."""
    for path, other in paired(mine, theirs):
        if path is not None and other is not None:
            yield path, mine[path], theirs[other]


def paired(mine: Collection[str], theirs: Collection[str]) -> list[tuple[str | None, str | None]]:
    """Two programs' paths: those of one name, then those that are the same without what differs from run to run.

    None stands where the other program has none.
    """
    left: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted({*theirs} - {*mine}):
        left[without_times(path)].append(path)
    found: list[tuple[str | None, str | None]] = []
    for path in sorted({*mine}):
        others = left[without_times(path)]
        found.append((path, path if path in theirs else others.pop(0) if others else None))
    return [*found, *((None, path) for others in left.values() for path in others)]


def without_times(path: str) -> str:
    """A path without what differs from run to run."""
    return re.sub(r"\d{4,}.*", "#", printed.unnamed(path))


def _lines(path: str, text: str) -> list[str]:
    """A text as lines in which words stand before their numbers."""
    suffix = Path(path).suffix.lower()
    if suffix in _TABLES:
        return _rows(list(csv.reader(text.splitlines(), delimiter=_TABLES[suffix])))
    if suffix in _TREES:
        try:
            trees = [json.loads(line) for line in ([text] if suffix == ".json" else text.splitlines())]
        except ValueError:
            return text.splitlines()
        return [line for tree in trees for line in _leaves(tree, "")]
    return text.splitlines()


def _rows(rows: list[list[str]]) -> list[str]:
    if not rows or any(printed.numbers(cell) for cell in rows[0]):
        return [", ".join(row) for row in rows]
    return [
        ", ".join(f"{name} {cell}" for name, cell in zip(rows[0], row, strict=len(row) == len(rows[0])))
        for row in rows[1:]
    ]


def _leaves(tree: Any, path: str) -> Iterator[str]:
    if isinstance(tree, (dict, list)):
        items = tree.items() if isinstance(tree, dict) else enumerate(tree)
        for key, item in items:
            yield from _leaves(item, f"{path}/{key}")
    else:
        yield f"{path}: {tree}"


def _matched(mine: list[str], theirs: list[str]) -> Iterator[tuple[str, str]]:
    """The lines that are the same ones, but for their numbers."""
    for place, other in _places(mine, theirs):
        yield mine[place], theirs[other]


def _places(mine: list[str], theirs: list[str]) -> Iterator[tuple[int, int]]:
    """Where the lines stand that are the same ones, but for their numbers."""
    one, other = [printed.masked(line) for line in mine], [printed.masked(line) for line in theirs]
    if one == other:
        yield from zip(range(len(one)), range(len(one)), strict=True)
    elif max(len(one), len(other)) <= _LONGEST:
        # First by their whole numbers too, which say of most lines which one it is: what only one printed is left out.
        whole = [[printed.counted(line) for line in lines] for lines in (mine, theirs)]
        place = at = 0
        for block in difflib.SequenceMatcher(None, *whole, autojunk=False).get_matching_blocks():
            if one[place : block.a] == other[at : block.b]:
                yield from zip(range(place, block.a), range(at, block.b), strict=True)
            yield from ((block.a + it, block.b + it) for it in range(block.size))
            place, at = block.a + block.size, block.b + block.size


def _first_other(
    line: str, another: str, tolerance: Tolerance, training: printed.Training, is_log: bool
) -> bool | None:
    """Whether the first number that differs is about training; None where none does."""
    found = None
    for place, (one, other) in enumerate(printed.pairs(line, another)):
        if printed.same(one.text, other.text, tolerance.written) or one.is_clock:
            continue
        if (printed.masked(line), place) in tolerance.varying:
            continue
        room = tolerance.moved.written.get((printed.masked(line), place), 0.0)
        if abs(float(one.text) - float(other.text)) <= room:
            continue
        if training.has(one.text, other.text):
            continue
        if not one.trains and (one.is_result or not is_log):
            return False
        found = True
    return found


# Checkpoints


def _checkpoints(
    before: Notes, after: Sequence[Notes], tolerance: Tolerance, training: printed.Training
) -> Iterator[Found]:
    """The first value that differs in each checkpoint that both saved, and the first about training."""
    for one, other in saves(before, after):
        if one is None or other is None or one.step != other.step:
            continue
        allowed = _Allowed.of(before, one, tolerance)
        theirs, about = _bare(other.values), set()
        for key, mine in _bare(one.values).items():
            if key not in theirs or _is_of_the_run(key, mine) or allowed.same(key, mine, theirs[key]):
                continue
            if (one.path, key) in tolerance.varying:
                continue
            if isinstance(mine, float) and training.has(repr(mine), repr(theirs[key])):
                continue
            trains = printed.trains(_words(key))
            if trains not in about:
                about.add(trains)
                yield Found(
                    "checkpoint", one.step, one.path, f"{key}: {_difference(mine, theirs[key])}", trains
                )


def saves(before: Notes, after: Sequence[Notes]) -> Iterator[tuple[Save | None, Save | None]]:
    """The checkpoints of one name, in the order in which they were saved, with None where one has no more."""
    mine, theirs = _named(before.saves), {}
    for notes in after:  # where several ranks save one file, that is said of the files
        theirs = _named(notes.saves) | theirs
    for name, other in paired(mine, theirs):
        if name is not None and other is not None:
            yield from zip_longest(mine[name], theirs[other])


def _named(saved: Sequence[Save]) -> dict[str, list[Save]]:
    named: defaultdict[str, list[Save]] = defaultdict(list)
    for save in saved:
        named[save.path].append(save)
    return dict(named)


def _bare(values: dict[str, Any]) -> dict[str, Any]:
    return {bare_key(key): value for key, value in values.items()}


def _words(key: str) -> list[str]:
    """The words of what a value is called by, for one in a list of the list."""
    names = [name for name in key.split("/") if not name.isdigit()]
    return printed.words(names[-1]) if names else []


def _is_of_the_run(key: str, value: Any) -> bool:
    """Whether it is a time, a random generator's state, or about processes and devices."""
    is_trained = isinstance(value, dict) and not value["whole"]
    words = {*_words(key), *printed.words(key.split("/")[0])}
    return not is_trained and (printed.is_clock(words) or bool(words & _OF_A_PROCESS))


def _difference(mine: Any, theirs: Any) -> str:
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return "another tensor"
    return f"{theirs!r}, original {mine!r}"


@dataclass(frozen=True)
class _Allowed:
    """How far values of a checkpoint may be apart."""

    tolerance: Tolerance
    save: Save
    parameters: float
    states: float
    """An optimizer's: its gradients' norm, which rounding is relative to."""

    @staticmethod
    def of(before: Notes, save: Save, tolerance: Tolerance) -> _Allowed:
        """Those at the step of ``save``."""
        allowed, spent = tolerance.parameters, 0.0
        for step in before.steps[: save.step]:
            if before.optimizers[step.optimizer].adaptive:
                spent += max(step.rates, default=0.0)
                allowed = tolerance.stepped(adaptive=True, spent=spent)
        tensors = [value for key, value in save.values.items() if _is_state(key) and isinstance(value, dict)]
        norm = math.sqrt(sum(value["digest"][0] ** 2 for value in tensors))
        states = tolerance.gradients * norm if math.isfinite(norm) else 0.0
        return _Allowed(tolerance, save, allowed, states)

    def same(self, key: str, mine: Any, theirs: Any) -> bool:
        """Whether two values are one."""
        if isinstance(mine, dict) and isinstance(theirs, dict):
            return self._same_tensors(key, mine, theirs)
        if isinstance(mine, str) and isinstance(theirs, str):
            one, other = (it.replace("DistributedDataParallel", "DataParallel") for it in (mine, theirs))
            return printed.masked(one) == printed.masked(other)  # a model's class may be written down
        if isinstance(mine, float) and isinstance(theirs, (int, float)):
            return printed.same(repr(mine), repr(float(theirs)), self.tolerance.written)
        return mine == theirs

    def _same_tensors(self, key: str, mine: dict[str, Any], theirs: dict[str, Any]) -> bool:
        if mine["size"] != theirs["size"]:
            return False
        far = distance(mine["digest"], theirs["digest"])
        if mine["whole"] or not far:
            return not far
        roots = math.sqrt(max(mine["size"], 1))
        if far <= self.tolerance.moved.saved.get((self.save.step, self.save.path, key), 0.0):
            return True
        close = far / (4 * roots) <= self.parameters * max(1.0, mine["digest"][0] / roots)
        return close or (_is_state(key) and far <= self.states)


def _is_state(key: str) -> bool:
    return bool(re.search(r"(?:^|/)state/\d+/", key))
