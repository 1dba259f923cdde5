"""Modules that are trained beside the wrapped model: where they can be given to ``sync_gradients``, and where not.

nn.DataParallel leaves such a module on one device, with the whole batch. Given a part of it on each process, it does
the same only if it computes every sample by itself, draws no random numbers and remembers nothing of what it was given.
Whether the loss is a mean over the samples is looked at where all losses are (``metrics``).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.analyse.api import operations
from dp2ddp.analyse.api.containers import APPENDS
from dp2ddp.analyse.api.layers import CONTAINERS, HOLDS_PARAMETERS, MODULE, MODULE_HOOKS, MODULE_NAMES
from dp2ddp.analyse.api.losses import LOSS_CLASSES
from dp2ddp.analyse.api.parallel import FUNCTION
from dp2ddp.analyse.api.python import MODULE_LISTS
from dp2ddp.analyse.context import Context, root_name
from dp2ddp.analyse.dataflow.definitions import is_followed
from dp2ddp.analyse.dataflow.samples.layers import layer_does, layers_in
from dp2ddp.analyse.processes import alike
from dp2ddp.analyse.program.values import Bound, Ext, Func, Inst, Made, Values, full_name
from dp2ddp.analyse.wrapping import optimized
from dp2ddp.facts import SHARDED_ONLY, Bare, Problem
from dp2ddp.plan import elsewhere

RANDOM = {name for name, row in operations.NAMES.items() if row.random}
UNFOLLOWED = "may mix samples"
PLACES = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)


@dataclass(frozen=True)
class Reason:
    """Why a module can't be trained in parts, and where that comes from, if elsewhere.

    ``known``: that is so, and not only not known to be otherwise.
    """

    text: str
    cause: ast.AST | None = None
    known: bool = False


UNKNOWN = Reason("is in the wrapped model")


def find(context: Context) -> dict[ast.expr, Bare]:
    """What the optimizers train that no wrapped model has, once for each name in a function, and what it stands for."""
    found: dict[object, tuple[ast.expr, Bare]] = {}
    for owner in optimized.untracked(context):
        made = frozenset(map(id, context.program.definitions(owner)))
        key = context.program.scope(owner).index, ast.unparse(owner), made
        if key not in found:
            found[key] = owner, _bare(context, owner)
    return dict(found.values())


def _bare(context: Context, owner: ast.expr) -> Bare:
    program = context.program
    statement = program.statement(owner)
    named = _named(context, statement, owner)
    place = {
        **context.place(owner),
        "statement": program.anchor(named or statement),
        "after": named is not None,
    }
    reason = _reason(context, owner)
    if reason is not None:
        return Bare(**place, problem=_problem(context, owner, reason), syncs=reason != UNKNOWN)
    forwards = tuple(
        (program.anchor(call.func), program.anchor(call.func.value))  # type: ignore[attr-defined]
        for call in _method_calls(context, _inner(context, _parts(context, program.values(owner))))
        if call.func.attr == "forward"  # type: ignore[attr-defined]
    )
    return Bare(**place, forwards=forwards)


def _problem(context: Context, owner: ast.expr, reason: Reason) -> Problem:
    """Why a module can't be trained in parts, and what has to hold for it where that is not known."""
    shown = ast.unparse(owner)
    text = f"`{shown}` does not mix samples"
    if reason == UNKNOWN:
        text = f"the trained parameters of `{shown}` are in a wrapped model, or get the same gradients on all ranks"
    assumed = () if reason.known else (context.assumption(owner, text),)
    whole = root_name(owner)
    is_part = any(_wraps(context, value) for value in context.program.values(owner))
    help = "wrap all of it in nn.DataParallel" if is_part else "wrap it in nn.DataParallel, too"
    of_module = whole is not None and any(map(context.module_class, context.program.values(whole)))
    if of_module and whole is not owner:
        help = f"wrap all of `{whole.id}` in nn.DataParallel"
    briefly = help.removesuffix(", too").removesuffix(" in nn.DataParallel")
    values = context.program.values(owner)
    if reason != UNKNOWN:
        outside = "wrapped only in part" if is_part else "trained unwrapped"
        place = context.program.anchor(owner)
        outside += elsewhere(place, context.cause(reason.cause) or place)
        message = f"`{shown}`, {outside}, {reason.text}"
    elif values and all(map(context.module_class, values)):
        message = f"can't tell if the trained `{shown}` {reason.text}"
    else:
        inside = f"all of `{shown}`, which is trained, is in the wrapped model"
        if isinstance(owner, ast.Attribute) and owner.attr == "module":
            inside = f"`{ast.unparse(owner.value)}`, whose `.module` is trained, is the wrapped model"
        message, help, briefly = f"can't tell if {inside}", "", ""
    return Problem(
        message, help, SHARDED_ONLY, assumes=assumed, cause=context.cause(reason.cause), briefly=briefly
    )


