"""What the processes of a run wrote down, read back and put together."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import torch

Digest = list[float] | None
LOOP = "the loop"
"""Of streams: what draws outside of models and data sets."""


@dataclass
class Pass:
    """One iteration of a loader."""

    data: tuple[str, int | None]
    ordinal: int
    length: int | None
    """Of the loader, in batches."""
    step: int
    """How many steps were made before it."""
    trains: bool = False
    drawn: list[list[Any] | None] = field(default_factory=list)
    own: list[list[Any] | int | None] = field(default_factory=list)
    """What the script's own sampler dealt, where that was replaced; else its size."""
    handed: int = 0
    steps: list[int] = field(default_factory=list)
    """For each batch that was handed out, how many steps were made before."""
    ended: bool = False

    @property
    def key(self) -> str:
        """What it has in common with the pass of another run."""
        return f"{self.data[0]} {self.data[1]} {self.ordinal}"

    def own_size(self, place: int) -> int | None:
        """The size of a batch as the script's own sampler dealt it."""
        own = self.own[place]
        return len(own) if isinstance(own, list) else own

    def dealt(self, place: int) -> list[Any] | None:
        """A batch's samples as the script's own sampler dealt them, where they have numbers."""
        own = self.own[place]
        return own if isinstance(own, list) else self.drawn[place]


@dataclass
class Optimizer:
    """One optimizer, as it was before its first step."""

    kind: str
    adaptive: bool
    names: list[str]
    sizes: list[int]
    bare: list[str]
    """The parameters outside of every wrapper."""
    dtype: str
    digests: list[Digest]


@dataclass(frozen=True)
class Source:
    """The batches that a loss may be about, each a pass and a place in it.

    Usually those handed out since the loss before it. There may be none, where a second loss is about the same batch,
    and a loop may draw a batch ahead.
    """

    new: tuple[tuple[int, int], ...]
    earlier: tuple[tuple[int, int], ...]
    samples: Sequence[int]
    """How many samples of its own the runtime says that the rank has."""


@dataclass
class Step:
    """One optimizer step, and what led to it."""

    number: int
    optimizer: int
    losses: list[float | None]
    looks: list[dict[str, Any]]
    batches: list[tuple[int, int]]
    """The training batches handed out since the last step: pass and place."""
    gradients: list[Digest]
    rates: list[float]
    digests: list[Digest]
    buffers: dict[str, Digest]
    gathers: bool
    sources: list[Source] = field(default_factory=list)
    """What each of the losses may be about."""
    options: list[dict[str, Any]] = field(default_factory=list)
    """Of each group of parameters: what it is trained with, and under ``params`` how many there are."""
    frozen: list[int] = field(default_factory=list)
    """The places of parameters that are not trained."""


@dataclass
class Save:
    """A checkpoint."""

    step: int
    path: str
    keys: list[str]
    values: dict[str, Any]
    """What stands in it, by its path: numbers and words, tensors as their digests."""
    wrapped: list[str] = field(default_factory=list)
    """The models in it that are pickled with their wrapper."""


@dataclass(frozen=True)
class Stream:
    """What drew random numbers, and where the generators would have been that it drew from, by their names."""

    what: str
    """A pass, or the number of a wrapped model and that of its forward: of the same name on other ranks."""
    of: str
    """"samples", the class of the model, or ``LOOP``."""
    step: int
    states: dict[str, str]


