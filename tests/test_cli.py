"""The command as a person runs it: exit codes, what it prints, what it writes and what it leaves alone."""

from __future__ import annotations

import ast
import codecs
import os
import pty
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import command
import pytest
import torch

from dp2ddp import cli

REPOSITORY = Path(__file__).parents[1]
PYTHON = [sys.executable, "-m", "dp2ddp"]

TRAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    model = nn.DataParallel(nn.Linear(8, 2)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs.cuda()), targets.cuda()).backward()
            optimizer.step()
        print("epoch", epoch)


if __name__ == "__main__":
    main()
"""
KEPT = TRAIN.replace("nn.Linear(8, 2))", "nn.Linear(8, 2), **{})")
IDLE = "import torch\n\nprint(torch.zeros(1))\n"
BROKEN = "def f(:\n    pass\n"

LOADS = TRAIN.replace("    optimizer", '    model.load_state_dict(torch.load("model.pt"))\n    optimizer', 1)
SPLIT = {
    "train.py": TRAIN.replace("import torch\n", "import torch\nfrom lib.data import dataset\n", 1).replace(
        "TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))", "dataset()"
    ),
    "lib/__init__.py": "",
    "lib/data.py": "import torch\nfrom torch.utils.data import TensorDataset\n\n\ndef dataset():\n"
    '    torch.save(64, "size.pt")\n    return TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))\n',
}

TOOLS = [
    pytest.param(["git", "apply"], id="git"),
    pytest.param(
        ["patch", "-p1", "--quiet"],
        id="patch",
        marks=pytest.mark.skipif(not shutil.which("patch"), reason="there is no patch on this machine"),
    ),
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path.resolve() / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    return folder


def write(files: dict[str, str]) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(text.encode())


def run(*arguments: str, stdin: bytes = b"", cwd: str = ".") -> subprocess.CompletedProcess[bytes]:
    done = command.run(*arguments, stdin=stdin, cwd=cwd)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done


def tree(folder: Path | str = ".") -> dict[str, bytes]:
    files = (path for path in sorted(Path(folder).rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


# Exit codes


@pytest.mark.parametrize(
    ("files", "arguments", "code"),
    [
        ({"train.py": TRAIN}, ["train.py"], 0),
        ({"train.py": TRAIN}, ["train.py", "--diff"], 0),
        ({"train.py": TRAIN}, ["."], 0),
        ({"eval.py": IDLE}, ["eval.py"], 0),
        ({"eval.py": IDLE}, ["eval.py", "--check"], 0),
        ({"empty/notes.txt": ""}, ["."], 0),
        ({"train.py": TRAIN}, ["train.py", "--check"], 1),
        ({"train.py": TRAIN}, ["train.py", "--diff", "--check"], 1),
        ({"train.py": KEPT}, ["train.py"], 3),
        ({"train.py": KEPT, "other.py": TRAIN}, ["."], 3),
        ({"broken.py": BROKEN}, ["broken.py"], 4),
        ({}, ["missing.py"], 4),
        ({"broken.py": BROKEN, "train.py": TRAIN}, ["."], 4),
        # several at once: 2 before 4 before 3 before 1
        ({"train.py": KEPT}, ["train.py", "--check"], 3),
        ({"train.py": KEPT, "other.py": TRAIN}, [".", "--check"], 3),
        ({"train.py": TRAIN, "broken.py": BROKEN}, [".", "--check"], 4),
        ({"train.py": KEPT, "broken.py": BROKEN}, ["."], 4),
        ({"train.py": KEPT, "broken.py": BROKEN, "other.py": TRAIN}, [".", "--check"], 4),
        ({"train.py": TRAIN}, ["train.py", "--check", "--inplace"], 2),
        ({"train.py": KEPT}, ["train.py", "--check", "--inplace"], 2),
        ({"broken.py": BROKEN}, ["broken.py", "--inplace", "--diff"], 2),
        ({"broken.py": BROKEN, "train.py": KEPT}, [".", "--output", "out"], 2),
    ],
)
def test_exit_codes(files: dict[str, str], arguments: list[str], code: int) -> None:
    write(files)
    before = tree()
    done = run("convert", *arguments)
    assert done.returncode == code, done.stderr.decode()
    assert tree() == before


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["convert"],
        ["convert", "train.py", "--nonsense"],
        ["convert", "train.py", "--inplace", "--output", "out"],
        ["convert", "train.py", "--diff", "--output", "out"],
        ["convert", "train.py", "--diff", "--inplace"],
        ["convert", "train.py", "--inplace", "--check"],
        ["convert", "train.py", "--output", "out", "--check"],
        ["convert", "-", "--inplace"],
        ["convert", "-", "--output", "out"],
        ["convert", ".", "--output", "out"],
        ["convert", "sub", "--output", "."],
        ["convert", "train.py", "--output", "sub"],
        ["convert", "train.py", "--output", "train.py"],
        ["explain", "DDP999"],
        ["explain", "9"],
    ],
)
def test_wrong_usage_is_said_in_one_line(arguments: list[str]) -> None:
    write({"train.py": TRAIN, "sub/eval.py": IDLE})
    before = tree()
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == b""
    assert len(done.stderr.splitlines()) == 1
    assert tree() == before


# What it prints


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("arguments", [["."], ["train.py"], ["lib", "train.py", "--diff"]])
def test_the_diff_applies_and_is_what_inplace_writes(tool: list[str], arguments: list[str]) -> None:
    write(SPLIT)
    done = run("convert", *arguments)
    subprocess.run(tool, input=done.stdout, check=True)
    applied = tree()
    write(SPLIT)
    assert run("convert", ".", "--inplace").returncode == 0
    assert tree() == applied
    assert {name for name in applied if applied[name] != SPLIT[name].encode()} == {"train.py", "lib/data.py"}


def odd(text: str, encoding: str) -> bytes:
    """A script with characters of its own, in an encoding."""
    cookie = "# -*- coding: latin-1 -*-\n" if encoding == "latin-1" else ""
    return (cookie + text.replace('epoch"', 'é poch"')).encode(encoding)


FORMS = {
    "plain": odd(TRAIN, "utf-8"),
    "carriage returns": odd(TRAIN, "utf-8").replace(b"\n", b"\r\n"),
    "latin-1": odd(TRAIN, "latin-1"),
    "byte order mark": odd(TRAIN, "utf-8-sig"),
    "no end": odd(TRAIN, "utf-8").rstrip(b"\n"),
    "tabs": odd(TRAIN, "utf-8").replace(b"    ", b"\t"),
    "all at once": odd(TRAIN, "latin-1").replace(b"\n", b"\r\n").replace(b"    ", b"\t").rstrip(b"\r\n"),
}


@pytest.mark.parametrize("form", FORMS)
def test_files_keep_their_form(form: str) -> None:
    data = FORMS[form]
    Path("train.py").write_bytes(data)
    os.chmod("train.py", 0o754)
    done = run("convert", "train.py")
    assert run("convert", "train.py", "--inplace").returncode == 0
    after = Path("train.py").read_bytes()
    assert stat.S_IMODE(os.stat("train.py").st_mode) == 0o754
    assert after != data
    ast.parse(after)
    if data.startswith(codecs.BOM_UTF8):
        assert after.startswith(codecs.BOM_UTF8)
    assert after.endswith(b"\n") == data.endswith(b"\n")
    assert (b"\r" in after) == (b"\r" in data)
    assert after.count(b"\n") == after.count(b"\r\n") or b"\r" not in data
    kept = [line for line in data.split(b"\n") if b'poch"' in line or b"optimizer" in line]
    assert kept and all(line in after for line in kept)
    for tool in (["git", "apply"], ["patch", "-p1", "--quiet"]):
        if shutil.which(tool[0]):
            Path("train.py").write_bytes(data)
            subprocess.run(tool, input=done.stdout, check=True)
            assert Path("train.py").read_bytes() == after


def test_converting_twice_changes_nothing() -> None:
    write(SPLIT)
    assert run("convert", ".", "--inplace").returncode == 0
    once = tree()
    done = run("convert", ".", "--inplace")
    assert done.returncode == 0
    assert tree() == once
    assert done.stderr == b"train.py, lib/data.py: nothing to do (already converted)\n"
    assert run("convert", ".", "--check").returncode == 0


def test_a_script_with_ranks_of_its_own_is_told_so() -> None:
    write({"train.py": "from torch.nn.parallel import DistributedDataParallel as DDP\n\nmodel = DDP(None)\n"})
    done = run("convert", "train.py", "--check")
    assert done.returncode == 0
    assert done.stderr == b"train.py: nothing to do (it uses DistributedDataParallel already)\n"


def test_a_program_that_only_predicts_is_told_that_its_wrap_stays() -> None:
    predicts = "from torch import nn\n\nmodel = nn.DataParallel(nn.Linear(8, 2)).eval()\nprint(model)\n"
    write({"infer.py": predicts})
    done = run("convert", "infer.py")
    assert done.returncode == 0
    assert done.stderr.decode() == (
        "infer.py: nothing to do (it wraps a model at line 3 but does not train; nn.DataParallel stays)\n"
    )


@pytest.mark.parametrize("text", [None, BROKEN])
def test_a_script_that_imports_what_cannot_be_read_is_not_said_to_have_nothing(text: str | None) -> None:
    write({"run.py": "from trainer import fit\n\nfit()\n", "trainer.py": text or ""})
    if text is None:
        Path("trainer.py").chmod(0)
        if os.access("trainer.py", os.R_OK):  # as the administrator may
            pytest.skip("nothing is unreadable for this user")
    done = run("convert", "run.py")
    assert done.returncode == 4
    first, last = done.stderr.decode().splitlines()
    assert first.startswith("trainer.py")
    assert last == "run.py: not converted: it imports trainer.py, which can't be read"


def test_the_summary_says_what_to_do() -> None:
    write({**SPLIT, "eval.py": IDLE})
    done = run("convert", ".", "--check")
    lines = done.stderr.decode().splitlines()
    assert any(re.fullmatch(r"train.py: \d edits", line) for line in lines)
    assert any("python train.py ..." in line for line in lines)
    assert any("torchrun --nproc-per-node N -- train.py ..." in line for line in lines)
    assert "eval.py: nothing to do (no DataParallel)" in lines
    assert lines[-2:] == [
        "would write: lib/data.py, train.py",
        "1 converted; next: dp2ddp verify train.py, then dp2ddp convert . --inplace",
    ]
    assert done.stdout == b""


@pytest.mark.parametrize(
    ("devices", "said"),
    [("[0]", "(one process: line 9 names one GPU only)"), ("[0, 1]", "(one process per GPU)")],
)
def test_who_names_one_gpu_is_told_that_one_process_is_started(devices: str, said: str) -> None:
    write({"train.py": TRAIN.replace("nn.Linear(8, 2))", f"nn.Linear(8, 2), device_ids={devices})")})
    lines = run("convert", "train.py", "--check").stderr.decode().splitlines()
    assert f"  start it with: python train.py ...  {said}" in lines
    assert any("torchrun" in it for it in lines) == ("per GPU" in said)


def test_programs_that_import_what_is_changed_are_named() -> None:
    """They train or load through it, too: one that is not converted would go on otherwise than before."""
    use = "from lib.data import dataset\n\n"
    write(
        {
            **SPLIT,
            "first.py": f"{use}if __name__ == '__main__':\n    dataset()\n",
            "second.py": f"{use}print(dataset())\n",
            "library.py": f"{use}DATA = dataset\n",
            "other.py": "print('no lib')\n",
        }
    )
    said = "first.py, second.py also use lib/data.py, which now imports dp2ddp"
    assert said in run("convert", "train.py", "--check").stderr.decode().splitlines()
    assert " also use" not in run("convert", ".", "--check").stderr.decode()


def test_programs_that_use_what_is_only_spelled_anew_are_not_named() -> None:
    """It needs no dp2ddp."""
    sizes = "import numpy as np\n\n\ndef sizes(values, dtype=np.int):\n    return values.astype(dtype)\n"
    train = "from lib.sizes import sizes\n" + SPLIT["train.py"]
    write(
        {
            **SPLIT,
            "train.py": train,
            "lib/sizes.py": sizes,
            "first.py": "from lib.sizes import sizes\n\nprint(sizes)\n",
        }
    )
    said = run("convert", "train.py", "--check").stderr.decode()
    assert "lib/sizes.py" in said and "now import" not in said


def test_programs_that_wrap_by_a_changed_line_are_told_to_use_one_gpu() -> None:
    """They start no ranks: what evaluated on all GPUs does so on one, and what trained can be converted."""
    build = "from model import build\n\nmodel = build()\n"
    trained = TRAIN.replace("nn.DataParallel(nn.Linear(8, 2)).cuda()", "build()").replace(".cuda()", "")
    trained = trained.replace("import torch\n", "import torch\nfrom model import build\n", 1)
    evaluated = (
        f"import torch\n{build}\nwith torch.no_grad():\n    print(tuple(model(torch.zeros(4, 8)).shape))\n"
    )
    write(
        {
            "model.py": "from torch import nn\n\n\ndef build():\n    return nn.DataParallel(nn.Linear(8, 2))\n",
            "train.py": trained,
            "other.py": trained,
            "test.py": evaluated,
            "show.py": "import model\n\nprint(model.__name__)\n",
            "again.py": "from train import main\n\nmain()\n",
        }
    )
    lines = run("convert", "train.py", "--inplace").stderr.decode().splitlines()
    assert [it for it in lines if "also use" in it] == [
        "again.py also uses model.py, train.py, which now import dp2ddp",
        "other.py also uses model.py, which now imports dp2ddp; it uses one GPU then; to train on several GPUs, convert it, too",
        "show.py also uses model.py, which now imports dp2ddp",
        "test.py also uses model.py, which now imports dp2ddp; it uses one GPU then",
    ]
    for script in ("test.py", "other.py"):
        done = subprocess.run([sys.executable, script], capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr


def test_notebooks_that_import_a_changed_file_are_named() -> None:
    """With their commands and cells that are no Python; a notebook that imports nothing of it is not."""
    cells = {
        "play": [
            "%matplotlib inline\\nfrom model import build",
            "for it in\\n",
            "model = build()\\n!ls\\nprint(model)",
        ],
        "other": ["import torch", "model = 1"],
    }
    texts = {
        f"{name}.ipynb": '{"cells": ['
        + ", ".join(f'{{"cell_type": "code", "source": ["{cell}"]}}' for cell in code)
        + "]}"
        for name, code in cells.items()
    }
    trained = TRAIN.replace("nn.DataParallel(nn.Linear(8, 2)).cuda()", "build()").replace(".cuda()", "")
    write(
        {
            "model.py": "from torch import nn\n\n\ndef build():\n    return nn.DataParallel(nn.Linear(8, 2))\n",
            "train.py": trained.replace("import torch\n", "import torch\nfrom model import build\n", 1),
            "broken.ipynb": "from model import build",
            **texts,
        }
    )
    lines = run("convert", "train.py").stderr.decode().splitlines()
    assert [it for it in lines if "also use" in it] == [
        "play.ipynb also uses model.py, which now imports dp2ddp; it uses one GPU then",
    ]


CHECKING = {
    "an instance": "assert isinstance(model, DataParallel)",
    "no instance": "assert not (not isinstance(model, DataParallel))",
    "the very type": "assert type(model) == DataParallel",
    "another type": "if type(model) is not DataParallel:\n        raise TypeError(model)",
    "one of several": "assert type(model) in (int, DataParallel)",
}
CHECKS = """import torch
from torch.nn.parallel import DataParallel


