"""What a batch is made of: which of its parts are tensors, which are lists, and which are only counted."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dp2ddp.analyse.api.containers import PLAIN_DICTS, SEQUENCES
from dp2ddp.analyse.api.devices import MOVES
from dp2ddp.analyse.api.iteration import KEEPS_WHOLE
from dp2ddp.analyse.api.tensors import LEAVES_TORCH, MAKES_ONE_OF_TENSOR
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.dataflow.definitions import reaching, right_side
from dp2ddp.analyse.dataflow.kinds import Kind, Unclear, Value
from dp2ddp.analyse.dataflow.samples.frames import OPEN
from dp2ddp.analyse.dataflow.samples.writes.stores import hands_on, stores_in
from dp2ddp.analyse.dataflow.tensors import is_tensor
from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.program.values import Inst

if TYPE_CHECKING:
    from dp2ddp.analyse.dataflow.samples.follower import Samples


def is_list(context: Context, node: ast.expr) -> bool:
    """Whether the program asks if a name is a list, or makes it one, before it takes its elements."""
    program = context.program
    if not isinstance(node, ast.Name):
        return False
    for place in stores_in(context, program.scope(node)).get(node.id, ()):
        if isinstance(place, ast.Subscript) and hands_on(program.statement(place).value, place):  # type: ignore[attr-defined]
            return True
    inside = {id(it) for it in program.ancestors(node)}
    for around in program.body(program.scope(node)):
        if isinstance(around, ast.If) and (asked := _asks_for_list(around.test, node.id)) is not None:
            made = any(
                isinstance(part, ast.Assign)
                and ast.unparse(part.targets[0]) == node.id
                and isinstance(part.value, ast.List | ast.Tuple)
                for part in around.body
            )
            here = around.body if asked else around.orelse
            if any(id(part) in inside for part in here):
                return True
            if not asked and made and id(program.parent(around)) in inside:
                return program.order[id(around)] < program.order[id(node)]
    return False


def is_table(program: Program, value: object) -> bool:
    """Whether an object is of a class of the project that derives from dict, as those of settings do."""
    return isinstance(value, Inst) and any(program.derives(value, name) for name in PLAIN_DICTS)


def gives_tensors(samples: Samples, loader: int) -> bool:
    """Whether a data set is a tensor, or gives one for each sample: its batches are tensors, and no lists."""
    program = samples.program
    call = samples.context.loader_call(loader)
    own = getattr(program.node(loader), "own_batch", None)
    if own is not None:
        return not own.is_structure
    data = call.argument("dataset", 0) if call is not None else None
    named = any(it.arg in ("collate_fn", None) for it in call.node.keywords)  # type: ignore[union-attr]
    if data is None or named or samples.context.collates_later(loader):
        return False
    made = program.values(data)
    methods = {it for value in made for it in program.methods(value, "__getitem__", data)}
    bodies = (program.body(program.scopes[it]) for it in methods)
    returned = [it.value for body in bodies for it in body if isinstance(it, ast.Return)]
    given = returned if made else [data]
    return bool(given) and all(it is not None and samples.dimensions.is_tensor(it) for it in given)


def of_columns(samples: Samples, loaders: Iterable[int]) -> Value | None:
    """What is taken of batches that have their samples in dimension 1; None where they have them in dimension 0."""
    own = [getattr(samples.program.node(it), "own_batch", None) for it in loaders]
    found = {None if it is None or not it.dim else it.is_structure for it in own}
    if found & {True, False} and None in found:
        return Unclear(samples.program.node(next(iter(loaders))))
    return None if None in found else Kind.STATES if True in found else Kind.COLUMNS


def holds_tensor(samples: Samples, node: ast.expr) -> bool:
    """Whether a part of a batch is surely a tensor, or an array or a list of one: an index takes a sample of it."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        method = node.func.attr
        return method in MAKES_ONE_OF_TENSOR or (method in MOVES and holds_tensor(samples, node.func.value))
    shown = isinstance(node, ast.Name) and is_tensor(samples.context, node)
    return shown or _is_moved_part(samples, node)


def _is_moved_part(samples: Samples, node: ast.expr) -> bool:
    """Whether a name is a tensor that was taken out of a batch: moved as one is, never asked for a key."""
    program = samples.program
    if not isinstance(node, ast.Name):
        return False
    names = [it for it in program.body(program.scope(node)) if isinstance(it, ast.Name)]
    uses = [it for it in names if it.id == node.id]
    for definition in program.definitions(node):
        if isinstance(definition, ast.arg):
            return False
        match right_side(program.statement(definition), definition):
            case ast.Call(func=ast.Attribute(attr="to", value=ast.Name() as moved)):
                drawn = [it for it in program.definitions(moved) if it is not definition]
                if not drawn or not all(isinstance(program.parent(it), ast.Tuple) for it in drawn):
                    return False
            case ast.Call(func=ast.Attribute(attr="to", value=ast.Subscript() as part)):
                if not is_part(samples, part):
                    return False
            case None if isinstance(program.parent(definition), ast.Tuple):
                if not any(
                    _is_move_of(program, it, definition) or _is_read_of(program, it, definition)
                    for it in uses
                ):
                    return False
            case _:
                return False
    return not any(_is_asked_by_name(program, it) for it in uses)


