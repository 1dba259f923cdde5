"""A program that starts ranks of its own, in place of the runtime's: who goes on, with what, and who ends."""

import os
import re
import socket
from pathlib import Path

import pytest
import torch
from jobs import TORCHRUN, finish, run, start, write

NOTE = """
import atexit, json, multiprocessing
from pathlib import Path
from torch.distributed import init_process_group as join
from torch.multiprocessing import spawn
SEEN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT", "OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME", "DP2DDP_PLACE")

def note(*what):
    with open(Path(__file__).parent / "events", "a") as file:
        file.write(" ".join(map(str, what)) + "\\n")

def seen():
    return sorted(name for name in SEEN if name in os.environ)

def train(*given, **place):
    join("gloo", *given, **place)
    total = torch.ones(1)
    dist.all_reduce(total)
    note("rank", dist.get_rank(), "of", int(total), ddp.get_world_size(), ddp.is_main_process(), ddp.is_initialized())
    dist.barrier()
    time.sleep(0.1)
    dist.destroy_process_group()

def worker(rank, url):
    train(url, rank=rank, world_size=2)
"""
RANKS = ["rank 0 of 2 1 True True", "rank 1 of 2 1 True True"]


def events(script: Path) -> list[str]:
    return sorted((script.parent / "events").read_text().splitlines())


def address() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{listener.getsockname()[1]}"


def test_of_the_agent_s_ranks_one_goes_on_as_the_process_that_was_started(tmp_path):
    """With the environment of the command, and its threads, where they have met before, too; its exit code is the job's."""
    script = write(
        tmp_path,
        NOTE + f"""
if __name__ == "__main__":
    atexit.register(note, "exit")
    ddp.init()
    note("begun", seen(), ddp.is_initialized(), ddp.stands_aside())
    ddp.barrier()
    spawn(worker, nprocs=2, args=("{address()}",))
    note("after", seen(), os.environ["MASTER_PORT"], ddp.get_world_size(), ddp.stands_aside(), torch.get_num_threads() > 1)
    sys.exit(3)
""",
    )
    result = run([script], tmp_path, MASTER_PORT=1234)
    assert result.code == 3 and not result.left, result.err
    assert result.err.count("only this one continues") == 1 and "rank 0 failed with exit code 3" in result.err
    begun = sorted({"OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME", "DP2DDP_PLACE"})
    after = f"after ['MASTER_PORT'] 1234 1 True {len(os.sched_getaffinity(0)) > 1}"
    assert events(script) == sorted([f"begun {begun} False False"] * 2 + RANKS + [after, "exit", "exit"])


def test_ranks_of_torchrun_all_go_on(tmp_path):
    """Whatever they had done together before. From there on all are heard."""
    script = write(
        tmp_path,
        NOTE + """
import logging, warnings
ddp.init()
note("begun", ddp.is_initialized())
print("before")
ddp.barrier()
train()
note("after", seen())
os.write(1, b"after\\n")
logging.warning("logged")
warnings.warn("warned")
""",
    )
    result = run([*TORCHRUN, script], tmp_path, processes=None, DP2DDP_OUTPUT="")
    assert sorted(result.out.split()) == ["after", "after", "before"]
    assert result.err.count("WARNING:root:logged") == result.err.count("UserWarning: warned") == 2
    assert result.code == 0 and not result.left, result.err
    told = sorted(["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT", "OMP_NUM_THREADS"])
    assert events(script) == sorted(["begun False"] * 2 + RANKS + [f"after {told}"] * 2)
    assert "goes on" not in result.err


@pytest.mark.sample("own-DistributedDataParallel")
@pytest.mark.parametrize("wrap", ["DataParallel", "DistributedDataParallel"])
@pytest.mark.parametrize("own", [False, True], ids=["", "own"])
def test_torchrun_s_variables_divide_no_data_where_the_program_has_no_ranks_of_its_own(tmp_path, own, wrap):
    """It may ask for them before it is known which way it goes; then it is started again without them."""
    body = """
    ddp.init(own_ranks=True)
    torch.manual_seed(0)
    several = int(os.environ.get("WORLD_SIZE", 1))
    os.environ["SET"] = os.environ.get("SET", "") + "x"
    data = torch.randn(8 // several, 3)
    ddp.barrier()
    if "--own" in sys.argv:
        dist.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
    else:
        model = ddp.WRAP(torch.nn.Linear(3, 1))
    loss = model(data).pow(2).mean()
    loss.backward()
    shape, same = list(data.shape), len({*map(float, ddp.gather(model.module.weight.grad.sum().item()))})
    sys.stdout.write(f"{dist.get_rank()} {dist.get_world_size()} {several} {shape} {same} {os.environ['SET']}\\n")
    if "--own" in sys.argv:
        dist.barrier()
        sys.stdout.flush()
        os._exit(0)  # gloo's threads may outlive the interpreter
    """
    script = write(tmp_path, body.replace("WRAP", wrap))
    result = run([*TORCHRUN, script, *["--own"] * own], tmp_path, processes=None)
    assert (result.code, result.left) == (0, []), result.err
    lines = [re.sub(r"\[rank \d\] ", "", line) for line in result.out.split("\n")]
    assert sorted(lines)[1:] == [f"{rank} 2 {'2 [4, 3]' if own else '1 [8, 3]'} 1 x" for rank in range(2)]
    assert result.err.count("restarted as if started by `python`") == (not own)


