"""Devices that a program chooses when its ranks run already, on pretended GPUs: who stays, on which one, as which rank."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from jobs import TORCHRUN, Result, run, write

from dp2ddp.runtime import devices, options, ranks

PRETEND = """
def visible():
    return [name for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name]
current = []
torch.cuda.is_available = lambda: bool(visible())
torch.cuda.device_count = lambda: len(visible())
torch.cuda.set_device = lambda device: current.append(torch.device(device).index)
torch.cuda.get_device_properties = lambda device: visible()[torch.device(device).index]
def say(*values):
    sys.stdout.write(" ".join(map(str, values)) + os.linesep)
    sys.stdout.flush()
def place():
    everybody = ddp.gather(ddp.device().index)
    say(ddp.get_rank(), ddp.get_world_size(), ddp.get_local_world_size(), current[-1], everybody)
"""
FOUR = {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "DP2DDP_BACKEND": "gloo"}


def trained(result: Result) -> list[str]:
    """What the ranks said that trained, in the order of ranks."""
    assert (result.code, result.err, result.left) == (0, "", []), result.err
    return sorted(result.out.split("\n"))[1:]


def job(folder: Path, body: str, command: list | None = None, **env: object) -> Result:
    write(folder, PRETEND + body)
    return run([*(command or []), "train.py"], folder, processes=None, **{**FOUR, **env})


@pytest.mark.sample("5,7'-said4")
@pytest.mark.parametrize(
    ("chosen", "said"),
    {
        "two of four": ("ddp.use_devices([1, 3])", ["0 2 2 1 [1, 3]", "1 2 2 3 [1, 3]"]),
        "a text": ("ddp.use_devices('2, 0')", ["0 2 2 2 [2, 0]", "1 2 2 0 [2, 0]"]),
        "one": ("ddp.use_devices([2])", ["0 1 1 2 [2]"]),
        "a number": ("ddp.use_devices(1)", ["0 1 1 0 [0]"]),
        "by the environment": (
            "os.environ['CUDA_VISIBLE_DEVICES'] = '5,7'",
            ["0 2 2 0 [0, 1]", "1 2 2 1 [0, 1]"],
        ),
        "by both": (
            "os.environ['CUDA_VISIBLE_DEVICES'] = '5,6,7'; ddp.use_devices([0, 2])",
            ["0 2 2 0 [0, 2]", "1 2 2 2 [0, 2]"],
        ),
        "after the number of ranks was asked": (
            "assert ddp.get_world_size() == 4; ddp.use_devices([0, 1]); assert ddp.get_world_size() == 2",
            ["0 2 2 0 [0, 1]", "1 2 2 1 [0, 1]"],
        ),
        "after all were asked something": (
            "ddp.barrier(); assert ddp.from_main_process(os.getpid()) > 0\n"
            "with ddp.main_process_first(): assert ddp.get_rank() < 4\nddp.use_devices([0, 1])",
            ["0 2 2 0 [0, 1]", "1 2 2 1 [0, 1]"],
        ),
        "after a device was asked for": (
            "assert ddp.device().index == ddp.get_local_rank(); ddp.use_devices([0, 1])",
            ["0 2 2 0 [0, 1]", "1 2 2 1 [0, 1]"],
        ),
        "not at all": ("pass", [f"{rank} 4 4 {rank} [0, 1, 2, 3]" for rank in range(4)]),
    }.values(),
)
def test_ranks_without_a_device_leave(tmp_path: Path, chosen: str, said: list[str]) -> None:
    assert trained(job(tmp_path, f"ddp.init()\n{chosen}\nplace()\n")) == said


def test_what_the_program_does_at_its_end_is_for_those_who_train(tmp_path: Path) -> None:
    body = """
import atexit
def main():
    atexit.register(say, "end")
    try:
        ddp.use_devices([0])
    finally:
        say("goes on")
