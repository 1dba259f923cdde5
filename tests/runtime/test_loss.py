"""Losses of the whole batch: the same steps and numbers as one process, in float64."""

import numpy as np
import pytest
import torch
from jobs import write
from torch import nn

from dp2ddp import runtime as ddp
from dp2ddp.runtime import graph

TRAINING = """
import copy, warnings
import numpy as np
from torch import nn
from torch.nn import functional as F
from dp2ddp.runtime import graph, parts
torch.set_default_dtype(torch.float64)
ddp.init()
rank, world = ddp.get_rank(), ddp.get_world_size()
CLASSES = 3

class Loader:
    pass
loader = Loader()

def draw(n, kind, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 5, generator=generator)
    if kind == "values":
        return x, torch.randn(n, CLASSES, generator=generator)
    if kind == "probabilities":
        return x, torch.rand(n, CLASSES, generator=generator).softmax(1)
    if kind == "pixels":
        return x, torch.randint(CLASSES, (n, 4), generator=generator)
    return x, torch.randint(CLASSES, (n,), generator=generator)

def own(x, y):
    # this rank's chunk, as DataParallel scatters it; rank 0's for a rank that gets none
    chunks = list(zip(x.chunk(world), y.chunk(world)))
    mine = chunks[rank] if rank < len(chunks) else None
    parts.drawn(loader, parts.Part(len(mine[0]) if mine else 0, len(x)))
    return mine or chunks[0]

class Net(nn.Module):
    def __init__(self, outputs=CLASSES):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, outputs))
    def forward(self, x):
        out = self.layers(x)
        return out.view(len(x), CLASSES, 4) if out.shape[1] == 4 * CLASSES else out

def weighed(model, x):
    out = model(x)
    if torch.is_grad_enabled():
        graph.weigh(out, parts.weight(x))
    return out

def train(step, forward, model, sizes, accumulation, kind, chunk):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for i, n in enumerate(sizes):
        x, y = draw(n, kind, seed=i)
        loss = step(forward, *(own(x, y) if chunk else (x, y)))
        losses.append(loss.item())
        (loss / accumulation).backward()
        if (i + 1) % accumulation == 0:
            optimizer.step()
            optimizer.zero_grad()
    return losses

def compare(name, one, many, sizes, accumulation=1, kind="classes", outputs=CLASSES):
    torch.manual_seed(7)
    single = Net(outputs)
    model = nn.parallel.DistributedDataParallel(copy.deepcopy(single))
    expected = train(one, single, single, sizes, accumulation, kind, chunk=False)
    losses = train(many, lambda x: weighed(model, x), model, sizes, accumulation, kind, chunk=True)
    assert len(set(map(str, ddp.gather(losses)))) == 1, (name, "the ranks' losses differ")
    for a, b in zip(losses, expected, strict=True):  # one whose targets are all ignored is NaN
        assert abs(a - b) <= 1e-12 * max(1, abs(b)) or a != a and b != b, (name, sizes, losses, expected)
    for (key, p), q in zip(single.named_parameters(), model.parameters(), strict=True):
        assert (p - q).abs().max() <= 1e-12, (name, sizes, accumulation, key, (p - q).abs().max().item())
"""


