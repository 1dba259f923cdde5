"""Values followed from the batch to the loss: what each is to the samples of the batch."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from dp2ddp.analyse.context import Context
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.dimensions import Dimensions
from dp2ddp.analyse.dataflow.keys import is_known, key_of
from dp2ddp.analyse.dataflow.kinds import Every, Held, Kind, Unclear, Value
from dp2ddp.analyse.dataflow.samples import columns
from dp2ddp.analyse.dataflow.samples.calls import result
from dp2ddp.analyse.dataflow.samples.carried import are_of_one_batch, is_carried
from dp2ddp.analyse.dataflow.samples.conditions import answered, asks_data, under
from dp2ddp.analyse.dataflow.samples.frames import OPEN, Frame
from dp2ddp.analyse.dataflow.samples.indices import subscript
from dp2ddp.analyse.dataflow.samples.joined import is_of_joined, joined, whole
from dp2ddp.analyse.dataflow.samples.layers import layers_applied
from dp2ddp.analyse.dataflow.samples.loops import comprehended, drawn
from dp2ddp.analyse.dataflow.samples.names import before, of_attribute, of_name
from dp2ddp.analyse.dataflow.samples.pairs import of_pairs
from dp2ddp.analyse.dataflow.samples.parameters import weighs
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.link import Program

DEPTH = 120
LEVELS = 12
FUEL = 4000
BUDGET = 5 * FUEL
"""For one question with all that are asked to answer it."""


class Samples:
    """Follows the values of one program."""

    only: Path | None = None
    """The one program whose calls are asked for what they give a function, where it may be called by several."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.program = context.program
        self.followed: set[int] = set()
        """Identities of the expressions that were asked for, with all that they are made of."""
        self.weighs_parameters = False
        """Whether what is followed meets parameters outside of the models' forwards, but for being added to them."""
        self.spans_batches = False
        """Whether it meets means over parts of several batches."""
        self._known: dict[tuple[int, Frame], Value] = {}
        self._running: dict[tuple[int, Frame], Value] = {}
        self._frames: dict[object, Frame] = {}
        self._provisional: dict[tuple[int, Frame], tuple[Value, dict[tuple[int, Frame], Value]]] = {}
        """What was found with values that are still being worked out, and which: it holds as long as those do."""
        self._assumed: set[tuple[int, Frame]] = set()
        self.taken = context.taken
        """The places that are not known and what they are taken to be."""
        self.surfaced: dict[int, tuple[ast.AST, Frame]] = {}
        """The expressions that were the first not to be known because of a place, by the place."""
        self._fuel = FUEL
        self._budget = BUDGET

    def of(self, node: ast.AST, frame: Frame = OPEN) -> Value:
        """What an expression is to the samples of the batch, in one call of the function that it stands in."""
        self.refuel()
        return self.value(node, frame)

    def drawn(self, source: ast.expr) -> Value:
        """What a loop over ``source`` gets in each round."""
        self.refuel()
        return self.drawn_in(source, OPEN)

    def refuel(self) -> None:
        """Begin another question; those that are asked to answer it have what is left of its budget."""
        if not self._running:
            self._budget = BUDGET
        self._fuel = min(FUEL, self._budget)

    def value(self, node: ast.AST, frame: Frame) -> Value:
        """What an expression is, where that is asked to answer another question."""
        key = (id(node), frame)
        if key in self._known:
            return self._known[key]
        if len(self._running) > DEPTH or self._fuel < 0:
            return Unclear(node)
        self._fuel -= 1
        self._budget -= 1
        self.followed.add(id(node))
        if key in self._running:
            self._assumed.add(key)
            return self._running[key]
        if key in self._provisional:
            found, behind = self._provisional[key]
            if (still_open := self._still_open(behind)) is not None:
                self._assumed |= still_open
                if not still_open:
                    self._known[key] = found
                return found
            del self._provisional[key]
        # A value that is made from itself: what is assumed of it grows until it holds.
        value: Value = Kind.UNKNOWN
        others = self._assumed
        while True:
            self._running[key] = value
            self._assumed = set()
            found = kinds.join([value, self.compute(node, frame)], node)
            self.weighs_parameters |= weighs(self, node, found, frame)
            self.spans_batches |= is_carried(self, node, found)
            found = Unclear(node) if kinds.is_deep(found, LEVELS) else found
            found = self.take(found, node, frame)
            del self._running[key]
            if found == value or key not in self._assumed:
                break
            self._fuel -= 1
            value = found if self._fuel > 0 else Unclear(node)
        still_open = self._assumed - {key}
        self._assumed = others | still_open
        if not still_open:
            self._known[key] = found
        elif all(it in self._running for it in still_open):
            self._provisional[key] = found, {it: self._running[it] for it in still_open}
        return found

    def _still_open(self, behind: dict[tuple[int, Frame], Value]) -> set[tuple[int, Frame]] | None:
        """Which of some values are still being worked out; None where one has come to be another one since."""
        left: set[tuple[int, Frame]] = set()
        for key, value in behind.items():
            if key in self._running:
                if self._running[key] != value:
                    return None
                left.add(key)
            elif key not in self._known or self._known[key] != value:
                return None
        return left

    def take(self, value: Value, node: ast.AST, frame: Frame) -> Value:
        """A value, or what it is taken to be where it is not known."""
        rounds, key = self.context.joined, id(node)
        if key in rounds.after and not isinstance(value, Kind):
            if key not in rounds.apart or is_of_joined(self, node, frame):
                return whole(value)
        if not isinstance(value, Unclear):
            return value
        self.surfaced.setdefault(id(value.place), (node, frame))
        return self.taken.get(id(node), self.taken.get(id(value.place), value))

    def values(self, nodes: Iterable[ast.AST], frame: Frame) -> list[Value]:
        return [self.value(node, frame) for node in nodes]

    def compute(self, node: ast.AST, frame: Frame) -> Value:
        """What an expression is, by what it is made of."""
        match node:
            case ast.Constant():
                return Kind.ZERO if node.value in (0, 0.0) and node.value is not False else Kind.SAME
            case ast.Call() if hasattr(node, "whole_source"):
                return Kind.SAME  # whole batches, on all ranks
            case ast.Call() if id(node) in self.context.evaluated_apart:
                return Kind.SAME  # what each rank computes of the same
            case ast.Call() if hasattr(node, "joins"):
                return joined(self, node, frame)
            case ast.Call() if hasattr(node, "joins_count"):
                value = self.value(node.args[0], frame)
                return Kind.WHOLE if value is Kind.COUNT else kinds.blame([value], node)
            case ast.Name():
                named = of_name(self, node, frame)
                return Unclear(node) if named is None else named
            case ast.Attribute():
                return self.attribute(node, frame)
            case ast.Subscript():
                return subscript(self, node, frame)
            case ast.BinOp():
                left, right = self.values([node.left, node.right], frame)
                if columns.are_among(left, right):
                    return columns.computed(self, node, left, right)
                return of_pairs(self.program, node, kinds.computed(node.op, left, right, node), left, right)
            case ast.AugAssign():
                right = self.value(node.value, frame)
                return kinds.computed(node.op, before(self, node, frame), right, node)
            case ast.UnaryOp():
                return self.value(node.operand, frame)
            case ast.NamedExpr():
                return self.value(node.value, frame)
            case ast.Compare():
                left, *others = sides = self.values([node.left, *node.comparators], frame)
                if set(sides) in ({Kind.COUNT}, {Kind.SHAPE}) and are_of_one_batch(self, [node]):
                    return Kind.SAME  # a part has as many of the one as of the other where the whole has
                return of_pairs(self.program, node, kinds.elementwise([left, *others], node), left, others[0])
            case ast.BoolOp():
                return kinds.elementwise(self.values(node.values, frame), node)
            case ast.IfExp():
                if (answer := answered(self.program, node.test, frame)) is not None:
                    return self.value(node.body if answer else node.orelse, frame)
                return self.under(
                    [node.test], kinds.join(self.values([node.body, node.orelse], frame), node), frame
                )
            case ast.Tuple() | ast.List():
                if any(isinstance(it, ast.Starred) for it in node.elts):
                    return Every(kinds.join(self.values(node.elts, frame), node))
                return Held(tuple(enumerate(self.values(node.elts, frame))))
            case ast.Starred():
                return kinds.element(self.value(node.value, frame), node)
            case ast.Dict():
                return self._dict(node, frame)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                return comprehended(self, node, node.elt, frame)
            case ast.DictComp():
                return comprehended(self, node, node.value, frame)
            case ast.Call():
                return self.call(node, frame)
            case ast.JoinedStr():
                shown = [it.value for it in node.values if isinstance(it, ast.FormattedValue)]
                return kinds.same_or_unclear(self.values(shown, frame), node)
            case ast.Lambda() | ast.Slice():
                return Kind.SAME
        return Unclear(node)

    def _dict(self, node: ast.Dict, frame: Frame) -> Value:
        values = self.values(node.values, frame)
        known = [_key(self.program, it) for it in node.keys]
        if None not in known:
            return Held(tuple((key[0], value) for key, value in zip(known, values, strict=True)))  # type: ignore[index]
        return Every(kinds.join(values, node))

    def frame(self, key: object, frame: Frame) -> Frame:
        """The one frame of all calls that give a function the same."""
        return self._frames.setdefault(key, frame)

    @cached_property
    def dimensions(self) -> Dimensions:
        return Dimensions(self.context)

    # What other followers answer otherwise

    def call(self, node: ast.Call, frame: Frame) -> Value:
        """What a call gives."""
        return result(self, node, frame)

    def forward(self, call: Call, frame: Frame) -> Value:
        """A wrapped model."""
        return Kind.OUTPUT

    def layer(self, call: Call, frame: Frame) -> Value:
        """Layers that are not wrapped."""
        return layers_applied(self, call, frame)

    def drawn_in(self, source: ast.expr, frame: Frame) -> Value:
        """What a loop over ``source`` gets in each round, in one call of the function that it stands in."""
        return drawn(self, source, frame)

    def attribute(self, node: ast.Attribute, frame: Frame) -> Value:
        """What an attribute of something is."""
        return of_attribute(self, node, frame)

    def under(self, tests: list[ast.expr], value: Value, frame: Frame) -> Value:
        """What a value is under conditions that every process must answer alike."""
        return under(self, tests, value, frame)

    def is_data(self, test: ast.AST, frame: Frame) -> bool:
        """Whether a condition asks for numbers of the batch, which differ between its parts."""
        return asks_data(self, test, frame)


def _key(program: Program, node: ast.expr | None) -> tuple[object] | None:
    """A key of a dict, if all of it is known."""
    if isinstance(node, ast.Constant):
        return (node.value,)
    key = key_of(program, node) if node is not None else None
    return (key,) if is_known(key) else None
