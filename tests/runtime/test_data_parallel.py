"""DataParallel: what nn.DataParallel computes, on every rank, in float64; and ranks that stay in step."""

import collections
import copy
import io
import pickle
from pathlib import Path

import pytest
import torch
from jobs import write
from torch import nn
from torch.nn.parallel import scatter_gather

from dp2ddp import runtime as ddp
from dp2ddp.runtime.scatter import scatter

SHARED = (
    f"""
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
"""
    + """
import copy, pickle
from dataclasses import dataclass
from typing import NamedTuple
from torch import nn
from torch.nn import functional as F
from dp2ddp.verify.reference import DataParallel as Emulated
torch.set_default_dtype(torch.float64)
ddp.init()
rank, world = ddp.get_rank(), ddp.get_world_size()

class Net(nn.Module):
    def __init__(self, norm=False):
        super().__init__()
        self.a, self.b, self.unused = nn.Linear(5, 6), nn.Linear(6, 3), nn.Linear(2, 2)
        self.norm = nn.BatchNorm1d(6) if norm else nn.Identity()
    def forward(self, x):
        return self.b(self.norm(self.a(x)).tanh())

def draw(n, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 5, generator=generator), torch.randint(3, (n,), generator=generator)

def pair(make, **options):
    torch.manual_seed(0)
    bare = make()
    ids = list(range(world))
    return Emulated(copy.deepcopy(bare), device_ids=ids, **options), ddp.DataParallel(bare, device_ids=ids, **options)

def same(name, a, b):
    assert type(a) is type(b) or isinstance(a, torch.Tensor), (name, type(a), type(b))
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and a.shape == b.shape, (name, a.shape, b.shape)
        assert a.requires_grad == b.requires_grad, name
        assert torch.allclose(a, b, rtol=0, atol=1e-12), (name, a, b)
    elif isinstance(a, dict):
        assert list(a) == list(b), name
        for key in a:
            same((name, key), a[key], b[key])
    elif isinstance(a, tuple | list):
        assert len(a) == len(b), name
        for i, (x, y) in enumerate(zip(a, b)):
            same((name, i), x, y)
    else:
        assert a == b, (name, a, b)

def close(name, reference, model):
    for (key, a), b in zip(reference.state_dict().items(), model.state_dict().values(), strict=True):
        assert (a - b).abs().max() <= 1e-12, (name, key, (a - b).abs().max().item())

def compare(name, reference, model, step, sizes):
    optimizers = [torch.optim.SGD(m.parameters(), 0.05, momentum=0.9) for m in (reference, model)]
    for i, n in enumerate(sizes):
        losses = []
        for m, optimizer in zip((reference, model), optimizers):
            optimizer.zero_grad()
            loss = step(m, *draw(n, i))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert abs(losses[0] - losses[1]) <= 1e-12 * max(1, abs(losses[0])), (name, n, losses)
        close((name, n), reference, model)
"""
)

LOSSES = """
weights = torch.tensor([0.2, 1.0, 3.0])
def contrastive(net, x, y):
    f = F.normalize(net(x), dim=1)
    return F.cross_entropy(f @ f.T / 0.5, torch.arange(len(x)))
def in_place(net, x, y):
    out = net(x)
    out[:, :2] = (out[:, :2] + 1) * 2
    out.flatten()[::2].clamp_(-3, 3)
    return F.cross_entropy(torch.relu_(out.add_(0.1)), y)
steps = {
    "mean": lambda net, x, y: F.cross_entropy(net(x), y),
    "written in place": in_place,
    "sum": lambda net, x, y: F.cross_entropy(net(x), y, reduction="sum"),
    "class weights": lambda net, x, y: F.cross_entropy(net(x), y, weights),
    "ignore_index": lambda net, x, y: F.cross_entropy(net(x), y, ignore_index=1),
    "sum and l2": lambda net, x, y: F.cross_entropy(net(x), y, reduction="sum") / 9
        + 0.1 * sum(p.pow(2).sum() for p in net.parameters()),
    "top k": lambda net, x, y: F.cross_entropy(net(x), y, reduction="none").topk(len(x) // 2 + 1).values.mean(),
    "contrastive": contrastive,
    "two forwards": lambda net, x, y: F.cross_entropy(net(x), y) + net(x * 2).pow(2).mean(),
    "past the wrapper": lambda net, x, y: F.cross_entropy(net(x), y) + net.module(x).pow(2).mean(),
}
for name, step in steps.items():
    compare(name, *pair(Net), step, (16, 10, 9, 1, 16))
for name in ("mean", "sum", "two forwards"):  # no chunk of one row, which BatchNorm refuses
    compare(name, *pair(lambda: Net(norm=True)), steps[name], (16, 11, 9, 16))

# whole outputs without a gradient, whatever the rank
reference, model = pair(lambda: Net(norm=True))
for n in (16, 9, 1):
    with torch.no_grad():
        if n > 1:
            same("no_grad", reference(draw(n, n)[0]), model(draw(n, n)[0]))
        reference.eval(), model.eval()
        same("eval", reference(draw(n, n)[0]), model(draw(n, n)[0]))
        reference.train(), model.train()
close("buffers", reference, model)
ddp.print("done")
"""


