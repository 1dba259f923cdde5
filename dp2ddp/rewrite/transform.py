"""The one transformer: every edit inside a file, from the leaves up."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence

import libcst as cst

from dp2ddp.plan import (
    AddParameter,
    Anchor,
    DropArgument,
    Edit,
    Enclose,
    Insert,
    Mark,
    Remove,
    Replace,
    SetArgument,
    Unwrap,
)
from dp2ddp.rewrite import templates
from dp2ddp.rewrite.arguments import add_parameter, as_laid_out, comments, edit_arguments
from dp2ddp.rewrite.blocks import (
    Body,
    Enclosure,
    Lines,
    Unit,
    assemble,
    comment_line,
    leading_lines,
    with_leading,
)
from dp2ddp.rewrite.errors import RewriteError
from dp2ddp.rewrite.index import Index
from dp2ddp.rewrite.parentheses import code, fit, parenthesised, spans_lines
from dp2ddp.source import Span

# Calls that only ask: a condition made of them may go when nothing depends on it any more.
_QUESTIONS = {
    *(
        "len",
        "isinstance",
        "issubclass",
        "hasattr",
        "getattr",
        "callable",
        "bool",
        "int",
        "str",
        "any",
        "all",
    ),
    *(
        "is_available",
        "device_count",
        "current_device",
        "is_initialized",
        "get_rank",
        "get_replica_count",
        "get_world_size",
        "get",
    ),
}


ONLY_ASKING = ("device_count", "is_available", "isinstance", "hasattr", "len")
"""The ends of what a condition may call that need not be run where both ways are the same."""


class Transformer(cst.CSTTransformer):
    """Carries out edits on the nodes of an ``Index``."""

    def __init__(self, edits: Iterable[Edit], index: Index, text: str, newline: str) -> None:
        super().__init__()
        self.index = index
        self.lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self.newline = newline
        # What takes an expression's place; what stands round that comes last.
        self.replace: dict[cst.CSTNode, list[Replace]] = defaultdict(list)
        self.arguments: dict[cst.CSTNode, list[SetArgument | DropArgument]] = defaultdict(list)
        self.parameters: dict[cst.CSTNode, AddParameter] = {}
        self.before: dict[cst.CSTNode, list[Insert]] = defaultdict(list)
        self.after: dict[cst.CSTNode, list[Insert]] = defaultdict(list)
        self.enclose: dict[cst.CSTNode, list[Enclose]] = defaultdict(list)
        self.removed: dict[cst.CSTNode, Remove] = {}
        self.unwrapped: dict[cst.CSTNode, Unwrap] = {}
        self.marks: dict[cst.CSTNode, list[Mark]] = defaultdict(list)
        for edit in edits:
            self._sort_in(edit)
        self.anchored = set(index.found.values())
        self.ancestors: list[cst.CSTNode] = []
        # The edited forms of the nodes that edits name: but for a Replace of the node itself, and with it.
        self.bare: dict[cst.CSTNode, cst.BaseExpression] = {}
        self.full: dict[cst.CSTNode, cst.BaseExpression] = {}
        self.apart: set[cst.CSTNode] = set()
        # Comments in what is replaced: they go above the statement.
        self.lost: list[cst.Comment] = []
        self.rescued: set[cst.CSTNode] = set()
        self.dropped: set[cst.CSTNode] = set()

    def _sort_in(self, edit: Edit) -> None:
        match edit:
            case Replace():
                node = self.index[edit.at]
                others = self.replace[node]
                if any((it.template, dict(it.holes)) == (edit.template, dict(edit.holes)) for it in others):
                    return
                for other in others:
                    if _stands_round(other) == _stands_round(edit):
                        raise RewriteError(
                            f"two edits replace this expression: by {other.template!r} and by {edit.template!r}",
                            edit.at.span,
                        )
                others.append(edit)
                others.sort(key=_stands_round)
            case SetArgument() | DropArgument():
                node = self.index[edit.at]
                if not isinstance(node, cst.Call):
                    raise RewriteError("this is not a call: it has no arguments", edit.at.span)
                self.arguments[node].append(edit)
            case AddParameter():
                self.parameters[self._statement(edit.at)] = edit
            case Insert():
                inserts = (self.after if edit.after else self.before)[self._statement(edit.at)]
                if edit not in inserts:
                    inserts.append(edit)
            case Enclose():
                first, last = self._statement(edit.first), self._statement(edit.last)
                block = self.index.containers[first]
                if block is not self.index.containers[last]:
                    raise RewriteError(
                        "the statements to be enclosed stand in different blocks", edit.first.span
                    )
                self.enclose[block].append(edit)
            case Remove():
                self.removed[self._statement(edit.at)] = edit
            case Unwrap():
                node = self.index[edit.at]
                if not isinstance(node, cst.If) or node.orelse is not None:
                    raise RewriteError("only an if without else can be unwrapped", edit.at.span)
                self.unwrapped[node] = edit
            case Mark():
                self.marks[self.index.marked[edit]].append(edit)

    def _statement(self, anchor: Anchor) -> cst.CSTNode:
        node = self.index[anchor]
        if node not in self.index.containers:
            raise RewriteError(
                "this is not a statement of a block" + " (an elif)" * isinstance(node, cst.If), anchor.span
            )
        return node

    # -- the visit

    def on_visit(self, node: cst.CSTNode) -> bool:
        self.ancestors.append(node)
        return node in self.index.relevant

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> cst.CSTNode:  # type: ignore[override]
        self.ancestors.pop()
        if original_node not in self.index.relevant:
            return updated_node
        if isinstance(updated_node, cst.BaseExpression):
            return self._expression(original_node, updated_node)
        if isinstance(updated_node, (cst.Module, cst.IndentedBlock)):
            return self._block(original_node, updated_node)
        if isinstance(updated_node, cst.SimpleStatementSuite):
            return self._suite(original_node, updated_node)
        if isinstance(getattr(updated_node, "body", None), cst.BaseSuite):
            updated_node = self._compound(original_node, updated_node)
        if self.lost and hasattr(updated_node, "leading_lines"):
            rescued = [comment_line(comment) for comment in self.lost]
            self.lost = []
            return updated_node.with_changes(leading_lines=[*updated_node.leading_lines, *rescued])
        return updated_node

    # -- expressions

    def _expression(self, original: cst.CSTNode, updated: cst.BaseExpression) -> cst.BaseExpression:
        if original not in self.anchored:
            return _one_of_two(original, updated)
        edits = self.arguments.get(original, ())
        if edits:
            assert isinstance(updated, cst.Call)
            updated, lost = edit_arguments(updated, edits, self._expression_of)
            self._rescue(lost)
        self.bare[original] = self.full[original] = updated
        if original not in self.replace:
            return updated
        for edit in self.replace[original]:
            kept = [self.index[hole] for hole in edit.holes.values() if isinstance(hole, Anchor)]
            if edits and original not in kept:
                raise RewriteError(
                    "arguments of a call are edited that is replaced by something else", edit.at.span
                )
            saved = {
                comment for node in (*kept, *itertools.chain(*_outer(original))) for comment in comments(node)
            }
            self.bare[original] = self.full[original]
            made = self._expression_of(edit)
            self.full[original] = as_laid_out(made, updated)
            if self.full[original] is made:
                self._rescue(comment for comment in comments(original) if comment not in saved)
        return self._place(original, self.full[original])

    def _expression_of(self, edit: Replace | SetArgument) -> cst.BaseExpression:
        return self._located(
            edit.at.span, templates.expression, edit.template, edit.holes, self._pieces(edit)
        )

    def _located(self, span: Span, make, *arguments):  # type: ignore[no-untyped-def]
        try:
            return make(*arguments)
        except (RewriteError, cst.CSTValidationError) as error:
            raise RewriteError(str(error), getattr(error, "span", None) or span) from error

    def _pieces(self, edit: Replace | SetArgument | Insert | Enclose) -> dict[str, cst.BaseExpression]:
        """What goes into the holes of an edit."""
        return {
            name: self._piece(edit, hole) for name, hole in edit.holes.items() if isinstance(hole, Anchor)
        }

    def _piece(self, edit: Replace | SetArgument | Insert | Enclose, hole: Anchor) -> cst.BaseExpression:
        node = self.index[hole]
        if not isinstance(node, cst.BaseExpression):
            raise RewriteError("only an expression can go into a hole", hole.span)
        # What an edit takes out of its own node appears nowhere else, so it comes with its replacement. What it
        # copies from elsewhere comes as it was: there a Replace may well put a name for this very copy.
        own = isinstance(edit, (Replace, SetArgument)) and edit.at != hole and _holds(edit.at.span, hole.span)
        forms = self.full if own else self.bare
        if node not in forms:
            self._visit_apart(node, hole.span)
        piece = self._drawn_out(edit, hole, forms[node])
        if (
            isinstance(edit, Replace)
            and edit.at == hole
            and not isinstance(piece, (cst.Tuple, cst.GeneratorExp))
        ):
            return piece.with_changes(lpar=(), rpar=())  # they stay round the whole, if they must
        return _stripped(piece)

    def _drawn_out(
        self, edit: Replace | SetArgument | Insert | Enclose, hole: Anchor, piece: cst.BaseExpression
    ) -> cst.BaseExpression:
        """A piece whose further lines are indented less, as it comes to stand further out."""
        if isinstance(edit, SetArgument):  # its pieces stay in their call
            return piece
        target = edit.first if isinstance(edit, Enclose) else edit.at
        depth = self._indentation(hole.span.line) - self._indentation(target.span.line)
        if depth <= 0 or target.span.line == hole.span.line or spans_lines(piece):
            return piece
        drawn = piece.visit(_DrawOut(depth))
        assert isinstance(drawn, cst.BaseExpression)
        return drawn

    def _indentation(self, line: int) -> int:
        text = self.lines[line - 1]
        return len(text) - len(text.lstrip())

    def _visit_apart(self, node: cst.CSTNode, span: Span) -> None:
        """Edit a node before its turn."""
        if node in self.apart:
            raise RewriteError("pieces of the program are put into each other in a circle", span)
        self.apart.add(node)
        # Its comments are rescued when its turn comes.
        ancestors, lost, rescued = self.ancestors, self.lost, self.rescued
        self.ancestors, self.lost, self.rescued = [], [], set()
        node.visit(self)
        self.ancestors, self.lost, self.rescued = ancestors, lost, rescued
        self.apart.discard(node)

    def _rescue(self, lost: Iterable[cst.Comment]) -> None:
        for comment in lost:
            if comment not in self.rescued:
                self.rescued.add(comment)
                self.lost.append(comment)

    def _place(self, original: cst.CSTNode, new: cst.BaseExpression) -> cst.BaseExpression:
        """An expression in the place of another, in the parentheses that it needs or that must stay."""
        assert isinstance(original, cst.BaseExpression)
        lpar, rpar = _outer(original)
        if lpar and not _is_plain(lpar, rpar):
            return new.with_changes(lpar=[*lpar, *new.lpar], rpar=[*new.rpar, *rpar])
        new = fit(new, self.ancestors, original)
        return parenthesised(new) if self._runs_together(original, new) else new

    def _runs_together(self, original: cst.BaseExpression, new: cst.BaseExpression) -> bool:
        """Whether an expression would make one word with its neighbours, as in ``return(x)``."""
        if not self.ancestors:
            return False
        outer = self.index.positions
        start = outer[original.lpar[0] if original.lpar else original].start
        end = outer[original.rpar[-1] if original.rpar else original].end
        source = code(new)
        before = self.lines[start.line - 1][start.column - 1 : start.column] if start.column else ""
        after = self.lines[end.line - 1][end.column : end.column + 1]
        return (_is_word(before) and _is_word(source[:1])) or (_is_word(after) and _is_word(source[-1:]))

    # -- statements

    def _compound(self, original: cst.CSTNode, updated: cst.CSTNode) -> cst.CSTNode:
        """See to an ``elif`` that becomes ``else``, and to a body that was left empty."""
        if original in self.parameters:
            assert isinstance(updated, cst.FunctionDef)
            edit = self.parameters[original]
            updated = updated.with_changes(params=add_parameter(updated.params, edit.name, edit.default))
        if isinstance(original, cst.If) and original.orelse in self.unwrapped:
            assert isinstance(updated, cst.If) and isinstance(updated.orelse, cst.If)
            last = updated.orelse
            updated = updated.with_changes(orelse=cst.Else(body=last.body, leading_lines=last.leading_lines))
        if isinstance(original, cst.If) and original.orelse in self.dropped:
            updated = updated.with_changes(orelse=None)
        if (
            isinstance(updated, cst.If)
            and isinstance(updated.orelse, cst.Else)
            and not updated.orelse.body.body
        ):
            if comments(updated.orelse):
                updated = updated.with_changes(orelse=_passing(updated.orelse))
            else:
                updated = updated.with_changes(orelse=None)
        body = updated.body  # type: ignore[attr-defined]
        if body.body:
            return updated
        if isinstance(original, cst.Else) and self.ancestors and isinstance(self.ancestors[-1], cst.If):
            return updated  # the if decides
        if isinstance(updated, cst.If) and updated.orelse is None and self._may_go(original, updated):
            self.dropped.add(original)
            return updated
        if isinstance(updated, cst.If) and updated.orelse is None and self._is_idle_elif(original, updated):
            self.dropped.add(original)
        return _passing(updated)

    def _is_idle_elif(self, original: cst.CSTNode, updated: cst.If) -> bool:
        """Whether an ``elif`` with nothing left in it, and no ``else``, may be left out."""
        around = self.ancestors[-1] if self.ancestors else None
        is_elif = isinstance(around, cst.If) and around.orelse is original
        return is_elif and not comments(updated) and _is_harmless(updated.test)

    def _may_go(self, original: cst.CSTNode, updated: cst.If) -> bool:
        """Whether an ``if`` with nothing left in it may be left out."""
        in_block = bool(self.ancestors) and isinstance(self.ancestors[-1], (cst.Module, cst.IndentedBlock))
        return in_block and (original in self.unwrapped or _is_harmless(updated.test))

    def _block(self, original: cst.CSTNode, updated: cst.Module | cst.IndentedBlock) -> cst.CSTNode:
        assert isinstance(original, (cst.Module, cst.IndentedBlock))
        units = [
            unit
            for old, new in zip(original.body, updated.body, strict=True)
            for unit in self._units(old, new, original)
        ]
        headless = not (isinstance(original, cst.Module) and original.header)
        body = self._assembled(units, original, headless)
        footer = body.footer(updated.footer)
        if isinstance(updated, cst.Module) and not (body.nodes or footer or updated.header):
            updated = updated.with_changes(has_trailing_newline=False)
        return updated.with_changes(body=body.nodes, footer=footer)

    def _suite(self, original: cst.CSTNode, updated: cst.SimpleStatementSuite) -> cst.CSTNode:
        """The body of ``if x: y``: it stays on its line as long as it can."""
        assert isinstance(original, cst.SimpleStatementSuite)
        if (
            not any(it in self.before or it in self.after for it in original.body)
            and original not in self.enclose
        ):
            kept = self._kept(original.body, updated.body)
            return updated if kept is None else updated.with_changes(body=kept)
        line = cst.SimpleStatementLine(body=updated.body, trailing_whitespace=updated.trailing_whitespace)
        units = self._units(cst.SimpleStatementLine(body=original.body), line, original)
        body = self._assembled(units, original)
        return cst.IndentedBlock(body=body.nodes, footer=body.footer(()))

    def _assembled(self, units: Sequence[Unit], block: cst.CSTNode, headless: bool = True) -> Body:
        for unit in units:
            unit.before = [
                node
                for key in unit.keys
                for edit in self.before.get(key, ())
                for node in self._inserted(edit)
            ]
            unit.after = [
                node for key in unit.keys for edit in self.after.get(key, ()) for node in self._inserted(edit)
            ]
        return assemble(
            units, [self._enclosure(edit, units) for edit in self.enclose.get(block, ())], Body(headless)
        )

    def _inserted(self, edit: Insert) -> list[cst.BaseStatement]:
        arguments = (edit.template, edit.holes, self._pieces(edit), self.newline)
        return list(self._located(edit.at.span, templates.statements, *arguments))

    def _enclosure(self, edit: Enclose, units: Sequence[Unit]) -> Enclosure:
        arguments = (edit.header, edit.holes, self._pieces(edit), self.newline)
        header = self._located(edit.first.span, templates.header, *arguments)
        first, last = self.index[edit.first], self.index[edit.last]
        low = next(at for at, unit in enumerate(units) if first in unit.keys)
        high = next(at for at, unit in enumerate(units) if last in unit.keys)
        if low > high:
            raise RewriteError("the last statement to be enclosed stands before the first", edit.first.span)
        return Enclosure(low, high, header, edit.first.span)

    def _units(self, original: cst.CSTNode, updated: cst.BaseStatement, block: cst.CSTNode) -> list[Unit]:
        units = self._plain_units(original, updated, block)
        there = {line.comment.value for line in units[0].leading if line.comment}
        for mark in self.marks.get(original, ()):
            if mark.comment not in there:
                there.add(mark.comment)
                units[0].leading.append(comment_line(cst.Comment(mark.comment)))
        return units

    def _plain_units(
        self, original: cst.CSTNode, updated: cst.BaseStatement, block: cst.CSTNode
    ) -> list[Unit]:
        if isinstance(original, cst.SimpleStatementLine):
            assert isinstance(updated, cst.SimpleStatementLine)
            return self._line_units(original, updated, block)
        leading = leading_lines(updated)
        node = with_leading(updated, ())
        if original in self.removed:
            return [Unit((original,), [], leading)]
        if original in self.dropped:
            assert isinstance(updated, cst.If)
            inside = comments(updated.body) if isinstance(updated.body, cst.IndentedBlock) else []
            return [Unit((original,), [], leading, [comment_line(it) for it in inside])]
        if original in self.unwrapped:
            assert isinstance(updated, cst.If)
            return [_unwrapped(original, updated, leading)]
        return [Unit((original,), [node], leading)]

    def _line_units(
        self, original: cst.SimpleStatementLine, updated: cst.SimpleStatementLine, block: cst.CSTNode
    ) -> list[Unit]:
        """The statements of a line: one unit, or several where something must come between them."""
        parts = original.body
        firsts = {self.index[edit.first] for edit in self.enclose.get(block, ())}
        lasts = {self.index[edit.last] for edit in self.enclose.get(block, ())}
        cuts = [0]
        for at in range(1, len(parts)):
            above, below = parts[at - 1], parts[at]
            if above in self.after or below in self.before or above in lasts or below in firsts:
                cuts.append(at)
        units = []
        for start, end in zip(cuts, [*cuts[1:], len(parts)], strict=True):
            keys = tuple(parts[start:end])
            kept = self._kept(keys, updated.body[start:end])
            line = with_leading(updated, ())
            if kept is not None or len(cuts) > 1:
                pieces = list(updated.body[start:end]) if kept is None else kept
                if end < len(parts) and pieces:
                    pieces[-1] = pieces[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
                line = line.with_changes(body=pieces)
                if end < len(parts):
                    line = line.with_changes(trailing_whitespace=cst.TrailingWhitespace())
            units.append(
                Unit(keys, [line] if line.body else [], leading_lines(updated) if start == 0 else [])
            )
        return units

    def _kept(
        self, originals: Sequence[cst.CSTNode], updated: Sequence[cst.BaseSmallStatement]
    ) -> list[cst.BaseSmallStatement] | None:
        """The statements of a line that are not removed; None if none is."""
        if not any(it in self.removed for it in originals):
            return None
        kept = [new for old, new in zip(originals, updated, strict=True) if old not in self.removed]
        if kept:
            kept[-1] = kept[-1].with_changes(semicolon=updated[-1].semicolon)
        return kept


def _one_of_two(original: cst.CSTNode, updated: cst.BaseExpression) -> cst.BaseExpression:
    """What a conditional expression is whose two values have become one: ``model.module if several else model``."""
    if not isinstance(original, cst.IfExp) or not isinstance(updated, cst.IfExp):
        return updated
    if code(updated.body) != code(updated.orelse) or code(original.body) == code(original.orelse):
        return updated
    asked = (code(it.func) for it in _calls(original.test))
    if comments(original) != comments(original.body) or not all(it.endswith(ONLY_ASKING) for it in asked):
        return updated
    if isinstance(updated.body, (cst.Call, cst.Name, cst.Attribute, cst.Subscript)):
        return updated.body
    return updated.body.with_changes(
        lpar=(*updated.lpar, *updated.body.lpar), rpar=(*updated.body.rpar, *updated.rpar)
    )


def _calls(node: cst.CSTNode) -> list[cst.Call]:
    """All calls in a node."""
    inside = [call for child in node.children for call in _calls(child)]
    return [node, *inside] if isinstance(node, cst.Call) else inside


class _DrawOut(cst.CSTTransformer):
    """Takes some columns from the start of every further line of an expression."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.depth = depth

    def leave_ParenthesizedWhitespace(
        self, original_node: cst.ParenthesizedWhitespace, updated_node: cst.ParenthesizedWhitespace
    ) -> cst.ParenthesizedWhitespace:
        return updated_node.with_changes(
            last_line=self._less(updated_node.last_line),
            empty_lines=[
                line.with_changes(whitespace=self._less(line.whitespace)) for line in updated_node.empty_lines
            ],
        )

    def _less(self, space: cst.SimpleWhitespace) -> cst.SimpleWhitespace:
        return space.with_changes(value=space.value[self.depth :])


