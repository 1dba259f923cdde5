"""Which expressions of a training loop are tensors, and no numbers of Python's."""

from __future__ import annotations

import ast

from dp2ddp.analyse.api.purity import ARRAYS_AND_BUILTINS
from dp2ddp.analyse.api.tensors import LEAVES_TORCH
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.dataflow.definitions import right_side
from dp2ddp.analyse.training.whole_batch import WholeBatch

STEPS = 2000
"""How many expressions one question may lead to."""


class Tensors:
    """Tells tensors from numbers, by what they are made of."""

    def __init__(self, context: Context, values: WholeBatch) -> None:
        self.program, self.values = context.program, values
        self._steps = STEPS
        self.own: set[int] = set()  # the functions of the training loop
        self.above: set[int] = set()  # those that are handed numbers by another one, which runs the model
        self.asks_callers = False  # whether a parameter of these functions is what it is given

    def handed_back(self, value: ast.expr) -> list[ast.expr]:
        """What a function of the training loop returns, in the place of its call."""
        entered = self.program.entered(value) if isinstance(value, ast.Call) else frozenset()
        returned = [
            node.value
            for index in entered & self.own
            for node in self.program.body(self.program.scopes[index])
            if isinstance(node, ast.Return) and node.value is not None
        ]
        return returned or [value]

    def is_tensor(self, node: ast.expr, asked: frozenset[ast.AST] = frozenset()) -> bool:
        """Whether an expression is a tensor, and no number of Python's; ``asked`` are definitions in question."""
        if not asked:
            self._steps = STEPS
        self._steps -= 1
        if self._steps < 0:
            return False
        match node:
            case ast.Constant() | ast.Subscript(value=ast.Attribute(attr="shape")):
                return False
            case ast.Call(func=ast.Attribute(attr=method)) if method in (*LEAVES_TORCH, "size"):
                return False
            case ast.Call():
                own = [self.program.scopes[index] for index in self.program.called_scopes(node.func)]
                returned = [
                    it
                    for scope in own
                    for it in self.program.body(scope)
                    if isinstance(it, ast.Return) and it not in asked
                ]
                names = self.program.names_of(node)
                if any(name.startswith(ARRAYS_AND_BUILTINS) for name in names):
                    return False
                method = node.func.value if isinstance(node.func, ast.Attribute) else None
                held = self.program.definitions(method) if isinstance(method, ast.Name) else []
                computed = isinstance(method, ast.Call | ast.BinOp | ast.Compare | ast.Subscript) or (
                    held and not any(isinstance(it, ast.arg) for it in held)
                )
                if computed and not own and not self.is_tensor(method, asked):  # type: ignore[arg-type]
                    return False
                return all(it.value is None or self.is_tensor(it.value, asked | {it}) for it in returned)
            case ast.Compare():
                return self.is_tensor(node.left, asked)
            case ast.BinOp():
                return self.is_tensor(node.left, asked) or self.is_tensor(node.right, asked)
            case ast.UnaryOp():
                return self.is_tensor(node.operand, asked)
            case ast.Name() if self.values.is_trained(node):
                return True
            case ast.Name() | ast.Attribute():
                found = frozenset(self.program.definitions(node))
                values = [part for it in found - asked for part in self._right_sides(it)]
                given = self.program.scope(node).index in self.above
                return bool(found) and all(
                    not given if it is None else self.is_tensor(it, asked | found) for it in values
                )
            case ast.Subscript() if self.program.scope(node).index in self.above:
                return False
        return True

    def is_added_up(self, node: ast.expr, base: ast.expr) -> bool:
        """Whether ``base`` is tensors added to a number, and ``node`` a tensor's method of it, which no number has."""
        if not isinstance(base, ast.Name) or base is node:
            return False
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return False
        statements = [self.program.statement(it) for it in self.program.definitions(base)]
        sides = [it.value for it in statements if isinstance(it, ast.Assign | ast.AugAssign)]
        added = [it for it in sides if not isinstance(it, ast.Constant)]
        return bool(added) and len(sides) == len(statements) and all(map(self._is_sum, added))

    def _is_sum(self, node: ast.expr) -> bool:
        """Whether an expression is a tensor, or Python's sum of some."""
        if isinstance(node, ast.Call) and self.program.names_of(node) == {"builtins.sum"} and node.args:
            summed = node.args[0]
            return isinstance(summed, ast.GeneratorExp | ast.ListComp) and self.is_tensor(summed.elt)
        return self.is_tensor(node)

    def _right_sides(self, definition: ast.AST) -> list[ast.expr | None]:
        """What a name may be assigned, its entries where a function of the training loop hands back several."""
        if isinstance(definition, ast.arg) and self.asks_callers:
            inside = self.program.scope(definition).index in self.own
            return [*self.program.given(definition)] or [None] if inside else [self.right_side(definition)]
        statement = self.program.statement(definition)
        around = self.program.parent(definition)
        if isinstance(statement, ast.AugAssign):  # `loss *= 0.5` is a tensor where it was one
            return [statement.target]
        if not isinstance(statement, ast.Assign) or not isinstance(around, ast.Tuple):
            return [self.right_side(definition)]
        place = around.elts.index(definition)  # type: ignore[arg-type]
        handed = self.handed_back(statement.value)
        entries = [it.elts for it in handed if isinstance(it, ast.Tuple) and len(it.elts) > place]
        return [it[place] for it in entries] if len(entries) == len(handed) else [None]

    def right_side(self, definition: ast.AST) -> ast.expr | None:
        """What a name is assigned; None where it is taken out of something."""
        if isinstance(definition, ast.arg):
            return ast.Constant(None)
        return right_side(self.program.statement(definition), definition)
