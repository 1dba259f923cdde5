"""black, for files that were formatted with it before: there, and only there, nothing else moves."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import black

try:
    import tomllib
except ImportError:  # before Python 3.11; black brings it there
    import tomli as tomllib  # type: ignore[no-redef]


def format_like(before: str, after: str, path: Path) -> str:
    """``after`` formatted as ``before`` was: by black in the project's own configuration, or not at all."""
    mode = _mode(path.parent)
    if not before.strip() or _formatted(before, mode, fast=True) != before:
        return after
    return _formatted(after, mode, fast=False) or after


def _formatted(text: str, mode: black.Mode, fast: bool) -> str | None:
    """The text after black, which proves unless ``fast`` that it means the same; None if it cannot."""
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


@lru_cache(maxsize=64)
def _mode(folder: Path) -> black.Mode:
    """The mode of the nearest ``pyproject.toml`` that black would read: the first on the way up."""
    options = _options(folder.resolve())
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


def _options(folder: Path) -> dict[str, Any]:
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
