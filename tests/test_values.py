"""Values that reach a line by another way than the plain one: how they are written, wrapped, pickled, handed on.

Each program is really converted, and trains on 2 and 3 ranks what it trained before: it prints the same and leaves the
same files.
"""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from parity.harness import Lab
from programs import PATH
from torch import nn

from dp2ddp.changes import Conversion
from dp2ddp.convert import convert, convert_paths
from dp2ddp.emit.text import report as told
from dp2ddp.source import Project

HEAD = """\
import argparse
import os
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
data = TensorDataset(torch.randn(48, 8), torch.randint(2, (48,)))
loader = DataLoader(data, batch_size=12)
"""
MODEL = "model = nn.DataParallel(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)))\n"
STEPS = """\
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step = 0
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        step += 1
"""
END = 'print("%.8f" % sum(p.abs().sum().item() for p in model.parameters()))\n'


def converted(folder: Path, program: str | Mapping[str, str], *asked: str) -> Conversion:
    """Write a program and convert it; the changes are written over it."""
    files = {"train.py": program} if isinstance(program, str) else program
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    done = convert_paths([folder / name for name in asked or ("train.py",)])
    for change in done.changes:
        change.path.write_bytes(change.after_bytes)
    return done


def text_of(program: str) -> str:
    """A program of one file after its conversion."""
    done = convert(Project.of({Path("/example/train.py"): program}))
    return done.changes[0].after


def alike(lab: Lab, tmp_path: Path, program: str, *files: str) -> Path:
    """Have a program do on 2 and on 3 ranks what it did on one before; the folder where 2 ranks ran."""
    (tmp_path / "before").mkdir()
    (tmp_path / "before" / "train.py").write_text(program)
    converted(tmp_path / "after", program)
    before = lab.run(tmp_path / "before" / "train.py", recorded=False).ok()
    for processes in (3, 2):
        after = lab.run(tmp_path / "after" / "train.py", processes=processes, recorded=False).ok()
        assert after.printed == before.printed
        assert after.files() == before.files()
        for name in files:
            assert (after.folder / name).read_bytes() == (before.folder / name).read_bytes()
    return after.folder


# How an assignment is written

COUNTED = HEAD + MODEL + """\
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kwargs{dict} = {{"num_workers": 2}}
use{bool} = torch.cuda.device_count() > 1
test_loader = DataLoader(data, batch_size=12, **kwargs)
for epoch in range(2):
    total, count = 0.0, 0
    for x, y in loader:
        optimizer.zero_grad()
        out{tensor} = model(x)
        loss{tensor} = criterion(out, y)
        loss.backward()
        optimizer.step()
        {total}
        {count}
    print("%.8f" % (total / count), count)
    correct{int} = 0
    model.eval()
    with torch.no_grad():
        for x, y in test_loader:
            {correct}
    model.train()
    print(correct)
"""
PLAIN = {
    "dict": "",
    "bool": "",
    "tensor": "",
    "int": "",
    "total": "total += loss.item() * x.size(0)",
    "count": "count += x.size(0)",
    "correct": "correct += (model(x).argmax(1) == y).sum().item()",
}
ANNOTATED = {"dict": ": dict", "bool": ": bool", "tensor": ": torch.Tensor", "int": ": int"}
WRITTEN_OUT = {
    "total": "total = total + loss.item() * x.size(0)",
    "count": "count = x.size(0) + count",
    "correct": "correct = correct + (model(x).argmax(1) == y).sum().item()",
}


@pytest.mark.parametrize("spelled", [*({key: text} for key, text in {**ANNOTATED, **WRITTEN_OUT}.items())])
def test_an_assignment_is_read_alike_however_it_is_written(spelled: dict[str, str]) -> None:
    plain = text_of(COUNTED.format(**PLAIN))
    assert "ddp.sum((total, count))" in plain and "ddp.local_workers(2)" in plain
    other = text_of(COUNTED.format(**{**PLAIN, **spelled}))
    (key, text), *_ = spelled.items()
    restored = other.replace(text, PLAIN[key]) if key in WRITTEN_OUT else other.replace(f"{text} =", " =")
    assert restored == plain


def test_sums_that_are_written_out_are_the_original_s(lab: Lab, tmp_path: Path) -> None:
    alike(lab, tmp_path, COUNTED.format(**{**ANNOTATED, **WRITTEN_OUT, "dict": ": dict"}))


def test_a_meter_may_write_its_sums_out() -> None:
    meter = """\
class Meter:
    def __init__(self):
        self.reset()
    def reset(self):
        self.sum: float = 0
        self.count: int = 0
    def update(self, value, n=1):
        self.sum = self.sum + value * n
        self.count = n + self.count
"""
    program = HEAD + meter + MODEL + STEPS + """\
meter = Meter()
model.eval()
with torch.no_grad():
    for x, y in DataLoader(data, batch_size=12):
        meter.update((model(x).argmax(1) == y).double().mean().item(), x.size(0))
print(meter.sum / meter.count)
"""
    changed = text_of(program)
    shorter = program.replace("self.sum = self.sum + value * n", "self.sum += value * n")
    shorter = shorter.replace("self.count = n + self.count", "self.count += n")
    assert changed.partition("meter = Meter()")[2] == text_of(shorter).partition("meter = Meter()")[2]
    assert "ddp.s" in changed.partition("meter = Meter()")[2]


def test_a_static_method_s_arguments_keep_their_places() -> None:
    parsed = "parser = argparse.ArgumentParser()\nparser.add_argument('--gpus', type=int, nargs='*')\n"
    program = HEAD.replace("torch.set", f"{parsed}args = parser.parse_args()\ntorch.set") + (
        "class Maker:\n    @staticmethod\n    def make(module, gpus):\n"
        "        return nn.DataParallel(module, device_ids=gpus)\n\n"
        "model = Maker().make(nn.Linear(8, 2), args.gpus)\n" + STEPS
    )
    assert "ddp.init(devices=args.gpus)" in text_of(program)


# How many devices are asked for

OPTIONS = HEAD.replace(
    "torch.set_default",
    "parser = argparse.ArgumentParser()\nparser.add_argument('--ngpu', type=int, default=1)\n"
    "args = parser.parse_args()\ntorch.set_default",
)
CHOSEN = {
    "an annotated flag": (
        "model = nn.Linear(8, 2)\nseveral: bool = args.ngpu > 1\nif several:\n    model = nn.DataParallel(model)\n",
        "devices=None if args.ngpu > 1 else 1",
    ),
    "one of two conditions": (
        "model = nn.Linear(8, 2)\nif torch.cuda.device_count() > 1 and args.ngpu > 1:\n"
        "    model = nn.DataParallel(model)\n",
        "devices=None if args.ngpu > 1 else 1",
    ),
    "one of two that lead past it": (
        "model = nn.Linear(8, 2)\nif not torch.cuda.is_available() or args.ngpu == 1:\n    pass\n"
        "else:\n    model = nn.DataParallel(model)\n",
        "devices=1 if args.ngpu == 1 else None",
    ),
    "an expression": (
        "model = nn.Linear(8, 2)\nmodel = nn.DataParallel(model) if args.ngpu > 1 else model\n",
        "devices=None if args.ngpu > 1 else 1",
    ),
    "a chosen class": (
        "wrap = nn.DataParallel if args.ngpu > 1 else lambda module: module\nmodel = wrap(nn.Linear(8, 2))\n",
        "devices=None if args.ngpu > 1 else 1",
    ),
    "a device that is chosen by an option": (
        "if args.ngpu == 0:\n    device = 'cpu'\nelse:\n    device = 'cuda'\nmodel = nn.Linear(8, 2)\n"
        "if device == 'cuda':\n    model = nn.DataParallel(model)\n",
        "ddp.use_devices(None if device == 'cuda' else 0)",
    ),
    "a default": (
        "def build(ngpu=1):\n    module = nn.Linear(8, 2)\n    if ngpu > 1:\n"
        "        module = nn.DataParallel(module)\n    return module\n\nmodel = build()\n",
        "ddp.init(devices=1)",
    ),
    "an early return": (
        "def parallel(module, ngpu):\n    if ngpu <= 1:\n        return module\n"
        "    return nn.DataParallel(module)\n\nmodel = parallel(nn.Linear(8, 2), args.ngpu)\n",
        "devices=1 if args.ngpu <= 1 else None",
    ),
}


@pytest.mark.parametrize(("wrap", "devices"), CHOSEN.values(), ids=CHOSEN)
def test_one_device_stays_one(wrap: str, devices: str) -> None:
    assert devices in text_of(OPTIONS + wrap + STEPS)


def test_a_model_that_is_led_past_its_wrap_draws_whole_batches(lab: Lab, tmp_path: Path) -> None:
    wrap, _ = CHOSEN["an early return"]
    alike(lab, tmp_path, OPTIONS + wrap + STEPS + END)


# What a checkpoint holds


def test_an_averaged_model_keeps_what_is_its_own(lab: Lab, tmp_path: Path) -> None:
    program = (
        HEAD
        + MODEL
        + """\
from torch.optim.swa_utils import AveragedModel
averaged = AveragedModel(model.module)
def save(net, path):
    torch.save(net.state_dict(), path)
"""
        + STEPS
        + "    averaged.update_parameters(model.module)\nsave(model, 'model.pt')\nsave(averaged, 'averaged.pt')\n"
        + END
    )
    folder = alike(lab, tmp_path, program)
    averaged = torch.load(folder / "averaged.pt")
    assert averaged["n_averaged"] == 2 and "module.0.weight" in averaged
    assert sorted(torch.load(folder / "model.pt")) == ["0.bias", "0.weight", "2.bias", "2.weight"]


def test_the_bare_model_is_pickled(lab: Lab, tmp_path: Path) -> None:
    program = HEAD + "import copy\nimport pickle\n" + MODEL + STEPS + """\
torch.save(model, "model.pt")
torch.save({"net": model, "epoch": 2}, "in.pt")
torch.save(copy.deepcopy(model), "copy.pt")
with open("model.pkl", "wb") as file:
    pickle.dump(model, file)
""" + END
    folder = alike(lab, tmp_path, program)
    for name in ("model.pt", "in.pt", "copy.pt", "model.pkl"):
        assert b"dp2ddp" not in (folder / name).read_bytes()
    held = torch.load(folder / "in.pt", weights_only=False)["net"]
    assert type(held) is nn.Sequential and sorted(held.state_dict())[0] == "0.bias"
    read = (
        "import torch; print(torch.load('in.pt', weights_only=False)['net'](torch.ones(1, 8).double()).shape)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", read], cwd=folder, capture_output=True, text=True)
    assert done.stdout == "torch.Size([1, 2])\n", done.stderr


