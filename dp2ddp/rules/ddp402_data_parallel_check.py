"""A type check tests for nn.DataParallel.

The wrapped model is now a ``ddp.DistributedDataParallel``. A ``ddp.DataParallel`` is still an nn.DataParallel. Where
programs check, too, that are not converted, nn.DataParallel still counts.
"""

from collections.abc import Iterator

from dp2ddp.facts import Facts, StateDict, Tier
from dp2ddp.plan import DropImport, Edit, Finding, Replace, finding, runtime_import

IGNORABLE = True

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
        if state.kind in ("class", "type"):
            tiers = facts.tiers(state) or frozenset([Tier.SHARDED])
            template = _class(state, tiers)
            if template is None:
                continue
            holes = {"ddp": state.ddp, "given": state.operand}
            if state.left is not None:
                holes["left"] = state.left
            edits: tuple[Edit, ...] = (
                Replace(state.at, template, holes),
                runtime_import(state.path, state.ddp),
            )
            if state.imported:
                edits = (*edits, DropImport(state.path, state.imported))
            yield finding(
                state.at,
                "this checks whether a model is wrapped in DataParallel",
                "now for the new wrapper, too",
                edits,
            )


def _class(state: StateDict, tiers: frozenset[Tier]) -> str | None:
    """What the programs that ask wrap their models in; None where the question still has the same answer.

    With nn.DataParallel where others ask that still wrap theirs in it, or keep whole batches.
    """
    very = state.kind == "type"
    if Tier.SHARDED not in tiers and not very:
        return None
    new = "{ddp}.DistributedDataParallel" if Tier.SHARDED in tiers else "{ddp}.DataParallel"
    if state.among:
        return f"{{left}} {state.among} ({{given}}, {new})"
    if very:
        return f"(*{{given}}, {new})" if state.shared else new
    return f"({{given}}, {new})" if state.shared or Tier.WHOLE_BATCH in tiers else new
