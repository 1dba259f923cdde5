"""Programs that look at what a batch is made of: what puts it together, what its loader says, what is done with parts.

Each has the line that keeps its batches whole, or none where it is sharded.
"""

from __future__ import annotations

from dataclasses import dataclass

HEAD = """\
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

data = TensorDataset(torch.randn(48, 8), torch.randint(2, (48,)))
"""
LOADER = "loader = DataLoader(data, batch_size=12)\n"
STEP = """\
        optimizer.zero_grad()
        outputs = model(inputs.cuda())
        loss = criterion(outputs, targets.cuda())
        loss.backward()
        optimizer.step()
"""
TAIL = f"""\
model = nn.DataParallel(nn.Linear(8, 2).cuda())
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for inputs, targets in loader:
{STEP}"""


def collated(definition: str, given: str = "collate") -> str:
    """A program whose loader is given a ``collate_fn``."""
    return f"{HEAD}{definition}loader = DataLoader(data, batch_size=12, collate_fn={given})\n{TAIL}"


def looped(step: str, before: str = "", after: str = "") -> str:
    """A program with other lines in its loop, before and after it."""
    assert STEP in TAIL
    head, loop = TAIL.replace(STEP, step).split("for epoch in range(2):\n")
    return f"{HEAD}{LOADER}{head}{before}for epoch in range(2):\n{loop}{after}"


@dataclass(frozen=True)
class Case:
    """A program, and the words of the finding that keeps its batches whole; none where they are dealt in parts."""

    text: str
    whole: str | tuple[str, ...] = ""


