"""An expression as it can be written elsewhere: where the ranks start, or in the function that knows its names."""

from __future__ import annotations

import ast
import copy
from collections.abc import Set

from dp2ddp.analyse.api.devices import AVAILABLE, COUNT
from dp2ddp.analyse.context import Context, is_inserted
from dp2ddp.analyse.processes.answers import compared
from dp2ddp.analyse.processes.conditions import asks_for_gpus, is_call_of
from dp2ddp.analyse.processes.deciders import attribute_sets, changes
from dp2ddp.analyse.processes.purity import is_pure
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.values import Inst, full_name
from dp2ddp.plan import Anchor
from dp2ddp.source import SourceFile


def folded(expression: ast.expr) -> ast.expr:
    """``1`` for ``None if 1 > 1 else 1``: what a parameter's default has decided."""
    if not isinstance(expression, ast.IfExp):
        return expression
    test = _simplified(expression.test)
    if isinstance(test, ast.Constant):
        return expression.body if test.value else expression.orelse
    return expression if test is expression.test else ast.IfExp(test, expression.body, expression.orelse)


def _simplified(test: ast.expr) -> ast.expr:
    """A condition without the parts that constants decide: ``several`` for ``"auto" == "auto" and several``."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _simplified(operand)
            return ast.Constant(not inner.value) if isinstance(inner, ast.Constant) else test
        case ast.BoolOp(op=kind, values=values):
            decides = isinstance(kind, ast.Or)
            parts = [_simplified(it) for it in values]
            open_parts = [it for it in parts if not isinstance(it, ast.Constant)]
            if any(isinstance(it, ast.Constant) and bool(it.value) is decides for it in parts):
                return ast.Constant(decides)
            if not open_parts:
                return ast.Constant(not decides)
            if open_parts == values:
                return test
            return open_parts[0] if len(open_parts) == 1 else ast.BoolOp(kind, open_parts)
        case ast.Compare(left=ast.Constant(value=left), ops=[kind], comparators=[ast.Constant(value=right)]):
            answer = compared(kind, left, right)
            return test if answer is None else ast.Constant(answer)
    return test


def climb(context: Context, expression: ast.expr, scope: Scope) -> tuple[ast.expr, Scope]:
    """An expression in the names of the outermost function that knows them, and that function."""
    for _ in range(12):
        above = _above(context, expression, scope)
        if above is None:
            break
        expression, scope = above
    return expression, scope


def _above(context: Context, expression: ast.expr, scope: Scope) -> tuple[ast.expr, Scope] | None:
    """The same expression one step nearer to the start: where an attribute is set, or parameters are given."""
    program = context.program
    definitions = program.definitions(expression) if id(expression) in program.nodes else []
    statement = program.statement(definitions[0]) if len(definitions) == 1 else None
    if isinstance(expression, ast.Attribute) and isinstance(statement, ast.Assign):
        own = all(isinstance(it, Inst) for it in program.values(expression.value) or [None])
        if own and statement.targets == definitions and _is_all(context, expression, statement.value):
            return statement.value, program.scope(statement)
    given = {id(name): _given(context, name) for name in _names(context, expression)}
    if not given or None in given.values():
        return None
    nodes = [it for value in given.values() for it in ast.walk(value) if id(it) in program.nodes]  # type: ignore[arg-type]
    scopes = {program.scope(it).index: program.scope(it) for it in nodes}
    above = _replaced(expression, given)  # type: ignore[arg-type]
    if len(scopes) > 1 or (not scopes and isinstance(folded(above), ast.IfExp)):
        return None  # constants that decide nothing read better by their names
    return above, next(iter(scopes.values()), scope)


def _names(context: Context, expression: ast.expr) -> list[ast.Name]:
    """The names in an expression that are given or assigned their values."""
    program = context.program
    names = [it for it in ast.walk(expression) if isinstance(it, ast.Name) and isinstance(it.ctx, ast.Load)]
    known = {id(it): program.definitions(it) for it in names if id(it) in program.nodes}
    return [
        it
        for it in names
        if known.get(id(it)) and all(_is_code(d) or isinstance(d, ast.arg) for d in known[id(it)])
    ]


def _given(context: Context, name: ast.Name) -> ast.expr | None:
    """What a parameter is given, if that is one thing that can be written where it is given."""
    found = {ast.dump(it): it for it in given(context, name)}
    simple = ast.Name | ast.Attribute | ast.Constant | ast.List | ast.Tuple | ast.Subscript
    alone = next(iter(found.values())) if len(found) == 1 else None
    return alone if isinstance(alone, simple) else None


def _replaced(expression: ast.expr, replaced: dict[int, ast.expr]) -> ast.expr:
    """An expression with other nodes in the place of some."""
    if id(expression) in replaced:
        return replaced[id(expression)]
    changed = copy.copy(expression)
    for field, value in ast.iter_fields(expression):
        if isinstance(value, ast.expr):
            setattr(changed, field, _replaced(value, replaced))
        elif isinstance(value, list):
            parts = [_replaced(it, replaced) if isinstance(it, ast.expr) else it for it in value]
            setattr(changed, field, parts)
    return changed


def written_in(context: Context, given: ast.expr, scopes: list[Scope]) -> ast.expr | None:
    """An expression with the names that some scopes have; None where they lack one."""
    source = source_of(context, given, scopes)
    return source if hidden_name(context, source, scopes) is None else None


def source_of(
    context: Context,
    given: ast.expr,
    scopes: list[Scope],
    depth: int = 0,
    late: Set[int] = frozenset(),
) -> ast.expr:
    """An expression with what is given for functions' parameters, or assigned to their names, in their place.

    Its names are the program's own nodes. Where nothing took the place of a name, so is the whole expression.
    """
    behind = _behind(context, given, scopes, depth, late) if depth < 9 else None
    if behind is not None:
        return source_of(context, behind, scopes, depth + 1, late)
    if isinstance(given, ast.Name) or _is_set_later(context, given, scopes, depth):
        return given
    changed: ast.expr = copy.copy(given)
    for field, value in ast.iter_fields(given):
        if isinstance(value, ast.AST):
            setattr(changed, field, source_of(context, value, scopes, depth, late))  # type: ignore[arg-type]
        elif isinstance(value, list):
            parts = [
                source_of(context, it, scopes, depth, late) if isinstance(it, ast.AST) else it for it in value
            ]
            setattr(changed, field, parts)
    same = all(getattr(changed, field) == value for field, value in ast.iter_fields(given))
    return given if same else changed


def _is_set_later(context: Context, node: ast.expr, scopes: list[Scope], depth: int) -> bool:
    """Whether the program sets an attribute of what a call has made: another call makes an object without it."""
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return False
    made = _argument(context, node.value, scopes, depth)
    return isinstance(made, ast.Call) and bool(attribute_sets(context, node, context.trained))


def _behind(
    context: Context, node: ast.AST, scopes: list[Scope], depth: int, late: Set[int]
) -> ast.expr | None:
    """What a name or attribute is that the ranks' start can't use, if it is one thing; None for others."""
    program = context.program
    if not isinstance(node, ast.Name | ast.Attribute) or id(node) not in program.nodes:
        return None
    if isinstance(node, ast.Name) and (argument := _argument(context, node, scopes, depth)) is not None:
        return argument
    root: ast.expr = node
    while isinstance(root, ast.Attribute):
        root = root.value
    known = program.definitions(root) if isinstance(root, ast.Name) else []
    if all(program.scope(it) in scopes for it in known) and not any(id(it) in late for it in known):
        return None
    if isinstance(node, ast.Attribute) and not all(
        isinstance(it, Inst) for it in program.values(node.value) or [None]
    ):
        return None  # others may set it, too
    definitions = program.definitions(node)
    statement = (
        program.statement(definitions[0]) if len(definitions) == 1 and _is_code(definitions[0]) else None
    )
    known = isinstance(statement, ast.Assign) and definitions[0] in statement.targets
    return statement.value if known and _is_all(context, node, statement.value) else None


def _is_all(context: Context, name: ast.expr, value: ast.expr) -> bool:
    """Whether an expression may stand for the name that it is assigned to: evaluated again, and changed by nothing.

    A name is changed with what it is another name of.
    """
    if not _is_simple(context, value):
        return False
    return isinstance(value, ast.Name | ast.Attribute) or not any(changes(context, name, context.trained))


def _is_simple(context: Context, node: ast.expr) -> bool:
    """Whether an expression may be evaluated once more elsewhere: its calls are of Python's own plain functions.

    Or ask for the GPUs that there are.
    """
    calls = [context.program.call(it) for it in ast.walk(node) if isinstance(it, ast.Call)]
    names = [full_name(callee) for it in calls if it is not None for callee in it.callees]
    plain = all(name.startswith("builtins.") or name in (AVAILABLE, COUNT, "torch.device") for name in names)
    return plain and is_pure(context, node)


def _argument(context: Context, name: ast.Name, scopes: list[Scope], depth: int = 0) -> ast.expr | None:
    """What is given for a parameter, where that is one thing, or its default; None for other names.

    ``depth``: how many names were followed to this one. A function may give its parameter to itself.
    """
    definitions = context.program.definitions(name)
    alone = definitions[0] if len(definitions) == 1 else None
    if not isinstance(alone, ast.arg) or depth > 9:
        return None
    found = context.program.given(alone)
    if len(found) > 1:
        found = [source_of(context, it, scopes, max(6, depth + 1)) for it in found]
        same = len(set(map(ast.dump, found))) == 1
        return found[0] if same and not any(hidden_name(context, it, scopes) for it in found) else None
    return found[0] if found else None


def given(context: Context, name: ast.Name) -> list[ast.expr]:
    """What calls of the project give for a parameter; nothing for other names."""
    definitions = context.program.definitions(name)
    if len(definitions) != 1 or not isinstance(definitions[0], ast.arg):
        return []
    return context.program.given(definitions[0])


def devices_text(context: Context, expression: ast.expr | None, place: ast.AST) -> Anchor | str | None:
    """The devices where the ranks start: as they are edited, or as they are written in another file."""
    if expression is None:
        return None
    if (test := _condition(context, expression)) is not None:
        return f"{ast.unparse(expression)} if {ast.unparse(test)} else 0"
    return written_at(context, expression, place)


def with_condition(context: Context, expression: ast.expr) -> str:
    test = _condition(context, expression)
    return ast.unparse(expression) + (f" if {ast.unparse(test)} else 0" if test is not None else "")


def written_at(context: Context, expression: ast.expr | None, place: ast.AST) -> Anchor | str | None:
    """An expression at the place where the ranks start: as it is edited, or as it is written in another file."""
    if expression is None:
        return None
    known = id(expression) in context.program.nodes and not is_inserted(expression)
    written = known and context.program.file(expression) is context.program.file(place)
    return context.program.anchor(expression) if written else ast.unparse(expression)


def hidden_name(
    context: Context, expression: ast.expr | None, scopes: list[Scope], own: str = ""
) -> ast.Name | None:
    """A name of an expression that none of some scopes binds; ``own``: what an object is called in all its methods."""
    program = context.program
    nodes = list(ast.walk(expression)) if expression is not None else []
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id != own:
            outside = [definition for definition in program.definitions(node) if definition not in nodes]
            unknown = any(program.scope(definition) not in scopes for definition in outside)
            if unknown and not (scopes and _import(context, node, scopes[0].file)):
                return node
    return None


def _import(context: Context, name: ast.Name, file: SourceFile) -> str:
    """The import that gives a program a function of another file; nothing where there is none."""
    program = context.program
    found = program.definitions(name)
    if len(found) != 1 or not isinstance(found[0], ast.FunctionDef) or name.id in context.names(file.path):
        return ""
    path = program.file(found[0]).path
    if not program.scope(found[0]).is_module or file.path.parent not in path.parents:
        return ""
    module = ".".join(path.relative_to(file.path.parent).with_suffix("").parts)
    there = program.project.resolve(file.path, module) == path
    return f"from {module} import {name.id}" if there else ""


def imports_for(context: Context, expression: ast.expr | None, file: SourceFile) -> tuple[str, ...]:
    """The imports that a program needs for an expression of other files."""
    names = [it for it in ast.walk(expression) if isinstance(it, ast.Name)] if expression is not None else []
    outside = [it for it in names if context.program.file(it) is not file]
    return tuple(dict.fromkeys(found for it in outside if (found := _import(context, it, file))))


def _condition(context: Context, expression: ast.expr) -> ast.expr | None:
    """The condition under which devices are chosen, where it asks for GPUs and they are chosen nowhere else.

    Without it they may be no list yet, and no GPU is used.
    """
    program = context.program
    known = program.definitions(expression) if id(expression) in program.nodes else []
    sets = [program.statement(it) for it in known if _is_code(it)]
    if isinstance(expression, ast.Attribute):
        places = context.attribute_assignments.get(expression.attr, ())
        sets += [it for target, it in places if ast.dump(target.value) == ast.dump(expression.value)]
    tests = [
        around
        for it in dict.fromkeys(sets)
        for around in program.ancestors(it)
        if isinstance(around, ast.If)
        and asks_for_gpus(context, around.test)
        and any(it is inner for part in around.body for inner in ast.walk(part))
    ]
    found = {ast.dump(it.test): it for it in tests}
    if len(tests) < len(dict.fromkeys(sets)) or len(found) != 1:
        return None
    (around,) = found.values()
    simple = not any(isinstance(it, ast.Call) for it in ast.walk(around.test))
    return around.test if simple or is_call_of(context, around.test, AVAILABLE) else None


def _is_code(node: ast.AST) -> bool:
    return not isinstance(node, ast.arg | ast.alias | ast.FunctionDef | ast.ClassDef)
