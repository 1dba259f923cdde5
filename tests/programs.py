"""One small program, and what may be changed in it: its lines are what the tables of the tests replace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
FORWARD = "outputs = model(inputs.cuda())"
LOSS = "loss = criterion(outputs, targets.cuda())"
CRITERION = "criterion = nn.CrossEntropyLoss()"
WRAP = "model = nn.DataParallel(model)"
LOADER = "loader = DataLoader(data, batch_size=16, shuffle=True)"
OPTIMIZER = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
LOOP = "for epoch in range(2):\n"
STEP = "        loss.backward()\n        optimizer.step()\n"

RESCALED = """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 2)

    def forward(self, x, scales):
        return self.head(x) * scales.squeeze(0)


model = Net().cuda()
"""
PARTS = """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(8, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.encoder(x))


model = Net().cuda()
"""

CHECK = """

def check(outputs):
    {}


"""
# A meter as it stands in many scripts.
AVERAGES = """\
class Meter:
    def __init__(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count
"""
METER = """

class Meter:
    def __init__(self):
        self.hits = 0

    def see(self, outputs):
        {}


meter = Meter()
"""


@dataclass(frozen=True)
class Case:
    """The program with some changes: which rule finds something in it, in which line, and how it is called."""

    rule: str
    line: int
    reason: str
    changes: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        text = PROGRAM
        for old, new in self.changes:
            assert old in text, old
            text = text.replace(old, new)
        return text


def case(rule: str, line: int, reason: str, *changes: tuple[str, str]) -> Case:
    return Case(rule, line, reason, changes)


# Models that are wrapped under a condition which stays; where they are not, one process trains.
SOMETIMES_WRAPPED = {
    "by a variable": 'import os\nif not os.environ.get("ALONE"):\n    ' + WRAP,
    "in an expression": 'import os\nmodel = model if os.environ.get("ALONE") else nn.DataParallel(model)',
    "in a loop over models": 'import os\nmodels = {"net": model}\nfor name in models:\n    if not os.environ.get("ALONE"):\n'
    '        models[name] = nn.DataParallel(models[name])\nmodel = models["net"]',
    "by a function that returns before": 'import os\n\n\ndef wrap(net):\n    if os.environ.get("ALONE"):\n        return net\n'
    "    return nn.DataParallel(net)\n\n\nmodel = wrap(model)",
    "where another model is made": 'import os\nif not os.environ.get("ALONE"):\n    '
    + WRAP
    + "\nelse:\n    model = nn.Linear(8, 2).cuda()",
    "and is asked for its own things": 'import os\nalone = bool(os.environ.get("ALONE"))\nif not alone:\n    '
    + WRAP
    + "\nif alone:\n    print(model.weight.shape)",
}


# What can't be shown to be right in parts.
WHOLE_BATCH = {
    "a spread of squares": case("DDP501", 16, "mixes samples", (LOSS, "loss = (outputs**2).std() / 16")),
    "similarities between samples": case(
        "DDP501",
        16,
        "mixes samples",
        (LOSS, "loss = criterion(outputs @ outputs.t(), torch.arange(len(outputs)).cuda())"),
    ),
    "one loss of several": case(
        "DDP501",
        17,
        "mixes samples",
        (LOSS, LOSS + "\n        loss = loss + 0.1 * torch.cdist(outputs, outputs + 1).mean()"),
    ),
    "a permutation": case(
        "DDP503", 16, "permutes", (LOSS, "outputs = outputs[torch.randperm(16)]\n        " + LOSS)
    ),
    "batches drawn by hand": case(
        "DDP503",
        15,
        "outside a `for` loop",
        (
            "        optimizer.zero_grad()\n",
            "        optimizer.zero_grad()\n        other = next(iter(loader))\n",
        ),
        (LOSS, LOSS + " + 0 * len(other)"),
    ),
    "no loader": case(
        "DDP503",
        18,
        "no loop",
        (
            "    for inputs, targets in loader:",
            "    for batch in [data[:16], data[16:25]]:\n        inputs, targets = batch",
        ),
    ),
    "a wrap in a loop": case("DDP102", 10, "loop", (WRAP, "for _ in range(1):\n    " + WRAP)),
    "another dimension": case(
        "DDP102",
        15,
        "dimension",
        (
            "model = nn.Linear(8, 2).cuda()\n" + WRAP,
            "\n\nclass Turned(nn.Linear):\n    def forward(self, x):\n        return super().forward(x.t()).t()\n\n\n"
            "model = nn.DataParallel(Turned(8, 2).cuda(), dim=1)",
        ),
        (FORWARD, "outputs = model(inputs.cuda().t()).t()"),
    ),
    "a call past the wrap": case(
        "DDP503", 15, "bypasses the wrapper", ("model(inputs.cuda())", "model.module(inputs.cuda())")
    ),
    "a decision by the outputs": case(
        "DDP503",
        19,
        "control flow depends on",
        (STEP, STEP + "        if outputs.std() < 0.6:\n            break\n"),
    ),
    "a decision by a name that the outputs set": case(
        "DDP503",
        22,
        "depends on `stop`",
        (LOOP, "stop = False\n" + LOOP),
        (
            STEP,
            STEP
            + "        if outputs.std() < 0.6:\n            stop = True\n        if stop:\n            break\n",
        ),
    ),
    "a decision by what is there, if the outputs say so": case(
        "DDP503",
        22,
        "depends on `found`",
        (LOOP, "found = None\n" + LOOP),
        (
            STEP,
            STEP
            + "        if outputs.std() < 0.6:\n            found = outputs\n        if found is not None:\n            break\n",
        ),
    ),
    "a decision by an attribute that the outputs set": case(
        "DDP503",
        28,
        "depends on `state.stop`",
        (LOOP, "\n\nclass State:\n    stop = False\n\n\nstate = State()\n" + LOOP),
        (
            STEP,
            STEP + "        if outputs.std() < 0.6:\n            state.stop = True\n"
            "        if state.stop:\n            break\n",
        ),
    ),
    "a decision by how often the outputs were small": case(
        "DDP503",
        22,
        "depends on `len(small)`",
        (LOOP, "small = []\n" + LOOP),
        (
            STEP,
            STEP + "        if outputs.std() < 0.6:\n            small.append(epoch)\n"
            "        if len(small) > 1:\n            break\n",
        ),
    ),
    "a decision by an assertion": case(
        "DDP503",
        18,
        "depends on `outputs`",
        (
            STEP,
            "        try:\n            assert outputs.std() > 0.4\n        except AssertionError:\n"
            "            continue\n" + STEP,
        ),
    ),
    "a rate by how often the outputs were small": case(
        "DDP503",
        21,
        "depends on `small`",
        (LOOP, "small = 0\n" + LOOP),
        (
            STEP,
            STEP + "        small += int(outputs.std() < 0.6)\n        if small > 1:\n"
            "            for group in optimizer.param_groups:\n                group['lr'] = 0.01\n",
        ),
    ),
    "a decision by a flag that a function sets": case(
        "DDP503",
        29,
        "depends on `bad`",
        (
            LOOP,
            CHECK.format("global bad\n    if outputs.std() < 0.6:\n        bad = True")
            + "bad = False\n"
            + LOOP,
        ),
        (STEP, STEP + "        check(outputs)\n        if bad:\n            break\n"),
    ),
    "a decision by what a function puts into a dict": case(
        "DDP503",
        28,
        "depends on `seen`",
        (LOOP, CHECK.format("if outputs.std() < 0.6:\n        seen['bad'] = True") + "seen = {}\n" + LOOP),
        (STEP, STEP + "        check(outputs)\n        if seen.get('bad'):\n            break\n"),
    ),
    "a rate by what a meter counted": case(
        "DDP503",
        32,
        "depends on `meter.hits`",
        (LOOP, METER.format("if outputs.std() < 0.6:\n            self.hits += 1") + LOOP),
        (
            STEP,
            STEP + "        meter.see(outputs)\n        if meter.hits > 1:\n"
            "            for group in optimizer.param_groups:\n                group['lr'] = 0.01\n",
        ),
    ),
    "a loss scaled by what a meter counted": case(
        "DDP503",
        29,
        "depends on `meter.hits`",
        (LOOP, METER.format("self.hits += int(outputs.std() < 0.6)") + LOOP),
        (
            LOSS,
            LOSS + "\n        meter.see(outputs)\n        if meter.hits > 1:\n            loss = loss * 0.5",
        ),
    ),
    "a schedule that a function steps": case(
        "DDP503",
        16,
        "depends on `outputs`",
        (
            LOOP,
            "schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)\n"
            + CHECK.format("if outputs.std() < 0.6:\n        schedule.step()")
            + LOOP,
        ),
        (STEP, STEP + "        check(outputs)\n"),
    ),
    "a decision of one of several callbacks": case(
        "DDP503",
        34,
        "control flow depends on",
        (
            LOOP,
            METER.format("if outputs.std() < 0.6:\n            self.hits += 1")
            + "callbacks = [meter]\n"
            + LOOP,
        ),
        (
            STEP,
            STEP + "        for it in callbacks:\n            it.see(outputs)\n"
            "        if any(it.hits > 1 for it in callbacks):\n            break\n",
        ),
    ),
    "a loss scaled by the largest output so far": case(
        "DDP503",
        19,
        "depends on `worst`",
        (LOOP, "worst = 0.0\n" + LOOP),
        (
            LOSS,
            LOSS + "\n        worst = max(worst, outputs.max().item())\n        if worst > 0.9:\n"
            "            loss = loss * 0.5",
        ),
    ),
    "a loss scaled by an average of what was seen": case(
        "DDP503",
        21,
        "depends on `history`",
        ("import torch\n", "import collections\n\nimport torch\n"),
        (LOOP, "history = collections.deque(maxlen=5)\n" + LOOP),
        (
            LOSS,
            LOSS + "\n        history.append(outputs.max().item())\n"
            "        if sum(history) / len(history) > 0.8:\n            loss = loss * 0.5",
        ),
    ),
    "gradients that are scaled by the outputs": case(
        "DDP503",
        19,
        "depends on `outputs`",
        (
            STEP,
            "        loss.backward()\n        for parameter in model.parameters():\n"
            "            parameter.grad.mul_(outputs.detach().std())\n        optimizer.step()\n",
        ),
    ),
    "a schedule by the outputs": case(
        "DDP503",
        20,
        "training depends on",
        (LOOP, "schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)\n" + LOOP),
        (STEP, STEP + "    schedule.step(outputs.std())\n"),
    ),
    "a batch of another loader in each step": case(
        "DDP503",
        16,
        "draws whole batches of another loader",
        (LOOP, "others = DataLoader(data, batch_size=16)\n" + LOOP),
        (
            FORWARD,
            "more, labels = next(iter(others))\n        more = more.cuda()\n        " + FORWARD,
        ),
        (LOSS, LOSS + "\n        loss = loss + criterion(model(more), labels.cuda())"),
    ),
    "a row for each GPU": case(
        "DDP503",
        28,
        "one row per GPU",
        ("model = nn.Linear(8, 2).cuda()\n", RESCALED),
        (LOOP, "scales = torch.tensor([2.0, 3.0]).cuda()\ncount = torch.cuda.device_count()\n" + LOOP),
        (FORWARD, "outputs = model(inputs.cuda(), scales.unsqueeze(0).repeat(count, 1))"),
    ),
    "a row for each GPU, where there are several": case(
        "DDP503",
        30,
        "one row per GPU",
        ("model = nn.Linear(8, 2).cuda()\n", RESCALED),
        (
            LOOP,
            "scales = torch.tensor([2.0, 3.0]).cuda()\ncount = 1\nif torch.cuda.is_available():\n    count = torch.cuda.device_count()\n"
            + LOOP,
        ),
        (FORWARD, "outputs = model(inputs.cuda(), scales.unsqueeze(0).repeat(count, 1))"),
    ),
    "a head that is not wrapped": case(
        "DDP106",
        11,
        "holds a `nn.BatchNorm1d`",
        (
            OPTIMIZER,
            "head = nn.BatchNorm1d(2).cuda()\n"
            "optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)",
        ),
        ("criterion(outputs,", "criterion(head(outputs),"),
    ),
    "a part of the model": case(
        "DDP106",
        14,
        "holds a `nn.Dropout`",
        (
            "model = nn.Linear(8, 2).cuda()\n",
            PARTS.replace("nn.Linear(8, 2)", "nn.Sequential(nn.Dropout(0.0), nn.Linear(8, 2))"),
        ),
        (WRAP, "model.encoder = nn.DataParallel(model.encoder)"),
    ),
}

PREPARED = {
    "batches of the data set": case(
        "DDP201",
        7,
        "itself",
        (LOADER, "loader = DataLoader([data[:16], data[16:25]], batch_size=None)"),
    ),
    "training and evaluation": case(
        "DDP503",
        9,
        "evaluation",
        (LOADER, LOADER + "\nsource = [loader, iter(loader)][0]\nfor batch in loader:\n    pass"),
        ("in loader:\n        optimizer", "in source if epoch else iter(loader):\n        optimizer"),
    ),
    "a decision by what was counted of the samples": case(
        "DDP503",
        22,
        "depends on `seen`",
        (LOADER, LOADER.replace(", shuffle=True", "")),
        (LOOP, "seen = {}\n" + LOOP),
        (
            STEP,
            STEP
            + "        for label in targets.tolist():\n            seen[label] = seen.get(label, 0) + 1\n"
            "        if seen.get(1, 0) > 9:\n            break\n",
        ),
    ),
    "a batch that is skipped": case(
        "DDP503",
        15,
        "depends on `inputs`",
        (FORWARD, "if inputs.max() > 2.5:\n            continue\n        " + FORWARD),
    ),
    "a tensor as large as the batch": case(
        "DDP503",
        8,
        "the size of the global batch",
        (
            LOADER,
            "size = 16\nstate = torch.zeros(size, 8).cuda()\nloader = DataLoader(data, batch_size=size)",
        ),
        (FORWARD, "outputs = model(inputs.cuda() + state)"),
    ),
    "as many targets as the batch has samples": case(
        "DDP503",
        12,
        "the size of the global batch",
        (LOOP, "wanted = torch.zeros(16, dtype=torch.long)\n" + LOOP),
        (LOSS, "loss = criterion(outputs, wanted.cuda())"),
    ),
    "layers before the model": case(
        "DDP501",
        15,
        "mixes samples",
        (FORWARD, "outputs = model(nn.functional.batch_norm(inputs.cuda(), None, None, training=True))"),
    ),
    "samples mixed before the model": case(
        "DDP501", 15, "mixes samples", (FORWARD, "outputs = model(inputs.cuda() - inputs.cuda().mean(0))")
    ),
}
"""Programs that work on whole batches before the model gets them: the parts are taken after that."""


STOPPER = """

class Stopper:
    def __init__(self):
        self.best = None
        self.worse = 0

    def step(self, value):
        if self.best is None or value < self.best:
            self.best, self.worse = value, 0
        else:
            self.worse += 1
        return self.worse > 1


stopper = Stopper()
"""


def agreed(before: str, scaled: str = "", decided: str = "") -> str:
    """The program with something that is kept of the batches, scales the loss or decides after the step."""
    changes = (LOOP, before + LOOP), (LOSS, LOSS + scaled), (STEP, STEP + decided)
    return case("", 0, "", *changes).text


# Decisions by means over the samples, which the processes have in common: by running ones, too.
AGREED = {
    "the best loss so far scales the loss": agreed(
        "best = 9.0\n",
        "\n        best = min(best, loss.item())\n        if best < 0.75:\n            loss = loss * 0.5",
    ),
    "an average of the last losses ends the epoch": agreed(
        "history = []\n",
        decided="        history.append(loss.item())\n"
        "        if len(history) > 2 and sum(history[-2:]) / 2 > history[0]:\n            break\n",
    ),
    "a running average sets the rate": agreed(
        "average = 0.7\n",
        decided="        average = 0.5 * average + 0.5 * loss.item()\n"
        "        optimizer.param_groups[0]['lr'] = 0.2 * average\n",
    ),
    "an object ends the epoch": agreed(
        STOPPER, decided="        if stopper.step(loss.item()):\n            break\n"
    ),
    "a function asks for the largest input": agreed(
        "\n\ndef odd(samples):\n    return samples.max() > 2.5\n\n\n",
        decided="        if odd(inputs):\n            break\n",
    ),
}

HEAD = "head = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2)).cuda()\n"
BOTH = OPTIMIZER.replace("model.parameters()", "[*model.parameters(), *head.parameters()]")
USED = LOSS.replace("outputs,", "head(outputs),")
CENTERS = """


class Centers(nn.Module):
    def __init__(self):
        super().__init__()
        self.centers = nn.Parameter(torch.arange(4.0).view(2, 2).cuda())

    def forward(self, outputs, targets):
        return ((outputs - self.centers[targets]) ** 2).mean()


head = Centers()
"""
TEMPERATURE = """


class Contrast(nn.Module):
    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(()).cuda())

    def forward(self, outputs, targets):
        same = (targets[:, None] == targets[None, :]).float()
        logs = torch.log_softmax(outputs @ outputs.t() / self.temperature, dim=1)
        return -(same * logs).sum(1).mean()


