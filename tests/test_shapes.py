"""Shapes of code beside the fixtures', converted and run by two processes: downloads, caches, helpers, sharing."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import command
import pytest
import torch
from parity.harness import Lab

from dp2ddp.convert import convert
from dp2ddp.source import Project

LOOP = """\
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        criterion(model(inputs), targets).backward()
        optimizer.step()
"""
HEAD = """\
import os

import torch
import torchvision
from torch import nn
from torch.utils import model_zoo
from torch.utils.data import DataLoader, Dataset, TensorDataset


def prepare():
    pass


"""
FETCHES = [
    'data = torchvision.datasets.MNIST("data", train=True, download=True)',
    'data = torchvision.datasets.CIFAR10("data", True, None, None, True)',
    'model = torch.hub.load("pytorch/vision", "resnet18")',
    'data = torch_geometric.datasets.Planetoid("data", "Cora")',
    'data = Graphs("data")',
    'model, preprocess = clip.load("ViT-B/32")',
    'if not os.path.exists("a.pth"):\n    torch.hub.download_url_to_file("https://example.org/a.pth", "a.pth")',
]


def assert_same_number(lab: Lab, folder: Path, before: str, after: str, *options: str) -> None:
    """That a program prints the same number on two processes as DataParallel does with two replicas."""
    for name, text in (("before", before), ("after", after)):
        (folder / f"{name}.py").write_text(text)
    one = lab.run(folder / "before.py", options, replicas=2, timeout=60).ok()
    two = lab.run(folder / "after.py", options, processes=2, timeout=60).ok()
    assert float(two.printed) == pytest.approx(float(one.printed), abs=1e-6)


@pytest.mark.parametrize("fetch", FETCHES)
def test_what_is_fetched_is_fetched_by_one_process_first(fetch: str) -> None:
    text = (
        HEAD + "data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))\nmodel = nn.Linear(8, 2)\n"
    )
    text += f"{fetch}\nloader = DataLoader(data, batch_size=16)\nmodel = nn.DataParallel(model)\n{LOOP}"
    graphs = "class Graphs(torch_geometric.data.InMemoryDataset):\n    pass\n\n\n"
    text = f"import clip\nimport torch_geometric\n{text}".replace("def prepare", f"{graphs}def prepare", 1)
    conversion = convert(Project.of({Path("/example/train.py"): text}))
    assert not conversion.errors, conversion.errors
    blocks = [
        "\n".join(ast.unparse(statement) for statement in node.body)
        for node in ast.walk(ast.parse(conversion.changes[0].after))
        if isinstance(node, ast.With) and "main_process_first" in ast.unparse(node.items[0])
    ]
    assert blocks == [ast.unparse(ast.parse(fetch))]


@pytest.mark.parametrize(
    "made",
    [
        "model = torchvision.models.resnet18(pretrained=True)",
        'model = torchvision.models.resnet18(weights="DEFAULT")',
        'model.load_state_dict(model_zoo.load_url("https://example.org/model.pth"))',
        "words = nn.Embedding.from_pretrained(torch.randn(5, 2))",
        'os.makedirs("runs", exist_ok=True)',
        'for name in ("runs", "logs"):\n    os.makedirs(os.path.join("out", name), exist_ok=True)',
        'if not os.path.isdir("runs"):\n    os.makedirs("runs", exist_ok=True)',
        'weights = nn.Linear(8, 2)\nweights.load_state_dict(torch.load("pretrained.pth", map_location="cpu"))',
    ],
)
def test_what_all_may_do_at_once_stays_as_it_is(made: str) -> None:
    """torch.hub's downloads the runtime keeps apart; what loads in a bare model has no prefix."""
    text = (
        HEAD + "data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))\nmodel = nn.Linear(8, 2)\n"
    )
    text += f"{made}\nloader = DataLoader(data, batch_size=16)\nmodel = nn.DataParallel(model)\n{LOOP}"
    (change,) = convert(Project.of({Path("/example/train.py"): text})).changes
    assert f"\n{made}\n" in change.after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{'cuda:0': 'cuda:1'}", "{'cuda:0': \"cuda\"}"),
        ("{'cuda:%d' % 0: 'cuda:%d' % int(GPU)}", "{'cuda:%d' % 0: \"cuda\"}"),
        ("{f'cuda:{i}': f'cuda:{GPU}' for i in range(8)}", "{f'cuda:{i}': \"cuda\" for i in range(8)}"),
    ],
)
def test_a_map_of_gpus_keeps_those_of_the_file(before: str, after: str) -> None:
    """They say where it was written; where they lead to is this rank's GPU."""
    text = (
        HEAD + "data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))\nmodel = nn.Linear(8, 2)\n"
    )
    text += f"GPU = 0\nplaces = {before}\nmodel.load_state_dict(torch.load('a.pth', map_location=places))\n"
    text += f"loader = DataLoader(data, batch_size=16)\nmodel = nn.DataParallel(model.to('cuda:0'))\n{LOOP}"
    conversion = convert(Project.of({Path("/example/train.py"): text}))
    assert not conversion.errors and f"places = {after}\n" in conversion.changes[0].after


def test_what_a_function_of_any_arguments_saves_has_the_bare_model_s_keys() -> None:
    text = HEAD + "def save_on_master(*args, **kwargs):\n    torch.save(*args, **kwargs)\n\n\n"
    text += "data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))\nmodel = nn.Linear(8, 2)\n"
    text += "if torch.cuda.device_count() > 1:\n    model = nn.DataParallel(model)\nalias = model\n"
    text += f"loader = DataLoader(data, batch_size=16)\n{LOOP}"
    text += "checkpoint = {'model': alias.state_dict(), 'epoch': 0}\nsave_on_master(checkpoint, 'a.pt')\n"
    (change,) = convert(Project.of({Path("/example/train.py"): text})).changes
    assert (
        "'model': alias.module.state_dict()" in change.after and "ddp.save(*args, **kwargs)" in change.after
    )


def test_a_model_that_a_lambda_makes_is_moved_where_it_is_wrapped() -> None:
    text = HEAD + "data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))\n"
    text += "make = lambda width: nn.Linear(8, width)\nmodel = make(2)\n"
    text += "if torch.cuda.device_count() > 1:\n    model = nn.DataParallel(model)\nmodel = model.cuda()\n"
    (change,) = convert(
        Project.of({Path("/example/train.py"): text + f"loader = DataLoader(data, batch_size=16)\n{LOOP}"})
    ).changes
    assert "\nmodel = ddp.DistributedDataParallel(model.to(ddp.device()))\n" in change.after


FOLDED = """\
from functools import partial, reduce
from itertools import accumulate
from typing import NamedTuple


class State(NamedTuple):
    model: nn.Module
    optimizer: torch.optim.Optimizer
    seen: int = 0


def moved(batch):
    inputs, targets = batch
    return inputs.float(), targets


def pipe(value, *functions):
    return reduce(lambda made, function: function(made), functions, value)


def update(criterion, state, batch):
    inputs, targets = batch
    state.optimizer.zero_grad()
    criterion(state.model(inputs), targets).backward()
    state.optimizer.step()
    return state._replace(seen=state.seen + 1)


def epoch(batches, state, number):
    return reduce(partial(update, nn.CrossEntropyLoss()), map(moved, batches()), state)


torch.manual_seed(3)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16)
model = pipe(nn.Linear(8, 2), (lambda it: it.double().float()), nn.DataParallel)
start = State(model, torch.optim.SGD(model.parameters(), lr=0.1))
*_, last = accumulate(range(2), partial(epoch, lambda: loader), initial=start)
print(last.seen, sum(it.sum().item() for it in last.model.parameters()))
"""


