"""A distributed branch beside DataParallel: what is converted, what stays as it is, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from beside import PROGRAM, SEQUENTIAL, SETTING
from parity.harness import Lab
from programs import PROGRAM as PLAIN
from spellings import SPELLINGS

from dp2ddp.convert import Conversion, convert
from dp2ddp.emit.text import report
from dp2ddp.source import Project

PATH = Path("/example/train.py")


def converted(*changes: tuple[str, str], text: str = PROGRAM) -> Conversion:
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return convert(Project.of({PATH: text}))


def after(conversion: Conversion) -> str:
    assert not conversion.errors, conversion.errors
    return conversion.changes[0].after


def test_the_branch_for_dataparallel_alone_is_converted() -> None:
    """The option goes by three names, and computed from two others; an elif that asks for GPUs is the else of it."""
    text = after(converted())
    assert "    ddp.launch(main)\n" in text and "stand_aside" not in text  # the runtime sees that it spawns
    assert (
        "    else:\n        model = ddp.DistributedDataParallel(model.to(device))\n    return model" in text
    )
    assert "ddp.shard(DataLoader(data, batch_size=16, shuffle=True))" in text
    for kept in ('print("joined")', 'torch.device(f"cuda:{index}")', "mp.spawn(", "dist.barrier()"):
        assert kept in text and f"ddp.{kept}" not in text
    assert converted().scripts[0].tier == "sharded"


def test_what_a_constant_is_not_in_is_asked_beside_too() -> None:
    schedule = (
        "class Warmup:\n    def __init__(self, method='linear'):\n"
        "        if method not in ('constant', 'linear'):\n            raise ValueError(method)\n\n\ndef worker"
    )
    text = after(converted(("def worker", schedule)))
    assert schedule in text and "ddp.launch(main" in text


def test_a_wrap_under_conditions_of_the_other_is_made_after_them() -> None:
    chain = (
        "    if not torch.cuda.is_available():\n        print('slow')\n    elif several:\n        model.cuda()\n"
        "        model = nn.parallel.DistributedDataParallel(model)\n    else:\n"
        "        model = nn.DataParallel(model).cuda()\n    return model"
    )
    old = PROGRAM[PROGRAM.index("    if several:") : PROGRAM.index("\n\n\ndef worker")]
    text = after(converted((old, chain)))
    wrap = "    if not several:\n        model = ddp.DistributedDataParallel(model)\n    return model"
    assert "    else:\n        model = model.cuda()\n" + wrap in text


def test_a_wrap_with_another_branch_below_is_made_after_all() -> None:
    last = (
        "        model = nn.DataParallel(model).cuda()\n    else:\n        model.to(device)\n    return model"
    )
    text = after(converted(("        model = nn.DataParallel(model).cuda()\n    return model", last)))
    wrap = "    if not several:\n        model = ddp.DistributedDataParallel(model)\n    return model"
    assert '    elif device.type == "cuda":\n        model = model.to(device)\n' in text and wrap in text


def test_a_branch_that_an_option_keeps_alone_starts_no_ranks() -> None:
    """``--gpu 1`` is one GPU, chosen by the user."""
    text = after(
        converted(
            (
                '    parser.add_argument("--lr"',
                '    parser.add_argument("--gpu", type=int)\n    parser.add_argument("--lr"',
            ),
            ("args.several, device)", "args.several, device, args.gpu)"),
            ("several, device):", "several, device, gpu):"),
            (
                '    elif device.type == "cuda":\n',
                '    elif gpu is not None:\n        torch.cuda.set_device(gpu)\n    elif device.type == "cuda":\n',
            ),
        )
    )
    known = "    args.several = args.nodes > 1 or args.spread\n"
    assert known + "    if args.several or args.gpu is not None:\n        ddp.stand_aside()\n" in text
    assert "        torch.cuda.set_device(gpu)\n    else:\n        model = ddp.Dist" in text


def test_other_programs_of_the_project_have_no_part_in_it() -> None:
    other = PATH.with_name("other.py")
    both = convert(Project.of({PATH: PROGRAM, other: PLAIN}))
    assert not both.errors, both.errors
    found = {change.path: change.after for change in both.changes}
    assert found[PATH] == after(converted())
    assert found[other] == after(convert(Project.of({other: PLAIN})))


def test_wraps_one_after_the_other_exclude_each_other() -> None:
    text = after(converted(*SEQUENTIAL))
    assert "    ddp.init(enabled=args.local_rank == -1)\n" in text
    assert "        args.n_gpu = ddp.get_world_size()\n" in text and "        args.n_gpu = 1\n" in text
    wrap = (
        "    if args.local_rank == -1:\n        model = ddp.DistributedDataParallel(model.to(ddp.device()))\n"
    )
    assert wrap + "    if args.local_rank != -1:\n" in text and "n_gpu > 1" not in text


def test_a_group_that_is_made_in_any_case_is_refused() -> None:
    change = ("    if args.several:\n        dist.init", "    if True:\n        dist.init")
    (error,) = converted(change).errors
    assert "`dist.init_process_group` also runs in the DataParallel branch" in error.message


ENGINES = {
    "accelerate": (
        "from accelerate import Accelerator\n\naccelerator = Accelerator()\n",
        "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
    ),
    "fabric": (
        "from lightning.fabric import Fabric\n\nfabric = Fabric()\n",
        "model, optimizer = fabric.setup(model, optimizer)",
    ),
    "deepspeed": (
        "import deepspeed\n",
        "model, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer)",
    ),
}


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_with_ranks_of_its_own_is_refused_beside_a_wrap_and_left_in_another_branch(
    name: str,
) -> None:
    made, engine = ENGINES[name]
    wrap = next(line for line in PLAIN.splitlines() if "DataParallel(" in line)
    loop = next(line for line in PLAIN.splitlines() if line.startswith("for "))
    (error,) = convert(Project.of({PATH: made + PLAIN.replace(loop, f"{engine}\n{loop}")})).errors
    assert error.message.startswith("`" + engine.partition("= ")[2].partition("(")[0])
    options = "import argparse\n\nparser = argparse.ArgumentParser()\n"
    options += "parser.add_argument('--engine', action='store_true')\nargs = parser.parse_args()\n"
    text = PLAIN.replace(wrap, "if not args.engine:\n    " + wrap)
    text = options + made + text.replace(loop, f"if args.engine:\n    {engine}\n{loop}")
    text = after(convert(Project.of({PATH: text})))
    assert engine in text and "ddp.init(enabled=not args.engine)" in text


USED = (
    "dist.barrier()",
    "print(dist.is_initialized())",
    "model = nn.SyncBatchNorm.convert_sync_batchnorm(model)",
)


@pytest.mark.parametrize("used", ["", *USED])
def test_a_group_that_nothing_uses_goes(used: str) -> None:
    made = f"import torch.distributed as dist\n\ndist.init_process_group('nccl')\nmodel = nn.Linear(8, 2).cuda()\n{used}\n"
    text = PLAIN.replace("model = nn.Linear(8, 2).cuda()\n", made)
    conversion = convert(Project.of({PATH: text}))
    if used:
        assert any("init_process_group" in it.message for it in conversion.errors)
    else:
        assert not conversion.errors and "dist" not in conversion.changes[0].after.replace("distributed", "")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("    torch.manual_seed(3)\n", "    torch.cuda.set_device(index)\n"), "    ddp.set_device(index)\n"),
        (('torch.device("cuda" if', 'torch.device("cuda:0" if'), 'ddp.device(torch.device("cuda:0" if torch.cuda.is_available() else "cpu"))'),
        (("inputs.to(device)", "inputs.cuda(index)"), "inputs.to(ddp.device(index))"),
        (("inputs.to(device)", "inputs.cuda(index, non_blocking=True)"), "inputs.to(ddp.device(index), non_blocking=True)"),
        (("inputs.to(device)", 'inputs.to(f"cuda:{index}")'), 'inputs.to(ddp.device(f"cuda:{index}"))'),
        (("    torch.manual_seed(3)\n", '    kind = f"cuda:{index}"\n'), '    kind = str(ddp.device(f"cuda:{index}"))\n'),
    ],
)  # fmt: skip
def test_ranks_of_its_own_keep_the_gpus_that_are_named_for_both(change: tuple[str, str], said: str) -> None:
    assert said in after(converted(change))


def test_a_part_that_is_wrapped_by_an_option_beside_is_wrapped_with_the_whole() -> None:
    wraps = (
        "    else:\n        if args.lr > 1:\n            model.head = nn.DataParallel(model.head)\n"
        "            model.cuda()\n        else:\n            model = nn.DataParallel(model).cuda()\n    return model"
    )
    text = SPELLINGS["a function that returns the wrapped model"].text
    old = text[text.index("    if not args.dist:\n") : text.index("\n\n\ndef train")]
    new = "    if args.dist:\n        model = nn.parallel.DistributedDataParallel(model)\n" + wraps
    (wrap,) = [it for it in after(converted(text=text.replace(old, new))).splitlines() if "ddp.D" in it]
    assert wrap == "        model = ddp.DistributedDataParallel(model)"


@pytest.mark.parametrize(
    "change",
    [
        ("    if args.spread:\n", "    if args.lr > 3:\n"),
        ("    if several:\n", "    if model.bias.sum() > 0:\n"),
        ("    if several:\n", "    if dist.is_initialized():\n"),
        ("        if args.several:\n            dist", "        if dist.is_initialized():\n            dist"),
        ('"--nodes", type=int, default=1', '"--nodes", type=int, default=os.environ.get("WORLD_SIZE", 1)'),
        ("    args.several = args.nodes > 1 or args.spread\n", "    args.several = False\n    if 'WORLD_SIZE' in os.environ:\n        args.several = True\n"),
    ],
)  # fmt: skip
def test_what_chooses_the_branch_need_be_no_option_that_is_at_hand(change: tuple[str, str]) -> None:
    text = after(converted(change))
    assert "ddp.D" in text and ("ddp.init(" in text or "ddp.launch(main" in text)
    assert "nn.parallel.DistributedDataParallel(model)" in text
    assert "dist.is_initialized()" not in text and text.count("ddp.is_initialized()") == change[1].count(
        "is_init"
    )


def test_a_setting_in_the_file_chooses_the_branch() -> None:
    """It is a constant, and others may set another one: what stands under it is left alone."""
    conversion = converted(text=SETTING)
    text = after(conversion)
    assert "trained = ddp.DistributedDataParallel(trained)" in text and "nn.DataParallel(" not in text
    for kept in ("nn.parallel.DistributedDataParallel(trained)", "DistributedSampler(", "convert_sync"):
        assert text.count(kept) == SETTING.count(kept)
    assert not conversion.findings or all(it.edits for it in conversion.findings)


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_is_converted_beside(name: str) -> None:
    """What only runs in the distributed branch stays as it is; no option chooses a way that is not one of its ranks'."""
    spelling = SPELLINGS[name].text
    conversion = converted(text=spelling)
    text = after(conversion)
    kept = (
        "nn.parallel.DistributedDataParallel",
        "DistributedSampler(",
        "dist.get_",
        "init_process_group",
        "dist.barrier()",
    )
    for word in kept:
        assert text.count(word) == spelling.count(word), word
    assert "ddp.launch(main" in text or "ddp.init(" in text
    assert not [it for it in conversion.findings if it.is_left]
    tier = (
        "whole batch"
        if ("table" in name and "trainers" not in name)
        or name.startswith("one class")
        or "goes back" in name  # one GPU may be chosen: then the model stays as it is, on every rank
        else "sharded"
    )
    assert conversion.scripts[0].tier == tier


