"""What a call writes: files, folders, logs, plots, trackers."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from functools import cache

from dp2ddp.analyse.api.downloads import SHELL_FETCHES, UNPACKS
from dp2ddp.analyse.api.files import (
    ANSWERS_OF_COMMANDS,
    BUILTIN_OPENERS,
    CHANGES_STORE,
    DATABASES,
    FILE_MODE,
    JOINS_PATHS_AS,
    KEY_STORES,
    LEAVES_FILES,
    LOADS,
    MAKES_DATABASES,
    MODES,
    NOWHERE,
    ONLY_ANSWERS,
    OPENERS,
    OTHER_VERBS,
    PATH_CONTENTS,
    PATH_OPENERS,
    READS,
    READS_ROWS,
    SAVES,
    STATEMENTS,
    TRACKERS,
    VERBS,
    WRITERS,
    WRITES,
    WRITES_LINES,
    WRITES_ROWS,
    WRITING_ANYWAY,
    WRITING_DATA,
    WRITING_METHODS,
    WRITTEN_PATHS,
    Mode,
)
from dp2ddp.analyse.context import Context, once
from dp2ddp.analyse.processes.folders import in_own_folder
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.values import Bound, Const, Func, Made


@cache
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


@cache
def is_listed(name: str) -> bool:
    """Whether what a name stands for writes, whatever it is given."""
    return name in WRITES | UNPACKS or any(entry.endswith(".") and name.startswith(entry) for entry in WRITES)


def opens_for_writing(call: Call) -> bool:
    """Whether a call may open a file for writing: an unknown mode counts."""
    if _is_nowhere(call):
        return False
    if call.names & OPENERS:
        place = 0 if any(name.startswith("pathlib.") for name in call.names) else 1
        return _writes_by_mode(call, replace(FILE_MODE, place=place))
    return any(_writes_by_mode(call, MODES[name]) for name in call.names & MODES.keys())


def _is_nowhere(call: Call) -> bool:
    """``open(os.devnull, "w")``."""
    file = call.argument("file", 0)
    return isinstance(file, ast.expr) and ast.unparse(file) in NOWHERE


def is_writer(context: Context, call: Call) -> bool:
    """Whether a call makes something that writes whenever it is used, if not by Python's own ``open``."""
    if call.names & WRITERS:
        return not in_own_folder(context, call)
    if not call.names & MODES.keys() or not opens_for_writing(call) or in_own_folder(context, call):
        return False
    return not call.names <= KEY_STORES.keys() or _is_stored_into(context, call)


def _is_stored_into(context: Context, call: Call) -> bool:
    """Whether the program puts something into a store that it opens, ``shelve.open(path)``, and not only reads it."""
    for node in context.program.nodes.values():
        match node:
            case ast.Subscript(ctx=ast.Store() | ast.Del(), value=store):
                pass
            case ast.Call(func=ast.Attribute(value=store, attr=method)) if method in CHANGES_STORE:
                pass
            case _:
                continue
        if any(isinstance(it, Made) and it.site == id(call.node) for it in context.program.values(store)):
            return True
    return False


def _writes_by_mode(call: Call, mode: Mode) -> bool:
    """Whether a call opens for writing, as its mode says: one that is not known counts."""
    given = call.argument(mode.keyword, mode.place)
    if isinstance(given, ast.Constant) and isinstance(given.value, str):
        letters, *_ = re.split("[:|]", given.value)  # "r:xz" reads what is compressed
        return bool(set(mode.writes) & set(letters))
    return given is not None or bool(set(mode.writes) & set(mode.default))


def is_open(context: Context, call: Call) -> bool:
    """Whether a call is Python's ``open``, or a path's, of a file that may be written to."""
    plain = call.names & (BUILTIN_OPENERS | PATH_OPENERS)
    return bool(plain) and opens_for_writing(call) and not in_own_folder(context, call)


@once
def is_write_call(context: Context, node: ast.AST) -> bool:
    """Whether a call writes, by itself: not into a file that is open already."""
    call = context.program.call(node) if isinstance(node, ast.Call) else None
    if call is None:
        return False
    if isinstance(call.node.func, ast.Attribute) and _writes_anyway(call):
        return not (_is_own(call) or in_own_folder(context, call) or _into_open_file(context, call))
    if _is_of_database(call):
        return _changes_rows(context, call)
    if call.names == {"logging.basicConfig"}:
        return call.argument("filename", 0) is not None
    if (
        not call.names
        or call.names & WRITERS
        or in_own_folder(context, call)
        or _into_open_file(context, call)
    ):
        return False
    if call.names & ANSWERS_OF_COMMANDS and isinstance(context.program.parent(call.node), ast.Expr):
        return True  # run for what it does: nobody takes what it says
    written = any(is_plain_write(name) for name in call.names)
    return written and not (_hands_text_back(context, call) and not any(map(_is_path, handed(call.node))))


