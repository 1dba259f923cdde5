"""A model is wrapped in nn.DataParallel.

It becomes ``ddp.DistributedDataParallel``: torch's own class, with the arguments that the model needs. The model is
moved to its device first. A condition that only asks whether there are several GPUs goes: one process is a
case like any other. ``device_ids`` chooses the devices of the processes (DDP101).
"""

from collections.abc import Iterator

from dp2ddp.facts import Condition, Facts, Wrap
from dp2ddp.plan import (
    Anchor,
    DropImport,
    Edit,
    Finding,
    Insert,
    Remove,
    Replace,
    Severity,
    Unwrap,
    finding,
    runtime_import,
)

EXAMPLES = (
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
model = nn.Linear(8, 2)
if torch.cuda.device_count() > 1:
    model = nn.DataParallel(model)
model.to(device)
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
    for wrap in facts.wraps:
        if wrap.problem:
            yield finding(wrap.at, wrap.problem.message, wrap.problem.help, severity=Severity.ERROR)
        else:
            yield finding(wrap.at, "this model is wrapped in DataParallel", "", tuple(_edits(wrap)))


def _edits(wrap: Wrap) -> Iterator[Edit]:
    holes: dict[str, Anchor | str] = {"ddp": wrap.ddp, "module": wrap.module}
    module = "{module}"
    if wrap.device is not None:
        holes["device"] = wrap.device
        module = "{module}.to({device})"
    template = f"{{ddp}}.DistributedDataParallel({module})"
    condition = wrap.condition
    if condition is None:
        yield Replace(wrap.at, template, holes)
    elif condition.option:
        yield from _after_option(wrap, condition, module, holes)
    elif condition.whole and not condition.alternative:
        yield Replace(wrap.at, template, holes)
        yield Unwrap(condition.at)
    else:
        assignment = f"{{target}} = {template}"
        yield Insert(condition.at, assignment, {**holes, "target": condition.target}, after=True)
        yield Remove(condition.at if condition.whole else condition.statement)
    for move in wrap.moves:
        yield Remove(move)
    yield runtime_import(wrap.path, wrap.ddp)
    if wrap.imported:
        yield DropImport(wrap.path, wrap.imported)


def _after_option(
    wrap: Wrap, condition: Condition, module: str, holes: dict[str, Anchor | str]
) -> Iterator[Edit]:
    """The option goes on deciding whether the model is moved; it is wrapped either way."""
    if wrap.device is not None:
        yield Replace(wrap.at, module, holes)
    else:
        yield Remove(condition.statement)
    assignment = "{target} = {ddp}.DistributedDataParallel({target})"
    yield Insert(condition.at, assignment, {"ddp": wrap.ddp, "target": condition.target}, after=True)