def test_a_branch_in_another_file_is_told_apart_too() -> None:
    module = PATH.with_name("parallel.py")
    helper = SPELLINGS["a function that returns the wrapped model"].text
    function = helper[helper.index("def parallel") : helper.index("def train")]
    text = "from parallel import parallel\n" + helper.replace(function, "")
    conversion = convert(Project.of({PATH: text, module: f"from torch import nn\n\n\n{function}"}))
    assert not conversion.errors, conversion.errors
    found = {change.path: change.after for change in conversion.changes}
    assert "        return ddp.DistributedDataParallel(model" in found[module]
    assert "    return nn.parallel.DistributedDataParallel(model)" in found[module]


TEACHER = """\
import torch
import torch.distributed as dist
from torch import nn


def main():
    dist.init_process_group("nccl")
    teacher = nn.DataParallel(nn.Linear(8, 2).cuda())
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 2).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs in torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=8):
        optimizer.zero_grad()
        (model(inputs.cuda()) - teacher(inputs.cuda())).pow(2).mean().backward()
        optimizer.step()


main()
"""
ELSEWHERE = """\
import sys

import torch
from mmcv.parallel import MMDataParallel, MMDistributedDataParallel
from mmcv.runner import EpochBasedRunner, init_dist


def main():
    distributed = len(sys.argv) > 1
    if distributed:
        init_dist(sys.argv[1])
    model = torch.nn.Linear(2, 2)
    if distributed:
        model = MMDistributedDataParallel(model.cuda())
    else:
        model = MMDataParallel(model.cuda())
    EpochBasedRunner(model).run([], [("train", 1)], 12)


main()
"""


