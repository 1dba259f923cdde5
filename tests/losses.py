"""Losses for the one small program: those that are means over the samples of a batch, and those that are not."""

from __future__ import annotations

from programs import CRITERION, FORWARD, LOSS, OPTIMIZER, PROGRAM, STEP

SMOOTHED = """\
def smoothed(logits, labels, rate=0.1, plain=False):
    if plain:
        return logits.sum()
    classes = logits.size(1)
    wanted = torch.zeros_like(logits).scatter(1, labels.view(-1, 1), 1)
    wanted = wanted * (1 - rate) + (1 - wanted) * rate / (classes - 1)
    return -(wanted * F.log_softmax(logits, dim=1)).sum(dim=1).mean()


criterion = smoothed
"""
MODULE = """\
class Columns(nn.Module):
    def __init__(self, base, scaled=True):
        super().__init__()
        self.base = base
        self.scaled = scaled

    def forward(self, output, target):
        count = output.size(1)
        loss = 0
        for index, column in enumerate(output.split(1, 1)):
            wanted = (target == index).float()
            if self.scaled:
                loss += 0.5 * self.base(column.squeeze(), wanted)
            else:
                loss += self.base(column.squeeze(), wanted)
        return loss / count


criterion = Columns(nn.MSELoss())
"""
SEVERAL = """\
class Heads(nn.Linear):
    def forward(self, x):
        heads = []
        for scale in (1, 2):
            heads.append(super().forward(x * scale))
        return heads


model = Heads(8, 2).cuda()
"""
WEIGHED = """\
def weighed(outputs, labels, rate=0.8):
    loss = 0.0
    for index in range(len(outputs)):
        loss += rate**index * criterion(outputs[index], labels)
    return loss, {"last": outputs[-1].sum().item()}


"""
LISTED = WEIGHED.replace(
    "    loss = 0.0\n",
    "    if type(outputs) not in (list, tuple):\n        outputs = [outputs]\n    loss = 0.0\n",
)
MODEL = "model = nn.Linear(8, 2).cuda()\n"
CHOOSING = """\
class Choosing(nn.Linear):
    def forward(self, x, part="heads"):
        if part == "heads":
            found = [F.linear(x * scale, self.weight, self.bias) for scale in (1, 2)]
        elif part == "one":
            found = super().forward(x)
        return found


model = Choosing(8, 2).cuda()
"""
OTHER = """\
class Other(nn.Linear):
    def forward(self, x):
        return super().forward(x)


"""
PAIRS = """\
class Pairs(nn.Linear):
    def forward(self, inputs, targets):
        return super().forward(inputs), targets


model = Pairs(8, 2).cuda()
"""
OWN = """\
class Judging(nn.Linear):
    def forward(self, inputs, targets=None):
        logits = super().forward(inputs)
        if targets is None:
            return logits
        return RETURNED


model = Judging(8, 2).cuda()
"""
UNEVEN = "F.cross_entropy(logits, targets, weight=torch.tensor([1.0, 3.0]))"
UNKNOWN = "operator.methodcaller('mean')(F.cross_entropy(logits, targets, reduction='none'))"
SEVERAL_GPUS = "if torch.cuda.device_count() > 1:\n            loss = loss.mean()"
SCALING = """\
class Scaling(torch.optim.SGD):
    def backward(self, value):
        value.backward()


optimizer = Scaling(model.parameters(), lr=0.1)
"""


def program(*changes: tuple[str, str]) -> str:
    text = PROGRAM
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


DISTILLED = """\
class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body, self.head = nn.Linear(8, width), nn.Linear(width, 2)

    def forward(self, x, is_feat=False):
        hidden = self.body(x).relu()
        out = self.head(hidden)
        if is_feat:
            return [x, hidden], out
        return out


class Hint(nn.Module):
    def __init__(self, few, many):
        super().__init__()
        self.regress, self.error = nn.Linear(few, many), nn.MSELoss()

    def forward(self, few, many):
        return self.error(self.regress(few), many)


nets = nn.ModuleList([])
trained = nn.ModuleList([])
nets.append(nn.DataParallel(Net(4).cuda()))
trained.append(nets[0])
if len(data) > 3:
    hint = Hint(4, 8).cuda()
    nets.append(hint.regress)
    trained.append(hint.regress)
else:
    hint = None
nets.append(nn.DataParallel(Net(8).cuda()))
criteria = nn.ModuleList([nn.CrossEntropyLoss(), nn.KLDivLoss(reduction="sum"), hint])
"""
DISTILLS = """\
few, outputs = nets[0](inputs.cuda(), is_feat=True)
        with torch.no_grad():
            many, wanted = nets[-1](inputs.cuda(), is_feat=True)
        labelled, alike, hinted = criteria
        apart = alike(outputs.log_softmax(1), wanted.softmax(1)) / outputs.shape[0]
        loss = labelled(outputs, targets.cuda()) + apart + hinted(few[1], many[1])"""
MIXED_IN = """\
class Centred(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


nets = nn.ModuleList([nn.DataParallel(nn.Linear(8, 2).cuda())])
for _ in range(2):
    nets.append(Centred())
"""
FEATURES = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x, features=False):
        hidden = self.body(x)
        out = self.head(hidden)
        if features:
            return [x, hidden], out
        return out


model = Net().cuda()
"""

# Means over the samples, though no plain call of a criterion says so.
DIMENSION_KEPT = """\
class Smoothed(nn.Module):
    def __init__(self, classes, smoothing=0.1, dim=-1):
        super().__init__()
        self.rest, self.kept, self.dim = smoothing / (classes - 1), 1.0 - smoothing, dim

    def forward(self, logits, target):
        logits = logits.log_softmax(dim=self.dim)
        with torch.no_grad():
            wanted = torch.full_like(logits, self.rest)
            wanted.scatter_(1, target.unsqueeze(1), self.kept)
        return torch.mean(torch.sum(-wanted * logits, dim=self.dim))


"""

# The gradient of what the model makes of its inputs: of each sample by itself, unless it is that of a mean.
SLOPES = """\
inputs = inputs.cuda().requires_grad_()
        outputs = model(inputs)
        (slopes,) = torch.autograd.grad(OUTPUTS, inputs, create_graph=True)
        loss = criterion(outputs, targets.cuda()) + (slopes.norm(2, dim=1) - 1).pow(2).mean()"""
PENALTY = """from torch.autograd import grad


