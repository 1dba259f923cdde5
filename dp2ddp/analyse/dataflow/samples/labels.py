"""What is told by labels: torch refuses other rows than there are of them.

So an element of what a model hands out that is given to a loss with labels for all samples is no sample's: it has rows
of all of them. And where every fourth row is, there were four of each sample, one after the other. Of batches that the
program makes itself, or of which it takes parts later, labels may have fewer rows: nothing is told by those.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from typing import TYPE_CHECKING

from dp2ddp.analyse.dataflow import kinds, losses
from dp2ddp.analyse.dataflow.definitions import NAMES, number_of, right_sides, text
from dp2ddp.analyse.dataflow.kinds import DEALT, PLAIN, Kind
from dp2ddp.analyse.dataflow.samples.frames import Frame
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.program.signature import bind, is_spread

if TYPE_CHECKING:
    from dp2ddp.analyse.dataflow.samples.follower import Samples

BRANCHES = (ast.If, ast.IfExp, ast.While, ast.Try, ast.ExceptHandler)


def are_listed(samples: Samples, node: ast.expr, frame: Frame) -> bool:
    """Whether what a model hands out is a list of rows: an element of it meets labels for all samples.

    No element of a tensor has as many numbers as there are: replicas compute it of their parts of the batch.
    """
    program = samples.program
    for use in () if samples.context.runs_before_own else _uses(program, node):
        around = program.parent(use)
        if isinstance(around, ast.Subscript) and around.value is use and _is_one(around.slice):
            elements: list[ast.expr] = [around]
        elif isinstance(around, ast.For | ast.comprehension) and around.iter is use:
            elements = list(_named(program, around.target))
        else:
            continue
        if samples.value(use, frame) is not Kind.OUTPUT and not _is_handed_out(samples, use):
            continue  # elements of what else it may be could be made of all samples
        if any(_is_surely_run(program, it, node) and _meets_labels(samples, it, frame) for it in elements):
            return True
    return False


def _is_handed_out(samples: Samples, node: ast.expr) -> bool:
    """Whether a name is given what a model hands out, whatever is put in it later."""
    made = samples.program.definitions(node) if isinstance(node, ast.Name) else []
    given = [
        it
        for one in made
        if not isinstance(one, ast.arg)
        for it in right_sides(samples.program.statement(one), one)
    ]
    calls = [it for it in given if isinstance(it, ast.Call)]
    called = (samples.program.values(it.func) for it in calls)
    return len(made) == len(given) == len(calls) > 0 and all(map(samples.context.is_wrapped, called))


def of_every(samples: Samples, node: ast.Subscript, frame: Frame) -> bool:
    """Whether ``x[1::4]`` takes a row of each sample: as many as there are labels.

    With ``k`` rows of each of ``n`` samples, every fourth are ``n`` only where ``k`` is 4, as soon as ``n`` is.
    """
    program = samples.program
    step = None if samples.context.runs_before_own else _step(program, node.slice)
    for use in _uses(program, node.value) if step is not None else ():
        taken = program.parent(use)
        if not isinstance(taken, ast.Subscript) or taken.value is not use:
            continue
        if _step(program, taken.slice) == step and _is_surely_run(program, taken, node):
            if any(_is_input(samples, it, frame) for it in (taken, *_given_name(program, taken))):
                return True
    return False


def _step(program: Program, index: ast.expr) -> int | None:
    """The 4 of ``[::4]`` and ``[1::4]``; None of other indices."""
    if not isinstance(index, ast.Slice) or index.step is None or index.upper is not None:
        return None
    step = number_of(program, index.step)
    first = 0 if index.lower is None else number_of(program, index.lower)
    return step if step is not None and first is not None and 0 <= first < step and step > 1 else None


def _is_one(index: ast.expr) -> bool:
    """Whether an index takes one element: a number, or what is computed of numbers."""
    return isinstance(index, ast.Constant | ast.Name | ast.UnaryOp | ast.BinOp)


def _is_surely_run(program: Program, place: ast.AST, node: ast.AST) -> bool:
    """Whether a place is under no conditions that another one isn't."""
    inside = {id(it) for it in program.ancestors(node)}
    return not any(isinstance(it, BRANCHES) and id(it) not in inside for it in program.ancestors(place))


def _uses(program: Program, node: ast.expr) -> Iterator[ast.expr]:
    """Where the same is used in the function: the same words, with names that have the same definitions."""
    words, made = text(node), _made(program, node)
    yield node
    for other in program.body(program.scope(node)) if all(made) else ():
        if isinstance(other, type(node)) and other is not node and text(other) == words:
            if _made(program, other) == made:
                yield other  # type: ignore[misc]


def _made(program: Program, node: ast.expr) -> list[set[int]]:
    return [set(map(id, program.definitions(it))) for it in ast.walk(node) if isinstance(it, ast.Name)]


def _named(program: Program, target: ast.AST) -> Iterator[ast.expr]:
    """The uses of a name that has its value of one place."""
    for use in program.body(program.scope(target)) if isinstance(target, ast.Name) else ():
        if isinstance(use, ast.Name) and use is not target and program.definitions(use) == [target]:
            yield use


