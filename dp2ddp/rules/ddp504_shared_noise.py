"""The training loop draws random numbers for the samples of a batch: noise, masks, timesteps.

All ranks draw the same numbers from the global generators, so that weights, splits and control flow are the same. Each
rank would therefore use the same noise for its local batch. ``ddp.local_random(torch.randn_like)(inputs)`` draws from
the rank's own stream, which is derived from the same seed.

What the data set, its workers and the wrapped model draw differs across ranks without an edit. What is drawn once for
the global batch (mixup's lambda, a resolution) stays the same on all ranks. With ``ddp.DataParallel`` nothing changes:
every rank draws for the whole batch.
"""

from collections.abc import Iterator

from dp2ddp.facts import Facts, Tier
from dp2ddp.plan import Finding, Replace, Severity, finding, runtime_import

EXAMPLES = (
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.DataParallel(nn.Linear(8, 2).cuda())
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16)
for epoch in range(2):
    for inputs, targets in loader:
        inputs = inputs.cuda()
        optimizer.zero_grad()
        outputs = model(inputs + 0.1 * torch.randn_like(inputs))
        loss = criterion(outputs, targets.cuda())
        loss.backward()
        optimizer.step()
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    for draw in facts.draws:
        tiers = facts.tiers(draw)
        if tiers == {Tier.SHARDED}:
            holes = {"ddp": draw.ddp, "function": draw.function}
            edits = runtime_import(draw.path, draw.ddp), Replace(
                draw.function, "{ddp}.local_random({function})", holes
            )
            yield finding(
                draw.at,
                f"`{draw.what}` draws the same numbers on all ranks, for different samples",
                "now each rank draws its own",
                edits,
            )
        elif Tier.SHARDED in tiers:
            yield finding(
                draw.at,
                f"`{draw.what}` draws the same numbers on all ranks, for different samples",
                "use a copy of this function in the script that isn't sharded",
                severity=Severity.WARNING,
            )
