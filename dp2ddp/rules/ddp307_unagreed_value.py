"""A path, a seed or control flow depends on the clock, a folder or an evaluation, and differs across ranks.

All ranks take the main process's value: ``ddp.from_main_process(value)``. Otherwise the others would not find what the
main process writes into such a folder, and ranks in different branches would wait for each other forever. A value that
is only printed, or that only the main process writes to, stays as it is. A generator that is seeded with nothing, or by
the clock, gets a seed that all ranks share: in a DataLoader worker the one that torch gave it.

Results on different GPUs can differ in the last bit. If every rank evaluates the whole data set, a result that ends a
loop, sets a learning rate or chooses the weights to keep is taken from the main process; one that only decides what is
saved is not. Results of divided evaluations (DDP204) are the same on all ranks.
"""

from collections.abc import Iterator

from dp2ddp.facts import Agreement, Facts, Tier
from dp2ddp.plan import (
    AddImport,
    Edit,
    Finding,
    Insert,
    Replace,
    finding,
    runtime_import,
)
from dp2ddp.tiers import trouble

TIES = False
IGNORABLE = True

EXAMPLES = (
    """\
import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

folder = os.path.join("runs", time.strftime("%Y%m%d-%H%M%S"))
os.makedirs(folder)
model = nn.DataParallel(nn.Linear(8, 2).cuda())
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16)
for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs.cuda()), targets.cuda())
        loss.backward()
        optimizer.step()
    torch.save(model.state_dict(), os.path.join(folder, "model.pt"))
model.load_state_dict(torch.load(os.path.join(folder, "model.pt")))
""",
)

DRAWN = "{ddp}.from_main_process(secrets.randbits(32))"


def check(facts: Facts) -> Iterator[Finding]:
    for agreement in facts.agreements:
        if agreement.measured and facts.tiers(agreement) != {Tier.SHARDED}:
            continue
        if agreement.problem:
            yield from trouble(facts, agreement)
        else:
            edits = tuple(_edits(agreement))
            yield finding(
                agreement.at,
                f"`{agreement.what}` differs across ranks",
                "now all ranks use rank 0's value",
                edits,
            )


def _edits(agreement: Agreement) -> Iterator[Edit]:
    holes = {"ddp": agreement.ddp}
    match agreement.seeds:
        case "worker":
            yield Replace(agreement.at, "{seed}(torch.initial_seed() % 2**32)", {"seed": agreement.function})
            yield AddImport(agreement.path, "import torch")
            return
        case "generator":
            seeded = f"{{generator}}.manual_seed({DRAWN})"
            yield Replace(agreement.at, seeded, {**holes, "generator": agreement.function})
            yield AddImport(agreement.path, "import secrets")
        case "main" | "torch":
            seed = agreement.function if agreement.seeds == "main" else "torch.manual_seed"
            yield Replace(agreement.at, f"{{seed}}({DRAWN})", {**holes, "seed": seed})
            yield AddImport(agreement.path, "import secrets")
            if agreement.seeds == "torch":
                yield AddImport(agreement.path, "import torch")
        case _ if agreement.name:
            template = "{name} = {ddp}.from_main_process({name})"
            yield Insert(agreement.at, template, {**holes, "name": agreement.name}, after=True)
        case _:
            yield Replace(agreement.at, "{ddp}.from_main_process({x})", {**holes, "x": agreement.at})
    yield runtime_import(agreement.path, agreement.ddp)
