"""What one process must do alone: files, directories, logs, plots, downloads, questions to whoever sits there.

What is printed is not among it: the other ranks are not heard. Nor is what is done with a writer: it is made on the
main process, and elsewhere it is a stand-in.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from dp2ddp.analyse.api.containers import ASKING_METHODS, TAKES_OUT
from dp2ddp.analyse.api.files import (
    ACTS,
    EXISTENCE,
    MAKES_FOLDERS,
    NO_FILE,
    REMOVES,
    SAVES,
    TRACKED_SETTINGS,
    WRITERS,
)
from dp2ddp.analyse.api.inspection import ASKS, LOOKS_AT_FUNCTIONS
from dp2ddp.analyse.api.iteration import GOES_THROUGH
from dp2ddp.analyse.api.parallel import is_runtime
from dp2ddp.analyse.api.processes import (
    ASKS_USER,
    INPUT,
    POPEN_ANSWERS,
    POPEN_ENDED,
    POPEN_LINES,
    READS_AS_TEXT,
    TELLS,
)
from dp2ddp.analyse.context import Context, is_main_guard, once
from dp2ddp.analyse.processes import folders, paths, scratch
from dp2ddp.analyse.processes.alike import works
from dp2ddp.analyse.processes.downloads import is_fetch, is_inside, made_first, only_missing
from dp2ddp.analyse.processes.folders import in_own_folder, may_exist, with_folders
from dp2ddp.analyse.processes.writes import (
    is_of_tracker,
    is_open,
    is_plain_write,
    is_write_call,
    is_writer,
    leaves_any_file,
)
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.values import Bound, Cls, Ext, Func, Made, Member, full_name
from dp2ddp.facts import NO_TIER, Effect, Obstacle


def happens_once(context: Context, node: ast.AST) -> bool:
    """Whether a call writes, fetches or asks for something that must not be done again by who starts the ranks."""
    call = context.program.call(node) if isinstance(node, ast.Call) else None
    if call is None:
        return False
    opens = is_open(context, call) or is_writer(context, call) or any(map(is_of_tracker, call.names))
    return (
        opens
        or is_write_call(context, node)
        or bool(call.names & {*SAVES, *ASKS_USER, INPUT})
        or is_fetch(context, call)
    )


def _is_written(context: Context, statement: ast.AST) -> bool:
    """A statement that only writes: it can be left out on other ranks, and nothing later misses it."""
    only = isinstance(statement, ast.Expr) and _only_writing(context, statement.value)
    return only and not _does_more(context, statement)


def _only_writing(context: Context, node: ast.expr) -> bool:
    """``os.mkdir(path)``, ``os.path.exists(path) or os.mkdir(path)``, ``[os.mkdir(path) for path in paths]``."""
    match node:
        case ast.Call():
            return is_write_call(context, node)
        case ast.ListComp(elt=element) | ast.SetComp(elt=element):
            asked = [it for part in node.generators for it in (part.iter, *part.ifs)]
            return _only_writing(context, element) and all(_only_asks(context, it) for it in asked)
        case ast.BoolOp(values=[*asked, last]):
            return _only_writing(context, last) and all(_only_asks(context, it) for it in asked)
        case ast.IfExp(test=test, body=body, orelse=ast.Constant()):
            return _only_writing(context, body) and _only_asks(context, test)
    return False


def _tidied(context: Context) -> tuple[set[int], set[int]]:
    """The statements that call functions which go down into folders and write on their way, and all nodes of these.

    ``empty(path)``: what processes find there differs while one of them writes, so the main process goes there alone.
    """
    program = context.program
    statements, inside = set[int](), set[int]()
    for scope in program.scopes:
        if not isinstance(scope.node, ast.FunctionDef) or not _only_tidies(context, scope):
            continue
        own = {id(it) for it in ast.walk(scope.node)}
        outer = [it for it in context.callers.get(scope.index, ()) if id(it) not in own]
        around = [program.parent(it) for it in outer]
        if outer and all(
            isinstance(it, ast.Expr)
            and program.called_scopes(call) == {scope.index}
            and all(_only_asks(context, part) for part in handed(call))
            and (context.runs_in_training(call) or context.may_be_run_by(call))
            for it, call in zip(around, outer, strict=True)
        ):
            statements |= {id(it) for it in around}
            inside |= {id(it) for it in ast.walk(scope.node) if it is not scope.node}
    return statements, inside


def _only_tidies(context: Context, scope: Scope) -> bool:
    """Whether a function calls itself, and else only asks for files, writes some and says so."""
    found = {"calls": False, "writes": False}
    for node in ast.walk(scope.node):
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Continue() | ast.Break():
                fits = True
            case ast.Return(value=value):
                fits = value is None
            case ast.Expr(value=ast.Call() as call):
                itself = context.program.called_scopes(call) == {scope.index}
                writes = not itself and _only_writing(context, call)
                found["calls"] |= itself
                found["writes"] |= writes
                fits = writes or (
                    (itself or _only_tells(context, node))
                    and all(_only_asks(context, it) for it in handed(call))
                )
            case ast.Assign(targets=[ast.Name()], value=value):
                fits = _only_asks(context, value)
            case ast.For(target=ast.Name(), iter=value) | ast.If(test=value):
                fits = _only_asks(context, value)
            case ast.stmt():
                fits = node is scope.node
            case _:
                fits = True
        if not fits:
            return False
    return found["calls"] and found["writes"]


def _does_more(context: Context, statement: ast.stmt) -> bool:
    """Whether a statement that writes works on the model, draws or takes something, too: all ranks must do that."""
    program = context.program
    for key in context.runs(statement):
        node = program.nodes.get(key)
        call = program.call(node) if isinstance(node, ast.Call) else None
        if node is not None and works(context, node):
            return True
        if call is not None and (call.names & {"builtins.next"} or _takes(call.node)):
            return True
    return False


def _takes(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr in TAKES_OUT


def _makes_folders(context: Context, statement: ast.AST, is_own: Callable[[Call], bool]) -> bool:
    """Whether a statement only makes folders, with ``exist_ok=True``: all processes may."""
    calls = [
        context.program.call(it)
        for it in context.program.descendants(statement)
        if is_write_call(context, it)
    ]
    return bool(calls) and all(
        call is not None and call.names <= MAKES_FOLDERS and may_exist(call) and not is_own(call)
        for call in calls
    )


def _raced(context: Context, making: set[int]) -> set[int]:
    """The folders that only the main process may make: it takes away what it finds there, before it makes its own."""
    found: set[int] = set()
    for call in context.program.calls:
        if (
            call.names & REMOVES
            and context.runs_in_training(call.node)
            and _is_only_found(context, call.node)
        ):
            runs = (context.run_by(context.program.nodes[key]) & context.run_by(call.node) for key in making)
            found |= {key for key, shared in zip(making, runs, strict=True) if shared}
    return found


def _is_only_found(context: Context, node: ast.AST) -> bool:
    """Whether a place in a function is only come to where a file or folder is there."""
    tests = (it.test for it in context.program.ancestors(node) if isinstance(it, ast.If))
    calls = (context.program.call(it) for test in tests for it in ast.walk(test) if isinstance(it, ast.Call))
    return any(it is not None and it.names & EXISTENCE for it in calls)


def _made_everywhere(
    context: Context, nodes: list[ast.AST], is_own: Callable[[Call], bool]
) -> tuple[Call, ...]:
    """The calls that make folders into which one process of each machine writes, and may find them there."""
    program = context.program
    calls = (program.call(it) for it in nodes if isinstance(it, ast.Call))
    made = [
        it
        for it in calls
        if it is not None
        and it.names
        and (it.names <= MAKES_FOLDERS or ast.unparse(it.node.func) == "os.mkdir")
        and isinstance(program.parent(it.node), ast.Expr)
        and not any(isinstance(given, ast.Starred) for given in it.node.args)
        and (may_exist(it) or (only_missing(context, it.node) and not it.argument("exist_ok", 2)))
        and not is_own(it)
        and not in_own_folder(context, it)
    ]
    needed = _filled_first(context) if made else frozenset()
    among = _made_by_all(context, nodes, is_own) if made else frozenset()
    return tuple(
        it for it in made if (needed if may_exist(it) else needed | among) & _made_folders(context, it)
    )


def _made_by_all(context: Context, nodes: list[ast.AST], is_own: Callable[[Call], bool]) -> frozenset[str]:
    """The folders in which all processes make others, as they are spelled: any of them may make these, too."""
    made = {
        id(statement): [
            it
            for call in ast.walk(statement)
            if (it := context.program.call(call)) is not None and it.names <= MAKES_FOLDERS
        ]
        for statement in nodes
        if isinstance(statement, ast.Expr) and _makes_folders(context, statement, is_own)
    }
    raced = _raced(context, {*made})
    given = (
        path for key, calls in made.items() if key not in raced for it in calls for path in paths.given(it)
    )
    return frozenset().union(*(folders.around(context, it) for it in given))


def _filled_first(context: Context) -> frozenset[str]:
    """The paths that one process of each machine fetches or writes first, and their folders, as they are spelled."""
    calls = (it for it in context.program.calls if context.runs_in_training(it.node))
    first = (it for it in calls if is_fetch(context, it, weights=False))
    found = (with_folders(context, given) for it in first for given in handed(it.node))
    return frozenset().union(*found)


def _made_folders(context: Context, call: Call) -> frozenset[str]:
    """The folders that a call makes, as they are spelled."""
    definitions = context.program.definitions
    made = [
        it for path in paths.given(call) for it in paths.taken_apart(context, definitions(path)) or [path]
    ]
    texts = (repr(it.value.rstrip("/")) for it in made if isinstance(it, ast.Constant) and it.value != "/")
    return frozenset(texts).union(*(paths.spelled(context, it) for it in made))


def _folder(context: Context, call: Call) -> Effect:
    """A folder that each machine needs, to be made by all that do not find it."""
    place = context.program.anchor
    given = tuple((f"{it.arg}=" if it.arg else "**", place(it.value)) for it in call.node.keywords)
    placed = tuple(("", place(it)) for it in call.node.args)
    what = f"{ast.unparse(call.node.func)}()"
    func = call.node.func
    owner = place(func.value) if isinstance(func, ast.Attribute) and what == "os.mkdir()" else place(func)
    return _effect(context, "folder", call.node, what, operand=owner, arguments=(*placed, *given))


def collect(
    context: Context,
    meetings: frozenset[int] = frozenset(),
    is_own: Callable[[Call], bool] = lambda _: False,
) -> tuple[Effect, ...]:
    """Everything in programs that train with DataParallel which one process must do alone.

    ``meetings``: statements in which all processes meet: what stands round them is for all.
    ``is_own``: whether the path that a call makes is one that each process gives a name of its own: by the clock, by
    what is there.
    """
    program = context.program
    nodes = [
        node
        for node in program.nodes.values()
        if (context.runs_in_training(node) or context.may_be_run_by(node))
        and not is_inside(context, node, context.downloaders)
    ]
    first = made_first(context)
    nodes = [it for it in nodes if not first.holds(it)]
    tidying, inner_calls = _tidied(context)
    nodes = [it for it in nodes if id(it) not in inner_calls]
    guarded = {id(node) for node in nodes if id(node) in tidying or _is_written(context, node)}
    guarded = {key for key in guarded if not already(context, program.nodes[key])}
    guarded |= {
        id(part)
        for key in guarded
        for part in scratch.prepared(context, program.nodes[key], lambda it: _does_more(context, it))
    }
    everywhere = _made_everywhere(context, nodes, is_own)
    guarded -= {id(program.statement(it.node)) for it in everywhere}
    guarded |= _around(context, guarded, meetings)
    inner = {
        key
        for key in guarded
        if any(id(around) in guarded for around in program.ancestors(program.nodes[key]))
    }
    spared = {key for key in guarded - inner if _makes_folders(context, program.nodes[key], is_own)}
    spared -= _raced(context, spared)
    found: list[Effect] = []
    found += _tests(context, guarded - inner, meetings, spared)
    found += _groups(context, guarded - inner, meetings, spared)
    guards = list(found)
    found += [_folder(context, it) for it in everywhere if not may_exist(it)]
    made = {id(it.node) for it in everywhere}
    for node in nodes:
        match node:
            case ast.Call() if id(node) not in made:
                found += _calls(context, node, guarded, guards)
                found += _handed(context, node)
            case ast.Import() | ast.ImportFrom():
                found += _trackers(context, node)
            case ast.ClassDef():
                found += _derived(context, node)
        found += _outputs(context, node, guards)
    return tuple(sorted(found, key=lambda effect: (effect.path, effect.at.span, effect.kind)))


def _around(context: Context, guarded: set[int], meetings: frozenset[int]) -> set[int]:
    """Loops and choices of which nothing is left without the calls that write: one guard for all of it."""
    program = context.program
    found: set[int] = set()
    for key in sorted(guarded, key=lambda key: program.order[key], reverse=True):
        node = program.parent(program.nodes[key])
        while id(node) not in found:
            inside = (guarded | found) - meetings
            if not _tries_to_write(context, node, inside):
                if not _only_writes(context, node, inside):
                    break
                found.add(id(node))
            node = program.parent(node)
    return found


def _tries_to_write(context: Context, node: ast.AST | None, guarded: set[int]) -> bool:
    """``try: os.remove(path)`` with nothing done about an error: part of a loop that only writes."""
    if not isinstance(node, ast.Try) or node.orelse or node.finalbody:
        return False
    handled = [it for handler in node.handlers for it in handler.body]
    return all(id(it) in guarded for it in node.body) and all(
        isinstance(it, ast.Pass | ast.Continue) or _only_tells(context, it) for it in handled
    )


def _only_writes(context: Context, node: ast.AST | None, guarded: set[int]) -> bool:
    match node:
        case ast.For(iter=header):
            if _is_needed(context, node):
                return False
        case ast.If(test=header, orelse=[_, *_]):
            pass
        case _:
            return False
    parts = [*node.body, *node.orelse]
    return _only_asks(context, header) and all(
        (id(part) in guarded and isinstance(part, ast.Expr | ast.For | ast.If))
        or _tries_to_write(context, part, guarded)
        for part in parts
    )


def _is_needed(context: Context, loop: ast.For) -> bool:
    """Whether what a loop binds is used outside it, or is no plain name."""
    program = context.program
    inside = {id(node) for node in ast.walk(loop)}
    bound = [node for node in ast.walk(loop.target) if isinstance(node, ast.Name)]
    return any(isinstance(node, ast.Attribute | ast.Subscript) for node in ast.walk(loop.target)) or any(
        definition in bound
        for node in ast.walk(program.scope(loop).node)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in inside
        for definition in program.definitions(node)
    )


def already(context: Context, statement: ast.AST) -> bool:
    """Whether a statement stands under ``if ddp.is_main_process()`` already."""
    for around in context.program.ancestors(statement):
        if isinstance(around, ast.If) and any(
            isinstance(node, ast.Call)
            and (call := context.program.call(node)) is not None
            and "dp2ddp.runtime.is_main_process" in call.names
            for node in ast.walk(around.test)
        ):
            return True
    return False


def _effect(context: Context, kind: str, node: ast.AST, what: str, **more: object) -> Effect:
    scripts = context.run_by(node) or context.may_be_run_by(node)
    return Effect(**{**context.place(node), "scripts": scripts}, kind=kind, what=what, **more)


def _what(context: Context, statement: ast.AST) -> str:
    for node in ast.walk(statement):
        if isinstance(node, ast.Call):
            return f"{ast.unparse(node.func)}()"
    return "this"


def _tests(
    context: Context, guarded: set[int], meetings: frozenset[int], spared: set[int]
) -> Iterator[Effect]:
    """Conditions whose whole body only writes: the guard joins the condition. None for what is ``spared`` alone."""
    program = context.program
    seen: set[int] = set()
    for key in sorted(guarded, key=lambda key: program.order[key]):
        parent = program.parent(program.nodes[key])
        if (
            not isinstance(parent, ast.If)
            or id(parent) in seen
            or not _whole(context, parent, guarded - meetings)
        ):
            continue
        seen.add(id(parent))
        if {id(it) for it in parent.body} <= spared:
            continue
        last = program.anchor(parent.body[-1])
        what = _what(context, parent.body[0])
        yield _effect(context, "test", parent.test, what, last=last, line=parent.body[0].lineno)


def _only_asks(context: Context, test: ast.expr) -> bool:
    """Whether a condition changes nothing: the main process alone may evaluate it."""
    for node in ast.walk(test):
        if isinstance(node, ast.NamedExpr | ast.Await | ast.Yield):
            return False
        if isinstance(node, ast.Call):
            call = context.program.call(node)
            names = call.names if call is not None else set()
            asks = isinstance(node.func, ast.Attribute) and node.func.attr in ASKING_METHODS
            own = call is not None and any(isinstance(it, Func | Bound | Cls) for it in call.callees)
            if own or not (asks or (names and all(name.startswith(ASKS) for name in names))):
                return False
    return True


def _whole(context: Context, node: ast.AST | None, guarded: set[int]) -> bool:
    return (
        isinstance(node, ast.If)
        and not node.orelse
        and not is_main_guard(node.test)
        and _only_asks(context, node.test)
        and all(id(statement) in guarded for statement in node.body)
    )


def _groups(
    context: Context, guarded: set[int], meetings: frozenset[int], spared: set[int]
) -> Iterator[Effect]:
    """Neighbouring statements that only write: one guard for all of them. None for what is ``spared`` alone."""
    program = context.program
    seen: set[int] = set()
    for key in sorted(guarded, key=lambda key: program.order[key]):
        statement = program.nodes[key]
        if key in seen or _whole(context, program.parent(statement), guarded - meetings):
            continue
        block = program.block(statement)  # type: ignore[arg-type]
        index = block.index(statement)  # type: ignore[arg-type]
        last = index
        while last + 1 < len(block) and id(block[last + 1]) in guarded:
            last += 1
        group = {id(part) for part in block[index : last + 1]}
        seen |= group
        if group <= spared:
            continue
        yield _effect(
            context,
            "guard",
            statement,
            _what(context, statement),
            last=program.anchor(block[last]),
        )


def _calls(context: Context, node: ast.Call, guarded: set[int], guards: list[Effect]) -> Iterator[Effect]:
    """What a call does that one process must do alone, where no guard stands round it."""
    program = context.program
    call = program.call(node)
    if call is None:
        return
    if "torch.save" in call.names and not in_own_folder(context, call):
        yield _effect(context, "save", node.func, "torch.save()")
        return
    inside = id(program.statement(node)) in guarded
    if inside or any(id(around) in guarded for around in program.ancestors(node)) or already(context, node):
        return
    what = f"{ast.unparse(node.func)}()"
    if INPUT in call.names:
        yield _effect(context, "input", node.func, what)
    elif is_open(context, call):
        yield _open(context, call, what)
    elif is_writer(context, call):
        if not _asked_at_once(context, node, guards):
            yield _effect(context, "writer", node.func, what)
    elif _answers(context, call) and _all_come(context, node, guards):
        yield _effect(context, "answer", _whole_answer(context, node), what)
    elif is_write_call(context, node):
        yield _effect(context, "writer", node.func, what)


def _answers(context: Context, call: Call) -> bool:
    """Whether a call asks the user, acts on files or starts a program, and what comes out of it is used."""
    if call.names & ASKS_USER:
        return True
    alone = isinstance(context.program.parent(call.node), ast.Expr)
    acts = any(name.startswith(ACTS) for name in call.names)
    return not alone and acts and (bool(call.names & POPEN_ANSWERS) or is_write_call(context, call.node))


def _asked_at_once(context: Context, node: ast.Call, guards: list[Effect]) -> bool:
    """Whether ``Popen(…)`` is part of ``Popen(…).communicate()``, and so all of it is the main process's."""
    inner, around = node, context.program.parent(node)
    while isinstance(around, ast.Attribute):
        inner, around = around, context.program.parent(around)
    call = context.program.call(around) if isinstance(around, ast.Call) and around.func is inner else None
    return call is not None and _answers(context, call) and _all_come(context, call.node, guards)


