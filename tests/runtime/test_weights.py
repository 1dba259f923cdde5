"""Parts of a global batch that differ in size: the steps of one process on the whole batch, in float64."""

import pytest
from jobs import write

TRAINING = """
import copy
from dataclasses import dataclass
from typing import NamedTuple
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from dp2ddp.runtime import graph, parts
torch.set_default_dtype(torch.float64)
ddp.init()
rank, world = ddp.get_rank(), ddp.get_world_size()

class Loader:
    pass
loader = Loader()

def draw(n, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 3, generator=generator), torch.randn(n, 2, generator=generator)

def own(*tensors, loader=loader):
    # this rank's chunk, as DataParallel scatters it; rank 0's for a rank that gets none
    columns = [tensor.chunk(world) for tensor in tensors]
    has = rank < len(columns[0])
    parts.drawn(loader, parts.Part(len(columns[0][rank]) if has else 0, len(tensors[0])))
    return [chunks[rank if has else 0] for chunks in columns]

@dataclass
class Out:
    logits: torch.Tensor
    more: dict

class Pair(NamedTuple):
    first: torch.Tensor
    second: list

class Writing(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
    def forward(self, x):
        return self.layer(x.relu_())

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
        self.head = nn.Linear(4, 2)
        self.scale = nn.Parameter(torch.ones(()))
    def encode(self, x):
        return self.body(x)
    def forward(self, x, form="plain"):
        features = checkpoint(self.body, x, use_reentrant=False) if form == "checkpoint" else self.encode(x)
        logits = self.head(features) * self.scale
        if form == "dataclass":
            return Out(logits, {"same": logits, "features": features, "name": "x", "n": 3, "none": None})
        if form == "pair":
            return Pair(features, [logits, self.scale])
        return logits

def check(name, model, single):
    for (key, p), q in zip(single.named_parameters(), model.parameters(), strict=True):
        assert (p - q).abs().max() <= 1e-12, (name, key, (p - q).abs().max().item())

def new():
    torch.manual_seed(0)
    single = Net()
    return single, ddp.DistributedDataParallel(copy.deepcopy(single))

def train(net, step, sizes, accumulation, split):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for i, n in enumerate(sizes):
        batch = draw(n, seed=i)
        (step(net, *(own(*batch) if split else batch)) / accumulation).backward()
        if (i + 1) % accumulation == 0:
            optimizer.step()
            optimizer.zero_grad()
"""

STEPS = """
def dataclass_(net, x, y):
    out = net(x, "dataclass")
    return F.mse_loss(out.logits, y) + out.more["features"].abs().mean() + out.more["same"].pow(2).mean()
def pair(net, x, y):  # the parameter is one of the outputs
    out = net(x, "pair")
    return F.mse_loss(out.second[0], y) * torch.exp(-out.second[1]) + out.first.pow(3).mean() + out.second[1]
def penalty(net, x, y):
    return F.mse_loss(net(x), y) + 0.1 * sum(p.pow(2).sum() for p in net.parameters())
def gradient_penalty(net, x, y):
    x = x.clone().requires_grad_()
    slope = torch.autograd.grad(net(x).sum(), x, create_graph=True)[0]
    return slope.pow(2).sum(1).sqrt().sub(1).pow(2).mean()
def slope_of_loss(net, x, y):  # whose own gradient depends on the parameters
    x = x.clone().requires_grad_()
    loss = (net(x) - y).pow(2).sum(1)
    slope = torch.autograd.grad(loss.sum(), x, create_graph=True)[0]
    return loss.mean() + slope.pow(2).sum(1).sqrt().mean()
def in_place(net, x, y):
    out = net(x)
    out[:, 0] *= 2
    return F.mse_loss(out.sigmoid_(), y)
steps = {
    "mean": lambda net, x, y: F.mse_loss(net(x), y),
    "written in place": in_place,
    "root": lambda net, x, y: (net(x) - y).abs().sqrt().mean(),
    "checkpoint": lambda net, x, y: F.mse_loss(net(x, "checkpoint"), y),
    "several outputs": dataclass_,
    "parameter among the outputs": pair,
    "penalty": penalty,
    "twice": lambda net, x, y: F.mse_loss(net(x), y) + net(x).pow(3).mean(),
    "through itself": lambda net, x, y: F.mse_loss(net(F.pad(net(x), (0, 1))), y),
    "slope": gradient_penalty,
    "slope of a loss": slope_of_loss,
}
even, uneven = 2 * world, [2 * world + 1, 2 * world, world + 1, 3 * world - 1, 1]
for name, step in steps.items():
    for accumulation, sizes in ((1, [even, *uneven]), (3, [*uneven, even])):
        single, model = new()
        train(single, step, sizes, accumulation, split=False)
        train(model, step, sizes, accumulation, split=True)
        check((name, accumulation), model, single)

# a model before another one: each weighs its own gradients only, and the input's gradient stays the mean's over the part
torch.manual_seed(1)
for n in (2 * world, 2 * world + 1, world + 1):
    single, model = new()
    first = nn.Linear(3, 3)
    wrapped = ddp.DistributedDataParallel(copy.deepcopy(first))
    x, y = draw(n, n)
    F.mse_loss(single(first(x)), y).backward()
    x, y = own(x, y)
    x.requires_grad_()
    loss = F.mse_loss(model(wrapped(x)), y)
    loss.backward()
    for p, q in zip([*first.parameters(), *single.parameters()], [*wrapped.parameters(), *model.parameters()]):
        assert torch.allclose(p.grad, q.grad, rtol=1e-12, atol=1e-14), n
    if parts.weight(x):
        local = copy.deepcopy(single)
        expected, = torch.autograd.grad(F.mse_loss(local(first(x)), y), x)
        assert torch.allclose(x.grad, expected, rtol=1e-12, atol=1e-14), n

# a model that writes its inputs, after another one
for n in (2 * world, 2 * world + 1, world + 1):
    torch.manual_seed(2)
    single = nn.Linear(3, 3), Writing()
    wrapped = [ddp.DistributedDataParallel(copy.deepcopy(it)) for it in single]
    for (first, second), (x, y) in ((single, draw(n, n)), (wrapped, own(*draw(n, n)))):
        F.mse_loss(second(first(x)), y).backward()
    for p, q in zip([p for it in single for p in it.parameters()], [p for it in wrapped for p in it.parameters()]):
        assert torch.allclose(p.grad, q.grad, rtol=1e-12, atol=1e-14), n

# the stand-in's gradient may be infinite
single, model = new()
x, y = own(*draw(1, 5))
((model(x) - model(x).detach()).abs().sqrt().sum() if rank else F.mse_loss(model(x), y)).backward()
F.mse_loss(single(x), y).backward()
for p, q in zip(single.parameters(), model.parameters()):
    assert torch.allclose(p.grad, q.grad, rtol=1e-12, atol=1e-14), (p.grad, q.grad)
ddp.print("done")
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_a_mean_over_uneven_parts_is_that_over_the_batch(lab, tmp_path, processes):
    script = write(tmp_path, TRAINING + STEPS)
    assert lab.run(script, processes=processes, recorded=False, timeout=120).ok().printed == "done\n"


BYPASSES = """
import inspect, pickle
def line():
    return f"train.py:{inspect.currentframe().f_back.f_lineno}"
