"""How jobs end: with the right exit code, together, soon. What ends them early is in `faults.py`."""

import pytest
from jobs import finish, line, run, start, write

from dp2ddp.runtime.data import _choices


@pytest.mark.slow
def test_exit_code_where_the_training_is_at_top_level(tmp_path):
    write(tmp_path, "ddp.init()\nif ddp.get_rank() == 1: sys.exit(3)\ndist.barrier()")
    result = run(["train.py"], tmp_path)
    assert (result.code, result.left) == (3, []), result.err
    assert "Traceback" not in result.err and result.err.endswith("dp2ddp: rank 1 failed with exit code 3\n")


@pytest.mark.slow
@pytest.mark.parametrize("wait", ["dist.barrier()", pytest.param("ddp.barrier()", marks=pytest.mark.slow)])
def test_exit_code_of_a_rank_that_is_slow_to_exit(tmp_path, wait):
    write(
        tmp_path,
        f"""
        import atexit
        atexit.register(time.sleep, 4)  # runs after the runtime's own
        ddp.init()
        if ddp.get_rank() == 1:
            sys.exit(3)
        {wait}
        """,
    )
    result = run(["train.py"], tmp_path)
    assert (result.code, result.left) == (3, []) and result.seconds < 40, result.err


def test_a_rank_that_ends_while_another_is_at_a_barrier(tmp_path):
    write(tmp_path, "ddp.init()\ndist.barrier()\nif ddp.get_rank() == 1: ddp.barrier()")
    result = run(["train.py"], tmp_path)
    assert (result.code, result.left) == (1, []), result.err
    assert result.err.count("rank 0 has ended, but rank 1 still needs it (at a barrier)") == 1, result.err


@pytest.mark.parametrize("wrong", ["--lr=abc", "--unknown"])
def test_of_wrong_arguments_only_the_program_speaks(tmp_path, wrong):
    write(
        tmp_path,
        """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--lr", type=float)
        ddp.launch(parser.parse_args)
        """,
    )
    result = run(["train.py", wrong], tmp_path, DP2DDP_OUTPUT="")
    assert (result.code, result.out, result.left) == (2, "", [])
    usage, error = result.err.splitlines()
    assert usage.startswith("usage: train.py") and error.startswith("train.py: error: "), result.err


def test_different_errors_are_all_said_the_first_with_its_traceback(tmp_path):
    write(
        tmp_path,
        """
        ddp.init()
        dist.barrier()
        if ddp.get_rank() == 1:
            time.sleep(0.3)
            raise KeyError("x")
        import atexit
        atexit.register(time.sleep, 2)
        raise ValueError("x")
        """,
    )
    result = run(["train.py"], tmp_path)
    assert result.code == 1 and result.err.count("Traceback") == 1, result.err
    assert "ValueError: x" in result.err and "rank 1 of 2 failed too: KeyError: 'x'" in result.err, result.err


@pytest.mark.slow
def test_a_rank_may_end_long_before_the_others(tmp_path):
    write(
        tmp_path,
        """
        ddp.init()
        pids = ddp.gather(os.getpid())
        if ddp.get_rank() == 0:
            time.sleep(4)
            os.kill(pids[1], 0)  # the other has waited: ranks leave together, or gloo may abort one of them
            print("saved")
        """,
    )
    result = run(["train.py"], tmp_path, DP2DDP_TIMEOUT=2)
    assert (result.code, result.out, result.err, result.left) == (0, "saved\n", "", [])


@pytest.mark.slow
def test_a_batch_that_cannot_be_divided_ends_the_job_before_training(tmp_path):
    write(tmp_path, "ddp.init()\nddp.local_batch_size(6 - 1, weighed=None)\nprint('trains')")
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


def test_a_killed_agent_leaves_no_rank_behind(tmp_path):
    write(tmp_path, "ddp.init()\nddp.print('ready', flush=True)\ntime.sleep(60)")
    process = start(["train.py"], tmp_path)
    assert line(process) == "ready\n"
    process.kill()
    assert finish(process).left == []


def test_an_end_that_is_just_being_reported_is_not_waited_for(lab, tmp_path):
    """A report is counted before it is written, perhaps over the very connection that asks."""
    body = """
    import time
    from dp2ddp.runtime import rendezvous
    def main():
        store = rendezvous.store()
        if ddp.is_main_process():
            store.add("ends", 1)
            begin = time.monotonic()
            assert rendezvous.ends(0) == [] and time.monotonic() - begin < 5
            store.set("ends/1", '{"rank": 7}')
            assert rendezvous.ends(0) == [{"rank": 7}]
            store.add("ends", -1)
        ddp.barrier()
    ddp.launch(main)
    """
    assert lab.run(write(tmp_path, body), processes=2, recorded=False, timeout=60).ok().errors == ""


def test_files_that_are_left_open_are_written_whatever_the_exit_code(tmp_path):
    write(
        tmp_path,
        """
        def main():
            global file
            file = ddp.open("numbers.txt", "w")
            file.write("1")
            ddp.barrier()
            sys.exit(3)

        ddp.launch(main)
        """,
    )
    assert run(["train.py"], tmp_path).code == 3
    assert (tmp_path / "numbers.txt").read_text() == "1"


def test_files_that_a_program_leaves_open_are_written(tmp_path):
    """Whatever outlives the interpreter: the class of a model that is trained with has the program's names."""
    write(
        tmp_path,
        """
        ddp.init()

        class Net(torch.nn.Linear):
            def forward(self, x):
                return super().forward(x)

        model = ddp.DistributedDataParallel(Net(2, 1))
        kept = ddp.open("kept.txt", "w")
        kept.write("a line\\n")
        out = model(torch.ones(4, 2))
        loss = out.mean()
        loss.backward()
        """,
    )
    result = run(["train.py"], tmp_path)
    assert result.code == 0, result.err
    assert (tmp_path / "kept.txt").read_text() == "a line\n"
