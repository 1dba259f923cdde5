"""What the wrapped models hand out: rows, lists of them, or numbers that each replica computes of its part."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from functools import cached_property

from dp2ddp.analyse.api.layers import SEQUENTIAL, SETS_MODE
from dp2ddp.analyse.api.losses import REDUCED
from dp2ddp.analyse.api.options import OPTIONS
from dp2ddp.analyse.api.tensors import HANDS_ON
from dp2ddp.analyse.context import Context, once
from dp2ddp.analyse.dataflow import kinds, losses
from dp2ddp.analyse.dataflow.kinds import AVERAGED, DEALT, PLAIN, Every, Held, Kind, Unclear, Value
from dp2ddp.analyse.dataflow.samples import columns
from dp2ddp.analyse.dataflow.samples.conditions import may_run, reaching_in
from dp2ddp.analyse.dataflow.samples.follower import Samples
from dp2ddp.analyse.dataflow.samples.frames import OPEN, Frame
from dp2ddp.analyse.dataflow.samples.functions import arguments, call_in
from dp2ddp.analyse.dataflow.samples.layers import layer_does
from dp2ddp.analyse.dataflow.samples.writes.stores import stores_in
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.sources import How
from dp2ddp.analyse.program.values import Bound, Coll, Func, Inst, Made, closure, full_name
from dp2ddp.facts import Problem

HANDED = 6
"""How many names what a model is given is followed through."""


class Forwards(Samples):
    """Follows the values of one program through the models that it wraps."""

    @cached_property
    def _inside(self) -> _Inside:
        kept, taken = _insides(self.context), frozenset(self.context.taken.items())
        if taken not in kept:
            kept[taken] = _Inside(self.context)
        return kept[taken]

    def forward(self, call: Call, frame: Frame) -> Value:
        """Each replica, too, sees its own part only; what it is given must be made sample by sample."""
        if any(map(losses.is_callable_loss, call.callees)) or any(
            isinstance(callee, Func | Bound) for callee in call.callees
        ):  # what has several parts of a program under names that are not told apart: `self.criterion(…)`
            return Unclear(call.node)
        inputs = [kinds.tensor(self.value(given, frame), given) for given in handed(call.node)]
        if (blamed := kinds.unclear(inputs)) is not None:
            return blamed
        in_columns = columns.are_among(*inputs)
        if in_columns and (blamed := columns.forward(self, handed(call.node), inputs)) is not None:
            return blamed
        for given, value in zip(handed(call.node), inputs, strict=True) if not in_columns else ():
            if value not in (*DEALT, *PLAIN):
                return Unclear(given)
        if inputs and all(value in PLAIN for value in inputs):
            return Kind.SAME  # each process computes the whole of it
        if not in_columns and (whole := next(filter(self.is_cut, handed(call.node)), None)) is not None:
            return Unclear(whole, _of_whole(whole), refuted=True)
        models = [model for callee in call.callees for model in self._models(callee)]
        given_to = self._keywords(call) if models else frozenset()
        fitting = [model for model in models if self._takes(model, call, given_to)] or models
        found = [value for model in fitting for value in self._handed(model, call, frame)]
        collections = {isinstance(value, Held | Every) for value in found}
        known = _known(kinds.join(found, call.node)) if len(collections) == 1 else Kind.OUTPUT
        if not in_columns:
            return known
        flat = any(map(self._is_flat, self._returned(fitting, call)))
        return Unclear(call.node) if flat else columns.handed_out(known, call.node)

    def is_cut(self, node: ast.expr, seen: frozenset[int] = frozenset()) -> bool:
        """Whether something that a model is given is, or begins as, a tensor that is the same on all ranks.

        nn.DataParallel gives each replica some of its rows, as of any tensor: those of a batch.
        """
        if id(node) in seen or len(seen) > HANDED:
            return False
        seen |= {id(node)}
        match node:
            case ast.Name() if node.id in stores_in(self.context, self.program.scope(node)):
                return False  # rows that the program writes: its own batch
            case ast.Name():
                sources = [self.program.source(it) for it in self.program.definitions(node)]
                written = [it.written for it in sources if it.how is How.ASSIGNED]
                return any(
                    value is not None and self._is_cut_at(value, place, seen) for value, place in written
                )
            case ast.Call(func=ast.Attribute(value=inner, attr=method)) if method in HANDS_ON:
                return self.is_cut(inner, seen)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return any(self.is_cut(it, seen) for it in parts)
        return self._is_whole_tensor(node)

    def _is_cut_at(self, value: ast.expr, place: tuple[int | None, ...], seen: frozenset[int]) -> bool:
        """The same of an entry of what an expression is."""
        if not place:
            return self.is_cut(value, seen)
        if kinds.tensor(self.value(value, OPEN), value) not in PLAIN:
            return False  # a batch, or what is made of one
        entered = self.program.entered(value) if isinstance(value, ast.Call) else frozenset[int]()
        for index in entered:
            for node in self.program.results(self.program.scopes[index]):
                made = node.value if isinstance(node, ast.Return) else None
                at = place[0]
                if isinstance(made, ast.Tuple | ast.List) and at is not None and at < len(made.elts):
                    if self._is_whole_tensor(made.elts[at]):
                        return True
        return False

    def _is_whole_tensor(self, node: ast.expr) -> bool:
        if kinds.tensor(self.value(node, OPEN), node) not in PLAIN:
            return False
        rank = self.dimensions.of(node)
        return self.dimensions.is_tensor(node) and (rank is None or rank > 0)

    def _is_flat(self, node: ast.expr) -> bool:
        """Whether what a model returns is known to lack a dimension: of time, of samples, of what is told of each."""
        rank = self.dimensions.of(node)
        return rank is not None and 0 <= rank < 3

    def _returned(self, models: list[object], call: Call) -> Iterator[ast.expr]:
        """The expressions that the forwards of models return, each entry of a tuple by itself."""
        scopes = {it for model in models for it in self.program.methods(model, "forward", call.node)}  # type: ignore[arg-type]
        for index in sorted(scopes):
            for node in self.program.results(self.program.scopes[index]):
                if isinstance(node, ast.Return) and node.value is not None:
                    yield from getattr(node.value, "elts", [node.value])

    def unseen(self, node: ast.expr) -> ast.Call | None:
        """What a model's forward calls of its own to make a value, where nothing is known of that."""
        waiting: deque[tuple[ast.expr, Inst | None]] = deque([(node, None)])
        seen: set[int] = set()
        walked: set[int] = set()
        while waiting:
            part, model = waiting.popleft()
            if id(part) in seen:
                continue
            seen.add(id(part))
            match part:
                case ast.Call() if self.context.is_wrapped(self.program.values(part.func)):
                    waiting += self._results(part)
                case ast.Call(func=ast.Attribute(value=ast.Name(id=me), attr=name)) if (
                    model is not None
                    and self.program.scope(part).params[:1] == [me]
                    and self._is_unseen(model, name, part)
                ):
                    return part
                case ast.Name():
                    waiting += ((it, model) for it in self._sources(part))
                case _ if id(part) not in walked:
                    inner = [it for it in ast.walk(part) if isinstance(it, ast.Call | ast.Name)]
                    walked.update(map(id, inner))
                    waiting += ((it, model) for it in inner)
        return None

    def _is_unseen(self, model: Inst, name: str, place: ast.AST) -> bool:
        """Whether nothing is known of what a model has under a name, or an option of the program chooses it."""
        held = dict(self.program.fields(model)).get(name, ())
        chosen = all(full_name(value).startswith(OPTIONS) for value in held)
        return chosen and not self.program.methods(model, name, place)

    def _results(self, forward: ast.Call) -> Iterator[tuple[ast.expr, Inst]]:
        """What the forwards of a wrapped model return, with the model whose they are."""
        call = self.program.call(forward)
        for model in (it for callee in call.callees for it in self._models(callee)) if call else ():
            own = self.program.methods(model, "forward", forward) if isinstance(model, Inst) else ()
            for index in own:
                for node in self.program.body(self.program.scopes[index]):
                    if isinstance(node, ast.Return) and node.value is not None:
                        yield node.value, model  # type: ignore[misc]

    def _sources(self, name: ast.Name) -> Iterator[ast.expr]:
        """What a name is assigned, or taken from."""
        for definition in self.program.definitions(name):
            around = None if isinstance(definition, ast.arg) else self.program.generator_of(definition)
            if around is not None:
                yield around.iter
            elif not isinstance(definition, ast.arg):
                value = getattr(self.program.statement(definition), "value", None)
                yield from () if value is None else (value,)

    def _keywords(self, call: Call) -> frozenset[str]:
        """The keywords of all calls of the same name in the function."""
        return _keywords_given(self.program, self.program.scope(call.node)).get(
            ast.unparse(call.node.func), frozenset()
        )

    def _takes(self, model: object, call: Call, given: frozenset[str]) -> bool:
        """Whether a model's forward takes some keywords."""
        if not isinstance(model, Inst):
            return True
        for index in self.program.methods(model, "forward", call.node):
            taken = self.program.scopes[index].signature
            if taken.others is None and not given <= {it.arg for it in taken.named}:
                return False
        return True

    def _models(self, callee: object) -> Iterator[object]:
        """The models that a wrapped one is made of."""
        every = closure(self.context.inside(callee), self.context.inside)  # type: ignore[arg-type]
        yield from (value for value in every if not self.context.is_wrapped(frozenset([value])))

    def _handed(self, model: object, call: Call, frame: Frame) -> Iterator[Value]:
        """What a model hands out to one call, by each place of its forward that returns."""
        own = self.program.methods(model, "forward", call.node) if isinstance(model, Inst) else set()
        if not own:
            yield Kind.ROWS if is_layer(self.program, model) else Kind.OUTPUT
        for index in own:
            scope = self.program.scopes[index]
            given, literals = arguments(self, call, scope, True, frame)
            training = is_in_training_mode(self.context, call.node)
            yield from self._inside.returned(scope, given, literals, training)


