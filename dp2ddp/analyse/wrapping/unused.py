"""Wraps that no training of the given programs runs, and what may train them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import partial

from dp2ddp.analyse.api.files import KNOWN_HOMES, has_known_home
from dp2ddp.analyse.context import LOOPS, Context
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.values import Cls, Ext, Made, Value
from dp2ddp.facts import ANY_TIER, NO_TIER, Prediction, Problem, Unused


def unused(context: Context, call: Call) -> Iterator[Unused]:
    """A wrap that no program runs and trains: worth an error only where nothing else is there to be converted."""
    runs = _runs(context, call)
    others = context.scripts or context.beside
    if runs and (missing := _missing(context, call)):
        yield missing
        return
    if others and runs:
        return
    if runs and not others and (found := list(without_backward(context, call))):
        yield from found
        return
    predicts = any(_runs(context, it) for it in (*context.wraps, *context.idle_wraps))
    noted = bool(others) or runs or predicts
    message = "this DataParallel is not converted: no training script that was given runs it"
    help = "" if runs else "convert the script that runs it, if there is one; else no action needed"
    if not runs and (uncalled := _uncalled(context, call)):
        message, help = (
            f"this DataParallel is not converted: `{uncalled}()` is never called",
            f"call `{uncalled}()`",
        )
    problem = Problem(message, help, NO_TIER if noted else ANY_TIER, works=noted)
    yield Unused(**context.place(call.node), problem=problem)


def _runs(context: Context, call: Call) -> bool:
    """Whether a file runs a wrap as a program: to predict, where nothing trains it."""
    return any(id(call.node) in context.program_runs(file) for file in context.program.files)


def predictions(context: Context) -> Iterator[Prediction]:
    """The programs that wrap a model and run no backward pass, each with its first wrap."""
    passes = {id(node) for node in context.backwards}
    for file in context.program.files if context.wraps else ():
        runs = context.program_runs(file)
        wraps = [context.program.anchor(it.node) for it in context.wraps if id(it.node) in runs]
        if wraps and not passes & runs:
            yield Prediction(file.path, min(wraps, key=lambda it: (it.path != file.path, it.path, it.span)))


def without_backward(context: Context, call: Call) -> Iterator[Unused]:
    """A wrap in a program without a backward pass, which something unknown trains, or may train."""
    program = context.program
    if missing := _missing(context, call):
        yield missing
        return
    inside = _runs_with(context, call)
    trains = next((it for it in inside if _steps(context, it)), None)
    found = trains or next((it for it in inside if _is_given(context, it, partial(_is_made_by, call))), None)
    if found is not None:
        at = program.location(found.node)
        what = f"`{ast.unparse(found.node.func)}()` ({at.path.name}:{at.span.line})"
        does = "trains" if trains is not None else "may train"
        message = f"this DataParallel is not converted: no backward pass was found, but {what} {does}"
        help = "call `loss.backward()` and `optimizer.step()` in the program's own training loop"
        problem = Problem(message, help, ANY_TIER if trains is not None else NO_TIER, works=trains is None)
        yield Unused(**context.place(call.node), problem=problem)


def _runs_with(context: Context, call: Call) -> list[Call]:
    """The calls in the programs that run a wrap."""
    runs = set().union(
        *(it for it in map(context.program_runs, context.program.files) if id(call.node) in it)
    )
    return [it for it in context.program.calls if id(it.node) in runs]


def _missing(context: Context, call: Call) -> Unused | None:
    """A wrap that something of a module gets which was not found, in a program that trains.

    It has an optimizer, or the module is the project's, in one of several folders.
    """
    program = context.program
    inside = _runs_with(context, call)
    for it in inside:
        given = (value for node in handed(it.node) for value in program.values(node))
        names = _from_outside(context, it) if any(_is_made_by(call, value) for value in given) else ()
        for name in names:
            places = program.project.places(program.file(it.node).path, name)
            makes = any(context.optimizes(value) for at in inside for value in program.values(at.node))
            if places is not None and (places or makes):
                at = program.location(it.node)
                what = f"`{ast.unparse(it.node.func)}()` ({at.path.name}:{at.span.line})"
                found = f"several folders have a `{name}`" if places else f"`{name}` was not found"
                message = f"this DataParallel is not converted: {what} may train it, but {found}"
                help = f"{'' if places else 'install it, or '}tell dp2ddp its folder by PYTHONPATH"
                problem = Problem(message, help, ANY_TIER)
                return Unused(**context.place(call.node), problem=problem)
    return None


def _from_outside(context: Context, call: Call) -> list[str]:
    """The modules from outside the project that a call is of, or that its class gets its bases from."""
    classes = (it for it in call.callees if isinstance(it, Cls))
    names = {it.name for cls in classes for it in context.program.bases(cls) if isinstance(it, Ext)}
    names |= set() if context.program.entered(call.node) else call.names
    return sorted({it.partition(".")[0] for it in names} - KNOWN_HOMES)


def _steps(context: Context, call: Call) -> bool:
    """Whether a call makes an optimizer's step, or may: something from outside is given the optimizer in a loop."""
    program, func = context.program, call.node.func
    if isinstance(func, ast.Attribute) and func.attr == "step":
        return any(map(context.optimizes, program.values(func.value)))
    in_loop = any(isinstance(it, LOOPS) for it in program.ancestors(call.node))
    return in_loop and _is_given(context, call, context.optimizes)


def _is_given(context: Context, call: Call, is_it: Callable[[Value], bool]) -> bool:
    """Whether something from outside, of which nothing is known, is given a value of a kind."""
    if context.program.entered(call.node) or has_known_home(call.names):
        return False
    return any(is_it(value) for it in handed(call.node) for value in context.program.values(it))


def _is_made_by(call: Call, value: Value) -> bool:
    return isinstance(value, Made) and value.site == id(call.node)


def _uncalled(context: Context, call: Call) -> str:
    """The function at the root of a wrap that nothing calls, in a file that is a program by what it is called."""
    scope, seen = context.program.scope(call.node), set[int]()
    while scope.index not in seen:
        seen.add(scope.index)
        callers = context.callers.get(scope.index, ())
        if not callers:
            node = scope.node
            plain = isinstance(node, ast.FunctionDef) and node.name == "main" and not node.decorator_list
            names = (it.id for it in context.program.nodes.values() if isinstance(it, ast.Name))
            known = plain and scope.parent is not None and scope.parent.is_module and "main" not in names
            imported = (
                it.name
                for file in context.program.files
                for node in ast.walk(file.tree)
                if isinstance(node, ast.ImportFrom)
                for it in node.names
            )
            return "main" if known and "main" not in imported else ""
        scope = context.program.scope(callers[0])
    return ""
