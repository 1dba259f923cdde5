"""Names and attributes: what their definitions give them."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

from dp2ddp.analyse.api.files import BUILTIN_OPENERS
from dp2ddp.analyse.api.layers import SCALES_LOSS
from dp2ddp.analyse.api.naming import LOADER
from dp2ddp.analyse.api.tensors import DESCRIBES
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.definitions import is_literal, is_option, is_outside, may_be_option
from dp2ddp.analyse.dataflow.kinds import BY_SAMPLE, DEALT, PLAIN, Every, Kind, Unclear, Value
from dp2ddp.analyse.dataflow.samples import columns
from dp2ddp.analyse.dataflow.samples.batches import is_table
from dp2ddp.analyse.dataflow.samples.conditions import guarded, reaching_in, repeated
from dp2ddp.analyse.dataflow.samples.frames import OPEN, Frame
from dp2ddp.analyse.dataflow.samples.functions import of_parameter
from dp2ddp.analyse.dataflow.samples.indices import subscript
from dp2ddp.analyse.dataflow.samples.sizes import shape_of_some
from dp2ddp.analyse.dataflow.samples.writes.rows import with_changes
from dp2ddp.analyse.dataflow.samples.writes.stores import kept_of_samples
from dp2ddp.analyse.program.link import Program

if TYPE_CHECKING:
    from dp2ddp.analyse.dataflow.samples.follower import Samples


def of_name(samples: Samples, node: ast.Name | ast.Attribute, frame: Frame) -> Value | None:
    """What a name is, or an attribute whose assignments are known."""
    if is_option(samples.program, node):
        return Kind.SAME
    definitions = reaching_in(samples.context, node, frame)
    if definitions:
        return with_changes(samples, node, definitions, _given(samples, node, definitions, frame), frame)
    fixed = is_outside(samples.program, node) or is_literal(samples.program, node)
    return Kind.SAME if fixed or _is_starred(samples.program, node) else None


def _is_starred(program: Program, node: ast.Name | ast.Attribute) -> bool:
    """Whether a name comes by ``from data import *``: as what is imported by its name, it has nothing of samples."""
    if not isinstance(node, ast.Name) or not program.values(node):
        return False
    return any(isinstance(it, Path) for it in program.modules[program.file(node).path].stars)


def of_attribute(samples: Samples, node: ast.Attribute, frame: Frame) -> Value:
    if (blamed := kept_of_samples(samples, node)) is not None:
        return blamed
    named = of_name(samples, node, frame)
    if named is not None:
        return named
    if samples.context.made(samples.program.values(node.value), LOADER):
        return Kind.SAME
    value = samples.value(node.value, frame)
    if value is Kind.SAME and (blamed := _set_elsewhere(samples, node)) is not None:
        return blamed
    if value in kinds.COLUMNS:
        return columns.attribute(node, value)
    match node.attr:
        case "shape" if value in (Kind.PLACES, Kind.PICKED):
            return shape_of_some(node)
        case "shape":
            return Kind.SHAPE if value in DEALT else (value if value in PLAIN else Unclear(node))
        case "T" | "mT":
            return Kind.MOVED if value in BY_SAMPLE else value
        case _ if node.attr in DESCRIBES and value in BY_SAMPLE:
            return Kind.SAME
        case _ if isinstance(value, Every):  # of a named tuple
            return value.element
    return value


def _set_elsewhere(samples: Samples, node: ast.Attribute) -> Unclear | None:
    """What an entry of settings is set to by its name, ``cfg.train.lr = …``, where that is not the same everywhere."""
    root: ast.expr = node
    while isinstance(root, ast.Attribute | ast.Subscript):
        root = root.value
    owners = samples.program.values(root)
    if not any(is_table(samples.program, it) for it in owners):
        return None
    for target, statement in samples.context.attribute_assignments.get(node.attr, ()):
        held = samples.program.values(target.value)
        if held and not any(is_table(samples.program, it) for it in held):
            continue  # of another object
        value = kinds.tensor(samples.value(statement.value, OPEN), statement)
        if value not in (*PLAIN, Kind.UNKNOWN):
            return value if isinstance(value, Unclear) else Unclear(statement.value)
    return None


def _given(
    samples: Samples, use: ast.Name | ast.Attribute, definitions: list[ast.AST], frame: Frame
) -> Value:
    """What any of some definitions gives a name, or an attribute."""
    values = [_defined(samples, it, use, frame) for it in definitions]
    if isinstance(use, ast.Attribute) and may_be_option(samples.program, use):
        values.append(Kind.SAME)  # what it begins with: `args.path = os.path.join(args.path, name)`
    return kinds.join(values, use)


def _defined(samples: Samples, definition: ast.AST, use: ast.AST, frame: Frame) -> Value:
    """What a definition gives a name; only ``frame``'s own function has its parameters."""
    program = samples.program
    if isinstance(definition, ast.arg):
        return of_parameter(samples, definition, frame)
    if isinstance(definition, ast.alias | ast.FunctionDef | ast.ClassDef):
        return Kind.SAME
    around = program.generator_of(definition)
    if around is not None:
        return _taken(program, around.target, definition, samples.drawn_in(around.iter, frame))
    statement = program.statement(definition)
    named = program.parent(definition)
    if isinstance(named, ast.NamedExpr) and named.target is definition:
        return guarded(samples, statement, use, samples.value(named.value, frame), frame)
    match statement:
        case ast.Assign():
            held = next((it for it in statement.targets if program.is_inside(definition, it)), None)
            value = Unclear(use)  # of what a call in its value has set
            if held is not None:
                value = _taken(program, held, definition, samples.value(statement.value, frame))
        case ast.AnnAssign() if statement.value is not None:
            value = samples.value(statement.value, frame)
        case ast.AugAssign():
            value = repeated(samples, statement, use, samples.value(statement, frame), frame)
        case ast.For():
            value = _taken(program, statement.target, definition, samples.drawn_in(statement.iter, frame))
        case ast.With():
            value = _opened(samples, statement, definition, frame)
        case _:
            value = Unclear(use)
    return guarded(samples, statement, use, value, frame)


