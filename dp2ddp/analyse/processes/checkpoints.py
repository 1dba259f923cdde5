"""Where a wrapped model's state is saved and loaded, and where its class is asked for."""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from dp2ddp.analyse.api.containers import (
    BEHIND_SEPARATOR,
    DICT_CHANGES,
    KEY_METHODS,
    KEY_VIEWS,
    KEYED,
    ONE_ELEMENT,
    TAKES_KEYS,
)
from dp2ddp.analyse.api.files import PICKLES
from dp2ddp.analyse.api.inspection import ASKS_CLASS
from dp2ddp.analyse.api.layers import LAYER_HOMES
from dp2ddp.analyse.api.parallel import APEX_WRAP, DDP_WRAPS, OTHER_WRAPS, WRAP
from dp2ddp.analyse.api.processes import STARTED
from dp2ddp.analyse.context import Context, once
from dp2ddp.analyse.processes import checks
from dp2ddp.analyse.processes.branches import is_shared
from dp2ddp.analyse.processes.conditions import assigned, comes_from_file, origin
from dp2ddp.analyse.processes.elsewhere import given
from dp2ddp.analyse.processes.keys import KEYED_LIKE_FILES, STATES, made_of, meetings
from dp2ddp.analyse.processes.writes import is_of_writer
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.signature import bind
from dp2ddp.analyse.program.values import Bound, Cls, Coll, Const, Ext, Inst, Made, Value, Values, full_name
from dp2ddp.facts import NO_TIER, SHARDED_ONLY, Effect, Obstacle, StateDict, Wrap
from dp2ddp.plan import Anchor
from dp2ddp.source import importers_beside

# What holds its parts as they are, and what hands on what it is given.
DISPLAYS = (ast.Dict, ast.List, ast.Tuple, ast.DictComp, ast.ListComp, ast.IfExp)
HANDING_ON = (*DISPLAYS, ast.Call, ast.keyword, ast.Assign, ast.Return)
# The facts that say that a checkpoint is written from now on without what a wrap adds.
SAVED = {"save", "either", "other", "pickle"}
# What a wrap puts before every key.
PREFIX = "module."
# How parts are taken out of a checkpoint, and a copy of it.
TAKEN_OUT = KEYED | {"[]", "copy"}


def collect(context: Context, effects: tuple[Effect, ...], perhaps: set[int]) -> tuple[StateDict, ...]:
    """Every use of a model's state that the wrap's ``module.`` prefix matters to.

    ``perhaps``: the wraps that may not happen, as ``unsettled`` has them.
    """
    found: dict[int, StateDict] = {}
    project = bool(context.scripts)
    stored = _stored(context)
    converted = frozenset[Path]() if project else _converted(context)
    for node, fact in _used(context, stored, perhaps) if project or converted else ():
        if fact.path not in converted:
            found.setdefault(id(node), fact)
    for call in context.program.calls:
        function = call.node.func
        if (
            isinstance(function, ast.Attribute)
            and function.attr == "forward"
            and not _is_super(function.value)
        ):
            if context.runs_in_training(call.node) and context.is_wrapped(
                context.program.values(function.value)
            ):
                found.setdefault(id(function), _state(context, "forward", function.value, whole=function))
    for node in _restored(context) if project else ():
        found.setdefault(id(node), _state(context, "restored", node))
    for node in _alone(context, effects):
        found.setdefault(id(node), bare(context, node, perhaps, "model"))
    # What was cut off is known to be the wrap's prefix only where programs save with it, and no longer do.
    saved = any(it.kind in SAVED for it in found.values())
    states = (
        it
        for node, it in found.items()
        if it.kind != "first" or (saved and _cuts_prefix(context, context.program.node(node)))
    )
    return tuple(sorted(states, key=lambda state: (state.path, state.at.span)))


def unsettled(context: Context, wraps: tuple[Wrap, ...]) -> set[int]:
    """Identities of the wraps that may not happen."""
    certain = {wrap.call for wrap in wraps if wrap.problem is None}
    unclear = {wrap.call for wrap in wraps} - certain
    found = {id(call.node) for call in context.wraps if context.program.anchor(call.node) in unclear}
    return found | _under_conditions(context, certain)


def _converted(context: Context) -> frozenset[Path]:
    """What programs consist of that start ranks: what they save has no prefix any more, which others may expect."""
    project = context.program.project
    starts = {context.program.file(it.node).path for it in context.program.calls if it.names & STARTED}
    return frozenset[Path]().union(*(project.reaches(it) for it in starts))


def beside(context: Context, known: Iterable[StateDict]) -> Iterator[StateDict]:
    """Where the distributed branch beside loads what the program saves, in either branch, into its own wrapped model.

    ``context``: the program with that branch. ``known``: what is loaded beside it, too.
    """
    told = {it.operand for it in known}
    for call in context.program.calls:
        function = call.node.func
        if getattr(function, "attr", "") != "load_state_dict" or not call.node.args:
            continue
        model = function.value  # type: ignore[attr-defined]
        values, programs = context.program.values(model), context.run_by(call.node)
        own = frozenset(it for it in values if isinstance(it, Made) and it.name in OTHER_WRAPS)
        if not own or not programs or programs & context.prefixing or context.program.anchor(model) in told:
            continue
        if _from_file(context, call.node.args[0]):
            alone = own == values and not _is_used_beside(context, model)
            yield _state(context, "save" if alone else _either(context, values), model)
            yield from (fact for _, fact in _load(context, call.node.args[0]) if fact.operand not in told)


def read(context: Context) -> Iterator[tuple[ast.AST, StateDict]]:
    """Every use of a checkpoint that its prefix matters to, and its node, in files that are not converted."""
    return _used(context, set(), _under_conditions(context, set()))


def _under_conditions(context: Context, converted: Container[Anchor | None]) -> set[int]:
    """The wraps that stay as they are, under conditions."""
    program = context.program
    kept = (
        it.node
        for it in context.wraps
        if program.anchor(it.node) not in converted or not context.runs_in_training(it.node)
    )
    return {
        id(node) for node in kept if any(isinstance(it, ast.If | ast.IfExp) for it in program.ancestors(node))
    }


