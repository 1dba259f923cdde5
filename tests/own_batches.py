"""Programs that make their batches themselves, each in another way, and those that only look like it."""

from __future__ import annotations

from programs import AVERAGES

HEAD = """\
import random
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim

torch.manual_seed(0)
np.random.seed(0)
random.seed(0)
X, Y = torch.randn(50, 6), torch.randint(0, 3, (50,))
net = nn.DataParallel(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)))
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=0.1)
"""
STEP = """
optimizer.zero_grad()
loss.backward()
optimizer.step()
"""
PREFETCHER = """
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=7, shuffle=True)


class Prefetcher:
    def __init__(self, source):
        self.source = iter(source)
        self.preload()

    def preload(self):
        try:
            self.x, self.y = next(self.source)
        except StopIteration:
            self.x = None
            self.y = None
            return
        self.x = self.x.float()

    def next(self):
        x = self.x
        y = self.y
        self.preload()
        return x, y


"""
SCALING = PREFETCHER.replace(
    "        self.preload()\n\n    def preload",
    "        self.scale = torch.tensor([1.0]).view(1, 1)\n        self.preload()\n\n    def preload",
).replace("self.x.float()", "self.x.float().mul_(self.scale)")


def with_steps(head: str, body: str, step: str = STEP) -> str:
    """A program: the head, and the body with its steps of the optimizer."""
    lines = []
    for line in body.strip("\n").splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        lines += [indent + it for it in step.strip().splitlines()] if line.strip() == "STEP" else [line]
    return head + "\n".join(lines) + "\n"


def _program(body: str, step: str = STEP) -> str:
    return with_steps(HEAD, body, step)