def before(samples: Samples, statement: ast.AugAssign, frame: Frame) -> Value:
    """What the target of ``x += y`` was."""
    target = statement.target
    if isinstance(target, ast.Subscript):
        return subscript(samples, target, frame)
    definitions = reaching_in(samples.context, target, frame)
    if not definitions:
        return Unclear(target)
    return _given(samples, target, definitions, frame)


def _opened(samples: Samples, statement: ast.With, definition: ast.AST, frame: Frame) -> Value:
    for item in statement.items:
        call = item.context_expr
        if item.optional_vars is definition and isinstance(call, ast.Call) and call.args:
            if ast.unparse(call.func).endswith(SCALES_LOSS):
                return samples.value(call.args[0], frame)
            if (
                (made := samples.program.call(call)) is not None
                and made.names <= BUILTIN_OPENERS
                and made.names
            ):
                return samples.value(call, frame)
    return Unclear(definition)


def _taken(program: Program, target: ast.AST, definition: ast.AST, value: Value) -> Value:
    """What ``definition`` gets where ``value`` is unpacked to ``target``."""
    if target is definition:
        return value
    if isinstance(target, ast.Starred):
        return _taken(program, target.value, definition, Every(kinds.element(value, definition)))
    if isinstance(target, ast.Tuple | ast.List):
        for index, part in enumerate(target.elts):
            if program.is_inside(definition, part):
                starred = any(isinstance(it, ast.Starred) for it in target.elts)
                part_value = kinds.element(value, part) if starred else kinds.entry(value, index, part)
                return _taken(program, part, definition, part_value)
    return Unclear(definition)
