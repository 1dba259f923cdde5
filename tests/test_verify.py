"""`dp2ddp verify` says MATCH of right programs, and finds and names what is wrong with others."""

from __future__ import annotations

import functools
import io
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import torch
from command import Done, here
from pairs import AFTER, BEFORE, LOSS, NET, RIGHT, STEP, WRONG, Pair
from parity.harness import FIXTURES, REPOSITORY, Lab
from torch import nn

from dp2ddp.analyse.api.downloads import SYNTHETIC as REPLACED
from dp2ddp.cli import main
from dp2ddp.convert import convert_paths, mended_paths
from dp2ddp.emit.text import report as told
from dp2ddp.verify import contents, outputs, printed
from dp2ddp.verify.causes import CAUSES
from dp2ddp.verify.digests import values_of
from dp2ddp.verify.folders import link_neighbours, mirror
from dp2ddp.verify.forwards import Forwards
from dp2ddp.verify.jobs import Ended, free_port
from dp2ddp.verify.journal import Journal
from dp2ddp.verify.notes import Notes, Save
from dp2ddp.verify.page import page, ticks
from dp2ddp.verify.report import report
from dp2ddp.verify.rounding import Moved, bare_key
from dp2ddp.verify.run import Bench, Request, Run, said_by, verify
from dp2ddp.verify.synthetic import TRAIN
from dp2ddp.verify.verdict import Result, Tolerance, Verdict

NOW = time.time()


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """A folder by itself: what lies beside a program's folder is linked for each of its runs."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def verified(lab: Lab, folder: Path, pair: Pair, **options: object) -> Result:
    """The verification of a pair over eight steps: two loops over its data."""
    for name, text in zip(("before.py", "after.py"), pair.texts, strict=True):
        (folder / name).write_text(text)
    wanted = {"steps": 8, "patience": 20.0, **options}
    return verify(Request(folder / "before.py", folder / "after.py", folder, **wanted), server=lab.warm)


@pytest.fixture(scope="module")
def ran(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Result]:
    """Verifies a named pair, once; nothing of the user's is written meanwhile."""

    originals: dict[tuple[object, ...], Run] = {}
    run_before = Bench.run_before

    def once(bench: Bench, plan: Path, **noise: Path) -> Run:
        """An original that several pairs have, with the same batches."""
        if noise:
            return run_before(bench, plan, **noise)
        key = bench.request.before.read_text(), bench.request.float64, plan.read_text()
        if key not in originals:
            originals[key] = run_before(bench, plan)
        return originals[key]

    @functools.cache
    def result(name: str, float64: bool = False) -> Result:
        pair, folder = {**RIGHT, **WRONG}[name], tmp_path_factory.mktemp("pair") / "project"
        folder.mkdir()
        (folder / "model.pt").write_text("mine")
        patience = {"collective": 6.0, "error": 4.0}.get(pair.cause, 20.0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Bench, "run_before", once)
            found = verified(lab, folder, pair, float64=float64, patience=patience)
        assert sorted(path.name for path in folder.iterdir()) == ["after.py", "before.py", "model.pt"]
        assert (folder / "model.pt").read_text() == "mine"
        return found

    return result


@pytest.mark.sample(every=5)
@pytest.mark.parametrize(
    ("name", "float64"),
    [*((name, True) for name in RIGHT), ("the program", False), ("dropout", False), ("Adam", False)],
)
def test_right_ones_match(ran: Callable[..., Result], name: str, float64: bool) -> None:
    result = ran(name, float64)
    assert result.verdict is Verdict.MATCH, report(result)
    assert result.steps == 8


@pytest.mark.sample(every=6)
@pytest.mark.parametrize("name", WRONG)
def test_planted_mistakes_are_found_and_named(ran: Callable[..., Result], name: str) -> None:
    pair, result = WRONG[name], ran(name)
    assert result.verdict is Verdict.DIFFERS, report(result)
    first = result.differences[0]
    assert (first.what, first.cause) == (pair.what, pair.cause), report(result)
    assert pair.step is None or first.step == pair.step, report(result)
    assert first.tensor == pair.tensor, report(result)
    assert CAUSES[first.cause].split()[0] in report(result)


GROWS = (
    ("torch.randn(64, 8), torch.randint(2, (64,))", "torch.randn(72, 8), torch.randint(2, (72,))"),
    ("optim.SGD(model.parameters(), lr=0.1)", "optim.Adam(model.parameters(), lr=0.05, eps=1e-12)"),
)
"""A bias before BatchNorm has no true gradient, and Adam divides what rounding makes of it by its size."""
GROWN = Pair(
    both=GROWS,
    before=(("batch_size=16", "batch_size=18"),),
    after=(("local_batch_size(16)", "local_batch_size(18)"),),
)


def test_rounding_that_grows_is_no_difference(lab: Lab, tmp_path: Path) -> None:
    """On three ranks, as sums of two are the same in any order."""
    result = verified(lab, tmp_path, GROWN, processes=3, float64=True)
    assert result.verdict is Verdict.MATCH, report(result)
    (said,) = (text for name, text in result.compared if name == "rounding")
    assert "more runs" in said
    apart = (
        one - other for one, other in zip(result.before[0].last[0], result.after[0][0].last[0], strict=True)
    )
    assert max(it.abs().max().item() for it in apart) > 1e-8


CHAOTIC = """\
class Map(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 2)
        self.at = nn.Parameter(torch.tensor(0.3))

    def forward(self, x):
        moved = self.at**2 / 2 - 3.9 * (self.at**2 / 2 - self.at**3 / 3)
        return self.net(x) + (moved * (1 + 1e-9 * x.exp().sum(1)))[:, None] * torch.tensor([1.0, 1.0])


net = Map()"""
"""A parameter that each step takes to 3.9 x (1 - x), the logistic map: rounding doubles with every step."""


@pytest.mark.slow
def test_a_chaotic_training_is_compared_up_to_where_rounding_makes_it_another(
    lab: Lab, tmp_path: Path
) -> None:
    pair = Pair(
        both=(
            (NET, CHAOTIC),
            ("range(3)", "range(40)"),
            (LOSS, LOSS + " * 0.1 + outputs.mean()"),
            ("lr=0.1)", "lr=1.0)"),
        ),
    )
    result = verified(lab, tmp_path, pair, float64=True, steps=90)
    assert result.verdict is Verdict.MATCH, report(result)
    assert 10 < result.steps < 80, report(result)
    assert f"step {result.steps + 1} and what comes after it were not compared" in report(result)
    wrong = replace(pair, after=((LOSS, LOSS.replace("outputs, targets", "outputs * 1.001, targets")),))
    assert verified(lab, tmp_path, wrong, float64=True, steps=90).verdict is Verdict.DIFFERS


def test_models_that_are_gone_keep_their_numbers() -> None:
    """Others may be made in their place in memory."""
    forwards = Forwards(SimpleNamespace(add=lambda *_, **__: None), pinned=False, rank=lambda: 0)
    numbers = []
    for _ in range(20):
        wrapper = nn.DataParallel(nn.Linear(2, 2))
        forwards._enter(wrapper)
        numbers.append(forwards._number(wrapper.module))
        del wrapper
    assert numbers == [*range(20)]


SLIPS = {
    "a loss is a millionth larger": ("loss.backward()", "(loss * (1 + 1e-6)).backward()"),
    "steps are longer": (
        STEP,
        "        was = [it.detach().clone() for it in model.parameters()]\n"
        + STEP
        + "        with torch.no_grad():\n            for it, of in zip(model.parameters(), was):\n"
        "                it.add_(it - of, alpha=1e-4)\n",
    ),
    "a parameter is larger from the third epoch on": (
        STEP,
        STEP + "        net[3].weight.data.mul_(1 + 1e-6 * (epoch > 1))\n",
    ),
}


