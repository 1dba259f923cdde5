"""Batches that the program makes itself: slices of its data, what a replay buffer or a generator hands out.

They are found from the loss: what it is computed of is followed back to where a round of the training loop takes
something from outside. The program is then looked at as if a DataLoader handed that out, so that everything else needs
to know of loaders only. If that comes to sharding it, the runtime takes this rank's part there.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from dp2ddp.analyse.api import operations
from dp2ddp.analyse.api.iteration import COUNTERS, HANDS_OUT, NEXT_METHODS, RANGES
from dp2ddp.analyse.api.naming import LOADER
from dp2ddp.analyse.api.numbers import NUMBER_HOMES, PASSES_NUMBER_ON
from dp2ddp.analyse.api.randomness import DRAWS, DRAWS_ONE, DRAWS_SEVERAL, HOW_LIKELY, HOW_MANY, ORDERS
from dp2ddp.analyse.api.tensors import (
    ARRAY_HOMES,
    DESCRIBES,
    FILLS,
    FILLS_ARRAY,
    KEEPS_ROWS,
    NO_BATCH_HOMES,
    OF_LISTS,
    SPLITS,
    SPLITTING_METHODS,
    VARIABLE,
    ZEROS,
)
from dp2ddp.analyse.context import COMPREHENSIONS, LOOPS, Context
from dp2ddp.analyse.dataflow.forwards import is_in_training_mode
from dp2ddp.analyse.dataflow.samples.indices import first_of, is_everything
from dp2ddp.analyse.processes.conditions import assigned
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.sources import How
from dp2ddp.analyse.program.values import Bound, Func, is_outside_name
from dp2ddp.analyse.training.loops import takes_next
from dp2ddp.analyse.views import View, insert, insert_imports, mark, put
from dp2ddp.facts import OwnBatch

NEXT, LOADS, TAKEN = "_next_of_own_batches", "_DataLoader_of_own_batches", "_own_batch"
"""What ``next``, DataLoader and a batch are called where batches are looked at as a loader's."""
ALIKE = "_array_of_whole_batches"
"""And what hands out whole batches, the same on all ranks, where they are no more a loader's."""
IMPORTS = (
    f"from builtins import next as {NEXT}\nfrom torch.utils.data import DataLoader as {LOADS}\n"
    f"from numpy import array as {ALIKE}"
)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
DEPTH = 40
NAMES = 8
# The loops round a backward pass, inside out, that are looked at for batches.
ROUND = 3


@dataclass(frozen=True)
class Site:
    """An expression that a round of the training takes a batch from: the batch, or what hands it out to a loop.

    Where it is names that have the batch, the statement beside which they get a part of it. ``loop``: the loop that
    trains on it, where it is taken before that.
    """

    node: ast.expr | ast.stmt
    kind: OwnBatch
    loop: ast.AST | None = None


Sites = dict[int, Site]


class Unknown(Exception):
    """What a loss is computed of can't be followed."""


class MadeBefore(Unknown):
    """What was made before the loop may have a row for each sample of its batches."""


def find(context: Context, covered: Iterable[int]) -> list[Site]:
    """Where the training takes batches that no DataLoader hands out; nothing where one of them is not found.

    ``covered``: identities of what loops over loaders run.
    """
    covered = frozenset(covered)
    found: Sites = {}
    for backward in context.backwards:
        if context.runs_in_training(backward) and id(backward) not in covered:
            sites = _of_step(context, backward, covered)
            if sites is None:
                return []
            found |= sites
    return list(found.values())


def looked_at_as_loaders(context: Context, sites: list[Site], whole: Iterable[ast.expr] = ()) -> Context:
    """The programs as they would be if DataLoaders handed out the batches.

    ``whole``: what loops over loaders draw from of which they get whole batches, the same on all ranks.
    """
    view = View(context)
    changed: dict[int, ast.Module] = {}
    for site in sites:
        tree = view.tree(site.node)
        made = _hand_out(tree, view.twin(site.node), site.kind)
        made.own_loop = view.twin(site.loop) if site.loop is not None else None  # type: ignore[attr-defined]
        changed[id(tree)] = tree
    for source in whole:
        tree = view.tree(source)
        _leave_whole(tree, view.twin(source))  # type: ignore[arg-type]
        changed[id(tree)] = tree
    for tree in changed.values():
        insert_imports(tree, IMPORTS)
    return view.linked()


class _UnseenCall(ast.Call):
    """A call that is not the program's own: ``ast.unparse`` shows its argument alone."""


class _UnseenName(ast.Name):
    """What it calls."""


class _UnseenLoop(ast.GeneratorExp):
    """What goes through something, as a loop does."""


class _UnseenComprehension(ast.comprehension):
    """Its only part."""


