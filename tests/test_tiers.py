"""Which form a program gets: sharded where nothing forbids it, whole batch where something forbids only that."""

from __future__ import annotations

import ast
import re

import pytest
from forms import ungathered as convert
from losses import COMBINED, EVEN_LOSSES, GATHERED, MEANS, OPTIONS, OTHERS, OWN_LOSSES, SCALED, UNGATHERED
from programs import (
    BARE,
    CHOSEN,
    CONFIGURED,
    CRITERION,
    DEALT,
    FORWARD,
    HANDED,
    HEAD,
    LATER_HEADS,
    LOADER,
    LOOP,
    LOSS,
    NOT_BARE,
    OPTIMIZER,
    PARTS,
    PATH,
    PHASES,
    PROGRAM,
    PULLED,
    SHARDED_LOADERS,
    SOMETIMES_WRAPPED,
    UNDRAWN,
    WHOLE_BATCH,
    WRAP,
    bare,
    headed,
    module,
)

from dp2ddp.changes import Conversion
from dp2ddp.plan import Severity
from dp2ddp.source import Project

SUM = WHOLE_BATCH["similarities between samples"].text


def converted(text: str, **options: bool) -> tuple[str, Conversion]:
    """What a program becomes."""
    conversion = convert(Project.of({PATH: text}), **options)
    assert not conversion.errors, conversion.errors
    return conversion.changes[0].after, conversion


def calls(text: str) -> list[str]:
    """The functions of the runtime that a text calls, in order."""
    found = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    named = [ast.unparse(node.func) for node in found]
    return [name.removeprefix("ddp.") for name in named if name.startswith("ddp.")]


# Whole batch


@pytest.mark.parametrize("name", WHOLE_BATCH)
def test_what_cannot_be_shown_of_parts_keeps_the_batches_whole(name: str) -> None:
    """With the reason as a note, and with the loop and the loader as they were."""
    case = WHOLE_BATCH[name]
    after, conversion = converted(case.text)
    found = {(f.rule, f.location.span.line): f for f in conversion.findings if not f.edits}
    assert (case.rule, case.line) in found, found
    reason = found[case.rule, case.line]
    assert case.reason in reason.message
    assert reason.severity is Severity.NOTE
    (script,) = conversion.scripts
    assert script.tier == "whole batch"
    assert case.line in [place.span.line for place in script.reasons]
    assert calls(after).count("DataParallel") == 1
    assert set(calls(after)) <= {"DataParallel", "init", "device", "get_world_size"}
    again = convert(Project.of({PATH: after}))
    assert not again.changes and not again.findings


def test_the_wrap_keeps_what_still_means_something() -> None:
    text = WHOLE_BATCH["another dimension"].text.replace("dim=1", "device_ids=[0, 1], output_device=1, dim=1")
    after, _ = converted(text)
    assert "ddp.init(devices=[0, 1])" in after
    assert "model = ddp.DataParallel(Turned(8, 2).cuda(), dim=1)" in ast.unparse(ast.parse(after))


@pytest.mark.parametrize(
    ("move", "moved"),
    [
        ('model = nn.DataParallel(model).to("cuda")', 'to("cuda")'),
        ("model = nn.DataParallel(model).cuda(0)", "to(ddp.device())"),
        ("model = nn.DataParallel(model).cuda(None)", "cuda()"),
        (f'{WRAP}\nmodel.to("cuda:0")', "to(ddp.device())"),
        (f'{WRAP}\nmodel.to(device="cuda")', 'to("cuda")'),
        (f"{WRAP}\nmodel.cuda()", "cuda()"),
        ("if torch.cuda.is_available():\n    model = nn.DataParallel(model).cuda()", "to(ddp.device())"),
    ],
)
def test_a_gpu_that_the_wrap_s_move_names_is_the_process_s_own(move: str, moved: str) -> None:
    """By its number it is not; and a condition that asks for a GPU goes, though there may be none."""
    text, _ = converted(PROGRAM.replace("nn.Linear(8, 2).cuda()\n" + WRAP, "nn.Linear(8, 2)\n" + move))
    assert f"\nmodel = ddp.DistributedDataParallel(model.{moved})\ncriterion" in text


@pytest.mark.parametrize(
    ("compared", "own"), [('str(device) == "cuda"', False), ('device.type == "cuda"', True)]
)
def test_a_device_whose_text_is_compared_has_no_number(compared: str, own: bool) -> None:
    """``str(ddp.device())`` is `cuda:0`: what is asked of it would be answered otherwise."""
    current = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")'
    chosen = current.replace("cuda", "cuda:0", 1)
    text, _ = converted(PROGRAM.replace(WRAP, f"{WRAP}\n{chosen}\nscaled = {compared}"))
    assert (current in text, "device = ddp.device()" in text) == (not own, own)


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("x = torch.zeros(2).cuda()", None),
        ("x = torch.zeros(2).cuda(non_blocking=True)", None),
        ('x = torch.zeros(2).to("cuda")', None),
        ('x = torch.zeros(2, device="cuda")', None),
        ('x = torch.zeros(2, device=torch.device("cuda"))', None),
        ('x = torch.device("cuda" if len(data) else "cpu")', None),
        ("if torch.cuda.is_available():\n    x = torch.zeros(2).cuda()", None),
        (
            'x = torch.device("cuda:0" if len(data) else "cpu")',
            'x = torch.device("cuda" if len(data) else "cpu")',
        ),
        ('x = torch.device("cpu" if len(data) else 0)', 'x = torch.device("cpu" if len(data) else "cuda")'),
        ('x = torch.device("cuda", 0)', "x = ddp.device()"),
        ("x = torch.zeros(2).cuda(device=0)", "x = torch.zeros(2).to(ddp.device())"),
        ('x = torch.zeros(2, device="cuda:0")', "x = torch.zeros(2, device=ddp.device())"),
        (
            "with torch.cuda.device(1):\n    x = torch.zeros(2).cuda()",
            "with torch.cuda.device(ddp.device()):\n    x = torch.zeros(2).cuda()",
        ),
        (
            "gpus = [int(it) for it in '0,1'.split(',')]\nwith torch.cuda.device(gpus[0]):\n    x = torch.zeros(2)",
            "gpus = [int(it) for it in '0,1'.split(',')]\nwith torch.cuda.device(ddp.device()):\n    x = torch.zeros(2)",
        ),
        (
            "with torch.cuda.device(1 if len(data) else -1):\n    x = torch.zeros(2)",
            "with torch.cuda.device(ddp.device() if len(data) else -1):\n    x = torch.zeros(2)",
        ),
        ("with torch.cuda.device(-1):\n    x = torch.zeros(2).cuda()", None),
        ("with torch.cuda.device(None):\n    x = torch.zeros(2).cuda()", None),
        ("x = model.module.weight\nwith torch.cuda.device(x.device):\n    x = x.cuda()", None),
        ("x = model.module.weight\nwith torch.cuda.device(x.get_device()):\n    x = x.cuda()", None),
        (
            "gpu = torch.device('cuda:1')\nwith torch.cuda.device(gpu):\n    x = torch.zeros(2).cuda()",
            "gpu = ddp.device()\nwith torch.cuda.device(gpu):\n    x = torch.zeros(2).cuda()",
        ),
        ("with torch.cuda.device_of(model.module.weight):\n    x = torch.zeros(2).cuda()", None),
        ("torch.accelerator.set_device_index(1)\nx = torch.zeros(2).cuda()", "x = torch.zeros(2).cuda()"),
        ("torch.cuda.synchronize(1)", "torch.cuda.synchronize(ddp.device())"),
        ("stream = torch.cuda.Stream(device=1)", "stream = torch.cuda.Stream(device=ddp.device())"),
        ("stream = torch.cuda.Stream(1)", "stream = torch.cuda.Stream(ddp.device())"),
        (
            "import threading\ndef load(x):\n    x.cuda()\nthreading.Thread(target=load, args=(data,)).start()",
            "import threading\ndef load(x):\n    x.to(ddp.device())\nthreading.Thread(target=load, args=(data,)).start()",
        ),
    ],
)
def test_the_current_gpu_stays_and_a_number_is_the_process_s_own(line: str, left: str | None) -> None:
    text, conversion = converted(PROGRAM.replace(CRITERION, f"{CRITERION}\n{line}"))
    assert conversion.scripts[0].tier == "sharded"
    assert f"\n{left or line}\n" in text
    assert text.count("cuda()") >= PROGRAM.count("cuda()")


SPREAD = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 2)])
        self.spread = False

    def parallelize(self, gpus):
        self.spread = True
        self.gpus = gpus
        self.last = "cuda:" + str(max(gpus))

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if self.spread:
                for k, at in self.gpus.items():
                    if i == at and "cuda:" + str(k) != self.last:
                        x = x.to("cuda:" + str(k + 1))
        return x