@pytest.mark.parametrize("name", SLIPS)
def test_slips_are_found_where_rounding_grows(lab: Lab, tmp_path: Path, name: str) -> None:
    result = verified(
        lab, tmp_path, replace(GROWN, after=(*GROWN.after, SLIPS[name])), processes=3, float64=True, steps=12
    )
    assert result.verdict is Verdict.DIFFERS, report(result)
    assert ".0.bias" not in result.differences[0].tensor, report(result)


@pytest.mark.parametrize(("measured", "said"), [(0.43, True), (0.435, False), (0.4299, True)])
def test_what_rounding_decides_is_counted_otherwise(measured: float, said: bool) -> None:
    """A number that counts, neighbours or right answers, moves by steps: three times as far as measured is none."""

    def run(number: float) -> Notes:
        line = f"epoch 2: neighbours {number:.4f}"
        return Notes(0, lines=[(3, line, True)], texts={"scores.csv": f"epoch,neighbours\n2,{number:.4f}\n"})

    before, after = run(0.43), run(0.44)
    written = contents.moved(before, [run(0.43), run(measured)])
    tolerance = replace(Tolerance.of(float64=False), moved=Moved(written=written))
    assert bool(contents.found(before, [after], tolerance)) is said


def test_what_may_be_rounding_is_looked_at_in_float64(ran: Callable[..., Result]) -> None:
    said = "they differ in float64, too, so it is not rounding: DIFFERS at step"
    assert said in report(ran("buffers are averaged"))
    assert said not in report(ran("the learning rate is scaled"))


@pytest.mark.parametrize("as_is", [False, True])
@pytest.mark.parametrize(
    ("before", "said"),
    [
        ((("nn.DataParallel(net).cuda()", "net.cuda()"),), "did not use nn.DataParallel in training"),
        (
            (("outputs = model(inputs)", "outputs = net(inputs)"),),
            "did not use nn.DataParallel in training, only elsewhere",
        ),
    ],
)
def test_an_original_that_does_not_train_in_parallel_is_inconclusive(
    lab: Lab, tmp_path: Path, before: tuple[tuple[str, str], ...], said: str, as_is: bool
) -> None:
    """Also where it agrees with the converted program in everything: BatchNorm is what would differ."""
    plain = ("nn.BatchNorm1d(16), ", "")
    result = verified(lab, tmp_path, Pair(both=(plain,), before=before), as_is=as_is)
    assert result.verdict is Verdict.INCONCLUSIVE, report(result)
    assert said in result.reason and "after --" in result.reason


OWN_REPLICAS = """\
def model(inputs):
    replicas = nn.parallel.replicate(net, [0, 1])
    parts = nn.parallel.scatter(inputs, [0, 1])
    return nn.parallel.gather(nn.parallel.parallel_apply(replicas, parts), 0)

"""


def test_replicas_that_are_made_by_hand_are_in_parallel(lab: Lab, tmp_path: Path) -> None:
    by_hand = (
        ("model = nn.DataParallel(net).cuda()", OWN_REPLICAS),
        ("model.state_dict", "net.state_dict"),
        ("model.parameters", "net.parameters"),
        ("model.train()", "net.train()"),
        ("model.eval()", "net.eval()"),
    )
    result = verified(lab, tmp_path, Pair(before=by_hand), float64=True)
    assert result.verdict is Verdict.MATCH, report(result)


def test_three_processes(lab: Lab, tmp_path: Path) -> None:
    """A batch of 15 on three, then one that they do not divide."""
    pair = Pair(before=(("batch_size=16", "batch_size=15"),), after=(("size(16)", "size(15)"),))
    result = verified(lab, tmp_path, pair, processes=3, float64=True)
    assert result.verdict is Verdict.MATCH, report(result)


def test_a_hang_is_reported_with_where_the_ranks_are(ran: Callable[..., Result]) -> None:
    result = ran("a collective of torch's is guarded")
    shown = report(result)
    assert shown.startswith("DIFFERS after step 4, where it stops")
    assert "all_reduce at" in shown
    assert "record.py:" not in shown


def test_of_where_a_rank_was_the_lines_of_the_script_are_shown() -> None:
    frames = [
        '  File "/x/torch/distributed/distributed_c10d.py", line 6 in barrier',
        '  File "/x/torch/distributed/c10d_logger.py", line 8 in wrapper',
        '  File "/x/dp2ddp/verify/record.py", line 138 in noted',
        '  File "train.py", line 66 in main',
        '  File "lib/engine.py", line 76 in run',
        '  File "<frozen runpy>", line 88 in _run_code',
        '  File "/x/dp2ddp/verify/server.py", line 57 in rank',
    ]
    trace = "\n".join(["Stack (most recent call first):", *frames])
    ended = Ended([1], traces={0: trace, 1: ""})
    said = said_by(Run([], ended, "", {}))
    assert said == "\n".join(["rank 0 was at", frames[0], frames[3], frames[4]])


def test_a_death_is_reported_with_rank_and_traceback(ran: Callable[..., Result]) -> None:
    shown = report(ran("it fails"))
    assert "rank 1 ends: AssertionError" in shown
    assert "assert ddp.get_rank() == 0" in shown


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (BEFORE.replace("    model.train()", "    raise ValueError('no')"), "fails: ValueError: no"),
        (BEFORE.replace("    model.train()", "    raise SystemExit('no data')"), "fails: no data"),
        (
            "import argparse\nargparse.ArgumentParser(prog='p').error('no data')\n",
            "fails: p: error: no data (exit code 2)",
        ),
        ("print('nothing')\n", "no optimizer step"),
    ],
)
def test_what_cannot_be_compared_is_inconclusive(lab: Lab, tmp_path: Path, before: str, reason: str) -> None:
    (tmp_path / "before.py").write_text(before)
    (tmp_path / "after.py").write_text(AFTER)
    request = Request(tmp_path / "before.py", tmp_path / "after.py", tmp_path, steps=4)
    result = verify(request, server=lab.warm)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert reason in result.reason
    assert "runpy" not in result.errors
    assert "ends" not in reason or "no" in result.errors


def test_a_batch_that_is_dealt_in_uneven_parts_matches(lab: Lab, tmp_path: Path) -> None:
    pair = Pair(before=(("batch_size=16", "batch_size=15"),), after=(("size(16)", "size(15)"),))
    assert verified(lab, tmp_path, pair).verdict is Verdict.MATCH


def test_a_batch_of_fewer_samples_than_processes_is_inconclusive(lab: Lab, tmp_path: Path) -> None:
    pair = Pair(before=(("batch_size=16", "batch_size=1"),), after=(("size(16)", "size(1)"),))
    result = verified(lab, tmp_path, pair)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "a batch size of 1 can't be divided among 2 processes" in result.reason
    assert "--exact" in result.reason and "--processes" in result.reason


def test_standard_input_is_a_terminal_at_which_nobody_types(lab: Lab, tmp_path: Path) -> None:
    """Progress bars ask for its width, and what is asked of a person ends at once."""
    script = tmp_path / "asks.py"
    script.write_text("import os, sys\nprint(os.popen('stty size').read(), repr(sys.stdin.read()))\n")
    assert lab.run(script).ok().printed == "24 80\n ''\n"


