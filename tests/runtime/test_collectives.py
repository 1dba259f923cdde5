"""Printing, saving, waiting: two processes, one job for what can share it."""

import pytest
from jobs import TORCHRUN, run, write


def test_helpers_with_two_processes_and_a_short_timeout(lab, tmp_path):
    script = write(
        tmp_path,
        """
        try:
            ddp.sum(1)  # before the group exists
            raise AssertionError
        except RuntimeError as error:
            assert "needs the process group" in str(error)

        ddp.init()
        rank = ddp.get_rank()
        if rank == 0:
            ddp.print("only", "here", sep="-", flush=True)
            ddp.save({"rank": rank}, "conditional.pt")  # no collective: may stand under any condition
        ddp.print("once", flush=True)
        ddp.save({"rank": rank}, "saved.pt")
        ddp.barrier()
        assert torch.load("saved.pt") == {"rank": 0}

        with ddp.main_process_first():  # longer than the collectives' timeout
            assert (rank == 0) == (not os.path.exists("cache"))
            if rank == 0:
                time.sleep(2.5)
                open("cache", "w").close()
        ddp.barrier()
        begin = time.monotonic()
        if rank == 0:
            time.sleep(2.5)
        ddp.barrier()
        assert time.monotonic() - begin > 2.4

        for kind in (OSError, KeyboardInterrupt):
            ran = False
            try:
                with ddp.main_process_first():
                    ran = True
                    raise kind("disk full")
            except kind as error:  # of the same type on all ranks
                assert ran == (rank == 0) and str(error) == "disk full"
        for _ in range(3):
            with ddp.main_process_first():
                pass
            ddp.barrier()

        assert ddp.local_batch_size(6) == 3 and [ddp.local_workers(n) for n in (0, 1, 4, 5)] == [0, 1, 2, 3]

        seeds = []
        for seed in (1, 2, -1):
            torch.manual_seed(seed + rank)  # ranks differ: rank 0's counts
            seeds.append(ddp.shared_seed())
            torch.Generator().manual_seed(seeds[-1] + 1000)
        assert seeds[:2] == [1, 2] and 0 <= seeds[2] < 2**63 and len(set(ddp.gather(str(seeds)))) == 1
        """,
    )
    env = {"DP2DDP_TIMEOUT": "2"}
    result = lab.run(script, processes=2, folder=tmp_path, recorded=False, timeout=60, env=env).ok()
    assert (result.printed, result.errors) == ("only-here\nonce\n", "")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache", "conditional.pt", "saved.pt", "train.py"]


def test_what_rank_0_draws_first_is_drawn_by_all(lab, tmp_path):
    """A cache that is made of random numbers where it is missing: who finds it goes on with those after them."""
    text = """
        import random
        import numpy as np

        ddp.init()
        rank = ddp.get_rank()

        def seed():
            random.seed(3), np.random.seed(3), torch.manual_seed(3)

        def drawn():
            return random.random(), np.random.randn(), torch.rand(()).item()

        def made(here):
            with ddp.main_process_first():
                if here:
                    drawn()

        seed()
        one, two = drawn(), drawn()
        for here, expected in ((rank == 0, two), (True, two), (False, one), (rank > 0, one), (rank == 2, one)):
            seed()
            made(here)
            assert drawn() == expected, (rank, here)
        """
    script = write(tmp_path, text)
    lab.run(script, processes=3, recorded=False, timeout=60).ok()
    env = 'os.environ |= {"LOCAL_RANK": str(rank % 2), "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": str(rank // 2)}'
    begin = f'import os\n        rank = int(os.environ["RANK"])\n        {env}\n'
    script = write(tmp_path, f"        {begin}{text}")
    lab.run(script, launcher="warm torchrun", processes=4, recorded=False, timeout=60).ok()


def test_a_group_that_the_program_made_is_used_as_it_is(tmp_path):
    write(
        tmp_path,
        """
        dist.init_process_group("gloo")
        def main():
            with ddp.main_process_first():
                pass
            ddp.barrier()
            return ddp.sum(ddp.get_rank()), ddp.shared_seed() == ddp.sum(0) + torch.initial_seed()
        torch.manual_seed(3)
        assert ddp.launch(main) == (1, True)
        ddp.barrier()
        dist.destroy_process_group()
        """,
    )
    result = run([*TORCHRUN, "train.py"], tmp_path)
    assert (result.code, result.left) == (0, []) and "Error" not in result.err, result.err


