"""What puts the batches of a training together: whether it treats every sample by itself.

Each process has a part of every batch, put together of the part's samples alone. That is a part of the batch only if
nothing looks at several samples: padding to the longest does, as do a mean over the batch, a filter, or a number drawn
for all of them. What is not followed may.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import count

from dp2ddp.analyse.api.containers import CHANGES_BEYOND_APPENDING, DICT_LOOKUPS
from dp2ddp.analyse.api.inspection import ASKS_ABOUT_DATA, ASKS_KIND_OR_SIZE, SIZES
from dp2ddp.analyse.api.iteration import COLLATES, COPIES_SEQUENCE
from dp2ddp.analyse.api.options import OPTIONS
from dp2ddp.analyse.api.python import DICTIONARIES
from dp2ddp.analyse.api.randomness import DRAWS_ANY
from dp2ddp.analyse.api.tensors import (
    BY_ROW,
    CONCATENATES,
    DIMENSION_ARGUMENTS,
    MOVES_DIMENSIONS,
    OF_KIND,
    OF_LISTS,
    STACKS,
)
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.dataflow.definitions import right_side
from dp2ddp.analyse.dataflow.samples.indices import is_everything
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.signature import bind, is_spread
from dp2ddp.analyse.program.values import Bound, Const, Ext, Func, Inst, Made, Member, Value, full_name
from dp2ddp.analyse.training.loaders import collates, hides_arguments
from dp2ddp.facts import SHARDED_ONLY, Obstacle


class Form(Enum):
    """What a value is to the samples that are put together."""

    FIXED = auto()
    """No sample has a part in it."""
    SAMPLE = auto()
    """One sample, or what is made of one."""
    SAMPLES = auto()
    """A list with an entry for each sample."""
    COLUMNS = auto()
    """Several such lists: ``zip(*batch)``."""
    ROWS = auto()
    """A tensor with a row for each sample."""
    COLLATED = auto()
    """Such tensors, in a structure that the samples have."""
    PLACE = auto()
    """The number of a sample in the batch, or their number."""
    COUNT = auto()
    """The number of samples, where batches are put together whole."""
    ORDER = auto()
    """A tensor or array with the numbers of all samples, in some order."""
    NUMBER = auto()
    """A number for all samples, or another value without dimensions."""
    ALL = auto()
    """Something else for all samples."""


@dataclass(frozen=True)
class Parts:
    """A display of several values, or a collection whose entries are alike."""

    entries: tuple[tuple[object, Found], ...]


@dataclass(frozen=True)
class Across:
    """A value that may look at several samples at once, or that is not followed."""

    place: ast.AST


Found = Form | Parts | Across

DEPTH = 6
MOST = 5_000
"""So many expressions are followed for a collate function; what is beyond is not known."""


def obstacles(context: Context, training: set[int]) -> Iterator[Obstacle]:
    """What puts the samples of training batches together, and can't be shown to treat each by itself."""
    for call in context.loaders:
        if id(call.node) in training and id(call.node) not in context.put_together:
            yield from _of_loader(context, call)


def hand_lists(context: Context, training: set[int]) -> bool:
    """Whether batches of the training may hold a list with an entry for each sample."""
    own = (getattr(context.program.node(it), "own_batch", None) for it in training)
    return any(it is not None and it.holds_lists for it in own) or any(
        holds_lists(found)
        for call in context.loaders
        if id(call.node) in training
        for given in collates(context, call)
        for found in collated(context, given)
    )


def joins(context: Context, training: set[int]) -> bool:
    """Whether parts are taken of batches that may hold the numbers of all samples one after the other."""
    own = (getattr(context.program.node(it), "own_batch", None) for it in training)
    return any(it is not None and not it.in_rows for it in own)


def _of_loader(context: Context, made: Call) -> Iterator[Obstacle]:
    call = context.loader_arguments(made)
    for given in collates(context, made):
        for found in collated(context, given):
            place = across(found)
            if place is not None:
                yield _obstacle(context, given, place)
                break
    if hides_arguments(context, call) and _is_named(context, "collate_fn"):
        yield context.obstacle(
            call.node,
            "the collate function comes from a dict or list that can't be analysed",
            "name it in this call: `collate_fn=FUNCTION`",
            SHARDED_ONLY,
            assumes="the collate function does not mix samples",
        )
    dataset = call.argument("dataset", 0)
    for held in context.program.values(dataset) if dataset is not None else ():
        if isinstance(held, Inst) and context.program.methods(held, "__getitems__", dataset):
            yield context.obstacle(
                dataset,
                "`__getitems__` of the dataset makes a whole batch at once, and may mix samples",
                "use `__getitem__`",
                SHARDED_ONLY,
                assumes="`__getitems__` of the data set does not mix samples",
            )


