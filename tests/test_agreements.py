"""What each process would make for itself, and all need alike: run folders by the clock, seeds, decisions, devices."""

from __future__ import annotations

import re
from pathlib import Path

import command
import pytest
from parity.harness import Lab
from programs import LOOP, PATH, PROGRAM, STEP

from dp2ddp.convert import convert
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
        'run = os.path.join("runs", ddp.from_main_process(datetime.now().strftime("%H%M%S%f")))\n',
    ),
    "a text with the time": (
        'run = f"runs/{time.time()}"\nos.makedirs(run)\n',
        'run = ddp.from_main_process(f"runs/{time.time()}")\n',
    ),
    "one of two that a statement makes": (
        'name, run = "a", os.path.join("runs", datetime.now().strftime("%H%M%S%f"))\nos.makedirs(run)\n',
        '    "runs", ddp.from_main_process(datetime.now().strftime("%H%M%S%f"))\n',
    ),
    "an annotated name": (
        'run: str = os.path.join("runs", datetime.now().strftime("%H%M%S%f"))\nos.makedirs(run)\n',
        '    "runs", ddp.from_main_process(datetime.now().strftime("%H%M%S%f"))\n',
    ),
    "a random name": (
        'name = str(uuid.uuid4())[:8]\nrun = "runs/" + name\nos.makedirs(run)\n',
        "name = ddp.from_main_process(str(uuid.uuid4())[:8])\n",
    ),
    "a number that is counted": (
        'time.sleep(float(os.environ.get("LAB_RANK", 0)))\nn = len(glob.glob("runs/exp*"))\nrun = f"runs/exp{n}"\nos.makedirs(run)\n',
        'n = ddp.from_main_process(len(glob.glob("runs/exp*")))\n',
    ),
    "a number that is free": (
        'time.sleep(float(os.environ.get("LAB_RANK", 0)))\nn = 0\nwhile os.path.exists(f"runs/exp{n}"):\n    n += 1\n'
        'run = f"runs/exp{n}"\nos.makedirs(run)\n',
        "    n += 1\nn = ddp.from_main_process(n)\n",
    ),
    "a function that looks for a free one": (
        "def free(path):\n    if not os.path.exists(path):\n        return path\n    for n in range(2, 99):\n"
        '        if not os.path.exists(f"{path}{n}"):\n            return f"{path}{n}"\n    return path\n\n\n'
        'run = free("runs/exp")\nos.makedirs(run)\n',
        'run = ddp.from_main_process(free("runs/exp"))\n',
    ),
    "a function that takes the next one where it is there": (
        "def taken():\n    path = f\"runs/{len(glob.glob('runs/*'))}\"\n    try:\n        os.makedirs(path)\n"
        "    except FileExistsError:\n        return taken()\n    return path\n\n\nrun = taken()\n",
        "run = ddp.from_main_process(taken())\n",
    ),
    "a function that tries one after the other": (
        "def taken():\n    for n in range(99):\n        try:\n            os.makedirs(f'runs/{n}', exist_ok=False)\n"
        "            return f'runs/{n}'\n        except OSError:\n            continue\n\n\nrun = taken()\n",
        "run = ddp.from_main_process(taken())\n",
    ),
    "a loop that tries one after the other": (
        "n = 0\nwhile True:\n    run = f'runs/{n}'\n    try:\n        os.makedirs(run)\n        break\n"
        "    except FileExistsError:\n        n += 1\n",
        "        n += 1\nrun = ddp.from_main_process(run)\n",
    ),
    "a number behind those of a list": (
        "def numbered(parent):\n    os.makedirs(parent, exist_ok=True)\n    n = 0\n    for it in os.listdir(parent):\n"
        "        if os.path.isdir(os.path.join(parent, it)):\n            n = max(n, int(it.split('-')[-1]))\n"
        "    run = parent + f'/run-{n + 1}'\n    os.makedirs(run, exist_ok=True)\n    return run\n\n\nrun = numbered('runs')\n",
        "    n = ddp.from_main_process(n)\n    run = parent + f'/run-{n + 1}'\n    os.makedirs(run, exist_ok=True)\n",
    ),
    "a number in the last name of a list": (
        "found = [0] + [int(it.split('-')[1]) for it in sorted(os.listdir('.')) if it.startswith('run-')]\n"
        "run = f'run-{found[-1] + 1}'\nos.makedirs(run, exist_ok=True)\n",
        "ddp.from_main_process(sorted(os.listdir('.')))",
    ),
    "another name where it is there": (
        "run = 'runs'\ntry:\n    os.mkdir(run)\nexcept (FileExistsError, PermissionError):\n"
        "    run = run + '-again'\n    os.mkdir(run)\n",
        "        os.mkdir(run)\nrun = ddp.from_main_process(run)\n",
    ),
    "a time where the name is taken": (
        'run = "runs"\nif os.path.exists(run):\n    run += time.strftime("-%H%M%S")\nos.makedirs(run)\n',
        '    run += time.strftime("-%H%M%S")\nrun = ddp.from_main_process(run)\n',
    ),
    "an attribute": (
        "class Saver:\n    def __init__(self):\n        self.time = datetime.now()\n"
        '        self.folder = os.path.join("runs", self.time.strftime("%H%M%S"))\n'
        "        os.makedirs(self.folder)\n\n\nrun = Saver().folder\n",
        "        self.time = ddp.from_main_process(datetime.now())\n",
    ),
    "an attribute of the options": (
        "import argparse\n\noptions = argparse.ArgumentParser().parse_args()\n\n\nclass Saver:\n    def __init__(self, options):\n"
        '        now = datetime.now() if "time" not in vars(options) else options.time\n'
        '        self.folder = os.path.join("runs", now.strftime("%H%M%S%f"))\n        os.makedirs(self.folder)\n\n\n'
        "options.time = datetime.now()\nrun = Saver(options).folder\n",
        "options.time = ddp.from_main_process(datetime.now())\n",
    ),
    "a property": (
        "class Config:\n    def __init__(self):\n        now = datetime.now().strftime('%H%M%S%f')\n"
        "        self._folder = os.path.join('runs', now)\n        os.makedirs(self.folder)\n\n"
        "    @property\n    def folder(self):\n        return self._folder\n\n\nrun = Config().folder\n",
        "        now = ddp.from_main_process(datetime.now().strftime('%H%M%S%f'))\n",
    ),
    "a dict of an object": (
        "from pathlib import Path\n\n\nclass Runner:\n    def __init__(self, paths):\n        self.paths = paths\n\n"
        "    def folder(self, kind):\n        return self.paths[kind] if kind else self.paths['run'] / 'x'\n\n\n"
        "def make(paths):\n    for path in paths:\n        path.mkdir(parents=True, exist_ok=True)\n\n\n"
        "now = datetime.today().strftime('%H%M%S.%f')\npaths = {'run': Path('runs') / now, 'log': Path('logs') / now}\n"
        "make(list(paths.values()))\nrun = Runner(paths).folder('run')\n",
        "now = ddp.from_main_process(datetime.today().strftime('%H%M%S.%f'))\n",
    ),
    "an option's default": (
        'import argparse\n\nparser = argparse.ArgumentParser()\nparser.add_argument("--out", default=time.strftime("%H%M"))\n'
        "run = parser.parse_args().out\nos.makedirs(run)\n",
        'ddp.init()\nparser.add_argument("--out", default=ddp.from_main_process(time.strftime("%H%M")))\n',
    ),
    "a temporary folder where none is given": (
        "import sys\n\nrun = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()\nos.makedirs(run, exist_ok=True)\n",
        "run = sys.argv[1] if len(sys.argv) > 1 else ddp.from_main_process(tempfile.mkdtemp())\n",
    ),
    "an entry that is a temporary folder": (
        'CONFIG = {"run": os.environ.get("RUN_FOLDER")}\nif CONFIG["run"] is None:\n'
        '    CONFIG["run"] = tempfile.mkdtemp()\nrun = CONFIG["run"]\nos.makedirs(run, exist_ok=True)\n',
        '    CONFIG["run"] = ddp.from_main_process(tempfile.mkdtemp())\n',
    ),
    "a temporary file where none is given": (
        "import sys\n\nif len(sys.argv) > 1:\n    run = sys.argv[1]\nelse:\n    handle, run = tempfile.mkstemp()\n"
        '    os.close(handle)\nrun = run + ".folder"\nos.makedirs(run, exist_ok=True)\n',
        "    handle, run = tempfile.mkstemp()\n    run = ddp.from_main_process(run)\n    os.close(handle)\n",
    ),
    "the folder of a log": (
        'import tensorboardX\n\nboard = tensorboardX.SummaryWriter()\nrun = os.path.join(board.get_logdir(), "x")\n',
        'run = os.path.join(ddp.from_main_process(board.get_logdir()), "x")\n',
    ),
    "the folder of a tracker": (
        "import wandb\n\nwandb.init()\nrun = wandb.run.dir\n",
        "run = ddp.from_main_process(wandb.run.dir)\n",
    ),
}
# Folders that are numbered by those that are there: the names are sent, or nobody makes one before all have seen them.
COUNTED = {
    "a list": ('len(glob.glob("runs/*"))', "{ddp.from_main_process(len(glob.glob('runs/*')))}"),
    "entries": ('sum(1 for _ in os.scandir("runs"))', None),
    "a folder": ('max([*Path("runs").iterdir(), Path("0")]).name', None),
    "a walk": ('next(os.walk("runs"))[1]', "ddp.from_main_process(next(os.walk("),
}
# Folders that each process has one of: what is written there is each process's own.
TEMPORARY = {
    "a folder": 'run = tempfile.mkdtemp()\nos.makedirs(run + "/plots")\n',
    "a file": 'handle, name = tempfile.mkstemp()\nrun = name + ".folder"\nos.makedirs(run + "/plots")\n',
    "an object": "run = tempfile.TemporaryDirectory().name\nos.makedirs(run)\n",
    "a path below it": 'folder = tempfile.mkdtemp()\nrun = os.path.join(f"{folder}/a", "b")\nos.makedirs(run)\n',
    "given to a function": (
        'def made(where):\n    os.makedirs("%s/a" % where)\n    return where + "/a"\n\n\n'
        "run = made(str(tempfile.mkdtemp()))\n"
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


@pytest.mark.parametrize("name", COUNTED)
def test_names_that_are_handed_out_one_by_one_are_not_sent(name: str) -> None:
    count, sent = COUNTED[name]
    made = f"import glob\nfrom pathlib import Path\n\nn = {count}\nrun = f'runs/{{n}}1'\nos.makedirs(run)\n"
    after = converted(saving(made))
    if sent is None:
        assert "from_main_process" not in after
    else:
        assert sent.strip("{}").replace("'", '"') in after
    looped = converted(
        saving(made.replace(f"n = {count}", 'n = 0\nfor it in Path("runs").iterdir():\n    n = it.name'))
    )
    assert "    n = it.name\nn = ddp.from_main_process(n)\n" in looped


@pytest.mark.parametrize(
    ("name", "launcher"),
    [
        ("a time", "warm"),
        ("a number that is counted", "warm"),
        ("a temporary folder where none is given", "warm"),
        ("a temporary file where none is given", "warm"),
        ("an entry that is a temporary folder", "warm"),
        ("a function that takes the next one where it is there", "warm"),
        ("a loop that tries one after the other", "warm"),
        ("a number behind those of a list", "warm"),
        pytest.param("a number that is free", "warm", marks=pytest.mark.slow),
    ],
)
def test_every_process_finds_there_what_the_main_process_saved(
    name: str, launcher: str, lab: Lab, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text("import tempfile\n\ntempfile.tempdir = None\n" + converted(saving(FOLDERS[name][0])))
    place = {"folder": tmp_path, "env": {"TMPDIR": str(tmp_path)}}
    lab.run(script, processes=2, launcher=launcher, recorded=False, **place).ok()
    assert len(list(tmp_path.glob("**/model.pt"))) == 1


@pytest.mark.parametrize("listed", ["os.listdir(run)", "glob.glob(f'{run}/*')", "next(os.walk(run))[2]"])
def test_a_folder_that_all_list_has_one_name(listed: str, lab: Lab, tmp_path: Path) -> None:
    """Another name would be that of a folder that is not there, or is empty."""
    made, after = FOLDERS["a dict of an object"]
    text = converted(saving(made).replace(READ, f"print(len({listed}))\n"))
    assert after in text
    script = tmp_path / "train.py"
    script.write_text(text)
    run = lab.run(script, processes=2, folder=tmp_path, recorded=False, env={"DP2DDP_OUTPUT": "all"}).ok()
    assert [line.split()[-1] for line in run.printed.splitlines()] == ["1", "1"]


# Folders that may be there, by a name that all agree on.
MADE_BY_ALL = {
    "os": "os.makedirs(run, exist_ok=True)\n",
    "by places": "os.makedirs(run, 0o777, True)\n",
    "pathlib": "path = Path(run).resolve().parent / 'b'\npath.mkdir(parents=True, exist_ok=True)\n"
    "(path.parent / 'b').joinpath('c').mkdir(exist_ok=True)\nos.makedirs(run, exist_ok=True)\n",
    "several": "for path in (run, run + '/b'):\n    os.makedirs(path, exist_ok=True)\n",
}


@pytest.mark.parametrize("name", MADE_BY_ALL)
def test_a_folder_by_a_name_that_all_agree_on_may_be_made_by_all(lab: Lab, tmp_path: Path, name: str) -> None:
    run = 'from pathlib import Path\n\nrun = os.path.join("runs", datetime.now().strftime("%H%M%S%f"))\n'
    after = converted(saving(run + MADE_BY_ALL[name]))
    assert "ddp.from_main_process(datetime.now()" in after and "is_main_process" not in after
    script = tmp_path / "train.py"
    script.write_text(after)
    lab.run(script, processes=2, folder=tmp_path, launcher="warm", recorded=False).ok()
    assert len(list(tmp_path.glob("**/model.pt"))) == 1


def test_a_folder_that_is_only_written_is_made_by_one_process(lab: Lab, tmp_path: Path) -> None:
    """Its name is free while nobody has made it: the others would take the next one."""
    waits = 'time.sleep(float(os.environ.get("LAB_RANK", 0)) / 2)\n'
    script = tmp_path / "train.py"
    made = FOLDERS["a number behind those of a list"][0].replace("run = numb", waits + "run = numb")
    script.write_text(converted(saving(made).replace(READ, "")))
    lab.run(script, processes=3, folder=tmp_path, recorded=False).ok()
    assert [it.name for it in tmp_path.glob("runs/*")] == ["run-1"]


# Folders named by the clock that all processes only ask for: how they are made, and asked for.
ONLY_ASKED = {
    "a path": (
        'def made():\n    path = Path("runs") / f"run-{datetime.now():%H%M%S%f}"\n    path.mkdir(parents=True, exist_ok=True)\n'
        "    return path\n\n\nrun = made()\n",
        "if not os.path.isdir(run):\n    raise OSError(run)\n",
    ),
    "a parameter": (
        'run = os.path.join("runs", time.strftime("%H%M%S") + str(time.time()))\nos.makedirs(run, exist_ok=True)\n\n\n'
        "def asked(folder):\n    if not Path(folder).exists():\n        raise OSError(folder)\n\n\n",
        "asked(run)\n",
    ),
    "what one process has just made": (
        'def made():\n    path = Path("runs") / f"run-{datetime.now():%H%M%S%f}"\n    if os.environ.get("LAB_RANK") == "0":\n'
        "        time.sleep(0.7)\n    path.mkdir(parents=True)\n    return path\n\n\nrun = made()\n"
        "if not run.is_dir():\n    raise OSError(run)\n",
        "",
    ),
    "an attribute": (
        'class Run:\n    def __init__(self):\n        self.folder = Path("runs", str(uuid.uuid4()))\n'
        "        self.folder.mkdir(parents=True)\n\n    def ask(self):\n        assert self.folder.is_dir()\n\n\n"
        "it = Run()\nrun = it.folder\n",
        "it.ask()\n",
    ),
    "a file in it": (
        'run = "runs/" + datetime.now().strftime("%H%M%S%f")\nos.makedirs(run)\n'
        'with open(os.path.join(run, "log.txt"), "w") as file:\n    file.write("1")\n',
        'if not os.path.isfile(os.path.join(run, "log.txt")):\n    raise OSError(run)\n',
    ),
}


@pytest.mark.parametrize("name", ONLY_ASKED)
def test_a_folder_that_all_only_ask_for_has_one_name(name: str, lab: Lab, tmp_path: Path) -> None:
    made, asked = ONLY_ASKED[name]
    script = tmp_path / "train.py"
    text = (
        saving("from pathlib import Path\n\n" + made).replace(READ, "").replace(SAVED, asked + SAVED.lstrip())
    )
    script.write_text(after := converted(text))
    assert after.count("ddp.from_main_process(") == 1 + (
        name in ("a parameter", "what one process has just made")
    )  # the name, or each answer
    lab.run(script, processes=2, folder=tmp_path, recorded=False).ok()
    assert len(list(tmp_path.glob("runs/*"))) == 1


@pytest.mark.parametrize(
    "asked",
    ["", "if not os.path.exists(run):\n    os.makedirs(run)\n", 'print(os.path.isdir("runs"))\n'],
)
def test_nobody_agrees_on_a_folder_that_one_process_asks_for(asked: str) -> None:
    made = 'run = os.path.join("runs", datetime.now().strftime("%H%M%S%f"))\n' + (
        asked or "os.makedirs(run)\n"
    )
    assert "from_main_process" not in converted(saving(made).replace(READ, ""))


# What the main process writes to a path, late, and what all read of it then.
WAYS = {
    "an array": (
        "np.save(path, np.ones(3))",
        "assert np.load(path + '.npy').sum() == 3",
    ),
    "an array by keywords": (
        "np.savez(file=path + '.npz', rows=np.ones(3))",
        "assert np.load(file=path + '.npz')['rows'].sum() == 3",
    ),
    "an array's method": (
        "np.ones(3).tofile(path)",
        "assert np.fromfile(path).sum() == 3",
    ),
    "a copy": (
        "shutil.copyfile(__file__, path)",
        "assert open(file=path).read().startswith('import')",
    ),
    "an archive": (
        "with zipfile.ZipFile(path, mode='w') as archive:\n    archive.writestr('rows', '1')",
        "with zipfile.ZipFile(path) as archive:\n    assert archive.namelist() == ['rows']",
    ),
    "what is packed": (
        "with gzip.open(path, 'wb') as file:\n    pickle.dump([1], file)",
        "with gzip.open(path) as file:\n    assert pickle.load(file) == [1]",
    ),
}
OPTION = """\
import argparse
import gzip
import pickle
import shutil
import zipfile

import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--out", default=tempfile.mkdtemp())
path = os.path.join(parser.parse_args().out, "rows")
time.sleep(0.7 * (os.environ.get("LAB_RANK", "0") == "0"))
"""


@pytest.mark.parametrize(
    ("name", "processes"), [*((name, 2) for name in WAYS), ("an array", 3), ("an archive", 3)]
)
def test_whatever_writes_a_file_all_find_it(name: str, processes: int, lab: Lab, tmp_path: Path) -> None:
    write, read = WAYS[name]
    after = converted(f"{IMPORTS}{OPTION}{write}\n{read}\n{PROGRAM}")
    assert "default=ddp.from_main_process(tempfile.mkdtemp())" in after and "ddp.barrier()\n" in after
    script = tmp_path / "train.py"
    script.write_text(f"import tempfile\n\ntempfile.tempdir = None\n{after}")
    lab.run(script, processes=processes, folder=tmp_path, recorded=False, env={"TMPDIR": str(tmp_path)}).ok()
    assert len(list(tmp_path.glob("*/rows*"))) == 1


@pytest.mark.parametrize(
    ("write", "read"),
    [
        (
            "with h5py.File(path, 'w') as f:\n    f['rows'] = 1",
            "with h5py.File(path, 'r') as f:\n    rows = f['rows']",
        ),
        (
            "with h5py.File(name=path, mode='w') as f:\n    f['rows'] = 1",
            "rows = h5py.File(name=path)['rows']",
        ),
        ("scipy.io.savemat(path, {'rows': 1})", "rows = scipy.io.loadmat(path)['rows']"),
        ("table.to_csv(path)", "rows = pd.read_csv(path)"),
        ("safetensors.made(rows).to_filename(path)", "rows = pd.read_csv(path)"),
        ("safetensors.torch.save_file(rows, path)", "rows = safetensors.torch.load_file(path)"),
    ],
)
def test_files_of_other_libraries_are_waited_for(write: str, read: str) -> None:
    imports = "import h5py\nimport pandas as pd\nimport safetensors.torch\nimport scipy.io\n"
    table = "table = pd.DataFrame()\nrows = {}\n"
    after = converted(f"{IMPORTS}{imports}{OPTION}{table}{write}\n{read}\n{PROGRAM}")
    assert "default=ddp.from_main_process(tempfile.mkdtemp())" in after
    assert f"ddp.barrier()\n{read}\n" in after
    assert "    " + write in after or "on_main_process(h5py.File)" in after


@pytest.mark.parametrize("name", TEMPORARY)
def test_a_temporary_folder_is_each_process_s_own(name: str, lab: Lab, tmp_path: Path) -> None:
    after = converted(saving(TEMPORARY[name]))
    assert "os.makedirs(" in after and "is_main_process" not in after
    assert "    torch.save(model.module.state_dict(), " in after and "barrier" not in after
    if name == "given to a function":
        script = tmp_path / "train.py"
        script.write_text(f"import tempfile\n\ntempfile.tempdir = None\n{after}")
        lab.run(script, processes=2, folder=tmp_path, recorded=False, env={"TMPDIR": str(tmp_path)}).ok()
        assert len(list(tmp_path.glob("**/model.pt"))) == 2


def test_checkpoints_that_are_dropped_are_dropped_by_one_rank(lab: Lab, tmp_path: Path) -> None:
    """Paths that lie in lists of pairs: it is not followed that they are paths."""
    keep = """
kept = []
for number in range(4):
    path = Path(f"model-{number}.pt")
    torch.save(model.state_dict(), path)
    kept = sorted(kept + [(-number, path)], key=lambda it: it[0])
    while len(kept) > 2:
        _, old = kept.pop()
        old.unlink()
"""
    after = converted("from pathlib import Path\n" + IMPORTS + PROGRAM + keep)
    script = tmp_path / "train.py"
    script.write_text(after)
    lab.run(script, processes=2, folder=tmp_path, recorded=False).ok()
    assert sorted(it.name for it in tmp_path.glob("*.pt")) == ["model-2.pt", "model-3.pt"]


ALONE = {
    "only written": saving(FOLDERS["a time"][0]).replace(READ, ""),
    "only printed": IMPORTS + PROGRAM.replace("data = Tensor", "print(datetime.now())\ndata = Tensor", 1),
    "a time of a step": IMPORTS
    + PROGRAM.replace(STEP, STEP + "        print(time.time() - start)\n").replace(
        LOOP, "start = time.time()\n" + LOOP
    ),
    "an attribute that is not followed": PROGRAM
    + "class Files:\n    def read(self):\n        return torch.load(self.place)\n\n\nFiles().read()\n",
    "a folder that may be there": saving(
        'run = "runs"\ntry:\n    os.makedirs(run)\nexcept OSError:\n    pass\n'
    ),
    "a folder that is taken as it is": saving(
        'run = "runs"\ntry:\n    os.makedirs(run, exist_ok=True)\nexcept OSError:\n    run = "."\n'
    ),
    "a time that is given": saving('run = time.strftime("%H", time.gmtime(0))\nos.makedirs(run)\n'),
    "files that are read": IMPORTS
    + PROGRAM.replace(
        "data = Tensor", 'parts = [torch.load(it) for it in glob.glob("data/*")]\ndata = Tensor', 1
    )
    + 'torch.save(model.state_dict(), "model.pt")\n',
}


@pytest.mark.parametrize("name", ALONE)
def test_nothing_is_agreed_on_that_the_others_do_not_need(name: str) -> None:
    assert "from_main_process" not in converted(ALONE[name])


SEEDS = {
    "torch.manual_seed(int(time.time()))": "torch.manual_seed(ddp.from_main_process(int(time.time())))",
    "random.seed()": "random.seed(ddp.from_main_process(secrets.randbits(32)))",
    "np.random.seed(None)": "np.random.seed(ddp.from_main_process(secrets.randbits(32)))",
    "order = random.Random()": "order = random.Random(ddp.from_main_process(secrets.randbits(32)))",
    "order = np.random.default_rng()": "order = np.random.default_rng(ddp.from_main_process(secrets.randbits(32)))",
    "order = np.random.Generator(np.random.PCG64())": "order = np.random.Generator(np.random.PCG64(ddp.from_main_process(secrets.randbits(32))))",
    "order = np.random.default_rng(np.random.SeedSequence())": "np.random.SeedSequence(ddp.from_main_process(secrets.randbits(32)))",
    "drawn = torch.Generator()\ndrawn.seed()": "drawn.manual_seed(ddp.from_main_process(secrets.randbits(32)))",
    "torch.seed()": "torch.manual_seed(ddp.from_main_process(secrets.randbits(32)))",
}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_of_a_process_s_own_is_the_main_process_s(seed: str, lab: Lab, tmp_path: Path) -> None:
    """And so are the numbers that are drawn next, for which each process asks the generator itself."""
    drawn = (
        "torch.rand(2, generator=drawn)"
        if seed.startswith("drawn")
        else (
            "order.random()"
            if seed.startswith("order")
            else "random.random(), np.random.rand(), torch.rand(2)"
        )
    )
    imports = "import random\nimport sys\nimport time\n\nimport numpy as np\n"
    text = imports + PROGRAM.replace("data = Tensor", f"{seed}\ndata = Tensor", 1)
    script = tmp_path / "train.py"
    script.write_text(f"{text}sys.stderr.write(f'drawn {{[{drawn}]}}' + chr(10))\n")
    assert command.run("convert", "train.py", "--inplace", cwd=tmp_path).returncode == 0
    assert SEEDS[seed] in script.read_text()
    errors = lab.run(script, processes=2, folder=tmp_path, recorded=False).ok().errors
    first, second = re.findall("drawn .*", errors)
    assert first == second


def test_a_worker_takes_the_seed_that_torch_gave_it() -> None:
    begins = "import numpy as np\n\n\ndef begin(worker):\n    np.random.seed()\n\n\n"
    text = PROGRAM.replace("data = Tensor", begins + "data = Tensor", 1)
    text = text.replace("shuffle=True)", "shuffle=True, num_workers=2, worker_init_fn=begin)")
    assert "    np.random.seed(torch.initial_seed() % 2**32)\n" in converted(text)


def test_the_main_process_decides_by_its_clock() -> None:
    ends = STEP + "        if time.time() - start > 60:\n            break\n"
    text = PROGRAM.replace(STEP, ends).replace(LOOP, "import time\n\nstart = time.time()\n" + LOOP)
    assert "        if ddp.from_main_process(time.time() - start > 60):\n            break\n" in converted(
        text
    )


def test_a_name_that_a_module_makes_is_the_main_process_s(lab: Lab, tmp_path: Path) -> None:
    """The ranks start above the import: they must have met where the module runs."""
    script = tmp_path / "train.py"
    (tmp_path / "settings.py").write_text('import time\n\nRUN = f"run-{time.time()}"\n')
    script.write_text("import settings\n" + saving("run = settings.RUN\nos.makedirs(run)\n"))
    assert command.run("convert", "train.py", "--inplace", cwd=tmp_path).returncode == 0
    assert "ddp.init()\nimport settings\n" in script.read_text()
    assert 'RUN = ddp.from_main_process(f"run-{time.time()}")\n' in (tmp_path / "settings.py").read_text()
    lab.run(script, processes=2, folder=tmp_path, recorded=False).ok()
    assert len(list(tmp_path.glob("run-*/model.pt"))) == 1


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
    assert 'if ddp.from_main_process(os.path.exists("cached")):\n    with open("cached", "rb")' in converted(
        text
    )
    other = CACHE.replace("pickle.dump(rows, file)", 'file.write(b"0")').replace('"wb"', '"ab"')
    text = text.replace(CACHE, other.replace('with open("cached", "ab")', 'with open("other", "ab")'))
    assert "from_main_process" not in converted(text)


KEPT = {
    "a number": ("def make():\n    torch.save(3, 'rows.pt')\n    return 3\n", "rows = make()"),
    "a list": ("def make():\n    found.append(3)\n    torch.save(3, 'rows.pt')\n", "make(found)"),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_in_memory_besides_is_made_by_every_process(name: str) -> None:
    """One that found the file of another one would be without it; so all ask before one writes."""
    make, body = KEPT[name]
    make = make.replace("make()", "make(found)") if name == "a list" else make
    lines = (
        f"{make}\n\nrows, found = 1, []\nif not os.path.exists('rows.pt'):\n    {body}\nprint(rows, found)\n"
    )
    text = PROGRAM.replace("import torch\n", "import os\n\nimport torch\n", 1).replace(
        "model =", lines + "model =", 1
    )
    after = convert(Project.of({PATH: text})).changes[0].after
    assert "if ddp.from_main_process(not os.path.exists('rows.pt')):" in after and "first" not in after
