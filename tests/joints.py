"""Programs whose rounds need the whole batch behind the forward, and those that can't be joined there."""

from __future__ import annotations

HEAD = """\
import collections
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset, RandomSampler, SubsetRandomSampler, TensorDataset, WeightedRandomSampler

torch.manual_seed(0)
X, Y = torch.randn(44, 6), torch.randint(0, 3, (44,))
loader = DataLoader(TensorDataset(X, Y), batch_size=8, shuffle=True)
net = nn.DataParallel(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)))
optimizer = optim.SGD(net.parameters(), lr=0.1)
"""

SHARED_STEP = """\
held_out = DataLoader(TensorDataset(X[:21], Y[:21]), batch_size=8)


class Trainer:
    def __init__(self):
        self.net = nn.DataParallel(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)))
        self.optimizer = optim.SGD(self.net.parameters(), lr=0.1)

    def process(self, batch):
        x, y = batch
        out = self.net(x)
        losses = F.cross_entropy(out, y, reduction="none")
        loss = losses.mean() - 0.1 * losses.median() ** 2 + out.mean() ** 2
        return out, loss

    def train(self):
        self.net.train()
        for step, batch in enumerate(loader):
            out, loss = self.process(batch)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if step % 4 == 0:
                print(step, loss.item())

    def validate(self):
        self.net.eval()
        total, right = 0.0, 0
        with torch.no_grad():
            for batch in held_out:
                out, loss = self.process(batch)
                total += loss.item()
                right += (out.argmax(1) == batch[1]).sum().item()
        print("validated", total / len(held_out), right)
        return total


trainer = Trainer()
best = float("inf")
for epoch in range(3):
    trainer.train()
    found = trainer.validate()
    if found < best:
        best = found
        torch.save(trainer.net.module.state_dict(), "best.pth")
"""

