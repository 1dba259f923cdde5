"""What gives names and attributes their values, as far as that is written: the definitions that reach a use."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.analyse.api.iteration import HANDS_OUT
from dp2ddp.analyse.api.operations import written
from dp2ddp.analyse.api.options import OPTIONS
from dp2ddp.analyse.context import Context, once
from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.program.sources import How, Source
from dp2ddp.analyse.program.values import Bound, Cls, Const, Ext, Func, Made, Mod, full_name

NAMES = 8
"""How many names, given one another, a question is followed through."""
UNKNOWN_ELEMENTS = ("torch.utils.data.",)
"""How the names begin of what hands out tensors, which have no values."""


def right_side(statement: ast.AST, definition: ast.AST) -> ast.expr | None:
    """What an assignment gives a name; None where it is taken out of something."""
    match statement:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
            pairs = dict(zip(names, values, strict=False)) if len(names) == len(values) else {}
            return pairs.get(definition)  # type: ignore[call-overload]
        case ast.Assign(targets=targets, value=value) if definition in targets:
            return value
        case ast.AugAssign(value=value):
            return value
    return None


def right_sides(statement: ast.stmt | None, made: ast.AST) -> list[ast.expr]:
    """What a definition is given, with the whole of what it is taken out of."""
    match statement:
        case ast.Assign(targets=targets, value=value):
            pairs = [it for it in targets if isinstance(it, ast.Tuple) and made in it.elts]
            if pairs and isinstance(value, ast.Tuple) and len(value.elts) == len(pairs[0].elts):
                return [value.elts[pairs[0].elts.index(made)]]  # type: ignore[arg-type]
            return [value]
        case ast.AugAssign(target=target, value=value):
            return [value, target]
        case ast.AnnAssign(value=ast.expr() as value):
            return [value]
        case ast.For(iter=source):
            return [source]
    return []


def behind(program: Program, definition: ast.AST) -> list[ast.expr]:
    """What a name may be given by a definition, where that is an expression of its own."""
    if isinstance(definition, ast.arg):
        return program.given(definition)
    statement = program.statement(definition)
    if isinstance(statement, ast.AugAssign):
        return [statement.value, statement.target]
    alone = isinstance(statement, ast.Assign) and definition in statement.targets
    return [statement.value] if alone else []  # type: ignore[union-attr]


def given_to(program: Program, name: ast.AST) -> list[ast.expr]:
    """What a name may be given, wherever that is an expression of its own."""
    return [it for definition in program.definitions(name) for it in behind(program, definition)]


@once
def reaching(context: Context, use: ast.AST) -> list[ast.AST]:
    """The definitions of a name that can reach its use, without those that another one hides.

    That is ``for x in …`` round the use, and ``x += …`` before it.
    """
    program, definitions = context.program, context.program.definitions(use)
    order = program.order
    loops: list[ast.AST] = []
    for around in program.ancestors(use) if definitions else ():
        if isinstance(around, ast.For | ast.While):
            if isinstance(around, ast.For) and not program.is_inside(use, around.iter):
                bound = [it for it in definitions if program.is_inside(it, around.target)]
                if bound:
                    return [
                        it
                        for it in definitions
                        if it in bound or _is_between(program, it, use, around, loops)
                    ]
            loops.append(around)
    inside = {id(node) for node in program.ancestors(use)}
    for definition in sorted(definitions, key=lambda it: order[id(it)], reverse=True):
        parent = program.parent(definition)
        if isinstance(parent, ast.AugAssign) and order[id(definition)] < order[id(use)]:
            if id(program.parent(parent)) in inside:
                return [it for it in definitions if order[id(it)] >= order[id(definition)]]
    return definitions


def _is_between(
    program: Program, definition: ast.AST, use: ast.AST, loop: ast.AST, inner: list[ast.AST]
) -> bool:
    """Whether a definition in a loop's body may come between the loop's own and the use."""
    around = {id(node) for node in program.ancestors(definition)}
    before = program.order[id(definition)] < program.order[id(use)]
    itself = program.statement(definition) is program.statement(use)
    return id(loop) in around and ((before and not itself) or any(id(it) in around for it in inner))


def names_options(program: Program, node: ast.AST) -> bool:
    """Whether all that an expression is known to be, but for literals, are options of the program."""
    names = [full_name(value) for value in program.values(node) if not isinstance(value, Const)]
    return bool(names) and all(name.startswith(OPTIONS) for name in names)


def may_be_option(program: Program, node: ast.AST) -> bool:
    """Whether an option of the program is among what an expression may be."""
    return any(
        full_name(value).startswith(OPTIONS) for value in program.values(node) if not isinstance(value, Const)
    )


@once
def is_option(program: Program, node: ast.AST) -> bool:
    """An option of the program."""
    return names_options(program, node) and is_followed(program, node)


def is_followed(program: Program, node: ast.AST | None) -> bool:
    """Whether all that an expression may be has a value."""
    waiting: list[ast.AST | None] = [node]
    asked: set[ast.AST] = set()
    while waiting:
        part = waiting.pop()
        if part is None or not program.values(part):
            return False
        match part:
            case ast.Name() | ast.Attribute():
                found = [it for it in program.definitions(part) if it not in asked]
                asked.update(found)
                taken = (getattr(program.statement(it), "value", None) for it in found)
                if any(isinstance(it, ast.Call) and _runs_module(program, it) for it in taken):
                    return False
                waiting += (it for one in found for it in behind(program, one))
                sources = [program.source(it) for it in found]
                gone_through = [it.value for it in sources if it.how is How.ELEMENT]
                if not all(it is not None and _hands_known(program, it) for it in gone_through):
                    return False
                waiting += (it for one in sources for it in _taken_out(program, one))
                if isinstance(part, ast.Attribute) and not program.definitions(part):
                    waiting.append(part.value)
            case ast.Subscript():
                waiting.append(part.value)
            case ast.IfExp():
                waiting += (part.body, part.orelse)
            case ast.BoolOp():
                waiting += part.values
            case ast.Call():
                if _runs_module(program, part):
                    return False
                returned = [it for it in _returns(program, part) if it not in asked]
                asked.update(returned)
                waiting += (it.value for it in returned)
                if isinstance(part.func, ast.Attribute) and not returned:
                    waiting.append(part.func.value)
    return True


def _taken_out(program: Program, source: Source) -> Iterator[ast.expr | None]:
    """What a name is given that is one of several: ``a, b = value``, of what a function returns, too."""
    value, place = source.written if source.how is How.ASSIGNED and source.place else (None, ())
    returned = _returns(program, value) if place and isinstance(value, ast.Call) else []
    yield from (Source(How.ASSIGNED, it.value, place).written[0] for it in returned)
    if value is not None and not returned:
        yield value


def _hands_known(program: Program, iterated: ast.expr) -> bool:
    """Whether the elements of something have values: a DataLoader's have none, whatever else it may be."""
    waiting, asked = [iterated], set[int]()
    while waiting:
        part = waiting.pop()
        if id(part) in asked:
            continue
        asked.add(id(part))
        for value in program.values(part):
            if isinstance(value, Made) and value.name in HANDS_OUT:
                waiting += getattr(program.node(value.site), "args", ())
            elif isinstance(value, Made) and value.name.startswith(UNKNOWN_ELEMENTS):
                return False
    return True