def _hand_out(tree: ast.Module, node: ast.AST, kind: OwnBatch) -> ast.Call:
    """Have a loader hand out a batch: what stands for that."""
    given = node
    if kind.names:
        return _hand_out_names(tree, node, kind)
    if kind.is_loop:
        taken, stored = _UnseenName(TAKEN, ast.Load()), _UnseenName(TAKEN, ast.Store())
        given = _UnseenLoop(taken, [_UnseenComprehension(stored, node, [], 0)])
    made: ast.Call = _UnseenCall(_UnseenName(LOADS, ast.Load()), [given], [])
    made.own_batch, made.own_source = kind, node  # type: ignore[attr-defined]
    whole = made if kind.is_loop else _UnseenCall(_UnseenName(NEXT, ast.Load()), [made], [])
    inserted = {id(it): it for it in _above(whole, node)}
    put(tree, node, whole)
    mark(inserted.values(), node)
    return made


def _hand_out_names(tree: ast.Module, beside: ast.AST, kind: OwnBatch) -> ast.Call:
    loads = [ast.Name(it, ast.Load()) for it in kind.names]
    given = ast.Tuple(loads, ast.Load()) if kind.is_structure else loads[0]
    made: ast.Call = _UnseenCall(_UnseenName(LOADS, ast.Load()), [given], [])
    made.own_batch, made.own_source = kind, beside  # type: ignore[attr-defined]
    stores = [ast.Name(it, ast.Store()) for it in kind.names]
    target = ast.Tuple(stores, ast.Store()) if kind.is_structure else stores[0]
    statement = ast.Assign([target], _UnseenCall(_UnseenName(NEXT, ast.Load()), [made], []))
    insert(tree, beside, [statement], kind.after)
    return made


def _leave_whole(tree: ast.Module, node: ast.expr) -> None:
    made: ast.Call = _UnseenCall(_UnseenName(ALIKE, ast.Load()), [node], [])
    made.whole_source = node  # type: ignore[attr-defined]
    inserted = {id(it): it for it in _above(made, node)}
    put(tree, node, made)
    mark(inserted.values(), node)


def _above(whole: ast.AST, node: ast.AST) -> Iterator[ast.AST]:
    """What stands round a node, and beside it."""
    if whole is not node:
        yield whole
        for child in ast.iter_child_nodes(whole):
            yield from _above(child, node)


def _of_step(context: Context, backward: ast.Call, covered: frozenset[int]) -> Sites | None:
    """The batches of the steps that a backward pass is part of."""
    found: Sites = {}
    waiting: list[tuple[ast.AST, int]] = [(backward, 0)]
    seen: set[int] = set()
    while waiting:
        inner, rounds = waiting.pop()
        if id(inner) in seen:
            continue
        seen.add(id(inner))
        for around in context.program.ancestors(inner):
            if isinstance(around, LOOPS):
                runs = context.runs(around)
                sites = _Tracing(context, around, runs).of_loss(backward)
                if sites:
                    found |= sites
                    break
                rounds += 1
                if rounds == ROUND:
                    return None
            elif isinstance(around, FUNCTIONS):
                scope = context.program.by_node[id(around)].index
                callers = [it for it in context.callers.get(scope, ()) if context.runs_in_training(it)]
                if not callers or isinstance(around, ast.Lambda) or any(id(it) in covered for it in callers):
                    return None
                waiting += [(it, rounds) for it in callers]
                break
        else:
            return None
    return found or None


def only_trains(context: Context, loops: Iterable[ast.AST], runs: frozenset[int], node: ast.AST) -> bool:
    """Whether only rounds of some loops, which run ``runs``, come to a place."""
    program, seen = context.program, set[int]()
    homes = {program.scope(it).index for it in loops}
    waiting = [program.scope(node).index]
    while waiting:
        index = waiting.pop()
        if index in homes or index in seen:
            continue
        seen.add(index)
        calls = [it for it in context.callers.get(index, ()) if context.runs_in_training(it)]
        if not all(id(it) in runs for it in calls):
            return False
        waiting += [program.scope(it).index for it in calls]
    return True


def entered(context: Context, call: Call | None) -> list[Scope]:
    """The functions that a call runs, where that is all it does."""
    if call is None or not call.callees or not all(isinstance(it, Func | Bound) for it in call.callees):
        return []
    targets = {it for callee in call.callees for it, _, _ in context.program.targets(callee, call)}
    return [context.program.scopes[it] for it in sorted(targets)]


def given_to(context: Context, node: ast.Call) -> tuple[list[ast.expr], list[ast.expr]]:
    """What a call is a method of, unless that is the home of a function (``torch.randn``), and what it is given."""
    given = [it.value if isinstance(it, ast.Starred) else it for it in handed(node)]
    receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
    values = context.program.values(receiver) if receiver is not None else ()
    return [] if receiver is None or is_outside_name(values) else [receiver], given


