"""A model is wrapped in nn.DataParallel.

It becomes ``ddp.DistributedDataParallel``: torch's own class, with the arguments that the model needs. Where sharding
the batches is not provably safe, it becomes ``ddp.DataParallel``: every rank gets the whole batch, computes its shard,
and gathers the outputs of all ranks, as nn.DataParallel does. The model is moved to its device first. A condition that
only checks for several GPUs is removed: a single process works the same way. Another one stays: where it is false, one
process trains alone. ``device_ids`` chooses the devices of the ranks (DDP101).

A class of the project that derives from nn.DataParallel derives from one of these two instead; its calls stay. If it
overrides ``scatter``, ``gather`` or another method, it derives from ``ddp.DataParallel``: on every rank ``scatter``
gets the whole batch, each rank computes its shard, and ``gather`` gets the outputs of all ranks. If it only calls back
layers (synchronised BatchNorm), these exchange their sums between the ranks in both. The functions of
``torch.nn.parallel`` have counterparts in ``ddp.parallel``. A class from elsewhere that derives from nn.DataParallel,
PyTorch Geometric's for one, is adapted: ``ddp.adapted(DataParallel)(model)``.
"""

from collections.abc import Iterator

from dp2ddp.facts import CURRENT, Condition, Facts, Parallel, Tier, Wrap
from dp2ddp.plan import (
    Anchor,
    DropImport,
    Edit,
    Finding,
    Insert,
    Remove,
    Replace,
    Unwrap,
    finding,
    runtime_import,
)
from dp2ddp.tiers import trouble

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
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.DataParallel(nn.Linear(8, 4).cuda(), device_ids=[0, 1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16, shuffle=True)
for epoch in range(2):
    for inputs, targets in loader:
        features = model(inputs.cuda())
        distances = torch.cdist(features, features)
        same = (targets[:, None] == targets).cuda()
        loss = distances[same].mean() - distances[~same].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
""",
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Unbalanced(nn.DataParallel):
    def scatter(self, inputs, kwargs, device_ids):
        rest = (len(inputs[0]) - 2) // (len(device_ids) - 1)
        sizes = [len(inputs[0]) - rest * (len(device_ids) - 1)] + [rest] * (len(device_ids) - 1)
        parts = zip(inputs[0].split(sizes), device_ids)
        return [(part.cuda(device),) for part, device in parts], [kwargs] * len(sizes)


model = Unbalanced(nn.Linear(8, 2)).cuda()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16, shuffle=True)
for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        criterion(model(inputs), targets.cuda()).backward()
        optimizer.step()
""",
)

SAID = {
    "base": "this class derives from nn.DataParallel",
    "class": "this wrapper class derives from nn.DataParallel",
}


def check(facts: Facts) -> Iterator[Finding]:
    for wrap in facts.wraps:
        yield from trouble(facts, wrap)
        tiers = facts.tiers(wrap)
        if wrap.problem is None or not wrap.problem.forbids & tiers:
            edits = tuple(_edits(wrap, Tier.WHOLE_BATCH in tiers))
            if edits:
                name = "DataParallel" if Tier.WHOLE_BATCH in tiers else "DistributedDataParallel"
                done = "" if wrap.stays else f"now in `{wrap.ddp}.{name}`"
                yield finding(wrap.at, "this model is wrapped in DataParallel", done, edits)
    for name in facts.parallel:
        yield from trouble(facts, name)
        said = SAID.get(name.kind, "this function is a part of nn.DataParallel")
        yield finding(
            name.at,
            said,
            "replaced by that of dp2ddp",
            tuple(_renamed(name, Tier.WHOLE_BATCH in facts.tiers(name))),
        )


def _renamed(name: Parallel, whole_batch: bool) -> Iterator[Edit]:
    yield runtime_import(name.path, name.ddp)
    if name.imported and name.kind != "class":
        yield DropImport(name.path, name.imported)
    template = f"{{ddp}}.parallel.{name.kind}"
    if name.kind == "base":
        template = "{ddp}.DataParallel" if whole_batch else "{ddp}.DistributedDataParallel"
    elif name.kind == "class":
        template = "{ddp}.adapted({class})"
    yield Replace(name.at, template, {"ddp": name.ddp, "class": name.at})


