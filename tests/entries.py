"""Projects whose programs begin elsewhere than in a script, or choose their parts by name.

Each is a few files; all train the same small models, so that what they do can be compared.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

IMPORTS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
"""
MODELS = """\
from torch import nn


class Narrow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))

    def forward(self, inputs):
        return self.layers(inputs)


class Wide(Narrow):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
"""
FIT = """\
def fit(model, rate=0.1):
    data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
    loader = DataLoader(data, batch_size=16)
    model = nn.DataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for epoch in range(2):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
        print("epoch", epoch)
    torch.save(model.state_dict(), "weights.pt")
"""
CLI = f"""\
import argparse

{IMPORTS}
from .models import Narrow


{FIT}

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, default=0.1)
    args = parser.parse_args()
    torch.manual_seed(3)
    fit(Narrow(), args.rate)
"""
PACKAGE = {"pkg/__init__.py": "", "pkg/models.py": MODELS, "pkg/cli.py": CLI}
THIN = "import sys\n\nfrom pkg.cli import main\n\nsys.exit(main())\n"
SETUP = "from setuptools import find_packages, setup\n\nsetup(name='pkg', packages=find_packages(), {})\n"
FOUND = """\
#!/usr/bin/env python
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""


@dataclass(frozen=True)
class Form:
    """A project: its files, what is asked for, and how it is started.

    ``start``: the file that runs it, or the text of the one that installing it makes. ``holds``: the file in which
    the ranks start.
    """

    files: dict[str, str]
    asked: tuple[str, ...] = (".",)
    start: str = "run.py"
    module: bool = False
    holds: str = ""
    arguments: tuple[str, ...] = ()

    @property
    def packages(self) -> set[str]:
        """What it imports that is neither its own nor torch's."""
        nodes = (
            it
            for name, text in self.files.items()
            if name.endswith(".py")
            for it in ast.walk(ast.parse(text))
        )
        imports = [
            it for it in nodes if isinstance(it, ast.Import | ast.ImportFrom) and not getattr(it, "level", 0)
        ]
        names = [alias.name for it in imports if isinstance(it, ast.Import) for alias in it.names]
        names += [it.module or "" for it in imports if isinstance(it, ast.ImportFrom)]
        own = {name.removeprefix("src/").partition("/")[0].removesuffix(".py") for name in self.files}
        return {name.partition(".")[0] for name in names} - own - {"setuptools", "torch"}


def installed(**files: str) -> Form:
    """A project whose program is made by its installation."""
    return Form(
        {**PACKAGE, **{name.replace("__", "."): text for name, text in files.items()}},
        start=THIN,
        holds="pkg/cli.py",
    )


ENTRIES = {
    "console_scripts": installed(
        setup__py=SETUP.format("entry_points={'console_scripts': ['train = pkg.cli:main']}")
    ),
    "console_scripts in a string": installed(
        setup__py=SETUP.format("entry_points='''\n[console_scripts]\ntrain=pkg.cli:main\n'''")
    ),
    "console_scripts in a variable": installed(
        setup__py="from setuptools import setup\n\nENTRIES = {'gui_scripts': ['train = pkg.cli:main [gpu]']}\n"
        "OPTIONS = dict(name='pkg', entry_points=ENTRIES)\nsetup(**OPTIONS)\n"
    ),
    "setup.cfg": installed(
        setup__cfg="[metadata]\nname = pkg\n\n[options.entry_points]\nconsole_scripts =\n    train = pkg.cli:main\n"
    ),
    "pyproject.toml": installed(
        pyproject__toml='[project]\nname = "pkg"\n\n[project.scripts]\ntrain = "pkg.cli:main"\n'
    ),
    "poetry": installed(
        pyproject__toml='[tool.poetry]\nname = "pkg"\n\n[tool.poetry.scripts]\n'
        'train = { reference = "pkg.cli:main", type = "console" }\n'
    ),
    "a folder of sources": Form(
        {f"src/{name}": text for name, text in PACKAGE.items()}
        | {"pyproject.toml": '[project]\nname = "pkg"\n\n[project.scripts]\ntrain = "pkg.cli:main"\n'},
        start=THIN,
        holds="src/pkg/cli.py",
    ),
    "a script without an ending": Form(
        {
            **PACKAGE,
            "setup.py": SETUP.format("scripts=['bin/train']"),
            "bin/train": FOUND + THIN.removeprefix("import sys\n\n"),
        },
        start="bin/train",
        holds="bin/train",
    ),
    "__main__.py that an entry point calls": Form(
        {
            "pkg/__init__.py": "",
            "pkg/models.py": MODELS,
            "pkg/__main__.py": CLI,
            "setup.cfg": "[options.entry_points]\nconsole_scripts = train = pkg.__main__:main\n",
        },
        start=THIN.replace("cli", "__main__"),
        holds="pkg/__main__.py",
    ),
    "python -m": Form(
        {**PACKAGE, "pkg/__main__.py": "from .cli import main\n\nmain()\n"},
        start="pkg.__main__",
        module=True,
        holds="pkg/__main__.py",
    ),
    "a thin script": Form({**PACKAGE, "run.py": THIN}, asked=("run.py",), holds="run.py"),
    "a thin script in a folder": Form({**PACKAGE, "run.py": THIN}, holds="run.py"),
    "a thin script of two lines": Form(
        {**PACKAGE, "run.py": "from pkg.cli import main\nmain()\n"}, asked=("run.py",), holds="run.py"
    ),
    "a thin script of a module": Form(
        {**PACKAGE, "run.py": 'import pkg.cli as cli\n\nif __name__ == "__main__":\n    cli.main()\n'},
        asked=("run.py",),
        holds="run.py",
    ),
    "an entry point beside a thin script": Form(
        {
            **PACKAGE,
            "run.py": THIN,
            "setup.cfg": "[options.entry_points]\nconsole_scripts = train = pkg.cli:main\n",
        },
        holds="pkg/cli.py",
    ),
    "a thin script with a choice of devices": Form(
        {
            **PACKAGE,
            "run.py": THIN,
            "pkg/cli.py": CLI.replace("def fit(model, rate=0.1)", "def fit(model, rate, gpus)")
            .replace("nn.DataParallel(model)", "nn.DataParallel(model, device_ids=gpus)")
            .replace(
                "    args = parser",
                '    parser.add_argument("--gpus", type=int, nargs="*")\n    args = parser',
            )
            .replace("args.rate)", "args.rate, args.gpus)"),
        },
        asked=("run.py",),
        arguments=("--gpus", "0", "1"),
    ),
    "an object's method": Form(
        {
            **PACKAGE,
            "run.py": "from pkg.cli import App\n\napp = App()\napp.run()\n",
            "pkg/cli.py": CLI + "\n\nclass App:\n    def run(self):\n        main()\n",
        },
        asked=("run.py",),
    ),
    "a module run by its name": Form(
        {
            **PACKAGE,
            "run.py": 'import runpy\n\nrunpy.run_module("pkg.cli", run_name="__main__")\n',
            "pkg/cli.py": CLI + '\n\nif __name__ == "__main__":\n    main()\n',
        },
        asked=("run.py",),
    ),
}


