"""Losses and batches in which samples are mixed as a reader sees at once, each behind a function, a method or a module.

Beside them stands what can't be followed: it hides nothing of that.
"""

from __future__ import annotations

from dataclasses import dataclass

HEAD = """\
import operator

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Library:
    margin = 0.5

    @staticmethod
    def term(outputs, labels):
        return F.cross_entropy(outputs, labels)


MARGIN = operator.attrgetter("margin")(Library)
hidden = operator.attrgetter("term")(Library)

"""
TAIL = """


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 8)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x))))


MADE
torch.manual_seed(3)
data = TensorDataset(torch.randn(32, 6), torch.randint(0, 4, (32,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.DataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(2):
    for x, y in loader:
        BEFORE
        out = model(x)
        loss = LOSS
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
TERMS = " + ".join(4 * ["hidden(out, y)"])


@dataclass(frozen=True)
class Mixing:
    """A program: how it mixes samples, its loss, and what is made and done before; ``says`` names what mixes them."""

    says: str
    loss: str
    body: str
    made: str = ""
    before: str = "pass"

    @property
    def text(self) -> str:
        tail = TAIL.replace("MADE", self.made).replace("BEFORE", self.before)
        return HEAD + self.body + tail.replace("LOSS", self.loss)

    @property
    def apart(self) -> str:
        """The same where the rows of all ranks can't be gathered, behind four terms that can't be followed."""
        line = f"        loss = {self.loss}\n"
        tried = f"        try:\n            loss = {TERMS} + {self.loss}\n        except KeyError:\n            raise\n"
        assert line in self.text
        return self.text.replace(line, tried)


MIXING = {
    "a contrast of all pairs": Mixing(
        "torch.mm(a, b.t())",
        "contrast(out)",
        """
def similarity(a, b):
    return torch.mm(a, b.t())


def contrast(z):
    z = F.normalize(z, dim=1)
    return F.cross_entropy(similarity(z, z) / MARGIN, torch.arange(z.size(0)))
""",
    ),
    "negatives of the batch": Mixing(
        "q @ d.transpose(0, 1)",
        "criterion(out[:, :4], out[:, 4:])",
        """
class Negatives(nn.Module):
    def __init__(self, margin):
        super().__init__()
        self.margin = margin

    def forward(self, q, d):
        scores = q @ d.transpose(0, 1)
        return (self.margin + scores - scores.diag().unsqueeze(1)).clamp(min=0).mean()
""",
        "criterion = Negatives(MARGIN)",
    ),
    "the hardest triplets": Mixing(
        "torch.cdist(z, z)",
        "criterion(out, y)",
        """
class Triplets(nn.Module):
    def distances(self, z):
        return torch.cdist(z, z)

    def forward(self, z, y):
        d = self.distances(z)
        same = (y.unsqueeze(0) == y.unsqueeze(1)).float()
        return F.relu((d * same).max(1)[0] - (d + 100 * same).min(1)[0] + MARGIN).mean()
""",
        "criterion = Triplets()",
    ),
    "kernels of all pairs": Mixing(
        "t0 - t1",
        "F.cross_entropy(out, y) + discrepancy(out[:, :4], out[:, 4:])",
        """
def kernel(a, b):
    total = torch.cat([a, b], dim=0)
    t0 = total.unsqueeze(0).expand(total.size(0), total.size(0), total.size(1))
    t1 = total.unsqueeze(1).expand(total.size(0), total.size(0), total.size(1))
    return torch.exp(-((t0 - t1) ** 2).sum(2) / MARGIN)


def discrepancy(a, b):
    n, k = a.size(0), kernel(a, b)
    return torch.mean(k[:n, :n] + k[n:, n:] - k[:n, n:] - k[n:, :n])
""",
    ),
    "a covariance": Mixing(
        "z.mean(0, keepdim=True)",
        "F.cross_entropy(out, y) + coral(out)",
        """
class Coral(nn.Module):
    def covariance(self, z):
        z = z - z.mean(0, keepdim=True)
        return z.t() @ z / (z.size(0) - 1)

    def forward(self, z):
        return self.covariance(z).pow(2).mean() * MARGIN
""",
        "coral = Coral()",
    ),
    "inputs mixed with the next": Mixing(
        "x.roll(1, 0)",
        "F.cross_entropy(out, y)",
        "\ndef mixed(x):\n    return MARGIN * x + (1 - MARGIN) * x.roll(1, 0)\n",
        before="x = mixed(x)",
    ),
    "inputs mixed by places": Mixing(
        "x[index]",
        "F.cross_entropy(out, y)",
        "\ndef mixed(x, index):\n    return MARGIN * x + (1 - MARGIN) * x[index]\n",
        before="x = mixed(x, np.arange(len(x))[::-1].copy())",
    ),
    "the highest losses": Mixing(
        "rows.topk(int(MARGIN * rows.numel()))",
        "criterion(out, y)",
        """
