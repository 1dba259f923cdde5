"""Where two recorded runs differ first, and why.

``before`` is one process that played nn.DataParallel, ``after`` the ranks of the converted program. Each function looks
at one kind of thing and says what differs; the earliest counts, and within one step what comes first in it.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, takewhile
from typing import Any

from dp2ddp.verify import contents, losses
from dp2ddp.verify.journal import hashable
from dp2ddp.verify.notes import (
    LOOP,
    Digest,
    Notes,
    Optimizer,
    Pass,
    Save,
    Step,
    Stream,
    distance,
    global_batches,
    norm,
    parts_of,
)
from dp2ddp.verify.rounding import bare_key
from dp2ddp.verify.verdict import Difference, Tolerance

ORDER = (
    "end",
    "start",
    "global batch",
    "order of the samples",
    "length of an epoch",
    "random numbers",
    "number of losses",
    "loss",
    "gradient",
    "learning rate",
    "options",
    "parameter",
    "buffer",
    "number of steps",
    "evaluation",
    "output of training",
    "checkpoint",
    "files",
    "contents",
)
_ROWS_MEET = {"Mm", "Bmm", "CdistBackward", "Cdist", "EuclideanDist", "Addmm", "Baddbmm", "Topk", "Sort"}


def differences(
    before: Notes, after: Sequence[Notes], tolerance: Tolerance, written: Sequence[contents.Found] = ()
) -> list[Difference]:
    """All that differs, the first one first; ``written`` is what does in printed lines and files."""
    found = [
        *batches(before, after),
        *starts(before, after, tolerance),
        *streams(after),
        *steps(before, after, tolerance),
        *counts(before, after),
        *checkpoints(before, after),
        *files(before, after),
        *values(written, tolerance),
    ]
    return _sorted(found)


def law(before: Notes, after: Sequence[Notes], tolerance: Tolerance) -> list[Difference]:
    """What differs that does not follow from which samples and random numbers were drawn, the first one first."""
    found = [
        *batches(before, after),
        *starts(before, after, tolerance),
        *settings(before, after),
        *checkpoint_keys(before, after),
        *written_twice(after),
    ]
    return _sorted(found)


def _sorted(found: list[Difference]) -> list[Difference]:
    return sorted(found, key=lambda one: (one.step, ORDER.index(one.what)))


# What was drawn


def batches(before: Notes, after: Sequence[Notes]) -> Iterator[Difference]:
    """The training batches as the original's own sampler dealt them, beside those of the converted program."""
    theirs = {one.key: one for one in after[0].passes}
    last: dict[tuple[str, int | None], Pass] = {}
    for one in before.training:
        if one.key not in theirs:
            continue
        joined, length = global_batches(after, one.key), theirs[one.key].length
        found = _batch(one, after, joined) or _order(one, joined, last.get(one.data), after)
        if found is None and None not in (one.length, length) and one.length != length:
            detail = f"an epoch has {length} batches, the original's {one.length}"
            step = one.step + 1 + min(one.length, length)
            found = Difference(step, "length of an epoch", detail, "last batch")
        if found is not None:
            yield found
        last[one.data] = one


def _batch(one: Pass, after: Sequence[Notes], joined: list[Any]) -> Difference | None:
    world, seen, dealt = len(after), Counter(), parts_of(after, one.key)
    own_seen: Counter[Any] = Counter()
    for place in range(min(one.handed, len(joined), len(one.own))):
        size, drawn, own = one.own_size(place), joined[place], one.dealt(place)
        if drawn is None or size is None or drawn[:1] == [None]:
            continue
        step = one.steps[place] + 1
        is_last = one.length is not None and place == one.length - 1
        parts = [part[place] for part in dealt]
        same = world > 1 and len(drawn) > len(parts[0]) and all(part == parts[0] for part in parts)
        if len(drawn) != size and not (is_last and 0 <= len(drawn) - size < world):
            detail = f"global batch of {len(drawn)} samples instead of {size}"
            cause = "sampler" if same else "batch size" if len(drawn) == world * size else "last batch"
            return Difference(step, "global batch", detail, cause)
        seen.update(map(hashable, drawn))
        if own is not None:
            own_seen.update(map(hashable, own))
            padding = world - 1 if is_last else 0
            again, own_again = (sum(count.values()) - len(count) for count in (seen, own_seen))
            if again > own_again + padding:
                detail = f"{again} samples are repeated within the epoch, {own_again} in the original"
                return Difference(step, "order of the samples", detail, "sampler" if same else "seed")
    return None


