"""What a training loop prints is the whole batch's, as it was: with an uneven last batch, on 2 and 3 processes."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import joints
import pytest
from forms import ungathered as convert
from own_batches import with_steps
from programs import AVERAGES

from dp2ddp.plan import Finding
from dp2ddp.source import Project
from parity.harness import Lab, Run
from parity.test_own_batches import same_numbers, trains_alike

PATH = Path("/example/train.py")
SETUP = (
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


"""
    + AVERAGES
    + """

def accuracy(output, target, topk=(1,)):
    maxk = max(topk)
    batch_size = target.size(0)
    _, pred = output.topk(maxk, 1, True, True)
    pred = pred.t()
    correct = pred.eq(target.view(1, -1).expand_as(pred))
    res = []
    for k in topk:
        correct_k = correct[:k].reshape(-1).float().sum(0, keepdim=True)
        res.append(correct_k.mul_(100.0 / batch_size))
    return res


torch.manual_seed(3)
data = TensorDataset(torch.randn(50, 8), torch.randint(4, (50,)))
loader = DataLoader(data, batch_size=15, shuffle=True)
others = DataLoader(TensorDataset(torch.randn(21, 8), torch.randint(4, (21,))), batch_size=6)
model = nn.DataParallel(nn.Linear(8, 4)).cuda()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
)
STEP = """\
        inputs, targets = inputs.cuda(), targets.cuda()
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
LOOP = "    for i, (inputs, targets) in enumerate(loader):\n"
CASES = {
    "metrics of torchmetrics": "from torchmetrics import SumMetric\n\nright, seen = SumMetric(), SumMetric()\nfor epoch in range(2):\n"
    + LOOP
    + STEP
    + """\
        right.update((outputs.argmax(1) == targets).sum())
    model.eval()
    with torch.no_grad():
        for i, (inputs, targets) in enumerate(others):
            seen.update((model(inputs.cuda()).argmax(1) == targets.cuda()).sum())
    model.train()
    print("%d %d" % (right.compute(), seen.compute()))
    right.reset()
    seen.reset()
""",
    "a model that is wrapped twice": "model = nn.DataParallel(model)\nfor epoch in range(2):\n"
    + LOOP
    + STEP
    + "        print('%.9f' % loss.item())\n",
    "gradients that hooks bound": """\
for name, parameter in model.named_parameters():
    if parameter.requires_grad:
        parameter.register_hook(lambda grad: grad.clamp(-0.02, 0.02))
for epoch in range(2):
"""
    + LOOP
    + STEP
    + "        print('%.9f' % loss.item())\n",
    "a function with a sampler's name of its own": """\
def made(apart):
    if apart:
        from torch.utils.data.distributed import DistributedSampler

        print(len(DistributedSampler(data, num_replicas=2, rank=0)))
    train_loader = DataLoader(data, batch_size=16, shuffle=True)
    return train_loader


loader = made(len(data) < 10)
for epoch in range(2):
"""
    + LOOP
    + STEP
    + '        print("%.9f" % loss.item())\n',
    "counts that the model hands out, one for each replica": """\
class Scored(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, inputs, targets):
        outputs = self.layer(inputs)
        right = outputs.argmax(1) == targets
        return nn.functional.cross_entropy(outputs, targets), right.sum(), (targets != 3).sum()


model = nn.DataParallel(Scored())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    total = right = counted = 0
    for step, (inputs, targets) in enumerate(loader):
        loss, correct, known = model(inputs, targets)
        loss = loss.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        right += correct.sum().item()
        counted += torch.sum(known).item()
        if step % 2 == 0:
            print("%.6f %.6f %d %d" % (total, right / counted, right, known.max().item()))
""",
    "pictures of the batch, in the loop and behind it": """\
from torchvision.io import read_image
from torchvision.utils import save_image


def save(name, images, names):
    for image, it in zip(images, names):
        save_image(image.detach().clamp(0, 1).view(-1, 1, 2, 2), f"{name}-{it}.png")


for epoch in range(2):
"""
    + LOOP
    + STEP
    + """\
        if i % 3 == 1:
            save_image(outputs.detach().sigmoid().view(-1, 1, 2, 2), "last.png")
    shown = [inputs.view(-1, 4), outputs]
    save("epoch", images=shown, names=["in", "out"])
for name in ("last", "epoch-in", "epoch-out"):
    image = read_image(f"{name}.png")
    print(name, list(image.shape), image.float().mean().item())
""",
    "sums under a condition of the batch's size": "correct = 0\n"
    + LOOP[4:]
    + STEP.replace("        ", "    ")
    + """\
    if inputs.size(0) == 15:
        correct += (outputs.argmax(1) == targets).sum().item()
print(correct)
""",
    "what decisions by the loss keep": "best, at, drop, last = 100.0, 0, 0, None\nfor epoch in range(2):\n"
    + LOOP
    + STEP
    + """\
        if last is not None and last - loss.item() > drop:
            drop, at = last - loss.item(), i
        if loss.item() < best:
            best = loss.item()
        last = loss.item()
print(f"{best:.6f} {drop:.6f} {at}")
""",
    "what a function of the project makes of samples, reduced": """\
def by_class(outputs, targets):
    hits = torch.zeros(4).index_add_(0, targets, (outputs.argmax(1) == targets).float())
    return hits / torch.bincount(targets, minlength=4).clamp(min=1)


found = []
"""
    + LOOP[4:]
    + STEP.replace("        ", "    ")
    + """\
    found.append(by_class(outputs.detach(), targets).mean().item())
print(f"{sum(found) / len(found):.6f}")
""",
    "metrics of a dict, each by its name": """\
import numpy as np


def right(outputs, targets):
    return np.sum(np.argmax(outputs, axis=1) == targets) / float(targets.size)


def spread(outputs, targets):
    return float(np.std(outputs[targets > 0]))


metrics, kept = {"right": right, "spread": spread}, []
"""
    + LOOP[4:]
    + STEP.replace("        ", "    ")
    + """\
    if i % 2 == 0:
        outputs, targets = outputs.detach().cpu().numpy(), targets.cpu().numpy()
        found = {name: metrics[name](outputs, targets) for name in metrics}
        found["loss"] = loss.item()
        kept.append(found)
means = {name: np.mean([it[name] for it in kept]) for name in kept[0]}
print(" ; ".join("{}: {:.5f}".format(name, value) for name, value in means.items()))
""",
    "scores of samples, added up in a new tensor": """\
import numpy as np


def scores(outputs, targets):
    found = []
    guesses, targets = outputs.argmax(1).cpu().numpy(), targets.cpu().numpy()
    for at in range(outputs.size(0)):
        found.append(np.sum(guesses[at] == targets[at]) / 2.0)
    return found


right = 0.0
"""
    + LOOP[4:]
    + STEP.replace("        ", "    ")
    + """\
    found = scores(outputs, targets)
    found = outputs.new_tensor([np.sum(found)], dtype=torch.float64)
    right += found.item()
print(right)
""",
    "losses of a dict, one by one": "for epoch in range(2):\n"
    + LOOP
    + STEP
    + """\
        losses = {"loss": loss, "size": outputs.detach().pow(2).mean()}
        rounded = [(round(it.item(), 5), round(2 * it.item(), 5)) for it in losses.values()]
        print({name: "%.5f" % it.item() for name, it in losses.items()}, rounded)
        print(" ".join("%s %.5f" % (name, it) for name, it in losses.items()))
        print(" ".join(f"{name}: {it.item():.5f}" for name, it in losses.items()))
        print(" ".join(f"{name} {it:.5f}" for name, it in zip(["loss", "size"], [loss, losses["size"]])))
""",
    "sums for what comes after the loop": """\
for epoch in range(2):
    running = 0.0
    weighted = 0
    correct = 0
    total = 0
"""
    + LOOP
    + STEP
    + """\
        running += loss.item()
        weighted += loss.item() * inputs.size(0)
        correct += outputs.argmax(1).eq(targets).sum().item()
        total += len(targets)
    print("%.9f %.9f %d %d" % (running / (i + 1), weighted / total, correct, total))
    correct = 0
    total = 0
    for inputs, targets in others:
        with torch.no_grad():
            correct += model(inputs.cuda()).argmax(1).eq(targets.cuda()).sum().item()
        total += targets.size(0)
    print(correct, total)
""",
    "meters, and a function that evaluation has too": """\
def run(epoch):
    losses, top1, top2 = Meter(), Meter(), Meter()
"""
    + LOOP
    + STEP
    + """\
        prec1, prec2 = accuracy(outputs.data, targets, topk=(1, 2))
        losses.update(loss.item(), inputs.size(0))
        top1.update(prec1.item(), inputs.size(0))
        top2.update(prec2[0], inputs.size(0))
        if i % 2 == 0:
            print("[{}/{}]".format(i * len(inputs), len(loader.dataset)))
            outputs = "{0.val:.6f} {0.avg:.6f} {1.val:.3f} {1.avg:.3f}".format(losses, top1)
            print(outputs)
    print("%.3f" % top2.avg, losses.count)
    return losses.avg


def test():
    top1 = Meter()
    with torch.no_grad():
        for inputs, targets in others:
            (prec1,) = accuracy(model(inputs.cuda()), targets.cuda())
            top1.update(prec1.item(), inputs.size(0))
    return top1.avg


for epoch in range(2):
    print("%.6f" % run(epoch))
    print("%.3f" % test())
""",
    "the samples of what is moved, in every batch": """\
device = torch.device("cuda")
for epoch in range(2):
"""
    + LOOP
    + STEP.replace(".cuda()", ".to(device)")
    + """\
        print("[%d/%d] %.9f" % (i * len(inputs), len(loader.dataset), loss.item() / len(targets)))
""",
    "the samples of what is moved where it is used": """\
for epoch in range(2):
    running = 0.0
    for inputs, targets in loader:
        loss = criterion(model(inputs.cuda()), targets.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item() * len(inputs)
    print("%.9f" % (running / len(loader.dataset)))
""",
    "some samples of each batch, under an iterator with a name": """\
rounds = reversed(range(2))
for epoch in rounds:
    correct = 0
    seen = 0
    others_seen = 0
"""
    + LOOP
    + STEP
    + """\
        chosen = torch.where(targets != 2)[0]
        correct += (outputs.argmax(1)[chosen] == targets[chosen]).sum(0).item()
        seen += chosen.shape[0]
        others_seen += len(chosen)
        print("%.9f" % loss.item())
    print("%d %d %d" % (correct, seen, others_seen))
""",
    "a loss that is given to itself, under conditions": """\
scale, kind = 2, "classes"
for epoch in range(2):
    running = 0
    for i, (inputs, targets) in enumerate(loader):
        outputs = model(inputs.cuda())
        if kind == "classes":
            loss = criterion(outputs, targets.cuda())
        elif kind == "numbers":
            loss = nn.MSELoss()(outputs[:, 0], targets.cuda().float())
        if scale > 1:
            loss = loss.mean()
        if scale > 1:
            loss = loss / scale
        loss.backward()
        running += loss.item()
        if (i + 1) % scale == 0:
            optimizer.step()
            optimizer.zero_grad()
            print("%.9f" % (running / (i + 1)))
""",
    "a ratio where there is anything to divide by": """\
shares = Meter()
"""
    + LOOP[4:]
    + STEP.replace("        ", "    ")
    + """\
    chosen = (targets == 3).sum()
    hits = ((outputs.argmax(1) == targets).long() * (targets == 3).long()).sum()
    if not chosen <= 4:
        share = float(hits) / float(chosen)
    else:
        share = 0
    shares.update(share, 1)
    print("%.6f %.6f" % (share, shares.avg))
""",
    "what a step hands back beside the loss": """\
def step(inputs, targets):
    outputs = model(inputs.cuda())
    targets = targets.cuda()
    loss = criterion(outputs, targets)
    (prec,) = accuracy(outputs.data, targets.data)
    prec = prec[0]
    return loss, prec


def run():
    losses, precisions = Meter(), Meter()
    for i, (inputs, targets) in enumerate(loader):
        loss, prec1 = step(inputs, targets)
        losses.update(loss.item(), targets.size(0))
        precisions.update(prec1, targets.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("{:.6f} {:.3f} {:.3f}".format(losses.avg, precisions.val, precisions.avg))


for epoch in range(2):
    run()
""",
    "sizes that a step hands back": """\
def step(inputs, targets):
    inputs, targets = inputs.cuda(), targets.cuda()
    outputs = model(inputs)
    loss = criterion(outputs, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    correct = (outputs.argmax(1) == targets).sum().item()
    return loss.item(), correct, inputs.size(0)


def run():
    losses, correct, total = Meter(), 0, 0
    for inputs, targets in loader:
        loss, right, size = step(inputs, targets)
        losses.update(loss, size)
        correct += right
        total += size
    print(f"{losses.avg:.6f} of {losses.count}: {correct} / {total}")


for epoch in range(2):
    run()
""",
    "numbers that a step hands back by name": """\
def step(inputs, targets):
    outputs = model(inputs.cuda())
    loss = criterion(outputs, targets.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    correct = (outputs.argmax(1) == targets.cuda()).sum().item()
    return {"loss": loss.item(), "correct": correct, "size": inputs.size(0)}


for epoch in range(2):
    losses, correct, total = Meter(), 0, 0
    for inputs, targets in loader:
        numbers = step(inputs, targets)
        losses.update(numbers["loss"], numbers["size"])
        correct += numbers["correct"]
        total += numbers["size"]
    print(f"{losses.avg:.6f} of {losses.count}: {correct} / {total}")
""",
    "sums that are shown in the loop": """\
for epoch in range(2):
    shown = 0
    seen = 0
"""
    + LOOP
    + STEP
    + """\
        seen += targets.size(0)
        shown += (outputs.argmax(1) == targets).sum().item()
        share = (outputs.argmax(1) == targets).float().mean()
        print(f"{seen} {shown} {shown / seen:.6f} {share.item():.6f}")
        if loss.item() < 0.2:
            break
""",
    "sums that are shown and kept": """\
history, every = [], 0
for epoch in range(2):
    seen = 0
    weighted = 0.0
"""
    + LOOP
    + STEP
    + """\
        seen += targets.size(0)
        weighted += loss.item() * targets.size(0)
        print(seen)
    every += seen
    history.append(seen)
    history.append((seen, "%.6f" % weighted))
print(history, every)
""",
    "a log that only one process writes": """\
log = open("log.txt", "w")
for epoch in range(2):
"""
    + LOOP
    + STEP
    + """\
        if i % 2 == 1:
            log.write("%d\\n" % i)
            log.write("%.6f\\n" % loss.item())
    print("%.6f" % loss.item())
log.close()
print(open("log.txt").read())
""",
    "rows of a log, and lines of its samples": """\
import csv
log, lines = open("log.csv", "w"), open("lines.txt", "w")
rows = csv.writer(log)
for epoch in range(2):
"""
    + LOOP
    + STEP
    + """\
        hits = (outputs.argmax(1) == targets).sum().item()
        rows.writerow([epoch, i, hits, len(targets)])
        lines.write(f"{hits / len(targets):.6f}\\n")
        for guess, truth in zip(outputs.argmax(1).tolist(), targets.tolist()):
            lines.write(f"{guess} {truth}\\n")
log.close()
lines.close()
print(open("log.csv").read())
print(open("lines.txt").read())
""",
    "counts in an array": """\
import numpy as np
for epoch in range(2):
    counts = np.zeros((4, 4))
"""
    + LOOP
    + STEP
    + """\
        np.add.at(counts, (targets.numpy(), outputs.argmax(1).numpy()), 1)
    print(counts.tolist())
""",
    "a closure that counts, and what is computed apart from the batches": """\
def track():
    right, seen = [0], [0]

    def add(outputs, targets):
        right[0] += (outputs.argmax(1) == targets).sum().item()
        seen[0] += len(targets)

    def get():
        return right[0] / seen[0]

    return add, get


for epoch in range(2):
    add, get = track()
    for inputs, targets in loader:
        inputs, targets = inputs.cuda(), targets.cuda()
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        add(outputs, targets)
    print(f"{get():.6f}")
    shown = model(data[:5][0].cuda())
    print(len(shown), f"{shown.sum().item():.6f}")
""",
    "losses by their names": "sums, count = {'first': 0.0, 'second': 0.0}, 0\n"
    + LOOP[4:]
    + STEP.replace("        ", "    ")
    + """\
    for name, value in zip(("first", "second"), (loss, outputs.pow(2).mean())):
        sums[name] += value.item() * len(targets)
    count += len(targets)
print({name: round(value / count, 6) for name, value in sums.items()})
""",
    "means of what a model hands out, of parts of several sizes": """\
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(x), x.sum(1)


def score(outputs):
    with torch.no_grad():
        return outputs.tanh().mean().item()


model = nn.DataParallel(Two()).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=15, sampler=torch.utils.data.RandomSampler(data))
for inputs, targets in loader:
    inputs, targets = inputs.cuda(), targets.cuda()
    outputs, found = model(inputs)
    loss = criterion(outputs, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{outputs.detach().abs().mean().item():.6f} {found.mean().item():.6f} {score(outputs):.6f}")
""",
    "an assertion on the batch's size": LOOP[4:]
    + STEP.replace("        ", "    ")
    + """\
    assert len(targets) in (15, 5)
    assert not (targets < 4).sum() < 5
print("trained")
""",
    "an object that is called": """\
class Score:
    def __init__(self):
        self.hits, self.count = 0, 0

    def __call__(self, outputs, targets):
        self.hits += (outputs.argmax(1) == targets).sum().item()
        self.count += len(targets)

    @property
    def value(self):
        return self.hits / self.count


for epoch in range(2):
    score, right = Score(), []
"""
    + LOOP
    + STEP
    + """\
        score(outputs, targets)
        right.append(outputs.argmax(1) == targets)
    print(f"{score.value:.6f} {score.count} {torch.cat(right).float().mean().item():.6f}")
""",
    "predictions for a metric": """\
for epoch in range(2):
    said, true = [], []
"""
    + LOOP
    + STEP
    + """\
        said.extend(outputs.argmax(1).tolist())
        true.append(targets.cpu().numpy())
    true = [int(it) for part in true for it in part]
    print(sorted(zip(said, true)))
""",
    "sums that begin together, and loaders of one factory": """\
def made(*sizes):
    data = TensorDataset(torch.randn(sizes[0], 8), torch.randint(4, sizes[:1]))
    return DataLoader(data, batch_size=sizes[1], shuffle=sizes[0] == 50)


def test(loader):
    correct, total = 0, 0
    with torch.no_grad():
        for inputs, targets in loader:
            correct += (model(inputs.cuda()).argmax(1).cpu() == targets).sum().item()
            total += len(targets)
    print("%.6f" % (correct / total), total)


loader, others = made(50, 15), made(21, 6)
for epoch in range(2):
    (running, steps), seen = (0.0, 0), 0
    total, correct = 0, 0
"""
    + LOOP
    + STEP
    + """\
        running, steps, seen = running + loss.item(), steps + 1, seen + 1
        total += len(targets)
        correct += outputs.argmax(1).eq(targets).sum().item()
    print("%.9f %d %d %d" % (running / steps, seen, correct, total))
    test(others)
""",
    "batches of a data set of tensors, for epochs that settings say": """\
import json

settings = json.loads('{"epochs": 2}')
pictures = DataLoader(torch.randn(50, 8), batch_size=15, shuffle=True, collate_fn=None)
for epoch in range(1, settings["epochs"] + 1):
    correct, seen = 0, 0
    for i, inputs in enumerate(pictures):
        inputs = inputs.to("cuda")
        outputs = model(inputs)
        loss = outputs.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        correct += (outputs.argmax(1) == 0).float().sum().item()
        seen += inputs.shape[0]
        print("%d %.6f %.6f" % (i * len(inputs), loss.item() / len(inputs), correct / seen))
""",
    "samples of tensors that are never moved": """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4))

    def forward(self, rows):
        return self.layers(rows)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, inputs):
        return self.net(inputs)


model = nn.DataParallel(Model())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    total = correct = count = 0
    for inputs, targets in loader:
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(inputs)
        correct += (outputs.argmax(1) == targets).sum().item()
        count += len(targets)
    print("%.6f %.6f %d" % (total / len(loader.dataset), correct / count, count))
""",
    "entries of batches by name": """\
rows = [{"x": torch.randn(8), "y": torch.randint(4, ())} for _ in range(50)]
for epoch in range(2):
    total = count = 0
    for batch in DataLoader(rows, batch_size=15, shuffle=True):
        inputs = batch["x"].to("cuda", non_blocking=True)
        loss = criterion(model(inputs), batch["y"].to("cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(inputs)
        count += len(inputs)
    print("%.6f %d" % (total / count, count))
""",
    "entries of batches by name, moved one by one": """\
rows = [{"x": torch.randn(8), "y": torch.randint(4, ()), "name": f"s{i}"} for i in range(50)]


def move(batch, device):
    for key, value in batch.items():
        if isinstance(value, torch.Tensor):
            batch[key] = value.to(device)
    return batch


for epoch in range(2):
    total = count = 0
    for batch in DataLoader(rows, batch_size=15, shuffle=True):
        move(batch, "cuda")
        for key, value in list(batch.items()):
            if key != "name":
                batch[key] = value.cuda(non_blocking=True)
        for i, key in enumerate(batch.keys()):
            if i < 1:
                batch[key] = batch[key] * 2.0
        loss = criterion(model(batch["x"]), batch["y"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch["x"])
        count += len(batch["name"])
    print("%.6f %d" % (total / count, count))
""",
    "entries under keys of several parts": """\
class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(8, 4) for _ in range(2)])

    def forward(self, x):
        return {("disp", scale): head(x) for scale, head in enumerate(self.heads)}


rows = [{("x", 0): torch.randn(8), ("x", -1): torch.randn(8), "y": torch.randint(4, ())} for _ in range(50)]
model = nn.DataParallel(Decoder()).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for inputs in DataLoader(rows, batch_size=15, shuffle=True):
        for key, value in inputs.items():
            inputs[key] = value.cuda()
        outputs, losses = model(inputs[("x", 0)]), {}
        for scale in range(2):
            outputs["depth", 0, scale] = outputs[("disp", scale)] + inputs["x", -1][:, :4]
            outputs[f"more_{scale}"] = outputs["depth", 0, scale] * 2
            losses["loss", scale] = criterion(outputs[f"more_{scale}"], inputs["y"])
        losses["loss"] = sum(losses[("loss", scale)] for scale in range(2)) / 2
        optimizer.zero_grad()
        losses["loss"].backward()
        optimizer.step()
        print(f"{losses['loss'].item():.6f} {losses['loss', 0].item():.6f} {losses['loss', 1]:.6f}")
""",
    "names that a function reads, given something else when it has run": """\
class Spread(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


def fit():
    for inputs, targets in loader:
        loss = criterion(model(inputs.cuda()), targets.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("%.6f" % loss.item())


def save(path):
    torch.save(model.state_dict(), path)


criterion = nn.CrossEntropyLoss(reduction="sum")
fit()
save("model.pt")
criterion = nn.CrossEntropyLoss()
model = Spread()
print("%.6f" % criterion(model(data[:6][0])[:, :4], data[:6][1]).item())
model = nn.Linear(8, 4)
model.load_state_dict({name[7:]: value for name, value in torch.load("model.pt").items()})
print("%.6f" % model(data[:6][0]).sum().item())
""",
    "a rank with one sample, squeezed": """\
from torch.nn import functional as F

for epoch in range(2):
"""
    + LOOP
    + """\
        outputs = model(inputs.cuda())[:, :1]
        loss = F.mse_loss(outputs.squeeze(), targets.float().cuda()) + torch.squeeze(outputs).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("%.6f" % loss.item())
""",
    "the least, the greatest and the first of several rows in one line": LOOP[4:]
    + STEP.replace("        ", "    ")
    + """\
    highest = outputs.max()
    print(targets.min().item(), "%.6f" % inputs.max().item(), targets.max().item(), targets.sum().item())
    print("{} {:.6f} {}".format(targets[0].item(), highest.item(), targets.cpu().numpy()[0]), targets.tolist()[:4])
    print(["%.5f" % it for it in inputs[0].tolist()], f"{outputs[0, 1].item():.6f}", targets[-1].item(), targets[:3])
""",
    "rows that the program picks itself, by their numbers": """\
import numpy as np

order = np.random.RandomState(0).permutation(50)
kept = []
for i in range(0, 50, 12):
    index = order[i : i + 12]
    inputs, targets = data.tensors[0][index], data.tensors[1][index]
"""
    + STEP.replace("        ", "    ")
    + """\
    first = inputs[0]
    kept.append(round(first.sum().item(), 5))
    print(index.min(), index[0], np.max(index), max(index.tolist()), index.sum(), "%.6f" % inputs.max().item())
print(kept)
""",
    "a mean that a loop asks for again and again, shown after it": LOOP[4:]
    + """\
    inputs, targets, n = inputs.cuda(), targets.cuda(), 0
    loss = criterion(model(inputs), targets)
    while 0.8 < loss and loss < 5 and n < 3:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss = criterion(model(inputs), targets)
        n += 1
    print(n, "%.6f" % loss.item())
""",
    "means of the same words that are not the same": """\
class Steps:
    def run(self, inputs, targets):
        self.loss, found = criterion(model(inputs), targets), {}
        optimizer.zero_grad()
        self.loss.backward()
        optimizer.step()
        print("%.6f" % self.loss.item())
        self.loss = criterion(model(inputs), targets)
        print("%.6f" % self.loss.item())
        found["loss"] = criterion(model(inputs), targets)
        print("%.6f %.6f" % (found["loss"].item(), criterion(model(inputs), targets).item()))
        optimizer.step()
        found["loss"] = criterion(model(inputs), targets)
        print("%.6f %.6f" % (found["loss"].item(), criterion(model(inputs), targets).item()))
        loss = criterion(model(inputs), targets).detach()
        for at in range(3):
            print("%.6f" % loss.item())
            if at % 2:
                loss = criterion(model(inputs), targets) * 2
            print("%.6f" % loss.item())
            loss.mul_(0.5)
            print("%.6f" % loss.item())


steps = Steps()
for inputs, targets in loader:
    steps.run(inputs.cuda(), targets.cuda())
""",
    "what an object keeps in a list until it is shown": """\
class Writer:
    def __init__(self):
        self.rows, self.last = [], {}

    def scalar(self, name, value, step):
        self.rows.append((name, float(value), step))

    def text(self, name, text, step):
        self.rows.append((name, text, step))

    def put(self, **named):
        self.last.update(named)

    def close(self):
        print([(name, round(it, 5) if isinstance(it, float) else it, step) for name, it, step in self.rows])
        print(self.last)


writer = Writer()
"""
    + LOOP[4:]
    + STEP.replace("        ", "    ")
    + """\
    writer.scalar("loss", loss.item(), i)
    writer.scalar("greatest", outputs.max(), i)
    writer.scalar(name="least", value=inputs.min().item(), step=i)
    writer.text("first", f"label {targets[0].item()} of {len(targets)}", i)
    writer.put(first=targets[0].item(), last=targets.tolist()[-1])
writer.close()
""",
    "samples of a part of the batch that has no name": """\
table = {}
for i, batch in enumerate(loader):
    inputs, targets = batch
"""
    + STEP.replace("        ", "    ")
    + """\
    table[i] = dict(n=len(batch[0]), first=batch[1][0].item(), last=batch[1][-1].item())
    print(table[i], batch[1][0].item())
print(table)
""",
    "what is written where it is printed": """\
import sys
from pprint import pprint

console = sys.stdout
"""
    + LOOP[4:]
    + STEP.replace("        ", "    ")
    + """\
    right = outputs.argmax(1).eq(targets).sum().item()
    sys.stdout.write("%d of %d, %.6f\\n" % (right, len(targets), right / len(targets)))
    sys.stdout.writelines([f"{outputs.max().item():.6f}", str(targets[0].item()) + "\\n"])
    console.write("{:.6f} {}\\n".format(loss.item(), right))
    pprint(right / len(targets))
""",
    "a schedule by the loss": """\
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
for epoch in range(5):
    running = 0.0
"""
    + LOOP
    + STEP
    + """\
        running += loss.item()
    schedule.step(running)
    print("%.6f" % running, optimizer.param_groups[0]["lr"])
""",
}