CRITERIA = """
def with_criterion(criterion):
    def one(forward, x, y):
        return criterion(forward(x), y)
    def many(forward, x, y):
        if criterion.reduction == "sum":
            return ddp.batch_loss(criterion(forward(x), y), reduction="sum")
        return ddp.batch_loss(criterion(forward(x), y), weight=ddp.loss_weight(criterion, y))
    return one, many

class_weights = torch.tensor([0.2, 1.0, 3.0])
plain = nn.CrossEntropyLoss()
cases = {
    "mean": (plain, "classes"),
    "sum": (nn.CrossEntropyLoss(reduction="sum"), "classes"),
    "class weights": (nn.CrossEntropyLoss(class_weights), "classes"),
    "ignored": (nn.CrossEntropyLoss(ignore_index=1), "classes"),
    "both": (nn.NLLLoss(class_weights, ignore_index=0), "classes"),
    "smoothed": (nn.CrossEntropyLoss(class_weights, ignore_index=2, label_smoothing=0.1), "classes"),
    "probabilities": (nn.CrossEntropyLoss(class_weights), "probabilities"),
    "elements": (nn.BCEWithLogitsLoss(pos_weight=class_weights), "values"),
    "pixels": (nn.CrossEntropyLoss(class_weights, ignore_index=1), "pixels"),
}
even, uneven = 2 * world, [2 * world + 1, 2 * world, world + 1, 1]
for name, (criterion, kind) in cases.items():
    outputs = 4 * CLASSES if kind == "pixels" else CLASSES
    for accumulation, sizes in ((1, [even] * 3), (1, [3 * world + 1, *uneven]), (3, [*uneven, even, world + 1])):
        compare(name, *with_criterion(criterion), sizes, accumulation, kind, outputs)

# the mean by the parts' sizes needs no weight
compare("sizes", lambda f, x, y: plain(f(x), y), lambda f, x, y: ddp.batch_loss(plain(f(x), y)), uneven)

# losses of one element with dimensions, which began as torch.zeros(1)
def shaped(loss, shape):
    return (torch.zeros(shape) + loss).reshape(shape)
def one_element(combine, shape, weighed=False):
    def step(forward, x, y):
        criterion = cases["both"][0] if weighed else plain
        weight = [torch.as_tensor(ddp.loss_weight(criterion, y)).reshape(shape)] if weighed else []
        loss = combine(shaped(criterion(forward(x), y), shape), *weight)
        assert loss.shape == shape
        return loss
    return step
for shape in ((1,), (1, 1)):
    for weighed_ in (False, True):
        compare(f"{shape}", one_element(lambda loss, *_: loss, shape, weighed_), one_element(ddp.batch_loss, shape, weighed_), uneven)

# a penalty on parameters, added after
def penalised(combine):
    def step(forward, x, y):
        network = forward if isinstance(forward, nn.Module) else forward.__closure__[0].cell_contents
        return combine(plain(forward(x), y)) + 0.1 * sum(p.pow(2).sum() for p in network.parameters())
    return step
compare("penalty", penalised(lambda x: x), penalised(ddp.batch_loss), [even, *uneven])

# a mean written by hand, of what a mask leaves; on rank 0 it leaves nothing, 0 / 0, and in the last batch on none
def masked(forward, x, y, mask, least=0):
    loss = F.mse_loss(forward(x).sum(1), y.double(), reduction="none")
    return (loss * mask).sum() / mask.sum().clamp(min=least)
def one(forward, x, y):
    return masked(forward, x, y, (torch.arange(len(x)) >= len(x.chunk(world)[0])).double())
def many(forward, x, y):
    mask = torch.full((len(x),), float(rank > 0))
    return ddp.batch_loss(masked(forward, x, y, mask), weight=mask.requires_grad_().sum())
compare("nothing on rank 0", one, many, [2 * world, 2 * world + 1])
def one(forward, x, y):
    return masked(forward, x, y, torch.full((len(x),), float(len(x) > world)), least=1)
def many(forward, x, y):
    mask = torch.full((len(x),), float(len(x) > 1))
    return ddp.batch_loss(masked(forward, x, y, mask, least=1), weight=mask.sum())
compare("nothing at all", one, many, [2 * world, world, 2 * world])
torch.manual_seed(7)
model = nn.parallel.DistributedDataParallel(Net())
x, y = own(*draw(2 * world, "classes", 0))
loss = ddp.batch_loss(masked(lambda x: weighed(model, x), x, y, torch.zeros(len(x))), weight=0)
loss.backward()
assert loss.isnan() and all(p.grad.isnan().all() for p in model.parameters())  # as in one process

# all targets of rank 0 are ignored
def one(forward, x, y):
    y = y.clamp(max=1)
    y[: len(x.chunk(world)[0])] = 2
    return F.cross_entropy(forward(x), y, ignore_index=2)
def many(forward, x, y):
    y = y.clamp(max=1)
    if rank == 0:
        y[:] = 2
    return ddp.batch_loss(F.cross_entropy(forward(x), y, ignore_index=2), weight=(y != 2).sum())
compare("all ignored on rank 0", one, many, [2 * world, 2 * world + 1, 3 * world + 1])

# without a graph; two batches in one loss; a penalty before
with torch.no_grad():
    x, y = own(*draw(2 * world + 1, "classes", 0))
    right = (model.module(x).argmax(1) == y).double()
    every = ddp.whole_batch(right)
    for kind in (float, np.float64, np.float32, np.array, lambda value: np.asarray(value, dtype="float32")):
        found = ddp.batch_loss(kind(right.mean().item()))
        assert type(found) is type(kind(1.0)) and getattr(found, "dtype", 0) == getattr(kind(1.0), "dtype", 0)
        assert abs(found - every.mean().item()) < (1e-7 if "32" in str(getattr(found, "dtype", "")) else 1e-15)
    for kind in (lambda value: np.array([value]), lambda value: torch.tensor([[value]])):
        found = ddp.batch_loss(kind(right.mean().item()))
        assert type(found) is type(kind(1.0)) and found.shape == kind(1.0).shape
        assert abs(found - every.mean().item()) < 1e-15
    counted = int(right.sum())
    for kind in (int, np.int64):
        found = ddp.batch_loss(kind(counted), reduction="sum")
        assert type(found) is kind and found == every.sum()
    weight = torch.tensor(float(rank + 1))
    assert abs(ddp.batch_loss(float(rank), weight) - sum(i * (i + 1) for i in range(world)) * 2 / world / (world + 1)) < 1e-15
    whole = draw(2 * world + 1, "classes", 0)
    value = ddp.batch_loss(plain(model.module(x), y))
    assert not value.requires_grad and abs(value - plain(model.module(whole[0]), whole[1])) < 1e-14
x, y = own(*draw(2 * world + 1, "classes", 0))
out = weighed(model, x)
second, y2 = own(*draw(world + 1, "classes", 1))
out2 = weighed(model, second)
assert graph.forward_weight(plain(out, y)) != graph.forward_weight(plain(out2, y2))
errors = []
for wrong in (
    lambda: ddp.batch_loss(plain(out, y) + plain(out2, y2)),
    lambda: ddp.batch_loss(plain(out, y) + sum(p.sum() for p in model.parameters()), reduction="sum"),
    lambda: ddp.batch_loss(out),
    lambda: ddp.batch_loss("1.0"),
    lambda: ddp.batch_loss(plain(out, y), reduction="none"),
    lambda: ddp.batch_loss(plain(out, y), 3.0, "sum"),
):
    try:
        wrong()
        errors.append("none")
    except (RuntimeError, ValueError, TypeError) as error:
        errors.append(str(error))
assert ["several batches" in errors[0], "bypasses the wrapped model" in errors[1]] == [True, True], errors
assert "shape" in errors[2] and "not str" in errors[3] and "'none'" in errors[4] and "'sum'" in errors[5], errors
ddp.print("done")
"""


