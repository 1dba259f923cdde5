"""Modules trained beside the wrapped one: the steps of one process on the whole batch, in float64."""

import pytest
from jobs import write

TRAINING = """
import copy
from contextlib import nullcontext
from torch import nn
from torch.nn import functional as F
from dp2ddp.runtime import parts
torch.set_default_dtype(torch.float64)
ddp.init()
rank, world = ddp.get_rank(), ddp.get_world_size()
planted = "planted" in sys.argv

class Loader:
    pass
loader = Loader()

def draw(n, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 3, generator=generator), torch.randint(0, 2, (n,), generator=generator)

def own(*tensors):
    # this rank's chunk, as DataParallel scatters it; rank 0's for a rank that gets none
    columns = [tensor.chunk(world) for tensor in tensors]
    has = rank < len(columns[0])
    parts.drawn(loader, parts.Part(len(columns[0][rank]) if has else 0, len(tensors[0])))
    return [chunks[rank if has else 0] for chunks in columns]

class Centers(nn.Module):
    def __init__(self):
        super().__init__()
        self.centers = nn.Parameter(torch.randn(2, 4))
    def forward(self, features, labels):
        return (features - self.centers[labels]).square().sum(1).mean()

class Contrast(nn.Module):
    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(0.5))
    def forward(self, features, labels):
        logits = features @ features.T / self.temperature
        same = (labels[:, None] == labels) & ~torch.eye(len(labels), dtype=torch.bool)
        logs = logits.masked_fill(torch.eye(len(labels), dtype=torch.bool), -1e9).log_softmax(1)
        return -(logs * same).sum(1).div(same.sum(1).clamp(min=1)).mean()

class Net(nn.Module):
    def __init__(self, nested=False):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
        self.head = nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 2))])
        self.unused = nn.Linear(4, 4)
        self.centers, self.contrast = Centers(), Contrast()
    def forward(self, x):
        features = self.encoder(x)
        hidden = self.head[0](features)
        return features, self.head[1](hidden)

def new():
    torch.manual_seed(0)
    single = Net()
    torch.manual_seed(rank)
    model = Net() if rank else copy.deepcopy(single)
    return single, model

def parallel(model):
    model.encoder = ddp.DistributedDataParallel(model.encoder)
    if not planted:
        ddp.sync_gradients(model)

def check(name, model, single):
    mine = [p for p in model.parameters()]
    for (key, p), q in zip(single.named_parameters(), mine, strict=True):
        assert (p - q).abs().max() <= 1e-12, (name, key, (p - q).abs().max().item())
        assert (p.grad is None) == (q.grad is None), (name, key)

def train(net, step, sizes, accumulation, split):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    for i, n in enumerate(sizes):
        x, y = draw(n, seed=i)
        whole = (lambda rows: rows) if not split else ddp.whole_batch
        for loss in step(net, whole, *(own(x, y) if split else (x, y))):
            (loss / accumulation).backward()
        if (i + 1) % accumulation == 0:
            optimizer.step()
            optimizer.zero_grad()

def head(net, whole, x, y):
    yield F.cross_entropy(net(x)[1], y)

def frozen(net, whole, x, y):
    with torch.no_grad():
        features = net.encoder(x)
    yield F.cross_entropy(net.head[1](net.head[0](features)), y)

def criterion(net, whole, x, y):
    features, logits = net(x)
    penalty = 0.1 * net.head[0].weight.square().sum()
    yield F.cross_entropy(logits, y) + 0.5 * net.centers(features, y) + penalty

def contrast(net, whole, x, y):
    features, logits = net(x)
    yield net.contrast(whole(F.normalize(logits)), whole(y))

def mixed(net, whole, x, y):
    features, logits = net(x)
    with torch.no_grad():
        still = net.encoder(x)
    loss = F.cross_entropy(logits, y) + net.centers(whole(features), whole(y)) + net.contrast(whole(still), whole(y))
    ddp.batch_loss(loss)  # as where it is printed
    yield loss

def weighted(net, whole, x, y):
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0]))
    value = loss(net(x)[1], y)
    yield value if whole(y) is y else ddp.batch_loss(value, weight=ddp.loss_weight(loss, y))

def backwards(net, whole, x, y):
    features, logits = net(x)
    yield F.cross_entropy(logits, y)
    yield net.centers(net(x)[0], y)

def penalized(net, whole, x, y):
    x = x.clone().requires_grad_()
    features, logits = net(x)
    (inner,) = torch.autograd.grad(logits.square().sum(), x, create_graph=True)
    yield F.cross_entropy(logits, y) + inner.square().sum(1).mean()

for step in (head, frozen, criterion, contrast, mixed, weighted, backwards, penalized):
    for sizes in ([12, 12, 12], [10, 7, 5, 1], [9, 4]):
        for accumulation in (1, 2):
            single, model = new()
            parallel(model)
            train(single, step, sizes, accumulation, False)
            train(model, step, sizes, accumulation, True)
            check((step.__name__, sizes, accumulation), model, single)
ddp.print("equal")
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_steps_equal_those_of_one_process(lab, tmp_path, processes):
    script = write(tmp_path, TRAINING)
    assert lab.run(script, processes=processes, recorded=False, timeout=180).ok().printed == "equal\n"


def test_left_out_they_drift_apart(lab, tmp_path):
    result = lab.run(write(tmp_path, TRAINING), ["planted"], processes=2, recorded=False)
    assert result.code != 0 and "AssertionError" in result.errors


CASES = """
import gc, pickle, weakref
def same(tensor):
    found = [None] * world
    dist.all_gather_object(found, tensor.detach())
    return all(torch.equal(tensor, other) for other in found)

