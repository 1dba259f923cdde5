"""Which files of a folder are not looked at: those that git ignores, and those that ``exclude`` names.

Patterns are git's (``build/``, ``*_old.py``, ``/src/legacy``, ``!kept.py``). Git itself is asked where it is there and
the folder is in a repository; elsewhere the ``.gitignore`` files are read here.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

FILE = ".gitignore"
_ASKED = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")


@dataclass(frozen=True)
class Pattern:
    """One line of a ``.gitignore`` file in a folder, or one of ``exclude``."""

    folder: Path
    text: str

    @property
    def negates(self) -> bool:
        return self.text.startswith("!")

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        text = self.text.removeprefix("!").rstrip("/")
        anywhere = "" if "/" in text else "(?:.*/)?"
        return re.compile(anywhere + _translated(text.removeprefix("/")), re.DOTALL)

    def matches(self, path: Path, is_folder: bool) -> bool:
        """Whether it names this path; what is in a folder that it names is not asked for."""
        if (self.text.endswith("/") and not is_folder) or not path.is_relative_to(self.folder):
            return False
        return self._regex.fullmatch(path.relative_to(self.folder).as_posix()) is not None


def patterns(lines: Iterable[str], folder: Path) -> tuple[Pattern, ...]:
    """The patterns that lines are, which count from a folder."""
    kept = (line if line.endswith("\\ ") else line.rstrip() for line in lines)
    return tuple(Pattern(folder, line) for line in kept if line.strip("/!") and not line.startswith("#"))


def matched(path: Path, is_folder: bool, found: Iterable[Pattern]) -> bool:
    """Whether patterns name a path: the last one that does decides."""
    named = [pattern for pattern in found if pattern.matches(path, is_folder)]
    return bool(named) and not named[-1].negates


class LeftOut:
    """What is left out of a folder that is searched from its top down: ``enter`` every folder before asking."""

    def __init__(self, top: Path, exclude: Iterable[Pattern] = ()) -> None:
        self.exclude = tuple(exclude)
        self.ignored: set[Path] = set()
        self.patterns: list[Pattern] = []
        self.by_git = False
        for folder in _above(top):
            self._read(folder)
        self._ask(top)

    def enter(self, folder: Path) -> None:
        """Know what is ignored in a folder."""
        if (folder / ".git").exists():  # a repository of its own
            self._ask(folder)
        self._read(folder)

    def has(self, path: Path, is_folder: bool) -> bool:
        """Whether a path is left out."""
        ignored = path in self.ignored if self.by_git else matched(path, is_folder, self.patterns)
        return ignored or matched(path, is_folder, self.exclude)

    def _ask(self, folder: Path) -> None:
        names = _git_ignored(folder)
        if names is not None:
            self.by_git = True
            self.ignored |= {folder / name for name in names} - {
                folder
            }  # a folder that is asked for is looked at

    def _read(self, folder: Path) -> None:
        if (folder / FILE).is_file():
            try:
                lines = (folder / FILE).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
            except OSError:
                return
            self.patterns += patterns(lines, folder)


def _above(top: Path) -> Iterator[Path]:
    """The folders that a folder's repository has above it, from its top down; none outside of one."""
    parents = list(top.parents)
    for count, folder in enumerate(parents):
        if (folder / ".git").exists() and not (top / ".git").exists():
            yield from reversed(parents[: count + 1])
            return


def _git_ignored(folder: Path) -> list[str] | None:
    """What git ignores in a folder, relative to it; None where git has no answer."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-C", os.fspath(folder), *_ASKED], capture_output=True, check=False, env=environment
        )
    except OSError:
        return None
    return [os.fsdecode(it) for it in done.stdout.split(b"\0") if it] if done.returncode == 0 else None


def _translated(text: str) -> str:
    """A pattern as a regular expression."""
    found, at = "", 0
    while at < len(text):
        rest = text[at:]
        if rest.startswith("**/") and (at == 0 or text[at - 1] == "/"):
            found, at = found + "(?:.*/)?", at + 3
        elif rest == "**" and text[at - 1 : at] == "/":
            found, at = found + ".+", at + 2
        elif group := re.match(r"\[([!^]?)(\]?[^]]*)\]", rest):
            inner = re.sub(r"([\\\[&~|])", r"\\\1", group[2])
            found, at = found + f"[{'^/' if group[1] else ''}{inner}]", at + group.end()
        elif rest[0] == "\\" and len(rest) > 1:
            found, at = found + re.escape(rest[1]), at + 2
        else:
            found, at = found + {"*": "[^/]*", "?": "[^/]"}.get(rest[0], re.escape(rest[0])), at + 1
    return found
