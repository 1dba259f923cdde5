"""Convert a program, run it before and after, and compare all that it prints and saves."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from parity.harness import Lab, Run

from dp2ddp.changes import Conversion
from dp2ddp.convert import convert
from dp2ddp.source import Project
from generated.author import Program

ROOT = Path("/example")
LOOSE = 1e-7
"""How far apart numbers may be, relative to their size: sums of parts are rounded otherwise."""
NOISE = 1e-7
"""And in itself: Adam makes steps of the rounding of gradients that are none, as those of a bias before BatchNorm."""


def conversion_of(program: Program) -> Conversion:
    """The conversion of all files of a program, in the original's batches."""
    return convert(Project.of({ROOT / path: text for path, text in program.files.items()}), exact=True)


def changed(program: Program, conversion: Conversion) -> dict[str, str]:
    """The files as the conversion leaves them."""
    after = {str(it.path.relative_to(ROOT)): it.after for it in conversion.changes}
    return {path: after.get(path, text) for path, text in program.files.items()}


def judged(program: Program, lab: Lab, processes: int) -> tuple[str, str, str]:
    """Convert, run and compare one program: what came of it, the form, and what differs.

    What comes of it is "same", "said" or "SILENT" (what differs, with or without a word about it), "crash", "refused",
    or "broken before" where the program did not run in the first place.
    """
    conversion = conversion_of(program)
    if conversion.errors:
        return "refused", "", str(conversion.errors[0])
    form = "sharded" if any(it.tier.startswith("sharded") for it in conversion.scripts) else "whole"
    said = [f"{it.rule} {it.location}: {it.message}" for it in conversion.findings if it.is_left]
    before = _run(lab, "before", program.files, program, replicas=processes)
    if before[-1].code:
        return "broken before", form, before[-1].errors[-900:]
    seen = {"gpus": processes} if program.asks_for_gpus else {}
    after = _run(lab, "after", changed(program, conversion), program, processes=processes, **seen)
    if after[-1].code:
        return "crash", form, "\n".join([after[-1].errors[-1500:], *said])
    differing = list(_differing(before, after))
    if not differing:
        return "same", form, "; ".join(said)
    return "said" if said else "SILENT", form, "\n".join([*differing[:8], *said])


def _run(lab: Lab, name: str, files: Mapping[str, str], program: Program, **options: int) -> list[Run]:
    place = lab.place(name)
    for path, text in files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text)
    runs: list[Run] = []
    while len(runs) < program.runs and not any(it.code for it in runs):
        runs.append(lab.run(place / program.start, folder=place, timeout=60, **options))
    return runs


def _differing(before: list[Run], after: list[Run]) -> Iterator[str]:
    printed = ([line for run in runs for line in run.printed.splitlines()] for runs in (before, after))
    for one, other in zip_longest(*printed, fillvalue="(nothing)"):
        if one != other and not _alike(one, other):
            yield f"printed {other!r}, not {one!r}"
    names = [{it for it in run[-1].files() if not re.search(r"\.pyc?$", it)} for run in (before, after)]
    for name in sorted(names[0] ^ names[1]):
        yield f"{name}: written by one of them"
    for name in sorted(names[0] & names[1]):
        if why := _apart(*(_read(run[-1].folder / name) for run in (before, after))):
            yield f"{name}: {why}"


def _read(path: Path) -> Any:
    if path.suffix in (".pth", ".pt"):
        return torch.load(path, weights_only=False)
    if path.suffix in (".npy", ".npz"):
        found = np.load(path, allow_pickle=True)
        return dict(found) if path.suffix == ".npz" else found
    return pickle.loads(path.read_bytes()) if path.suffix == ".pkl" else path.read_text()


def _alike(one: str, other: str) -> bool:
    """Whether two texts say the same, but for the rounding of their numbers."""
    number = r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?"
    if re.sub(number, "#", one) != re.sub(number, "#", other):
        return False
    pairs = zip(re.findall(number, one), re.findall(number, other), strict=True)
    return all(_near(float(a), float(b)) for a, b in pairs if a != b)


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= max(LOOSE * abs(one), 1.5e-6)


def _apart(one: Any, other: Any) -> str:
    """What is not the same in two things that were saved; empty if nothing."""
    if isinstance(one, dict) and isinstance(other, dict):
        mine, others = ({str(key).removeprefix("module."): it[key] for key in it} for it in (one, other))
        if list(mine) != list(others):
            return f"keys {list(other)}, not {list(one)}"
        return next(
            filter(
                None, (why and f"{key}: {why}" for key in mine if (why := _apart(mine[key], others[key])))
            ),
            "",
        )
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        if len(one) != len(other):
            return f"{len(other)} items, not {len(one)}"
        return next(filter(None, (_apart(*pair) for pair in zip(one, other, strict=True))), "")
    if isinstance(one, torch.Tensor | np.ndarray) and isinstance(other, torch.Tensor | np.ndarray):
        mine, others = np.asarray(one), np.asarray(other)
        if mine.shape != others.shape:
            return f"shape {others.shape}, not {mine.shape}"
        if mine.dtype == object or mine.dtype.kind in "US":
            return _apart(mine.tolist(), others.tolist())
        # dtype may be anything, also bool
        mine, others = mine.astype("float64"), others.astype("float64")
        return (
            ""
            if np.allclose(mine, others, rtol=LOOSE, atol=NOISE)
            else f"off by {abs(mine - others).max():.3g}"
        )
    if isinstance(one, bool) or not isinstance(one, int | float):
        same = (
            _alike(one, other)
            if isinstance(one, str) and isinstance(other, str)
            else _plain(one) == _plain(other)
        )
        return "" if same else f"{str(other)[:200]!r}, not {str(one)[:200]!r}"
    return "" if isinstance(other, int | float) and _near(one, other) else f"{other!r}, not {one!r}"


def _plain(thing: Any) -> Any:
    return thing if isinstance(thing, str | int | float | bool | type(None)) else repr(type(thing))
