"""Calls of ``data_parallel()``, most of them in a network's ``forward``: it replicates a part of itself at every call.

Where that part is all that such a network computes, and each of its objects has a name, the program is looked at as
if it had wrapped each object in nn.DataParallel once, and called the part plainly. Any other call is looked at as one
of a model that is wrapped there and then; it stays, and the runtime has the same of several processes.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.analyse.api.handing import SAME_OBJECT
from dp2ddp.analyse.api.layers import (
    DATA_PARALLEL_ARGUMENTS,
    FURTHER_ARGUMENTS,
    SAME_OF_WRAPPED,
)
from dp2ddp.analyse.api.parallel import FUNCTION
from dp2ddp.analyse.api.tensors import SHAPES
from dp2ddp.analyse.context import Context, disables_gradients, is_inserted
from dp2ddp.analyse.processes import elsewhere
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.values import Cls, Inst
from dp2ddp.analyse.views import View, insert, insert_imports, put
from dp2ddp.facts import Functional
from dp2ddp.plan import Anchor

WRAPPER = "_DataParallel_of_calls"
"""What nn.DataParallel is called where a call that stays is looked at as one of a wrapped model."""


@dataclass(frozen=True)
class Site:
    """A call of ``data_parallel()`` that needs not be one.

    ``place`` is the ``if`` whose other branch has the plain call, or the call itself; ``plain`` is the statement that
    takes its place, or the expression. ``made`` are the statements that make the networks, each with the one after
    which it can be wrapped, and the devices. There are none where the call stays, and ``plain`` wraps the model itself.
    """

    place: ast.AST
    plain: ast.AST
    made: tuple[tuple[ast.Assign, ast.stmt, ast.expr | None], ...]
    fact: tuple[Anchor, Anchor, Anchor | None]


def find(context: Context) -> list[Site]:
    """The calls of ``data_parallel()`` that are the whole of a network, and those that may train one elsewhere."""
    calls = [call for call in context.program.calls if FUNCTION in call.names]
    sites = (_site(context, call) or _staying(context, call) for call in calls)
    return [site for site in sites if site is not None]


def wrapped_once(context: Context, sites: list[Site]) -> Context:
    """The programs as they would be with each network wrapped where it is made."""
    view = View(context)
    for site in sites:
        tree = view.tree(site.place)
        known = id(site.plain) in context.program.nodes
        plain = view.twin(site.plain) if known else ast.copy_location(copy.deepcopy(site.plain), site.place)
        plain.functional = site.fact  # type: ignore[attr-defined]
        put(tree, view.twin(site.place), plain)
        if not site.made:
            insert_imports(tree, f"from torch.nn import DataParallel as {WRAPPER}")
        for made, last, devices in site.made:
            _wrap(view.tree(made), view.twin(last), made, devices)
    return view.linked()


def is_untrained(context: Context, call: Call) -> bool:
    """Whether a call of ``data_parallel()`` computes no gradients, in a program that trains a wrapped model."""
    return (
        bool(context.trained_wraps)
        and context.runs_in_training(call.node)
        and _computes_none(context, call.node)
    )


def is_of_call(context: Context, call: Call) -> bool:
    """Whether a wrap stands for what a call of ``data_parallel()`` does, and not for one where the network is made."""
    return is_inserted(call.node) and not is_inserted(context.program.statement(call.node))


def _computes_none(context: Context, call: ast.Call) -> bool:
    """Whether a call stands under ``torch.no_grad()``."""
    for around in context.program.ancestors(call):
        if disables_gradients(context.program, around):
            return True
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return False
    return False


def collect(context: Context) -> Iterator[Functional]:
    """The calls of ``data_parallel()`` that become plain, and those that become the runtime's."""
    for call in context.program.calls:
        if FUNCTION in call.names and is_untrained(context, call):
            yield Functional(**context.place(call.node.func), imported=_imported(call.node))
    for node in list(context.program.nodes.values()):
        if (known := getattr(node, "functional", None)) is not None:
            at, value, target = known
            imported = getattr(node, "imported", "")
            yield Functional(
                **{**context.place(node), "at": at}, value=value, target=target, imported=imported
            )


def _imported(call: ast.Call) -> str:
    """The name of its own by which a function is called."""
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _wrap(tree: ast.Module, last: ast.AST, made: ast.Assign, devices: ast.expr | None) -> None:
    """Wrap a network after a statement."""
    name = made.targets[0].id  # type: ignore[attr-defined]
    imported, wrap = ast.parse(f"from torch.nn import DataParallel as _\n{name} = _({name})").body
    assert isinstance(wrap, ast.Assign) and isinstance(wrap.value, ast.Call)
    if devices is not None:
        wrap.value.keywords.append(ast.keyword("device_ids", copy.deepcopy(devices)))
    insert(tree, last, [imported, wrap])


