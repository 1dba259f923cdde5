"""Programs that make their batches themselves, each in another way, and those that only look like it."""

from __future__ import annotations

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


def _program(body: str, step: str = STEP) -> str:
    lines = []
    for line in body.strip("\n").splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        lines += [indent + it for it in step.strip().splitlines()] if line.strip() == "STEP" else [line]
    return HEAD + "\n".join(lines) + "\n"


DIVIDED = {
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
    memory.append(Transition(X[i : i + 1], torch.tensor([[i % 3]]), torch.tensor([float(i % 5)])))
for step in range(6):
    transitions = random.sample(memory, 8)
    batch = Transition(*zip(*transitions))
    states, actions, rewards = torch.cat(batch.state), torch.cat(batch.action), torch.cat(batch.reward)
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
}
