"""What one process must do alone: files, directories, logs, plots, downloads, questions to whoever sits there.

What is printed is not among it: the other ranks are not heard. Nor is what is done with a writer: it is made on the
main process, and elsewhere it is a stand-in.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Container, Iterator, Set
from dataclasses import dataclass, replace

from dp2ddp.analyse.api.containers import ASKING_METHODS, TAKES_OUT
from dp2ddp.analyse.api.downloads import (
    DATA_SET_BASES,
    DOWNLOADING_LIBRARIES,
    DOWNLOADS_ANEW,
    FETCHES,
    FILE_FETCHES,
    HUB_FETCHES,
    MODEL_LIBRARIES,
    PRETRAINED,
    SHELL_FETCHES,
    UNPACKS,
)
from dp2ddp.analyse.api.files import (
    ACTS,
    ASKS_FILES,
    BETWEEN_PATHS,
    BUILTIN_OPENERS,
    JOINS_PATHS_AS,
    LEAVES_FILES,
    LOADS,
    LOGS,
    MAKES_FOLDERS,
    MODES,
    NOWHERE,
    ONLY_ANSWERS,
    OPENERS,
    OTHER_VERBS,
    PATH_CONTENTS,
    PATH_OPENERS,
    PATHS,
    READS,
    REMOVES,
    SAVES,
    TEMPORARY,
    TRACKED_SETTINGS,
    TRACKERS,
    VERBS,
    WRITERS,
    WRITES,
    WRITING_ANYWAY,
    WRITING_METHODS,
)
from dp2ddp.analyse.api.inspection import ASKS, LOOKS_AT_FUNCTIONS
from dp2ddp.analyse.api.parallel import is_runtime
from dp2ddp.analyse.api.processes import INPUT, POPEN_ANSWERS
from dp2ddp.analyse.context import LOOPS, Context, is_main_guard
from dp2ddp.analyse.processes import paths
from dp2ddp.analyse.processes.alike import works
from dp2ddp.analyse.processes.answers import is_options
from dp2ddp.analyse.processes.conditions import assigned, returned
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.values import Bound, Cls, Ext, Func, Inst, Made, Member, full_name
from dp2ddp.facts import NO_TIER, Effect, Fetch, Obstacle, Reread


def is_write(name: str) -> bool:
    """Whether a call of something outside the project, by its full name, writes or logs."""
    if (
        name in ONLY_ANSWERS
        or any(name.startswith(f"{asks}.") for asks in ONLY_ANSWERS)
        or name.rpartition(".")[2].isupper()
    ):
        return False
    if is_listed(name):
        return True
    owner, _, method = name.rpartition(".")
    if any(owner.startswith(prefix) and method in methods for prefix, methods in WRITING_METHODS.items()):
        return True
    if owner and VERBS.match(method) and not name.startswith(OTHER_VERBS):
        return True
    return is_of_writer(name)


def is_listed(name: str) -> bool:
    """Whether what a name stands for writes, whatever it is given."""
    return name in WRITES | UNPACKS or any(entry.endswith(".") and name.startswith(entry) for entry in WRITES)


def opens_for_writing(call: Call) -> bool:
    """Whether a call may open a file for writing: an unknown mode counts."""
    if not call.names & OPENERS or _is_nowhere(call):
        return False
    mode = call.argument("mode", 0 if any(name.startswith("pathlib.") for name in call.names) else 1)
    return _may_write(mode)


def _is_nowhere(call: Call) -> bool:
    """``open(os.devnull, "w")``."""
    file = call.argument("file", 0)
    return isinstance(file, ast.expr) and ast.unparse(file) in NOWHERE


def _is_writer(context: Context, call: Call) -> bool:
    """Whether a call makes something that writes whenever it is used, if not by Python's own ``open``."""
    if call.names & WRITERS:
        return not _in_own_folder(context, call)
    for name in call.names & MODES.keys():
        if _may_write(call.argument("mode", MODES[name])):
            return not _in_own_folder(context, call)
    return False


def _may_write(mode: ast.expr | None) -> bool:
    """Whether a file is opened for writing by its mode: one that is not known counts."""
    if isinstance(mode, ast.Constant) and isinstance(mode.value, str):
        return any(letter in mode.value for letter in "wax+")
    return mode is not None


def _is_open(context: Context, call: Call) -> bool:
    """Whether a call is Python's ``open``, or a path's, of a file that may be written to."""
    plain = call.names & (BUILTIN_OPENERS | PATH_OPENERS)
    return bool(plain) and opens_for_writing(call) and not _in_own_folder(context, call)


def _writes(context: Context, node: ast.AST) -> bool:
    """Whether a call writes, by itself: not into a file that is open already."""
    call = context.program.call(node) if isinstance(node, ast.Call) else None
    if call is None:
        return False
    if isinstance(call.node.func, ast.Attribute) and _writes_anyway(call):
        return not any(isinstance(callee, Func | Bound) for callee in call.callees)
    if call.names == {"logging.basicConfig"}:
        return call.argument("filename", 0) is not None
    if (
        not call.names
        or call.names & WRITERS
        or _in_own_folder(context, call)
        or _into_open_file(context, call)
    ):
        return False
    written = any(_is_plain_write(name) for name in call.names)
    return written and not (_hands_text_back(context, call) and not any(map(_is_path, handed(call.node))))