def checked(model):
    CHECK
    return model
"""
TRAINED = """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lib.checks import checked


def main():
    model = checked(nn.DataParallel(nn.Linear(4, 2)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = TensorDataset(torch.randn(12, 4), torch.randint(2, (12,)))
    for inputs, targets in DataLoader(data, batch_size=4, shuffle=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    torch.save(model.state_dict(), "model.pth")


if __name__ == "__main__":
    main()
"""
TESTED = """import torch
from torch import nn

from lib.checks import checked

model = checked(nn.DataParallel(nn.Linear(4, 2)))
model.load_state_dict(torch.load("model.pth"))
print(model(torch.ones(2, 4)))
"""


@pytest.mark.sample("an instance", "one of several")
@pytest.mark.parametrize("name", CHECKING)
def test_a_check_that_other_programs_make_is_right_for_them_too(name: str) -> None:
    """One that is not converted keeps its wrap. What it reads can be converted later, as it is said."""
    write({"lib/checks.py": CHECKS.replace("CHECK", CHECKING[name]), "train.py": TRAINED, "test.py": TESTED})
    start = [sys.executable, "train.py"]
    subprocess.run(start, check=True, timeout=120)
    assert run("convert", "train.py", "--inplace").returncode == 0
    subprocess.run([sys.executable, "test.py"], check=True, timeout=120)
    done = run("convert", "train.py", "test.py", "--inplace")
    assert done.returncode == 0 and "strip_module_prefix" in Path("test.py").read_text(), done.stderr
    assert run("convert", "train.py", "test.py", "--check").returncode == 0
    subprocess.run(start, check=True, timeout=120, env={**os.environ, "DP2DDP_PROCESSES": "2"})
    subprocess.run([sys.executable, "test.py"], check=True, timeout=120)


def test_a_check_that_only_converted_programs_make_is_of_one_class() -> None:
    """Also where others use its file, and wrap nothing."""
    checks = CHECKS.replace("CHECK", CHECKING["an instance"])
    write(
        {
            "lib/checks.py": checks,
            "train.py": TRAINED,
            "show.py": "from lib.checks import checked\n\nprint(checked)\n",
        }
    )
    assert run("convert", "train.py", "--inplace").returncode == 0
    assert "isinstance(model, ddp.DistributedDataParallel)" in Path("lib/checks.py").read_text()


EXPERIMENT = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(x)


class Experiment:
    def __init__(self, several=True):
        self.several = several
        self.model = self.build()

    def build(self):
        model = Net()
        if self.several and torch.cuda.device_count() != 1:
            model = nn.DataParallel(model)
        return model
"""
TAKEN_FOR_BARE = {
    "state": "exp.model.load_state_dict(torch.load('net.pt'))\nprint(exp.model(torch.ones(1, 8)).shape)\n",
    "layer": "print(exp.model.head(torch.ones(1, 8)).shape)\n",
    "called": "print(exp.model.eval()(torch.ones(1, 8)).shape)\n",
    "asked": "net = exp.model\nif hasattr(net, 'module'):\n    net = net.module\nprint(net.head(torch.ones(1, 8)).shape)\n",
    "either": "print((exp.model.module if hasattr(exp.model, 'module') else exp.model).state_dict().keys())\n",
}


@pytest.mark.sample("called")
@pytest.mark.parametrize("use", TAKEN_FOR_BARE)
def test_programs_whose_model_is_always_wrapped_now_are_told_to_be_converted(use: str) -> None:
    """They build it by a function that asked whether to wrap it: named where that fails, right if converted, too."""
    trained = TRAIN.replace("nn.DataParallel(nn.Linear(8, 2)).cuda()", "exp.model").replace(".cuda()", "")
    trained = trained.replace("import torch\n", "import torch\nfrom experiment import Experiment\n", 1)
    trained = trained.replace("def main():\n", "def main():\n    exp = Experiment()\n")
    trained = trained.replace('print("epoch", epoch)', 'torch.save(exp.model.module.state_dict(), "net.pt")')
    evaluated = f"import torch\nfrom experiment import Experiment\n\nexp = Experiment(several=False)\n{TAKEN_FOR_BARE[use]}"
    write({"experiment.py": EXPERIMENT, "train.py": trained, "evaluate.py": evaluated})
    torch.save({"head.weight": torch.ones(2, 8), "head.bias": torch.ones(2)}, "net.pt")
    before = subprocess.run([sys.executable, "evaluate.py"], capture_output=True, check=True, timeout=120)
    done = run("convert", "train.py", "--check")
    advice = {"state": "convert it, too", "layer": "write `.module` there"}.get(use, "")
    said = f", and the model is always wrapped, which evaluate.py:5 does not expect: {advice}\n"
    assert (said in done.stderr.decode()) is bool(advice), done.stderr.decode()
    Path("evaluate.py").write_text(evaluated.replace("exp.model.head", "exp.model.module.head"))
    assert run("convert", "train.py", *["evaluate.py"] * (use == "state"), "--inplace").returncode == 0
    after = subprocess.run([sys.executable, "evaluate.py"], capture_output=True, timeout=120)
    assert (after.stdout, after.returncode) == (before.stdout, 0), after.stderr.decode()


@pytest.mark.sample("method")
@pytest.mark.parametrize("form", ["function", "method", "star", "package", "in lines", "module beside"])
def test_programs_that_are_not_converted_go_on_saving_bare_models(form: str) -> None:
    """They give a function that saves what nothing wraps, which has no ``module``."""
    saving = "import torch\n\n\ndef keep(net, path):\n    torch.save(net.state_dict(), path)\n"
    if form == "method":
        saving = (
            "import torch\n\n\nclass Keeper:\n    def __init__(self, net):\n        self.net = net\n\n"
            "    def keep(self, path):\n        torch.save(self.net.state_dict(), path)\n"
        )
    name, call = ("keep", "keep({}, '{}')") if form != "method" else ("Keeper", "Keeper({}).keep('{}')")
    trained = (
        TRAIN.replace(".cuda()", "")
        .replace("import torch\n", f"import torch\nfrom saving import {name}\n", 1)
        .replace('print("epoch", epoch)', call.format("model", "wrapped.pt"))
    )
    tuned = (
        f"from torch import nn\nfrom saving import {name}\n\n{call.format('nn.Linear(8, 2)', 'bare.pt')}\n"
    )
    files = {"train.py": trained, "saving.py": saving, "tune.py": tuned}
    if form in ("star", "package", "in lines"):  # it is in a module that only the package names
        del files["saving.py"]
        taken = "*" if form == "star" else name
        files |= {"saving/__init__.py": f"from .keeping import {taken}\n", "saving/keeping.py": saving}
    if form == "in lines":
        files |= {"tools/__init__.py": "", "tools/saving.py": f"from saving import {name}\n"}
        files["tune.py"] = tuned.replace(
            "saving import keep", "tools import (\n    saving,\n)\nkeep = saving.keep"
        )
    if form == "module beside":
        files["more.py"] = "from saving import keep\n\n\ndef more(net, path):\n    keep(net, path)\n"
        files["tune.py"] = tuned.replace("saving import keep", "more import more").replace("keep(", "more(")
    write(files)
    done = run("convert", "train.py", "--inplace")
    assert done.returncode == 0 and b"tune.py also uses" in done.stderr
    for script in ("train.py", "tune.py"):
        subprocess.run(
            [sys.executable, script], check=True, env={**os.environ, "DP2DDP_PROCESSES": "2"}, timeout=120
        )
    for path in ("wrapped.pt", "bare.pt"):
        assert set(torch.load(path)) == {"weight", "bias"}


def test_the_whole_batch_tier_names_the_line_that_forced_it() -> None:
    write(
        {
            **SPLIT,
            "train.py": SPLIT["train.py"].replace(
                "nn.functional.cross_entropy(model(inputs.cuda()), targets.cuda())",
                "(model(inputs.cuda()) if epoch else model(inputs.cuda())).std()",
            ),
        }
    )
    lines = run("convert", "train.py").stderr.decode().splitlines()
    assert lines[0].startswith("train.py:15: DDP501 note: ")
    assert "  whole batch, because of line 15: every rank gets the whole batch" in lines


def test_an_error_keeps_all_as_it_is_unless_forced() -> None:
    write({"train.py": KEPT})
    done = run("convert", "train.py", "--inplace")
    assert (done.returncode, Path("train.py").read_text()) == (3, KEPT)
    done = run("convert", "train.py", "--inplace", "--force", "--mark")
    assert done.returncode == 3
    assert re.search(rb"\ntrain.py: \d edits, 1 to do by hand\n", done.stderr)
    after = Path("train.py").read_text().splitlines()
    assert '        print("epoch", epoch)' in after
    place = next(index for index, line in enumerate(after) if "= nn.DataParallel(" in line)
    assert after[place - 1] == (
        "    # dp2ddp: DDP102 error: arguments of nn.DataParallel are passed by `*` or `**`: the model is unknown; "
        "write them out: `nn.DataParallel(model)`"
    )


def test_the_batch_exact_form_is_asked_for() -> None:
    write({"train.py": TRAIN})
    done = run("convert", "train.py", "--exact")
    assert b"+    loader = ddp.shard(DataLoader(data, batch_size=16, shuffle=True))" in done.stdout
    assert b"  sharded, in the original's batches: each rank loads its part of every batch" in done.stderr


def test_an_error_names_its_place_and_what_to_do() -> None:
    write({"train.py": KEPT})
    done = run("convert", "train.py")
    assert done.stdout == b""
    line, script, last = done.stderr.decode().splitlines()
    assert line.startswith("train.py:9: DDP102 error: ")
    assert re.fullmatch(r"train.py: refused: 1 error to fix, then \d edits can be made", script)
    assert last.startswith("nothing is converted, 1 refused (train.py: 1 error); next: ")


def test_a_broken_file_keeps_the_scripts_that_need_it_as_they_are() -> None:
    write({**SPLIT, "lib/data.py": BROKEN, "other.py": TRAIN})
    before = tree()
    done = run("convert", "train.py", "other.py", "--inplace")
    assert done.returncode == 4
    assert {name for name, text in tree().items() if text != before[name]} == {"other.py"}
    first, *_, last = done.stderr.decode().splitlines()
    assert first.startswith("lib/data.py:1: DDP001 error: train.py can't be converted without this file: ")
    assert last.startswith("1 converted, 1 refused (train.py: 1 error); next: ")


def test_a_broken_file_that_nobody_needs_blocks_nothing() -> None:
    write({"train.py": TRAIN, "broken.py": BROKEN})
    done = run("convert", ".", "--inplace")
    assert done.returncode == 4
    assert done.stderr.decode().splitlines()[0].startswith("broken.py:1: not valid Python: ")
    assert b"DistributedDataParallel" in Path("train.py").read_bytes()
    assert Path("broken.py").read_text() == BROKEN


# Old Python

OLD = TRAIN.replace("inputs.cuda()", "inputs.cuda(async=True)")
PRINTS = 'def hello():\n    print "hello"\n'
SPELLED = "train.py:14: DDP601 note: `async` is a keyword since Python 3.7; `async=` replaced by `non_blocking=`; no action needed"


@pytest.mark.parametrize("tool", TOOLS)
def test_a_file_of_old_python_is_mended_and_converted_at_once(tool: list[str]) -> None:
    text = OLD.replace("\n", "\r\n")
    write({"train.py": text})
    assert run("convert", "train.py", "--check").returncode == 1
    done = run("convert", "train.py")
    assert done.stderr.decode().splitlines()[0] == SPELLED
    assert b"async=True" in done.stdout and tree() == {"train.py": text.encode()}
    subprocess.run([*tool, *(["--binary"] if tool[0] == "patch" else [])], input=done.stdout, check=True)
    applied = Path("train.py").read_bytes()
    write({"train.py": text})
    run("convert", "train.py", "--inplace")
    assert Path("train.py").read_bytes() == applied
    assert b"inputs.cuda(non_blocking=True)" in applied and b"async" not in applied
    assert applied.count(b"\r\n") == applied.count(b"\n")
    assert b"nothing to do" in run("convert", "train.py", "--check").stderr


def test_a_file_of_old_python_on_standard_input_is_mended() -> None:
    done = run("convert", "-", stdin=OLD.encode())
    assert done.returncode == 0 and b"non_blocking=True" in done.stdout


def test_what_is_not_converted_is_not_mended() -> None:
    write(
        {
            "train.py": KEPT.replace("inputs.cuda()", "inputs.cuda(async=True)"),
            "other.py": "x.cuda(async=True)\n",
        }
    )
    before = tree()
    done = run("convert", ".", "--inplace")
    assert done.returncode == 3
    assert tree() == before
    assert b"other.py: nothing to do" in done.stderr and b"other.py:1" not in done.stderr


def test_files_that_a_program_needs_are_mended_along() -> None:
    data = (
        SPLIT["lib/data.py"].replace("    torch.save", "        torch.save").replace("    return", "\treturn")
    )
    data = data.replace("64, 8)", "64, 8).cuda(async=True)")
    write({**SPLIT, "lib/data.py": data, "lib/more.py": "x.cuda(async=True)\n"})
    done = run("convert", ".", "--inplace")
    assert done.returncode == 0, done.stderr.decode()
    assert Path("lib/more.py").read_text() == "x.cuda(async=True)\n"
    changed = Path("lib/data.py").read_text()
    assert "\treturn" not in changed and "non_blocking=True" in changed
    assert b"lib/data.py:7: DDP601 note: tabs are mixed with spaces, a TabError in Python 3" in done.stderr


def test_old_python_that_no_program_needs_is_no_error() -> None:
    write({"train.py": TRAIN, "tools/hello.py": PRINTS, "tools/other.py": "import hello\n"})
    done = run("convert", ".", "--inplace")
    assert done.returncode == 0
    assert b"hello.py" not in done.stderr
    assert Path("tools/hello.py").read_text() == PRINTS
    assert run("convert", "tools/hello.py").returncode == 4
    assert run("convert", "tools/other.py").returncode == 4
    write({"old.py": TRAIN + 'print "done"\n'})  # it might be a program to convert
    done = run("convert", ".")
    assert done.returncode == 4 and done.stderr.startswith(b"old.py:21: Python 2 code")


def test_old_python_that_a_program_needs_is_named_with_what_mends_it() -> None:
    write({**SPLIT, "lib/data.py": SPLIT["lib/data.py"] + PRINTS})
    before = tree()
    done = run("convert", ".", "--inplace")
    assert done.returncode == 4 and tree() == before
    assert done.stderr.decode().splitlines()[0] == (
        "lib/data.py:9: DDP001 error: train.py can't be converted without this file: Python 2 code: print and exec are "
        "functions since Python 3; `python -m pip install fissix && python -m fissix -w -n lib/data.py` rewrites it; fix the file first"
    )


def test_standard_input_becomes_a_diff() -> None:
    done = run("convert", "-", stdin=TRAIN.encode())
    assert done.returncode == 0
    assert done.stdout.startswith(b"--- a/<stdin>\n+++ b/<stdin>\n@@ ")
    assert done.stderr.endswith(
        b"1 converted; next: apply the diff to the file (patch FILE), then start it: python FILE\n"
    )
    assert b"would write" not in done.stderr
    assert run("convert", "-", "--check", stdin=TRAIN.encode()).returncode == 1
    assert run("convert", "-", stdin=IDLE.encode()).stderr.startswith(b"<stdin>: nothing to do")
    broken = run("convert", "-", stdin=BROKEN.encode())
    assert (broken.returncode, broken.stdout) == (4, b"")
    assert broken.stderr.startswith(b"<stdin>:1: ")


@pytest.mark.parametrize("tool", TOOLS)
def test_a_diff_of_files_elsewhere_says_where_it_applies(tool: list[str]) -> None:
    write({f"project/{name}": text for name, text in SPLIT.items()})
    Path("elsewhere").mkdir()
    done = run("convert", "../project", cwd="elsewhere")
    assert f"paths count from {Path.cwd() / 'project'}".encode() in done.stderr
    subprocess.run(tool, input=done.stdout, check=True, cwd="project")
    assert b"DistributedDataParallel" in Path("project/train.py").read_bytes()


@pytest.mark.parametrize("tool", TOOLS)
def test_a_diff_applies_in_a_folder_of_a_repository(tool: list[str]) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    write({f"sub/{name}": text for name, text in SPLIT.items()})
    done = run("convert", ".", cwd="sub")
    subprocess.run(tool, input=done.stdout, check=True, cwd="sub")
    assert b"DistributedDataParallel" in Path("sub/train.py").read_bytes()


def on_a_terminal(*arguments: str, **environment: str) -> bytes:
    ours, theirs = pty.openpty()
    done = subprocess.Popen(
        [*PYTHON, *arguments], stdout=theirs, stderr=subprocess.DEVNULL, env={**os.environ, **environment}
    )
    os.close(theirs)
    output = b""
    try:
        while data := os.read(ours, 65536):
            output += data
    except OSError:  # Linux says so when the other end is closed
        pass
    os.close(ours)
    assert done.wait() == 0
    return output


def test_there_are_colours_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    write({"train.py": TRAIN})
    assert b"\x1b[" not in run("convert", "train.py").stdout
    assert b"\x1b[32m+" in on_a_terminal("convert", "train.py")
    assert b"\x1b[" not in on_a_terminal("convert", "train.py", "--no-color")
    assert b"\x1b[" not in on_a_terminal("convert", "train.py", NO_COLOR="1")


def test_a_reader_that_leaves_early_is_no_error() -> None:
    write({f"train{n}.py": TRAIN for n in range(60)})
    done = subprocess.Popen([*PYTHON, "convert", "."], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.stdout and done.stderr
    done.stdout.read(10)
    done.stdout.close()
    errors = done.stderr.read()
    done.stderr.close()
    assert done.wait() == 0
    assert b"BrokenPipe" not in errors and b"would write" in errors


# What it writes


SAVES = TRAIN.replace("        print(", "        torch.save(STATE, 'model.pt')\n        print(")


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("model.state_dict()", True),
        ('{"epoch": epoch, "model": model.state_dict()}', True),
        ("model.module.state_dict()", False),
        ("optimizer.state_dict()", False),
    ],
)
def test_the_summary_says_once_that_checkpoints_have_other_keys(state: str, told: bool) -> None:
    text = SAVES.replace("STATE", state)
    write({"one.py": text, "two.py": text, "resumes.py": LOADS})
    line = "checkpoints are saved without the `module.` prefix; old ones still load"
    assert run("convert", ".").stderr.decode().splitlines().count(line) == told
    assert line not in run("convert", "resumes.py").stderr.decode().splitlines()


# What is not lost, and what was meant


def git(*arguments: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments], check=True)


def test_who_rewrites_what_git_does_not_have_is_told_so() -> None:
    write({"train.py": TRAIN})
    told = b"train.py is not committed to git; --inplace keeps no backup: commit first, or write a copy by --output DIR\n"
    after = b"train.py was not committed to git, and no backup was kept\n"
    assert told in run("convert", "train.py").stderr
    git("init", "-q")
    assert told in run("convert", "train.py").stderr
    assert b"backup" not in run("convert", "train.py", "--output", "copy").stderr
    git("add", "train.py")
    git("commit", "-q", "-m", "a")
    assert b"backup" not in run("convert", "train.py").stderr
    write({"train.py": TRAIN.replace("0.1", "0.2")})
    assert told in run("convert", "train.py").stderr
    done = run("convert", "train.py", "--inplace")
    assert done.returncode == 0 and after in done.stderr
    git("checkout", "-q", "train.py")
    done = run("convert", "train.py", "--inplace")
    assert b"backup" not in done.stderr and b"dp2ddp verify train.py --git HEAD" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["convert", "tran.py"],
            "tran.py: cannot be read: no such file or directory; did you mean train.py?",
        ),
        (["verify", "tran.py"], "tran.py: cannot be read: no such file or directory; did you mean train.py?"),
        (
            ["conver", "train.py"],
            "dp2ddp: there is no command conver; did you mean convert?; see dp2ddp --help",
        ),
        (
            ["train.py"],
            "dp2ddp: there is no command train.py; did you mean dp2ddp convert train.py?; see dp2ddp --help",
        ),
        (
            ["convert", "train.py", "--inplce"],
            "dp2ddp convert: unrecognized arguments: --inplce; did you mean --inplace?; see dp2ddp convert --help",
        ),
        (
            ["convert", "train.py", "--vendor", "."],
            "dp2ddp convert: argument --vendor: . can't be imported: its name is no Python identifier; "
            "give a name such as --vendor my_ddp; see dp2ddp convert --help",
        ),
        (
            ["explain", "nonsense"],
            "dp2ddp: no rule is named nonsense or contains it; dp2ddp explain lists all rules",
        ),
    ],
)
def test_what_was_perhaps_meant_is_said(arguments: list[str], said: str) -> None:
    write({"train.py": TRAIN})
    done = run(*arguments)
    assert done.returncode in (2, 4)
    assert done.stderr.decode() == f"{said}\n"


