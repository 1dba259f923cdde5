"""Run as a rank: what a shared loader hands out, against what the plain loader does in this process alone."""

from __future__ import annotations

import copy
import gc
import itertools
import os
import pickle
import random
import sys
import time
from collections import namedtuple
from dataclasses import dataclass

import numpy
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)

from dp2ddp import runtime as ddp

Pair = namedtuple("Pair", "index rest")


@dataclass
class Own:
    rows: list
    words: list


class Noisy(Dataset):
    """Samples with all kinds of random numbers in them, and what a worker knows of itself."""

    def __init__(self, count=23):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        told = get_worker_info()
        image = torch.randn(3, 5) + index
        noise = numpy.random.rand(4)
        return {"image": image, "rest": (noise, random.random(), [told.id, told.num_workers, told.seed])}


class Plain(Noisy):
    def __getitem__(self, index):
        return Pair(index, torch.full((2,), index))


class Stream(IterableDataset):
    """Each worker has another number of samples."""

    def __init__(self, lengths=(7, 2, 11, 0)):
        self.lengths = lengths

    def __iter__(self):
        worker = get_worker_info()
        for number in range(self.lengths[worker.id]):
            yield torch.randn(2) + 100 * worker.id + number


class Broken(Plain):
    def __getitem__(self, index):
        if index == 13:
            raise LookupError(f"sample {index}")
        return super().__getitem__(index)


class Batches(Noisy):
    """Makes its batches itself, all of them out of one memory."""

    def __init__(self):
        super().__init__(9)
        self.memory = torch.arange(90.0).reshape(9, 10)

    def __getitem__(self, index):
        return self.memory[index]


def odd(samples):
    """A batch of many kinds of things, some of them large."""
    numbers = torch.stack([sample.rest for sample in samples]).float()
    base = torch.arange(12.0)
    return Own(
        [numbers, base[:6], base[6:], torch.empty(0), numbers.to_sparse(), torch.tensor(3), numbers.bool()],
        [
            "word" * 3000,
            numpy.arange(5000),
            {1: b"x" * 20000},
            [torch.full((1,), i) for i in range(450)],
            None,
        ],
    )


def seed_again(worker):
    random.seed(worker)


def flat(value):
    """A value, so that equal ones are equal to the last bit."""
    if isinstance(value, torch.Tensor):
        value = value.to_dense()
        return (
            value.dtype,
            tuple(value.shape),
            bytes(value.reshape(-1).view(torch.uint8).numpy()),
            value.stride(),
        )
    if isinstance(value, numpy.ndarray):
        return value.dtype, value.tolist()
    if isinstance(value, dict):
        return {key: flat(it) for key, it in value.items()}
    if isinstance(value, list | tuple):
        return [type(value), *map(flat, value)]
    return flat(list(vars(value).values())) if isinstance(value, Own) else value


def epochs(loader, count=2, first=None):
    """What some epochs hand out, as many batches as ``first`` says of all but the last, and what is drawn next."""
    torch.manual_seed(5), random.seed(6), numpy.random.seed(7)
    found = []
    for epoch in range(count):
        limit = first if epoch < count - 1 else None
        found.append([flat(batch) for batch in itertools.islice(loader, limit)])
    return found, torch.rand(3).tolist(), random.random()


def same(make, count=2, first=None):
    wanted = epochs(make(), count, first)
    shared = ddp.share(make())
    assert epochs(shared, count, first) == wanted
    return wanted


