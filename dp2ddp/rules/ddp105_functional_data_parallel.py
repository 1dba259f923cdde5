"""A program calls ``data_parallel()``.

If a network calls it in its ``forward``, and that is all that its ``forward`` computes, the network is wrapped once
where it is made (DDP102), and calls its inner module directly. Elsewhere the call becomes ``ddp.data_parallel()``:
every rank has the whole batch, runs its shard and gets the outputs of all. A wrapped model that runs in training mode
without gradients, on an input that every rank has (a generator on fixed noise), becomes ``ddp.data_parallel()``, too:
each rank runs its shard, as each replica of nn.DataParallel did.
"""

from collections.abc import Iterator

from dp2ddp.facts import Facts, Functional, Tier
from dp2ddp.plan import DropImport, Edit, Finding, Insert, Remove, Replace, finding, runtime_import

EXAMPLES = (
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, ngpu):
        super().__init__()
        self.ngpu = ngpu
        self.main = nn.Linear(8, 2)

    def forward(self, inputs):
        if inputs.is_cuda and self.ngpu > 1:
            outputs = nn.parallel.data_parallel(self.main, inputs, range(self.ngpu))
        else:
            outputs = self.main(inputs)
        return outputs.view(-1, 2)


ngpu = 2
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
model = Net(ngpu).to(device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16)
for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        criterion(model(inputs.to(device)), targets.to(device)).backward()
        optimizer.step()
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    for call in facts.functional:
        if call.whole:
            if facts.tiers(call) == {Tier.SHARDED}:
                yield finding(
                    call.at,
                    "BatchNorm would use statistics of the global batch here, not of each replica's local batch",
                    "",
                    tuple(_edits(call)),
                )
            continue
        done = "the model is now wrapped once" if call.value is not None else "replaced by dp2ddp's"
        yield finding(
            call.at, "data_parallel() replicates the model at every call", done, tuple(_edits(call))
        )


def _edits(call: Functional) -> Iterator[Edit]:
    if call.whole:
        holes = {"ddp": call.ddp, "value": call.value, "inputs": call.target}
        more = ", detached=True" if call.graph else ""
        yield Replace(call.at, f"{{ddp}}.data_parallel({{value}}.module, {{inputs}}{more})", holes)
        yield runtime_import(call.path, call.ddp)
        return
    if call.value is None:
        yield Replace(call.at, "{ddp}.data_parallel", {"ddp": call.ddp})
        yield runtime_import(call.path, call.ddp)
        if call.imported:
            yield DropImport(call.path, call.imported)
        return
    holes = {"value": call.value}
    if call.at.kind == "expr" and call.target is not None:
        yield Replace(call.at, "{value}({inputs})", {**holes, "inputs": call.target})
        return
    if call.target is None:
        yield Insert(call.at, "return {value}", holes)
    else:
        yield Insert(call.at, "{target} = {value}", {**holes, "target": call.target})
    yield Remove(call.at)