ddp.launch(main)
"""
    assert trained(job(tmp_path, body)) == ["end", "goes on"]


@pytest.mark.slow
def test_torchrun_s_ranks_leave_too_and_one_line_says_so(tmp_path: Path) -> None:
    command = [*TORCHRUN[:-1], "4"]
    result = job(tmp_path, "ddp.init()\nddp.use_devices([1, 3])\nplace()\n", command, OMP_NUM_THREADS=1)
    assert result.code == 0 and result.left == []
    assert (
        result.err.count("dp2ddp: 2 of 4 processes train, as the program selects 2 GPUs\n") == 1
    ), result.err
    assert sorted(result.out.split("\n"))[1:] == ["0 2 2 1 [1, 3]", "1 2 2 3 [1, 3]"]


@pytest.mark.slow
def test_a_number_of_processes_that_is_asked_for_counts(tmp_path: Path) -> None:
    """More than there are devices share them; the program's choice is only of which."""
    result = job(tmp_path, "ddp.init()\nddp.use_devices([1, 2])\nplace()\n", DP2DDP_PROCESSES=3)
    assert trained(result) == [f"{rank} 3 3 {gpu} [1, 2, 1]" for rank, gpu in enumerate((1, 2, 1))]


def test_devices_that_are_chosen_when_all_train_are_an_error(tmp_path: Path) -> None:
    result = job(tmp_path, "ddp.init()\nddp.sum(1)\nddp.use_devices([0, 1])\n")
    assert result.code == 1 and result.err.count("Traceback") == 1
    assert "use_devices([0, 1]) comes too late: 4 processes train already" in result.err


@pytest.mark.slow
def test_a_device_that_is_in_use_stays_in_use(tmp_path: Path) -> None:
    """The numbers are the same on any GPU, and what lies there can't move."""
    body = "ddp.init()\nassert ddp.device().index == ddp.get_local_rank()\nddp.use_devices([2, 3])\nplace()\n"
    result = job(tmp_path, body)
    assert result.code == 0
    assert sorted(result.out.split("\n"))[1:] == ["0 2 2 0 [0, 1]", "1 2 2 1 [0, 1]"]
    assert (
        result.err
        == "dp2ddp: train.py:21 selects [2, 3], but cuda:0 is already in use and stays in use: select devices before the first use of a GPU\n"
    )


def test_a_rank_that_ends_before_it_is_settled_who_trains_is_named(tmp_path: Path) -> None:
    body = "ddp.init()\nif ddp.get_rank() == 1:\n    sys.exit(0)\nddp.sum(1)\n"
    result = job(tmp_path, body, DP2DDP_PROCESSES=2)
    assert result.code == 1 and result.left == [] and result.seconds < 25
    assert "rank 1 has ended, but rank 0 still needs it (to begin with)" in result.err


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("later", [0, 0.05, 1.5])
def test_ranks_that_part_before_the_group_is_made_end_the_job(tmp_path: Path, later: float) -> None:
    """Whichever of them waits last: its report may not take the place of the other's."""
    body = f"ddp.init()\nif ddp.is_main_process():\n    time.sleep({later}); ddp.sum(1)\nddp.barrier()\n"
    result = job(tmp_path, body, DP2DDP_PROCESSES=2)
    assert result.code == 1 and result.left == [] and result.seconds < 25
    said = "rank 1 waits at a barrier at train.py:22 for rank 0 of 2, which waits for it in a collective at train.py:21"
    assert said in result.err


def test_a_program_that_reads_torchrun_s_variables_sees_none_of_ours(tmp_path: Path) -> None:
    """One that chooses a distributed branch of its own by them chooses as it does alone."""
    body = """
known = [name for name in os.environ if name in ("RANK", "WORLD_SIZE", "MASTER_ADDR") or "ELASTIC" in name]
ddp.init()
known += [name for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK") if name in os.environ]
say(ddp.get_rank(), known, len({*map(hash, ddp.gather("text"))}), len({*ddp.gather(hash("text"))}))
"""
    assert trained(job(tmp_path, body, DP2DDP_PROCESSES=2)) == ["0 [] 1 1", "1 [] 1 1"]


@pytest.mark.slow
def test_strings_have_the_same_hashes_under_torchrun(tmp_path: Path) -> None:
    """Words that are numbered in the order of a set are; torchrun's ranks are started again for it, once."""
    body = """
os.environ["PYTHONHASHSEED"] = "7"  # too late: Python has drawn its own
ddp.init()
words = list({f"word {number}" for number in range(100)})
say(ddp.get_rank(), len({*map(tuple, ddp.gather(words))}), sys.argv[1:])
"""
    result = job(tmp_path, body, TORCHRUN)
    assert result.code == 0 and result.left == []
    assert sorted(result.out.split("\n"))[1:] == ["0 1 []", "1 1 []"], result.err