def _outputs(context: Context, node: ast.AST, guards: list[Effect]) -> Iterator[Effect]:
    """What a program that runs beside this one writes, ``for line in pipe.stdout``, and how it has ended."""
    program = context.program
    around = program.parent(node)
    asked: ast.AST | None = None
    if isinstance(node, ast.Attribute) and node.attr == "returncode" and isinstance(node.ctx, ast.Load):
        names = {full_name(it) for it in program.values(node)}
        asked = node if names == {POPEN_ENDED} and not isinstance(around, ast.Expr) else None
    elif _is_output(context, node):
        match around:
            case ast.For(iter=it, body=body) if it is node:
                asked = None if all(_only_tells(context, part) for part in body) else node
            case ast.comprehension(iter=it) if it is node:
                asked = node
            case ast.Call() if node in around.args and not _is_output(context, around):
                call = program.call(around)
                takes = call is not None and bool(call.names) and call.names <= GOES_THROUGH
                known = call is not None and call.names and all(isinstance(it, Ext) for it in call.callees)
                used = known and not isinstance(program.parent(around), ast.Expr)
                asked = node if takes else around if used else None
    if asked is not None and not _calls_own(context, asked) and _all_come(context, asked, guards):
        yield _effect(context, "answer", asked, ast.unparse(node))


