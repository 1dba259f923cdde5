"""Run as a rank: what a sharded loader deals, against what the plain loader draws in this process alone."""

from __future__ import annotations

import copy
import json
import math
import random
import sys
import threading
from collections import namedtuple
from queue import Queue

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)

from dp2ddp import runtime as ddp
from dp2ddp.runtime import dealing, parts
from dp2ddp.runtime.shard import positions

try:
    import numpy
except ImportError:
    numpy = None

EPOCHS = 3
Pair = namedtuple("Pair", "index rest")


class Samples(torch.utils.data.Dataset):
    """Samples that are their own indices."""

    def __init__(self, count=23):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.as_tensor(index)


class Groups(Samples):
    """Indexed by lists."""

    def __getitem__(self, indices):
        return torch.tensor(indices)


class Nested(Samples):
    def __getitem__(self, index):
        return {"index": index, "more": [Pair(torch.full((2,), index), f"name {index}")]}


class Augmented(Samples):
    """With random numbers of every kind."""

    def __getitem__(self, index):
        more = [float(numpy.random.rand())] if numpy else []
        return torch.tensor([index, torch.rand(()).item(), random.random(), *more], dtype=torch.double)


# Samplers


class Custom(Sampler):
    def __init__(self, count=23):
        self.count = count

    def __len__(self):
        return self.count


class Eager(Custom):
    """Draws when the iterator is made."""

    def __iter__(self):
        return iter(torch.randperm(self.count).tolist())


class Shuffled(Custom):
    """Draws once an epoch, from Python's generator, and counts its epochs."""

    epochs = 0

    def __iter__(self):
        order = list(range(self.count))
        random.shuffle(order)
        yield from order
        self.epochs += 1


class Lazy(Custom):
    """Draws each index when it is needed, from every generator."""

    def __iter__(self):
        for _ in range(self.count):
            number = random.randrange(10**6) + int(torch.randint(10**6, ()))
            number += int(numpy.random.randint(10**6)) if numpy else 0
            yield number % self.count


class Private(Custom):
    """Draws from a generator of its own that nobody can seed."""

    def __iter__(self):
        yield from random.Random(str(id(self)) + str(random.SystemRandom().random())).sample(
            range(self.count), self.count
        )


class Buckets(Custom):
    """Batches of very different sizes."""

    def __iter__(self):
        order = torch.randperm(23).tolist()
        sizes = [1, 7, 2, 5, 8]
        random.shuffle(sizes)
        for size in sizes:
            yield [order.pop() for _ in range(size)]

    def __len__(self):
        return 5


class Tensors(Custom):
    """Batches as tensors."""

    def __iter__(self):
        yield from torch.randperm(23).split(5)

    def __len__(self):
        return 5


class Sets(Custom):
    def __iter__(self):
        yield {3, 4, 5}
        yield {index: None for index in (8, 6, 7)}

    def __len__(self):
        return 2


class Adaptive(Custom):
    """Follows what its process has seen of the training."""

    seen = 0

    def __iter__(self):
        for index in range(self.count):
            yield (index + self.seen) % self.count


class Broken(Custom):
    def __iter__(self):
        yield from range(7)
        raise LookupError("no more samples")


# Loaders


class Signed(DataLoader):
    """With a signature of its own."""

    def __init__(self, count, *, each):
        super().__init__(Samples(count), each, shuffle=True)
        self.each = each


class Doubling(DataLoader):
    """Changes its batches."""

    def __iter__(self):
        for batch in super().__iter__():
            yield 2 * batch


class Skipping(DataLoader):
    """Leaves out its first two batches, as when a run is resumed."""

    def __iter__(self):
        for number, batch in enumerate(super().__iter__()):
            if number >= 2:
                yield batch


class Halving(DataLoader):
    """Hands out each batch in two pieces."""

    def __iter__(self):
        for batch in super().__iter__():
            yield from batch.tensor_split(2)


class Ahead(DataLoader):
    """Draws in a thread, some batches ahead."""

    def __iter__(self):
        queue = Queue(2)
        batches = super().__iter__()

        def fill():
            for batch in batches:
                queue.put(batch)
            queue.put(None)

        threading.Thread(target=fill, daemon=True).start()
        return iter(queue.get, None)


