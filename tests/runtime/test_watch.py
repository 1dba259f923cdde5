"""Replicas that are watched: what differs is found, named and explained, and nothing is said of ordinary programs."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
import torch
from jobs import run, write
from torch import nn

from dp2ddp.runtime import digests, written
from dp2ddp.verify import digests as saved

SHARED = """
import contextlib, copy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from dp2ddp.runtime import messages, watch
ddp.init()
rank, world = ddp.get_rank(), ddp.get_world_size()
last = world - 1
forms = {"shards": ddp.DistributedDataParallel, "whole batches": ddp.DataParallel}
said = []
watch.say = said.append

def net(*more):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), *more, nn.Linear(6, 2))

def batch(form, step, size=3):
    x = torch.randn(size * world, 4, generator=torch.Generator().manual_seed(step))
    return x if form == "whole batches" else x.chunk(world)[rank]

def train(form, act=lambda *_: None, module=None, steps=9, make=None):
    model = forms[form](net() if module is None else module)
    optimizer = (make or (lambda them: torch.optim.SGD(them, 0.05, momentum=0.9, weight_decay=0.01)))(model.parameters())
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        out = model(batch(form, step))
        out.pow(2).mean().backward()
        if act(step, model.module, optimizer) != "no step":
            optimizer.step()
    return model

def finds(name, form, act, *words, **more):
    try:
        train(form, act, **more)
    except RuntimeError as error:
        assert all(word in str(error) for word in ("train different models", *words)), (name, form, str(error))
        texts = ddp.gather(str(error))
        assert len(set(texts)) == 1, texts
    else:
        raise AssertionError((name, form, "nothing was found"))
"""

FOUND = SHARED + """
def outside(step, model, _):
    if step == 1:
        with torch.no_grad():
            model[0].bias += batch("shards", 99).mean()

def once(step, model, optimizer):
    if step == 3 and rank == last:
        return "no step"

def high_bit(step, model, _):
    if step == 4 and rank == last:
        model[3].weight.data.view(torch.int32)[1, 2] ^= 1 << 27

def rate(step, model, optimizer):
    optimizer.param_groups[0]["lr"] = 0.05 / (1 + rank)

for form in forms:
    finds("own data", form, outside, "parameter 0.bias of Sequential", "backward pass 2 of", "outside of the model's forward")
    finds("a step on some ranks", form, once, "parameter 0.weight", "(and 5 more)", "backward pass 5 of", "an optimizer steps")
    finds("one bit", form, high_bit, f"parameter 3.weight of Sequential has other values on rank {last}", "backward pass 5")
    finds("learning rates", form, rate, "backward pass 2 of", "learning rate")
assert said == []

# before any step
model = net()
wrapped = ddp.DistributedDataParallel(model)
model[0].bias.data.fill_(rank)
try:
    wrapped(batch("shards", 0)).sum().backward()
except RuntimeError as error:
    assert "backward pass 1 of" in str(error), error
else:
    raise AssertionError("nothing was found")

# buffers, where they are promised to be alike; where they are not they become rank 0's
def buffer(step, model, _):
    if step == 1:
        model[1].running_mean += rank
finds("a buffer", "whole batches", buffer, "the buffer 1.running_mean of Sequential", "backward pass 2")
model = train("shards", buffer)
model(batch("shards", 0))  # with rank 0's at its beginning
model.share_buffers()
means = ddp.gather(model.module[1].running_mean)
assert all(torch.equal(it, means[0]) for it in means)

# rounding is no fault: rank 0's are taken
def low_bit(step, model, _):
    if step == 5:
        if rank == last:
            model[3].weight.data.view(torch.int32)[1, 2] ^= 1
        return "no step"
for form in forms:
    said.clear()
    # the fifth step is skipped by all, and the others until the next comparison
    model = train(form, lambda step, *rest: low_bit(step, *rest) or ("no step" if step > 5 else None))
    assert len(said) == (rank == 0), said
    assert not said or "3.weight of Sequential differs across ranks by rounding" in said[0], said
    found = ddp.gather([it.detach() for it in model.parameters()])
    assert all(torch.equal(a, b) for other in found for a, b in zip(other, found[0]))

# a model beside the wrapped one
head = nn.Linear(2, 1)
ddp.sync_gradients(head)
def beside(step, model, _):
    pass
model = ddp.DistributedDataParallel(net())
try:
    for step in range(3):
        head(model(batch("shards", step))).sum().backward()
        head.weight.data += rank
except RuntimeError as error:
    assert "parameter weight of Linear" in str(error) and "backward pass 2 of" in str(error), error
else:
    raise AssertionError("nothing was found")