def _given_name(program: Program, node: ast.expr) -> Iterator[ast.expr]:
    """The uses of the name that an expression is given."""
    match program.parent(node):
        case ast.Assign(targets=[target], value=value) if value is node:
            yield from _named(program, target)


def _meets_labels(samples: Samples, node: ast.expr, frame: Frame) -> bool:
    """Whether something is given with rows to a loss of torch, or to a function in which it meets them."""
    program, given = samples.program, node
    for around in program.ancestors(node):
        if isinstance(around, ast.stmt):
            return False
        if isinstance(around, ast.Call) and given in handed(around):
            if _is_input(samples, given, frame):
                return True
            call = program.call(around)
            if call is not None and program.entered(around):
                return _meets_inside(samples, call, given, frame)
        if not isinstance(around, ast.expr) or not _is_of_one(samples, around, given, frame):
            return False
        given = around
    return False


def _is_of_one(samples: Samples, node: ast.expr, part: ast.expr, frame: Frame) -> bool:
    """Whether an expression is made of a part of it, and else of what is no sample's."""
    inside = {id(it) for it in ast.walk(part)}
    names = (it for it in ast.walk(node) if isinstance(it, ast.Name) and id(it) not in inside)
    return all(samples.value(it, frame) in PLAIN for it in names)


def _is_input(samples: Samples, node: ast.expr, frame: Frame) -> bool:
    """Whether a loss that has a label for each row is given something, with labels that are rows."""
    around = samples.program.parent(node)
    call = samples.program.call(around) if isinstance(around, ast.Call) else None
    if call is None or not losses.is_loss(samples.context, call) or not losses.is_of_pairs(call):
        return False
    output, *labels = losses.tensors(call) or [None]
    return output is node and _is_rows(samples, labels[0], frame)


def _is_rows(samples: Samples, node: ast.expr, frame: Frame) -> bool:
    return kinds.tensor(samples.value(node, frame), node) in DEALT


def _meets_inside(samples: Samples, call: Call, node: ast.expr, frame: Frame) -> bool:
    """Whether every function that a call enters gives what it is given to a loss with its labels, or compares them."""
    program = samples.program
    targets = [it for callee in call.callees for it in program.targets(callee, call)]
    return (
        bool(targets)
        and not is_spread(call.node)
        and all(_meets_in(samples, call, scope, bound, node, frame) for scope, _, bound in targets)
    )


def _meets_in(samples: Samples, call: Call, index: int, bound: bool, node: ast.expr, frame: Frame) -> bool:
    program = samples.program
    scope = program.scopes[index]
    given = {id(it): value for it, value in bind(call.node, scope.takes(bound)).given}
    own = {key for key, value in given.items() if value is node}
    rows = {key for key, value in given.items() if value is not node and _is_rows(samples, value, frame)}
    known = {key for key, value in given.items() if kinds.tensor(samples.value(value, frame), value) in PLAIN}
    free = {id(it) for it in scope.signature.named if id(it) not in given} | known
    for inner in program.body(scope):
        asked = _asked_alike(samples, inner)
        if asked is not None and _is_surely_run(program, inner, scope.node):
            one, other = asked
            if _is_made_of(program, one, own, free) and _is_made_of(program, other, rows, free):
                return True
    return False


def _asked_alike(samples: Samples, node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """Two tensors that torch refuses where they don't have the same rows: of a loss, and ``y.expand_as(x)``."""
    call = samples.program.call(node) if isinstance(node, ast.Call) else None
    if call is None:
        return None
    match call.node:
        case ast.Call(func=ast.Attribute(attr="expand_as", value=labels), args=[output]):
            return output, labels
    if losses.is_loss(samples.context, call) and losses.is_of_pairs(call):
        output, *more = losses.tensors(call) or [None]
        return (output, more[0]) if output is not None and more else None
    return None


def _is_made_of(program: Program, node: ast.expr, own: Set[int], free: Set[int], depth: int = 0) -> bool:
    """Whether an expression in a function is made of some of its parameters, and else of ``free`` ones alone."""
    found = _parameters(program, node, depth)
    return found is not None and bool(found & own) and found <= own | free


def _parameters(program: Program, node: ast.expr, depth: int = 0) -> set[int] | None:
    """The parameters that an expression in a function is made of; None where that is not known."""
    found: set[int] = set()
    for name in ast.walk(node) if depth < NAMES else ():
        for made in program.definitions(name) if isinstance(name, ast.Name) else ():
            if program.scope(made) is not program.scope(node):
                continue  # a module, a function: something from outside
            if isinstance(made, ast.arg):
                found.add(id(made))
                continue
            sources = right_sides(program.statement(made), made)
            inner = [_parameters(program, it, depth + 1) for it in sources]
            if not inner or None in inner:
                return None
            found |= set[int]().union(*inner)  # type: ignore[arg-type]
    return found if depth < NAMES else None