class Itself(DataLoader):
    """Its own iterator, one batch ahead; changes its batches."""

    def __iter__(self):
        self.source = super().__iter__()
        self.following = next(self.source, None)
        return self

    def __next__(self):
        batch = self.following
        if batch is None:
            raise StopIteration
        self.following = next(self.source, None)
        return 2 * batch


class Endless:
    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from iter(self.sampler)


class Infinite(DataLoader):
    """Keeps one iterator for all epochs, made with the loader."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "batch_sampler", Endless(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self):
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)


class Alone(DataLoader):
    """Does without torch's iterators."""

    def __iter__(self):
        for indices in self.batch_sampler:
            yield self.collate_fn([self.dataset[index] for index in indices])


# Streams


class Stream(IterableDataset):
    """Shuffled in a buffer; each worker reads its part."""

    def __init__(self, count=23):
        self.count = count

    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        left = list(range(first, self.count, step))
        while left:
            yield torch.tensor([left.pop(random.randrange(len(left))), torch.rand(()).item()])


class Counted(Stream):
    def __len__(self):
        return self.count


# What is compared


def seed(number=7):
    random.seed(number)
    torch.manual_seed(number)
    if numpy:
        numpy.random.seed(number)


def draw_something(amount):
    for _ in range(amount):
        torch.rand(1), random.random()
        if numpy:
            numpy.random.rand()


def states():
    own = numpy.random.get_state()[1].tolist() if numpy else None
    return torch.get_rng_state().tolist(), random.getstate(), own


def listed(batch):
    """A batch as something that can be compared."""
    if isinstance(batch, torch.Tensor):
        return batch.tolist()
    if isinstance(batch, dict):
        return {key: listed(value) for key, value in batch.items()}
    return [listed(item) for item in batch] if isinstance(batch, list | tuple) else batch


def epochs(loader, drift=0, count=EPOCHS):
    """What ``loader`` hands out; ``drift``: how much else this rank draws before each batch and after each epoch."""
    drawn = []
    for _ in range(count):
        batches = []
        for batch in loader:
            batches.append(listed(batch))
            draw_something(drift)
        drawn.append(batches)
        draw_something(drift)
    return drawn


def chunk(samples, training=True):
    """This rank's part of a list, and its stand-in where it has none."""
    rank, world = ddp.get_rank(), ddp.get_world_size()
    chunks = [part.tolist() for part in torch.arange(len(samples)).chunk(world)]
    if rank < len(chunks):
        return [samples[i] for i in chunks[rank]]
    return [samples[i] for i in chunks[0]] if training else None


def parts_of(drawn, training=True):
    dealt = [[chunk(batch, training) for batch in batches] for batches in drawn]
    return [[batch for batch in batches if batch is not None] for batches in dealt]


def compare(name, make, drift=False):
    """The sharded loader deals this rank its chunks of what the plain one draws, and leaves the same random state."""
    seed()
    plain = make()
    count = 2 if plain.num_workers else EPOCHS
    drawn = epochs(plain, count=count)
    after = states()
    for training in (True,) if plain.num_workers else (True, False):
        seed()
        loader = ddp.shard(make(), training)
        # rank 0 draws nothing else: the order is then the plain loader's, wherever the others' generators are
        got = epochs(loader, drift=3 * ddp.get_rank() if drift else 0, count=count)
        wanted = parts_of(drawn, training)
        assert got == wanted, f"{name}, training={training}:\n{got}\n{wanted}\n{drawn}"
        if not drift:
            assert states() == after, f"{name}: the generators are elsewhere"
        assert isinstance(loader, type(plain)) and type(loader.dataset) is type(plain.dataset), name
        assert (loader.batch_size, loader.drop_last) == (plain.batch_size, plain.drop_last), name
        assert type(loader.sampler) is type(plain.sampler), name
        assert type(loader.batch_sampler) is type(plain.batch_sampler), name
        if hasattr(plain.dataset, "__len__"):
            assert len(loader) == len(plain), name


def collate_lengths(samples):
    return len(samples), torch.stack(samples)


def mapped(**options):
    workers = options.get("num_workers", 0)
    data = options.pop("data", None) or Samples()
    kind = options.pop("kind", DataLoader)
    if workers:
        options.setdefault("multiprocessing_context", "fork")
    return lambda: kind(
        data, **{name: value() if isinstance(value, type) else value for name, value in options.items()}
    )


