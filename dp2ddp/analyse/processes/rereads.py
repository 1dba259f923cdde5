"""Where all processes wait: before a file is read that one of them has written, or written that all have read."""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Iterable, Iterator, Set
from dataclasses import dataclass, replace

from dp2ddp.analyse.api.downloads import UNPACKS
from dp2ddp.analyse.api.files import (
    COPIES_FILES,
    COPIES_FOLDERS,
    FOLDER_SETS,
    LISTS_FOLDER,
    LISTS_PATHS,
    LOADS,
    LOADS_BINARY,
    MAKES_EMPTY,
    READS_PICTURES,
    REMOVES,
    WALKS_FOLDERS,
    WRITERS,
    WRITTEN_BY,
    has_known_home,
)
from dp2ddp.analyse.context import LOOPS, Context, is_main_guard
from dp2ddp.analyse.processes import agreements, commands, paths
from dp2ddp.analyse.processes.alike import in_worker, works
from dp2ddp.analyse.processes.counters import is_alike
from dp2ddp.analyse.processes.downloads import (
    asks_files,
    caching,
    is_fetch,
    is_inside,
    made_first,
    trained_callers,
)
from dp2ddp.analyse.processes.effects import all_pass, covered
from dp2ddp.analyse.processes.exclusions import Condition, may_come
from dp2ddp.analyse.processes.folders import (
    around,
    ends_after,
    in_own_folder,
    is_own,
    may_meet,
    with_folders,
)
from dp2ddp.analyse.processes.writes import (
    leaves_any_file,
    leaves_file,
    leaves_picture,
    only_appends,
    reads_file,
    writes_text,
)
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.facts import Effect, Reread
from dp2ddp.plan import elsewhere

MOST_PLACES = 3
"""How many places wait for one that reads; where it is come to from more, it waits itself."""
_LISTS = LISTS_FOLDER | WALKS_FOLDERS | FOLDER_SETS
_READS_FOLDERS = (_LISTS - LISTS_PATHS) | COPIES_FOLDERS
"""What reads all that is in the folder that it is given."""
_MAKERS = MAKES_EMPTY | WRITERS
"""What makes folders, or empty files, which matter only to what lists the folder."""
_WRITING = "what rank 0 may still be writing"