def test_gpus_are_named_in_all_ways(lab: Lab, tmp_path: Path) -> None:
    script = tmp_path / "places.py"
    script.write_text(
        "import torch\n\n"
        "made = torch.ones(2, device=1), torch.ones(2, device='cuda'), torch.ones(2).cuda(1)\n"
        "moved = [torch.ones(2).to(*place) for place in ((0,), ('cuda:1',), (torch.device('cuda'),))]\n"
        "named = torch.ones(2).to(device=1), torch.ones(2).to(0, torch.float64), torch.ones(2).to(torch.int)\n"
        "model = torch.nn.Linear(2, 2).to(1)\n"
        "assert torch.ones(2).cuda().is_cuda and model.weight.is_cuda\n"
        "if hasattr(torch, 'accelerator'):\n"
        "    assert torch.accelerator.is_available() and torch.accelerator.device_count() == 2\n"
        "    model.to('cpu').to(torch.accelerator.current_accelerator())\n"
        "print({str(x.device) for x in (*made, *moved, *named, model.weight)}, named[1].dtype, named[2].dtype)\n"
    )
    assert lab.run(script, gpus=2).ok().printed == "{'cuda:0'} torch.float64 torch.int32\n"


def test_what_is_asked_of_cuda_is_answered_without_it(lab: Lab, tmp_path: Path) -> None:
    """Questions, tensors by their type's name, generators, and mixed precision, which there is none of."""
    script = tmp_path / "asks.py"
    script.write_text(
        "import torch\n\n"
        "cuda = torch.cuda\n"
        "cuda.init()\n"
        "print(cuda.get_device_properties(1).total_memory == cuda.mem_get_info()[1], cuda.memory_summary() == '')\n"
        "made = cuda.FloatTensor(2).fill_(1), torch.ones(2).type(cuda.LongTensor), torch.ones(2).type('torch.cuda.FloatTensor')\n"
        "print(*(x.type() for x in made), isinstance(made[0], cuda.FloatTensor))\n"
        "generator = torch.Generator(device='cuda').manual_seed(1)\n"
        "print(isinstance(generator, torch.Generator), torch.rand(2, generator=generator, device='cuda').device)\n"
        "print(cuda.initial_seed() == torch.initial_seed())\n"
        "with torch.random.fork_rng(devices=[0]):\n"
        "    first = torch.rand(1)\n"
        "print(bool(first == torch.rand(1)))\n"
        "device = torch.device('cuda')\n"
        "for kind in (torch.autocast(device.type), torch.autocast('cuda', torch.float16), cuda.amp.autocast()):\n"
        "    with kind:\n"
        "        print((torch.ones(2, 2) @ torch.ones(2, 2)).dtype)\n"
    )
    said = lab.run(script, gpus=2, float64=True).ok().printed.splitlines()
    assert said == [
        "True True",
        "torch.cuda.DoubleTensor torch.cuda.LongTensor torch.cuda.DoubleTensor True",
        "True cuda:0",
        "True",
        "True",
        *["torch.float64"] * 3,
    ]
    assert "torch.float32" in lab.run(script, gpus=2, float64=False).ok().printed.splitlines()


def test_curves_are_compared_as_they_are(lab: Lab, tmp_path: Path) -> None:
    """Over three seeds, with samples and random numbers of their own: equal parameters alone are a match."""
    whole = verified(lab, tmp_path, RIGHT["whole batches"], as_is=True)
    assert whole.verdict is Verdict.MATCH, report(whole)
    right = verified(lab, tmp_path, RIGHT["dropout"], as_is=True, steps=12)
    assert right.verdict is Verdict.INCONCLUSIVE, report(right)
    assert "what was compared agrees" in right.reason


AS_IS = (
    "the learning rate is three times as large",
    "the global batch is twice as large",
    "weight decay is lost",
    "set_epoch is missing",
    "the loss is scaled",
    "every process saves",
    "a second optimizer is not stepped",
    "the model begins elsewhere",
)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in AS_IS else pytest.mark.slow) for name in WRONG]
)
def test_what_is_wrong_does_not_match_as_it_is(lab: Lab, tmp_path: Path, name: str) -> None:
    """What does not hang on the samples is found and named; the rest is inconclusive at best."""
    patience = {"collective": 6.0, "error": 4.0}.get(WRONG[name].cause, 20.0)
    result = verified(lab, tmp_path, WRONG[name], as_is=True, steps=12, patience=patience)
    assert result.verdict is not Verdict.MATCH, report(result)
    if name in AS_IS:
        assert result.verdict is Verdict.DIFFERS, report(result)


CONDITIONS = (
    'device.type == "cuda"',
    '"cuda" in str(device)',
    "torch.cuda.is_available()",
    "torch.cuda.device_count() > 1",
    "next(net.parameters()).is_cuda",
    "not next(net.parameters()).is_cpu",
    'next(net.parameters()).device.type == "cuda"',
    "next(net.parameters()).get_device() >= 0",
    "torch.ones(1, device=device).device != torch.device('cpu')",
    'torch.ones(1).to(device).type() == "torch.cuda.FloatTensor"',
    'torch.cuda.get_device_name(torch.cuda.current_device()) != ""',
)


def test_a_wrap_under_a_condition_on_devices_is_made(lab: Lab, tmp_path: Path) -> None:
    """Both programs see GPUs in whatever way they ask, also where torch puts its modes aside."""
    script = tmp_path / "asks.py"
    script.write_text(
        "import torch\nfrom torch import nn\n\n"
        'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
        "net = nn.Linear(2, 2).to(device)\n"
        "class Twice(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(ctx, x):\n        return 2 * x\n"
        "    @staticmethod\n    def backward(ctx, x):\n        return 2 * x + torch.zeros_like(x, device=x.device)\n"
        "y = Twice.apply(net(torch.ones(3, 2).to(device)))\n"
        "y.register_hook(lambda x: x + torch.zeros(1, device=device))\n"
        "torch.compile(nn.MSELoss())(y, torch.zeros_like(y)).backward()\n"
        + "".join(f"assert {condition}, {condition!r}\n" for condition in CONDITIONS)
    )
    lab.run(script, gpus=2, replicas=2, float64=False).ok()


@pytest.mark.parametrize("condition", CONDITIONS[:1])
def test_a_program_that_asks_for_its_device_is_compared_with_replicas(
    tmp_path: Path, command: Callable[..., Done], condition: str
) -> None:
    conditional = f'net = net.cuda()\ndevice = torch.device("cuda")\nmodel = nn.DataParallel(net) if {condition} else net'
    (tmp_path / "train.py").write_text(BEFORE.replace("model = nn.DataParallel(net).cuda()", conditional))
    done = command("train.py", "--steps", "6", "--float64")
    assert done.code == 0, done.out + done.err


OPTION = """\
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--multi-gpu", action="store_true")
args = parser.parse_args()
"""


def test_a_wrap_under_an_option_needs_the_option(tmp_path: Path, command: Callable[..., Done]) -> None:
    """Without it the verdict names the wrap; the summary of a conversion names the option."""
    wrap = "model = net.cuda()\nif args.multi_gpu:\n    model = nn.DataParallel(model)"
    text = OPTION + BEFORE.replace("model = nn.DataParallel(net).cuda()", wrap)
    text = text.replace("model.state_dict()", "net.state_dict()")
    (tmp_path / "train.py").write_text(text)
    line = text.splitlines().index("    model = nn.DataParallel(model)") + 1
    done = command("train.py", "--steps", "4")
    assert done.code == 3, done.out + done.err
    assert f"INCONCLUSIVE: the original did not use nn.DataParallel (train.py:{line})" in done.out
    (proof,) = proofs(tmp_path)
    assert proof == "dp2ddp verify train.py -- --multi-gpu"
    done = command(*proof.split()[2:])
    assert done.code == 0, done.out + done.err


SYNTHETIC = """\
import torch
import torchvision
from torch import nn
from torchvision import transforms

torch.manual_seed(0)
changes = transforms.Compose([transforms.RandomCrop(32, padding=4), transforms.ToTensor()])
data = torchvision.datasets.CIFAR10("nowhere", train=True, download=True, transform=changes)
loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
model = nn.DataParallel(nn.Sequential(nn.Flatten(), nn.Linear(3072, len(data.classes)))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs.cuda()), targets.cuda()).backward()
        optimizer.step()
"""