def _hands_text_back(context: Context, call: Call) -> bool:
    """``text = yaml.dump(settings)``: what is named like a write, and makes something that the program uses."""
    named = all(VERBS.match(name.rpartition(".")[2]) and not is_listed(name) for name in call.names)
    return named and not isinstance(context.program.parent(call.node), ast.Expr)


def _writes_anyway(call: Call) -> bool:
    """Whether a method writes, whoever has it: ``figure.savefig(…)``, ``picture.save("out.png")``."""
    method = call.node.func.attr  # type: ignore[attr-defined]
    known = call.names or not call.node.args
    return method in WRITING_ANYWAY or (method == "save" and not known and _is_path(call.node.args[0]))


def _is_path(node: ast.expr) -> bool:
    """Whether an expression is, as it is written, the path of a file."""
    words = [it.value for it in ast.walk(node) if isinstance(it, ast.Constant) and isinstance(it.value, str)]
    joins = isinstance(node, ast.Call) and ast.unparse(node.func).endswith(JOINS_PATHS_AS)
    return joins or any(re.search(r"/|\.\w{2,4}$", word) for word in words)


def _is_plain_write(name: str) -> bool:
    """Whether a call writes that is neither a tracker's nor a writer's: these are stand-ins on the other ranks."""
    return is_write(name) and not is_of_writer(name)


def is_of_writer(name: str) -> bool:
    """Whether a full name is a tracker's, or that of a writer's method: the main process alone has such a thing."""
    return name.startswith(tuple(f"{it}." for it in (*TRACKERS, *WRITERS)))


def _into_open_file(context: Context, call: Call) -> bool:
    """Whether a call is of an open file, or is given one: on the other ranks that leads nowhere."""
    if call.names & UNPACKS:
        return False
    owners = [getattr(callee, "owner", None) for callee in call.callees]
    given = [value for argument in handed(call.node) for value in context.program.values(argument)]
    opened = OPENERS | MODES.keys()
    return any(isinstance(it, Made) and it.name in opened for it in (*owners, *given))


def _in_own_folder(context: Context, call: Call) -> bool:
    """Whether a call writes into a temporary folder or file, which every process has one of."""
    given = handed(call.node)
    if isinstance(call.node.func, ast.Attribute):
        given.append(call.node.func.value)
    if any(name.startswith(BETWEEN_PATHS) for name in call.names):
        return all(is_own(context, it) for it in call.node.args[:2])
    return any(is_own(context, it) for it in given)


def is_own(context: Context, node: ast.expr, depth: int = 0) -> bool:
    """Whether a path begins with a temporary folder, or a file is temporary or in memory: every process has its own."""
    if depth > 8:
        return False
    call = context.program.call(node) if isinstance(node, ast.Call) else None
    if call is not None and any(name.startswith(TEMPORARY) for name in call.names):
        return True
    begins = _begins(context, node)
    return bool(begins) and all(is_own(context, it, depth + 1) for it in begins)


def _begins(context: Context, node: ast.expr) -> list[ast.expr]:
    """What a path begins with: the folder it is in, or what it is another name of."""
    match node:
        case ast.Call():
            return returned(context, node) or _first_part(node, context.program.call(node))
        case ast.Name() | ast.Attribute() if found := context.program.definitions(node):
            sources = [source for it in found for source in _given_to(context, it)]
            return [it for it in sources if not (isinstance(it, ast.Constant) and it.value is None)]
        case ast.Attribute(value=inner) | ast.Subscript(value=inner):
            return [inner]
        case ast.BinOp(op=ast.Mod(), right=right):
            return right.elts[:1] if isinstance(right, ast.Tuple) else [right]
        case ast.BinOp(left=left):
            return [left]
        case ast.JoinedStr(values=[ast.FormattedValue(value=first), *_]):
            return [first]
        case ast.Constant(value=str(text)) if "/" in text.strip("/"):
            return [ast.Constant(text.rstrip("/").rpartition("/")[0])]
    return []


def _folders(context: Context, node: ast.expr, depth: int = 0) -> frozenset[str]:
    """A path and the folders that it is in, as they are spelled."""
    same = paths.spelled(context, node) | _text_folders(node)
    begins = _begins(context, node) if depth < 8 else []
    return same.union(*(_folders(context, it, depth + 1) for it in begins))


def _text_folders(node: ast.expr) -> frozenset[str]:
    """The folders that a text begins with, as they would be spelled: ``'a'`` and ``'a/b'`` of ``f"a/b/{name}"``."""
    match node:
        case ast.Constant(value=str(text)) | ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            parts = text.split("/")
            whole = isinstance(node, ast.Constant)
            return frozenset(
                repr("/".join(parts[:end])) for end in range(1, len(parts) + whole) if any(parts[:end])
            )
    return frozenset()


def _first_part(node: ast.Call, call: Call | None) -> list[ast.expr]:
    """What the path begins with that a call makes: of other paths, or of one that it is a method of."""
    if call is not None and any(name.startswith(PATHS) for name in call.names) and node.args:
        return node.args[:1]
    return [node.func.value] if isinstance(node.func, ast.Attribute) else []


def _given_to(context: Context, definition: ast.AST) -> list[ast.expr]:
    """What a name stands for where something gives it a value; a literal where that is not known."""
    program = context.program
    if isinstance(definition, ast.arg):
        return program.given(definition)
    around = program.parent(definition)
    if isinstance(around, ast.withitem):
        return [around.context_expr]
    statement = program.statement(definition)
    if isinstance(statement, ast.Assign) and definition in statement.targets:
        return [statement.value]
    return [ast.Constant(...)]


