"""DataParallel's work where torch's own class does not do it: classes that derive from it, copies of it, its functions.

A class of the project stays, and derives from the runtime's: what it does at DataParallel's steps is done there. One
that only adds to DataParallel, and changes none of its steps, may derive from DistributedDataParallel as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from dp2ddp.analyse.api.inspection import ASKS_CLASS_AS
from dp2ddp.analyse.api.layers import (
    CALLBACK,
    CALLBACK_PATCHES,
    MODULE,
    NAMES_DEVICES,
    OVERRIDES,
    PARAMETERS,
    SYNCHRONISED,
)
from dp2ddp.analyse.api.parallel import STEP_FUNCTIONS, WRAP, is_derived
from dp2ddp.analyse.api.processes import WAITS
from dp2ddp.analyse.context import Context, root_name
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.values import Bound, Cls, Ext, Func, Inst, full_name
from dp2ddp.facts import NO_TIER, SHARDED_ONLY, Obstacle, Parallel, Problem, Wrap
from dp2ddp.plan import DONE


def stays(context: Context, call: Call) -> bool:
    """Whether a wrap is not a call of torch's own class, or may be one of something else, too."""
    return (
        WRAP not in call.names
        or any(map(_is_other, _own(context, call)))
        or _is_one_of_several(context, call)
    )


def _is_one_of_several(context: Context, call: Call) -> bool:
    """Whether a call may be one of functions that do something else: ``for step in steps: model = step(model)``."""
    return any(
        isinstance(it, Func | Bound | Cls)
        and not context.wrappers.is_wrapper(it)
        and not _hands_back(context, it)
        for it in call.callees
    )


def _hands_back(context: Context, function: object) -> bool:
    """Whether a function returns what it is given, and does nothing else."""
    if not isinstance(function, Func):
        return False
    scope = context.program.scopes[function.scope]
    match scope.body:
        case [*notes, ast.Return(value=ast.Name(id=name))] if scope.params[:1] == [name]:
            return all(isinstance(it, ast.Expr) and isinstance(it.value, ast.Constant) for it in notes)
    return False


def wrap(context: Context, call: Call) -> Wrap:
    """A wrap that stays."""
    anchor = context.program.anchor(call.node)
    module = context.module_of(call)
    seen = module is not None and id(module) in context.program.nodes
    return Wrap(
        **context.place(call.node),
        module=context.program.anchor(module) if seen else anchor,  # type: ignore[arg-type]
        imported="",
        call=anchor,
        stays=True,
        problem=_unsharded(context, call, seen),
    )


def _unsharded(context: Context, call: Call, seen: bool) -> Problem | None:
    """What keeps a wrap that stays from being sharded."""
    others = _own(context, call)
    if _is_one_of_several(context, call):
        return Problem(
            f"`{ast.unparse(call.node.func)}` is nn.DataParallel or something else, chosen at run time",
            "wrap the model by calling nn.DataParallel directly",
            SHARDED_ONLY,
        )
    if WRAP in call.names and not all(map(_is_other, others)):
        return Problem(
            f"`{ast.unparse(call.node.func)}` may be nn.DataParallel itself or a class that derives from it",
            "write two calls, one for each class",
        )
    if WRAP not in call.names:
        message, help = (
            f"`{ast.unparse(call.node.func)}` runs replicas of the model without nn.DataParallel",
            "wrap the model in nn.DataParallel instead",
        )
    elif not seen:
        message = f"the model that `{ast.unparse(call.node)}` wraps is unknown"
        help = "assign the model to a variable first"
    elif any(isinstance(it, Ext) for it in others):
        names = sorted(full_name(it).rpartition(".")[2] for it in others if isinstance(it, Ext))
        message, help = (
            f"{names[0]} is another package's and may split batches in its own way",
            "use nn.DataParallel",
        )
    else:
        dim = context.wrappers.argument(call, "dim", 3)
        if dim is None or (isinstance(dim, ast.Constant) and dim.value == 0):
            return None
        message = f"`dim={ast.unparse(dim)}`: batches are split along a dimension other than 0"
        help = "put the batch in dimension 0"
    return Problem(message, help, SHARDED_ONLY)


def collect(context: Context) -> tuple[Parallel, ...]:
    """The names of torch's that become the runtime's, in programs that train with them."""
    found: dict[int, Parallel] = {}
    wraps = [call for call in context.wraps if context.runs_in_training(call.node)]
    for call in wraps:
        for callee in _own(context, call):
            if isinstance(callee, Ext) and is_derived(callee.name):
                found[id(call.node.func)] = _named(context, call.node.func, "class")
        for cls in _family(context, call):
            for base in (*_bases(context, cls), *_named_bases(context, cls)):
                kind = "class" if any(map(is_derived, _names(context, base))) else "base"
                fact = found.get(id(base)) or replace(
                    _named(context, base, kind), scripts=frozenset(), problem=_changed(context, cls)
                )
                problem = fact.problem or _changed(context, cls)
                scripts = fact.scripts | context.run_by(call.node)
                found[id(base)] = replace(fact, scripts=scripts, problem=problem)
    if any(_is_one_of_several(context, call) for call in wraps):
        for node in _handed_on(context):
            found[id(node)] = _named(context, node, "base")
    for call in context.program.calls:
        steps = {STEP_FUNCTIONS.get(name, "") for name in call.names}
        if len(steps) == 1 and (name := steps.pop()) and context.runs_in_training(call.node):
            found[id(call.node.func)] = _named(context, call.node.func, name)
    return tuple(sorted(found.values(), key=lambda fact: (fact.path, fact.at.span)))


