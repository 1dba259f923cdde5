"""The moves of a model to its device: ``model.to(device)``, before its wrap, chained to it, and after it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.analyse.context import Context
from dp2ddp.analyse.processes.conditions import asks_for_gpus, is_device
from dp2ddp.analyse.processes.devices import is_current, is_gpu
from dp2ddp.analyse.program.values import Bound, Ext, Func
from dp2ddp.facts import CURRENT, Condition
from dp2ddp.plan import Anchor


@dataclass(frozen=True)
class Outer:
    """A wrap with the moves chained to it: ``nn.DataParallel(net).cuda()``."""

    node: ast.expr
    last: ast.Call | None = None

    @property
    def device(self) -> ast.expr | None:
        """What the last move names; None for ``.cuda()``."""
        return None if self.last is None else move_device(self.last)


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


def outermost(context: Context, node: ast.expr) -> Outer:
    """A wrap with the moves chained to it, outermost last."""
    last = None
    while True:
        attribute = context.program.parent(node)
        call = context.program.parent(attribute) if isinstance(attribute, ast.Attribute) else None
        if not (isinstance(call, ast.Call) and call.func is attribute and is_move(call)):
            return Outer(node, last)
        node = last = call


def device_before(
    context: Context,
    outer: Outer,
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

    later = list(moves_after(context, statement, condition.at if goes and condition is not None else None))
    if kept and later and outer.last is None:
        return None, ()  # one within the option's branch is made there; one behind it, of the wrapped model
    if kept:
        later = []
    removed = tuple(map(program.anchor, later))
    if outer.last is not None:
        return written(outer.last), removed
    if is_on_device(context, module, statement):
        return None, removed
    idle = moved_on(context, statement, condition)
    for move in (*(it.value for it in later), *([idle] if idle is not None else ())):  # type: ignore[attr-defined]
        device = move_device(move)
        if device is None or _bound_before(context, device, statement):
            return written(move), removed
    stays = chosen or (condition is not None and goes and not condition.guard)
    return None if stays else here, removed


def moved_on(context: Context, statement: ast.stmt, condition: Condition | None) -> ast.Call | None:
    """The move with which the wrapped model goes on under another name, or is returned, right after its wrap."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target, node = ast.unparse(statement.targets[0]), statement
    if condition is not None and (condition.option or condition.guard):
        return None
    if condition is not None:
        node = next(
            it for it in context.program.ancestors(statement) if context.program.anchor(it) == condition.at
        )
    block = context.program.block(node)
    for after in block[block.index(node) + 1 :]:
        value = after.value if isinstance(after, ast.Assign | ast.Return) else None
        if value is not None and is_move(value) and ast.unparse(value.func.value) == target:  # type: ignore[attr-defined]
            return value if _is_device_move(context, value) else None  # type: ignore[arg-type]
        if uses(after, target):
            return None
    return None


def asked_about(context: Context, statement: ast.stmt) -> Anchor | None:
    """The device that a condition asks about: ``device`` of ``if device.type == "cuda"``."""
    match context.program.parent(statement):
        case ast.If(
            test=ast.Compare(left=ast.Attribute(attr="type", value=ast.Name() as device), ops=[ast.Eq()])
        ):
            return context.program.anchor(device) if is_device(context, device) else None
    return None


def is_on_device(context: Context, module: ast.expr, statement: ast.stmt, depth: int = 0) -> bool:
    """Whether the model is on its device already: in the expression, or by a statement that always runs before.

    Where it is a parameter, or what a function returns, that is looked up there.
    """
    if any(is_move(node) for node in _chain(module)):
        return True
    text = ast.unparse(module)
    for before in _before(context, statement):
        moved = is_move(getattr(before, "value", None))
        if isinstance(before, ast.Expr) and moved and ast.unparse(before.value.func.value) == text:  # type: ignore[attr-defined]
            return True
        for target in before.targets if isinstance(before, ast.Assign) else ():
            if ast.unparse(target) == text:
                return moved or _is_returned_moved(context, before.value, None, depth)  # type: ignore[attr-defined]
            names = [ast.unparse(part) for part in target.elts] if isinstance(target, ast.Tuple) else []
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
        and all(is_on_device(context, it, context.program.statement(it), depth + 1) for it in given)
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
        return model is not None and is_on_device(context, model, back, depth + 1)

    return bool(returns) and all(map(is_moved, returns))


def _is_made_there(condition: ast.If, name: str) -> bool:
    """Whether every branch of a condition makes a model on its device, or ends the program."""

    def makes(statement: ast.stmt) -> bool:
        if isinstance(statement, ast.If):
            return _is_made_there(statement, name)
        named = isinstance(statement, ast.Assign) and [ast.unparse(it) for it in statement.targets] == [name]
        return isinstance(statement, ast.Raise) or (named and is_move(statement.value))  # type: ignore[attr-defined]

    return all(bool(branch) and makes(branch[-1]) for branch in (condition.body, condition.orelse))


def _chain(node: ast.expr) -> Iterator[ast.expr]:
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield node
        node = node.func.value


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


def moves_after(context: Context, statement: ast.stmt, around: Anchor | None = None) -> Iterator[ast.stmt]:
    """Later statements of the same block, or of the block round its ``if``, that only move the wrapped model.

    Those after its training, or after it has been called, say where it goes then. ``around``: an ``if`` that goes, with
    the moves after it.
    """
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return
    target = ast.unparse(statement.targets[0])
    node: ast.stmt = statement
    while True:
        block = context.program.block(node)
        for after in block[block.index(node) + 1 :]:
            if only_moves(context, after, target):
                yield after
            elif isinstance(after, ast.Assign) and any(
                ast.unparse(assigned) == target for assigned in after.targets
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


def only_moves(context: Context, statement: ast.stmt, target: str) -> bool:
    """``x.to(device)`` or ``x = x.to(device)``."""
    if not isinstance(statement, ast.Expr | ast.Assign) or not is_move(statement.value):
        return False
    move: ast.Call = statement.value  # type: ignore[assignment]
    if isinstance(statement, ast.Assign) and any(
        ast.unparse(assigned) != target for assigned in statement.targets
    ):
        return False
    return ast.unparse(move.func.value) == target and _is_device_move(context, move)  # type: ignore[attr-defined]


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


def uses(part: ast.AST, target: str) -> bool:
    return any(isinstance(node, ast.expr) and ast.unparse(node) == target for node in ast.walk(part))