def happens_once(context: Context, node: ast.AST) -> bool:
    """Whether a call writes, fetches or asks for something that must not be done again by who starts the ranks."""
    call = context.program.call(node) if isinstance(node, ast.Call) else None
    if call is None:
        return False
    opens = _is_open(context, call) or _is_writer(context, call) or any(map(_is_of_tracker, call.names))
    return opens or _writes(context, node) or bool(call.names & {*SAVES, INPUT}) or _fetch(context, call)


def _is_written(context: Context, statement: ast.AST) -> bool:
    """A statement that only writes: it can be left out on other ranks, and nothing later misses it."""
    only = isinstance(statement, ast.Expr) and _only_writing(context, statement.value)
    return only and not _does_more(context, statement)


def _only_writing(context: Context, node: ast.expr) -> bool:
    """``os.mkdir(path)``, ``os.path.exists(path) or os.mkdir(path)``, ``[os.mkdir(path) for path in paths]``."""
    match node:
        case ast.Call():
            return _writes(context, node)
        case ast.ListComp(elt=element) | ast.SetComp(elt=element):
            asked = [it for part in node.generators for it in (part.iter, *part.ifs)]
            return _only_writing(context, element) and all(_only_asks(context, it) for it in asked)
        case ast.BoolOp(values=[*asked, last]):
            return _only_writing(context, last) and all(_only_asks(context, it) for it in asked)
        case ast.IfExp(test=test, body=body, orelse=ast.Constant()):
            return _only_writing(context, body) and _only_asks(context, test)
    return False


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
        context.program.call(it) for it in context.program.descendants(statement) if _writes(context, it)
    ]
    return bool(calls) and all(
        call is not None and call.names <= MAKES_FOLDERS and _may_exist(call) and not is_own(call)
        for call in calls
    )


def _may_exist(call: Call) -> bool:
    """Whether a folder is made with ``exist_ok=True``."""
    return any(it.arg == "exist_ok" and ast.unparse(it.value) == "True" for it in call.node.keywords)


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
        and (_may_exist(it) or (_only_missing(context, it.node) and not it.argument("exist_ok", 2)))
        and not is_own(it)
        and not _in_own_folder(context, it)
    ]
    needed = _filled_first(context) if made else frozenset()
    return tuple(it for it in made if needed & _made_folders(context, it))


def _filled_first(context: Context) -> frozenset[str]:
    """The paths that one process of each machine fetches or writes first, and their folders, as they are spelled."""
    calls = (it for it in context.program.calls if context.runs_in_training(it.node))
    first = (it for it in calls if _fetch(context, it, weights=False))
    found = (_folders(context, given) for it in first for given in handed(it.node))
    return frozenset().union(*found)


def _made_folders(context: Context, call: Call) -> frozenset[str]:
    """The folders that a call makes, as they are spelled."""
    made = [it for path in paths.given(call) for it in _listed(context, path)]
    texts = (repr(it.value.rstrip("/")) for it in made if isinstance(it, ast.Constant) and it.value != "/")
    return frozenset(texts).union(*(paths.spelled(context, it) for it in made))


def _listed(context: Context, node: ast.expr, depth: int = 0) -> list[ast.expr]:
    """What a name may stand for to which a loop gives the parts of a list; the node itself where none does."""
    program = context.program
    around = [program.parent(it) for it in program.definitions(node)] if isinstance(node, ast.Name) else []
    loops = [it.iter for it in around if isinstance(it, ast.For | ast.comprehension)]
    return [it for listed in loops for it in _parts(context, listed, depth)] or [node]


def _parts(context: Context, node: ast.expr, depth: int) -> list[ast.expr]:
    """The parts of a list, followed through names; what is no list stands for itself."""
    if isinstance(node, ast.List | ast.Tuple):
        return node.elts
    definitions = context.program.definitions(node) if isinstance(node, ast.Name) and depth < 8 else ()
    sources = [it for definition in definitions for it in _given_to(context, definition)]
    return [it for source in sources for it in _parts(context, source, depth + 1)] or [node]


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
    ``is_own``: whether the path that a call makes is one that each process gives a name of its own, by the clock.
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
    guarded = {id(node) for node in nodes if _is_written(context, node)}
    guarded = {key for key in guarded if not already(context, program.nodes[key])}
    everywhere = _made_everywhere(context, nodes, is_own)
    guarded -= {id(program.statement(it.node)) for it in everywhere}
    guarded |= _around(context, guarded, meetings)
    inner = {
        key
        for key in guarded
        if any(id(around) in guarded for around in program.ancestors(program.nodes[key]))
    }
    spared = {key for key in guarded - inner if _makes_folders(context, program.nodes[key], is_own)}
    found: list[Effect] = []
    found += _tests(context, guarded - inner, meetings, spared)
    found += _groups(context, guarded - inner, meetings, spared)
    guards = list(found)
    found += [_folder(context, it) for it in everywhere if not _may_exist(it)]
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
    return tuple(sorted(found, key=lambda effect: (effect.path, effect.at.span, effect.kind)))