def test_a_whole_model_that_is_loaded_trains_on_as_it_did(lab: Lab, tmp_path: Path) -> None:
    resumes = "if os.path.exists('model.pt'):\n    model = torch.load('model.pt', weights_only=False)\n"
    program = HEAD + MODEL + resumes + STEPS + "torch.save(model, 'model.pt')\n" + END
    (tmp_path / "before").mkdir()
    (tmp_path / "before" / "train.py").write_text(program)
    done = converted(tmp_path / "after", program)
    assert done.scripts[0].tier == "whole batch"
    printed = []
    for script, processes in (("before/train.py", 1), ("after/train.py", 2)):
        first = lab.run(tmp_path / script, processes=processes, recorded=False).ok()
        again = lab.run(tmp_path / script, processes=processes, recorded=False, folder=first.folder).ok()
        printed.append((first.printed, again.printed))
    assert printed[0] == printed[1] and printed[0][0] != printed[0][1]


def test_what_is_pickled_otherwise_is_said(tmp_path: Path) -> None:
    saves = (
        "torch.save({'net': model}, 'in.pt')\nimport pickle\npickle.dump([model], open('all.pkl', 'wb'))\n"
    )
    done = converted(tmp_path, HEAD + MODEL + STEPS + saves)
    said = " ".join(it.message for it in done.findings)
    assert "now saves the bare model" in said and "loading that needs dp2ddp" in said


KEEPER = """\
class Keeper:
    def __init__(self, model):
        self.parts = {"net": model}

    def save(self, path):
        torch.save(self, path)


Keeper(model).save("all.pt")
"""


@pytest.mark.parametrize(
    ("saves", "loads"),
    [
        ("torch.save(model, 'all.pt')\n", ""),
        ("import copy\ntorch.save(copy.deepcopy(model), 'all.pt')\n", ""),
        ("torch.save({'net': model}, 'all.pt')\n", "['net']"),
        ("torch.save([1, {'net': model}], 'all.pt')\n", None),
        ("import pickle\npickle.dump(model, open('all.pt', 'wb'))\n", None),
        (KEEPER, None),
    ],
)
def test_a_wrapped_model_that_is_saved_bare_is_said(tmp_path: Path, saves: str, loads: str | None) -> None:
    """In the summary, and of the file beside it that takes the wrapper off what it loads."""
    read = f"import torch\nnet = torch.load('all.pt', weights_only=False){loads}.module\nprint(net)\n"
    program = {"train.py": HEAD + MODEL + STEPS + saves} | ({"read.py": read} if loads is not None else {})
    done = converted(tmp_path, program)
    said = told(done, written=True)
    assert re.search(r"train.py:\d+: .* now saves the bare model, .* remove `.module`", said), said
    assert loads is None or re.search(r"read.py:2: .*remove `.module`", said), said


PUTS = {
    "entries": """\
    own = model.state_dict()
    for k, v in checkpoint["state_dict"].items():
        if k in own and own[k].size() == v.size():
            own[k] = v
    model.load_state_dict(own)
""",
    "a name": """\
    state = checkpoint["state_dict"]
    own = model.state_dict()
    for name, param in state.items():
        if name not in own:
            continue
        own[name].copy_(param)
""",
    "asked directly": """\
    found = {k: v for k, v in checkpoint["state_dict"].items() if k in model.state_dict()}
    model.load_state_dict(found, strict=False)
""",
    "a list of keys": """\
    keys = list(model.state_dict().keys())
    found = {k: v for k, v in checkpoint["state_dict"].items() if k in keys}
    model.load_state_dict(found, strict=False)
""",
    "sets of keys": """\
    own = model.state_dict()
    state = checkpoint["state_dict"]
    for k in set(own) & set(state):
        own[k] = state[k]
    model.load_state_dict(own)
""",
    "over the own keys": """\
    own = model.state_dict()
    state = checkpoint["state_dict"]
    for k in own:
        if k in state:
            own[k] = state[k]
    model.load_state_dict(own)
""",
    "with a default": """\
    own = model.state_dict()
    for k in own.keys():
        own[k] = checkpoint["state_dict"].get(k, own[k])
    model.load_state_dict(own)
""",
    "every key": """\
    own = model.state_dict()
    new = {k: checkpoint["state_dict"][k] for k in own}
    model.load_state_dict(new)
""",
    "an update": """\
    own = model.state_dict()
    own.update(checkpoint["state_dict"])
    model.load_state_dict(own)
""",
    "in a function": """\
    found = fitting(checkpoint["state_dict"], model.state_dict())
    model.load_state_dict(found, strict=False)
""",
    "in a function by names": """\
    state = checkpoint["state_dict"]
    own = model.state_dict()
    model.load_state_dict(fitted(state, own))
""",
    "loaded there": """\
    own = model.state_dict()
    for k, v in torch.load(path)["state_dict"].items():
        if k in own:
            own[k] = v
    model.load_state_dict(own)
""",
    "an entry or all": """\
    own = model.state_dict()
    for k, v in checkpoint.get("state_dict", checkpoint).items():
        if k in own:
            own[k] = v
    model.load_state_dict(own)
""",
    "filter": """\
    own = model.state_dict()
    found = dict(filter(lambda it: it[0] in own, checkpoint["state_dict"].items()))
    own.update(found)
    model.load_state_dict(own)
""",
    "tried": """\
    own = model.state_dict()
    for k, v in checkpoint["state_dict"].items():
        try:
            own[k].copy_(v)
        except KeyError:
            pass
""",
    "names of parameters": """\
    for name, p in model.named_parameters():
        if name in checkpoint["state_dict"]:
            p.data.copy_(checkpoint["state_dict"][name])
""",
    "a set of names": """\
    missing = {name for name, _ in model.named_parameters()}
    matched = {}
    for key, value in checkpoint["state_dict"].items():
        if key in missing:
            matched[key] = value
            missing.remove(key)
    model.load_state_dict(matched, strict=False)
""",
    "names that a function gives": """\
    state = checkpoint["state_dict"]
    for name in named(model):
        if name in state:
            model.load_state_dict({name: state[name]}, strict=False)
""",
    "a list of names": """\
    names = []
    for name, _ in model.named_parameters():
        names.append(name)
    state = checkpoint["state_dict"]
    model.load_state_dict({k: state[k] for k in sorted(set(names) & state.keys())}, strict=False)
""",
    "names kept": """\
    kept = Kept(model)
    model.load_state_dict(kept.fitting(checkpoint["state_dict"]), strict=False)
""",
    "names one by one": """\
    for key, value in checkpoint["state_dict"].items():
        for name, p in model.named_parameters():
            if name == key:
                p.data.copy_(value)
""",
    "a table of parameters": """\
    table = dict(model.named_parameters())
    for key, value in checkpoint["state_dict"].items():
        own = table.get(key)
        if own is not None:
            own.data.copy_(value)
""",
    "names by names": """\
    shadow = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for name, p in model.named_parameters():
        shadow[name] += checkpoint["state_dict"].get(name, p)
    for name, p in model.named_parameters():
        p.data.copy_(shadow[name])
""",
    "a copy": """\
    own = dict(model.state_dict())
    for k, v in checkpoint["state_dict"].items():
        if k in own:
            own[k] = v
    model.load_state_dict(own)
""",
}
PUTTING = """
def named(model):
    return [name for name, _ in model.named_parameters()]


class Kept:
    def __init__(self, model):
        self.names = set(named(model))

    def fitting(self, loaded):
        return {k: v for k, v in loaded.items() if k in self.names}


def fitting(loaded, own):
    return {k: v for k, v in loaded.items() if k in own and v.shape == own[k].shape}


def fitted(loaded, own):
    for k, v in loaded.items():
        if k in own:
            own[k] = v
    return own


model = nn.DataParallel(nn.Linear(8, 2))
for path in ("old.pt", "new.pt"):
    for put in PUTS:
        for p in model.parameters():
            p.data.zero_()
        put(model, torch.load(path), path)
        print(path, put.__name__, [p.sum().item() for p in model.parameters()])
"""


@pytest.mark.parametrize("sharded", [True, False])
def test_what_is_put_into_a_wrapped_model_by_its_keys_comes_from_bare_checkpoints_too(
    lab: Lab, tmp_path: Path, sharded: bool
) -> None:
    """In a function that a checkpoint is handed to, however it looks at the keys; in both forms."""
    names = [f"put{number}" for number in range(len(PUTS))]
    puts = [
        f"def {name}(model, checkpoint, path):\n{text}"
        for name, text in zip(names, PUTS.values(), strict=True)
    ]
    program = HEAD + "\n\n".join(puts) + PUTTING.replace("PUTS", f"({', '.join(names)})")
    steps = (
        STEPS
        if sharded
        else STEPS.replace("criterion(model(x), y)", "(criterion(model(x), y) + model(x).std())")
    )
    done = converted(
        tmp_path, program + steps + "torch.save({'state_dict': model.state_dict()}, 'last.pt')\n"
    )
    assert done.scripts[0].tier == ("sharded" if sharded else "whole batch")
    for name, prefix in (("old.pt", "module."), ("new.pt", "")):
        state = {f"{prefix}weight": torch.ones(2, 8), f"{prefix}bias": torch.ones(2)}
        torch.save({"state_dict": state}, tmp_path / name)
    ran = lab.run(tmp_path / "train.py", processes=2, recorded=False, folder=tmp_path).ok()
    assert ran.printed.splitlines() == [
        f"{name} {put} [16.0, 2.0]" for name in ("old.pt", "new.pt") for put in names
    ]
    assert sorted(torch.load(tmp_path / "last.pt")["state_dict"]) == ["bias", "weight"]


READERS = {
    "train.py": HEAD
    + "from net import Net\nmodel = nn.DataParallel(Net())\n"
    + STEPS
    + "torch.save(model.state_dict(), 'm.pt')\n",
    "net.py": "from torch import nn\n\n\nclass Net(nn.Sequential):\n    def __init__(self):\n        super().__init__(nn.Linear(8, 2))\n",
    "test.py": (
        "import torch\nfrom net import Net\n\nmodel = Net()\nstate = torch.load('m.pt')\n"
        "model.load_state_dict({k[7:]: v for k, v in state.items()})\nprint('read')\n"
    ),
    "tools/predict.py": (
        "import sys\nsys.path.insert(0, '.')\nimport torch\nfrom net import Net\nfrom torch import nn\n\n"
        "model = nn.DataParallel(Net())\nmodel.load_state_dict(torch.load('m.pt'))\nprint('read')\n"
    ),
    "show.py": "import torch\n\nprint(torch.load('m.pt')['module.0.weight'].shape)\n",
    "fine.py": "import torch\nfrom net import Net\n\nmodel = Net()\nmodel.load_state_dict(torch.load('m.pt'))\n",
    "other.py": "import torch\nfrom torch import nn\n\nmodel = nn.DataParallel(nn.Linear(2, 2))\nprint(model)\n",
}


