"""Every rank would download or cache the same files at the same time.

With ``with ddp.main_process_first():`` the main process does it first, then one rank of each other machine, then all
other ranks, which find the files there. Weights that torch.hub downloads, torchvision's and timm's among them, need no
edit: the runtime lets one rank per machine download them.
"""

from collections.abc import Iterator

from dp2ddp.facts import Facts, Tier
from dp2ddp.plan import Enclose, Finding, finding, runtime_import

TIES = False
IGNORABLE = True

EXAMPLES = (
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

model = nn.DataParallel(nn.Sequential(nn.Flatten(), nn.Linear(784, 10)).cuda())
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = datasets.MNIST("data", download=True, transform=transforms.ToTensor())
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
    for fetch in facts.fetches:
        if Tier.SHARDED in facts.tiers(fetch) and any(
            loader.hoist and not loader.shard and loader.dataset == fetch.dataset for loader in facts.loaders
        ):
            continue
        headers = ["with {ddp}.main_process_first():"]
        if fetch.anew:  # the others of a machine would fetch it again
            headers.append("if {ddp}.get_local_rank() == 0:")
        edits = (
            *(Enclose(fetch.at, fetch.last, it, {"ddp": fetch.ddp}) for it in headers),
            runtime_import(fetch.path, fetch.ddp),
        )
        yield finding(
            fetch.at,
            f"every rank would download or cache what `{fetch.what}` needs",
            "now rank 0 first, then the others",
            edits,
        )