@pytest.mark.parametrize(("text", "line"), [(TEACHER, 9), (ELSEWHERE, 14)])
def test_a_program_that_is_not_told_apart_stays_and_is_said_in_one_line(text: str, line: int) -> None:
    conversion = converted(text=text)
    assert not conversion.errors and not conversion.changes and not conversion.idle
    (finding,) = conversion.findings
    assert finding.location.span.line == line and "torchrun --nproc-per-node N train.py" in finding.message
    assert report(conversion, written=True).count("\n") == 1


def test_another_program_is_converted_beside_one_that_stays() -> None:
    other = PATH.with_name("other.py")
    both = convert(Project.of({PATH: TEACHER, other: PLAIN}))
    assert not both.errors and [change.path for change in both.changes] == [other]


def test_what_has_no_branch_beside_asks_for_a_group_of_its_own() -> None:
    """Its helper is asked in the middle of the training, where there are ranks now: they are none of the program's."""
    helper = SPELLINGS["the size of the group"].text
    functions = helper[helper.index("def is_available") : helper.index("def train")]
    text = PLAIN.replace("model = ", f"{functions}print(world_size())\nmodel = ", 1)
    text = "import torch.distributed as dist\n" + text
    changed = after(converted(text=text))
    assert "    if not ddp.is_initialized():\n" in changed and "dist.is_initialized" not in changed