def spelled(context: Context) -> Iterator[ast.Subscript]:
    """Keys of checkpoints that are asked for with a wrap's prefix: ``state["module.head.weight"]``."""
    for node in context.program.nodes.values():
        match node:
            case ast.Subscript(slice=ast.Constant(value=str(key)), ctx=ast.Load()) if key.startswith(
                "module."
            ):
                if _from_file(context, node.value):
                    yield node


def unwrapped(context: Context) -> Iterator[ast.Attribute]:
    """Where the bare model is taken out of a wrapped one that a checkpoint holds: ``checkpoint["model"].module``."""
    for node in context.program.nodes.values():
        if isinstance(node, ast.Attribute) and node.attr == "module" and isinstance(node.ctx, ast.Load):
            if _from_file(context, node.value):
                yield node


def pickled(context: Context) -> Iterator[ast.Call]:
    """The calls that pickled a wrapped model, alone or in something, and write the bare one now."""
    for call in context.program.calls:
        if _saves_bare(context, call):
            yield call.node


def _used(context: Context, stored: set[int], perhaps: set[int]) -> Iterator[tuple[ast.AST, StateDict]]:
    for call in context.program.calls:
        yield from _states(context, call, stored, perhaps)
    for node in context.program.nodes.values():
        if isinstance(node, ast.Subscript | ast.Call) and (cut := _cut(context, node)) is not None:
            key, kind = cut
            guard = _prefix_guard(context, node, key)
            if guard is None or not guard.orelse:  # else the program itself keeps keys without it
                yield node, _state(context, kind, key, whole=node, guard=guard)


def _state(
    context: Context,
    kind: str,
    node: ast.AST,
    whole: ast.AST | None = None,
    imported: str = "",
    guard: ast.AST | None = None,
) -> StateDict:
    operand = context.program.anchor(node)
    round_it = None if guard is None else context.program.anchor(guard)
    return StateDict(
        **context.place(whole or node), kind=kind, operand=operand, imported=imported, guard=round_it
    )


def bare(context: Context, node: ast.expr, perhaps: set[int], kind: str = "save") -> StateDict:
    """The bare model behind an expression that is a wrapped one, or that may be either ("either").

    ``perhaps``: the wraps that may not happen.
    """
    values = context.program.values(node)
    others = [it for it in values if not context.is_wrapped(frozenset([it])) and it != Const(None)]
    if any(_may_have_module(context, it) for it in others):
        return _state(context, "other", node)
    is_bare = is_shared(context, node) or bool(context.made(values, WRAP) & perhaps) or bool(others)
    is_bare = is_bare or _is_used_beside(context, node)
    return _state(context, _either(context, values) if is_bare else kind, node)


def _is_used_beside(context: Context, node: ast.expr) -> bool:
    """Whether files that are not converted may give a function, or an object, a model that nothing wraps."""
    program = context.program
    file = program.file(node)
    names = [it for it in ast.walk(node) if isinstance(it, ast.Name)]
    given_to = any(isinstance(it, ast.arg) for name in names for it in program.definitions(name))
    if not given_to or file in context.scripts:
        return False
    around = [it for it in program.ancestors(node) if isinstance(it, ast.ClassDef | ast.FunctionDef)]
    named = [it.name for it in around if isinstance(it, ast.ClassDef)] or [it.name for it in around]
    words = [re.compile(rf"\b{name}\b") for name in named]
    using = importers_beside(program.project, frozenset([file.path])) if words else ()
    return any(word.search(it.text) for it in using for word in words)


def _either(context: Context, values: Values) -> str:
    """How the bare model is taken of one that may be wrapped: it may have a ``module`` of its own."""
    models = {inner for it in values for inner in context.inside(it) if isinstance(inner, Inst)}
    return "other" if any("module" in own_names(context, it) for it in models) else "either"


def own_names(context: Context, value: Inst) -> set[str]:
    """What an object of the project has of its own: the names in its classes, and its attributes."""
    scopes = context.program.scopes
    classes = (it for it in context.program.bases(value.cls) if isinstance(it, Cls))
    return {name for it in classes for name in scopes[it.scope].names} | {
        name for name, _ in context.program.fields(value)
    }


def _bare_where_wrapped(context: Context, node: ast.expr, perhaps: set[int]) -> StateDict:
    """The bare model behind one that is wrapped to be trained, or to predict."""
    found = bare if context.is_wrapped(context.program.values(node)) else _predicting
    return found(context, node, perhaps)


def _predicting(context: Context, node: ast.expr, perhaps: set[int]) -> StateDict:
    """The bare model behind one that nothing trains, and that stays nn.DataParallel where it is wrapped."""
    values = context.program.values(node)
    return _state(context, _either(context, values) if context.made(values, WRAP) & perhaps else "save", node)


def _may_have_module(context: Context, value: Value) -> bool:
    """Whether a model that DataParallel does not wrap may have a ``module`` of its own, as averaged ones have."""
    if isinstance(value, Inst):
        bases = context.program.bases(value.cls)
        known = all(isinstance(it, Cls) or _is_layer(full_name(it)) for it in bases)
        return not known or "module" in own_names(context, value)
    return not _is_layer(full_name(value))


def _is_layer(name: str) -> bool:
    """Whether a full name is that of a model or layer of torch's or torchvision's: they have no ``module``."""
    return name.startswith(LAYER_HOMES) and not name.startswith("torch.nn.parallel.")


def _stored(context: Context) -> set[int]:
    """Calls of ``state_dict()`` whose result goes into a checkpoint, or back into a model."""
    found: set[int] = set()
    for call in context.program.calls:
        if "torch.save" in call.names:
            found |= _written(context, call)
        elif getattr(call.node.func, "attr", "") == "load_state_dict":
            found |= _states_in(context, call.argument("state_dict", 0))
    return found


def _written(context: Context, call: Call) -> set[int]:
    """Calls of ``state_dict()`` whose result ``torch.save`` writes."""
    written = [call.argument("obj", 0), *_handed_on(context, call)]
    return set[int]().union(*(_states_in(context, it) for it in written))