# Programs that choose their parts by name. Each file is a template's: HEAD, what chooses, and the end that starts it.

HEAD = f"""\
import argparse

{IMPORTS}
"""
PARSED = """\
parser = argparse.ArgumentParser()
parser.add_argument("--name", default="narrow")
args = parser.parse_args()
torch.manual_seed(3)
"""
PARSING = "def parse():\n" + "".join(f"    {line}\n" for line in PARSED.splitlines()) + "    return args\n"
TRAINERS = f"""\
{IMPORTS}
from models import Narrow, Wide


{FIT}

class Trainer:
    model = Narrow

    def __init__(self, rate=0.1):
        self.rate = rate

    def run(self):
        fit(self.model(), self.rate)


class WideTrainer(Trainer):
    model = Wide
"""


def script(body: str, files: dict[str, str] | None = None, **more: object) -> Form:
    """A program in ``run.py``, beside ``models.py`` and ``trainers.py``."""
    return Form(
        {"models.py": MODELS, "trainers.py": TRAINERS, **(files or {}), "run.py": body},
        asked=("run.py",),
        **more,
    )


def chosen(
    expression: str, imports: str = "from trainers import Trainer, WideTrainer", head: str = ""
) -> Form:
    """A program whose trainer an expression chooses."""
    return script(
        f"import argparse\n\nimport torch\n\n{imports}\n\n{head}\n{PARSED}trainer = {expression}()\ntrainer.run()\n"
    )


def model(expression: str, imports: str = "from models import Narrow, Wide", head: str = "") -> Form:
    """A program whose model an expression chooses."""
    return script(f"{HEAD}{imports}\n\n\n{FIT}\n\n{head}{PARSED}fit({expression}())\n")