head = Contrast()
"""
COSINE = """


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [nn.Linear(2, 4)]
        layers += [nn.ReLU()]
        layers.append(nn.Linear(4, 2))
        self.layers = nn.Sequential(*layers)
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        return F.normalize(self.layers.forward(x), dim=1)


head = Head().cuda()
"""

# Modules that are trained beside the wrapped model, and may be given their part of a batch; with the name synced.
BARE = {
    "a head": ("head", ((OPTIMIZER, HEAD + BOTH), (LOSS, USED))),
    "a head of its own optimizer, accumulated": (
        "head",
        (
            (
                OPTIMIZER,
                HEAD + OPTIMIZER + "\nother = torch.optim.Adam(params=head.parameters(), weight_decay=0.1)",
            ),
            (LOSS, USED),
            (
                "    for inputs, targets in loader:\n        optimizer.zero_grad()",
                "    for step, (inputs, targets) in enumerate(loader):",
            ),
            (
                STEP,
                "        (loss / 2).backward()\n        if step % 2:\n            optimizer.step()\n"
                "            other.step()\n            optimizer.zero_grad()\n            other.zero_grad()\n",
            ),
        ),
    ),
    "a head on a frozen model": (
        "head",
        (
            (OPTIMIZER, HEAD + OPTIMIZER.replace("model", "head")),
            (FORWARD, "with torch.no_grad():\n            outputs = model(inputs.cuda())"),
            (LOSS, USED),
        ),
    ),
    "the rest of a model": (
        "model",
        (
            ("model = nn.Linear(8, 2).cuda()\n", PARTS),
            (WRAP, "model.encoder = nn.DataParallel(model.encoder)"),
        ),
    ),
    "two backward passes": (
        "head",
        (
            (OPTIMIZER, HEAD + BOTH),
            (
                LOSS,
                USED
                + "\n        loss.backward()\n        loss = 0.1 * criterion(head(model(inputs.cuda())), targets.cuda())",
            ),
        ),
    ),
    "a criterion with parameters": (
        "head",
        ((OPTIMIZER, CENTERS + BOTH), (LOSS, LOSS + " + head(outputs, targets.cuda())")),
    ),
    "a criterion of the whole batch": (
        "head",
        ((OPTIMIZER, TEMPERATURE + BOTH), (LOSS, LOSS + " + head(outputs, targets.cuda())")),
    ),
    "a module called past its hooks": (
        "head",
        ((OPTIMIZER, COSINE + BOTH), (LOSS, USED.replace("head(", "head.forward("))),
    ),
    "a layer replaced after the head was made": (
        "head",
        (
            (OPTIMIZER, COSINE + "head.layers = nn.Linear(2, 2).cuda()\n" + BOTH),
            (LOSS, USED),
        ),
    ),
    "weights of classes": (
        "head",
        (
            (OPTIMIZER, HEAD + BOTH),
            (CRITERION, "criterion = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0]).cuda())"),
            (
                LOSS,
                "outputs, targets = head(outputs), targets.cuda()\n        loss = criterion(outputs, targets)",
            ),
        ),
    ),
}


def bare(name: str) -> str:
    """A program of ``BARE``."""
    text = PROGRAM
    for old, new in BARE[name][1]:
        assert old in text, old
        text = text.replace(old, new)
    return text


def headed(made: str, used: str = "head(outputs)", more: str = "") -> str:
    """The program with a head beside the model: how it is made, and what it is given."""
    text = PROGRAM.replace(OPTIMIZER, f"{made}\n{BOTH}").replace("criterion(outputs,", f"criterion({used},")
    return text.replace("data = ", more + "data = ", 1)


def module(forward: str, init: str = "self.body = nn.Linear(2, 2)", rest: str = "") -> str:
    return (
        "class Head(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        {init}\n\n    def forward(self, x):\n        {forward}\n{rest}\n\n"
    )


# Heads that get other layers or numbers before they are given to an optimizer, or are other ones later.
LATER_HEADS = {
    "a replaced layer": headed(
        "head = Head()\nhead.body = nn.Linear(2, 2)", more=module("return self.body(x)") + "\n"
    ),
    "a helper": headed(
        "head = Head().cuda()\nwiden(head)",
        more=module("return self.body(x)") + "\ndef widen(module):\n    module.body = nn.Linear(2, 2)\n\n\n",
    ),
    "an initialisation": headed(
        "head = nn.Sequential(nn.Linear(2, 2)).cuda()\nhead.apply(initialise)",
        more="def initialise(layer):\n    if isinstance(layer, nn.Linear):\n"
        "        layer.weight.data.normal_(0, 0.02)\n        nn.init.zeros_(layer.bias)\n\n\n",
    ),
    "another stage": bare("a head") + bare("a head").partition(CRITERION + "\n")[2],
}

# Those that need the whole batch, or can't be followed; with a part of the reason.
NOT_BARE = {
    "a layer that is set in its place": (
        headed("head = nn.Sequential(nn.Linear(2, 2)).cuda()\nhead[0] = nn.BatchNorm1d(2).cuda()"),
        "layers are put into it here",
    ),
    "layers that are set in all places": (
        headed(
            "head = nn.Sequential(nn.Linear(2, 2)).cuda()\nhead.apply(swap)",
            more="def swap(layer):\n    for name, child in layer.named_children():\n"
            "        setattr(layer, name, nn.Sequential(child, nn.Dropout(0.5)))\n\n\n",
        ),
        "layers are put into it here",
    ),
    "a hook": (
        headed(
            "head = nn.Linear(2, 2).cuda()\n"
            "head.register_forward_hook(lambda layer, inputs, outputs: outputs - outputs.mean(0))"
        ),
        " set here",
    ),
    "statistics of the batch": (
        headed("head = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2)).cuda()"),
        "BatchNorm1d",
    ),
    "statistics in a list": (
        headed(
            "layers = [nn.Linear(2, 2)]\nlayers.append(nn.BatchNorm1d(2))\nhead = nn.Sequential(*layers).cuda()"
        ),
        "BatchNorm1d",
    ),
    "statistics in the place of a layer": (
        headed("head = nn.Sequential(nn.Linear(2, 2), nn.ReLU()).cuda()\nhead[1] = nn.BatchNorm1d(2).cuda()"),
        "layers are put into it here",
    ),
    "a list that a helper fills": (
        headed(
            "layers = [nn.Linear(2, 2)]\nfill(layers)\nhead = nn.Sequential(*layers).cuda()",
            more="def fill(layers):\n    layers.append(nn.BatchNorm1d(2))\n\n\n",
        ),
        "may mix samples",
    ),
    "layers that are added later": (
        headed("head = nn.Sequential(nn.Linear(2, 2)).cuda()\nhead.append(nn.BatchNorm1d(2).cuda())"),
        "may mix samples",
    ),
    "a layer that is set from outside": (
        headed(
            "head = Head().cuda()\nsetattr(head, 'ydob'[::-1], nn.BatchNorm1d(2).cuda())",
            more=module("return self.body(x)"),
        ),
        "may mix samples",
    ),
    "layers that a class gives those of nn.Sequential": (
        headed(
            "head = Layers().cuda()",
            more="class Layers(nn.Sequential):\n    def __init__(self):\n        super().__init__(nn.BatchNorm1d(2))\n\n\n",
        ),
        "may mix samples in this subclass of `nn.Sequential`",
    ),
    "a class of layers that mix samples": (
        headed("head = Norm(2).cuda()", more="class Norm(nn.BatchNorm1d):\n    pass\n\n\n"),
        ", mixes samples in this subclass of `nn.BatchNorm1d`",
    ),
    "random numbers": (
        headed("head = nn.Sequential(nn.Dropout(), nn.Linear(2, 2)).cuda()"),
        "random numbers",
    ),
    "random numbers of a function": (
        headed("head = Head().cuda()", more=module("return F.dropout(self.body(x))")),
        "random numbers",
    ),
    "noise in its forward": (
        headed("head = Head().cuda()", more=module("return self.body(x + torch.randn_like(x))")),
        "random numbers",
    ),
    "a running mean": (
        headed(
            "head = Head().cuda()",
            more=module(
                "self.seen = self.seen * 0.9 + x.detach().mean(0)\n        return self.body(x - self.seen)",
                "self.body, self.seen = nn.Linear(2, 2), 0",
            ),
        ),
        "changes `self.seen`",
    ),
    "a buffer that is changed in place": (
        headed(
            "head = Head().cuda()",
            more=module(
                "self.seen.add_(x.detach().mean(0))\n        return self.body(x)",
                "self.body = nn.Linear(2, 2)\n        self.register_buffer('seen', torch.zeros(2))",
            ),
        ),
        "changes `self.seen.add_`",
    ),
    "a layer of its own kind": (
        headed(
            "head = Head().cuda()",
            more="import json\n\n\n" + module("return self.body(x)", "self.body = json.loads('1')"),
        ),
        "may mix samples",
    ),
    "a method beside its forward": (
        headed(
            "head = Head().cuda()",
            "head.logits(outputs)",
            more=module(
                "return self.body(x)", rest="\n    def logits(self, x):\n        return self.body(x)\n"
            ),
        ),
        "here, bypassing its forward",
    ),
    "a layer beside its forward": (
        headed("head = Head().cuda()", "head.body(outputs)", more=module("return self.body(x)")),
        "`head.body` here, bypassing its forward",
    ),
    "one of several that are not followed": (
        headed("import json\nhead = nn.Linear(2, 2).cuda()\nif data is None:\n    head = json.loads('1')"),
        "can't tell if ",
    ),
    "sparse gradients": (
        headed("head = nn.Embedding(2, 2, sparse=True).cuda()", "outputs + head(targets.cuda())"),
        "sparse",
    ),
    "a parameter by itself": (
        headed("head = torch.ones((), requires_grad=True)", "head * outputs").replace(
            "*head.parameters()", "head"
        ),
        "can't tell if ",
    ),
    "a parameter of a module": (
        headed("head = nn.Linear(2, 2).cuda()").replace("*head.parameters()", "head.weight"),
        "may mix samples",
    ),
    "a parameter in a group": (
        headed("head = nn.Linear(2, 2).cuda()").replace(
            "[*model.parameters(), *head.parameters()]",
            "[{'params': model.parameters()}, {'params': head.weight}]",
        ),
        "may mix samples",
    ),
    "a group that is added": (
        headed("head = nn.BatchNorm1d(2).cuda()").replace(
            BOTH, OPTIMIZER + "\noptimizer.add_param_group({'params': head.parameters()})"
        ),
        "BatchNorm1d",
    ),
    "a parameter beside a wrapped part": (
        PROGRAM.replace(
            "model = nn.Linear(8, 2).cuda()\n",
            PARTS.replace(
                "self.head = ", "self.scale = nn.Parameter(torch.ones(()))\n        self.head = "
            ).replace("self.head(self", "self.scale * self.head(self"),
        ).replace(WRAP, "model.encoder = nn.DataParallel(model.encoder)"),
        "its own parameter `scale`",
    ),
}

# Loaders that no DistributedSampler can serve: they keep their batches, and each process takes its part of them.
SHARDED_LOADERS = {
    "a sampler": "loader = DataLoader(data, 16, sampler=torch.utils.data.RandomSampler(data))",
    "weights": "loader = DataLoader(\n    data,\n    batch_size=16,\n"
    "    sampler=torch.utils.data.WeightedRandomSampler(torch.arange(1.0, 65.0), 64),\n)",
    "a subset": "loader = DataLoader(data, 16, sampler=torch.utils.data.SubsetRandomSampler(range(7, 50)))",
    "a batch sampler": "loader = DataLoader(data, batch_sampler=[[1, 2, 3], [4, 5], [6], [7, 8, 9, 10]])",
    "hidden arguments": 'loader = DataLoader(data, **{"batch_size": 16, "shuffle": True})',
    "arguments from a file": "import json\n\n"
    'loader = DataLoader(data, **json.loads(\'{"batch_size": 16, "shuffle": true}\'))',
    "arguments in a list": "loader = DataLoader(*[data, 16, True])",
    "a loader in a list": "loader = [DataLoader(data, batch_size=16, shuffle=True) for _ in range(1)][0]",
    "a class of the project": """\
