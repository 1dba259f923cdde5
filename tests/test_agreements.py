"""What each process would make for itself, and all need alike: run folders by the clock, seeds, decisions, devices."""

from __future__ import annotations

from pathlib import Path

import pytest
from parity.harness import Lab
from programs import LOOP, PATH, PROGRAM, STEP

from dp2ddp.convert import convert
from dp2ddp.plan import Severity
from dp2ddp.source import Project

IMPORTS = (
    "import glob\nimport os\nimport tempfile\nimport time\nimport uuid\nfrom datetime import datetime\n\n"
)
SAVED = '    torch.save(model.state_dict(), os.path.join(run, "model.pt"))\n'
READ = 'model.load_state_dict(torch.load(os.path.join(run, "model.pt")))\n'
# How the folder `run` gets its name, and what becomes of that.
FOLDERS = {
    "a time": (
        'run = os.path.join("runs", datetime.now().strftime("%H%M%S%f"))\nos.makedirs(run)\n',
        'run = os.path.join("runs", ddp.gather(datetime.now().strftime("%H%M%S%f"))[0])\n',
    ),
    "a text with the time": (
        'run = f"runs/{time.time()}"\nos.makedirs(run)\n',
        'run = ddp.gather(f"runs/{time.time()}")[0]\n',
    ),
    "a random name": (
        'name = str(uuid.uuid4())[:8]\nrun = "runs/" + name\nos.makedirs(run)\n',
        "name = ddp.gather(str(uuid.uuid4())[:8])[0]\n",
    ),
    "a number that is counted": (
        'time.sleep(float(os.environ.get("LAB_RANK", 0)))\nn = len(glob.glob("runs/exp*"))\nrun = f"runs/exp{n}"\nos.makedirs(run)\n',
        'n = ddp.gather(len(glob.glob("runs/exp*")))[0]\n',
    ),
    "a number that is free": (
        'time.sleep(float(os.environ.get("LAB_RANK", 0)))\nn = 0\nwhile os.path.exists(f"runs/exp{n}"):\n    n += 1\n'
        'run = f"runs/exp{n}"\nos.makedirs(run)\n',
        "    n += 1\nn = ddp.gather(n)[0]\n",
    ),
    "a function that looks for a free one": (
        "def free(path):\n    if not os.path.exists(path):\n        return path\n    for n in range(2, 99):\n"
        '        if not os.path.exists(f"{path}{n}"):\n            return f"{path}{n}"\n    return path\n\n\n'
        'run = free("runs/exp")\nos.makedirs(run)\n',
        'run = ddp.gather(free("runs/exp"))[0]\n',
    ),
    "a time where the name is taken": (
        'run = "runs"\nif os.path.exists(run):\n    run += time.strftime("-%H%M%S")\nos.makedirs(run)\n',
        '    run += time.strftime("-%H%M%S")\nrun = ddp.gather(run)[0]\n',
    ),
    "an attribute": (
        "class Saver:\n    def __init__(self):\n        self.time = datetime.now()\n"
        '        self.folder = os.path.join("runs", self.time.strftime("%H%M%S"))\n'
        "        os.makedirs(self.folder)\n\n\nrun = Saver().folder\n",
        "        self.time = ddp.gather(datetime.now())[0]\n",
    ),
    "an option's default": (
        'import argparse\n\nparser = argparse.ArgumentParser()\nparser.add_argument("--out", default=time.strftime("%H%M"))\n'
        "run = parser.parse_args().out\nos.makedirs(run)\n",
        'ddp.init()\nparser.add_argument("--out", default=ddp.gather(time.strftime("%H%M"))[0])\n',
    ),
    "a temporary folder": (
        'run = tempfile.mkdtemp()\nos.makedirs(run + "/plots")\n',
        'run = ddp.gather(tempfile.mkdtemp())[0]\nif ddp.is_main_process():\n    os.makedirs(run + "/plots")\n',
    ),
}


def saving(made: str) -> str:
    """The program with a folder that it saves the model in, and loads it from in the end."""
    return IMPORTS + PROGRAM.replace("data = Tensor", made + "data = Tensor", 1) + SAVED + READ


