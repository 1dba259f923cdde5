"""Carrying out a plan: the edits of one file at once, in one parse and one visit.

An edit names a node of the original. What lands in the hole of a template is the *edited* form of the piece
it names, whichever edit comes first: no nested edit is lost and the order of edits means nothing, except among
those on the arguments of one call and among statements inserted at one place.
"""

from __future__ import annotations

import ast
import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst
from libcst.metadata import MetadataWrapper

from dp2ddp.plan import AddImport, Anchor, DropImport, Edit, Enclose, Mark, Remove, Respell, Unwrap
from dp2ddp.rewrite.errors import RewriteError
from dp2ddp.rewrite.imports import add_imports, drop_imports
from dp2ddp.rewrite.index import Index
from dp2ddp.rewrite.transform import Transformer
from dp2ddp.source import indentations, spaced_out

__all__ = ["RewriteError", "rewrite"]

_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")

# The blank lines at the end of a file, where one has blanks: libcst drops a last one that is shorter than the block.
_TAIL = re.compile(r"(?:(?<=\n)|(?<=\r)(?!\n))[ \t\r\n]*[ \t][ \t\r\n]*\Z")


def rewrite(text: str, edits: Sequence[Edit]) -> str:
    """The text of a file after its edits, which it is after its mends. What they do not touch stays, to the byte."""
    tail = _TAIL.search(text)
    if tail is not None:
        return rewrite(text[: tail.start()], edits) + tail.group()
    module = _parsed(text)
    wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
    inside = [edit for edit in edits if not isinstance(edit, (AddImport, DropImport, Respell))]
    index = Index(wrapper, _anchors(inside), [edit for edit in inside if isinstance(edit, Mark)])
    try:
        changed = wrapper.module.visit(Transformer(inside, index, text, module.default_newline))
    except cst.CSTValidationError as error:
        raise RewriteError(f"the edits do not fit together: {error}") from error
    after = _restored(text, module.code, changed.code)
    _check(after)
    after = add_imports(
        after, [edit for edit in edits if isinstance(edit, AddImport)], module.default_newline
    )
    after = drop_imports(after, [edit.name for edit in edits if isinstance(edit, DropImport)])
    _check(after)
    return after


def _parsed(text: str) -> cst.Module:
    """A text parsed. Where libcst cannot tell tabs from spaces, each tab that a line begins with counts as one space.

    Python only takes lines whose blocks are the same with tabs of 1 column as with tabs of 8, so that nothing else is
    said, and every column stays.
    """
    try:
        return cst.parse_module(text)
    except cst.ParserSyntaxError as error:
        spaced = spaced_out(text)
        try:
            if spaced == text:
                raise error
            return cst.parse_module(spaced)
        except cst.ParserSyntaxError:
            raise RewriteError(f"libcst cannot parse the file: {error.message}") from error


def _anchors(edits: Iterable[Edit]) -> Iterable[Anchor]:
    for edit in edits:
        if isinstance(edit, Enclose):
            yield from (edit.first, edit.last)
        elif not isinstance(edit, (AddImport, DropImport, Mark)):
            yield edit.at
        if not isinstance(edit, (Remove, Unwrap)):
            yield from (hole for hole in getattr(edit, "holes", {}).values() if isinstance(hole, Anchor))


def _restored(text: str, spoken: str, after: str) -> str:
    """``after`` with the lines that libcst does not give back as they were, such as those with form feeds."""
    if spoken == text:
        return after
    original, base, changed = (_LINES.findall(it) for it in (text, spoken, after))
    if len(original) != len(base):
        raise RewriteError("libcst does not give the file back as it is")
    kept: dict[int, int] = {}  # the line of the original that one of the result is
    matcher = difflib.SequenceMatcher(None, base, changed, autojunk=False)
    for start, low, count in matcher.get_matching_blocks():
        kept.update((low + at, start + at) for at in range(count))
    lines = [original[kept[at]] if at in kept else line for at, line in enumerate(changed)]
    # Form feeds are in the lines that stay; tabs were taken out of the blocks of those that do not, too.
    result = "".join(lines)
    if base != original:
        tabs = _indented(lines, _Indents(text, spoken, after, kept))
        result = tabs if _says(tabs) == _says(after) else after
    # libcst does not know a last "\r" for a line end.
    return result + "\r" if text.endswith("\r") and not result.endswith("\r") else result


@dataclass(frozen=True, eq=False)
class _Block:
    """A block of the result: the one that it is in, and how it is indented there and in the file."""

    outer: _Block | None
    spaced: str
    written: str

    def line(self, text: str) -> str:
        """One of its lines."""
        return self.written + text[len(self.spaced) :]


def _indented(lines: Sequence[str], indents: _Indents) -> str:
    """The result, with the lines that do not stay indented by the tabs of the original's blocks.

    Comments above come with them. Further lines of a statement, and of strings, are as they are.
    """
    found, block = list(lines), _Block(None, "", "")
    for at, indent in indents.spaced.items():
        while block.outer is not None and len(block.spaced) > len(indent):
            block = block.outer
        if len(block.spaced) < len(indent):
            block = _Block(block, indent, indents.written(at) or block.line(indent))
        if at in indents.kept:
            continue
        found[at] = block.line(lines[at])
        comment = f"{block.spaced}#"
        while at and lines[at - 1].startswith(comment) and at - 1 not in indents:
            at -= 1
            found[at] = block.line(lines[at])
    return "".join(found)


class _Indents:
    """How the logical lines of a result are indented, and those of the original that stand where they do.

    Args:
        kept: the line of the original that one of the result is.
    """

    def __init__(self, text: str, spoken: str, after: str, kept: Mapping[int, int]) -> None:
        self.spaced, self.kept = indentations(after), kept
        self._written, self._spoken = indentations(text), indentations(spoken)

    def __contains__(self, at: int) -> bool:
        return at in self.kept or at in self.spaced

    def written(self, first: int) -> str | None:
        """How the original indents what is indented as a block that begins at a line, if any of it stands there."""
        indent = self.spaced[first]
        below = [it for it in self.spaced if it >= first]
        ends = next((at for at, it in enumerate(below) if len(self.spaced[it]) < len(indent)), len(below))
        start = max((self.kept[it] + 1 for it in self.spaced if it < first and it in self.kept), default=0)
        end = min((self.kept[it] for it in below[ends:] if it in self.kept), default=math.inf)
        there = (it for it in self._written if start <= it < end and self._spoken.get(it) == indent)
        return next((self._written[it] for it in there), None)


def _says(text: str) -> str:
    """What a text says, however it is indented; nothing where it is no Python."""
    try:
        return ast.dump(ast.parse(text))
    except (SyntaxError, ValueError):
        return ""


def _check(text: str) -> None:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise RewriteError(f"the result is not valid Python: {error} (its line {line})") from error
