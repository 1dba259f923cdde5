"""Small programs before and after, right and with one mistake each: what `dp2ddp verify` must tell apart."""

from __future__ import annotations

from dataclasses import dataclass

BEFORE = """\
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
test = TensorDataset(torch.randn(30, 8), torch.randint(2, (30,)))
loader = DataLoader(data, batch_size=16, shuffle=True)
test_loader = DataLoader(test, batch_size=10)
net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
model = nn.DataParallel(net).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    model.train()
    for inputs, targets in loader:
        inputs, targets = inputs.cuda(), targets.cuda()
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = F.cross_entropy(outputs, targets)
        loss.backward()
        optimizer.step()
    model.eval()
    correct = 0
    with torch.no_grad():
        for inputs, targets in test_loader:
            correct += (model(inputs.cuda()).argmax(1) == targets.cuda()).sum().item()
    print(f"epoch {epoch}: accuracy {correct / 30:.4f}")
    torch.save(model.state_dict(), "model.pt")
"""
AFTER = """\
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from dp2ddp import runtime as ddp

ddp.init()
torch.manual_seed(3)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
test = TensorDataset(torch.randn(30, 8), torch.randint(2, (30,)))
sampler = DistributedSampler(data, shuffle=True, seed=ddp.shared_seed())
loader = DataLoader(data, batch_size=ddp.local_batch_size(16), sampler=sampler)
test_loader = DataLoader(test, batch_size=10)
net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
model = ddp.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    sampler.set_epoch(epoch)
    model.train()
    for inputs, targets in loader:
        inputs, targets = inputs.cuda(), targets.cuda()
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = F.cross_entropy(outputs, targets)
        loss.backward()
        optimizer.step()
    model.eval()
    correct = 0
    with torch.no_grad():
        for inputs, targets in test_loader:
            correct += (model(inputs.cuda()).argmax(1) == targets.cuda()).sum().item()
    ddp.print(f"epoch {epoch}: accuracy {correct / 30:.4f}")
    ddp.save(model.module.state_dict(), "model.pt")
"""
LOSS = "loss = F.cross_entropy(outputs, targets)"
SAVE = 'torch.save(model.state_dict(), "model.pt")'
SAVED = 'ddp.save(model.module.state_dict(), "model.pt")'
WRAP = "model = ddp.DistributedDataParallel(net)"
NET = "net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))"
OPTIMIZER = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
STEP = "        optimizer.step()\n"
SCHEDULE = "\nschedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)"
CLIP = "        nn.utils.clip_grad_norm_(model.parameters(), 0.05)\n"
TWO_OPTIMIZERS = """\
optimizer = torch.optim.SGD(net[0].parameters(), lr=0.1)
second = torch.optim.SGD(net[1:].parameters(), lr=0.1)"""
SAMPLED = "sampler=sampler)"
SHOWN = '    with torch.no_grad():\n        shown = model(fixed)\n    torch.save(shown.cpu(), "shown.pt")\n'
TORCHS = "model = nn.parallel.DistributedDataParallel(net)"
BEFORE_LOADER = "loader = DataLoader(data, batch_size=16, shuffle=True)"
AFTER_LOADER = """\
sampler = DistributedSampler(data, shuffle=True, seed=ddp.shared_seed())
loader = DataLoader(data, batch_size=ddp.local_batch_size(16), sampler=sampler)"""
TUPLES = """\
import numpy


class Noisy:
    def __len__(self):
        return len(data)

    def __getitem__(self, index):
        inputs, target = data[index]
        return inputs + torch.randn(8) + numpy.random.randint(3), target


class Batches:
    def __len__(self):
        return 4

    def __iter__(self):
        drawn = iter(numpy.random.permutation(64))
        return zip(*[drawn] * 16)


"""
DICTIONARIES = TUPLES.replace("data[index]", 'data[index["rows"][0]]').replace(
    "        return zip(*[drawn] * 16)", '        return zip(*[({"rows": (it, 0)} for it in drawn)] * 16)'
)
INITIALISED = """\
class Initialised(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(16))
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x):
        if self.training and self.calls == 0:
            self.shift.data.copy_(-x.mean(0))
        self.calls += self.training
        return x + self.shift


""" + NET.replace("nn.BatchNorm1d(16)", "Initialised()")
COUNTING = """\
class Counting(nn.Module):
    seen = 0

    def forward(self, x):
        self.seen += self.training
        return x * (1 - 0.01 * self.seen)


""" + NET.replace("nn.ReLU()", "nn.ReLU(), Counting()")
WEIGHED = "loss = F.cross_entropy(outputs, targets, weight=torch.tensor([1.0, 7.0]))"
IGNORED = "targets[inputs[:, 0] > 0.5] = -100\n        " + LOSS
SUMMED = 'loss = F.cross_entropy(outputs, targets, reduction="sum")'
PAIRWISE = "loss = F.cross_entropy(outputs @ outputs.t(), torch.arange(len(outputs)))"
OWN_BATCHES = """\
    order = torch.randperm(64, generator=torch.Generator().manual_seed(epoch))
    own = slice(0, 10) if ddp.get_rank() == 0 else slice(10, 16)
    loader = DataLoader(data, batch_sampler=[part[own].tolist() for part in order.split(16)])
"""
AUGMENTED = """\
class Noisy(TensorDataset):
    def __getitem__(self, index):
        inputs, target = super().__getitem__(index)
        return inputs + 0.1 * torch.randn(8), target


data = Noisy(torch.randn(64, 8), torch.randint(2, (64,)))"""
NOISY = (
    ("import torch\n", "import numpy\nimport torch\n"),
    ("torch.manual_seed(3)\n", "torch.manual_seed(3)\nnumpy.random.seed(3)\n"),
    (
        "        optimizer.zero_grad()\n",
        "        optimizer.zero_grad()\n"
        "        inputs = inputs + 0.5 * torch.randn_like(inputs) + numpy.random.rand()\n"
        "        inputs[:, 0] += torch.from_numpy(numpy.random.rand(len(inputs))).to(inputs)\n"
        "        more = torch.empty(len(inputs), 8)\n"
        "        more.uniform_(0, 1)\n"
        "        inputs = inputs * more\n",
    ),
)
NOISY_AFTER = (
    ("torch.randn_like(inputs)", "ddp.local_random(torch.randn_like)(inputs)"),
    ("numpy.random.rand(len", "ddp.local_random(numpy.random.rand)(len"),
    ("more.uniform_(", "ddp.local_random(more.uniform_)("),
)
UNEVEN = (("batch_size=16, shuffle=True)", "batch_size=15, shuffle=True)"),)
UNEVEN_AFTER = (
    (
        "loader = DataLoader(data, batch_size=ddp.local_batch_size(16), " + SAMPLED,
        "loader = ddp.shard(DataLoader(data, batch_size=15, shuffle=True))",
    ),
    ("    sampler.set_epoch(epoch)\n", ""),
)
AGAIN = """\
        second.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        second.step()
"""
ACCUMULATED = (
    ("in range(3)", "in range(6)"),
    ("for inputs, targets in loader:", "for place, (inputs, targets) in enumerate(loader):"),
    ("        optimizer.zero_grad()\n", ""),
    (STEP, "        if place % 2:\n            optimizer.step()\n            optimizer.zero_grad()\n"),
)
MORE = "more = {}\ntest_loader = DataLoader(test"
MORE_LOADER = "DataLoader(TensorDataset(torch.randn(60, 8), torch.randint(2, (60,))), batch_size=9)"
BOTH_LOSSES = (
    ("    for inputs, targets in loader:", "    rest = iter(more)\n    for inputs, targets in loader:"),
    (
        LOSS,
        LOSS + "\n        others, labels = next(rest)\n"
        "        loss = loss + F.cross_entropy(model(others.cuda()), labels.cuda())",
    ),
)
DEALS = """

class Deals:
    def __init__(self, sampler):
        self.sampler = sampler

    def __len__(self):
        return len(self.sampler)

    def __iter__(self):
        return iter(self.sampler)


"""
"""A sampler that does not say that it deals each process other samples."""
DATA = "data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))"