LOOKED_UP = {
    "a dictionary": '{"narrow": Trainer, "wide": WideTrainer}[args.name]',
    "a dictionary's get": '{"narrow": Trainer, "wide": WideTrainer}.get(args.name, Trainer)',
    "dict()": "dict(narrow=Trainer, wide=WideTrainer)[args.name]",
    "globals": 'globals()[args.name.replace("narrow", "Trainer")]',
    "globals, get": 'globals().get(args.name.replace("narrow", "Trainer"))',
    "eval": 'eval(args.name.replace("narrow", "Trainer"))',
    "eval of a pattern": 'eval(f"{args.name[6:]}Trainer")',
    "the module of this name": 'sys.modules[__name__].__dict__[args.name.replace("narrow", "Trainer")]',
    "getattr of the module of this name": 'getattr(sys.modules[__name__], args.name.replace("narrow", "Trainer"))',
    "locals": 'locals()[args.name.replace("narrow", "Trainer")]',
}
BY_NAME = {
    **{
        name: chosen(it, "import sys\n\nfrom trainers import Trainer, WideTrainer")
        for name, it in LOOKED_UP.items()
    },
    "getattr of a module": chosen(
        'getattr(trainers, args.name.replace("narrow", "Trainer"))', "import trainers"
    ),
    "vars of a module": chosen('vars(trainers)[args.name.replace("narrow", "Trainer")]', "import trainers"),
    "__dict__ of a module": chosen(
        'trainers.__dict__[args.name.replace("narrow", "Trainer")]', "import trainers"
    ),
    "import_module": chosen('importlib.import_module("trainers").Trainer', "import importlib"),
    "a table of names": chosen(
        "getattr(trainers, NAMES[args.name])",
        "import trainers",
        'NAMES = {"narrow": "Trainer", "wide": "WideTrainer"}\n',
    ),
    "a dictionary by loop": chosen(
        "TABLE[args.name]",
        head="TABLE = {}\nfor name, cls in [('narrow', Trainer), ('wide', WideTrainer)]:\n    TABLE[name] = cls\n",
    ),
    "a dictionary by update": chosen(
        "TABLE[args.name]", head='TABLE = dict()\nTABLE.update({"narrow": Trainer, "wide": WideTrainer})\n'
    ),
    "a list of pairs": chosen(
        "dict(TABLE)[args.name]", head='TABLE = [("narrow", Trainer), ("wide", WideTrainer)]\n'
    ),
    "a comprehension": chosen(
        "{it.__name__: it for it in (Trainer, WideTrainer)}[args.name.replace('narrow', 'Trainer')]"
    ),
    "next of a generator": chosen(
        "next(it for it in (Trainer, WideTrainer) if it.__name__.lower().startswith(args.name[6:]))"
    ),
    "a function that looks up": chosen(
        "find(args.name)",
        head='def find(name):\n    table = {"narrow": Trainer, "wide": WideTrainer}\n    if name not in table:\n'
        "        raise ValueError(name)\n    return table[name]\n\n\n",
    ),
    "an attribute of an enumeration": chosen(
        "Kind[args.name].value",
        "from enum import Enum\n\nfrom trainers import Trainer, WideTrainer",
        "class Kind(Enum):\n    narrow = Trainer\n    wide = WideTrainer\n\n\n",
    ),
    "partial": chosen(
        '{"narrow": partial(Trainer, rate=0.2), "wide": partial(WideTrainer, 0.3)}[args.name]',
        "from functools import partial\n\nfrom trainers import Trainer, WideTrainer",
    ),
    "lambdas": chosen('{"narrow": lambda: Trainer(0.2), "wide": lambda: WideTrainer()}[args.name]'),
    "subclasses": chosen(
        "{it.__name__: it for it in [Trainer, *Trainer.__subclasses__()]}['Trainer']",
    ),
    "a model of a dictionary": model('{"narrow": Narrow, "wide": Wide}[args.name]'),
    "a model of globals": model("globals()[args.name.capitalize()]"),
    "a model of eval": model("eval(args.name.capitalize())"),
    "a model of getattr": model("getattr(models, args.name.capitalize())", "import models"),
    "a model of __dict__": model("models.__dict__[args.name.capitalize()]", "import models"),
    "a function by its name": script(
        f"{HEAD}from models import Narrow\n\n\n{FIT}\n\ndef train(args):\n    fit(Narrow())\n\n\ndef test(args):\n"
        f'    pass\n\n\n{PARSED.replace("narrow", "train")}globals()[args.name](args)\n'
    ),
    "a function of a dictionary": script(
        f"{HEAD}from models import Narrow\n\n\n{FIT}\n\ndef train(args):\n    fit(Narrow())\n\n\ndef test(args):\n"
        f'    pass\n\n\n{PARSED.replace("narrow", "train")}{{"train": train, "test": test}}[args.name](args)\n'
    ),
    "a method by its name": script(
        f"{HEAD}from models import Narrow\n\n\n{FIT}\n\nclass Runner:\n    def run_train(self):\n        fit(Narrow())\n\n"
        "    def run_test(self):\n        pass\n\n    def run(self, name):\n"
        f'        getattr(self, f"run_{{name}}")()\n\n\n{PARSED.replace("narrow", "train")}Runner().run(args.name)\n'
    ),
    "a method by an option": script(
        f"{HEAD}from models import Narrow\n\n\n{FIT}\n\nclass Runner:\n    def train(self):\n        fit(Narrow())\n\n"
        f'    def test(self):\n        pass\n\n\n{PARSED.replace("narrow", "train")}getattr(Runner(), args.name)()\n'
    ),
    "set_defaults of a subparser": script(
        f"{HEAD}from models import Narrow\n\n\n{FIT}\n\ndef train(args):\n    torch.manual_seed(3)\n    fit(Narrow())\n\n\n"
        "def test(args):\n    pass\n\n\nparser = argparse.ArgumentParser()\ncommands = parser.add_subparsers()\n"
        'command = commands.add_parser("train")\ncommand.set_defaults(func=train)\n'
        'commands.add_parser("test").set_defaults(func=test)\nargs = parser.parse_args()\nargs.func(args)\n',
        arguments=("train",),
    ),
}

