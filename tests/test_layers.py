"""Who may import whom: downwards only. Ruff bans the libraries; this is the whole table."""

from __future__ import annotations

import ast
import builtins
import random
import re
from collections import deque
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import numpy
import pytest
import torch

PACKAGE = Path(__file__).parents[1] / "dp2ddp"

ALLOWED = {
    "": set(),
    "__main__": {"cli"},
    "cli": {"", "config", "convert", "defects", "emit", "ignored", "progress", "verify"},
    "progress": set(),
    "config": {"ignored", "toml"},
    "convert": {
        *{
            "analyse",
            "beside",
            "carry",
            "changes",
            "decided",
            "deep",
            "defects",
            "facts",
            "ignored",
            "ignores",
        },
        *{"notices", "plan", "rules", "source", "transactions", "vendored"},
    },
    "carry": {
        *{
            "analyse",
            "changes",
            "decided",
            "defects",
            "format",
            "ignores",
            "legacy",
            "notices",
            "plan",
            "rewrite",
            "rules",
        },
        *{"source", "transactions"},
    },
    "decided": {"analyse", "facts", "tiers"},
    "beside": {"analyse", "changes", "defects", "plan", "source"},
    "ignores": {"notices", "plan", "rules", "source"},
    "notices": {"defects", "plan"},
    "transactions": {"facts", "plan", "source"},
    "deep": set(),
    "defects": set(),
    "analyse": {"facts", "legacy", "plan", "source", "texts"},
    "rules": {"facts", "plan", "tiers"},
    "tiers": {"facts", "plan"},
    "rewrite": {"legacy", "plan", "source", "libcst"},
    "format": {"black"},
    "emit": {"changes", "notices", "plan", "source"},
    "changes": {"plan", "source"},
    "facts": {"legacy", "plan", "source"},
    "plan": {"legacy", "source"},
    "source": {"entrypoints", "ignored", "legacy", "libraries", "texts"},
    "entrypoints": {"texts", "toml"},
    "ignored": set(),
    "libraries": set(),
    "vendored": {"changes", "source"},
    "toml": set(),
    "texts": set(),
    "legacy": set(),
    "runtime": {"torch"},
    "verify": {"", "runtime", "torch"},
}
LIBRARIES = {"black", "libcst", "torch", "torchvision", "numpy"}


def layer(module: str) -> str | None:
    parts = module.split(".")
    if parts[0] == "dp2ddp":
        return parts[1] if len(parts) > 1 else ""
    return parts[0] if parts[0] in LIBRARIES else None


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:  # the runtime's: it may be copied elsewhere, so it does not know its own name
                assert node.level < len(
                    path.relative_to(PACKAGE).parts
                ), "a relative import leaves its folder"
                continue
            whole = node.module == "dp2ddp"
            names = [f"dp2ddp.{alias.name}" if _is_module(alias.name) else "dp2ddp" for alias in node.names]
            found.update(names if whole else [node.module or ""])
    return {name for name in map(layer, found) if name is not None}


def _is_module(name: str) -> bool:
    return (PACKAGE / f"{name}.py").exists() or (PACKAGE / name).is_dir()


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_imports_go_downwards(path: Path) -> None:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    own = "" if parts == ("__init__",) else parts[0]
    assert imported(path) <= ALLOWED[own] | {own}


ANALYSIS = {  # the folders of analyse: each knows the ones that stand before it in its row
    "api": set(),
    "program": {"api"},
    "wrappers": {"api", "program"},
    "context": {"api", "program", "wrappers"},
    "views": {"context", "program", "wrappers"},
    "processes": {"api", "context", "program", "wrappers"},
    "dataflow": {"api", "context", "processes", "program"},
    "wrapping": {"api", "context", "processes", "program", "views", "wrappers"},
    "training": {"api", "context", "dataflow", "processes", "program", "views", "wrappers", "wrapping"},
    "evaluation": {"api", "context", "dataflow", "processes", "program", "training"},
    "rank_variance": {"api", "context", "dataflow", "evaluation", "processes", "program", "training"},
    "apex": {"api", "context", "program"},
    "outdated": {"api", "context", "dataflow", "program"},
    "proofs": {"api", "context", "program"},
}


def _when_run(tree: ast.Module) -> list[ast.stmt]:
    """The statements of a module, without what only a type checker reads."""
    return [it for it in tree.body if not isinstance(it, ast.If) or ast.unparse(it.test) != "TYPE_CHECKING"]


