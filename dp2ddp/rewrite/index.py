"""Finding the nodes that the edits of a file name."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from dp2ddp.plan import Anchor, Mark
from dp2ddp.rewrite.errors import RewriteError
from dp2ddp.source import Span


class Index:
    """The nodes that some anchors of a file name, and where they stand.

    Spans are ``ast``'s. libcst's positions are the same but for parentheses around tuples and generators.
    A statement is known by its start alone: there the two disagree about ends.
    """

    def __init__(
        self, wrapper: MetadataWrapper, anchors: Iterable[Anchor], marks: Iterable[Mark] = ()
    ) -> None:
        anchors = list(anchors)
        self.positions: Mapping[cst.CSTNode, CodeRange] = wrapper.resolve(PositionProvider)  # type: ignore[assignment]
        search = _Search(self.positions, anchors, marks)
        wrapper.module.visit(search)
        self.found = search.found
        # The statement that each mark goes above; an inner one was found after those round it.
        self.marked = search.marked
        self.containers = search.containers
        # Nothing outside of these changes, so nothing else has to be visited.
        self.relevant = search.relevant
        for anchor in anchors:
            if _key(anchor) not in self.found:
                raise RewriteError(_missing(anchor, search.strings), anchor.span)

    def __getitem__(self, anchor: Anchor) -> cst.CSTNode:
        return self.found[_key(anchor)]


def _key(anchor: Anchor) -> tuple[int, ...]:
    span = anchor.span
    if anchor.kind == "stmt":
        return (span.line, span.column)
    return (span.line, span.column, span.end_line, span.end_column)


def _missing(anchor: Anchor, strings: Iterable[Span]) -> str:
    span = anchor.span
    start = (span.line, span.column)
    what = "statement" if anchor.kind == "stmt" else "expression"
    if any((it.line, it.column) < start < (it.end_line, it.end_column) for it in strings):
        return f"the {what} stands in an f-string, where Python before 3.12 does not tell positions"
    return f"there is no {what} at line {span.line}, column {span.column}"


class _Search(cst.CSTVisitor):
    def __init__(
        self, positions: Mapping[cst.CSTNode, CodeRange], anchors: Iterable[Anchor], marks: Iterable[Mark]
    ) -> None:
        super().__init__()
        self.positions = positions
        self.wanted = {_key(anchor) for anchor in anchors}
        self.marks = list(marks)
        self.marked: dict[Mark, cst.CSTNode] = {}
        self.lines = sorted([*(key[0] for key in self.wanted), *(mark.at.span.line for mark in self.marks)])
        self.found: dict[tuple[int, ...], cst.CSTNode] = {}
        self.containers: dict[cst.CSTNode, cst.CSTNode] = {}
        self.relevant: set[cst.CSTNode] = set()
        self.strings: list[Span] = []
        self.ancestors: list[cst.CSTNode] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if self.marks and isinstance(node, (cst.SimpleStatementLine, cst.BaseCompoundStatement)):
            self._mark(node)
        if isinstance(node, cst.BaseExpression):
            for key in self._keys(node):
                if key in self.wanted:
                    self._take(key, node)
            if isinstance(node, cst.FormattedString):
                self.strings.append(Span(*_range(self.positions[node])))
        elif isinstance(node, (cst.BaseSmallStatement, cst.BaseCompoundStatement)):
            key = _range(self.positions[node])[:2]
            if key in self.wanted:
                self._take(key, node)
                self._contain(node)
        elif isinstance(node, cst.SimpleStatementLine):
            # Most lines have no anchor: not to look into them saves most of the time.
            where = self.positions[node]
            if bisect_left(self.lines, where.start.line) == bisect_right(self.lines, where.end.line):
                return False
        elif isinstance(node, (cst.BaseParenthesizableWhitespace, cst.EmptyLine, cst.TrailingWhitespace)):
            return False
        self.ancestors.append(node)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if self.ancestors and self.ancestors[-1] is original_node:
            self.ancestors.pop()

    def _take(self, key: tuple[int, ...], node: cst.CSTNode) -> None:
        self.found[key] = node
        self.relevant.update(self.ancestors, (node,))

    def _mark(self, node: cst.CSTNode) -> None:
        if not isinstance(self.ancestors[-1], (cst.Module, cst.IndentedBlock)):
            return
        line, column, end_line, end_column = _range(self.positions[node])
        for mark in self.marks:
            place = (mark.at.span.line, mark.at.span.column)
            if (line, column) <= place <= (end_line, end_column):
                self.marked[mark] = node
                self.relevant.update(self.ancestors, (node,))

    def _contain(self, node: cst.CSTNode) -> None:
        """Note the block a statement stands in. An ``elif`` stands in none."""
        parent = self.ancestors[-1]
        if isinstance(parent, cst.SimpleStatementLine):
            parent = self.ancestors[-2]
        if isinstance(parent, (cst.Module, cst.BaseSuite)):
            self.containers[node] = parent

    def _keys(self, node: cst.BaseExpression) -> Iterable[tuple[int, ...]]:
        own = _range(self.positions[node])
        yield own
        if not isinstance(node, (cst.Tuple, cst.GeneratorExp)):
            return
        if node.lpar:
            yield _range(self.positions[node.lpar[-1]])[:2] + _range(self.positions[node.rpar[0]])[2:]
        elif isinstance(node, cst.GeneratorExp) and len(self.ancestors) > 1:
            call = self.ancestors[-2]
            if isinstance(call, cst.Call):  # the call's parentheses are the generator's as well
                opening = _range(self.positions[call.whitespace_before_args])
                yield (opening[0], opening[1] - 1) + self._end(call)

    def _end(self, call: cst.Call) -> tuple[int, ...]:
        return _range(self.positions[call])[2:]


def _range(it: CodeRange) -> tuple[int, int, int, int]:
    return (it.start.line, it.start.column, it.end.line, it.end.column)
