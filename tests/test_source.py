"""Reading: decoding, positions, discovery, and imports as Python finds them."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from dp2ddp.source import Project, SourceFile, Unreadable, decode, load, parse, read, span_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(files: dict[str, str]) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


def names(project: Project) -> set[str]:
    return {path.relative_to(Path.cwd()).as_posix() for path in project.files}


def reached(project: Project, name: str) -> set[str]:
    return {path.relative_to(Path.cwd()).as_posix() for path in project.reaches(Path.cwd() / name)}


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (b"x = 1\r\ny = 2\n", "utf-8"),
        (b"\xef\xbb\xbfx = 1\n", "utf-8-sig"),
        (b"# -*- coding: latin-1 -*-\nx = '\xe9'\n", "iso-8859-1"),
        (b"x = 1\ry = 2\x0c\n", "utf-8"),
        (b"", "utf-8"),
    ],
)
def test_what_is_decoded_is_encoded_to_the_same_bytes(data: bytes, encoding: str) -> None:
    text, found = decode(data)
    assert found == encoding
    assert text.encode(found) == data
    assert not text.startswith("\ufeff")


@pytest.mark.parametrize(
    ("data", "line", "reason"),
    [
        (b"x = (\n", 1, "not valid Python"),
        (b"x = 1\ny = '\xff'\n", 2, "not text in its encoding, utf-8"),
        (b"# coding: nonsense\n", 1, "unknown encoding"),
        (b"x = 1\n\0\n", 2, "null byte"),
        (b"def f(\n    non_blocking, async): pass\n", 2, "`async` is a keyword"),
        (b"x = 1\nprint 'a'\n", 2, "Python 2"),
        (b"try:\n    pass\nexcept ValueError, error:\n    pass\n", 3, "Python 2"),
        (b"x = " + b"(" * 500 + b")" * 500, 1, "not valid Python"),
    ],
)
def test_what_cannot_be_parsed_has_a_line_and_a_reason(data: bytes, line: int, reason: str) -> None:
    file = load(Path("a.py"), data)
    assert isinstance(file, Unreadable)
    assert file.line == line
    assert reason in file.reason
    assert "\n" not in file.reason


def test_a_parsed_file_shows_no_warnings(recwarn: pytest.WarningsRecorder) -> None:
    assert isinstance(load(Path("a.py"), b"x = '\\d'\nx is 1\n"), SourceFile)
    assert not list(recwarn)


def test_columns_are_characters_and_lines_are_python_s() -> None:
    text = "a = 'é\u2028'; b = '𝄞', 2\r\nc = 3\x0c\rd = ('ü',\n 4)\n"
    project = Project.of({Path("a.py"): text})
    file = project.files[Path("a.py")]
    spans = {}
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Assign):
            spans[node.targets[0].id] = span_of(node.value, file)  # type: ignore[attr-defined]
    assert {name: (it.line, it.column, it.end_line, it.end_column) for name, it in spans.items()} == {
        "a": (1, 4, 1, 8),
        "b": (1, 14, 1, 20),
        "c": (2, 4, 2, 5),
        "d": (3, 4, 4, 3),
    }


def test_folders_are_searched_without_what_is_not_the_user_s() -> None:
    write(
        {
            "a.py": "",
            "sub/b.py": "",
            "sub/notes.txt": "",
            ".hidden/c.py": "",
            "__pycache__/d.py": "",
            "build/e.py": "",
            "dist/f.py": "",
            "node_modules/g.py": "",
            "env/pyvenv.cfg": "",
            "env/lib/h.py": "",
            "lib/site-packages/i.py": "",
        }
    )
    assert names(read(["."])) == {"a.py", "sub/b.py"}


def test_a_file_is_read_once_by_whatever_name() -> None:
    write({"real/a.py": "x = 1\n", "train.py": "import link\n"})
    os.symlink("real/a.py", "link.py")
    project = read([".", "link.py", "./real/../real/a.py"])
    assert names(project) == {"real/a.py", "train.py"}
    assert reached(project, "train.py") == {"train.py", "real/a.py"}


def test_paths_that_cannot_be_read_are_named() -> None:
    write({"a.py": "x = 1\n", "fine.py/inner.py": ""})
    os.mkfifo("pipe.py")
    project = read(["a.py", "missing.py", "pipe.py"])
    assert names(project) == {"a.py"}
    reasons = {it.path.name: it.reason for it in project.unreadable}
    assert reasons == {
        "missing.py": "cannot be read: no such file or directory",
        "pipe.py": "cannot be read: it is no regular file",
    }


def test_standard_input_is_a_file_of_the_working_folder() -> None:
    write({"model.py": ""})
    project = read(["-"], b"import model\n")
    assert names(project) == {"<stdin>", "model.py"}


def test_imports_are_followed_to_local_files_of_every_kind() -> None:
    write(
        {
            "src/train.py": "import a, os\nfrom pkg import b, name\nfrom pkg.deep.c import *\n"
            "def f():\n    import space.d\n    importlib.import_module('e')\nimport dp2ddp.runtime, torch\n",
            "src/a.py": "import train\n",
            "src/pkg/__init__.py": "",
            "src/pkg/b.py": "from . import sibling\nfrom .deep import c\nfrom .. import unseen\n",
            "src/pkg/sibling.py": "",
            "src/pkg/unused.py": "",
            "src/pkg/deep/__init__.py": "from ..other import x\n",
            "src/pkg/deep/c.py": "",
            "src/pkg/other.py": "",
            "src/space/d.py": "",
            "src/e.py": "",
        }
    )
    project = read(["src/train.py"])
    expected = {"train", "a", "pkg/__init__", "pkg/b", "pkg/sibling", "pkg/deep/__init__", "pkg/deep/c"}
    expected |= {"pkg/other", "space/d", "e"}
    assert names(project) == {f"src/{name}.py" for name in expected}
    assert reached(project, "src/train.py") == names(project)
    assert reached(project, "src/e.py") == {"src/e.py"}


def test_the_script_decides_which_file_a_name_means() -> None:
    write(
        {
            "train.py": "import models.net\n",
            "utils.py": "",
            "models/net.py": "import utils\nif __name__ == '__main__':\n    utils\n",
            "models/utils.py": "",
        }
    )
    project = read(["."])
    net = Path.cwd() / "models/net.py"
    assert project.resolve(net, "utils") == Path.cwd() / "utils.py"
    assert reached(project, "train.py") == {"train.py", "models/net.py", "utils.py"}
    assert reached(project, "models/net.py") == {"models/net.py", "models/utils.py"}


def test_modules_are_resolved_to_files() -> None:
    here = Path("/p")
    texts = {
        "train.py": "",
        "pkg/__init__.py": "",
        "pkg/a.py": "",
        "pkg/sub/b.py": "",
        "pkg/c/__init__.py": "",
    }
    project = Project.of({here / name: text for name, text in texts.items()}, root=here)

    def resolve(importer: str, module: str, level: int = 0) -> str | None:
        found = project.resolve(here / importer, module, level)
        return found and found.relative_to(here).as_posix()

    assert resolve("train.py", "pkg") == "pkg/__init__.py"
    assert resolve("train.py", "pkg.a") == "pkg/a.py"
    assert resolve("train.py", "pkg.sub") is None
    assert resolve("train.py", "pkg.sub.b") == "pkg/sub/b.py"
    assert resolve("train.py", "torch") is None
    assert resolve("pkg/a.py", "", 1) == "pkg/__init__.py"
    assert resolve("pkg/a.py", "c", 1) == "pkg/c/__init__.py"
    assert resolve("pkg/sub/b.py", "a", 2) == "pkg/a.py"
    assert resolve("pkg/sub/b.py", "pkg.a") == "pkg/a.py"
    assert resolve("pkg/a.py", "train") == "train.py"


@pytest.mark.parametrize(
    "edit",
    [
        "sys.path.append('../lib')",
        "sys.path.insert(1, os.path.join(sys.path[0], '../lib'))",
        "sys.path.append(os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), '..', 'lib'))",
        "sys.path.append(os.path.join(os.path.dirname(os.getcwd()), 'lib'))",
        "sys.path.append(os.path.split(os.path.dirname(os.path.abspath(__file__)))[0] + '/lib')",
        "import inspect\nhere = os.path.dirname(os.path.abspath(inspect.getfile(inspect.currentframe())))\n"
        "sys.path.insert(0, os.path.dirname(here) + '/lib')",
        "sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))",
        "sys.path.insert(0, str(Path(__file__).resolve().parent.parent / 'lib'))",
        "sys.path.append(str(Path(__file__).parents[1].joinpath('x').parent / 'lib'))\nsys.path.append('../lib')",
        "ROOT = os.path.dirname(os.path.dirname(__file__))\nsys.path += [ROOT + '/lib']",
        "sys.path.extend([os.path.join(os.getcwd(), os.pardir, 'lib')])",
        "def add(path):\n    if path not in sys.path:\n        sys.path.insert(0, path)\n\n\n"
        "HERE = os.path.dirname(__file__)\nadd(os.path.join(HERE, '..', 'lib'))",
    ],
)
def test_edits_of_the_search_path_are_followed(edit: str) -> None:
    write({"tools/train.py": f"import sys, os\n{edit}\nimport helper\n", "lib/helper.py": "x = 1\n"})
    project = read(["tools/train.py"])
    assert reached(project, "tools/train.py") == {"tools/train.py", "lib/helper.py"}


def test_an_edit_of_the_search_path_in_an_imported_file_counts() -> None:
    write(
        {
            "tools/train.py": "import _paths\nimport helper\n",
            "tools/_paths.py": "import sys\nsys.path.insert(0, '../lib')\n",
            "lib/helper.py": "",
        }
    )
    assert reached(read(["tools"]), "tools/train.py") == {
        "tools/train.py",
        "tools/_paths.py",
        "lib/helper.py",
    }


def test_imports_start_at_the_package_s_root_and_at_the_working_folder() -> None:
    write(
        {
            "top/__init__.py": "",
            "top/run/__init__.py": "",
            "top/run/train.py": "from top.net import x\nfrom shared import y\n",
            "top/net.py": "",
            "shared.py": "",
        }
    )
    found = {"top/__init__.py", "top/run/train.py", "top/net.py", "shared.py"}
    assert reached(read(["top/run/train.py"]), "top/run/train.py") == found


INSTALLED = {"lib/somelib/__init__.py": "", "lib/six.py": "", "lib/own.py": ""}
RECORD = "somelib/__init__.py,,\nsix.py,,\n../../bin/six,,\nsomelib-1.0.dist-info/RECORD,,\n"


@pytest.mark.parametrize(
    "record", [{"lib/somelib-1.0.dist-info/RECORD": RECORD}, {"lib/somelib-1.0.dist-info/METADATA": ""}]
)
@pytest.mark.parametrize("how", ["PYTHONPATH", "sys.path", "run.sh"])
def test_what_is_installed_into_a_folder_is_not_the_project_s(
    record: dict[str, str], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By ``pip install --target``: not found by imports, nor in the project's folders."""
    edit = "import sys\nsys.path.append('lib')\n" if how == "sys.path" else ""
    write({"train.py": f"{edit}import somelib\nfrom own import x\n", **INSTALLED, **record})
    if how == "PYTHONPATH":
        monkeypatch.setenv("PYTHONPATH", "lib")
    elif how == "run.sh":
        write({"run.sh": "PYTHONPATH=lib python train.py\n"})
    whole = {} if "lib/somelib-1.0.dist-info/RECORD" in record else {"lib/six.py"}
    assert names(read(["train.py"])) == {"train.py", "lib/own.py"}
    assert names(read(["."])) == {"train.py", "lib/own.py", *whole}


