"""Carrying out a plan: the edits of one file at once, in one parse and one visit.

An edit names a node of the original. What lands in the hole of a template is the *edited* form of the piece
it names, whichever edit comes first: no nested edit is lost and the order of edits means nothing, except among
those on the arguments of one call and among statements inserted at one place.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable, Sequence

import libcst as cst
from libcst.metadata import MetadataWrapper

from dp2ddp import legacy
from dp2ddp.plan import AddImport, Anchor, DropImport, Edit, Enclose, Mark, Remove, Respell, Unwrap
from dp2ddp.rewrite.errors import RewriteError
from dp2ddp.rewrite.imports import add_imports, drop_imports
from dp2ddp.rewrite.index import Index
from dp2ddp.rewrite.transform import Transformer

__all__ = ["RewriteError", "rewrite"]

_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def rewrite(text: str, edits: Sequence[Edit]) -> str:
    """The text of a file after its edits, which it is after its mends. What they do not touch stays, to the byte."""
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
        spaced = legacy.spaced(text)
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
    lines: list[str] = []
    for tag, start, end, low, high in difflib.SequenceMatcher(
        None, base, changed, autojunk=False
    ).get_opcodes():
        lines += original[start:end] if tag == "equal" else _indented(changed[low:high], base, original, end)
    result = "".join(lines)
    # libcst does not know a last "\r" for a line end.
    return result + "\r" if text.endswith("\r") and not result.endswith("\r") else result


def _indented(lines: list[str], base: list[str], original: list[str], end: int) -> list[str]:
    """Changed lines, indented by the tabs of the last lines before that were indented by as many spaces."""
    if base == original:
        return lines
    tabs = {_indent(spoken): _indent(line) for spoken, line in zip(base[:end], original[:end], strict=True)}
    found = []
    for line in lines:
        indent = _indent(line)
        outer = max((it for it in tabs if indent.startswith(it)), key=len, default="")
        found.append(tabs.get(outer, "") + line[len(outer) :])
    return found


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _check(text: str) -> None:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise RewriteError(f"the result is not valid Python: {error} (its line {line})") from error
