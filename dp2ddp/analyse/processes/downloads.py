"""What is fetched, unpacked or made where it is missing: one process of each machine does it first."""

from __future__ import annotations

import ast
from collections.abc import Container
from dataclasses import dataclass, replace

from dp2ddp.analyse.api.containers import CHANGES
from dp2ddp.analyse.api.downloads import (
    BUILDS,
    DATA_SET_BASES,
    DOWNLOADING_LIBRARIES,
    DOWNLOADS_ANEW,
    FETCHES,
    FILE_FETCHES,
    HUB_FETCHES,
    MODEL_LIBRARIES,
    PREPARED_SET_BASES,
    PREPARED_SETS,
    PRETRAINED,
    UNPACKS,
)
from dp2ddp.analyse.api.files import ASKS_FILES, LOADS, LOGS, MAKES_FOLDERS, SAVES
from dp2ddp.analyse.context import LOOPS, Context, once
from dp2ddp.analyse.processes import paths
from dp2ddp.analyse.processes.conditions import assigned
from dp2ddp.analyse.processes.folders import in_own_folder, with_folders
from dp2ddp.analyse.processes.writes import (
    is_open,
    is_write_call,
    is_writer,
    leaves_any_file,
    leaves_picture,
    only_appends,
)
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.values import Bound, Cls, Ext, Func, Inst, full_name
from dp2ddp.facts import Fetch


def fetches(context: Context, node: ast.AST) -> list[str]:
    """What an expression or statement fetches or caches, by the names of the calls."""
    found = []
    for inner in context.program.descendants(node):
        call = context.program.call(inner) if isinstance(inner, ast.Call) else None
        if call is not None and is_fetch(context, call, weights=False):
            found.append(f"{ast.unparse(call.node.func)}()")
    return found


@once
def is_fetch(context: Context, call: Call, weights: bool = True) -> bool:
    """Whether a call fetches or caches something.

    ``weights``: those that torch.hub keeps count, too, though the runtime has one process of a machine download them.
    """
    names = {callee.name for callee in call.callees if isinstance(callee, Ext)}
    if not weights:
        names = {it for it in names - HUB_FETCHES if not it.startswith(MODEL_LIBRARIES)}
    if names & FETCHES or _loads_pretrained(call) or is_build(context, call):
        return True
    if call.names & UNPACKS and not in_own_folder(context, call) and only_missing(context, call.node):
        return True
    if _prepares(context, call):
        return True
    bases = {
        full_name(base)
        for callee in call.callees
        if isinstance(callee, Cls)
        for base in context.program.bases(callee)
    }
    if bases & PREPARED_SET_BASES or any(it.startswith(PREPARED_SETS) for it in names | bases):
        return True
    derived = {it for it in bases if it.startswith(DOWNLOADING_LIBRARIES)}
    derived |= {  # `super().__init__(…)` in a class that derives from one of them
        name.removesuffix(".__init__") for name in call.names if name.endswith(".__init__")
    }
    given = {keyword.arg for keyword in call.node.keywords if not is_off(keyword.value)}
    own = any(isinstance(it, Func | Bound | Cls | Inst) for it in call.callees)
    if "download" in given and not own:  # also of a class that is looked up: `datasets.__dict__[name](…)`
        return True
    for name in names | derived:
        if name.startswith(DOWNLOADING_LIBRARIES) and given & {"download", *PRETRAINED}:
            return True
        if name.startswith("torchvision.datasets.") and _positional_download(call):
            return True
        if name.startswith("torchvision.models.") and call.node.args and not is_off(call.node.args[0]):
            return True
    if any(isinstance(callee, Func) and callee.scope in context.downloaders for callee in call.callees):
        return True
    if _makes_unseen(context, call):
        return True
    return any(_caches(context, it, call) for it in _made(context, call))


def _loads_pretrained(call: Call) -> bool:
    """``Net.from_pretrained(…)``: the class is from outside, or a base of one that does not say itself what this is.

    A class of which nothing is known is from outside, too.
    """
    if any(it.endswith(".from_pretrained") and not it.startswith("torch.") for it in call.names):
        return True
    func = call.node.func
    return not call.callees and isinstance(func, ast.Attribute) and func.attr == "from_pretrained"