BARE = """\
import os


def masked(outputs, targets):
    mask = (targets > 1).float()
    if mask.sum() == 0:
        return outputs.sum() * 0
    return (nn.functional.cross_entropy(outputs, targets, reduction="none") * mask).sum() / mask.sum()


class WithLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, inputs, targets):
        outputs = self.model(inputs)
        loss = masked(outputs, targets)
        return outputs, loss, {"loss": loss}


class Trainer:
    def __init__(self, model):
        self.both = WithLoss(model)

    def place(self, several):
        if several > 1:
            self.both = nn.DataParallel(self.both).cuda()
        else:
            self.both = self.both.cuda()

    def run(self, phase):
        both = self.both
        if phase != "train":
            both = self.both.module
        meters = {name: Meter() for name in ("loss",)}
        for inputs, targets in even:
            outputs, loss, shown = both(inputs.cuda(), targets.cuda())
            loss = loss.mean()
            if phase == "train":
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            for name in meters:
                meters[name].update(shown[name].mean().item(), inputs.size(0))
            print("%.6f" % loss.item())


even = DataLoader(data, batch_size=12, drop_last=True)
bare = nn.Linear(8, 4)
optimizer = torch.optim.SGD(bare.parameters(), lr=0.1)
trainer = Trainer(bare)
trainer.place(int(os.environ.get("SEVERAL", "2")))
trainer.run("train")
"""


