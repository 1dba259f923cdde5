"""Conditions and loops round a place: which keep it from being run, and whether every process answers them alike."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dp2ddp.analyse.context import Context, once
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.definitions import reaching
from dp2ddp.analyse.dataflow.kinds import AVERAGED, BY_SAMPLE, Kind, Unclear, Value
from dp2ddp.analyse.dataflow.samples.frames import GIVEN, Frame
from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.program.values import Cls, Ext, Inst, Made, full_name

if TYPE_CHECKING:
    from dp2ddp.analyse.dataflow.samples.follower import Samples


def reaching_in(context: Context, use: ast.AST, frame: Frame) -> list[ast.AST]:
    """The definitions of a name that can reach its use in one call of the function."""
    return [it for it in reaching(context, use) if isinstance(it, ast.arg) or may_run(context, it, frame)]


def may_run(context: Context, node: ast.AST, frame: Frame) -> bool:
    """Whether no condition that the arguments of a call answer keeps a place from being run."""
    return not any(
        answered(context.program, test, frame) is kept for test, kept in _conditions(context, node)
    )


def answered(program: Program, test: ast.expr, frame: Frame) -> bool | None:
    """How a condition is answered where its parameter is given a literal."""
    match test:
        case ast.UnaryOp(op=ast.Not()):
            answer = answered(program, test.operand, frame)
            return None if answer is None else not answer
        case ast.Attribute(value=ast.Name(id=me), attr="training"):
            return frame.training if program.scope(test).params[:1] == [me] else None
        case ast.Name():
            literal = _literal(program, test, frame)
            return None if literal in (None, (GIVEN,)) else bool(literal[0])
        case ast.Call(func=ast.Name(id="isinstance"), args=[subject, kind]):
            return _is_instance(program, subject, kind)
        case ast.Compare(
            left=ast.Name() as name,
            ops=[ast.Is() | ast.IsNot() | ast.Eq() | ast.NotEq() as asks],
            comparators=[ast.Constant(value=wanted)],
        ):
            literal, same = _literal(program, name, frame), isinstance(asks, ast.Is | ast.Eq)
            if literal is not None and wanted is None:
                return (literal[0] is None) is same
            if literal not in (None, (GIVEN,)) and isinstance(asks, ast.Eq | ast.NotEq):
                return (literal[0] == wanted) is same
    return None


def _literal(program: Program, name: ast.Name, frame: Frame) -> tuple[object] | None:
    """The literal that a parameter is given, or ``GIVEN``, in a tuple: it may be None."""
    definitions = program.definitions(name)
    known = len(definitions) == 1 and id(definitions[0]) in frame.literals
    return (frame.literals[id(definitions[0])],) if known else None


def _is_instance(program: Program, subject: ast.expr, kind: ast.expr) -> bool | None:
    """Whether an object is of a class, where every object that it may be is known."""
    values = program.values(subject)
    classes = program.values(kind)
    if len(classes) != 1 or not values:
        return None
    (wanted,) = classes
    answers = {_is_of(program, value, wanted) for value in values}
    return answers.pop() if len(answers) == 1 else None


def _is_of(program: Program, value: object, wanted: object) -> bool | None:
    if isinstance(value, Made) and isinstance(wanted, Ext) and value.name == wanted.name:
        return True
    if isinstance(value, Made) and isinstance(wanted, Cls) and value.name.startswith("torch.nn."):
        return False
    if isinstance(value, Inst):
        bases = program.bases(value.cls)
        outside = [it for it in bases if isinstance(it, Ext) and full_name(it) != "torch.nn.Module"]
        return True if wanted in bases else None if outside else False
    return None


@once
def _conditions(context: Context, node: ast.AST) -> list[tuple[ast.expr, bool]]:
    """The conditions that a place depends on in its function, each with the answer that keeps it from being run."""
    program, found = context.program, []
    inside = node
    for around in program.ancestors(node):
        if isinstance(around, ast.If) and (inside in around.body or inside in around.orelse):
            found.append((around.test, inside in around.orelse))
        if isinstance(inside, ast.stmt):
            block = program.block(inside)
            for before in block[: block.index(inside)]:
                if isinstance(before, ast.If):
                    ways = ((True, before.body), (False, before.orelse))
                    found += [(before.test, answer) for answer, taken in ways if _leaves(taken)]
        if isinstance(around, ast.FunctionDef):
            break
        inside = around
    return [(test, kept) for test, kept in found if _may_be_answered(test)]


def _leaves(block: list[ast.stmt]) -> bool:
    """Whether a block ends its function."""
    return bool(block) and isinstance(block[-1], ast.Return | ast.Raise)


def _may_be_answered(test: ast.expr) -> bool:
    """Whether the arguments of a call may answer a condition: see ``answered``."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _may_be_answered(operand)
        case ast.Attribute(attr=name):
            return name == "training"
        case ast.Call(func=ast.Name(id="isinstance")) | ast.Compare(left=ast.Name()):
            return True
    return isinstance(test, ast.Name)


