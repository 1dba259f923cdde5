"""Every form by which a value is handed on, and whether it is followed: what is not is unknown, never something else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.program.sources import How
from dp2ddp.analyse.program.values import Bound, Inst
from dp2ddp.source import Project

HEAD = """\
import contextlib
import functools
from dataclasses import dataclass
from typing import NamedTuple


class Net:
    pass


class Other:
    pass


"""
# What a value goes through to ``found``.
ASSIGNED = {
    "assigned": "found = Net()",
    "assigned to several": "other = found = Net()",
    "annotated": "found: Net = Net()",
    "augmented": "found = 0\nfound += Net()",
    "walrus": "if (found := Net()):\n    pass",
    "walrus in a comprehension": "[(found := Net()) for _ in range(3)]",
    "walrus in the key of what is stored": "held = {}\nheld[(found := Net())] = 1",
    "unpacked": "other, found = Other(), Net()",
    "unpacked by a list": "[other, found] = [Other(), Net()]",
    "unpacked, nested": "(other, (found, _)) = (Other(), (Net(), 1))",
    "unpacked behind a star": "*other, found = [Other(), Net()]",
    "starred": "other, *rest = Other(), Net(), Net()\nfound = rest[0]",
    "for": "for found in [Net(), Net()]:\n    pass",
    "for, unpacked": "for name, found in [('a', Net())]:\n    pass",
    "for, enumerated": "for index, found in enumerate([Net()]):\n    pass",
    "for, zipped": "for other, found in zip([Other()], [Net()]):\n    pass",
    "for, of a dictionary": "for name, found in {'a': Net()}.items():\n    pass",
    "for, into a subscript": "held = [0]\nfor held[0] in [Net()]:\n    pass\nfound = held[0]",
    "while": "while True:\n    found = Net()\n    break",
    "with": "class Held:\n    def __enter__(self):\n        return Net()\n\n    def __exit__(self, *_):\n        pass\n\n\n"
    "with Held() as found:\n    pass",
    "with, of a generator": "@contextlib.contextmanager\ndef held():\n    yield Net()\n\n\nwith held() as found:\n    pass",
    "except as": "class Error(Exception):\n    def __init__(self, net):\n        self.net = net\n\n\ntry:\n"
    "    raise Error(Net())\nexcept Error as error:\n    found = error.net",
    "comprehension": "found = [it for it in [Net()]][0]",
    "comprehension of a dictionary": "found = {name: it for name, it in [('a', Net())]}['a']",
    "generator": "found = next(it for it in [Net()])",
    "yielded": "def nets():\n    yield Net()\n\n\nfor found in nets():\n    pass",
    "yielded from": "def nets():\n    yield from [Net()]\n\n\nfor found in nets():\n    pass",
    "global": "def fill():\n    global found\n    found = Net()\n\n\nfill()",
    "nonlocal": "def make():\n    net = None\n\n    def fill():\n        nonlocal net\n        net = Net()\n\n    fill()\n"
    "    return net\n\n\nfound = make()",
    "matched": "match Net():\n    case found:\n        pass",
    "matched by a class": "match [Net()]:\n    case [found]:\n        pass",
    "conditional": "found = Net() if input() else Net()",
    "or": "found = None or Net()",
    "awaited": "async def make():\n    return Net()\n\n\nasync def main():\n    return await make()\n\n\nimport asyncio\n\n"
    "found = asyncio.run(main())",
}
TAKES = "def take({}):\n    return {}\n\n\nfound = take({})"
PASSED = {
    "by place": TAKES.format("net", "net", "Net()"),
    "by keyword": TAKES.format("net", "net", "net=Net()"),
    "keyword only": TAKES.format("*, net", "net", "net=Net()"),
    "default": TAKES.format("net=Net()", "net", ""),
    "default of a keyword": TAKES.format("*, net=Net()", "net", ""),
    "*args": TAKES.format("*nets", "nets[1]", "Other(), Net()"),
    "**kwargs": TAKES.format("**nets", "nets['b']", "a=Other(), b=Net()"),
    "spread": TAKES.format("other, net", "net", "*[Other(), Net()]"),
    "behind what is spread": TAKES.format("other, net", "net", "*[Other()], Net()"),
    "spread by name": TAKES.format("other, net", "net", "**{'other': Other(), 'net': Net()}"),
    "handed on whole": "def take(net):\n    return net\n\n\ndef hand(*args, **kwargs):\n    return take(*args, **kwargs)\n\n\n"
    "found = hand(Net())",
    "handed on whole, by name": "def take(net):\n    return net\n\n\ndef hand(*args, **kwargs):\n"
    "    return take(*args, **kwargs)\n\n\nfound = hand(net=Net())",
    "partial": "def take(other, net):\n    return net\n\n\nfound = functools.partial(take, Other())(Net())",
    "partial by keyword": "def take(other, net):\n    return net\n\n\nfound = functools.partial(take, net=Net())(Other())",
    "lambda": "found = (lambda net: net)(Net())",
    "lambda with a default": "found = (lambda net=Net(): net)()",
    "closure": "def outer(net):\n    def inner():\n        return net\n\n    return inner\n\n\nfound = outer(Net())()",
    "decorator": "def logged(function):\n    def wrapper(*args):\n        return function(*args)\n\n    return wrapper\n\n\n"
    "@logged\ndef take(net):\n    return net\n\n\nfound = take(Net())",
    "decorator with wraps": "def logged(function):\n    @functools.wraps(function)\n    def wrapper(*args):\n"
    "        return function(*args)\n\n    return wrapper\n\n\n@logged\ndef take(net):\n    return net\n\n\nfound = take(Net())",
    "cached": "@functools.lru_cache(None)\ndef take(net):\n    return net\n\n\nfound = take(Net())",
    "mapped": "def take(net):\n    return net\n\n\nfound = list(map(take, [Net()]))[0]",
}
HOLDER = "class Holder:\n    def __init__(self):\n        self.net = Net()\n\n\n"
HELD = {
    "attribute": HOLDER + "found = Holder().net",
    "attribute of a class": "class Holder:\n    net = Net()\n\n\nfound = Holder.net",
    "annotated attribute": "class Holder:\n    def __init__(self):\n        self.net: Net = Net()\n\n\nfound = Holder().net",
    "attribute set outside": "class Holder:\n    pass\n\n\nheld = Holder()\nheld.net = Net()\nfound = held.net",
    "staticmethod": "class Holder:\n    @staticmethod\n    def take(net):\n        return net\n\n\nfound = Holder.take(Net())",
    "staticmethod of an object": "class Holder:\n    @staticmethod\n    def take(net):\n        return net\n\n\n"
    "found = Holder().take(Net())",
    "classmethod": "class Holder:\n    @classmethod\n    def take(cls, net):\n        return net\n\n\nfound = Holder.take(Net())",
    "property": "class Holder:\n    @property\n    def net(self):\n        return Net()\n\n\nfound = Holder().net",
    "cached property": "class Holder:\n    @functools.cached_property\n    def net(self):\n        return Net()\n\n\n"
    "found = Holder().net",
    "property with a setter": "class Holder:\n    @property\n    def net(self):\n        return self._net\n\n    @net.setter\n"
    "    def net(self, net):\n        self._net = net\n\n\nheld = Holder()\nheld.net = Net()\nfound = held.net",
    "dataclass": "@dataclass\nclass Holder:\n    other: Other\n    net: Net\n\n\nfound = Holder(Other(), Net()).net",
    "dataclass by keyword": "@dataclass\nclass Holder:\n    other: Other\n    net: Net\n\n\n"
    "found = Holder(other=Other(), net=Net()).net",
    "NamedTuple": "class Holder(NamedTuple):\n    other: Other\n    net: Net\n\n\nfound = Holder(Other(), Net()).net",
    "NamedTuple, unpacked": "class Holder(NamedTuple):\n    other: Other\n    net: Net\n\n\n"
    "other, found = Holder(Other(), Net())",
    "NamedTuple, by index": "class Holder(NamedTuple):\n    other: Other\n    net: Net\n\n\nfound = Holder(Other(), Net())[1]",
    "inherited": HOLDER + "class Own(Holder):\n    pass\n\n\nfound = Own().net",
    "inherited method": "class Base:\n    def take(self, net):\n        return net\n\n\nclass Own(Base):\n    pass\n\n\n"
    "found = Own().take(Net())",
    "super()": HOLDER
    + "class Own(Holder):\n    def __init__(self):\n        super().__init__()\n\n    def get(self):\n"
    "        return self.net\n\n\nfound = Own().get()",
    "returned by super()": "class Base:\n    def make(self):\n        return Net()\n\n\nclass Own(Base):\n    def make(self):\n"
    "        return super().make()\n\n\nfound = Own().make()",
    "setattr": "class Holder:\n    pass\n\n\nheld = Holder()\nsetattr(held, 'net', Net())\nfound = held.net",
    "getattr": HOLDER + "found = getattr(Holder(), 'net')",
    "setattr by a part of the name": "class Holder:\n    pass\n\n\nheld = Holder()\nfor size in '12':\n"
    "    setattr(held, 'net' + size, Net())\nfound = held.net1",
    "vars(o)[…]": "class Holder:\n    pass\n\n\nheld = Holder()\nvars(held)['net'] = Net()\nfound = held.net",
    "read by vars(o)[…]": HOLDER + "found = vars(Holder())['net']",
    "__dict__.update": "class Holder:\n    def __init__(self, **given):\n        self.__dict__.update(given)\n\n\n"
    "found = Holder(net=Net()).net",
    "globals()[…]": "globals()['found'] = Net()",
    "read by globals()[…]": "net = Net()\nfound = globals()['net']",
    "locals()[…]": "def make():\n    net = Net()\n    return locals()['net']\n\n\nfound = make()",
    "__iadd__": "class Holder:\n    def __iadd__(self, net):\n        self.net = net\n        return self\n\n\nheld = Holder()\n"
    "held += Net()\nfound = held.net",
    "__iadd__ that returns another": "class Holder:\n    def __iadd__(self, net):\n        return net\n\n\nfound = Holder()\n"
    "found += Net()",
    "__add__": "class Holder:\n    def __add__(self, net):\n        return net\n\n\nfound = Holder() + Net()",
    "__getattr__": "class Holder:\n    def __getattr__(self, name):\n        return Net()\n\n\nfound = Holder().net",
    "__getitem__": "class Holder:\n    def __getitem__(self, index):\n        return Net()\n\n\nfound = Holder()[0]",
    "__setitem__": "class Holder:\n    def __setitem__(self, key, net):\n        self.net = net\n\n\nheld = Holder()\n"
    "held[0] = Net()\nfound = held.net",
    "__call__": "class Holder:\n    def __call__(self, net):\n        return net\n\n\nfound = Holder()(Net())",
    "__iter__": "class Holder:\n    def __iter__(self):\n        return iter([Net()])\n\n\nfor found in Holder():\n    pass",
    "list": "nets = []\nnets.append(Net())\nfound = nets[0]",
    "list, its first element": "nets = []\nnets.append(Net())\nif input():\n    nets.append(Other())\nfound = nets[0]",
    "list, its last element": "def last(given):\n    return given[-1]\n\n\nnets = [Other()]\nif input():\n"
    "    nets.append(Other())\nnets.append(Net())\nfound = last(nets)",
    "list, of a name that a function has, too": "def last(nets):\n    return nets[1]\n\n\nnets = []\nnets.append(Other())\n"
    "nets.append(Net())\nfound = last(nets)",
    "list, behind a condition": "nets = [Other()]\nif input():\n    nets.append(Other())\nnets.append(Net())\nfound = nets[1]",
    "list, last before there is more": "nets = [Net()]\nfound = nets[-1]\nnets.append(Other())",
    "list, last before another adds to it": "def add(given):\n    given.append(Other())\n\n\nnets = [Other()]\n"
    "nets.append(Net())\nadd(nets)\nfound = nets[-1]",
    "list, what is inserted before": "nets = [Net()]\nnets.insert(0, Other())\nfound = nets[1]",
    "walrus, maybe": "found = Net()\nif input() and (found := Other()):\n    pass",
    "walrus, in all branches, maybe": "found = Net()\nif input():\n    found = Other()\nelse:\n    input() and (found := Other())",
    "with, what it swallows": "from contextlib import suppress\n\nfound = Net()\nwith suppress(ValueError):\n"
    "    int(input())\n    found = Other()",
    "with, what it swallows in branches": "from contextlib import suppress\n\nfound = Net()\nwith suppress(ValueError):\n"
    "    if int(input()):\n        found = Other()\n    else:\n        found = Other()",
    "list, what a function removes before": "def drop(given):\n    given.pop(0)\n\n\nnets = [Other()]\n"
    "nets.append(Net())\ndrop(nets)\nfound = nets[0]",
    "list, turned round": "nets = [Net(), Other()]\nnets.reverse()\nfound = nets[1]",
    "list, shuffled": "import random\n\nnets = []\nnets.append(Net())\nnets.append(Other())\nrandom.shuffle(nets)\n"
    "found = nets[1]",
    "list, last where a loop is left": "for step in range(3):\n    nets = [Net()]\n    if step == 2:\n        break\n"
    "    nets.append(Other())\nfound = nets[-1]",
    "list of modules": "from torch import nn\n\nnets = nn.ModuleList([Other()])\nnets.append(Net())\nfound = nets[1]",
    "list of modules, unpacked": "from torch import nn\n\nother, found = nn.ModuleList([Other(), Net()])",
    "list of modules, of what is not known": "from torch import nn\n\nnets = nn.ModuleList(input())\nnets.append(Net())\n"
    "found = nets[0]",
    "list added to": "nets = []\nnets += [Net()]\nfound = nets[0]",
    "lists added": "found = ([Other()] + [Net()])[1]",
    "slice": "found = [Other(), Net()][1:][0]",
    "dictionary": "nets = {}\nnets['a'] = Net()\nfound = nets['a']",
    "dictionaries merged": "found = {**{'a': Net()}, 'b': Other()}['a']",
    "dictionaries in one": "found = ({'b': Other()} | {'a': Net()})['a']",
}
FORMS = ASSIGNED | PASSED | HELD

# What is not followed: nothing of the project's is found there, so that whoever asks knows that it is unknown.
UNKNOWN = {
    "with, of a generator",
    "except as",
    "yielded",
    "yielded from",
    "matched by a class",
    "awaited",
    "__iadd__",
    "__add__",
    "__getattr__",
    "__setitem__",
    "__iter__",
}
# Where more than one may be it, as far as is known.
EITHER = {
    "starred": {"Net", "Other"},
    "list, behind a condition": {"Net", "Other"},
    "list, last before there is more": {"Net", "Other"},
    "list, last before another adds to it": {"Net", "Other"},
    "list, what is inserted before": {"Net", "Other"},
    "walrus, maybe": {"Net", "Other"},
    "walrus, in all branches, maybe": {"Net", "Other"},
    "with, what it swallows": {"Net", "Other"},
    "with, what it swallows in branches": {"Net", "Other"},
    "list, what a function removes before": {"Net", "Other"},
    "list, turned round": {"Net", "Other"},
    "list, shuffled": {"Net", "Other"},
    "list, last where a loop is left": {"Net", "Other"},
    "lists added": {"Net", "Other"},
    "slice": {"Net", "Other"},
    "with": {"Net", "Held"},
    "__iadd__ that returns another": {"Net", "Holder"},
}
# The calls that do not show what they give a parameter: who asks for the expressions gets none.
NOT_SEEN = {
    "spread",
    "behind what is spread",
    "spread by name",
    "handed on whole",
    "handed on whole, by name",
    "partial",
    "partial by keyword",
    "mapped",
}


def linked(text: str) -> tuple[Program, ast.Name]:
    """A program that ends by using ``found``, and that use."""
    path = Path("/example/a.py")
    project = Project.of({path: f"{HEAD}{text}\nuse(found)\n"})
    program = Program(project, project.files.values())
    return program, program.files[0].tree.body[-1].value.args[0]  # type: ignore[attr-defined]


def test_the_forms_are_named() -> None:
    assert len(FORMS) == len(ASSIGNED) + len(PASSED) + len(HELD)
    assert UNKNOWN | EITHER.keys() <= FORMS.keys() and not UNKNOWN & EITHER.keys()


@pytest.mark.parametrize("form", FORMS)
def test_values_go_through(form: str) -> None:
    program, use = linked(FORMS[form])
    found = {program.scopes[it.cls.scope].node.name for it in program.values(use) if isinstance(it, Inst)}  # type: ignore[attr-defined]
    assert found == (set() if form in UNKNOWN else EITHER.get(form, {"Net"}))


@pytest.mark.parametrize("form", FORMS)
def test_what_gives_a_name_its_value_is_known(form: str) -> None:
    program, use = linked(FORMS[form])
    assert program.definitions(use)
    assert all(program.file(it) is program.file(use) for it in program.definitions(use))


@pytest.mark.parametrize("form", ASSIGNED)
def test_every_form_of_assignment_has_its_source(form: str) -> None:
    program, use = linked(ASSIGNED[form])
    sources = [program.source(it) for it in program.definitions(use)]
    if form in {"matched", "matched by a class"}:
        assert {it.how for it in sources} == {How.OTHER}
    else:
        assert all(it.value is not None and it.how is not How.OTHER for it in sources)


PLACES = {
    "found = make()": ("assigned", "make()", ()),
    "found: int = make()": ("assigned", "make()", ()),
    "(found := make())": ("assigned", "make()", ()),
    "found += make()": ("augmented", "make()", ()),
    "a, (b, found) = make()": ("assigned", "make()", (1, 1)),
    "[found, *a] = make()": ("assigned", "make()", (0,)),
    "*a, found = make()": ("assigned", "make()", (None,)),
    "*found, a = make()": ("assigned", "make()", (None,)),
    "a = b, found = make()": ("assigned", "make()", (1,)),
    "for a, found in make(): pass": ("element", "make()", (1,)),
    "[0 for found in make()]": ("element", "make()", ()),
    "with make() as (a, found): pass": ("entered", "make()", (1,)),
    "with other() as a, make() as found: pass": ("entered", "make()", ()),
    "import found": ("other", None, ()),
}


@pytest.mark.parametrize("text", PLACES)
def test_the_place_in_what_is_unpacked_is_known(text: str) -> None:
    path = Path("/example/a.py")
    project = Project.of({path: f"{text}\n"})
    program = Program(project, project.files.values())
    named = (it for it in program.nodes.values() if getattr(it, "id", getattr(it, "name", "")) == "found")
    source = program.source(next(named))
    value = None if source.value is None else ast.unparse(source.value)
    assert (source.how.value, value, source.place) == PLACES[text]


@pytest.mark.parametrize("form", [form for form in FORMS if "def take(" in FORMS[form]])
def test_what_calls_give_a_parameter_is_all_or_not_seen(form: str) -> None:
    program, _ = linked(FORMS[form])
    take = next(it for it in program.scopes if getattr(it.node, "name", "") == "take")
    net = take.signature.parameter("net")
    seen = [ast.unparse(it) for it in program.given(net)] if net is not None else []
    assert seen == ([] if form in NOT_SEEN or net is None else ["Net()"])


@pytest.mark.parametrize(
    "form", ["sorted(given, key=id)", "set(given)", "filter(None, given)", "list(reversed(given))"]
)
@pytest.mark.parametrize("taken", ["{}", "[sorted({})[0]]"])
def test_elements_go_through_what_orders_or_selects_them(form: str, taken: str) -> None:
    """Each is one of those that are given, whichever place it has."""
    text = HEAD + f"given = [Net(), Other()]\nfor found in {taken.format(form)}:\n    found\n"
    path = Path("/example/train.py")
    project = Project.of({path: text})
    program = Program(project, list(project.files.values()))
    (used,) = (
        it
        for it in program.nodes.values()
        if isinstance(it, ast.Name) and it.id == "found" and isinstance(it.ctx, ast.Load)
    )
    names = {program.scopes[it.cls.scope].node.name for it in program.values(used) if isinstance(it, Inst)}
    assert names == {"Net", "Other"}


REGISTRY = """\
from torch import nn


