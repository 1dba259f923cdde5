"""Where the ranks start, and on which devices: after what chooses them, before anything that must happen once."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from dp2ddp.convert import convert
from dp2ddp.rules import ddp101_single_process_program
from dp2ddp.runtime import launch
from dp2ddp.source import Project

PATH = Path("/example/train.py")
PROGRAM = """\
import argparse
import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader

data = None


def train(model):
    loader = DataLoader(data, batch_size=16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for inputs, targets in loader:
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, nargs="*")
    return parser.parse_args()


"""
# What follows the definitions, and the statement that starts the ranks with the one before it.
STARTS = {
    "main()": (
        "def main():\n    train(nn.DataParallel(nn.Linear(8, 8)))\n\n\nif __name__ == '__main__':\n    main()\n",
        "ddp.launch(main)",
        None,
    ),
    "main(args)": (
        "def main(args, rate=1):\n    train(nn.DataParallel(nn.Linear(8, 8)))\n\n\nif __name__ == '__main__':\n"
        "    args = parse()\n    main(args, rate=2)\n",
        "ddp.launch(main, args, rate=2)",
        "args = parse()",
    ),
    "options of main that are launch's too": (
        "def main(rate, timeout):\n    train(nn.DataParallel(nn.Linear(8, 8), device_ids=[1, 3]))\n\n\n"
        "if __name__ == '__main__':\n    main(2, timeout=3)\n",
        "ddp.launch(lambda: main(2, timeout=3), devices=[1, 3])",
        None,
    ),
    "options of main that are not known": (
        "def main(**options):\n    train(nn.DataParallel(nn.Linear(8, 8)))\n\n\n"
        "if __name__ == '__main__':\n    main(**vars(parse()))\n",
        "ddp.launch(lambda: main(**vars(parse())))",
        None,
    ),
    "sys.exit(main())": (
        "def main():\n    train(nn.DataParallel(nn.Linear(8, 8)))\n\n\nif __name__ == '__main__':\n    sys.exit(main())\n",
        "sys.exit(ddp.launch(main))",
        None,
    ),
    "no guard": (
        "def main():\n    train(nn.DataParallel(nn.Linear(8, 8)))\n\n\nmain()\n",
        "ddp.launch(main)",
        None,
    ),
    "training under the guard": (
        "if __name__ == '__main__':\n    args = parse()\n    print('start')\n    train(nn.DataParallel(nn.Linear(8, 8)))\n",
        "ddp.init()",
        "args = parse()",
    ),
    "training at the top": (
        "args = parse()\nrate = 0.1\ntorch.manual_seed(1)\ntrain(nn.DataParallel(nn.Linear(8, 8)))\n",
        "ddp.init()",
        "rate = 0.1",
    ),
    "a side effect before main()": (
        "def main():\n    train(nn.DataParallel(nn.Linear(8, 8)))\n\n\nif __name__ == '__main__':\n"
        "    os.makedirs('out', exist_ok=True)\n    main()\n",
        "ddp.init()",
        None,
    ),
    "literal devices": (
        "def main():\n    train(nn.DataParallel(nn.Linear(8, 8), device_ids=[1, 3]))\n\n\nif __name__ == '__main__':\n    main()\n",
        "ddp.launch(main, devices=[1, 3])",
        None,
    ),
    "devices from options in main()": (
        "def main():\n    args = parse()\n    torch.manual_seed(1)\n"
        "    train(nn.DataParallel(nn.Linear(8, 8), device_ids=args.gpus))\n\n\nif __name__ == '__main__':\n    main()\n",
        "ddp.init(devices=args.gpus)",
        "args = parse()",
    ),
    "devices through a function": (
        "def build(gpus):\n    return nn.DataParallel(nn.Linear(8, 8), device_ids=gpus)\n\n\n"
        "args = parse()\nmodel = build(args.gpus)\ntrain(model)\n",
        "ddp.init(devices=args.gpus)",
        "args = parse()",
    ),
    "devices of options under another name": (
        "def build(options, gpus):\n    return nn.DataParallel(nn.Linear(8, 8), device_ids=options.gpus or [int(i) for i in gpus])"
        "\n\n\ndef other(gpus):\n    return gpus\n\n\n"
        "args = parse()\nmodel = build(args, '01')\nother([2])\ntrain(model)\n",
        "ddp.init(devices=args.gpus or [int(i) for i in '01'])",
        "args = parse()",
    ),
    "visible devices set in main()": (
        "def main():\n    args = parse()\n    os.environ['CUDA_VISIBLE_DEVICES'] = '0,1'\n"
        "    train(nn.DataParallel(nn.Linear(8, 8)))\n\n\nif __name__ == '__main__':\n    main()\n",
        "ddp.launch(main)",
        None,
    ),
    "devices chosen in a larger statement": (
        "if len(sys.argv) < 99:\n    args = parse()\n"
        "model = nn.DataParallel(nn.Linear(8, 8), device_ids=[int(i) for i in args.gpus])\n"
        "torch.manual_seed(1)\ntrain(model)\n",
        "ddp.init(devices=[int(i) for i in args.gpus])",
        None,
    ),
    "devices of a name in a function": (
        "def build():\n    gpus = [0, 1]\n    return nn.DataParallel(nn.Linear(8, 8), device_ids=gpus)\n\n\ntrain(build())\n",
        "ddp.init(devices=[0, 1])",
        None,
    ),
    "devices of an attribute": (
        "class Trainer:\n    def __init__(self, options):\n        self.options = options\n\n"
        "    def fit(self):\n        train(nn.DataParallel(nn.Linear(8, 8), device_ids=self.options.gpus))\n\n\n"
        "def main():\n    args = parse()\n    if not args.gpus:\n        args.gpus = [0]\n    print(args)\n"
        "    Trainer(args).fit()\n\n\nif __name__ == '__main__':\n    main()\n",
        "ddp.init(devices=args.gpus)",
        "if not args.gpus:\n    args.gpus = [0]",
    ),
    "devices after something is printed": (
        "args = parse()\nprint(args)\nargs.gpus = [0]\n"
        "train(nn.DataParallel(nn.Linear(8, 8), device_ids=args.gpus))\n",
        "ddp.init()",
        "args = parse()",
        ("args.gpus = [0]", "ddp.use_devices(args.gpus)"),
    ),
    "visible devices after a side effect": (
        "args = parse()\nos.makedirs('out')\nif args.gpus:\n"
        "    os.environ['CUDA_VISIBLE_DEVICES'] = f'{args.gpus[0]}'\ntrain(nn.DataParallel(nn.Linear(8, 8)))\n",
        "ddp.init()",
        "args = parse()",
    ),
    "devices chosen after a side effect": (
        "def main():\n    args = parse()\n    os.makedirs('out')\n    print(args)\n    gpus = list(args.gpus)\n"
        "    train(nn.DataParallel(nn.Linear(8, 8), device_ids=gpus))\n\n\nif __name__ == '__main__':\n    main()\n",
        "ddp.init(devices=list(args.gpus))",
        "args = parse()",
    ),
    "devices of a configuration that is read in main()": (
        "from yacs.config import CfgNode\n\ncfg = CfgNode()\n\n\ndef options():\n    cfg.merge_from_file('a.yaml')\n\n\n"
        "def main():\n    options()\n    os.makedirs('out')\n"
        "    train(nn.DataParallel(nn.Linear(8, 8), device_ids=list(cfg.GPUS)))\n\n\nmain()\n",
        "ddp.init(devices=list(cfg.GPUS))",
        "options()",
    ),
    "visible devices set by a function": (
        "def options():\n    args = parse()\n    print('using', args.gpus)\n"
        "    os.makedirs('out', exist_ok=True)\n"
        "    os.environ['CUDA_VISIBLE_DEVICES'] = str(args.gpus[0])\n    return args\n\n\n"
        "args = options()\ntrain(nn.DataParallel(nn.Linear(8, 8)))\n",
        "ddp.init()",
        None,
    ),
    "devices that nobody gives": (
        "def build(gpus=None):\n    return nn.DataParallel(nn.Linear(8, 8), device_ids=gpus)\n\n\n"
        "args = parse()\ntrain(build())\n",
        "ddp.init()",
        "args = parse()",
    ),
    "devices in a statement that has effects": (
        "with open('log', 'w') as log:\n    args = parse()\n"
        "train(nn.DataParallel(nn.Linear(8, 8), device_ids=args.gpus))\n",
        "ddp.init()",
        None,
        ("with ddp.open('log', 'w') as log:\n    args = parse()", "ddp.use_devices(args.gpus)"),
    ),
    "devices by a name of a function that draws it": (
        "def build():\n    gpus = [torch.randint(2, (1,))]\n"
        "    return nn.DataParallel(nn.Linear(8, 8), device_ids=gpus)\n\n\ntrain(build())\n",
        "ddp.init()",
        None,
        ("gpus = [torch.randint(2, (1,))]", "ddp.use_devices(gpus)"),
    ),
    "visible devices set to something known later": (
        "args = parse()\nos.makedirs('out')\nargs.visible = open('out/gpus').read()\n"
        "os.environ['CUDA_VISIBLE_DEVICES'] = args.visible\ntrain(nn.DataParallel(nn.Linear(8, 8)))\n",
        "ddp.init()",
        "args = parse()",
    ),
    "devices by an attribute that is set later": (
        "def main():\n    args = parse()\n    os.makedirs('out')\n    args.gpus = os.listdir('out')\n"
        "    gpus = list(args.gpus)\n    train(nn.DataParallel(nn.Linear(8, 8), device_ids=gpus))\n\n\nmain()\n",
        "ddp.launch(main)",
        None,
        ("gpus = list(args.gpus)", "ddp.use_devices(gpus)"),
    ),
    "devices by an attribute that nothing sets": (
        "class Build:\n    def __call__(self):\n        return nn.DataParallel(nn.Linear(8, 8), device_ids=self.gpus)\n\n\n"
        "train(Build()())\n",
        "ddp.init()",
        None,
        (None, "ddp.use_devices(self.gpus)"),
    ),
    "devices by a parameter without one value": (
        "def build(gpus=(0, 1)):\n    return nn.DataParallel(nn.Linear(8, 8), device_ids=gpus)\n\n\n"
        "build([0])\ntrain(build([1]))\n",
        "ddp.init()",
        None,
        (None, "ddp.use_devices(gpus)"),
    ),
    "devices of an object that another one makes": (
        "class Settings:\n    def __init__(self, args):\n        print(args)\n        self.gpus = [int(i) for i in args.gpus]\n\n\n"
        "class Trainer:\n    def __init__(self, settings):\n        self.settings = settings\n\n"
        "    def fit(self):\n        train(nn.DataParallel(nn.Linear(8, 8), device_ids=self.settings.gpus))\n\n\n"
        "args = parse()\nsettings = Settings(args)\nTrainer(settings).fit()\n",
        "ddp.init(devices=[int(i) for i in args.gpus])",
        "args = parse()",
    ),
    "an option that asks for several": (
        "args = parse()\nprint(args)\nmodel = nn.Linear(8, 8)\nif args.multi:\n    model = nn.DataParallel(model)\ntrain(model)\n",
        "ddp.init(devices=None if args.multi else 1)",
        "args = parse()",
    ),
    "a setting of a class that stands below the start": (
        "torch.manual_seed(3)\ntorch.cuda.manual_seed(3)\nprint('begins')\n\n\nclass Config:\n    several = True\n\n\n"
        "def main():\n    model = nn.Linear(8, 8)\n    if Config.several:\n        model = nn.DataParallel(model)\n"
        "    train(model)\n\n\nmain()\n",
        "ddp.init()",
        None,
        (None, "ddp.use_devices(None if Config.several else 1)"),
    ),
    "an option that asks for several, round a call": (
        "def spread(model):\n    return nn.DataParallel(model)\n\n\nargs = parse()\nprint(args)\nmodel = nn.Linear(8, 8)\n"
        "if args.multi:\n    model = spread(model)\ntrain(model)\n",
        "ddp.init(devices=None if args.multi else 1)",
        "args = parse()",
    ),
    "an option that asks for several, round a call of a method": (
        "class Reader:\n    def __init__(self):\n        self.net = nn.Linear(8, 8)\n\n    def spread(self):\n"
        "        self.net = nn.DataParallel(self.net)\n\n\nargs = parse()\nprint(args)\nreader = Reader()\n"
        "if args.multi:\n    reader.spread()\ntrain(reader.net)\n",
        "ddp.init(devices=None if args.multi else 1)",
        "args = parse()",
    ),
    "an option under which all is trained": (
        "def main(args):\n    train(nn.DataParallel(nn.Linear(8, 8)))\n\n\nargs = parse()\nprint(args)\nif args.multi:\n"
        "    main(args)\n",
        "ddp.init()",
        None,
    ),
    "an option that asks for one": (
        "args = parse()\nprint(args)\nmodel = nn.Linear(8, 8)\nif args.gpu is not None:\n    model = model.cuda(args.gpu)\n"
        "else:\n    model = nn.DataParallel(model).cuda()\ntrain(model)\n",
        "ddp.init(devices=[args.gpu] if args.gpu is not None else None)",
        "args = parse()",
    ),
    "one GPU by its index, or several in a list": (
        "args = parse()\nmodel = nn.Linear(8, 8)\nif isinstance(args.gpus, (list, tuple)):\n    if len(args.gpus) > 1:\n"
        "        model = nn.DataParallel(model, device_ids=args.gpus)\ntrain(model)\n",
        "ddp.init(devices=args.gpus if isinstance(args.gpus, (list, tuple)) else [args.gpus])",
        "args = parse()",
    ),
    "a number of GPUs": (
        "args = parse()\nmodel = nn.Linear(8, 8)\nif args.ngpu > 1:\n"
        "    model = nn.DataParallel(model, list(range(args.ngpu)))\ntrain(model)\n",
        "ddp.init(devices=list(range(args.ngpu)))",
        "args = parse()",
    ),
    "a setting that may be there": (
        "import json\nsettings = json.load(open('settings.json'))\nprint(settings)\nmodel = nn.Linear(8, 8)\n"
        "if 'gpus' in settings:\n    model = nn.DataParallel(model, device_ids=settings['gpus'])\ntrain(model)\n",
        "ddp.init(devices=settings['gpus'] if 'gpus' in settings else 1)",
        "settings = json.load(open('settings.json'))",
    ),
    "a setting that may be there, of an object": (
        "class Trainer:\n    def __init__(self, settings):\n        self.settings = settings\n        print(settings)\n"
        "        self.net = nn.Linear(8, 8)\n        if 'gpus' in self.settings:\n"
        "            self.net = nn.DataParallel(self.net, device_ids=self.settings['gpus'])\n        train(self.net)\n\n\n"
        "import json\nsettings = json.load(open('settings.json'))\nTrainer(settings)\n",
        "ddp.init(devices=settings['gpus'] if 'gpus' in settings else 1)",
        "settings = json.load(open('settings.json'))",
    ),
    "an option that may be there": (
        "args = parse()\nprint(args)\nmodel = nn.Linear(8, 8)\nif hasattr(args, 'ids'):\n"
        "    model = nn.DataParallel(model, device_ids=args.ids)\ntrain(model)\n",
        "ddp.init(devices=args.ids if hasattr(args, 'ids') else 1)",
        "args = parse()",
    ),
    "settings that are none, beside all devices": (
        "class Trainer:\n    def __init__(self, settings=None):\n        self.net = nn.Linear(8, 8)\n"
        "        if settings is not None:\n            self.net = nn.DataParallel(self.net, device_ids=settings.gpus)\n"
        "        else:\n            self.net = nn.DataParallel(self.net)\n        train(self.net)\n\n\nTrainer()\n",
        "ddp.init()",
        None,
    ),
    **{
        f"those of a model that may be wrapped: {name}": (
            f"def again(model):\n{text}\n\n\ntrain(nn.DataParallel(again(nn.Linear(8, 8))))\n",
            "ddp.init()",
            None,
        )
        for name, text in {
            "asked before": "    if isinstance(model, nn.DataParallel):\n        inner = model.module.float()\n"
            "        return nn.DataParallel(inner, device_ids=model.device_ids)\n    return model",
            "left before": "    if not isinstance(model, nn.DataParallel):\n        return model\n"
            "    return nn.DataParallel(model.module.float(), device_ids=model.device_ids)",
            "in an expression": "    return nn.DataParallel(model.module.float(), device_ids=model.device_ids) "
            "if isinstance(model, nn.DataParallel) else model",
            "by what it has": "    if hasattr(model, 'device_ids'):\n"
            "        model = nn.DataParallel(model.module.float(), device_ids=model.device_ids)\n    return model",
        }.items()
    },
    "all devices": (
        "def main():\n    ids = list(range(torch.cuda.device_count()))\n"
        "    train(nn.DataParallel(nn.Linear(8, 8), device_ids=ids))\n\n\nif __name__ == '__main__':\n    main()\n",
        "ddp.launch(main)",
        None,
    ),
}


@pytest.mark.parametrize("name", STARTS)
def test_ranks_start_at_the_right_line(name: str) -> None:
    tail, start, before, *late = STARTS[name]
    conversion = convert(Project.of({PATH: PROGRAM + tail}))
    assert not conversion.errors, conversion.errors
    found = places(conversion.changes[0].after, "ddp.init", "ddp.launch")
    assert [statement for _, statement in found] == [start]
    if before is not None:
        assert found[0][0] == before
    assert places(conversion.changes[0].after, "ddp.use_devices") == late
    assert "device_ids=" not in conversion.changes[0].after


def test_what_main_is_given_keeps_its_lines_and_comments() -> None:
    given = "rate=0.1,  # the first one\n     # of all\n     steps=3)  # the last\n"
    tail = "def main(rate, steps):\n    train(nn.DataParallel(nn.Linear(8, 8), device_ids=[0, 1]))\n\n\n"
    (change,) = convert(Project.of({PATH: PROGRAM + tail + "main(" + given})).changes
    started = "ddp.launch(main, " + given.replace(")", ",\n     devices=[0, 1])")
    assert change.after.endswith(started)
    begun = tail + "main(\n    # a comment\n    0.1,\n    steps=3,\n)\n"
    (change,) = convert(Project.of({PATH: PROGRAM + begun})).changes
    assert change.after.endswith(
        "ddp.launch(\n    # a comment\n    main,\n    0.1,\n    steps=3,\n    devices=[0, 1],\n)\n"
    )


def test_a_function_that_gives_its_parameter_an_attribute_of_itself_is_followed_to_an_end() -> None:
    tail = (
        "class Own(nn.DataParallel):\n    pass\n\n\ndef again(model):\n    if hasattr(model, 'inner'):\n"
        "        return Own(again(model.inner), device_ids=model.gpus)\n    return model\n\n\n"
        "train(nn.DataParallel(again(nn.Linear(8, 8))))\n"
    )
    assert not convert(Project.of({PATH: PROGRAM + tail})).errors


def places(text: str, *calls: str) -> list[tuple[str | None, str]]:
    """The statements that call one of these, each with the statement before it in its block."""
    return [
        (ast.unparse(block[index - 1]) if index else None, ast.unparse(statement))
        for node in ast.walk(ast.parse(text))
        for _, block in ast.iter_fields(node)
        if isinstance(block, list)
        for index, statement in enumerate(block)
        if isinstance(statement, ast.Expr) and any(call in ast.unparse(statement) for call in calls)
    ]


def test_a_device_that_is_chosen_before_the_ranks_start_is_each_one_s_own() -> None:
    """Which GPU a rank has, it does not know yet: a plain "cuda" is the one that it gets."""
    tail = (
        "class Settings:\n    def __init__(self, rate):\n        self.rate = rate\n"
        "        self.device = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')\n\n\n"
        "settings = Settings(0.1)\nargs = parse()\nprint(args)\n"
        "model = nn.Linear(8, 8).to(torch.device('cuda:0'))\n"
    )
    given, every = "train(nn.DataParallel(model, device_ids=args.gpus))\n", "train(nn.DataParallel(model))\n"
    text = convert(Project.of({PATH: PROGRAM + tail + given})).changes[0].after
    assert "self.device = torch.device(\"cuda\" if torch.cuda.is_available() else 'cpu')" in text
    assert "model = nn.Linear(8, 8).to(ddp.device())" in text
    assert not convert(Project.of({PATH: text})).changes
    assert (
        "self.device = ddp.device()" in convert(Project.of({PATH: PROGRAM + tail + every})).changes[0].after
    )


def test_devices_that_are_no_list_without_a_gpu_are_none_there() -> None:
    tail = (
        "args = parse()\nargs.cuda = not args.no_cuda and torch.cuda.is_available()\nif args.cuda:\n"
        "    args.ids = [int(it) for it in args.ids.split(',')]\nprint(args)\nmodel = nn.Linear(8, 8)\n"
        "if args.cuda:\n    model = nn.DataParallel(model, device_ids=args.ids).cuda()\ntrain(model)\n"
    )
    text = convert(Project.of({PATH: PROGRAM + tail})).changes[0].after
    assert "ddp.init(devices=args.ids if args.cuda else 0)\nprint(args)\n" in text
    other = tail.replace("print(args)", "else:\n    args.ids = []\nprint(args)")
    text = convert(Project.of({PATH: PROGRAM + other})).changes[0].after
    assert "ddp.init(devices=args.ids if args.cuda else 0)\n" in text


def test_literal_devices_of_another_file_are_written_where_the_ranks_start() -> None:
    build = "from torch import nn\n\n\ndef build():\n    return nn.DataParallel(nn.Linear(8, 8), device_ids=[1, 3])\n"
    tail = "from build import build\ntrain(build())\n"
    conversion = convert(Project.of({PATH: PROGRAM + tail, PATH.with_name("build.py"): build}))
    assert not conversion.errors, conversion.errors
    assert "ddp.init(devices=[1, 3])" in next(c.after for c in conversion.changes if c.path == PATH)


def test_devices_that_a_function_of_another_file_makes_are_chosen_there() -> None:
    """The GPUs that it counts are those of the machine, as before: all ranks are there when it is asked."""
    tools = (
        "import torch\nfrom torch import nn\n\n\ndef choose(names):\n"
        "    gpus = [int(name) for name in names.split(',')]\n    count = torch.cuda.device_count()\n"
        "    if len(gpus) > count:\n        print('too many')\n        gpus = list(range(count))\n"
        "    return 'cuda', gpus\n\n\ndef wrap(model, names):\n    device, gpus = choose(names)\n"
        "    return nn.DataParallel(model, device_ids=gpus)\n"
    )
    tail = (
        "from tools import wrap\n\n\nclass Trainer:\n    def __init__(self, args):\n"
        "        self.model = wrap(nn.Linear(8, 8), args.gpus)\n\n\nclass Tester:\n"
        "    def __init__(self, options):\n        self.model = wrap(nn.Linear(8, 8), options.gpus)\n\n\n"
        "def main():\n    args = parse()\n    os.makedirs('out')\n    train(Trainer(args).model)\n"
        "    Tester(args)\n\n\nmain()\n"
    )
    tail = tail.replace("options", "args")
    conversion = convert(Project.of({PATH: PROGRAM + tail, PATH.with_name("tools.py"): tools}))
    assert not conversion.errors, conversion.errors
    after = {change.path.name: change.after for change in conversion.changes}
    assert places(after["train.py"], "ddp.launch") == [
        (ast.unparse(ast.parse(after["train.py"]).body[-2]), "ddp.launch(main)")
    ]
    assert places(after["tools.py"], "ddp.use") == [("device, gpus = choose(names)", "ddp.use_devices(gpus)")]
    assert "count = torch.cuda.device_count()" in after["tools.py"]


# What fills a list of devices after it is made, under either of its names.
FILLING = {
    "for name in given:\n    if int(name) >= 0:\n        {ids}.append(int(name))\n": "    {ids}.append(int(name))",
    "{ids} += [1]\n": "{ids} += [1]",
    "{ids}.extend(map(int, given))\n": "{ids}.extend(map(int, given))",
    "{ids}.append(1)\n{ids}.sort()\n": "{ids}.sort()",
    "{ids}.append(1)\n{ids}[0] = 2\n": "{ids}[0] = 2",
    "del {ids}[2:]\n": "del {ids}[2:]",
    "others = {ids}\nothers.append(1)\n": "others.append(1)",
    "def fill(held):\n    held.append(1)\n\n\nfill({ids})\n": "fill({ids})",
}


LATE = """

