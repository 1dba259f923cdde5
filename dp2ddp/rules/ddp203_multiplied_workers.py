"""Every rank would start as many DataLoader workers as the single process did.

``ddp.local_workers(n)`` divides them among the ranks of a machine, so that the machine has as many as before. Where the
batches stay whole, the loader is shared (DDP205).
"""

from collections.abc import Iterator

from dp2ddp.facts import Facts, Tier
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
options = {"num_workers": 4, "pin_memory": True}
loader = DataLoader(data, batch_size=16, **options)
for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        criterion(model(inputs.cuda()), targets.cuda()).backward()
        optimizer.step()
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    for workers in facts.workers:
        if Tier.SHARDED not in facts.tiers(workers):
            continue
        holes = {"ddp": workers.ddp, "n": workers.at}
        edits = (
            Replace(workers.at, "{ddp}.local_workers({n})", holes),
            runtime_import(workers.path, workers.ddp),
        )
        yield finding(
            workers.at,
            "every rank would start this many DataLoader workers",
            "now divided among the ranks",
            edits,
        )