@pytest.mark.sample(processes=(2, 3))
@pytest.mark.parametrize("processes", [2, 3])
def test_means_and_sums_over_the_whole_batch(lab, tmp_path, processes):
    script = write(tmp_path, TRAINING + CRITERIA)
    assert lab.run(script, processes=processes, recorded=False, timeout=60).ok().printed == "done\n"


WHOLE = """
def info_nce(features, labels):
    z = F.normalize(features)
    similar = z @ z.T / 0.3 - 1e9 * torch.eye(len(z))
    positive = (labels[:, None] == labels).double() - torch.eye(len(z))
    return -(similar.log_softmax(1) * positive).sum() / positive.sum().clamp(min=1)
def batch_hard_triplet(features, labels):
    distance = torch.cdist(features, features + 1e-3)
    same = labels[:, None] == labels
    furthest = (distance - 1e9 * ~same).max(1).values
    nearest = (distance + 1e9 * same).min(1).values
    return (furthest - nearest + 1).clamp(min=0).clamp(max=10).mean()
def barlow_twins(features, labels):
    a, b = ((f - f.mean(0)) / (f.std(0, unbiased=False) + 0.1) for f in (features, features.roll(1, 0).sin()))
    return (a.T @ b / len(a) - torch.eye(a.shape[1])).pow(2).sum()
def dice(features, labels):
    p, t = features.softmax(1), F.one_hot(labels, CLASSES)
    return 1 - ((2 * (p * t).sum(0) + 1) / (p.sum(0) + t.sum(0) + 1)).mean()

even, uneven = 2 * world, [3 * world + 1, 2 * world, world + 1, 2]
for loss in (info_nce, batch_hard_triplet, barlow_twins, dice):
    def one(forward, x, y):
        return loss(forward(x), y)
    def each(forward, x, y):
        return loss(ddp.whole_batch(forward(x)), ddp.whole_batch(y))
    def together(forward, x, y):
        batch = ddp.whole_batch({"rows": [forward(x)], "labels": (y, y)}, entries=False)
        return loss(batch["rows"][0], batch["labels"][1])
    for many in (each, together):
        compare(loss.__name__, one, many, [even] * 2)
        compare(loss.__name__, one, many, uneven)
        compare(loss.__name__, one, many, [*uneven, even, world + 1], accumulation=3)

# the same outputs in a mean over samples as well, and samples in the second dimension
def one(forward, x, y):
    out = forward(x)
    return F.cross_entropy(out, y) + dice(out, y)
def many(forward, x, y):
    out = forward(x)
    turned = ddp.whole_batch(out.T, dim=-1)
    assert turned.is_contiguous() and not ddp.whole_batch(y.double()).requires_grad
    return ddp.batch_loss(F.cross_entropy(out, y)) + dice(turned.T, ddp.whole_batch(y))
compare("both", one, many, uneven)

# what it gives may be written in place, each entry of a list after the one before it was needed
def one(forward, x, y):
    out = forward(x)
    return dice((2 * out).relu(), y) + 0.09 * out.pow(2).mean()
def many(forward, x, y):
    out = forward(x)
    rows = ddp.whole_batch([row.repeat(1 + i % 2) for i, row in enumerate(out)])
    squares = sum(row.mul_(0.3).pow(2).sum() / len(row) for row in rows) / len(rows)
    return dice(ddp.whole_batch(out.T, dim=1).mul_(2).relu_().T, ddp.whole_batch(y)) + squares
compare("written in place", one, many, uneven)

x, y = own(*draw(2 * world, "classes", 0))
batch = ddp.whole_batch((x, y.bool(), torch.zeros(len(x), 0), x.half(), torch.complex(x, -x)))
whole = draw(2 * world, "classes", 0)
assert torch.equal(batch[0], whole[0]) and torch.equal(batch[1], whole[1].bool()) and batch[2].shape == (len(batch[0]), 0)
assert torch.equal(batch[3], whole[0].half()) and torch.equal(batch[4], torch.complex(whole[0], -whole[0]))
assert ddp.whole_batch([]) == []

# lists with an entry for each sample, whose sizes differ or not, with their graph; arrays; what is of no sample
def samples(n):
    generator = torch.Generator().manual_seed(n)
    sizes = torch.randint(1, 5, (n,), generator=generator).tolist()
    boxes = [torch.randn(size, 4, generator=generator) for size in sizes]
    return boxes, [{"boxes": box, "label": torch.tensor(i), "name": str(i)} for i, box in enumerate(boxes)], sizes
def equal(one, other):
    if isinstance(one, torch.Tensor):
        return type(other) is torch.Tensor and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and one == other
for n in (2 * world, 2 * world + 1, world + 1, 3 * world + 1, 2):
    x, y = draw(n, "classes", 0)
    part, _ = own(x, y)
    step = -(-n // world)
    mine = slice(rank * step, (rank + 1) * step) if rank * step < n else slice(0, step)
    boxes, dicts, sizes = samples(n)
    names = np.array([f"sample {i}" for i in range(n)])
    def given(rows):
        return (x[rows], tuple(boxes[rows]), {"all": dicts[rows], "n": 7}, sizes[rows], x[rows].numpy(), names[rows], (3, "a"), None)
    assert equal(ddp.whole_batch(given(mine)), given(slice(None))), n
    leaves = [box.clone().requires_grad_() for box in boxes[mine]]
    total = sum(box.pow(2).sum() for box in ddp.whole_batch([box * 3 for box in leaves]))
    total.backward()
    for box in leaves if rank * step < n else ():
        torch.testing.assert_close(box.grad, 18 * box.detach() * world, rtol=1e-13, atol=0)
    # several tensors with as many rows as the part has samples are no such list, also where they are as many
    several = ddp.whole_batch((x[mine],) * step)
    assert len(several) == step and all(torch.equal(it, x) for it in several)
# where sizes speak for both, what is said or was so at this line before; else all ranks complain
own(*draw(2 * world, "classes", 0))
def firsts(sizes, **said):
    found = []
    for size in sizes:
        try:
            each = ddp.whole_batch([torch.full((size, 4), float(2 * rank + i)) for i in range(2)], **said)
            found.append([int(it[0, 0]) for it in each])
        except RuntimeError as error:
            assert "can't tell whether the list of 2 at train.py:" in str(error), error
            found.append("unclear")
    return found
every = [*range(2 * world)]
assert firsts([2], entries=True) == [every] and firsts([2], entries=False) == [[0, 1]]
assert firsts([2, 3, 2]) == ["unclear", every, every]
# samples that have types of their own: what torch.stack makes of them; their gradients stay as the rows are
own(*draw(2 * world, "classes", 0))  # each rank has two again
mine = torch.ones(2, 3, dtype=torch.float32 if rank else torch.float64, requires_grad=True)
whole = ddp.whole_batch((mine, mine.detach().int() if rank else mine.detach(), mine > 0 if rank else mine.detach().long()))
assert [it.dtype for it in whole] == [torch.float64, torch.float64, torch.int64] and (whole[2] == 1).all()
(whole[0] * torch.arange(2 * world)[:, None]).sum().backward()
assert mine.grad.dtype == mine.dtype and mine.grad[:, 0].tolist() == [world * 2 * rank, world * (2 * rank + 1)]
for value, kind, text in (
    (torch.zeros(2, 3 + rank), ValueError, "rank 1 has [['torch.float64', [4]]]"),
    (torch.zeros(2).to(torch.float8_e4m3fn if rank else torch.float32), ValueError, "torch.float8"),
    ([torch.zeros(2)] * (1 + rank), ValueError, "rank 1 has "),
    (object(), TypeError, "not object"),
    (rank + 0.5, ValueError, "rank 1 has 1.5"),
):
    try:
        ddp.whole_batch(value)
    except kind as error:
        assert text in str(error), str(error)
    else:
        raise AssertionError(text)
ddp.print("done")
"""