def _states_in(context: Context, saved: ast.expr | None) -> set[int]:
    """Calls of ``state_dict()`` whose result is, or is in, what an expression stands for."""
    if saved is None:
        return set()
    values = context.program.contents(context.program.values(saved))
    found = {it.site for it in values if isinstance(it, Made) and it.name.endswith(".state_dict")}
    parts = [saved, *(assigned(context, saved) if isinstance(saved, ast.Name) else ())]
    return found | {id(it) for part in parts for it in ast.walk(part) if _is_in_display(context, it, part)}


def unprefixed(context: Context, states: Iterable[StateDict]) -> frozenset[Path]:
    """The programs that wrote keys with a wrap's prefix into a file, and write them without it now."""
    bare = {it.operand for it in states if it.kind in SAVED}
    found = frozenset[Path]()
    for call in context.program.calls:
        if "torch.save" in call.names:
            made = (context.program.node(it) for it in _written(context, call))
            models = [it.func.value for it in made if isinstance(it, ast.Call | ast.Attribute)]
            if any(context.program.anchor(it) in bare for it in models):
                found |= context.run_by(call.node)
    return found


def _handed_on(context: Context, call: Call) -> Iterator[ast.expr]:
    """What calls of the function round it give a call first: ``save(state, path)``, which is ``torch.save(*args)``."""
    scope = context.program.scope(call.node)
    match call.node.args[:1], scope.signature.rest:
        case [ast.Starred(value=ast.Name(id=name))], ast.arg(arg=rest) if name == rest:
            for it in context.callers.get(scope.index, ()):
                yield from (value for _, value in bind(it, scope.signature).rest[:1])


def _is_in_display(context: Context, node: ast.AST, whole: ast.expr) -> bool:
    """Whether a call of ``state_dict()`` is part of a collection, and goes into it as it is."""
    if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "state_dict":
        return False
    around = context.program.parent(node)
    while around is not whole and isinstance(around, DISPLAYS):
        around = context.program.parent(around)
    return around is whole and isinstance(whole, DISPLAYS)


def _pickled(call: Call) -> ast.expr | None:
    """What a call writes as it is."""
    return call.argument("value" if "joblib.dump" in call.names else "obj", 0)


def _holds_wrapped(context: Context, call: Call) -> bool:
    """Whether what is pickled has a wrapped model in it: an element of a collection, an attribute of an object."""
    whole = _pickled(call)
    values = context.program.values(whole) if whole is not None else frozenset()
    held = _parts(context, values) - values
    return any(context.is_wrapped(frozenset([it])) for it in held) and context.runs_in_training(call.node)


def _parts(context: Context, values: frozenset[Value]) -> frozenset[Value]:
    """Values with all that is pickled with them."""
    found: set[Value] = set()
    waiting = values
    while waiting:
        found |= waiting
        held = {*context.program.contents(waiting)}
        for value in waiting:
            if isinstance(value, Inst):
                held.update(*(its for _, its in context.program.fields(value)))
        waiting = frozenset(held - found)
    return frozenset(found)


def _changed(context: Context, call: ast.Call) -> bool:
    """Whether the keys of a state dict are looked at: iterated over, asked for, or updated from others."""
    parent = context.program.parent(call)
    if not isinstance(parent, ast.Assign) or not isinstance(parent.targets[0], ast.Name):
        return not isinstance(parent, HANDING_ON)
    name = parent.targets[0].id
    for node in ast.walk(context.program.scope(call).node):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name:
            if node.attr in KEY_METHODS:
                return True
        if isinstance(node, ast.Compare) and any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
            if any(isinstance(other, ast.Name) and other.id == name for other in node.comparators):
                return True
    return False


def is_compared(context: Context, model: ast.AST) -> bool:
    """Whether a model is asked for its state, whose keys are compared with those of a file."""
    function = context.program.parent(model)
    node = context.program.parent(function) if isinstance(function, ast.Attribute) else None
    call = context.program.call(node) if isinstance(node, ast.Call) and node.func is function else None
    return call is not None and _is_state_s(call) and bool(_compared(context, call))


def _compared(context: Context, call: Call) -> list[ast.expr] | None:
    """The states from files whose keys are looked at beside those of a call of ``state_dict()``.

    In its function, and in those that it is handed to. Each where it gets its name. None if that can't be told, or if
    the code knows the prefix.
    """
    looks, met = _looked_at(context).get(id(call.node), []), _met(context, call)
    if not looks and not met and not _changed(context, call.node):
        return []
    scopes = {it.index: it for it in (call.scope, *(map(context.program.scope, looks)))}
    loaded = [it for scope in scopes.values() for it in _loaded_in(context, scope)]
    return _where_compared(context, [call.node, *looks], [*loaded, *met])


def _met(context: Context, call: Call) -> list[ast.expr]:
    """The states from files whose keys meet what a call hands out."""
    return meetings(context, _is_names, _from_file).get(id(call.node), [])


def _is_names(context: Context, node: ast.expr) -> bool:
    """``model.named_parameters()``, ``model.state_dict()`` and the like, where the model is wrapped."""
    function = node.func if isinstance(node, ast.Call) else None
    named = isinstance(function, ast.Attribute) and function.attr in KEYED_LIKE_FILES
    return named and _is_behind_wrap(context, function.value)  # type: ignore[union-attr]


def _is_behind_wrap(context: Context, model: ast.expr) -> bool:
    """Whether a model is wrapped to be trained, or to predict and stays so."""
    values = context.program.values(model)
    idle = {id(it.node) for it in context.idle_wraps}
    return context.is_wrapped(values) or bool(context.made(values, WRAP) - idle)


def _where_compared(context: Context, names: list[ast.expr], loaded: list[ast.expr]) -> list[ast.expr] | None:
    """Where states get their names that are compared with others' keys, as ``_compared`` has them."""
    scopes = {it.index: it for it in map(context.program.scope, (*names, *loaded))}
    spelled = any(_spells_prefix(it) for scope in scopes.values() for it in context.program.body(scope))
    named = [_where_named(context, node) for node in loaded]
    return None if loaded and (spelled or not all(named)) else _distinct(named)


