"""Evaluation in batches dealt in turn, and in parts of batches: what is combined is what one process computes."""

import pytest
import torch
from jobs import write

EVALUATION = """
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
ddp.init()
rank, world = ddp.get_rank(), ddp.get_world_size()
torch.manual_seed(0)

class Meter:
    def __init__(self):
        self.sum = self.count = self.avg = 0
    def update(self, value, n):
        self.sum, self.count = self.sum + value * n, self.count + n
        self.avg = self.sum / self.count

class Stream(IterableDataset):
    def __init__(self, count):
        self.count = count
    def __iter__(self):
        yield from range(self.count)

def samples(count):
    return TensorDataset(torch.randn(count, 4).double(), torch.arange(count) % 2)

def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.train()
    for inputs, targets in ddp.shard(DataLoader(samples(12 * world), batch_size=4 * world)):
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()

@torch.no_grad()
def evaluate(model, loader):
    total, correct, seen, meter, outputs, firsts = 0, 0, 0.0, Meter(), [], []
    for inputs, targets in loader:
        output = model(inputs)
        total += nn.functional.cross_entropy(output, targets)
        correct += (output.argmax(1) == targets).sum().item()
        seen += inputs.double().sum(0).numpy()
        meter.update((output.argmax(1) == targets).double().mean(), len(targets))
        outputs.append(output)
        firsts.extend(inputs[:, 0].tolist())
    return [total, correct, seen, meter], outputs, firsts

def close(one, other):
    assert torch.allclose(torch.as_tensor(one), torch.as_tensor(other), rtol=0, atol=1e-12), (one, other)

network = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()
frozen = nn.Sequential(nn.BatchNorm1d(4, affine=False), nn.Flatten()).double()
cases = [(23, 0), (2, 0), (23, 1)]  # fewer batches than ranks; workers that live on
for wrapped in (ddp.DistributedDataParallel(network), ddp.DataParallel(network)):
    is_sharded = isinstance(wrapped, ddp.DistributedDataParallel)
    for count, workers in cases if is_sharded else cases[:1]:
        loader = DataLoader(samples(count), batch_size=3, num_workers=workers, persistent_workers=workers > 0)
        for epoch in range(2):
            if is_sharded:
                train(wrapped)
            dealt = ddp.shard_batches(loader)
            assert dealt is ddp.shard_batches(loader) and isinstance(dealt, DataLoader)
            own = len(dealt)
            assert sum(ddp.gather(own)) == len(loader)
            sums, outputs, firsts = evaluate(wrapped, dealt)
            assert len(outputs) == own
            total, correct, seen, meter = ddp.sum(sums)
            outputs = ddp.gather(outputs, samples_of=loader)
            firsts = ddp.gather(firsts, samples_of=loader)
            (all_total, all_correct, all_seen, all_meter), all_outputs, all_firsts = evaluate(wrapped, loader)
            close(total, all_total)
            close(seen, all_seen)
            close(meter.avg, all_meter.avg)
            assert correct == all_correct and firsts == all_firsts and meter.count == count
            assert len(outputs) == len(all_outputs)
            close(torch.cat(outputs), torch.cat(all_outputs))

# buffers are rank 0's, also of a model with nothing to train; where ranks have none, too
for model in (ddp.DistributedDataParallel(frozen), ddp.DistributedDataParallel(network)):
    list(model.buffers())[0].fill_(rank)
    model.eval()
    for batch in ddp.shard_batches(DataLoader(samples(1))):
        model(batch[0])
    assert float(list(model.buffers())[0][0]) == 0

# shuffled: one order for all, each sample once, and the same numbers drawn from then on
loader = DataLoader(samples(23), batch_size=3, shuffle=True)
drawn = [x for inputs, _ in ddp.shard_batches(loader) for x in inputs[:, 0].tolist()]
whole = ddp.gather(drawn, samples_of=loader)
assert sorted(whole) == sorted(loader.dataset.tensors[0][:, 0].tolist()) and whole != loader.dataset.tensors[0][:, 0].tolist()

for workers in (0, 1):
    stream = DataLoader(Stream(11), batch_size=2, num_workers=workers)
    drawn = [x for batch in ddp.shard_batches(stream) for x in batch.tolist()]
    assert ddp.gather(drawn, samples_of=stream) == [x for batch in stream for x in batch.tolist()]

# a loop that is left; then training goes on
model = ddp.DistributedDataParallel(network)
for batch in ddp.shard_batches(loader):
    break
train(model)

model.train()
for inputs, _ in ddp.shard_batches(loader):
    try:
        model(inputs)
    except RuntimeError as error:
        assert "Sequential is in training mode" in str(error) and "model.eval()" in str(error), error
    else:
        raise AssertionError("evaluated in training mode")
for wrong, kind in (([1, 2], TypeError), (DataLoader(samples(3), batch_size=None), ValueError)):
    try:
        ddp.shard_batches(wrong)
    except kind as error:
        assert "shard_batches()" in str(error), error
    else:
        raise AssertionError(wrong)
ddp.print("done")
"""


