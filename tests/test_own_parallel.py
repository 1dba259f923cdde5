"""What a program becomes whose DataParallel is not torch's own class."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import ungathered as convert
from own_parallel import APPLY, BALANCED, OWN, SCATTER, with_class
from programs import PATH, PROGRAM, WRAP

from dp2ddp.changes import Conversion
from dp2ddp.source import Project


def converted(*texts: str, **files: str) -> Conversion:
    paths = {PATH: texts[0]} | {PATH.with_name(f"other{place}.py"): it for place, it in enumerate(texts[1:])}
    paths |= {PATH.with_name(f"{name}.py"): text for name, text in files.items()}
    return convert(Project.of(paths))


def after(conversion: Conversion, path: Path = PATH) -> str:
    (change,) = [it for it in conversion.changes if it.path == path]
    return change.after


@pytest.mark.parametrize("name", OWN)
def test_batches_stay_whole_and_the_class_stays(name: str) -> None:
    conversion = converted(OWN[name])
    assert not conversion.errors
    assert [it.tier for it in conversion.scripts] == ["whole batch"]
    text = after(conversion)
    assert "nn.DataParallel" not in text.replace("ddp.DataParallel", "")
    assert "DistributedSampler" not in text
    again = convert(Project.of({PATH: text}))
    assert not again.changes and not again.errors


def test_functions_become_those_of_the_runtime() -> None:
    text = after(converted(OWN["a smaller part for the first"]))
    assert "class Balanced(ddp.DataParallel):" in text
    assert "return ddp.parallel.parallel_apply(replicas, inputs, kwargs, device_ids[: len(inputs)])" in text
    assert APPLY not in text and SCATTER in text
    text = after(converted(OWN["replicas by hand"]))
    for name in ("scatter", "replicate", "gather", "parallel_apply"):
        assert f"ddp.parallel.{name}(" in text and f"nn.parallel.{name}" not in text.replace("ddp", "")


def test_a_copy_derives_from_the_runtime_s() -> None:
    text = after(converted(OWN["a copy of torch's class"]))
    assert "class Chunked(ddp.DataParallel):" in text
    assert "from torch.nn.modules import Module" not in text


FORWARDING = """
class Parallel(nn.DataParallel):
    def __init__(self, module, name="net", device_ids=None):
        super().__init__(module, device_ids=device_ids)
        self.name = name

    def __getattr__(self, key):
        try:
            return super().__getattr__(key)
        except AttributeError:
            return getattr(self.module, key)