def _spells_prefix(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and PREFIX in str(node.value)


def _distinct(nodes: Iterable[list[ast.expr]]) -> list[ast.expr]:
    return list({id(it): it for them in nodes for it in them}.values())


@once
def _looked_at(context: Context) -> dict[int, list[ast.expr]]:
    """Where the keys are looked at that calls of ``state_dict()`` and the like make: by the identities of the calls."""
    found: dict[int, list[ast.expr]] = {}
    for node in context.program.nodes.values():
        if isinstance(node, STATES) and _is_looked_at(context, node):
            for value in context.program.values(node):
                if isinstance(value, Made) and value.name.rpartition(".")[2] in KEYED_LIKE_FILES:
                    found.setdefault(value.site, []).append(node)
    return found


def _loaded_in(context: Context, scope: Scope) -> list[ast.expr]:
    """Where a function looks at the keys of states from files."""
    nodes = (it for it in context.program.body(scope) if isinstance(it, STATES))
    return [it for it in nodes if _is_looked_at(context, it) and _from_file(context, it)]


def _is_looked_at(context: Context, node: ast.expr) -> bool:
    """``state.items()``, ``key in state``, ``for key in state``, ``state[key]``, ``set(state)``, ``x.update(it)``."""
    parent = context.program.parent(node)
    match parent:
        case ast.Attribute(attr=method) if method in KEY_METHODS:
            around = context.program.parent(parent)
            spelled = (
                isinstance(around, ast.Call) and around.args and isinstance(around.args[0], ast.Constant)
            )
            return method not in ONE_ELEMENT or not spelled
        case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[other]):
            return other is node
        case ast.For() | ast.comprehension():
            return parent.iter is node
        case ast.Subscript(slice=key):
            return parent.value is node and not isinstance(key, ast.Constant)
        case ast.Call(func=ast.Attribute(attr="update")):
            return node in parent.args
        case ast.Call():
            call = context.program.call(parent)
            return node in parent.args and call is not None and bool(call.names & TAKES_KEYS)
    return False


def _where_named(context: Context, node: ast.expr) -> list[ast.expr]:
    """The expressions that a name for a state from a file stands for; a call's argument, where it is a parameter.

    What has no name is read where it stands, and is not found if it is changed there.
    """
    if isinstance(node, ast.Subscript | ast.Call):
        match context.program.parent(node):
            case ast.Attribute(attr=method) if method in DICT_CHANGES:
                return []
            case ast.Subscript(ctx=ast.Store() | ast.Del()):
                return []
        return [node]
    if not isinstance(node, ast.Name):
        return []
    arguments = [it for it in given(context, node) if _from_file(context, it)]
    return arguments or [it for it in assigned(context, node) if _from_file(context, it)]


def _is_stored(context: Context, call: Call, stored: set[int]) -> bool:
    """Whether a state goes into a file or a model as it is."""
    return id(call.node) in stored and not _changed(context, call.node)


def _is_asked_by_names(context: Context, call: Call) -> bool:
    """``state[name]``, with the names that a wrapped model gives its parameters: these have the prefix, too."""
    program = context.program
    statement = program.statement(call.node)
    targets = {ast.unparse(it) for it in getattr(statement, "targets", ())}
    for node in program.nodes.values():
        match node:
            case ast.Subscript(value=ast.Name() | ast.Attribute() as state, slice=ast.Name() as name):
                pass
            case _:
                continue
        made = (program.statement(it) for it in program.definitions(state))
        if ast.unparse(state) in targets and statement in made and _is_parameter_s_name(context, name):
            return True
    return False


def _is_parameter_s_name(context: Context, name: ast.Name) -> bool:
    """``for name, parameter in model.named_parameters()``, where the model is wrapped, and names keep the prefix."""
    return any(not _compared_by_names(context, it) for it in _naming(context, name))


def _naming(context: Context, name: ast.expr) -> Iterator[Call]:
    """The calls of wrapped models that a name of a part is from."""
    for definition in context.program.definitions(name):
        for around in context.program.ancestors(definition):
            if isinstance(around, ast.For | ast.comprehension):
                call = context.program.call(around.iter) if isinstance(around.iter, ast.Call) else None
                if call is not None and _is_names(context, call.node) and not _is_state_s(call):
                    yield call
            if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
                break


def _is_state_s(call: Call) -> bool:
    return getattr(call.node.func, "attr", "") == "state_dict"


@once
def _compared_by_names(context: Context, call: Call) -> list[ast.expr] | None:
    """As ``_compared``, for ``model.named_parameters()``: one by one, or as a dict."""
    return _where_compared(context, [call.node], _met(context, call))


def _beside(context: Context, call: Call) -> list[Call]:
    """The calls of ``state_dict()`` of wrapped models in a function: their keys may meet, so they change together."""
    calls = (context.program.call(it) for it in context.program.body(call.scope) if isinstance(it, ast.Call))
    return [
        it
        for it in calls
        if it is not None
        and isinstance(it.node.func, ast.Attribute)
        and it.node.func.attr == "state_dict"
        and context.is_wrapped(context.program.values(it.node.func.value))
    ]


def _states(
    context: Context, call: Call, stored: set[int], perhaps: set[int]
) -> Iterator[tuple[ast.AST, StateDict]]:
    program = context.program
    function = call.node.func
    if any(isinstance(callee, Bound) and isinstance(callee.owner, Made) for callee in call.callees):
        return  # a DataParallel of the project's own has a method for it
    if isinstance(function, ast.Attribute) and _is_told_bare(context, function.value):
        return
    if isinstance(function, ast.Attribute) and function.attr == "state_dict":
        keeps = context.run_by(call.node) & context.prefixing
        if _is_behind_wrap(context, function.value) and not keeps:
            compared = _compared(context, call)
            if not _is_stored(context, call, stored) and _is_asked_by_names(context, call):
                return
            if compared or any(_is_stored(context, it, stored) for it in _beside(context, call)):
                yield function.value, _bare_where_wrapped(context, function.value, perhaps)
            for loaded in compared or ():
                yield from _load(context, loaded)
    elif isinstance(function, ast.Attribute) and _is_names(context, call.node):
        if compared := _compared_by_names(context, call):
            yield function.value, _bare_where_wrapped(context, function.value, perhaps)
            for loaded in compared:
                yield from _load(context, loaded)
    elif isinstance(function, ast.Attribute) and function.attr == "load_state_dict" and call.node.args:
        values = program.values(function.value)
        if context.is_wrapped(values):
            yield function.value, bare(context, function.value, perhaps)
            if not _is_bare_state(context, call.node.args[0], stored):
                yield from _load(context, call.node.args[0])
        elif _is_behind_wrap(context, function.value) and _reads_file(context, call.node.args[0]):
            # A wrap that only predicts stays nn.DataParallel; what it reads has no prefix any more.
            yield function.value, _predicting(context, function.value, perhaps)
            yield from _load(context, call.node.args[0])
    elif call.names & ({"torch.save"} | PICKLES) and (whole := _pickled(call)) is not None:
        if context.is_wrapped(program.values(whole)) and isinstance(whole, ast.Name | ast.Attribute):
            yield whole, bare(context, whole, perhaps, "pickle")
    elif call.names & ASKS_CLASS and len(call.node.args) == 2:
        yield from _classes(context, call.node.args[1], "class")
    elif call.names == {"builtins.type"} and isinstance(parent := program.parent(call.node), ast.Compare):
        yield from _types(context, parent)