@dataclass
class _Tracing:
    """Follows a loss back to what a round of a loop takes from outside.

    ``runs``: identities of what a round may run.
    """

    context: Context
    loop: ast.AST
    runs: frozenset[int]
    _known: dict[int, Sites] = field(default_factory=dict)
    _filled: list[str] = field(
        default_factory=list
    )  # how many rows tensors have that no numbers are drawn for
    _drawn: set[str] = field(default_factory=set)  # and what numbers are drawn by
    _open: set[int] = field(default_factory=set)
    _circles: set[int] = field(default_factory=set)  # what is made from itself
    _returned_to: set[int] = field(default_factory=set)  # what was asked for once more
    _is_circular: bool = False  # whether something made from itself was asked for
    _by_rows: set[str] = field(default_factory=set)  # how many rows what is written row by row has
    _given: set[str] = field(default_factory=set)  # what a wrapped model is given has: it is cut into these
    _no_rows: frozenset[str] = frozenset()  # of something else

    def of_loss(self, backward: ast.Call) -> Sites | None:
        """The batches that a loss is computed of; None where that is not known."""
        try:
            found = self._of(self.context.loss(backward))
            if others := self._by_rows - self._given - self._no_rows:
                return _Tracing(self.context, self.loop, self.runs, _no_rows=self._no_rows | others).of_loss(
                    backward
                )
            if any(
                isinstance(it.node, ast.Call) and self._is_written_later(it.node) for it in found.values()
            ):
                return None  # it is no batch yet
            if not {*self._filled} <= self._drawn | {*map(_width, found.values())}:
                return None
            found |= {
                id(it): Site(it, OwnBatch(is_loop=False))
                for site in list(found.values())
                for it in self._cut_alike(site.node)
            }
            if found and self._acts_at_random():
                return None
            if found and self._keeps_statistics():
                found |= self._all(it for call in self._forwards for it in handed(call.node))
        except Unknown:
            return None
        alone = all(only_trains(self.context, [self.loop], self.runs, it.node) for it in found.values())
        return found if alone else None

    def _acts_at_random(self) -> bool:
        """Whether a round runs a wrapped model that draws on what is no part of a batch: each rank has its own stream.

        What it makes of that may decide what is taken next.
        """
        draws = any((row := operations.operation(name)) is not None and row.random for name in self._layers)
        return draws and not all(self._all(handed(it.node)) for it in self._forwards)

    def _keeps_statistics(self) -> bool:
        """Whether a model may keep what a forward sees, whatever comes of it: running means of a BatchNorm."""
        return any("BatchNorm" in name for name in self._layers)

    @cached_property
    def _layers(self) -> frozenset[str]:
        names = (name for it in self.context.program.calls for name in it.names)
        return frozenset(name for name in names if name.startswith("torch.nn."))

    @cached_property
    def _forwards(self) -> list[Call]:
        """The calls of wrapped models in a round that may be in training mode."""
        return [
            call
            for call in self.context.program.calls
            if id(call.node) in self.runs
            and self.context.is_wrapped(call.callees)
            and is_in_training_mode(self.context, call.node) is not False
        ]

    def _cut_alike(self, node: ast.expr) -> Iterator[ast.expr]:
        """What a round also takes by the same bounds as a batch, beside the loss: targets that are compared."""
        if isinstance(node, ast.Subscript):
            bounds = ast.unparse(node.slice)
            for other in self.context.program.in_order(self.runs):
                if isinstance(other, ast.Subscript) and isinstance(other.ctx, ast.Load) and other is not node:
                    if ast.unparse(other.slice) == bounds:
                        yield other

    def _all(self, nodes: Iterable[ast.AST]) -> Sites:
        found: Sites = {}
        for node in nodes:
            found |= self._of(node)
        return found

    def _of(self, node: ast.AST) -> Sites:
        if id(node) in self._known or id(node) in self._open:
            self._is_circular |= id(node) in self._open or id(node) in self._circles
            self._returned_to |= {id(node)} & self._open
            return self._known.get(id(node), {})
        if len(self._open) > DEPTH:
            raise Unknown
        self._open.add(id(node))
        before, self._is_circular = self._is_circular, False
        self._known[id(node)] = found = self._computed(node)
        self._open.remove(id(node))
        if self._is_circular:
            self._circles.add(id(node))
        self._is_circular |= before
        return found

    def _computed(self, node: ast.AST) -> Sites:
        match node:
            case ast.Constant() | ast.Lambda():
                return {}
            case ast.Name():
                return self._defined(node)
            case ast.Attribute(attr=name) if name in DESCRIBES:
                return {}
            case ast.Attribute(value=value):
                return self._defined(node) if self.context.program.definitions(node) else self._of(value)
            case ast.Subscript():
                return self._subscript(node)
            case ast.Call():
                return self._call(node)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                return self._all([*(it.iter for it in node.generators), node.elt])
            case ast.DictComp():
                return self._all([*(it.iter for it in node.generators), node.key, node.value])
            case ast.Yield() | ast.YieldFrom() | ast.Await():
                raise Unknown
        return self._all(it for it in ast.iter_child_nodes(node) if isinstance(it, ast.expr))

    def _subscript(self, node: ast.Subscript) -> Sites:
        index = self._index(node)
        held = self._of_held(node, bool(index)) if self._varies(node.value) else {}
        if [*held] == [id(node.value)]:  # what is taken of a new batch is the batch
            held = {}
        elif held:
            return held | index
        if index:
            return index
        if not self._varies(node):
            return {}
        if entries := self._entries(node.value):
            return self._all(entries)
        first = first_of(node.slice)
        if not isinstance(first, ast.Slice):
            raise Unknown  # a batch, or a sample
        return self._site(node)

    def _of_held(self, node: ast.Subscript, is_picked: bool) -> Sites:
        """What a batch is a part of; ``is_picked``: row by row, by what is a batch already, wherever all of it is from.

        A part of an order is the batch, wherever that was drawn.
        """
        if is_picked:
            return self._but_for(Unknown, [node.value])
        if isinstance(node.slice, ast.Slice) and node.slice.upper is not None and self._varies(node.slice):
            if self._is_order(node.value):
                return {}
        return self._of(node.value)

    def _but_for(self, reason: type[Unknown], nodes: Iterable[ast.AST]) -> Sites:
        """Nothing where some reason, which is none here, keeps expressions from being followed."""
        before = {*self._open}
        try:
            return self._all(nodes)
        except reason:
            self._open = before
            return {}

    def _is_order(self, node: ast.expr) -> bool:
        """Whether an expression can only be numbers that were put in an order."""
        found = self._behind(node) if isinstance(node, ast.Name | ast.Attribute) else []
        return self._all_call(found, ORDERS.__contains__)

    def _all_call(self, nodes: list[ast.expr], known: Callable[[str], bool]) -> bool:
        """Whether expressions are calls, all of functions that are known."""
        called = [self.context.program.names_of(it) for it in nodes]
        return bool(called) and all(names and all(map(known, names)) for names in called)

    def _index(self, node: ast.Subscript) -> Sites:
        before, self._is_circular = self._is_circular, False
        self._returned_to.discard(id(node))
        index = self._of(node.slice)
        if id(node) in self._returned_to or index and self._is_circular:
            raise Unknown  # what the last batch holds says where the next one begins: the part would say otherwise
        self._is_circular |= before
        return index

    def _varies(self, node: ast.AST) -> bool:
        """Whether an expression may be another one in the next round."""
        program = self.context.program
        made = (
            it for part in ast.walk(node) if isinstance(part, ast.Name) for it in program.definitions(part)
        )
        return any(id(it) in self.runs or isinstance(it, ast.arg) and self._is_entered(it) for it in made)

    def _is_entered(self, parameter: ast.arg) -> bool:
        """Whether a round calls the function of a parameter."""
        body = self.context.program.scope(parameter).body
        return bool(body) and id(body[0]) in self.runs

    def _site(self, node: ast.expr, is_loop: bool = False, made: Iterable[ast.expr] | None = None) -> Sites:
        """A batch; ``made``: what a structure is made of, nothing where that is not known. None of no structure."""
        lists = made is not None and any(map(self._may_hold_lists, made or [node]))
        return {id(node): Site(node, OwnBatch(is_loop, made is not None, lists))}

    def _may_hold_lists(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether an entry of a structure may be a list, and no tensor or array."""
        if depth > NAMES:
            return True
        match node:
            case ast.Tuple() | ast.List() if not depth:
                return any(self._may_hold_lists(it, depth + 1) for it in node.elts)
            case ast.Dict() if not depth:
                return any(self._may_hold_lists(it, depth + 1) for it in node.values)
            case ast.Name() | ast.Attribute():
                if any(map(self._is_of_loader, self.context.program.definitions(node))):
                    return False
                found = [self.context.program.source(it) for it in self.context.program.definitions(node)]
                values = [it.value for it in found if it.how is How.ASSIGNED and it.value is not None]
                if len(values) < len(found) or not values:
                    return True
                return any(self._may_hold_lists(it, max(depth, 1) + 1) for it in values)
            case ast.Call():
                call = self.context.program.call(node)
                names = call.names if call is not None else frozenset()
                if not depth and names == {"builtins.dict"} and _is_written_dict(node):
                    return any(self._may_hold_lists(it.value, depth + 1) for it in node.keywords)
                if (iterator := self._iterator(node)) is not None and self._draws_from_loader(iterator):
                    return False
                if names and all(it.startswith(ARRAY_HOMES) for it in names):
                    return False
                inner = self._results(entered(self.context, call))
                if not inner and not names and isinstance(node.func, ast.Attribute):
                    return self._may_hold_lists(node.func.value, depth + 1)  # `x.float()`
                return not inner or any(self._may_hold_lists(it, depth and depth + 1) for it in inner)
            case ast.Subscript(value=held):
                return self._may_hold_lists(held, depth + 1) if self._varies(held) else False
            case ast.BinOp():
                return False
        return not isinstance(node, ast.Constant)

    def _draws_from_loader(self, node: ast.expr) -> bool:
        values = self.context.program.values(node)
        return bool(self.context.made(self.context.iterated(values), LOADER))

    # Names

    def _defined(self, node: ast.Name | ast.Attribute) -> Sites:
        found: Sites = {}
        definitions = self.context.program.definitions(node)
        for definition in definitions:
            found |= self._definition(definition)
        if found and any(map(self._is_taken_before, definitions)):
            raise Unknown  # the first batch is none of this loop's rounds
        return found or self._all([*self._entries(node), *self._appended(node)])

    def _entries(self, node: ast.expr) -> list[ast.expr]:
        """What a round puts into a dictionary, all of it under keys that are texts: the losses by their names."""
        if not isinstance(node, ast.Name | ast.Attribute):
            return []
        put = self._put.get(ast.unparse(node), [])
        named = all(isinstance(it, ast.Constant) and isinstance(it.value, str) for it, _ in put)
        return [value for _, value in put] if named else []

    def _appended(self, node: ast.expr) -> Iterator[ast.expr]:
        """What is appended to a list that a round begins."""
        program = self.context.program
        begun = set(program.definitions(node)) if isinstance(node, ast.Name) else set()
        sources = [program.source(it).written[0] for it in begun if not isinstance(it, ast.arg)]
        if not begun or not all(isinstance(it, ast.List) and not it.elts for it in sources):
            return
        for held, value in self._appends if all(id(it) in self.runs for it in begun) else ():
            if begun & set(program.definitions(held)):
                yield value

    @cached_property
    def _put(self) -> dict[str, list[tuple[ast.expr, ast.expr]]]:
        """What a round stores in what, by the text of that, each with its key."""
        found: dict[str, list[tuple[ast.expr, ast.expr]]] = {}
        for node in self._run:
            match node:
                case ast.Assign(targets=[ast.Subscript(value=held, slice=place)], value=value):
                    found.setdefault(ast.unparse(held), []).append((place, value))
        return found

    @cached_property
    def _appends(self) -> list[tuple[ast.Name, ast.expr]]:
        """What a round appends to lists, each with the name of its list."""
        found = []
        for node in self._run:
            match node:
                case ast.Call(func=ast.Attribute(attr="append", value=ast.Name() as held), args=[value]):
                    found.append((held, value))
        return found

    @property
    def _run(self) -> Iterator[ast.AST]:
        """What a round runs, in the order of the program."""
        return (node for key, node in self.context.program.nodes.items() if key in self.runs)

    def _is_taken_before(self, definition: ast.AST) -> bool:
        """Whether a name has its first value before the loop, and that is no constant."""
        if isinstance(definition, ast.arg) or id(definition) in self.runs:
            return False
        value = self.context.program.source(definition).value
        return value is not None and not isinstance(value, ast.Constant)

    def _definition(self, definition: ast.AST) -> Sites:
        program = self.context.program
        if isinstance(definition, ast.arg):
            return self._parameter(definition)
        source = program.source(definition)
        if id(definition) not in self.runs:
            if source.value is not None and self._may_be_rows(source.value):
                raise MadeBefore
            return {}
        match source.how:
            case How.ASSIGNED:
                value, left = source.written
                found = self._of(value)  # type: ignore[arg-type]
                if left and [*found] == [id(value)] and isinstance(value, ast.Call):
                    return self._site(
                        value, made=self._results(entered(self.context, self.context.program.call(value)))
                    )
                return found
            case How.AUGMENTED:
                return self._of(source.value)
            case How.ELEMENT:
                return self._element(source.value, definition, source.place)  # type: ignore[arg-type]
            case How.ENTERED:
                return {}
        if isinstance(definition, ast.FunctionDef | ast.ClassDef | ast.alias):
            return {}
        raise Unknown

    def _parameter(self, parameter: ast.arg) -> Sites:
        program = self.context.program
        scope = program.scope(parameter)
        if not self._is_entered(parameter):
            return {}
        if scope.owner is not None and parameter in scope.signature.places[:1]:
            return {}
        given = [it for it in program.given(parameter) if id(it) in self.runs or isinstance(it, ast.Constant)]
        if not given:
            raise Unknown
        return self._all(given)

    def _may_be_rows(self, value: ast.expr) -> bool:
        """Whether what was made before the loop may have a row for each sample of its batches."""
        call = self.context.program.call(value) if isinstance(value, ast.Call) else None
        return call is not None and bool(call.names & (FILLS | ZEROS)) and bool(call.node.args)

    def _element(self, source: ast.expr, definition: ast.AST, place: tuple[int | None, ...]) -> Sites:
        """What a loop takes of something."""
        program = self.context.program
        call = program.call(source) if isinstance(source, ast.Call) else None
        names = call.names if call is not None else frozenset()
        if names & (RANGES | COUNTERS):
            return {}
        if call is not None and names and names <= HANDS_OUT and call.node.args:
            if "builtins.zip" in names and len(call.node.args) > 1:
                if not place or place[0] is None or not place[0] < len(call.node.args):
                    raise Unknown
                return self._element(call.node.args[place[0]], definition, place[1:])
            if "builtins.enumerate" in names:
                if not place or place[0] is None:
                    raise Unknown
                return self._element(call.node.args[0], definition, place[1:]) if place[0] else {}
            return self._element(call.node.args[0], definition, place)
        around = program.statement(definition)
        trains = isinstance(around, ast.For) and any(
            id(it) in self.context.runs(around) for it in self.context.backwards
        )
        in_comprehension = any(isinstance(it, COMPREHENSIONS) for it in program.ancestors(definition))
        if trains and not in_comprehension and program.is_inside(definition, around.target):  # type: ignore[attr-defined]
            if self._draws_from_loader(source):
                raise Unknown
            if around is not self.loop and (behind := self._of(source)):
                return behind
            if not place and self._is_cut_up(source):
                return self._site(source, is_loop=True)
            return self._handing_out(source, source, bool(place), is_loop=True)
        return self._of(source)

    def _handing_out(self, node: ast.expr, source: ast.expr, unpacked: bool, is_loop: bool = False) -> Sites:
        """What takes a batch of something that hands out such, all of them structures or none."""
        handed_out = [*self._handed_out(source)]
        if not unpacked and not handed_out:
            raise Unknown
        is_structure = unpacked or all(map(self._is_structured, handed_out))
        return self._site(node, is_loop, handed_out if is_structure else None)

    def _is_cut_up(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether an expression is parts of an array, cut from it row by row."""
        if isinstance(node, ast.Name | ast.Attribute):
            found = self._behind(node)
        elif isinstance(node, ast.Call):
            call = self.context.program.call(node)
            if call is not None and call.names and call.names <= SPLITS:
                return _cuts_rows(node, 1)
            if (
                isinstance(node.func, ast.Attribute)
                and node.func.attr in SPLITTING_METHODS
                and not call.callees
            ):
                return _cuts_rows(node, 0) and self._is_array(node.func.value)
            found = self._results(entered(self.context, call))
        else:
            return False
        return bool(found) and depth < NAMES and all(self._is_cut_up(it, depth + 1) for it in found)

    def _is_array(self, node: ast.expr) -> bool:
        """Whether an expression is what a function of torch or numpy returns."""
        found = self._behind(node) if isinstance(node, ast.Name | ast.Attribute) else [node]
        return self._all_call(found, lambda name: name.startswith(ARRAY_HOMES))

    def _is_structured(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether an expression is a tuple, list or dict that is written out somewhere."""
        if isinstance(node, ast.Tuple | ast.List | ast.Dict):
            return True
        if isinstance(node, ast.Name) and any(
            map(self._is_of_loader, self.context.program.definitions(node))
        ):
            return True
        call = self.context.program.call(node) if isinstance(node, ast.Call) else None
        if call is not None and call.names == {"builtins.dict"}:
            return _is_written_dict(call.node)
        if call is not None and (iterator := self._iterator(call.node)) is not None:
            if self._draws_from_loader(iterator):
                return True
        inner = self._results(entered(self.context, call)) if call is not None else self._behind(node)
        inner = [it for it in inner if not (isinstance(it, ast.Constant) and it.value is None)]
        return bool(inner) and depth < NAMES and all(self._is_structured(it, depth + 1) for it in inner)

    def _behind(self, node: ast.expr) -> list[ast.expr]:
        """What a name may be, each as it is written out; nothing where one is not known."""
        found = []
        for definition in self.context.program.definitions(node):
            source = self.context.program.source(definition)
            value, left = source.written
            if source.how is not How.ASSIGNED or left or value is None:
                return []
            if not (
                isinstance(value, ast.Name) and set(self.context.program.definitions(value)) & {definition}
            ):
                found.append(value)
        return found

    def _is_of_loader(self, definition: ast.AST) -> bool:
        """Whether a name gets what a DataLoader hands out."""
        source = self.context.program.source(definition)
        return (
            source.how is How.ELEMENT and source.value is not None and self._draws_from_loader(source.value)
        )

    def _results(self, scopes: list[Scope]) -> list[ast.expr]:
        """What functions return."""
        found = [it for scope in scopes for it in self.context.program.results(scope)]
        return [it.value for it in found if isinstance(it, ast.Return) and it.value is not None]

    def _handed_out(self, source: ast.expr) -> Iterator[ast.expr]:
        """What a generator yields, or an iterator of the project's returns, one after the other."""
        program = self.context.program
        made = source if isinstance(source, ast.Call) else next(iter(assigned(self.context, source)), source)
        call = program.call(made) if isinstance(made, ast.Call) else None
        if call is not None and call.names == {"builtins.iter"} and call.node.args:
            yield from self._handed_out(call.node.args[0])
            return
        scopes = {it.index for it in entered(self.context, call)}
        steps: set[int] = set()
        for value in program.values(source):
            scopes |= {*program.methods(value, "__iter__", source)}
            steps |= {it for name in NEXT_METHODS for it in program.methods(value, name, source)}
        for index in sorted(scopes | steps):
            for node in program.results(program.scopes[index]):
                if isinstance(node, ast.Yield) or (index in steps and isinstance(node, ast.Return)):
                    if node.value is not None:
                        yield node.value

    # Calls

    def _call(self, node: ast.Call) -> Sites:
        program = self.context.program
        call = program.call(node)
        if call is None:
            raise Unknown
        own, given = given_to(self.context, node)
        if call.names and all(it.startswith(DRAWS) for it in call.names):
            likely = [it.value for it in node.keywords if it.arg in HOW_LIKELY]
            given = [it for it in given if it not in likely]
        if self.context.is_wrapped(call.callees):
            self._given |= set().union(*map(self._numbers_of_rows, given))
            found = self._all(given)
            if not found:
                raise Unknown
            return found
        if (iterator := self._iterator(node)) is not None and self._draws_from_loader(iterator):
            return self._site(node, made=[node])
        scopes = entered(self.context, call)
        if (
            call.names == {"builtins.len"}
            or isinstance(node.func, ast.Attribute)
            and node.func.attr == "size"
        ):
            found = self._but_for(MadeBefore, [*own, *given])  # how many rows there are
        elif self._row_by_row(call):
            found = self._but_for(Unknown, given)  # of rows that are put together here
        else:
            found = self._all([*own, *given]) if not scopes else self._all(given)
        if found or self._is_circular:
            return found
        if scopes:
            return self._returned(node, scopes)
        return self._new(call)

    def _returned(self, node: ast.Call, scopes: list[Scope]) -> Sites:
        """A batch that a function makes, or nothing of the kind: where the function is called."""
        program = self.context.program
        returned = self._results(scopes)
        if any(not isinstance(it, ast.Return) for scope in scopes for it in program.results(scope)):
            raise Unknown
        if not self._all(returned):
            return {}
        return self._site(node, made=returned if all(map(self._is_structured, returned)) else None)

    def _new(self, call: Call) -> Sites:
        """What a call makes of no batch: a number, numbers for a batch, or a batch."""
        names, node = call.names, call.node
        if not names:
            method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if self._varies(node) and operations.method(method) is None:
                raise Unknown
            return {}  # of tensors that are none of a batch
        if names == {"builtins.next"}:
            return self._pulled(node)
        if (rows := self._row_by_row(call)) and rows not in self._no_rows:
            self._by_rows.add(rows)
            return self._site(node)
        if all(it in PASSES_NUMBER_ON or it.startswith((*NUMBER_HOMES, "builtins.")) for it in names):
            return {}
        if all(it.startswith(DRAWS) for it in names):
            if not _draws_several(call):
                return {}
            self._drawn |= {ast.unparse(it) for given in handed(node) for it in ast.walk(given)}
            return self._site(node)
        if names & FILLS or names and names <= FILLS_ARRAY and self._varies(node):
            first = _first_size(node.args[0]) if node.args else None
            if first is None or isinstance(first, ast.Constant) and first.value == 1:
                return {}
            self._filled.append(ast.unparse(first))
            return self._site(node)
        if names <= ZEROS or all(it.startswith(NO_BATCH_HOMES) for it in names):
            return {}
        if self._varies(node):
            raise Unknown
        return {}

    def _row_by_row(self, call: Call) -> str:
        """How many rows something has that a round makes row by row; nothing where it is none such.

        ``np.zeros((n, …))`` of which parts are written later, or ``torch.stack(rows)`` of a list that is begun empty,
        and gets one in each round of a loop. What has the same text has as many.
        """
        node, program = call.node, self.context.program
        if id(node) not in self.runs or not node.args:
            return ""
        scope = program.scope(node).index
        if self._is_written_later(node):
            first = _first_size(node.args[0])
            return "" if isinstance(first, ast.Constant) else f"{scope}: {ast.unparse(first)}"
        (rows,) = node.args[:1]
        if not call.names or not call.names <= OF_LISTS | {"torch.Tensor"} or not isinstance(rows, ast.Name):
            return ""
        begun = program.definitions(rows)
        sources = [program.source(it).written[0] for it in begun]
        if not all(id(it) in self.runs for it in begun) or [ast.unparse(it) for it in sources if it] != [
            "[]"
        ]:
            return ""
        uses = [
            it
            for it in program.body(program.scope(node))
            if isinstance(it, ast.Name) and it.id == rows.id and isinstance(it.ctx, ast.Load)
        ]
        added = {it: block for it in uses if (block := self._appended_in(it))}
        changed = [it for it in uses if it not in added and isinstance(program.parent(it), ast.Attribute)]
        return f"{scope}: {min(added.values())}" if len(added) == 1 and not changed else ""

    def _is_written_later(self, node: ast.Call) -> bool:
        """Whether a call makes an array of which some rows are written later."""
        program = self.context.program
        call, parent = program.call(node), program.parent(node)
        if call is None or not call.names or not call.names <= FILLS_ARRAY | FILLS | {"numpy.zeros"}:
            return False
        if not isinstance(parent, ast.Assign) or not isinstance(parent.targets[0], ast.Name):
            return False
        target, *_ = parent.targets
        stored = (
            it
            for it in program.body(program.scope(node))
            if isinstance(it, ast.Subscript) and isinstance(it.ctx, ast.Store)
        )
        return any(target in program.definitions(base) for it in stored if (base := _written_rows_of(it)))

    def _appended_in(self, use: ast.Name) -> str:
        """The block of a loop that adds one entry to a list wherever it runs; nothing where that is not all it does."""
        program = self.context.program
        method = program.parent(use)
        call = (
            program.parent(method) if isinstance(method, ast.Attribute) and method.attr == "append" else None
        )
        statement = program.parent(call) if isinstance(call, ast.Call) else None
        block = program.parent(statement) if isinstance(statement, ast.Expr) else None
        if not isinstance(block, ast.For | ast.While | ast.If) or block is self.loop:
            return ""
        loop = next((it for it in [block, *program.ancestors(block)] if isinstance(it, LOOPS)), None)
        leaves = any(isinstance(it, ast.Continue | ast.Break | ast.Try) for it in ast.walk(block))
        if leaves or loop is None or loop is self.loop or id(loop) not in self.runs:
            return ""
        return f"{id(block)} {statement in block.body}"

    def _numbers_of_rows(self, node: ast.expr) -> set[str]:
        """How many rows what a model is given has, where it is made row by row."""
        found: set[str] = set()
        seen: set[tuple[int, tuple[int | None, ...]]] = set()
        waiting: list[tuple[ast.expr, tuple[int | None, ...]]] = [(node, ())]
        while waiting:
            made, place = waiting.pop()
            if (id(made), place) in seen or len(place) > DEPTH:
                continue
            seen.add((id(made), place))
            if isinstance(made, ast.Call):
                call = self.context.program.call(made)
                if call is not None and (rows := self._row_by_row(call)):
                    found.add(rows)
                    continue
            waiting += self._has_rows_of(made, place)
        return found

    def _has_rows_of(
        self, node: ast.expr, place: tuple[int | None, ...]
    ) -> Iterator[tuple[ast.expr, tuple[int | None, ...]]]:
        """What a value has its rows of, each with its place in that."""
        program = self.context.program
        match node:
            case ast.Name() | ast.Attribute():
                for definition in program.definitions(node):
                    if isinstance(definition, ast.arg):
                        yield from ((it, place) for it in program.given(definition))
                    elif (source := program.source(definition)).how is How.ASSIGNED:
                        value, left = source.written
                        yield value, (*left, *place)  # type: ignore[misc]
            case ast.Tuple(elts=elts) if place and place[0] is not None and place[0] < len(elts):
                yield elts[place[0]], place[1:]
            case ast.Call() if (call := program.call(node)) is not None:
                if scopes := entered(self.context, call):
                    yield from ((it, place) for it in self._results(scopes))
                elif call.names and call.names <= OF_LISTS | {VARIABLE}:
                    yield from ((it, ()) for it in node.args[:1])
                elif isinstance(node.func, ast.Attribute) and node.func.attr in KEEPS_ROWS | {"astype"}:
                    yield node.func.value, ()

    def _pulled(self, node: ast.Call) -> Sites:
        """``next(batches)``."""
        if not node.args:
            raise Unknown
        parent = self.context.program.parent(node)
        unpacked = isinstance(parent, ast.Assign) and any(isinstance(it, ast.Tuple) for it in parent.targets)
        return self._handing_out(node, node.args[0], unpacked)

    def _iterator(self, node: ast.Call) -> ast.expr | None:
        """What the next batch is taken from: ``next(batches)``, ``batches.next()``."""
        if not takes_next(self.context, node):
            return None
        return node.func.value if isinstance(node.func, ast.Attribute) else next(iter(node.args), None)


def _draws_several(call: Call) -> bool:
    """Whether random numbers are drawn for a batch, and not one for all of it."""
    last = {name.rpartition(".")[2] for name in call.names}
    named = [it.value for it in call.node.keywords if it.arg in HOW_MANY]
    needed = max(DRAWS_SEVERAL.get(name, len(call.node.args) + 1) for name in last)
    if call.names & DRAWS_ONE or not (named or len(call.node.args) >= needed):
        return False
    sizes = named or (call.node.args[:1] if needed == 1 else call.node.args[-1:])
    first = _first_size(sizes[0])
    return not (isinstance(first, ast.Constant) and first.value == 1)


def _first_size(sizes: ast.expr) -> ast.expr:
    """How many rows sizes say, ``n`` and ``(n, 3)``."""
    return sizes.elts[0] if isinstance(sizes, ast.Tuple | ast.List) and sizes.elts else sizes


def _written_rows_of(node: ast.Subscript) -> ast.expr | None:
    """What gets other rows; nothing where that is all rows."""
    while isinstance(node.value, ast.Subscript):
        node = node.value
    return None if is_everything(first_of(node.slice)) else node.value


def _cuts_rows(node: ast.Call, place: int) -> bool:
    """Whether a call cuts what it is given along dimension 0; ``place``: where it is said into what."""
    return len(node.args) == place + 1 and not node.keywords


def _is_written_dict(node: ast.Call) -> bool:
    """Whether ``dict(x=…, y=…)`` says all its keys."""
    return bool(node.keywords) and not node.args and all(it.arg is not None for it in node.keywords)


def _width(site: Site) -> str:
    """How many samples a slice has: ``size`` in ``data[start : start + size]``."""
    match site.node:
        case ast.Subscript(slice=ast.Slice(upper=ast.BinOp(op=ast.Add(), right=size))):
            return ast.unparse(size)
    return ""