def _order(one: Pass, joined: list[Any], previous: Pass | None, after: Sequence[Notes]) -> Difference | None:
    count = min(one.handed, len(joined))
    own = [part for part in map(one.dealt, range(min(count, len(one.own)))) if part is not None]
    if count == 0 or len(own) < count or joined[0] is None:
        return None
    flat = [index for part in own for index in part]
    step = one.steps[0] + 1
    if len(flat) > 2 and all(isinstance(i, int) for i in flat) and flat == sorted(flat):
        for place in range(count):
            if sorted(own[place]) != sorted(set(joined[place]) & set(own[place])):
                detail = "other samples than the original's, which are not shuffled"
                return Difference(one.steps[place] + 1, "order of the samples", detail, "shuffle")
        return None
    known = not any(index is None for part in joined[:count] for index in part or ())
    if known and count > 1 and _ascends(joined[:count]) and not _ascends(own):
        detail = "the samples are in data set order, the original's are shuffled"
        return Difference(step, "order of the samples", detail, "shuffle")
    if previous is not None:
        earlier = global_batches(after, previous.key)
        own_earlier = [previous.dealt(place) for place in range(len(previous.own))]
        common = min(count, len(earlier), previous.handed)
        if common and joined[:common] == earlier[:common] and own[:common] != own_earlier[:common]:
            detail = "this epoch repeats the previous epoch's order, the original reshuffles"
            return Difference(step, "order of the samples", detail, "set_epoch")
    return None


def _ascends(batches: list[Any]) -> bool:
    """Whether each batch has none but higher indices than the one before it, in whatever order within."""
    return all(max(map(hashable, a)) < min(map(hashable, b)) for a, b in pairwise(batches) if a and b)


def streams(after: Sequence[Notes]) -> Iterator[Difference]:
    """Random numbers that several ranks draw alike for different samples, each kind once.

    The samples themselves are aligned: what is drawn for them, and by the model, is the original's.
    """
    passes = {one.key: one.step for one in after[0].passes}
    said: set[str] = set()
    for stream, name, ranks in _drawn_alike(after):
        of_samples = stream.of == "samples"
        if stream.of == LOOP or stream.of in said or (of_samples and not _draws_its_own(after, stream.what)):
            continue
        said.add(stream.of)
        drawn = "the data set draws" if of_samples else f"{stream.of} draws"
        detail = f"{drawn} the same numbers on ranks {ranks[0]} and {ranks[1]}, from {name}'s generator"
        step = passes.get(stream.what, 0) if of_samples else stream.step
        yield Difference(step + 1, "random numbers", detail, "streams")


def _drawn_alike(after: Sequence[Notes]) -> Iterator[tuple[Stream, str, tuple[int, int]]]:
    """What two ranks draw from a generator in the same state: what draws, the generator, and the ranks."""
    seen: dict[tuple[str, str, str, str], int] = {}
    for notes in after:
        for stream in notes.streams:
            for name, state in stream.states.items():
                first = seen.setdefault((stream.of, stream.what, name, state), notes.rank)
                if first != notes.rank:
                    yield stream, name, (first, notes.rank)


def _has_shared_noise(after: Sequence[Notes]) -> bool:
    """Whether the loop draws as many numbers as a part has samples, the same on several ranks."""
    whole = any(notes.gathers for notes in after)
    return not whole and any(stream.of == LOOP for stream, _, _ in _drawn_alike(after))


def _draws_its_own(after: Sequence[Notes], key: str) -> bool:
    """Whether ranks draw samples of their own in a pass, and not the same ones."""
    firsts = [part[0] for part in parts_of(after, key) if part]
    return not any(notes.gathers for notes in after) and any(it != firsts[0] for it in firsts)


# What was computed