def test_a_training_that_folds_over_its_batches_is_followed(tmp_path: Path, lab: Lab) -> None:
    text = HEAD + FOLDED
    (change,) = convert(Project.of({Path("/example/train.py"): text})).changes
    for name, content in (("before", text), ("after", change.after)):
        (tmp_path / f"{name}.py").write_text(content)
    before = lab.run(tmp_path / "before.py", replicas=2, timeout=60).ok().printed.split()
    after = lab.run(tmp_path / "after.py", processes=2, timeout=60).ok().printed.split()
    assert after[0] == before[0] == "8"
    assert float(after[1]) == pytest.approx(float(before[1]), abs=1e-6)


def test_a_wrapper_that_is_one_of_several_functions_is_replaced_where_it_is_named(
    tmp_path: Path, lab: Lab
) -> None:
    text = START.replace(
        "torch.manual_seed(0)",
        """\
def build(steps, model):
    for step in steps:
        model = step(model)
    return model


def double(model):
    for parameter in model.parameters():
        parameter.data.mul_(2)
    return model


torch.manual_seed(3)""",
    ).replace("nn.DataParallel(nn.Linear(8, 2))", "build([double, nn.DataParallel], nn.Linear(8, 2))")
    text += LOOP + "print(sum(it.sum().item() for it in model.parameters()))\n"
    (change,) = convert(Project.of({Path("/example/train.py"): text})).changes
    assert "build([double, ddp.DataParallel], nn.Linear(8, 2))" in change.after
    assert_same_number(lab, tmp_path, text, change.after)


def test_what_a_loop_takes_under_a_name_is_not_what_another_took_under_it() -> None:
    """Numbers of an evaluation that all ranks make are not said to be one rank's."""
    text = (
        HEAD + "data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))\nmodel = nn.Linear(8, 2)\n"
    )
    text += (
        "loader = DataLoader(data, batch_size=16)\nothers = DataLoader(data, batch_size=16)\nbest = None\n"
    )
    text += f"model = nn.DataParallel(model)\n{LOOP}"
    text += (
        "    total = count = 0\n    for inputs, targets in others:\n"
        "        total += model(inputs).detach().pow(2).sum().item()\n        count += len(targets)\n"
        "    if best is None or total / count < best[0]:\n        best = (total / count, epoch)\n    print(best[0])\n"
    )
    conversion = convert(Project.of({Path("/example/train.py"): text}))
    assert "sampler = DistributedSampler(" in conversion.changes[0].after
    assert [it.rule for it in conversion.findings if it.rule == "DDP502"] == []


@pytest.mark.parametrize("keeps", ["kept.append(output.mean().item())", "print(output.mean().item())"])
def test_a_forward_hook_that_keeps_what_it_sees_is_named(keeps: str) -> None:
    hook = f"kept = []\n\n\ndef hook(module, inputs, output):\n    {keeps}\n\n\nmodel.module.register_forward_hook(hook)\n"
    text = START + hook + LOOP
    found = convert(Project.of({Path("/example/train.py"): text})).findings
    assert ["sees only each rank's part of the batch" in it.message for it in found].count(True) == 1
    quiet = convert(
        Project.of({Path("/example/train.py"): text.replace(keeps, "return output * 2")})
    ).findings
    assert not any("this hook" in it.message for it in quiet)


@pytest.mark.parametrize(("given", "is_named"), [("", False), (", [model.module]", True)])
def test_a_forward_hook_that_no_call_comes_to_is_not_named(given: str, is_named: bool) -> None:
    watch = (
        "def watch(model, inputs, modules=None):\n    if modules is None:\n        return model(inputs)\n    kept = []\n"
        "    for it in modules:\n        it.register_forward_hook(lambda module, inputs, output: kept.append(output.mean()))\n"
        "    model(inputs)\n    return kept\n\n\n"
    )
    text = START + watch + LOOP + f"print(watch(model, torch.ones(4, 8){given}))\n"
    found = convert(Project.of({Path("/example/train.py"): text})).findings
    assert any("sees only each rank's part of the batch" in it.message for it in found) == is_named


WRITING = """
class Kept(nn.Module):
    def __init__(self, inner, keep=None):
        super().__init__()
        self.inner, self.keep = inner, keep

    def forward(self, inputs):
        outputs = self.inner(inputs)
        for i, row in enumerate(outputs):
            WRITE
        return outputs


"""


@pytest.mark.parametrize(
    "write", ["torch.save(row, f'{i}.pt')", "open(f'{i}.txt', 'w').write(str(row.sum()))", "pass"]
)
def test_what_a_forward_writes_is_named(write: str) -> None:
    text = START + LOOP
    named = WRITING.replace("WRITE", write)
    wrapped = text.replace("model = nn.DataParallel(", named + "model = nn.DataParallel(Kept(", 1)
    line = next(it for it in wrapped.splitlines() if it.startswith("model = nn.DataParallel(Kept("))
    found = convert(Project.of({Path("/example/train.py"): wrapped.replace(line, line + ")")})).findings
    assert any("in a forward writes on every rank" in it.message for it in found) == (write != "pass")
    idle = text.replace("model = nn.DataParallel(", named + "model = nn.DataParallel(", 1)
    found = convert(Project.of({Path("/example/train.py"): idle})).findings
    assert not any("in a forward writes" in it.message for it in found)


@pytest.mark.parametrize(("noise", "is_named"), [("0.0", False), ("0.1", True)])
def test_a_forward_hook_behind_a_default_of_zero_is_not_named(noise: str, is_named: bool) -> None:
    noisy = (
        "def noisy(layer, p):\n    if p <= 0:\n        return layer\n"
        "    layer.register_forward_hook(lambda module, inputs, output: print(output.mean()))\n"
        f"    return layer\n\n\ndef head(layer, noise={noise}):\n    return noisy(layer, noise)\n\n\n"
    )
    text = START + noisy + "head(model.module)\n" + LOOP
    found = convert(Project.of({Path("/example/train.py"): text})).findings
    assert any("sees only each rank's part of the batch" in it.message for it in found) == is_named


PICTURES = """\
from PIL import Image
from torchvision import transforms
from torchvision.datasets import ImageFolder


def draw(root, split, count):
    for kind in ("a", "b"):
        folder = os.path.join(root, split, kind)
        os.makedirs(folder, exist_ok=True)
        for number in range(count):
            Image.new("RGB", (2, 2), (number, 0, 99)).save(os.path.join(folder, f"{number}.png"))


torch.manual_seed(3)
draw("pictures", "train", 16)
data = ImageFolder(os.path.join("pictures", "train"), transforms.ToTensor())
loader = DataLoader(data, batch_size=16)
model = nn.DataParallel(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)))
"""


