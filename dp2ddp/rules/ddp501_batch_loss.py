"""The loss is not provably a mean over the samples of the batch.

A sum, or a mean with class weights or ``ignore_index``, is scaled, ``ddp.batch_loss(criterion(outputs, labels), …)``. A
loss that compares samples gets the outputs and labels of the global batch: ``contrast(ddp.whole_batch(outputs),
ddp.whole_batch(labels))``. Where more than the loss needs them, they are joined behind the forward: ``labels, outputs =
ddp.whole_batch((labels, outputs))``. Otherwise the model becomes a ``ddp.DataParallel``, and every rank computes the
loss of the whole batch.

DistributedDataParallel averages the gradients of the ranks' local batches. That is the gradient of the global batch if
the loss is a mean over samples. It is not for sums, weighted means and losses that compare the samples of a batch with
each other.
"""

from collections.abc import Iterator

from dp2ddp.facts import Facts, Tier
from dp2ddp.plan import (
    Anchor,
    Edit,
    Finding,
    Insert,
    Replace,
    SetArgument,
    finding,
    runtime_import,
    whole_batch,
)
from dp2ddp.tiers import trouble

TIES = False

EXAMPLES = (
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.DataParallel(nn.Linear(8, 2).cuda())
criterion = nn.CrossEntropyLoss(reduction="sum")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16)
for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs.cuda()), targets.cuda())
        loss.backward()
        optimizer.step()
""",
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.DataParallel(nn.Linear(8, 2).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16)
for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        outputs = model(inputs.cuda())
        loss = (outputs @ outputs.t()).pow(2).mean()
        loss.backward()
        optimizer.step()
""",
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.DataParallel(nn.Linear(8, 2).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randn(64, 2))
loader = DataLoader(data, batch_size=16)
for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        outputs = model(inputs.cuda())
        targets = targets.cuda()
        errors = (outputs - targets).abs().mean(1)
        kept = errors[errors < errors.median() * 2]
        loss = kept.mean() + (outputs.std(0) - targets.std(0)).abs().mean()
        loss.backward()
        optimizer.step()
""",
)


PART = "the loss is computed of this number, which is that of the rank's part of the batch"
SUM = '{ddp}.batch_loss({loss}, reduction="sum")'
MEAN = "{ddp}.batch_loss({loss})"
WEIGHTED = "{ddp}.batch_loss({loss}, {ddp}.loss_weight({criterion}, {target}))"


def check(facts: Facts) -> Iterator[Finding]:
    for loss in facts.losses:
        yield from trouble(facts, loss)
    for loss in facts.scaled:
        if Tier.SHARDED in facts.tiers(loss):
            holes: dict[str, Anchor | str] = {"ddp": loss.ddp, "loss": loss.at}
            holes |= {"criterion": loss.criterion, "target": loss.target}
            template = WEIGHTED if loss.criterion else MEAN if loss.is_mean else SUM
            edits: tuple[Edit, ...] = runtime_import(loss.path, loss.ddp), Replace(loss.at, template, holes)
            yield finding(
                loss.at,
                (
                    PART
                    if loss.is_part
                    else "the average of this loss over ranks is not the loss of the global batch"
                ),
                "now the global batch's" if loss.is_part else "now weighted",
                edits,
            )
    for gather in facts.gathers:
        if Tier.SHARDED in facts.tiers(gather):
            holes = {"ddp": gather.ddp, "rows": gather.at}
            template = whole_batch("{rows}", gather.entries)
            rows: Edit = Replace(gather.at, template, holes)
            if gather.keyword or gather.position is not None:
                rows = SetArgument(gather.call, gather.keyword, template, holes, gather.position)
            edits = runtime_import(gather.path, gather.ddp), rows
            yield finding(gather.at, gather.why, "now computed on the samples of all ranks", edits)
    for joint in facts.joints:
        if Tier.SHARDED in facts.tiers(joint):
            names = ", ".join(joint.names)
            forwards = {name: f"{{forward_{number}}}" for number, (name, _) in enumerate(joint.hoisted)}
            joined = [forwards.get(it, it) for it in joint.names]
            given = f"({', '.join(joined)})" if len(joined) > 1 else joined[0]
            made = [f"{it} = {forward}" for it, forward in forwards.items() if it not in joint.names]
            made += [f"{names} = {whole_batch(given, joint.entries, joint.if_grad)}"]
            made += [f"{it} = {{ddp}}.batch_sum({it})" for it in joint.counts]
            holes = {"ddp": joint.ddp}
            holes |= {f"forward_{number}": at for number, (_, at) in enumerate(joint.hoisted)}
            insert = Insert(joint.at, "\n".join(made), holes, after=not joint.hoisted)
            hoists = (Replace(at, name) for name, at in joint.hoisted)
            edits = runtime_import(joint.path, joint.ddp), insert, *hoists
            what = "what follows the forward needs the whole batch"
            yield finding(joint.at, what, f"`{names}` joined from all ranks", edits)