@pytest.mark.parametrize("mark", ["", "README.md", "setup.py", ".git"])
@pytest.mark.parametrize("how", ["PYTHONPATH", "sys.path", "path", "link", "cwd"])
def test_what_lies_outside_a_project_is_not_followed(
    how: str, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    edits = {
        "sys.path": "import sys, os\nsys.path.append(os.path.abspath('../../lib'))\n",
        "path": "import importlib.machinery as m\nm.SourceFileLoader('other', '../../lib/other.py').load_module()\n",
    }
    write({"home/project/train.py": f"{edits.get(how, '')}import other\n", "lib/other.py": ""})
    if mark:
        Path("home/project", mark).touch()
    if how == "PYTHONPATH":
        monkeypatch.setenv("PYTHONPATH", str(Path("lib").resolve()))
    if how == "link":
        os.symlink("../../lib/other.py", "home/project/other.py")
    if how == "cwd" and mark in ("", "README.md"):
        return  # the folder where the command is given is all that there is
    monkeypatch.chdir("lib" if how == "cwd" else "home/project")
    name = "../home/project/train.py" if how == "cwd" else "train.py"
    assert {path.name for path in read([name]).files} == {"train.py"}


@pytest.mark.parametrize("mark", ["setup.py", "pyproject.toml"])
def test_modules_that_are_installed_from_the_repository_are_found_from_anywhere(
    mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By ``pip install -e .``, with and without ``src``, or by ``PYTHONPATH``."""
    write(
        {
            "project/tools/train.py": "from net import x\nfrom data import y\nfrom more import z\nimport far\n",
            "project/src/net.py": "",
            "project/data.py": "",
            "project/lib/more.py": "",
            "elsewhere/far.py": "",
        }
    )
    Path("project", mark).touch()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path("project/lib").resolve()), "elsewhere"]))
    monkeypatch.chdir("project/tools")
    files = {"train.py", "net.py", "data.py", "more.py"}
    found = read(["train.py"]).reaches(Path("train.py").resolve())
    assert {it.name for it in found} == files


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"common/base.py": "class Trainer:\n    pass\n"}, {"train.py", "base.py"}),
        (
            {"common/base/__init__.py": "", "common/base/Trainer.py": ""},
            {"train.py", "__init__.py", "Trainer.py"},
        ),
        ({"common/base.py": "class Other:\n    pass\n"}, {"train.py"}),
        ({"common/base.py": "Trainer = 1\n", "other/base.py": "Trainer = 2\n"}, {"train.py"}),
        ({"common/torch.py": "Tensor = 1\n", "common/json.py": "loads = 1\n"}, {"train.py"}),
    ],
)
def test_the_one_file_of_a_name_is_found_where_nothing_tells_how(
    files: dict[str, str], found: set[str]
) -> None:
    """It has what is imported from it, and no package that is installed has its name."""
    head = "import sys\nfrom json import loads\nfrom torch import Tensor\n"
    head += "sys.path.insert(0, settings().folder)\nfrom base import Trainer\n"
    write({"main/train.py": head, "README.md": "", **files})
    assert {Path(it).name for it in reached(read(["main/train.py"]), "main/train.py")} == found


@pytest.mark.parametrize(
    ("files", "found"),
    {
        "beside the script": ({"train.py": "import random\n", "random.py": ""}, {"random.py"}),
        "imported by another file": (
            {"train.py": "import a\n", "a.py": "import copy\n", "copy.py": ""},
            {"a.py", "copy.py"},
        ),
        "Python began with it": ({"train.py": "import io\nimport time\n", "io.py": "", "time.py": ""}, set()),
        "a folder without a package": (
            {"train.py": "from logging import handlers\n", "logging/handlers.py": ""},
            set(),
        ),
        "a package": (
            {
                "train.py": "from logging import handlers\n",
                "logging/__init__.py": "",
                "logging/handlers.py": "",
            },
            {"logging/__init__.py", "logging/handlers.py"},
        ),
        "in a package": (
            {
                "train.py": "import u.a\n",
                "u/__init__.py": "",
                "u/a.py": "import types, copy\n",
                "u/types.py": "",
                "u/copy/__init__.py": "",
            },
            {"u/__init__.py", "u/a.py"},
        ),
        "in a folder": (
            {"train.py": "import u.a\n", "u/a.py": "import types\n", "u/types.py": ""},
            {"u/a.py"},
        ),
        "relative": (
            {
                "train.py": "import u.a\n",
                "u/__init__.py": "",
                "u/a.py": "from . import types\n",
                "u/types.py": "import types\n",
            },
            {"u/__init__.py", "u/a.py", "u/types.py"},
        ),
        "itself": (
            {"train.py": "import u.io\n", "u/io.py": "import io\nfrom io import BytesIO\n"},
            {"u/io.py"},
        ),
        "appended": ({"train.py": "import sys\nsys.path.append('u')\nimport code\n", "u/code.py": ""}, set()),
        "put first, after torch": (
            {"train.py": "import torch, sys\nsys.path.insert(0, 'u')\nimport copy\n", "u/copy.py": ""},
            set(),
        ),
        "by PYTHONPATH": (
            {"train.py": "import code\n", "u/code.py": "", "run.sh": "PYTHONPATH=u python train.py\n"},
            {"u/code.py"},
        ),
        "Python's tests": (
            {"train.py": "import u.a\n", "u/a.py": "import test\n", "u/test.py": ""},
            {"u/a.py", "u/test.py"},
        ),
    }.values(),
)
def test_which_files_hide_modules_of_the_standard_library(files: dict[str, str], found: set[str]) -> None:
    """Those in the folder of the script, not those beside the file that imports them."""
    write(files)
    assert reached(read(["train.py"]), "train.py") == {"train.py", *found}


@pytest.mark.parametrize(
    "start", ["import logging\n", "import logging\nfrom . import a\n\nif __name__ == '__main__':\n    a\n"]
)
def test_a_module_asked_for_alone_is_of_its_package(start: str) -> None:
    write({"u/__init__.py": "", "u/logging.py": start, "u/a.py": "import logging\n", "u/b.py": start})
    project = read(["u"])
    assert all(
        project.resolve(Path.cwd() / "u" / name, "logging") is None for name in ("logging.py", "a.py", "b.py")
    )


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("path.sh", 'export PYTHONPATH="../lib:../../src:$PYTHONPATH"\n'),
        ("run.sh", "PYTHONPATH=$PYTHONPATH:$(pwd)/../lib:`pwd`/../../src python local/train.py\n"),
        ("run.sh", "export PYTHONPATH=${PWD}/../lib:../../src\n"),
        ("run.bash", "cd somewhere\nenv PYTHONPATH='egs/lib:src' python egs/one/local/train.py\n"),
        ("run.sh", 'PYTHONPATH="$(dirname "$0")/../lib":../../src python local/train.py\n'),
    ],
)
def test_shell_scripts_say_which_folders_are_on_the_search_path(script: str, text: str) -> None:
    """Other folders have such modules, too; another program's script is not asked where one names this program."""
    write(
        {
            "README.md": "",
            "setup.py": "",
            "egs/one/README.md": "",
            "egs/one/local/train.py": "from models.net import Net\nfrom driver import Trainer\n",
            f"egs/one/{script}": text,
            "egs/path.sh": "export PYTHONPATH=other\n",
            "egs/lib/driver.py": "class Trainer:\n    pass\n",
            "egs/other/driver.py": "class Trainer:\n    pass\n",
            "src/models/net.py": "class Net:\n    pass\n",
        }
    )
    name = "egs/one/local/train.py"
    assert reached(read([name]), name) == {name, "egs/lib/driver.py", "src/models/net.py"}


def test_the_script_that_names_a_program_says_its_folders() -> None:
    write(
        {
            "train.py": "import net\n",
            "test.py": "import net\n",
            "run_a.sh": "PYTHONPATH=a python train.py\n",
            "run_b.sh": "PYTHONPATH=b python test.py\n",
            "a/net.py": "",
            "b/net.py": "",
        }
    )
    project = read(["train.py", "test.py"])
    assert reached(project, "train.py") == {"train.py", "a/net.py"}
    assert reached(project, "test.py") == {"test.py", "b/net.py"}


@pytest.mark.parametrize("mark", ["README.md", "setup.py", ""])
def test_the_one_file_of_a_name_may_lie_beyond_the_nearest_readme(mark: str) -> None:
    """Where the nearest folder with one has no such file, up to the repository, or what was asked for."""
    write(
        {
            **({mark: ""} if mark else {}),
            "egs/one/README.md": "",
            "egs/one/local/train.py": "from driver import Trainer\nfrom models.net import Net\n",
            "lib/driver.py": "class Trainer:\n    pass\n",
            "lib/models/net.py": "Net = 1\n",
        }
    )
    name = "egs/one/local/train.py"
    assert reached(read([name]), name) == {name, "lib/driver.py", "lib/models/net.py"}


def test_unreadable_files_are_found_by_who_imports_them() -> None:
    write({"train.py": "import a\n", "a.py": "import broken\n", "broken.py": "x = (\n", "other.py": ""})
    project = read(["train.py", "other.py"])
    assert [it.path.name for it in project.unreadable_from(Path.cwd() / "train.py")] == ["broken.py"]
    assert not project.unreadable_from(Path.cwd() / "other.py")


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ('vars(it)["name"] = value', "it.name = value"),
        ('print(it.part.__dict__["name"])', "print(it.part.name)"),
        ('vars(it)["name"] += 1', "it.name += 1"),
        ('del vars(it)["name"]', "del it.name"),
        ('vars(it)["rest"].append(value)', "it.rest.append(value)"),
        ('setattr(it, "name", value)', "it.name = value"),
        ('object.__setattr__(it, "name", value)', "it.name = value"),
        ('it.__setattr__("name", value)', "it.name = value"),
        ('it.__dict__.__setitem__("name", value)', "it.name = value"),
        ("vars(it).update(name=value)", "it.name = value"),
        ('it.__dict__.update({"name": value}, other=1)', "(it.other, it.name) = (1, value)"),
        ("setattr(it, name, value)", ""),
        ('vars(it)["two words"] = value', ""),
        ("vars(it).update(more)", ""),
        ("vars(it).update(name=value, **more)", ""),
        ('table["name"] = value', ""),
        ('vars = load\nvars(it)["name"] = value', ""),
        ('def setattr(it, name, value): pass\nsetattr(it, "name", value)', ""),
    ],
)
def test_attributes_that_are_named_by_texts_come_as_attributes(text: str, same: str) -> None:
    tree = parse(text)
    assert ast.unparse(tree) == ast.unparse(ast.parse(same or text))
    assert all(it.end_col_offset is not None for it in ast.walk(tree) if isinstance(it, ast.expr | ast.stmt))


def test_a_project_with_other_texts_is_parsed_anew() -> None:
    here = Path("/p/a.py")
    project = Project.of({here: "import b\n", Path("/p/b.py"): ""})
    assert len(project.reaches(here)) == 2
    assert project.with_texts({here: "x = 1\n"}).reaches(here) == {here}
    with pytest.raises(SyntaxError):
        project.with_texts({here: "x = (\n"})