def test_readers_of_its_checkpoints_are_named(tmp_path: Path) -> None:
    done = converted(tmp_path, READERS)
    named = {
        (it.location.path.name, it.location.span.line)
        for it in done.findings
        if "expects keys with `module.`" in it.message
    }
    assert named == {("test.py", 6), ("predict.py", 8), ("show.py", 3)}


BY_KEYS = (
    "model = nn.DataParallel(Net())\nfound = torch.load(SOURCE)\nstate = model.state_dict()\n"
    "for key in state:\n    if key in found and found[key].size() == state[key].size():\n"
    "        state[key] = found[key]\nmodel.load_state_dict(state)\n"
)
WHOLE = "model = nn.DataParallel(Net())\nmodel.load_state_dict(torch.load(SOURCE))\n"


@pytest.mark.parametrize("reads", [BY_KEYS, WHOLE])
def test_programs_that_train_on_from_another_s_checkpoint_are_named(tmp_path: Path, reads: str) -> None:
    """Not those that read what they save themselves, or go on with an optimizer."""
    head = HEAD + "import sys\nfrom net import Net\n"
    programs = {
        f"{name}.py": head
        + reads.replace("SOURCE", source)
        + STEPS
        + f"torch.save(model.state_dict(), {saved})\n"
        for name, source, saved in (
            ("next", "'m.pt'", "'n.pt'"),
            ("given", "sys.argv[1]", "'n.pt'"),
            ("own", "'n.pt'", "'n.pt'"),
        )
    }
    resumes = "optimizer = torch.optim.SGD(model.parameters(), 0.1)\noptimizer.load_state_dict(torch.load('o.pt'))\n"
    programs["resumes.py"] = programs["next.py"].replace(STEPS, resumes + STEPS)
    program = {name: READERS[name] for name in ("train.py", "net.py")}
    done = converted(tmp_path, {**program, **programs})
    said = {it.location.path.stem: it.message for it in done.findings if "expects keys" in it.message}
    assert set(said) == {"next", "given"}
    assert {"nothing is loaded" in it for it in said.values()} == {reads is BY_KEYS}


CUTS = {
    "joined": '".".join(k.split(".")[1:])',
    "split": 'k.split(".", 1)[1]',
    "split at it": 'k.split("module.")[1]',
    "partition": 'k.partition(".")[2]',
    "found": 'k[k.find(".") + 1 :]',
    "its length": "k[len(prefix) :]",
}
CUT_AS_IT_IS = {
    "replaced": 'k.replace("module.", "")',
    "characters": 'k.lstrip("module.")',
    "a pattern": 're.sub("^module.", "", k)',
    "its end": 'k.split("module.")[-1]',
}


def cutting(lines: Mapping[str, str]) -> str:
    """What reads a checkpoint in several spellings."""
    head = "import re\nimport torch\nfrom net import Net\n\nprefix = 'module.'\nmodel = Net()\n"
    head += "state = {'net': torch.load('m.pt')}\ntorch.save(state, 'in.pt')\nstate = torch.load('in.pt')\n"
    return (
        head
        + "".join(
            f"model.load_state_dict({{{cut}: v for k, v in list(state['net'].items())}})\n"
            for cut in lines.values()
        )
        + "parts = {}\nfor k in state['net']:\n    words = k.split('.')\n    parts['.'.join(words[-2:])] = 0\nprint('read')\n"
    )


def test_readers_that_cut_the_prefix_otherwise_are_named_and_changed(lab: Lab, tmp_path: Path) -> None:
    """Not those whose cut leaves other keys as they are."""
    program = {name: READERS[name] for name in ("train.py", "net.py")}
    files = {f"{number}.py": cutting({"": cut}) for number, cut in enumerate(CUTS.values())}
    done = converted(tmp_path / "beside", program | files | {"as_it_is.py": cutting(CUT_AS_IT_IS)})
    named = {it.location.path.name for it in done.findings if "expects keys with `module.`" in it.message}
    assert named == set(files)
    files = {"read.py": cutting(CUTS | CUT_AS_IT_IS)}
    converted(tmp_path / "with", program | files, "train.py", "read.py")
    after = (tmp_path / "with" / "read.py").read_text()
    assert after.count('k.removeprefix("module.")') == len(CUTS)
    folder = tmp_path / "with"
    lab.run(folder / "train.py", processes=2, recorded=False, folder=folder).ok()
    assert lab.run(folder / "read.py", recorded=False, folder=folder).ok().printed == "read\n"


def test_a_cut_of_keys_that_have_the_prefix_stays(tmp_path: Path) -> None:
    cut = "    if k.startswith('module.'):\n        k = k[7:]\n"
    read = f"new = {{}}\nfor k, v in torch.load('old.pt').items():\n{cut}    new[k] = v\n"
    done = converted(tmp_path, HEAD + MODEL + read + STEPS + "torch.save(model.state_dict(), 'm.pt')\n")
    assert cut in done.changes[0].after and not any("prefix" in it.message for it in done.findings)


UNWRAPPED = {
    "by its class": "if isinstance(net, nn.DataParallel):\n    net = net.module\n",
    "by what it has": "if hasattr(net, 'module'):\n    net = net.module\n",
    "by several classes": "if isinstance(net, (nn.DataParallel, nn.parallel.DistributedDataParallel)):\n    net = net.module\n",
}


@pytest.mark.parametrize("unwrapped", UNWRAPPED.values(), ids=UNWRAPPED)
def test_what_is_unwrapped_before_is_not_unwrapped_again(lab: Lab, tmp_path: Path, unwrapped: str) -> None:
    """But where it may be wrapped still."""
    body = "    " + unwrapped.replace("\n    ", "\n        ").rstrip()
    saving = f"def save(net):\n{body}\n    torch.save(net.state_dict(), 'm.pt')\n\n\n"
    still = saving.replace("def save", "def other").replace("net = net.module", "inner = net.module")
    done = converted(tmp_path, HEAD + saving + still + MODEL + STEPS + "save(model)\nother(model)\n")
    after = done.changes[0].after
    first, second = after[: after.index("def other")], after[after.index("def other") :]
    assert "ddp.save(net.state_dict(), 'm.pt')" in first and "ddp.save(net.state_dict()" not in second
    lab.run(tmp_path / "train.py", processes=2, recorded=False, folder=tmp_path).ok()
    assert not any(it.startswith("module.") for it in torch.load(tmp_path / "m.pt"))


TOLD = {
    "if it is": "if isinstance(model, nn.DataParallel):\n    model.module.load_state_dict(state)\n"
    "else:\n    model.load_state_dict(state)\n",
    "if it is not": "if not isinstance(model, nn.DataParallel):\n    model.load_state_dict(state)\n"
    "else:\n    model.module.load_state_dict(state)\n",
    "if it is one of several": "if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):\n"
    "    model.module.load_state_dict(state)\nelse:\n    model.load_state_dict(state)\n",
}


@pytest.mark.parametrize("name", TOLD)
def test_where_a_model_is_known_not_to_be_wrapped_nothing_is_unwrapped(
    lab: Lab, tmp_path: Path, name: str
) -> None:
    kept = "torch.save(model.module.state_dict(), 'old.pt')\nstate = torch.load('old.pt')\n"
    body = HEAD + MODEL + kept + TOLD[name] + STEPS + "torch.save(model.state_dict(), 'm.pt')\n"
    after = converted(tmp_path, body).changes[0].after
    assert "    model.load_state_dict(state)\n" in after and "strip_module_prefix" not in after
    lab.run(tmp_path / "train.py", processes=2, recorded=False, folder=tmp_path).ok()
    assert not any(it.startswith("module.") for it in torch.load(tmp_path / "m.pt"))


def test_a_part_that_is_cut_off_other_keys_stays(tmp_path: Path) -> None:
    """Of what is not from a file, and of what a program reads that saves no wrapped model's state."""
    cut = 'k.split(".", 1)[1]'
    first = f"names = {{{cut}: v for k, v in {{'a.b': 1}}.items()}}\n"
    save = "torch.save(model.state_dict(), 'm.pt')\n"
    done = converted(tmp_path / "one", HEAD + MODEL + first + STEPS + save)
    assert cut in done.changes[0].after
    read = f"old = {{{cut}: v for k, v in torch.load('old.pt').items()}}\n"
    done = converted(tmp_path / "two", HEAD + MODEL + read + STEPS + save.replace("model.", "model.module."))
    assert cut in done.changes[0].after


OTHER_KEYS = {
    "of a part": "head = {CUT: v for k, v in old.items() if 'head' in k}\nnet.head.load_state_dict(head, strict=False)\n",
    "one by one": "part = {}\nfor k, v in old.items():\n    k = CUT\n    part[k] = v\nnet.head.load_state_dict(part, strict=False)\n",
    "in a function": "def cut(state):\n    return dict((CUT, v) for k, v in state.items())\n\n\n"
    "net.head.load_state_dict(cut(old), strict=False)\n",
    "by another prefix": "net.load_state_dict({CUT: v for k, v in old.items() if k.startswith('resnet.')}, strict=False)\n",
    "in a branch": "part = {}\nfor k, v in old.items():\n    if k.startswith('resnet.') and v.dim():\n        part[CUT] = v\n"
    "net.load_state_dict(part, strict=False)\n",
}
WHOLE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(x)


net = Net()
old = {"head.weight": torch.ones(2, 8), "resnet.head.weight": torch.ones(2, 8)}
torch.save(old, "old.pt")
old = torch.load("old.pt")
"""


@pytest.mark.parametrize("cut", ['".".join(k.split(".")[1:])', 'k.partition(".")[2]', "k[7:]"])
@pytest.mark.parametrize("reads", OTHER_KEYS.values(), ids=OTHER_KEYS)
def test_a_name_that_is_cut_off_the_keys_of_another_model_stays(tmp_path: Path, reads: str, cut: str) -> None:
    """It is no wrap's where what is left are the keys of a part, or where another prefix was asked for."""
    if cut == "k[7:]" and "resnet" not in reads:
        return  # as long as the wrap's
    loads = (
        WHOLE
        + reads.replace("CUT", cut)
        + "print(net.head.weight.sum().item())\nmodel = nn.DataParallel(net)\n"
    )
    done = converted(tmp_path, HEAD + loads + STEPS + "torch.save(model.state_dict(), 'm.pt')\n")
    assert cut in done.changes[0].after and "removeprefix" not in done.changes[0].after
    assert not any("cuts off each key's first part" in it.message for it in done.findings)


