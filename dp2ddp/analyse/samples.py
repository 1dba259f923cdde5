"""Whether values are computed sample by sample, so that each part of a batch gives its part of the result."""

from __future__ import annotations

import ast

from dp2ddp.analyse.context import Context
from dp2ddp.analyse.link import Bound, Const, Func, Made, full_name
from dp2ddp.facts import Problem

# Methods and functions that treat every sample by itself, or only rearrange what belongs to it.
METHODS = frozenset("""
    to cuda cpu long float double half int bool type type_as contiguous detach clone requires_grad_ pin_memory item
    view reshape flatten squeeze unsqueeze permute transpose expand expand_as repeat_interleave size dim data narrow
    abs exp log log1p sqrt pow clamp clamp_ clamp_min clamp_max sigmoid tanh relu square neg argmax
    sub add mul div sub_ add_ mul_ div_ eq ne gt ge lt le logical_not zero_ fill_ masked_fill items values keys
    new_zeros new_ones new_full chunk split unbind
    """.split())
FUNCTIONS = frozenset(f"torch.{name}" for name in """
    abs exp log log1p sqrt pow clamp sigmoid tanh relu square neg sub add mul div where flatten squeeze unsqueeze
    reshape permute transpose ones zeros full ones_like zeros_like full_like empty rand_like randn_like tensor
    as_tensor autograd.Variable FloatTensor LongTensor eq ne gt ge lt le argmax special.expit
    nn.functional.interpolate nn.functional.pad nn.functional.relu nn.functional.sigmoid nn.functional.tanh
    nn.functional.one_hot nn.functional.upsample nn.functional.dropout nn.functional.adaptive_avg_pool2d
    nn.functional.leaky_relu
    """.split())
# Functions that are told along which dimension they work: not the batch's.
ALONG = {"softmax", "log_softmax", "cat", "stack", "mean", "sum", "max", "min", "normalize", "cumsum"}
PLAIN = {"builtins.len", "builtins.float", "builtins.int", "builtins.range"}


def mixed(context: Context, arguments: list[ast.expr]) -> Problem | None:
    """Why the arguments of a loss are not computed sample by sample; None if they are."""
    for argument in arguments:
        place = _mixing(context, argument, frozenset())
        if place is not None:
            return _problem(place)
    return None


def _problem(place: ast.AST) -> Problem:
    shown = ast.unparse(place)
    if isinstance(place, ast.Subscript):
        return Problem(
            f"the loss is a mean over selected elements, `{shown}`: parts of the batch weigh differently",
            "",
        )
    return Problem(
        f"`{shown}`, which the loss is computed from, can't be shown to treat every sample by itself",
        "call the loss on the model's output",
    )


def _mixing(context: Context, node: ast.AST, seen: frozenset[int]) -> ast.AST | None:
    """The first piece of an expression that may look at several samples at once."""
    if id(node) in seen:
        return None
    seen |= {id(node)}
    match node:
        case ast.Constant():
            return None
        case ast.Name():
            return _name(context, node, seen)
        case ast.Attribute():
            if _is_option(context, node):
                return None
            return (
                _definitions(context, node, seen)
                if _defined(context, node)
                else _mixing(context, node.value, seen)
            )
        case ast.Subscript():
            return _mixing(context, node.value, seen) if _keeps_all(context, node.slice) else node
        case ast.BinOp(op=ast.MatMult()):
            return node
        case ast.BinOp():
            return _mixing(context, node.left, seen) or _mixing(context, node.right, seen)
        case ast.UnaryOp():
            return _mixing(context, node.operand, seen)
        case ast.Compare():
            return _all(context, [node.left, *node.comparators], seen)
        case ast.IfExp():
            return _all(context, [node.body, node.orelse], seen)
        case ast.Tuple() | ast.List():
            return _all(context, node.elts, seen)
        case ast.Starred():
            return _mixing(context, node.value, seen)
        case ast.Dict():
            return _all(context, node.values, seen)
        case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
            return _all(context, [node.elt, *(part.iter for part in node.generators)], seen)
        case ast.DictComp():
            return _all(context, [node.value, *(part.iter for part in node.generators)], seen)
        case ast.Call():
            return _call(context, node, seen)
    return node


def _all(context: Context, nodes: list[ast.expr], seen: frozenset[int]) -> ast.AST | None:
    return next((place for node in nodes if (place := _mixing(context, node, seen)) is not None), None)


def _is_option(context: Context, node: ast.expr) -> bool:
    """An option of the program, or another plain value."""
    values = context.program.values(node)
    return bool(values) and all(isinstance(v, Const) or full_name(v).startswith("argparse.") for v in values)


