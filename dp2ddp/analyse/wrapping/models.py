"""Which models DataParallel wraps, where they are moved to the device, and under which condition."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile

from dp2ddp.analyse.api.containers import LIST_ADDS
from dp2ddp.analyse.api.files import KNOWN_HOMES
from dp2ddp.analyse.api.handing import ASKING
from dp2ddp.analyse.api.inspection import ASKS_FOR_WRAP
from dp2ddp.analyse.api.layers import BESIDE_OPTIMIZERS, HOLDS_PARAMETERS, MODULE_NAMES, WRAP_NAMES
from dp2ddp.analyse.api.parallel import FUNCTION, STEPS, WRAP
from dp2ddp.analyse.api.processes import STARTED
from dp2ddp.analyse.api.purity import UNTRAINED
from dp2ddp.analyse.context import LOOPS, Context, is_inserted, is_main_guard, once, root_name
from dp2ddp.analyse.processes import branches
from dp2ddp.analyse.processes.answers import Answers, Literals
from dp2ddp.analyse.processes.conditions import (
    asks_for_gpus,
    asks_machine,
    assigned,
    counts_gpus,
    decides_device,
    is_choice,
    is_device,
    is_true,
    leaves_before,
)
from dp2ddp.analyse.processes.devices import is_current, is_gpu
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.signature import is_spread
from dp2ddp.analyse.program.values import (
    Bound,
    Cls,
    Const,
    Ext,
    Func,
    Inst,
    Made,
    Mod,
    Value,
    Values,
    full_name,
)
from dp2ddp.analyse.wrapping import functional, parallel
from dp2ddp.facts import ANY_TIER, CURRENT, NO_TIER, SHARDED_ONLY, Condition, Obstacle, Problem, Unused, Wrap
from dp2ddp.plan import Anchor


def collect(context: Context) -> tuple[Wrap, ...]:
    """Every wrap that a program runs and trains."""
    wraps = ((call, _wrap(context, call)) for call in context.wraps if context.runs_in_training(call.node))
    return tuple(_assuming(context, call, wrap) for call, wrap in wraps)


@dataclass(frozen=True)
class _Unsettled(Problem):
    """It can't be told when a model is wrapped. ``is_condition``: where it is not, it is as if nothing wrapped it."""

    is_condition: bool = False


def is_conditional(wrap: Wrap) -> bool:
    """Whether a model is wrapped under a condition that stays: one process is to train where it is not."""
    return wrap.problem is not None and wrap.problem.concerns == SHARDED_ONLY


def _assuming(context: Context, call: Call, wrap: Wrap) -> Wrap:
    """A wrap of which it can't be told when it is made, with what has to hold for the model to be trained in parts."""
    if not isinstance(wrap.problem, _Unsettled):
        return wrap
    if wrap.problem.is_condition and _trains_by_optimizers(context):
        problem = replace(wrap.problem, help="", forbids=NO_TIER, works=True, concerns=SHARDED_ONLY)
        return replace(wrap, problem=problem)
    text = "with several ranks the model that is trained is always wrapped here"
    return replace(wrap, problem=replace(wrap.problem, assumes=(context.assumption(call.node, text),)))


def obstacles(context: Context) -> Iterator[Obstacle]:
    """Other ways to use several GPUs, which are not converted."""
    program = context.program
    for call in context.program.calls:
        if FUNCTION in call.names:
            yield _replicating(context, call)
        trained = context.runs_in_training(call.node)
        for callee in call.callees if (trained or not context.scripts) and WRAP not in call.names else ():
            if isinstance(callee, Ext) and _looks_alike(callee.name):
                yield context.obstacle(
                    call.node,
                    f"{callee.name} is neither nn.DataParallel nor a class of this project",
                    "use nn.DataParallel, or copy the file of that class into the project if it derives from it",
                )
        yield from _handed_over(context, call)
    for step in STEPS:
        for target, statement in context.attribute_assignments.get(step, ()):
            if context.is_wrapped(program.values(target.value)):
                given = [it for it in program.values(statement.value) if isinstance(it, Func)]
                scopes = [program.scopes[it.scope] for it in given]
                if step == "replicate" and parallel.calls_back(context, scopes):
                    continue
                yield context.obstacle(
                    statement,
                    f"`{ast.unparse(target)} = …` replaces DataParallel's `{step}`",
                    "remove it; for BatchNorm use torch.nn.SyncBatchNorm",
                    SHARDED_ONLY,
                )
    yield from _lacking(context)
    # Where a program is converted already, a wrap that is left serves a script that only predicts.
    started = any(call.names & STARTED for call in program.calls)
    every = (*context.wraps, *context.idle_wraps)
    for call in every if not started else ():
        if not context.backwards:
            yield from _untrained(context, call)
        elif not context.runs_in_training(call.node):
            if not _is_of_call(context, call):
                yield from _unused(context, call)
            elif _may_run(context, call):
                yield _replicating(context, call)


def _lacking(context: Context) -> Iterator[Obstacle]:
    """``model.classifier`` of a wrapped model: an error now, as it was wherever there were several GPUs."""
    program = context.program
    plain = {id(call.node) for call in context.wraps if call.callees == {Ext(WRAP)}}
    plain &= context.trained_wraps
    for node in program.nodes.values():
        if not isinstance(node, ast.Attribute) or node.attr in WRAP_NAMES or node.attr.startswith("_"):
            continue
        values = program.values(node.value)
        sites = {value.site for value in values if isinstance(value, Made) and value.name == WRAP}
        if not isinstance(node.ctx, ast.Load) or not sites or len(sites) < len(values) or not sites <= plain:
            continue
        held = context.attribute_assignments.get(node.attr, ())
        if any(program.values(target.value) & values for target, _ in held) or _is_asked_before(
            context, node
        ):
            continue
        if context.runs_in_training(node):
            yield context.obstacle(
                node,
                f"`{ast.unparse(node)}` fails, as with nn.DataParallel: the wrapper has no attribute `{node.attr}`",
                f"use `{ast.unparse(node.value)}.module.{node.attr}`",
                NO_TIER,
            )


def _is_asked_before(context: Context, node: ast.AST) -> bool:
    """Whether a place is only come to where a model turned out to be bare, or an error there is expected."""
    for around in context.program.ancestors(node):
        if isinstance(around, ast.Try) and around.handlers:
            return True
        if isinstance(around, ast.If | ast.IfExp):
            asked, whole = ast.unparse(around.test), ast.unparse(around)
            if any(word in asked for word in ASKS_FOR_WRAP) or ".module" in whole:
                return True
    return False


def _may_run(context: Context, call: Call) -> bool:
    """Whether a call stands in a network of the training, which some other module calls."""
    program = context.program
    owner = program.scope(call.node).owner
    makes = (it for it in program.calls if context.runs_in_training(it.node) or not context.scripts)
    return owner is None or any(
        isinstance(callee, Cls) and owner in (callee, *program.bases(callee))
        for it in makes
        for callee in it.callees
    )


def _unused(context: Context, call: Call) -> Iterator[Unused]:
    """A wrap that no program runs and trains: worth an error only where nothing else is there to be converted."""
    runs = any(id(call.node) in context.program_runs(file) for file in context.program.files)
    others = context.scripts or context.beside
    if runs and (missing := _missing(context, call)):
        yield missing
        return
    if others and runs:
        return
    if runs and not others and (found := list(_untrained(context, call))):
        yield from found
        return
    noted = bool(others) or runs
    message = "this DataParallel is not converted: no training script that was given runs it"
    help = "" if runs else "if another script runs it, convert that one"
    if not runs and (uncalled := _uncalled(context, call)):
        message, help = (
            f"this DataParallel is not converted: `{uncalled}()` is never called",
            f"call `{uncalled}()`",
        )
    problem = Problem(message, help, NO_TIER if noted else ANY_TIER, works=noted)
    yield Unused(**context.place(call.node), problem=problem)


