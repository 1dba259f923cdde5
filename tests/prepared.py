"""Programs that work on a loader's batches as a whole before their models get them, and those that only look like it."""

from __future__ import annotations

HEAD = """\
import copy
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset, TensorDataset

torch.manual_seed(0)
np.random.seed(0)
random.seed(0)
X, Y = torch.randn(50, 6), torch.randint(0, 3, (50,))
loader = DataLoader(TensorDataset(X, Y), batch_size=8, shuffle=True)
net = nn.DataParallel(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)))
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=0.1)
"""

DIVIDED = {
    "mixup": """
def mixup_data(x, y, alpha=1.0):
    lam = np.random.beta(alpha, alpha)
    index = torch.randperm(x.size(0))
    mixed = lam * x + (1 - lam) * x[index, :]
    return mixed, y, y[index], lam


def mixup_criterion(criterion, pred, a, b, lam):
    return lam * criterion(pred, a) + (1 - lam) * criterion(pred, b)


for epoch in range(2):
    total, seen, right = 0.0, 0, 0.0
    for inputs, targets in loader:
        inputs, targets_a, targets_b, lam = mixup_data(inputs, targets)
        out = net(inputs)
        loss = mixup_criterion(criterion, out, targets_a, targets_b, lam)
        STEP
        total += loss.item()
        seen += targets.size(0)
        hit = out.argmax(1)
        right += lam * hit.eq(targets_a).sum().item() + (1 - lam) * hit.eq(targets_b).sum().item()
    print(epoch, total, right / seen)
""",
    "mixup in the loop, sometimes": """
for epoch in range(2):
    losses = []
    for i, (x, y) in enumerate(loader):
        if random.random() < 0.5:
            lam = np.random.beta(0.4, 0.4)
            perm = torch.randperm(len(x))
            x = lam * x + (1 - lam) * x[perm]
            out = net(x)
            loss = lam * criterion(out, y) + (1 - lam) * criterion(out, y[perm])
        else:
            out = net(x)
            loss = criterion(out, y)
        STEP
        losses.append(loss.item())
    print(np.mean(losses))
""",
    "cutmix": """
data = torch.rand(50, 1, 4, 4)
loader = DataLoader(TensorDataset(data, Y), batch_size=7, shuffle=True)
net = nn.DataParallel(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)))
optimizer = optim.SGD(net.parameters(), lr=0.1)


def rand_bbox(size, lam):
    cut = int(size[2] * np.sqrt(1.0 - lam))
    x, y = np.random.randint(size[2]), np.random.randint(size[3])
    return max(x - cut // 2, 0), max(y - cut // 2, 0), min(x + cut // 2, size[2]), min(y + cut // 2, size[3])


def accuracy(output, target):
    return (output.argmax(1) == target).float().mean() * 100


class AverageMeter:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n


for epoch in range(2):
    losses, top1 = AverageMeter(), AverageMeter()
    for i, (input, target) in enumerate(loader):
        r = np.random.rand(1)
        if r < 0.6:
            lam = np.random.beta(1.0, 1.0)
            rand_index = torch.randperm(input.size()[0])
            target_a = target
            target_b = target[rand_index]
            x1, y1, x2, y2 = rand_bbox(input.size(), lam)
            input[:, :, x1:x2, y1:y2] = input[rand_index, :, x1:x2, y1:y2]
            lam = 1 - (x2 - x1) * (y2 - y1) / (input.size()[-1] * input.size()[-2])
            output = net(input)
            loss = criterion(output, target_a) * lam + criterion(output, target_b) * (1.0 - lam)
        else:
            output = net(input)
            loss = criterion(output, target)
        acc = accuracy(output, target)
        losses.update(loss.item(), input.size(0))
        top1.update(acc.item(), input.size(0))
        STEP
    print(epoch, losses.sum / losses.count, top1.sum / top1.count)
""",
    "soft labels": """
def one_hot(y):
    return torch.zeros(y.size(0), 3).scatter_(1, y.view(-1, 1), 1)


def shuffle_mix(x, y):
    order = np.random.permutation(len(x))
    weight = torch.from_numpy(np.random.beta(1, 1, size=len(x))).float().view(-1, 1)
    return x * weight + x[order] * (1 - weight), y * weight + y[order] * (1 - weight)


for x, y in loader:
    x, y = shuffle_mix(x, one_hot(y))
    out = net(x)
    loss = -(y * F.log_softmax(out, dim=1)).sum(dim=1).mean()
    STEP
    print(loss.item())
""",
    "a class that mixes": """
class Mixer:
    def __init__(self, alpha):
        self.beta = torch.distributions.beta.Beta(torch.tensor([alpha]), torch.tensor([alpha]))

    def aug(self, clean, noisy):
        order = torch.randperm(clean.size(0))
        lam = self.beta.rsample((clean.size(0), 1))
        return lam * clean + (1 - lam) * clean[order], lam * noisy + (1 - lam) * noisy[order]


mixer = Mixer(1.2)
net = nn.DataParallel(nn.Linear(6, 6))
optimizer = optim.Adam(net.parameters(), lr=0.01)
total = 0
for epoch in range(3):
    for data, _ in loader:
        noisy = data * 0.5
        if epoch > 1:
            data, noisy = mixer.aug(data, noisy)
        restored = net(noisy)
        loss = F.l1_loss(restored, data)
        STEP
        total += loss.item()
print(total)
""",
    "noise of a fixed size": """
D = nn.DataParallel(nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1)))
G = nn.DataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6)))
opt_d, opt_g = optim.Adam(D.parameters(), lr=0.01), optim.Adam(G.parameters(), lr=0.01)
batch_size = 8
loader = DataLoader(TensorDataset(X, Y), batch_size=batch_size, shuffle=True, drop_last=True)
for epoch in range(2):
    for i, (real, _) in enumerate(loader):
        ones, zeros = torch.ones(batch_size, 1), torch.zeros(batch_size, 1)
        z = torch.randn(batch_size, 4)
        fake = G(z)
        loss_d = F.binary_cross_entropy_with_logits(D(real), ones)
        loss_d = loss_d + F.binary_cross_entropy_with_logits(D(fake.detach()), zeros)
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()
        loss_g = F.binary_cross_entropy_with_logits(D(G(torch.randn(batch_size, 4))), ones)
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        if i % 2 == 0:
            print(epoch, i, loss_d.item(), loss_g.item())
""",
    "a trainer": """
class Trainer:
    def __init__(self, model, optimizer, loader):
        self.model, self.optimizer, self.loader = model, optimizer, loader

    def mix(self, batch, targets):
        order = torch.randperm(batch.shape[0])
        lam = float(np.random.beta(0.2, 0.2))
        return batch.mul(lam) + batch[order].mul(1 - lam), (targets, targets[order], lam)

    def loss(self, logits, targets):
        first, second, lam = targets
        return F.cross_entropy(logits, first) * lam + F.cross_entropy(logits, second) * (1 - lam)

    def step(self, batch, targets):
        mixed, targets = self.mix(batch, targets)
        logits = self.model(mixed)
        loss = self.loss(logits, targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def run(self):
        for epoch in range(2):
            total = 0.0
            for batch, targets in self.loader:
                total += self.step(batch, targets) / len(self.loader)
            print("epoch", epoch, total)


Trainer(net, optimizer, loader).run()
""",
    "negatives of the other samples": """
net = nn.DataParallel(nn.Bilinear(6, 6, 1))
optimizer = optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    other = torch.roll(x, 1, 0)
    good, bad = net(x, x * 0.5), net(x, other)
    loss = F.softplus(bad - good).mean()
    STEP
    print(loss.item())
""",
    "standardised by the batch": """
for epoch in range(2):
    for x, y in loader:
        x = (x - x.mean(0)) / (x.std(0) + 1e-3)
        out = net(x)
        loss = criterion(out, y)
        STEP
        print((out.argmax(1) == y).float().mean().item(), loss.item())
""",
    "mixed batches of an iterator that is begun again": """
batches = iter(loader)
for step in range(17):
    try:
        x, y = next(batches)
    except StopIteration:
        batches = iter(loader)
        x, y = next(batches)
    lam = np.random.beta(1, 1)
    order = torch.randperm(len(x))
    x = lam * x + (1 - lam) * x[order]
    out = net(x)
    loss = lam * criterion(out, y) + (1 - lam) * criterion(out, y[order])
    STEP
    print(step, loss.item())
""",
    "mixed batches that a counted loop draws": """
for epoch in range(2):
    batches = iter(loader)
    total = 0.0
    for i in range(len(loader)):
        batch = next(batches)
        x, y = batch
        x = x + 0.5 * torch.roll(x, 1, 0)
        out = net(x)
        loss = criterion(out, y)
        STEP
        total += loss.item()
    print(epoch, total / len(loader))
""",
    "labels that are whole where a number is made of them": """
def accuracy(found, wanted):
    return sum(int(one == other) for one, other in zip(found, wanted)) / max(len(np.unique(wanted)), 1)


for epoch in range(2):
    total = 0
    for x, target in loader:
        if torch.max(target) == 2:
            x = x / 2
        out = net(x)
        loss = criterion(out, target)
        STEP
        pred = np.argmax(out.data.numpy(), axis=1)
        total += accuracy(pred, target.numpy())
        print(loss.item())
    print(total / len(loader))
""",
    "mixed labels for a loss that compares samples": """
def contrast(f, y):
    near = (y[:, None] == y[None]).float()
    return (torch.cdist(f, f) * near).sum() / near.sum()


for epoch in range(2):
    for x, y in loader:
        lam = np.random.beta(1, 1)
        order = torch.randperm(len(x))
        out = net(lam * x + (1 - lam) * x[order])
        loss = lam * contrast(out, y) + (1 - lam) * contrast(out, y[order]) + criterion(out, y)
        STEP
        print(loss.item())
""",
    "weights of the samples, multiplied in place": """
criterion = nn.CrossEntropyLoss(reduction="none")
weights = torch.rand(50)
loader = DataLoader(TensorDataset(X, weights, Y), batch_size=8, shuffle=True)
for epoch in range(2):
    for x, weight, target in loader:
        if torch.max(target) == 2:
            x = x / 2
        out = net(x)
        losses = criterion(out, target)
        losses *= weight
        loss = losses.mean()
        STEP
        print(loss.item())
""",
}
"""What is divided, after the mixing."""

