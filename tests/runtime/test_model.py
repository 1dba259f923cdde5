"""DistributedDataParallel: DataParallel's tolerance, and the gradients' average to the bit."""

import copy
import io
import logging
import pickle

import pytest
import torch
from jobs import write
from torch import nn

from dp2ddp import runtime as ddp

MODEL = """
import copy, io, logging, pickle
from contextlib import nullcontext
from torch import nn
from torch.utils.checkpoint import checkpoint
torch.set_default_dtype(torch.float64)
ddp.init()
rank, world = ddp.get_rank(), ddp.get_world_size()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)
        self.bn = nn.BatchNorm1d(3)
        self.scale = nn.Parameter(torch.ones(()))
    def encode(self, x):
        return self.a(x).tanh()
    def forward(self, x, which="abc", reentrant=None):
        if which == "constant":
            return torch.zeros(4, 3, requires_grad=True)
        if which == "input":
            return x.requires_grad_() * 2
        for names in which:
            layer = nn.Sequential(*(getattr(self, name) for name in names))
            x = layer(x) if reentrant is None else checkpoint(layer, x, use_reentrant=reentrant)
            x = x.tanh()
        return {"out": [self.bn(x) * self.scale]}

def loss(output):
    return (output["out"][0] if isinstance(output, dict) else output).pow(3).sum()

def batch(rank, i=0):
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(10 * i + rank))

def new(seed=0):
    torch.manual_seed(seed)
    return Net()

def by_hand(bare, step):
    # the mean over ranks of the gradient that a rank's step leaves: step(model, module, rank)
    total = None
    for r in range(world):
        net = copy.deepcopy(bare)
        step(net, net, r)
        grads = [torch.zeros_like(p) if p.grad is None else p.grad / world for p in net.parameters()]
        total = grads if total is None else [a + b for a, b in zip(total, grads)]
    return total

def check(name, model, step, bare=None):
    expected = by_hand(model.module if bare is None else bare, step)
    step(model, model.module, rank)
    for (key, p), e in zip(model.module.named_parameters(), expected, strict=True):
        assert p.grad is not None, (name, key)
        assert torch.allclose(p.grad, e, rtol=1e-12, atol=1e-14), (name, key, p.grad, e)
    everyone = ddp.gather([p.grad for p in model.parameters()])
    assert all(torch.equal(a, b) for other in everyone for a, b in zip(other, everyone[0])), name
    model.zero_grad(set_to_none=True)
    with torch.no_grad():  # rank 0's, as they are before the next forward
        for buffer in model.buffers():
            dist.broadcast(buffer, 0)

def back(f):
    return lambda model, module, r: f(model, module, r).backward()
def plain(model, module, r):
    loss(model(batch(r))).backward()
def past(model, module, r):
    loss(module(batch(r))).backward()
"""