def test_a_name_that_is_cut_off_unknown_keys_stays_and_is_said(tmp_path: Path) -> None:
    cut = 'k.split(".", 1)[1]'
    reads = WHOLE + f"new = {{{cut}: v for k, v in old.items()}}\nown = net.state_dict()\nown.update(new)\n"
    reads += "net.load_state_dict(own)\nmodel = nn.DataParallel(net)\n"
    done = converted(tmp_path, HEAD + reads + STEPS + "torch.save(model.state_dict(), 'm.pt')\n")
    assert cut in done.changes[0].after
    assert [it.severity.name for it in done.findings if "cuts off each key's first part" in it.message] == [
        "NOTE"
    ]


def test_a_whole_model_s_keys_lose_only_the_prefix(lab: Lab, tmp_path: Path) -> None:
    """Where what is left is loaded into the model that is wrapped: checkpoints of before and of now load."""
    cut = 'k.split(".", 1)[1]'
    loads = f"if os.path.exists('m.pt'):\n    net.load_state_dict({{{cut}: v for k, v in torch.load('m.pt').items()}})\n"
    program = (
        HEAD
        + WHOLE
        + loads
        + "model = nn.DataParallel(net)\n"
        + STEPS
        + "torch.save(model.state_dict(), 'm.pt')\n"
    )
    done = converted(tmp_path, program)
    assert 'k.removeprefix("module.")' in done.changes[0].after
    torch.save({"module.head.weight": torch.ones(2, 8), "module.head.bias": torch.ones(2)}, tmp_path / "m.pt")
    for _ in range(2):
        lab.run(tmp_path / "train.py", processes=2, recorded=False, folder=tmp_path).ok()


GUARDED = "new = {}\nfor k, v in torch.load('m.pt').items():\n    if k.startswith('module.'):\n        new[k[7:]] = v\n"


@pytest.mark.parametrize("otherwise", [False, True], ids=["dropped", "kept"])
def test_keys_without_a_prefix_are_kept_where_only_those_with_one_were(
    lab: Lab, tmp_path: Path, otherwise: bool
) -> None:
    """A checkpoint of the converted program has none: dropped, they would leave nothing to load."""
    cut = GUARDED + "    else:\n        new[k] = v\n" * otherwise
    reads = "".join(
        f"    {line}\n" for line in f"{cut}model.load_state_dict(new)\nprint('read')".splitlines()
    )
    text = HEAD + "model = nn.Linear(8, 2)\nif os.path.exists('m.pt'):\n" + reads
    text += "model = nn.DataParallel(model)\n" + STEPS + "torch.save(model.state_dict(), 'm.pt')\n"
    (change,) = converted(tmp_path, text).changes
    assert ("startswith" in change.after) == otherwise == ("removeprefix" not in change.after)
    assert [
        lab.run(tmp_path / "train.py", processes=2, recorded=False, folder=tmp_path)
        .ok()
        .printed.count("read")
        for _ in range(2)
    ] == [0, 1]


BOTH = {
    "all or none": "if 'module' in next(iter(state)):\n    state = {k[7:]: v for k, v in state.items()}\n",
    "by a choice": "state = {k[7:] if k.startswith('module.') else k: v for k, v in state.items()}\n",
    "by a name": "new = {}\nfor k, v in state.items():\n    if k.startswith('module.'):\n        k = k[7:]\n    new[k] = v\n"
    "state = new\n",
}
ONLY_WRAPPED = "state = {k[7:]: v for k, v in state.items() if k.startswith('module.')}\n"


@pytest.mark.parametrize("by", ["where it is converted", "a repository", "a license", "requirements"])
def test_readers_in_other_folders_of_the_project_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Above the script's folder, too, and with what ``strict=False`` comes to; not those that read both kinds."""
    head = "import torch\nfrom torch import nn\n\nmodel = nn.Linear(8, 2)\nstate = torch.load('m.pt')\n"
    loads = "model.load_state_dict(state)\n"
    wrapped = head + "model = nn.DataParallel(model)\n"
    readers = {
        "egs/set/wrapped.py": wrapped + loads,
        "egs/set/loose.py": wrapped + "model.load_state_dict(state, strict=False)\n",
        "egs/set/only.py": head + ONLY_WRAPPED + loads,
        "egs/set/blocks.py": head + ONLY_WRAPPED.replace("k.startswith('module.')", "'blocks' in k") + loads,
        **{f"egs/set/{name.replace(' ', '_')}.py": head + text + loads for name, text in BOTH.items()},
    }
    program = {f"src/{name}": READERS[name] for name in ("train.py", "net.py")}
    marks = {
        "where it is converted": {},
        "a repository": {".git/config": "", "src/README.md": ""},
        "a license": {"LICENSE.txt": "", "src/README.md": ""},
        "requirements": {"requirements.txt": "torch\n", "src/README.md": ""},
    }[by]
    if by != "a repository":
        monkeypatch.chdir(tmp_path)
    done = converted(tmp_path, {**program, **readers, **marks}, "src/train.py")
    said = {
        it.location.path.name: it.message
        for it in done.findings
        if "expects keys with `module.`" in it.message
    }
    assert set(said) == {"wrapped.py", "loose.py", "only.py"}
    assert [name for name in said if "nothing is loaded" in said[name]] == ["loose.py"]


def test_readers_of_other_programs_of_a_collection_are_not_looked_for(tmp_path: Path) -> None:
    """Where a repository holds many programs, each in a folder with a README of its own."""
    reader = (
        "import torch\nfrom torch import nn\n\nmodel = nn.DataParallel(nn.Linear(8, 2))\n"
        "model.load_state_dict(torch.load('m.pt'))\n"
    )
    others = {
        f"{number}/{name}": text
        for number in range(45)
        for name, text in (("test.py", reader), ("README.md", ""))
    }
    own = {f"src/{name}": READERS[name] for name in ("train.py", "net.py")}
    more = {"src/read.py": reader, "src/README.md": "", ".git/config": "", "LICENSE": ""}
    done = converted(tmp_path, {**own, **more, **others}, "src/train.py")
    said = [it.location.path.name for it in done.findings if "expects keys with `module.`" in it.message]
    assert said == ["read.py"]


WRAPPING = {
    "models.py": "from torch import nn\n\n\ndef create():\n    return nn.DataParallel(nn.Linear(8, 2))\n",
    "train.py": HEAD
    + "from models import create\nmodel = create()\n"
    + STEPS
    + "torch.save(model.state_dict(), 'm.pt')\n",
    "test.py": "import torch\nfrom models import create\n\nmodel = create()\nmodel.load_state_dict(torch.load('m.pt'))\nprint('read')\n",
    "bare.py": "import torch\nfrom models import create\n\nmodel = create()\nmodel.module.load_state_dict(torch.load('m.pt'))\n",
}
COPYING = {
    "tools.py": (
        "def copy(state, net):\n    own = net.state_dict()\n    for name, value in state.items():\n"
        "        if name in own:\n            own[name].copy_(value)\n"
    ),
    "train.py": HEAD
    + "from tools import copy\nmodel = nn.DataParallel(nn.Linear(8, 2))\n"
    + "if os.path.exists('m.pt'):\n    copy(torch.load('m.pt'), model)\n"
    + STEPS
    + "torch.save(model.state_dict(), 'm.pt')\n",
    "test.py": (
        "import torch\nfrom tools import copy\nfrom torch import nn\n\nmodel = nn.DataParallel(nn.Linear(8, 2))\n"
        "copy(torch.load('m.pt'), model)\nprint('read')\n"
    ),
    "bare.py": "import torch\nfrom tools import copy\nfrom torch import nn\n\nmodel = nn.Linear(8, 2)\ncopy(torch.load('m.pt'), model)\n",
}


@pytest.mark.parametrize(
    ("files", "line", "says"),
    [
        (WRAPPING, 5, "expects keys with `module.`"),
        (COPYING, 6, "`copy()` now expects keys without `module.`"),
    ],
    ids=["wrapped by a function that is shared", "copied by one"],
)
def test_readers_that_share_a_function_with_the_training_are_named_and_changed(
    lab: Lab, tmp_path: Path, files: dict[str, str], line: int, says: str
) -> None:
    done = converted(tmp_path / "one", files)
    named = {(it.location.path.name, it.location.span.line) for it in done.findings if says in it.message}
    assert named == {("test.py", line)}
    folder = tmp_path / "both"
    converted(folder, files, "train.py", "test.py")
    lab.run(folder / "train.py", processes=2, recorded=False, folder=folder).ok()
    assert lab.run(folder / "test.py", recorded=False, folder=folder).ok().printed == "read\n"


FILTERED = {
    "names": "names = {name for name, _ in model.named_parameters()}\n",
    "its state": "names = model.state_dict()\n",
}


@pytest.mark.parametrize("names", FILTERED.values(), ids=FILTERED)
def test_readers_that_load_what_fits_are_named_and_changed(lab: Lab, tmp_path: Path, names: str) -> None:
    """They would load nothing, without a word."""
    reader = (
        "import torch\nfrom net import Net\nfrom torch import nn\n\nmodel = nn.DataParallel(Net())\n" + names
    )
    reader += "found = {k: v for k, v in torch.load('m.pt').items() if k in names}\n"
    reader += "model.load_state_dict(found, strict=False)\nprint(len(found))\n"
    bare = reader.replace("nn.DataParallel(Net())", "Net()")
    both = reader.replace("{k: v for", "{'module.' + k: v for").replace(
        "k in names", "'module.' + k in names"
    )
    program = {name: READERS[name] for name in ("train.py", "net.py")}
    files = {"read.py": reader, "bare.py": bare, "both.py": both}
    done = converted(tmp_path / "beside", program | files, "train.py")
    said = [it for it in done.findings if "expects keys with `module.`" in it.message]
    assert [it.location.path.name for it in said] == ["read.py"]
    assert "nothing is loaded" in said[0].message
    converted(tmp_path / "with", program | {"read.py": reader}, "train.py", "read.py")
    folder = tmp_path / "with"
    lab.run(folder / "train.py", processes=2, recorded=False, folder=folder).ok()
    assert lab.run(folder / "read.py", recorded=False, folder=folder).ok().printed == "2\n"


