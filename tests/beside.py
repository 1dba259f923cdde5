"""A program with a distributed branch beside DataParallel; and how one is made where the wraps stand one after the other."""

from __future__ import annotations

PROGRAM = """\
import argparse

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--spread", action="store_true")
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()
    print(args)
    args.several = args.nodes > 1 or args.spread
    if args.spread:
        mp.spawn(worker, nprocs=2, args=(args,))
    else:
        worker(-1, args)


def wrapped(model, several, device):
    if several:
        model.to(device)
        model = nn.parallel.DistributedDataParallel(model)
    elif device.type == "cuda":
        model = nn.DataParallel(model).cuda()
    return model


def worker(index, args):
    torch.manual_seed(3)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if index >= 0 and device.type == "cuda":
        device = torch.device(f"cuda:{index}")
    if args.several:
        dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29500", world_size=2, rank=index)
        print("joined")
    model = wrapped(nn.Linear(8, 2), args.several, device)
    data = TensorDataset(torch.randn(60, 8), torch.randint(2, (60,)))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    for epoch in range(2):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
            loss.backward()
            optimizer.step()
        if args.several:
            dist.barrier()
        print("epoch", epoch)


if __name__ == "__main__":
    main()
"""

SEQUENTIAL = [
    ("    parser.add_argument(\"--spread\", action=\"store_true\")\n", '    parser.add_argument("--local_rank", type=int, default=-1)\n'),
    ("    args.several = args.nodes > 1 or args.spread\n    if args.spread:\n        mp.spawn(worker, nprocs=2, args=(args,))\n    else:\n        worker(-1, args)\n",
     "    if args.local_rank == -1 or args.nodes == 0:\n        args.n_gpu = torch.cuda.device_count()\n    else:\n"
     "        torch.cuda.set_device(args.local_rank)\n        args.n_gpu = 1\n    worker(args.local_rank, args)\n"),
    (PROGRAM[PROGRAM.index("def wrapped") : PROGRAM.index("def worker")],
     "def wrapped(model, args):\n    if args.n_gpu > 1:\n        model = nn.DataParallel(model)\n"
     "    if args.local_rank != -1:\n        model = nn.parallel.DistributedDataParallel(model)\n    return model\n\n\n"),
    ("args.several, device)", "args)"),
    ("    if args.several:\n        dist.init", "    if args.local_rank not in [-1, 7]:\n        dist.init"),
    ("        if args.several:\n            dist.barrier()\n        print", "        if args.local_rank == 0:\n            dist.barrier()\n        if args.local_rank in [-1, 0]:\n            print"),
]  # fmt: skip