def _untrained(context: Context, call: Call) -> Iterator[Unused]:
    """A wrap in a program without a backward pass, which something unknown trains, or may train."""
    program = context.program
    if missing := _missing(context, call):
        yield missing
        return
    inside = _runs_with(context, call)
    trains = next((it for it in inside if _steps(context, it)), None)
    found = trains or next((it for it in inside if _is_given(context, it, partial(_is_made_by, call))), None)
    if found is not None:
        at = program.location(found.node)
        what = f"`{ast.unparse(found.node.func)}()` ({at.path.name}:{at.span.line})"
        does = "trains" if trains is not None else "may train"
        message = f"this DataParallel is not converted: no backward pass was found, but {what} {does}"
        help = "call `loss.backward()` and `optimizer.step()` in the program's own training loop"
        problem = Problem(message, help, ANY_TIER if trains is not None else NO_TIER, works=trains is None)
        yield Unused(**context.place(call.node), problem=problem)


def _runs_with(context: Context, call: Call) -> list[Call]:
    """The calls in the programs that run a wrap."""
    runs = set().union(
        *(it for it in map(context.program_runs, context.program.files) if id(call.node) in it)
    )
    return [it for it in context.program.calls if id(it.node) in runs]


def _missing(context: Context, call: Call) -> Unused | None:
    """A wrap that something of a module gets which was not found, in a program that trains.

    It has an optimizer, or the module is the project's, in one of several folders.
    """
    program = context.program
    inside = _runs_with(context, call)
    for it in inside:
        given = (value for node in handed(it.node) for value in program.values(node))
        names = _from_outside(context, it) if any(_is_made_by(call, value) for value in given) else ()
        for name in names:
            places = program.project.places(program.file(it.node).path, name)
            makes = any(context.optimizes(value) for at in inside for value in program.values(at.node))
            if places is not None and (places or makes):
                at = program.location(it.node)
                what = f"`{ast.unparse(it.node.func)}()` ({at.path.name}:{at.span.line})"
                found = f"several folders have a `{name}`" if places else f"`{name}` was not found"
                message = f"this DataParallel is not converted: {what} may train it, but {found}"
                help = f"{'' if places else 'install it, or '}tell dp2ddp its folder by PYTHONPATH"
                problem = Problem(message, help, ANY_TIER)
                return Unused(**context.place(call.node), problem=problem)
    return None


def _from_outside(context: Context, call: Call) -> list[str]:
    """The modules from outside the project that a call is of, or that its class gets its bases from."""
    classes = (it for it in call.callees if isinstance(it, Cls))
    names = {it.name for cls in classes for it in context.program.bases(cls) if isinstance(it, Ext)}
    names |= set() if context.program.entered(call.node) else call.names
    return sorted({it.partition(".")[0] for it in names} - KNOWN_HOMES)


def _steps(context: Context, call: Call) -> bool:
    """Whether a call makes an optimizer's step, or may: something from outside is given the optimizer in a loop."""
    program, func = context.program, call.node.func
    if isinstance(func, ast.Attribute) and func.attr == "step":
        return any(map(context.optimizes, program.values(func.value)))
    in_loop = any(isinstance(it, LOOPS) for it in program.ancestors(call.node))
    return in_loop and _is_given(context, call, context.optimizes)


def _is_given(context: Context, call: Call, is_it: Callable[[Value], bool]) -> bool:
    """Whether something from outside, of which nothing is known, is given a value of a kind."""
    homes = {it.partition(".")[0] for it in call.names}
    if context.program.entered(call.node) or homes & (sys.stdlib_module_names | KNOWN_HOMES):
        return False
    return any(is_it(value) for it in handed(call.node) for value in context.program.values(it))


def _is_made_by(call: Call, value: Value) -> bool:
    return isinstance(value, Made) and value.site == id(call.node)


def _uncalled(context: Context, call: Call) -> str:
    """The function at the root of a wrap that nothing calls, in a file that is a program by what it is called."""
    scope, seen = context.program.scope(call.node), set[int]()
    while scope.index not in seen:
        seen.add(scope.index)
        callers = context.callers.get(scope.index, ())
        if not callers:
            node = scope.node
            plain = isinstance(node, ast.FunctionDef) and node.name == "main" and not node.decorator_list
            names = (it.id for it in context.program.nodes.values() if isinstance(it, ast.Name))
            known = plain and scope.parent is not None and scope.parent.is_module and "main" not in names
            imported = (
                it.name
                for file in context.program.files
                for node in ast.walk(file.tree)
                if isinstance(node, ast.ImportFrom)
                for it in node.names
            )
            return "main" if known and "main" not in imported else ""
        scope = context.program.scope(callers[0])
    return ""


def _handed_over(context: Context, call: Call) -> Iterator[Obstacle]:
    """nn.DataParallel itself, given to something outside: ``partial(nn.DataParallel, device_ids=ids)``."""
    outside = {name for name in call.names - {WRAP} if not name.startswith(ASKING)}
    for argument in handed(call.node) if outside else ():
        if Ext(WRAP) in context.program.values(argument) and not isinstance(argument, ast.Call):
            yield context.obstacle(
                call.node,
                f"nn.DataParallel is passed to {sorted(outside)[0]}(), whose result is unknown",
                "call nn.DataParallel directly",
            )


def _replicating(context: Context, call: Call) -> Obstacle:
    """A call of ``data_parallel()``."""
    if functional.is_untrained(context, call):
        return context.obstacle(
            call.node,
            "data_parallel() splits its input, but each rank already has only its local batch",
            "call the model directly here",
            SHARDED_ONLY,
        )
    return context.obstacle(
        call.node,
        "data_parallel() replicates the model at every call",
        "wrap the model once in nn.DataParallel and call that instead, then convert again",
    )


def untracked(context: Context) -> Iterator[ast.expr]:
    """What optimizers train and no wrapped model has: its gradients would stay each process's own."""
    program = context.program
    held = _held(context, context.wrapped)
    names = {id(node) for module in context.given.values() for node in _definitions(context, module)}
    for call in program.calls:
        adds = getattr(call.node.func, "attr", "") == "add_param_group"
        params = call.argument("param_group" if adds else "params", 0)
        if params is None or not (adds or any(map(_is_optimizer, call.names))):
            continue
        if not context.runs_in_training(call.node):
            continue
        owners = list(_owners(context, params, 0))
        if not owners:
            yield params
        for owner in owners:
            if _may_be_trained(context, owner) and not _is_tracked(context, owner, held, names):
                origins = list(_origins(context, owner))
                yield from (it for it in origins if it is owner or not _is_tracked(context, it, held, names))


def _may_be_trained(context: Context, owner: ast.expr) -> bool:
    """Whether something may have parameters: settings, numbers, loggers and modules of libraries have none."""
    values = context.program.values(owner)
    return not values or not all(
        isinstance(it, Const | Ext | Mod) or full_name(it).startswith(UNTRAINED) for it in values
    )


def _origins(context: Context, owner: ast.expr, depth: int = 0) -> Iterator[ast.expr]:
    """What the training gives a function, where an expression is that function's parameter."""
    program = context.program
    found = program.definitions(owner) if isinstance(owner, ast.Name) else []
    parameters = [it for it in found if isinstance(it, ast.arg)]
    given = [it for parameter in parameters for it in program.given(parameter)]
    if not given or len(parameters) < len(found) or depth > 6:
        yield owner
        return
    for it in given:
        if context.runs_in_training(it):
            yield from _origins(context, it, depth + 1)