def test_all_wait_for_the_pictures_that_a_data_set_lists(tmp_path: Path, lab: Lab) -> None:
    text = HEAD + PICTURES + LOOP + "print(len(data))\n"
    (change,) = convert(Project.of({Path("/example/train.py"): text})).changes
    assert "\nddp.barrier()\ndata = ImageFolder(" in change.after
    (tmp_path / "after.py").write_text(change.after)
    assert lab.run(tmp_path / "after.py", processes=3, timeout=60).ok().printed == "32\n"


SHOWN = """\
torch.manual_seed(3)
data = TensorDataset(torch.ones(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16)
model = nn.DataParallel(nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 2)))
fixed = torch.randn(12, 8)
"""


def test_what_is_only_shown_of_fixed_inputs_is_normalised_by_parts(tmp_path: Path, lab: Lab) -> None:
    """As nn.DataParallel's replicas did it, where gradients are enabled, too."""
    text = (
        HEAD
        + SHOWN
        + LOOP
        + "    shown = model(fixed)\n    torchvision.utils.save_image(shown.detach(), 'shown.png')\n"
        + "print(model.module[0].running_mean.sum().item())\n"
    )
    (change,) = convert(Project.of({Path("/example/train.py"): text})).changes
    assert "shown = ddp.data_parallel(model.module, fixed, detached=True)\n" in change.after
    assert_same_number(lab, tmp_path, text, change.after)


def test_a_wrap_under_a_condition_in_a_program_that_only_predicts_stays_one(tmp_path: Path, lab: Lab) -> None:
    reader = """\
import sys

import torch
from torch import nn

model = nn.Linear(8, 2)
if len(sys.argv) > 1:
    model = nn.DataParallel(model)
model.load_state_dict(torch.load("model.pt"))
print(sum(it.sum().item() for it in model.parameters()))
"""
    trainer = START + LOOP + 'torch.save(model.state_dict(), "model.pt")\n'
    files = {Path("/example/train.py"): trainer, Path("/example/predict.py"): reader}
    found = {it.path.name: it.after for it in convert(Project.of(files)).changes}
    for name, text in found.items():
        (tmp_path / name).write_text(text)
    lab.run(tmp_path / "train.py", processes=2, folder=tmp_path, timeout=60).ok()
    said = [
        lab.run(tmp_path / "predict.py", given, folder=tmp_path, recorded=False, timeout=60).ok().printed
        for given in ([], ["wrapped"])
    ]
    assert said[0] == said[1]


def test_whether_a_folder_is_there_is_asked_once_where_a_question_hangs_on_it(
    tmp_path: Path, lab: Lab
) -> None:
    """The first process makes it while the others are on their way."""
    text = START.replace(
        "torch.manual_seed(0)",
        """\
import time

time.sleep(float(os.environ.get("LAB_RANK", 0)))
if os.path.isdir("runs"):
    input("delete it? ")
os.makedirs("runs/first")
open("runs/first/log.txt", "w").write("x")
torch.manual_seed(0)""",
    )
    (change,) = convert(Project.of({Path("/example/train.py"): f"{text}{LOOP}print('trained')\n"})).changes
    assert 'if ddp.from_main_process(os.path.isdir("runs")):' in change.after
    (tmp_path / "after.py").write_text(change.after)
    assert lab.run(tmp_path / "after.py", processes=2, timeout=60).ok().printed == "trained\n"


BOXED = """\
import argparse


class Box(nn.Module):
    def __init__(self):
        super().__init__()
        self.module, self.head = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.module(x))


parser = argparse.ArgumentParser()
parser.add_argument("--single", action="store_true")
args = parser.parse_args()
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16)
model = Box()
if not args.single:
    model = nn.DataParallel(model)
head = model.head if args.single else model.module.head
"""


def test_a_model_with_a_module_of_its_own_is_saved_whole(tmp_path: Path, lab: Lab) -> None:
    text = HEAD + BOXED + LOOP + 'torch.save(model.state_dict(), "model.pt")\n'
    (change,) = convert(Project.of({Path("/example/train.py"): text})).changes
    assert "ddp.save(ddp.unwrap(model).state_dict()" in change.after
    (tmp_path / "after.py").write_text(change.after)
    for given in ([], ["--single"]):
        lab.run(tmp_path / "after.py", given, processes=2, folder=tmp_path, recorded=False, timeout=60).ok()
        kept = torch.load(tmp_path / "model.pt")
        assert set(kept) == {f"{part}.{name}" for part in ("module", "head") for name in ("weight", "bias")}


def test_a_function_that_calls_itself_with_a_constant_that_it_asks_for_ends() -> None:
    text = HEAD + """\
def norm(p, dim):
    if dim is None:
        return p.norm()
    elif dim == 0:
        return p.view(p.size(0), -1).norm(dim=1)
    else:
        return norm(p.transpose(0, dim), 0).transpose(0, dim)


class Net(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.layer = nn.Linear(8, 2)
        norm(self.layer.weight, dim)

    def forward(self, x):
        return self.layer(x)


rank = int(os.environ.get("LOCAL_RANK", -1))
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16)
model = Net(0)
if rank != -1:
    torch.distributed.init_process_group(backend="gloo")
    model = nn.parallel.DistributedDataParallel(model)
else:
    model = nn.DataParallel(model)
""" + LOOP
    assert convert(Project.of({Path("/example/train.py"): text})).changes


WRAPS = {
    "under its name": "model = nn.DataParallel(model) if {} else model",
    "under another": "model, bare = nn.Linear(8, 2), model\nmodel = nn.DataParallel(bare) if {} else bare",
    "the other way round": "model = model if not {} else nn.DataParallel(model)",
}


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
@pytest.mark.parametrize("option", ["1", "0"])
def test_an_option_in_a_conditional_expression_says_on_how_many_devices(
    tmp_path: Path, lab: Lab, wrap: str, option: str
) -> None:
    text = (
        HEAD
        + "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--parallel', type=int)\n"
        + "parallel = parser.parse_args().parallel\ntorch.manual_seed(3)\nmodel = nn.Linear(8, 2)\n"
        + "data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))\n"
        + f"{wrap.format('parallel')}\nloader = DataLoader(data, batch_size=16)\n{LOOP}"
        + "print(sum(it.sum().item() for it in model.parameters()))\n"
    )
    (change,) = convert(Project.of({Path("/example/train.py"): text})).changes
    assert "sampler = DistributedSampler(" in change.after
    assert_same_number(lab, tmp_path, text, change.after, "--parallel", option)


def test_a_model_that_is_wrapped_for_several_of_its_devices_is_sharded(tmp_path: Path, lab: Lab) -> None:
    text = HEAD + """\
def devices(wanted):
    found = min(torch.cuda.device_count(), wanted)
    return torch.device("cuda:0" if found > 0 else "cpu"), list(range(found))


torch.manual_seed(3)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16)
device, device_ids = devices(2)
model = nn.Linear(8, 2).to(device)
if len(device_ids) > 1:
    model = nn.DataParallel(model, device_ids=device_ids)
""" + LOOP + "print(sum(it.sum().item() for it in model.parameters()))\n"
    (change,) = convert(Project.of({Path("/example/train.py"): text})).changes
    assert "\nmodel = ddp.DistributedDataParallel(model" in change.after
    assert_same_number(lab, tmp_path, text, change.after)