"""


def test_numbers_of_gpus_that_a_loop_goes_through_stay_where_nothing_spreads_the_model() -> None:
    """What a program could do with a model, and does not, is no reason; and its code stays right."""
    made = f"{SPREAD}model = Net().cuda()\nfirst = model(data[0][0].cuda())\n"
    text, _ = converted(PROGRAM.replace("model = nn.Linear(8, 2).cuda()\n", made))
    assert SPREAD in text


def test_a_list_of_gpus_for_the_wrap_spreads_nothing() -> None:
    given = 'gpus = [torch.device(f"cuda:{i}") for i in range(torch.cuda.device_count())]\n'
    text, _ = converted(PROGRAM.replace(WRAP, f"{given}model = nn.DataParallel(model, device_ids=gpus)"))
    assert "DistributedDataParallel(" in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # the one move of a model stands before its wrap, wherever it stood
        (
            "model = nn.Linear(8, 2)\nmodel = nn.DataParallel(model)\nnet = model.to(device)",
            "model.to(device)",
        ),
        (
            "def made():\n    model = nn.Linear(8, 2)\n    model = nn.DataParallel(model)\n"
            "    return model.to(device)\n\nmodel = made()",
            "model.to(device)",
        ),
        (
            "def made():\n    model = nn.Linear(8, 2).to(device)\n    return model, 3\n\nmodel, size = made()\n"
            "model = nn.DataParallel(model)",
            "model",
        ),
        (
            "def wrapped(model):\n    return nn.DataParallel(model)\n\nmodel = nn.Linear(8, 2)\nmodel.to(device)\n"
            "model = wrapped(model)",
            "model",
        ),
        (
            "def wrapped(model):\n    return nn.DataParallel(model)\n\nmodel = wrapped(nn.Linear(8, 2))\n"
            "model.to(device)",
            "model.to(ddp.device())",
        ),
    ],
)
def test_a_model_is_moved_once(before: str, after: str) -> None:
    chosen = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
    text, conversion = converted(PROGRAM.replace("model = nn.Linear(8, 2).cuda()\n" + WRAP, chosen + before))
    assert conversion.scripts[0].tier == "sharded"
    assert f"ddp.DistributedDataParallel({after})" in text
    assert text.count(".to(") == before.count(".to(") + (after == "model.to(ddp.device())")


@pytest.mark.parametrize(("loader", "sums"), [(LOADER, 0), (SHARDED_LOADERS["weights"], 1)])
@pytest.mark.parametrize("size", ["targets.size(0)", "len(targets)", "targets.shape[0]", "number"])
def test_the_size_of_a_batch_is_summed(loader: str, sums: int, size: str) -> None:
    text = PROGRAM.replace(LOADER, loader).replace(
        "        optimizer.step()\n",
        f"        optimizer.step()\n        number = targets.size(0)\n        print(loss.item(), {size})\n",
    )
    after, conversion = converted(text)
    assert conversion.scripts[0].tier == "sharded"
    assert (f"ddp.sum({size})" in after) == (not sums)
    assert calls(after).count("batch_sum") == sums


def test_a_state_that_the_program_takes_itself_has_no_prefix() -> None:
    text = PROGRAM + "best = model.state_dict()\nmodel.load_state_dict(best)\n"
    after, _ = converted(text)
    assert after.endswith("best = model.module.state_dict()\nmodel.module.load_state_dict(best)\n")


def test_what_another_file_puts_on_a_gpu_when_it_is_imported_is_the_process_s_own() -> None:
    """The program has not begun there, so no GPU is its own yet."""
    constants = (
        "import torch\n\ndevice = torch.device('cuda')\n{}\n\ndef scaled(x):\n    return x.cuda() * 2.0\n"
    )
    files = {PATH: PROGRAM.replace("data = ", "from constants import scaled\n\ndata = ", 1)}
    for made, device in (
        ("weight = torch.ones(2).cuda()", "torch.device('cuda')"),
        ("weight = torch.ones(2, device=device)", "ddp.device()"),
        ("size = 2", "torch.device('cuda')"),
    ):
        files[PATH.with_name("constants.py")] = constants.format(made)
        changes = {it.path.name: it.after for it in convert(Project.of(files)).changes}
        after = changes.get("constants.py", constants.format(made))
        assert f"device = {device}\n{made.replace('cuda()', 'to(ddp.device())')}\n" in after
        assert "return x.cuda() * 2.0" in after and ("dp2ddp" in after) == (made != "size = 2")


@pytest.mark.parametrize("whole", [0, 1])
def test_a_model_that_is_wrapped_in_part_by_one_branch_and_wholly_by_the_other_stays_so(whole: int) -> None:
    """As the ImageNet example does for AlexNet and VGG."""
    wraps = ["model[0] = nn.DataParallel(model[0])", WRAP]
    made = "model = nn.Sequential(nn.Linear(8, 2)).cuda()\nif data[0][1].item() > 5:\n    {}\nelse:\n    {}\n"
    made = made.format(*(wraps if whole else wraps[::-1])).replace("model[0]", "model.head")
    made = made.replace("nn.Sequential(nn.Linear(8, 2))", "Net()").replace(
        "data[0][1].item() > 5", "len(data) > 99"
    )
    net = "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.head = nn.Linear(8, 2)\n\n"
    net += "    def forward(self, x):\n        return self.head(x)\n\n\n"
    text = PROGRAM.replace("model = nn.Linear(8, 2).cuda()\n" + WRAP + "\n", made)
    after, _ = converted(text.replace("data = ", net + "data = ", 1))
    for line in ("    model.head = ddp.DataParallel(model.head)\n", "    model = ddp.DataParallel(model)\n"):
        assert after.count(line) == after.count(line.strip()) == 1


def test_a_model_that_every_branch_puts_on_its_device_is_there() -> None:
    made = "size = 2\nif size == 2:\n    model = nn.Linear(8, 2).cuda()\nelse:\n    raise ValueError(size)\n"
    text, _ = converted(PROGRAM.replace("model = nn.Linear(8, 2).cuda()\n", made))
    assert "\nmodel = ddp.DistributedDataParallel(model)\n" in text


def test_a_sampler_that_is_none_gives_its_name() -> None:
    empty = "sampler = None\nloader = DataLoader(data, 16, shuffle=(sampler is None), sampler=sampler)"
    text, _ = converted(PROGRAM.replace(LOADER, empty))
    assert "sampler = None" not in text and "_2" not in text
    assert "sampler = DistributedSampler(data, shuffle=True, seed=ddp.shared_seed())\nloader = " in text
    text, _ = converted(PROGRAM.replace(LOADER, empty + "\nprint(sampler)"))
    assert (
        "sampler = None\n" in text and "sampler_2 = DistributedSampler(data, shuffle=sampler is None" in text
    )


def test_a_model_that_may_be_bare_is_asked() -> None:
    text = PROGRAM.replace(WRAP, SOMETIMES_WRAPPED["by a variable"])
    text += 'torch.save(model.state_dict(), "model.pt")\n'
    assert 'ddp.save(getattr(model, "module", model).state_dict(), "model.pt")' in converted(text)[0]
    after, _ = converted(SUM + 'torch.save(model.state_dict(), "model.pt")\n')
    assert 'ddp.save(model.module.state_dict(), "model.pt")' in after


def test_workers_batches_and_numbers_are_the_original_s() -> None:
    text = SUM.replace("shuffle=True)", "shuffle=True, num_workers=4)") + "    print(loss.item())\n"
    after, conversion = converted(text)
    assert "loader = ddp.share(DataLoader(data, batch_size=16, shuffle=True, num_workers=4))" in after
    assert not [f for f in conversion.findings if f.rule in ("DDP203", "DDP502")]


def test_a_type_check_asks_for_the_class_that_is_there() -> None:
    check = "assert isinstance(model, nn.DataParallel)\n"
    both = "assert isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel))\n"
    exact = "assert type(model) in (nn.DataParallel, nn.parallel.DistributedDataParallel)\n"
    assert "isinstance(model, nn.DataParallel)" in converted(SUM + check)[0]
    assert "isinstance(model, ddp.DistributedDataParallel)" in converted(PROGRAM + check)[0]
    assert "(nn.DataParallel, nn.parallel.DistributedDataParallel)" in converted(SUM + both)[0]
    assert "(nn.DataParallel, nn.parallel.DistributedDataParallel)" in converted(PROGRAM + both)[0]
    assert "type(model) in (ddp.DataParallel, " in converted(SUM + exact)[0]
    assert "type(model) in (ddp.DistributedDataParallel, " in converted(PROGRAM + exact)[0]


# What the processes must have alike

DRAWN_ALONE = 'with open("noise.txt", "w") as file:\n    file.write(str(torch.rand(1)))\n'
WORKER_SEED = (
    "import random\nimport time\n\n\ndef seeded(worker):\n    random.seed(time.time() + worker)\n\n\n"
)
QUEUE = "import queue\n\nwaiting = queue.Queue()\nwaiting.put(1)\nfirst = waiting.get()\n"
# What each process would have of its own where all draw the same batches, and what it becomes.
ALIKE = {
    "numbers drawn where a file is written": (
        LOADER,
        DRAWN_ALONE + LOADER,
        'with ddp.open("noise.txt", "w") as file:\n    file.write(str(torch.rand(1)))\n',
    ),
    "a picture of noise": (
        LOADER,
        f'import torchvision\ntorchvision.utils.save_image(torch.rand(8), "noise.png")\n{LOADER}',
        '\nddp.on_main_process(torchvision.utils.save_image)(torch.rand(8), "noise.png")\n',
    ),
    "workers seeded by the clock": (
        LOADER,
        WORKER_SEED + LOADER.replace("shuffle=True", "shuffle=True, worker_init_fn=seeded"),
        "seed(torch.initial_seed() % 2**32)\n",
    ),
}


@pytest.mark.parametrize("name", ALIKE)
@pytest.mark.parametrize("program", [PROGRAM, SUM], ids=["sharded", "whole batch"])
def test_what_differs_between_processes_becomes_alike(name: str, program: str) -> None:
    old, new, text = ALIKE[name]
    after, conversion = converted(program.replace(old, new))
    assert text in after
    assert not [it for it in conversion.findings if it.rule == "DDP503" and it.severity is not Severity.NOTE]


# What is taken in the order in which it is ready, or from processes that draw for themselves.
AS_READY = {
    "a queue": QUEUE,
    "a queue that may be empty": QUEUE.replace("get()", "get_nowait()"),
    "a queue of processes": QUEUE.replace("queue", "multiprocessing"),
    "a queue of torch's processes": QUEUE.replace(
        "import queue", "from torch import multiprocessing as queue"
    ),
    "a queue of a context": QUEUE.replace("import queue", "import multiprocessing").replace(
        "queue.Queue()", "multiprocessing.get_context('spawn').Queue()"
    ),
    "a pool": "from multiprocessing import Pool\n\nwith Pool(2) as pool:\n"
    "    first = list(pool.imap_unordered(len, ['a', 'b']))\n",
    "a pool of threads": "from multiprocessing.pool import ThreadPool\n\npool = ThreadPool(2)\n"
    "first = list(pool.imap_unordered(len, ['a', 'b']))\n",
    "futures": "from concurrent import futures\n\npool = futures.ThreadPoolExecutor()\n"
    "first = next(futures.as_completed([pool.submit(len, 'a')]))\n",
    "futures that are done": "from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait\n\n"
    "pool = ThreadPoolExecutor()\ndone, _ = wait([pool.submit(len, 'a')], return_when=FIRST_COMPLETED)\n",
    "connections": "from multiprocessing import Pipe\nfrom multiprocessing.connection import wait\n\n"
    "one, other = Pipe()\nfirst = wait([one])\n",
    "joblib": "from joblib import Parallel, delayed\n\n"
    "first = Parallel(2, return_as='generator_unordered')(delayed(len)(it) for it in ['a', 'b'])\n",
    "ray": "import ray\n\nwork = ray.remote(len)\ndone, rest = ray.wait([work.remote('a')])\n",
    "messages": "import zmq\n\nsocket = zmq.Context().socket(zmq.PULL)\nfirst = socket.recv_pyobj()\n",
    "connected programs": "import socket\n\ntaken = socket.socket()\nfirst = taken.recv(8)\n",
}


@pytest.mark.parametrize("name", AS_READY)
def test_an_order_of_arrival_is_named(name: str) -> None:
    text = PROGRAM.replace(LOADER, AS_READY[name] + LOADER)
    _, conversion = converted(text)
    (warning,) = [it for it in conversion.findings if it.severity is Severity.WARNING]
    line = text[: text.index("first =" if "first =" in text else "done, ")].count("\n") + 1
    assert (warning.rule, warning.location.span.line) == ("DDP503", line)
    assert "completion order" in warning.message


def test_results_of_workers_that_draw_for_themselves_are_named() -> None:
    """ray's actors are processes of each rank's own: nothing seeds them alike."""
    given = "import ray\n\nwork = ray.remote(torch.rand)\nfirst = ray.get([work.remote(2)])\n"
    _, conversion = converted(PROGRAM.replace(LOADER, given + LOADER))
    (warning,) = [it for it in conversion.findings if it.severity is Severity.WARNING]
    assert (warning.rule, warning.location.span.line) == ("DDP503", 10)
    assert "random numbers differ across ranks" in warning.message


def test_an_order_that_is_kept_is_no_matter() -> None:
    kept = (
        "from concurrent.futures import ThreadPoolExecutor\nfrom joblib import Parallel, delayed\n\n"
        "pool = ThreadPoolExecutor()\nfirst = list(pool.map(len, ['a', 'b']))\n"
        "second = Parallel(2, return_as='generator')(delayed(len)(it) for it in ['a', 'b'])\n"
    )
    _, conversion = converted(PROGRAM.replace(LOADER, kept + LOADER))
    assert not [it for it in conversion.findings if it.severity is Severity.WARNING]


HARMLESS = {
    "a seed": "import random\n\nrandom.seed(1)\n",
    "a seed from an agreed generator": "import random\n\nseed = random.randint(1, 10000)\ntorch.manual_seed(seed)\n",
    "a question about time": "import time\n\nif time.time() > 0:\n    print('now')\n",
    "a name with the time": 'import time\n\nname = f"run-{time.time()}"\nif name is not None:\n    model.train()\n',
    "a file without numbers": 'with open("out.txt", "w") as file:\n    file.write("1")\n',
    "a sorted set": "names = sorted(list(set(['a', 'b'])))\n",
}


@pytest.mark.parametrize("name", HARMLESS)
@pytest.mark.parametrize("program", [PROGRAM, SUM], ids=["sharded", "whole batch"])
def test_what_all_processes_have_alike_is_no_matter(name: str, program: str) -> None:
    _, conversion = converted(program.replace(LOOP, HARMLESS[name] + LOOP))
    assert not [f for f in conversion.findings if f.rule == "DDP503" and f.severity is not Severity.NOTE]


@pytest.mark.parametrize("program", [PROGRAM, SUM], ids=["sharded", "whole batch"])
def test_ctrl_c_is_named_and_an_order_of_strings_is_the_same_everywhere(program: str) -> None:
    text = program.replace(LOOP, "names = list(set(['a', 'b']))\n" + LOOP)
    body = text[text.index(LOOP) :]
    indented = "".join(f"    {line}\n" for line in body.splitlines())
    text = text.replace(body, f"try:\n{indented}except KeyboardInterrupt:\n    print('stopped')\n")
    _, conversion = converted(text)
    (said,) = [it.message for it in conversion.findings if it.rule == "DDP503" and not it.edits]
    assert "Ctrl-C" in said


# Sharded


def test_what_one_function_makes_of_settings_is_dealt_where_it_is_drawn() -> None:
    after, conversion = converted(CONFIGURED)
    assert conversion.scripts[0].tier == "sharded", [f for f in conversion.findings if not f.edits]
    assert "    for inputs, targets in ddp.shard(loader):\n" in after and after.count("ddp.shard(") == 1
    whole, _ = converted(CONFIGURED.replace(LOSS, "loss = criterion(outputs @ outputs.t(), targets.cuda())"))
    assert "ddp.DataParallel(model)" in whole and "ddp.share(" not in whole


@pytest.mark.parametrize("name", SHARDED_LOADERS)
def test_a_loader_that_no_distributed_sampler_can_serve_is_sharded_as_it_is(name: str) -> None:
    after, conversion = converted(PROGRAM.replace(LOADER, SHARDED_LOADERS[name]))
    assert conversion.scripts[0].tier == "sharded"
    assert sorted(calls(after)) == ["DistributedDataParallel", "init", "shard"]
    again = convert(Project.of({PATH: after}))
    assert not again.changes and not again.findings


def test_the_call_of_several_lines_stays_as_it_is() -> None:
    after, _ = converted(PROGRAM.replace(LOADER, SHARDED_LOADERS["weights"]))
    assert SHARDED_LOADERS["weights"] + "\nloader = ddp.shard(loader)\n" in after


@pytest.mark.parametrize("name", DEALT)
def test_a_loader_that_serves_others_is_sharded_where_the_training_draws_from_it(name: str) -> None:
    after, conversion = converted(PROGRAM.replace(LOADER, DEALT[name]))
    assert conversion.scripts[0].tier == "sharded", [f for f in conversion.findings if not f.edits]
    assert calls(after).count("shard") == 1 and DEALT[name] in after
    assert "    for inputs, targets in ddp.shard(loader):\n" in after
    counted = PROGRAM.replace(LOADER, DEALT[name]).replace(
        "inputs, targets in loader", "_, (inputs, targets) in source"
    )
    counted = counted.replace("    for _, (", "    source = enumerate(loader)\n    for _, (")
    assert "source = enumerate(ddp.shard(loader))\n" in converted(counted)[0]


def test_to_ask_whether_there_are_outputs_decides_nothing() -> None:
    _, conversion = converted(
        PROGRAM.replace(FORWARD, f"{FORWARD}\n        if outputs is None:\n            break")
    )
    assert conversion.scripts[0].tier.startswith("sharded")


def test_a_list_of_batches_is_sharded_where_it_is_filled() -> None:
    text = PROGRAM.replace(LOADER, LOADER + "\nbatches = [batch for batch in loader]").replace(
        "in loader:", "in batches:"
    )
    after, conversion = converted(text)
    assert conversion.scripts[0].tier == "sharded", [f for f in conversion.findings if not f.edits]
    line = "loader = DataLoader(data, batch_size=ddp.local_batch_size(16), shuffle=False, sampler=sampler)"
    assert line in ast.unparse(ast.parse(after)) and "set_epoch" not in after
    assert "    for inputs, targets in batches:\n" in after


@pytest.mark.parametrize("name", MEANS)
def test_a_mean_over_samples_is_sharded_however_it_is_written(name: str) -> None:
    after, conversion = converted(MEANS[name])
    assert conversion.scripts[0].tier == "sharded", [f for f in conversion.findings if not f.edits]
    assert "ddp.DistributedDataParallel(" in after


def test_a_number_of_samples_that_is_the_whole_batch_s_is_not_named_beside_others() -> None:
    text = PROGRAM.replace(
        "    for inputs, targets in loader:", "    for i, (inputs, targets) in enumerate(loader):"
    )
    _, conversion = converted(text + "    print('%d images' % (i * 16 + inputs.data.shape[0]))\n")
    assert conversion.scripts[0].tier == "sharded"
    assert not [it for it in conversion.findings if it.rule == "DDP502" and not it.edits]


def test_what_is_summed_by_names_from_the_whole_batch_is_not_named() -> None:
    text = PROGRAM.replace(LOOP, "sums = {'first': 0.0, 'second': 0.0}\n" + LOOP)
    text += (
        "        for name, value in zip(('first', 'second'), (loss, outputs.mean())):\n"
        "            sums[name] += value.item()\nprint(sums)\n"
    )
    _, conversion = converted(text)
    assert conversion.scripts[0].tier == "sharded"
    assert not [it for it in conversion.findings if it.rule == "DDP502" and not it.edits]


SAMPLED = "loader = DataLoader(data, batch_size=16, sampler=torch.utils.data.RandomSampler(data))"


@pytest.mark.parametrize("name", OWN_LOSSES)
def test_a_loss_that_the_model_computes_weighs_the_same_in_all_parts(name: str) -> None:
    """Parts that a DistributedSampler deals have one size; those that ``shard`` deals may have several."""
    text = OWN_LOSSES[name] + "    print(loss.item())\n"
    after, conversion = converted(text)
    assert conversion.scripts[0].tier == "sharded", [f for f in conversion.findings if not f.edits]
    assert "DistributedSampler(" in after and "print(ddp.batch_loss(loss).item())" in after
    for dealt in (converted(text, exact=True)[0], converted(text.replace(LOADER, SAMPLED))[0]):
        assert "weighed=False" in dealt and "DistributedDataParallel" in dealt


@pytest.mark.parametrize("name", EVEN_LOSSES)
def test_a_loss_of_which_it_is_not_known_how_parts_weigh_needs_equal_ones(name: str) -> None:
    after, conversion = converted(EVEN_LOSSES[name])
    assert conversion.scripts[0].tier == "sharded", [f for f in conversion.findings if not f.edits]
    assert "DistributedSampler(" in after
    for dealt in (
        converted(EVEN_LOSSES[name], exact=True)[1],
        converted(EVEN_LOSSES[name].replace(LOADER, SAMPLED))[1],
    ):
        assert dealt.scripts[0].tier == "whole batch"
        assert "may not be a mean over samples" in next(f for f in dealt.findings if not f.edits).message


def test_losses_of_two_kinds_need_equal_parts() -> None:
    """One that the model computes, and one that is a mean over the samples."""
    text = OWN_LOSSES["a number, where there are several"].replace(LOADER, SAMPLED)
    second = (
        "        optimizer.zero_grad()\n        criterion(model(inputs.cuda()), targets.cuda()).backward()\n"
    )
    assert converted(text)[1].scripts[0].tier == "sharded"
    _, conversion = converted(text + second)
    assert conversion.scripts[0].tier == "whole batch"
    assert converted(text.replace(SAMPLED, LOADER) + second)[1].scripts[0].tier == "sharded"


def test_gradients_given_to_a_backward_pass_are_no_mean() -> None:
    text = OWN_LOSSES["a number by its use"].replace(
        "loss.backward()", "loss.backward(torch.ones_like(loss))"
    )
    assert converted(text)[1].scripts[0].tier == "whole batch"


def test_a_structure_that_is_taken_apart_and_put_together_in_every_step_is_no_endless_one() -> None:
    function = (
        "def kept(state):\n    if isinstance(state, torch.Tensor):\n        return state.detach()\n"
        "    return tuple(kept(part) for part in state)\n\n\n"
    )
    text = PROGRAM.replace("for epoch", function + "for epoch").replace(
        FORWARD, "state = kept(state)\n        outputs, state = model(inputs.cuda(), state)"
    )
    text = text.replace(LOOP, "state = (torch.zeros(1, 2), torch.zeros(1, 2))\n" + LOOP)
    text += "        print(loss.item())\n"
    assert converted(text)[1].scripts[0].tier


@pytest.mark.parametrize("name", SCALED)
def test_a_loss_in_which_parts_weigh_differently_is_scaled(name: str) -> None:
    after, conversion = converted(SCALED[name] + "    print(loss.item())\n")
    assert conversion.scripts[0].tier == "sharded", [f for f in conversion.findings if not f.edits]
    assert calls(after).count("batch_loss") == (2 if "beside" in name else 1)
    assert calls(after).count("loss_weight") == ("class" in name or "labels" in name)
    assert "whole_batch" not in after and not [
        f for f in conversion.findings if f.rule == "DDP502" and not f.edits
    ]
    again = convert(Project.of({PATH: after}))
    assert not again.changes and not again.findings


@pytest.mark.parametrize("name", COMBINED)
def test_sums_and_means_are_combined_where_they_meet(name: str) -> None:
    after, conversion = converted(COMBINED[name] + "    print(loss.item())\n")
    assert conversion.scripts[0].tier == "sharded", [f for f in conversion.findings if not f.edits]
    assert "ddp.batch_loss(" in after or "some" in name
    assert not [f for f in conversion.findings if f.is_left]
    again = convert(Project.of({PATH: after}))
    assert not again.changes and not again.findings


@pytest.mark.parametrize("name", GATHERED)
def test_a_loss_over_the_batch_is_given_the_rows_of_all_processes(name: str) -> None:
    after, conversion = converted(GATHERED[name] + "    print(loss.item())\n")
    assert conversion.scripts[0].tier == "sharded", [f for f in conversion.findings if not f.edits]
    assert calls(after).count("whole_batch") == (1 if "criterion(*" in after else 2 + ("meet" in name))
    assert not [f for f in conversion.findings if f.is_left]
    assert ("if ddp.batch_sum(count) > 0:\n" in after) == ("where there are some" in name)
    again = convert(Project.of({PATH: after}))
    assert not again.changes and not again.findings


def test_a_loss_over_the_batch_is_given_rows_in_the_original_s_order() -> None:
    text = GATHERED["samples compared"]
    assert "DistributedSampler(" in converted(text)[0]
    assert "ddp.shard(" in converted(text.replace(", shuffle=True", ""))[0]
    after = converted(text.replace("shuffle=True", "shuffle=len(data) > 3"))[0]
    assert "ddp.shard(" in after and "set_epoch" not in after


@pytest.mark.parametrize("name", {**OTHERS, **UNGATHERED})
def test_another_loss_is_not(name: str) -> None:
    _, conversion = converted({**OTHERS, **UNGATHERED}[name])
    assert conversion.scripts[0].tier == "whole batch"
    assert "DDP501" in [f.rule for f in conversion.findings if not f.edits]


def test_labels_that_are_made_of_no_sample_are_those_of_the_whole_batch() -> None:
    """As many as it has rows: a rank takes its part of them, or the batches stay whole."""
    labels = "labels = torch.arange(16).cuda() % 2\n        loss = criterion(outputs, labels)"
    counted = f"{labels}\n        print((outputs.argmax(1) == labels).sum())"
    for loss in (labels, counted):
        after, conversion = converted(PROGRAM.replace(LOSS, loss))
        assert conversion.scripts[0].tier == "whole batch" or "ddp.local_batch(torch.arange(16)" in after


NOISE = OPTIONS + "noise = torch.randn(args.size, 8)\n"
SIZED = PROGRAM.replace("data = ", NOISE + "data = ").replace("batch_size=16", "batch_size=args.size")
SIZED = SIZED.replace("import torch\n", "import torch\nimport torchvision.utils as images\n", 1)


@pytest.mark.parametrize(
    ("use", "tier"),
    [
        ("    fake = model(noise).detach().cpu()\n    images.save_image(fake, 'out.png')\n", "sharded"),
        (
            "    fake = model(noise.cuda())\n    shown = images.make_grid(fake.data)\n    images.save_image(shown, 'out.png')\n",
            "sharded",
        ),
        ("    fake = model(noise)\n    fake.mean().backward()\n", "whole batch"),
        ("    images.save_image(noise + outputs, 'out.png')\n", "whole batch"),
    ],
)
def test_noise_as_large_as_the_batch_is_no_matter_where_it_is_only_shown(use: str, tier: str) -> None:
    assert converted(SIZED + use)[1].scripts[0].tier == tier


@pytest.mark.parametrize(
    "given",
    [
        "torch.autograd.Variable(torch.randn(inputs.size(0), 8)).cuda()",
        "torch.cat([torch.rand(inputs.size(0), 4).cuda(), inputs[:, :4].cuda()], 1)",
        "inputs.cuda() + 0.1 * torch.randn_like(inputs)",
    ],
)
def test_a_model_of_random_numbers_is_given_those_of_its_rank(given: str) -> None:
    """Else the batch would have each of them as often as there are processes."""
    text = PROGRAM.replace(FORWARD, f"given = {given}\n        outputs = model(given)")
    after, conversion = converted(text)
    assert conversion.scripts[0].tier == "sharded"
    assert after.count("ddp.local_random(torch.rand") == 1


@pytest.mark.parametrize("loop", ["while True:\n", 'for phase in ["warm", "cold"]:\n'])
def test_a_loop_that_counts_nothing_needs_a_loader_that_reshuffles_by_itself(loop: str) -> None:
    after, conversion = converted(PROGRAM.replace(LOOP, loop))
    assert conversion.scripts[0].tier == "sharded"
    assert "loader = ddp.shard(DataLoader(data, batch_size=16, shuffle=True))" in after


HOOKS = {
    "a bound": "for name, p in model.named_parameters():\n    if p.requires_grad:\n        p.register_hook(lambda grad: grad.clamp(-1, 1))",
    "a factor": "for p in model.parameters():\n    p.register_hook(lambda grad: -0.5 * grad / 2)",
    "a mask": "mask = torch.ones(2, 8)\nmodel.weight.register_hook(lambda g: g.mul(mask.to(g.device)))",
    "a mask that is a default": 'masks = {"all": torch.ones(2, 8)}\n'
    'model.weight.register_hook(lambda g, k=masks["all"]: g * k)',
    "rows": "def hook(grad):\n    grad = grad.clone()\n    grad[:1] = 0\n    grad *= 2\n    return grad\n\n\n"
    "model.weight.register_hook(hook)",
}


@pytest.mark.parametrize("name", HOOKS)
def test_hooks_of_parameters_get_averages(name: str) -> None:
    _, conversion = converted(PROGRAM.replace(WRAP, HOOKS[name] + "\n" + WRAP))
    assert conversion.scripts[0].tier == "sharded"
    assert not [f for f in conversion.findings if f.is_left]


def test_hooks_of_outputs_see_those_of_a_part() -> None:
    """Not those of parameters; whole batches have all."""
    seen = "seen = []\nmodel.weight.register_hook(lambda grad: seen.append(grad.norm()))\n"
    _, conversion = converted(PROGRAM.replace(WRAP, seen + WRAP))
    assert conversion.scripts[0].tier == "sharded" and not any(it.is_left for it in conversion.findings)
    looks = "        outputs.register_hook(lambda grad: print(grad.norm()))\n        loss = criterion"
    _, conversion = converted(PROGRAM.replace("        loss = criterion", looks))
    (left,) = (finding for finding in conversion.findings if finding.is_left)
    assert "local gradients" in left.message and conversion.scripts[0].tier == "sharded"
    cut = "        outputs.register_hook(lambda grad: grad.clamp(-1, 1))\n        loss = criterion"
    _, conversion = converted(PROGRAM.replace("        loss = criterion", cut))
    assert conversion.scripts[0].tier == "whole batch"


@pytest.mark.parametrize("name", PULLED)
def test_a_loader_whose_batches_are_pulled_keeps_its_order(name: str) -> None:
    after, conversion = converted(PULLED[name])
    assert conversion.scripts[0].tier == "sharded"
    assert not [finding for finding in conversion.findings if finding.is_left]
    pulled = "others = " if "others" in after else "loader = "
    made = "batches = iter(" if "batches = None" in after else pulled
    assert made + "ddp.shard(DataLoader(" in after


def test_an_iterator_that_is_pulled_from_elsewhere_too_keeps_the_batches_whole() -> None:
    """What is pulled there would be a part."""
    text = PULLED["a number of steps"].replace("steps = 0\n", "steps = 0\nfirst = next(batches)\n")
    _, conversion = converted(text)
    assert conversion.scripts[0].tier == "whole batch"


@pytest.mark.parametrize("place", UNDRAWN)
def test_where_batches_are_drawn_that_no_loop_draws_is_named(place: str) -> None:
    said, text = UNDRAWN[place]
    _, conversion = converted(text)
    assert conversion.scripts[0].tier == "whole batch"
    (reason,) = (it for it in conversion.findings if not it.edits)
    assert said in reason.message
    assert place in text.splitlines()[reason.location.span.line - 1]


def test_a_list_that_is_filled_has_what_is_put_into_it() -> None:
    text = PROGRAM.replace(LOADER, "loaders = []\nloaders.append(DataLoader(data, batch_size=16))")
    _, conversion = converted(text.replace("in loader:", "in loaders[0]:"))
    assert conversion.scripts[0].tier == "sharded"


def test_writers_in_a_list_that_is_filled_are_the_main_process_s() -> None:
    filled = "from tensorboardX import SummaryWriter\nwriters = []\nfor name in ('a', 'b'):\n    writers.append(SummaryWriter(name))\n"
    text = PROGRAM.replace(LOOP, filled + LOOP) + "    writers[0].add_scalar('epoch', epoch, 0)\n"
    after, _ = converted(text)
    assert "    writers.append(ddp.on_main_process(SummaryWriter)(name))\n" in after
    assert "    writers[0].add_scalar(" in after and "is_main_process():" not in after


def test_a_loss_that_an_option_chooses_is_named() -> None:
    """Where the model's own forward calls it, and not where its result is used."""
    options = (
        "import argparse\n\nparser = argparse.ArgumentParser()\nparser.add_argument('--kind', type=eval)\n"
        "args = parser.parse_args()\n\n\nclass Both(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.net = nn.Linear(8, 2)\n        self.loss = args.kind()\n\n"
        "    def forward(self, x, y):\n        found = self.loss(self.net(x), y)\n        return found\n\n\n"
        "model = Both().cuda()\n"
    )
    text = PROGRAM.replace("model = nn.Linear(8, 2).cuda()\n", options)
    text = text.replace(FORWARD, "losses = model(inputs.cuda(), targets.cuda())")
    text = text.replace(LOSS, "losses = [it.mean() for it in losses]\n        loss = losses[0]")
    _, conversion = converted(text)
    (reason,) = (it for it in conversion.findings if not it.edits)
    assert "`self.loss(" in reason.message and "unknown code, which may mix samples" in reason.message
    _, known = converted(text.replace("args.kind()", "nn.CrossEntropyLoss()"))
    assert not any("seen" in it.message for it in known.findings)