ROUTES = """
def no_sync(f):
    def step(model, module, r):
        with model.no_sync() if hasattr(model, "no_sync") else nullcontext():
            f(model, module, r, 0).backward()
        f(model, module, r, 1).backward()
    return step
def twice(model, module, r):
    first, second = loss(model(batch(r), "ab"[r % 2])), loss(model(batch(r, 1)))
    first.backward()
    second.backward()
def inside_and_outside(model, module, r):
    with model.no_sync() if hasattr(model, "no_sync") else nullcontext():
        out = loss(model(batch(r)))
    out.backward()
def outside_and_inside(model, module, r):
    out = loss(model(batch(r)))
    with model.no_sync() if hasattr(model, "no_sync") else nullcontext():
        out.backward()
def three(model, module, r):
    for i in range(3):
        loss(module(batch(r, i), "ab")).backward()
def penalty(model, module, r):
    x = batch(r).requires_grad_()
    torch.autograd.grad(loss(model(x)), x, create_graph=True)[0].pow(2).sum().backward()
steps = {
    "two backwards": twice,
    "past it, three times": three,
    "all of it": plain,
    "other ones on each rank": back(lambda model, module, r: loss(model(batch(r), ("ab", "c", "b")[r]))),
    "nowhere": back(lambda model, module, r: loss(model(batch(r), "a"))),
    "the input on one rank": back(lambda model, module, r: loss(model(batch(r), "a" if r else "input"))),
    "a constant on one rank": back(lambda model, module, r: loss(model(batch(r), "constant" if r else "a"))),
    "module": past,
    "forward": back(lambda model, module, r: loss(model.forward(batch(r)))),
    "method": back(lambda model, module, r: loss(module.encode(batch(r)))),
    "norm": back(lambda model, module, r: loss(model(batch(r))) + module.a.weight.norm()),
    "norm only": back(lambda model, module, r: (r + 1) * module.a.weight.norm()),
    "past it afterwards": back(lambda model, module, r: loss(module.encode(model(batch(r), "bc")["out"][0]))),
    "past it before": back(lambda model, module, r: loss(model(module.encode(batch(r)), "bc"))),
    "both": back(lambda model, module, r: loss(model(batch(r), "ab")) + loss(module(batch(r, 1), "c"))),
    "accumulated": no_sync(lambda model, module, r, i: loss(model(batch(r, i), ("ab", "c", "b")[r]))),
    "accumulated past it": no_sync(lambda model, module, r, i: loss(module.encode(batch(r, i)))),
    "accumulated, past it last": no_sync(lambda model, module, r, i: loss((module if i else model)(batch(r, i)))),
    "accumulated, past it first": no_sync(lambda model, module, r, i: loss((model if i else module)(batch(r, i)))),
    "forward in no_sync": inside_and_outside,
    "backward in no_sync": outside_and_inside,
    "gradient of a gradient": penalty,
}
for reentrant in (True, False):
    for which in ("abc", "a", "cb"):
        for name, f in {
            "checkpoint": lambda model, module, r, **how: loss(model(batch(r).requires_grad_(), **how)),
            "checkpoint past it": lambda model, module, r, **how: loss(module(batch(r).requires_grad_(), **how)),
            # the gradient of one parameter arrives twice, if in nested passes
            "checkpoint, shared": lambda model, module, r, **how: loss(model(batch(r).requires_grad_(), **how))
                + loss(module.a(batch(r, 2))),
        }.items():
            how = {"which": which, "reentrant": reentrant}
            steps[name, reentrant, which] = back(lambda model, module, r, f=f, how=how: f(model, module, r, **how))
for name in list(steps)[:20:3]:
    check(("first", name), ddp.DistributedDataParallel(new(seed=rank)), steps[name], new())
model = ddp.DistributedDataParallel(new())
for name, step in [*steps.items(), *list(steps.items())[::-4]]:
    check(name, model, step)

# gradients that arrive twice for the first time in a later pass; in the second, the last one in a nested pass
for which in ("aba", ("abc", "a"), ("a", "cba"), "abcabc"):
    def begun_later(model, module, r):
        loss(model(batch(r).requires_grad_(), which, reentrant=True)).backward()
    later = ddp.DistributedDataParallel(new())
    for i, step in enumerate([*[back(lambda model, module, r: loss(model(batch(r))))] * 3, begun_later, begun_later, past]):
        check((which, i), later, step)

# twice on one rank only: a re-entrant checkpoint may do that, from the first pass on
uneven = ddp.DistributedDataParallel(new())
for i in range(4):
    which = "aba" if i == 2 and rank == 0 else "ab"
    bare = new() if i == 0 else uneven.module
    other = lambda r: "aba" if i == 2 and r == 0 else "ab"
    check(("on one rank", i), uneven,
        lambda model, module, r: loss(model(batch(r).requires_grad_(), other(r), reentrant=True)).backward())

# a wrapper that nobody keeps; gradients that are views of a larger tensor; dead hooks
bare = new()
expected = by_hand(bare, plain)
loss(ddp.DistributedDataParallel(bare)(batch(rank))).backward()
assert all(torch.allclose(p.grad, e, rtol=1e-12) for p, e in zip(bare.parameters(), expected, strict=True))
kept = ddp.DistributedDataParallel(new())
flat = torch.zeros(sum(p.numel() for p in kept.parameters()))
offset = 0
for p in kept.parameters():
    p.grad = flat[offset : offset + p.numel()].view_as(p)
    offset += p.numel()
for i in range(5):
    flat.zero_()
    loss(kept(batch(rank).requires_grad_(), "aba", reentrant=True) if i > 2 else kept(batch(rank))).backward()
    assert all(p.grad.untyped_storage().data_ptr() == flat.untyped_storage().data_ptr() for p in kept.parameters()), i
for _ in range(20):
    ddp.DistributedDataParallel(bare)
import gc; gc.collect()
assert len(bare.scale._post_accumulate_grad_hooks) <= 1, len(bare.scale._post_accumulate_grad_hooks)

# a pass that fails on every rank, and the next one
for forward in (model, model.module):
    x = batch(rank).requires_grad_()
    out = loss(forward(x))
    x.register_hook(lambda gradient: 1 / 0)
    try:
        out.backward()
        assert False
    except ZeroDivisionError:
        pass
    del x, out
    model.zero_grad()
    for step in (plain, past, plain):
        check("after a failure", model, step)

# gradients of the inputs only: nothing of the parameters is touched or expected
x = batch(rank).requires_grad_()
torch.autograd.grad(loss(model(x)), x)
loss(model(x)).backward(inputs=[x])
assert all(p.grad is None for p in model.parameters())
check("after gradients of inputs", model, plain)

# two models, one frozen in turns
torch.manual_seed(0)
nets = [nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))]
wrapped = [ddp.DistributedDataParallel(copy.deepcopy(net)) for net in nets]
def gan(g, d, ranks_, freeze):
    og, od = torch.optim.SGD(g.parameters(), 0.1), torch.optim.SGD(d.parameters(), 0.1)
    for i in range(3):
        od.zero_grad()
        (sum(d(batch(r, i)).mean() - d(g(batch(r, 5 + i)).detach()).sigmoid().mean() for r in ranks_) / len(ranks_)).backward()
        od.step()
        d.requires_grad_(not freeze)
        og.zero_grad()
        (sum(d(g(batch(r, 5 + i))).pow(2).mean() for r in ranks_) / len(ranks_)).backward()
        og.step()
        d.requires_grad_(True)
for freeze in (False, True):
    gan(*nets, range(world), freeze)
    gan(*wrapped, [rank], freeze)
    for net, model in zip(nets, wrapped):
        for p, q in zip(net.parameters(), model.parameters()):
            assert torch.allclose(p, q, rtol=1e-12, atol=1e-14)
ddp.print("done")
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_gradients_are_the_average_whatever_way_they_come(lab, tmp_path, processes):
    script = write(tmp_path, MODEL + ROUTES)
    assert lab.run(script, processes=processes, recorded=False, timeout=120).ok().printed == "done\n"


CHANGES = """
model = ddp.DistributedDataParallel(new(seed=rank))  # the start is rank 0's
assert isinstance(model, nn.parallel.DistributedDataParallel)
assert list(model.state_dict()) == [f"module.{k}" for k in new().state_dict()]
check("start", model, plain, new())

