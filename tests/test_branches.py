"""A distributed branch beside DataParallel: what is converted, what stays as it is, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from beside import PROGRAM, SEQUENTIAL
from programs import PROGRAM as PLAIN

from dp2ddp.convert import Conversion, convert
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
    assert (
        "    args.several = args.nodes > 1 or args.spread\n    ddp.init(enabled=not args.several)\n" in text
    )
    assert (
        "    else:\n        model = ddp.DistributedDataParallel(model.to(device))\n    return model" in text
    )
    assert "ddp.shard(DataLoader(data, batch_size=16, shuffle=True))" in text
    for kept in ('print("joined")', 'torch.device(f"cuda:{index}")', "mp.spawn(", "dist.barrier()"):
        assert kept in text and f"ddp.{kept}" not in text
    assert "launch" not in text and converted().scripts[0].tier == "sharded"


def test_a_wrap_under_conditions_of_the_other_is_made_after_them() -> None:
    chain = (
        "    if not torch.cuda.is_available():\n        print('slow')\n    elif several:\n        model.cuda()\n"
        "        model = nn.parallel.DistributedDataParallel(model)\n    else:\n"
        "        model = nn.DataParallel(model).cuda()\n    return model"
    )
    old = PROGRAM[PROGRAM.index("    if several:") : PROGRAM.index("\n\n\ndef worker")]
    text = after(converted((old, chain)))
    wrap = "    if not several:\n        model = ddp.DistributedDataParallel(model)\n    return model"
    assert "    else:\n        model = model.to(ddp.device())\n" + wrap in text


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
    assert "ddp.init(enabled=not args.several and args.gpu is None)" in text
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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("    if args.spread:\n", "    if args.lr > 3:\n"), "mp.spawn() runs in the DataParallel branch, too"),
        (("        if args.several:\n            dist", "        if dist.is_initialized():\n            dist"), "is_initialized"),
        (("    torch.manual_seed(3)\n", "    torch.cuda.set_device(0)\n"), "a GPU by its number"),
        (('torch.device("cuda" if', 'torch.device("cuda:0" if'), "a GPU by its number"),
        (("    if several:\n", "    if model.bias.sum() > 0:\n"), "in the same program"),
        (("    if several:\n", "    if dist.is_initialized():\n"), "in the same program"),
        (('"--nodes", type=int, default=1', '"--nodes", type=int, default=os.environ.get("WORLD_SIZE", 1)'), "in the same program"),
        (("    args.several = args.nodes > 1 or args.spread\n", "    args.several = False\n    if 'WORLD_SIZE' in os.environ:\n        args.several = True\n"), "in the same program"),
    ],
)  # fmt: skip
def test_what_both_branches_would_run_is_refused(change: tuple[str, str], said: str) -> None:
    errors = converted(change).errors
    assert errors and any(said in error.message for error in errors), errors