"""


def test_a_class_that_only_adds_to_it_is_sharded() -> None:
    text = with_class(FORWARDING, "if torch.cuda.device_count() > 1:\n    model = Parallel(model)")
    conversion = converted(text.replace("optimizer = ", "print(model.in_features)\noptimizer = "))
    assert not conversion.errors
    assert [it.tier for it in conversion.scripts] == ["sharded"]
    assert "class Parallel(ddp.DistributedDataParallel):" in after(conversion)
    assert "\nmodel = Parallel(model)\n" in after(conversion)


AGAIN = {
    "items by key": "nets = {'a': model}\nfor key in nets:\n    nets[key] = Parallel(nets[key])\nmodel = nets['a']",
    "items of a list": "nets = [model]\nfor i in range(1):\n    nets[i] = Parallel(nets[i])\nmodel = nets[0]",
    "items with their keys": "nets = {'a': model}\nfor k, v in nets.items():\n    nets[k] = Parallel(v)\nmodel = nets['a']",
    "a comprehension": "nets = {'a': model}\nnets = {k: Parallel(v) for k, v in nets.items()}\nmodel = nets['a']",
    "an update": "nets = {'a': model}\nnets.update({k: Parallel(v) for k, v in nets.items()})\nmodel = nets['a']",
    "layers by name": "nets = nn.ModuleDict({'a': model})\nfor k in nets:\n    nets[k] = Parallel(nets[k])\nmodel = nets['a']",
    "an attribute": "nets = argparse.Namespace(a=model)\nnets.a = Parallel(nets.a)\nmodel = nets.a",
    "attributes by name": "class Nets:\n    pass\n\n\nnets = Nets()\nnets.a = model\n"
    "for name in ['a']:\n    setattr(nets, name, Parallel(getattr(nets, name)))\nmodel = nets.a",
    "one of two classes": "class Other(Parallel):\n    pass\n\n\nnets = {'a': model}\n"
    "for key in nets:\n    nets[key] = Other(nets[key]) if key == 'b' else Parallel(nets[key])\nmodel = nets['a']",
}
"""Wraps put where what they wrap was, so that one may seem to wrap itself."""


@pytest.mark.parametrize("name", AGAIN)
def test_one_that_hands_on_stands_where_its_model_was(name: str) -> None:
    text = with_class(FORWARDING, AGAIN[name], "import argparse")
    conversion = converted(text.replace("optimizer = ", "print(model.in_features)\noptimizer = "))
    assert not conversion.errors
    assert [it.tier for it in conversion.scripts] == ["sharded"]
    assert "class Parallel(ddp.DistributedDataParallel):" in after(conversion)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "        self.name = name\n",
            "        self.scale = nn.Parameter(torch.ones(2))\n",
            "its own layers",
        ),
        (
            "    def __getattr__",
            "    def forward(self, *inputs):\n        return super().forward(*inputs)\n\n    def __getattr__",
            "overrides `forward`",
        ),
        (
            "    model = Parallel(model)",
            "    model = Parallel(model)\nelse:\n    model = model.cuda()",
            "wrapped only under `if ",
        ),
        ("Parallel(model)", "Parallel(*[model])", "wraps is unknown"),
    ],
)
def test_one_that_does_more_has_whole_batches(old: str, new: str, reason: str) -> None:
    text = with_class(FORWARDING, "if torch.cuda.device_count() > 1:\n    model = Parallel(model)")
    text = text.replace("data = ", "args = __import__('config').read()\ndata = ", 1)
    assert old in text
    conversion = converted(text.replace(old, new))
    assert not conversion.errors
    assert [it.tier for it in conversion.scripts] == ["whole batch"]
    assert any(reason in it.message for it in conversion.findings)
    assert "class Parallel(ddp.DataParallel):" in after(conversion)


def test_devices_that_are_handed_up_are_chosen() -> None:
    text = with_class(FORWARDING, "model = Parallel(model, 'net', [0, 2])")
    assert "ddp.init(devices=[0, 2])" in after(converted(text))


def test_programs_that_share_the_class_share_the_form() -> None:
    plain = with_class("", "model = Parallel(model)").replace(
        "import torch\n", "import torch\nfrom own import Parallel\n", 1
    )
    looking = plain.replace(
        "loss = criterion(outputs, targets.cuda())", "loss = torch.cdist(outputs, outputs).mean()"
    )
    own = "from torch import nn\n" + FORWARDING
    assert [it.tier for it in converted(plain, own=own).scripts] == ["sharded"]
    conversion = converted(plain, looking, own=own)
    assert not conversion.errors
    assert [it.tier for it in conversion.scripts] == ["whole batch", "whole batch"]
    assert "class Parallel(ddp.DataParallel):" in after(conversion, PATH.with_name("own.py"))


def test_programs_that_only_predict_with_the_class_are_said() -> None:
    plain = with_class("", "model = Parallel(model)").replace(
        "import torch\n", "import torch\nfrom own import Parallel\n", 1
    )
    predicts = (
        "import torch\nfrom own import Parallel\n\nprint(Parallel(torch.nn.Linear(8, 2))(torch.ones(3, 8)))\n"
    )
    conversion = converted(plain, predicts, own="from torch import nn\n" + FORWARDING)
    assert not conversion.errors
    (note,) = [it for it in conversion.findings if not it.edits]
    assert "uses one GPU" in note.message and note.location.path == PATH.with_name("other0.py")


def test_a_class_that_nothing_is_trained_with_stays() -> None:
    conversion = converted(PROGRAM.replace("data = ", BALANCED + "\n\ndata = ", 1))
    assert "class Balanced(nn.DataParallel):" in after(conversion)


def test_a_state_dict_of_its_own_is_asked_for() -> None:
    text = with_class(
        FORWARDING
        + "\n    def state_dict(self, *args, **kwargs):\n        return self.module.state_dict(*args, **kwargs)\n",
        "model = Parallel(model)",
    )
    text += "torch.save(model.state_dict(), 'model.pt')\n"
    assert "ddp.save(model.state_dict(), 'model.pt')" in after(converted(text))


GEOMETRIC = "from torch_geometric.nn import DataParallel\n"


@pytest.mark.parametrize(
    "imported", [GEOMETRIC, "from vendor.sync_batchnorm import DataParallelWithCallback as DataParallel\n"]
)
def test_a_known_class_from_elsewhere_is_adapted(imported: str) -> None:
    conversion = converted(imported + PROGRAM.replace(WRAP, "model = DataParallel(model)"))
    assert not conversion.errors
    assert imported in after(conversion)
    assert "model = ddp.adapted(DataParallel)(model)" in after(conversion)
    derived = "class Mine(DataParallel):\n    pass\n\n\n"
    text = after(
        converted(
            imported + PROGRAM.replace("data = ", derived + "data = ", 1).replace(WRAP, "model = Mine(model)")
        )
    )
    assert "class Mine(ddp.adapted(DataParallel)):" in text


def test_one_of_a_package_that_nothing_is_known_of_is_said() -> None:
    (error,) = converted(
        "from things import MyDataParallel\n" + PROGRAM.replace(WRAP, "model = MyDataParallel(model)")
    ).errors
    assert "things.MyDataParallel, neither torch's" in error.message


def test_one_that_is_imported_where_it_is_installed_may_take_the_place_of_the_project_s() -> None:
    """Once the project's class is the runtime's, this is still no other way to use several GPUs."""
    own = """