LEFT_OUT = """
ddp.init()
torch.manual_seed(0)
net = torch.nn.Linear(4, 2)
data = torch.utils.data.TensorDataset(torch.randn(16, 4), torch.randn(16, 2))
loader = LOADER
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for inputs, targets in loader:
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(net(inputs), targets).backward()
    optimizer.step()
say("trained")
"""
LOADERS = {
    "shard": "ddp.shard(torch.utils.data.DataLoader(data, batch_size=4))",
    "DistributedSampler": "torch.utils.data.DataLoader(data, batch_size=ddp.local_batch_size(4), "
    "sampler=torch.utils.data.DistributedSampler(data))",
}


@pytest.mark.slow
@pytest.mark.parametrize("loader", LOADERS)
def test_parts_of_batches_that_train_no_wrapped_model_are_an_error(tmp_path: Path, loader: str) -> None:
    """Unless the program averages the gradients itself."""
    text = LEFT_OUT.replace("LOADER", LOADERS[loader])
    result = job(tmp_path, text, DP2DDP_PROCESSES=2)
    assert result.code == 1 and "but no model is wrapped" in result.err and "trained" not in result.out
    own = "[it.grad.copy_(ddp.mean(it.grad)) for it in net.parameters()]\n    optimizer.step()"
    assert (
        trained(job(tmp_path, text.replace("optimizer.step()", own), DP2DDP_PROCESSES=2)) == ["trained"] * 2
    )
    alone = job(tmp_path, text, DP2DDP_PROCESSES=1)
    assert alone.code == 0 and "trained" in alone.out


ALONE = """
ddp.init()
torch.manual_seed(0)
net = torch.nn.Linear(4, 2)
if WRAPPED:
    net = ddp.DistributedDataParallel(net)
head = torch.nn.Linear(2, 2)
data = torch.utils.data.TensorDataset(torch.randn(20, 4), torch.randn(20, 2))
loader = ddp.shard(torch.utils.data.DataLoader(data, batch_size=8, shuffle=True), if_wrapped=True)
held = ddp.shard_batches(loader)
optimizers = [torch.optim.SGD(it.parameters(), lr=0.1) for it in (net, head)]
for epoch in range(2):
    for inputs, targets in loader:
        loss = torch.nn.functional.mse_loss(HEAD, targets)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
ddp.barrier()
rows = ddp.sum(sum(len(inputs) for inputs, _ in ddp.shard_batches(loader)))
say(f"{ddp.get_world_size()} {rows} {loss.item():.5f} {sum(it.sum().item() for it in net.parameters()):.5f}")
"""


@pytest.mark.sample("own agent")
@pytest.mark.parametrize("launcher", [None, TORCHRUN], ids=["own agent", "torchrun"])
def test_where_no_model_is_wrapped_rank_0_goes_on_alone(tmp_path: Path, launcher: list[str] | None) -> None:
    """With the batches, the random numbers and the end of the program as it was."""
    text = ALONE.replace("HEAD", "net(inputs)").replace("WRAPPED", "False")
    alone = job(tmp_path, text, DP2DDP_PROCESSES=1)
    started = job(tmp_path, text, launcher) if launcher else job(tmp_path, text, DP2DDP_PROCESSES=2)
    assert (alone.code, started.code, started.left) == (0, 0, []), started.err
    assert started.out == alone.out and alone.out.startswith("1 20 ")
    assert "no model is wrapped" in started.err and "only this one continues" in started.err


@pytest.mark.slow
def test_where_one_of_two_models_is_wrapped_the_other_is_compared(tmp_path: Path) -> None:
    text = ALONE.replace("WRAPPED", "True")
    say = "def say(text):\n    sys.stdout.write(text + chr(10))\n"
    write(tmp_path, say + text.replace("HEAD", "head(net(inputs))"))
    both = run(["train.py"], tmp_path)
    assert both.code == 1 and "but not every model is wrapped" in both.err
    write(tmp_path, say + text.replace("HEAD", "net(inputs)"))
    one = run(["train.py"], tmp_path)
    assert one.code == 0 and one.out.startswith("2 20 "), one.err


