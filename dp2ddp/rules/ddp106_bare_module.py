"""A module is trained and not wrapped: a head, a loss with parameters, the rest of a model of which a part is wrapped.

``ddp.sync_gradients(head)`` makes it the same in all processes and averages its gradients, as
DistributedDataParallel does for what it wraps; the module stays as it is. nn.DataParallel leaves it on one device, with
the whole batch. So where it looks at several samples (BatchNorm), draws random numbers (Dropout) or changes where it is
called, or where that can't be seen, the batches stay whole: every process computes it alike.
"""

from collections.abc import Iterator

from dp2ddp.facts import Facts, Tier
from dp2ddp.plan import Edit, Finding, Insert, Replace, finding, runtime_import
from dp2ddp.tiers import trouble

EXAMPLES = (
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

encoder = nn.DataParallel(nn.Sequential(nn.Linear(8, 8), nn.Tanh()).cuda())
head = nn.Linear(8, 2).cuda()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16)
for epoch in range(2):
    for inputs, targets in loader:
        loss = criterion(head(encoder(inputs.cuda())), targets.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
""",
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

encoder = nn.DataParallel(nn.Sequential(nn.Linear(8, 8), nn.Tanh()).cuda())
head = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 2)).cuda()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16)
for epoch in range(2):
    for inputs, targets in loader:
        loss = criterion(head(encoder(inputs.cuda())), targets.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    for module in facts.bare:
        yield from trouble(facts, module)
        is_fit = module.problem is None or (module.problem.assumed and module.syncs)
        if is_fit and Tier.SHARDED in facts.tiers(module):
            holes = {"ddp": module.ddp, "module": module.at}
            call = Insert(module.statement, "{ddp}.sync_gradients({module})", holes, module.after)
            calls: list[Edit] = [
                Replace(at, "{module}", {"module": called}) for at, called in module.forwards
            ]
            edits = (runtime_import(module.path, module.ddp), call, *calls)
            yield finding(module.at, "this module is trained and not wrapped", "", edits)
