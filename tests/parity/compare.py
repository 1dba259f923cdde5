"""Say in sentences what differs between two recorded runs: an empty list means that they agree.

Nothing here asserts, so that the same functions can show that a mistake planted on purpose is seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain, pairwise, zip_longest
from typing import Any

import torch

Notes = dict[str, Any]
"""What `record` wrote for one rank."""


def global_batches(ranks: Sequence[Notes]) -> list[list[list[int]]]:
    """The batches of each epoch as the whole job saw them: the ranks' parts put together, step by step."""
    return [
        [list(chain.from_iterable(parts)) for parts in zip(*epoch, strict=False)]
        for epoch in zip(*(notes["epochs"] for notes in ranks), strict=False)
    ]


def global_losses(ranks: Sequence[Notes]) -> list[float]:
    """The loss of each step as DataParallel computes it: the mean over ranks, weighted by their batches."""
    sizes = [[len(batch) for epoch in notes["epochs"] for batch in epoch] for notes in ranks]
    return [
        sum(loss * size for loss, size in zip(losses, parts, strict=True)) / sum(parts)
        for losses, parts in zip(
            zip(*(notes["losses"] for notes in ranks), strict=False), zip(*sizes, strict=False), strict=False
        )
    ]


def training(
    before: Notes, after: Sequence[Notes], *, losses: float, parameters: float, first: int | None = None
) -> list[str]:
    """Where the ranks of `after` trained otherwise than `before`, within tolerances, over the `first` steps."""
    differences = []
    planned = [len(epoch) for epoch in global_batches(after)]
    wanted = [len(epoch) for epoch in before["own_sizes"]]
    if planned != wanted:
        differences.append(f"the epochs have {planned} batches, before's loader deals {wanted}")
    for notes in after:
        if notes["steps"] != before["steps"]:
            differences.append(
                f"rank {notes['rank']} made {notes['steps']} steps, before made {before['steps']}"
            )
    for step, (expected, found) in enumerate(
        zip(before["losses"][:first], global_losses(after), strict=False)
    ):
        if not abs(found - expected) <= losses:
            differences.append(f"step {step}: loss {found!r}, before {expected!r}")
            break
    for notes in after:
        pairs = zip(before["parameters"][:first], notes["parameters"], strict=False)
        for step, (expected, found) in enumerate(pairs):
            if expected.shape != found.shape:
                differences.append(
                    f"rank {notes['rank']} has {found.numel()} parameters, not {expected.numel()}"
                )
                break
            worst = (expected - found).abs().max().item()
            if not worst <= parameters:
                differences.append(f"rank {notes['rank']}, step {step}: parameters differ by {worst:.2g}")
                break
    if not before["losses"] or not all(notes["losses"] for notes in after):
        differences.append("nothing was trained")
    return differences


def order(ranks: Sequence[Notes], *, samples: int, batch: int, drop_last: bool = False) -> list[str]:
    """Where the ranks' data is not what a DataParallel loader would have dealt: whole, disjoint, reshuffled."""
    differences = []
    world = len(ranks)
    steps = samples // batch if drop_last else -(-samples // batch)
    epochs = global_batches(ranks)
    if not epochs:
        differences.append("no epoch was drawn")
    for notes in ranks:
        for number, epoch in enumerate(notes["epochs"]):
            if len(epoch) != steps:
                differences.append(
                    f"epoch {number}: rank {notes['rank']} drew {len(epoch)} batches, not {steps}"
                )
    for number, epoch in enumerate(epochs):
        for step, drawn in enumerate(epoch):
            last = step == len(epoch) - 1
            if len(drawn) != batch and not (last and not drop_last):
                differences.append(f"epoch {number}, step {step}: global batch of {len(drawn)}, not {batch}")
                break
        counts = Counter(sample for drawn in epoch for sample in drawn)
        repeated = sum(counts.values()) - len(counts)
        padding = 0 if drop_last else -samples % world
        if repeated > padding:
            differences.append(f"epoch {number}: {repeated} samples drawn again, at most {padding} allowed")
        missing = samples - len(counts)
        dropped = samples % batch if drop_last else 0
        if missing > dropped:
            differences.append(f"epoch {number}: {missing} samples never drawn, at most {dropped} allowed")
    for number, (one, next_one) in enumerate(pairwise(epochs)):
        if one == next_one:
            differences.append(f"epochs {number} and {number + 1} have the same order")
    if len({len(notes["epochs"]) for notes in ranks}) > 1:
        differences.append("the ranks drew different numbers of epochs")
    return differences


def evaluation(ranks: Sequence[Notes], *, samples: int) -> list[str]:
    """Where an evaluation left samples out, or counted some twice, over all ranks or on each of them."""
    differences = []
    evaluations = (notes["evaluations"] for notes in ranks)  # of a rank that had no batch there is none
    for number, parts in enumerate(zip_longest(*evaluations, fillvalue=())):
        drawn = [Counter(sample for batch in part for sample in batch) for part in parts]
        whole = Counter(range(samples))
        if not (all(part == whole for part in drawn) or sum(drawn, Counter()) == whole):
            differences.append(
                f"evaluation {number}: the ranks saw neither the whole set each nor a part each"
            )
    return differences


def checkpoints(before: Any, after: Any, *, tolerance: float, where: str = "") -> list[str]:
    """Where two checkpoints differ: keys (`module.` aside), types, and numbers beyond `tolerance`."""
    if isinstance(before, dict) and isinstance(after, dict):
        before, after = without_prefix(before), without_prefix(after)
        if set(before) != set(after):
            return [
                f"{where or 'checkpoint'}: keys {sorted(map(str, set(before) ^ set(after)))} are on one side"
            ]
        return [
            difference
            for key in before
            for difference in checkpoints(
                before[key], after[key], tolerance=tolerance, where=f"{where}[{key!r}]"
            )
        ]
    if isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor):
        if before.shape != after.shape:
            return [f"{where}: shapes {tuple(before.shape)} and {tuple(after.shape)}"]
        worst = (before.double() - after.double()).abs().max().item() if before.numel() else 0.0
        return [] if worst <= tolerance else [f"{where}: differs by {worst:.2g}"]
    if isinstance(before, (list, tuple)) and isinstance(after, (list, tuple)) and len(before) == len(after):
        return [
            difference
            for place, (one, other) in enumerate(zip(before, after, strict=True))
            for difference in checkpoints(one, other, tolerance=tolerance, where=f"{where}[{place}]")
        ]
    if isinstance(before, float) and isinstance(after, float):
        return [] if abs(before - after) <= tolerance else [f"{where}: {before!r} and {after!r}"]
    return [] if before == after else [f"{where}: {before!r} and {after!r}"]


def without_prefix(state: dict) -> dict:
    """`state` with `module.` cut from its keys."""
    return {
        key.removeprefix("module.") if isinstance(key, str) else key: value for key, value in state.items()
    }