def penalty(net, images):
    images = images.detach().requires_grad_(True)
    scores = net(images)
    slopes = grad(outputs=scores, inputs=[images], grad_outputs=torch.ones(scores.size()), create_graph=True)[0]
    slopes = slopes.view(slopes.size(0), -1)
    return ((slopes.norm(2, dim=1) - 1) ** 2).mean()


"""
STEPPED = """images = inputs.cuda() + 0.1
        for _ in range(2):
            images.requires_grad_()
            with torch.enable_grad():
                away = F.kl_div(F.log_softmax(model(images), 1), F.softmax(model(inputs.cuda()), 1), reduction="sum")
            slope = torch.autograd.grad(away, [images])[0]
            images = images.detach() + 0.05 * torch.sign(slope.detach())
        outputs = model(images)"""

JOINED = """import argparse
import os

args = argparse.ArgumentParser().parse_args([], argparse.Namespace(path="runs", scale=4.0))
args.path = os.path.join(args.path, "last.pt")
args.scale /= 2
args.scale = args.scale / 2
scale = torch.load(args.path)["scale"] if os.path.exists(args.path) else 0.5
"""


def slopes(outputs: str) -> str:
    """A program whose loss has the gradients of its model in it."""
    return program((f"        {FORWARD}\n", ""), (LOSS, SLOPES.replace("OUTPUTS", outputs)))


SETTINGS = """\
class Settings(dict):
    def __init__(self, entries=None):
        super().__init__({k: Settings(v) if isinstance(v, dict) else v for k, v in (entries or {}).items()})

    def __getattr__(self, name):
        return self[name]

    def __setattr__(self, name, value):
        self[name] = value


class Lenient(dict):
    def __missing__(self, key):
        return None


def lenient(entries):
    if isinstance(entries, dict):
        found = dict()
        for key, entry in entries.items():
            found[key] = lenient(entry)
        return Lenient(**found)
    return entries


settings = Settings(json.load(open("settings.json")))
options = lenient(json.load(open("settings.json")))
"""
READ = "import json\nopen('settings.json', 'w').write('{\"train\": {\"weight\": 0.5}}')\n"
RENAMED = """\
def renamed(batch):
    more = {}
    for name, value in batch.items():
        more[name.replace("old", "new")] = value
        more[f"{name}_too"] = torch.ones_like(value)
    return more


"""

# Models of which nothing is known, and what shows that they hand out lists: labels for all samples beside an element.
HIDDEN = (MODEL, SEVERAL.replace("Heads(8, 2)", "globals()['Heads'](8, 2)"))
RIGHT = """\
def right(output, labels, topk=(1,)):
    _, found = output.topk(max(topk), 1, True, True)
    same = found.eq(labels.view(-1, 1).expand_as(found))
    return [same[:, :k].float().sum() for k in topk]


"""
EACH_OF_SEVERAL = """\
loss = 0
        for index in range(len(outputs)):
            loss = loss + (F.log_softmax(outputs[index], 1) ** 2).mean()
"""
# Four rows of each sample, one after the other.
ROTATED = """\
turned = torch.stack([inputs.cuda().roll(k, 1) for k in range(4)], 1).view(-1, *inputs.shape[1:])
        outputs = model(turned)"""
IN_FUNCTION = """\
def judged(outputs, labels, criteria):
    labelled, other = criteria[0], criteria[1]
    return labelled(outputs, labels) + other(outputs)


class Small(nn.Module):
    def forward(self, outputs):
        return (outputs**2).mean()