def _trains_by_optimizers(context: Context) -> bool:
    """Whether optimizers make the steps: the runtime looks at what the first steps of torch's train."""
    return any(map(context.runs_in_training, context.steps))


def _is_optimizer(name: str) -> bool:
    package, _, last = name.rpartition(".")
    others = package.endswith(BESIDE_OPTIMIZERS)
    return package.startswith("torch.optim") and last[:1].isupper() and not others


def _owners(context: Context, node: ast.expr, depth: int) -> Iterator[ast.expr]:
    """The models whose parameters an expression has: ``x`` of ``x.parameters()``, through names, lists and calls."""
    if depth > 6:
        return
    program = context.program
    for inner in _handing_on(context, node):
        if isinstance(inner, ast.Call):
            yield from _asked(context, inner, depth)
        elif isinstance(inner, ast.Name | ast.Attribute) and isinstance(inner.ctx, ast.Load):
            parent = program.parent(inner)
            if not isinstance(parent, ast.Attribute) and getattr(parent, "func", None) is not inner:
                found = list(_named(context, inner, depth))
                yield from found
                if not found and _is_element(parent, inner):
                    yield inner  # a parameter by itself


def _handing_on(context: Context, node: ast.AST) -> Iterator[ast.AST]:
    """A node with what it is made of that has parameters.

    That is not what functions of the project are given, as what they return says it; nor the options of a group.
    """
    yield node
    inside = ast.iter_child_nodes(node)
    if isinstance(node, ast.Call) and (_is_followed(context, node) or _is_parameter(context, node)):
        return
    if isinstance(node, ast.Dict) and (group := _group(node)) is not None:
        inside = iter([group])
    for inner in inside:
        yield from _handing_on(context, inner)


def _group(node: ast.Dict) -> ast.expr | None:
    """What an optimizer reads as the parameters of a group: ``{"params": …, "lr": …}``."""
    pairs = zip(node.keys, node.values, strict=True)
    return next((it for key, it in pairs if isinstance(key, ast.Constant) and key.value == "params"), None)


def _is_parameter(context: Context, node: ast.Call) -> bool:
    """Whether a call makes a parameter."""
    call = context.program.call(node)
    return call is not None and bool(call.names) and call.names <= HOLDS_PARAMETERS


def _is_followed(context: Context, node: ast.Call) -> bool:
    """Whether a call is one of a function of the project."""
    call = context.program.call(node)
    return call is not None and any(isinstance(it, Func | Bound) for it in call.callees)


def _is_element(parent: ast.AST | None, node: ast.expr) -> bool:
    """Whether an expression is one of several parameters: in a list, or under the key that an optimizer reads."""
    match parent:
        case ast.List() | ast.Tuple():
            return True
        case ast.Dict():
            return _group(parent) is node
    return False


def _asked(context: Context, call: ast.Call, depth: int) -> Iterator[ast.expr]:
    """The models that a call is asked for the parameters of: ``x.parameters()``, ``x.policies()``, ``groups(x)``."""
    program = context.program
    if _is_parameter(context, call):
        return
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if any(word in name.lower() for word in ("param", "polic", "group")):
        outside = isinstance(function, ast.Attribute) and not (
            isinstance(function.value, ast.Name) and isinstance(_only(program.values(function.value)), Mod)
        )
        if outside:
            yield function.value  # type: ignore[union-attr]
        else:
            given = handed(call)
            yield from (
                it for it in given if isinstance(it, ast.Name | ast.Attribute) and _is_model(context, it)
            )
        return
    for index in program.called_scopes(call):
        for part in program.body(program.scopes[index]):
            if isinstance(part, ast.Return | ast.Yield) and part.value is not None:
                yield from _owners(context, part.value, depth + 1)


def _only(values: Values) -> object:
    return next(iter(values)) if len(values) == 1 else None


def _is_model(context: Context, node: ast.expr) -> bool:
    values = context.program.values(node)
    return context.is_wrapped(values) or any(context.module_class(value) for value in values)


def _named(context: Context, name: ast.Name | ast.Attribute, depth: int) -> Iterator[ast.expr]:
    """The models behind a name for parameters: what is assigned to it, added to it or appended to it."""
    program = context.program
    for definition in program.definitions(name):
        around = program.parent(definition)
        if isinstance(around, ast.comprehension):
            yield from _owners(context, around.iter, depth + 1)
        elif isinstance(definition, ast.arg):
            for given in program.given(definition):
                yield from _owners(context, given, depth + 1)
        else:
            statement = program.statement(definition)
            if isinstance(statement, ast.Assign | ast.AugAssign):
                yield from _owners(context, statement.value, depth + 1)
            elif isinstance(statement, ast.For):
                yield from _owners(context, statement.iter, depth + 1)
    text = ast.unparse(name)
    for node in program.body(program.scope(name)) if depth < 3 else ():
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in LIST_ADDS
            and ast.unparse(node.func.value) == text
        ):
            for argument in node.args:
                yield from _owners(context, argument, depth + 1)


def _definitions(context: Context, node: ast.AST) -> list[ast.AST]:
    """Where the name at the root of ``x.y.z`` is bound."""
    root = root_name(node)
    return context.program.definitions(root) if root is not None else []


def _held(context: Context, values: Values) -> Values:
    """Modules with all that they hold in their attributes."""
    found = set(values)
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        for _, inner in context.program.fields(value) if isinstance(value, Inst) else ():
            new = {it for it in inner if context.module_class(it)} - found
            found |= new
            waiting += new
    return frozenset(found)


def _is_tracked(context: Context, owner: ast.expr, held: Values, names: set[int]) -> bool:
    """Whether a model is wrapped, is going to be, or is part of such a one."""
    values = context.program.values(owner)
    models = [it for it in values if context.is_wrapped(frozenset([it])) or context.module_class(it)]
    tracked = all(
        context.is_wrapped(frozenset([it]))
        or it in held
        or (isinstance(it, Inst) and _holds_tracked(context, it, held))
        for it in models
    )
    if models and (tracked or isinstance(owner, ast.Name)):
        return tracked
    if not models and values & held:
        return True
    if isinstance(owner, ast.Name):
        found = context.program.definitions(owner)
        wraps = (context.program.statement(it) for it in found if not isinstance(it, ast.arg))
        return not values and (
            any(id(it) in names for it in found)
            or any(
                context.is_wrapped(context.program.values(it.value))
                for it in wraps
                if isinstance(it, ast.Assign)
            )
        )
    return isinstance(owner, ast.Attribute | ast.Subscript) and _is_tracked(context, owner.value, held, names)


def _holds_tracked(context: Context, module: Inst, held: Values) -> bool:
    """Whether all that a module has to train is a wrapped model, or part of one."""
    program = context.program
    if not any(context.is_wrapped(values) for _, values in program.fields(module)):
        return False
    for name, values in program.fields(module):
        fine = context.is_wrapped(values) or values & held
        trained = [it for it in values if context.module_class(it) or full_name(it) in HOLDS_PARAMETERS]
        if not fine and not all(full_name(it).endswith("Loss") for it in trained):
            return False
        if not values and is_called(context, module, name):
            return False
    return True


def is_called(context: Context, module: Inst, name: str) -> bool:
    """Whether an object's attribute is called: what is not followed may be a model."""
    return any(
        isinstance(call.node.func, ast.Attribute)
        and call.node.func.attr == name
        and module in context.program.values(call.node.func.value)
        for call in context.program.calls
    )