MAPPED = {
    "shuffle": mapped(batch_size=5, shuffle=True),
    "one sample each": mapped(shuffle=True),
    "fewer than ranks at the end": mapped(batch_size=11, shuffle=True),
    "sequential": mapped(batch_size=5),
    "drop_last": mapped(batch_size=5, shuffle=True, drop_last=True),
    "weighted": mapped(batch_size=5, sampler=WeightedRandomSampler([1.0, 2.0, 3.0] * 6, 23)),
    "subset": mapped(batch_size=4, sampler=SubsetRandomSampler([3, 5, 7, 9, 11, 13])),
    "with replacement": mapped(
        batch_size=5, sampler=RandomSampler(Samples(), replacement=True, num_samples=40)
    ),
    "more than the data": mapped(batch_size=5, sampler=RandomSampler(Samples(), num_samples=50)),
    "list as sampler": mapped(batch_size=3, sampler=[4, 2, 9, 1]),
    "eager": mapped(batch_size=5, sampler=Eager),
    "Python's generator": mapped(batch_size=5, sampler=Shuffled),
    "lazy": mapped(batch_size=5, sampler=Lazy),
    "batch sampler": mapped(batch_sampler=Buckets),
    "batches as tensors": mapped(batch_sampler=Tensors),
    "batches as sets": mapped(batch_sampler=Sets),
    "list of batches": mapped(batch_sampler=[[1, 2, 3], [4], [5, 6, 7, 8, 9]]),
    "torch's batch sampler": mapped(batch_sampler=BatchSampler(Eager(), 4, True)),
    "lists of indices": mapped(
        data=Groups(), batch_size=None, sampler=BatchSampler(RandomSampler(Samples()), 6, False)
    ),
    "derived loader": lambda: Signed(23, each=4),
    "workers": mapped(batch_size=5, shuffle=True, num_workers=2),
    "workers, lazy": mapped(batch_size=2, sampler=Lazy, num_workers=1),
    "persistent workers": mapped(batch_size=5, shuffle=True, num_workers=2, persistent_workers=True),
    "persistent workers, eager": mapped(batch_size=5, sampler=Eager, num_workers=1, persistent_workers=True),
    "thread": mapped(kind=Ahead, batch_size=5, shuffle=True),
    "its own iterator": mapped(kind=Itself, batch_size=5, sampler=Shuffled),
}
STREAMS = {
    "stream": mapped(data=Stream(), batch_size=5),
    "stream, drop_last": mapped(data=Stream(), batch_size=5, drop_last=True),
    "stream of known length": mapped(data=Counted(), batch_size=11),
    "stream, workers": mapped(data=Stream(), batch_size=5, num_workers=2),
    "stream, persistent workers": mapped(
        data=Counted(), batch_size=5, num_workers=2, persistent_workers=True
    ),
}


def case_order():
    for name, make in MAPPED.items():
        compare(name, make)


def case_drift():
    for name in (
        "shuffle",
        "weighted",
        "eager",
        "Python's generator",
        "lazy",
        "batch sampler",
        "workers, lazy",
    ):
        compare(name, MAPPED[name], drift=True)
    for name in ("stream", "stream, workers"):
        compare(name, STREAMS[name], drift=True)


def case_streams():
    for name, make in STREAMS.items():
        compare(name, make)


def case_batches():
    """What a batch is made of."""

    def index_only(drawn, training):
        return parts_of([[batch["index"] for batch in batches] for batches in drawn], training)

    seed()
    plain = epochs(DataLoader(Nested(), 5, shuffle=True))
    seed()
    loader = ddp.shard(DataLoader(Nested(), 5, shuffle=True))
    got = epochs(loader)
    assert [[batch["index"] for batch in batches] for batches in got] == index_only(plain, True)
    for batches in got:
        for batch in batches:
            [[pairs, names]] = batch["more"]
            assert pairs == [[index] * 2 for index in batch["index"]]
            assert names == [f"name {index}" for index in batch["index"]]
    for options in ({}, {"num_workers": 1, "multiprocessing_context": "fork"}):
        loader = ddp.shard(DataLoader(Samples(), 5, collate_fn=collate_lengths, **options))
        assert [length for length, _ in loader] == [len(chunk(range(n))) for n in (5, 5, 5, 5, 3)]
        assert loader.collate_fn is collate_lengths
    stream = ddp.shard(DataLoader(Stream(), 5, collate_fn=collate_lengths))
    assert [length for length, _ in stream] == [len(chunk(range(n))) for n in (5, 5, 5, 5, 3)]
    assert stream.collate_fn is collate_lengths


