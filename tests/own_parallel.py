"""Programs whose DataParallel is not torch's own class."""

from __future__ import annotations

from programs import FORWARD, LOSS, PROGRAM, WRAP

IMPORTS = """\
import torch
import torch.nn.functional as F
from torch import nn
"""
MODEL = "model = nn.Linear(8, 2).cuda()\n"


def with_class(text: str, wrap: str, *imports: str) -> str:
    """The program with a class, and what wraps the model in it."""
    assert WRAP in PROGRAM and MODEL in PROGRAM
    more = "".join(f"{line}\n" for line in imports)
    return (
        PROGRAM.replace(IMPORTS, IMPORTS + more)
        .replace("data = ", f"\n\n{text.strip()}\n\n\ndata = ", 1)
        .replace(WRAP, wrap)
    )


BALANCED = """
class Balanced(nn.DataParallel):
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
        outputs = self.parallel_apply(replicas, device_ids, inputs, kwargs)
        return self.gather(outputs, self.output_device)

    def parallel_apply(self, replicas, device_ids, inputs, kwargs):
        return parallel_apply(replicas, inputs, kwargs, device_ids[: len(inputs)])

    def scatter(self, inputs, kwargs, device_ids):
        rest = (len(inputs[0]) - self.first) // (len(self.device_ids) - 1)
        sizes = [self.first] * (self.first > 0) + [rest] * (len(self.device_ids) - 1)
        sizes[-1] += len(inputs[0]) - sum(sizes)
        return scatter_kwargs(inputs, kwargs, device_ids, sizes, dim=self.dim)


def scatter_kwargs(inputs, kwargs, device_ids, sizes, dim):
    parts = [Scatter.apply(device_ids, sizes, dim, it) for it in inputs]
    return tuple(zip(*parts)), tuple(dict(kwargs) for _ in device_ids)
"""
APPLY = "from torch.nn.parallel.parallel_apply import parallel_apply"
SCATTER = "from torch.nn.parallel._functions import Scatter"

COPIED = """
class Chunked(Module):
    def __init__(self, module, device_ids=None, output_device=None, dim=0, chunk_sizes=None):
        super(Chunked, self).__init__()
        if not torch.cuda.is_available():
            self.module = module
            self.device_ids = []
            return
        if device_ids is None:
            device_ids = list(range(torch.cuda.device_count()))
        if output_device is None:
            output_device = device_ids[0]
        self.dim = dim
        self.module = module
        self.device_ids = device_ids
        self.chunk_sizes = chunk_sizes
        self.output_device = output_device
        if len(self.device_ids) == 1:
            self.module.cuda(device_ids[0])

    def forward(self, *inputs, **kwargs):
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        inputs, kwargs = self.scatter(inputs, kwargs, self.device_ids)
        if len(self.device_ids) == 1:
            return self.module(*inputs[0], **kwargs[0])
        replicas = self.replicate(self.module, self.device_ids[: len(inputs)])
        outputs = self.parallel_apply(replicas, inputs, kwargs)
        return self.gather(outputs, self.output_device)

    def replicate(self, module, device_ids):
        return replicate(module, device_ids)

    def scatter(self, inputs, kwargs, device_ids):
        if self.chunk_sizes is None:
            return scatter_kwargs(inputs, kwargs, device_ids, dim=self.dim)
        parts = [it.split(self.chunk_sizes[: len(device_ids)], self.dim) for it in inputs]
        return list(zip(*parts)), [kwargs] * len(device_ids)

    def parallel_apply(self, replicas, inputs, kwargs):
        return parallel_apply(replicas, inputs, kwargs, self.device_ids[: len(replicas)])

    def gather(self, outputs, output_device):
        return gather(outputs, output_device, dim=self.dim)
"""
COPIED_IMPORTS = (
    "from torch.nn.modules import Module",
    APPLY,
    "from torch.nn.parallel.replicate import replicate",
    "from torch.nn.parallel.scatter_gather import gather, scatter_kwargs",
)

GATHERED = """
class Listing(nn.DataParallel):
    def gather(self, outputs, output_device):
        return [row for output in outputs for row in output]
"""
INNER = """
class Base(nn.DataParallel):
    def __init__(self, net, *, ids=None):
        nn.DataParallel.__init__(self, net, device_ids=ids)

    def scatter(self, inputs, kwargs, device_ids):
        parts = [it.flip(0).chunk(len(device_ids)) for it in inputs]
        return list(zip(*parts)), [kwargs] * len(parts[0])


class Derived(Base):
    def gather(self, outputs, output_device):
        return super().gather(outputs, output_device).flip(0)
"""
BY_HAND = """\
devices = list(range(torch.cuda.device_count()))
        parts = nn.parallel.scatter(inputs.cuda(), devices)
        replicas = nn.parallel.replicate(model, devices[: len(parts)])
        outputs = nn.parallel.gather(nn.parallel.parallel_apply(replicas, parts), devices[0])"""

# Each is converted with whole batches, and makes nn.DataParallel's steps.
# Wrapped again, on the devices that the first wrapper has; the function is given to itself what it is given.
AGAIN = """
class Watched(nn.DataParallel):
    def forward(self, *inputs, **kwargs):
        self.calls = getattr(self, "calls", 0) + 1
        return super().forward(*inputs, **kwargs)


def again(module):
    if hasattr(module, "device_ids"):
        inner = again(module.module)
        return Watched(inner, device_ids=module.device_ids)
    changed = module
    for name, child in module.named_children():
        changed.add_module(name, again(child))
    return changed
"""
OWN = {
    "wrapped again by a function that calls itself": with_class(
        AGAIN, "model = again(nn.DataParallel(model))"
    ),
    "a smaller part for the first": with_class(BALANCED, "model = Balanced(3, model, dim=0)", APPLY, SCATTER),
    "no part for the first": with_class(BALANCED, "model = Balanced(0, model, dim=0)", APPLY, SCATTER),
    "a copy of torch's class": with_class(COPIED, "model = Chunked(model)", *COPIED_IMPORTS),
    "a copy that divides in its own way": with_class(
        COPIED, "model = Chunked(model, chunk_sizes=[4, 12] if N == 2 else [4, 5, 7])", *COPIED_IMPORTS
    ).replace("data = ", "N = torch.cuda.device_count()\ndata = ", 1),
    "outputs in a list": with_class(GATHERED, "model = Listing(model)").replace(
        FORWARD, "outputs = torch.stack(model(inputs.cuda()))"
    ),
    "a class of a class": with_class(INNER, "model = Derived(net=model)"),
    "replicas by hand": PROGRAM.replace(WRAP, "model.train()").replace(FORWARD, BY_HAND),
    "a criterion that is replicated by hand": PROGRAM.replace(
        LOSS,
        "devices = list(range(torch.cuda.device_count()))\n"
        "        parts = [*zip(outputs.chunk(len(devices)), targets.cuda().chunk(len(devices)))]\n"
        "        copies = nn.parallel.replicate(criterion, devices[: len(parts)])\n"
        "        loss = sum(nn.parallel.parallel_apply(copies, parts)) / len(parts)",
    ),
    "a step that is replaced": PROGRAM.replace(
        WRAP, WRAP + "\nmodel.gather = lambda outputs, device: torch.cat([it.to(device) for it in outputs])"
    ),
}
