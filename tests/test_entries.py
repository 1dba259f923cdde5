"""Programs that begin elsewhere than in a script, or choose their parts by name, are converted as a whole and train."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import replace
from pathlib import Path

import entries
import pytest
from command import run
from entries import CLI, PACKAGE, SETUP, Form
from parity.harness import Lab
from parity.test_tier_training import differences
from runtime import jobs

from dp2ddp.analyse import analyse, link
from dp2ddp.convert import _halves
from dp2ddp.entrypoints import EntryPoint, declared
from dp2ddp.source import read
from dp2ddp.texts import Texts, matches
from dp2ddp.tiers import decide

FORMS = {
    f"{kind}: {name}": form
    for kind, forms in {
        "entry": entries.ENTRIES,
        "name": entries.BY_NAME,
        "registry": entries.REGISTRIES,
        "import": entries.IMPORTED,
        "main": entries.MAINS,
        "options": entries.CONFIGURED,
        "reached": entries.REACHED,
    }.items()
    for name, form in forms.items()
}
# What starts other programs, which are converted, and not itself.
OTHERS = {"reached: a command", "reached: a subprocess"}
# What cannot be run here: packages that are not installed, and what is no file.
RUN = [
    name
    for name, form in FORMS.items()
    if not (
        form.module or name in OTHERS or set(form.packages) - set(sys.stdlib_module_names) - {"absl", "click"}
    )
]
TRAINED = {
    "entry: a folder of sources",
    "entry: a script without an ending",
    "entry: a thin script with a choice of devices",
    "entry: an entry point beside a thin script",
    "entry: setup.cfg",
    "import: a file",
    "import: a function in the package",
    "import: exec",
    "import: pkgutil",
    "import: runpy",
    "main: a click group",
    "main: absl",
    "main: a decorator of the project",
    "main: starred arguments",
    "name: a method by its name",
    "name: an attribute of an enumeration",
    "name: eval of a pattern",
    "name: globals",
    "name: partial",
    "options: SimpleNamespace",
    "options: a class of dictionaries",
    "reached: a decorator that calls",
    "reached: a property",
    "reached: a thread of a method",
    "reached: zip",
    "registry: a registry with a builder",
    "registry: a wrapped decorator",
    "registry: an object that is called",
    "registry: subclasses that register",
}


def write(form: Form, folder: Path) -> None:
    for name, text in form.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def texts(folder: Path) -> dict[str, str]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_text() for path in found}


def converted(form: Form, folder: Path) -> tuple[dict[str, str], str]:
    """The files after converting what is asked for in place, and what was said."""
    write(form, folder)
    done = run("convert", *form.asked, "--inplace", cwd=folder)
    said = done.stderr.decode()
    assert done.returncode == 0, said
    return texts(folder), said


def started(form: Form, folder: Path) -> Path:
    """The file that starts a program: its own, or one as an installer writes it."""
    if "\n" not in form.start:
        return folder / form.start
    start = folder / ("src" if (folder / "src").exists() else "") / "installed.py"
    start.write_text(form.start)
    return start


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", FORMS)
def test_they_are_converted_as_a_whole(name: str, tmp_path: Path) -> None:
    """The model, the loader and the start; and a second time there is nothing to do."""
    form = FORMS[name]
    after, said = converted(form, tmp_path)
    starting = [path for path, text in after.items() if "ddp.launch(" in text or "ddp.init(" in text]
    assert starting and (not form.holds or starting == [form.holds])
    assert re.search(r": \d+ edits\n", said) and "warning" not in said
    everything = "".join(text for path, text in after.items() if text != form.files[path])
    assert "ddp.DistributedDataParallel(" in everything and "nn.DataParallel(" not in everything
    assert "DistributedSampler(" in everything
    again = run("convert", *form.asked, "--check", cwd=tmp_path)
    assert again.returncode == 0 and texts(tmp_path) == after, again.stderr.decode()


@pytest.mark.sample(every=3)
@pytest.mark.parametrize(
    "name", [pytest.param(it, marks=() if it in TRAINED else pytest.mark.slow) for it in RUN]
)
def test_they_make_dataparallel_s_steps(lab: Lab, name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    folders = [tmp_path / "before", tmp_path / "after"]
    write(form, folders[0])
    converted(form, folders[1])
    before, after = (
        lab.run(started(form, folder), form.arguments, folder=folder, timeout=60, **more).ok()
        for folder, more in zip(folders, ({"replicas": 2}, {"processes": 2}), strict=True)
    )
    assert len(after.ranks) == 2
    assert differences(before, after, losses=False) == []
    assert after.printed == before.printed


def test_all_that_is_said_to_be_trained_is() -> None:
    assert TRAINED <= set(RUN)


def test_a_module_that_is_run_starts_ranks(tmp_path: Path) -> None:
    """As people run it, without the lab."""
    _, said = converted(FORMS["entry: python -m"], tmp_path)
    assert "start it with: python -m pkg ..." in said
    result = jobs.run(["-m", "pkg"], tmp_path, PYTHONPATH=f"{tmp_path}:{jobs.ROOT}", DP2DDP_OUTPUT="")
    assert (result.code, result.out, result.left) == (0, "epoch 0\nepoch 1\n", []), result.err


def test_a_command_is_said_by_its_name(tmp_path: Path) -> None:
    _, said = converted(FORMS["entry: pyproject.toml"], tmp_path)
    assert "train: 5 edits\n" in said
    assert "start it with: train ..." in said and "--no-python -- train ..." in said


def test_every_command_that_trains_starts_its_ranks(tmp_path: Path) -> None:
    after, said = converted(FORMS["main: two commands of an application"], tmp_path)
    functions = {it.name: it for it in ast.parse(after["pkg/cli.py"]).body if isinstance(it, ast.FunctionDef)}
    assert all("ddp.init()" in ast.unparse(functions[name]) for name in ("main", "more"))
    assert "ddp.init" not in ast.unparse(functions["fit"]) and said.count("start it with") == 1


def test_a_command_of_a_module_that_is_asked_for_is_found_above_it(tmp_path: Path) -> None:
    form = replace(FORMS["entry: setup.cfg"], asked=("pkg/cli.py",))
    after, said = converted(form, tmp_path)
    assert "    ddp.init()\n" in after["pkg/cli.py"] and "train: " in said


def test_a_command_that_trains_nothing_is_left_alone(tmp_path: Path) -> None:
    files = {
        **PACKAGE,
        "pkg/cli.py": CLI + "\n\ndef show():\n    print(Narrow())\n",
        "setup.py": SETUP.format(
            "entry_points={'console_scripts': ['train=pkg.cli:main', 'show=pkg.cli:show']}"
        ),
    }
    after, said = converted(Form(files), tmp_path)
    assert after["pkg/cli.py"].count("ddp.init") == 1 and "\nshow: " not in said


def test_a_module_that_may_be_imported_need_not_be_readable(tmp_path: Path) -> None:
    """One that surely is must be."""
    form = FORMS["import: an f-string"]
    broken = {**form.files, "parts/old_trainer.py": "x = (\n"}
    write(replace(form, files=broken), tmp_path)
    done = run("convert", "run.py", cwd=tmp_path)
    assert done.returncode == 4 and b"DistributedDataParallel" in done.stdout
    sure = {**broken, "run.py": "import parts.old_trainer\n" + form.files["run.py"]}
    write(replace(form, files=sure), tmp_path)
    done = run("convert", "run.py", cwd=tmp_path)
    assert done.returncode == 4 and not done.stdout and b"can't be converted without this file" in done.stderr


UNUSED = "from torch import nn\n\n\ndef wrapped(model):\n    return nn.DataParallel(model)\n"


def test_a_wrap_that_no_program_runs_is_a_note_beside_one_that_is_converted(tmp_path: Path) -> None:
    files = {**FORMS["entry: a thin script"].files, "tools.py": UNUSED}
    after, said = converted(Form(files), tmp_path)
    assert after["tools.py"] == UNUSED
    assert (
        "tools.py:5: DDP503 note: this DataParallel is not converted: no training script that was given runs it"
        in said
    )


def test_it_is_an_error_where_nothing_else_is_asked_for(tmp_path: Path) -> None:
    write(Form(PACKAGE), tmp_path)
    done = run("convert", ".", cwd=tmp_path)
    assert done.returncode == 3 and not done.stdout
    assert (
        b"error: this DataParallel is not converted: `main()` is never called; call `main()`" in done.stderr
    )


def test_a_script_that_only_predicts_has_nothing_to_convert(tmp_path: Path) -> None:
    script = "from pkg.cli import Narrow\nfrom torch import nn\n\nmodel = nn.DataParallel(Narrow())\nmodel.eval()\n"
    write(
        Form({**PACKAGE, "pkg/cli.py": CLI.replace("nn.DataParallel(model)", "model"), "test.py": script}),
        tmp_path,
    )
    done = run("convert", "test.py", cwd=tmp_path)
    assert done.returncode == 0 and not done.stdout
    assert b"test.py: nothing to do (no training script uses it)" in done.stderr


def test_so_has_one_beside_a_trainer_of_which_it_takes_something_else(tmp_path: Path) -> None:
    script = "from pkg.cli import Narrow, main\nfrom torch import nn\n\nmodel = nn.DataParallel(Narrow())\nmodel.eval()\n"
    write(Form({**PACKAGE, "test.py": script}), tmp_path)
    done = run("convert", "test.py", cwd=tmp_path)
    assert done.returncode == 0 and not done.stdout, done.stderr.decode()
    assert b"test.py: nothing to do (no training script uses it)" in done.stderr


def test_half_a_conversion_is_none(tmp_path: Path) -> None:
    """Whatever the collectors find: a wrap without its start, or without a loader, is an error."""
    write(FORMS["entry: a thin script"], tmp_path)
    facts = decide(analyse(link(read([tmp_path / "run.py"]))))
    assert not list(_halves(facts))
    for half, word in ((replace(facts, scripts=()), "start"), (replace(facts, loaders=()), "loader")):
        (finding,) = _halves(half)
        assert word in finding.message and finding.severity.value == "error"


def test_a_class_that_is_handed_over_is_not_passed_by(tmp_path: Path) -> None:
    """What calls it is not seen: that there is nothing to do would be wrong."""
    text = entries.TRAIN.replace("nn.DataParallel(model)", "partial(nn.DataParallel, device_ids=None)(model)")
    write(Form({"run.py": f"from functools import partial\n{text}", "models.py": entries.MODELS}), tmp_path)
    done = run("convert", "run.py", cwd=tmp_path)
    assert done.returncode == 3 and b"nn.DataParallel is passed to functools.partial()" in done.stderr


DECLARED = {
    "a list": ("setup.py", SETUP.format("entry_points={'console_scripts': ['a = p.q:f', 'b=p:C.run [x]']}")),
    "a function's text": (
        "setup.py",
        SETUP.format("entry_points='[console_scripts]\\na=p.q:f\\nb = p:C.run\\n[other]\\nc=d:e'"),
    ),
    "a keyword": (
        "setup.py",
        SETUP.format("entry_points=dict(gui_scripts=['a=p.q:f', 'b=p:C.run'], other=['c=d:e'])"),
    ),
    "other strings": (
        "setup.py",
        SETUP.format(
            "entry_points={'console_scripts': ['a=p.q:f', 'b=p:C.run']}, extras_require={'x': ['c=d:e']}"
        ),
    ),
    "a section": (
        "setup.cfg",
        "[options.entry_points]\nconsole_scripts =\n  a = p.q:f\n  b = p:C.run\nother =\n  c = d:e\n",
    ),
    "tables": (
        "pyproject.toml",
        '[project.scripts]\na = "p.q:f"\n[tool.poetry.scripts]\nb = {reference = "p:C.run"}\n',
    ),
}


@pytest.mark.parametrize("name", DECLARED)
def test_commands_are_read_and_not_run(name: str) -> None:
    found = declared(*DECLARED[name])
    assert found.points == (EntryPoint("a", "p.q", "f"), EntryPoint("b", "p", "C.run"))
    assert found.points[1].program == "import sys\n\nfrom p import C\n\nsys.exit(C.run())\n"


@pytest.mark.parametrize("name", ["setup.py", "setup.cfg", "pyproject.toml"])
def test_what_cannot_be_read_declares_nothing(name: str) -> None:
    assert declared(name, "[[[ =\n  (") == declared(name, "") == type(declared(name, ""))()


TEXTS = {
    '"a" + x': {"a*"},
    'f"{x}.b"': {"*.b"},
    '"%s_%d.py" % (x, 3)': {"*_3.py"},
    '"{}-{name}".format(x, name="c")': {"*-c"},
    '".".join(["a", x])': {"a.*"},
    "left if x else right": {"l", "r"},
    "both": {"l", "*"},
    "given": {"from here", "and there"},
    "again": {"a", "*b"},
    "os.path.join(os.path.dirname(__file__), x)": {"/folder/*"},
    'Path(__file__).parent / "b"': {"/folder/b"},
    "x[1:]": {"*"},
}


@pytest.mark.parametrize("expression", TEXTS)
def test_strings_are_known_but_for_what_is_not(expression: str) -> None:
    tree = ast.parse(
        "left, right = 1, 2\nleft = 'l'\nright = 'r'\nboth = 'l'\nboth = x\nagain = 'a'\nagain = again + 'b'\n"
        "def f(given):\n    return given\nf('from here')\nf(given='and there')\n"
        f"value = {expression}\n".replace("left, right = 1, 2\n", "")
    )
    assert Texts(tree, "/folder/file.py").of(tree.body[-1].value) == TEXTS[expression]


def test_names_match_what_is_known_of_them() -> None:
    assert matches(["net*"], "netG") and matches(["*_a_*"], "x_a_y") and matches(["*"], "")
    assert not matches(["net*"], "anet") and not matches(["a.b"], "axb")


def test_long_chains_of_names_end() -> None:
    lines = ["n0 = 'a'", *(f"n{i} = n{i - 1} + 'b' + n{i - 1}" for i in range(1, 600))]
    tree = ast.parse("\n".join(lines))
    assert Texts(tree, "a.py").of(tree.body[-1].value)