RAGGED = """
class Words(Dataset):
    def __init__(self):
        self.words = [torch.randn(int(n), 8) for n in torch.randint(2, 9, (48,))]

    def __len__(self):
        return 48

    def __getitem__(self, index):
        return self.words[index], torch.full((len(self.words[index]),), index % 2)


data = Words()


def collate(batch):
    xs, ys = zip(*batch)
    return nn.utils.rnn.pad_sequence(xs, True), nn.utils.rnn.pad_sequence(ys, True)


"""
LISTED = """
def collate(batch):
    return torch.stack([x for x, _ in batch]), [y.repeat(1 + int(y)) for _, y in batch]


"""
STACKED = """
def collate(batch):
    xs, ys = zip(*batch)
    return torch.stack(xs, 0).float(), torch.tensor(ys)


"""
APPENDED = """
def collate(batch):
    xs, ys = [], []
    for x, y in batch:
        xs.append(x.clamp(-1, 1))
        ys.append(int(y))
    return torch.stack(xs), torch.LongTensor(ys)


"""
CALLED = """
class Collate:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, batch):
        return default_collate([(x * self.scale, y) for x, y in batch])


"""
SCALED = """
def collate(batch, scale=1.0):
    rows = {"x": torch.stack([it[0] for it in batch]) * scale, "y": torch.stack([it[1] for it in batch])}
    return rows["x"], rows["y"]


"""
CENTRED = """
class Centred(TensorDataset):
    @staticmethod
    def collate(batch):
        xs = torch.stack([it[0] for it in batch])
        return xs - xs.mean(0), torch.stack([it[1] for it in batch])


data = Centred(*data.tensors)
"""
MIXED = """
def collate(batch):
    xs, ys = default_collate(batch)
    return xs + 0.5 * xs.flip(0), ys


"""
FILTERED = """
def collate(batch):
    return default_collate([it for it in batch if it[0][0] > -0.5])


"""
SORTED = """
def collate(batch):
    batch.sort(key=lambda it: -it[0].sum())
    return torch.stack([x[: i + 1].sum() * x for i, (x, _) in enumerate(batch)]), torch.stack([y for _, y in batch])


"""
STORED = """
class Loader(DataLoader):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.collate_fn = collate


"""
SPLIT = """
SIZE = 12


def collate(batch):
    xs, ys = default_collate(batch)
    return list(zip(xs.split(SIZE // 2), ys.split(SIZE // 2)))


"""
IN_BATCHES = """
class Centred(TensorDataset):
    def __getitems__(self, indices):
        xs, ys = self.tensors[0][indices], self.tensors[1][indices]
        return list(zip(xs - xs.mean(0), ys))


data = Centred(*data.tensors)
"""
TOGETHER = ("collat", "pad")
NUMBER = "takes a sample by index"
GRADIENT = "grows as the local batch gets smaller"
# What is kept of the places that samples have in the batch.
PLACES = {
    "in a list": "kept += [i for i, hit in enumerate(hits) if not hit]",
    "all of them": "kept += [i for i, _ in enumerate(hits)]",
    "extended": "kept.extend(i for i, hit in enumerate(hits.tolist()) if hit)",
    "from the samples before": "kept += [i + 12 * step for i, hit in enumerate(hits) if not hit]\n"
    "        step += 1",
    "from another begin": "kept += [i for i, hit in enumerate(hits, seen) if not hit]\n        seen += len(hits)",
    "counted apart": "kept += [i for i, hit in zip(itertools.count(), hits) if not hit]",
    "names": "kept += [name for name, hit in zip('abcdefghijkl', hits) if not hit]",
    "of a table": "kept += ['abcdefghijkl'[i] for i, hit in enumerate(hits) if not hit]",
    "with another's": "kept += [i for i, hit in enumerate(hits) if not hit and targets[i] == 1]",
    "by range": "kept += [i for i in range(len(hits)) if not hits[i]]",
    "in a dict": "for i, hit in enumerate(hits):\n            table[i] = hit.item()",
    "in a set": "table.update({i: step for i, hit in enumerate(hits) if hit})",
    "the first": "kept.append(next((i for i, hit in enumerate(hits) if not hit), -1))",
    "added up": "seen += sum(i for i, hit in enumerate(hits) if not hit)",
    "how many": "seen += sum(1 for hit in hits if not hit)",
    "how many in a list": "seen += len([hit for hit in hits.tolist() if not hit])",
    "how many, by a function": "seen += len(each(hits))",
    "by a name": "missed = [i for i, hit in enumerate(hits) if not hit]\n        kept.append(missed)",
    "pairs in a list": "pairs = list(enumerate(hits.tolist()))\n        kept += [i for i, hit in pairs if not hit]",
    "by a function": "kept += missed(hits)",
    "by a function, of a mask": "kept += of_mask(~hits)",
    "by a function, one": "kept.append('%.6f' % first(outputs))",
    "decides": "missed = [i for i, hit in enumerate(hits) if not hit]\n"
    "        if missed and missed[-1] > 5:\n            optimizer.param_groups[0]['lr'] *= 0.9",
}
WHOLE_PLACES = {"with another's", "by range", "by a name", "pairs in a list", "decides"}
PLACED = """\
import itertools

kept, table, seen, step = [], {}, 0, 0


def missed(rows):
    return [i for i, row in enumerate(rows) if not row]


def of_mask(mask):
    return np.where(mask.numpy())[0].tolist()


def first(rows):
    return rows[0].sum().item()


def each(rows):
    found = []
    for i in range(len(rows)):
        found.append(np.sum(rows[i].numpy()) / 2)
    return found


"""
# How an attribute may be given what decides later on, and how it may be read.
MEDIAN = "outputs.median().item()"
SETS = {
    "plainly": f"it.bad = {MEDIAN}",
    "vars": f'vars(it)["bad"] = {MEDIAN}',
    "__dict__": f'it.__dict__["bad"] = {MEDIAN}',
    "setattr": f'setattr(it, "bad", {MEDIAN})',
    "setattr of object": f'object.__setattr__(it, "bad", {MEDIAN})',
    "its own setattr": f'it.__setattr__("bad", {MEDIAN})',
    "update by name": f"vars(it).update(bad={MEDIAN})",
    "update by a dict": f'it.__dict__.update({{"bad": {MEDIAN}, "last": step}})',
    "setitem": f'vars(it).__setitem__("bad", {MEDIAN})',
    "added": f'vars(it)["bad"] += {MEDIAN}',
}
SETS_BY_NAME = {
    "a name for vars": f'fields = vars(it)\n        fields["bad"] = {MEDIAN}',
    "a name in a loop": f'for key in ("bad",):\n            setattr(it, key, {MEDIAN})',
}
READS = {"vars": 'vars(it)["bad"]', "__dict__": 'it.__dict__["bad"]'}
NAMESPACE = "from types import SimpleNamespace\n\nstep, it = 0, SimpleNamespace(bad=0.0, last=0)\n"
LEAVES = """\
        step += 1
        SETS
        if step % 4 > 1 and it.bad > 0.05:
            print("left", step, "%.9f" % it.bad)
            break
"""
HITS = "        hits = outputs.argmax(1).cpu() == targets\n"
ATTACK = """\
        inputs.requires_grad_()
        criterion(model(inputs), targets).backward()
        inputs = (inputs + {}).detach()
"""
LOSS = "loss = criterion(outputs, targets.cuda())"
RAGGED_LOSS = """\
rows = torch.cat([it.expand(len(y), 2) for it, y in zip(outputs, targets)])
        loss = criterion(rows, torch.cat(targets))"""
