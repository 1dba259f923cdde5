"""Whether a file is there: processes that ask later may find what the main process has just made, and leave."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from dp2ddp.analyse.api.files import EXISTENCE, LOADS, MAKES
from dp2ddp.analyse.api.processes import ENDS
from dp2ddp.analyse.context import Context, once
from dp2ddp.analyse.processes import alike, paths
from dp2ddp.analyse.processes.alike import works
from dp2ddp.analyse.processes.conditions import assigned, returned
from dp2ddp.analyse.processes.downloads import caching, is_inside, made_first
from dp2ddp.analyse.processes.effects import all_pass, covered
from dp2ddp.analyse.processes.elsewhere import given
from dp2ddp.analyse.processes.writes import leaves_any_file
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.values import Inst
from dp2ddp.facts import NO_TIER, Effect, Problem, Question, Script
from dp2ddp.plan import Anchor


def collect(
    context: Context, effects: tuple[Effect, ...], scripts: tuple[Script, ...]
) -> tuple[Question, ...]:
    """The conditions on files by which some of the processes could end what the others go on with."""
    makers = _makers(context)
    made = set().union(*makers.values())
    guards = [effect for effect in effects if effect.kind in ("guard", "test")]
    # Ranks that make a folder themselves find it: only of what one makes is it asked behind functions that return it.
    alone = (
        it for it in context.program.calls if id(it.node) in makers and covered(context, it.node, guards)
    )
    made_alone = {text for it in alone for text in _paths(context, it, returns=True)}
    answers = [effect.at for effect in effects if effect.kind in ("answer", "input")]
    cached, first = caching(context), made_first(context)
    found = []
    for node in list(context.program.nodes.values()):
        if not isinstance(node, ast.If | ast.Assert) or not context.runs_in_training(node):
            continue
        asked = _asked(context, node.test)
        path = min(asked & made or _asked(context, node.test, returns=True) & made_alone, default="")
        if asked and isinstance(node, ast.If) and _holds(context, node, answers):
            found.append(Question(**context.place(node.test), what=min(asked)))
        elif (
            not path
            or is_inside(context, node, cached)
            or first.covers(node)
            or _before_the_start(context, node, scripts)
            or (_harmless(context, node, makers) and not _is_cache(context, node, makers))
        ):
            continue
        else:
            problem = None if all_pass(context, node, guards) else _problem(path)
            found.append(Question(**context.place(node.test), what=path, problem=problem))
    return tuple(found)


@once
def _makers(context: Context) -> dict[int, set[str]]:
    """The calls that make files or folders, with their paths."""
    return {
        id(call.node): _paths(context, call)
        for call in context.program.calls
        if (call.names & MAKES or leaves_any_file(context, call)) and context.runs_in_training(call.node)
    }


def is_about_made(context: Context, call: Call) -> bool:
    """Whether a condition asks by a call for what is known to be made by the program: the answer is agreed on."""
    tests = (it for it in context.program.ancestors(call.node) if isinstance(it, ast.If | ast.Assert))
    asks = any(context.program.is_inside(call.node, it.test) for it in tests)
    return asks and any(_paths(context, call) & it for it in _makers(context).values())


def _holds(context: Context, node: ast.If, places: list[Anchor]) -> bool:
    """Whether one of some places stands in the blocks of a condition."""
    path = context.program.file(node).path
    lines = {it.span.line for it in places if it.path == path}
    return any(part.lineno <= line <= part.end_lineno for part in (*node.body, *node.orelse) for line in lines)  # type: ignore[operator]


def _problem(path: str) -> Problem:
    return Problem(
        f"control flow depends on whether `{path}` exists; rank 0 may create it before other ranks check",
        "if ranks diverge, create it before the training starts",
        NO_TIER,
        works=True,
    )


def _paths(context: Context, call: Call, returns: bool = False) -> set[str]:
    """The paths that a call makes or asks for, as they are written where they are put together.

    ``returns``: in functions that return them, too.
    """
    return {text for it in paths.given(call) for text in _written(context, it, 0, returns)}


def _written(context: Context, node: ast.expr, depth: int, returns: bool) -> Iterator[str]:
    """What an expression is, with what is assigned or given to a name in the place of the name."""
    sources = assigned(context, node) if isinstance(node, ast.Name | ast.Attribute) else []
    if isinstance(node, ast.Name):
        sources = sources or given(context, node)
    elif returns and isinstance(node, ast.Call):
        sources = returned(context, node)
    if not sources or depth > 4:
        yield from _named(context, node)
    for source in sources if depth <= 4 else ():
        yield from _written(context, source, depth + 1, returns)


def _named(context: Context, node: ast.expr) -> Iterator[str]:
    """An expression as it is written, with the class of the object that its attributes belong to."""
    values = [context.program.values(it) for it in ast.walk(node) if isinstance(it, ast.Name)]
    owners = {it.cls.scope for found in values for it in found if isinstance(it, Inst)}
    for scope in owners or [-1]:
        yield f"{context.program.scopes[scope].node.name}: {ast.unparse(node)}" if owners else ast.unparse(node)  # type: ignore[attr-defined]


def _asked(context: Context, test: ast.expr, returns: bool = False) -> set[str]:
    """The paths that a condition asks for, if no collective decides it yet."""
    calls = [context.program.call(node) for node in ast.walk(test) if isinstance(node, ast.Call)]
    known = [call for call in calls if call is not None]
    if any("dp2ddp.runtime.from_main_process" in call.names for call in known):
        return set()
    return set().union(*(_paths(context, call, returns) for call in known if call.names & EXISTENCE))


def _is_cache(context: Context, node: ast.If | ast.Assert, makers: dict[int, set[str]]) -> bool:
    """Whether something is read where its file is there, and made and written where it is not."""
    if isinstance(node, ast.Assert):
        return False
    asked = _asked(context, node.test)
    making = {key for key, paths in makers.items() if paths & asked}
    reading = {id(call.node) for call in context.program.calls if call.names & LOADS}
    here, there = (
        {id(it) for it in _runs(context, block)} if block else set() for block in (node.body, node.orelse)
    )
    return bool((here & reading and there & making) or (here & making and there & reading))


def _before_the_start(context: Context, node: ast.stmt, scripts: Iterable[Script]) -> bool:
    """Whether every process asks before the ranks meet: nothing can have been made yet."""
    program = context.program
    at = program.anchor(node)
    return program.scope(node).is_module and all(
        at.path == script.path and at.span.line < script.at.span.line
        for script in scripts
        if script.program in context.run_by(node)
    )


def _harmless(context: Context, node: ast.If | ast.Assert, makers: dict[int, set[str]]) -> bool:
    """Whether it makes no difference to the others who leaves here."""
    if isinstance(node, ast.Assert):
        return _was_there(context, node, makers)
    leaving = [*_leaving(context, node.body), *_leaving(context, node.orelse)]
    if _draws(context, [*node.body, *node.orelse]):
        return False  # the ranks would go on with other random numbers than one another
    if not leaving:
        return True
    if _after_a_failure(context, node) and all(isinstance(inner, ast.Raise) for inner in leaving):
        return True
    function = context.program.scope(node)
    if function.is_module or any(works(context, inner) for inner in _runs(context, function.body)):
        return False
    returns = [inner for inner in context.program.body(function) if isinstance(inner, ast.Return)]
    if all(inner in returns for inner in leaving) and not any(inner.value for inner in returns):
        return True  # `if os.path.isdir(path): return`
    # What is read is there, and the same for all: `rereads` lets them wait where it is written in the same run.
    return _reads(context, node.body) and not any(end in node.body and end not in returns for end in leaving)


def _draws(context: Context, block: list[ast.stmt]) -> bool:
    """Whether running some statements draws random numbers."""
    calls = (context.program.call(it) for it in _runs(context, block) if isinstance(it, ast.Call))
    return any(it is not None and alike.draws(it) for it in calls)


def _was_there(context: Context, node: ast.Assert, makers: dict[int, set[str]]) -> bool:
    """Whether it is asserted, at top level, that there is what nothing before may have made: all find the same."""
    program = context.program
    module = program.scope(node)
    if not module.is_module or any(isinstance(inner, ast.Not) for inner in ast.walk(node.test)):
        return False
    asked = _asked(context, node.test)
    making = {key for key, paths in makers.items() if paths & asked}
    body = module.node.body  # type: ignore[attr-defined]
    outermost = next(part for part in (node, *program.ancestors(node)) if part in body)
    before = body[: body.index(outermost) + 1]
    return isinstance(outermost, ast.Assert | ast.If) and not making & {
        key for part in before for key in context.runs(part)
    }


def _after_a_failure(context: Context, node: ast.If) -> bool:
    """Whether it is asked only where this process could not make something: the main process, as no other makes it."""
    for around in context.program.ancestors(node):
        if isinstance(around, ast.ExceptHandler):
            tried = context.program.parent(around)
            calls = [context.program.call(it) for part in tried.body for it in ast.walk(part)]  # type: ignore[union-attr]
            return any(call is not None and call.names & MAKES for call in calls)
    return False


def _leaving(context: Context, block: list[ast.stmt]) -> list[ast.stmt]:
    """What ends the program or the function in a block, unless an exception leads there."""
    inside = [inner for part in block for inner in context.program.descendants(part)]
    handlers = [inner for inner in inside if isinstance(inner, ast.ExceptHandler)]
    handled = {id(inner) for handler in handlers for inner in context.program.descendants(handler)}
    return [
        inner
        for inner in inside
        if isinstance(inner, ast.stmt) and id(inner) not in handled and _ends(context, inner)
    ]


def _ends(context: Context, statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        call = context.program.call(statement.value)
        return call is not None and bool(call.names & ENDS)
    return isinstance(statement, ast.Raise | ast.Return)


def _reads(context: Context, block: list[ast.stmt]) -> bool:
    calls = [context.program.call(inner) for part in block for inner in context.program.descendants(part)]
    return any(call is not None and call.names & LOADS for call in calls)


def _runs(context: Context, block: list[ast.stmt]) -> Iterator[ast.AST]:
    """All nodes that running some statements may run."""
    nodes = context.program.nodes
    yield from (nodes[key] for part in block for key in context.runs(part) if key in nodes)
