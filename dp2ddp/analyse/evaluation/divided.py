"""Evaluation loops that look at more than they add up: each batch is divided, and made whole again behind the model.

They report in between, look at the number of the batch, keep something for the next. Behind the model's call every
process has the outputs of the whole batch, and all else that is looked at there, so those lines are right as they are.
What has to be shown concerns the lines before it: they treat every sample by itself, and leave nothing behind.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from dp2ddp.analyse.api.containers import CHANGES
from dp2ddp.analyse.api.purity import ARRAYS
from dp2ddp.analyse.api.tensors import (
    BY_NUMBER_OF_ROWS,
    KEEPS_ROWS,
    LEAVES_TORCH,
    MOVES_ONE_DIMENSION,
    OF_TENSORS,
    RESHAPES_IN_PLACE,
)
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.definitions import is_fixed, right_side
from dp2ddp.analyse.dataflow.kinds import DEALT, PLAIN, Kind, Value
from dp2ddp.analyse.dataflow.samples.writes.looks import looks_in
from dp2ddp.analyse.evaluation.evaluating import EvaluationLoop, Surroundings, Whole, base_name, draws_always
from dp2ddp.analyse.program.calls import handed
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.training import loaders, padding
from dp2ddp.analyse.training.loops import BatchLoop
from dp2ddp.facts import Division

OF_BATCHES = (*kinds.BY_SAMPLE, Kind.EACH, Kind.PICKED, Kind.PLACES, Kind.COUNT, Kind.SHAPE)
SIMPLE = (ast.Assign, ast.AugAssign, ast.Expr)


@dataclass(frozen=True)
class _Forward:
    """The model's call, its statement, and the statements of the loop that come before that, with the headers."""

    call: ast.Call
    statement: ast.stmt
    before: tuple[ast.stmt | ast.expr, ...]

    @property
    def given(self) -> list[ast.expr]:
        """What the model is given, also what is spread over its parameters."""
        return [it.value if isinstance(it, ast.Starred) else it for it in handed(self.call)]


