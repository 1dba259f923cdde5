"""DistributedDataParallel: DataParallel's tolerance, and the gradients' average to the bit."""

import copy
import io
import pickle

import torch
from jobs import run, write
from torch import nn

from dp2ddp import runtime as ddp

MODEL = """
import copy, pickle
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)
        self.bn = nn.BatchNorm1d(3)
    def forward(self, x, which="abc"):
        for name in which:
            x = getattr(self, name)(x).tanh()
        return {"out": [self.bn(x)]}

def loss(output):
    return output["out"][0].pow(3).sum()

def batch(rank, i):
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(10 * i + rank))

def by_hand(model, steps):
    # the mean over ranks of the gradient that accumulates over a rank's steps: [(which per rank), ...]
    total = None
    for rank in range(2):
        bare = copy.deepcopy(model)
        for i, which in enumerate(steps):
            loss(bare(batch(rank, i), which[rank])).backward()
        grads = [torch.zeros_like(p) if p.grad is None else p.grad / 2 for p in bare.parameters()]
        total = grads if total is None else [a + b for a, b in zip(total, grads)]
    return total

def check(model, expected):
    for (name, p), e in zip(model.module.named_parameters(), expected, strict=True):
        assert torch.allclose(p.grad, e, rtol=1e-12, atol=1e-14), (name, p.grad, e)
        assert torch.equal(*ddp.gather(p.grad)), name
    model.zero_grad(set_to_none=True)

def new(seed=0):
    torch.manual_seed(seed)
    return Net().double()
torch.set_default_dtype(torch.float64)
ddp.init()
rank = ddp.get_rank()
"""


def test_gradients_are_the_average_whatever_the_forward_uses(tmp_path):
    write(
        tmp_path,
        MODEL + """
bare = new()
model = ddp.DistributedDataParallel(new(seed=rank))  # the start is rank 0's
assert isinstance(model, nn.parallel.DistributedDataParallel)
assert list(model.state_dict()) == [f"module.{k}" for k in bare.state_dict()]

for _ in range(2):  # every parameter; some nowhere; other ones on each rank; from one step to the next
    for which in (("abc", "abc"), ("a", "a"), ("ab", "b"), ("c", "ab"), ("abc", "abc")):
        loss(model(batch(rank, 0), which[rank])).backward()
        check(model, by_hand(bare, [which]))

# two forwards, one backward (GANs), other parameters in each, BatchNorm buffers broadcast between
for steps in ([("abc", "abc")] * 2, [("a", "a"), ("b", "b")], [("ab", "c"), ("b", "abc")]):
    outputs = [model(batch(rank, i), which[rank]) for i, which in enumerate(steps)]
    sum(map(loss, outputs)).backward()
    check(model, by_hand(bare, steps))
    # two forwards, two backwards
    outputs = [model(batch(rank, i), which[rank]) for i, which in enumerate(steps)]
    for output in outputs:
        loss(output).backward()
    check(model, by_hand(bare, steps))
    # accumulation
    with model.no_sync():
        loss(model(batch(rank, 0), steps[0][rank])).backward()
    loss(model(batch(rank, 1), steps[1][rank])).backward()
    check(model, by_hand(bare, steps))

# parts frozen for a while stay untouched; all frozen (the other network's turn): nothing is expected
for p in model.module.b.parameters():
    p.requires_grad_(False)
loss(model(batch(rank, 0))).backward()
assert all(p.grad is None and not p.requires_grad for p in model.module.b.parameters())
for p in model.parameters():
    p.requires_grad_(False)
x = batch(rank, 0).requires_grad_()
loss(model(x)).backward()
assert x.grad is not None
for p in model.parameters():
    p.requires_grad_(True)
model.zero_grad(set_to_none=True)
loss(model(batch(rank, 0))).backward()
check(model, by_hand(bare, [("abc", "abc")]))

# gradient penalty: a gradient of a gradient
def penalty(net, x):
    x = x.requires_grad_()
    return torch.autograd.grad(loss(net(x)), x, create_graph=True)[0].pow(2).sum()
penalty(model, batch(rank, 0)).backward()
halves = []
for r in range(2):
    one = copy.deepcopy(bare)
    penalty(one, batch(r, 0)).backward()
    halves.append([torch.zeros_like(p) if p.grad is None else p.grad / 2 for p in one.parameters()])
for p, e in zip(model.parameters(), map(sum, zip(*halves))):
    assert p.grad is None or torch.allclose(p.grad, e, rtol=1e-9, atol=1e-12)
model.zero_grad(set_to_none=True)

# buffers: rank 0's count; copies synchronise too
model(batch(rank, rank))
model.eval()
with torch.no_grad():
    model(batch(rank, 0))
assert torch.equal(*ddp.gather(model.module.bn.running_mean))
model.train()
twin = copy.deepcopy(model)
loss(twin(batch(rank, 0), "a")).backward()
check(twin, by_hand(bare, [("a", "a")]))

# nothing to train: buffers are kept in step all the same
frozen = ddp.DistributedDataParallel(new(seed=rank).requires_grad_(False))
assert torch.equal(*ddp.gather(frozen.module.a.weight))
for i in range(2):
    frozen(batch(rank, i))
frozen.eval()
frozen(batch(0, 0))
assert torch.equal(*ddp.gather(frozen.module.bn.running_mean))
empty = ddp.DistributedDataParallel(nn.ReLU())
assert empty(torch.tensor([-1.0])).item() == 0
ddp.print("done")
""",
    )
    result = run(["train.py"], tmp_path)
    assert (result.code, result.out, result.err, result.left) == (0, "done\n", "", [])


def test_a_plain_process_goes_straight_to_the_module():
    torch.manual_seed(0)
    bare = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3))
    model = ddp.DistributedDataParallel(copy.deepcopy(bare))
    assert isinstance(model, nn.parallel.DistributedDataParallel)
    assert list(model.state_dict()) == [f"module.{k}" for k in bare.state_dict()]
    with model.no_sync(), model.join():
        for net in (bare, model):
            net(torch.ones(4, 3)).sum().backward()
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
    assert repr(model).startswith("DistributedDataParallel(\n  (module): Sequential(")
