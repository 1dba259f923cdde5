"""Where a program's ranks start, and where it chooses their devices.

They start at the call of its main function, or before its first side effect. What chooses the devices may come later:
then all ranks start, and those without a device leave.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, replace

from dp2ddp.analyse.api.containers import PLAIN_METHODS
from dp2ddp.analyse.api.devices import AVAILABLE, COUNT, VISIBLE
from dp2ddp.analyse.api.files import PATH_WRITES
from dp2ddp.analyse.api.inspection import ASKS_TYPE, LIST_TYPES
from dp2ddp.analyse.api.parallel import WRAP
from dp2ddp.analyse.api.processes import STARTED
from dp2ddp.analyse.api.purity import NO_SIDE_EFFECTS, SIDE_EFFECTS
from dp2ddp.analyse.api.settings import CONFIGURES, FILLS_SETTINGS
from dp2ddp.analyse.context import LOOPS, Context, is_inserted, is_main_guard
from dp2ddp.analyse.processes import entries
from dp2ddp.analyse.processes.answers import compared, is_options
from dp2ddp.analyse.processes.branches import choosing, condition, is_start, keeps_variables, leaving
from dp2ddp.analyse.processes.conditions import (
    asks_for_gpus,
    asks_machine,
    assigned,
    comes_from_file,
    decides_device,
    is_call_of,
    is_choice,
    is_cuda_string,
    is_true,
    leaves_before,
    needs_gpu,
    number_of,
)
from dp2ddp.analyse.processes.devices import is_of_wrap
from dp2ddp.analyse.processes.downloads import is_build
from dp2ddp.analyse.processes.effects import happens_once
from dp2ddp.analyse.processes.entries import Entry
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.values import Bound, Cls, Coll, Ext, Func, Inst, Made, Values, full_name
from dp2ddp.facts import Late, Script
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


CALLS = 4
"""How many calls are gone back from a wrap to the condition under which it is made."""


@dataclass(frozen=True)
class _Devices:
    """The expression that chooses the devices, where a ``wrap`` has it, and the statements that it depends on."""

    expression: ast.expr | None = None
    wrap: ast.Call | None = None
    deciders: tuple[ast.stmt, ...] = ()


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
            return fact(statement, "init", done=True, devices=_written(context, given, started[0]))
    wanted = _wanted(context, file)
    module = entry.scope
    begin = _first(context, top, wanted)
    devices = _before(context, file, wanted, [module], top, begin)
    call = _main_call(context, begin)
    at_hand = _is_at_hand(context, devices, top, begin, [module])
    if call is not None and not at_hand:
        main = program.scopes[call[1]]
        first = _first(context, main.body, wanted)
        inner = _before(context, file, wanted, [main, module], main.body, first, begin)
        if _is_at_hand(context, inner, main.body, first, [main, module], begin):
            devices, begin, call, at_hand = inner, first, None, True
    if not at_hand and (literal := _literal(context, wanted)) is not None:
        devices, at_hand = replace(wanted, expression=literal), True
    late = () if at_hand else _lates(context, entry, wanted)
    chosen = _text(context, devices, begin) if at_hand else None
    imports = _imports(context, devices.expression, program.file(begin)) if at_hand else ()
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
        holder, leading = _holder(context, decider, block), _holder(context, decider, top)
        late = order[id(begin)] if begin in top else order[id(_holder(context, begin, top) or begin)]
        if holder is not None:
            if order[id(holder)] >= order[id(begin)]:
                return ""
        elif leading is None or order[id(leading)] >= late:
            return ""
    return text or ""


# Where the ranks start


def _first(context: Context, block: list[ast.stmt], devices: _Devices) -> ast.stmt:
    """The first statement of a block that only ranks may run."""
    return next((it for it in block if _is_for_ranks(context, it, devices)), block[-1])


def _is_for_ranks(context: Context, statement: ast.stmt, devices: _Devices) -> bool:
    """Whether a statement does something, or names a device where some are chosen: a rank's own is not known yet."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return _acts_when_imported(context, statement, devices)
    if is_start(context, statement) or (devices.expression is not None and _names_device(context, statement)):
        return True
    return not _pure(context, statement)