def collect(context: Context, whole: Context, acts: tuple[Effect, ...]) -> tuple[Reread, ...]:
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
    first = made_first(context)  # what is written there is there for all who come out of it
    saved, opened = (
        {
            id(it.node): paths.written(context, it)
            for it in program.calls
            if leaves_file(context, it, by_opening) and not first.covers(it.node)
        }
        for by_opening in (False, True)
    )
    told = {
        id(it.node): commands.written(context, it)
        for it in program.calls
        if commands.runs(it) and context.runs_in_training(it.node) and not first.covers(it.node)
    }
    opened |= told
    alone = set().union(
        *(context.runs(call.node) for call in program.calls if is_fetch(context, call)), set()
    )
    found: dict[int, Reread] = {}
    unpacks = [
        it
        for it in program.calls
        if (it.names & UNPACKS or commands.unpacks(context, it))
        and context.runs_in_training(it.node)
        and id(it.node) not in alone
    ]
    cached = caching(context) if alone else set()

    def is_waited_for(node: ast.AST) -> bool:
        """Whether only what waits as a whole comes to a place."""
        return id(node) in alone and (first.covers(node) or is_inside(context, node, cached))

    for call in unpacks:
        # What is unpacked is read by paths that nothing here names: all wait at once.
        if not in_own_folder(context, call) and not is_inside(context, call.node, cached):
            ended = commands.ends(context, call)
            for statement in (place for it in ended for place in _following(context, it, set())):
                if not _is_barrier(context, statement):
                    what = f"other ranks can get here before rank 0 has finished {_shown(context, call, statement)}"
                    found[id(statement)] = Reread(**context.place(statement), what=what)
    guards = list(acts)
    meetings = _meetings(context)
    reading: dict[int, _Access] = {}
    for call in program.calls:
        # What runs in `main_process_first()` waits there, and nowhere inside.
        if context.runs_in_training(call.node) and not is_waited_for(call.node):
            if _reads_shared(context, call):
                reading[id(call.node)] = _reading(context, call)
    looking = {
        id(it.node): _reading(context, it)
        for it in program.calls
        if (
            id(it.node) in reading
            or (it.names & (_LISTS | READS_PICTURES) and not in_own_folder(context, it))
        )
        and not is_waited_for(it.node)
        and context.runs_in_training(it.node)
        and not in_worker(context, it.node)
        and _come_together(context, it.node, guards)
        and not _is_for_main(context, it, guards)
    }
    written = [*opened.values(), *saved.values()]
    beside = _left_beside(context, first.covers)
    inside = {folder for access in beside.values() for folder in access.folders}
    makers = {
        id(it.node): _writing(context, it)
        for it in program.calls
        if it.names & _MAKERS and context.runs_in_training(it.node) and not first.covers(it.node)
    }
    leading = agreements.listed(context, guards) if makers else frozenset[int]()
    by_main = {key: it for key, it in makers.items() if covered(context, it.call.node, guards)}
    removed = {
        id(it.node): _writing(context, it)
        for it in program.calls
        if it.names & REMOVES
        and context.runs_in_training(it.node)
        and not first.covers(it.node)
        and not in_own_folder(context, it)
    }
    handed_on = {
        id(it.node): _Access(it, file, frozenset(), tuple(paths.given(it)))
        for it in program.calls
        if id(it.node) not in {**looking, **reading}
        and context.runs_in_training(it.node)
        and (file := _handed_on(context, it, written, inside)) is not None
        and not is_waited_for(it.node)
        and not in_worker(context, it.node)
        and _come_together(context, it.node, guards)
    }
    reading |= handed_on
    needed: dict[int, tuple[ast.stmt, Call, set[int]]] = {}
    saving = {id(it.node): it for it in program.calls if id(it.node) in saved}
    for key, access in {**looking, **reading}.items():
        call, file = access.call, access.file
        writes = set[int]()
        if key in reading:
            writes |= {key for key, written in opened.items() if paths.are_same(file, written)}
            writes |= {key for key, written in saved.items() if _is_reread(call, file, saving[key], written)}
        if key in handed_on:
            writes |= {key for key, access in beside.items() if access.folders & file.spelled}
        filled = {it for it, command in told.items() if access.folders & command.spelled}
        if key in reading and key not in looking:
            writes |= filled
        writes.discard(key)
        places = list(_places(context, call.node, writes, set()))
        if key in looking:
            more = {key for key, written in beside.items() if _may_read(context, access, written)}
            more |= filled - {key}
            if call.names & _LISTS:
                more |= {it for it, made in by_main.items() if _needs(access, made)}
                more |= {it for it, gone in removed.items() if _may_read(context, access, gone)}
            if key in leading:
                more |= {it for it, made in by_main.items() if _may_read(context, access, made)}
            later = _places(context, call.node, more, set(), meetings)
            if later := [it for it in later if _come_together(context, it, guards)]:
                places += later
                writes |= more
        for statement in _few(context, call.node, places, guards):
            statement = _before_looks(context, statement, call, writes)
            place = needed.setdefault(id(statement), (statement, call, set()))
            place[2].update(writes)
    outside = {key for key, (statement, *_) in needed.items() if not _in_work(context, statement)}
    # From above: where all have waited, they need not again below.
    for key in sorted(needed, key=lambda key: program.order[key]):
        statement, call, writes = needed[key]
        if _in_work(context, statement) and all(
            _waited_for(context, program.nodes[it], statement, outside) for it in writes
        ):
            continue
        if key not in found and not _after_barrier(context, statement, writes, found):
            what = f"{_shown(context, call, statement)} reads {_WRITING}"
            found[key] = Reread(**context.place(statement), what=what)
    common = {**looking, **reading}
    common = {key: it for key, it in common.items() if _come_together(context, it.call.node, guards)}
    for call in program.calls if common else ():
        spoils = id(call.node) in makers or _spoils(context, call)
        if not spoils or not context.runs_in_training(call.node) or id(call.node) in alone:
            continue
        read = _spoiled(context, call, common, leading)
        places = _few(context, call.node, _places(context, call.node, read, set(), meetings), guards)
        for place in _beside_wait(context, call, places, found):
            statement = _before_guard(context, place, guards)
            if (
                id(statement) not in found
                and _come_together(context, statement, _others(context, guards, statement))
                and not _is_cached(context, statement, read)
                and not _after_barrier(context, statement, read, found)
            ):
                what = "a folder" if id(call.node) in makers else "a file"
                what = (
                    f"{_shown(context, call, statement)} changes {what} that other ranks may still be reading"
                )
                found[id(statement)] = Reread(**context.place(statement), what=what)
    return tuple(found.values())


