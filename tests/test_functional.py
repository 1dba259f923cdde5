"""``data_parallel()``: in a network's forward the network is wrapped once, where that is the same; elsewhere it stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import run
from programs import FUNCTIONAL, PATH, SAMPLED, WRAP
from programs import PROGRAM as PLAIN

from dp2ddp.convert import Conversion, convert
from dp2ddp.source import Project

PROGRAM = FUNCTIONAL.replace("GPUS", "2")
CALL = "nn.parallel.data_parallel(self.main, x, range(self.ngpu))"
CHOICE = PROGRAM[PROGRAM.index("        if isinstance(x") : PROGRAM.index("        return x.view")]


def converted(text: str) -> Conversion:
    return convert(Project.of({PATH: text}))


def after(text: str) -> str:
    conversion = converted(text)
    assert not conversion.errors, conversion.errors
    return conversion.changes[0].after


def test_a_network_is_wrapped_when_it_is_ready() -> None:
    text = after(PROGRAM)
    assert "    def forward(self, x):\n        x = self.main(x)\n        return x.view(-1, 2)\n" in text
    wrap = "model = Net(ngpu).cuda()\nmodel.apply(double)\nmodel = ddp.DistributedDataParallel(model)\n"
    assert wrap in text and "data_parallel" not in text
    assert "ddp.init(devices=range(2))\n" in text or "ddp.init(devices=range(ngpu))\n" in text


@pytest.mark.parametrize(
    ("forward", "plain"),
    [
        (f"        x = {CALL}\n", "        x = self.main(x)\n"),
        (
            f"        x = {CALL}\n        x = x.unsqueeze(1)\n",
            "        x = self.main(x)\n        x = x.unsqueeze(1)\n",
        ),
    ],
)
def test_calls_without_a_choice(forward: str, plain: str) -> None:
    assert "    def forward(self, x):\n" + plain in after(PROGRAM.replace(CHOICE, forward))


def test_a_choice_of_two_returns() -> None:
    forward = f"        if x.is_cuda:\n            return {CALL}\n        else:\n            return self.main(x)\n\n"
    text = after(PROGRAM.replace(CHOICE + "        return x.view(-1, 2)\n", forward))
    assert "    def forward(self, x):\n        return self.main(x)\n" in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        return x.view(-1, 2)\n", "        return x - x.mean(0)\n"),
        ("        return x.view(-1, 2)\n", "        return x.view(2, -1)\n"),
        ("        return x.view(-1, 2)\n", "        self.last = x.view(-1, 2)\n        return x\n"),
        ("    def forward(self, x):\n", "    def forward(self, x):\n        x = x - x.mean(0)\n"),
        ("            x = self.main(x)\n", "            x = self.main(2 * x)\n"),
        ("(self.main, x, range(self.ngpu))", "(self.main, (x, x), range(self.ngpu))"),
        ("(self.main, x, range(self.ngpu))", "(self.main, x, range(self.ngpu), dim=1)"),
        ("model = Net(ngpu)", "\n\nclass Other(Net):\n    pass\n\n\nmodel = Other(ngpu)"),
        ("model.apply(double)\n", "model.apply(double)\nprint(isinstance(model, Net))\n"),
        ("model.apply(double)\n", "model.apply(double)\nprint(dict(model.named_parameters()))\n"),
        ("model.apply(double)\n", "model.apply(double)\nprint(model.main)\n"),
        ("model = Net(ngpu).cuda()\n", "for _ in range(2):\n    model = Net(ngpu).cuda()\n"),
    ],
)
def test_where_that_is_not_the_same_the_call_stays(old: str, new: str) -> None:
    assert old in PROGRAM
    assert_stays(PROGRAM.replace(old, new))


@pytest.mark.parametrize("layers", ["nn.Sequential(Net(ngpu))", "nn.DataParallel(Net(ngpu), range(2))"])
def test_calls_inside_of_other_modules_are_left(layers: str) -> None:
    (error,) = converted(PROGRAM.replace("model = Net(ngpu)", f"model = {layers}")).errors
    assert "at every call" in error.message


def assert_stays(text: str) -> None:
    conversion = converted(text)
    after = conversion.changes[0].after
    assert not conversion.errors and [it.tier for it in conversion.scripts] == ["whole batch"]
    assert after.count("ddp.data_parallel(") == text.count("parallel.data_parallel(")
    assert not converted(after).changes


def test_a_call_that_trains_nothing_has_one_of_several_processes() -> None:
    conversion = converted(SAMPLED)
    text = conversion.changes[0].after
    assert not conversion.errors and conversion.scripts[0].tier == "whole batch"
    assert "            shown = ddp.data_parallel(network, (noise,))\n" in text
    again = converted(text)
    assert not again.changes and not again.findings


SHOWING = "    with torch.no_grad():\n        shown = model(fixed)\n    print(shown.std().item(), shown.sum().item())\n"


@pytest.mark.parametrize(
    ("shown", "called"),
    {
        "in training mode": (SHOWING, "ddp.data_parallel(model.module, fixed)"),
        "in a function": (
            "    show()\n",
            "ddp.data_parallel(model.module, fixed)",
        ),
        "in evaluation mode": ("    model.eval()\n" + SHOWING + "    model.train()\n", "model(fixed)"),
        "of a part": (SHOWING.replace("fixed", "inputs"), "model(inputs)"),
    }.values(),
)
def test_a_forward_in_training_mode_of_what_all_processes_have_is_divided(shown: str, called: str) -> None:
    """As nn.DataParallel divided it: its replicas normalised their parts. How it trains: the pairs of verify."""
    show = f"\n\ndef show():\n{SHOWING}\n\n" if "show()" in shown else ""
    layers = "model = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 2))"
    text = PLAIN.replace("model = nn.Linear(8, 2)", layers)
    text = text.replace("for epoch in", f"fixed = torch.randn(12, 8).cuda()\n{show}for epoch in", 1) + shown
    conversion = converted(text)
    assert not conversion.errors and f" = {called}\n" in conversion.changes[0].after
    # the output is whole on every process, and so are its numbers; that of a part is not
    assert ("ddp.sum(" in conversion.changes[0].after) == (called == "model(inputs)")
    assert not converted(conversion.changes[0].after).changes


NO_GRAD = "    with torch.no_grad():\n        if parallel"
SHOWN = "        shown = sample(maker, torch.randn(11, 8).cuda(), True)\n"
FUNCTION = "nn.parallel.data_parallel(network, (noise,))"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (NO_GRAD, "    if True:\n        if parallel"),
        (NO_GRAD, "    with torch.no_grad(), torch.enable_grad():\n        if parallel"),
        (NO_GRAD, "    with torch.no_grad():\n        torch.set_grad_enabled(True)\n        if parallel"),
        (NO_GRAD, "    with torch.no_grad():\n        network.eval()\n    if True:\n        if parallel"),
        (FUNCTION, f"(lambda: {FUNCTION})()"),
    ],
)
def test_a_call_that_may_train_something_has_one_too(old: str, new: str) -> None:
    assert old in SAMPLED
    assert_stays("import numpy\n" + SAMPLED.replace(old, new))


TRAINER = """\
import torch
from torch import nn
from torch.nn.parallel import data_parallel
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(size, size), nn.BatchNorm1d(size), nn.Dropout(0.1))
        self.outer = nn.Linear(size, 3)

    def forward(self, x):
        x = x - x.mean(0)
        h = data_parallel(self.inner, x, [0, 1])
        return self.outer(h + data_parallel(self.inner, inputs=(2 * x,), device_ids=[0, 1], output_device=0))