class Trainer:
    def __init__(self, ids):
        if not isinstance(ids, tuple):
            ids = (ids,)
        self.ids = ids
        self.first = ids[0]
        self.device = torch.device(f"cuda:{ids[0]}")
        self.model = nn.Linear(8, 8).to(self.device)
        self.weights = torch.ones(8).to(self.first)

    def fit(self):
        with torch.cuda.device(self.ids[0]):
            self.weights.mul_(2)
            train(nn.DataParallel(self.model, device_ids=self.ids))


args = parse()
print(args)
Trainer(tuple(args.gpus)).fit()
"""


def test_a_block_s_gpu_has_no_number_before_the_devices_are_chosen() -> None:
    """By its number it is the same GPU on every rank, and what says "cuda" in the block is there, too."""
    text = convert(Project.of({PATH: PROGRAM + LATE})).changes[0].after
    assert places(text, "ddp.use_devices") == [("self.weights.mul_(2)", "ddp.use_devices(self.ids)")]
    assert 'self.device = torch.device("cuda")\n' in text
    assert 'self.first = "cuda"\n' in text
    assert 'with torch.cuda.device("cuda"):\n' in text
    chosen = LATE.replace("        if not isinstance(ids, tuple):\n            ids = (ids,)\n", "")
    text = convert(Project.of({PATH: PROGRAM + chosen})).changes[0].after
    assert "self.device = ddp.device()\n" in text
    assert "with torch.cuda.device(ddp.device()):\n" in text


@pytest.mark.parametrize("name", ["ids", "args.ids"])
@pytest.mark.parametrize("filling", FILLING)
def test_a_list_of_devices_is_complete_where_it_is_read(filling: str, name: str) -> None:
    """An empty list is one rank: read too early, it would leave all but one GPU idle without a word."""
    tail = (
        f"args = parse()\ngiven = args.gpus.split(',')\n{name} = []\n{filling.format(ids=name)}print(given)\n"
        f"model = nn.DataParallel(nn.Linear(8, 8), device_ids={name})\ntrain(model)\n"
    )
    last = FILLING[filling].format(ids=name)
    text = convert(Project.of({PATH: PROGRAM + tail})).changes[0].after
    assert f"{last}\nddp.init(devices={name})\nprint(given)\n" in text
    late = tail.replace("args = parse()\n", "args = parse()\nprint(args)\n")
    text = convert(Project.of({PATH: PROGRAM + late})).changes[0].after
    assert "ddp.init()\nprint(args)\n" in text
    assert f"{last}\nddp.use_devices({name})\nprint(given)\n" in text


@pytest.mark.parametrize(
    "judged",
    [
        "if torch.cuda.device_count() == 1 and args.gpus != 0:\n    print('not supported')\n",
        "if not torch.cuda.device_count() > 1:\n    raise SystemExit('two are needed')\n",
        "if torch.cuda.device_count() < 2:\n    print('too few')\n    sys.exit(1)\n",
        "assert torch.cuda.device_count() > 1, 'two are needed'\n",
        "print('one') if torch.cuda.device_count() == 1 else None\n",
        "count = torch.cuda.device_count()\nif count == 1 and args.gpus != 0:\n    print('not supported')\n",
    ],
)
def test_what_is_only_said_of_the_machine_is_no_matter_of_the_ranks(judged: str) -> None:
    tail = f"args = parse()\n{judged}train(nn.DataParallel(nn.Linear(8, 8)))\n"
    text = convert(Project.of({PATH: PROGRAM + tail})).changes[0].after
    assert "torch.cuda.device_count()" in text and "get_world_size" not in text
    counted = tail.replace(
        judged, "if torch.cuda.device_count() > 1:\n    args.rate *= torch.cuda.device_count()\n"
    )
    text = convert(Project.of({PATH: PROGRAM + counted})).changes[0].after
    assert "if ddp.get_world_size() > 1:\n    args.rate *= ddp.get_world_size()\n" in text
    said = tail.replace(
        judged, "if torch.cuda.device_count() > 1:\n    print(torch.cuda.device_count(), 'GPUs')\n"
    )
    text = convert(Project.of({PATH: PROGRAM + said})).changes[0].after
    assert "if ddp.get_world_size() > 1:\n    print(ddp.get_world_size(), 'GPUs')\n" in text


LIMITS = {
    "numbers in a list": "for device in args.gpus:\n    if device >= count:\n        print(device, 'of', count)\n"
    "        sys.exit(1)\n",
    "the highest": "if max(args.gpus) >= count:\n    raise ValueError(f'only {count}')\n",
    "the highest, the other way": "assert count > max(args.gpus), count\n",
    "those that are there": "args.gpus = [it for it in args.gpus if it < count]\n",
    "another one": "if args.gpu >= count:\n    args.gpu = 0\nprint(count, 'GPUs')\n",
}


@pytest.mark.parametrize("name", LIMITS)
def test_the_numbers_of_devices_are_compared_with_how_many_there_are(name: str) -> None:
    """And not with how many ranks there are: the second and third of four may be asked for."""
    head = "args = parse()\ncount = torch.cuda.device_count()\n"
    tail = "train(nn.DataParallel(nn.Linear(8, 8), device_ids=args.gpus))\n"
    text = convert(Project.of({PATH: PROGRAM + head + LIMITS[name] + tail})).changes[0].after
    assert "count = torch.cuda.device_count()\n" in text and "get_world_size" not in text
    for counted in ("args.rate *= count\n", "if count > 1:\n    print('several')\n    args.rate *= 2\n"):
        text = convert(Project.of({PATH: PROGRAM + head + LIMITS[name] + counted + tail})).changes[0].after
        assert "count = ddp.get_world_size()\n" in text
    lengths = head + "if len(args.gpus) < count:\n    args.rate *= 2\n" + tail
    text = convert(Project.of({PATH: PROGRAM + lengths})).changes[0].after
    assert "count = ddp.get_world_size()\n" in text


def test_one_process_is_enough_only_where_nothing_is_wrapped_on_all_devices() -> None:
    """Two wraps, one under an option; and one that an option switches to the CPU besides."""
    tail = (
        "args = parse()\none, two = nn.Linear(8, 8), nn.Linear(8, 8)\nif args.several:\n    one = nn.DataParallel(one)\n"
        "two = nn.DataParallel(two)\ntrain(one)\ntrain(two)\n"
    )
    assert "ddp.init()\n" in convert(Project.of({PATH: PROGRAM + tail})).changes[0].after
    alone = tail.replace("two = nn.DataParallel(two)\n", "")
    text = convert(Project.of({PATH: PROGRAM + alone})).changes[0].after
    assert "ddp.init(devices=None if args.several else 1)\n" in text
    moved = alone.replace("if args.several:\n    one = nn.DataParallel(one)\n", CPU)
    text = convert(Project.of({PATH: PROGRAM + moved})).changes[0].after
    assert "ddp.init(devices=None if not args.alone and args.cuda else 1)\n" in text


def test_devices_that_are_said_elsewhere_are_left() -> None:
    """A keyword that may be given twice would be an error, and where a tensor is needs no other name."""
    tail = (
        "args = parse()\nmore = {'map_location': 'cpu'} if args.gpus else {}\nmodel = nn.DataParallel(nn.Linear(8, 8))\n"
        "model.load_state_dict(torch.load('model.pt', **more))\nones = torch.ones(8)\n"
        "print(ones.cuda(ones.get_device()))\ntrain(model)\n"
    )
    text = convert(Project.of({PATH: PROGRAM + tail})).changes[0].after
    assert "torch.load('model.pt', **more)" in text and "ones.cuda(ones.get_device())" in text


def test_any_question_to_the_user_is_asked_once() -> None:
    tail = (
        "import click\nargs = parse()\nif os.path.isdir('runs'):\n    if not click.confirm('erase runs?'):\n"
        "        sys.exit()\n    os.system('rm -r runs')\nos.mkdir('runs')\ntrain(nn.DataParallel(nn.Linear(8, 8)))\n"
    )
    text = convert(Project.of({PATH: PROGRAM + tail})).changes[0].after
    assert "if ddp.from_main_process(os.path.isdir('runs')):\n" in text
    assert (
        "ddp.from_main_process(not click.confirm('erase runs?') if ddp.is_main_process() else None)" in text
    )


CPU = """\
if args.cuda:
    if args.alone:
        one = one.cuda()
    else:
        one = nn.DataParallel(one, dim=1).cuda()