class _Inside(Samples):
    """Follows the values of a forward, where all that it is given are a replica's own samples."""

    def returned(
        self, scope: Scope, given: dict[int, Value], literals: dict[int, object], training: bool | None
    ) -> Iterator[Value]:
        """What a forward returns to a call that gives it so much, in training mode or not."""
        key = scope.index, frozenset(given.items()), frozenset(literals.items()), training
        frame = self.frame(key, Frame(given, literals, training=training))
        for node in self.program.results(scope):
            if isinstance(node, ast.Return) and node.value is not None and may_run(self.context, node, frame):
                yield self._shape(node.value, frame)

    def _shape(self, node: ast.expr, frame: Frame) -> Value:
        """What an expression is as an output: a collection, a number, rows, or OUTPUT."""
        value = _known(self.of(node, frame))
        places = reaching_in(self.context, node, frame) if isinstance(node, ast.Name) else []
        statements = [self.program.statement(it) for it in places if not isinstance(it, ast.arg)]
        plain = all(isinstance(it, ast.Assign) and len(it.targets) == 1 for it in statements)
        sources = [it.value for it in statements] if statements and plain else [node]  # type: ignore[attr-defined]
        held = [self.program.values(source) for source in sources]
        lists = all(values and all(isinstance(it, Coll) for it in values) for values in held)
        return Every(value) if lists and value is Kind.OUTPUT else value

    def compute(self, node: ast.AST, frame: Frame) -> Value:
        """What may look at several samples is the replica's own all the same."""
        value = super().compute(node, frame)
        if value in (*AVERAGED, Kind.TOTAL):
            return Kind.OWN
        return Kind.OUTPUT if isinstance(value, Unclear) or value is Kind.HANDED else value

    def call(self, node: ast.Call, frame: Frame) -> Value:
        call = call_in(self, node, frame)
        if call is not None and losses.is_any_loss(self.context, call):
            how, _ = losses.reduction(self.context, call)
            return Kind.OWN if how in REDUCED else Kind.OUTPUT
        return super().call(node, frame)

    def layer(self, call: Call, frame: Frame) -> Value:
        layers = all(is_layer(self.program, callee) for callee in call.callees)
        return Kind.ROWS if layers else Kind.OUTPUT


