"""Where a program's ranks start: at the call of its main function, or at its first side effect."""

from __future__ import annotations

import ast
import copy
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from dp2ddp.analyse.answers import OPTION, is_options
from dp2ddp.analyse.branches import condition, is_start, subject
from dp2ddp.analyse.conditions import (
    AVAILABLE,
    COUNT,
    asks_for_gpus,
    assigned,
    is_call_of,
    is_cuda_string,
    is_main_guard,
)
from dp2ddp.analyse.context import Context, is_inserted
from dp2ddp.analyse.link import Bound, Call, Cls, Ext, Func, Inst, Scope, Value, full_name
from dp2ddp.facts import Problem, Script
from dp2ddp.plan import Anchor
from dp2ddp.source import SourceFile

# Calls that change nothing outside the process and draw no random numbers.
PURE = (
    "argparse.",
    "builtins.",
    "collections.",
    "colorama.",
    "configparser.",
    "dataclasses.",
    "easydict.",
    "enum.",
    "functools.",
    "inspect.",
    "itertools.",
    "json.load",
    "logging.getLogger",
    "math.",
    "matplotlib.use",
    "multiprocessing.cpu_count",
    "numpy.array",
    "omegaconf.",
    "os.chdir",
    "os.cpu_count",
    "os.environ",
    "os.getcwd",
    "os.getenv",
    "os.path.",
    "pathlib.",
    "pyhocon.",
    "re.",
    "subprocess.check_output",
    "sys.path.",
    "time.",
    "datetime.",
    "torch.accelerator.",
    "torch.cuda.is_available",
    "torch.cuda.device_count",
    "torch.device",
    "torch.nn.functional.",
    "torch.set_default_dtype",
    "torchvision.transforms.",
    "types.",
    "typing.",
    "warnings.",
    "yacs.",
    "yaml.",
    "dp2ddp.runtime.device",
    "dp2ddp.runtime.get_",
    "dp2ddp.runtime.is_main_process",
)
IMPURE = {
    "builtins.print",
    "builtins.input",
    "builtins.exec",
    "builtins.exit",
}
IMPURE_METHODS = {"mkdir", "write_text", "write_bytes", "touch", "unlink", "rename", "rmdir", "open"}
# Methods of strings, lists and dicts: ``args.gpus.split(",")``.
PLAIN = {name for kind in (str, list, dict, set) for name in dir(kind) if not name.startswith("_")}
SAYS = {"builtins.print", "dp2ddp.runtime.print", "sys.stdout.write", "sys.stdout.flush"}
FOLDERS = {"os.makedirs", "pathlib.Path.mkdir"}
LEVELS = {"debug", "info", "warning", "warn", "error"}
SEEDS = {
    "random.seed",
    "numpy.random.seed",
    "torch.manual_seed",
    "torch.cuda.manual_seed",
    "torch.cuda.manual_seed_all",
}
# Methods that set the entries of configurations.
CHANGING = {"merge_from_file", "merge_from_list", "merge_from_other_cfg", "merge_with", "set_defaults"}
STARTED = {"dp2ddp.runtime.launch", "dp2ddp.runtime.init"}
VISIBLE = "CUDA_VISIBLE_DEVICES"


def collect(context: Context) -> tuple[Script, ...]:
    """The start of every program that trains with DataParallel."""
    return tuple(_start(context, file) for file in context.scripts)


def _start(context: Context, file: SourceFile) -> Script:
    """Before what the processes agree on, if the devices are chosen by then."""
    found = _script(context, file)
    if found.problem is not None and context.branches is not None:
        # The option that chooses the distributed branch is read too late: the runtime stands aside there.
        context = replace(context, branches=replace(context.branches, assumed=frozenset()))
        found = _script(context, file)
    agreed, context.agreed = context.agreed, set()
    other = _script(context, file) if found.problem is not None and agreed else found
    context.agreed = agreed
    return found if other.problem is not None else other


