"""Programs whose ``collate_fn`` looks at several samples: pads to the longest, sorts, mixes; and those where that is more.

Loaders of ``DIVIDED`` load whole batches, and the models get parts; batches of ``WHOLE`` stay whole.
"""

from __future__ import annotations

HEAD = """\
import random
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset, default_collate

torch.manual_seed(0)
np.random.seed(0)
random.seed(0)


class Texts(Dataset):
    def __init__(self, count=50):
        made = np.random.RandomState(1)
        self.texts = [made.randint(1, 20, made.randint(2, 9)).tolist() for _ in range(count)]
        self.labels = [sum(it) % 3 for it in self.texts]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return self.texts[index], self.labels[index]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 6, padding_idx=0)
        self.out = nn.Linear(6, 3)

    def forward(self, tokens, mask):
        hidden = torch.tanh(self.embedding(tokens)) * mask.unsqueeze(2)
        return self.out(hidden.sum(1) / mask.sum(1, keepdim=True))


"""
TRAINED = """
model = nn.DataParallel(Net().cuda())
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(model.parameters(), lr=0.1)
"""

SORTED = """
def collate(batch):
    batch = sorted(batch, key=lambda it: len(it[0]), reverse=True)
    lengths = torch.tensor([len(it[0]) for it in batch])
    tokens = torch.zeros(len(batch), int(lengths.max()), dtype=torch.long)
    for i, (text, _) in enumerate(batch):
        tokens[i, : len(text)] = torch.tensor(text)
    return tokens, lengths, torch.tensor([it[1] for it in batch])


class Lengths(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 6, padding_idx=0)
        self.out = nn.Linear(6, 3)

    def forward(self, tokens, lengths):
        mask = torch.arange(tokens.size(1), device=tokens.device)[None] < lengths[:, None]
        hidden = self.embedding(tokens) * mask.unsqueeze(2)
        return self.out(hidden.sum(1) / tokens.size(1))


loader = DataLoader(Texts(), batch_size=8, shuffle=True, collate_fn=collate)
model = nn.DataParallel(Lengths().cuda())
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(model.parameters(), lr=0.1)
"""

