"""What programs train: data, models, losses and the numbers that belong to them, as pieces of source.

Every piece says ``model``, ``loader``, ``criterion``, ``device`` and the names of the tensors of a batch; SIZE stands
for the number of samples of the batch at hand. ``shaped`` puts them where a program has them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from generated.flat import NUMBERS

Number = tuple[str, str, str]
"""What stands before a loop over batches, in it and after it; the last leaves its numbers in ``shown``."""


@dataclass(frozen=True)
class Task:
    """One kind of training."""

    names: tuple[str, ...]
    """The tensors of a batch, in order; the first has one row for each sample."""
    sample: str
    """A function ``sample(draw)`` that makes a tuple of arrays or numbers with ``draw``, a numpy generator."""
    models: dict[str, str]
    """Classes, of which `Net` is the model."""
    losses: dict[str, str]
    """From the batch to ``outputs`` and ``loss``, by ``model`` and ``criterion``."""
    numbers: dict[str, Number] = field(default_factory=dict)
    criterion: str = "nn.CrossEntropyLoss()"
    collate: str = ""
    """A function ``collate(samples)``, where batches need one."""
    extra: str = ""
    """Functions beside."""
    kept: tuple[str, ...] = ()
    """What of a batch is not moved to the device."""
    steps: str = ""
    """The whole step, where it is no other's: from the batch to the optimizers' steps."""
    trained: dict[str, str] = field(default_factory=dict)
    """What else is trained or asked, by its name, and how it is made (wrapped, if it is to be)."""
    indexed: bool = False
    """Whether each sample has its index as its last part."""


GENERAL = {
    name: number
    for name, number in NUMBERS.items()
    if name.startswith(("loss", "a meter", "in a", "worst")) or name == "moving"
}
GENERAL |= {
    "loss of the epoch as a tensor": (
        "total = torch.zeros(1, device=device)",
        "total += loss.detach() * SIZE",
        'shown["loss"] = (total / len(loader.dataset)).item()',
    ),
    "loss until now": (
        "total, seen = 0.0, 0",
        'total += loss.item() * SIZE\nseen += SIZE\nif step % 2 == 1:\n    print("  so far %.6f" % (total / seen))',
        'shown["loss"] = total / seen',
    ),
    "best and last": (
        "lowest, last = float('inf'), 0.0",
        "last = loss.item()\nif last < lowest:\n    lowest = last",
        'shown["lowest"] = lowest\nshown["last"] = last',
    ),
    "a window": (
        "window = deque(maxlen=2)",
        'window.append(loss.item())\nif step % 2 == 0:\n    print("  window %.6f" % (sum(window) / len(window)))',
        'shown["window"] = float(np.median(window))',
    ),
    "tracked": (
        "track = Averages()",
        "track.add(SIZE, loss=loss.item(), double=2 * loss.detach())",
        "shown.update(track.means())",
    ),
    "reset": (
        "part, parts = 0.0, []",
        'part += loss.item()\nif (step + 1) % 2 == 0:\n    parts.append(part / 2)\n    print("  part %.6f" % parts[-1])\n    part = 0.0',
        'shown["parts"] = float(np.sum(parts))',
    ),
}
UTILS = """\
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


class Averages:
    def __init__(self):
        self.sums, self.count = defaultdict(float), 0

    def add(self, n, **numbers):
        self.count += n
        for name, number in numbers.items():
            self.sums[name] += (number.item() if torch.is_tensor(number) else number) * n

    def means(self):
        return {name: total / self.count for name, total in self.sums.items()}


class Confusion:
    def __init__(self, classes):
        self.classes = classes
        self.matrix = np.zeros((classes, classes))

    def update(self, truth, found):
        for t, f in zip(truth.cpu().numpy(), found.cpu().numpy()):
            self.matrix[t, f] += 1

    def accuracy(self):
        return self.matrix.diagonal().sum() / self.matrix.sum()

    @property
    def recall(self):
        return float(np.mean(self.matrix.diagonal() / np.maximum(self.matrix.sum(1), 1)))


class Score:
    def __init__(self):
        self.reset()

    def reset(self):
        self.outputs, self.targets = [], []

    def __call__(self, outputs, targets):
        self.outputs.append(outputs.detach().cpu())
        self.targets.append(targets.detach().cpu())

    def compute(self):
        return (torch.cat(self.outputs).argmax(1) == torch.cat(self.targets)).double().mean().item()


class FocalLoss(nn.Module):
    def __init__(self, gamma=2.0, reduction="mean"):
        super().__init__()
        self.gamma, self.reduction = gamma, reduction

    def forward(self, outputs, targets):
        ce = F.cross_entropy(outputs, targets, reduction="none")
        loss = (1 - torch.exp(-ce)) ** self.gamma * ce
        return loss.mean() if self.reduction == "mean" else loss.sum()


def accuracy(outputs, targets):
    return (outputs.argmax(1) == targets).double().mean().item() * 100


