"""Batches of a loader that the program works on as a whole before its models get them: mixup, CutMix, noise for all.

What mixes the samples of a batch, or draws numbers for all of it, can't be done to a rank's part. But it can be done to
the whole batch by every rank alike, as in the original, and a rank's part be taken where a model is given what comes of
it, or where that meets what a model made of such a part. The program is then looked at as if a DataLoader handed it
out there, as with batches that the program makes itself (``own_batches``).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from dp2ddp.analyse.api import operations
from dp2ddp.analyse.api.iteration import COUNTERS, HANDS_OUT, RANGES
from dp2ddp.analyse.api.numbers import NUMBER_HOMES, PASSES_NUMBER_ON
from dp2ddp.analyse.api.operations import Does
from dp2ddp.analyse.api.randomness import DRAWS
from dp2ddp.analyse.api.tensors import DESCRIBES, FILLS, GIVES_NUMBERS, NO_NUMBERS, OF_GRADIENTS, VARIABLE
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.dataflow.samples.sizes import counted
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.sources import How
from dp2ddp.analyse.program.values import Inst, Made
from dp2ddp.analyse.training import padding
from dp2ddp.analyse.training.loops import BatchLoop, evaluates_too, own_batch
from dp2ddp.analyse.training.metrics import is_report
from dp2ddp.analyse.training.own_batches import Site, Sites, entered, given_to, only_trains
from dp2ddp.facts import OwnBatch

DEPTH = 40
KEEPS_ROWS = {Does.NUMBERS, Does.HANDS_ON, Does.SAMPLES, Does.MOVES}
"""What has a row for each sample where it is made of something that has."""
PLAIN = {Does.MEAN, Does.TOTAL, Does.TELLS, Does.SHAPE, Does.COUNTS}
"""What is one number for all samples, or has nothing to do with them."""


class Of(Enum):
    """What an expression is made of, within a round of the training."""

    NOTHING = "nothing of a batch, or one number for all of it"
    BATCH = "a whole batch, with a row for each sample"
    UNCLEAR = "a whole batch, in what way is not known"
    PART = "what a model makes of a rank's part"


class Unknown(Exception):
    """What is made of a batch can't be followed."""


def find(context: Context, loops: Iterable[BatchLoop]) -> tuple[list[Site], list[ast.expr]]:
    """Where a rank's part can be taken of what the training makes of its loaders' batches, and what hands these out.

    Nothing where that can't be told for all of the training.
    """
    training = [it for it in loops if it.trains]
    if not training or not all(isinstance(it.node, ast.For | ast.While) for it in training):
        return [], []
    if any(own_batch(it.source) is not None for it in training if it.pulls is not None):
        return [], []
    if any(evaluates_too(context, it) for it in training):
        return [], []
    nodes = [it.node for it in training]
    if any(context.program.is_inside(one, other) for one in nodes for other in nodes if one is not other):
        return [], []
    try:
        sites = _Preparing(context, training).sites()
    except Unknown:
        return [], []
    draws = {id(draw): draw for it in training for draw in it.draws or (it.source,)}
    return sites, [*draws.values()] if sites else []