@once
def _insides(context: Context) -> dict[frozenset[tuple[int, Value]], _Inside]:
    """Who follows the forwards, one for all who ask; by what is taken to be so, which may become more."""
    return {}


def modes_before(program: Program, node: ast.AST) -> Iterator[tuple[ast.Call, str, str]]:
    """The calls of ``train`` and ``eval`` above a place in its function, in order, with the model as it is written."""
    order = program.order
    place = order[id(node)]
    calls = (it for it in program.body(program.scope(node)) if isinstance(it, ast.Call))
    above = (it for it in calls if order.get(id(it), place) < place)
    for call in sorted(above, key=lambda it: order[id(it)]):
        match call.func:
            case ast.Attribute(value=model, attr="train" | "eval" as mode):
                yield call, ast.unparse(model), mode


@once
def is_in_training_mode(context: Context, call: ast.Call) -> bool | None:
    """Whether a model is in training mode where it is called; None if that is not known."""
    program, called = context.program, ast.unparse(call.func)
    above = [
        (node, mode) for node, model, mode in modes_before(program, call) if model == called and not node.args
    ]
    if not above:
        return None
    loop = next((it for it in program.ancestors(call) if isinstance(it, ast.For | ast.While)), None)
    if loop is not None and not any(it is loop for it in program.ancestors(above[-1][0])):
        # what the loop runs sets it anew before the next forward
        runs = context.runs(loop)
        for it in program.calls:
            if id(it.node) in runs and getattr(it.node.func, "attr", "") in SETS_MODE:
                return None
    return above[-1][1] == "train"