def _obstacle(context: Context, given: ast.expr, place: ast.AST) -> Obstacle:
    cause = context.cause(place) if place is not given else None
    shown = ast.unparse(given)
    message = f"the collate function `{shown}` may mix samples"
    if cause is not None and isinstance(place, ast.expr):
        message = f"collating by `{ast.unparse(place)}` may mix samples"
    code = ast.unparse(place)
    pads = "pad" in code or "max" in code
    if pads:
        message = f"`{code}` may pad differently on each rank"
    return context.obstacle(
        given,
        message,
        "pad to a fixed length" if pads else "",
        SHARDED_ONLY,
        assumes=f"the collate function `{shown}` does not mix samples (how far it pads changes nothing)",
        cause=place if place is not given else None,
    )


def _is_named(context: Context, word: str) -> bool:
    """Whether a program gives anything an argument or an entry of this name."""
    nodes = context.program.nodes.values()
    return any(
        (isinstance(it, ast.keyword) and it.arg == word)
        or (isinstance(it, ast.Constant) and it.value == word)
        for it in nodes
    )


def holds_lists(found: Found) -> bool:
    """Whether a list with an entry for each sample is handed out."""
    if isinstance(found, Parts):
        return any(holds_lists(it) for _, it in found.entries)
    return found in (Form.SAMPLES, Form.COLUMNS, Form.SAMPLE)


def may_hold_columns(found: Found) -> bool:
    """Whether a list of tensors with rows may be handed out: torch makes it of samples that are lists."""
    if isinstance(found, Parts):
        entries = [it for _, it in found.entries]
        return all(it in (Form.ROWS, Form.ORDER) for it in entries) or any(map(may_hold_columns, entries))
    return found is Form.COLLATED or isinstance(found, Across)


def _counts(found: Found) -> bool:
    """Whether the number of samples is handed out, or where one stands: a part's."""
    if isinstance(found, Parts):
        return any(_counts(it) for _, it in found.entries)
    return found is Form.PLACE


def across(found: Found) -> ast.AST | None:
    """What looks at several samples in a value."""
    if isinstance(found, Across):
        return found.place
    inner = (across(it) for _, it in found.entries) if isinstance(found, Parts) else ()
    return next((it for it in inner if it is not None), None)


def collated(context: Context, given: ast.expr, follower: type[Collating] | None = None) -> Iterator[Found]:
    """What a ``collate_fn`` makes of a list of samples."""
    values = context.program.values(given)
    if not values and not (isinstance(given, ast.Constant) and given.value is None):
        yield Across(given)
    for value in values:
        if not _is_setting(context, value):
            yield from _made_by(context, given, value, follower or Collating)


def _is_setting(context: Context, value: Value) -> bool:
    """Whether a value is an entry of the program's settings, or of a copy of them: that is no function."""
    if not isinstance(value, Member):
        return False
    copied = value.owner
    call = context.program.call(context.program.node(copied.site)) if isinstance(copied, Made) else None
    if call is None or not call.names & DICTIONARIES:
        return full_name(value).startswith(OPTIONS)
    held = [it for argument in handed(call.node) for it in context.program.values(argument)]
    return bool(held) and all(it == copied or full_name(it).startswith(OPTIONS) for it in held)


def _made_by(context: Context, given: ast.expr, value: Value, follower: type[Collating]) -> Iterator[Found]:
    program = context.program
    match value:
        case Const(None):
            return
        case Ext() if value.name in COLLATES:
            yield Form.COLLATED
        case Made(name="functools.partial"):
            call = program.call(program.node(value.site))
            if call is None or len(call.node.args) != 1:
                yield Across(given)
                return
            yield from collated(context, call.node.args[0], follower)
        case Func() | Bound() | Inst():
            call = program.call(given) or Call(
                ast.Call(func=given, args=[], keywords=[]), program.scope(given), frozenset()
            )
            owner = Inst(value.cls, value.site) if isinstance(value, Inst) else value
            targets = (
                [(scope, True) for scope in sorted(program.methods(owner, "__call__", given))]
                if isinstance(owner, Inst)
                else [(scope, bound) for scope, _, bound in program.targets(value, call)]
            )
            if not targets:
                yield Across(given)
            for index, bound in targets:
                scope = program.scopes[index]
                taken = scope.takes(bound)
                if not taken.places or taken.rest is not None:
                    yield Across(given)
                else:
                    found = follower(context, {id(taken.places[0]): Form.SAMPLES}).handed_out(scope)
                    yield found
        case _:
            yield Across(given)