def _made(context: Context, call: Call) -> list[Cls]:
    """The classes that a call makes objects of: itself, or as the text that it evaluates says."""
    evaluated = context.program.values(call.node) if "builtins.eval" in call.names else ()
    return [it for it in call.callees if isinstance(it, Cls)] + [
        it.cls for it in evaluated if isinstance(it, Inst)
    ]


def is_build(context: Context, call: Call) -> bool:
    """Whether a call builds an extension where all processes come by: in a module, or a function that one calls.

    What a model builds when it is first used, torch keeps apart: not every process may use it.
    """
    return bool(call.names & BUILDS) and _runs_at_top(context, call.node)


def _runs_at_top(context: Context, node: ast.AST, depth: int = 0) -> bool:
    """Whether a place is in a module, or in a function that is no method, by whatever calls of modules."""
    scope = context.program.scope(node)
    if scope.is_module:
        return not any(isinstance(it, ast.ClassDef) for it in context.program.ancestors(node))
    around = context.program.parent(scope.node)
    calls = trained_callers(context, node)
    return (
        isinstance(scope.node, ast.FunctionDef)
        and isinstance(around, ast.Module | ast.If | ast.Try)
        and depth < 6
        and bool(calls)
        and all(_runs_at_top(context, it, depth + 1) for it in calls)
    )


def _prepares(context: Context, call: Call) -> bool:
    """Whether a call writes a file only where it, or its folder, is not there, and in no loop that trains."""
    leaves = leaves_any_file(context, call) or leaves_picture(context, call)
    written = paths.given(call) or [call.node.func] if leaves else []
    questions = _questions(context, call.node) if written and context.runs_in_training(call.node) else []
    if not questions or _is_continued(context, call):
        return False
    if any(_trains_where_missing(context, it) for it in questions):
        return False  # `if not os.path.exists(checkpoint): train()`
    if any(_reads_instead(context, it) for it in questions):
        return False  # all make it or none: who reads it draws no random numbers
    if any(keeps_in_memory(context, it) for it in questions):
        return False  # who finds the file would be without it
    return all(
        _is_handed_on(context, question)
        or any(
            _is_made(context, it, by)
            for it in _asked(context, question)
            for by in (*written, *_folders_made(context, question))
        )
        for question in questions
    )


@once
def _is_handed_on(context: Context, question: ast.expr) -> bool:
    """``if not os.path.exists(path): build(path / "train")``: a function that makes it is given what is asked for.

    It need not be given a path of which nothing is known, as of an option: the function is there to make that file.
    """
    statement = context.program.statement(question)
    paths_asked = _asked(context, question)
    asked = {ast.unparse(it) for it in paths_asked}
    calls = [
        it for part in getattr(statement, "body", ()) for it in ast.walk(part) if isinstance(it, ast.Call)
    ]
    making = [it for it in calls if context.program.called_scopes(it)]
    if making and any(paths.file(context, [it]).endings is None for it in paths_asked):
        return True
    return any(
        ast.unparse(inner) in asked
        for it in making
        for given in handed(it)
        for inner in ast.walk(given)
        if isinstance(inner, ast.expr)
    )


def _makes_unseen(context: Context, call: Call) -> bool:
    """Whether a function of the project is given a path that is not there, and no call in it is known to write.

    It is there to make the file all the same: by a package that nothing is known of, or another program.
    """
    question = _missing(context, call.node) if context.program.called_scopes(call.node) else None
    if question is None or not context.runs_in_training(call.node):
        return False
    asked = {ast.unparse(it) for it in _asked(context, question)}
    if not asked & {ast.unparse(it) for it in handed(call.node)} or _is_repeated(context, question):
        return False
    if _trains_where_missing(context, question) or _reads_instead(context, question):
        return False
    runs = context.runs(call.node) - {id(call.node)}
    return not any(id(it.node) in runs and leaves_any_file(context, it) for it in context.program.calls)


@once
def _folders_made(context: Context, question: ast.expr) -> list[ast.expr]:
    """The folders that are made where something is asked: the files written beside may lie in others."""
    runs = context.runs(context.program.statement(question))
    calls = (it for it in context.program.calls if it.names & MAKES_FOLDERS and id(it.node) in runs)
    return [path for call in calls for path in paths.given(call)]


