"""Evaluation loops whose batches can be dealt in turn, because what leaves them is put together from parts.

Each batch is then computed whole, on one process, so whatever is computed of one batch alone is right. What has to be
shown is that a loop does nothing but add up, collect and forget: sums that begin with 0, meters, lists with an entry
for each batch or sample. Where it does anything else, every process goes on evaluating everything.
"""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass, field

from dp2ddp.analyse.api.containers import APPENDS
from dp2ddp.analyse.api.tensors import CASTS_OR_MOVES, OF_NUMBERS, ZEROS
from dp2ddp.analyse.context import LOOPS, Context, root_name
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.definitions import right_side
from dp2ddp.analyse.dataflow.kinds import DEALT, Kind, Value
from dp2ddp.analyse.evaluation import meters
from dp2ddp.analyse.evaluation.divided import Divided
from dp2ddp.analyse.evaluation.evaluating import (
    EvaluationLoop,
    Surroundings,
    Whole,
    base_name,
    calls_of,
    is_dealt,
)
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.updates import updated
from dp2ddp.analyse.program.values import Inst
from dp2ddp.analyse.training.loops import BatchLoop
from dp2ddp.facts import SHARDED_ONLY, Effect, Evaluation, Obstacle
from dp2ddp.plan import place_beside

STATEMENTS = (ast.Assign, ast.AugAssign, ast.Expr, ast.If, ast.For, ast.With, ast.Pass)
STATEMENTS += (ast.Continue, ast.Assert)


@dataclass(frozen=True)
class _Kept:
    """What a loop leaves behind, under a name or as an attribute.

    ``kind``: "sum", "list", "meter" (an object with a sum and a count) or "object" (``sums`` are its attributes).
    ``uses``: identities of its uses in the loop.
    """

    kind: str
    uses: set[int] = field(default_factory=set)
    sums: frozenset[str] = frozenset()


def collect(context: Context, loops: list[BatchLoop], effects: tuple[Effect, ...]) -> Iterator[Evaluation]:
    """Every evaluation loop of a program that trains, and what it leaves; or why it must stay whole."""
    around = Surroundings(context, loops, effects)
    for loop in loops:
        if isinstance(loop.node, ast.For) and loop.loaders and not loop.trains and around.runs_model(loop):
            if any(is_dealt(context, node) for node in ast.walk(loop.node.iter)):
                continue
            yield _evaluation(around, loop)


def undivided(context: Context, loops: list[BatchLoop], found: tuple[Evaluation, ...]) -> set[int]:
    """The loaders from which only evaluations draw that are not divided, and that go through all of it."""
    whole = {it.after for it in found if it.whole and it.division is None}

    def stays(loop: BatchLoop) -> bool:
        if not isinstance(loop.node, ast.For) or context.program.anchor(loop.node) not in whole:
            return False
        inner = (it for part in loop.node.body for it in ast.walk(part))
        return not any(isinstance(it, ast.Break | ast.Return) for it in inner)

    sites = {site for loop in loops if stays(loop) for site in loop.loaders}
    return sites - {site for loop in loops if not stays(loop) for site in loop.loaders}


def obstacles(
    context: Context, loops: list[BatchLoop], effects: tuple[Effect, ...], found: tuple[Evaluation, ...]
) -> Iterator[Obstacle]:
    """The forwards that are on whole batches, though they are made for the part that a GPU has."""
    around = Surroundings(context, loops, effects)
    if around.by_count is None:
        return
    anchors = {it.after: it for it in found}
    divided = {after for after, it in anchors.items() if it.division is not None}
    here, seen = ast.unparse(around.by_count), set[int]()
    for loop in loops:
        seen |= loop.runs
        if loop.trains or not any(context.is_wrapped(it.callees) for it in calls_of(context, loop.runs)):
            continue
        if isinstance(loop.node, ast.stmt) and (at := context.program.anchor(loop.node)) in divided:
            continue
        whole = anchors.get(at) if isinstance(loop.node, ast.stmt) else None
        said = f": {whole.whole}" if whole is not None else ""
        yield context.obstacle(
            loop.source,
            f"`{here}` in the forward depends on the number of GPUs, and this evaluation can't be divided{said}",
            whole.cure if whole is not None else "",
            SHARDED_ONLY,
            cause=around.by_count,
        )
    for call in context.program.calls:
        if (
            context.is_wrapped(call.callees)
            and id(call.node) not in seen
            and context.runs_in_training(call.node)
        ):
            yield context.obstacle(
                call.node,
                f"`{here}` in the forward depends on the number of GPUs, and here it is given a whole batch",
                "make it depend on the number of samples that it is given",
                SHARDED_ONLY,
                cause=around.by_count,
            )


