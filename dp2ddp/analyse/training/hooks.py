"""Functions that are given gradients before those of the processes are averaged, or return them.

nn.DataParallel has added up what its replicas computed when a hook is called. The runtime calls hooks of a wrapped
model's parameters when it has averaged. Elsewhere each process has the gradients of its part: what is linear in them
may come before their average as well as after it; nothing else may.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from dp2ddp.analyse.api.containers import KEEPS
from dp2ddp.analyse.api.iteration import COLLECTS
from dp2ddp.analyse.api.layers import BACKWARD_HOOKS, FORWARD_HOOKS, GRAD, PARAMETER_HOOKS, TENSOR_HOOKS
from dp2ddp.analyse.api.numbers import MAKES_NUMBER_OF
from dp2ddp.analyse.api.tensors import HANDS_GRADIENT_ON, KEEPS_SIGN, NO_GRADIENT, SCALES, SIGN_ALONE
from dp2ddp.analyse.context import Context, root_name
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.forwards import Forwards
from dp2ddp.analyse.dataflow.kinds import AVERAGED, BY_SAMPLE, PLAIN, Kind, Unclear, Value
from dp2ddp.analyse.processes.exclusions import is_come_to
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.values import Bound, Func
from dp2ddp.analyse.training.loops import BatchLoop
from dp2ddp.facts import ANY_TIER, NO_TIER, SHARDED_ONLY, Obstacle


def returned(context: Context) -> Iterator[Obstacle]:
    """Gradients of parameters that ``torch.autograd.grad`` returns: nothing averages them."""
    for call in context.program.calls:
        inputs = call.argument("inputs", 1) if call.names == {GRAD} else None
        if inputs is not None and context.runs_in_training(call.node) and _are_parameters(context, inputs):
            yield context.obstacle(
                call.node,
                f"`{ast.unparse(call.node.func)}` returns local gradients: only those of `backward()` are averaged",
                "use `backward()`, and read `.grad`",
            )


def forward(context: Context, loops: list[BatchLoop]) -> Iterator[Obstacle]:
    """Hooks that keep or say what they see of a forward: that of this rank's part, where all replicas' came to one."""
    for call in context.program.calls:
        function = call.node.func
        if getattr(function, "attr", "") not in FORWARD_HOOKS or not call.node.args:
            continue
        own = any(isinstance(callee, Func | Bound) for callee in call.callees)
        if not own and context.runs_in_training(call.node) and not counts_by_itself(context, call, loops):
            hooks = _functions(context, call.node.args[0])
            if all(map(_marks_module, hooks)):
                continue  # on several GPUs, nn.DataParallel loses that with its replicas
            if any(map(_keeps, hooks)) and is_come_to(context, call.node):
                yield context.obstacle(
                    call.node,
                    f"the hook `{ast.unparse(call.node.args[0])}` sees only each rank's part of the batch",
                    "no action needed; or combine what it keeps: `ddp.sum` of counts, `ddp.gather` of tensors",
                    NO_TIER,
                )


def counts_by_itself(context: Context, call: Call, loops: Iterable[BatchLoop]) -> bool:
    """Whether all that a hook keeps is in names of a function that sets it, runs a model, and counts what came of it.

    That function begins anew whenever it is run, and it goes through no batches: it sees none of a rank's part.
    """
    program = context.program
    hooks = _functions(context, call.node.args[0]) if call.node.args else []
    found = [it for hook in hooks for it in _kept(hook)]
    kept = [root_name(it) if isinstance(it, ast.expr) else None for it in found]
    if not hooks or None in kept:
        return False
    made = [it for name in kept for it in program.definitions(name)]  # type: ignore[arg-type]
    functions = {program.scope(it).index: program.scope(it) for it in made}
    if len(functions) != 1 or not all(map(program.definitions, kept)):  # type: ignore[arg-type]
        return False
    (function,) = functions.values()
    if not isinstance(function.node, ast.FunctionDef):
        return False
    loops = list(loops)
    runs = frozenset[int]().union(*map(context.runs, function.body))
    if any(id(it.node) in runs or id(function.body[0]) in it.runs for it in loops):
        return False
    names = {ast.unparse(it) for it in kept}  # type: ignore[arg-type]
    used = (it for it in ast.walk(function.node) if isinstance(it, ast.Name) and it.id in names)
    return all(isinstance(it.ctx, ast.Store) or _is_counted(context, it) for it in used)


def _is_counted(context: Context, name: ast.Name) -> bool:
    """Whether a collection is only filled, gone through, or made a number of, where it has a name."""
    match context.program.parent(name):
        case ast.Attribute() | ast.Subscript() | ast.For() | ast.comprehension():
            return True
        case ast.Call() as around:
            call = context.program.call(around)
            return call is not None and bool(call.names) and call.names <= MAKES_NUMBER_OF
    return False


def _keeps(scope: Scope) -> bool:
    """Whether a function keeps something outside of itself, or says it."""
    return any(True for _ in _kept(scope))


def _marks_module(scope: Scope) -> bool:
    """Whether all that a hook keeps is set on the module that it is called with."""
    nodes = [inner for statement in scope.body for inner in ast.walk(statement)]
    stores = [it.value for it in nodes if isinstance(it, ast.Attribute) and isinstance(it.ctx, ast.Store)]
    module = next((it for it in scope.params if it not in ("self", "cls")), None)
    on_it = all(isinstance(it, ast.Name) and it.id == module for it in stores)
    return on_it and list(_kept(scope)) == [None] * len(stores)


def _kept(scope: Scope) -> Iterator[ast.expr | None]:
    """What a function keeps something in outside of itself; None where it says something, or sets an attribute."""
    for node in (inner for statement in scope.body for inner in ast.walk(statement)):
        match node:
            case ast.Call(func=ast.Attribute(value=held, attr=name)) if name in KEEPS:
                yield held
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in KEEPS | {"print"}:
                yield None
            case ast.Attribute(ctx=ast.Store()):
                yield None
            case ast.Subscript(value=held, ctx=ast.Store()):
                while isinstance(held, ast.Subscript):
                    held = held.value
                if not isinstance(held, ast.Name) or held.id not in scope.names:
                    yield held


def _are_parameters(context: Context, node: ast.AST, depth: int = 0) -> bool:
    """Whether an expression is made of parameters, or is a name that was given some."""
    program = context.program
    parts: list[ast.expr] = []
    match node:
        case ast.Attribute(attr="weight" | "bias") | ast.Call(
            func=ast.Attribute(attr="parameters" | "named_parameters")
        ):
            return True
        case ast.Call(args=given) if program.call(node) and program.call(node).names & COLLECTS:  # type: ignore[union-attr]
            parts = given
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            pass
        case ast.Starred(value=value) | ast.Subscript(value=value):
            parts = [value]
        case ast.ListComp(generators=[*rounds]) | ast.GeneratorExp(generators=[*rounds]):
            parts = [it.iter for it in rounds]
        case ast.Name() if depth < 8:
            for definition in program.definitions(node):
                if isinstance(definition, ast.arg):
                    parts += program.given(definition)
                else:
                    value = program.source(definition).value
                    parts += [] if value is None else [value]
    return any(_are_parameters(context, part, depth + 1) for part in parts)


def obstacles(context: Context, beside: bool) -> Iterator[Obstacle]:
    """Hooks that change gradients otherwise than in proportion, and those that look at them.

    ``beside``: whether parameters are trained that no wrapped model has.
    """
    samples = Forwards(context)
    for call in context.program.calls:
        function = call.node.func
        method = function.attr if isinstance(function, ast.Attribute) else ""
        hooks = TENSOR_HOOKS | PARAMETER_HOOKS | BACKWARD_HOOKS
        own = any(isinstance(callee, Func | Bound) for callee in call.callees)
        if method not in hooks or own or not call.node.args or not context.runs_in_training(call.node):
            continue
        given = ast.unparse(call.node.args[0])
        shown = f"`{ast.unparse(function)}({given if len(given) < 60 else '…'})`"
        scopes = _functions(context, call.node.args[0])
        if scopes and method in TENSOR_HOOKS and all(_is_linear(samples, it) for it in scopes):
            continue
        if method in TENSOR_HOOKS and not beside and _are_parameters(context, function.value):  # type: ignore[attr-defined]
            used = [value for it in scopes if not _only_looks(it) for value in _used(samples, it)]
            if scopes and all(it in PLAIN for it in used):
                continue  # the runtime gives it the average
            of_samples = (it for it in used if isinstance(it, Kind))
            yield context.obstacle(
                call.node,
                f"{shown} may use values that differ across ranks, besides the gradient",
                "give it values that are equal on all ranks: `ddp.mean(…)`, `ddp.batch_loss(…)`",
                (
                    ANY_TIER
                    if any(it not in (*PLAIN, Kind.WHOLE, Kind.UNKNOWN) for it in of_samples)
                    else SHARDED_ONLY
                ),
            )
            continue
        if scopes and method not in PARAMETER_HOOKS and all(_only_looks(it) for it in scopes):
            yield context.obstacle(
                call.node,
                f"{shown} sees local gradients, before they are averaged over the ranks",
                "read .grad after backward(), where it is averaged",
                NO_TIER,
            )
            continue
        owner = kinds.tensor(samples.of(function.value), function)  # type: ignore[attr-defined]
        of_rows = method in TENSOR_HOOKS and owner in (*BY_SAMPLE, *AVERAGED)
        steps = method in PARAMETER_HOOKS
        yield context.obstacle(
            call.node,
            (
                f"{shown} runs within `backward()`, before the ranks' gradients are averaged"
                if steps
                else f"{shown} may not be linear, and gets one rank's gradient, not the average"
            ),
            ("do this after `backward()`" if steps else "change `.grad` between `backward()` and `step()`"),
            SHARDED_ONLY if of_rows else ANY_TIER,
            assumes="" if scopes or not of_rows else f"{shown} is linear in the gradients",
        )


def of_inputs(context: Context, loops: list[BatchLoop]) -> Iterator[Obstacle]:
    """Gradients of what a model is given, or computes: those of a part's mean are larger than of the whole batch's."""
    training = set().union(*(loop.runs for loop in loops if loop.trains))
    training -= set().union(*(loop.runs for loop in loops if not loop.trains))
    samples = Forwards(context)
    told: set[ast.stmt] = set()
    for node in context.program.nodes.values():
        asked = isinstance(node, ast.Attribute) and node.attr == "grad" and isinstance(node.ctx, ast.Load)
        if not asked or id(node) not in training or (statement := context.program.statement(node)) in told:
            continue
        if not _is_sign(context, node) and _is_of_rows(samples, node.value):  # type: ignore[attr-defined]
            told.add(statement)
            yield context.obstacle(
                node,
                f"`{ast.unparse(node)}` grows as the local batch gets smaller, as the loss is a mean over it",
                "use its sign, or normalize it per sample",
                SHARDED_ONLY,
            )


def _is_of_rows(samples: Forwards, node: ast.expr) -> bool:
    """Whether a tensor is of the samples of a batch."""
    value = kinds.tensor(samples.of(node), node)
    if isinstance(value, Unclear):
        name = ast.unparse(node)
        scope = samples.program.scope(node)
        return any(name == made for made in _leaves(samples.program.body(scope)))
    return value in (*BY_SAMPLE, *AVERAGED, Kind.EACH, Kind.PICKED, Kind.HANDED)


def _leaves(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The names of tensors that a function makes leaves of its own: ``x.requires_grad = True``, ``x.retain_grad()``."""
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Attribute(attr="requires_grad", value=made)]):
                yield ast.unparse(made)
            case ast.Call(func=ast.Attribute(attr="requires_grad_" | "retain_grad", value=made)):
                yield ast.unparse(made)
            case ast.Assign(targets=[made], value=ast.Call(keywords=[*given])):
                yield from (ast.unparse(made) for it in given if it.arg == "requires_grad")


