"""Losses of whole batches, from those of the ranks' parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dp2ddp.verify.notes import Notes, Pass, Step


def curve(ranks: Sequence[Notes]) -> list[float]:
    """The losses of a run, of the whole batch."""
    found = []
    for number in range(min(len(one.steps) for one in ranks)):
        steps = [rank.steps[number] for rank in ranks]
        for place in range(min(len(step.losses) for step in steps)):
            found += of_whole(ranks, steps, place)[:1]
    return found


def of_whole(after: Sequence[Notes], others: Sequence[Step], place: int) -> list[float]:
    """What a loss may be of the whole batch: the ranks' mean, weighed by their parts' sizes, or plain.

    The parts are those of the batch that the loss is about, or of all that were drawn for it.
    """
    values = [other.losses[place] for other in others]
    if any(value is None for value in values):
        return []
    sources = [_sources(notes, other, place) for notes, other in zip(after, others, strict=True)]
    means = [_weighed(values, sizes) for sizes in zip(*sources, strict=False)]
    return [*(mean for mean in means if mean is not None), sum(values) / len(values)]


def is_of_several(after: Sequence[Notes], others: Sequence[Step], place: int) -> bool:
    """Whether a loss may be a sum over batches that the ranks share otherwise: no weights make it the whole ones'."""
    each = [_parts(notes, other, place)[0] for notes, other in zip(after, others, strict=True)]
    shares = {
        tuple(size / total for size in sizes)
        for sizes in zip(*each, strict=False)
        if (total := _total(sizes))
    }
    return len(shares) > 1


def _total(sizes: Sequence[int | None]) -> int:
    return 0 if None in sizes else sum(sizes)  # type: ignore[arg-type]


def _weighed(values: Sequence[float], sizes: Sequence[int | None]) -> float | None:
    """The mean of ``values``, each of so many samples; None where that is not known."""
    if None in sizes or not sum(sizes):
        return None
    return sum(value * size for value, size in zip(values, sizes, strict=True) if size) / sum(sizes)


def _sources(notes: Notes, step: Step, place: int) -> list[int | None]:
    """How many samples of its own a rank's loss may be about, the likeliest first; None where that is not known."""
    new, earlier = _parts(notes, step, place)
    drawn = [sum(new) if new and None not in new else None, *new, *earlier]  # type: ignore[arg-type]
    return [*step.sources[place].samples, *drawn]


def _parts(notes: Notes, step: Step, place: int) -> tuple[list[int | None], list[int | None]]:
    """How many samples a rank has of each batch that was drawn for a loss, and of those drawn before."""
    source = step.sources[place]
    new, earlier = (
        [
            len(part) if (part := _drawn(notes.passes[number], it)) is not None else None
            for number, it in batches
            if notes.passes[number].trains
        ]
        for batches in (source.new, source.earlier)
    )
    return new, earlier


def _drawn(one: Pass, batch: int) -> list[Any] | None:
    return one.drawn[batch] if batch < len(one.drawn) else None