@pytest.mark.parametrize("name", PHASES)
def test_loops_that_train_and_evaluate_draw_the_very_batches_in_parts(name: str) -> None:
    """A sampler would see some samples of the evaluation twice."""
    after, conversion = converted(PHASES[name])
    assert conversion.scripts[0].tier == "sharded"
    assert not [finding for finding in conversion.findings if finding.is_left]
    assert calls(after).count("shard") == (1 if "one" in name else 2)
    assert "DistributedSampler" not in after and "set_epoch" not in after


@pytest.mark.parametrize("name", HANDED)
def test_objects_that_hand_out_the_batches_of_a_loader_are_followed(name: str) -> None:
    after, conversion = converted(HANDED[name])
    assert conversion.scripts[0].tier == "sharded"
    assert not [finding for finding in conversion.findings if finding.is_left]
    assert "    sampler.set_epoch(epoch)\n" in after


def test_an_iterator_over_what_has_its_name_is_followed() -> None:
    """In each epoch it goes over the one of the epoch before."""
    text = PROGRAM.replace("    for inputs", "    loader = enumerate(loader)\n    for inputs")
    _, conversion = converted(text.replace("for inputs, targets in", "for _, (inputs, targets) in"))
    assert conversion.scripts[0].tier == "sharded"


def test_what_works_otherwise_in_several_processes_is_named() -> None:
    """A warning, where it is done anyway; where an option asks for it, or nothing changes, a note."""
    norms = "model = nn.SyncBatchNorm.convert_sync_batchnorm(model)\n"
    apexs = "from apex import parallel\nmodel = parallel.convert_syncbn_model(model)\n"
    option = "import argparse\nargs = argparse.ArgumentParser().parse_args()\nif args.sync:\n    "
    for line, said, is_left in (
        (norms, "SyncBatchNorm", True),
        (apexs, "SyncBatchNorm", True),
        (option + norms, "SyncBatchNorm", False),
        ("from apex import amp\nmodel = amp.initialize(model, opt_level='O2')\n", "apex amp", False),
    ):
        _, conversion = converted(PROGRAM.replace(WRAP, line + WRAP))
        (named,) = (finding for finding in conversion.findings if said in finding.message)
        assert named.is_left == is_left
        assert conversion.scripts[0].tier == "sharded"