def before_the_start(context: Context, scripts: Iterable[Script]) -> set[int]:
    """All nodes that programs run before their ranks have started."""
    found: set[int] = set()
    for script in scripts:
        for path in script.reaches - {script.path}:
            if path in context.program.modules:
                module = context.program.modules[path]
                found |= {id(node) for node in context.program.body(module)}
        found |= _earlier_nodes(context, script)
    return found


def _earlier_nodes(context: Context, script: Script) -> set[int]:
    program = context.program
    lines = (node for node in program.nodes.values() if getattr(node, "lineno", 0) == script.at.span.line)
    start = next(
        (it for it in lines if program.file(it).path == script.path and isinstance(it, ast.stmt)), None
    )
    found: set[int] = set()
    while start is not None:
        block = program.block(start)
        for statement in block[: block.index(start)]:
            found |= context.runs(statement)
        around = program.parent(start)
        if isinstance(around, ast.FunctionDef):
            scope = program.by_node[id(around)].index
            around = next(iter(context.callers.get(scope, ())), None)
        start = None if around is None or isinstance(around, ast.Module) else program.statement(around)
    return found


@dataclass(frozen=True)
class _Devices:
    """The expression that chooses the devices, and the statements that must have run before it counts."""

    expression: ast.expr | None
    deciders: tuple[ast.stmt, ...]


def _script(context: Context, file: SourceFile) -> Script:
    program = context.program
    reaches = frozenset(program.project.reaches(file.path))
    statements = list(_top_level(file.tree.body))

    def fact(node: ast.AST, form: str, **more: object) -> Script:
        place = {**context.place(node), "scripts": frozenset([file.path])}
        return Script(**place, form=form, reaches=reaches, **more)  # type: ignore[arg-type]

    for statement in statements:
        started = [it for it in program.descendants(statement) if is_call_of(context, it, *STARTED)]
        if started:
            given = program.call(started[0]).argument("devices")  # type: ignore[union-attr]
            return fact(statement, "init", done=True, devices=_written(context, given, file))
    mains = {it: call for it in statements if (call := _main_call(context, it)) is not None}
    scopes = [program.modules[file.path], *(program.scopes[target] for _, target in mains.values())]
    devices = _devices(context, file, scopes)
    begin = _begin(context, statements, devices)
    inside = begin.late in mains  # what chooses the devices runs in the main function
    if inside:
        body = program.scopes[mains[begin.late][1]].body
        devices = _devices(context, file, scopes, _begin(context, body, devices))
    elif begin.late is not None:
        inner = _only_call(context, begin.late) if context.branches is not None else None
        scopes, statements = (scopes, statements) if inner is None else ([inner, *scopes], inner.body)
        devices = _devices(context, file, scopes, begin)
    begin = _begin(context, statements, devices)
    if devices.expression is not None and (hidden := _hidden(context, devices.expression, scopes)):
        return _unknown(context, fact(begin.statement, "init"), devices.expression, hidden)
    call = mains.get(begin.statement)
    if call is not None and (inside or _local_names(context, devices.expression, call[1])):
        begin, call = _begin(context, program.scopes[call[1]].body, devices), None
    if begin.late is not None:
        return _problem(context, fact(begin.statement, "init"), begin)
    chosen = _written(context, devices.expression, file)
    if (test := _condition(context, devices)) is not None:
        chosen = f"{ast.unparse(devices.expression)} if {ast.unparse(test)} else 0"  # type: ignore[arg-type]
    imports = _imports(context, devices.expression, file)
    enabled = condition(context, begin.statement) or ""
    if call is None or enabled:
        moved = tuple((program.anchor(it), _text(file, it)) for it in begin.moved)
        more = {"devices": chosen, "moved": moved, "imports": imports, "enabled": enabled}
        after = program.anchor(begin.after) if begin.after is not None else None
        return fact(begin.statement, "init", after=after, **more)
    function = call[0]
    arguments = tuple(
        [("*" if isinstance(arg, ast.Starred) else "", program.anchor(arg)) for arg in function.args]
        + [
            (f"{keyword.arg}=" if keyword.arg else "**", program.anchor(keyword.value))
            for keyword in function.keywords
        ]
    )
    main = program.anchor(function.func)
    return fact(function, "launch", function=main, arguments=arguments, devices=chosen, imports=imports)