def _looks_alike(name: str) -> bool:
    last = name.rpartition(".")[2]
    return (
        "DataParallel" in last
        and "DistributedDataParallel" not in last
        and name != WRAP
        and not name.startswith("dp2ddp.")
    )


@dataclass(frozen=True)
class _Outer:
    """A wrap with the moves chained to it: ``nn.DataParallel(net).cuda()``."""

    node: ast.expr
    last: ast.Call | None = None

    @property
    def device(self) -> ast.expr | None:
        """What the last move names; None for ``.cuda()``."""
        return None if self.last is None else move_device(self.last)


def _wrap(context: Context, call: Call) -> Wrap:
    program = context.program
    anchor = program.anchor(call.node)
    if _is_of_call(context, call):
        return _of_call(context, call)
    if parallel.stays(context, call):
        return _staying(context, call)
    module = call.argument("module", 0)
    dim = call.argument("dim", 3)
    if isinstance(dim, ast.Constant) and dim.value == 0:
        dim = None
    wrap = Wrap(
        **context.place(call.node),
        module=program.anchor(module) if module is not None else anchor,
        imported=call.node.func.id if isinstance(call.node.func, ast.Name) else "",
        call=anchor,
        dim=program.anchor(dim) if dim is not None else None,
    )
    if module is None:
        return replace(
            wrap,
            problem=Problem(
                f"the model that `{ast.unparse(call.node)}` wraps is unknown",
                "assign the model to a variable first",
            ),
        )
    if is_spread(call.node):
        return replace(
            wrap,
            problem=Problem(
                "arguments of nn.DataParallel are passed by `*` or `**`: the model is unknown",
                "write them out: `nn.DataParallel(model)`",
            ),
        )
    if dim is not None:
        return replace(
            wrap,
            problem=Problem(
                f"`dim={ast.unparse(dim)}`: batches are split along a dimension other than 0",
                "put the batch in dimension 0",
                SHARDED_ONLY,
            ),
        )
    statement = program.statement(call.node)
    if context.branches is not None and anchor in context.branches.mixed:
        message = (
            f"`{ast.unparse(call.node.func)}` is DataParallel or a distributed wrapper, chosen elsewhere"
        )
        problem = _unclear(message, "wrap the model in a separate statement for each")
        return replace(wrap, problem=problem, otherwise=tuple(_parts(context, call.node)))
    if is_inserted(statement):
        return _in_place_of_calls(context, wrap, module, statement)
    outer = _outermost(context, call.node)
    condition = _condition(context, call.node, module, statement)
    if isinstance(condition, Problem):
        return replace(wrap, problem=condition)
    choice = _choice(context, call.node, module)
    device, moves = _device(context, outer, module, statement, wrap.ddp, condition, choice is not None)
    if isinstance(condition, Condition) and condition.part:
        device, moves = None, ()
    elif outer.last is not None and outer.device is None:
        device = _asked_about(context, statement) or device
    idle = _moved_on(context, statement, condition) if device is not None and outer.last is None else None
    return replace(
        wrap,
        at=program.anchor(choice or outer.node),
        device=device,
        moves=moves,
        idle=(program.anchor(idle), program.anchor(idle.func.value)) if idle is not None else None,  # type: ignore[attr-defined]
        moved=outer.last is not None,
        condition=condition,
    )


def _is_of_call(context: Context, call: Call) -> bool:
    """Whether a wrap stands for what a call of ``data_parallel()`` does, and not for one where the network is made."""
    return is_inserted(call.node) and not is_inserted(context.program.statement(call.node))


def _of_call(context: Context, call: Call) -> Wrap:
    """The wrap that a call of ``data_parallel()`` makes each time."""
    problem = Problem(
        "data_parallel() replicates the model at every call",
        "wrap the model once in nn.DataParallel",
        SHARDED_ONLY,
    )
    module = context.module_of(call)
    anchor = context.program.anchor(call.node)
    return Wrap(
        **context.place(call.node),
        module=context.program.anchor(module) if module is not None else anchor,
        imported="",
        call=anchor,
        stays=True,
        problem=problem,
    )


def _staying(context: Context, call: Call) -> Wrap:
    """A wrap in a class that is not torch's own: that needs a condition to go only where the batches are divided."""
    wrap = parallel.wrap(context, call)
    statement, module = context.program.statement(call.node), context.module_of(call)
    if wrap.problem is not None or module is None:
        return wrap
    condition = _condition(context, call.node, module, statement)
    if condition is None or isinstance(condition, Problem):
        return replace(wrap, problem=condition)
    if condition.option or condition.alternative or condition.guard or not condition.whole:
        tests = (it.test for it in context.program.ancestors(call.node) if isinstance(it, ast.If | ast.IfExp))
        under = "".join(f" `if {ast.unparse(it)}`" for it in [*tests][:1]) or " a condition"
        return replace(wrap, problem=_unclear(f"the model is wrapped only under{under}", "wrap it always"))
    return replace(wrap, condition=condition)


def _parts(context: Context, call: ast.Call) -> Iterator[tuple[str, Anchor]]:
    """The function of a call and its arguments, with what stands before each."""
    yield "", context.program.anchor(call.func)
    yield from (("", context.program.anchor(argument)) for argument in call.args)
    yield from ((f"{it.arg}=", context.program.anchor(it.value)) for it in call.keywords)


def _in_place_of_calls(context: Context, wrap: Wrap, module: ast.expr, statement: ast.stmt) -> Wrap:
    """The wrap of a network that calls ``data_parallel()``."""
    block = context.program.block(statement)
    last = block[block.index(statement) - 2]  # between them is the import
    device = None if _is_moved(context, module, statement) else f"{wrap.ddp}.device()"
    after = context.program.anchor(last)
    return replace(wrap, imported="", device=device, after=after, target=_key(module))


