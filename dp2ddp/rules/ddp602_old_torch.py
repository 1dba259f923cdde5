"""Something is used that PyTorch, torchvision or NumPy has removed: the script does not run as it is.

Where a safe edit has the same meaning today, it is made first, and the rest of the analysis sees the result:
``loss.data[0]`` becomes ``loss.item()``, ``iterator.next()`` of a loader ``next(iterator)``, ``correct[:k].view(-1)``
of a transposed tensor ``correct[:k].reshape(-1)``, ``np.float`` ``float``. What has no safe replacement is named. What
still runs stays as it is, even if PyTorch warns about it.

``dp2ddp verify`` compares with the original as it is after these edits alone.
"""

from collections.abc import Iterator

from dp2ddp.facts import Facts
from dp2ddp.plan import Finding, Severity, finding, in_lines, respelled

TIES = False

EXAMPLES = (
    """\
import torch
from torch import nn
from torch.autograd import Variable
from torch.utils.data import DataLoader, TensorDataset

model = nn.DataParallel(nn.Linear(8, 2).cuda())
criterion = nn.CrossEntropyLoss().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16)
for epoch in range(2):
    total = 0
    for inputs, targets in loader:
        loss = criterion(model(Variable(inputs.cuda())), Variable(targets.cuda()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.data[0]
    print(total / len(loader))
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    for fact in facts.outdated:
        if fact.syntax:
            continue
        message = fact.what + in_lines(fact.lines)
        if fact.mends:
            edits = respelled(fact.path, fact.mends)
            done = f"replaced by {fact.instead}" if fact.instead else "argument removed"
            yield finding(fact.at, message, done, edits)
        else:
            advice = f"use {fact.instead}" if fact.instead else "remove or replace it"
            severity = Severity.WARNING if fact.fails_at_import else Severity.NOTE
            yield finding(fact.at, f"{message}: the original script fails, too", advice, (), severity)
