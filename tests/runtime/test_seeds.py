"""Ranks that nobody seeded draw the same; what the user seeded stays."""

import subprocess
import sys

from jobs import write

DRAWS = """
import random
import numpy
{seeding}
ddp.init()
drawn = [torch.rand(1).item(), random.random(), numpy.random.rand(), ddp.shared_seed() % 1000]
split = torch.utils.data.random_split(range(100), [50, 50])[0].indices[:5]
both = ddp.gather((drawn, split))
ddp.print(both[0] == both[-1], both[0])
"""


def draws(lab, folder, seeding, processes):
    script = write(folder, DRAWS.format(seeding=seeding))
    env = {"DP2DDP_PROCESSES": "1"}
    return lab.run(script, processes=processes, recorded=False, timeout=60, env=env).ok().printed


def test_ranks_agree_where_nothing_is_seeded(lab, tmp_path):
    unseeded = "torch.seed(); random.seed(); numpy.random.seed()"  # the lab's ranks are forks of one process
    first, second = (draws(lab, tmp_path, unseeded, 2) for _ in range(2))
    assert first.startswith("True") and second.startswith("True")
    assert first != second


def test_what_is_seeded_stays(lab, tmp_path):
    seeding = "torch.manual_seed(5); random.seed(6); numpy.random.seed(7)"
    two, one = draws(lab, tmp_path, seeding, 2), draws(lab, tmp_path, seeding, 1)
    plain = "import torch, random, numpy\n" + seeding
    plain += "\nprint([torch.rand(1).item(), random.random(), numpy.random.rand(), 5])"
    expected = subprocess.run(
        [sys.executable, "-c", plain], capture_output=True, text=True, timeout=60
    ).stdout
    assert expected.strip() in two and expected.strip() in one
    assert two.startswith("True")


def test_gpus_that_nobody_seeded_are_seeded_alike(lab, tmp_path):
    body = """
torch.seed()
seeds = []
torch.cuda.manual_seed_all = seeds.append
ddp.init()
found = ddp.gather(seeds)
ddp.print(found[0] == found[1] == [torch.initial_seed()])
"""
    assert lab.run(write(tmp_path, body), processes=2, recorded=False, timeout=60).ok().printed == "True\n"


def test_workers_are_counted_over_all_ranks_where_a_loader_is_divided(lab, tmp_path):
    """A data set may seed by that number when it is first asked for a sample: each worker draws its own."""
    body = """
from torch.utils.data import DataLoader, Dataset, DistributedSampler, get_worker_info
class Numbered(Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, index):
        return torch.tensor([get_worker_info().id, get_worker_info().num_workers])
ddp.init()
def seen(loader):
    return sorted({tuple(row) for batch in loader for row in batch.tolist()})
data = Numbered()
loaders = [
    DataLoader(data, batch_size=2, num_workers=2, sampler=DistributedSampler(data)),
    ddp.shard(DataLoader(data, batch_size=4, num_workers=2)),
    DataLoader(data, batch_size=2, num_workers=2),
]
for loader in loaders:
    found = ddp.gather(seen(loader))
    ddp.print(found)
"""
    printed = lab.run(write(tmp_path, body), processes=2, recorded=False, timeout=60).ok().printed
    apart, alike = "[[(0, 4), (1, 4)], [(2, 4), (3, 4)]]\n", "[[(0, 2), (1, 2)], [(0, 2), (1, 2)]]\n"
    assert printed == 2 * apart + alike
