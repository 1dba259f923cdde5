"""Evaluation is dealt in turn where what leaves a loop is put together from parts, and stays whole where it is not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent

import pytest
from parity.harness import Lab, Run

from dp2ddp.analyse import analyse, link
from dp2ddp.convert import convert
from dp2ddp.source import Project

PATH = Path("/example/train.py")
SETUP = """\
import copy
import random
import time
from itertools import islice

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class AverageMeter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


class Confusion:
    def __init__(self, classes):
        self.classes = classes
        self.reset()

    def reset(self):
        self.matrix = np.zeros((self.classes, self.classes))

    def add(self, target, predicted):
        index = self._index(target.cpu().numpy(), predicted.cpu().numpy())
        self.matrix += np.bincount(index, minlength=self.classes**2).reshape(self.classes, self.classes)

    def _index(self, target, predicted):
        return self.classes * target + predicted

    def accuracy(self):
        return np.diag(self.matrix).sum() / self.matrix.sum()


def accuracy(output, target, topk=(1,)):
    _, pred = output.topk(max(topk), 1, True, True)
    correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
    res = []
    for k in topk:
        correct_k = correct[:k].reshape(-1).float().sum(0, keepdim=True)
        res.append(correct_k.mul_(100.0 / target.size(0)))
    return res


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
        self.heads = nn.ModuleList([nn.Linear(8, 4)])

    def forward(self, x):
        return self.classify(self.layers(x))

    def classify(self, x):
        return F.relu(self.heads[0](x))


torch.manual_seed(3)
data = TensorDataset(torch.randn(60, 8).double(), torch.randint(4, (60,)))
train_loader = DataLoader(data, batch_size=30, shuffle=True)
val_loader = DataLoader(TensorDataset(torch.randn(23, 8).double(), torch.randint(4, (23,))), batch_size=3)
model = nn.DataParallel(Net().double()).cuda()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
confusion = Confusion(4)


"""
TRAIN = """

for epoch in range(2):
    model.train()
    for inputs, targets in train_loader:
        optimizer.zero_grad()
        criterion(model(inputs.cuda()), targets.cuda()).backward()
        optimizer.step()
"""
DEALT = """\
@torch.no_grad()
def counters(model, loader):
    model.eval()
    loss, correct, total, errors = 0, 0, 0.0, torch.zeros(4)
    for inputs, targets in loader:
        inputs, targets = inputs.cuda(), targets.cuda()
        outputs = model(inputs)
        loss += F.cross_entropy(outputs, targets, reduction="sum")
        correct += (outputs.argmax(1) == targets).sum().item()
        total = total + len(targets)
        for label, wrong in zip(targets, outputs.argmax(1) != targets):
            errors[label] += wrong.item()
    return "counters %.9f %d %d %s" % (loss / total, correct, total, errors.tolist())


def meters(model, loader):
    losses, top1 = AverageMeter(), AverageMeter()
    top2 = AverageMeter()
    model.eval()
    with torch.no_grad():
        for i, (inputs, targets) in enumerate(loader):
            outputs = model(inputs.cuda())
            loss = criterion(outputs, targets.cuda())
            acc1, acc2 = accuracy(outputs.data, targets.cuda(), topk=(1, 2))
            if loss.item() > 100:
                continue
            losses.update(loss.item(), inputs.size(0))
            top1.update(acc1[0].item(), inputs.size(0))
            top2.update(acc2[0].item(), inputs.size(0))
    print(" * {top1.avg:.7f} {loss.avg:.9f}".format(top1=top1, loss=losses))
    return f"meters {top2.avg:.7f} {top2.count}"


def lists(model, loader):
    model.eval()
    outputs, predicted, names, hits = [], [], [], []
    for inputs, targets in loader:
        with torch.no_grad():
            output = model(inputs.cuda()).cpu()
        outputs.append(output)
        predicted.extend(output.argmax(1).tolist())
        names += targets.tolist()
        for guess, target in zip(output.argmax(1), targets):
            hits.append((guess == target).item())
    outputs = torch.cat(outputs)
    return "lists %.9f %s %s %s" % (outputs.double().norm(), predicted, names, hits)


def objects(model, loader):
    model.eval()
    confusion.reset()
    classes = {"right": 0, "all": 0}
    for inputs, targets in loader:
        output = model(inputs.cuda()).cpu().argmax(1)
        confusion.add(targets, output)
        classes["right"] += (output == targets).sum().item()
        classes["all"] += len(targets)
    return "objects %.9f %s %s" % (confusion.accuracy(), confusion.matrix.tolist(), classes)


def first(model, loader):
    net = model.module
    model.train()
    net.eval()
    total = np.zeros(4)
    for inputs, _ in loader:
        total += net(inputs.cuda()).softmax(1).sum(0).detach().cpu().numpy()
    return "first %s" % np.round(total, 9).tolist()