class Base(DataLoader):
    def __init__(self, dataset, batch_size, collate_fn=torch.utils.data.default_collate):
        self.number = len(dataset)
        self.given = {"batch_size": batch_size, "collate_fn": collate_fn}
        super().__init__(dataset, shuffle=True, **self.given)


class Loader(Base):
    def __init__(self, batch_size, **more):
        super().__init__(data, batch_size, **more)


loader = Loader(16)""",
    "a class that begins in one of two ways": """\
class Loader(DataLoader):
    def __init__(self, dataset, batch_size, split=0.0):
        self.given = {"dataset": dataset, "batch_size": batch_size, "num_workers": 0}
        if split:
            chosen = torch.utils.data.SubsetRandomSampler(range(int(len(dataset) * split)))
            super().__init__(sampler=chosen, **self.given)
        else:
            super().__init__(shuffle=True, **self.given)


loader = Loader(data, 16, split=0.9)""",
}
# What a file of settings says is made, by one function that makes loaders and models: it is dealt where it is drawn.
CONFIGURED_LOADER = """\
import json
import sys

settings = json.loads('{"batches": {"type": "Loader", "args": {"batch_size": 16}}, "net": {"type": "Net", "args": {}}}')


class Loader(DataLoader):
    def __init__(self, batch_size, collate_fn=torch.utils.data.default_collate):
        super().__init__(data, batch_size, shuffle=True, collate_fn=collate_fn)


