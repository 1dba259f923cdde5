"""Changes → a unified diff that ``git apply`` and ``patch -p1`` take as it is.

It is bytes: a file keeps its own encoding and line endings in it. No ``diff --git`` lines: with them
git counts paths from the top of the repository and not from the working folder.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from dp2ddp.changes import Change

_COLOURS = {b"---": b"\x1b[1m", b"+++": b"\x1b[1m", b"@@ ": b"\x1b[36m", b"-": b"\x1b[31m", b"+": b"\x1b[32m"}
_ESCAPES = {
    7: b"\\a",
    8: b"\\b",
    9: b"\\t",
    10: b"\\n",
    11: b"\\v",
    12: b"\\f",
    13: b"\\r",
    34: b'\\"',
    92: b"\\\\",
}


def diff(changes: Iterable[Change], base: Path, *, color: bool = False) -> bytes:
    """The diff of all changes, with paths relative to ``base``."""
    lines: list[bytes] = []
    for change in changes:
        name = os.fsencode(change.path.relative_to(base).as_posix())
        lines += _file(name, change.before_bytes, change.after_bytes)
    return b"".join(map(_colored, lines) if color else lines)


def base_of(changes: Iterable[Change], cwd: Path) -> Path:
    """Where the diff applies: in the working folder, or in the one that contains all changed files."""
    folders = [change.path.parent for change in changes]
    if all(folder.is_relative_to(cwd) for folder in folders):
        return cwd
    return Path(os.path.commonpath(folders))


def _file(name: bytes, before: bytes, after: bytes) -> Iterator[bytes]:
    old, new = _lines(before), _lines(after)
    yield b"--- " + _quoted(b"a/" + name) + b"\n"
    yield b"+++ " + _quoted(b"b/" + name) + b"\n"
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=len(old) > 5000)
    for group in matcher.get_grouped_opcodes(3):
        ranges = _range(group[0][1], group[-1][2]), _range(group[0][3], group[-1][4])
        yield b"@@ -%b +%b @@\n" % ranges
        for tag, old_start, old_end, new_start, new_end in group:
            if tag == "equal":
                yield from _marked(b" ", old[old_start:old_end])
            else:
                yield from _marked(b"-", old[old_start:old_end])
                yield from _marked(b"+", new[new_start:new_end])


def _lines(data: bytes) -> list[bytes]:
    """Lines as diff tools count them: a carriage return is part of the line."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _marked(mark: bytes, lines: Iterable[bytes]) -> Iterator[bytes]:
    for line in lines:
        if line.endswith(b"\n"):
            yield mark + line
        else:
            yield mark + line + b"\n"
            yield b"\\ No newline at end of file\n"


def _range(start: int, end: int) -> bytes:
    length = end - start
    if length == 1:
        return b"%d" % (start + 1)
    return b"%d,%d" % (start + 1 if length else start, length)


def _quoted(name: bytes) -> bytes:
    """A name as git writes it: in C's quotes if need be, else followed by a tab if it has a space."""
    if all(32 <= byte < 127 and byte not in b'"\\' for byte in name):
        return name + b"\t" if b" " in name else name
    return b'"%b"' % b"".join(
        _ESCAPES.get(byte) or (bytes([byte]) if 32 <= byte < 127 else b"\\%03o" % byte) for byte in name
    )


def _colored(line: bytes) -> bytes:
    for start, colour in _COLOURS.items():
        if line.startswith(start):
            return colour + line.rstrip(b"\n") + b"\x1b[m\n"
    return line