"""


def test_a_wrap_that_nothing_asks_for_stays_and_chooses_no_devices() -> None:
    """Its function is there for others, too."""
    build = (
        "from torch import nn\n\n\ndef build(size, parallel=False):\n    model = nn.Linear(size, size)\n"
        "    if parallel:\n        model = nn.DataParallel(model)\n    return model\n"
    )
    tail = (
        "from build import build\nmodel = build(8)\nassert not hasattr(model, 'module')\n"
        "model = nn.DataParallel(model)\ntrain(model)\n"
    )
    build_path = PATH.with_name("build.py")
    conversion = convert(Project.of({PATH: PROGRAM + tail, build_path: build}))
    assert [change.path for change in conversion.changes] == [PATH]
    assert "ddp.init()\n" in conversion.changes[0].after
    asked = convert(
        Project.of({PATH: PROGRAM + tail.replace("build(8)", "build(8, True)"), build_path: build})
    )
    assert {change.path for change in asked.changes} == {PATH, build_path}


def test_a_device_that_is_compared_is_asked_for_its_type() -> None:
    """The rank's own is no answer: on the CPU it would be wrapped, too, and the keys of its layers would change."""
    tail = (
        "device = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')\nmodel = nn.Linear(8, 8).to(device)\n"
        "if device == torch.device('cuda:0'):\n    model[0] = nn.DataParallel(model[0])\ntrain(model)\n"
    )
    text = convert(Project.of({PATH: PROGRAM + tail})).changes[0].after
    assert "device = ddp.device()\n" in text
    assert "if ddp.get_world_size() > 1:\n    model[0] = ddp.D" in text
    asked = tail.replace(
        "train(model)", "if torch.device('cuda:0') == device:\n    print(model)\ntrain(model)"
    )
    assert (
        'if device.type == "cuda":\n    print'
        in convert(Project.of({PATH: PROGRAM + asked})).changes[0].after
    )