SHAPES = {
    "MNIST(ROOT, True, AS, None, False)": (1, 28, 28),
    "FashionMNIST(ROOT, transform=AS)": (1, 28, 28),
    "CIFAR10(ROOT, True, AS, None, False)": (3, 32, 32),
    "CIFAR100(root=ROOT, transform=AS, download=True)": (3, 32, 32),
    "SVHN(ROOT, 'train', AS, None, True)": (3, 32, 32),
    "STL10(ROOT, 'train', None, AS)": (3, 96, 96),
    "STL10(ROOT, split='train', transform=AS)": (3, 96, 96),
    "ImageFolder(ROOT, AS, None)": (3, 224, 224),
    "ImageNet(ROOT, 'train', transform=AS)": (3, 224, 224),
}


def test_synthetic_data_has_the_shapes(lab: Lab, tmp_path: Path) -> None:
    """However their arguments are given."""
    lines = (f"show(datasets.{made})" for made in SHAPES)
    (tmp_path / "shapes.py").write_text(
        "from torchvision import datasets, transforms\n\n"
        "ROOT, AS = 'nowhere', transforms.ToTensor()\n\n"
        "def show(data):\n"
        "    image, label = data[len(data) - 1]\n"
        "    print(tuple(image.shape), int(label) >= 0, len(data))\n\n" + "\n".join(lines)
    )
    done = lab.run(tmp_path / "shapes.py", synthetic=True).ok()
    assert done.printed.splitlines() == [f"{shape} True {TRAIN}" for shape in SHAPES.values()]


# The pictures


def test_the_page_is_one_file_that_shows_both_curves(ran: Callable[..., Result]) -> None:
    result = replace(ran("the program"))
    result.diff = "--- a\n+++ b\n-old <tag>\n+new\n"
    text = page(result)
    assert "MATCH over 8 steps" in text
    assert not re.search(r"(src|href)=|<script|url\(", text)
    pictures = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(pictures) == 4
    for picture in pictures:
        drawn = ElementTree.fromstring(picture)
        lines = [it for it in drawn.iter() if it.tag.endswith("polyline")]
        points = [pair.split(",") for line in lines for pair in line.attrib["points"].split()]
        assert len(points) in (8, 16)
        assert all(0 <= float(x) <= 430 and 0 <= float(y) <= 180 for x, y in points)
    assert "old &lt;tag&gt;" in text


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [
        (2.203, 2.307, [2.25, 2.3]),
        (0.0, 8.882e-16, [0.0, 2e-16, 4e-16, 6e-16, 8e-16]),
        (-3.0, 1.0, [-3.0, -2.0, -1.0, 0.0, 1.0]),
        (0.5, 0.5, [0.5]),
    ],
)
def test_axes_have_round_numbers(low: float, high: float, found: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(found, rel=1e-9, abs=1e-18)


# The command


@pytest.fixture
def command(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """Runs ``dp2ddp verify`` in this process, with the tests' own server to start runs."""
    monkeypatch.chdir(tmp_path)
    return functools.partial(here(lab.warm, monkeypatch, capsys), "verify")


def test_the_command_converts_what_has_no_after(tmp_path: Path) -> None:
    """A program that is started in a folder of its project, and reads what lies beside the project."""
    folder = tmp_path / "project" / "scripts"
    folder.mkdir(parents=True)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "size").write_text("64")
    text = BEFORE.replace("nn.DataParallel(net).cuda()", "wrapped(net)").replace("64", "size")
    begin = "import sys\nsys.path.append('..')\nfrom wrapping import wrapped\nsize = int(open('../../data/size').read())\n"
    (folder / "train.py").write_text(begin + text)
    wrapping = folder.parent / "wrapping.py"
    wrapping.write_text(
        "from torch import nn\n\n\ndef wrapped(net):\n    return nn.DataParallel(net).cuda()\n"
    )
    command = [sys.executable, "-m", "dp2ddp", "verify", "train.py", "--steps", "6", "--float64"]
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [*command, "--report", "out.html"], cwd=folder, env=env, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("MATCH over 6 steps")
    # The numbers of steps are shown from the third second on: a quick machine is done before.
    assert (
        "the converted program on 2 processes" in done.stderr and "the original on 2 replicas" in done.stderr
    )
    assert "ddp.DistributedDataParallel" in (folder / "out.html").read_text()
    assert (folder / "train.py").read_text() == begin + text
    assert "ddp" not in wrapping.read_text()


@pytest.mark.parametrize("given", [False, True])
def test_an_original_that_does_not_run_any_more_is_compared_after_its_mends(
    tmp_path: Path, command: Callable[..., Done], given: bool
) -> None:
    """Also where the converted program is given; an original that only looks so is not touched."""
    text = BEFORE.replace("inputs.cuda()", "inputs.cuda(async=True)").replace(
        "        loss.backward()\n", "        loss.backward()\n        print(loss.data[0])\n"
    )
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "after.py").write_text(AFTER)
    other = ["after.py"] if given else []
    done = command("train.py", *other, "--steps", "6", "--float64")
    assert done.code == 0, done.out + done.err
    assert done.out.startswith("MATCH over 6 steps")
    assert "reference: nn.DataParallel emulated on the CPU, 2 replicas" in done.out
    told = " ".join(done.out.split())
    assert "so not tested: order of the samples, random augmentation, " in told and "(-v says how)" in told
    assert "compared as it is after these mends alone, it does not run without: train.py" in done.out
    assert (
        "train.py does not run with the installed Python and libraries: it is compared after fixing only that"
        in done.err
    )
    assert (tmp_path / "train.py").read_text() == text
    (tmp_path / "train.py").write_text(BEFORE)
    done = command("train.py", *other, "--steps", "2")
    assert "mends" not in done.out and "mended" not in done.err


def test_imports_are_of_the_copy(lab: Lab, tmp_path: Path) -> None:
    """What PYTHONPATH has of the user's folder is there only as it was before the conversion."""
    script = tmp_path / "paths.py"
    script.write_text("import sys\nprint(*sys.path, sep='\\n')\n")
    copy = str(tmp_path / "work" / "project")
    paths = lab.run(script, moved=[str(REPOSITORY), copy]).ok().printed.splitlines()
    assert copy in paths and str(REPOSITORY) not in paths


@pytest.mark.parametrize("name", ["mine", "data/mine"])
def test_what_lies_beside_the_folder_is_not_written(tmp_path: Path, name: str) -> None:
    source, place = tmp_path / "source", tmp_path / "dp2ddp_verify_place"
    for folder in (source, place, tmp_path / "data"):
        folder.mkdir()
    for path in ("mine", "data/mine"):
        (tmp_path / path).write_text("mine")
    link_neighbours(source, place)
    watch = outputs.Outputs(Journal(tmp_path), bool, str(source), str(place / "source"))
    with pytest.raises(PermissionError, match="nothing of yours"):
        watch._check(place / name)
    watch._check(place / "new")
    for event in ("os.remove", "shutil.rmtree"):
        with pytest.raises(PermissionError, match="nothing of yours"):
            watch._audit(event, (place / "data" / "mine", -1))
        watch._audit(event, (place / "data", -1))  # the link itself
    for event in ("os.rename", "shutil.copyfile", "os.link"):
        with pytest.raises(PermissionError, match="nothing of yours"):
            watch._audit(event, (place / "new", source / "mine"))
    with pytest.raises(PermissionError, match="nothing of yours"):
        watch._audit("os.rename", (source / "mine", place / "new"))