def starts(before: Notes, after: Sequence[Notes], tolerance: Tolerance) -> Iterator[Difference]:
    """The parameters before the first step of each optimizer: a later one begins with what others have stepped."""
    for number, one in enumerate(before.optimizers):
        at, allowed, moved = _begun(before, number, tolerance)
        for notes in after:
            if number >= len(notes.optimizers):
                continue
            other = notes.optimizers[number]
            if one.sizes != other.sizes:
                detail = f"rank {notes.rank} trains {len(other.sizes)} tensors, the original {len(one.sizes)}"
                yield Difference(0, "start", detail, "optimizer")
                return
            far = _farthest(one.digests, other.digests, one.sizes, allowed, moved)
            if far is not None:
                place, apart = far
                detail = f"rank {notes.rank} starts with different parameters ({apart:.2g} apart)"
                theirs = [it.optimizers[number].digests for it in after if number < len(it.optimizers)]
                differ = _differ(theirs, one.sizes, allowed)
                yield Difference(at, "start", detail, "replica" if differ else "start", one.names[place])
                return


def _begun(before: Notes, number: int, tolerance: Tolerance) -> tuple[int, float, Callable[[int], float]]:
    """The step that an optimizer begins with, 0 for the first of all; how far its parameters may be apart there."""
    earlier = list(takewhile(lambda step: step.optimizer != number, before.steps))
    adaptive = any(before.optimizers[step.optimizer].adaptive for step in earlier)
    allowed = tolerance.stepped(adaptive, sum(max(step.rates, default=0.0) for step in earlier))
    measured: dict[str, float] = {}
    for step in earlier:
        for place, name in enumerate(before.optimizers[step.optimizer].names):
            measured[name] = max(measured.get(name, 0.0), tolerance.moved.parameter(step.number, place))
    names = before.optimizers[number].names
    at = earlier[-1].number + 1 if earlier else 0
    return at, allowed, lambda place: measured.get(names[place], 0.0)


def steps(before: Notes, after: Sequence[Notes], tolerance: Tolerance) -> Iterator[Difference]:
    """Losses, gradients, learning rates, parameters and buffers, up to the first step in which one differs."""
    spent: dict[int, float] = {}
    for number in range(min([len(before.steps), *(len(notes.steps) for notes in after)])):
        one, others = before.steps[number], [notes.steps[number] for notes in after]
        if one.optimizer >= len(before.optimizers):
            return
        if other := _other_optimizer(before, after, one, others):
            yield other
            return
        rate = max(one.rates, default=0.0)
        spent[one.optimizer] = spent.get(one.optimizer, 0.0) + rate
        found = list(_step(before, after, one, others, tolerance, spent[one.optimizer]))
        if found:
            yield from found
            return


def _step(
    before: Notes,
    after: Sequence[Notes],
    one: Step,
    others: list[Step],
    tolerance: Tolerance,
    spent: float,
) -> Iterator[Difference]:
    optimizer, at = before.optimizers[one.optimizer], one.number
    if other := _other_count(one, others):
        yield other
        return
    buffers = _buffers(one, others[0], tolerance)
    allowed = tolerance.stepped(optimizer.adaptive, spent)
    # equal gradients, and other parameters all the same
    replica = not _apart(optimizer.names, one, others, tolerance) and _differ(
        [other.digests for other in others], optimizer.sizes, allowed
    )
    gradients = list(_gradients(optimizer, one, others, tolerance))
    for place, value in enumerate(one.losses):
        candidates = losses.of_whole(after, others, place)
        if value is None or not candidates:
            continue
        moved = tolerance.moved.loss(at)
        if not any(_close(value, it, tolerance.losses) or abs(value - it) <= moved for it in candidates):
            if not gradients and losses.is_of_several(after, others, place):
                continue
            keeps = _keeps_attributes(after, at)
            found_cause = _cause_of_loss(one, others, place, value, buffers is not None, keeps)
            cause = "replica" if replica else "streams" if _has_shared_noise(after) else found_cause
            detail = f"loss {candidates[0]:.9g}, original {value:.9g}"
            yield Difference(at, "loss", detail, cause)
            break
    if gradients:
        rank, place, far = gradients[0]
        cause = "replica" if replica else _cause_of_gradient(after, optimizer.names, one, others, tolerance)
        detail = f"rank {rank}: {far:.2g} of all gradients' norm apart"
        yield Difference(at, "gradient", detail, cause, optimizer.names[place])
    yield from _settings(optimizer, one, others)
    for rank, other in enumerate(others):
        moved = functools.partial(tolerance.moved.parameter, at)
        far = _farthest(one.digests, other.digests, optimizer.sizes, allowed, moved)
        if far is not None:
            place, apart = far
            name = optimizer.names[place]
            cause = "replica" if replica else "optimizer"
            detail = f"rank {rank}: {apart:.2g} apart after the step"
            yield Difference(at, "parameter", detail, cause, name)
            break
    if buffers is not None:
        yield buffers