def test_a_model_that_a_conditional_expression_wraps_is_sharded(tmp_path: Path, lab: Lab) -> None:
    """One that a process alone has stays wrapped: so do the keys that nothing strips."""
    text = (
        HEAD
        + "torch.manual_seed(3)\ndata = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))\nmodel = nn.Linear(8, 2)\n"
    )
    text += "several = torch.cuda.device_count() > 1\nmodel = nn.DataParallel(model).cuda() if several else model.cuda()\n"
    text += f"loader = DataLoader(data, batch_size=16)\n{LOOP}"
    text += (
        "bare = model.module if several else model\nprint(sum(it.sum().item() for it in bare.parameters()))\n"
    )
    (change,) = convert(Project.of({Path("/example/train.py"): text})).changes
    assert "\nmodel = ddp.DistributedDataParallel(model.cuda())\n" in change.after
    for name, content in (("before", text), ("after", change.after)):
        (tmp_path / f"{name}.py").write_text(content)
    before = lab.run(tmp_path / "before.py", replicas=2, timeout=60).ok()
    for processes in (1, 2):
        after = lab.run(tmp_path / "after.py", processes=processes, timeout=60).ok()
        assert float(after.printed) == pytest.approx(float(before.printed), abs=1e-6)


@pytest.mark.parametrize("several", ["torch.cuda.device_count() > 1", "torch.cuda.is_available()"])
def test_a_part_that_is_wrapped_under_a_condition_keeps_the_keys_that_it_has_in_one_process(
    several: str,
) -> None:
    text = HEAD + "data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))\n"
    text += "model = nn.Sequential()\nmodel.encoder = nn.Linear(8, 2)\n"
    text += f"if {several}:\n    model.encoder = nn.DataParallel(model.encoder)\n"
    text += f"loader = DataLoader(data, batch_size=16)\n{LOOP}torch.save(model.state_dict(), 'model.pt')\n"
    (change,) = convert(Project.of({Path("/example/train.py"): text})).changes
    wrap = "ddp.DistributedDataParallel(model.encoder.to(ddp.device()))"
    assert f"\nif ddp.get_world_size() > 1:\n    model.encoder = {wrap}\n" in change.after
    assert several not in change.after


def test_a_folder_with_a_name_of_each_process_s_own_is_made_by_one() -> None:
    text = HEAD + "import time\n\ndata = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))\n"
    text += (
        'os.makedirs(os.path.join("runs", time.strftime("%H%M%S")), exist_ok=True)\nmodel = nn.Linear(8, 2)\n'
    )
    text += f"loader = DataLoader(data, batch_size=16)\nmodel = nn.DataParallel(model)\n{LOOP}"
    (change,) = convert(Project.of({Path("/example/train.py"): text})).changes
    assert "if ddp.is_main_process():\n    os.makedirs(" in change.after


@pytest.mark.parametrize(
    ("read", "waits"),
    {
        "another file": ('json.load(open(os.path.join(root, "stats.json")))', False),
        "its own": ('torch.load(os.path.join(root, "last.pt"))', True),
        "its own, formatted": ('torch.load("{}/{}.pt".format(root, "last"))', True),
        "another one, formatted": ('torch.load("%s/first_%d.pth" % (root, 3))', False),
        "one that is not known": ("torch.load(sys.argv[-1])", True),
    }.values(),
)
def test_only_what_the_program_writes_is_waited_for(read: str, waits: bool) -> None:
    """In a loop the wait would be one of every step."""
    text = (
        HEAD
        + "import json, sys\n\nroot = 'out'\ndata = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))\n"
    )
    text += f"model = nn.Linear(8, 2)\nloader = DataLoader(data, batch_size=16)\nmodel = nn.DataParallel(model)\n{LOOP}"
    text += '        torch.save(model.state_dict(), os.path.join(root, "last.pt"))\n'
    text += f"        if step % 10 == 0:\n            print({read})\n".replace("step", "len(inputs)")
    (change,) = convert(Project.of({Path("/example/train.py"): text})).changes
    assert ("ddp.barrier()" in change.after) == waits


@pytest.mark.parametrize(
    ("given", "squared", "enclosed"),
    [
        ("", "", "dataset = "),
        (", sampler=torch.utils.data.RandomSampler(range(64))", "", "loader = "),
        ("", " + model(inputs).std()", "loader = "),
    ],
    ids=["a sampler is dealt", "the loader is dealt", "whole batches"],
)
def test_so_is_a_data_set_inside_a_loader_s_call(given: str, squared: str, enclosed: str) -> None:
    """By itself where it becomes a statement of its own, else with the loader."""
    text = (
        HEAD
        + f'loader = DataLoader(torchvision.datasets.MNIST("data", download=True), batch_size=16{given})\n'
    )
    loop = LOOP.replace("criterion(model(inputs), targets)", f"(criterion(model(inputs), targets){squared})")
    text += f"model = nn.DataParallel(nn.Linear(8, 2))\n{loop}"
    conversion = convert(Project.of({Path("/example/train.py"): text}))
    assert not conversion.errors, conversion.errors
    after = conversion.changes[0].after
    assert (
        f"with ddp.main_process_first():\n    {enclosed}" in after and after.count("main_process_first") == 1
    )


def run(lab: Lab, folder: Path, program: str, errors: bool = False) -> str:
    """Convert a program by the command, run it, and return what two processes print, or say on stderr."""
    script = folder / "train.py"
    script.write_text(program)
    converted = command.run("convert", "train.py", "--inplace", cwd=folder)
    assert converted.returncode == 0, converted.stderr.decode()
    ran = lab.run(script, processes=2, folder=folder, recorded=False).ok()
    return ran.errors if errors else ran.printed


def test_caches_and_helpers_work_in_two_processes(lab: Lab, tmp_path: Path) -> None:
    """A data set that writes a cache, helpers that save and load bare and wrapped models, an unseeded split."""
    program = (
        HEAD.replace("import torchvision\n", "")
        + """
class Cached(Dataset):
    def __init__(self, path):
        if not os.path.exists(path):
            print("making", path)
            torch.save((torch.randn(80, 8), torch.randint(2, (80,))), path)
        self.inputs, self.targets = torch.load(path)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return self.inputs[index], self.targets[index]


def save(network, path):
    torch.save(network.state_dict(), path)


def load(network, path):
    network.load_state_dict(torch.load(path))


def unwrapped(network):
    return network.module if hasattr(network, "module") else network


def main():
    data, held_out = torch.utils.data.random_split(Cached("cache.pt"), [64, 16])
    loader = DataLoader(data, batch_size=16, shuffle=True)
    bare = nn.Linear(8, 2)
    save(bare, "start.pt")
    load(bare, "start.pt")
    model = nn.DataParallel(bare)
"""
        + "".join(f"    {line}\n" for line in LOOP.splitlines())
        + """    save(model, "end.pt")
    load(model, "end.pt")
    torch.save(unwrapped(model).state_dict(), "bare.pt")
    print("trained", sorted(torch.load("end.pt")) == sorted(torch.load("bare.pt")) == ["bias", "weight"])


main()
"""
    )
    printed = run(lab, tmp_path, program)
    assert printed.splitlines() == ["making cache.pt", "trained True"]