def test_a_sampler_is_told_the_epoch_by_a_name_that_always_has_one() -> None:
    """Where a name may hold a loader without, those with one keep their own order."""
    other = LOADER.replace("shuffle=True", "sampler=torch.utils.data.SubsetRandomSampler(range(7, 50))")
    made = f"\n\ndef made(some):\n    if some:\n        {other}\n    else:\n        {LOADER}\n    return loader\n\n\n"
    after, conversion = converted(PROGRAM.replace(LOADER, made + "loader = made(len(data) > 100)"))
    assert conversion.scripts[0].tier == "sharded"
    assert calls(after).count("shard") == 2 and "set_epoch" not in after
    both = made.replace(other, LOADER.replace("shuffle=True", "shuffle=True, drop_last=True"))
    after, _ = converted(PROGRAM.replace(LOADER, both + "loader = made(len(data) > 100)"))
    assert calls(after).count("shard") == 0 and "    loader.sampler.set_epoch(epoch)\n" in after


def test_loaders_that_are_drawn_from_at_once_have_orders_of_their_own() -> None:
    """With one seed for both, samples would meet the same others in every epoch, or themselves."""
    zipped = PROGRAM.replace("in loader:", "in zip(loader, others):").replace(
        "for inputs, targets", "for (inputs, targets), (more, _)"
    )
    zipped = zipped.replace("model(inputs.cuda())", "model(inputs.cuda() + more.cuda())")
    after, _ = converted(zipped.replace(LOADER, LOADER + LOADER.replace("loader", "\nothers", 1)))
    assert "sampler = DistributedSampler(data, shuffle=True, seed=ddp.shared_seed())\n" in after
    assert "others_sampler = DistributedSampler(data, shuffle=True, seed=ddp.shared_seed() + 1)\n" in after
    made = "\n\ndef made():\n    return DataLoader(data, batch_size=16, shuffle=True)\n\n\nloader, others = made(), made()"
    after, _ = converted(zipped.replace(LOADER, made))
    assert "return ddp.shard(DataLoader(data, batch_size=16, shuffle=True))" in after


