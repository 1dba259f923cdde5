"""How jobs end: the right exit code, the first error once, nobody left, soon."""

import signal
import time

import pytest
from jobs import TORCHRUN, finish, run, start, write

from dp2ddp.runtime.data import _choices

SOON = 25  # seconds for starting two processes (about 5 s on 2 free cores), the fault, and the end


def test_an_exception_is_shown_once_with_its_rank(tmp_path):
    write(
        tmp_path,
        """
        def main():
            if ddp.get_rank() == 1:
                raise ValueError("bad sample")
            dist.barrier()
        ddp.launch(main)
        """,
    )
    result = run(["train.py"], tmp_path)
    assert (result.code, result.left) == (1, []) and result.seconds < SOON
    assert result.err.count("Traceback") == 1 and result.err.count("ValueError: bad sample") == 1, result.err
    assert "on rank 1 of 2" in result.err or "rank 1 of 2 failed" in result.err
    assert result.err.rstrip().endswith("dp2ddp: rank 1 failed with exit code 1")


def test_the_same_exception_on_all_ranks_is_shown_once(tmp_path):
    write(tmp_path, "ddp.init()\nraise KeyError('x')")
    result = run(["train.py"], tmp_path)
    assert result.code == 1 and result.err.count("Traceback") == 1, result.err


def test_a_killed_rank(tmp_path):
    write(
        tmp_path,
        """
        ddp.init()
        if ddp.get_rank() == 1:
            os.kill(os.getpid(), 9)
        dist.barrier()
        """,
    )
    result = run(["train.py"], tmp_path)
    assert (result.code, result.left) == (137, []) and result.seconds < SOON
    assert result.err == "dp2ddp: rank 1 was killed by signal 9 (SIGKILL)\n"


@pytest.mark.parametrize("where", ["launch", "init"])
def test_exit_code_of_a_rank_is_the_jobs(tmp_path, where):
    main = """
def main():
    if ddp.get_rank() == 1:
        sys.exit(3)
    dist.barrier()
"""
    write(tmp_path, main + ("ddp.launch(main)" if where == "launch" else "ddp.init()\nmain()"))
    result = run(["train.py"], tmp_path)
    assert (result.code, result.left) == (3, []) and result.seconds < SOON, result.err
    assert "Traceback" not in result.err and "rank 1 failed with exit code 3" in result.err


@pytest.mark.parametrize("waits", ["dist.barrier()", "ddp.barrier()"])
def test_a_rank_that_ends_while_another_needs_it(tmp_path, waits):
    write(
        tmp_path,
        f"""
        ddp.init()
        dist.barrier()
        if ddp.get_rank() == 0:
            sys.exit(0)
        {waits}
        """,
    )
    command = ["train.py"] if waits.startswith("ddp") else [*TORCHRUN, "train.py"]
    result = run(command, tmp_path)
    assert result.code != 0 and result.left == [] and result.seconds < SOON
    assert result.err.count("rank 0 has ended, but rank 1") == 1, result.err


def test_a_rank_may_end_long_before_the_others(tmp_path):
    write(
        tmp_path,
        """
        ddp.init()
        dist.barrier()
        if ddp.get_rank() == 0:
            time.sleep(4)
            print("saved")
        """,
    )
    result = run(["train.py"], tmp_path, DP2DDP_TIMEOUT=2)
    assert (result.code, result.out, result.err, result.left) == (0, "saved\n", "", [])


def test_a_batch_that_cannot_be_divided_ends_the_job_before_training(tmp_path):
    write(tmp_path, "ddp.init()\nddp.local_batch_size(6 - 1)\nprint('trains')")
    result = run(["train.py"], tmp_path)
    assert (result.code, result.out, result.left) == (2, "", [])
    message, agent = result.err.splitlines()
    assert "a batch size of 5 can't be divided among 2 processes" in message
    assert "(1, 5)" in message and "(4 or 6)" in message
    assert "failed with exit code 2" in agent


def test_the_choices_for_a_batch_that_cannot_be_divided():
    assert "more processes than samples" in _choices(3, 8) and "(1, 3)" in _choices(3, 8)
    assert _choices(3, 8).endswith("another batch size (8)")
    assert "(1, 2, 4, 5, 10) or another batch size (96 or 104)" in _choices(100, 8)
    assert "it must be 1 or more" in _choices(0, 2)


def test_ending_the_command_ends_the_ranks(tmp_path):
    write(tmp_path, "ddp.init()\nddp.print('ready', flush=True)\ndist.barrier()\ntime.sleep(60)")
    process = start(["train.py"], tmp_path)
    assert process.stdout.readline() == "ready\n"
    begin = time.monotonic()
    process.send_signal(signal.SIGTERM)
    result = finish(process)
    assert (result.code, result.left) == (143, []) and time.monotonic() - begin < 10
    assert result.err == "dp2ddp: stopped by SIGTERM\n"


def test_a_killed_agent_leaves_no_rank_behind(tmp_path):
    write(tmp_path, "ddp.init()\nddp.print('ready', flush=True)\ntime.sleep(60)")
    process = start(["train.py"], tmp_path)
    assert process.stdout.readline() == "ready\n"
    process.kill()
    assert finish(process).left == []


@pytest.mark.slow
def test_many_ends_without_a_bad_exit(tmp_path):
    write(tmp_path, "ddp.init()\nt = torch.ones(1)\nfor _ in range(20): dist.all_reduce(t)")
    results = [run(["train.py"], tmp_path) for _ in range(30)]
    assert [(r.code, r.err) for r in results] == [(0, "")] * 30