# Batches of a loader with workers that draw numbers for each sample, handed on by a generator.
NOISY = """
class Noisy(torch.utils.data.Dataset):
    def __len__(self):
        return len(X)

    def __getitem__(self, index):
        return X[index] + 0.1 * torch.randn(6), Y[index]


def forever(loader):
    while True:
        yield from loader


loader = torch.utils.data.DataLoader(Noisy(), batch_size=7, shuffle=True, num_workers=2)
batches = forever(loader)
for step in range(12):
    x, y = next(batches)
    loss = criterion(net(x), y)
    STEP
    print(step, loss.item())
"""
DIVIDED = {
    "a generator that hands on a loader with workers": NOISY,
    "a generator that goes through a loader with workers": NOISY.replace(
        "        yield from loader", "        for batch in loader:\n            yield batch"
    ),
    "a generator that is begun by repeat": NOISY.replace(
        "    while True:\n        yield from loader",
        "    for again in itertools.repeat(loader):\n        yield from again",
    ).replace("class Noisy", "import itertools\n\n\nclass Noisy"),
    "a loop over a generator that hands on a loader with workers": NOISY.replace(
        "for step in range(12):\n    x, y = next(batches)\n", "for step, (x, y) in enumerate(batches):\n"
    ).replace("    print(", "    if step == 11:\n        break\n    print("),
    "a loader begun anew for each batch": """
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=7, shuffle=True)
losses = []
for step in range(6):
    x, y = next(iter(loader))
    out = net(x)
    loss = criterion(out, y)
    STEP
    losses.append(loss.item())
    print(step, loss.item(), (out.argmax(1) == y).float().mean().item())
print(sum(losses))
""",
    "objects of a class": """
class Batch:
    def __init__(self, x, y):
        self.x, self.y = x, y


def batches():
    order = torch.randperm(len(X))
    for start in range(0, len(X), 8):
        yield Batch(X[order[start : start + 8]], Y[order[start : start + 8]])


for epoch in range(2):
    for batch in batches():
        loss = criterion(net(batch.x), batch.y)
        STEP
    print(epoch, loss.item())
""",
    "objects of a class that are joined": """
class Batch:
    def __init__(self, x, y):
        self.x, self.y, self.size = x, y, len(x)

    def __iter__(self):
        return iter((self.x, self.y))


def batches():
    order = torch.randperm(len(X))
    for start in range(0, len(X), 8):
        yield Batch(X[order[start : start + 8]], Y[order[start : start + 8]])


for epoch in range(2):
    for batch in batches():
        out = net(batch.x)
        loss = F.cross_entropy(out, batch.y, reduction="sum") / batch.size
        STEP
        print(epoch, loss.item(), batch.size)
""",
    "slices": """
for epoch in range(2):
    total = 0.0
    for start in range(0, len(X), 8):
        loss = criterion(net(X[start : start + 8]), Y[start : start + 8])
        STEP
        total += loss.item()
    print(total)
""",
    "permutation": """
for epoch in range(2):
    order, seen, right, total = torch.randperm(len(X)), 0, 0, 0.0
    for start in range(0, len(X), 8):
        picked = order[start : start + 8]
        x, y = X[picked], Y[picked]
        out = net(x)
        loss = criterion(out, y)
        STEP
        seen += len(x)
        right += (out.argmax(1) == y).sum().item()
        total += loss.item() * x.size(0)
    print(epoch, total / seen, right / seen)
""",
    "targets that are only compared": """
order = np.random.permutation(len(X))
for start in range(0, len(X), 8):
    out = net(X[order[start : start + 8]])
    loss = criterion(out, Y[order[start : start + 8]])
    STEP
    print((out.argmax(1) == Y[order[start : start + 8]]).float().mean().item(), loss.item())
""",
    "generator": """
def batches(data, labels, size):
    order = np.random.permutation(len(data))
    for start in range(0, len(order) - size + 1, size):
        picked = order[start : start + size]
        yield data[picked], labels[picked]


for epoch in range(2):
    losses = []
    for i, (x, y) in enumerate(batches(X, Y, 7)):
        loss = criterion(net(x), y)
        STEP
        losses.append(loss.item())
    print(np.mean(losses))
""",
    "function": """
def get_batch(split):
    data, labels = (X[:40], Y[:40]) if split == "train" else (X[40:], Y[40:])
    picked = torch.randint(len(data), (7,))
    return torch.stack([data[i] for i in picked]), labels[picked]


@torch.no_grad()
def estimate():
    net.eval()
    x, y = get_batch("val")
    found = criterion(net(x), y).item()
    net.train()
    return found


for step in range(8):
    if step % 4 == 0:
        print("val", estimate())
    x, y = get_batch("train")
    loss = criterion(net(x), y)
    STEP
    print(step, loss.item())
""",
    "endless generator": """
def endless():
    while True:
        for start in range(0, 48, 8):
            yield X[start : start + 8].numpy(), Y[start : start + 8].numpy()


data = endless()
for step in range(8):
    x, y = next(data)
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    loss = criterion(net(x), y)
    STEP
    print(step, loss.item())
""",
    "iterator class": """
class Batches:
    def __init__(self, data, labels, size):
        self.data, self.labels, self.size, self.at = data, labels, size, 0

    def __iter__(self):
        return self

    def __len__(self):
        return -(-len(self.data) // self.size)

    def __next__(self):
        if self.at >= len(self.data):
            self.at = 0
            raise StopIteration
        x, y = self.data[self.at : self.at + self.size], self.labels[self.at : self.at + self.size]
        self.at += self.size
        return x, y


batches = Batches(X, Y, 8)
for epoch in range(2):
    total = 0.0
    for x, y in batches:
        loss = criterion(net(x), y)
        STEP
        total += loss.item()
    print(total / len(batches))
""",
    "replay memory": """
class Memory:
    def __init__(self, capacity):
        self.kept = deque(maxlen=capacity)

    def push(self, *transition):
        self.kept.append(transition)

    def sample(self, size):
        states, actions, rewards, following = zip(*random.sample(self.kept, size))
        return np.stack(states), np.array(actions), np.array(rewards, dtype="float32"), np.stack(following)

    def __len__(self):
        return len(self.kept)


memory = Memory(40)
state = np.random.randn(6).astype("float32")


def learn():
    if len(memory) < 8:
        return
    states, actions, rewards, following = memory.sample(8)
    states, following = torch.from_numpy(states), torch.from_numpy(following)
    actions, rewards = torch.from_numpy(actions).long(), torch.from_numpy(rewards)
    q = net(states).gather(1, actions.unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        target = rewards + 0.9 * net(following).max(1)[0]
    loss = F.smooth_l1_loss(q, target)
    STEP


total = 0.0
for step in range(24):
    with torch.no_grad():
        action = net(torch.from_numpy(state).unsqueeze(0)).argmax(1).item()
    if random.random() < 0.5:
        action = random.randrange(3)
    following = np.random.randn(6).astype("float32") + action
    reward = float(following.sum())
    memory.push(state, action, reward, following)
    state, total = following, total + reward
    learn()
print(total)
""",
    "named transitions": """
Transition = namedtuple("Transition", ("state", "action", "reward"))
memory = []
for i in range(50):
    memory.append(Transition(X[i], i % 3, float(i % 5)))
for step in range(6):
    transitions = random.sample(memory, 8)
    batch = Transition(*zip(*transitions))
    states, actions = torch.stack(batch.state), torch.tensor(batch.action).unsqueeze(1)
    rewards = torch.tensor(batch.reward)
    loss = F.mse_loss(net(states).gather(1, actions).squeeze(1), rewards)
    STEP
print(net.module[0].weight.sum().item())
""",
    "list of batches": """
def grouped(data, labels, size):
    found = []
    for start in range(0, len(data), size):
        found.append((data[start : start + size], labels[start : start + size]))
    return found


batches = grouped(X, Y, 8)
for epoch in range(2):
    random.shuffle(batches)
    for x, y in batches:
        loss = criterion(net(x), y)
        STEP
        print(loss.item())
""",
    "batches by their number": """
def batch(i):
    return X[i * 8 : (i + 1) * 8], Y[i * 8 : (i + 1) * 8]


for i in range(6):
    x, y = batch(i)
    x = F.normalize(x)
    loss = criterion(net(x), y)
    STEP
    print(f"{loss.item():.5f}")
""",
    "noise of a fixed size": """
real = torch.ones(8, 1)
for step in range(6):
    z, wanted = torch.randn(8, 6), torch.full((8,), 2)
    loss = criterion(net(z), wanted)
    STEP
    print(loss.item())
""",
    "evaluated by hand, and stopped early": """
class Batches:
    def __init__(self, data, labels, size):
        self.data, self.labels, self.size = data, labels, size

    def __iter__(self):
        for start in range(0, len(self.data), self.size):
            yield self.data[start : start + self.size], self.labels[start : start + self.size]

    def __len__(self):
        return -(-len(self.data) // self.size)


def evaluate(model, batches):
    model.eval()
    total, found, wanted = 0.0, np.array([], dtype=int), np.array([], dtype=int)
    with torch.no_grad():
        for x, y in batches:
            out = model(x)
            total += F.cross_entropy(out, y).item()
            found = np.append(found, out.argmax(1).numpy())
            wanted = np.append(wanted, y.numpy())
    return (found == wanted).mean(), total / len(batches)


def train(model, batches, held_out):
    step, best, since, done = 0, float("inf"), 0, False
    for epoch in range(4):
        for i, (x, y) in enumerate(batches):
            model.train()
            loss = F.cross_entropy(model(x), y)
            STEP
            if step % 3 == 0:
                right, dev_loss = evaluate(model, held_out)
                if dev_loss < best - 0.004:
                    best, since = dev_loss, step
                print(step, loss.item(), right, dev_loss, best)
            step += 1
            if step - since > 6:
                done = True
                break
        if done:
            break
    print("steps", step)


train(net, Batches(X[:40], Y[:40], 7), Batches(X[40:], Y[40:], 4))
""",
    "prefetcher": SCALING
    + """for epoch in range(2):
    prefetcher = Prefetcher(loader)
    x, y = prefetcher.next()
    total = 0.0
    while x is not None:
        loss = criterion(net(x), y)
        STEP
        total += loss.item() * x.size(0)
        x, y = prefetcher.next()
    print(epoch, total)
""",
    "meters beside a prefetcher": PREFETCHER
    + """"""
    + AVERAGES
    + """

def train(epoch):
    losses, right, step = Meter(), Meter(), 0
    prefetcher = Prefetcher(loader)
    x, y = prefetcher.next()
    while x is not None:
        out = net(x)
        loss = criterion(out, y)
        accuracy = (out.argmax(1) == y).float().mean() * 100
        losses.update(loss.item(), x.size(0))
        right.update(accuracy.item(), x.size(0))
        STEP
        if step % 2 == 0:
            print("{0} {loss.val:.4f} {loss.avg:.4f} {right.avg:.2f}".format(epoch, loss=losses, right=right))
        step += 1
        x, y = prefetcher.next()
    return right.avg, losses.avg


for epoch in range(2):
    print(*train(epoch))
""",
    "a class round a loader": """
class Pairs(torch.utils.data.Dataset):
    def __len__(self):
        return 26

    def __getitem__(self, i):
        return {"A": X[i], "B": X[-1 - i], "name": str(i)}


class Loader:
    def __init__(self, most):
        self.most = most
        self.inner = torch.utils.data.DataLoader(Pairs(), batch_size=7, shuffle=True, num_workers=2)

    def __len__(self):
        return min(len(self.inner.dataset), self.most)

    def __iter__(self):
        for i, data in enumerate(self.inner):
            if i * 7 >= self.most:
                break
            yield data


class Trainer:
    def __init__(self, forwards):
        self.forwards = forwards

    def set_input(self, data):
        forwards = self.forwards == "A to B"
        self.one = data["A" if forwards else "B"]
        self.other = data["B" if forwards else "A"]
        self.names = data["name"]

    def step(self):
        joined = torch.cat((self.one[:, :3], self.other[:, 3:]), 1)
        loss = F.mse_loss(net(self.one), net(joined).detach())
        STEP
        self.loss = loss


trainer, batches = Trainer("B to A"), Loader(21)
for epoch in range(2):
    for i, data in enumerate(batches):
        trainer.set_input(data)
        trainer.step()
        if i % 2 == 0:
            print(epoch, i, trainer.loss.item())
""",
    "taken ahead": """
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=7, shuffle=True)


class Ahead:
    def __init__(self, source):
        self.source = source

    def __iter__(self):
        batches = iter(self.source)
        ready = next(batches, None)
        while ready is not None:
            batch, ready = ready, next(batches, None)
            yield batch


for epoch in range(2):
    for step, batch in enumerate(Ahead(loader)):
        x, y = batch
        loss = criterion(net(x), y)
        STEP
        print(step, loss.item())
""",
    "samples of a list": """
samples = [(X[i].tolist(), Y[i].item()) for i in range(50)]
for step in range(6):
    picked = random.sample(samples, 8)
    x = torch.FloatTensor([it[0] for it in picked])
    y = torch.LongTensor([it[1] for it in picked])
    loss = criterion(net(x), y)
    STEP
    print(step, loss.item())
""",
    "parts of an order": """
order = np.arange(50)
for epoch in range(2):
    np.random.shuffle(order)
    total = 0.0
    for i, picked in enumerate(np.array_split(order, 6)):  # of nine, and of eight
        loss = criterion(net(X[picked]), Y[picked])
        STEP
        total += loss.item() * len(picked)
    print(i, total / len(X))
    for picked in torch.randperm(len(X)).split(16):  # the last one is of two
        x, y = X[picked], Y[picked]
        loss = criterion(net(x), y)
        STEP
        print(loss.item())
""",
    "parts that a method cuts": """
class Data:
    def __init__(self, inputs, targets):
        self.inputs, self.targets, self.length = inputs, targets, len(inputs)

    def parts(self, size):
        order = np.arange(self.length)
        np.random.shuffle(order)
        self.inputs, self.targets = self.inputs[order], self.targets[order]
        count = -(-self.length // size)
        found = np.split(np.arange(count * size), count)
        found[-1] = found[-1][: self.length - size * (count - 1)]
        return found

    def take(self, picked):
        return self.inputs[picked], self.targets[picked]


data = Data(X.numpy(), Y.numpy())
for epoch in range(2):
    total, parts = 0.0, data.parts(8)
    for picked, j in zip(parts, np.arange(len(parts))):
        x, y = data.take(picked)
        x, y = torch.Tensor(x), torch.Tensor(y).long()
        loss = criterion(net(x), y)
        STEP
        total += loss.item()
        if j % 3 == 0:
            print(j, loss.item())
    print(total)
""",
    "an object that keeps an order": """
class Data:
    def __init__(self):
        self.at, self.order = 0, np.random.permutation(50)

    def following(self, size):
        if self.at + size > 50:
            self.at, self.order = 0, np.random.permutation(50)
        picked = self.order[self.at : self.at + size]
        self.at += size
        return dict(x=X[picked], y=Y[picked])


data = Data()
for step in range(14):
    batch = data.following(7)
    loss = criterion(net(batch["x"]), batch["y"])
    STEP
    print(step, loss.item())
""",
    "weights of what is drawn": """
chances = np.zeros(50)
chances += 1.0 / 50


def draw(count):
    picked = np.random.choice(50, count, p=chances)
    return X[picked], Y[picked], np.ones(count, dtype="float32"), chances[picked] * 50


for step in range(8):
    x, y, weights, others = draw(7)
    each = F.cross_entropy(net(x), y, reduction="none")
    loss = (each * torch.from_numpy(weights) * torch.from_numpy(others)).mean()
    STEP
    print(step, loss.item())
""",
    "columns that are written": """
for step in range(6):
    wanted, z = torch.zeros(8, 3), torch.randn(8, 6)
    wanted[:, step % 3] = 1
    loss = F.mse_loss(net(z), wanted)
    STEP
    print(loss.item())
""",
    "windows of a text": """
text = torch.tensor([i * i % 7 % 3 for i in range(90)])


def windows(size, width=6):
    starts = torch.randint(len(text) - width, (size,))
    x = torch.stack([text[i : i + width] for i in starts])
    y = torch.stack([text[i + width] for i in starts])
    return x.float(), y


for step in range(8):
    x, y = windows(7)
    loss = criterion(net(x), y)
    STEP
    print(step, loss.item())
""",
    "rows written one by one": """
def load(size):
    inputs = np.zeros((size, 6), dtype="float32")
    labels = np.empty(size, dtype="int64")
    for k in range(size):
        i = np.random.randint(50)
        inputs[k] = X[i].numpy()
        labels[k] = Y[i].item()
    return torch.from_numpy(inputs), torch.from_numpy(labels)


for step in range(8):
    x, y = load(7 + step % 2)
    loss = criterion(net(x), y)
    STEP
    print(step, loss.item())
""",
    "rows put in lists": """
for step in range(8):
    inputs, labels = [], []
    for _ in range(7):
        i = random.randrange(50)
        inputs.append(X[i])
        labels.append(Y[i])
    x, y = torch.stack(inputs), torch.stack(labels)
    loss = criterion(net(x), y)
    STEP
    print(step, loss.item())
""",
    "rows that are picked by a condition": """
def pick(size):
    found, labels = [], []
    while len(found) < size:
        i = random.randrange(50)
        if X[i, 0] > -1.0:
            found.append(X[i].numpy())
            labels.append(Y[i].item())
    return torch.tensor(np.array(found)), torch.LongTensor(labels)


for step in range(8):
    x, y = pick(7)
    loss = criterion(net(x), y)
    STEP
    print(step, loss.item())
""",
    "numbers of the last batch after the loop": """
for epoch in range(2):
    count, counts, more = 0, [], 0
    for start in range(0, len(X), 8):  # the last ones are fewer than three ranks
        x, y = X[start : start + 8], Y[start : start + 8]
        out = net(x)
        size = len(y)
        loss = criterion(out, y)
        STEP
        count += len(x)
        more = more + size
        counts.append(size)
        seen = count
        right = (out.argmax(1) == y).sum().item()
    print(count, more, seen, sum(counts), size, right, right / size, len(x), out.sum().item(), loss.item())
""",
    "several loaders, one batch from each": """
class Balanced:
    def __init__(self, loaders):
        self.loaders = loaders
        self.iterators = []
        for loader in loaders:
            self.iterators.append(iter(loader))

    def get_batch(self):
        inputs, targets = [], []
        for number, iterator in enumerate(self.iterators):
            try:
                x, y = next(iterator)
            except StopIteration:
                self.iterators[number] = iter(self.loaders[number])
                x, y = next(self.iterators[number])
            inputs.append(x)
            targets.append(y)
        return torch.cat(inputs, 0), torch.cat(targets, 0)


rows = torch.utils.data.TensorDataset(X, Y)
balanced = Balanced([torch.utils.data.DataLoader(rows, batch_size=size, shuffle=True) for size in (5, 3)])
for step in range(14):
    x, y = balanced.get_batch()
    loss = criterion(net(x), y)
    STEP
    print(step, loss.item())
""",
    "an iterator over another, and losses by their names": """
class Ahead:
    def __init__(self, loader):
        self.loader = loader
        self.sample = None

    def preload(self):
        try:
            self.sample = next(self.batches)
        except StopIteration:
            self.sample = None

    def __iter__(self):
        self.batches = iter(self.loader)
        self.preload()
        return self

    def __next__(self):
        sample = self.sample
        if sample is None:
            raise StopIteration
        self.preload()
        return sample


rows = [{"x": x, "y": y} for x, y in zip(X, Y)]
ahead = Ahead(torch.utils.data.DataLoader(rows, batch_size=8, shuffle=True))
losses = {}
batches = iter(ahead)
for step in range(14):
    try:
        batch = next(batches)
    except StopIteration:
        batches = iter(ahead)
        batch = next(batches)
    outputs = net(batch["x"])
    losses["class"] = criterion(outputs, batch["y"])
    losses["size"] = 0.1 * outputs.pow(2).mean()
    loss = 0
    for name in losses:
        loss += losses[name]
    STEP
    print(step, loss.item())
""",
    "a source that is kept with the options": """
import argparse


class Source:
    def __init__(self, loader):
        self.loader = loader
        self.batches = enumerate(loader)

    def next(self):
        try:
            _, batch = next(self.batches)
        except StopIteration:
            self.batches = enumerate(self.loader)
            _, batch = next(self.batches)
        return batch[0], batch[1]


def train(args):
    source = args.source
    for step in range(args.steps):
        x, y = source.next()
        loss = criterion(net(x), y)
        STEP
        print(step, loss.item())


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=14)
args = parser.parse_args()
rows = torch.utils.data.TensorDataset(X, Y)
args.source = Source(torch.utils.data.DataLoader(rows, batch_size=8, shuffle=True))
train(args)
""",
}