def _edits(wrap: Wrap, whole_batch: bool) -> Iterator[Edit]:
    if wrap.stays:
        if wrap.condition is not None and not whole_batch:
            yield Unwrap(wrap.condition.at)
        return
    yield runtime_import(wrap.path, wrap.ddp)
    if wrap.imported:
        yield DropImport(wrap.path, wrap.imported)
    holes: dict[str, Anchor | str] = {"ddp": wrap.ddp, "module": wrap.module}
    name, more = "DataParallel" if whole_batch else "DistributedDataParallel", ""
    if wrap.dim is not None:
        holes["dim"], more = wrap.dim, ", dim={dim}"
    if wrap.problem is not None:
        # It is not understood when the model is wrapped, or where it is moved: all that stays as it is.
        assert wrap.call is not None
        template = f"{{ddp}}.{name}({{module}}{more})"
        if wrap.otherwise:
            parts = {f"part{place}": part for place, (_, part) in enumerate(wrap.otherwise)}
            function, *given = (
                f"{prefix}{{part{place}}}" for place, (prefix, _) in enumerate(wrap.otherwise)
            )
            template += f" if not {{ddp}}.stands_aside() else {function}({', '.join(given)})"
            holes |= parts
        yield Replace(wrap.call, template, holes)
        return
    module = "{module}"
    if wrap.device is not None:
        holes["device"] = wrap.device
        module = _moved("{module}", wrap)
    template = f"{{ddp}}.{name}({module}{more})"
    condition = wrap.condition
    if wrap.after is not None:
        made = {**holes, "module": wrap.target}
        yield Insert(wrap.after, f"{wrap.target} = {template}", made, after=True)
        return
    if condition is None:
        yield Replace(wrap.at, template, holes)
    elif condition.option:
        yield from _after_option(wrap, condition, module, name, more, holes)
    elif condition.whole and not condition.alternative and not condition.guard:
        yield Replace(wrap.at, template, holes)
        yield from map(Unwrap, (condition.at, *condition.inner))
    else:
        assignment = f"{{target}} = {template}"
        if condition.guard:
            assignment = f"if {condition.guard}:\n    {assignment}"
        yield Insert(condition.at, assignment, {**holes, "target": condition.target}, after=True)
        yield Remove(condition.at if condition.whole else condition.statement)
    for move in wrap.moves:
        yield Remove(move)
    if wrap.idle is not None:
        move, model = wrap.idle
        yield Replace(move, "{model}", {"model": model})


def _moved(module: str, wrap: Wrap) -> str:
    """A model on its device."""
    return f"{module}.cuda()" if wrap.device == CURRENT else f"{module}.to({{device}})"


def _after_option(
    wrap: Wrap, condition: Condition, module: str, name: str, more: str, holes: dict[str, Anchor | str]
) -> Iterator[Edit]:
    """The option goes on deciding whether the model is moved, and it is wrapped either way.

    Where a distributed branch stands beside, it is wrapped unless that is chosen.
    """
    wrapped, used = "{target}", ["ddp", "dim"]
    if wrap.device is not None and condition.guard and not wrap.moved:
        wrapped, used = _moved("{target}", wrap), [*used, "device"]
        yield Remove(condition.statement)
    elif wrap.device is not None:
        yield Replace(wrap.at, module, holes)
    else:
        yield Remove(condition.statement)
    holes = {key: hole for key, hole in holes.items() if key in used}
    assignment = f"{{target}} = {{ddp}}.{name}({wrapped}{more})"
    if condition.guard:
        assignment = f"if {condition.guard}:\n    {assignment}"
    yield Insert(condition.at, assignment, {**holes, "target": condition.target}, after=True)