def _is_made(context: Context, path: ast.expr, written: ast.expr) -> bool:
    """Whether a path is that of a written file, or one of the folders that it is in; or of a file beside it."""
    folders = with_folders(context, written)
    beside = paths.may_be_same(*(paths.file(context, [it]) for it in (path, written)))
    return bool(folders & paths.spelled(context, path) or (beside and folders & with_folders(context, path)))


@once
def keeps_in_memory(context: Context, question: ast.expr) -> bool:
    """Whether what is done where a file is missing leaves something in memory that the program goes on with."""
    program = context.program
    around = program.parent(question)
    while isinstance(around, ast.expr):
        around = program.parent(around)
    if not isinstance(around, ast.If):
        return False
    body = [it for part in around.body for it in program.descendants(part)]
    inside = set(map(id, body))
    stored = [it for it in body if isinstance(it, ast.Name | ast.Attribute) and isinstance(it.ctx, ast.Store)]
    if any(isinstance(it, ast.Attribute) for it in stored):
        return True
    names = {id(it) for it in stored}
    for use in program.body(program.scope(around)):
        if isinstance(use, ast.Name) and id(use) not in inside and isinstance(use.ctx, ast.Load):
            if any(id(it) in names for it in program.definitions(use)):
                return True
    return any(_changes_given(context, it) for it in body if isinstance(it, ast.Call))


def _changes_given(context: Context, node: ast.Call) -> bool:
    """Whether a function of the project changes what it is given, or a variable of its module."""
    program = context.program
    for index in context.program.called_scopes(node):
        scope = program.scopes[index]
        given = {it.arg for it in scope.signature.every}
        for part in program.body(scope):
            match part:
                case ast.Global():
                    return True
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if name in given:
                    if method in CHANGES:
                        return True
                case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()) if name in given:
                    return True
    return False


def _reads_instead(context: Context, question: ast.expr) -> bool:
    """Whether a file is read in one branch of a question, and none in the other."""
    around = context.program.parent(question)
    if not isinstance(around, ast.If) or not around.orelse:
        return False
    reading = {id(it.node) for it in context.program.calls if it.names & LOADS}
    branches = (set().union(*(context.runs(it) for it in part)) for part in (around.body, around.orelse))
    return len({bool(branch & reading) for branch in branches}) == 2


def _is_continued(context: Context, call: Call) -> bool:
    """Whether the file that a call writes is added to elsewhere, or is here: a log, which the main process keeps."""
    appending = [it for it in context.program.calls if only_appends(it) and context.runs_in_training(it.node)]
    file = paths.written(context, call)
    return any(paths.are_same(file, paths.written(context, it)) for it in appending)


def _questions(context: Context, node: ast.AST, depth: int = 0) -> list[ast.expr]:
    """What is asked of files before a place is come to, by every call; empty where that is done repeatedly, or not."""
    if depth > 6:
        return []
    if (question := _missing(context, node)) is not None:
        return [] if _is_repeated(context, question) else [question]
    by_call = [_questions(context, it, depth + 1) for it in trained_callers(context, node)]
    return [it for some in by_call for it in some] if all(by_call) else []


def _is_repeated(context: Context, node: ast.AST, depth: int = 0) -> bool:
    """Whether a place is come to in a loop that trains, here or in what calls its function."""
    for around in context.program.ancestors(node):
        if isinstance(around, ast.For | ast.AsyncFor | ast.While) and _trains(context, around):
            return True
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
            break
    calls = trained_callers(context, node) if depth < 6 else []
    return any(_is_repeated(context, it, depth + 1) for it in calls)


def _asked(context: Context, question: ast.expr) -> list[ast.expr]:
    """The paths that a question asks for."""
    calls = (context.program.call(it) for it in ast.walk(question) if isinstance(it, ast.Call))
    files = (it for it in calls if it is not None and any(name.startswith(ASKS_FILES) for name in it.names))
    return [it for call in files for it in paths.given(call)]


def is_off(node: ast.expr) -> bool:
    """A literal that asks for nothing: False, None, 0."""
    return isinstance(node, ast.Constant) and not node.value


