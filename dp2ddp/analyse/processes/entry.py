"""Where a program's ranks start, and where it chooses their devices.

They start at the call of its main function, or before its first side effect. What chooses the devices may come later:
then all ranks start, and those without a device leave.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from dp2ddp.analyse.api.processes import STARTED
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.processes import entries
from dp2ddp.analyse.processes.at_hand import devices_before, is_at_hand, literal_of
from dp2ddp.analyse.processes.branches import choosing, condition, holding, is_start, keeps_variables, leaving
from dp2ddp.analyse.processes.conditions import is_call_of, is_cuda_string
from dp2ddp.analyse.processes.device_ids import Devices, wanted_devices
from dp2ddp.analyse.processes.devices import is_of_wrap
from dp2ddp.analyse.processes.downloads import is_build
from dp2ddp.analyse.processes.effects import happens_once
from dp2ddp.analyse.processes.elsewhere import devices_text, imports_for, written_at
from dp2ddp.analyse.processes.entries import Entry
from dp2ddp.analyse.processes.late import late_choices
from dp2ddp.analyse.processes.purity import is_pure
from dp2ddp.analyse.program.calls import handed
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.values import Func
from dp2ddp.facts import Script
from dp2ddp.plan import Anchor
from dp2ddp.source import SourceFile


def collect(context: Context) -> tuple[Script, ...]:
    """The start of every program that trains with DataParallel."""
    return entries.shared(context, (_script(context, entry) for entry in entries.entries(context)))


def before_devices(context: Context, scripts: Iterable[Script]) -> set[int]:
    """All nodes that programs run before their ranks know which of the chosen devices they have."""
    found: set[int] = set()
    for script in scripts:
        for late in script.late:
            found |= _earlier(context, late.at, late.after)
        if not script.late and script.devices is not None:
            found |= _earlier(context, script.at, False)
        if script.late or script.devices is not None:
            own = {script.path} if script.path == script.program else set()
            for module in _imported_modules(context, script.reaches - own):
                found |= {id(node) for node in context.program.body(module)}
    return found


def _imported_modules(context: Context, paths: Iterable) -> Iterator[Scope]:
    yield from (context.program.modules[path] for path in paths if path in context.program.modules)


def _earlier(context: Context, at: Anchor, after: bool) -> set[int]:
    """All nodes that run before a statement, in its block and in those that lead to it; ``after``: or in it."""
    program = context.program
    found: set[int] = set()
    left: set[int] = set()  # functions; one that calls itself is left by its outer calls
    node = program.node_at(at)
    start = None if node is None else program.statement(node)
    while start is not None:
        block = program.block(start)
        for statement in block[: block.index(start) + after]:
            found |= context.runs(statement)
        after = False
        around = program.parent(start)
        # what is asked or given at the head of a statement, and for a call
        parts = ast.iter_child_nodes(around) if isinstance(around, ast.stmt) else ()
        head: list[ast.AST] = [it for it in parts if isinstance(it, ast.expr | ast.withitem)]
        if isinstance(around, ast.FunctionDef):
            scope = program.by_node[id(around)].index
            left.add(scope)
            calls = context.callers.get(scope, ())
            around = next((it for it in calls if program.scope(it).index not in left), None)
            made = [around.func.value] if around and isinstance(around.func, ast.Attribute) else []
            head = [*made, *around.args, *(it.value for it in around.keywords)] if around else []
        found.update(*(context.runs(it) for it in head))
        start = None if around is None or isinstance(around, ast.Module) else program.statement(around)
    return found


def _script(context: Context, entry: Entry) -> Script:
    program, file, top = context.program, entry.file, entry.block
    reaches = frozenset(program.project.reaches(file.path))

    def fact(node: ast.AST, form: str, **more: object) -> Script:
        place = {**context.place(node), "scripts": frozenset([file.path])}
        return Script(**place, form=form, program=file.path, reaches=reaches, **more)  # type: ignore[arg-type]

    for statement in top:
        started = [it for it in program.descendants(statement) if is_call_of(context, it, *STARTED)]
        if started:
            given = program.call(started[0]).argument("devices")  # type: ignore[union-attr]
            return fact(statement, "init", done=True, devices=written_at(context, given, started[0]))
    wanted = wanted_devices(context, file)
    module = entry.scope
    begin = _first(context, top, wanted)
    devices = devices_before(context, file, wanted, [module], top, begin)
    call = _main_call(context, begin)
    at_hand = is_at_hand(context, devices, top, begin, [module])
    if call is not None and not at_hand:
        main = program.scopes[call[1]]
        first = _first(context, main.body, wanted)
        inner = devices_before(context, file, wanted, [main, module], main.body, first, begin)
        if is_at_hand(context, inner, main.body, first, [main, module], begin):
            devices, begin, call, at_hand = inner, first, None, True
    if not at_hand and (literal := literal_of(context, wanted)) is not None:
        devices, at_hand = replace(wanted, expression=literal), True
    late = () if at_hand else late_choices(context, entry, wanted)
    chosen = devices_text(context, devices.expression, begin) if at_hand else None
    imports = imports_for(context, devices.expression, program.file(begin)) if at_hand else ()
    enabled = _enabled(context, file, top, begin)
    if not enabled and call is not None and context.branches is not None:
        inner_first = _first(context, program.scopes[call[1]].body, wanted)
        enabled = _enabled(context, file, top, inner_first)
        begin, call = (inner_first, None) if enabled else (begin, call)
    asides = () if enabled else leaving(context, file)
    own_ranks = not enabled and keeps_variables(context, file)
    more = {"devices": chosen, "imports": imports, "late": late, "asides": asides, "own_ranks": own_ranks}
    if call is None or enabled:
        return fact(begin, "init", enabled=enabled, **more)
    function = call[0]
    arguments = tuple(
        [
            ("*", program.anchor(arg.value)) if isinstance(arg, ast.Starred) else ("", program.anchor(arg))
            for arg in function.args
        ]
        + [
            (f"{keyword.arg}=" if keyword.arg else "**", program.anchor(keyword.value))
            for keyword in function.keywords
        ]
    )
    main_name = program.anchor(function.func)
    return fact(function, "launch", function=main_name, arguments=arguments, **more)


def _enabled(context: Context, file: SourceFile, top: list[ast.stmt], begin: ast.stmt) -> str:
    """The condition under which ranks start before a statement; empty without one, and where it is known later."""
    text = condition(context, begin)
    program = context.program
    block, order = program.block(begin), program.order
    for decider in choosing(context, file) if text else ():
        holder, leading = holding(context, decider, block), holding(context, decider, top)
        late = order[id(begin)] if begin in top else order[id(holding(context, begin, top) or begin)]
        if holder is not None:
            if order[id(holder)] >= order[id(begin)]:
                return ""
        elif leading is None or order[id(leading)] >= late:
            return ""
    return text or ""


def _first(context: Context, block: list[ast.stmt], devices: Devices) -> ast.stmt:
    """The first statement of a block that only ranks may run."""
    return next((it for it in block if _is_for_ranks(context, it, devices)), block[-1])


def _is_for_ranks(context: Context, statement: ast.stmt, devices: Devices) -> bool:
    """Whether a statement does something, or names a device where some are chosen: a rank's own is not known yet."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return _acts_when_imported(context, statement, devices)
    if is_start(context, statement) or (devices.expression is not None and _names_device(context, statement)):
        return True
    return not is_pure(context, statement)