def runs(lab: Lab, text: str, processes: int, exact: bool = True, form: str = "sharded") -> tuple[Run, Run]:
    conversion = convert(Project.of({PATH: text}), exact=exact)
    assert not conversion.errors and not [it for it in conversion.findings if it.is_left], conversion.findings
    assert conversion.scripts[0].tier.startswith(form)
    before, after = lab.place("before") / "train.py", lab.place("after") / "train.py"
    before.write_text(text)
    after.write_text(conversion.changes[0].after)
    return (
        lab.run(before, replicas=processes, timeout=60).ok(),
        lab.run(after, processes=processes, timeout=60).ok(),
    )


@pytest.mark.sample(processes=(2, 3), every=9)
@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("name", CASES)
def test_what_is_printed_is_what_it_was(lab: Lab, name: str, processes: int) -> None:
    before, after = runs(lab, SETUP + CASES[name], processes)
    assert len(after.ranks) == processes
    assert after.printed == before.printed != ""


ASKED = {
    "the size of the batch": "len(inputs) != 15",
    "with the number of the batch": "i * 15 + len(inputs) >= 50",
    "and the size of the one before": "last is not None and last.size(0) != inputs.size(0)",
    "what no sum tells": "inputs.abs().max() > 3",
    "the model's outputs": "(outputs.argmax(1) == 2).all() or (outputs > 1.2).any()",
    "the loss": "loss.item() > 1.4",
    "the loss, asked for a number": "not torch.isnan(loss) and loss > 1.4",
    "a sum of the labels": "targets.sum() > 18",
}


