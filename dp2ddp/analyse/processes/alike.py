"""What may come out differently on each rank: clocks, seeds, exceptions, orders of what is ready first."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.analyse.api.iteration import FUNCTION_ARGUMENTS
from dp2ddp.analyse.api.layers import CALLBACK, STEPS_OF_TRAINING
from dp2ddp.analyse.api.naming import LOADER
from dp2ddp.analyse.api.numbers import PASSES_NUMBER_ON
from dp2ddp.analyse.api.processes import (
    AS_COMPLETED,
    ENDS,
    OF_OTHERS,
    QUEUES,
    RECEIVES,
    SOCKETS,
    TAKES_AS_READY,
    UNORDERED,
)
from dp2ddp.analyse.api.randomness import (
    DISTRIBUTION_METHODS,
    DRAWING_METHODS,
    DRAWS,
    GENERATOR_STATES,
    OF_PROCESS,
    SEED_ARGUMENTS,
    SEEDS,
    UNSEEDED,
)
from dp2ddp.analyse.context import LOOPS, Context
from dp2ddp.analyse.processes.conditions import assigned
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.values import Bound, Cls, Func, Inst, full_name
from dp2ddp.facts import NO_TIER, Agreement, Obstacle


def obstacles(context: Context) -> Iterator[Obstacle]:
    """What may part the ranks, in an exceptional run: it is said, and the runtime ends a job whose ranks part."""
    for node in list(context.program.nodes.values()):
        if not context.runs_in_training(node):
            continue
        match node:
            case ast.Call():
                call = context.program.call(node)
                if call is not None:
                    yield from _queue(context, call)
            case ast.If() | ast.While():
                yield from _clock(context, node)
            case ast.Try():
                yield from _handlers(context, node)


# Clocks


def _own(context: Context, node: ast.expr | None, depth: int = 0) -> bool:
    """Whether a value is made from the clock, or something else of this process's own."""
    if depth > 6 or id(node) in context.agreed:
        return False
    inner: list[ast.expr] = []
    match node:
        case ast.Call():
            call = context.program.call(node)
            names = call.names if call is not None else set()
            if names & OF_PROCESS:
                return True
            if names and names <= PASSES_NUMBER_ON:
                inner = node.args
            elif isinstance(node.func, ast.Attribute):  # `elapsed.total_seconds()`
                inner = [node.func.value]
        case ast.Name() | ast.Attribute():
            inner = assigned(context, node)
            if isinstance(node, ast.Attribute) and not inner:  # `datetime.now().microsecond`
                inner = [node.value] if isinstance(node.value, ast.Call) else []
        case ast.Compare() if context.asks_identity(node):
            return False
        case ast.BinOp() | ast.UnaryOp() | ast.BoolOp() | ast.Compare() | ast.IfExp():
            inner = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    return any(_own(context, child, depth + 1) for child in inner)


def seeds(context: Context) -> Iterator[Agreement]:
    """Generators that each process would seed otherwise: with nothing, or by the clock."""
    for call in context.program.calls:
        if not call.names & (SEEDS | UNSEEDED) or not context.runs_in_training(call.node):
            continue
        given = next(filter(None, (call.argument(it, 0) for it in sorted(SEED_ARGUMENTS))), None)
        nothing = given is None or (isinstance(given, ast.Constant) and given.value is None)
        if nothing and not call.names & UNSEEDED:
            continue
        handled = any(isinstance(it, ast.ExceptHandler) for it in context.program.ancestors(call.node))
        if (nothing or _own(context, given)) and not handled:
            where = "worker" if in_worker(context, call.node) else "main"
            if any(name.startswith("torch.") and name.endswith(".seed") for name in call.names):
                if where == "worker":
                    continue  # torch has seeded it alike
                where = "torch"  # takes no number
            function = context.program.anchor(call.node.func)
            if "torch.Generator.seed" in call.names and isinstance(call.node.func, ast.Attribute):
                where, function = "generator", context.program.anchor(call.node.func.value)
            what = ast.unparse(call.node)
            yield Agreement(**context.place(call.node), what=what, seeds=where, function=function)


def in_worker(context: Context, node: ast.AST) -> bool:
    """Whether code runs in a loader's workers: in a data set's class, or in a function given to a loader."""
    program = context.program
    given = {
        value
        for call in context.loaders
        for name in FUNCTION_ARGUMENTS
        if (argument := context.loader_arguments(call).argument(name)) is not None
        for value in program.values(argument)
    }
    for around in program.ancestors(node):
        if isinstance(around, ast.FunctionDef | ast.Lambda):
            func = Func(program.by_node[id(around)].index)
            if func in given or any(isinstance(value, Bound) and value.func == func for value in given):
                return True
        if isinstance(around, ast.ClassDef):
            cls = Cls(program.by_node[id(around)].index)
            return any(full_name(base).endswith("Dataset") for base in program.bases(cls))
    return False


def asks_the_clock(context: Context, node: ast.If | ast.While) -> bool:
    """Whether the clock, or another value of this process's own, decides how the training goes on."""
    if not _own(context, node.test):
        return False
    leaving = (ast.Break, ast.Continue, ast.Return, ast.Raise)
    inside = [inner for part in (*node.body, *node.orelse) for inner in _run(context, part)]
    leaves = isinstance(node, ast.If) and any(
        isinstance(inner, leaving) for part in node.body for inner in context.program.descendants(part)
    )
    return leaves or any(works(context, inner) for inner in inside)