def _names_device(context: Context, statement: ast.AST) -> bool:
    """Whether a statement names a GPU by its number: a rank's own has none before it is chosen."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    return any(
        (is_cuda_string(node) and node.value != "cuda")  # type: ignore[attr-defined]
        or (isinstance(node, ast.Subscript) and is_of_wrap(context, node))
        for node in ast.walk(statement)
    )


def _acts_when_imported(context: Context, statement: ast.Import | ast.ImportFrom, devices: _Devices) -> bool:
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


def _pure(context: Context, statement: ast.stmt | ast.expr) -> bool:
    """Whether running a piece of code twice does no harm: nothing written, printed, drawn or fetched."""
    if isinstance(
        statement, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    ):
        return True
    return not any(_acts(context, node) for node in context.program.descendants(statement)) and not any(
        _acts(context, node)
        for index in context.program.entered(statement)
        for part in context.program.scopes[index].body
        for node in context.program.descendants(part)
    )


def _acts(context: Context, node: ast.AST) -> bool:
    if id(node) in context.agreed:
        return True  # where the processes agree, they must have met
    if not isinstance(node, ast.Call):
        return False
    call = context.program.call(node)
    if call is None or not call.callees:
        return not (isinstance(node.func, ast.Attribute) and node.func.attr in PLAIN_METHODS)
    return any(_impure(context, callee, call) for callee in call.callees)


def _impure(context: Context, callee: object, call: Call) -> bool:
    if isinstance(callee, Func | Bound):
        return False  # what it runs is looked at on its own
    if isinstance(callee, Cls):
        outside = [base for base in context.program.bases(callee) if isinstance(base, Ext)]
        return any(not base.name.startswith(NO_SIDE_EFFECTS) for base in outside)
    name = full_name(callee)  # type: ignore[arg-type]
    if name == "builtins.open":
        return not _only_reads(call)
    if name == "builtins.eval":
        return not isinstance(callee, Ext)  # an expression may be anything, and what it makes may do anything
    if not name:
        function = call.node.func
        return not (isinstance(function, ast.Attribute) and function.attr in PLAIN_METHODS)
    last = name.rpartition(".")[2]
    if name in SIDE_EFFECTS or (name.startswith("pathlib.") and (last in PATH_WRITES or last == "open")):
        return True
    return not name.startswith(NO_SIDE_EFFECTS)


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
    if not all(_pure(context, argument) for argument in handed(call)):
        return None
    return call, functions[0].scope


# Which devices


def _wanted(context: Context, file: SourceFile) -> _Devices:
    """The devices as a wrap is given them: its ``device_ids``, or one alone unless an option asks for several.

    One alone only where nothing else is wrapped on all of them.
    """
    chosen = []
    for given, devices in _each_wanted(context, file):
        if given:
            return devices
        chosen.append(devices)
    everywhere = any(it.expression is None for it in chosen)
    different = {ast.dump(it.expression) for it in chosen if it.expression is not None}
    return _Devices() if everywhere or len(different) != 1 else chosen[0]


def _each_wanted(context: Context, file: SourceFile) -> Iterator[tuple[bool, _Devices]]:
    """The devices of each wrap of a program, and whether the wrap names them."""
    runs = context.program_runs(file)
    for wrap in context.wraps:
        if id(wrap.node) in runs:
            given = context.wrappers.argument(wrap, "device_ids", 1)
            if given is not None and (_all_devices(context, given) or _is_of_wrapper(context, given)):
                given = None
            expression = _by_option(context, wrap.node, given) or given
            yield given is not None, _Devices(expression, wrap.node)


def _is_of_wrapper(context: Context, given: ast.expr) -> bool:
    """Whether devices are those that another DataParallel has: ``model.device_ids``."""
    is_theirs = isinstance(given, ast.Attribute) and given.attr == "device_ids"
    return is_theirs and context.is_wrapped(context.program.values(given.value))


def _by_option(context: Context, wrap: ast.Call, given: ast.expr | None) -> ast.expr | None:
    """``device_ids`` where options of the program choose between DataParallel and a single device, or the CPU.

    Beside a distributed branch only what switches the GPUs off: with a single device that one may have its own ranks.
    """
    beside = context.branches is not None
    if not beside and given is not None and (chosen := _where_chosen(context, wrap, given)) is not None:
        return chosen
    asked: list[ast.expr] = []
    alone: ast.expr | None = None
    flags: list[ast.expr] = []
    switches: list[bool] = []
    listed: list[ast.expr] = []
    for test, wraps, others in _choices(context, wrap):
        if is_true(test):
            continue  # as the program runs with DataParallel
        if any(_goes_on_wrapped(context, it, wrap) for part in others for it in ast.walk(part)):
            return None
        alone = alone or _single(context, others)
        for part, holds in _parts(test, wraps):
            literal = part if holds else ast.UnaryOp(ast.Not(), part)
            if given is not None and _asks_of(context, part, given):
                if _asks_for_list(context, part):
                    listed.append(literal)
                continue
            if _is_option(context, part):
                asked.append(literal)
                switches.append(_switches_gpus(context, part, others))
            elif isinstance(part, ast.Attribute) and is_options(context, part.value):
                flags.append(literal)
    if listed and given is not None:
        given = _where_all(listed, ast.List([given], ast.Load()), given)
    if not asked:
        return given if listed else None
    switched = switches == [True] and not flags
    if beside and not switched:
        return None
    one = ast.Constant(0) if switched else _numbered(context) or ast.Constant(1)
    return _where_all([*asked, *flags], alone or one, given or ast.Constant(None))


def _switches_gpus(context: Context, test: ast.expr, others: list[ast.AST]) -> bool:
    """Whether a condition chooses between the GPUs and the CPU, on which the branch beside it goes on."""
    parts = list(ast.walk(test))
    named = any(is_cuda_string(it) or (isinstance(it, ast.Constant) and it.value == "cpu") for it in parts)
    moved = any(
        isinstance(it, ast.Call) and isinstance(it.func, ast.Attribute) and it.func.attr == "cuda"
        for other in others
        for it in ast.walk(other)
    )
    asks = asks_for_gpus(context, test) or (
        isinstance(test, ast.Name | ast.Attribute) and needs_gpu(context, test)
    )
    return not moved and (named or asks or decides_device(context, test))


def _asks_of(context: Context, test: ast.expr, devices: ast.expr, depth: int = 0) -> bool:
    """Whether a condition asks for what devices are made of, ``if len(args.gpus) > 1``: without them one is left."""
    inner = {id(it.value) for it in ast.walk(devices) if isinstance(it, ast.Attribute)}
    made = {
        ast.dump(it)
        for it in ast.walk(devices)
        if isinstance(it, ast.Name | ast.Attribute) and id(it) not in inner
    }
    if any(ast.dump(it) in made for it in ast.walk(test)):
        return True
    names = [
        it
        for it in ast.walk(test)
        if isinstance(it, ast.Name | ast.Attribute) and id(it) in context.program.nodes
    ]
    return depth < 3 and any(
        _asks_of(context, source, devices, depth + 1) for it in names for source in assigned(context, it)
    )


def _asks_for_list(context: Context, test: ast.expr) -> bool:
    """Whether a condition asks for a list of GPUs, ``type(args.device) is list``: alone, one is given by its index."""
    match test:
        case ast.Compare(left=asked, ops=[ast.Is() | ast.Eq()], comparators=[kind]):
            pass
        case ast.Call(args=[_, kind]) as asked:
            pass
        case _:
            return False
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    named = {full_name(value) for it in kinds for value in context.program.values(it)}
    return is_call_of(context, asked, *ASKS_TYPE) and bool(named) and named <= LIST_TYPES


def _where_all(tests: list[ast.expr], alone: ast.expr, several: ast.expr) -> ast.expr:
    """Several devices where all of some conditions hold, else those that are given for one process."""
    match tests:
        case [ast.UnaryOp(op=ast.Not(), operand=test)]:
            return ast.IfExp(test, alone, several)
        case [test]:
            return ast.IfExp(test, several, alone)
    return ast.IfExp(ast.BoolOp(ast.And(), tests), several, alone)


def _goes_on_wrapped(context: Context, node: ast.AST, wrap: ast.Call) -> bool:
    """Whether a branch beside a wrap has a wrapped model, too: by a wrap of its own, or as a file holds it."""
    if any(it.node is node for it in context.wraps):
        return True
    statement = context.program.statement(wrap)
    if not isinstance(node, ast.Assign) or not isinstance(statement, ast.Assign):
        return False
    same = ast.unparse(node.targets[0]) == ast.unparse(statement.targets[0])
    return same and comes_from_file(context, node.value)


def _where_chosen(context: Context, wrap: ast.Call, given: ast.expr) -> ast.expr | None:
    """``device_ids`` that are given, where an option chooses DataParallel: without it they may not be known at all."""
    runs = set().union(*(context.program_runs(it) for it in context.scripts))
    inner = {it.value for it in ast.walk(given) if isinstance(it, ast.Attribute)}
    asked_of = [it for it in ast.walk(given) if isinstance(it, ast.Attribute) and it not in inner]
    sets = {it: _attribute_sets(context, it, runs) for it in asked_of}
    made = [it for statements in sets.values() for it in statements]
    if not made or not all(isinstance(context.program.parent(it), ast.If) for it in made):
        return None
    for test, wraps, others in _choices(context, wrap):
        asked = any(
            ast.dump(it) in map(ast.dump, ast.walk(test)) for it, statements in sets.items() if statements
        )
        options = any(
            _is_option(context, part) and not asks_for_gpus(context, part) for part, _ in _parts(test, wraps)
        )
        if options and not asked and not any(isinstance(it, ast.Call) for it in ast.walk(test)):
            alone: ast.expr = _single(context, others) or ast.Constant(1)
            first, second = (given, alone) if wraps else (alone, given)
            return ast.IfExp(test, first, second)
    return None


def _choices(context: Context, wrap: ast.Call) -> Iterator[tuple[ast.expr, bool, list[ast.AST]]]:
    """The conditions under which a model is wrapped, whether they must hold, and what runs where it is not.

    ``if several: model = nn.DataParallel(model)``, ``nn.DataParallel(model) if several else model``,
    ``wrap = nn.DataParallel if several else same`` and ``if not several: return model`` before it.
    """
    for source in assigned(context, wrap.func) if isinstance(wrap.func, ast.Name | ast.Attribute) else ():
        if isinstance(source, ast.IfExp):
            both = [Ext(WRAP) in context.program.values(it) for it in (source.body, source.orelse)]
            if both[0] != both[1]:
                yield source.test, both[0], []
    yield from _conditions(context, wrap)


def _conditions(
    context: Context, place: ast.AST, depth: int = 0
) -> Iterator[tuple[ast.expr, bool, list[ast.AST]]]:
    """Those round a place, and round the one call that leads to it, where the training does not stand there, too."""
    inside: ast.AST = place
    for around in context.program.ancestors(place):
        if isinstance(inside, ast.stmt) and not depth:
            for before in leaves_before(context, inside):
                yield before.test, False, list(before.body)
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
            calls = context.callers.get(context.program.by_node[id(around)].index, ())
            calls = [it for it in calls if context.runs_in_training(it)]
            if len(calls) == 1 and depth < CALLS:
                yield from _conditions(context, calls[0], depth + 1)
            return
        if isinstance(around, (ast.ClassDef, ast.Lambda, *LOOPS)):
            return
        if isinstance(around, ast.IfExp) and inside is not around.test:
            wraps = inside is around.body
            yield around.test, wraps, [around.orelse if wraps else around.body]
        if isinstance(around, ast.If) and inside in (*around.body, *around.orelse):
            trains = depth and any(context.runs(around) & {id(it)} for it in context.backwards)
            if not is_main_guard(around.test) and not trains:
                wraps = inside in around.body
                yield around.test, wraps, _beside(context, around) if wraps else list(around.body)
        inside = around


def _beside(context: Context, around: ast.If) -> list[ast.AST]:
    """What runs where a condition does not hold: what follows it, where a function returns under it."""
    if around.orelse or not isinstance(around.body[-1], ast.Return):
        return list(around.orelse)
    block = context.program.block(around)
    return list(block[block.index(around) + 1 :])


def _parts(test: ast.expr, holds: bool) -> Iterator[tuple[ast.expr, bool]]:
    """The conditions that a condition is made of, all of which must hold, or must not, for it to ``holds``."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _parts(operand, not holds)
        case ast.BoolOp(op=operator, values=values) if isinstance(operator, ast.And) is holds:
            for value in values:
                yield from _parts(value, holds)
        case _:
            yield test, holds