# parts frozen for a while stay untouched; all frozen (the other network's turn): nothing is expected
kept = torch.full((3, 3), 7.0)
model.module.b.weight.grad = kept.clone()
model.module.b.requires_grad_(False)
plain(model, None, rank)
assert torch.equal(model.module.b.weight.grad, kept) and model.module.b.bias.grad is None
assert not any(p.requires_grad for p in model.module.b.parameters())
model.zero_grad()
model.requires_grad_(False)
x = batch(rank).requires_grad_()
loss(model(x)).backward()
assert x.grad is not None and all(p.grad is None for p in model.parameters())
model.requires_grad_(True)
with torch.no_grad():
    model(batch(rank))
check("thawed", model, plain)

# frozen when it was wrapped, trained later
for step in (plain, past):
    for frozen in ("a", "bc", "abc"):
        net = new()
        for name in frozen:
            getattr(net, name).requires_grad_(False)
        model = ddp.DistributedDataParallel(net)
        step(model, net, rank)
        assert all((p.grad is None) == (not p.requires_grad) for p in net.parameters())
        model.zero_grad()
        net.requires_grad_(True)
        with torch.no_grad():
            model(batch(rank))
        for _ in range(2):
            check(("unfrozen", frozen), model, step)
hooked = []
model = ddp.DistributedDataParallel(new(seed=rank).requires_grad_(False))
assert torch.equal(*ddp.gather(model.module.a.weight))
model.register_forward_hook(lambda *_: hooked.append(1))
for i in range(2):
    model(batch(rank, i))