SEED = "torch.manual_seed(3)\n"
SEEDING = f"def seed_all(seed=3):\n    {SEED}\n\n"
WORKERS = f"""def begin(worker):
    torch.manual_seed(worker)


{LOADER.replace("shuffle=True", "shuffle=True, num_workers=2, worker_init_fn=begin")}
others = DataLoader(data, batch_size=16, num_workers=2, worker_init_fn=begin)
"""
SEEDED_BEFORE = {
    "at once": (LOADER, SEED + LOADER),
    "in a function": (LOADER, f"{SEEDING}seed_all()\n{LOADER}"),
    "perhaps": (LOADER, f"if len(data) > 3:\n    {SEED}{LOADER}"),
    "and in each epoch again": (LOADER + "\n", f"{SEED}{LOADER}\n\n{SEEDING}"),
    "in its workers": (LOADER, WORKERS),
}


@pytest.mark.parametrize("name", SEEDED_BEFORE)
def test_a_seed_that_is_set_before_the_loader_is_made_is_its_sampler_s(name: str) -> None:
    line, lines = SEEDED_BEFORE[name]
    text = PROGRAM.replace(line, lines)
    if "again" in name:
        text = text.replace(LOOP, f"{LOOP}    seed_all(epoch)\n")
    after, _ = converted(text)
    assert "seed=ddp.shared_seed()" in after and "shard" not in calls(after)


