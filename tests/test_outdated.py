"""What PyTorch has removed: what stands in the list fails today, and what is made of it works."""

from __future__ import annotations

import builtins
import importlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from dp2ddp.analyse import link
from dp2ddp.analyse.api.outdated import REMOVED_MODULES as MODULES
from dp2ddp.analyse.api.outdated import REMOVED_NAMES as NAMES
from dp2ddp.analyse.outdated import FORMS as WRITTEN
from dp2ddp.convert import convert
from dp2ddp.facts import Outdated
from dp2ddp.plan import Severity
from dp2ddp.source import Project

PATH = Path("/example/train.py")
REMOVED = (*WRITTEN, *NAMES.values())
PROGRAM = """\
import collections
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import Function, Variable
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.sampler import Sampler
from torchvision import transforms

# HEAD

data = TensorDataset(torch.randn(32, 8), torch.randint(4, (32,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.DataParallel(nn.Linear(8, 4))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = 0
for epoch in range(1):
    for inputs, targets in loader:
        outputs = model(Variable(inputs))
        loss = criterion(outputs, Variable(targets))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        # STEP
"""
ACCURACY = """\
def accuracy(output, target, topk=(1,)):
    _, pred = output.topk(max(topk), 1, True, True)
    pred = pred.t()
    correct = pred.eq(target.view(1, -1).expand_as(pred))
    found = []
    for k in topk:
        found.append(correct[:k].VIEW(-1).float().sum(0) * 100.0)
    return found
"""
METER = """\
class Meter(object):
    def __init__(self):
        self.sum = 0.0

    def update(self, value, count=1):
        self.sum += value * count

meter = Meter()
"""
ORDER = """\
class Order(Sampler):
    def __init__(self, source):
        super(Order, self).__init__(SOURCE)
        self.count = len(source)

    def __iter__(self):
        return iter(range(self.count))

    def __len__(self):
        return self.count
"""
READER = """\
class Reader:
    def __init__(self, loader):
        self.loader = loader
        self.begin()

    def begin(self):
        self.batches = iter(self.loader)

    def read(self):
        inputs, targets = NEXT
        return inputs
"""
DOUBLE = """\
class Double(Function):
    def forward(self, x):
        return 2 * x

    def backward(self, gradient):
        return 2 * gradient
"""


@dataclass(frozen=True)
class Case:
    """Lines of the training, what becomes of them, and what they raise as they were.

    ``after`` is what a person writes where nothing is done by itself: then it is only said. ``head`` stands above.
    """

    row: str
    before: str
    after: str
    error: type[Exception]
    head: str = ""
    head_after: str = ""
    said: bool = False

    def text(self, step: str, head: str) -> str:
        body = "\n".join(" " * 8 + line for line in step.splitlines())
        return PROGRAM.replace("        # STEP", body).replace("# HEAD", head)

    @property
    def texts(self) -> tuple[str, str]:
        return self.text(self.before, self.head), self.text(self.after, self.head_after or self.head)


