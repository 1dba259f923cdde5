"""What differs between processes that each have a part of every batch, followed through the whole program.

It begins with the batches of the training loops and with what the model makes of them, and goes on through names,
attributes, containers, arguments and results, and through conditions: what is done under one that every process answers
by its own part is another in each of them. Where that decides how a process goes on, or what is trained, parts of the
batches can't be trained with.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from functools import cached_property

from dp2ddp.analyse.api.containers import COLLECTIONS, TRUTH
from dp2ddp.analyse.api.files import SAVES
from dp2ddp.analyse.api.inspection import ASKS_KIND_OR_SIZE, GETS_ATTRIBUTES, SIZES
from dp2ddp.analyse.api.layers import (
    CHANGES_TRAINING,
    CLIPS,
    STEERS,
    STEERS_OR_COMPUTES,
    TRAINED_ATTRIBUTES,
    TRAINS,
)
from dp2ddp.analyse.api.parallel import is_runtime
from dp2ddp.analyse.api.processes import ENDS
from dp2ddp.analyse.api.purity import COPIES_OBJECT
from dp2ddp.analyse.api.tensors import IS_ITS_DATA, NO_NUMBERS
from dp2ddp.analyse.context import Context, root_name
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.kinds import PLAIN, Every, Held, Kind, Unclear
from dp2ddp.analyse.processes.conditions import assigned, is_call_of, is_rate
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.signature import bind
from dp2ddp.analyse.program.values import (
    NOTHING,
    Bound,
    Cls,
    Coll,
    Ext,
    Func,
    Inst,
    Made,
    Mod,
    Value,
    Values,
    is_outside_name,
)
from dp2ddp.analyse.rank_variance.decisions import above
from dp2ddp.analyse.training.gathering import compared
from dp2ddp.analyse.training.loops import BatchLoop
from dp2ddp.analyse.training.metrics import Judged, Reporters
from dp2ddp.analyse.training.reports import Reports
from dp2ddp.facts import SHARDED_ONLY, Obstacle

# How something differs: it is of the batch, or measured of it; it does so whatever its own assignments say; there is
# more of it in one process, or only there; it is the sizes of rows, the first of which differs.
DRAWN, MEASURED, SURELY, MANY, SIZED = 1, 2, 4, 8, 16
NUMBER = DRAWN | MEASURED
CHOSEN = MEASURED | SURELY | MANY
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
LEAVING = ast.Break | ast.Continue | ast.Return | ast.Raise


@dataclass(frozen=True)
class Frame:
    """One way in which a function is called: on which objects, and with which parameters that differ.

    ``chosen``: by some processes only. ``trains``: in a training loop. ``said``: the texts that it is given for the
    parameters by which it chooses a method, ``getattr(callback, name)``.
    """

    scope: int
    me: Values = NOTHING
    given: frozenset[tuple[int, int]] = frozenset()
    chosen: bool = False
    trains: bool = False
    said: frozenset[tuple[int, str]] = frozenset()


@dataclass
class Found:
    """What is known of a function that is called in one way.

    ``names``: how its definitions differ. ``tests``: its conditions and loops that do. ``spans``: places that some
    processes skip, by their order, with what says so. ``returned``: how its result differs, ``parts`` how the entries
    of that do. ``changed``: the parameters that it changes. ``fails``: whether some processes get an exception.
    """

    names: dict[int, int]
    tests: set[int] = field(default_factory=set)
    spans: dict[tuple[int, int], ast.AST] = field(default_factory=dict)
    returned: int = 0
    parts: tuple[int, ...] | None = None
    changed: dict[int, int] = field(default_factory=dict)
    fails: bool = False
    known: dict[int, tuple[int, int]] = field(default_factory=dict)
    """How expressions differ, with the state of knowledge in which that was found."""
    entered: dict[int, tuple[int, list[Entry]]] = field(default_factory=dict)
    """What calls enter, likewise."""


@dataclass(frozen=True)
class Entry:
    """A function that a call enters, and what it gives the parameters."""

    frame: Frame
    given: dict[int, ast.expr]


def obstacles(
    context: Context, loops: list[BatchLoop], judged: Judged, reported: Reports
) -> tuple[Obstacle, ...]:
    """What the processes would decide each in its own way, where the batches of the training are dealt."""
    return _Following(context, loops, judged, reported).obstacles()


class _Following:
    """Goes through every function in every way in which it is called, until nothing more is found to differ."""

    def __init__(self, context: Context, loops: list[BatchLoop], judged: Judged, reported: Reports) -> None:
        self.context, self.program = context, context.program
        self.reported, self.fed = reported, judged.fed
        self.met = judged.whole.union(id(it.node) for it in reported.combined)
        self.reporters = Reporters(context)
        self.loops = loops
        self.frames: dict[Frame, Found] = {}
        self.frame = Frame(0)
        """The one that is looked at."""
        self._choices: dict[int, set[int]] = {}
        self.waiting: dict[Frame, None] = {}
        self.asking: dict[object, dict[Frame, None]] = defaultdict(dict)
        """Which frames ask for what: the definition of a name, a container, an attribute, another frame."""
        self.fields: dict[str, dict[Value | None, int]] = defaultdict(dict)
        self.held: dict[object, int] = {}  # what containers hold
        self.shared: dict[object, int] = {}  # definitions, as other functions see them
        self.foreign: dict[object, int] = {}  # and those whose values others change
        self.bodies: dict[int, list[ast.AST]] = {}
        self.state = 0
        """Counts what is found: what was asked in the same state has the same answer."""
        self.leaving: dict[tuple[int, Frame], ast.AST] = {}
        """What leaves out work in a frame: looked at when all that differs is found."""
        self.found: dict[int, list[tuple[bool, Obstacle]]] = defaultdict(list)
        """For each place, whether something led to a decision that is one by others, and what is said of it."""

    def obstacles(self) -> tuple[Obstacle, ...]:
        for file in self.context.scripts:
            self.frame = Frame(self.program.modules[file.path].index)
            self._of(self.frame)
        while self.waiting:
            self.frame = next(iter(self.waiting))
            del self.waiting[self.frame]
            for node in self._body(self.frame.scope):
                self._visit(node, self.frame, self.frames[self.frame])
        for (_, frame), why in self.leaving.items():
            self._obstacle(why, _asked(why), frame, self.frames[frame])
        for frame, found in list(self.frames.items()):
            for node in self._body(frame.scope) if not frame.chosen else ():  # its call decides already
                self._decide(node, frame, found)
        said = [min(it, key=lambda one: (one[0], one[1].problem.message)) for it in self.found.values()]
        first = [obstacle for follows, obstacle in said if not follows]
        causes = set().union(*(it.scripts for it in first))
        return (*first, *(it for follows, it in said if follows and not it.scripts <= causes))

    # What stands where

    def _of(self, frame: Frame) -> Found:
        """What is found in a frame; where that is more later, the one that is looked at is again."""
        self.asking[frame][self.frame] = None
        if frame not in self.frames:
            self.frames[frame] = Found(dict(frame.given))
            self.waiting[frame] = None
        return self.frames[frame]

    def _wake(self, key: object) -> None:
        self.state += 1
        self.waiting |= self.asking.get(key, {})

    def _again(self, frame: Frame) -> None:
        self.state += 1
        self.waiting[frame] = None

    def _held(self, values: Values) -> int:
        """What containers hold."""
        for value in values:
            self.asking[value][self.frame] = None
        return _any(self.held.get(it, 0) for it in values)

    def _body(self, scope: int) -> list[ast.AST]:
        if scope not in self.bodies:
            self.bodies[scope] = list(self.program.body(self.program.scopes[scope]))
        return self.bodies[scope]

    @cached_property
    def _inside(self) -> frozenset[int]:
        """What stands in a training loop, and in no loop there that evaluates."""
        found: set[int] = set()
        for loop in sorted(self.loops, key=lambda it: self.program.order[id(it.node)]):
            own = {id(it) for it in self.program.descendants(loop.node)}
            found = found | own if loop.trains else found - own
        return frozenset(found)

    @cached_property
    def _repeated(self) -> frozenset[int]:
        """What stands in evaluation loops that all ranks go through whole, as no loader hands out their batches."""
        loops = (it for it in self.loops if not it.trains and not it.loaders)
        return frozenset(id(node) for loop in loops for node in self.program.descendants(loop.node))

    @cached_property
    def _drawing(self) -> dict[int, BatchLoop]:
        return {id(loop.node): loop for loop in self.loops}

    @cached_property
    def _pulled(self) -> frozenset[int]:
        return frozenset(id(loop.pulls) for loop in self.loops if loop.pulls is not None)

    @cached_property
    def _working(self) -> frozenset[int]:
        """What the processes must do together, or alike."""
        nodes = self.program.nodes.values()
        return frozenset(
            id(node) for node in nodes if self.context.runs_in_training(node) and self._is_work(node)
        )

    @cached_property
    def _working_scopes(self) -> set[int]:
        return above(self.context, (self.program.nodes[key] for key in self._working))

    def _is_work(self, node: ast.AST) -> bool:
        if id(node) in self.met or id(node) in self._pulled or id(node) in self._drawing:
            return True
        if is_rate(self.context, node) or self._steered(node):
            return True
        call = self.program.call(node)
        if call is None:
            return False
        if self.context.method(call.node) in CHANGES_TRAINING:
            return not self.program.called_scopes(node)
        if call.names & (SAVES | ENDS) or _clips(call) or _makes(call):
            return True
        if call.names & COPIES_OBJECT and any("state_dict" in ast.unparse(it) for it in call.node.args):
            return True
        return self.context.is_wrapped(call.callees)

    def _steered(self, node: ast.AST) -> bool:
        """Whether a statement changes a parameter or its gradient, or what trains, draws or computes."""
        match node:
            case ast.Assign(targets=[target]) | ast.AugAssign(target=target):
                changed = [target]
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=target))):
                return self._is_parameter(target)
            case _:
                return False
        while isinstance(changed[-1], ast.Subscript):
            changed.append(changed[-1].value)
        held = changed[-1]
        owners = self.program.values(held.value) if isinstance(held, ast.Attribute) else NOTHING
        plain = isinstance(node, ast.Assign) and isinstance(target, ast.Name)
        return not plain and self._is_parameter(target) or any(map(self._steers, owners))

    def _is_parameter(self, node: ast.expr) -> bool:
        """Whether a loop over parameters gives a name that an expression begins with."""
        name = root_name(node)
        return any(
            "parameters(" in ast.unparse(around.iter)
            for made in (self.program.definitions(name) if name is not None else ())
            for around in self.program.ancestors(made)
            if isinstance(around, ast.For | ast.comprehension) and made in ast.walk(around.target)
        )

    def _steers(self, value: Value) -> bool:
        """Whether an object trains, draws or computes: what it has is of weight for every process."""
        if isinstance(value, Made):
            return value.name.startswith(STEERS_OR_COMPUTES)
        bases = self.program.bases(value.cls) if isinstance(value, Inst) else []
        drawing = any(isinstance(it, Ext) and it.name.startswith("torch.utils.data.") for it in bases)
        return drawing or value in self.context.trained_modules

    def _works(self, node: ast.AST) -> bool:
        if id(node) in self._working:
            return True
        return isinstance(node, ast.Call) and bool(self.program.called_scopes(node) & self._working_scopes)

    def _decider(self, node: ast.AST, found: Found, rounds: bool = True) -> ast.AST | None:
        """What keeps some processes from coming to a place in a function, where something does.

        ``rounds``: or has some come there more often.
        """
        inside = node
        for around in self.program.ancestors(node):
            if isinstance(around, FUNCTIONS):
                break
            if id(around) in found.tests and not _is_asked(inside, around):
                if rounds or not isinstance(around, ast.For | ast.AsyncFor):
                    return around
            inside = around
        place = self.program.order.get(id(node), 0)
        within = (why for (first, last), why in found.spans.items() if first <= place <= last)
        return min(within, key=lambda why: self.program.order[id(why)], default=None)

    # How expressions differ

    def _how(self, node: ast.AST | None, frame: Frame, found: Found) -> int:
        if node is None or id(node) in self.reported.whole:
            return 0
        state, how = found.known.get(id(node), (-1, 0))
        if state != self.state:
            how = self._computed(node, frame, found)
            found.known[id(node)] = self.state, how
        return how

    def _computed(self, node: ast.AST, frame: Frame, found: Found) -> int:
        match node:
            case ast.Constant() | ast.Lambda():
                return 0
            case ast.Name():
                return self._settled(node, self._named(node, found))
            case ast.Attribute(attr="shape", value=value):
                return SIZED if self._how(value, frame, found) & NUMBER else 0
            case ast.Attribute(attr=name) if name in NO_NUMBERS:
                return 0
            case ast.Attribute(value=value):
                own = self._how(value, frame, found) if not self._is_me(value, frame) else 0
                return self._settled(node, own | self._field(node, frame) | self._asked(node, frame))
            case ast.Subscript(value=value, slice=index):
                held = self._how(value, frame, found)
                if held & SIZED:
                    return 0 if _is_later(index) else DRAWN
                return self._settled(node, held | self._how(index, frame, found))
            case ast.Call():
                return self._handed(node, frame, found)
            case ast.Compare(left=left, comparators=others):
                asked = [self._how(it, frame, found) for it in (left, *others)]
                if self.context.asks_identity(node):
                    return MEASURED | SURELY if any(it & MANY for it in asked) else 0
                if not asked[-1] & MANY and self._asks_for_key(node):
                    return 0
                return _any(it if it != SIZED else 0 for it in asked)
            case ast.IfExp(test=test):
                branches = self._how(node.body, frame, found) | self._how(node.orelse, frame, found)
                return branches | (CHOSEN if self._differs(test, frame, found) else 0)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                made = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
                tests = [it for part in node.generators for it in part.ifs]
                chosen = any(self._differs(it, frame, found) for it in tests)
                drawn = _any(self._how(part.iter, frame, found) for part in node.generators)
                return _any(self._how(it, frame, found) for it in made) | (
                    CHOSEN if chosen else drawn & ~SIZED
                )
        return _any(
            self._how(it, frame, found) for it in ast.iter_child_nodes(node) if isinstance(it, _PARTS)
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
                value = self.reported.values.of(held)
                returned = value is Kind.OUTPUT or isinstance(value, Held | Every)
                return returned or (value is Kind.BATCH and self._is_batch(held))
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

    def _differs(self, test: ast.expr, frame: Frame, found: Found) -> bool:
        """Whether the processes may answer a condition each in its own way."""
        how = self._how(test, frame, found) | self._own(test, TRUTH, frame)
        if isinstance(test, ast.Name | ast.Attribute) and self._is_collection(test):
            return bool(how & MANY)
        return bool(how & ~SIZED)

    def _own(self, node: ast.expr, names: tuple[str, ...], frame: Frame) -> int:
        """What methods of a project's object answer that Python calls by itself."""
        owners = self._owners(node, frame) if isinstance(node, ast.Name | ast.Attribute) else NOTHING
        found = [
            Frame(scope, frozenset([owner]), trains=frame.trains)
            for owner in owners
            if isinstance(owner, Inst) and not self.context.module_class(owner)
            for name in names
            for scope in self.program.methods(owner, name, node)
        ]
        return _any(self._of(it).returned for it in found)

    def _is_collection(self, node: ast.expr) -> bool:
        values = self.program.values(node)
        return bool(values) and all(
            isinstance(it, Coll) or isinstance(it, Made) and it.name.startswith(COLLECTIONS) for it in values
        )

    def _settled(self, node: ast.expr, how: int) -> int:
        """Without what the values of a name say is the same in all processes."""
        return 0 if how and not how & CHOSEN & ~MEASURED and self.reported.is_whole(node) else how

    def _is_me(self, node: ast.AST, frame: Frame) -> bool:
        scope = self.program.scopes[frame.scope]
        return bool(frame.me) and isinstance(node, ast.Name) and scope.params[:1] == [node.id]

    def _named(self, name: ast.Name, found: Found) -> int:
        how = self._held(self.program.values(name))
        scope = self.program.scope(name)
        everywhere = self.program.variable(name)
        for made in everywhere:
            self.asking[id(made)][self.frame] = None
        parameter = next((it for it in scope.signature.every if it.arg == name.id), None)
        if parameter is not None and parameter not in everywhere:  # of a function that no call is seen of
            return how | found.names.get(id(parameter), 0)
        if all(self.program.scope_of.get(id(it)) is scope for it in everywhere):
            made = self.program.definitions(name) or everywhere
            return how | _any(found.names.get(id(it), 0) | self.foreign.get(id(it), 0) for it in made)
        how |= _any(self.shared.get(id(it), 0) | self.foreign.get(id(it), 0) for it in everywhere)
        return how | SURELY if how & NUMBER else how

    def _owners(self, node: ast.expr, frame: Frame) -> Values:
        """The objects that an expression may be; of a method's own, those that it is called on."""
        return frame.me if self._is_me(node, frame) else self.program.values(node)

    def _field(self, node: ast.Attribute, frame: Frame) -> int:
        owners = self._owners(node.value, frame)
        self.asking[node.attr][self.frame] = None
        known = self.fields.get(node.attr, {})
        if not owners:
            return _any(known.values()) if node.attr not in TRAINED_ATTRIBUTES else 0
        named = all(isinstance(it, Ext) for it in owners)  # `torch.utils.data`: no object that is not known
        how = (0 if named else known.get(None, 0)) | self._held(self.program.values(node))
        for owner in owners if known or self.shared else ():
            family = self.program.bases(owner.cls) if isinstance(owner, Inst) else []
            how |= _any(known.get(it, 0) for it in (owner, *family))
            if isinstance(owner, Mod):
                for made in self.program.exported(owner.path, node.attr):
                    self.asking[id(made)][self.frame] = None
                    how |= self.shared.get(id(made), 0)
        return how

    def _asked(self, node: ast.Attribute, frame: Frame) -> int:
        """What a property returns."""
        how = 0
        for value in self.program.getters(node):
            owners = self._owners(node.value, frame) or frozenset([value.owner])
            how |= self._of(Frame(value.func.scope, owners, trains=frame.trains)).returned
        return how

    def _handed(self, node: ast.Call, frame: Frame, found: Found) -> int:
        """How the result of a call differs."""
        call, function = self.program.call(node), node.func
        if id(node) in self._pulled:
            return DRAWN
        if call is None:
            return _any(self._how(it, frame, found) for it in handed(node))
        names = call.names
        if names & GETS_ATTRIBUTES and len(node.args) > 1:
            return self._got(node, frame, found)
        if names & (ASKS_KIND_OR_SIZE - SIZES) or is_runtime(names):
            return 0
        given = [self._how(it, frame, found) for it in handed(node)]
        if self.context.is_wrapped(call.callees):
            trains = (frame.trains or id(node) in self._inside) and id(node) not in self._repeated
            return MEASURED if trains or _any(given) & NUMBER else 0
        if "builtins.len" in names:
            own = self._own(node.args[0], ("__len__",), frame) if node.args else 0
            return self._length(node, _any(given)) | own
        method = function.attr if isinstance(function, ast.Attribute) else ""
        receiver = self._how(function.value, frame, found) if isinstance(function, ast.Attribute) else 0
        if method == "size" and receiver & NUMBER:
            return SIZED if not node.args else 0 if _is_later(node.args[0]) else DRAWN
        if method == "numel" and receiver & NUMBER:
            return DRAWN
        if method in NO_NUMBERS:
            return 0
        entries = self._entries(node, frame, found)
        how = _any(self._of(it.frame).returned for it in entries)
        if not entries or self._is_outside(call):
            own = [it for it in given if not it & SIZED] + [DRAWN for it in given if it & SIZED]
            outside = _any(own) | receiver
            how |= outside | (MEASURED | SURELY if outside & MANY else 0)
        return how

    def _got(self, node: ast.Call, frame: Frame, found: Found) -> int:
        """How what ``getattr(object, name)`` hands out differs."""
        owners = self._owners(node.args[0], frame)
        how = _any(self._how(it, frame, found) for it in node.args)
        name = node.args[1].value if isinstance(node.args[1], ast.Constant) else None
        for attribute in [name] if name is not None else list(self.fields):
            self.asking[attribute][self.frame] = None
            known = self.fields.get(str(attribute), {})
            how |= _any(it for owner, it in known.items() if owner is None or not owners or owner in owners)
        return how

    def _is_outside(self, call: Call) -> bool:
        return any(not isinstance(it, Func | Bound | Cls | Inst) for it in call.callees)

    def _length(self, node: ast.Call, how: int) -> int:
        """How ``len(x)`` differs."""
        if how & MANY:
            return MEASURED | SURELY
        if not how & NUMBER or not node.args:
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
            if isinstance(counted, Unclear) and not arity and not self._is_collection(node.args[0])
            else 0
        )

    # What a call enters

    def _entries(self, node: ast.Call, frame: Frame, found: Found) -> list[Entry]:
        state, entries = found.entered.get(id(node), (-1, []))
        if state != self.state:
            entries = list(self._entering(node, frame, found))
            found.entered[id(node)] = self.state, entries
        return entries

    def _entering(self, node: ast.Call, frame: Frame, found: Found) -> Iterator[Entry]:
        call = self.program.call(node)
        if call is None or self.context.is_wrapped(call.callees):
            return
        chosen = frame.chosen or (self._decider(node, found) is not None and not self._works(node))
        trains = frame.trains or id(node) in self._inside
        functions: dict[tuple[int, bool], set[Value]] = defaultdict(set)
        made: set[tuple[int, bool]] = set()
        before: dict[int, list[ast.expr]] = defaultdict(list)
        for callee in self._callees(call, frame):
            for scope, owner, bound in self._targets(callee, call):
                functions[scope, bound] |= {owner} if owner is not None else set()
                if isinstance(callee, Made):
                    before[scope] = self._prepared(callee).args[1:]
                if isinstance(callee, Cls) and self.context.module_class(Inst(callee, id(node))):
                    made.add((scope, bound))
        for (scope, bound), owners in functions.items():
            me = self._narrowed(node, frozenset(owners), frame)
            given = self._arguments(node, before[scope], self.program.scopes[scope], bound)
            how: dict[int, int] = defaultdict(int)
            for key, expressions in given.items():
                how[key] = _any(self._how(it, frame, found) for it in expressions)
            if id(node) in self.reported.whole:
                how.clear()
            differing = frozenset((key, _plainly(it)) for key, it in how.items() if it)
            if (scope, bound) in made and not differing and not chosen:
                continue  # layers, and what they are made with
            alone = {key: it[0] for key, it in given.items() if len(it) == 1}
            texts = {key: self._said(alone[key], frame) for key in self._choosing(scope) & alone.keys()}
            said = frozenset((key, text) for key, text in texts.items() if text is not None)
            yield Entry(Frame(scope, me, differing, chosen, trains, said), alone)
        if self._is_outside(call):
            yield from self._passed(node, frame, found, chosen, trains)

    def _targets(self, callee: Value, call: Call) -> Iterator[tuple[int, Value | None, bool]]:
        """The functions behind a callee, the object of each, and whether that is its first parameter."""
        if isinstance(callee, Made) and callee.name == "functools.partial":
            for value in self.program.values(self._prepared(callee).args[0]):
                if isinstance(value, Func | Bound):
                    yield from self._targets(value, call)
        yield from self.program.targets(callee, call)

    def _prepared(self, partial: Made) -> ast.Call:
        return self.program.node(partial.site)  # type: ignore[return-value]

    def _choosing(self, scope: int) -> Set[int]:
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

    def _said(self, node: ast.expr, frame: Frame) -> str | None:
        """The text that an expression is, where a function is called in one way."""
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.Name():
                texts = {dict(frame.said).get(id(it)) for it in self.program.definitions(node)}
                return texts.pop() if len(texts) == 1 else None
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                parts = [self._said(left, frame), self._said(right, frame)]
            case ast.JoinedStr(values=values):
                inner = [it.value if isinstance(it, ast.FormattedValue) else it for it in values]
                parts = [self._said(it, frame) for it in inner]
            case _:
                return None
        return None if None in parts else "".join(map(str, parts))

    def _callees(self, call: Call, frame: Frame) -> Iterable[Value]:
        """What is called; any method of an object, where ``getattr(object, name)`` is and the name is not known."""
        name = self._chosen_by(call.node.func)
        said = self._said(name, frame) if name is not None else None
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

    def _passed(
        self, node: ast.Call, frame: Frame, found: Found, chosen: bool, trains: bool
    ) -> Iterator[Entry]:
        """Functions that something outside the project is given, to call them with whatever else it is given."""
        how = _any(self._how(it, frame, found) for it in handed(node))
        method = getattr(node.func, "attr", "")
        hooks = method.startswith("register_") and method.endswith("hook")
        how, trains = (MEASURED, True) if hooks else (how, trains)
        for given in handed(node):
            for value in self.program.values(given):
                for scope, owner, bound in self._targets(value, self.program.call(node)):  # type: ignore[arg-type]
                    if isinstance(value, Func | Bound):
                        inner = self.program.scopes[scope]
                        params = inner.takes(bound).every
                        differing = frozenset((id(it), how) for it in params if how)
                        me = frozenset([owner]) if owner is not None else NOTHING
                        yield Entry(Frame(scope, me, differing, chosen, trains), {})

    def _narrowed(self, node: ast.Call, owners: Values, frame: Frame) -> Values:
        """The objects of a method that a method calls on its own object: those of the one are those of the other."""
        if isinstance(node.func, ast.Attribute) and frame.me:
            holder = node.func.value
            above_it = isinstance(holder, ast.Call) and ast.unparse(holder.func) == "super"
            if above_it or self._is_me(holder, frame):
                return (owners & frame.me) or frame.me
        return owners

    def _arguments(
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

    # What statements do

    def _visit(self, node: ast.AST, frame: Frame, found: Found) -> None:
        match node:
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                if self._differs(test, frame, found):
                    self._add(found.tests, node)
            case ast.Match(subject=subject):
                if self._differs(subject, frame, found):
                    self._add(found.tests, node)
            case ast.BoolOp(values=[*first, _]):
                if any(self._differs(it, frame, found) for it in first):
                    self._add(found.tests, node)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, value, self._how(value, frame, found), node, frame, found)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(
                target=target, value=value
            ):
                self._bind(target, value, self._how(value, frame, found), node, frame, found)
            case ast.AugAssign(target=target, value=value):
                how = self._how(value, frame, found) | self._before(target, frame, found)
                self._bind(target, None, how, node, frame, found)
            case ast.For() | ast.AsyncFor():
                self._take(node, frame, found)
            case ast.comprehension(target=target, iter=source):
                self._unpack(target, source, self._how(source, frame, found), node, frame, found)
            case ast.withitem(optional_vars=ast.expr() as target, context_expr=given):
                self._bind(target, None, self._how(given, frame, found), node, frame, found)
            case ast.Call():
                self._call(node, frame, found)
            case ast.Delete(targets=targets):
                for target in targets:
                    self._bind(target, None, 0, node, frame, found)
            case ast.Return(value=ast.expr() as value) | ast.Yield(value=ast.expr() as value):
                self._return(value, frame, found)
        self._skip(node, frame, found)

    def _before(self, target: ast.expr, frame: Frame, found: Found) -> int:
        if not isinstance(target, ast.Name):
            return 0
        return _any(found.names.get(id(it), 0) for it in self.program.definitions(target))

    def _take(self, node: ast.For | ast.AsyncFor, frame: Frame, found: Found) -> None:
        """What a loop gets in each round."""
        loop = self._drawing.get(id(node))
        if loop is not None and loop.pulls is None:
            how = DRAWN if loop.trains else 0
            self._unpack(node.target, node.iter, how, node, frame, found)
            return
        how = self._how(node.iter, frame, found)
        self._unpack(node.target, node.iter, how, node, frame, found)
        if self._rounds(node.iter, how, frame, found):
            self._add(found.tests, node)

    def _rounds(self, source: ast.expr, how: int, frame: Frame, found: Found) -> bool:
        """Whether a loop over something has more rounds in some processes."""
        call = self.program.call(source)
        if call is not None and "builtins.range" in call.names:
            return bool(how & ~SIZED)
        if not how & NUMBER or how & MANY:
            return bool(how & MANY)
        drawn = kinds.tensor(self.reported.values.drawn(source), source)
        return drawn is Kind.EACH or isinstance(drawn, Unclear)

    def _unpack(
        self, target: ast.expr, source: ast.expr, how: int, node: ast.AST, frame: Frame, found: Found
    ) -> None:
        """Bind what a loop takes one after the other; ``enumerate`` counts alike everywhere."""
        call = self.program.call(source)
        if call is not None and "builtins.enumerate" in call.names and isinstance(target, ast.Tuple):
            target = target.elts[-1]
        self._bind(target, None, how & ~MANY & ~SIZED, node, frame, found)

    def _bind(
        self, target: ast.expr, value: ast.expr | None, how: int, node: ast.AST, frame: Frame, found: Found
    ) -> None:
        chosen = frame.chosen or self._decider(node, found) is not None
        self._store(target, value, how | (CHOSEN if chosen else 0), chosen, frame, found)

    def _store(
        self, target: ast.expr, value: ast.expr | None, how: int, chosen: bool, frame: Frame, found: Found
    ) -> None:
        match target:
            case ast.Starred(value=inner):
                self._store(inner, None, how, chosen, frame, found)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                parts = self._parts(value, how, len(targets), frame, found)
                own = value.elts if isinstance(value, ast.Tuple | ast.List) else []
                for index, part in enumerate(targets):
                    given = own[index] if len(own) == len(targets) else None
                    self._store(part, given, parts[index] | (CHOSEN if chosen else 0), chosen, frame, found)
            case ast.Name() if how:
                self._grow(found.names, id(target), how)
                self._grow(self.shared, id(target), how)
            case ast.Attribute(value=holder, attr=name) if how:
                owners = self._owners(holder, frame)
                for owner in owners or (None,):
                    self._grow(self.fields[name], owner, how | SURELY, name)
                    if isinstance(owner, Mod):
                        self._grow(self.shared, id(target), how)
            case ast.Subscript(value=holder, slice=index):
                at = self._how(index, frame, found)
                self._change(holder, how | (CHOSEN if at & ~SIZED else 0), frame, found)

    def _parts(self, value: ast.expr | None, how: int, count: int, frame: Frame, found: Found) -> list[int]:
        """How the entries of what is unpacked differ."""
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == count:
            return [self._how(it, frame, found) for it in value.elts]
        if how & SIZED and not how & NUMBER:
            return [DRAWN, *[0] * (count - 1)]
        if isinstance(value, ast.Call) and id(value) not in self.reported.whole:
            call = self.program.call(value)
            entries = self._entries(value, frame, found) if call and not self._is_outside(call) else []
            handed = [self._of(it.frame).parts for it in entries]
            if handed and all(it is not None and len(it) == count for it in handed):
                return [_any(it) for it in zip(*handed, strict=True)]  # type: ignore[arg-type]
        return [how] * count

    def _change(self, held: ast.expr, how: int, frame: Frame, found: Found) -> None:
        """Something is put into what an expression stands for."""
        if not how or any(map(self._is_part_of_training, self.program.values(held))):
            return
        how |= SURELY
        match held:
            case ast.Subscript(value=holder):
                self._change(holder, how, frame, found)
                return
            case ast.Call(func=ast.Attribute(value=holder)):
                if not is_outside_name(self.program.values(holder)):  # `torch.cat(rows)` is no part of torch
                    self._change(holder, how, frame, found)
                return
            case ast.Attribute(value=holder, attr=name) if name in IS_ITS_DATA and not self._owners(
                holder, frame
            ):
                self._change(holder, how, frame, found)  # the same elements, and no field of every object
                return
            case ast.Attribute(value=holder, attr=name):
                if any(isinstance(it, Ext | Func) for it in self.program.values(held)):
                    return
                for owner in self._owners(holder, frame) or (None,):
                    self._grow(self.fields[name], owner, how, name)
            case ast.Name():
                self._change_name(held, how, frame, found)
            case _:
                return
        scope = self.program.scope(held)
        own = isinstance(held, ast.Name) and any(
            isinstance(it, ast.arg) for it in self.program.definitions(held)
        )
        for value in self.program.values(held) if not own else ():
            if isinstance(value, Coll | Made | Inst):
                at = self.program.scope_of.get(value.site)
                if not isinstance(held, ast.Name) or at is not scope or scope.is_module:
                    self._grow(self.held, value, how)

    def _is_part_of_training(self, value: Value) -> bool:
        """Whether an object is a module, or trains or draws: what changes those is looked at where it is done."""
        return (
            self.context.module_class(value)
            or isinstance(value, Made)
            and value.name.startswith(STEERS_OR_COMPUTES)
        )

    def _change_name(self, name: ast.Name, how: int, frame: Frame, found: Found) -> None:
        scope = self.program.scope(name)
        for made in self.program.variable(name):
            if self.program.scope_of.get(id(made)) is not scope:
                self._grow(self.foreign, id(made), how)
        own = [it for it in scope.signature.every if it.arg == name.id]
        for made in dict.fromkeys([*self.program.definitions(name), *own]):
            if self.program.scope_of.get(id(made)) is scope:
                self._grow(found.names, id(made), how)
                self._grow(self.shared, id(made), how)
                if isinstance(made, ast.arg):
                    self._grow(found.changed, id(made), how, frame)

    def _call(self, node: ast.Call, frame: Frame, found: Found) -> None:
        """What a call does to what it is given."""
        for entry in self._entries(node, frame, found):
            inner = self._of(entry.frame)
            for key, how in inner.changed.items():
                if key in entry.given:
                    self._change(entry.given[key], how, frame, found)
        call = self.program.call(node)
        if call is None or not self._is_outside(call) and call.callees or self.reporters.has(node):
            return
        around = self.program.parent(node)
        if (
            not isinstance(around, ast.Expr | ast.Lambda)
            or self.context.method(node) in TRAINS
            or self.context.is_wrapped(call.callees)
        ):
            return
        chosen = frame.chosen or self._decider(node, found) is not None
        how = _any(self._how(it, frame, found) for it in handed(node)) & ~SIZED
        how |= CHOSEN if chosen else 0
        if "builtins.setattr" in call.names and len(node.args) == 3:
            self._set(node, how, frame)
        elif isinstance(node.func, ast.Attribute) and not is_outside_name(
            self.program.values(node.func.value)
        ):
            self._change(node.func.value, how, frame, found)
        elif node.args and (self._is_collection(node.args[0]) or not self.program.values(node.args[0])):
            self._change(node.args[0], how, frame, found)

    def _set(self, node: ast.Call, how: int, frame: Frame) -> None:
        """``setattr(object, name, value)``."""
        name = node.args[1]
        for owner in self._owners(node.args[0], frame) or (None,):
            if how and isinstance(name, ast.Constant):
                self._grow(self.fields[str(name.value)], owner, how | SURELY, str(name.value))

    def _return(self, value: ast.expr, frame: Frame, found: Found) -> None:
        chosen = CHOSEN if frame.chosen or self._decider(value, found) is not None else 0
        how = self._how(value, frame, found) | chosen
        if how & ~found.returned:
            found.returned |= how
            self._wake(frame)
        if isinstance(value, ast.Tuple):
            parts = tuple(self._how(it, frame, found) | chosen for it in value.elts)
            if found.parts is not None and len(found.parts) == len(parts):
                parts = tuple(one | other for one, other in zip(found.parts, parts, strict=True))
            if found.parts != parts:
                found.parts = parts
                self._wake(frame)

    def _skip(self, node: ast.AST, frame: Frame, found: Found) -> None:
        """What some processes come to no more, because they leave a loop or a function, or have an exception."""
        if isinstance(node, LEAVING):
            why = self._decider(node, found)
        elif isinstance(node, ast.Assert):
            why = node if self._differs(node.test, frame, found) else self._decider(node, found)
        elif isinstance(node, ast.Call):
            fails = any(self._of(it.frame).fails for it in self._entries(node, frame, found))
            why = self.program.statement(node) if fails else None
        else:
            return
        if why is None:
            return
        if isinstance(node, ast.Raise | ast.Assert | ast.Call) and not self._is_caught(node):
            if not found.fails:
                found.fails = True
                self._wake(frame)
            return
        for span in self._left_out(node, why):
            if self._is_work_within(span, frame):
                self.leaving[id(why), frame] = why
            elif span not in found.spans:
                found.spans[span] = why
                self._again(frame)

    def _is_work_within(self, span: tuple[int, int], frame: Frame) -> bool:
        """Whether leaving decides already, and nothing more is to be said of what comes after it."""
        first, last = span
        nodes = (it for it in self._body(frame.scope) if isinstance(it, ast.stmt | ast.expr))
        within = (it for it in nodes if first <= self.program.order[id(it)] <= last)
        return any(self._works(it) or id(it) in self.fed for it in within)

    def _is_caught(self, node: ast.AST) -> bool:
        inside = node
        for around in self.program.ancestors(node):
            if isinstance(around, FUNCTIONS):
                return False
            if isinstance(around, ast.Try) and around.handlers and inside in around.body:
                return True
            inside = around
        return False

    def _left_out(self, node: ast.AST, why: ast.AST) -> Iterator[tuple[int, int]]:
        """The places that are skipped by leaving at a node: the rest of a loop, or of the function."""
        order = self.program.order
        after = self._last(why if not isinstance(node, ast.Assert | ast.Call) else node) + 1
        for around in self.program.ancestors(node):
            if isinstance(around, ast.For | ast.While | ast.AsyncFor):
                start = order[id(around.test)] if isinstance(around, ast.While) else order[id(around.body[0])]
                if isinstance(node, ast.Continue):
                    yield after, self._last(around.body[-1])
                    return
                yield start, self._last(around)
                if isinstance(node, ast.Break):
                    return
            if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
                yield after, self._last(around)
                return
        yield after, len(order)

    def _last(self, node: ast.AST) -> int:
        return max(self.program.order[id(it)] for it in ast.walk(node) if isinstance(it, ast.stmt | ast.expr))

    def _add(self, found: set[int], node: ast.AST) -> None:
        if id(node) not in found:
            found.add(id(node))
            self._again(self.frame)

    def _grow(self, found: dict, key: object, how: int, asked: object = None) -> None:
        """Have more differ, and look again at what asked for it; by default that has the same key."""
        if how & ~found.get(key, 0):
            found[key] = found.get(key, 0) | how
            self._wake(key if asked is None else asked)
            self.waiting[self.frame] = None

    # What becomes of it

    def _decide(self, node: ast.AST, frame: Frame, found: Found) -> None:
        """What decides how a process goes on, or what it is trained with."""
        ends = isinstance(node, ast.Raise) and (frame.trains or id(node) in self._inside)
        why = None
        if ends or self._works(node):
            why = self._decider(node, found)
        elif id(node) in self.fed:  # loops over samples were looked at there
            why = self._decider(node, found, rounds=False)
        if why is not None:
            self._obstacle(why, _asked(why), frame, found)
        for value in self._deciding(node, frame):
            if self._how(value, frame, found) & ~SIZED:
                is_written = id(node) in self.program.file_of  # what a lambda returns is in no statement
                self._obstacle(node if is_written else value, value, frame, found)
        if id(node) in self.fed and isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            is_module = isinstance(node, ast.Name) and is_outside_name(self.program.values(node))
            if self._how(node, frame, found) & SURELY and not is_module:
                value = kinds.tensor(self.reported.values.of(node), node)
                if value in PLAIN:
                    self._obstacle(node, node, frame, found)

    def _deciding(self, node: ast.AST, frame: Frame) -> list[ast.expr]:
        """What is set in an optimizer or a parameter, a schedule is told, or a closure returns."""
        call = self.program.call(node)
        if call is not None and (is_rate(self.context, node) or _makes(call)):
            return handed(call.node)
        if call is not None and _clips(call):
            return handed(call.node)[1:]
        match node:
            case ast.Assign(value=value) | ast.AugAssign(value=value):
                return [value] if is_rate(self.context, node) or self._steered(node) else []
            case ast.Expr(value=ast.Call() as changing) if self._steered(node):
                return handed(changing)
            case ast.Return(value=ast.expr() as value) if frame.scope in self.context.closures:
                return [value]
            case ast.Call(func=ast.Attribute(attr="step"), args=args):
                return [] if self.program.called_scopes(node) else args
        return []

    def _obstacle(self, node: ast.AST, asked: ast.AST, frame: Frame, found: Found) -> None:
        cause = self._cause(asked, frame, found)
        unknown = None if cause is None else self._unknown(asked, cause, frame, found)
        differs = "which differs across ranks" if unknown is None else "which may differ across ranks"
        obstacle = self.context.obstacle(
            node,
            f"control flow depends on {self._shown(node, asked, cause, found)}, {differs}",
            "make it equal on all ranks first, e.g. by `ddp.mean`" if unknown is None else "",
            SHARDED_ONLY,
            assumes="" if unknown is None else f"`{ast.unparse(unknown)}` is the same on all ranks",
        )
        follows = bool(self._how(asked, frame, found) & MANY)
        self.found[id(node)].append((follows, obstacle))

    def _shown(self, node: ast.AST, asked: ast.AST, cause: ast.AST | None, found: Found) -> str:
        """What a decision depends on, with where that gets its value."""
        if cause is None:
            return f"`{ast.unparse(asked)}`" if isinstance(asked, ast.expr) else "a value"
        made = [
            it
            for it in self.program.definitions(cause)
            if id(it) in found.names and not isinstance(it, ast.arg)
        ]
        lines = sorted(
            {self.program.location(it).span.line for it in made} - {self.program.location(node).span.line}
        )
        return f"`{ast.unparse(cause)}`" + (f" (line {lines[-1]})" if lines else "")

    def _unknown(self, asked: ast.AST, cause: ast.AST, frame: Frame, found: Found) -> ast.AST | None:
        """What may differ in an expression, and is not known to: None where some of it is.

        A condition is answered by the results of calls in it, not by what these are given.
        """
        parts = [*compared(asked)] if isinstance(asked, ast.expr) else []
        parts = [it for it in parts if self._how(it, frame, found) & ~SIZED] or [cause]
        return None if any(map(self._is_measured, parts)) else parts[0]

    def _is_measured(self, node: ast.AST) -> bool:
        """Whether it is known that something is of this process's part of a batch, and not only that it may be."""
        if not isinstance(node, ast.expr) or id(node) not in self.program.file_of:
            return False
        value = kinds.tensor(self.reported.values.of(node), node)
        if isinstance(value, Unclear):
            return value.refuted
        return value not in (*PLAIN, Kind.UNKNOWN, Kind.WHOLE)

    def _cause(self, node: ast.AST, frame: Frame, found: Found) -> ast.AST | None:
        """What differs in an expression."""
        if not isinstance(node, _PARTS) or not self._how(node, frame, found) & ~SIZED:
            return None if isinstance(node, _PARTS) else node
        if isinstance(node, ast.Name) or isinstance(node, ast.Call) and ast.unparse(node.func) == "len":
            return node
        children = (
            it
            for it in ast.iter_child_nodes(node)
            if isinstance(it, _PARTS) and not is_outside_name(self.program.values(it))
        )
        return next((it for child in children if (it := self._cause(child, frame, found))), node)