@dataclass(frozen=True)
class _Access:
    """A call that reads or writes: the file, the folders that this is in, as they are spelled, and what names it."""

    call: Call
    file: paths.File
    folders: frozenset[str]
    given: tuple[ast.expr, ...]


def _reads_shared(context: Context, call: Call) -> bool:
    """Whether a call reads a file that is not this process's own, be it to copy it into one of its own."""
    if in_own_folder(context, call):
        copies = any(it.startswith(COPIES_FILES) for it in call.names)
        return copies and not any(is_own(context, it) for it in call.node.args[:1])
    return reads_file(call)


def _reading(context: Context, call: Call) -> _Access:
    copies = any(it.startswith(COPIES_FILES) for it in call.names)
    found = _access(context, call, call.node.args[:1] if copies else paths.given(call))
    if call.names & _READS_FOLDERS:  # all that is in it
        return replace(
            found, file=paths.File(None, found.file.spelled), folders=found.folders | found.file.spelled
        )
    return found


def _writing(context: Context, call: Call) -> _Access:
    return _access(context, call, paths.given(call))


def _taking(context: Context, call: Call) -> _Access:
    """What a call takes away: what it moves, not the place where it moves that."""
    return _access(context, call, paths.taken(call))


def _access(context: Context, call: Call, given: list[ast.expr]) -> _Access:
    folders = frozenset[str]().union(*(around(context, it) for it in given))
    return _Access(call, paths.file(context, given), folders, tuple(given))


def _left_beside(context: Context, is_first: Callable[[ast.AST], bool]) -> dict[int, _Access]:
    """The calls that write whole files, but where one process of each machine does that first."""
    return {
        id(it.node): _writing(context, it)
        for it in context.program.calls
        if context.runs_in_training(it.node)
        and (leaves_any_file(context, it) or leaves_picture(context, it))
        and not only_appends(it)
        and not is_first(it.node)
        and not in_worker(context, it.node)
    }


def _few(context: Context, node: ast.AST, places: Iterable[ast.stmt], guards: list[Effect]) -> list[ast.stmt]:
    """Where all wait: at these places; at the node itself, where those are many, or come by at every step.

    It has many if it is run by the name of an event.
    """
    found = list(places)
    several = len({id(it) for it in found}) > MOST_PLACES or (
        len(found) > 1 and any(_in_work(context, it) for it in found)
    )
    alone = several and _come_together(context, node, guards) and not in_worker(context, node)
    return [_before_opening(context, node)] if alone and _asks_nothing(context, node, set()) else found


def _before_opening(context: Context, node: ast.AST) -> ast.stmt:
    """The statement of a place, or the outermost that opens what it works with: ``with open(path, "w") as file:``."""
    statement = context.program.statement(node)
    while isinstance(around := context.program.parent(statement), ast.With):
        statement = around
    return statement


def _in_work(context: Context, node: ast.AST) -> bool:
    """Whether a place is come by at every step of a loop that trains, or at every batch."""
    return any(isinstance(it, ast.For) and works(context, it) for it in context.program.ancestors(node))


def _beside_wait(
    context: Context, call: Call, places: list[ast.stmt], waiting: Container[int]
) -> list[ast.stmt]:
    """Where all wait for what others read before it is written again: beside a place where they wait afterwards."""
    statement = _before_opening(context, call.node)
    block = context.program.block(statement)
    for following in block[block.index(statement) + 1 :] if places else ():
        if id(following) in waiting:
            return [statement]
        if _leaves(following):
            break
    return places