INDEX = "indexing a scalar tensor"
NEXT = "the `.next()` method of a DataLoader iterator"
VIEW = "`view` on a non-contiguous tensor"
FORMS = {
    "a loss": Case(INDEX, "total += loss.data[0]", "total += loss.item()", IndexError),
    "a loss itself": Case(INDEX, "total += loss[0]", "total += loss.item()", IndexError),
    "a loss as an array": Case(
        INDEX, "total += loss.data.cpu().numpy()[0]", "total += loss.item()", IndexError
    ),
    "a sum of losses": Case(
        INDEX,
        "other = 0.5 * F.mse_loss(outputs, outputs + 1) + loss\nprint('%.3f' % other.data[0])",
        "other = 0.5 * F.mse_loss(outputs, outputs + 1) + loss\nprint('%.3f' % other.item())",
        IndexError,
    ),
    "a sum over steps": Case(
        INDEX,
        "total += loss.data\nprint(total[0] / 2)",
        "total += loss.data\nprint(total.item() / 2)",
        IndexError,
    ),
    "a mean": Case(
        INDEX,
        "right = outputs.max(1)[1].eq(targets)\nprint(right.float().mean().data[0])",
        "right = outputs.max(1)[1].eq(targets)\nprint(right.float().mean().item())",
        IndexError,
    ),
    "an accuracy": Case(
        INDEX,
        "first, second = accuracy(outputs.data, targets, topk=(1, 2))\nmeter.update(first[0], inputs.size(0))\n"
        "meter.update(loss.data[0], inputs.size(0))",
        "first, second = accuracy(outputs.data, targets, topk=(1, 2))\nmeter.update(first.item(), inputs.size(0))\n"
        "meter.update(loss.item(), inputs.size(0))",
        IndexError,
        METER + ACCURACY.replace("VIEW", "reshape"),
    ),
    "a criterion of the project's own": Case(
        INDEX,
        "other = Own()(outputs)\ntotal += other.data[0]",
        "other = Own()(outputs)\ntotal += other.item()",
        IndexError,
        "class Own(nn.Module):\n    def forward(self, x):\n        return torch.sum(x ** 2) / x.size(0)\n",
    ),
    "what a backward pass starts from": Case(
        INDEX,
        "other = dict(a=model(inputs).sum())['a']\nother.backward()\ntotal += other.data[0]",
        "other = dict(a=model(inputs).sum())['a']\nother.backward()\ntotal += other.item()",
        IndexError,
    ),
    "what makes a loss makes elsewhere": Case(
        INDEX,
        "own = Hidden()\nother = own(model(inputs))\nother.backward()\nagain = own(outputs)\ntotal += again.data[0]",
        "own = Hidden()\nother = own(model(inputs))\nother.backward()\nagain = own(outputs)\ntotal += again.item()",
        IndexError,
        "class Hidden(nn.Module):\n    def forward(self, x, each=False):\n"
        "        found = dict(a=x.sum(1))['a']\n        return found if each else dict(a=found.mean())['a']\n",
    ),
    "a returned loss": Case(
        INDEX,
        "value, _ = step(inputs, targets)\nassert type(value) is float",
        "value, _ = step(inputs, targets)\nassert type(value) is float",
        IndexError,
        "def step(x, y):\n    output = model(x)\n    found = F.cross_entropy(output, y)\n    return found.data[0], output\n",
        "def step(x, y):\n    output = model(x)\n    found = F.cross_entropy(output, y)\n    return found.item(), output\n",
    ),
    "an iterator": Case(
        NEXT,
        "batches = iter(loader)\nx, y = batches.next()",
        "batches = iter(loader)\nx, y = next(batches)",
        AttributeError,
    ),
    "an iterator at once": Case(
        NEXT, "x, y = iter(loader).next()", "x, y = next(iter(loader))", AttributeError
    ),
    "an iterator of batches and their numbers": Case(
        NEXT,
        "batches = enumerate(loader)\ni, (x, y) = batches.next()",
        "batches = enumerate(loader)\ni, (x, y) = next(batches)",
        AttributeError,
    ),
    "an iterator that is kept": Case(
        NEXT,
        "Reader(loader).read()",
        "Reader(loader).read()",
        AttributeError,
        READER.replace("NEXT", "self.batches.next()"),
        READER.replace("NEXT", "next(self.batches)"),
    ),
    "the best k": Case(
        VIEW,
        "accuracy(outputs, targets, topk=(1, 2))",
        "accuracy(outputs, targets, topk=(1, 2))",
        RuntimeError,
        ACCURACY.replace("VIEW", "view"),
        ACCURACY.replace("VIEW", "reshape"),
    ),
    "bytes": Case(
        "indexing by a uint8 mask",
        "outputs.data.masked_fill_((outputs > 0).byte(), 0)",
        "outputs.data.masked_fill_((outputs > 0).byte().bool(), 0)",
        RuntimeError,
    ),
    "one less a mask": Case(
        "subtraction with a bool mask",
        "1 - outputs.gt(0)",
        "1 - outputs.gt(0).long()",
        RuntimeError,
        said=True,
    ),
    "a negated mask": Case(
        "subtraction with a bool mask", "-outputs.eq(0)", "~outputs.eq(0)", RuntimeError, said=True
    ),
    "a sampler": Case(
        "an argument to torch's Sampler",
        "list(Order(data))",
        "list(Order(data))",
        TypeError,
        ORDER.replace("SOURCE", "source"),
        ORDER.replace("SOURCE", ""),
    ),
    "a scheduler": Case(
        "an argument of a learning rate scheduler",
        "torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, 'min', verbose=True, patience=2)",
        "torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, 'min', patience=2)",
        TypeError,
    ),
    "a function": Case(
        "calling an autograd.Function instance",
        "Double()(outputs)",
        "2 * outputs",
        RuntimeError,
        DOUBLE,
        said=True,
    ),
    "a name of Python 2": Case(
        "a Python 2 builtin",
        "for i in xrange(2):\n    isinstance(i, long)",
        "for i in range(2):\n    isinstance(i, int)",
        NameError,
    ),
    "a function of Python 2": Case(
        "a Python 2 builtin",
        "reduce(max, [1, 2])",
        "from functools import reduce\nreduce(max, [1, 2])",
        NameError,
        said=True,
    ),
    "a method of Python 2": Case(
        "a method of Python 2",
        "for k, v in {'a': 1}.iteritems():\n    total += v",
        "for k, v in {'a': 1}.items():\n    total += v",
        AttributeError,
    ),
    "print": Case(
        "`print >>file`",
        "print >> None, 'a'",
        "print('a', file=None)",
        TypeError,
        said=True,
    ),
}
SPELLED = {
    "a function of Python 2's itertools": Case(
        "itertools.izip",
        "list(izip([1], [2]))",
        "list(izip([1], [2]))",
        ImportError,
        "from itertools import izip",
        "from builtins import zip as izip",
    ),
    "one of several functions of Python 2's itertools": Case(
        "itertools.izip_longest",
        "list(longest([1], [2]))",
        "list(longest([1], [2]))",
        ImportError,
        "from itertools import izip_longest as longest, count",
        "from itertools import zip_longest as longest, count",
    ),
    "an attribute of numpy": Case(
        "numpy.float", "np.zeros(2).astype(np.float)", "np.zeros(2).astype(float)", AttributeError
    ),
    "an attribute by its full name": Case(
        "numpy.Inf", "numpy.Inf", "numpy.inf", AttributeError, "import numpy"
    ),
    "an imported name": Case(
        "numpy.NaN",
        "NaN",
        "NaN",
        ImportError,
        "from numpy import array, NaN",
        "from numpy import array, nan as NaN",
    ),
    "a transform": Case(
        "torchvision.transforms.Scale", "transforms.Scale(4)", "transforms.Resize(4)", AttributeError
    ),
    "an imported transform": Case(
        "torchvision.transforms.RandomSizedCrop",
        "Crop(4)",
        "Crop(4)",
        ImportError,
        "from torchvision.transforms import RandomSizedCrop as Crop, ToTensor",
        "from torchvision.transforms import RandomResizedCrop as Crop, ToTensor",
    ),
    "an abstract class": Case(
        "collections.Iterable",
        "isinstance(inputs, collections.Iterable)",
        "isinstance(inputs, collections.abc.Iterable)",
        AttributeError,
    ),
    "imported abstract classes": Case(
        "collections.Mapping",
        "Mapping",
        "Mapping",
        ImportError,
        "from collections import Mapping, Sequence as Several",
        "from collections.abc import Mapping, Sequence as Several",
    ),
    "a module's new place": Case(
        "torchvision.models.utils.load_state_dict_from_url",
        "load_state_dict_from_url",
        "load_state_dict_from_url",
        ImportError,
        "from torchvision.models.utils import load_state_dict_from_url",
        "from torch.hub import load_state_dict_from_url",
    ),
    "a module of another name": Case(
        "torch._six.container_abcs",
        "container_abcs.Mapping",
        "container_abcs.Mapping",
        ImportError,
        "from torch._six import container_abcs",
        "from collections import abc as container_abcs",
    ),
    "several of a module that is gone": Case(
        "torch._six.container_abcs",
        "string_classes",
        "string_classes",
        ImportError,
        "from torch._six import container_abcs, string_classes",
        "string_classes = (str, bytes)",
        said=True,
    ),
    "abstract classes and others": Case(
        "collections.Mapping",
        "Mapping",
        "Mapping",
        ImportError,
        "from collections import Mapping, OrderedDict",
        "from collections import OrderedDict\nfrom collections.abc import Mapping",
        said=True,
    ),
    "one of Python's own that is another's here": Case(
        "numpy.int",
        "np.int(3)",
        "np.int64(3)",
        AttributeError,
        "from builtins import float as int",
        said=True,
    ),
    "a filter": Case(
        "PIL.Image.ANTIALIAS", "Image.ANTIALIAS", "Image.LANCZOS", AttributeError, "from PIL import Image"
    ),
}
STILL = {
    "a part of a batch": "inputs.data[0]",
    "a mean that keeps its dimension": "loss.view(1, -1).mean(1, keepdim=True).data[0]",
    "a loss for each sample": "F.cross_entropy(outputs, targets, reduction='none').data[0]",
    "what makes a loss makes with other settings": "first = Both()(model(inputs), True)\nfirst.backward()\n"
    "other = Both()(outputs, False)\nother.data[0]",
    "a loss in one dimension": "other = torch.zeros(1)\nother = other + loss\nother.data[0]",
    "a gradient": "model.module.weight.grad.data[0]",
    "a weight": "next(model.parameters()).data[0]",
    "the old names of losses": "F.cross_entropy(outputs, targets, size_average=False).item()",
    "a volatile variable": "Variable(inputs, volatile=True)",
    "an old clip": "nn.utils.clip_grad_norm(model.parameters(), 1)",
    "an old upsampling": "F.upsample(outputs[None, None], scale_factor=2)",
    "another iterator": "bar = Bar()\nbar.next()",
    "a difference of numbers": "1 - (len(inputs) > 3)",
    "bytes as an index": "outputs[(outputs > 0).byte()]",
    "a view of rows": "outputs[:2].view(-1)",
    "the best one": "accuracy(outputs, targets, topk=(1,))[0].item()",
    "in an attempt": "try:\n    loss.data[0]\nexcept IndexError:\n    loss.item()",
    "in the answer to one": "try:\n    loss.item()\nexcept AttributeError:\n    loss.data[0]",
    "for another version": "if torch.__version__ < '0.4':\n    loss.data[0]",
    "for another version that is named": "loss.data[0] if int(version[0]) < 1 else loss.item()",
    "a table of some other kind": "tables(inputs).mean()[0]",
    "what several things come out of": "nn.AdaptiveLogSoftmaxWithLoss(4, 4, [2])(outputs, targets)[0]",
    "a name of Python 2 that is given": "xrange = range\nxrange(2)",
    "a name of Python 2 in an attempt": "try:\n    raw_input\nexcept NameError:\n    pass",
    "a name of Python 2 after a question": "import sys\nsys.version_info[0] == 2 and isinstance(loss, unicode)",
    "for what has it": "if hasattr(np, 'float'):\n    np.float",
}
STILL_HEAD = (
    ACCURACY.replace("VIEW", "view")
    + "\nclass Bar:\n    def next(self):\n        pass\n\nversion = torch.__version__.split('.')\n\n"
    + "class Both(nn.Module):\n    def forward(self, x, one):\n        return x.sum() if one else x.sum(1)\n\n"
    + "def nobody_calls_it():\n    return np.float\n\n"
    + "def tables(rows):\n    class Table:\n        def mean(self):\n            return [1.0]\n\n"
    + "    return {'a': Table()}['a']\n"
)


