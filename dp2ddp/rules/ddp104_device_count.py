"""The number of GPUs stands for the number of model replicas.

nn.DataParallel has one replica per GPU of one machine; now there is one per rank, on all machines:
``ddp.get_world_size()``. Batch sizes and learning rates computed from it keep their meaning. Checks whether there is a
GPU at all stay as they are. In a file that other programs may import, too, it is ``ddp.get_replica_count()``: the same,
and in a program that still uses nn.DataParallel the number of GPUs, as before.
"""

from collections.abc import Iterator

from dp2ddp.facts import Facts
from dp2ddp.plan import Finding, Replace, finding, runtime_import

EXAMPLES = (
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

print("Let's use", torch.cuda.device_count(), "GPUs!")
model = nn.DataParallel(nn.Linear(8, 2).cuda())
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16 * torch.cuda.device_count())
for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        criterion(model(inputs.cuda()), targets.cuda()).backward()
        optimizer.step()
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    programs = {it.program for it in facts.scripts}
    for device in facts.devices:
        if device.kind == "count":
            query = "get_world_size" if device.path in programs else "get_replica_count"
            edits = (
                Replace(device.at, f"{{ddp}}.{query}()", {"ddp": device.ddp}),
                runtime_import(device.path, device.ddp),
            )
            yield finding(
                device.at,
                "this GPU count is used as the number of replicas",
                "now the world size",
                edits,
            )
        elif device.kind == "any" and device.operand is not None:
            edit = Replace(device.at, "{count}() > 0", {"count": device.operand})
            said = "this asks for a GPU; the number of replicas is 1 where there is none"
            yield finding(device.at, said, "", (edit,))
