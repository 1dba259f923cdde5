"""What a forward stores in its modules is forgotten after it, as by nn.DataParallel's replicas, in both forms."""

from __future__ import annotations

import re

import pytest
from forms import ungathered as convert
from programs import LOSS, OPTIMIZER, PATH, PROGRAM

from dp2ddp.source import Project
from parity.harness import Lab
from parity.test_tier_training import differences, runs, seeded

MODEL = "model = nn.Linear(8, 2).cuda()"
NET = """
import torch.utils.checkpoint


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = 0
        self.factor = nn.Dropout(0.0)
        self.held = {}
        self.built = None
        self.ready = False
        self.names = ["seen"]
        self.shift = nn.Parameter(torch.zeros(4))
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x):
BODY


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.layer, self.last = nn.Linear(8, 4), Layer(), nn.Linear(4, 2)

    def forward(self, x):
        return self.last(torch.tanh(self.layer(self.first(x))))


def mark(layer, rate):
    layer.seen = rate


def hook(layer, inputs, output):
    layer.seen += 1
    return output * (1 - 0.1 * layer.seen)


model = Net().cuda()
"""
EVALUATION = """\
    model.eval()
    with torch.no_grad():
        print("mean", round(model(data.tensors[0].cuda()).double().mean().item(), 9))
    model.train()
"""
BODIES = {
    "a counter": """\
        self.seen += 1
        return x * self.scale * max(0.5, 1 - 0.05 * self.seen)
""",
    "a counter that a helper stores": """\
        mark(self, self.seen + 1)
        return x * self.scale * max(0.5, 1 - 0.05 * self.seen)
""",
    "a counter that is stored by a computed name": """\
        for name in self.names:
            setattr(self, name, getattr(self, name) + 1)
        return x * self.scale * max(0.5, 1 - 0.05 * self.seen)
""",
    "a rate of one of torch's layers": """\
        self.factor.p = self.factor.p + 0.05
        self.factor.count = getattr(self.factor, "count", 0) + 1
        return x * self.scale * (1 - self.factor.p) * (1 + 0.1 * self.factor.count)
""",
    "a buffer that is replaced": """\
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return x * self.scale - self.mean
""",
    "a buffer that is changed in place": """\
        if self.training:
            self.calls.add_(1)
        return x * self.scale * max(0.5, 1 - 0.05 * self.calls.item())
""",
    "a dict that is changed in place": """\
        if self.training:
            self.held["factor"] = 0.5
        return x * self.scale * self.held.get("factor", 1.0)
""",
    "a module that the first forward builds": """\
        if self.built is None:
            self.built = nn.PReLU(init=0.1 * (1 + self.calls.item())).to(x.device)
        if self.training:
            self.calls += 1
        return x * self.scale + self.built(x)
""",
    "an initialisation from the first batch": """\
        if self.training and not self.ready:
            self.shift.data.copy_(-x.detach().mean(0))
            self.scale.data.copy_(1 / (x.detach().std(0) + 1))
            self.ready = True
        return (x + self.shift) * self.scale
""",
    "a mode that the forward changes": """\
        x = x * self.scale * (2.0 if self.factor.training else 1.0)
        self.factor.eval()
        return x
""",
    "a counter that a checkpointed layer reads": """\
        self.seen += 1
        return torch.utils.checkpoint.checkpoint(self.scaled, x, use_reentrant=False)

    def scaled(self, x):
        return torch.sin(x * self.scale * (1 + self.seen))
""",
    "a counter that a hook stores": """\
        return x * self.scale
""",
}
ON_THREE = ["a counter", "a buffer that is replaced", "an initialisation from the first batch"]
FORMS = {
    "shards": ("ddp.DistributedDataParallel(", LOSS),
    "whole batches": ("ddp.DataParallel(", "loss = (outputs**2).std() / 12"),
}


def program(name: str, loss: str) -> str:
    text = PROGRAM.replace(MODEL, NET.replace("BODY\n", BODIES[name])).replace(LOSS, loss) + EVALUATION
    if "hook" in name:
        text = text.replace(
            "\n" + OPTIMIZER, "\nmodel.module.layer.register_forward_hook(hook)\n" + OPTIMIZER
        )
    momentum = OPTIMIZER.replace("lr=0.1", "lr=0.1, momentum=0.9")
    return text.replace(OPTIMIZER, momentum).replace("batch_size=16", "batch_size=12")


@pytest.mark.sample(processes=2, every=7)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("name", "processes"), [*((name, 2) for name in BODIES), *((name, 3) for name in ON_THREE)]
)
def test_what_a_forward_stores_is_forgotten(lab: Lab, name: str, form: str, processes: int) -> None:
    wrap, loss = FORMS[form]
    text = program(name, loss)
    (change,) = convert(Project.of({PATH: seeded(text)}), exact=True).changes
    assert wrap in change.after
    before, after = runs(lab, text, processes, exact=True)
    assert len(after.ranks) == processes
    assert differences(before, after, losses=form == "whole batches") == []
    numbers = [re.findall(r"^mean (\S+)$", run.printed, re.MULTILINE) for run in (before, after)]
    assert len(numbers[0]) == 2
    assert [*map(float, numbers[1])] == pytest.approx([*map(float, numbers[0])], abs=1e-8)