def _positional_download(call: Call) -> bool:
    """MNIST(root, train, transform, target_transform, download), and the data sets like it."""
    return len(call.node.args) > 4 and not is_off(call.node.args[4])


@once
def _caches(context: Context, cls: Cls, call: Call) -> bool:
    """A class of the project whose ``__init__`` fetches or unpacks files, or a data set whose one writes some."""
    program = context.program
    made = Inst(cls, id(call.node))
    if context.module_class(made) or context.runs_one_of(call.node, context.trained_wraps):
        return False
    data = any(program.derives(made, base) for base in DATA_SET_BASES)
    for index in program.entered(call.node):
        for part in program.scopes[index].body:
            for node in program.descendants(part):
                inner = program.call(node) if isinstance(node, ast.Call) else None
                if inner is None:
                    continue
                if inner.names & (FILE_FETCHES | UNPACKS):
                    return True
                opens = is_open(context, inner) or is_writer(context, inner)
                if data and (inner.names & SAVES or opens or is_write_call(context, node)):
                    if not any(name.startswith(LOGS) for name in inner.names):
                        return True
    return False


@dataclass(frozen=True)
class _First:
    """What only runs in ``main_process_first()``: parts of the program, by their identities, and functions."""

    context: Context
    parts: frozenset[int]
    scopes: frozenset[int]

    def covers(self, node: ast.AST) -> bool:
        around = (node, *self.context.program.ancestors(node))
        return self.context.program.scope(node).index in self.scopes or any(
            id(it) in self.parts for it in around
        )

    def holds(self, node: ast.AST) -> bool:
        """Whether a node runs there, and only where files are not there yet: one process of each machine does it."""
        return self.covers(node) and only_missing(self.context, node)


@once
def made_first(context: Context) -> _First:
    """What one process of each machine does first: the statements that fetch, with all that only they run."""
    program = context.program
    cached = caching(context)
    parts: set[int] = set()
    for call in program.calls:
        if context.runs_in_training(call.node) and is_fetch(context, call, weights=False):
            if not is_inside(context, call.node, cached):
                parts |= {id(it) for it in _whole_questions(context, program.statement(call.node))}
    found = _First(context, frozenset(parts), frozenset())
    while parts:
        scopes = {
            scope
            for scope, calls in context.callers.items()
            if (trained := [it for it in calls if context.runs_in_training(it)])
            and all(found.covers(it) for it in trained)
        }
        if scopes <= found.scopes:
            break
        found = replace(found, scopes=found.scopes | scopes)
    return found


def only_missing(context: Context, node: ast.AST, depth: int = 0) -> bool:
    """Whether a place is only come to where files that are asked for are not there, by whatever call."""
    if depth > 6:
        return False
    calls = trained_callers(context, node)
    by_calls = bool(calls) and all(only_missing(context, it, depth + 1) for it in calls)
    return _is_missing(context, node) or by_calls


def trained_callers(context: Context, node: ast.AST) -> list[ast.Call]:
    """The calls of the function that a node stands in, in programs that train."""
    calls = context.callers.get(context.program.scope(node).index, ())
    return [it for it in calls if context.runs_in_training(it)]


def _is_missing(context: Context, node: ast.AST) -> bool:
    """Whether a place in a function is only come to where something that is asked of the files is not so."""
    return _missing(context, node) is not None


def _missing(context: Context, node: ast.AST) -> ast.expr | None:
    """What is asked of the files, and is not so where a place in a function is come to."""
    program, inside = context.program, node
    for around in program.ancestors(node):
        if isinstance(around, ast.If) and inside is not around.test:
            if _is_denied(around.test) == (inside in around.body) and asks_files(context, around.test):
                return around.test
        if isinstance(inside, ast.stmt):
            block = program.block(inside)
            before = (it for it in block[: block.index(inside)] if isinstance(it, ast.If))
            leaving = (it.test for it in before if isinstance(it.body[-1], ast.Return))
            there = (it for it in leaving if not _is_denied(it) and asks_files(context, it))
            if (test := next(there, None)) is not None:
                return test
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
            break
        inside = around
    return None