def _classes(context: Context, node: ast.expr, kind: str) -> Iterator[tuple[ast.AST, StateDict]]:
    """The places of DataParallel in a type check; none where torch's DistributedDataParallel stands beside it already.

    In one of the very type the runtime's has to: it is a class of its own. None in files of other programs, whose
    wraps stay.
    """
    program = context.program
    classes = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    ours = DDP_WRAPS - ({APEX_WRAP} if kind == "class" else OTHER_WRAPS)
    known = any(isinstance(v, Ext) and v.name in ours for it in classes for v in program.values(it))
    for it in classes if not known and program.file(node).path in context.reached else ():
        if Ext(WRAP) in program.values(it):
            state = _state(context, kind, it, imported=it.id if isinstance(it, ast.Name) else "")
            yield it, replace(state, shared=checks.is_for_others(context, program.file(it).path))


def _types(context: Context, comparison: ast.Compare) -> Iterator[tuple[ast.AST, StateDict]]:
    """The same where the very type is compared with one class, or asked for among several."""
    for other in comparison.comparators:
        for node, state in _classes(context, other, "type"):
            if not state.shared:
                yield node, state
            elif node is not other:
                yield node, replace(state, **context.place(other), operand=context.program.anchor(other))
            elif among := checks.among(comparison):
                left = context.program.anchor(comparison.left)
                yield node, replace(state, **context.place(comparison), left=left, among=among)


def _is_bare_state(context: Context, given: ast.expr, stored: set[int]) -> bool:
    """Whether a state dict is one that the program takes from a model, which becomes the bare one's."""
    values = context.program.values(given)
    calls = {it.site: context.program.nodes.get(it.site) for it in values if isinstance(it, Made)}

    def becomes_bare(node: ast.AST | None) -> bool:
        call = context.program.call(node) if isinstance(node, ast.Call) else None
        if call is None or getattr(call.node.func, "attr", "") != "state_dict":
            return False
        compared = _compared(context, call)
        return (id(call.node) in stored and not _changed(context, call.node)) or bool(compared)

    return bool(values) and len(calls) == len(values) and all(map(becomes_bare, calls.values()))


def _load(context: Context, given: ast.expr) -> Iterator[tuple[ast.AST, StateDict]]:
    call = context.program.call(given) if isinstance(given, ast.Call) else None
    if call is None or "dp2ddp.runtime.strip_module_prefix" not in call.names:
        yield given, _state(context, "load", given)


def _from_file(context: Context, given: ast.expr) -> bool:
    """Whether a state dict comes from torch.load, directly or out of a checkpoint."""
    return any(_is_of_file(origin(value)) for value in context.program.values(given))


def _reads_file(context: Context, given: ast.expr) -> bool:
    """Whether a state dict comes from torch.load, or has been filled from what does by its keys."""
    if _from_file(context, given):
        return True
    found = made_of(context, given, _from_file)
    scopes = {it.index: it for it in map(context.program.scope, (given, *found))}
    spelled = any(_spells_prefix(it) for scope in scopes.values() for it in context.program.body(scope))
    return bool(found) and not spelled


def is_of_memory(context: Context, given: ast.expr) -> bool:
    """Whether a state dict is what another model has in memory: no file has a part in its keys."""
    return bool(made_of(context, given, _is_state)) and not made_of(context, given, _from_file)


def _is_state(context: Context, node: ast.expr) -> bool:
    """``model.state_dict()``, unless the model itself is from a file."""
    match node:
        case ast.Call(func=ast.Attribute(attr="state_dict", value=model)):
            return not _from_file(context, model)
    return False


def _is_of_file(made: Made | None) -> bool:
    """Whether something is what ``torch.load`` returns, or taken out of it: ``torch.load(path).get("model")``."""
    if made is None:
        return False
    way = made.name.removeprefix("torch.load").split(".")[1:]
    return made.name.startswith("torch.load") and TAKEN_OUT.issuperset(way)


def _cut(context: Context, node: ast.AST) -> tuple[ast.expr, str] | None:
    """The key of a state dict whose prefix an expression cuts off, however that is spelled.

    With the kind of fact: "prefix", or "first" where the first part is cut off, whatever it is.
    """
    key, is_first = None, True
    match node:
        case ast.Subscript(
            value=ast.Name() as key, slice=ast.Slice(lower=first, upper=None, step=None), ctx=ast.Load()
        ):
            is_first = not _is_prefix_s_length(context, first)
            if is_first and not _is_behind_dot(first, key):
                return None
        case ast.Subscript(
            value=ast.Call(
                func=ast.Attribute(value=ast.Name() as key, attr=method),
                args=[ast.Constant(value=separator), *_],
            ) as call,
            slice=ast.Constant(value=place),
        ):
            # k.split(".", 1)[1], k.partition(".")[2], k.split("module.")[1]
            wanted = BEHIND_SEPARATOR.get(method)
            once_only = method != "split" or len(call.args) == 2 or separator == PREFIX
            if separator not in (".", PREFIX) or place != wanted or not once_only:
                return None
            is_first = separator == "."
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(value="."), attr="join"),
            args=[
                ast.Subscript(
                    value=parts, slice=ast.Slice(lower=ast.Constant(value=1), upper=None, step=None)
                )
            ],
        ):
            key = _split(context, parts)
    if not isinstance(key, ast.Name) or _leaves_others(context, node, key):
        return None
    return (key, "first" if is_first else "prefix") if _is_key(context, key, is_first) else None