@pytest.mark.sample(processes=(2, 3))
@pytest.mark.parametrize("processes", [2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_any_loss_is_the_whole_batch_s(lab, tmp_path, processes):
    script = write(tmp_path, SHARED + LOSSES)
    assert lab.run(script, processes=processes, recorded=False, timeout=120).ok().printed == "done\n"


STRUCTURES = """
class Pair(NamedTuple):
    first: torch.Tensor
    rest: list

@dataclass
class Out:
    logits: torch.Tensor
    more: object

class Many(Net):
    def forward(self, x, extra=None, scale=1.0, flags=()):
        y = super().forward(x) * scale
        if extra is not None:
            y = y + extra["shift"][0] + extra["pair"].first
        return {
            "pair": Pair(y, [y.argmax(1), None]), "loss": y.pow(2).mean(), "bools": (y > 0, [y.detach()]),
            "halves": (y[: len(y) // 2], len(flags) * y), "count": torch.tensor(len(x)),
        }
def many(net, x, y):
    out = net(x, extra={"shift": [y.double().unsqueeze(1)], "pair": Pair(x[:, :3], [])}, scale=2.0, flags=("a", "b"))
    assert out["pair"].first.shape == (len(x), 3) and out["count"].sum() == len(x)
    return out["loss"].mean() + out["pair"].first.pow(2).mean() + out["halves"][0].sum() + out["halves"][1].sum() / 7
for n in (16, 10, 9, 1):
    reference, model = pair(Many)
    same(n, reference(draw(n, n)[0], None, 3.0), model(draw(n, n)[0], None, 3.0))
    same(n, reference(draw(n, n)[0], None, 3.0), model(draw(n, n)[0], scale=3.0))
compare("many", *pair(Many), many, (16, 10, 9, 1))

# a loss computed inside: one for each replica that got a chunk
class Inside(Net):
    def forward(self, x, y):
        return F.cross_entropy(super().forward(x), y)
compare("mean of losses", *pair(Inside), lambda net, x, y: net(x, y).mean(), (16, 10, 9, 1))
compare("sum of losses", *pair(Inside), lambda net, x, y: net(x, y=y).sum(), (16, 10, 9, 1))

# a dataclass is gathered too
class Made(Net):
    def forward(self, x):
        y = super().forward(x)
        return Out(y, {"loss": y.mean()})
_, model = pair(Made)
reference, _ = pair(Net)
out = model(draw(10, 0)[0])
assert isinstance(out, Out) and len(out.more["loss"]) == len(torch.arange(10).chunk(world))
same("dataclass", reference(draw(10, 0)[0]), out.logits)

# along dimension 1; along the last; keyword arguments only; no arguments
class Sequences(Net):
    def forward(self, x):
        return super().forward(x), x.detach().sum()
for dim in (1, -2):
    step = lambda net, x, y: F.cross_entropy(net(torch.stack([x, x + 1]))[0][1], y)
    compare("dim", *pair(Sequences, dim=dim), step, (16, 10, 9, 1))
class Named(Net):
    def forward(self, *, x):
        return super().forward(x)
compare("named", *pair(Named), lambda net, x, y: F.cross_entropy(net(x=x), y), (16, 9))
class Alone(Net):
    def forward(self):
        return self.a.weight.sum(0)
_, model = pair(Alone)
out = model()
assert out.shape == (5,)
out.sum().backward()
assert torch.equal(model.module.a.weight.grad, torch.ones(6, 5)), model.module.a.weight.grad

# fewer chunks of one argument than of another: what is too much is left out
class Two(Net):
    def forward(self, x, z):
        return super().forward(x) + z.sum()
z = torch.randn(world + 1, 3)[: max(2, world - 1)]
reference, model = pair(Two)
same("truncated", reference(draw(2 * world, 1)[0], z), model(draw(2 * world, 1)[0], z))
ddp.print("done")
"""


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_outputs_of_any_structure(lab, tmp_path, processes):
    script = write(tmp_path, SHARED + STRUCTURES)
    assert lab.run(script, processes=processes, recorded=False, timeout=120).ok().printed == "done\n"


GRAPHS = """
# what comes before the wrapped model gets the gradient of all rows; so does an input
class Before(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        torch.manual_seed(3)
        self.embed, self.head = nn.Linear(5, 5), nn.Linear(3, 3)
        self.encoder = wrap(Net())
    def forward(self, x):
        return self.head(self.encoder(self.embed(x)).tanh())
ids = list(range(world))
for n in (16, 10, 9, 1):
    nets = Before(lambda net: Emulated(net, device_ids=ids)), Before(lambda net: ddp.DataParallel(net))
    xs = [draw(n, n)[0].requires_grad_() for _ in nets]
    for net, x in zip(nets, xs):
        F.cross_entropy(net(x), draw(n, n)[1], reduction="sum").backward()
    for (key, p), q in zip(nets[0].named_parameters(), nets[1].parameters()):
        if p.grad is not None:
            assert torch.allclose(p.grad, q.grad, rtol=1e-12, atol=1e-14), (n, key)
    assert torch.allclose(xs[0].grad, xs[1].grad, rtol=1e-12, atol=1e-14), n

# a penalty on the gradient with respect to the input, as WGAN-GP has it, and one that depends on the output
def penalty(net, x, y):
    x = x.clone().requires_grad_()
    slope, = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    return (slope.norm(dim=1) - 1).pow(2).mean() + net(x).mean()
def curved(net, x, y):
    x = x.clone().requires_grad_()
    slope, = torch.autograd.grad(F.cross_entropy(net(x), y, reduction="sum"), x, create_graph=True)
    return slope.pow(2).sum(1).sqrt().mean()
for step in (penalty, curved):
    compare(step, *pair(Net), step, (16, 10, 9, 1))

# two wrapped models in turns, one frozen for a while
def gan(wrap):
    torch.manual_seed(4)
    g, d = wrap(nn.Linear(5, 5)), wrap(nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 1)))
    og, od = torch.optim.SGD(g.parameters(), 0.1), torch.optim.SGD(d.parameters(), 0.1)
    for i, n in enumerate((16, 10, 9, 1)):
        x, z = draw(n, i)[0], draw(n, 50 + i)[0]
        od.zero_grad()
        (d(g(z).detach()).mean() - d(x).mean()).backward()
        od.step()
        d.requires_grad_(i % 2 == 0)
        og.zero_grad()
        d(g(z)).pow(2).mean().backward()
        og.step()
        d.requires_grad_(True)
    return [*g.parameters(), *d.parameters()]
for p, q in zip(gan(lambda m: Emulated(m, device_ids=ids)), gan(ddp.DataParallel)):
    assert (p - q).abs().max() < 1e-12

# a rank whose rows are constants; one whose rows are not reached
class Sometimes(Net):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else torch.zeros(len(x), 3)
x = torch.ones(2 * world, 5)
x[:2] = -1
reference, model = pair(Sometimes)
for net in (reference, model):
    net(x).pow(2).sum().backward()
    net(x)[:2].sum().backward() if net is model else None
for (key, p), q in zip(reference.named_parameters(), model.parameters()):
    assert torch.allclose(q.grad, torch.zeros_like(q) if p.grad is None else p.grad, rtol=1e-12), key

# the gradients that no rank has whole
_, model = pair(Net)
try:
    torch.autograd.grad(model(draw(4, 0)[0]).sum(), model.module.a.weight)
    assert False
except RuntimeError as error:
    assert "call backward()" in str(error)
model(draw(4, 0)[0]).sum().backward(inputs=[model.module.a.weight])
reference, _ = pair(Net)
reference(draw(4, 0)[0]).sum().backward()
assert torch.allclose(model.module.a.weight.grad, reference.module.a.weight.grad, rtol=1e-12)

# dealt parts weigh nothing here
from dp2ddp.runtime import parts
class Loader:
    pass
loader = Loader()
parts.drawn(loader, parts.Part(3 - rank % 2, 5))
compare("parts", *pair(Net), lambda net, x, y: F.cross_entropy(net(x), y) + net.module(x).mean(), (10, 9))
ddp.print("done")
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_gradients_of_inputs_and_of_gradients(lab, tmp_path, processes):
    script = write(tmp_path, SHARED + GRAPHS)
    assert lab.run(script, processes=processes, recorded=False, timeout=120).ok().printed == "done\n"


WRITTEN = """
from torch.utils.checkpoint import checkpoint

class Iterated(nn.Module):
    \"\"\"A layer whose forward writes a buffer from its rows, and then uses it.\"\"\"
    def __init__(self, write):
        super().__init__()
        self.weight, self.write = nn.Parameter(torch.randn(5, 5)), write
        self.register_buffer("u", torch.ones(5))
        self.head = nn.Linear(5, 3)
    def forward(self, x):
        for _ in range(2):
            with torch.no_grad():
                self.write(self, F.normalize((x @ self.weight).mean(0) + self.u, dim=0))
        return self.head(self.scaled(x))
    def scaled(self, x):
        return (x * self.u) @ self.weight * (self.weight @ self.u)

class Again(Iterated):  # the layer is run once more in the backward pass
    def scaled(self, x):
        return checkpoint(super().scaled, x, use_reentrant=False)

class Twice(nn.Module):  # two layers with one buffer
    def __init__(self, write):
        super().__init__()
        self.first, self.second = Iterated(write), Iterated(write)
        self.second.u = self.first.u
    def forward(self, x):
        return self.second(x) + self.first(x + 1)

def copied(layer, new):
    layer.u.copy_(new)
def assigned(layer, new):
    layer.u.data = new

once = lambda net, x, y: F.cross_entropy(net(x), y)
twice = lambda net, x, y: F.cross_entropy(net(x), y) + net(x * 2).pow(2).mean()
for kind, write, step in ((Iterated, assigned, twice), (Again, assigned, once), (Twice, assigned, once)):
    compare(kind.__name__, *pair(lambda: kind(write)), step, (16, 10, 9, 1, 16))
class OnceWritten(Iterated):  # autograd refuses a second write on rank 0, as on replica 0
    def forward(self, x):
        with torch.no_grad():
            copied(self, F.normalize((x @ self.weight).mean(0) + self.u, dim=0))
        return self.head(self.scaled(x))
compare("in place", *pair(lambda: OnceWritten(None)), once, (16, 10, 9, 1, 16))

# in shards too, where the second forward begins with rank 0's buffers
torch.manual_seed(0)
reference = Emulated(Iterated(assigned), device_ids=list(range(world)))
model = ddp.DistributedDataParallel(copy.deepcopy(reference.module))
for number in range(3):
    x, y = draw(4 * world, number)
    mine = slice(4 * rank, 4 * rank + 4)
    reference.zero_grad(), model.zero_grad()
    twice(reference, x, y).backward()
    twice(model, x[mine], y[mine]).backward()
    for (name, left), right in zip(reference.module.named_parameters(), model.module.parameters()):
        same(name, left.grad, right.grad)
    if rank == 0:
        same("u", reference.module.u, model.module.u)
ddp.print("done")
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_the_backward_pass_has_the_buffers_of_its_own_forward(lab, tmp_path, processes):
    script = write(tmp_path, SHARED + WRITTEN)
    assert lab.run(script, processes=processes, recorded=False, timeout=120).ok().printed == "done\n"


HOOKS = """
# over two passes that accumulate, with a hook that is removed in between, and a layer that no pass reaches
def alike(step, reference, model):
    for (name, one), other in zip(reference.named_parameters(), model.parameters()):
        same((step, name), one.detach(), other.detach())
        if one.grad is not None or other.grad is not None and other.grad.any():
            same((step, name, "grad"), one.grad, other.grad)

for wrap in (ddp.DistributedDataParallel, ddp.DataParallel):
    torch.manual_seed(0)
    reference = Emulated(Net(), device_ids=list(range(world)))
    model = wrap(copy.deepcopy(reference.module))
    seen, handles = ([], []), []
    for it, kept in ((reference.module, seen[0]), (model.module, seen[1])):
        for parameter in it.parameters():
            parameter.register_hook(lambda grad: grad.clamp(-0.01, 0.01))
        handles.append(it.a.weight.register_hook(lambda grad, kept=kept: kept.append(grad.abs().max().item())))
        it.b.weight.register_hook(lambda grad: grad * 2 + grad.norm())
    optimizers = [torch.optim.SGD(it.parameters(), 0.5, momentum=0.9) for it in (reference, model)]
    for step in range(6):
        if step == 4:
            for handle in handles:
                handle.remove()
        for it, optimizer in zip((reference, model), optimizers):
            if step % 2 == 0:
                optimizer.zero_grad()
            x, y = draw(4 * world, step)
            if it is model and wrap is ddp.DistributedDataParallel:
                x, y = x[4 * rank : 4 * rank + 4], y[4 * rank : 4 * rank + 4]
            F.cross_entropy(it(x), y).backward()
        alike(step, reference.module, model.module)
        for optimizer in optimizers:
            optimizer.step()
    assert len(seen[0]) == 4
    same("seen", torch.tensor(seen[0]), torch.tensor(seen[1]))
    # autograd.grad returns what this rank has, hooks included, and adds nothing
    if wrap is ddp.DistributedDataParallel:
        kept = [it.grad.clone() for it in model.module.a.parameters()]
        x, y = draw(4, 0)
        (found,) = torch.autograd.grad(F.cross_entropy(model.module(x), y), [model.module.a.bias])
        assert found.abs().max() <= 0.01 and all(map(torch.equal, kept, [it.grad for it in model.module.a.parameters()]))
    # a parameter that no rank reaches, and one that some do: hooks are called on all
    class Chosen(Net):
        def forward(self, x):
            h = self.a(x)
            return self.b((h * self.scale if x[0, 0] > 0 else h).tanh())
    torch.manual_seed(0)
    start = Chosen()
    start.scale = nn.Parameter(torch.ones(6) * 2)
    reference = Emulated(start, device_ids=list(range(world)))
    model = wrap(copy.deepcopy(start))
    for it in (reference.module, model.module):
        for parameter in it.parameters():
            parameter.register_hook(lambda grad, parameter=parameter: grad.clamp(-0.01, 0.01) + 0.1 * parameter.detach())
    x, y = draw(4 * world, 7)
    x[:4, 0], x[4:, 0] = -1, 1
    for it in (reference, model):
        cut = it is model and wrap is ddp.DistributedDataParallel
        mine = slice(4 * rank, 4 * rank + 4) if cut else slice(None)
        F.cross_entropy(it(x[mine]), y[mine]).backward()
    alike("chosen", reference.module, model.module)
    if wrap is ddp.DistributedDataParallel:  # wrapped anew; and two models with a part in common
        del model
        net = Net()
        for parameter in net.parameters():
            parameter.register_hook(lambda grad: grad.clamp(-0.01, 0.01))
        twin = copy.deepcopy(net)
        for parameter in twin.parameters():
            parameter.register_hook(lambda grad: grad.clamp(-0.01, 0.01))
        model = wrap(net)
        model = wrap(net)
        both = wrap(nn.Sequential(net.a, nn.Tanh(), nn.Linear(6, 3)))
        pair_of = nn.Sequential(twin.a, nn.Tanh(), copy.deepcopy(both.module[2]))
        for step in range(2):
            x, y = draw(4 * world, 8 + step)
            mine = slice(4 * rank, 4 * rank + 4)
            (F.cross_entropy(model(x[mine]), y[mine]) + F.cross_entropy(both(x[mine]), y[mine])).backward()
            (F.cross_entropy(twin(x), y) + F.cross_entropy(pair_of(x), y)).backward()
            alike(("both", step), twin, net)
            for it in (model, both, twin, pair_of):
                it.zero_grad()
ddp.print("done")
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_hooks_of_parameters_get_the_average(lab, tmp_path, processes):
    script = write(tmp_path, SHARED + HOOKS)
    assert lab.run(script, processes=processes, recorded=False, timeout=120).ok().printed == "done\n"


UNTRAINED = """
# data_parallel(): a network that is wrapped inside of another one, in training mode, on chunks and whole again
class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.judge = Net(norm=True), nn.Linear(3, 1)
    def forward(self, x):
        return self.judge(self.net(x))

reference, model = pair(Both)
for step, size in enumerate((4 * world, 4 * world - 1, 4)):  # with a rank without a chunk, of three
    for it in (reference, model):
        it.zero_grad()
        it(draw(8, step)[0]).sum().backward()
    x = draw(size, 10 + step)[0]
    with torch.no_grad():
        expected = Emulated(reference.module.net, device_ids=list(range(world)))(x)
        same("a tuple", expected, ddp.data_parallel(model.module.net, (x,)))
        model.module.load_state_dict(reference.module.state_dict())
        same("a tensor", Emulated(reference.module.net, device_ids=list(range(world)))(x),
             ddp.data_parallel(model.module.net, x))
    same("buffers", dict(reference.module.named_buffers()), dict(model.module.named_buffers()))
    for (name, one), other in zip(reference.module.named_parameters(), model.module.parameters()):
        if one.grad is not None:
            same(name, one.grad, other.grad)
class Constant(nn.Module):
    def forward(self, *inputs):
        return torch.full((1,), float(len(inputs)))
with torch.no_grad():
    assert ddp.data_parallel(Constant(), None).sum() == 0  # as torch's, whatever the number of replicas
# one that trains: a part of a wrapped model, and a whole one, called twice
alone = Net()
twin = copy.deepcopy(alone)
for step in range(3):
    x, y = draw(4 * world - 1, 20 + step)
    called = lambda net, x: Emulated(net, device_ids=list(range(world)))(x)
    for it, other, call in ((reference, alone, called), (model, twin, ddp.data_parallel)):
        it.zero_grad(), other.zero_grad()
        loss = it(x).sum() + call(it.module.net, x).pow(2).sum()
        (loss + F.cross_entropy(call(other, x), y) * call(other, 2 * x).mean()).backward()
    same("buffers", dict(reference.module.named_buffers()), dict(model.module.named_buffers()))
    for one, other in ((reference.module, model.module), (alone, twin)):
        for (name, left), right in zip(one.named_parameters(), other.parameters()):
            same(name, left.grad, right.grad)
print("done")
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_a_network_of_a_call(lab, tmp_path, processes):
    script = write(tmp_path, SHARED + UNTRAINED)
    assert lab.run(script, processes=processes, recorded=False, timeout=120).ok().printed == "done\n"


LIVES = """
step = lambda net, x, y: F.cross_entropy(net(x), y)
# an optimizer made before; the wrap before a conversion of the type; ranks that begin differently
torch.manual_seed(rank)
model = ddp.DataParallel(Net(norm=True).float())
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
assert model.double() is model and isinstance(model, nn.DataParallel)
names = [name for name, _ in model.named_parameters()]
assert len(names) == len(set(names)) == len(list(model.module.parameters()))
assert list(model.state_dict()) == [f"module.{key}" for key in model.module.state_dict()]
with torch.no_grad():
    model(draw(4, 0)[0])
assert len({w.sum().item() for w in ddp.gather(model.module.a.weight)}) == 1
assert [name for name, _ in model.named_parameters()] == names and len(list(model.children())) == 1

# old checkpoints load, before and after the first forward; copies live on their own
reference, _ = pair(lambda: Net(norm=True))
twins = [model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
for twin in twins:
    twin.load_state_dict(reference.state_dict())
    compare("twin", copy.deepcopy(reference), twin, step, (10, 11))
    twin.load_state_dict({key: value.clone() for key, value in reference.state_dict().items()}, assign=True)
    compare("assigned", copy.deepcopy(reference), twin, step, (11,))

# frozen and unfrozen; a replaced layer; nothing to train
reference, model = pair(Net)
for net in (reference, model):
    net.module.a.requires_grad_(False)
compare("frozen", reference, model, step, (10,))
for net in (reference, model):
    net.module.a.requires_grad_(True)
compare("unfrozen", reference, model, step, (10,))
for net in (reference, model):
    torch.manual_seed(1)
    net.module.b = nn.Linear(6, 3)
compare("replaced", reference, model, step, (10, 9))
reference, model = pair(lambda: Net(norm=True).requires_grad_(False))
same("nothing to train", reference(draw(9, 0)[0]), model(draw(9, 0)[0]))
close("nothing to train", reference, model)
x = draw(9, 0)[0].requires_grad_()
model(x).sum().backward()
assert x.grad.abs().sum(1).min() > 0

# ranks with other batches, and outputs that don't fit
def complaint(make, *arguments, steps=1, **options):
    try:
        for _ in range(steps):
            pair(make, **options)[1](*arguments)
    except (RuntimeError, TypeError) as error:
        return str(error)
class Odd(Net):
    def forward(self, x, kind):
        y = super().forward(x)
        return {"float": 1.0, "widths": y[:, : 1 + rank % 2], "keys": {"a": y} if rank % 2 else [y, y], "name": "x"}[kind]
for make, other in (
    (Net, draw(8, rank)[0]),
    (Net, draw(8 + rank, 0)[0]),
    (nn.Identity, draw(8, 0)[0][:, : 5 - rank % 2]),
    (nn.Identity, draw(8, rank)[1]),
):
    message = complaint(make, other)
    assert message.startswith("the ranks were given different batches: "), message
assert "other values on rank 0 than on rank 1" in complaint(Net, draw(8, rank)[0])
assert complaint(nn.Identity, draw(8, 0)[0] + 1e-9 * rank) is None  # computed on every rank, with its own last bits
nan = draw(8, 0)[0]
nan[3, 2] = float("nan")
assert complaint(Net, nan) is None
assert "type float" in complaint(Odd, draw(8, 0)[0], "float")
assert "can't be joined" in complaint(Odd, draw(8, 0)[0], "widths")
assert "can't be joined" in complaint(Odd, draw(8, 0)[0], "keys")

# noticed later as well, and batches of other sizes at once
_, model = pair(Net)
compared = []
for i in range(205):
    x = draw(4, i)[0]
    x[0, 0] += rank  # one element in 20 differs
    try:
        model(x if i in compared or i > 3 else draw(4, i)[0])
    except RuntimeError as error:
        assert "different batches" in str(error)
        compared.append(i)
assert compared == [100, 200], compared
class Scaling(nn.Module):  # its own chunk, in place
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)
    def forward(self, x):
        return self.layer(x.sub_(0.5).mul_(2))
scaling = ddp.DataParallel(Scaling())
for i in range(2):
    scaling(draw(4, i)[0]).sum().backward()
try:
    model(draw(4 + rank, 0)[0])
    assert False
except RuntimeError as error:
    assert "different batches" in str(error)
ddp.print("done")
"""


def test_made_early_moved_copied_and_misused(lab, tmp_path):
    script = write(tmp_path, SHARED + LIVES)
    assert lab.run(script, processes=2, recorded=False, timeout=120).ok().printed == "done\n"


IN_STEP = """
import random
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __len__(self):
        return 23
    def __getitem__(self, i):  # augmented in the workers
        return torch.full((5,), float(i)) + torch.randn(5) + random.random(), i % 3

class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 3))
    def forward(self, x):
        noise = random.random() + torch.rand(len(x)).sum() * 1e-3  # more on some ranks than on others
        drawn.append(noise.item())
        return self.layers(x + noise)

torch.manual_seed(7)
random.seed(7)
drawn, seen = [], []
model = ddp.DataParallel(Noisy())
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(Images(), batch_size=10, shuffle=True, num_workers=WORKERS)
for epoch in range(2):
    for x, y in loader:
        share, order = random.betavariate(1, 1), torch.randperm(len(x))  # mixup
        out = model(share * x + (1 - share) * x[order])
        loss = share * F.cross_entropy(out, y) + (1 - share) * F.cross_entropy(out, y[order])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append((x.sum().item(), share, loss.item()))
    model.eval()
    model(torch.zeros(world - 1, 5))  # a rank without a chunk
    model.train()
ended = (torch.rand(1).item(), random.random())
for values in (seen, ended, [p.sum().item() for p in model.parameters()]):
    everyone = ddp.gather(values)
    assert all(theirs == everyone[0] for theirs in everyone), everyone
assert len(set(ddp.gather(drawn[0]))) == world and len(set(drawn)) == len(drawn)
first, second = ddp.DataParallel(nn.Dropout(0.5)), ddp.DataParallel(nn.Dropout(0.5))
for _ in range(2):
    assert not torch.equal(first(torch.ones(world, 64)), second(torch.ones(world, 64)))
ddp.print("done")
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_ranks_stay_in_step_whatever_the_forward_draws(lab, tmp_path, workers):
    script = write(tmp_path, SHARED + IN_STEP.replace("WORKERS", str(workers)))
    assert lab.run(script, processes=3, recorded=False, timeout=120).ok().printed == "done\n"


def test_a_plain_process_goes_straight_to_the_module():
    torch.manual_seed(0)
    bare = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout())
    model = ddp.DataParallel(copy.deepcopy(bare), device_ids=[0, 1])
    assert isinstance(model, nn.DataParallel)
    assert model.device_ids == []  # as nn.DataParallel without a GPU
    for net in (bare, model):
        torch.manual_seed(1)
        net(torch.ones(4, 3)).sum().backward()
    assert torch.equal(bare(torch.ones(2, 3)) * 0, model(torch.ones(2, 3)) * 0)
    for p, q in zip(bare.parameters(), model.parameters(), strict=True):
        assert torch.equal(p.grad, q.grad)

    class Loss(nn.Module):
        def forward(self, x, name="loss"):
            return {name: x.sum(), "n": 3}

    assert ddp.DataParallel(Loss())(torch.ones(2))["loss"].dim() == 0
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    again = pickle.loads(pickle.dumps(ddp.DataParallel(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)))))
    again.load_state_dict(torch.load(file))
    assert torch.equal(again.module[0].weight, bare[0].weight)


Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize("rows", [8, 10, 9, 1, 0])
def test_arguments_are_cut_as_torch_cuts_them(monkeypatch, rows):
    class OnCpu:
        """torch's Scatter, which only knows GPUs."""

        @staticmethod
        def apply(targets, _, dim, tensor):
            return tensor.chunk(len(targets), dim)

    monkeypatch.setattr(scatter_gather, "Scatter", OnCpu)
    x = torch.arange(6.0 * rows).reshape(rows, 6)
    few = x[:2]
    cases = [
        ((x,), {}),
        ((x, 3, "a"), {"y": x, "flag": None}),
        (([x, [x, "b"]], (x, ()), {"k": x, "n": {"m": [x]}}), {}),
        ((Point(x, [x]), collections.OrderedDict(b=x, a=1)), {}),
        ((), {"x": x, "z": few}),
        ((few, x), {}),
        ((3,), {"z": {}}),
        ((), {}),
    ]
    for dim in (0, 1):
        for inputs, kwargs in cases:
            positional, named = scatter_gather.scatter_kwargs(inputs, kwargs, [0, 1, 2, 3], dim)
            named += ({},) * (len(positional) - len(named))
            found = scatter(inputs, kwargs, 4, lambda tensor, dim=dim: tensor.chunk(4, dim))
            assert repr(found) == repr(list(zip(positional, named, strict=True)) or [((), {})])
    # torch would call without the tensors here
    assert len(scatter((x,), {"flag": None}, 4, lambda tensor: tensor.chunk(4))) == len(x.chunk(4))


@pytest.mark.parametrize("wrap", ["DataParallel", "DistributedDataParallel"])
def test_an_evaluation_in_inference_mode_may_come_first(lab, tmp_path, wrap):
    """What finds the gradients is made in the first forward, and has to be there when it is trained after that."""
    body = f"""
ddp.init()
torch.manual_seed(0)
model = ddp.{wrap}(torch.nn.Linear(3, 2))
model.eval()
with torch.inference_mode():
    model(torch.ones(4, 3))
model.train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.full((4, 3), 1.0 + step)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
weights = ddp.gather(model.module.weight.detach())
ddp.print(all(torch.equal(weights[0], it) for it in weights))
"""
    assert lab.run(write(tmp_path, body), processes=2, recorded=False, timeout=60).ok().printed == "True\n"


TAGGED = """
from torch import nn
ddp.init()
rank, world = ddp.get_rank(), ddp.get_world_size()

class Tagged(torch.Tensor):
    # a name for each row: it can't be cut in another way, and makes no other tensor
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function in (torch.Tensor.__getitem__, torch.Tensor.new_empty, torch.Tensor.narrow):
            raise ValueError(function.__name__)
        found = super().__torch_function__(function, types, args, kwargs or {})
        if isinstance(found, Tagged):
            found.names = [f"row {i}" for i in range(len(found))] if found.dim() else []
        return found

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
    def forward(self, x):
        assert world == 1 or type(x) is torch.Tensor, type(x)
        return self.layer(x)

torch.manual_seed(0)
rows = torch.randn(7, 3)
model = ddp.DataParallel(Net())
out = model(rows.as_subclass(Tagged))
assert len(out) == 7
out.square().mean().backward()
torch.testing.assert_close(torch.Tensor(out.detach()), model.module.layer(rows).detach())
whole = ddp.whole_batch(torch.full((2, 3), float(rank)).as_subclass(Tagged))
assert whole[:, 0].tolist() == [float(i // 2) for i in range(2 * world)]
ddp.print("done")
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_replicas_get_plain_tensors(lab, tmp_path, processes):
    """As from nn.DataParallel: a class of its own may be one that can't be cut."""
    script = write(tmp_path, TAGGED)
    assert lab.run(script, processes=processes, recorded=False, timeout=60).ok().printed == "done\n"