def _defined(context: Context, node: ast.expr) -> bool:
    return bool(context.program.definitions(node))


def _name(context: Context, node: ast.Name, seen: frozenset[int]) -> ast.AST | None:
    if _is_option(context, node):
        return None
    if not _defined(context, node):
        return node
    return _definitions(context, node, seen)


def _definitions(context: Context, node: ast.expr, seen: frozenset[int]) -> ast.AST | None:
    program = context.program
    for definition in program.definitions(node):
        if id(definition) in seen:
            continue
        within = seen | {id(definition)}
        if any(isinstance(around, ast.comprehension) for around in program.ancestors(definition)):
            continue  # what it runs over is looked at with the comprehension
        if isinstance(definition, ast.arg):
            place = _parameter(context, definition, within)
        else:
            statement = program.statement(definition)
            match statement:
                case ast.Assign():
                    place = _mixing(context, statement.value, within)
                case ast.AugAssign():
                    place = _mixing(context, statement.value, within)
                case ast.For():
                    place = None  # a batch, or a plain counter
                case _:
                    place = node
        if place is not None:
            return place
    return None


def _parameter(context: Context, parameter: ast.arg, seen: frozenset[int]) -> ast.AST | None:
    """What is given for a parameter, at every call."""
    program = context.program
    found = False
    for call in program.calls:
        for callee in call.callees:
            func = callee.func if isinstance(callee, Bound) else callee
            if not isinstance(func, Func):
                continue
            scope = program.scopes[func.scope]
            params = scope.params[1 if isinstance(callee, Bound) else 0 :]
            if parameter.arg in params and any(inner is parameter for inner in ast.walk(scope.node)):
                given = call.argument(parameter.arg, params.index(parameter.arg))
                found = True
                if given is not None and (place := _mixing(context, given, seen)) is not None:
                    return place
    return None if found else ast.Name(id=parameter.arg, ctx=ast.Load())


def _keeps_all(context: Context, index: ast.expr) -> bool:
    """Whether an index takes the same from every sample: numbers, slices, names of outputs; no masks."""
    if isinstance(index, ast.Tuple):
        return all(_keeps_all(context, part) for part in index.elts)
    if isinstance(index, ast.Slice):
        return all(
            part is None or _keeps_all(context, part) for part in (index.lower, index.upper, index.step)
        )
    if isinstance(index, ast.UnaryOp):
        return isinstance(index.op, ast.USub) and _keeps_all(context, index.operand)
    return isinstance(index, ast.Constant) or (isinstance(index, ast.Name) and _is_option(context, index))


def _call(context: Context, node: ast.Call, seen: frozenset[int]) -> ast.AST | None:
    call = context.program.call(node)
    if call is None:
        return node
    function = node.func
    if context.is_wrapped(context.program.values(function)):
        # Each replica, too, sees its own part only; what it is given must be made sample by sample.
        return _all(context, [*node.args, *(keyword.value for keyword in node.keywords)], seen)
    if call.names & PLAIN:
        return None
    if call.names and call.names <= FUNCTIONS:
        return _all(context, node.args, seen)
    last = next(iter(call.names)).rpartition(".")[2] if call.names else ""
    if isinstance(function, ast.Attribute) and not last.startswith("__"):
        last = function.attr
    if last in ALONG and _dimension(call.argument("dim"), node):
        receiver = [function.value] if isinstance(function, ast.Attribute) and not call.names else []
        return _all(context, [*receiver, *node.args], seen)
    if isinstance(function, ast.Attribute) and function.attr in METHODS:
        return _mixing(context, function.value, seen)
    if any(isinstance(callee, Made) and callee.name.startswith("torch.nn.") for callee in call.callees):
        return _all(context, node.args, seen) if _layer(call.names) else node
    return node


def _layer(names: set[str]) -> bool:
    """Layers without parameters, applied to every sample by itself."""
    plain = {
        "Sigmoid",
        "Tanh",
        "ReLU",
        "Identity",
        "Flatten",
        "Upsample",
        "LogSigmoid",
        "AvgPool2d",
        "MaxPool2d",
    }
    return all(name.removeprefix("torch.nn.").removesuffix(".__call__") in plain for name in names)


def _dimension(given: ast.expr | None, node: ast.Call) -> bool:
    """Whether a dimension is named that is not the first."""
    candidates = [given] if given is not None else node.args[-1:]
    for value in candidates:
        if isinstance(value, ast.UnaryOp) and isinstance(value.operand, ast.Constant):
            return value.operand.value == 1
        if isinstance(value, ast.Constant) and isinstance(value.value, int):
            return value.value != 0
    return False
