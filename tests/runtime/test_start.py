"""The contract of starting, line by line: what the agent runs, what each rank runs, and what they exit with."""

import os
import shutil
import socket
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from jobs import ROOT, TORCHRUN, run, write

from dp2ddp.runtime import agent, options, ranks, start


def lines(path: Path) -> list[str]:
    return sorted(path.read_text().split())


NOTE = """
def note(name):
    with open(HERE / "events", "a") as file:
        file.write(f"{name}\\n")
from pathlib import Path
HERE = Path(__file__).parent
"""


def test_launch_runs_main_in_every_rank_and_nothing_but_the_top_in_the_agent(tmp_path):
    script = write(
        tmp_path / "scripts",
        NOTE + """
note("above")
lock = open(__file__)  # can't be pickled
try:
    def outer():
        factor = 3
        def nested(a, *, b):
            assert dist.get_world_size() == 2 and lock.readable()
            assert sys.argv[1:] == ["--name", "a b", ""] and Path.cwd() == HERE.parent
            assert not torch.cuda.is_available() or torch.cuda.current_device() == ddp.device().index
            note("main")
            return lambda: (a + b) * factor * (ddp.get_rank() + 1)
        return nested
    result = ddp.launch(outer(), 1, b=2)
finally:
    note("finally")
note(f"below:{result()}")
note(f"threads:{os.environ['OMP_NUM_THREADS']}")
""",
    )
    result = run([script.relative_to(tmp_path), "--name", "a b", ""], tmp_path, DP2DDP_CHECK=0)
    assert (result.code, result.out, result.err, result.left) == (0, "", "", [])
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    expected = ["above"] * 3 + ["below:18", "below:9"] + ["finally", "main"] * 2 + [f"threads:{threads}"] * 2
    assert lines(script.parent / "events") == sorted(expected)


