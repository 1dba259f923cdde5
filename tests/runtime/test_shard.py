"""``shard``: any DataLoader, the very batches of one process, each rank its chunk."""

import json
import pickle
from pathlib import Path

import pytest
import torch
from jobs import write
from torch.utils.data import DataLoader

from dp2ddp import runtime as ddp
from dp2ddp.runtime import dealing, streams

CASES = Path(__file__).with_name("shard_cases.py")


@pytest.mark.parametrize("processes", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "cases",
    [
        "ways order drift streams",
        "batches own_iterators rank_0 workers",
        "sizes epochs keys refusals weights",
    ],
)
def test_cases(lab, processes, cases):
    run = lab.run(CASES, cases.split(), processes=processes, recorded=False, timeout=150).ok()
    assert run.printed.split("\n")[:-1] == [f"ok {case}" for case in cases.split()]


@pytest.mark.slow
def test_numbered_epochs_are_the_same_at_any_number_of_processes(lab):
    printed = {
        lab.run(CASES, ["numbered"], processes=n, recorded=False, timeout=60).ok().printed for n in (1, 2, 3)
    }
    assert len(printed) == 1
    orders = json.loads(printed.pop().splitlines()[0])
    assert len(orders) > 3 and all(len(set(map(str, epochs))) == 2 for epochs in orders.values())


TRAINING = """
import copy
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset
torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
ddp.init()

class Own(RandomSampler):
    pass

data = TensorDataset(torch.randn(50, 6), torch.randint(3, (50,)))
start = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))

def train(model, loader, accumulate):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-3)
    for epoch in range(3):
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(x), y)
            (loss / accumulate).backward()
            if (step + 1) % accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    return [p.detach() for p in model.parameters()]

makers = {
    "shuffle": lambda: DataLoader(data, 8, shuffle=True),
    "sampler": lambda: DataLoader(data, 8, sampler=Own(data)),
    "workers": lambda: DataLoader(data, 8, shuffle=True, num_workers=2, multiprocessing_context="fork"),
}
for name, make in makers.items():
    for accumulate in (1, 3):
        torch.manual_seed(5)
        plain = train(copy.deepcopy(start), make(), accumulate)
        torch.manual_seed(5)
        model = ddp.DistributedDataParallel(copy.deepcopy(start))
        sharded = train(model, ddp.shard(make()), accumulate)
        off = max((a - b).abs().max().item() for a, b in zip(plain, sharded))
        moved = max((a - b).abs().max().item() for a, b in zip(plain, start.parameters()))
        assert off < 1e-12 < 1e-2 < moved, (name, accumulate, off, moved)
ddp.print("the same")
"""