@pytest.mark.parametrize(("beside", "named"), [("net.py", True), ("src/net.py", False)])
def test_readers_above_a_readme_are_named_where_the_program_uses_files_of_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: str, named: bool
) -> None:
    """A folder with a README may be a project of its own in a collection, or a part of one."""
    text = "import torch\nfrom torch import nn\n\nmodel = nn.DataParallel(nn.Linear(8, 2))\n"
    text += "model.load_state_dict(torch.load('m.pt'))\n"
    train = "import sys\n\nsys.path.append('..')\n" + READERS["train.py"]
    files = {"src/train.py": train, beside: READERS["net.py"], "src/README.md": "", "read.py": text}
    monkeypatch.chdir(tmp_path)
    done = converted(tmp_path, files, "src/train.py")
    assert any("expects keys with `module.`" in it.message for it in done.findings) is named


TRAINS = """
for inputs, targets in DataLoader(TensorDataset(torch.randn(8, 8), torch.randn(8, 2)), batch_size=4):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()
torch.save({"net": model.state_dict(), "optimizer": optimizer.state_dict()}, "tuned.pt")
"""
TUNES = """\
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.DataParallel(nn.Sequential(nn.Linear(8, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if sys.argv[1] == "resume":
    state = torch.load(sys.argv[2])
    model.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
"""
FINDS = """\
import torch
from torch import nn

model = nn.DataParallel(nn.Sequential(nn.Linear(8, 2)))
model.load_state_dict(torch.load("m.pt"))
latent = torch.ones(1, 8, requires_grad=True)
model(latent).sum().backward()
torch.save(latent.grad, "latent.pt")
"""
LOADS = 'elif sys.argv[1] == "load":\n    model.load_state_dict(torch.load(sys.argv[2]))\n'


COPIES = """\
from copy import deepcopy

import torch
from torch import nn

model = nn.DataParallel(nn.Sequential(nn.Linear(8, 2)))
other = deepcopy(model)
state = other.state_dict()
state.update({name: value * 2 for name, value in model.named_parameters()})
other.load_state_dict(state)
model.load_state_dict(dict(other.state_dict()))
model(torch.ones(1, 8)).sum().backward()
print("read")
"""
AVERAGES = 'state.update(torch.load("m.pt"))\nother.load_state_dict(state)\n'


def test_readers_that_train_something_else_are_named(tmp_path: Path) -> None:
    """What finds a latent by gradients, and what trains on from another's weights; not what goes on with its own.

    Nor what takes the state of another model in memory: but for what a file adds to it.
    """
    files = {"find.py": FINDS, "tune.py": TUNES + LOADS + TRAINS, "own.py": TUNES + TRAINS}
    files |= {"copy.py": COPIES, "averaged.py": COPIES + AVERAGES}
    done = converted(tmp_path, {**{name: READERS[name] for name in ("train.py", "net.py")}, **files})
    named = {it.location.path.name for it in done.findings if "expects keys with `module.`" in it.message}
    assert named == {"find.py", "tune.py", "averaged.py"}


def test_what_unwraps_a_pickled_model_is_named(tmp_path: Path) -> None:
    """In a file beside, and in one that the program imports; where it is run by itself."""
    look = 'model = torch.load("m.pt", weights_only=False)["model"].module\n'
    files = {
        "train.py": HEAD
        + "import tools\n"
        + MODEL
        + STEPS
        + "torch.save({'model': model}, 'm.pt')\ntools.show(model)\n",
        "tools.py": f'import torch\n\n\ndef show(model):\n    print(1)\n\n\nif __name__ == "__main__":\n    {look}',
        "show.py": f"import torch\n\n{look}",
        "fine.py": "import torch\n\nmodel = torch.load('m.pt', weights_only=False)['model']\nprint(model)\n",
    }
    done = converted(tmp_path, files)
    named = {
        (it.location.path.name, it.location.span.line)
        for it in done.findings
        if "expects a wrapped model" in it.message
    }
    assert named == {("tools.py", 9), ("show.py", 3)}


@pytest.mark.parametrize("first", [False, True])
def test_a_reader_that_wraps_where_there_are_gpus_is_named(tmp_path: Path, first: bool) -> None:
    """With how both are converted at once; one that loads before it wraps reads the bare model's keys."""
    load, wrap = "model.load_state_dict(torch.load('model.pt'))\n", "if torch.cuda.device_count() > 1:\n"
    lines = [load, wrap + "    model = nn.DataParallel(model)\n"][:: 1 if first else -1]
    reader = "import torch\nfrom torch import nn\n\nmodel = nn.Linear(8, 2)\n" + "".join(lines)
    save = "torch.save(model.state_dict(), 'model.pt')\n"
    done = converted(tmp_path, {"test.py": reader, "train.py": HEAD + MODEL + STEPS + save}, "train.py")
    found = [it.help for it in done.findings if "expects keys with `module.`" in it.message]
    assert [it.rpartition(": ")[2] for it in found] == ([] if first else ["dp2ddp convert train.py test.py"])


def test_readers_are_changed_with_it(lab: Lab, tmp_path: Path) -> None:
    done = converted(tmp_path, READERS, *READERS)
    assert not [it for it in done.findings if "expects keys with `module.`" in it.message]
    assert [it.location.path.name for it in done.findings if "has the prefix `module.`" in it.message] == [
        "show.py"
    ]
    assert not {it.path for it in done.idle} & {it.path for it in done.changes}
    lab.run(tmp_path / "train.py", processes=2, recorded=False, folder=tmp_path).ok()
    for reader in ("test.py", "tools/predict.py"):
        assert lab.run(tmp_path / reader, recorded=False, folder=tmp_path).ok().printed == "read\n"


OF_MODEL = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)
        self.rate = 0.0

    def size(self, x):
        return self.head(x).pow(2).mean()

    def set_rate(self, rate):
        self.rate = rate

    def forward(self, x):
        return self.head(x)


torch.manual_seed(0)
model = Net()
WRAP
model.best = 0.0
model.set_rate(0.1)
optimizer = torch.optim.SGD(model.head.parameters(), lr=model.rate)
data = TensorDataset(torch.randn(22, 4), torch.randn(22, 2))
for inputs, targets in DataLoader(data, batch_size=6):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets) + model.size(inputs)
    loss.backward()
    optimizer.step()
head = model.module.head if hasattr(model, "module") else model.head
print(head.weight.sum().item(), model.best, model.training, model.rate)
"""


@pytest.mark.parametrize(
    "wrap",
    [
        "model = nn.DataParallel(model)",
        "if torch.cuda.device_count() > 1:\n    model = nn.DataParallel(model)",
    ],
)
def test_what_the_wrapper_lacks_is_asked_of_the_model(tmp_path: Path, lab: Lab, wrap: str) -> None:
    """A script that is run on one GPU may do so; a step by a method of the model's is averaged, too."""
    text = HEAD + OF_MODEL
    done = converted(tmp_path, text.replace("WRAP", wrap))
    (script,) = done.scripts
    assert script.tier == "sharded" and not script.left
    assert done.changes[0].after.count("model.module.") == 6
    bare = lab.place("bare") / "train.py"
    bare.write_text(text.replace("WRAP", ""))
    expected = lab.run(bare, recorded=False).ok().printed.split()
    found = lab.run(tmp_path / "train.py", processes=2, recorded=False).ok().printed.split()
    assert found[1:] == expected[1:]
    assert float(found[0]) == pytest.approx(float(expected[0]), abs=1e-6)


@pytest.mark.parametrize("arguments", [[], ["--several"]])
def test_what_the_wrapper_lacks_is_asked_of_a_model_that_an_option_leaves_bare(
    tmp_path: Path, lab: Lab, arguments: list[str]
) -> None:
    text = (HEAD + OF_MODEL).replace(
        "WRAP", "if '--several' in sys.argv:\n    model = nn.DataParallel(model)\nscale = model.scale"
    )
    text = text.replace("        self.rate = 0.0\n", "        self.rate, self.scale = 0.0, 2.0\n")
    text = text.replace("model.best = 0.0\nmodel.set_rate(0.1)\n", "").replace(" + model.size(inputs)", "")
    text = text.replace("model.head.parameters(), lr=model.rate", "model.parameters(), lr=0.1 * scale")
    text = text[: text.index("head = model.module.head")] + "print(scale)\n"
    done = converted(tmp_path, "import sys\n" + text)
    assert 'scale = getattr(model, "module", model).scale' in done.changes[0].after
    assert lab.run(tmp_path / "train.py", arguments, processes=2, recorded=False).ok().printed == "2.0\n"


def test_what_only_a_bare_model_is_asked_for_stays(tmp_path: Path, lab: Lab) -> None:
    """The wrap stays under its condition then: with a single rank the model is bare."""
    wrap = "count = torch.cuda.device_count()\nif count > 1:\n    model = nn.DataParallel(model)"
    text = (HEAD + OF_MODEL).replace("WRAP", wrap)
    for old, new in (
        (
            "model.best = 0.0\nmodel.set_rate(0.1)\n",
            "if count <= 1:\n    model.set_rate(0.1)\nelse:\n    model.module.set_rate(0.1)\n",
        ),
        ("model.head.parameters(), lr=model.rate", "model.parameters(), lr=0.1"),
        (" + model.size(inputs)", ""),
        (
            "print(head.weight.sum().item(), model.best, model.training, model.rate)",
            "if count <= 1:\n    print(model.rate)",
        ),
    ):
        assert old in text, old
        text = text.replace(old, new)
    done = converted(tmp_path, text)
    assert "    print(model.rate)" in done.changes[0].after
    assert lab.run(tmp_path / "train.py", recorded=False).ok().printed.strip() == "0.1"
    assert lab.run(tmp_path / "train.py", processes=2, recorded=False).ok().printed == ""


COMPILED = """\
torch.manual_seed(0)
model = torch.compile(nn.DataParallel(nn.Linear(4, 2)), backend="eager")
if os.path.exists("model.pt"):
    model.load_state_dict(torch.load("model.pt"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(22, 4), torch.randn(22, 2))
for inputs, targets in DataLoader(data, batch_size=6):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
torch.save(model.state_dict(), "model.pt")
print(sum(it.sum().item() for it in model.parameters()))
"""


def test_a_compiled_model_is_the_wrapped_one(tmp_path: Path, lab: Lab) -> None:
    """Its checkpoints are the bare model's then; it goes on with those of before."""
    done = converted(tmp_path, HEAD + COMPILED)
    assert done.scripts[0].tier == "sharded"
    before = lab.place("before") / "train.py"
    before.write_text(HEAD + COMPILED)
    expected = [lab.run(before, recorded=False, folder=before.parent).ok().printed for _ in range(2)]
    (before.parent / "model.pt").unlink()
    found = []
    for text in (HEAD + COMPILED, (tmp_path / "train.py").read_text()):
        before.write_text(text)
        processes = 1 + ("dp2ddp" in text)
        found.append(lab.run(before, processes=processes, recorded=False, folder=before.parent).ok().printed)
    assert [float(it) for it in found] == pytest.approx([float(it) for it in expected], abs=1e-9)
    assert set(torch.load(before.parent / "model.pt")) == {"weight", "bias"}