@pytest.mark.slow
def test_a_first_need_of_torch_s_own_makes_the_group(tmp_path: Path) -> None:
    body = """
from torch.utils.data import DistributedSampler
ddp.init()
sampler = DistributedSampler(range(10), shuffle=False)
say(list(sampler))
"""
    assert trained(job(tmp_path, body, DP2DDP_PROCESSES=2)) == ["[0, 2, 4, 6, 8]", "[1, 3, 5, 7, 9]"]


@pytest.mark.sample("1")
@pytest.mark.parametrize("processes", [1, 2])
def test_what_was_saved_from_a_gpu_comes_to_the_rank_s_device(tmp_path: Path, processes: int) -> None:
    """And what was on the CPU stays there: the state of random numbers is taken from nowhere else."""
    write(
        tmp_path,
        """
        import torch.serialization as kept
        ddp.init()
        weights, plain = torch.ones(3), torch.get_rng_state()
        real = kept.location_tag
        kept.location_tag = lambda storage: "cuda:5" if storage.nbytes() == 12 else real(storage)
        path = f"{ddp.get_rank()}.pt"
        torch.save({"weights": weights, "random": plain}, path)
        kept.location_tag = real
        asked = []
        restore = kept.default_restore_location
        kept.default_restore_location = lambda storage, at: asked.append(at) or restore(storage, at)
        loaded = torch.load(path, map_location=ddp.map_location)
        torch.set_rng_state(loaded["random"])
        assert loaded["weights"].sum() == 3 and sorted(asked) == [str(ddp.device())] * 2, asked
        """,
    )
    result = run(["train.py"], tmp_path, processes=processes)
    assert (result.code, result.err, result.left) == (0, "", []), result.err


CURRENT = """
import threading
numbers = threading.local()  # CUDA's current device is each thread's own, and 0 where nothing is said
torch.cuda.set_device = lambda device: setattr(numbers, "current", torch.device(device).index)
def cuda():
    # where `x.cuda()` lands: CUDA comes into use with the first, and calls what waits for it
    for call, _ in torch.cuda._queued_calls:
        if call.__module__.startswith("dp2ddp"):
            call()
    return getattr(numbers, "current", 0)
def in_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(cuda()))
    thread.start()
    thread.join()
    return found[0]
"""


@pytest.mark.sample("in_thread())-said7")
@pytest.mark.parametrize(
    ("body", "said"),
    {
        "all": ("ddp.init()\nsay(cuda())", ["0", "1", "2", "3"]),
        "in the function given to launch": ("ddp.launch(lambda: say(cuda()))", ["0", "1", "2", "3"]),
        "above the start": (
            "found = 'DP2DDP_PLACE' in os.environ and cuda()\nddp.init()\nsay(found)",
            ["0", "1", "2", "3"],
        ),
        "said with the start": ("ddp.init(devices=[1, 3])\nsay(cuda())", ["1", "3"]),
        "said later": ("ddp.init()\nddp.use_devices([1, 3])\nsay(cuda())", ["1", "3"]),
        "by the environment": (
            "ddp.init()\nos.environ['CUDA_VISIBLE_DEVICES'] = '5,7'\nsay(cuda())",
            ["0", "1"],
        ),
        "in a thread": ("ddp.init()\nsay(cuda(), in_thread())", ["0 0", "1 1", "2 2", "3 3"]),
        "in a thread, on those chosen": (
            "ddp.init()\nddp.use_devices([1, 3])\nsay(cuda(), in_thread())",
            ["1 1", "3 3"],
        ),
    }.values(),
)
def test_the_current_gpu_is_that_of_the_rank(tmp_path: Path, body: str, said: list[str]) -> None:
    assert trained(job(tmp_path, f"{CURRENT}\n{body}\n")) == said


@pytest.mark.sample("fork")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_current_gpu_of_a_rank_s_workers_is_its_own(tmp_path: Path, method: str) -> None:
    body = f"""{CURRENT}
import multiprocessing
def work(answers):
    answers.put(cuda())
if __name__ == "__main__":
    ddp.init()
    context = multiprocessing.get_context("{method}")
    answers = context.SimpleQueue()
    worker = context.Process(target=work, args=(answers,))
    worker.start()
    say(answers.get(), cuda())
    worker.join()
"""
    assert trained(job(tmp_path, body, DP2DDP_PROCESSES=2)) == ["0 0", "1 1"]