def _only_call(context: Context, statement: ast.stmt) -> Scope | None:
    """The function that a statement calls, if it is a call of it, and the program's only one."""
    node = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
    call = context.program.call(node) if isinstance(node, ast.Call) else None
    callees = [callee for callee in call.callees if isinstance(callee, Func)] if call is not None else []
    if len(callees) != 1 or len(call.callees) != 1:  # type: ignore[union-attr]
        return None
    calls = [other for other in context.program.calls if callees[0] in other.callees]
    return context.program.scopes[callees[0].scope] if len(calls) == 1 else None


def _choosing(context: Context, file: SourceFile) -> Iterator[ast.stmt]:
    """The statements that decide whether a program starts ranks by itself: they read options, or set one of them."""
    program, runs = context.program, context.program_runs(file)
    branches = context.branches
    if branches is None or not branches.assumed or file.path not in branches.scripts:
        return
    for call in program.calls:
        if id(call.node) in runs and any(name.endswith(".parse_args") for name in call.names):
            yield program.statement(call.node)
    for literal in branches.assumed:
        for target, statement in context.attribute_assignments.get(literal.subject.removeprefix(OPTION), ()):
            if id(statement) in runs and is_options(context, target.value):
                if subject(context, statement.value) != literal.subject:
                    yield statement


@dataclass(frozen=True)
class _Begin:
    """The statement of a block that the ranks start before, and those that are moved above it.

    ``after`` is the one before it, where that decides the place. ``late`` is one that chooses the devices, and runs
    only there or later; ``deciders`` are the parts of such ones.
    """

    statement: ast.stmt
    moved: tuple[ast.stmt, ...] = ()
    after: ast.stmt | None = None
    late: ast.stmt | None = None
    deciders: tuple[ast.stmt, ...] = ()


def _begin(context: Context, block: list[ast.stmt], devices: _Devices) -> _Begin:
    """Where in a block the ranks start: at its first side effect, after what chooses the devices."""
    order = context.program.order
    first = next((it for it in block if _is_first(context, it, devices)), block[-1])
    holders = [(it, _holder(context, it, block)) for it in devices.deciders]
    late = [
        (it, holder) for it, holder in holders if holder is not None and order[id(holder)] >= order[id(first)]
    ]
    if not late:
        return _Begin(first)
    settings = dict.fromkeys(_setting(context, it) for it, _ in late)
    if all(it in block and _can_move(context, it, first) for it in settings):
        return _Begin(first, moved=tuple(settings))
    last = max(block.index(holder) for _, holder in late)
    # What does no harm twice is done by the process that starts the ranks, and again by the main process.
    if last + 1 < len(block) and not any(
        _is_first(context, it, devices, again=True) for it in block[: last + 1]
    ):
        return _Begin(block[last + 1], after=block[last])
    return _Begin(first, late=late[0][1], deciders=tuple(it for it, _ in late))


def _is_first(context: Context, statement: ast.stmt, devices: _Devices, again: bool = False) -> bool:
    """Whether only ranks may run a statement: it does something, or names a device where some are chosen."""
    # Which device is this rank's is known once the devices are chosen.
    named = devices.expression is not None and _names_device(statement)
    return named or is_start(context, statement) or not _pure(context, statement, again)


def _setting(context: Context, decider: ast.stmt) -> ast.stmt:
    """A statement that sets CUDA_VISIBLE_DEVICES, with the condition that it alone stands under."""
    around = context.program.parent(decider)
    alone = isinstance(around, ast.If) and around.body == [decider] and not around.orelse
    return around if alone else decider  # type: ignore[return-value]


