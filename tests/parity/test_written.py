"""Parameters that a forward writes: what nn.DataParallel's first replica wrote stays, in both forms."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import ungathered as convert
from programs import LOSS, OPTIMIZER, PATH, PROGRAM

from dp2ddp.source import Project
from parity.harness import Lab
from parity.test_tier_training import differences, runs, seeded

MODEL = "model = nn.Linear(8, 2).cuda()"
NET = """
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(4))
        self.scale = nn.Parameter(torch.ones(4))
        self.mean = nn.Parameter(torch.zeros(4), requires_grad=False)
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x):
        if self.training:
            self.write(x.detach())
            self.calls += 1
        return (x + self.shift - self.mean) * self.scale

    def write(self, x):
WRITE


model = nn.Sequential(nn.Linear(8, 4), Layer(), nn.Tanh(), nn.Linear(4, 2)).cuda()
"""
WRITES = {
    "an initialisation from the first batch": """\
        if self.calls == 0:
            self.shift.data.copy_(-x.mean(0))
            with torch.no_grad():
                self.scale.copy_(1 / (x.std(0) + 1))
""",
    "one that the source does not show": """\
        if self.calls == 0:
            for parameter in self.parameters():
                if parameter.requires_grad:
                    parameter.data = parameter.data + x.mean(0)
""",
    "a running mean": """\
        self.mean.data.mul_(0.9).add_(x.mean(0), alpha=0.1)
""",
    "one that the source does not show, of two layers' outputs": """\
        mean = dict(self.named_parameters())["mean"]
        with torch.no_grad():
            mean.copy_(mean * 0.9 + x.mean(0) * 0.1)
""",
    "a running mean that begins later": """\
        if self.calls >= 3:
            self.mean.data.mul_(0.9).add_(x.mean(0), alpha=0.1)
""",
    "a constraint": """\
        self.scale.data.clamp_(0.9, 1.1)
""",
}
FORMS = {
    "shards": ("ddp.DistributedDataParallel(", LOSS),
    "whole batches": ("ddp.DataParallel(", "loss = (outputs**2).std() / 16"),
}


def program(write: str, loss: str) -> str:
    text = PROGRAM.replace(MODEL, NET.replace("WRITE\n", write)).replace(LOSS, loss)
    momentum = OPTIMIZER.replace("lr=0.1", "lr=0.1, momentum=0.9, weight_decay=0.1")
    return text.replace(OPTIMIZER, momentum).replace("batch_size=16", "batch_size=12")


@pytest.mark.sample(processes=(2, 3), every=3)
@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", WRITES)
def test_what_a_forward_writes_is_rank_0_s(lab: Lab, name: str, form: str, processes: int) -> None:
    wrap, loss = FORMS[form]
    text = program(WRITES[name], loss)
    (change,) = convert(Project.of({PATH: seeded(text)}), exact=True).changes
    assert wrap in change.after
    before, after = runs(lab, text, processes, exact=True)
    assert len(after.ranks) == processes
    assert differences(before, after, losses=form == "whole batches") == []


NORMED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Normed(nn.Module):
    \"\"\"A layer whose weight is divided by its norm, estimated by one step of the power method in each forward.\"\"\"

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.left = nn.Parameter(torch.randn(3), requires_grad=False)

    def forward(self, x):
        weight = self.layer.weight
        right = weight.data.t().mv(self.left.data)
        right = right / right.norm()
        left = weight.data.mv(right)
        self.left.data.copy_(left / left.norm())
        return nn.functional.linear(x, weight / self.left.dot(weight.mv(right)), self.layer.bias)


torch.manual_seed(0)
model = nn.DataParallel(Normed())
loader = DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=8)
optimizer = torch.optim.SGD([it for it in model.parameters() if it.requires_grad], 0.1)
for (x,) in loader:
    real, fake = model(x), model(x.flip(0) * 2)
    loss = real.pow(2).sum(1).topk(3)[0].mean() + (1 + fake).pow(2).sum(1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("%.6f" % loss.item())
"""


# The same parameter, looked up by a name that is made when the forward runs.
LOOKED_UP = NORMED.replace(
    "        self.left.data.copy_", '        found = getattr(self, "le" + "ft"[:2])\n        found.data.copy_'
)


@pytest.mark.parametrize("text", [NORMED, LOOKED_UP], ids=["named", "looked up"])
def test_what_a_second_forward_writes_leaves_the_graph_of_the_first_alone(
    lab: Lab, tmp_path: Path, text: str
) -> None:
    """On all ranks but the first, as on nn.DataParallel's replicas but the first."""
    (change,) = convert(Project.of({PATH: text})).changes
    for name, content in (("before", text), ("after", change.after)):
        (tmp_path / f"{name}.py").write_text(content)
    before = lab.run(tmp_path / "before.py", replicas=2, timeout=60).ok()
    after = lab.run(tmp_path / "after.py", processes=2, timeout=60).ok()
    assert after.printed == before.printed