def _is_sign(context: Context, node: ast.AST) -> bool:
    """Whether all that is asked of a gradient is its sign, or whether it is there."""
    parent = context.program.parent(node)
    if context.asks_identity(parent):
        return True
    match parent:
        case ast.Attribute(attr=name) if name in SIGN_ALONE:
            return True
        case ast.Attribute(attr="data"):
            return _is_sign(context, parent)
        case ast.Attribute(attr=name) if name in KEEPS_SIGN:
            around = context.program.parent(parent)
            return isinstance(around, ast.Call) and _is_sign(context, around)
        case ast.Call():
            call = context.program.call(parent)
            return call is not None and call.names == {"torch.sign"}
    return False


def _functions(context: Context, hook: ast.expr) -> list[Scope]:
    """The functions that a hook may be; none where one of them is not followed."""
    values = context.program.values(hook)
    functions = [value.func if isinstance(value, Bound) else value for value in values]
    found = [context.program.scopes[it.scope] for it in functions if isinstance(it, Func)]
    return found if len(found) == len(values) else []


def _only_looks(scope: Scope) -> bool:
    """Whether a function returns nothing, and changes nothing that it is given."""
    if isinstance(scope.node, ast.Lambda):
        body = scope.node.body
        name = getattr(body.func, "attr", getattr(body.func, "id", "")) if isinstance(body, ast.Call) else ""
        return name in KEEPS or name == "print"
    for node in (inner for statement in scope.body for inner in ast.walk(statement)):
        match node:
            case ast.Return(value=ast.expr()) | ast.Yield() | ast.YieldFrom():
                return False
            case ast.Call(func=ast.Attribute(attr=method)) if method.endswith("_") and method not in KEEPS:
                return False
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store()) if name in scope.params:
                return False
            case ast.AugAssign():
                return False
    return True