class Net(nn.Linear):
    def __init__(self):
        super().__init__(8, 2)


def make(name, module):
    arguments = dict(settings[name]["args"])
    return getattr(module, settings[name]["type"])(**arguments)


loader = make("batches", sys.modules[__name__])"""

CONFIGURED = PROGRAM.replace(LOADER, CONFIGURED_LOADER).replace(
    "model = nn.Linear(8, 2).cuda()", 'model = make("net", sys.modules[__name__]).cuda()'
)

# Optimizers that ask a function for the loss, as often as they like.
CLOSURES = {
    "a function in the loop": """\
        def closure():
            optimizer.zero_grad()
            loss = criterion(model(inputs.cuda()), targets.cuda())
            loss.backward()
            return loss

        print('%.6f' % optimizer.step(closure).item())
""",
    "one that returns a number": """\
        def closure():
            loss = criterion(model(inputs.cuda()), targets.cuda())
            optimizer.zero_grad()
            loss.backward()
            return float(loss)

        print('%.6f' % optimizer.step(closure=closure))
""",
}


# Loops that pull their batches from an iterator, which they begin anew at its end.
PULL = """\
        try:
            inputs, targets = next(batches)
        except StopIteration:
            batches = iter(loader)
            inputs, targets = next(batches)
"""
PULLED = {
    "a number of steps": PROGRAM.replace(LOOP, "batches = iter(loader)\nsteps = 0\nwhile True:\n").replace(
        "    for inputs, targets in loader:\n", "    if steps < 12:\n        steps += 1\n" + PULL
    )
    + "        print('%.9f' % loss.item(), steps)\n    else:\n        break\n",
    "begun beside a number": PROGRAM.replace(
        LOOP, "steps, batches = 0, iter(loader)\nwhile steps < 12:\n"
    ).replace("    for inputs, targets in loader:\n", "    steps += 1\n    if steps > 0:\n" + PULL)
    + "        print('%.9f' % loss.item(), steps)\n",
    "a loader made and begun every few steps, first None": PROGRAM.replace(LOADER, "")
    .replace(LOOP, "batches = None\nfor step in range(12):\n")
    .replace(
        "    for inputs, targets in loader:\n",
        "    if not batches or step % 4 == 0:\n        batches = iter(DataLoader(data, batch_size=16, shuffle=True))\n"
        "    inputs, targets = next(batches)\n    if True:\n",
    )
    + "        if step % 5 == 0:\n            print('%.9f' % loss.item())\n",
    "rounds within epochs": PROGRAM.replace(LOOP, "batches = iter(loader)\n" + LOOP).replace(
        "    for inputs, targets in loader:\n",
        "    running = 0.0\n    for _ in range(6):\n" + PULL,
    )
    + "        running += loss.item()\n    print('%.9f' % (running / 6))\n",
    "beside another loader": PROGRAM.replace(
        LOOP, "others = DataLoader(data, 20, shuffle=True, drop_last=True)\nbatches = iter(others)\n" + LOOP
    )
    .replace(
        "        outputs = model(inputs.cuda())\n",
        PULL.replace("iter(loader)", "iter(others)").replace("inputs, targets", "more, labels")
        + "        outputs = model(inputs.cuda())\n",
    )
    .replace(
        STEP,
        "        total = loss + criterion(model(more.cuda()), labels.cuda())\n"
        + STEP.replace("loss", "total"),
    )
    + "        print('%.9f' % loss.item())\n",
}

# Loops that train on one loader and evaluate on another, and print the averages of both.
PHASE = """\
    for phase in ("train", "test"):
        model.train(phase == "train")
        running = 0.0
        for inputs, targets in loaders[phase]:
            with torch.set_grad_enabled(phase == "train"):
                outputs = model(inputs.cuda())
                loss = criterion(outputs, targets.cuda())
            if phase == "train":
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            running += loss.item()
        print(phase, '%.9f' % (running / len(loaders[phase])))
