"""Attributes that a forward stores: found in the code of classes, forgotten after the forward, kept in one process."""

import gc
import weakref

import pytest
import torch
from jobs import write
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm
from torch.utils.checkpoint import checkpoint

from dp2ddp import runtime as ddp
from dp2ddp.runtime import attributes, stores


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.seen = 0
        self.untouched = 0

    def reset(self):
        self.untouched = 5

    def forward(self, x):
        self.seen += 1
        return self.layer(x) * self.seen


def test_only_what_a_forward_reaches_is_looked_at():
    assert stores.stored([Counter()]) == stores.Stored(frozenset({"seen"}), False)
    assert not stores.stored(
        nn.Sequential(nn.LSTM(3, 3), nn.MultiheadAttention(4, 2), nn.LazyLinear(3)).modules()
    )


def test_one_process_keeps_what_a_forward_stores():
    for wrap in (ddp.DistributedDataParallel, ddp.DataParallel):
        model = wrap(Counter())
        for _ in range(3):
            model(torch.ones(2, 3))
        assert model.module.seen == 3


def test_attributes_go_back_after_a_forward_that_fails():
    net = Counter()
    with pytest.raises(RuntimeError):
        attributes.Attributes(net).run(net, (torch.ones(2, 4),), {})
    assert net.seen == 0


class Reading(Counter):
    def forward(self, x):
        self.seen += 1
        x = checkpoint(self.scaled, x, use_reentrant=False)
        self.seen += 10
        return x

    def scaled(self, x):
        return torch.sin(x * self.layer.weight.sum() * self.seen)


def test_each_forward_s_values_are_there_in_its_part_of_the_backward_pass():
    """The last forward's part comes first; a pass that fails leaves nothing behind."""
    seen = []
    net = Reading()
    watched = net.scaled
    net.scaled = lambda x: seen.append(net.seen) or watched(x)  # stays: it is none of the forward's
    held = attributes.Attributes(net)

    def step(start):
        net.seen = start
        return held.run(net, (torch.ones(2, 3),), {})

    total = step(0).sum() + step(100).sum()
    assert seen == [1, 101] and net.seen == 100
    total.backward()
    assert seen == [1, 101, 111, 11] and net.seen == 100

    def fail(_):
        raise ValueError

    out = step(0)
    handle = net.layer.weight.register_hook(fail)
    with pytest.raises(ValueError):
        out.sum().backward()
    handle.remove()
    step(0).sum().backward()
    assert net.seen == 0


class Holding(Counter):
    def forward(self, x):
        self.out = super().forward(x)
        self.outs = [self.out]
        return self.out


def test_a_stored_output_does_not_keep_its_graph():
    net = Holding()
    held = attributes.Attributes(net)
    gone = []
    for _ in range(3):
        out = held.run(net, (torch.ones(2, 3),), {})
        gone.append(weakref.ref(out))
        out.sum().backward()
        del out
    gc.collect()
    assert [it() for it in gone] == [None] * 3 and not hasattr(net, "out")


class Everything(nn.Module):
    """torch's own ways of storing something while a forward runs, beside a counter."""

    def __init__(self):
        super().__init__()
        self.seen = 0
        self.parts = nn.ModuleList(
            [
                spectral_norm(nn.Linear(4, 4)),
                weight_norm(nn.Linear(4, 4)),
                parametrizations.spectral_norm(nn.Linear(4, 4)),
                parametrizations.orthogonal(nn.Linear(4, 4)),
                nn.BatchNorm1d(4),
                torch.compile(nn.Linear(4, 4), backend="eager"),
            ]
        )
        self.lstm = nn.LSTM(4, 4)

    def forward(self, x):
        for name in ("seen",):
            setattr(self, name, getattr(self, name) + 1)
        for part in self.parts:
            x = part(x)
        self.lstm.flatten_parameters()
        return self.lstm(x)[0] * self.seen


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_what_torch_s_own_layers_keep_stays():
    torch.manual_seed(0)
    net = Everything()
    twin = Everything()
    twin.load_state_dict(net.state_dict())
    held = attributes.Attributes(net)
    for step in range(3):
        x = torch.randn(5, 4)
        twin.seen = 0
        one, other = held.run(net, (x,), {}), twin(x)
        assert torch.equal(one, other), step
        one.sum().backward()
        other.sum().backward()
        assert net.seen == 0
        pairs = zip(net.parameters(), twin.parameters(), strict=True)
        assert all(torch.equal(a.grad, b.grad) for a, b in pairs)
    assert all(torch.equal(a, b) for a, b in zip(net.buffers(), twin.buffers(), strict=True))


EVALUATED = """
import copy, pickle
from torch import nn
ddp.init()
torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = nn.Linear(3, 3), 0
        self.register_buffer("last", torch.zeros(3))
    def forward(self, x):
        self.seen += 1
        self.last = x[0]
        return self.layer(x) * self.seen

for wrap in (ddp.DistributedDataParallel, ddp.DataParallel):
    model, x = wrap(Net()), torch.randn(6, 3)
    for mode in (True, False, True):
        model.train(mode)
        for _ in range(2):
            model(x).sum().backward()
        with torch.no_grad():
            assert torch.equal(model(x), model.module.layer(x))
    assert model.module.seen == 0 and not model.module.last.any()
    data = torch.utils.data.DataLoader(list(x), batch_size=2)
    model.eval()
    with torch.no_grad():
        for part in ddp.shard_batches(data):
            model(part)
    assert model.module.seen == 0 and not model.module.last.any()
    copied = copy.deepcopy(model)
    copied(x)
    assert copied.module.seen == 0
    model.module(x)  # past the wrapper it is kept, as with nn.DataParallel
    assert model.module.seen == 1
    with torch.no_grad():
        ddp.data_parallel(model.module, x)
    assert model.module.seen == 1
ddp.print("done")
"""


def test_evaluations_forget_too(lab, tmp_path):
    run = lab.run(write(tmp_path, EVALUATED), processes=2, recorded=False, timeout=120).ok()
    assert run.printed == "done\n"