def _is_option(context: Context, test: ast.expr) -> bool:
    """Whether a user decides a condition: by an option, which may switch the GPUs off."""
    asks = asks_for_gpus(context, test)
    return is_choice(context, test) and not (asks and asks_machine(context, test))


def _single(context: Context, statements: list[ast.stmt]) -> ast.expr | None:
    """The one device that a branch without DataParallel uses, in a list: ``model.cuda(args.gpu)``."""
    for part in statements:
        for node in ast.walk(part):
            if isinstance(node, ast.Call) and len(node.args) == 1:
                named = is_call_of(context, node, "torch.cuda.set_device")
                moved = isinstance(node.func, ast.Attribute) and node.func.attr == "cuda"
                if (named or moved) and isinstance(node.args[0], ast.Name | ast.Attribute):
                    return ast.List([node.args[0]], ast.Load())
    return None


def _numbered(context: Context) -> ast.expr | None:
    """The GPU that a program uses by an option's number, in a list: ``torch.device(f"cuda:{args.gpu}")``."""
    runs = set().union(*(context.program_runs(it) for it in context.scripts))
    named = [number_of(it) for it in context.program.nodes.values() if id(it) in runs]
    found = {
        ast.dump(it): it for it in named if isinstance(it, ast.Attribute) and is_options(context, it.value)
    }
    return ast.List([next(iter(found.values()))], ast.Load()) if len(found) == 1 else None


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


