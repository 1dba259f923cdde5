"""A script that can start its own ranks checks whether a process group exists.

With DataParallel there was no process group, now there is one: ``torch.distributed.is_initialized()`` would be true and
lead into the distributed branch. ``ddp.is_initialized()`` asks whether the script has made a group itself. Where it
does, by ``torch.distributed.init_process_group`` or ``torch.multiprocessing.spawn``, the ranks that were started for
DataParallel end, and the script continues with its own. Where it starts ranks in another way, ``ddp.stand_aside()``
says so. A process group that the DataParallel branch creates but does not use is removed: the ranks already have one.
"""

from collections.abc import Iterator

from dp2ddp.facts import Facts
from dp2ddp.plan import DropImport, Edit, Finding, Insert, Remove, Replace, finding, runtime_import

EXAMPLES = (
    """\
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--spread", action="store_true")
    args = parser.parse_args()
    print("options:", args)
    if args.spread:
        dist.init_process_group("nccl")
    model = nn.Linear(8, 2).cuda()
    if dist.is_initialized():
        model = nn.parallel.DistributedDataParallel(model)
    else:
        model = nn.DataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
    for inputs, targets in DataLoader(data, batch_size=16, shuffle=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs.cuda()), targets.cuda()).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    for place in facts.groups:
        imported = runtime_import(place.path, place.ddp)
        edit: Edit
        if place.unused:
            edits = (Remove(place.at), DropImport(place.path, place.unused))
            yield finding(
                place.at,
                "this creates a process group of one rank, which is not used",
                "removed: `ddp.init()` creates the process group",
                edits,
            )
        elif place.starts:
            edit = Insert(place.at, "{ddp}.stand_aside()", {"ddp": place.ddp})
            yield finding(
                place.at,
                "the program starts its own ranks here",
                "then dp2ddp starts none",
                (edit, imported),
            )
        else:
            edit = Replace(place.at, "{ddp}.is_initialized()", {"ddp": place.ddp})
            yield finding(
                place.at,
                "this asks for the program's own process group",
                "it no longer sees that of dp2ddp",
                (edit, imported),
            )