def case_own_iterators():
    """Loaders whose class iterates itself: what each batch weighs, and where its samples stand."""
    world = ddp.get_world_size()

    def weights(loader, count=1):
        return [[parts.weight(batch) for batch in loader] for _ in range(count)]

    def expected(totals):
        sizes = [len(chunk(range(n), training=False) or []) for n in totals]
        return [world * size / total for size, total in zip(sizes, totals, strict=True)]

    totals = [5, 5, 5, 5, 3]
    data = Samples()
    assert weights(ddp.shard(DataLoader(data, 5))) == [expected(totals)]
    assert weights(ddp.shard(DataLoader(data, 5, num_workers=1, multiprocessing_context="fork"))) == [
        expected(totals)
    ]
    assert weights(ddp.shard(DataLoader(Stream(), 5))) == [expected(totals)]
    assert weights(ddp.shard(Doubling(data, 5))) == [expected(totals)]
    assert weights(ddp.shard(Ahead(data, 5))) == [expected(totals)]
    assert weights(ddp.shard(Itself(data, 5))) == [expected(totals)]
    left = ddp.shard(Itself(data, 5, num_workers=1, multiprocessing_context="fork", persistent_workers=True))
    for _ in range(2):
        next(iter(left))
    assert weights(left) == [expected(totals)]
    assert weights(ddp.shard(Infinite(data, 5)), 2) == [expected(totals)] * 2
    assert weights(ddp.shard(Halving(data, 5))) == [[w for w in expected(totals) for _ in range(2)]]
    skipping = ddp.shard(Skipping(data, 5))
    assert weights(skipping) == [expected(totals[2:])]
    assert [len(places) for places in positions(skipping)] == [
        sum(
            len(part)
            for part in map(lambda n: torch.arange(n).chunk(world)[r : r + 1], totals[2:])
            for part in part
        )
        for r in range(world)
    ]

    seed()
    workers = {"num_workers": 2, "multiprocessing_context": "fork"}
    infinite = ddp.shard(Infinite(data, 5, shuffle=True, **workers))
    for drawn in epochs(infinite):
        whole = [x for batches in zip(*ddp.gather(drawn), strict=True) for batch in batches for x in batch]
        assert sorted(whole) == list(range(23)), whole
    assert infinite.batch_sampler.sampler.sampler is not None and len(infinite) == 5
    try:
        list(ddp.shard(Alone(data, 5)))
    except TypeError as error:
        assert "Alone over Samples" in str(error) and "super().__iter__()" in str(error)
    else:
        raise AssertionError("Alone was divided")