def _waited_for(
    context: Context,
    node: ast.AST,
    place: ast.stmt,
    waiting: Container[int],
    seen: frozenset[int] = frozenset(),
) -> bool:
    """Whether all wait after something is written, each time and before any comes to a place: at one in ``waiting``."""
    program = context.program
    inside: ast.stmt = program.statement(node)
    while id(place) not in context.runs(inside):
        block = program.block(inside)
        for following in block[block.index(inside) + 1 :]:
            if id(following) in waiting:
                return True
            if id(place) in context.runs(following) or _leaves(following):
                return False
        parent = program.parent(inside)
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            scope = program.by_node[id(parent)].index
            calls = [it for it in context.callers.get(scope, ()) if context.runs_in_training(it)]
            return (
                scope not in seen
                and bool(calls)
                and all(_waited_for(context, it, place, waiting, seen | {scope}) for it in calls)
            )
        if not isinstance(parent, ast.stmt):
            return False
        inside = parent
    return False


def _leaves(statement: ast.stmt) -> bool:
    """Whether what follows a statement may be left out."""
    return any(isinstance(it, ast.Return | ast.Continue | ast.Break) for it in ast.walk(statement))


def _before_looks(context: Context, statement: ast.stmt, call: Call, writes: set[int]) -> ast.stmt:
    """Where all wait before a call reads: before the names of files are looked up that its path is made of."""
    program, found = context.program, statement
    block = program.block(statement)
    waiting: list[ast.AST] = [*paths.given(call)]
    seen = set[int]()
    while waiting:
        names = (it for it in program.descendants(waiting.pop()) if isinstance(it, ast.Name))
        for made in (made for it in names for made in program.definitions(it)):
            before = program.statement(made) if id(made) not in seen else statement
            seen.add(id(made))
            if before not in block or block.index(before) >= block.index(statement):
                continue
            waiting.append(before)
            between = block[block.index(before) : block.index(found)]
            if _looks_up(context, before) and not any(context.runs_one_of(it, writes) for it in between):
                found = before
    return found


def _looks_up(context: Context, statement: ast.stmt) -> bool:
    """Whether a statement itself lists a folder."""
    calls = (context.program.call(it) for it in context.program.descendants(statement))
    return any(it is not None and it.names & _LISTS for it in calls)


def _asks_nothing(context: Context, node: ast.AST, seen: set[int]) -> bool:
    """Whether no condition on the way to a place calls anything: a file that is there for one may not be for all."""
    program = context.program
    for outer in program.ancestors(node):
        if isinstance(outer, ast.If | ast.While | ast.IfExp):
            if any(isinstance(it, ast.Call) for it in ast.walk(outer.test)):
                return False
    scope = program.scope(node).index
    if scope in seen:
        return True
    seen.add(scope)
    calls = (it for it in context.callers.get(scope, ()) if context.runs_in_training(it))
    return all(_asks_nothing(context, it, seen) for it in calls)


def _handed_on(
    context: Context, call: Call, written: list[paths.File], inside: Set[str]
) -> paths.File | None:
    """What the program writes, and whose path something unknown is given that answers: it may read it.

    ``inside``: the folders in which the program writes, as they are spelled.
    """
    func = call.node.func
    unused = not call.names and isinstance(context.program.parent(call.node), ast.Expr)
    makes_text = isinstance(func, ast.Attribute) and hasattr(str, func.attr)
    if unused or makes_text or has_known_home(call.names) or context.program.entered(call.node):
        return None
    files = (paths.file(context, [it]) for it in handed(call.node) if not isinstance(it, ast.Starred))
    return next(
        (it for it in files if it.spelled & inside or any(paths.are_same(it, other) for other in written)),
        None,
    )


def _may_read(context: Context, read: _Access, written: _Access) -> bool:
    """Whether a call may read what another writes: the same file, or one of a folder in which that is, too."""
    if read.call.names & LOADS_BINARY and writes_text(written.call):
        return False
    if paths.are_same(read.file, written.file):
        return True
    loads = read.call.names & LOADS
    readable = not loads or any(_can_read(it, written.call) for it in loads)
    if read.call.names & READS_PICTURES and not written.call.names & REMOVES:
        readable = leaves_picture(context, written.call)
    if not readable or not paths.may_be_same(read.file, written.file):
        return False
    return any(
        may_meet(*(_ends(context, it, folder) for it in (read, written)))
        for folder in read.folders & written.folders
    )