"""
EACH = """\
others = TensorDataset(torch.randn(33, 8), torch.randint(2, (33,)))
loaders = {}
for phase in ("train", "test"):
    loaders[phase] = DataLoader(data if phase == "train" else others, batch_size=16, shuffle=True)"""
PHASES = {"made by one line": PROGRAM[: PROGRAM.index(LOOP)].replace(LOADER, EACH) + LOOP + PHASE}
PHASES["made by one line"] = PHASES["made by one line"].replace(
    "nn.Linear(8, 2).cuda()", "nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).cuda()"
)
PHASES["made by two lines"] = PHASES["made by one line"].replace(
    EACH[EACH.index("loaders") :],
    "loaders = {\n    'train': DataLoader(data, batch_size=16, shuffle=True),\n"
    "    'test': DataLoader(others, batch_size=20),\n}",
)
PHASES["with the gradients of both"] = PHASES["made by two lines"].replace(
    'with torch.set_grad_enabled(phase == "train"):', "if True:"
)
AVERAGED = "            running += loss.item()\n"
COUNTED = {
    "samples counted": AVERAGED + "            running += len(targets.cuda())\n",
    "hits counted": AVERAGED + "            running += (outputs.argmax(1).cpu() == targets).sum().item()\n",
    "losses of samples added": "            running += loss.item() * inputs.size(0)\n",
    "what is of a part": AVERAGED + "            print(outputs.std())\n",
}

# Steps whose batches no loop over a loader draws, with the line that says why, and what is said of it.
BALANCED = PROGRAM.replace(
    LOADER,
    """\