def _before(
    context: Context,
    file: SourceFile,
    wanted: _Devices,
    scopes: list[Scope],
    block: list[ast.stmt],
    begin: ast.stmt,
    main: ast.stmt | None = None,
) -> _Devices:
    """The devices as they can be said before a statement of a block; by what names stand for that come later."""
    devices = _at(context, file, wanted, scopes)
    if _is_at_hand(context, devices, block, begin, scopes, main):
        return devices
    after = block[block.index(begin) :]
    late = {id(node) for statement in after for node in context.program.descendants(statement)}
    unfolded = _at(context, file, wanted, scopes, late)
    return unfolded if _is_at_hand(context, unfolded, block, begin, scopes, main) else devices


def _at(
    context: Context, file: SourceFile, wanted: _Devices, scopes: list[Scope], late: Set[int] = frozenset()
) -> _Devices:
    """The devices, in the names that some scopes have, with all that decides them.

    Without names that are given their values by nodes in ``late``.
    """
    if wanted.expression is None:
        return wanted
    source = _source(context, wanted.expression, scopes, late=late)
    expression = _folded(source)
    if expression is not source and isinstance(expression, ast.IfExp):
        asked = (
            it for it in ast.walk(expression.test) if isinstance(it, ast.Call | ast.Name | ast.Attribute)
        )
        if all(id(it) in context.program.nodes for it in asked) and asks_machine(context, expression.test):
            expression = expression.body  # where there are not several, there is one process anyway
    if _all_devices(context, expression):
        return _Devices()
    return replace(wanted, expression=expression, deciders=tuple(_deciders(context, expression, file)))


def _folded(expression: ast.expr) -> ast.expr:
    """``1`` for ``None if 1 > 1 else 1``: what a parameter's default has decided."""
    if not isinstance(expression, ast.IfExp):
        return expression
    test = _simplified(expression.test)
    if isinstance(test, ast.Constant):
        return expression.body if test.value else expression.orelse
    return expression if test is expression.test else ast.IfExp(test, expression.body, expression.orelse)