def test_a_part_of_a_model_is_wrapped_as_others_that_build_it_expect() -> None:
    """By its settings, not by the number of processes: a program that only loads its checkpoints has one."""
    net = (
        "from torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self, gpus):\n        super().__init__()\n"
        "        self.body = nn.Linear(8, 8)\n        if len(gpus) > 1:\n"
        "            self.body = nn.DataParallel(self.body, device_ids=gpus)\n\n"
        "    def forward(self, x):\n        return self.body(x)\n"
    )
    tail = "from net import Net\nGPUS = [0, 1]\ntrain(Net(GPUS))\n"
    conversion = convert(Project.of({PATH: PROGRAM + tail, PATH.with_name("net.py"): net}))
    after = {change.path.name: change.after for change in conversion.changes}
    assert "        if len(gpus) > 1:\n            self.body = ddp.D" in after["net.py"]
    assert "ddp.init(devices=GPUS)\n" in after["train.py"]


@pytest.mark.parametrize(
    ("given", "start"),
    [("True", "ddp.init()\n"), ("args.multi", "ddp.init(devices=None if args.multi else 1)\n")],
)
def test_a_function_that_others_may_import_wraps_where_it_is_asked_to(given: str, start: str) -> None:
    """A program beside may ask it for a bare model."""
    nets = (
        "from torch import nn\n\n\ndef build(size, parallel=False):\n    model = nn.Linear(size, size)\n"
        "    if parallel:\n        model = nn.DataParallel(model)\n    return model\n"
    )
    tail = f"from nets import build\nargs = parse()\nprint(args)\ntrain(build(8, parallel={given}))\n"
    conversion = convert(Project.of({PATH: PROGRAM + tail, PATH.with_name("nets.py"): nets}))
    after = {change.path.name: change.after for change in conversion.changes}
    assert "    if parallel:\n        model = ddp.DistributedDataParallel(model)\n" in after["nets.py"]
    assert start in after["train.py"]