def _calls_own(context: Context, node: ast.AST) -> bool:
    """Whether an expression calls the project's own code, in which ranks may meet."""
    calls = [context.program.call(it) for it in ast.walk(node) if isinstance(it, ast.Call)]
    return any(isinstance(it, Func | Bound | Cls) for call in calls if call for it in call.callees)


def _is_output(context: Context, node: ast.AST | None) -> bool:
    """``pipe.stdout`` of a program that was started; as text, or line by line."""
    match node:
        case ast.Name(ctx=ast.Load()) | ast.Attribute(attr="stdout" | "stderr", ctx=ast.Load()):
            names = {full_name(it) for it in context.program.values(node)}
            return bool(names) and names <= POPEN_LINES
        case ast.Call(func=ast.Name(id="iter"), args=[ast.Attribute(attr="readline", value=source), _]):
            return _is_output(context, source)
        case ast.Call(args=[source, *_]):
            call = context.program.call(node)
            return call is not None and call.names == {READS_AS_TEXT} and _is_output(context, source)
    return False


def _only_tells(context: Context, statement: ast.stmt) -> bool:
    """Whether a statement prints something and does no more: the main process's lines are the ones that are heard."""
    call = context.program.call(statement.value) if isinstance(statement, ast.Expr) else None  # type: ignore[arg-type]
    return (
        call is not None
        and bool(call.names)
        and all(name.startswith((*TELLS, "sys.stdout.")) for name in call.names)
    )