def topk_accuracy(outputs, targets, topk=(1,)):
    with torch.no_grad():
        _, pred = outputs.topk(max(topk), 1, True, True)
        correct = pred.t().eq(targets.view(1, -1).expand_as(pred.t()))
        return [correct[:k].reshape(-1).double().sum(0).mul_(100.0 / targets.size(0)) for k in topk]
"""
CLASSES = {
    name: number
    for name, number in NUMBERS.items()
    if name not in GENERAL and name not in ("gradient", "correct as a tensor")
} | {
    "top two": (
        "top2 = 0",
        "_, found = outputs.topk(2, dim=1)\ntop2 += found.eq(targets.view(-1, 1)).any(1).sum().item()",
        'shown["top2"] = top2 / len(loader.dataset)',
    ),
    "top k of a function": (
        "top1, top2 = Meter(), Meter()",
        "prec1, prec2 = topk_accuracy(outputs, targets, topk=(1, 2))\ntop1.update(prec1.item(), SIZE)\ntop2.update(prec2.item(), SIZE)",
        'shown["top1"] = top1.avg\nshown["top2"] = top2.avg',
    ),
    "f1": (
        "tp = fp = fn = 0",
        "found = outputs.argmax(1)\ntp += ((found == 1) & (targets == 1)).sum().item()\nfp += ((found == 1) & (targets != 1)).sum().item()\nfn += ((found != 1) & (targets == 1)).sum().item()",
        'shown["f1"] = 2 * tp / max(2 * tp + fp + fn, 1)',
    ),
    "macro": (
        "hit, all_ = torch.zeros(4), torch.zeros(4)",
        "for c in range(4):\n    mask = targets == c\n    hit[c] += (outputs.argmax(1)[mask] == c).sum().item()\n    all_[c] += mask.sum().item()",
        'shown["recall"] = (hit / all_.clamp(min=1)).mean().item()',
    ),
    "confusion at once": (
        "confusion = torch.zeros(4, 4, dtype=torch.long, device=device)",
        "confusion += torch.bincount(targets * 4 + outputs.argmax(1), minlength=16).reshape(4, 4)",
        'shown["iou"] = (confusion.diag() / (confusion.sum(0) + confusion.sum(1) - confusion.diag()).clamp(min=1)).mean().item()',
    ),
    "ranks": (
        "ranks = []",
        "order = outputs.argsort(dim=1, descending=True)\nranks += (order == targets[:, None]).nonzero()[:, 1].tolist()",
        'shown["mrr"] = float(np.mean([1 / (1 + rank) for rank in ranks]))',
    ),
    "a confusion object": (
        "matrix = Confusion(4)",
        "matrix.update(targets, outputs.argmax(1))",
        'shown["accuracy"] = matrix.accuracy()\nshown["recall"] = matrix.recall',
    ),
    "a score": ("score = Score()", "score(outputs, targets)", 'shown["accuracy"] = score.compute()'),
    "several in a dictionary": (
        'metrics = {"loss": Meter(), "accuracy": Meter()}',
        'metrics["loss"].update(loss.item(), SIZE)\nmetrics["accuracy"].update((outputs.argmax(1) == targets).double().mean().item(), SIZE)',
        "shown.update({name: meter.avg for name, meter in metrics.items()})",
    ),
    "an array of counts": (
        "counted = np.zeros((4, 2))",
        "for c in range(4):\n    chosen = targets == c\n    counted[c] += [(outputs.argmax(1)[chosen] == c).sum().item(), chosen.sum().item()]",
        'shown["recall"] = float((counted[:, 0] / np.maximum(counted[:, 1], 1)).mean())',
    ),
    "wrong ones": (
        "wrong = 0\nexamples = []",
        "mistaken = outputs.argmax(1) != targets\nwrong += int(mistaken.sum())\nexamples.extend(targets[mistaken].tolist())",
        'shown["wrong"] = wrong\nshown["kinds"] = len(set(examples))',
    ),
    "by name": (
        "found_by_class = {name: 0 for name in range(4)}",
        "for truth, guess in zip(targets, outputs.argmax(1)):\n    if truth == guess:\n        found_by_class[truth.item()] += 1",
        'for name, found in found_by_class.items():\n    shown[f"class {name}"] = found',
    ),
    "accuracy as tensors": (
        "right = []",
        "right.append(outputs.argmax(1) == targets)",
        'shown["accuracy"] = torch.cat(right).double().mean().item()',
    ),
}
NET = """\
class Net(nn.Module):
    def __init__(self, hidden=8):
        super().__init__()
        {layers}

    def forward(self, {given}):
        {forward}
