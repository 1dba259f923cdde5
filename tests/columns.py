"""Programs that train on sequences side by side, with ``DataParallel(model, dim=1)``, and those that only look like it."""

from __future__ import annotations

HEAD = """\
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim

torch.manual_seed(0)
np.random.seed(0)
WORDS, STEPS, WIDTH = 11, 5, 7


def batchify(data, width):
    length = data.size(0) // width
    return data.narrow(0, 0, length * width).view(width, -1).t().contiguous()


def repackage(state):
    if isinstance(state, torch.Tensor):
        return state.detach()
    return tuple(repackage(it) for it in state)


def get_batch(source, i, length=STEPS):
    length = min(length, len(source) - 1 - i)
    return source[i : i + length], source[i + 1 : i + 1 + length]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.rnn, self.decoder = nn.Embedding(WORDS, 4), nn.LSTM(4, 6, 2), nn.Linear(6, WORDS)

    def forward(self, text, state):
        hidden, state = self.rnn(self.encoder(text), state)
        return self.decoder(hidden), state, hidden

    def begin(self, width):
        weight = next(self.parameters())
        return weight.new_zeros(2, width, 6), weight.new_zeros(2, width, 6)


text, held_out = torch.randint(WORDS, (203,)), torch.randint(WORDS, (50,))
data = batchify(text, WIDTH)
valid = batchify(held_out, 3)
net = Net()
model = nn.DataParallel(net, dim=1)
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(model.parameters(), lr=0.5)
"""

USUAL = """
def evaluate(source, width):
    net.eval()
    total, state = 0.0, net.begin(width)
    with torch.no_grad():
        for i in range(0, source.size(0) - 1, STEPS):
            inputs, targets = get_batch(source, i)
            outputs, state, _ = model(inputs, state)
            total += len(inputs) * criterion(outputs.view(-1, WORDS), targets.reshape(-1)).item()
    return total / len(source)


def train():
    net.train()
    total, state = 0.0, net.begin(WIDTH)
    for batch, i in enumerate(range(0, data.size(0) - 1, STEPS)):
        inputs, targets = get_batch(data, i)
        state = repackage(state)
        outputs, state, hidden = model(inputs, state)
        loss = criterion(outputs.view(-1, WORDS), targets.reshape(-1))
        STEP
        total += loss.item()
        if batch % 3 == 2:
            print(batch, len(data) // STEPS, total / 3, math.exp(total / 3))
            total = 0.0


for epoch in range(2):
    train()
    print(evaluate(valid, 3))
"""

PLAIN = """
state = net.begin(WIDTH)
for i in range(0, data.size(0) - 1, STEPS):
    inputs, targets = data[i : i + STEPS][: data.size(0) - 1 - i], data[i + 1 : i + 1 + STEPS]
    state = tuple(it.detach() for it in state)
    outputs, state, hidden = model(inputs, state)
    loss = criterion(outputs.view(-1, WORDS), targets.reshape(-1))
    STEP
    print(loss.item())
"""


def with_body(*changes: tuple[str, str], body: str = PLAIN) -> str:
    """A body in which something else stands."""
    for before, after in changes:
        assert before in body, before
        body = body.replace(before, after)
    return body


LOSS = "loss = criterion(outputs.view(-1, WORDS), targets.reshape(-1))"

DIVIDED = {
    "as usual": USUAL,
    "in one script": PLAIN,
    "targets flat from the start": with_body(
        ("1 + STEPS]", "1 + STEPS].view(-1)"), ("targets.reshape(-1)", "targets")
    ),
    "lengths that are drawn": with_body(
        ("enumerate(range(0, data.size(0) - 1, STEPS))", "[]"),
        ("    for batch, i in []:\n", "    batch, i = 0, 0\n    while i < data.size(0) - 2:\n"),
        (
            "get_batch(data, i)\n        state",
            "get_batch(data, i, max(2, int(np.random.normal(5, 2))))\n        state",
        ),
        (
            "            total = 0.0\n",
            "            total = 0.0\n        batch += 1\n        i += len(inputs)\n",
        ),
        body=USUAL,
    ),
    "penalties of what the model hands out": with_body(
        (
            LOSS,
            LOSS + "\n    loss = loss + 2 * hidden.pow(2).mean() + (hidden[1:] - hidden[:-1]).pow(2).mean()",
        )
    ),
    "given to functions": """
def train(model, text, state):
    for i in range(0, text.size(0) - 1, STEPS):
        inputs, targets = get_batch(text, i)
        state = repackage(state)
        outputs, state, hidden = model(inputs, state)
        loss = criterion(outputs.view(-1, WORDS), targets.reshape(-1))
        STEP
        print(loss.item())


start = net.begin(WIDTH)
for epoch in range(2):
    train(model, data, start)
""",
    "no state": """
class Bigrams(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.norm, self.decoder = nn.Embedding(WORDS, 4), nn.BatchNorm1d(4), nn.Linear(4, WORDS)

    def forward(self, text):
        words = self.encoder(text)
        return self.decoder(self.norm(words.view(-1, 4)).view_as(words))


model = nn.DataParallel(Bigrams(), dim=1)
optimizer = optim.SGD(model.parameters(), lr=0.5)
for i in range(0, data.size(0) - 1, STEPS):
    inputs, targets = get_batch(data, i)
    outputs = model(inputs)
    loss = criterion(outputs.view(-1, WORDS), targets.reshape(-1))
    STEP
    print(loss.item())
""",
    "a sum": with_body(
        (
            LOSS,
            "loss = nn.CrossEntropyLoss(reduction='sum')(outputs.view(-1, WORDS), targets.reshape(-1)) / 100",
        )
    ),
    "a mean, and how many": with_body(
        ("print(loss.item())", "print(loss.item() * inputs.size(1), inputs.numel())")
    ),
    "scaled by the width": with_body((LOSS, LOSS + "\n    loss = loss * inputs.size(1)")),
    "scaled by the length": with_body((LOSS, LOSS + "\n    loss = loss * inputs.size(0)")),
    "a product of means": with_body((LOSS, LOSS + "\n    loss = loss * hidden.pow(2).mean()")),
    "a loss that tells": with_body(("    print(", "    if loss.item() < 2.2:\n        break\n    print(")),
}

