"""What cannot be converted exactly is refused: by the right rule, at the right line, with nothing changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.convert import convert
from dp2ddp.plan import Severity
from dp2ddp.source import Project

PATH = Path("/example/train.py")
PROGRAM = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16, shuffle=True)
model = nn.Linear(8, 2).cuda()
model = nn.DataParallel(model)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        outputs = model(inputs.cuda())
        loss = criterion(outputs, targets.cuda())
        loss.backward()
        optimizer.step()
"""
LOSS = "loss = criterion(outputs, targets.cuda())"
WRAP = "model = nn.DataParallel(model)"
LOADER = "loader = DataLoader(data, batch_size=16, shuffle=True)"
LOOP = "for epoch in range(2):\n"

REFUSED = {
    "a sum": ("nn.CrossEntropyLoss()", 'nn.CrossEntropyLoss(reduction="sum")', "DDP501", 17, "reduction"),
    "an old sum": (
        "nn.CrossEntropyLoss()",
        "nn.CrossEntropyLoss(size_average=False)",
        "DDP501",
        17,
        "reduction",
    ),
    "class weights": (
        "nn.CrossEntropyLoss()",
        "nn.CrossEntropyLoss(torch.ones(2).cuda())",
        "DDP501",
        17,
        "class weights",
    ),
    "ignored labels": (
        "nn.CrossEntropyLoss()",
        "nn.CrossEntropyLoss(ignore_index=0)",
        "DDP501",
        17,
        "ignore_index",
    ),
    "a functional sum": (
        LOSS,
        'loss = F.nll_loss(outputs, targets.cuda(), reduction="sum")',
        "DDP501",
        17,
        "'sum'",
    ),
    "a sum of squares": (LOSS, "loss = (outputs ** 2).sum()", "DDP501", 17, "can't be shown"),
    "selected elements": (
        LOSS,
        "keep = targets.cuda() > 0\n        loss = criterion(outputs[keep], targets.cuda()[keep])",
        "DDP501",
        18,
        "outputs[keep]",
    ),
    "similarities between samples": (
        LOSS,
        "loss = criterion(outputs @ outputs.t(), torch.arange(len(outputs)).cuda())",
        "DDP501",
        17,
        "every sample by itself",
    ),
    "one loss of several": (
        LOSS,
        LOSS + "\n        loss = loss + 0.1 * torch.cdist(outputs, outputs).mean()",
        "DDP501",
        18,
        "can't be shown",
    ),
    "a permutation": (
        LOSS,
        "outputs = outputs[torch.randperm(16)]\n        " + LOSS,
        "DDP503",
        16,
        "permuted",
    ),
    "a sampler": (
        LOADER,
        "loader = DataLoader(data, 16, sampler=torch.utils.data.RandomSampler(data))",
        "DDP201",
        7,
        "sampler",
    ),
    "a batch sampler": (
        LOADER,
        "loader = DataLoader(data, batch_sampler=[[1], [2]])",
        "DDP201",
        7,
        "batch_sampler",
    ),
    "batches of the data set": (LOADER, "loader = DataLoader(data, batch_size=None)", "DDP201", 7, "itself"),
    "unknown arguments": (
        LOADER,
        "import sys\nloader = DataLoader(data, **sys.flags)",
        "DDP201",
        8,
        "collection",
    ),
    "hidden arguments": (
        LOADER,
        'loader = DataLoader(data, **{"batch_size": 16})',
        "DDP201",
        7,
        "batch_size",
    ),
    "an endless loop": (LOOP, "while True:\n", "DDP202", 13, "counter"),
    "batches drawn by hand": (LOADER, LOADER + "\nfirst = next(iter(loader))", "DDP503", 8, "by hand"),
    "training and evaluation": (
        LOADER,
        LOADER + "\nfor batch in loader:\n    pass",
        "DDP503",
        8,
        "evaluation",
    ),
    "no loader": (
        "    for inputs, targets in loader:",
        "    for inputs, targets in [data[:16]]:",
        "DDP503",
        17,
        "no loop",
    ),
    "a wrap by option": (
        WRAP,
        'import os\nif os.environ.get("PARALLEL"):\n    ' + WRAP,
        "DDP102",
        11,
        "PARALLEL",
    ),
    "a wrap in a loop": (WRAP, "for _ in range(1):\n    " + WRAP, "DDP102", 10, "loop"),
    "a wrap in an expression": (
        WRAP,
        "model = nn.DataParallel(model) if torch.cuda.device_count() > 1 else model",
        "DDP102",
        9,
        "one branch",
    ),
    "two ways to make the model": (
        WRAP,
        "if torch.cuda.device_count() > 1:\n    " + WRAP + "\nelse:\n    model = nn.Linear(8, 2).cuda()",
        "DDP102",
        10,
        "both branches",
    ),
    "another dimension": (WRAP, "model = nn.DataParallel(model, dim=1)", "DDP102", 9, "dimension"),
    "a subclass": (
        WRAP,
        "class Mine(nn.DataParallel):\n    pass\n\n\nmodel = Mine(nn.DataParallel(model))",
        "DDP503",
        13,
        "of its own",
    ),
    "a look-alike": (
        WRAP,
        "from sync_batchnorm import DataParallelWithCallback\n"
        + WRAP
        + "\nother = DataParallelWithCallback(model)",
        "DDP503",
        11,
        "DataParallelWithCallback",
    ),
    "the function": (
        LOSS,
        LOSS + "\n        nn.parallel.data_parallel(model.module, inputs)",
        "DDP503",
        17,
        "every call",
    ),
    "a DDP branch": (
        WRAP,
        WRAP + "\nother = nn.parallel.DistributedDataParallel(model)",
        "DDP503",
        10,
        "DistributedDataParallel",
    ),
    "a call past the wrap": (
        "model(inputs.cuda())",
        "model.module(inputs.cuda())",
        "DDP503",
        15,
        "past its wrap",
    ),
    "another call past it": (
        "model(inputs.cuda())",
        "model.forward(inputs.cuda())",
        "DDP503",
        15,
        "past its wrap",
    ),
    "layers on two GPUs": (
        "nn.Linear(8, 2).cuda()",
        'nn.Linear(8, 2).to("cuda:0").to("cuda:1")',
        "DDP503",
        8,
        "numbers",
    ),
    "devices chosen too late": (
        WRAP,
        'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "0,1"\n' + WRAP,
        "DDP101",
        6,
        "line 10",
    ),
    "a decision by the training loss": (
        "        optimizer.step()\n",
        "        optimizer.step()\n        if loss.item() < 0.1:\n            break\n",
        "DDP503",
        19,
        "differs between the processes",
    ),
    "a schedule by the training loss": (
        "        optimizer.step()\n",
        "        optimizer.step()\n    torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer).step(loss)\n",
        "DDP503",
        19,
        "differs between the processes",
    ),
    "one loop for training and evaluation": (
        "        loss.backward()\n        optimizer.step()\n",
        "        if phase:\n            loss.backward()\n            optimizer.step()\n",
        "DDP503",
        13,
        "evaluates on another",
    ),
    "a tensor as large as the batch": (
        LOADER,
        "size = 16\nstate = torch.zeros(size, 8)\nloader = DataLoader(data, batch_size=size)",
        "DDP503",
        8,
        "as large as the global batch",
    ),
    "an evaluation by a comprehension": (
        LOADER,
        LOADER + "\nseen = sum(len(batch) for batch in loader)",
        "DDP503",
        8,
        "evaluation",
    ),
    "layers before the model": (
        "model(inputs.cuda())",
        "model(nn.Linear(8, 8)(inputs))",
        "DDP501",
        17,
        "every sample",
    ),
    "samples mixed before the model": (
        "model(inputs.cuda())",
        "model(inputs - inputs.mean(0))",
        "DDP501",
        17,
        "every sample",
    ),
    "a number of the log's": (
        LOADER,
        LOADER + "\nimport tensorboardX\nlog = tensorboardX.SummaryWriter()\nplace = log.logdir",
        "DDP503",
        10,
        "main process only",
    ),
    "a forward in a log line": (
        LOOP,
        "import tensorboardX\nlog = tensorboardX.SummaryWriter()\nlog.add_scalar('o', model(data[:2]).sum())\n"
        + LOOP,
        "DDP301",
        14,
        "runs the wrapped model",
    ),
    "a question to the person": (LOADER, LOADER + '\nname = input("name: ")', "DDP503", 8, "input"),
    "an end that a file decides": (
        LOADER,
        'import os\nif os.path.exists("out"):\n    raise SystemExit("exists")\nos.makedirs("out")\n' + LOADER,
        "DDP503",
        8,
        "has just made it",
    ),
    "redirected output": (
        LOADER,
        LOADER + '\nimport sys\nsys.stdout = open("log.txt", "w")',
        "DDP503",
        9,
        "redirected",
    ),
    "phases instead of epochs": (LOOP, 'for phase in ["warm", "cold"]:\n', "DDP202", 13, "counter"),
    "a log and training in one block": (
        LOOP,
        'with open("log.txt", "w") as log:\n  for epoch in range(2):\n',
        "DDP301",
        12,
        "only the main process may write",
    ),
}