def is_move(node: ast.AST) -> bool:
    """``x.to(device)`` or ``x.cuda()``."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (node.func.attr == "cuda" or move_device(node) is not None)
    )


def move_device(node: ast.Call) -> ast.expr | None:
    """The device that ``x.to(device)`` names; None for ``x.cuda()``."""
    if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
        named = (it.value for it in node.keywords if it.arg == "device")
        return node.args[0] if node.args else next(named, None)
    return None


def _outermost(context: Context, node: ast.expr) -> _Outer:
    last = None
    while True:
        attribute = context.program.parent(node)
        call = context.program.parent(attribute) if isinstance(attribute, ast.Attribute) else None
        if not (isinstance(call, ast.Call) and call.func is attribute and is_move(call)):
            return _Outer(node, last)
        node = last = call


def _device(
    context: Context,
    outer: _Outer,
    module: ast.expr,
    statement: ast.stmt,
    ddp: str,
    condition: Condition | None,
    chosen: bool,
) -> tuple[Anchor | str | None, tuple[Anchor, ...]]:
    """Where the model must be moved before the wrap, and the later moves that this makes idle.

    Where it is not wrapped in each case, and nothing is seen to move it, it stays where the program has put it: the
    runtime moves it where there are several ranks. ``chosen``: whether a conditional expression wraps it.
    """
    program = context.program
    here = f"{ddp}.device()"
    # Moves under an option that stays are made under it. What asks for a GPU goes: there may be none.
    kept, goes = condition is not None and condition.option, condition is not None and not condition.option

    def written(move: ast.Call) -> Anchor | str:
        device = move_device(move)
        if device is None:
            return CURRENT if is_current(move) and not goes else here
        named = is_gpu(context, device) and (goes or not is_current(device))
        return here if named else program.anchor(device)

    later = list(_moves_after(context, statement, condition.at if goes and condition is not None else None))
    if kept:
        inside = [move for move in later if program.parent(move) is program.parent(statement)]
        later = [move for move in later if move not in inside]
        if inside and outer.last is None:
            return None, tuple(map(program.anchor, later))
    removed = tuple(map(program.anchor, later))
    if outer.last is not None:
        return written(outer.last), removed
    if _is_moved(context, module, statement):
        return None, removed
    idle = _moved_on(context, statement, condition)
    for move in (*(it.value for it in later), *([idle] if idle is not None else ())):  # type: ignore[attr-defined]
        device = move_device(move)
        if device is None or _bound_before(context, device, statement):
            return written(move), removed
    stays = chosen or (condition is not None and goes and not condition.guard)
    return None if stays else here, removed


def _moved_on(context: Context, statement: ast.stmt, condition: Condition | None) -> ast.Call | None:
    """The move with which the wrapped model goes on under another name, or is returned, right after its wrap."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target, node = _key(statement.targets[0]), statement
    if condition is not None and (condition.option or condition.guard):
        return None
    if condition is not None:
        node = next(
            it for it in context.program.ancestors(statement) if context.program.anchor(it) == condition.at
        )
    block = context.program.block(node)
    for after in block[block.index(node) + 1 :]:
        value = after.value if isinstance(after, ast.Assign | ast.Return) else None
        if value is not None and is_move(value) and _key(value.func.value) == target:  # type: ignore[attr-defined]
            return value if _is_device_move(context, value) else None  # type: ignore[arg-type]
        if _uses(after, target):
            return None
    return None


def _asked_about(context: Context, statement: ast.stmt) -> Anchor | None:
    """The device that a condition asks about: ``device`` of ``if device.type == "cuda"``."""
    match context.program.parent(statement):
        case ast.If(
            test=ast.Compare(left=ast.Attribute(attr="type", value=ast.Name() as device), ops=[ast.Eq()])
        ):
            return context.program.anchor(device) if is_device(context, device) else None
    return None


def _is_moved(context: Context, module: ast.expr, statement: ast.stmt, depth: int = 0) -> bool:
    """Whether the model is on its device already: in the expression, or by a statement that always runs before.

    Where it is a parameter, or what a function returns, that is looked up there.
    """
    if any(is_move(node) for node in _chain(module)):
        return True
    text = _key(module)
    for before in _before(context, statement):
        moved = is_move(getattr(before, "value", None))
        if isinstance(before, ast.Expr) and moved and _key(before.value.func.value) == text:  # type: ignore[attr-defined]
            return True
        for target in before.targets if isinstance(before, ast.Assign) else ():
            if _key(target) == text:
                return moved or _is_returned_moved(context, before.value, None, depth)  # type: ignore[attr-defined]
            names = [_key(part) for part in target.elts] if isinstance(target, ast.Tuple) else []
            if text in names:
                return _is_returned_moved(context, before.value, names.index(text), depth)  # type: ignore[attr-defined]
        if isinstance(before, ast.If) and _is_made_there(before, text):
            return True
    return _is_given_moved(context, module, depth)


def _is_given_moved(context: Context, module: ast.expr, depth: int) -> bool:
    """Whether a parameter is given a model that is on its device, wherever the function is called."""
    if depth > 3 or not isinstance(module, ast.Name):
        return False
    found = context.program.definitions(module)
    given = [it for arg in found if isinstance(arg, ast.arg) for it in context.program.given(arg)]
    return (
        bool(given)
        and all(isinstance(it, ast.arg) for it in found)
        and all(_is_moved(context, it, context.program.statement(it), depth + 1) for it in given)
    )


def _is_returned_moved(context: Context, value: ast.expr, place: int | None, depth: int) -> bool:
    """Whether a function of the project returns a model that is on its device, at a ``place`` of a tuple."""
    call = context.program.call(value) if isinstance(value, ast.Call) else None
    callees = [it.func if isinstance(it, Bound) else it for it in call.callees] if call is not None else []
    if depth > 3 or not callees or not all(isinstance(it, Func) for it in callees):
        return False
    returns = [
        it
        for callee in callees
        for it in context.program.body(context.program.scopes[callee.scope])  # type: ignore[union-attr]
        if isinstance(it, ast.Return)
    ]

    def is_moved(back: ast.Return) -> bool:
        model = back.value
        if isinstance(model, ast.Tuple) and place is not None and place < len(model.elts):
            model = model.elts[place]
        return model is not None and _is_moved(context, model, back, depth + 1)

    return bool(returns) and all(map(is_moved, returns))


def _is_made_there(condition: ast.If, name: str) -> bool:
    """Whether every branch of a condition makes a model on its device, or ends the program."""

    def makes(statement: ast.stmt) -> bool:
        if isinstance(statement, ast.If):
            return _is_made_there(statement, name)
        named = isinstance(statement, ast.Assign) and [_key(it) for it in statement.targets] == [name]
        return isinstance(statement, ast.Raise) or (named and is_move(statement.value))  # type: ignore[attr-defined]

    return all(bool(branch) and makes(branch[-1]) for branch in (condition.body, condition.orelse))


def _chain(node: ast.expr) -> Iterator[ast.expr]:
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield node
        node = node.func.value


def _key(node: ast.AST) -> str:
    """What tells two expressions apart, read or written."""
    return ast.unparse(node)


def _before(context: Context, statement: ast.stmt) -> Iterator[ast.stmt]:
    """Statements that have run whenever this one runs, nearest first; of conditions, those that ask for a GPU."""
    node: ast.AST = statement
    while isinstance(node, ast.stmt) and not isinstance(
        node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    ):
        block = context.program.block(node)
        for before in reversed(block[: block.index(node)]):
            yield before
            if isinstance(before, ast.If) and asks_for_gpus(context, before.test):
                yield from reversed(before.body)
        parent = context.program.parent(node)
        if not isinstance(parent, ast.stmt):
            return
        node = parent


def _moves_after(context: Context, statement: ast.stmt, around: Anchor | None = None) -> Iterator[ast.stmt]:
    """Later statements of the same block, or of the block round its ``if``, that only move the wrapped model.

    Those after its training, or after it has been called, say where it goes then. ``around``: an ``if`` that goes, with
    the moves after it.
    """
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return
    target = _key(statement.targets[0])
    node: ast.stmt = statement
    while True:
        block = context.program.block(node)
        for after in block[block.index(node) + 1 :]:
            if _only_moves(context, after, target):
                yield after
            elif isinstance(after, ast.Assign) and any(
                _key(assigned) == target for assigned in after.targets
            ):
                return
            elif _runs(context, after, statement):
                return
        parent = context.program.parent(node)
        if not isinstance(parent, ast.If):
            return
        if not asks_for_gpus(context, parent.test) and context.program.anchor(parent) != around:
            return
        node = parent


def _runs(context: Context, statement: ast.stmt, wrap: ast.Assign) -> bool:
    """Whether a statement trains, or calls the model that another one wraps."""
    nodes = context.runs(statement)
    if nodes & {id(it) for it in context.backwards}:
        return True
    values = context.program.values(wrap.value)
    calls = (context.program.call(it) for key in nodes if (it := context.program.nodes.get(key)) is not None)
    return any(call is not None and call.callees & values for call in calls)