def case_rank_0():
    """Orders that only rank 0 knows."""
    loader = ddp.shard(DataLoader(Samples(), 5, sampler=Private()))
    drawn = epochs(loader)
    for batches in drawn:
        whole = [x for batches in zip(*ddp.gather(batches), strict=True) for batch in batches for x in batch]
        assert sorted(whole) == list(range(23)), whole
    assert drawn[0] != drawn[1] != drawn[2]

    sampler = Adaptive()
    loader = ddp.shard(DataLoader(Samples(), 5, sampler=sampler))
    got = []
    for batch in loader:
        sampler.seen = ddp.get_rank()
        got += ddp.gather(batch.tolist())
    assert sorted(x for batch in got for x in batch) == list(range(23)), got

    sampler = Shuffled()
    for _ in range(2):
        list(ddp.shard(DataLoader(Samples(), 1, sampler=sampler)))
    assert sampler.epochs == 2  # on every rank

    # generators of its own, in another state on each rank
    own = torch.Generator().manual_seed(ddp.get_rank())
    drawn = epochs(ddp.shard(DataLoader(Samples(), 6, shuffle=True, generator=own)))
    for batches in drawn:
        whole = [x for batches in zip(*ddp.gather(batches), strict=True) for batch in batches for x in batch]
        assert sorted(whole) == list(range(23)), whole
    own = torch.Generator().manual_seed(0)
    plain = epochs(DataLoader(Samples(), 6, shuffle=True, generator=own))
    assert drawn == parts_of(plain)

    try:
        list(ddp.shard(DataLoader(Samples(), 5, sampler=Broken())))
    except Exception as error:
        kind = LookupError if ddp.is_main_process() else RuntimeError
        assert type(error) is kind and "no more samples" in str(error), error
    else:
        raise AssertionError("the sampler's error is lost")

    # left early: what was told and not read is forgotten, and the next epoch is whole
    loader = ddp.shard(
        DataLoader(Samples(), 5, sampler=Lazy(), num_workers=1, multiprocessing_context="fork")
    )
    for _ in range(3):
        next(iter(loader))
    seed()
    got = epochs(loader)
    seed()
    assert got == parts_of(epochs(DataLoader(Samples(), 5, sampler=Lazy())))

    # a loader that has been iterated before, and whose workers live on
    used = DataLoader(
        Samples(),
        5,
        sampler=Shuffled(),
        num_workers=1,
        multiprocessing_context="fork",
        persistent_workers=True,
    )
    list(used)
    if hasattr(used, "in_order"):
        used.in_order = False
    loader = ddp.shard(used)
    seed()
    got = epochs(loader, count=2)
    seed()
    assert got == parts_of(epochs(used, count=2))
    assert getattr(loader, "in_order", True)

    # the same with one that is left early
    next(iter(loader))
    dealt = [parts.weight(batch) for batch in loader]
    assert [len(list(places)) for places in positions(loader)] == [
        sum(len(range(total)[dealing.chunk(total, rank, ddp.get_world_size())]) for total in (5, 5, 5, 5, 3))
        for rank in range(ddp.get_world_size())
    ]
    assert dealt[0] == dealt[3] and (dealt[0] != dealt[4] or ddp.get_world_size() == 1)

    # a stream's generator, in another state on each rank
    workers = {"num_workers": 1, "multiprocessing_context": "fork"}
    own = torch.Generator().manual_seed(ddp.get_rank())
    drawn = epochs(ddp.shard(DataLoader(Stream(), 6, generator=own, **workers)), count=1)
    own = torch.Generator().manual_seed(0)
    assert drawn == parts_of(epochs(DataLoader(Stream(), 6, generator=own, **workers), count=1))

    # more workers on one rank than on the others, in step with them
    workers = {
        "num_workers": 2 * ddp.get_rank(),
        "multiprocessing_context": "fork" if ddp.get_rank() else None,
    }
    for batch in ddp.shard(DataLoader(Samples(60), 3, sampler=Lazy(60), **workers)):
        ddp.sum(len(batch))


def case_workers():
    """Augmentations differ between ranks; those of a stream are the plain loader's."""
    noted = []

    def note(worker):
        info = get_worker_info()
        info.dataset.count = 1000 + info.seed % 1000
        noted.append(worker)

    class Seeds(Samples):
        def __getitem__(self, index):
            return torch.tensor([get_worker_info().seed, index, self.count])

    options = {"num_workers": 2, "multiprocessing_context": "fork"}
    for extra in ({}, {"generator": torch.Generator().manual_seed(3)}):
        loader = ddp.shard(DataLoader(Seeds(), 6, worker_init_fn=note, **options, **extra))
        for _ in range(2):
            rows = [row for batch in loader for row in batch.tolist()]
            assert all(count == 1000 + number % 1000 for number, _, count in rows)
            seeds = ddp.gather({number for number, _, _ in rows})
            assert sum(map(len, seeds)) == len(set().union(*seeds)) == 2 * ddp.get_world_size()

    seed()
    drawn = epochs(ddp.shard(DataLoader(Augmented(), 6, shuffle=True, **options)), count=2)
    values = [value for batches in drawn for batch in batches for row in batch for value in row[1:]]
    every = [value for own in ddp.gather(values) for value in own]
    assert len(set(every)) == len(every)