@pytest.mark.sample(processes=(2, 3), every=3)
@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("asked", ASKED)
def test_what_is_shown_under_a_condition_is_shown_where_the_whole_batch_meets_it(
    lab: Lab, asked: str, processes: int
) -> None:
    shown = f"        if {ASKED[asked]}:\n            print('yes', epoch, i)\n        last = inputs\n"
    body = f"last = None\nfor epoch in range(3):\n{LOOP}{STEP}{shown}print('done')\n"
    before, after = runs(lab, SETUP + body, processes, form="")
    assert after.printed == before.printed and before.printed.count("yes") in range(1, 12)


def test_sizes_of_one_batch_are_compared_on_each_rank() -> None:
    """A part has as many labels as inputs where the batch has; batches of several loaders may be cut alike all the same."""
    test = "        if inputs.size(0) != targets.size(0):\n            print('odd', i)\n"
    text = f"{SETUP}for epoch in range(2):\n{LOOP}{test}{STEP}"
    assert "ddp.sum" not in convert(Project.of({PATH: text})).changes[0].after
    pairs = text.replace(
        "(inputs, targets) in enumerate(loader)",
        "((inputs, _), (_, targets)) in enumerate(zip(loader, loader))",
    )
    assert "if inputs.size(0) != targets.size(0):" not in convert(Project.of({PATH: pairs})).changes[0].after