def test_a_wrap_that_only_predicts_does_not_keep_the_result_from_being_stable() -> None:
    evaluate = (
        "from torch import nn\n\n\ndef evaluate(model):\n    model.eval()\n\n\n"
        'if __name__ == "__main__":\n    evaluate(nn.DataParallel(nn.Linear(8, 2)))\n'
    )
    text = (
        HEAD
        + "from evaluate import evaluate\n\ndata = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))\n"
    )
    text += "model = nn.DataParallel(nn.Linear(8, 2))\nloader = DataLoader(data, batch_size=16)\n"
    script, other = Path("/example/train.py"), Path("/example/evaluate.py")
    conversion = convert(Project.of({script: f"{text}{LOOP}evaluate(model)\n", other: evaluate}))
    assert not conversion.errors, conversion.errors
    assert [change.path for change in conversion.changes] == [script]


FILES = (
    HEAD.replace("import torchvision\n", "").replace("import os\n", "import os\nimport sys\nimport time\n")
    + """
class Tee:
    def __init__(self, path):
        self.console = sys.stdout
        self.file = open(path, "w")

    def write(self, text):
        self.console.write(text)
        self.file.write(text)

    def flush(self):
        self.console.flush()
        self.file.flush()


def make(folder):
    if os.path.isdir(folder):
        return
    os.makedirs(folder)


def done(folder):
    if os.path.exists(folder):
        return True
    return False


def slow_process():
    time.sleep(0.5 * int(os.environ.get("LAB_RANK", 0)))


def read(path):
    if os.path.isfile(path):
        state = torch.load(path)
        if not state:
            raise ValueError(path)
        return state
    raise FileNotFoundError(path)


def main():
    torch.manual_seed(0)
    slow_process()
    if done("run"):
        return
    make("run")
    sys.stdout = Tee(os.path.join("run", "log.txt"))
    make("run")
    data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    model = nn.DataParallel(nn.Linear(8, 2))
"""
    + "".join(f"    {line}\n" for line in LOOP.splitlines())
    + """    torch.save(model.module.state_dict(), "run/end.pt")
    print("trained", sorted(read("run/end.pt")))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
"""
)


def test_files_that_the_main_process_makes_end_no_other_process(lab: Lab, tmp_path: Path) -> None:
    """The processes come one after the other: the last finds what the first has made, and must go on as it did."""
    program = FILES.replace('    if done("run"):\n', '    if os.path.exists("run"):\n')
    printed = run(lab, tmp_path, program)
    assert printed == (tmp_path / "run" / "log.txt").read_text() == "trained ['bias', 'weight']\n"
    converted = (tmp_path / "train.py").read_text()
    assert 'if ddp.from_main_process(os.path.exists("run")):' in converted
    assert "    if os.path.isdir(folder):\n        return\n" in converted
    assert "    if os.path.isfile(path):\n" in converted
    again = tmp_path / "again"
    again.mkdir()
    (again / "run").mkdir()
    assert run(lab, again, program) == "" and not list((again / "run").iterdir())


def test_an_answer_that_is_returned_is_the_main_process_s(lab: Lab, tmp_path: Path) -> None:
    assert run(lab, tmp_path, FILES) == "trained ['bias', 'weight']\n"
    assert "if ddp.from_main_process(os.path.exists(folder)):" in (tmp_path / "train.py").read_text()


def test_ranks_that_come_late_draw_what_is_drawn_for_a_missing_file(lab: Lab, tmp_path: Path) -> None:
    """Else their later numbers would be others than the first rank's."""
    program = HEAD.replace("import torchvision\n", "import time\n") + (
        "torch.manual_seed(0)\ndata = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))\n"
        "loader = DataLoader(data, batch_size=16)\nmodel = nn.DataParallel(nn.Linear(8, 2))\n"
    )
    program += LOOP + ('if not os.path.exists("noise.pt"):\n    torch.save(torch.randn(4, 8), "noise.pt")\n')
    run(lab, tmp_path, program)
    script = tmp_path / "train.py"
    text = script.read_text().replace("\nif ", "\ntime.sleep(ddp.get_rank())\nif ")
    script.write_text(text + 'os.mkdir(f"rank {ddp.get_rank()}: {torch.rand(1).item()}")\n')
    (tmp_path / "noise.pt").unlink()
    lab.run(script, processes=2, recorded=False, folder=tmp_path).ok()
    assert len({it.name.partition(":")[2] for it in tmp_path.glob("rank *")}) == 1


def test_a_log_on_the_console_is_the_main_process_s_without_an_edit(lab: Lab, tmp_path: Path) -> None:
    tools = (
        "import logging\n\nlogging.basicConfig(level=logging.INFO)\nlogger = logging.getLogger(__name__)\n"
        "logger.addHandler(logging.StreamHandler())\n"
    )
    (tmp_path / "tools.py").write_text(tools)
    program = (
        HEAD.replace("import torchvision\n", "from tools import logger\n")
        + "torch.manual_seed(0)\ndata = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))\n"
        "loader = DataLoader(data, batch_size=16)\nmodel = nn.DataParallel(nn.Linear(8, 2))\n"
        f'{LOOP}logger.info("trained")\n'
    )
    said = run(lab, tmp_path, program, errors=True)
    assert [line for line in said.splitlines() if "trained" in line] == ["trained", "INFO:tools:trained"]
    assert (tmp_path / "tools.py").read_text() == tools


def test_what_the_shell_fetches_is_waited_for() -> None:
    text = HEAD.replace("import torchvision\n", "import json\n") + (
        'if not os.path.exists("names.json"):\n    os.system("wget https://example.org/names.json")\n'
        'names = json.load(open("names.json"))\nagain = json.load(open("names.json"))\n'
        "data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))\n"
        "loader = DataLoader(data, batch_size=16)\nmodel = nn.DataParallel(nn.Linear(8, 2))\n"
    )
    conversion = convert(Project.of({Path("/example/train.py"): text + LOOP}))
    assert not conversion.errors, conversion.errors
    after = conversion.changes[0].after
    assert 'ddp.barrier()\nnames = json.load(open("names.json"))\n' in after and after.count("barrier") == 1


def test_all_wait_before_a_file_is_looked_up_that_is_read(lab: Lab, tmp_path: Path) -> None:
    """Not only before it is read: the main process may not have written it yet."""
    text = HEAD.replace("import torchvision\n", "import glob\n") + (
        "data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))\n"
        "loader = DataLoader(data, batch_size=16)\nmodel = nn.DataParallel(nn.Linear(8, 2))\n"
    )
    text += LOOP + (
        'torch.save({"model": model.state_dict(), "more": torch.zeros(30_000_000)}, "run-1.pt")\n'
        'found = sorted(glob.glob("run-*"))\npath = found[-1]\n'
        'model.load_state_dict(torch.load(path)["model"])\nprint("read")\n'
    )
    assert run(lab, tmp_path, text) == "read\n"
    assert "ddp.barrier()\nfound = " in (tmp_path / "train.py").read_text()