model.eval()
model(batch(0))
assert torch.equal(*ddp.gather(model.module.bn.running_mean))
model.requires_grad_(True)
for step in (plain, past, plain):
    check("from nothing", model, step)
assert len(hooked) == 5 and not model.training
assert ddp.DistributedDataParallel(nn.ReLU())(torch.tensor([-1.0])).item() == 0

# moved to another type, and there and back, which takes a parameter's place in the graph from it
for move in (lambda m: m.double(), lambda m: m.module.double()):
    for step in (plain, past):
        model = ddp.DistributedDataParallel(new().float())
        move(model)
        check("moved", model, step)
        for way in (model.module, model, model.module.a):
            way.float()
            way.double()
            check("there and back", model, step)
            check("and on", model, step)

# layers replaced, differently on each rank; parameters assigned
for early in (True, False):
    model = ddp.DistributedDataParallel(new())
    if not early:
        check("before", model, plain)
    torch.manual_seed(rank)
    model.module.b = nn.Linear(3, 3)
    model.train()
    with torch.no_grad():
        model(batch(rank))
    assert torch.equal(*ddp.gather(model.module.b.weight))
    check("replaced", model, plain)
model.load_state_dict({key: value.clone() for key, value in model.state_dict().items()}, assign=True)
check("assigned", model, plain)

# a hook on the communication stays through all that
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
calls = []
def counted(state, bucket):
    calls.append(state)
    return allreduce_hook(None, bucket)
model = ddp.DistributedDataParallel(new())
model.register_comm_hook("state", counted)
for change in (lambda: None, lambda: model.float().double(), lambda: setattr(model.module, "b", copy.deepcopy(model.module.b))):
    change()
    model.train()
    before = len(calls)
    check("hook", model, plain)
    assert len(calls) > before and set(calls) == {"state"}

# sparse gradients, which one rank does not have
class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.f, self.l = nn.Embedding(5, 3, sparse=True), nn.Embedding(5, 3, sparse=True), nn.Linear(3, 2)
    def forward(self, index, which):
        rows = [(i + 2) * getattr(self, name)(index) for i, name in enumerate(which)]
        return self.l(sum(rows, torch.ones(1, 3)))
torch.manual_seed(0)
model = ddp.DistributedDataParallel(Embedded())
for which in ("ef", "e", "", "f"):
    bare = copy.deepcopy(model.module)
    model(torch.tensor([rank, 1]), which if rank else "ef").pow(2).sum().backward()
    sum(bare(torch.tensor([r, 1]), which if r else "ef").pow(2).sum() for r in range(world)).backward()
    for p, q in zip(model.parameters(), bare.parameters()):
        assert torch.allclose(p.grad.to_dense(), q.grad.to_dense() / world, rtol=1e-12), which
    model.zero_grad()

# buffers: rank 0's count; copies synchronise too, the original goes on
model = ddp.DistributedDataParallel(new())
plain(model, None, rank)
model.eval()
with torch.no_grad():
    model(batch(rank))
assert torch.equal(*ddp.gather(model.module.bn.running_mean))
model.train()
model.zero_grad()
file = io.BytesIO()
torch.save(model, file)
file.seek(0)
for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False)):
    for step in (plain, past):
        check("copy", twin, step)
    check("original", model, plain)
