"""``share``: whole batches, each loaded once; to the last bit those of one process, and ended cleanly."""

import os
import signal
import time
from pathlib import Path

import jobs
import pytest
from jobs import write
from torch.utils.data import DataLoader

from dp2ddp import runtime as ddp

CASES = Path(__file__).with_name("share_cases.py")


@pytest.mark.sample("kinds-2")
@pytest.mark.parametrize("processes", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "cases", ["kinds", "streams ends own", "failures attributes loads file_system pinned"]
)
def test_cases(lab, processes, cases):
    run = lab.run(CASES, cases.split(), processes=processes, recorded=False, timeout=150).ok()
    assert run.printed.split("\n")[:-1] == [f"ok {case}" for case in cases.split()]


@pytest.mark.slow
def test_workers_that_import_the_script_again(tmp_path):
    result = jobs.run([CASES, "spawned"], tmp_path, limit=120)
    assert result.out == "ok spawned\n" and not result.left, result.err


def test_alone_it_is_the_loader():
    loader = DataLoader(range(4), num_workers=1)
    assert ddp.share(loader) is loader and type(loader) is DataLoader


LOOP = """
import signal, threading
import random
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self):
        return 4000
    def __getitem__(self, index):
        return torch.full((5000,), index), os.getpid()

def main(do):
    loader = ddp.share(DataLoader(Data(), batch_size=4, num_workers=4, shuffle=True))
    rank = ddp.get_rank()
    for number, (batch, pids) in enumerate(loader):
        total = ddp.sum(batch[0, 0])
        if number == 5:
            do(rank, pids[0].item())
        time.sleep(0.01)
    print("all of it", flush=True)

def kill(rank, pid):
    ddp.barrier()
    if rank == 0:
        os.kill(pid, signal.SIGKILL)
def leave(rank, pid):
    if rank == 1:
        sys.exit(0)
def fail(rank, pid):
    if rank == 1:
        raise ZeroDivisionError("of rank 1")
def stay(rank, pid):
    print("here", os.getpid(), flush=True)
def wander(rank, pid):
    if rank == 1:
        torch.manual_seed(99)
    for _ in ddp.share(DataLoader(Data(), batch_size=4, num_workers=2, shuffle=True)):
        pass

ddp.launch(main, globals()[sys.argv[1]])
"""


def shared_memory():
    """What a job might leave; its sockets have no files, and end with its processes."""
    return set(os.listdir("/dev/shm"))


def left(before):
    """The shared memory that is still there after a few seconds: that of other tests' jobs comes and goes."""
    kept, end = shared_memory() - before, time.monotonic() + 15
    while kept and time.monotonic() < end:
        time.sleep(0.1)
        kept &= shared_memory()
    return kept


def ended(folder, what, **more):
    before = shared_memory()
    result = jobs.run([write(folder, LOOP), what], folder, **more)
    assert not result.left and "all of it" not in result.out
    assert not left(before)
    return result


@pytest.mark.slow
def test_a_worker_that_is_killed_ends_the_job(tmp_path):
    result = ended(tmp_path, "kill")
    assert result.code == 1 and result.seconds < 40
    assert "DataLoader worker" in result.err and result.err.count("Traceback (most recent call last)") < 3


def test_a_rank_that_fails_or_leaves_ends_the_job_and_is_named(tmp_path):
    result = ended(tmp_path, "fail")
    assert (
        result.code == 1
        and "ZeroDivisionError: of rank 1" in result.err
        and "exited unexpectedly" not in result.err
    )
    result = ended(tmp_path, "leave")
    assert result.code == 1 and "rank 1 has ended, but rank 0" in result.err


def test_ranks_that_draw_other_samples_are_told(tmp_path):
    result = ended(tmp_path, "wander")
    assert result.code == 1 and "ranks draw different samples" in result.err


@pytest.mark.sample("rank")
@pytest.mark.parametrize("whom", ["rank", "all"])
def test_killed_ranks_leave_nothing(tmp_path, whom):
    before = shared_memory()
    process = jobs.start([write(tmp_path, LOOP), "stay"], tmp_path)
    ranks = [int(jobs.line(process).split()[1]) for _ in range(2)]
    if whom == "rank":
        os.kill(ranks[0], signal.SIGKILL)
    else:
        for pid in jobs.alive(process.mark):
            jobs.end(pid)
    result = jobs.finish(process)
    assert result.code == (137 if whom == "rank" else -9) and not result.left
    assert not left(before)