"""
CALLS = """\
    for evaluate in (counters, meters, lists, objects, first):
        print(evaluate(model, val_loader))
"""


def converted(text: str) -> tuple[str, list[str]]:
    """The converted program, and why evaluation stays whole."""
    result = convert(Project.of({PATH: text}))
    assert not result.errors, result.errors
    whole = [
        unplaced(finding.message)
        for finding in result.findings
        if finding.rule == "DDP204" and not finding.edits
    ]
    return result.changes[0].after, whole


def runs(lab: Lab, folder: Path, text: str, after: str) -> Iterator[tuple[Run, Run]]:
    """A converted program on 2 and 3 processes, and the original on as many replicas with the same batches."""
    for side, source in (("before", text), ("after", after)):
        (folder / f"{side}.py").write_text(source)
    for processes in (2, 3):
        run = lab.run(folder / "after.py", processes=processes).ok()
        plan = str(lab.plan(run))
        yield run, lab.run(folder / "before.py", replicas=processes, plan=plan).ok()


def test_dealt_evaluations_print_what_one_process_does(lab: Lab, tmp_path: Path) -> None:
    """Counters, meters, lists, matrices; on 2 and 3 processes, of which some have fewer batches."""
    text = SETUP + DEALT + TRAIN + CALLS
    after, whole = converted(text)
    assert whole == []
    assert after.count("ddp.shard_batches(") == 5
    assert converted_again_is_the_same(after)
    for run, original in runs(lab, tmp_path, text, after):
        assert len(run.printed.splitlines()) == 12
        assert run.printed == original.printed


def converted_again_is_the_same(text: str) -> bool:
    return not convert(Project.of({PATH: text})).changes


LOOP = """\
def evaluate(model, loader):
    model.eval()
    correct, outputs, best, seen = 0, [], 0, set()
    meter = AverageMeter()
    for i, (inputs, targets) in enumerate(loader):
        output = model(inputs.cuda()).cpu()
        correct += (output.argmax(1) == targets).sum().item()
    return correct
"""
ADD = "        correct += (output.argmax(1) == targets).sum().item()\n"
CRITERION = """

class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.ones(1))

    def forward(self, output, targets):
        self.seen.mul_(2)
        return F.cross_entropy(output, targets)


criterion_that_counts = Counting()


