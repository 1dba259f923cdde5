"""Following values: what must not multiply."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from dp2ddp.analyse.link import Inst, Program
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
    assert inner(attempt.format("raise")) == ["First", "Other"]
    assert inner(attempt.format("pass")) == ["First", "Other"]
    loop = "for _ in range(2):\n" + "".join(f"    {line}\n" for line in choice.splitlines())
    assert inner(loop) == ["First", "Other"]


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