@dataclass
class _Preparing:
    """What the rounds of the training make of whole batches."""

    context: Context
    loops: list[BatchLoop]
    _known: dict[int, Of] = field(default_factory=dict)
    _open: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.runs = frozenset[int]().union(
            *(self.context.runs(part) for it in self.loops for part in it.node.body)  # type: ignore[attr-defined]
        )
        self.pulls = {id(it.pulls) for it in self.loops if it.pulls is not None}
        calls = (self.context.loader_call(it) for loop in self.loops for it in loop.loaders)
        given = (it.argument("batch_size", 1) for it in calls if it is not None)
        self.sizes = {ast.unparse(it) for it in given if it is not None}

    def sites(self) -> list[Site]:
        program = self.context.program
        met: dict[int, ast.expr] = {}
        around = (program.body(program.scope(it.node)) for it in self.loops)
        after_loop = {id(it) for body in around for it in body} - self.runs
        for node in program.in_order(self.runs | after_loop):
            if isinstance(node, ast.expr | ast.AugAssign) and not self._is_listed(node):
                found_here = {id(it): it for it in self._met(node)}
                if found_here and id(node) in after_loop:
                    raise Unknown  # what the last round leaves is used after the loop
                met |= found_here
        found: Sites = {}
        named = {id(self._named(it)) for it in met.values()}
        taken: dict[tuple[int, bool], tuple[ast.stmt, list[str]]] = {}
        in_rows = all(padding.hands_rows(self.context, it) for loop in self.loops for it in loop.loaders)
        for node in met.values():
            made = self._where_made(node, named)
            if isinstance(made, ast.expr):
                found[id(made)] = Site(made, OwnBatch(is_loop=False, in_rows=in_rows))
            else:
                beside, after = made
                names = taken.setdefault((id(beside), after), (beside, []))[1]
                name: str = self._named(node).id  # type: ignore[attr-defined]
                names += [name] if name not in names else []
        sites = list(found.values())
        for (_, after), (beside, names) in taken.items():
            order = [it.id for it in ast.walk(beside) if isinstance(it, ast.Name)]
            names.sort(key=lambda it: (order.index(it) if it in order else len(order), it))
            kind = OwnBatch(False, is_structure=len(names) > 1, names=(*names,), after=after, in_rows=in_rows)
            sites.append(Site(beside, kind))
        for site in sites:
            if self.context.is_of_module(program.scope(site.node)):  # other programs may run it otherwise
                raise Unknown
            if not only_trains(self.context, [it.node for it in self.loops], self.runs, site.node):
                raise Unknown
        return sites

    def _met(self, node: ast.expr | ast.AugAssign) -> Iterator[ast.expr]:
        """The whole batches that a model is given here, or that are brought together with a part."""
        gives = False
        if isinstance(node, ast.AugAssign):
            held, added = self._of(node.target), self._of(node.value)
            if added is Of.PART and held in (Of.BATCH, Of.UNCLEAR):
                raise Unknown  # it would have to be cut before
            if held is Of.PART and added in (Of.BATCH, Of.UNCLEAR):
                yield node.value
            return
        if isinstance(node, ast.Call):
            call = self.context.program.call(node)
            given = self._given(node)
            gives = call is not None and self._runs_model(call)
        elif isinstance(
            node, ast.BinOp | ast.Compare | ast.BoolOp | ast.Dict | ast.List | ast.IfExp | ast.Subscript
        ):
            given = [it for it in ast.iter_child_nodes(node) if isinstance(it, ast.expr)]
        elif isinstance(node, ast.Tuple) and not self._is_unpacked(node):
            given = node.elts
        else:
            return
        made = {id(it): self._of(it) for it in given}
        meets = Of.PART in made.values()
        for it in given if gives or meets else ():
            of = made[id(it)]
            if of is Of.UNCLEAR and not gives or of is Of.BATCH and isinstance(node, ast.Subscript):
                raise Unknown
            if of in (Of.BATCH, Of.UNCLEAR) or meets and of is Of.NOTHING and self._is_filled_before(it):
                yield it

    def _is_listed(self, node: ast.expr) -> bool:
        """Whether what meets in an expression is only shown or written side by side: nothing is made of both."""
        around: ast.AST | None = node
        while True:
            match around:
                case ast.Call() if is_report(self.context, around):
                    return True
                case ast.Call(func=ast.Attribute(attr="format")):
                    pass
                case ast.BinOp(op=ast.Mod(), left=ast.Constant(value=str()) | ast.JoinedStr()):
                    pass
                case ast.Tuple() | ast.List() | ast.Dict() | ast.keyword() | ast.Starred():
                    pass
                case ast.JoinedStr() | ast.FormattedValue():
                    pass
                case _:
                    return False
            around = self.context.program.parent(around)

    def _is_filled_before(self, node: ast.expr) -> bool:
        """Whether a tensor with a row for each sample of a batch was made once, before the loop."""
        for name in (it for it in ast.walk(node) if isinstance(it, ast.Name)):
            for definition in self.context.program.definitions(name):
                value = (
                    None if isinstance(definition, ast.arg) else self.context.program.source(definition).plain
                )
                if isinstance(value, ast.Call) and id(definition) not in self.runs:
                    if self._of(value) is Of.BATCH:
                        return True
        return False

    def _is_unpacked(self, node: ast.Tuple) -> bool:
        around = self.context.program.parent(node)
        if isinstance(node.ctx, ast.Store | ast.Del) or isinstance(around, ast.Subscript):
            return True
        return isinstance(around, ast.Assign) and any(isinstance(it, ast.Tuple) for it in around.targets)

    def _given(self, node: ast.Call) -> list[ast.expr]:
        """What a call is given, the object of its method included."""
        own, given = given_to(self.context, node)
        return [*own, *given]

    def _runs_model(self, call: Call) -> bool:
        """Whether a call runs a module: a wrapped one, or any other."""
        objects = (it for it in call.callees if isinstance(it, Inst | Made))
        return self.context.is_wrapped(call.callees) or any(map(self.context.module_class, objects))

    def _named(self, node: ast.expr) -> ast.expr:
        """The name of a batch that an expression has the rows of: of ``y.data`` and ``y.float()``, ``y``."""
        while self._of(node) is Of.BATCH:
            match node:
                case ast.Attribute(value=inner) | ast.Call(func=ast.Attribute(value=inner)):
                    if self._of(inner) is not Of.BATCH:
                        break
                    node = inner
                case _:
                    break
        return node

    def _where_made(self, node: ast.expr, named: set[int]) -> ast.expr | tuple[ast.stmt, bool]:
        """Where a part is taken for a model: where a name gets its value, if nothing else needs all of that.

        That is the value itself, or a statement, and whether the part is taken after it. Else it is the expression.
        ``named``: the names of all of which a part is taken.
        """
        program = self.context.program
        name = self._named(node)
        definitions = program.definitions(name) if isinstance(name, ast.Name) else []
        if len(definitions) != 1 or self._definition(definitions[0]) is not Of.BATCH:
            return node
        (definition,) = definitions
        uses = (
            it
            for it in program.body(program.scope(name))
            if isinstance(it, ast.Name) and it.id == name.id and isinstance(it.ctx, ast.Load)  # type: ignore[attr-defined]
        )
        for use in uses:
            made = program.definitions(use)
            if definition in made and not (
                made == definitions and (id(use) in named or self._is_asked_for_size(use))
            ):
                return node
        source = program.source(definition)
        for loop in self.loops:
            if source.how is How.ELEMENT and source.value is loop.source:
                return loop.node.body[0], False  # type: ignore[attr-defined]
        if id(definition) not in self.runs or source.how is not How.ASSIGNED:
            return node
        if source.plain is not None:
            return source.plain
        statement = program.statement(definition)
        return (statement, True) if isinstance(statement, ast.Assign) else node

    def _is_asked_for_size(self, use: ast.Name) -> bool:
        match self.context.program.parent(use):
            case ast.Attribute(attr="shape" | "size"):
                return True
            case ast.Call(func=ast.Name(id="len")):
                return True
        return False

    # What expressions are made of

    def _of(self, node: ast.AST) -> Of:
        if id(node) in self._known:
            return self._known[id(node)]
        if id(node) in self._open:
            return Of.NOTHING  # what it was made of before is seen elsewhere
        if len(self._open) > DEPTH:
            raise Unknown
        self._open.add(id(node))
        self._known[id(node)] = found = self._computed(node)
        self._open.remove(id(node))
        return found

    def _any(self, nodes: Iterable[ast.AST]) -> Of:
        return _more(map(self._of, nodes))

    def _computed(self, node: ast.AST) -> Of:
        match node:
            case ast.Constant() | ast.Lambda():
                return Of.NOTHING
            case ast.Name():
                return self._defined(node)
            case ast.Attribute(attr=name) if name in DESCRIBES | NO_NUMBERS:
                return Of.NOTHING
            case ast.Attribute(value=value, attr=attribute):
                if attribute in OF_GRADIENTS and self._of(value) in (Of.BATCH, Of.UNCLEAR):
                    raise Unknown
                return self._defined(node) if self.context.program.definitions(node) else self._of(value)
            case ast.Call():
                return self._call(node)
            case ast.Subscript(value=value, slice=index):
                held, by = self._of(value), self._of(index)
                if held is Of.BATCH and isinstance(index, ast.Slice):
                    return Of.UNCLEAR  # some of the samples
                return held if held is not Of.NOTHING else by
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                return self._any([*(it.iter for it in node.generators), node.elt])
            case ast.DictComp():
                return self._any([*(it.iter for it in node.generators), node.key, node.value])
            case ast.Yield() | ast.YieldFrom() | ast.Await():
                raise Unknown
        return self._any(it for it in ast.iter_child_nodes(node) if isinstance(it, ast.expr))

    def _defined(self, node: ast.Name | ast.Attribute) -> Of:
        added, made = list[Of](), list[Of]()
        for definition in self.context.program.definitions(node):
            is_added = self.context.program.source(definition).how is How.AUGMENTED
            (added if is_added else made).append(self._definition(definition))
        return _more([_either(made), *added])  # an augmented assignment keeps what was there

    def _definition(self, definition: ast.AST) -> Of:
        program = self.context.program
        if isinstance(definition, ast.arg):
            return self._parameter(definition)
        source = program.source(definition)
        for loop in self.loops:
            if source.how is How.ELEMENT and source.value is loop.source:
                return Of.BATCH if self._is_batch(loop.source, source.place) else Of.NOTHING
        if id(definition) not in self.runs or source.value is None:
            return Of.NOTHING
        value, left = source.written
        match source.how:
            case How.ASSIGNED if left and isinstance(value, ast.Call):
                return self._returned(value, left)
            case How.ASSIGNED | How.AUGMENTED:
                return self._of(value)  # type: ignore[arg-type]
            case How.ELEMENT:
                return self._element(source.value, source.place)
        return Of.NOTHING

    def _is_batch(self, source: ast.expr, place: tuple[int | None, ...]) -> bool:
        """Whether a place of what a loop over loaders hands out is of a batch, and no count of the rounds."""
        call = self.context.program.call(source) if isinstance(source, ast.Call) else None
        names = call.names if call is not None else frozenset()
        if call is None or not names or not names <= HANDS_OUT or not call.node.args:
            return True
        if "builtins.enumerate" in names:
            return bool(place and place[0]) and self._is_batch(call.node.args[0], place[1:])
        if "builtins.zip" in names and len(call.node.args) > 1:
            known = place and place[0] is not None and place[0] < len(call.node.args)
            return not known or self._is_batch(call.node.args[place[0]], place[1:])  # type: ignore[index]
        return self._is_batch(call.node.args[0], place)

    def _element(self, source: ast.expr, place: tuple[int | None, ...]) -> Of:
        call = self.context.program.call(source) if isinstance(source, ast.Call) else None
        names = call.names if call is not None else frozenset()
        if names & (RANGES | COUNTERS):
            return Of.NOTHING
        if "builtins.enumerate" in names and call is not None and call.node.args:
            return self._element(call.node.args[0], place[1:]) if place and place[0] else Of.NOTHING
        found = self._of(source)
        return Of.UNCLEAR if found is Of.BATCH else found

    def _parameter(self, parameter: ast.arg) -> Of:
        program = self.context.program
        scope = program.scope(parameter)
        if not scope.body or id(scope.body[0]) not in self.runs:
            return Of.NOTHING
        if scope.owner is not None and parameter in scope.signature.places[:1]:
            return Of.NOTHING
        found = set()
        for given in program.given(parameter):
            if id(given) in self.runs:
                around = program.parent(given)
                call = around if isinstance(around, ast.Call) else program.parent(around)  # type: ignore[arg-type]
                of = self._of(given)
                if (
                    isinstance(call, ast.Call)
                    and of is not Of.NOTHING
                    and self._any(self._given(call)) is Of.PART
                ):
                    of = Of.PART  # taken there
                found.add(of)
        return _either(found)

    # Calls

    def _call(self, node: ast.Call) -> Of:
        if id(node) in self.pulls:
            return Of.BATCH
        call = self.context.program.call(node)
        of = self._any(self._given(node))
        if call is None:
            return Of.UNCLEAR if of is Of.BATCH else of
        if any(it.startswith("torch.autograd.") for it in call.names - {VARIABLE}) and of is not Of.NOTHING:
            if any(self._of(it) in (Of.BATCH, Of.UNCLEAR) for it in self._given(node)):
                raise Unknown
        if self._runs_model(call):
            return Of.NOTHING if of is Of.NOTHING else Of.PART
        if of is Of.PART:
            return of
        if entered(self.context, call):
            return self._returned(node, ())
        return self._outside(call, of)

    def _outside(self, call: Call, of: Of) -> Of:
        """What code outside of the project makes of whole batches."""
        names, node = call.names, call.node
        if names and all(it in FILLS or it.startswith(DRAWS) for it in names) and of is Of.NOTHING:
            sizes = [it for given in handed(node) for it in (getattr(given, "elts", None) or [given])[:1]]
            return Of.BATCH if any(map(self._is_size, sizes)) else Of.NOTHING
        if of is Of.NOTHING:
            return of
        if names and all(
            it in PASSES_NUMBER_ON or it.startswith((*NUMBER_HOMES, "builtins.")) for it in names
        ):
            return Of.NOTHING
        if names == {VARIABLE}:
            return of
        method = node.func.attr if isinstance(node.func, ast.Attribute) and not names else ""
        if method in GIVES_NUMBERS:
            return Of.NOTHING
        rows = [operations.method(method)] if method else [operations.operation(it) for it in names]
        if not rows or None in rows:
            return Of.UNCLEAR
        asked = operations.Arguments(
            tuple(node.args if method else node.args[1:]), {it.arg: it.value for it in node.keywords}
        )
        does = {it.does(asked) for it in rows if it is not None}
        if does <= KEEPS_ROWS or does == {Does.FILLS}:
            return of
        return Of.NOTHING if does <= PLAIN else Of.UNCLEAR

    def _is_size(self, node: ast.expr) -> bool:
        """Whether an expression is the number of samples of a batch."""
        if ast.unparse(node) in self.sizes:
            return True
        if isinstance(node, ast.Name):
            definitions = self.context.program.definitions(node)
            values = [self.context.program.source(it).value for it in definitions]
            return bool(values) and all(it is not None and self._is_size(it) for it in values)
        rows = counted(node)
        return rows is not None and self._of(rows) is Of.BATCH

    def _returned(self, node: ast.Call, place: tuple[int | None, ...]) -> Of:
        """What a function of the project returns, at a place of that."""
        call = self.context.program.call(node)
        scopes = entered(self.context, call)
        if not scopes or self._any(self._given(node)) is Of.PART:
            return self._of(node)
        found = set()
        for scope in scopes:
            for result in self.context.program.results(scope):
                if not isinstance(result, ast.Return):
                    raise Unknown
                value, left = result.value, list(place)
                while left and isinstance(value, ast.Tuple | ast.List) and left[0] is not None:
                    value = value.elts[left.pop(0)] if left[0] < len(value.elts) else None
                if value is not None:
                    found.add(self._of(value))
        found -= {Of.NOTHING}
        return Of.UNCLEAR if len(found) > 1 else next(iter(found), Of.NOTHING)


def _more(made: Iterable[Of]) -> Of:
    """What is made of several things together."""
    found = {*made}
    return next((it for it in (Of.PART, Of.UNCLEAR, Of.BATCH) if it in found), Of.NOTHING)


def _either(made: Iterable[Of]) -> Of:
    """What something is made of that is one thing or another; a part and a whole batch can't be told apart later."""
    found = {*made} - {Of.NOTHING}
    if Of.PART in found and len(found) > 1:
        raise Unknown
    return Of.UNCLEAR if len(found) > 1 else next(iter(found), Of.NOTHING)
