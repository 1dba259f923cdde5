"""What one run shall do, as the command line and ``[tool.dp2ddp]`` in pyproject.toml say it.

    [tool.dp2ddp]
    entries = ["train.py", "tools/train_*.py"]  # what is converted where no PATH is given
    exclude = ["third_party/", "old_*.py"]      # left out where a folder is searched; git's patterns
    exact = true                                # as --exact; so are no-gather, sharded, force, mark; vendor = "DIR"

The file is the nearest one above all that is asked for that has this table, up to the top of the git repository. Paths
and patterns count from its folder. The command line adds to it; ``--isolated`` leaves it alone.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dp2ddp import toml
from dp2ddp.ignored import Pattern, patterns

FILE = "pyproject.toml"
TABLE = "tool.dp2ddp"
FLAGS = frozenset({"exact", "force", "mark", "no-gather", "sharded", "statistics"})
"""The keys that are what options of the same name are."""
TEXTS = frozenset({"vendor"})
LISTS = frozenset({"entries", "exclude"})
KEYS = FLAGS | TEXTS | LISTS


class ConfigError(Exception):
    """What is wrong with a configuration file, with its name."""


@dataclass(frozen=True)
class Settings:
    """What a file's table says; ``folder`` is the file's."""

    folder: Path
    values: Mapping[str, Any] = field(default_factory=dict)

    def flag(self, name: str) -> bool:
        return bool(self.values.get(name, False))

    def path(self, name: str) -> Path | None:
        return Path(os.path.relpath(self.folder / self.values[name])) if name in self.values else None

    @property
    def exclude(self) -> tuple[Pattern, ...]:
        return patterns(self.values.get("exclude", ()), self.folder)

    @property
    def entries(self) -> tuple[str, ...]:
        """The paths that ``entries`` means, as a person types them. Raises ``ConfigError`` where none is there."""
        found: dict[str, None] = {}
        for pattern in self.values.get("entries", ()):
            here = (self.folder / pattern).exists()  # a name may have brackets in it
            paths = [self.folder / pattern] if here else sorted(self.folder.glob(pattern))
            if not paths:
                raise ConfigError(f"{_shown(self.folder / FILE)}: entries: there is no {pattern}")
            found |= dict.fromkeys(os.path.relpath(path) for path in paths)
        return tuple(found)


@dataclass(frozen=True)
class Config:
    """``paths`` may contain ``-``. Without ``inplace`` and ``output`` nothing is written.

    ``repeated``: the options, as they were given, that another run for the same needs too.
    """

    paths: tuple[str, ...]
    diff: bool = True
    inplace: bool = False
    output: Path | None = None
    check: bool = False
    exact: bool = False
    force: bool = False
    mark: bool = False
    sharded: bool = False
    no_gather: bool = False
    color: bool = False
    exclude: tuple[Pattern, ...] = ()
    format: str = "text"
    statistics: bool = False
    vendor: Path | None = None
    quiet: bool = False
    verbose: bool = False
    repeated: tuple[str, ...] = ()


def settings(paths: Iterable[str | Path]) -> Settings:
    """The settings for what is asked for. Raises ``ConfigError``."""
    folders = [Path.cwd() if str(path) == "-" else Path(os.path.realpath(path)) for path in paths]
    start = Path(os.path.commonpath(folders)) if folders else Path.cwd()
    for folder in (start, *start.parents):
        try:
            text = (folder / FILE).read_text(encoding="utf-8") if (folder / FILE).is_file() else ""
        except (OSError, ValueError) as error:
            raise ConfigError(f"{_shown(folder / FILE)}: cannot be read: {error}") from error
        if TABLE in text and (values := _table(folder / FILE, text)) is not None:
            return Settings(folder, values)
        if (folder / ".git").exists():
            break
    return Settings(start)


def _table(file: Path, text: str) -> dict[str, Any] | None:
    """The checked table of a file; None where it has none."""
    try:
        data = toml.parsed(text)
    except ValueError as error:
        raise ConfigError(f"{_shown(file)}: not valid TOML: {error}") from error
    tool = toml.table(data, "tool")
    if "dp2ddp" not in tool:
        return None
    if not isinstance(tool["dp2ddp"], dict):
        raise ConfigError(f"{_shown(file)}: {TABLE} is no table")
    values: dict[str, Any] = tool["dp2ddp"]
    for key, value in values.items():
        if key not in KEYS:
            raise ConfigError(f"{_shown(file)}: [{TABLE}] has no key {key!r}; {_known(key)}")
        wanted, fits = _fits(key, value)
        if not fits:
            raise ConfigError(f"{_shown(file)}: [{TABLE}] {key} takes {wanted}")
    return values


def _known(key: str) -> str:
    close = difflib.get_close_matches(key, sorted(KEYS), 1)
    return f"did you mean {close[0]!r}?" if close else f"there are {', '.join(sorted(KEYS))}"


def _fits(key: str, value: object) -> tuple[str, bool]:
    """What a key takes, and whether a value is that."""
    if key in FLAGS:
        return "true or false", isinstance(value, bool)
    if key in TEXTS:
        return "a string", isinstance(value, str) and bool(value)
    return "a list of strings", isinstance(value, list) and all(isinstance(it, str) and it for it in value)


def _shown(path: Path) -> str:
    cwd = Path.cwd()
    return os.fspath(path.relative_to(cwd) if path.is_relative_to(cwd) else path)