class Trainer:
    def __init__(self, net, gpus=(0, 1)):
        self.net, self.gpus = net.cuda(gpus[0]), gpus
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def loss(self, x, y):
        raise NotImplementedError

    def run(self, loader):
        for epoch in range(2):
            for x, y in loader:
                self.optimizer.zero_grad()
                loss = self.loss(x.cuda(), y.cuda())
                loss.backward()
                self.optimizer.step()
            with torch.no_grad():
                print(epoch, loss.item(), sum(self.loss(x, y).item() for x, y in loader))
        torch.save(self.net.state_dict(), "net.pt")


class Of(Trainer):
    def loss(self, x, y):
        return nn.functional.cross_entropy(CALL, y)


torch.manual_seed(0)
data = TensorDataset(torch.randn(60, 6), torch.randint(3, (60,)))
Of(NET).run(DataLoader(data, batch_size=13, shuffle=True))
"""
CALLS = {
    "of a trainer": ("data_parallel(self.net, x, device_ids=self.gpus)", "nn.Sequential(nn.Linear(6, 3))"),
    "of a trainer, by a star": ("data_parallel(self.net, *[x], self.gpus)", "nn.Sequential(nn.Linear(6, 3))"),
    "in a forward": ("self.net(x)", "Block(6)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("where", CALLS)
def test_calls_that_stay_train_the_same(tmp_path: Path, where: str, processes: int) -> None:
    call, net = CALLS[where]
    (tmp_path / "train.py").write_text(TRAINER.replace("CALL", call).replace("NET", net))
    command = ("verify", "train.py", "--steps", "1000", "--processes", str(processes))
    done = run(*command, cwd=tmp_path)
    assert done.stdout.startswith(b"MATCH over 10 steps"), done.stdout.decode()


def test_all_processes_take_part_in_what_one_writes() -> None:
    save = "        numpy.save('shown.npy', sample(maker, inputs, True))\n"
    conversion = converted("import numpy\n" + SAMPLED.replace(SHOWN, SHOWN + save))
    assert not conversion.errors
    assert save.replace("numpy.save", "ddp.on_main_process(numpy.save)") in conversion.changes[0].after


OPTION = """import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--sync", action="store_true")
args = parser.parse_args([])


def patch(parallel):
    replicate = parallel.replicate
    parallel.replicate = lambda *given: replicate(*given)


"""


@pytest.mark.parametrize(
    "calls",
    ["if args.sync:\n    patch(model)\n", "patch(model)\n", f"if args.sync:\n    {WRAP}\n    patch(model)\n"],
)
def test_a_step_that_is_replaced_is_replaced_in_every_process(calls: str) -> None:
    wrap = "" if WRAP in calls else WRAP + "\n"
    text = PLAIN.replace(WRAP + "\n", OPTION + wrap + calls)
    conversion = converted(text)
    assert not conversion.errors
    assert conversion.scripts[0].tier == "whole batch"
    assert any("DataParallel's `replicate`" in it.message for it in conversion.findings)
