"""Classes that derive from DataParallel and have steps of their own: nn.DataParallel's numbers, on every rank."""

import copy
import pickle

import pytest
import torch
from jobs import write
from test_data_parallel import SHARED
from torch import nn

from dp2ddp import runtime as ddp

OWN = SHARED + """
from dp2ddp.verify import reference

def own(make, **options):
    # the same class of both kinds, with the functions that each has
    torch.manual_seed(0)
    ids = list(range(world))
    bare = options.pop("net", Net)()
    kinds = (Emulated, reference), (ddp.DataParallel, ddp.parallel)
    return [make(base, functions)(copy.deepcopy(bare), **options, **({"device_ids": ids} if base is Emulated else {}))
            for base, functions in kinds]
"""

SCATTERED = """
def unbalanced(base, functions):
    class Unbalanced(base):
        # the first part has one row, the others what is left
        def scatter(self, inputs, kwargs, device_ids):
            assert len(device_ids) == world
            sizes = [1] + [len(it) for it in torch.arange(len(inputs[0]) - 1).chunk(len(device_ids) - 1)]
            cut = [it.split(sizes) for it in inputs]
            return [list(part) for part in zip(*cut)], [kwargs] * len(sizes)
    return Unbalanced

mean = lambda net, x, y: F.cross_entropy(net(x), y)
total = lambda net, x, y: F.cross_entropy(net(x), y, reduction="sum")
for sizes in ((16, 10, 9), (3, 2)):  # with fewer parts than ranks, of three
    compare("mean", *own(unbalanced), mean, sizes)
    compare("sum", *own(unbalanced), total, sizes)

def paired(base, functions):
    class Paired(base):
        # no part of one row, which BatchNorm refuses; the last rank gets most
        def scatter(self, inputs, kwargs, device_ids):
            few = [2] * (len(device_ids) - 1)
            return [[it] for it in inputs[0].split([*few, len(inputs[0]) - sum(few)])], [{} for _ in device_ids]
    return Paired
compare("BatchNorm", *own(paired, net=lambda: Net(norm=True)), mean, (16, 11, 9))
for net in own(paired, net=lambda: Net(norm=True)):
    net.eval()
    with torch.no_grad():
        same("whole", net.module(draw(9, 0)[0]), net(draw(9, 0)[0]))

# lists of images of any sizes, with a dict for each; losses of the parts
class Detector(Net):
    def forward(self, images, targets, scale=1.0):
        losses = [super(Detector, self).forward(image).pow(2).mean() * target["weight"]
                  for image, target in zip(images, targets)]
        return {"boxes": torch.stack(losses).sum() * scale, "n": torch.tensor(float(len(images)))}
def detecting(base, functions):
    class Detecting(base):
        def scatter(self, inputs, kwargs, device_ids):
            images, targets = inputs
            parts = [range(i, len(images), len(device_ids)) for i in range(min(len(images), len(device_ids)))]
            devices = ["cuda:" + str(it) for it in device_ids]
            return ([([images[i].to(devices[0]).cuda(device_ids[-1]) if base is not Emulated else images[i] for i in part],
                      [targets[i] for i in part]) for part in parts], [kwargs] * len(parts))
        def gather(self, outputs, output_device):
            return {key: torch.stack([it[key].to(output_device) if base is not Emulated else it[key] for it in outputs])
                    for key in outputs[0]}
    return Detecting
def detect(net, x, y):
    images = [x[: 1 + i % 3] + i for i in range(len(x) // 3)]
    out = net(images, [{"weight": torch.tensor(0.5 + i), "id": i} for i in range(len(images))], scale=2.0)
    assert out["n"].sum() == len(images), out
    return (out["boxes"] / out["n"]).sum()
compare("images", *own(detecting, net=Detector), detect, (15, 12, 6, 3))

# what leads to an input gets all parts' gradients; penalties on gradients
for n in (16, 9, 2):
    found = []
    for net in own(unbalanced):
        torch.manual_seed(5)
        embed = nn.Linear(5, 5)
        x = draw(n, n)[0].requires_grad_()
        net(embed(x)).pow(2).sum().backward()
        found.append([x.grad, embed.weight.grad, net.module.a.weight.grad])
    same(("inputs", n), *found)
def penalty(net, x, y):
    x = x.clone().requires_grad_()
    slope, = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    return (slope.norm(dim=1) - 1).pow(2).mean() + net(x).mean()
compare("penalty", *own(unbalanced), penalty, (10, 9, 2))
def curved(net, x, y):
    x = x.clone().requires_grad_()
    slope, = torch.autograd.grad(F.cross_entropy(net(x), y, reduction="sum"), x, create_graph=True)
    return slope.pow(2).sum(1).sqrt().mean()
compare("curved", *own(unbalanced), curved, (10, 9, 2))

# an input that some parts have no use for
def first_only(base, functions):
    class FirstOnly(base):
        def scatter(self, inputs, kwargs, device_ids):
            parts = inputs[0].chunk(len(device_ids))
            return [(part, inputs[1] if i == 0 else None) for i, part in enumerate(parts)], [{}] * len(parts)
    return FirstOnly
class Shifted(Net):
    def forward(self, x, shift):
        return super().forward(x if shift is None else x + shift)
found = []
for net in own(first_only, net=Shifted):
    shift = torch.ones(5, requires_grad=True)
    net(draw(6, 0)[0], shift).pow(2).sum().backward()
    found.append([shift.grad, net.module.a.weight.grad])
same("first only", *found)
ddp.print("done")
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_parts_of_any_kind(lab, tmp_path, processes):
    script = write(tmp_path, OWN + SCATTERED)
    assert lab.run(script, processes=processes, recorded=False, timeout=120).ok().printed == "done\n"


GATHERED = """
# lists of objects; a list of what each part has; on the CPU; torch's own gather called on
class Named(NamedTuple):
    rows: torch.Tensor
    names: list