# what it leaves alone, and what it makes the same
torch.manual_seed(rank)
net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
net[1].running_mean += rank
before = [*vars(net)], [*net.state_dict()], type(net)
ddp.sync_gradients(net)
ddp.sync_gradients(net)
assert before == ([*vars(net)], [*net.state_dict()], type(net))
assert all(map(same, net.state_dict().values()))
for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):  # a copy is each rank's own
    twin(torch.randn(4, 2) + rank).sum().backward()
    assert not same(twin[0].weight.grad)
ddp.sync_gradients(nn.ReLU())
for wrong in (net.parameters(), None):
    try:
        ddp.sync_gradients(wrong)
        raise SystemExit("no error")
    except TypeError as error:
        assert "takes a module" in str(error)

# a gradient on one rank only is a share of the mean; one on no rank is none; a frozen one stays as it is
heads = nn.ModuleList([nn.Linear(2, 1, bias=False) for _ in range(4)])
heads[3].requires_grad_(False)
ddp.sync_gradients(heads)
x = torch.ones(1, 2)
(heads[0](x) + (heads[1](x) if rank == 1 else 0) + heads[3](x)).sum().backward()
assert torch.equal(heads[0].weight.grad, torch.ones(1, 2))
assert torch.allclose(heads[1].weight.grad, torch.ones(1, 2) / world)
assert heads[2].weight.grad is None and heads[3].weight.grad is None
heads[3].requires_grad_(True)
heads[3](x * rank).sum().backward()
assert torch.allclose(heads[3].weight.grad, torch.full((1, 2), (world - 1) / 2))
heads.half()
heads.double()
heads[3](x * rank).sum().backward()
assert torch.allclose(heads[3].weight.grad, torch.full((1, 2), world - 1.0))

# an overflow on one rank is all ranks'; a backward pass that failed leaves nothing behind
head = nn.Linear(2, 1)
ddp.sync_gradients(head)
class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, g):
        raise ValueError("out of memory")
inner = torch.ones(1, 2, requires_grad=True)
try:
    head(Fails.apply(inner)).sum().backward()
except ValueError:
    head.zero_grad()
head(x * (float("inf") if rank == 1 else 1)).sum().backward()
assert head.weight.grad.isinf().all()
small = nn.Linear(2, 1).float()
ddp.sync_gradients(small)
scaler, optimizer = torch.amp.GradScaler("cpu", init_scale=8.0), torch.optim.SGD(small.parameters(), lr=0.1)
for step in range(2):
    kept = small.weight.detach().clone()
    overflow = float("inf") if rank == 1 and step == 0 else 1.0
    optimizer.zero_grad()
    scaler.scale(small((x * (rank + 1) * overflow).float()).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(small.weight, kept) is (step == 0) and scaler.get_scale() == 4.0 and same(small.weight)

# many models in one backward pass, reached in another order on each rank
models = [ddp.DistributedDataParallel(nn.Linear(2, 2)) for _ in range(2)]
others = [nn.Linear(2, 2) for _ in range(3)]
for other in others:
    ddp.sync_gradients(other)
order = [others[(rank + i) % 3] for i in range(3)]
for step in range(3):
    value = x * (rank + 1)
    for model in (models[0], *order, models[1]):
        value = torch.tanh(model(value))
    value.sum().backward()
    assert all(same(p.grad) for model in (*models, *others) for p in model.parameters())

# several modules of which a rank reaches only some
heads = [nn.Linear(2, 1, bias=False) for _ in range(4)]
for head in heads:
    ddp.sync_gradients(head)
(heads[1 if rank else 0](x) + heads[2](x * rank)).sum().backward()
shares = (1 / world, (world - 1) / world, (world - 1) / 2)
for head, share in zip(heads, shares):
    assert torch.allclose(head.weight.grad, torch.full((1, 2), share)), (share, head.weight.grad)
assert heads[3].weight.grad is None

# nothing is held, nor followed, longer than it lives; what is replaced is not forgotten
gone = nn.Linear(2, 1)
ddp.sync_gradients(gone)
gone(x).sum().backward()
references = [weakref.ref(it) for it in (gone, *gone.parameters())]
del gone
gc.collect()
assert not any(reference() is not None for reference in references)
replaced = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
ddp.sync_gradients(replaced)
replaced[1] = nn.Linear(2, 1)
with torch.no_grad():
    replaced(x)
try:
    replaced(x)
    raise SystemExit("no error")
except RuntimeError as error:
    assert "parameters of Sequential were replaced or added after" in str(error)
ddp.sync_gradients(replaced)
replaced(x * rank).sum().backward()
assert all(same(p.grad) for p in replaced.parameters())

# wherever one forward runs another, gradients weigh once
class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 2)
    def forward(self, x):
        return self.head(self.body(x).tanh())