"""


def net(layers: str, given: str, forward: str) -> str:
    """A class of a model."""
    lines = {"layers": layers, "forward": forward}
    return NET.format(given=given, **{k: v.replace("\n", "\n        ") for k, v in lines.items()})


TWO_LAYERS = "self.first, self.last = nn.Linear(6, hidden), nn.Linear(hidden, {})"
CLASS_SAMPLE = "return draw.randn(6), draw.randint(4)"
CLASSIFY = Task(
    ("inputs", "targets"),
    CLASS_SAMPLE,
    {
        "two layers": net(TWO_LAYERS.format(4), "x", "return self.last(F.relu(self.first(x)))"),
        "normalised": net(
            "self.body = nn.Sequential(nn.Linear(6, hidden), nn.BatchNorm1d(hidden), nn.ReLU())\nself.head = nn.Linear(hidden, 4)",
            "x",
            "return self.head(self.body(x))",
        ),
        "blocks": net(
            "self.blocks = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))\nself.head = nn.Linear(6, 4)",
            "x",
            "for block in self.blocks:\n    x = x + torch.tanh(block(x))\nreturn self.head(x)",
        ),
        "attention": net(
            "self.embed = nn.Linear(2, hidden)\nself.attention = nn.MultiheadAttention(hidden, 2, batch_first=True)\nself.head = nn.Linear(hidden, 4)",
            "x",
            "tokens = self.embed(x.view(x.size(0), 3, 2))\nmixed, _ = self.attention(tokens, tokens, tokens)\nreturn self.head(mixed.mean(1))",
        ),
    },
    {
        "criterion": "outputs = model(inputs)\nloss = criterion(outputs, targets)",
        "weighted": "outputs = model(inputs)\nloss = F.cross_entropy(outputs, targets, weight=torch.tensor([1.0, 2.0, 0.5, 1.5], device=device))",
        "focal": "outputs = model(inputs)\nlogs = F.cross_entropy(outputs, targets, reduction='none')\nloss = ((1 - torch.exp(-logs)) ** 2 * logs).mean()",
        "smoothed by hand": "outputs = model(inputs)\nlogs = F.log_softmax(outputs, dim=-1)\nnll = -logs.gather(dim=-1, index=targets.unsqueeze(1)).squeeze(1)\nloss = (0.9 * nll - 0.1 * logs.mean(dim=-1)).mean()",
        "hardest": "outputs = model(inputs)\nlosses_ = F.cross_entropy(outputs, targets, reduction='none')\nloss = losses_.topk(max(1, len(losses_) // 2))[0].mean()",
        "mixed up": "index = torch.arange(inputs.size(0) - 1, -1, -1, device=device)\noutputs = model(0.7 * inputs + 0.3 * inputs[index])\nloss = 0.7 * criterion(outputs, targets) + 0.3 * criterion(outputs, targets[index])",
        "consistent": "outputs = model(inputs)\nnoisy = model(inputs * 0.9)\nloss = criterion(outputs, targets) + 0.1 * F.mse_loss(noisy.softmax(1), outputs.softmax(1).detach())",
    },
    CLASSES,
)
CLASSES_WEIGHTED = replace(
    CLASSIFY,
    criterion="nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5, 1.5]).to(device))",
    losses={name: CLASSIFY.losses[name] for name in ("criterion", "consistent")},
)
OWN_CRITERION = replace(CLASSES_WEIGHTED, criterion="FocalLoss()")
FEATURES = replace(
    CLASSIFY,
    models={
        "features and logits": net(
            TWO_LAYERS.format(4),
            "x",
            "features = torch.tanh(self.first(x))\nreturn self.last(features), features",
        ),
        "a dictionary": net(
            TWO_LAYERS.format(4),
            "x",
            'features = torch.tanh(self.first(x))\nreturn {"logits": self.last(features), "features": features}',
        ),
    },
    losses={
        "both": "found = model(inputs)\noutputs, features = found if isinstance(found, tuple) else (found['logits'], found['features'])\nloss = criterion(outputs, targets) + 0.01 * features.pow(2).sum(1).mean()",
    },
)
IN_MODEL = replace(
    CLASSIFY,
    models={
        "loss inside": net(
            TWO_LAYERS.format(4),
            "x, y",
            "outputs = self.last(torch.tanh(self.first(x)))\nreturn F.cross_entropy(outputs, y), outputs",
        )
    },
    losses={"mean of replicas": "loss, outputs = model(inputs, targets)\nloss = loss.mean()"},
)
LINE = Task(
    ("inputs", "targets"),
    "x = draw.randn(6)\nreturn x, np.array([x.sum() + draw.randn()])",
    {
        "two layers": net(TWO_LAYERS.format(1), "x", "return self.last(torch.tanh(self.first(x)))"),
        "residual": net(
            "self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 1)", "x", "return self.b(x + F.gelu(self.a(x)))"
        ),
    },
    {
        "criterion": "outputs = model(inputs)\nloss = criterion(outputs, targets)",
        "l1": "outputs = model(inputs)\nloss = F.l1_loss(outputs, targets)",
        "smooth": "outputs = model(inputs)\nloss = F.smooth_l1_loss(outputs.squeeze(1), targets.squeeze(1))",
        "root": "outputs = model(inputs)\nloss = torch.sqrt(criterion(outputs, targets) + 1e-8)",
        "both": "outputs = model(inputs)\nloss = criterion(outputs, targets) + 0.5 * (outputs - targets).abs().mean()",
    },
    {
        "mae": (
            "absolute = 0.0",
            "absolute += (outputs - targets).abs().sum().item()",
            'shown["mae"] = absolute / len(loader.dataset)',
        ),
        "rmse": (
            "errors = []",
            "errors.append(((outputs - targets) ** 2).detach().cpu())",
            'shown["rmse"] = torch.cat(errors).mean().sqrt().item()',
        ),
        "r2": (
            "preds, truth = [], []",
            "preds.extend(outputs.detach().cpu().numpy().ravel().tolist())\ntruth.extend(targets.cpu().numpy().ravel().tolist())",
            'preds, truth = np.array(preds), np.array(truth)\nshown["r2"] = 1 - ((preds - truth) ** 2).sum() / ((truth - truth.mean()) ** 2).sum()',
        ),
        "largest": (
            "largest = 0.0",
            "largest = max(largest, (outputs - targets).abs().max().item())",
            'shown["largest"] = largest',
        ),
        "correlated": (
            "xy = xx = yy = 0.0",
            "xy += (outputs * targets).sum().item()\nxx += (outputs ** 2).sum().item()\nyy += (targets ** 2).sum().item()",
            'shown["cosine"] = xy / math.sqrt(xx * yy)',
        ),
        "within": (
            "within, n = 0, 0",
            "within += ((outputs - targets).abs() < 1).sum().item()\nn += targets.numel()",
            'shown["within"] = within / n',
        ),
    },
    "nn.MSELoss()",
)
CODES = Task(
    ("inputs",),
    "return (draw.rand(6),)",
    {
        "encoder and decoder": net(
            "self.encoder = nn.Sequential(nn.Linear(6, hidden), nn.ReLU(), nn.Linear(hidden, 2))\nself.decoder = nn.Sequential(nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, 6), nn.Sigmoid())",
            "x",
            "return self.decoder(self.encoder(x))",
        )
    },
    {
        "criterion": "outputs = model(inputs)\nloss = criterion(outputs, inputs)",
        "bce by size": "outputs = model(inputs)\nloss = F.binary_cross_entropy(outputs, inputs, reduction='sum') / inputs.size(0)",
        "sum": "outputs = model(inputs)\nloss = F.mse_loss(outputs, inputs, reduction='sum')",
        "by sample": "outputs = model(inputs)\nloss = ((outputs - inputs) ** 2).sum(dim=1).mean()",
    },
    {
        "by feature": (
            "per = torch.zeros(6)",
            "per += ((outputs - inputs) ** 2).sum(0).detach().cpu()",
            'shown["worst feature"] = (per / len(loader.dataset)).max().item()',
        ),
        "psnr": (
            "psnr = 0.0",
            "psnr += (10 * torch.log10(1 / ((outputs - inputs) ** 2).mean(1))).sum().item()",
            'shown["psnr"] = psnr / len(loader.dataset)',
        ),
        "first": (
            "first = None",
            "if first is None:\n    first = outputs[:2].detach().cpu().numpy()",
            'shown["first"] = float(first.mean())',
        ),
    },
    "nn.MSELoss()",
)
VARIATIONAL = replace(
    CODES,
    names=("inputs", "noise"),
    sample="return draw.rand(6), draw.randn(2)",
    models={
        "vae": net(
            "self.body, self.mu, self.logvar = nn.Linear(6, hidden), nn.Linear(hidden, 2), nn.Linear(hidden, 2)\nself.out = nn.Linear(2, 6)",
            "x, noise",
            "h = torch.tanh(self.body(x))\nmu, logvar = self.mu(h), self.logvar(h)\nz = mu + torch.exp(0.5 * logvar) * noise\nreturn torch.sigmoid(self.out(z)), mu, logvar",
        )
    },
    losses={
        "sums by size": "outputs, mu, logvar = model(inputs, noise)\nbce = F.binary_cross_entropy(outputs, inputs, reduction='sum')\nkld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())\nloss = (bce + kld) / len(inputs)",
        "sums": "outputs, mu, logvar = model(inputs, noise)\nloss = loss_function(outputs, inputs, mu, logvar)",
        "means": "outputs, mu, logvar = model(inputs, noise)\nkld = torch.mean(-0.5 * torch.sum(1 + logvar - mu ** 2 - logvar.exp(), dim=1), dim=0)\nloss = F.mse_loss(outputs, inputs) + 0.1 * kld",
    },
    extra="""\
