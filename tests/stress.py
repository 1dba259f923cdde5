"""Programs of unusual size and shape, made by rules: each trains, and none of it is anybody's code."""

from __future__ import annotations

from collections.abc import Callable

TRAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
{imports}

{before}

def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    model = nn.DataParallel({model}).cuda()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs.cuda()), targets.cuda())
            loss.backward()
            optimizer.step()
{within}


if __name__ == "__main__":
    main()
"""


def train(before: str = "", within: str = "", model: str = "nn.Linear(8, 2)", imports: str = "") -> str:
    """A training program with code before its main function, within its loop, and a model."""
    inside = "".join(f"            {line}\n" for line in within.splitlines())
    return TRAIN.format(before=before, within=inside.rstrip("\n"), model=model, imports=imports)


def _elifs(count: int) -> dict[str, str]:
    branches = "".join(f"    elif name == 'n{it}':\n        value = {it} + value\n" for it in range(count))
    chosen = (
        f"def chosen(name):\n    value = 0\n    if name == '':\n        pass\n{branches}    return value\n\n"
    )
    return {"train.py": train(chosen, "scale = chosen('n3')")}


def _elif_calls(count: int) -> dict[str, str]:
    """A factory of models, as people write them, only longer."""
    branches = "".join(
        f"    elif name == 'n{it}':\n        net = nn.Sequential(nn.Linear(8, {it + 1}), nn.Linear({it + 1}, 2))\n"
        for it in range(count)
    )
    made = f"def make(name):\n    if name == '':\n        net = nn.Linear(8, 2)\n{branches}    return net\n\n"
    return {"train.py": train(made, model="make('n7')")}


def _sum(count: int) -> dict[str, str]:
    terms = " + ".join(["loss"] * count)
    return {"train.py": train(within=f"total = {terms}")}


def _trained_sum(count: int) -> dict[str, str]:
    text = train().replace("loss = criterion(", "loss = " + "0.0 * inputs.sum() + " * count + "criterion(")
    return {"train.py": text}


def _strings(count: int) -> dict[str, str]:
    return {"train.py": train("TEXT = (" + "\n    + ".join(f"'{it}'" for it in range(count)) + ")\n")}


def _methods(count: int) -> dict[str, str]:
    return {"train.py": train(within="hot = inputs" + ".float()" * count)}


def _builder(count: int) -> dict[str, str]:
    builder = "class Builder:\n    def add(self, it):\n        return self\n\n"
    return {
        "train.py": train(builder, within="built = Builder()" + "".join(f".add({it})" for it in range(count)))
    }


def _nested_calls(count: int) -> dict[str, str]:
    return {
        "train.py": train(
            "def same(x):\n    return x\n\n", within="y = " + "same(" * count + "loss" + ")" * count
        )
    }


def _nested_functions(count: int) -> dict[str, str]:
    lines = [f"{'    ' * it}def f{it}(x):" for it in range(count)] + [f"{'    ' * count}return x"]
    lines += [f"{'    ' * it}return f{it}(x)" for it in range(count - 1, 0, -1)]
    return {"train.py": train("\n".join(lines) + "\n\n", "loss = f0(loss)")}


def _dictionary(count: int) -> dict[str, str]:
    entries = "".join(f"    'key{it}': {it},\n" for it in range(count))
    return {"train.py": train(f"TABLE = {{\n{entries}}}\n\n", "scale = TABLE['key3']")}


def _dictionary_of_calls(count: int) -> dict[str, str]:
    entries = "".join(f"    'key{it}': nn.Linear(8, {it + 1}),\n" for it in range(count))
    return {"train.py": train(f"TABLE = {{\n{entries}}}\n\n", model="TABLE['key1']")}


def _long(count: int) -> dict[str, str]:
    functions = "".join(
        f"def step{it}(x, y):\n    z = x + y\n    if z > {it}:\n        z = step{max(it - 1, 0)}(z, y)\n    return z * 2\n\n\n"
        for it in range(count // 7)
    )
    return {"train.py": train(functions, f"size = step{count // 7 - 1}(1, 2)")}


def _flat(count: int) -> dict[str, str]:
    """One long main function, unrolled by a machine."""
    lines = "\n".join(f"a{it % 50} = a{(it + 1) % 50} + {it}" for it in range(count))
    return {"train.py": train("\n".join(f"a{it} = {it}" for it in range(50)) + f"\n{lines}\n\n")}


def _reassigned(count: int) -> dict[str, str]:
    return {"train.py": train(within="x = loss.item()\n" + "x = x * 0.9 + 1\n" * count + "print(x)")}


def _holding_each_other(count: int) -> dict[str, str]:
    classes = "".join(
        f"class C{it}:\n    def __init__(self, other=None):\n        self.other = C{(it + 1) % count}(self)\n"
        f"        self.back = other\n\n    def step(self, x):\n        return self.other.step(self.back.step(x))\n\n\n"
        for it in range(count)
    )
    return {"train.py": train(classes, "C0().step(loss)")}


def _modules_in_a_circle(count: int) -> dict[str, str]:
    classes = "".join(
        f"class M{it}(nn.Module):\n    def __init__(self, other=None):\n        super().__init__()\n"
        f"        self.own = nn.Linear(8, 8)\n        self.other = other or M{(it + 1) % count}(self)\n\n"
        f"    def forward(self, x):\n        return self.other(self.own(x))\n\n\n"
        for it in range(count)
    )
    return {"train.py": train(classes, model="M0()")}


def _children(count: int) -> dict[str, str]:
    net = (
        "class Tree(nn.Module):\n    def __init__(self, depth):\n        super().__init__()\n"
        "        self.nodes = nn.ModuleList([Tree(depth - 1) for _ in range(depth)])\n        self.leaf = nn.Linear(8, 8)\n\n"
        "    def forward(self, x):\n        for child in self.children():\n            x = child(x)\n"
        "        for node in self.nodes:\n            x = node(x) + self(x)\n        return self.leaf(x)\n\n\n"
    )
    return {"train.py": train(net, model="Tree(3)")}


def _recursive(count: int) -> dict[str, str]:
    text = (
        "def freeze(model, depth=0):\n    for child in model.children():\n        freeze(child, depth + 1)\n    return model\n\n\n"
        "def even(model, n):\n    return model if n == 0 else odd(model, n - 1)\n\n\n"
        "def odd(model, n):\n    return nn.DataParallel(model) if n > 9 else even(nn.Sequential(model), n - 1)\n\n\n"
    )
    return {"train.py": train(text, "even(model, 4)", model="freeze(even(nn.Linear(8, 2), 3))")}


def _mutual(count: int) -> dict[str, str]:
    files = {"train.py": train(imports="from part0 import visit0", within="visit0(model, loss)")}
    for it in range(count):
        after = (it + 1) % count
        files[f"part{it}.py"] = (
            f"import torch\n\n\ndef visit{it}(model, x, seen=()):\n    from part{after} import visit{after}\n\n"
            f"    held = [model, *seen]\n    if x is None:\n        return held\n    return visit{after}(model, x, held)\n"
        )
    return files


def _import_circle(count: int) -> dict[str, str]:
    files = {"train.py": train(imports="from part0 import *", model="Net0()")}
    for it in range(count):
        files[f"part{it}.py"] = (
            f"from torch import nn\nfrom part{(it + 1) % count} import *\n\n\nclass Net{it}(nn.Module):\n"
            f"    def __init__(self):\n        super().__init__()\n        self.inner = nn.Linear(8, 2)\n\n"
            "    def forward(self, x):\n        return self.inner(x)\n"
        )
    return files


def _project(count: int) -> dict[str, str]:
    """A project of so many files: models by their names, layers that others inherit, helpers that call each other."""
    files = {
        "train.py": train(
            imports="from models import make\nfrom utils.tools0 import tool0",
            model="make('net3')",
            within="tool0(loss)",
        ),
        "utils/__init__.py": "",
        "models/__init__.py": "".join(f"from .net{it} import Net{it}\n" for it in range(count // 2))
        + "\n\ndef make(name):\n    return {"
        + ", ".join(f"'net{it}': Net{it}" for it in range(count // 2))
        + "}[name]()\n",
    }
    for it in range(count // 2):
        base = f"Net{it - 1}" if it % 5 else "nn.Module"
        files[f"models/net{it}.py"] = (
            "import torch\nfrom torch import nn\n"
            + (f"from .net{it - 1} import Net{it - 1}\n" if it % 5 else "")
            + f"\n\nclass Net{it}({base}):\n    def __init__(self, width=8):\n        super().__init__()\n"
            + "".join(
                f"        self.layer{n} = nn.Sequential(nn.Linear(8, 8), nn.ReLU())\n" for n in range(30)
            )
            + "        self.head = nn.Linear(8, 2)\n\n    def forward(self, x):\n"
            + "".join(f"        x = self.layer{n}(x)\n" for n in range(30))
            + "        return self.head(x)\n"
        )
        after = (it + 7) % (count // 2)
        files[f"utils/tools{it}.py"] = (
            f"from .tools{after} import tool{after}\n\n\ndef tool{it}(x, *rest, **more):\n"
            + "".join(f"    y{n} = helper{n}(x)\n    x = y{n}.clamp(0, 1)\n" for n in range(20))
            + f"    return tool{after}(x, *rest)\n\n\n"
            + "".join(f"def helper{n}(x):\n    return x * {n}\n\n\n" for n in range(20))
        )
    return files


def _samples(count: int) -> dict[str, str]:
    """A loss that goes through many functions, each called from several places."""
    text = "def f0(x, y):\n    return x.mean(0, keepdim=True) + y\n\n\n" + "".join(
        f"def f{it}(x, y):\n    a = f{it - 1}(x, y)\n    b = f{it - 1}(y, x)\n    c = f{it - 1}(a, b)\n    return a + b * c\n\n\n"
        for it in range(1, count)
    )
    base = train(text)
    return {
        "train.py": base.replace(
            "criterion(model(inputs.cuda())", f"criterion(f{count - 1}(model(inputs.cuda()), 1)"
        )
    }


def _attributes(count: int) -> dict[str, str]:
    """One object on which everything is."""
    sets = "".join(f"        self.a{it} = self.a{(it * 7 + 1) % count}\n" for it in range(count))
    uses = "".join(f"        self.a{it}.step(self.a{(it * 3) % count})\n" for it in range(count))
    text = f"class State:\n    def __init__(self, first):\n        self.a0 = first\n{sets}\n    def step(self, other):\n{uses}\n\n"
    return {"train.py": train(text, "State(loss).step(model)")}


def _programs(count: int) -> dict[str, str]:
    shared = "import torch\n\n\ndef save(model, path):\n    torch.save(model.state_dict(), path)\n"
    files = {
        f"train{it}.py": train(imports="from common import save", within=f"save(model, '{it}.pt')")
        for it in range(count)
    }
    return {**files, "common.py": shared}


def _tries(depth: int) -> dict[str, str]:
    lines = []
    for it in range(depth):
        lines += [f"{'    ' * it}try:", f"{'    ' * it}    x{it} = loss.item()"]
    lines += [f"{'    ' * depth}pass"]
    for it in range(depth - 1, -1, -1):
        lines += [f"{'    ' * it}except ValueError:", f"{'    ' * it}    x{it} = 0"]
    return {"train.py": train(within="\n".join(lines))}


PROGRAMS: dict[str, Callable[[], dict[str, str]]] = {
    "1000 elifs": lambda: _elifs(1000),
    "1000 elifs that make models": lambda: _elif_calls(1000),
    "a sum of 1000": lambda: _sum(1000),
    "a trained sum of 1000": lambda: _trained_sum(1000),
    "1000 strings added": lambda: _strings(1000),
    "a chain of 500 methods": lambda: _methods(500),
    "a chain of 500 methods of its own": lambda: _builder(500),
    "90 nested calls": lambda: _nested_calls(90),
    "50 nested functions": lambda: _nested_functions(50),
    "a dictionary of 20,000": lambda: _dictionary(20_000),
    "a dictionary of 5,000 layers": lambda: _dictionary_of_calls(5_000),
    "20,000 lines of functions": lambda: _long(20_000),
    "20,000 lines": lambda: _flat(20_000),
    "a name that is assigned 1000 times": lambda: _reassigned(1000),
    "30 classes that hold each other": lambda: _holding_each_other(30),
    "30 modules in a circle": lambda: _modules_in_a_circle(30),
    "a module that calls itself": lambda: _children(1),
    "functions that call themselves": lambda: _recursive(1),
    "20 files whose functions call each other": lambda: _mutual(20),
    "20 files that import each other": lambda: _import_circle(20),
    "a project of 60 files": lambda: _project(60),
    "a loss through 40 functions": lambda: _samples(40),
    "an object of 300 attributes": lambda: _attributes(300),
    "60 programs": lambda: _programs(60),
    "15 nested tries": lambda: _tries(15),
}
