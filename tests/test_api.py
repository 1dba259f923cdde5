"""The registry of what torch, numpy and Python do: every name is there under this name, and does what its table says."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import pickle
import random
import re
import subprocess
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import dp2ddp.analyse.api
from dp2ddp.analyse.api import containers, files, iteration, layers, outdated, processes, randomness, tensors
from dp2ddp.analyse.api import operations as table

HOME = Path(dp2ddp.analyse.api.__path__[0])
MODULES = {
    path.stem: importlib.import_module(f"dp2ddp.analyse.api.{path.stem}") for path in HOME.glob("[a-z]*.py")
}
OTHERS = {"losses", "operations"}  # have a test of their own
ELSEWHERE = frozenset("""
    pathlib.Path.walk torchvision.io.write_video torchvision.models.utils.load_state_dict_from_url
    builtins.iter.next builtins.enumerate.next torch.utils.data.DataLoader.__iter__.next
    """.split())
"""What other versions have, of Python or a library."""
OF_OBJECTS = ("subprocess.Popen.", "tarfile.open.", "tarfile.TarFile.open.")
"""Functions and classes of whose objects more is known than they have themselves."""


def tables() -> Iterator[tuple[str, Any]]:
    for module, held in MODULES.items():
        if module not in OTHERS | {"outdated"}:
            yield from ((f"{module}.{name}", it) for name, it in vars(held).items() if name.isupper())


@pytest.mark.parametrize("module", MODULES)
def test_no_table_has_the_name_of_another_one_in_its_module(module: str) -> None:
    tree = ast.parse((HOME / f"{module}.py").read_text())
    named = [
        it.id
        for part in tree.body
        if isinstance(part, ast.Assign)
        for it in part.targets
        if isinstance(it, ast.Name)
    ]
    assert len(named) == len(set(named))


def words(held: Any) -> Iterator[str]:
    if isinstance(held, str):
        yield held
    elif isinstance(held, dict | set | frozenset | tuple):
        for it in held:
            yield from words(it)


DOTTED = sorted(
    {
        word
        for _, held in tables()
        for word in words(held)
        if re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*\.?", word) and "." in word
    }
)


@cache
def resolve(name: str, may_begin: bool = False) -> Any:
    """What has a full name, or ``may_begin`` with it; None where its package is not here.

    Raises:
        LookupError: nothing has it.
    """
    parts = name.rstrip(".").split(".")
    if parts[0] not in sys.stdlib_module_names | {"dp2ddp", "numpy", "torch", "torchvision", "tqdm"}:
        return None
    found, rest = None, parts
    while rest:
        try:
            name = ".".join(parts[: len(parts) - len(rest) + 1])
            found, rest = importlib.import_module(name), rest[1:]
        except ImportError:
            break
    if found is None:
        return None
    for part in rest:
        if not hasattr(found, part):
            if may_begin and part is rest[-1] and any(it.startswith(part) for it in dir(found)):
                return found
            raise LookupError(name)
        found = getattr(found, part)
    return found


def is_there(name: str) -> bool:
    try:
        resolve(name, may_begin=True)
    except LookupError:
        return False
    return True


def test_what_is_named_is_there() -> None:
    asked = [name for name in DOTTED if name not in ELSEWHERE and not name.startswith(OF_OBJECTS)]
    assert [name for name in asked if not is_there(name)] == []


def test_a_name_that_is_not_there_is_noticed() -> None:
    with pytest.raises(LookupError):
        resolve("torch.utils.data.MNIST")


def test_no_name_is_two_tables() -> None:
    held: dict[str, list[str]] = {}
    for path in HOME.glob("*.py"):
        for name in assigned(path):
            held.setdefault(name, []).append(path.stem)
    assert {name: found for name, found in held.items() if len(found) > 1} == {}


def assigned(path: Path) -> set[str]:
    """The names that a module gives a value to, once each however often it goes on with it."""
    targets = (
        getattr(it, "targets", [getattr(it, "target", None)]) for it in ast.parse(path.read_text()).body
    )
    return {
        it.id
        for found in targets
        for target in found
        if target
        for it in ast.walk(target)
        if isinstance(it, ast.Name)
    }


# Containers


CHANGED = {
    list: ([3, 1, 2], containers.LIST_CHANGES),
    dict: ({1: 2}, containers.DICT_CHANGES),
    set: ({1, 2}, containers.SET_CHANGES),
    deque: (deque([3, 1, 2]), containers.DEQUE_CHANGES),
}
GIVEN: tuple[tuple[Any, ...], ...] = ((), (1,), (5,), ([5],), ({1},), ({5: 6},), (0, 5), (5, 6))


def changes(made: Any, method: str) -> bool:
    """Whether a method changes what it is called of, given anything that it takes."""
    for given in GIVEN:
        changed = copy(made)
        try:
            getattr(changed, method)(*given)
        except (TypeError, ValueError, KeyError, IndexError):
            continue
        if list(changed) != list(made) or changed != made:
            return True
    return False


@pytest.mark.parametrize("kind", CHANGED, ids=lambda kind: kind.__name__)
def test_methods_that_change_in_place_are_all_those_that_do(kind: type) -> None:
    made, known = CHANGED[kind]
    assert {it for it in dir(kind) if it[0] != "_" and changes(made, it)} == known


# Processes


@pytest.mark.parametrize("name", sorted(processes.ENDS))
def test_what_ends_the_program_does(name: str) -> None:
    module, _, function = name.rpartition(".")
    argument = "0" if name == "os._exit" else ""
    code = f"import {module}\n{module}.{function}({argument})\nprint('goes on')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "goes on" not in ended.stdout and "Error" not in ended.stderr


# Randomness and clocks


STATES: dict[str, Callable[[], Any]] = {
    "random": lambda: random.getstate(),
    "numpy": lambda: numpy.random.get_state()[1].tolist(),
    "torch": lambda: torch.get_rng_state().tolist(),
}


def state_after(name: str, *given: int) -> Any:
    if name == "torch.Generator.seed":
        return torch.Generator().seed()
    made = resolve(name)(*given)
    if isinstance(made, numpy.random.BitGenerator | numpy.random.SeedSequence):
        return str(made.state)
    if hasattr(made, "getstate"):
        return made.getstate()
    if isinstance(made, numpy.random.RandomState):
        return made.get_state()[1].tolist()
    return made.bit_generator.state if hasattr(made, "bit_generator") else STATES[name.split(".")[0]]()


@pytest.fixture
def generators() -> Iterator[None]:
    states = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(states[0])
    numpy.random.set_state(states[1])
    torch.set_rng_state(states[2])


@pytest.mark.usefixtures("generators")
@pytest.mark.parametrize("name", sorted(randomness.SEEDS - {"torch.Generator.manual_seed"}))
def test_a_seed_is_all_that_a_generator_is_seeded_by(name: str) -> None:
    if ".cuda." in name:
        pytest.skip("needs a GPU")
    assert state_after(name, 3) == state_after(name, 3) != state_after(name, 4)
    with pytest.raises(TypeError):
        resolve(name)()


@pytest.mark.usefixtures("generators")
@pytest.mark.parametrize("name", sorted(randomness.UNSEEDED))
def test_without_a_seed_each_process_has_another(name: str) -> None:
    assert state_after(name) != state_after(name)


@pytest.mark.parametrize("name", sorted(randomness.FORMATS_TIME))
def test_a_time_that_is_given_is_written_out(name: str) -> None:
    place, given = randomness.FORMATS_TIME[name], 86400.0
    moment: Any = time.gmtime(given) if name in ("time.strftime", "time.asctime") else given
    before = ("%Y",) if place else ()
    assert "1970" in str(resolve(name)(*before, moment))


# Files


@pytest.mark.parametrize("name", sorted(files.OPENERS_BY_PATH - {"dp2ddp.runtime.open"}))
def test_openers_take_the_path_first_and_the_mode_second(name: str, tmp_path: Path) -> None:
    with resolve(name)(tmp_path / "file", "wb") as opened:
        opened.write(b"text")
    assert (tmp_path / "file").exists()


@pytest.mark.parametrize("name", sorted(files.MODES))
def test_modes_have_their_place(name: str) -> None:
    opener = resolve(name)
    if opener is not None:
        parameters = [it for it in inspect.signature(opener).parameters if it not in ("cls", "self")]
        assert parameters.index(files.MODES[name].keyword) == files.MODES[name].place


@pytest.mark.parametrize("method", sorted(files.PATH_WRITES))
def test_methods_of_paths_that_write(method: str, tmp_path: Path) -> None:
    for name in ("held", "there"):
        (tmp_path / name).write_text("text")
    (tmp_path / "empty").mkdir()

    def seen() -> list[tuple[str, int, bytes]]:
        found = sorted(tmp_path.iterdir())
        return [(it.name, it.lstat().st_mode, it.read_bytes() if it.is_file() else b"") for it in found]

    before, made = seen(), tmp_path / "new"
    calls: dict[str, Callable[[], object]] = {
        "write_text": lambda: made.write_text("text"),
        "write_bytes": lambda: made.write_bytes(b"text"),
        "unlink": lambda: (tmp_path / "held").unlink(),
        "rename": lambda: (tmp_path / "held").rename(made),
        "replace": lambda: (tmp_path / "held").replace(made),
        "rmdir": lambda: (tmp_path / "empty").rmdir(),
        "symlink_to": lambda: made.symlink_to(tmp_path / "held"),
        "hardlink_to": lambda: made.hardlink_to(tmp_path / "held"),
        "chmod": lambda: (tmp_path / "held").chmod(0o600),
    }
    (tmp_path / "held").chmod(0o640)
    before = seen()
    calls.get(method, lambda: getattr(made, method)())()
    assert seen() != before


def test_what_asks_for_files_and_what_writes_have_nothing_in_common() -> None:
    asking = files.EXISTENCE | files.LISTS_FOLDER | files.LOADS | files.READS
    assert not asking & (files.WRITES | files.MAKES | files.PICKLES | files.PATH_CONTENTS)


@pytest.mark.parametrize("name", sorted(files.FILE_PATHS))
def test_paths_have_their_place(name: str) -> None:
    if (function := resolve(name)) is None:
        pytest.skip("not installed")
    keyword, place = files.FILE_PATHS[name]
    if name == "sqlite3.connect":  # without a signature; a method's first parameter
        assert function(**{keyword: ":memory:"}).execute("SELECT 1").fetchone() == (1,)
        return
    parameters = [it for it in inspect.signature(function).parameters if it not in ("cls", "self")]
    assert parameters[place] == keyword or parameters[place] == "args"


def test_what_loads_reads_its_own_format() -> None:
    assert files.WRITTEN_BY.keys() == files.LOADS
    assert all(f"{name.partition('.')[0]}." in begins for name, begins in files.WRITTEN_BY.items())


@pytest.mark.parametrize("name", ["torch.save", *sorted(files.PICKLES_TO_FILES), "json.dump"])
def test_what_writes_to_its_second_argument(name: str, tmp_path: Path) -> None:
    if (write := resolve(name)) is None:
        pytest.skip("not installed")
    with open(tmp_path / "file", "w" if name == "json.dump" else "wb") as file:
        write({"a": 1}, file)
    assert (tmp_path / "file").stat().st_size


@pytest.mark.parametrize(
    "name",
    ["shutil.copy", "shutil.copyfile", "shutil.move", "os.rename", "os.replace", "os.symlink", "os.link"],
)
def test_what_is_given_two_paths_makes_the_second(name: str, tmp_path: Path) -> None:
    assert name.startswith(files.BETWEEN_PATHS)
    (tmp_path / "one").write_text("text")
    resolve(name)(tmp_path / "one", tmp_path / "two")
    assert (tmp_path / "two").read_text() == "text"


# Loaders


def test_the_arguments_of_a_loader_have_their_places() -> None:
    parameters = list(inspect.signature(torch.utils.data.DataLoader).parameters)
    assert {name: parameters.index(name) for name in iteration.LOADER_ARGUMENTS} == iteration.LOADER_ARGUMENTS
    asked = iteration.ORDERLESS_ARGUMENTS | {*iteration.FUNCTION_ARGUMENTS, *iteration.SAMPLER_ARGUMENTS}
    assert asked <= {*parameters}


# Modules


def test_a_wrap_has_what_is_said_that_it_has() -> None:
    wrap = torch.nn.DataParallel(torch.nn.Linear(1, 1))
    own = {name for name in dir(wrap) if not name.startswith("_")}
    assert own - {"T_destination", "ipu", "mtia"} <= layers.WRAP_NAMES
    assert layers.MODULE_NAMES - {"device_ids"} <= {
        *dir(torch.nn.DataParallel),
        *vars(wrap),
        "module",
        "training",
    }


@pytest.mark.parametrize("name", sorted(layers.CONTAINERS))
def test_what_adds_to_containers_is_known(name: str) -> None:
    adds = {"append", "extend", "insert", "update", "add_module", "register_module", "__setitem__"}
    assert adds & {*dir(resolve(name))} <= layers.CONTAINER_ADDS


# Tensors


OF_TENSORS = {
    name: found
    for name, found in vars(tensors).items()
    if name.isupper()
    and isinstance(found, set | frozenset)
    and "ARGUMENTS" not in name
    and name != "OF_TENSORS"
}


@pytest.mark.parametrize("name", OF_TENSORS)
def test_methods_and_functions_of_tensors_are_there(name: str) -> None:
    homes: tuple[Any, ...] = (
        torch.Tensor,
        torch,
        torch.nn.functional,
        numpy.ndarray,
        numpy,
        torch.nn.Module,
        dict,
    )
    plain = {it for it in OF_TENSORS[name] if "." not in it}
    homeless = {it for it in plain if not any(hasattr(home, it) for home in homes)}
    made = {it for it in homeless if it in {row.name for row in table.TABLE}}
    assert homeless - made - {"training"} == set()


def result(method: str, *given: Any, of: torch.Tensor | None = None) -> torch.Tensor:
    tensor = torch.rand(4, 3) if of is None else of
    found = getattr(tensor, method)
    return found(*given) if callable(found) else found


@pytest.mark.parametrize("method", sorted(tensors.KEEPS_DIMENSIONS - {"cuda", "grad", "T", "t"}))
def test_dimensions_are_kept(method: str) -> None:
    given = {
        "to": (torch.float64,),
        "type": (torch.float64,),
        "clamp_min": (0.1,),
        "clamp_max": (0.9,),
        "clamp": (0.1,),
        "clamp_": (0.1,),
    }
    assert numpy.ndim(result(method, *given.get(method, ()))) == 2


@pytest.mark.parametrize("method", sorted(tensors.ARITHMETIC))
def test_arithmetic_is_number_by_number(method: str) -> None:
    one, other = torch.rand(4, 3), torch.rand(4, 3)
    rows = [result(method, other[at], of=one[at].clone()) for at in range(4)]
    assert torch.equal(result(method, other, of=one.clone()), torch.stack(rows))


@pytest.mark.parametrize("method", sorted(tensors.REDUCES))
def test_one_number_is_made_of_all(method: str) -> None:
    value = torch.rand(4, 3)
    assert result(method, *((0,) if method == "logsumexp" else ()), of=value.flatten()).dim() == 0
    along = result(method, 1, of=value) if method != "norm" else torch.norm(value, dim=1)
    assert isinstance(along, tuple) == (method in tensors.GIVES_TWO)


@pytest.mark.parametrize("method", sorted(tensors.MAKES_MASKS))
def test_masks_are_made(method: str) -> None:
    given = (0.5,) if method in ("eq", "ne", "gt", "ge", "lt", "le") else ()
    given = (torch.rand(4, 3),) if method == "logical_and" else given
    assert result(method, *given).dtype is torch.bool


@pytest.mark.parametrize("method", sorted(tensors.RESHAPES_IN_PLACE))
def test_the_first_dimension_changes_in_place(method: str) -> None:
    given = {
        **{"unsqueeze_": (0,), "resize_": (3, 2), "resize_as_": (torch.rand(3, 2),), "transpose_": (0, 1)},
        **{"swapaxes_": (0, 1), "set_": (torch.rand(3, 2),)},
    }
    value = torch.rand(1, 3)
    getattr(value, method)(*given.get(method, ()))
    assert len(value) != 1 or value.dim() != 2


@pytest.mark.parametrize("method", sorted(tensors.WITHOUT_GRAPH & {"numpy", "tolist", "item", "detach"}))
def test_the_graph_is_left(method: str) -> None:
    value = torch.rand(1, requires_grad=True)
    found = value.detach().numpy() if method == "numpy" else getattr(value, method)()
    assert not getattr(found, "requires_grad", False)


# What is gone


STUBS = {"torch.symeig", "torch.eig", "torch.solve", "torch.lstsq"}
"""Names that are there only to say that they are gone."""


@pytest.mark.parametrize("name", sorted(outdated.REMOVED_NAMES))
def test_what_is_gone_is_not_there_and_what_takes_its_place_is(name: str) -> None:
    row = outdated.REMOVED_NAMES[name]
    # Some names are there again, as something else: torch.fft was a function, and its module has what did its work.
    if resolve(name.partition(".")[0]) is not None and name not in STUBS:
        with pytest.raises(LookupError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            resolve(name)
    module, _ = row.place
    if module:
        assert resolve(row.instead) is not None or resolve(module.split(".")[0]) is None


@pytest.mark.parametrize("name", sorted(outdated.PYTHON_2))
def test_builtins_of_python_2_are_gone(name: str) -> None:
    now = outdated.PYTHON_2[name]
    assert not hasattr(builtins, name) and (now is None or hasattr(builtins, now))


def test_pickles_are_of_the_first_argument() -> None:
    assert all(name.rpartition(".")[2] in vars(pickle) or name == "joblib.dump" for name in files.PICKLES)