def _needs(read: _Access, made: _Access) -> bool:
    """Whether a call fails without a folder that another makes: not what lists paths, which finds nothing then."""
    return not read.call.names & LISTS_PATHS and bool(read.folders & made.file.spelled)


def _ends(context: Context, access: _Access, folder: str) -> frozenset[str]:
    return frozenset().union(*(ends_after(context, it, folder) for it in access.given))


def _come_together(context: Context, node: ast.AST, guards: list[Effect]) -> bool:
    """Whether every process comes to a place if one does: also where all handle the same exception."""
    return all_pass(context, node, guards, handled=True)


def _is_for_main(context: Context, call: Call, guards: list[Effect]) -> bool:
    """Whether only the main process does anything by what a call lists: what the others find is no matter."""
    program, statement = context.program, context.program.statement(call.node)
    if not call.names & _LISTS or not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target = statement.targets[0]
    uses = [
        it
        for it in ast.walk(program.file(target).tree)
        if isinstance(it, ast.Name) and isinstance(it.ctx, ast.Load) and target in program.definitions(it)
    ]
    return isinstance(target, ast.Name) and bool(uses) and all(_uses_main(context, it, guards) for it in uses)


def _uses_main(context: Context, node: ast.AST, guards: list[Effect]) -> bool:
    """Whether only the main process does anything by a value here: also as what a loop goes through for that."""
    if covered(context, node, guards):
        return True
    loop = context.program.statement(node)
    return (
        isinstance(loop, ast.For)
        and not loop.orelse
        and any(it is node for it in ast.walk(loop.iter))
        and all(
            covered(context, part, guards)
            or (isinstance(part, ast.If) and not part.orelse and covered(context, part.test, guards))
            for part in loop.body
        )
    )


def _shown(context: Context, call: Call, statement: ast.stmt) -> str:
    """A call, with its place where that is not in the lines of the statement that waits."""
    at, here = context.program.location(call.node), context.program.location(statement)
    return f"`{ast.unparse(call.node.func)}()`{elsewhere(at, here)}"


def _is_reread(call: Call, file: paths.File, writing: Call, written: paths.File) -> bool:
    """Whether a call may read what another saves: one that loads what that writes reads what is not known, too."""
    loads = paths.may_be_same(file, written) and any(_can_read(it, writing) for it in call.names & LOADS)
    return loads or paths.are_same(file, written)


def _can_read(name: str, writing: Call) -> bool:
    """Whether a function can read what a call writes: its own format, and what is only copied or fetched there."""
    formats = (it for names in WRITTEN_BY.values() for it in names)
    known = all(it.startswith(tuple(formats)) for it in writing.names)
    return not known or any(it.startswith(WRITTEN_BY[name]) for it in writing.names)


def _meetings(context: Context) -> set[int]:
    """Calls in which all processes wait for one another: backward passes, barriers."""
    barriers = (it.node for it in context.program.calls if "dp2ddp.runtime.barrier" in it.names)
    return {id(it) for it in (*context.backwards, *barriers)}


def _spoils(context: Context, call: Call) -> bool:
    """Whether a call writes a file, or takes one away."""
    if only_appends(call) and not isinstance(context.program.parent(call.node), ast.withitem):
        return False  # opening it adds nothing yet
    takes = bool(call.names & REMOVES) and not in_own_folder(context, call)
    return takes or leaves_any_file(context, call) or commands.removes(context, call)