def _evaluation(around: Surroundings, loop: BatchLoop) -> Evaluation:
    try:
        return _InTurn(around, loop).fact()
    except Whole as whole:
        first = _said(around.context, whole, loop.node)
    after = around.program.anchor(loop.node)
    try:
        draw, division = Divided(around, loop).fact()
    except Whole as whole:
        # Either is enough: named is what a division of each batch needs, as that changes less.
        reason = _said(around.context, whole, loop.node)
        return Evaluation(**around.context.place(loop.source), after=after, whole=reason, cure=whole.cure)
    return Evaluation(**around.context.place(draw), after=after, whole=first, division=division)


def _said(context: Context, whole: Whole, loop: ast.AST) -> str:
    """A reason with its place: behind the code that is named first, else at its end."""
    where = "" if whole.node is loop else f" ({_place(context, whole.node, loop)})"
    begin, code, rest = re.match(r"([^`]*)(`[^`]*`)?(.*)", whole.reason, re.DOTALL).groups("")  # type: ignore[union-attr]
    return f"{begin}{code}{where}{rest}"


def _place(context: Context, node: ast.AST, loop: ast.AST) -> str:
    place = context.program.location(node)
    return place_beside(place.path, place.span.line, context.program.file(loop).path)


class _InTurn(EvaluationLoop):
    """One loop, looked at."""

    def __init__(self, around: Surroundings, loop: BatchLoop) -> None:
        super().__init__(around, loop)
        self.kept: dict[str, _Kept] = {}
        self._before, self._after = self._surroundings()

    def _surroundings(self) -> tuple[list[ast.stmt], ast.stmt]:
        """The statements right before the loop, and the one after which it is over: a ``with``, perhaps."""
        last: ast.stmt = self.node
        before: list[ast.stmt] = []
        while True:
            block = self.program.block(last)
            place = block.index(last)
            before = block[:place] + before
            around = self.program.parent(last)
            if not isinstance(around, ast.With) or place + 1 < len(block):
                break
            last = around
        outer = last
        while isinstance(around := self.program.parent(outer), ast.With):
            block = self.program.block(around)
            before = block[: block.index(around)] + before
            outer = around
        return before, last

    def fact(self) -> Evaluation:
        draw = self._draw()
        if (made := self.around.by_count) is not None:
            raise Whole(made, f"`{ast.unparse(made)}` in the forward depends on the number of GPUs")
        self._check_index()
        self._check_models()
        self._check_replicas()
        self._check_handlers()
        self._check_company()
        for statement in self.node.body:
            self._statement(statement)
        self._check_calls()
        for name in self.kept:
            self._check_begin(name)
        self._check_names()
        if not self.kept:
            raise Whole(self.node, "it sums up no result over the batches")
        lists = tuple(name for name, it in self.kept.items() if it.kind == "list")
        if lists and not isinstance(draw, ast.Name | ast.Attribute):
            raise Whole(draw, "its loader has no variable name")
        return Evaluation(
            **self.context.place(draw),
            after=self.program.anchor(self._after),
            sums=tuple(self._sums()),
            lists=lists,
        )

    def _sums(self) -> Iterator[str]:
        for name, kept in self.kept.items():
            if kept.kind in ("sum", "meter"):
                yield name
            elif kept.kind == "object":
                yield from (f"{name}.{attribute}" for attribute in sorted(kept.sums))

    # Where it draws, and what computes

    def _check_index(self) -> None:
        index = self._index()
        for use in self._uses(index.id) if isinstance(index, ast.Name) else ():
            if index in self.program.definitions(use):
                raise Whole(use, f"it uses the batch index `{index.id}`")
        if index is not None and not isinstance(index, ast.Name):
            raise Whole(self.node, "it uses the batch index")

    def _check_replicas(self) -> None:
        """No model hands out a number for each replica: of a batch that one process computes there is one."""
        for call in calls_of(self.context, self.loop.runs):
            if self.context.is_wrapped(call.callees) and kinds.holds(
                self.around.samples.of(call.node), Kind.OWN
            ):
                raise Whole(call.node, f"`{ast.unparse(call.node)}` returns one number per replica")
        for node in ast.walk(self.node):
            if isinstance(node, ast.Call) and self.around.samples.of(node) is Kind.EITHER:
                raise Whole(node, f"`{ast.unparse(node)}` may be the mean of one number per replica")

    # What it does

    def _statement(self, statement: ast.stmt) -> None:
        change = updated(statement)
        match statement:
            case ast.AugAssign(target=target):
                self._add(statement, target)
            case ast.Assign(targets=[ast.Name(id=name) as target]) if (
                change is not None and isinstance(change.op, ast.Add) and not self._is_own(name)
            ):
                self._keep(name, "sum", *filter(None, (target, change.read)))
            case ast.Assign(targets=targets):
                for target in targets:
                    self._store(target)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=holder, attr=method)) as call):
                root = root_name(holder)
                if root is None or not self._is_own(root.id):
                    self._collect(statement, call, holder, method)
            case ast.If() | ast.For() | ast.With():
                for inner in (*statement.body, *getattr(statement, "orelse", [])):
                    self._statement(inner)
            case _ if not isinstance(statement, STATEMENTS):
                raise Whole(statement, f"it contains `{ast.unparse(statement).splitlines()[0]}`")

    def _store(self, target: ast.expr) -> None:
        for part in ast.walk(target):
            if isinstance(part, ast.Attribute | ast.Subscript) and isinstance(part.ctx, ast.Store):
                base = base_name(part)
                if isinstance(part, ast.Attribute) or base is None or not self._is_own(base.id):
                    raise Whole(part, f"it assigns to `{ast.unparse(part)}`")
                self._check_made(base)

    def _add(self, statement: ast.AugAssign, target: ast.expr) -> None:
        base = base_name(target)
        if base is None:
            raise Whole(target, f"it assigns to `{ast.unparse(target)}`")
        if self._is_own(base.id):
            self._check_made(base)
            return
        if not isinstance(statement.op, ast.Add | ast.Sub):
            raise Whole(statement, f"it contains `{ast.unparse(statement)}`")
        if isinstance(target, ast.Name) and self._begins_as_list(target.id):
            self._check_regular(statement, samples=False)
            self._collect_rows(target, statement.value)
        self._keep(base.id, "list" if self._begins_as_list(base.id) else "sum", base)

    def _check_made(self, name: ast.Name) -> None:
        """What a name of the loop's own stands for was made in the loop, too: it is changed in place."""
        if self._is_older(name, set()):
            raise Whole(name, f"`{name.id}` may be set outside of the loop")

    def _collect(self, statement: ast.stmt, call: ast.Call, holder: ast.expr, method: str) -> None:
        """A method of something made before the loop: a list, a meter, or what changes nothing."""
        if isinstance(holder, ast.Name) and method in APPENDS and len(call.args) == 1:
            self._check_regular(statement, samples=method == "append")
            if method == "extend":
                self._collect_rows(holder, call.args[0])
            self._keep(holder.id, "list", holder)
        elif any(isinstance(value, Inst) for value in self.program.values(holder)):
            added = meters.added(self.context, self.program.values(holder), method)
            if added is None:
                raise Whole(call, f"`{ast.unparse(call.func)}` may do more than add up")
            if added.is_meter and isinstance(holder, ast.Name):
                self._keep(holder.id, "meter", holder, sums=added.sums)
            elif added.latest:
                raise Whole(call, f"`{ast.unparse(call.func)}` keeps a value of the last batch only")
            else:
                self._keep(ast.unparse(holder), "object", holder, sums=added.sums)
        else:
            self._check_discarded(call)

    def _keep(self, name: str, kind: str, *uses: ast.expr, sums: frozenset[str] = frozenset()) -> None:
        kept = self.kept.setdefault(name, _Kept(kind, sums=sums))
        if (kept.kind, kept.sums) != (kind, sums) or (kind == "list" and kept.uses):
            raise Whole(uses[0], f"`{name}` is filled in several ways")
        kept.uses.update(map(id, uses))

    def _check_regular(self, statement: ast.stmt, samples: bool = True) -> None:
        """An entry for each batch, or for each sample in a loop over these."""
        inner = 0
        around_it = list(self.program.ancestors(statement))
        for node in ast.walk(self.node):
            if isinstance(node, ast.Continue):
                skipped = next(it for it in self.program.ancestors(node) if isinstance(it, LOOPS))
                if any(it is skipped for it in around_it):
                    raise Whole(node, "a list does not get one entry per batch or sample")
        for around in around_it:
            if around is self.node:
                return
            if isinstance(around, ast.For) and samples and not inner:
                inner += 1
                if _is_each(self.around.samples.drawn(around.iter)):
                    continue
            if not isinstance(around, ast.With):
                break
        raise Whole(statement, "a list does not get one entry per batch or sample")

    def _collect_rows(self, node: ast.expr, value: ast.expr) -> None:
        """Elements that are as many as there are samples."""
        match value:
            case ast.Call(func=ast.Attribute(value=rows, attr="tolist" | "numpy"), args=[]):
                return self._collect_rows(node, rows)
            case ast.Call(func=ast.Name(id="list"), args=[rows]):
                return self._collect_rows(node, rows)
        if isinstance(value, ast.IfExp) or self.around.samples.of(value) not in DEALT:
            raise Whole(node, f"`{ast.unparse(value)}` may not have one entry per sample")

    def _check_calls(self) -> None:
        """Nothing that is called in the loop leaves anything behind."""
        forwards, updates = self.context.forwards, self._updates()
        entered = [self.program.scopes[index] for index in sorted(self.program.entered(self.node) | forwards)]
        for scope in entered:
            if scope.index not in updates:
                for node in self.program.body(scope):
                    self._check_function(scope, node, scope.index in forwards)
        header = {id(node) for node in ast.walk(self.node.iter)}
        for node in ast.walk(self.node):
            if id(node) not in header:
                self._check_node(node, in_forward=False)
        self._check_effects(node for node in self._run(entered) if id(node) not in header)
        self._check_objects([scope for scope in entered if scope.index not in updates])

    def _check_objects(self, entered: list[Scope]) -> None:
        """Nobody looks at what is added up in an object."""
        for name, kept in self.kept.items():
            if kept.kind == "object":
                for node in self._run(entered):
                    if isinstance(node, ast.Attribute) and (
                        node.attr in kept.sums or (ast.unparse(node) == name and id(node) not in kept.uses)
                    ):
                        raise Whole(node, f"`{ast.unparse(node)}` is read inside the loop")

    def _updates(self) -> set[int]:
        """The methods of meters and objects that add to these."""
        return {
            index
            for it in self.kept.values()
            if it.kind in ("meter", "object")
            for key in it.uses
            for index in self.program.called_scopes(
                self.program.parent(self.program.parent(self.program.nodes[key]))
            )
        }

    def _kept_uses(self) -> set[int]:
        return set().union(*(it.uses for it in self.kept.values()))

    # What it leaves

    def _check_begin(self, name: str) -> None:
        """It begins with nothing, right before the loop."""
        kept = self.kept[name]
        uses = [self.program.nodes[key] for key in kept.uses]
        reset = self._reset(name, kept) if kept.kind == "object" else None
        if reset is not None:
            if meters.begins(self.context, self.program.values(uses[0]), kept.sums, self._is_zero, reset):
                return
        scope = self.program.scope(self.node)
        for node in () if scope.is_module else ast.walk(scope.node):
            if isinstance(node, ast.Global | ast.Nonlocal) and name in node.names:
                raise Whole(node, f"`{name}` may be read elsewhere, too")
        begins = {it for use in uses for it in self.program.definitions(use)}
        begins = {it for it in begins if id(it) not in self.inside}
        values = [self._begin(it) for it in begins]
        if not begins or not all(value is not None and self._is_nothing(kept, value) for value in values):
            raise Whole(uses[0], f"`{name}` may not be empty or zero before the loop")
        earlier = {id(it) for statement in self._before for it in ast.walk(statement)}
        for use in self._uses(name):
            if id(use) in earlier and begins & set(self.program.definitions(use)):
                raise Whole(use, f"`{name}` is used between its initialization and the loop")

    def _reset(self, name: str, kept: _Kept) -> str | None:
        """The method that was called last of an object before the loop."""
        for statement in reversed(self._before):
            match statement:
                case ast.Expr(value=ast.Call(func=ast.Attribute(value=holder, attr=method), args=[])) if (
                    ast.unparse(holder) == name
                ):
                    return method
            if any(ast.unparse(it) == name for it in ast.walk(statement) if isinstance(it, ast.expr)):
                return None
        return None

    def _begun(self, name: str) -> set[ast.AST]:
        return {
            it for key in self.kept[name].uses for it in self.program.definitions(self.program.nodes[key])
        }

    def _begin(self, definition: ast.AST) -> ast.expr | None:
        if isinstance(definition, ast.arg) or id(definition) not in self.program.order:
            return None
        statement = self.program.statement(definition)
        if statement not in self._before or not isinstance(statement, ast.Assign):
            return None
        if len(statement.targets) > 1 and not isinstance(statement.value, ast.Constant):
            return None  # one list or tensor of two names
        return right_side(statement, definition)

    def _begins_as_list(self, name: str) -> bool:
        for statement in reversed(self._before):
            if isinstance(statement, ast.Assign):
                for target in ast.walk(statement):
                    if (
                        isinstance(target, ast.Name)
                        and isinstance(target.ctx, ast.Store)
                        and target.id == name
                    ):
                        value = self._begin(target)
                        return isinstance(value, ast.List) and not value.elts
        return False

    def _is_nothing(self, kept: _Kept, value: ast.expr) -> bool:
        if kept.kind == "list":
            return isinstance(value, ast.List) and not value.elts
        if kept.kind in ("meter", "object"):
            return isinstance(value, ast.Call) and meters.begins(
                self.context, self.program.values(value), kept.sums, self._is_zero
            )
        added = (self.program.nodes[key] for key in kept.uses)
        if isinstance(
            value, ast.List | ast.ListComp | ast.BinOp
        ):  # what is added to a list is put to its end
            return self._is_zero(value) and all(
                isinstance(self.program.parent(it), ast.Subscript) for it in added
            )
        return self._is_zero(value)

    def _is_zero(self, value: ast.expr) -> bool:
        match value:
            case ast.Constant(value=number):
                return number == 0 and not isinstance(number, bool | str)
            case ast.ListComp(elt=element) | ast.GeneratorExp(elt=element):
                return self._is_zero(element)
            case ast.DictComp(value=element):
                return self._is_zero(element)
            case ast.List(elts=elements) | ast.Dict(values=elements):
                return bool(elements) and all(map(self._is_zero, elements))
            case ast.BinOp(left=ast.List() as inner, op=ast.Mult()):
                return self._is_zero(inner)
            case ast.Call(func=ast.Attribute(value=inner, attr=method)) if method in CASTS_OR_MOVES:
                return self._is_zero(inner)
            case ast.Call(func=ast.Name(id="list"), args=[inner]):
                return self._is_zero(inner)
            case ast.Call():
                call = self.program.call(value)
                if call is None or not call.names or not call.names <= ZEROS:
                    return False
                types = [ast.unparse(it.value) for it in value.keywords if it.arg == "dtype"]
                if any("bool" in it or "object" in it for it in types):  # which add otherwise
                    return False
                filled = {name.rpartition(".")[-1] for name in call.names} <= OF_NUMBERS
                return not filled or (bool(value.args) and self._is_zero(value.args[0]))
        return False

    def _check_names(self) -> None:
        """Of what it assigns, nothing else is looked at by another batch, or after the loop."""
        allowed = self._kept_uses()
        names = {node.id for node in ast.walk(self.node) if isinstance(node, ast.Name)}
        for name in sorted(names & (self._own | self.kept.keys())):
            for use in self._uses(name):
                defined = [it for it in self._reaching(use) if id(it) in self.inside]
                if id(use) in allowed:
                    continue
                if name in self.kept:
                    if id(use) in self.inside or id(use) in self.loop.runs:
                        raise Whole(use, f"`{name}` is read inside the loop")
                    if self.kept[name].kind == "meter":
                        self._check_meter(name, use)
                elif defined and id(use) not in self.inside:
                    raise Whole(use, f"`{name}` of the last batch is used after the loop")
                elif id(use) in self.inside and self._is_carried(use, defined):
                    raise Whole(use, f"`{name}` may not come from this batch")

    def _check_meter(self, name: str, use: ast.Name) -> None:
        """After the loop only a meter's sums are asked for, and its average."""
        around, sums = self.program.parent(use), self.kept[name].sums
        match around:
            case ast.Attribute(attr=attribute) if self._is_of_sums(use, attribute, sums):
                return
            case ast.keyword(arg=str(key)):
                call = self.program.parent(around)
                match call:
                    case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(template)), attr="format")):
                        fields = [it[1] for it in string.Formatter().parse(template) if it[1]]
                        asked = [it.split(".") for it in fields if it.split(".")[0].split("[")[0] == key]
                        if all(len(it) == 2 and self._is_of_sums(use, it[1], sums) for it in asked):
                            return
        if any(it in self.program.definitions(use) for it in self._begun(name)):
            raise Whole(use, f"`{name}` may be used for more than sums and averages")

    def _is_of_sums(self, meter: ast.Name, attribute: str, sums: frozenset[str]) -> bool:
        return meters.is_of_sums(self.context, self.program.values(meter), attribute, sums)


def _is_each(drawn: Value) -> bool:
    """Whether a loop has a round for each sample."""
    match drawn:
        case kinds.Held(entries=entries):
            found = [entry for _, entry in entries]
            fine = (Kind.EACH, Kind.BATCH, Kind.OUTPUT, Kind.SAME)
            return Kind.EACH in found and all(it in fine for it in found)
    return drawn is Kind.EACH