def test_a_class_that_fetches_and_unpacks_is_made_by_one_process_first() -> None:
    text = HEAD.replace("import torchvision\n", "import zipfile\nimport urllib.request\n") + (
        "class Pictures:\n    def __init__(self, root):\n        self.root = root\n        self.fetch()\n"
        '        if not os.path.isdir(self.root):\n            raise RuntimeError("missing")\n\n'
        "    def fetch(self):\n        if os.path.isdir(self.root):\n            return\n"
        "        os.makedirs(self.root)\n"
        '        urllib.request.urlretrieve("https://example.org/a.zip", "a.zip")\n'
        '        zipfile.ZipFile("a.zip").extractall(self.root)\n\n\n'
        'pictures = Pictures("a")\n'
        "data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))\n"
        "loader = DataLoader(data, batch_size=16)\nmodel = nn.DataParallel(nn.Linear(8, 2))\n"
    )
    conversion = convert(Project.of({Path("/example/train.py"): text + LOOP}))
    assert not conversion.errors, conversion.errors
    after = conversion.changes[0].after
    assert 'with ddp.main_process_first():\n    pictures = Pictures("a")\n' in after
    assert after.count("main_process_first") == 1 and "from_main" not in after


DERIVED = """
class More(Pictures):
    def __init__(self, root):
        SUPER.__init__(root)


"""


@pytest.mark.parametrize("base", ["super()", "super(More, self)"])
def test_so_is_one_that_is_derived_from_such_a_class(base: str) -> None:
    text = HEAD.replace("import torchvision\n", "import urllib.request\n") + (
        "class Pictures:\n    def __init__(self, root):\n        if not os.path.isdir(root):\n"
        "            os.makedirs(root)\n"
        "            urllib.request.urlretrieve('https://example.org/a', os.path.join(root, 'a'))\n\n"
    )
    text += DERIVED.replace("SUPER", base) + (
        "pictures = More('a')\ndata = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))\n"
        "loader = DataLoader(data, batch_size=16)\nmodel = nn.DataParallel(nn.Linear(8, 2))\n"
    )
    conversion = convert(Project.of({Path("/example/train.py"): text + LOOP}))
    assert not conversion.errors, conversion.errors
    assert "with ddp.main_process_first():\n    pictures = More('a')\n" in conversion.changes[0].after


CACHE = """\
import os
import shutil
import tempfile

import requests


def stream(url, file):
    for part in requests.get(url, stream=True).iter_content(chunk_size=1024):
        file.write(part)


def cached(url, folder="cache"):
    if not os.path.exists(folder):
        os.makedirs(folder)
    path = os.path.join(folder, url.rpartition("/")[2])
    if not os.path.exists(path):
        with tempfile.NamedTemporaryFile() as part:
            stream(url, part)
            part.seek(0)
            with open(path, "wb") as file:
                shutil.copyfileobj(part, file)
    return path


def found(place):
    if place.startswith("http"):
        return cached(place)
    return place


"""


def test_a_function_that_caches_a_download_is_called_by_one_process_first() -> None:
    """All of it: the first process of another machine has to write the file, too."""
    text = HEAD + CACHE + "data = TensorDataset(torch.load(found('http://example.org/data.pt')))\n"
    text += "loader = DataLoader(data, batch_size=16)\nmodel = nn.DataParallel(nn.Linear(8, 2))\n"
    conversion = convert(Project.of({Path("/example/train.py"): text + LOOP}))
    assert not conversion.errors, conversion.errors
    after = conversion.changes[0].after
    assert "        with ddp.main_process_first():\n            return cached(place)\n" in after
    assert after.count("main_process_first") == 1 and "ddp.is_main_process" not in after


def test_states_that_are_compared_key_by_key_are_both_bare(lab: Lab, tmp_path: Path) -> None:
    """A checkpoint of a wrapped model, put into a wrapped one by its keys; an average over the keys as they are."""
    state = {"module.weight": torch.ones(2, 8), "module.more": torch.ones(1)}
    torch.save({"state": state}, tmp_path / "new.pt")
    program = HEAD.replace("import torchvision\n", "") + """
class Average:
    def __init__(self, model):
        self.state = {name: value.clone() for name, value in model.state_dict().items()}

    def update(self, model):
        for name, value in model.state_dict().items():
            self.state[name].mul_(0.5).add_(0.5 * value)


def put(loaded, model):
    own = model.state_dict()
    found = {name: value for name, value in loaded.items() if name in own}
    own.update(found)
    model.load_state_dict(own)
    print(len(found), float(model.module.weight.mean()))


torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16)
model = nn.DataParallel(nn.Linear(8, 2))
put(torch.load("new.pt")["state"], model)
average = Average(model)
""" + LOOP + "average.update(model)\nprint(len(average.state))\n"
    assert run(lab, tmp_path, program).splitlines() == ["1 1.0", "2"]
    assert 'put(ddp.strip_module_prefix(torch.load("new.pt"' in (tmp_path / "train.py").read_text()


def test_a_model_wrapped_in_either_branch_is_wrapped_once() -> None:
    """A function above, which reads the name that has both the bare model and the wrapped ones."""
    program = HEAD.replace("import torchvision\n", "") + """
def main():
    data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
    loader = DataLoader(data, batch_size=16)
    model = nn.Linear(8, 2)

    def keep():
        torch.save({"state": model.module.state_dict()}, "new.pt")

    if os.path.exists("old.pt"):
        model.load_state_dict(torch.load("old.pt"))
        model = nn.DataParallel(model)
    else:
        model = nn.DataParallel(model)
""" + indent(LOOP, "    ") + "    keep()\n\n\nmain()\n"
    conversion = convert(Project.of({Path("/example/train.py"): program}))
    assert not conversion.errors, conversion.errors
    after = conversion.changes[0].after
    assert 'ddp.save({"state": model.module.state_dict()}, "new.pt")' in after
    assert after.count("ddp.DistributedDataParallel(model") == 2


START = (
    HEAD.replace("import torchvision\n", "")
    + "torch.manual_seed(0)\ndata = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))\n"
    "loader = DataLoader(data, batch_size=16)\nmodel = nn.DataParallel(nn.Linear(8, 2))\n"
)


def test_a_file_that_is_open_while_all_work_is_nowhere_for_the_others(lab: Lab, tmp_path: Path) -> None:
    program = (
        f'{START}with open("log.txt", "w") as log:\n'
        + "".join(f"    {line}\n" for line in LOOP.splitlines())
        + '    log.write(f"{len(model(data[:4][0]))} rows\\n")\n    print("trained")\n'
    )
    assert run(lab, tmp_path, program) == "trained\n"
    assert (tmp_path / "log.txt").read_text() == "4 rows\n"
    assert 'with ddp.open("log.txt", "w") as log:\n' in (tmp_path / "train.py").read_text()


def test_what_only_the_main_process_knows_is_asked_where_it_is_used() -> None:
    text = f"{START}{LOOP}".replace("import os\n", "import os\n\nimport tensorboardX\n") + (
        'board = tensorboardX.SummaryWriter()\npath = os.path.join(board.get_logdir(), "end.pt")\n'
        "torch.save(model.module.state_dict(), path)\n"
    )
    conversion = convert(Project.of({Path("/example/train.py"): text}))
    assert not conversion.errors, conversion.errors
    after = conversion.changes[0].after
    assert "board = ddp.on_main_process(tensorboardX.SummaryWriter)()\npath = os.path.join(board.get" in after
    used = Project.of({Path("/example/train.py"): text + "model.load_state_dict(torch.load(path))\n"})
    after = convert(used).changes[0].after
    assert "path = os.path.join(ddp.from_main_process(board.get_logdir())" in after