def _runs_module(program: Program, call: ast.Call) -> bool:
    """Whether a call may run a module of PyTorch's: what that answers has no value."""
    called = program.values(call.func)
    return any(isinstance(it, Made) and it.name.startswith("torch.") for it in called)


def _returns(program: Program, call: ast.Call) -> list[ast.Return]:
    """Where the functions that a call enters return something."""
    scopes = [program.scopes[index] for index in program.called_scopes(call)]
    nodes = (it for scope in scopes for it in program.results(scope))
    return [it for it in nodes if isinstance(it, ast.Return) and it.value is not None]


def is_literal(program: Program, node: ast.AST) -> bool:
    values = program.values(node)
    return bool(values) and all(isinstance(value, Const) for value in values)


def is_fixed(program: Program, node: ast.AST) -> bool:
    """Whether an expression is a literal, or an option of the program."""
    return is_literal(program, node) or is_option(program, node)


def is_outside(program: Program, node: ast.AST) -> bool:
    """A module, a function, a class, or an object of the program's own: no tensor."""
    values = program.values(node)
    return bool(values) and all(isinstance(value, Ext | Mod | Func | Cls | Bound) for value in values)


def number_of(program: Program, node: ast.expr) -> int | None:
    """A number that is written, or that a name can only be."""
    number = written(node)
    if number is not None or not isinstance(node, ast.Name | ast.Attribute):
        return number
    held = {it.value if isinstance(it, Const) else None for it in program.values(node)}
    single = held.pop() if len(held) == 1 and is_followed(program, node) else None
    return single if isinstance(single, int) and not isinstance(single, bool) else None


def text(name: ast.expr) -> str:
    """A name or attribute as it is written."""
    return name.id if isinstance(name, ast.Name) else ast.unparse(name)