def test_what_a_class_assigns_is_not_what_it_sets_by_a_name_that_is_not_known(
    tmp_path: Path, lab: Lab
) -> None:
    """Networks are added by their names; what the class keeps of their outputs is no network."""
    trainer = """class Base:
    def __init__(self):
        self.best = None

    def add(self, name, net):
        setattr(self, name, nn.DataParallel(net))

    def step(self, inputs, targets):
        self.forward(inputs)
        self.loss = nn.functional.mse_loss(self.outputs, targets)
        self.loss.backward()
        self.seen = [self.outputs.detach().shape, self.loss.item()]


class Trainer(Base):
    def __init__(self):
        super().__init__()
        self.add("net", nn.Linear(4, 2))
        self.add("best", nn.Linear(4, 2))

    def forward(self, inputs):
        self.inputs = inputs[0] if isinstance(inputs, list) else inputs
        self.size = self.inputs.size(0)
        self.outputs, self.extra = self.net(self.inputs), self.best(self.inputs)


torch.manual_seed(0)
trainer = Trainer()
optimizer = torch.optim.SGD(trainer.net.parameters(), lr=0.1)
for inputs, targets in DataLoader(TensorDataset(torch.randn(24, 4), torch.randn(24, 2)), batch_size=6):
    optimizer.zero_grad()
    trainer.step(inputs, targets)
    optimizer.step()
torch.save([trainer.net.state_dict(), trainer.best.state_dict()], "out.pt")
"""
    text = "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader, TensorDataset\n\n\n"
    done = converted(tmp_path, text + trainer)
    assert not [it.message for it in done.findings if "the wrapper has no attribute" in it.message]
    saved = "ddp.save([trainer.net.module.state_dict(), trainer.best.module.state_dict()]"
    assert saved in done.changes[0].after
    lab.run(tmp_path / "train.py", processes=2, recorded=False, folder=tmp_path).ok()


# What is reached by another way

INDIRECT = {
    "callbacks in a list": """\
class Log:
    def on_step(self, step):
        with open("log.txt", "a") as file:
            file.write("%d\\n" % step)
class Folders:
    def on_step(self, step):
        os.makedirs("out/%d" % step)
callbacks = [Log(), Folders()]
def after(step):
    for callback in callbacks:
        callback.on_step(step)
""",
    "handlers by name": """\
def log(step):
    with open("log.txt", "a") as file:
        file.write("%d\\n" % step)
class Hooks:
    def on_end(self, step):
        with open("end.txt", "a") as file:
            file.write("%d\\n" % step)
    def fire(self, name, *args):
        getattr(self, name)(*args)
HANDLERS = {"log": log}
hooks = Hooks()
def after(step):
    HANDLERS["log"](step)
    globals()["log"](step)
    hooks.fire("on_end", step)
""",
    "decorators, contexts and the end": """\
import atexit
import contextlib
import functools
def noted(function):
    @functools.wraps(function)
    def inner(*args):
        function(*args)
        with open("calls.txt", "a") as file:
            file.write("called\\n")
    return inner
@contextlib.contextmanager
def section():
    yield
    with open("section.txt", "a") as file:
        file.write("left\\n")
@atexit.register
def bye():
    with open("bye.txt", "a") as file:
        file.write("bye\\n")
@noted
def after(step):
    with section():
        pass
""",
    "handlers of events": """\
from collections import defaultdict
class Engine:
    def __init__(self):
        self.handlers = defaultdict(list)
    def on(self, event, every=1):
        def keep(handler):
            self.handlers[event].append((handler, every))
            return handler
        return keep
    def fire(self, event, step):
        for handler, every in self.handlers[event]:
            if step % every == 0:
                handler(step)
engine = Engine()
@engine.on("step", every=2)
def log(step):
    with open("log.txt", "a") as file:
        file.write("%d\\n%d\\n" % (step - 1, step))
def after(step):
    engine.fire("step", step)
""",
    "files that are taken out of a list": """\
from collections import deque
from pathlib import Path
kept, last = [], deque()
def after(step):
    path = Path(f"{step}.log")
    path.write_text("")
    kept.append((step, path))
    kept.sort(key=lambda it: -it[0])
    while len(kept) > 3:
        _, old = kept.pop()
        old.unlink()
    with open(f"{step}.out", "w") as file:
        last.append(file.name)
    if len(last) > 2:
        os.remove(last.popleft())
""",
    "a mode that is chosen": """\
import gzip
import re
def opened(path, mode):
    return gzip.open(path, mode) if path.endswith("gz") else open(path, mode)
def after(step):
    with opened("log.gz", "at" if step else "wt") as file, opened("log.txt", "a" if step else "w") as other:
        file.write("%d\\n" % step)
        other.write("%d\\n" % step)
""",
}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("way", INDIRECT)
def test_what_is_written_by_another_way_is_written_once(lab: Lab, tmp_path: Path, way: str) -> None:
    program = HEAD + INDIRECT[way] + MODEL + STEPS + "        after(step)\n" + END
    folder = alike(lab, tmp_path, program, *(["log.txt"] if "log.txt" in program else []))
    for path in folder.glob("*.txt"):
        assert len(path.read_text().split()) in (1, 8, 16)
    if "gzip" in program:
        assert gzip.open(folder / "log.gz", "rt").read().split() == [str(step) for step in range(1, 9)]


def test_a_picture_in_memory_is_drawn_by_every_process() -> None:
    """Who draws it reads it again; a file of it is the main process's."""
    draws = (
        "import io\nfrom matplotlib import pyplot as plt\n\ndef after(step):\n    kept = io.BytesIO()\n"
        "    plt.savefig(kept)\n    plt.savefig(other := io.BytesIO(), format='png')\n    kept.seek(0)\n"
        "    plt.gcf().savefig({})\n"
    )
    for given, guarded in (("kept", False), ("'step.png'", True)):
        after = text_of(HEAD + draws.format(given) + MODEL + STEPS + "        after(step)\n")
        assert ("is_main_process" in after) is guarded


def test_the_devices_of_a_wrapped_model_are_counted(lab: Lab, tmp_path: Path) -> None:
    """By ranks: each has one device in its own."""
    asks = "print(max(1, len(model.device_ids)) > 1, 'several' if len(model.device_ids) > 1 else 'one')\n"
    converted(tmp_path, HEAD + MODEL + asks + STEPS)
    done = lab.run(tmp_path / "train.py", processes=2, recorded=False).ok()
    assert done.printed == "True several\n"


ENGINE = """\
class Engine:
    def __init__(self, step):
        self.step = step
    def run(self, batches):
        self.scores = []
        for x, y in batches:
            self.scores.append(self.step(x, y))
        return {shown}
def train(x, y):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()
def test(x, y):
    with torch.no_grad():
        return ((model.module(x).argmax(1) == y).double().sum() {part}).item()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
others = DataLoader(TensorDataset(torch.randn(20, 8), torch.randint(2, (20,))), batch_size=6)
for epoch in range(3):
    print("%.8f" % Engine(train).run(loader), end=" ")
    print("%.8f" % Engine(test).run(others))
"""


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("shown", ["sum(self.scores)", "max(self.scores)"])
@pytest.mark.parametrize("part", ["", "/ len(y)"])
def test_a_loop_that_trains_or_evaluates_by_what_it_is_given_shows_what_it_did(
    lab: Lab, tmp_path: Path, shown: str, part: str
) -> None:
    alike(lab, tmp_path, HEAD + MODEL + ENGINE.replace("{shown}", shown).replace("{part}", part) + END)


def test_what_others_draw_from_the_training_s_loader_is_whole(lab: Lab, tmp_path: Path) -> None:
    program = (
        HEAD
        + """\
from torch.optim.swa_utils import update_bn
first = next(iter(loader))
print(first[0].shape[0], len(first[0]))
"""
        + MODEL
        + "norm = nn.Sequential(nn.BatchNorm1d(8))\n"
        + STEPS
        + 'update_bn(loader, norm)\nprint("%.8f" % norm[0].running_var.sum().item())\n'
        + END
    )
    alike(lab, tmp_path, program)


def test_a_wrapped_model_that_others_give_batches_divides_them(tmp_path: Path) -> None:
    """nn.DataParallel keeps the statistics of its first replica's part: whole batches keep them, too."""
    averages = (
        "from torch.optim.swa_utils import AveragedModel, update_bn\naveraged = AveragedModel(model{})\n"
    )
    tiers = {
        part: converted(
            tmp_path / (part or "all"),
            HEAD + MODEL + averages.format(part) + STEPS + "update_bn(loader, averaged)\n",
        )
        .scripts[0]
        .tier
        for part in ("", ".module")
    }
    assert tiers == {"": "whole batch", ".module": "sharded"}


# Batches of one sample

SINGLE = HEAD + MODEL + """\
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
ONE = 1
single = {loader}
for epoch in range(2):
    total, correct, count = 0.0, 0, 0
    for x, y in single:
        optimizer.zero_grad()
        out = model(x)
        loss = criterion(out, y)
        loss.backward()
        optimizer.step()
        total += loss.item()
        correct += (out.argmax(1) == y).sum().item()
        count += y.size(0)
    print("%.8f" % (total / count), correct, count)
"""


@pytest.mark.parametrize(
    "loader",
    ["DataLoader(data, batch_size=1)", "DataLoader(data)", "DataLoader(data, ONE)", "DataLoader(data, **{})"],
)
def test_batches_of_one_sample_stay_whole(loader: str) -> None:
    done = convert(Project.of({Path("/example/train.py"): SINGLE.format(loader=loader)}))
    assert done.scripts[0].tier == "whole batch"
    assert "batches of one sample can't be split over ranks" in told(done, written=True)


@pytest.mark.parametrize(
    "loader",
    ["DataLoader(data, batch_size=2)", "DataLoader(data, **{'batch_size': 4})", "DataLoader(data, 16 - 4)"],
)
def test_batches_of_more_samples_are_divided(loader: str) -> None:
    done = convert(Project.of({Path("/example/train.py"): SINGLE.format(loader=loader)}))
    assert done.scripts[0].tier == "sharded"


def test_a_program_with_batches_of_one_sample_trains_as_before(lab: Lab, tmp_path: Path) -> None:
    alike(lab, tmp_path, SINGLE.format(loader="DataLoader(data, shuffle=True)") + END)


# Losses of several outputs