@pytest.mark.slow
def test_the_gpu_that_the_program_s_own_ranks_name_is_theirs_alone(tmp_path):
    """Its number is known before it is known whose ranks these are."""
    script = write(
        tmp_path,
        NOTE + """
torch.cuda.set_device = lambda number: note("current", number)
ddp.init()
ddp.set_device(5)
before = ddp.device(5)
ddp.stand_aside()
note(before, ddp.device(5), ddp.device("cpu"), ddp.device(None))
ddp.set_device(6)
""",
    )
    result = run([script], tmp_path)
    assert result.code == 0, result.err
    own = "cuda:0" if torch.cuda.is_available() else "cpu"
    assert events(script) == sorted(["current 5", "current 6", f"{own} cuda:5 cpu {own.partition(':')[0]}"])


@pytest.mark.slow
def test_ranks_that_were_started_by_hand_meet_again_where_rank_0_serves(tmp_path):
    script = write(tmp_path, NOTE + "ddp.init()\nddp.barrier()\ntrain()\n")
    host, port = address().removeprefix("tcp://").split(":")
    place = {"WORLD_SIZE": 2, "MASTER_ADDR": host, "MASTER_PORT": port}
    jobs = [start([script], tmp_path, processes=None, RANK=rank, **place) for rank in range(2)]
    results = [finish(job) for job in jobs]
    assert [(it.code, it.left) for it in results] == [(0, [])] * 2, results
    assert events(script) == RANKS


@pytest.mark.slow
def test_of_two_machines_the_process_that_was_started_on_each_goes_on(tmp_path):
    script = write(
        tmp_path, NOTE + 'ddp.init()\nworker(int(sys.argv[1]), sys.argv[2])\nnote("after", seen())\n'
    )
    url = address()
    results = [finish(job) for job in [start([script, rank, url], tmp_path) for rank in range(2)]]
    assert [(it.code, it.left) for it in results] == [(0, [])] * 2, results
    assert events(script) == sorted(RANKS + ["after []"] * 2)


@pytest.mark.slow
def test_processes_that_each_rank_has_made_for_the_program_join_once(tmp_path):
    """Nobody has said before that they are the program's ranks: those that the other ranks have made end."""
    script = write(
        tmp_path,
        NOTE + f"""
if __name__ == "__main__":
    ddp.init()
    context = multiprocessing.get_context("spawn")
    made = [context.Process(target=worker, args=(rank, "{address()}")) for rank in range(2)]
    for process in made:
        process.start()
    for process in made:
        process.join()
        assert process.exitcode == 0
""",
    )
    result = run([script], tmp_path)
    assert result.code == 0 and not result.left, result.err
    assert events(script) == RANKS


@pytest.mark.slow
def test_standing_aside_may_be_said(tmp_path):
    """Once or twice; before the start, for which nothing is left to do then; in a group that the runtime was told of."""
    script = write(
        tmp_path,
        NOTE + """
if sys.argv[1] == "before":
    ddp.stand_aside()
    ddp.init()
    assert ddp.stands_aside() and ddp.get_world_size() == 1
elif sys.argv[1] == "given":
    join("gloo", rank=0, world_size=1, store=dist.HashStore())
    ddp.init()
    assert ddp.is_initialized()
    ddp.stand_aside()
    assert ddp.is_initialized() and not ddp.stands_aside() and ddp.get_world_size() == 1
else:
    ddp.init()
    ddp.stand_aside()
    ddp.stand_aside()
    assert ddp.stands_aside() and not dist.is_initialized()
note("end")
""",
    )
    for when in ("before", "given", "twice"):
        result = run([script, when], tmp_path)
        assert result.code == 0 and not result.left, result.err
    assert events(script) == ["end"] * 3


@pytest.mark.slow
def test_where_the_program_s_own_ranks_meet_is_as_it_says(tmp_path):
    """In the environment, as PyTorch's tutorials do: set after `init`, and read by processes that it spawns."""
    host, port = address().removeprefix("tcp://").split(":")
    script = write(
        tmp_path,
        NOTE + f"""
def meeting(rank):
    train(rank=rank, world_size=2)

if __name__ == "__main__":
    ddp.init()
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "{host}", "{port}"
    spawn(meeting, nprocs=2)
""",
    )
    result = run([script], tmp_path)
    assert result.code == 0 and events(script) == RANKS, result.err


@pytest.mark.sample("import-python")
@pytest.mark.parametrize("launched", [TORCHRUN, []], ids=["torchrun", "python"])
@pytest.mark.parametrize("where", ["import", "init"])
def test_what_the_program_says_of_its_own_ranks_misleads_none_of_the_runtime_s(tmp_path, where, launched):
    """Above `init`, as a trainer's constructor does, and above the import of the runtime: ranks meet where they were told."""
    sets = """
import os
os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "1", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
"""
    script = write(
        tmp_path,
        NOTE + (sets if where == "init" else "") + """
ddp.init()
total = torch.ones(1)
ddp.barrier()
dist.all_reduce(total)
note(ddp.get_rank(), ddp.get_local_rank(), int(total))
""",
    )
    if where == "import":
        script.write_text(sets + script.read_text())
    result = run([*launched, script], tmp_path, processes=None if launched else 2)
    assert result.code == 0 and events(script) == ["0 0 2", "1 1 2"], result.err


def test_what_the_program_says_of_its_own_ranks_is_there_for_them(tmp_path):
    """Also where torchrun has told the ranks something else, which they know themselves no more."""
    script = write(
        tmp_path,
        NOTE + """
os.environ["MASTER_PORT"] = "6666"
ddp.init()
ddp.barrier()
note(os.environ.get("MASTER_PORT"))
ddp.stand_aside()
note(os.environ["MASTER_PORT"])
""",
    )
    result = run([*TORCHRUN, script], tmp_path, processes=None)
    assert result.code == 0 and events(script) == ["6666", "6666", "None", "None"], result.err