def test_a_large_checkpoint_from_before_is_written_anew_in_the_copy(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dp2ddp.verify.folders._LARGE_FILE", 4)
    kept = tmp_path / "model.pt"
    kept.write_text("large")
    log = "    {}('log.txt', 'w').close()\n    correct = 0\n"
    pair = Pair(
        before=(("    correct = 0\n", log.format("open")),),
        after=(("    correct = 0\n", log.format("ddp.open")),),
    )
    (tmp_path / "log.txt").write_text("large")
    result = verified(lab, tmp_path, pair)
    assert result.verdict is Verdict.MATCH, report(result)
    assert kept.read_text() == (tmp_path / "log.txt").read_text() == "large"


def test_data_that_is_not_there_is_made(tmp_path: Path, command: Callable[..., Done]) -> None:
    """torchvision's by an option, the user's own by a file of theirs; augmentation is aligned."""
    (tmp_path / "train.py").write_text(SYNTHETIC)
    done = command("train.py", "--steps", "4", "--synthetic", "--float64")
    assert done.code == 0, done.out + done.err
    assert "synthetic data" in done.out
    text = BEFORE.replace(
        "data = TensorDataset(torch.randn(64, 8)", "data = TensorDataset(torch.load('gone.pt')"
    )
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "own.py").write_text("import torch\ntorch.load = lambda *_, **__: torch.randn(64, 8)\n")
    assert command("train.py", "--steps", "4").code == 3
    done = command("train.py", "--steps", "4", "--prepare", "own.py")
    assert done.code == 0, done.out + done.err
    assert "own.py" in done.out


def test_what_replaces_data_can_import_the_project(tmp_path: Path, command: Callable[..., Done]) -> None:
    """The example of the README; a file that is not in the project replaces a class that is."""
    examples = REPOSITORY / "examples" / "prepare"
    for name in ("train.py", "speech.py"):
        (tmp_path / name).write_text((examples / name).read_text())
    done = command("train.py", "--steps", "4", "--float64")
    assert (done.code, "--prepare FILE" in done.out) == (3, True), done.out
    done = command("train.py", "--steps", "4", "--float64", "--prepare", str(examples / "small_data.py"))
    assert done.code == 0, done.out + done.err
    own = tmp_path / "own.py"
    own.write_text("import speech\nspeech.recordings()\n")
    done = command("train.py", "--steps", "4", "--prepare", "own.py")
    assert done.code == 3
    assert "module 'speech' has no attribute 'recordings'" in done.out


def test_the_first_example_matches(tmp_path: Path, command: Callable[..., Done]) -> None:
    """As the first page says: nothing has to be there, and nothing added."""
    text = (REPOSITORY / "examples" / "first" / "before" / "train.py").read_text()
    (tmp_path / "train.py").write_text(text)
    done = command("train.py")
    assert done.code == 0, done.out + done.err


def test_what_is_missing_without_a_network_is_said(tmp_path: Path, command: Callable[..., Done]) -> None:
    """A program that would download its data, tried without options and without a network."""
    text = (FIXTURES / "tutorial" / "before" / "train.py").read_text()
    begin = "import urllib.request\n\n\ndef none(*_, **__):\n    raise OSError('no network')\n\n\nurllib.request.urlopen = none\n"
    (tmp_path / "train.py").write_text(begin + text)
    done = command("train.py", "--steps", "4")
    assert done.code == 3 and "--synthetic replaces" in done.out.splitlines()[0], done.out
    assert command("train.py", "--steps", "4", "--synthetic").code == 0


def proofs(folder: Path, *asked: str) -> list[str]:
    """The commands that a conversion of a folder, or of files, names to prove it."""
    conversion = convert_paths([folder / name for name in asked or ("train.py",)])
    said = told(conversion, written=False, command="dp2ddp convert --inplace").splitlines()
    lines = [line.partition("check it with: ")[2] for line in said if "check it with: " in line]
    return lines or [said[-1].partition("next: ")[2].partition(", then ")[0]]


@pytest.mark.parametrize(
    ("head", "line"),
    [
        ("", "dp2ddp verify train.py"),
        ("import sys\nname = sys.argv[1]\n", "dp2ddp verify train.py -- ..."),
        ("import sys\nname = sys.argv[1] if len(sys.argv) > 1 else ''\n", "dp2ddp verify train.py"),
        (
            OPTION.replace('"--multi-gpu", action="store_true"', '"data", metavar="DIR"'),
            "dp2ddp verify train.py -- DIR",
        ),
        (
            OPTION.replace('"--multi-gpu", action="store_true"', '"--data-set", "-d", required=True'),
            "dp2ddp verify train.py -- --data-set DATA_SET",
        ),
        (
            OPTION.replace('"--multi-gpu", action="store_true"', '"arch", choices=["small one", "large"]'),
            "dp2ddp verify train.py -- 'small one'",
        ),
        (OPTION.replace('"--multi-gpu", action="store_true"', '"data", nargs="?"'), "dp2ddp verify train.py"),
        (
            "from torchvision import datasets\ntrain = datasets.CIFAR10('data', download=True)\n",
            "dp2ddp verify train.py --synthetic",
        ),
    ],
)
def test_a_conversion_says_how_to_prove_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(head + BEFORE)
    assert proofs(tmp_path) == [line]


def test_data_sets_that_are_replaced_are_those_that_the_summary_knows(lab: Lab, tmp_path: Path) -> None:
    script = tmp_path / "made.py"
    script.write_text(
        "from torchvision import datasets\n\n"
        f"for name in {sorted(REPLACED)!r}:\n"
        "    print(name, len(getattr(datasets, name)('nowhere')) > 0)\n"
    )
    done = lab.run(script, synthetic=True).ok()
    assert done.printed.split() == [word for name in sorted(REPLACED) for word in (name, "True")]


RELATIVE = {
    "pkg/__init__.py": "",
    "pkg/data.py": "SIZE = 64\n",
    "pkg/train.py": BEFORE.replace("import torch\n", "import torch\n\nfrom .data import SIZE\n", 1).replace(
        "64", "SIZE"
    ),
}
COMMAND = {
    "pkg/__init__.py": "",
    "pkg/data.py": "SIZE = 64\n",
    "pkg/train.py": "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n"
    "from torch.utils.data import DataLoader, TensorDataset\n\nfrom .data import SIZE\n\n\ndef main():\n    "
    + BEFORE.partition("TensorDataset\n\n")[2].replace("64", "SIZE").replace("\n", "\n    ").rstrip()
    + "\n",
    "pyproject.toml": '[project]\nname = "pkg"\n\n[project.scripts]\npkg-train = "pkg.train:main"\n',
}


