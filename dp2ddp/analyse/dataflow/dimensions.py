"""How many dimensions a tensor has, as far as the code says it: enough to tell a single number from a row of them."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from dp2ddp.analyse.api import operations
from dp2ddp.analyse.api.layers import SEQUENTIAL
from dp2ddp.analyse.api.losses import REDUCED
from dp2ddp.analyse.api.naming import LOADER
from dp2ddp.analyse.api.numbers import CHOOSES_NUMBER, MAKES_NUMBER
from dp2ddp.analyse.api.purity import COMPUTES_NUMBERS
from dp2ddp.analyse.api.tensors import (
    ARITHMETIC,
    BY_SIZES,
    FUNCTION_HOMES,
    GIVES_NUMBERS,
    GIVES_TWO,
    KEEPS_DIMENSIONS,
    LAYERS_KEEP_DIMENSIONS,
    NO_TENSORS,
    OF_ONE_SIZE,
    OF_TENSORS_ALONE,
    REDUCES,
    REORDERS_DIMENSIONS,
    RESHAPES,
    TAKES_DIMENSIONS,
    TENSOR_OF_NUMBER,
)
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.dataflow import losses
from dp2ddp.analyse.dataflow.definitions import NAMES, given_to, names_options
from dp2ddp.analyse.dataflow.samples.layers import layers_in
from dp2ddp.analyse.processes.conditions import OPTIONS
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.sources import How
from dp2ddp.analyse.program.values import Func, Inst, Made, Value, closure

NUMBER = -1
"""A number of Python's, which has no dimensions to speak of: a tensor without any is 0."""

NOTHING_YET = -2
"""What is made from itself alone, as far as is known."""
DEPTH = 40
ROUNDS = 4
LEVELS = 8
OF_SECOND = 3
"""What losses take that have the samples in dimension 1: time, samples and classes."""
FUEL = 2000
"""How much is looked at for one question."""


