"""Layers of torch.nn that are not wrapped: what they do to rows, what containers hold, and what alters them."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dp2ddp.analyse.api import operations
from dp2ddp.analyse.api.containers import APPENDS
from dp2ddp.analyse.api.layers import CONTAINER_ADDS, CONTAINERS, INITIALISED, MODULE_HOOKS, SEQUENTIAL
from dp2ddp.analyse.api.operations import Arguments, Does
from dp2ddp.analyse.api.python import MODULE_LISTS
from dp2ddp.analyse.context import Context, once
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.kinds import BY_SAMPLE, DEALT, PLAIN, Kind, Unclear, Value
from dp2ddp.analyse.dataflow.samples.frames import Frame
from dp2ddp.analyse.processes import alike
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.program.values import Func, Inst, Made, Values

if TYPE_CHECKING:
    from dp2ddp.analyse.dataflow.samples.follower import Samples


def called(call: ast.Call) -> ast.expr:
    """The module of ``model(x)`` and ``model.forward(x)``."""
    match call.func:
        case ast.Attribute(attr="forward", value=model):
            return model
    return call.func


def layer_does(program: Program, made: Made) -> Does | None:
    """What a layer of torch does to rows, by what it is made with; None where it may look at several samples."""
    row = operations.operation(made.name)
    call = program.call(program.node(made.site))
    if row is None or call is None or made.name not in operations.LAYER_NAMES:
        return None
    keywords = {it.arg: it.value for it in call.node.keywords}
    does = row.does(Arguments(tuple(call.node.args), keywords, is_layer=True))
    return does if does in (Does.NUMBERS, Does.SAMPLES) else None


def _is_random(name: str) -> bool:
    """Whether a layer or function of torch draws random numbers."""
    row = operations.operation(name)
    return row is not None and row.random


class Layers:
    """What is known of the layers of one program."""

    def __init__(self, context: Context) -> None:
        self.program = context.program
        self._collecting: set[tuple[int, str]] = set()
        self._applied: set[int] = set()

    def does(self, value: object, asked: frozenset[object] = frozenset()) -> Does | None:
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
        found = {self.does(it, behind) for values in inner for it in values if it not in asked}
        return None if None in found else Does.NUMBERS if found <= {Does.NUMBERS} else Does.SAMPLES

    def may_draw(self, value: object, behind: frozenset[object] = frozenset()) -> bool:
        """Whether a module, or one that it holds, may draw random numbers."""
        if value in behind:
            return False
        inside = behind | {value}
        if isinstance(value, Inst):
            fields = (it for _, held in self.program.fields(value) for it in held)
            return self._draws_itself(value) or any(self.may_draw(it, inside) for it in fields)
        if not isinstance(value, Made):
            return False
        if value.name in CONTAINERS:
            held = self.held(value)
            inner = [self.program.values(it) for it in held or ()]
            drawing = any(self.may_draw(it, inside) for values in inner for it in values)
            return held is None or not all(inner) or drawing
        return _is_random(value.name)

    def _draws_itself(self, module: Inst) -> bool:
        """Whether the forward of a class of the project draws."""
        program = self.program
        scopes = program.methods(module, "forward", program.node(module.site))
        nodes = (it for scope in scopes for it in program.body(program.scopes[scope]))
        calls = (program.call(it) for it in nodes if isinstance(it, ast.Call))
        return any(it is not None and (alike.draws(it) or any(map(_is_random, it.names))) for it in calls)

    def held(self, made: Made) -> list[ast.expr] | None:
        """What a container of modules is made of; None where that can't be seen."""
        call = self.program.call(self.program.node(made.site))
        if call is None or call.node.keywords or made in self.altered:
            return None
        given = call.node.args if made.name == SEQUENTIAL else [ast.Starred(it) for it in call.node.args]
        return self._elements([*given, *self._appended.get(made, ())])

    @cached_property
    def _appended(self) -> dict[Value, list[ast.expr]]:
        """What is put at the end of lists of modules."""
        found: dict[Value, list[ast.expr]] = {}
        for call in self.program.calls:
            match call.node:
                case ast.Call(
                    func=ast.Attribute(attr="append" | "extend" as method, value=held),
                    args=[added],
                    keywords=[],
                ):
                    for value in self.program.values(held):
                        added_here = added if method == "append" else ast.Starred(added)
                        found.setdefault(value, []).append(added_here)
        return found

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
                appends = isinstance(node, ast.Call) and getattr(node.func, "attr", "") in APPENDS
                for value in self.program.values(changed):
                    if not (appends and getattr(value, "name", "") in MODULE_LISTS):
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


@once
def layers_in(context: Context) -> Layers:
    return Layers(context)


def layers_applied(samples: Samples, call: Call, frame: Frame, some: Values | None = None) -> Value:
    """Layers that are not wrapped: those applied to every sample by itself. ``some``: of all that may be called."""
    layers = samples.program.values(called(call.node)) if some is None else some
    does = [layers_in(samples.context).does(layer) for layer in layers]
    values = samples.values([*call.node.args, *(it.value for it in call.node.keywords)], frame)
    found = kinds.elementwise(values, call.node)
    if found in PLAIN:
        return Kind.SAME
    tensors = (kinds.tensor(it, call.node) for it in values)
    fits = found in BY_SAMPLE and all(it in (*PLAIN, *BY_SAMPLE) for it in tensors)
    if None in does or not does or (Does.SAMPLES in does and found not in DEALT) or not fits:
        return found if isinstance(found, Unclear) or found is Kind.UNKNOWN else Unclear(call.node)
    return found