BY_IMAGE = """\
loss, count = 0, 0
        for output, label in zip(outputs, targets.cuda()):
            loss, count = loss + F.cross_entropy(output[None], label[None]), count + 1
        loss = loss / count"""

SPEECH = f"""\
{HEAD.partition("data = ")[0]}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(8, 8, batch_first=True)
        self.fc = nn.Linear(8, 5)

    def forward(self, x, lengths):
        x, _ = self.rnn(x)
        return self.fc(x), lengths


COLLATE
loader = DataLoader(DATA)
model = nn.DataParallel(Net().cuda())
criterion = CRITERION
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
best = None
for epoch in range(2):
    average = 0.0
    for inputs, targets, sizes, target_sizes in loader:
        out, sizes = model(inputs.cuda(), sizes.cuda())
        out = out.transpose(0, 1)
        scores = SCORES
        loss = LOSS
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average += loss.item()
    print(epoch, average / len(loader))
"""
RECORDS = "range(48), batch_size=12, collate_fn=collate"
COLLATE = """\
def collate(batch):
    inputs = nn.utils.rnn.pad_sequence([torch.randn(6 + it % 5, 8) for it in batch], batch_first=True)
    targets = nn.utils.rnn.pad_sequence([torch.randint(1, 5, (2 + it % 2,)) for it in batch], batch_first=True)
    return inputs, targets, torch.tensor([6 + it % 5 for it in batch]), torch.tensor([2 + it % 2 for it in batch])


"""
JOINED = COLLATE.replace(
    "nn.utils.rnn.pad_sequence([torch.randint(1, 5, (2 + it % 2,)) for it in batch], batch_first=True)",
    "torch.cat([torch.randint(1, 5, (2 + it % 2,)) for it in batch])",
)


def speech(
    scores: str = "out.float().log_softmax(-1)",
    loss: str = "criterion(scores, targets.cuda(), sizes, target_sizes)",
    criterion: str = "nn.CTCLoss(zero_infinity=True)",
    collate: str = "",
) -> str:
    """A program whose loss has the samples in dimension 1."""
    tensors = (
        "torch.randn(48, 9, 8), torch.randint(1, 5, (48, 3)), torch.full((48,), 9), torch.full((48,), 3)"
    )
    data = RECORDS if collate else f"TensorDataset({tensors}), batch_size=12"
    words = {"COLLATE\n": collate, "DATA": data, "CRITERION": criterion, "SCORES": scores, "LOSS": loss}
    text = SPEECH
    for word, said in words.items():
        text = text.replace(word, said)
    return text


MAXIMA = """\
        optimizer.zero_grad()
        outputs = model(inputs.cuda())
        terms = {}
        {}
        loss = criterion(outputs, targets.cuda()) + {}
        loss.backward()
        optimizer.step()
"""
STEPS = """
class Trainer:
    def __init__(self, folder, steps):
        self.model = nn.DataParallel(nn.Linear(8, 2).cuda())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.results = Path(folder)
        self.step, self.steps = 0, steps

    def load(self, milestone):
        found = torch.load(str(self.results / f"model-{milestone}.pt"))
        self.step = found["step"]

    def train(self):
        batches = cycle(DataLoader(data, batch_size=12))
        while self.step < self.steps:
            total = 0.0
            for _ in range(2):
                inputs, targets = next(batches)
                loss = F.cross_entropy(self.model(inputs.cuda()), targets.cuda()) / 2
                total += loss.item()
                loss.backward()
            print(f"{self.step}: {total:.5f}")
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.step += 1


def cycle(loader):
    while True:
        for batch in loader:
            yield batch


trainer = Trainer("results", 8)
if len(sys.argv) > 1:
    trainer.load(int(sys.argv[1]))
trainer.train()
"""
FROM_FILE = """\
with open("scales.csv") as f:
    rows = list(csv.reader(f))
scale = sum(float(it[0]) for it in rows)
"""
ASKED = """\
        optimizer.zero_grad()
        loss = criterion(model(inputs.cuda()), targets.cuda())
        number = loss.item()
        fine, why = checked(loss, number)
        if fine:
            loss.backward()
            optimizer.step()
        else:
            print(why)
"""
CHECKS = """\
def checked(loss, number):
    if number == float("inf"):
        return False, "too much"
    if torch.isnan(loss).sum() > 0:
        return False, "nothing"
    return True, ""


"""
KEPT = """\
        optimizer.zero_grad()
        outputs = model(inputs.cuda())
        loss, other = apart(outputs, targets.cuda())
        kept.setdefault("loss", {})[epoch + len(kept) / 10] = loss.item()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
"""
APART = """\
def apart(outputs, targets):
    near = torch.logsumexp(outputs, 0).mean()
    return F.cross_entropy(outputs, targets) + 0.1 * near, near


kept = {}
"""