class Balanced:
    def __init__(self):
        self.loaders, self.rounds = [], []
        for part in (data, torch.utils.data.Subset(data, range(20))):
            loader = DataLoader(part, batch_size=8, shuffle=True)
            self.loaders.append(loader)
            self.rounds.append(iter(loader))

    def batch(self):
        found = []
        for i in range(len(self.rounds)):
            try:
                found.extend([next(self.rounds[i])])
            except StopIteration:
                self.rounds[i] = iter(self.loaders[i])
                found.extend([next(self.rounds[i])])
        return [torch.cat(parts) for parts in zip(*found)]


balanced = Balanced()""",
).replace(
    LOOP + "    for inputs, targets in loader:\n",
    "for epoch in range(2):\n    for step in range(10):\n        inputs, targets = balanced.batch()\n",
)
UNDRAWN = {
    "next(self.rounds[i])": ("takes a batch from each of several loaders", BALANCED),
}

# Classes whose objects hand out the batches of a loader, and some that do more than that, or make others.
TIMED = """

class Timed:
    def __init__(self, name, source):
        self.name = name
        self.source = source
        self.batches = iter(source)
        self.spent = 0.0

    def __iter__(self):
        return self

    def __len__(self):
        return len(self.source)

    def __next__(self):
        \"\"\"The next batch.\"\"\"
        start = time.time()
        batch = next(self.batches)
        self.spent = time.time() - start
        return batch