def _around(context: Context, guarded: set[int], meetings: frozenset[int]) -> set[int]:
    """Loops and choices of which nothing is left without the calls that write: one guard for all of it."""
    program = context.program
    found: set[int] = set()
    for key in sorted(guarded, key=lambda key: program.order[key], reverse=True):
        node = program.parent(program.nodes[key])
        while id(node) not in found and _only_writes(context, node, (guarded | found) - meetings):
            found.add(id(node))
            node = program.parent(node)
    return found


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
        id(part) in guarded and isinstance(part, ast.Expr | ast.For | ast.If) for part in parts
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
        yield _effect(context, "test", parent.test, _what(context, parent.body[0]), last=last)


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
    if "torch.save" in call.names and not _in_own_folder(context, call):
        yield _effect(context, "save", node.func, "torch.save()")
        return
    inside = id(program.statement(node)) in guarded
    if inside or any(id(around) in guarded for around in program.ancestors(node)) or already(context, node):
        return
    what = f"{ast.unparse(node.func)}()"
    if INPUT in call.names:
        yield _effect(context, "input", node.func, what)
    elif _is_open(context, call):
        yield _open(context, call, what)
    elif _is_writer(context, call):
        if not _asked_at_once(context, node, guards):
            yield _effect(context, "writer", node.func, what)
    elif _answers(context, call) and _all_come(context, node, guards):
        yield _effect(context, "answer", _whole_answer(context, node), what)
    elif _writes(context, node):
        yield _effect(context, "writer", node.func, what)


def _answers(context: Context, call: Call) -> bool:
    """Whether a call acts on files or starts a program, and what comes out of it is used."""
    alone = isinstance(context.program.parent(call.node), ast.Expr)
    acts = any(name.startswith(ACTS) for name in call.names)
    return not alone and acts and (bool(call.names & POPEN_ANSWERS) or _writes(context, call.node))


def _asked_at_once(context: Context, node: ast.Call, guards: list[Effect]) -> bool:
    """Whether ``Popen(…)`` is part of ``Popen(…).communicate()``, and so all of it is the main process's."""
    inner, around = node, context.program.parent(node)
    while isinstance(around, ast.Attribute):
        inner, around = around, context.program.parent(around)
    call = context.program.call(around) if isinstance(around, ast.Call) and around.func is inner else None
    return call is not None and _answers(context, call) and _all_come(context, call.node, guards)


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


def all_pass(context: Context, node: ast.AST, guards: list[Effect], depth: int = 0) -> bool:
    """Whether every process comes to a place if one does: nothing round it, or round its calls, is for one alone."""
    program = context.program
    if depth > 6 or any(guard.covers(program.anchor(node)) for guard in guards) or already(context, node):
        return False
    if any(isinstance(around, ast.ExceptHandler | ast.Lambda) for around in program.ancestors(node)):
        return False
    scope = program.scope(node).index
    calls = context.callers.get(scope, ())
    return all(all_pass(context, call, guards, depth + 1) for call in calls if context.runs_in_training(call))


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
        elif names and all(_is_plain_write(name) or name in WRITERS for name in names):
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
            isinstance(it, Ext) and _is_of_tracker(f"{it.name}.") for it in values
        ):
            last = program.anchor(_last_import(context, statement))
            yield _effect(context, "tracker", statement, name, last=last)


def _stands_in(context: Context, statement: ast.stmt, name: str) -> bool:
    """Whether a name is made ``ddp.on_main_process(name)`` after its import already."""
    text = f"on_main_process({name})"
    return any(
        isinstance(it, ast.Assign) and text in ast.unparse(it) for it in context.program.block(statement)
    )


def _uses(context: Context, statement: ast.stmt, name: str) -> Iterator[ast.Name]:
    """Where a file reads a name that it imports."""
    nodes = ast.walk(context.program.file(statement).tree)
    yield from (
        it for it in nodes if isinstance(it, ast.Name) and it.id == name and isinstance(it.ctx, ast.Load)
    )


def _last_import(context: Context, statement: ast.stmt) -> ast.stmt:
    """The last of the imports that follow one another."""
    block = context.program.block(statement)
    last = statement
    for following in block[block.index(statement) + 1 :]:
        if not isinstance(following, ast.Import | ast.ImportFrom):
            break
        last = following
    return last


def _is_of_tracker(name: str) -> bool:
    """Whether a full name is a tracker's, or of one."""
    return (
        name.startswith(tuple(f"{tracker}." for tracker in TRACKERS)) and name.rstrip(".") not in ONLY_ANSWERS
    )


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
                    f"`{ast.unparse(node)}` exists only on the main process",
                    "if training uses it, share it with all ranks: ddp.from_main_process(…)",
                    NO_TIER,
                )


def _swept(context: Context) -> Iterator[Obstacle]:
    """``wandb.agent(sweep, function=main)``."""
    for call in context.program.calls:
        if any(map(_is_of_tracker, call.names)) and context.trained_wraps & context.runs(call.node):
            yield context.obstacle(
                call.node,
                f"{ast.unparse(call.node.func)}() would run the training on the main process only",
                "start each sweep run as a separate program: `wandb agent …` on the command line",
            )


def covered(context: Context, node: ast.AST, guards: list[Effect]) -> bool:
    return any(guard.covers(context.program.anchor(node)) for guard in guards)


# Downloads and caches


def fetches(context: Context, node: ast.AST) -> list[str]:
    """What an expression or statement fetches or caches, by the names of the calls."""
    found = []
    for inner in context.program.descendants(node):
        call = context.program.call(inner) if isinstance(inner, ast.Call) else None
        if call is not None and _fetch(context, call, weights=False):
            found.append(f"{ast.unparse(call.node.func)}()")
    return found


