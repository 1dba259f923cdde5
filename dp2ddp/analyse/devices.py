"""Where the program names a GPU: each rank has its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.analyse.conditions import AVAILABLE, COUNT, is_call_of, is_cuda_string
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.link import Call, Cls, Const, Inst
from dp2ddp.facts import Device, Obstacle, Problem


def collect(context: Context, skipped: set[int]) -> tuple[Device, ...]:
    """Every place that names a GPU, but those in ``skipped`` (moves that belong to a wrap)."""
    program = context.program
    found: dict[int, Device] = {}
    for node in list(program.nodes.values()):
        if not context.runs_in_training(node) or id(node) in skipped:
            continue
        for place, device in _devices(context, node):
            found.setdefault(id(place), device)
    return tuple(sorted(found.values(), key=lambda device: (device.path, device.at.span)))


def obstacles(context: Context) -> Iterator[Obstacle]:
    """Parts of a model placed on different GPUs by their numbers."""
    numbers: dict[str, ast.AST] = {}
    for node in context.program.nodes.values():
        if not context.runs_in_training(node):
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("cuda:"):
            numbers.setdefault(node.value[5:], node)
        if _is_cuda(node) and node.args and isinstance(node.args[0], ast.Constant):
            numbers.setdefault(str(node.args[0].value), node)
    if len(numbers) > 1:
        node = list(numbers.values())[-1]
        anchor = context.program.anchor(node)
        problem = Problem(
            f"several GPUs are used by their numbers ({', '.join(sorted(numbers))})",
            "a model that is split over GPUs is not converted",
        )
        yield Obstacle(anchor, context.ddp(anchor.path), problem)


def _is_cuda(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "cuda"


def _devices(context: Context, node: ast.AST) -> Iterator[tuple[ast.AST, Device]]:
    match node:
        case ast.Call():
            call = context.program.call(node)
            if call is not None:
                yield from _call(context, call)
        case ast.IfExp(body=ast.Constant(), orelse=ast.Constant()):
            yield from _choice(context, node)
        case ast.Compare(left=left, comparators=[ast.Constant(value=str()) as right]):
            if right.value.split(":")[0] in ("cuda", "cpu") and _is_device_string(context, left):
                yield node, _device(context, node, "type", left, right if ":" in right.value else None)


def _device(
    context: Context, node: ast.AST, kind: str, operand: ast.AST | None = None, extra: ast.AST | None = None
) -> Device:
    anchor = context.program.anchor(node)
    program = context.program
    return Device(
        anchor,
        context.ddp(anchor.path),
        kind,
        program.anchor(operand) if operand is not None else None,
        program.anchor(extra) if extra is not None else None,
    )


def _call(context: Context, call: Call) -> Iterator[tuple[ast.AST, Device]]:
    node = call.node
    if "torch.device" in call.names and node.args:
        first = node.args[0]
        if isinstance(first, ast.IfExp):
            if is_cuda_string(first.body) and is_call_of(context, first.test, AVAILABLE):
                yield node, _device(context, node, "device")
            return
        if (
            is_cuda_string(first)
            or _is_cuda_format(first)
            or isinstance(first, ast.Constant)
            and first.value == 0
        ):
            yield node, _device(context, node, "device")
    elif "torch.cuda.set_device" in call.names:
        statement = context.program.statement(node)
        if isinstance(statement, ast.Expr):
            yield node, _device(context, statement, "current")
    elif COUNT in call.names:
        if _counts_replicas(context, node):
            yield node, _device(context, node, "count")
    elif "torch.load" in call.names:
        if call.argument("map_location", 1) is None:
            yield node, _device(context, node, "load")
        else:
            yield from _arguments(context, call)
    elif _is_cuda(node) and not _own_method(context, call):
        blocking = call.argument("non_blocking", 1)
        yield node, _device(context, node, "cuda", node.func.value, blocking)  # type: ignore[attr-defined]
    else:
        yield from _arguments(context, call)


def _arguments(context: Context, call: Call) -> Iterator[tuple[ast.AST, Device]]:
    """``"cuda"`` and ``"cuda:0"`` given as a device."""
    function = call.node.func
    places = [keyword.value for keyword in call.node.keywords if keyword.arg in ("device", "map_location")]
    if isinstance(function, ast.Attribute) and function.attr == "to":
        places += call.node.args[:1]
    if "torch.load" in call.names:
        places += call.node.args[1:2]
    for place in places:
        if is_cuda_string(place) or _is_cuda_format(place):
            yield place, _device(context, place, "device")


def _is_cuda_format(node: ast.AST) -> bool:
    """``f"cuda:{args.gpu}"`` and ``"cuda:" + str(gpu)``."""
    if isinstance(node, ast.JoinedStr) and node.values:
        return is_cuda_string(node.values[0])
    if isinstance(node, ast.BinOp):
        return is_cuda_string(node.left)
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "format"
        and is_cuda_string(node.func.value)
    )


def _own_method(context: Context, call: Call) -> bool:
    """A ``cuda`` method of the project's own classes."""
    return any(not isinstance(callee, Const) and hasattr(callee, "func") for callee in call.callees) or any(
        isinstance(value, Inst | Cls) and not context.module_class(value)
        for value in context.program.values(call.node.func.value)  # type: ignore[attr-defined]
    )


def _choice(context: Context, node: ast.IfExp) -> Iterator[tuple[ast.AST, Device]]:
    """``"cuda" if … else "cpu"``."""
    parent = context.program.parent(node)
    inside = isinstance(parent, ast.Call) and is_call_of(context, parent, "torch.device")
    cuda, other = (node.body, node.orelse) if is_cuda_string(node.body) else (node.orelse, node.body)
    if not is_cuda_string(cuda) or not (isinstance(other, ast.Constant) and other.value == "cpu"):
        return
    if is_call_of(context, node.test, AVAILABLE) and cuda is node.body:
        if not inside:
            yield node, _device(context, node, "device")
        return
    yield cuda, _device(context, cuda, "device")
    if not inside:
        yield other, _device(context, other, "cpu")


def _is_device_string(context: Context, node: ast.expr) -> bool:
    """A name that holds ``"cuda"`` now, and a device after the conversion."""
    if not isinstance(node, ast.Name | ast.Attribute):
        return False
    if isinstance(node, ast.Attribute) and node.attr == "type":
        return False
    values = context.program.values(node)
    return any(
        isinstance(v, Const) and isinstance(v.value, str) and v.value.split(":")[0] == "cuda" for v in values
    )


def _counts_replicas(context: Context, node: ast.Call) -> bool:
    """Not where the question is whether there is a GPU at all, nor where GPUs are listed."""
    parent = context.program.parent(node)
    if isinstance(parent, ast.Compare):
        others = [parent.left, *parent.comparators]
        return any(isinstance(o, ast.Constant) and isinstance(o.value, int) and o.value >= 1 for o in others)
    if isinstance(parent, ast.Call) and is_call_of(context, parent, "builtins.range"):
        return False
    return not isinstance(parent, ast.If | ast.BoolOp | ast.UnaryOp | ast.IfExp)
