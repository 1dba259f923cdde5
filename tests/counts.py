"""Losses that are a sum over a count of the batch, taken outside of the model, and those that only look like it."""

from __future__ import annotations

from own_batches import with_steps

HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

torch.manual_seed(3)
"""
DENSE = """
class Views(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(5)
        self.images = torch.rand(46, 2, 4, 4, generator=generator)
        self.depth = torch.rand(46, 1, 4, 4, generator=generator) * (torch.rand(46, 1, 4, 4, generator=generator) > 0.4)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.depth[index]


class Net(nn.Module):
    def __init__(self, channels=1):
        super().__init__()
        self.first, self.last = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, channels, 3, padding=1)

    def forward(self, x):
        return torch.sigmoid(self.last(torch.relu(self.first(x))))


loader = DataLoader(Views(), batch_size=8, shuffle=True)
"""
FLAT = """
inputs, labels = torch.randn(46, 6), torch.randint(0, 3, (46,))
loader = DataLoader(TensorDataset(inputs, labels), batch_size=8, shuffle=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


"""
WORDS = """
class Sentences(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(5)
        self.lengths = torch.randint(2, 7, (46,), generator=generator)
        self.words = torch.randint(1, 9, (46, 7), generator=generator)
        self.words[torch.arange(7)[None] >= self.lengths[:, None]] = 0

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        return self.words[index], self.lengths[index]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.cell, self.last = nn.Embedding(9, 6), nn.GRU(6, 6, batch_first=True), nn.Linear(6, 9)

    def forward(self, words):
        return self.last(self.cell(self.embed(words))[0])


loader = DataLoader(Sentences(), batch_size=8, shuffle=True)
"""
ONE = """
model = nn.DataParallel(Net()).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def _program(data: str, body: str) -> str:
    return with_steps(HEAD + data, body.replace("ONE", ONE.strip()))


DIVIDED = {
    "a masked mean in the loop": _program(
        DENSE,
        """
ONE
for epoch in range(2):
    for image, depth in loader:
        image, depth = image.cuda(), depth.cuda()
        out = model(image)
        mask = (depth > 0).float()
        loss = ((out - depth).abs() * mask).sum() / mask.sum()
        STEP
        print(loss.item())
""",
    ),
    "a masked mean of a function in a function": _program(
        DENSE,
        """
def masked_mean(values, mask):
    return (values * mask).sum() / mask.sum()


def compute_loss(out, depth):
    mask = (depth > 0).float()
    error = (out - depth).abs()
    return masked_mean(error, mask) + 0.1 * masked_mean(error ** 2, mask)


ONE
for epoch in range(2):
    for image, depth in loader:
        image, depth = image.cuda(), depth.cuda()
        loss = compute_loss(model(image), depth)
        STEP
        print(loss.item())
""",
    ),
    "scales and a threshold on the count": _program(
        DENSE.replace(
            "return torch.sigmoid(self.last(torch.relu(self.first(x))))",
            "out = torch.sigmoid(self.last(torch.relu(self.first(x))))\n        return [out, F.avg_pool2d(out, 2)]",
        ),
        """
class Masked(nn.Module):
    def forward(self, diff, valid):
        mask = valid.expand_as(diff)
        if mask.sum() > 10:
            return (diff * mask).sum() / mask.sum()
        return torch.tensor(0).float().cuda()


masked = Masked().cuda()


def photometric(image, outs, depth):
    total = 0
    for scale in range(len(outs)):
        if scale == 0:
            out = outs[scale]
        else:
            out = F.interpolate(outs[scale], (4, 4), mode="nearest")
        valid = (depth > 0).float()
        total += masked((image * out - image * depth).abs().clamp(0, 1), valid)
    return total


ONE
for epoch in range(2):
    for image, depth in loader:
        image, depth = image.cuda(), depth.cuda()
        outs = model(image)
        loss_1 = photometric(image, outs, depth)
        loss_2 = sum(out.pow(2).mean() for out in outs)
        loss = 1.0 * loss_1 + 0.1 * loss_2
        STEP
        print(loss.item(), loss_1.item())
""",
    ),
    "masks that another model makes": _program(
        DENSE,
        """
depth_net = nn.DataParallel(Net()).cuda()
mask_net = nn.DataParallel(Net(2)).cuda()
optimizer = torch.optim.Adam(list(depth_net.parameters()) + list(mask_net.parameters()), lr=0.01)


def reconstruction(image, depth, masks):
    loss = 0
    for i in range(masks.size(1)):
        valid = (depth > 0).float()
        diff = (image[:, i : i + 1] - depth) * valid * masks[:, i : i + 1]
        loss += diff.abs().mean() * valid.nelement() / valid.sum()
    return loss


def explainability(masks):
    return F.binary_cross_entropy(masks, torch.ones_like(masks))


for epoch in range(2):
    depth_net.train()
    mask_net.train()
    for image, target in loader:
        image, target = image.cuda(), target.cuda()
        depth, masks = depth_net(image), mask_net(image)
        first = reconstruction(image, depth * (target > 0).float(), masks)
        loss = first + 0.2 * explainability(masks)
        STEP
        print(first.item(), loss.item())
""",
    ),
    "a focal loss by the number of centres": _program(
        DENSE.replace(
            "self.depth = torch.rand(46, 1, 4, 4, generator=generator) *",
            "self.depth = (torch.rand(46, 1, 4, 4, generator=generator) + 0.5).clamp(max=1) *",
        ),
        """
def focal(pred, gt):
    pos_inds = gt.eq(1).float()
    neg_inds = gt.lt(1).float()
    neg_weights = torch.pow(1 - gt, 4)
    loss = 0
    pos_loss = torch.log(pred) * torch.pow(1 - pred, 2) * pos_inds
    neg_loss = torch.log(1 - pred) * torch.pow(pred, 2) * neg_weights * neg_inds
    num_pos = pos_inds.float().sum()
    pos_loss = pos_loss.sum()
    neg_loss = neg_loss.sum()
    if num_pos == 0:
        loss = loss - neg_loss
    else:
        loss = loss - (pos_loss + neg_loss) / num_pos
    return loss


class FocalLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.neg_loss = focal

    def forward(self, out, target):
        return self.neg_loss(out, target)


crit = FocalLoss()
ONE
for epoch in range(2):
    for image, heat in loader:
        out = model(image.cuda()).clamp(1e-4, 1 - 1e-4)
        loss = crit(out, heat.cuda())
        STEP
        print(loss.item())
""",
    ),
    "a sum of errors by a clamped count": _program(
        FLAT,
        """
ONE
for epoch in range(2):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        out = model(x)
        keep = (y > 0)
        losses = F.cross_entropy(out, y, reduction="none")
        num = max(1, keep.sum().item())
        loss = (losses * keep.float()).sum() / num
        STEP
        print(loss.item())
""",
    ),
    "class weights that the data set counts": _program(
        FLAT.replace("TensorDataset(inputs", "Rows(inputs").replace(
            "loader =",
            """

class Rows(TensorDataset):
    def class_weights(self):
        counts = np.bincount(self.tensors[1].numpy(), minlength=3)
        shares = counts / counts.sum()
        return 1 / np.log(1.02 + shares)


loader =""",
        ),
        """
import numpy as np


def weighted(out, y, weight):
    keep = y >= 0
    loss = F.nll_loss(F.log_softmax(out, dim=1)[keep], y[keep], weight=weight, reduction="sum")
    return loss / keep.data.sum()


weight = torch.from_numpy(loader.dataset.class_weights()).float()
if torch.cuda.is_available():
    weight = weight.cuda()
ONE
for epoch in range(2):
    for x, y in loader:
        loss = weighted(model(x.cuda()), y.cuda(), weight)
        STEP
        print(loss.item())
""",
    ),
    "words without the padding": _program(
        WORDS,
        """
def sequence_loss(logits, words):
    target = words[:, 1:]
    mask = (target != 0).float()
    losses = F.cross_entropy(logits[:, :-1].transpose(1, 2), target, reduction="none")
    loss = losses * mask
    return loss.sum() / mask.sum()


ONE
for epoch in range(2):
    total = 0.0
    for words, lengths in loader:
        words = words.cuda()
        loss = sequence_loss(model(words), words)
        STEP
        total += loss.item()
    print(total / len(loader))
""",
    ),
    "a summed criterion by the tokens": _program(
        WORDS,
        """
criterion = nn.CrossEntropyLoss(ignore_index=0, reduction="sum")
ONE
for epoch in range(2):
    for words, lengths in loader:
        words = words.cuda()
        logits = model(words[:, :-1])
        target = words[:, 1:]
        n_tokens = (target != 0).sum()
        loss = criterion(logits.reshape(-1, 9), target.reshape(-1)) / n_tokens
        STEP
        print(loss.item())
""",
    ),
    "words by their lengths": _program(
        WORDS,
        """
criterion = nn.CrossEntropyLoss(reduction="none")
ONE
for epoch in range(2):
    for words, lengths in loader:
        words, lengths = words.cuda(), lengths.cuda()
        logits = model(words)
        mask = torch.arange(7).cuda()[None, :] < lengths[:, None]
        losses = criterion(logits.permute(0, 2, 1), words)
        loss = torch.sum(losses * mask) / torch.sum(lengths)
        STEP
        print(loss.item())
""",
    ),
    "several terms with weights": _program(
        FLAT,
        """
class Criterion(nn.Module):
    def __init__(self, weight=0.5):
        super().__init__()
        self.weight = weight

    def forward(self, out, y):
        pos = (y > 0).float()
        num_pos = pos.sum().clamp(min=1)
        cls = F.cross_entropy(out, y, reduction="none")
        loss_cls = cls.sum() / num_pos
        loss_box = (F.smooth_l1_loss(out, torch.zeros_like(out), reduction="none").sum(1) * pos).sum() / num_pos
        return loss_cls, loss_box, {"num": num_pos.item()}


criterion = Criterion()
ONE
for epoch in range(2):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        loss_cls, loss_box, stats = criterion(model(x), y)
        loss = loss_cls + 2.0 * loss_box
        STEP
        print(loss.item(), loss_cls.item())
""",
    ),
    "a mean over what a mask selects": _program(
        DENSE,
        """
def l1(out, depth):
    valid = (depth > 0).detach()
    diff = (depth - out)[valid]
    return diff.abs().mean()


ONE
for epoch in range(2):
    for image, depth in loader:
        image, depth = image.cuda(), depth.cuda()
        out = model(image)
        loss = l1(out, depth) + 0.1 * (out * (depth > 0).float()).sum() / (depth > 0).sum()
        STEP
        print(loss.item())
""",
    ),
    "frames one after the other": _program(
        DENSE,
        """
def warp(image, depth):
    return image * depth


def pairs(image, refs, depth):
    photo, geometry = 0, 0
    for ref in refs:
        valid = (ref > 0.2).float()
        error = (image - warp(ref, depth)).abs() * valid
        consistent = (depth - ref.mean(1, keepdim=True)).abs() * valid[:, :1]
        photo += error.sum() / valid.sum()
        geometry += consistent.sum() / valid[:, :1].sum()
    return photo, geometry


ONE
for epoch in range(2):
    for image, target in loader:
        image, target = image.cuda(), target.cuda()
        refs = [image.flip(3), image.roll(1, 2)]
        depth = model(image)
        photo, geometry = pairs(image, refs, depth)
        loss = photo + 0.5 * geometry
        STEP
        print(photo.item(), geometry.item())
""",
    ),
    "a sum of terms as it stands": _program(
        FLAT,
        """
ONE
for epoch in range(2):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        out = model(x)
        likely = F.cross_entropy(out, y, reduction="sum")
        spread = -0.5 * torch.sum(1 + out - out.pow(2) - out.exp())
        loss = 0.05 * (likely + 0.1 * spread)
        STEP
        print(loss.item(), likely.item())
""",
    ),
    "rows by a count": _program(
        FLAT,
        """
ONE
for epoch in range(2):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        out = model(x)
        weights = (y > 0).float()
        weights = weights / torch.clamp(weights.sum(), min=1.0)
        loss = (F.cross_entropy(out, y, reduction="none") * weights).sum() + 0.01 * out.pow(2).mean()
        STEP
        print(loss.item())
""",
    ),
    "a condition on the count in the loop": _program(
        DENSE,
        """
ONE
for epoch in range(2):
    for image, depth in loader:
        image, depth = image.cuda(), depth.cuda()
        out = model(image)
        found = (depth > 0.97).float()
        errors = ((out - depth) ** 2 * found).sum()
        num_found = found.sum()
        if num_found == 0:
            loss = out.mean()
        else:
            loss = errors / num_found
        STEP
        print(num_found.item(), loss.item())
""",
    ),
    "terms of a list in the loop": _program(
        DENSE,
        """
ONE
for epoch in range(2):
    for image, depth in loader:
        image, depth = image.cuda(), depth.cuda()
        out = model(image)
        loss = 0
        for size in (1, 2):
            small, wanted = F.avg_pool2d(out, size), F.max_pool2d(depth, size)
            mask = (wanted > 0).float()
            loss += (torch.abs(small - wanted) * mask).sum() / (mask.sum() + 1e-7) / size
        STEP
        print(loss.item())
""",
    ),
    "an overlap in the loop": _program(
        DENSE,
        """
ONE
for epoch in range(2):
    for image, depth in loader:
        out, wanted = model(image.cuda()), (depth.cuda() > 0).float()
        both = (out * wanted).sum()
        dice = (2.0 * both + 1.0) / (out.sum() + wanted.sum() + 1.0)
        loss = 1 - dice + F.binary_cross_entropy(out, wanted)
        STEP
        print(loss.item(), dice.item())
""",
    ),
    "a root of a mean": _program(
        DENSE,
        """
ONE
for epoch in range(2):
    for image, depth in loader:
        out, depth = model(image.cuda()), depth.cuda()
        error = torch.log(out + 0.1) - torch.log(depth + 0.1)
        loss = torch.sqrt((error ** 2).mean() - 0.5 * error.mean() ** 2)
        STEP
        print(loss.item())
""",
    ),
}

BEWARE = {
    "weights of what a loop over the loader has seen": _program(
        FLAT,
        """
def weighted(out, y, weight):
    keep = y >= 0
    loss = F.nll_loss(F.log_softmax(out, dim=1)[keep], y[keep], weight=weight, reduction="sum")
    return loss / keep.data.sum()


def seen(batches):
    counts = [1.0, 1.0, 1.0]
    for x, y in batches:
        for number in y.tolist():
            counts[number] += x.abs().mean().item()
    return counts


weight = torch.tensor(seen(loader)).cuda()
ONE
for epoch in range(2):
    for x, y in loader:
        loss = weighted(model(x.cuda()), y.cuda(), weight)
        STEP
        print(loss.item())
""",
    ),
    "a count in the model's own forward": _program(
        FLAT.replace("def forward(self, x):", "def forward(self, x, y):").replace(
            "return self.last(torch.relu(self.first(x)))",
            "losses = F.cross_entropy(self.last(torch.relu(self.first(x))), y, reduction='none')\n"
            "        keep = (y > 0).float()\n        return (losses * keep).sum() / keep.sum().clamp(min=1)",
        ),
        """
ONE
for epoch in range(2):
    for x, y in loader:
        loss = model(x.cuda(), y.cuda())
        loss = loss.mean()
        STEP
        print(loss.item())
""",
    ),
    "a count of another batch": _program(
        FLAT,
        """
ONE
count = torch.tensor(1.0)
for epoch in range(2):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        keep = (y > 0).float()
        loss = (F.cross_entropy(model(x), y, reduction="none") * keep).sum() / count.clamp(min=1)
        count = keep.sum()
        STEP
        print(loss.item())
""",
    ),
    "a sum that decides whether a step is made": _program(
        FLAT,
        """
ONE
for epoch in range(2):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        keep = (y > 1).float()
        if keep.sum() < 3:
            continue
        loss = (F.cross_entropy(model(x), y, reduction="none") * keep).sum() / keep.sum()
        STEP
        print(loss.item())
""",
    ),
    "a running count": _program(
        FLAT,
        """
class Normalised(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = 4.0

    def forward(self, out, y):
        keep = (y > 0).float()
        self.norm = 0.9 * self.norm + 0.1 * keep.sum().item()
        return (F.cross_entropy(out, y, reduction="none") * keep).sum() / self.norm


criterion = Normalised()
ONE
for epoch in range(2):
    for x, y in loader:
        loss = criterion(model(x.cuda()), y.cuda())
        STEP
        print(loss.item())
""",
    ),
    "sums over one dimension": _program(
        FLAT,
        """
ONE
for epoch in range(2):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        out = model(x)
        keep = y > 0
        means = out[keep].sum(0) / keep.sum()
        loss = (means ** 2).sum() + F.cross_entropy(out, y)
        STEP
        print(loss.item())
""",
    ),
    "a loop over the samples": _program(
        FLAT,
        """
ONE
for epoch in range(2):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        out = model(x)
        loss = 0
        for i in range(len(out)):
            keep = (y > 0).float()
            loss = loss + (i + 1) * (out[i] ** 2).sum() / keep.sum().clamp(min=1) / len(out)
        STEP
        print(loss.item())
""",
    ),
    "a sum in rounds that the batch counts": _program(
        FLAT,
        """
ONE
for epoch in range(2):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        out = model(x)
        for i in range(int(y.max()) + 1):
            keep = (y == i).float()
            loss = F.cross_entropy(out, y) + (out.pow(2).sum(1) * keep).sum() / (keep.sum() + 1)
        STEP
        print(loss.item())
""",
    ),
    "one of two kinds of counts": _program(
        FLAT,
        """
def step(x, y, count):
    losses = F.cross_entropy(model(x), y, reduction="none")
    loss = losses.sum() / count
    STEP
    return loss.item()


ONE
for epoch in range(2):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        print(step(x, y, (y > 0).float().sum() + 1))
        print(step(x, y, 8))
""",
    ),
    "counts that feed the model": _program(
        FLAT,
        """
ONE
for epoch in range(2):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        x = x / (x.abs().sum() / x.size(0))
        loss = F.cross_entropy(model(x), y)
        STEP
        print(loss.item())
""",
    ),
    "what evaluation runs, too": _program(
        FLAT,
        """
def run(x, y):
    keep = (y > 0).float()
    return (F.cross_entropy(model(x), y, reduction="none") * keep).sum() / keep.sum()


held_out = DataLoader(TensorDataset(inputs[:20], labels[:20]), batch_size=7)
ONE
for epoch in range(2):
    for x, y in loader:
        loss = run(x.cuda(), y.cuda())
        STEP
    total = 0.0
    with torch.no_grad():
        for x, y in held_out:
            total += run(x.cuda(), y.cuda()).item()
    print(total)
""",
    ),
    "a weight of the model in the sum": _program(
        FLAT,
        """
ONE
for epoch in range(2):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        keep = (y > 0).float()
        scale = 1 + model.module.last.bias.pow(2).sum()
        loss = (F.cross_entropy(model(x), y, reduction="none") * keep * scale).sum() / keep.sum()
        loss = loss + 0.01 * model.module.first.weight.pow(2).sum()
        STEP
        print(loss.item())
""",
    ),
    "a sum that is only tried": _program(
        FLAT,
        """
ONE
for epoch in range(2):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        out = model(x)
        keep = y > 0
        try:
            assert keep[0]
            loss = (F.cross_entropy(out, y, reduction="none") * keep.float()).sum() / keep.sum()
        except AssertionError:
            loss = F.cross_entropy(out, y)
        STEP
        print(loss.item())
""",
    ),
    "a sum that decides over a term": _program(
        FLAT,
        """
ONE
for epoch in range(2):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        out = model(x)
        loss = F.cross_entropy(out, y)
        if out.max() > 0.6:
            keep = (y > 0).float()
            loss = loss + (out.pow(2).sum(1) * keep).sum() / keep.sum()
        STEP
        print(loss.item())
""",
    ),
    "a sum that is carried from round to round": _program(
        FLAT,
        """
ONE
for epoch in range(2):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        out = model(x)
        keep = (y > 0).float()
        loss = 0
        for scale in (1, 2):
            loss = loss / (keep.sum() + 1) + (out.pow(2).sum(1) * keep).sum() * scale
        loss = 0.01 * loss
        STEP
        print(loss.item())
""",
    ),
    "a condition in a condition": _program(
        FLAT,
        """
ONE
for epoch in range(2):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        out = model(x)
        keep = (y > 0).float()
        loss = F.cross_entropy(out, y)
        if keep.mean() > 0.7:
            if keep.sum() > 3:
                loss = loss + (out.pow(2).sum(1) * keep).sum() / keep.sum()
        STEP
        print(loss.item())
""",
    ),
}