def _only_moves(context: Context, statement: ast.stmt, target: str) -> bool:
    """``x.to(device)`` or ``x = x.to(device)``."""
    if not isinstance(statement, ast.Expr | ast.Assign) or not is_move(statement.value):
        return False
    move: ast.Call = statement.value  # type: ignore[assignment]
    if isinstance(statement, ast.Assign) and any(_key(assigned) != target for assigned in statement.targets):
        return False
    return _key(move.func.value) == target and _is_device_move(context, move)  # type: ignore[attr-defined]


def _is_device_move(context: Context, move: ast.Call) -> bool:
    """Not a change of type: ``.to(torch.float16)``."""
    device = move_device(move)
    return device is None or not any(
        isinstance(value, Ext) and not value.name.startswith("torch.device")
        for value in context.program.values(device)
    )


def _bound_before(context: Context, device: ast.expr, statement: ast.stmt) -> bool:
    order = context.program.order
    for node in ast.walk(device):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            found = context.program.definitions(node)
            same = [
                n for n in found if context.program.scope_of.get(id(n)) is context.program.scope(statement)
            ]
            if same and all(order[id(n)] > order[id(statement)] for n in same):
                return False
    return True


def _condition(
    context: Context, call: ast.expr, module: ast.expr, statement: ast.stmt
) -> Condition | Problem | None:
    """The ``if`` that decides whether the model is wrapped; None if it always is."""
    found = _deciding(context, call, module, statement)
    within = takewhile(lambda it: it is not statement, context.program.ancestors(call))
    if isinstance(found, Condition) and any(isinstance(it, ast.ListComp | ast.GeneratorExp) for it in within):
        return _sometimes("under a condition in this expression", "wrap each model in a separate statement")
    return found


def _deciding(
    context: Context, call: ast.expr, module: ast.expr, statement: ast.stmt
) -> Condition | Problem | None:
    program = context.program
    for around in program.ancestors(call):
        if around is _choice(context, call, module):
            continue
        if isinstance(around, ast.IfExp | ast.BoolOp) and program.statement(around) is statement:
            return _sometimes("under a condition in this expression", "wrap it in a separate statement")
        if isinstance(around, ast.stmt):
            break
    ifs: list[tuple[ast.If, ast.AST]] = []
    outermost: ast.If | None = None
    inside: ast.AST = statement
    if (past := _led_past(context, statement, module)) is not None:
        return _sometimes(f"if `{ast.unparse(past.test)}` (line {past.lineno}) is false", "wrap it always")
    for around in program.ancestors(statement):
        if isinstance(inside, ast.stmt) and _made_anew(program.block(inside), inside, module):
            break
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            break
        if isinstance(around, LOOPS):
            if not _goes_over_models(around, module):
                return _unclear(
                    "the model is wrapped in a loop",
                    "wrap each model in a line of its own, outside of the loop",
                )
            where = "in a loop over models" + (f", {_where(ifs)}" if ifs else "")
            return _sometimes(where, "wrap each in a separate statement")
        if isinstance(around, ast.If):
            if is_main_guard(around.test):
                break
            outermost = around
            if not is_true(around.test) and not _wraps_always(context, around, statement):
                ifs.append((around, inside))
        inside = around
    if not ifs:
        return None
    alone = not branches.is_shared(context, statement)
    beside = context.branches is not None and context.run_by(statement) & context.branches.scripts
    if (
        not beside
        and isinstance(statement, ast.Assign)
        and any(_whole(context, around, branch, statement.targets[0]) is not None for around, branch in ifs)
    ):
        return _unclear(
            "one branch of the `if` wraps the model, the other only a part of it", "wrap the same in both"
        )
    if (kept := _kept(context, call, ifs)) is not None:
        return kept
    if beside and not (alone and len(ifs) == 1 and _goes(context, ifs[0][0], statement)):
        return _beside(context, ifs, outermost, statement)
    for condition, branch in ifs:
        asks = branch in condition.body and asks_for_gpus(context, condition.test)
        if not asks and not is_choice(context, condition.test):
            return _sometimes(_where([(condition, branch)]), "wrap it always")
    used = next(_bare(context, call), None)
    plain = all(
        branch in condition.body and asks_for_gpus(context, condition.test) for condition, branch in ifs
    )
    if not plain and all(_is_for_others(context, it.test) for it, _ in ifs):
        text = f"the model stays unwrapped where `{ast.unparse(ifs[0][0].test)}` is false: other scripts may use it so"
        return Problem(text, "", NO_TIER, works=True)
    if used is not None and not plain:
        return _sometimes(_where(ifs), f"wrap it always, and use {_in_wrapped(used)}", context.cause(used))
    given = None if plain else _given_bare(context, call)
    if given is not None:
        return _sometimes(_where(ifs), "wrap it always, and pass its `.module`", context.cause(given))
    if _stays(context, ifs, statement):
        return Problem(
            "the model stays unwrapped with a single rank, where its checkpoints are loaded in another way",
            "",
            NO_TIER,
            works=True,
        )
    condition, branch = ifs[0]
    if statement is not branch or not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return _sometimes(_where(ifs), "write `model = nn.DataParallel(model)` there")
    found = (
        _nested(context, ifs, statement) if len(ifs) > 1 else _movable(context, condition, statement, module)
    )
    if isinstance(found, Condition) and _is_part(context, statement):
        if plain and not any(_is_set(context, it.test) for it, _ in ifs):
            return replace(found, guard="{ddp}.get_world_size() > 1")
        if all(is_choice(context, it.test) for it, _ in ifs):
            text = "this part of the model is wrapped under a condition only; unwrapped, its checkpoint keys differ"
            return Problem(text, "", NO_TIER, works=True)  # without it one process trains
        return _sometimes(_where(ifs), "wrap it always")
    return found


@once
def _choice(context: Context, call: ast.expr, module: ast.expr) -> ast.IfExp | None:
    """``nn.DataParallel(model) if torch.cuda.device_count() > 1 else model``, where nothing needs the bare model."""
    node = _outermost(context, call).node
    around = context.program.parent(node)
    if not isinstance(around, ast.IfExp) or around.test is node:
        return None
    asks = around.body is node and asks_for_gpus(context, around.test)
    if not asks and not is_choice(context, around.test):
        return None
    other = around.orelse if around.body is node else around.body
    while is_move(other):
        other = other.func.value  # type: ignore[attr-defined]
    if _key(other) != _key(module):
        return None
    bare = [it for it in _bare(context, call) if context.runs_in_training(it)]
    if not asks and (bare or _given_bare(context, call) is not None):
        return None
    answers = Answers(context)
    said = answers.around(call)
    return None if any(_contradicts(context, answers, it, said) for it in bare) else around