def _whole_answer(context: Context, node: ast.expr) -> ast.expr:
    """``os.path.exists(path) or os.system(command) == 0`` for the call in it: the main process answers all of it."""
    around = context.program.parent(node)
    if isinstance(around, ast.BoolOp | ast.Compare | ast.UnaryOp):
        others = [it for it in ast.iter_child_nodes(around) if isinstance(it, ast.expr) and it is not node]
        if all(_only_asks(context, it) for it in others):
            return _whole_answer(context, around)
    return node


def _all_come(context: Context, node: ast.AST, guards: list[Effect]) -> bool:
    """Whether every rank evaluates an expression, and none goes on past an error in it."""
    around = [it for it in context.program.ancestors(node) if isinstance(it, ast.Try) and it.handlers]
    return not around and context.runs_in_training(node) and all_pass(context, node, guards)


def all_pass(
    context: Context,
    node: ast.AST,
    guards: list[Effect],
    handled: bool = False,
    seen: set[int] | None = None,
) -> bool:
    """Whether every process comes to a place if one does: nothing round it, or round its calls, is for one alone.

    ``handled``: exceptions that are not about files are taken to come in all. ``seen``: functions that were asked of.
    """
    program, seen = context.program, set() if seen is None else seen
    if any(guard.covers(program.anchor(node)) for guard in guards) or already(context, node):
        return False
    for around in program.ancestors(node):
        if isinstance(around, ast.Lambda) or (
            isinstance(around, ast.ExceptHandler) and not (handled and _is_alike(context, around))
        ):
            return False
    scope = program.scope(node).index
    if scope in seen:
        return True
    seen.add(scope)
    calls = [it for it in context.callers.get(scope, ()) if context.runs_in_training(it)]
    return all(all_pass(context, call, guards, handled, seen) for call in calls)