def _unwrapped(original: cst.CSTNode, updated: cst.If, leading: Lines) -> Unit:
    body = updated.body
    if isinstance(body, cst.IndentedBlock):
        comment = body.header.comment
        above = [*leading, *([comment_line(comment)] if comment else [])]
        nodes = list(body.body)
        return Unit(
            (original,),
            [with_leading(nodes[0], ()), *nodes[1:]],
            [*above, *leading_lines(nodes[0])],
            [line for line in body.footer if line.comment],
        )
    assert isinstance(body, cst.SimpleStatementSuite)
    line = cst.SimpleStatementLine(body=body.body, trailing_whitespace=body.trailing_whitespace)
    return Unit((original,), [line], leading)


def _passing(node: cst.CSTNode) -> cst.CSTNode:
    """A compound statement whose body was left empty, with a body."""
    body = node.body  # type: ignore[attr-defined]
    if isinstance(body, cst.SimpleStatementSuite):
        return node.with_changes(body=body.with_changes(body=[cst.Pass()]))
    line = cst.SimpleStatementLine([cst.Pass()], leading_lines=list(body.footer))
    return node.with_changes(body=body.with_changes(body=[line], footer=()))


def _is_harmless(test: cst.BaseExpression) -> bool:
    """Whether a condition may be left out: it only asks."""
    if isinstance(test, (cst.NamedExpr, cst.Await, cst.Yield)):
        return False
    if isinstance(test, cst.Call):
        name = test.func.attr if isinstance(test.func, cst.Attribute) else test.func
        if not (isinstance(name, cst.Name) and name.value in _QUESTIONS):
            return False
    return all(_is_harmless(child) for child in test.children)  # type: ignore[arg-type]