DIVIDED = {
    "a list of the longest, written row by row": """
def collate_fn(batch):
    texts, labels = zip(*batch)
    longest = max(len(it) for it in texts)
    tokens = torch.zeros(len(texts), longest, dtype=torch.long)
    mask = torch.zeros(len(texts), longest)
    for i, text in enumerate(texts):
        tokens[i, :len(text)] = torch.tensor(text)
        mask[i, :len(text)] = 1
    return tokens, mask, torch.tensor(labels)


loader = DataLoader(Texts(), batch_size=8, shuffle=True, collate_fn=collate_fn)
MODEL
for epoch in range(2):
    total = 0.0
    for tokens, mask, labels in loader:
        tokens, mask, labels = tokens.cuda(), mask.cuda(), labels.cuda()
        loss = criterion(model(tokens, mask), labels)
        STEP
        total += loss.item() * labels.size(0)
    print(epoch, total / len(loader.dataset))
""",
    "a dict, padded as lists": """
class Collator:
    def __init__(self, pad=0):
        self.pad = pad

    def __call__(self, batch):
        longest = max(len(text) for text, _ in batch)
        tokens, masks, labels = [], [], []
        for text, label in batch:
            missing = longest - len(text)
            tokens.append(text + [self.pad] * missing)
            masks.append([1.0] * len(text) + [0.0] * missing)
            labels.append(label)
        return {
            "tokens": torch.tensor(tokens, dtype=torch.long),
            "mask": torch.tensor(masks),
            "labels": torch.tensor(labels),
        }


loader = DataLoader(Texts(), batch_size=8, shuffle=True, collate_fn=Collator())
MODEL
for epoch in range(2):
    losses = []
    for i, batch in enumerate(loader):
        tokens = batch["tokens"].cuda()
        mask = batch["mask"].cuda()
        labels = batch["labels"].cuda()
        loss = criterion(model(tokens, mask), labels)
        STEP
        losses.append(loss.item())
    print(epoch, np.mean(losses))
""",
    "tokens put together by a helper, with a guard and more entries": """
def collate_tokens(values, pad, left=False):
    if len(values[0].size()) > 1:
        values = [v.view(-1) for v in values]
    size = max(v.size(0) for v in values)
    res = values[0].new(len(values), size).fill_(pad)

    def copy(src, dst):
        assert dst.numel() == src.numel()
        dst.copy_(src)

    for i, v in enumerate(values):
        copy(v, res[i][size - len(v) :] if left else res[i][: len(v)])
    return res


class Encoded(Texts):
    def __getitem__(self, index):
        text = torch.tensor(self.texts[index])
        return {"ids": text[None], "mask": torch.ones(len(text)), "label": torch.tensor([self.labels[index]])}


def collate(samples, pad=0):
    if len(samples) == 0:
        return {}
    batch = {"ids": collate_tokens([s["ids"].view(-1) for s in samples], pad)}
    if "mask" in samples[0]:
        batch.update({"mask": collate_tokens([s["mask"] for s in samples], 0)})
    batch["label"] = collate_tokens([s["label"] for s in samples], -1)
    return batch


loader = DataLoader(Encoded(), batch_size=8, shuffle=True, collate_fn=collate)
MODEL
for epoch in range(2):
    for batch in loader:
        loss = criterion(model(batch["ids"].cuda(), batch["mask"].cuda()), batch["label"].view(-1).cuda())
        STEP
        print(loss.item())
""",
    "a dict, moved by a comprehension": """
def collate(batch):
    texts = [torch.tensor(text) for text, _ in batch]
    tokens = pad_sequence(texts, batch_first=True, padding_value=0)
    return {"tokens": tokens, "mask": (tokens != 0).float(), "labels": torch.LongTensor([it[1] for it in batch])}


loader = DataLoader(Texts(), batch_size=8, shuffle=True, collate_fn=lambda batch: collate(batch))
MODEL
for epoch in range(2):
    for batch in loader:
        batch = {k: v.cuda() for k, v in batch.items()}
        outputs = model(batch["tokens"], batch["mask"])
        loss = F.cross_entropy(outputs, batch["labels"])
        STEP
        print(loss.item())
""",
    "sorted, packed, lengths as a list": """
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 6)
        self.rnn = nn.GRU(6, 5, batch_first=True)
        self.out = nn.Linear(5, 3)

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(self.embedding(tokens), lengths.cpu(), batch_first=True)
        _, last = self.rnn(packed)
        return self.out(last[-1])


def collate_fn(data):
    data.sort(key=lambda x: len(x[0]), reverse=True)
    texts, labels = zip(*data)
    lengths = [len(it) for it in texts]
    tokens = torch.zeros(len(texts), max(lengths)).long()
    for i, text in enumerate(texts):
        end = lengths[i]
        tokens[i, :end] = torch.LongTensor(text[:end])
    return tokens, torch.tensor(labels), lengths


loader = DataLoader(dataset=Texts(), batch_size=8, shuffle=True, collate_fn=collate_fn)
model = nn.DataParallel(Recurrent()).cuda()
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    model.train()
    running, right, seen = 0.0, 0, 0
    for tokens, labels, lengths in loader:
        tokens, labels = tokens.cuda(), labels.cuda()
        lengths = torch.LongTensor(lengths)
        outputs = model(tokens, lengths)
        loss = criterion(outputs, labels)
        STEP
        running += loss.item()
        right += (outputs.argmax(1) == labels).sum().item()
        seen += labels.size(0)
    print(running / len(loader), right / seen)
""",
    "packed, not sorted, lengths as a tensor": """
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 6)
        self.rnn = nn.LSTM(6, 5, batch_first=True, bidirectional=True)
        self.out = nn.Linear(10, 3)

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(
            self.embedding(tokens), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        _, (last, _) = self.rnn(packed)
        return self.out(torch.cat([last[0], last[1]], dim=1))


def pad_collate(batch, pad_value):
    xx, yy = zip(*batch)
    x_lens = [len(x) for x in xx]
    padded = pad_sequence([torch.tensor(x) for x in xx], batch_first=True, padding_value=pad_value)
    return padded, torch.LongTensor(x_lens), torch.LongTensor(yy)


loader = DataLoader(Texts(), batch_size=8, shuffle=True, collate_fn=partial(pad_collate, pad_value=0))
model = nn.DataParallel(Recurrent().cuda())
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    epoch_loss = 0
    for batch_idx, (x, lens, y) in enumerate(loader):
        x, lens, y = x.cuda(), lens.cuda(), y.cuda()
        loss = criterion(model(x, lens), y)
        STEP
        epoch_loss += loss.item()
    print(epoch_loss / len(loader))
""",
    "padded arrays, a mask for losses of tokens": """
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 6)
        self.mix = nn.Conv1d(6, 6, 3, padding=1)
        self.out = nn.Linear(6, 4)

    def forward(self, tokens):
        hidden = self.embedding(tokens).transpose(1, 2)
        return self.out(torch.relu(self.mix(hidden)).transpose(1, 2))


class Tags(Texts):
    def __getitem__(self, index):
        return np.array(self.texts[index]), np.array(self.texts[index]) % 4


def collate(samples):
    width = max(x.shape[0] for x, _ in samples)
    xs = np.stack([np.pad(x, (0, width - len(x))) for x, _ in samples])
    ys = np.stack([np.pad(y, (0, width - len(y)), constant_values=-100) for _, y in samples])
    return torch.from_numpy(xs), torch.from_numpy(ys)


loader = DataLoader(Tags(), batch_size=8, shuffle=True, collate_fn=collate)
model = nn.DataParallel(Tagger().cuda())
optimizer = optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        logits = model(x)
        loss = F.cross_entropy(logits.view(-1, 4), y.view(-1), ignore_index=-100)
        STEP
        print(x.size(1), loss.item())
""",
    "mixup where batches are put together": """
class Images(Dataset):
    def __init__(self):
        made = torch.Generator().manual_seed(1)
        self.x, self.y = torch.randn(50, 6, generator=made), torch.randint(3, (50,), generator=made)

    def __len__(self):
        return 50

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class MixupCollate:
    def __init__(self, alpha):
        self.alpha = alpha

    def __call__(self, batch):
        images, labels = default_collate(batch)
        lam = np.random.beta(self.alpha, self.alpha)
        order = torch.randperm(images.size(0))
        images = lam * images + (1 - lam) * images[order]
        return images, labels, labels[order], lam


loader = DataLoader(Images(), batch_size=8, shuffle=True, collate_fn=MixupCollate(0.4))
model = nn.DataParallel(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).cuda())
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for images, first, second, lam in loader:
        images, first, second = images.cuda(), first.cuda(), second.cuda()
        outputs = model(images)
        loss = lam * criterion(outputs, first) + (1 - lam) * criterion(outputs, second)
        STEP
        print(loss.item())
""",
    "mixup of one-hot labels, chosen by the batch": """
class Images(Dataset):
    def __init__(self):
        made = torch.Generator().manual_seed(1)
        self.x, self.y = torch.randn(50, 6, generator=made), torch.randint(3, (50,), generator=made)

    def __len__(self):
        return 50

    def __getitem__(self, index):
        return self.x[index], self.y[index]


def collate(batch):
    inputs = torch.stack([it[0] for it in batch])
    targets = F.one_hot(torch.tensor([it[1] for it in batch]), 3).float()
    if random.random() < 0.5:
        lam = random.random()
        inputs = lam * inputs + (1 - lam) * inputs.flip(0)
        targets = lam * targets + (1 - lam) * targets.flip(0)
    return inputs, targets


loader = DataLoader(Images(), batch_size=8, shuffle=True, collate_fn=collate)
model = nn.DataParallel(nn.Linear(6, 3).cuda())
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for inputs, targets in loader:
        outputs = model(inputs.cuda())
        loss = criterion(outputs, targets.cuda())
        STEP
        print(loss.item())
""",
    "a longest length beside": """
class Lengths(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 6, padding_idx=0)
        self.out = nn.Linear(6, 3)

    def forward(self, tokens, lengths):
        mask = torch.arange(tokens.size(1), device=tokens.device)[None] < lengths[:, None]
        hidden = self.embedding(tokens) * mask.unsqueeze(2)
        return self.out(hidden.sum(1) / tokens.size(1))


def collate(batch):
    lengths = torch.tensor([len(text) for text, _ in batch])
    longest = int(lengths.max())
    tokens = torch.tensor([text + [0] * (longest - len(text)) for text, _ in batch])
    return tokens, lengths, torch.tensor([label for _, label in batch]), longest


loader = DataLoader(Texts(), batch_size=8, shuffle=True, collate_fn=collate)
model = nn.DataParallel(Lengths().cuda())
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for tokens, lengths, labels, longest in loader:
        assert tokens.size(1) == longest
        loss = criterion(model(tokens.cuda(), lengths.cuda()), labels.cuda())
        STEP
        print(loss.item())
""",
    "a trainer": """
class Trainer:
    def __init__(self, model, loader, lr=0.1):
        self.model = nn.DataParallel(model.cuda())
        self.loader = loader
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = optim.SGD(self.model.parameters(), lr=lr)

    def step(self, batch):
        tokens, mask, labels = [it.cuda() for it in batch]
        outputs = self.model(tokens, mask)
        return self.criterion(outputs, labels)

    def train(self, epochs):
        for epoch in range(epochs):
            total = 0
            for batch in self.loader:
                loss = self.step(batch)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                total += loss.item()
            print(epoch, total / len(self.loader))


class Padded(Texts):
    def collate_fn(self, batch):
        longest = max([len(text) for text, _ in batch])
        tokens = torch.LongTensor([text + [0] * (longest - len(text)) for text, _ in batch])
        mask = tokens.ne(0).float()
        return tokens, mask, torch.LongTensor([label for _, label in batch])


data = Padded()
loader = DataLoader(data, batch_size=8, shuffle=True, collate_fn=data.collate_fn)
Trainer(Net(), loader).train(2)
""",
    "steps of time first, turned for the model": """
def collate(batch):
    tokens = pad_sequence([torch.tensor(text) for text, _ in batch])
    return tokens, torch.tensor([label for _, label in batch])


loader = DataLoader(Texts(), batch_size=8, shuffle=True, collate_fn=collate)
MODEL
for epoch in range(2):
    for tokens, labels in loader:
        tokens = tokens.t().cuda()
        outputs = model(tokens, (tokens != 0).float())
        loss = criterion(outputs, labels.cuda())
        STEP
        print(loss.item())
""",
    "while and next": SORTED
    + """
it = iter(loader)
step = 0
while step < 10:
    try:
        tokens, lengths, labels = next(it)
    except StopIteration:
        it = iter(loader)
        tokens, lengths, labels = next(it)
    loss = criterion(model(tokens.cuda(), lengths.cuda()), labels.cuda())
    STEP
    step += 1
    print(loss.item())
""",
    "phases": SORTED
    + """
loaders = {"train": loader, "val": DataLoader(Texts(20), batch_size=8, collate_fn=collate)}
for epoch in range(2):
    for phase in ["train", "val"]:
        if phase == "train":
            model.train()
        else:
            model.eval()
        total, right = 0.0, 0
        for tokens, lengths, labels in loaders[phase]:
            tokens, lengths, labels = tokens.cuda(), lengths.cuda(), labels.cuda()
            optimizer.zero_grad()
            with torch.set_grad_enabled(phase == "train"):
                outputs = model(tokens, lengths)
                loss = criterion(outputs, labels)
                if phase == "train":
                    loss.backward()
                    optimizer.step()
            total += loss.item() * tokens.size(0)
            right += torch.sum(outputs.argmax(1) == labels).item()
        print(phase, total / len(loaders[phase].dataset), right)
""",
    "sorted in the loop": SORTED
    + """
for epoch in range(2):
    for tokens, lengths, labels in loader:
        lengths, order = lengths.sort(0, descending=True)
        tokens = tokens[order]
        labels = labels[order]
        outputs = model(tokens.cuda(), lengths.cuda())
        loss = criterion(outputs, labels.cuda())
        STEP
        print(loss.item())
""",
    "functions, evaluation, sums": SORTED
    + """
def train_epoch(model, loader, criterion, optimizer, device):
    model.train()
    losses, correct, total = [], 0, 0
    for tokens, lengths, labels in loader:
        tokens = tokens.to(device)
        labels = labels.to(device)
        optimizer.zero_grad()
        logits = model(tokens, lengths.to(device))
        loss = criterion(logits, labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        correct += (logits.argmax(-1) == labels).sum().item()
        total += len(labels)
    return sum(losses) / len(losses), correct / total


def evaluate(model, loader, criterion, device):
    model.eval()
    total, n = 0.0, 0
    with torch.no_grad():
        for tokens, lengths, labels in loader:
            logits = model(tokens.to(device), lengths.to(device))
            total += criterion(logits, labels.to(device)).item() * len(labels)
            n += len(labels)
    return total / n


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
val_loader = DataLoader(Texts(20), batch_size=8, collate_fn=collate)
best = 9.0
for epoch in range(2):
    print(*train_epoch(model, loader, criterion, optimizer, device))
    val = evaluate(model, val_loader, criterion, device)
    if val < best:
        best = val
        torch.save(model.module.state_dict(), "best.pt")
    print(val)
""",
    "autocast and accumulation": SORTED
    + """
scaler = torch.cuda.amp.GradScaler(enabled=False)
for epoch in range(2):
    optimizer.zero_grad()
    for step, batch in enumerate(loader):
        batch = tuple(t.cuda() for t in batch)
        tokens, lengths, labels = batch
        with torch.cuda.amp.autocast(enabled=False):
            logits = model(tokens, lengths)
            loss = criterion(logits, labels) / 2
        scaler.scale(loss).backward()
        if (step + 1) % 2 == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        print(loss.item() * 2)
""",
    "skips empty batches": SORTED.replace(
        "    lengths = torch.tensor([len(it[0]) for it in batch])\n",
        "    batch = [it for it in batch if len(it[0]) > 2]\n    if not batch:\n        return None\n    lengths = torch.tensor([len(it[0]) for it in batch])\n",
    )
    + """
for epoch in range(2):
    for batch in loader:
        if batch is None:
            continue
        tokens, lengths, labels = batch
        loss = criterion(model(tokens.cuda(), lengths.cuda()), labels.cuda())
        STEP
        print(loss.item())
""",
    "seq2seq": """
class Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 6)
        self.enc = nn.GRU(6, 6, batch_first=True)
        self.dec = nn.GRU(6, 6, batch_first=True)
        self.out = nn.Linear(6, 20)

    def forward(self, src, trg):
        _, h = self.enc(self.embedding(src))
        y, _ = self.dec(self.embedding(trg), h)
        return self.out(y)

class Pairs(Texts):
    def __getitem__(self, index):
        return torch.tensor(self.texts[index]), torch.tensor(self.texts[index][::-1])

def collate(batch):
    src, trg = zip(*batch)
    return pad_sequence(src, batch_first=True, padding_value=0), pad_sequence(trg, batch_first=True, padding_value=0)

loader = DataLoader(Pairs(), batch_size=8, shuffle=True, collate_fn=collate)
model = nn.DataParallel(Seq().cuda())
criterion = nn.CrossEntropyLoss(ignore_index=0)
optimizer = optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for src, trg in loader:
        src, trg = src.cuda(), trg.cuda()
        output = model(src, trg[:, :-1])
        output = output.reshape(-1, output.shape[2])
        loss = criterion(output, trg[:, 1:].reshape(-1))
        STEP
        print(loss.item())
""",
    "masked losses": """
class Reg(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 6)
        self.out = nn.Linear(6, 1)

    def forward(self, src):
        return self.out(self.embedding(src)).squeeze(2)

class Pairs(Texts):
    def __getitem__(self, index):
        x = torch.tensor(self.texts[index])
        return {"x": x, "y": x.float() / 20, "n": len(x)}

def collate(batch):
    n = max(it["n"] for it in batch)
    xs, ys, ms = [], [], []
    for it in batch:
        p = n - it["n"]
        xs.append(F.pad(it["x"], (0, p)))
        ys.append(F.pad(it["y"], (0, p)))
        ms.append(F.pad(torch.ones(it["n"]), (0, p)))
    return {"x": torch.stack(xs), "y": torch.stack(ys), "mask": torch.stack(ms), "n": [it["n"] for it in batch]}

loader = DataLoader(Pairs(), batch_size=8, shuffle=True, collate_fn=collate)
model = nn.DataParallel(Reg().cuda())
optimizer = optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for batch in loader:
        x, y, mask = batch["x"].cuda(), batch["y"].cuda(), batch["mask"].cuda()
        out = model(x)
        loss = (((out - y) ** 2) * mask).sum() / mask.sum()
        STEP
        print(loss.item(), sum(batch["n"]))
""",
}
WHOLE = {
    "targets one after the other": """
class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 6, padding_idx=0)
        self.out = nn.Linear(6, 5)

    def forward(self, tokens, lengths):
        return self.out(self.embedding(tokens)), lengths


def collate(batch):
    batch = sorted(batch, key=lambda it: len(it[0]), reverse=True)
    tokens = torch.zeros(len(batch), len(batch[0][0]), dtype=torch.long)
    sizes, wanted = torch.zeros(len(batch), dtype=torch.long), torch.zeros(len(batch), dtype=torch.long)
    targets = []
    for i, (text, label) in enumerate(batch):
        tokens[i, : len(text)] = torch.tensor(text)
        sizes[i] = len(text)
        wanted[i] = 1 + label % 2
        targets.extend([1 + label] * (1 + label % 2))
    return tokens, torch.tensor(targets, dtype=torch.long), sizes, wanted


loader = DataLoader(Texts(), batch_size=8, shuffle=True, collate_fn=collate)
model = nn.DataParallel(Speech().cuda())
criterion = nn.CTCLoss(zero_infinity=True)
optimizer = optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for tokens, targets, sizes, wanted in loader:
        out, sizes = model(tokens.cuda(), sizes.cuda())
        loss = criterion(out.transpose(0, 1).log_softmax(2), targets, sizes, wanted)
        STEP
        print(loss.item())
""",
    "steps of time first": """
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 6)
        self.rnn = nn.GRU(6, 5)
        self.out = nn.Linear(5, 3)

    def forward(self, tokens):
        return self.out(self.rnn(self.embedding(tokens))[0])


def collate(batch):
    tokens = pad_sequence([torch.tensor(text) for text, _ in batch])
    return tokens, torch.tensor([label for _, label in batch])


loader = DataLoader(Texts(), batch_size=8, shuffle=True, collate_fn=collate)
model = nn.DataParallel(Recurrent().cuda(), dim=1)
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for tokens, labels in loader:
        outputs = model(tokens.cuda()).mean(0)
        loss = criterion(outputs, labels.cuda())
        STEP
        print(loss.item())
""",
}