def test_init_runs_what_is_above_in_the_agent_too_and_what_is_below_in_the_ranks(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    write(
        tmp_path,
        NOTE + """
HERE = HERE.absolute()
os.chdir("elsewhere")
note("above")
ddp.init()
ddp.init()
note(f"below:{ddp.get_rank()}:{dist.get_rank()}:{ddp.get_world_size()}")
ddp.launch(note, "joined")
""",
    )
    result = run(["train.py"], tmp_path, OMP_NUM_THREADS=1, DP2DDP_CHECK=0)
    assert (result.code, result.err, result.left) == (0, "", [])
    assert lines(tmp_path / "events") == ["above"] * 3 + ["below:0:0:2", "below:1:1:2"] + ["joined"] * 2


MODULE = """
from torch.utils.data import DataLoader, TensorDataset
print("imported", flush=True)
def main():
    loader = DataLoader(TensorDataset(torch.arange(4)), num_workers=1, multiprocessing_context="spawn")
    print("sum", sum(int(x) for x, in loader), flush=True)
    return 1
if __name__ in ("__main__", "__mp_main__"):  # as a script without a guard is imported by spawned workers
    assert ddp.launch(main) == (1 if __name__ == "__main__" else None)
    ddp.init()
    print(__name__, ddp.get_rank(), ddp.is_main_process(), flush=True)
"""


@pytest.mark.slow
def test_module_as_main_with_spawned_loader_workers(tmp_path):
    write(tmp_path, "", "package/__init__.py")
    write(tmp_path, MODULE, "package/train.py")
    result = run(["-m", "package.train"], tmp_path, PYTHONPATH=f"{ROOT}:{tmp_path}")
    assert (result.code, result.err, result.left) == (0, "", [])
    words = result.out.split("\n")
    assert words.count("sum 6") == 2 and words.count("imported") == 5
    for expected in ("__main__ 0 True", "__main__ 1 False", "__mp_main__ 0 True", "__mp_main__ 1 False"):
        assert words.count(expected) == 1


def test_one_process_has_a_group_of_one(tmp_path):
    write(
        tmp_path,
        """
        assert (ddp.get_rank(), ddp.get_world_size(), ddp.get_local_rank(), ddp.get_local_world_size()) == (0, 1, 0, 1)
        pid = os.getpid()
        def main():
            from torch.utils.data.distributed import DistributedSampler
            assert os.getpid() == pid and os.getppid() == int(sys.argv[1])
            assert sorted(DistributedSampler(range(5), seed=ddp.shared_seed())) == [0, 1, 2, 3, 4]
            t = torch.ones(2)
            dist.all_reduce(t)
            assert t.tolist() == [1, 1] and (ddp.sum(3), ddp.mean(3.0), ddp.gather("x")) == (3, 3.0, ["x"])
            ddp.barrier()
            with ddp.main_process_first():
                ddp.print("once")
            assert "GLOO_SOCKET_IFNAME" not in os.environ and "numpy" not in set(sys.modules) - before
            assert "torchvision" not in sys.modules
            return ddp.local_batch_size(7), ddp.local_workers(3)
        before = set(sys.modules)
        assert ddp.launch(main) == (7, 3)
        """,
    )
    result = run(["train.py", os.getpid()], tmp_path, processes=None, CUDA_VISIBLE_DEVICES="")
    assert (result.code, result.out, result.err, result.left) == (0, "once\n", "", [])


def test_the_folder_can_be_copied_into_a_repository(tmp_path):
    shutil.copytree(ROOT / "dp2ddp" / "runtime", tmp_path / "ddp")
    (tmp_path / "train.py").write_text(
        "import ddp, sys\nddp.init()\nassert 'dp2ddp' not in sys.modules\nddp.print(1)"
    )
    result = run(["train.py"], tmp_path, processes=1, PYTHONPATH="")
    assert (result.code, result.out, result.err) == (0, "1\n", "")


@pytest.mark.slow
def test_without_a_command_to_run_again_there_is_a_clear_error(tmp_path):
    code = "from dp2ddp import runtime as ddp; ddp.init()"
    typed = f"import subprocess, sys; subprocess.run([sys.executable, '-'], input={code!r}, text=True)"
    result = run(["-c", typed], tmp_path)
    assert "python file.py" in result.err and "DP2DDP_PROCESSES=1" in result.err and result.seconds < 20
    # a command given with -c can be run again
    assert run(["-c", f"{code}; print(ddp.get_rank())"], tmp_path).out.split() in (["0", "1"], ["1", "0"])


@pytest.mark.slow
def test_a_program_that_a_rank_starts_is_no_rank(tmp_path):
    write(
        tmp_path, "ddp.init()\nprint(ddp.get_rank(), ddp.get_world_size(), dist.get_world_size())", "other.py"
    )
    write(
        tmp_path,
        """
        import subprocess
        ddp.init()
        if ddp.get_rank() == 1:
            subprocess.run([sys.executable, "other.py"], check=True)
        """,
    )
    result = run(["train.py"], tmp_path)
    assert (result.code, result.out, result.err) == (0, "0 1 1\n", "")


@pytest.mark.parametrize(
    ("devices", "indices"),
    [
        (None, [0, 1, 2, 3]),
        (2, [0, 1]),
        (0, [0]),
        ([1, 3], [1, 3]),
        ((torch.device("cuda:2"), "cuda:0"), [2, 0]),
        (["cuda"], [0]),
        ("cuda:1", None),
        (torch.device("cuda:1"), None),
        (5, None),
        ([4], None),
        ([-1], [0]),
        ([], [0]),
        (-1, [0]),
        (["cpu"], [0]),
        (["gpu"], None),
        ([None], [0]),
    ],
)
def test_devices_choose_number_and_gpus_of_the_ranks(monkeypatch, devices, indices):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    wanted = options.Options(devices)
    if indices is None:
        with pytest.raises(ValueError, match="devices="):
            wanted.process_count()
    else:
        assert wanted.gpus() == indices
        assert wanted.process_count() == len(indices)
        assert options.Options(devices, processes=6).process_count() == 6


def test_the_environment_wins_over_the_arguments(monkeypatch):
    given = {
        "processes": 3,
        "backend": "nccl",
        "timeout": 7,
        "num_machines": 2,
        "machine_rank": 1,
        "dist_url": "auto",
    }
    expected = options.Options(None, 2, 1, "auto", 3, "nccl", timedelta(seconds=7))
    assert options.read(**given) == expected
    assert options.read(**given | {"timeout": timedelta(seconds=7)}) == expected
    variables = {
        "PROCESSES": 6,
        "BACKEND": "gloo",
        "TIMEOUT": 2.5,
        "NUM_MACHINES": 9,
        "MACHINE_RANK": 8,
        "DIST_URL": "x",
    }
    for name, value in variables.items():
        monkeypatch.setenv(f"DP2DDP_{name}", str(value))
    assert options.read(**given) == options.Options(None, 9, 8, "x", 6, "gloo", timedelta(seconds=2.5))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("processes", 0),
        ("processes", 1.5),
        ("processes", "two"),
        ("num_machines", 0),
        ("num_machines", None),
        ("machine_rank", -1),
        ("machine_rank", 1),
        ("timeout", 0),
        ("timeout", "soon"),
        ("backend", "glue"),
        ("backend", "cpu:gloo,cuda:nickel"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(monkeypatch, name, value):
    with pytest.raises(ValueError, match=f"^{name}=.*{value}") as error:
        options.read(**{name: value})
    assert "\n" not in str(error.value)
    monkeypatch.setenv(f"DP2DDP_{name.upper()}", str(value))
    with pytest.raises(ValueError, match=f"(?i){name}=.*{value}"):
        options.read()


def test_an_option_of_launch_that_main_has_too_is_refused():
    def main(batch, timeout=3): ...

    with pytest.raises(ValueError, match=r"timeout= is an option of launch\(\) and a parameter of main\(\)"):
        start.launch(main, 8, timeout=5)


PRETEND = """
def pretend():  # as many GPUs as CUDA_VISIBLE_DEVICES names
    current = [0]
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: len(os.environ.get("CUDA_VISIBLE_DEVICES", "").split(","))
    torch.cuda.set_device = lambda device: current.__setitem__(0, torch.device(device).index)
    torch.cuda.current_device = lambda: current[0]
pretend()
"""


@pytest.mark.slow
def test_a_subset_of_the_devices_that_the_program_makes_visible(tmp_path):
    write(
        tmp_path,
        PRETEND + """
import argparse

def main():
    before, after = seen
    assert before == (ddp.get_local_rank(), "rank"), before
    assert after == torch.cuda.current_device() == ddp.device().index and args.lr == 0.5
    print(ddp.get_rank(), ddp.get_world_size(), ddp.device(), os.environ["CUDA_VISIBLE_DEVICES"], flush=True)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float)
    args = parser.parse_args()
    os.environ["CUDA_VISIBLE_DEVICES"] = "4,5,6,7"
    seen = [(ddp.device().index, "rank" if "DP2DDP_PLACE" in os.environ else "agent")]
    assert not torch.cuda.is_initialized()
    ddp.init(devices=[1, 3], backend="gloo", timeout=60)
    seen.append(ddp.device().index)
    main()
""",
    )
    result = run(["train.py", "--lr", "0.5"], tmp_path, processes=None, CUDA_VISIBLE_DEVICES="0")
    assert (result.code, result.err, result.left) == (0, "", [])
    assert sorted(result.out.split("\n")) == ["", "0 2 cuda:1 4,5,6,7", "1 2 cuda:3 4,5,6,7"]


def test_more_processes_than_gpus_are_said_aloud(lab, tmp_path):
    script = write(
        tmp_path,
        PRETEND + """
torch.cuda.get_device_properties = lambda device: f"GPU {device}"
ddp.init(backend=os.environ.get("WANTED"))
assert dist.get_backend() == "gloo" and ddp.device().index == ddp.get_rank() % 2
""",
    )
    visible = {"CUDA_VISIBLE_DEVICES": "0,1"}
    shared = lab.run(script, processes=3, recorded=False, timeout=30, env=visible).ok()
    assert shared.errors == "dp2ddp: 3 processes share 2 GPUs, so they use the gloo backend\n"
    chosen = lab.run(script, processes=3, recorded=False, timeout=30, env=visible | {"WANTED": "gloo"}).ok()
    assert chosen.errors == ""


def test_ranks_that_each_see_another_gpu_alone_do_not_share(monkeypatch):
    monkeypatch.setattr(start.dist, "is_nccl_available", lambda: True)
    same, other = [[0, "GPU-a"], [0, "GPU-a"]], [[0, "GPU-a"], [0, "GPU-b"]]
    for met, backend in [
        (other, "cpu:gloo,cuda:nccl"),
        ([[0, "GPU-a"], [1, "GPU-a"]], "cpu:gloo,cuda:nccl"),
        (same, "gloo"),
        ([*other, [1, None]], "gloo"),
        ([*other, [1, "GPU-c"], [1, "GPU-c"]], "gloo"),
    ]:
        assert start.backend_of(met) == backend


def test_a_notebook_or_repl_is_told_what_to_do(monkeypatch):
    assert agent._command()[0] == sys.executable
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with pytest.raises(RuntimeError, match="python file.py"):
        agent._command()
    monkeypatch.delattr(sys, "ps1")
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    with pytest.raises(RuntimeError, match="a notebook, a REPL or standard input.*devices=1"):
        agent._command()


def test_the_device_before_the_group(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", ranks.OWNER):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(ranks, "_chosen", None)
    assert ranks.device() == torch.device("cpu") or torch.cuda.is_available()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert ranks.device() == torch.device("cuda:0")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    assert ranks.device() == torch.device("cuda:1")  # the program has chosen
    for name, value in {"RANK": 6, "WORLD_SIZE": 8, "LOCAL_RANK": 2, "LOCAL_WORLD_SIZE": 4}.items():
        monkeypatch.setenv(name, str(value))
    assert ranks.device() == torch.device("cuda:0")


def test_queries_before_the_group_answer_from_the_environment(monkeypatch):
    for name, value in {"RANK": 5, "WORLD_SIZE": 8, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 4}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv(ranks.OWNER, raising=False)
    assert (ranks.get_rank(), ranks.get_world_size()) == (5, 8)
    assert (ranks.get_local_rank(), ranks.get_local_world_size()) == (1, 4)
    with pytest.raises(RuntimeError, match=r"barrier\(\) needs the process group.*rank 5 of 8"):
        ranks.is_alone("barrier()")
    monkeypatch.setenv(ranks.OWNER, "1")
    assert (ranks.get_rank(), ranks.get_world_size(), ranks.is_alone("x")) == (0, 1, True)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 1, reason="needs a GPU")
def test_more_processes_than_gpus_share_them_and_say_so(tmp_path):
    write(
        tmp_path,
        """
        def main():
            m = ddp.DistributedDataParallel(torch.nn.Linear(2, 2).to(ddp.device()))
            m(torch.ones(1, 2)).sum().backward()  # inputs are moved
            print(ddp.device(), m.device_ids, flush=True)
        ddp.launch(main)
        """,
    )
    gpus = torch.cuda.device_count()
    result = run(["train.py"], tmp_path, processes=gpus + 1)
    assert result.code == 0 and result.err.count("share") == 1, result.err
    assert max(result.out.split("\n")) == f"cuda:{gpus - 1} [{gpus - 1}]"


@pytest.mark.slow
def test_a_program_that_starts_ranks_by_itself_is_left_to_it(tmp_path):
    """Its group is not the runtime's concern, nor is that of the processes that it spawns."""
    write(
        tmp_path,
        """
        import torch.multiprocessing as mp
        from torch.utils.data import DataLoader, DistributedSampler

        def worker(index, port):
            dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=index, world_size=2)
            assert (ddp.get_rank(), ddp.get_world_size(), ddp.is_main_process()) == (0, 1, True)
            data = list(range(10))
            loader = ddp.shard(DataLoader(data, sampler=DistributedSampler(data)))
            assert len(loader) == 5 and ddp.local_batch_size(3) == 3 and ddp.sum(index) == index
            with ddp.main_process_first():
                ddp.barrier()
            ddp.save({"index": index}, f"saved{index}")
            ddp.print(f"worker {index}\\n", end="")
            dist.destroy_process_group()

        if __name__ == "__main__":
            ddp.init(enabled=False)
            assert ddp.device() == torch.device("cuda" if torch.cuda.is_available() else "cpu")
            mp.spawn(worker, nprocs=2, args=(sys.argv[1],))
            ddp.init(processes=1)
            print("then", ddp.get_world_size(), ddp.sum(1), dist.get_world_size())
        """,
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    result = run(["train.py", port], tmp_path, processes=None)
    assert (result.code, result.left) == (0, []), result.err
    assert sorted(result.out.split("\n")) == ["", "then 1 1 1", "worker 0", "worker 1"]
    assert sorted(os.listdir(tmp_path)) == ["saved0", "saved1", "train.py"]


ABOVE = """
import builtins
found = []
with ddp.main_process_first():
    found.append(os.path.exists("made"))
    time.sleep(0.3 * (ddp.get_rank() == 0))
    builtins.open("made", "a").close()
ddp.barrier()
found.append(ddp.from_main_process(ddp.get_rank() + 5))
ddp.init()
with ddp.main_process_first():
    found.append(os.path.exists("again"))
    time.sleep(0.3 * (ddp.get_rank() == 0))
    builtins.open("again", "a").close()
found.append(ddp.from_main_process(ddp.get_rank() + 7))
ddp.barrier()
sys.stdout.write(f"{ddp.get_rank()} {found} {ddp.sum(1)}\\n")
"""


@pytest.mark.sample("command0")
@pytest.mark.parametrize("command", [["train.py"], [*TORCHRUN[:-1], "3", "train.py"]])
def test_what_an_import_runs_above_the_start_waits_for_the_main_process(tmp_path, command):
    """A model is built, and fetches, when its module is imported: that is above the line where the ranks start."""
    write(tmp_path, ABOVE)
    own = len(command) == 1
    result = run(command, tmp_path, processes=3 if own else None)
    assert (result.code, result.left) == (0, []), result.err
    # the process that starts the ranks has come by, too; torchrun's are started again before
    firsts = [f"0 [{own}, 5, False, 7] 3", *(f"{rank} [True, 5, True, 7] 3" for rank in (1, 2))]
    assert sorted(result.out.split("\n"))[1:] == firsts


@pytest.mark.slow
@pytest.mark.parametrize("own", [False, True], ids=["", "ranks of its own"])
def test_what_a_launcher_says_is_out_of_the_programs_sight(tmp_path, own):
    """Unless the program may go on in ranks of its own, and ask it for them."""
    body = """
    import json, subprocess
    ddp.init(own_ranks=OWN)
    names = [it for it in os.environ if it in ("RANK", "WORLD_SIZE", "LOCAL_RANK") or it.startswith("TORCHELASTIC_")]
    code = "import os; print(os.environ.get('WORLD_SIZE'))"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
    said = ddp.get_rank(), ddp.get_world_size(), ddp.get_local_rank(), len(names) > 3, child, ddp.sum(1)
    launched = torch.distributed.is_torchelastic_launched()
    sys.stdout.write(f"{said} {launched}\\n")
    """
    write(tmp_path, body.replace("OWN", str(own)))
    result = run([*TORCHRUN, "train.py"], tmp_path, processes=None)
    assert (result.code, result.left) == (0, []), result.err
    expected = [f"({rank}, 2, {rank}, {own}, '{2 if own else None}', 2) {own}" for rank in range(2)]
    assert sorted(result.out.split("\n"))[1:] == expected


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("wrap", ["DistributedDataParallel", "DataParallel"])
@pytest.mark.parametrize(
    ("begin", "said"),
    [
        ("", "dp2ddp: train.py:9 trains on 1 of 4 GPUs: train.py starts no other ranks. "),
        ("ddp.init(processes=1)", ""),
        ("ddp.init(enabled=False)", ""),
        ("pass", ""),
    ],
)
def test_a_program_that_starts_no_ranks_says_so_once(tmp_path, wrap, begin, said):
    """As one that runs the same trainer as another program, which was converted with it."""
    body = f"{begin}\nmodel = ddp.{wrap}(torch.nn.Linear(2, 2))\n"
    body += "with torch.no_grad(): model(torch.ones(4, 2))\ntorch.cuda.device_count = lambda: GPUS\nfor _ in range(2): model(torch.ones(4, 2)).sum().backward()\n"
    write(tmp_path, body.replace("GPUS", "1" if begin == "pass" else "4"))
    result = run(["train.py"], tmp_path, processes=None)
    assert result.code == 0, result.err
    assert result.err == (f"{said}Convert it, too, or start it by torchrun\n" if said else "")