def _named(context: Context, statement: ast.stmt, owner: ast.expr) -> ast.stmt | None:
    """The statement before another one, in its block, by which a module has its name and its layers."""
    block, text = context.program.block(statement), ast.unparse(owner)
    last: ast.stmt | None = None
    for before in reversed(block[: block.index(statement)]):
        stored = (it for it in ast.walk(before) if isinstance(getattr(it, "ctx", None), ast.Store))
        is_named = any(text == name or text.startswith(f"{name}.") for name in map(ast.unparse, stored))
        if last is None and (is_named or _may_change(context, owner, before)):
            last = before
        if is_named:
            return last if isinstance(last, ast.Assign | ast.AnnAssign | ast.Expr) else None
    return None


def _may_change(context: Context, owner: ast.expr, statement: ast.stmt) -> bool:
    """Whether more is done with a module than to ask for its parameters, or to move it: it may get other layers."""
    program = context.program
    values = program.values(owner)
    for key in context.runs(statement):
        node = program.nodes.get(key)
        if isinstance(node, ast.Name | ast.Attribute) and program.values(node) & values:
            around = program.parent(node)
            asked = isinstance(around, ast.Attribute) and around.attr in MODULE_NAMES - {"apply"}
            if not asked and isinstance(node.ctx, ast.Load):
                return True
    return False


def _reason(context: Context, owner: ast.expr) -> Reason | None:
    """Why a module can't be trained in parts beside the wrapped model; None where it can."""
    program = context.program
    values = program.values(owner)
    if not values or not all(map(context.module_class, values)) or not is_followed(program, owner):
        return UNKNOWN
    if not _is_name(owner) or not isinstance(program.statement(owner), PLACES):
        return UNKNOWN
    if any(isinstance(program.parent(it), ast.comprehension) for it in program.definitions(owner)):
        return UNKNOWN
    parts = _parts(context, values)
    if _runs_on_joined(context, parts):
        return None
    for part in parts:
        if (reason := _unfit(context, part)) is not None:
            return reason
    for call in _method_calls(context, _inner(context, parts)):
        if not _manages(context, call) and _runs_layers(context, call):
            return Reason(
                f"is called as `{ast.unparse(call.func)}` here, bypassing its forward()", call, known=True
            )
    return None


def _runs_on_joined(context: Context, parts: Values) -> bool:
    """Whether modules are only run behind a joint: on the whole batch, by all ranks alike."""
    calls = [it for it in context.program.calls if it.callees & parts and context.runs_in_training(it.node)]
    return bool(calls) and all(id(it.node) in context.joined.behind for it in calls)


def _is_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and _is_name(node.value))