CHOICES = {
    "if args.gpu is None:\n    device = torch.device('cuda')\nelse:\n    device = torch.device(f'cuda:{args.gpu}')\n": (
        "\ndevice = ddp.device()\n"
    ),
    "device = torch.device('cuda:0') if args.gpu else torch.device('cuda')\n": "\ndevice = ddp.device()\n",
    "if args.gpu is None:\n    device = torch.device('cpu')\nelse:\n    device = torch.device(f'cuda:{args.gpu}')\n": (
        "    device = torch.device('cpu')\nelse:\n    device = ddp.device()\n"
    ),
    "device = None\nif args.gpu is None:\n    device = torch.device('cpu')\nelif args.gpu > 1:\n"
    "    device = torch.device('cuda:1')\nelse:\n    device = torch.device('cuda')\n": "elif args.gpu > 1:\n",
}


@pytest.mark.parametrize("choice", CHOICES)
def test_a_choice_between_two_gpus_is_none(choice: str) -> None:
    options = "import argparse\n\nargs = argparse.ArgumentParser().parse_args()\n"
    made = "data = TensorDataset(torch.rand(64, 8), torch.arange(64) % 2)\nloader = DataLoader(data, batch_size=16)\n"
    model = "model = nn.DataParallel(nn.Linear(8, 2)).to(device)\n"
    path = Path("/example/train.py")
    conversion = convert(Project.of({path: HEAD + options + choice + made + model + LOOP}))
    assert not conversion.errors and CHOICES[choice] in conversion.changes[0].after
    again = convert(Project.of({path: conversion.changes[0].after}))
    assert not again.changes and not again.findings