class Many(Net):
    def forward(self, x):
        y = super().forward(x)
        return [{"row": row, "name": f"row {i}", "n": i, "mask": row > 0, "kept": Named(row * 2, [None, 1.5])}
                for i, row in enumerate(y)]
def listing(base, functions):
    class Listing(base):
        def gather(self, outputs, output_device):
            return sum(outputs, [])
    return Listing
reference_, model = own(listing, net=Many)
for n in (9, 4, 1):
    same("list", reference_(draw(n, n)[0]), model(draw(n, n)[0]))
compare("list", *own(listing, net=Many),
        lambda net, x, y: sum(it["row"].pow(2).sum() + it["kept"].rows.mean() for it in net(x)), (9, 4, 1))

def ungathered(base, functions):
    class Ungathered(base):
        def gather(self, outputs, output_device):
            return outputs
    return Ungathered
reference_, model = own(ungathered)
assert len(model(draw(9, 0)[0])) == world
compare("ungathered", *own(ungathered), lambda net, x, y: sum(it.logsumexp(0).sum() / len(it) for it in net(x)), (9, 1))

def halved(base, functions):
    class Halved(base):
        def gather(self, outputs, output_device):
            return super().gather([it / 2 for it in outputs], output_device)
        def replicate(self, module, device_ids):
            return super().replicate(module, device_ids)
    return Halved
# in which what they get is written in place
def written(base, functions):
    class Written(base):
        def gather(self, outputs, output_device):
            squares = 0
            for it in outputs:
                it[:, 0] = 0
                squares = squares + it.mul_(2).sin_().pow(2).sum()
            return super().gather(outputs, output_device).sub_(1), squares
    return Written
def squared(net, x, y):
    out, squares = net(x)
    return F.cross_entropy(out, y) + squares
compare("written", *own(written), squared, (16, 9, 1))
class Writing(Net):
    def forward(self, x, y):
        return super().forward(x.mul_(2)) + y.sigmoid_()[:, :3]
def twofold(base, functions):
    class Twofold(base):
        def scatter(self, inputs, kwargs, device_ids):
            return [(it * 1, it * 2) for it in inputs[0].chunk(len(device_ids))], [{}] * len(inputs[0].chunk(len(device_ids)))
    return Twofold