def _guards(context: Context, node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """The conditions on which a node runs, in its function, and whether they hold there."""
    inside = node
    for around in context.program.ancestors(node):
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return
        if isinstance(around, ast.If | ast.IfExp) and inside is not around.test:
            body = around.body if isinstance(around, ast.If) else [around.body]
            yield around.test, any(inside is it for it in body)
        for generator in getattr(around, "generators", ()):
            yield from ((test, True) for test in generator.ifs)
        inside = around


def _is_told_bare(context: Context, model: ast.expr) -> bool:
    """Whether a statement has asked for the class of a model that DataParallel does not wrap there.

    What stands in it stays as it is: with a model that is always wrapped, nothing comes there.
    """
    program = context.program
    for test, holds in _guards(context, model):
        asked = test
        while isinstance(asked, ast.UnaryOp) and isinstance(asked.op, ast.Not):
            asked, holds = asked.operand, not holds
        call = program.call(asked) if isinstance(asked, ast.Call) else None
        if holds or call is None or not call.names & ASKS_CLASS or len(call.node.args) != 2:
            continue
        of, classes = call.node.args
        same = ast.unparse(of) == ast.unparse(model) and program.definitions(of) == program.definitions(model)
        named = classes.elts if isinstance(classes, ast.Tuple) else [classes]
        if same and isinstance(program.parent(test), ast.If) and program.file(model).path in context.reached:
            return any(Ext(WRAP) in program.values(it) for it in named)
    return False


def conditions(context: Context, node: ast.AST) -> list[ast.expr]:
    """The conditions on which a node runs, in its function."""
    return [test for test, _ in _guards(context, node)]


def names_prefix(test: ast.expr) -> bool:
    """Whether a condition asks for a wrap's prefix."""
    return any(isinstance(it, ast.Constant) and "module" in str(it.value) for it in ast.walk(test))


def _holding(context: Context, node: ast.AST) -> Iterator[ast.expr]:
    """The conditions that hold where a node runs, in its function, each of several that do for itself."""
    for test in (test for test, holds in _guards(context, node) if holds):
        both = isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And)
        yield from test.values if both else [test]  # type: ignore[attr-defined]


def _prefix_guard(context: Context, node: ast.AST, key: ast.expr) -> ast.If | None:
    """The ``if k.startswith("module."):`` under which alone a key is cut and what it names is kept."""
    statement = context.program.statement(node)
    match context.program.parent(statement):
        case ast.If(
            test=ast.Call(func=ast.Attribute(value=asked, attr="startswith"), args=[start]), body=body
        ) as guard if statement in body and ast.unparse(asked) == ast.unparse(key):
            texts = {it.value for it in context.program.values(start) if isinstance(it, Const)}
            return guard if texts == {PREFIX} and all(isinstance(it, ast.Assign) for it in body) else None
    return None


def _leaves_others(context: Context, node: ast.AST, key: ast.Name) -> bool:
    """Whether only keys are cut that begin with something else, or where a key that doesn't begin with it stays.

    ``if k.startswith("resnet."):``, ``if k.startswith("module."): k = k[7:]``.
    """
    around = context.program.parent(node)
    again = isinstance(around, ast.Assign) and [key.id] == [getattr(it, "id", "") for it in around.targets]
    for asked in _holding(context, node):
        match asked:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="startswith"), args=[start]):
                values = context.program.values(start)
                texts = [it.value for it in values if isinstance(it, Const) and isinstance(it.value, str)]
                unlike = not any(PREFIX.startswith(it[: len(PREFIX)]) for it in texts)
                if name == key.id and texts and (unlike or (again and set(texts) == {PREFIX})):
                    return True
    return False


def is_of_another_length_alike(context: Context, node: ast.AST) -> bool:
    """Whether a key seems to be cut by the length of something else that it has to have: ``if "blocks" in k``."""
    for asked in _holding(context, node):
        match asked:
            case ast.Compare(
                left=ast.Constant(value=str(text)), ops=[ast.In()], comparators=[ast.Name(id=key)]
            ):
                name = f"{text.strip('.')}."
                cut = isinstance(node, ast.Subscript) and ast.unparse(node.value) == key
                if cut and len(name) == len(PREFIX) and name != PREFIX:
                    return True
    return False


def _cuts_prefix(context: Context, node: ast.AST) -> bool | None:
    """Whether the first part that is cut off each key is known to be the wrap's; None if that can't be told.

    It is where a condition names it, and where what is left are the keys of a model that is wrapped; not where they
    are those of another one, or of a part of it.
    """
    if any(map(names_prefix, conditions(context, node))):
        return True
    program = context.program
    made = _made_of(context, node)
    loads = [
        it.node.func.value
        for it in program.calls
        if isinstance(it.node.func, ast.Attribute)
        and it.node.func.attr == "load_state_dict"
        and (state := it.argument("state_dict", 0)) is not None
        and any(getattr(value, "site", None) in made for value in program.values(state))
    ]
    whole = [_is_whole(context, it) for it in loads]
    if True in whole:
        return True
    return None if None in whole or not whole else False


def _made_of(context: Context, node: ast.AST) -> set[int]:
    """What the keys are put into that are cut somewhere: where these collections are made."""
    program = context.program
    around = list(program.ancestors(node))
    statement = program.statement(node)
    found = {id(it) for it in around[: around.index(statement)]}
    targets = [it for it in around if isinstance(it, ast.Subscript) and isinstance(it.ctx, ast.Store)]
    match statement:
        case ast.Assign(targets=[ast.Name()], value=value) if value is node:  # name = k[7:]; new[name] = v
            loop = next((it for it in around if isinstance(it, ast.For)), statement)
            named = (it for it in ast.walk(loop) if isinstance(it, ast.Subscript))
            named = (it for it in named if isinstance(it.ctx, ast.Store) and isinstance(it.slice, ast.Name))
            targets += [it for it in named if statement.targets[0] in program.definitions(it.slice)]
    values = (value for it in targets for value in program.values(it.value))
    return found | {it.site for it in values if isinstance(it, Made | Coll)}


