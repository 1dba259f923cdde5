"""Batches that the program makes itself: slices of its data, what a replay buffer or a generator hands out.

They are found from the loss: what it is computed of is followed back to where a round of the training loop takes
something from outside. The program is then looked at as if a DataLoader handed that out, so that everything else needs
to know of loaders only. If that comes to sharding it, the runtime takes this rank's part there.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

from dp2ddp.analyse import wrappers
from dp2ddp.analyse.api.iteration import COUNTERS, HANDS_OUT, RANGES
from dp2ddp.analyse.api.naming import LOADER
from dp2ddp.analyse.api.numbers import NUMBER_HOMES, PASSES_NUMBER_ON
from dp2ddp.analyse.api.randomness import DRAWS, DRAWS_ONE, DRAWS_SEVERAL, HOW_MANY
from dp2ddp.analyse.api.tensors import DESCRIBES, FILLS, ZEROS
from dp2ddp.analyse.context import COMPREHENSIONS, LOOPS, Context
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.sources import How
from dp2ddp.analyse.program.values import Bound, Func
from dp2ddp.facts import OwnBatch

NEXT, LOADS = "_next_of_own_batches", "_DataLoader_of_own_batches"
"""What ``next`` and DataLoader are called where batches are looked at as a loader's."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
DEPTH = 40
# The loops round a backward pass, inside out, that are looked at for batches.
ROUND = 3


@dataclass(frozen=True)
class Site:
    """An expression that a round of the training takes a batch from: the batch, or what hands it out to a loop."""

    node: ast.expr
    kind: OwnBatch


Sites = dict[int, Site]


class Unknown(Exception):
    """What a loss is computed of can't be followed."""


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


def looked_at_as_loaders(context: Context, sites: list[Site]) -> Context:
    """The programs as they would be if DataLoaders handed out the batches."""
    program = context.program
    files = {}
    for file in program.files:
        inside = {id(it): it for it in ast.walk(file.tree)}
        here = [site for site in sites if id(site.node) in inside]
        tree = copy.deepcopy(file.tree)
        twins = {id(old): new for old, new in zip(ast.walk(file.tree), ast.walk(tree), strict=True)}
        for site in here:
            _hand_out(tree, twins[id(site.node)], site.kind)  # type: ignore[arg-type]
        if here:
            _import(tree)
        files[file.path] = replace(file, tree=tree)
    project = replace(program.project, files={**program.project.files, **files})
    return Context(wrappers.linked(project, list(files.values())))


class _UnseenCall(ast.Call):
    """A call that is not the program's own: ``ast.unparse`` shows its argument alone."""


class _UnseenName(ast.Name):
    """What it calls."""


def _hand_out(tree: ast.Module, node: ast.expr, kind: OwnBatch) -> None:
    made: ast.Call = _UnseenCall(_UnseenName(LOADS, ast.Load()), [node], [])
    made.own_batch = kind  # type: ignore[attr-defined]
    whole = made if kind.is_loop else _UnseenCall(_UnseenName(NEXT, ast.Load()), [made], [])
    for it in (whole, whole.func, made, made.func):
        ast.copy_location(it, node)
        it.inserted = True  # type: ignore[attr-defined]
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is node and parent is not made:
                setattr(parent, name, whole)
            elif isinstance(value, list) and node in value and parent is not made:
                setattr(parent, name, [whole if it is node else it for it in value])


def _import(tree: ast.Module) -> None:
    text = f"from builtins import next as {NEXT}\nfrom torch.utils.data import DataLoader as {LOADS}"
    imports = ast.parse(text).body
    future = [it for it in tree.body if isinstance(it, ast.ImportFrom) and it.module == "__future__"]
    place = tree.body.index(future[-1]) + 1 if future else 0
    for imported in imports:
        for node in ast.walk(imported):
            ast.copy_location(node, tree.body[0])
            node.inserted = True  # type: ignore[attr-defined]
    tree.body[place:place] = imports


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
                if sites is None:
                    return None
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