found = []
for net in own(twofold, net=Writing):
    x = draw(9, 0)[0].requires_grad_()
    net(x).pow(2).sum().backward()
    found.append([x.grad, net.module.a.weight.grad])
same("inputs written", *found)

compare("torch's", *own(halved, net=lambda: Net(norm=True)), lambda net, x, y: F.cross_entropy(net(x), y), (16, 11))

# objects that hold tensors are compared, and can't hold a graph
class Graph:
    def __init__(self, x):
        self.x = x
class OfGraphs(Net):
    def forward(self, graph):
        return super().forward(graph.x)
def graphs(base, functions):
    class Graphs(base):
        def scatter(self, inputs, kwargs, device_ids):
            return [(Graph(it),) for it in inputs[0].chunk(len(device_ids))], [{} for _ in device_ids]
    return Graphs
compare("graphs", *own(graphs, net=OfGraphs), lambda net, x, y: net(x).pow(2).sum(), (9, 12))
for x, said in ((draw(9, rank)[0], "different batches"), (draw(9, 0)[0].requires_grad_(), "an input of type Graph")):
    try:
        own(graphs, net=OfGraphs)[1](x)
        assert False
    except (RuntimeError, TypeError) as error:
        assert said in str(error), error

# constants on one rank; nothing on all
class Sometimes(Net):
    def forward(self, x):
        return [super(Sometimes, self).forward(x)] if x.sum() > 0 else [torch.zeros(len(x), 3), "none"]
x = torch.ones(2 * world, 5)
x[:2] = -1
pair_ = own(ungathered, net=Sometimes)
for net in pair_:
    out = net(x)
    assert len(out[0]) == 2 and len(out[1]) == 1
    sum(it[0].pow(2).sum() for it in out).backward()
same("sometimes", *[[p.grad for p in net.module.a.parameters()] for net in pair_])
assert not any(it[0].requires_grad for it in pair_[1](-torch.ones(4, 5)))

# what replicas are given
class Numbered(Net):
    number = 7
    def forward(self, x):
        return super().forward(x) * (1 + self.number) + self.norm.shift
def numbering(base, functions):
    class Numbering(base):
        def replicate(self, module, device_ids):
            copies = super().replicate(module, device_ids)
            for number, it in enumerate(copies):
                it.number, it.norm.shift = number, number / 2
            return copies
    return Numbering
reference_, model = own(numbering, net=Numbered)
compare("numbered", reference_, model, lambda net, x, y: F.cross_entropy(net(x), y), (16, 9, 2))
assert model.module.number == 7 and not hasattr(model.module.norm, "shift")

# what can't be sent
class Box:
    def __init__(self, inner):
        self.inner = inner
class Boxing(Net):
    def forward(self, x, kind):
        y = super().forward(x)
        return {"graph": Box(y), "detached": Box(y.detach()), "function": lambda: y}[kind]
_, model = own(ungathered, net=Boxing)
assert len(model(draw(4, 0)[0], "detached")[0].inner) == len(draw(4, 0)[0].chunk(world)[0])
for kind, said in (("graph", "type Box holds tensors"), ("function", "can't be sent")):
    try:
        model(draw(4, 0)[0], kind)
        assert False
    except (TypeError, RuntimeError, AttributeError) as error:
        assert said in str(error) or "Can't pickle local" in str(error), error

# more parts than ranks
def more(base, functions):
    class More(base):
        def scatter(self, inputs, kwargs, device_ids):
            return [(it,) for it in inputs[0].chunk(world + 1)], [{}] * (world + 1)
    return More
try:
    own(more)[1](draw(2 * world + 2, 0)[0])
    assert False
except RuntimeError as error:
    assert f"into {world + 1} parts" in str(error) and f"{world} processes" in str(error), error
try:
    own(unbalanced_later := ungathered)[1](draw(8 + rank, 0)[0])
    assert False
except RuntimeError as error:
    assert "different batches" in str(error), error