@pytest.mark.parametrize(
    ("files", "line"),
    [(RELATIVE, "dp2ddp verify pkg/train.py"), (COMMAND, "dp2ddp verify pkg-train")],
    ids=["a module", "a command"],
)
def test_what_is_no_script_is_verified_as_the_summary_says(
    tmp_path: Path, command: Callable[..., Done], files: dict[str, str], line: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert proofs(tmp_path, "pkg/train.py") == [line]
    done = command(*line.split()[2:], "--steps", "4", "--float64")
    assert done.code == 0, done.out + done.err
    assert done.out.startswith("MATCH over 4 steps")


def test_an_original_that_is_written_over_is_that_of_git(
    tmp_path: Path, command: Callable[..., Done], capsys: pytest.CaptureFixture[str]
) -> None:
    """The summary says so where git has it."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    (tmp_path / "train.py").write_text(BEFORE)
    assert main(["convert", "train.py", "--inplace"]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "1 converted; next: start it as shown above"
    (tmp_path / "train.py").write_text(BEFORE)
    for words in (["init", "-q"], ["add", "train.py"], ["commit", "-qm", "before"]):
        subprocess.run([*git, *words], check=True)
    assert main(["convert", "train.py", "--inplace"]) == 0
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "1 converted; next: dp2ddp verify train.py --git HEAD, then start it as shown above"
    done = command("train.py", "--git", "HEAD", "--steps", "4", "--float64", "--report", "out.html")
    assert done.code == 0, done.out + done.err
    assert "+model = ddp.DistributedDataParallel" in (tmp_path / "out.html").read_text()
    assert "--git HEAD if git has it" in command("train.py").err
    (tmp_path / "train.py").write_text(BEFORE)
    assert command("train.py", "--git", "HEAD").code == 3


def test_an_original_of_git_is_mended_with_what_it_imports(
    tmp_path: Path, command: Callable[..., Done]
) -> None:
    """As today's libraries run it: one that fails is compared with nothing."""
    shares = "    return correct[:2].view(-1).float().sum(0) / len(target)\n"
    helper = "def accuracy(output, target):\n    best = output.topk(2, 1)[1].t()\n"
    helper += "    correct = best.eq(target.view(1, -1).expand_as(best))\n" + shares
    (tmp_path / "metric.py").write_text(helper)
    text = "from metric import accuracy\n" + BEFORE + "print(accuracy(model(inputs), targets))\n"
    (tmp_path / "train.py").write_text(text)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "before"]):
        subprocess.run([*git, *words], check=True)
    assert main(["convert", "train.py", "--inplace"]) == 0
    assert ".reshape(-1)" in (tmp_path / "metric.py").read_text()
    done = command("train.py", "--git", "HEAD", "--steps", "4", "--float64")
    assert (done.code, "metric.py does not run with" in done.err) == (0, True), done.out + done.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SYNTHETIC, "--synthetic replaces torchvision's data sets by small random ones"),
        (BEFORE.replace("torch.randn(64, 8)", "torch.load('gone.pt')"), "--prepare FILE"),
        (OPTION.replace("action=", "required=True, action=") + BEFORE, "own arguments after --"),
    ],
)
def test_an_original_that_lacks_something_says_what_to_add(
    tmp_path: Path, command: Callable[..., Done], text: str, said: str
) -> None:
    (tmp_path / "train.py").write_text(text.replace("download=True", "download=False"))
    done = command("train.py", "--steps", "4")
    assert done.code == 3
    assert done.out.startswith("INCONCLUSIVE: the original fails: ")
    assert "rank 0" not in done.out  # it is one process
    assert said in done.out.splitlines()[0]


def test_a_seed_that_a_script_draws_is_the_same_in_both(tmp_path: Path, command: Callable[..., Done]) -> None:
    text = BEFORE.replace("import torch\n", "import random\n\nimport torch\n", 1)
    text = text.replace("torch.manual_seed(3)", "torch.manual_seed(random.randint(1, 1000))")
    (tmp_path / "train.py").write_text(text)
    done = command("train.py", "--steps", "4")
    assert done.code == 0, done.out + done.err


SAMPLED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.back = nn.Linear(6, 3), nn.Linear(3, 6)

    def forward(self, inputs):
        mean = self.mean(inputs)
        return self.back(mean + torch.randn_like(mean))


torch.manual_seed(3)
data = TensorDataset(torch.randn(60, 6))
train, held = DataLoader(data, batch_size=12, shuffle=True), DataLoader(data, batch_size=25)
(first,) = next(iter(train))
print(first.shape)
model = nn.DataParallel(Noisy())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(2):
    model.train()
    for (inputs,) in train:
        noise = torch.randn_like(inputs)
        loss = nn.functional.mse_loss(model(inputs + noise), inputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    total = 0.0
    with torch.no_grad():
        for (inputs,) in held:
            total += nn.functional.mse_loss(model(inputs), inputs).item() * len(inputs)
    print(f"{epoch} {total / len(data):.6f}")
sample = torch.randn(4, 3)
print(f"{sample.mean():.6f}")
torch.save(sample, "sample.pt")
"""


ON_GPUS = """\
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
model = Noisy().to(device)
if device.type == "cuda" and torch.cuda.device_count() > 1:
    model = nn.DataParallel(model)
"""


@pytest.mark.parametrize("wrap", ["model = nn.DataParallel(Noisy())\n", ON_GPUS], ids=["", "on GPUs"])
def test_what_is_drawn_in_evaluations_and_after_the_training_is_the_same_in_both(
    tmp_path: Path, command: Callable[..., Done], wrap: str
) -> None:
    """A batch that is looked at before the loop is none of the training, though nothing ends its loader's pass."""
    (tmp_path / "train.py").write_text(SAMPLED.replace("model = nn.DataParallel(Noisy())\n", wrap))
    done = command("train.py", "--steps", "40", "--float64")
    assert done.code == 0 and done.out.startswith("MATCH over 10 steps"), done.out + done.err
    assert "differs" not in done.out


def test_what_is_drawn_otherwise_after_the_training_is_found(
    tmp_path: Path, command: Callable[..., Done]
) -> None:
    (tmp_path / "train.py").write_text(SAMPLED)
    other = SAMPLED.replace("torch.randn(4, 3)", "torch.randn(4, 3) + torch.randn(4, 3)")
    (tmp_path / "after.py").write_text(other)
    assert main(["convert", "after.py", "--inplace"]) == 0
    done = command("train.py", "after.py", "--steps", "40", "--float64")
    assert done.code == 1 and "sample.pt: : another tensor" in done.out, done.out + done.err


def test_exit_codes(tmp_path: Path, command: Callable[..., Done]) -> None:
    (tmp_path / "before.py").write_text(BEFORE)
    (tmp_path / "after.py").write_text(WRONG["the batch size is not divided"].texts[1])
    (tmp_path / "idle.py").write_text("print('nothing')\n")
    done = command("before.py", "after.py", "--steps", "4", "--", "--steps=3", "--seed", "1")
    assert done.code == 1
    assert "--steps=3 after -- is for the scripts: verify's own options stand before it" in done.err
    assert command("idle.py", "idle.py").code == 3


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("idle.py", 3, "INCONCLUSIVE: nothing to compare in idle.py: no DataParallel\n"),
        (
            "idle.py --git HEAD",
            3,
            "INCONCLUSIVE: idle.py is in no git repository: pass the original as BEFORE and",
        ),
        ("broken.py", 4, "broken.py was not converted, so there is nothing to compare: see above\n"),
        ("befor.py", 4, "befor.py: cannot be read: no such file or directory; did you mean before.py?"),
        ("after.py", 3, "INCONCLUSIVE: after.py is converted already"),
        ("after.py before.py", 3, "INCONCLUSIVE: after.py is converted already"),
        ("missing.py", 4, "missing.py: cannot be read: no such file or directory"),
        ("before.py missing.py", 4, "missing.py: cannot be read: no such file or directory"),
        (
            "before.py data",
            2,
            "AFTER: data is no Python script; what the scripts are given stands after --",
        ),
        (
            "before.py --lr 2",
            2,
            "--lr 2; what the scripts are given stands after --; see dp2ddp verify --help",
        ),
        ("before.py --prepare .", 4, ".: cannot be read: is a directory"),
        ("before.py --steps 0", 2, "--steps: 0 is not a whole number of at least 1"),
        ("before.py --steps two", 2, "--steps: two is not a whole number of at least 1"),
        (
            "before.py --processes 1",
            2,
            "--processes: one process is the same as the original and proves nothing",
        ),
        ("before.py after.py --exact", 2, "--exact: not allowed with AFTER"),
    ],
)
def test_what_is_not_run_is_said_in_a_line(
    tmp_path: Path, command: Callable[..., Done], arguments: str, code: int, said: str
) -> None:
    texts = {"before": BEFORE, "after": AFTER, "idle": "print('nothing')\n", "broken": "def f(:\n"}
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    done = command(*arguments.split())
    assert done.code == code
    assert said in done.err