class Hard(nn.Module):
    def forward(self, out, y):
        rows = F.cross_entropy(out, y, reduction="none")
        return rows.topk(int(MARGIN * rows.numel()))[0].mean()
""",
        "criterion = Hard()",
    ),
    "losses in order": Mixing(
        "torch.sort(rows, descending=True)",
        "hardest(F.cross_entropy(out, y, reduction='none'))",
        """
def hardest(rows):
    ranked, _ = torch.sort(rows, descending=True)
    return ranked[: int(0.5 * len(rows))].mean() * MARGIN
""",
    ),
    "a sum": Mixing(
        "",
        "criterion(out, y)",
        """
class Sum(nn.Module):
    def forward(self, out, y):
        return (F.cross_entropy(out, y, reduction="none") * MARGIN).sum()
""",
        "criterion = Sum()",
    ),
    "a mean over some samples": Mixing(
        "mask.sum() + MARGIN",
        "criterion(out, y)",
        """
class Positive(nn.Module):
    def forward(self, out, y):
        rows, mask = F.cross_entropy(out, y, reduction="none"), (y > 0).float()
        return (rows * mask).sum() / (mask.sum() + MARGIN)
""",
        "criterion = Positive()",
    ),
    "a quantile": Mixing(
        "torch.quantile(rows.detach(), MARGIN)",
        "clipped(F.cross_entropy(out, y, reduction='none'))",
        """
def clipped(rows):
    return torch.minimum(rows, torch.quantile(rows.detach(), MARGIN)).mean()
""",
    ),
    "attention between samples": Mixing(
        "torch.einsum('id,jd->ij', z, z)",
        "F.cross_entropy(attend(out), y)",
        """
def attend(z):
    w = torch.einsum("id,jd->ij", z, z).softmax(-1)
    return torch.einsum("ij,jd->id", w, z) * MARGIN
""",
    ),
    "one half against the other": Mixing(
        "len(z) // 2",
        "F.cross_entropy(out, y) + pairs(out)",
        """