PRINT = 'print(f"epoch {epoch}: accuracy {correct / 30:.4f}")'
LOGS = ("import torch\n", "import logging\n\nimport torch\n")
WRITE = """\
with open("results.csv", "a") as results:
        print(epoch, correct / 30, time.time(), sep=",", file=results)"""
PART = (
    "test_loader = DataLoader(test, batch_size=10)",
    "test_loader = ddp.shard(DataLoader(test, batch_size=10), training=False)",
)

# the best checkpoint is copied, and each one gets its name when it is whole
KEEP = """\
{save}({state}, "new.pt")
    {main}os.replace("new.pt", "model.pt")
    if correct >= 0:
        {main}shutil.copyfile("model.pt", "best.pt")"""
KEPT = (("import torch\n", "import os\nimport shutil\n\nimport torch\n"),)
KEPT_BEFORE = ((SAVE, KEEP.format(save="torch.save", state="model.state_dict()", main="")),)
KEPT_AFTER = (
    (
        'ddp.save(model.module.state_dict(), "model.pt")',
        KEEP.format(save="ddp.save", state="model.module.state_dict()", main="if ddp.is_main_process(): "),
    ),
)

Changes = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Pair:
    """A program before and after, by what is other than above; ``both`` is made in both."""

    both: Changes = ()
    after: Changes = ()
    before: Changes = ()
    step: int | None = None
    what: str = ""
    cause: str = ""
    tensor: str = ""

    @property
    def texts(self) -> tuple[str, str]:
        return _changed(BEFORE, (*self.both, *self.before)), _changed(AFTER, (*self.both, *self.after))