def loss_function(recon, x, mu, logvar):
    bce = F.binary_cross_entropy(recon, x, reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + kld
""",
    numbers={
        "kld": (
            "klds = 0.0",
            "klds += (-0.5 * (1 + logvar - mu.pow(2) - logvar.exp())).sum().item()",
            'shown["kld"] = klds / len(loader.dataset)',
        ),
        "spread": (
            "means = []",
            "means.append(mu.detach())",
            'shown["spread"] = torch.cat(means).std().item()',
        ),
    },
)
PADDED = """\
def collate(samples):
    samples = sorted(samples, key=lambda it: len(it[0]), reverse=True)
    lengths = torch.tensor([len(it[0]) for it in samples])
    tokens = nn.utils.rnn.pad_sequence([torch.as_tensor(it[0]) for it in samples], batch_first=True)
    return tokens, torch.tensor([it[1] for it in samples]), lengths
"""
SEQUENCES = replace(
    CLASSIFY,
    names=("inputs", "targets", "lengths"),
    sample="return draw.randint(1, 9, size=draw.randint(2, 6)), draw.randint(4)",
    collate=PADDED,
    kept=("lengths",),
    models={
        "masked mean": net(
            "self.embed, self.head = nn.Embedding(9, hidden, padding_idx=0), nn.Linear(hidden, 4)",
            "tokens, lengths",
            "summed = self.embed(tokens).sum(1)\nreturn self.head(summed / lengths.to(summed.device).unsqueeze(1))",
        ),
        "packed": net(
            "self.embed, self.rnn = nn.Embedding(9, hidden, padding_idx=0), nn.GRU(hidden, hidden, batch_first=True)\nself.head = nn.Linear(hidden, 4)",
            "tokens, lengths",
            "packed = nn.utils.rnn.pack_padded_sequence(self.embed(tokens), lengths.cpu(), batch_first=True, enforce_sorted=False)\n_, last = self.rnn(packed)\nreturn self.head(last[-1])",
        ),
    },
    losses={"criterion": "outputs = model(inputs, lengths)\nloss = criterion(outputs, targets)"},
)
TAGGED = Task(
    ("inputs", "targets"),
    "count = draw.randint(2, 6)\nreturn draw.randint(1, 9, size=count), draw.randint(3, size=count)",
    {
        "tagger": net(
            "self.embed, self.rnn = nn.Embedding(9, hidden), nn.GRU(hidden, hidden, batch_first=True)\nself.head = nn.Linear(hidden, 3)",
            "tokens",
            "states, _ = self.rnn(self.embed(tokens))\nreturn self.head(states)",
        )
    },
    {
        "ignored": "outputs = model(inputs)\nloss = criterion(outputs.view(-1, 3), targets.view(-1))",
        "masked": "outputs = model(inputs)\nmask = (targets != -1).double()\neach = F.cross_entropy(outputs.transpose(1, 2), targets.clamp(min=0), reduction='none')\nloss = (each * mask).sum() / mask.sum()",
        "masked by rows": "outputs = model(inputs)\nmask = (targets != -1).double()\neach = F.cross_entropy(outputs.transpose(1, 2), targets.clamp(min=0), reduction='none')\nloss = ((each * mask).sum(1) / mask.sum(1)).mean()",
    },
    {
        "tokens": (
            "right, tokens = 0, 0",
            "known = targets != -1\nright += ((outputs.argmax(-1) == targets) & known).sum().item()\ntokens += known.sum().item()",
            'shown["accuracy"] = right / tokens',
        ),
        "perplexity": (
            "nll, words = 0.0, 0",
            "count = (targets != -1).sum().item()\nnll += loss.item() * count\nwords += count",
            'shown["ppl"] = math.exp(nll / words)',
        ),
        "selected": (
            "picked = []",
            "known = targets != -1\npicked += (outputs.argmax(-1)[known] == targets[known]).tolist()",
            'shown["accuracy"] = sum(picked) / len(picked)',
        ),
        "sentences": (
            "whole = 0",
            "whole += ((outputs.argmax(-1) == targets) | (targets == -1)).all(dim=1).sum().item()",
            'shown["sentences"] = whole / len(loader.dataset)',
        ),
    },
    "nn.CrossEntropyLoss(ignore_index=-1)",
    """\
def collate(samples):
    longest = max(len(it[0]) for it in samples)
    inputs = torch.zeros(len(samples), longest, dtype=torch.long)
    targets = torch.full((len(samples), longest), -1)
    for row, (tokens, tags) in enumerate(samples):
        inputs[row, : len(tokens)] = torch.as_tensor(tokens)
        targets[row, : len(tags)] = torch.as_tensor(tags)
    return inputs, targets
""",
)
EMBEDDER = {
    "embedder": net(TWO_LAYERS.format(3), "x", "return F.normalize(self.last(F.relu(self.first(x))), dim=1)")
}
TRIPLETS = Task(
    ("anchors", "positives", "negatives"),
    "return draw.randn(6), draw.randn(6), draw.randn(6)",
    EMBEDDER,
    {
        "criterion": "outputs, close, far = model(anchors), model(positives), model(negatives)\nloss = criterion(outputs, close, far)",
        "by hand": "outputs, close, far = model(anchors), model(positives), model(negatives)\nloss = F.relu((outputs - close).pow(2).sum(1) - (outputs - far).pow(2).sum(1) + 0.5).mean()",
        "in a row": "outputs, close, far = model(torch.cat([anchors, positives, negatives])).chunk(3)\nloss = criterion(outputs, close, far)",
    },
    {
        "ordered": (
            "ordered = 0",
            "ordered += ((outputs - close).norm(dim=1) < (outputs - far).norm(dim=1)).sum().item()",
            'shown["ordered"] = ordered / len(loader.dataset)',
        ),
        "distances": (
            "near, apart = [], []",
            "near += (outputs - close).norm(dim=1).tolist()\napart += (outputs - far).norm(dim=1).tolist()",
            'shown["margin"] = float(np.mean(apart) - np.mean(near))',
        ),
    },
    "nn.TripletMarginLoss(margin=0.5)",
)
PAIRS = Task(
    ("ones", "others", "same"),
    "return draw.randn(6), draw.randn(6), float(draw.randint(2))",
    {
        "siamese": net(
            TWO_LAYERS.format(3),
            "a, b",
            "return self.last(F.relu(self.first(a))), self.last(F.relu(self.first(b)))",
        )
    },
    {
        "contrastive": "outputs, second = model(ones, others)\ndistances = F.pairwise_distance(outputs, second)\nloss = (same * distances ** 2 + (1 - same) * F.relu(2 - distances) ** 2).mean()",
        "cosine": "outputs, second = model(ones, others)\ndistances = 1 - F.cosine_similarity(outputs, second)\nloss = F.cosine_embedding_loss(outputs, second, 2 * same - 1)",
    },
    {
        "threshold": (
            "right = 0",
            "right += ((distances < 1) == (same > 0.5)).sum().item()",
            'shown["accuracy"] = right / len(loader.dataset)',
        ),
        "auc": (
            "found, truth = [], []",
            "found.append(distances.detach().cpu().numpy())\ntruth.append(same.cpu().numpy())",
            'found, truth = np.concatenate(found), np.concatenate(truth)\norder = np.argsort(found)\nshown["auc"] = float((truth[order].cumsum() * (1 - truth[order])).sum() / max(truth.sum() * (1 - truth).sum(), 1))',
        ),
    },
)
CONTRAST = Task(
    ("views", "others"),
    "return draw.randn(6), draw.randn(6)",
    EMBEDDER,
    {
        "info nce": "outputs, second = model(views), model(others)\nlogits = outputs @ second.t() / 0.5\nloss = criterion(logits, torch.arange(len(views), device=device))",
        "one forward": "both = model(torch.cat([views, others], dim=0))\noutputs, second = torch.split(both, len(views))\nlogits = outputs @ second.t() / 0.5\nloss = criterion(logits, torch.arange(len(views), device=device))",
    },
    {
        "matched": (
            "matched = 0",
            "matched += (logits.argmax(1) == torch.arange(len(views), device=device)).sum().item()",
            'shown["matched"] = matched / len(loader.dataset)',
        ),
        "diagonal": (
            "diagonal = 0.0",
            "diagonal += logits.diag().mean().item()",
            'shown["diagonal"] = diagonal / len(loader)',
        ),
    },
)
IMAGES = Task(
    ("images", "masks"),
    "return draw.randn(2, 4, 4), draw.randint(3, size=(4, 4))",
    {
        "convolutions": net(
            "self.a, self.b = nn.Conv2d(2, hidden, 3, padding=1), nn.Conv2d(hidden, 3, 1)",
            "x",
            "return self.b(F.relu(self.a(x)))",
        ),
        "normalised": net(
            "self.a, self.norm, self.b = nn.Conv2d(2, hidden, 3, padding=1), nn.BatchNorm2d(hidden), nn.Conv2d(hidden, 3, 1)",
            "x",
            "return self.b(F.relu(self.norm(self.a(x))))",
        ),
    },
    {
        "criterion": "outputs = model(images)\nloss = criterion(outputs, masks)",
        "dice": "outputs = model(images)\nprobs, hot = outputs.softmax(1), F.one_hot(masks, 3).permute(0, 3, 1, 2)\ndice = (2 * (probs * hot).sum((0, 2, 3)) + 1) / ((probs + hot).sum((0, 2, 3)) + 1)\nloss = criterion(outputs, masks) + 1 - dice.mean()",
        "dice of samples": "outputs = model(images)\nprobs, hot = outputs.softmax(1), F.one_hot(masks, 3).permute(0, 3, 1, 2)\ndice = (2 * (probs * hot).sum((1, 2, 3)) + 1) / ((probs + hot).sum((1, 2, 3)) + 1)\nloss = 1 - dice.mean()",
    },
    {
        "pixels": (
            "right, pixels = 0, 0",
            "right += (outputs.argmax(1) == masks).sum().item()\npixels += masks.numel()",
            'shown["pixels"] = right / pixels',
        ),
        "pixels by shape": (
            "right = 0.0",
            "right += (outputs.argmax(1) == masks).double().mean(dim=(1, 2)).sum().item()",
            'shown["pixels"] = right / len(loader.dataset)',
        ),
        "iou": (
            "inter, union = np.zeros(3), np.zeros(3)",
            "found = outputs.argmax(1)\nfor c in range(3):\n    inter[c] += ((found == c) & (masks == c)).sum().item()\n    union[c] += ((found == c) | (masks == c)).sum().item()",
            'shown["miou"] = float((inter / np.maximum(union, 1)).mean())',
        ),
        "histogram": (
            "hist = np.zeros((3, 3))",
            "for truth, guess in zip(masks.cpu().numpy(), outputs.argmax(1).cpu().numpy()):\n    hist += np.bincount(3 * truth.flatten() + guess.flatten(), minlength=9).reshape(3, 3)",
            'shown["overall"] = np.diag(hist).sum() / hist.sum()',
        ),
    },
)
LABELS = Task(
    ("inputs", "targets"),
    "return draw.randn(6), (draw.rand(3) > 0.5).astype('float64')",
    {"two layers": net(TWO_LAYERS.format(3), "x", "return self.last(F.relu(self.first(x)))")},
    {
        "criterion": "outputs = model(inputs)\nloss = criterion(outputs, targets)",
        "by sample": "outputs = model(inputs)\nloss = F.binary_cross_entropy_with_logits(outputs, targets, reduction='none').sum(1).mean()",
        "weighted": "outputs = model(inputs)\nloss = F.binary_cross_entropy_with_logits(outputs, targets, pos_weight=torch.tensor([1.0, 2.0, 3.0], device=device))",
    },
    {
        "exact": (
            "exact = 0",
            "exact += ((outputs > 0).double() == targets).all(1).sum().item()",
            'shown["exact"] = exact / len(loader.dataset)',
        ),
        "micro": (
            "tp, total = 0.0, 0.0",
            "guess = (torch.sigmoid(outputs) > 0.5).double()\ntp += (guess * targets).sum().item()\ntotal += guess.sum().item() + targets.sum().item()",
            'shown["f1"] = 2 * tp / max(total, 1)',
        ),
        "by label": (
            "tp = torch.zeros(3)\nn = 0",
            "tp += ((outputs > 0) == (targets > 0.5)).sum(0).cpu()\nn += len(targets)",
            'for k, share in enumerate((tp / n).tolist()):\n    shown[f"label {k}"] = share',
        ),
        "precision": (
            "all_scores, all_truth = [], []",
            "all_scores.append(torch.sigmoid(outputs).detach().cpu())\nall_truth.append(targets.cpu())",
            'scores, truth = torch.cat(all_scores), torch.cat(all_truth)\norder = scores[:, 0].argsort(descending=True)\nhits = truth[order, 0]\nshown["ap"] = ((hits.cumsum(0) / torch.arange(1, len(hits) + 1)) * hits).sum().item() / max(hits.sum().item(), 1)',
        ),
    },
    "nn.BCEWithLogitsLoss()",
)
HEADS = Task(
    ("inputs", "targets", "values"),
    "x = draw.randn(6)\nreturn x, draw.randint(4), float(x.sum())",
    {
        "two heads": net(
            "self.body, self.kind, self.value = nn.Linear(6, hidden), nn.Linear(hidden, 4), nn.Linear(hidden, 1)",
            "x",
            "h = F.relu(self.body(x))\nreturn self.kind(h), self.value(h).squeeze(-1)",
        )
    },
    {
        "sum": "outputs, found = model(inputs)\nkind_loss = criterion(outputs, targets)\nvalue_loss = F.mse_loss(found, values)\nloss = kind_loss + 0.5 * value_loss",
        "some rows": "outputs, found = model(inputs)\nkind_loss = criterion(outputs, targets)\nmask = targets > 0\nvalue_loss = F.mse_loss(found[mask], values[mask])\nloss = kind_loss + 0.5 * value_loss",
    },
    {
        "both": (
            "kinds, amounts = Meter(), Meter()",
            "kinds.update(kind_loss.item(), SIZE)\namounts.update(value_loss.item(), SIZE)",
            'shown["kind"] = kinds.avg\nshown["value"] = amounts.avg',
        ),
        "listed": (
            "log = defaultdict(list)",
            'log["kind"].append(kind_loss.item())\nlog["value"].append(value_loss.item())',
            "for name, found_ in log.items():\n    shown[name] = float(np.mean(found_))",
        ),
        "accuracy": (
            "right = 0",
            "right += (outputs.argmax(1) == targets).sum().item()",
            'shown["accuracy"] = right / len(loader.dataset)',
        ),
    },
)
STUDENT = replace(
    CLASSIFY,
    losses={
        "distilled": "with torch.no_grad():\n    wanted = teacher(inputs)\noutputs = model(inputs)\nsoft = F.kl_div(F.log_softmax(outputs / 2, dim=1), F.softmax(wanted / 2, dim=1), reduction='batchmean') * 4\nloss = 0.5 * soft + 0.5 * criterion(outputs, targets)",
        "imitated": "wanted = teacher(inputs).detach()\noutputs = model(inputs)\nloss = F.mse_loss(outputs, wanted)",
    },
    trained={"teacher": "Net()"},
)
WORDS = Task(
    ("inputs", "targets"),
    "tokens = draw.randint(9, size=5)\nreturn tokens[:-1], tokens[1:]",
    {
        "recurrent": net(
            "self.embed, self.rnn, self.out = nn.Embedding(9, hidden), nn.LSTM(hidden, hidden, batch_first=True), nn.Linear(hidden, 9)",
            "tokens",
            "states, _ = self.rnn(self.embed(tokens))\nreturn self.out(states)",
        )
    },
    {
        "flattened": "outputs = model(inputs)\nloss = criterion(outputs.reshape(-1, 9), targets.reshape(-1))",
        "by place": "outputs = model(inputs)\nloss = sum(criterion(outputs[:, k], targets[:, k]) for k in range(targets.size(1))) / targets.size(1)",
        "summed": "outputs = model(inputs)\nloss = F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction='sum') / targets.numel()",
    },
    {
        "perplexity": (
            "nll, tokens = 0.0, 0",
            "nll += loss.item() * targets.numel()\ntokens += targets.numel()",
            'shown["ppl"] = math.exp(nll / tokens)',
        ),
        "by place": (
            "right = torch.zeros(4)",
            "right += (outputs.argmax(-1) == targets).sum(0).cpu()",
            'shown["first"] = (right / len(loader.dataset))[0].item()',
        ),
    },
)
GAN_STEP = """\
SIZED = SIZE
real, fake = torch.ones(SIZED, 1, device=device), torch.zeros(SIZED, 1, device=device)
made = model(noise)
d_loss = criterion(critic(inputs), real) + criterion(critic(made.detach()), fake)
critic_optimizer.zero_grad()
d_loss.backward()
critic_optimizer.step()
outputs = critic(made)
loss = criterion(outputs, real)
optimizer.zero_grad()
loss.backward()
optimizer.step()
"""
GAN = Task(
    ("inputs", "noise"),
    "return draw.randn(6) + 1, draw.randn(2)",
    {
        "generator": net(
            "self.first, self.last = nn.Linear(2, hidden), nn.Linear(hidden, 6)",
            "z",
            "return self.last(F.relu(self.first(z)))",
        )
        + "\n\n"
        + net(
            "self.first, self.last = nn.Linear(6, hidden), nn.Linear(hidden, 1)",
            "x",
            "return self.last(F.leaky_relu(self.first(x), 0.2))",
        ).replace("Net", "Critic")
    },
    {
        "judged": "made = model(noise)\noutputs = critic(made)\nd_loss = criterion(critic(inputs), torch.ones(SIZE, 1, device=device))\nloss = criterion(outputs, torch.ones(SIZE, 1, device=device))"
    },
    {
        "both": (
            "g_losses, d_losses = [], []",
            "g_losses.append(loss.item())\nd_losses.append(d_loss.item())",
            'shown["g"] = sum(g_losses) / len(g_losses)\nshown["d"] = sum(d_losses) / len(d_losses)',
        ),
        "scores": (
            "score = 0.0",
            "score += torch.sigmoid(outputs).sum().item()",
            'shown["score"] = score / len(loader.dataset)',
        ),
        "mean score": (
            "scores = Meter()",
            "scores.update(torch.sigmoid(outputs).mean().item(), SIZE)",
            'shown["score"] = scores.avg',
        ),
    },
    "nn.BCEWithLogitsLoss()",
    steps=GAN_STEP,
    trained={
        "critic": "nn.DataParallel(Critic())",
        "critic_optimizer": "torch.optim.Adam(critic.parameters(), lr=1e-2)",
    },
)
TASKS = {
    "classify": CLASSIFY,
    "classify again": CLASSIFY,
    "classes weighted": CLASSES_WEIGHTED,
    "own criterion": OWN_CRITERION,
    "features": FEATURES,
    "loss in the model": IN_MODEL,
    "regress": LINE,
    "autoencoder": CODES,
    "vae": VARIATIONAL,
    "sequences": SEQUENCES,
    "tags": TAGGED,
    "triplets": TRIPLETS,
    "pairs": PAIRS,
    "contrast": CONTRAST,
    "segment": IMAGES,
    "labels": LABELS,
    "two heads": HEADS,
    "student": STUDENT,
    "words": WORDS,
    "gan": GAN,
}