def obstacles(context: Context) -> Iterator[Obstacle]:
    """Layers that wait for their likes in the other replicas of one process, where they are in other processes now.

    Those that DataParallel calls back are told where to look for the others.
    """
    program = context.program
    called_back = {it.owner for it in program.scopes if getattr(it.node, "name", "") == CALLBACK}
    makers = {call.scope.owner for call in program.calls if call.names & WAITS}
    for cls in sorted((it for it in makers if it is not None), key=lambda it: it.scope):
        if context.module_class(Inst(cls, 0)) and not called_back & set(program.bases(cls)):
            for named in _names_in_training(context, cls):
                name = ast.unparse(named).rpartition(".")[2]
                yield _waiting(context, named, f"this project's {name}")
    for call in program.calls:
        apart = [name for name in call.names if name.startswith(SYNCHRONISED) and "BatchNorm" in name]
        if apart and context.runs_in_training(call.node):
            chosen = len(call.callees) > len(apart)
            yield (_may_wait if chosen else _waiting)(context, call.node, apart[0])
        if any(name.endswith(CALLBACK_PATCHES) for name in call.names) and context.runs_in_training(
            call.node
        ):
            yield context.obstacle(
                call.node,
                f"`{ast.unparse(call.node.func)}` makes layers exchange data between DataParallel's replicas",
                "use torch.nn.SyncBatchNorm instead",
                SHARDED_ONLY,
            )
    yield from _on_one_gpu(context)


def _on_one_gpu(context: Context) -> Iterator[Obstacle]:
    """Programs that train nothing with a class, and that get another one with it."""
    trained = {
        cls for call in context.wraps if context.runs_in_training(call.node) for cls in _family(context, call)
    }
    for call in context.wraps:
        classes = [] if context.runs_in_training(call.node) else [*_family(context, call)]
        if trained & set(classes):
            name = context.program.scopes[classes[0].scope].node.name  # type: ignore[attr-defined]
            yield context.obstacle(
                call.node,
                f"{name} now uses one GPU per rank; a script that starts no ranks uses one GPU only",
                DONE,
                NO_TIER,
                works=True,
            )


def _names_in_training(context: Context, cls: Cls) -> list[ast.expr]:
    """Where a program that trains names a class of which it makes objects; elsewhere than in the class's own file."""
    program = context.program

    def is_it(value: object) -> bool:
        return isinstance(value, Cls) and cls in program.bases(value)

    if not any(any(map(is_it, it.callees)) and context.runs_in_training(it.node) for it in program.calls):
        return []
    found = [
        node
        for node in program.nodes.values()
        if isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and any(map(is_it, program.values(node)))
        and _is_imported(context, node)
        and context.runs_in_training(node)
    ]
    own = program.scopes[cls.scope].file
    called = [it for it in found if getattr(program.parent(it), "func", None) is it]
    return [it for it in found if program.file(it) is not own] or called or found[:1]


def _is_imported(context: Context, node: ast.Name | ast.Attribute) -> bool:
    """Whether a name is that of a class or of its module, and no type check is made with it."""
    root = root_name(node)
    named = context.program.definitions(root) if root is not None else []
    around = context.program.parent(node)
    if isinstance(around, ast.Tuple | ast.List):  # one of several that are asked for
        around = context.program.parent(around)
    checks = isinstance(around, ast.Call) and ast.unparse(around.func) in ASKS_CLASS_AS
    return not checks and bool(named) and all(isinstance(it, ast.alias | ast.ClassDef) for it in named)


def _waiting(context: Context, node: ast.AST, name: str) -> Obstacle:
    return context.obstacle(
        node,
        f"{name} hangs with DDP: it waits for other replicas in the same process",
        "use torch.nn.SyncBatchNorm (and a separate activation layer)",
    )


def _may_wait(context: Context, node: ast.AST, name: str) -> Obstacle:
    """One of several layers, of which the program chooses: where it is this one, the runtime says so at the wrap."""
    return context.obstacle(
        node,
        f"if {name} is chosen here, training stops: it waits for replicas in the same process",
        "choose torch.nn.SyncBatchNorm",
        NO_TIER,
        works=True,
    )


def at_home(context: Context) -> set[int]:
    """What runs in the steps of classes whose devices the runtime looks after."""
    program = context.program
    functions = (it for it in program.scopes if it.owner in context.wrappers.classes)
    return {
        id(node)
        for it in functions
        if getattr(it.node, "name", "") in NAMES_DEVICES
        for node in program.body(it)
    }


