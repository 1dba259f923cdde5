"""The programs that installing a project makes: setup.py, setup.cfg and pyproject.toml are read, never run."""

from __future__ import annotations

import ast
import configparser
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dp2ddp import toml
from dp2ddp.texts import ANY, Texts

FILES = ("pyproject.toml", "setup.cfg", "setup.py")
"""The names of the files that declare programs."""

_GROUPS = frozenset({"console_scripts", "gui_scripts"})
_POINT = re.compile(r"\s*([^=\s\[\]]+)\s*=\s*([\w.]+)\s*:\s*([\w.]+)\s*(?:\[.*\])?\s*")
_SECTION = re.compile(r"\s*\[([^\]]+)\]\s*")


@dataclass(frozen=True)
class EntryPoint:
    """A command that imports a module and calls a function of it: ``name = module:attribute``."""

    name: str
    module: str
    attribute: str

    @property
    def program(self) -> str:
        """What an installer writes for it."""
        first = self.attribute.partition(".")[0]
        return f"import sys\n\nfrom {self.module} import {first}\n\nsys.exit({self.attribute}())\n"


@dataclass(frozen=True)
class Declared:
    """What one file declares: entry points, and the paths of scripts, with ``*`` for what is not known of them."""

    points: tuple[EntryPoint, ...] = ()
    scripts: tuple[str, ...] = ()


def declared(name: str, text: str) -> Declared:
    """The programs that a file of this name declares; none where it cannot be read."""
    try:
        found = {"setup.py": _in_setup, "setup.cfg": _in_cfg, "pyproject.toml": _in_toml}[name](text)
        points, scripts = list(found[0]), list(found[1])
    except (SyntaxError, ValueError, RecursionError, configparser.Error):
        return Declared()
    return Declared(tuple(dict.fromkeys(points)), tuple(dict.fromkeys(scripts)))


def _points(lines: Iterable[str]) -> Iterator[EntryPoint]:
    """Lines ``name = module:attribute``, those of other groups than programs' left out."""
    program = True
    for line in lines:
        if section := _SECTION.fullmatch(line):
            program = section[1].strip() in _GROUPS
        elif program and (point := _POINT.fullmatch(line)):
            yield EntryPoint(*point.groups())


def _in_toml(text: str) -> tuple[Iterator[EntryPoint], Iterator[str]]:
    data = toml.parsed(text)
    tables = [("project", "scripts"), ("project", "gui-scripts"), ("tool", "poetry", "scripts")]
    tables += [("tool", "flit", "scripts")]

    def lines() -> Iterator[str]:
        for names in tables:
            for name, value in toml.table(data, *names).items():
                if isinstance(value, dict):
                    value = value.get("reference") or value.get("callable")
                yield f"{name}={value}"

    scripts = toml.table(data, "tool", "setuptools").get("script-files", [])
    return _points(lines()), iter([it for it in scripts if isinstance(it, str)])


def _in_cfg(text: str) -> tuple[Iterator[EntryPoint], Iterator[str]]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.read_string(text)
    section = "options.entry_points"
    groups = [name for name in _GROUPS if parser.has_option(section, name)]
    lines = (line for name in sorted(groups) for line in parser.get(section, name).splitlines())
    scripts = re.split(r"[\n,]", parser.get("options", "scripts", fallback=""))
    return _points(lines), (it.strip() for it in scripts if it.strip())


def _in_setup(text: str) -> tuple[Iterator[EntryPoint], Iterator[str]]:
    """Every string that reads like an entry point, unless it stands under the name of another group."""
    tree = ast.parse(text)
    texts = Texts(tree, "setup.py")
    return _points(_setup_lines(tree)), _setup_scripts(tree, texts)


def _setup_lines(node: ast.AST, program: bool = True) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield "[console_scripts]" if program else "[other]"
        yield from node.value.splitlines()
    for name, child in _named_children(node):
        yield from _setup_lines(child, program if name is None or name == "entry_points" else name in _GROUPS)


def _setup_scripts(tree: ast.Module, texts: Texts) -> Iterator[str]:
    for node in ast.walk(tree):
        for name, child in _named_children(node):
            if name == "scripts":
                yield from _paths(child, texts)


def _paths(node: ast.AST, texts: Texts, depth: int = 0) -> Iterator[str]:
    for element in ast.walk(node):
        if isinstance(element, ast.Name) and depth < 3:
            for value in texts.assigned(element.id):
                yield from _paths(value, texts, depth + 1)
        elif isinstance(element, ast.expr):
            yield from (text for text in texts.of(element) if text.strip(ANY))


def _named_children(node: ast.AST) -> Iterator[tuple[str | None, ast.AST]]:
    """What stands in a node; what stands under a key or a keyword, with that."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            yield (key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None), value
    elif isinstance(node, ast.keyword):
        yield node.arg, node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield None, child