def _can_move(context: Context, statement: ast.stmt, first: ast.stmt) -> bool:
    """Whether a statement that sets CUDA_VISIBLE_DEVICES does the same where it stands before another one."""
    if not any(isinstance(node, ast.Assign) and _is_visible(node) for node in ast.walk(statement)):
        return False
    others = [it for it in context.program.block(statement) if it is not statement]
    if any(it.lineno == statement.lineno for it in others) or not _pure(context, statement):
        return False
    return _is_known(context, statement, first) and not _changes(context, statement, first, statement)


def _is_known(context: Context, node: ast.AST, first: ast.stmt) -> bool:
    """Whether all names that a piece of code reads have their values before a statement."""
    program = context.program
    inside = {id(inner) for inner in ast.walk(node)}
    for name in ast.walk(node):
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load):
            known = [it for it in program.definitions(name) if id(it) not in inside]
            local = [it for it in known if program.scope(it) is program.scope(first)]
            if any(program.order[id(it)] >= program.order[id(first)] for it in local):
                return False
    return True


def _changes(context: Context, node: ast.AST, first: ast.stmt, last: ast.stmt) -> bool:
    """Whether an attribute that a piece of code reads may be set from one statement to another of a block."""
    program = context.program
    block = program.block(first)
    if last not in block:
        return True
    read = {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}
    for key in set().union(*map(context.runs, block[block.index(first) : block.index(last)])):
        inner = program.nodes.get(key)
        if isinstance(inner, ast.Attribute) and (
            inner.attr in CHANGING or (inner.attr in read and isinstance(inner.ctx, ast.Store))
        ):
            return True
    return False


def _problem(context: Context, script: Script, begin: _Begin) -> Script:
    first = _first_effect(context, begin.statement)
    problem = Problem(
        f"the devices are chosen {_where(context, begin.deciders[0], script)}, after the first side effect that only "
        f"ranks may have, `{_head(first)}` {_where(context, first, script)}",
        "choose the devices (device_ids, args.gpus, CUDA_VISIBLE_DEVICES) before anything is printed, written, "
        "downloaded or drawn",
    )
    return replace(script, problem=problem)


def _unknown(context: Context, script: Script, devices: ast.expr, name: ast.Name) -> Script:
    problem = Problem(
        f"the devices are chosen by `{ast.unparse(devices)}` {_where(context, name, script)}, and `{name.id}` has no "
        "value yet here, where the ranks start",
        "take device_ids from an option of the program",
    )
    return replace(script, problem=problem)


def _where(context: Context, node: ast.AST, script: Script) -> str:
    at = context.program.location(node)
    return f"in line {at.span.line}" if at.path == script.path else f"in {at.path.name}:{at.span.line}"


def _first_effect(context: Context, statement: ast.stmt) -> ast.AST:
    """The first thing in a statement, or in a function that it runs, that must not be done twice."""
    program = context.program
    inside = [part for index in sorted(program.entered(statement)) for part in program.scopes[index].body]
    nodes = (node for part in (statement, *inside) for node in program.descendants(part))
    return next((node for node in nodes if _effect(context, node, again=False)), statement)