@pytest.mark.parametrize("processes", [2, 3])
def test_a_loss_within_a_model_that_may_stay_bare_is_each_replica_s(lab: Lab, processes: int) -> None:
    """Its numbers are of the samples that a replica has: nothing in it is made the whole batch's."""
    _, run = runs(lab, SETUP + BARE, processes, exact=False)
    assert len(run.printed.split()) == 4
    after = convert(Project.of({PATH: SETUP + BARE})).changes[0].after
    within = after.partition("def masked")[2].partition("class Trainer")[0]
    assert "mask.sum()" in within and "ddp" not in within


ELSEWHERE = """
def quality(outputs, targets):
    return [float(it) for it in (outputs.argmax(1) == targets)]


def note(epoch, value, count):
    print(epoch, round(value, 6), count)


def show(value):
    print(value)
"""


@pytest.mark.parametrize("shuffled", [True, False])
def test_what_code_that_is_not_at_hand_may_show_is_of_all(lab: Lab, shuffled: bool) -> None:
    """The module is missing where the program is converted, and there where it trains."""
    body = f"{LOOP[4:]}{STEP.replace('        ', '    ')}    show(quality(outputs, targets))\n"
    if shuffled:
        body = f"for epoch in range(2):\n    found = []\n{LOOP}{STEP}        found.extend(quality(outputs, targets))\n"
        body += "    note(epoch, sum(found) / len(found), len(found))\n"
    setup = SETUP.replace("shuffle=True", f"shuffle={shuffled}")
    text = "from elsewhere import note, quality, show\n" + setup + body
    (change,) = convert(Project.of({PATH: text}), exact=shuffled).changes
    before, after = lab.place("before") / "train.py", lab.place("after") / "train.py"
    for script, its in ((before, text), (after, change.after)):
        script.write_text(its)
        (script.parent / "elsewhere.py").write_text(ELSEWHERE)
    expected = lab.run(before, replicas=2, timeout=60).ok()
    found = lab.run(after, processes=2, timeout=60).ok()
    assert expected.printed and same_numbers(expected.printed, found.printed)


@pytest.mark.parametrize("test", ["inputs.size(0) < 15", "len(inputs) != loader.batch_size"])
def test_no_sample_is_drawn_twice_where_the_size_of_a_batch_decides(lab: Lab, test: str) -> None:
    """Else the last batch would be as large as the others, and not be left out."""
    skips = f"        if {test}:\n            continue\n"
    body = f"steps, total = 0, 0.0\nfor epoch in range(2):\n{LOOP}{skips}{STEP}        steps += 1\n        total += loss.item()\n"
    before, after = runs(lab, SETUP + body + "print(steps, round(total, 9))\n", 2, exact=False)
    assert before.printed == after.printed and before.printed.startswith("6 ")


@pytest.mark.parametrize("processes", [2, 3])
def test_no_sample_is_drawn_twice_for_a_loss_that_is_a_sum(lab: Lab, processes: int) -> None:
    """The last batch has five samples: one more would make its steps larger."""
    text = SETUP.replace("nn.CrossEntropyLoss()", 'nn.CrossEntropyLoss(reduction="sum")')
    body = f"for epoch in range(2):\n{LOOP}{STEP}    print(round(loss.item(), 6), len(targets))\n"
    before, after = runs(lab, text.replace("lr=0.1", "lr=0.01") + body, processes, exact=False)
    assert before.printed == after.printed and before.printed.count(" 5\n") == 2


def test_sums_that_begin_in_one_line_are_combined_once_after_the_loop_too() -> None:
    text = SETUP + CASES["sums for what comes after the loop"]
    lines = "    running = 0.0\n    weighted = 0\n    correct = 0\n    total = 0\n"
    one = "    running, weighted, correct, total = 0.0, 0, 0, 0\n"
    several, single = (
        convert(Project.of({PATH: it})).changes[0].after for it in (text, text.replace(lines, one))
    )
    assert "ddp.sum((" in single and single == several.replace(lines, one)


def test_the_entries_of_what_is_asked_for_one_by_name_are_no_samples() -> None:
    text = SETUP + LOOP[4:] + STEP.replace("        ", "    ").replace(".cuda()", ".to('cuda')")
    text += "    print(len(inputs))\n"
    counted = "ddp.sum(len(inputs))"
    assert counted in convert(Project.of({PATH: text})).changes[0].after
    asked = text.replace("model(inputs)", 'model(inputs["image"])')
    assert counted not in convert(Project.of({PATH: asked})).changes[0].after
    moved = text.replace(
        "inputs, targets = inputs.to('cuda'), targets.to('cuda')", "targets = targets.to('cuda')"
    )
    for given, sums in (
        ("inputs.to('cuda')", 1),
        ("**inputs.to('cuda')", 0),
        ("inputs.to('cuda')['image']", 0),
    ):
        after = (
            convert(Project.of({PATH: moved.replace("model(inputs)", f"model({given})")})).changes[0].after
        )
        assert after.count(counted) == sums