BEWARE = {
    "a batch that a model is given for its running means alone": """
class Source:
    def __init__(self, shift):
        self.shift = shift

    def next(self):
        rows = torch.randint(0, 50, (8,))
        return X[rows] + self.shift, Y[rows]


net = nn.DataParallel(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)))
optimizer = optim.SGD(net.parameters(), lr=0.1)
source, target = Source(0.0), Source(3.0)
for step in range(6):
    x, y = source.next()
    u, _ = target.next()
    out = net(x)
    net(u)
    loss = criterion(out, y)
    STEP
    print(step, loss.item(), net.module[1].running_mean.sum().item())
""",
    "a batch says where the next one begins": """
at = 0
while at < len(X):
    x, y = X[at : at + 8], Y[at : at + 8]
    loss = criterion(net(x), y)
    STEP
    at += len(x)
    print(at, loss.item())
""",
    "its targets say where the next one begins": """
at = 0
while at < len(X):
    x, y = X[at : at + 8], Y[at : at + 8]
    loss = criterion(net(x), y)
    STEP
    size = y.size(0)
    at = at + size
    print(at, loss.item())
""",
    "what is measured only if something is there": """
total, seen = 0.0, 0
for x, y in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=8, shuffle=True):
    picked = None
    if (y == 0).sum() > 2:
        picked = x
    chosen = x if y[0] > 0 else None
    loss = criterion(net(x), y)
    STEP
    if picked is not None:
        total += loss.item() * len(picked)
        seen += x.size(0)
    if chosen is not None:
        print(loss.item())
print(total, seen)
""",
    "incomplete batches are left out": """
def batches(size):
    for start in range(0, len(X), size):
        yield X[start : start + size], Y[start : start + size]


for epoch in range(2):
    for x, y in batches(8):
        if x.size(0) < 8:
            continue
        loss = criterion(net(x), y)
        STEP
        print(loss.item())
""",
    "views of a batch": """
teacher = nn.DataParallel(nn.Linear(6, 3))
for start in range(0, 48, 8):
    x, y = X[start : start + 8], Y[start : start + 8]
    teacher.eval()
    seen, shown = [], 0.0
    with torch.no_grad():
        for view in (x, -x):
            seen.append(teacher(view))
            shown += teacher(view).sum().item()
    loss = criterion(net(x), y) + F.mse_loss(net(x), seen[0] - seen[1])
    STEP
    print(loss.item(), shown)
""",
    "every pair of a batch": """
for start in range(0, 48, 8):
    out = F.normalize(net(X[start : start + 8]))
    same = (Y[start : start + 8, None] == Y[None, start : start + 8]).float()
    loss = F.mse_loss(out @ out.t(), same)
    STEP
    print(loss.item())
""",
    "targets made before": """
wanted = torch.zeros(8, 3)
for start in range(0, 48, 8):
    loss = F.mse_loss(net(X[start : start + 8]), wanted)
    STEP
    print(loss.item())
""",
    "one loop for both": """
def run(data, labels, train):
    net.train(train)
    total, right = 0.0, 0
    for start in range(0, len(data), 8):
        x, y = data[start : start + 8], labels[start : start + 8]
        with torch.set_grad_enabled(train):
            out = net(x)
            loss = criterion(out, y)
        if train:
            STEP
        total += loss.item() * len(x)
        right += (out.argmax(1) == y).sum().item()
    return total / len(data), right / len(data)


for epoch in range(2):
    print(epoch, *run(X[:40], Y[:40], True), *run(X[40:], Y[40:], False))
""",
    "priorities": """
priorities = np.ones(len(X))
for step in range(8):
    picked = np.random.choice(len(X), 8, p=priorities / priorities.sum())
    x, y = X[picked], Y[picked]
    each = F.cross_entropy(net(x), y, reduction="none")
    loss = each.mean()
    STEP
    priorities[picked] = each.detach().numpy() + 0.1
    print(step, loss.item(), priorities.sum())
""",
    "a memory that is told of errors": """
class Memory:
    def __init__(self):
        self.weights = np.ones(len(X))

    def sample(self, size):
        picked = np.random.choice(len(X), size, p=self.weights / self.weights.sum())
        return picked, X[picked], Y[picked]

    def update(self, picked, errors):
        for place, error in zip(picked, errors):
            self.weights[place] = error + 0.1


memory = Memory()
for step in range(8):
    picked, x, y = memory.sample(8)
    each = F.cross_entropy(net(x), y, reduction="none")
    loss = each.mean()
    STEP
    memory.update(picked, each.detach().numpy())
    print(step, loss.item())
print(memory.weights.sum())
""",
    "a memory that begins with no priorities": """
class Memory:
    def __init__(self):
        self.priorities = np.zeros((50,), dtype=np.float64)
        self.priorities += 1.0

    def sample(self, size):
        chances = self.priorities**0.6
        chances /= chances.sum()
        picked = np.random.choice(50, size, p=chances)
        weights = (50 * chances[picked]) ** -0.4
        weights /= weights.max()
        return X[picked], Y[picked], picked, weights.astype("float32")

    def update(self, picked, priorities):
        for place, priority in zip(picked, priorities):
            self.priorities[place] = priority


memory = Memory()
for step in range(8):
    x, y, picked, weights = memory.sample(7)
    each = F.cross_entropy(net(x), y, reduction="none")
    loss = (each * torch.from_numpy(weights)).mean()
    STEP
    memory.update(picked, each.detach().numpy() + 0.1)
    print(step, loss.item(), memory.priorities.sum())
""",
    "small batches are parts of a large one": """
for start in range(0, 48, 24):
    x, y = X[start : start + 24], Y[start : start + 24]
    for part, wanted in zip(x.float().split(7), torch.split(y, 7)):
        loss = criterion(net(part), wanted)
        STEP
        print(loss.item())
""",
    "weights of classes that are written one by one": """
def load(n):
    x = np.zeros((n, 6), dtype="float32")
    for k in range(n):
        x[k] = X[np.random.randint(50)].numpy()
    return torch.from_numpy(x)


def weights(n):
    found = np.zeros(n, dtype="float32")
    for k in range(n):
        found[k] = 1.0 / (k + 1)
    return torch.from_numpy(found)


for step in range(6):
    loss = (net(load(4)).abs() * weights(3)).mean()
    STEP
    print(step, loss.item())
""",
    "weights of classes beside a batch": """
def load(n, classes):
    x, found = np.zeros((n, 6), dtype="float32"), np.zeros(classes, dtype="float32")
    for k in range(n):
        x[k] = X[np.random.randint(50)].numpy()
    for k in range(classes):
        found[k] = 1.0 / (k + 1)
    return torch.from_numpy(x), torch.from_numpy(found)


for step in range(6):
    x, found = load(4, 3)
    loss = (net(x).abs() * found).mean()
    STEP
    print(step, loss.item())
""",
    "lists of which one gets more": """
for step in range(8):
    inputs, labels, scales = [], [], []
    for k in range(6):
        i = random.randrange(50)
        inputs.append(X[i])
        labels.append(Y[i])
        if k % 2:
            scales.append(torch.ones(3) * k)
    loss = criterion(net(torch.stack(inputs)), torch.stack(labels)) * torch.stack(scales).mean()
    STEP
    print(step, loss.item())
""",
    "rows written in the round itself": """
for step in range(6):
    size = 7
    x, y = torch.zeros(size, 6), torch.zeros(size, dtype=torch.long)
    inputs = np.zeros((size, 6), dtype="float32")
    for k in range(size):
        i = np.random.randint(50)
        inputs[k], x[k] = X[i].numpy(), X[i]
        y[k] = Y[i]
    loss = criterion(net(x + torch.from_numpy(inputs)), y) + criterion(net(x), y)
    STEP
    print(step, loss.item())
""",
    "windows side by side": """
text = torch.tensor([i * i % 7 % 3 for i in range(90)])
for start in range(0, 48, 8):
    x = torch.stack([text[i : i + 6] for i in range(start, start + 8)]).float()
    y = text[start + 6 : start + 14]
    loss = criterion(net(x), y)
    STEP
    print(loss.item())
""",
    "targets made before, of which the number is asked": """
wanted = torch.zeros(8, 3)
for step in range(6):
    picked = np.random.choice(50, len(wanted))
    loss = F.mse_loss(net(X[picked]), wanted)
    STEP
    print(step, loss.item())
""",
    "a list that goes on": """
inputs, labels = [], []
for step in range(30):
    i = random.randrange(50)
    inputs.append(X[i])
    labels.append(Y[i])
    if len(inputs) == 7:
        loss = criterion(net(torch.stack(inputs)), torch.stack(labels))
        STEP
        print(step, loss.item())
        inputs, labels = [], []
""",
    "rows of outputs in lists": """
for step in range(6):
    rows, wanted = [], []
    for k in range(4):
        i = random.randrange(40)
        rows.append(net(X[i : i + 5]).mean(0))
        wanted.append(Y[i])
    loss = criterion(torch.stack(rows), torch.stack(wanted))
    STEP
    print(step, loss.item())
""",
    "one weight for each class": """
def weights(classes):
    return torch.from_numpy(np.ones(classes, dtype="float32"))


for step in range(6):
    picked = np.random.choice(50, 9)
    out = F.log_softmax(net(X[picked]), 1)
    loss = -(out * weights(3) * F.one_hot(Y[picked], 3)).sum(1).mean()
    STEP
    print(step, loss.item())
""",
    "parts of text, and of columns": """
names = "0,8,16,24,32,40"
for name in names.split(","):
    start = int(name)
    loss = criterion(net(X[start : start + 8]), Y[start : start + 8])
    STEP
    print(loss.item())
for part in X.split(3, dim=1):
    loss = criterion(net(part.repeat(1, 2)), Y)
    STEP
    print(loss.item())
for part in np.array_split(X.numpy(), 2, 1):
    loss = criterion(net(torch.from_numpy(part).repeat(1, 2)), Y)
    STEP
    print(loss.item())
""",
    "an order by the losses": """
order = np.arange(50)
for epoch in range(3):
    for start in range(0, 50, 8):
        picked = order[start : start + 8]
        each = F.cross_entropy(net(X[picked]), Y[picked], reduction="none")
        loss = each.mean()
        STEP
        order[start : start + 8] = picked[each.detach().numpy().argsort()]
    print(order.tolist(), loss.item())
""",
    "the loss decides the size": """
size, start = 4, 0
for step in range(8):
    x, y = X[start : start + size], Y[start : start + size]
    loss = criterion(net(x), y)
    STEP
    start = (start + size) % 30
    if loss.item() < 1.08:
        size = min(size + 2, 12)
    print(step, size, loss.item())
""",
    "a number beside the batch": """
def batches(size):
    for start in range(0, len(X), size):
        x, y = X[start : start + size], Y[start : start + size]
        yield x, y, len(x)


total = 0.0
for x, y, count in batches(8):
    loss = F.cross_entropy(net(x), y, reduction="sum") / count
    STEP
    total += loss.item() * count
print(total / len(X))
""",
    "one by one": """
for epoch in range(2):
    total = 0.0
    for i in np.random.permutation(len(X))[:12]:
        loss = criterion(net(X[i].unsqueeze(0)), Y[i].unsqueeze(0))
        STEP
        total += loss.item()
    print(total)
""",
    "several steps on one batch": """
for start in range(0, 48, 12):
    x, y = X[start : start + 12], Y[start : start + 12]
    for inner in range(3):
        loss = criterion(net(x), y)
        STEP
        print(start, inner, loss.item())
""",
    "small batches of a large one": """
for start in range(0, 48, 24):
    states, labels = X[start : start + 24], Y[start : start + 24]
    with torch.no_grad():
        before = net(states)
    advantages = before.max(1)[0]
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-5)
    order = np.arange(24)
    for epoch in range(2):
        np.random.shuffle(order)
        for at in range(0, 24, 8):
            picked = order[at : at + 8]
            chosen = F.cross_entropy(net(states[picked]), labels[picked], reduction="none")
            loss = (chosen * advantages[picked]).mean()
            STEP
    print(loss.item())
""",
    "lists": """
def batches(size):
    for start in range(0, len(X), size):
        yield [X[start : start + size], Y[start : start + size]]


for x, y in batches(8):
    loss = criterion(net(x), y)
    STEP
    print(loss.item())
""",
    "samples in a list": """
class Sample:
    def __init__(self, x, y):
        self.x, self.y = x, y


samples = [Sample(x, y) for x, y in zip(X, Y)]
for step in range(6):
    picked = random.sample(samples, 8)
    x, y = torch.stack([it.x for it in picked]), torch.stack([it.y for it in picked])
    loss = criterion(net(x), y)
    STEP
    print(step, loss.item(), picked[0].y.item())
""",
    "noise": """
for start in range(0, 48, 8):
    x, y = X[start : start + 8], Y[start : start + 8]
    loss = criterion(net(x + 0.0 * torch.randn_like(x)), y)
    STEP
    print(loss.item())
""",
    "a whole batch beside": """
other = nn.Linear(6, 3)
more = optim.SGD(other.parameters(), lr=0.1)
for start in range(0, 48, 8):
    x, y = X[start : start + 8], Y[start : start + 8]
    loss = criterion(net(x), y)
    STEP
    alone = criterion(other(X[start : start + 8]), Y[start : start + 8])
    more.zero_grad()
    alone.backward()
    more.step()
    print(loss.item(), alone.item())
""",
    "the whole set in each step": """
for epoch in range(6):
    loss = criterion(net(X), Y)
    STEP
    print(loss.item())
""",
    "what is kept of outputs": """
seen = []
for start in range(0, 48, 8):
    x, y = X[start : start + 8], Y[start : start + 8]
    out = net(x)
    loss = criterion(out, y)
    STEP
    seen.append(out.detach())
print(torch.cat(seen).shape, torch.cat(seen).sum().item())
""",
    "a running mean of rewards": """
baseline = 0.0
for step in range(8):
    x = X[step * 6 : step * 6 + 6]
    chances = F.softmax(net(x), 1)
    rewards = x.sum(1)
    loss = -(torch.log(chances[:, 0]) * (rewards - baseline)).mean()
    STEP
    baseline = 0.9 * baseline + 0.1 * rewards.mean().item()
    print(step, loss.item(), baseline)
""",
}

ACTING = DIVIDED["replay memory"], ("nn.ReLU(), ", "nn.ReLU(), nn.Dropout(0.5), ")
"""A program that acts by the model that it trains, and what makes that draw random numbers."""