def _fetch(context: Context, call: Call, weights: bool = True) -> bool:
    """Whether a call fetches or caches something.

    ``weights``: those that torch.hub keeps count, too, though the runtime has one process of a machine download them.
    """
    names = {callee.name for callee in call.callees if isinstance(callee, Ext)}
    if not weights:
        names = {it for it in names - HUB_FETCHES if not it.startswith(MODEL_LIBRARIES)}
    loads = any(name.endswith(".from_pretrained") and not name.startswith("torch.") for name in names)
    if names & FETCHES or loads:
        return True
    if call.names & UNPACKS and not _in_own_folder(context, call) and _only_missing(context, call.node):
        return True
    if _prepares(context, call):
        return True
    derived = {
        full_name(base)
        for callee in call.callees
        if isinstance(callee, Cls)
        for base in context.program.bases(callee)
        if full_name(base).startswith("torchvision.datasets.")
    }
    for name in names | derived:
        if name.startswith(DOWNLOADING_LIBRARIES):
            given = [keyword.arg for keyword in call.node.keywords if not _is_off(keyword.value)]
            if {"download", *PRETRAINED} & set(given):
                return True
        if name.startswith("torchvision.datasets.") and _positional_download(call):
            return True
        if name.startswith("torchvision.models.") and call.node.args and not _is_off(call.node.args[0]):
            return True
    if any(isinstance(callee, Func) and callee.scope in context.downloaders for callee in call.callees):
        return True
    return any(isinstance(callee, Cls) and _caches(context, callee, call) for callee in call.callees)


def _prepares(context: Context, call: Call) -> bool:
    """Whether a call writes a file that is only written where it, or its folder, is not there, before any loop."""
    written = paths.given(call) if _leaves(context, call, True) or _leaves(context, call, False) else []
    if not written or not context.runs_in_training(call.node) or _is_continued(context, call):
        return False
    questions = _questions(context, call.node)
    if any(_trains(context, context.program.statement(it)) for it in questions):
        return False  # `if not os.path.exists(checkpoint): train()`
    if any(_reads_instead(context, it) for it in questions):
        return False  # all make it or none: who reads it draws no random numbers
    return bool(questions) and all(
        any(_is_made(context, it, by) for it in _asked(context, question) for by in written)
        for question in questions
    )


def _is_made(context: Context, path: ast.expr, written: ast.expr) -> bool:
    """Whether a path is that of a written file, or one of the folders that it is in; or of a file beside it."""
    folders = _folders(context, written)
    beside = paths.may_be_same(*(paths.file(context, [it]) for it in (path, written)))
    return bool(folders & paths.spelled(context, path) or (beside and folders & _folders(context, path)))


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
    appending = [
        it for it in context.program.calls if _only_appends(it) and context.runs_in_training(it.node)
    ]
    file = paths.written(context, call)
    return any(paths.are_same(file, paths.written(context, it)) for it in appending)


def _questions(context: Context, node: ast.AST, depth: int = 0) -> list[ast.expr]:
    """What is asked of files before a place is come to, by every call; empty where that is done repeatedly, or not."""
    if depth > 6:
        return []
    if (question := _missing(context, node)) is not None:
        return [] if _is_repeated(context, question) else [question]
    by_call = [_questions(context, it, depth + 1) for it in _trained_callers(context, node)]
    return [it for some in by_call for it in some] if all(by_call) else []


def _is_repeated(context: Context, node: ast.AST, depth: int = 0) -> bool:
    """Whether a place is come to in a loop, here or in what calls its function."""
    for around in context.program.ancestors(node):
        if isinstance(around, ast.For | ast.AsyncFor | ast.While):
            return True
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
            break
    calls = _trained_callers(context, node) if depth < 6 else []
    return any(_is_repeated(context, it, depth + 1) for it in calls)


def _asked(context: Context, question: ast.expr) -> list[ast.expr]:
    """The paths that a question asks for."""
    calls = (context.program.call(it) for it in ast.walk(question) if isinstance(it, ast.Call))
    files = (it for it in calls if it is not None and any(name.startswith(ASKS_FILES) for name in it.names))
    return [it for call in files for it in paths.given(call)]


def _is_off(node: ast.expr) -> bool:
    """A literal that asks for nothing: False, None, 0."""
    return isinstance(node, ast.Constant) and not node.value


def _positional_download(call: Call) -> bool:
    """MNIST(root, train, transform, target_transform, download), and the data sets like it."""
    return len(call.node.args) > 4 and not _is_off(call.node.args[4])


def _caches(context: Context, cls: Cls, call: Call) -> bool:
    """A class of the project whose ``__init__`` fetches or unpacks files, or a data set whose one writes some."""
    program = context.program
    made = Inst(cls, id(call.node))
    if context.module_class(made) or context.runs(call.node) & context.trained_wraps:
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
                opens = _is_open(context, inner) or _is_writer(context, inner)
                if data and (inner.names & SAVES or opens or _writes(context, node)):
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
        return self.covers(node) and _only_missing(self.context, node)


def made_first(context: Context) -> _First:
    """What one process of each machine does first: the statements that fetch, with all that only they run."""
    program = context.program
    cached = caching(context)
    parts: set[int] = set()
    for call in program.calls:
        if context.runs_in_training(call.node) and _fetch(context, call, weights=False):
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


def _only_missing(context: Context, node: ast.AST, depth: int = 0) -> bool:
    """Whether a place is only come to where files that are asked for are not there, by whatever call."""
    if depth > 6:
        return False
    calls = _trained_callers(context, node)
    by_calls = bool(calls) and all(_only_missing(context, it, depth + 1) for it in calls)
    return _is_missing(context, node) or by_calls