@pytest.mark.parametrize(
    "use", ["model(torch.cat(views))", "sum(model(it) for it in views)", "model(views[0])"]
)
def test_the_length_of_what_may_be_a_list_is_not_that_of_the_batch(use: str) -> None:
    """Two views of each image: ``len`` of them is 2, on all ranks."""
    text = SETUP + "for views, targets in loader:\n    loss = criterion(USE[: len(targets)], targets)\n"
    text += "    loss.backward()\n    optimizer.step()\n    print(len(views))\n"
    after = convert(Project.of({PATH: text.replace("USE", use)})).changes[0].after
    assert "print(len(views))" in after


def test_a_number_of_all_that_the_model_hands_out(lab: Lab) -> None:
    text = (
        SETUP.replace("nn.DataParallel(nn.Linear(8, 4))", "nn.DataParallel(Pairs(8, 4))").replace(
            "torch.manual_seed(3)",
            "class Pairs(nn.Linear):\n    def forward(self, inputs, targets):\n"
            "        return super().forward(inputs), targets\n\n\ntorch.manual_seed(3)",
        )
        + LOOP[4:]
        + STEP.replace("        ", "    ")
        .replace("model(inputs)", "model(inputs, targets)")
        .replace("criterion(outputs, targets)", "criterion(*outputs)")
        + "    print(accuracy(*outputs)[0].item())\n"
    )
    before, after = runs(lab, text, 2)
    assert after.printed == before.printed != ""


def test_a_number_of_selected_rows(lab: Lab) -> None:
    shown = "    kept = targets > 1\n    error = torch.mean(torch.abs(outputs[kept]))\n"
    shown += "    spread = outputs[kept].std()\n    print('%.9f %.9f' % (error.item(), spread.item()))\n"
    text = SETUP + LOOP[4:] + STEP.replace("        ", "    ") + shown
    before, after = runs(lab, text, 2)
    assert after.printed == before.printed != ""


def left_where_sharded(text: str, form: str = "whole batch") -> list[Finding]:
    """What a user has to do where a program is sharded on his word; without it, it has ``form``."""
    project = Project.of({PATH: text})
    exact = convert(project)
    assert exact.scripts[0].tier == form and not any(it.is_left for it in exact.findings)
    asked = convert(project, sharded=True)
    assert asked.scripts[0].tier == "sharded" and "whole_batch" not in asked.changes[0].after
    return [it for it in asked.findings if it.is_left]


def test_what_a_function_hands_to_the_one_that_reports_is_of_all(lab: Lab) -> None:
    """Though it trains, and stands in the same call."""
    body = "ranks = []\n" + LOOP[4:] + STEP.replace("        ", "    ")
    body += "    ranks += (outputs.argsort(dim=1) == targets[:, None]).nonzero()[:, 1].tolist()\n"
    train = "def train():\n" + indent(body + "return {'rank': sum(ranks) / len(ranks)}\n\n\n", "    ")
    report = (
        "def report(numbers):\n    for name, number in numbers.items():\n        print(name, number)\n\n\n"
    )
    before, after = runs(lab, SETUP + train + report + "report(train())\n", 2)
    assert after.printed == before.printed != ""


COUNTS = SETUP + "counts = torch.zeros(4, 4)\n" + LOOP[4:] + STEP.replace("        ", "    ")
COUNTED = {
    "by output": "    for target, output in zip(targets, outputs.argmax(1)):\n        counts[target, output] += 1\n",
    "by label": "    for target in targets.tolist():\n        counts[target, 0] += 1\n",
}


@pytest.mark.parametrize("name", COUNTED)
def test_what_is_counted_sample_by_sample_is_of_all(lab: Lab, name: str) -> None:
    text = COUNTS + COUNTED[name] + "print(counts.tolist())\n"
    assert convert(Project.of({PATH: text})).scripts[0].tier == "sharded"
    before, after = runs(lab, text, 2)
    assert after.printed == before.printed != ""


MARKED = "    for i in range(inputs.size(0)):\n        if inputs[i, 0] > 0:\n            WHAT[i] = 3\n"
WRITES = """
def mark(rows):
    rows[rows == 1] = 3


def share(guesses, targets):
    guesses[guesses == 1] = 0
    return (guesses[1:] == targets[:-1]).float().mean().item()


def spread(outputs, targets):
    targets[targets == 1] = 0
    same = (targets[:, None] == targets[None]).float()
    return ((outputs[:, None] - outputs[None]).pow(2).sum(2) * same).mean()


"""
# What is written into before the loss, between the forward and the loss, and after the step; and the form.
WRITTEN = {
    "labels, sample by sample": (MARKED.replace("WHAT", "targets"), "", "", "sharded"),
    "labels where a mask is": ("    targets[inputs[:, 0] > 0] = 3\n", "", "", "sharded"),
    "labels, in a loss of pairs": ("", "    extra = spread(outputs, targets)\n", "", "whole batch"),
    "guesses, sample by sample": ("", "", MARKED.replace("WHAT", "guesses"), "sharded"),
    "guesses that are changed": (
        "",
        "",
        MARKED.replace("[i] = 3", "[i] += 1").replace("WHAT", "guesses"),
        "whole batch",
    ),
    "guesses where a mask is": ("", "", "    guesses[inputs[:, 0] > 0] = 3\n", "sharded"),
    "another name's": ("", "", "    same = guesses.view(-1)\n" + MARKED.replace("WHAT", "same"), "sharded"),
    "rows": (
        "",
        "",
        "    for row, x in zip(guesses, inputs):\n        if x[0] > 0:\n            row.fill_(3)\n",
        "sharded",
    ),
    "in a function": ("", "", "    mark(guesses)\n", "sharded"),
    "in a function that makes a number": ("", "", "    correct += share(guesses, targets)\n", "whole batch"),
    "beside a count": (
        "",
        "",
        MARKED.replace("WHAT", "guesses") + "            correct += 1\n",
        "whole batch",
    ),
    "what is kept": ("", "", "    kept.append(guesses)\n" + MARKED.replace("WHAT", "guesses"), "whole batch"),
    "what is kept then": (
        "",
        "",
        MARKED.replace("WHAT", "guesses") + "    kept.append(guesses)\n",
        "whole batch",
    ),
}


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_into_is_what_is_looked_at(lab: Lab, name: str) -> None:
    """No copy of it, such as all ranks' rows."""
    first, between, after, form = WRITTEN[name]
    moved, forward, loss, *rest = STEP.replace("        ", "    ").splitlines(keepends=True)
    if between:
        loss = loss.replace("\n", " + extra\n")
    text = "correct, kept = 0, []\n" + LOOP[4:] + moved + first + forward + between + loss + "".join(rest)
    text += "    guesses = outputs.detach().argmax(1)\n" + after
    text += "    correct += (guesses == targets).sum().item()\n"
    text += "print(f'{loss.item():.6f} {correct:.6f}', sum((it == 3).sum().item() for it in kept))\n"
    text = SETUP.replace("class Meter", WRITES.lstrip() + "class Meter") + text
    before, after = runs(lab, text, 2, form=form)
    assert after.printed == before.printed != ""