ddp.print("done")
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_outputs_of_any_kind(lab, tmp_path, processes):
    script = write(tmp_path, OWN + GATHERED)
    assert lab.run(script, processes=processes, recorded=False, timeout=120).ok().printed == "done\n"


FORWARDS = """
# a forward that goes the steps by itself, with functions of its own and a signature of its own
def balanced(base, functions):
    class Balanced(base):
        def __init__(self, first, *args, **kwargs):
            self.first = first
            super().__init__(*args, **kwargs)
        def forward(self, *inputs, **kwargs):
            if not self.device_ids:
                return self.module(*inputs, **kwargs)
            device_ids = self.device_ids[1:] if self.first == 0 else self.device_ids
            inputs, kwargs = self.scatter(inputs, kwargs, device_ids)
            if len(self.device_ids) == 1:
                return self.module(*inputs[0], **kwargs[0])
            replicas = self.replicate(self.module, self.device_ids)
            if self.first == 0:
                replicas = replicas[1:]
            outputs = self.parallel_apply(replicas[: len(inputs)], device_ids, inputs, kwargs)
            return self.gather(outputs, self.output_device)
        def parallel_apply(self, replicas, device_ids, inputs, kwargs):
            return functions.parallel_apply(replicas, inputs, kwargs, device_ids[: len(inputs)])
        def scatter(self, inputs, kwargs, device_ids):
            if self.first > len(inputs[0]) // 2:
                return super().scatter(inputs, kwargs, device_ids)
            rest = torch.arange(len(inputs[0]) - self.first).chunk(len(self.device_ids) - 1)
            sizes = [self.first] * (self.first > 0) + [len(it) for it in rest]
            return [(it,) for it in inputs[0].split(sizes)], [{} for _ in sizes]
    return lambda module, **options: Balanced(first, module, **options)
mean = lambda net, x, y: F.cross_entropy(net(x), y)
for first in (0, 2, 7):
    compare(("balanced", first), *own(balanced, net=lambda: Net(norm=True)), mean, (16, 11))
    compare(("balanced", first), *own(balanced), mean, (16, 9, 4))

# a copy of torch's own class
def copied(base, functions):
    class Copied(nn.Module if base is Emulated else base):
        def __init__(self, module, device_ids=None, output_device=None, dim=0, chunk_sizes=None):
            super().__init__()
            device_ids = list(range(world)) if device_ids is None else device_ids
            self.dim, self.module, self.device_ids, self.output_device = dim, module, device_ids, device_ids[0]
            if len(self.device_ids) == 1:
                self.module.cuda(device_ids[0])
        def forward(self, *inputs, **kwargs):
            inputs, kwargs = self.scatter(inputs, kwargs, self.device_ids)
            replicas = self.replicate(self.module, self.device_ids[: len(inputs)])
            return self.gather(self.parallel_apply(replicas, inputs, kwargs), self.output_device)
        def replicate(self, module, device_ids):
            return functions.replicate(module, device_ids)
        def scatter(self, inputs, kwargs, device_ids):
            return functions.scatter_kwargs(inputs, kwargs, device_ids, dim=self.dim)
        def parallel_apply(self, replicas, inputs, kwargs):
            return functions.parallel_apply(replicas, inputs, kwargs, self.device_ids[: len(replicas)])
        def gather(self, outputs, output_device):
            return functions.gather(outputs, output_device, dim=self.dim)
    return Copied
compare("copied", *own(copied, net=lambda: Net(norm=True)), mean, (16, 11))

# outputs that stay apart, and a criterion of the parts; called by hand, too
def criterion(base, functions):
    class Criterion(base):
        by_hand = False
        def forward(self, inputs, *targets, **kwargs):
            targets, kwargs = self.scatter(targets, kwargs, self.device_ids)
            replicas = self.replicate(self.module, self.device_ids[: len(inputs)])
            given = [(it, *target) for it, target in zip(inputs, targets)]
            if self.by_hand:
                losses = [replica(*it) for replica, it in zip(replicas, given)]
            else:
                losses = self.parallel_apply(replicas, given, kwargs)
            return sum(losses) / len(losses)
    return Criterion
class Weighed(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.0, 2.0, 0.5]))
    def forward(self, x, y):
        return F.cross_entropy(x * self.scale, y) + x.pow(2).sum()
def ungathered(base, functions):
    class Ungathered(base):
        def gather(self, outputs, output_device):
            return outputs
    return Ungathered
for by_hand in (False, True):
    reference_, model = own(ungathered, net=lambda: Net(norm=True))
    losses = own(criterion, net=Weighed)
    for net, loss in zip((reference_, model), losses):
        loss.by_hand = by_hand
        net.module.head = loss
    compare("criterion", reference_, model, lambda net, x, y: net.module.head(net(x), y), (16, 11))

# without a class
nets = []
for functions in (reference, ddp.parallel):
    torch.manual_seed(2)
    net = Net(norm=True)
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
    for i, n in enumerate((16, 11, 9)):
        x, y = draw(n, i)
        inputs = functions.scatter(x, list(range(world)))
        replicas = functions.replicate(net, list(range(world))[: len(inputs)])
        outputs = functions.gather(functions.parallel_apply(replicas, inputs), 0)
        optimizer.zero_grad()
        F.cross_entropy(outputs, y).backward()
        optimizer.step()
    nets.append(net)
close("by hand", *nets)
assert list(copy.deepcopy(nets[1]).state_dict()) == list(nets[0].state_dict())
assert pickle.loads(pickle.dumps(nets[1])).a.weight.equal(nets[1].a.weight)

# calls past the steps; methods; state of its own
class Forwarding(ddp.DataParallel):
    def __init__(self, net, *, tag):
        super().__init__(net)
        self.tag = tag
    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.module, name)
    def forward(self, x):
        return super().forward(x) * 1
    def width(self):
        return self.module.a.out_features
model = Forwarding(Net(norm=True), tag="x")
assert model.width() == 6 and model.a is model.module.a and model.tag == "x" and not hasattr(model, "nothing")
reference_, _ = pair(lambda: Net(norm=True))
for twin in (model, copy.deepcopy(model)):
    twin.load_state_dict(reference_.state_dict())
    assert twin.tag == "x"
    compare("forwarding", copy.deepcopy(reference_), twin, mean, (10, 11))

class Sharded(ddp.DistributedDataParallel):
    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.module, name)
model = Sharded(Net(), device_ids=[0, 1], output_device=0, dim=0)
assert model.a is model.module.a and isinstance(model, nn.parallel.DistributedDataParallel)
x, y = draw(4 * world, 0)
F.cross_entropy(model(x.chunk(world)[rank]), y.chunk(world)[rank]).backward()
reference_, _ = pair(Net)
reference_.load_state_dict(model.state_dict())
F.cross_entropy(reference_(x), y).backward()
same("sharded", reference_.module.a.weight.grad, model.a.weight.grad)
ddp.print("done")
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_forwards_that_go_the_steps_by_themselves(lab, tmp_path, processes):
    script = write(tmp_path, OWN + FORWARDS)
    assert lab.run(script, processes=processes, recorded=False, timeout=120).ok().printed == "done\n"


SYNCHRONISED = (
    """