def _is_whole(context: Context, model: ast.expr) -> bool | None:
    """Whether a model is a whole one that programs wrap, or made alike; None if that can't be told."""
    program = context.program
    values = program.values(model)
    if context.is_wrapped(values):
        return True
    kinds = {it.cls if isinstance(it, Inst) else full_name(it) for it in context.trained_modules}
    known = [it for it in values if isinstance(it, Inst | Made)]
    if any((it.cls if isinstance(it, Inst) else full_name(it)) in kinds for it in known):
        inner = isinstance(model, ast.Attribute) and any(
            map(context.module_class, program.values(model.value))
        )
        own = bool(values & context.trained_modules)
        return own or not inner
    return False if known else None


def _is_prefix_s_length(context: Context, number: ast.expr | None) -> bool:
    """``7``, ``len("module.")``, ``len(prefix)``."""
    match number:
        case ast.Constant(value=7):
            return True
        case ast.Call(func=ast.Name(id="len"), args=[text]):
            return context.program.values(text) == {Const(PREFIX)}
    return False


def _is_behind_dot(number: ast.expr | None, key: ast.Name) -> bool:
    """``key.find(".") + 1``."""
    match number:
        case ast.BinOp(
            left=ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="find" | "index"),
                args=[ast.Constant(value=".")],
            ),
            op=ast.Add(),
            right=ast.Constant(value=1),
        ):
            return name == key.id
    return False


def _split(context: Context, parts: ast.expr) -> ast.expr | None:
    """The name that is split at its dots: ``key.split(".")``, or what stands for that."""
    sources = assigned(context, parts) if isinstance(parts, ast.Name) else [parts]
    match sources:
        case [ast.Call(func=ast.Attribute(value=key, attr="split"), args=[ast.Constant(value=".")])]:
            return key
    return None


def _is_key(context: Context, name: ast.Name, of_file: bool) -> bool:
    """Whether a name is a key of a state dict; ``of_file``: of one that is known to be from a file."""
    for definition in context.program.definitions(name):
        for around in context.program.ancestors(definition):
            source = around.iter if isinstance(around, ast.For | ast.comprehension) else None
            while isinstance(source, ast.Call) and isinstance(source.func, ast.Name) and source.args:
                source = source.args[0]  # list(state.keys()), sorted(state)
            if isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute):
                views = source.func.attr in KEY_VIEWS
                return views and (not of_file or _from_file(context, source.func.value))
            if isinstance(source, ast.Name | ast.Attribute | ast.Subscript):
                return _from_file(context, source) if of_file else isinstance(source, ast.Name)
    return False


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "super"


def _alone(context: Context, effects: tuple[Effect, ...]) -> Iterator[ast.expr]:
    """Wrapped models that only the main process uses, under guards and in calls of writers: the bare one must do."""
    program = context.program
    made = {effect.at for effect in effects if effect.kind == "writer"}
    for call in program.calls:
        given = handed(call.node)
        if not any(context.is_wrapped(program.values(it)) for it in (*given, call.node.func)):
            continue
        anchor = program.anchor(call.node)
        if any(effect.covers(anchor) for effect in effects):
            given = [*given, call.node.func]
        elif not any(map(is_of_writer, call.names)) and program.anchor(call.node.func) not in made:
            continue
        for node in given:
            if isinstance(node, ast.Name | ast.Attribute) and context.is_wrapped(program.values(node)):
                yield node


def obstacles(context: Context) -> Iterator[Obstacle]:
    """Calls that run a wrapped model's layers past the wrap while it trains; states whose keys are looked at."""
    backwards = {id(node) for node in context.backwards}
    yield from _loaded(context, backwards)
    yield from _loaded_anyhow(context)
    yield from _found_now(context)
    kept = {path for it in context.prefixing for path in context.program.project.reaches(it)}
    for node in spelled(context) if context.scripts else ():
        if context.program.file(node).path not in kept:
            yield context.obstacle(
                node,
                f"`{ast.unparse(node)}` has the prefix `module.`, which keys in new checkpoints don't have",
                "remove the prefix `module.` here",
                NO_TIER,
            )
    yield from _cut_unknown(context)
    for call in context.program.calls:
        function = call.node.func
        if _saves_bare(context, call):
            yield context.obstacle(
                call.node,
                f"`{ast.unparse(call.node.func)}` now saves the bare model, not the wrapped one",
                "remove `.module` where the file is loaded",
                NO_TIER,
                works=True,
            )
        elif _saves_wrapped(context, call) and context.runs_in_training(call.node):
            yield context.obstacle(
                call.node,
                f"`{ast.unparse(call.node.func)}` pickles the wrapped model: loading that needs dp2ddp",
                "save `model.module`, or its state_dict()",
                NO_TIER,
            )
        if isinstance(function, ast.Attribute) and function.attr in KEYED_LIKE_FILES:
            if context.runs_in_training(call.node) and context.is_wrapped(
                context.program.values(function.value)
            ):
                compared = _compared if function.attr == "state_dict" else _compared_by_names
                if compared(context, call) is None:
                    yield context.obstacle(
                        call.node,
                        f"keys of `{ast.unparse(call.node)}` begin with `module.`, those of new checkpoints don't",
                        f"compare model.module.{function.attr}() with ddp.strip_module_prefix(checkpoint)",
                        NO_TIER,
                    )
        if not isinstance(function, ast.Attribute) or not context.runs_in_training(call.node):
            continue
        bypass = function.attr == "module" and context.is_wrapped(context.program.values(function.value))
        if bypass and _trains(context, call, backwards):
            yield context.obstacle(
                call.node,
                f"`{ast.unparse(call.node)}` bypasses the wrapper, so its gradients would not be averaged",
                "call the wrapped model",
                SHARDED_ONLY,
            )


