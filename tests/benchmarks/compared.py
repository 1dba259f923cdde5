"""One rank of what watching replicas costs: steps of a network of ResNet-50's size, with and without a comparison.

A round makes a step that is compared and one that is not. Rank 0 prints the seconds of each, as JSON.
"""

from __future__ import annotations

import json
import sys
import time

import torch
from rounds import order
from torch import nn

from dp2ddp import runtime as ddp

STAGES = [(64, 3), (128, 4), (256, 6), (512, 3)]  # channels and blocks of ResNet-50's stages
SIZE, BATCH = 64, 2  # pixels, images a rank: small, so that a comparison counts for more


class Block(nn.Module):
    """A bottleneck."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            *(nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)),
        )
        same = channels == out
        self.short = nn.Identity() if same else nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.body(x) + self.short(x)).relu()


def network() -> nn.Module:
    """About 25 million parameters."""
    layers, channels = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
    for width, count in STAGES:
        for place in range(count):
            layers.append(Block(channels, width, 2 if place == 0 else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def main(rounds: int) -> None:
    torch.manual_seed(0)
    model = ddp.DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.randn(BATCH, 3, SIZE, SIZE), torch.randint(1000, (BATCH,))
    seconds: dict[str, list[float]] = {"plain": [], "compared": []}
    for number in range(-2, rounds):
        for name in order(list(seconds), number):
            model._watch._passes = 0 if name == "compared" else 3
            began = time.perf_counter()
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            if number >= 0:
                seconds[name].append(time.perf_counter() - began)
    if ddp.is_main_process():
        print(json.dumps(seconds))


if __name__ == "__main__":
    ddp.init()
    main(int(sys.argv[1]))