@pytest.mark.parametrize("processes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_a_plain_loop_trains_as_one_process_does(lab, tmp_path, processes):
    """50 samples in batches of 8: the last batch has 2, fewer than 3 ranks."""
    script = write(tmp_path, TRAINING)
    assert lab.run(script, processes=processes, recorded=False, timeout=60).ok().printed == "the same\n"


OWN_LOSS = """
import copy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
ddp.init()

class Judging(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
    def forward(self, x, y):
        logits = self.layer(x)
        return nn.functional.cross_entropy(logits, y, weight=torch.tensor([1.0, 2.0, 5.0])), logits

data = TensorDataset(torch.randn(50, 6), torch.randint(3, (50,)))
start = Judging()

def parallel(model, x, y):  # nn.DataParallel's replicas, one for each chunk
    chunks = zip(x.chunk(ddp.get_world_size()), y.chunk(ddp.get_world_size()))
    return torch.stack([model(*chunk)[0] for chunk in chunks]).mean()

def train(model, loader, loss_of, accumulate):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    losses = []
    for epoch in range(2):
        for step, (x, y) in enumerate(loader):
            loss = loss_of(model, x, y)
            (loss / accumulate).backward()
            losses.append(ddp.batch_loss(loss).item())
            if (step + 1) % accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
    return torch.cat([p.detach().flatten() for p in model.parameters()]), torch.tensor(losses)

def differ(one, other):
    return max((a - b).abs().max().item() for a, b in zip(one, other))

for size in (8, 7, 1):  # an uneven last batch, uneven ones, ranks without a sample
    for accumulate in (1, 3):
        made = []
        for weighed in (None, False, True):
            torch.manual_seed(5)
            loader = DataLoader(data, size, shuffle=True)
            model = copy.deepcopy(start)
            if weighed is None:
                made.append(train(model, loader, parallel, accumulate))
            else:
                sharded = ddp.shard(loader, weighed=weighed)
                step = lambda net, x, y: net(x, y)[0].mean()
                made.append(train(ddp.DistributedDataParallel(model), sharded, step, accumulate))
        plain, same, by_size = made
        assert differ(plain, same) < 1e-12, (size, accumulate, differ(plain, same))
        if size == 7:
            assert differ(plain, by_size) > 1e-3
ddp.print("the same")
"""


@pytest.mark.parametrize("processes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_a_model_that_returns_its_own_loss_trains_as_dataparallel_does(lab, tmp_path, processes):
    """nn.DataParallel averages its replicas' losses as they are, whatever their parts of the batch."""
    script = write(tmp_path, OWN_LOSS)
    assert lab.run(script, processes=processes, recorded=False, timeout=120).ok().printed == "the same\n"


WRONG = """
from torch.utils.data import DataLoader
ddp.init()
first, second = (ddp.shard(DataLoader(range(6), 2, shuffle=True)) for _ in range(2))
rank = ddp.get_rank()
begin = time.monotonic()
{body}
"""


def wrong(lab, tmp_path, body, **options):
    script = write(tmp_path, WRONG.format(body=body))
    return lab.run(script, processes=2, recorded=False, timeout=30, **options)


def _line(folder, begin):
    lines = (folder / "train.py").read_text().splitlines()
    return f"train.py:{1 + next(i for i, line in enumerate(lines) if line.startswith(begin))}"


def test_ranks_that_iterate_different_loaders_are_told(lab, tmp_path):
    run = wrong(lab, tmp_path, "list(first if rank else second)")
    line = _line(tmp_path, "list(first")
    assert run.code == 1 and run.seconds < 15
    assert "number 1 of those sharded" in run.errors and "number 2 of those sharded" in run.errors
    assert run.errors.count(line) >= 2 and "must iterate their sharded loaders together" in run.errors


def test_a_rank_that_ends_while_others_iterate_is_named(lab, tmp_path):
    run = wrong(lab, tmp_path, "if rank == 0: list(first)")
    assert run.code == 1 and run.seconds < 15
    assert "rank 1 has ended, but rank 0 still needs it (to iterate a sharded loader)" in run.errors
    run = wrong(lab, tmp_path, "list(first)\nif rank: list(second)")
    assert "rank 0 has ended, but rank 1 still needs it (to iterate a sharded loader)" in run.errors


def test_a_loop_on_one_rank_only_is_found_with_debug(lab, tmp_path):
    body = "if rank == 0: next(iter(first))\nlist(first)"
    run = wrong(lab, tmp_path, body, env={"DP2DDP_DEBUG": "1", "DP2DDP_TIMEOUT": "5"})
    assert run.code == 1 and run.seconds < 20
    assert _line(tmp_path, "if rank") in run.errors and _line(tmp_path, "list(first)") in run.errors


def test_in_one_process_the_loader_is_returned():
    loader = DataLoader(range(8), 3, shuffle=True)
    assert ddp.shard(loader) is loader and type(loader) is DataLoader
    pickle.loads(pickle.dumps(loader)).set_epoch(1)  # what is added can be pickled
    unusual = DataLoader(range(8), None)
    ddp.shard(unusual).set_epoch(2)
    assert [int(x) for x in unusual] == list(range(8))


def test_chunks_are_those_of_torch():
    for world in range(1, 9):
        for total in range(1, 40):
            wanted = [part.tolist() for part in torch.arange(total).chunk(world)]
            wanted += [[]] * (world - len(wanted))
            assert [list(range(total))[dealing.chunk(total, rank, world)] for rank in range(world)] == wanted


def test_what_collates_a_stream_can_be_sent_to_workers():
    collate = dealing._Collate(torch.stack, dealing.Cut(1, 2, training=True, stands_in=True))
    total, given, batch = pickle.loads(pickle.dumps(collate))([torch.tensor(i) for i in range(5)])
    assert (total, given, batch.tolist()) == (5, True, [3, 4])


def test_a_stream_goes_along_with_generators_that_nobody_else_draws_from():
    torch.manual_seed(1)
    wanted = torch.rand(4).tolist()
    torch.manual_seed(1)
    stream, drawn = streams.Stream(streams.states()), []
    for other in (0, 0, 1, 1):
        with stream.entered():
            drawn.append(torch.rand(1).item())
        if other:
            torch.rand(other)
    assert drawn == wanted
    torch.manual_seed(1)
    assert torch.rand(5)[4] not in wanted
    # once apart, the next one begins elsewhere: the generators may come to where the stream has been
    following = streams.Stream(stream.following())
    with following.entered():
        assert torch.rand(1).item() not in wanted