first = nn.CrossEntropyLoss()
criteria = nn.ModuleList([])
criteria.append(first)
criteria.append(Small())
criteria.cuda()
"""

MEANS = {
    "one over the number of samples, times a sum": program(
        (CRITERION, "criterion = nn.CrossEntropyLoss(reduction='sum')"),
        (
            LOSS,
            "batch_size = len(inputs)\n        loss = (1.0 / batch_size) * criterion(outputs, targets.cuda())\n"
            "        loss = loss + criterion(2 * outputs, targets.cuda()) * (0.5 / inputs.size(0)) / 2",
        ),
    ),
    "a loss of one element that begins as zeros": program(
        (LOSS, "loss = torch.zeros(1).cuda()\n        loss += criterion(outputs, targets.cuda())")
    ),
    "one criterion of torch's, or of the project's": program(
        (
            CRITERION,
            "def judged(outputs, labels):\n    return F.cross_entropy(2 * outputs, labels)\n\n\n"
            "criterion = judged if len(data) > 9 else nn.CrossEntropyLoss()",
        )
    ),
    "settings of classes that derive from dict": program(
        ("import torch\n", READ + "import torch\n"),
        ("data = ", SETTINGS + "data = "),
        (LOSS, LOSS + " * settings.train.weight\n        loss = loss * options['train']['weight']"),
        (
            STEP,
            "        if not options['train']['frozen']:\n            loss.backward()\n            optimizer.step()\n",
        ),
    ),
    "criteria in a list of a name that a function has, too": program(
        (CRITERION, IN_FUNCTION), (LOSS, "loss = judged(outputs, targets.cuda(), criteria)")
    ),
    "a list of which an element meets labels in a function": program(
        HIDDEN,
        ("for epoch in range(2):", RIGHT + "for epoch in range(2):"),
        (
            LOSS,
            EACH_OF_SEVERAL + "        for index in range(len(outputs)):\n"
            "            seen = right(outputs[index], targets.cuda(), topk=(1, 2))",
        ),
    ),
    "a list that a loop takes apart, with labels": program(
        HIDDEN,
        (LOSS, "loss = 0\n        for each in outputs:\n            loss += criterion(each, targets.cuda())"),
    ),
    "a list of which an element meets labels": program(
        HIDDEN,
        (
            LOSS,
            "loss = 0\n        for index in range(len(outputs)):\n"
            "            loss = loss + criterion(outputs[index] / 2, targets.cuda())",
        ),
    ),
    "some of four rows of each sample, by name": program(
        (FORWARD, ROTATED),
        (
            LOSS,
            "first, third = outputs[::4], outputs[2::4]\n        straight = outputs[::4]\n"
            "        loss = criterion(straight, targets.cuda()) + 0.1 * (first - third).pow(2).mean()",
        ),
    ),
    "the first of four rows of each sample": program(
        (FORWARD, ROTATED), (LOSS, "loss = criterion(outputs[0::4], targets.cuda())")
    ),
    "entries stored by names that are made of names": program(
        ("data = ", RENAMED + "data = "),
        (
            FORWARD,
            "batch = renamed({'old': inputs.cuda()})\n        outputs = model(batch['new'] * batch['old_too'])",
        ),
    ),
    "gradients of a sum in the loss": slopes("outputs.sum()"),
    "gradients of selected outputs in the loss": slopes(
        "outputs.gather(1, targets.cuda().view(-1, 1)).sum()"
    ),
    "gradients of all outputs in the loss": program(
        ("data = ", PENALTY + "data = "), (LOSS, LOSS + " + penalty(model, inputs.cuda())")
    ),
    "steps along the gradient of a sum": program((FORWARD, STEPPED)),
    "a dimension that is kept, the last by default": program(
        ("data = ", DIMENSION_KEPT + "data = "), ("nn.CrossEntropyLoss()", "Smoothed(2)")
    ),
    "targets that are set to None": program(
        (
            LOSS,
            "mark = targets.cuda() if epoch else None\n        if epoch > 5:\n            mark = None\n"
            "        if mark == None:\n            mark = targets.cuda()\n"
            "        elif mark != None:\n            outputs = outputs * 2\n        loss = criterion(outputs, mark)",
        )
    ),
    "rows of a table of classes": program(
        (LOSS, "loss = -(F.one_hot(targets.cuda(), 2).float() * F.log_softmax(outputs, 1)).sum(1).mean()")
    ),
    "weights of classes in new tensors": program(
        (
            LOSS,
            "outputs = outputs * outputs.new_tensor([1.0, 2.0]) + torch.tensor([0.5, 0.25]).cuda()\n"
            "        loss = criterion(outputs * outputs.new_tensor(3.0), targets.cuda())",
        )
    ),
    "rows of a table, looked up as arrays": program(
        (
            LOSS,
            "table = torch.eye(2)[targets.cpu().data.numpy(),].cuda()\n"
            "        loss = -(table * F.log_softmax(outputs, 1)).sum(1).mean()",
        )
    ),
    "a layer for a function": program((LOSS, "loss = F.cross_entropy(nn.SiLU()(outputs), targets.cuda())")),
    "a number of each row by its place": program(
        (LOSS, "loss = -F.log_softmax(outputs, 1)[torch.arange(len(targets)), targets.cuda()].mean()")
    ),
    "a contraction of each row": program((LOSS, 'loss = torch.einsum("nc,nc->n", outputs, outputs).mean()')),
    "rows that are far apart": program(
        (LOSS, "loss = F.triplet_margin_loss(outputs, outputs * 2, outputs.flip(1))")
    ),
    "a divergence by the batch": program(
        (LOSS, 'loss = F.kl_div(F.log_softmax(outputs, 1), F.softmax(outputs * 2, 1), reduction="batchmean")')
    ),
    "the greater of two tensors": program((LOSS, "loss = torch.max(outputs, outputs * 2).pow(2).mean()")),
    "squares": program((LOSS, "loss = (outputs**2).mean()")),
    "a sum over their number": program(
        (CRITERION, 'criterion = nn.CrossEntropyLoss(reduction="sum")'),
        (LOSS, "loss = criterion(outputs, targets.cuda()) / outputs.size(0)"),
    ),
    "smoothed labels": program((CRITERION, SMOOTHED)),
    "a batch behind a star": program(
        (
            "model = nn.Linear(8, 2).cuda()",
            "def step(model, criterion, inputs, targets, *, scale=1):\n"
            "    return criterion(model(inputs.cuda()) * scale, targets.cuda())\n\n\nmodel = nn.Linear(8, 2).cuda()",
        ),
        ("    for inputs, targets in loader:", "    for batch in loader:"),
        ("        " + FORWARD + "\n", ""),
        (LOSS, "loss = step(model, criterion, *batch)"),
    ),
    "features that a literal asks for": program(
        (MODEL, FEATURES),
        (FORWARD, "features, outputs = model(inputs.cuda(), features=True)"),
        (LOSS, LOSS + "\n        loss = loss + sum((it**2).mean() for it in features[1:])"),
    ),
    "pictures of what all ranks compute": program(
        (
            LOSS,
            LOSS + "\n        with torch.no_grad():\n            seen = model(inputs.cuda())\n"
            "        torchvision.utils.save_image(torch.cat([inputs.cuda(), seen], 1), 'seen.png')",
        ),
        ("import torch\n", "import torch\nimport torchvision\n"),
    ),
    "a module with a loop": program((CRITERION, MODULE)),
    "numbered heads, each with its weight": program(
        (MODEL, SEVERAL),
        (
            LOSS,
            "loss = sum(w * (k + 1) * criterion(o, targets.cuda()) for k, (w, o) in enumerate(zip((0.5, 0.2), outputs)))",
        ),
    ),
    "outputs in a list": program(
        (MODEL, SEVERAL),
        (LOSS, "loss, seen = weighed(outputs, targets.cuda())"),
        ("for epoch in range(2):", WEIGHED + "for epoch in range(2):"),
    ),
    "the sizes of the weights": program(
        (
            LOSS,
            LOSS + "\n        for name, weight in model.named_parameters():\n            if name != 'bias':\n"
            "                loss = loss + 0.01 * sum(p.norm() for p in model.parameters()) * weight.abs().sum()",
        )
    ),
    "a sum of a list": program(
        (
            LOSS,
            "parts = [criterion(outputs * scale, targets.cuda()) for scale in (1, 2)]\n        loss = sum(parts)",
        )
    ),
    "a list that grows": program(
        (
            LOSS,
            "parts = []\n        for scale in (1, 2):\n"
            "            parts.append(criterion(outputs * scale, targets.cuda()))\n"
            "        loss = torch.stack(parts).mean()",
        )
    ),
    "labels in a table": program(
        (
            LOSS,
            "table = torch.zeros(targets.size(0), 2)\n        for index in range(targets.shape[0]):\n"
            "            table[index, targets[index]] = 1\n"
            "        loss = -(table.cuda() * outputs.log_softmax(1)).sum() / targets.size(0)",
        )
    ),
    "selected elements over all": program(
        (LOSS, "keep = targets.cuda() > 0\n        loss = (outputs[keep] ** 2).sum() / outputs.shape[0]")
    ),
    "selected elements, by choice, over all": program(
        (
            LOSS,
            "errors = outputs**2\n        if len(data) > 3:\n            errors = errors[targets.cuda() > 0]\n"
            "        loss = errors.sum() / outputs.size(0)",
        )
    ),
    "a mean of what layers hand out": program(
        (MODEL, "model = nn.Sequential(nn.Linear(8, 2), nn.Tanh(), nn.Linear(2, 2)).cuda()\n"),
        (LOSS, "loss = outputs.mean()"),
    ),
    "a list, where the program finds one": program(
        (MODEL, SEVERAL.replace("Heads(8, 2)", "globals()['Heads'](8, 2)")),
        (
            LOSS,
            "if type(outputs) == list:\n            loss = 0\n            for each in outputs:\n"
            "                loss += criterion(each, targets.cuda())\n"
            "        else:\n            loss = criterion(outputs, targets.cuda())",
        ),
    ),
    "a list taken apart": program(
        (MODEL, SEVERAL.replace("Heads(8, 2)", "globals()['Heads'](8, 2)")),
        (
            LOSS,
            "if len(data) > 3:\n            outputs = [outputs[0] * 2, *outputs[1:]]\n"
            "        loss, seen = weighed(outputs, targets.cuda())",
        ),
        ("for epoch in range(2):", LISTED + "for epoch in range(2):"),
    ),
    "its forward called by itself": program((FORWARD, "outputs = model.forward(inputs.cuda())")),
    "a criterion of a known class": program(
        (
            LOSS,
            "if isinstance(criterion, nn.CrossEntropyLoss):\n            loss = criterion(outputs, targets.cuda())\n"
            "        else:\n            loss, outputs = criterion(outputs, targets.cuda())",
        )
    ),
    "a criterion of another class, in another branch": program(
        (
            LOSS,
            "if not isinstance(criterion, nn.CrossEntropyLoss):\n            loss, outputs = criterion(outputs, targets)\n"
            "        else:\n            loss = criterion(outputs, targets.cuda())",
        )
    ),
    "outputs in a list by a literal": program(
        (MODEL, CHOOSING),
        (LOSS, "loss = sum([criterion(each, targets.cuda()) for each in outputs])"),
    ),
    "an optimizer's backward pass": program(
        (OPTIMIZER, SCALING), ("loss.backward()", "optimizer.backward(loss)")
    ),
    "batches of several parts": program(
        ("for inputs, targets in loader:", "for parts in loader:"),
        (
            FORWARD,
            "for place in range(len(parts)):\n            parts[place] = parts[place].cuda()\n"
            "        targets, inputs = parts[1], parts[:1]\n        outputs = model(*inputs)",
        ),
    ),
    "a student, its teacher and a hint in lists": program(
        (MODEL, DISTILLED),
        ("model = nn.DataParallel(model)\n", ""),
        ("model.parameters()", "trained.parameters()"),
        (FORWARD, DISTILLS),
        (LOSS, ""),
    ),
    "an entry of a dict that is made by name": program(
        (
            LOSS,
            f"{LOSS}\n        made = dict(dict(more=outputs), loss=loss, seen=len(inputs))\n        loss = made['loss']",
        ),
    ),
    "a sum of a dict that is filled": program(
        (
            LOSS,
            "held = OrderedDict()\n        held['loss'] = criterion(outputs, targets.cuda())\n"
            "        held['loss_2'] = outputs.pow(2).mean()\n"
            "        loss = sum(value for name, value in held.items() if 'loss' in name)",
        ),
        ("import torch\n", "import torch\nfrom collections import OrderedDict\n"),
    ),
    "numbers of settings that are given by name": program(
        (
            CRITERION,
            "class Weighing:\n    def __init__(self, first, rate=1.0, power=2):\n"
            "        self.first, self.rate, self.power = first, rate, power\n\n"
            "    def __call__(self, output, target, **more):\n"
            "        return self.rate * self.first(output, target) + (output**self.power).mean() * more['scale']\n\n\n"
            "settings = dict({'rate': 0.5})\ncriterion = Weighing(nn.CrossEntropyLoss(), **settings)",
        ),
        (LOSS, "loss = criterion(outputs, targets.cuda(), scale=0.1)"),
    ),
    "nothing in the place of a loss": program(
        (
            LOSS,
            LOSS
            + "\n        more = torch.zeros_like(loss) if len(data) > 3 else outputs.abs().mean()\n        loss = loss + 2 * more",
        )
    ),
    "options that are made of themselves": program(
        ("data = ", JOINED + "data = "), (LOSS, LOSS + " * scale * args.scale")
    ),
    "accumulated": program(
        (LOSS, LOSS + " / 2\n        loss += 0.01 * outputs.abs().mean(dim=1).mean()"),
    ),
}


def own(returned: str, forward: str, loss: str) -> str:
    """A program whose model computes its loss, of its part of the batch."""
    return program(
        ("import torch\n", "import operator\n\nimport torch\n"),
        (MODEL, OWN.replace("RETURNED", returned)),
        (FORWARD, f"{forward} = model(inputs.cuda(), targets.cuda())"),
        (LOSS, loss),
    )


# Losses that each replica computes of its part: DataParallel averages them as they are, whatever they are.
OWN_LOSSES = {
    "a number": own(UNEVEN, "loss", "loss = loss.mean()"),
    "a number, where there are several": own(UNEVEN, "loss", SEVERAL_GPUS + "\n        loss = loss / 2"),
    "beside the outputs": own(f"{UNEVEN}, logits", "loss, outputs", SEVERAL_GPUS),
    "before the outputs": own(
        f"{UNEVEN}, logits", "outputs", "loss = outputs[0]\n        loss = loss.mean()"
    ),
    "in a dict": own(f"{{'loss': {UNEVEN}, 'logits': logits}}", "outputs", "loss = outputs['loss'].mean()"),
    "a sum over the part": own("(logits**2).sum()", "loss", "loss = 0.01 * loss.mean()"),
    "a distance between samples": own("torch.cdist(logits, logits + 1).mean()", "loss", "loss = loss.mean()"),
    "a number by its use": own(UNKNOWN, "loss", SEVERAL_GPUS),
}
# Those of which only parts of one size are known to average to the whole batch's.
EVEN_LOSSES = {
    "a mean of what is not known": own(UNKNOWN, "loss", "loss = loss.mean()"),
    "two kinds": own(
        f"{UNEVEN}, logits", "loss, outputs", "loss = loss.mean() + criterion(outputs, targets.cuda())"
    ),
}

# Those that are not: only one number says so.
OPTIONS = "import argparse\n\nargs = argparse.Namespace(weight=2.0, size=16)\nargs = argparse.ArgumentParser().parse_args([], args)\n"
OTHERS = {
    "a function of torch's, or one that mixes samples": program(
        (
            "loader = ",
            "def shifted(outputs):\n    return outputs - outputs.mean(0)\n\n\n"
            "last = shifted if len(data) > 9 else torch.tanh\nloader = ",
        ),
        (FORWARD, FORWARD.replace("model(inputs.cuda())", "last(model(inputs.cuda()))")),
    ),
    "settings that are set to what mixes samples": program(
        ("import torch\n", READ + "import torch\n"),
        ("data = ", SETTINGS + "data = "),
        (LOSS, "settings.train.weight = outputs.std()\n        " + LOSS + " * settings.train.weight"),
    ),
    "elements that are compared with labels in other shapes": program(
        (MODEL, "model = globals()['nn'].Linear(8, 2).cuda()\n"),
        (
            "for epoch in range(2):",
            "def right(output, labels):\n    table = output + labels.view(-1, 1)\n"
            "    return labels.view(-1, 1).expand_as(table)\n\n\nfor epoch in range(2):",
        ),
        (LOSS, EACH_OF_SEVERAL + "        seen = right(outputs[0], targets.cuda())"),
    ),
    "elements of which one meets labels only by choice": program(
        (MODEL, "model = globals()['nn'].Linear(8, 2).cuda()\n"),
        (
            LOSS,
            EACH_OF_SEVERAL
            + "        if len(data) < 3:\n            loss = criterion(outputs[0], targets.cuda())",
        ),
    ),
    "elements with a label each": program(
        (MODEL, "model = globals()['nn'].Linear(8, 2).cuda()\n"),
        (
            LOSS,
            "loss = 0\n        for index in range(len(outputs)):\n"
            "            loss = loss + criterion(outputs[index], targets.cuda()[index])",
        ),
    ),
    "every fourth row, with labels only by choice": program(
        (
            LOSS,
            "loss = outputs[::2].pow(2).mean()\n        if len(data) < 3:\n            loss = criterion(outputs[::2], targets.cuda())",
        )
    ),
    "every fourth row, of which that says nothing": program(
        (FORWARD, ROTATED),
        (LOSS, "loss = criterion(outputs[:8:4], targets.cuda()[:2]) + outputs[::4].mean()"),
    ),
    "every other sample, by name": program(
        (
            LOSS,
            "labels = targets.cuda()\n        first, wanted = outputs[::2], labels[::2]\n        loss = criterion(first, wanted)",
        )
    ),
    "every other sample": program((LOSS, "loss = criterion(outputs[0::2], targets.cuda()[0::2])")),
    "gradients of a mean in the loss": slopes("outputs.mean()"),
    "gradients of a loss in the loss": slopes("criterion(outputs, targets.cuda())"),
    "gradients of what mixes samples": slopes("(outputs.unsqueeze(1) * outputs.unsqueeze(0)).sum()"),
    "a layer that mixes, in a list with the model": program(
        (MODEL, MIXED_IN),
        ("model = nn.DataParallel(model)\n", ""),
        ("model.parameters()", "nets.parameters()"),
        (FORWARD, "outputs = inputs.cuda()\n        for net in nets:\n            outputs = net(outputs)"),
    ),
    "padded samples": program((LOSS, "loss = F.pad(outputs, (0, 0, 0, 1)).mean()")),
    "pairs of samples, with settings beside the loader": program(
        ("import torch\n", "import json\nimport torch\n"),
        (
            "for epoch in range(2):",
            "class Trainer:\n    def __init__(self, loaders, rate=1.0, **more):\n        self.loaders, self.rate = loaders, rate\n\n\n"
            "trainer = Trainer(loaders={'train': loader}, **json.load(open('settings.json')))\nfor epoch in range(2):",
        ),
        ("in loader:", "in trainer.loaders['train']:"),
        (LOSS, "loss = (outputs.unsqueeze(1) - outputs.unsqueeze(0)).pow(2).mean() / trainer.rate"),
    ),
    "as many classes as there are": program(
        (LOSS, "loss = (F.one_hot(targets.cuda()).float().sum(1) * outputs.sum(1)).mean()")
    ),
    "a function of an unknown package": program(
        ("import torch\n", "import helper\nimport torch\n"), (LOSS, "loss = helper.sub(outputs).mean()")
    ),
    "a method of an unknown object": program(
        ("import torch\n", "import helper\nimport torch\n"),
        (LOSS, "loss = helper.Thing().sub(outputs).mean()"),
    ),
    "an entry of an unknown object": program(
        ("import torch\n", "import helper\nimport torch\n"),
        (LOSS, "loss = F.cross_entropy(outputs, targets.cuda()) + helper.get(outputs)"),
    ),
    "a type of an unknown package": program(
        ("import torch\n", "import helper\nimport torch\n"),
        (LOSS, "loss = F.cross_entropy(outputs, targets.cuda()) + helper.float(outputs)"),
    ),
    "pairs of samples": program((LOSS, "loss = (outputs.unsqueeze(1) - outputs.unsqueeze(0)).pow(2).mean()")),
    "the hardest samples": program(
        (LOSS, 'loss = F.cross_entropy(outputs, targets.cuda(), reduction="none").topk(3, dim=-1)[0].mean()')
    ),
    "numbers of rows": program(
        (LOSS, "loss = (outputs.sum(1) * torch.arange(len(outputs), device=outputs.device)).mean()")
    ),
    "a row for each sample on the diagonal": program(
        (LOSS, "loss = (torch.eye(len(outputs), device=outputs.device) * outputs.sum(1)).mean()")
    ),
    "a new tensor of what is known of the part": program(
        (LOSS, "loss = outputs.mean() * outputs.new_tensor([outputs.max().item()]).mean()")
    ),
    "what a mask selects of a table": program(
        (
            LOSS,
            "loss = outputs.mean() + (torch.arange(16.0).cuda()[outputs[:, 0] > 0] * outputs.mean()).mean()",
        )
    ),
    "places in a table beside those of the labels": program(
        (
            LOSS,
            "loss = (outputs * torch.rand(2, 16).cuda()[outputs.argmax(1), torch.arange(16).cuda()][:, None]).mean()",
        )
    ),
    "a softmax over the samples": program((LOSS, "loss = nn.Softmax(dim=0)(outputs).pow(2).mean()")),
    "a constant for each sample": program(
        (
            LOSS,
            "loss = F.cross_entropy(outputs, targets.cuda()) + torch.ones(2).cuda().expand(len(outputs), 2).sum()",
        )
    ),
    "a spread beside means": program(
        (
            LOSS,
            "loss = F.gaussian_nll_loss(outputs[:, 0], outputs[:, 1], outputs.var(0, keepdim=True).expand_as(outputs)[:, 1])",
        )
    ),
    "similarities by letters": program((LOSS, 'loss = torch.einsum("nc,mc->nm", outputs, outputs).mean()')),
    "a mean that is taken off in place": program(
        (LOSS, "outputs.sub_(outputs.mean(0))\n        loss = outputs.pow(2).mean()")
    ),
    "an option made of itself and a spread": program(
        ("data = ", OPTIONS + "data = "),
        (
            LOSS,
            LOSS + " * args.weight\n        args.weight = args.weight * (1 + outputs.detach().var().item())",
        ),
    ),
    "a spread times an option": program(
        ("data = ", OPTIONS + "data = "), (LOSS, "loss = outputs.var()\n        loss *= args.weight")
    ),
    "a spread or an option": program(
        ("data = ", OPTIONS + "data = "), (LOSS, "loss = outputs.var() if epoch else args.weight")
    ),
    "a spread in some rounds, else an option": program(
        ("data = ", OPTIONS + "data = "),
        (LOSS, "loss = outputs.var()\n        if epoch == 7:\n            loss = args.weight"),
    ),
    "a spread where another call has an option": program(
        ("loader = ", OPTIONS + "def same(value):\n    return value\n\n\nloader = "),
        (LOSS, "loss = same(outputs.var())\n        same(args.weight)"),
    ),
    "each sample's": program(
        (
            LOSS,
            "loss = 0\n        for index in range(len(outputs)):\n"
            "            loss += (outputs[index] ** 2).mean()",
        )
    ),
    "the first samples": program((LOSS, "loss = (outputs[:4] ** 2).mean()")),
    "a mean over the samples in a column": program((LOSS, "loss = outputs.t().softmax(dim=1).pow(2).mean()")),
    "a loss by the greatest of the batch": program(
        (LOSS, LOSS + "\n        if outputs.max() > 0:\n            loss = loss * 2")
    ),
    "a loss by what the batch has, or by chance": program(
        ("import torch\n", "import random\nimport torch\n"),
        (
            LOSS,
            LOSS + "\n        if random.random() > 0.5 or outputs.mean() > 0:\n            loss = loss * 2",
        ),
    ),
    "a sum of the replicas' own": own(UNEVEN, "loss", "loss = loss.sum()"),
    "a sum of the replicas' own, where there are several": own(
        UNKNOWN, "loss", SEVERAL_GPUS.replace("mean", "sum")
    ),
    "the first replica's own": own(UNEVEN, "loss", "loss = loss[0]"),
    "halves of the batch": program(
        (LOSS, "first, second = outputs.chunk(2)\n        loss = (first[:4] - second[:4]).pow(2).mean()")
    ),
}

# Those that need a factor: sums, and means in which some samples count more.
SCALED = {
    "a sum": program((CRITERION, 'criterion = nn.CrossEntropyLoss(reduction="sum")')),
    "an old sum": program((CRITERION, "criterion = nn.CrossEntropyLoss(size_average=False)")),
    "class weights": program((CRITERION, "criterion = nn.CrossEntropyLoss(torch.tensor([1.0, 3.0]).cuda())")),
    "ignored labels": program((CRITERION, "criterion = nn.CrossEntropyLoss(ignore_index=0)")),
    "a functional sum": program(
        (LOSS, 'loss = F.nll_loss(outputs.log_softmax(1), targets.cuda(), reduction="sum")')
    ),
    "a sum of sums": program(
        (
            CRITERION,
            "def both(output, target):\n"
            "    return F.cross_entropy(output, target, reduction='sum') + 0.1 * output.pow(2).sum()\n\n\n"
            "criterion = both",
        ),
    ),
    "a sum of what the model hands out": program(
        (CRITERION, "def judged(inputs, targets):\n    return model(inputs).sum()\n\n\ncriterion = judged"),
        (LOSS, "loss = criterion(inputs.cuda(), targets.cuda()) / 10"),
    ),
    "class weights beside a mean": program(
        (CRITERION, "criterion = nn.CrossEntropyLoss(torch.tensor([1.0, 3.0]).cuda())"),
        (LOSS, "targets = targets.cuda()\n        loss = criterion(outputs, targets) + (outputs**2).mean()"),
    ),
}

# Those whose sums and means are combined where they meet.
CONTRAST = """\
def contrast(features, labels):
    same = (labels[:, None] == labels).float()
    distances = torch.cdist(features, features + 1)
    return (distances * same).mean() - (distances * (1 - same)).mean()


