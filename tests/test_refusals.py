"""What cannot be converted exactly is refused: by the right rule, at the right line, with nothing changed."""

from __future__ import annotations

import pytest
from programs import LOADER, OPTIMIZER, PATH, PROGRAM, STEP, WRAP

from dp2ddp.convert import convert
from dp2ddp.plan import Severity
from dp2ddp.source import Project

REFUSED = {
    "arguments from a collection": (
        WRAP,
        "model = nn.DataParallel(model, **{})",
        "DDP102",
        9,
        "by `*` or `**`",
    ),
    "gradients that are returned": (
        "        loss.backward()\n",
        "        own = list(model.parameters())\n        for parameter, gradient in zip(own, torch.autograd.grad(loss, own)):\n"
        "            parameter.grad = gradient\n        loss.detach().requires_grad_().backward()\n",
        "DDP503",
        18,
        "returns local gradients",
    ),
    "a look-alike": (
        WRAP,
        "from parallel_things import MyDataParallel\n" + WRAP + "\nother = MyDataParallel(model)",
        "DDP503",
        11,
        "`MyDataParallel` is parallel_things.MyDataParallel, neither torch's nor",
    ),
    "layers on two GPUs": (
        "nn.Linear(8, 2).cuda()",
        'nn.Linear(8, 2).to("cuda:0").to("cuda:1")',
        "DDP503",
        8,
        "are used by index",
    ),
    "layers on GPUs that a loop numbers": (
        "nn.Linear(8, 2).cuda()",
        "nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))\nfor number, layer in enumerate(model):\n"
        '    layer.to(f"cuda:{number}")',
        "DDP503",
        10,
        "are used by index",
    ),
    "layers on the GPUs of a loop": (
        "nn.Linear(8, 2).cuda()",
        "nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))\nfor number in range(2):\n"
        "    gpu = 'cuda:' + str(number)\n    model[number].to(gpu)",
        "DDP503",
        10,
        "are used by index",
    ),
    "copies on the GPUs of a loop": (
        "nn.Linear(8, 2).cuda()",
        "nn.Linear(8, 2)\ncopies = [nn.Linear(8, 2).cuda(number + 1) for number in range(2)]",
        "DDP503",
        9,
        "are used by index",
    ),
    "gradients cut off before they are averaged": (
        WRAP,
        WRAP + "\nfor p in [model.module.weight * 2]:\n    p.register_hook(lambda grad: grad.clamp(-1, 1))",
        "DDP503",
        11,
        "may not be linear",
    ),
    "gradients changed by what is of the local batch": (
        "        loss = criterion",
        "        handle = model.module.weight.register_hook(lambda grad: grad * targets.float().mean().cuda())\n"
        "        loss = criterion",
        "DDP503",
        16,
        "may use values that differ across ranks",
    ),
    "gradients changed by what another function hands out": (
        WRAP,
        WRAP + "\nlimits = [torch.ones(2, 8)]\n(model.module.weight * 2).register_hook(limits.__getitem__)",
        "DDP503",
        11,
        "may not be linear",
    ),
    "a gradient in proportion to itself": (
        WRAP,
        "def hook(grad):\n    scale = grad.norm()\n    return grad / scale\n\n\n"
        "(model.weight * 2).register_hook(hook)\n" + WRAP,
        "DDP503",
        14,
        "may not be linear",
    ),
    "steps within the backward pass": (
        WRAP,
        "model.weight.register_post_accumulate_grad_hook(lambda p: p.data.sub_(p.grad))\n" + WRAP,
        "DDP503",
        9,
        "runs within `backward()`, before the ranks' gradients are averaged",
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
    errors = [finding for finding in findings(text) if finding.severity is Severity.ERROR]
    assert (rule, line) in {(finding.rule, finding.location.span.line) for finding in errors}, errors
    chosen = [finding for finding in errors if (finding.rule, finding.location.span.line) == (rule, line)]
    assert any(reason in finding.message for finding in chosen), chosen
    assert all(finding.help for finding in errors)


# What may part the ranks in an exceptional run.
SAID = {
    "an end by the clock, in a handler": (
        STEP,
        "        try:\n            loss.backward()\n        except RuntimeError:\n"
        "            if epoch > time.time():\n                break\n            raise\n"
        "        optimizer.step()\n",
        "DDP503",
        20,
        "depends on the clock",
    ),
    "a batch left out by one process": (
        STEP,
        "        try:\n            loss.backward()\n        except RuntimeError:\n            continue\n"
        "        optimizer.step()\n",
        "DDP503",
        20,
        "only some ranks catch an exception",
    ),
    "an end that a file decides": (
        LOADER,
        'import os, sys\ntry:\n    os.makedirs("out")\nexcept OSError:\n    if os.path.exists("out"):\n'
        "        sys.exit()\n" + LOADER,
        "DDP306",
        11,
        "rank 0 may create it",
    ),
}


@pytest.mark.parametrize("name", SAID)
def test_what_may_part_the_ranks_is_converted_and_said(name: str) -> None:
    old, new, rule, line, reason = SAID[name]
    conversion = convert(Project.of({PATH: "import time\n" * ("time" in new) + PROGRAM.replace(old, new)}))
    assert conversion.changes and not conversion.errors
    line += "time" in new
    (said,) = [it for it in conversion.findings if (it.rule, it.location.span.line) == (rule, line)]
    assert said.severity is Severity.NOTE and not said.edits and reason in said.message


WRITING = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 2)
        self.norm = nn.Parameter(torch.ones(2), requires_grad=False)

    def forward(self, x):
        x = self.layer(x)
        WRITE
        return x / self.norm


model = Net().cuda()"""
MODEL = "model = nn.Linear(8, 2).cuda()"
COPY = OPTIMIZER + "\ncopy = nn.Linear(8, 2)\n"
OTHERWISE = {
    "keys that were not found": (
        OPTIMIZER,
        COPY + "copy.load_state_dict(model.state_dict(), strict=False)",
        "none was loaded",
    ),
    "data in the place of a parameter's": (
        MODEL,
        WRITING.replace("WRITE", "self.norm.data = x.detach().abs().mean(0)"),
        "`self.norm.data`",
    ),
}
CRITERION = """
class Criterion(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = torch.zeros(1)

    def forward(self, outputs, targets):
        self.rows.data = outputs.detach().amax(1)
        outputs.data = outputs.data - outputs.data.mean()
        return nn.functional.cross_entropy(outputs, targets)


criterion = Criterion()"""
LOOSE = OPTIMIZER + '\ntorch.save(STATE, "w.pt")\nmodel.load_state_dict(torch.load("w.pt"), strict=False)'
OTHERWISE["bare keys for a wrapped model"] = (
    OPTIMIZER,
    LOOSE.replace("STATE", "model.module.state_dict()"),
    "none was loaded",
)
AS_BEFORE = {
    "keys of a wrapped model's own": (OPTIMIZER, LOOSE.replace("STATE", "model.state_dict()")),
    "data of what a criterion is given": (
        "criterion = nn.CrossEntropyLoss()",
        CRITERION,
    ),
    "data of an argument": (MODEL, WRITING.replace("WRITE", "x.data = x.data * 2")),
    "keys that are looked for": (
        OPTIMIZER,
        COPY + "copy.load_state_dict(model.module.state_dict(), strict=False)",
    ),
    "keys of a file": (OPTIMIZER, COPY + 'copy.load_state_dict(torch.load("weights.pt"), strict=False)'),
    "data written in place": (
        MODEL,
        WRITING.replace("WRITE", "self.norm.data.copy_(x.detach().abs().mean(0))"),
    ),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_goes_otherwise_than_before_is_said(name: str) -> None:
    was, now, reason = OTHERWISE[name]
    (said,) = [it for it in findings(PROGRAM.replace(was, now)) if it.severity is Severity.WARNING]
    assert reason in said.message


@pytest.mark.parametrize("name", AS_BEFORE)
def test_nothing_is_said_of_what_goes_as_before(name: str) -> None:
    was, now = AS_BEFORE[name]
    assert not [it for it in findings(PROGRAM.replace(was, now)) if it.severity is Severity.WARNING]
