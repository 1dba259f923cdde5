"""A file is written for a Python before 3.7, and can't be parsed any more.

``async`` is a keyword since then. As the name of an argument, a parameter or a variable it becomes ``non_blocking``, as
PyTorch calls it; an attribute is read by ``getattr``. Tabs mixed with spaces become the spaces that Python 2 read. Only
files that a converted script needs are changed.

Other syntax of Python 2 is left: the message names the command that rewrites it.
"""

from collections.abc import Iterator

from dp2ddp.facts import Facts
from dp2ddp.plan import Finding, finding, in_lines, respelled

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
loader = DataLoader(data, batch_size=16, pin_memory=True)
for epoch in range(2):
    for inputs, targets in loader:
        loss = criterion(model(inputs.cuda(async=True)), targets.cuda(async=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    for fact in facts.outdated:
        if fact.syntax:
            message = fact.what + in_lines(fact.lines)
            edits = respelled(fact.path, fact.mends)
            yield finding(fact.at, message, fact.instead, edits)