@dataclass
class Notes:
    """What one process did."""

    rank: int
    passes: list[Pass] = field(default_factory=list)
    cuts: bool = False
    """Whether the program takes parts of batches by ``local_batch``."""
    optimizers: list[Optimizer] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    lines: list[tuple[int, str, bool]] = field(default_factory=list)
    """What was printed: after which step, what, and whether an evaluation had run since the last batch."""
    compared: int | None = None
    """How many of these come before the batch that the run ended at, which is not the original's: None if all do."""
    files: list[tuple[int, str]] = field(default_factory=list)
    saves: list[Save] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    """The texts that the run left, whoever wrote them: the first rank's notes have them."""
    bypasses: list[tuple[int, str, str]] = field(default_factory=list)
    """Modules that trained past their wrapper: after which step, which, at what line."""
    uneven: tuple[int, int] | None = None
    """The most and the fewest parts that arguments of a call were cut into, where some samples were left out."""
    kept: list[tuple[int, str]] = field(default_factory=list)
    """Attributes that a wrapped model has as its forward left them: after which step, and which, with the class."""
    wrapped: list[str] = field(default_factory=list)
    """The classes of the modules that a wrapper called."""
    trained_wrapped: bool = False
    """Whether one of them was called with gradients."""
    streams: list[Stream] = field(default_factory=list)
    evaluated: dict[str, list[Digest]] = field(default_factory=dict)
    """What wrapped forwards were given that drew random numbers in an evaluation, by what they are."""
    """What random numbers were drawn from."""
    collective: str = ""
    """The last one, and where it was called."""
    error: dict[str, Any] | None = None
    done: bool = False
    parameters: list[torch.Tensor] = field(default_factory=list)
    last: list[list[torch.Tensor]] = field(default_factory=list)
    """The parameters of each optimizer at the end."""

    @property
    def gathers(self) -> bool:
        """Whether this rank draws whole batches, and the wrapper cuts them."""
        return any(step.gathers for step in self.steps)

    @property
    def training(self) -> list[Pass]:
        """The passes that trained."""
        return [one for one in self.passes if one.trains]


def read(folder: Path) -> list[Notes]:
    """The notes of all ranks that wrote some, in order."""
    journals = sorted(folder.glob("*.jsonl"), key=lambda path: int(path.stem))
    return [_read(path) for path in journals]


def _read(journal: Path) -> Notes:
    notes = Notes(int(journal.stem))
    reader = _Reader(notes)
    lines = journal.read_text().splitlines()
    workers = journal.with_suffix(".workers")
    if workers.exists():
        lines += workers.read_text().splitlines()
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:  # cut off: the process was killed
            break
        getattr(reader, event.pop("event"))(**event)
    reader.close()
    tensors = journal.with_suffix(".pt")
    if tensors.exists():
        kept = torch.load(tensors)
        notes.parameters, notes.last = kept["parameters"], kept["last"]
    return notes