_PARTS = ast.expr | ast.keyword | ast.comprehension | ast.FormattedValue | ast.Slice


def _any(found: Iterable[int]) -> int:
    how = 0
    for it in found:
        how |= it
    return how


def _plainly(how: int) -> int:
    """One of a few ways to differ, so that a function is not looked at more often than it needs."""
    return CHOSEN if how & MANY else how & SURELY | (MEASURED if how & NUMBER else how)


def _clips(call: Call) -> bool:
    return any(name.endswith(CLIPS) for name in call.names)


def _makes(call: Call) -> bool:
    """Whether an optimizer, a schedule, a loader or a sampler is made."""
    names = [it.name for it in call.callees if isinstance(it, Ext)]
    return any(it.startswith(STEERS) and it.rpartition(".")[2][:1].isupper() for it in names)


def _is_later(index: ast.expr) -> bool:
    """Whether an index of sizes takes others than the first, which is the number of samples."""
    first = index.lower if isinstance(index, ast.Slice) else index
    match first:
        case ast.Constant(value=int(number)):
            return number != 0
        case ast.UnaryOp(op=ast.USub()):
            return True
    return False


def _is_asked(inside: ast.AST, around: ast.AST) -> bool:
    """Whether a part of a condition, or of a loop, is run whatever comes of it."""
    match around:
        case ast.If(test=test) | ast.IfExp(test=test):
            return inside is test
        case ast.For(iter=source, target=target, orelse=after) | ast.AsyncFor(
            iter=source, target=target, orelse=after
        ):
            return inside in (source, target, *after)
        case ast.BoolOp(values=[first, *_]):
            return inside is first
        case ast.Match(subject=subject):
            return inside is subject
    return False


def _asked(why: ast.AST) -> ast.AST:
    """What a condition, or a loop, asks for."""
    match why:
        case ast.If(test=asked) | ast.While(test=asked) | ast.IfExp(test=asked) | ast.Assert(test=asked):
            return asked
        case ast.For(iter=asked) | ast.AsyncFor(iter=asked) | ast.Match(subject=asked):
            return asked
    return why