def _is_alike(context: Context, handler: ast.ExceptHandler) -> bool:
    """Whether an exception comes in all processes if in one: of work that writes files, and not of one not there."""
    tried = context.program.parent(handler)
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    if any(it is not None and ast.unparse(it) in NO_FILE for it in kinds) or not isinstance(tried, ast.Try):
        return False
    runs = set().union(*(context.runs(it) for it in tried.body))
    return any(id(it.node) in runs and leaves_any_file(context, it) for it in context.program.calls)


def _handed(context: Context, node: ast.Call) -> Iterator[Effect]:
    """Functions that write and are called by what they are given to: ``map(os.mkdir, folders)``."""
    call = context.program.call(node)
    if call is None or not any(isinstance(it, Ext | Made | Member) for it in call.callees):
        return
    if call.names & LOOKS_AT_FUNCTIONS or is_runtime(call.names):
        return
    for given in handed(node):
        names = {value.name for value in context.program.values(given) if isinstance(value, Ext)}
        if "torch.save" in names:
            yield _effect(context, "save", given, "torch.save()")
        elif names and all(is_plain_write(name) or name in WRITERS for name in names):
            yield _effect(context, "writer", given, f"{ast.unparse(given)}()")


def _derived(context: Context, node: ast.ClassDef) -> Iterator[Effect]:
    """Classes that derive from what makes writers: what they inherit does nothing on the other ranks."""
    for base in node.bases:
        if any(isinstance(value, Ext) and value.name in WRITERS for value in context.program.values(base)):
            yield _effect(context, "writer", base, ast.unparse(base))


