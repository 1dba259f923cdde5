"""Reading: which files there are, what they say, and where in them something stands."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, order=True)
class Span:
    """A range of source text: lines count from 1, columns from 0 in characters, the end is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, order=True)
class Location:
    """A range in a file."""

    path: Path
    span: Span

    def __str__(self) -> str:
        return f"{self.path}:{self.span.line}"


@dataclass(frozen=True)
class SourceFile:
    """A parsed file. ``text`` keeps the file's own line endings."""

    path: Path
    text: str
    encoding: str
    tree: ast.Module = field(repr=False, compare=False)


@dataclass(frozen=True)
class Unreadable:
    """A file that cannot be read or parsed: where and why."""

    path: Path
    line: int | None
    reason: str


@dataclass(frozen=True)
class Project:
    """All files of one run: the ones asked for and those that they import."""

    root: Path
    files: Mapping[Path, SourceFile]
    unreadable: tuple[Unreadable, ...] = ()