def _trained_callers(context: Context, node: ast.AST) -> list[ast.Call]:
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
            if _is_denied(around.test) == (inside in around.body) and _asks_files(context, around.test):
                return around.test
        if isinstance(inside, ast.stmt):
            block = program.block(inside)
            before = (it for it in block[: block.index(inside)] if isinstance(it, ast.If))
            leaving = (it.test for it in before if isinstance(it.body[-1], ast.Return))
            there = (it for it in leaving if not _is_denied(it) and _asks_files(context, it))
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


def _asks_files(context: Context, test: ast.expr, depth: int = 0) -> bool:
    """Whether a condition asks for files: itself, in what it calls, or before, under a name."""
    nodes = (context.program.nodes.get(key) for key in context.runs(test))
    calls = (context.program.call(it) for it in nodes if isinstance(it, ast.Call))
    if any(name.startswith(ASKS_FILES) for call in calls if call is not None for name in call.names):
        return True
    names = [it for it in ast.walk(test) if isinstance(it, ast.Name)] if depth < 4 else []
    truths = (it for name in names for it in assigned(context, name) if _is_truth(context, it))
    return any(_asks_files(context, it, depth + 1) for it in truths)


def _is_truth(context: Context, node: ast.expr) -> bool:
    """Whether an expression is a truth value: a question, or made of such."""
    if isinstance(node, ast.BoolOp):
        return any(_is_truth(context, it) for it in node.values)
    call = context.program.call(node) if isinstance(node, ast.Call) else None
    asks = call is not None and any(name.startswith(ASKS_FILES) for name in call.names)
    return asks or isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and _is_denied(node))