class Dimensions:
    """Follows the tensors of one program."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.program = context.program
        self._known: dict[int, int | None] = {}
        self._running: dict[int, int | None] = {}
        self._assumed: set[int] = set()
        self._fuel = FUEL
        self._flat: dict[tuple[int, int], bool] = {}
        self._scalars = self._backward()
        self._known |= self._by_losses()

    def of(self, node: ast.AST) -> int | None:
        """The number of dimensions, ``NUMBER`` for a number of Python's; None where it is not known."""
        key = id(node)
        if key in self._known:
            return self._known[key]
        if key in self._running:
            self._assumed.add(key)
            return self._running[key]
        self._fuel = FUEL if not self._running else self._fuel - 1
        if len(self._running) > DEPTH or self._fuel < 0:
            return None
        value: int | None = NOTHING_YET
        others, found = self._assumed, None
        for _ in range(ROUNDS):  # what is made from itself: what is assumed of it is tried until it holds
            self._running[key], self._assumed = value, set()
            found = self._compute(node)
            del self._running[key]
            if found == value or key not in self._assumed:
                break
            value = found
        else:
            found = None
        still_open = self._assumed - {key}
        self._assumed = others | still_open
        if not still_open:
            self._known[key] = found
        return found

    def rank(self, node: ast.AST) -> int | None:
        """How many dimensions a tensor has, where the code says it."""
        rank = self.of(node)
        return rank if rank is not None and rank > 0 else None

    def may_be_flat(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether a tensor may well have one number for each sample: dimensions were taken from it."""
        key = id(node), depth
        if key not in self._flat:
            self._flat[key] = depth <= NAMES and self._may_be_flat(node, depth)
        return self._flat[key]

    def _may_be_flat(self, node: ast.expr, depth: int) -> bool:
        match node:
            case ast.Call(func=function):
                name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
                call = self.program.call(node)
                if call is not None and losses.is_any_loss(self.context, call):
                    return True
                if name in TAKES_DIMENSIONS:
                    return not any(it.arg == "keepdim" for it in node.keywords)
                inner = [function.value] if isinstance(function, ast.Attribute) else []
                return any(self.may_be_flat(it, depth + 1) for it in [*inner, *node.args[:1]])
            case ast.BinOp(left=left, right=right):
                sides = [it for it in (left, right) if not isinstance(it, ast.Constant)]
                return bool(sides) and all(self.may_be_flat(it, depth + 1) for it in sides)
            case ast.UnaryOp(operand=operand):
                return self.may_be_flat(operand, depth + 1)
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return any(self.may_be_flat(it, depth + 1) for it in elements)
            case ast.Subscript(slice=ast.Tuple(elts=parts)):
                return any(isinstance(it, ast.Constant) for it in parts)
            case ast.Name():
                return any(self.may_be_flat(it, depth + 1) for it in given_to(self.program, node))
        return False

    def least_rank(self, node: ast.expr, depth: int = 0) -> int:
        """How many dimensions a tensor has at least; rows have two, but where that is one number for each sample."""
        least = 1 if self.may_be_flat(node) else 2
        match node:
            case ast.Call(func=ast.Attribute(attr=name, value=value)) if depth < NAMES:
                if name in BY_SIZES:
                    sizes = [size for given in node.args for size in getattr(given, "elts", [given])]
                    return max(len(sizes), 1)
                return self.least_rank(value, depth + 1) + 1 if name == "unsqueeze" else least
            case ast.Name() if depth < NAMES:
                held = given_to(self.program, node)
                return min((self.least_rank(it, depth + 1) for it in held), default=least)
        return least

    def is_single(self, node: ast.AST) -> bool:
        """Whether an expression is a tensor of one number without dimensions: an index into it fails."""
        return self.of(node) == 0

    def _backward(self) -> list[frozenset[ast.AST]]:
        """The definitions of each name that a backward pass starts from without a gradient: it is one number.

        So is what else the same function makes with the same settings: the loss of an evaluation.
        """
        losses_ = [self.context.loss(call) for call in self.context.backwards if not call.args]
        names = (frozenset(self.program.definitions(it)) for it in losses_ if isinstance(it, ast.Name))
        found = [it for it in names if it]
        made = {self._made_by(it) for one in found for it in one} - {None}
        stored = (it for it in self.program.nodes.values() if isinstance(it, ast.Name) and made)
        return found + [
            frozenset([it])
            for it in stored
            if isinstance(it.ctx, ast.Store)
            and self._made_by(it) in made
            and not any(it in one for one in found)
        ]

    def _made_by(self, definition: ast.AST) -> tuple[object, ...] | None:
        """What a name alone is assigned that a call returns: what is called, and with which settings."""
        match self.program.parent(definition):
            case ast.Assign(targets=[target], value=ast.Call() as node) if target is definition:
                call = self.program.call(node)
                settings = [
                    len(node.args),
                    *(ast.unparse(it) for it in node.args if isinstance(it, ast.Constant)),
                ]
                settings += sorted(ast.unparse(it) for it in node.keywords)
                return (call.callees, ast.unparse(node.func), *settings) if call and call.callees else None
        return None

    def _by_losses(self) -> dict[int, int]:
        """What a loss is given that takes so many dimensions of several samples, and what it is made of as it is."""
        found: dict[int, int] = {}
        for call in self.program.calls:
            node = losses.second(call) if losses.is_loss(self.context, call) else None
            while node is not None and id(node) not in found:
                found[id(node)] = OF_SECOND
                node = self._kept(node)
        return found

    def _kept(self, node: ast.expr) -> ast.expr | None:
        """What an expression has the dimensions of: what a name is given, or an operation works on that keeps them."""
        match node:
            case ast.Name():
                definitions = self.program.definitions(node)
                behind = (
                    [it for one in definitions for it in self._behind(one)] if len(definitions) == 1 else []
                )
                return behind[0] if len(behind) == 1 else None  # type: ignore[return-value]
            case ast.Call(func=ast.Attribute(attr=name, value=value)) if (
                name in KEEPS_DIMENSIONS | REORDERS_DIMENSIONS
            ):
                call = self.program.call(node)
                homes = {it.rpartition(".")[0] for it in call.names} if call is not None else set()
                if homes and homes <= FUNCTION_HOMES:
                    return node.args[0] if node.args else None
                return None if homes and not homes <= {"torch.Tensor"} else value
        return None

    def _compute(self, node: ast.AST) -> int | None:
        match node:
            case ast.Constant(value=bool() | int() | float()):
                return NUMBER
            case ast.Name():
                return self._named(node)
            case ast.Attribute(
                attr="data", value=ast.Call(func=ast.Attribute(attr=name), args=[], keywords=[])
            ):
                return 0 if name in REDUCES else self.of(node.value)
            case ast.Attribute() if node.attr in KEEPS_DIMENSIONS:
                return self.of(node.value)
            case ast.Attribute():
                return NUMBER if names_options(self.program, node) else self._named(node)
            case ast.UnaryOp():
                return self.of(node.operand)
            case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.FloorDiv() | ast.Pow()):
                return self._together([node.left, node.right])
            case ast.Compare():
                return self._together([node.left, *node.comparators])
            case ast.IfExp():
                return self._either([node.body, node.orelse])
            case ast.AugAssign():
                return self._together([node.value])
            case ast.Subscript():
                return self._element(node)
            case ast.Call():
                return self._call(node)
        return None

    def _together(self, nodes: Iterable[ast.AST]) -> int | None:
        """What is computed of several, number by number."""
        found = [self.of(node) for node in nodes]
        return None if None in found else max(found)  # type: ignore[type-var]

    def _either(self, nodes: Iterable[ast.AST]) -> int | None:
        """What may be any of several: a sum that begins with a number of Python's ends as a tensor."""
        return _one(map(self.of, nodes))

    # Names

    def _named(self, name: ast.expr) -> int | None:
        definitions = self.program.definitions(name)
        parts = [part for definition in definitions for part in self._behind(definition)]
        found = (
            self._either(part for part in parts if part is not None) if parts and None not in parts else None
        )
        held = frozenset(definitions)
        one = bool(held) and any(held <= scalars for scalars in self._scalars)
        return 0 if found is None and one else found

    def _behind(self, definition: ast.AST) -> list[ast.AST | None]:
        """What a name is given by a definition; None where that is no expression of its own."""
        if isinstance(definition, ast.arg):
            return [*self.program.given(definition)] or [None]
        source = self.program.source(definition)
        if source.how is How.AUGMENTED:
            return [self.program.statement(definition)]
        if source.how is not How.ASSIGNED or source.value is None:
            return [None]
        match source.place:
            case ():
                return [source.value]
            case (int(place),):
                return [*self._entries(source.value, place)] or [None]
        return [None]

    def _entries(self, value: ast.AST, place: int) -> list[ast.AST | None]:
        """What one element of a tuple or list may be."""
        match value:
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                starred = any(isinstance(it, ast.Starred) for it in elements)
                return [elements[place]] if not starred and place < len(elements) else [None]
            case ast.Name():
                return self._collected(value, place)
            case ast.Call():
                found = [self._entries(it, place) for it in self._returned(value)]
                return [part for parts in found for part in parts] or [None]
        return [None]

    def _collected(self, name: ast.Name, place: int) -> list[ast.AST | None]:
        """What one element of a list may be that is filled by ``append``."""
        begun = [it for it in self.program.definitions(name) if not isinstance(it, ast.arg)]
        statements = [self.program.statement(it) for it in begun]
        values = [it.value for it in statements if isinstance(it, ast.Assign)]
        if len(values) != len(self.program.definitions(name)) or not all(
            isinstance(it, ast.List) for it in values
        ):
            return [entry for it in values for entry in self._entries(it, place)] or [None]
        added: list[ast.AST | None] = []
        for node in self.program.body(self.program.scope(name)):
            match node:
                case ast.Call(func=ast.Attribute(attr="append", value=held), args=[value]):
                    if isinstance(held, ast.Name) and held.id == name.id:
                        added.append(value)
        return [*(it for value in values for it in value.elts), *added] or [None]  # type: ignore[attr-defined]

    def _returned(self, node: ast.Call) -> list[ast.AST]:
        """What a function of the project returns to a call."""
        call = self.program.call(node)
        if call is None:
            return []
        scopes: list[Scope] = []
        if self.context.is_wrapped(call.callees):
            models = closure(call.callees, self.context.inside)
            return self._handed([it for it in models if not self.context.is_wrapped(frozenset([it]))], node)
        if call.names:
            return []
        for callee in call.callees:
            scopes += [self.program.scopes[index] for index, _, _ in self.program.targets(callee, call)]
            if isinstance(callee, Func) and isinstance(self.program.scopes[callee.scope].node, ast.Lambda):
                return []
        return self._results(scopes)

    def _handed(self, models: list[Value], place: ast.AST) -> list[ast.AST]:
        """What the forwards of models of the project return; nothing where one has none that is seen."""
        own = [self.program.methods(it, "forward", place) if isinstance(it, Inst) else () for it in models]
        return self._results([self.program.scopes[it] for found in own for it in found]) if all(own) else []

    def _results(self, scopes: list[Scope]) -> list[ast.AST]:
        """What functions return that hand out nothing else."""
        body = [inner for scope in scopes for inner in self.program.body(scope)]
        if any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in body):
            return []
        return [it.value for it in body if isinstance(it, ast.Return) and it.value is not None]

    # Calls

    def _element(self, node: ast.Subscript) -> int | None:
        value, index = node.value, node.slice
        if isinstance(index, ast.Constant) and isinstance(index.value, int):
            parts = self._entries(value, index.value) if isinstance(value, ast.Call) else [None]
            if None not in parts:
                return self._either(part for part in parts if part is not None)
            inner = self.of(value)
            return inner - 1 if inner is not None and inner > 0 else None
        inner = self.of(value) if isinstance(index, ast.Slice) else None
        return inner if inner is not None and inner > 0 else None

    def _call(self, node: ast.Call) -> int | None:
        call = self.program.call(node)
        if call is None:
            return None
        if losses.is_any_loss(self.context, call):
            return self._loss(call)
        names, function = call.names, node.func
        last = next(iter(names)).rpartition(".")[2] if len(names) == 1 else ""
        if names and all(name.startswith("builtins.") for name in names):
            return self._builtin(last, node)
        if names and all(name.startswith(COMPUTES_NUMBERS) for name in names):
            return NUMBER if all(self.of(it) == NUMBER for it in handed(node)) else None
        if names == {"torch.autograd.Variable"} and node.args:
            return self.of(node.args[0])
        if all(map(self._is_layer, call.callees)) and call.callees and len(node.args) == 1:
            return _one(self._after(it, node.args[0]) for it in call.callees)  # type: ignore[arg-type]
        if names and all(name.rpartition(".")[0] in FUNCTION_HOMES for name in names):
            given = node.args
            whole = len(given) == 1 and not node.keywords and last in REDUCES
            return 0 if whole else self._operation(last, given, node)
        if returned := self._returned(node):
            return self._either(returned)
        if any(not name.startswith(("torch.", *OPTIONS)) for name in names):
            return None  # what has such a name elsewhere is not known
        if isinstance(function, ast.Attribute):
            return self._operation(function.attr, [function.value, *node.args], node)
        return None

    def _is_layer(self, value: Value) -> bool:
        return isinstance(value, Made) and operations.canonical(value.name) in (
            SEQUENTIAL,
            *LAYERS_KEEP_DIMENSIONS,
        )

    def _after(self, layer: Made, given: ast.expr | None) -> int | None:
        """How many dimensions a layer of torch hands out, or several in order."""
        layers = layers_in(self.context)
        held = layers.held(layer) if layer.name == SEQUENTIAL else []
        if held is None or layer in layers.altered:
            return None
        is_spread = any(isinstance(it, ast.Starred) for it in self.program.node(layer.site).args)  # type: ignore[attr-defined]
        for values in (self.program.values(it) for it in reversed(held)):
            if values and all(self._is_layer(it) and it.name != SEQUENTIAL for it in values):  # type: ignore[union-attr]
                continue
            if len(values) != 1 or is_spread:
                return None
            (last,) = values
            if isinstance(last, Made):
                return self._after(last, None) if last.name == SEQUENTIAL else None
            return _one(map(self.of, self._handed([last], self.program.node(layer.site))))
        return None if given is None else self.of(given)

    def is_tensor(self, node: ast.AST, seen: frozenset[int] = frozenset()) -> bool:
        """Whether something says that an expression is a tensor: tables have means, too."""
        if id(node) in seen or len(seen) > LEVELS:
            return False
        if self.of(node) in (0, 1):
            return True
        inner: list[ast.AST | None] = []
        match node:
            case ast.Name():
                definitions = self.program.definitions(node)
                inner = [it for definition in definitions for it in self._behind(definition)]
                if any(map(self._is_drawn, definitions)):
                    return True
            case ast.BinOp():
                inner = [node.left, node.right]
            case ast.Subscript() | ast.Attribute(attr="data" | "grad"):
                inner = [node.value]
            case ast.Compare():
                inner = [node.left]
            case ast.UnaryOp():
                inner = [node.operand]
            case ast.Call():
                call = self.program.call(node)
                if call is None:
                    return False
                of_torch = {it for it in call.names if it.startswith("torch.")}
                if of_torch:
                    return not any(
                        it.startswith("torch.utils.") or it.rpartition(".")[2] in NO_TENSORS
                        for it in of_torch
                    )
                if any(map(self.context.module_class, self.program.values(node.func))):
                    return True
                returned = self._returned(node)
                inner = [*returned]
                if isinstance(node.func, ast.Attribute) and not returned:
                    if node.func.attr in OF_TENSORS_ALONE:
                        return True
                    inner = [node.func.value]
        return any(self.is_tensor(it, seen | {id(node)}) for it in inner if it is not None)

    def _is_drawn(self, definition: ast.AST) -> bool:
        """Whether a name is given something of what a loader hands out."""
        if isinstance(definition, ast.arg):
            return False
        statement = self.program.statement(definition)
        source = statement.iter if isinstance(statement, ast.For) else None
        return source is not None and bool(
            self.context.made(self.context.iterated(self.program.values(source)), LOADER)
        )

    def _loss(self, call: Call) -> int | None:
        if any(name.endswith("AdaptiveLogSoftmaxWithLoss.__call__") for name in call.names):
            return None
        kind, problem = losses.reduction(self.context, call)
        return 0 if kind in REDUCED or (problem is not None and kind == "mean") else None

    def _builtin(self, name: str, node: ast.Call) -> int | None:
        if name in MAKES_NUMBER:
            return NUMBER
        if name in CHOOSES_NUMBER and node.args:
            return self._together(node.args)
        return None

    def _operation(self, name: str, given: list[ast.expr], node: ast.Call) -> int | None:
        """A function of torch or a method: ``given[0]`` is what it works on."""
        keywords = {it.arg: it.value for it in node.keywords}
        rest = given[1:]
        if name in GIVES_NUMBERS:
            return NUMBER if name != "size" or rest else None
        if not given:
            return None
        if name in TENSOR_OF_NUMBER:
            return 0 if self.of(given[0]) == NUMBER else None
        if name in OF_ONE_SIZE and len(given) == 1:
            return 1 if isinstance(given[0], ast.Constant | ast.List) else None
        if name in KEEPS_DIMENSIONS | REORDERS_DIMENSIONS:
            return self.of(given[0])
        if name in ARITHMETIC:
            return self._together(given)
        if name in REDUCES:
            return self._reduced(name, given[0], rest, keywords)
        if name in RESHAPES:
            alone = name == "flatten" and not rest and not keywords
            flat = len(rest) == 1 and ast.unparse(rest[0]) == "-1"
            if alone or flat or name == "flatten" or keywords:
                return 1 if alone or flat else None
            sizes = getattr(rest[0], "elts", []) if len(rest) == 1 else rest
            return len(sizes) if sizes and not any(isinstance(it, ast.Starred) for it in sizes) else None
        return None

    def _reduced(
        self, name: str, value: ast.expr, rest: list[ast.expr], keywords: dict[str | None, ast.expr]
    ) -> int | None:
        """What is left of a tensor that is reduced: to one number, or along a dimension."""
        kept = keywords.get("keepdim", rest[1] if len(rest) > 1 else None)
        given = keywords.get("dim", keywords.get("axis", rest[0] if rest else None))
        if given is None:
            whole = not rest and kept is None
            return 0 if whole and (name in OF_TENSORS_ALONE or self.is_tensor(value)) else None
        if name == "norm" and "dim" not in keywords:
            return 0 if len(rest) == 1 else None
        number = given.operand if isinstance(given, ast.UnaryOp) else given
        is_number = isinstance(number, ast.Constant) and isinstance(number.value, int)
        inner = self.of(value)
        if name in GIVES_TWO or not is_number or inner is None or inner < 1:
            return None
        if kept is None or (isinstance(kept, ast.Constant) and not kept.value):
            return inner - 1
        return inner if isinstance(kept, ast.Constant) else None


def _one(each: Iterable[int | None]) -> int | None:
    """What may be any of several."""
    found = {*each} - {NOTHING_YET}
    found = found - {NUMBER} or found
    return NOTHING_YET if not found else found.pop() if len(found) == 1 else None