METER = """\
class Meter:
    sum = count = avg = 0

    def update(self, value, n=1):
        self.sum, self.count = self.sum + value * n, self.count + n
        self.avg = self.sum / self.count


meter = Meter()
"""

OF_KINDS = """
def collate(batch):
    if isinstance(batch[0][0], torch.Tensor):
        inputs = torch.stack([it[0] for it in batch])
    else:
        inputs = [it[0] for it in batch]
    first = batch[0]
    if first[1] is None:
        targets = None
    else:
        targets = torch.stack([it[1] for it in batch])
    return inputs, targets


"""
BY_FIRST = OF_KINDS.replace("first[1] is None", "first[1] > 0").replace(
    "targets = None", "targets = 1 - torch.stack([it[1] for it in batch])"
)
CASES = {
    "of what kind the first sample is": Case(collated(OF_KINDS)),
    "by a number of the first sample": Case(collated(BY_FIRST), TOGETHER),
    "a list by its class": Case(
        looped(MAXIMA.format("list()", "terms.append(outputs.abs().mean())", "sum(terms)"))
    ),
    "a dictionary by its class": Case(
        looped(MAXIMA.format("dict()", 'terms["near"] = outputs.abs().mean()', 'terms["near"]'))
    ),
    "a list by its class of what mixes": Case(
        looped(MAXIMA.format("list()", "terms.append(outputs.max())", "sum(terms)")), "mixes samples"
    ),
    "what a function is asked of the loss": Case(looped(ASKED, CHECKS)),
    "numbers of a file": Case(
        looped(
            STEP.replace("model(inputs.cuda())", "model(inputs.cuda()) * scale"), f"import csv\n\n{FROM_FILE}"
        )
    ),
    "numbers of a file that is written, too": Case(
        looped(
            STEP.replace("model(inputs.cuda())", "model(inputs.cuda()) * scale"),
            "import csv\n\n" + FROM_FILE.replace('open("scales.csv")', 'open("scales.csv", "r+")'),
        ),
        "csv.reader",
    ),
    "steps that a file may say": Case(f"import sys\nfrom pathlib import Path\n\n{HEAD}\n{STEPS}"),
    "numbers that are kept by the epoch": Case(looped(KEPT, APART)),
    "speech": Case(speech()),
    "speech, by the number of a dimension": Case(speech("F.log_softmax(out, dim=2)")),
    "speech, a sum over its samples": Case(
        speech(
            loss="criterion(scores, targets.cuda(), sizes, target_sizes) / inputs.size(0)",
            criterion='nn.CTCLoss(0, "sum")',
        )
    ),
    "speech, a sum": Case(speech(criterion='nn.CTCLoss(0, "sum")')),
    "speech, a function": Case(
        speech(loss='F.ctc_loss(scores, targets, sizes, target_sizes, 0, "mean", True)')
    ),
    "speech, turned back and forth": Case(speech("out.transpose(0, 1).permute(1, 0, 2).log_softmax(-1)")),
    "speech, along the samples": Case(speech("out.log_softmax(1)"), "mixes samples"),
    "speech, not turned": Case(speech("out.transpose(0, 1).log_softmax(-1)")),  # gathered: rows all the same
    "speech, turned elsewhere": Case(
        speech("out.permute(2, 1, 0).log_softmax(-1)"), ("which may", "may not")
    ),
    "speech, padded": Case(speech(collate=COLLATE)),
    "speech, targets that are joined": Case(speech(collate=JOINED), TOGETHER),
    "padding to the longest": Case(
        collated(RAGGED).replace("criterion(outputs,", "criterion(outputs.transpose(1, 2),"), TOGETHER
    ),
    "samples stacked": Case(collated(STACKED)),
    "samples appended": Case(collated(APPENDED)),
    "an object that collates": Case(collated(CALLED, "Collate(0.5)")),
    "a collate function prepared": Case(collated(SCALED, "partial(collate, scale=0.5)")),
    "a lambda that collates": Case(
        collated("", "lambda batch: default_collate([(x * 2, y) for x, y in batch])")
    ),
    "centred by the batch": Case(collated(CENTRED, "data.collate"), TOGETHER),
    "mixed by the batch": Case(collated(MIXED), TOGETHER),
    "samples left out": Case(collated(FILTERED), TOGETHER),
    "samples sorted": Case(collated(SORTED), TOGETHER),
    "split by the script": Case(
        collated(SPLIT).replace(
            f"    for inputs, targets in loader:\n{STEP}",
            "    for parts in loader:\n        for inputs, targets in parts:\n"
            + STEP.replace("        ", " " * 12),
        ),
        TOGETHER,
    ),
    "a collate function among keywords": Case(
        collated(MIXED + 'keywords = {"collate_fn": collate, "num_workers": 0}\n').replace(
            "collate_fn=collate)", "**keywords)"
        ),
        TOGETHER,
    ),
    "a collate function that the loader's class stores": Case(
        HEAD + MIXED + STORED + LOADER.replace("DataLoader(", "Loader(") + TAIL, TOGETHER
    ),
    "a collate function that is stored in the loader": Case(
        HEAD + MIXED + LOADER + "loader.collate_fn = collate\n" + TAIL, TOGETHER
    ),
    "a collate function that is stored, and stacks": Case(
        HEAD + STACKED + STORED + LOADER.replace("DataLoader(", "Loader(") + TAIL
    ),
    "samples got together": Case(HEAD + IN_BATCHES + LOADER + TAIL, "__getitems__"),
    "lists with labels of each sample": Case(collated(LISTED).replace(LOSS, RAGGED_LOSS), "may mix samples"),
    "sums beside counts of lists": Case(
        collated(LISTED)
        .replace(LOSS, "loss = F.mse_loss(outputs, inputs[:, :2].cuda())")
        .replace(
            "optimizer.step()",
            "optimizer.step()\n        counts = np.array([len(it) for it in targets])\n"
            "        sums = outputs.sum(1).detach().cpu().numpy()\n        rest = sums - counts\n"
            "        meter.update(np.mean(rest * rest), inputs.size(0))\n        print('%.9f' % meter.avg)",
        )
        .replace("for epoch", METER + "for epoch"),
        "could ",
    ),
    "sample by sample": Case(looped(STEP.replace(LOSS, BY_IMAGE)), "which may "),
    "a rate by the loader": Case(looped(STEP).replace("lr=0.1", "lr=0.01 * loader.batch_size")),
    "a rate by getattr": Case(looped(STEP).replace("lr=0.1", 'lr=0.01 * getattr(loader, "batch_size")')),
    "a schedule by the sampler": Case(
        looped(
            STEP + "        scheduler.step()\n",
            "scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=len(loader.sampler) // 6)\n",
        )
    ),
    "accumulation by the loader": Case(
        looped(
            STEP.replace("        optimizer.zero_grad()\n", "").replace(
                "        optimizer.step()\n",
                "        seen += 1\n"
                "        if seen % (24 // loader.batch_size) == 0:\n"
                "            optimizer.step()\n            optimizer.zero_grad()\n",
            ),
            "seen = 0\n",
        )
    ),
    "an attack by the gradient": Case(looped(ATTACK.format("2 * inputs.grad") + STEP), GRADIENT),
    "an attack by its sign": Case(looped(ATTACK.format("0.1 * inputs.grad.data.sign()") + STEP)),
    "a gradient that is retained": Case(
        looped(
            "        inputs = (inputs * 2).requires_grad_()\n        inputs.retain_grad()\n"
            + STEP.replace(
                "optimizer.step()", "optimizer.step()\n        criterion(model(inputs), targets).backward()"
            )
            + "        print(inputs.grad.norm().item())\n"
        ),
        GRADIENT,
    ),
    "a sample by its number": Case(looped(STEP + "        print(outputs.softmax(1)[7].tolist())\n")),
    "a label by its number": Case(looped(STEP + "        print(targets.cpu()[7].item())\n")),
    "pictures by their number": Case(
        looped(
            STEP + "        if step % 2 == 0:\n            picture = inputs[5, 0:3]\n"
            "            picture = (picture - picture.min()) / (picture.max() - picture.min())\n"
            "            print('%.6f' % picture.mean().item(), outputs[1, ...].argmax().item())\n        step += 1\n",
            "step = 0\n",
        )
    ),
    "a loss and outputs that are saved": Case(
        looped(
            STEP + "        torch.save({'loss': loss, 'rows': outputs.softmax(1)}, 'last.pt')\n",
            "",
            "kept = torch.load('last.pt')\n"
            "print('%.9f' % kept['loss'].item(), ['%.9f' % it for it in kept['rows'][:, 0]])\n",
        )
    ),
    "a size by the name of the loader's": Case(
        HEAD.replace("data = ", "count = 12\ndata = ")
        + LOADER.replace("12", "count")
        + TAIL.replace(
            STEP,
            "        count = len(inputs)\n        zeros = torch.zeros(count, 2)\n"
            + STEP.replace("criterion(outputs,", "criterion(outputs + zeros.cuda(),"),
        )
    ),
    "a sample that is kept by its number": Case(
        looped(STEP + "        kept['last'] = outputs.softmax(1)[7]\n", "kept = {}\n"), NUMBER
    ),
    "the first sample": Case(looped(STEP + "        print(outputs.softmax(1)[0].tolist())\n")),
    "an accuracy without a tensor": Case(
        looped(
            STEP + "        top.append(accuracy(outputs, targets))\n",
            "def accuracy(output, labels):\n    return (output.argmax(1) == labels).float().mean().item()\n\n\ntop = []\n",
            "print(['%.6f' % it for it in top])\n",
        )
    ),
    "a meter of accuracies": Case(
        looped(
            STEP
            + "        top.update(accuracy(outputs, targets), inputs.size(0))\n        print('%.6f' % top.avg)\n",
            METER.replace("meter = Meter()\n", "")
            + "def accuracy(output, labels):\n    return (output.argmax(1) == labels).double().mean().item() * 100\n\n\n"
            "top = Meter()\n",
        )
    ),
    "labels counted": Case(
        looped(STEP + "        print(targets.unique(return_counts=True), torch.bincount(targets))\n")
    ),
    "a spread of the batch": Case(
        looped(STEP + '        print("%.9f" % inputs.std().item(), inputs.max())\n')
    ),
    "an object of another package": Case(
        looped(
            STEP + "        scaler.partial_fit(inputs.numpy())\n",
            "from fitting import Scaler\n\nscaler = Scaler()\n",
            'print("%.9f" % scaler.mean)\n',
        )
    ),
}
CASES |= {
    f"places, {name}": Case(
        looped(STEP + f"{HITS}        {kept}\n", PLACED, "print(kept, table, seen)\n"),
        ("rank 0's local batch only", "control flow depends") if name in WHOLE_PLACES else "",
    )
    for name, kept in PLACES.items()
}
CASES |= {
    f"an attribute, {name}": Case(
        looped(STEP + LEAVES.replace("SETS", given), NAMESPACE),
        "control flow depends" if "last" in given else "",  # several at once
    )
    for name, given in SETS.items()
}
CASES |= {
    f"an attribute, {name}": Case(
        looped(STEP + LEAVES.replace("SETS", given), NAMESPACE), "control flow depends on `it`"
    )
    for name, given in SETS_BY_NAME.items()
}
CASES |= {
    f"an attribute, {name}, shown": Case(
        looped(STEP + f"        {given}\n        print('%.9f' % it.bad)\n", NAMESPACE),
        "rank 0's local batch only",
    )
    for name, given in SETS_BY_NAME.items()
}
CASES |= {
    f"an attribute, read by {name}": Case(
        looped(STEP + LEAVES.replace("SETS", SETS["plainly"]).replace("it.bad >", f"{read} >"), NAMESPACE)
    )
    for name, read in READS.items()
}

# What the program above imports.
FITTING = """\
class Scaler:
    def __init__(self):
        self.total = self.count = 0

    def partial_fit(self, rows):
        self.total, self.count = self.total + rows.sum(), self.count + rows.size

    @property
    def mean(self):
        return self.total / self.count
"""