def _own(context: Context, call: Call) -> list[object]:
    """The classes that a wrap may be a call of."""
    return [it for it in context.program.values(call.node.func) if context.wrappers.is_wrapper(it)]


def _is_other(cls: object) -> bool:
    return cls != Ext(WRAP)


def _family(context: Context, call: Call) -> Iterator[Cls]:
    """The classes of the project that a wrap is a call of, each before those that it derives from."""
    for cls in _own(context, call):
        for base in context.program.bases(cls) if isinstance(cls, Cls) else ():
            if isinstance(base, Cls):
                yield base


def _bases(context: Context, cls: Cls) -> Iterator[ast.expr]:
    """What a class derives from that is DataParallel; what a copy of DataParallel derives from."""
    bases: list[ast.expr] = context.program.scopes[cls.scope].node.bases  # type: ignore[attr-defined]
    family = {full_name(it) for it in context.program.bases(cls)}
    is_copy = WRAP not in family and not any(map(is_derived, family))
    for base in bases:
        names = _names(context, base)
        if WRAP in names or any(map(is_derived, names)) or (is_copy and MODULE in names):
            yield base


def _handed_on(context: Context) -> Iterator[ast.expr]:
    """Where ``nn.DataParallel`` is named to be called elsewhere: ``build([double, nn.DataParallel], model)``."""
    program = context.program
    for node in program.nodes.values():
        if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
            continue
        around = program.parent(node)
        called = isinstance(around, ast.Call) and around.func is node
        named = isinstance(around, ast.ClassDef | ast.Attribute)
        if not called and not named and _names(context, node) == {WRAP} and _is_imported(context, node):
            yield node


def _named_bases(context: Context, cls: Cls) -> Iterator[ast.expr]:
    """``nn.DataParallel`` of ``nn.DataParallel.__init__(self, module)``, in the functions of a class."""
    program = context.program
    for function in program.scopes:
        for node in program.body(function) if function.owner == cls else ():
            if isinstance(node, ast.Attribute) and WRAP in _names(context, node.value):
                if any(isinstance(it, Ext) for it in program.values(node.value)):
                    yield node.value


def _names(context: Context, node: ast.expr) -> set[str]:
    return {full_name(it) for it in context.program.values(node)}


def _changed(context: Context, cls: Cls) -> Problem | None:
    """What a class changes of a DataParallel, so that batches have to be whole."""
    program = context.program
    name = program.scopes[cls.scope].node.name  # type: ignore[attr-defined]
    functions = [it for it in program.scopes if it.owner == cls]
    changed = [
        it.node
        for it in functions
        if getattr(it.node, "name", "") in OVERRIDES
        and not (it.node.name == "replicate" and calls_back(context, [it]))  # type: ignore[attr-defined]
    ]
    if changed:
        names = [*dict.fromkeys(it.name for it in changed)]  # type: ignore[attr-defined]
        does = "does" if len(names) == 1 else "do"
        return Problem(
            f"{name} overrides {_listed(names)}",
            f"use nn.DataParallel, and do in the training loop what {_listed(names)} {does}",
            SHARDED_ONLY,
            cause=context.cause(changed[0]),
            briefly="use nn.DataParallel, and do the rest in the training loop",
        )
    for function in functions:
        for node in program.body(function):
            if isinstance(node, ast.Assign) and _holds_layers(context, node, function.params[:1]):
                return Problem(
                    f"{name} has its own layers or parameters",
                    "move them into the wrapped model",
                    SHARDED_ONLY,
                    cause=context.cause(node),
                )
    return None


def calls_back(context: Context, functions: Iterable[Scope]) -> bool:
    """Whether each of some functions, with what it calls, has the layers of replicas called back."""
    program = context.program

    def names_it(scope: Scope) -> bool:
        return any(
            CALLBACK in (getattr(node, "attr", ""), getattr(node, "value", ""))
            for node in program.body(scope)
        )

    found = [
        [scope, *(program.scopes[it] for part in scope.body for it in program.entered(part))]
        for scope in functions
    ]
    return bool(found) and all(any(map(names_it, scopes)) for scopes in found)


def _holds_layers(context: Context, node: ast.Assign, me: list[str]) -> bool:
    """``self.scale = nn.Parameter(…)``."""
    values = context.program.values(node.value)
    return any(
        isinstance(it, ast.Attribute) and isinstance(it.value, ast.Name) and [it.value.id] == me
        for it in node.targets
    ) and any(context.module_class(it) or full_name(it) in PARAMETERS for it in values)


def _listed(names: Iterable[str]) -> str:
    first, *others = (f"`{name}`" for name in names)
    more = f"{len(others)} more methods" if len(others) > 1 else "".join(others)
    return f"{first} and {more}" if more else first


def _named(context: Context, node: ast.expr, kind: str) -> Parallel:
    return Parallel(**context.place(node), kind=kind, imported=node.id if isinstance(node, ast.Name) else "")
