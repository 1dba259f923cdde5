"""Checks of a wrapped model's class in files that other programs use, too, which wrap theirs in nn.DataParallel."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

from dp2ddp.analyse.context import Context, once
from dp2ddp.source import importers_beside

_WRAP = "DataParallel"
_OTHERS = ("Distributed", "ddp.")


@once
def is_for_others(context: Context, path: Path) -> bool:
    """Whether programs use a file that are not converted, and wrap a model in what is none of the converted ones'."""
    project = context.program.project
    training = frozenset[Path]().union(*(project.reaches(it.path) for it in context.scripts))
    beside = importers_beside(project, frozenset([path]))
    whole = replace(project, files={**project.files, **{it.path: it for it in beside}}) if beside else project
    users = [it for it in whole.files if it not in training and path in whole.reaches(it)]
    own = frozenset[Path]().union(*(whole.reaches(it) for it in users)) - training
    return any(_wraps(whole.files[it].tree) for it in own)


def _wraps(tree: ast.Module) -> bool:
    """Whether a file makes a DataParallel: torch's, or one of the project's own."""
    calls = (ast.unparse(it.func) for it in ast.walk(tree) if isinstance(it, ast.Call))
    return any(_WRAP in it.rpartition(".")[2] and not any(other in it for other in _OTHERS) for it in calls)


def among(comparison: ast.Compare) -> str:
    """How a comparison of types is written that asks for one of several, in the place of one with a single class."""
    match comparison.ops:
        case [ast.Eq() | ast.Is()]:
            return "in"
        case [ast.NotEq() | ast.IsNot()]:
            return "not in"
    return ""