@pytest.mark.slow
def test_workers_threads_leave_cuda_alone(tmp_path: Path) -> None:
    """In a process that was forked when CUDA was in use, any use of it is an error."""
    body = f"""{CURRENT}
import multiprocessing
def work(answers):
    torch.cuda.set_device = None
    answers.put(in_thread())
ddp.init()
cuda()
context = multiprocessing.get_context("fork")
answers = context.SimpleQueue()
worker = context.Process(target=work, args=(answers,))
worker.start()
say(answers.get())
worker.join()
"""
    assert trained(job(tmp_path, body, DP2DDP_PROCESSES=2)) == ["0", "0"]


@pytest.mark.sample("cpu")
@pytest.mark.parametrize("chosen", ["[]", "[-1]", "0", "['cpu']", "'-1'"])
def test_who_chooses_no_gpu_trains_alone_and_binds_none(tmp_path: Path, chosen: str) -> None:
    """The program says by itself that it computes on the CPU; where it names a GPU all the same, that is the first."""
    body = f"""
ddp.init()
ddp.use_devices({chosen})
linear = ddp.DataParallel(torch.nn.Linear(2, 2))
weight = linear(torch.ones(1, 2)).device.type
say(ddp.get_rank(), ddp.get_world_size(), current, weight, linear.device_ids, ddp.device(), ddp.sum(1))
"""
    assert trained(job(tmp_path, body)) == ["0 1 [] cpu [] cuda:0 1"]


@pytest.mark.sample(every=2)
@pytest.mark.parametrize(("count", "moved"), [(1, ["0 []"]), (2, ["0 ['cuda:0']", "1 ['cuda:1']"])])
def test_a_model_on_the_cpu_stays_there_where_one_process_trains(
    tmp_path: Path, count: int, moved: list[str]
) -> None:
    """A program that chooses the CPU on a machine with GPUs leaves its batches there, too."""
    body = f"""
moved = []
class Net(torch.nn.Linear):
    def to(self, device):
        moved.append(str(device))
        raise SystemExit(say(ddp.get_rank(), moved))
ddp.init()
ddp.use_devices({count})
ddp.device()
ddp.DataParallel(Net(2, 2))(torch.ones(2, 2)).sum().backward()
say(ddp.get_rank(), moved)
"""
    result = job(tmp_path, body)
    assert sorted(result.out.split("\n"))[1:] == moved, result.err


# Four GPUs, and a driver that looks at CUDA_VISIBLE_DEVICES once: when it is asked for the first time, by whatever uses
# a GPU. NVML and `device_count`, before that, read the variable each time.
DRIVER = """
import torch.cuda
torch.cuda.is_available, torch.cuda.device_count = AVAILABLE, COUNTED
torch.cuda._is_compiled = lambda: True
seen = []
def named():
    return [int(name) for name in os.environ.get("CUDA_VISIBLE_DEVICES", "0,1,2,3").split(",")]
def driver():
    if not seen:
        seen.append(named())
    return seen[0]
torch.cuda._device_count_nvml = lambda: len(named())
torch._C._cuda_getDeviceCount = lambda: len(driver())
used = []
torch.cuda.set_device = lambda device: used.append(driver()[torch.device(device).index])
"""
REAL = "AVAILABLE, COUNTED = torch.cuda.is_available, torch.cuda.device_count\n"


@pytest.mark.sample("said3")
@pytest.mark.parametrize(
    ("start", "visible", "chosen", "said"),
    [
        ("ddp.init()", "2", "pass", ["2"]),
        ("ddp.init()", "2,3", "ddp.use_devices([2, 3])", ["2", "3"]),
        ("ddp.init()", "1,2", "ddp.use_devices([1, 2])", ["1", "2"]),
        ("ddp.init(devices=[0, 3])", "2,3", "ddp.use_devices([2, 3])", ["2", "3"]),
        ("ddp.init(devices=[2, 3])", "2,3", "pass", ["2", "3"]),
    ],
)
def test_visible_gpus_that_are_set_after_cuda_was_asked_for_are_those_that_train(
    tmp_path: Path, start: str, visible: str, chosen: str, said: list[str]
) -> None:
    """And numbers that are named so are the machine's, where they are no others."""
    body = f"""{REAL}{PRETEND}{DRIVER}
assert torch.cuda.is_available()
{start}
assert torch.cuda.is_available()
os.environ["CUDA_VISIBLE_DEVICES"] = "{visible}"
{chosen}
ddp.device()
say(used[-1])
"""
    write(tmp_path, body)
    result = run(["train.py"], tmp_path, processes=None, DP2DDP_BACKEND="gloo")
    assert trained(result) == said