import threading
from queue import Queue
from torch.nn.modules.batchnorm import _BatchNorm

class Sums(NamedTuple):
    total: torch.Tensor
    squares: torch.Tensor
    size: int

class Pipe:
    def __init__(self, number, queue, answer):
        self.number, self.queue, self.answer = number, queue, answer
    def run_slave(self, message):
        self.queue.put((self.number, message))
        return self.answer.get()

class Master:
    # copies of a layer meet here, each in a thread of its own
    def __init__(self, callback):
        self._master_callback, self.queue, self.pipes = callback, Queue(), {}
    def __getstate__(self):
        return {"_master_callback": self._master_callback}
    def __setstate__(self, state):
        self.__init__(state["_master_callback"])
    def register_slave(self, number):
        pipe = self.pipes[number] = Pipe(number, self.queue, Queue())
        return pipe
    def run_master(self, message):
        messages = [(0, message)] + [self.queue.get() for _ in self.pipes]
        answers = self._master_callback(sorted(messages, key=lambda it: it[0]))
        for number, answer in answers[1:]:
            self.pipes[number].answer.put(answer)
        self.pipes.clear()
        return answers[0][1]

class SyncNorm(_BatchNorm):
    def __init__(self, features):
        super().__init__(features)
        self.master, self.is_copy = Master(self.combine), False
        self.register_buffer("seen", torch.zeros(1))
    def _check_input_dim(self, x):
        pass
    def __data_parallel_replicate__(self, ctx, number):
        self.is_copy, self.number = True, number
        if number == 0:
            ctx.master = self.master
        else:
            self.pipe = ctx.master.register_slave(number)
    def forward(self, x):
        if not (self.is_copy and self.training):
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, self.training, 0.1)
        message = Sums(x.sum(0), (x**2).sum(0), len(x))
        answer = (self.master.run_master if self.number == 0 else self.pipe.run_slave)(message)
        mean, scale = answer
        return (x - mean) * scale * self.weight + self.bias
    def combine(self, messages):
        size = sum(it.size for _, it in messages)
        mean = sum(it.total for _, it in messages) / size
        variance = sum(it.squares for _, it in messages) / size - mean**2
        self.running_mean = 0.9 * self.running_mean + 0.1 * mean.detach()
        self.running_var = 0.9 * self.running_var + 0.1 * variance.detach() * size / (size - 1)
        self.seen += size
        return [(number, (mean, (variance + 1e-5) ** -0.5)) for number, _ in messages]

