"""In the whole-batch form, every rank would load every global batch.

``ddp.share(loader)`` divides the loader's workers among the ranks of a machine and gives each batch to all of them: it
is loaded once, the machine has as many workers as before, and the samples' random numbers are those of a single
process. The same is done in the sharded form for evaluations that are not divided, and where batches go through code of
the program, behind which ``ddp.local_batch`` takes each rank's part. A loader without workers is left as it is; so is
one that only the main process iterates over somewhere.
"""

from collections.abc import Iterator

from dp2ddp.facts import Facts, Tier
from dp2ddp.plan import Anchor, Edit, Finding, Insert, Replace, finding, runtime_import

TIES = False

EXAMPLES = (
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.DataParallel(nn.Linear(8, 4).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=4)
for epoch in range(2):
    for inputs, targets in loader:
        partner = torch.randperm(len(inputs))
        features = model((0.8 * inputs + 0.2 * inputs[partner]).cuda())
        loss = nn.functional.cross_entropy(features, targets.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    for loading in facts.loading:
        here = {Tier.SHARDED} if loading.cut else {Tier.WHOLE_BATCH}
        here |= {Tier.SHARDED} if loading.undivided else set()
        if not facts.tiers(loading) or not facts.tiers(loading) <= here:
            continue
        edits: list[Edit] = [runtime_import(loading.path, loading.ddp)]
        holes: dict[str, Anchor | str] = {"ddp": loading.ddp}
        if loading.target is None:
            edits.append(Replace(loading.at, "{ddp}.share({loader})", {**holes, "loader": loading.at}))
        else:
            holes |= {"target": loading.target}
            edits.append(Insert(loading.statement, "{target} = {ddp}.share({target})", holes, after=True))
        yield finding(
            loading.at,
            "every rank would load every global batch",
            "now each batch is loaded once per machine",
            tuple(edits),
        )