class Divided(EvaluationLoop):
    """One loop, looked at."""

    def __init__(self, around: Surroundings, loop: BatchLoop) -> None:
        super().__init__(around, loop)
        self._loads_whole = False  # whether its batches are put together of all their samples
        self._dealt = self._of_batch()
        self._places: set[ast.AST] = {
            it for it in ast.walk(self.node.target) if isinstance(it, ast.Name) and it.id in self._dealt
        }

    def _of_batch(self) -> set[str]:
        """The names that the loop gives the batch."""
        index = self._index()
        names = {it.id for it in ast.walk(self.node.target) if isinstance(it, ast.Name)}
        return names - ({it.id for it in ast.walk(index) if isinstance(it, ast.Name)} if index else set())

    def fact(self) -> tuple[ast.expr, Division]:
        """The loader that the loop draws from, and how its batches are divided."""
        draw = self._draw()
        self._check_loader(draw)
        self._check_models()
        if self.around.by_count is None:  # else its forwards meet in every form
            self._check_handlers()
        self._check_company()
        forward = self._forward()
        self._check_target()
        for part in forward.before:
            self._check_before(part)
        self._check_forward(forward)
        self._check_functions(forward)
        self._check_elsewhere(forward)
        self._check_leaving()
        return draw, self._division(forward)

    def _check_loader(self, draw: ast.expr) -> None:
        """Its batches have several samples, and an entry for each of them."""
        for made in self.program.values(draw):
            loader = self.program.call(self.program.node(made.site)) if self.context.is_loader(made) else None  # type: ignore[union-attr]
            if loader is None:
                raise Whole(draw, f"it is unclear which DataLoader `{ast.unparse(draw)}` is")
            call = self.context.loader_arguments(loader)
            if loaders.hides_arguments(self.context, call):
                raise Whole(call.node, "its batch size comes from a dict that can't be analysed")
            sizes, sampler = (
                loaders.given_for(self.context, call, name) for name in ("batch_size", "batch_sampler")
            )
            if not sampler and (not sizes or any(ast.unparse(it) in ("1", "None") for it in sizes)):
                raise Whole(call.node, "a batch of 1 can't be divided")
            own = [it for it in loaders.collates(self.context, loader) if ast.unparse(it) != "None"]
            if own and not padding.hands_rows(self.context, id(loader.node)):
                raise Whole(
                    own[0], f"batches made by `{ast.unparse(own[0])}` may not be divisible by samples"
                )
            self._loads_whole |= padding.needs_whole(self.context, loader) is not None

    def _check_target(self) -> None:
        """The batch is given to names, which nothing but the function looks at."""
        for node in ast.walk(self.node.target):
            if isinstance(node, ast.Attribute | ast.Subscript):
                raise Whole(node, f"`{ast.unparse(node)}` may be read elsewhere, too")

    # The model's call

    def _forward(self) -> _Forward:
        before: list[ast.stmt | ast.expr] = []
        block = self.node.body
        while block:
            statement, *block = block
            if not self._runs_model(statement):
                before.append(statement)
            elif isinstance(statement, ast.With):
                before += [item.context_expr for item in statement.items]
                block = statement.body
            else:
                return _Forward(self._called(statement), statement, tuple(before))
        raise Whole(self.node, "the model is called in the `for` line")

    def _runs_model(self, node: ast.AST) -> bool:
        run = (self.program.nodes.get(key) for key in self.context.runs(node))
        return any(self._is_forward(it) for it in run if isinstance(it, ast.Call))

    def _is_forward(self, node: ast.Call) -> bool:
        call = self.program.call(node)
        return call is not None and bool(self._modules(call.callees))

    def _is_divisible(self, node: ast.Call) -> bool:
        """Whether a call is one of the wrapped model, or of a module that has it inside and returns rows."""
        call = self.program.call(node)
        if call is None or self.context.is_wrapped(call.callees):
            return call is not None
        modules = bool(call.callees) and all(map(self.context.module_class, call.callees))
        return modules and not self._is_forward(node) and self._rows(node) in DEALT

    def _called(self, statement: ast.stmt) -> ast.Call:
        """The call of the model in a statement, the outermost, which every process makes."""
        if not isinstance(statement, SIMPLE):
            if isinstance(statement, ast.For | ast.While):
                raise Whole(statement, "the model is called in an inner loop")
            raise Whole(statement, "the model is called under a condition")
        calls = [it for it in ast.walk(statement) if isinstance(it, ast.Call) and self._is_forward(it)]
        calls = calls or [
            it for it in ast.walk(statement) if isinstance(it, ast.Call) and self._runs_model(it)
        ]
        inner = [it for call in calls for it in ast.walk(call) if it is not call]
        outer = [it for it in calls if it not in inner]
        if len(outer) > 1:
            raise Whole(statement, "the model is called several times in one statement")
        if not outer or not all(map(self._is_divisible, calls)):
            raise Whole(statement, "the model is called inside a function")
        for around in self.program.ancestors(outer[0]):
            if around is statement:
                break
            if isinstance(around, ast.BoolOp | ast.IfExp | ast.Lambda | ast.comprehension | ast.ListComp):
                raise Whole(statement, "the model may not be called exactly once per batch")
        effects = [effect for _, effect in self.around.effects]
        if any(effect.covers(self.program.anchor(outer[0])) for effect in effects):
            raise Whole(statement, "only rank 0 calls the model")
        return outer[0]

    # The lines before it

    def _check_before(self, part: ast.stmt | ast.expr) -> None:
        """A part of the batch is made other rows, under names of the loop's own; all else has nothing to do with it."""
        match part:
            case ast.If(test=test) | ast.While(test=test):
                self._check_apart(test)
                inner: Iterable[ast.stmt] = (*part.body, *part.orelse)
            case ast.With(items=items):
                for item in items:
                    self._check_apart(item)
                inner = part.body
            case ast.Assign(targets=targets) if self._looked_at(part.value) or self._stores(targets):
                self._check_made(part, targets)
                return
            case ast.AugAssign(target=target) if self._looked_at(part):
                self._check_made(part, [target])
                return
            case _:
                self._check_apart(part)
                return
        for statement in inner:
            self._check_before(statement)

    def _looked_at(self, part: ast.AST) -> list[ast.Name]:
        """Where something of the batch is looked at."""
        return [
            it
            for it in ast.walk(part)
            if isinstance(it, ast.Name) and it.id in self._dealt and isinstance(it.ctx, ast.Load)
        ]

    def _stores(self, targets: list[ast.expr]) -> bool:
        """Whether something is stored into a part of the batch."""
        names = (
            base_name(it) for target in targets for it in ast.walk(target) if isinstance(it, ast.Subscript)
        )
        return any(name is not None and name.id in self._dealt for name in names)

    def _check_apart(self, part: ast.AST) -> None:
        if uses := self._looked_at(part):
            raise Whole(uses[0], f"it reads `{uses[0].id}` before the forward")
        if isinstance(self.program.parent(part), ast.If | ast.While) and isinstance(part, ast.expr):
            self._check_settled(part)

    def _check_settled(self, value: ast.expr) -> None:
        if self.around.samples.is_drawn(value):
            raise Whole(value, f"`{ast.unparse(value)}` is random")

    def _check_made(self, statement: ast.Assign | ast.AugAssign, targets: list[ast.expr]) -> None:
        for target in targets:
            for part in ast.walk(target):
                if isinstance(part, ast.Attribute | ast.Subscript) and isinstance(part.ctx, ast.Store):
                    base = base_name(part)
                    if isinstance(part, ast.Attribute) or base is None or base.id not in self._dealt:
                        raise Whole(part, f"it assigns to `{ast.unparse(part)}` before the forward")
        self._check_computed(statement.value)
        made = [it for target in targets for it in ast.walk(target) if isinstance(it, ast.Name)]
        for name in made:
            if isinstance(name.ctx, ast.Store):
                self._dealt.add(name.id)
                self._places.add(name)

    def _check_computed(self, value: ast.expr) -> None:
        """It changes nothing, and is made of nothing that another batch left, or that is drawn."""
        self._check_settled(value)
        parts = [it for node in ast.walk(value) for it in getattr(node, "generators", ())]
        inner = {it.id for part in parts for it in ast.walk(part.target) if isinstance(it, ast.Name)}
        for node in ast.walk(value):
            self._check_node(node, in_forward=False)
            self._check_rows(node, value)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in inner:
                found = self._reaching(node)
                inside = [it for it in found if id(it) in self.inside]
                carried = node.id in self._own and self._is_carried(node, inside)
                if carried or (not self._places.issuperset(found) and self._rows(node) in OF_BATCHES):
                    raise Whole(node, f"`{node.id}` may not come from this batch")

    def _check_rows(self, node: ast.AST, inside: ast.AST | None = None) -> None:
        """A step on the way to the outputs does the same with every row, however many there are."""
        match node:
            case ast.Call() if self._is_by_number(node):
                raise Whole(node, f"`{ast.unparse(node)}` may not fit a smaller batch")
            case ast.Attribute(attr="requires_grad_") | ast.keyword(arg="requires_grad"):
                raise Whole(node, "it needs gradients")
            case ast.Subscript(value=held, slice=ast.Constant(value=int()) | ast.UnaryOp()):
                if isinstance(held, ast.Name) and self._is_element(held):
                    raise Whole(node, f"`{ast.unparse(node)}` may be a single sample")
            case ast.IfExp(body=one, orelse=other):
                self._check_alike(node, [one, other])
            case ast.BinOp(left=left, right=right) if self._is_collection(left):
                self._check_alike(node, [left, right])
            case ast.Tuple(ctx=ast.Store()) | ast.List(ctx=ast.Store()):
                return
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
                if node is not inside or any(isinstance(it, ast.Starred) for it in parts):
                    self._check_alike(node, parts)
                elif isinstance(node, ast.Dict) and None in node.keys:
                    self._check_alike(node, parts)

    def _is_by_number(self, node: ast.Call) -> bool:
        """Whether a call may do otherwise with one row than with two, or asks for the greatest number."""
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name not in BY_NUMBER_OF_ROWS:
            return False
        is_method = isinstance(node.func, ast.Attribute) and self._rows(node.func.value) in OF_BATCHES
        held = [] if is_method else node.args[:1]
        if not is_method and not any(self._rows(it) in OF_BATCHES for it in held):
            return False
        dims = [*node.args[len(held) :], *(it.value for it in node.keywords)]
        first = ast.unparse(dims[0]) if dims else ""
        match name:
            case "squeeze":
                return first != "-1" and not (first.isdigit() and int(first) > 0)
            case "expand":
                return first != "-1" and not (dims and self._rows(dims[0]) is Kind.COUNT)
        return first in ("", "-1")

    def _is_collection(self, node: ast.expr) -> bool:
        return isinstance(self.around.samples.of(node), kinds.Held | kinds.Every)

    def _check_alike(self, node: ast.expr, parts: list[ast.expr]) -> None:
        """Parts of the batch are not put together with what has no row for each sample."""
        found = {
            leaf for part in parts if not _is_none(part) for leaf in _leaves(self.around.samples.of(part))
        }
        if found & {*PLAIN} and found & {*OF_BATCHES}:
            raise Whole(node, f"`{ast.unparse(node)}` may not have one row per sample")

    def _is_element(self, name: ast.Name) -> bool:
        """Whether a name may be an element of the batch, a tensor."""
        target = self.node.target
        batch = target.elts[1] if self._index() is not None and isinstance(target, ast.Tuple) else target
        if self._is_collection(name):
            return False
        return bool(self._asked(name.id) & OF_TENSORS) or (
            batch not in self._reaching(name) and self._rows(name) in DEALT
        )

    def _check_forward(self, forward: _Forward) -> None:
        """The model is given rows, and what all processes have alike and nn.DataParallel would not divide."""
        for argument in forward.given:
            self._check_computed(argument)
            mixed = not all(leaf in DEALT for leaf in _leaves(self.around.samples.of(argument)))
            if (mixed or self._rows(argument) not in DEALT) and not self._is_constant(argument):
                raise Whole(argument, f"`{ast.unparse(argument)}` may not have one row per sample")
        if not any(self._looked_at(argument) for argument in forward.given):
            raise Whole(forward.call, "the model is not given the batch")

    def _rows(self, node: ast.expr) -> Value:
        return kinds.tensor(self.around.samples.of(node), node)

    def _is_constant(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Constant) or is_fixed(self.around.program, node)

    def _check_functions(self, forward: _Forward) -> None:
        """What is called on the way to the outputs leaves nothing behind; what a forward keeps is not looked at."""
        entered: set[int] = set()
        for part in (*forward.before, *forward.given):
            for node in ast.walk(part):
                if isinstance(node, ast.Call) and self._looked_at(node) and not self._is_forward(node):
                    entered |= self.program.entered(node)
        scopes = [self.program.scopes[index] for index in sorted(entered)]
        for scope in scopes:
            returned = []
            for node in self.program.body(scope):
                self._check_function(scope, node, in_forward=False)
                self._check_rows(node, getattr(self.program.parent(node), "value", None))
                if isinstance(node, ast.Return) and node.value is not None:
                    returned.append(node.value)
                elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                    self._check_alike(node, self._given_in(scope, node))
            if len(returned) > 1:
                self._check_alike(returned[0], returned)
        self._check_effects(node for scope in scopes for node in self.program.body(scope))
        kept = set(self._kept_by_forwards())
        run = self.program.in_order(self.loop.runs)
        for use in (it for it in run if isinstance(it, ast.Attribute) and it.attr in kept):
            if isinstance(use.ctx, ast.Load) and self.program.scope(use).index not in self.context.forwards:
                raise Whole(use, f"`{ast.unparse(use)}` is stored by a forward")

    def _given_in(self, scope: Scope, name: ast.Name) -> list[ast.expr]:
        """What assignments in a function give a name."""
        made = [it for it in self.program.definitions(name) if self.program.scope(it) is scope]
        statements = [(self.program.statement(it), it) for it in made if not isinstance(it, ast.arg)]
        return [right for given in statements if (right := right_side(*given)) is not None]

    def _check_elsewhere(self, forward: _Forward) -> None:
        """No other function looks at the names that are made whole, before they are."""
        scope = self.program.scope(self.node)
        for node in () if scope.is_module else ast.walk(scope.node):
            if isinstance(node, ast.Global | ast.Nonlocal) and (kept := self._dealt & {*node.names}):
                raise Whole(node, f"`{min(kept)}` may be read elsewhere, too")
        entered = {it for part in (*forward.before, forward.call) for it in self.program.entered(part)}
        for node in (
            node for index in sorted(entered) for node in self.program.body(self.program.scopes[index])
        ):
            if isinstance(node, ast.Name) and node.id in self._dealt:
                if self._places & set(self.program.definitions(node)):
                    raise Whole(node, f"it reads `{node.id}` before the forward")

    def _kept_by_forwards(self) -> Iterator[str]:
        """The attributes that forwards of the project's modules assign, or change; none may draw random numbers."""
        scopes = [self.program.scopes[index] for index in self.context.forwards]
        for node in (node for scope in scopes for node in self.program.body(scope)):
            call = self.program.call(node) if isinstance(node, ast.Call) else None
            if call is not None and draws_always(call) and not self._asks_for_training(node):
                raise Whole(
                    node,
                    f"the model draws random numbers by `{ast.unparse(call.node.func)}`, which sharding changes",
                )
            match node:
                case ast.Attribute(attr=name, ctx=ast.Store()):
                    yield name
                case ast.Subscript(value=ast.Attribute(attr=name), ctx=ast.Store()):
                    yield name
                case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=name), attr=method)):
                    if method in CHANGES or method.endswith("_"):
                        yield name

    def _asks_for_training(self, node: ast.AST, depth: int = 0) -> bool:
        """Whether a place in a forward is come to in training mode alone."""
        tests = [it.test for it in self.program.ancestors(node) if isinstance(it, ast.If | ast.IfExp)]
        parts = [getattr(it, "attr", getattr(it, "id", "")) for test in tests for it in ast.walk(test)]
        calls = self.context.callers.get(self.program.scope(node).index, ())
        return "training" in parts or (
            bool(calls) and depth < 4 and all(self._asks_for_training(it, depth + 1) for it in calls)
        )

    def _check_leaving(self) -> None:
        """All processes leave the loop together."""
        for node in ast.walk(self.node):
            if isinstance(node, ast.Yield | ast.YieldFrom | ast.Await):
                raise Whole(node, "the loop may end early (`yield` or `await`)")
            if isinstance(node, ast.Break | ast.Return | ast.Raise | ast.Continue):
                for around in self.program.ancestors(node):
                    if around is self.node:
                        break
                    if isinstance(around, ast.If | ast.While):
                        self._check_settled(around.test)

    # What is looked at behind it

    def _division(self, forward: _Forward) -> Division:
        rows: dict[str, None] = {}
        beside: dict[str, None] = {}
        counts: dict[str, None] = {}
        sizes: list[tuple[str, ast.expr]] = []
        early = False  # whether a size is asked for beside the call
        given = {id(node) for node in ast.walk(forward.call)}
        around = {id(node) for node in ast.walk(forward.statement)} - given
        for use in self._uses_behind(forward):
            value, size = self._rows(use), self._size(use)
            if value in DEALT and size is None:
                self._check_tensors(use, forward)
                (beside if id(use) in around else rows)[use.id] = None
            elif value in DEALT and size is not None:
                sizes.append((use.id, size))
                early = early or id(use) in around
            elif value is Kind.COUNT and id(use) not in around and self._is_count(use):
                counts[use.id] = None
            elif value not in PLAIN:
                raise Whole(use, f"`{use.id}` is used in the loop, where each rank has its own")
        for use in self._looked_at(forward.call):
            if use.id in beside:
                raise Whole(use, f"`{use.id}` is read in the same statement as the forward")
        named = [*beside] if early else [*beside, *rows]
        stored = {it.id for it in self._names_behind(forward)}
        counted = self._counted(named, stored) if counts or sizes else ""
        if early and not counted:
            raise Whole(
                forward.statement, f"`{sizes[0][0]}` is used in the loop, where each rank has its own"
            )
        if not counted:
            rows |= {name: None for name, _ in sizes}
            counted = self._counted([*beside, *rows], set()) if counts else ""
        if counts and not counted:
            raise Whole(
                forward.statement, f"`{next(iter(counts))}` is used in the loop, where each rank has its own"
            )
        self._check_one_tensor([*beside, *rows], forward)
        place = self.program.anchor
        return Division(
            forward=place(forward.call),
            into=self._into(forward),
            statement=place(forward.statement),
            beside=tuple(beside),
            rows=tuple(name for name in rows if name not in beside),
            counts=tuple(counts),
            sizes=tuple(place(it) for name, it in sizes if name not in {*rows, *beside}),
            counted=counted,
            loads_whole=self._loads_whole,
        )

    def _check_one_tensor(self, names: list[str], forward: _Forward) -> None:
        """No two of them are one tensor that is written into behind the model's call: each is made whole by itself."""
        looks, rounds = looks_in(self.around.context), frozenset({id(self.node)})
        uses = {
            name: [it for it in self._uses(name) if self._places & set(self._reaching(it))] for name in names
        }
        keys = {name: {key for it in found for key in looks.keys(it)} for name, found in uses.items()}
        for one, other in combinations(names, 2):
            apart = keys[one].isdisjoint(keys[other])
            if apart and not _has_entry(keys[one], other) and not _has_entry(keys[other], one):
                continue
            for use in (*uses[one], *uses[other]):
                if looks.is_written_from(use, forward.statement, rounds):
                    raise Whole(use, f"`{one}` and `{other}` may be one tensor, which it changes")

    def _into(self, forward: _Forward) -> object:
        match forward.statement:
            case ast.Assign(targets=[ast.Name() as name], value=value) if value is forward.call:
                return self.program.anchor(name)
        return None

    def _uses_behind(self, forward: _Forward) -> Iterator[ast.Name]:
        """Where something that was made of the batch up to the model's call is looked at after that, or beside it."""
        before = {id(node) for part in (*forward.before, forward.call) for node in ast.walk(part)}
        places = sorted(self._places, key=lambda it: self.program.order[id(it)])
        for name in dict.fromkeys(it.id for it in places):  # type: ignore[attr-defined]
            for use in self._uses(name):
                if id(use) not in before and self._places & set(self._reaching(use)):
                    yield use

    def _size(self, use: ast.Name) -> ast.expr | None:
        """The expression in the loop that asks for the number of samples of a tensor of the batch, around its name."""
        parent = self.program.parent(use)
        around = self.program.parent(parent) if parent is not None else None
        if id(use) not in self.inside or not self._is_part(use) or self._asked(use.id) & RESHAPES_IN_PLACE:
            return None
        match parent, around:
            case ast.Call(func=ast.Name(id="len"), args=[_]), _ if self._asked(use.id) & OF_TENSORS:
                return parent
            case ast.Attribute(attr="shape"), ast.Subscript(slice=ast.Constant(value=0)):
                return around
            case ast.Attribute(attr="size"), ast.Call(args=[ast.Constant(value=0)]):
                return around
            case ast.Attribute(attr="size"), ast.Call(args=[]):
                outer = self.program.parent(around)
                if isinstance(outer, ast.Subscript) and ast.unparse(outer.slice) == "0":
                    return outer
        return None

    def _is_count(self, use: ast.Name) -> bool:
        """Whether a name is the number of samples, no multiple of it."""
        return all(self._gives_count(self.program.statement(made), made) for made in self._reaching(use))

    def _gives_count(self, statement: ast.AST, made: ast.AST) -> bool:
        """Whether an assignment gives a name the number of samples: ``len(x)``, or the first of ``x.shape``."""
        match statement:
            case ast.Assign(
                targets=[ast.Tuple(elts=[first, *_])],
                value=ast.Attribute(attr="shape", value=ast.Name() as held)
                | ast.Call(func=ast.Attribute(attr="size", value=ast.Name() as held), args=[]),
            ):
                return first is made and self._is_part(held)
            case ast.Assign():
                right = right_side(statement, made)
                names = (it for it in ast.walk(statement.value) if isinstance(it, ast.Name))
                return right is not None and any(self._size(it) is right for it in names)
        return False

    def _names_behind(self, forward: _Forward) -> set[ast.Name]:
        """Where names are given something else, or deleted, by the statement that calls the model and after it."""
        order, first = self.program.order, self.program.order[id(forward.statement)]
        names = (it for it in ast.walk(self.node) if isinstance(it, ast.Name))
        return {it for it in names if not isinstance(it.ctx, ast.Load) and order[id(it)] > first}

    def _counted(self, names: list[str], left_out: set[str]) -> str:
        """A tensor of the batch that has a row for each sample, and is made whole."""
        for name in names:
            uses = [it for it in self._uses(name) if self._places & set(self._reaching(it))]
            if name not in left_out and all(map(self._is_part, uses)):
                if self._asked(name) & OF_TENSORS and not self._asked(name) & RESHAPES_IN_PLACE:
                    return name
        return ""

    def _asked(self, name: str) -> set[str]:
        """The attributes and methods that something of the batch is asked for."""
        return {
            getattr(self.program.parent(use), "attr", "")
            for use in self._uses(name)
            if id(use) in self.inside
        }

    def _is_part(self, use: ast.Name, seen: set[ast.AST] | None = None) -> bool:
        """Whether a name is an element of the batch, as the loader hands it out or on another device."""
        seen = set() if seen is None else seen
        for made in self._reaching(use):
            if made not in self._places:
                return False
            statement = self.program.statement(made)
            if statement is self.node:
                if not isinstance(self.program.parent(made), ast.Tuple):
                    return False
                continue
            moved = _moved(right_side(statement, made))
            if moved is None:
                return False
            if made not in seen:
                seen.add(made)
                if not self._is_part(moved, seen):
                    return False
        return True

    def _check_tensors(self, use: ast.Name, forward: _Forward) -> None:
        """It is made of tensors, or of nothing but what has a row for each sample; nothing has made arrays of it."""
        behind = self._names_behind(forward)
        others = [it for it in self._reaching(use) if it not in self._places and it not in behind]
        if not all(_is_none(right_side(self.program.statement(it), it)) for it in others):
            raise Whole(use, f"`{use.id}` may not have one row per sample")
        if not all(leaf in DEALT for leaf in _leaves(self.around.samples.of(use))):
            raise Whole(use, f"`{use.id}` holds more than one row per sample")
        if self._is_array(use, set()):
            raise Whole(use, f"`{use.id}` is not a tensor")

    def _is_array(self, use: ast.Name, seen: set[ast.AST]) -> bool:
        """Whether arrays or lists of numbers are on the way from the batch to a name."""
        for made in self._places & set(self._reaching(use)) - seen:
            seen.add(made)
            for node in ast.walk(getattr(self.program.statement(made), "value", None) or ast.Pass()):
                call = self.program.call(node) if isinstance(node, ast.Call) else None
                names = call.names if call is not None else set()
                if any(it.startswith(ARRAYS) for it in names):
                    return True
                if getattr(node, "attr", "") in LEAVES_TORCH:
                    return True
                if isinstance(node, ast.Name) and self._is_array(node, seen):
                    return True
        return False


def _has_entry(keys: set[object], name: str) -> bool:
    """Whether one of some tensors is an entry of what a name is: ``batch[0]``."""
    return any(isinstance(key, str) and key.startswith((f"{name}[", f"{name}.")) for key in keys)


def _leaves(value: Value) -> set[Value]:
    """What a structure has in it."""
    match value:
        case kinds.Held(entries=entries):
            return {leaf for _, entry in entries for leaf in _leaves(entry)}
        case kinds.Every(element=inner):
            return _leaves(inner)
    return {value}


def _is_none(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _moved(value: ast.expr | None) -> ast.Name | None:
    """The tensor whose rows an expression hands on, on another device, of another type or in other dimensions."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        dims = [ast.unparse(it) for it in value.args]
        match value.func.attr:
            case "permute":
                keeps = dims[:1] == ["0"]
            case method if method in MOVES_ONE_DIMENSION:
                keeps = bool(dims) and all(it.isdigit() and int(it) > 0 for it in dims)
            case method:
                keeps = method in KEEPS_ROWS
        if not keeps:
            return None
        value = value.func.value
    return value if isinstance(value, ast.Name) else None