def _staying(context: Context, call: Call) -> Site | None:
    """A call that stays, as one of a model that is wrapped there; None without gradients, or where it is unclear."""
    names = (*DATA_PARALLEL_ARGUMENTS, *FURTHER_ARGUMENTS)
    module, inputs, devices, _, dim, named = (call.argument(name, index) for index, name in enumerate(names))
    given = {it.arg for it in call.node.keywords}
    if module is None or not given <= {*names} or _computes_none(context, call.node):
        return None
    spread = [it for it in call.node.args if isinstance(it, ast.Starred)]
    if inputs is None and not spread:
        return None
    more = {"device_ids": devices, "dim": dim}
    keywords = [ast.keyword(name, it) for name, it in more.items() if it is not None]
    wrap = ast.Call(ast.Name(WRAPPER, ast.Load()), [module], keywords)
    for node in (wrap, wrap.func):
        ast.copy_location(node, call.node.func)
    wrap.inserted = True  # type: ignore[attr-defined]
    parts = inputs.elts if isinstance(inputs, ast.Tuple) else spread or [inputs]
    options = [ast.copy_location(ast.keyword(None, named), call.node)] if named is not None else []
    plain = ast.Call(wrap, parts, options)
    plain.imported = _imported(call.node)  # type: ignore[attr-defined]
    return Site(call.node, plain, (), (context.program.anchor(call.node.func), None, None))


def _site(context: Context, call: Call) -> Site | None:
    program = context.program
    module, inputs, devices = (
        call.argument(name, index) for index, name in enumerate(DATA_PARALLEL_ARGUMENTS)
    )
    more = [keyword.arg for keyword in call.node.keywords if keyword.arg not in DATA_PARALLEL_ARGUMENTS]
    forward, cls = _method(context, call.node)
    if module is None or inputs is None or isinstance(inputs, ast.Tuple) or more or len(call.node.args) > 3:
        return None
    if forward is None or cls is None or not _is_part(module, forward):
        return None
    plain = ast.unparse(ast.Call(module, [inputs], []))
    statement = program.statement(call.node)
    around = program.parent(statement)
    if isinstance(around, ast.If) and around.body == [statement] and len(around.orelse) == 1:
        other = around.orelse[0]
        if ast.unparse(other) != ast.unparse(statement).replace(ast.unparse(call.node), plain):
            return None
        if not _only_asks(context, around.test):
            return None
        place: ast.stmt = around
    elif around is forward and program.parent(call.node) is statement:
        place = other = statement
    else:
        return None
    if program.parent(place) is not forward or not _only_shapes(forward, place, other):
        return None
    made = _made(context, cls, devices)
    if not made:
        return None
    if place is around:
        assert isinstance(other, ast.Assign | ast.Return) and other.value is not None
        target = program.anchor(other.targets[0]) if isinstance(other, ast.Assign) else None
        return Site(place, other, tuple(made), (program.anchor(place), program.anchor(other.value), target))
    anchors = (program.anchor(call.node), program.anchor(module), program.anchor(inputs))
    return Site(call.node, ast.Call(module, [inputs], []), tuple(made), anchors)


def _method(context: Context, node: ast.AST) -> tuple[ast.FunctionDef | None, Cls | None]:
    """The ``forward`` of a module's class that a node stands in."""
    scope = context.program.scope(node)
    function = scope.node
    if not isinstance(function, ast.FunctionDef) or function.name != "forward" or not function.args.args:
        return None, None
    return function, scope.owner


def _is_part(module: ast.expr, forward: ast.FunctionDef) -> bool:
    """``self.main``."""
    match module:
        case ast.Attribute(value=ast.Name(id=name)):
            return name == forward.args.args[0].arg
    return False


def _only_asks(context: Context, test: ast.expr) -> bool:
    calls = [context.program.call(node) for node in ast.walk(test) if isinstance(node, ast.Call)]
    return all(call is not None and call.names == {"builtins.isinstance"} for call in calls)


def _only_shapes(forward: ast.FunctionDef, place: ast.stmt, other: ast.stmt) -> bool:
    """Whether a ``forward`` does nothing more than to call the part, and to give its output another shape."""
    body = [
        it for it in forward.body if not (isinstance(it, ast.Expr) and isinstance(it.value, ast.Constant))
    ]
    if body[0] is not place:
        return False
    if isinstance(other, ast.Return):
        return len(body) == 1
    if not isinstance(other, ast.Assign) or not _keeps_nothing(other):
        return False
    name = other.targets[0].id  # type: ignore[attr-defined]
    return all(
        isinstance(it, ast.Return | ast.Assign)
        and it.value is not None
        and _is_shaped(it.value, name)
        and (isinstance(it, ast.Return) or _keeps_nothing(it))
        for it in body[1:]
    )


