"""A training DataLoader would give every rank the whole data set.

A DistributedSampler gives each rank its shard: ``shuffle`` and ``drop_last`` move to it, its seed is the script's own
(``ddp.shared_seed()``; torch's default is always 0). The global batch size stays the same: each rank loads
``ddp.local_batch_size(n)`` of it, so the number of steps and the learning rate stay the same. With N ranks, the sampler
may repeat up to N - 1 samples at the end of an epoch. A batch size that N does not divide is split unevenly, as
nn.DataParallel splits it.

A loader that already has a sampler keeps it: ``ddp.shard(loader)`` gives each rank its shard of every batch. The same
is done for a loader whose arguments are not visible in the call, for one that is made before the script sets its seed,
and for all loaders with ``--exact``. Where the model returns its own loss, all local batches count the same, as
replicas do (``weighed=False``). Where it is wrapped under a condition that stays, batches are sharded only if it is
(``if_wrapped=True``).

Batches that the program makes itself, of slices or by a generator, are made by every rank: ``ddp.local_batch(batch)``
is the rank's part. The ranks compare what they have made, now and then. So it is with a loader's batches that are mixed
as a whole: each rank does that, and takes its part where a model gets what comes of it.

A ``collate_fn`` that pads to the longest sample, sorts or mixes needs the whole batch: with ``ddp.shard(loader,
whole=True)`` each rank loads that, or has it from another rank of its machine, and gets its part of what comes of it.

Sequences side by side, of which ``DataParallel(model, dim=1)`` gives each replica some columns, are divided before the
loop that cuts steps from them: ``text = ddp.local_batch(columns(words), dim=1)``, and so is the state that the model
begins with.
"""

from collections.abc import Iterator

from dp2ddp.facts import Facts, Loader, OwnBatch, Tier
from dp2ddp.plan import (
    AddImport,
    Anchor,
    Edit,
    Finding,
    Insert,
    Remove,
    Replace,
    SetArgument,
    finding,
    runtime_import,
)
from dp2ddp.tiers import trouble

EXAMPLES = (
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.DataParallel(nn.Linear(8, 2).cuda())
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=4, drop_last=True)
for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        criterion(model(inputs.cuda()), targets.cuda()).backward()
        optimizer.step()
""",
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

model = nn.DataParallel(nn.Linear(8, 2).cuda())
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16, sampler=WeightedRandomSampler(torch.rand(64), 64))
for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        criterion(model(inputs.cuda()), targets.cuda()).backward()
        optimizer.step()
""",
    """\
import torch
from torch import nn

model = nn.DataParallel(nn.Linear(8, 2).cuda())
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, targets = torch.randn(64, 8), torch.randint(2, (64,))
for epoch in range(2):
    order = torch.randperm(64)
    for start in range(0, 64, 16):
        picked = order[start : start + 16]
        optimizer.zero_grad()
        criterion(model(inputs[picked].cuda()), targets[picked].cuda()).backward()
        optimizer.step()
""",
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.DataParallel(nn.Linear(8, 2).cuda())
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(2, (64,))), batch_size=16, shuffle=True)
for epoch in range(2):
    for inputs, targets in loader:
        order = torch.randperm(len(inputs))
        mixed = 0.7 * inputs + 0.3 * inputs[order]
        optimizer.zero_grad()
        outputs = model(mixed.cuda())
        loss = 0.7 * criterion(outputs, targets.cuda()) + 0.3 * criterion(outputs, targets[order].cuda())
        loss.backward()
        optimizer.step()
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    for loader in facts.loaders:
        yield from trouble(facts, loader)
        if loader.problem is None and Tier.SHARDED in facts.tiers(loader):
            edits = tuple(_own(loader) if loader.own else _shard(loader) if loader.shard else _edits(loader))
            function = "local_batch" if loader.own else "shard"
            done = (
                f"`{loader.ddp}.{function}` added, as {loader.shard}"
                if loader.shard
                else "DistributedSampler added"
            )
            what = "train on all of each batch" if loader.own else "load all batches of this loader"
            yield finding(loader.at, f"every rank would {what}", done, edits)