def _led_past(context: Context, statement: ast.stmt, module: ast.expr) -> ast.If | None:
    """``if count < 2: return model`` before a wrap."""
    program = context.program
    bare = program.values(module)
    for inside in (statement, *program.ancestors(statement)):
        if isinstance(inside, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return None
        for before in leaves_before(context, inside) if isinstance(inside, ast.stmt) else ():
            given = before.body[-1].value  # type: ignore[attr-defined]
            if given is not None and program.contents(program.values(given)) & bare:
                return before
    return None


def _stays(context: Context, ifs: list[tuple[ast.If, ast.AST]], statement: ast.stmt) -> bool:
    """Whether a model is wrapped wherever there are several processes, and the keys of a checkpoint change for one.

    Then it has to stay bare there: no condition but the number of GPUs leads past the wrap, or the program ends.
    """
    (inner, branch), *outer = ifs
    if not _counts_several(context, inner.test) or branch is not statement or statement not in inner.body:
        return False
    keys = (it for part in inner.orelse for it in ast.walk(part) if isinstance(it, ast.Constant))
    ends = (around.orelse if inside in around.body else around.body for around, inside in outer)
    return any(it.value == "module." for it in keys) and all(
        any(isinstance(part, ast.Raise) for part in block) for block in ends
    )


def _is_for_others(context: Context, test: ast.expr) -> bool:
    """Whether a condition is what a function is given, in a file that other programs may import, too."""
    program = context.program
    found = program.definitions(test) if isinstance(test, ast.Name) else []
    shared = program.file(test) not in context.scripts
    return shared and bool(found) and all(isinstance(it, ast.arg) for it in found)


def _is_set(context: Context, test: ast.expr) -> bool:
    """Whether settings answer how many GPUs there are to be, ``len(args.gpus) > 1``, and not the machine."""
    counted = (it.args[0] for it in ast.walk(test) if isinstance(it, ast.Call) and _called(it) == "len")
    return any(not asks_machine(context, it) or _is_literal(context, it) for it in counted)


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _is_literal(context: Context, node: ast.expr, depth: int = 0) -> bool:
    """Whether a list is written out in the program."""
    if isinstance(node, ast.List | ast.Tuple):
        return all(isinstance(it, ast.Constant) for it in node.elts)
    parameters = [it for it in context.program.definitions(node) if isinstance(it, ast.arg)]
    sources = [it for parameter in parameters for it in context.program.given(parameter)]
    sources = sources or assigned(context, node)
    return bool(sources) and depth < 6 and all(_is_literal(context, it, depth + 1) for it in sources)


def _is_part(context: Context, statement: ast.stmt) -> bool:
    """Whether what is wrapped is a part of a model: in checkpoints of one process its keys have no ``module.``."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    is_held = isinstance(target, ast.Attribute | ast.Subscript)
    owners = context.program.values(target.value) if is_held else frozenset()  # type: ignore[union-attr]
    return bool(owners) and all(map(context.module_class, owners))


def _kept(context: Context, call: ast.expr, ifs: list[tuple[ast.If, ast.AST]]) -> Problem | None:
    """A wrap under a condition by which the rest of the program tells a wrapped model from a bare one, too.

    ``model.module.encode(x) if n_gpu > 1 else model.encode(x)``. So the condition stays.
    """
    answers = Answers(context)
    said = answers.around(call)
    bare = [it for it in _bare(context, call) if context.runs_in_training(it)]
    places = [(it, it) for it in bare] + [(it, bare[0]) for it in _named_again(context, call) if bare]
    used = next((it for place, it in places if _contradicts(context, answers, place, said)), None)
    if used is None:
        return None
    test = ast.unparse(ifs[0][0].test)
    if all(branch in around.body and _counts_several(context, around.test) for around, branch in ifs):
        where, shown = f"where `{test}` is false", ast.unparse(used)
        text = f"the model stays unwrapped with a single rank, {where}: `{shown}` needs that"
        return Problem(text, "", NO_TIER, works=True)
    return _sometimes(_where(ifs), f"always wrap it, and use {_in_wrapped(used)}")


def _in_wrapped(used: ast.Attribute) -> str:
    """What is written for an attribute of a model where the model is wrapped."""
    named = isinstance(used.value, ast.Name | ast.Attribute)
    return f"`{ast.unparse(used.value) if named else ''}.module.{used.attr}`"


def _named_again(context: Context, call: ast.expr) -> Iterator[ast.expr]:
    """Where a model that may be wrapped gets another name: ``net = model.module if several else model``."""
    program = context.program
    for node in program.nodes.values():
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            around = program.parent(node)
            named = isinstance(around, ast.IfExp) and node is not around.test
            named = named or isinstance(around, ast.Assign | ast.Return)
            if named and id(call) in context.made(program.values(node), WRAP):
                yield node


def _counts_several(context: Context, test: ast.expr) -> bool:
    """Whether a condition is no more than that there are several GPUs: that there are several ranks, now."""
    match test:
        case ast.Compare(left=asked, ops=[ast.Gt()], comparators=[ast.Constant(value=1)]):
            return counts_gpus(context, asked)
    return False


def _bare(context: Context, call: ast.expr) -> Iterator[ast.Attribute]:
    """What a program asks of a model that may be wrapped, and that only a bare one has."""
    site = id(call)
    for node in context.program.nodes.values():
        if (
            isinstance(node, ast.Attribute)
            and node.attr not in MODULE_NAMES
            and isinstance(node.ctx, ast.Load)
        ):
            values = context.program.values(node.value)
            if site in context.made(values, WRAP):
                yield node


def _given_bare(context: Context, call: ast.expr) -> ast.Call | None:
    """A call outside the project that is given the model where it is not wrapped: ``torch.jit.script(model)``."""
    program, answers = context.program, Answers(context)
    said = answers.around(call)
    for other in program.calls:
        outside = bool(other.names) and not any(isinstance(it, Func | Bound | Cls) for it in other.callees)
        if not outside or WRAP in other.names or not context.runs_in_training(other.node):
            continue
        named = (it for it in handed(other.node) if isinstance(it, ast.Name | ast.Attribute))
        if any(id(call) in context.made(program.values(it), WRAP) for it in named):
            if _contradicts(context, answers, other.node, said):
                return other.node
    return None


def _contradicts(context: Context, answers: Answers, node: ast.AST, said: Literals, depth: int = 0) -> bool:
    """Whether a place is come to only where something that is said does not hold, by its conditions or its calls'."""
    if answers.contradict(answers.around(node), said):
        return True
    calls = context.callers.get(context.program.scope(node).index, ()) if depth < 4 else ()
    return bool(calls) and all(_contradicts(context, answers, it, said, depth + 1) for it in calls)


def _unclear(message: str, help: str, cause: Anchor | None = None) -> Problem:
    """Whether the model is wrapped can't be told: it stays where it is, and a model that is not wrapped is one, too."""
    return _Unsettled(message, help, SHARDED_ONLY, cause=cause)


def _sometimes(condition: str, help: str, cause: Anchor | None = None) -> Problem:
    """The model is wrapped under a ``condition`` that stays."""
    message = f"the model is wrapped only {condition}: otherwise one process trains"
    return _Unsettled(message, help, SHARDED_ONLY, cause=cause, is_condition=True)


def _where(ifs: list[tuple[ast.If, ast.AST]]) -> str:
    """The innermost condition of a wrap, in words."""
    condition, branch = ifs[0]
    return f"if `{ast.unparse(condition.test)}`" + ("" if branch in condition.body else " is false")


def _goes_over_models(loop: ast.AST, module: ast.expr) -> bool:
    """Whether each round of a loop wraps another model: one that the loop's target names."""
    if not isinstance(loop, ast.For):
        return False
    names = {it.id for it in ast.walk(loop.target) if isinstance(it, ast.Name)}
    return any(isinstance(it, ast.Name) and it.id in names for it in ast.walk(module))


def _used_inside(context: Context, use: ast.AST) -> Problem:
    """The wrapped model is used where it may not be wrapped after all."""
    return _unclear(
        f"`{ast.unparse(use).splitlines()[0]}` uses the wrapped model inside the `if` that wraps it",
        "move it after the `if`",
        context.cause(use),
    )


def _made_anew(block: list[ast.stmt], inside: ast.stmt, module: ast.expr) -> bool:
    """Whether the statements before one always make the model that it wraps."""
    name = _key(module)

    def makes(statement: ast.stmt) -> bool:
        if isinstance(statement, ast.If):
            branches = (statement.body, statement.orelse)
            return all(
                any(isinstance(part, ast.Raise) or makes(part) for part in branch) for branch in branches
            )
        return (
            isinstance(statement, ast.Assign)
            and any(_key(target) == name for target in statement.targets)
            and not _uses(statement.value, name)
        )

    return any(makes(before) for before in block[: block.index(inside)])


def _wraps_always(context: Context, condition: ast.If, statement: ast.stmt) -> bool:
    """Whether every branch of a condition wraps what a statement wraps, or ends the program."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target = _key(statement.targets[0])

    def wraps(block: list[ast.stmt]) -> bool:
        return any(
            isinstance(part, ast.Raise)
            or (isinstance(part, ast.If) and wraps(part.body) and wraps(part.orelse))
            or (
                isinstance(part, ast.Assign)
                and [_key(it) for it in part.targets] == [target]
                and context.is_wrapped(context.program.values(part.value))
            )
            for part in block
        )

    return wraps([condition])


def _nested(
    context: Context, ifs: list[tuple[ast.If, ast.AST]], statement: ast.Assign
) -> Condition | Problem:
    """One condition inside of others, none of which chooses the device: the wrap goes after the outermost."""
    program = context.program
    target = _key(statement.targets[0])
    chooses = any(
        decides_device(context, condition.test) and not asks_for_gpus(context, condition.test, flags=False)
        for condition, _ in ifs
    )
    if chooses or any(condition.orelse for condition, _ in ifs):
        return _sometimes(_where(ifs), "make `if torch.cuda.device_count() > 1` the only condition")
    moves = list(_moves_after(context, statement))
    for condition, branch in ifs:
        later = condition.body[condition.body.index(branch) + 1 :]
        for other in later:
            if other not in moves and _uses(other, target):
                return _sometimes(_where(ifs), "use the wrapped model after the `if`", context.cause(other))
    return Condition(
        at=program.anchor(ifs[-1][0]),
        statement=program.anchor(statement),
        target=program.anchor(statement.targets[0]),
        whole=all(it is branch or it in moves for condition, branch in ifs for it in condition.body),
        alternative=False,
        option=False,
        inner=tuple(program.anchor(condition) for condition, _ in ifs[:-1]),
    )


def _goes(context: Context, condition: ast.If, statement: ast.stmt) -> bool:
    """Whether a condition is there for one statement alone, and asks for GPUs: the statement takes its place."""
    alone = condition.body == [statement] and not condition.orelse
    return alone and asks_for_gpus(context, condition.test, flags=False)


def _beside(
    context: Context, ifs: list[tuple[ast.If, ast.AST]], outermost: ast.If | None, statement: ast.stmt
) -> Condition | Problem:
    """The conditions that choose between DataParallel and a distributed branch: it is wrapped after them."""
    guard = branches.condition(context, statement)
    if guard is None:
        guard = f"not {context.ddp(context.program.file(statement).path)}.stands_aside()"
    if outermost is None or not isinstance(statement, ast.Assign):
        return _unclear(
            "this wrap is no assignment of its own, and a distributed branch runs it, too",
            "write `model = nn.DataParallel(model)` there",
        )
    target = statement.targets[0]
    for around, branch in ifs:
        if _is_about_gpus(context, around, branch):
            continue
        whole = _whole(context, around, branch, target)
        if whole is not None or is_choice(context, around.test):
            target = whole or target
        else:
            return _unclear(
                f"the model is wrapped only if `{ast.unparse(around.test)}`",
                "keep only the condition that selects the distributed branch",
            )
    name = _key(target)
    for around in (statement, *context.program.ancestors(statement)):
        block = context.program.block(around) if isinstance(around, ast.stmt) else []
        if around is outermost:
            break
        later = block[block.index(around) + 1 :] if around in block else []
        for it in later:
            if _uses(it, name) and not _only_moves(context, it, name):
                return _used_inside(context, it)
    return Condition(
        at=context.program.anchor(outermost),
        statement=context.program.anchor(statement),
        target=name,
        whole=False,
        alternative=False,
        option=True,
        guard=guard,
        part=target is not statement.targets[0],
    )


def _is_about_gpus(context: Context, around: ast.If, branch: ast.AST) -> bool:
    """Whether a branch of a condition is the one for GPUs."""
    if branch in around.body:
        return asks_for_gpus(context, around.test)
    match around.test:
        case ast.UnaryOp(op=ast.Not(), operand=test):
            return asks_for_gpus(context, test)
    return False


def _whole(context: Context, around: ast.If, branch: ast.AST, target: ast.expr) -> ast.expr | None:
    """The model that one branch of a condition wraps, and the other a part of."""
    owner = target.value if isinstance(target, ast.Attribute) else target
    names = {_key(target), _key(owner)}

    def wraps(block: list[ast.stmt]) -> bool:
        return any(
            isinstance(it, ast.Assign)
            and context.is_wrapped(context.program.values(it.value))
            and names & {name for to in it.targets for name in (_key(to), _key(getattr(to, "value", to)))}
            for it in block
        )

    return owner if wraps(around.body) and wraps(around.orelse) else None


def _uses(part: ast.AST, target: str) -> bool:
    return any(isinstance(node, ast.expr) and _key(node) == target for node in ast.walk(part))


def _movable(
    context: Context, condition: ast.If, statement: ast.Assign, module: ast.expr
) -> Condition | Problem:
    program = context.program
    target = _key(statement.targets[0])
    where = _where([(condition, statement)])
    moves = list(_moves_after(context, statement))
    block = program.block(statement)
    other_block = condition.orelse if block is condition.body else condition.body
    rest = [other for other in block if other is not statement and other not in moves]
    for later in rest[block.index(statement) :]:
        if _uses(later, target):
            return _sometimes(where, "use the wrapped model after the `if`", context.cause(later))
    otherwise = [other for other in other_block if not _only_moves(context, other, target)]
    if any(_uses(other, target) for other in otherwise):
        return _sometimes(where, "create it before the `if`, and only wrap it there")
    asks = asks_for_gpus(context, condition.test, flags=False)
    option = not asks and decides_device(context, condition.test)
    if (condition.orelse or option) and _key(module) != target:
        return _sometimes(where, f"use one name: `{target} = nn.DataParallel({target})`")
    return Condition(
        at=program.anchor(condition),
        statement=program.anchor(statement),
        target=program.anchor(statement.targets[0]),
        whole=not rest and not otherwise,
        alternative=bool(condition.orelse),
        option=option,
    )


def moves(context: Context, wraps: tuple[Wrap, ...]) -> set[int]:
    """Identities of the moves that a wrap takes over: those chained to it, and later ones of the same model."""
    removed = {anchor for wrap in wraps for anchor in wrap.moves}
    unwritten = {wrap.idle[0] for wrap in wraps if wrap.idle is not None}
    taking = {wrap.call: wrap.condition for wrap in wraps if wrap.problem is None and not wrap.stays}
    found: set[int] = set()
    for call in context.wraps:
        anchor = context.program.anchor(call.node)
        if anchor not in taking:
            continue
        condition = taking[anchor]
        node: ast.AST | None = _outermost(context, call.node).node
        while isinstance(node, ast.Call) and node is not call.node:
            found.add(id(node))
            node = node.func.value if isinstance(node.func, ast.Attribute) else None
        around = condition.at if condition is not None and not condition.option else None
        if (idle := _moved_on(context, context.program.statement(call.node), condition)) is not None:
            found |= {id(idle)} if context.program.anchor(idle) in unwritten else set()
        for move in _moves_after(context, context.program.statement(call.node), around):
            if context.program.anchor(move) in removed:
                found.add(id(move.value))  # type: ignore[attr-defined]
    return found