def _head(node: ast.AST) -> str:
    """The first line of a piece of code."""
    return ast.unparse(node).partition("\n")[0]


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run when the file is run, those under the main guard in place of the guard."""
    for statement in body:
        if isinstance(statement, ast.If) and is_main_guard(statement.test):
            yield from statement.body
        else:
            yield statement


def _holder(context: Context, decider: ast.stmt, block: list[ast.stmt]) -> ast.stmt | None:
    """The statement of a block that another one is part of, or else the first that runs it; None if none does."""
    for statement in block:
        if any(decider is node for node in context.program.descendants(statement)):
            return statement
    return next((it for it in block if id(decider) in context.runs(it)), None)


def _pure(context: Context, statement: ast.stmt | ast.expr, again: bool = False) -> bool:
    """Whether running a piece of code twice does no harm: nothing written, printed, drawn or fetched.

    ``again``: it may print, seed, and make folders that may be there.
    """
    if isinstance(
        statement, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    ):
        return True
    return not any(
        _effect(context, node, again) for node in context.program.descendants(statement)
    ) and not any(
        _effect(context, node, again)
        for index in context.program.entered(statement)
        for part in context.program.scopes[index].body
        for node in context.program.descendants(part)
    )


def _names_device(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    return any(is_cuda_string(node) for node in ast.walk(statement))


def _effect(context: Context, node: ast.AST, again: bool) -> bool:
    if id(node) in context.agreed:
        return True  # where the processes agree, they must have met
    if not isinstance(node, ast.Call):
        return False
    call = context.program.call(node)
    if call is None or not call.callees:
        return not (isinstance(node.func, ast.Attribute) and node.func.attr in PLAIN)
    if again and call.names and all(_is_repeatable(name, call) for name in call.names):
        return False
    return any(_impure(context, callee, call) for callee in call.callees)


def _is_repeatable(name: str, call: Call) -> bool:
    """Whether a call, by its full name, prints, logs, seeds, or makes a folder that may be there."""
    if name in FOLDERS:
        given = call.argument("exist_ok", 2)
        return isinstance(given, ast.Constant) and given.value is True
    return name in SAYS | SEEDS or (name.startswith("logging.") and name.rpartition(".")[2] in LEVELS)


def _impure(context: Context, callee: object, call: Call) -> bool:
    if isinstance(callee, Func | Bound):
        return False  # what it runs is looked at on its own
    if isinstance(callee, Cls):
        outside = [base for base in context.program.bases(callee) if isinstance(base, Ext)]
        return any(not base.name.startswith(PURE) for base in outside)
    name = full_name(callee)  # type: ignore[arg-type]
    if name == "builtins.open":
        return not _only_reads(call)
    if name == "builtins.eval":
        return not isinstance(callee, Ext)  # an expression may be anything, and what it makes may do anything
    if not name:
        function = call.node.func
        return not (isinstance(function, ast.Attribute) and function.attr in PLAIN)
    last = name.rpartition(".")[2]
    if name in IMPURE or (name.startswith("pathlib.") and last in IMPURE_METHODS):
        return True
    return not name.startswith(PURE)


def _only_reads(call: Call) -> bool:
    mode = call.argument("mode", 1)
    return mode is None or (isinstance(mode, ast.Constant) and mode.value in ("r", "rb", "rt"))


def _main_call(context: Context, statement: ast.stmt) -> tuple[ast.Call, int] | None:
    """The call that a statement consists of, ``main()`` or ``sys.exit(main())``, if it runs the training."""
    match statement:
        case ast.Expr(value=ast.Call() as call) | ast.Assign(value=ast.Call() as call):
            pass
        case _:
            return None
    if is_call_of(context, call, "sys.exit", "builtins.exit") and len(call.args) == 1:
        if not isinstance(call.args[0], ast.Call):
            return None
        call = call.args[0]
    found = context.program.call(call)
    functions = [callee for callee in found.callees if isinstance(callee, Func)] if found else []
    if len(functions) != 1 or len(found.callees) != 1:  # type: ignore[union-attr]
        return None
    runs = context.runs(call)
    if not any(id(wrap.node) in runs for wrap in context.wraps):
        return None
    if not any(id(node) in runs for node in context.backwards):
        return None  # it makes the model, and trains it later
    if not all(_pure(context, argument) for argument in (*call.args, *(k.value for k in call.keywords))):
        return None
    return call, functions[0].scope


def _devices(
    context: Context, file: SourceFile, scopes: list[Scope], begin: _Begin | None = None
) -> _Devices:
    """What chooses the devices: ``device_ids`` of the wrap, assignments to CUDA_VISIBLE_DEVICES.

    ``scopes``: whose names the ranks' start can use. ``begin``: it can't use those that only get their values there.
    """
    program = context.program
    runs = context.program_runs(file)
    expression: ast.expr | None = None
    deciders: list[ast.stmt] = list(_choosing(context, file))
    for call in context.wraps:
        given = call.argument("device_ids", 1)
        if id(call.node) not in runs or given is None:
            continue
        source = _source(context, given, scopes, begin)
        if not _all_devices(context, source):
            expression = source
            nodes = list(ast.walk(expression))
            for node in nodes:
                if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                    known = program.definitions(node) if id(node) in program.nodes else []
                    deciders += [
                        program.statement(found) for found in known if _is_code(found) and found not in nodes
                    ]
                    deciders += _attribute_sets(context, node, runs)
    configured = (
        any(isinstance(node, ast.Attribute) for node in ast.walk(expression)) if expression else False
    )
    for node in program.nodes.values():
        if configured and id(node) in runs and isinstance(node, ast.Attribute) and node.attr in CHANGING:
            deciders.append(program.statement(node))
        if id(node) in runs and isinstance(node, ast.Assign) and _is_visible(node):
            made_visible = ast.dump(_source(context, node.value, scopes, begin))
            if expression is None or ast.dump(expression) not in made_visible:  # else they are chosen already
                deciders.append(node)
    return _Devices(expression, tuple(deciders))


def _is_visible(node: ast.Assign) -> bool:
    """``os.environ["CUDA_VISIBLE_DEVICES"] = …``."""
    return VISIBLE in ast.dump(node.targets[0])


def _is_code(node: ast.AST) -> bool:
    return not isinstance(node, ast.arg | ast.alias | ast.FunctionDef | ast.ClassDef)


def _attribute_sets(context: Context, node: ast.expr, runs: set[int]) -> list[ast.stmt]:
    """``args.gpus = …`` on an object that is not of the project."""
    if not isinstance(node, ast.Attribute):
        return []
    return [
        statement
        for target, statement in context.attribute_assignments.get(node.attr, ())
        if id(statement) in runs and ast.dump(target.value) == ast.dump(node.value)
    ]


def _all_devices(context: Context, given: ast.expr) -> bool:
    """``None``, or every visible device: ``range(torch.cuda.device_count())``."""
    if isinstance(given, ast.Constant) and given.value is None:
        return True
    inner = given
    while isinstance(inner, ast.Call) and is_call_of(
        context, inner, "builtins.list", "builtins.range", "builtins.tuple"
    ):
        if len(inner.args) != 1:
            return False
        inner = inner.args[0]
    if isinstance(inner, ast.Name):
        sources = assigned(context, inner)
        return bool(sources) and all(
            _all_devices(context, source) or is_call_of(context, source, COUNT) for source in sources
        )
    return inner is not given and is_call_of(context, inner, COUNT)


def written_in(context: Context, given: ast.expr, scopes: list[Scope]) -> ast.expr | None:
    """An expression with the names that some scopes have; None where they lack one."""
    source = _source(context, given, scopes, None)
    return source if _hidden(context, source, scopes) is None else None


def _source(
    context: Context, given: ast.expr, scopes: list[Scope], begin: _Begin | None, depth: int = 0
) -> ast.expr:
    """An expression with what is given for functions' parameters, or assigned to their names, in their place.

    Its names are the program's own nodes. Where nothing took the place of a name, so is the whole expression.
    """
    behind = _behind(context, given, scopes, begin) if depth < 9 else None
    if behind is not None:
        return _source(context, behind, scopes, begin, depth + 1)
    if isinstance(given, ast.Name):
        return given
    changed: ast.expr = copy.copy(given)
    for field, value in ast.iter_fields(given):
        if isinstance(value, ast.AST):
            setattr(changed, field, _source(context, value, scopes, begin, depth))  # type: ignore[arg-type]
        elif isinstance(value, list):
            parts = [
                _source(context, it, scopes, begin, depth) if isinstance(it, ast.AST) else it for it in value
            ]
            setattr(changed, field, parts)
    same = all(getattr(changed, field) == value for field, value in ast.iter_fields(given))
    return given if same else changed


def _behind(context: Context, node: ast.AST, scopes: list[Scope], begin: _Begin | None) -> ast.expr | None:
    """What a name or attribute is that the ranks' start can't use, if it is one thing; None for others."""
    program = context.program
    if not isinstance(node, ast.Name | ast.Attribute) or id(node) not in program.nodes:
        return None
    if isinstance(node, ast.Name) and (argument := _argument(context, node, scopes, begin)) is not None:
        return argument
    root: ast.expr = node
    while isinstance(root, ast.Attribute):
        root = root.value
    known = program.definitions(root) if isinstance(root, ast.Name) else []
    if begin is not None and (earlier := _earlier(context, node, begin)) is not None:
        return earlier
    if all(program.scope(it) in scopes for it in known):
        return None
    if isinstance(node, ast.Attribute) and not all(
        isinstance(it, Inst) for it in program.values(node.value) or [None]
    ):
        return None  # others may set it, too
    definitions = program.definitions(node)
    statement = (
        program.statement(definitions[0]) if len(definitions) == 1 and _is_code(definitions[0]) else None
    )
    if not isinstance(statement, ast.Assign) or not _pure(context, statement.value, again=True):
        return None
    target = statement.targets[0]
    if definitions[0] in statement.targets:
        return statement.value
    if (
        isinstance(target, ast.Tuple)
        and definitions[0] in target.elts
        and isinstance(statement.value, ast.Call)
    ):
        item = ast.Constant(target.elts.index(definitions[0]))
        return ast.Subscript(statement.value, item, ast.Load())
    return None


def _earlier(context: Context, node: ast.expr, begin: _Begin) -> ast.expr | None:
    """What is assigned to a name after the ranks' start, if it has that value there already."""
    definitions = context.program.definitions(node) if isinstance(node, ast.Name) else []
    statement = context.program.statement(definitions[0]) if len(definitions) == 1 else None
    if statement not in begin.deciders or not isinstance(statement, ast.Assign):
        return None
    value = statement.value
    if any(isinstance(it, ast.Attribute) and it.attr == "parse_args" for it in ast.walk(value)):
        return None  # the parser may not know all its options yet
    same = (
        statement.targets == definitions
        and _pure(context, value)
        and _is_known(context, value, begin.statement)
        and not _changes(context, value, begin.statement, statement)
    )
    return value if same else None