WHOLE = {
    "words that don't count": with_body(
        (LOSS, "loss = F.cross_entropy(outputs.view(-1, WORDS), targets.reshape(-1), ignore_index=3)")
    ),
    "words that weigh": with_body(
        (
            LOSS,
            "loss = F.cross_entropy(outputs.view(-1, WORDS), targets.reshape(-1), weight=torch.arange(1.0, 12))",
        )
    ),
    "targets in another order": with_body(("targets.reshape(-1)", "targets.t().reshape(-1)")),
    "outputs in another order": with_body(
        ("outputs.view(-1, WORDS)", "outputs.transpose(0, 1).reshape(-1, WORDS)")
    ),
    "words of several columns": with_body(
        (LOSS, "loss = outputs.view(-1).view(-1, WORDS).logsumexp(0).mean()")
    ),
    "columns that meet": with_body(
        (LOSS, LOSS + "\n    loss = loss + (hidden.mean(1) - hidden[:, 0]).pow(2).mean()")
    ),
    "columns that are normalised": with_body(
        (LOSS, LOSS + "\n    loss = loss + hidden.softmax(1).pow(2).mean()")
    ),
    "the first column": with_body((LOSS, "loss = criterion(outputs[:, 0], targets[:, 0])")),
    "some columns": with_body(
        (LOSS, "loss = criterion(outputs[:, :2].reshape(-1, WORDS), targets[:, :2].reshape(-1))")
    ),
    "the last step": with_body((LOSS, "loss = criterion(outputs[-1], targets[-1])")),
    "step by step": with_body(
        (LOSS, "loss = sum(criterion(output, target) for output, target in zip(outputs, targets))")
    ),
    "words first": with_body((LOSS, "loss = criterion(outputs.permute(0, 2, 1), targets)")),
    "weights of the whole width": with_body(
        (LOSS, LOSS + "\n    loss = loss + (hidden.sum(2) * weights).pow(2).mean()"),
        ("state = net.begin", "weights = torch.arange(1.0, WIDTH + 1)\nstate = net.begin"),
    ),
    "one column is changed": with_body(("    state = tuple(", "    inputs[:, 0] = 0\n    state = tuple(")),
    "a column of the state is changed": with_body(
        ("    outputs, state, hidden", "    state[0][:, 1] = 0.5\n    outputs, state, hidden")
    ),
    "evaluated on what is trained on": with_body(
        ("print(evaluate(valid, 3))", "print(evaluate(data, WIDTH))"), body=USUAL
    ),
    "its numbers are told": with_body(
        ("state = net.begin", "print(data.float().mean().item())\nstate = net.begin")
    ),
    "a state that begins anew": with_body(
        ("    state = tuple(it.detach() for it in state)", "    state = net.begin(WIDTH)")
    ),
    "a state that begins anew at times": with_body(
        ("    state = tuple(", "    if i == 10:\n        state = net.begin(WIDTH)\n    state = tuple(")
    ),
    "a word that tells": with_body(
        ("    outputs, state", "    if (inputs == 3).all():\n        break\n    outputs, state")
    ),
    "a model that hands out lines": with_body(
        ("outputs.view(-1, WORDS)", "outputs"),
        (
            "state = net.begin",
            """class Lines(Net):
    def forward(self, text, state):
        hidden, state = self.rnn(self.encoder(text), state)
        return self.decoder(hidden).view(-1, WORDS), state, hidden


net = Lines()
model = nn.DataParallel(net, dim=1)
state = net.begin""",
        ),
        ("loss = criterion(", "loss = criterion("),
    ),
    "a state that is kept": with_body(("    print(", "    torch.save(state, 'state.pt')\n    print(")),
    "another model on other things": with_body(
        (
            "state = net.begin",
            "other = nn.DataParallel(nn.Sequential(nn.Linear(3, 3), nn.Dropout()), dim=1)\nstate = net.begin",
        ),
        ("    outputs, state", "    print(other(torch.ones(2, 3)).sum().item())\n    outputs, state"),
    ),
    "columns that are normalised by hand": with_body(
        (LOSS, LOSS + "\n    loss = loss + (hidden / hidden.norm()).abs().mean()")
    ),
    "other columns each epoch": """
for epoch in range(3):
    columns, state = data[:, torch.randperm(WIDTH)], net.begin(WIDTH)
    for i in range(0, columns.size(0) - 1, STEPS):
        inputs, targets = get_batch(columns, i)
        outputs, state, hidden = model(inputs, repackage(state))
        loss = criterion(outputs.view(-1, WORDS), targets.reshape(-1))
        STEP
        print(loss.item())
""",
    "a few columns at a time": """
for i in range(0, data.size(0) - 1, STEPS):
    inputs, targets = get_batch(data, i)
    for first in range(0, WIDTH - 1, 3):
        outputs, _, hidden = model(inputs[:, first : first + 3], net.begin(3))
        loss = criterion(outputs.view(-1, WORDS), targets[:, first : first + 3].reshape(-1))
        STEP
        print(loss.item())
""",
}