REGISTRY = """\
class Registry:
    def __init__(self, name):
        self._name = name
        self._parts = dict()

    def get(self, key):
        if key not in self._parts:
            raise KeyError(f"{key} is not in {self._name}")
        return self._parts[key]

    def _register(self, cls, name=None):
        name = cls.__name__ if name is None else name
        if name in self._parts:
            raise KeyError(name)
        self._parts[name] = cls

    def register_module(self, name=None, module=None):
        if module is not None:
            self._register(module, name)
            return module

        def _decorated(cls):
            self._register(cls, name)
            return cls

        return _decorated


def build_from_cfg(cfg, registry, default=None):
    args = dict(cfg)
    kind = args.pop("type")
    if isinstance(kind, str):
        cls = registry.get(kind)
    else:
        cls = kind
    if default is not None:
        for name, value in default.items():
            args.setdefault(name, value)
    return cls(**args)
"""
BUILDER = """\
from registry import Registry, build_from_cfg

MODELS = Registry("model")
DATASETS = Registry("dataset")
TRAINERS = Registry("trainer")


def build_model(cfg):
    return build_from_cfg(cfg, MODELS)


def build_dataset(cfg, default=None):
    return build_from_cfg(cfg, DATASETS, default)


def build_trainer(cfg, **more):
    return build_from_cfg(cfg, TRAINERS, more)
"""
REGISTERED = {
    "registry.py": REGISTRY,
    "builder.py": BUILDER,
    "networks.py": MODELS.replace(
        "from torch import nn\n", "from torch import nn\n\nfrom builder import MODELS\n"
    ).replace("class ", "@MODELS.register_module()\nclass "),
    "datasets.py": """\
import torch
from torch.utils.data import Dataset

from builder import DATASETS


@DATASETS.register_module()
class Noise(Dataset):
    def __init__(self, size, classes=2):
        self.inputs, self.targets = torch.randn(size, 8), torch.randint(classes, (size,))

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return self.inputs[index], self.targets[index]


@DATASETS.register_module(name="Less")
class Fewer(Noise):
    def __init__(self, size):
        super().__init__(size // 2)
""",
    "trainer.py": """\
import torch
from builder import TRAINERS, build_dataset, build_model
from torch import nn
from torch.utils.data import DataLoader


@TRAINERS.register_module()
class Trainer:
    def __init__(self, rate, epochs, model=None, data=None):
        self.rate, self.epochs = rate, epochs
        self.loader = DataLoader(build_dataset(data), batch_size=16, shuffle=False)
        self.model = nn.DataParallel(build_model(model))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=rate)

    def step(self, inputs, targets):
        loss = nn.functional.cross_entropy(self.model(inputs), targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def run(self):
        for epoch in range(self.epochs):
            for inputs, targets in self.loader:
                self.step(inputs, targets)
            print("epoch", epoch)
        torch.save(self.model.state_dict(), "weights.pt")
""",
}
CONFIG = """\
CONFIG = dict(
    model=dict(type="Narrow"),
    data=dict(type="Noise", size=64),
    trainer=dict(type="Trainer", rate=0.1, epochs=2),
)
"""


def registered(head: str, use: str, decorator: str) -> Form:
    """A program whose trainer registers itself."""
    trainers = TRAINERS.replace("class Trainer:", f"{decorator.format('narrow')}\nclass Trainer:").replace(
        "class WideTrainer", f"{decorator.format('wide')}\nclass WideTrainer"
    )
    return script(
        f"import argparse\n\nimport torch\nimport trainers\nfrom registry import *\n\n{PARSED}trainer = {use}()\ntrainer.run()\n",
        {
            "registry.py": head,
            "trainers.py": trainers.replace("import torch\n", "from registry import *\nimport torch\n", 1),
        },
    )


