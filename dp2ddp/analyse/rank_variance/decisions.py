"""Decisions by what every process computes for itself, in evaluations that stay whole.

GPUs can differ in the last bit, and then one process leaves a loop while the others wait for it, or learning rates
part. So the way goes back from what steers the training, through values and the conditions under which these are
made, to the forwards of such evaluations. Where a number comes out of one, all take the main process's.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from functools import cached_property

from dp2ddp.analyse.api.inspection import ASKS_KIND_OR_SIZE
from dp2ddp.analyse.api.layers import TRAINS
from dp2ddp.analyse.api.naming import LOADER
from dp2ddp.analyse.api.numbers import MAKES_NUMBER_OF, NUMBER_HOMES, NUMBERS
from dp2ddp.analyse.api.parallel import is_runtime
from dp2ddp.analyse.api.processes import ENDS
from dp2ddp.analyse.api.purity import COPIES_OBJECT
from dp2ddp.analyse.api.tensors import NO_NUMBERS
from dp2ddp.analyse.context import COMPREHENSIONS, LOOPS, Context
from dp2ddp.analyse.evaluation import evaluating, meters
from dp2ddp.analyse.processes.agreements import is_object
from dp2ddp.analyse.processes.conditions import is_call_of, is_rate, returned
from dp2ddp.analyse.processes.questions import all_pass
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.values import Bound, Ext, Func, Inst, Mod
from dp2ddp.analyse.training.loops import BatchLoop
from dp2ddp.facts import NO_TIER, Agreement, Effect, Evaluation, Problem, Reread

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True)
class _Use:
    """An expression; ``below``: in a function that a call has led to, whose arguments are looked at there."""

    node: ast.expr
    below: bool = False


def collect(
    context: Context,
    loops: list[BatchLoop],
    evaluated: Iterable[Evaluation],
    effects: tuple[Effect, ...],
    waits: Iterable[Reread],
) -> Iterator[Agreement]:
    """Where the main process's number is taken, because it steers the training, and what can't be agreed on.

    ``waits``: where all processes wait for one another, which one alone must not come to.
    """
    yield from _Steering(context, _Forwards(context, loops, evaluated), effects, waits).agreements()


@dataclass(frozen=True)
class _Found:
    """The expressions that are agreed on, loops after which a name's value is; the decisions that are left."""

    places: set[ast.expr]
    totals: tuple[tuple[ast.stmt, str], ...]
    left: frozenset[ast.expr]

    @property
    def meetings(self) -> set[ast.AST]:
        """Where all processes must come by."""
        return {*self.places, *(loop for loop, _ in self.totals)}


class _Forwards:
    """Where the model is run for evaluations that every process does whole, and all that runs there.

    ``calls``: its forwards. ``regions``: what is run in loops that do nothing but evaluate.
    """

    def __init__(self, context: Context, loops: list[BatchLoop], evaluated: Iterable[Evaluation]) -> None:
        self.context, self.program = context, context.program
        dealt = {it.at for it in evaluated if not it.whole}
        self._whole = [it for it in loops if not it.trains and not self._is_dealt(it, dealt)]
        self._dealt = [it for it in loops if not it.trains and self._is_dealt(it, dealt)]
        self._training = [it for it in loops if it.trains]
        self.calls = frozenset(
            id(call.node)
            for call in self.program.calls
            if self._is_forward(call) and self._is_whole(call.node)
        )

    def _is_forward(self, call: Call) -> bool:
        """Whether a call runs a wrapped model, or what it wraps."""
        called, function = call.callees, call.node.func
        if isinstance(function, ast.Attribute) and function.attr == "forward":
            called |= self.program.values(function.value)
        return self.context.is_wrapped(called) or bool(called & self.context.trained_modules)

    def _is_dealt(self, loop: BatchLoop, dealt: set[object]) -> bool:
        return any(self.program.anchor(it) in dealt for it in loop.draws) or any(
            evaluating.is_dealt(self.context, it) for it in ast.walk(loop.source)
        )

    def _is_whole(self, node: ast.AST) -> bool:
        if any(id(node) in loop.runs for loop in self._whole):
            return True
        elsewhere = any(id(node) in loop.runs for loop in (*self._dealt, *self._training))
        return not elsewhere and self.context.runs_in_training(node)

    @cached_property
    def regions(self) -> frozenset[int]:
        backwards = {id(node) for node in self.context.backwards}
        scopes = above(self.context, (self.program.nodes[key] for key in self.calls))
        found: set[int] = set()
        for node in self.program.nodes.values():
            if isinstance(node, LOOPS) and self.program.scope(node).index in scopes:
                runs = self.context.runs(node)
                if runs & self.calls and not runs & backwards:
                    found |= runs
        return frozenset(found)