SETTINGS = {
    "json": ("import json\n\nconfig = json.load(open('c.json'))\n", "device = torch.device({})\n"),
    "an entry of an entry": (
        "import yaml\n\nconfig = {'device': yaml.safe_load(open('c.yaml'))['train']['device']}\n",
        "device = torch.device({})\n",
    ),
    "a class": (
        "import json\n\n\nclass Config:\n    def __init__(self, path):\n        self.values = json.load(open(path))\n\n"
        "    def __getitem__(self, name):\n        return self.values[name]\n\n\nconfig = Config('c.json')\n",
        "device = torch.device({})\n",
    ),
    "a name": ("import json\n\nconfig = json.load(open('c.json'))\n", "device = {}\n"),
    "a name that is compared": (
        "import json\n\nconfig = json.load(open('c.json'))\n",
        "name = {}\nif name != 'cpu':\n    print(name)\ndevice = torch.device(name)\n",
    ),
    "where there is one": (
        "import json\n\nconfig = json.load(open('c.json'))\n",
        "device = torch.device({} if torch.cuda.is_available() else 'cpu')\n",
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_device_that_a_file_names_is_the_rank_s_own(name: str) -> None:
    """Whatever number it has there; the CPU stays the CPU."""
    settings, made = SETTINGS[name]
    data = "data = TensorDataset(torch.rand(64, 8), torch.arange(64) % 2)\nloader = DataLoader(data, batch_size=16)\n"
    model = "model = nn.DataParallel(nn.Linear(8, 2).to(device))\n"
    path = Path("/example/train.py")
    text = HEAD + settings + made.format("config['device']") + data + model + LOOP
    conversion = convert(Project.of({path: text}))
    assert not conversion.errors
    after = conversion.changes[0].after
    if name == "a name that is compared":
        assert "\nname = config['device']\n" in after and "\ndevice = ddp.device(name)\n" in after
    else:
        expected = (
            made.format("ddp.device(config['device'])")
            if name in ("a name", "where there is one")
            else ("device = ddp.device(config['device'])\n")
        )
        assert f"\n{expected}" in after
    assert after.count("ddp.device(") == 1
    again = convert(Project.of({path: after}))
    assert not again.changes and not again.findings


MOVED = """\
import logging

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def setup(path):
    log = logging.getLogger(path)
    return log, str(path)


def chosen(net, log):
    log.info("looking for parameters")
    found = [it for it in net.parameters() if it.requires_grad]
    return found


def fit(net, loader, log):
    net = nn.DataParallel(net)
    net.cuda()
    optimizer = torch.optim.SGD([{"params": chosen(net, log), "lr": float(len(loader)) / 40}])
    criterion = nn.CrossEntropyLoss()
    for inputs, targets in loader:
        optimizer.zero_grad()
        criterion(net(inputs.cuda()), targets.cuda()).backward()
        optimizer.step()
    net.to("cpu")


log, folder = setup("a")
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
fit(nn.Linear(8, 2), DataLoader(data, batch_size=16), log)
"""


def test_a_model_that_goes_to_the_cpu_after_its_training_is_trained_where_it_was() -> None:
    (change,) = convert(Project.of({Path("/example/train.py"): MOVED})).changes
    assert "    net = ddp.DistributedDataParallel(net.cuda())\n    optimizer" in change.after
    assert '    net.to("cpu")\n' in change.after


def test_what_is_handed_to_a_function_is_not_trained_because_its_result_is() -> None:
    conversion = convert(Project.of({Path("/example/train.py"): MOVED}))
    assert [it.tier for it in conversion.scripts] == ["sharded"] and "DDP106" not in {
        it.rule for it in conversion.findings
    }


OPTIMIZER = '[{"params": chosen(net, log), "lr": float(len(loader)) / 40}]'


def test_a_parameter_by_itself_is_trained_and_what_it_is_made_of_is_not() -> None:
    text = MOVED.replace(OPTIMIZER, f'{OPTIMIZER[:-1]}, {{"params": own, "lr": 0.1}}]').replace(
        "    optimizer =", "    own = nn.Parameter(torch.zeros(len(log.name)).cuda())\n    optimizer ="
    )
    (change,) = convert(Project.of({Path("/example/train.py"): text})).changes
    assert change.after.count("sync_gradients") == 1 and "ddp.sync_gradients(own)" in change.after


CHOSEN = """\
import argparse
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Task:
    def __init__(self, args):
        self.args = args
        self.device = self.choose()
        self.model = self.build().to(self.device)

    def choose(self):
        if self.args.use_gpu:
            os.environ["CUDA_VISIBLE_DEVICES"] = str(self.args.gpu) if not self.args.many else self.args.devices
            return torch.device("cuda:{}".format(self.args.gpu))
        return torch.device("cpu")

    def build(self):
        model = nn.Linear(8, 2)
        if self.args.many and self.args.use_gpu:
            model = nn.DataParallel(model, device_ids=self.args.device_ids)
        return model

    def train(self):
        data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
        loader = DataLoader(data, batch_size=16)
        criterion = nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = criterion(self.model(inputs.to(self.device)), targets.to(self.device))
            loss.backward()
            optimizer.step()
        print(loss.item())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--use_gpu", type=bool, default=True)
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--many", action="store_true")
    parser.add_argument("--devices", default="0,1")
    args = parser.parse_args()
    torch.manual_seed(0)
    args.use_gpu = torch.cuda.is_available() and args.use_gpu
    if args.use_gpu and args.many:
        args.device_ids = [int(it) for it in args.devices.split(",")]
        args.gpu = args.device_ids[0]
    print(args)
    Task(args).train()


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("options", ["", "--many"])
def test_devices_that_are_only_known_where_an_option_asks_for_several(
    options: str, lab: Lab, tmp_path: Path
) -> None:
    (change,) = convert(Project.of({Path("/example/train.py"): CHOSEN})).changes
    assert (
        "ddp.use_devices(self.args.device_ids if self.args.many and self.args.use_gpu else [self.args.gpu])"
        in change.after
    )
    printed = []
    for name, text in {"before": CHOSEN, "after": change.after}.items():
        script = tmp_path / f"{name}.py"
        script.write_text(text)
        run = lab.run(script, options.split(), processes=1 if name == "before" else 2, recorded=False)
        printed.append(run.ok().printed.splitlines())
    assert printed[0][:-1] == printed[1][:-1]
    assert float(printed[1][-1]) == pytest.approx(float(printed[0][-1]), abs=1e-6)


NAMED = """\
import argparse
import json

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Task:
    def __init__(self, width, settings):
        self.settings = settings
        self.gpus = settings["gpus"]
        self.model = nn.Linear(width, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.parallel = self.model
        if self.gpus > 1:
            self.parallel = nn.DataParallel(self.model, device_ids=list(range(self.gpus)))

    def step(self, inputs, targets):
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.parallel(inputs), targets)
        loss.backward()
        self.optimizer.step()


def task_of(name, settings):
    if name == "plain":
        task = Task(8, settings)
    else:
        raise ValueError(name)
    return task


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="plain")
    args = parser.parse_args()
    torch.manual_seed(0)
    settings = json.loads('{"gpus": 2}')
    data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
    task = task_of(args.name, settings)
    for inputs, targets in DataLoader(data, batch_size=16):
        task.step(inputs, targets)
    print(task.model.weight.sum().item())


if __name__ == "__main__":
    main()
"""


def test_devices_are_chosen_by_names_that_are_there(lab: Lab, tmp_path: Path) -> None:
    """A condition round the call that makes the object is of the caller's names."""
    (change,) = convert(Project.of({Path("/example/train.py"): NAMED})).changes
    printed = []
    for name, text in {"before": NAMED, "after": change.after}.items():
        script = tmp_path / f"{name}.py"
        script.write_text(text)
        run = lab.run(script, processes=1 if name == "before" else 2, recorded=False)
        printed.append(float(run.ok().printed))
    assert printed[1] == pytest.approx(printed[0], abs=1e-6)


TEACHER = """\
def fit(teacher, path):
    optimizer = torch.optim.SGD(teacher.parameters(), lr=0.1)
    for inputs, targets in DataLoader(data, batch_size=16):
        optimizer.zero_grad()
        nn.functional.cross_entropy(teacher(inputs), targets).backward()
        optimizer.step()
    torch.save(teacher.state_dict(), path)
    return teacher


"""
LEFT_EARLY = {
    "a teacher that is trained": """\
def before(path):
    teacher = nn.DataParallel(nn.Linear(8, 2))
    if os.path.exists(path):
        teacher.load_state_dict(torch.load(path))
        return teacher
    optimizer = torch.optim.SGD(teacher.parameters(), lr=0.1)
    for inputs, targets in DataLoader(data, batch_size=16):
        optimizer.zero_grad()
        nn.functional.cross_entropy(teacher(inputs), targets).backward()
        optimizer.step()
    torch.save(teacher.state_dict(), path)
    return teacher


""",
    "a teacher that another function trains": TEACHER
    + """\
def before(path):
    teacher = nn.DataParallel(nn.Linear(8, 2))
    if os.path.isfile(path):
        teacher.load_state_dict(torch.load(path))
        return teacher
    else:
        print("training the teacher")
    return fit(teacher, path)


""",
    "a teacher that is not wrapped": TEACHER
    + """\
def before(path):
    if os.path.exists(path):
        teacher = nn.Linear(8, 2)
        teacher.load_state_dict(torch.load(path))
        return teacher
    return fit(nn.Linear(8, 2), path)


""",
    "outputs of the wrapped model": """\
def before(path):
    if os.path.exists(path):
        return torch.load(path)
    found = []
    with torch.no_grad():
        for inputs, _ in DataLoader(data, batch_size=16):
            found.append(model(inputs))
    torch.save(torch.cat(found), path)
    return found


""",
}


@pytest.mark.parametrize("loss", ["criterion(model(inputs), targets)", "torch.pdist(model(inputs)).std()"])
@pytest.mark.parametrize("name", LEFT_EARLY)
def test_what_all_processes_make_together_is_written_once(
    lab: Lab, tmp_path: Path, name: str, loss: str
) -> None:
    """A function that leaves early where the file is there: not one process after the other comes to what is below."""
    program = HEAD.replace("import torchvision\n", "") + LEFT_EARLY[name]
    program += "data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))\n"
    program += "loader = DataLoader(data, batch_size=16)\nmodel = nn.DataParallel(nn.Linear(8, 2))\n"
    program += "before('made.pt')\n" + LOOP.replace("criterion(model(inputs), targets)", loss)
    run(lab, tmp_path, program + "print(len(torch.load('made.pt')))\n")
    text = (tmp_path / "train.py").read_text()
    assert "main_process_first" not in text and "ddp.save(" in text


def test_a_forward_hook_that_marks_its_module_is_not_named() -> None:
    """nn.DataParallel's replicas take with them what is set on them; another object keeps it."""
    hook = "def hook(module, inputs, output):\n    module.seen = module.seen + output.numel()\n\n\nmodel.module.seen = 0\n"
    text = START + hook + "model.module.register_forward_hook(hook)\n" + LOOP
    other = text.replace("module.seen = module.seen", "START.seen = module.seen").replace(
        "def hook", "class START:\n    seen = 0\n\n\ndef hook"
    )
    for program, is_named in ((text, False), (other, True)):
        found = convert(Project.of({Path("/example/train.py"): program})).findings
        assert any("this rank" in it.message or "each rank's part" in it.message for it in found) == is_named


SHARED_NET = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size
        self.gpus = torch.cuda.device_count()
        self.layer = nn.Linear(8, 2)

    def forward(self, x):
        return self.layer(x.view(self.size // self.gpus, -1))
"""


def test_a_program_that_is_not_converted_counts_gpus_in_a_file_that_is(lab: Lab, tmp_path: Path) -> None:
    """Where nn.DataParallel has replicas, the number of ranks would be 1."""
    data = "data = TensorDataset(torch.rand(48, 8), torch.arange(48) % 2)\n"
    data += "loader = DataLoader(data, batch_size=12, drop_last=True)\n"
    files = {
        "train": HEAD + "from net import Net\n\n" + data + "model = nn.DataParallel(Net(12))\n" + LOOP,
        "net": SHARED_NET,
        "predict": "import torch\n\nfrom net import Net\n\ntorch.cuda.device_count = lambda: 2\nnet = Net(12)\nprint(net.gpus, len(net(torch.rand(6, 8))))\n",
    }
    project = Project.of({tmp_path / f"{name}.py": files[name] for name in ("train", "net")})
    after = {change.path.stem: change.after for change in convert(project).changes}
    for name, text in {**files, **after}.items():
        (tmp_path / f"{name}.py").write_text(text)
    assert "self.gpus = ddp.get_replica_count()\n" in (tmp_path / "net.py").read_text()
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "predict.py"], cwd=tmp_path, env=env, capture_output=True, timeout=60
    )
    assert done.stdout == b"2 6\n", done.stderr
    for processes in (1, 2, 3):
        lab.run(tmp_path / "train.py", processes=processes).ok()