class Called(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))
    def forward(self, model, x, y):
        return F.cross_entropy(model(x) * self.scale, y)
torch.manual_seed(0)
single, criterion = Whole(), Called()
inner, called = copy.deepcopy(single), copy.deepcopy(criterion)
ddp.sync_gradients(inner.head)
ddp.sync_gradients(called)
wrapped = ddp.DistributedDataParallel(inner)
for n in (2 * world, 2 * world + 1):
    x, y = draw(n, 0)
    (criterion(single, x, y) + F.cross_entropy(single(2 * x), y)).backward()
    x, y = own(x, y)
    (called(wrapped, x, y) + F.cross_entropy(wrapped(2 * x), y)).backward()
    for p, q in zip([*single.parameters(), *criterion.parameters()], [*inner.parameters(), *called.parameters()]):
        assert (p.grad - q.grad).abs().max() <= 1e-12, ("within", n)
    for module in (single, inner, criterion, called):
        module.zero_grad()
x, y = own(*draw(2 * world, 0))
x = torch.ones(1, 2)

# a part that is wrapped later is left to its wrapper
net = Net()
ddp.sync_gradients(net)
net.encoder = ddp.DistributedDataParallel(net.encoder)
torch.manual_seed(0)
single = Net()
net.load_state_dict({key: single.state_dict()[key.replace("encoder.module", "encoder")] for key in net.state_dict()})
train(single, head_step, [10, 7], 1, False)
train(net, head_step, [10, 7], 1, True)
check("wrapped later", net, single)

# where parts differ in size, what can't be weighed is refused
def refused(loss):
    try:
        loss().backward()
    except RuntimeError as error:
        return str(error)
    return ""
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = ddp.DistributedDataParallel(nn.Linear(3, 2)), nn.Linear(2, 2)
        self.scale = nn.Parameter(torch.ones(()))
    def forward(self, x):
        return self.head(self.body(x)) * self.scale
scaled, bare = Scaled(), nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
ddp.sync_gradients(scaled)
ddp.sync_gradients(bare)
x, y = own(*draw(2 * world, 0))
assert refused(lambda: scaled(x).sum()) == refused(lambda: bare[1](bare[0](x)).sum()) == ""
x, y = own(*draw(2 * world + 1, 0))
assert "beside a wrapped part of Scaled" in refused(lambda: scaled(x).sum())
assert "calls layer '1' of Sequential directly, bypassing the module that sync_gradients() was given" in refused(
    lambda: bare[1](bare[0](x).detach()).sum())
assert refused(lambda: bare(x).sum()) == ""
with torch.no_grad():
    bare[0](x)

kept = pickle.dumps(bare)  # to be read without dp2ddp, also now that all layers look out
assert b"dp2ddp" not in kept
twin = pickle.loads(kept)
twin[1](twin[0](x)).sum().backward()

sparse = nn.Embedding(3, 2, sparse=True)
ddp.sync_gradients(sparse)
assert "can't average the sparse gradient" in refused(lambda: sparse(torch.tensor([rank])).sum())
ddp.print("done")
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_special_cases(lab, tmp_path, processes):
    body = TRAINING.partition("for step in (head,")[0] + "head_step = head\n" + CASES
    result = lab.run(write(tmp_path, body), processes=processes, recorded=False)
    assert result.ok().printed == "done\n"


def test_a_plain_process_has_nothing_to_do(lab, tmp_path):
    body = """
    net = torch.nn.Linear(2, 1)
    ddp.sync_gradients(net)
    assert not net._forward_hooks and not net._forward_pre_hooks
    net(torch.ones(1, 2)).sum().backward()
    ddp.print("done")
    """
    assert lab.run(write(tmp_path, body), processes=1, recorded=False).ok().printed == "done\n"
    result = lab.run(
        write(tmp_path, "ddp.sync_gradients(torch.nn.Linear(1, 1))"), processes=2, recorded=False
    )
    assert result.code and "sync_gradients()" in result.errors