def above(context: Context, nodes: Iterable[ast.AST]) -> set[int]:
    """The functions that some nodes stand in, and those that call these, at any depth."""
    found: set[int] = set()
    waiting = [context.program.scope(node).index for node in nodes]
    while waiting:
        scope = waiting.pop()
        if scope not in found:
            found.add(scope)
            waiting += [context.program.scope(call).index for call in context.callers.get(scope, ())]
    return found


class _Steering:
    """The way from what steers the training back to the forwards."""

    def __init__(
        self, context: Context, forwards: _Forwards, effects: tuple[Effect, ...], waits: Iterable[Reread]
    ) -> None:
        self.context, self.program = context, context.program
        self.forwards = forwards
        self._waiting = {id(self.program.node_at(it.at)) for it in waits} if forwards.calls else set()
        self.guards = [effect for effect in effects if effect.kind in ("guard", "test")]
        self._changes: dict[int, dict[str, list[ast.AST]]] = {}

    def agreements(self) -> Iterator[Agreement]:
        found = self._found()
        for node in self._together(found.places):
            yield Agreement(**self.context.place(node), what=ast.unparse(node), measured=True)
        for loop, name in found.totals:
            yield Agreement(**self.context.place(loop), what=name, name=name, measured=True)
        for test in sorted(found.left, key=lambda it: self.program.order[id(it)]):
            what, statement = ast.unparse(test), self.program.statement(test)
            yield Agreement(
                **self.context.place(statement), what=what, measured=True, problem=_problem(what, statement)
            )

    def _found(self) -> _Found:
        """Where all decisions become alike, those too by which the processes come to agree."""
        decisions = dict.fromkeys(self._decisions()) if self.forwards.calls else {}
        unsafe: set[ast.AST] = set()
        while True:
            found = self._closing(decisions, unsafe)
            around = {node: set(self._tests(node)) for node in found.meetings}
            alone = {node for node, tests in around.items() if tests & found.left}
            more = set().union(*around.values()) - decisions.keys()
            if not more and not alone:
                return found
            decisions |= dict.fromkeys(more)
            unsafe |= set() if more else alone

    def _tests(self, node: ast.AST, depth: int = 0) -> Iterator[ast.expr]:
        """The conditions round a place, and round the calls of the function that it stands in."""
        yield from self._conditions_round(node)
        calls = self.context.callers.get(self.program.scope(node).index, ()) if depth < 6 else ()
        for call in filter(self.context.runs_in_training, calls):
            yield from self._tests(call, depth + 1)

    def _closing(self, decisions: Iterable[ast.expr], unsafe: Set[ast.AST]) -> _Found:
        """The same by the way that has fewer places: with no collective among what a function returns, if it can be."""
        apart = self._closed(decisions, unsafe, alone=True)
        if not any(self._is_beside_others(it) for it in apart.places):
            return apart
        found = self._closed(decisions, unsafe, alone=False)
        return found if found.left == apart.left and len(found.places) <= len(apart.places) else apart

    def _closed(self, decisions: Iterable[ast.expr], unsafe: Set[ast.AST], alone: bool) -> _Found:
        """Where decisions become alike; ``alone``: one of several things that are returned may be agreed on."""
        wanted = list(map(_Use, decisions))
        behind = self._graph(wanted)

        def is_place(node: ast.expr) -> bool:
            if node in unsafe or is_object(self.context, node) or not self._is_place(node):
                return False
            return alone or not self._is_beside_others(node)

        left = self._open(behind, set())
        places: set[ast.expr] = set()
        for use in wanted:
            if use in left:
                own = self._graph([use])
                first = self._first(own, lambda node: is_place(node) and self._is_number(node))
                nearest = self._nearest(own, [use], left, is_place)
                rest = self._open(own, first)
                if use in rest:
                    first |= self._nearest(own, [use], rest, is_place)
                places |= nearest if 0 < len(nearest) < len(first) else first
        left = self._open(behind, places)
        summing = dict.fromkeys(self._totals(left)) if left & set(wanted) else {}
        totals = tuple(it for it in summing if it[0] not in unsafe)
        names = {name for _, name in totals}
        summed = {it.node for it in left if isinstance(it.node, ast.Name) and it.node.id in names}
        for node in sorted(places, key=lambda it: -self.program.order[id(it)]):
            behind_it = self._open(behind, places - {node} | summed)
            if not any(use.node is node for use in behind_it):
                places.discard(node)  # what it is made of is agreed on already
        left = self._open(behind, places | summed)
        tests = {use.node for use in wanted if use in left and self._is_answer(use.node)} - unsafe
        places |= tests
        for node in sorted(places - tests, key=lambda it: self.program.order[id(it)]) if tests else ():
            if not self._open(behind, places - {node} | summed) & set(wanted):
                places.discard(node)  # all that it decides is agreed on itself
        left = self._open(behind, places | summed) if tests else left
        return _Found(places, totals, frozenset(use.node for use in wanted if use in left))

    # What steers the training

    def _decisions(self) -> Iterator[ast.expr]:
        """By what loops end, training happens or not, and learning rates change."""
        for node in self.program.nodes.values():
            if isinstance(node, ast.If | ast.While):
                if self._runs_everywhere(node) and not self._asks_for_object(node.test):
                    if self._works(node) or self._leaves(node):
                        yield node.test
            elif isinstance(node, ast.Call):
                given = node.args[0] if self._is_step(node) and self._runs_everywhere(node) else None
                if given is not None and not is_object(self.context, given):  # `scaler.step(optimizer)`
                    yield given
            elif isinstance(node, ast.Assign | ast.AugAssign) and is_rate(self.context, node):
                if self._runs_everywhere(node):
                    yield node.value

    def _runs_everywhere(self, node: ast.AST) -> bool:
        place = self.program.anchor(node)
        return self.context.runs_in_training(node) and not any(it.covers(place) for it in self.guards)

    def _is_step(self, node: ast.Call) -> bool:
        """Whether something from outside the project is told a number to go on by: a schedule."""
        call = self.program.call(node)
        own = call is None or any(isinstance(it, Bound) for it in call.callees)
        return getattr(node.func, "attr", "") == "step" and bool(node.args) and not own

    @cached_property
    def _working(self) -> set[int]:
        """What trains, evaluates or changes what is trained; and before what all wait."""
        working = {id(node) for node in self.program.nodes.values() if self._is_work(node)}
        return working | (self._waiting & self.program.nodes.keys())

    @cached_property
    def _working_scopes(self) -> set[int]:
        return above(self.context, (self.program.nodes[key] for key in self._working))

    def _is_work(self, node: ast.AST) -> bool:
        match node:
            case ast.For(iter=source):
                return bool(self.context.made(self.context.iterated(self.program.values(source)), LOADER))
            case ast.Assign() | ast.AugAssign():
                return is_rate(self.context, node)
            case ast.Call():
                call = self.program.call(node)
                if call is None:
                    return False
                kept = any("state_dict" in ast.unparse(it) or self._is_model(it) for it in node.args)
                if call.names & COPIES_OBJECT and kept:
                    return True
                return self.context.method(node) in TRAINS or self.context.is_wrapped(call.callees)
        return False

    def _is_model(self, node: ast.expr) -> bool:
        return any(map(self.context.module_class, self.program.values(node)))

    def _works(self, node: ast.If | ast.While) -> bool:
        return any(map(self._does_work, self._within(node)))

    def _within(self, node: ast.If | ast.While) -> Iterator[ast.AST]:
        for part in (*node.body, *node.orelse):
            yield from self.program.descendants(part)

    def _does_work(self, node: ast.AST) -> bool:
        if id(node) in self._working:
            return True
        return isinstance(node, ast.Call) and bool(self.program.called_scopes(node) & self._working_scopes)

    def _leaves(self, node: ast.If | ast.While) -> bool:
        """Whether something that works is left: a loop, a function, or the program."""
        for inner in self._within(node):
            if isinstance(inner, ast.Call):
                call = self.program.call(inner)
                if call is not None and call.names & ENDS:
                    return True
            if isinstance(inner, ast.Break | ast.Continue | ast.Return) and self._is_left(inner, node):
                return True
        return False

    def _is_left(self, leaving: ast.stmt, node: ast.stmt) -> bool:
        """Whether what comes after a statement that leaves a loop or a function works."""
        for around in self.program.ancestors(leaving):
            if isinstance(around, LOOPS):
                outside = any(around is it for it in self.program.ancestors(node))
                if outside and any(map(self._does_work, self.program.descendants(around))):
                    return True
                if not isinstance(leaving, ast.Return):
                    return False
            if isinstance(around, FUNCTIONS):
                last = (node.end_lineno, node.end_col_offset)
                later = (
                    it
                    for it in self.program.body(self.program.by_node[id(around)])
                    if isinstance(it, ast.stmt | ast.Call) and (it.lineno, it.col_offset) >= last
                )
                return any(map(self._does_work, later))
        return False

    # Where it comes from

    def _graph(self, decisions: Iterable[_Use]) -> dict[_Use, list[_Use]]:
        """What each expression is made from, beginning with the decisions."""
        found: dict[_Use, list[_Use]] = {}
        waiting = list(decisions)
        while waiting:
            use = waiting.pop()
            if use not in found:
                found[use] = list(dict.fromkeys(self._behind(use)))
                waiting += found[use]
        return found

    def _behind(self, use: _Use) -> Iterator[_Use]:
        node, below = use.node, use.below
        match node:
            case ast.Constant() | ast.Lambda() | ast.JoinedStr():
                return
            case ast.Compare() if self.context.asks_identity(node):
                return
            case ast.Call():
                yield from self._call(node, below)
            case ast.Name():
                yield from self._named(node, below)
            case ast.Attribute():
                yield from self._attribute(node, below)
            case ast.Subscript(value=held, slice=ast.Constant()):
                stored = list(self._changed(node, below))
                yield from stored or [_Use(held, below)]
            case _ if isinstance(node, COMPREHENSIONS):
                made = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
                sources = (part for it in node.generators for part in (it.iter, *it.ifs))
                yield from (_Use(it, below) for it in (*made, *sources))
            case _:
                children = ast.iter_child_nodes(node)
                yield from (_Use(it, below) for it in children if isinstance(it, ast.expr))

    def _call(self, node: ast.Call, below: bool) -> Iterator[_Use]:
        call = self.program.call(node)
        asks = call is not None and bool(call.names & ASKS_KIND_OR_SIZE)
        if call is None or id(node) in self.forwards.calls or asks:
            return
        if is_runtime(call.names):
            return
        if isinstance(node.func, ast.Attribute):
            if node.func.attr in NO_NUMBERS:
                return
            yield _Use(node.func.value, below)
        if LOADER in call.names or self.context.is_derived_loader(call):
            return  # what is drawn steers nothing
        yield from (_Use(it, below) for it in (*node.args, *(given.value for given in node.keywords)))
        for value in returned(self.context, node):
            yield _Use(value, True)
            yield from self._conditions(value, node, True)

    def _named(self, name: ast.Name, below: bool) -> Iterator[_Use]:
        scope = self.program.scope(name)
        for made in self.program.definitions(name):
            if isinstance(made, ast.arg):
                yield from () if below else map(_Use, self.program.given(made))
            elif not isinstance(made, ast.alias | ast.FunctionDef | ast.ClassDef):
                yield from self._assigned(made, name, below and self.program.scope(made) is scope)
        if not self._is_me(name):
            yield from self._changed(name, below)

    def _is_me(self, node: ast.expr) -> bool:
        """Whether a name is the object whose method it stands in."""
        scope = self.program.scope(node)
        return isinstance(node, ast.Name) and scope.owner is not None and scope.params[:1] == [node.id]

    def _attribute(self, node: ast.Attribute, below: bool) -> Iterator[_Use]:
        if node.attr in NO_NUMBERS:
            return
        if self._is_me(node.value):
            for made in self.program.definitions(node):
                if id(made) in self.program.order:
                    here = self.program.scope(made) is self.program.scope(node)
                    yield from self._assigned(made, node, below and here)
        else:
            for target, statement in self.context.attribute_assignments.get(node.attr, ()):
                if ast.unparse(target.value) == ast.unparse(node.value):
                    yield _Use(statement.value)
                    yield from self._conditions(statement, node, False)
            yield _Use(node.value, below)
        yield from self._changed(node, below)

    def _assigned(self, made: ast.AST, use: ast.expr, below: bool) -> Iterator[_Use]:
        """What a name is given, and the conditions of that."""
        around = self.program.parent(made)
        place = None
        if isinstance(around, ast.Tuple | ast.List):
            place = around.elts.index(made)  # type: ignore[arg-type]
            around = self.program.parent(around)
        match around:
            case ast.For(iter=ast.Call() as given) | ast.comprehension(iter=ast.Call() as given) if (
                place == 0
            ):
                if not is_call_of(self.context, given, "builtins.enumerate"):
                    yield _Use(given, below)
            case ast.For(iter=given) | ast.comprehension(iter=given) | ast.withitem(context_expr=given):
                yield _Use(given, below)
            case ast.Assign(value=given) | ast.AugAssign(value=given) | ast.NamedExpr(value=given):
                yield from self._given(given, place, below)
            case ast.AnnAssign(value=ast.expr() as given):
                yield _Use(given, below)
        yield from self._conditions(self.program.statement(made), use, below)

    def _given(self, value: ast.expr, place: int | None, below: bool) -> Iterator[_Use]:
        """A value, or one of several that a tuple has, or a function returns."""
        if place is None:
            yield _Use(value, below)
        elif isinstance(value, ast.Tuple):
            yield _Use(value.elts[place] if place < len(value.elts) else value, below)
        elif handed := returned(self.context, value):
            for it in handed:
                entries = it.elts if isinstance(it, ast.Tuple) else []
                yield _Use(entries[place] if place < len(entries) else it, True)
                yield from self._conditions(it, value, True)
            yield from (_Use(it, below) for it in value.args)  # type: ignore[attr-defined]
            yield from (_Use(it.value, below) for it in value.keywords)  # type: ignore[attr-defined]
        else:
            yield _Use(value, below)

    def _conditions(self, node: ast.AST, use: ast.AST, below: bool) -> Iterator[_Use]:
        """The conditions under which something is made, but for those that its use stands under, too."""
        shared = {id(it) for it in self._conditions_round(use)}
        yield from (_Use(it, below) for it in self._conditions_round(node) if id(it) not in shared)

    def _conditions_round(self, node: ast.AST) -> Iterator[ast.expr]:
        for around in self.program.ancestors(node):
            if isinstance(around, FUNCTIONS):
                return
            if isinstance(around, ast.If | ast.While) and not self._asks_for_object(around.test):
                yield around.test

    def _asks_for_object(self, test: ast.expr) -> bool:
        """Whether a condition only asks if there is something: ``if self.stopping:``."""
        return any(isinstance(it, Inst) for it in self.program.values(test))

    def _changed(self, held: ast.expr, below: bool) -> Iterator[_Use]:
        """What an object is given by its methods, and what its entries are set to, where it is used."""
        if any(isinstance(it, Ext | Mod) for it in self.program.values(held)):
            return  # a module, and its functions
        text = ast.unparse(held)
        here = self.program.scope(held)
        for scope in self._sharing(held, here):
            for node in self._changes_in(scope).get(text, ()):
                given = [node.value] if isinstance(node, ast.Assign | ast.AugAssign) else []
                if isinstance(node, ast.Call):
                    given = handed(node)
                within = below and scope is here
                yield from (_Use(it, within) for it in given)
                if given:
                    yield from self._conditions(node, held, within)

    def _sharing(self, held: ast.expr, here: Scope) -> list[Scope]:
        """The functions in which an expression is the same object: the methods of a class, for its attributes."""
        if isinstance(held, ast.Attribute) and self._is_me(held.value):
            return [it for it in self.program.scopes if it.owner == here.owner]
        return [here]

    def _changes_in(self, scope: Scope) -> dict[str, list[ast.AST]]:
        """The calls and assignments in a function that change an object, by what that is called there."""
        if scope.index not in self._changes:
            found: dict[str, list[ast.AST]] = defaultdict(list)
            for node in self.program.body(scope):
                match node:
                    case ast.Call(func=ast.Attribute(value=ast.Name() | ast.Attribute() as held)):
                        found[ast.unparse(held)].append(node)
                    case ast.Call(func=ast.Name() | ast.Attribute() as held):
                        if any(isinstance(it, Inst) for it in self.program.values(held)):
                            found[ast.unparse(held)].append(node)
                    case ast.Assign(targets=[ast.Subscript() as target]) | ast.AugAssign(target=target):
                        while isinstance(target, ast.Subscript):
                            found[ast.unparse(target)].append(node)
                            target = target.value
                            found[ast.unparse(target)].append(node)
            self._changes[scope.index] = found
        return self._changes[scope.index]

    # Where it is agreed on

    def _open(self, behind: dict[_Use, list[_Use]], closed: set[ast.expr]) -> set[_Use]:
        """What is made from a forward, and from nothing that is agreed on between."""
        return self._upwards(behind, lambda use: use.node in closed)

    def _first(self, behind: dict[_Use, list[_Use]], is_place: Callable[[ast.expr], bool]) -> set[ast.expr]:
        """The first places on the ways from forwards to decisions."""
        found: set[ast.expr] = set()

        def stops(use: _Use) -> bool:
            if is_place(use.node):
                found.add(use.node)
            return use.node in found

        self._upwards(behind, stops)
        return found

    def _upwards(self, behind: dict[_Use, list[_Use]], stops: Callable[[_Use], bool]) -> set[_Use]:
        ahead: dict[_Use, list[_Use]] = defaultdict(list)
        for use, sources in behind.items():
            for source in sources:
                ahead[source].append(use)
        found: set[_Use] = set()
        waiting = [use for use in behind if id(use.node) in self.forwards.calls]
        while waiting:
            use = waiting.pop()
            if use not in found and not stops(use):
                found.add(use)
                waiting += ahead[use]
        return found

    def _nearest(
        self,
        behind: dict[_Use, list[_Use]],
        decisions: list[_Use],
        left: set[_Use],
        is_place: Callable[[ast.expr], bool],
    ) -> set[ast.expr]:
        """Where no number is known to be: what is assigned or returned, as near to a decision as can be."""
        found: set[ast.expr] = set()
        seen: set[_Use] = set()
        waiting = list(decisions)
        while waiting:
            use = waiting.pop()
            if use not in seen and use in left:
                seen.add(use)
                if is_place(use.node) and self._is_result(use.node):
                    found.add(use.node)
                else:
                    waiting += behind[use]
        return found

    def _is_result(self, node: ast.expr) -> bool:
        """Whether a value may be a copy of the main process's: something new, which others don't know, and no model."""
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.GeneratorExp):
            return False
        values = self.program.contents(self.program.values(node))
        lasting = any(self.context.module_class(it) or isinstance(it, Inst | Bound | Func) for it in values)
        return not lasting and id(node) not in self.forwards.calls and not self.context.made(values, LOADER)

    def _is_place(self, node: ast.expr) -> bool:
        """Whether all processes come by, after the evaluation, where a value is assigned or returned."""
        if id(node) in self.forwards.regions or not self.context.runs_in_training(node):
            return False
        around = self.program.parent(node)
        if isinstance(around, ast.Tuple):
            around = self.program.parent(around)
            if not isinstance(around, ast.Return):
                return False
        match around:
            case ast.Return():
                return self._meet(node)
            case ast.Assign(targets=[_], value=value) | ast.AnnAssign(value=value):
                return value is node and self._meet(node)
        return False

    def _is_beside_others(self, node: ast.expr) -> bool:
        """Whether a value is returned in a tuple that is not agreed on as a whole: not all of it is numbers."""
        around = self.program.parent(node)
        return isinstance(around, ast.Tuple) and not self._is_number(around)

    def _is_answer(self, node: ast.expr) -> bool:
        """Whether all processes ask what is answered by yes or no: the answer is agreed on, at the latest."""
        around = self.program.parent(node)
        asks = isinstance(around, ast.If | ast.While) and around.test is node
        return asks and _is_yes_or_no(node) and self._meet(node)

    def _meet(self, node: ast.AST) -> bool:
        return all_pass(self.context, node, self.guards)

    def _is_number(self, node: ast.AST | None, depth: int = 0) -> bool:
        """Whether an expression is one number, or a few, as far as is seen."""
        if node is None or depth > 6:
            return False
        deeper = depth + 1
        match node:
            case ast.Constant(value=value):
                return isinstance(value, int | float)
            case ast.UnaryOp(operand=operand):
                return self._is_number(operand, deeper)
            case ast.BinOp(left=left, right=right):
                sides = [it for it in (left, right) if not isinstance(it, ast.Constant)]
                return any(self._is_number(it, deeper) for it in sides)
            case ast.IfExp(body=one, orelse=other):
                return self._is_number(one, deeper) and self._is_number(other, deeper)
            case ast.Tuple(elts=parts) | ast.Dict(values=parts):
                return bool(parts) and all(self._is_number(it, deeper) for it in parts)
            case ast.Attribute(attr=attribute):
                return attribute in NUMBERS
            case ast.Call(func=function):
                call = self.program.call(node)
                names = call.names if call is not None else set()
                if names and names <= MAKES_NUMBER_OF or any(it.startswith(NUMBER_HOMES) for it in names):
                    return True
                handed = returned(self.context, node)
                if handed:
                    return all(self._is_number(it, deeper) for it in handed)
                return (
                    isinstance(function, ast.Attribute)
                    and function.attr in NUMBERS
                    and not node.args + node.keywords
                )
            case ast.Name():
                made = self.program.definitions(node)
                return bool(made) and all(self._is_made_a_number(it, deeper) for it in made)
        return False

    def _is_made_a_number(self, made: ast.AST, depth: int) -> bool:
        around = self.program.parent(made)
        match around:
            case ast.AugAssign():
                return True  # if it begins as one
            case ast.Assign(value=value):
                return self._is_number(value, depth)
            case ast.Tuple(elts=names):
                statement = self.program.parent(around)
                value = statement.value if isinstance(statement, ast.Assign) else None
                place = names.index(made)  # type: ignore[arg-type]
                handed = (
                    [value]
                    if isinstance(value, ast.Tuple)
                    else returned(self.context, value) if value else []
                )
                entries = [it.elts for it in handed if isinstance(it, ast.Tuple) and place < len(it.elts)]
                return bool(entries) and all(self._is_number(it[place], depth) for it in entries)
        return False

    def _together(self, nodes: set[ast.expr]) -> list[ast.expr]:
        """The places, a tuple of numbers or of nothing but places in place of these, and none within another."""
        tuples = {
            around
            for node in nodes
            if isinstance(around := self.program.parent(node), ast.Tuple)
            and (set(around.elts) <= nodes or self._is_number(around))
        }
        every = {*nodes, *tuples}
        outer = [it for it in every if not any(around in every for around in self.program.ancestors(it))]
        return sorted(outer, key=lambda it: self.program.order[id(it)])

    def _totals(self, left: set[_Use]) -> Iterator[tuple[ast.stmt, str]]:
        """The numbers and meters that a loop adds up for a decision, each with the loop."""
        for node in sorted({use.node for use in left}, key=lambda it: self.program.order.get(id(it), 0)):
            if isinstance(node, ast.Name) and id(node) not in self.forwards.regions:
                loop = self._filling(node)
                if loop is not None and self._meet(loop) and (self._is_number(node) or self._is_meter(node)):
                    yield loop, node.id

    def _filling(self, name: ast.Name) -> ast.stmt | None:
        """The loop that evaluates and fills what a name stands for."""
        scope = self.program.scope(name)
        changes = [*self.program.definitions(name), *self._changes_in(scope).get(name.id, ())]
        for node in changes:
            loops = [
                it
                for it in self.program.ancestors(node)
                if isinstance(it, LOOPS) and id(it) in self.forwards.regions
            ]
            if loops and self.program.scope(loops[-1]) is scope:
                return loops[-1]
        return None

    def _is_meter(self, name: ast.Name) -> bool:
        values = self.program.values(name)
        added = meters.added(self.context, values, "update") if values else None
        return added is not None and added.is_meter


def _is_yes_or_no(node: ast.expr) -> bool:
    match node:
        case ast.Compare() | ast.UnaryOp(op=ast.Not()):
            return True
        case ast.BoolOp(values=parts):
            return all(map(_is_yes_or_no, parts))
    return False


def _problem(what: str, statement: ast.stmt) -> Problem:
    depends = "control flow depends" if isinstance(statement, ast.If | ast.While) else "training depends"
    if isinstance(statement, ast.Expr) and ".step(" in ast.unparse(statement):
        depends = "the learning rate depends"
    return Problem(
        f"{depends} on `{what}`, which rounding can make differ across ranks",
        f"use rank 0's: `ddp.from_main_process({what})`",
        NO_TIER,
    )
