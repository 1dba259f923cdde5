"""Sums, means and gathered values of any structure, and what a rank that does something else is told."""

import copy
from collections import OrderedDict, namedtuple

import numpy
import pytest
import torch
from jobs import write

from dp2ddp import runtime as ddp

COMBINE = """
import numpy, pickle
from collections import OrderedDict, defaultdict, namedtuple
from fractions import Fraction
ddp.init()
rank, world = ddp.get_rank(), ddp.get_world_size()
both = sum(range(1, world + 1))  # of rank + 1 over the ranks

class AverageMeter:
    def __init__(self):
        self.val = self.avg = self.sum = self.count = 0
    def update(self, val, n=1):
        self.val, self.sum, self.count = val, self.sum + val * n, self.count + n
        self.avg = self.sum / self.count
class Divides:  # avg is computed
    sum = count = 0
    @property
    def avg(self):
        return self.sum / self.count
class SmoothedValue:
    def __init__(self):
        self.total, self.count, self.deque = 0.0, 0, [rank]

Scores = namedtuple("Scores", "loss correct")
for size in (2, 100):  # however they travel, small integers wrap around
    wrapped = ddp.sum(torch.full((size,), 200, dtype=torch.uint8))
    assert wrapped.dtype == torch.uint8 and (wrapped == 200 * world % 256).all()
    assert ddp.mean(torch.full((size,), 2, dtype=torch.int32)).tolist() == [2.0] * size
    assert ddp.mean(torch.full((size,), 200, dtype=torch.uint8)).tolist() == [200.0] * size
    assert ddp.mean(numpy.full(size, 2**24 + 1)).tolist() == [2.0**24 + 1] * size
assert ddp.sum(torch.tensor([2**62])).item() == (2**62 * world + 2**63) % 2**64 - 2**63
for culprit in range(world):
    try:
        ddp.gather((lambda: 0) if rank == culprit else 0)
    except Exception as problem:
        assert rank == culprit or f"rank {culprit}: the value passed to" in str(problem), problem
    else:
        raise AssertionError("sent")
assert ddp.gather(rank) == list(range(world))
for rows in (torch.ones(1, 3, 1), numpy.ones((1, 3, 1))):
    assert ddp.squeeze(rows).shape == (1, 3) and ddp.squeeze(rows[:, 0]).shape == (1,)
    assert ddp.squeeze(rows[0]).shape == (3,) and ddp.squeeze(rows[0, 0, 0]).shape == ()
view = torch.randn(rank + 1, 2, dtype=torch.complex64).conj()
assert ddp.whole_batch(view).shape == (world * (world + 1) // 2, 2)
weight = torch.nn.Parameter(torch.full((4,), float(rank)))
sparse = torch.eye(3).mul(rank + 1).to_sparse()
for r, (theirs, rows) in enumerate(ddp.gather((weight, sparse))):
    assert type(theirs) is torch.Tensor and theirs.tolist() == [r] * 4 and not theirs.requires_grad
    assert rows.is_sparse and torch.equal(rows.to_dense(), torch.eye(3) * (r + 1))
few, many = torch.full((2, 3), rank + 1.0), torch.full((70,), rank + 1, dtype=torch.int32)
meter = AverageMeter()
for value in range(rank + 2):
    meter.update(value, n=rank + 1)
before = vars(meter).copy()
value = {
    "numbers": [rank, 0.5, True, 2**70 + rank, Fraction(rank, 3), 1j * rank, 0 if rank else 0.25],
    "tensors": (few, many, torch.tensor(True), torch.tensor([rank], requires_grad=True, dtype=torch.float64), torch.empty(0)),
    "numpy": Scores(numpy.float32(rank), numpy.arange(3) + rank),
    "more": [numpy.int64(rank), numpy.bool_(True), numpy.full(100, rank + 0.5, dtype="float32"), numpy.array(True)],
    "meters": defaultdict(AverageMeter, all=meter),
}
if rank:  # the order in which keys came does not count
    value = dict(reversed(value.items()))
total = ddp.sum(value)
ranks = sum(range(world))
assert list(total) == list(value)
assert total["numbers"] == [ranks, 0.5 * world, world, 2**70 * world + ranks, Fraction(ranks, 3), 1j * ranks, 0.25]
assert [type(x) for x in total["numbers"]] == [int, float, int, int, Fraction, complex, float]
a, b, c, d, e = total["tensors"]
assert torch.equal(a, torch.full((2, 3), both * 1.0)) and torch.equal(b, torch.full((70,), both, dtype=torch.int32))
assert c == world and c.dtype == torch.int64 and d == ranks and d.dtype == torch.float64 and not d.requires_grad
assert e.shape == (0,) and torch.equal(few, torch.full((2, 3), rank + 1.0)) and many[0] == rank + 1
assert type(total["numpy"]) is Scores and type(total["numpy"].loss) is numpy.float32
assert total["numpy"].loss == ranks and total["numpy"].correct.tolist() == [world * i + ranks for i in range(3)]
more = total["more"]
assert (more[0], more[1], more[3].item()) == (ranks, world, world) and type(more[0]) is numpy.int64
assert more[2].dtype == numpy.float32 and more[2].tolist() == [ranks + 0.5 * world] * 100
assert type(total["meters"]) is defaultdict and total["meters"]["new"].sum == 0
summed = total["meters"]["all"]
counts = [(r + 1) * (r + 2) for r in range(world)]
sums = [(r + 1) * sum(range(r + 2)) for r in range(world)]
assert (summed.sum, summed.count, summed.avg, summed.val) == (sum(sums), sum(counts), sum(sums) / sum(counts), meter.val)
assert vars(meter) == before

averages = ddp.mean({"n": rank, "t": torch.tensor([rank, 1]), "m": [meter], "a": numpy.float32(rank), "i": numpy.arange(2) + rank})
assert averages["n"] == ranks / world and averages["t"].tolist() == [ranks / world, 1.0]
assert averages["m"] == [sum(sums) / sum(counts)] and type(averages["a"]) is numpy.float32
assert averages["i"].tolist() == [ranks / world, ranks / world + 1]
assert repr(ddp.mean(AverageMeter())) == "nan" and ddp.sum(AverageMeter()).avg == 0
divides, smoothed, tensors = Divides(), SmoothedValue(), AverageMeter()
divides.sum, divides.count, smoothed.total, smoothed.count = rank, 1, 2.0, 4
tensors.sum, tensors.count, tensors.avg = torch.tensor([1.0, rank]), torch.tensor(2), torch.tensor([0.5, rank / 2])
assert ddp.sum(divides).avg == ranks / world and ddp.sum(smoothed).total == 2.0 * world and ddp.mean(smoothed) == 0.5
assert ddp.sum(tensors).avg.tolist() == [0.5, ranks / world / 2]
assert ddp.sum([]) == [] and ddp.mean({}) == {}
last = world - 1  # others have the 0 that their sums began with
for begun in (few, many, numpy.arange(3) + 1, torch.tensor(rank + 1.0), numpy.full(100, 2.0)):
    for holds in ({last}, {0, last}):
        summed = ddp.sum([begun if rank in holds else 0, begun if rank in holds else 0.0])
        expected = sum(ddp.gather(begun)[r] for r in sorted(holds))
        for one in summed:
            assert type(one) is type(begun) and one.shape == begun.shape and one.dtype == begun.dtype
            assert one.tolist() == expected.tolist(), (one, expected)
for size in (3, 300):  # samples may decide the type of what is added up
    for one, other in (("float32", "float64"), ("int64", "float32"), ("bool", "int32"), ("float16", "bfloat16")):
        kind = getattr(torch, other if rank == last else one)
        added, average = ddp.sum(torch.ones(size, dtype=kind)), ddp.mean(torch.ones(size, dtype=kind))
        wanted = torch.promote_types(torch.int64 if one == "bool" else getattr(torch, one), getattr(torch, other))
        assert added.dtype == wanted and added.tolist() == [world] * size, (one, other, added)
        assert average.is_floating_point() and average.tolist() == [1] * size
        assert one == "int64" or average.dtype == (wanted if wanted.is_floating_point else torch.float32)
begun = AverageMeter()
if rank == last:
    begun.update(torch.ones(2), 3)
assert ddp.sum(begun).sum.tolist() == [3.0, 3.0] and ddp.sum(begun).count == 3
large = ddp.sum({str(i): torch.full((1000,), float(i)) for i in range(9)} | {"n": 1})
assert large["8"][0] == 8 * world and large["n"] == world

# gather: of any size and kind; without the rest of a tensor's storage and without its graph
rows = torch.arange(1_000_000, dtype=torch.float64).requires_grad_()
got = ddp.gather({"rank": rank, "rows": (rows * 2)[rank : rank + 2], "text": "x" * 5000 * rank})
assert [g["rank"] for g in got] == list(range(world)) and [len(g["text"]) for g in got] == [5000 * r for r in range(world)]
assert [g["rows"].tolist() for g in got] == [[2.0 * r, 2.0 * r + 2] for r in range(world)]
assert not got[0]["rows"].requires_grad and got[-1]["rows"].untyped_storage().nbytes() == 16
for size in (4040, 4060, 4080, 4096, 5000):  # about as long as the first exchange
    assert ddp.gather(b"x" * (size + rank)) == [b"x" * (size + r) for r in range(world)]

def error(kind, call):
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("no error")
text = error(RuntimeError, lambda: ddp.sum([1.0, 2.0][rank and 1 :]))
assert text.startswith("sum() needs the same structure on every rank, but rank 0 has [number, number], rank 1 has [number]"), text
text = error(RuntimeError, lambda: ddp.mean({"loss": 1.0, "acc": few if rank else few[0]}))
assert "rank 0 has {'acc': cpu tensor of float32 [3], 'loss': number}" in text, text
assert error(RuntimeError, lambda: ddp.sum(torch.ones(3) if rank else torch.ones(3000)))
assert error(RuntimeError, lambda: ddp.sum(torch.ones(3) if rank else 1))
text = error(TypeError, lambda: ddp.sum({"name": "x" if rank else 1.0}))
assert ("rank 1: " in text) == (rank != 1) and "not str" in text, text
text = error(RuntimeError, lambda: ddp.sum(1) if rank else ddp.gather(1))
assert "rank 0 calls gather() at train.py:" in text and "rank 1 calls sum() at train.py:" in text, text
assert ddp.sum(1) == world  # and goes on
ddp.print("done")
"""