REGISTRIES = {
    "a function that registers": registered(
        "TABLE = {}\n\n\ndef register(name):\n    def wrapper(cls):\n        TABLE[name] = cls\n        return cls\n\n"
        "    return wrapper\n",
        "TABLE[args.name]",
        '@register("{}")',
    ),
    "a function that registers by the class": registered(
        "TABLE = {}\n\n\ndef register(cls):\n    TABLE[cls.__name__] = cls\n    return cls\n",
        'TABLE["Trainer"]',
        "@register",
    ),
    "a registry that is a dictionary": registered(
        "class Registry(dict):\n    def register(self, name):\n        def add(cls):\n            self[name] = cls\n"
        "            return cls\n\n        return add\n\n\nTABLE = Registry()\n",
        "TABLE[args.name]",
        '@TABLE.register("{}")',
    ),
    "a class of class methods": registered(
        "class Registry:\n    table = {}\n\n    @classmethod\n    def register(cls, name):\n        def add(part):\n"
        "            cls.table[name] = part\n            return part\n\n        return add\n\n    @classmethod\n"
        "    def get(cls, name):\n        return cls.table[name]\n",
        "Registry.get(args.name)",
        '@Registry.register("{}")',
    ),
    "a static method": registered(
        "class Registry:\n    table = {}\n\n    @staticmethod\n    def register(name):\n        def add(part):\n"
        "            Registry.table[name] = part\n            return part\n\n        return add\n\n    @staticmethod\n"
        "    def get(name):\n        return Registry.table.get(name)\n",
        "Registry.get(args.name)",
        '@Registry.register("{}")',
    ),
    "an object that is called": registered(
        "class Registry:\n    def __init__(self):\n        self.parts = {}\n\n    def __call__(self, name):\n"
        "        def add(part):\n            self.parts[name] = part\n            return part\n\n        return add\n\n"
        "    def __getitem__(self, name):\n        return self.parts[name]\n\n\nTABLE = Registry()\n",
        "TABLE[args.name]",
        '@TABLE("{}")',
    ),
    "a decorator that is an object": registered(
        "TABLE = {}\n\n\nclass register:\n    def __init__(self, name):\n        self.name = name\n\n"
        "    def __call__(self, part):\n        TABLE[self.name] = part\n        return part\n",
        "TABLE[args.name]",
        '@register("{}")',
    ),
    "setattr": registered(
        "class Parts:\n    pass\n\n\nTABLE = Parts()\n\n\ndef register(name):\n    def add(part):\n"
        "        setattr(TABLE, name, part)\n        return part\n\n    return add\n",
        "getattr(TABLE, args.name)",
        '@register("{}")',
    ),
    "a list": registered(
        "TABLE = []\n\n\ndef register(name):\n    def add(part):\n        TABLE.append((name, part))\n"
        "        return part\n\n    return add\n",
        "next(part for name, part in TABLE if name == args.name)",
        '@register("{}")',
    ),
    "a wrapped decorator": registered(
        "import functools\n\nTABLE = {}\n\n\ndef add(part, name):\n    TABLE.setdefault(name, part)\n    return part\n\n\n"
        "def register(name):\n    return functools.partial(add, name=name)\n",
        "TABLE[args.name]",
        '@register("{}")',
    ),
    "subclasses that register": script(
        "import argparse\n\nimport torch\nfrom trainers import Trainer, TABLE\n\n"
        f"{PARSED}trainer = TABLE[args.name]()\ntrainer.run()\n",
        {
            "trainers.py": TRAINERS.replace(
                "class Trainer:",
                "TABLE = {}\n\n\nclass Part:\n    def __init_subclass__(cls, **more):\n        super().__init_subclass__(**more)\n"
                "        TABLE[cls.__name__.replace('Trainer', '').lower() or 'narrow'] = cls\n\n\nclass Trainer(Part):",
            )
        },
    ),
    "a registry with a builder": script(
        f"import torch\nimport datasets\nimport networks\nimport trainer\nfrom builder import build_trainer\n\n{CONFIG}\n\n"
        'def main():\n    torch.manual_seed(3)\n    built = build_trainer(CONFIG["trainer"], model=CONFIG["model"], '
        'data=CONFIG["data"])\n    built.run()\n\n\nif __name__ == "__main__":\n    main()\n',
        REGISTERED,
    ),
}


def imported(
    expression: str, files: dict[str, str] | None = None, head: str = "import importlib\n", use: str = ""
) -> Form:
    """A program that imports its trainer by name."""
    parts = {
        "parts/__init__.py": "",
        "parts/models.py": MODELS,
        "parts/narrow_trainer.py": TRAINERS.replace("from models", "from .models"),
        "parts/wide_trainer.py": "from .narrow_trainer import WideTrainer as Trainer\n",
        **(files or {}),
    }
    use = use or "module.Trainer().run()"
    return script(f"import argparse\n{head}\nimport torch\n\n{PARSED}module = {expression}\n{use}\n", parts)