SEVERAL = HEAD + """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 2), nn.Linear(8, 2)

    def forward(self, x):
        hidden = self.body(x).relu()
        return self.first(hidden), self.second(hidden)


model = nn.DataParallel(Net())
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        outputs = model(x)
        {summed}
        loss.backward()
        optimizer.step()
        total += {number}
    print("%.8f" % total)
"""
SUMMED = {
    "added in place": "loss = 0\n        for o in outputs:\n            loss += criterion(o, y)",
    "added": "loss = 0.0\n        for o in outputs:\n            loss = loss + criterion(o, y)",
    "weighted": "loss = 0\n        for o, w in zip(outputs, (1.0, 0.4)):\n            loss += w * criterion(o, y)",
    "Python's sum": "loss = sum(criterion(o, y) for o in outputs)",
}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("summed", SUMMED)
def test_losses_of_several_outputs_are_reported_of_the_whole_batch(
    lab: Lab, tmp_path: Path, summed: str
) -> None:
    program = SEVERAL.format(summed=SUMMED[summed], number="loss.item() / len(outputs)")
    assert "total += ddp.batch_loss(loss).item() / len(outputs)" in text_of(program)
    alike(lab, tmp_path, program)


LEARNER = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
class Callback:
    order = 0
    learn = None
    def __call__(self, event):
        step = getattr(type(self), event, None)
        if step is not None:
            step(self)
class SaveBest(Callback):
    order = 1
    def after_epoch(self):
        self.learn.save("best")
    def after_fit(self):
        self.learn.load("best")
class Log(Callback):
    def after_epoch(self):
        with open("log.txt", "a") as file:
            file.write("epoch\\n")
class Learner:
    def __init__(self, model, loader, callbacks=()):
        self.model, self.loader = nn.DataParallel(model), loader
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.callbacks = sorted(callbacks, key=lambda it: it.order)
        for callback in self.callbacks:
            callback.learn = self
    def __call__(self, event):
        for callback in self.callbacks:
            callback(event)
    def fit(self, epochs):
        self("before_fit")
        for _ in range(epochs):
            self("before_epoch")
            for x, y in self.loader:
                self("before_batch")
                loss = nn.functional.cross_entropy(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self("after_batch")
            self("after_epoch")
        self("after_fit")
    def save(self, name):
        torch.save(self.model.module.state_dict(), f"{name}.pth")
    def load(self, name):
        self.model.module.load_state_dict(torch.load(f"{name}.pth"))
torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(16, 8), torch.randint(2, (16,))), batch_size=8)
learner = Learner(nn.Linear(8, 2), loader, callbacks=[SaveBest(), Log()])
learner.fit(2)
learner.fit(1)
print("done")
"""


def test_callbacks_in_an_order_of_their_own_are_followed(lab: Lab, tmp_path: Path) -> None:
    """Run by their events' names, of their class: they write once, and all wait where one of them reads that."""
    converted(tmp_path, LEARNER)
    after = (tmp_path / "train.py").read_text()
    assert "ddp.barrier()" in after and 'ddp.open("log.txt", "a")' in after
    for processes in (2, 3):
        folder = lab.place(f"on{processes}")
        assert (
            lab.run(tmp_path / "train.py", processes=processes, folder=folder, recorded=False).ok().printed
            == "done\n"
        )
        assert (folder / "log.txt").read_text() == "epoch\n" * 3


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("shown", ["inputs.size(0)", "len(inputs)", "inputs.shape[0]"])
def test_the_size_of_a_batch_is_that_of_all_its_parts(lab: Lab, tmp_path: Path, shown: str) -> None:
    """Also where these are not of one size: 14 samples on three ranks, and 6 in the last batch."""
    steps = STEPS.replace("x, y", "inputs, y").replace("model(x)", "model(inputs)")
    steps += f"        print(step, {shown})\n"
    text = HEAD.replace("batch_size=12", "batch_size=14") + MODEL + steps
    converted(tmp_path, text)
    (tmp_path / "before.py").write_text(text)
    printed = [
        lab.run(tmp_path / name, processes=processes, recorded=False).ok().printed
        for name, processes in (("before.py", 1), ("train.py", 2), ("train.py", 3), ("train.py", 4))
    ]
    assert len(set(printed)) == 1 and printed[0].count("\n") == 8


TALLY = """\
class Tally:
    def __init__(self):
        self.total = 0
    def add(self, value):
        self.total += value
def overlap(outputs, targets, classes):
    hit = outputs.argmax(1)[outputs.argmax(1) == targets]
    return torch.histc(hit.float(), bins=classes, min=0, max=classes - 1)
class Settings:
    pass
settings = Settings()
for key, value in __import__('json').loads('{"classes": 2}').items():
    setattr(settings, key, value)
tally = Tally()
"""


def test_what_an_object_of_the_project_keeps_of_a_part_is_named() -> None:
    """By whichever method it is given that, and in a call with something that isn't known."""
    steps = STEPS.replace("criterion(model(x), y)", "criterion(outputs := model(x), y)")
    text = HEAD + TALLY + MODEL + steps + "        tally.add(overlap(outputs, y, settings.classes))\n"
    done = convert(Project.of({PATH: text + "    print(tally.total)\n"}), sharded=True)
    said = [it.message for it in done.findings if "rank's local batch only" in it.message]
    combined = "whole_batch(" in done.changes[0].after
    assert said or combined


@pytest.mark.parametrize(
    "found", ["datasets.__dict__[name.upper()]", "getattr(datasets, name)", "KINDS[name]"]
)
@pytest.mark.parametrize("download", [True, False])
def test_what_is_told_to_download_does_so_once(found: str, download: bool) -> None:
    """Whatever class it is that options choose."""
    text = HEAD + "from torchvision import datasets\nname = sys.argv[1]\nKINDS = __import__('kinds').KINDS\n"
    text += f"test = {found}('data', download={download})\n" + MODEL + STEPS
    assert ("with ddp.main_process_first():\n    test = " in text_of(text)) is download


def test_rows_that_are_kept_at_a_running_place_have_the_room_of_all(lab: Lab, tmp_path: Path) -> None:
    """The bounds of a slice count the samples, too."""
    steps = STEPS.replace(
        "    for x, y in loader:\n", "    kept, at = torch.zeros(48, 2), 0\n    for x, y in loader:\n"
    )
    steps = steps.replace("criterion(model(x), y)", "criterion(outputs, y)")
    steps = steps.replace("        loss = ", "        outputs = model(x)\n        loss = ", 1)
    steps += "        kept[at : at + len(y)] = outputs.detach()\n        at += len(y)\n"
    steps += "    print('%.6f' % kept.std().item(), at)\n"
    text = HEAD + MODEL + steps + END
    assert "ddp.shard(" in "".join(it.after for it in converted(tmp_path, text).changes)
    (tmp_path / "before.py").write_text(text)
    printed = [
        lab.run(tmp_path / name, processes=processes, recorded=False).ok().printed
        for name, processes in (("before.py", 1), ("train.py", 2), ("train.py", 3))
    ]
    assert len(set(printed)) == 1, printed


SUM_LOSS = "nn.functional.cross_entropy(model(x), y, reduction='sum')"


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("loss", ["criterion(model(x), y)", SUM_LOSS])
@pytest.mark.parametrize(
    "passes",
    [
        "torch.autograd.backward(loss)",
        "torch.autograd.backward([loss, 0.5 * loss])",
        "torch.autograd.backward(loss, torch.tensor(float(len(x))))",
        "torch.Tensor.backward(loss)",
        "loss.backward(torch.tensor(float(len(x))))",
        "loss.backward(torch.tensor(0.5))",
    ],
)
def test_a_backward_pass_by_a_function_or_with_a_weight(
    lab: Lab, tmp_path: Path, loss: str, passes: str
) -> None:
    """Starts from the loss that it is given, multiplied with what belongs to the batch."""
    steps = STEPS.replace("criterion(model(x), y)", loss).replace("loss.backward()", passes)
    text = HEAD + MODEL + steps.replace("lr=0.1", "lr=0.01") + END
    converted(tmp_path, text)
    (tmp_path / "before.py").write_text(text)
    printed = [
        lab.run(tmp_path / name, processes=processes, recorded=False).ok().printed
        for name, processes in (("before.py", 1), ("train.py", 2), ("train.py", 3))
    ]
    assert len(set(printed)) == 1, printed


OWN_SCALER = """\
class Scaler:
    def __call__(self, loss, optimizer, parameters=None, **others):
        self.backward(loss)
        optimizer.step()

    def backward(self, loss):
        loss.backward()


scale = Scaler()
"""


@pytest.mark.sample(every=3)
@pytest.mark.parametrize(
    ("made", "passes"),
    {
        "by one call": (
            "from timm.utils import NativeScaler\nscale = NativeScaler()\n",
            "scale(loss, optimizer, clip_grad=0.5, parameters=model.parameters())",
        ),
        "by name": (
            "import timm.utils\nscale = timm.utils.NativeScaler()\n",
            "scale(optimizer=optimizer, loss=loss)",
        ),
        "of an object's": (
            "from timm.utils import NativeScaler\nclass Held:\n    scale = NativeScaler()\nheld = Held()\n",
            "held.scale(loss, optimizer)",
        ),
        "of a derived class": (
            "from timm.utils import NativeScaler\nclass Scaler(NativeScaler):\n    pass\nscale = Scaler()\n",
            "scale(loss, optimizer)",
        ),
        "of a class of its own": (OWN_SCALER, "scale(loss, optimizer)"),
        "by a method": (
            "from accelerate import Accelerator\naccelerator = Accelerator()\n",
            "accelerator.backward(loss)\n        optimizer.step()",
        ),
    }.values(),
)
def test_what_is_given_a_loss_makes_its_backward_pass(
    lab: Lab, tmp_path: Path, made: str, passes: str
) -> None:
    steps = STEPS.replace("loss.backward()\n        optimizer.step()", passes)
    text = HEAD + made + MODEL + steps + END
    assert passes in steps
    (change,) = converted(tmp_path, text).changes
    assert "ddp.DistributedDataParallel(" in change.after and passes in change.after
    (tmp_path / "before.py").write_text(text)
    printed = [
        lab.run(tmp_path / name, processes=processes, recorded=False).ok().printed
        for name, processes in (("before.py", 1), ("train.py", 2), ("train.py", 3))
    ]
    assert len(set(printed)) == 1, printed