@pytest.mark.sample(processes=(2, 3))
@pytest.mark.parametrize("processes", [2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_losses_that_look_at_the_whole_batch(lab, tmp_path, processes):
    script = write(tmp_path, TRAINING + WHOLE)
    assert lab.run(script, processes=processes, recorded=False, timeout=60).ok().printed == "done\n"


RETURNED = """
from torch.utils.data import DataLoader, TensorDataset

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
    def forward(self, x, y):
        out = self.layer(x)
        return {"loss": F.mse_loss(out, y), "far": (out - y).abs().max().detach()}

torch.manual_seed(0)
model = ddp.DistributedDataParallel(Net())
alone = copy.deepcopy(model.module)
data = TensorDataset(torch.randn(9, 3), torch.randn(9, 2))
for x, y in ddp.shard(DataLoader(data, batch_size=2 * world + 1)):  # with parts of several sizes
    found = ddp.whole_batch(model(x, y))
    found["loss"].mean().backward()
step, sizes = 2 * world + 1, []
for start in range(0, 9, step):
    chunks = zip(*(it[start:start + step].chunk(world) for it in data.tensors))
    replicas = [alone(*chunk) for chunk in chunks]
    sizes.append(len(replicas))
    torch.stack([it["loss"] for it in replicas]).mean().backward()
assert found["far"].tolist() == [it["far"].item() for it in replicas] and not found["far"].requires_grad
for one, other in zip(model.parameters(), alone.parameters()):
    torch.testing.assert_close(one.grad, other.grad, rtol=1e-12, atol=1e-14)
ddp.print("done")
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_losses_that_models_return_are_a_vector_of_the_parts(lab, tmp_path, processes):
    """As nn.DataParallel's: numbers without dimensions, one of each replica that has samples."""
    script = write(tmp_path, TRAINING + RETURNED)
    assert lab.run(script, processes=processes, recorded=False, timeout=60).ok().printed == "done\n"


SHARDED = """
from torch.utils.data import DataLoader, TensorDataset

def run(step, model, loader, accumulation):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(2):
        for i, (x, y) in enumerate(loader):
            loss = step(model, x, y)
            losses.append(loss.item())
            (loss / accumulation).backward()
            if (i + 1) % accumulation == 0 or i + 1 == len(loader):
                optimizer.step()
                optimizer.zero_grad()
    return losses

class_weights = torch.tensor([0.2, 1.0, 3.0])
total = nn.CrossEntropyLoss(reduction="sum")
weighted = nn.CrossEntropyLoss(class_weights, ignore_index=1)
def both(model, x, y):
    out = model(x)
    return weighted(out, y) + info_nce(out, y)
def both_on_ranks(model, x, y):
    out = model(x)
    return ddp.batch_loss(weighted(out, y), ddp.loss_weight(weighted, y)) + info_nce(*ddp.whole_batch((out, y)))
steps = {  # in one process, and on each rank
    "mean": (lambda m, x, y: F.cross_entropy(m(x), y), lambda m, x, y: ddp.batch_loss(F.cross_entropy(m(x), y))),
    "sum": (lambda m, x, y: total(m(x), y), lambda m, x, y: ddp.batch_loss(total(m(x), y), reduction="sum")),
    "both": (both, both_on_ranks),
}
for name, (one, many) in steps.items():
    for size in (2 * world, 3 * world + 1):  # the last batch is smaller than the world
        for accumulation in (1, 3):
            data = TensorDataset(*draw(4 * size + 2, "classes", 3))
            def loader():
                return DataLoader(data, batch_size=size, shuffle=True, generator=torch.Generator().manual_seed(1))
            torch.manual_seed(7)
            single = Net()
            model = ddp.DistributedDataParallel(copy.deepcopy(single))
            losses = run(many, model, ddp.shard(loader()), accumulation)
            assert len(set(map(str, ddp.gather(losses)))) == 1
            expected = run(one, single, loader(), accumulation)
            for a, b in zip(losses, expected, strict=True):
                assert abs(a - b) <= 1e-12 * max(1, abs(b)) or a != a and b != b, (name, size, losses, expected)
            for p, q in zip(single.parameters(), model.parameters(), strict=True):
                assert (p - q).abs().max() <= 1e-12, (name, size, accumulation)
ddp.print("done")
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_with_sharded_loaders(lab, tmp_path, processes):
    info_nce = WHOLE[: WHOLE.index("def batch_hard_triplet")]
    script = write(tmp_path, TRAINING + info_nce + SHARDED)
    assert lab.run(script, processes=processes, recorded=False, timeout=60).ok().printed == "done\n"


def test_no_part_of_a_batch_is_worth_nothing_even_where_it_is_nan():
    rows = torch.ones(2, requires_grad=True)
    output = rows * 2
    graph.weigh(output, 0.0)
    (output * float("nan")).sum().backward()
    assert rows.grad.tolist() == [0, 0]


def test_a_plain_process_has_the_whole_batch():
    loss = torch.tensor(float("nan"), requires_grad=True)
    for result in (
        ddp.batch_loss(loss),
        ddp.batch_loss(loss, weight=0),
        ddp.batch_loss(loss, reduction="sum"),
    ):
        assert result is loss
    rows = {"a": torch.ones(2, 3, requires_grad=True)}
    assert ddp.whole_batch(rows) is rows
    given = ([rows["a"], torch.zeros(5)], 3, np.ones(2), [4, 5], None)
    assert ddp.whole_batch(given) is given
    assert ddp.batch_loss(0.25) == 0.25 and type(ddp.batch_loss(3, reduction="sum")) is int
    with pytest.raises(TypeError):
        ddp.whole_batch({1, 2})
    with pytest.raises(ValueError, match="reduction"):
        ddp.batch_loss(loss, weight=1, reduction="sum")


def test_what_a_criterion_divides_by():
    torch.manual_seed(0)
    output, target = torch.randn(6, 4, 5, dtype=torch.float64), torch.randint(4, (6, 5))
    weight = torch.rand(4, dtype=torch.float64)
    cases = [
        (nn.CrossEntropyLoss(), output, target),
        (nn.CrossEntropyLoss(weight, ignore_index=2), output, target),
        (nn.CrossEntropyLoss(weight, label_smoothing=0.2), output, target),
        (nn.CrossEntropyLoss(weight), output, target.masked_fill(target == 3, -100)),
        (nn.CrossEntropyLoss(weight), output, output.softmax(1)),
        (nn.CrossEntropyLoss(ignore_index=0), output[0].T, target[0]),
        (nn.NLLLoss(weight, ignore_index=1), output, target),
        (nn.BCEWithLogitsLoss(weight=torch.rand(5), pos_weight=torch.rand(5)), output, output.sigmoid()),
        (nn.MSELoss(), output, output + 1),
        (nn.KLDivLoss(reduction="batchmean"), output, output.softmax(1)),
        (nn.MultiMarginLoss(), output[:, :, 0], target[:, 0]),
    ]
    for criterion, out, y in cases:
        parts = [slice(0, 1), slice(1, 4), slice(4, 6)]
        weights = [float(ddp.loss_weight(criterion, y[part])) for part in parts]
        losses = [criterion(out[part], y[part]) for part in parts]
        # a part of ignored targets only counts nothing
        total = sum(w * loss for w, loss in zip(weights, losses, strict=True) if w) / sum(weights)
        assert torch.isclose(total, criterion(out, y), rtol=1e-13), criterion
    assert float(ddp.loss_weight(nn.CrossEntropyLoss(weight), torch.tensor(1))) == weight[1]
    assert ddp.loss_weight(nn.CrossEntropyLoss(), torch.rand(4)) == 1


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_a_criterion_without_a_mean_has_no_weight(reduction):
    with pytest.raises(ValueError, match=reduction):
        ddp.loss_weight(nn.CrossEntropyLoss(reduction=reduction), torch.tensor([1]))


def test_a_criterion_that_is_not_known():
    class Focal(nn.Module):
        pass

    for criterion in (Focal(), nn.CTCLoss()):
        with pytest.raises(TypeError, match=type(criterion).__name__):
            ddp.loss_weight(criterion, torch.tensor([1]))


IF_GRAD = """
ddp.init()
torch.nn.Linear(1, 1)
rows = torch.full((2, 3), float(ddp.get_rank()))
with torch.no_grad():
    assert ddp.whole_batch(rows, if_grad=True) is rows
joined = ddp.whole_batch(rows, if_grad=True)
assert joined.shape == (2 * ddp.get_world_size(), 3) and joined[-1, 0] == ddp.get_world_size() - 1
"""


def test_rows_are_joined_where_gradients_are_recorded_if_that_is_asked(lab, tmp_path):
    lab.run(write(tmp_path, IF_GRAD), processes=2, recorded=False, timeout=60).ok()