def _simplified(test: ast.expr) -> ast.expr:
    """A condition without the parts that constants decide: ``several`` for ``"auto" == "auto" and several``."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _simplified(operand)
            return ast.Constant(not inner.value) if isinstance(inner, ast.Constant) else test
        case ast.BoolOp(op=kind, values=values):
            decides = isinstance(kind, ast.Or)
            parts = [_simplified(it) for it in values]
            open_parts = [it for it in parts if not isinstance(it, ast.Constant)]
            if any(isinstance(it, ast.Constant) and bool(it.value) is decides for it in parts):
                return ast.Constant(decides)
            if not open_parts:
                return ast.Constant(not decides)
            if open_parts == values:
                return test
            return open_parts[0] if len(open_parts) == 1 else ast.BoolOp(kind, open_parts)
        case ast.Compare(left=ast.Constant(value=left), ops=[kind], comparators=[ast.Constant(value=right)]):
            answer = compared(kind, left, right)
            return test if answer is None else ast.Constant(answer)
    return test


def _literal(context: Context, wanted: _Devices) -> ast.expr | None:
    """The devices, where they are the same in every run: ``range(2)`` for ``range(ngpu)`` after ``ngpu = 2``."""
    if wanted.expression is None:
        return None
    expression = _source(context, wanted.expression, [])
    nodes = [it for it in ast.walk(expression) if isinstance(it, ast.Name | ast.Attribute)]
    known = all(isinstance(it, ast.Name) and id(it) in context.program.nodes for it in nodes)
    return expression if known and not any(map(context.program.definitions, nodes)) else None


def _deciders(context: Context, expression: ast.expr, file: SourceFile) -> Iterator[ast.stmt]:
    """The statements after which an expression has its value."""
    program, runs = context.program, context.program_runs(file)
    nodes = list(ast.walk(expression))
    for node in nodes:
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            known = program.definitions(node) if id(node) in program.nodes else []
            yield from (program.statement(it) for it in known if _is_code(it) and it not in nodes)
            yield from _attribute_sets(context, node, runs)
            yield from _changes(context, node, runs)
    configured = any(isinstance(node, ast.Attribute) for node in nodes)
    for node in program.nodes.values():
        if id(node) not in runs:
            continue
        if _sets_visible(context, node):  # which GPUs the numbers are of
            yield program.statement(node)
        elif configured and isinstance(node, ast.Attribute) and node.attr in CONFIGURES:
            yield program.statement(node)


def _sets_visible(context: Context, node: ast.AST) -> bool:
    """``os.environ["CUDA_VISIBLE_DEVICES"] = …``, ``os.environ.setdefault``, ``os.putenv``."""
    if not (isinstance(node, ast.Constant) and node.value == VISIBLE):
        return False
    match context.program.parent(node):
        case ast.Subscript(ctx=ast.Store()) | ast.Dict():
            return True
        case ast.Call(func=ast.Attribute(attr="setdefault" | "putenv")):
            return True
    return False


def _is_code(node: ast.AST) -> bool:
    return not isinstance(node, ast.arg | ast.alias | ast.FunctionDef | ast.ClassDef)


def _attribute_sets(context: Context, node: ast.expr, runs: set[int]) -> list[ast.stmt]:
    """``args.gpus = …``, under whichever name the options have there."""
    if not isinstance(node, ast.Attribute):
        return []
    program = context.program
    values = program.values(node.value) if id(node.value) in program.nodes else frozenset()
    return [
        statement
        for target, statement in context.attribute_assignments.get(node.attr, ())
        if id(statement) in runs
        and (ast.dump(target.value) == ast.dump(node.value) or program.values(target.value) & values)
    ]


def _changes(context: Context, held: ast.Name | ast.Attribute, runs: set[int]) -> Iterator[ast.stmt]:
    """The statements that change an object in place, and those that run them, under whichever name it has there.

    ``ids.append(0)``, ``ids += [0]``, ``ids[0] = 1``, ``del ids[0]``, ``config.read(path)``, ``setattr(args, key, 1)``.
    """
    program = context.program
    values = _objects(context, held)
    for node in list(program.nodes.values()):
        changed = _changed_in_place(context, node) if id(node) in runs else None
        if isinstance(changed, ast.Name | ast.Attribute) and (
            _objects(context, changed) & values or _are_same(context, changed, held)
        ):
            yield program.statement(node)


def _objects(context: Context, node: ast.expr) -> Values:
    """What an expression may be that has contents which can change."""
    known = context.program.values(node) if id(node) in context.program.nodes else frozenset()
    return frozenset(value for value in known if isinstance(value, Coll | Made))


def _are_same(context: Context, one: ast.expr, other: ast.expr) -> bool:
    """Whether two expressions name the same thing: the same variable, or the same attribute of one object."""
    program = context.program
    if isinstance(one, ast.Attribute) and isinstance(other, ast.Attribute):
        known = all(id(it.value) in program.nodes for it in (one, other))
        same = known and program.values(one.value) & program.values(other.value)
        return one.attr == other.attr and (bool(same) or ast.dump(one.value) == ast.dump(other.value))
    if isinstance(one, ast.Name) and isinstance(other, ast.Name) and one.id == other.id:
        found = [set(map(id, program.definitions(it))) for it in (one, other) if id(it) in program.nodes]
        return len(found) == 2 and bool(found[0] & found[1])
    return False


def _changed_in_place(context: Context, node: ast.AST) -> ast.expr | None:
    """The object that a piece of code changes; what a method of the project changes is found in the method."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name, value=changed)) if name in FILLS_SETTINGS or _is_ordered(
            context, node
        ):
            return _root(changed)
        case ast.Call(func=ast.Name(id="setattr"), args=[changed, *_]):
            return _root(changed)
        case ast.AugAssign(target=changed) | ast.Subscript(value=changed, ctx=ast.Store() | ast.Del()):
            return _root(changed)
    return None


def _is_ordered(context: Context, node: ast.Call) -> bool:
    """Whether a method of something outside the project is called for what it does, as a statement by itself."""
    if not isinstance(context.program.parent(node), ast.Expr):
        return False
    call = context.program.call(node)
    return call is None or not any(isinstance(it, Func | Bound) for it in call.callees)


def _root(changed: ast.expr) -> ast.expr:
    """What is changed with a part of it: ``d`` of ``d["a"]["b"]``, ``args`` of ``vars(args)``."""
    match changed:
        case ast.Subscript(value=inner) | ast.Attribute(value=inner, attr="__dict__"):
            return _root(inner)
        case ast.Call(func=ast.Name(id="vars"), args=[inner]):
            return _root(inner)
    return changed