def _keeps_nothing(statement: ast.Assign) -> bool:
    """Whether a statement assigns local variables only: the network itself would forget its attributes if wrapped."""
    return all(isinstance(it, ast.Name) for it in statement.targets)


def _is_shaped(node: ast.expr, name: str) -> bool:
    """``output.view(-1, 1).squeeze(1)``."""
    match node:
        case ast.Name():
            return node.id == name
        case ast.Call(func=ast.Attribute(attr=method, value=owner), args=[first, *_], keywords=[]):
            known = _number(first) in SHAPES.get(method, ())
            return known and _is_shaped(owner, name)
    return False


def _number(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def _made(
    context: Context, cls: Cls, devices: ast.expr | None
) -> list[tuple[ast.Assign, ast.stmt, ast.expr | None]] | None:
    """The statements that make the networks of a class, and where each can be wrapped; None where one is not clear."""
    program = context.program
    found = []
    for call in program.calls:
        if any(isinstance(it, Cls) and it != cls and cls in program.bases(it) for it in call.callees):
            return None
        networks = {
            value
            for argument in handed(call.node)
            for value in program.values(argument)
            if isinstance(value, Inst) and value.cls == cls
        }
        if networks and any(name.startswith("torch.nn.") for name in call.names):
            return None
        if cls not in call.callees:
            continue
        statement = program.statement(call.node)
        outside = program.parent(statement)
        if not _names(statement, call.node) or not isinstance(outside, ast.Module | ast.FunctionDef):
            return None
        chosen = _chosen(context, devices, statement)
        if devices is not None and chosen is None:
            return None
        assert isinstance(statement, ast.Assign)
        found.append((statement, _ready(context, statement), chosen))
    return found if all(_may_be_wrapped(context, node) for node in _uses(context, cls)) else None


def _uses(context: Context, cls: Cls) -> Iterator[ast.expr]:
    """Where one of the networks of a class is read, outside the class itself."""
    program = context.program
    for node in program.nodes.values():
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            inside = program.scope(node).owner == cls
            if not inside and any(isinstance(it, Inst) and it.cls == cls for it in program.values(node)):
                yield node


def _may_be_wrapped(context: Context, use: ast.expr) -> bool:
    """Whether a use of a network is the same for one that is wrapped."""
    program = context.program
    parent = program.parent(use)
    if isinstance(parent, ast.Attribute):
        return parent.attr in (*SAME_OBJECT, *SAME_OF_WRAPPED)
    if isinstance(parent, ast.keyword):
        parent = program.parent(parent)
    if not isinstance(parent, ast.Call):
        return isinstance(parent, ast.Assign) and all(isinstance(it, ast.Name) for it in parent.targets)
    call = program.call(parent)
    if parent.func is use or call is None:
        return parent.func is use
    return call.names == {"builtins.print"} or (not call.names and bool(program.entered(parent)))


def _names(statement: ast.stmt, made: ast.Call) -> bool:
    """``net = Net(...).to(device)``."""
    if not isinstance(statement, ast.Assign) or not all(isinstance(it, ast.Name) for it in statement.targets):
        return False
    node = statement.value
    while node is not made:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            return False
        if node.func.attr not in SAME_OBJECT:
            return False
        node = node.func.value
    return len(statement.targets) == 1


def _chosen(context: Context, devices: ast.expr | None, statement: ast.stmt) -> ast.expr | None:
    """The devices, as they can be written where a network is made."""
    if devices is None:
        return None
    scope = context.program.scope(statement)
    scopes = [scope, context.program.modules[scope.file.path]]
    return elsewhere.written_in(context, devices, scopes)


def _ready(context: Context, made: ast.Assign) -> ast.stmt:
    """The last of the statements that make a network ready: it is initialised, loaded, printed."""
    name = made.targets[0].id  # type: ignore[attr-defined]
    block = context.program.block(made)
    last: ast.stmt = made
    for statement in block[block.index(made) + 1 :]:
        used = [node for node in ast.walk(statement) if isinstance(node, ast.Name) and node.id == name]
        if not used or not all(_prepares(context, node) for node in used):
            break
        if not isinstance(statement, ast.Expr | ast.If):
            break
        last = statement
    return last


def _prepares(context: Context, name: ast.Name) -> bool:
    """``net.apply(…)``, ``net.load_state_dict(…)`` or ``print(net)``."""
    parent = context.program.parent(name)
    if isinstance(parent, ast.Attribute):
        return parent.attr in (*SAME_OBJECT, "load_state_dict")
    call = context.program.call(parent) if isinstance(parent, ast.Call) else None
    return call is not None and call.names == {"builtins.print"}
