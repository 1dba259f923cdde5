"""What may be wrong with converted files, read from their text: nothing here runs them."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from dp2ddp.source import load

REPOSITORY = Path(__file__).resolve().parents[2]
UNDEFINED = "F821,F822,F823,F405"
"""ruff's rules for names that nothing defines, that are exported so, used too early, or come from ``import *``."""

COLLECTIVES = frozenset("""
    DataParallel DistributedDataParallel barrier gather launch main_process_first mean shard shared_seed sum
    """.split())
"""The runtime's functions that every rank must call, each as often as the others."""

RANK_QUERIES = frozenset({"get_local_rank", "get_rank", "is_main_process"})


def compile_error(path: Path) -> str:
    """Why Python does not take a file, or nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            return f"{path.name}:{getattr(error, 'lineno', None)}: {error}"
    return ""


def undefined_names(folder: Path, files: Iterable[Path]) -> Counter[tuple[Path, str]]:
    """How often a linter sees each undefined name used, by file; ``files`` count from ``folder``."""
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--output-format", "json"]
    command += ["--select", UNDEFINED, *map(str, files)]
    out = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60).stdout
    names: Counter[tuple[Path, str]] = Counter()
    for entry in json.loads(out):
        name = re.search("`([^`]*)`", entry["message"])
        path = Path(entry["filename"]).relative_to(folder.resolve())
        names[path, name[1] if name else entry["message"]] += 1
    return names


def new_undefined_names(before: Path, after: Path, files: Iterable[Path]) -> list[str]:
    """Names that the converted files use without defining them, where the originals did not."""
    files = list(files)
    with tempfile.TemporaryDirectory() as name:  # as they can be parsed: a linter says nothing of other files
        for path in files:
            file = load(before / path, (before / path).read_bytes())
            (Path(name) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(name) / path).write_text(file.text, encoding="utf-8", newline="")
        known = undefined_names(Path(name), files)
    found = undefined_names(after, files)
    names = [f"{path}: {name}" for path, name in sorted(found) if (path, name) not in known]
    return names + [f"{path}: {name}" for path in files for name in _missing(after / path)]


def _missing(path: Path) -> list[str]:
    """What a file asks of the runtime that the runtime has not."""
    module = _Module(ast.parse(path.read_bytes()))
    used = {
        (node.value.id, node.attr)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    return sorted(
        f"{name}.{attr}" for name, attr in used if name in module.aliases and attr not in _runtime()
    )


@cache
def _runtime() -> frozenset[str]:
    """The runtime's public names."""
    tree = ast.parse((REPOSITORY / "dp2ddp" / "runtime" / "__init__.py").read_bytes())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return frozenset(alias.asname or alias.name for node in imports for alias in node.names)


def rank_local_collectives(folder: Path, files: Iterable[Path]) -> list[str]:
    """Collectives that only some of the ranks reach: under a condition on the rank, or after ranks have left.

    A call of a function of these files counts as the collectives in it; functions are told apart by name alone.
    """
    modules = {path: _Module(ast.parse((folder / path).read_bytes())) for path in files}
    joint = {name for module in modules.values() for name in module.joint}
    return [
        f"{path}:{call.lineno}: {ast.unparse(call.func)}()"
        for path, module in modules.items()
        for call in module.alone(joint)
    ]


class _Module:
    """One converted file: which names stand for the runtime, which for values that differ between the ranks."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.aliases = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "dp2ddp"
            for alias in node.names
        }
        self.local = {
            target.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and self._asks(node.value, frozenset())
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        self.joint = {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef)
            and any(self._called(inner) in COLLECTIVES for inner in ast.walk(node))
        }

    def alone(self, joint: set[str]) -> Iterator[ast.Call]:
        """The collectives, and calls of functions named in ``joint``, that not every rank reaches."""
        seen: set[ast.Call] = set()
        for node in ast.walk(self.tree):
            for part in self._rank_local(node):
                for inner in ast.walk(part):
                    if isinstance(inner, ast.Call) and inner not in seen:
                        name = inner.func.id if isinstance(inner.func, ast.Name) else ""
                        if self._called(inner) in COLLECTIVES or name in joint:
                            seen.add(inner)
                            yield inner

    def _rank_local(self, node: ast.AST) -> Iterator[ast.AST]:
        """The parts of a statement or expression that only some of the ranks run."""
        if isinstance(node, ast.If | ast.While) and self._asks(node.test, self.local):
            yield from (*node.body, *node.orelse)
        elif isinstance(node, ast.IfExp) and self._asks(node.test, self.local):
            yield from (node.body, node.orelse)
        elif isinstance(node, ast.BoolOp):
            asked = [self._asks(value, self.local) for value in node.values]
            if any(asked):
                yield from node.values[asked.index(True) + 1 :]
        for _, block in ast.iter_fields(node):
            statements = block if isinstance(block, list) else []
            for index, statement in enumerate(statements):
                if isinstance(statement, ast.If) and self._asks(statement.test, self.local):
                    last = (*statement.body[-1:], *statement.orelse[-1:])
                    if any(
                        isinstance(end, ast.Return | ast.Break | ast.Continue | ast.Raise) for end in last
                    ):
                        yield from statements[index + 1 :]

    def _asks(self, node: ast.expr, local: Iterable[str]) -> bool:
        """Whether an expression differs between the ranks, for all that can be seen in it."""
        return any(
            self._called(inner) in RANK_QUERIES or (isinstance(inner, ast.Name) and inner.id in local)
            for inner in ast.walk(node)
        )

    def _called(self, node: ast.AST) -> str:
        """The function of the runtime that a node calls, or nothing."""
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=function)) if name in self.aliases:
                return function
        return ""


def tier(folder: Path, files: Iterable[Path]) -> str:
    """How the converted models train: "sharded", "whole batch" or both, by the wraps in the changed files."""
    named = set()
    for path in files:
        module = _Module(ast.parse((folder / path).read_bytes()))
        for node in ast.walk(module.tree):
            bases = node.bases if isinstance(node, ast.ClassDef) else []
            used = [base for base in bases if isinstance(base, ast.Attribute)]
            named |= {base.attr for base in used if ast.unparse(base.value) in module.aliases}
            named.add(module._called(node))
    forms = {
        "sharded": {"DistributedDataParallel"},
        "whole batch": {"DataParallel", "adapted", "parallel"},
    }
    return " and ".join(form for form, names in forms.items() if names & named)