def kinds():
    """Samplers, collate functions, numbers of workers, data sets."""
    for workers in (1, 2, 5):
        same(lambda: DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=workers))  # noqa: B023
    weighted = WeightedRandomSampler([1.0] * 23, 31)
    for more in (
        {"batch_size": 3, "drop_last": True, "worker_init_fn": seed_again, "prefetch_factor": 5},
        {"batch_size": 3, "sampler": weighted, "generator": torch.Generator()},
        {"batch_sampler": BatchSampler(RandomSampler(range(23)), 5, False)},
        {"batch_size": None, "sampler": RandomSampler(range(9))},
        {"batch_size": 30},
        {"batch_size": 4, "timeout": 30},
    ):
        seeded = more.get("generator")

        def make(more=more, seeded=seeded):
            if seeded is not None:
                seeded.manual_seed(3)
            return DataLoader(Noisy(), num_workers=3, **more)

        same(make)
    same(lambda: DataLoader(Plain(), batch_size=6, num_workers=2, collate_fn=odd), count=1)
    same(lambda: DataLoader(Batches(), batch_size=None, num_workers=2))
    same(lambda: DataLoader(Plain(0), batch_size=6, num_workers=2))


def streams():
    """Iterable data sets, whose workers end one after the other: in one order, whatever comes first."""
    orders = []
    for lengths in ((7, 2, 11, 0), (4, 4, 4, 4), (0, 0, 0, 1)):
        for persists in (False, True):
            loader = ddp.share(
                DataLoader(Stream(lengths), batch_size=2, num_workers=4, persistent_workers=persists)
            )
            orders.append(epochs(loader))
            assert [len(epoch) for epoch in orders[-1][0]] == [sum(-(-n // 2) for n in lengths)] * 2
    assert ddp.gather(pickle.dumps(orders)) == [pickle.dumps(orders)] * ddp.get_world_size()
    same(lambda: DataLoader(Stream((4, 4)), batch_size=2, num_workers=2))


def ends():
    """Loops that are left, workers that live on, several loaders at once."""
    for persists in (False, True):
        more = {"batch_size": 2, "num_workers": 3, "shuffle": True, "persistent_workers": persists}
        for first in (1, 3, None):
            same(lambda: DataLoader(Noisy(), **more), 4, first)  # noqa: B023
    one, other = (ddp.share(DataLoader(Plain(n), batch_size=2, num_workers=2)) for n in (9, 23))
    assert len(list(zip(one, other, strict=False))) == 5
    first, second = iter(one), iter(one)
    assert [flat(next(first)) for _ in range(2)] == [flat(next(second)) for _ in range(2)]
    del first, second
    for _ in range(3):  # made anew
        made = ddp.share(DataLoader(Plain(9), batch_size=2, num_workers=2))
        assert next(iter(made)).index.tolist() == [0, 1]


def own():
    """What a rank does to a batch stays in it; batches outlive their loader."""
    loader = ddp.share(DataLoader(Plain(), batch_size=4, num_workers=2))
    kept = []
    for number, batch in enumerate(loader):
        batch.rest.mul_(2)
        if ddp.get_rank() == 0:
            batch.index.zero_()
        kept.append(batch)
        ddp.barrier()
        rows = list(range(4 * number, min(4 * number + 4, 23)))
        assert batch.rest[:, 0].tolist() == [2 * row for row in rows]
        assert batch.index.tolist() == ([0] * len(rows) if ddp.get_rank() == 0 else rows)
    del loader
    gc.collect()
    assert [batch.rest[0, 0].item() for batch in kept] == [8 * number for number in range(6)]
    kept[0].rest.share_memory_()
    assert kept[0].rest[1, 0] == 2


def failures():
    """What a worker raises, every rank does; the loop after it is as torch's."""
    for persists in (False, True):
        loader = ddp.share(DataLoader(Broken(), batch_size=2, num_workers=3, persistent_workers=persists))
        for _ in range(2):
            iterator, seen = iter(loader), 0
            try:
                for _ in iterator:
                    seen += 1
            except LookupError as error:
                assert "sample 13" in str(error) and "worker process 0" in str(error), error
            assert seen == 6 and len(list(iterator)) == 5


def attributes():
    """It is the loader that it was."""
    plain = DataLoader(Plain(), batch_size=4, num_workers=2)
    sampler = plain.sampler
    loader = ddp.share(plain)
    assert loader is plain and ddp.share(loader) is plain and isinstance(loader, DataLoader)
    assert (
        len(loader) == 6 and loader.sampler is sampler and loader.num_workers == 2 and loader.batch_size == 4
    )
    assert type(loader).__name__ == "DataLoader"
    copied = copy.copy(loader)
    assert [flat(batch) for batch in copied] == [flat(batch) for batch in loader]
    assert type(pickle.loads(pickle.dumps(loader))) is DataLoader
    loader.num_workers = 0
    assert [batch.index.tolist() for batch in loader][1] == [4, 5, 6, 7]
    loader.num_workers = 1
    assert [batch.index.tolist() for batch in loader][1] == [4, 5, 6, 7]

    class Mine(DataLoader):
        def __len__(self):
            return 3

        def __iter__(self):
            return itertools.islice(super().__iter__(), 3)

    mine = ddp.share(Mine(Plain(), batch_size=2, num_workers=2))
    assert len(mine) == 3 and len(list(mine)) == 3 and isinstance(mine, Mine)
    try:
        ddp.share([1, 2])
    except TypeError as error:
        assert "list" in str(error)
    else:
        raise AssertionError("a list")
    divided = ddp.shard(ddp.share(DataLoader(Plain(24), batch_size=6, num_workers=2)))
    rows = sum(ddp.gather([batch.index.tolist() for batch in divided]), [])
    assert sorted(sum(rows, [])) == list(range(24))


def loads():
    """How many workers there are on the machine, and how often a sample is loaded."""
    loader = ddp.share(DataLoader(Counted(), batch_size=2, num_workers=4))
    for batch in loader:
        pids = batch[:, 1].tolist()
    del pids
    told = [set(batch[:, 1].tolist()) for batch in loader]
    assert len(set.union(*told)) == 4, told
    alike = ddp.gather([batch[:, 1].tolist() for batch in loader])
    assert all(it == alike[0] for it in alike)


class Counted(Noisy):
    def __getitem__(self, index):
        return torch.tensor([index, os.getpid()])


def file_system():
    """The other way in which torch's workers share memory."""
    torch.multiprocessing.set_sharing_strategy("file_system")
    before = len(os.listdir("/dev/shm"))
    same(lambda: DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=2))
    gc.collect()
    ddp.barrier()
    time.sleep(0.3)
    assert len(os.listdir("/dev/shm")) <= before
    torch.multiprocessing.set_sharing_strategy("file_descriptor")


def spawned():
    """Workers that import the script again."""
    same(lambda: DataLoader(Plain(), batch_size=6, num_workers=2, multiprocessing_context="spawn"), count=1)


def pinned():
    """torch's thread that pins memory, without the GPU for which it would."""
    fixed, own = torch.accelerator, torch.Tensor.pin_memory
    fakes = {
        "is_available": lambda: True,
        "current_accelerator": lambda: torch.device("meta"),
        "current_device_index": lambda: 0,
        "set_device_index": lambda _: None,
    }
    kept = {name: getattr(fixed, name) for name in fakes}
    torch.Tensor.pin_memory = lambda tensor, *_: tensor.clone()
    try:
        for name, fake in fakes.items():
            setattr(fixed, name, fake)
        for persists in (False, True):
            more = {"pin_memory": True, "num_workers": 3, "persistent_workers": persists, "shuffle": True}
            for first in (1, 4, None):
                same(lambda: DataLoader(Noisy(), batch_size=2, **more), 3, first)  # noqa: B023
        seen = []
        try:
            for batch in ddp.share(DataLoader(Broken(), batch_size=2, pin_memory=True, num_workers=2)):
                seen.append(batch)
        except LookupError:
            assert len(seen) == 6
    finally:
        for name, function in kept.items():
            setattr(fixed, name, function)
        torch.Tensor.pin_memory = own


if __name__ == "__main__":
    ddp.init()
    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        globals()[name]()
        ddp.barrier()
        ddp.print("ok", name, flush=True)
