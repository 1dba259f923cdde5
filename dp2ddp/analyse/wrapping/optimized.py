"""What optimizers train, and whether a wrapped model has it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.analyse.api.containers import LIST_ADDS
from dp2ddp.analyse.api.layers import BESIDE_OPTIMIZERS, HANDS_OUT_MODULES, HOLDS_PARAMETERS
from dp2ddp.analyse.api.purity import UNTRAINED
from dp2ddp.analyse.context import Context, root_name
from dp2ddp.analyse.program.calls import handed
from dp2ddp.analyse.program.sources import How, Source
from dp2ddp.analyse.program.values import Bound, Const, Ext, Func, Inst, Mod, Values, full_name


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
            return
        named = (it for it in handed(call) if isinstance(it, ast.Name | ast.Attribute))
        models = [it for it in named if _is_model(context, it)]
        yield from models
        if models:
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
        while isinstance(around, ast.Tuple | ast.List):  # `for name, value in …`
            around = program.parent(around)
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
            and text in _ways(node.func.value)
        ):
            for argument in node.args:
                yield from _owners(context, argument, depth + 1)


def _ways(node: ast.expr) -> list[str]:
    """What an expression may stand for: ``decay`` and ``others`` of ``(decay if p.ndim > 1 else others)``."""
    return [*_ways(node.body), *_ways(node.orelse)] if isinstance(node, ast.IfExp) else [ast.unparse(node)]


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
        or context.is_made_instead(it)
        for it in models
    )
    if models and (tracked or isinstance(owner, ast.Name)):
        return (tracked or _is_named_part(context, owner, held, names)) and not _is_elsewhere(
            context, owner, held
        )
    if not models and values & held:
        return True
    if isinstance(owner, ast.Name):
        found = context.program.definitions(owner)
        if found and all(_is_handed_out(context, it, held, names) for it in found):
            return True
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


def _is_handed_out(context: Context, definition: ast.AST, held: Values, names: set[int]) -> bool:
    """Whether a name is one of a wrapped model's modules: ``for name, module in model.named_children()``."""
    match context.program.source(definition):
        case Source(how=How.ELEMENT, value=ast.Call(func=ast.Attribute(value=model, attr=method))):
            return method in HANDS_OUT_MODULES and _is_tracked(context, model, held, names)
    return False


def _is_named_part(context: Context, owner: ast.expr, held: Values, names: set[int]) -> bool:
    """Whether a name stands for a part of a wrapped model: ``head = model.module.fc if wrapped else model.fc``."""
    parts = [part for it in context.program.definitions(owner) for part in _chosen(context, it)]
    return bool(parts) and all(
        isinstance(it, ast.Attribute | ast.Subscript) and _is_tracked(context, it, held, names)
        for it in parts
    )


def _chosen(context: Context, definition: ast.AST) -> Iterator[ast.expr | None]:
    """What a name is given: each of those that a condition chooses between."""
    waiting = [context.program.source(definition).plain]
    while waiting:
        match waiting.pop():
            case ast.IfExp(body=body, orelse=other):
                waiting += [body, other]
            case value:
                yield value


def _is_elsewhere(context: Context, owner: ast.expr, held: Values) -> bool:
    """Whether a part may be that of an object beside the wrapped model, or one that the model has no longer.

    All objects of a class have one set of fields here, with all that is ever put into them.
    """
    if not isinstance(owner, ast.Name):
        return _is_of_another(context, owner, held)
    return any(
        isinstance(part, ast.Attribute | ast.Subscript)
        and (_is_of_another(context, part, held) or _is_replaced(context, part, definition))
        for definition in context.program.definitions(owner)
        for part in _chosen(context, definition)
    )


def _is_of_another(context: Context, part: ast.expr, held: Values) -> bool:
    """``other.head``, where another object of its class is wrapped."""
    while isinstance(part, ast.Attribute | ast.Subscript):
        part = part.value
        for it in context.program.values(part):
            if isinstance(it, Inst) and context.module_class(it) and it not in held:
                if not context.is_wrapped(frozenset([it])) and not _holds_tracked(context, it, held):
                    return True
    return False


def _is_replaced(context: Context, part: ast.Attribute | ast.Subscript, definition: ast.AST) -> bool:
    """Whether an object gets another part after a name was given the one that it had."""
    program = context.program
    values, scope = program.values(part.value), program.scope(definition)
    for node in program.nodes.values():
        if not isinstance(node, type(part)) or isinstance(node.ctx, ast.Load):
            continue
        if getattr(node, "attr", "") != getattr(part, "attr", "") or not program.values(node.value) & values:
            continue
        inside = program.scope(node)
        before = inside is scope and node.lineno < definition.lineno  # type: ignore[attr-defined]
        if not before and getattr(inside.node, "name", "") != "__init__":
            return True
    return False


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