def _argument(context: Context, name: ast.Name, scopes: list[Scope], begin: _Begin | None) -> ast.expr | None:
    """What is given for a parameter, where that is one thing, or its default; None for other names."""
    found = given(context, name)
    if len(found) > 1:
        found = [_source(context, it, scopes, begin, depth=6) for it in found]
        same = len(set(map(ast.dump, found))) == 1
        return found[0] if same and not any(_hidden(context, it, scopes) for it in found) else None
    if found:
        return found[0]
    definitions = context.program.definitions(name)
    alone = definitions[0] if len(definitions) == 1 else None
    return _default(context, alone) if isinstance(alone, ast.arg) else None


def given(context: Context, name: ast.Name) -> list[ast.expr]:
    """What calls of the project give for a parameter; nothing for other names."""
    definitions = context.program.definitions(name)
    if len(definitions) != 1 or not isinstance(definitions[0], ast.arg):
        return []
    scope = context.program.scope(definitions[0])
    return [
        argument
        for call in context.program.calls
        for callee in call.callees
        if _function(context, callee) is scope
        and (argument := _given(scope, call, name.id, not isinstance(callee, Func))) is not None
    ]


def _function(context: Context, callee: Value) -> Scope | None:
    """What runs when something is called: a function, a method, or the ``__init__`` of a class."""
    scopes = context.program.scopes
    if isinstance(callee, Func | Bound):
        return scopes[(callee.func if isinstance(callee, Bound) else callee).scope]
    families = context.program.bases(callee) if isinstance(callee, Cls) else []
    for base in families:
        for node in scopes[base.scope].body if isinstance(base, Cls) else ():
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                return context.program.by_node[id(node)]
    return None


