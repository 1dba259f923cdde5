"""A type check asks for nn.DataParallel.

The wrapped model is a ``ddp.DistributedDataParallel`` now, or a ``ddp.DataParallel``.
"""

from collections.abc import Iterator

from dp2ddp.facts import Facts, StateDict, Tier
from dp2ddp.plan import DropImport, Edit, Finding, Replace, finding, runtime_import

EXAMPLES = (
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.DataParallel(nn.Linear(8, 2).cuda())
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
bare = model.module if isinstance(model, nn.DataParallel) else model
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16)
for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs.cuda()), targets.cuda())
        loss.backward()
        optimizer.step()
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    for state in facts.states:
        if state.kind in ("class", "type") or (
            state.kind == "beside" and Tier.WHOLE_BATCH in facts.tiers(state)
        ):
            edits: tuple[Edit, ...] = (
                Replace(state.at, _classes(facts, state), {"ddp": state.ddp}),
                runtime_import(state.path, state.ddp),
            )
            if state.imported:
                edits = (*edits, DropImport(state.path, state.imported))
            yield finding(state.at, "this asks whether a model is wrapped in DataParallel", "", edits)


def _classes(facts: Facts, state: StateDict) -> str:
    """What the programs that ask wrap their models in."""
    tiers = facts.tiers(state) or {Tier.SHARDED}
    whole, sharded = "{ddp}.DataParallel", "{ddp}.DistributedDataParallel"
    if len(tiers) > 1:
        return f"({sharded}, {whole})"
    return whole if Tier.WHOLE_BATCH in tiers else sharded