from torch.nn.parallel.data_parallel import DataParallel


class Own(DataParallel):
    def replicate(self, module, device_ids):
        return super().replicate(module, device_ids)
"""
    imported = """
try:
    from things import MyDataParallel as Own
except ImportError:
    from own import Own


def again(module):
    return Own(again(module.module)) if isinstance(module, nn.DataParallel) else module


"""
    text = PROGRAM.replace("data = ", imported + "data = ", 1).replace(WRAP, "model = Own(again(model))")
    conversion = convert(Project.of({PATH: text, PATH.with_name("own.py"): own}))
    assert not conversion.errors
    changed = {change.path.name: change.after for change in conversion.changes}
    assert "class Own(ddp.DataParallel):" in changed["own.py"]


CALLING = """
def call_back(copies):
    for number, copy in enumerate(copies):
        for layer in copy.modules():
            if hasattr(layer, "__data_parallel_replicate__"):
                layer.__data_parallel_replicate__(None, number)


class Calling(nn.DataParallel):
    def replicate(self, module, device_ids):
        copies = super(Calling, self).replicate(module, device_ids)
        call_back(copies)
        return copies


def patch(model):
    old = model.replicate

    def replicate(module, device_ids):
        copies = old(module, device_ids)
        call_back(copies)
        return copies

    model.replicate = replicate
"""


@pytest.mark.parametrize("wrap", ["model = Calling(model)", WRAP + "\npatch(model)"])
def test_callbacks_are_for_both_forms(wrap: str) -> None:
    text = with_class(CALLING, wrap)
    conversion = converted(text)
    assert not conversion.errors
    assert [it.tier for it in conversion.scripts] == ["sharded"]
    assert "ddp.DistributedDataParallel" in after(conversion)
    other = text.replace("        call_back(copies)\n", "        copies.reverse()\n")
    assert [it.tier for it in converted(other).scripts] == ["whole batch"]


def test_callbacks_of_a_package_keep_the_batches_whole() -> None:
    text = "from sync_batchnorm import patch_replication_callback\n" + PROGRAM.replace(
        WRAP, WRAP + "\npatch_replication_callback(model)"
    )
    assert [it.tier for it in converted(text).scripts] == ["whole batch"]


def test_either_class_is_not_guessed() -> None:
    text = with_class(FORWARDING, "kind = Parallel if data else nn.DataParallel\nmodel = kind(model)")
    (error,) = converted(text).errors
    assert "nn.DataParallel itself" in error.message


WAITING = """
class SyncNorm(nn.BatchNorm1d):
    def __init__(self, features, sync=True):
        super().__init__(features)
        self.others = Queue(1) if sync else None

    def forward(self, x):
        if x.get_device() == 0:
            return super().forward(torch.cat([x, self.others.get()]))[: len(x)]
        self.others.put(x)
        return super().forward(x)