def _default(context: Context, parameter: ast.arg) -> ast.expr | None:
    args = context.program.parent(parameter)
    if not isinstance(args, ast.arguments):
        return None
    named = [*args.posonlyargs, *args.args]
    defaults = dict(zip([arg.arg for arg in reversed(named)], reversed(args.defaults), strict=False))
    keywords = zip([arg.arg for arg in args.kwonlyargs], args.kw_defaults, strict=True)
    return {**defaults, **dict(keywords)}.get(parameter.arg)


def _given(scope: Scope, call: Call, name: str, bound: bool) -> ast.expr | None:
    """What a call gives for a function's parameter; ``bound``: the first one is the object."""
    params = scope.params[1 if bound else 0 :]
    return call.argument(name, params.index(name)) if name in params else None


def _written(context: Context, expression: ast.expr | None, file: SourceFile) -> Anchor | str | None:
    """An expression where the ranks start: as it is edited, or as it is written in another file."""
    if expression is None:
        return None
    known = id(expression) in context.program.nodes and not is_inserted(expression)
    written = known and context.program.file(expression) is file
    return context.program.anchor(expression) if written else ast.unparse(expression)


def _text(file: SourceFile, statement: ast.stmt) -> str:
    """The lines of a statement as they are written, without the indentation of its block."""
    lines = file.text.splitlines()[statement.lineno - 1 : statement.end_lineno]
    return textwrap.dedent("\n".join(lines))


