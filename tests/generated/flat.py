"""Flat scripts of one file, put together at random from what people write: data, steps, numbers, evaluation, files."""

from __future__ import annotations

import random
import re
from textwrap import indent

from generated.author import Author, Program

HEAD = """\
import json
import math
import os
from collections import defaultdict

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split

torch.manual_seed(3)
np.random.seed(3)
torch.set_default_dtype(torch.float64)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EPOCHS = 2
"""

DATA = {
    "a TensorDataset": """\
def made(count):
    return TensorDataset(torch.randn(count, 6), torch.randint(4, (count,)))


data, others = made(TRAIN), made(TEST)
""",
    "a data set of tuples": """\
class Samples(Dataset):
    def __init__(self, count):
        self.x = np.random.randn(count, 6)
        self.y = np.random.randint(0, 4, count)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return torch.from_numpy(self.x[index]), int(self.y[index])


data, others = Samples(TRAIN), Samples(TEST)
""",
    "a data set of arrays": """\
class Samples(Dataset):
    def __init__(self, count):
        self.samples = [(np.random.randn(6), np.random.randint(4)) for _ in range(count)]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        x, y = self.samples[index]
        return x.astype("float64"), y


data = Samples(TRAIN)
others = Samples(TEST)
""",
    "a list": """\
data = [(torch.randn(6), torch.randint(4, ()).item()) for _ in range(TRAIN)]
others = [(torch.randn(6), torch.randint(4, ()).item()) for _ in range(TEST)]
""",
    "a split": """\
everything = TensorDataset(torch.randn(TRAIN + TEST, 6), torch.randint(4, (TRAIN + TEST,)))
data, others = random_split(everything, [TRAIN, TEST])
""",
}
DICTS = {
    "dictionaries": """\
class Samples(Dataset):
    def __init__(self, count):
        self.x = torch.randn(count, 6)
        self.y = torch.randint(4, (count,))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"image": self.x[index], "label": self.y[index], "name": f"sample-{index}"}


data, others = Samples(TRAIN), Samples(TEST)
""",
    "collated dictionaries": """\
rows = [{"image": np.random.randn(6), "label": np.random.randint(4)} for _ in range(TRAIN + TEST)]
data, others = rows[:TRAIN], rows[TRAIN:]


def collate(samples):
    return {
        "image": torch.stack([torch.from_numpy(it["image"]) for it in samples]),
        "label": torch.tensor([it["label"] for it in samples]),
    }
""",
}
LOADERS = {
    "shuffled": "loader = DataLoader(data, batch_size=BATCH, shuffle=TrueMORE)",
    "dropping": "loader = DataLoader(data, BATCH, shuffle=True, drop_last=TrueMORE)",
    "in order": "loader = DataLoader(dataset=data, batch_size=BATCHMORE)",
    "workers": "loader = DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=0, pin_memory=FalseMORE)",
    "by options": "options = dict(batch_size=BATCH, num_workers=0)\nloader = DataLoader(data, shuffle=TrueMORE, **options)",
}
MODELS = {
    "layers": """\
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
""",
    "a class": """\
class Net(nn.Module):
    def __init__(self, hidden=8):
        super().__init__()
        self.first = nn.Linear(6, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.last = nn.Linear(hidden, 4)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        return self.last(x)


model = Net()
""",
    "features and logits": """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.Tanh())
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        features = self.body(x)
        return self.head(features), features


model = Net()
""",
    "normalised": """\
class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU())

    def forward(self, x):
        return self.layers(x)


model = nn.Sequential(Block(6, 8), Block(8, 8), nn.Linear(8, 4))
""",
}
WRAPS = {
    "wrapped": "model = nn.DataParallel(model).to(device)",
    "wrapped where moved": "model = torch.nn.DataParallel(model.to(device))",
    "moved, then wrapped": "model.to(device)\nmodel = nn.DataParallel(model)",
    "wrapped with devices": "model = nn.DataParallel(model, device_ids=list(range(max(torch.cuda.device_count(), 1)))) if True else model\nmodel.to(device)",
}
WRAPS.pop("wrapped with devices")
OPTIMIZERS = {
    "sgd": "optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)",
    "adam": "optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)",
    "groups": 'optimizer = torch.optim.SGD([{"params": [p for p in model.parameters() if p.requires_grad]}], lr=0.05)',
}
LOSSES = {
    "cross entropy": "loss = criterion(outputs, targets)",
    "functional": "loss = F.cross_entropy(outputs, targets)",
    "log softmax": "loss = F.nll_loss(F.log_softmax(outputs, dim=1), targets)",
    "each": 'losses_ = F.cross_entropy(outputs, targets, reduction="none")\nloss = losses_.mean()',
    "summed": 'loss = F.cross_entropy(outputs, targets, reduction="sum") / targets.size(0)',
    "two": "ce = criterion(outputs, targets)\nl2 = outputs.pow(2).mean()\nloss = ce + 0.01 * l2",
    "regularised": "loss = criterion(outputs, targets) + 1e-3 * sum(p.pow(2).sum() for p in model.parameters())",
    "a dictionary": 'parts = {"ce": criterion(outputs, targets), "l2": outputs.pow(2).mean() * 0.01}\nloss = sum(parts.values())',
    "smoothed": "loss = F.cross_entropy(outputs, targets, label_smoothing=0.1)",
    "one hot": "loss = F.mse_loss(torch.softmax(outputs, 1), F.one_hot(targets, 4).double())",
    "by hand": "logs = torch.log_softmax(outputs, 1)\nloss = -logs[torch.arange(len(targets)), targets].mean()",
    "gathered": "loss = -torch.log_softmax(outputs, 1).gather(1, targets.unsqueeze(1)).squeeze(1).mean()",
    "a function": "loss = compute_loss(outputs, targets)",
}
STEPS = {
    "plain": "optimizer.zero_grad()\nloss.backward()\noptimizer.step()",
    "clipped": "optimizer.zero_grad()\nloss.backward()\nnn.utils.clip_grad_norm_(model.parameters(), 1.0)\noptimizer.step()",
    "none": "optimizer.zero_grad(set_to_none=True)\nloss.backward()\noptimizer.step()",
    "the model's": "model.zero_grad()\nloss.backward()\noptimizer.step()",
    "accumulated": "(loss / 2).backward()\nif (step + 1) % 2 == 0:\n    optimizer.step()\n    optimizer.zero_grad()",
    "scaled": "optimizer.zero_grad()\nscaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()",
}
# What is added up: (before the loop, in it, after it); numbers that the epoch leaves in `shown`.
NUMBERS: dict[str, tuple[str, str, str]] = {
    "loss by size": (
        "total = 0.0",
        "total += loss.item() * inputs.size(0)",
        'shown["loss"] = total / len(loader.dataset)',
    ),
    "loss by len": ("total = 0", "total += loss.item() * len(inputs)", 'shown["loss"] = total / len(data)'),
    "loss by shape": (
        "total, count = 0.0, 0",
        "n = inputs.shape[0]\ntotal += loss.item() * n\ncount += n",
        'shown["loss"] = total / count',
    ),
    "loss by batch": ("running = 0.0", "running += loss.item()", 'shown["loss"] = running / len(loader)'),
    "loss counted": (
        "running, batches = 0.0, 0",
        "running += float(loss)\nbatches += 1",
        'shown["loss"] = running / batches',
    ),
    "losses listed": (
        "history = []",
        "history.append(loss.item())",
        'shown["loss"] = np.mean(history)\nshown["last"] = history[-1]',
    ),
    "losses listed as tensors": (
        "history = []",
        "history.append(loss.detach())",
        'shown["loss"] = torch.stack(history).mean().item()',
    ),
    "a meter": ("meter = Meter()", "meter.update(loss.item(), inputs.size(0))", 'shown["loss"] = meter.avg'),
    "a meter of len": (
        "meter = Meter()",
        "meter.update(loss.data.item(), len(targets))",
        'shown["loss"] = meter.avg',
    ),
    "meters": (
        "meters = defaultdict(Meter)",
        'meters["loss"].update(loss.item(), targets.size(0))\nmeters["confidence"].update(outputs.softmax(1).max(1)[0].mean().item(), targets.size(0))',
        "for name, meter in meters.items():\n    shown[name] = meter.avg",
    ),
    "moving": (
        "moving = None",
        "moving = loss.item() if moving is None else 0.9 * moving + 0.1 * loss.item()",
        'shown["moving"] = moving',
    ),
    "in a dictionary": (
        'sums = {"loss": 0.0, "count": 0}',
        'sums["loss"] += loss.item() * len(targets)\nsums["count"] += len(targets)',
        'shown["loss"] = sums["loss"] / sums["count"]',
    ),
    "in a default dictionary": (
        "sums = defaultdict(float)",
        'sums["loss"] += loss.item()\nsums["steps"] += 1',
        'shown["loss"] = sums["loss"] / sums["steps"]',
    ),
    "correct": (
        "correct = seen = 0",
        "correct += (outputs.argmax(1) == targets).sum().item()\nseen += targets.size(0)",
        'shown["accuracy"] = 100.0 * correct / seen',
    ),
    "correct by eq": (
        "correct, seen = 0, 0",
        "_, predicted = torch.max(outputs.data, 1)\nseen += targets.size(0)\ncorrect += predicted.eq(targets).cpu().sum().item()",
        'shown["accuracy"] = correct / seen',
    ),
    "correct of the data": (
        "correct = 0",
        "pred = outputs.max(1, keepdim=True)[1]\ncorrect += pred.eq(targets.view_as(pred)).sum().item()",
        'shown["accuracy"] = correct / len(loader.dataset)',
    ),
    "correct as a tensor": (
        "correct = torch.tensor(0)",
        "correct = correct + (outputs.argmax(dim=-1) == targets).sum().cpu()",
        'shown["correct"] = correct.item()',
    ),
    "correct by numpy": (
        "correct = 0\nseen = 0",
        "found = outputs.detach().cpu().numpy().argmax(1)\ncorrect += (found == targets.cpu().numpy()).sum()\nseen += len(found)",
        'shown["accuracy"] = correct / seen',
    ),
    "accuracy by batch": (
        "accuracies = []",
        "accuracies.append((outputs.argmax(1) == targets).double().mean().item())",
        'shown["accuracy"] = sum(accuracies) / len(accuracies)',
    ),
    "accuracy of a function": (
        "meter = Meter()",
        "meter.update(accuracy(outputs, targets), inputs.size(0))",
        'shown["accuracy"] = meter.avg',
    ),
    "all predictions": (
        "predicted, truth = [], []",
        "predicted.extend(outputs.argmax(1).tolist())\ntruth.extend(targets.tolist())",
        'shown["accuracy"] = float(np.mean(np.array(predicted) == np.array(truth)))\nshown["seen"] = len(truth)',
    ),
    "all scores": (
        "scores = []",
        "scores.append(outputs.detach().cpu().numpy())",
        'shown["spread"] = np.concatenate(scores).std()',
    ),
    "all outputs": (
        "kept, labels = [], []",
        "kept.append(outputs.detach())\nlabels.append(targets)",
        'kept, labels = torch.cat(kept), torch.cat(labels)\nshown["accuracy"] = (kept.argmax(1) == labels).double().mean().item()',
    ),
    "confusion": (
        "confusion = np.zeros((4, 4), dtype=int)",
        "for t, p in zip(targets.tolist(), outputs.argmax(1).tolist()):\n    confusion[t, p] += 1",
        'shown["accuracy"] = confusion.diagonal().sum() / confusion.sum()',
    ),
    "confusion by tensor": (
        "confusion = torch.zeros(4, 4, dtype=torch.long)",
        "for t, p in zip(targets.view(-1), outputs.argmax(1).view(-1)):\n    confusion[t.long(), p.long()] += 1",
        'shown["hits"] = confusion.diag().sum().item()',
    ),
    "by class": (
        "hits = [0] * 4\ncounts = [0] * 4",
        "same = outputs.argmax(1) == targets\nfor i in range(len(targets)):\n    label = targets[i].item()\n    hits[label] += same[i].item()\n    counts[label] += 1",
        'for name in range(4):\n    shown[f"class {name}"] = hits[name] / max(counts[name], 1)',
    ),
    "worst": ("worst = 0.0", "worst = max(worst, loss.item())", 'shown["worst"] = worst'),
    "squares": (
        "squares = 0.0\ncount = 0",
        "squares += ((outputs.softmax(1) - F.one_hot(targets, 4)) ** 2).sum().item()\ncount += outputs.numel()",
        'shown["rmse"] = math.sqrt(squares / count)',
    ),
    "confidence": (
        "confidence = 0.0",
        "confidence += outputs.softmax(1).max(1).values.sum().item()",
        'shown["confidence"] = confidence / len(data)',
    ),
    "norms": (
        "norm = 0.0",
        "norm += outputs.norm(dim=1).mean().item()",
        'shown["norm"] = norm / len(loader)',
    ),
    "gradient": (
        "gradient = 0.0",
        "gradient = max(gradient, max(p.grad.abs().max().item() for p in model.parameters() if p.grad is not None))",
        'shown["gradient"] = gradient',
    ),
    "class counts": (
        "counts = torch.zeros(4)",
        "counts += torch.bincount(targets, minlength=4).cpu()",
        'shown["most"] = counts.max().item()',
    ),
}
SHOWS = {
    "every": 'print("%d %d %.6f" % (epoch, step, loss.item()))',
    "every few": 'if step % 2 == 0:\n    print(f"epoch {epoch} step {step}/{len(loader)} loss {loss.item():.6f}")',
    "seen": 'if step % 2 == 1:\n    print("[{}/{}] {:.6f}".format(step * len(inputs), len(loader.dataset), loss.item()))',
    "samples": 'if not step % 3:\n    print("batch of", inputs.size(0), "loss %.5f" % loss.item())',
    "nothing": "",
}
TESTS = {
    "sums": """\
def evaluate():
    model.eval()
    total, correct = 0.0, 0
    with torch.no_grad():
        for inputs, targets in test_loader:
            inputs, targets = inputs.to(device), targets.to(device)
            outputs = forward(inputs)
            total += F.cross_entropy(outputs, targets, reduction="sum").item()
            correct += outputs.argmax(1).eq(targets).sum().item()
    return total / len(test_loader.dataset), correct / len(test_loader.dataset)
""",
    "means of batches": """\
@torch.no_grad()
def evaluate():
    model.eval()
    losses, correct, count = [], 0, 0
    for inputs, targets in test_loader:
        inputs, targets = inputs.to(device), targets.to(device)
        outputs = forward(inputs)
        losses.append(criterion(outputs, targets).item())
        correct += (outputs.argmax(1) == targets).sum().item()
        count += targets.shape[0]
    return sum(losses) / len(losses), correct / count
""",
    "meters": """\
def evaluate():
    model.eval()
    losses, top1 = Meter(), Meter()
    with torch.no_grad():
        for i, (inputs, targets) in enumerate(test_loader):
            outputs = forward(inputs.to(device))
            loss = criterion(outputs, targets.to(device))
            losses.update(loss.item(), inputs.size(0))
            top1.update(accuracy(outputs, targets.to(device)), inputs.size(0))
            if i % 2 == 0:
                print("test %d %.6f (%.6f)" % (i, losses.val, losses.avg))
    return losses.avg, top1.avg
""",
    "everything": """\
def evaluate():
    model.eval()
    scores, truth = [], []
    with torch.no_grad():
        for inputs, targets in test_loader:
            scores.append(forward(inputs.to(device)).cpu())
            truth.append(targets)
    scores, truth = torch.cat(scores), torch.cat(truth)
    return F.cross_entropy(scores, truth).item(), (scores.argmax(1) == truth).double().mean().item()
""",
    "none": "",
}
ENDS = {
    "best": """\
if value > best:
    best = value
    torch.save(STATE, "best.pth")
    print("best", epoch)
""",
    "every epoch": 'torch.save({"epoch": epoch, "model": STATE, "optimizer": optimizer.state_dict()}, "last.pth")\n',
    "history": 'records.append({"epoch": epoch, **shown})\nwith open("history.json", "w") as file:\n    json.dump(records, file)\n',
    "lines": 'with open("log.csv", "a") as file:\n    file.write(",".join("%.6f" % it for it in shown.values()) + "\\n")\n',
    "patience": "if value > best:\n    best, waited = value, 0\nelse:\n    waited += 1\nif waited >= 2:\n    break\n",
    "plateau": "plateau.step(value)\n",
    "nothing": "",
}
METER = """\
class Meter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


def accuracy(outputs, targets):
    return (outputs.argmax(1) == targets).double().mean().item() * 100


def compute_loss(outputs, targets):
    weights = 1 + 0.1 * targets.double()
    return (weights * F.cross_entropy(outputs, targets, reduction="none")).mean()
"""