def settings(before: Notes, after: Sequence[Notes]) -> Iterator[Difference]:
    """What the steps are made with, whatever the samples: which optimizer, how many losses, its options."""
    for number in range(min([len(before.steps), *(len(notes.steps) for notes in after)])):
        one, others = before.steps[number], [notes.steps[number] for notes in after]
        found = [_other_optimizer(before, after, one, others) or _other_count(one, others)]
        found = [it for it in found if it] or list(
            _settings(before.optimizers[one.optimizer], one, others),
        )
        if found:
            yield from found
            return


def _other_optimizer(
    before: Notes, after: Sequence[Notes], one: Step, others: Sequence[Step]
) -> Difference | None:
    """A step that another one of the optimizers makes."""
    for notes, other in zip(after, others, strict=True):
        if other.optimizer != one.optimizer:
            theirs, mine = (
                f"{number + 1} ({optimizers[number].kind})"
                for number, optimizers in (
                    (other.optimizer, notes.optimizers),
                    (one.optimizer, before.optimizers),
                )
            )
            detail = f"optimizer {theirs} steps on rank {notes.rank}, in the original {mine}"
            return Difference(one.number, "number of steps", detail, "steps")
    return None


def _other_count(one: Step, others: Sequence[Step]) -> Difference | None:
    """Another number of losses that led to a step."""
    sizes = [len(other.losses) for other in others]
    if all(size == len(one.losses) for size in sizes):
        return None
    detail = f"{sizes} backward passes on the ranks, {len(one.losses)} in the original"
    return Difference(one.number, "number of losses", detail, "decision")


def _settings(optimizer: Optimizer, one: Step, others: Sequence[Step]) -> Iterator[Difference]:
    """Learning rates and the other options of a step, and what it does not train."""
    at = one.number
    groups = next((len(it.options) for it in others if len(it.options) != len(one.options)), None)
    if groups is not None:
        detail = f"{groups} parameter groups, original {len(one.options)}"
        yield Difference(at, "options", detail, "options")
    elif any(not _alike(one.rates, other.rates) for other in others):
        rates = next(other.rates for other in others if not _alike(one.rates, other.rates))
        yield Difference(at, "learning rate", f"{rates}, original {one.rates}", "learning rate")
    for other in others:
        found = [
            f"{name} is {theirs[name]}, original {mine[name]}"
            for mine, theirs in zip(one.options, other.options, strict=False)
            for name in sorted(mine.keys() & theirs.keys() - {"lr"})
            if not _same_option(mine[name], theirs[name])
        ]
        if found and groups is None:
            yield Difference(at, "options", found[0], "options")
            break
    for rank, other in enumerate(others):
        apart = sorted(set(one.frozen) ^ set(other.frozen))
        if apart:
            place = apart[0]
            now, then = ("is frozen", "is trained") if place in other.frozen else ("is trained", "is frozen")
            detail = f"rank {rank}: it {now}, and {then} in the original"
            yield Difference(at, "parameter", detail, "frozen", optimizer.names[place])
            break


def _same_option(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same_option, one, other))
    if isinstance(one, float) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=1e-6)
    return one == other


def _samples(notes: Notes, step: Step) -> int:
    """How many samples of its own a rank's step was about."""
    drawn = [
        notes.passes[number].drawn[place] for number, place in step.batches if notes.passes[number].trains
    ]
    return sum(len(part) for part in drawn if part is not None)


def _gradients(
    optimizer: Any, one: Step, others: list[Step], tolerance: Tolerance
) -> Iterator[tuple[int, int, float]]:
    """Rank, place and distance of the gradients that differ: first those of the first rank."""
    scale = norm(one.gradients)
    for rank, other in enumerate(others):
        if len(one.gradients) != len(other.gradients):
            continue
        scale = max(scale, 1e-30)
        for place, (mine, theirs) in enumerate(zip(one.gradients, other.gradients, strict=True)):
            far = distance(mine, theirs)
            if not far <= max(tolerance.gradients * scale, tolerance.moved.gradient(one.number, place)):
                yield rank, place, far / scale
                break