def _hidden(context: Context, expression: ast.expr | None, scopes: list[Scope]) -> ast.Name | None:
    """A name of an expression that none of some scopes binds."""
    program = context.program
    nodes = list(ast.walk(expression)) if expression is not None else []
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            outside = [definition for definition in program.definitions(node) if definition not in nodes]
            unknown = any(program.scope(definition) not in scopes for definition in outside)
            if unknown and not _import(context, node, scopes[0].file):
                return node
    return None


def _import(context: Context, name: ast.Name, file: SourceFile) -> str:
    """The import that gives a program a function of another file; nothing where there is none."""
    program = context.program
    found = program.definitions(name)
    if len(found) != 1 or not isinstance(found[0], ast.FunctionDef) or name.id in context.names(file.path):
        return ""
    path = program.file(found[0]).path
    if not program.scope(found[0]).is_module or file.path.parent not in path.parents:
        return ""
    module = ".".join(path.relative_to(file.path.parent).with_suffix("").parts)
    there = program.project.resolve(file.path, module) == path
    return f"from {module} import {name.id}" if there else ""


def _imports(context: Context, expression: ast.expr | None, file: SourceFile) -> tuple[str, ...]:
    """The imports that a program needs for an expression of other files."""
    names = [it for it in ast.walk(expression) if isinstance(it, ast.Name)] if expression is not None else []
    outside = [it for it in names if context.program.file(it) is not file]
    return tuple(dict.fromkeys(found for it in outside if (found := _import(context, it, file))))


def _condition(context: Context, devices: _Devices) -> ast.expr | None:
    """The condition under which devices are chosen, where it asks for GPUs and they are chosen nowhere else.

    Without it they may be no list yet, and no GPU is used.
    """
    if devices.expression is None:
        return None
    chosen = [it for it in devices.deciders if isinstance(it, ast.Assign) and not _is_visible(it)]
    same = [it for it in chosen if ast.dump(devices.expression) == _loaded(it.targets[0])]
    tests = [
        around
        for it in same
        for around in context.program.ancestors(it)
        if isinstance(around, ast.If)
        and asks_for_gpus(context, around.test)
        and any(it is inner for part in around.body for inner in ast.walk(part))
    ]
    found = {ast.dump(it.test): it for it in tests}
    if len(tests) < len(same) or len(found) != 1:
        return None
    (around,) = found.values()
    simple = not any(isinstance(it, ast.Call) for it in ast.walk(around.test))
    return around.test if simple or is_call_of(context, around.test, AVAILABLE) else None


def _loaded(target: ast.expr) -> str:
    """How an assigned name or attribute reads where it is used."""
    return ast.dump(ast.parse(ast.unparse(target), mode="eval").body)


def _local_names(context: Context, expression: ast.expr | None, scope: int) -> bool:
    """Whether an expression uses names of a function."""
    if expression is None:
        return False
    inner = context.program.scopes[scope]
    return any(isinstance(node, ast.Name) and node.id in inner.names for node in ast.walk(expression))