TRAINED = {
    "before the wrap": (WRAP, OPTIMIZER.replace("optimizer", "early") + "\n" + WRAP),
    "of the bare model": (OPTIMIZER, OPTIMIZER.replace("model.", "model.module.")),
    "a list": (OPTIMIZER, OPTIMIZER.replace("model.parameters()", "list(model.parameters())")),
    "a choice": (
        OPTIMIZER,
        OPTIMIZER.replace("model.parameters()", "filter(lambda p: p.requires_grad, model.parameters())"),
    ),
    "groups": (
        OPTIMIZER,
        'groups = [{"params": model.module.weight}]\ngroups.append({"params": [model.module.bias]})\n'
        "optimizer = torch.optim.SGD(groups + [{'params': model.parameters()}], lr=0.1)",
    ),
    "a name": (OPTIMIZER, "chosen = model.parameters()\noptimizer = torch.optim.SGD(chosen, lr=0.1)"),
    "a function": (
        OPTIMIZER,
        "def pick(net):\n    kept = []\n    for name, p in net.named_parameters():\n        kept += [p]\n    return kept\n\n\n"
        "optimizer = torch.optim.SGD(pick(model), lr=0.1)",
    ),
    "groups by name": (
        OPTIMIZER,
        "groups = [{'params': [it]} for name, it in model.named_parameters() if it.requires_grad]\n"
        "optimizer = torch.optim.SGD(groups, lr=0.1)",
    ),
}


@pytest.mark.parametrize("name", TRAINED)
def test_an_optimizer_of_the_wrapped_model_does_not_matter(name: str) -> None:
    _, conversion = converted(PROGRAM.replace(*TRAINED[name]))
    assert conversion.scripts[0].tier == "sharded", [f for f in conversion.findings if not f.edits]


HELD_OUT = """\
import glob


class Held(torch.utils.data.Dataset):
    def __init__(self):
        names = sorted(glob.glob("held/*.png"))
        self.names = [names[it] for it in np.random.permutation(len(names))[:40]]

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        return torch.randn(8), int(self.names[index][-5])


def validate(net):
    hits = 0
    for inputs, targets in DataLoader(Held(), batch_size=16):
        hits += (net(inputs).argmax(1) == targets).sum().item()
    return hits


data = """


def test_a_permutation_of_what_is_no_batch_does_not_matter() -> None:
    """A data set that a validation amid the training makes draws the files that it has."""
    text = "import numpy as np\n" + PROGRAM.replace("data = ", HELD_OUT, 1)
    assert converted(text + "        validate(model.module)\n")[1].scripts[0].tier == "sharded"


def test_a_helper_that_trains_a_wrapped_model_and_a_bare_one_is_given_the_second_synced() -> None:
    helper = "def chosen(model):\n    return torch.optim.SGD(model.parameters(), lr=0.1)\n\n\n"
    text = PROGRAM.replace("data = ", helper + "data = ").replace(OPTIMIZER, "optimizer = chosen(model)")
    assert converted(text)[1].scripts[0].tier == "sharded"
    after, conversion = converted(
        text.replace(CRITERION, CRITERION + "\nhead = nn.Linear(2, 2).cuda()\nother = chosen(head)").replace(
            LOSS, "loss = criterion(head(outputs), targets.cuda())"
        )
    )
    assert conversion.scripts[0].tier == "sharded"
    assert calls(after).count("sync_gradients") == 1
    assert "\nhead = nn.Linear(2, 2).cuda()\nddp.sync_gradients(head)\n" in after
    moved = text.replace(
        CRITERION,
        CRITERION + "\nhead = nn.Linear(2, 2)\nif data:\n    head = head.cuda()\nother = chosen(head)",
    )
    assert "\nddp.sync_gradients(head)\nother = chosen(head)\n" in converted(moved)[0]


@pytest.mark.parametrize("name", BARE)
def test_what_is_trained_beside_the_model_is_synced(name: str) -> None:
    """Before its parameters are given to the optimizer, under any name; a second conversion has nothing to do."""
    synced, _ = BARE[name]
    for word in (synced, "zz"):
        after, conversion = converted(re.sub(rf"\b{synced}\b", word, bare(name)))
        assert conversion.scripts[0].tier == "sharded", [f for f in conversion.findings if not f.edits]
        made, _, used = after.partition(f"\nddp.sync_gradients({word})\n")
        assert made.rpartition("\n")[2].startswith((f"{word} = ", f"{word}.encoder = ", f"{word}.layers = "))
        assert (
            "torch.optim." not in made and "torch.optim." in used and f"\n{word}.layers = " not in f"\n{used}"
        )
        assert calls(after).count("sync_gradients") == 1 and ".forward(" not in after.replace(
            "layers.forward", ""
        )
        again = convert(Project.of({PATH: after}))
        assert not again.changes and not again.findings


@pytest.mark.parametrize("name", LATER_HEADS)
def test_what_is_trained_beside_the_model_is_synced_with_its_last_layers(name: str) -> None:
    after, conversion = converted(LATER_HEADS[name])
    assert conversion.scripts[0].tier == "sharded"
    assert after.count("ddp.sync_gradients(head)\noptimizer = ") == after.count("optimizer = ")


@pytest.mark.parametrize("name", NOT_BARE)
def test_what_needs_the_whole_batch_beside_the_model_keeps_it(name: str) -> None:
    text, reason = NOT_BARE[name]
    after, conversion = converted(text)
    assert conversion.scripts[0].tier == "whole batch" and "sync_gradients" not in after
    (found,) = [f for f in conversion.findings if f.rule == "DDP106"]
    assert reason in found.message and not found.edits


@pytest.mark.parametrize(
    "test",
    ["outputs.max() > 0", "float(outputs.std()) > 0", "torch.any(outputs > 0)"],
)
def test_a_module_that_only_some_parts_come_to_keeps_the_batches_whole(test: str) -> None:
    """Each process would decide by its own part whether it takes part in the average."""
    text = headed(HEAD, "outputs")
    more = (
        f"        if {test}:\n            loss = loss + 0.1 * head(outputs).mean()\n        loss.backward()\n"
    )
    assert converted(text.replace("        loss.backward()\n", more))[1].scripts[0].tier == "whole batch"


PART = """\
net = models.resnet18(num_classes=4)
net.fc = nn.Linear(net.fc.in_features, 2)
if torch.cuda.device_count() > 1:
    net = nn.DataParallel(net)
model = net.cuda()
head = model.module.fc if isinstance(model, nn.DataParallel) else HEAD
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
"""


@pytest.mark.parametrize(
    ("head", "tier"), [("model.fc", "sharded"), ("nn.BatchNorm1d(2).cuda()", "whole batch")]
)
def test_a_name_may_stand_for_a_part_of_the_wrapped_model(head: str, tier: str) -> None:
    text = PROGRAM.replace("import torch\n", "import torch\nfrom torchvision import models\n", 1)
    start, end = text.index("model = "), text.index("optimizer = ")
    end = text.index("\n", end) + 1
    text = text[:start] + PART.replace("HEAD", head) + text[end:]
    (script,) = converted(text.replace("torch.randn(64, 8)", "torch.randn(64, 3, 32, 32)"))[1].scripts
    assert script.tier == tier


TWINS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.body(x))