def run(text: str) -> None:
    exec(compile(text, "train.py", "exec"), {"__name__": "__main__"})


def mended(text: str) -> tuple[str, tuple[Outdated, ...]]:
    linked = link(Project.of({PATH: text}))
    return linked.project.files[PATH].text, linked.outdated


def skip_unless_gone(since: str) -> None:
    """Skip where an older version is installed, which still has it."""
    name, _, wanted = since.partition(" ")
    package = {"PyTorch": "torch", "NumPy": "numpy", "SciPy": "scipy", "Pillow": "PIL"}.get(name, name)
    if package != "Python":
        pytest.importorskip(package, minversion=wanted)


@pytest.mark.parametrize("case", [*FORMS.values(), *SPELLED.values()], ids=[*FORMS, *SPELLED])
def test_what_is_gone_fails_and_what_is_made_of_it_works(case: Case) -> None:
    skip_unless_gone(next(row.since for row in REMOVED if row.what == case.row))
    before, after = case.texts
    with pytest.raises(case.error):
        run(before)
    run(after)
    text, found = mended(before)
    assert text == (before if case.said else after)
    said = " ".join(fact.what for fact in found)
    (row,) = {it.what for it in REMOVED if f"`{it.what}`" in said or f", {it.what}, " in said}
    assert row == case.row
    assert all(bool(fact.mends) is not case.said for fact in found)
    assert mended(after)[1] == ()


