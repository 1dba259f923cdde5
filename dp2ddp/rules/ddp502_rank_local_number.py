"""A number of the training loop is reported.

Losses and counts of the training loop are of this process's part of each batch, so they are combined where they become
numbers: ``ddp.batch_loss(loss).item()`` is the loss of the whole batch, ``ddp.sum(correct)`` a sum over all of its
samples, once after the loop where it only adds up. Means of what the loop has combined need nothing more. Whatever
else makes a number of outputs and labels is given those of all processes, ``accuracy(ddp.whole_batch(output), …)``.
Every process takes part, also where only the main one reports. A batch size is multiplied: all parts are of one size.

What can't be followed stays the main process's, of its part, and is named. Evaluation numbers are those of the whole
set (DDP204). With ``ddp.DataParallel`` nothing changes, every process works on whole batches.
"""

from collections.abc import Iterator

from dp2ddp.facts import Facts, Number, Tier
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
)

TIES = False

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
    "rows": "{ddp}.whole_batch({number})",
    "size": "{number} * {ddp}.get_world_size()",
}


def check(facts: Facts) -> Iterator[Finding]:
    for number in facts.numbers:
        if Tier.SHARDED not in facts.tiers(number):
            continue
        message = f"`{number.what}` is of the main process's part of the batches"
        if number.kind == "left":
            what = f"ddp.mean({number.what}), or ddp.sum of a count"
            help = f"to report the whole batch's, combine it before this line: {what}"
            yield finding(number.at, message, help, severity=Severity.WARNING)
        else:
            edits = (*_edits(number, _formed(number, facts)), runtime_import(number.path, number.ddp))
            yield finding(number.at, message.replace("the main", "each"), "", edits)


def _formed(number: Number, facts: Facts) -> str:
    """How a number is combined: a DistributedSampler deals parts of one size, so that is multiplied."""
    loaders = [loader for loader in facts.loaders if loader.scripts & number.scripts]
    even = bool(loaders) and not any(loader.shard for loader in loaders)
    form = "size" if number.size and even else number.kind
    return COMBINED.get(form, "")


def _edits(number: Number, form: str) -> Iterator[Edit]:
    holes: dict[str, Anchor | str] = {"ddp": number.ddp, "number": number.at}
    if number.kind == "totals":
        yield Insert(number.at, combined(number.names), {"ddp": number.ddp}, after=True)
    elif number.name:
        yield Replace(number.at, number.name)
        if number.before is not None:
            holes["number"] = number.what
            yield Insert(number.before, f"{number.name} = {form}", holes)
    elif number.call is not None and (number.keyword or number.position is not None):
        yield SetArgument(number.call, number.keyword, form, holes, number.position)
    else:
        yield Replace(number.at, form, holes)