"""
ROWS = {
    "it prints": (
        ADD,
        ADD + "        print(len(targets))\n",
        "`print` may have side effects",
    ),
    "it reports now and then": (
        ADD,
        ADD + "        if i % 10 == 0:\n            print(len(targets))\n",
        "the batch index",
    ),
    "it is left early": (ADD, ADD + "        if len(targets) < 3:\n            break\n", "`break`"),
    "it returns": (
        ADD,
        ADD + "        if len(targets) < 3:\n            return correct\n",
        "`return correct`",
    ),
    "no evaluation mode": ("    model.eval()\n", "", "not set to eval()"),
    "a sum that goes on": (
        "correct, outputs, best, seen = 0,",
        "correct, outputs, best, seen = start,",
        "be empty or zero before",
    ),
    "the last batch": (
        "return correct",
        "return correct, (output * 1e9).long().tolist()",
        "of the last batch",
    ),
    "the greatest": (
        ADD,
        ADD + "        best = max(best, len(targets))\n",
        "`best` may not come from this batch",
    ),
    "what was before": (
        ADD,
        "        correct += len(targets) + best\n        best = len(targets)\n",
        "`best`",
    ),
    "a set": (ADD, ADD + "        seen.add(len(targets))\n", "`seen.add`"),
    "a product": (ADD, ADD + "        best *= len(targets)\n", "`best *= len(targets)`"),
    "a list with an entry now and then": (
        ADD,
        ADD + "        if len(targets) > 2:\n            outputs.append(output)\n",
        "one entry per batch or sample",
    ),
    "a list of something": (
        ADD,
        ADD + "        outputs.extend(output.nonzero().tolist())\n",
        "one entry per sample",
    ),
    "a list that is begun": (
        "    for i,",
        "    outputs.append(0)\n    for i,",
        "`outputs` is used between its initialization and the loop",
        (ADD, "        outputs.append(output)\n"),
    ),
    "random numbers": (ADD, "        correct += random.random()\n", "random numbers"),
    "a meter's last value": (
        ADD,
        "        meter.update(len(targets))\n",
        "`meter` may be used for more",
        ("return correct", "return meter.val"),
    ),
    "a meter that is shown": (
        ADD,
        "        meter.update(len(targets))\n",
        "`meter` may be used for more",
        ("return correct", "return '{m.avg} {m.val}'.format(m=meter)"),
    ),
    "an object that keeps the last": (
        ADD,
        ADD + "        tracker.update(len(targets))\n",
        "be empty or zero before",
    ),
    "an object that is not reset": (
        ADD,
        ADD + "        confusion.add(targets, output.argmax(1))\n",
        "be empty or zero before",
    ),
    "an attribute": (ADD, ADD + "        model.hits = correct\n", "assigns to `model.hits`"),
    "a global": (ADD, ADD + "        note(len(targets))\n", "has side effects"),
    "an unknown function": (
        ADD,
        ADD + "        unknown(len(targets))\n",
        "`unknown` may have side effects",
    ),
    "another model": (
        ADD,
        "        correct += other(inputs).sum().item()\n",
        "`other` may have side effects",
    ),
    "the first batches": (
        "enumerate(loader)",
        "enumerate(islice(loader, 3))",
        "may change the batches",
    ),
    "batches with something": ("enumerate(loader)", "zip(range(9), loader)", "does not name its loader"),
    "a meter by another name": (
        ADD,
        "        meter.add(len(targets))\n",
        "`meter` may be used for more",
        ("meter = AverageMeter()", "meter = Other()"),
        ("return correct", "return meter.val"),
    ),
    "what a meter says of itself": (
        ADD,
        "        meter.add(len(targets))\n",
        "`meter` may be used for more",
        ("meter = AverageMeter()", "meter = Other()"),
        ("return correct", "return meter.said()"),
    ),
    "a meter that begins with something": (
        ADD,
        "        meter.update(len(targets))\n",
        "be empty or zero before",
        ("meter = AverageMeter()", "meter = Begun()"),
    ),
    "an average of the parameters": (
        ADD,
        "        correct += averaged(inputs).sum().item()\n",
        "a copy of the model",
    ),
    "a part of something": (
        ADD,
        ADD + "        row = table[0]\n        row += len(targets)\n",
        "`row` may be set outside of the loop",
    ),
    "parts in turn": (
        ADD,
        ADD + "        for row, part in zip(table, output.detach().sum(0)):\n            row += part\n",
        "`row` may be set outside of the loop",
    ),
    "another name, changed in place": (
        ADD,
        ADD + "        row = table\n        row.add_(len(targets))\n",
        "`row.add_` may have side effects",
    ),
    "two names": (
        "    meter = AverageMeter()\n",
        "    hits = again = torch.zeros(1)\n",
        "be empty or zero before",
        (ADD, ADD + "        hits += len(targets)\n"),
    ),
    "what a function changes": (ADD, ADD + "        collect(table, output)\n", "changes `table`"),
    "what a function changes under another name": (
        ADD,
        ADD + "        collect_all(table, output)\n",
        "`row.add_` may have side effects",
    ),
    "what a function changes of its module": (ADD, ADD + "        count_all(output)\n", "changes `row`"),
    "what is written into": (
        ADD,
        ADD + "        torch.cumsum(output.detach(), 0, out=table)\n",
        "`torch.cumsum` may have side effects",
    ),
    "a lambda that looks at the sum": (
        "    model.eval()\n",
        "    model.eval()\n    over = lambda: correct > 10\n",
        "`correct` is used between its initialization and the loop",
        (ADD, ADD + "        correct += over()\n"),
    ),
    "training mode by its attribute": (
        "    model.eval()\n",
        "    model.eval()\n    for layer in model.modules():\n        layer.training = True\n",
        "not set to eval()",
    ),
    "numpy's in place": (
        ADD,
        ADD + "        np.add.at(matrix, targets, 1)\n",
        "`np.add.at` may have side effects",
    ),
    "truth values": (
        "    meter = AverageMeter()\n",
        "    hits = np.zeros(4, dtype=bool)\n",
        "be empty or zero before",
        (ADD, ADD + "        hits += (output > 0).any(0).numpy()\n"),
    ),
    "a list that begins with 0": (
        "    meter = AverageMeter()\n",
        "    hits = [0]\n",
        "be empty or zero before",
        (ADD, ADD + "        hits += [len(targets)]\n"),
    ),
    "a list without some batches": (
        ADD,
        ADD + "        if len(targets) < 3:\n            continue\n        outputs.append(output)\n",
        "one entry per batch or sample",
    ),
    "a list without some samples": (
        ADD,
        ADD
        + "        for target in targets.tolist():\n            if target == 0:\n                continue\n"
        + "            outputs.append(target)\n",
        "one entry per batch or sample",
    ),
    "a list that is longer now and then": (
        ADD,
        ADD + "        if len(targets) > 2:\n            outputs += targets.tolist()\n",
        "one entry per batch or sample",
    ),
    "a list of one or the other": (
        ADD,
        ADD + "        outputs.extend(targets.tolist() if len(targets) > 2 else [])\n",
        "one entry per sample",
    ),
    "a global sum": (
        "    model.eval()\n",
        "    global count\n    model.eval()\n    count = 0\n",
        "`count` may be read elsewhere, too",
        (ADD, ADD + "        count += 1\n"),
    ),
    "a context that counts": (
        ADD,
        ADD + "        with Counter():\n            pass\n",
        "assigns to `Counter.count`",
    ),
    "layers in training mode": (
        "    model.eval()\n",
        "    model.eval()\n    for layer in model.modules():\n        layer.train()\n",
        "not set to eval()",
    ),
    "training mode by a function": (
        "    model.eval()\n",
        "    model.eval()\n    warm(model)\n",
        "not set to eval()",
    ),
    "a hook": (
        "start = 3\n",
        "start = 3\nmodel.module.layers.register_forward_hook(lambda *given: shapes.append(len(given)))\n",
        "forward hooks",
    ),
    "a copy of the model": (
        "start = 3\n",
        "start = 3\nmean = copy.deepcopy(model)\n",
        "a copy of the model",
        (ADD, "        correct += mean(inputs).sum().item()\n"),
    ),
    "a forward that counts": (
        "        return self.classify(self.layers(x))\n",
        "        self.seen.add_(1)\n        return self.classify(self.layers(x))\n",
        "`self.seen.add_` may have side effects",
    ),
    "a criterion that counts": (
        ADD,
        ADD + "        correct += criterion_that_counts(output, targets).item()\n",
        "`self.seen.mul_` may have side effects",
        ("start = 3\n", "start = 3\n" + CRITERION),
    ),
    "a forward that counts under another name": (
        "        return self.classify(self.layers(x))\n",
        "        seen = self.seen\n        seen += 1\n        return self.classify(self.layers(x))\n",
        "changes `seen`",
    ),
    "a forward that remembers": (
        "        return self.classify(self.layers(x))\n",
        "        self.past.append(x)\n        return self.classify(self.layers(x))\n",
        "`self.past.append` may have side effects",
    ),
    "dropout in evaluation": ("F.relu(self.heads[0](x))", "F.dropout(self.heads[0](x))", "random numbers"),
    "a sampled code": (
        "F.relu(self.heads[0](x))",
        "torch.distributions.Normal(x, x.exp()).rsample()",
        "random numbers",
    ),
    "a mean that is another ratio": (
        "self.avg = self.sum / self.count\n",
        "self.avg = self.sum / (self.count + 0.001)\n",
        "more than add up",
        (ADD, "        meter.update(len(targets))\n"),
        ("return correct", "return meter.avg"),
    ),
    "a meter that warms up": (
        "        self.sum += val * n\n",
        "        if self.count > 2:\n            self.sum += val * n\n",
        "more than add up",
        (ADD, "        meter.update(len(targets))\n"),
        ("return correct", "return meter.avg"),
    ),
    "a meter that tells of its last value": (
        "class Confusion:\n",
        "    def last(self):\n        return self.val\n\n    def tell(self):\n        return [self.last()]\n\n\n"
        "class Confusion:\n",
        "`meter` may be used for more",
        (ADD, "        meter.update(len(targets))\n"),
        ("return correct", "return meter.tell()"),
    ),
    "a step of time": (
        ADD,
        ADD + "        best += time.time()\n",
        "`time.time` may have side effects",
    ),
}
WHOLE = (
    "no evaluation mode",
    "training mode by its attribute",
    "training mode by a function",
    "layers in training mode",
    "the first batches",
    "batches with something",
    "an average of the parameters",
    "a copy of the model",
    "a hook",
    "dropout in evaluation",
    "a sampled code",
)
FORWARD = "        output = model(inputs.cuda()).cpu()\n"


def before(
    lines: str,
    shown: str,
    reason: str = "`print` may have side effects",
    *more: tuple[str, str],
) -> tuple:
    """A row with lines before the model's call, and something of them that is printed behind it."""
    lines = "".join(f"        {line}\n" for line in lines.splitlines())
    return FORWARD, lines + FORWARD, reason, (ADD, ADD + f"        print({shown})\n"), *more


