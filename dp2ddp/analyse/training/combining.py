"""Sums over the samples that meet other numbers of the batch: ``(error * mask).sum() / mask.sum()``.

What such an expression comes to in parts is not what it comes to for the whole batch. Each of its numbers is, though,
once it is combined: a sum is the parts' sum, a mean their mean, and whatever is computed of these is the whole
batch's, with its gradients. So the numbers are combined where they meet, in the function that trains; and what is
selected of the samples is gathered before its mean is taken, since each part selects another number of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.analyse.api import operations
from dp2ddp.analyse.api.containers import LIST_CHANGES
from dp2ddp.analyse.api.numbers import COMPUTES_NUMBER
from dp2ddp.analyse.api.operations import Arguments, Does, Operation
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.definitions import behind, given_to
from dp2ddp.analyse.dataflow.kinds import BY_SAMPLE, PLAIN, Kind, Unclear, Value
from dp2ddp.analyse.dataflow.samples.frames import OPEN, Frame
from dp2ddp.analyse.processes import alike
from dp2ddp.analyse.program.calls import handed
from dp2ddp.analyse.program.values import Coll
from dp2ddp.analyse.training.gathering import ADDITIVE, Gathering, compared

COMBINED = (*ADDITIVE, Kind.MEAN)
"""The numbers of a part that come to that of the whole batch: what they are combined to is a number of all ranks'."""