SAMPLES = """
import numpy
from torch.utils.data import DataLoader, DistributedSampler
ddp.init()
rank, world = ddp.get_rank(), ddp.get_world_size()

def epoch(loader):
    return [x for batch in loader for x in batch.tolist()]

def gathered(loader, expected):
    drawn = epoch(loader)
    assert ddp.gather(drawn, samples_of=loader) == expected, (drawn, ddp.gather(drawn, samples_of=loader), expected)
    value = {
        "t": torch.tensor(drawn).view(-1, 1).double().requires_grad_(),
        "more": {"a": numpy.array(drawn), "p": tuple(map(str, drawn))},
    }
    got = ddp.gather(value, samples_of=loader)
    assert got["t"].tolist() == [[x] for x in expected] and not got["t"].requires_grad
    assert type(got["more"]["a"]) is numpy.ndarray and got["more"]["a"].tolist() == expected
    assert got["more"]["p"] == tuple(map(str, expected))
    return drawn

for n, size in ((23, 4), (23, 5), (24, 6), (2, 4), (7, 1)):  # the last batch uneven, batches smaller than the world
    whole = list(range(n))
    for training in (True, False):
        gathered(ddp.shard(DataLoader(whole, batch_size=size), training=training), whole)
    dropped = ddp.shard(DataLoader(whole, batch_size=size, drop_last=True))
    gathered(dropped, whole[: n // size * size])
    sampler = DistributedSampler(whole, shuffle=False)
    gathered(DataLoader(whole, batch_size=size, sampler=sampler), whole)

# shuffled: in the order of the global batches, of the last epoch
whole = list(range(23))
generator = torch.Generator().manual_seed(5)
single = DataLoader(whole, batch_size=5, shuffle=True, generator=torch.Generator().manual_seed(5))
loader = ddp.shard(DataLoader(whole, batch_size=5, shuffle=True, generator=generator))
for _ in range(2):
    expected = epoch(single)
    drawn = gathered(loader, expected)
assert expected != whole
shuffled = DistributedSampler(whole, shuffle=True, seed=3)
shuffled.set_epoch(2)
loader_of_torchs = DataLoader(whole, batch_size=4, sampler=shuffled)
got = ddp.gather(epoch(loader_of_torchs), samples_of=loader_of_torchs)
assert got == torch.randperm(23, generator=torch.Generator().manual_seed(5)).tolist()

count = ddp.gather(len(drawn))[1]
for value, kind, text in (
    (drawn[rank:], ValueError, f"rank 1 has {count - 1} entries for {count} samples"),
    (drawn * 2, ValueError, "rank 0 has"),
    (torch.tensor(1.0), TypeError, "not Tensor"),
    ({"a": drawn, "b": 3}, TypeError, "not int"),
    ({"a" if rank else "b": drawn}, RuntimeError, "rank 0 has dict of 'b', rank 1 has dict of 'a'"),
    (drawn if rank else tuple(drawn), RuntimeError, "rank 0 has tuple, rank 1 has list"),
):
    try:
        ddp.gather(value, samples_of=loader)
    except kind as error:
        assert text in str(error), str(error)
    else:
        raise AssertionError(text)
try:
    ddp.gather(drawn, samples_of=DataLoader(whole))
except ValueError as error:
    assert "shard" in str(error)
ddp.print("done")
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_the_samples_values_come_in_the_loaders_order(lab, tmp_path, processes):
    script = write(tmp_path, SAMPLES)
    assert lab.run(script, processes=processes, recorded=False, timeout=60).ok().printed == "done\n"


@pytest.mark.parametrize("processes", [2, 3])
def test_any_structure_is_combined(lab, tmp_path, processes):
    script = write(tmp_path, COMBINE)
    assert lab.run(script, processes=processes, recorded=False, timeout=60).ok().printed == "done\n"


def test_a_plain_process_has_its_own_values():
    class Meter:
        sum, count = 6.0, 4

    meter = Meter()
    Pair = namedtuple("Pair", "a b")
    for value in (
        1,
        0.5,
        True,
        torch.ones(2),
        [1, {"a": (2.0,)}],
        Pair(1, 2),
        OrderedDict(a=1),
        numpy.ones(2),
        [],
    ):
        before = copy.deepcopy(value)
        assert ddp.sum(value) is value
        mean = ddp.mean(value)
        assert mean == value if not hasattr(value, "shape") else (mean == value).all()
        assert ddp.gather(value)[0] is value and ddp.gather(value, samples_of=object()) is value
        assert type(before) is type(value)
    assert ddp.sum(meter) is meter
    integers = [ddp.mean(value) for value in (1, True, torch.tensor(1), numpy.array([1]), numpy.int64(1))]
    kinds = [getattr(value, "dtype", type(value)) for value in integers]
    assert kinds == [float, float, torch.float32, numpy.float64, numpy.float64], kinds
    weight = torch.ones(2, requires_grad=True)
    assert ddp.mean(weight) is weight
    assert ddp.mean(meter) == 1.5 and ddp.mean({"a": [meter, 2]}) == {"a": [1.5, 2]}
    for wrong in ("text", None, {"a": ["text"]}, object(), numpy.array(["a"])):
        with pytest.raises(TypeError, match="numbers, tensors"):
            ddp.sum(wrong)
        with pytest.raises(TypeError, match="numbers, tensors"):
            ddp.mean(wrong)
