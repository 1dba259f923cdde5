"""Templates: Python source with ``{name}`` holes, filled with text and with pieces of the original."""

from __future__ import annotations

import re
from collections.abc import Mapping

import libcst as cst

from dp2ddp.plan import Anchor, Holes
from dp2ddp.rewrite.blocks import flush
from dp2ddp.rewrite.errors import RewriteError
from dp2ddp.rewrite.parentheses import fit

_HOLE = re.compile(r"\{\{|\}\}|\{(\w+)\}")
_MARK = "_dp2ddp_hole_{}_"
_ANY_MARK = re.compile(r"_dp2ddp_hole_\w+_")

Pieces = Mapping[str, cst.BaseExpression]


def spell(template: str, holes: Holes) -> str:
    """A template as Python source: text put in, a marked name where a piece of the original goes."""

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return match[0][0]
        if name not in holes:
            raise RewriteError(f"nothing fills {{{name}}} in {template!r}")
        filling = holes[name]
        return _MARK.format(name) if isinstance(filling, Anchor) else filling

    return _HOLE.sub(fill, template)


def expression(template: str, holes: Holes, pieces: Pieces) -> cst.BaseExpression:
    """The expression a template makes."""
    try:
        parsed = cst.parse_expression(spell(template, holes).strip())
    except cst.ParserSyntaxError as error:
        raise RewriteError(f"{template!r} is not an expression") from error
    filled = _filled(parsed, template, pieces)
    assert isinstance(filled, cst.BaseExpression)
    return filled


def statements(template: str, holes: Holes, pieces: Pieces, newline: str) -> list[cst.BaseStatement]:
    """The statements a template makes, with its blank lines and comments above each."""
    module = _module(spell(template, holes), template, pieces, newline)
    if any(line.comment for line in module.footer):
        raise RewriteError(f"a comment with no statement below it in {template!r}")
    if not module.body:
        return []
    above = [list(module.header), *([] for _ in module.body[1:])]
    return [
        node.with_changes(leading_lines=[flush(line) for line in (*lines, *node.leading_lines)])  # type: ignore
        for lines, node in zip(above, module.body, strict=True)
    ]


def header(template: str, holes: Holes, pieces: Pieces, newline: str) -> cst.BaseCompoundStatement:
    """The compound statement with this header; its body is a stand-in."""
    text = spell(template, holes).strip()
    if not text.rpartition("#")[0].rstrip().endswith(":") and not text.endswith(":"):
        raise RewriteError(f"{template!r} is not the header of a block")
    module = _module(f"{text}\n    pass", template, pieces, newline)
    if len(module.body) != 1 or not isinstance(module.body[0], cst.BaseCompoundStatement):
        raise RewriteError(f"{template!r} is not the header of a block")
    return module.body[0]


def _module(source: str, template: str, pieces: Pieces, newline: str) -> cst.Module:
    try:
        parsed = cst.parse_module(newline.join(re.split(r"\r\n|\r|\n", source)))
    except cst.ParserSyntaxError as error:
        raise RewriteError(f"{template!r} is not Python: {error.message}") from error
    filled = _filled(parsed, template, pieces)
    assert isinstance(filled, cst.Module)
    return filled


def _filled(parsed: cst.CSTNode, template: str, pieces: Pieces) -> cst.CSTNode:
    filler = _Filler({_MARK.format(name): piece for name, piece in pieces.items()})
    filled = parsed.visit(filler)
    assert isinstance(filled, cst.CSTNode)
    source = filled.code if isinstance(filled, cst.Module) else cst.Module([]).code_for_node(filled)
    if _ANY_MARK.search(source):
        raise RewriteError(f"a piece of the program cannot stand in a string or name: {template!r}")
    return filled


class _Filler(cst.CSTTransformer):
    def __init__(self, pieces: Pieces) -> None:
        super().__init__()
        self.pieces = pieces
        self.ancestors: list[cst.CSTNode] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        self.ancestors.append(node)
        return True

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> cst.CSTNode:  # type: ignore[override]
        self.ancestors.pop()
        if isinstance(original_node, cst.Name) and original_node.value in self.pieces:
            return fit(self.pieces[original_node.value], self.ancestors, original_node)
        return updated_node