def _parts(context: Context, values: Values) -> Values:
    """Modules with all that they hold, but for what is wrapped."""
    found: set[object] = set()
    waiting, layers = list(values), layers_in(context)
    while waiting:
        value = waiting.pop()
        if value in found or value in context.wrapped or context.is_wrapped(frozenset([value])):
            continue
        found.add(value)
        if isinstance(value, Inst):
            held = (it for _, inner in context.program.fields(value) for it in inner)
            waiting += [it for it in held if context.module_class(it)]
        elif isinstance(value, Made) and value.name in CONTAINERS:
            waiting += (it for element in layers.held(value) or () for it in context.program.values(element))
    return context.program.ordered(it for it in found if context.module_class(it))  # type: ignore[arg-type]


def _inner(context: Context, parts: Values) -> Values:
    """Those of some modules that hold nothing that is wrapped."""
    return context.program.ordered(part for part in parts if not _wraps(context, part))


def _wraps(context: Context, part: object) -> bool:
    """Whether something holds a wrapped model."""
    held = context.program.fields(part) if isinstance(part, Inst) else ()
    return any(context.is_wrapped(values) for _, values in held)


def _is_none(node: ast.AST | None) -> bool:
    """Whether something is None, which nothing calls."""
    return isinstance(node, ast.Constant) and node.value is None


def _unfit(context: Context, part: object) -> Reason | None:
    """Why a module, or one that it holds, needs the whole batch or can't be analysed."""
    layers = layers_in(context)
    if part in layers.altered:
        place = layers.altered_at(part)  # type: ignore[arg-type]
        what = (
            "a hook is set"
            if isinstance(place, ast.Call) and _method(place) in MODULE_HOOKS
            else "layers are put into it"
        )
        return Reason(f"{UNFOLLOWED}: {what} here", place)
    if isinstance(part, Inst):
        return _unfit_class(context, part)
    name = full_name(part)  # type: ignore[arg-type]
    shown = f"`{name.removeprefix('torch.')}`"
    call = context.program.call(context.program.node(part.site)) if isinstance(part, Made) else None
    if call is None or name in HOLDS_PARAMETERS:
        attribute = name.startswith("torch.nn.Module.")  # of a module of which no more is known
        return None if name in HOLDS_PARAMETERS else Reason(UNFOLLOWED + f" in its {shown}" * (not attribute))
    if name in CONTAINERS:
        held = layers.held(part)  # type: ignore[arg-type]
        followed = held is not None and all(is_followed(context.program, it) for it in held)
        return None if followed else Reason(f"{UNFOLLOWED} in this {shown}", call.node)
    if name in RANDOM:
        return Reason(f"holds a {shown}, which draws random numbers", call.node)
    if layer_does(context.program, part) is None and name not in LOSS_CLASSES:  # type: ignore[arg-type]
        if "BatchNorm" in name:
            return Reason(f"holds a {shown}, which mixes samples", call.node, known=True)
        return Reason(f"{UNFOLLOWED} in this {shown}", call.node)
    sparse = call.argument("sparse")
    if sparse is not None and not (isinstance(sparse, ast.Constant) and not sparse.value):
        return Reason(f"holds a {shown} with sparse gradients", call.node, known=True)
    return None


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _derived(made: ast.ClassDef, base: str) -> Reason:
    """What is not known, or is, of a class that derives from a layer of torch's."""
    derived = f"this subclass of `{base.removeprefix('torch.')}`"
    if "BatchNorm" in base:
        return Reason(f"mixes samples in {derived}", made, known=True)
    if base in RANDOM:
        return Reason(f"may draw random numbers in {derived}", made)
    return Reason(f"{UNFOLLOWED} in {derived}", made)


