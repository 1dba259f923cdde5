"""The training loop reports a number that covers only the local batch.

Losses and counts of the training loop cover the rank's local batch, so they are combined where they become numbers:
``ddp.batch_loss(loss).item()`` is the loss of the global batch, ``ddp.sum(correct)`` a sum over all of its samples,
once after the loop if the loop only adds up. Means of combined numbers need nothing more. Any other function of outputs
and labels gets those of all ranks, ``accuracy(ddp.whole_batch(output), …)``. Every rank takes part, even if only the
main process reports. A batch size is a sum, too: 128 samples on three ranks are 43, 43 and 42.

A number that can't be analysed may be that of one rank's local batch. It keeps the batches whole; with ``--sharded`` it
stays rank 0's, and a warning names it. Evaluation numbers cover the whole data set (DDP204). With ``ddp.DataParallel``
nothing changes, as every rank has the whole batch.
"""

from collections.abc import Iterator
from dataclasses import replace

from dp2ddp.facts import SUPPOSED, Facts, Loader, Number, Problem, Tier
from dp2ddp.plan import (
    Anchor,
    Edit,
    Finding,
    Insert,
    Replace,
    SetArgument,
    Severity,
    combined,
    finding,
    runtime_import,
    whole_batch,
)
from dp2ddp.tiers import plain, trouble

TIES = False
IGNORABLE = True

EXAMPLES = (
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.DataParallel(nn.Linear(8, 2).cuda())
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16)
for epoch in range(2):
    correct, total, running = 0, 0, 0.0
    for inputs, targets in loader:
        optimizer.zero_grad()
        outputs = model(inputs.cuda())
        loss = criterion(outputs, targets.cuda())
        loss.backward()
        optimizer.step()
        running += loss.item()
        correct += (outputs.argmax(1).cpu() == targets).sum().item()
        total += len(targets)
    print(running / len(loader), correct / total)
""",
)

COMBINED = {
    "mean": "{ddp}.batch_loss({number})",
    "sum": "{ddp}.sum({number})",
    "batch": "{ddp}.batch_sum({number})",
    "added": "{ddp}.local_sum({number})",
}


def check(facts: Facts) -> Iterator[Finding]:
    for number in facts.numbers:
        if Tier.SHARDED not in facts.tiers(number):
            yield from trouble(facts, number)
            continue
        if number.kind == "left":
            severity = Severity.NOTE if number.problem.works else Severity.WARNING
            yield plain(number, _so(number.problem), severity)
        elif number.kind != "added" or not (_is_even(number, facts) or _is_full(number, facts)):
            edits = (*_edits(number, _formed(number, facts)), runtime_import(number.path, number.ddp))
            message = f"`{number.what}` would cover the rank's local batch only"
            yield finding(number.at, message, "now combined over the ranks", edits)


def _so(problem: Problem) -> Problem:
    """What a program that is sharded now may show for the whole batch's."""
    return replace(problem, message=problem.message.removeprefix(SUPPOSED).replace(" could ", " may "))


def _formed(number: Number, facts: Facts) -> str:
    """How a number is combined.

    A rank that has no sample of a batch adds nothing to sums: where all batches have one size, it had none of any.
    """
    form = number.kind
    if not _is_even(number, facts):
        if form == "sum" and number.in_loop:
            form = "batch"
        elif form == "totals" and _is_full(number, facts):
            return combined(number.names, "batch_sum")
    if form == "rows":
        return whole_batch("{number}", number.entries)
    return combined(number.names) if form == "totals" else COMBINED.get(form, "")


def _is_even(number: Number, facts: Facts) -> bool:
    """Whether all ranks have samples of every batch, as a DistributedSampler deals them."""
    loaders = _loaders(number, facts)
    return bool(loaders) and all(loader.weighed and not loader.shard for loader in loaders)


def _is_full(number: Number, facts: Facts) -> bool:
    """Whether all batches have one size: a rank that has no sample of one then has none of any."""
    loaders = _loaders(number, facts)
    return bool(loaders) and all(loader.full for loader in loaders)


def _loaders(number: Number, facts: Facts) -> list[Loader]:
    return [loader for loader in facts.loaders if loader.scripts & number.scripts]


def _edits(number: Number, form: str) -> Iterator[Edit]:
    holes: dict[str, Anchor | str] = {"ddp": number.ddp, "number": number.at}
    if number.kind == "totals":
        yield Insert(number.at, form, {"ddp": number.ddp}, after=True)
    elif number.name:
        yield Replace(number.at, number.name)
        if number.before is not None:
            holes["number"] = number.what
            yield Insert(number.before, f"{number.name} = {form}", holes)
    elif number.call is not None and (number.keyword or number.position is not None):
        yield SetArgument(number.call, number.keyword, form, holes, number.position)
    else:
        yield Replace(number.at, form, holes)