def test_batches_of_any_size_convert_exactly(tmp_path: Path, command: Callable[..., Done]) -> None:
    (tmp_path / "train.py").write_text(BEFORE.replace("batch_size=16", "batch_size=15"))
    done = command("train.py", "--exact", "--steps", "4", "--float64")
    assert done.code == 0, done.out + done.err


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("epoch 1: accuracy 0.5 took 0:00:01.71", "epoch #: accuracy # took T"),
        ("loss 1.5e-3 in 2.25s, 3 s and 14 min", "loss # in T, T and T"),
        ("Step: 5s396ms | Tot: 1h2m", "Step: T | Tot: T"),
        ("acc 0.5, t: 0.4[s], left: 2 [h]", "acc #, t: T, left: T"),
        ("model_2 has 3 heads", "model_2 has # heads"),
    ],
)
def test_times_are_no_results(text: str, shown: str) -> None:
    assert printed.masked(text) == shown


def test_progress_bars_leave_what_they_end_with() -> None:
    lines: list[str] = []
    stream = outputs._Lines(io.StringIO(), lines.append)
    stream.write("[>...] loss 9.1\b\b\b8.5\r")
    stream.write("[=>..] loss 7.5\b\b\b\b\b\b\bacc  99\r\n")
    assert lines == ["[=>..] lacc  99"]


@pytest.mark.parametrize(
    ("name", "before", "after", "found"),
    [
        ("a.csv", "epoch,test acc\n0,0.5\n", "epoch,test acc\n0,0.25\n", False),
        ("a.csv", "epoch,train loss\n0,0.5\n", "epoch,train loss\n0,0.25\n", True),
        ("a.csv", "epoch,time\n0,0.5\n", "epoch,time\n0,0.25\n", None),
        ("a.csv", "epoch,loss\n0,0.5\n", "epoch,loss\n0,0.50000000004\n", None),
        ("a.csv", "epoch,loss\n0,0.5\n", "epoch,loss\n0,0.5000004\n", False),
        ("a.csv", "0,0.5\n1,0.5\n", "0,0.5\n", False),
        ("a.csv", "Time 0.1 (0.1) Data 0.2 (0.2) Loss 0.5", "Time 0.3 (0.2) Data 0.4 (0.3) Loss 0.5", None),
        ("a.tsv", "0\t0.5\n", "0\tnan\n", False),
        ("a.json", '{"val": [1.5, 2.5], "seconds": 3}', '{"seconds": 4, "val": [1.5, 2.25]}', False),
        ("a.json", '{"map": 0.5, "date": "2024-01-02"}', '{"map": 0.5, "date": "2024-01-03"}', None),
        ("a.jsonl", '{"auc": 0.5}\n{"auc": 0.75}\n', '{"auc": 0.5}\n{"auc": 0.7}\n', False),
        ("a.log", "Nov 21 10:11:12 Rank-1 0.5\n", "Nov 21 11:22:01 Rank-1 0.25\n", True),
        ("a.log", "Train loss 1.5 Test loss 0.5", "Train loss 1.25 Test loss 0.25", False),
        ("a.log", "Test: Time 0.1 (0.1) Acc@1 50.0 (50.0)", "Test: Time 0.2 (0.3) Acc@1 50.0 (25.0)", False),
        ("a.log", "on 2 GPUs\nTest: 0.5 err\n", "on 1 process\nTest: 0.25 err\n", False),
        ("a.log", "Marker 5, valid 3\n", "Marker 6, valid 3\n", True),
        ("log-20240102-1.txt", "best 0.5", "best 0.25", False),
        pytest.param(
            "a.log",
            f"Test took 3m2s, at {NOW}",
            f"Test took 3m5s, at {NOW + 60}",
            None,
            id="seconds since 1970",
        ),
    ],
)
def test_numbers_in_texts(name: str, before: str, after: str, found: bool | None) -> None:
    """Whether the difference is about training; None where there is none."""
    runs = [
        Notes(0, texts={name.replace("0102", day): text}) for day, text in (("0102", before), ("0103", after))
    ]
    differences = contents.found(runs[0], runs[1:], Tolerance.of(float64=True))
    assert [one.trains for one in differences][-1:] == ([] if found is None else [found])


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ([("Test acc 0.5", True)], [("Test acc 0.25", True)], False),
        ([("Test acc 0.5", True)], [("saved", True), ("Test acc 0.25", True)], False),
        ([("Test acc 0.5", True)], [("Test acc 0.5000", True)], None),
        ([("acc 0.5", False)], [("acc 0.25", False)], True),
        ([("Train acc 0.5 Test acc 0.5", True)], [("Train acc 0.25 Test acc 0.5", True)], True),
        ([("Time 0.5", False)], [("Time 0.25", False)], None),
    ],
)
def test_numbers_that_are_printed(before: list, after: list, found: bool | None) -> None:
    """With whether an evaluation has run; one about training is to be known, and no difference."""
    runs = [Notes(0, lines=[(4, *line) for line in lines]) for lines in (before, after)]
    differences = contents.found(runs[0], runs[1:], Tolerance.of(float64=True))
    assert [one.trains for one in differences] == ([] if found is None else [found])


HITS = "print(f'accuracy {(outputs.argmax(1) == targets).float().mean():.4f}')"
SHOWS_A_PART = Pair(
    before=(("        loss.backward()", f"        {HITS}\n        loss.backward()"),),
    after=(("        loss.backward()", f"        ddp.{HITS}\n        loss.backward()"),),
)


def test_numbers_of_training_that_differ_are_listed(lab: Lab, tmp_path: Path) -> None:
    """Of the main process's part, as where they are left to the user: the program still trains the same."""
    result = verified(lab, tmp_path, SHOWS_A_PART)
    assert result.verdict is Verdict.MATCH, report(result)
    assert "MATCH over 8 steps, but for numbers of training that are shown" in report(result)
    assert "output: a training number differs" in report(result)


PRINTS_LOSS = "print(f'{loss.item():.6f}')"
ROWS = "print(targets.tolist())"
SHOWN = {
    "a part's number": (HITS, f"ddp.{HITS}"),
    "a part's loss": (PRINTS_LOSS, f"ddp.{PRINTS_LOSS}"),
    "a part's rows": (ROWS, f"ddp.{ROWS}"),
    "nothing": (ROWS, "pass"),
    "more": ("pass", "ddp.print('began')"),
    "the whole batch's": (
        PRINTS_LOSS + "; " + ROWS,
        f"ddp.{PRINTS_LOSS}; ddp.{ROWS}".replace("loss.", "ddp.batch_loss(loss).").replace(
            "targets.", "ddp.whole_batch(targets)."
        ),
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_training_shows_is_compared_where_all_of_it_is_the_whole_batch_s(
    lab: Lab, tmp_path: Path, name: str
) -> None:
    """As the converter says it is, where it says of nothing that it stays a part's."""
    before, after = SHOWN[name]
    pair = Pair(
        before=(("        loss.backward()", f"        {before}\n        loss.backward()"),),
        after=(("        loss.backward()", f"        {after}\n        loss.backward()"),),
    )
    result = verified(lab, tmp_path, pair, shows_parts=False, float64=True)
    if name == "the whole batch's":
        assert result.verdict is Verdict.MATCH, report(result)
    else:
        assert result.verdict is Verdict.DIFFERS, report(result)
        assert {it.what for it in result.differences} == {"output of training"}


ONES = torch.ones(3, dtype=torch.float64)


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({"acc": 0.5}, {"acc": 0.5 + 1e-9}, None),
        ({"acc": 0.5}, {"acc": 0.25}, False),
        ({"log": {"train": [0.5, 1.5]}}, {"log": {"train": [0.5, 1.25]}}, True),
        ({"epoch": 3}, {"epoch": 4}, False),
        (
            {"epoch_time": 3.5, "rng_state": torch.ones(3, dtype=torch.uint8), "gpu": 0},
            {"epoch_time": 3.25, "rng_state": torch.zeros(3, dtype=torch.uint8), "gpu": 1},
            None,
        ),
        ({"ema": ONES}, {"ema": ONES + 1e-9}, False),
        ({"ema": ONES}, {"ema": ONES + 1e-13}, None),
        ({"net": nn.Linear(2, 2)}, {"net": nn.Linear(2, 2)}, False),
        ({"module.a": torch.ones(2)}, {"a": torch.ones(2)}, None),
        ({"steps": torch.tensor(3)}, {"steps": torch.tensor(4)}, False),
        (
            {"optimizer": {"state": {0: {"exp_avg": torch.ones(2)}}}},
            {"optimizer": {"state": {0: {"exp_avg": torch.zeros(2)}}}},
            False,
        ),
        ({"arch": "small"}, {"arch": "large"}, False),
    ],
)
def test_values_of_checkpoints(before: dict, after: dict, found: bool | None) -> None:
    runs = [Notes(0, saves=[Save(0, "a.pt", [], dict(values_of(value)))]) for value in (before, after)]
    differences = contents.found(runs[0], runs[1:], Tolerance.of(float64=True))
    assert [one.trains for one in differences] == ([] if found is None else [found])