BEWARE = {
    "an attack by the model": """
for x, y in loader:
    x = x[torch.randperm(len(x))].clone().requires_grad_(True)
    F.cross_entropy(net(x), y).backward()
    x = (x + 0.1 * x.grad.sign()).detach()
    loss = criterion(net(x), y)
    STEP
    print(loss.item())
""",
    "features that are mixed": """
body = nn.DataParallel(nn.Sequential(nn.Linear(6, 8), nn.ReLU()))
head = nn.DataParallel(nn.Linear(8, 3))
optimizer = optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
for x, y in loader:
    features = body(x)
    order = torch.randperm(len(x))
    lam = np.random.beta(1, 1)
    out = head(lam * features + (1 - lam) * features[order])
    loss = lam * criterion(out, y) + (1 - lam) * criterion(out, y[order])
    STEP
    print(loss.item())
""",
    "a queue of what was seen": """
queue = torch.zeros(16, 6)
for x, y in loader:
    x = x[torch.randperm(len(x))]
    queue = torch.cat([queue, x])[-16:]
    out = net(x - queue.mean(0))
    loss = criterion(out, y)
    STEP
    print(loss.item(), queue.sum().item())
""",
    "weights by the batch's labels": """
for x, y in loader:
    order = torch.randperm(len(x))
    x, y = x[order], y[order]
    counts = torch.bincount(y, minlength=3).float()
    out = net(x)
    loss = F.cross_entropy(out, y, weight=1 / (counts + 1))
    STEP
    print(loss.item())
""",
    "how many are right decides": """
lam = 0.5
for x, y in loader:
    x = lam * x + (1 - lam) * x[torch.randperm(len(x))]
    out = net(x)
    loss = criterion(out, y)
    STEP
    lam = 0.9 if (out.argmax(1) == y).float().mean() > 0.4 else 0.5
    print(loss.item(), lam)
""",
    "one loop that trains and tests": """
tests = DataLoader(TensorDataset(X[:20], Y[:20]), batch_size=5)


def run(batches, train):
    total = 0.0
    for x, y in batches:
        if train:
            order = torch.randperm(len(x))
            x = 0.7 * x + 0.3 * x[order]
        out = net(x)
        loss = criterion(out, y)
        if train:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total += loss.item() * len(x)
    print(train, total)


for epoch in range(2):
    run(loader, True)
    with torch.no_grad():
        run(tests, False)
""",
    "some of the samples": """
for x, y in loader:
    order = torch.randperm(len(x))
    kept = order[: len(x) // 2 + 1]
    out = net(x[kept])
    loss = criterion(out, y[kept])
    STEP
    print(loss.item(), out.shape[0])
""",
    "two passes, one mixed": """
for epoch in range(2):
    for x, y in loader:
        loss = criterion(net(x), y)
        STEP
    for x, y in loader:
        order = torch.randperm(len(x))
        out = net((x + x[order]) / 2)
        loss = (criterion(out, y) + criterion(out, y[order])) / 2
        STEP
        print(loss.item())
""",
    "noise in between": """
net = nn.DataParallel(nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.0), nn.Linear(8, 3)))
optimizer = optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    order = torch.randperm(len(x))
    noise = 0.1 * torch.randn_like(x)
    out = net(x[order] + noise)
    loss = criterion(out, y[order])
    STEP
    print(loss.item())
""",
    "targets that the model's output changes in place": """
for x, y in loader:
    x = x[torch.randperm(len(x))]
    soft = F.one_hot(y, 3).float()
    out = net(x)
    soft *= 0.9
    soft += 0.1 * out.detach().softmax(1)
    loss = -(soft * out.log_softmax(1)).sum(1).mean()
    STEP
    print(loss.item())
""",
    "a mean of the batch beside": """
for x, y in loader:
    x = x[torch.randperm(len(x))]
    level = x.mean()
    out = net(x)
    loss = criterion(out, y) * (1 + level) + (out - level).pow(2).mean()
    STEP
    print(loss.item())
""",
}
"""What has another form, or the same where it is right: the numbers are the original's."""
