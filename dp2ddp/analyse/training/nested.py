"""Forwards inside of a larger statement, ``loss = criterion(model(x), y)``, looked at with a statement of their own.

Parts of a batch are joined behind a statement that runs the forward (``joints``). Where that also does what needs the
whole batch, the forward gets a statement before it, ``outputs = model(x)``, as if the program were written so.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

from dp2ddp.analyse.context import COMPREHENSIONS, Context
from dp2ddp.analyse.training.loops import BatchLoop
from dp2ddp.analyse.views import View, insert, mark, put
from dp2ddp.plan import Anchor

NAME = "outputs"
STATEMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)


def find(context: Context, loops: Iterable[BatchLoop], programs: frozenset[Path]) -> list[ast.Call]:
    """The forwards in the training of some programs that could stand before their statement, in source order."""
    program = context.program
    runs = frozenset[int]().union(
        *(it.runs for it in loops if it.trains and context.run_by(it.node) & programs)
    )
    found: list[ast.Call] = []
    for node in program.in_order(runs):
        call = program.call(node) if isinstance(node, ast.Call) else None
        if (
            call is not None
            and context.is_wrapped(call.callees)
            and _may_come_before(context, call.node, found)
        ):
            found.append(call.node)
    return found


def _may_come_before(context: Context, call: ast.Call, earlier: Container[ast.AST]) -> bool:
    """Whether a call may run before its statement: it runs once, always, and after no call but ``earlier`` ones."""
    statement = context.program.statement(call)
    if not isinstance(statement, STATEMENTS) or getattr(statement, "value", None) is call:
        return False
    inside: ast.AST = call
    for around in context.program.ancestors(call):
        if isinstance(
            around, (*COMPREHENSIONS, ast.Lambda, ast.IfExp, ast.BoolOp, ast.NamedExpr, ast.JoinedStr)
        ):
            return False
        if any(_does_something(context, it, earlier) for it in _before(around, inside)):
            return False
        if around is statement:
            return True
        inside = around
    return False


def _before(around: ast.AST, inside: ast.AST) -> Iterator[ast.AST]:
    """What is evaluated before a part of a node."""
    parts = [around.value] if isinstance(around, ast.Assign | ast.AnnAssign) else ast.iter_child_nodes(around)
    for part in parts:
        if part is inside:
            return
        yield part


def _does_something(context: Context, node: ast.AST, earlier: Container[ast.AST]) -> bool:
    """Whether evaluating something may do more than to look names up, or looks at what a forward may write."""
    if node in earlier:
        return False
    if isinstance(node, ast.Attribute) and context.is_wrapped(context.program.values(node.value)):
        return True
    return isinstance(node, ast.Call | ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr) or any(
        _does_something(context, it, earlier) for it in ast.iter_child_nodes(node)
    )


def looked_at(context: Context, calls: list[ast.Call]) -> Context:
    """The programs as they would be with these forwards in statements of their own."""
    program, view = context.program, View(context)
    names: dict[tuple[Path, int], str] = {}  # of the first, second, … in a function
    counts = Counter[int]()
    for node in calls:
        statement, path = program.statement(node), program.file(node).path
        scope = program.scope(statement).index
        key = path, counts[scope]
        counts[scope] += 1
        if key not in names:
            names[key] = context.fresh(path, NAME)
        tree, twin = view.tree(node), view.twin(node)
        used = ast.Name(names[key], ast.Load())
        mark([used, used.ctx], twin)
        put(tree, twin, used)
        made = ast.Assign([ast.Name(names[key], ast.Store())], ast.Constant(None))
        insert(tree, view.twin(statement), [made], after=False)
        made.value = made.hoists = twin  # type: ignore[assignment,attr-defined]
    return view.linked()


def hoisted(context: Context, statement: ast.stmt) -> Iterator[tuple[str, Anchor]]:
    """The names and places of forwards that were put before one statement, up to the one that ``statement`` is."""
    program = context.program
    block = program.block(statement)
    for it in block[: block.index(statement) + 1]:
        if hasattr(it, "hoists") and program.anchor(it) == program.anchor(statement):
            yield it.targets[0].id, program.anchor(it.hoists)  # type: ignore[attr-defined]