def _is_at_hand(
    context: Context,
    devices: _Devices,
    block: list[ast.stmt],
    begin: ast.stmt,
    scopes: list[Scope],
    main: ast.stmt | None = None,
) -> bool:
    """Whether the devices are chosen before a statement of a block; ``main`` is the one that leads to the block."""
    if devices.expression is None:
        return True
    if _hidden(context, devices.expression, scopes) is not None:
        return False
    order = context.program.order
    for decider in devices.deciders:
        holder = _holder(context, decider, block)
        if holder is not None and order[id(holder)] >= order[id(begin)]:
            return False
        if holder is None and main is None:
            return False
    return True


def _holder(context: Context, part: ast.AST, block: list[ast.stmt]) -> ast.stmt | None:
    """The statement of a block that another one is part of, or else the first that runs it; None if none does."""
    for statement in block:
        if any(part is node for node in context.program.descendants(statement)):
            return statement
    return next((it for it in block if id(part) in context.runs(it)), None)


def _lates(context: Context, entry: Entry, wanted: _Devices) -> tuple[Late, ...]:
    """Where the devices are chosen later: for the first wrap, and for those that are come to on other ways."""
    first = _late(context, entry, wanted)
    found = [first] if first is not None else []
    others = [it for _, it in _each_wanted(context, entry.file) if it.wrap is not wanted.wrap]
    for devices in others if found else ():
        late = _late(context, entry, devices)
        if late is not None and not any(_precedes(context, it, devices.wrap, late) for it in found):
            found.append(late)
    return tuple(found)


def _precedes(context: Context, late: Late, wrap: ast.Call | None, other: Late) -> bool:
    """Whether the devices are chosen already, wherever a program comes to a wrap."""
    at = context.program.node_at(late.at)
    if late.at == other.at or at is None or wrap is None:
        return True
    order = context.program.order
    earliest: dict[int, int] = {}
    for it, block, _ in _leading(context, context.program.statement(wrap)):
        earliest[id(block)] = min(order[id(it)], earliest.get(id(block), order[id(it)]))
    for it, block, always in _leading(context, context.program.statement(at)):
        then = earliest.get(id(block), -1)
        if always and (order[id(it)] < then or (it is at and order[id(it)] == then and not late.after)):
            return True
    return False


def _leading(context: Context, statement: ast.stmt) -> Iterator[tuple[ast.stmt, list[ast.stmt], bool]]:
    """The statements by which a program comes to one, each with its block, and whether it always comes there by it."""
    program, seen = context.program, set()
    waiting: list[tuple[ast.AST, bool]] = [(statement, True)]
    while waiting:
        node, surely = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for call in context.callers.get(program.by_node[id(node)].index, ()):
                found = program.call(call)
                alone = found is not None and len(found.callees) == 1
                waiting.append((program.statement(call), surely and alone))
        elif isinstance(node, ast.stmt) and id(node) not in seen:
            seen.add(id(node))
            yield node, program.block(node), surely
            around = program.parent(node)
            under = isinstance(around, (ast.If, ast.Try, *LOOPS)) and not (
                isinstance(around, ast.If) and is_main_guard(around.test)
            )
            if isinstance(around, ast.ExceptHandler | ast.match_case):
                around, under = program.parent(around), True
            if around is not None:
                waiting.append((around, surely and not under))


def _late(context: Context, entry: Entry, wanted: _Devices) -> Late | None:
    """Where the devices are chosen after the ranks have started: as early as all that decides them has run."""
    program = context.program
    if wanted.expression is None or wanted.wrap is None:
        return None
    expression, scope = _climb(context, wanted.expression, program.scope(wanted.wrap))
    if _all_devices(context, expression):
        return None
    block = entry.block if scope is entry.scope else scope.body
    place = _place(context, block, list(_deciders(context, expression, entry.file)), wanted.wrap)
    if place is None:
        return _at_wrap(context, wanted)
    statement, after = place
    anchor = program.anchor(statement)
    written = _with_condition(context, expression)
    return Late(anchor, context.ddp(anchor.path), after, written, scripts=frozenset([entry.file.path]))


def _at_wrap(context: Context, wanted: _Devices) -> Late:
    """The devices are chosen where the model is wrapped, and by what stands there."""
    program = context.program
    statement = program.statement(wanted.wrap)
    anchor = program.anchor(statement)
    scripts = context.run_by(wanted.wrap)
    scope: Scope | None = program.scope(wanted.wrap)
    scopes = []
    while scope is not None:
        scopes.append(scope)
        scope = scope.parent
    chosen = wanted.expression
    if _hidden(context, chosen, scopes) is not None:  # an option that has no name there
        call = program.call(wanted.wrap)
        given = context.wrappers.argument(call, "device_ids", 1) if call is not None else None
        chosen = given if given is not None else ast.Constant(None)
    return Late(anchor, context.ddp(anchor.path), False, ast.unparse(chosen), scripts=scripts)


def _climb(context: Context, expression: ast.expr, scope: Scope) -> tuple[ast.expr, Scope]:
    """An expression in the names of the outermost function that knows them, and that function."""
    for _ in range(12):
        above = _above(context, expression, scope)
        if above is None:
            break
        expression, scope = above
    return expression, scope


