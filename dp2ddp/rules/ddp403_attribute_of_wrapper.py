"""An attribute of the model is asked of its wrapper.

``model.head`` and ``model.loss(…)`` fail where nn.DataParallel wraps the model: with several GPUs. They work where the
script runs on one, as it is often tested. The wrapper has the model as ``model.module``.
"""

from collections.abc import Iterator

from dp2ddp.facts import Facts
from dp2ddp.plan import Finding, bare_model, finding

EXAMPLES = (
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 2)

    def forward(self, inputs):
        return self.head(inputs)

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)


model = Net().cuda()
if torch.cuda.device_count() > 1:
    model = nn.DataParallel(model)
optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16)
for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = model.loss(model(inputs.cuda()), targets.cuda())
        loss.backward()
        optimizer.step()
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    for attribute in facts.lacking:
        yield finding(
            attribute.at,
            f"`{attribute.what}` fails where the model is wrapped: the wrapper has no such attribute",
            "`.module` has it",
            tuple(bare_model(attribute.path, attribute.ddp, attribute.bare, attribute.model)),
        )