def _is_denied(test: ast.expr) -> bool:
    """Whether a condition is that something is not so: ``not x``, ``x is False``, ``x == False``."""
    match test:
        case ast.UnaryOp(op=ast.Not()):
            return True
        case ast.Compare(ops=[ast.Is() | ast.Eq()], comparators=[ast.Constant(value=False)]):
            return True
        case ast.Compare(ops=[ast.IsNot() | ast.NotEq()], comparators=[ast.Constant(value=True)]):
            return True
    return False


def asks_files(context: Context, test: ast.expr, depth: int = 0) -> bool:
    """Whether a condition asks for files: itself, in what it calls, or before, under a name."""
    nodes = (context.program.nodes.get(key) for key in context.runs(test))
    calls = (context.program.call(it) for it in nodes if isinstance(it, ast.Call))
    if any(name.startswith(ASKS_FILES) for call in calls if call is not None for name in call.names):
        return True
    names = [it for it in ast.walk(test) if isinstance(it, ast.Name)] if depth < 4 else []
    truths = (it for name in names for it in assigned(context, name) if _is_truth(context, it))
    return any(asks_files(context, it, depth + 1) for it in truths)


def _is_truth(context: Context, node: ast.expr) -> bool:
    """Whether an expression is a truth value: a question, or made of such."""
    if isinstance(node, ast.BoolOp):
        return any(_is_truth(context, it) for it in node.values)
    call = context.program.call(node) if isinstance(node, ast.Call) else None
    asks = call is not None and any(name.startswith(ASKS_FILES) for name in call.names)
    return asks or isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and _is_denied(node))


@once
def caching(context: Context) -> set[int]:
    """The classes whose objects one process makes first, with their bases, and the functions that it calls first."""
    return context.downloaders | {
        base.scope
        for call in context.program.calls
        for cls in _made(context, call)
        if _caches(context, cls, call)
        for base in context.program.bases(cls)
        if isinstance(base, Cls)
    }


def fetch_facts(context: Context, hoisted: set[int]) -> tuple[Fetch, ...]:
    """Statements that fetch or cache, neighbours together; ``hoisted`` expressions may get a statement of their own."""
    program = context.program
    cached = caching(context)
    statements: dict[int, list[str]] = {}
    once: set[int] = set()
    found: list[Fetch] = []
    for node in program.nodes.values():
        if not (isinstance(node, ast.Call) and context.runs_in_training(node)):
            continue
        call = program.call(node)
        if call is None or not is_fetch(context, call, weights=False):
            continue
        if is_inside(context, node, cached):
            continue
        what = f"{ast.unparse(node.func)}()"
        dataset = next((it for it in (node, *program.ancestors(node)) if id(it) in hoisted), None)
        for statement in _whole_questions(context, program.statement(node)):
            if _under_main_first(context, statement):
                continue
            if dataset is None:
                statements.setdefault(id(statement), []).append(what)
                if (
                    call.names <= DOWNLOADS_ANEW
                    and isinstance(statement, ast.Expr)
                    and statement.value is node
                ):
                    once.add(id(statement))
            else:
                place, last = context.place(statement), program.anchor(statement)
                found.append(Fetch(**place, what=what, last=last, dataset=program.anchor(dataset)))
    seen: set[int] = set()
    for key in sorted(statements, key=lambda key: program.order[key]):
        if key in seen:
            continue
        first: ast.stmt = program.nodes[key]  # type: ignore[assignment]
        block = program.block(first)
        index = last = block.index(first)
        while (
            last + 1 < len(block)
            and id(block[last + 1]) in statements
            and (id(block[last + 1]) in once) == (key in once)
        ):
            last += 1
        seen.update(id(part) for part in block[index : last + 1])
        if index and _answers_for(context, block[index - 1], first):
            first = block[index - 1]  # it asks: one process after the other, too
        place, end = context.place(first), program.anchor(block[last])
        found.append(Fetch(**place, what=statements[key][0], last=end, anew=key in once))
    return tuple(found)