def _above(context: Context, expression: ast.expr, scope: Scope) -> tuple[ast.expr, Scope] | None:
    """The same expression one step nearer to the start: where an attribute is set, or parameters are given."""
    program = context.program
    definitions = program.definitions(expression) if id(expression) in program.nodes else []
    statement = program.statement(definitions[0]) if len(definitions) == 1 else None
    if isinstance(expression, ast.Attribute) and isinstance(statement, ast.Assign):
        own = all(isinstance(it, Inst) for it in program.values(expression.value) or [None])
        if own and statement.targets == definitions and _is_all(context, expression, statement.value):
            return statement.value, program.scope(statement)
    given = {id(name): _given(context, name) for name in _names(context, expression)}
    if not given or None in given.values():
        return None
    nodes = [it for value in given.values() for it in ast.walk(value) if id(it) in program.nodes]  # type: ignore[arg-type]
    scopes = {program.scope(it).index: program.scope(it) for it in nodes}
    above = _replaced(expression, given)  # type: ignore[arg-type]
    if len(scopes) > 1 or (not scopes and isinstance(_folded(above), ast.IfExp)):
        return None  # constants that decide nothing read better by their names
    return above, next(iter(scopes.values()), scope)


def _names(context: Context, expression: ast.expr) -> list[ast.Name]:
    """The names in an expression that are given or assigned their values."""
    program = context.program
    names = [it for it in ast.walk(expression) if isinstance(it, ast.Name) and isinstance(it.ctx, ast.Load)]
    known = {id(it): program.definitions(it) for it in names if id(it) in program.nodes}
    return [
        it
        for it in names
        if known.get(id(it)) and all(_is_code(d) or isinstance(d, ast.arg) for d in known[id(it)])
    ]


def _given(context: Context, name: ast.Name) -> ast.expr | None:
    """What a parameter is given, if that is one thing that can be written where it is given."""
    found = {ast.dump(it): it for it in given(context, name)}
    simple = ast.Name | ast.Attribute | ast.Constant | ast.List | ast.Tuple | ast.Subscript
    alone = next(iter(found.values())) if len(found) == 1 else None
    return alone if isinstance(alone, simple) else None


def _replaced(expression: ast.expr, replaced: dict[int, ast.expr]) -> ast.expr:
    """An expression with other nodes in the place of some."""
    if id(expression) in replaced:
        return replaced[id(expression)]
    changed = copy.copy(expression)
    for field, value in ast.iter_fields(expression):
        if isinstance(value, ast.expr):
            setattr(changed, field, _replaced(value, replaced))
        elif isinstance(value, list):
            parts = [_replaced(it, replaced) if isinstance(it, ast.expr) else it for it in value]
            setattr(changed, field, parts)
    return changed


def _place(
    context: Context, block: list[ast.stmt], deciders: list[ast.stmt], wrap: ast.Call
) -> tuple[ast.stmt, bool] | None:
    """The statement of a block before which, or after which, the devices are chosen; None if the wrap comes earlier."""
    order = context.program.order
    until = _holder(context, wrap, block)
    if until is None:
        return None
    left = leaves_before(context, until)
    on_the_way = [it for it in block if it not in left]
    holders = [it for it in (_holder(context, decider, on_the_way) for decider in deciders) if it is not None]
    if not holders:
        first = next((it for it in block if not _is_docstring(it)), block[0])
        return first, False
    last = max(holders, key=lambda it: order[id(it)])
    if order[id(last)] < order[id(until)]:
        return last, True
    if last is not until:
        return until, False
    for inner in (getattr(last, field, None) for field in ("body", "orelse", "finalbody")):
        if isinstance(inner, list) and inner and not isinstance(last, (ast.ClassDef, *LOOPS)):
            here = [it for it in deciders if _holder(context, it, inner) is not None]
            if here and _holder(context, wrap, inner) is not None:
                return _place(context, inner, here, wrap)
    return None


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


# The same, as it is written


def written_in(context: Context, given: ast.expr, scopes: list[Scope]) -> ast.expr | None:
    """An expression with the names that some scopes have; None where they lack one."""
    source = _source(context, given, scopes)
    return source if _hidden(context, source, scopes) is None else None


def _source(
    context: Context,
    given: ast.expr,
    scopes: list[Scope],
    depth: int = 0,
    late: Set[int] = frozenset(),
) -> ast.expr:
    """An expression with what is given for functions' parameters, or assigned to their names, in their place.

    Its names are the program's own nodes. Where nothing took the place of a name, so is the whole expression.
    """
    behind = _behind(context, given, scopes, depth, late) if depth < 9 else None
    if behind is not None:
        return _source(context, behind, scopes, depth + 1, late)
    if isinstance(given, ast.Name):
        return given
    changed: ast.expr = copy.copy(given)
    for field, value in ast.iter_fields(given):
        if isinstance(value, ast.AST):
            setattr(changed, field, _source(context, value, scopes, depth, late))  # type: ignore[arg-type]
        elif isinstance(value, list):
            parts = [
                _source(context, it, scopes, depth, late) if isinstance(it, ast.AST) else it for it in value
            ]
            setattr(changed, field, parts)
    same = all(getattr(changed, field) == value for field, value in ast.iter_fields(given))
    return given if same else changed