def _changed(text: str, changes: Changes) -> str:
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


CALLED = """\
net.cuda()


def model(inputs):
    return nn.parallel.data_parallel(net, inputs, range(2)) if inputs.is_cuda else net(inputs)

"""
BY_HAND = (
    ("        optimizer.zero_grad()\n", "        model.zero_grad()\n"),
    (
        STEP,
        "        with torch.no_grad():\n            for it in model.parameters():\n"
        "                it.data.add_(it.grad, alpha=-0.1)\n",
    ),
)
WHOLE = (
    ("ddp.local_batch_size(16), " + SAMPLED, "16, shuffle=True)"),
    ("    sampler.set_epoch(epoch)\n", ""),
)
UNBALANCED = """

class Unbalanced({base}):
    def scatter(self, inputs, kwargs, device_ids):
        parts = inputs[0].split([len(inputs[0]) - 4, 4])
        return [(part.cuda(device),) for part, device in zip(parts, device_ids)], [kwargs] * len(parts)


"""
OF_TORCH, OF_RUNTIME = (UNBALANCED.format(base=it) for it in ("nn.DataParallel", "ddp.DataParallel"))
TIMED = (
    ("import torch\n", "import time\nfrom timeit import default_timer\n\nimport torch\n"),
    ("    model.train()\n", "    model.train()\n    began, passed = default_timer(), 0.0\n"),
    (STEP, STEP + "        passed += default_timer() - began\n"),
)
LIMITED = (TIMED[0], (STEP, STEP + "        if time.time() % 0.02 < 0.01:\n            optimizer.step()\n"))
RIGHT = {
    "the program": Pair(),
    "durations": Pair(
        both=(
            *TIMED,
            (" {correct / 30:.4f}", " {correct / 30:.4f} ({passed:.9f})"),
            (
                "    model.eval()",
                '    name = f"run_{int(1e9 * time.time())}"\n    open(name, "w").close()\n    model.eval()',
            ),
        ),
        after=(("    open(name", "    if ddp.is_main_process(): open(name"),),
    ),
    "float32 by name": Pair(
        both=(
            ("TensorDataset(torch.randn(64, 8)", "TensorDataset(torch.randn(64, 8, dtype=torch.float32)"),
            ("nn.Linear(16, 2))", "nn.Linear(16, 2)).float()"),
            ("model(inputs.cuda())", "model(inputs.cuda().to(dtype=torch.float32))"),
        ),
    ),
    "parameters updated without an optimizer": Pair(both=BY_HAND),
    "another number of devices": Pair(
        before=(("nn.DataParallel(net)", "nn.DataParallel(net, device_ids=[0])"),)
    ),
    "a parameter that no loss reaches, and that decays": Pair(
        both=(
            (NET, NET + '\nnet.register_parameter("spare", nn.Parameter(torch.ones(3)))'),
            ("lr=0.1)", "lr=0.1, weight_decay=0.1)"),
        ),
    ),
    "dropout": Pair(both=((NET, NET.replace("nn.ReLU()", "nn.ReLU(), nn.Dropout(0.5)")),)),
    "one model in two wraps": Pair(
        both=(
            (NET, NET.replace("nn.ReLU()", "nn.ReLU(), nn.Dropout(0.5)")),
            ("F.cross_entropy(outputs, targets)", "F.cross_entropy(outputs, targets) + 0 * inputs.sum()"),
            ("outputs = model(inputs)", "outputs = outer(inputs)"),
        ),
        before=((OPTIMIZER, "outer = nn.DataParallel(nn.Sequential(net))\n" + OPTIMIZER),),
        after=((OPTIMIZER, "outer = ddp.DistributedDataParallel(nn.Sequential(net))\n" + OPTIMIZER),),
    ),
    "a log with line numbers": Pair(
        both=(
            (
                OPTIMIZER,
                OPTIMIZER + "\nimport logging, sys\nlogging.basicConfig(stream=sys.stdout, level=20, "
                "format='%(lineno)d %(message)s')",
            ),
        ),
        before=((PRINT, PRINT.replace("print", "logging.info")),),
        after=(("ddp." + PRINT, "if ddp.is_main_process(): " + PRINT.replace("print", "logging.info")),),
    ),
    "noise for numpy's numbers of samples, in tuples": Pair(
        before=((BEFORE_LOADER, TUPLES + "loader = DataLoader(Noisy(), batch_sampler=Batches())"),),
        after=(
            (AFTER_LOADER, TUPLES + "loader = ddp.shard(DataLoader(Noisy(), batch_sampler=Batches()))"),
            ("    sampler.set_epoch(epoch)\n", ""),
        ),
    ),
    "samples asked for by dictionaries of numpy's numbers": Pair(
        before=((BEFORE_LOADER, DICTIONARIES + "loader = DataLoader(Noisy(), batch_sampler=Batches())"),),
        after=(
            (AFTER_LOADER, DICTIONARIES + "loader = ddp.shard(DataLoader(Noisy(), batch_sampler=Batches()))"),
            ("    sampler.set_epoch(epoch)\n", ""),
        ),
    ),
    "dropout in a forward called by its name": Pair(
        both=((NET, NET.replace("nn.ReLU()", "nn.ReLU(), nn.Dropout(0.5)")),),
        before=(("outputs = model(inputs)", "outputs = model.forward(inputs)"),),
    ),
    "a network that calls data_parallel": Pair(
        both=(
            ("model.train()", "net.train()"),
            ("model.eval()", "net.eval()"),
            ("model.parameters", "net.parameters"),
        ),
        before=(
            ("model = nn.DataParallel(net).cuda()", CALLED),
            ("model.state_dict", "net.state_dict"),
        ),
    ),
    "a forward that writes a parameter": Pair(both=((NET, INITIALISED),)),
    "a forward that stores attributes": Pair(both=((NET, COUNTING),)),
    "augmentation": Pair(both=((DATA, AUGMENTED),)),
    "noise in the loop": Pair(both=NOISY, after=NOISY_AFTER),
    "noise in the loop, for parts that differ in size": Pair(
        both=NOISY,
        before=UNEVEN,
        after=(*NOISY_AFTER, *UNEVEN_AFTER),
    ),
    "two losses of each batch, for parts that differ in size": Pair(
        both=((OPTIMIZER, TWO_OPTIMIZERS), (STEP, STEP + AGAIN)), before=UNEVEN, after=UNEVEN_AFTER
    ),
    "one loss of two batches that the ranks share otherwise": Pair(
        both=BOTH_LOSSES,
        before=(*UNEVEN, ("test_loader = DataLoader(test", MORE.format(MORE_LOADER))),
        after=(*UNEVEN_AFTER, ("test_loader = DataLoader(test", MORE.format(f"ddp.shard({MORE_LOADER})"))),
    ),
    "gradients of two batches, for parts that differ in size": Pair(
        both=ACCUMULATED, before=UNEVEN, after=UNEVEN_AFTER
    ),
    "noise in the loop, and an evaluation of which the processes have different numbers of batches": Pair(
        both=NOISY,
        after=(
            *NOISY_AFTER,
            ("in test_loader:", "in ddp.shard_batches(test_loader):"),
            ("    ddp.print(f", "    correct = ddp.sum(correct)\n    ddp.print(f"),
        ),
    ),
    "a forward in training mode of what all processes have": Pair(
        both=(
            ("for epoch in range(3):\n", "fixed = torch.randn(12, 8)\nfor epoch in range(3):\n"),
            ("    model.eval()\n", SHOWN + "    model.eval()\n"),
        ),
        after=(
            ("shown = model(fixed)", "shown = ddp.data_parallel(model.module, fixed)"),
            ("torch.save(shown", "ddp.save(shown"),
        ),
    ),
    "a batch of the evaluation's amid each training step": Pair(
        both=(
            (
                STEP,
                STEP
                + "        model.eval()\n        shown = model(next(iter(test_loader))[0].cuda())\n        model.train()\n",
            ),
        ),
    ),
    "augmentation in workers": Pair(
        both=((DATA, AUGMENTED),),
        before=(("shuffle=True)", "shuffle=True, num_workers=2)"),),
        after=((SAMPLED, "sampler=sampler, num_workers=2)"),),
    ),
    "augmentation of whole batches": Pair(
        both=((DATA, AUGMENTED),), after=(*WHOLE, (WRAP, "model = ddp.DataParallel(net)"))
    ),
    "loader workers": Pair(
        both=((DATA, AUGMENTED), ("batch_size=", "num_workers=1, batch_size=")),
    ),
    "an uneven last batch": Pair(
        both=(
            ("torch.randn(64, 8), torch.randint(2, (64,))", "torch.randn(52, 8), torch.randint(2, (52,))"),
        ),
    ),
    "a sum, scaled": Pair(
        both=((LOSS, SUMMED), ("lr=0.1", "lr=0.01")),
        after=(("loss.backward()", 'ddp.batch_loss(loss, reduction="sum").backward()'),),
    ),
    "class weights, weighed": Pair(
        both=((LOSS, WEIGHED),),
        after=(
            ("loss.backward()", "ddp.batch_loss(loss, torch.tensor([1.0, 7.0])[targets].sum()).backward()"),
        ),
    ),
    "similarities, gathered": Pair(
        both=((LOSS, PAIRWISE),),
        after=(("outputs = model(inputs)", "outputs = ddp.whole_batch(model(inputs))"),),
    ),
    "whole batches": Pair(
        both=((LOSS, PAIRWISE),),
        after=(*WHOLE, (WRAP, "model = ddp.DataParallel(net)")),
    ),
    "parts of an own class": Pair(
        before=((NET, OF_TORCH + NET), ("nn.DataParallel(net).cuda()", "Unbalanced(net).cuda()")),
        after=(*WHOLE, (NET, OF_RUNTIME + NET), (WRAP, "model = Unbalanced(net)")),
    ),
    "a sharded loader": Pair(
        after=(
            (
                "loader = DataLoader(data, batch_size=ddp.local_batch_size(16), " + SAMPLED,
                "loader = ddp.shard(DataLoader(data, batch_size=16, shuffle=True))",
            ),
        ),
    ),
    "torch's own wrapper": Pair(after=((WRAP, TORCHS),)),
    "Adam": Pair(both=(("optim.SGD", "optim.Adam"),)),
    "numbers in files": Pair(
        both=(("import torch\n", "import time\n\nimport torch\n"),),
        before=(
            (PRINT, WRITE),
            (SAVE, SAVE.replace("model.state_dict()", '{"model": model.state_dict(), "accuracy": correct}')),
        ),
        after=(
            ("ddp." + PRINT, "if ddp.is_main_process():\n        " + WRITE.replace("\n", "\n    ")),
            ("model.module.state_dict()", '{"model": model.module.state_dict(), "accuracy": correct}'),
        ),
    ),
    "a wrapped model is saved as the bare one": Pair(
        before=((SAVE, SAVE.replace("model.state_dict()", "model")),),
        after=((SAVED, SAVED.replace("model.module.state_dict()", "model")),),
    ),
    "copies of checkpoints": Pair(both=KEPT, before=KEPT_BEFORE, after=KEPT_AFTER),
}