def program(seed: int) -> Program:
    """One program, and what its author decided."""
    author = Author(random.Random(seed))
    pick, happens = author.pick, author.happens
    dicts = happens("batches of dictionaries", 0.2)
    train, batch = author.chance.choice([(50, 15), (48, 12), (47, 16), (36, 6)])
    text = HEAD + "\n\n" + METER + "\n\n" + pick("data", DICTS if dicts else DATA)
    more = ", collate_fn=collate" if author.chosen["data"] == "collated dictionaries" else ""
    loader = pick("loader", LOADERS).replace("MORE", more)
    text += f"{loader}\ntest_loader = DataLoader(others, batch_size=8{more})\n"
    text = text.replace("BATCH", str(batch)).replace("TRAIN", str(train)).replace("TEST", "21")
    text += "\n\n" + pick("model", MODELS) + pick("wrap", WRAPS) + "\ncriterion = nn.CrossEntropyLoss()\n"
    text += pick("optimizer", OPTIMIZERS) + '\nscaler = torch.amp.GradScaler("cpu", enabled=False)\n'
    text += 'plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", patience=0)\n'
    text += "records, best, waited = [], 0.0, 0\n"
    several = author.chosen["model"] == "features and logits"
    text += f"\n\ndef forward(inputs):\n    return model(inputs){'[0]' if several else ''}\n"

    names = author.chance.sample(sorted(NUMBERS), author.chance.choice([1, 2, 2, 3]))
    names = _apart(names)
    before, inside, after = zip(*(NUMBERS[it] for it in names), strict=True)
    author.chosen["numbers"] = ", ".join(names)
    start, head, unpack = _batches(author, dicts)
    forward = "outputs = forward(inputs)" if happens("a forward function", 0.3) else _model(several)
    step = [unpack, forward]
    step += [pick("loss", LOSSES), pick("step", STEPS)]
    numbers = list(inside)
    step += numbers if not happens("numbers first", 0.2) or "gradient" in names else []
    if step[-len(numbers) :] != numbers:
        step[3:3] = numbers
    step.append(pick("shows", SHOWS))
    body = "\n".join([*before, *start, head, indent("\n".join(filter(None, step)), "    ")]) + "\n"
    training = happens("train()", 0.6)
    test = pick("test", TESTS)
    if dicts:
        test = test.replace("for inputs, targets in", "for batch in").replace(
            "for i, (inputs, targets) in", "for i, batch in"
        )
        test = re.sub(
            r"( +)(for .* in .*test_loader\)?:\n)",
            r'\1\2\1    inputs, targets = batch["image"], batch["label"]\n',
            test,
        )
    text += "\n\n" + test if test else ""
    epoch = ("model.train()\n" if training or test else "") + body
    shown = "shown = {}\n" + "\n".join(after)
    if happens("a function for an epoch", 0.6):
        text += "\n\ndef train_epoch(epoch):\n" + indent(epoch + "\n" + shown + "\nreturn shown\n", "    ")
        loop = "shown = train_epoch(epoch)\n"
    else:
        loop = epoch + "\n" + shown + "\n"
    loop += 'for name, number in shown.items():\n    print("%s %.6f" % (name, number))\n'
    value = "value = sum(shown.values())\n"
    if test:
        loop += 'test_loss, value = evaluate()\nprint("test %.6f %.6f" % (test_loss, value))\n'
    else:
        loop += value
    states = {"module": "model.module.state_dict()", "wrapped": "model.state_dict()"}
    end = pick("end", ENDS).replace("STATE", pick("state", states))
    loop += end
    main = f"for epoch in range(EPOCHS):\n{indent(loop, '    ')}\n"
    if happens("a main", 0.5):
        names_ = "global best, waited\n" if "best" in end or "waited" in end else ""
        main = f"def main():\n{indent(names_ + main, '    ')}\n\n\nif __name__ == \"__main__\":\n    main()\n"
    return Program({"train.py": text + "\n\n" + main}, author.chosen)