def _cut_unknown(context: Context) -> Iterator[Obstacle]:
    """Where the first part of each key is cut off that may be a wrap's, or a name in a model: it stays as it is."""
    wrapped, _ = _saved_states(context)
    for node in context.program.nodes.values() if wrapped else ():
        cut = _cut(context, node) if isinstance(node, ast.Subscript | ast.Call) else None
        if cut is None or cut[1] != "first" or not context.run_by(node) & wrapped:
            continue
        if _cuts_prefix(context, node) is None:
            yield context.obstacle(
                node,
                f"`{ast.unparse(node)}` cuts off each key's first part: a name, or the `module.` of old checkpoints",
                'if those are read, write `.removeprefix("module.")`, as new ones have none; else no action needed',
                NO_TIER,
                works=True,
            )


def _loaded(context: Context, backwards: set[int]) -> Iterator[Obstacle]:
    """Whole models from files in the place of the wrapped one: ``model = torch.load(path)``, to go on with it."""
    program = context.program
    told: set[int] = set()
    wrapped = any(True for _ in _restored(context))
    for call in program.calls:
        values = program.values(call.node.func)
        if not context.is_wrapped(values) or not context.runs_in_training(call.node):
            continue
        leading = (program.call(it) for it in context.callers.get(call.scope.index, ()))
        if not any(it is not None and _trains(context, it, backwards) for it in (call, *leading)):
            continue
        for value in values:
            made = origin(value)
            if made is not None and made.name == "torch.load" and made.site not in told:
                told.add(made.site)
                yield context.obstacle(
                    program.node(made.site),
                    f"a model{' of unknown layers' * wrapped} from a file is trained{'' if wrapped else ' unwrapped'}",
                    "load its state instead: model.module.load_state_dict(…)",
                    SHARDED_ONLY,
                )


def _loaded_anyhow(context: Context) -> Iterator[Obstacle]:
    """``bare.load_state_dict(wrapped.state_dict(), strict=False)``: no key was found, and all are now."""
    program = context.program
    for call in program.calls:
        function, strict = call.node.func, call.argument("strict", 1)
        state = call.argument("state_dict", 0)
        if not isinstance(function, ast.Attribute) or function.attr != "load_state_dict" or state is None:
            continue
        loose = isinstance(strict, ast.Constant) and strict.value is False
        if not loose or context.is_wrapped(program.values(function.value)):
            continue
        made = (program.nodes.get(it.site) for it in program.values(state) if isinstance(it, Made))
        models = (
            it.func.value for it in made if isinstance(it, ast.Call) and isinstance(it.func, ast.Attribute)
        )
        if context.runs_in_training(call.node) and any(
            context.is_wrapped(program.values(it)) for it in models
        ):
            yield context.obstacle(
                call.node,
                "nn.DataParallel's keys begin with `module.`: with `strict=False` none was loaded, and all are now",
                "no action needed if they should be loaded; else remove this line",
                NO_TIER,
            )


def _found_now(context: Context) -> Iterator[Obstacle]:
    """``wrapped.load_state_dict(torch.load(path), strict=False)`` of bare keys: none was found, and all are now.

    Where all that a program saves of a wrapped model are the bare one's keys.
    """
    program = context.program
    wrapped, bare = _saved_states(context)
    for call in program.calls:
        function, state, strict = call.node.func, call.argument("state_dict", 0), call.argument("strict", 1)
        if getattr(function, "attr", "") != "load_state_dict" or state is None or strict is None:
            continue
        loose = Const(False) in program.values(strict) and _from_file(context, state)
        runs = context.run_by(call.node)
        if loose and runs & bare and not runs & wrapped and context.is_wrapped(program.values(function.value)):  # type: ignore[attr-defined]
            yield context.obstacle(
                call.node,
                "keys of checkpoints saved here lack `module.`: with `strict=False` none was loaded, and all are now",
                "no action needed if they should be loaded; else remove this line",
                NO_TIER,
            )


def _saved_states(context: Context) -> tuple[set[Path], set[Path]]:
    """The programs that save the state of a wrapped model by its own keys, and by those of the bare one."""
    stored, wrapped, bare = _stored(context), set(), set()
    for call in context.program.calls:
        function = call.node.func
        if isinstance(function, ast.Attribute) and function.attr == "state_dict" and id(call.node) in stored:
            runs = context.run_by(call.node)
            inner = function.value
            if isinstance(inner, ast.Attribute) and inner.attr == "module":
                bare |= runs if context.is_wrapped(context.program.values(inner.value)) else set()
            elif all(context.is_wrapped(frozenset([it])) for it in context.program.values(inner)):
                wrapped |= runs
    return wrapped, bare


def _restored(context: Context) -> Iterator[ast.expr]:
    """Models that come from a file under the name of a wrapped one, in a program that saves that as a whole.

    They came wrapped, as they were saved. What is saved now is the bare model.
    """
    program = context.program
    saves = (it for it in program.calls if "torch.save" in it.names and context.runs_in_training(it.node))
    if not any(_saves_wrapped(context, it) for it in saves):
        return
    names = {
        (program.scope(statement).index, ast.unparse(target))
        for wrap in context.wraps
        if isinstance(statement := program.statement(wrap.node), ast.Assign)
        and context.runs_in_training(statement)
        for target in statement.targets
    }
    for node in program.nodes.values():
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.Call):
            target = program.scope(node).index, ast.unparse(node.targets[0])
            if target in names and comes_from_file(context, node.value) and context.runs_in_training(node):
                yield node.value


def _saves_wrapped(context: Context, call: Call) -> bool:
    """Whether a call pickles a wrapped model, alone or in something."""
    whole = _pickled(call) if call.names & ({"torch.save"} | PICKLES) else None
    alone = whole is not None and context.is_wrapped(context.program.values(whole))
    return alone or (whole is not None and _holds_wrapped(context, call))


def _saves_bare(context: Context, call: Call) -> bool:
    """Whether a call that pickled a wrapped model writes the bare one now."""
    whole = _pickled(call)
    named = isinstance(whole, ast.Name | ast.Attribute) and context.is_wrapped(context.program.values(whole))
    return _saves_wrapped(context, call) and ("torch.save" in call.names or named)


def _trains(context: Context, call: Call, backwards: set[int]) -> bool:
    """Whether the function that a call stands in also runs a backward()."""
    scope = call.scope.node
    return any(id(node) in backwards for node in ast.walk(scope))