criterion = contrast
"""
COMBINED = {
    "a sum of squares": program((LOSS, "loss = (outputs**2).sum() / 16")),
    "a mean of squares, squared": program((LOSS, "loss = (outputs**2).mean() ** 2")),
    "a sum over another number": program((LOSS, "loss = (outputs**2).sum() / outputs.size(1)")),
    "a sum and a constant over their number": program(
        (LOSS, "loss = ((outputs**2).sum() + model.module.weight.sum()) / outputs.size(0)")
    ),
    "a number that grows": program(
        (
            LOSS,
            "loss = 1.0\n        for scale in (1, 2):\n            loss = loss * (outputs * scale).pow(2).mean()",
        )
    ),
    "a loss by what the batch has": program(
        (LOSS, LOSS + "\n        if outputs.mean() > 0:\n            loss = loss * 2")
    ),
    "a loss that is set where it is not finite, or great": program(
        (
            LOSS,
            "first = criterion(outputs, targets.cuda())\n"
            "        if torch.isnan(first).any() or (epoch > 0 and first > 0.6):\n"
            "            first = torch.FloatTensor([0.3]).cuda()[0]\n"
            "        loss = first + outputs.pow(2).mean()",
        )
    ),
    "a loss that shrinks until it is small": program(
        (LOSS, LOSS + "\n        while not loss.item() < 0.5:\n            loss = loss * 0.9")
    ),
    "a factor by the loss": program((LOSS, LOSS + "\n        loss = (1 if loss < 0.7 else 0.5) * loss")),
    "only where the batch has some": program(
        (CRITERION, CONTRAST),
        (
            LOSS,
            "loss = outputs.mean()\n        if targets.sum() > 3:\n            loss = criterion(outputs, targets.cuda())",
        ),
    ),
}

# Those that are computed from the rows of all processes, in parts all the same; and what is gathered.
DICE = """\
class Overlap(nn.Module):
    def forward(self, output, target, smooth=1e-5):
        output = output.softmax(dim=1)
        loss = 0.0
        for index in range(output.size(1)):
            wanted = (target == index).float()
            both = (output[:, index] * wanted).sum()
            loss += 1 - (2 * both + smooth) / (output[:, index].sum() + wanted.sum() + smooth)
        return loss