def _buffers(one: Step, other: Step, tolerance: Tolerance) -> Difference | None:
    for name, mine in one.buffers.items():
        theirs = other.buffers.get(name)
        if theirs is not None and mine is not None:
            scale = max(1.0, abs(mine[0]))
            allowed = max(max(tolerance.losses, 1e-9) * scale, tolerance.moved.buffer(one.number, name))
            if not distance(mine, theirs) <= allowed:
                detail = f"rank 0: {distance(mine, theirs):.2g} apart"
                return Difference(one.number, "buffer", detail, "buffers", name)
    return None


def _keeps_attributes(after: Sequence[Notes], at: int) -> bool:
    """Whether a step's forward has found what an earlier one stored in the model."""
    return any(step < at - 1 for notes in after for step, _ in notes.kept)


def _cause_of_loss(
    one: Step, others: list[Step], place: int, value: float, buffers: bool, keeps: bool
) -> str:
    world = len(others)
    mean = sum(other.losses[place] for other in others) / world
    looks = one.looks[place] if place < len(one.looks) else {}
    if looks.get("weights") or looks.get("ignored"):
        return "weights"
    if world > 1 and mean and abs(value / mean - world) < 1e-3 * world:
        return "reduction"
    if world > 1 and mean and abs(value / mean - 1 / world) < 1e-3 / world:
        return "gradient factor"
    if keeps:
        return "attributes"
    if buffers:
        return "buffers"
    if one.number > 1 and not _ROWS_MEET & set(looks.get("kinds", ())):
        return "random"
    return "whole-batch loss"


def _cause_of_gradient(
    after: Sequence[Notes], names: list[str], one: Step, others: list[Step], tolerance: Tolerance
) -> str:
    scale = max(norm(one.gradients), 1e-30)
    apart = _apart(names, one, others, tolerance)
    if apart:
        bare = set(after[0].optimizers[one.optimizer].bare)
        if apart <= bare < set(names):
            return "unwrapped head"
        return "bypassed forward" if any(notes.bypasses for notes in after) else "unsynchronised"
    sizes = {_samples(notes, other) for notes, other in zip(after, others, strict=True)}
    if any(look.get("weights") or look.get("ignored") for look in one.looks):
        return "weights"
    if len(sizes) > 1:
        return "uneven parts"
    ratio = norm(others[0].gradients) / scale
    world = len(others)
    if any(abs(ratio / factor - 1) < 1e-3 for factor in (world, 1 / world)) and world > 1:
        return "gradient factor"
    return "attributes" if _keeps_attributes(after, one.number) else "gradient"


def _apart(names: list[str], one: Step, others: list[Step], tolerance: Tolerance) -> set[str]:
    """The parameters whose gradients are not the same on all ranks."""
    scale = max(norm(one.gradients), 1e-30)
    return {
        names[place]
        for other in others[1:]
        for place, (mine, theirs) in enumerate(zip(others[0].gradients, other.gradients, strict=False))
        if not distance(mine, theirs) / scale <= tolerance.gradients
    }


def _differ(digests: Sequence[list[Digest]], sizes: list[int], allowed: float) -> bool:
    """Whether the ranks have other parameters than the first one."""
    return any(_farthest(digests[0], it, sizes, allowed) is not None for it in digests[1:])


def counts(before: Notes, after: Sequence[Notes]) -> Iterator[Difference]:
    """How many steps were made."""
    made = [len(notes.steps) for notes in after]
    if any(count != len(before.steps) for count in made):
        detail = f"the ranks made {made} steps, the original {len(before.steps)}"
        yield Difference(min([len(before.steps), *made]) + 1, "number of steps", detail, "decision")


def largest_distance(before: Notes, after: Sequence[Notes]) -> tuple[float, str] | None:
    """The largest difference of a parameter at the end, over all ranks, and its name."""
    worst = None
    for notes in after:
        for optimizer, mine, theirs in zip(before.optimizers, before.last, notes.last, strict=False):
            for name, one, other in zip(optimizer.names, mine, theirs, strict=False):
                if one.shape != other.shape or not one.numel():
                    continue
                apart = (one.double() - other.double()).abs().max().item()
                if worst is None or not apart <= worst[0]:
                    worst = (apart, name)
    return worst


# What was written


def checkpoints(before: Notes, after: Sequence[Notes]) -> Iterator[Difference]:
    """The keys of what was saved under one name, and when."""
    seen = set()
    for one, other in contents.saves(before, after):
        path = (one or other).path
        if path in seen:
            continue
        if one is None or other is None or one.step != other.step:
            seen.add(path)
            yield _other_time(path, one, other)
        elif found := _other_keys(one, other):
            seen.add(path)
            yield found