def refused(step):
    single, model = new()
    try:
        where, loss = step(model)
        loss.backward()
    except RuntimeError as error:
        return where, str(error)
    return where, ""

def whole(model):
    return line(), model.module(x).sum()
def method(model):
    return line(), model.module.encode(x).sum()
def layer(model):
    return line(), model.module.head(model.module.body(x).detach()).sum()
def mixed(model):
    out = model(x)
    return line(), model.module.head(F.pad(out, (0, 2))).sum() + out.sum()
def other(model):  # a wrapper's own forward is no bypass
    return line(), model.forward(x).sum()
class Around(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def forward(self, x):
        return self.inner.head(self.inner.body(x))
def outer(model):  # nor is that of another, whose model has this one in it
    around = ddp.DistributedDataParallel(Around(model.module))
    return line(), around(x).sum()

single, model = new()
x, y = own(*draw(2 * world, 0))
for step in (whole, method, layer, mixed, other):
    assert refused(step)[1] == "", step
x, y = own(*draw(2 * world + 1, 1))
for step in (whole, method, layer):
    where, message = refused(step)
    assert where in message and "bypassing the wrapped model" in message, (step, where, message)
assert "layer 'head' of Net" in refused(layer)[1] and "layer 'body.0' of Net" in refused(method)[1]
for step in (mixed, other, outer):  # a layer on what the wrapper has handed out weighs as that
    assert refused(step)[1] == "", step

# what trains nothing may go past it; copies made meanwhile have no guard; checkpointing runs layers again
with torch.no_grad():
    model.module(x)
model.module(x)
twins = [copy.deepcopy(model.module), pickle.loads(pickle.dumps(model.module))]
for twin in twins:
    twin(x).sum().backward()
checkpoint(model, x, use_reentrant=True)
for reentrant in (True, False):
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 2)
        def forward(self, x):
            return self.head(checkpoint(self.body, x, use_reentrant=reentrant))
    ddp.DistributedDataParallel(Inner())(x.clone().requires_grad_()).sum().backward()

# several loaders: the one with as many samples as there are rows counts
class Second:
    pass
other_loader = Second()
xs, ys = own(*draw(4 * world, 2), loader=other_loader)
single, model = new()
model(xs).sum().backward()
model.module(xs).sum().backward()
for step in (whole, method):
    assert refused(step)[1], "a batch in uneven parts"
parts.exhausted(loader)
x, y = own(*draw(2 * world, 0))
assert refused(whole)[1] == ""

# what can't be weighed says so
class Strange(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 2)
    def forward(self, x):
        out = Loader()
        out.hidden = self.l(x)
        return out
strange = ddp.DistributedDataParallel(Strange())
strange(x).hidden.sum().backward()
x, y = own(*draw(2 * world + 1, 1))
try:
    strange(x)
    assert False
except TypeError as error:
    assert "object of type Loader" in str(error)
ddp.print("done")
"""


def test_a_forward_past_the_wrapper_is_refused_with_its_line(lab, tmp_path):
    script = write(tmp_path, TRAINING + BYPASSES)
    assert lab.run(script, processes=2, recorded=False, timeout=120).ok().printed == "done\n"


def test_a_group_of_one_weighs_nothing(lab, tmp_path):
    script = write(
        tmp_path,
        TRAINING + """
single, model = new()
for net in (single, model):
    train(net, lambda net, x, y: F.mse_loss(net(x), y), [3, 1, 2], 1, split=net is model)
check("alone", model, single)
out = model(own(*draw(3, 0))[0])
model.module(own(*draw(3, 0))[0]).sum().backward()
ddp.print("done")
""",
    )
    assert lab.run(script, processes=1, recorded=False, timeout=120).ok().printed == "done\n"
