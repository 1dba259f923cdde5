"""What programs that were put together at random (``tests/generated``) showed to go wrong, as small as it gets."""

from __future__ import annotations

from types import ModuleType

import pytest
from generated import flat, shaped, trainers
from generated.author import Program
from generated.judge import changed, conversion_of, judged
from parity.harness import Lab

HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
data = TensorDataset(torch.randn(COUNT, 6), torch.randint(4, (COUNT,)))
loader = DataLoader(data, batch_size=6, shuffle=True)
others = DataLoader(TensorDataset(torch.randn(21, 6), torch.randint(4, (21,))), batch_size=8)
model = nn.DataParallel(nn.Linear(6, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
"""
STEP = """\
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
END = 'print("%.6f" % sum(p.pow(2).sum().item() for p in model.parameters()))\n'
TASK = """
class Base:
    def __init__(self, **parts):
        KEPT


class Task(Base):
    def run(self):
        for inputs, _ in self.loader:
            outputs = self.model(inputs)
            loss = self.criterion(outputs, inputs[:, :4])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


criterion = nn.MSELoss()
task = Task(model=model, criterion=criterion, optimizer=optimizer, loader=loader)
for epoch in range(2):
    task.run()
"""
BAR = (
    """
class Bar:
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        for batch in self.loader:
            yield batch


def train():
    batches = iter(loader)
    for _ in range(len(loader)):
        inputs, targets = next(batches)
"""
    + STEP
    + """

def evaluate(loader):
    correct = 0
    with torch.no_grad():
        COUNTED
    return correct


model.train()
for epoch in range(2):
    train()
model.eval()
print(evaluate(others), evaluate(loader))
"""
)
INSIDE = (
    """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 4)

    def forward(self, x, y):
        outputs = self.body(x)
        return F.cross_entropy(outputs, y), outputs


model = nn.DataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def evaluate():
    model.eval()
    total, correct, count = 0.0, 0, 0
    with torch.no_grad():
        for inputs, targets in others:
            loss, outputs = model(inputs, targets)
            total += loss.mean().item()
            count += 1
            correct += (outputs.argmax(1) == targets).sum().item()
    return total / count, correct


for epoch in range(2):
    model.train()
    for inputs, targets in loader:
"""
    + STEP.replace("outputs = model(inputs)", "loss, outputs = model(inputs, targets)").replace(
        "loss = criterion(outputs, targets)", "loss = loss.mean()"
    )
    + """    print("%.6f %d" % evaluate())
"""
)
DROPPING = HEAD.replace("batch_size=6, shuffle=True", "batch_size=4, shuffle=True, drop_last=True")
TWO = """
import json

NETS = {}


def register(name):
    def keep(made):
        NETS[name] = made
        return made

    return keep


@register("net")
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x):
        features = torch.tanh(self.body(x))
        return self.head(features), features


def build(name):
    return NETS[name]()


options = json.loads('{"name": "net"}')
model = nn.DataParallel(build(options["name"]).to("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
CORRECT = "(model(inputs).argmax(1) == targets).sum().item()"
COUNTS = "for epoch in range(2):\n    correct = seen = 0\n    for inputs, targets in loader:\n" + STEP
COUNTS += "        correct += (outputs.argmax(1) == targets).sum().item()\n        seen += len(targets)\n"
STATE = """
from types import SimpleNamespace


def train(state):
    model, optimizer = state.model, state.optimizer
    scores, kept = [], []
    for inputs, targets in state.loader:
TAKEN
        loss = criterion(outputs, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        kept.append(loss.item())
        scores.append(outputs.detach())
    print(torch.cat(scores).std().item(), len(torch.cat(scores)), kept)


state = SimpleNamespace()
state.device = torch.device("cpu")
state.model, state.optimizer, state.loader = model, optimizer, loader
for epoch in range(2):
    train(state)
"""
RUNNER = """
class Log:
    def after_step(self, runner):
        print(runner.outputs["log_vars"]["SHOWN"])


class Evaluation:
    def after_epoch(self, runner):
        total = 0.0
        with torch.no_grad():
            for batch in others:
                total += runner.step(batch)["log_vars"]["loss"]
        print(total)


class Runner:
    def __init__(self, *hooks):
        self.hooks = hooks

    def call(self, name):
        for hook in self.hooks:
            getattr(hook, name, lambda runner: None)(self)

    def step(self, batch):
        inputs, targets = batch
        loss = criterion(model(inputs), targets)
        return {"loss": loss, "log_vars": {"loss": loss.item(), "size": inputs.size(0)}}

    def train(self):
        for batch in loader:
            self.outputs = self.step(batch)
            optimizer.zero_grad()
            self.outputs["loss"].backward()
            optimizer.step()
            self.call("after_step")
        self.call("after_epoch")


runner = Runner(HOOKS)
for epoch in range(2):
    runner.train()
"""
KEPT_BY_RUNNERS = {
    "a loss of a step that evaluations take, too": ("loss", "Log(), Evaluation()"),
    "sizes": ("size", "Log()"),
}
FOUND = {
    "outputs of a model that a namespace keeps": STATE.replace("TAKEN", "        outputs = model(inputs)"),
    "what is found of outputs of a model that a namespace keeps": STATE.replace(
        "TAKEN", "        outputs = model(inputs)"
    ).replace("scores.append(outputs.detach())", "scores.append(outputs.max(1, keepdim=True)[1].double())"),
    "several outputs of a model that a namespace keeps": TWO
    + STATE.replace("TAKEN", "        outputs, features = model(inputs)"),
    "sums over a batch with fewer samples than ranks": COUNTS + "    print(correct, seen)\n",
    "sums shown in the loop over such": COUNTS + "        print(correct, seen)\n",
    "an evaluation of losses that a model computes of its replicas": INSIDE,
    "parts of a program that are kept by their names": TASK.replace("KEPT", "self.__dict__.update(parts)"),
    "parts that are kept by names that are not known": TASK.replace(
        "KEPT", "for name, part in parts.items():\n            setattr(self, name, part)"
    ),
    "an evaluation over enumerate(Bar(loader))": BAR.replace(
        "COUNTED", f"for _, (inputs, targets) in enumerate(Bar(loader)):\n            correct += {CORRECT}"
    ),
    "an evaluation in a comprehension over Bar(loader)": BAR.replace(
        "COUNTED", f"correct = sum({CORRECT} for inputs, targets in Bar(loader))"
    ),
}


@pytest.mark.sample(processes=3)
@pytest.mark.parametrize("processes", [2, 3])
def test_sums_over_full_batches_are_combined_once(lab: Lab, processes: int) -> None:
    """Of batches of 4, 3 processes get 2, 2 and none: the third adds up nothing."""
    shown = "    print(correct, seen)\n"
    program = Program({"train.py": DROPPING.replace("COUNT", "37") + COUNTS + shown + END}, {})
    outcome, _, why = judged(program, lab, processes)
    assert outcome == "same", why
    after = changed(program, conversion_of(program))["train.py"]
    assert "local_sum" not in after and after.count("ddp.batch_sum(") == 1


@pytest.mark.sample(processes=(2, 3), every=3)
@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("name", FOUND)
def test_it_is_done_and_said_as_before(lab: Lab, name: str, processes: int) -> None:
    count = "37" if "such" in name or "fewer" in name else "52"
    program = Program({"train.py": HEAD.replace("COUNT", count) + FOUND[name] + END}, {})
    outcome, _, why = judged(program, lab, processes)
    assert outcome == "same", why


@pytest.mark.parametrize("name", KEPT_BY_RUNNERS)
def test_numbers_of_a_part_that_objects_show_each_other_are_said(lab: Lab, name: str) -> None:
    shown, hooks = KEPT_BY_RUNNERS[name]
    text = HEAD.replace("COUNT", "52") + RUNNER.replace("SHOWN", shown).replace("HOOKS", hooks) + END
    outcome, _, why = judged(Program({"train.py": text}, {}), lab, 2)
    assert outcome in ("said", "same"), why
    assert outcome == "same" or "DDP502" in why


SAMPLE = [(flat, 1, 2), (flat, 6, 3), (shaped, 2, 3), (shaped, 4, 2), (trainers, 101, 2), (trainers, 206, 3)]
"""Programs as they are put together at random: ``python -m tests.generated`` makes as many as one likes."""


def _named(it: object) -> str:
    return str(getattr(it, "__name__", it)).rpartition(".")[2]


@pytest.mark.sample(processes=2)
@pytest.mark.parametrize(("kind", "seed", "processes"), SAMPLE, ids=_named)
def test_a_sample_of_generated_programs_does_what_it_did(
    lab: Lab, kind: ModuleType, seed: int, processes: int
) -> None:
    outcome, _, why = judged(kind.program(seed), lab, processes)
    assert outcome == "same", why