@pytest.mark.parametrize(
    ("devices", "named", "indices"),
    [
        ([2], [2], [0]),
        (["cuda:3", "cuda:2"], [2, 3], [1, 0]),
        ([1, 0], [1, 0], [1, 0]),
        ([0, 2], [4, 6, 7], [0, 2]),
        ([1, 2], [1, 2], [0, 1]),
        (2, [4, 6, 7], [0, 1]),
        ([2, 4], [2, 3], None),
        ([2, 3], [], None),
        ([-1], [2, 3], [0]),
    ],
)
def test_numbers_beyond_the_visible_gpus_are_those_that_are_named(
    devices: object, named: list[int], indices: list[int] | None
) -> None:
    visible = len(named) or 2
    if indices is not None:
        assert options.chosen(devices, visible, named) == indices
    else:
        with pytest.raises(ValueError, match="the visible GPUs are 0 to 1"):
            options.chosen(devices, visible, named)


@pytest.mark.sample(every=2)
@pytest.mark.parametrize(("devices", "moved"), [("[2]", ["[]"]), ("[1, 3]", ["['cuda:1']", "['cuda:3']"])])
def test_a_model_stays_where_it_is_in_a_single_process(tmp_path, devices, moved):
    """Several ranks bring one that nothing has moved to their GPUs."""
    body = f"""
moved = []
torch.nn.Module.to = lambda self, device: moved.append(str(device))
ddp.init(devices={devices})
ddp.DistributedDataParallel(torch.nn.Linear(2, 1))
say(moved)
"""
    assert trained(job(tmp_path, body)) == moved


def test_a_gpu_that_a_file_names_is_the_rank_s_own(tmp_path: Path) -> None:
    """Before devices are chosen it is the current one, whichever that will be."""
    body = """
named = [str(ddp.device(it)) for it in ("cuda:0", "cpu")]
ddp.init(devices=[1, 3])
named += [str(ddp.device(it)) for it in ("cuda:0", "cuda", torch.device("cuda:2"), "cpu", torch.device("cpu"))]
say(named)
"""
    early = ["cuda", "cpu"]
    assert trained(job(tmp_path, body)) == [
        str([*early, own, own, own, "cpu", "cpu"]) for own in ("cuda:1", "cuda:3")
    ]


def test_a_model_on_the_gpu_of_another_rank_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would train there, beside that rank; NCCL says something else."""
    monkeypatch.setattr(ranks, "device", lambda: torch.device("cuda:1"))
    model = torch.nn.Linear(2, 1)
    monkeypatch.setattr(model, "parameters", lambda: iter([SimpleNamespace(device=torch.device("cuda:0"))]))
    with pytest.raises(RuntimeError, match="the model is on cuda:0, but this rank's GPU is cuda:1"):
        devices.bring(model)
    monkeypatch.setattr(ranks, "device", lambda: torch.device("cuda:0"))
    devices.bring(model)


@pytest.mark.slow
@pytest.mark.parametrize("named", ['"cuda"', "ddp.device()"])
def test_a_block_with_the_process_s_own_gpu(tmp_path: Path, named: str) -> None:
    """As converted programs write it: on every rank it is the rank's own, and so is what says "cuda" inside."""
    body = f"""
def exchange(number):
    before = current[-1]
    current.append(number)
    return before
torch.cuda.current_device = lambda: current[-1]
torch.cuda._exchange_device = torch.cuda._maybe_exchange_device = exchange
def main():
    ddp.use_devices([1, 3])
    ddp.device()
    with torch.cuda.device({named}):
        inside = torch.cuda.current_device()
    assert inside == ddp.device().index == current[-1]
    place()
ddp.launch(main)
"""
    assert trained(job(tmp_path, body)) == ["0 2 2 1 [1, 3]", "1 2 2 3 [1, 3]"]
