"""``local_batch``: this rank's part of what the program made, whatever it is kept in."""

import pytest
from jobs import write

PARTS = """
from collections import namedtuple
import numpy as np
ddp.init()
rank, world = ddp.get_rank(), ddp.get_world_size()
torch.nn.Linear(1, 1)
Pair = namedtuple("Pair", ("x", "y"))
x, y, names = torch.arange(14.0).view(7, 2), np.arange(7), [str(i) for i in range(7)]
places = torch.arange(7).chunk(world)[rank].tolist()

def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return (one == other).all() and len(one) == len(other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return one == other

class Batch:
    def __init__(self, x, names):
        self.x, self.names, self.kind = x, names, "train"
    def __eq__(self, other):
        return type(other) is Batch and same(vars(self), vars(other))

own = x[places], y[places], [names[i] for i in places]
again = torch.arange(14)
for batch, part in (
    (x, own[0]),
    (again[::2], again[::2][places]),
    (x[:, 1], x[places, 1]),
    ((x, torch.ones(1).expand(7)), (own[0], torch.ones(len(places)))),
    (y, own[1]),
    (names, own[2]),
    ((x, y), own[:2]),
    ([x, y], [*own[:2]]),
    ([x, tuple(names), y], [own[0], tuple(own[2]), own[1]]),
    ([names, x], [own[2], own[0]]),
    ({"x": x, "names": names, "size": 7, "none": None}, {"x": own[0], "names": own[2], "size": 7, "none": None}),
    (Pair(x, (y, names)), Pair(own[0], own[1:])),
    ((x, tuple(names), "train", 3), (own[0], tuple(own[2]), "train", 3)),
    (zip(*[(i, 2 * i) for i in range(7)]), (tuple(places), tuple(2 * i for i in places))),
    ([(torch.zeros(3), i) for i in range(7)], [(torch.zeros(3), i) for i in places]),
    ((x, [torch.full((2,), i) for i in range(7)]), (own[0], [torch.full((2,), i) for i in places])),
    (Batch(x, names), Batch(own[0], own[2])),
    ((y, Batch(x, names)), (own[1], Batch(own[0], own[2]))),
    ((None, None), (None, None)),
    (None, None),
):
    assert same(ddp.local_batch(batch), part), (batch, part)

images = [torch.zeros(3, 4, 4)] * 7
for unclear in ((x, torch.zeros(3)), Batch(x, names[1:]), images, (1, "a"), ([torch.zeros(2)] * 2, torch.zeros(2)), torch.zeros(()), 3):
    try:
        ddp.local_batch(unclear)
    except ValueError as error:
        assert "can't tell how many samples" in str(error) and "train.py" in str(error), error
    else:
        raise AssertionError(unclear)
assert ddp.local_batch(torch.arange(1)).tolist() == [0]  # for the ranks without samples, too
"""

BEFORE_WRAPPED = """
ddp.init()
batch = ddp.local_batch(torch.ones(4, 1))
model = ddp.DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    model(batch).mean().backward()
    optimizer.step()
"""

OTHERS = """
ddp.init()
for step in range(20):
    ddp.local_batch(torch.full((4,), step + (step > 2) * ddp.get_rank()))
"""

COLUMNS = """
import copy
torch.set_default_dtype(torch.float64)
ddp.init()

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.rnn, self.decoder = torch.nn.Embedding(11, 4), torch.nn.LSTM(4, 5), torch.nn.Linear(5, 11)

    def forward(self, text, state, flat=False):
        outputs, state = self.rnn(self.encoder(text), state)
        outputs = self.decoder(outputs)
        return outputs.view(-1, 11) if flat else outputs, state

torch.manual_seed(0)
text = torch.randint(11, (25, SIZE))
net = Net()
state = tuple(torch.zeros(1, SIZE, 5) for _ in range(2))

def train(net, text, state, combined):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    losses = []
    for start in range(0, 24, 5):
        inputs, targets = text[start : start + 5][: 24 - start], text[start + 1 : start + 6]
        outputs, state = net(inputs, tuple(it.detach() for it in state))
        loss = torch.nn.functional.cross_entropy(outputs.view(-1, 11), targets.reshape(-1))
        (loss + 0.3 * (outputs[1:] - outputs[:-1]).pow(2).mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(combined(loss).item())
    return torch.tensor(losses)

whole = copy.deepcopy(net)
expected = train(whole, text, state, lambda loss: loss)
own, first = ddp.local_batch(text, dim=1), ddp.local_batch(state, dim=1)
wrapped = ddp.DistributedDataParallel(net, dim=1)
found = train(wrapped, own, first, ddp.batch_loss)
assert torch.allclose(found, expected, rtol=0, atol=1e-12), found - expected
for one, other in zip(net.parameters(), whole.parameters()):
    assert torch.allclose(one, other, rtol=0, atol=1e-12), (one - other).abs().max()
"""