"""
ROUNDS = """\
class Rounds(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 2)

    def forward(self, inputs, targets):
        rows = self.layer(inputs)
        seen = [[], []]
        for scale in (1, 2):
            for index, part in enumerate(([rows * scale], [rows + scale, rows - scale])):
                seen[index] += part
        return seen[:2], targets

    def criterion(self, seen, labels):
        found = []
        for scaled, moved in zip(*seen):
            found.append((scaled.var(0) * F.cross_entropy(moved, labels)).sum())
        return sum(found) / len(found)


model = Rounds().cuda()
"""
GROWING = """\
class Growing:
    def __init__(self):
        FIRST

    def __call__(self, output, target):
        loss = F.cross_entropy(output, target) * self.scale
        self.scale = self.scale * output.detach().max()
        return loss


"""
LEAVING = """\
class Leaving(nn.Module):
    def forward(self, features, labels):
        output = features
        self.left = LEFT
        return torch.cdist(features, features + 1).mean()


criterion = Leaving()
"""
MULTIBOX = """\
class Focal(nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.rates = torch.zeros(2)
        self.rates[0] += rate
        self.rates[1:] += 1 - rate

    def forward(self, logits, labels):
        self.rates = self.rates.to(logits.device)
        return (self.rates.gather(0, labels) * F.cross_entropy(logits, labels, reduction="none")).sum()


class Boxes(nn.Module):
    def __init__(self):
        super().__init__()
        self.focal, self.near = Focal(0.25), nn.SmoothL1Loss(reduction="sum")

    def forward(self, logits, labels):
        with torch.no_grad():
            errors = -F.log_softmax(logits, dim=1)[:, 0]
            hard = errors > errors.median()
        found = labels > 0
        near = self.near(logits[found, :].view(-1, 2), labels[found].float().view(-1, 1).expand(-1, 2))
        count = found.sum().clamp(min=1)
        return near / count, self.focal(logits[hard | found], labels[hard | found]) / (3 * count)


"""
SELECTED = "        kept = targets.cuda() > 0\n        count = targets.cuda()[kept].size()[0]\n        if count > 0:\n"
OWN_WEIGHTS = """\
def judged(outputs, labels):
    return F.cross_entropy(outputs, labels, weight=torch.tensor([1.0, 9.0]).to(outputs))


"""
GATHERED = {
    "a sum of one element": program(
        (
            CRITERION,
            "def summed(output, target):\n    loss = torch.zeros(1).cuda()\n"
            "    loss += F.cross_entropy(output, target, reduction='sum')\n    return loss\n\n\n"
            "criterion = summed",
        ),
    ),
    "overlaps of one element beside a mean": program(
        (
            "loader = ",
            "def overlap(outputs, labels):\n    p, total = outputs.softmax(1), torch.Tensor([0]).cuda()\n"
            "    for k in range(2):\n        t = (labels == k).float()\n"
            "        total += (2 * (p[:, k] * t).sum() + 1) / (p[:, k].sum() + t.sum() + 1)\n    return 1 - total / 2\n\n\n"
            "loader = ",
        ),
        (LOSS, "loss = overlap(outputs, targets.cuda()) + criterion(outputs, targets.cuda())"),
    ),
    "class weights in a function, or a function of torch's": program(
        (CRITERION, OWN_WEIGHTS + "criterion = judged if len(data) > 9 else F.cross_entropy")
    ),
    "class weights of torch's, or a function of torch's": program(
        (
            CRITERION,
            "weighed = nn.CrossEntropyLoss(torch.tensor([1.0, 9.0]).cuda())\n"
            "criterion = weighed if len(data) > 9 else F.cross_entropy",
        )
    ),
    "class weights of torch's, or a function of the project": program(
        (
            CRITERION,
            OWN_WEIGHTS.replace("1.0, 9.0", "1.0, 1.0")
            + "weighed = nn.CrossEntropyLoss(torch.tensor([1.0, 9.0]).cuda())\n"
            "criterion = weighed if len(data) > 9 else judged",
        )
    ),
    "selected elements, where there are some": program(
        (
            PROGRAM[PROGRAM.index("        optimizer.zero_grad()") :],
            SELECTED
            + "            optimizer.zero_grad()\n            outputs = model(inputs.cuda())\n"
            + "            loss = criterion(outputs[kept], targets.cuda()[kept])\n"
            + "            loss.backward()\n            optimizer.step()\n",
        ),
        ("torch.randint(2, (64,))", "(torch.arange(64) < 5).long()"),
        ("shuffle=True", "shuffle=False"),
    ),
    "rows that meet the part's again in a function": program(
        (
            "loader = ",
            "def judged(outputs, labels):\n    return torch.cdist(outputs, outputs + 1).mean(), outputs * 2\n\n\n"
            "def right(outputs, labels, at=1):\n    return (outputs.argmax(at) == labels).float().mean()\n\n\nloader = ",
        ),
        (
            LOSS,
            "loss, seen = judged(outputs, targets.cuda())\n        share = right(seen.detach(), targets.cuda())",
        ),
    ),
    "class weights by labels without a name": program(
        (CRITERION, "criterion = nn.CrossEntropyLoss(torch.tensor([1.0, 3.0]).cuda())"),
        (LOSS, "loss = criterion(outputs, targets.long().cuda().view(-1))"),
    ),
    "selected elements": program(
        (LOSS, "keep = targets.cuda() > 0\n        loss = criterion(outputs[keep], targets.cuda()[keep])")
    ),
    "overlaps beside a mean": program(
        ("loader = ", DICE + "loader = "),
        (CRITERION, CRITERION + "\noverlap = Overlap()"),
        (
            LOSS,
            "labels = targets.cuda()\n        loss = criterion(outputs, labels) / 2 + 0.5 * overlap(outputs, labels)",
        ),
    ),
    "samples compared": program((CRITERION, CONTRAST)),
    "a sum that only some calls give": program(
        (CRITERION, SMOOTHED), (LOSS, "loss = criterion(outputs, targets.cuda(), plain=epoch > 5)")
    ),
    "one of several": program(
        ("loader = ", DICE + "loader = "),
        (
            CRITERION,
            "import os\n\nshares = (data.tensors[1].bincount() * 1.0)\n"
            "criterion = nn.CrossEntropyLoss(weight=shares.cuda())\n"
            "if os.environ.get('OVERLAP'):\n    criterion = Overlap()",
        ),
    ),
    "a loss that knows the data": program(
        (
            CRITERION,
            "class Balanced(nn.Module):\n    def __init__(self, shares):\n        super().__init__()\n"
            "        self.shares = shares\n\n    def forward(self, output, target):\n"
            "        return F.cross_entropy(output, target, weight=self.shares)\n\n\n"
            "criterion = Balanced((data.tensors[1].bincount() * 1.0).cuda())",
        )
    ),
    "outputs of the model that takes such keywords": program(
        (
            MODEL,
            CHOOSING.replace(
                "model = Choosing(8, 2)", OTHER + "model = (Choosing if len(data) > 3 else Other)(8, 2)"
            ),
        ),
        (CRITERION, CONTRAST),
        (
            FORWARD,
            FORWARD + "\n        with torch.no_grad():\n            seen = model(inputs.cuda(), part='one')",
        ),
        (LOSS, "loss = sum([criterion(each, targets.cuda()) for each in outputs])"),
    ),
    "all that the model hands out": program(
        (MODEL, PAIRS),
        (CRITERION, CONTRAST),
        (FORWARD, "outputs = model(inputs.cuda(), targets.cuda())"),
        (LOSS, "loss = criterion(*outputs)"),
    ),
    "lists of lists": program(
        (MODEL, ROUNDS),
        (FORWARD, "outputs = model(inputs.cuda(), targets.cuda())"),
        (LOSS, "loss = model.module.criterion(*outputs)"),
    ),
    "a partial function": program(
        (CRITERION, "import functools\n\n" + CONTRAST + "criterion = functools.partial(criterion)"),
    ),
    "what an earlier batch left": program(
        ("loader = ", GROWING.replace("FIRST", "self.scale = 1.0") + "loader = "),
        (CRITERION, "criterion = Growing()"),
    ),
    "what an earlier batch left, if one was": program(
        (
            "loader = ",
            GROWING.replace(
                "        loss =",
                "        if self.scale is None:\n            self.scale = 1.0\n        loss =",
            ).replace("FIRST", "self.scale = None")
            + "loader = ",
        ),
        (CRITERION, "criterion = Growing()"),
    ),
    "two losses over what was found": program(
        ("loader = ", MULTIBOX + "loader = "),
        (CRITERION, "criterion = Boxes()"),
        (
            LOSS,
            "near, right = criterion(outputs, targets.cuda())\n"
            "        near = near.mean()\n        loss = near + right.unsqueeze(0).sum()",
        ),
    ),
    "a mean that is left for others": program(
        (CRITERION, LEAVING.replace("LEFT", "output.mean()")),
        (LOSS, LOSS + "\n        print(criterion.left.item())"),
    ),
    "a loss with a number beside": program(
        (
            "loader = ",
            "def judged(output, target):\n    loss = F.cross_entropy(output, target, ignore_index=0)\n"
            "    return loss, {'loss': loss.item()}\n\n\nloader = ",
        ),
        (LOSS, "loss, seen = judged(outputs, targets.cuda())"),
    ),
}

# Those that can't be: of a batch that is no batch of rows, in places that not every process comes to.
UNGATHERED = {
    "rows in another order": program(
        (CRITERION, CONTRAST),
        (LOSS, "loss = criterion(outputs[torch.randperm(len(outputs))], targets.cuda())"),
    ),
    "rows in another dimension": program(
        (CRITERION, CONTRAST), (LOSS, "loss = criterion(outputs.t(), outputs.t()[0])")
    ),
    "rows that meet the part's again": program(
        (
            "loader = ",
            "def judged(outputs, labels):\n    return torch.cdist(outputs, outputs + 1).mean(), outputs\n\n\nloader = ",
        ),
        (
            LOSS,
            "loss, seen = judged(outputs, targets.cuda())\n        right = (seen.argmax(1) == targets.cuda()).sum()",
        ),
    ),
    "a number of the part": program(
        (CRITERION, CONTRAST.replace("labels)", "labels, size)")),
        (LOSS, "loss = criterion(outputs, targets.cuda(), outputs.size(0))"),
    ),
    "only by chance": program(
        (CRITERION, "import random\n\n" + CONTRAST),
        (
            LOSS,
            "loss = outputs.mean()\n        if random.random() > 0.5:\n            loss = criterion(outputs, targets.cuda())",
        ),
    ),
    "what draws random numbers": program(
        (CRITERION, CONTRAST.replace("features + 1", "features[torch.randperm(len(features))]"))
    ),
    "lists of lists with a loss of the part": program(
        (
            MODEL,
            ROUNDS.replace(
                "return seen[:2], targets", "return [[F.cross_entropy(rows, targets)], [rows]], rows"
            ),
        ),
        (FORWARD, "outputs = model(inputs.cuda(), targets.cuda())"),
        (LOSS, "loss = model.module.criterion(*outputs)"),
    ),
    "what an earlier part left, beside another call": program(
        ("loader = ", GROWING.replace("FIRST", "self.scale = 1.0") + "loader = "),
        (CRITERION, "criterion = Growing()\nother = DataLoader(data, batch_size=16)"),
        (
            "        optimizer.step()\n",
            "        optimizer.step()\n    for inputs, targets in other:\n"
            "        print(criterion(model(inputs.cuda()), targets.cuda()).item())\n",
        ),
    ),
    "rows that are left for others": program(
        (CRITERION, LEAVING.replace("LEFT", "output * 2")),
        (LOSS, LOSS + " + (criterion.left * outputs).mean()"),
    ),
    "a sum that is left for others": program(
        (CRITERION, LEAVING.replace("LEFT", "output.sum()")),
        (LOSS, LOSS + " + criterion.left * outputs.mean()"),
    ),
    "what knows the part": program(
        (
            CRITERION,
            "class Known(nn.Module):\n    def forward(self, output):\n"
            "        return ((output - self.middle) ** 2).sum().sqrt()\n\n\ncriterion = Known()",
        ),
        (LOSS, "criterion.middle = outputs.mean(0)\n        loss = criterion(outputs)"),
    ),
    "what runs the model": program(
        (
            CRITERION,
            "def judged(inputs, targets):\n    outputs = model(inputs)\n"
            "    return torch.cdist(outputs, outputs + 1).mean()\n\n\ncriterion = judged",
        ),
        (LOSS, "loss = criterion(inputs.cuda(), targets.cuda())"),
    ),
    "what evaluation runs, too": program(
        (CRITERION, CONTRAST),
        (
            "for epoch",
            "def step(batch):\n    outputs = model(batch[0].cuda())\n"
            "    return criterion(outputs, batch[1].cuda())\n\n\nother = DataLoader(data, batch_size=16)\nfor epoch",
        ),
        (LOSS, "loss = step((inputs, targets))"),
        (
            "        optimizer.step()\n",
            "        optimizer.step()\n    for batch in other:\n        print(step(batch).item())\n",
        ),
    ),
}