def call_back(copies):
    contexts = [type("Context", (), {})() for _ in copies[0].modules()]
    for number, copy in enumerate(copies):
        for context, layer in zip(contexts, copy.modules()):
            if hasattr(layer, "__data_parallel_replicate__"):
                layer.__data_parallel_replicate__(context, number)
"""
    + """
class Synced(Net):
    def __init__(self):
        super().__init__()
        self.norm, self.last, self.drop = SyncNorm(6), SyncNorm(3), nn.Dropout(0.0)
    def forward(self, x):
        return self.last(self.drop(super().forward(x)))

def with_callback(base, functions):
    class WithCallback(base):
        def replicate(self, module, device_ids):
            copies = super().replicate(module, device_ids)
            call_back(copies)
            return copies
    return WithCallback
def patched(base, functions):
    def make(*args, **options):
        model = base(*args, **options)
        old = model.replicate
        def replicate(module, device_ids):
            copies = old(module, device_ids)
            call_back(copies)
            return copies
        model.replicate = replicate
        return model
    return make
mean = lambda net, x, y: F.cross_entropy(net(x), y)
total = lambda net, x, y: F.cross_entropy(net(x), y, reduction="sum")
for make in (with_callback, patched):
    for step in (mean, total):
        compare("synchronised", *own(make, net=Synced), step, (16, 11, 9, 2))  # of three ranks, one without a part

# with whole batches a replica's sums are those of all
reference_, model = own(with_callback, net=Synced)
alone = copy.deepcopy(model.module)
for layer in (alone.norm, alone.last):
    layer.__class__ = nn.BatchNorm1d
x, y = draw(12, 0)
F.cross_entropy(model(x), y).backward()
F.cross_entropy(alone(x), y).backward()
assert torch.allclose(alone.a.weight.grad, model.module.a.weight.grad, rtol=1e-9, atol=1e-12)
assert model.module.norm.seen == 12 and not model.module.norm.is_copy

# without callbacks nothing is synchronised, as with nn.DataParallel; nor in evaluation, nor in an inner forward
compare("apart", *own(lambda base, functions: base, net=Synced), mean, (16, 11))
compare("inner", *own(with_callback, net=Synced), lambda net, x, y: mean(net, x, y) + net.module(x).mean(), (16, 11))
for net in own(with_callback, net=Synced):
    net.eval()
    same("eval", net.module(x), net(x))

