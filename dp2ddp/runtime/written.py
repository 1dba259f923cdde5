"""Parameters that a model's own forward writes, as far as its source says so.

What each rank's forward writes from its part of the batch is rank 0's in the end (see ``watch``). Source that can't be
read, and ways of writing that are not looked for, are noticed while training.
"""

from __future__ import annotations

import ast
import fnmatch
import functools
import inspect
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

_SAME_DATA = {"data", "detach", "view", "view_as", "reshape", "squeeze", "unsqueeze", "flatten", "t", "T"}
_NO_WRITES = {"requires_grad_", "share_memory_"}


def names(module: torch.nn.Module) -> set[str]:
    """The names of parameters, as ``module`` has them, that a forward of one of its layers may write in place."""
    found = set()
    for prefix, layer in module.named_modules():
        paths = _written(type(layer))
        own = dict(layer.named_parameters()) if paths else {}
        its = {name for name in own if name in paths}
        for pattern in (it for it in paths if "*" in it):
            its |= {it for it in fnmatch.filter(own, pattern) if not own[it].requires_grad}
        found |= {f"{prefix}.{path}" if prefix else path for path in its}
    return found


@contextmanager
def copied(module: torch.nn.Module, names: Iterable[str]) -> Iterator[None]:
    """Run a forward on copies of parameters of these names that are not trained, and keep what it writes into them.

    nn.DataParallel's replicas but the first have copies of their own: what a second forward writes leaves the graph of
    the first alone.
    """
    kept: list[tuple[torch.nn.Module, str, torch.nn.Parameter]] = []
    for name in names:
        path, _, own = name.rpartition(".")
        layer = module.get_submodule(path)
        parameter = layer._parameters.get(own)
        if parameter is not None and not parameter.requires_grad:
            kept.append((layer, own, parameter))
            layer._parameters[own] = torch.nn.Parameter(parameter.detach().clone(), requires_grad=False)
    try:
        yield
    finally:
        for layer, own, parameter in kept:
            copy, layer._parameters[own] = layer._parameters[own], parameter
            if copy is not None:
                parameter.data.copy_(copy.data)


@functools.cache
def _written(kind: type[torch.nn.Module]) -> frozenset[str]:
    """What methods that the forward of a class leads to write of ``self``, by dotted paths.

    With ``*`` for what is looked up by a name that is made when it runs.
    """
    methods: dict[str, ast.FunctionDef] = {}
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] in ("torch", "builtins"):
            continue
        for name, method in _methods(base).items():
            methods.setdefault(name, method)
    found, left, seen = set(), ["forward"], set()
    while left:
        name = left.pop()
        if name in seen or name not in methods:
            continue
        seen.add(name)
        looked = _Looked(methods[name])
        found |= looked.written
        left += looked.mentioned
    return frozenset(found)


def _methods(kind: type) -> dict[str, ast.FunctionDef]:
    found = _classes(kind.__module__).get(kind.__qualname__)
    body = found.body if found is not None else []
    return {it.name: it for it in body if isinstance(it, ast.FunctionDef) and it.args.args}


@functools.cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    """The classes of a module's source, by their qualified names; none where it can't be read."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError, SyntaxError, ValueError):
        return {}
    found: dict[str, ast.ClassDef] = {}
    left: list[tuple[str, ast.AST]] = [("", tree)]
    while left:
        prefix, outer = left.pop()
        for node in ast.iter_child_nodes(outer):
            inner = prefix
            if isinstance(node, ast.ClassDef):
                found[prefix + node.name] = node
                inner = f"{prefix}{node.name}."
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                inner = f"{prefix}{node.name}.<locals>."
            if isinstance(node, ast.stmt | ast.ExceptHandler):
                left.append((inner, node))
    return found


class _Looked:
    """What one method says."""

    def __init__(self, method: ast.FunctionDef) -> None:
        self._self = method.args.args[0].arg
        self._aliases: dict[str, str] = {}
        nodes = list(ast.walk(method))
        for node in nodes:
            if (
                isinstance(node, ast.Assign)
                and len(node.targets) == 1
                and isinstance(node.targets[0], ast.Name)
            ):
                path = self._path(node.value)
                if path:
                    self._aliases[node.targets[0].id] = path
        self.mentioned = [
            node.attr
            for node in nodes
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == self._self
        ]
        self.written = {path for node in nodes for it in _targets(node) if (path := self._path(it))}

    def _path(self, node: ast.expr) -> str | None:
        """The attribute of ``self`` whose data an expression is."""
        if isinstance(node, ast.Subscript):
            return self._path(node.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return self._path(node.func.value) if node.func.attr in _SAME_DATA else None
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr" and len(node.args) > 1:
            return self._looked_up(*node.args[:2])
        if isinstance(node, ast.Name):
            return self._aliases.get(node.id)
        if not isinstance(node, ast.Attribute):
            return None
        if node.attr in _SAME_DATA:
            return self._path(node.value)
        if isinstance(node.value, ast.Name) and node.value.id == self._self:
            return node.attr
        outer = self._path(node.value)
        return f"{outer}.{node.attr}" if outer else None

    def _looked_up(self, holder: ast.expr, name: ast.expr) -> str | None:
        last = name.value if isinstance(name, ast.Constant) else "*"
        if isinstance(holder, ast.Name) and holder.id == self._self:
            return str(last)
        outer = self._path(holder)
        return f"{outer}.{last}" if outer else None


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    """What a statement or call writes in place."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            its = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            yield from (it for it in its if isinstance(it, ast.Subscript) or _is_data(it))
    elif isinstance(node, ast.AugAssign):
        yield node.target
    elif isinstance(node, ast.Call):
        yield from (keyword.value for keyword in node.keywords if keyword.arg == "out")
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name.endswith("_") and not name.endswith("__") and name not in _NO_WRITES:
            if isinstance(node.func, ast.Attribute):
                yield node.func.value
            yield from node.args[:1]  # nn.init.constant_(self.weight, 0)


def _is_data(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "data"