def _behind(
    context: Context, node: ast.AST, scopes: list[Scope], depth: int, late: Set[int]
) -> ast.expr | None:
    """What a name or attribute is that the ranks' start can't use, if it is one thing; None for others."""
    program = context.program
    if not isinstance(node, ast.Name | ast.Attribute) or id(node) not in program.nodes:
        return None
    if isinstance(node, ast.Name) and (argument := _argument(context, node, scopes, depth)) is not None:
        return argument
    root: ast.expr = node
    while isinstance(root, ast.Attribute):
        root = root.value
    known = program.definitions(root) if isinstance(root, ast.Name) else []
    if all(program.scope(it) in scopes for it in known) and not any(id(it) in late for it in known):
        return None
    if isinstance(node, ast.Attribute) and not all(
        isinstance(it, Inst) for it in program.values(node.value) or [None]
    ):
        return None  # others may set it, too
    definitions = program.definitions(node)
    statement = (
        program.statement(definitions[0]) if len(definitions) == 1 and _is_code(definitions[0]) else None
    )
    known = isinstance(statement, ast.Assign) and definitions[0] in statement.targets
    return statement.value if known and _is_all(context, node, statement.value) else None


def _is_all(context: Context, name: ast.expr, value: ast.expr) -> bool:
    """Whether an expression may stand for the name that it is assigned to: evaluated again, and changed by nothing.

    A name is changed with what it is another name of.
    """
    if not _is_simple(context, value):
        return False
    return isinstance(value, ast.Name | ast.Attribute) or not any(_changes(context, name, context.trained))


def _is_simple(context: Context, node: ast.expr) -> bool:
    """Whether an expression may be evaluated once more elsewhere: its calls are of Python's own plain functions.

    Or ask for the GPUs that there are.
    """
    calls = [context.program.call(it) for it in ast.walk(node) if isinstance(it, ast.Call)]
    names = [full_name(callee) for it in calls if it is not None for callee in it.callees]
    plain = all(name.startswith("builtins.") or name in (AVAILABLE, COUNT, "torch.device") for name in names)
    return plain and _pure(context, node)


def _argument(context: Context, name: ast.Name, scopes: list[Scope], depth: int = 0) -> ast.expr | None:
    """What is given for a parameter, where that is one thing, or its default; None for other names.

    ``depth``: how many names were followed to this one. A function may give its parameter to itself.
    """
    definitions = context.program.definitions(name)
    alone = definitions[0] if len(definitions) == 1 else None
    if not isinstance(alone, ast.arg):
        return None
    found = context.program.given(alone)
    if len(found) > 1:
        found = [_source(context, it, scopes, max(6, depth + 1)) for it in found]
        same = len(set(map(ast.dump, found))) == 1
        return found[0] if same and not any(_hidden(context, it, scopes) for it in found) else None
    return found[0] if found else None


def given(context: Context, name: ast.Name) -> list[ast.expr]:
    """What calls of the project give for a parameter; nothing for other names."""
    definitions = context.program.definitions(name)
    if len(definitions) != 1 or not isinstance(definitions[0], ast.arg):
        return []
    return context.program.given(definitions[0])


def _text(context: Context, devices: _Devices, place: ast.AST) -> Anchor | str | None:
    """The devices where the ranks start: as they are edited, or as they are written in another file."""
    if devices.expression is None:
        return None
    if (test := _condition(context, devices.expression)) is not None:
        return f"{ast.unparse(devices.expression)} if {ast.unparse(test)} else 0"
    return _written(context, devices.expression, place)


def _with_condition(context: Context, expression: ast.expr) -> str:
    test = _condition(context, expression)
    return ast.unparse(expression) + (f" if {ast.unparse(test)} else 0" if test is not None else "")


def _written(context: Context, expression: ast.expr | None, place: ast.AST) -> Anchor | str | None:
    """An expression at the place where the ranks start: as it is edited, or as it is written in another file."""
    if expression is None:
        return None
    known = id(expression) in context.program.nodes and not is_inserted(expression)
    written = known and context.program.file(expression) is context.program.file(place)
    return context.program.anchor(expression) if written else ast.unparse(expression)


def _hidden(context: Context, expression: ast.expr | None, scopes: list[Scope]) -> ast.Name | None:
    """A name of an expression that none of some scopes binds."""
    program = context.program
    nodes = list(ast.walk(expression)) if expression is not None else []
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            outside = [definition for definition in program.definitions(node) if definition not in nodes]
            unknown = any(program.scope(definition) not in scopes for definition in outside)
            if unknown and not (scopes and _import(context, node, scopes[0].file)):
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


def _condition(context: Context, expression: ast.expr) -> ast.expr | None:
    """The condition under which devices are chosen, where it asks for GPUs and they are chosen nowhere else.

    Without it they may be no list yet, and no GPU is used.
    """
    program = context.program
    known = program.definitions(expression) if id(expression) in program.nodes else []
    sets = [program.statement(it) for it in known if _is_code(it)]
    if isinstance(expression, ast.Attribute):
        places = context.attribute_assignments.get(expression.attr, ())
        sets += [it for target, it in places if ast.dump(target.value) == ast.dump(expression.value)]
    tests = [
        around
        for it in dict.fromkeys(sets)
        for around in program.ancestors(it)
        if isinstance(around, ast.If)
        and asks_for_gpus(context, around.test)
        and any(it is inner for part in around.body for inner in ast.walk(part))
    ]
    found = {ast.dump(it.test): it for it in tests}
    if len(tests) < len(dict.fromkeys(sets)) or len(found) != 1:
        return None
    (around,) = found.values()
    simple = not any(isinstance(it, ast.Call) for it in ast.walk(around.test))
    return around.test if simple or is_call_of(context, around.test, AVAILABLE) else None
