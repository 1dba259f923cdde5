"""Random numbers of each rank's own, for its samples; outside of that all ranks draw alike."""

import functools
import pickle
import random
import sys

import numpy
import pytest
import torch
from jobs import write
from torch.utils.data import DataLoader, TensorDataset

from dp2ddp import runtime as ddp
from dp2ddp.runtime import held, streams

HEAD = """
import copy, json, random
import numpy
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler
torch.manual_seed(3); random.seed(3); numpy.random.seed(3)
ddp.init()
rank = ddp.get_rank()

def shared():
    return [torch.rand(1).item(), random.random(), numpy.random.rand()]

def gathered(value):
    found = [None] * ddp.get_world_size()
    dist.all_gather_object(found, value)
    return found

def apart(value):
    found = [set(it) for it in gathered(value)]
    assert all(found) and len(set.union(*found)) == sum(map(len, found)), found

def alike(value):
    found = gathered(value)
    assert all(it == found[0] for it in found), found
"""
CASES = {
    "a seed for a while": """
        # as an evaluation does that is to draw the same each time: training goes on where it was
        draw = lambda: ddp.local_random(torch.randn)(4).tolist()
        found = [draw()]
        shared()
        evaluated = []
        for _ in range(3):
            state = torch.get_rng_state()
            torch.manual_seed(777)
            evaluated += [draw()]
            torch.set_rng_state(state)
            found += [draw()]
        apart(sum(found, []))
        assert len(set(sum(found, []))) == 16 and evaluated[0] == evaluated[1] == evaluated[2], (found, evaluated)
        apart(sum(evaluated, []))
    """,
    "functions": """
        noise = torch.empty(50 + rank)
        for draw in (lambda: ddp.local_random(torch.randn)(4 + rank).tolist(),
                     lambda: ddp.local_random(numpy.random.rand)(4 + rank).tolist(),
                     lambda: [ddp.local_random(random.random)() for _ in range(4 + rank)],
                     lambda: ddp.local_random(noise.normal_)(0, 2).tolist(),
                     lambda: ddp.local_random(nn.Dropout(0.5))(torch.arange(1.0, 2000.0) + 5000 * rank).tolist()[:0] or [rank]):
            apart(draw() + draw())
            alike(shared())
        failing = ddp.local_random(lambda: torch.rand(1) and torch.rand(1, 2) @ torch.rand(1, 2))
        try:
            failing()
        except RuntimeError:
            alike(shared())
    """,
    "a stream in a stream": """
        def both():
            return [torch.rand(1).item(), ddp.local_random(torch.rand)(1).item()]
        apart(ddp.local_random(both)() + ddp.local_random(torch.rand)(3).tolist())
        alike(shared())
    """,
    "another seed begins other streams": """
        first = ddp.local_random(torch.rand)(3).tolist()
        torch.manual_seed(4)
        apart(first + ddp.local_random(torch.rand)(3).tolist())
        torch.manual_seed(3)
        assert ddp.local_random(torch.rand)(3).tolist() == first
    """,
    "forwards of parts that differ in size": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.line, self.seen = nn.Linear(1, 1), []
            def forward(self, x):
                self.seen[:] = torch.rand(len(x)).tolist() + numpy.random.rand(len(x)).tolist() + [random.random()]
                return self.line(x) * torch.nn.functional.dropout(torch.ones(len(x), 1))
        model = ddp.DistributedDataParallel(Net())
        for other in (model, copy.deepcopy(model)):
            numbers = []
            for _ in range(3):
                other(torch.ones(3 + rank, 1)).sum().backward()
                numbers += other.module.seen
                alike(shared())
            apart(numbers)
        model.eval()
        with torch.no_grad():  # every rank evaluates the same
            model(torch.ones(3, 1))
        alike(model.module.seen)
        alike(shared())
    """,
    "forwards that are computed once more": """
        from torch.utils.checkpoint import checkpoint
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.line = nn.Linear(4, 4)
            def forward(self, x):
                masks.append(nn.functional.dropout(torch.ones(40)).tolist())
                return self.line(x) * sum(masks[-1])
        masks = []
        for wrapper in (ddp.DistributedDataParallel, ddp.DataParallel):
            for reentrant in (False, True):
                model, seen = wrapper(Net()), set()
                for step in range(3):
                    masks.clear()
                    x = torch.ones(4, 4, requires_grad=True)
                    first, second = (checkpoint(model, x, use_reentrant=reentrant) for _ in range(2))
                    (first.sum() + 2 * second.sum()).backward()
                    assert masks[3:1:-1] == masks[:2] and masks[0] != masks[1]
                    seen |= set(map(str, masks))
                    alike(shared())
                assert len(seen) == 6
                apart(seen)
    """,
    "generators that a data set holds": """
        class Noise:
            def __init__(self):
                self.own = [numpy.random.default_rng(5), numpy.random.RandomState(5)]
                self.more = {"python": random.Random(5), "torch": torch.Generator().manual_seed(5)}
            def __call__(self):
                return [self.own[0].random(), self.own[1].rand(), self.more["python"].random(),
                        torch.rand(1, generator=self.more["torch"], dtype=torch.float64).item()]
        class Own(Dataset):
            def __init__(self):
                self.transform = Noise()
            def __len__(self):
                return 8
            def __getitem__(self, index):
                return torch.tensor(self.transform(), dtype=torch.float64)
        for make in (lambda data, **options: DataLoader(data, sampler=DistributedSampler(data), **options),
                     lambda data, **options: ddp.shard(DataLoader(data, batch_size=4, **options))):
            for workers in (0, 1):
                data, seen = Own(), []
                loader = make(data, num_workers=workers)
                for epoch in range(2 - workers):  # torch's workers begin each epoch with the same copy
                    seen += [number for batch in loader for number in batch.flatten().tolist()]
                apart(seen)
                alike(data.transform())
                alike(shared())
    """,
    "generators that the code of a data set names": """
        of_module, of_numpy = random.Random(5), numpy.random.default_rng(5)
        def noise():
            return of_numpy.random()
        class Own(Dataset):
            of_class = numpy.random.RandomState(5)
            def __init__(self):
                self.order = list(range(8))
                of_module.shuffle(self.order)
            def __len__(self):
                return 8
            def __getitem__(self, index):
                return torch.tensor([of_module.random(), self.of_class.rand()], dtype=torch.float64)
        def together(samples):
            return torch.cat([*samples, torch.tensor([noise()], dtype=torch.float64)])
        for make in (lambda data, **options: DataLoader(data, sampler=DistributedSampler(data), **options),
                     lambda data, **options: ddp.shard(DataLoader(data, batch_size=4, **options))):
            for workers in (0, 2):
                seen = []
                for epoch in range(2):
                    data = Own()
                    alike(data.order)
                    loader = make(data, num_workers=workers, collate_fn=together)
                    drawn = [number for batch in loader for number in batch.tolist()]
                    apart(drawn)
                    alike([of_module.random(), of_numpy.random(), data.of_class.rand()])
                alike(shared())
    """,
    "a generator of the loader's own": """
        data = TensorDataset(torch.arange(8.0))
        own = torch.Generator().manual_seed(7)
        loader = DataLoader(data, sampler=DistributedSampler(data), generator=own, num_workers=1,
                            collate_fn=lambda samples: torch.rand(2, dtype=torch.float64))
        apart([number for epoch in range(2) for batch in loader for number in batch.tolist()])
        alike(torch.rand(3, generator=own).tolist())
        alike(shared())
    """,
    "loaders that are not divided": """
        data = TensorDataset(torch.arange(8.0))
        for workers in (0, 1):
            loader = DataLoader(data, shuffle=True, num_workers=workers,
                                collate_fn=lambda samples: [float(samples[0][0]), *torch.rand(2).tolist(), random.random()])
            alike([number for batch in loader for number in batch])
            alike(shared())
    """,
}


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("case", CASES)
def test_cases(lab, tmp_path, case, processes):
    script = write(tmp_path, HEAD)
    body = "\n".join(line.removeprefix(" " * 8) for line in CASES[case].splitlines())
    script.write_text(script.read_text() + body + "\nddp.print('done')\n")
    assert lab.run(script, processes=processes, recorded=False, timeout=60).ok().printed == "done\n"


def test_alone_everything_is_as_it_was():
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    assert ddp.local_random(torch.rand) is torch.rand
    assert torch.equal(ddp.local_random(torch.rand)(3), expected)
    iterator = iter(DataLoader(TensorDataset(expected)))
    assert type(iterator._dataset_fetcher).__name__ == "_MapDatasetFetcher"


def test_states_are_put_back_as_they_were():
    """In any order of draws, of numpy's second Gaussians and of states that are set."""

    def draw(which):
        match which.randrange(6):
            case 0:
                return numpy.random.rand(which.randrange(700)).tolist()
            case 1:
                return [numpy.random.randn()]
            case 2:
                numpy.random.seed(which.randrange(9))
            case 3:
                numpy.random.set_state(numpy.random.get_state())
            case 4:
                return [random.random(), torch.rand(1).item()]
        return []

    def drawn(interrupted):
        which, aside, own = random.Random(5), random.Random(6), None
        numpy.random.seed(1), random.seed(1), torch.manual_seed(1)
        found, others = [], []
        for _ in range(400):
            found += draw(which)
            if interrupted:
                before = streams.kept()
                if own is None:
                    streams.set_states(streams.seeded(7))
                else:
                    streams.put_back(own)
                others += draw(aside)
                own = streams.kept()
                streams.put_back(before)
        return found, others

    found, others = drawn(interrupted=True)
    assert found == drawn(interrupted=False)[0]
    aside = random.Random(6)
    streams.set_states(streams.seeded(7))
    assert others == [number for _ in range(400) for number in draw(aside)]


MODULE = """
import random
import numpy as np
import torch
import drawing

of_module, of_helper, unused = random.Random(1), np.random.default_rng(1), random.Random(2)
system = random.SystemRandom()
pick = np.random.RandomState(1).randint

def helper(default=torch.Generator()):
    return [of_helper.random() for _ in range(2)], system.random(), random.random(), np.random.rand()

class Base:
    of_class = random.Random(3)
    __slots__ = ("slot",)

class Data(Base):
    def __init__(self):
        self.slot, self.crop = random.Random(4), made(random.Random(5))
    def __getitem__(self, index):
        return self.other, self.more(), drawing.inner.draw(), self.crop()
    @property
    def other(self):
        return of_module.random()
    @staticmethod
    def more():
        return helper(), pick(3)

def made(closed):
    return lambda: closed.random()
"""


def test_generators_that_code_names_are_found(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    names = ["drawn_from", "drawing", "drawing.inner"]
    (tmp_path / "drawn_from.py").write_text(MODULE)
    (tmp_path / "drawing").mkdir()
    (tmp_path / "drawing" / "__init__.py").write_text("from . import inner")
    inner = (
        "import random\nrng, unused = random.Random(6), random.Random(7)\ndef draw(): return rng.random()\n"
    )
    (tmp_path / "drawing" / "inner.py").write_text(inner)
    module = __import__("drawn_from")
    data = module.Data()
    wanted = [
        module.of_module,
        module.of_helper,
        module.pick.__self__,
        module.helper.__defaults__[0],
        data.of_class,
    ]
    wanted += [data.slot, data.crop.__closure__[0].cell_contents, module.drawing.inner.rng]
    assert {id(it.generator) for it in held.generators(data)} == {*map(id, wanted)}
    for name in names:
        monkeypatch.delitem(sys.modules, name)


def test_held_generators_are_found_and_global_ones_are_not():
    class Holder:
        pass

    data, inner = Holder(), Holder()
    data.inner, data.long = {"transforms": [inner, data]}, [random.Random() for _ in range(100)]
    inner.draw = functools.partial(random.Random(1).random)
    inner.rng, inner.torch, inner.method = numpy.random.default_rng(1), torch.Generator(), Holder.__init__
    inner.shared = [random, random.random, numpy.random, numpy.random.rand, torch.default_generator]
    inner.own = numpy.random.RandomState(numpy.random.PCG64(1))
    found = {id(it.generator) for it in held.generators(data)}
    assert found == {id(inner.rng), id(inner.torch), id(inner.own), id(inner.draw.func.__self__)}
    for it in held.generators(data):
        before = pickle.dumps(it.get())
        it.send_apart(1)
        first = pickle.dumps(it.get())
        it.set(pickle.loads(before))
        it.send_apart(2)
        assert len({before, first, pickle.dumps(it.get())}) == 3