@dataclass
class _Tracing:
    """Follows a loss back to what a round of a loop takes from outside.

    ``runs``: identities of what a round may run.
    """

    context: Context
    loop: ast.AST
    runs: frozenset[int]
    _known: dict[int, Sites] = field(default_factory=dict)
    _filled: list[str] = field(default_factory=list)  # how many rows new tensors have that no numbers are drawn for
    _drawn: set[str] = field(default_factory=set)  # and what numbers are drawn by
    _depth: int = 0

    def of_loss(self, backward: ast.Call) -> Sites | None:
        """The batches that a loss is computed of; None where that is not known."""
        try:
            found = self._of(self.context.loss(backward))
            if not {*self._filled} <= self._drawn | {*map(_width, found.values())}:
                return None
            found |= {
                id(it): Site(it, OwnBatch(is_loop=False))
                for site in list(found.values())
                for it in self._cut_alike(site.node)
            }
        except Unknown:
            return None
        return found if all(map(self._only_trains, found.values())) else None

    def _cut_alike(self, node: ast.expr) -> Iterator[ast.expr]:
        """What a round also takes by the same bounds as a batch, beside the loss: targets that are compared."""
        if isinstance(node, ast.Subscript):
            bounds = ast.unparse(node.slice)
            for key in self.runs:
                other = self.context.program.nodes.get(key)
                if isinstance(other, ast.Subscript) and isinstance(other.ctx, ast.Load) and other is not node:
                    if ast.unparse(other.slice) == bounds:
                        yield other

    def _only_trains(self, site: Site) -> bool:
        """Whether only rounds of this loop come to a place."""
        program, seen = self.context.program, set[int]()
        home = program.scope(self.loop).index
        waiting = [program.scope(site.node).index]
        while waiting:
            index = waiting.pop()
            if index == home or index in seen:
                continue
            seen.add(index)
            calls = [it for it in self.context.callers.get(index, ()) if self.context.runs_in_training(it)]
            if not all(id(it) in self.runs for it in calls):
                return False
            waiting += [program.scope(it).index for it in calls]
        return True

    def _all(self, nodes: Iterable[ast.AST]) -> Sites:
        found: Sites = {}
        for node in nodes:
            found |= self._of(node)
        return found

    def _of(self, node: ast.AST) -> Sites:
        if id(node) in self._known:
            return self._known[id(node)]
        if self._depth > DEPTH:
            raise Unknown
        self._known[id(node)] = {}  # what is made from itself
        self._depth += 1
        found = self._computed(node)
        self._depth -= 1
        self._known[id(node)] = found
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
        held = self._of(node.value) if self._varies(node.value) else {}
        index = self._of(node.slice)
        if [*held] == [id(node.value)]:  # what is taken of a new batch is the batch
            held = {}
        elif held:
            return held | index
        if index:
            return index
        sliced = any(isinstance(it, ast.Slice) for it in ast.walk(node.slice))
        if not self._varies(node):
            return {}
        if not sliced:
            raise Unknown  # a batch, or a sample
        return self._site(node)

    def _varies(self, node: ast.AST) -> bool:
        """Whether an expression may be another one in the next round."""
        program = self.context.program
        made = (it for part in ast.walk(node) if isinstance(part, ast.Name) for it in program.definitions(part))
        return any(id(it) in self.runs or isinstance(it, ast.arg) and self._is_entered(it) for it in made)

    def _is_entered(self, parameter: ast.arg) -> bool:
        """Whether a round calls the function of a parameter."""
        body = self.context.program.scope(parameter).body
        return bool(body) and id(body[0]) in self.runs

    def _site(self, node: ast.expr, is_structure: bool = False, is_loop: bool = False) -> Sites:
        return {id(node): Site(node, OwnBatch(is_loop, is_structure))}

    # Names

    def _defined(self, node: ast.Name | ast.Attribute) -> Sites:
        found: Sites = {}
        for definition in self.context.program.definitions(node):
            found |= self._definition(definition)
        return found

    def _definition(self, definition: ast.AST) -> Sites:
        program = self.context.program
        if isinstance(definition, ast.arg):
            return self._parameter(definition)
        source = program.source(definition)
        if id(definition) not in self.runs:
            if source.value is not None and self._may_be_rows(source.value):
                raise Unknown
            return {}
        match source.how:
            case How.ASSIGNED:
                value, left = source.value, [*source.place]
                while left and left[0] is not None and isinstance(value, ast.Tuple | ast.List):
                    value = value.elts[left.pop(0)]  # type: ignore[arg-type]
                found = self._of(value)  # type: ignore[arg-type]
                if left and [*found] == [id(value)] and isinstance(value, ast.Call):
                    site = found[id(value)]  # it is unpacked
                    return {id(value): replace(site, kind=replace(site.kind, is_structure=True))}
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
            if self.context.made(self.context.iterated(program.values(source)), LOADER):
                raise Unknown
            if around is not self.loop and (behind := self._of(source)):
                return behind
            if not self._hands_out_structures(source, place):
                raise Unknown
            return self._site(source, is_structure=True, is_loop=True)
        return self._of(source)

    def _hands_out_structures(self, source: ast.expr, place: tuple[int | None, ...]) -> bool:
        """Whether a loop takes tuples or dicts: it unpacks them, or what it goes over yields such."""
        yielded = [*self._yielded(source)]
        if yielded:
            return all(isinstance(it, ast.Tuple | ast.Dict) for it in yielded)
        return bool(place)

    def _yielded(self, source: ast.expr) -> Iterator[ast.expr]:
        call = self.context.program.call(source) if isinstance(source, ast.Call) else None
        for scope in self._entered(call):
            for node in self.context.program.body(scope):
                if isinstance(node, ast.Yield) and node.value is not None:
                    yield node.value

    def _entered(self, call: Call | None) -> list:
        """The functions that a call runs, where that is all it does."""
        if call is None or not call.callees:
            return []
        if not all(isinstance(it, Func | Bound) for it in call.callees):
            return []
        targets = {it for callee in call.callees for it, _, _ in self.context.program.targets(callee, call)}
        return [self.context.program.scopes[it] for it in sorted(targets)]

    # Calls

    def _call(self, node: ast.Call) -> Sites:
        program = self.context.program
        call = program.call(node)
        if call is None:
            raise Unknown
        given = [it.value if isinstance(it, ast.Starred) else it for it in handed(node)]
        if self.context.is_wrapped(call.callees):
            found = self._all(given)
            if not found:
                raise Unknown
            return found
        receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
        own = [] if receiver is None or self._is_home(receiver) else [receiver]
        scopes = self._entered(call)
        found = self._all([*own, *given]) if not scopes else self._all(given)
        if found:
            return found
        if scopes:
            return self._returned(node, scopes)
        return self._new(call)

    def _is_home(self, receiver: ast.expr) -> bool:
        """Whether the call of an attribute is one of a module's functions: ``torch.randn``, ``F.relu``."""
        values = self.context.program.values(receiver)
        return bool(values) and all(type(it).__name__ in ("Ext", "Mod") for it in values)

    def _returned(self, node: ast.Call, scopes: list) -> Sites:
        """A batch that a function makes, or nothing of the kind: where the function is called."""
        program = self.context.program
        returned = [
            it.value
            for scope in scopes
            for it in program.body(scope)
            if isinstance(it, ast.Return) and it.value is not None
        ]
        if any(isinstance(it, ast.Yield | ast.YieldFrom) for scope in scopes for it in program.body(scope)):
            raise Unknown
        if not self._all(returned):
            return {}
        if any(isinstance(it, ast.List) for it in returned):
            raise Unknown
        return self._site(node, is_structure=all(isinstance(it, ast.Tuple | ast.Dict) for it in returned))

    def _new(self, call: Call) -> Sites:
        """What a call makes of no batch: a number, numbers for a batch, or a batch."""
        names, node = call.names, call.node
        if not names:
            raise Unknown
        if names == {"builtins.next"}:
            return self._pulled(node)
        if all(it in PASSES_NUMBER_ON or it.startswith((*NUMBER_HOMES, "builtins.")) for it in names):
            return {}
        if all(it.startswith(DRAWS) for it in names):
            if not _draws_several(call):
                return {}
            self._drawn |= {ast.unparse(it) for given in handed(node) for it in ast.walk(given)}
            return self._site(node)
        if names & FILLS:
            first = node.args[0] if node.args else None
            first = first.elts[0] if isinstance(first, ast.Tuple | ast.List) and first.elts else first
            if first is None or isinstance(first, ast.Constant) and first.value == 1:
                return {}
            self._filled.append(ast.unparse(first))
            return self._site(node)
        if names <= ZEROS or all(it.startswith(("torch.nn.", "torch.device", "torch.cuda.")) for it in names):
            return {}
        if not self._varies(node):
            return {}
        raise Unknown

    def _pulled(self, node: ast.Call) -> Sites:
        """``next(batches)``, of a generator of the project's own that yields tuples or dicts."""
        source = node.args[0]
        if self.context.made(self.context.iterated(self.context.program.values(source)), LOADER):
            raise Unknown
        parent = self.context.program.parent(node)
        unpacked = isinstance(parent, ast.Assign) and any(isinstance(it, ast.Tuple) for it in parent.targets)
        if not unpacked:
            raise Unknown
        return self._site(node, is_structure=True)


def _draws_several(call: Call) -> bool:
    """Whether random numbers are drawn for a batch, and not one for all of it."""
    last = {name.rpartition(".")[2] for name in call.names}
    named = [it.value for it in call.node.keywords if it.arg in HOW_MANY]
    needed = max(DRAWS_SEVERAL.get(name, len(call.node.args) + 1) for name in last)
    if call.names & DRAWS_ONE or not (named or len(call.node.args) >= needed):
        return False
    sizes = named or (call.node.args[:1] if needed == 1 else call.node.args[-1:])
    first = sizes[0].elts[0] if isinstance(sizes[0], ast.Tuple | ast.List) and sizes[0].elts else sizes[0]
    return not (isinstance(first, ast.Constant) and first.value == 1)


def _width(site: Site) -> str:
    """How many samples a slice has: ``size`` in ``data[start : start + size]``."""
    match site.node:
        case ast.Subscript(slice=ast.Slice(upper=ast.BinOp(op=ast.Add(), right=size))):
            return ast.unparse(size)
    return ""