def _open(context: Context, call: Call, what: str) -> Effect:
    """Python's ``open``, or a path's."""
    owner = None
    if "pathlib.Path.open" in call.names and isinstance(call.node.func, ast.Attribute):
        owner = context.program.anchor(call.node.func.value)
    given = tuple(
        (f"{keyword.arg}=" if keyword.arg else "**", context.program.anchor(keyword.value))
        for keyword in call.node.keywords
    )
    placed = tuple(
        ("*" if isinstance(it, ast.Starred) else "", context.program.anchor(it)) for it in call.node.args
    )
    if owner is None:
        return _effect(context, "open", call.node.func, what)
    return _effect(context, "open", call.node, what, operand=owner, arguments=(*placed, *given))


def _trackers(context: Context, statement: ast.Import | ast.ImportFrom) -> Iterator[Effect]:
    """Modules that are trackers, and what is imported from them: one line after the import."""
    program = context.program
    for alias in statement.names:
        if isinstance(statement, ast.Import) and "." in alias.name and not alias.asname:
            continue  # binds the package, which another import does, too
        name = alias.asname or alias.name
        values = frozenset().union(*(program.values(it) for it in _uses(context, statement, name)))
        if not _stands_in(context, statement, name) and any(
            isinstance(it, Ext) and is_of_tracker(f"{it.name}.") for it in values
        ):
            last = program.anchor(_last_import(context, statement))
            yield _effect(context, "tracker", statement, name, last=last)


