"""A number of the training loop is reported.

Losses and counts of the training loop are of this process's part of each batch. They are printed or logged by
the main process as they are: close to the whole batch's, but not the same. To report the whole batch's, combine
them where every process passes: ``loss = ddp.mean(loss)``, ``correct = ddp.sum(correct)``. Evaluation is not
affected: every process evaluates the whole set. Nor is training on whole batches.
"""

from collections.abc import Iterator

from dp2ddp.facts import Facts, Tier
from dp2ddp.plan import Finding, Severity, finding

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
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs.cuda()), targets.cuda())
        loss.backward()
        optimizer.step()
    print(loss.item())
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    for number in facts.numbers:
        if Tier.SHARDED not in facts.tiers(number):
            continue
        yield finding(
            number.at,
            f"`{number.what}` is of the main process's part of the batches",
            f"to report the whole batch's, combine it before this line: ddp.mean({number.what}), or ddp.sum of a count",
            severity=Severity.WARNING,
        )