def _apart(names: list[str]) -> list[str]:
    """Those of some numbers that don't use the same names."""
    kept: list[str] = []
    taken: set[str] = set()
    for name in names:
        own = set(re.findall(r"\b([a-z]\w*)\b(?=[^=\n]*=)", NUMBERS[name][0]))
        if not own & taken:
            kept.append(name)
            taken |= own
    return kept


def _model(several: bool) -> str:
    return "outputs, features = model(inputs)" if several else "outputs = model(inputs)"


def _batches(author: Author, dicts: bool) -> tuple[list[str], str, str]:
    """What stands before the loop over batches, its head, and what makes ``inputs`` and ``targets``."""
    moves = {
        "to": "inputs, targets = inputs.to(device), targets.to(device)",
        "none": "",
        "one by one": "inputs = inputs.to(device, non_blocking=True)\ntargets = targets.to(device)",
    }
    given = "batch" if dicts else "(inputs, targets)"
    taken = 'inputs, targets = batch["image"], batch["label"]' if dicts else ""
    heads = {
        "enumerated": ("", f"for step, {given} in enumerate(loader):", taken),
        "unpacked later": ("", "for step, batch in enumerate(loader):", taken or "inputs, targets = batch"),
        "counted": ("step = -1", f"for {given.strip('()')} in loader:", f"step += 1\n{taken}".strip()),
        "drawn": (
            "batches = iter(loader)",
            "for step in range(len(loader)):",
            f"{given.strip('()')} = next(batches)\n{taken}".strip(),
        ),
        "zipped": ("", f"for step, {given} in zip(range(len(loader)), loader):", taken),
    }
    start, head, lines = heads[author.pick("loop", {it: it for it in heads})]
    return (
        [start] if start else [],
        head,
        "\n".join(filter(None, [lines, author.pick("moves", moves)])) or "pass",
    )