def test_a_part_of_a_model_is_wrapped_under_the_option_that_asks_for_it() -> None:
    """The keys of its checkpoints have a prefix with the option only, and without it one process trains."""
    tail = (
        "args = parse()\nprint(args)\nmodel = nn.Sequential(nn.Linear(8, 8))\nif args.multi:\n"
        "    model[0] = nn.DataParallel(model[0])\ntrain(model)\n"
    )
    text = convert(Project.of({PATH: PROGRAM + tail})).changes[0].after
    assert "ddp.init(devices=None if args.multi else 1)\n" in text
    assert "if args.multi:\n    model[0] = ddp.D" in text


def test_a_gpu_chosen_by_its_number_is_the_rank_s_own_wherever_it_is_used() -> None:
    tail = (
        "\n\ndef move(batch, device):\n    return batch.to(device)\n\n\n"
        "args = parse()\nmain = args.gpus[0]\nmodel = nn.Linear(8, 8)\nmodel.to(main)\nnoise = torch.ones(8, device=main)\n"
        "model = nn.DataParallel(model, args.gpus)\nmove(noise, main)\nnoise.to(args)\ntrain(model)\n"
    )
    text = convert(Project.of({PATH: PROGRAM + tail})).changes[0].after
    assert "return batch.to(ddp.device())\n" in text
    assert "torch.ones(8, device=ddp.device())" in text
    assert "to(main)" not in text and "noise.to(args)" in text


