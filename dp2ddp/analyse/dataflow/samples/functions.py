"""The project's functions: what calls give their parameters, and what they return to one call."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from dp2ddp.analyse.context import Context, once
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.definitions import NAMES
from dp2ddp.analyse.dataflow.kinds import DEALT, Every, Held, Kind, Unclear, Value
from dp2ddp.analyse.dataflow.samples.conditions import guarded, may_run
from dp2ddp.analyse.dataflow.samples.frames import GIVEN, OPEN, Frame
from dp2ddp.analyse.program import signature
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.signature import Bindings, Signature, bind, is_spread
from dp2ddp.analyse.program.values import Bound, Const, Func, Inst, Made, Values

if TYPE_CHECKING:
    from dp2ddp.analyse.dataflow.samples.follower import Samples

CALLS = 8
"""How many calls deep values are followed."""


def of_parameter(samples: Samples, parameter: ast.arg, frame: Frame) -> Value:
    if id(parameter) in frame.given:
        return frame.given[id(parameter)]
    scope = samples.program.scope(parameter)
    found = [
        arguments(samples, call, scope, bound, OPEN)[0].get(id(parameter), Unclear(parameter))
        for call, bound in _callers(samples, scope)
    ]
    return kinds.join(found, parameter) if found else Unclear(ast.Name(id=parameter.arg, ctx=ast.Load()))


def _callers(samples: Samples, scope: Scope) -> list[tuple[Call, bool]]:
    """The calls that enter a function, those of one program where these are told apart."""
    found = samples.program.callers.get(scope.index, [])
    asked = (
        [it for it in found if samples.only in samples.context.run_by(it[0].node)] if samples.only else found
    )
    return asked or found


def arguments(
    samples: Samples, call: Call, scope: Scope, bound: bool, frame: Frame
) -> tuple[dict[int, Value], dict[int, object]]:
    """What a call gives the parameters of a function, and which of them are literals."""
    taken, bindings = _bound(samples.context, call.node, scope, bound)
    several = call.node.args and isinstance(call.node.args[-1], ast.Starred) and len(bindings.spread) == 1
    by_name = [it.value for it in call.node.keywords if it.arg is None]
    starred = any(isinstance(it, ast.Starred) for it in call.node.args)
    if (starred and (not several or taken.rest is not None)) or (starred and by_name):
        return {id(it): Unclear(call.node) for it in taken.named}, {}
    chosen: dict[int, tuple[ast.expr, Frame]] = {id(it): (value, OPEN) for it, value in taken.defaults}
    chosen |= {id(it): (value, frame) for it, value in bindings.given}
    given = {key: samples.value(node, where) for key, (node, where) in chosen.items()}
    if several:  # `step(*batch)`
        own = {id(it) for it, _ in bindings.given}
        value, first = samples.value(bindings.spread[0], frame), len(call.node.args) - 1
        for index, parameter in enumerate(taken.places[first:]):
            if id(parameter) not in own:
                entry = kinds.entry(value, index, call.node)
                default = [given[id(parameter)]] if id(parameter) in given else []
                given[id(parameter)] = kinds.join([entry, *default], call.node)
                chosen.pop(id(parameter), None)
    tables = samples.values(by_name, frame)
    written = {id(it) for it, _ in bindings.given}
    for parameter in taken.named if tables else ():  # `step(**batch)`
        found = [kinds.entry(it, parameter.arg, call.node) for it in tables if _may_have(it, parameter.arg)]
        if found and id(parameter) not in written:
            default = [given[id(parameter)]] if id(parameter) in given else []
            given[id(parameter)] = kinds.join([*found, *default], call.node)
            chosen.pop(id(parameter), None)
    if taken.others is not None:
        more = Held(tuple((name, samples.value(it, frame)) for name, it in bindings.others))
        held = [kinds.element(it, call.node) for it in (more, *tables) if it != Held(())]
        given[id(taken.others)] = Every(kinds.join(held, call.node)) if tables else more
    if bound:
        given |= {id(it): Kind.SAME for it in scope.signature.places[:1]}
    if taken.rest is not None:
        rest = [it for _, it in bindings.rest]
        given[id(taken.rest)] = Every(kinds.join(samples.values(rest, frame), call.node))
    literals = {key: node.value for key, (node, _) in chosen.items() if isinstance(node, ast.Constant)}
    nothing = Const(None)
    literals |= {
        key: GIVEN
        for key, (node, _) in chosen.items()
        if given[key] in DEALT and nothing not in samples.program.values(node)
    }
    return given, literals


@once
def _bound(
    context: Context, call: ast.Call, scope: Scope, bound: bool
) -> tuple[Signature, Bindings[ast.expr]]:
    """The parameters of a function, and what a call gives them."""
    taken = scope.takes(bound)
    return taken, bind(call, taken)


def _may_have(table: Value, name: str) -> bool:
    """Whether a dict may have an entry of a name."""
    return not isinstance(table, Held) or name in dict(table.entries)


def returned(samples: Samples, call: Call, index: int, bound: bool, frame: Frame) -> Value:
    """What a function of the project returns to one call."""
    scope = samples.program.scopes[index]
    given, literals = arguments(samples, call, scope, bound, frame)
    called = _functions_given(samples, call, scope, bound, frame)
    key = index, frozenset(given.items()), frozenset(literals.items()), frozenset(called.items())
    inner = samples.frame(key, Frame(given, literals, frame.depth + 1, called=called))
    if inner.depth > CALLS:
        return Unclear(call.node)
    found: list[Value] = []
    for node in samples.program.results(scope):
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return Unclear(call.node)
        if node.value is not None and may_run(samples.context, node, inner):
            value = samples.value(node.value, inner)
            found.append(guarded(samples, node, scope.node, value, inner))
    return kinds.join(found, call.node) if found else Kind.SAME


def _functions_given(
    samples: Samples, call: Call, scope: Scope, bound: bool, frame: Frame
) -> dict[int, Values]:
    """What a call gives those parameters of a function that are called in it, or handed on."""
    if len(samples.program.callers.get(scope.index, ())) < 2 or is_spread(call.node):
        return {}
    taken, bindings = _bound(samples.context, call.node, scope, bound)
    chosen = {it: (value, OPEN) for it, value in taken.defaults}
    chosen |= {it: (value, frame) for it, value in bindings.given}
    names = _handed_on(samples.context, scope)
    found = {id(it): _functions(samples, *given) for it, given in chosen.items() if it.arg in names}
    return {it: values for it, values in found.items() if values}


@once
def _handed_on(context: Context, scope: Scope) -> frozenset[str]:
    """The names that a function calls, or gives to what it calls."""
    calls = [it for it in context.program.body(scope) if isinstance(it, ast.Call)]
    parts = (part for it in calls for part in (it.func, *handed(it)))
    return frozenset(it.id for it in parts if isinstance(it, ast.Name))


def _functions(samples: Samples, node: ast.expr, frame: Frame, depth: int = 0) -> Values:
    """What an expression may be, where that is all known to be called: of a parameter, what one call gives it."""
    made = samples.program.definitions(node) if isinstance(node, ast.Name) and depth < NAMES else ()
    (definition,) = made if len(made) == 1 else (None,)
    if id(definition) in frame.called:
        return frame.called[id(definition)]
    if samples.only is not None and isinstance(definition, ast.arg) and id(definition) not in frame.given:
        scope, found = samples.program.scope(definition), []
        for call, bound in _callers(samples, scope):
            value = signature.given(call.node, scope.takes(bound), definition)
            if (
                is_spread(call.node)
                or value is None
                or not (one := _functions(samples, value, OPEN, depth + 1))
            ):
                return frozenset()
            found += one
        return samples.program.ordered(found)
    values = samples.program.values(node)
    return values if all(isinstance(it, Func | Bound | Inst | Made) for it in values) else frozenset()


def call_in(samples: Samples, node: ast.Call, frame: Frame) -> Call | None:
    """A call, of what it may call in one call of the function that it stands in."""
    call = samples.program.call(node)
    if call is None or len(call.callees) < 2:
        return call
    functions = _functions(samples, node.func, frame)
    callees = [it for it in call.callees if it in functions]
    return replace(call, callees=samples.program.ordered(callees)) if callees else call