loader = DataLoader(TensorDataset(torch.randn(24, 4), torch.randint(2, (24,))), batch_size=6)
net, other = Net(), Net()
PREPARED
optimizer = torch.optim.SGD(list(model.module.body.parameters()) + list(TRAINED.parameters()), lr=0.1)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x), y) + TRAINED(x.repeat(1, 2)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("trained", "prepared", "beside"),
    [
        ("head", "model = nn.DataParallel(net)\nhead = model.module.head", False),
        (
            "head",
            "net.head = nn.Linear(8, 2)\nmodel = nn.DataParallel(net)\nhead = model.module.head",
            False,
        ),
        ("head", "model = nn.DataParallel(net)\nhead = net.head\nnet.head = nn.Linear(8, 2)", True),
        ("head", "head = net.head\nnet.head = nn.Linear(8, 2)\nmodel = nn.DataParallel(net)", True),
        ("head", "model = nn.DataParallel(net)\nhead = other.head", True),
        (
            "head",
            "model = nn.DataParallel(net)\nhead = other.head if len(loader) else net.head",
            True,
        ),
        ("other.head", "model = nn.DataParallel(net)", True),
    ],
)
def test_what_a_wrapped_model_no_longer_has_or_another_object_of_its_class_has_is_none_of_its_parts(
    trained: str, prepared: str, beside: bool
) -> None:
    text = TWINS.replace("PREPARED", prepared).replace("TRAINED", trained)
    changes, conversion = converted(text)
    assert conversion.scripts[0].tier == "sharded"
    assert ("ddp.sync_gradients(" in changes) == beside


def test_the_forward_of_a_base_class_stays() -> None:
    base = module("return self.body(x)").replace("class Head", "class Base")
    head = "class Head(Base):\n    def forward(self, x):\n        return super().forward(x)\n\n\n"
    after, conversion = converted(headed("head = Head().cuda()", "head.forward(outputs)", base + head))
    assert conversion.scripts[0].tier == "sharded"
    assert "super().forward(x)" in after and "head(outputs)" in after


def test_noise_for_a_module_that_is_not_wrapped_is_each_ranks_own() -> None:
    text = headed(HEAD, "outputs + head(torch.randn(len(inputs), 2).cuda())")
    after, conversion = converted(text)
    assert conversion.scripts[0].tier == "sharded"
    assert "head(ddp.local_random(torch.randn)(len(inputs), 2)" in after