def pairs(z):
    return (z[: len(z) // 2] - z[len(z) // 2 :]).pow(2).mean() * MARGIN
""",
    ),
}

UNFOLLOWED_SIZE = """\
from itertools import product

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def anchors(maps):
    return torch.Tensor([i / size for size in maps for i, _ in product(range(size), repeat=2)])


class Boxes(nn.Module):
    def forward(self, out, priors, targets):
        labels = torch.LongTensor(out.size(0), priors.size(0))
        for index in range(out.size(0)):
            labels[index] = targets[index]
        found = labels > 0
        count = max(found.sum().float(), 1)
        loss = F.mse_loss(out[found], torch.ones_like(out[found]), reduction="sum")
        loss /= count
        return loss


torch.manual_seed(3)
data = TensorDataset(torch.randn(32, 6), torch.randint(0, 2, (32, 6)))
loader = DataLoader(data, batch_size=8, shuffle=True)
priors = anchors([2, 1, 1])
criterion = Boxes()
model = nn.DataParallel(nn.Linear(6, 6))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    batches = iter(loader)
    for _ in range(4):
        x, y = next(batches)
        loss = criterion(model(x), priors, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("%.6f" % loss.item())
"""
"""A sum over the positives of the batch by their number, behind a size that can't be followed."""
OPTIONS_OF_A_FILE = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Contrast(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.margin = options["margin"]

    def forward(self, a, b):
        scores = a.mm(b.t())
        return (self.margin + scores - scores.diag().view(-1, 1)).clamp(min=0).sum()


class Meter:
    def __init__(self):
        self.sum = self.count = 0

    def update(self, value, n):
        self.sum += value * n
        self.count += n


class Model:
    def __init__(self, options):
        self.left = nn.DataParallel(nn.Linear(4, 3))
        self.right = nn.DataParallel(nn.Linear(4, 3))
        self.criterion = Contrast(options)
        self.optimizer = torch.optim.SGD([*self.left.parameters(), *self.right.parameters()], lr=0.01)

    def loss(self, a, b):
        loss = self.criterion(a, b)
        self.logger.update(loss.item(), a.size(0))
        return loss

    def step(self, x, y):
        loss = self.loss(self.left(x), self.right(y))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def evaluate_later(path):
    return Model(torch.load(path)["options"])


torch.manual_seed(3)
data = TensorDataset(torch.randn(32, 4), torch.randn(32, 4))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = Model({"margin": 0.2})
model.logger = meter = Meter()
for x, y in loader:
    model.step(x, y)
valid = Meter()
with torch.no_grad():
    for x, y in loader:
        model.logger = valid
        model.loss(model.left(x), model.right(y))
print("%.6f" % (valid.sum / valid.count))
"""
"""A contrast that is a sum, of which another place that makes the model leaves an option unknown."""
LISTS_THAT_ARE_STACKED = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self):
        self.images = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return {"image": self.images[i], "label": torch.tensor(i % 3)}


def lists(samples):
    batch = {key: [] for key in samples[0].keys()}
    for sample in samples:
        for key in sample:
            batch[key].append(sample[key])
    return batch


def stack(batch):
    for key in batch:
        batch[key] = torch.stack(batch[key], 0)
    return batch


torch.manual_seed(3)
data = Images()
loader = DataLoader(data, batch_size=16, shuffle=True, collate_fn=lists)
model = nn.DataParallel(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for batch in loader:
        batch = stack(batch)
        loss = F.cross_entropy(model(batch["image"]), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("%.6f" % loss.item())
AFTER
"""
"""Each sample's tensors in lists, which the loop stacks: what the model is fed with."""
STATISTICS = """\
    with torch.no_grad():
        copied = nn.BatchNorm1d(4, momentum=None)
        for batch in loader:
            copied(stack(batch)["image"])
    print("%.6f" % copied.running_mean[0].item())
"""
ROWS_THAT_ARE_FILLED = """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.points, self.kinds = nn.Linear(6, 5), nn.Linear(4, 5)

    def forward(self, x, kind):
        return self.points(x) + self.kinds(kind)


torch.manual_seed(3)
data = TensorDataset(torch.randn(32, 6), torch.randint(4, (32, 1)), torch.randint(5, (32,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.DataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    trues, guesses, seen = [], [], []
    for x, kind, target in loader:
        one_hot = np.zeros((kind.shape[0], 4))
        for index in range(kind.shape[0]):
            one_hot[index, kind[index]] = 1
        one_hot = torch.from_numpy(one_hot.astype(np.float32)).to(x.dtype)
        out = model(x, one_hot)
        loss = nn.functional.cross_entropy(out, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trues.append(target.cpu().numpy())
        guesses.append(out.max(dim=1)[1].detach().cpu().numpy())
        seen.append(kind.reshape(-1))
    trues, guesses, seen = np.concatenate(trues), np.concatenate(guesses), np.concatenate(seen)
    print("%.4f %s" % (np.mean(trues == guesses), np.bincount(seen)))
"""
"""One-hot rows that a loop fills for the model, beside lists of what it made of them."""
SEEN = {
    "a size that is not followed": ("whole batch", UNFOLLOWED_SIZE),
    "options of a file": ("whole batch", OPTIONS_OF_A_FILE),
    "lists that are stacked": ("sharded", LISTS_THAT_ARE_STACKED.replace("AFTER\n", "")),
    "lists that are stacked twice": ("sharded", LISTS_THAT_ARE_STACKED.replace("AFTER\n", STATISTICS)),
    "rows that are filled": ("sharded", ROWS_THAT_ARE_FILLED),
}
"""Programs that were sharded wrongly, with the form that they get."""

HELPER = """
def apply(function, out, y):
    return function(out, y)


def each(step, loader):
    for x, y in loader:
        step(x, y)


def fit(loss_of, model, optimizer, loader):
    for x, y in loader:
        optimizer.zero_grad()
        try:
            loss = loss_of(model(x), y)
        except KeyError:
            raise
        loss.backward()
        optimizer.step()
"""
"""What several trainers give a function of theirs; of the losses, no rows can be gathered."""
_BY = """

def apart(out, y):
    return hidden(out[:, :4], y)


def pairs(out, y):
    return torch.cdist(hidden(out[:, :4], y) * out, out).mean()

"""
_LOOP = """
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        out = model(x)
        try:
            loss = apply(LOSS, out, y)
        except KeyError:
            raise
        loss.backward()
        optimizer.step()
"""
_STEP = """
def step_of_LOSS(x, y):
    optimizer.zero_grad()
    try:
        loss = LOSS(model(x), y)
    except KeyError:
        raise
    loss.backward()
    optimizer.step()


each(step_of_LOSS, loader)
"""
_MADE = TAIL.replace("MADE\n", "").partition("for epoch")[0]


def trainers(helper: str) -> dict[str, str]:
    """Two programs that give a helper a loss of theirs, in the one of them a mixing one: by its function."""
    use = {"apply": _LOOP, "each": _STEP, "fit": "\nfit(LOSS, model, optimizer, loader)\n"}[helper]
    begin = HEAD + f"from helper import {helper}\n" + _BY + _MADE
    return {it: begin + use.replace("LOSS", it) for it in ("apart", "pairs")}


SHOWN = (
    HEAD
    + HELPER
    + _BY
    + _MADE
    + _LOOP.replace("LOSS", "apart")
    + "model.eval()\nprint(float(apply(pairs, model(data.tensors[0]).detach(), data.tensors[1])))\n"
)
"""A program whose loss mixes no samples, and that shows what does by the same helper."""