@dataclass
class Collating:
    """Follows the values of one function: ``given`` are those of its parameters that have to do with the samples."""

    context: Context
    given: dict[int, Found]
    depth: int = 0
    steps: Iterator[int] = field(default_factory=count)
    """Expressions followed so far, by all followers of one collate function."""
    open: set[int] = field(default_factory=set)
    known: dict[int, tuple[Found, set[int]]] = field(default_factory=dict)
    """What expressions are, and on which open ones that rests: it holds as long as these are open."""
    rests: set[int] = field(default_factory=set)
    """On which open expressions what is being followed rests so far."""

    def __post_init__(self) -> None:
        self.program = self.context.program

    def handed_out(self, scope: Scope) -> Found:
        """What the function makes of the samples: the number of these is a part's."""
        found = self.returned(scope)
        return Across(scope.node) if _counts(found) else found

    def returned(self, scope: Scope) -> Found:
        """What the function returns."""
        results = []
        for node in self.program.body(scope):
            if isinstance(node, ast.Yield | ast.YieldFrom | ast.Await) or self._keeps(node, scope):
                return Across(node)
            if isinstance(node, ast.Return) and node.value is not None and not self._is_of_none(node):
                tests = self._tests(node.value)
                results += [Across(it) for it in tests if self.of(it) is not Form.FIXED]
                results.append(self.of(node.value))
        return either(results, scope.node) if results else Across(scope.node)

    def _is_of_none(self, node: ast.Return) -> bool:
        """Whether a function returns something here for no samples at all, of which no batch is made."""
        around = self.program.parent(node)
        if not isinstance(around, ast.If) or node not in around.body:
            return False
        match around.test:
            case ast.UnaryOp(op=ast.Not(), operand=ast.Call(func=ast.Name(id="len"), args=[held])):
                pass
            case ast.UnaryOp(op=ast.Not(), operand=held):
                pass
            case ast.Compare(
                left=ast.Call(func=ast.Name(id="len"), args=[held]),
                ops=[ast.Eq()],
                comparators=[ast.Constant(value=0)],
            ):
                pass
            case _:
                return False
        definitions = self.program.definitions(held)
        return self.of(held) is Form.SAMPLES and all(isinstance(it, ast.arg) for it in definitions)

    def _keeps(self, node: ast.AST, scope: Scope) -> bool:
        """Whether a statement leaves something for the next batch."""
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            root = node
            while isinstance(root, ast.Attribute | ast.Subscript):
                root = root.value
            own = isinstance(root, ast.Name) and root.id in scope.names
            return not own or isinstance(node, ast.Attribute) or root.id in scope.params  # type: ignore[attr-defined]
        return isinstance(node, ast.Global | ast.Nonlocal)

    def _tests(self, node: ast.AST) -> list[ast.expr]:
        """The conditions under which a place in the function is run."""
        found = []
        for around in self.program.ancestors(node):
            if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                break
            found += [around.test] if isinstance(around, ast.If | ast.While) else []
        return found

    def together(self, values: list[Found], place: ast.AST) -> Found:
        """What is computed of several values."""
        return _together(values, place)

    # Expressions

    def of(self, node: ast.AST) -> Found:
        """What an expression is; each is followed once, what is made of itself is not."""
        at = id(node)
        if at in self.open:
            self.rests.add(at)
            return self._of_itself(node)
        if at not in self.known:
            if self.depth > DEPTH or next(self.steps) > MOST:
                return Across(node)
            self._follow(node)
        found, rests = self.known[at]
        self.rests |= rests
        return found

    def _follow(self, node: ast.AST) -> None:
        at, around = id(node), self.rests
        self.rests = set()
        self.open.add(at)
        found = self._of(node)
        self.open.discard(at)
        if at in self.rests:
            self.known = {it: held for it, held in self.known.items() if at not in held[1]}
        self.known[at] = found, self.rests - {at}
        self.rests = around

    def _of_itself(self, node: ast.AST) -> Found:
        """What an expression is that it is made of itself."""
        return Across(node)

    def _of(self, node: ast.AST) -> Found:
        match node:
            case ast.Constant() | ast.Lambda() | ast.JoinedStr():
                return Form.FIXED
            case ast.Name():
                return self._named(node)
            case ast.Attribute(attr=name, value=value):
                held = self.of(value)
                if held in (Form.ROWS, Form.COLLATED):
                    return held if name == "data" else Form.FIXED if name in OF_KIND else Across(node)
                return held if held in (Form.FIXED, Form.SAMPLE) else Across(node)
            case ast.Subscript():
                return self._entry(node)
            case ast.BinOp(left=left, right=right):
                return self.together([self.of(left), self.of(right)], node)
            case ast.UnaryOp(operand=operand):
                return self.together([self.of(operand)], node)
            case ast.Compare(left=left, ops=ops, comparators=others):
                asks = all(isinstance(it, ast.Is | ast.IsNot) for it in ops)
                if asks and all(self._is_of_first(it) or self.of(it) is Form.FIXED for it in (left, *others)):
                    return Form.FIXED  # all samples have it, or none
                return self.together([self.of(it) for it in (left, *others)], node)
            case ast.BoolOp(values=values):
                return self.together([self.of(it) for it in values], node)
            case ast.IfExp(test=test, body=body, orelse=other):
                asked = self.of(test)
                if asked not in (Form.FIXED, Form.SAMPLE):
                    return Across(test)
                found = either([self.of(body), self.of(other)], node)
                return found if asked is Form.FIXED else self.together([asked, found], node)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                if any(isinstance(it, ast.Starred) for it in parts):
                    return Across(node)
                found = [self.of(it) for it in parts]
                if found and all(it in (Form.FIXED, Form.SAMPLE) for it in found):
                    return self.together(found, node)
                return Parts(tuple(enumerate(found)))
            case ast.Dict(keys=keys, values=values):
                if any(it is None or self.of(it) is not Form.FIXED for it in keys):
                    return Across(node)
                names = [it.value if isinstance(it, ast.Constant) else it for it in keys]
                return Parts(tuple(zip(names, (self.of(it) for it in values), strict=True)))
            case ast.ListComp(elt=made, generators=[part]) | ast.GeneratorExp(elt=made, generators=[part]):
                return self._mapped(self._drawn(part.iter), self.of(made), part.ifs, node)
            case ast.DictComp(key=key, value=made, generators=[part]):
                drawn = self._drawn(part.iter)
                if drawn is Form.FIXED and self.of(key) is Form.FIXED:
                    return self._mapped(drawn, self.of(made), part.ifs, node)
            case ast.Call():
                return self._call(node)
        return Across(node)

    def _mapped(self, drawn: Found, made: Found, tests: list[ast.expr], node: ast.AST) -> Found:
        """What is made of each entry of something."""
        if any(self.of(it) is not Form.FIXED for it in tests):
            return Across(tests[0])
        if is_sample(drawn):
            return Form.SAMPLES if made in (Form.SAMPLE, Form.FIXED) and not tests else Across(node)
        if drawn in (Form.FIXED, Form.SAMPLES, Form.ROWS, Form.COLLATED) and not isinstance(made, Across):
            return Form.FIXED if made is Form.FIXED else Parts(((None, made),))
        return made if isinstance(made, Across) else Across(node)

    def _entry(self, node: ast.Subscript) -> Found:
        held, index = self._held(node), node.slice
        if isinstance(held, Across):
            return held
        at = self.of(index) if not isinstance(index, ast.Slice | ast.Tuple) else self._slice(index)
        key = index.value if isinstance(index, ast.Constant) else None
        match held:
            case Form.FIXED | Form.SAMPLE:
                return self.together([held, at], node)
            case Form.SAMPLES:
                return Form.SAMPLE if at is Form.PLACE and isinstance(index, ast.Name) else Across(node)
            case Form.COLUMNS if at is Form.FIXED:
                return Form.SAMPLES
            case Form.COLLATED if at is Form.FIXED and key is not None:
                return held
            case Form.ROWS | Form.COLLATED if isinstance(index, ast.Tuple) and at is Form.FIXED:
                return held if is_everything(index.elts[0]) else Across(node)
            case Parts(entries=entries) if at is Form.FIXED:
                known = dict(entries)
                return known.get(key, known.get(None, Across(node)))
        return Across(node)

    def _held(self, node: ast.Subscript) -> Found:
        """What an entry is taken of."""
        return self.of(node.value)

    def _slice(self, index: ast.Slice | ast.Tuple) -> Found:
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        bounds = [
            it
            for part in parts
            for it in ((part.lower, part.upper, part.step) if isinstance(part, ast.Slice) else (part,))
        ]
        return self.together([self.of(it) for it in bounds if it is not None], index)

    # Names

    def _named(self, node: ast.Name, entry: str | None = None) -> Found:
        """What a name holds; of what is stored in it, only one entry may be asked for."""
        definitions = [it for it in self.program.definitions(node) if not isinstance(it, ast.arg)]
        scope = self.program.scope(node)
        found = [self._defined(it, node) for it in definitions]
        if not any(self._is_before(it, node, scope) for it in definitions):
            found.append(self._parameter(node.id, scope))
        value = either(found, node)
        if isinstance(value, Across) or node.id not in scope.names:
            return value
        return self._changed(node, scope, value, entry)

    def _is_before(self, definition: ast.AST, use: ast.AST, scope: Scope) -> bool:
        """Whether a definition comes before a use in any case; those of comprehensions are about nothing else."""
        statement = self.program.statement(definition)
        order = self.program.order
        first = statement in scope.body and order[id(statement)] < order[id(self.program.statement(use))]
        return first or isinstance(statement, ast.For) or not _binds(statement, definition)

    def _parameter(self, name: str, scope: Scope) -> Found:
        """What a parameter is, by its name; nothing to do with the samples where there is none."""
        parameter = scope.signature.parameter(name)
        return Form.FIXED if parameter is None else self.given.get(id(parameter), Form.FIXED)

    def _changed(self, name: ast.Name, scope: Scope, value: Found, entry: str | None) -> Found:
        """A value with what a function does to it: nothing but adding to a list, once for each sample."""
        for use in self.program.body(scope):
            if not isinstance(use, ast.Name) or use.id != name.id:
                continue
            around = self.program.parent(use)
            call = self.program.parent(around) if around is not None else None
            called = isinstance(call, ast.Call) and isinstance(around, ast.Attribute) and call.func is around
            method = around.attr if called and isinstance(around, ast.Attribute) else ""
            if method in CHANGES_BEYOND_APPENDING or (method.endswith("_") and method not in BY_ROW):
                return Across(call)
            if (
                isinstance(around, ast.Subscript)
                and around.value is use
                and not isinstance(around.ctx, ast.Load)
            ):
                return Across(around)
            shuffles = isinstance(around, ast.Call) and use in around.args and self._draws(around)
            if shuffles:
                return Across(around)
        return value

    def _collected(self, name: ast.Name) -> Found | None:
        """What a list holds to which a function adds; None where it adds nothing."""
        scope = self.program.scope(name)
        found: list[Found] = []
        for use in self.program.body(scope):
            match use:
                case ast.Call(func=ast.Attribute(attr="append", value=ast.Name(id=name.id)), args=[added]):
                    if self._is_once_for_each(self.program.statement(use)):
                        found.append(self._mapped(Form.SAMPLE, self.of(added), [], use))
                    else:
                        found.append(Across(use))
        return either(found, name) if found else None

    def _is_once_for_each(self, statement: ast.stmt) -> bool:
        """Whether a statement runs once for each sample; or as often for each, by the kinds of its parts."""
        around = self.program.parent(statement)
        while True:
            match around:
                case ast.If(test=ast.Call(args=[asked, *_]) as test) if (
                    set(names := self.program.names_of(test))
                    and set(names) <= ASKS_KIND_OR_SIZE - SIZES
                    and self.of(asked) is Form.SAMPLE
                ):
                    pass
                case ast.For(orelse=[]) if self._is_of_parts(around.iter) and not self._leaves(around):
                    pass
                case ast.For(orelse=[]) if not self._leaves(around):
                    outer = self.program.parent(around)
                    return isinstance(outer, ast.FunctionDef) and is_sample(self._drawn(around.iter))
                case _:
                    return False
            around = self.program.parent(around)

    def _is_of_parts(self, source: ast.expr) -> bool:
        """Whether a loop goes over the parts of one sample."""
        if self.program.names_of(source) == {"builtins.enumerate"} and source.args:  # type: ignore[attr-defined]
            source = source.args[0]  # type: ignore[attr-defined]
        return isinstance(source, ast.Name) and self.of(source) is Form.SAMPLE

    def _leaves(self, loop: ast.For) -> bool:
        """Whether a loop may leave out some."""
        return any(
            isinstance(it, ast.Break | ast.Continue | ast.Return) for it in self.program.descendants(loop)
        )

    def _defined(self, definition: ast.AST, use: ast.Name) -> Found:
        if isinstance(definition, ast.alias | ast.FunctionDef | ast.ClassDef):
            return Form.FIXED
        if self.program.scope(definition) is not self.program.scope(use):
            return Form.FIXED  # of a module, or of an outer function: made before
        if self._tests_differ(definition):
            return Across(definition)
        for around in self.program.ancestors(definition):
            if isinstance(around, ast.comprehension):
                return self._taken(around.target, definition, self._drawn(around.iter))
            if isinstance(around, ast.stmt):
                break
        statement = self.program.statement(definition)
        value = right_side(statement, definition)
        if isinstance(statement, ast.AnnAssign):
            value = statement.value
        match statement:
            case ast.Assign() | ast.AnnAssign() if value is not None:
                is_empty = isinstance(value, ast.List) and not value.elts
                return (self._collected(use) or Form.FIXED) if is_empty else self.of(value)
            case ast.Assign(targets=targets, value=value):
                held = next((it for it in targets if definition in ast.walk(it)), None)
                return Across(definition) if held is None else self._taken(held, definition, self.of(value))
            case ast.For(target=target, iter=source):
                drawn = Form.SAMPLE if self._is_of_parts(source) else self._drawn(source)
                return self._taken(target, definition, drawn)
        return Across(definition)

    def _tests_differ(self, definition: ast.AST) -> bool:
        return any(self.of(it) not in (Form.FIXED, Form.SAMPLE) for it in self._tests(definition))

    def _taken(self, target: ast.AST, definition: ast.AST, value: Found) -> Found:
        """What a definition gets where a value is unpacked to a target."""
        if target is definition:
            return value
        if isinstance(target, ast.Tuple | ast.List) and not any(
            isinstance(it, ast.Starred) for it in target.elts
        ):
            for index, part in enumerate(target.elts):
                if definition in ast.walk(part):
                    return self._taken(part, definition, _unpacked(value, index, definition))
        return Across(definition)

    def _drawn(self, source: ast.expr) -> Found:
        """What a loop over an expression gets in each round."""
        call = self.program.call(source) if isinstance(source, ast.Call) else None
        names = call.names if call is not None else frozenset()
        if call is not None and names == {"builtins.enumerate"} and source.args:  # type: ignore[attr-defined]
            inner = self._drawn(source.args[0])  # type: ignore[attr-defined]
            return Parts(((0, Form.PLACE if is_sample(inner) else Form.FIXED), (1, inner)))
        if call is not None and names == {"builtins.zip"} and not isinstance(source.args[0], ast.Starred):  # type: ignore[attr-defined]
            return Parts(tuple(enumerate(self._drawn(it) for it in source.args)))  # type: ignore[attr-defined]
        value = self.of(source)
        match value:
            case Form.SAMPLES:
                return Form.SAMPLE
            case Form.ROWS:
                return Form.SAMPLE
            case Form.COLUMNS:
                return Form.SAMPLES
            case Form.FIXED | Form.PLACE | Form.COLLATED | Across():
                return value
            case Parts(entries=entries):
                return either([it for _, it in entries], source)
        return Across(source)

    # Calls

    def _draws(self, node: ast.Call) -> bool:
        call = self.program.call(node)
        return call is not None and any(it.startswith(DRAWS_ANY) for it in call.names)

    def _call(self, node: ast.Call) -> Found:
        call = self.program.call(node)
        names = call.names if call is not None else frozenset()
        if self._peeks(node, names):
            return Form.FIXED
        if names == {"builtins.zip"} or names <= COPIES_SEQUENCE and names or names == {"builtins.map"}:
            return self._rearranged(node, next(iter(names)))
        given = [self.of(it.value if isinstance(it, ast.Starred) else it) for it in node.args]
        given += [self.of(it.value) for it in node.keywords]
        if names == {"builtins.len"}:
            return (
                Form.PLACE
                if given[:1] and given[0] in (Form.SAMPLES, Form.ROWS)
                else self.together(given, node)
            )
        if names == {"builtins.range"} and given == [Form.PLACE]:
            return Form.PLACE
        blamed = next((it for it in given if isinstance(it, Across)), None)
        if blamed is not None:
            return blamed
        if names and names <= COLLATES:
            return Form.COLLATED if given[0] in (Form.SAMPLES, Form.COLUMNS) else Across(node)
        if names and names <= OF_LISTS | CONCATENATES and given:
            return self._stacked(node, names, given)
        held = self.of(node.func.value) if isinstance(node.func, ast.Attribute) else Form.FIXED
        if isinstance(held, Across):
            return held
        if self._draws(node) and Form.SAMPLE not in (*given, held):
            return Across(node)
        if held in (Form.ROWS, Form.COLLATED):
            return self._of_rows(node, held, given)
        targets = [it for callee in call.callees for it in self.program.targets(callee, call)] if call else []
        plain = self.together([held, *given], node)
        if plain in (Form.FIXED, Form.SAMPLE) or not targets:
            return (
                plain if not isinstance(plain, Form) or plain in (Form.FIXED, Form.SAMPLE) else Across(node)
            )
        return either([self._entered(call, *target) for target in targets], node)  # type: ignore[arg-type]

    def _peeks(self, node: ast.Call, names: Iterable[str]) -> bool:
        """``isinstance(batch[0], dict)`` and ``batch[0].keys()``: what all samples have in common."""
        asked = node.args[0] if node.args and set(names) and set(names) <= ASKS_ABOUT_DATA else None
        if isinstance(node.func, ast.Attribute) and node.func.attr == "keys":
            asked = node.func.value
        match None if asked is None else self._behind(asked):
            case None:
                return False
            case ast.Subscript(slice=ast.Constant()):
                return self._is_of_first(asked)  # type: ignore[arg-type]
        return bool(set(names) & ASKS_ABOUT_DATA)

    def _behind(self, node: ast.expr) -> ast.expr:
        """What a name is given in one place."""
        held = [self.program.statement(it) for it in self.program.definitions(node)]
        alone = isinstance(node, ast.Name) and len(held) == 1 and isinstance(held[0], ast.Assign)
        return held[0].value if alone else node  # type: ignore[union-attr]

    def _is_of_first(self, node: ast.expr) -> bool:
        """Whether something is the first sample, or one of its parts: ``batch[0]["image"]``."""
        match self._behind(node):
            case ast.Subscript(value=value, slice=ast.Constant()):
                return self.of(value) in (Form.SAMPLES, Form.FIXED) or self._is_of_first(value)
        return False

    def _rearranged(self, node: ast.Call, name: str) -> Found:
        """``zip(*batch)``, ``list(…)``, ``map(f, …)``."""
        match name.rpartition(".")[2], node.args:
            case "zip", [ast.Starred(value=value)]:
                found = self.of(value)
                return (
                    Form.COLUMNS
                    if found is Form.SAMPLES
                    else found if isinstance(found, Across) else Across(node)
                )
            case "zip", given:
                found = [self.of(it) for it in given]
                return (
                    Form.SAMPLES
                    if found and all(it in (Form.SAMPLES, Form.ROWS) for it in found)
                    else Across(node)
                )
            case "map", [function, source]:
                drawn = self._drawn(source)
                by_itself = ast.Call(func=function, args=[source], keywords=[])
                names = {full_name(it) for it in self.program.values(function)}
                if is_sample(drawn):
                    own = self.of(function)
                    return Form.SAMPLES if own is Form.FIXED else Across(node)
                if names <= COPIES_SEQUENCE and drawn is Form.SAMPLES:
                    return Form.COLUMNS
                if names <= COLLATES | {"torch.stack"} and drawn is Form.SAMPLES:
                    return Parts(((None, Form.ROWS),))
                return Across(by_itself.args[0])
            case _, [given]:
                return self.of(given)
        return Form.FIXED if not node.args else Across(node)

    def _stacked(self, node: ast.Call, names: Iterable[str], given: list[Found]) -> Found:
        """One tensor, or array, of a list with an entry for each sample."""
        rest = [
            it.value
            for it in (*node.args[1:2], *(it.value for it in node.keywords if it.arg in DIMENSION_ARGUMENTS))
            if isinstance(it, ast.Constant)
        ]
        if any(it in (Form.SAMPLES, Form.ROWS) for it in given[1:]):
            return Across(node)
        first = given[0]
        if first in (Form.FIXED, Form.SAMPLE) or first is Form.ROWS and not set(names) & CONCATENATES:
            return first
        along = set(names) <= CONCATENATES | STACKS and any(it not in (0, None) for it in rest)
        if first is not Form.SAMPLES or along:
            return Across(node)
        return (
            Form.ROWS if not set(names) & CONCATENATES or self._adds_dimension(node.args[0]) else Across(node)
        )

    def _adds_dimension(self, node: ast.expr) -> bool:
        """Whether every entry of a list gets a first dimension of its own: ``[it.unsqueeze(0) for it in batch]``."""
        match node:
            case ast.ListComp(
                elt=ast.Call(func=ast.Attribute(attr="unsqueeze"), args=[ast.Constant(value=0)])
            ):
                return True
            case ast.ListComp(elt=ast.Subscript(slice=ast.Constant(value=None))):
                return True
        return False

    def _of_rows(self, node: ast.Call, held: Form, given: list[Found]) -> Found:
        """A method of a tensor with a row for each sample."""
        name = node.func.attr  # type: ignore[attr-defined]
        plain = all(it in (Form.FIXED, Form.ROWS) for it in given)
        numbers = [it.value for it in node.args if isinstance(it, ast.Constant)]
        if held is Form.COLLATED and name in DICT_LOOKUPS and plain:
            return held
        if name in BY_ROW and plain:
            return held
        later = len(numbers) == len(node.args) > 0 and all(isinstance(it, int) and it > 0 for it in numbers)
        if name in MOVES_DIMENSIONS and later:
            return held
        if name == "permute" and numbers[:1] == [0]:
            return held
        return Across(node)

    def _entered(self, call: Call, index: int, owner: Value | None, bound: bool) -> Found:
        """What a function of the project makes of samples."""
        scope = self.program.scopes[index]
        if is_spread(call.node):
            return Across(call.node)
        given = {id(it): self.of(value) for it, value in bind(call.node, scope.takes(bound)).given}
        return type(self)(self.context, given, self.depth + 1, self.steps).returned(scope)


