"""A module is trained but not wrapped: a head, a loss with parameters, the rest of a partly wrapped model.

``ddp.sync_gradients(head)`` makes it the same on all ranks and all-reduces its gradients, as DistributedDataParallel
does for the model it wraps; the module stays as it is. With nn.DataParallel it runs on one device on the whole batch.
So if it mixes samples (BatchNorm), draws random numbers (Dropout) or changes its state in its forward, or if that is
unknown, the batches stay whole: every rank computes the same.
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
            yield finding(
                module.at,
                "this module is trained but not wrapped",
                "now its gradients are averaged, too",
                edits,
            )