class Registry:
    def __init__(self):
        self.made = dict()

    def add(self, cls):
        self.made[cls.__name__] = cls
        return cls

    def get(self, name):
        return self.made.get(name, None)


class First(nn.Module):
    pass


class Second(nn.Module):
    def take(self, net):
        return net


registry = Registry()
registry.add(First)
registry.add(Second)
found = registry.get(input())().take(Net())
"""


def test_what_has_no_such_method_is_not_called() -> None:
    """One of several classes of a registry has it, and torch's own class has not."""
    program, use = linked(REGISTRY)
    (made,) = (program.statement(it) for it in program.definitions(use))
    call = program.call(made.value)  # type: ignore[attr-defined]
    assert call is not None and all(isinstance(it, Bound) for it in call.callees) and len(call.callees) == 1


def test_what_is_given_by_name_beside_a_table_is_seen() -> None:
    text = "def take(net, other=None):\n    return net\n\n\nsettings = {'other': 1}\nfound = take(net=Net(), **settings)"
    program, _ = linked(text)
    take = next(it for it in program.scopes if getattr(it.node, "name", "") == "take")
    net, other = (take.signature.parameter(name) for name in ("net", "other"))
    assert net is not None and [ast.unparse(it) for it in program.given(net)] == ["Net()"]
    assert other is not None and program.given(other) == []
