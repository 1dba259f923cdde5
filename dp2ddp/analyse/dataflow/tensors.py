"""Which names hold one tensor, and no list or dictionary of them, by what is done with them.

A loader hands out what its data set and ``collate_fn`` make: ``len(x)`` is the number of samples of a tensor, and that
of the views or entries of anything else.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dp2ddp.analyse.api import operations
from dp2ddp.analyse.api.layers import LAYER_HOME, SEQUENTIAL, TAKE_ANYTHING
from dp2ddp.analyse.api.losses import LOSS_CLASSES, LOSS_FUNCTIONS
from dp2ddp.analyse.api.parallel import WRAP
from dp2ddp.analyse.api.tensors import FUNCTION_HOMES, SHOW_TENSORS, TAKE_LISTS
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.program import signature
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.values import Ext, Inst, Made, Value, closure

DEPTH = 6


@dataclass(frozen=True)
class _Asked:
    """The parameters that a question has come through, and of which object each function's method was called."""

    parameters: frozenset[int] = frozenset()
    owners: tuple[tuple[int, Value], ...] = ()

    def after(self, parameter: ast.arg, scope: int, owner: Value | None) -> _Asked:
        owners = self.owners if owner is None else ((scope, owner), *self.owners)
        return _Asked(self.parameters | {id(parameter)}, owners)


def is_tensor(context: Context, name: ast.Name) -> bool:
    """Whether whatever a name holds in a place is a tensor: of each, something is done that only a tensor bears."""
    return _is_shown(context, context.program.definitions(name), _Asked())


def _is_shown(context: Context, definitions: list[ast.AST], asked: _Asked) -> bool:
    return bool(definitions) and all(
        any(_shows(context, use, asked) for use in _uses(context, definition)) for definition in definitions
    )


def _uses(context: Context, definition: ast.AST) -> Iterator[ast.Name]:
    """Where what a definition gives a name is used, in its function."""
    program = context.program
    name = definition.arg if isinstance(definition, ast.arg) else getattr(definition, "id", None)
    for node in program.body(program.scope(definition)):
        if isinstance(node, ast.Name) and node.id == name and definition in program.definitions(node):
            yield node


def _shows(context: Context, use: ast.Name, asked: _Asked) -> bool:
    """Whether a use is one that lists, dictionaries and strings don't bear."""
    match context.program.parent(use):
        case ast.Attribute(attr=attribute):
            return attribute in SHOW_TENSORS
        case ast.UnaryOp(op=ast.USub() | ast.Invert()):
            return True
        case ast.BinOp(op=ast.Sub() | ast.Div() | ast.Pow() | ast.MatMult()):
            return True
        case ast.Call() as node if use in node.args:
            return _takes_tensor(context, node, use, asked)
    return False


def _takes_tensor(context: Context, node: ast.Call, use: ast.Name, asked: _Asked) -> bool:
    """Whether a call is given a tensor: one of torch's functions and layers, or what hands it on to such."""
    call = context.program.call(node)
    callees = (call.callees or _held(context, node.func, asked)) if call is not None else ()
    return bool(callees) and all(_needs_tensor(context, call, it, use, asked) for it in callees)


def _held(context: Context, func: ast.expr, asked: _Asked) -> Iterable[Value]:
    """What a model's forward calls of its own, ``self.layers``: that is not linked where nn.DataParallel calls it."""
    program = context.program
    match func:
        case ast.Attribute(value=ast.Name(id=me), attr=name) if program.scope(func).params[:1] == [me]:
            owner = dict(asked.owners).get(program.scope(func).index)
            return dict(program.fields(owner)).get(name, ()) if isinstance(owner, Inst) else ()
    return ()


def _needs_tensor(context: Context, call: Call, callee: Value, use: ast.Name, asked: _Asked) -> bool:
    if isinstance(callee, Ext):
        return use in call.node.args[: _places(callee.name)]
    every = closure(frozenset([callee]), context.inside)
    held = [it for it in every if not (isinstance(it, Made) and it.name == WRAP)]
    return bool(held) and all(_hands_on(context, call, it, use, asked) for it in held)


def _places(name: str) -> int:
    """How many of the first things that a function or layer of torch is given are tensors, and nothing else."""
    if name in LOSS_FUNCTIONS | LOSS_CLASSES:
        return 2
    home, _, last = name.rpartition(".")
    if home == LAYER_HOME:
        return int(name not in TAKE_ANYTHING)
    return int(home in FUNCTION_HOMES and operations.operation(name) is not None and last not in TAKE_LISTS)


def _hands_on(context: Context, call: Call, value: Value, use: ast.Name, asked: _Asked) -> bool:
    """Whether a layer of torch is called, or a function or model of the project that does so with its parameter."""
    program = context.program
    if isinstance(value, Made) and value.name == SEQUENTIAL:
        first = getattr(program.node(value.site), "args", [])[:1]
        layers = program.values(first[0]) if first else frozenset()
        return bool(layers) and all(_hands_on(context, call, it, use, asked) for it in layers)
    if isinstance(value, Made):
        return use in call.node.args[: _places(value.name)]
    targets = list(program.targets(value, call))
    return bool(targets) and all(_is_used_so(context, call, use, *it, asked) for it in targets)


def _is_used_so(
    context: Context,
    call: Call,
    use: ast.Name,
    index: int,
    owner: Value | None,
    bound: bool,
    asked: _Asked,
) -> bool:
    """Whether a function does with the parameter that takes an argument what only a tensor bears."""
    given = signature.bind(call.node, context.program.scopes[index].takes(bound)).given
    parameter = next((it for it, value in given if value is use), None)
    if parameter is None or id(parameter) in asked.parameters or len(asked.parameters) > DEPTH:
        return False
    return _is_shown(context, [parameter], asked.after(parameter, index, owner))