# Lines before the model's call: what they make is not that of the whole batch, or can't be made so.
BEFORE = {
    "dimensions of one are left out": before("inputs = inputs.squeeze()", "1", "fit a smaller batch"),
    "they are left out by a function": before("inputs = tight(inputs)", "1", "fit a smaller batch"),
    "as many classes as there are labels": before(
        "hot = F.one_hot(targets)", "hot.shape", "fit a smaller batch"
    ),
    "as many rows as are written": before(
        "wide = targets.expand(3, -1)", "wide.shape", "fit a smaller batch"
    ),
    "the first sample": before("inputs = inputs[0][None]", "1", "`inputs[0]` may be a single sample"),
    "samples turned round": before("inputs = inputs.flip(1, 0)", "1", "have one row"),
    "a multiple of the number of samples": before(
        "targets = targets.cuda()\nn = 2 * targets.size(0)",
        "n, targets",
        "`n` is used in the loop, where each rank has its own",
    ),
    "the number of all numbers": before(
        "inputs, targets = inputs.cuda(), targets.cuda()\nn = inputs.numel()",
        "n, targets",
        "`n` is used in the loop",
    ),
    "the number of pieces": before(
        "pieces = inputs.view(-1, 4)\npieces = pieces.cuda()\npieces = pieces.double()\nn = pieces.size(0)",
        "n, pieces.dtype, targets.cuda()",
        "`n` is used in the loop",
    ),
    "numbers up to that of samples": before(
        "ids = range(best, best + len(targets))", "ids", "`ids` is used in the loop"
    ),
    "a text with the number": before("text = f'{len(targets)}'", "text", "`text` is used in the loop"),
    "arrays of arrays": before("array = targets.numpy()\nmore = array + 1", "more", "`more` is not a tensor"),
    "an array by the same name": before(
        "targets = targets.numpy()\ntargets = targets + 1", "targets", "`targets` is not a tensor"
    ),
    "a number that grows": before(
        "inputs, targets = inputs.cuda(), targets.cuda()\nn = len(inputs)\nn += len(inputs)",
        "n, targets",
        "`n` is used in the loop, where each rank has its own",
    ),
    "rows or something else in a function": before("rows = chosen(inputs, i)", "rows.shape", "have one row"),
    "rows and something else": before(
        "pair = {'x': inputs, 'p': prior}", "pair['p']", "holds more than one row"
    ),
    "rows and something else by a function": before(
        "pair = paired(inputs)", "pair['p']", "holds more than one row"
    ),
    "rows after something else": before("pair = [prior] + [inputs]", "pair[0]", "have one row"),
    "a dictionary with something else": before(
        "pair = {'x': inputs}\npair = {**pair, 'p': prior}", "pair['p']", "have one row"
    ),
    "rows or something else": before("rows = inputs if i % 2 else prior", "rows.shape", "have one row"),
    "rows or something else by a condition": before(
        "rows = prior\nif i % 2:\n    rows = inputs", "rows.shape", "have one row"
    ),
    "rows or something else by a function": before("rows = either(inputs, i)", "rows.shape", "have one row"),
    "a function that counts, of a keyword": (
        FORWARD,
        "        output = model(x=counted(inputs.cuda())).cpu()\n",
        "has side effects",
        (ADD, ADD + "        print(count)\n"),
    ),
    "a function that looks at the batch": before(
        "n = size()",
        "n",
        "it reads `targets` before",
        ("    for i,", "    size = lambda: len(targets)\n    for i,"),
    ),
    "a global batch": before(
        "pass",
        "1",
        "`targets` may be read elsewhere, too",
        ("    model.eval()\n", "    global targets\n    model.eval()\n"),
    ),
    "gradients of the inputs": before(
        "inputs = inputs.requires_grad_(True)", "inputs.grad", "it needs gradients"
    ),
}
# Lines before it, and what is looked at behind it, that are those of the whole batch.
BEHIND = {
    "a column": before("column = inputs[:, 0]", "column.shape"),
    "nothing, or a column": before(
        "column = None\nif i % 2:\n    column = inputs[:, 0]",
        "column is None or len(column)",
        "the batch index",
    ),
    "where tensors are": before(
        "place, kind, name = inputs.device, inputs.dtype, inputs.type()", "place is None, kind, name[:6]"
    ),
    "the number of samples": before(
        "inputs, targets = inputs.cuda(), targets.long().cuda()\nn, width = inputs.shape\nm = targets.size(0)",
        "n, width, m, inputs[0, 0].item() > 9, targets",
    ),
    "parts of the input in other places": before(
        "inputs = inputs.cuda()\nturned = inputs.unsqueeze(1).permute(0, 2, 1)\nn = len(turned)",
        "n, turned.shape",
    ),
    "the number after the loop": before(
        "inputs, targets = inputs.cuda(), targets.cuda()",
        "targets",
        "`print` may have side effects",
        ("    return correct", "    targets = torch.ones(99)\n    print(inputs.size(0))\n    return correct"),
    ),
    "the number of what is deleted": before(
        "inputs, targets = inputs.cuda(), targets.cuda()",
        "targets",
        "`del targets`",
        ("print(targets)\n", "print(targets)\n        del targets\n        print(inputs.size(0))\n"),
    ),
}
ROWS |= BEFORE | BEHIND
WHOLE += tuple(BEFORE)
UNEQUAL = ("an unknown function", "random numbers", "a step of time")  # also to themselves
DIVIDED = [name for name in ROWS if name not in WHOLE]