# The fixtures

ARGUMENTS = {
    "accumulation": "--gradient_accumulation_steps 2",
    "apex_mixed_precision": "--fp16",
    "bare_head": "",
    "base_trainer": "--data DATA --batch-size 24",
    "batch_sampler": "",
    "batches_in_memory": "",
    "bypass_in_training": "",
    "center_loss": "--data DATA --batch-size 24 --max-epoch 2",
    "class_weights": "",
    "config_dict": "",
    "config_gpus": "--data DATA --gpus GPUS",
    "contrastive": "--data DATA --epochs 2 --batch-size 24",
    "ddp_branch": "--data DATA --batch-size 24",
    "dice_loss": "",
    "early_stopping": "",
    "encoder_wrap": "--batch-size 24",
    "endless_loader": "",
    "entry_point": "",
    "exceptional_paths": "",
    "experiment_class": "--name first",
    "flat": "--data DATA --epochs 2 --batch-size 24",
    "forward_bypass": "",
    "forwarding_wrapper": "--data DATA --batch-size 24",
    "frozen_backbone": "--data DATA --batch-size 24",
    "gan": "--manualSeed 5 --batchSize 24",
    "gradient_hooks": "",
    "gradient_penalty": "",
    "graph_batches": "",
    "hidden_state": "",
    "identity_sampler": "--sampler identity",
    "iterations": "--gpus RANKS --num_steps 17",
    "lbfgs": "",
    "loader_factory": "--use-more --batch-size 16",
    "logs_and_copies": "--data DATA --batch-size 24",
    "loss_in_forward": "",
    "main": "--data DATA --epochs 2 --batch-size 24",
    "mean_teacher": "",
    "mixed_precision": "--amp",
    "mixup": "--data DATA --batch-size 24 --epoch 2",
    "old_iterators": "--async",
    "old_python": "",
    "option_branch": "",
    "own_scatter": "--first 2",
    "parallel_criterion": "",
    "predictions": "",
    "progress_reports": "--flip-test",
    "random_split": "--data DATA",
    "rebuilt_loader": "",
    "spawn_branch": "--set ROOT DATA SEED 3 BATCH_SIZE 24",
    "spectral_norm": "",
    "registry": "",
    "sum_loss": "--data DATA --batch-size 24 --epochs 2",
    "synced_norm": "",
    "trainer": "--data DATA --epochs 2 --batch-size 24",
    "triplet_mining": "",
    "tutorial": "--data DATA --epochs 2 --batch-size 24",
    "two_loaders": "",
    "two_models_one_optimizer": "--data DATA --batch-size 24",
    "warmup_schedule": "--data DATA",
    "weighted_sampler": "--data DATA --epochs 2 --batch-size 24",
}
QUICK = ("flat", "contrastive", "synced_norm")


def request_for(lab: Lab, name: str, processes: int = 2, **more: object) -> Request:
    """A verification of a fixture, whose arguments may name the data and the GPUs."""
    ranks = [str(rank) for rank in range(processes)]
    tokens = {"DATA": [str(lab.data())], "RANKS": ranks, "GPUS": [",".join(ranks)]}
    arguments = [part for word in ARGUMENTS[name].split() for part in tokens.get(word, [word])]
    before, after = (FIXTURES / name / side / "train.py" for side in ("before", "after"))
    mended = {change.path: change.after_bytes for change in mended_paths([before])}
    wanted = {"arguments": tuple(arguments), "processes": processes, "steps": 16, "mended": mended, **more}
    return Request(before, after, FIXTURES / name, **wanted)  # type: ignore[arg-type]


@pytest.mark.sample(every=3)
@pytest.mark.parametrize(
    ("name", "processes"),
    [
        pytest.param(name, processes, marks=() if name in QUICK and processes == 2 else pytest.mark.slow)
        for name in sorted(path.parent.name for path in FIXTURES.glob("*/before"))
        for processes in (2, 3)
    ],
)
def test_fixtures_match(lab: Lab, name: str, processes: int) -> None:
    result = verify(request_for(lab, name, processes, float64=True, patience=60.0), server=lab.warm)
    assert result.verdict is Verdict.MATCH, report(result)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_fixtures_match_as_they_are(lab: Lab, name: str) -> None:
    """Nothing that can be compared differs; only what draws alike by itself has the same parameters, and matches."""
    result = verify(request_for(lab, name, as_is=True), server=lab.warm)
    assert result.verdict is not Verdict.DIFFERS, report(result)
    assert result.verdict is Verdict.MATCH or result.reason.startswith("nothing is aligned"), report(result)


@pytest.mark.sample("entry_point")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("entry_point", "flat") else pytest.mark.slow)
        for name in sorted(ARGUMENTS)
        if name != "graph_batches"  # it needs torch_geometric
    ],
)
def test_what_a_conversion_says_proves_it(command: Callable[..., Done], name: str) -> None:
    """As it stands there, with no data at hand and no network."""
    for line in proofs(FIXTURES / name / "before"):
        done = command(*shlex.split(line)[2:], "--steps", "6")
        assert done.code == 0, line + done.out + done.err


def test_links_in_a_folder_stay_links(tmp_path: Path) -> None:
    """One to a folder above would be followed for ever, one out of the folder leads where it did."""
    project, data = tmp_path / "project", tmp_path / "data"
    (project / "inner").mkdir(parents=True)
    data.mkdir()
    (data / "images").write_text("images")
    (project / "inner" / "up").symlink_to("..")
    (project / "data").symlink_to("../data")
    copy = tmp_path / "elsewhere" / "copy"
    mirror(project, copy, {})
    assert (copy / "data" / "images").read_text() == "images"
    assert (copy / "inner" / "up").resolve() == copy.resolve()


def test_ports_are_given_to_one_job_each() -> None:
    """A rank whose port another job has taken joins that one, and ends with it."""
    other = "from dp2ddp.verify.jobs import free_port; print(*[free_port() for _ in range(100)], flush=True); input()"
    command = [sys.executable, "-c", other]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        theirs = {int(port) for port in process.stdout.readline().split()}
        ours = {free_port() for _ in range(100)}
        process.communicate("\n")
    assert len(theirs) == len(ours) == 100
    assert not theirs & ours
    first_outgoing = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if first_outgoing.exists():
        assert max(ours) < int(first_outgoing.read_text().split()[0])


@pytest.mark.parametrize("key", ["main_module.0.weight", "submodule.weight", "modules.weight"])
def test_a_layer_whose_name_ends_as_the_wrapper_s_keeps_it(key: str) -> None:
    assert bare_key(key) == bare_key(f"module.{key}") == key
    assert bare_key(f"model.module.{key}") == f"model.{key}"
