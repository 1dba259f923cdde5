"""What a call may call, on which objects, and what it gives each parameter."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Set

from dp2ddp.analyse.context import Context
from dp2ddp.analyse.processes.conditions import assigned
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.signature import bind
from dp2ddp.analyse.program.values import Bound, Cls, Func, Inst, Made, Value, Values
from dp2ddp.analyse.rank_variance.store import Frame, Store


def is_outside(call: Call) -> bool:
    """Whether a call may be of something that is not the project's."""
    return any(not isinstance(it, Func | Bound | Cls | Inst) for it in call.callees)


class Callees:
    """What calls call, in the ways in which the functions are called that they stand in."""

    def __init__(self, context: Context, store: Store) -> None:
        self.context, self.program, self.store = context, context.program, store
        self._choices: dict[int, set[int]] = {}

    def targets(self, callee: Value, call: Call) -> Iterator[tuple[int, Value | None, bool]]:
        """The functions behind a callee, the object of each, and whether that is its first parameter."""
        if isinstance(callee, Made) and callee.name == "functools.partial":
            for value in self.program.values(self.prepared(callee).args[0]):
                if isinstance(value, Func | Bound):
                    yield from self.targets(value, call)
        yield from self.program.targets(callee, call)

    def prepared(self, partial: Made) -> ast.Call:
        return self.program.node(partial.site)  # type: ignore[return-value]

    def choosing(self, scope: int) -> Set[int]:
        """The parameters of a function by which it chooses what it calls."""
        if scope not in self._choices:
            names = (self._chosen_by(it.func) for it in self._calls_in(scope))
            found = (it for name in names if name is not None for it in ast.walk(name))
            self._choices[scope] = {
                id(it)
                for name in found
                if isinstance(name, ast.Name)
                for it in self.program.definitions(name)
                if isinstance(it, ast.arg)
            }
        return self._choices[scope]

    def _calls_in(self, scope: int) -> Iterator[ast.Call]:
        body = self.program.body(self.program.scopes[scope])
        return (it for it in body if isinstance(it, ast.Call))

    def _chosen_by(self, function: ast.expr) -> ast.expr | None:
        """What a method is chosen by that is called: ``getattr(callback, name)``, or a name for that."""
        if isinstance(function, ast.Name):
            made = assigned(self.context, function)
            function = made[0] if len(made) == 1 else function
        match function:
            case ast.Call(func=ast.Name(id="getattr"), args=[_, name, *_]):
                return name
        return None

    def said(self, node: ast.expr, frame: Frame) -> str | None:
        """The text that an expression is, where a function is called in one way."""
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.Name():
                texts = {dict(frame.said).get(id(it)) for it in self.program.definitions(node)}
                return texts.pop() if len(texts) == 1 else None
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                parts = [self.said(left, frame), self.said(right, frame)]
            case ast.JoinedStr(values=values):
                inner = [it.value if isinstance(it, ast.FormattedValue) else it for it in values]
                parts = [self.said(it, frame) for it in inner]
            case _:
                return None
        return None if None in parts else "".join(map(str, parts))

    def callees(self, call: Call, frame: Frame) -> Iterable[Value]:
        """What is called; any method of an object, where ``getattr(object, name)`` is and the name is not known."""
        name = self._chosen_by(call.node.func)
        said = self.said(name, frame) if name is not None else None
        callees = list(self._any_callee(call))
        named = [it for it in callees if isinstance(it, Bound) and self._is_called(it, said)]
        return named or callees

    def _is_called(self, method: Bound, name: str | None) -> bool:
        return getattr(self.program.scopes[method.func.scope].node, "name", "") == name

    def _any_callee(self, call: Call) -> Iterator[Value]:
        match call.node.func:
            case ast.Call(func=ast.Name(id="getattr"), args=[holder, *_]) if not call.callees:
                for owner in self.program.values(holder):
                    family = self.program.bases(owner.cls) if isinstance(owner, Inst) else ()
                    for scope in self.program.scopes:
                        if scope.owner in family and not scope.node.name.startswith("__"):  # type: ignore[attr-defined]
                            yield Bound(Func(scope.index), owner)
            case _:
                yield from call.callees

    def narrowed(self, node: ast.Call, owners: Values, frame: Frame) -> Values:
        """The objects of a method that a method calls on its own object: those of the one are those of the other."""
        if isinstance(node.func, ast.Attribute) and frame.me:
            holder = node.func.value
            above_it = isinstance(holder, ast.Call) and ast.unparse(holder.func) == "super"
            if above_it or self.store.is_me(holder, frame):
                return (owners & frame.me) or frame.me
        return owners

    def arguments(
        self, node: ast.Call, before: list[ast.expr], scope: Scope, bound: bool
    ) -> dict[int, list[ast.expr]]:
        """What a call gives each parameter of a function; ``before`` was given by ``functools.partial``."""
        taken = scope.takes(bound)
        bindings = bind(node, taken, before)
        found: dict[int, list[ast.expr]] = defaultdict(list)
        collected = [(taken.rest, it) for _, it in bindings.rest]
        collected += [(taken.others, it) for _, it in bindings.others]
        for parameter, value in (*bindings.given, *collected):
            found[id(parameter)].append(value)
        for value in bindings.spread:
            for parameter in taken.every:
                if id(parameter) not in found or parameter in (taken.rest, taken.others):
                    found[id(parameter)].append(value)
        return found