def test_the_rule_knows_what_launch_keeps_for_itself() -> None:
    named = inspect.signature(launch).parameters.values()
    assert {it.name for it in named if it.kind is it.KEYWORD_ONLY} == set(
        ddp101_single_process_program.OPTIONS
    )


CHOSEN_ELSEWHERE = {
    "net.py": """\
from torch import nn


def init(net, ids=[]):
    if len(ids) > 0:
        net.to(ids[0])
        if len(ids) > 1:
            net = nn.DataParallel(net, ids)
    return net


def build(ids=[]):
    return init(nn.Linear(4, 2), ids)
""",
    "lib.py": """\
import net
import torch
from torch import nn


def choose(args):
    words = args.ids.split(",")
    args.ids = []
    for word in words:
        if int(word) >= 0:
            args.ids.append(int(word))
    if len(args.ids) > 0:
        torch.cuda.set_device(args.ids[0])


class Trainer:
    def __init__(self, args, loader):
        self.model, self.loader = net.build(ids=args.ids), loader

    def train(self):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for inputs, targets in self.loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(self.model(inputs), targets).backward()
            optimizer.step()


class Tester:
    def __init__(self, args, loader):
        self.model, self.loader = net.build(ids=args.ids), loader

    def test(self):
        self.model.eval()
        with torch.no_grad():
            print(sum(self.model(inputs).sum().item() for inputs, _ in self.loader))
""",
    "train.py": """\
import argparse

import lib
import torch
from torch.utils.data import DataLoader, TensorDataset


def train(args):
    data = TensorDataset(torch.randn(24, 4), torch.randn(24, 2))
    loader = DataLoader(data, batch_size=6)
    lib.Trainer(args, loader).train()
    lib.Tester(args, loader).test()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ids", default="0,1")
    args = parser.parse_args()
    lib.choose(args)
    train(args)
""",
}


def test_devices_that_several_callers_give_under_the_same_name() -> None:
    """None of the names is one where the ranks start: they are told where the model is wrapped."""
    conversion = convert(Project.of({Path(name): text for name, text in CHOSEN_ELSEWHERE.items()}))
    assert not conversion.errors
    after = {change.path.name: change.after for change in conversion.changes}
    assert "ddp.use_devices(ids)" in after["net.py"] and "ddp.init()\n" in after["train.py"]