BODY = PROGRAM[PROGRAM.index("model = nn.Linear") :]
WRAPPED = {
    "in every branch": PROGRAM.replace(
        WRAP, f"if len(data) > 3:\n    {WRAP}\nelif len(data) > 2:\n    raise SystemExit\nelse:\n    {WRAP}"
    ),
    "in a loop that makes the model": PROGRAM.replace(
        BODY, "for rate in (0.1, 0.2):\n" + "".join(f"    {line}\n" for line in BODY.splitlines())
    ),
    "under two questions about GPUs": PROGRAM.replace(
        WRAP,
        f"if torch.cuda.is_available():\n    if torch.cuda.device_count() > 1:\n        {WRAP}\n    print('GPUs')",
    ),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_a_model_that_is_wrapped_whenever_it_trains_is_sharded(name: str) -> None:
    after, conversion = converted(WRAPPED[name])
    assert conversion.scripts[0].tier == "sharded", [f for f in conversion.findings if not f.edits]
    for node in ast.walk(ast.parse(after)):
        if isinstance(node, ast.If) and "cuda" in ast.unparse(node.test):
            assert "DistributedDataParallel" not in ast.unparse(node)


READ = """\
model = Net()
state = {}
if torch.cuda.is_available():
    if torch.cuda.device_count() > 1:
        model.encoder = nn.DataParallel(model.encoder)
    else:
        state = {key.replace("module.", ""): value for key, value in state.items()}
    model = model.cuda()
    model.load_state_dict(state, strict=False)
else:
    raise SystemExit
"""
STAYS = PROGRAM.replace(
    "model = nn.Linear(8, 2).cuda()\n", PARTS.replace("model = Net().cuda()\n", READ)
).replace(WRAP + "\n", "")


def test_a_wrap_for_several_gpus_stays_beside_checkpoints_that_are_read_otherwise_for_one() -> None:
    after, conversion = converted(STAYS)
    assert conversion.scripts[0].tier == "sharded", [f for f in conversion.findings if not f.edits]
    kept = "    if ddp.get_world_size() > 1:\n        model.encoder = ddp.DistributedDataParallel(model.encoder)\n    else:\n"
    assert kept in after
    again = convert(Project.of({PATH: after}))
    assert not again.changes and not again.findings


@pytest.mark.parametrize(
    "changes",
    [
        ("    raise SystemExit\n", "    print('slow')\n"),
        ("device_count() > 1", "device_count() > 2"),
        ('key.replace("module.", "")', "key.lower()"),
        ("if torch.cuda.is_available():", "if len(data) > 3:"),
    ],
)
def test_a_wrap_that_several_processes_may_go_past_stays_under_its_condition(
    changes: tuple[str, str],
) -> None:
    text = STAYS.replace(*changes)
    assert text != STAYS
    after, conversion = converted(text)
    assert conversion.scripts[0].tier == "sharded" and ", if_wrapped=True)" in after
    assert "        model.encoder = ddp.DistributedDataParallel(model.encoder)\n" in after


@pytest.mark.parametrize("name", SOMETIMES_WRAPPED)
def test_a_model_that_is_wrapped_under_a_condition_is_sharded_where_it_is(name: str) -> None:
    after, conversion = converted(PROGRAM.replace(WRAP, SOMETIMES_WRAPPED[name]))
    assert conversion.scripts[0].tier == "sharded", [f for f in conversion.findings if not f.edits]
    assert "loader = ddp.shard(DataLoader(data, batch_size=16, shuffle=True), if_wrapped=True)\n" in after
    (note,) = (it for it in conversion.findings if not it.edits and it.rule == "DDP102")
    assert "otherwise the script runs on one GPU" in note.message
    again = convert(Project.of({PATH: after}))
    assert not again.changes and not again.findings


@pytest.mark.parametrize("name", CHOSEN)
@pytest.mark.parametrize("value", ["1", "2"])
def test_a_model_that_is_wrapped_by_choice_is_wrapped_always(name: str, value: str) -> None:
    """One process is a case like any other."""
    after, conversion = converted(PROGRAM.replace(WRAP, CHOSEN[name].replace("VALUE", value)))
    assert conversion.scripts[0].tier == "sharded", [f for f in conversion.findings if not f.edits]
    for node in ast.walk(ast.parse(after)):
        if isinstance(node, ast.If):
            assert "DistributedDataParallel" not in ast.unparse(node)


def test_a_model_that_is_asked_for_its_own_things_stays_under_its_condition() -> None:
    text = PROGRAM.replace(WRAP, CHOSEN["an option"].replace("VALUE", "2"))
    _, conversion = converted(text + "print(model.weight)\n")
    assert conversion.scripts[0].tier == "sharded"
    assert any("the model is wrapped only if" in f.message for f in conversion.findings)


def test_a_model_made_under_the_condition_of_its_wrap_is_always_wrapped() -> None:
    inside = "".join(f"    {line}\n" for line in BODY.splitlines())
    text = PROGRAM.replace(
        BODY, f"import os\n\nfor part in range(2):\n  if os.environ.get('TRAIN', '1'):\n{inside}"
    )
    after, conversion = converted(text)
    assert conversion.scripts[0].tier == "sharded", [f for f in conversion.findings if not f.edits]
    assert "model = ddp.DistributedDataParallel(model)" in after


def test_a_temporary_folder_is_each_process_s_own() -> None:
    text = (
        "import shutil\nimport tarfile\nimport tempfile\n\nfolder = None\nif len(data) > 3:\n"
        "    folder = tempfile.mkdtemp()\n    with tarfile.open('weights.tar') as archive:\n"
        "        archive.extractall(folder)\nmodel.module.load_state_dict(torch.load(folder + '/model.pt'))\n"
        "if folder:\n    shutil.rmtree(folder)\n"
    )
    after, _ = converted(PROGRAM.replace(CRITERION, text + CRITERION))
    assert "is_main_process" not in after


# Batch-exact


def test_the_batch_exact_form_draws_the_original_s_batches() -> None:
    text = PROGRAM.replace("shuffle=True)", "shuffle=True, num_workers=4)") + "    print(loss.item())\n"
    after, conversion = converted(text, exact=True)
    assert (
        "loader = ddp.shard(DataLoader(data, batch_size=16, shuffle=True, num_workers=ddp.local_workers(4)))"
        in ast.unparse(ast.parse(after))
    )
    assert not {"shared_seed", "local_batch_size"} & set(calls(after))
    assert "set_epoch" not in after and "DistributedSampler" not in after
    assert not [f for f in conversion.findings if f.is_left]
    assert "print(ddp.batch_loss(loss).item())" in after
    assert conversion.scripts[0].tier.startswith("sharded")
    assert converted(SUM, exact=True)[0] == converted(SUM)[0]


# Programs that share lines

TRAINER = """\
import torch
from torch import nn
from torch.utils.data import DataLoader


def wrap(model):
    return nn.DataParallel(model).cuda()


def is_wrapped(model):
    return isinstance(model, nn.DataParallel)


def fit(model, data, criterion):
    loader = DataLoader(data, batch_size=16, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for inputs, targets in loader:
            optimizer.zero_grad()
            criterion(model(inputs), targets).backward()
            optimizer.step()
"""
START = """\
import torch
from torch import nn
from torch.utils.data import TensorDataset

import trainer

data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
"""
MEAN = "trainer.fit(trainer.wrap(nn.Linear(8, 2)), data, nn.CrossEntropyLoss())\n"
TOTAL = (
    "def noisy(outputs, targets):\n    return (outputs - outputs[torch.randperm(len(outputs))]).norm()\n\n\n"
    "trainer.fit(trainer.wrap(nn.Linear(8, 2)), data, noisy)\n"
)
ALONE = "model = nn.DataParallel(nn.Linear(8, 2)).cuda()\nprint(trainer.is_wrapped(model))\n" + PROGRAM[
    PROGRAM.index("criterion") :
].replace("for epoch", LOADER + "\nfor epoch").replace("import", "import")


def project(**scripts: str) -> Conversion:
    files = {PATH.with_name(f"{name}.py"): START + text for name, text in scripts.items()}
    return convert(Project.of({**files, PATH.with_name("trainer.py"): TRAINER}))


def tiers(conversion: Conversion) -> dict[str, str]:
    assert not conversion.errors, conversion.errors
    return {script.path.stem: script.tier for script in conversion.scripts}


def text(conversion: Conversion, name: str) -> str:
    return next(change.after for change in conversion.changes if change.path.stem == name)


def test_programs_that_share_the_wrap_share_the_form() -> None:
    assert tiers(project(mean=MEAN)) == {"mean": "sharded"}
    both = project(mean=MEAN, total=TOTAL)
    assert tiers(both) == {"mean": "whole batch", "total": "whole batch"}
    assert "return ddp.DataParallel(model.cuda())" in text(both, "trainer")


def test_programs_that_share_no_such_line_have_each_its_own() -> None:
    alone = ALONE.replace("DataLoader(", "torch.utils.data.DataLoader(")
    both = project(alone=alone, total=TOTAL)
    assert tiers(both) == {"alone": "sharded", "total": "whole batch"}
    assert "ddp.DistributedDataParallel(" in text(both, "alone")
    assert "isinstance(model, ddp.DistributedDataParallel)" in text(both, "trainer")
    both = project(alone=alone, other=alone.replace("criterion(outputs, targets.cuda())", "outputs.std()"))
    assert tiers(both) == {"alone": "sharded", "other": "whole batch"}
    assert "isinstance(model, (nn.DataParallel, ddp.DistributedDataParallel))" in text(both, "trainer")


# Marks


def test_what_is_left_is_marked_above_its_statement() -> None:
    text = (
        PROGRAM
        + "    if epoch: print(outputs if targets.any() else 0)\n    elif epoch:\n        print(\n            outputs if targets.any() else 0,\n        )\n"
    )
    after, conversion = converted(text, mark=True, sharded=True)
    assert sum(f.is_left for f in conversion.findings) == 2
    lines = [line for line in after.splitlines() if "# dp2ddp: assumes:" not in line]
    marked = [
        lines[index + 1].strip()
        for index, line in enumerate(lines)
        if line.strip().startswith("# dp2ddp: DDP502")
    ]
    assert marked == ["if epoch: print(outputs if targets.any() else 0)", "print("]
    assert ast.dump(ast.parse(after)) == ast.dump(ast.parse(converted(text, sharded=True)[0]))


def test_a_text_of_the_batch_may_choose_the_loss() -> None:
    """Also one that is a sum over the samples."""
    choice = (
        "def compute(outputs, targets, task):\n"
        '    if task == "rows":\n        return nn.functional.cross_entropy(outputs, targets, reduction="sum")\n'
        "    return nn.functional.cross_entropy(outputs, targets)\n\n\n"
        "def step(batch):\n"
        '    return compute(model(batch["x"].cuda()), batch["y"].cuda(), batch["task"])\n\n\n'
    )
    loop = (
        "for batch in loader:\n    optimizer.zero_grad()\n    step(batch).backward()\n    optimizer.step()\n"
    )
    setup = (
        "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader\n\n"
        "from data import Digits\n\nmodel = nn.DataParallel(nn.Linear(8, 2)).cuda()\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nloader = DataLoader(Digits(), batch_size=16)\n\n\n"
    )
    data = "from torch.utils.data import Dataset\n\n\nclass Digits(Dataset):\n    pass\n"
    files = {PATH: setup + choice + loop, PATH.with_name("data.py"): data}
    (change,) = convert(Project.of(files)).changes
    assert "ddp.whole_batch(" in change.after or "ddp.DataParallel" in change.after


def test_models_that_one_expression_wraps_under_a_condition_stay_there() -> None:
    """The wrap can't leave the condition by itself: the name of one model is the comprehension's own."""
    text = PROGRAM.replace(
        "model = nn.DataParallel(model)",
        "other = nn.Linear(8, 2).cuda()\nif torch.cuda.device_count() > 1:\n"
        "    model, other = [nn.DataParallel(one, device_ids=[0, 1]) for one in (model, other)]",
    )
    after, conversion = converted(text)
    assert not conversion.errors and conversion.scripts[0].tier == "sharded"
    assert "    model, other = [ddp.DistributedDataParallel(one) for one in (model, other)]\n" in after


METERED = """
class Meter:
    def __init__(self):
        self.sum = self.count = 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n
        self.avg = self.sum / self.count if self.count != 0 else 0


losses = Meter()
"""


def test_the_numbers_of_a_meter_are_combined_where_it_is_given_them() -> None:
    """``ddp.mean(meter)`` would be a number, of which nothing can be asked."""
    text = PROGRAM.replace("criterion = nn", METERED + "criterion = nn") + (
        "        try:\n            shown = loss.item()\n        except AttributeError:\n            shown = 0\n"
        "        losses.update(shown)\n        print('{loss.avg:.4f}'.format(loss=losses))\n"
    )
    found = convert(Project.of({PATH: text})).findings
    (left,) = [it for it in found if it.rule == "DDP502" and not it.edits]
    assert "`losses`" in left.message and "batch_loss" in left.help and "ddp.mean" not in left.help


IN_TRAINING = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Scales(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Conv1d(3, 4, 1)

    def forward(self, x):
        if self.training:
            return [self.head(x), self.head(x[:, :, ::2])]
        return self.head(x)


def every(labels, length):
    rows = []
    for row in labels:
        rows.append(row.numpy()[:: len(row) // length])
    return torch.tensor(rows)


data = TensorDataset(torch.randn(16, 3, 8), torch.randint(4, (16, 8)))
loader = DataLoader(data, batch_size=4)
model = nn.DataParallel(Scales())
criterion = nn.CrossEntropyLoss(ignore_index=3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.train()
for inputs, targets in loader:
    loss = 0
    for output in model(inputs):
        loss += criterion(output, every(targets, output.shape[2]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_what_a_forward_returns_in_training_is_what_it_trains() -> None:
    """Where the mode is not known, no assumption says more than that; a loss without some labels is no plain mean."""
    after, _ = converted(IN_TRAINING)
    assert "criterion(ddp.whole_batch(output), every(ddp.whole_batch(targets), " in " ".join(
        after.split()
    ).replace("( ", "(")
    unknown = IN_TRAINING.replace("model.train()\n", "")
    for sharded in (False, True):
        (found,) = convert(Project.of({PATH: unknown}), sharded=sharded).scripts
        assert found.tier == "whole batch" and not found.assumptions


ROWS_IN_ARRAYS = """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(24, 4), torch.randint(2, (24,))), batch_size=6)
model = nn.DataParallel(nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
high = 0
for x, y in loader:
    out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    pair = MADE([out[:, 0].detach().numpy(), out[:, 1].detach().numpy()])
    high += (pair.mean(axis=1) > 0).sum()
print(high)
"""


@pytest.mark.parametrize("made", ["np.array", "np.asarray", "np.stack"])
def test_an_array_of_several_has_the_samples_behind_a_dimension_more(made: str) -> None:
    """Two means over the batch are no numbers of samples, which could be added up over the ranks."""
    assert "ddp.sum(" not in converted(ROWS_IN_ARRAYS.replace("MADE", made))[0]


CHECKED = """\
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
X, Y = torch.randn(50, 6), torch.randint(0, 3, (50,))


class Smoothed(nn.Module):
    def forward(self, x, target):
        if x.size(0) != target.size(0):
            raise ValueError("sizes {} {}".format(x.size(0), target.size(0)))
        hot = nn.functional.one_hot(target, x.size(1)) * 0.9 + 0.03
        return torch.mean(torch.sum(-x.log_softmax(1) * hot, dim=1))


loader = DataLoader(TensorDataset(X, Y), batch_size=8, shuffle=True)
held_out = DataLoader(TensorDataset(X[:21], Y[:21]), batch_size=8)
net = nn.DataParallel(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)))
criterion = Smoothed()
optimizer = optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    net.train()
    for x, y in loader:
        out = net(x)
        loss = criterion(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
    net.eval()
    with torch.no_grad():
        for x, y in held_out:
            print(criterion(net(x), y).item())
"""


@pytest.mark.parametrize("evaluates", [True, False])
def test_a_criterion_that_compares_the_sizes_of_one_batch_needs_no_whole_batch(evaluates: bool) -> None:
    text = CHECKED if evaluates else CHECKED[: CHECKED.index("    net.eval()")]
    after, conversion = converted(text)
    assert conversion.scripts[0].tier == "sharded"
    assert "loss = criterion(out, y)" in after and "batch_sum" not in after


def test_a_criterion_that_compares_how_many_are_picked_does() -> None:
    text = CHECKED[: CHECKED.index("    net.eval()")].replace(
        'if x.size(0) != target.size(0):\n            raise ValueError("sizes {} {}".format(x.size(0), target.size(0)))',
        "if len(x[target > 0]) != target.size(0):\n            x = x * 2",
    )
    after, _ = converted(text)
    assert "ddp.batch_sum(len(x[target > 0])) != ddp.batch_sum(target.size(0))" in after