class _Reader:
    """Takes one event after the other."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self._losses: list[float | None] = []
        self._looks: list[dict[str, Any]] = []
        self._batches: list[tuple[int, int]] = []
        self._gradients: list[Digest] = []
        self._sources: list[Source] = []
        self._new: tuple[tuple[int, int], ...] = ()  # handed out since the last loss
        self._earlier: tuple[tuple[int, int], ...] = ()  # those of that loss
        self._lines = 0  # that were printed before the last batch was handed out

    @property
    def _now(self) -> int:
        return len(self.notes.steps)

    def begin(self, number: int, data: list[Any], ordinal: int, length: int | None) -> None:
        self.notes.passes.append(Pass((data[0], data[1]), ordinal, length, self._now))

    def draw(self, number: int, own: Any, indices: Any) -> None:
        self.notes.passes[number].own.append(own)
        self.notes.passes[number].drawn.append(indices)

    def batch(self, number: int) -> None:
        one = self.notes.passes[number]
        one.steps.append(self._now)
        self._batches.append((number, one.handed))
        self._new += ((number, one.handed),)
        self._lines = len(self.notes.lines)
        one.handed += 1

    def training(self, number: int) -> None:
        self.notes.passes[number].trains = True
        self._unevaluated()

    def close(self) -> None:
        """Hear that the run ended: before the backward pass of the batch at hand, where it was to train."""
        last = self.notes.passes[-1:]
        if last and not last[0].ended and last[0].data in [one.data for one in self.notes.training]:
            self._unevaluated()
            self.notes.compared = self._lines

    def _unevaluated(self) -> None:
        """What was printed since the batch at hand is about training."""
        lines = self.notes.lines
        lines[self._lines :] = [(step, text, False) for step, text, _ in lines[self._lines :]]

    def end(self, number: int) -> None:
        self.notes.passes[number].ended = True

    def loss(self, value: float | None, looks: dict[str, Any], samples: list[int], cuts: bool) -> None:
        self.notes.cuts |= cuts
        self._losses.append(value)
        self._looks.append(looks)
        self._sources.append(Source(self._new, self._earlier, samples))
        if self._new:
            self._new, self._earlier = (), self._new
        if value is not None:
            self.notes.losses.append(value)

    def collective(self, name: str, line: str) -> None:
        self.notes.collective = f"{name} at {line}"

    def optimizer(self, number: int, **values: Any) -> None:
        self.notes.optimizers.append(Optimizer(**values))

    def gradients(self, optimizer: int, digests: list[Digest]) -> None:
        self._gradients = digests

    def step(self, number: int, optimizer: int, **values: Any) -> None:
        led = {
            "losses": self._losses,
            "looks": self._looks,
            "batches": self._batches,
            "sources": self._sources,
        }
        self.notes.steps.append(Step(number, optimizer, gradients=self._gradients, **led, **values))
        self._losses, self._looks, self._batches, self._gradients, self._sources = [], [], [], [], []

    def line(self, text: str, evaluated: bool) -> None:
        self.notes.lines.append((self._now, text, evaluated))

    def file(self, path: str) -> None:
        self.notes.files.append((self._now, path))

    def save(self, path: str | None, **saved: Any) -> None:
        self.notes.saves.append(Save(self._now, path or "", **saved))

    def wrapped(self, module: str, trains: bool) -> None:
        if module not in self.notes.wrapped:
            self.notes.wrapped.append(module)
        self.notes.trained_wrapped |= trains

    def stream(self, **values: Any) -> None:
        self.notes.streams.append(Stream(step=self._now, **values))

    def evaluated(self, what: str, given: list[Digest]) -> None:
        self.notes.evaluated[what] = given

    def bypass(self, module: str, line: str) -> None:
        self.notes.bypasses.append((self._now, module, line))

    def uneven(self, most: int, least: int) -> None:
        self.notes.uneven = most, least

    def kept(self, name: str) -> None:
        self.notes.kept.append((self._now, name))

    def error(self, **values: Any) -> None:
        self.notes.error = values

    def done(self, steps: int) -> None:
        self.notes.done = True


# The ranks together


def global_batches(ranks: Sequence[Notes], key: str) -> list[list[Any] | None]:
    """The batches of a pass as the whole job saw them: the ranks' parts put together.

    Where every rank draws whole batches and the wrapper cuts them, or ``local_batch``, they are those of rank 0.
    """
    parts = parts_of(ranks, key)
    cut = any(notes.cuts for notes in ranks) and all(part == parts[0] for part in parts)
    if cut or any(notes.gathers for notes in ranks):
        return parts[0]
    return [
        None if any(part is None for part in column) else list(chain.from_iterable(column))
        for column in zip(*parts, strict=False)
    ]


def evaluates_whole(ranks: Sequence[Notes]) -> bool:
    """Whether the ranks draw random numbers in an evaluation for all of its samples, each for itself."""
    first = ranks[0].evaluated if ranks else {}
    return bool(first) and all(one.evaluated == first for one in ranks)


def distance(one: Digest, other: Digest) -> float:
    """How far apart two tensors are, by their digests."""
    mine, theirs = one or [0.0, 0.0], other or [0.0, 0.0]
    if any(map(math.isnan, mine)) and any(map(math.isnan, theirs)):
        return 0.0
    return max(abs(a - b) for a, b in zip(mine, theirs, strict=True))


def norm(digests: Sequence[Digest]) -> float:
    """The norm of all tensors together."""
    return math.sqrt(sum(digest[0] ** 2 for digest in digests if digest is not None))


def parts_of(ranks: Sequence[Notes], key: str) -> list[list[Any]]:
    """What each rank drew in a pass."""
    return [one.drawn for notes in ranks for one in notes.passes if one.key == key]


def plan(ranks: Sequence[Notes]) -> dict[str, list[Any]]:
    """The training batches of a run, for another one to draw."""
    first = ranks[0]
    return {
        one.key: global_batches(ranks, one.key)
        for one in first.passes
        if one.trains and None not in one.drawn
    }