FIND = """\
import importlib

def find(name):
    filename = "parts." + name + "_trainer"
    module = importlib.import_module(filename)
    found = None
    target = name.replace("narrow", "") + "trainer"
    for key, cls in module.__dict__.items():
        if key.lower() == target.lower() and isinstance(cls, type):
            found = cls
    if found is None:
        raise ImportError(filename)
    return found


def create(name, *more):
    instance = find(name)(*more)
    print(type(instance).__name__)
    return instance
"""
LOADED = """\
import importlib.util

def load(path):
    spec = importlib.util.spec_from_file_location("trainer", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

"""
IMPORTED = {
    "a constant": imported('importlib.import_module("parts.narrow_trainer")'),
    "an f-string": imported('importlib.import_module(f"parts.{args.name}_trainer")'),
    "a sum": imported('importlib.import_module("parts." + args.name + "_trainer")'),
    "format": imported('importlib.import_module("parts.{}_trainer".format(args.name))'),
    "per cent": imported('importlib.import_module("parts.%s_trainer" % args.name)'),
    "join": imported('importlib.import_module(".".join(["parts", args.name + "_trainer"]))'),
    "relative": imported('importlib.import_module(f".{args.name}_trainer", package="parts")'),
    "any of a folder on the path": imported(
        "chosen(args.name)",
        {"parts/narrow.py": TRAINERS},
        head="import importlib\nimport os\nimport sys\n\nHERE = os.path.dirname(os.path.abspath(__file__))\n"
        'sys.path.append(os.path.join(HERE, "parts"))\n\n\ndef chosen(name):\n'
        "    return importlib.import_module(name)\n\n",
    ),
    "__import__": imported('__import__(f"parts.{args.name}_trainer", fromlist=["Trainer"])'),
    "__import__ of a package": imported(
        '__import__(f"parts.{args.name}_trainer")',
        use='getattr(module, f"{args.name}_trainer").Trainer().run()',
    ),
    "a name of a constant": imported(
        "importlib.import_module(name)", head='import importlib\n\nname = "parts.narrow_trainer"\n'
    ),
    "a class of it by name": imported(
        'getattr(importlib.import_module(f"parts.{args.name}_trainer"), args.name.replace("narrow", "Trainer"))',
        use="module().run()",
    ),
    "a function that finds": imported("create(args.name)", head=FIND, use="module.run()"),
    "a function in the package": imported(
        "parts.create(args.name)",
        {"parts/__init__.py": FIND.replace('"parts." + name', '__name__ + "." + name')},
        head="import parts\n",
        use="module.run()",
    ),
    "all modules of a folder": imported(
        'TABLE["Trainer"]()',
        {
            "parts/__init__.py": "import importlib\nimport os\n\nTABLE = {}\n\n\ndef register(cls):\n"
            "    TABLE[cls.__name__] = cls\n    return cls\n\n\nfor file in sorted(os.listdir(os.path.dirname(__file__))):\n"
            '    if file.endswith("_trainer.py"):\n        importlib.import_module("parts." + file[: file.find(".py")])\n',
            "parts/narrow_trainer.py": TRAINERS.replace(
                "from models", "from . import register\nfrom .models"
            ).replace("class Trainer", "@register\nclass Trainer"),
        },
        head="from parts import TABLE\n",
        use="module.run()",
    ),
    "pkgutil": imported(
        'TABLE["Trainer"]()',
        {
            "parts/__init__.py": "import importlib\nimport pkgutil\n\nTABLE = {}\n\n\ndef register(cls):\n"
            "    TABLE[cls.__name__] = cls\n    return cls\n\n\nfor _, name, _ in pkgutil.iter_modules(__path__):\n"
            '    importlib.import_module(f"{__name__}.{name}")\n',
            "parts/narrow_trainer.py": TRAINERS.replace(
                "from models", "from . import register\nfrom .models"
            ).replace("class Trainer", "@register\nclass Trainer"),
        },
        head="from parts import TABLE\n",
        use="module.run()",
    ),
    "exec": imported(
        "None", use='exec("from parts.{}_trainer import Trainer".format(args.name))\nTrainer().run()', head=""
    ),
    "exec of all": imported(
        "None", use='exec(f"from parts.{args.name}_trainer import *")\nTrainer().run()', head=""
    ),
    "all of a package": imported(
        "None",
        {
            "parts/__init__.py": "import glob\nimport os\n\nFILES = glob.glob(os.path.join(os.path.dirname(__file__), '*.py'))\n"
            "__all__ = [os.path.basename(it)[:-3] for it in FILES if not it.endswith('__init__.py')]\n",
            "parts/table.py": "TABLE = {}\n\n\ndef register(cls):\n    TABLE[cls.__name__] = cls\n    return cls\n",
            "parts/narrow_trainer.py": TRAINERS.replace(
                "from models", "from .table import register\nfrom .models"
            ).replace("class Trainer", "@register\nclass Trainer"),
        },
        head="from parts import *\nfrom parts.table import TABLE\n",
        use='TABLE["Trainer"]().run()',
    ),
    "a file": imported('load("parts/trainer.py")', {"parts/trainer.py": TRAINERS}, head=LOADED),
    "a file in a folder": imported(
        'load(os.path.join(os.path.dirname(__file__), "parts", args.name + ".py"))',
        {"parts/narrow.py": TRAINERS},
        head="import os\n" + LOADED,
    ),
    "a loader of files": imported(
        'SourceFileLoader("trainer", "parts/trainer.py").load_module()',
        {"parts/trainer.py": TRAINERS},
        head="from importlib.machinery import SourceFileLoader\n",
    ),
    "the text of a file": script(
        'exec(open("train.py").read())\n',
        {
            "train.py": f"{IMPORTS}\nfrom models import Narrow\n\n\n{FIT}\n\ntorch.manual_seed(3)\nfit(Narrow())\n",
        },
    ),
    "runpy": script(
        "import runpy\nimport sys\n\nsys.argv = ['train.py']\nrunpy.run_path('train.py', run_name='__main__')\n",
        {
            "train.py": f"{IMPORTS}\nfrom models import Narrow\n\n\n{FIT}\n\nif __name__ == '__main__':\n    torch.manual_seed(3)\n    fit(Narrow())\n"
        },
    ),
}


# Programs whose main function is given to something that parses options and calls it.

MAIN = f"""\
{IMPORTS}from models import Narrow

{{head}}

{FIT}

{{decorator}}def main({{parameters}}):
    torch.manual_seed(3)
    fit(Narrow(), {{rate}})


{{end}}"""
GUARD = 'if __name__ == "__main__":\n    {}\n'