def checkpoint_keys(before: Notes, after: Sequence[Notes]) -> Iterator[Difference]:
    """The keys of what was saved under one name, whenever that was."""
    found = (_other_keys(one, other) for one, other in contents.saves(before, after) if one and other)
    yield from [it for it in found if it][:1]


def _other_time(path: str, one: Save | None, other: Save | None) -> Difference:
    mine, theirs = (f"after step {save.step}" if save else "no more" for save in (one, other))
    step = max(save.step for save in (one, other) if save)
    return Difference(step, "checkpoint", f"{path} is saved {theirs}, by the original {mine}", "decision")


def _other_keys(one: Save, other: Save) -> Difference | None:
    if any("module." in key for key in other.keys) and not any("module." in key for key in one.keys):
        detail = f"{one.path}: the keys begin with module., the original's do not"
    elif only := sorted({*map(bare_key, one.keys)} ^ {*map(bare_key, other.keys)}):
        detail = f"{one.path}: keys on one side only: {', '.join(only[:4])}"
    elif other.wrapped:
        detail = (
            f"{one.path}: {other.wrapped[0]} is pickled with a wrapper that loads in a process group only"
        )
    else:
        return None
    return Difference(one.step, "checkpoint", detail, "checkpoint keys")


def files(before: Notes, after: Sequence[Notes]) -> Iterator[Difference]:
    """Which files were written, and by whom."""
    if twice := list(written_twice(after)):
        yield from twice
        return
    writers, when = _writers(after)
    mine = {path: step for step, path in reversed(before.files)}
    pairs = contents.paired(mine, writers)
    for path, other in pairs:
        if path is not None and other is None:
            yield Difference(mine[path], "files", f"{path} is not written", "files")
            return
    for path, other in pairs:
        if path is None and other is not None:
            detail = f"{other} is written, the original does not write it"
            yield Difference(when[other], "files", detail, "files")
            return


def written_twice(after: Sequence[Notes]) -> Iterator[Difference]:
    """The first file that several ranks write."""
    writers, when = _writers(after)
    for path, ranks in writers.items():
        if len(ranks) > 1:
            detail = f"{path} is written by ranks {', '.join(map(str, sorted(ranks)))}"
            yield Difference(when[path], "files", detail, "files")
            return


def _writers(after: Sequence[Notes]) -> tuple[dict[str, set[int]], dict[str, int]]:
    """The ranks that write each file, and after which step the first one does."""
    writers: dict[str, set[int]] = {}
    when: dict[str, int] = {}
    for notes in after:
        for step, path in notes.files:
            writers.setdefault(path, set()).add(notes.rank)
            when.setdefault(path, step)
    return writers, when


def values(written: Sequence[contents.Found], tolerance: Tolerance) -> Iterator[Difference]:
    """What was printed, and what stands in files and checkpoints; of training, where all of it is the whole batch's."""
    for one in written:
        if not one.trains:
            cause = "evaluation" if one.what == "evaluation" else "contents"
            yield Difference(one.step, one.what, one.detail, cause, one.path)
        elif not tolerance.parts:
            what = "output of training" if one.what == "evaluation" else one.what
            yield Difference(one.step, what, one.detail, "parts", one.path)


# Distances


def _close(one: float, other: float, tolerance: float) -> bool:
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return one == other or abs(one - other) <= tolerance * max(1.0, abs(one))


def _alike(one: list[float], other: list[float]) -> bool:
    return len(one) == len(other) and all(
        math.isclose(a, b, rel_tol=1e-6) for a, b in zip(one, other, strict=True)
    )


def _farthest(
    one: list[Digest],
    other: list[Digest],
    sizes: list[int],
    tolerance: float,
    moved: Callable[[int], float] = lambda place: 0.0,
) -> tuple[int, float] | None:
    """The first tensor that is farther away than ``tolerance`` for each element, and how far it is.

    ``moved`` tells how far a tensor in a place may be in all.
    """
    for place, (mine, theirs, size) in enumerate(zip(one, other, sizes, strict=False)):
        elements = 4 * math.sqrt(max(size, 1))
        scale = max(1.0, (mine or [0.0])[0] / math.sqrt(max(size, 1)))
        far = distance(mine, theirs) / elements
        if not far <= max(tolerance * scale, moved(place) / elements):
            return place, far
    return None
