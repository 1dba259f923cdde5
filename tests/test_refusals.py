"""What cannot be converted exactly is refused: by the right rule, at the right line, with nothing changed."""

from __future__ import annotations

import pytest
from programs import LOADER, LOOP, LOSS, PATH, PROGRAM, STEP, WRAP

from dp2ddp.convert import convert
from dp2ddp.plan import Severity
from dp2ddp.source import Project

REFUSED = {
    "arguments from a collection": (WRAP, "model = nn.DataParallel(model, **{})", "DDP102", 9, "collection"),
    "gradients that are returned": (
        "        loss.backward()\n",
        "        own = list(model.parameters())\n        for parameter, gradient in zip(own, torch.autograd.grad(loss, own)):\n"
        "            parameter.grad = gradient\n        loss.detach().requires_grad_().backward()\n",
        "DDP503",
        18,
        "returns the gradients of this process's part",
    ),
    "no seed": (LOADER, "import random\nrandom.seed()\n" + LOADER, "DDP503", 8, "seeded otherwise"),
    "an end by the clock, in a handler": (
        STEP,
        "        try:\n            loss.backward()\n        except RuntimeError:\n"
        "            if time.time() - start > 60:\n                break\n            raise\n"
        "        optimizer.step()\n",
        "DDP503",
        23,
        "asks the clock",
    ),
    "a temporary folder that goes": (
        LOOP,
        "import tempfile\n\nfolder = tempfile.TemporaryDirectory()\n"
        'torch.save(model.state_dict(), folder.name + "/model.pt")\n'
        'torch.load(folder.name + "/model.pt")\n' + LOOP,
        "DDP307",
        14,
        "a folder of its own",
    ),
    "a batch left out by one process": (
        STEP,
        "        try:\n            loss.backward()\n        except RuntimeError:\n            continue\n"
        "        optimizer.step()\n",
        "DDP503",
        20,
        "without the others",
    ),
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
    "replicas made in another way": (
        WRAP,
        "def patch(parallel):\n    replicate = parallel.replicate\n"
        "    parallel.replicate = lambda *given: replicate(*given)\n\n\n" + WRAP + "\npatch(model)",
        "DDP503",
        11,
        "`replicate`",
    ),
    "the function": (
        LOSS,
        LOSS + "\n        nn.parallel.data_parallel(model.module, inputs)",
        "DDP503",
        17,
        "every call",
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
        'import os, sys\ntry:\n    os.makedirs("out")\nexcept OSError:\n    if os.path.exists("out"):\n'
        "        sys.exit()\n" + LOADER,
        "DDP306",
        11,
        "has just made it",
    ),
    "gradients cut off before they are averaged": (
        WRAP,
        WRAP + "\nfor p in model.parameters():\n    p.register_hook(lambda grad: grad.clamp(-1, 1))",
        "DDP503",
        11,
        "not linear",
    ),
    "gradients changed by what another function hands out": (
        WRAP,
        WRAP + "\nlimits = [torch.ones(2, 8)]\nmodel.module.weight.register_hook(limits.__getitem__)",
        "DDP503",
        11,
        "not linear",
    ),
    "a gradient in proportion to itself": (
        WRAP,
        "def hook(grad):\n    scale = grad.norm()\n    return grad / scale\n\n\n"
        "model.weight.register_hook(hook)\n" + WRAP,
        "DDP503",
        14,
        "not linear",
    ),
    "steps within the backward pass": (
        WRAP,
        "model.weight.register_post_accumulate_grad_hook(lambda p: p.data.sub_(p.grad))\n" + WRAP,
        "DDP503",
        9,
        "not linear",
    ),
    "a log and training in one block": (
        LOOP,
        'with open("log.txt", "w+") as log:\n  for epoch in range(2):\n',
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
    if name == "an end by the clock, in a handler":
        text = text.replace(LOOP, "import time\n\nstart = time.time()\n" + LOOP)
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
        (f.location.path, f.location.span.line, f.severity) for f in convert(project).findings if f.is_left
    ]
    assert found == [(other, 5, Severity.ERROR)]
    harmless = module.partition("print")[0]
    assert not convert(Project.of({PATH: "from settings import SIZE\n" + PROGRAM, other: harmless})).errors