def _outer(node: cst.CSTNode) -> tuple[list[cst.LeftParen], list[cst.RightParen]]:
    """The parentheses round a node. The innermost pair of a tuple or generator is part of it."""
    assert isinstance(node, cst.BaseExpression)
    if isinstance(node, (cst.Tuple, cst.GeneratorExp)):
        return list(node.lpar[:-1]), list(node.rpar[1:])
    return list(node.lpar), list(node.rpar)


def _stripped(node: cst.BaseExpression) -> cst.BaseExpression:
    """An expression without its own parentheses; those that hold line ends or comments stay."""
    if (
        node.lpar
        and _is_plain(node.lpar, node.rpar)
        and not (isinstance(node, cst.Tuple) and not node.elements)
    ):
        return node.with_changes(lpar=(), rpar=())
    return node


def _is_plain(lpar: Sequence[cst.LeftParen], rpar: Sequence[cst.RightParen]) -> bool:
    spaces = [*(it.whitespace_after for it in lpar), *(it.whitespace_before for it in rpar)]
    return all(isinstance(space, cst.SimpleWhitespace) and "\\" not in space.value for space in spaces)


def _is_word(character: str) -> bool:
    return character != "" and (character.isalnum() or character in "_'\"")


def _holds(outer: Span, inner: Span) -> bool:
    starts = (outer.line, outer.column) <= (inner.line, inner.column)
    return starts and (inner.end_line, inner.end_column) <= (outer.end_line, outer.end_column)


def _stands_round(edit: Replace) -> bool:
    """Whether what an edit replaces stands in what takes its place: ``ddp.sum(x)`` for ``x``."""
    return edit.at in edit.holes.values()