HELPERS = """\
start = 3
tracker = AverageMeter()
other = nn.Linear(8, 4).double()
count = 0


class Other(AverageMeter):
    def add(self, value):
        self.val = value
        self.sum += value
        self.count += 1

    def said(self):
        return str(self.val)


class Begun(AverageMeter):
    def __init__(self):
        self.val = self.avg = 0
        self.sum = self.count = 1


class Averaged(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = copy.deepcopy(model.module)

    def forward(self, x):
        return self.net(x)


averaged = Averaged()
table = torch.zeros(4, 4).double()
matrix = np.zeros(4)


def note(n):
    global count
    count += n


def collect(table, output):
    table += output.detach().sum(0)


def collect_all(table, output):
    row = table.view(-1)
    row.add_(len(output))


def count_all(output):
    row = table[0]
    row[0] = row[0] + len(output)


prior = torch.arange(4).double()


def tight(rows):
    return rows.squeeze()


def paired(rows):
    return {"x": rows, "p": prior}


def either(rows, i):
    if i % 2:
        return rows
    return prior


def chosen(rows, i):
    found = prior
    if i % 2:
        found = rows * 1
    return found


def counted(rows):
    global count
    count += len(rows)
    return rows


def warm(model):
    model.train()


class Counter:
    count = 0

    def __enter__(self):
        Counter.count += 1

    def __exit__(self, *error):
        pass


"""
CALL = "    print(evaluate(model, val_loader))\n"