def main(
    head: str,
    end: str,
    decorator: str = "",
    parameters: str = "rate=0.1",
    rate: str = "rate",
    arguments: tuple[str, ...] = (),
) -> Form:
    """A program whose main function is decorated, or handed over."""
    text = MAIN.format(
        head=head, end=GUARD.format(end) if end else "", decorator=decorator, parameters=parameters, rate=rate
    )
    return script(text, arguments=arguments)


MAINS = {
    "fire": main("import fire", "fire.Fire(main)"),
    "fire of a dictionary": main("from fire import Fire", 'Fire({"train": main})'),
    "fire of a class": main(
        "import fire",
        "fire.Fire(Runner)",
        decorator="class Runner:\n    def train(self):\n        main()\n\n\n",
    ),
    "fire of all": main("import fire", "fire.Fire()"),
    "typer": main("import typer", "typer.run(main)"),
    "a typer application": main("import typer\n\napp = typer.Typer()", "app()", "@app.command()\n"),
    "absl": main(
        "from absl import app, flags\n\nFLAGS = flags.FLAGS\nflags.DEFINE_float('rate', 0.1, 'step')",
        "app.run(main)",
        parameters="argv",
        rate="FLAGS.rate",
    ),
    "click": main(
        "import click", "main()", '@click.command()\n@click.option("--rate", default=0.1)\n', "rate"
    ),
    "a click group": main(
        "import click\n\n\n@click.group()\ndef cli():\n    pass\n",
        "cli()",
        '@cli.command("train")\n',
        arguments=("train",),
    ),
    "a click group that is told": main(
        "import click\n\n\n@click.group()\ndef cli():\n    pass\n",
        "cli.add_command(main)\n    cli()",
        decorator="@click.command()\n",
        arguments=("main",),
    ),
    "starred arguments": main("import sys", "main(*sys.argv[1:])", parameters="rate=0.1", rate="float(rate)"),
    "hydra": main(
        "import hydra", "main()", '@hydra.main(config_path="conf", config_name="config")\n', "cfg", "cfg.rate"
    ),
    "tyro": main("import tyro", "tyro.cli(main)"),
    "jsonargparse": main("from jsonargparse import CLI", "CLI(main)"),
    "plac": main("import plac", "plac.call(main)"),
    "sacred": main("from sacred import Experiment\n\nex = Experiment('x')", "", "@ex.automain\n"),
    "sacred's run": main(
        "from sacred import Experiment\n\nex = Experiment('x')", "ex.run_commandline()", "@ex.main\n"
    ),
    "a decorator of the project": main(
        "import functools\n\n\ndef timed(function):\n    @functools.wraps(function)\n    def wrapper(*args, **more):\n"
        "        print('start')\n        return function(*args, **more)\n\n    return wrapper\n",
        "main()",
        "@timed\n",
    ),
    "an entry point of an application": Form(
        {
            **PACKAGE,
            "pkg/cli.py": CLI.replace("import argparse\n", "import argparse\n\nimport typer\n").replace(
                "def main", "app = typer.Typer()\n\n\n@app.command()\ndef main"
            ),
            "pyproject.toml": '[project]\nname = "pkg"\n\n[project.scripts]\ntrain = "pkg.cli:app"\n',
        }
    ),
    "two commands of an application": Form(
        {
            **PACKAGE,
            "pkg/cli.py": CLI.replace("import argparse\n", "import argparse\n\nimport typer\n").replace(
                "def main",
                "app = typer.Typer()\n\n\n@app.command()\ndef more():\n    fit(Narrow(), 0.2)\n\n\n"
                "@app.command()\ndef main",
            ),
            "pyproject.toml": '[project]\nname = "pkg"\n\n[project.scripts]\ntrain = "pkg.cli:app"\n',
        }
    ),
}
OPTIONS = {
    "EasyDict": (
        "from easydict import EasyDict as edict",
        'edict({"rate": 0.1, "gpus": [0, 1], "parallel": True})',
    ),
    "Munch": ("from munch import Munch", "Munch(rate=0.1, gpus=[0, 1], parallel=True)"),
    "addict": ("from addict import Dict", "Dict(rate=0.1, gpus=[0, 1], parallel=True)"),
    "SimpleNamespace": (
        "from types import SimpleNamespace",
        "SimpleNamespace(rate=0.1, gpus=[0, 1], parallel=True)",
    ),
    "Namespace": ("from argparse import Namespace", "Namespace(rate=0.1, gpus=[0, 1], parallel=True)"),
    "omegaconf": ("from omegaconf import OmegaConf", 'OmegaConf.load("config.yaml")'),
    "yacs": (
        "from yacs.config import CfgNode as CN",
        "CN()\nargs.rate = 0.1\nargs.gpus = [0, 1]\nargs.parallel = True",
    ),
    "yaml": ("import yaml\nfrom easydict import EasyDict", 'EasyDict(yaml.safe_load(open("config.yaml")))'),
    "a dataclass": (
        "from dataclasses import dataclass, field\n\n\n@dataclass\nclass Options:\n    rate: float = 0.1\n"
        "    gpus: list = field(default_factory=lambda: [0, 1])\n    parallel: bool = True\n",
        "Options()",
    ),
    "a class": ("class Options:\n    rate = 0.1\n    gpus = [0, 1]\n    parallel = True\n", "Options()"),
    "a class of dictionaries": (
        "class Options(dict):\n    def __getattr__(self, name):\n        return self[name]\n",
        'Options({"rate": 0.1, "gpus": [0, 1], "parallel": True})',
    ),
    "a class that takes what it is given": (
        "class Options:\n    def __init__(self, **more):\n        for name, value in more.items():\n"
        "            setattr(self, name, value)\n",
        "Options(rate=0.1, gpus=[0, 1], parallel=True)",
    ),
    "a class whose names are given": (
        "class Options:\n    def __init__(self, given):\n        self.__dict__.update(given)\n",
        "Options(dict(rate=0.1, gpus=[0, 1], parallel=True))",
    ),
    "a module": ("import options", "options"),
    "a dictionary": ("", "dict(rate=0.1, gpus=[0, 1], parallel=True)"),
}
CONFIGURED = {
    name: script(
        f"{IMPORTS}from models import Narrow\n\n{imports}\n\n\n"
        + FIT.replace("rate=0.1", "args")
        .replace("=rate", '=args["rate"]' if name == "a dictionary" else "=args.rate")
        .replace(
            "    model = nn.DataParallel(model)\n",
            "    if {}:\n        model = nn.DataParallel(model, device_ids={})\n".format(
                *(
                    ('args["parallel"]', 'args["gpus"]')
                    if name == "a dictionary"
                    else ("args.parallel", "args.gpus")
                )
            ),
        )
        + f"\n\nargs = {made}\ntorch.manual_seed(3)\nfit(Narrow(), args)\n",
        {"options.py": "rate = 0.1\ngpus = [0, 1]\nparallel = True\n"},
    )
    for name, (imports, made) in OPTIONS.items()
}