def _names_device(context: Context, statement: ast.AST) -> bool:
    """Whether a statement names a GPU by its number: a rank's own has none before it is chosen."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    return any(
        (is_cuda_string(node) and node.value != "cuda")  # type: ignore[attr-defined]
        or (isinstance(node, ast.Subscript) and is_of_wrap(context, node))
        for node in ast.walk(statement)
    )


def _acts_when_imported(context: Context, statement: ast.Import | ast.ImportFrom, devices: Devices) -> bool:
    """Whether the project's modules that are imported here write, fetch or ask for something when they run."""
    program = context.program
    here = program.file(statement).path
    names = [alias.name for alias in statement.names]
    if isinstance(statement, ast.ImportFrom):
        module = statement.module or ""
        wanted = [module, *(f"{module}.{name}".lstrip(".") for name in names)]
        level = statement.level
    else:
        wanted, level = names, 0
    found = {program.project.resolve(here, name, level) for name in wanted}
    reached = {it for path in found if path is not None for it in program.project.reaches(path)}
    paths = [it.file.path for it in _imported_modules(context, reached - {here})]
    built = {id(it.node) for it in program.calls if is_build(context, it)}
    return any(
        happens_once(context, node) or id(node) in context.agreed
        for path in paths
        for node in context.imported_nodes(path)
    ) or any(built & context.runs_when_imported(path) for path in paths if built)


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
    if not all(is_pure(context, argument) for argument in handed(call)):
        return None
    return call, functions[0].scope