@pytest.mark.parametrize("name", STILL)
def test_what_still_runs_stays_as_it_is(name: str) -> None:
    text = Case("", STILL[name], "", ValueError, STILL_HEAD).texts[0]
    run(text)
    assert mended(text) == (text, ())


def test_the_list_is_tested() -> None:
    assert {case.row for case in FORMS.values()} == {row.what for row in WRITTEN}


@pytest.mark.parametrize("name", NAMES)
def test_names_in_the_list_are_gone(name: str) -> None:
    """By asking for them, or by calling what is still there to say so."""
    module, _, last = name.rpartition(".")
    skip_unless_gone(NAMES[name].since)
    with pytest.raises((AttributeError, ImportError, RuntimeError)):
        value = getattr(importlib.import_module(module), last)
        if module == "torch":
            value(torch.eye(2), torch.eye(2)) if last in ("solve", "lstsq") else value(torch.eye(2))
    where, now = NAMES[name].place
    if where:
        assert getattr(importlib.import_module(where), now) is not None
        assert where != "builtins" or now in dir(builtins)


@pytest.mark.parametrize("name", MODULES)
def test_modules_in_the_list_are_gone(name: str) -> None:
    with pytest.raises(ImportError):
        importlib.import_module(name)
    text = PROGRAM.replace("# HEAD", f"import {name}, json as other\nfrom {name} import this\n")
    after, found = mended(text)
    assert [(fact.at.span.line, fact.lines) for fact in found] == [(13, (14,))]
    now = MODULES[name].module
    assert [bool(fact.mends) for fact in found] == [bool(now)]
    if now:
        assert f"import {now} as {name}, json as other\nfrom {now} import this\n" in after
        assert now.partition(".")[0] in sys.stdlib_module_names or importlib.import_module(
            now
        )  # perhaps no tkinter


