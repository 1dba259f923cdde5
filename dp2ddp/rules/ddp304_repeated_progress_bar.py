"""Every process shows a progress bar.

It is shown on the main process only: ``disable=not ddp.is_main_process()``.
"""

from collections.abc import Iterator

from dp2ddp.facts import Facts
from dp2ddp.plan import Anchor, Finding, SetArgument, finding, runtime_import

TIES = False

EXAMPLES = (
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

model = nn.DataParallel(nn.Linear(8, 2).cuda())
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16)
for epoch in range(2):
    for inputs, targets in tqdm(loader):
        optimizer.zero_grad()
        loss = criterion(model(inputs.cuda()), targets.cuda())
        loss.backward()
        optimizer.step()
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    for effect in facts.effects:
        if effect.kind == "progress":
            holes: dict[str, Anchor | str] = {"ddp": effect.ddp}
            template = "not {ddp}.is_main_process()"
            if effect.operand is not None:
                holes["given"] = effect.operand
                template = "{given} or not {ddp}.is_main_process()"
            edits = (
                SetArgument(effect.at, "disable", template, holes),
                runtime_import(effect.path, effect.ddp),
            )
            yield finding(effect.at, "every process would show this progress bar", "", edits)