def test_two_machines_rank_0_then_each_machines_first_then_all(lab, tmp_path):
    """Four ranks that believe to be on two machines."""
    script = write(
        tmp_path,
        """
        from dp2ddp.runtime import places

        rank = int(os.environ["RANK"])
        os.environ |= {"LOCAL_RANK": str(rank % 2), "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": str(rank // 2)}
        places.start(dict(os.environ))  # as if the process had been started with it
        ddp.init()
        with ddp.main_process_first():
            begin = time.monotonic()
            time.sleep(0.3)
            end = time.monotonic()
        times = ddp.gather((begin, end))
        assert times[1][0] >= times[0][1] and times[2][0] >= times[0][1] and times[3][0] >= times[2][1]
        assert ddp.local_workers(3) == 2 and ddp.local_batch_size(8) == 2

        for failing, told in ((2, [3]), (0, [1, 2, 3])):  # a machine's first, and the first of all
            try:
                with ddp.main_process_first():
                    if rank == failing:
                        raise OSError("disk full")
                text = "none"
            except OSError as error:
                text = str(error)
            assert text == ("disk full" if rank in (failing, *told) else "none"), text
        """,
    )
    lab.run(script, launcher="warm torchrun", processes=4, recorded=False, timeout=60).ok()


@pytest.mark.slow
def test_what_needs_all_ranks_within_main_process_first(tmp_path):
    """What can be done by one rank after the other is; what can't is said, where it would wait for ever."""
    write(
        tmp_path,
        """
        from torch.utils.data import DataLoader
        def loaded(workers):
            loader = ddp.share(DataLoader(torch.arange(6.0), batch_size=2, shuffle=True, num_workers=workers))
            return [batch.tolist() for batch in loader]
        def main():
            torch.manual_seed(0)
            with ddp.main_process_first():
                found = loaded(2), loaded(0)
                ddp.barrier()
                found += (ddp.from_main_process(ddp.get_rank() + 7), ddp.shared_seed() == torch.initial_seed())
            found += (loaded(2), torch.rand(1).item())
            assert all(it == found for it in ddp.gather(found)), found
            begun = iter(ddp.share(DataLoader(range(100), num_workers=2)))
            model = ddp.DataParallel(torch.nn.Linear(2, 1))
            calls = lambda: list(begun), lambda: ddp.sum(1), lambda: model(torch.ones(4, 2))
            for call in calls[int(os.environ["DP2DDP_DEBUG"]) :]:
                try:
                    with ddp.main_process_first():
                        call()
                except RuntimeError as error:
                    assert "is inside main_process_first()" in str(error), error
                else:
                    raise AssertionError(call)
            ddp.print("done", ddp.sum(1))
        ddp.launch(main)
        """,
    )
    for debug in (0, 1):
        result = run(["train.py"], tmp_path, DP2DDP_DEBUG=debug, limit=50)
        assert (result.code, result.left, result.out) == (0, [], "done 2\n"), result.err


def test_an_exception_that_nobody_handles_ends_all_ranks(tmp_path):
    write(
        tmp_path,
        """
        def main():
            with ddp.main_process_first():
                if ddp.get_rank() == 0:
                    raise OSError("disk full")
                print("ran")
        ddp.launch(main)
        """,
    )
    result = run(["train.py"], tmp_path)
    assert (result.code, result.out, result.left) == (1, "", []) and result.seconds < 25
    assert result.err.count("Traceback") == 1 and result.err.count("OSError: disk full") == 1, result.err
    assert "failed too" not in result.err


@pytest.mark.slow
def test_a_save_that_takes_three_times_the_timeout(tmp_path):
    script = write(
        tmp_path,
        """
        class Slow:
            def __reduce__(self):
                time.sleep(15)
                return list, ()

        ddp.init()
        begin = time.monotonic()
        ddp.save([Slow()], "model.pt")
        ddp.barrier()
        assert time.monotonic() - begin > 14.5
        assert torch.load("model.pt", weights_only=False) == [[]]
        with ddp.main_process_first():
            if ddp.get_rank() == 0:
                time.sleep(15)
        assert time.monotonic() - begin > 29.5 and ddp.sum(1) == 2
        """,
    )
    result = run([script], tmp_path, DP2DDP_TIMEOUT=5)
    assert (result.code, result.err, result.left) == (0, "", [])