frozen = pickle.loads(pickle.dumps(ddp.DistributedDataParallel(new().requires_grad_(False))))
frozen.requires_grad_(True)
check("copy of a frozen one", frozen, plain)

# nothing of a model that is gone stays behind
import gc, weakref
gone = ddp.DistributedDataParallel(new())
plain(gone, None, rank)
plain(gone, None, rank)
seen = weakref.ref(gone.module.a.weight), weakref.ref(gone)
del gone
gc.collect()
assert [reference() for reference in seen] == [None, None]
ddp.print("done")
"""


def test_parameters_that_change_after_the_wrap(lab, tmp_path):
    script = write(tmp_path, MODEL + CHANGES)
    assert lab.run(script, processes=2, recorded=False, timeout=120).ok().printed == "done\n"


COMPILED = """
from dp2ddp.runtime import parts
class Loader:
    pass
loader = Loader()
for wrap in (lambda net: torch.compile(ddp.DistributedDataParallel(net), backend="eager"),
             lambda net: ddp.DistributedDataParallel(torch.compile(net, backend="eager"))):
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))
    model, plain_one = wrap(copy.deepcopy(net)), ddp.DistributedDataParallel(net)
    for n in (4, 3, 4, 3):
        x = torch.ones(n, 3).cumsum(0).chunk(world)[rank]
        parts.drawn(loader, parts.Part(len(x), n))
        for m in (model, plain_one):
            m.zero_grad()
            m(x).pow(2).mean().backward()
        for p, q in zip(model.parameters(), plain_one.parameters()):
            assert torch.allclose(p.grad, q.grad, rtol=1e-12), n
net = nn.Linear(3, 2)
whole = torch.compile(ddp.DataParallel(copy.deepcopy(net)), backend="eager")
for _ in range(2):
    whole.zero_grad()
    net.zero_grad()
    x = torch.ones(5, 3).cumsum(0)
    whole(x).pow(2).sum().backward()
    net(x).pow(2).sum().backward()
    for p, q in zip(whole.parameters(), net.parameters()):
        assert torch.allclose(p.grad, q.grad, rtol=1e-12)
ddp.print("done")
"""


def test_models_and_wrappers_may_be_compiled(lab, tmp_path):
    script = write(tmp_path, MODEL + COMPILED)
    assert lab.run(script, processes=2, recorded=False, timeout=120).ok().printed == "done\n"


LOGGED = """
logging.basicConfig(stream=sys.stdout, format="%(name)s %(levelname)s %(message)s", level=logging.DEBUG)
logging.getLogger("torch").setLevel(logging.WARNING)
model = ddp.DistributedDataParallel(new())
with torch.no_grad():
    model(batch(rank))
for _ in range(3):
    loss(model(batch(rank), "a")).backward()
ddp.DistributedDataParallel(new().requires_grad_(False))(batch(rank))
"""


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        (
            2,
            "gradients averaged over 2 ranks; rank 0's 3 buffers before each training forward; 4 parameters not reached "
            "by the forward get zero gradients (b.weight, b.bias, c.weight, …)\nnothing to train\n",
        ),
        (1, "nothing to synchronise in a group of one\n" * 2),
    ],
)
def test_one_line_says_what_was_arranged(lab, tmp_path, processes, expected):
    run = lab.run(write(tmp_path, MODEL + LOGGED), processes=processes, recorded=False, timeout=120).ok()
    start = "dp2ddp DEBUG Net on cpu, 9 parameters (43 numbers): "
    assert run.printed == "".join(f"{start}{line}\n" for line in expected.splitlines())
    assert run.errors == ""


def test_a_plain_process_goes_straight_to_the_module(caplog):
    torch.manual_seed(0)
    bare = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3))
    model = ddp.DistributedDataParallel(copy.deepcopy(bare))
    assert isinstance(model, nn.parallel.DistributedDataParallel)
    assert list(model.state_dict()) == [f"module.{k}" for k in bare.state_dict()]
    with caplog.at_level(logging.DEBUG, "dp2ddp"), model.no_sync(), model.join():
        for net in (bare, model):
            net(torch.ones(4, 3)).sum().backward()
    assert [record.levelname for record in caplog.records] == ["DEBUG"]
    for p, q in zip(bare.parameters(), model.parameters(), strict=True):
        assert torch.equal(p.grad, q.grad)
    assert not [m for m in (bare, model) if not torch.equal(m(torch.ones(2, 3)), bare(torch.ones(2, 3)))]
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin.eval()(torch.ones(2, 3)), model.eval()(torch.ones(2, 3)))
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    bare.load_state_dict(ddp.strip_module_prefix(torch.load(file)))
    ddp.DistributedDataParallel(nn.Linear(1, 1).requires_grad_(False))(torch.ones(1, 1))
    ddp.DistributedDataParallel(nn.ReLU())(torch.ones(1))
    assert model.double()(torch.ones(2, 3, dtype=torch.double)).dtype is torch.double
    assert repr(model).startswith("DistributedDataParallel(\n  (module): Sequential(")


BESIDE = """
from torch import nn
ddp.init()
rank, world = ddp.get_rank(), ddp.get_world_size()
torch.manual_seed(0)