def caching(context: Context) -> set[int]:
    """The classes whose objects one process makes first, with their bases, and the functions that it calls first."""
    return context.downloaders | {
        base.scope
        for call in context.program.calls
        for callee in call.callees
        if isinstance(callee, Cls) and _caches(context, callee, call)
        for base in context.program.bases(callee)
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
        if call is None or not _fetch(context, call, weights=False):
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
    return _asks_files(context, statement.value) and any(it in statement.targets for it in given)


def _whole_questions(context: Context, statement: ast.stmt, depth: int = 0) -> list[ast.stmt]:
    """What all processes come to of a statement that asks for files: the ``if`` round it, or round the calls of it.

    None where an exception leads to it, and what is tried trains: some would come there, and others not.
    """
    found = _whole_question(context, statement)
    calls = [context.program.statement(it) for it in _trained_callers(context, statement)]
    leaves = _is_missing(context, statement)  # the others would leave the function before it
    handled = depth < 6 and any(_handler(context, it) is not None for it in calls)
    if not handled and (
        depth > 6
        or found is not statement
        or not (leaves or all(_only_missing(context, it) for it in calls))
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
        if isinstance(around, LOOPS) and not _is_skipped(context, around, inside):
            break
        asks = isinstance(around, ast.If) and _asks_files(context, around.test)
        tries = isinstance(around, ast.Try) and _handler(context, inside) in around.handlers
        if (asks or tries or isinstance(around, LOOPS)) and not _trains(context, around):
            found = around
        inside = around
    return found


def _is_skipped(context: Context, loop: ast.stmt, inside: ast.stmt) -> bool:
    """Whether a loop asks for files itself, or goes on before it comes to a statement where one is there."""
    if isinstance(loop, ast.While) and _asks_files(context, loop.test):
        return True
    block = context.program.block(inside)
    before = (it for it in block[: block.index(inside)] if isinstance(it, ast.If))
    return any(isinstance(it.body[-1], ast.Continue) and _asks_files(context, it.test) for it in before)


def _trains(context: Context, node: ast.AST) -> bool:
    """Whether something trains a wrapped model, or wraps one that is trained: all processes do that together."""
    return bool(context.runs(node) & (context.trained_wraps | {id(it) for it in context.backwards}))


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


# Reading what was written, and writing what was read

_WRITING = "a file that the main process may still be writing"


def rereads(context: Context, whole: Context, acts: tuple[Effect, ...]) -> tuple[Reread, ...]:
    """Statements that read a file after the same program has written one, or write one that all have read.

    ``whole``: the same programs with what only runs where they have ranks of their own: all come to where that begins,
    and read what is written before. ``acts``: what the main process does alone.
    """
    if whole is context:
        return _rereads(context, acts)
    stay = {context.program.anchor(it) for it in _trained_statements(context)}
    return tuple(it for it in _rereads(whole, acts) if it.at in stay)


def _trained_statements(context: Context) -> Iterator[ast.stmt]:
    nodes = context.program.nodes.values()
    yield from (it for it in nodes if isinstance(it, ast.stmt) and context.runs_in_training(it))


def _rereads(context: Context, acts: tuple[Effect, ...]) -> tuple[Reread, ...]:
    program = context.program
    saved, opened = (
        {id(it.node): paths.written(context, it) for it in program.calls if _leaves(context, it, by_opening)}
        for by_opening in (False, True)
    )
    alone = set().union(*(context.runs(call.node) for call in program.calls if _fetch(context, call)), set())
    found: dict[int, Reread] = {}
    unpacks = [
        it
        for it in program.calls
        if it.names & UNPACKS and context.runs_in_training(it.node) and id(it.node) not in alone
    ]
    cached = caching(context) if unpacks else set()
    for call in unpacks:
        # What is unpacked is read by paths that nothing here names: all wait at once.
        if not _in_own_folder(context, call) and not is_inside(context, call.node, cached):
            for statement in _following(context, call.node, set()):
                if not _is_barrier(context, statement):
                    what = f"what follows {ast.unparse(call.node.func)}() may read {_WRITING}"
                    found[id(statement)] = Reread(**context.place(statement), what=what)
    reading: dict[int, tuple[Call, paths.File]] = {}
    for call in program.calls:
        # What runs in `main_process_first()` waits there, and nowhere inside.
        if _reads(call) and context.runs_in_training(call.node) and id(call.node) not in alone:
            reading[id(call.node)] = call, paths.read(context, call)
    for call, file in reading.values():
        writes = {key for key, written in opened.items() if paths.are_same(file, written)}
        writes |= {key for key, written in saved.items() if _is_reread(call, file, written)}
        for statement in _places(context, call.node, writes, set()):
            if id(statement) not in found and not _after_barrier(context, statement, writes, found):
                what = f"{ast.unparse(call.node.func)}() reads {_WRITING}"
                found[id(statement)] = Reread(**context.place(statement), what=what)
    guards = list(acts)
    common = {key: it for key, it in reading.items() if all_pass(context, it[0].node, guards)}
    meetings = _meetings(context)
    for call in program.calls if common else ():
        if not _spoils(context, call) or not context.runs_in_training(call.node) or id(call.node) in alone:
            continue
        read = _spoiled(context, call, common)
        for place in _places(context, call.node, read, set(), meetings):
            statement = _before_guard(context, place, guards)
            if (
                id(statement) not in found
                and all_pass(context, statement, _others(context, guards, statement))
                and not _is_cached(context, statement, read)
                and not _after_barrier(context, statement, read, found)
            ):
                what = f"{ast.unparse(call.node.func)}() changes a file that other ranks may still be reading"
                found[id(statement)] = Reread(**context.place(statement), what=what)
    return tuple(found.values())


def _is_reread(call: Call, file: paths.File, written: paths.File) -> bool:
    """Whether a call may read what is saved all at once: one that loads such files reads what is not known, too."""
    return paths.are_same(file, written) or (bool(call.names & LOADS) and paths.may_be_same(file, written))


def _meetings(context: Context) -> set[int]:
    """Calls in which all processes wait for one another: backward passes, barriers."""
    barriers = (it.node for it in context.program.calls if "dp2ddp.runtime.barrier" in it.names)
    return {id(it) for it in (*context.backwards, *barriers)}


def _spoils(context: Context, call: Call) -> bool:
    """Whether a call writes a file, or takes one away."""
    if _only_appends(call) and not isinstance(context.program.parent(call.node), ast.withitem):
        return False  # opening it adds nothing yet
    takes = bool(call.names & REMOVES) and not _in_own_folder(context, call)
    return takes or any(_leaves(context, call, by_opening) for by_opening in (False, True))


def _only_appends(call: Call) -> bool:
    mode = call.argument("mode", 1) if call.names & OPENERS else None
    return isinstance(mode, ast.Constant) and "a" in str(mode.value)


def _spoiled(context: Context, call: Call, reading: dict[int, tuple[Call, paths.File]]) -> set[int]:
    """The calls that read what another one writes or takes away."""
    files, gone = [paths.written(context, call)], frozenset[str]()
    if call.names & REMOVES:
        files.append(paths.read(context, call))
        gone = files[0].spelled | files[1].spelled
    return {
        key
        for key, (reader, read) in reading.items()
        if any(paths.are_same(read, it) for it in files)
        or any(gone & _folders(context, it) for it in paths.given(reader))
    }


def _is_cached(context: Context, statement: ast.stmt, read: set[int]) -> bool:
    """Whether a process that finds a file may not come to a statement: rank 0 may have made it just now."""
    program = context.program
    asked = (it for it in program.ancestors(statement) if isinstance(it, ast.If | ast.While))
    block = program.block(statement)
    reading = (it for it in block[: block.index(statement)] if context.runs(it) & read)
    leaving = (inner for it in reading for inner in program.descendants(it))
    return any(_asks_files(context, it.test) for it in asked) or any(
        isinstance(it, ast.Return | ast.Continue | ast.Break) for it in leaving
    )


def _before_guard(context: Context, statement: ast.stmt, guards: list[Effect]) -> ast.stmt:
    """The statement before which all processes come to one that only the main process runs."""
    program = context.program
    while guard := next((it for it in guards if it.covers(program.anchor(statement))), None):
        around = (statement, *program.ancestors(statement))
        parts = [it for it in around if isinstance(it, ast.stmt)]
        if guard.kind == "test":
            statement = next(
                it for it in parts if isinstance(it, ast.If) and program.anchor(it.test) == guard.at
            )
            break
        outermost = [it for it in parts if guard.covers(program.anchor(it))][-1]
        return next(it for it in program.block(outermost) if program.anchor(it) == guard.at)
    return statement


def _leaves(context: Context, call: Call, by_opening: bool) -> bool:
    """Whether a call writes a file: all at once, or one that it opens for that."""
    if by_opening:
        texts = call.names & PATH_CONTENTS
        return bool(texts or opens_for_writing(call)) and not _in_own_folder(context, call)
    saves = call.names & SAVES or any(_writes_file(name) for name in call.names) or _fetches_by_shell(call)
    return bool(saves) and not _in_own_folder(context, call)


def _reads(call: Call) -> bool:
    """Whether a call reads a file, or opens one for that."""
    opens = call.names & OPENERS and not opens_for_writing(call)
    return bool(opens or call.names & (LOADS | READS))


def _writes_file(name: str) -> bool:
    return is_write(name) and name.startswith(LEAVES_FILES)


def _fetches_by_shell(call: Call) -> bool:
    """``os.system("wget …")``."""
    shell = any(name == "os.system" or name.startswith("subprocess.") for name in call.names)
    return (
        shell
        and bool(call.node.args)
        and any(word in ast.unparse(call.node.args[0]) for word in SHELL_FETCHES)
    )


def _places(
    context: Context, node: ast.AST, others: set[int], seen: set[int], meetings: Set[int] = frozenset()
) -> Iterator[ast.stmt]:
    """The statements before which all processes must wait: after one of ``others``, outside conditions.

    ``meetings``: calls in which all wait anyway.
    """
    program = context.program
    inside: ast.stmt = program.statement(node)
    branch = inside  # of conditions that are the same in all processes
    while True:
        block = program.block(inside)
        parent = program.parent(inside)
        index = block.index(inside)
        before, met = _since_meeting(context, block[:index], meetings)
        if not met and isinstance(parent, LOOPS):
            before += _since_meeting(context, block[index + 1 :], meetings)[0]
        if any(context.runs(other) & others for other in before):
            if not (_in_function(context, parent) and _any_before(context, parent, others)):
                yield branch
                return
        elif met:
            return
        elif isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            scope = program.by_node[id(parent)].index
            if scope not in seen:
                seen.add(scope)
                for call in context.callers.get(scope, ()):
                    if context.runs_in_training(call):
                        yield from _places(context, call, others, seen, meetings)
            return
        if not isinstance(parent, ast.stmt):
            return
        inside = parent
        if not (isinstance(parent, ast.If) and _is_option(context, parent.test)):
            branch = parent


def _is_option(context: Context, test: ast.expr) -> bool:
    """Whether a condition asks for options alone, which nothing sets later."""
    match test:
        case ast.UnaryOp(operand=operand):
            return _is_option(context, operand)
        case ast.BoolOp(values=values):
            return all(_is_option(context, it) for it in values)
        case ast.Compare(left=left, comparators=others):
            return all(_is_option(context, it) for it in (left, *others))
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return all(_is_option(context, it) for it in parts)
        case ast.Attribute(value=owner, attr=name):
            return name not in context.attribute_assignments and is_options(context, owner)
    return isinstance(test, ast.Constant)


def _since_meeting(
    context: Context, statements: list[ast.stmt], meetings: Set[int]
) -> tuple[list[ast.stmt], bool]:
    """The last of some statements, from where all processes have waited for one another; whether they have."""
    for index in range(len(statements) - 1, -1, -1) if meetings else ():
        # What stands under a condition of its own may be left out
        if not isinstance(statements[index], ast.If) and context.runs(statements[index]) & meetings:
            return statements[index + 1 :], True
    return statements, False


def _others(context: Context, guards: list[Effect], statement: ast.stmt) -> list[Effect]:
    """The guards but the one that begins with a statement."""
    first = (statement, statement.test) if isinstance(statement, ast.If) else (statement,)
    own = {context.program.anchor(it) for it in first}
    return [it for it in guards if it.at not in own]


def _following(context: Context, node: ast.AST, seen: set[int]) -> Iterator[ast.stmt]:
    """The statements that follow one, outside conditions, loops and blocks, in its function or in what calls that."""
    program = context.program
    inside: ast.stmt = program.statement(node)
    while not _is_body(program.parent(inside)):
        inside = program.parent(inside)  # type: ignore[assignment]
    block = program.block(inside)
    rest = block[block.index(inside) + 1 :]
    scope = program.scope(inside).index
    if rest:
        yield rest[0]
    elif scope not in seen:
        seen.add(scope)
        for call in _trained_callers(context, inside):
            yield from _following(context, call, seen)


def _is_body(node: ast.AST | None) -> bool:
    """Whether the statements in a node are those of a function, module or program."""
    return not isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case) or (
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        or (isinstance(node, ast.If) and is_main_guard(node.test))
    )


def _in_function(context: Context, node: ast.AST) -> bool:
    return isinstance(node, ast.If) and not is_main_guard(node.test)


def _any_before(context: Context, statement: ast.stmt, writes: set[int]) -> bool:
    block = context.program.block(statement)
    return any(context.runs(other) & writes for other in block[: block.index(statement)])


def _after_barrier(context: Context, statement: ast.stmt, writes: set[int], waiting: Container[int]) -> bool:
    """Whether all have waited, or will at a statement in ``waiting``, since something was written in this block.

    Or in that round it, where an option leads from there to here.
    """
    block = context.program.block(statement)
    for before in reversed(block[: block.index(statement)]):
        if _is_barrier(context, before):
            return True
        if context.runs(before) & writes:
            return False
        if id(before) in waiting:
            return True
    parent = context.program.parent(statement)
    if isinstance(parent, ast.If) and _is_option(context, parent.test):
        return id(parent) in waiting or _after_barrier(context, parent, writes, waiting)
    return False


def _is_barrier(context: Context, statement: ast.stmt) -> bool:
    """``ddp.barrier()``."""
    call = context.program.call(statement.value) if isinstance(statement, ast.Expr) else None
    return call is not None and "dp2ddp.runtime.barrier" in call.names