def _unfit_class(context: Context, part: Inst) -> Reason | None:
    program = context.program
    fields, wraps = list(program.fields(part)), _wraps(context, part)
    for base in program.bases(part.cls):
        if full_name(base).startswith("torch.") and full_name(base) != MODULE:
            return _derived(program.scopes[part.cls.scope].node, full_name(base))  # type: ignore[arg-type]
    for name, values in fields:
        if wraps and any(full_name(value) in HOLDS_PARAMETERS for value in values):
            return Reason(f"has its own parameter `{name}` beside the part that is wrapped", known=True)
        given = [
            it.value
            for target, it in context.attribute_assignments.get(name, ())
            if part in program.values(target.value) and not _is_none(it.value)
        ]
        known = values and all(_is_known(context, value) for value in values)
        if optimized.is_called(context, part, name) and not (
            known and all(is_followed(program, it) for it in given)
        ):
            unseen = next((it for it in given if not is_followed(program, it)), given[0] if given else None)
            return Reason(f"{UNFOLLOWED} in `{name}`, which is set here", unseen)
    for scope in _run(context, part):
        own = scope.params[:1]
        for node in program.body(scope):
            if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
                if getattr(root_name(node), "id", None) in own:
                    return Reason(f"changes `{ast.unparse(node)}` in its forward", node, known=True)
            if isinstance(node, ast.Call):
                call = program.call(node)
                method = _method(node)
                if call is None:
                    return Reason(f"{UNFOLLOWED} in `{ast.unparse(node.func)}`", node)
                if alike.draws(call) or call.names & RANDOM:
                    return Reason(f"draws random numbers in `{ast.unparse(node.func)}`", node)
                if call.names & {FUNCTION}:
                    return Reason("calls data_parallel()", node, known=True)
                in_place = method.endswith("_") and not method.endswith("__")
                if in_place and getattr(root_name(node.func), "id", None) in own:
                    return Reason(f"changes `{ast.unparse(node.func)}` in its forward", node, known=True)
    return None


def _is_known(context: Context, value: object) -> bool:
    """Whether what is called is a module, whose kind is looked at, or a function."""
    return isinstance(value, Func | Bound | Ext) or context.module_class(value)  # type: ignore[arg-type]


def _run(context: Context, part: Inst) -> Iterator[object]:
    """The functions of a module's class that its forward runs, and other functions of the project in it."""
    program = context.program
    node = program.node(part.site)
    waiting = program.methods(part, "forward", node) | program.methods(part, "__call__", node)
    seen: set[int] = set()
    inside = (it for it in context.wrapped if isinstance(it, Inst))
    wrapped = set().union(*(program.methods(it, "forward", program.node(it.site)) for it in inside))
    while waiting:
        index = waiting.pop()
        if index in seen or index in wrapped:
            continue
        seen.add(index)
        scope = program.scopes[index]
        yield scope
        for statement in scope.body:
            waiting |= program.called_scopes(statement)


def _runs_layers(context: Context, call: ast.Call) -> bool:
    """Whether a call is one of a layer, or of a method that calls some or is not known."""
    program = context.program
    entered = program.entered(call)
    nodes = (node for index in entered for node in program.body(program.scopes[index]))
    inner = [program.call(node) for node in nodes if isinstance(node, ast.Call)]
    return not entered or any(
        isinstance(callee, Inst | Made) and context.module_class(callee)
        for found in (program.call(call), *inner)
        if found is not None
        for callee in found.callees
    )


def _manages(context: Context, call: ast.Call) -> bool:
    """Whether a call of a method of a module runs no layers: those of every module, and what adds to a list of some."""
    method = _method(call)
    values = context.program.values(call.func.value)  # type: ignore[attr-defined]
    lists = all(full_name(it) in MODULE_LISTS for it in values)
    return method in MODULE_NAMES or (method in APPENDS and lists)


def _method_calls(context: Context, modules: Values) -> Iterator[ast.Call]:
    """The calls of methods and layers of some modules in the training, but by these modules themselves."""
    program = context.program
    classes = {base for it in modules if isinstance(it, Inst) for base in program.bases(it.cls)}
    for call in program.calls:
        function = call.node.func
        if isinstance(function, ast.Attribute) and context.runs_in_training(call.node):
            own = program.scope(call.node).owner in classes
            if not own and program.values(function.value) & modules:
                yield call.node
