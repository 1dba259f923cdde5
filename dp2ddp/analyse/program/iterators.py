"""Classes of the project whose objects hand out what an iterable does, one by one and as it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.analyse.api.iteration import BEGINS, NEXT_METHODS
from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.values import Cls, Ext, Inst

PLAIN = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr


@dataclass(frozen=True)
class Handing:
    """What a class iterates over: the parameter of its ``__init__`` at ``position``, not counting the object.

    ``calls``: identities of the calls by which it does so.
    """

    parameter: str
    position: int
    calls: frozenset[int]


def handing(program: Program, cls: Cls) -> Handing | None:
    """How the objects of a class iterate over an argument; None where they may do more than that."""
    node: ast.ClassDef = program.scopes[cls.scope].node  # type: ignore[assignment]
    if any(program.values(base) != {Ext("builtins.object")} for base in node.bases) or node.keywords:
        return None
    methods = {it.name: it for it in node.body if isinstance(it, ast.FunctionDef)}
    if not {*BEGINS} <= methods.keys() or node.decorator_list:
        return None
    return _Iterated(program, cls, methods).handing()


def generating(scope: Scope) -> ast.For | None:
    """The loop of an ``__iter__`` that hands out what an attribute of the object does, each as it is, perhaps not all.

    It may end early by the number of the round and the attributes of the object, not by what it yields.
    """
    node = scope.node
    statements = _statements(node) if isinstance(node, ast.FunctionDef) and not node.decorator_list else []
    match [it for it in statements if it is None or not _only_says(it)]:
        case [ast.For(target=target, iter=source, body=body, orelse=[]) as loop]:
            counter: ast.expr | None = None
            match target, source:
                case ast.Tuple(elts=[counter, target]), ast.Call(  # type: ignore[misc]
                    func=ast.Name(id="enumerate"), args=[source], keywords=[]
                ):
                    pass
            handed = [it for it in body if isinstance(it, ast.Expr)]
            ends = [it for it in body if it not in handed]
            told = {*scope.params[:1], *([counter.id] if isinstance(counter, ast.Name) else [])}
            match source, target, handed:
                case (
                    ast.Attribute(value=ast.Name(id=owner)),
                    ast.Name(id=name),
                    [ast.Expr(value=ast.Yield(value=ast.Name(id=yielded)))],
                ) if (
                    owner in scope.params[:1] and name == yielded and name not in told
                ):
                    return loop if all(_ends_by(it, told) for it in ends) else None
    return None


def _only_says(statement: ast.stmt) -> bool:
    """Whether a statement hands nothing out."""
    yields = (ast.Yield, ast.YieldFrom, ast.Await)
    return isinstance(statement, ast.Expr) and not any(isinstance(it, yields) for it in ast.walk(statement))


def gone_through(loop: ast.For) -> ast.expr:
    """What such a loop hands out."""
    return loop.iter.args[0] if isinstance(loop.iter, ast.Call) else loop.iter


def _ends_by(statement: ast.stmt, told: set[str]) -> bool:
    """Whether a statement at most ends a loop, by names of some and what they hold alone."""
    match statement:
        case ast.If(test=test, body=[ast.Break()], orelse=[]):
            names = {it.id for it in ast.walk(test) if isinstance(it, ast.Name)}
            return names <= told and not any(isinstance(it, ast.Call) for it in ast.walk(test))
    return False


class _Iterated:
    """One class, looked at."""

    def __init__(self, program: Program, cls: Cls, methods: dict[str, ast.FunctionDef]) -> None:
        self.program, self.cls, self.methods = program, cls, methods

    def handing(self) -> Handing | None:
        """Its ``__iter__`` begins anew, yields, or is of the object itself, whose ``__next__`` takes one at a time."""
        if (loop := generating(self.program.by_node[id(self.methods["__iter__"])])) is not None:
            return self._given(gone_through(loop), id(loop.iter))
        *before, last = _statements(self.methods["__iter__"])
        if not isinstance(last, ast.Return) or not all(isinstance(it, PLAIN) for it in before):
            return None
        if self._is_own(last.value):
            return self._taken()
        return None if before else self._begun(last.value)

    def _taken(self) -> Handing | None:
        """What ``__next__`` takes from, where it is the one place that does."""
        method = self.methods.get("__next__")
        *before, last = _statements(method) if method is not None else [None]
        if not isinstance(last, ast.Return) or not all(isinstance(it, PLAIN) for it in before):
            return None
        taking = last.value
        if isinstance(taking, ast.Name):
            uses = [it for it in ast.walk(method) if isinstance(it, ast.Name) and it.id == taking.id]  # type: ignore[arg-type]
            made = [it for it in before if isinstance(it, ast.Assign) and it.targets == uses[:1]]
            if len(uses) != 2 or not made:
                return None
            taking = made[0].value
        held = self._argument(taking, "builtins.next", NEXT_METHODS)
        if not isinstance(held, ast.Attribute) or not self._is_own(held.value):
            return None
        looks = [it for it in self._mentions(held.attr) if isinstance(it.ctx, ast.Load)]
        begun = self._begun(self._assigned(held.attr, BEGINS)) if looks == [held] else None
        calls = frozenset({id(taking)})
        return None if begun is None else Handing(begun.parameter, begun.position, begun.calls | calls)

    def _begun(self, value: ast.expr | None) -> Handing | None:
        """``iter(x)``, of a parameter of ``__init__`` or the attribute that it is kept in."""
        return self._given(self._argument(value, "builtins.iter", ("__iter__",)), id(value))

    def _given(self, source: ast.expr | None, call: int) -> Handing | None:
        """A parameter of ``__init__`` or the attribute that it is kept in, which a call goes through."""
        if isinstance(source, ast.Attribute) and self._is_own(source.value):
            source = self._assigned(source.attr, ("__init__",))
        parameters = self.methods["__init__"].args.args[1:]
        found = self.program.definitions(source) if isinstance(source, ast.Name) else []
        if len(found) != 1 or found[0] not in parameters:
            return None
        parameter: ast.arg = found[0]  # type: ignore[assignment]
        return Handing(parameter.arg, parameters.index(parameter), frozenset({call}))

    def _argument(self, node: ast.expr | None, function: str, methods: tuple[str, ...]) -> ast.expr | None:
        """What a function is given, or what one of its methods in place of it is called of."""
        call = self.program.call(node) if isinstance(node, ast.Call) else None
        match call.node if call is not None else None:
            case ast.Call(func=ast.Attribute(value=owner, attr=method), args=[], keywords=[]):
                return owner if method in methods else None
            case ast.Call(args=[given], keywords=[]):
                return given if call.names == {function} else None  # type: ignore[union-attr]
        return None

    def _is_own(self, node: ast.AST | None) -> bool:
        """Whether an expression is the object itself, in one of its methods."""
        if not isinstance(node, ast.Name):
            return False
        method = self.program.scope(node).node
        names = [it for it in ast.walk(method) if isinstance(it, ast.Name) and it.id == node.id]
        return (
            method in self.methods.values()
            and self.program.scope(node).params[:1] == [node.id]
            and all(isinstance(it.ctx, ast.Load) for it in names)
        )

    def _assigned(self, attribute: str, methods: tuple[str, ...]) -> ast.expr | None:
        """What an attribute always is: one assignment makes it, a statement of one of some methods."""
        stores = [it for it in self._mentions(attribute) if not isinstance(it.ctx, ast.Load)]
        statements = [it for name in methods for it in _statements(self.methods[name])]
        made = [it for it in statements if isinstance(it, ast.Assign) and it.targets == stores]
        return made[0].value if made and self._is_own(stores[0].value) else None

    def _mentions(self, attribute: str) -> Iterator[ast.Attribute]:
        """The uses of an attribute of that name which may be one of the object's."""
        for node in self.program.nodes.values():
            if isinstance(node, ast.Attribute) and node.attr == attribute:
                values = self.program.values(node.value)
                if not values or any(isinstance(it, Inst) and it.cls == self.cls for it in values):
                    yield node


def _statements(method: ast.FunctionDef | None) -> list[ast.stmt | None]:
    """The statements of a method, without what documents it."""
    body: list[ast.stmt | None] = [*method.body] if method is not None else []
    match body:
        case [ast.Expr(value=ast.Constant(value=str())), *rest]:
            body = rest
    return body or [None]