WRONG = {
    "each rank's clock decides": Pair(both=LIMITED, what="end", cause="replica"),
    "another learning rate, without an optimizer": Pair(
        both=BY_HAND,
        after=(("alpha=-0.1", "alpha=-0.11"),),
        step=1,
        what="parameter",
        cause="optimizer",
        tensor="Sequential.0.weight",
    ),
    "the batch size is not divided": Pair(
        after=(("ddp.local_batch_size(16)", "16"),), step=1, what="global batch", cause="batch size"
    ),
    "set_epoch is missing": Pair(
        after=(("    sampler.set_epoch(epoch)\n", ""),),
        step=5,
        what="order of the samples",
        cause="set_epoch",
    ),
    "the sampler is missing": Pair(
        after=((SAMPLED, "shuffle=True)"),), step=1, what="order of the samples", cause="sampler"
    ),
    "the sampler's seed differs": Pair(
        after=(("seed=ddp.shared_seed()", "seed=ddp.get_rank()"),), what="order of the samples", cause="seed"
    ),
    "the sampler does not shuffle": Pair(
        after=(("shuffle=True", "shuffle=False"),), step=1, what="order of the samples", cause="shuffle"
    ),
    "the sampler shuffles what was not": Pair(
        before=(("shuffle=True", "shuffle=False"),), step=1, what="order of the samples", cause="shuffle"
    ),
    "the last batch is kept": Pair(
        both=(
            ("torch.randn(64, 8), torch.randint(2, (64,))", "torch.randn(62, 8), torch.randint(2, (62,))"),
        ),
        before=(("shuffle=True", "shuffle=True, drop_last=True"),),
        step=4,
        what="length of an epoch",
        cause="last batch",
    ),
    "a sum is not scaled": Pair(
        both=((LOSS, SUMMED), ("lr=0.1", "lr=0.01")), step=1, what="loss", cause="reduction"
    ),
    "class weights of a part": Pair(both=((LOSS, WEIGHED),), step=1, what="loss", cause="weights"),
    "ignored samples of a part": Pair(both=((LOSS, IGNORED),), step=1, what="loss", cause="weights"),
    "similarities within a part": Pair(
        both=((LOSS, PAIRWISE),), step=1, what="loss", cause="whole-batch loss"
    ),
    "parts that differ in size": Pair(
        both=(("nn.BatchNorm1d(16), ", ""),),
        after=(("    sampler.set_epoch(epoch)\n", OWN_BATCHES),),
        step=1,
        what="gradient",
        cause="uneven parts",
        tensor="Sequential.0.weight",
    ),
    "the loss is scaled": Pair(
        after=(("loss.backward()", "(loss * ddp.get_world_size()).backward()"),),
        step=1,
        what="loss",
        cause="gradient factor",
    ),
    "parts of an own class are lost": Pair(
        before=((NET, OF_TORCH + NET), ("nn.DataParallel(net).cuda()", "Unbalanced(net).cuda()")),
        after=(*WHOLE, (WRAP, "model = ddp.DataParallel(net)")),
        step=1,
        what="loss",
        cause="buffers",
    ),
    "the wrapper is bypassed": Pair(
        after=((WRAP, TORCHS), ("outputs = model(inputs)", "outputs = model.module(inputs)")),
        step=1,
        what="gradient",
        cause="bypassed forward",
        tensor="Sequential.0.weight",
    ),
    "the model is not wrapped": Pair(
        after=((WRAP, "model = net"), ("model.module", "model")),
        step=1,
        what="gradient",
        cause="unsynchronised",
        tensor="Sequential.0.weight",
    ),
    "a head is not wrapped": Pair(
        both=(
            (
                OPTIMIZER,
                "head = nn.Linear(2, 2).cuda()\n"
                "optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)",
            ),
            ("outputs = model(inputs)", "outputs = head(model(inputs))"),
        ),
        step=1,
        what="gradient",
        cause="unwrapped head",
        tensor="Linear.weight",
    ),
    "gradients change before the average": Pair(
        both=(
            (
                OPTIMIZER,
                OPTIMIZER + "\nnet[3].weight.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))",
            ),
        ),
        step=1,
        what="gradient",
        cause="gradient",
        tensor="Sequential.3.weight",
    ),
    "buffers are averaged": Pair(
        after=(
            (
                "        optimizer.step()\n",
                "        optimizer.step()\n        for buffer in (net[1].running_mean, net[1].running_var):\n"
                "            buffer.copy_(ddp.mean(buffer))\n",
            ),
        ),
        step=2,
        what="buffer",
        cause="buffers",
        tensor="Sequential.1.running_mean",
    ),
    "the learning rate is scaled": Pair(
        after=(("lr=0.1", "lr=0.1 * ddp.get_world_size()"),),
        step=1,
        what="learning rate",
        cause="learning rate",
    ),
    "the optimizer has other options": Pair(
        after=(("lr=0.1", "lr=0.1, weight_decay=0.01"),),
        step=1,
        what="options",
        cause="options",
    ),
    "the learning rate is three times as large": Pair(
        after=(("lr=0.1", "lr=0.3"),), step=1, what="learning rate", cause="learning rate"
    ),
    "the global batch is twice as large": Pair(
        after=(("local_batch_size(16)", "local_batch_size(32)"),),
        step=1,
        what="global batch",
        cause="batch size",
    ),
    "a schedule runs after every batch": Pair(
        before=(
            (OPTIMIZER, OPTIMIZER + SCHEDULE),
            ("    model.eval()", "    schedule.step()\n    model.eval()"),
        ),
        after=((OPTIMIZER, OPTIMIZER + SCHEDULE), (STEP, STEP + "        schedule.step()\n")),
        step=2,
        what="learning rate",
        cause="learning rate",
    ),
    "weight decay is lost": Pair(
        before=(("lr=0.1", "lr=0.1, weight_decay=1e-6"),), step=1, what="options", cause="options"
    ),
    "parameters lose their own group": Pair(
        before=(
            (
                "SGD(model.parameters()",
                'SGD([{"params": net[0].parameters()}, {"params": [*net[1:].parameters()]}]',
            ),
        ),
        step=1,
        what="options",
        cause="options",
    ),
    "a layer is frozen": Pair(
        after=((NET, NET + "\nnet[3].bias.requires_grad_(False)"),),
        step=1,
        what="gradient",
        cause="gradient",
        tensor="Sequential.3.bias",
    ),
    "a step is skipped": Pair(
        after=(
            ("for inputs, targets in loader:", "for place, (inputs, targets) in enumerate(loader):"),
            (STEP, "        if place != 1:\n    " + STEP),
        ),
        step=2,
        what="number of losses",
        cause="decision",
    ),
    "a batch is skipped": Pair(
        after=(
            ("for inputs, targets in loader:", "for place, (inputs, targets) in enumerate(loader):"),
            (
                "        optimizer.zero_grad()",
                "        if place == 1:\n            continue\n        optimizer.zero_grad()",
            ),
        ),
        step=2,
        what="loss",
        cause="buffers",
    ),
    "a layer keeps other averages": Pair(
        after=(("nn.BatchNorm1d(16)", "nn.BatchNorm1d(16, momentum=0.2)"),),
        step=1,
        what="buffer",
        cause="buffers",
        tensor="Sequential.1.running_mean",
    ),
    "gradients are clipped elsewhere": Pair(
        both=((STEP, CLIP + STEP),),
        after=(("0.05)", "0.06)"),),
        step=1,
        what="gradient",
        cause="gradient",
        tensor="Sequential.0.weight",
    ),
    "a second optimizer is not stepped": Pair(
        both=((OPTIMIZER, TWO_OPTIMIZERS),),
        before=((STEP, STEP + "        second.step()\n"),),
        step=2,
        what="number of steps",
        cause="steps",
    ),
    "more is dropped": Pair(
        both=((NET, NET.replace("nn.ReLU()", "nn.ReLU(), nn.Dropout(0.5)")),),
        after=(("Dropout(0.5)", "Dropout(0.6)"),),
        step=1,
        what="loss",
        cause="whole-batch loss",
    ),
    "a checkpoint is a dictionary of another kind": Pair(
        after=(("model.module.state_dict()", '{"model": model.module.state_dict()}'),),
        step=4,
        what="checkpoint",
        cause="checkpoint keys",
    ),
    "every process runs in training mode what all have": Pair(
        both=(
            ("for epoch in range(3):\n", "fixed = torch.randn(12, 8)\nfor epoch in range(3):\n"),
            ("    model.eval()\n", SHOWN + "    model.eval()\n"),
        ),
        after=(("torch.save(shown", "ddp.save(shown"),),
        step=4,
        what="checkpoint",
        cause="contents",
        tensor="model.pt",
    ),
    "every process draws the same noise in the loop": Pair(both=NOISY, step=1, what="loss", cause="streams"),
    "every process augments alike": Pair(
        both=((DATA, AUGMENTED),),
        after=(("ddp.init()\n", "ddp.init()\n" + DEALS), (SAMPLED, "sampler=Deals(sampler))")),
        step=1,
        what="random numbers",
        cause="streams",
    ),
    "every process's workers augment alike": Pair(
        both=((DATA, AUGMENTED),),
        before=(("shuffle=True)", "shuffle=True, num_workers=2)"),),
        after=(("ddp.init()\n", "ddp.init()\n" + DEALS), (SAMPLED, "sampler=Deals(sampler), num_workers=2)")),
        step=1,
        what="random numbers",
        cause="streams",
    ),
    "every process drops out alike": Pair(
        both=((NET, NET.replace("nn.ReLU()", "nn.ReLU(), nn.Dropout(0.5)")),),
        after=((WRAP, TORCHS),),
        step=1,
        what="random numbers",
        cause="streams",
    ),
    "the model begins elsewhere": Pair(
        after=(("net = nn.Seq", "torch.randn(1)\nnet = nn.Seq"),),
        step=0,
        what="start",
        cause="start",
        tensor="Sequential.0.weight",
    ),
    "each process keeps what its forward wrote": Pair(
        both=((NET, INITIALISED),),
        after=((WRAP, TORCHS),),
        step=0,
        what="start",
        cause="replica",
        tensor="Sequential.1.shift",
    ),
    "attributes that a forward stores are kept": Pair(
        both=((NET, COUNTING),),
        after=((WRAP, TORCHS),),
        step=2,
        what="loss",
        cause="attributes",
    ),
    "a process writes a parameter": Pair(
        after=(
            (WRAP, TORCHS),
            (
                "        optimizer.step()",
                "        optimizer.step()\n        net[0].bias.data += ddp.get_rank()",
            ),
        ),
        step=2,
        what="parameter",
        cause="replica",
        tensor="Sequential.0.bias",
    ),
    "a process writes a parameter, and the runtime sees it": Pair(
        after=(
            (
                "        optimizer.step()",
                "        optimizer.step()\n        net[0].bias.data += ddp.get_rank()",
            ),
        ),
        step=2,
        what="end",
        cause="replica",
    ),
    "a checkpoint has other keys": Pair(
        before=((SAVE, SAVE.replace("model.", "model.module.", 1)),),
        after=(("model.module.state_dict()", "model.state_dict()"),),
        step=4,
        what="checkpoint",
        cause="checkpoint keys",
    ),
    "a checkpoint needs its wrapper": Pair(
        before=((SAVE, SAVE.replace("model.state_dict()", '{"model": model}')),),
        after=(
            (WRAP, TORCHS),
            (SAVED, SAVED.replace("model.module.state_dict()", '{"model": model}')),
        ),
        step=4,
        what="checkpoint",
        cause="checkpoint keys",
    ),
    "every process saves": Pair(after=(("ddp.save", "torch.save"),), step=4, what="files", cause="files"),
    "the evaluation is of a part": Pair(after=(PART,), step=4, what="evaluation", cause="evaluation"),
    "a logged number is of a part": Pair(
        both=(LOGS,),
        before=((PRINT, PRINT.replace("print", "logging.warning")),),
        after=(("ddp." + PRINT, PRINT.replace("print", "logging.warning")), PART),
        step=4,
        what="evaluation",
        cause="evaluation",
    ),
    "a number in a file is of a part": Pair(
        both=(("import torch\n", "import time\n\nimport torch\n"),),
        before=((PRINT, WRITE),),
        after=(
            ("ddp." + PRINT, "if ddp.is_main_process():\n        " + WRITE.replace("\n", "\n    ")),
            PART,
        ),
        step=8,
        what="contents",
        cause="contents",
        tensor="results.csv",
    ),
    "a saved number is of a part": Pair(
        before=((PRINT, ""), (SAVE, SAVE.replace("model.state", '{"best": correct} | model.state'))),
        after=(("ddp." + PRINT, ""), ("model.module.state", '{"best": correct} | model.module.state'), PART),
        step=4,
        what="checkpoint",
        cause="contents",
        tensor="model.pt",
    ),
    "a copy has a number of a part": Pair(
        both=KEPT,
        before=((PRINT, ""), *KEPT_BEFORE, ("model.state", '{"best": correct} | model.state')),
        after=(
            ("ddp." + PRINT, ""),
            *KEPT_AFTER,
            ("model.module.state", '{"best": correct} | model.module.state'),
            PART,
        ),
        step=4,
        what="checkpoint",
        cause="contents",
        tensor="best.pt",
    ),
    "a checkpoint is copied once": Pair(
        both=KEPT,
        before=KEPT_BEFORE,
        after=(*KEPT_AFTER, ("correct >= 0", "epoch == 0")),
        step=8,
        what="checkpoint",
        cause="decision",
    ),
    "a collective is guarded": Pair(
        after=(
            (
                "    ddp.print(",
                "    if ddp.is_main_process():\n        correct = ddp.sum(correct)\n    ddp.print(",
            ),
        ),
        step=5,
        what="end",
        cause="collective",
    ),
    "a collective of torch's is guarded": Pair(
        after=(
            (
                "    ddp.print(",
                "    if ddp.is_main_process():\n        torch.distributed.all_reduce(torch.tensor(correct))\n    ddp.print(",
            ),
        ),
        step=5,
        what="end",
        cause="collective",
    ),
    "it fails": Pair(
        after=(("    model.eval()\n", "    assert ddp.get_rank() == 0\n    model.eval()\n"),),
        step=5,
        what="end",
        cause="error",
    ),
}
