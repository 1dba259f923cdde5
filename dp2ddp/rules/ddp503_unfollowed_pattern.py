"""Code was found that is not converted, or that could not be analysed.

Nothing is guessed: the message says what was found and what you can do. A note says why the batches of a program stay
whole (``ddp.DataParallel``), a warning what to check. An error leaves the project as it was.
"""

from collections.abc import Iterator

from dp2ddp.facts import Facts
from dp2ddp.plan import Finding
from dp2ddp.tiers import trouble

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
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs.cuda()), targets.cuda())
        loss.backward()
        optimizer.step()
    model.module(inputs.cuda())
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    for obstacle in facts.obstacles:
        yield from trouble(facts, obstacle)