def findings(text: str) -> list:
    conversion = convert(Project.of({PATH: text}))
    assert not conversion.changes or not conversion.errors
    return list(conversion.findings)


def test_the_program_itself_is_converted() -> None:
    assert not [finding for finding in findings(PROGRAM) if finding.severity is Severity.ERROR]


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_reason_and_the_line(name: str) -> None:
    old, new, rule, line, reason = REFUSED[name]
    assert old in PROGRAM
    text = PROGRAM.replace(old, new)
    if name == "one loop for training and evaluation":
        more = "other = DataLoader(data, batch_size=16)\nfor phase in (True, False):\n  for inputs, targets in {True: loader, False: other}[phase]:\n"
        text = text.replace("for epoch in range(2):\n    for inputs, targets in loader:\n", more)
        line += 1
    if name == "a log and training in one block":
        head, _, body = text.partition("  for epoch in range(2):\n")
        text = head + "  for epoch in range(2):\n" + body
    errors = [finding for finding in findings(text) if finding.severity is Severity.ERROR]
    assert (rule, line) in {(finding.rule, finding.location.span.line) for finding in errors}, errors
    chosen = [finding for finding in errors if (finding.rule, finding.location.span.line) == (rule, line)]
    assert any(reason in finding.message for finding in chosen), chosen
    assert all(finding.help for finding in errors)


def test_what_an_imported_module_writes_is_refused() -> None:
    """It would run in the process that starts the ranks, and in each of them, before they know who they are."""
    other = PATH.with_name("settings.py")
    module = 'import os\n\nSIZE = 16\nprint("settings")\nos.makedirs("out")\n'
    project = Project.of({PATH: "from settings import SIZE\n" + PROGRAM, other: module})
    found = [
        (f.location.path, f.location.span.line, f.severity) for f in convert(project).findings if not f.edits
    ]
    assert (other, 4, Severity.WARNING) in found
    assert (other, 5, Severity.ERROR) in found
    harmless = module.partition("print")[0]
    assert not convert(Project.of({PATH: "from settings import SIZE\n" + PROGRAM, other: harmless})).errors