@pytest.mark.parametrize(
    ("word", "codes"), [("20", ["DDP201", "DDP202", "DDP203", "DDP204", "DDP205"]), ("sampler", ["DDP202"])]
)
def test_explain_lists_the_rules_that_a_word_names(word: str, codes: list[str]) -> None:
    done = run("explain", word)
    assert done.returncode == 0
    named = [line.split()[0] for line in done.stdout.decode().splitlines()]
    assert named == codes if word.isdecimal() else set(codes) <= set(named) < {"DDP101", *named}


def test_a_path_elsewhere_is_named_as_it_is_given() -> None:
    write({"project/train.py": TRAIN, "here/notes.txt": ""})
    lines = run("convert", "../project/train.py", cwd="here").stderr.decode().splitlines()
    assert any("start it with: python ../project/train.py ..." in line for line in lines)
    assert lines[-1].endswith(
        "next: dp2ddp verify ../project/train.py, then dp2ddp convert ../project/train.py --inplace"
    )


def test_a_link_stays_a_link_and_its_file_is_converted_once() -> None:
    write({"real/train.py": TRAIN})
    os.symlink("real/train.py", "link.py")
    assert run("convert", "link.py", ".", "--inplace").returncode == 0
    assert Path("link.py").is_symlink()
    assert Path("real/train.py").read_text().count("DistributedDataParallel(") == 1