@once
def _tests_round(context: Context, statement: ast.stmt, use: ast.AST) -> list[ast.expr]:
    """The conditions round a statement, but for those round a use as well."""
    inside = {id(node) for node in context.program.ancestors(use)}
    return [
        around.test
        for around in context.program.ancestors(statement)
        if isinstance(around, ast.If | ast.While) and id(around) not in inside
    ]


def under(samples: Samples, tests: list[ast.expr], value: Value, frame: Frame) -> Value:
    """A value that is one thing or another, by conditions that every process must answer alike."""
    data = next((test for test in tests if samples.is_data(test, frame)), None)
    return value if data is None or isinstance(value, Unclear) else Unclear(data, refuted=True)


def guarded(samples: Samples, statement: ast.stmt, use: ast.AST, value: Value, frame: Frame) -> Value:
    """What a statement gives, under the conditions round it that a use does not stand in."""
    return samples.under(_tests_round(samples.context, statement, use), value, frame)


def asks_data(samples: Samples, test: ast.AST, frame: Frame) -> bool:
    """Whether a condition asks for numbers of the batch, which differ between its parts."""
    match test:
        case ast.BoolOp():
            return any(samples.is_data(value, frame) for value in test.values)
        case ast.UnaryOp():
            return samples.is_data(test.operand, frame)
        case ast.Compare():
            asked = [test.left, *test.comparators]
            by_key = all(isinstance(operator, ast.In | ast.NotIn) for operator in test.ops)
            if by_key or samples.context.asks_identity(test):
                return False
            return any(samples.is_data(value, frame) for value in asked)
        case ast.Constant():
            return False
    value = samples.value(test, frame)
    if isinstance(value, Unclear):
        asked = (test.func.value, *test.args) if _is_method(test) else ()
        asked = (test.value,) if isinstance(test, ast.Subscript) else asked
        return any(samples.is_data(part, frame) for part in asked)
    return value in (*BY_SAMPLE, *kinds.COLUMNS, *AVERAGED, Kind.HANDED, Kind.TOTAL, Kind.COUNT)


def _is_method(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)


def repeated(samples: Samples, statement: ast.stmt, use: ast.AST, value: Value, frame: Frame) -> Value:
    """A statement that a loop repeats, as often in every process."""
    for around in loops_apart(samples.program, statement, use):
        drawn = samples.drawn_in(around.iter, frame)
        if isinstance(drawn, Unclear) or kinds.tensor(drawn, around.iter) is Kind.EACH:
            return kinds.blame([value, Unclear(around.iter)], around.iter)
    return value


def loops_apart(program: Program, statement: ast.stmt, use: ast.AST) -> Iterator[ast.For]:
    """The loops round a statement that a use does not stand in, within the function."""
    inside = {id(node) for node in program.ancestors(use)}
    for around in program.ancestors(statement):
        if isinstance(around, ast.FunctionDef | ast.Lambda):
            return
        if isinstance(around, ast.For) and id(around) not in inside:
            yield around