CHOSEN = """\
import argparse
import os

import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def worker(gpu, count, args):
    args.gpu = gpu
    model = nn.Linear(8, 2)
    if args.distributed:
        torch.distributed.init_process_group("gloo", init_method="tcp://127.0.0.1:1", world_size=count, rank=gpu)
        model = nn.parallel.DistributedDataParallel(model)
    elif args.gpu is None:
        model = nn.DataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(TensorDataset(torch.randn(64, 8), torch.randn(64, 2)), batch_size=16, shuffle=True):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    os.system("echo a process has trained >> ranks.txt")


HELPER
if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--distributed", action="store_true")
    parser.add_argument("--gpu", type=int, default=None)
    args = parser.parse_args()
MAIN
"""
BOTH = """\
    count = torch.cuda.device_count()
    if args.distributed:
        args.gpu = None
        mp.spawn(worker, nprocs=count, args=(count, args))
    else:
        if count == 1:
            args.gpu = 0
        worker(args.gpu, count, args)
"""


@pytest.mark.sample(every=4)
@pytest.mark.parametrize(
    ("helper", "main"),
    [
        ("", BOTH),
        (f"def run(args):\n{BOTH}\n\n", "    run(args)\n"),
        ("", f"    for _ in range(1):\n{BOTH.replace('    ', '        ')}"),
        ("", f"    try:\n{BOTH.replace('    ', '        ')}    finally:\n        print(args)\n"),
    ],
    ids=["beside", "in a function", "in a loop", "in a try"],
)
def test_a_program_that_goes_alone_does_so_before_it_trains(
    tmp_path: Path, lab: Lab, helper: str, main: str
) -> None:
    """What decides it, and what trains, may stand in one statement."""
    text = after(converted(text=CHOSEN.replace("HELPER\n", helper).replace("MAIN\n", main)))
    assert text.count("stand_aside()") == 1
    script = tmp_path / "train.py"
    script.write_text(text)
    lab.run(script, ["--gpu", "0"], launcher="plain", processes=2, folder=tmp_path, recorded=False).ok()
    lab.run(script, processes=2, folder=tmp_path, recorded=False).ok()
    assert (tmp_path / "ranks.txt").read_text().count("trained") == 2