def _spoiled(context: Context, call: Call, reading: dict[int, _Access], leading: Set[int]) -> set[int]:
    """The calls that read what another one writes or takes away, or list a folder that this is taken from.

    Or that list a folder which it changes, where what all read depends on the listing (``leading``).
    """
    files, gone, own = [paths.written(context, call)], frozenset[str](), _writing(context, call)
    taken = list[_Access]()
    if call.names & REMOVES:
        files.append(paths.read(context, call))
        gone = files[0].spelled | files[1].spelled
        taken.append(_taking(context, call))
    elif commands.removes(context, call):
        files.append(commands.told(context, call))
        gone = files[1].spelled
    return {
        key
        for key, access in reading.items()
        if any(paths.are_same(access.file, it) for it in files)
        or any(gone & with_folders(context, it) for it in access.given)
        or any(_may_read(context, access, it) for it in taken)
        or (key in leading and _may_read(context, access, own))
    }


def _is_cached(context: Context, statement: ast.stmt, read: set[int]) -> bool:
    """Whether a process that finds a file may not come to a statement: rank 0 may have made it just now."""
    program = context.program
    asked = (it for it in program.ancestors(statement) if isinstance(it, ast.If | ast.While))
    block = program.block(statement)
    reading = (it for it in block[: block.index(statement)] if context.runs_one_of(it, read))
    leaving = (inner for it in reading for inner in program.descendants(it))
    return any(asks_files(context, it.test) for it in asked) or any(
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


def _places(
    context: Context, node: ast.AST, others: set[int], seen: set[object], meetings: Set[int] = frozenset()
) -> Iterator[ast.stmt]:
    """The statements before which all processes must wait: after one of ``others``, outside conditions.

    ``meetings``: calls in which all wait anyway.
    """
    program = context.program
    inside: ast.stmt = program.statement(node)
    branch = inside  # of conditions that are the same in all processes
    if within := list(_written_within(context, node, inside, others)):
        yield from within
        return
    conditions: tuple[Condition, ...] = ()
    while True:
        block = program.block(inside)
        parent = program.parent(inside)
        index = block.index(inside)
        before, met = _since_meeting(context, block[:index], meetings)
        if not met and isinstance(parent, LOOPS):  # of the round before: what follows, and what this then did
            before += _since_meeting(context, block[index:], meetings)[0]
        if any(context.runs_one_of(other, others) for other in before):
            yield branch
            return
        if met:
            return
        if any(context.runs_one_of(other, others) for other in _done_before(parent, block)):
            yield branch
            return
        for header in _headers(parent):
            if context.runs_one_of(header, others):
                after = list(_after_writing(context, header, others, set()))
                if after or isinstance(parent, LOOPS):
                    yield from after or [branch]
                    return
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            scope = program.by_node[id(parent)].index
            if (scope, conditions) not in seen:
                seen.add((scope, conditions))
                for call in context.callers.get(scope, ()):
                    if context.runs_in_training(call) and may_come(context, call, scope, conditions):
                        yield from _places(context, call, others, seen, meetings)
            return
        if not isinstance(parent, ast.stmt):
            return
        if isinstance(parent, ast.If):
            conditions = (*conditions, (parent.test, inside in parent.body))
        inside = parent
        if not (isinstance(parent, ast.If) and is_alike(context, parent.test)):
            branch = parent


def _written_within(
    context: Context, node: ast.AST, statement: ast.stmt, others: set[int]
) -> Iterator[ast.stmt]:
    """Where all wait if a statement itself runs one of ``others`` before a place in it: where that is done."""
    program = context.program
    before = (it for it in program.descendants(statement) if isinstance(it, ast.Call) and it is not node)
    end = (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
    for call in before:
        if (call.end_lineno, call.end_col_offset) <= end and program.statement(call) is statement:
            for key in sorted(context.runs(call) & others):
                place = next(_following(context, program.nodes[key], set()), None)
                if place is not None and program.scope(place) is not program.scope(statement):
                    yield place


def _done_before(parent: ast.AST | None, block: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of a compound one that are done when one of its blocks begins."""
    match parent:
        case ast.Try() if block is parent.orelse:
            return parent.body
        case ast.Try() if block is parent.finalbody:
            return [*parent.body, *parent.orelse, *(it for some in parent.handlers for it in some.body)]
        case ast.For() | ast.AsyncFor() | ast.While() if block is parent.orelse:
            return parent.body
    return []


def _headers(parent: ast.AST | None) -> list[ast.expr]:
    """What a compound statement computes before its blocks begin."""
    match parent:
        case ast.For() | ast.AsyncFor():
            return [parent.iter]
        case ast.If() | ast.While():
            return [parent.test]
        case ast.Match():
            return [parent.subject]
        case ast.With() | ast.AsyncWith():
            return [it.context_expr for it in parent.items]
    return []


def _after_writing(context: Context, node: ast.AST, others: set[int], seen: set[int]) -> Iterator[ast.stmt]:
    """The statements before which all wait in the functions that a header calls: ``for fold in write_folds():``."""
    program = context.program
    for call in program.descendants(node):
        for index in sorted(program.called_scopes(call)) if isinstance(call, ast.Call) else ():
            scope = program.scopes[index]
            writing = [number for number, it in enumerate(scope.body) if context.runs_one_of(it, others)]
            if index in seen or not writing or not _is_plain(scope.node):
                continue
            seen.add(index)
            if writing[-1] + 1 < len(scope.body):
                yield scope.body[writing[-1] + 1]
            elif isinstance(scope.body[-1], ast.Expr | ast.Return | ast.Assign):
                yield from _after_writing(context, scope.body[-1], others, seen)


def _is_plain(function: ast.AST) -> bool:
    """Whether a function has ended when its call has: not a lambda, which has no statements, nor a generator."""
    yields = (ast.Yield, ast.YieldFrom)
    return isinstance(function, ast.FunctionDef) and not any(
        isinstance(it, yields) for it in ast.walk(function)
    )


def _since_meeting(
    context: Context, statements: list[ast.stmt], meetings: Set[int], seen: frozenset[int] = frozenset()
) -> tuple[list[ast.stmt], bool]:
    """The last of some statements, from where all processes have waited for one another; whether they have."""
    for index in range(len(statements) - 1, -1, -1) if meetings else ():
        # What stands under a condition of its own may be left out
        if not isinstance(statements[index], ast.If) and context.runs_one_of(statements[index], meetings):
            within = _after_meeting(context, statements[index], meetings, seen)
            return [*within, *statements[index + 1 :]], True
    return statements, False


def _after_meeting(
    context: Context, statement: ast.stmt, meetings: Set[int], seen: frozenset[int]
) -> Iterator[ast.stmt]:
    """What a statement in which all wait does after that: a loop that saves in the end of its last round."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    names = ("body", "cases", "handlers", "orelse", "finalbody")
    blocks = [it for name in names for it in getattr(statement, name, ())]
    if blocks:
        parts = [part for it in blocks for part in ([it] if isinstance(it, ast.stmt) else it.body)]
        yield from _since_meeting(context, parts, meetings, seen)[0]
        return
    for index in sorted(context.program.called_scopes(statement) - seen):
        scope = context.program.scopes[index]
        if _is_plain(scope.node):
            yield from _since_meeting(context, scope.body, meetings, seen | {index})[0]


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
        for call in trained_callers(context, inside):
            yield from _following(context, call, seen)


def _is_body(node: ast.AST | None) -> bool:
    """Whether the statements in a node are those of a function, module or program."""
    return not isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case) or (
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        or (isinstance(node, ast.If) and is_main_guard(node.test))
    )


def _after_barrier(context: Context, statement: ast.stmt, writes: set[int], waiting: Container[int]) -> bool:
    """Whether all have waited, or will at a statement in ``waiting``, since something was written in this block.

    Or in that round it, where a condition that is alike leads from there to here.
    """
    block = context.program.block(statement)
    for before in reversed(block[: block.index(statement)]):
        if _is_barrier(context, before):
            return True
        if context.runs_one_of(before, writes):
            return False
        if id(before) in waiting:
            return True
    parent = context.program.parent(statement)
    if isinstance(parent, ast.If) and is_alike(context, parent.test):
        return id(parent) in waiting or _after_barrier(context, parent, writes, waiting)
    return False


def _is_barrier(context: Context, statement: ast.stmt) -> bool:
    """``ddp.barrier()``."""
    call = context.program.call(statement.value) if isinstance(statement, ast.Expr) else None
    return call is not None and "dp2ddp.runtime.barrier" in call.names