# What wraps only under a condition, and how many ranks start: where it does not hold, one.
SWITCHES = {
    "a flag": ("args.cuda = not args.no_cuda and torch.cuda.is_available()", "args.cuda", "args.cuda"),
    "a name": ("use = torch.cuda.is_available() and not args.no_cuda", "use", "use"),
    "and several GPUs": (
        "use = torch.cuda.is_available() and not args.no_cuda",
        "use and torch.cuda.device_count() > 1",
        "use",
    ),
    "a device's name": (
        "device = 'cuda' if not args.no_cuda else 'cpu'",
        "device == 'cuda'",
        "device == 'cuda'",
    ),
    "a device": ("device = torch.device(args.device)", "device.type == 'cuda'", "device.type == 'cuda'"),
    "an option's text": ("", "'cuda' in args.device", "'cuda' in args.device"),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_one_process_trains_where_the_gpus_are_switched_off(name: str) -> None:
    """The original wraps nothing then: processes that all compute on the CPU would be in each other's way."""
    decided, test, asked = SWITCHES[name]
    wrapped = f"args = parse()\n{decided}\nmodel = nn.Linear(8, 8)\nif {test}:\n    model = nn.DataParallel(model)\ntrain(model)\n"
    beside = wrapped.replace(f"if {test}:\n", f"if not ({test}):\n    print('CPU')\nelse:\n")
    for tail in (wrapped, beside):
        (start,) = places(convert(Project.of({PATH: PROGRAM + tail})).changes[0].after, "ddp.init")
        assert start[1] == f"ddp.init(devices=None if {asked} else 0)"
    machine = wrapped.replace("not args.no_cuda and ", "").replace(" and not args.no_cuda", "")
    if machine != wrapped:
        text = convert(Project.of({PATH: PROGRAM + machine})).changes[0].after
        assert [start for _, start in places(text, "ddp.init")] == ["ddp.init()"]


def test_what_decides_is_said_where_the_ranks_start_if_its_name_comes_later() -> None:
    """The loader is there before the model: then it is settled who trains."""
    tail = (
        "\n\nclass Trainer:\n    def __init__(self, args):\n"
        "        self.cuda = torch.cuda.is_available() and not args.no_cuda\n        self.model = nn.Linear(8, 8)\n"
        "        if self.cuda:\n            self.model = nn.DataParallel(self.model)\n\n\n"
        "args = parse()\nprint(args)\nloader = DataLoader(data, batch_size=16)\ntrain(Trainer(args).model)\n"
    )
    text = convert(Project.of({PATH: PROGRAM + tail})).changes[0].after
    asked = "None if torch.cuda.is_available() and (not args.no_cuda) else 0"
    assert places(text, "ddp.") == [("args = parse()", f"ddp.init(devices={asked})")]
    given = tail.replace(
        "        self.cuda = torch.cuda.is_available() and not args.no_cuda\n",
        "        self.gpus = args.gpus\n",
    )
    given = given.replace("self.cuda", "self.gpus").replace("(self.model)", "(self.model, self.gpus)")
    given = given.replace(
        "print(args)",
        "chosen = args.gpus\nargs.gpus = []\nfor it in chosen:\n    args.gpus.append(it)\nprint(args)",
    )
    text = convert(Project.of({PATH: PROGRAM + given})).changes[0].after
    assert places(text, "ddp.") == [
        ("for it in chosen:\n    args.gpus.append(it)", "ddp.init(devices=args.gpus)")
    ]


def test_devices_that_are_given_under_an_option_are_chosen_by_it() -> None:
    tail = "args = parse()\nmodel = nn.Linear(8, 8)\nif args.multi:\n    model = nn.DataParallel(model, [1, 3])\ntrain(model)\n"
    text = convert(Project.of({PATH: PROGRAM + tail})).changes[0].after
    assert "ddp.init(devices=[1, 3] if args.multi else 1)\n" in text
    numbered = tail.replace("model = nn.Linear(8, 8)", "model = nn.Linear(8, 8).to(f'cuda:{args.gpu}')")
    text = convert(Project.of({PATH: PROGRAM + numbered})).changes[0].after
    assert "ddp.init(devices=[1, 3] if args.multi else [args.gpu])\n" in text
    known = PROGRAM.replace(
        "return parser.parse_args()", "args, rest = parser.parse_known_args()\n    return args"
    )
    assert known != PROGRAM
    one = tail.replace("args = parse()\n", "args = parse()\ntorch.cuda.set_device(args.gpu)\n")
    text = convert(Project.of({PATH: known + one})).changes[0].after
    assert "ddp.init(devices=[1, 3] if args.multi else [args.gpu])\n" in text
    listed = "if args.multi:\n    args.devices = [1, 3]\n    args.gpu = args.devices[0]\nmodel = "
    listed = numbered.replace("model = ", listed, 1).replace("(model, [1, 3])", "(model, args.devices)")
    text = convert(Project.of({PATH: PROGRAM + listed})).changes[0].after
    assert "devices(args.devices if args.multi else [args.gpu])\n" in text


# One of the GPUs of a wrap, or the CPU.
MIXED = {
    "if args.gpus:\n    main = args.gpus[0]\nelse:\n    main = torch.device('cpu')\n": "main = ddp.device()",
    "main = args.gpus[0] if args.gpus else 'cpu'\n": "main = ddp.device() if args.gpus else 'cpu'",
    "if args.gpus:\n    main = args.gpus[0]\nelse:\n    main = -1\nprint(main != 0)\n": "main = ddp.device().index",
}


@pytest.mark.parametrize("chosen", MIXED)
def test_a_name_that_is_a_gpu_or_the_cpu_is_the_rank_s_gpu_or_the_cpu(chosen: str) -> None:
    tail = (
        f"args = parse()\n{chosen}model = nn.Linear(8, 8).to(main)\ncriterion = nn.MSELoss().to(main)\n"
        "if args.gpus:\n    model = nn.DataParallel(model, args.gpus)\ntrain(model)\n"
    )
    text = convert(Project.of({PATH: PROGRAM + tail})).changes[0].after
    assert "args = parse()\nddp.init(devices=args.gpus)\n" in text
    assert MIXED[chosen] in text and "nn.MSELoss().to(main)" in text


LEARNER = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Learner:
    def __init__(self, model, several="auto"):
        if several is True or (several == "auto" and torch.cuda.device_count() > 1):
            model = nn.DataParallel(model)
        self.model = model

    @property
    def bare(self):
        return self.model.module if isinstance(self.model, nn.DataParallel) else self.model

    def fit(self, loader):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for step, (inputs, targets) in enumerate(loader):
            optimizer.zero_grad()
            outputs = self.model(inputs)
            torch.cdist(outputs, targets).mean().backward()
            optimizer.step()
        for kept in self.keeping:
            kept(self)


class Keeper:
    def __call__(self, learner):
        torch.save(learner.bare.state_dict(), "net.pt")


if __name__ == "__main__":
    learner = Learner(nn.Linear(4, 2))
    learner.keeping = [Keeper()]
    learner.fit(DataLoader(TensorDataset(torch.randn(24, 4), torch.randn(24, 2)), batch_size=6))
"""


def test_a_default_that_leaves_it_to_the_machine_chooses_no_devices() -> None:
    """And who asks for the wrap, by a property that only an object in a list uses, asks for that of the form."""
    text = convert(Project.of({PATH: LEARNER}), no_gather=True).changes[0].after
    assert "use_devices" not in text and "ddp.init()\n" in text
    assert "ddp.DistributedDataParallel" not in text and "model = ddp.DataParallel(model)" in text
    assert "isinstance(self.model, nn.DataParallel)" in text


LISTED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, model, wanted):
        self.device, ids = self.devices(wanted)
        self.model = nn.DataParallel(model, device_ids=ids or None)
        self.model.to(self.device)

    def devices(self, wanted):
        there = torch.cuda.device_count()
        if there == 0:
            wanted = 0
        elif wanted > there:
            wanted = there
        return torch.device("cuda:0" if wanted > 0 else "cpu"), list(range(wanted))

    def train(self, loader):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(self.model(inputs.to(self.device)), targets.to(self.device)).backward()
            optimizer.step()


if __name__ == "__main__":
    loader = DataLoader(TensorDataset(torch.randn(24, 4), torch.randn(24, 2)), batch_size=6)
    Trainer(nn.Linear(4, 2), 2).train(loader)
"""


def test_gpus_that_a_list_is_made_of_are_the_machine_s() -> None:
    """Also where the wrap is given that list or something else."""
    text = convert(Project.of({PATH: LISTED})).changes[0].after
    assert "there = torch.cuda.device_count()\n" in text and "ddp.use_devices(ids or None)\n" in text


# What gives a configuration its contents behind the line that makes it.
FILLED = {
    "a file": ("config = ConfigParser()", "config.read('train.ini')", "config.getint('gpus', 'count')"),
    "a file that is asked for": (
        "config = ConfigParser()",
        "assert config.read('train.ini')",
        "int(config['gpus']['count'])",
    ),
    "a file, in a function": (
        "config = ConfigParser()",
        "fill(config)",
        "config['gpus'].getint('count')",
    ),
    "an entry": ("config = {}", "config['count'] = args.count", "config['count']"),
    "an entry of an entry": (
        "config = defaults()",
        "config['gpus']['count'] = args.count",
        "config['gpus']['count']",
    ),
    "entries": ("config = dict(count=1)", "config.update(count=2)", "config['count']"),
    "a library's own method": ("config = Settings()", "config.from_yaml('train.yml')", "config.count"),
    "attributes by their names": (
        "config = argparse.Namespace(count=1)",
        "for key in ('count', 'rate'):\n    setattr(config, key, 2)",
        "config.count",
    ),
    "all attributes": (
        "config = argparse.Namespace(count=1)",
        "vars(config).update(count=2)",
        "config.count",
    ),
    "their dict": (
        "config = argparse.Namespace(count=1)",
        "config.__dict__['count'] = 2",
        "config.count",
    ),
}


@pytest.mark.parametrize("start", ["", "print('start')\n"])
@pytest.mark.parametrize("name", FILLED)
def test_a_configuration_is_complete_where_it_is_read(name: str, start: str) -> None:
    """Whether the ranks start behind it, or before."""
    made, filled, count = FILLED[name]
    functions = (
        "from configparser import ConfigParser\nfrom settings import Settings, defaults\n\n\n"
        "def fill(parser):\n    parser.read('train.ini')\n\n\n"
    )
    tail = (
        f"args = parse()\n{start}{made}\n{filled}\ntorch.manual_seed(0)\n"
        f"train(nn.DataParallel(nn.Linear(8, 8), device_ids=range({count})))\n"
    )
    text = convert(Project.of({PATH: functions + PROGRAM + tail})).changes[0].after
    (chosen,) = [it for it in places(text, "ddp.init", "ddp.use_devices") if "range" in it[1]]
    assert chosen[0] == filled


SIBLINGS = """\
class Base:
    def __init__(self, args):
        self.args = args
        self.model = self.build()

    def fit(self):
        train(self.model)


class One(Base):
    def build(self):
        model = nn.Linear(8, 8)
        if self.args.several:
            model = nn.DataParallel(model, device_ids=self.args.gpus)
        return model


class Other(Base):
    def build(self):
        print("the other")
        model = nn.Linear(8, 8)
        if self.args.several:
            model = nn.DataParallel(model, device_ids=self.args.gpus)
        return model


args = parse()
print(args)
if args.gpus:
    args.gpus = [int(it) for it in args.gpus]
"""
BUILT = "\n\n" + "".join(
    f"def {name}(options):\n    model = nn.Linear(8, 8)\n    if options.several:\n"
    "        model = nn.DataParallel(model, device_ids=options.gpus)\n    return model\n\n\n"
    for name in ("one", "other")
)
WAYS = {
    "classes": ("Kind = One if args.one else Other\nKind(args).fit()\n", 2),
    "branches": ("if args.one:\n    made = One(args)\nelse:\n    made = Other(args)\nmade.fit()\n", 2),
    "a table": ("table = {'one': One, 'other': Other}\ntable[args.kind](args).fit()\n", 2),
    "one after the other": (f"{BUILT}train(one(args))\ntrain(other(args))\n", 1),
    "one after the other, in a function": (
        f"{BUILT}def both():\n    first = one(args)\n    train(other(args))\n    train(first)\n\n\nboth()\n",
        1,
    ),
    "one perhaps": ("if args.one:\n    One(args).fit()\nOther(args).fit()\n", 2),
    "where both ways begin": (f"{BUILT}train(one(args) if args.one else other(args))\n", 1),
}


@pytest.mark.parametrize("name", WAYS)
def test_each_of_several_ways_chooses_the_devices(name: str) -> None:
    """And what is on one way chooses them once."""
    tail, count = WAYS[name]
    text = convert(Project.of({PATH: PROGRAM + SIBLINGS + tail})).changes[0].after
    chosen = [line for _, line in places(text, "ddp.use_devices")]
    assert len(chosen) == count and len(set(chosen)) == 1
    assert ".gpus if " in chosen[0]


@pytest.mark.parametrize(
    "counted", ["torch.cuda.device_count()", "0 if args.no_cuda else torch.cuda.device_count()"]
)
def test_a_number_of_gpus_that_decides_is_that_of_the_ranks(counted: str) -> None:
    """Also under an option; and what asks for a GPU by it asks for that."""
    tail = (
        f"args = parse()\ncount = {counted}\ndevice = torch.device('cuda' if count > 0 else 'cpu')\n"
        "model = nn.Linear(8, 8).to(device)\nif count > 1:\n    model = nn.DataParallel(model)\n"
        "print(16 * max(1, count))\ntrain(model)\n"
    )
    text = convert(Project.of({PATH: PROGRAM + tail})).changes[0].after
    expected = counted.replace("torch.cuda.device_count", "ddp.get_world_size")
    assert f"count = {expected}\n" in text
    assert "device = torch.device('cuda' if torch.cuda.device_count() > 0 else 'cpu')\n" in text


SWITCHED_OFF = """\
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    cuda = True
    distributed = False
    torch.manual_seed(0)
    if distributed:
        dist.init_process_group(backend="nccl")
        local_rank = int(os.environ["LOCAL_RANK"])
        device = torch.device("cuda", local_rank)
    else:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        local_rank = 0
    model = nn.Linear(4, 2)
    trained = model.train()
    if cuda:
        if distributed:
            trained = trained.cuda(local_rank)
            trained = nn.parallel.DistributedDataParallel(trained, device_ids=[local_rank])
        else:
            trained = nn.DataParallel(model)
            trained = trained.cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(TensorDataset(torch.randn(24, 4), torch.randn(24, 2)), batch_size=6)
    for inputs, targets in loader:
        if cuda:
            inputs, targets = inputs.cuda(local_rank), targets.cuda(local_rank)
        optimizer.zero_grad()
        nn.functional.mse_loss(trained(inputs), targets).backward()
        optimizer.step()
"""


def test_what_switches_the_gpus_off_does_so_beside_a_distributed_branch() -> None:
    (change,) = convert(Project.of({PATH: SWITCHED_OFF})).changes
    assert "    ddp.init(devices=None if cuda else 0, own_ranks=True)\n" in change.after


def test_a_way_that_returns_is_gone_with_the_devices_chosen() -> None:
    """What it does to the settings doesn't keep the choice behind it, where that would come too late for it."""
    tail = (
        "def score(options):\n    options.device = 'cpu'\n    print(options)\n\n\n"
        "def main():\n    args = parse()\n    options = argparse.Namespace()\n    options.device = args.part\n"
        "    if args.score:\n        score(options)\n        return\n"
        "    model = nn.Linear(8, 8)\n    if options.device == 'cuda':\n        model = nn.DataParallel(model)\n"
        "    train(model.to(options.device))\n\n\nif __name__ == '__main__':\n    main()\n"
    )
    text = convert(Project.of({PATH: PROGRAM + tail})).changes[0].after
    ((before, chosen),) = places(text, "ddp.use_devices")
    assert before == "options.device = args.part" and "args.score" in chosen


@pytest.mark.parametrize(
    "sets", ["os.environ['CUDA_VISIBLE_DEVICES'] =", "os.environ.setdefault('CUDA_VISIBLE_DEVICES',"]
)
def test_devices_are_chosen_after_what_numbers_them(sets: str) -> None:
    """To choose them is to use CUDA, which looks at the variable once."""
    end = ")" if "setdefault" in sets else ""
    tail = (
        f"args = parse()\nprint(args)\nids = args.part.split(',')\n{sets} args.part{end}\n"
        "train(nn.DataParallel(nn.Linear(8, 8), device_ids=list(range(len(ids)))))\n"
    )
    text = convert(Project.of({PATH: PROGRAM + tail})).changes[0].after
    ((before, _),) = places(text, "ddp.use_devices")
    assert before is not None and before.startswith("os.environ")


WRAPPING = """\
def parallel(module, device_ids=None, sizes=None):
    if sizes is None:
        return nn.DataParallel(module, device_ids)
    if len(set(sizes)) == 1:
        return nn.DataParallel(module, device_ids)
    return Uneven(module, device_ids)


class Uneven(nn.DataParallel):
    pass


class Trainer:
    def __init__(self, model):
        self.model = model

    def set_device(self, gpus, sizes):
        if len(gpus) > 1:
            self.model = parallel(self.model, device_ids=gpus, sizes=sizes)


class Options:
    def parse(self):
        opt = parse()
        opt.chosen = [int(it) for it in opt.part.split(",")]
        opt.sizes = [8 for _ in opt.chosen]
        return opt


def main(opt):
    os.environ["CUDA_VISIBLE_DEVICES"] = opt.part
    opt.device = torch.device("cuda" if opt.chosen[0] >= 0 else "cpu")
    print(opt)
    trainer = Trainer(nn.Linear(8, 8))
    trainer.set_device(opt.chosen, opt.sizes)
    train(trainer.model)


if __name__ == "__main__":
    opt = Options().parse()
    main(opt)
"""


def test_a_function_that_wraps_on_every_way_chooses_what_it_is_given() -> None:
    """Its conditions decide how a model is wrapped, not whether; and a method of the project's numbers no GPU."""
    text = convert(Project.of({PATH: PROGRAM + WRAPPING})).changes[0].after
    assert "ddp.init(devices=opt.chosen)\n" in text and "use_devices" not in text


UNPACKED = """\
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def available():
    ids = list(range(torch.cuda.device_count()))
    return torch.device("cuda" if ids else "cpu"), ids


def main(args):
    device, args.gpus = available()
    data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
    model = nn.DataParallel(nn.Linear(8, 2), args.gpus).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    for inputs, targets in DataLoader(data, batch_size=16, shuffle=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device)).backward()
        optimizer.step()


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    return parser.parse_args()


if __name__ == "__main__":
    main(options())
"""


def test_an_option_that_the_program_sets_later_by_unpacking_is_not_asked_for_at_the_start() -> None:
    (change,) = convert(Project.of({Path("/example/train.py"): UNPACKED})).changes
    assert "ddp.init(devices=args.gpus)" in change.after