def case_sizes():
    """The parts, their weights, and the positions of the samples."""
    rank, world = ddp.get_rank(), ddp.get_world_size()
    for total in (1, 2, 4, 9, 10):
        for training in (True, False):
            loader = ddp.shard(DataLoader(Samples(10), total), training)
            dealt = [parts.weight(batch, training=training) for batch in loader]
            places = positions(loader)
            assert sorted(p for own in places for p in own if p is not None) == list(range(10))
            mine = [index for batch in loader for index in batch.tolist()]
            assert len(mine) == len(places[rank])
            assert all(p is None or p == index for p, index in zip(places[rank], mine, strict=True))
            assert training or None not in places[rank]
            assert ddp.gather([10 * index for index in mine], samples_of=loader) == list(range(0, 100, 10))
            if training:
                averages = [sum(weights) / world for weights in zip(*ddp.gather(dealt), strict=True)]
                assert torch.allclose(torch.tensor(averages), torch.ones(len(averages))), averages
    # torch's own
    from torch.utils.data import DistributedSampler

    for drop in (False, True):
        for count in (10, 1, 12):
            sampler = DistributedSampler(Samples(count), shuffle=False, drop_last=drop)
            loader = DataLoader(Samples(count), 2, sampler=sampler, drop_last=drop)
            mine = [index for batch in loader for index in batch.tolist()]
            places = positions(loader)
            assert [len(p) for p in places] == [len(mine)] * world
            assert all(p is None or p == index for p, index in zip(places[rank], mine, strict=True))
            kept = sorted(p for row in places for p in row if p is not None)
            assert kept == (list(range(len(kept))) if drop else list(range(count)))


def case_epochs():
    """``set_epoch``."""

    class Told(Shuffled):
        epoch = None

        def set_epoch(self, epoch):
            self.epoch = epoch

    class ToldSamples(Samples):
        epoch = None

        def set_epoch(self, epoch):
            self.epoch = epoch

    makers = {
        "shuffle": mapped(batch_size=5, shuffle=True),
        "own generator": lambda: DataLoader(Samples(), 5, shuffle=True, generator=torch.Generator()),
        "lazy": mapped(batch_size=5, sampler=Lazy),
        "workers": mapped(batch_size=5, shuffle=True, num_workers=2),
        "stream": mapped(data=Stream(), batch_size=5),
        "stream, workers": mapped(data=Stream(), batch_size=5, num_workers=2),
        "data set that is told": mapped(data=ToldSamples(), batch_size=5, shuffle=True),
    }
    for name, make in makers.items():
        seed()
        loader = ddp.shard(make())
        whole = []
        for epoch in range(4):
            loader.set_epoch(epoch)
            draw_something(1 + ddp.get_rank())
            whole += epochs(loader, drift=ddp.get_rank(), count=1)
        assert all(whole[i] != whole[j] for i in range(4) for j in range(i)), name
        seed()
        resumed = ddp.shard(make())
        resumed.set_epoch(2)
        assert epochs(resumed, count=2) == whole[2:], name
        seed(8)
        other = ddp.shard(make())
        other.set_epoch(2)
        assert epochs(other, count=1) != whole[2:3], name
        if hasattr(loader.dataset, "epoch"):
            assert loader.dataset.epoch == 2
    loader = ddp.shard(DataLoader(Samples(), 5, sampler=Told()))
    seed()
    loader.set_epoch(4)
    assert loader.sampler.epoch == 4
    got = epochs(loader, count=1)
    seed()
    assert got == parts_of(epochs(DataLoader(Samples(), 5, sampler=Shuffled()), count=1))


def case_numbered():
    """Print what all ranks draw together, for comparison with other numbers of processes."""
    orders = {}
    for name in (
        "shuffle",
        "lazy",
        "batch sampler",
        "workers",
        "stream",
        "stream, workers",
        "persistent workers",
    ):
        seed(5)
        loader = ddp.shard((MAPPED | STREAMS)[name](), training=False)
        if name != "shuffle":
            list(loader)
        draw_something(ddp.get_rank())
        loader.set_epoch(3)
        drawn = ddp.gather([x for batch in loader for x in batch.tolist()], samples_of=loader)
        again = ddp.gather([x for batch in loader for x in batch.tolist()], samples_of=loader)
        orders[name] = [drawn, again]
    ddp.print(json.dumps(orders), flush=True)