"""
HANDING = PROGRAM.replace("import torch\n", "import time\n\nimport torch\n", 1)
HANDING = HANDING.replace("\ndata = ", TIMED + "data = ", 1).replace(
    "for inputs, targets in loader:",
    'rounds = Timed("training", source=loader)\n    for step, (inputs, targets) in enumerate(rounds):',
)
HANDING += "        print(step, '%.9f' % loss.item(), rounds.spent > 0)\n"
BEGINS = "        self.batches = iter(source)\n"
TAKES = "        batch = next(self.batches)\n"
HANDED = {
    "an iterator": HANDING,
    "one that takes by methods": HANDING.replace("iter(source)", "self.source.__iter__()").replace(
        "next(self.batches)", "self.batches.__next__()"
    ),
    "one that begins anew": HANDING.replace(BEGINS, "").replace(
        "        return self\n", BEGINS.replace("source", "self.source") + "        return self\n"
    ),
    "one that only begins": HANDING.replace(BEGINS, "").replace(
        "        return self\n", "        return iter(self.source)\n"
    ),
    "for training and evaluation": HANDING
    + """\
    model.eval()
    correct = 0
    for inputs, targets in Timed("test", DataLoader(data, batch_size=10)):
        with torch.no_grad():
            correct += (model(inputs.cuda()).argmax(1) == targets.cuda()).sum().item()
    model.train()
    print(correct)
""",
}
YIELDING = HANDING.replace(
    TIMED[TIMED.index("    def __iter__") : TIMED.index("    def __len__")],
    """\
    def __iter__(self):
        for number, batch in enumerate(self.source):
            if number >= self.most:
                break
            yield batch

""",
).replace("        self.batches = iter(source)\n", "        self.most = 3\n")
YIELDING = YIELDING.replace(TIMED[TIMED.index("    def __next__") :], "\n").replace(
    "rounds.spent > 0", "rounds.spent"
)
HANDED["one that yields them"] = YIELDING
HANDED["one that yields them, made once"] = YIELDING.replace(
    'rounds = Timed("training", source=loader)\n    ', ""
).replace("for epoch in", 'rounds = Timed("training", source=loader)\nfor epoch in', 1)
HANDED["one that only begins"] = HANDED["one that only begins"].replace("rounds.spent > 0", "rounds.spent")
OTHERS_HANDED = {
    "batches left out": HANDING.replace(
        TAKES, TAKES + "        if len(batch[0]) < 16:\n            batch = next(self.batches)\n"
    ),
    "batches by a condition": HANDING.replace(
        TAKES,
        "        while True:\n    " + TAKES + "            if batch[0].sum() > 0:\n                break\n",
    ),
    "fewer of them, by what they are": YIELDING.replace("number >= self.most", "batch[0].mean() > 0.1"),
    "those of another loader, too": YIELDING.replace(
        "            yield batch\n",
        "            yield batch\n        yield from DataLoader(data, batch_size=8)\n",
    ),
    "another batch beside": HANDING.replace(TAKES, "        next(self.batches)\n" + TAKES),
    "samples mixed": HANDING.replace(TAKES, TAKES + "        batch[0].sub_(batch[0].mean(0))\n"),
    "other samples": HANDING.replace("return batch", "return [it.flip(0) for it in batch]"),
    "a batch put into it": HANDING.replace(
        "    for step, (", "    rounds.batches = iter([data[:16]])\n    for step, ("
    ),
    "batches taken by its method": HANDING.replace(
        "    for step, (", "    first = rounds.__next__()\n    for step, ("
    ),
    "a class that derives": HANDING.replace("class Timed:", "class Timed(Skipping):").replace(
        "\n\nclass Timed",
        "\n\nclass Skipping:\n    def __setattr__(self, name, value):\n"
        '        super().__setattr__(name, iter([*value][1:]) if name == "batches" else value)\n\n\nclass Timed',
    ),
}
# Which batches a loop gets can't be told for parts; whole ones are drawn alike, and divided afterwards.
DRAWN_WHOLE = {
    "an iterator that is taken from before": PROGRAM.replace(
        LOOP, "rounds = iter(loader)\nfirst = next(rounds)\n" + LOOP
    ).replace("in loader:", "in rounds:"),
    "batches that another loop takes": HANDING.replace(
        "    for step, (", "    first = next(rounds)\n    for step, ("
    ),
    "batches that are centred in place": PROGRAM.replace(
        FORWARD, "inputs.sub_(inputs.mean(0))\n        " + FORWARD
    ),
}

# Mixed precision by apex, at its level O1.
APEX_SCALE = """\
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
"""
APEX_CLIP = "        nn.utils.clip_grad_norm_(amp.master_params(optimizer), 0.1)\n"
APEX_START = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
APEX_STEP = f"{APEX_SCALE}{APEX_CLIP}        optimizer.step()\n"
APEX_PLAIN = (
    PROGRAM.replace("import torch\n", "import torch\nfrom apex import amp\n", 1)
    .replace(STEP, APEX_STEP)
    .replace(WRAP + "\n", "")
    .replace(OPTIMIZER, f"{OPTIMIZER}\n{APEX_START}\n{WRAP}")
)
APEX_EVALUATION = """