def _is_of_database(call: Call) -> bool:
    return bool(call.names) and all(name.startswith(DATABASES) for name in call.names)


def _changes_rows(context: Context, call: Call) -> bool:
    """``connection.execute("INSERT …")``: a statement whose answer nobody asks for, and that is known to do more."""
    method = next(iter(call.names)).rpartition(".")[2]
    if method not in STATEMENTS or not isinstance(context.program.parent(call.node), ast.Expr):
        return False
    texts = context.program.values(call.node.args[0]) if call.node.args else frozenset()
    read = [not isinstance(it, Const) or bool(READS_ROWS.match(str(it.value))) for it in texts]
    return not any(read) and (bool(read) or not call.node.args)


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


def is_plain_write(name: str) -> bool:
    """Whether a call writes that is neither a tracker's nor a writer's: these are stand-ins on the other ranks."""
    return is_write(name) and not is_of_writer(name)


@cache
def is_of_writer(name: str) -> bool:
    """Whether a full name is a tracker's, or that of a writer's method: the main process alone has such a thing."""
    return name.startswith(tuple(f"{it}." for it in (*TRACKERS, *WRITERS)))


@once
def _into_open_file(context: Context, call: Call) -> bool:
    """Whether a call is of an open file, or is given one: on the other ranks that leads nowhere."""
    if call.names & UNPACKS:
        return False
    owners = [getattr(callee, "owner", None) for callee in call.callees]
    given = [value for argument in handed(call.node) for value in context.program.values(argument)]
    opened = OPENERS | MODES.keys()
    return any(isinstance(it, Made) and it.name in opened for it in (*owners, *given))


def is_line_written(context: Context, call: Call) -> bool:
    """Whether a call writes into a file that is open already: ``file.write(text)``, ``rows.writerow(row)``."""
    writes = isinstance(call.node.func, ast.Attribute) and call.node.func.attr in WRITES_LINES
    rows = any(name.startswith(WRITES_ROWS) for name in call.names)
    return writes and (rows or _into_open_file(context, call))


@cache
def is_of_tracker(name: str) -> bool:
    """Whether a full name is a tracker's, or of one."""
    return (
        name.startswith(tuple(f"{tracker}." for tracker in TRACKERS)) and name.rstrip(".") not in ONLY_ANSWERS
    )


def only_appends(call: Call) -> bool:
    mode = call.argument("mode", 1) if call.names & OPENERS else None
    return isinstance(mode, ast.Constant) and "a" in str(mode.value)


def leaves_any_file(context: Context, call: Call) -> bool:
    """Whether a call writes a file, at once or by opening it."""
    return any(leaves_file(context, call, by_opening) for by_opening in (False, True))


def leaves_file(context: Context, call: Call, by_opening: bool) -> bool:
    """Whether a call writes a file: all at once; or one that it opens for that, or is told by name."""
    if by_opening:
        named = bool(call.names & PATH_CONTENTS) or _writes_to_given(call)
        opens = opens_for_writing(call) or bool(call.names & MAKES_DATABASES)
        return (named or opens) and not in_own_folder(context, call)
    saves = call.names & SAVES or any(_writes_file(name) for name in call.names) or _fetches_by_shell(call)
    saves = saves or (_is_of_database(call) and _changes_rows(context, call))
    return bool(saves) and not in_own_folder(context, call)


def leaves_picture(context: Context, call: Call) -> bool:
    """Whether a call writes a file that a program reads again in rare cases: a plot, a picture, a film."""
    func = call.node.func
    method = func.attr if isinstance(func, ast.Attribute) else ast.unparse(func)
    if any(_writes_file(it) for it in call.names) or call.names & SAVES:
        return False
    return bool(VERBS.match(method)) and is_write_call(context, call.node) and bool(handed(call.node))


def writes_text(call: Call) -> bool:
    """Whether a call opens a file for text."""
    if not call.names & (BUILTIN_OPENERS | PATH_OPENERS):
        return False
    mode = call.argument("mode", 0 if call.names & PATH_OPENERS else 1)
    return isinstance(mode, ast.Constant) and "b" not in str(mode.value)


def reads_file(call: Call) -> bool:
    """Whether a call reads a file, or opens one for that."""
    opens = call.names & (OPENERS | MODES.keys()) and not opens_for_writing(call)
    return bool(opens or call.names & (LOADS | READS))


def _writes_to_given(call: Call) -> bool:
    """``array.tofile("rows.bin")``, ``savemat("rows.mat", …)``: what writes to a path, whoever has it."""
    if any(name in WRITTEN_PATHS and not _writes_file(name) and name not in SAVES for name in call.names):
        return True
    func = call.node.func
    return isinstance(func, ast.Attribute) and func.attr in WRITING_DATA and not _is_own(call)


def _is_own(call: Call) -> bool:
    """Whether a function of the project is called."""
    return any(isinstance(callee, Func | Bound) for callee in call.callees)


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
