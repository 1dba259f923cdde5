"""One rank of the loops that `steps` compares: every one has its own model, optimizer and loader, in one process group.

A round runs each loop for some steps, wherever it is in its epoch. Rank 0 prints the rates, steps per second, as JSON.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from rounds import order
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from dp2ddp import runtime as ddp

BATCH, EPOCH, STEPS = 64, 400, 20  # images a step, steps an epoch, steps a round
Loop = Callable[[], Iterator[None]]
"""One epoch; it yields after each step."""


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(800, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


@functools.cache
def images() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    count = BATCH * EPOCH
    return TensorDataset(
        torch.randn(count, 1, 28, 28, generator=generator), torch.randint(10, (count,), generator=generator)
    )


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def plain(model: nn.Module, loader: DataLoader, before: Callable[[int], object] = lambda epoch: None) -> Loop:
    """The loop that everybody writes."""
    device, criterion, optimizer = torch.device("cpu"), nn.CrossEntropyLoss(), sgd(model)
    epoch = 0

    def run() -> Iterator[None]:
        nonlocal epoch
        before(epoch)
        epoch += 1
        for inputs, targets in loader:
            inputs, targets = inputs.to(device), targets.to(device)
            optimizer.zero_grad()
            criterion(model(inputs), targets).backward()
            optimizer.step()
            yield

    return run


def fixed(model: nn.Module, size: int) -> Loop:
    """The same steps on one batch: what the wrapper alone costs."""
    batch = next(iter(DataLoader(images(), batch_size=size)))
    return plain(model, [batch] * EPOCH)


def sampled(wrap: Callable[[nn.Module], nn.Module]) -> Loop:
    data = images()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=BATCH // dist.get_world_size(), sampler=sampler)
    return plain(wrap(network()), loader, sampler.set_epoch)


def sharded() -> Loop:
    loader = ddp.shard(DataLoader(images(), batch_size=BATCH, shuffle=True))
    return plain(ddp.DistributedDataParallel(network()), loader)


def accelerated() -> Loop:
    from accelerate import Accelerator

    accelerator, criterion = Accelerator(cpu=True), nn.CrossEntropyLoss()
    model = network()
    loader = DataLoader(images(), batch_size=BATCH // dist.get_world_size(), shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, sgd(model), loader)

    def run() -> Iterator[None]:
        for inputs, targets in loader:
            optimizer.zero_grad()
            accelerator.backward(criterion(model(inputs), targets))
            optimizer.step()
            yield

    return run


def fabricated() -> Loop:
    from lightning.fabric import Fabric

    fabric, criterion = Fabric(accelerator="cpu", strategy="ddp", devices=2), nn.CrossEntropyLoss()
    fabric.launch()
    model = network()
    model, optimizer = fabric.setup(model, sgd(model))
    data = images()
    loader = fabric.setup_dataloaders(
        DataLoader(data, batch_size=BATCH // dist.get_world_size(), shuffle=True)
    )

    def run() -> Iterator[None]:
        for inputs, targets in loader:
            optimizer.zero_grad()
            fabric.backward(criterion(model(inputs), targets))
            optimizer.step()
            yield

    return run


def several() -> dict[str, Loop]:
    """The loops of two processes."""
    part = BATCH // dist.get_world_size()
    loops = {
        "hand": sampled(nn.parallel.DistributedDataParallel),
        "sampler": sampled(ddp.DistributedDataParallel),
    }
    loops["again"] = sampled(nn.parallel.DistributedDataParallel)
    loops["shard"] = sharded()
    if importlib.util.find_spec("accelerate"):
        loops["accelerate"] = accelerated()
    if importlib.util.find_spec("lightning"):
        loops["fabric"] = fabricated()
    loops["torch_wrap"] = fixed(nn.parallel.DistributedDataParallel(network()), part)
    loops["wrap"] = fixed(ddp.DistributedDataParallel(network()), part)
    return loops


def single() -> dict[str, Loop]:
    """The loops of one process."""
    return {
        "bare": plain(network(), DataLoader(images(), batch_size=BATCH, shuffle=True)),
        "alone": sharded(),
        "bare_wrap": fixed(network(), BATCH),
        "alone_wrap": fixed(ddp.DistributedDataParallel(network()), BATCH),
    }


def endless(loop: Loop) -> Iterator[None]:
    while True:
        yield from loop()


def main(rounds: int) -> None:
    ddp.init()
    loops = single() if dist.get_world_size() == 1 else several()
    assert torch.get_num_threads() == 1
    running = {name: endless(loop) for name, loop in loops.items()}
    rates: dict[str, list[float]] = {name: [] for name in loops}
    for number in range(-2, rounds):  # two to warm up
        for name in order(list(loops), number):
            dist.barrier()
            begin = time.perf_counter()
            for _ in itertools.islice(running[name], STEPS):
                pass
            seconds = time.perf_counter() - begin
            if number >= 0:
                rates[name].append(STEPS / seconds)
    ddp.print(json.dumps(rates))


if __name__ == "__main__":
    main(int(sys.argv[1]))
