"""black, for files that were formatted with it before: there, and only there, nothing else moves.

In other files, statements that became much longer than what stood there are written in several lines, as it would.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import black

try:
    import tomllib
except ImportError:  # before Python 3.11; black brings it there
    import tomli as tomllib  # type: ignore[no-redef]

LONG, LONGER = 100, 20
"""Lines of other files: so many characters are too many, if what stood there had so many less."""

# What has black leave some lines as they are, and a string that it gives other quotes.
_LEFT_ALONE = re.compile(r"\b(?:fmt|yapf):")
_IN_SINGLE_QUOTES = re.compile(r"[rRbBuU]{0,2}'[^'\"\\\n]+'(?!')")


def format_like(before: str, after: str, path: Path) -> str:
    """``after`` formatted as ``before`` was: by black in the project's own configuration, or but for long lines."""
    if not before.strip():
        return _folded(before, after)
    options = _options(path.parent.resolve())
    if _is_unformatted(before, not options.get("skip-string-normalization", False)):
        return _folded(before, after)
    mode = _mode(options)
    if _formatted(before, mode, fast=True) != before:
        return _folded(before, after)
    return _formatted(after, mode, fast=False) or after


def _is_unformatted(text: str, quotes: bool) -> bool:
    """Whether a text has what black leaves nowhere: three empty lines, blanks at a line's end, ``'single quotes'``.

    Most files that black did not format have, and that is seen at once; black itself takes a while.
    """
    plain = text.replace("\r\n", "\n")
    if "\r" in plain or _LEFT_ALONE.search(plain):
        return False
    try:
        tree = ast.parse(plain)
    except (ValueError, SyntaxError):
        return False
    lines, inside = plain.split("\n"), set[int]()
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            # what documents is formatted otherwise
            inside.update(range(node.lineno - 1, node.end_lineno or node.lineno))
        elif isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
        ):
            inside.update(range(node.lineno - 1, (node.end_lineno or node.lineno) - 1))
            line = lines[node.lineno - 1]
            if quotes and line.isascii() and _IN_SINGLE_QUOTES.match(line, node.col_offset):
                return True
        else:
            waiting += ast.iter_child_nodes(node)
    outside = ["x" if at in inside else line for at, line in enumerate(lines)]
    return any(line != line.rstrip(" \t") for line in outside) or "\n\n\n\n" in "\n".join(outside)


def _folded(before: str, after: str) -> str:
    """``after`` with those of its statements in several lines that are too long for one, and were not before."""
    lines = after.split("\n")
    if not any(len(line) > LONG for line in lines):
        return after
    whole = _statements(after)
    for index in _too_long(before.split("\n"), lines):
        if index in whole:
            lines[index] = _fold(lines[index]) or lines[index]
    return "\n".join(lines)


def _statements(text: str) -> set[int]:
    """The lines that are one simple statement each, counted from 0."""
    try:
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    except (ValueError, SyntaxError):
        return set()
    starts = Counter(node.lineno for node in nodes)
    single = (node for node in nodes if node.lineno == node.end_lineno and not hasattr(node, "body"))
    return {node.lineno - 1 for node in single if starts[node.lineno] == 1}


def _too_long(before: list[str], after: list[str]) -> Iterator[int]:
    """The lines of ``after`` that are longer than what they took the place of, and than most lines."""
    lengths = sorted(map(len, before))
    usual = max(LONG, lengths[len(lengths) * 99 // 100])
    for kind, start, end, first, last in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind in ("insert", "replace"):
            limit = max([usual, *(len(line) + LONGER for line in before[start:end])])
            yield from (index for index in range(first, last) if len(after[index]) > limit)


def _fold(line: str) -> str | None:
    """A line of one statement as black would write it; None where a comment goes with it."""
    import black

    text = line.strip()
    indent = line[: line.index(text)]
    mode = black.Mode(line_length=LONG - len(indent), string_normalization=False, magic_trailing_comma=False)
    try:
        tree = ast.parse(text)
        folded = black.format_str(text, mode=mode).rstrip("\n")
        same = ast.dump(ast.parse(folded)) == ast.dump(tree)
    except (ValueError, SyntaxError):
        return None
    if not same or tree.body[0].end_col_offset != len(text.encode()):
        return None
    end = "\r" if line.endswith("\r") else ""
    return "\n".join(f"{indent}{part}{end}" for part in folded.split("\n"))


def _formatted(text: str, mode: black.Mode, fast: bool) -> str | None:
    """The text after black, which proves unless ``fast`` that it means the same; None if it cannot."""
    import black

    newline = "\r\n" if "\r\n" in text else "\n"
    plain = text.replace("\r\n", "\n")
    if "\r" in plain or plain.replace("\n", newline) != text:
        return None  # line ends of several kinds: black would make them one
    try:
        return black.format_file_contents(plain, fast=fast, mode=mode).replace("\n", newline)
    except black.NothingChanged:
        return text
    # What black cannot parse is a ValueError; an AssertionError: its output means something else.
    except (ValueError, AssertionError, SyntaxError):
        return None


def _mode(options: Mapping[str, Any]) -> black.Mode:
    """The mode that options of a ``pyproject.toml`` stand for."""
    import black  # not for files that are not formatted with it, which are most: importing it takes long

    versions = options.get("target-version", ())
    try:
        return black.Mode(
            target_versions={black.TargetVersion[name.upper()] for name in versions},
            line_length=int(options.get("line-length", black.DEFAULT_LINE_LENGTH)),
            string_normalization=not options.get("skip-string-normalization", False),
            magic_trailing_comma=not options.get("skip-magic-trailing-comma", False),
            preview=bool(options.get("preview", False)),
            unstable=bool(options.get("unstable", False)),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return black.Mode()


@lru_cache(maxsize=64)
def _options(folder: Path) -> dict[str, Any]:
    """Black's options in the nearest ``pyproject.toml`` that it would read: the first on the way up."""
    for parent in (folder, *folder.parents):
        file = parent / "pyproject.toml"
        try:
            options = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {}).get("black")
        except (OSError, ValueError):
            options = None
        if options is not None:
            return dict(options) if isinstance(options, dict) else {}
        if (parent / ".git").exists():
            break
    return {}
