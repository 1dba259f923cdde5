"""How expressions differ between processes, and what calls enter."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from dp2ddp.analyse.api.containers import COLLECTIONS, DICT_VIEWS, EMPTY_DICTS, TRUTH
from dp2ddp.analyse.api.inspection import ASKS_KIND_OR_SIZE, GETS_ATTRIBUTES, SIZES, calls_nothing
from dp2ddp.analyse.api.layers import TRAINED_ATTRIBUTES
from dp2ddp.analyse.api.parallel import is_runtime
from dp2ddp.analyse.api.tensors import NO_NUMBERS
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.kinds import DEALT, PLAIN, Every, Held, Kind, Unclear
from dp2ddp.analyse.dataflow.samples.carried import are_of_one_batch
from dp2ddp.analyse.dataflow.samples.sizes import counted
from dp2ddp.analyse.processes.conditions import is_call_of
from dp2ddp.analyse.program.calls import handed
from dp2ddp.analyse.program.values import NOTHING, Bound, Cls, Coll, Ext, Func, Inst, Made, Mod, Value
from dp2ddp.analyse.rank_variance.callees import Callees, is_outside
from dp2ddp.analyse.rank_variance.store import (
    CHOSEN,
    DRAWN,
    MANY,
    MEASURED,
    NUMBER,
    PARTS,
    SIZED,
    SURELY,
    Entry,
    Found,
    Frame,
    Store,
    any_of,
    plainly,
)
from dp2ddp.analyse.rank_variance.work import Work
from dp2ddp.analyse.training import hooks
from dp2ddp.analyse.training.loops import is_of_round
from dp2ddp.analyse.training.reports import Reports

CALLS = 5
"""How many functions deep a tensor is handed on."""


class Expressions:
    """How expressions differ, in the ways in which the functions are called that they stand in."""

    def __init__(self, context: Context, store: Store, work: Work, reported: Reports) -> None:
        self.context, self.program = context, context.program
        self.store, self.work, self.reported = store, work, reported
        self.callees = Callees(context, store)

    def how(self, node: ast.AST | None, frame: Frame, found: Found) -> int:
        """How an expression differs, in a frame."""
        if node is None or id(node) in self.reported.whole:
            return 0
        state, how = found.known.get(id(node), (-1, 0))
        if state != self.store.state:
            how = self._computed(node, frame, found)
            found.known[id(node)] = self.store.state, how
        return how

    def _computed(self, node: ast.AST, frame: Frame, found: Found) -> int:
        match node:
            case ast.Constant() | ast.Lambda():
                return 0
            case ast.Name():
                return self._settled(node, self._named(node, found))
            case ast.Subscript(
                value=ast.Attribute(attr="shape", value=held), slice=index
            ) if self._has_columns(held):
                return self._size_of_columns(node, index)
            case ast.Attribute(attr="shape", value=value):
                return SIZED if self.how(value, frame, found) & NUMBER else 0
            case ast.Attribute(attr=name) if name in NO_NUMBERS:
                return 0
            case ast.Attribute():
                return self._settled(node, self._attribute(node, frame, found))
            case ast.Subscript(value=value, slice=ast.Constant(value=str() as entry)):
                return self._settled(node, self._entry(value, entry, frame, found))
            case ast.Subscript(value=value, slice=index):
                held = self.how(value, frame, found)
                if held & SIZED:
                    return 0 if _is_later(index) else DRAWN
                return self._settled(node, held | self.how(index, frame, found))
            case ast.Call():
                return self._handed(node, frame, found)
            case ast.Compare() if self.reported.is_whole(node) or self._counts_one_batch(node):
                return 0
            case ast.Compare(left=left, comparators=others):
                asked = [self.how(it, frame, found) for it in (left, *others)]
                if self.context.asks_identity(node):
                    return MEASURED | SURELY if any(it & MANY for it in asked) else 0
                if not asked[-1] & MANY and self._asks_for_key(node):
                    return 0
                return any_of(it if it != SIZED else 0 for it in asked)
            case ast.IfExp(test=test):
                branches = self.how(node.body, frame, found) | self.how(node.orelse, frame, found)
                return branches | (CHOSEN if self.differs(test, frame, found) else 0)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                made = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
                tests = [it for part in node.generators for it in part.ifs]
                chosen = any(self.differs(it, frame, found) for it in tests)
                drawn = any_of(self.how(part.iter, frame, found) for part in node.generators)
                return any_of(self.how(it, frame, found) for it in made) | (
                    CHOSEN if chosen else drawn & ~SIZED
                )
        return any_of(
            self.how(it, frame, found) for it in ast.iter_child_nodes(node) if isinstance(it, PARTS)
        )

    def _counts_one_batch(self, test: ast.Compare) -> bool:
        """``len(x) == len(y)`` of one batch: a part has as many of the one as of the other where the whole has."""
        held = [counted(it) for it in (test.left, *test.comparators)]
        if not all(it is not None and self._is_dealt(it) for it in held):
            return False
        return are_of_one_batch(self.reported.values, held)  # type: ignore[arg-type]

    def _is_dealt(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether something has a row for each sample, of a part or of the whole batch: in every call."""
        value = kinds.tensor(self.reported.values.of(node), node)
        if not isinstance(value, Unclear):
            return value in (*DEALT, Kind.WHOLE)
        made = self.program.definitions(node) if isinstance(node, ast.Name) and depth < 5 else []
        given = [self.program.given(it) if isinstance(it, ast.arg) else [] for it in made]
        return bool(made) and all(
            some and all(self._is_dealt(it, depth + 1) for it in some) for some in given
        )

    def _asks_for_key(self, test: ast.Compare) -> bool:
        """``"mask" in batch``: the batches of a loader, and what a model returns, have the same keys on all ranks."""
        match test:
            case ast.Compare(
                left=ast.Constant(value=str()), ops=[ast.In() | ast.NotIn()], comparators=[held]
            ):
                if (
                    isinstance(held, ast.Call)
                    and isinstance(held.func, ast.Attribute)
                    and held.func.attr == "keys"
                ):
                    held = held.func.value
                return self._is_handed_out(held)
        return False

    def goes_through_keys(self, source: ast.expr) -> bool:
        """Whether a loop goes through a dict that has the same keys on all ranks, but for what some put there."""
        match source:
            case ast.Call(func=ast.Attribute(value=held, attr=method), args=[], keywords=[]):
                return method in DICT_VIEWS and (self._is_filled_here(held) or self._is_handed_out(held))
        return False

    def _is_handed_out(self, held: ast.expr, depth: int = 0) -> bool:
        """Whether a dict is a batch of a loader, or what a model returns: with the same keys on all ranks."""
        value = self.reported.values.of(held)
        if value is Kind.OUTPUT or isinstance(value, Held | Every):
            return True
        if value in (Kind.BATCH, Kind.WHOLE):
            return self._is_batch(held)
        made = self.program.definitions(held) if isinstance(held, ast.Name) and depth < 5 else []
        given = [self.program.given(it) if isinstance(it, ast.arg) else [] for it in made]
        return bool(made) and all(
            some and all(self._is_handed_out(it, depth + 1) for it in some) for some in given
        )

    def _is_filled_here(self, held: ast.expr) -> bool:
        """Whether a dict begins empty, or with entries that are written out, in the project."""
        values = self.program.values(held)
        return bool(values) and all(map(self._begins_written, values))

    def _begins_written(self, value: Value) -> bool:
        node = self.program.node(value.site) if isinstance(value, Coll | Made) else None
        if isinstance(node, ast.Dict):
            return all(isinstance(it, ast.Constant) for it in node.keys)
        if isinstance(value, Made) and isinstance(node, ast.Call) and value.name in EMPTY_DICTS:
            return len(node.args) <= EMPTY_DICTS[value.name] and not node.keywords
        return False

    def _is_batch(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether a name is a whole batch, as a loop draws it, and no part of one."""
        made = self.program.definitions(node) if isinstance(node, ast.Name) and depth < 5 else []
        for definition in made:
            around = self.program.parent(definition)
            counted = isinstance(around, ast.Tuple) and around.elts[-1] is definition
            loop = self.program.parent(around) if counted and len(around.elts) == 2 else around
            if isinstance(definition, ast.arg):
                given = self.program.given(definition)
                if not given or not all(self._is_batch(it, depth + 1) for it in given):
                    return False
            elif (
                not isinstance(loop, ast.For)
                or counted
                and not is_call_of(self.context, loop.iter, "builtins.enumerate")
            ):
                return False
        return bool(made)

    def differs(self, test: ast.expr, frame: Frame, found: Found) -> bool:
        """Whether the processes may answer a condition each in its own way."""
        how = self.how(test, frame, found) | self._own(test, TRUTH, frame)
        if isinstance(test, ast.Name | ast.Attribute) and self.is_collection(test):
            return bool(how & MANY)
        return bool(how & ~SIZED)

    def _own(self, node: ast.expr, names: tuple[str, ...], frame: Frame) -> int:
        """What methods of a project's object answer that Python calls by itself."""
        owners = self.store.owners(node, frame) if isinstance(node, ast.Name | ast.Attribute) else NOTHING
        found = [
            Frame(scope, frozenset([owner]), trains=frame.trains)
            for owner in owners
            if isinstance(owner, Inst) and not self.context.module_class(owner)
            for name in names
            for scope in self.program.methods(owner, name, node)
        ]
        return any_of(self.store.of(it).returned for it in found)

    def is_collection(self, node: ast.expr) -> bool:
        values = self.program.values(node)
        return bool(values) and all(
            isinstance(it, Coll) or isinstance(it, Made) and it.name.startswith(COLLECTIONS) for it in values
        )

    def _settled(self, node: ast.expr, how: int) -> int:
        """Without what the values of a name say is the same in all processes."""
        return 0 if how and not how & CHOSEN & ~MEASURED and self.reported.is_whole(node) else how

    def _entry(self, held: ast.expr, entry: str, frame: Frame, found: Found) -> int:
        """What a dict holds under a key."""
        match held:
            case ast.Name() if id(held) not in self.reported.whole:
                return self._settled(held, self._named(held, found, entry))
            case ast.Attribute(attr=name) if id(held) not in self.reported.whole and name not in NO_NUMBERS:
                return self._settled(held, self._attribute(held, frame, found, entry))
        return self.how(held, frame, found)

    def _attribute(self, node: ast.Attribute, frame: Frame, found: Found, entry: str | None = None) -> int:
        own = self.how(node.value, frame, found) if not self.store.is_me(node.value, frame) else 0
        return own | self._field(node, frame, entry) | self._asked(node, frame)

    def _named(self, name: ast.Name, found: Found, entry: str | None = None) -> int:
        store = self.store
        how = store.held_by(self.program.values(name), entry)
        scope = self.program.scope(name)
        everywhere = self.program.variable(name)
        for made in everywhere:
            store.asking[id(made)][store.frame] = None
        parameter = next((it for it in scope.signature.every if it.arg == name.id), None)
        if parameter is not None and parameter not in everywhere:  # of a function that no call is seen of
            return how | store.read(found.names, id(parameter), entry)
        if all(self.program.scope_of.get(id(it)) is scope for it in everywhere):
            made = self.program.definitions(name) or everywhere
            return how | any_of(
                store.read(known, id(it), entry) for it in made for known in (found.names, store.foreign)
            )
        how |= any_of(
            store.read(known, id(it), entry) for it in everywhere for known in (store.shared, store.foreign)
        )
        return how | SURELY if how & NUMBER else how

    def _field(self, node: ast.Attribute, frame: Frame, entry: str | None = None) -> int:
        store = self.store
        owners = store.owners(node.value, frame)
        store.asking[node.attr][store.frame] = None
        known = store.fields.get(node.attr, {})
        if not owners:
            how = any_of(store.read(known, it, entry) for it in store.known(known))
            return how if node.attr not in TRAINED_ATTRIBUTES else 0
        named = all(isinstance(it, Ext) for it in owners)  # `torch.utils.data`: no object that is not known
        how = 0 if named else store.read(known, None, entry)
        how |= store.held_by(self.program.values(node), entry)
        for owner in owners if known or store.shared else ():
            family = self.program.bases(owner.cls) if isinstance(owner, Inst) else []
            how |= any_of(store.read(known, it, entry) for it in (owner, *family))
            if isinstance(owner, Mod):
                for made in self.program.exported(owner.path, node.attr):
                    store.asking[id(made)][store.frame] = None
                    how |= store.read(store.shared, id(made), entry)
        return how

    def _asked(self, node: ast.Attribute, frame: Frame) -> int:
        """What a property returns."""
        how = 0
        for value in self.program.getters(node):
            owners = self.store.owners(node.value, frame) or frozenset([value.owner])
            how |= self.store.of(Frame(value.func.scope, owners, trains=frame.trains)).returned
        return how

    def _handed(self, node: ast.Call, frame: Frame, found: Found) -> int:
        """How the result of a call differs."""
        call, function = self.program.call(node), node.func
        if id(node) in self.work.pulled:
            return DRAWN
        if call is None:
            return any_of(self.how(it, frame, found) for it in handed(node))
        names = call.names
        if names & GETS_ATTRIBUTES and len(node.args) > 1:
            return self._got(node, frame, found)
        if names & (ASKS_KIND_OR_SIZE - SIZES) or is_runtime(names):
            return 0
        given = [self.how(it, frame, found) for it in handed(node)]
        if self.context.is_wrapped(call.callees):
            trains = (frame.trains or id(node) in self.work.inside) and id(node) not in self.work.evaluated
            return MEASURED if trains or any_of(given) & NUMBER else 0
        if "builtins.len" in names:
            own = self._own(node.args[0], ("__len__",), frame) if node.args else 0
            return self._length(node, any_of(given)) | own
        method = function.attr if isinstance(function, ast.Attribute) else ""
        receiver = self.how(function.value, frame, found) if isinstance(function, ast.Attribute) else 0
        if method == "size" and len(node.args) == 1 and self._has_columns(function.value):  # type: ignore[attr-defined]
            return self._size_of_columns(node, node.args[0]) if receiver & NUMBER else 0
        if method == "size" and receiver & NUMBER:
            return SIZED if not node.args else 0 if _is_later(node.args[0]) else DRAWN
        if method == "numel" and receiver & NUMBER:
            return DRAWN
        if method in NO_NUMBERS:
            return 0
        entries = self.entries(node, frame, found)
        how = any_of(self.store.of(it.frame).returned for it in entries)
        if not entries or is_outside(call):
            own = [it for it in given if not it & SIZED] + [DRAWN for it in given if it & SIZED]
            outside = any_of(own) | receiver
            how |= outside | (MEASURED | SURELY if outside & MANY else 0)
        return how

    def _got(self, node: ast.Call, frame: Frame, found: Found) -> int:
        """How what ``getattr(object, name)`` hands out differs."""
        owners = self.store.owners(node.args[0], frame)
        how = any_of(self.how(it, frame, found) for it in node.args)
        name = node.args[1].value if isinstance(node.args[1], ast.Constant) else None
        for attribute in [name] if name is not None else list(self.store.fields):
            self.store.asking[attribute][self.store.frame] = None
            known = self.store.fields.get(str(attribute), {})
            how |= any_of(
                self.store.read(known, it)
                for it in self.store.known(known)
                if it is None or not owners or it in owners
            )
        return how

    def _has_columns(self, node: ast.expr) -> bool:
        """Whether a tensor has its samples in dimension 1: those of a batch, or what all batches are cut from."""
        if not self.work.columns:
            return False
        return self.reported.values.of(node) is Kind.COLUMNS or self._is_cut(node)

    def _is_cut(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether something is what batches of columns are cut from, or what is made of no batch: other texts."""
        if not isinstance(node, ast.Name) or depth > CALLS:
            return not is_of_round(self.context, node, self.work.rounds)
        definitions = self.program.definitions(node)
        return bool(definitions) and all(self._is_cut_where(it, depth + 1) for it in definitions)

    def _is_cut_where(self, definition: ast.AST, depth: int) -> bool:
        if isinstance(definition, ast.arg):
            given = self.program.given(definition)
            return bool(given) and all(self._is_cut(it, depth) for it in given)
        value = self.program.source(definition).value
        if id(definition) in self.work.rounds or value is None:
            return False
        return id(value) in self.work.columns or not is_of_round(self.context, value, self.work.rounds)

    def _size_of_columns(self, node: ast.expr, dimension: ast.expr) -> int:
        """How a size of such a tensor differs: but for the second, which is that of the part, not at all."""
        match dimension:
            case ast.Constant(value=int(number)) if number != 1:
                return 0
        return 0 if self.reported.values.of(node) in PLAIN else DRAWN

    def _length(self, node: ast.Call, how: int) -> int:
        """How ``len(x)`` differs."""
        if how & MANY:
            return MEASURED | SURELY
        if not how & NUMBER or not node.args or self._has_columns(node.args[0]):
            return 0
        counted = kinds.tensor(self.reported.values.of(node), node)
        if counted in (Kind.COUNT, Kind.TOTAL):
            return DRAWN
        around = self.program.parent(node)
        arity = isinstance(around, ast.Compare) and any(
            isinstance(it, ast.Constant) for it in (around.left, *around.comparators)
        )
        return (
            DRAWN
            if isinstance(counted, Unclear) and not arity and not self.is_collection(node.args[0])
            else 0
        )

    def entries(self, node: ast.Call, frame: Frame, found: Found) -> list[Entry]:
        state, entries = found.entered.get(id(node), (-1, []))
        if state != self.store.state:
            entries = list(self._entering(node, frame, found))
            found.entered[id(node)] = self.store.state, entries
        return entries

    def _entering(self, node: ast.Call, frame: Frame, found: Found) -> Iterator[Entry]:
        call = self.program.call(node)
        if call is None or self.context.is_wrapped(call.callees):
            return
        chosen = frame.chosen or (self.store.decider(node, found) is not None and not self.work.works(node))
        trains = frame.trains or id(node) in self.work.inside
        functions: dict[tuple[int, bool], set[Value]] = defaultdict(set)
        made: set[tuple[int, bool]] = set()
        before: dict[int, list[ast.expr]] = defaultdict(list)
        for callee in self.callees.callees(call, frame):
            for scope, owner, bound in self.callees.targets(callee, call):
                functions[scope, bound] |= {owner} if owner is not None else set()
                if isinstance(callee, Made):
                    before[scope] = self.callees.prepared(callee).args[1:]
                if isinstance(callee, Cls) and self.context.module_class(Inst(callee, id(node))):
                    made.add((scope, bound))
        for (scope, bound), owners in functions.items():
            me = self.callees.narrowed(node, frozenset(owners), frame)
            given = self.callees.arguments(node, before[scope], self.program.scopes[scope], bound)
            how: dict[int, int] = defaultdict(int)
            for key, expressions in given.items():
                how[key] = any_of(self.how(it, frame, found) for it in expressions)
            if id(node) in self.reported.whole:
                how.clear()
            differing = frozenset((key, plainly(it)) for key, it in how.items() if it)
            if (scope, bound) in made and not differing and not chosen:
                continue  # layers, and what they are made with
            alone = {key: it[0] for key, it in given.items() if len(it) == 1}
            texts = {
                key: self.callees.said(alone[key], frame)
                for key in self.callees.choosing(scope) & alone.keys()
            }
            said = frozenset((key, text) for key, text in texts.items() if text is not None)
            yield Entry(Frame(scope, me, differing, chosen, trains, said), alone)
        if is_outside(call) and not calls_nothing(call.names):
            yield from self._passed(node, frame, found, chosen, trains)

    def _passed(
        self, node: ast.Call, frame: Frame, found: Found, chosen: bool, trains: bool
    ) -> Iterator[Entry]:
        """Functions that something outside the project is given, to call them with whatever else it is given."""
        how = any_of(self.how(it, frame, found) for it in handed(node))
        method = getattr(node.func, "attr", "")
        sees_parts = method.startswith("register_") and method.endswith("hook")
        if sees_parts and not self._counts_by_itself(node):
            how, trains = MEASURED, True
        for given in handed(node):
            for value in self.program.values(given):
                for scope, owner, bound in self.callees.targets(value, self.program.call(node)):  # type: ignore[arg-type]
                    if isinstance(value, Func | Bound):
                        inner = self.program.scopes[scope]
                        params = inner.takes(bound).every
                        differing = frozenset((id(it), how) for it in params if how)
                        me = frozenset([owner]) if owner is not None else NOTHING
                        yield Entry(Frame(scope, me, differing, chosen, trains), {})

    def _counts_by_itself(self, node: ast.Call) -> bool:
        call = self.program.call(node)
        return call is not None and hooks.counts_by_itself(self.context, call, self.work.loops)


def _is_later(index: ast.expr) -> bool:
    """Whether an index of sizes takes others than the first, which is the number of samples."""
    first = index.lower if isinstance(index, ast.Slice) else index
    match first:
        case ast.Constant(value=int(number)):
            return number != 0
        case ast.UnaryOp(op=ast.USub()):
            return True
    return False