def _is_linear(samples: Forwards, scope: Scope) -> bool:
    """Whether a function returns its last argument in proportion, by the same numbers in every process."""
    settings = {it.arg: value for it, value in scope.signature.defaults}
    given = [it for it in scope.params if it not in settings]
    hook = _Hook(samples, set(given[-1:]), settings)
    if isinstance(scope.node, ast.Lambda):
        return hook.is_linear(scope.node.body)
    *first, last = scope.body
    return all(map(hook.keeps, first)) and isinstance(last, ast.Return) and hook.is_linear(last.value)


def _used(samples: Forwards, scope: Scope) -> list[Value]:
    """What a function uses beside what it is given."""
    return [kinds.tensor(samples.of(it), it) for it in _from_outside(samples, scope)]


def _from_outside(samples: Forwards, scope: Scope) -> Iterator[ast.expr]:
    """The names that a function finds outside of itself, with the attributes and entries of them that it asks for."""
    program = samples.program
    yield from (it for _, it in scope.signature.defaults)
    for node in (inner for statement in scope.body for inner in ast.walk(statement)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in scope.names:
            used: ast.expr = node
            while (
                isinstance(around := program.parent(used), ast.Attribute | ast.Subscript)
                and around.value is used
            ):
                used = around
            yield used


class _Hook:
    """The statements of a hook; ``names`` are those of the gradient, ``settings`` are defaults by their names."""

    def __init__(self, samples: Forwards, names: set[str], settings: dict[str, ast.expr]) -> None:
        self._samples = samples
        self._names = names
        self._settings = settings

    def keeps(self, statement: ast.stmt) -> bool:
        """Whether the gradient is linear after a statement if it is before."""
        match statement:
            case ast.Expr(value=ast.Constant()):
                return True
            case ast.Expr(value=ast.Call() as call):
                return self.is_linear(call)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if self.is_linear(value):
                self._names.add(name)
                return True
            case ast.Assign(targets=[ast.Subscript(value=held, slice=place)], value=ast.Constant(value=0)):
                return self._is_gradient(held) and self._is_fixed(place)
            case ast.AugAssign(target=target, op=ast.Mult() | ast.Div(), value=value):
                return self._is_gradient(target) and self._is_fixed(value)
        return False

    def is_linear(self, node: ast.expr | None) -> bool:
        """Whether an expression is the gradient, in proportion."""
        match node:
            case ast.Name():
                return self._is_gradient(node)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return self.is_linear(inner)
            case ast.BinOp(op=ast.Mult(), left=left, right=right):
                return (self.is_linear(left) and self._is_fixed(right)) or (
                    self._is_fixed(left) and self.is_linear(right)
                )
            case ast.BinOp(op=ast.Div(), left=left, right=right):
                return self.is_linear(left) and self._is_fixed(right)
            case ast.Call(func=ast.Attribute(value=inner, attr=method), args=args) if method in SCALES:
                return self.is_linear(inner) and all(map(self._is_fixed, args))
            case ast.Call(func=ast.Attribute(value=inner, attr=method)) if method in HANDS_GRADIENT_ON:
                return self.is_linear(inner)
        return False

    def _is_gradient(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self._names

    def _is_fixed(self, node: ast.expr) -> bool:
        """Whether something is the same in every process, whatever the gradient is."""
        told = {
            id(it.value) for it in ast.walk(node) if isinstance(it, ast.Attribute) and it.attr in NO_GRADIENT
        }
        names = [it for it in ast.walk(node) if isinstance(it, ast.Name) and id(it) not in told]
        if any(it.id in self._names for it in names):
            return False
        if isinstance(node, ast.Name) and node.id in self._settings:
            return self._is_fixed(self._settings[node.id])
        return isinstance(node, ast.Slice) or kinds.tensor(self._samples.of(node), node) in PLAIN