@once
def _keywords_given(program: Program, scope: Scope) -> dict[str, frozenset[str]]:
    """The keywords that the calls in a function give, by what they call."""
    found: dict[str, frozenset[str]] = {}
    for call in program.body(scope):
        if isinstance(call, ast.Call) and (given := {it.arg for it in call.keywords if it.arg is not None}):
            name = ast.unparse(call.func)
            found[name] = found.get(name, frozenset()) | given
    return found


def is_layer(program: Program, value: object, asked: frozenset[object] = frozenset()) -> bool:
    """Whether an object is a layer of torch.nn, or several in order, that hands out a row for each sample.

    ``asked``: those that it is part of.
    """
    if not isinstance(value, Made) or not value.name.startswith("torch.nn."):
        return False
    call = program.call(program.node(value.site))
    if value.name == SEQUENTIAL and call is not None and call.node.args:
        last = program.values(call.node.args[-1])
        behind = asked | {value}
        return bool(last) and all(is_layer(program, it, behind) for it in last if it not in asked)
    return layer_does(program, value) is not None


def _of_whole(given: ast.expr) -> Problem:
    """What to say of a tensor that each replica is given some rows of, though it is made of no batch."""
    return Problem(f"nn.DataParallel divides `{ast.unparse(given)}`, too, which is the same on all ranks", "")


def _known(value: Value) -> Value:
    """OUTPUT in the place of what is not known."""
    match value:
        case Held(entries=()):
            return Every(Kind.OUTPUT)
        case Held():
            return Held(tuple((key, _known(entry)) for key, entry in value.entries))
        case Every():
            return Every(_known(value.element))
    return value if value in (Kind.OWN, Kind.ROWS) else Kind.OUTPUT