def evaluate(net, batches):
    net.eval()
    total = 0.0
    with torch.no_grad():
        for inputs, targets in batches:
            outputs = net(inputs.cuda())
            total += F.cross_entropy(outputs, targets.cuda(), reduction="sum").item()
    net.train()
    return total / len(batches.dataset)


"""
APEX_TRAINER = """\
import torch
from apex import amp
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, net):
        self.net = net.cuda()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        self.net, self.optimizer = amp.initialize(self.net, self.optimizer, opt_level="O1", loss_scale="dynamic")
        self.net = nn.DataParallel(self.net)
        self.criterion = nn.CrossEntropyLoss()

    def objective(self, inputs, targets):
        outputs = self.net(inputs.cuda())
        return self.criterion(outputs, targets.cuda())

    def epoch(self, batches):
        for inputs, targets in batches:
            self.optimizer.zero_grad()
            loss = self.objective(inputs, targets)
            with amp.scale_loss(loss, self.optimizer) as scaled:
                scaled.backward()
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), 0.1)
            self.optimizer.step()


data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16, shuffle=True)
trainer = Trainer(nn.Linear(8, 2))
for epoch in range(2):
    trainer.epoch(loader)
"""
APEX_OPTION = """\
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--half", action="store_true", default=True)
args = parser.parse_args()
"""
APEX_CHOSEN_STEP = """\
        if args.half:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            nn.utils.clip_grad_norm_(amp.master_params(optimizer), 0.1)
        else:
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
"""
APEX = {
    "clipped": APEX_PLAIN,
    "evaluated": APEX_PLAIN.replace("data = ", APEX_EVALUATION.lstrip("\n") + "data = ", 1)
    + "    print('%.9f' % evaluate(model, DataLoader(data, batch_size=10)))\n",
    "accumulated": APEX_PLAIN.replace(
        "for inputs, targets in loader", "for step, (inputs, targets) in enumerate(loader)"
    )
    .replace("        optimizer.zero_grad()\n", "")
    .replace(LOSS, LOSS + "\n        loss = loss / 2")
    .replace(
        f"{APEX_CLIP}        optimizer.step()\n",
        "        if step % 2 == 1:\n"
        f"    {APEX_CLIP}            optimizer.step()\n            optimizer.zero_grad()\n",
    ),
    "of two groups": APEX_PLAIN.replace(
        "model.parameters(), lr", "[{'params': [model.weight]}, {'params': [model.bias], 'lr': 0.2}], lr"
    ),
    "of a trainer": APEX_TRAINER,
    "chosen by an option": APEX_PLAIN.replace(
        "import torch\n", APEX_OPTION.replace("\n\n", "\nimport torch\n\n", 1), 1
    )
    .replace(APEX_START, f"if args.half:\n    {APEX_START}")
    .replace(APEX_STEP, APEX_CHOSEN_STEP),
}

# Loaders that something else draws whole batches from: the training loop shards them.
DEALT = {
    "an evaluation": LOADER + "\nfor batch in loader:\n    pass",
    "an evaluation by a comprehension": LOADER + "\nseen = sum(len(batch) for batch in loader)",
    "a first batch": LOADER + "\nfirst = next(iter(loader))",
    "a factory": """\
def batches(shuffle):
    return DataLoader(data, batch_size=16, shuffle=shuffle)


loader = batches(True)
for batch in batches(False):
    pass""",
}

# Wraps that an option, or the caller, decides about.
CHOSEN = {
    "an option": "import argparse\n\nparser = argparse.ArgumentParser()\n"
    "parser.add_argument('--several', type=int, default=VALUE)\noptions = parser.parse_args()\n"
    "if options.several > 1:\n    " + WRAP,
    "the other branch of one": "import argparse\n\nparser = argparse.ArgumentParser()\n"
    "parser.add_argument('--one', type=int, default=VALUE)\noptions = parser.parse_args()\n"
    "if options.one == 1:\n    print('one')\n    model = model.cuda()\nelse:\n    model = nn.DataParallel(model).cuda()",
    "a parameter": "\n\ndef wrapped(model, several=VALUE):\n    if several > 1:\n        model = nn.DataParallel(model)\n"
    "    return model\n\n\nmodel = wrapped(model)",
}

# A network that replicates its part at every call, and the same one wrapped once.
FUNCTIONAL = PROGRAM.replace(
    "\ndata = ",
    """

class Net(nn.Module):
    def __init__(self, ngpu):
        super().__init__()
        self.ngpu = ngpu
        self.main = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))

    def forward(self, x):
        if isinstance(x.data, torch.cuda.FloatTensor) and self.ngpu > 1:
            x = nn.parallel.data_parallel(self.main, x, range(self.ngpu))
        else:
            x = self.main(x)
        return x.view(-1, 2)


def double(module):
    if isinstance(module, nn.Linear):
        module.weight.data *= 2


data = """,
    1,
).replace(
    "model = nn.Linear(8, 2).cuda()\nmodel = nn.DataParallel(model)\n",
    "ngpu = GPUS\nmodel = Net(ngpu).cuda()\nmodel.apply(double)\n",
)

# A network that is trained as a part of another one, which is wrapped, and sampled by itself.
SAMPLED = (
    PROGRAM.replace(
        "\ndata = ",
        """

class Judged(nn.Module):
    def __init__(self, maker):
        super().__init__()
        self.maker = maker
        self.judge = nn.Linear(8, 2)

    def forward(self, x):
        return self.judge(self.maker(x))


def sample(network, noise, parallel):
    with torch.no_grad():
        if parallel:
            shown = nn.parallel.data_parallel(network, (noise,))
        else:
            shown = network(noise)
    return shown


data = """,
        1,
    )
    .replace(
        "model = nn.Linear(8, 2).cuda()\n",
        "maker = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).cuda()\nmodel = Judged(maker).cuda()\n",
    )
    .replace(
        STEP,
        STEP + """        shown = sample(maker, torch.randn(11, 8).cuda(), True)
        print(f"{shown.std().item():.9f} {maker[1].running_var.sum().item():.9f}")
""",
    )
)
