"""Every rank would save the same checkpoint to the same file.

``ddp.save`` is torch.save on the main process, by a temporary file that is renamed, and does nothing on other ranks.
"""

from collections.abc import Iterator

from dp2ddp.facts import Facts
from dp2ddp.plan import Finding, Replace, finding, runtime_import

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
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs.cuda()), targets.cuda())
        loss.backward()
        optimizer.step()
    torch.save(model.state_dict(), "model.pt")
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    for effect in facts.effects:
        if effect.kind == "save":
            edits = (
                Replace(effect.at, "{ddp}.save", {"ddp": effect.ddp}),
                runtime_import(effect.path, effect.ddp),
            )
            yield finding(effect.at, "every rank would write this file", "now rank 0 only: `ddp.save`", edits)