def test_a_converted_copy_stands_beside_the_untouched_original() -> None:
    write(
        {**{f"in/{name}": text for name, text in SPLIT.items()}, "in/data/x.bin": "\0", "in/README": "read"}
    )
    before = tree("in")
    done = run("convert", "in", "--output", "out")
    assert done.returncode == 0
    assert tree("in") == before
    assert done.stdout == b""
    assert b"wrote: out/lib/data.py, out/train.py" in done.stderr
    assert b"python out/train.py ..." in done.stderr
    copy = tree("out")
    assert run("convert", "in", "--inplace").returncode == 0
    assert copy == tree("in")


def test_a_copy_of_a_script_has_the_files_that_it_needs() -> None:
    write({**SPLIT, "unused.py": IDLE})
    before = tree()
    assert run("convert", "train.py", "--output", "out").returncode == 0
    assert set(tree("out")) == set(SPLIT)
    shutil.rmtree("out")
    assert tree() == before


@pytest.mark.parametrize("text", [IDLE, KEPT])
def test_without_a_change_there_is_no_copy(text: str) -> None:
    write({"in/train.py": text})
    run("convert", "in", "--output", "out")
    assert not Path("out").exists()


def test_a_script_in_a_package_is_started_as_a_module() -> None:
    relative = {name: text.replace("from lib", "from .lib") for name, text in SPLIT.items()}
    write({**{f"pkg/{name}": text for name, text in relative.items()}, "pkg/__init__.py": ""})
    done = run("convert", "pkg")
    assert b"python -m pkg.train ..." in done.stderr
    assert b"torchrun --nproc-per-node N -m -- pkg.train ..." in done.stderr


