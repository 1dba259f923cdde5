"""One rank of what loading whole batches costs: the same training in four forms, each with its own model and loader.

A round takes one epoch of each form, whose workers live on. The original is trained by rank 0, while the others wait;
every process has one thread, since several that share two cores with workers wait for each other. Rank 0 prints the rates, steps per second, as JSON: first word of the command is
the case.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
from rounds import order
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from dp2ddp import runtime as ddp

BATCH, STEPS, WORKERS, SIZE = 64, 24, 2, 40  # images a step, steps an epoch, workers in all, pixels


class Images(Dataset):
    """Images that are there, or have to be computed.

    Args:
        blurs: how often an image is blurred, and so what it costs.
    """

    def __init__(self, blurs: int) -> None:
        self.images = torch.randn(512, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
        self.blurs = blurs

    def __len__(self) -> int:
        return BATCH * STEPS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = self.images[index % 512]
        for _ in range(self.blurs):
            image = nn.functional.avg_pool2d(image, 3, 1, 1)
        return image.flip(-1) if torch.rand(()) < 0.5 else image, index % 10


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(channels, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()),
            *(nn.Conv2d(channels, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + self.body(x)).relu()


def network(blocks: int) -> nn.Module:
    """A residual network with so many blocks of 32 channels, at a quarter of the size."""
    torch.manual_seed(0)
    first = [nn.Conv2d(3, 32, 4, 4), nn.ReLU(), nn.MaxPool2d(2) if blocks < 2 else nn.Identity()]
    return nn.Sequential(
        *first, *(Block(32) for _ in range(blocks)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)
    )


CASES = {  # what an image costs, blocks of the network
    "cheap": (0, 1),
    "costly": (60, 1),
    "resnet": (0, 8),
}


def trained(
    model: nn.Module, loader: Iterable, begin: Callable[[int], object] = lambda epoch: None
) -> Callable:
    """One epoch of the loop that everybody writes."""
    optimizer, criterion = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), nn.CrossEntropyLoss()

    def run(epoch: int) -> None:
        begin(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            criterion(model(inputs), targets).backward()
            optimizer.step()

    return run


def forms(blurs: int, blocks: int) -> dict[str, Callable[[int], None]]:
    data = Images(blurs)
    more = {"persistent_workers": True}
    whole = {"batch_size": BATCH, "shuffle": True, "num_workers": WORKERS, **more}
    sampler = DistributedSampler(data)
    part = DataLoader(
        data,
        batch_size=ddp.local_batch_size(BATCH),
        sampler=sampler,
        num_workers=ddp.local_workers(WORKERS),
        **more,
    )
    found = {
        "sharded": trained(ddp.DistributedDataParallel(network(blocks)), part, sampler.set_epoch),
        "whole": trained(ddp.DataParallel(network(blocks)), DataLoader(data, **whole)),
        "shared": trained(ddp.DataParallel(network(blocks)), ddp.share(DataLoader(data, **whole))),
    }
    alone = trained(network(blocks), DataLoader(data, generator=torch.Generator(), **whole))

    def run_alone(epoch: int) -> None:
        if ddp.is_main_process():
            alone(epoch)

    return {"alone": run_alone, **found}


def main(case: str, rounds: int) -> None:
    ddp.init()
    torch.set_num_threads(1)
    running = forms(*CASES[case])
    rates: dict[str, list[float]] = {name: [] for name in running}
    for number in range(-1, rounds):  # one to warm up
        for name in order(list(running), number):
            dist.barrier()
            began = time.perf_counter()
            running[name](number + 1)
            dist.barrier()
            if number >= 0:
                rates[name].append(STEPS / (time.perf_counter() - began))
    ddp.print(json.dumps(rates))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