def converted(text: str) -> str:
    conversion = convert(Project.of({PATH: text}))
    assert not conversion.errors
    (change,) = conversion.changes
    assert not convert(Project.of({PATH: change.after})).changes
    return change.after


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_is_written_and_read_has_one_name(name: str) -> None:
    made, after = FOLDERS[name]
    assert after in converted(saving(made))


@pytest.mark.parametrize(
    ("name", "launcher"),
    [
        ("a time", "warm"),
        ("a number that is counted", "warm"),
        pytest.param("a number that is free", "warm", marks=pytest.mark.slow),
        pytest.param("a temporary folder", "plain", marks=pytest.mark.slow),  # asked for once in a process
    ],
)
def test_every_process_finds_there_what_the_main_process_saved(
    name: str, launcher: str, lab: Lab, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(converted(saving(FOLDERS[name][0])))
    place = {"folder": tmp_path, "env": {"TMPDIR": str(tmp_path)}}
    lab.run(script, processes=2, launcher=launcher, recorded=False, **place).ok()
    assert len(list(tmp_path.glob("**/model.pt"))) == 1


ALONE = {
    "only written": saving(FOLDERS["a time"][0]).replace(READ, ""),
    "only printed": IMPORTS + PROGRAM.replace("data = Tensor", "print(datetime.now())\ndata = Tensor", 1),
    "a time of a step": IMPORTS
    + PROGRAM.replace(STEP, STEP + "        print(time.time() - start)\n").replace(
        LOOP, "start = time.time()\n" + LOOP
    ),
    "an attribute that is not followed": PROGRAM
    + "class Files:\n    def read(self):\n        return torch.load(self.place)\n\n\nFiles().read()\n",
    "a time that is given": saving('run = time.strftime("%H", time.gmtime(0))\nos.makedirs(run)\n'),
    "files that are read": IMPORTS
    + PROGRAM.replace(
        "data = Tensor", 'parts = [torch.load(it) for it in glob.glob("data/*")]\ndata = Tensor', 1
    )
    + 'torch.save(model.state_dict(), "model.pt")\n',
}


@pytest.mark.parametrize("name", ALONE)
def test_nothing_is_agreed_on_that_the_others_do_not_need(name: str) -> None:
    assert "gather" not in converted(ALONE[name])


def test_a_seed_from_the_clock_is_the_main_process_s() -> None:
    text = converted(
        PROGRAM.replace(
            "data = Tensor", "import time\n\ntorch.manual_seed(int(time.time()))\ndata = Tensor", 1
        )
    )
    assert "ddp.init()\ntorch.manual_seed(ddp.gather(int(time.time()))[0])\n" in text


def test_the_main_process_decides_by_its_clock() -> None:
    ends = STEP + "        if time.time() - start > 60:\n            break\n"
    text = PROGRAM.replace(STEP, ends).replace(LOOP, "import time\n\nstart = time.time()\n" + LOOP)
    assert "        if ddp.gather(time.time() - start > 60)[0]:\n            break\n" in converted(text)


def test_a_name_that_a_module_makes_is_refused() -> None:
    other = PATH.with_name("settings.py")
    text = "import settings\n" + saving("run = settings.RUN\nos.makedirs(run)\n")
    project = Project.of({PATH: text, other: 'import time\n\nRUN = time.strftime("%H%M%S")\n'})
    (error,) = [it for it in convert(project).findings if it.severity is Severity.ERROR]
    assert (error.rule, error.location.path, error.location.span.line) == ("DDP307", other, 3)


CACHE = """\
if os.path.exists("cached"):
    with open("cached", "rb") as file:
        rows = pickle.load(file)
else:
    rows = torch.randn(64, 8)
    with open("cached", "wb") as file:
        pickle.dump(rows, file)
"""


def test_what_is_kept_in_a_file_is_made_by_all_processes_or_by_none() -> None:
    """One that comes later might find the file half written, and would draw no random numbers."""
    text = "import os\nimport pickle\n\n" + PROGRAM.replace("data = Tensor", CACHE + "data = Tensor", 1)
    assert 'if ddp.gather(os.path.exists("cached"))[0]:\n    with open("cached", "rb")' in converted(text)
    other = CACHE.replace("pickle.dump(rows, file)", 'file.write(b"0")').replace('"wb"', '"ab"')
    text = text.replace(CACHE, other.replace('with open("cached", "ab")', 'with open("other", "ab")'))
    assert "gather" not in converted(text)