class Around(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def forward(self, x):
        return self.inner(x)

inner = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
shown, trained = ddp.DistributedDataParallel(inner), ddp.DistributedDataParallel(Around(inner))
fixed = torch.randn(5, 3)
for step in range(3):
    trained.train()
    trained(torch.randn(6, 3, generator=torch.Generator().manual_seed(10 * step + rank))).sum().backward()
    shown.eval()
    with torch.no_grad():
        outputs = ddp.gather(shown(fixed).tolist())
    assert all(it == outputs[0] for it in outputs), (step, outputs)
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_a_model_that_another_one_trains_is_evaluated_with_rank_0_s_buffers(lab, tmp_path, processes):
    lab.run(write(tmp_path, BESIDE), processes=processes, recorded=False, timeout=60).ok()


ONE_BUFFER = """
ddp.init()
rank = ddp.get_rank()

class Encoding(torch.nn.Module):
    def __init__(self, buffer):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.register_buffer("buffer", buffer)
    def forward(self, x):
        return self.layer(x) + self.buffer.sum()

made = torch.randn(6, 4) + rank
for buffer in (made.unsqueeze(0).transpose(0, 1), made[:1].expand(5, 4), made.t()):
    for wrapper in (ddp.DistributedDataParallel, ddp.DataParallel):
        model = wrapper(Encoding(buffer.clone(memory_format=torch.preserve_format) if buffer.stride()[0] else buffer))
        for _ in range(2):
            model(torch.ones(4, 4)).sum().backward()
        held = ddp.gather(model.module.buffer.tolist())
        assert held[0] == held[1] and tuple(model.module.buffer.shape) == tuple(buffer.shape)
        assert rank or torch.equal(model.module.buffer, buffer)
"""


def test_a_buffer_alone_may_have_any_strides(lab, tmp_path):
    """torch can't broadcast a single buffer of unusual strides, as that of the usual positional encoding."""
    lab.run(write(tmp_path, ONE_BUFFER), processes=2, recorded=False, timeout=60).ok()


OWN_DEVICE = """\
import torch
from dp2ddp import runtime as ddp

ddp.init()
model = ddp.DistributedDataParallel(torch.nn.Linear(4, 2))
model.device = "cpu"
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(4, 4)).sum().backward()
    optimizer.step()
    model.double() if _ else model.to("cpu")
    model.float()
assert model.device == "cpu" and isinstance(model.device, str)
model.module.weight.requires_grad = False
model(torch.ones(4, 4)).sum().backward()
assert model.device == "cpu" and isinstance(model.device, str)
"""


@pytest.mark.parametrize("processes", [1, 2])
def test_a_program_may_keep_its_device_at_the_wrapper(lab, tmp_path, processes):
    """nn.DataParallel has no ``device``, and torch's DistributedDataParallel has one."""
    lab.run(write(tmp_path, OWN_DEVICE), processes=processes, recorded=False, timeout=60).ok()