def test_a_file_name_is_quoted_in_the_command() -> None:
    write({"my train.py": TRAIN})
    assert b"python 'my train.py' ..." in run("convert", ".").stderr


# The rest


def test_explain_shows_a_rule_and_its_example_as_a_diff() -> None:
    done = run("explain", "ddp102")
    assert done.returncode == 0
    assert done.stdout.startswith(b"DDP102 ")
    assert b"\n--- a/example.py\n+++ b/example.py\n" in done.stdout
    assert run("explain", "all").stdout.count(b"\nDDP") > 5
    assert tree() == {}


def test_the_version() -> None:
    done = subprocess.run([*PYTHON, "--version"], capture_output=True)
    assert done.stdout.split()[0] == b"dp2ddp"
    assert done.returncode == 0


def test_the_command_needs_neither_torch_nor_libcst_to_start() -> None:
    code = "import sys, dp2ddp.cli; sys.exit(bool({'torch', 'libcst', 'black'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_converting_does_not_import_torch() -> None:
    code = "import sys, dp2ddp.convert; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_defect_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import dp2ddp.convert

    def fail(*arguments: object, **options: object) -> None:
        raise RuntimeError("two\nlines")

    write({"train.py": TRAIN})
    monkeypatch.setattr(dp2ddp.convert, "convert_paths", fail)
    monkeypatch.delenv("DP2DDP_DEBUG", raising=False)
    assert cli.main(["convert", "train.py"]) == 3
    assert capsys.readouterr().err.startswith("dp2ddp: DDP000 error: RuntimeError: two lines;")
    monkeypatch.setenv("DP2DDP_DEBUG", "1")
    assert cli.main(["convert", "train.py"]) == 3
    assert "Traceback" in capsys.readouterr().err