def test_modules_of_the_project_are_not_gone() -> None:
    text = PROGRAM.replace("# HEAD", "import commands\nfrom Queue import Queue\n")
    texts = {PATH: text, PATH.with_name("commands.py"): "", PATH.with_name("Queue.py"): "Queue = list\n"}
    assert link(Project.of(texts)).outdated == ()


def test_only_what_a_program_may_run_is_mended() -> None:
    """Not what another file would run as a program, nor the files that no program needs; all of a kind in a file."""
    step = "import tools\ntools.value(loss)"
    texts = {
        PATH: Case("", step, "", ValueError).texts[0],
        PATH.with_name("tools.py"): "import numpy as np\n\n\ndef value(x):\n    return np.float(x)\n\n\n"
        "def other(x):\n    return np.int(x), np.float(x)\n\n\nif __name__ == '__main__':\n    print(np.Inf)\n",
        PATH.with_name("other.py"): "import numpy as np\n\nprint(np.Inf)\n",
    }
    conversion = convert(Project.of(texts))
    changed = {change.path.name: change.after for change in conversion.changes}
    assert changed.keys() == {"train.py", "tools.py"}
    assert changed["tools.py"] == texts[PATH.with_name("tools.py")].replace("np.float", "float")


def test_what_is_said_counts_lines_of_the_file() -> None:
    text = FORMS["an accuracy"].texts[0].replace("targets in loader", "targets in loader ")
    conversion = convert(Project.of({PATH: text}))
    (finding,) = (it for it in conversion.findings if it.rule == "DDP602")
    assert finding.severity is Severity.NOTE
    assert (
        text.splitlines()[finding.location.span.line - 1].strip() == "meter.update(first[0], inputs.size(0))"
    )
    assert re.search(r"fails since PyTorch 1.0 \(also in line \d+\)", finding.message)
    assert finding.help == "replaced by `.item()`; no action needed"
    (change,) = conversion.changes
    assert change.before == text
    assert "ddp.batch_loss(loss).item()" in change.after


def test_what_is_only_said_is_no_reason_not_to_convert() -> None:
    conversion = convert(Project.of({PATH: FORMS["a function"].texts[0]}))
    (finding,) = (it for it in conversion.findings if it.rule == "DDP602")
    assert finding.severity is Severity.NOTE and not finding.edits and not finding.is_left
    assert conversion.changes and not conversion.errors
