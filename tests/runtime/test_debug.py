"""With DP2DDP_DEBUG=1, a collective on some ranks only is an error that names lines and ranks, and not a hang."""

import pytest
from jobs import run, write

DEBUG = """
os.environ["DP2DDP_TIMEOUT"] = "2"
ddp.init()
rank, world = ddp.get_rank(), ddp.get_world_size()
lines = open(__file__).read().splitlines()

def at(mark):
    return "train.py:" + str(1 + [line.endswith("# " + mark) for line in lines].index(True))

def error(call):
    begin = time.monotonic()
    try:
        call()
    except RuntimeError as error:
        return str(error), time.monotonic() - begin
    raise AssertionError("no error")

# what is right goes on as without it, though rank 0 works longer than the time limit
ones = torch.ones(2, requires_grad=True)
for i in range(3):
    slow = 2.3 if (rank, i) == (0, 1) else 0
    with ddp.main_process_first():
        with ddp.main_process_first():  # the others come here when this rank has left both
            time.sleep(slow)
    assert ddp.sum(1) == world and ddp.mean(rank) == (world - 1) / 2 and len(ddp.gather(1)) == world
    assert len(ddp.whole_batch(ones)) == 2 * world and ddp.batch_loss(ones.sum()) == 2
    ddp.shared_seed()
    time.sleep(slow)
    ddp.barrier()
keys = dist.distributed_c10d._get_default_store().num_keys()
for _ in range(50):
    ddp.sum(1)
ddp.barrier()
assert dist.distributed_c10d._get_default_store().num_keys() < keys + 10  # what was said is taken away again

# a training step, and one that a rank is late for
model = ddp.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)))
def step(before):
    before()
    model(torch.ones(2, 2)).sum().backward()  # G
for _ in range(3):
    step(lambda: None)
text, seconds = error(lambda: step((lambda: ddp.sum(1)) if rank == 0 else (lambda: None)))  # H
assert f"sum() at {at('H')}" in text and f"the broadcast of the buffers of Sequential at {at('G')}" in text, text
assert seconds < 1.9

# another collective
if rank == 0:
    text, seconds = error(lambda: ddp.sum(1))  # A
    assert text.startswith(f"rank 0 calls sum() at {at('A')}, which needs every rank, but "), text
    assert f"rank 1 is at gather() at {at('B')}" in text, text
else:
    text, seconds = error(lambda: ddp.gather(1))  # B
    assert f"rank {rank} calls gather() at {at('B')}" in text and f"rank 0 is at sum() at {at('A')}" in text, text
assert seconds < 1.9

# the same collective in another line, which would answer with another number
def total(losses):
    if losses:
        losses = ddp.sum(losses)  # C
    return ddp.sum(rank)  # D
text, seconds = error(lambda: total(float(rank == 0)))
assert at("C") in text and at("D") in text and seconds < 1.9, text

# one that the others do not make in time
ddp.barrier()  # E
if rank == 0:
    text, seconds = error(lambda: ddp.batch_loss(ones.sum()))  # F
    others = [f"rank {r} has not arrived within 2 s (its last call was barrier() at {at('E')})" for r in range(1, world)]
    assert text == (
        f"rank 0 calls batch_loss() at {at('F')}, which needs every rank, but {', '.join(others)}; "
        "timeout= or DP2DDP_TIMEOUT sets how long to wait"
    ), text
    assert 2 <= seconds < 4
    ddp.save([], "late")
else:
    while not os.path.exists("late"):
        time.sleep(0.05)
    assert f"rank 0 is at batch_loss() at {at('F')}" in error(lambda: ddp.mean(1))[0]
ddp.print("done")
"""


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_ranks_that_part_are_told_where_the_others_are(lab, tmp_path, processes):
    script = write(tmp_path, DEBUG)
    env = {"DP2DDP_DEBUG": "1"}
    result = lab.run(script, processes=processes, recorded=False, timeout=30, env=env).ok()
    assert result.printed == "done\n"


def test_a_rank_that_has_ended_is_named(lab, tmp_path):
    script = write(
        tmp_path,
        """
        ddp.init()
        ddp.sum(1)
        if ddp.get_rank() == 1:
            sys.exit(0)
        ddp.mean(1)
        """,
    )
    result = lab.run(script, processes=2, recorded=False, timeout=25, env={"DP2DDP_DEBUG": "1"})
    assert result.codes == [1, 0]
    text = (
        "rank 0 calls mean() at train.py:10, which needs every rank, but "
        "rank 1 has ended (its last call was sum() at train.py:7)"
    )
    assert result.errors.count(text) == 1 and result.errors.count("Traceback") == 1, result.errors


def test_ranks_that_part_end_the_job_with_one_message(tmp_path):
    write(
        tmp_path,
        """
        ddp.init()
        loss = torch.tensor(1.0)
        if ddp.is_main_process():
            print(ddp.sum(loss))
        ddp.barrier()
        """,
    )
    result = run(["train.py"], tmp_path, DP2DDP_DEBUG=1)
    assert (result.code, result.out, result.left) == (1, "", []) and result.seconds < 25
    assert result.err.count("Traceback") == 1 and "failed too" not in result.err, result.err
    assert "sum() at train.py:9" in result.err and "barrier() at train.py:10" in result.err, result.err


def test_a_rank_in_a_collective_of_torch_s_own_is_named_before_that_one_times_out(lab, tmp_path):
    script = write(
        tmp_path,
        """
        ddp.init()
        dist.barrier()
        if ddp.get_rank() == 0:
            dist.all_reduce(torch.ones(2))
        else:
            ddp.sum(1)
        """,
    )
    env = {"DP2DDP_DEBUG": "1", "DP2DDP_TIMEOUT": "2"}
    result = lab.run(script, processes=2, recorded=False, timeout=25, env=env)
    assert result.codes[1] == 1 and result.errors.count("Traceback") == 1, result.errors
    said = "rank 1 calls sum() at train.py:11, which needs every rank, but rank 0 has not arrived within 2 s"
    assert said in result.errors


@pytest.mark.slow
def test_a_timeout_between_different_collectives_names_the_switch(lab, tmp_path):
    script = write(
        tmp_path,
        """
        ddp.init()
        if ddp.get_rank() == 0:
            dist.all_reduce(torch.ones(2000))
        else:
            dist.all_gather([torch.ones(3), torch.ones(3)], torch.ones(3))
        """,
    )
    result = lab.run(script, processes=2, recorded=False, timeout=25, env={"DP2DDP_TIMEOUT": "2"})
    assert 1 in result.codes, result.codes
    assert "maybe different ones: set DP2DDP_DEBUG=1 to see where" in result.errors, result.errors