JOINED = {
    "a step in a function, whose numbers are kept by name": """
def train_step(model, data, last):
    x, y = data
    out = model(x)
    loss = F.cross_entropy(out, y) + out.std(0).mean()
    numbers = {"loss": loss.item() / 2, "spread": out.std().item() / 2}
    (loss / 2).backward()
    if last:
        optimizer.step()
        optimizer.zero_grad()
    return numbers


def train(model, batches, epoch):
    sums = {}
    for i, data in enumerate(batches):
        if (i + 1) % 2 == 0:
            numbers = train_step(model, data, True)
        else:
            numbers = train_step(model, data, False)
        for name in numbers:
            sums[name] = sums.get(name, 0) + numbers[name]
        if (i + 1) % 2 == 0:
            print(epoch, " ".join([f"{name}: {value:.6f}" for name, value in sums.items()]))
            sums = {}


for epoch in range(2):
    train(net, loader, epoch)
""",
    "boxes of each sample, with its number": """
class Boxes(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        count = int(torch.randint(1, 4, (1,), generator=g))
        target = {"boxes": torch.rand(count, 3, generator=g), "kind": torch.randint(3, (count,), generator=g), "number": i}
        return torch.randn(6, generator=g), target


def collate(samples):
    images, targets = zip(*samples)
    return torch.stack(images), list(targets)


def encoded(targets):
    rows = torch.stack([t["boxes"].mean(0) * (1 + t["number"] % 3) for t in targets])
    return rows / rows.std(0)


loader = DataLoader(Boxes(), batch_size=8, shuffle=True, collate_fn=collate)
for epoch in range(2):
    for step, (images, targets) in enumerate(loader):
        wanted = encoded(targets)
        out = net(images)
        loss = F.smooth_l1_loss(out, wanted)
        STEP
        if step % 2:
            print(loss.item(), sum(len(t["boxes"]) for t in targets), max(t["number"] for t in targets))
""",
    "a forward inside of the loss": """
for epoch in range(2):
    for x, y in loader:
        loss = (net(x)[:, 0] - y.float()).abs().median()
        STEP
        print(epoch, loss.item())
""",
    "two forwards inside of a criterion's call": """
def contrast(f, y):
    sim = F.normalize(f, dim=1) @ F.normalize(f, dim=1).t()
    return ((sim - (y[:, None] == y[None]).float()) ** 2).mean()


for epoch in range(2):
    for x, y in loader:
        x = x * 2
        loss = contrast(torch.cat([net(x), net(x.flip(1))]), torch.cat([y, y]))
        STEP
        print(epoch, loss.item())
""",
    "a forward in what a function returns": """
outputs = "a name that is taken"


def step(model, batch):
    x, y = batch
    x = x + 1
    return (model(x).softmax(1).std(0) * 3).sum(), y.float().var()


for epoch in range(2):
    for i, batch in enumerate(loader):
        loss, spread = step(net, batch)
        STEP
        if i % 2 == 0:
            print(outputs, epoch, i, loss.item(), spread.item())
""",
    "the hardest samples": """
for epoch in range(2):
    for x, y in loader:
        out = net(x)
        losses = F.cross_entropy(out, y, reduction="none")
        hard, _ = losses.topk(max(1, len(losses) // 2))
        loss = hard.mean()
        STEP
        print(epoch, loss.item(), (out.argmax(1) == y).float().mean().item())
""",
    "an evaluation within the rounds that decides": """
held_out = DataLoader(TensorDataset(X[:20], Y[:20]), batch_size=8)


def features(model, batches):
    model.eval()
    feats, labels = [], []
    for x, y in batches:
        with torch.no_grad():
            feats.append(model(x).cpu())
        labels.append(y)
    model.train()
    return torch.cat(feats), torch.cat(labels)


def recall(feats, labels, ks=(1, 2)):
    sim = feats @ feats.t()
    sim.fill_diagonal_(-1)
    found = labels[sim.topk(max(ks), 1)[1]]
    return [(found[:, :k] == labels[:, None]).any(1).float().mean().item() for k in ks]


def contrast(f, y):
    same = y[:, None] == y[None]
    sim = F.normalize(f) @ F.normalize(f).t()
    loss = []
    for i in range(len(f)):
        near, far = sim[i][same[i]], sim[i][~same[i]]
        far = far[far > 0.3]
        if len(far) > 0:
            loss.append(far.sum())
        loss.append((1 - near).sum())
    return sum(loss) / len(f)


best, step = 0, 0
batches = iter(loader)
while step < 12:
    if step % 5 == 0:
        f, l = features(net, held_out)
        r = recall(f, l)
        print("recall", ", ".join("%.4f" % x for x in r))
        if r[0] > best:
            best = r[0]
            torch.save(net.module.state_dict(), "best.pth")
    try:
        x, y = next(batches)
    except StopIteration:
        batches = iter(loader)
        x, y = next(batches)
    step += 1
    out = net(x)
    loss = contrast(out, y)
    STEP
    print(loss.item())
""",
    "as many of each class as there are": """
for epoch in range(2):
    seen = collections.Counter()
    for x, y in loader:
        optimizer.zero_grad()
        out = net(x)
        loss = 0.0
        for c in range(3):
            mask = y == c
            if mask.sum() > 0:
                loss = loss + F.cross_entropy(out[mask], y[mask]) / mask.sum()
        loss.backward()
        optimizer.step()
        seen.update(y.tolist())
    print(epoch, sorted(seen.items()))
""",
    "a loop over pairs of samples": """
for epoch in range(2):
    total = 0.0
    for x, y in loader:
        out = F.normalize(net(x), dim=1)
        pulls, pushes = [], []
        for i in range(len(out)):
            for j in range(i + 1, len(out)):
                d = (out[i] - out[j]).pow(2).sum()
                if y[i] == y[j]:
                    pulls.append(d)
                else:
                    pushes.append(d)
        loss = torch.stack(pulls).mean() if pulls else out.sum() * 0
        if pushes:
            loss = loss + F.relu(1.0 - torch.stack(pushes)).mean()
        STEP
        total += loss.item()
    print(epoch, total / len(loader))
""",
    "a decision by the loss of the batch": """
best = math.inf
for epoch in range(2):
    for step, (x, y) in enumerate(loader):
        out = net(x)
        loss = F.cross_entropy(out, y) + out.std(0).mean()
        if loss.item() < best:
            best = loss.item()
            state = {"best": best, "epoch": epoch, "step": step}
        elif loss.item() > 2 * best:
            loss = loss * 0.5
        STEP
    print(epoch, best, state)
""",
    "a function of the project that trains for a step": """
def step(model, batch, centers):
    x, y = batch
    features = model(x)
    with torch.no_grad():
        for c in y.unique():
            centers[c] = 0.9 * centers[c] + 0.1 * features[y == c].mean(0)
    gathered = features - centers[y]
    spread = torch.cdist(features, features).triu(1).sum()
    return gathered.pow(2).sum() - 0.001 * spread, features


centers = torch.zeros(3, 3)
for epoch in range(2):
    for batch in loader:
        loss, features = step(net, batch, centers)
        STEP
        print(epoch, loss.item(), features.detach().norm().item())
    print(*centers.flatten().tolist())
""",
    "a criterion of the project with numbers of its own": """
class Balanced(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = torch.zeros(3)

    def forward(self, out, y):
        self.seen = 0.9 * self.seen + torch.bincount(y, minlength=3).float()
        weight = self.seen.sum() / (self.seen + 1)
        per = F.cross_entropy(out, y, reduction="none") * weight[y]
        return per.sum() / weight[y].sum() + 0.1 * per.max()


criterion = Balanced()
for epoch in range(2):
    for x, y in loader:
        out = net(x)
        loss = criterion(out, y)
        STEP
    print(epoch, loss.item(), *criterion.seen.tolist())
""",
    "a trainer with a dict for a batch": """
class Rows(Dataset):
    def __len__(self):
        return len(X)

    def __getitem__(self, i):
        return {"x": X[i], "y": Y[i], "w": X[i].abs().sum()}


class Trainer:
    def __init__(self, model, loader):
        self.model, self.loader = model, loader
        self.history = []

    def loss(self, out, batch):
        per = F.cross_entropy(out, batch["y"], reduction="none")
        w = batch["w"] / batch["w"].sum()
        return (per * w).sum() + 0.1 * torch.logsumexp(per, 0)

    def epoch(self):
        for batch in self.loader:
            out = self.model(batch["x"])
            loss = self.loss(out, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            self.history.append(loss.item())


trainer = Trainer(net, DataLoader(Rows(), batch_size=8))
for epoch in range(2):
    trainer.epoch()
print(*trainer.history)
""",
    "ranks over the batch in numpy": """
for epoch in range(2):
    scores, targets = [], []
    for x, y in loader:
        out = net(x)
        order = np.argsort(-out.detach()[:, 0].numpy())
        weight = torch.zeros(len(out))
        for place, index in enumerate(order):
            weight[index] = 1.0 / (place + 1)
        loss = (F.cross_entropy(out, y, reduction="none") * weight).sum()
        STEP
        scores.append(out.detach()[:, 1])
        targets.append(y)
    scores, targets = torch.cat(scores), torch.cat(targets)
    print(epoch, *scores.sort()[0][:5].tolist(), targets.float().mean().item())
""",
    "two losses, of means and of the covariance": """
def off_diagonal(m):
    n, _ = m.shape
    return m.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten()


for epoch in range(2):
    for x, y in loader:
        a, b = net(x), net(x * 0.9)
        sim = F.mse_loss(a, b)
        a = a - a.mean(dim=0)
        b = b - b.mean(dim=0)
        std = torch.sqrt(a.var(dim=0) + 1e-4)
        cov = (a.T @ a) / (len(a) - 1)
        loss = sim + F.relu(1 - std).mean() + off_diagonal(cov).pow_(2).sum() / 3
        STEP
    print(epoch, loss.item())
""",
    "a queue of features": """
queue = torch.randn(20, 3)
pointer = 0
for epoch in range(2):
    for x, y in loader:
        q = F.normalize(net(x), dim=1)
        with torch.no_grad():
            k = F.normalize(net(x + 0.1), dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T], dim=1) / 0.2
        loss = F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))
        STEP
        n = k.size(0)
        for row in k:
            queue[pointer] = row
            pointer = (pointer + 1) % 20
    print(epoch, pointer, queue.sum().item(), n)
""",
    "mixed precision": """
scaler = torch.amp.GradScaler(enabled=False)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", enabled=False):
            out = net(x)
            p = out.softmax(1)
            onehot = F.one_hot(y, 3).float()
            dice = 1 - 2 * (p * onehot).sum() / (p.sum() + onehot.sum())
            entropy = -(p.mean(0) * p.mean(0).log()).sum()
            loss = dice - 0.1 * entropy
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    print(epoch, loss.item(), dice.item())
""",
    "a helper that runs the model": """
def run(model, batch):
    x, y = batch
    out = model(x)
    return out, y


def objective(out, y):
    p = out.softmax(1)
    mean = p.mean(0)
    spread = (p - mean).abs().sum() / p.size(0)
    return F.cross_entropy(out, y) - 0.1 * spread * mean.max()


for epoch in range(2):
    for i, batch in enumerate(loader):
        out, y = run(net, batch)
        loss = objective(out, y)
        STEP
        if i % 2 == 0:
            print(epoch, i, loss.item(), (out.argmax(1) == batch[1]).sum().item())
""",
    "a trainer whose steps hand out a dict": """
class Base:
    def fit(self, loader, epochs):
        for epoch in range(epochs):
            totals = collections.defaultdict(float)
            for index, batch in enumerate(loader):
                result = self.training_step(batch, index)
                optimizer.zero_grad()
                result["loss"].backward()
                optimizer.step()
                for key, value in result.items():
                    totals[key] += float(value)
            print(epoch, *(totals[key] / len(loader) for key in sorted(totals)))


class Task(Base):
    def __init__(self, model):
        self.model = model
        self.temperature = 0.5

    def training_step(self, batch, index):
        x, y = batch
        z = F.normalize(self.model(x), dim=1)
        sim = z @ z.T / self.temperature
        sim = sim - torch.eye(len(z)) * 1e9
        same = (y[:, None] == y[None, :]).float() - torch.eye(len(z))
        count = same.sum(1).clamp(min=1)
        loss = -(same * sim.log_softmax(1)).sum(1).div(count).mean()
        return {"loss": loss, "pairs": same.sum() / 2, "norm": z.norm(dim=1).max()}


Task(net).fit(loader, 2)
""",
    "both phases in one loop": """
loaders = {"train": loader, "val": DataLoader(TensorDataset(X[:21], Y[:21]), batch_size=8)}
for epoch in range(2):
    for phase in ["train", "val"]:
        net.train(phase == "train")
        running, right = 0.0, 0
        for x, y in loaders[phase]:
            optimizer.zero_grad()
            with torch.set_grad_enabled(phase == "train"):
                out = net(x)
                loss = F.cross_entropy(out, y) + out.std(0).sum()
                if phase == "train":
                    loss.backward()
                    optimizer.step()
            running += loss.item()
            right += (out.argmax(1) == y).sum().item()
        print(phase, epoch, running / len(loaders[phase]), right)
""",
    "batches that are pulled": """
batches = iter(loader)
for step in range(10):
    try:
        x, y = next(batches)
    except StopIteration:
        batches = iter(loader)
        x, y = next(batches)
    out = net(x)
    loss = F.cross_entropy(out, y) + out.max(0)[0].sum()
    STEP
    print(step, loss.item())
""",
    "a model that computes its loss, and more": """
class Task(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 3)

    def forward(self, x, y):
        out = self.body(x)
        return {"loss": F.cross_entropy(out, y), "logits": out}


net = nn.DataParallel(Task())
optimizer = optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        result = net(x, y)
        logits = result["logits"]
        top = logits.max(1)[0].sort()[0]
        loss = result["loss"].mean() + 0.1 * (top[1:] - top[:-1]).pow(2).sum()
        STEP
    print(epoch, loss.item(), top[0].item())
""",
    "a number of samples, taken before": """
for epoch in range(2):
    total = 0.0
    for x, y in loader:
        n = x.size(0)
        out = net(x)
        loss = F.cross_entropy(out, y, reduction="sum") / n + out.std(0).sum()
        STEP
        total += loss.item() * n
    print(epoch, total / len(X))
""",
    "one of two loops": """
def warm(loader):
    for x, y in loader:
        loss = F.cross_entropy(net(x) + torch.rand(()), y)
        STEP
    print(loss.item())


def tune(loader):
    for x, y in loader:
        out = net(x)
        loss = F.cross_entropy(out, y) + out.std(0).sum()
        STEP
    print(loss.item())


warm(loader)
tune(DataLoader(TensorDataset(X, Y), batch_size=8))
""",
    "a criterion that drops some numbers of the rows": """
class Criterion(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential()
        self.layers.append(nn.Dropout(0.5))

    def forward(self, out, y):
        out = self.layers(out)
        return F.cross_entropy(out, y) + out.std(0).sum()


criterion = Criterion()
for epoch in range(2):
    for x, y in loader:
        loss = criterion(net(x), y)
        STEP
        print(epoch, loss.item())
""",
    "samplers that are iterated by the program": """
some = SubsetRandomSampler(range(3))
for epoch in range(2):
    keep = torch.tensor(list(WeightedRandomSampler(torch.ones(44), 30)))
    for x, y in DataLoader(TensorDataset(X[keep], Y[keep]), batch_size=8, shuffle=True):
        order, scale = list(RandomSampler(range(5))), 1.0
        for k in some:
            scale = scale * (k + 1)
            break
        out = net(x)
        loss = F.cross_entropy(out, y) * order[0] + out.std(0).sum() * scale
        STEP
        print(epoch, loss.item())
""",
    "as many boxes for each sample as a part has samples": """
class Scenes(Dataset):
    def __len__(self):
        return len(X)

    def __getitem__(self, i):
        return X[i], X[i].view(2, 3) * (1 + Y[i])


def collate(samples):
    return torch.stack([x for x, _ in samples]), [boxes for _, boxes in samples]


for epoch in range(2):
    for x, boxes in DataLoader(Scenes(), batch_size=4, shuffle=True, collate_fn=collate):
        out = net(x)
        far = sum((o - box).abs().sum() for o, box in zip(out, boxes)) / sum(len(box) for box in boxes)
        loss = far + out.std(0).sum()
        STEP
        print(epoch, loss.item())
""",
    "as many labels as a part has samples": """
loader = DataLoader(TensorDataset(X, Y, Y.flip(0)), batch_size=4, shuffle=True)
for epoch in range(2):
    for x, *labels in loader:
        labels = [it.clone() for it in labels]
        out = net(x)
        loss = sum(F.cross_entropy(out, label) for label in labels) + out.std(0).sum()
        STEP
        print(epoch, loss.item())
""",
    "outputs that are as many as a part has samples": """
class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 3)])

    def forward(self, x):
        return [head(x) for head in self.heads]


net = nn.DataParallel(Heads())
optimizer = optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in DataLoader(TensorDataset(X, Y), batch_size=4, shuffle=True):
        outs = net(x)
        loss = sum(F.cross_entropy(out, y) + out.std(0).sum() for out in outs)
        STEP
        print(epoch, loss.item())
""",
    "what is accumulated over two steps": """
optimizer.zero_grad()
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        out = net(x)
        margin = out.gather(1, y[:, None]).squeeze(1) - out.mean(1)
        loss = torch.relu(margin.median() - margin).mean() / 2
        loss.backward()
        if (i + 1) % 2 == 0:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        if i % 3 == 0:
            print(epoch, i, loss.item() * 2, margin.min().item())
""",
    "meters of times and of losses": """
import time


class Meter:
    def __init__(self):
        self.sum, self.count, self.val = 0.0, 0, 0.0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n

    @property
    def avg(self):
        return self.sum / self.count


def accuracy(output, target, topk=(1, 2)):
    size = target.size(0)
    _, pred = output.topk(max(topk), 1)
    right = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
    return [right[:k].reshape(-1).float().sum(0).mul(100.0 / size).item() for k in topk]


for epoch in range(2):
    loading, losses, top = Meter(), Meter(), Meter()
    end = time.time()
    for i, (input, target) in enumerate(loader):
        loading.update(time.time() - end)
        shown = (len(loader) * epoch + i) % 2 == 0
        output = net(input)
        loss = F.cross_entropy(output, target) + output.std(0).sum()
        top.update(accuracy(output.data, target)[1], input.size(0))
        losses.update(loss.item(), input.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        end = time.time()
        if shown:
            print(epoch, i, losses.val, losses.avg, top.avg)
""",
    "trainers of which one is chosen": """
import os


class Trainer:
    def __init__(self, model):
        self.model = model

    def train(self, loader):
        for self.index, batch in enumerate(loader):
            shown = self.step(batch)
            print(self.index, *(f"{name} {value:.6f}" for name, value in shown.items()))


class Plain(Trainer):
    def step(self, batch):
        x, y = batch
        out = self.model(x)
        loss = F.cross_entropy(out, y) + out.std(0).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss.item()}


class Triplet(Trainer):
    def step(self, batch):
        x, y = batch
        out = self.model(x)
        far = torch.cdist(out, out)
        same = (y[:, None] == y[None, :]).float()
        loss = (far * same).max(1).values.mean() + F.relu(1 - far + 9 * same).min(1).values.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss.item(), "far": far.max().item()}


trainer = {"plain": Plain, "triplet": Triplet}[os.environ.get("KIND", "triplet")](net)
for epoch in range(2):
    trainer.train(loader)
""",
    "a branch for each precision": """
import os

half = os.environ.get("HALF", "0") == "1"
for epoch in range(2):
    for x, y in loader:
        if half:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = net(x)
                loss = F.cross_entropy(out, y) + out.std(0).sum()
        else:
            out = net(x)
            loss = F.cross_entropy(out, y) + out.std(0).sum()
        STEP
    print(epoch, loss.item())
""",
    "metrics by way of decorators, where they are shown": """
def no_grad(function):
    def wrapper(*args, **kwargs):
        with torch.no_grad():
            return function(*args, **kwargs)

    return wrapper


def each(function):
    def wrapper(values):
        if isinstance(values, dict):
            return {key: wrapper(value) for key, value in values.items()}
        return [wrapper(it) for it in values] if isinstance(values, list) else function(values)

    return wrapper


@each
def number(value):
    return value.item() if isinstance(value, torch.Tensor) else value


@no_grad
def worst(outs, y):
    errors = []
    for i in range(outs.shape[0]):
        errors.append((outs[i] - y[i]).abs().max())
    return errors[0] if len(errors) == 1 else sum(errors) / len(errors)


def train_sample(sample, shown=False):
    x, y = sample
    optimizer.zero_grad()
    out = net(x)
    mask = (y > 0) & (y < 9)
    loss = F.cross_entropy(out[mask], y[mask]) if mask.any() else out.sum() * 0
    numbers = {"loss": loss}
    if shown:
        numbers["worst"] = [worst(it, y) for it in (out, out * 2)]
    loss.backward()
    optimizer.step()
    return number(loss), number(numbers)


for epoch in range(2):
    for index, sample in enumerate(loader):
        step = len(loader) * epoch + index
        shown = step % 3 == 0
        loss, numbers = train_sample(sample, shown=shown)
        if shown:
            print(step, f"{numbers['loss']:.6f}", *(f"{it:.6f}" for it in numbers["worst"]))
""",
    "an optimizer that is made anew within the loop": """
def make(lr):
    return optim.SGD(net.parameters(), lr=lr)


epoch = 0
for index, (x, y) in enumerate(loader):
    if index % 2 == 0:
        epoch += 1
        optimizer = make(0.1 / epoch)
        for group in optimizer.param_groups:
            print(f"epoch {epoch} lr {group['lr']}")
    out = net(x)
    loss = F.cross_entropy(out, y) + out.std(0).sum()
    STEP
    print(index, loss.item())
""",
    "a model that keeps what it computes": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        self.features = F.relu(self.hidden(x))
        return self.head(self.features), self.features


net = nn.DataParallel(Net())
optimizer = optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        out, features = net(x)
        loss = F.cross_entropy(out, y) + features.var(0).sum()
        STEP
    print(epoch, loss.item())
""",
    "children of the model, trained with rates of their own": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(F.relu(self.body(x)))


net = nn.DataParallel(Net())
fresh, base = [], []
for name, child in net.module.named_children():
    if name == "head":
        fresh += [p for p in child.parameters()]
    else:
        base += [p for p in child.parameters()]
optimizer = optim.SGD([{"params": base, "lr": 0.01}, {"params": fresh}], lr=0.1)
for epoch in range(2):
    for x, y in loader:
        out = net(x)
        loss = F.cross_entropy(out, y) + out.std(0).sum()
        STEP
    print(epoch, loss.item())
""",
    "hooks that count a model's operations before the training": """
def operations(model):
    counted, named = [], {}

    def linear(module, given, output):
        counted.append(given[0].size(0) * module.weight.nelement())
        named["last"] = output.numel()

    def register(module):
        children = list(module.children())
        if not children and isinstance(module, nn.Linear):
            module.register_forward_hook(linear)
        for child in children:
            register(child)

    register(model)
    model(torch.rand(2, 6))
    total = sum(counted)
    for value in named.values():
        total += value
    return total


epochs = 2 if operations(nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3))) > 20 else 1
for epoch in range(epochs):
    for x, y in loader:
        out = net(x)
        loss = F.cross_entropy(out, y) + out.std(0).sum()
        STEP
    print(epoch, loss.item())
""",
    "a model that returns its losses in a list of a dict": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, batch):
        features = F.relu(self.body(batch["x"]))
        out = self.head(features)
        losses = [F.cross_entropy(out, batch["y"]), features.mean(), out.std(0).sum(), out.pow(2).mean()]
        return {"losses": losses, "predict": [out, features], "right": (out.argmax(1) == batch["y"]).float().mean()}