def written(name: str) -> str:
    """The program of one row."""
    old, new, _, *more = ROWS[name]
    program = SETUP + HELPERS + LOOP
    for one, other in ((old, new), *more):
        assert one in program
        program = program.replace(one, other)
    return program + TRAIN + CALL


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", WHOLE)
def test_evaluation_stays_whole(name: str) -> None:
    """Whatever lines before the model's outputs do more with than to treat each sample by itself."""
    after, whole = converted(written(name))
    assert "shard_batches" not in after and "divide_batches" not in after
    assert len(whole) == 1
    assert ROWS[name][2] in whole[0]


def test_the_first_place_of_several_is_named() -> None:
    """In source order, however the nodes lie in memory."""
    forward = "        output = model(inputs.cuda()).cpu()\n"
    text = SETUP + LOOP.replace("    model.eval()\n", "").replace(forward, forward * 12) + TRAIN + CALL
    result = convert(Project.of({PATH: text}))
    (said,) = (it.message for it in result.findings if it.rule == "DDP204")
    first = text.splitlines().index(forward.rstrip("\n")) + 1
    assert f"`model` (line {first}) is not set to eval()" in said


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", DIVIDED)
def test_evaluation_is_divided(name: str) -> None:
    """Whatever depends on more than one batch alone, and not by a sum or in a list, behind the model's outputs."""
    after, whole = converted(written(name))
    assert "shard_batches" not in after and "in enumerate(ddp.divide_batches(loader)):" in after
    assert whole == []
    (evaluation,) = analyse(link(Project.of({PATH: written(name)}))).evaluations
    assert ROWS[name][2] in unplaced(evaluation.whole)


def test_divided_evaluations_print_what_one_process_does(lab: Lab, tmp_path: Path) -> None:
    """All rows that run: on 2 and 3 processes, with a last batch that has fewer samples than these."""
    functions, calls = [], []
    for name in DIVIDED:
        old, new, _, *more = ROWS[name]
        edits = ((old, new), *more)
        if all(one in LOOP for one, _ in edits) and name not in UNEQUAL:
            function = LOOP.replace("def evaluate(", f"def evaluate_{len(functions)}(")
            for one, other in edits:
                function = function.replace(one, other)
            functions.append(function)
            calls.append(
                f"    print({name!r}, evaluate_{len(calls)}(model, val_loader), round(table.sum().item(), 6), count)\n"
            )
    assert len(functions) > 30
    text = SETUP + HELPERS + "\n\n".join(functions) + TRAIN + "".join(calls)
    after, whole = converted(text)
    assert after.count("ddp.divide_batches(") == len(functions) and whole == []
    assert converted_again_is_the_same(after)
    for run, original in runs(lab, tmp_path, text, after):
        assert len(run.printed.splitlines()) > 2 * len(functions)
        assert run.printed == original.printed


def test_a_hook_that_no_call_comes_to_keeps_no_evaluation_whole() -> None:
    """Only what a parameter is by itself is given: what stands below `return` is for other programs."""
    hooking = """\
def watched(network, layers=None):
    if layers is None:
        return network
    for layer in layers:
        layer.register_forward_hook(lambda *given: shapes.append(len(given)))
    return network


"""
    program = SETUP + HELPERS + hooking + LOOP + TRAIN
    called = program + "    watched(model)\n" + CALL
    assert "divide_batches" in converted(called)[0] or "shard_batches" in converted(called)[0]
    hooked = program + "    watched(model, [model.module.layers])\n" + CALL
    assert any("forward hooks" in it for it in converted(hooked)[1])


def test_evaluation_stays_whole_where_an_exception_is_caught() -> None:
    """One process alone would go on, and the others wait for it."""
    call = """\
    try:
        print(evaluate(model, val_loader))
    except IndexError:
        print("none")
"""
    after, whole = converted(SETUP + LOOP + TRAIN + call)
    assert "shard_batches" not in after
    assert "exceptions in the loop" in whole[0]


