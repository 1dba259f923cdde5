"""``x.squeeze()`` in a training loop removes the dimension of the samples where a rank has one sample.

With nn.DataParallel a batch of several samples keeps it. But a rank's local batch may be one sample, at the end of an
epoch: then its outputs would have another shape than its targets. ``ddp.squeeze(x)`` keeps the first dimension there.

What the wrapped model squeezes in its forward stays: there a replica may have one sample, too.
"""

from collections.abc import Iterator

from dp2ddp.facts import Facts, Tier
from dp2ddp.plan import Finding, Replace, finding, runtime_import

EXAMPLES = (
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.DataParallel(nn.Linear(8, 1).cuda())
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.rand(64))
loader = DataLoader(data, batch_size=16)
for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        outputs = model(inputs.cuda()).squeeze()
        loss = criterion(outputs, targets.cuda())
        loss.backward()
        optimizer.step()
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    for squeeze in facts.squeezes:
        if Tier.SHARDED in facts.tiers(squeeze):
            holes = {"ddp": squeeze.ddp, "values": squeeze.values}
            yield finding(
                squeeze.at,
                f"`{squeeze.what}` loses the batch dimension if the local batch has one sample",
                "`ddp.squeeze` keeps it",
                (
                    runtime_import(squeeze.path, squeeze.ddp),
                    Replace(squeeze.at, "{ddp}.squeeze({values})", holes),
                ),
            )