def _answers_for(context: Context, statement: ast.stmt, following: ast.stmt) -> bool:
    """Whether a statement asks for files, and the condition of the one below is what it has found."""
    if not (isinstance(statement, ast.Assign) and isinstance(following, ast.If)):
        return False
    names = [it for it in ast.walk(following.test) if isinstance(it, ast.Name)]
    given = (definition for it in names for definition in context.program.definitions(it))
    return asks_files(context, statement.value) and any(it in statement.targets for it in given)


def _whole_questions(context: Context, statement: ast.stmt, depth: int = 0) -> list[ast.stmt]:
    """What all processes come to of a statement that asks for files: the ``if`` round it, or round the calls of it.

    None where an exception leads to it, and what is tried trains: some would come there, and others not.
    """
    found = _whole_question(context, statement)
    calls = [context.program.statement(it) for it in trained_callers(context, statement)]
    leaves = _is_missing(context, statement)  # the others would leave the function before it
    handled = depth < 6 and any(_handler(context, it) is not None for it in calls)
    if not handled and (
        depth > 6
        or found is not statement
        or not (leaves or all(only_missing(context, it) for it in calls))
        or any(_trains(context, it) for it in calls)
    ):
        return [] if _handler(context, found) is not None or _trains(context, found) else [found]
    asked = (_whole_questions(context, it, depth + 1) for it in calls)
    return list({id(it): it for some in asked for it in some}.values()) or ([] if handled else [found])


def _handler(context: Context, node: ast.AST) -> ast.ExceptHandler | None:
    """The handler of exceptions that a node stands in, in its function."""
    for around in context.program.ancestors(node):
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return None
        if isinstance(around, ast.ExceptHandler):
            return around
    return None


def _whole_question(context: Context, statement: ast.stmt) -> ast.stmt:
    """The outermost statement round one that asks for files, or tries: what it finds may differ between processes."""
    found, inside = statement, statement
    for around in context.program.ancestors(statement):
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            break
        if not isinstance(around, ast.stmt):
            continue
        if isinstance(around, LOOPS) and _trains(context, around):
            break
        skips = isinstance(around, LOOPS) and _is_skipped(context, around, inside)
        asks = isinstance(around, ast.If) and asks_files(context, around.test)
        tries = isinstance(around, ast.Try) and _handler(context, inside) in around.handlers
        if (asks or tries or skips) and not _trains(context, around):
            found = around
        inside = around
    return found


def _is_skipped(context: Context, loop: ast.stmt, inside: ast.stmt) -> bool:
    """Whether a loop asks for files itself, or goes on before it comes to a statement where one is there."""
    if isinstance(loop, ast.While) and asks_files(context, loop.test):
        return True
    block = context.program.block(inside)
    before = (it for it in block[: block.index(inside)] if isinstance(it, ast.If))
    return any(isinstance(it.body[-1], ast.Continue) and asks_files(context, it.test) for it in before)


def _trains(context: Context, node: ast.AST) -> bool:
    """Whether something trains or runs a wrapped model, or wraps one: all processes do that together."""
    return bool(context.runs(node) & (context.trained_wraps | _together(context)))


@once
def _together(context: Context) -> set[int]:
    """The backward passes, and the calls of wrapped models."""
    program = context.program
    forwards = {id(it.node) for it in program.calls if context.is_wrapped(program.values(it.node.func))}
    return forwards | {id(it) for it in context.backwards}


def _trains_where_missing(context: Context, question: ast.expr) -> bool:
    """Whether a model is trained in a branch of a question, or below one that leaves: ``if found: return load()``."""
    statement = context.program.statement(question)
    block = context.program.block(statement)
    leaves = isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Return)
    return any(
        _trains(context, it) for it in (statement, *(block[block.index(statement) :] if leaves else ()))
    )


def is_inside(context: Context, node: ast.AST, cached: Container[int]) -> bool:
    """Whether a node stands in a class or function of these: the place that calls it waits, and it alone."""
    around = (it for it in context.program.ancestors(node) if isinstance(it, ast.ClassDef | ast.FunctionDef))
    return any(context.program.by_node[id(it)].index in cached for it in around)


def _under_main_first(context: Context, statement: ast.stmt) -> bool:
    for around in context.program.ancestors(statement):
        if isinstance(around, ast.With) and any(
            "main_process_first" in ast.dump(i.context_expr) for i in around.items
        ):
            return True
    return False