@pytest.mark.parametrize(
    "test",
    ["int(os.environ.get('RANK', 0)) == 0", "rank < 1"],
    ids=["environment", "name"],
)
@pytest.mark.parametrize("more", ["", "        print(i)\n"], ids=["in turn", "divided"])
def test_evaluation_stays_whole_where_one_process_alone_may_come_to_it(test: str, more: str) -> None:
    """The others would be waited for."""
    helpers = """\
import os

rank = int(os.environ["LOCAL_RANK"]) if "LOCAL_RANK" in os.environ else 0


"""
    call = f"    if {test}:\n        print(evaluate(model, val_loader))\n"
    after, whole = converted(SETUP + helpers + LOOP.replace(ADD, ADD + more) + TRAIN + call)
    assert "shard_batches" not in after and "divide_batches" not in after
    assert "only one rank runs it" in whole[0]


def test_all_processes_come_to_what_the_first_of_the_program_s_own_would() -> None:
    """There is no group of its own: so each is the first."""
    helper = """\
def is_first():
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0


"""
    call = "    if is_first():\n        print(evaluate(model, val_loader))\n"
    after, whole = converted(SETUP + helper + LOOP + TRAIN + call)
    assert whole == [] and "ddp.shard_batches(loader)" in after
    assert "return not ddp.is_initialized() or torch.distributed.get_rank() == 0" in after


def test_the_loop_of_these_is_dealt_as_it_is() -> None:
    after, whole = converted(SETUP + LOOP + TRAIN + "    print(evaluate(model, val_loader))\n")
    assert whole == []
    assert "in enumerate(ddp.shard_batches(loader)):" in after
    assert "    correct = ddp.sum(correct)\n" in after


def test_a_copy_of_the_network_is_evaluated_whole() -> None:
    """Its buffers are each process's own; a wrapped copy has the main process's."""
    copied = "mean = copy.deepcopy(model.module)\n\n\n"
    call = "    print(evaluate(model, val_loader), evaluate(mean, val_loader))\n"
    after, whole = converted(SETUP + copied + LOOP + TRAIN + call)
    assert "shard_batches" not in after
    assert "a copy of the model" in whole[0]
    after, whole = converted(SETUP + copied.replace(".module", "") + LOOP + TRAIN + call)
    assert "shard_batches" in after
    assert whole == []


def test_progress_bars_show_the_batches_of_their_process() -> None:
    text = SETUP.replace("import time\n", "import time\n\nfrom tqdm import tqdm\n", 1)
    loop = LOOP.replace("enumerate(loader)", "enumerate(tqdm(loader))")
    after, whole = converted(text + loop + TRAIN + "    print(evaluate(model, val_loader))\n")
    assert whole == []
    assert "enumerate(tqdm(ddp.shard_batches(loader)))" in after


@pytest.mark.parametrize("used", ["", "bar.close()", "print(len(bar))", "for _ in bar:\n        pass"])
def test_progress_bars_have_names(used: str) -> None:
    """One that is given right before the loop, for that alone."""
    text = SETUP.replace("import time\n", "import time\n\nfrom tqdm import tqdm\n", 1)
    loop = LOOP.replace("    for i,", "    bar = tqdm(loader)\n    for i,").replace(
        "enumerate(loader)", "enumerate(bar)"
    )
    loop = loop.replace("    return", f"    {used}\n    return")
    after, whole = converted(text + loop + TRAIN + "    print(evaluate(model, val_loader))\n")
    if used in ("", "bar.close()"):
        assert whole == [] and "    bar = tqdm(ddp.shard_batches(loader))" in after
    else:
        assert "ddp.shard_batches(" not in after and len(whole) == 1


def test_progress_bars_are_entered(lab: Lab, tmp_path: Path) -> None:
    text = SETUP.replace("import time\n", "import time\n\nfrom tqdm import tqdm\n", 1)
    head, loop = LOOP.split("    for i, (inputs, targets) in enumerate(loader):\n")
    body, rest = loop.split("    return", 1)
    loop = "        for i, (inputs, targets) in enumerate(bar):\n            bar.set_description(f'{i}')\n"
    loop = "    with tqdm(loader) as bar:\n" + loop + indent(body, "    ") + "    return" + rest
    text += head + loop + TRAIN + "    print(evaluate(model, val_loader))\n"
    after, whole = converted(text)
    assert whole == [] and "    with tqdm(ddp.divide_batches(loader)) as bar:" in after
    for run, original in runs(lab, tmp_path, text, after):
        assert run.printed == original.printed


def test_whole_batches_are_divided_as_they_are() -> None:
    """With ddp.DataParallel every process takes part in each batch, in an evaluation too."""
    text = (SETUP + LOOP + TRAIN + "    print(evaluate(model, val_loader))\n").replace(
        "criterion(model(inputs.cuda()), targets.cuda()).backward()",
        "(model(inputs.cuda()) if epoch else model(inputs.cuda())).std().backward()",
    )
    after, whole = converted(text)
    assert whole == []
    assert "ddp.DataParallel(" in after
    assert "shard_batches" not in after


