"""One rank of the evaluations that `evaluation` compares. Rank 0 prints the seconds that each took, round by round."""

from __future__ import annotations

import json
import sys
import time

import torch
import torch.distributed as dist
from loops import BATCH, images, network
from rounds import order
from torch.utils.data import DataLoader, Subset

from dp2ddp import runtime as ddp

COUNT = 64 * BATCH + 17


@torch.no_grad()
def count(model: torch.nn.Module, loader: DataLoader) -> tuple[int, int]:
    correct = total = 0
    for inputs, targets in loader:
        correct += (model(inputs).argmax(1) == targets).sum().item()
        total += len(targets)
    return correct, total


@torch.no_grad()
def count_whole(model: torch.nn.Module, loader: DataLoader) -> tuple[int, int]:
    correct = total = 0
    for inputs, targets in loader:
        outputs, targets = ddp.whole_batch((model(inputs), targets))
        correct += (outputs.argmax(1) == targets).sum().item()
        total += len(targets)
    return correct, total


def main(rounds: int) -> None:
    ddp.init()
    assert torch.get_num_threads() == 1
    model = ddp.DistributedDataParallel(network())
    model.eval()
    loader = DataLoader(Subset(images(), range(COUNT)), batch_size=BATCH)
    parts = ddp.shard(loader, training=False)
    evaluations = {
        "whole": lambda: count(model, loader),
        "again": lambda: count(model, loader),
        "batches": lambda: ddp.sum(count(model, ddp.shard_batches(loader))),
        "divided": lambda: count_whole(model, ddp.divide_batches(loader)),
        "parts": lambda: ddp.sum(count(model.module, parts)),
    }
    expected = count(model, loader)
    seconds: dict[str, list[float]] = {name: [] for name in evaluations}
    for number in range(-2, rounds):  # two to warm up
        for name in order(list(evaluations), number):
            dist.barrier()
            begin = time.perf_counter()
            assert evaluations[name]() == expected
            dist.barrier()
            if number >= 0:
                seconds[name].append(time.perf_counter() - begin)
    ddp.print(json.dumps(seconds))


if __name__ == "__main__":
    main(int(sys.argv[1]))