@pytest.mark.parametrize("folder", ANALYSIS)
def test_the_folders_of_the_analysis_know_only_what_is_below_them(folder: str) -> None:
    home = PACKAGE / "analyse"
    found = set()
    for path in [home / f"{folder}.py", *(home / folder).rglob("*.py")]:
        for statement in _when_run(ast.parse(path.read_bytes())) if path.exists() else ():
            if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith(
                "dp2ddp.analyse"
            ):
                parts = statement.module.split(".")[2:]
                found.update(parts[:1] or [alias.name for alias in statement.names])
    assert found <= ANALYSIS[folder] | {folder}


def test_every_folder_of_the_analysis_is_in_the_table() -> None:
    parts = [it for it in (PACKAGE / "analyse").iterdir() if it.name[0] not in "_." and it.suffix != ".md"]
    names = {it.stem for it in parts}
    assert names == set(ANALYSIS)


# Names of what torch, numpy, Python and others have stand in analyse/api, and nowhere else as a set


HOLDERS = (list, dict, set, str, deque, Path, builtins, random, numpy, numpy.ndarray)
HOLDERS += (torch, torch.Tensor, torch.nn, torch.nn.functional, torch.nn.Module, torch.utils.data.DataLoader)
VOCABULARY = {name for holder in HOLDERS for name in dir(holder)} - {"__init__"}
NO_API = {
    ("processes/devices.py", ("device", "name", "cuda")): "kinds of a fact",
}
"""Sets of words that are no names of an API, though something has such names, and what they are."""


def _sets(tree: ast.Module) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The collections of words in a module: displays, the keys of dicts, patterns, texts that are split."""
    for node in ast.walk(tree):
        match node:
            case ast.Set(elts=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
                pass
            case ast.Dict(keys=keys):
                parts = [key for key in keys if key is not None]
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="split")):
                parts = [ast.Constant(word) for word in text.split()]
            case ast.MatchOr(patterns=[_, _, _, *_] as patterns):  # one or two are how a form is written
                parts = [getattr(it, "value", None) for it in patterns]
            case _:
                continue
        words = (it.value for it in parts if isinstance(it, ast.Constant) and isinstance(it.value, str))
        yield getattr(node, "lineno", 0), tuple(words)


def _is_api(word: str) -> bool:
    return word in VOCABULARY or bool(re.fullmatch(r"\.?[A-Za-z_]\w*(\.\w+)*\.?", word) and "." in word)


ANALYSED = sorted(path for path in (PACKAGE / "analyse").rglob("*.py") if path.parent.name != "api")


@pytest.mark.parametrize("path", ANALYSED, ids=lambda path: str(path.relative_to(PACKAGE / "analyse")))
def test_names_of_others_stand_in_the_registry(path: Path) -> None:
    name = path.relative_to(PACKAGE / "analyse").as_posix()
    found = [
        (line, words)
        for line, words in _sets(ast.parse(path.read_bytes()))
        if sum(map(_is_api, words)) > 1 and (name, words) not in NO_API
    ]
    assert found == [], "a set of names of torch, numpy, Python or others belongs into analyse/api"


def test_each_exception_is_there() -> None:
    for name, words in NO_API:
        sets = _sets(ast.parse((PACKAGE / "analyse" / name).read_bytes()))
        assert words in [it for _, it in sets]


def test_the_linker_is_in_small_parts_and_knows_no_wrapper() -> None:
    for path in (PACKAGE / "analyse" / "program").glob("*.py"):
        assert len(path.read_text().splitlines()) < 600
        named = {name for name in _imported_names(path) if name.startswith("dp2ddp.analyse.api.parallel")}
        assert not named, f"{path.name} knows of wrapped models"


def test_the_dataflow_is_in_small_parts_that_know_one_another_one_way() -> None:
    home = PACKAGE / "analyse" / "dataflow"
    known: dict[str, set[str]] = {}
    for path in home.rglob("*.py"):
        text = path.read_text()
        assert len(text.splitlines()) < 600
        imports = [it for it in _when_run(ast.parse(text)) if isinstance(it, ast.ImportFrom)]
        modules = {it.module or "" for it in imports}
        modules |= {f"{it.module}.{alias.name}" for it in imports for alias in it.names}
        known[".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)] = modules
    TopologicalSorter({name: modules & set(known) for name, modules in known.items()}).prepare()


def _imported_names(path: Path) -> set[str]:
    nodes = [it for it in ast.walk(ast.parse(path.read_bytes())) if isinstance(it, ast.ImportFrom)]
    return {f"{it.module}.{alias.name}" for it in nodes for alias in it.names}