# a frozen model that is wrapped, too
teacher = ddp.DistributedDataParallel(nn.Linear(4, 2).requires_grad_(False))
model = ddp.DistributedDataParallel(net())
teacher.module.weight.data += rank
try:
    model(batch("shards", 1)).sum().backward()
except RuntimeError as error:
    assert "the parameter weight of Linear has" in str(error), error
else:
    raise AssertionError("nothing was found")

# what a forward writes, and its source does not show
class Late(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.mean, self.first = nn.Parameter(torch.zeros(6), requires_grad=False), first
        self.register_buffer("calls", torch.tensor(0))
    def forward(self, x):
        self.calls += 1
        if self.calls >= self.first:  # what is no buffer is forgotten
            dict(self.named_parameters())["mean"].data += x.detach().mean(0)
        return x - self.mean
del model, teacher
for form in forms:
    said.clear()
    model = train(form, module=net(Late(5)))
    found = ddp.gather(model.module[3].mean.data)
    assert all(torch.equal(it, found[0]) for it in found) and said == [], said
    finds("from the fourth step on", form, lambda *_: None, "the forward of Sequential writes its parameter 3.mean",
          "found in backward pass 5", "register_buffer", module=net(Late(4)))
    model = forms[form](net(Late(1)))
    with torch.no_grad():
        model(batch(form, 0))
    model(batch(form, 1)).sum().backward()
    assert len(said) == (rank == 0) and (not said or "which has several forwards" in said[0]), said
ddp.print("found")
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_ranks_that_train_different_models_are_found(tmp_path: Path, processes: int) -> None:
    result = run([write(tmp_path, FOUND)], tmp_path, processes, limit=90)
    assert (result.code, result.out) == (0, "found\n"), result.err


ORDINARY = SHARED + """
def fine(name, model=None, value=None):
    assert said == [], (name, said)
    if model is not None:
        found = ddp.gather([it.detach() for it in model.parameters()])
        assert all(torch.equal(a, b) for other in found for a, b in zip(other, found[0])), name

for form in forms:
    fine("BatchNorm", train(form))
    torch.manual_seed(rank)
    fine("dropout", train(form, module=net(nn.Dropout(0.5))))
    adam = lambda them: torch.optim.AdamW(them, 0.01)
    fine("AdamW", train(form, make=adam))
    fine("bfloat16", train(form, lambda *_: None, make=adam))
    fine("clipping", train(form, lambda step, model, _: nn.utils.clip_grad_norm_(model.parameters(), 0.01) and None))

    # accumulation, in passes of their own and without the average
    for waits in (False, True):
        model = forms[form](net())
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(12):
            wait = waits and form == "shards" and step % 3 != 2
            with model.no_sync() if wait else contextlib.nullcontext():
                (model(batch(form, step)).pow(2).mean() / 3).backward()
            if step % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()
        fine("accumulation", model)

    # two models, two optimizers; the one's passes reach the other
    generator, critic = (forms[form](nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))) for _ in "ab")
    optimizers = [torch.optim.Adam(model.parameters(), 0.01) for model in (generator, critic)]
    for step in range(9):
        fake = generator(batch(form, step))
        optimizers[1].zero_grad()
        (critic(fake.detach()).mean() - critic(batch(form, 50 + step)).mean()).backward()
        optimizers[1].step()
        if step % 2:
            continue
        optimizers[0].zero_grad()
        (-critic(fake).mean()).backward()
        optimizers[0].step()
    fine("a generator", generator)
    fine("a critic", critic)

    # frozen, and trained later; nothing is trained; evaluation alone
    model = forms[form](net())
    model.module[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(9):
        if step == 3:
            model.module[0].requires_grad_(True)
        optimizer.zero_grad()
        model(batch(form, step)).sum().backward()
        optimizer.step()
    fine("frozen first", model)
    model.requires_grad_(False)
    model(batch(form, 0))
    model.eval()
    model(batch(form, 0))
    fine("frozen", model)

    # an exponential moving average, made on all ranks, and a copy on one
    model = forms[form](net())
    average = copy.deepcopy(model)
    average.requires_grad_(False)
    kept = copy.deepcopy(model) if rank == 0 else None
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(9):
        optimizer.zero_grad()
        model(batch(form, step)).sum().backward()
        optimizer.step()
        for mine, its in zip(average.parameters(), model.parameters()):
            mine.data.mul_(0.9).add_(its.data, alpha=0.1)
        average(batch(form, step))
    fine("a moving average", average)

    # a scaler that passes over a step
    model = forms[form](net())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 if rank else 2.0)
    for step in range(9):
        optimizer.zero_grad()
        loss = model(batch(form, step)).pow(2).mean()
        scaler.scale(loss * (float("inf") if step == 2 else 1)).backward()
        scaler.step(optimizer)
        scaler.update()
    fine("a scaler", model)

# types and layouts
class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag, self.out = nn.EmbeddingBag(10, 4, sparse=True, mode="sum"), nn.Linear(4, 1)
    def forward(self, x):
        return self.out(self.bag(x))
model = ddp.DistributedDataParallel(Bag())
optimizers = torch.optim.SparseAdam(model.module.bag.parameters()), torch.optim.SGD(model.module.out.parameters(), 0.1)
for step in range(5):
    model(torch.randint(10, (4, 3), generator=torch.Generator().manual_seed(world * step + rank))).sum().backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
fine("sparse gradients", model)
for kind in (torch.bfloat16, torch.float16, torch.complex64):
    model = ddp.DistributedDataParallel(nn.Linear(3, 3).to(kind))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(5):
        model(torch.ones(2, 3, dtype=kind) * (rank + step)).abs().float().sum().backward()
        optimizer.step()
    fine(kind, model)

# uneven ends; join; ranks' own averages by a hook
data = TensorDataset(torch.randn(7 * world + 1, 4, generator=torch.Generator().manual_seed(0)))
model = ddp.DistributedDataParallel(net())
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(2):
    for (x,) in ddp.shard(DataLoader(data, batch_size=2 * world)):
        optimizer.zero_grad()
        model.eval()(x).pow(2).mean().backward()
        optimizer.step()
fine("uneven parts", model)
model = ddp.DistributedDataParallel(nn.Linear(4, 1))
with model.join():
    for step in range(3 + 2 * rank):
        model(batch("shards", step)).sum().backward()
fine("join")
def hook(state, bucket):
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future
model = ddp.DistributedDataParallel(nn.Linear(4, 1))
model.register_comm_hook(None, hook)
for step in range(5):
    model(batch("shards", step)).sum().backward()
    model.module.weight.data -= model.module.weight.grad
other = ddp.DistributedDataParallel(nn.Linear(4, 1))
other(batch("shards", 0)).sum().backward()
fine("a hook")
ddp.print("fine")
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_nothing_is_said_of_ordinary_programs(tmp_path: Path, processes: int) -> None:
    result = run([write(tmp_path, ORDINARY)], tmp_path, processes, limit=90)
    assert (result.code, result.out) == (0, "fine\n"), result.err


ENDED = """
from torch import nn

def main():
    torch.manual_seed(0)
    model = ddp.DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(5):
        model(torch.ones(2, 4)).sum().backward()
        if ddp.get_rank() == 0:
            optimizer.step()
    print("done")

ddp.launch(main)
"""


def test_the_job_ends_with_one_message(tmp_path: Path) -> None:
    result = run([write(tmp_path, ENDED)], tmp_path)
    assert result.code == 1 and result.out == ""
    assert (
        result.err.count("Traceback") == result.err.count("the ranks train different models") == 1
    ), result.err
    message = r"RuntimeError: the ranks train different models: the parameter weight of Linear has other values on rank 1 "
    assert re.search(
        message + r"than on rank 0 \(and 1 more\), found in backward pass 2 of Linear\. ", result.err
    )


@pytest.mark.slow
def test_it_can_be_turned_off(tmp_path: Path) -> None:
    result = run([write(tmp_path, ENDED)], tmp_path, DP2DDP_CHECK=0)
    assert (result.code, result.out) == (0, "done\ndone\n"), result.err


# Digests

TYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.bool, torch.complex64]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_digest_sees_each_bit(kind: torch.dtype) -> None:
    tensor = torch.randn(1003).to(kind)
    before = digests.digest(tensor).item()
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    octets = real.reshape(-1).view(torch.uint8)
    for place in (0, 1, 7, 500, octets.numel() - 1):
        for bit in (1,) if kind is torch.bool else (1, 8, 128):
            octets[place] ^= bit
            assert digests.digest(tensor).item() != before, (place, bit)
            octets[place] ^= bit
    assert digests.digest(tensor).item() == before


def test_a_digest_sees_places_beyond_a_block() -> None:
    tensor = torch.zeros(5 * digests._BLOCK)
    seen = {digests.digest(tensor).item()}
    for place in range(0, tensor.numel(), digests._BLOCK):
        tensor[place] = 1
        seen.add(digests.digest(tensor).item())
        tensor[place] = 0
    assert len(seen) == 6


HALVES = torch.randn(12, dtype=torch.complex64).conj()
LAYOUTS: dict[str, torch.Tensor] = {
    "number": torch.tensor(1.0),
    "none": torch.zeros(0),
    "none of a stride": torch.zeros(9)[5:5:2],
    "part": torch.ones(9)[1:4],
    "every second": torch.arange(12)[0:11:2],
    "one of a stride": torch.arange(12)[3:4:2],
    "column": torch.randn(3, 4)[:, 1],
    "transposed": torch.ones(3, 4).t(),
    "expanded": torch.ones(1).expand(4),
    "expanded rows": torch.ones(1, 3).expand(4, 3),
    "windows": torch.arange(12.0).unfold(0, 3, 1),
    "every second of bfloat16": torch.randn(12).bfloat16()[::2],
    "every second of bool": torch.tensor([True, False, True])[::2],
    "every second conjugate": HALVES[::2],
    "imaginary parts of conjugates": HALVES.imag,
    "negative": torch._neg_view(torch.ones(4)),
    "needs a gradient": torch.ones(12, requires_grad=True)[::2],
    "sparse": torch.eye(3).to_sparse(),
    "nowhere": torch.ones(3, device="meta"),
}
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what is new, and of what is old
    LAYOUTS |= {
        "sparse rows": torch.eye(3).to_sparse_csr(),
        "quantised": torch.quantize_per_tensor(torch.arange(12.0), 0.1, 0, torch.qint8)[::2],
        "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    }


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_digest_of_any_layout(name: str) -> None:
    tensor = LAYOUTS[name]
    same = tensor.clone()
    if tensor.layout is torch.strided and not tensor.is_nested:
        same = tensor.contiguous()
    assert digests.digest(tensor).item() == digests.digest(same).item()
    assert saved.digest(tensor) == saved.digest(same)  # what is saved


@pytest.mark.parametrize(
    "name", ["every second", "column", "every second of bfloat16", "every second conjugate"]
)
def test_a_digest_sees_what_lies_apart(name: str) -> None:
    changed = LAYOUTS[name].clone()
    changed[1] += 1
    assert digests.digest(changed).item() != digests.digest(LAYOUTS[name]).item()


# What the source says


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for name in ("data", "call", "item", "added", "alias", "out", "init", "never", "after", "assigned"):
            setattr(self, f"of_{name}", nn.Parameter(torch.zeros(2)))
        self.inner = nn.Linear(2, 2)
        self.reset()

    def reset(self) -> None:
        self.of_never.data.fill_(1)
        nn.init.zeros_(self.of_never)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.of_data.data = x[0]
        self.of_call.data.copy_(x[0])
        self.of_item.data[:] = x[0]
        self.later(x)
        return x + self.of_never.requires_grad_() * self.of_assigned

    def later(self, x: torch.Tensor) -> None:
        with torch.no_grad():
            self.of_added += x[0]
            alias = self.of_alias.detach().view(2)
            alias.mul_(2)
            torch.add(x[0], 1, out=self.of_out)
            nn.init.constant_(self.of_init, 0)
            self.inner.weight.zero_()


def test_what_the_source_says_of_classes_within_functions() -> None:
    class Local(Inner):
        def later(self, x: torch.Tensor) -> None:
            self.of_never.data.zero_()

    assert written.names(Local()) == {"of_data", "of_call", "of_item", "of_never"}


def test_what_the_source_of_a_forward_says_that_it_writes() -> None:
    own = {f"of_{name}" for name in ("data", "call", "item", "added", "alias", "out", "init")} | {
        "inner.weight"
    }
    assert written.names(Inner()) == own
    assert written.names(nn.Sequential(nn.Linear(2, 2), Inner())) == {f"1.{name}" for name in own}
    assert written.names(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.LSTM(2, 2))) == set()


POWER = SHARED + """
class Power(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.u = nn.Linear(4, 3), nn.Parameter(torch.randn(3), requires_grad=False)

    def forward(self, x):
        w = self.layer.weight
        v = w.data.t().mv(self.u.data)
        u = w.data.mv(v / v.norm())
        self.u.data.copy_(u / u.norm())
        return nn.functional.linear(x, w / self.u.dot(w.mv(v / v.norm())), self.layer.bias)

for form in forms:
    model = train(form, module=Power())
    assert len(set(ddp.gather(model.module.u.tolist().__repr__()))) == 1
print("trained")
"""


@pytest.mark.slow
def test_a_model_without_buffers_whose_forward_writes_what_it_does_not_train(tmp_path: Path) -> None:
    """It is shared once, and then not any more: every rank writes the same."""
    result = run([write(tmp_path, POWER)], tmp_path)
    assert result.code == 0, result.err