MISTAKEN = """
for given, said in (
    ({"text": own[:5], "state": state}, "is given a tensor of shape [1, 7, 5]"),
    ({"text": own[:5], "state": first, "flat": True}, "returns a tensor of shape [%d, 11]" % (5 * own.shape[1])),
):
    try:
        wrapped(**given)
    except RuntimeError as error:
        assert said in str(error) and "in dimension 1" in str(error), error
    else:
        raise AssertionError(said)
with torch.no_grad():
    wrapped.eval()(text[:5], state)  # all ranks evaluate all of it
for unclear in (torch.zeros(3), (text, torch.zeros(4, 3)), 3):
    try:
        ddp.local_batch(unclear, dim=1)
    except ValueError as error:
        assert "in dimension 1" in str(error), error
    else:
        raise AssertionError(unclear)
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_each_rank_gets_its_part(lab, tmp_path, processes):
    lab.run(write(tmp_path, PARTS), processes=processes, recorded=False, timeout=60).ok()


def test_a_part_may_be_taken_before_the_model_is_wrapped(lab, tmp_path):
    lab.run(write(tmp_path, BEFORE_WRAPPED), processes=2, recorded=False, timeout=60).ok()


def test_ranks_that_have_made_different_batches_are_told(lab, tmp_path):
    result = lab.run(write(tmp_path, OTHERS), processes=2, recorded=False, timeout=60)
    assert result.code == 1
    assert "the ranks have made different batches at train.py:8" in result.errors


def test_in_a_plain_process_a_batch_stays_as_it_is(lab, tmp_path):
    text = "batch = [1, 2]\nassert ddp.local_batch(batch) is batch\nassert list(map(ddp.local_batch, [batch])) == [batch]\n"
    lab.run(write(tmp_path, text), processes=1, recorded=False, timeout=60).ok()


@pytest.mark.parametrize(("processes", "size"), [(2, 4), (2, 7), (3, 7), (3, 4)])
def test_columns_are_parts_whose_steps_are_those_of_the_whole_batch(lab, tmp_path, processes, size):
    text = COLUMNS.replace("SIZE", str(size)) + (MISTAKEN if size == 7 else "")
    lab.run(write(tmp_path, text), processes=processes, recorded=False, timeout=60).ok()


REPEATED = """
import copy
ddp.init()
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

class Scores(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.caption = torch.nn.Linear(4, 5), torch.nn.Linear(3, 5)
    def forward(self, images, captions):
        return self.caption(captions) @ self.image(images).t()

def train(net, batches, combined, own):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for images, captions in batches:
        scores = combined(net(own(images), own(captions)))
        (scores - scores.diag()[:, None]).clamp(min=-0.2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

net = Scores()
batches = [(torch.randn(n, 4), torch.randn(n, 3)) for n in (6, 5, 2, 7, 3)]
whole = copy.deepcopy(net)
train(whole, batches, lambda it: it, lambda it: it)
wrapped = ddp.DistributedDataParallel(net)
every = [(images.repeat(ddp.get_world_size(), 1), captions) for images, captions in batches]
train(wrapped, every, ddp.whole_batch, ddp.local_batch)
for one, other in zip(net.parameters(), whole.parameters()):
    assert torch.allclose(one, other, rtol=0, atol=1e-12), (one - other).abs().max()
"""


@pytest.mark.parametrize("processes", [2, 3, 4])
def test_arguments_with_different_numbers_of_rows(lab, tmp_path, processes):
    """Every rank gets all images and its part of the captions: the captions say how many ranks have samples."""
    lab.run(write(tmp_path, REPEATED), processes=processes, recorded=False, timeout=90).ok()


PUT_TOGETHER = """
import random, sys
from torch.utils.data import DataLoader, Dataset

class Texts(Dataset):
    def __len__(self):
        return 19
    def __getitem__(self, index):
        return torch.randn(1 + index % 5), index, random.random()

def collate(batch):
    rows, places, noise = zip(*sorted(batch, key=lambda it: -len(it[0])))
    longest = len(rows[0])
    shift = random.random()
    return {
        "rows": torch.nn.utils.rnn.pad_sequence(rows, batch_first=True),
        "places": list(places),
        "noise": torch.tensor(noise) + shift,
        "longest": longest,
    }

def epochs(shard):
    torch.manual_seed(0)
    random.seed(0)
    loader = DataLoader(Texts(), batch_size=8, shuffle=True, num_workers=int(sys.argv[1]), collate_fn=collate)
    loader = shard(loader)
    return [dict(batch) for _ in range(2) for batch in loader], len(loader)

ddp.init()
torch.nn.Linear(1, 1)
rank, world = ddp.get_rank(), ddp.get_world_size()
whole, length = epochs(lambda loader: loader)
parts, same_length = epochs(lambda loader: ddp.shard(loader, whole=True))
assert len(whole) == len(parts) == 2 * length == 2 * same_length == 6
for batch, part in zip(whole, parts):
    chunks = torch.arange(len(batch["places"])).chunk(world)
    own = chunks[rank] if rank < len(chunks) else chunks[0]
    assert torch.equal(part["rows"], batch["rows"][own]) and torch.equal(part["noise"], batch["noise"][own])
    assert part["places"] == [batch["places"][i] for i in own] and part["longest"] == batch["longest"]
if rank == 0:
    print("ok", flush=True)
"""


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_a_loader_hands_out_parts_of_what_is_put_together_whole(lab, processes, workers):
    """Bit by bit, with the random numbers of the original's workers; a last batch of 3 samples."""
    script = write(lab.place("together"), PUT_TOGETHER)
    result = lab.run(script, [str(workers)], processes=processes, recorded=False, timeout=90).ok()
    assert result.printed == "ok\n"