DIVIDED = """
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset
ddp.init()
torch.manual_seed(0)
rank, world = ddp.get_rank(), ddp.get_world_size()

class Samples(Dataset):
    def __init__(self, count):
        self.rows = torch.randn(count, 4).double()
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, i):
        return {"x": self.rows[i], "name": f"n{i}", "pair": (i, self.rows[i].sum()), "label": i % 2}

class Stream(IterableDataset):
    def __iter__(self):
        yield from range(11)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()
    def forward(self, x):
        y = self.layers(x)
        return {"rows": y, "loss": y.mean(), "none": None}

model = ddp.DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
training = DataLoader(Samples(16 * world), batch_size=4 * world)

def step(batch):
    loss = model(batch["x"])["rows"].square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

def evaluate(loader, graph, most):
    model.eval()
    names, rows, losses = [], [], []
    with torch.set_grad_enabled(graph):
        for number, batch in enumerate(ddp.divide_batches(loader)):
            assert len(ddp.divide_batches(loader)) == len(loader)
            output, batch = ddp.whole_batch((model(batch["x"]), batch))
            assert output["none"] is None and len(output["rows"]) == len(batch["name"]) == len(batch["x"])
            assert batch["label"].tolist() == [i % 2 for i in batch["pair"][0].tolist()]
            names += batch["name"]
            rows.append(output["rows"].detach())
            losses.append(output["loss"])
            if number == most:
                break
    return names, torch.cat(rows), losses

for count, workers in ((23, 0), (7, 0), (1, 0), (23, 1)):  # fewer samples than ranks; workers that live on
    loader = DataLoader(Samples(count), batch_size=6, num_workers=workers, persistent_workers=workers > 0)
    for graph in (False, True):
        model.train()
        for number, batch in enumerate(ddp.shard(training)):
            step(batch)
            if number == 1:  # in the middle of an epoch; the loop is left, or not
                names, rows, losses = evaluate(loader, graph, 2 if graph else 99)
                model.train()
        samples = min(count, 18 if graph else count)
        assert names == [f"n{i}" for i in range(samples)], names
        last = (samples - 1) % 6 + 1
        assert len(losses[-1]) == -(-last // -(-last // world)), losses  # one for each part
        names, rows, _ = evaluate(loader, graph, 99)
        model.eval()
        with torch.no_grad():
            whole = torch.cat([model.module(batch["x"])["rows"] for batch in loader])
        assert torch.allclose(rows, whole, rtol=0, atol=1e-12)

# every sample once, in one order
shuffled = DataLoader(Samples(23), batch_size=4, shuffle=True)
drawn = [i for batch in ddp.divide_batches(shuffled) for i in ddp.whole_batch(batch["pair"][0]).tolist()]
assert sorted(drawn) == list(range(23)) != drawn
for workers in (0, 1):
    stream = DataLoader(Stream(), batch_size=4, num_workers=workers)
    drawn = [i for batch in ddp.divide_batches(stream) for i in ddp.whole_batch(batch).tolist()]
    assert drawn == list(range(11))

# buffers are rank 0's; afterwards a number without a graph is no evaluation's any more
list(model.buffers())[0].fill_(rank)
model.eval()
for batch in ddp.divide_batches(DataLoader(Samples(1), batch_size=2)):
    model(batch["x"])
assert float(list(model.buffers())[0][0]) == 0
with torch.no_grad():
    assert len(ddp.whole_batch(torch.ones(2))) == 2 * world
for wrong, kind in (([1, 2], TypeError), (DataLoader(Samples(3), batch_size=None), ValueError)):
    try:
        ddp.divide_batches(wrong)
    except kind as error:
        assert "divide_batches()" in str(error), error
    else:
        raise AssertionError(wrong)
assert ddp.whole_batch(torch.tensor(float(rank))).tolist() == list(range(world))
ddp.print("done")
"""


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("program", [EVALUATION, DIVIDED], ids=["in turn", "divided"])
def test_combined_numbers_are_those_of_one_process(lab, tmp_path, program, processes):
    script = write(tmp_path, program)
    assert lab.run(script, processes=processes, recorded=False, timeout=120).ok().printed == "done\n"


def test_a_plain_process_evaluates_everything():
    from dp2ddp import runtime as ddp

    loader, output = object(), {"rows": torch.ones(2), "loss": torch.ones(()), "names": ["a", "b"]}
    assert ddp.shard_batches(loader) is loader and ddp.divide_batches(loader) is loader
    assert ddp.whole_batch(output) is output