@pytest.mark.parametrize(
    ("made", "passes", "severity"),
    {
        "a call": ("from things import Stepper\nsteps = Stepper()\n", "steps(loss, optimizer)", "error"),
        "gradients by hand": (
            "",
            "for p, g in zip(model.parameters(), torch.autograd.grad(loss, [*model.parameters()])):\n"
            "            p.grad = g\n        optimizer.step()",
            "error",
        ),
        "a learner": ("from libcst import Learner\n", "pass\nLearner(loader, model).fit(3)", "note"),
        "one not found": ("from things import Learner\n", "pass\nLearner(loader, model).fit(3)", "error"),
        "nothing": ("", "pass", ""),
    }.values(),
)
def test_a_model_that_something_unknown_trains_is_told_of(made: str, passes: str, severity: str) -> None:
    steps = STEPS.replace("loss.backward()\n        optimizer.step()\n        step += 1", passes)
    done = convert(Project.of({Path("/example/train.py"): HEAD + made + MODEL + steps + END}))
    assert [it.severity.value for it in done.findings] == [severity] * bool(severity)
    known = (
        "`things` was not found"
        if "Learner" in passes and severity == "error"
        else "no backward pass was found"
    )
    assert all(known in it.message and it.help for it in done.findings)
    assert not done.changes and bool(done.idle) == (severity != "error")


@pytest.mark.parametrize(
    ("given", "kept"),
    {
        "of a loader": ("DataLoader(numbers, 8)", "loader.dataset"),
        "of a part": ("DataLoader(torch.utils.data.Subset(numbers, range(16)), 8)", "loader.dataset.dataset"),
        "by name": ("DataLoader(batch_size=8, dataset=numbers)", "getattr(loader, 'dataset')"),
    }.values(),
    ids=str,
)
def test_what_a_loader_keeps_is_what_it_was_given(tmp_path: Path, lab: Lab, given: str, kept: str) -> None:
    """A data set that writes files is found where only its loader is handed on."""
    program = f"""\
import time


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        return data[index]

    def show(self, values, path):
        folder = os.path.dirname(path)
        if not os.path.exists(folder):
            time.sleep(0.2)
            os.makedirs(folder)
        torch.save(values, path)


def evaluate(net, loader):
    with torch.no_grad():
        for index, (inputs, _) in enumerate(loader):
            {kept}.show(net(inputs), f"shown/{{index}}/output.pt")


model = nn.DataParallel(nn.Linear(8, 2))
numbers = {{"numbers": Numbers}}.get("numbers")()
"""
    done = converted(tmp_path, HEAD + program + STEPS + f"evaluate(model, {given})\n")
    assert not done.errors
    lab.run(tmp_path / "train.py", processes=2, recorded=False, folder=tmp_path).ok()
    assert len(list(tmp_path.glob("shown/*/output.pt"))) == (6 if "Subset" not in given else 2)


@pytest.mark.parametrize(
    ("wrapped", "found"),
    {
        "under a condition": (
            "if args.count > 1:\n    model = nn.DataParallel(model, device_ids=list(range(args.count)))\n",
            "model = ddp.DistributedDataParallel(model)\n",
        ),
        "by an expression": (
            "model = nn.DataParallel(model) if args.count > 1 else model\n",
            "model = ddp.DistributedDataParallel(model)\n",
        ),
        "where there are several": (
            "if torch.cuda.device_count() > 1:\n    model = nn.DataParallel(model)\n",
            "model = ddp.DistributedDataParallel(model)\n",
        ),
        "always": (
            "model = nn.DataParallel(model)\n",
            "model = ddp.DistributedDataParallel(model.to(ddp.device()))\n",
        ),
        "and is moved": (
            "if args.count > 1:\n    model = nn.DataParallel(model)\nmodel.cuda()\n",
            "model = ddp.DistributedDataParallel(model.to(ddp.device()))\n",
        ),
    }.values(),
    ids=str,
)
def test_a_model_is_moved_only_where_it_was(wrapped: str, found: str) -> None:
    """A text makes it, which may put it somewhere: in a single process, in which it was not wrapped, it stays there."""
    options = "parser = argparse.ArgumentParser()\nparser.add_argument('--count', type=int, default=1)\n"
    options += "parser.add_argument('--device', default='cpu')\nargs = parser.parse_args()\n"
    made = "model = eval('nn.Linear(8, 2).to(args.device)')\n"
    assert found in text_of(HEAD + options + made + wrapped + STEPS)


TEMPLATE = """\
import json
import logging

METRICS = json.loads('{"metrics": ["right", "NAMES"]}')["metrics"]


def right(output, target):
    with torch.no_grad():
        return torch.sum(output.argmax(1) == target).item() / len(target)


def spread(output, target):
    return (output.max() - output.min()).item()


class Tracker:
    def __init__(self, *keys):
        self.kept = {key: {"total": 0.0, "count": 0, "average": 0.0} for key in keys}

    def update(self, key, value, n=1):
        one = self.kept[key]
        one["total"] += value * n
        one["count"] += n
        one["average"] = one["total"] / one["count"]

    def result(self):
        return {key: one["average"] for key, one in self.kept.items()}


class Base:
    def __init__(self, model, loader, metrics):
        self.model, self.loader, self.metrics = model, loader, metrics
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.logger = logging.getLogger("train")

    def _train_epoch(self, epoch):
        raise NotImplementedError

    def train(self):
        best, waited = float("inf"), 0
        for epoch in range(4):
            result = self._train_epoch(epoch)
            log = {"epoch": epoch}
            log.update(result)
            for key, value in log.items():
                self.logger.info("    {:15s}: {:.9f}".format(str(key), value))
            if log[WATCHED] < best:
                best, waited = log[WATCHED], 0
            else:
                waited += 1
            if waited > 1:
                break


class Trainer(Base):
    def _train_epoch(self, epoch):
        tracker = Tracker("loss", *[it.__name__ for it in self.metrics])
        for x, y in self.loader:
            output = self.model(x)
            loss = nn.functional.cross_entropy(output, y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            tracker.update("loss", loss.item())
            for met in self.metrics:
                tracker.update(met.__name__, met(output, y))
        return tracker.result()


logging.basicConfig(level=logging.INFO, stream=sys.stdout)
"""


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("watched", ["loss", "right", "spread"])
def test_metrics_that_settings_choose_are_those_of_the_whole_batch(
    lab: Lab, tmp_path: Path, watched: str
) -> None:
    """By whichever object they are kept, and whatever is decided by them."""
    made = "METRICS = [getattr(sys.modules[__name__], it) for it in METRICS]\n"
    text = HEAD + TEMPLATE.replace("NAMES", "spread").replace("WATCHED", repr(watched)) + made + MODEL
    text += "Trainer(model, loader, METRICS).train()\n"
    alike(lab, tmp_path, text)
    assert "DistributedDataParallel" in (tmp_path / "after" / "train.py").read_text()


BARS = {
    "a name": "    bar = enumerate(loader)\n",
    "two": "    bar = enumerate(loader)\n    if args:\n        bar = tqdm(bar)\n",
}
NUMBERED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

torch.manual_seed(0)
args = [1]
model = nn.DataParallel(nn.Linear(8, 2).double())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(32, 8).double(), torch.randn(32, 2).double())
loader = DataLoader(data, batch_size=8)
for epoch in range(2):
{bar}    for step, (inputs, targets) in bar:
        done = step + epoch * len(loader)
        if done > 2:
            inputs = inputs * 2
        loss = nn.functional.mse_loss(model(inputs), targets) / (1 + done)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(done, "%.9f" % loss.item())
"""


@pytest.mark.parametrize("bar", BARS.values(), ids=BARS)
def test_rounds_are_numbered_alike_where_a_bar_has_a_name(lab: Lab, tmp_path: Path, bar: str) -> None:
    """``bar = enumerate(loader)``, ``bar = tqdm(bar)``: what they are numbered by is no part of the batch."""
    text = NUMBERED.format(bar=bar)
    done = converted(tmp_path / "after", {"train.py": text})
    assert [it.tier for it in done.scripts] == ["sharded"] and not [
        it for it in done.findings if not it.edits
    ]
    (tmp_path / "before.py").write_text(text)
    before = lab.run(tmp_path / "before.py", recorded=False, folder=tmp_path).ok()
    after = lab.run(tmp_path / "after" / "train.py", processes=2, recorded=False, folder=tmp_path).ok()
    assert after.printed == before.printed


ON_ONE = {
    "a move behind a wrap that an option chooses": {"train.py": """\
import sys
import torch
from torch import nn, optim
from torch.utils.data import DataLoader


class Solver:
    def __init__(self, several, device):
        self.device = torch.device(device)
        self.net = nn.Linear(4, 4)
        if several and torch.cuda.device_count() > 1:
            self.net = nn.DataParallel(self.net)
        self.net.to(self.device)
        self.optimizer = optim.SGD(self.net.parameters(), 0.1)

    def train(self, loader):
        for x in loader:
            loss = self.net(x.to(self.device)).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        print("read on", next(self.net.parameters()).device)


if __name__ == "__main__":
    Solver(False, "meta").train(DataLoader([torch.ones(4)] * 4, batch_size=2))
"""},
    "a helper that a function calls which nothing runs": {
        "helper.py": "def moved(batch, model):\n    return [it.to(model.where) for it in batch]\n\n\n"
        "def unused(batch, model):\n    return moved(batch, model)\n",
        "train.py": """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from helper import moved


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    @property
    def where(self):
        return next(self.parameters()).device

    def forward(self, x):
        return self.layer(x)


def main():
    several = torch.cuda.device_count()
    model = Net().to("cuda" if several else "cpu")
    if several > 1:
        model = nn.DataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in DataLoader(torch.ones(8, 4), batch_size=4, shuffle=True):
        (x,) = moved([batch], model)
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
    print("read on", model.where)


if __name__ == "__main__":
    main()
""",
    },
}


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for a machine without a GPU")
@pytest.mark.parametrize("name", ON_ONE)
def test_in_one_process_models_stay_where_the_original_has_them(name: str, lab: Lab, tmp_path: Path) -> None:
    converted(tmp_path, ON_ONE[name])
    ran = lab.run(tmp_path / "train.py", processes=1, recorded=False, folder=tmp_path).ok()
    assert ran.printed == f"read on {'meta' if name.startswith('a move') else 'cpu'}\n"


def test_what_a_helper_asks_a_wrapped_model_for_is_asked_of_the_model(lab: Lab, tmp_path: Path) -> None:
    """Also where a function calls it that nothing runs, with what is not known."""
    program = {
        name: text.replace('"cuda" if several else "cpu"', '"cpu"')
        for name, text in [*ON_ONE.values()][1].items()
    }
    converted(tmp_path, program)
    run = lab.run(tmp_path / "train.py", processes=2, recorded=False, folder=tmp_path).ok()
    assert run.printed == "read on cpu\n"
