"""Objects that add up: which attributes a method adds to, and what else it keeps."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from dp2ddp.analyse.api.numbers import METERS
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.updates import updated
from dp2ddp.analyse.program.values import Cls, Inst, Values


@dataclass(frozen=True)
class Added:
    """The attributes that a method adds to, and those of which it keeps the last value."""

    sums: frozenset[str]
    latest: frozenset[str]

    @property
    def is_meter(self) -> bool:
        """Whether ``ddp.sum`` takes the object whole."""
        return set(self.sums) in METERS


def added(context: Context, values: Values, method: str) -> Added | None:
    """What a method of some objects does to them; None where it may do more than to add and to keep."""
    found = set()
    for value in values:
        scopes = _methods(context, value, method) if isinstance(value, Inst) else set()
        found |= {_added(context.program.scopes[index]) for index in scopes} or {None}
    return found.pop() if len(found) == 1 else None


def is_of_sums(context: Context, values: Values, attribute: str, sums: frozenset[str]) -> bool:
    """Whether an attribute of meters is one of their sums or made of these: their ratio, a property or a method."""
    if attribute in sums or attribute == "avg":
        return True
    scopes = [
        context.program.scopes[index] for value in values for index in _methods(context, value, attribute)
    ]
    return bool(scopes) and all(
        _reads(scope.node, scope.params[0]) <= {*sums, "avg"} for scope in scopes if scope.params
    )


def begins(
    context: Context,
    values: Values,
    sums: frozenset[str],
    is_zero: Callable[[ast.expr], bool],
    method: str = "",
) -> bool:
    """Whether sums begin with 0: in all assignments of the class that make them, or by a method that makes all."""
    program = context.program
    for value in values:
        if not isinstance(value, Inst):
            return False
        own = [base for base in program.bases(value.cls) if isinstance(base, Cls)]
        nodes = [program.scopes[base.scope].node for base in own]
        if method:
            nodes = [program.scopes[index].node for index in _methods(context, value, method)]
        made: set[str] = set()
        for node in (it for around in nodes for it in ast.walk(around)):
            for target in node.targets if isinstance(node, ast.Assign) else ():
                for name, right in _pairs(target, node.value):
                    if name in sums and not _reads(right, "self") & sums:
                        made.add(name)
                        if not is_zero(right):
                            return False
        if made != sums:
            return False
    return bool(values)


def _methods(context: Context, value: object, name: str) -> set[int]:
    if not isinstance(value, Inst):
        return set()
    return context.program.methods(value, name, context.program.node(value.site))


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[str, ast.expr]]:
    """The attributes of ``self`` that an assignment sets, with what they get."""
    if isinstance(target, ast.Tuple):
        values = value.elts if isinstance(value, ast.Tuple) else [value] * len(target.elts)
        return [pair for one, other in zip(target.elts, values, strict=False) for pair in _pairs(one, other)]
    is_own = isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"
    return [(target.attr, value)] if is_own else []  # type: ignore[union-attr]


def _added(scope: Scope) -> Added | None:
    me = scope.params[0] if scope.params else ""
    sums: set[str] = set()
    kept: set[str] = set()
    read: set[str] = set()
    waiting = list(scope.body)
    while waiting:
        statement = waiting.pop(0)
        change = updated(statement)
        match change.target if change is not None and isinstance(change.op, ast.Add) else None:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if change is not None and owner == me:
                sums.add(name)
                read |= _reads(change.value, me) - {"val"}
                continue
        match statement:
            case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Assert():
                pass
            case ast.If(test=test, body=body, orelse=orelse) if _reads(test, me) <= {"count"}:
                if _reads(test, me) and any(map(updated, ast.walk(statement))):
                    return None  # the sums depend on what came before
                waiting = [*body, *orelse, *waiting]
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=owner), attr=name)], value=value) if (
                owner == me
            ):
                match value:
                    case ast.BinOp(left=left, op=ast.Div(), right=right) if (
                        name == "avg"
                        and ast.unparse(left) in (f"{me}.sum", f"{me}.total")
                        and ast.unparse(right)
                        in (f"{me}.count", f"max({me}.count, 1)", f"max(1, {me}.count)")
                    ):
                        pass
                    case _:
                        kept.add(name)
                        read |= _reads(value, me)
            case ast.Assign(targets=[ast.Name()], value=value):
                read |= _reads(value, me)
            case _:
                return None
    if not sums or sums & kept or read & (sums | kept):
        return None
    return Added(frozenset(sums), frozenset(kept))


def _reads(node: ast.AST, me: str) -> set[str]:
    """The attributes of an object that an expression reads."""
    return {
        it.attr
        for it in ast.walk(node)
        if isinstance(it, ast.Attribute) and isinstance(it.value, ast.Name) and it.value.id == me
    }