def reached(end: str, files: dict[str, str] | None = None) -> Form:
    """A program that comes to its main function in some way."""
    text = MAIN.format(head="import sys", end="", decorator="", parameters="*given", rate="0.1")
    return script(f"{text.rstrip()}\n\n\n{end}\n", files)


TRAIN = MAIN.format(head="", end=GUARD.format("main()"), decorator="", parameters="rate=0.1", rate="rate")
REACHED = {
    "a condition in an expression": reached('main() if __name__ == "__main__" else None'),
    "the text of a call": reached('exec("main()")'),
    "a profiler": reached('import cProfile\nimport os\n\ncProfile.run("main()", os.devnull)'),
    "a thread": reached(
        "import threading\n\nthread = threading.Thread(target=main)\nthread.start()\nthread.join()"
    ),
    "a thread of a method": reached(
        "import threading\n\n\nclass Run:\n    def start(self, count):\n        self.work(count)\n\n"
        "    def work(self, count):\n        main(count)\n\n\nclass Job:\n    def __init__(self):\n        self.run = Run()\n\n"
        "    def begin(self):\n        thread = threading.Thread(target=self.run.start, args=(1,))\n        thread.start()\n        thread.join()\n\n\nJob().begin()"
    ),
    "a context": reached(
        "class Run:\n    def __enter__(self):\n        main()\n\n    def __exit__(self, *error):\n        pass\n\n\n"
        "with Run():\n    pass"
    ),
    "a property": reached(
        "class Run:\n    @property\n    def result(self):\n        return main()\n\n\nRun().result"
    ),
    "an iterator": reached(
        "class Run:\n    def __iter__(self):\n        main()\n        yield 1\n\n\nfor step in Run():\n    pass"
    ),
    "enumerate": reached("for number, step in enumerate([main]):\n    step()"),
    "zip": reached('for name, step in zip(["train"], [main]):\n    step()'),
    "items": reached('for name, step in {"train": main}.items():\n    step()'),
    "a dataclass": reached(
        "from dataclasses import dataclass\n\n\n@dataclass\nclass Step:\n    name: str\n    run: object\n\n\n"
        'Step("train", main).run()'
    ),
    "after a dataclass is made": reached(
        "from dataclasses import dataclass\n\n\n@dataclass\nclass Run:\n    rate: float = 0.1\n\n"
        "    def __post_init__(self):\n        main()\n\n\nRun()"
    ),
    "a decorator that calls": reached(
        "def start(function):\n    function()\n    return function\n\n\n@start\ndef run():\n    main()"
    ),
    "a class method": reached(
        "class Base:\n    @classmethod\n    def start(cls):\n        cls().run()\n\n\n"
        "class Run(Base):\n    def run(self):\n        main()\n\n\nRun.start()"
    ),
    "a command": script('import os\n\nos.system("python train.py --rate 1")\n', {"train.py": TRAIN}),
    "a subprocess": script(
        'import subprocess\nimport sys\n\nsubprocess.run([sys.executable, "train.py"], check=True)\n',
        {"train.py": TRAIN},
    ),
}