def unplaced(message: str) -> str:
    """A message without the places that it names."""
    return re.sub(r" \((line \d+|\w+\.py:\d+)\)", "", message)


@pytest.mark.parametrize(("size", "is_divided"), [("3", True), ("1", False)])
def test_the_size_of_a_batch_may_stand_in_a_dict(size: str, is_divided: bool) -> None:
    text = written(next(iter(DIVIDED)))
    assert "(23,))), batch_size=3)" in text
    text = text.replace("(23,))), batch_size=3)", "(23,))), **settings)")
    text = text.replace(
        "torch.manual_seed(3)\n",
        f"settings = {{'batch_size': {size}, 'shuffle': False}}\ntorch.manual_seed(3)\n",
    )
    after, _ = converted(text)
    assert ("in enumerate(ddp.divide_batches(loader)):" in after) == is_divided


SIZED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def gpus():
    return torch.cuda.device_count()


class Net(nn.Module):
    def __init__(self, config, size):
        super().__init__()
        self.config = config
        self.size = size
        self.gpus = torch.cuda.device_count()
        self.layer = nn.Linear(8, 1)

    def forward(self, x):
        rows = int(self.size / self.gpus)
        return self.layer(x.view(rows, -1))


def evaluate(model, loader):
    model.eval()
    total = 0.0
    with torch.no_grad():
        for inputs, targets in loader:
            outputs = model(inputs)
            total += nn.functional.binary_cross_entropy_with_logits(outputs, targets).item()
    return total


torch.manual_seed(3)
config = {"size": 12, "lr": 0.1, "gpus": torch.cuda.device_count()}
config["rows"] = config["size"] // torch.cuda.device_count()
data = TensorDataset(torch.randn(60, 8).double(), torch.randint(2, (60, 1)).double())
train_loader = DataLoader(data, batch_size=12, shuffle=True, drop_last=True)
val_loader = DataLoader(data, batch_size=12)
model = nn.DataParallel(Net(config, 12).double())
optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
for epoch in range(2):
    model.train()
    for inputs, targets in train_loader:
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(inputs), targets).backward()
        optimizer.step()
    print("%.9f" % evaluate(model, val_loader))
"""
ROWS_PER_GPU = "int(self.size / self.gpus)"
GPU_SIZED = {
    "attribute": (),
    "call": ((ROWS_PER_GPU, "self.size // torch.cuda.device_count()"),),
    "function": ((ROWS_PER_GPU, "self.size // gpus()"),),
    "entry": ((ROWS_PER_GPU, "self.size // self.config['gpus']"),),
    "computed entry": ((ROWS_PER_GPU, "self.config['rows']"),),
    "argument": (("Net(config, 12)", "Net(config, 12 // gpus())"), (ROWS_PER_GPU, "self.size")),
    "condition": ((ROWS_PER_GPU, "self.size if self.gpus <= 1 else self.size // self.gpus"),),
}
GPU_SIZED_WHOLE = {
    "single": (("    print(", "    print('%.9f' % model(data.tensors[0][:12]).sum().item())\n    print("),),
    "comprehension": (
        (
            "        for inputs, targets in loader:\n",
            "        sizes = [len(model(it)) for it, _ in loader]\n        for inputs, targets in loader:\n",
        ),
    ),
    "draws": (("self.layer(", "nn.functional.dropout(torch.ones(1)) * 0 + self.layer("),),
}


def sized(edits: tuple[tuple[str, str], ...]) -> str:
    """A network whose forward is made for the samples that each GPU has."""
    text = SIZED
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("name", [*GPU_SIZED, *GPU_SIZED_WHOLE])
def test_a_forward_made_for_a_part_is_given_parts_in_evaluations_too(
    lab: Lab, tmp_path: Path, name: str
) -> None:
    """With nn.DataParallel, that is what each GPU has: no batch is dealt to one process, none is left whole."""
    text = sized({**GPU_SIZED, **GPU_SIZED_WHOLE}[name])
    after, whole = converted(text)
    assert whole == []
    if name in GPU_SIZED:
        assert "ddp.divide_batches(loader)" in after and "ddp.DistributedDataParallel(" in after
    else:
        assert "ddp.DataParallel(" in after
    for run, original in runs(lab, tmp_path, text, after):
        assert run.printed == original.printed


def test_what_is_done_for_several_gpus_beside_the_samples_keeps_evaluations_dealt() -> None:
    """A forward that only tells its layers something is right with any number of samples."""
    call = "if self.gpus > 1:\n            self.layer.double()\n        rows = len(x)"
    after, whole = converted(sized(((f"rows = {ROWS_PER_GPU}", call),)))
    assert whole == [] and "ddp.shard_batches(loader)" in after
    other = sized(((ROWS_PER_GPU, "len(x) + self.config['lr'] * 0 + self.config['size'] * 0"),))
    assert "ddp.shard_batches(loader)" in converted(other)[0]