def is_only_counted(samples: Samples, node: ast.expr) -> bool:
    """Whether a part of a batch is asked for its length, shown or collected, and nothing else: names of samples.

    A list of views or a dictionary of features is taken apart somewhere.
    """
    if not is_part(samples, node):
        return False
    text, scope = ast.unparse(node), samples.program.scope(node)
    found = (it for it in samples.program.body(scope) if isinstance(it, type(node)))
    loads = (it for it in found if isinstance(it.ctx, ast.Load))  # type: ignore[attr-defined]
    uses = [it for it in loads if ast.unparse(it) == text and samples.value(it, OPEN) is Kind.BATCH]
    return all(_is_kept_as_it_is(samples.program, it) for it in uses)


def is_part(samples: Samples, node: ast.expr) -> bool:
    """Whether an expression names one of several things that a batch is made of."""
    match node:
        case ast.Subscript(value=ast.Name() as batch, slice=ast.Constant(value=int() | str())):
            return samples.value(batch, OPEN) is Kind.BATCH
        case ast.Name():
            made = reaching(samples.context, node)
            given = [None if isinstance(it, ast.arg) else _part_given(samples, it) for it in made]
            return bool(given) and all(given)
    return False


def _part_given(samples: Samples, definition: ast.AST) -> bool:
    """Whether a name is given a part of a batch where it is defined: unpacked, or taken out of it."""
    program = samples.program
    inside = definition
    while isinstance(parent := program.parent(inside), ast.Tuple | ast.List):
        inside = parent
    source = right_side(program.statement(definition), definition)
    if source is not None and not isinstance(program.parent(definition), ast.Tuple | ast.List):
        return isinstance(source, ast.Subscript) and is_part(samples, source)
    numbered = isinstance(parent, ast.For) and len(getattr(inside, "elts", ())) == 2
    call = program.call(parent.iter) if numbered else None  # type: ignore[union-attr]
    if call is not None and "builtins.enumerate" in call.names:
        return program.parent(definition) is not inside
    return inside is not definition


def _is_kept_as_it_is(program: Program, use: ast.AST) -> bool:
    """``len(x)``, ``seen.extend(x)``, ``print(x)``, ``f"{x}"``, ``zip(x, …)``: nothing that takes it apart."""
    match program.parent(use):
        case ast.Call(func=ast.Name(id=function), args=given) if function in KEEPS_WHOLE:
            return use in given
        case ast.Call(func=ast.Attribute(attr="append" | "extend"), args=given):
            return use in given
        case ast.FormattedValue():
            return True
        case ast.AugAssign(op=ast.Add(), value=added):
            return added is use
    return False


def _is_read_of(program: Program, use: ast.Name, definition: ast.AST) -> bool:
    """``x.tolist()`` and ``x.numpy()``: no list and no dictionary has that."""
    method = program.parent(use)
    asked = isinstance(method, ast.Attribute) and method.attr in LEAVES_TORCH
    return asked and definition in program.definitions(use)


def _is_move_of(program: Program, use: ast.Name, definition: ast.AST) -> bool:
    """``x.cuda()`` and ``x.to(device)``, where ``x`` is what a definition gives it."""
    method = program.parent(use)
    moves = isinstance(method, ast.Attribute) and method.attr in MOVES
    return moves and definition in program.definitions(use)


def _is_asked_by_name(program: Program, use: ast.Name) -> bool:
    """``x["key"]`` and ``f(**x)``, also of ``x`` that is moved."""
    around = program.parent(use)
    moved = isinstance(around, ast.Attribute) and around.attr in MOVES
    call = program.parent(around) if moved else None
    return _asks_by_name(around) or (call is not None and _asks_by_name(program.parent(call)))


def _asks_by_name(use: ast.AST) -> bool:
    """``x["key"]`` and ``f(**x)``."""
    match use:
        case ast.Subscript(slice=ast.Constant(value=str())) | ast.keyword(arg=None):
            return True
    return False


def _asks_for_list(test: ast.expr, name: str) -> bool | None:
    """Whether a condition says that a name is a list or a tuple (True), or is none (False); None for others."""
    match test:
        case ast.UnaryOp(op=ast.Not()):
            asked = _asks_for_list(test.operand, name)
            return None if asked is None else not asked
        case ast.Call(func=ast.Name(id="isinstance"), args=[ast.Name(id=asked), kind]):
            return True if asked == name and _names_list(kind) else None
        case ast.Compare(left=left, ops=[operator], comparators=[kind]):
            if ast.unparse(left) == f"type({name})" and _names_list(kind):
                return isinstance(operator, ast.Eq | ast.Is | ast.In)
    return None


def _names_list(kind: ast.expr) -> bool:
    return all(ast.unparse(part) in SEQUENCES for part in getattr(kind, "elts", [kind]))