def test_an_interruption_ends_as_a_shell_expects(monkeypatch: pytest.MonkeyPatch) -> None:
    import dp2ddp.convert

    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(dp2ddp.convert, "convert_paths", interrupt)
    assert cli.main(["convert", "train.py"]) == 130


@pytest.mark.parametrize("spoiled", ["not Python (", TRAIN])
def test_a_result_that_cannot_be_vouched_for_is_refused(
    spoiled: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import dp2ddp.carry

    write({"train.py": TRAIN})
    monkeypatch.setattr(dp2ddp.carry, "rewrite", lambda text, edits: spoiled + "\n")
    monkeypatch.setattr(dp2ddp.carry, "format_like", lambda before, after, path: after)
    assert cli.main(["convert", "train.py", "--inplace"]) == 3
    said = capsys.readouterr().err
    assert re.search("DDP000 error: the (result would not be valid|converted file would still)", said)
    assert "a bug in dp2ddp: nothing is written; please report this" in said
    assert Path("train.py").read_text() == TRAIN


def test_a_file_that_cannot_be_replaced_leaves_all_as_they_were(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(SPLIT)
    usual = os.replace

    def replace(source: Path, target: Path) -> None:
        if target.name == "train.py":
            raise OSError(13, "Permission denied", str(target))
        usual(source, target)

    monkeypatch.setattr(os, "replace", replace)
    assert cli.main(["convert", ".", "--inplace"]) == 4
    assert "nothing is written" in capsys.readouterr().err
    assert tree() == {name: text.encode() for name, text in SPLIT.items()}