def case_keys():
    """What ranks tell each other is taken away again."""
    store = torch.distributed.distributed_c10d._get_default_store()
    loader = ddp.shard(DataLoader(Samples(60), 2, sampler=Lazy(60)))
    list(loader)
    ddp.barrier()
    keys = store.num_keys()
    for _ in range(10):
        next(iter(loader))
    list(loader)
    ddp.barrier()
    assert store.num_keys() < keys + 6, (keys, store.num_keys())


def case_weights():
    """Which part a batch is, with several loaders."""
    world = ddp.get_world_size()
    first = ddp.shard(DataLoader(Samples(10), 5))
    second = ddp.shard(DataLoader(Samples(8), 8))

    def expected(total):
        return world * len(chunk(range(total), training=False) or []) / total

    def cant_be_told(values):
        try:
            parts.weight(values)
        except RuntimeError as error:
            assert f"shape {list(values.shape)}, which can't be assigned" in str(error), error
        else:
            raise AssertionError("a guess")

    for batch in second:
        assert parts.weight(batch) == expected(8)
    for _ in ddp.shard(DataLoader(Samples(3), 1), training=False):
        assert parts.weight(training=False) == expected(8)  # evaluation weighs nothing
    for one in first:
        assert parts.weight() == expected(5)
        other = next(iter(second))
        assert parts.weight(other) == expected(8)
        assert parts.weight(one) == expected(5)
        for batch in second:
            assert parts.weight(batch) == expected(8)
        assert parts.weight(one.repeat(9)) == expected(5)
    for batch in second:  # the loop over the first has ended
        assert parts.weight(batch.repeat(7)) == expected(8)
    next(iter(first))
    for batch in second:  # the loop over the first was left
        assert parts.weight(batch.repeat(7)) == expected(8)
    for _ in range(2):  # a loop that draws one batch ahead, as those do that copy to the GPU meanwhile
        weights, source = [], iter(first)
        following = next(source)
        while following is not None:
            batch, following = following, next(source, None)
            weights += [parts.weight(batch)] * 2
        assert weights == [expected(5)] * 4
    uneven = ddp.shard(DataLoader(Samples(13), 5))
    for _ in range(2):
        weights, source = [], iter(uneven)
        following = next(source)
        while following is not None:
            batch, following = following, next(source, None)
            weights.append(parts.weight(batch))
        assert weights == [expected(5), expected(5), expected(3)]
        assert [parts.weight(batch) for batch in uneven] == weights
    pairs = zip(ddp.shard(DataLoader(Samples(2), 2)), ddp.shard(DataLoader(Samples(9), 9)), strict=True)
    for one, other in pairs:
        assert (parts.weight(one), parts.weight(other)) == (expected(2), expected(9))
    totals = [5, 5, 3]
    for left_out in (1, 2):  # a loop that begins later, as one does that is resumed
        source = iter(uneven)
        for _ in range(left_out):
            next(source)
        assert [parts.weight(batch) for batch in source] == [expected(n) for n in totals[left_out:]]
    batches = list(uneven)
    assert [parts.weight(batch) for batch in batches] == [expected(n) for n in totals]
    cant_be_told(torch.zeros(0))
    # after its end: other rows are something else, unless none have been trained on before
    uneven = ddp.shard(DataLoader(Samples(13), 5))
    for batch in uneven:
        parts.weight(batch)
    assert parts.weight(batch) == expected(3)
    assert parts.weight(torch.zeros(1001), training=False) == expected(3)
    assert parts.weight(torch.zeros(1001)) == 1
    assert parts.weight(torch.zeros(3)) == 1
    iter(uneven)  # nothing is drawn yet
    assert parts.weight(torch.zeros(1001)) == 1
    # one ahead, in other forms: time before samples, several rows for a sample
    big, small = 4 * world, 2 * world - 1
    forms = [
        lambda n: torch.zeros(n),
        lambda n: torch.zeros(6, n),
        lambda n: torch.zeros(12 * n),
        lambda n: torch.zeros(n, 2),
    ]
    for form in forms:
        weights, source = [], iter(ddp.shard(DataLoader(Samples(big + small), big)))
        following = next(source)
        while following is not None:
            batch, following = following, next(source, None)
            weights.append(parts.weight(form(len(batch))))
        assert weights == [expected(big), expected(small)], (form(1).shape, weights)
    batches = list(
        ddp.shard(DataLoader(Samples(big + small), big))
    )  # in evaluation mode the ranks don't talk
    if len(batches[0]) != len(batches[1]):
        assert [parts.weight(batch, training=False) for batch in batches] == [expected(big), expected(small)]
    if len(batches[1]) > 1:
        assert math.isnan(parts.weight(torch.zeros(1001), training=False))
    batch = next(iter(uneven))  # that of a loop that was left counts until another is drawn
    assert parts.weight(torch.zeros(1001)) == expected(5)
    for _ in ddp.shard(DataLoader(Samples(7), 7)):
        assert parts.weight(batch) == expected(5) and parts.weight(torch.zeros(1001)) == expected(7)
    for _, _ in zip(uneven, ddp.shard(DataLoader(Samples(21), 7)), strict=True):
        if world > 1:
            cant_be_told(torch.zeros(0))
            break