"""


def test_layers_that_wait_for_other_replicas_are_said() -> None:
    text = with_class(WAITING, WRAP, "from queue import Queue")
    text = text.replace("nn.Linear(8, 2).cuda()", "nn.Sequential(nn.Linear(8, 2), SyncNorm(2)).cuda()")
    (error,) = converted(text).errors
    assert "this project's SyncNorm hangs" in error.message and "SyncBatchNorm" in error.help
    assert not converted(text.replace("SyncNorm(2)", "nn.BatchNorm1d(2)")).errors
    several = text.replace("SyncNorm(2)", "SyncNorm(2),\n    Other(2)")
    several = several.replace("model =", "class Other(SyncNorm):\n    pass\n\n\nmodel =", 1)
    found = {it.message.split(" hangs")[0] for it in converted(several).errors}
    assert found == {"this project's SyncNorm", "this project's Other"}, "each by its own name"
    asking = several + "print([it for it in model.modules() if isinstance(it, (SyncNorm, Other))])\n"
    assert len(converted(asking).errors) == 2, "what is asked for does not hang"


MEETING = """
class Master:
    def __init__(self):
        self.sums = Queue()

    def run(self, sums):
        return sum((self.sums.get() for _ in range(self.sums.qsize())), sums)


class SyncNorm(nn.BatchNorm1d):
    def __init__(self, features):
        super().__init__(features)
        self.master = Master()

    def forward(self, x):
        return super().forward(x - self.master.run(0))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(8, 2), SyncNorm(2)

    def forward(self, x):
        return self.norm(self.layer(x))
"""


def test_where_layers_that_are_called_back_meet_is_not_said() -> None:
    text = with_class(MEETING, WRAP, "from queue import Queue").replace(
        "nn.Linear(8, 2).cuda()", "Net().cuda()"
    )
    text += "model.module(torch.ones(4, 8).cuda())\n"
    assert any("completion order" in it.message for it in converted(text).findings)
    forward = "    def forward(self, x):\n        return super()"
    callback = "    def __data_parallel_replicate__(self, ctx, number):\n        pass\n\n"
    text = text.replace(forward, callback + forward)
    assert not any("completion order" in it.message for it in converted(text).findings)


def test_layers_that_are_called_back_are_not() -> None:
    text = with_class(
        WAITING + "\n    def __data_parallel_replicate__(self, ctx, number):\n        pass\n",
        WRAP,
        "from queue import Queue",
    )
    text = text.replace("nn.Linear(8, 2).cuda()", "nn.Sequential(nn.Linear(8, 2), SyncNorm(2)).cuda()")
    assert not converted(text).errors


CHOSEN = """
def norm(kind):
    if kind == "sync":
        from encoding.nn import BatchNorm1d
        return BatchNorm1d
    return nn.BatchNorm1d
"""


def test_of_several_layers_one_that_waits_is_no_reason_to_refuse() -> None:
    text = with_class(CHOSEN, WRAP, "import sys")
    layers = "nn.Sequential(nn.Linear(8, 2), norm(sys.argv[-1])(2)).cuda()"
    result = converted(text.replace("nn.Linear(8, 2).cuda()", layers))
    assert not result.errors and [it.tier for it in result.scripts]
    assert any("encoding.nn.BatchNorm1d is chosen here" in it.message for it in result.findings)
    always = text.replace("return nn.BatchNorm1d", "return BatchNorm1d")
    (error,) = converted(always.replace("nn.Linear(8, 2).cuda()", layers)).errors
    assert "hangs with DDP" in error.message