def _binds(statement: ast.AST, definition: ast.AST) -> bool:
    """Whether an assignment gives a name its value, no comprehension in it."""
    targets = (
        statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", statement)]
    )
    return any(it is definition for target in targets for it in ast.walk(target))


def is_sample(drawn: Found) -> bool:
    """Whether a loop goes over the samples."""
    if isinstance(drawn, Parts):
        return any(is_sample(it) for _, it in drawn.entries)
    return drawn in (Form.SAMPLE, Form.PLACE)


def _unpacked(value: Found, index: int, place: ast.AST) -> Found:
    match value:
        case Form.COLUMNS:
            return Form.SAMPLES
        case Form.FIXED | Form.SAMPLE | Form.COLLATED | Across():
            return value
        case Parts(entries=entries):
            known = dict(entries)
            return known.get(index, known.get(None, Across(place)))
    return Across(place)


def _together(values: list[Found], place: ast.AST) -> Found:
    """What is computed of several values, each with the others' same sample."""
    for value in values:
        if isinstance(value, Across):
            return value
    kinds = set(values) - {Form.FIXED}
    if not kinds:
        return Form.FIXED
    first, *others = kinds
    return first if not others and first in (Form.SAMPLE, Form.ROWS, Form.COLLATED) else Across(place)


def either(values: list[Found], place: ast.AST) -> Found:
    """What a value is that may be any of some."""
    for value in values:
        if isinstance(value, Across):
            return value
    known = list(dict.fromkeys(values))
    if len(known) > 1 and all(not across(it) for it in known):
        known = [it for it in known if it is not Form.FIXED]
    if len(known) == 1:
        return known[0]
    if set(known) == {Form.ROWS, Form.SAMPLES}:
        return Form.SAMPLES
    displays = [it for it in known if isinstance(it, Parts)]
    if len(displays) < len(known):
        return Across(place)
    keys = {tuple(key for key, _ in it.entries) for it in displays}
    if len(keys) > 1:
        return Parts(((None, either([it for one in displays for _, it in one.entries], place)),))
    columns = zip(*(it.entries for it in displays), strict=True)
    return Parts(tuple((column[0][0], either([it for _, it in column], place)) for column in columns))