def _stands_in(context: Context, statement: ast.stmt, name: str) -> bool:
    """Whether a name is made ``ddp.on_main_process(name)`` after its import already."""
    text = f"on_main_process({name})"
    return any(
        isinstance(it, ast.Assign) and text in ast.unparse(it) for it in context.program.block(statement)
    )


def _uses(context: Context, statement: ast.stmt, name: str) -> list[ast.Name]:
    """Where a file reads a name that it imports."""
    return _reads(context, context.program.file(statement).tree).get(name, [])


@once
def _reads(context: Context, tree: ast.Module) -> dict[str, list[ast.Name]]:
    """Where a file reads each of its names: looked for once, as a file may import many."""
    found: dict[str, list[ast.Name]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.setdefault(node.id, []).append(node)
    return found


def _last_import(context: Context, statement: ast.stmt) -> ast.stmt:
    """The last of the imports that follow one another."""
    block = context.program.block(statement)
    last = statement
    for following in block[block.index(statement) + 1 :]:
        if not isinstance(following, ast.Import | ast.ImportFrom):
            break
        last = following
    return last


def obstacles(context: Context) -> Iterator[Obstacle]:
    """What a tracker would train, and what comes out of one and may be trained by: only the main process has it."""
    program = context.program
    yield from _swept(context)
    for node in program.nodes.values():
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
            continue
        used = isinstance(program.parent(node), ast.Attribute | ast.Subscript | ast.Assign | ast.keyword)
        called = isinstance(program.parent(program.parent(node) or node), ast.Call)
        if used and not called and context.runs_in_training(node) and not already(context, node):
            if any(
                isinstance(value, Ext) and value.name in TRACKED_SETTINGS for value in program.values(node)
            ):
                yield context.obstacle(
                    node,
                    f"`{ast.unparse(node)}` exists on rank 0 only",
                    "if other ranks need it, use `ddp.from_main_process(…)`; else no action needed",
                    NO_TIER,
                )


def _swept(context: Context) -> Iterator[Obstacle]:
    """``wandb.agent(sweep, function=main)``."""
    for call in context.program.calls:
        if any(map(is_of_tracker, call.names)) and context.runs_one_of(call.node, context.trained_wraps):
            yield context.obstacle(
                call.node,
                f"{ast.unparse(call.node.func)}() would run the training on rank 0 only",
                "start each sweep run as a separate program: `wandb agent …` on the command line",
            )


def covered(context: Context, node: ast.AST, guards: list[Effect]) -> bool:
    return any(guard.covers(context.program.anchor(node)) for guard in guards)