class Meter:
    def __init__(self):
        self.values = {}

    def update(self, **kwargs):
        for key, value in kwargs.items():
            self.values.setdefault(key, []).append(value)


net = nn.DataParallel(Net())
optimizer = optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    meter = Meter()
    for x, y in loader:
        outputs = net({"x": x, "y": y})
        first, second, third, fourth = (torch.mean(it) for it in outputs["losses"])
        loss = first * second.detach() + third + fourth
        STEP
        meter.update(loss=loss.item(), right=torch.mean(outputs["right"]).item())
    print(epoch, *(f"{key} {sum(it):.6f}" for key, it in meter.values.items()))
""",
    "some samples that are shown behind the forward": """
for epoch in range(2):
    for index, (x, y) in enumerate(loader):
        size = x.size(0)
        out = net(x)
        if index == 0:
            if size > 2:
                x = x[0:2, :]
            print(x.sum(len(x.shape) - 1).tolist())
        del x
        loss = torch.norm(out - out.mean(0), dim=len(out.shape) - 1).mean() + F.cross_entropy(out, y)
        STEP
    print(epoch, f"{loss.item():.6f}", size)
""",
    "a head beside the wrapped model that mixes samples": """
head = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3))
optimizer = optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
for epoch in range(2):
    net.train()
    head.train()
    for x, y in loader:
        features = net(x)
        out = head(features)
        loss = F.cross_entropy(out, y)
        STEP
    print(epoch, loss.item(), *head[0].running_mean.tolist())