def _clock(context: Context, node: ast.If | ast.While) -> Iterator[Obstacle]:
    if asks_the_clock(context, node):
        yield context.obstacle(
            node,
            f"control flow depends on the clock, `{ast.unparse(node.test)}`, which differs across ranks",
            "no action needed, unless the job stops here: then use `ddp.from_main_process(…)`",
            NO_TIER,
            works=True,
        )


def _run(context: Context, node: ast.AST) -> Iterator[ast.AST]:
    """All nodes that running a piece of code may run."""
    nodes = context.program.nodes
    yield from (nodes[key] for key in context.runs(node) if key in nodes)


def works(context: Context, node: ast.AST) -> bool:
    """Whether a call takes part in the training: the wrapped model, its backward pass, a step, a batch drawn."""
    if not isinstance(node, ast.Call):
        return isinstance(node, ast.For) and bool(
            context.made(context.iterated(context.program.values(node.iter)), LOADER)
        )
    call = context.program.call(node)
    if call is None:
        return False
    return context.method(node) in STEPS_OF_TRAINING or context.is_wrapped(call.callees) or draws(call)


# Exceptions


def _handlers(context: Context, node: ast.Try) -> Iterator[Obstacle]:
    """An exception that one process alone has, and goes on after."""
    program = context.program
    runs = set().union(*(context.runs(part) for part in node.body))
    if not any(id(backward) in runs for backward in context.backwards):
        return
    in_loop = _in_loop(context, node)
    for handler in node.handlers:
        if ends(context, handler.body):
            continue
        names = ast.unparse(handler.type) if handler.type is not None else ""
        if names == "KeyboardInterrupt":
            yield context.obstacle(
                handler.body[0],
                "on Ctrl-C every rank runs this `except` block on its own and is killed within seconds",
                "keep collectives such as `ddp.barrier()` out of it",
                NO_TIER,
                works=True,
            )
        elif in_loop:
            yield context.obstacle(
                program.statement(handler.body[0]),
                "if only some ranks catch an exception here, ranks diverge and the job stops with an error",
                "re-raise it, or prevent it (if out of memory: use smaller batches)",
                NO_TIER,
                works=True,
            )


def _in_loop(context: Context, node: ast.AST) -> bool:
    for around in context.program.ancestors(node):
        if isinstance(around, LOOPS):
            return True
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return False
    return False


def ends(context: Context, body: list[ast.stmt]) -> bool:
    """Whether a handler ends the program, or hands the exception on."""
    last = body[-1]
    if isinstance(last, ast.Raise):
        return True
    call = context.program.call(last.value) if isinstance(last, ast.Expr) else None
    return call is not None and bool(call.names & ENDS)


# Random numbers, orders


def draws(call: Call) -> bool:
    """Whether a call draws random numbers from a generator that all code shares."""
    method = call.node.func.attr if isinstance(call.node.func, ast.Attribute) else ""
    if method in DRAWING_METHODS or is_of_distribution(call):
        return True
    seeding = SEEDS | UNSEEDED | GENERATOR_STATES
    return any(name.startswith(DRAWS) and name not in seeding for name in call.names)


def is_of_distribution(call: Call) -> bool:
    """Whether a call draws from a distribution of torch's, or from something unknown that is sampled like one."""
    method = call.node.func.attr if isinstance(call.node.func, ast.Attribute) else ""
    own = any(isinstance(it, Func | Bound) for it in call.callees)
    return method in DISTRIBUTION_METHODS and not own and not any(it.startswith(DRAWS) for it in call.names)


def _queue(context: Context, call: Call) -> Iterator[Obstacle]:
    """Batches that come in the order in which threads or processes are done with them, or from such as draw alone."""
    what = ast.unparse(call.node)
    if call.names & {"multiprocessing.connection.wait"} and "sentinel" in what:
        return  # for processes to end: they hand over nothing
    as_ready = _is_as_ready(call)
    if not (as_ready or call.names & OF_OTHERS) or _is_of_replicas(context, call):
        return
    if as_ready:
        yield context.obstacle(
            call.node,
            f"`{what}` yields results in completion order, which differs across ranks",
            "no action needed, unless training uses them: read them in submission order",
            NO_TIER,
        )
    else:
        yield context.obstacle(
            call.node,
            f"`{what}` yields results of each rank's own workers, whose random numbers differ across ranks",
            "no action needed, unless training uses them: use rank 0's, `ddp.from_main_process(…)`",
            NO_TIER,
        )


def _is_of_replicas(context: Context, call: Call) -> bool:
    """Whether a call stands in what layers make that are called back: replicas talk by it, and ranks by the runtime."""
    owner = call.scope.owner
    if owner is None:
        return False
    makers = [it.scope.owner for it in context.program.calls if owner in it.callees]
    return bool(makers) and all(
        it is not None and context.program.methods(Inst(it, 0), CALLBACK, call.node) for it in makers
    )


def _is_as_ready(call: Call) -> bool:
    """Whether a call takes what is ready first, whichever that is."""
    named = any(
        name.startswith(homes) and name.endswith(takes)
        for name in call.names
        for homes, takes in ((QUEUES, TAKES_AS_READY), (SOCKETS, RECEIVES))
    )
    told = [
        (call.argument(argument), value)
        for name in call.names & UNORDERED.keys()
        for argument, value in [UNORDERED[name]]
    ]
    asked = any(isinstance(it, ast.Constant) and it.value == value for it, value in told)
    return named or asked or bool(call.names & AS_COMPLETED)
