"""Following values: what must not multiply."""

from __future__ import annotations

import ast
import time
from pathlib import Path

import pytest

from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.program.values import Ext, Inst
from dp2ddp.source import Project

LOOP = """\
import pandas
import numpy as np


def turn(frame):
    while True:
        frame = frame.drop() if frame.empty() else frame.dropna()
        frame = frame.sort() if frame.empty() else frame.join()
        frame = frame.head() if frame.empty() else other(frame)


def other(frame):
    array = np.random.rand(3)
    for _ in range(3):
        array = array.take() if frame else array.repeat()
        array = array.ravel() if frame else array.clip()
    return turn(frame.copy(array))


turn(pandas.read_csv("x"))
"""


def test_chains_of_methods_in_loops_end() -> None:
    path = Path("/example/a.py")
    project = Project.of({path: LOOP})
    program = Program(project, [project.files[path]])
    assert max(len(program.values(node)) for node in program.nodes.values()) < 200
    assert any(program.values(node) for node in program.nodes.values())


FOLLOWED = {
    "a class method": (
        "class Net:\n    @classmethod\n    def made(cls, size):\n        return cls(size)\n\n\n",
        "Net.made(3)",
    ),
    "a class method of an object": (
        "class Net:\n    @classmethod\n    def made(cls, size):\n        return cls(size)\n\n\n",
        "Net(3).made(3)",
    ),
    "a module by its name": ("import importlib\n", 'importlib.import_module("parts").Net(3)'),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_what_makes_an_object_is_followed(name: str) -> None:
    head, expression = FOLLOWED[name]
    path, other = Path("/example/a.py"), Path("/example/parts.py")
    project = Project.of({path: f"{head}net = {expression}\n", other: "class Net:\n    pass\n"})
    program = Program(project, project.files.values())
    value = program.modules[path].body[-1].value
    found = [it for it in program.values(value) if isinstance(it, Inst)]
    assert [program.scopes[it.cls.scope].node.name for it in found] == ["Net"]


NAMED_MODULES = {
    "a name": ('importlib.import_module("os.path")', {"os.path"}),
    "one of several": (
        '[importlib.import_module(it) for it in ("numpy", "torch.nn")]',
        {"numpy", "torch.nn"},
    ),
    "a package": ('__import__("torch.nn")', {"torch"}),
    "not known": ("importlib.import_module(input())", set()),
    "partly known": ('importlib.import_module("torch." + input())', set()),
    "the project's": ('importlib.import_module("parts")', set()),
}


@pytest.mark.parametrize("name", NAMED_MODULES)
def test_modules_of_others_are_known_where_their_names_are(name: str) -> None:
    expression, modules = NAMED_MODULES[name]
    path, other = Path("/example/a.py"), Path("/example/parts.py")
    project = Project.of({path: f"import importlib\n\n{expression}\n", other: ""})
    found = Program(project, project.files.values())
    call = next(
        it for it in found.nodes.values() if isinstance(it, ast.Call) and "import" in ast.unparse(it.func)
    )
    assert {it.name for it in found.values(call) if isinstance(it, Ext)} == modules


def test_the_other_branch_of_a_condition_reaches_a_place_only_round_a_loop() -> None:
    choice = "if ready:\n    net = First()\n    net = Other(net)\nelse:\n    net = Other(net)\n"
    classes = "class First:\n    pass\n\n\nclass Other:\n    def __init__(self, inner):\n        pass\n\n\n"
    path = Path("/example/a.py")

    def inner(text: str) -> list[str]:
        project = Project.of({path: f"{classes}net = First()\n{text}"})
        program = Program(project, project.files.values())
        last = [call for call in program.calls if call.node.args][-1]
        found = {program.scopes[it.cls.scope].node.name for it in program.values(last.node.args[0])}
        return sorted(found)

    assert inner(choice) == ["First"]
    attempt = "try:\n    net = Other(1)\nexcept OSError:\n    {}\nnet = Other(net)\n"
    assert inner(attempt.format("net = Other(2)")) == ["Other"]
    assert inner(attempt.format("raise")) == ["Other"]
    assert inner(attempt.format("pass")) == ["First", "Other"]
    loop = "for _ in range(2):\n" + "".join(f"    {line}\n" for line in choice.splitlines())
    assert inner(loop) == ["First", "Other"]
    third = "net = {}\n"
    ways = (
        f"if ready:\n    net = Other(1)\nelif late:\n    net = Other(2)\nelse:\n    {third}net = Other(net)\n"
    )
    assert inner(ways.format("Other(3)")) == ["Other"]
    assert inner(ways.replace(third, "raise OSError\n")) == ["Other"]
    assert inner(ways.replace(third, "pass\n")) == ["First", "Other"]
    assert inner(ways.replace(f"else:\n    {third}", "")) == ["First", "Other"]
    within = ways.format("Other(3)").replace("net = Other(net)", "print(Other(net))\nnet = First()")
    assert inner("for _ in range(2):\n" + "".join(f"    {it}\n" for it in within.splitlines())) == ["Other"]


BRANCHES = {
    "a name of the module": (
        "if ready:\n    net = First()\nelse:\n    net = Other()\n\n\ndef use():\n    return net\n",
        {"First", "Other"},
    ),
    "a name that a condition may change": (
        "net = First()\nif ready:\n    net = Other()\n\n\ndef use():\n    return net\n",
        {"First", "Other"},
    ),
    "a name that an error may change": (
        "try:\n    net = First()\nexcept OSError:\n    net = Other()\n\n\ndef use():\n    return net\n",
        {"First", "Other"},
    ),
    "an attribute": (
        "class Holder:\n    def __init__(self):\n        if ready:\n            self.net = First()\n        else:\n"
        "            self.net = Other()\n\n    def use(self):\n        return self.net\n\n\nHolder().use()\n",
        {"First", "Other"},
    ),
    **{
        f"a name {name}": (text.replace("USE", "def use():\n    return net") + "\n", classes)
        for name, text, classes in (
            ("given anew after the call", "USE\n\n\nnet = First()\nuse()\nnet = Other()", {"First"}),
            (
                "given anew between two calls",
                "USE\n\n\nnet = 3\nnet = First()\nuse()\nnet = Other()\nuse()\nnet = 3",
                {"First", "Other"},
            ),
            ("given anew between", "net = First()\n\n\nUSE\n\n\nnet = Other()\nuse()", {"Other"}),
            (
                "that the call's caller reads",
                "USE\n\n\ndef main():\n    use()\n\n\nnet = First()\nif ready:\n    main()\n    net = Other()",
                {"First"},
            ),
            (
                "given anew by the round before",
                "USE\n\n\nnet = First()\nfor _ in range(2):\n    use()\n    net = Other()\nnet = 3",
                {"First", "Other"},
            ),
            (
                "of a function that something else may call",
                "USE\n\n\nnet = First()\nrun(use)\nnet = Other()",
                {"First", "Other"},
            ),
            (
                "of a method",
                "class Job:\n    def run(self):\n        return net\n\n\nnet = First()\nJob().run()\nnet = Other()",
                {"First", "Other"},
            ),
            ("of a function that nothing calls", "USE\n\n\nnet = First()\nnet = Other()", {"Other"}),
            (
                "that another function gives anew",
                "USE\n\n\ndef change():\n    global net\n    net = Other()\n\n\nnet = 3\nnet = First()\nuse()\nchange()",
                {"First", "Other"},
            ),
            (
                "of a generator",
                "def use():\n    yield 3\n    return net\n\n\nnet = First()\nit = use()\nnet = Other()\nlist(it)",
                {"First", "Other"},
            ),
            (
                "of a class",
                "net = First()\n\n\nclass Job:\n    it = net\n    use = lambda: 3\n\n\nnet = Other()\nUSE",
                {"Other"},
            ),
        )
    },
    "a name that is given anew": (
        "net = First()\nwith ready:\n    net = Other()\n\n\ndef use():\n    return net\n",
        {"Other"},
    ),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_a_name_is_what_any_branch_makes_it_to_another_function(name: str) -> None:
    text, classes = BRANCHES[name]
    path = Path("/example/a.py")
    project = Project.of({path: f"class First:\n    pass\n\n\nclass Other:\n    pass\n\n\n{text}"})
    program = Program(project, project.files.values())
    returned = next(node for node in program.nodes.values() if isinstance(node, ast.Return))
    found = program.values(returned.value)
    assert {program.scopes[it.cls.scope].node.name for it in found if isinstance(it, Inst)} == classes


WRAPPED = """\
def timed(function):
    def wrapper(*args):
        print("start")
        return function(*args)

    return wrapper


@timed
def train(rate):
    return rate


@timed
def test(rate):
    return rate


train(0.1)
"""


def program(text: str) -> Program:
    path = Path("/example/a.py")
    project = Project.of({path: text})
    return Program(project, project.files.values())


def names(linked: Program, scopes: set[int]) -> set[str]:
    return {getattr(linked.scopes[it].node, "name", "") for it in scopes}


def test_a_decorator_does_not_mix_the_functions_that_it_wraps() -> None:
    """What it puts in a function's place runs with it, and leads to no other."""
    linked = program(WRAPPED)
    called = linked.files[0].tree.body[-1]
    assert names(linked, linked.entered(called)) == {"train", "wrapper"}
    rate, _ = (node for node in linked.nodes.values() if getattr(node, "arg", "") == "rate")
    assert [ast.unparse(it) for it in linked.given(rate)] == ["0.1"]


def test_a_decorator_that_registers_hands_back_what_it_is_given() -> None:
    text = "TABLE = {}\n\n\ndef register(part):\n    TABLE[part.__name__] = part\n    return part\n\n\n"
    text += "@register\ndef first():\n    pass\n\n\n@register\ndef other():\n    pass\n\n\nfirst()\nTABLE[input()]()\n"
    linked = program(text)
    *_, direct, chosen = linked.files[0].tree.body
    assert names(linked, linked.entered(direct)) == {"first"}
    assert names(linked, linked.entered(chosen)) == {"first", "other"}


def test_a_setter_is_given_no_option() -> None:
    text = "class Engine:\n    @property\n    def device(self):\n        return self._device\n\n"
    text += "    @device.setter\n    def device(self, value):\n        self._device = value\n"
    linked = program(text)
    assert not [node for node in linked.nodes.values() if "option" in str(linked.values(node))]


LOOKED_UP = {
    'getattr(parts, "net" + name)': {"net_a", "net_b"},
    "getattr(parts, name)": {"net_a", "net_b", "other"},
    'vars(parts)[f"{name}_a"]': {"net_a"},
    'parts.__dict__.get("other")': {"other"},
    "getattr(parts, name, main)": {"net_a", "net_b", "other", "main"},
    'eval("parts." + name)': {"net_a", "net_b", "other"},
    'eval(f"parts.net_{name}")': {"net_a", "net_b"},
}


@pytest.mark.parametrize("expression", LOOKED_UP)
def test_what_is_looked_up_may_be_all_that_matches(expression: str) -> None:
    """And nothing that is not the project's own, where nothing is known of the name."""
    path, other = Path("/example/a.py"), Path("/example/parts.py")
    parts = "import torch\nfrom torch.nn import Linear\n\nmodel = Linear(2, 2)\n\n"
    parts += "".join(f"def {name}():\n    pass\n\n\n" for name in ("net_a", "net_b", "other"))
    text = f"import parts\n\n\ndef main():\n    pass\n\n\nname = input()\n({expression})()\n"
    project = Project.of({path: text, other: parts})
    linked = Program(project, project.files.values())
    assert names(linked, linked.entered(project.files[path].tree.body[-1])) == LOOKED_UP[expression]


@pytest.mark.parametrize("expression", [*LOOKED_UP, 'locals()["parts"].other'])
def test_so_it_is_where_a_function_imports_what_it_looks_up(expression: str) -> None:
    path, other = Path("/example/a.py"), Path("/example/parts.py")
    parts = "".join(f"def {name}():\n    pass\n\n\n" for name in ("net_a", "net_b", "other"))
    text = f"def main():\n    pass\n\n\ndef choose(name):\n    import parts\n\n    ({expression})()\n"
    project = Project.of({path: text, other: parts})
    linked = Program(project, project.files.values())
    call = project.files[path].tree.body[-1].body[-1]
    assert names(linked, linked.entered(call)) == LOOKED_UP.get(expression, {"other"})


def test_what_does_not_take_the_arguments_is_not_called() -> None:
    text = "def one(a):\n    pass\n\n\ndef two(a, b):\n    pass\n\n\ndef named(*, a):\n    pass\n\n\n"
    text += "def any(*a, **b):\n    pass\n\n\ntable = [one, two, named, any]\nfor it in table:\n    it(1)\n    it(a=1)\n"
    linked = program(text)
    by_place, by_name = linked.files[0].tree.body[-1].body
    assert names(linked, linked.entered(by_place)) == {"one", "any"}
    assert names(linked, linked.entered(by_name)) == {"one", "named", "any"}


def test_unknown_modules_stay_unknown() -> None:
    linked = program("import importlib\n\nmodule = importlib.import_module(input())\nmodule.train()\n")
    assert not any(linked.values(call.node) for call in linked.calls if call.node.args)


CIRCLE = """\
import json

import pandas
import yaml


class Holder:
    def __init__(self, first, second, third):
        self.first, self.second, self.third = first, second, third

    def turn(self, other):
        self.first = pick(self.second.rows, other.third.get(self.first))
        self.second = pick(self.third.columns, other.first.parts(self.second))
        self.third = pick(self.first[0].less, other.second.shape())
        return Holder(self.third.next(), self.first.last, other.second[1])


def pick(one, other):
    return one.best(other) if one else other.worst(one)


held = Holder(pandas.read_csv("a"), json.load(open("b")), yaml.safe_load("c"))
while True:
    held = pick(held, held.turn(held))
    held = held.turn(pick(held.first, held.second))
"""


def test_what_goes_round_through_attributes_and_calls_ends() -> None:
    path = Path("/example/a.py")
    project = Project.of({path: CIRCLE})
    program = Program(project, [project.files[path]])
    assert max(len(program.values(node)) for node in program.nodes.values()) < 100


TEMPLATE = """\
class Base:
    def __init__(self, size):
        self.model = self.build()

    def build(self):
        raise NotImplementedError
        return None


class Own(Base):
    def __init__(self, size):
        super({})    .__init__(size)

    def build(self):
        return Net()


class Other(Base):
    def build(self):
        return 3


class Net:
    pass


found = Own(3).model
"""


@pytest.mark.parametrize("given", ["", "Own, self"])
def test_a_method_of_a_base_that_super_calls_has_the_object_itself(given: str) -> None:
    path = Path("/example/a.py")
    project = Project.of({path: TEMPLATE.format(given).replace("    .__init__", ".__init__")})
    program = Program(project, [project.files[path]])
    value = project.files[path].tree.body[-1].value  # type: ignore[attr-defined]
    names = [program.scopes[it.cls.scope].node.name for it in program.values(value) if isinstance(it, Inst)]
    assert names == ["Net"]


def _library(count: int) -> str:
    """Classes that hold one another's objects, and go through these name by name, as loaders of weights do."""
    parts = [WEIGHTS]
    for i in range(count):
        held = [f"        self.a{i}_{j} = Part{(i * 7 + j * 11 + 1) % count}()" for j in range(6)]
        methods = [f"    def m{i}_{j}(self): return load(self, ['x'])" for j in range(6)]
        parts += [f"class Part{i}:", "    def __init__(self):", *held, *methods]
    return "\n".join([*parts, "load(Part0(), ['x'])", ""])


WEIGHTS = """\
def load(model, names):
    pointer = model
    for name in names:
        pointer = getattr(pointer, name)
        pointer = getattr(pointer, name + "")
    return pointer
"""


def test_going_through_a_library_name_by_name_ends() -> None:
    path = Path("/example/a.py")
    begun = time.process_time()
    project = Project.of({path: _library(240)})
    Program(project, project.files.values())
    assert time.process_time() - begun < 30  # a second; minutes where all may be all


@pytest.mark.parametrize(("count", "is_known"), [(3, True), (30, False)])
def test_what_one_of_many_things_has_by_an_unknown_name_is_not_just_the_default(
    count: int, is_known: bool
) -> None:
    parts = [f"class Part{i}:\n    size = Other{i}()\n" for i in range(count)]
    others = [f"class Other{i}:\n    pass\n" for i in range(count)]
    things = ", ".join(f"Part{i}()" for i in range(count))
    last = f"import sys\nfor it in [{things}]:\n    found = getattr(it, sys.argv[1], Default())\nfound\n"
    linked = program("\n".join(["class Default:\n    pass\n", *others, *parts, last]))
    (file,) = linked.files
    values = linked.values(file.tree.body[-1].value)  # type: ignore[attr-defined]
    assert len(values) == (count + 1 if is_known else 0)