EACH = "    for i in range(guesses.size(0)):\n"
# What is written into guesses of other samples' than their own, or by how many there were before.
MIXED = {
    "its number": EACH + "        guesses[i] = i % 4\n",
    "by its number": EACH + "        if i < 3:\n            guesses[i] = 3\n",
    "the first one alone": EACH
    + "        if targets[i] == 1:\n            guesses[i] = 3\n            break\n",
    "its neighbour": EACH + "        guesses[i] = targets[i - 1]\n",
    "what was seen": "    seen = []\n"
    + EACH
    + "        if guesses[i] in seen:\n            guesses[i] = 3\n        else:\n"
    + "            seen.append(guesses[i].item())\n",
    "what an earlier round left": "    found = 0\n"
    + EACH
    + "        if guesses[i] == 1:\n            found = 3\n        guesses[i] = found\n",
    "its number, into a row": EACH + "        row = guesses[i]\n        row.fill_(i % 4)\n",
    "its number, into what a loop takes": "    for i, row in enumerate(guesses):\n        row.fill_(i % 4)\n",
    "its number, by a function": EACH + "        number(guesses[i], i)\n",
    "another order, by another name": "    same = guesses\n    same.copy_(targets.flip(0))\n",
    "another order, into a view": "    same = guesses[:]\n    same.copy_(targets.flip(0))\n",
    "another order, by a function": "    turn(guesses, targets)\n",
    "as often as there are samples": EACH + "        guesses += 1\n",
}
TURNS = """
def turn(rows, others):
    rows.copy_(others.flip(0))


def number(row, i):
    row.fill_(i % 4)


"""


@pytest.mark.sample(processes=(2, 3), every=7)
@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("name", MIXED)
def test_what_is_written_of_other_samples_keeps_the_batches_whole(
    lab: Lab, name: str, processes: int
) -> None:
    text = "correct = 0\n" + LOOP[4:] + STEP.replace("        ", "    ")
    text += "    guesses = outputs.detach().argmax(1)\n" + MIXED[name]
    text += "    correct += (guesses == targets).sum().item()\nprint(f'{loss.item():.6f} {correct}')\n"
    text = SETUP.replace("class Meter", TURNS.lstrip() + "class Meter") + text
    before, after = runs(lab, text, processes, form="whole batch")
    assert after.printed == before.printed != ""


# What each sample's own is written by, in other ways than above.
OWN = {
    "what is named first": EACH
    + "        own = targets[i]\n        if own > 1:\n            guesses[i] = 3 - own\n",
    "either way": EACH
    + "        if inputs[i, 0] > 0:\n            new = 3\n        else:\n            new = targets[i]\n"
    + "        guesses[i] = new\n",
    "but for some": EACH + "        if inputs[i, 0] > 0:\n            continue\n        guesses[i] = 3\n",
    "rows of a view": "    same = guesses[:]\n    same.mul_(targets)\n",
    "what the same mask picks": "    high = inputs[:, 0] > 0\n    guesses[high] = targets[high]\n",
    "in a round of its own": "    for number in range(3):\n        guesses[guesses == number] += 1\n",
    "by a function": "    mark(guesses.view(-1))\n",
    "a sum of all, where a mask is": "    guesses[inputs[:, 0] > 0] += targets.sum() % 4\n",
    "under a sum of all": "    if targets.sum() > 10:\n        guesses[:] = 3\n",
}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", OWN)
def test_what_is_written_of_each_sample_s_own_is_sharded(lab: Lab, name: str) -> None:
    text = "correct = 0\n" + LOOP[4:] + STEP.replace("        ", "    ")
    text += "    guesses = outputs.detach().argmax(1)\n" + OWN[name]
    text += "    correct += (guesses == targets).sum().item()\nprint(f'{loss.item():.6f} {correct}')\n"
    text = SETUP.replace("class Meter", WRITES.lstrip() + "class Meter") + text
    before, after = runs(lab, text, 3)
    assert after.printed == before.printed != ""


# What is written into labels of other samples than their own, before a loss.
LABELS = {
    "its number": "    for i in range(inputs.size(0)):\n        targets[i] = i % 4\n",
    "another order, by another name": "    same = targets\n    same.copy_(targets.flip(0))\n",
    "a sum, where a mask is": "    targets[inputs[:, 0] > 0] += targets.sum() % 2\n    targets.clamp_(max=3)\n",
}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", LABELS)
def test_labels_that_are_written_of_other_samples_are_written_before_the_batch_is_divided(
    lab: Lab, name: str
) -> None:
    moved, *rest = STEP.replace("        ", "    ").splitlines(keepends=True)
    text = SETUP + LOOP[4:] + moved + LABELS[name] + "".join(rest) + "print(f'{loss.item():.6f}')\n"
    before, after = runs(lab, text, 2)
    assert after.printed == before.printed != ""


def test_one_tensor_under_two_names_that_an_evaluation_writes_into_is_not_made_whole_twice(lab: Lab) -> None:
    text = SETUP + LOOP[4:] + STEP.replace("        ", "    ") + """\
model.eval()
with torch.no_grad():
    for i, (inputs, targets) in enumerate(others):
        same = targets.view(-1, 1)
        guesses = model(inputs.cuda()).argmax(1).cpu()
        targets[inputs[:, 0] > 0] = 5
        print(i, (same[:, 0] == guesses).sum().item(), targets.float().std().item())
"""
    before, after = runs(lab, text, 2)
    assert after.printed == before.printed != ""


def test_what_is_counted_in_place_is_named() -> None:
    text = (
        COUNTS + "    counts.index_put_((targets.cpu(), outputs.argmax(1).cpu()), torch.ones(len(targets)))\n"
    )
    (left,) = left_where_sharded(text + "print(counts.tolist())\n")
    assert left.rule == "DDP502" and "`counts`" in left.message


def test_what_a_step_hands_back_behind_a_decorator_is_named() -> None:
    step = (
        "def each(function):\n    return lambda values: {key: function(value) for key, value in values.items()}\n\n\n"
        "@each\ndef number(value):\n    return value.item()\n\n\n"
        "def step(inputs, targets):\n"
        + STEP.replace("        ", "    ")
        + '    return number({"error": (outputs.argmax(1).cpu() != targets.cpu()).float().mean()})\n\n\n'
    )
    text = SETUP + step + LOOP[4:] + '    shown = step(inputs, targets)\n    print(shown["error"])\n'
    (left,) = left_where_sharded(text)
    assert left.rule == "DDP502" and "`shown`" in left.message


# Counts of whole batches: the batch is divided before the model alone, or made whole again.
OF_WHOLE = {
    "a length of what may be a list": """\
    correct = correct + len(loader.collate_fn([(inputs, targets)]))
    for batch in DataLoader([name for name in "abc"]):
        correct += len(batch)
""",
    "a count under a condition of the part's own": """\
    if (targets > 2).any():
        correct += 1
""",
    "what there is none of in the part": """\
    size = (targets > 2).sum().item()
    if not size:
        correct += 1
""",
}
MADE_WHOLE = {
    "a list to which each part adds another number of entries": """\
    found = [0]
    found.extend((outputs.argmax(1) == targets).nonzero()[:, 0].tolist())
    correct = sum(found)
""",
}


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("name", {**OF_WHOLE, **MADE_WHOLE})
def test_what_a_part_would_count_otherwise_is_counted_in_whole_batches(
    lab: Lab, name: str, processes: int
) -> None:
    text = (
        SETUP
        + "correct = 0\n"
        + LOOP[4:]
        + STEP.replace("        ", "    ")
        + {**OF_WHOLE, **MADE_WHOLE}[name]
    )
    before, after = runs(lab, text + "    print(f'{loss.item():.6f} {correct}')\n", processes)
    assert after.printed == before.printed != ""


