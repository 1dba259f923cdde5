"""apex's DistributedDataParallel, in a branch that starts ranks of its own: torch's does what it does.

Both give every rank the parameters of the first, and average what gradients there are in the backward pass. apex's
leaves buffers alone, and does not mind parameters that the loss does not reach. Where all of its use is followed it
becomes torch's; else it stays, with the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from dp2ddp.analyse.apex.autocast import Unfollowed
from dp2ddp.analyse.api.devices import CASTS, HALF_TYPES
from dp2ddp.analyse.api.handing import INITIALIZE
from dp2ddp.analyse.api.inspection import ATTRIBUTES_BY_NAME
from dp2ddp.analyse.api.layers import DISABLES_GRADIENTS
from dp2ddp.analyse.api.parallel import APEX_WRAP, WRAP
from dp2ddp.analyse.api.precision import (
    BESIDE_WRAP,
    SWITCHES,
    TIMING,
    WRAP_ATTRIBUTES,
    WRAP_DEFAULTS,
    WRAPPED,
)
from dp2ddp.analyse.api.processes import WORLD_SIZE
from dp2ddp.analyse.context import COMPREHENSIONS, LOOPS, Context, root_name
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.signature import is_spread
from dp2ddp.analyse.program.values import Ext, Made, Values, full_name
from dp2ddp.facts import NO_TIER, Obstacle, Precision

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Replaced:
    """What of it becomes torch's, where its name goes, and what is worth to be known of it."""

    pieces: tuple[Precision, ...] = ()
    names: tuple[ast.expr, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()


def collect(context: Context) -> Replaced:
    """All wraps in apex's, in programs that train with DataParallel, too; ``context`` has their own branches still."""
    calls = [
        it for it in context.program.calls if APEX_WRAP in it.names and context.runs_in_training(it.node)
    ]
    if not calls:
        return Replaced()
    use = _Use(context)
    try:
        use.check()
        pieces = tuple(use.pieces(calls))
    except Unfollowed as reason:
        return Replaced(obstacles=tuple(_staying(context, it, reason) for it in calls))
    halved = tuple(_in_half(context, it) for it in calls) if use.halves and not use.divides_first else ()
    return Replaced(pieces, tuple(use.names), halved)


def _staying(context: Context, call: Call, reason: Unfollowed) -> Obstacle:
    return context.obstacle(
        call.node,
        f"apex's DistributedDataParallel stays as it is: {reason}",
        "no action needed, or use torch's if that doesn't matter",
        NO_TIER,
        works=True,
    )


def _in_half(context: Context, call: Call) -> Obstacle:
    return context.obstacle(
        call.node,
        "torch divides gradients before the all-reduce, apex after it: fp16 may overflow in another place",
        "compare the loss of a short run before and after",
        NO_TIER,
        works=True,
    )


@dataclass
class _Use:
    """All that a project does with apex's DistributedDataParallel."""

    context: Context

    def __post_init__(self) -> None:
        self.program = self.context.program

    def check(self) -> None:
        """Nothing in the project needs what only apex's does."""
        for call in self.wraps:
            self._check_arguments(call)
            self._check_trained(call)
        self._check_names()
        self._check_attributes()
        self._check_passes()

    def pieces(self, calls: list[Call]) -> Iterator[Precision]:
        """The wraps, and where else the class is named."""
        called = {id(it.node.func) for it in calls}
        for call in calls:
            func = self.program.anchor(call.node.func)
            module = call.argument("module", 0)
            assert module is not None
            yield Precision(
                **self.context.place(call.node),
                kind="wrap",
                call=None if self._is_imported(call.node.func) else func,
                model=self.program.anchor(module),
            )
        for name in self.names:
            if id(name) not in called:
                yield Precision(**self.context.place(name), kind="class")

    # What it is named

    @cached_property
    def wraps(self) -> list[Call]:
        return [it for it in self.program.calls if APEX_WRAP in it.names]

    @cached_property
    def loads(self) -> list[ast.expr]:
        """Every expression that may be the class."""
        found = (it for it in self.program.nodes.values() if isinstance(it, ast.Name | ast.Attribute))
        return [
            it for it in found if isinstance(it.ctx, ast.Load) and Ext(APEX_WRAP) in self.program.values(it)
        ]

    @cached_property
    def names(self) -> list[ast.expr]:
        """Those of them that an import gives the name, in programs that train with DataParallel, too."""
        return [it for it in self.loads if self._is_imported(it) and self.context.runs_in_training(it)]

    def _is_imported(self, node: ast.expr) -> bool:
        root = root_name(node)
        definitions = self.program.definitions(root) if root is not None else []
        return bool(definitions) and all(isinstance(it, ast.alias) for it in definitions)

    def _check_names(self) -> None:
        """It wraps, gets another name, or is asked for along with DataParallel."""
        called = {id(it.node.func) for it in self.wraps}
        if called - set(map(id, self.loads)):
            raise Unfollowed("it is unclear where it comes from")
        for node in self.loads:
            if self.program.values(node) != {Ext(APEX_WRAP)}:
                raise Unfollowed(f"`{ast.unparse(node)}` may not be apex's")
            trains = self.context.runs_in_training(node)
            if not self._is_imported(node) and not (trains and self._is_renamed(node)):
                raise Unfollowed(f"it is unclear where `{ast.unparse(node)}` comes from")
            parent = self.program.parent(node)
            renames = isinstance(parent, ast.Assign) and parent.value is node
            if id(node) not in called and not renames and not self._is_asked_for(node):
                raise Unfollowed(f"`{ast.unparse(node)}` is used for more than wrapping a model")

    def _is_renamed(self, node: ast.expr) -> bool:
        """Whether a variable is always given the class by a name that an import gives it."""
        definitions = self.program.definitions(node) if isinstance(node, ast.Name) else []
        given = [self.program.statement(it) for it in definitions]
        return bool(given) and all(isinstance(it, ast.Assign) and it.value in self.names for it in given)

    def _is_asked_for(self, node: ast.expr) -> bool:
        """``isinstance(model, (nn.DataParallel, node))``: one answer for both branches."""
        classes = self.program.parent(node)
        call = self.program.call(self.program.parent(classes)) if isinstance(classes, ast.Tuple) else None  # type: ignore[arg-type]
        if call is None or call.names != {"builtins.isinstance"}:
            return False
        return any(Ext(WRAP) in self.program.values(it) for it in classes.elts)  # type: ignore[union-attr]

    # What it is given

    def _check_arguments(self, call: Call) -> None:
        for name, value in self._given(call).items():
            shown = f"its {name}={ast.unparse(value)}"
            if name == "module" or (
                isinstance(value, ast.Constant) and value.value == WRAP_DEFAULTS.get(name, ...)
            ):
                continue
            if any(
                isinstance(it, ast.Call | ast.NamedExpr | ast.Await | ast.Yield) for it in ast.walk(value)
            ):
                if name == "gradient_predivide_factor" and self._is_world_size(value):
                    continue
                raise Unfollowed(f"torch's has no equivalent of {shown}")
            if name == "allreduce_always_fp32" and self.halves:
                raise Unfollowed(f"torch's all-reduces fp16 gradients in fp16, despite {shown}")
            if name not in (*TIMING, "allreduce_always_fp32"):
                raise Unfollowed(f"torch's has no equivalent of {shown}")

    def _given(self, call: Call) -> dict[str, ast.expr]:
        """The arguments of a wrap, by name."""
        node = call.node
        order = ("module", *WRAP_DEFAULTS)
        if is_spread(node) or len(node.args) > len(order):
            raise Unfollowed("its arguments are not visible in the call")
        given = dict(zip(order, node.args, strict=False))
        given |= {it.arg: it.value for it in node.keywords if it.arg is not None}
        if "module" not in given:
            raise Unfollowed("its arguments are not visible in the call")
        return given

    def _is_world_size(self, node: ast.expr) -> bool:
        """``dist.get_world_size()``: then apex divides before it adds up, as torch does."""
        call = self.program.call(node) if isinstance(node, ast.Call) else None
        return call is not None and call.callees == {Ext(WORLD_SIZE)} and not node.args and not node.keywords  # type: ignore[attr-defined]

    @cached_property
    def divides_first(self) -> bool:
        """Whether every wrap divides gradients by the number of ranks before it adds them up."""
        factors = [self._given(it).get("gradient_predivide_factor") for it in self.wraps]
        return all(it is not None and self._is_world_size(it) for it in factors)

    @cached_property
    def halves(self) -> bool:
        """Whether parameters may be in half precision."""
        return any(map(self._halves, self.program.calls))

    def _halves(self, call: Call) -> bool:
        if INITIALIZE in call.names:
            level = call.argument("opt_level", 3)
            return level is not None and not (isinstance(level, ast.Constant) and level.value == "O1")
        function = call.node.func
        if not isinstance(function, ast.Attribute):
            return False
        given = {full_name(value) for it in call.node.args for value in self.program.values(it)}
        return function.attr == "half" or (function.attr in CASTS and bool(given & HALF_TYPES))

    # What it trains

    def _check_trained(self, call: Call) -> None:
        """torch's wants parameters to train, and averages the gradients of those that do when it wraps them."""
        module = call.argument("module", 0)
        models = self.program.values(module) if module is not None else frozenset()
        later = self._later(call.node, set())
        for node, owner, value in self._switches:
            off = isinstance(value, ast.Constant) and value.value is False
            if not off and id(node) in later:
                raise Unfollowed(
                    "frozen parameters may be trained later, and torch's would not average their gradients"
                )
            values = self.program.values(owner)
            if off and (values & models or _is_wrapped(values)):
                raise Unfollowed("all parameters are frozen, and torch's needs at least one that is trained")

    @cached_property
    def _switches(self) -> list[tuple[ast.AST, ast.expr, ast.expr | None]]:
        """Where parameters are made to train, or not to: the place, what they are of, and whether they are to."""
        found: list[tuple[ast.AST, ast.expr, ast.expr | None]] = []
        for node in self.program.nodes.values():
            match node:
                case ast.Assign(targets=[ast.Attribute(value=owner, attr="requires_grad")], value=value):
                    found.append((node, self._of_all(node, owner), value))
                case ast.Call(
                    func=ast.Attribute(value=owner, attr="requires_grad_"), args=args, keywords=named
                ):
                    value = next(iter((*args, *(it.value for it in named))), None)
                    found.append((node, self._of_all(self.program.statement(node), owner), value))
        return found

    def _of_all(self, statement: ast.stmt, parameter: ast.expr) -> ast.expr:
        """The model whose every parameter a loop round a statement goes through; or else what it says itself."""
        match self.program.parent(statement):
            case ast.For(
                iter=ast.Call(func=ast.Attribute(value=model, attr="parameters" | "named_parameters"))
            ):
                return model
        return parameter

    def _later(self, node: ast.AST, seen: set[int]) -> set[int]:
        """Identities of all that may run after a node: what follows it, in loops round it and after its calls, too."""
        found: set[int] = set()
        statement = self.program.statement(node)
        while not isinstance(statement, FUNCTIONS):
            block = self.program.block(statement)
            for following in block[block.index(statement) + 1 :]:
                found |= self.context.runs(following)
            if isinstance(statement, LOOPS):
                found |= self.context.runs(statement)
            around = self.program.parent(statement)
            if around is None or isinstance(around, ast.Module):
                return found
            statement = self.program.statement(around)
        scope = self.program.by_node[id(statement)].index
        if scope not in seen:
            seen.add(scope)
            for call in self.context.callers.get(scope, ()):
                found |= self._later(call, seen)
        return found

    # What else is asked of it

    def _check_attributes(self) -> None:
        for node in self.program.nodes.values():
            match node:
                case ast.Attribute(value=owner, attr=name):
                    asks = name in WRAP_ATTRIBUTES
                case ast.Call(args=[owner, ast.Constant(value=str(name)), *_]):
                    call = self.program.call(node)
                    asks = (
                        name in WRAP_ATTRIBUTES and call is not None and bool(call.names & ATTRIBUTES_BY_NAME)
                    )
                case _:
                    continue
            values = self.program.values(owner)
            if asks and (_is_wrapped(values) or (not values and name in SWITCHES)):
                raise Unfollowed(f"torch's has no `{name}`")

    def _check_passes(self) -> None:
        """One forward before each backward pass: torch's asks the last which parameters are used."""
        for call in self.program.calls:
            name = next((it for it in call.names if it.startswith(BESIDE_WRAP)), None)
            if name is not None:
                raise Unfollowed(f"`{ast.unparse(call.node.func)}` is used as well")
        for backward in self.context.backwards:
            if any(it.arg == "retain_graph" for it in backward.keywords):
                raise Unfollowed("several backward passes go through one forward")
            for around in self._rounds(backward, set()):
                runs = self.context.runs(around)
                forwards = [it.node for it in self._forwards if id(it.node) in runs]
                several = any(self._are_both_run(one, other) for one in forwards for other in forwards)
                if several or any(self._is_repeated(it, around, runs) for it in forwards):
                    raise Unfollowed("a model runs several times before a backward pass")

    def _rounds(self, node: ast.AST, seen: set[int]) -> Iterator[ast.AST]:
        """The innermost loops that run a node, through calls too."""
        for around in self.program.ancestors(node):
            if isinstance(around, LOOPS):
                yield around
                return
            if isinstance(around, FUNCTIONS):
                break
        scope = self.program.scope(node)
        if scope.index not in seen:
            seen.add(scope.index)
            for call in self.context.callers.get(scope.index, []):
                yield from self._rounds(call, seen)

    @cached_property
    def _forwards(self) -> list[Call]:
        """The calls of models that it wraps, but for those without gradients."""
        called = {f"{it}.__call__" for it in WRAPPED}
        wrapped = [it for it in self.program.calls if it.names & called]
        return [it for it in wrapped if not self._is_without_gradients(it.node)]

    def _is_without_gradients(self, node: ast.AST) -> bool:
        for around in self.program.ancestors(node):
            managers: list[ast.expr] = []
            if isinstance(around, ast.With):
                managers = [it.context_expr for it in around.items]
            elif isinstance(around, FUNCTIONS):
                managers = around.decorator_list
            calls = (self.program.call(it) for it in managers)
            if any(name.endswith(DISABLES_GRADIENTS) for it in calls if it is not None for name in it.names):
                return True
        return False

    def _is_repeated(self, node: ast.AST, around: ast.AST, runs: set[int]) -> bool:
        """Whether one round of a loop may run a place in it several times: ``runs`` is all that the loop runs."""
        for outer in self.program.ancestors(node):
            if outer is around:
                return False
            if isinstance(outer, (*LOOPS, *COMPREHENSIONS)):
                return True
            if isinstance(outer, FUNCTIONS):
                calls = self.context.callers.get(self.program.by_node[id(outer)].index, ())
                inside = [
                    it for it in calls if id(it) in runs and not any(_holds(it, other) for other in calls)
                ]
                return len(inside) != 1 or self._is_repeated(inside[0], around, runs - {id(inside[0])})
        return True

    def _are_both_run(self, one: ast.AST, other: ast.AST) -> bool:
        """Whether two places run one after the other, and not one or the other."""
        above = [*self.program.ancestors(one)]
        inside: ast.AST = other
        for around in self.program.ancestors(other):
            if around in above:
                if not isinstance(around, ast.If):
                    return one is not other
                side = above[above.index(around) - 1] if above.index(around) else one
                return (side in around.body) == (inside in around.body)
            inside = around
        return True


def _is_wrapped(values: Values) -> bool:
    return any(isinstance(it, Made) and it.name in WRAPPED for it in values)


def _holds(node: ast.AST, inner: ast.AST) -> bool:
    """Whether another node is a part of one."""
    return node is not inner and any(it is inner for it in ast.walk(node))