# a layer that is run once more in the backward pass
class Again(Synced):
    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(super().forward, x, use_reentrant=False)
import torch.utils.checkpoint
try:
    own(with_callback, net=Again)[1](x).sum().backward()
    assert False
except RuntimeError as error:
    assert "runs again in the backward pass" in str(error), error

# DistributedDataParallel has the layers of its parts called back as well; parts of any size, and none
class Sharded(ddp.DistributedDataParallel):
    def replicate(self, module, device_ids):
        copies = super().replicate(module, device_ids)
        call_back(copies)
        return copies
from torch.utils.data import DataLoader, TensorDataset
for make in (Sharded, lambda net: patched(ddp.DistributedDataParallel, None)(net)):
    reference_, _ = own(with_callback, net=Synced)
    model = make(copy.deepcopy(reference_.module))
    optimizers = [torch.optim.SGD(m.parameters(), 0.05, momentum=0.9) for m in (reference_, model)]
    data = TensorDataset(*draw(26, 9))
    whole, loader = DataLoader(data, 8), ddp.shard(DataLoader(data, 8))
    for (x, y), (part, of_part) in zip(whole, loader):
        for m, optimizer, given, wanted in zip((reference_, model), optimizers, (x, part), (y, of_part)):
            optimizer.zero_grad()
            F.cross_entropy(m(given), wanted).backward()
            optimizer.step()
        close(("sharded", len(x)), reference_, model)
    assert model.module.norm.seen == 26

class Numbering(ddp.DistributedDataParallel):
    def replicate(self, module, device_ids):
        return [copy.deepcopy(module) for _ in device_ids]
try:
    Numbering(Net())(draw(4, 0)[0])
    assert False
except RuntimeError as error:
    assert "returns other modules" in str(error), error

# callbacks that nothing is known of
class Odd(nn.Linear):
    def __data_parallel_replicate__(self, ctx, number):
        self.number = number
try:
    own(with_callback, net=lambda: Odd(5, 3))[1](x)
    assert False
except RuntimeError as error:
    assert "Odd shares data between replicas" in str(error), error
ddp.print("done")
"""
)


@pytest.mark.parametrize("processes", [2, 3])
def test_layers_that_share_sums_among_replicas(lab, tmp_path, processes):
    script = write(tmp_path, OWN + SYNCHRONISED)
    assert lab.run(script, processes=processes, recorded=False, timeout=120).ok().printed == "done\n"


WAITING = """
import io
from queue import Queue
from torch import nn
ddp.init()

class Norm(nn.BatchNorm1d):
    def __init__(self, count):
        super().__init__(count)
        self.others = [Queue()]
    def forward(self, x):
        return self.others[0].get(timeout=9) if self.training else super().forward(x)

for wrap in (ddp.DataParallel, ddp.DistributedDataParallel):
    model = wrap(nn.Sequential(nn.Linear(3, 4), Norm(4)))
    model.eval()
    model(torch.ones(6, 3)).sum().backward()
    model.train()
    try:
        model(torch.ones(6, 3))
        assert False
    except RuntimeError as error:
        assert "1 is a Norm, which waits for other replicas" in str(error), error
ddp.print("done")
"""


def test_a_norm_that_waits_for_replicas_is_refused_when_it_would(lab, tmp_path):
    """A frozen one never does."""
    script = write(tmp_path, WAITING)
    assert lab.run(script, processes=2, recorded=False, timeout=60).ok().printed == "done\n"


def test_a_plain_process_takes_no_steps():
    """As nn.DataParallel without a GPU."""

    class Own(ddp.DataParallel):
        def scatter(self, inputs, kwargs, device_ids):
            raise AssertionError

        def gather(self, outputs, output_device):
            raise AssertionError

    model = Own(nn.Linear(3, 2), device_ids=[0, 1], output_device=1)
    assert model(torch.ones(4, 3)).shape == (4, 2)
    assert pickle.loads(pickle.dumps(ddp.DataParallel(nn.Linear(3, 2)))).device_ids == []
    assert copy.deepcopy(model).module.weight.equal(model.module.weight)