""",
    "a head beside the wrapped model that counts": """
class Center(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3, 3))
        self.steps = 0

    def forward(self, features, y):
        self.steps += 1
        found = torch.stack([(features[y == c] - self.weight[c]).pow(2).sum() for c in y.unique()])
        return found.mean() / self.steps


center = Center()
optimizer = optim.SGD([*net.parameters(), *center.parameters()], lr=0.1)
for epoch in range(2):
    for x, y in loader:
        out = net(x)
        loss = F.cross_entropy(out, y) + center(out, y)
        STEP
    print(epoch, f"{loss.item():.6f}", center.steps)
""",
    "numbers drawn behind the forward": """
for epoch in range(2):
    for x, y in loader:
        out = net(x)
        order = torch.randperm(len(out))
        loss = F.cross_entropy(out, y) + (out - out[order]).pow(2).mean()
        STEP
    print(epoch, loss.item())
""",
    "what a distribution draws behind the forward": """
beta = torch.distributions.Beta(0.4, 0.4)
for epoch in range(2):
    for x, y in loader:
        out = net(x)
        lam = beta.sample().item()
        loss = lam * F.cross_entropy(out, y) + (1 - lam) * out.std(0).sum()
        STEP
    print(epoch, loss.item())
""",
    "a loss that draws from a distribution": """
