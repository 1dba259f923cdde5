"""More of what programs train: steps of their own, batches of other forms, parts that are trained beside the model."""

from __future__ import annotations

from dataclasses import replace

from generated.tasks import CLASSES, CLASSIFY, EMBEDDER, GAN, TWO_LAYERS, Task, net

DEFAULT = "collate = torch.utils.data.default_collate\n"
"""For batches that are no dictionaries, whatever the program has else."""
PLAIN = {"criterion": "outputs = model(inputs)\nloss = criterion(outputs, targets)"}
STEP = "optimizer.zero_grad()\nloss.backward()\noptimizer.step()\n"
WITH_FEATURES = {
    "features": net(
        TWO_LAYERS.format(4),
        "x",
        "features = torch.tanh(self.first(x))\nreturn self.last(features), features",
    )
}
BOTH = "outputs, features = model(inputs)\n"


def stepping(step: str, **more: object) -> Task:
    """A classification with another step in training."""
    return replace(CLASSIFY, losses=PLAIN, steps=step, **more)  # type: ignore[arg-type]


ADVERSARIAL = stepping("""\
probe = inputs.clone().requires_grad_(True)
clean = criterion(model(probe), targets)
gradient = torch.autograd.grad(clean, probe)[0]
outputs = model((inputs + 0.1 * gradient.sign()).detach())
loss = criterion(outputs, targets) + 0.5 * clean.detach()
""" + STEP)
BY_BACKWARD = stepping("""\
delta = torch.zeros_like(inputs, requires_grad=True)
outputs = model(inputs + delta)
loss = criterion(outputs, targets)
loss.backward()
delta = (delta + 0.1 * delta.grad.sign()).clamp(-0.2, 0.2).detach()
optimizer.zero_grad()
outputs = model(inputs + delta)
loss = criterion(outputs, targets)
loss.backward()
optimizer.step()
""")
MIXED = stepping("""\
lam = np.random.beta(0.4, 0.4)
index = torch.randperm(SIZE)
outputs = model(lam * inputs + (1 - lam) * inputs[index])
loss = lam * criterion(outputs, targets) + (1 - lam) * criterion(outputs, targets[index])
""" + STEP)
ERASED = stepping("""\
if np.random.rand() < 0.5:
    column = np.random.randint(6)
    inputs[:, column] = 0
outputs = model(inputs)
loss = criterion(outputs, targets)
""" + STEP)
NOISY = stepping("""\
noisy = inputs + 0.1 * torch.randn_like(inputs)
outputs = model(noisy)
loss = criterion(outputs, targets)
""" + STEP)
SHARP = stepping("""\
outputs = model(inputs)
loss = criterion(outputs, targets)
loss.backward()
moved = []
slope = torch.sqrt(sum(p.grad.pow(2).sum() for p in model.parameters() if p.grad is not None))
with torch.no_grad():
    for p in model.parameters():
        if p.grad is not None:
            shift = 0.05 * p.grad / (slope + 1e-12)
            p.add_(shift)
            moved.append((p, shift))
optimizer.zero_grad()
criterion(model(inputs), targets).backward()
with torch.no_grad():
    for p, shift in moved:
        p.sub_(shift)
optimizer.step()
optimizer.zero_grad()
""")
TWICE = stepping("""\
outputs = model(inputs)
loss = criterion(outputs, targets)
extra = 0.01 * outputs.pow(2).sum(1).mean()
optimizer.zero_grad()
loss.backward(retain_graph=True)
extra.backward()
optimizer.step()
""")
REGULARISED = stepping("""\
outputs = model(inputs)
penalty = sum(p.abs().sum() for p in model.parameters())
loss = criterion(outputs, targets) + 1e-3 * penalty
""" + STEP)
HALVES = stepping("""\
optimizer.zero_grad()
outputs = model(inputs)
for part, wanted in zip(inputs.chunk(2), targets.chunk(2)):
    loss = criterion(model(part), wanted) * len(part) / SIZE
    loss.backward()
optimizer.step()
""")
DROPPED_TWICE = replace(
    CLASSIFY,
    losses={
        "two views": "outputs, second = model(inputs), model(inputs * 1.1)\nkl = F.kl_div(F.log_softmax(outputs, 1), F.softmax(second, 1), reduction='batchmean') + F.kl_div(F.log_softmax(second, 1), F.softmax(outputs, 1), reduction='batchmean')\nloss = criterion(outputs, targets) + criterion(second, targets) + 0.5 * kl"
    },
)
MEAN_TEACHER = stepping(
    """\
outputs = model(inputs)
with torch.no_grad():
    wanted = teacher(inputs * 0.95).softmax(1)
consistency = F.mse_loss(outputs.softmax(1), wanted)
loss = criterion(outputs, targets) + min(1.0, 0.1 * (step + 1)) * consistency
"""
    + STEP
    + """\
for mine, other in zip(teacher.parameters(), model.parameters()):
    mine.data.mul_(0.9).add_(other.data, alpha=0.1)
""",
    trained={"teacher": "copy.deepcopy(model)"},
)
CENTERS = stepping(
    BOTH
    + """\
loss = criterion(outputs, targets) + 0.1 * (features - centers[targets]).pow(2).sum(1).mean()
"""
    + STEP
    + """\
with torch.no_grad():
    for c in targets.unique():
        centers[c] = 0.9 * centers[c] + 0.1 * features[targets == c].mean(0)
""",
    models=WITH_FEATURES,
    trained={"centers": "torch.zeros(4, 8, device=device)"},
)
CENTERS = replace(CENTERS, losses={"both": BOTH + "loss = criterion(outputs, targets)"})
CENTER_LOSS = replace(
    CENTERS,
    steps=BOTH + """\
loss = criterion(outputs, targets) + 0.1 * center_loss(features, targets)
optimizer.zero_grad()
center_optimizer.zero_grad()
loss.backward()
optimizer.step()
center_optimizer.step()
""",
    extra="""\
class CenterLoss(nn.Module):
    def __init__(self, classes, size):
        super().__init__()
        self.centers = nn.Parameter(torch.ones(classes, size))

    def forward(self, features, labels):
        return (features - self.centers[labels]).pow(2).sum(1).mean()
""",
    trained={
        "center_loss": "CenterLoss(4, 8).to(device)",
        "center_optimizer": "torch.optim.SGD(center_loss.parameters(), lr=0.1)",
    },
)
UNCERTAIN = replace(
    CENTERS,
    steps=BOTH + """\
terms = torch.stack([criterion(outputs, targets), features.pow(2).mean()])
loss = (torch.exp(-weighting) * terms + weighting).sum()
optimizer.zero_grad()
weighting_optimizer.zero_grad()
loss.backward()
optimizer.step()
weighting_optimizer.step()
""",
    trained={
        "weighting": "torch.zeros(2, device=device, requires_grad=True)",
        "weighting_optimizer": "torch.optim.Adam([weighting], lr=0.01)",
    },
)
QUEUE = Task(
    ("views", "others"),
    "return draw.randn(6), draw.randn(6)",
    EMBEDDER,
    {
        "pairs": "outputs, second = model(views), model(others)\nlogits = torch.cat([(outputs * second).sum(1, keepdim=True), outputs @ queue.t()], dim=1)\nloss = criterion(logits / 0.5, torch.zeros(len(views), dtype=torch.long, device=device))"
    },
    {
        "first": (
            "first = 0",
            "first += (logits.argmax(1) == 0).sum().item()",
            'shown["first"] = first / len(loader.dataset)',
        )
    },
    steps="""\
outputs = model(views)
with torch.no_grad():
    second = model(others)
logits = torch.cat([(outputs * second).sum(1, keepdim=True), outputs @ queue.t()], dim=1)
loss = criterion(logits / 0.5, torch.zeros(len(views), dtype=torch.long, device=device))
""" + STEP + "queue.copy_(torch.cat([second, queue])[: len(queue)])\n",
    trained={"queue": "F.normalize(torch.randn(16, 3, device=device), dim=1)"},
)
MINED = Task(
    ("inputs", "targets"),
    "return draw.randn(6), draw.randint(3)",
    EMBEDDER,
    {
        "batch hard": "outputs = model(inputs)\ndistances = torch.cdist(outputs, outputs)\nsame = targets[:, None] == targets[None]\nhardest = (distances * same).max(1)[0]\neasiest = (distances + 10.0 * same).min(1)[0]\nloss = F.relu(hardest - easiest + 0.3).mean()",
        "supervised contrast": "outputs = model(inputs)\nsimilar = outputs @ outputs.t() / 0.5\nsimilar = similar - similar.max(1, keepdim=True)[0].detach()\nmask = (targets[:, None] == targets[None]).double() - torch.eye(len(targets), device=device)\nlogp = similar - torch.log(torch.exp(similar).sum(1, keepdim=True))\nloss = -((mask * logp).sum(1) / mask.sum(1).clamp(min=1)).mean()",
    },
    {
        "means of classes": (
            "sums, counts = torch.zeros(3, 3), torch.zeros(3)",
            "sums.index_add_(0, targets.cpu(), outputs.detach().cpu())\ncounts += torch.bincount(targets.cpu(), minlength=3)",
            'shown["spread"] = (sums / counts.clamp(min=1)[:, None]).std().item()',
        ),
    },
)
INDEXED = replace(
    CLASSIFY,
    names=("inputs", "targets", "indices"),
    kept=("indices",),
    indexed=True,
    losses={
        "kept apart": "outputs = model(inputs)\neach = F.cross_entropy(outputs, targets, reduction='none')\nloss = each.mean()"
    },
    numbers={
        "remembered": (
            "memory = torch.zeros(200)",
            "memory[indices] = each.detach().cpu()",
            'shown["hardest"] = memory.max().item()\nshown["which"] = memory.argmax().item()',
        ),
        "by index": (
            "guesses = {}",
            "for i, guess in zip(indices.tolist(), outputs.argmax(1).tolist()):\n    guesses[i] = guess",
            'shown["guesses"] = sum(i * guess for i, guess in guesses.items())\nshown["guessed"] = len(guesses)',
        ),
        "table": (
            "table = np.zeros((200, 2))",
            "table[indices.numpy(), 0] = each.detach().cpu().numpy()\ntable[indices.numpy(), 1] += 1",
            'shown["table"] = table[:, 0].sum()\nshown["drawn"] = int(table[:, 1].max())',
        ),
        "in order": (
            "order, found = [], []",
            "order.extend(indices.tolist())\nfound.append(outputs.detach().cpu())",
            'ranked = torch.cat(found)[np.argsort(order, kind="stable")]\nshown["first"] = ranked[0, 0].item()',
        ),
    },
)
FILES = replace(
    CLASSIFY,
    names=("inputs", "targets", "paths"),
    sample="return draw.randn(6), draw.randint(4), f'img_{draw.randint(999)}'",
    kept=("paths",),
    numbers={
        "rows": (
            "rows_ = []",
            "for path, guess, score in zip(paths, outputs.argmax(1).tolist(), outputs.max(1)[0].tolist()):\n    rows_.append((path, guess, score))",
            'print("first", rows_[0][0], "last", rows_[-1][0])\nshown["rows"] = len(rows_)\nshown["score"] = sum(it[2] for it in rows_)',
        ),
        "wrong ones": (
            "wrong = []",
            "for path, truth, guess in zip(paths, targets, outputs.argmax(1)):\n    if truth != guess:\n        wrong.append(path)",
            'shown["wrong"] = len(wrong)\nprint(sorted(wrong)[:3])',
        ),
        "written": (
            'lines_ = open("guesses.txt", "a")',
            'for path, guess in zip(paths, outputs.argmax(1).tolist()):\n    lines_.write(f"{path} {guess}\\n")',
            'lines_.close()\nshown["loss"] = loss.item()',
        ),
        "by path": (
            "scores = {}",
            "scores.update(zip(paths, outputs[:, 1].tolist()))",
            'shown["most"] = max(scores.values())\nshown["paths"] = len(scores)',
        ),
    },
)
NESTED_COLLATE = """\
def collate(samples):
    features = {
        "x": torch.stack([torch.as_tensor(it[0]) for it in samples]),
        "more": torch.stack([torch.as_tensor(it[1]) for it in samples]),
    }
    return torch.tensor([it[2] for it in samples]), features
"""
NESTED = replace(
    CLASSIFY,
    names=("targets", "features"),
    kept=("features",),
    sample="return draw.randn(6), draw.randn(2), draw.randint(4)",
    collate=NESTED_COLLATE,
    models={
        "two inputs": net(
            "self.first, self.last = nn.Linear(8, hidden), nn.Linear(hidden, 4)",
            "x, more",
            "return self.last(F.relu(self.first(torch.cat([x, more], dim=1))))",
        )
    },
    losses={
        "unpacked": "outputs = model(features['x'].to(device), features['more'].to(device))\nloss = criterion(outputs, targets)",
        "by name": "features = {key: value.to(device) for key, value in features.items()}\noutputs = model(**features)\nloss = criterion(outputs, targets)",
    },
)
OF_A_DICT = replace(
    NESTED,
    models={
        "of a dictionary": net(
            "self.first, self.last = nn.Linear(8, hidden), nn.Linear(hidden, 4)",
            "given",
            'x = torch.cat([given["x"], given["more"]], dim=1)\nreturn {"logits": self.last(F.relu(self.first(x)))}',
        )
    },
    losses={
        "moved": "moved = {key: value.to(device) for key, value in features.items()}\noutputs = model(moved)['logits']\nloss = criterion(outputs, targets)",
        "as they are": "outputs = model(features)['logits']\nloss = F.cross_entropy(outputs, targets)",
    },
)
BOXES = Task(
    ("inputs", "boxes"),
    "return draw.randn(6), draw.randn(draw.randint(1, 4), 2)",
    {"two layers": net(TWO_LAYERS.format(2), "x", "return self.last(F.relu(self.first(x)))")},
    {
        "one by one": "outputs = model(inputs)\nloss = sum(F.mse_loss(o.expand_as(b), b.to(device)) for o, b in zip(outputs, boxes)) / len(boxes)",
        "listed": "outputs = model(inputs)\nlosses_ = []\nfor k in range(len(boxes)):\n    wanted = boxes[k].to(device)\n    losses_.append(((outputs[k] - wanted) ** 2).mean())\nloss = torch.stack(losses_).mean()",
        "of all": "outputs = model(inputs)\ncounts = torch.tensor([len(b) for b in boxes], device=device)\nloss = F.mse_loss(outputs.repeat_interleave(counts, dim=0), torch.cat(boxes).to(device))",
    },
    {
        "nearest": (
            "near = []",
            "for o, b in zip(outputs.detach().cpu(), boxes):\n    near.append((b - o).norm(dim=1).min().item())",
            'shown["near"] = float(np.mean(near))',
        ),
        "counted": (
            "boxes_seen = 0",
            "boxes_seen += sum(len(b) for b in boxes)",
            'shown["boxes"] = boxes_seen',
        ),
    },
    collate="""\
def collate(samples):
    inputs, boxes = zip(*samples)
    return torch.stack([torch.as_tensor(it) for it in inputs]), [torch.as_tensor(it) for it in boxes]
""",
    kept=("boxes",),
)
DECODED = replace(
    CLASSIFY,
    models={
        "encoder": net("self.first = nn.Linear(6, hidden)", "x", "return torch.tanh(self.first(x))")
        + "\n\n"
        + net("self.last = nn.Linear(hidden, 4)", "h", "return self.last(h)").replace("Net", "Decoder")
    },
    losses={"both": "outputs = decoder(model(inputs))\nloss = criterion(outputs, targets)"},
    steps="""\
outputs = decoder(model(inputs))
loss = criterion(outputs, targets)
optimizer.zero_grad()
decoder_optimizer.zero_grad()
loss.backward()
nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
optimizer.step()
decoder_optimizer.step()
""",
    trained={
        "decoder": "nn.DataParallel(Decoder()).to(device)",
        "decoder_optimizer": "torch.optim.SGD(decoder.parameters(), lr=0.05)",
    },
)
BARE_HEAD = replace(DECODED, trained={**DECODED.trained, "decoder": "Decoder().to(device)"})
BALANCED = replace(
    CLASSIFY,
    criterion="nn.CrossEntropyLoss(weight=class_weights(loader).to(device))",
    collate=DEFAULT,
    losses=PLAIN,
    extra="""\
def class_weights(loader):
    counts = torch.zeros(4)
    for index in range(len(loader.dataset)):
        counts[int(loader.dataset[index][1])] += 1
    return counts.sum() / (4 * counts.clamp(min=1))
""",
)
UNLABELED = stepping(
    """\
outputs = model(inputs)
plain = next(more)[0].to(device)
guess = model(plain).softmax(1)
entropy = -(guess * torch.log(guess + 1e-8)).sum(1).mean()
loss = criterion(outputs, targets) + 0.1 * entropy
""" + STEP,
    collate=DEFAULT,
    trained={"more": "endless(DataLoader(Samples(40, 5), batch_size=6, shuffle=True))"},
)
PSEUDO = stepping(
    """\
outputs = model(inputs)
loss = criterion(outputs, targets)
plain = next(more)[0].to(device)
guess = model(plain)
sure, labels_ = guess.detach().softmax(1).max(1)
mask = (sure > 0.3).double()
loss = loss + (F.cross_entropy(guess, labels_, reduction='none') * mask).mean()
""" + STEP,
    collate=DEFAULT,
    trained={"more": "endless(DataLoader(Samples(40, 5), batch_size=12, shuffle=True, drop_last=True))"},
)
PENALISED = replace(
    GAN,
    steps="""\
SIZED = SIZE
made = model(noise).detach()
share = torch.rand(SIZED, 1, device=device)
between = (share * inputs + (1 - share) * made).requires_grad_(True)
scored = critic(between)
slopes = torch.autograd.grad(scored, between, torch.ones_like(scored), create_graph=True)[0]
penalty = ((slopes.norm(2, dim=1) - 1) ** 2).mean()
d_loss = critic(made).mean() - critic(inputs).mean() + 10 * penalty
critic_optimizer.zero_grad()
d_loss.backward()
critic_optimizer.step()
outputs = critic(model(noise))
if step % 2 == 0:
    loss = -outputs.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
)
DRAWN_NOISE = replace(
    GAN,
    names=("inputs",),
    sample="return (draw.randn(6) + 1,)",
    losses={
        "judged": "made = model(torch.randn(SIZE, 2, device=device))\noutputs = critic(made)\nd_loss = criterion(critic(inputs), torch.ones(SIZE, 1, device=device))\nloss = criterion(outputs, torch.ones(SIZE, 1, device=device))"
    },
    steps="""\
SIZED = SIZE
real = torch.full((SIZED, 1), 0.9, device=device)
critic_optimizer.zero_grad()
real_loss = criterion(critic(inputs), real)
real_loss.backward()
made = model(torch.randn(SIZED, 2, device=device))
fake_loss = criterion(critic(made.detach()), torch.zeros_like(real))
fake_loss.backward()
d_loss = real_loss + fake_loss
critic_optimizer.step()
optimizer.zero_grad()
outputs = critic(made)
loss = criterion(outputs, real)
loss.backward()
optimizer.step()
""",
)
CLIPPED_CRITIC = replace(
    GAN,
    steps="""\
for _ in range(2):
    d_loss = critic(model(noise).detach()).mean() - critic(inputs).mean()
    critic_optimizer.zero_grad()
    d_loss.backward()
    critic_optimizer.step()
    for p in critic.parameters():
        p.data.clamp_(-0.1, 0.1)
outputs = critic(model(noise))
loss = -outputs.mean()
optimizer.zero_grad()
loss.backward()
optimizer.step()
""",
)
CURVES = replace(
    CLASSIFY,
    sample="x = draw.randn(6)\nreturn x, float(x.sum() > 0)",
    models={"score": net(TWO_LAYERS.format(1), "x", "return self.last(F.relu(self.first(x))).squeeze(1)")},
    losses={
        "criterion": "outputs = model(inputs)\nloss = criterion(outputs, targets)",
        "of probabilities": "outputs = torch.sigmoid(model(inputs))\nloss = F.binary_cross_entropy(outputs, targets)",
        "hinge": "outputs = model(inputs)\nloss = F.relu(1 - outputs * (2 * targets - 1)).mean()",
        "pairs of the batch": "outputs = model(inputs)\npositive, negative = outputs[targets > 0.5], outputs[targets < 0.5]\nloss = criterion(outputs, targets) + F.relu(1 - (positive[:, None] - negative[None])).mean() if len(positive) and len(negative) else criterion(outputs, targets)",
    },
    numbers={
        "roc": (
            "y_true, y_score = [], []",
            "y_true += targets.cpu().tolist()\ny_score += outputs.detach().cpu().tolist()",
            'order = np.argsort(-np.array(y_score), kind="stable")\nhits = np.array(y_true)[order]\ntpr, fpr = np.cumsum(hits) / max(hits.sum(), 1), np.cumsum(1 - hits) / max((1 - hits).sum(), 1)\nshown["auc"] = float(np.sum(np.diff(np.concatenate([[0], fpr])) * tpr))',
        ),
        "thresholds": (
            "best_at = {t: 0 for t in (0.2, 0.5, 0.8)}",
            "for t in best_at:\n    best_at[t] += ((outputs > t).double() == targets).sum().item()",
            'for t, found_ in best_at.items():\n    shown[f"at {t}"] = found_ / len(loader.dataset)',
        ),
        "counts": (
            "tp = tn = fp = fn = 0",
            "guess = (outputs > 0).long()\ntruth = targets.long()\ntp += (guess & truth).sum().item()\ntn += ((1 - guess) & (1 - truth)).sum().item()\nfp += (guess & (1 - truth)).sum().item()\nfn += ((1 - guess) & truth).sum().item()",
            'shown["sensitivity"] = tp / max(tp + fn, 1)\nshown["specificity"] = tn / max(tn + fp, 1)',
        ),
        "stacked": (
            "scored = np.array([])",
            "scored = np.append(scored, outputs.detach().cpu().numpy())",
            'shown["median"] = float(np.median(scored))\nshown["scored"] = len(scored)',
        ),
        "vertical": (
            "table = torch.empty(0, 2)",
            "table = torch.cat([table, torch.stack([outputs.detach().cpu(), targets.cpu()], dim=1)])",
            'shown["covariance"] = ((table[:, 0] - table[:, 0].mean()) * (table[:, 1] - table[:, 1].mean())).mean().item()',
        ),
        "parts": (
            "hits_, total_ = 0.0, 0",
            "if targets.sum() > 0:\n    hits_ += (outputs[targets > 0.5] > 0).double().sum().item()\n    total_ += int(targets.sum())",
            'shown["recall"] = hits_ / max(total_, 1)',
        ),
    },
    criterion="nn.BCEWithLogitsLoss()",
)
SPEECH = Task(
    ("inputs", "targets", "input_lengths", "target_lengths"),
    "n = draw.randint(4, 8)\nreturn draw.randn(n, 3), draw.randint(1, 5, size=draw.randint(1, 3))",
    {
        "recurrent": net(
            "self.rnn, self.out = nn.GRU(3, hidden, batch_first=True), nn.Linear(hidden, 5)",
            "x",
            "states, _ = self.rnn(x)\nreturn F.log_softmax(self.out(states), dim=-1)",
        )
    },
    {
        "ctc": "outputs = model(inputs)\nloss = F.ctc_loss(outputs.transpose(0, 1), targets, input_lengths, target_lengths, zero_infinity=True)",
        "ctc summed": "outputs = model(inputs)\nloss = F.ctc_loss(outputs.transpose(0, 1), targets, input_lengths, target_lengths, reduction='sum') / SIZE",
    },
    {
        "decoded": (
            "exact = 0",
            "for guess, truth, n in zip(outputs.argmax(-1), targets, target_lengths):\n    found_ = [int(a) for k, a in enumerate(guess) if a != 0 and (k == 0 or a != guess[k - 1])]\n    exact += int(found_ == truth[:n].tolist())",
            'shown["exact"] = exact / len(loader.dataset)',
        ),
        "frames": (
            "frames = 0",
            "frames += int(input_lengths.sum())",
            'shown["frames"] = frames',
        ),
    },
    collate="""\
def collate(samples):
    samples = sorted(samples, key=lambda it: -len(it[0]))
    inputs = nn.utils.rnn.pad_sequence([torch.as_tensor(it[0]) for it in samples], batch_first=True)
    targets = nn.utils.rnn.pad_sequence([torch.as_tensor(it[1]) for it in samples], batch_first=True)
    return inputs, targets, torch.tensor([len(it[0]) for it in samples]), torch.tensor([len(it[1]) for it in samples])
""",
    kept=("input_lengths", "target_lengths"),
)
SAMPLED = replace(
    CLASSIFY,
    numbers={name: CLASSES[name] for name in ("top two", "f1", "macro", "a score", "confusion at once")},
    losses={
        "truncated": "outputs = model(inputs)\neach = F.cross_entropy(outputs, targets, reduction='none')\nloss = each[each < each.mean() + 1].mean()",
        "balanced in the batch": "outputs = model(inputs)\ncounts_ = torch.bincount(targets, minlength=4).clamp(min=1)\nloss = F.cross_entropy(outputs, targets, weight=1.0 / counts_.double())",
        "by class": "outputs = model(inputs)\nloss = sum(F.cross_entropy(outputs[targets == c], targets[targets == c]) for c in targets.unique()) / len(targets.unique())",
        "centred": "outputs = model(inputs)\nloss = criterion(outputs - outputs.mean(0, keepdim=True), targets)",
        "decorrelated": "outputs = model(inputs)\nnormed = outputs - outputs.mean(0)\nloss = criterion(outputs, targets) + 0.01 * (normed.t() @ normed / len(outputs)).pow(2).sum()",
        "polynomial": "outputs = model(inputs)\np_true = outputs.softmax(1).gather(1, targets[:, None]).squeeze(1)\nloss = (F.cross_entropy(outputs, targets, reduction='none') + 1 - p_true).mean()",
    },
)
TASKS = {
    "adversarial": ADVERSARIAL,
    "adversarial by backward": BY_BACKWARD,
    "mixed by chance": MIXED,
    "erased": ERASED,
    "noisy": NOISY,
    "sharpness": SHARP,
    "two backward passes": TWICE,
    "regularised": REGULARISED,
    "halves": HALVES,
    "two views": DROPPED_TWICE,
    "mean teacher": MEAN_TEACHER,
    "centers": CENTERS,
    "center loss": CENTER_LOSS,
    "uncertain": UNCERTAIN,
    "queue": QUEUE,
    "mined": MINED,
    "indexed": INDEXED,
    "paths": FILES,
    "nested": NESTED,
    "of a dictionary": OF_A_DICT,
    "boxes": BOXES,
    "decoded": DECODED,
    "bare head": BARE_HEAD,
    "balanced": BALANCED,
    "unlabeled": UNLABELED,
    "pseudo labels": PSEUDO,
    "penalised critic": PENALISED,
    "drawn noise": DRAWN_NOISE,
    "clipped critic": CLIPPED_CRITIC,
    "curves": CURVES,
    "speech": SPEECH,
    "of the batch": SAMPLED,
}
