"""Files, directories, logs or plots are written by every process.

Only the main process writes: ``if ddp.is_main_process():``. An object that writes whenever it is used (a summary
writer, an open log file) is made on the main process alone, and its uses stand under the guard. A file that is open
while all processes work is ``os.devnull`` to the others.
"""

from collections.abc import Iterator

from dp2ddp.facts import Effect, Facts
from dp2ddp.plan import AddImport, Edit, Enclose, Finding, Replace, finding, runtime_import
from dp2ddp.tiers import trouble

TIES = False

EXAMPLES = (
    """\
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if not os.path.isdir("plots"):
    os.mkdir("plots")
log = open("log.txt", "w")
model = nn.DataParallel(nn.Linear(8, 2).cuda())
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16)
for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        criterion(model(inputs.cuda()), targets.cuda()).backward()
        optimizer.step()
    log.write(f"epoch {epoch} done")
log.close()
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    for effect in facts.effects:
        if effect.kind not in ("guard", "test", "writer", "open"):
            continue
        if effect.problem:
            yield from trouble(facts, effect)
        else:
            edits = (*_edits(effect), runtime_import(effect.path, effect.ddp))
            yield finding(effect.at, f"{effect.what} would run in every process", "", edits)


def _edits(effect: Effect) -> Iterator[Edit]:
    ddp = {"ddp": effect.ddp}
    match effect.kind:
        case "test":
            yield Replace(effect.at, "{ddp}.is_main_process() and {test}", {**ddp, "test": effect.at})
        case "writer":
            template = "{made} if {ddp}.is_main_process() else None"
            yield Replace(effect.at, template, {**ddp, "made": effect.at})
        case "open":
            template = "{path} if {ddp}.is_main_process() else os.devnull"
            yield Replace(effect.at, template, {**ddp, "path": effect.at})
            yield AddImport(effect.path, "import os")
        case _:
            yield Enclose(effect.at, effect.last or effect.at, "if {ddp}.is_main_process():", ddp)
