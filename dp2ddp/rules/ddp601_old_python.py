"""A file is written for a Python before 3.7, and can't be parsed any more.

``async`` is a keyword since then: as the name of an argument it becomes ``non_blocking``, as which PyTorch knows it, a
parameter or variable of that name too, and an attribute is asked for by ``getattr``. Tabs mixed with spaces become what
the lines of their block are indented by, as Python 2 read them. Only files of programs that are converted are mended.

What else Python 2 wrote otherwise is not mended: the message says which command does.
"""

from collections.abc import Iterator

from dp2ddp.facts import Facts
from dp2ddp.plan import Finding, Severity, finding, in_lines, respelled

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
            message = f"{fact.what}: {fact.instead}{in_lines(fact.lines)}"
            edits = respelled(fact.path, fact.mends)
            yield finding(fact.at, message, "", edits, Severity.WARNING)
