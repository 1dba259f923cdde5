"""A file is read that the main process writes earlier in the same run, or written that all ranks have just read.

Other ranks may read it before it is written, or still be reading it when the main process writes it again or removes
it: a barrier makes them wait. It is put where every rank passes, outside conditions that may differ across ranks, and
only for files that the program writes. Where a program or function ends because such a file exists, the main process
decides for all ranks: ``if ddp.from_main_process(os.path.exists(path)):``.
"""

from collections.abc import Iterator

from dp2ddp.facts import Facts
from dp2ddp.plan import Finding, Insert, Replace, finding, runtime_import
from dp2ddp.tiers import trouble

TIES = False
IGNORABLE = True

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
        optimizer.zero_grad()
        loss = criterion(model(inputs.cuda()), targets.cuda())
        loss.backward()
        optimizer.step()
    torch.save(model.state_dict(), "model.pt")
model.load_state_dict(torch.load("model.pt"))
""",
    """\
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
if os.path.exists("run"):
    raise FileExistsError("run: there is a run of that name")
os.mkdir("run")
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
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    for read in facts.rereads:
        edits = (Insert(read.at, "{ddp}.barrier()", {"ddp": read.ddp}), runtime_import(read.path, read.ddp))
        yield finding(read.at, read.what, "`barrier()` added: all ranks wait here", edits)
    for question in facts.questions:
        if question.problem:
            yield from trouble(facts, question)
            continue
        asked = Replace(
            question.at, "{ddp}.from_main_process({test})", {"ddp": question.ddp, "test": question.at}
        )
        edits = (asked, runtime_import(question.path, question.ddp))
        yield finding(
            question.at,
            f"rank 0 may have created `{question.what}` before other ranks check for it",
            "now all ranks use rank 0's answer",
            edits,
        )
