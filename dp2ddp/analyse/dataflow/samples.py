"""Values followed from the batch to the loss: what each is to the samples of the batch."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dp2ddp.analyse.api import operations
from dp2ddp.analyse.api.containers import DICT_CONTENTS, LIST_ADDS, ONE_ELEMENT, SEQUENCES
from dp2ddp.analyse.api.devices import MOVES
from dp2ddp.analyse.api.inspection import ASKS_TYPE
from dp2ddp.analyse.api.iteration import HANDS_OUT, KEEPS_WHOLE, RANGES
from dp2ddp.analyse.api.layers import (
    CONTAINER_ADDS,
    HANDS_OUT_PARAMETERS,
    INITIALISED,
    LAYER_PARAMETERS,
    MODULE_HOOKS,
    PARAMETERS,
    SCALES_LOSS,
    SEQUENTIAL,
)
from dp2ddp.analyse.api.naming import LOADER
from dp2ddp.analyse.api.numbers import HANDS_TENSOR_ON, OF_ONE, OF_SEVERAL
from dp2ddp.analyse.api.operations import Arguments, Does, Operation, written
from dp2ddp.analyse.api.options import OPTIONS
from dp2ddp.analyse.api.purity import COMPUTES_OR_COPIES, NO_TENSORS_OF_OTHERS
from dp2ddp.analyse.api.tensors import (
    BY_SIZES,
    COPIES_TO_ARRAY,
    DESCRIBES,
    DIMENSION_ARGUMENTS,
    FILLS_BY_INDEX,
    HANDS_ON,
    JOINS_BY_NAME,
    KEEPS_MASKS,
    KEEPS_PLACES,
    LEAVES_TORCH,
    MAKES_MASKS,
    NUMBER_ARGUMENTS,
    PAIRS_ROWS,
    SHAPES_LIKE,
    SIZE_ARGUMENTS,
    SIZE_PLACES,
    SPREADS,
    TAKES_DIMENSIONS,
    TENSOR_ARGUMENTS,
    TENSOR_HOMES,
)
from dp2ddp.analyse.context import Context, once
from dp2ddp.analyse.dataflow import kinds, losses
from dp2ddp.analyse.dataflow.dimensions import Dimensions
from dp2ddp.analyse.dataflow.kinds import AVERAGED, BY_SAMPLE, DEALT, PLAIN, Every, Held, Kind, Unclear, Value
from dp2ddp.analyse.dataflow.looks import Looks, writes
from dp2ddp.analyse.dataflow.rounds import Rounds, is_of_samples
from dp2ddp.analyse.dataflow.tensors import is_tensor
from dp2ddp.analyse.processes.conditions import assigned
from dp2ddp.analyse.program import signature
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.signature import bind, is_spread
from dp2ddp.analyse.program.values import Bound, Cls, Const, Ext, Func, Inst, Made, Mod, Values, full_name
from dp2ddp.facts import Problem

OF_SIZES = (Kind.COUNT, Kind.SHAPE)
GIVEN = "something of the batch"
"""What stands for an argument that is no literal, and not None."""
DEPTH = 120
LEVELS = 12
CALLS = 8
NAMES = 8
FUEL = 4000
# And for one question with all that are asked to answer it.
BUDGET = 5 * FUEL


@dataclass(eq=False)
class Frame:
    """What the parameters of a function are in one call of it, and those that are given a literal, or ``GIVEN``."""

    given: dict[int, Value] = field(default_factory=dict)
    literals: dict[int, object] = field(default_factory=dict)
    depth: int = 0
    training: bool | None = None
    """What ``self.training`` is, in a module's forward."""
    called: dict[int, Values] = field(default_factory=dict)
    """What parameters are that are called, or handed on to be: one caller's function is none of the other's."""


@once
def _looks(context: Context) -> Looks:
    return Looks(context.program)