def case_ways():
    """Uneven last batches, kept in a list or with time before samples, in training mode or not; and evaluated."""
    torch.manual_seed(0)
    data = torch.randn(13, 6, 3).double()
    module = torch.nn.Linear(3, 1).double()
    alone, model = copy.deepcopy(module), ddp.DistributedDataParallel(module)

    def batches(collate, is_sharded, training=True):
        loader = DataLoader(data, 8, collate_fn=collate)
        return ddp.shard(loader, training=training) if is_sharded else loader

    def close(one, other):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)

    for collate in (torch.stack, lambda samples: torch.stack(samples, 1)):
        for training in (True, False):
            model.train(training)
            for own, whole in zip(list(batches(collate, True)), batches(collate, False), strict=True):
                for net, batch in ((model, own), (alone, whole)):
                    net.zero_grad()
                    net(batch).square().mean().backward()
                close(module.weight.grad, alone.weight.grad)
    with torch.no_grad():
        for training in (True, False):
            for own, whole in zip(batches(None, True, training), batches(None, False), strict=True):
                close(ddp.batch_loss(model(own).square().mean()), alone(whole).square().mean())
                tokens = ddp.whole_batch(own.repeat_interleave(6, 0))
                close(tokens, whole.repeat_interleave(6, 0))


def case_refusals():
    class NumReplicas(Custom):
        num_replicas = 2

        def __iter__(self):
            yield from range(4)

    from torch.utils.data import DistributedSampler
    from torch.utils.data.datapipes.iter import IterableWrapper

    data = Samples()
    refused = [
        (TypeError, [[1, 2], [3]], ("DataLoader", "list")),
        (ValueError, DataLoader(data, 4, sampler=DistributedSampler(data)), ("DistributedSampler",)),
        (ValueError, DataLoader(data, 4, sampler=NumReplicas()), ("NumReplicas", "DataLoader over Samples")),
        (ValueError, DataLoader(data, batch_sampler=BatchSampler(NumReplicas(), 2, False)), ("NumReplicas",)),
        (ValueError, DataLoader(data, None), ("batch_size=None", "Samples")),
        (ValueError, DataLoader(Stream(), None), ("batch_size=None", "Stream")),
        (ValueError, DataLoader(IterableWrapper(range(4)), 2), ("data pipes",)),
    ]
    for kind, loader, words in refused:
        try:
            ddp.shard(loader)
        except kind as error:
            assert all(word in str(error) for word in words) and "\n" not in str(error), error
        else:
            raise AssertionError(f"{loader} was divided")
    try:
        list(ddp.shard(DataLoader(data, None, sampler=Eager())))
    except TypeError as error:
        assert "Eager" in str(error) and "int" in str(error)
    else:
        raise AssertionError("single indices were divided")
    try:
        positions(DataLoader(data))
    except ValueError as error:
        assert "DataLoader over Samples" in str(error)
    else:
        raise AssertionError("a plain loader has positions")
    again = ddp.shard(ddp.shard(DataLoader(data, 4)), training=False)
    own = [index for batch in again for index in batch.tolist()]
    assert sorted(index for indices in ddp.gather(own) for index in indices) == list(range(23))


CASES = {
    name.removeprefix("case_"): value for name, value in list(globals().items()) if name.startswith("case_")
}

if __name__ == "__main__":
    ddp.init()
    torch.set_num_threads(1)
    for wanted in sys.argv[1:] or CASES:
        CASES[wanted]()
        ddp.print("ok", wanted, flush=True)