class Combining(Gathering):
    """Follows the values of one loss, whose sums and counts are combined where they meet each other."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self.combined: dict[int, tuple[ast.expr, Kind]] = {}
        """The numbers of a part that must become those of the whole batch, and what they are."""
        self._numbers: set[int] = set()
        """Expressions that are one number of the whole batch: rows times such a number are rows."""

    def holds(self) -> bool:
        """Whether all that is combined is what it was found to be, now that every loop has been followed to its end."""
        return all(self.of(part) is kind for part, kind in self.combined.values())

    def total(self, loss: ast.expr) -> bool:
        """Combine a loss that is a sum over the samples as it stands; whether that may be done."""
        made = self.program.definitions(loss) if isinstance(loss, ast.Name) else ()
        held = [it for one in made for it in behind(self.program, one)]
        alone = len(made) == len(held) == 1 and not isinstance(made[0], ast.arg)
        alone = alone and isinstance(self.program.statement(made[0]), ast.Assign)
        node = held[0] if alone else loss
        if self.of(node) is not Kind.TOTAL or not self._may_be_combined([node], node, OPEN):
            return False
        self._combine(node, Kind.TOTAL)
        return True

    def compute(self, node: ast.AST, frame: Frame) -> Value:
        found = super().compute(node, frame)
        if not isinstance(found, Unclear) or not isinstance(node, ast.BinOp | ast.Call):
            return found
        met = self._met(node, frame)
        return found if met is None else met

    def _met(self, node: ast.BinOp | ast.Call, frame: Frame) -> Value | None:
        """What comes of numbers that are combined before they meet; None where they can't be."""
        if isinstance(node, ast.Call) and (rows := self._averaged(node)) is not None:
            if self.value(rows, frame) is Kind.PICKED and self._may_be_gathered(rows, node, frame):
                self.gathered[id(node)] = node, [rows], "this is a mean over the selected elements"
                self.asked |= {id(part): part for part in self._asked(node)}
                return Kind.WHOLE
        parts = [node.left, node.right] if isinstance(node, ast.BinOp) else self._computed_of(node)
        values = [self.value(part, frame) for part in parts]
        known = (*PLAIN, *COMBINED, Kind.WHOLE)
        rows_ = [it for it in values if it in (*BY_SAMPLE, Kind.PICKED)]
        if isinstance(node, ast.BinOp) and len(rows_) == 1:
            return self._scaled_rows(node, values, frame)
        if not parts or any(value not in known for value in values):
            return None
        pairs = list(zip(parts, values, strict=True))
        if isinstance(node, ast.BinOp):
            kept = [Kind.WHOLE if it in ADDITIVE else it for it in values]
            found = kinds.computed(node.op, *kept, node)
            if not isinstance(found, Unclear):
                pairs = [(part, it) for part, it in pairs if it is not Kind.MEAN]
                return found if self._combine_all(pairs, node, frame) else None
        if not self._combine_all(pairs, node, frame):
            return None
        if all(self._is_number(part) for part, it in pairs if it not in PLAIN):
            self._numbers.add(id(node))
        return Kind.WHOLE

    def _scaled_rows(self, node: ast.BinOp, values: list[Value], frame: Frame) -> Value | None:
        """Rows times or over a number of the batch, where that is the whole batch's."""
        (part, value), rows = (
            ((node.left, values[0]), values[1])
            if values[1] in (*BY_SAMPLE, Kind.PICKED)
            else ((node.right, values[1]), values[0])
        )
        fine = isinstance(node.op, ast.Mult | ast.Div | ast.Add | ast.Sub)
        if not fine or not (value in COMBINED or (value is Kind.WHOLE and self._is_number(part))):
            return None
        done = self._combine_all([(part, value)], node, frame)
        return (Kind.ROWS if rows in kinds.DEALT else rows) if done else None

    def _combine_all(self, pairs: list[tuple[ast.expr, Value]], node: ast.expr, frame: Frame) -> bool:
        """Combine what is not the whole batch's of some numbers that meet in one place."""
        left = [(part, value) for part, value in pairs if value in COMBINED]
        if not left:
            return True
        if not self._may_be_combined([part for part, _ in pairs], node, frame):
            return False
        for part, value in left:
            self._combine(part, value)  # type: ignore[arg-type]
        return True

    def _combine(self, part: ast.expr, value: Kind) -> None:
        self.combined[id(part)] = part, value
        self._numbers.add(id(part))
        self.asked |= {id(it): it for it in self._asked(part)}

    def _may_be_combined(self, parts: list[ast.expr], node: ast.expr, frame: Frame) -> bool:
        """Whether numbers are the same kind in all calls of their function, and every process comes to them."""
        if not self._is_at_home(node) or any(id(it) in self._feeding for it in (node, *parts)):
            return False
        self.refuel()
        return (
            all(self.value(it, OPEN) == self.value(it, frame) for it in parts)
            and self._is_alike(node, frame)
            and not any(self._has_dimensions(it) for it in parts)
        )

    def _may_be_gathered(self, rows: ast.expr, node: ast.Call, frame: Frame) -> bool:
        return (
            self._is_at_home(node)
            and id(node) not in self._feeding
            and self.value(rows, OPEN) is Kind.PICKED
            and self._is_alike(node, frame)
            and not self.is_written_from(rows, node)
        )

    def _averaged(self, node: ast.Call) -> ast.expr | None:
        """What a call takes the mean of all numbers of."""
        if node.keywords:
            return None
        match node.func, node.args:
            case ast.Attribute(attr="mean", value=rows), []:
                return rows
            case _, [rows]:
                call = self.program.call(node)
                return rows if call is not None and call.names == {"torch.mean"} else None
        return None

    def _computed_of(self, node: ast.Call) -> list[ast.expr]:
        """What a function of numbers computes with: ``max(1, count)``, ``count.clamp(min=1)``; nothing for others."""
        call = self.program.call(node)
        if call is None or self.program.entered(node) or alike.draws(call):
            return []
        given = handed(node)
        if any(isinstance(it, ast.Starred) for it in given):
            return []
        if call.names:
            known = all(map(_is_of_numbers, call.names))
            return given if known else []
        if not isinstance(node.func, ast.Attribute):
            return []
        row = operations.method(node.func.attr)
        return [node.func.value, *given] if row is not None and _is_elementwise(row) else []

    def _is_number(self, node: ast.expr) -> bool:
        """Whether an expression is one number, that of the whole batch."""
        if id(node) in self._numbers:
            return True
        made = self.program.definitions(node) if isinstance(node, ast.Name) else ()
        statements = [None if isinstance(it, ast.arg) else self.program.statement(it) for it in made]
        return bool(statements) and all(
            isinstance(it, ast.Assign)
            and isinstance(it.targets[0], ast.Name)
            and id(it.value) in self._numbers
            for it in statements
        )

    def _has_dimensions(self, node: ast.expr) -> bool:
        """Whether a sum may be one along a dimension only: the parts' numbers are combined, not their rows."""
        waiting, seen = [node], set[int]()
        while waiting:
            part = waiting.pop()
            if id(part) in seen:
                continue
            seen.add(id(part))
            for inner in ast.walk(part):
                if isinstance(inner, ast.Name):
                    waiting += given_to(self.program, inner)
                elif isinstance(inner, ast.Call) and any(it.arg in ("dim", "axis") for it in inner.keywords):
                    if self.value(inner, OPEN) is Kind.TOTAL:
                        return True
                elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
                    if inner.args and self.value(inner.func.value, OPEN) is Kind.PICKED:
                        if self.value(inner, OPEN) is Kind.TOTAL:
                            return True
        return False

    # Where every process comes to

    def _is_alike(self, node: ast.expr, frame: Frame) -> bool:  # type: ignore[override]
        return super()._is_alike(node, frame) and not any(self._parts_ways(node, frame))  # type: ignore[arg-type]

    def _parts_ways(self, node: ast.AST, frame: Frame) -> Iterator[bool]:
        """Whether processes may run a place another number of times: in a loop over samples, behind a comparison."""
        inside: ast.AST = node
        for around in self.program.ancestors(node):
            match around:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    return
                case ast.For() if id(around) not in self._rounds and inside is not around.iter:
                    yield not self._is_round_alike(around.iter, frame)
                case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp() if not (
                    self.program.is_inside(node, around.generators[0].iter)  # which is asked for once
                ):
                    for part in around.generators:
                        yield bool(part.ifs) or not self._is_round_alike(part.iter, frame)
                case ast.comprehension(iter=source) if inside is not source:
                    yield True
                case ast.Compare(comparators=[_, *_] as others) if inside in others[1:]:
                    yield True
            if id(around) in self._rounds:
                return
            inside = around

    def _is_settled(self, test: ast.expr, frame: Frame) -> bool:
        """The same, where means are combined for the condition, too."""
        if isinstance(test, ast.BoolOp):
            return all(self._is_settled(it, frame) for it in test.values)
        asked = self.compared_in(test, frame)
        return super()._is_settled(test, frame) or all(id(it) in self.combined for it in asked)

    def _is_round_alike(self, source: ast.expr, frame: Frame) -> bool:
        drawn = kinds.tensor(self.drawn_in(source, frame), source)
        return (drawn is not Kind.EACH and not isinstance(drawn, Unclear)) or self._is_written_out(source)

    def _is_written_out(self, source: ast.expr) -> bool:
        """Whether a loop goes through a list that is written out, of losses for instance, and that nothing changes."""
        values = self.program.values(source)
        shown = [self.program.node(it.site) for it in values if isinstance(it, Coll)]
        if len(shown) < len(values) or not all(
            isinstance(it, ast.List | ast.Tuple) and it.elts for it in shown
        ):
            return False
        changed = (
            call.node.func.value
            for call in self.program.calls
            if isinstance(call.node.func, ast.Attribute) and call.node.func.attr in LIST_CHANGES
        )
        return bool(values) and not any(self.program.values(it) & values for it in changed)

    def under(self, tests: list[ast.expr], value: Value, frame: Frame) -> Value:
        """A value by conditions, where those that ask for a sum over the batch ask for the whole batch's."""
        left = [it for it in tests if not (self.is_data(it, frame) and self._asks_all(it, frame))]
        return super().under(left, value, frame)

    def _asks_all(self, test: ast.expr, frame: Frame) -> bool:
        """Have a condition ask for sums and means over the whole batch; whether it may."""
        if isinstance(test, ast.BoolOp):
            return all(not self.is_data(it, frame) or self._asks_all(it, frame) for it in test.values)
        parts = [it for it in compared(test) if self.value(it, frame) not in (*PLAIN, Kind.WHOLE)]
        if any(self.value(it, frame) not in COMBINED for it in parts) or self.is_drawn(test):
            return False
        if not self._may_be_combined(parts, test, frame):
            return False
        sums = [it for it in parts if self.value(it, frame) in ADDITIVE]
        self.asked |= {id(it): it for it in sums} | {id(it): it for it in self._asked(test)}
        for it in parts:
            if it not in sums:
                self._combine(it, Kind.MEAN)
        return True


def _is_of_numbers(name: str) -> bool:
    """Whether a function outside of the project computes a number of the numbers that it is given, and nothing else."""
    row = operations.operation(name)
    return name in COMPUTES_NUMBER or name.startswith("math.") or (row is not None and _is_elementwise(row))


def _is_elementwise(row: Operation) -> bool:
    return row.does(Arguments()) is Does.NUMBERS
