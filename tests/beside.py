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
    ("    parser.add_argument(\"--spread\", action=\"store_true\")\n", '    parser.add_argument("--local_rank", type=int, default=-1)\n    parser.add_argument("--single", action="store_true")\n'),
    ("    args.several = args.nodes > 1 or args.spread\n    if args.spread:\n        mp.spawn(worker, nprocs=2, args=(args,))\n    else:\n        worker(-1, args)\n",
     "    if args.local_rank == -1 or args.single:\n        args.n_gpu = torch.cuda.device_count()\n    else:\n"
     "        torch.cuda.set_device(args.local_rank)\n        args.n_gpu = 1\n    worker(args.local_rank, args)\n"),
    (PROGRAM[PROGRAM.index("def wrapped") : PROGRAM.index("def worker")],
     "def wrapped(model, args):\n    if args.n_gpu > 1:\n        model = nn.DataParallel(model)\n"
     "    if args.local_rank != -1:\n        model = nn.parallel.DistributedDataParallel(model)\n    return model\n\n\n"),
    ("args.several, device)", "args)"),
    ("    if args.several:\n        dist.init", "    if args.local_rank not in [-1, 7]:\n        dist.init"),
    ("        if args.several:\n            dist.barrier()\n        print", "        if args.local_rank == 0:\n            dist.barrier()\n        if args.local_rank in [-1, 0]:\n            print"),
]  # fmt: skip

# apex's own ranks in place of torch's, started by a launcher that tells them in the environment who they are.
APEX_RANKS = """\
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU())
        self.head = nn.Linear(6, 2)
        self.pooler = nn.Linear(6, 6)

    def forward(self, inputs):
        return self.head(self.features(inputs))


def wrapped(model, args):
    if args.several:
        try:
            from apex.parallel import DistributedDataParallel as DDP
        except ImportError:
            raise ImportError("Please install apex to use distributed training.")

        model = DDP(model)
    elif args.n_gpu > 1:
        model = nn.DataParallel(model)
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--several", action="store_true")
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()
    rank = 0
    if args.several:
        dist.init_process_group("gloo")
        rank = dist.get_rank()
        args.n_gpu = 1
    else:
        args.n_gpu = torch.cuda.device_count()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(3)
    data = TensorDataset(torch.randn(60, 8), torch.randint(2, (60,)))
    if args.several:
        sampler = DistributedSampler(data)
        torch.manual_seed(rank)
    else:
        sampler = None
    model = wrapped(Net().to(device), args)
    loader = DataLoader(data, batch_size=16 // (2 if args.several else 1), shuffle=sampler is None, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    for epoch in range(2):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
            loss.backward()
            optimizer.step()
    torch.save(model.state_dict(), f"weights{rank}.pt")


if __name__ == "__main__":
    main()
"""

# What chooses the branch is set in the file itself, and its ranks are torchrun's.
SETTING = """\
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

if __name__ == "__main__":
    distributed = False
    synced = False
    torch.manual_seed(3)
    if distributed:
        dist.init_process_group("gloo")
        local_rank = int(os.environ["LOCAL_RANK"])
    else:
        local_rank = 0
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    if synced and distributed:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    trained = model.train().to(device)
    if distributed:
        trained = nn.parallel.DistributedDataParallel(trained)
    else:
        trained = nn.DataParallel(trained)
    data = TensorDataset(torch.randn(60, 8), torch.randint(2, (60,)))
    size, sampler = 16, None
    if distributed:
        sampler = DistributedSampler(data, shuffle=True)
        size = size // dist.get_world_size()
    loader = DataLoader(data, batch_size=size, shuffle=sampler is None, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        if distributed:
            sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(trained(inputs.to(device)), targets.to(device))
            loss.backward()
            optimizer.step()
        if local_rank == 0:
            torch.save(model.state_dict(), "model.pt")
    print(sum(it.sum().item() for it in model.parameters()))
    if distributed:
        dist.barrier()
        dist.destroy_process_group()
"""

# An option chooses the branch, another one whether there are several GPUs at all. A call that is no part of the options
# comes first, so that both are known after the start only.
COUNTED = """\
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_flush_denormal(True)


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--spread", action="store_true")
    parser.add_argument("--gpus", type=int, default=2)
    return parser.parse_args()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, inputs, targets):
        return {"losses": ((self.layer(inputs) - targets) ** 2).mean().unsqueeze(0)}


def main():
    args = options()
    print("options", args)
    if args.spread:
        dist.init_process_group("gloo")
    torch.manual_seed(3)
    data = TensorDataset(torch.randn(40, 4), torch.randn(40, 1))
    model = Net()
    if args.gpus > 1:
        if args.spread:
            model = nn.parallel.DistributedDataParallel(model)
        else:
            model = nn.DataParallel(model)
    loader = DataLoader(data, batch_size=8, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for inputs, targets in loader:
            loss = sum(model(inputs, targets)["losses"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, round(loss.item(), 6))
    torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
"""