beta = torch.distributions.Beta(0.4, 0.4)


def mixed(out, y):
    lam = beta.rsample()
    return lam * F.cross_entropy(out, y) + (1 - lam) * out.std(0).sum()


for epoch in range(2):
    for x, y in loader:
        out = net(x)
        loss = mixed(out, y)
        STEP
    print(epoch, loss.item())
""",
    "one of several outputs, beside an evaluation of the bare model": """
class Flows(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        hidden = self.body(x).relu()
        return [self.head(hidden), self.head(2 * hidden)], hidden


bare = Flows()
net = nn.DataParallel(bare)
bare = net.module
optimizer = optim.SGD(net.parameters(), lr=0.1)


def judged(outs, y):
    loss = 0.0
    for out in outs:
        loss += F.cross_entropy(out, y, reduction="none").topk(max(1, len(y) // 2))[0].mean()
    wrong = (outs[-1].argmax(1) != y).float()
    return loss, {"wrong": wrong.mean().item(), "spread": wrong.std().item()}


@torch.no_grad()
def validate(model):
    model.eval()
    right = 0
    for i in range(len(X)):
        out = model(X[i : i + 1])[0][-1]
        right += (out.argmax(1) == Y[i]).sum().item()
    model.train()
    return right


for epoch in range(2):
    for i, sample in enumerate(loader):
        x, y = [it.to("cpu") for it in sample]
        outs = net(x)[0]
        loss, shown = judged(outs, y)
        STEP
        print(i, loss.item(), shown)
        if i == 3:
            print("right", validate(bare))
""",
    "a step that an evaluation without gradients takes, too": SHARED_STEP,
    "a step that an evaluation runs, too": """
class Trainer:
    def step(self, batch):
        x, y = batch
        out = net(x)
        loss = F.cross_entropy(out, y) + out.std(0).sum()
        return loss, (out.argmax(1) == y).sum().item(), len(y)

    def fit(self):
        for batch in loader:
            loss, right, count = self.step(batch)
            STEP
        return loss.item()

    def validate(self):
        right = count = 0
        with torch.no_grad():
            for batch in DataLoader(TensorDataset(X[:21], Y[:21]), batch_size=8):
                _, some, number = self.step(batch)
                right, count = right + some, count + number
        return right, count


trainer = Trainer()
for epoch in range(2):
    print(epoch, trainer.fit(), *trainer.validate())
""",
}
"""Sharded by a joint: each is trained to the same numbers, on two ranks and on three."""

APART = {
    "a forward behind what it writes": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x):
        self.scale.mul_(0.9)
        return self.layer(x)


net = nn.DataParallel(Net())
optimizer = optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = net.module.scale * 0.1 + (net(x)[:, 0] - y).abs().median()
        STEP
        print(epoch, loss.item())
""",
    "a training loop inside of another one's rounds": """
critic = nn.DataParallel(nn.Linear(3, 1))
steps = optim.SGD(critic.parameters(), lr=0.1)


def noise(n):
    return torch.randn(n, 6)


def endless():
    while True:
        yield from loader


batches = endless()
for it in range(4):
    for _ in range(2):
        x, y = next(batches)
        with torch.no_grad():
            fake = net(noise(x.size(0)))
        d_real = critic(x[:, :3])
        d_fake = critic(fake)
        loss = F.relu(1 - d_real).mean() + F.relu(1 + d_fake).mean()
        steps.zero_grad()
        loss.backward()
        steps.step()
    g_loss = -critic(net(noise(8))).mean()
    optimizer.zero_grad()
    g_loss.backward()
    optimizer.step()
    print(it, loss.item(), g_loss.item(), d_real.mean().item(), d_fake.mean().item())
""",
    "a forward behind another call of its statement": """
for epoch in range(2):
    for x, y in loader:
        loss = F.mse_loss(y.float(), (y + 1).float()) * (net(x)[:, 0] - y).abs().median()
        STEP
        print(epoch, loss.item())
""",
    "a forward that a condition leads to": """
for epoch in range(2):
    for x, y in loader:
        loss = (net(x) if epoch else net(x + 1))[:, 0].median()
        STEP
        print(epoch, loss.item())
""",
    "a layer of the wrapped model by itself": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x):
        return self.body(x).relu()


net = nn.DataParallel(Net())
optimizer = optim.SGD(net.parameters(), lr=0.1, weight_decay=0.01)
for epoch in range(2):
    for x, y in loader:
        features = net(x)
        loss = F.cross_entropy(net.module.head(features), y) + features.pow(2).mean()
        STEP
    print(epoch, loss.item())
""",
    "two steps in a round": """
head = nn.DataParallel(nn.Linear(3, 3))
other = optim.SGD(head.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        out = net(x)
        loss = F.cross_entropy(out, y) + out.std(0).sum()
        STEP
        again = head(net(x).detach())
        second = F.cross_entropy(again, y) + again.std(0).sum()
        other.zero_grad()
        second.backward()
        other.step()
    print(epoch, loss.item(), second.item())
""",
    "batches of two loaders": """
more = DataLoader(TensorDataset(X + 1, Y), batch_size=5, shuffle=True)
for epoch in range(2):
    for (x, y), (u, v) in zip(loader, more):
        out, other = net(x), net(u)
        loss = F.cross_entropy(out, y) + F.cross_entropy(other, v) + (out.std(0) - other.std(0)).abs().sum()
        STEP
    print(epoch, loss.item())
""",
    "a state that is handed on to the next forward": """
class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(6, 3)

    def forward(self, x, h):
        return self.cell(x, h)


net = nn.DataParallel(Cell())
optimizer = optim.SGD(net.parameters(), lr=0.1)
even = DataLoader(TensorDataset(X[:40], Y[:40]), batch_size=8)
for epoch in range(2):
    h = torch.zeros(8, 3)
    for x, y in even:
        h = net(x, h)
        loss = F.cross_entropy(h, y) + h.std(0).sum()
        STEP
        h = h.detach()
    print(epoch, loss.item())
""",
    "gradients by what the model is given": """
for epoch in range(2):
    for x, y in loader:
        x = x.clone().requires_grad_()
        out = net(x)
        (grad,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        loss = F.cross_entropy(out, y) + (grad.norm(dim=1) - 1).pow(2).mean() + out.std(0).sum()
        STEP
    print(epoch, loss.item())
""",
    "what is kept of a part before": """
kept = []
for epoch in range(2):
    for x, y in loader:
        kept.append(x.mean(0))
        out = net(x)
        loss = F.cross_entropy(out, y) + out.std(0).sum()
        STEP
    print(epoch, loss.item(), *torch.stack(kept).std(0).tolist())
""",
    "a closure with names of the loop": """
optimizer = optim.LBFGS(net.parameters(), lr=0.1, max_iter=2)
for epoch in range(2):
    for x, y in loader:
        def closure():
            optimizer.zero_grad()
            out = net(x)
            loss = F.cross_entropy(out, y) + out.std(0).sum()
            loss.backward()
            return loss

        loss = optimizer.step(closure)
    print(epoch, loss.item())
""",
    "a default that is a part": """
for epoch in range(2):
    for x, y in loader:
        m = x.mean()
        out = net(x)

        def off(o, m=m):
            return (o - m).pow(2).sum()

        loss = torch.stack([off(o) for o in out]).median() + out.std(0).sum()
        STEP
    print(epoch, loss.item())
""",
    "a step that is tried before the training": """
def step(batch):
    x, y = batch
    out = net(x)
    loss = F.cross_entropy(out, y) + out.std(0).sum()
    return loss, (out.argmax(1) == y).sum().item()


with torch.no_grad():
    loss, right = step((X[:10], Y[:10]))
print(loss.item(), right)
for epoch in range(2):
    for batch in loader:
        loss, right = step(batch)
        STEP
    print(epoch, loss.item(), right)
""",
    "a loop whose target is an attribute": """
class Trainer:
    def loss(self, out):
        return (out.std(0).sum() - self.y.float().mean()).pow(2)

    def epoch(self):
        for x, self.y in loader:
            out = net(x)
            loss = self.loss(out)
            STEP
        return loss.item()


trainer = Trainer()
for epoch in range(2):
    print(epoch, trainer.epoch())
""",
    "what a method keeps of a part before": """
class Bank:
    def __init__(self):
        self.items = []

    def push(self, rows):
        return [self.items.append(row) for row in rows.detach()]

    def pull(self, out):
        return torch.cdist(out, torch.stack(self.items[-40:])[:, :3]).min(1)[0].median()


bank = Bank()
for epoch in range(2):
    for x, y in loader:
        n = bank.push(x)
        out = net(x)
        loss = F.cross_entropy(out, y) + bank.pull(out)
        STEP
    print(epoch, loss.item(), len(bank.items))
""",
    "a layer of the wrapped model behind the forward": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.body(x)


net = nn.DataParallel(Net())
optimizer = optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        f = net(x)
        out = net.module.head(f - f.mean(0))
        loss = F.cross_entropy(out, y)
        STEP
    print(epoch, loss.item())
""",
    "a loss of an attribute that the loop sets": """
class Trainer:
    def loss(self, out):
        same = (self.y[:, None] == self.y[None, :]).float()
        return ((out @ out.T) * same).max() + out.std(0).sum()

    def epoch(self):
        for x, self.y in loader:
            out = net(x)
            loss = self.loss(out)
            STEP
        return loss.item()


trainer = Trainer()
for epoch in range(2):
    print(epoch, trainer.epoch())
""",
    "several steps with one batch": """
for epoch in range(2):
    for x, y in loader:
        for _ in range(2):
            out = net(x)
            loss = F.cross_entropy(out, y) + out.std(0).sum()
            STEP
    print(epoch, loss.item())
""",
    "a batch that an attribute has": """
class Holder:
    def set(self, batch):
        self.x, self.y = batch

    def forward(self):
        self.out = net(self.x)

    def loss(self):
        return F.cross_entropy(self.out, self.y) + self.out.std(0).sum()


holder = Holder()
for epoch in range(2):
    for batch in loader:
        holder.set(batch)
        holder.forward()
        loss = holder.loss()
        STEP
    print(epoch, loss.item())
""",
    "memory that is written before": """
bank = torch.zeros(3, 6)
for epoch in range(2):
    for x, y in loader:
        bank[y] = x
        out = net(x)
        loss = F.cross_entropy(out, y) + out.std(0).sum() + bank.mean() * 0.0
        STEP
    print(epoch, loss.item(), bank.sum().item())
""",
    "a batch of another loader behind the forward": """
others = DataLoader(TensorDataset(X), batch_size=8, shuffle=True)
for epoch in range(2):
    more = iter(others)
    for x, y in loader:
        out = net(x)
        (other,) = next(more)
        loss = F.cross_entropy(out, y) + out.std(0).sum() * other.max()
        STEP
    print(epoch, loss.item())
""",
    "a closure that keeps a part": """
kept = []
for epoch in range(2):
    for x, y in loader:
        def keep():
            kept.append(y)

        keep()
        out = net(x)
        loss = F.cross_entropy(out, y) + out.std(0).sum() * kept[-1].float().mean()
        STEP
    print(epoch, loss.item(), len(kept))
""",
    "an object that is made of a part": """
class Holder:
    seen = []

    def __init__(self, values):
        self.values = values

    def keep(self):
        Holder.seen.append(self.values.float().mean())


for epoch in range(2):
    for x, y in loader:
        holder = Holder(y)
        holder.keep()
        out = net(x)
        loss = F.cross_entropy(out, y) + out.std(0).sum() * Holder.seen[-1]
        STEP
    print(epoch, loss.item())
""",
    "a default of a function that is a part": """
for epoch in range(2):
    for x, y in loader:
        low = x.amin()

        def above(rows, low=low):
            return (rows - low).pow(2).mean()

        out = net(x)
        loss = F.cross_entropy(out, y) + out.std(0).sum() + above(out)
        STEP
    print(epoch, loss.item())
""",
    "a round that may end before its forward": """
for epoch in range(2):
    for index, (x, y) in enumerate(loader):
        size = x.size(0)
        if index == 4:
            continue
        out = net(x)
        loss = out.std(0).sum() / size + F.cross_entropy(out, y)
        STEP
    print(epoch, loss.item(), size)
""",
    "a list of a round that a part is put into": """
for epoch in range(2):
    for x, y in loader:
        seen, named = [], {}
        seen.append(y)
        named["y"] = y.float().mean()
        out = net(x)
        loss = F.cross_entropy(out, y) + out.std(0).sum() * seen[0].float().mean() * named["y"]
        STEP
    print(epoch, loss.item())
""",
    "what a method hands back, and keeps, of a part": """
class Memory:
    def keep(self, values):
        self.mean = values.float().mean()
        return 1.0

    def scale(self, value):
        return value * self.mean


memory = Memory()
for epoch in range(2):
    for x, y in loader:
        one = memory.keep(y)
        out = net(x)
        loss = F.cross_entropy(out, y) + memory.scale(out.std(0).sum()) * one
        STEP
    print(epoch, loss.item())
""",
    "a generator that holds a part": """
def halves(values):
    half = len(values) // 2
    yield values[:half].float().mean()
    yield values[half:].float().mean()


for epoch in range(2):
    for x, y in loader:
        made = halves(y)
        out = net(x)
        loss = F.cross_entropy(out, y) + out.std(0).sum() * next(made) * next(made)
        STEP
    print(epoch, loss.item())
""",
    "a branch without a forward, and what comes after both": """
for epoch in range(2):
    for index, (x, y) in enumerate(loader):
        if index % 2 == 0:
            out = net(x)
            loss = F.cross_entropy(out, y) + out.std(0).sum()
            STEP
        else:
            out = x[:, :3]
        print(index, y.float().mean().item(), out.abs().amax().item(), loss.item())
""",
    "a lambda with a part": """
for epoch in range(2):
    for x, y in loader:
        out = net(x)
        rows = torch.stack(list(map(lambda o: (o - y.float().mean()).pow(2).mean(), out)))
        loss = rows.median() + rows.mean()
        STEP
    print(epoch, loss.item())
""",
    "a loss that is given a lambda with a part": """
def each(function, rows):
    return torch.stack([function(row) for row in rows]).median() + rows.std(0).sum()


for epoch in range(2):
    for x, y in loader:
        out = net(x)
        loss = each(lambda o: (o - y.float().mean()).pow(2).mean(), out)
        STEP
    print(epoch, loss.item())
""",
    "a branch without a forward, which makes a number of a part": """
for epoch in range(2):
    for index, (x, y) in enumerate(loader):
        if index % 2 == 0:
            out = net(x)
            loss = F.cross_entropy(out, y) + out.std(0).sum()
            STEP
            seen = out.detach().amax()
        else:
            seen = x.amax()
        print(index, seen.item(), loss.item())
""",
    "labels that are not followed, of batches that are pulled": """
import operator


def together(batch):
    return torch.stack([x for x, _ in batch]), [y.view(1) for _, y in batch]


pulled = DataLoader(TensorDataset(X, Y), batch_size=8, shuffle=True, collate_fn=together)
batches = iter(pulled)
for step in range(9):
    try:
        x, labels = next(batches)
    except StopIteration:
        batches = iter(pulled)
        x, labels = next(batches)
    labels = [operator.methodcaller("to", "cpu")(it) for it in labels]
    out = net(x)
    wanted = []
    for i in range(out.size(0)):
        wanted.append(labels[i])
    losses = F.cross_entropy(out, torch.cat(wanted), reduction="none")
    loss = losses.topk(max(1, len(losses) // 2))[0].mean()
    STEP
    print(step, loss.item())
""",
    "a tensor of which each replica gets some rows": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, x, scale):
        return self.head(x) * scale


even = DataLoader(TensorDataset(X, Y), batch_size=12, drop_last=True)
net = nn.DataParallel(Net())
optimizer = optim.SGD(net.parameters(), lr=0.1)
scale = torch.linspace(0.5, 2, 12).view(12, 1)
for epoch in range(2):
    for x, y in even:
        out = net(x, scale)
        loss = F.cross_entropy(out, y)
        STEP
    print(epoch, loss.item())
""",
    "a state that begins with a row for each sample": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.GRUCell(6, 4), nn.Linear(4, 3)

    def forward(self, x, h):
        h = self.cell(x, h)
        return self.head(h), h

    def begun(self, size):
        weight = next(self.parameters())
        return weight.new_zeros(size, 4), 0


even = DataLoader(TensorDataset(X, Y), batch_size=12, drop_last=True)
net = nn.DataParallel(Net())
optimizer = optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    h, seen = net.module.begun(12)
    for x, y in even:
        h = h.detach()
        out, h = net(x, h)
        loss = F.cross_entropy(out, y)
        STEP
    print(epoch, loss.item(), seen)
""",
    "a step that an evaluation with gradients takes, too": SHARED_STEP.replace(
        "        with torch.no_grad():\n", "        if True:\n"
    ),
    "a step that the training takes without gradients, too": """
def step(x, y):
    out = net(x)
    loss = F.cross_entropy(out, y) + out.std(0).sum()
    return loss, out


for epoch in range(2):
    for x, y in loader:
        with torch.no_grad():
            before, _ = step(x, y)
        loss, out = step(x, y)
        loss = loss * (1 + before)
        STEP
        print(epoch, loss.item(), before.item())
""",
}
"""Not joined: what is done instead trains to the same numbers."""

# A detector that draws its batches with next(), matches boxes one sample at a time, and evaluates in its training loop.
DETECTOR = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
import numpy as np
from torch.autograd import Variable


class Boxes(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(3)
        self.x = torch.randn(n, 6, generator=g)
        self.t = [torch.rand(1 + i % 3, 3, generator=g).numpy() for i in range(n)]

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.t[i]


def detection_collate(batch):
    targets = []
    imgs = []
    for _, sample in enumerate(batch):
        for _, tup in enumerate(sample):
            if torch.is_tensor(tup):
                imgs.append(tup)
            elif isinstance(tup, type(np.empty(0))):
                annos = torch.from_numpy(tup).float()
                targets.append(annos)
    return (torch.stack(imgs, 0), targets)


def criterion(out, targets):
    num = out.size(0)
    conf = torch.zeros(num, 3)
    for idx in range(num):
        match(targets[idx][:, -1].data, conf, idx)
    pos = conf > 0.8
    N = pos.sum().float()
    return ((out[:, :3] - conf) ** 2)[pos].sum() / N, out[:, 3:].abs().sum() / N


def match(labels, conf_t, idx):
    overlaps = labels[:, None] - torch.linspace(0, 1, 5)[None]
    best, order = overlaps.max(0, keepdim=True)
    order.squeeze_(0)
    best.squeeze_(0)
    conf = labels[order]
    conf[best < 0.2] = 0
    conf_t[idx] = conf[:3]


def test_net(net, testset, detector):
    found = []
    for i in range(len(testset)):
        x = testset[i][0].unsqueeze(0)
        found.append(detector(net(x)).sum().item())
    return sum(found)


class Detector:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, out):
        return out * self.scale


def main():
    torch.manual_seed(0)
    dataset = Boxes(40)
    net = nn.DataParallel(nn.Linear(6, 6))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    epoch_size = len(dataset) // 8
    batch_iterator = None
    for iteration in range(3 * epoch_size):
        if iteration % epoch_size == 0:
            if iteration > 0:
                net.eval()
                detector = Detector(2)
                value = test_net(net, dataset, detector)
                print("test", "%.5f" % value)
                net.train()
            batch_iterator = iter(DataLoader(dataset, 8, shuffle=True, collate_fn=detection_collate))
        images, targets = next(batch_iterator)
        if torch.cuda.is_available():
            images = images.cuda()
            targets = [Variable(anno.cuda(), volatile=True) for anno in targets]
        else:
            targets = [Variable(anno, volatile=True) for anno in targets]
        out = net(images)
        optimizer.zero_grad()
        loss_l, loss_c = criterion(out, targets)
        loss = loss_l + loss_c
        loss.backward()
        optimizer.step()
        if iteration % 5 == 0:
            print(iteration, "%.6f" % loss.item())
    torch.save(net.state_dict(), "final.pth")


if __name__ == "__main__":
    main()
"""
