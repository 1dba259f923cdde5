"""Losses of whole batches, from those of the ranks' parts."""

from __future__ import annotations

from collections.abc import Sequence

from dp2ddp.verify.notes import Notes, Step


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


def _weighed(values: Sequence[float], sizes: Sequence[int | None]) -> float | None:
    """The mean of ``values``, each of so many samples; None where that is not known."""
    if None in sizes or not sum(sizes):
        return None
    return sum(value * size for value, size in zip(values, sizes, strict=True) if size) / sum(sizes)


def _sources(notes: Notes, step: Step, place: int) -> list[int | None]:
    """How many samples of its own a rank's loss may be about, the likeliest first; None where that is not known."""
    source = step.sources[place]
    new, earlier = (
        [
            notes.passes[number].drawn[it] if it < len(notes.passes[number].drawn) else None
            for number, it in batches
            if notes.passes[number].trains
        ]
        for batches in (source.new, source.earlier)
    )
    each = [None if part is None else len(part) for part in [*new, *earlier]]
    drawn = [sum(each[: len(new)]) if new and None not in each[: len(new)] else None, *each]
    return [*source.samples, *drawn]