NAMED = {
    "what meters in a dict keep": """\
    meters = {name: Meter() for name in ("error", "size")}
    for name in meters:
        meters[name].update((outputs.detach() * unknown(targets)).mean().item(), 1)
        correct = "{:.3f}".format(meters[name].avg)
""",
    "what a part without such samples fails at": """\
    mask = targets > 2
    if mask.sum().item() > 0:
        correct = outputs[mask].max().item() / mask.sum().item()
""",
    "a text and a number beside losses": """\
    found = {"loss": loss, "by": "hand", "step": 3}
    for name, value in found.items():
        print(name, value)
""",
    "a text and a number beside losses, in a comprehension": """\
    found = [loss.detach(), "by hand", 3]
    correct = [str(value) for _, value in enumerate(found)]
""",
    "metrics that a part may leave out": """\
    metrics = {"right": lambda: (outputs.argmax(1) == targets).float().max().item()}
    correct = {name: metrics[name]() for name in metrics if (targets > 2).any()}
""",
    "numbers that something takes later": """\
    correct = [it.item() for it in (loss, loss * 2)]
    later = (it.item() for it in [loss, loss])
    if (targets > 2).any():
        correct = next(later)
""",
    "rows that are not followed beside others": """\
    guesses = [outputs][0 if inputs is None else -1].detach().cpu().numpy()
    correct = (guesses.argmax(1) == targets.cpu().numpy()).mean()
""",
}


@pytest.mark.parametrize("name", {**NAMED, **OF_WHOLE})
def test_what_is_not_the_whole_batch_s_is_named(name: str) -> None:
    text = SETUP + "correct = 0\n" + LOOP[4:] + STEP.replace("        ", "    ")
    text += {**NAMED, **OF_WHOLE}[name] + "print(correct)\n"
    form = "sharded" if name in OF_WHOLE else "whole batch"
    assert [it.rule for it in left_where_sharded(text, form)] == ["DDP502"]


ACROSS = {
    "means of several batches in a list": """\
kept = []
for epoch in range(2):
    for i, (inputs, targets) in enumerate(loader):
        kept.append(criterion(model(inputs.cuda()), targets.cuda()))
        if len(kept) == 3:
            loss = sum(kept) / len(kept)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print("%.6f" % loss.item())
            kept = []
""",
    "means of several batches added up": """\
total = 0
for epoch in range(2):
    for i, (inputs, targets) in enumerate(loader):
        total = total + criterion(model(inputs.cuda()), targets.cuda())
        if i % 2 == 1:
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            print("%.6f" % total.item())
            total = 0
""",
    "a penalty by the means of earlier batches": """\
kept = []
for epoch in range(3):
    for inputs, targets in loader:
        outputs = model(inputs.cuda())
        kept.append(outputs.pow(2).mean().detach())
        loss = criterion(outputs, targets.cuda()) * (1 + sum(kept) / len(kept))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("%.6f" % loss.item())
""",
    "an object's total": """\
class Trainer:
    def __init__(self):
        self.total = 0

    def run(self):
        for epoch in range(2):
            for i, (inputs, targets) in enumerate(loader):
                self.total += criterion(model(inputs.cuda()), targets.cuda())
                if i % 2 == 1:
                    optimizer.zero_grad()
                    self.total.backward()
                    optimizer.step()
                    print("%.6f" % self.total.item())
                    self.total = 0


Trainer().run()
""",
}


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("name", ACROSS)
def test_means_of_several_batches_have_parts_of_one_size(lab: Lab, name: str, processes: int) -> None:
    """Parts of several sizes weigh otherwise in each batch: such batches stay whole."""
    text = SETUP + ACROSS[name]
    before, after = runs(lab, text, processes, form="whole batch")
    assert after.printed == before.printed != ""
    assert convert(Project.of({PATH: text})).scripts[0].tier.startswith("sharded")


def test_means_of_several_parts_of_one_batch_weigh_alike(lab: Lab) -> None:
    text = SETUP + LOOP[4:] + STEP.replace("        ", "    ") + "    print('%.6f' % loss.item())\n"
    summed = """\
    loss, kept = 0, []
    for half in (outputs[:, :2], outputs[:, 2:]):
        loss = loss + criterion(half, targets % 2)
        kept.append(half.pow(2).mean())
    loss = loss + sum(kept) / len(kept)
"""
    text = text.replace("    loss = criterion(outputs, targets)\n", summed)
    before, after = runs(lab, text, 3)
    assert after.printed == before.printed != ""


BESIDE = [
    "print('%.6f' % views[0].sum().item(), '%.6f' % views[0][0, 0], '%.6f' % loss.item())",
    "print(views[0][0, 1].item(), round(loss.item(), 6))",
    "print('%.6f %.6f' % (views[0][0, 1].item(), loss.item()), [views[1][0, 0].item(), round(loss.item(), 6)])",
    "print(f'{views[0][0, 1]:.6f} {loss.item():.6f}', '{:.6f} {:.6f}'.format(views[0][0, 1].item(), loss.item()))",
    "print(views[0][0, 0].item(), (out.argmax(1) == torch.cat([targets, targets])).sum().item())",
    "print('%.6f' % criterion(out, torch.cat([targets, targets])).item(), views[1].sum(1).tolist()[:3])",
]


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("shown", BESIDE)
def test_whole_batches_are_shown_beside_numbers_of_their_parts(lab: Lab, shown: str) -> None:
    """What meets in a line that is printed is no part of what is trained."""
    text = SETUP + f"""\
samples = [([torch.randn(8), torch.randn(8)], i % 4) for i in range(48)]
for views, targets in DataLoader(samples, batch_size=12, shuffle=True):
    out = model(torch.cat([views[0], views[1]]).view(-1, 8).cuda())
    loss = criterion(out, torch.cat([targets, targets]).cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {shown}
"""
    before, after = runs(lab, text, 2)
    assert after.printed == before.printed != ""


AFTERWARDS = {
    "one loader": """
for epoch in range(2):
    for x, y in loader:
        out = net(x)
        loss = F.cross_entropy(out, y)
        STEP
    print(epoch, loss.item(), out.mean().item(), y.float().mean().item(), (out.argmax(1) == y).float().mean().item())
    print(len(y), y.sum().item(), (out.argmax(1) == y).sum().item(), y.float().mean())
""",
    "another loader, whose loop was left": """
other = DataLoader(TensorDataset(X, Y), batch_size=7)
for epoch in range(2):
    for x, y in other:
        loss = F.cross_entropy(net(x), y)
        STEP
        break
    for x, y in loader:
        out = net(x)
        loss = F.cross_entropy(out, y)
        STEP
    print(epoch, y.float().mean().item(), out.detach().mean().item(), len(y))
""",
    "an evaluation in between": """
for epoch in range(2):
    for x, y in loader:
        out = net(x)
        loss = F.cross_entropy(out, y)
        STEP
    net.eval()
    with torch.no_grad():
        right = (net(X).argmax(1) == Y).sum().item()
    net.train()
    print(epoch, right, y.float().mean().item(), out.detach().mean().item(), len(y))
""",
}


@pytest.mark.sample(processes=(2, 3))
@pytest.mark.parametrize(("samples", "processes"), [(21, 2), (21, 3), (17, 2), (17, 3)])
@pytest.mark.parametrize("name", AFTERWARDS)
def test_numbers_of_the_last_batch_are_all_ranks_after_the_loop(
    lab: Lab, name: str, samples: int, processes: int
) -> None:
    """Of 5 samples, or of a single one, of which only one rank has any."""
    text = with_steps(joints.HEAD.replace("44", str(samples)), AFTERWARDS[name])
    trains_alike(lab, text, processes, exact=True)
