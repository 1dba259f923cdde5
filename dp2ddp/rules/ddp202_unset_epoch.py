"""A loop over epochs does not tell the sampler which epoch it is.

DistributedSampler shuffles by its seed and the epoch: without ``set_epoch`` every epoch has the same order. If the
epoch loop has no counter, its loader is sharded by ``ddp.shard``, which reshuffles by itself (DDP201).
"""

from collections.abc import Iterator

from dp2ddp.facts import Facts, Tier
from dp2ddp.plan import Edit, Finding, Insert, Replace, finding

EXAMPLES = (
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.DataParallel(nn.Linear(8, 2).cuda())
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16, shuffle=True)


def train():
    for inputs, targets in loader:
        optimizer.zero_grad()
        criterion(model(inputs.cuda()), targets.cuda()).backward()
        optimizer.step()


for _ in range(2):
    train()
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    for loop in facts.loops:
        if Tier.SHARDED not in facts.tiers(loop):
            continue
        edits: list[Edit] = [Insert(loop.at, f"{loop.sampler}.set_epoch({loop.variable})")]
        if loop.rename is not None:
            edits.append(Replace(loop.rename, loop.variable))
        yield finding(
            loop.at,
            "without `set_epoch` every epoch shuffles in the same order",
            "`set_epoch` added",
            tuple(edits),
        )