def _own(loader: Loader) -> Iterator[Edit]:
    yield runtime_import(loader.path, loader.ddp)
    holes: dict[str, Anchor | str] = {"ddp": loader.ddp, "made": loader.at}
    more = _weighed(loader) + (", if_wrapped=True" if loader.if_wrapped else "")
    own: OwnBatch = loader.own  # type: ignore[assignment]
    more += f", dim={own.dim}" if own.dim else ""
    if own.names:
        names = ", ".join(own.names)
        given = f"({names})" if len(own.names) > 1 else names
        made = f"{names} = {{ddp}}.local_batch({given}{more})"
        yield Insert(loader.statement, made, {"ddp": loader.ddp}, after=own.after)
        return
    if not own.is_loop:
        template = f"{{ddp}}.local_batch({{made}}{more})"
    elif more:
        template = f"({{ddp}}.local_batch(batch{more}) for batch in {{made}})"
    else:
        template = "map({ddp}.local_batch, {made})"
    yield Replace(loader.at, template, holes)


def _shard(loader: Loader) -> Iterator[Edit]:
    yield runtime_import(loader.path, loader.ddp)
    holes: dict[str, Anchor | str] = {"ddp": loader.ddp, "loader": loader.at}
    more = _weighed(loader) + (", if_wrapped=True" if loader.if_wrapped else "")
    more += ", whole=True" if loader.whole else ""
    if loader.target is None:
        yield Replace(loader.at, f"{{ddp}}.shard({{loader}}{more})", holes)
    else:
        template = f"{{target}} = {{ddp}}.shard({{target}}{more})"
        yield Insert(loader.statement, template, {"ddp": loader.ddp, "target": loader.target}, after=True)


def _weighed(loader: Loader) -> str:
    """How parts of different sizes weigh, where not by these."""
    return "" if loader.weighed else f", weighed={loader.weighed}"


def _edits(loader: Loader) -> Iterator[Edit]:
    holes: dict[str, Anchor | str] = {"ddp": loader.ddp, "dataset": loader.dataset}
    lines = []
    dataset = "{dataset}"
    if loader.hoist is not None:
        dataset = loader.hoist
        made = f"{loader.hoist} = {{dataset}}"
        lines.append(f"with {{ddp}}.main_process_first():\n    {made}" if loader.fetches else made)
        yield Replace(loader.dataset, loader.hoist)
    arguments = [dataset]
    if isinstance(loader.shuffle, Anchor):
        holes["shuffle"] = loader.shuffle
        arguments.append("shuffle={shuffle}")
    else:
        arguments.append(f"shuffle={loader.shuffle}")
    if loader.shuffle is not False:
        arguments.append("seed={ddp}.shared_seed()" + (f" + {loader.number}" if loader.number else ""))
    if loader.drop_last is not None:
        holes["drop_last"] = loader.drop_last
        arguments.append("drop_last={drop_last}")
    if loader.empty is not None:
        yield Remove(loader.empty)
    lines.append(f"{loader.sampler} = {loader.sampler_class}({', '.join(arguments)})")
    yield Insert(loader.statement, "\n".join(lines), holes)
    size: Anchor | str = loader.batch_size if loader.batch_size is not None else "1"
    template = f"{{ddp}}.local_batch_size({{n}}{_weighed(loader)})"
    yield SetArgument(loader.at, "batch_size", template, {"ddp": loader.ddp, "n": size}, position=1)
    if loader.shuffle is not False:
        yield SetArgument(loader.at, "shuffle", "False", position=2)
    yield SetArgument(loader.at, "sampler", loader.sampler, position=3)
    yield runtime_import(loader.path, loader.ddp)
    if loader.sampler_import is not None:
        yield AddImport(loader.path, loader.sampler_import)