OPEN = Frame()
"""Where the calls of a function are not told apart: a parameter is what any call gives it."""


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
        self._known: dict[tuple[int, Frame], Value] = {}
        self._running: dict[tuple[int, Frame], Value] = {}
        self._stored: dict[int, dict[str, list[ast.expr]]] = {}
        self._frames: dict[object, Frame] = {}
        self._provisional: dict[tuple[int, Frame], tuple[Value, dict[tuple[int, Frame], Value]]] = {}
        """What was found with values that are still being worked out, and which: it holds as long as those do."""
        self._assumed: set[tuple[int, Frame]] = set()
        self._collecting: set[tuple[int, str]] = set()
        self._handing: dict[int, frozenset[str]] = {}
        self._applied: set[int] = set()
        self.taken = context.taken
        """The places that are not known and what they are taken to be."""
        self.surfaced: dict[int, tuple[ast.AST, Frame]] = {}
        """The expressions that were the first not to be known because of a place, by the place."""
        self._fuel = FUEL
        self._budget = BUDGET

    def of(self, node: ast.AST, frame: Frame = OPEN) -> Value:
        """What an expression is to the samples of the batch."""
        self._refuel()
        return self._value(node, frame)

    def value_in(self, node: ast.AST, frame: Frame) -> Value:
        """What an expression is in one call of the function that it stands in."""
        self._refuel()
        return self._value(node, frame)

    def drawn(self, source: ast.expr) -> Value:
        """What a loop over ``source`` gets in each round."""
        self._refuel()
        return self._drawn(source, OPEN)

    def _refuel(self) -> None:
        """Begin another question; those that are asked to answer it have what is left of its budget."""
        if not self._running:
            self._budget = BUDGET
        self._fuel = min(FUEL, self._budget)

    # Expressions

    def _value(self, node: ast.AST, frame: Frame) -> Value:
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
            if all(it in self._running and self._running[it] == at for it, at in behind.items()):
                self._assumed |= behind.keys()
                return found
            del self._provisional[key]
        # A value that is made from itself: what is assumed of it grows until it holds.
        value: Value = Kind.UNKNOWN
        others = self._assumed
        while True:
            self._running[key] = value
            self._assumed = set()
            found = kinds.join([value, self._compute(node, frame)], node)
            self._note_parameters(node, found, frame)
            found = Unclear(node) if kinds.is_deep(found, LEVELS) else found
            found = self._take(found, node, frame)
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

    def _note_parameters(self, node: ast.AST, value: Value, frame: Frame) -> None:
        """Note where parameters are computed with that no forward has, which could weigh their gradients."""
        match node:
            case ast.BinOp(left=left, right=right) if not isinstance(node.op, ast.Add | ast.Sub):
                parts = [left, right]
            case ast.Call() if not self.program.entered(node):
                parts = [*handed(node), *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
            case _:
                return
        if kinds.tensor(value, node) in (*BY_SAMPLE, *AVERAGED, Kind.TOTAL, Kind.PICKED, Kind.HANDED):
            plain = (it for it in parts if self._value(it, frame) in PLAIN)
            self.weighs_parameters |= any(self._is_trained_with(it) for it in plain)

    def _is_trained_with(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether an expression is computed from a parameter that it takes from a model."""
        for part in ast.walk(node):
            if not isinstance(part, ast.Name | ast.Attribute):
                continue
            if any(full_name(it) in PARAMETERS for it in self.program.values(part)) or self._is_of_layer(
                part
            ):
                inside = isinstance(part, ast.Attribute) and self._is_own(part)
                if not inside:
                    return True
            elif isinstance(part, ast.Name) and depth < NAMES:
                behind = [it for one in self.program.definitions(part) for it in self._behind(one)]
                if any(it is not node and self._is_trained_with(it, depth + 1) for it in behind):
                    return True
        return False

    def _is_of_layer(self, node: ast.Name | ast.Attribute) -> bool:
        """``model.head.weight``, of a layer of torch's."""
        if not isinstance(node, ast.Attribute) or node.attr not in LAYER_PARAMETERS:
            return False
        layers = self.program.values(node.value)
        return any(isinstance(it, Made) and it.name in operations.LAYER_NAMES for it in layers)

    def _is_own(self, node: ast.Attribute) -> bool:
        """``self.scale`` in a method: the module's own forward, or what it calls, has that; so with its layers'."""
        held = node.value
        if isinstance(held, ast.Attribute) and self._is_of_layer(node):
            held = held.value
        return ast.unparse(held) in self.program.scope(node).params[:1]

    def _take(self, value: Value, node: ast.AST, frame: Frame) -> Value:
        """A value, or what it is taken to be where it is not known."""
        if not isinstance(value, Unclear):
            return value
        self.surfaced.setdefault(id(value.place), (node, frame))
        return self.taken.get(id(node), self.taken.get(id(value.place), value))

    def _all(self, nodes: Iterable[ast.AST], frame: Frame) -> list[Value]:
        return [self._value(node, frame) for node in nodes]

    def _compute(self, node: ast.AST, frame: Frame) -> Value:
        match node:
            case ast.Constant():
                return Kind.ZERO if node.value in (0, 0.0) and node.value is not False else Kind.SAME
            case ast.Call() if hasattr(node, "whole_source"):
                return Kind.SAME  # whole batches, on all ranks
            case ast.Name():
                named = self._named(node, frame)
                return Unclear(node) if named is None else named
            case ast.Attribute():
                return self._attribute(node, frame)
            case ast.Subscript():
                return self._subscript(node, frame)
            case ast.BinOp():
                left, right = self._all([node.left, node.right], frame)
                return self._of_pairs(node, kinds.computed(node.op, left, right, node), left, right)
            case ast.AugAssign():
                right = self._value(node.value, frame)
                return kinds.computed(node.op, self._before(node, frame), right, node)
            case ast.UnaryOp():
                return self._value(node.operand, frame)
            case ast.NamedExpr():
                return self._value(node.value, frame)
            case ast.Compare():
                left, *others = self._all([node.left, *node.comparators], frame)
                return self._of_pairs(node, kinds.elementwise([left, *others], node), left, others[0])
            case ast.BoolOp():
                return kinds.elementwise(self._all(node.values, frame), node)
            case ast.IfExp():
                if (answer := self._answer(node.test, frame)) is not None:
                    return self._value(node.body if answer else node.orelse, frame)
                return self._under(
                    [node.test], kinds.join(self._all([node.body, node.orelse], frame), node), frame
                )
            case ast.Tuple() | ast.List():
                if any(isinstance(it, ast.Starred) for it in node.elts):
                    return Every(kinds.join(self._all(node.elts, frame), node))
                return Held(tuple(enumerate(self._all(node.elts, frame))))
            case ast.Starred():
                return kinds.element(self._value(node.value, frame), node)
            case ast.Dict():
                return self._dict(node, frame)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                return self._comprehended(node, node.elt, frame)
            case ast.DictComp():
                return self._comprehended(node, node.value, frame)
            case ast.Call():
                return self._call(node, frame)
            case ast.JoinedStr():
                shown = [it.value for it in node.values if isinstance(it, ast.FormattedValue)]
                return _same_or_unclear(self._all(shown, frame), node)
            case ast.Lambda() | ast.Slice():
                return Kind.SAME
        return Unclear(node)

    def _of_pairs(self, node: ast.BinOp | ast.Compare, found: Value, left: Value, right: Value) -> Value:
        """What is computed of two tensors; or that it is of each pair of samples: ``x[None] - x[:, None]``."""
        if isinstance(found, Unclear) and found.refuted or not (left in BY_SAMPLE and right in BY_SAMPLE):
            return found
        one, other = node.left, node.right if isinstance(node, ast.BinOp) else node.comparators[0]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            pairs = self._turns([one, other])
        else:
            sides = {self._turned(one), self._turned(other)}
            pairs = sides == {"across", "along"} or ("across" in sides and self._is_turned_of(one, other))
        return Unclear(node, refuted=True) if pairs else found

    def _turns(self, parts: Iterable[ast.expr]) -> bool:
        """Whether a product is one with a transposed matrix, so that each row meets every other one: ``x @ x.t()``."""
        return any(self._turned(part) == "transposed" for part in parts)

    def _is_turned_of(self, one: ast.expr, other: ast.expr) -> bool:
        """Whether one of two tensors is the other one, turned: ``norms + norms.unsqueeze(0)``."""
        turned, straight = (one, other) if self._turned(one) == "across" else (other, one)
        inner = (
            turned.func.value
            if isinstance(turned, ast.Call) and isinstance(turned.func, ast.Attribute)
            else None
        )
        return inner is not None and ast.unparse(inner) == ast.unparse(straight)

    def _turned(self, node: ast.expr, depth: int = 0) -> str:
        """Where a tensor has its samples: in dimension 1 ("across", "transposed"), or 0 before a new one ("along")."""
        if depth > NAMES:
            return ""
        match node:
            case ast.Attribute(attr="T") | ast.Call(func=ast.Attribute(attr="t"), args=[]):
                return "transposed"
            case ast.Call(func=ast.Attribute(attr="transpose" | "permute"), args=[one, other]):
                return "transposed" if {written(one), written(other)} in ({0, 1}, {0, -1}) else ""
            case ast.Call(func=ast.Attribute(attr="unsqueeze"), args=[place]):
                return {0: "across", 1: "along"}.get(written(place), "")  # type: ignore[arg-type]
            case ast.Call(func=ast.Attribute(attr="view" | "reshape"), args=[one, other]):
                sizes = written(one), written(other)
                return {(1, -1): "across", (-1, 1): "along"}.get(sizes, "")  # type: ignore[arg-type]
            case ast.Call(func=ast.Attribute(attr=name, value=inner)) if name in KEEPS_PLACES:
                return self._turned(inner, depth + 1)
            case ast.Subscript(slice=ast.Constant(value=None)):
                return "across"
            case ast.Subscript(slice=ast.Tuple(elts=[ast.Constant(value=None), ast.Slice(), *_])):
                return "across"
            case ast.Subscript(slice=ast.Tuple(elts=[ast.Slice(), ast.Constant(value=None), *_])):
                return "along"
            case ast.Name():
                made = self.program.definitions(node)
                held = [it for one in made if not isinstance(one, ast.arg) for it in self._behind(one)]
                found = {self._turned(it, depth + 1) for it in held}
                return found.pop() if len(found) == 1 and len(held) == len(made) else ""
        return ""

    def _dict(self, node: ast.Dict, frame: Frame) -> Value:
        values = self._all(node.values, frame)
        if all(isinstance(key, ast.Constant) for key in node.keys):
            return Held(tuple((key.value, value) for key, value in zip(node.keys, values, strict=True)))  # type: ignore[union-attr]
        return Every(kinds.join(values, node))

    def _comprehended(self, node: ast.AST, element: ast.expr, frame: Frame) -> Value:
        for part in node.generators:  # type: ignore[attr-defined]
            drawn = self._drawn(part.iter, frame)
            if isinstance(kinds.tensor(drawn, part.iter), Unclear):
                return kinds.tensor(drawn, part.iter)
            if any(self._is_data(test, frame) for test in part.ifs):
                return Unclear(node)
        one = node.generators[0] if len(node.generators) == 1 else None  # type: ignore[attr-defined]
        if one is not None and not one.ifs and _is_part(element, one.target):
            if self._value(one.iter, frame) is Kind.ROWS:
                return Kind.ROWS  # an entry for each sample
        return Every(self._value(element, frame))

    def _is_option(self, node: ast.AST) -> bool:
        """An option of the program."""
        names = [full_name(v) for v in self.program.values(node) if not isinstance(v, Const)]
        options = bool(names) and all(name.startswith(OPTIONS) for name in names)
        return options and self.is_followed(node)

    def is_followed(self, node: ast.AST | None) -> bool:
        """Whether all that an expression may be has a value."""
        waiting: list[ast.AST | None] = [node]
        asked: set[ast.AST] = set()
        while waiting:
            part = waiting.pop()
            if part is None or not self.program.values(part):
                return False
            match part:
                case ast.Name() | ast.Attribute():
                    found = [it for it in self.program.definitions(part) if it not in asked]
                    asked.update(found)
                    taken = (getattr(self.program.statement(it), "value", None) for it in found)
                    if any(isinstance(it, ast.Call) and self._runs_module(it) for it in taken):
                        return False
                    waiting += (it for one in found for it in self._behind(one))
                    if isinstance(part, ast.Attribute) and not self.program.definitions(part):
                        waiting.append(part.value)
                case ast.Subscript():
                    waiting.append(part.value)
                case ast.IfExp():
                    waiting += (part.body, part.orelse)
                case ast.BoolOp():
                    waiting += part.values
                case ast.Call():
                    if self._runs_module(part):
                        return False
                    returned = [it for it in self._returns(part) if it not in asked]
                    asked.update(returned)
                    waiting += (it.value for it in returned)
                    if isinstance(part.func, ast.Attribute) and not returned:
                        waiting.append(part.func.value)
        return True

    def _runs_module(self, call: ast.Call) -> bool:
        """Whether a call may run a module of PyTorch's: what that answers has no value."""
        called = self.program.values(call.func)
        return any(isinstance(it, Made) and it.name.startswith("torch.") for it in called)

    def _returns(self, call: ast.Call) -> list[ast.Return]:
        """Where the functions that a call enters return something."""
        scopes = [self.program.scopes[index] for index in self.program.called_scopes(call)]
        nodes = (it for scope in scopes for it in self.program.results(scope))
        return [it for it in nodes if isinstance(it, ast.Return) and it.value is not None]

    def _behind(self, definition: ast.AST) -> list[ast.expr]:
        """What a name may be given by a definition, where that is an expression of its own."""
        if isinstance(definition, ast.arg):
            return self.program.given(definition)
        statement = self.program.statement(definition)
        if isinstance(statement, ast.AugAssign):
            return [statement.value, statement.target]
        alone = isinstance(statement, ast.Assign) and definition in statement.targets
        return [statement.value] if alone else []  # type: ignore[union-attr]

    def _is_literal(self, node: ast.AST) -> bool:
        values = self.program.values(node)
        return bool(values) and all(isinstance(value, Const) for value in values)

    def is_fixed(self, node: ast.AST) -> bool:
        """Whether an expression is a literal, or an option of the program."""
        return self._is_literal(node) or self._is_option(node)

    def _is_outside(self, node: ast.AST) -> bool:
        """A module, a function, a class, or an object of the program's own: no tensor."""
        values = self.program.values(node)
        return bool(values) and all(isinstance(value, Ext | Mod | Func | Cls | Bound) for value in values)

    def _named(self, node: ast.Name | ast.Attribute, frame: Frame) -> Value | None:
        """What a name is, or an attribute whose assignments are known."""
        if self._is_option(node):
            return Kind.SAME
        definitions = self._definitions(node, frame)
        if definitions:
            found = kinds.join([self._defined(it, node, frame) for it in definitions], node)
            return self._changed(node, definitions, found, frame)
        return Kind.SAME if self._is_outside(node) or self._is_literal(node) else None

    def _attribute(self, node: ast.Attribute, frame: Frame) -> Value:
        if (blamed := self._kept_of_samples(node)) is not None:
            return blamed
        named = self._named(node, frame)
        if named is not None:
            return named
        if self.context.made(self.program.values(node.value), LOADER):
            return Kind.SAME
        value = self._value(node.value, frame)
        match node.attr:
            case "shape" if value in (Kind.PLACES, Kind.PICKED):
                return _shape_of_some(node)
            case "shape":
                return Kind.SHAPE if value in DEALT else (value if value in PLAIN else Unclear(node))
            case "T" | "mT":
                return Kind.MOVED if value in BY_SAMPLE else value
            case _ if node.attr in DESCRIBES and value in BY_SAMPLE:
                return Kind.SAME
            case _ if isinstance(value, Every):  # of a named tuple
                return value.element
        return value

    def _definitions(self, use: ast.AST, frame: Frame) -> list[ast.AST]:
        return [it for it in self.last(use) if isinstance(it, ast.arg) or self._may_run(it, frame)]

    def _may_run(self, node: ast.AST, frame: Frame) -> bool:
        """Whether no condition that the arguments of a call answer keeps a place from being run."""
        return not any(self._answer(test, frame) is kept for test, kept in _conditions(self.context, node))

    def _answer(self, test: ast.expr, frame: Frame) -> bool | None:
        """How a condition is answered where its parameter is given a literal."""
        match test:
            case ast.UnaryOp(op=ast.Not()):
                answer = self._answer(test.operand, frame)
                return None if answer is None else not answer
            case ast.Attribute(value=ast.Name(id=me), attr="training"):
                return frame.training if self.program.scope(test).params[:1] == [me] else None
            case ast.Name():
                literal = self._literal(test, frame)
                return None if literal in (None, (GIVEN,)) else bool(literal[0])
            case ast.Call(func=ast.Name(id="isinstance"), args=[subject, kind]):
                return self._is_instance(subject, kind)
            case ast.Compare(
                left=ast.Name() as name,
                ops=[ast.Is() | ast.IsNot() | ast.Eq() | ast.NotEq() as asks],
                comparators=[ast.Constant(value=wanted)],
            ):
                literal, same = self._literal(name, frame), isinstance(asks, ast.Is | ast.Eq)
                if literal is not None and wanted is None:
                    return (literal[0] is None) is same
                if literal not in (None, (GIVEN,)) and isinstance(asks, ast.Eq | ast.NotEq):
                    return (literal[0] == wanted) is same
        return None

    def _literal(self, name: ast.Name, frame: Frame) -> tuple[object] | None:
        """The literal that a parameter is given, or ``GIVEN``, in a tuple: it may be None."""
        definitions = self.program.definitions(name)
        known = len(definitions) == 1 and id(definitions[0]) in frame.literals
        return (frame.literals[id(definitions[0])],) if known else None

    def _is_instance(self, subject: ast.expr, kind: ast.expr) -> bool | None:
        """Whether an object is of a class, where every object that it may be is known."""
        values = self.program.values(subject)
        classes = self.program.values(kind)
        if len(classes) != 1 or not values:
            return None
        (wanted,) = classes
        answers = {self._is_of(value, wanted) for value in values}
        return answers.pop() if len(answers) == 1 else None

    def _is_of(self, value: object, wanted: object) -> bool | None:
        if isinstance(value, Made) and isinstance(wanted, Ext) and value.name == wanted.name:
            return True
        if isinstance(value, Made) and isinstance(wanted, Cls) and value.name.startswith("torch.nn."):
            return False
        if isinstance(value, Inst):
            bases = self.program.bases(value.cls)
            outside = [it for it in bases if isinstance(it, Ext) and full_name(it) != "torch.nn.Module"]
            return True if wanted in bases else None if outside else False
        return None

    def last(self, use: ast.AST) -> list[ast.AST]:
        """The definitions of a name that can reach its use, without those that another one hides."""
        return _last(self.context, use)

    # Indices

    def _subscript(self, node: ast.Subscript, frame: Frame) -> Value:
        if self._is_option(node) or (self._is_literal(node) and not self.program.definitions(node.value)):
            return Kind.SAME
        value = self._value(node.value, frame)
        if isinstance(value, Unclear) or value is Kind.UNKNOWN:
            return value
        index = node.slice
        if isinstance(index, ast.Constant):
            return kinds.entry(value, index.value, node)
        if (keys := self._texts(index)) and self._value(index, frame) in PLAIN:
            return kinds.join([kinds.entry(value, key, node) for key in keys], node)
        if value is Kind.SHAPE:
            first = index.lower if isinstance(index, ast.Slice) else index
            number = first.operand if isinstance(first, ast.UnaryOp) else first
            return Kind.SAME if isinstance(number, ast.Constant) and number.value else Unclear(node)
        if isinstance(index, ast.Slice) and isinstance(value, Held | Every):
            return Every(kinds.element(value, node))
        if value is Kind.OUTPUT and isinstance(self.program.parent(node), ast.Starred):
            return Every(value)  # `[first(x[0]), *x[1:]]` takes a list apart
        if isinstance(value, Held | Every):
            at = self._value(index, frame)
            return kinds.element(value, node) if at in PLAIN else _blamed([at], node)
        at = self._value(index, frame)
        if value in BY_SAMPLE:
            if value in DEALT and at is Kind.EACH:
                return Kind.EACH
            if value in DEALT and isinstance(index, ast.Slice) and self._is_list(node.value):
                return Every(value)
            if self._keeps_all(index) or (at in PLAIN and self._is_list(node.value)):
                return value
            if value in DEALT and self._is_of_each(index, frame):
                return Kind.ROWS
            picks = at is Kind.PLACES or (at in BY_SAMPLE and self._is_mask(index))
            if value in DEALT and not picks and self._is_by_place(index, frame):
                return Unclear(node, by_place(node), refuted=True)
            bounds = [it for it in (index.lower, index.upper) if it] if isinstance(index, ast.Slice) else []
            return Kind.PICKED if picks else _blamed([at, *self._all(bounds, frame)], node)
        if value in PLAIN and at in DEALT:
            return Kind.ROWS
        by = kinds.tensor(at, index)
        if value in PLAIN and by is Kind.UNKNOWN:
            return Kind.UNKNOWN  # of what it is made from itself
        return value if by in PLAIN else _blamed([at], node)

    def _texts(self, index: ast.expr) -> list[str]:
        """The names that an index may be: ``"A" if forwards else "B"``."""
        keys = [it.value if isinstance(it, Const) else None for it in self.program.values(index)]
        return sorted(map(str, keys)) if all(isinstance(it, str) for it in keys) else []

    def _is_of_each(self, index: ast.expr, frame: Frame) -> bool:
        """``outputs[torch.arange(len(outputs)), labels]``: a number of each sample."""
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        first, *rest = (
            [kinds.tensor(it, index) for it in self._all(parts, frame)] if parts else [Kind.UNKNOWN]
        )
        return first is Kind.NUMBERED and all(it in (*PLAIN, Kind.ROWS, Kind.BATCH) for it in rest)

    def _is_by_place(self, index: ast.expr, frame: Frame) -> bool:
        """Whether an index takes samples by their place in the batch, in another order: ``x[np.arange(len(x))[::-1]]``.

        It is computed from how many samples there are, and from nothing else of them.
        """
        first = index.elts[0] if isinstance(index, ast.Tuple) and index.elts else index
        if isinstance(first, ast.Slice) or self._value(first, frame) is Kind.NUMBERED:
            return False
        waiting, counted, seen = [first], False, set[int]()
        while waiting:
            part = waiting.pop()
            if id(part) in seen:
                continue
            seen.add(id(part))
            value = kinds.tensor(self._value(part, frame), part)
            counted |= value in (Kind.COUNT, Kind.NUMBERED)
            if value in (*PLAIN, Kind.COUNT, Kind.NUMBERED):
                continue
            match part:
                case ast.Name():
                    inner = [it for one in self.program.definitions(part) for it in self._behind(one)]
                case ast.Call():
                    receiver = [part.func.value] if isinstance(part.func, ast.Attribute) else []
                    inner = [*receiver, *handed(part)]
                case ast.Subscript(value=held):
                    inner = [held]
                case ast.BinOp() | ast.UnaryOp() | ast.List() | ast.Tuple():
                    inner = [it for it in ast.iter_child_nodes(part) if isinstance(it, ast.expr)]
                case _:
                    return False
            if not inner:
                return False
            waiting += inner
        return counted

    def _is_mask(self, index: ast.expr, depth: int = 0) -> bool:
        """Whether an index is made of yes and no, one for each row or number."""
        match index:
            case ast.Compare() | ast.UnaryOp(op=ast.Invert()) | ast.UnaryOp(op=ast.Not()):
                return True
            case ast.BinOp(op=ast.BitAnd() | ast.BitOr()):
                return self._is_mask(index.left, depth) and self._is_mask(index.right, depth)
            case ast.Call(func=ast.Attribute(attr=name, value=value)):
                return name in MAKES_MASKS or (name in KEEPS_MASKS and self._is_mask(value, depth))
            case ast.Name() | ast.Attribute() if depth < NAMES:
                held = assigned(self.context, index)
                return bool(held) and all(
                    self._is_mask(value, depth + 1) for value in held if value is not index
                )
        return False

    def _is_list(self, node: ast.expr) -> bool:
        """Whether the program asks if a name is a list, or makes it one, before it takes its elements."""
        if not isinstance(node, ast.Name):
            return False
        for place in self._stores(self.program.scope(node)).get(node.id, ()):
            if isinstance(place, ast.Subscript) and _hands_on(self.program.statement(place).value, place):  # type: ignore[attr-defined]
                return True
        inside = {id(it) for it in self.program.ancestors(node)}
        for around in self.program.body(self.program.scope(node)):
            if isinstance(around, ast.If) and (asked := _asks_for_list(around.test, node.id)) is not None:
                made = any(
                    isinstance(part, ast.Assign)
                    and ast.unparse(part.targets[0]) == node.id
                    and isinstance(part.value, ast.List | ast.Tuple)
                    for part in around.body
                )
                here = around.body if asked else around.orelse
                if any(id(part) in inside for part in here):
                    return True
                if not asked and made and id(self.program.parent(around)) in inside:
                    return self.program.order[id(around)] < self.program.order[id(node)]
        return False

    def _keeps_all(self, index: ast.expr) -> bool:
        """Whether an index takes the same from every sample: slices and numbers after the samples' dimension."""
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        first = parts[0] if parts else None
        whole = isinstance(first, ast.Slice) and first.lower is first.upper is first.step is None
        every = isinstance(first, ast.Constant) and first.value is Ellipsis
        return (whole or every) and all(self._is_place(part) for part in parts[1:])

    def _is_place(self, index: ast.expr) -> bool:
        if isinstance(index, ast.Slice):
            bounds = (index.lower, index.upper, index.step)
            return all(bound is None or self._is_plain(bound) for bound in bounds)
        return self._is_plain(index)

    def _is_plain(self, node: ast.expr) -> bool:
        return self._value(node, OPEN) in PLAIN

    # Definitions

    def _defined(self, definition: ast.AST, use: ast.AST, frame: Frame) -> Value:
        """What a definition gives a name; only ``frame``'s own function has its parameters."""
        if isinstance(definition, ast.arg):
            return self._parameter(definition, frame)
        if isinstance(definition, ast.alias | ast.FunctionDef | ast.ClassDef):
            return Kind.SAME
        around = self.program.generator_of(definition)
        if around is not None:
            return self._taken(around.target, definition, self._drawn(around.iter, frame))
        statement = self.program.statement(definition)
        named = self.program.parent(definition)
        if isinstance(named, ast.NamedExpr) and named.target is definition:
            return self._under(_tests(self.context, statement, use), self._value(named.value, frame), frame)
        match statement:
            case ast.Assign():
                held = next((it for it in statement.targets if self.program.is_inside(definition, it)), None)
                value = Unclear(use)  # of what a call in its value has set
                if held is not None:
                    value = self._taken(held, definition, self._value(statement.value, frame))
            case ast.AnnAssign() if statement.value is not None:
                value = self._value(statement.value, frame)
            case ast.AugAssign():
                value = self._repeated(statement, use, self._value(statement, frame), frame)
            case ast.For():
                value = self._taken(statement.target, definition, self._drawn(statement.iter, frame))
            case ast.With():
                value = self._opened(statement, definition, frame)
            case _:
                value = Unclear(use)
        return self._under(_tests(self.context, statement, use), value, frame)

    def _before(self, statement: ast.AugAssign, frame: Frame) -> Value:
        """What the target of ``x += y`` was."""
        target = statement.target
        if isinstance(target, ast.Subscript):
            return self._subscript(target, frame)
        definitions = self._definitions(target, frame)
        if not definitions:
            return Unclear(target)
        return kinds.join([self._defined(definition, target, frame) for definition in definitions], target)

    def _repeated(self, statement: ast.stmt, use: ast.AST, value: Value, frame: Frame) -> Value:
        """A statement that a loop repeats, as often in every process."""
        for around in self._loops_apart(statement, use):
            drawn = self._drawn(around.iter, frame)
            if isinstance(drawn, Unclear) or kinds.tensor(drawn, around.iter) is Kind.EACH:
                return _blamed([value, Unclear(around.iter)], around.iter)
        return value

    def _loops_apart(self, statement: ast.stmt, use: ast.AST) -> Iterator[ast.For]:
        """The loops round a statement that a use does not stand in, within the function."""
        inside = {id(node) for node in self.program.ancestors(use)}
        for around in self.program.ancestors(statement):
            if isinstance(around, ast.FunctionDef | ast.Lambda):
                return
            if isinstance(around, ast.For) and id(around) not in inside:
                yield around

    def _under(self, tests: list[ast.expr], value: Value, frame: Frame) -> Value:
        """A value that is one thing or another, by conditions that every process must answer alike."""
        data = next((test for test in tests if self._is_data(test, frame)), None)
        return value if data is None or isinstance(value, Unclear) else Unclear(data, refuted=True)

    def _is_data(self, test: ast.AST, frame: Frame) -> bool:
        """Whether a condition asks for numbers of the batch, which differ between its parts."""
        match test:
            case ast.BoolOp():
                return any(self._is_data(value, frame) for value in test.values)
            case ast.UnaryOp():
                return self._is_data(test.operand, frame)
            case ast.Compare():
                asked = [test.left, *test.comparators]
                by_key = all(isinstance(operator, ast.In | ast.NotIn) for operator in test.ops)
                if by_key or self.context.asks_identity(test):
                    return False
                return any(self._is_data(value, frame) for value in asked)
            case ast.Constant():
                return False
        value = self._value(test, frame)
        if isinstance(value, Unclear):
            asked = (test.func.value, *test.args) if _is_method(test) else ()
            return any(self._is_data(part, frame) for part in asked)
        return value in (*BY_SAMPLE, *AVERAGED, Kind.HANDED, Kind.TOTAL, Kind.COUNT)

    def _opened(self, statement: ast.With, definition: ast.AST, frame: Frame) -> Value:
        for item in statement.items:
            call = item.context_expr
            if item.optional_vars is definition and isinstance(call, ast.Call) and call.args:
                if ast.unparse(call.func).endswith(SCALES_LOSS):
                    return self._value(call.args[0], frame)
        return Unclear(definition)

    def _taken(self, target: ast.AST, definition: ast.AST, value: Value) -> Value:
        """What ``definition`` gets where ``value`` is unpacked to ``target``."""
        if target is definition:
            return value
        if isinstance(target, ast.Starred):
            return self._taken(target.value, definition, Every(kinds.element(value, definition)))
        if isinstance(target, ast.Tuple | ast.List):
            for index, part in enumerate(target.elts):
                if self.program.is_inside(definition, part):
                    starred = any(isinstance(it, ast.Starred) for it in target.elts)
                    part_value = kinds.element(value, part) if starred else kinds.entry(value, index, part)
                    return self._taken(part, definition, part_value)
        return Unclear(definition)

    def _drawn(self, source: ast.expr, frame: Frame) -> Value:
        """What a loop over ``source`` gets in each round."""
        loaders = self.context.made(self.context.iterated(self.program.values(source)), LOADER)
        named = assigned(self.context, source) if isinstance(source, ast.Name) and not loaders else []
        iterator = named[0] if len(named) == 1 and isinstance(named[0], ast.Call) else source
        call = self.program.call(iterator) if isinstance(iterator, ast.Call) else None
        names = call.names if call is not None else set()
        given = iterator.args if isinstance(iterator, ast.Call) else []
        if names & RANGES:
            ends = self._all(given, frame)
            if ends == [Kind.COUNT]:
                return Kind.EACH
            return _same_or_unclear(ends, source)
        if "builtins.enumerate" in names:
            return Held(((0, Kind.SAME), (1, self._drawn(given[0], frame))))
        if names == {"builtins.zip"}:
            return Held(tuple(enumerate(self._drawn(it, frame) for it in given)))
        if names and names <= HANDS_OUT and given:
            return self._drawn(given[0], frame)
        if loaders:
            return Kind.ROWS if all(map(self._gives_tensors, loaders)) else Kind.BATCH
        if isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute) and not given:
            held = self._value(source.func.value, frame)
            if source.func.attr == "items" and isinstance(held, Held | Every | Kind):
                return Held(((0, Kind.SAME), (1, kinds.element(held, source))))
        value = self._value(source, frame)
        if value in DEALT and self._is_list(source):
            return value
        by_sample = value is Kind.ROWS or (value is Kind.BATCH and self.context.hands_lists)
        return Kind.EACH if by_sample else kinds.element(value, source)

    def _gives_tensors(self, loader: int) -> bool:
        """Whether a data set is a tensor, or gives one for each sample: its batches are tensors, and no lists."""
        call = self.context.loader_call(loader)
        own = getattr(self.program.node(loader), "own_batch", None)
        if own is not None:
            return not own.is_structure
        data = call.argument("dataset", 0) if call is not None else None
        if data is None or any(it.arg in ("collate_fn", None) for it in call.node.keywords):  # type: ignore[union-attr]
            return False
        made = self.program.values(data)
        methods = {it for value in made for it in self.program.methods(value, "__getitem__", data)}
        bodies = (self.program.body(self.program.scopes[it]) for it in methods)
        returned = [it.value for body in bodies for it in body if isinstance(it, ast.Return)]
        given = returned if made else [data]
        return bool(given) and all(it is not None and self._dimensions.is_tensor(it) for it in given)

    def _changed(self, name: ast.expr, definitions: list[ast.AST], value: Value, frame: Frame) -> Value:
        """A value with what is stored into it: ``x.append(…)``, ``x[…] = …``."""
        value = self._with_stores(name, definitions, value, frame)
        return self._with_writes(name, value, frame) if value in BY_SAMPLE else value

    def _with_stores(self, name: ast.expr, definitions: list[ast.AST], value: Value, frame: Frame) -> Value:
        """A collection or a tensor that is not of samples, with what its function stores into it."""
        stores = self._stores(self.program.scope(name))
        added: list[Value] = []
        for node in stores.get(_written(name), ()) if stores and value not in BY_SAMPLE else ():
            held = node.func.value if isinstance(node, ast.Call) else node.value  # type: ignore[attr-defined]
            if not any(it in definitions for it in self.program.definitions(held)):
                continue
            if isinstance(node, ast.Call) and writes(node.func.attr):  # type: ignore[attr-defined]
                value = self._written_into(node, value, frame)
                if isinstance(value, Unclear):
                    return value
                continue
            if isinstance(node, ast.Call):
                if not isinstance(value, Held | Every):
                    continue
                new = self._value(node.args[-1], frame)
                new = kinds.element(new, node) if node.func.attr == "extend" else new  # type: ignore[attr-defined]
                statement = self.program.statement(node)
            else:
                statement = self.program.statement(node)
                if _hands_on(statement.value, node):  # type: ignore[attr-defined]
                    continue
                new = self._value(statement.value, frame)  # type: ignore[attr-defined]
                if (blamed := self._chosen_by(node.slice, frame)) is not None:  # type: ignore[attr-defined]
                    return blamed
                if isinstance(statement, ast.AugAssign):
                    repeated = self._repeated(statement, name, new, frame)
                    if self._under(_tests(self.context, statement, name), repeated, frame) in (
                        *PLAIN,
                        Kind.WHOLE,
                    ):
                        continue
            added.append(self._repeated(statement, name, new, frame))
            added[-1] = self._under(_tests(self.context, statement, name), added[-1], frame)
        if not added:
            return value
        if isinstance(value, Held | Every):
            before = [] if value == Held(()) else [kinds.element(value, name)]
            return Every(kinds.join(before + added, name))
        return kinds.elementwise([value, *added], name) if value in (*PLAIN, Kind.UNKNOWN) else value

    # What is written into rows

    @cached_property
    def looks(self) -> Looks:
        return _looks(self.context)

    def _with_writes(self, name: ast.expr, value: Value, frame: Frame) -> Value:
        """Rows, unless something that is not each sample's own is written into them, by whichever name."""
        for place in self.looks.places(name):
            own = self.program.scope(place) is self.program.scope(name)
            inside = frame if own else OPEN
            if own and not self._may_run(place, frame):
                continue
            if (blamed := self._mixed(place, name, inside)) is not None:
                return blamed
        return value

    def _mixed(self, place: ast.AST, name: ast.expr, frame: Frame) -> Unclear | None:
        """What a place writes into rows that is not each sample's own; None where all is."""
        statement = self.program.statement(place)
        if isinstance(place, ast.Subscript) and _hands_on(getattr(statement, "value", place), place):
            return None
        changed = [(it, kinds.tensor(self._value(it, frame), it)) for it in self.looks.changed(place)]
        looked = [(it, value) for it, value in changed if value in (*BY_SAMPLE, Kind.EACH)]
        if changed and not looked:
            return next((value for _, value in changed if isinstance(value, Unclear)), None)
        rounds = Rounds(
            self.program, self.looks, lambda it: self._value(it, frame), lambda it: self._drawn(it, frame)
        )
        loops = rounds.around(place)
        for held, value in looked:
            own = value is Kind.EACH or (len(loops) == 1 and self._is_at_number(place, loops[0], rounds))
            if loops and not own:
                return Unclear(place)
            if (blamed := self._written_by(place, held, value, own, frame)) is not None:
                return blamed
        if loops:
            found = rounds.other(place, _reads(place, statement), loops[0]) if len(loops) == 1 else place
            if found is not None:
                return Unclear(found, refuted=True)
        repeated = self._repeated_apart(statement, name, frame)
        return repeated or kinds.unclear(
            [self._under(_tests(self.context, statement, name), Kind.SAME, frame)]
        )

    def _repeated_apart(self, statement: ast.stmt, name: ast.expr, frame: Frame) -> Unclear | None:
        """Another loop round a statement whose rounds are not known to be as many in every process."""
        for around in self._loops_apart(statement, name):
            drawn = self._drawn(around.iter, frame)
            if isinstance(drawn, Unclear) and not is_of_samples(drawn):
                return drawn
        return None

    def _is_at_number(self, place: ast.AST, loop: ast.For, rounds: Rounds) -> bool:
        """Whether a place stores at the number of the sample that a loop is at."""
        if not isinstance(place, ast.Subscript):
            return False
        parts = getattr(place.slice, "elts", [place.slice])
        return bool(parts) and rounds.is_number(parts[0], loop)

    def _written_by(
        self, place: ast.AST, held: ast.expr, value: Value, own: bool, frame: Frame
    ) -> Unclear | None:
        """What a place writes into rows, or into one sample's, of other samples'."""
        single = (*PLAIN, Kind.EACH, Kind.WHOLE, Kind.UNKNOWN)
        match place:
            case ast.Subscript(ctx=ast.Del()):
                return Unclear(place) if value is Kind.ROWS else None
            case ast.Subscript(slice=index):
                new = self._stored_at(place, frame)
                if own:
                    return None if new in single else _blamed([new], place)
                return self._written_at(place, index, value, new, frame)
            case ast.Call(func=ast.Attribute(value=receiver, attr=method)) if receiver is held and not writes(
                method
            ):
                return Unclear(place) if value is Kind.ROWS else None  # a list's `insert`
            case ast.Call() if value is Kind.EACH:
                found = next((it for it in self._all(handed(place), frame) if it not in single), None)
                return None if found is None else _blamed([found], place)
            case ast.Call():
                found = self._written_into(place, value, frame)
                return found if isinstance(found, Unclear) else None
            case ast.AugAssign(value=added) if value is Kind.EACH:
                new = self._value(added, frame)
                return None if new in single else _blamed([new], place)
            case ast.AugAssign():
                found = self._value(place, frame)
                return None if found in (*BY_SAMPLE, Kind.UNKNOWN) else _blamed([found], place)
        return Unclear(place)

    def _stored_at(self, place: ast.Subscript, frame: Frame) -> Value:
        statement = self.program.statement(place)
        stored = statement.value if isinstance(statement, ast.AugAssign) else right_side(statement, place)
        return Unclear(place) if stored is None else self._value(stored, frame)

    def _written_at(
        self, place: ast.Subscript, index: ast.expr, value: Value, new: Value, frame: Frame
    ) -> Unclear | None:
        """What is stored into all rows, or where a mask is: as many, or those that the same mask picks."""
        if isinstance(index, ast.Constant) and isinstance(index.value, str):
            return None if value in DEALT and new in DEALT else _blamed([new], place)
        at = self._value(getattr(index, "elts", [index])[0], frame)
        if at is Kind.UNKNOWN or new is Kind.UNKNOWN:
            return None
        if not self._keeps_all(index) and at not in BY_SAMPLE:
            return _blamed([at], place)
        fine = new in (*PLAIN, *BY_SAMPLE, Kind.WHOLE) or (
            new is Kind.PICKED and self._picks_alike(place, frame)
        )
        return None if fine else _blamed([new], place)

    def _picks_alike(self, place: ast.Subscript, frame: Frame) -> bool:
        """``x[mask] = y[mask]``: what is picked of others is picked where it is stored."""
        waiting: list[ast.AST] = [self.program.statement(place).value]  # type: ignore[attr-defined]
        while waiting:
            part = waiting.pop()
            if isinstance(part, ast.expr) and self._value(part, frame) is Kind.PICKED:
                if isinstance(part, ast.Subscript) and ast.unparse(part.slice) == ast.unparse(place.slice):
                    continue
                if not isinstance(part, ast.BinOp | ast.UnaryOp):
                    return False
                waiting += ast.iter_child_nodes(part)
        return True

    def _kept_of_samples(self, node: ast.Attribute, within: Set[int] = frozenset()) -> Unclear | None:
        """An attribute into which another function stores what it has of the samples: a queue of earlier rows.

        Each rank would keep its own ones. What a wrapped model stores, each of its replicas stores for itself, too.
        ``within``: the scopes of functions that are given all ranks' rows.
        """
        for place in self._attribute_stores.get(node.attr, ()):
            owners = self.program.values(_stored_in(place).value) & self.program.values(node.value)  # type: ignore[attr-defined]
            scope = self.program.scope(place)
            here = scope is self.program.scope(node) or scope.index in within
            if (
                here
                or not owners
                or not self.context.runs_in_training(place)
                or id(place) in self._replicated
            ):
                continue
            statement = self.program.statement(place)
            given = handed(place) if isinstance(place, ast.Call) else [getattr(statement, "value", None)]
            for value in (kinds.tensor(self._value(it, OPEN), it) for it in given if it is not None):
                if value not in (*PLAIN, Kind.WHOLE, Kind.UNKNOWN):
                    return Unclear(place, refuted=not isinstance(value, Unclear) or value.refuted)
        return None

    @cached_property
    def _attribute_stores(self) -> dict[str, list[ast.expr]]:
        """Where functions store into the tensors that attributes are, by the attributes' names."""
        found: dict[str, list[ast.expr]] = {}
        for scope in self.program.scopes:
            for places in self._stores(scope).values():
                for place in places:
                    if isinstance(held := _stored_in(place), ast.Attribute):
                        found.setdefault(held.attr, []).append(place)
        return found

    @cached_property
    def _replicated(self) -> set[int]:
        """What runs in the forwards of wrapped models."""
        wrapped = (it.node for it in self.program.calls if self.context.is_wrapped(it.callees))
        return set().union(*map(self.context.runs, wrapped))

    def _chosen_by(self, index: ast.expr, frame: Frame) -> Unclear | None:
        """The place of an index that samples choose, ``counts[label]``: each part stores something else there."""
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        values = [kinds.tensor(self._value(it, frame), it) for it in parts if not isinstance(it, ast.Slice)]
        chosen = (it for it in values if it not in (*PLAIN, Kind.WHOLE, Kind.UNKNOWN))
        return next((it if isinstance(it, Unclear) else Unclear(index) for it in chosen), None)

    def _written_into(self, call: ast.Call, value: Value, frame: Frame) -> Value:
        """A tensor with what a method like ``sub_`` writes into it: as many rows, each of them by itself."""
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        row = operations.method(method)
        if value not in (*BY_SAMPLE, *PLAIN) or row is None and not call.args and not call.keywords:
            return value
        found = self._value(call, frame)
        if found is value or found is Kind.UNKNOWN:
            return value
        return (
            found
            if found in BY_SAMPLE and value in PLAIN
            else _blamed([found], call) if found not in BY_SAMPLE else value
        )

    def _stores(self, scope: Scope) -> dict[str, list[ast.expr]]:
        """Where a function stores into collections and tensors, by their names."""
        if scope.index not in self._stored:
            found: dict[str, list[ast.expr]] = {}
            for node in self.program.body(scope):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    adds = node.func.attr in LIST_ADDS and node.args
                    if adds or writes(node.func.attr):
                        found.setdefault(ast.unparse(node.func.value), []).append(node)
                elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                    if isinstance(self.program.parent(node), ast.Assign | ast.AugAssign):
                        found.setdefault(ast.unparse(node.value), []).append(node)
            self._stored[scope.index] = found
        return self._stored[scope.index]

    # Parameters and functions

    def _parameter(self, parameter: ast.arg, frame: Frame) -> Value:
        if id(parameter) in frame.given:
            return frame.given[id(parameter)]
        scope = self.program.scope(parameter)
        found = [
            self._arguments(call, scope, bound, OPEN)[0].get(id(parameter), Unclear(parameter))
            for call, bound in self._callers(scope)
        ]
        return kinds.join(found, parameter) if found else Unclear(ast.Name(id=parameter.arg, ctx=ast.Load()))

    def _callers(self, scope: Scope) -> list[tuple[Call, bool]]:
        """The calls that enter a function, those of one program where these are told apart."""
        found = self.program.callers.get(scope.index, [])
        asked = [it for it in found if self.only in self.context.run_by(it[0].node)] if self.only else found
        return asked or found

    def _arguments(
        self, call: Call, scope: Scope, bound: bool, frame: Frame
    ) -> tuple[dict[int, Value], dict[int, object]]:
        """What a call gives the parameters of a function, and which of them are literals."""
        taken = scope.takes(bound)
        bindings = bind(call.node, taken)
        several = call.node.args and isinstance(call.node.args[-1], ast.Starred) and len(bindings.spread) == 1
        if is_spread(call.node) and (not several or taken.rest is not None):
            return {id(it): Unclear(call.node) for it in taken.named}, {}
        chosen: dict[int, tuple[ast.expr, Frame]] = {id(it): (value, OPEN) for it, value in taken.defaults}
        chosen |= {id(it): (value, frame) for it, value in bindings.given}
        given = {key: self._value(node, where) for key, (node, where) in chosen.items()}
        if several:  # `step(*batch)`
            own = {id(it) for it, _ in bindings.given}
            value, first = self._value(bindings.spread[0], frame), len(call.node.args) - 1
            for index, parameter in enumerate(taken.places[first:]):
                if id(parameter) not in own:
                    entry = kinds.entry(value, index, call.node)
                    default = [given[id(parameter)]] if id(parameter) in given else []
                    given[id(parameter)] = kinds.join([entry, *default], call.node)
                    chosen.pop(id(parameter), None)
        if bound:
            given |= {id(it): Kind.SAME for it in scope.signature.places[:1]}
        if taken.rest is not None:
            rest = [it for _, it in bindings.rest]
            given[id(taken.rest)] = Every(kinds.join(self._all(rest, frame), call.node))
        literals = {key: node.value for key, (node, _) in chosen.items() if isinstance(node, ast.Constant)}
        nothing = Const(None)
        literals |= {
            key: GIVEN
            for key, (node, _) in chosen.items()
            if given[key] in DEALT and nothing not in self.program.values(node)
        }
        return given, literals

    def _returned(self, call: Call, index: int, bound: bool, frame: Frame) -> Value:
        """What a function of the project returns to one call."""
        scope = self.program.scopes[index]
        given, literals = self._arguments(call, scope, bound, frame)
        called = self._functions_given(call, scope, bound, frame)
        key = index, frozenset(given.items()), frozenset(literals.items()), frozenset(called.items())
        inner = self._frames.setdefault(key, Frame(given, literals, frame.depth + 1, called=called))
        if inner.depth > CALLS:
            return Unclear(call.node)
        found: list[Value] = []
        for node in self.program.results(scope):
            if isinstance(node, ast.Yield | ast.YieldFrom):
                return Unclear(call.node)
            if node.value is not None and self._may_run(node, inner):
                value = self._value(node.value, inner)
                found.append(self._under(_tests(self.context, node, scope.node), value, inner))
        return kinds.join(found, call.node) if found else Kind.SAME

    def _functions_given(self, call: Call, scope: Scope, bound: bool, frame: Frame) -> dict[int, Values]:
        """What a call gives those parameters of a function that are called in it, or handed on."""
        if len(self.program.callers.get(scope.index, ())) < 2 or is_spread(call.node):
            return {}
        taken = scope.takes(bound)
        chosen = {it: (value, OPEN) for it, value in taken.defaults}
        chosen |= {it: (value, frame) for it, value in bind(call.node, taken).given}
        names = self._handed_on(scope)
        found = {id(it): self._functions(*given) for it, given in chosen.items() if it.arg in names}
        return {it: values for it, values in found.items() if values}

    def _handed_on(self, scope: Scope) -> frozenset[str]:
        """The names that a function calls, or gives to what it calls."""
        if scope.index not in self._handing:
            calls = [it for it in self.program.body(scope) if isinstance(it, ast.Call)]
            parts = (part for it in calls for part in (it.func, *handed(it)))
            self._handing[scope.index] = frozenset(it.id for it in parts if isinstance(it, ast.Name))
        return self._handing[scope.index]

    def _functions(self, node: ast.expr, frame: Frame, depth: int = 0) -> Values:
        """What an expression may be, where that is all known to be called: of a parameter, what one call gives it."""
        made = self.program.definitions(node) if isinstance(node, ast.Name) and depth < NAMES else ()
        (definition,) = made if len(made) == 1 else (None,)
        if id(definition) in frame.called:
            return frame.called[id(definition)]
        if self.only is not None and isinstance(definition, ast.arg) and id(definition) not in frame.given:
            scope, found = self.program.scope(definition), []
            for call, bound in self._callers(scope):
                value = signature.given(call.node, scope.takes(bound), definition)
                if (
                    is_spread(call.node)
                    or value is None
                    or not (one := self._functions(value, OPEN, depth + 1))
                ):
                    return frozenset()
                found += one
            return self.program.ordered(found)
        values = self.program.values(node)
        return values if all(isinstance(it, Func | Bound | Inst | Made) for it in values) else frozenset()

    # Calls

    def _called(self, node: ast.Call, frame: Frame) -> Call | None:
        """A call, of what it may call in one call of the function that it stands in."""
        call = self.program.call(node)
        if call is None or len(call.callees) < 2:
            return call
        functions = self._functions(node.func, frame)
        callees = [it for it in call.callees if it in functions]
        return replace(call, callees=self.program.ordered(callees)) if callees else call

    def _call(self, node: ast.Call, frame: Frame) -> Value:
        call = self._called(node, frame)
        if call is None:
            return Unclear(node)
        names, function = call.names, node.func
        given = handed(node)
        if any(name.endswith(SCALES_LOSS) for name in names) and node.args:
            return self._value(node.args[0], frame)
        model = called(node)
        if self.context.is_wrapped(self.program.values(model)):
            return self._forward(call, frame)
        if losses.is_loss(self.context, call):
            return self._loss(call, frame)
        if isinstance(function, ast.Attribute) and function.attr in HANDS_OUT_PARAMETERS:
            owners = self.program.values(function.value)
            if owners and all(map(self.context.module_class, owners)):
                return Every(Kind.SAME)
        callees = [it for it in call.callees if full_name(it) != "torch.nn.Module.forward"]  # overridden
        entered = [
            (scope, bound) for callee in callees for scope, _, bound in self.program.targets(callee, call)
        ]
        if entered and all(isinstance(callee, Func | Bound | Inst) for callee in callees):
            return kinds.join([self._returned(call, *target, frame) for target in entered], node)
        outside = bool(names) and all(isinstance(callee, Ext) for callee in call.callees)
        if names and names <= COPIES_TO_ARRAY and len(node.args) == 1 and not _names_dimension(node):
            if self._value(node.args[0], frame) is Kind.ROWS:
                return Kind.ROWS
        if names == {"collections.namedtuple.__call__"}:
            parts = [
                kinds.element(it, node) if isinstance(it, Every) else it for it in self._all(given, frame)
            ]
            return Every(kinds.join(parts, node))
        if outside and all(name.startswith("builtins.") for name in names):
            return self._builtin(call, frame)
        if outside and all(name.startswith(COMPUTES_OR_COPIES) for name in names):
            values = [kinds.tensor(value, node) for value in self._all(given, frame)]
            sized = values if all(name.startswith("numpy.random.") for name in names) else values[:1]
            if node.args and isinstance(node.args[0], ast.Tuple):  # `np.zeros((len(inputs), 3))`
                sized = self._all(node.args[0].elts, frame)
            if all(name.startswith("numpy.") for name in names) and any(it in OF_SIZES for it in sized):
                return self._filled(node, frame)
            return _same_or_unclear(values, node)
        layers = self.program.values(model)
        if layers and all(isinstance(it, Made) and operations.operation(it.name) for it in layers):
            return self._layer(call, frame)
        if any(isinstance(layer, Made) and layer.name.startswith("torch.nn.") for layer in layers):
            return self._layer(call, frame)
        if names:
            return self._named_operation(call, names, frame)
        if isinstance(function, ast.Attribute):
            row = operations.method(function.attr)
            return self._operation(row, function.attr, [function.value, *node.args], call, frame)
        return Unclear(node)

    def _named_operation(self, call: Call, names: frozenset[str], frame: Frame) -> Value:
        """A call of what has a name outside the project: only torch's operations are known by it."""
        node = call.node
        rows = {id(row): row for name in names if (row := operations.operation(name)) is not None}
        functions = all(operations.operation(name) is not None for name in names)
        if functions and len(rows) == 1:
            (row,) = rows.values()
            first = next((it.value for it in node.keywords if it.arg in TENSOR_ARGUMENTS), None)
            given = [first, *node.args] if first is not None else node.args
            return self._operation(row, row.name, given, call, frame)
        if isinstance(node.func, ast.Attribute):
            given = [node.func.value, *node.args]
            known = all(name.startswith(TENSOR_HOMES) for name in names)
            # What the model or a loader hands out is a tensor, wherever their classes come from.
            known = known or kinds.tensor(self._value(node.func.value, frame), node) not in PLAIN
            row = operations.method(node.func.attr) if known else None
            return self._operation(row, node.func.attr, given, call, frame)
        values = [kinds.tensor(value, node) for value in self._all(handed(node), frame)]
        torchs = all(name.startswith("torch.") for name in names)
        return _same_or_unclear(values, node) if torchs and values else Unclear(node)

    def _forward(self, call: Call, frame: Frame) -> Value:
        """A wrapped model."""
        return Kind.OUTPUT

    def _loss(self, call: Call, frame: Frame) -> Value:
        """A loss of torch.nn."""
        node = call.node
        reduction, problem = losses.reduction(self.context, call)
        given = losses.tensors(call)
        if given is None:
            return Unclear(node)
        values = [kinds.tensor(value, node) for value in self._all(given, frame)]
        if (blamed := kinds.unclear(values)) is not None:
            return blamed
        if Kind.MOVED in values and not losses.is_elementwise(call):
            return Unclear(node)
        value = kinds.elementwise(values, node)
        if value is Kind.PICKED and reduction == "mean":
            return Unclear(node, picked(node.args[0] if node.args else node), refuted=True)
        if value is Kind.WHOLE:
            return value
        if isinstance(value, Unclear) or value in PLAIN or problem is not None:
            return Unclear(node, problem, refuted=problem is not None)
        return {"none": value, "sum": Kind.TOTAL}.get(reduction, Kind.MEAN)

    def _builtin(self, call: Call, frame: Frame) -> Value:
        node = call.node
        (name,) = {name.rpartition(".")[2] for name in call.names} if len(call.names) == 1 else ("",)
        if name == "len" and node.args:
            value = self._value(node.args[0], frame)
            if isinstance(value, Held | Every) or value in (*PLAIN, Kind.WHOLE):
                return Kind.SAME
            if self._is_list(node.args[0]) or self.context.made(self.program.values(node.args[0]), LOADER):
                return Kind.SAME
            part = node.args[0]
            if value is Kind.BATCH and (self._holds_tensor(part) or self._is_only_counted(part)):
                return Kind.COUNT
            counted = {Kind.ROWS: Kind.COUNT, Kind.PLACES: Kind.TOTAL, Kind.PICKED: Kind.TOTAL}
            return counted[value] if value in counted else Unclear(node)
        if name == "next" and node.args:
            return self._drawn(node.args[0], frame)
        if name == "zip" and len(node.args) == 1 and isinstance(node.args[0], ast.Starred):
            rows = self._value(node.args[0].value, frame)
            return Every(rows) if rows is Kind.ROWS else rows if isinstance(rows, Unclear) else Unclear(node)
        if name in ASKS_TYPE:
            return Kind.SAME
        if name in OF_ONE and len(node.args) == 1:
            value = self._value(node.args[0], frame)
            keeps = name in HANDS_TENSOR_ON or value in PLAIN
            return value if keeps or isinstance(value, Unclear) else Unclear(node)
        if name == "sum" and len(node.args) == 1:
            element = self._drawn(node.args[0], frame)
            return kinds.computed(ast.Add(), Kind.ZERO, element, node)
        if name in OF_SEVERAL:
            values = [kinds.tensor(value, node) for value in self._all(node.args, frame)]
            return _same_or_unclear(values, node)
        return Unclear(node)

    def _holds_tensor(self, node: ast.expr) -> bool:
        shown = isinstance(node, ast.Name) and is_tensor(self.context, node)
        return shown or self._is_moved_part(node)

    def _is_moved_part(self, node: ast.expr) -> bool:
        """Whether a name is a tensor that was taken out of a batch: moved as one is, never asked for a key."""
        if not isinstance(node, ast.Name):
            return False
        names = [it for it in self.program.body(self.program.scope(node)) if isinstance(it, ast.Name)]
        uses = [it for it in names if it.id == node.id]
        for definition in self.program.definitions(node):
            if isinstance(definition, ast.arg):
                return False
            match right_side(self.program.statement(definition), definition):
                case ast.Call(func=ast.Attribute(attr="to", value=ast.Name() as moved)):
                    drawn = [it for it in self.program.definitions(moved) if it is not definition]
                    if not drawn or not all(isinstance(self.program.parent(it), ast.Tuple) for it in drawn):
                        return False
                case ast.Call(func=ast.Attribute(attr="to", value=ast.Subscript() as part)):
                    if not self._is_part(part):
                        return False
                case None if isinstance(self.program.parent(definition), ast.Tuple):
                    if not any(
                        self._is_move_of(it, definition) or self._is_read_of(it, definition) for it in uses
                    ):
                        return False
                case _:
                    return False
        return not any(map(self._is_asked_by_name, uses))

    def _is_only_counted(self, node: ast.expr) -> bool:
        """Whether a part of a batch is asked for its length, shown or collected, and nothing else: names of samples.

        A list of views or a dictionary of features is taken apart somewhere.
        """
        if not self._is_part(node):
            return False
        text, scope = ast.unparse(node), self.program.scope(node)
        found = (it for it in self.program.body(scope) if isinstance(it, type(node)))
        loads = (it for it in found if isinstance(it.ctx, ast.Load))  # type: ignore[attr-defined]
        uses = [it for it in loads if ast.unparse(it) == text and self._value(it, OPEN) is Kind.BATCH]
        return all(map(self._is_kept_as_it_is, uses))

    def _is_part(self, node: ast.expr) -> bool:
        """Whether an expression names one of several things that a batch is made of."""
        match node:
            case ast.Subscript(value=ast.Name() as batch, slice=ast.Constant(value=int() | str())):
                return self._value(batch, OPEN) is Kind.BATCH
            case ast.Name():
                made = self.last(node)
                given = [None if isinstance(it, ast.arg) else self._part_given(it) for it in made]
                return bool(given) and all(given)
        return False

    def _part_given(self, definition: ast.AST) -> bool:
        """Whether a name is given a part of a batch where it is defined: unpacked, or taken out of it."""
        inside = definition
        while isinstance(parent := self.program.parent(inside), ast.Tuple | ast.List):
            inside = parent
        source = right_side(self.program.statement(definition), definition)
        if source is not None and not isinstance(self.program.parent(definition), ast.Tuple | ast.List):
            return isinstance(source, ast.Subscript) and self._is_part(source)
        numbered = isinstance(parent, ast.For) and len(getattr(inside, "elts", ())) == 2
        call = self.program.call(parent.iter) if numbered else None  # type: ignore[union-attr]
        if call is not None and "builtins.enumerate" in call.names:
            return self.program.parent(definition) is not inside
        return inside is not definition

    def _is_kept_as_it_is(self, use: ast.AST) -> bool:
        """``len(x)``, ``seen.extend(x)``, ``print(x)``, ``f"{x}"``, ``zip(x, …)``: nothing that takes it apart."""
        match self.program.parent(use):
            case ast.Call(func=ast.Name(id=function), args=given) if function in KEEPS_WHOLE:
                return use in given
            case ast.Call(func=ast.Attribute(attr="append" | "extend"), args=given):
                return use in given
            case ast.FormattedValue():
                return True
            case ast.AugAssign(op=ast.Add(), value=added):
                return added is use
        return False

    def _is_read_of(self, use: ast.Name, definition: ast.AST) -> bool:
        """``x.tolist()`` and ``x.numpy()``: no list and no dictionary has that."""
        method = self.program.parent(use)
        asked = isinstance(method, ast.Attribute) and method.attr in LEAVES_TORCH
        return asked and definition in self.program.definitions(use)

    def _is_move_of(self, use: ast.Name, definition: ast.AST) -> bool:
        """``x.cuda()`` and ``x.to(device)``, where ``x`` is what a definition gives it."""
        method = self.program.parent(use)
        moves = isinstance(method, ast.Attribute) and method.attr in MOVES
        return moves and definition in self.program.definitions(use)

    def _is_asked_by_name(self, use: ast.Name) -> bool:
        """``x["key"]`` and ``f(**x)``, also of ``x`` that is moved."""
        around = self.program.parent(use)
        moved = isinstance(around, ast.Attribute) and around.attr in MOVES
        call = self.program.parent(around) if moved else None
        return _asks_by_name(around) or (call is not None and _asks_by_name(self.program.parent(call)))

    def _layer(self, call: Call, frame: Frame) -> Value:
        """Layers that are not wrapped: those applied to every sample by itself."""
        layers = self.program.values(called(call.node))
        does = [self._layer_does(layer) for layer in layers]
        values = self._all([*call.node.args, *(it.value for it in call.node.keywords)], frame)
        found = kinds.elementwise(values, call.node)
        if found in PLAIN:
            return Kind.SAME
        fits = found in BY_SAMPLE and all(it in PLAIN or it in BY_SAMPLE for it in map(_tensor_of, values))
        if None in does or not does or (Does.SAMPLES in does and found not in DEALT) or not fits:
            return found if isinstance(found, Unclear) or found is Kind.UNKNOWN else Unclear(call.node)
        return found

    def _layer_does(self, value: object, asked: frozenset[object] = frozenset()) -> Does | None:
        """What a layer does to rows, or several in order; None where it may look at several samples."""
        if not isinstance(value, Made) or value in self.altered:
            return None
        if value.name != SEQUENTIAL:
            return layer_does(self.program, value)
        held = self.held(value)
        behind = asked | {value}
        inner = [self.program.values(it) for it in held or ()]
        if held is None or not all(inner):
            return None
        found = {self._layer_does(it, behind) for values in inner for it in values if it not in asked}
        return None if None in found else Does.NUMBERS if found <= {Does.NUMBERS} else Does.SAMPLES

    def is_layer(self, value: object, asked: frozenset[object] = frozenset()) -> bool:
        """Whether an object is a layer of torch.nn that treats every sample by itself, or several in order.

        ``asked``: those that it is part of.
        """
        return self._layer_does(value, asked) is not None

    def held(self, made: Made) -> list[ast.expr] | None:
        """What a container of modules is made of; None where that can't be seen."""
        call = self.program.call(self.program.node(made.site))
        if call is None or call.node.keywords or made in self.altered:
            return None
        given = call.node.args if made.name == SEQUENTIAL else [ast.Starred(it) for it in call.node.args]
        return self._elements(given)

    @cached_property
    def altered(self) -> Values:
        """What gets other modules, or hooks, after it was made."""
        return frozenset(self._altered)

    def altered_at(self, value: Made | Inst) -> ast.AST:
        """Where something gets them first."""
        return self._altered[value]

    @cached_property
    def _altered(self) -> dict[Any, ast.AST]:
        found: dict[Any, ast.AST] = {}
        for node in self.program.nodes.values():
            if (changed := self._altering(node)) is not None:
                for value in self.program.values(changed):
                    found.setdefault(value, node)
        return found

    def _altering(self, node: ast.AST) -> ast.expr | None:
        """What a piece of code gives other modules, or hooks."""
        match node:
            case ast.Call(func=ast.Attribute(attr="apply", value=changed), args=[function]):
                return None if self._initialises(function) else changed
            case ast.Call(func=ast.Attribute(attr=method, value=changed)) if method in (
                *CONTAINER_ADDS,
                *MODULE_HOOKS,
            ):
                return changed
            case ast.Call(func=ast.Name(id="setattr"), args=[changed, *_]):
                return changed
            case ast.Subscript(value=changed, ctx=ast.Store() | ast.Del()):
                return changed
            case ast.Attribute(attr="_modules", value=changed):
                return changed
        return None

    def _initialises(self, function: ast.expr) -> bool:
        """Whether a function that is applied to every layer leaves the layers as they are, but for their numbers."""
        functions = self.program.values(function)
        if not functions or not all(isinstance(it, Func) for it in functions):
            return False
        scopes = {one.scope for one in functions} - self._applied  # type: ignore[union-attr]
        self._applied |= scopes  # one may well be applied by itself
        nodes = [it for scope in sorted(scopes) for it in self.program.body(self.program.scopes[scope])]
        stored = (it for it in nodes if isinstance(it, ast.Attribute) and isinstance(it.ctx, ast.Store))
        fine = all(it.attr in INITIALISED for it in stored) and not any(map(self._altering, nodes))
        self._applied -= scopes
        return fine

    def _elements(self, given: Iterable[ast.expr]) -> list[ast.expr] | None:
        """The elements of a display, those of the lists in it included; None where one can't be seen."""
        found: list[ast.expr] = []
        for element in given:
            inner = self._listed(element.value) if isinstance(element, ast.Starred) else [element]
            if inner is None:
                return None
            found += inner
        return found

    def _listed(self, node: ast.expr) -> list[ast.expr] | None:
        """The elements that a list may have."""
        match node:
            case ast.List() | ast.Tuple():
                return self._elements(node.elts)
            case ast.ListComp() | ast.GeneratorExp():
                return [node.elt]
            case ast.BinOp(op=ast.Add(), left=one, right=other) | ast.IfExp(body=one, orelse=other):
                return self._elements([ast.Starred(one), ast.Starred(other)])
            case ast.Name():
                return self._collected(node)
        return None

    def _collected(self, name: ast.Name) -> list[ast.expr] | None:
        """The elements of a list that a function makes, adds to and hands on, and does nothing else with."""
        scope = self.program.scope(name)
        key = scope.index, name.id
        if key in self._collecting:
            return []  # `layers = layers + [layer]`
        given: list[ast.expr] = []
        for use in self.program.body(scope):
            if not isinstance(use, ast.Name) or use.id != name.id:
                continue
            parent = self.program.parent(use)
            match parent:
                case ast.Assign(targets=[target], value=value) if target is use:
                    given.append(ast.Starred(value))
                case ast.AugAssign(op=ast.Add(), target=target, value=value) if target is use:
                    given.append(ast.Starred(value))
                case ast.Attribute(attr="append" | "extend" as method):
                    call = self.program.parent(parent)
                    if not isinstance(call, ast.Call) or len(call.args) != 1:
                        return None
                    given.append(call.args[0] if method == "append" else ast.Starred(call.args[0]))
                case ast.Starred() | ast.Return():
                    pass
                case ast.Call(args=args) if use in args and self._makes_module(parent):
                    pass
                case _:
                    return None
        if not any(isinstance(it, ast.Starred) for it in given) or name.id in scope.globals:
            return None
        self._collecting.add(key)
        found = self._elements(given)
        self._collecting.discard(key)
        return found

    def _makes_module(self, call: ast.Call) -> bool:
        found = self.program.call(call)
        return (
            found is not None and bool(found.names) and all(it.startswith("torch.nn.") for it in found.names)
        )

    def _operation(
        self, row: Operation | None, name: str, given: list[ast.expr], call: Call, frame: Frame
    ) -> Value:
        """A function of torch, or a method: ``given[0]`` is what it works on. Without a row, it is not known."""
        node = call.node
        does = row.does(Arguments()) if row is not None and row.rule in operations.FIXED else None
        is_method = bool(given) and isinstance(node.func, ast.Attribute) and node.func.value is given[0]
        if does is Does.FILLS and not (is_method and name[:4] != "new_"):
            return self._filled(node, frame)
        if not given:
            return Unclear(node)
        if does is Does.ORDERS:
            return self._numbered(node, frame)
        value = self._value(given[0], frame)
        keywords = {it.arg: it.value for it in node.keywords if it.value is not given[0]}
        if value is Kind.UNKNOWN:
            return value
        rest = self._all([*given[1:], *keywords.values()], frame)
        if isinstance(value, Unclear):
            return _blamed([value, *rest], node)
        is_plain = all(kinds.tensor(it, node) in PLAIN for it in rest)
        if name in DICT_CONTENTS and is_method and is_plain:
            return kinds.element(value, node) if name in ONE_ELEMENT else value
        if name == "where" and len(given) == 1:
            places = Held(((0, Kind.PLACES), (1, Unclear(node))))
            return places if value in BY_SAMPLE else Unclear(node)
        if value in PLAIN and is_plain and does is not Does.HANDS_ON:
            return Kind.SAME
        if row is None or (is_method and value in PLAIN and not is_plain and self._is_foreign(given[0])):
            return Unclear(node)
        shift = 0 if row.name == "einsum" else 1
        arguments = Arguments(
            tuple(given[shift:]),
            keywords,
            rank=self._rank(given[0]),
            is_flat=self._may_be_flat(given[0]),
            least=self._least_rank(given[0]),
            counts=lambda it: self._counts(it, frame),
            is_of_batch=lambda it: kinds.tensor(self._value(it, frame), it)
            not in (*PLAIN, Kind.COUNT, Kind.SHAPE),
            is_rows=lambda it: kinds.tensor(self._value(it, frame), it) in DEALT,
            number=self._written,
        )
        return self._done(row, row.does(arguments), [value, *rest], call, arguments)

    def _done(
        self, row: Operation, does: Does, values: list[Value], call: Call, arguments: Arguments
    ) -> Value:
        """What comes of an operation that does so much to what it is given."""
        node, value, rest = call.node, values[0], values[1:]
        if does is Does.HANDS_ON:
            return Kind.ROWS if value in (Kind.ROWS, Kind.BATCH) and row.name != "to" else value
        if does in (Does.MEAN, Does.TOTAL):
            if isinstance(value, Every) and value.element in (*AVERAGED, Kind.TOTAL, Kind.WHOLE):
                return value.element
            if isinstance(value, Held | Every):
                return Unclear(node)
            if row.name == "dot":
                return kinds.total(kinds.elementwise(values, node), node)
            found = kinds.mean(value, node) if does is Does.MEAN else kinds.total(value, node)
            return replace(found, refuted=value is Kind.PICKED) if isinstance(found, Unclear) else found
        if does is Does.TELLS:
            return Kind.SAME if value in BY_SAMPLE else Unclear(node)
        if does in (Does.SHAPE, Does.COUNTS):
            return self._size(does, value, arguments, node)
        if row.shapes:
            return self._reshaped(row, does, value, rest, node)
        if does is Does.MIXES and row.name == "sum" and value is Kind.PICKED:
            along = arguments.get(0, "dim", "axis")
            return Kind.TOTAL if along is not None and arguments.numbers(along) == [0] else Unclear(node)
        last = len(values) if row.rows is None else row.rows
        found = kinds.elementwise(values[:last], node)
        if isinstance(found, Unclear) or any(kinds.tensor(it, node) not in PLAIN for it in values[last:]):
            factors = [*node.args, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
            pairs = row.name in PAIRS_ROWS or (row.name == "matmul" and self._turns(factors))
            met = pairs and all(kinds.tensor(it, node) in BY_SAMPLE for it in values[:2])
            mixes = met or _surely_mixes(row, arguments, value)
            return found if isinstance(found, Unclear) and not mixes else Unclear(node, refuted=mixes)
        match does:
            case Does.NUMBERS:
                return found
            case Does.LOOKS_UP if kinds.tensor(value, node) in PLAIN and found in DEALT:
                return Kind.ROWS
            case Does.SAMPLES if value in PLAIN and row.name in FILLS_BY_INDEX:
                return Unclear(node)  # as many rows as it has, not as the part
            case Does.SAMPLES if found in DEALT:
                return Kind.ROWS
            case Does.PARTS if found in DEALT:
                return Every(Kind.ROWS)
            case Does.PICKS if found in BY_SAMPLE:
                return Kind.PICKED
        return Unclear(node, refuted=_surely_mixes(row, arguments, value))

    def _is_foreign(self, node: ast.expr) -> bool:
        """Whether what a method is called of is made by what is neither torch's nor the project's."""
        waiting: list[ast.AST] = [node]
        seen: set[int] = set()
        while waiting:
            part = waiting.pop()
            if id(part) in seen:
                continue
            seen.add(id(part))
            names = {full_name(it) for it in self.program.values(part) if not isinstance(it, Const)}
            call = self.program.call(part) if isinstance(part, ast.Call) else None
            names |= call.names if call is not None else set()
            if any(name and not name.startswith(NO_TENSORS_OF_OTHERS) for name in names):
                return True
            if isinstance(part, ast.Name | ast.Attribute):
                waiting += (it for one in self.program.definitions(part) for it in self._behind(one))
            elif isinstance(part, ast.BinOp | ast.UnaryOp | ast.IfExp | ast.Subscript):
                waiting += (it for it in ast.iter_child_nodes(part) if isinstance(it, ast.expr))
        return False

    def _counts(self, size: ast.expr, frame: Frame) -> bool:
        """Whether a size is the number of samples, or a shape that begins with it."""
        value = self._value(size.value if isinstance(size, ast.Starred) else size, frame)
        return value in (Kind.COUNT, Kind.SHAPE)

    def _written(self, node: ast.expr) -> int | None:
        """A number that is written, or that a name can only be."""
        number = written(node)
        if number is not None or not isinstance(node, ast.Name | ast.Attribute):
            return number
        held = {it.value if isinstance(it, Const) else None for it in self.program.values(node)}
        single = held.pop() if len(held) == 1 and self.is_followed(node) else None
        return single if isinstance(single, int) and not isinstance(single, bool) else None

    @cached_property
    def _dimensions(self) -> Dimensions:
        return Dimensions(self.context)

    def _rank(self, node: ast.expr) -> int | None:
        """How many dimensions a tensor has, where the code says it."""
        rank = self._dimensions.of(node)
        return rank if rank is not None and rank > 0 else None

    def _may_be_flat(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether a tensor may well have one number for each sample: dimensions were taken from it."""
        if depth > NAMES:
            return False
        match node:
            case ast.Call(func=function):
                name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
                call = self.program.call(node)
                if call is not None and losses.is_any_loss(self.context, call):
                    return True
                if name in TAKES_DIMENSIONS:
                    return not any(it.arg == "keepdim" for it in node.keywords)
                inner = [function.value] if isinstance(function, ast.Attribute) else []
                return any(self._may_be_flat(it, depth + 1) for it in [*inner, *node.args[:1]])
            case ast.BinOp(left=left, right=right):
                sides = [it for it in (left, right) if not isinstance(it, ast.Constant)]
                return bool(sides) and all(self._may_be_flat(it, depth + 1) for it in sides)
            case ast.UnaryOp(operand=operand):
                return self._may_be_flat(operand, depth + 1)
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return any(self._may_be_flat(it, depth + 1) for it in elements)
            case ast.Subscript(slice=ast.Tuple(elts=parts)):
                return any(isinstance(it, ast.Constant) for it in parts)
            case ast.Name():
                return any(
                    self._may_be_flat(it, depth + 1)
                    for definition in self.program.definitions(node)
                    for it in self._behind(definition)
                )
        return False

    def _least_rank(self, node: ast.expr, depth: int = 0) -> int:
        """How many dimensions a tensor has at least; rows have two, but where that is one number for each sample."""
        least = 1 if self._may_be_flat(node) else 2
        match node:
            case ast.Call(func=ast.Attribute(attr=name, value=value)) if depth < NAMES:
                if name in BY_SIZES:
                    sizes = [size for given in node.args for size in getattr(given, "elts", [given])]
                    return max(len(sizes), 1)
                return self._least_rank(value, depth + 1) + 1 if name == "unsqueeze" else least
            case ast.Name() if depth < NAMES:
                held = [it for one in self.program.definitions(node) for it in self._behind(one)]
                return min((self._least_rank(it, depth + 1) for it in held), default=least)
        return least

    def _numbered(self, node: ast.Call, frame: Frame) -> Value:
        """``torch.arange(len(inputs))``: the numbers of the rows, where they are those of a part."""
        values = self._all(handed(node), frame)
        if values == [Kind.COUNT] or (values[:1] == [Kind.COUNT] and all(it in PLAIN for it in values[1:])):
            if "torch.arange" in self.program.call(node).names:  # type: ignore[union-attr]
                return Kind.NUMBERED
        return _same_or_unclear(values, node)

    def _filled(self, node: ast.Call, frame: Frame) -> Value:
        """``torch.zeros(len(inputs), 3)``: rows, where the first size is that of the samples."""
        given, limits = self._sized(node)
        sizes = [size for it in given for size in getattr(it, "elts", [it])]
        bounds = self._all(limits, frame)
        if not all(value in PLAIN for value in bounds):
            return _blamed(bounds, node)
        values = self._all([it.value if isinstance(it, ast.Starred) else it for it in sizes], frame)
        if values == [Kind.ROWS] and given[0] not in node.keywords:
            return Kind.ROWS  # `torch.FloatTensor(rows)`
        if values and values[0] in (Kind.COUNT, Kind.SHAPE) and all(it in PLAIN for it in values[1:]):
            return Kind.ROWS
        return _same_or_unclear(values, node)

    def _sized(self, node: ast.Call) -> tuple[list[ast.expr], list[ast.expr]]:
        """What a call that fills a tensor is given as its sizes, and the limits of what it fills it with."""
        named = [it.value for it in node.keywords if it.arg in SIZE_ARGUMENTS]
        limits = [it.value for it in node.keywords if it.arg in NUMBER_ARGUMENTS]
        if getattr(node.func, "attr", "") != "randint":
            return [*node.args, *named], limits
        call = self.program.call(node)
        names = call.names if call is not None else set()
        given = len(node.args)
        first = (SIZE_PLACES.get(name, given) for name in names)
        place = min((at if at >= 0 else given + at for at in first), default=given)
        place = given if named else place
        return [*node.args[place:], *named], [*node.args[:place], *limits]

    def _size(self, does: Does, value: Value, arguments: Arguments, node: ast.Call) -> Value:
        given = arguments.get(0, "dim")
        if value in PLAIN:
            return Kind.SAME
        if value in (Kind.PLACES, Kind.PICKED):
            sizes = _shape_of_some(node)
            whole = sizes if given is None else kinds.entry(sizes, written(given), node)
            return Kind.TOTAL if does is Does.COUNTS else whole
        if value not in DEALT:
            return Kind.COUNT if does is Does.COUNTS and value is Kind.MOVED else Unclear(node)
        if does is Does.COUNTS:
            return Kind.COUNT
        return Kind.SHAPE if given is None else kinds.entry(Kind.SHAPE, written(given), node)

    def _reshaped(self, row: Operation, does: Does, value: Value, rest: list[Value], node: ast.Call) -> Value:
        """Whether the samples are still in the first dimension."""
        inner = kinds.tensor(value, node)
        sizes = [kinds.tensor(it, node) for it in rest]
        if row.name == "stack" and inner in (*AVERAGED, Kind.TOTAL, Kind.WHOLE):
            return Every(inner)
        if does is Does.MIXES:
            return Unclear(node)
        if (
            inner is Kind.BATCH
            and row.name in JOINS_BY_NAME
            and row.name != "stack"
            and self.context.hands_lists
        ):
            return Unclear(node)
        if inner in PLAIN and row.name in SPREADS:
            return Kind.ROWS if does is Does.SAMPLES else Unclear(node)
        if any(it not in (*PLAIN, Kind.COUNT, Kind.SHAPE) for it in sizes) and row.name not in SHAPES_LIKE:
            return _blamed(sizes, node)
        if inner in DEALT:
            return (
                inner
                if does is Does.SAMPLES and row.name in JOINS_BY_NAME
                else (Kind.ROWS if does is Does.SAMPLES else Kind.MOVED)
            )
        return inner if inner in (*PLAIN, Kind.MOVED) or isinstance(inner, Unclear) else Unclear(node)


def layer_does(program: Program, made: Made) -> Does | None:
    """What a layer of torch does to rows, by what it is made with; None where it may look at several samples."""
    row = operations.operation(made.name)
    call = program.call(program.node(made.site))
    if row is None or call is None or made.name not in operations.LAYER_NAMES:
        return None
    keywords = {it.arg: it.value for it in call.node.keywords}
    does = row.does(Arguments(tuple(call.node.args), keywords, is_layer=True))
    return does if does in (Does.NUMBERS, Does.SAMPLES) else None


def _surely_mixes(row: Operation, arguments: Arguments, value: Value) -> bool:
    """Whether an operation mixes samples: along dimension 0 only where it is known that they are there."""
    told = row.rule not in operations.FIXED and (arguments.given or arguments.keywords)
    return operations.surely_mixes(row, arguments) and not (value is Kind.MOVED and told)


def _same_or_unclear(values: list[Value], place: ast.AST) -> Value:
    """What is computed from what is the same in all processes; of anything else it is not known what comes."""
    left = {kinds.tensor(value, place) for value in values if value not in PLAIN}
    if left == {Kind.UNKNOWN}:
        return Kind.UNKNOWN  # what it is made from is still being asked for
    return _blamed(values, place) if left else Kind.SAME


def _blamed(values: list[Value], place: ast.AST) -> Unclear:
    """A value that is not known because of one that it is computed from, or else by itself."""
    return kinds.unclear(kinds.tensor(value, place) for value in values) or Unclear(place)


def _tensor_of(value: Value) -> Value:
    return kinds.tensor(value, ast.Pass())


def _shape_of_some(place: ast.AST) -> Value:
    """The shape of as many rows as the data say: the parts' first sizes add up to the whole batch's."""
    return Held(((0, Kind.TOTAL), (None, Unclear(place))))


def picked(place: ast.AST) -> Problem:
    """What to say of a mean over as many elements as the data say."""
    shown = ast.unparse(place)
    return Problem(
        f"the loss is a mean over the selected elements `{shown}`, whose number differs across ranks", ""
    )


def by_place(place: ast.AST) -> Problem:
    """What to say of samples in an order that is not that of the batch."""
    shown = ast.unparse(place)
    return Problem(
        f"the loss uses `{shown}`: it takes samples by index, but a rank has only its local batch", ""
    )


def called(call: ast.Call) -> ast.expr:
    """The module of ``model(x)`` and ``model.forward(x)``."""
    match call.func:
        case ast.Attribute(attr="forward", value=model):
            return model
    return call.func


def _reads(place: ast.AST, statement: ast.AST) -> list[ast.AST]:
    """What decides what a place writes, and where: but for the first index, and what is written into."""
    match place:
        case ast.Subscript(slice=index):
            value = getattr(statement, "value", None)
            return [
                *(index.elts[1:] if isinstance(index, ast.Tuple) else []),
                *([value] if value is not None else []),
            ]
        case ast.AugAssign(value=value):
            return [value]
        case ast.Call():
            return [*handed(place), *([place.func.value] if isinstance(place.func, ast.Attribute) else [])]
    return []


def _is_method(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)


def _stored_in(place: ast.expr) -> ast.expr:
    """What a place stores into, by whichever name of its data: ``self.queue`` of ``self.queue.data[index]``."""
    held: ast.expr = place
    while True:
        match held:
            case ast.Call(func=ast.Attribute(value=inner)) | ast.Subscript(value=inner):
                held = inner
            case ast.Attribute(value=inner, attr="data"):
                held = inner
            case _:
                return held


def _asks_for_list(test: ast.expr, name: str) -> bool | None:
    """Whether a condition says that a name is a list or a tuple (True), or is none (False); None for others."""
    match test:
        case ast.UnaryOp(op=ast.Not()):
            asked = _asks_for_list(test.operand, name)
            return None if asked is None else not asked
        case ast.Call(func=ast.Name(id="isinstance"), args=[ast.Name(id=asked), kind]):
            return True if asked == name and _names_list(kind) else None
        case ast.Compare(left=left, ops=[operator], comparators=[kind]):
            if ast.unparse(left) == f"type({name})" and _names_list(kind):
                return isinstance(operator, ast.Eq | ast.Is | ast.In)
    return None


def _names_list(kind: ast.expr) -> bool:
    return all(ast.unparse(part) in SEQUENCES for part in getattr(kind, "elts", [kind]))


def _hands_on(value: ast.AST, place: ast.expr) -> bool:
    """``batch[i].cuda()``, which is stored where it was."""
    while (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in HANDS_ON
    ):
        value = value.func.value
        if ast.unparse(value) == ast.unparse(place):
            return True
    return False


def right_side(statement: ast.AST, definition: ast.AST) -> ast.expr | None:
    """What an assignment gives a name; None where it is taken out of something."""
    match statement:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
            pairs = dict(zip(names, values, strict=False)) if len(names) == len(values) else {}
            return pairs.get(definition)  # type: ignore[call-overload]
        case ast.Assign(targets=targets, value=value) if definition in targets:
            return value
        case ast.AugAssign(value=value):
            return value
    return None


def right_sides(statement: ast.stmt | None, made: ast.AST) -> list[ast.expr]:
    """What a definition is given, with the whole of what it is taken out of."""
    match statement:
        case ast.Assign(targets=targets, value=value):
            pairs = [it for it in targets if isinstance(it, ast.Tuple) and made in it.elts]
            if pairs and isinstance(value, ast.Tuple) and len(value.elts) == len(pairs[0].elts):
                return [value.elts[pairs[0].elts.index(made)]]  # type: ignore[arg-type]
            return [value]
        case ast.AugAssign(target=target, value=value):
            return [value, target]
        case ast.AnnAssign(value=ast.expr() as value):
            return [value]
        case ast.For(iter=source):
            return [source]
    return []


def _written(name: ast.expr) -> str:
    """A name or attribute as it is written."""
    return name.id if isinstance(name, ast.Name) else ast.unparse(name)


def _asks_by_name(use: ast.AST) -> bool:
    """``x["key"]`` and ``f(**x)``."""
    match use:
        case ast.Subscript(slice=ast.Constant(value=str())) | ast.keyword(arg=None):
            return True
    return False


@once
def _last(context: Context, use: ast.AST) -> list[ast.AST]:
    """Without those that another one hides: ``for x in …`` round the use, and ``x += …`` before it."""
    program, definitions = context.program, context.program.definitions(use)
    order = program.order
    loops: list[ast.AST] = []
    for around in program.ancestors(use) if definitions else ():
        if isinstance(around, ast.For | ast.While):
            if isinstance(around, ast.For) and not program.is_inside(use, around.iter):
                bound = [it for it in definitions if program.is_inside(it, around.target)]
                if bound:
                    return [
                        it
                        for it in definitions
                        if it in bound or _is_between(program, it, use, around, loops)
                    ]
            loops.append(around)
    inside = {id(node) for node in program.ancestors(use)}
    for definition in sorted(definitions, key=lambda it: order[id(it)], reverse=True):
        parent = program.parent(definition)
        if isinstance(parent, ast.AugAssign) and order[id(definition)] < order[id(use)]:
            if id(program.parent(parent)) in inside:
                return [it for it in definitions if order[id(it)] >= order[id(definition)]]
    return definitions


def _is_between(
    program: Program, definition: ast.AST, use: ast.AST, loop: ast.AST, inner: list[ast.AST]
) -> bool:
    """Whether a definition in a loop's body may come between the loop's own and the use."""
    around = {id(node) for node in program.ancestors(definition)}
    before = program.order[id(definition)] < program.order[id(use)]
    itself = program.statement(definition) is program.statement(use)
    return id(loop) in around and ((before and not itself) or any(id(it) in around for it in inner))


@once
def _conditions(context: Context, node: ast.AST) -> list[tuple[ast.expr, bool]]:
    """The conditions that a place depends on in its function, each with the answer that keeps it from being run."""
    program, found = context.program, []
    inside = node
    for around in program.ancestors(node):
        if isinstance(around, ast.If) and (inside in around.body or inside in around.orelse):
            found.append((around.test, inside in around.orelse))
        if isinstance(inside, ast.stmt):
            block = program.block(inside)
            for before in block[: block.index(inside)]:
                if isinstance(before, ast.If):
                    ways = ((True, before.body), (False, before.orelse))
                    found += [(before.test, answer) for answer, taken in ways if _leaves(taken)]
        if isinstance(around, ast.FunctionDef):
            break
        inside = around
    return [(test, kept) for test, kept in found if _may_be_answered(test)]


def _leaves(block: list[ast.stmt]) -> bool:
    """Whether a block ends its function."""
    return bool(block) and isinstance(block[-1], ast.Return | ast.Raise)


def _may_be_answered(test: ast.expr) -> bool:
    """Whether the arguments of a call may answer a condition: see ``Samples._answer``."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _may_be_answered(operand)
        case ast.Attribute(attr=name):
            return name == "training"
        case ast.Call(func=ast.Name(id="isinstance")) | ast.Compare(left=ast.Name()):
            return True
    return isinstance(test, ast.Name)


@once
def _tests(context: Context, statement: ast.stmt, use: ast.AST) -> list[ast.expr]:
    """The conditions round a statement, but for those round a use as well."""
    inside = {id(node) for node in context.program.ancestors(use)}
    return [
        around.test
        for around in context.program.ancestors(statement)
        if isinstance(around, ast.If | ast.While) and id(around) not in inside
    ]


def _is_part(node: ast.expr, target: ast.expr) -> bool:
    """Whether an expression is a part of what a loop takes, by constant names and numbers: ``it.x``, ``it[0]``."""
    while isinstance(node, ast.Attribute) or (
        isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
    ):
        node = node.value
    names = {it.id for it in ast.walk(target) if isinstance(it, ast.Name)}
    return isinstance(node, ast.Name) and node.id in names


def _names_dimension(node: ast.Call) -> bool:
    return any(it.arg in DIMENSION_ARGUMENTS for it in node.keywords)
