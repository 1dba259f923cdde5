"""Where a program's ranks start: at the call of its main function, or at its first side effect."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dp2ddp.analyse.conditions import COUNT, assigned, is_call_of, is_cuda_string, is_main_guard
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.link import Bound, Call, Cls, Ext, Func, Scope, full_name
from dp2ddp.facts import Problem, Script
from dp2ddp.plan import Anchor
from dp2ddp.source import SourceFile

# Calls that change nothing outside the process and draw no random numbers.
PURE = (
    "argparse.",
    "builtins.",
    "collections.",
    "dataclasses.",
    "enum.",
    "functools.",
    "itertools.",
    "logging.getLogger",
    "math.",
    "matplotlib.use",
    "multiprocessing.cpu_count",
    "os.cpu_count",
    "os.environ",
    "os.getcwd",
    "os.getenv",
    "os.path.",
    "pathlib.",
    "re.",
    "sys.path.",
    "time.",
    "datetime.",
    "torch.cuda.is_available",
    "torch.cuda.device_count",
    "torch.device",
    "torch.nn.functional.",
    "torch.set_default_dtype",
    "torchvision.transforms.",
    "typing.",
    "warnings.",
    "dp2ddp.runtime.device",
    "dp2ddp.runtime.get_",
    "dp2ddp.runtime.is_main_process",
)
IMPURE = {
    "builtins.print",
    "builtins.open",
    "builtins.input",
    "builtins.exec",
    "builtins.eval",
    "builtins.exit",
}
IMPURE_METHODS = {"mkdir", "write_text", "write_bytes", "touch", "unlink", "rename", "rmdir", "open"}
STARTED = {"dp2ddp.runtime.launch", "dp2ddp.runtime.init"}
VISIBLE = "CUDA_VISIBLE_DEVICES"


def collect(context: Context) -> tuple[Script, ...]:
    """The start of every program that trains with DataParallel."""
    return tuple(_script(context, file) for file in context.scripts)


@dataclass(frozen=True)
class _Devices:
    """The expression that chooses the devices, and the statements that must have run before it counts."""

    expression: ast.expr | None
    deciders: tuple[ast.stmt, ...]


def _script(context: Context, file: SourceFile) -> Script:
    program = context.program
    reaches = frozenset(program.project.reaches(file.path))
    statements = list(_top_level(file.tree.body))
    devices = _devices(context, file)

    def fact(node: ast.AST, form: str, **more: object) -> Script:
        place = {**context.place(node), "scripts": frozenset([file.path])}
        return Script(**place, form=form, reaches=reaches, **more)  # type: ignore[arg-type]

    for statement in statements:
        if any(is_call_of(context, inner, *STARTED) for inner in program.descendants(statement)):
            return fact(statement, "init", done=True)
    chosen = _written(context, devices.expression, file)
    first = next(
        (
            statement
            for statement in statements
            # Which device is this rank's is known once the devices are chosen.
            if not _pure(context, statement) or (chosen is not None and _names_device(statement))
        ),
        None,
    )
    if first is None:
        first = statements[-1]
    holders = [_holder(context, decider, statements) for decider in devices.deciders]
    inside = [decider for decider, holder in zip(devices.deciders, holders, strict=True) if holder is None]
    late = [holder for holder in holders if holder is not None and not _before(context, holder, first)]
    if late:
        return _problem(fact(first, "init"), program.location(late[0]).span.line, file)
    top = program.modules[file.path]
    call = _main_call(context, first)
    if call is None:
        if inside:
            return _problem(fact(first, "init"), program.location(inside[0]).span.line, file)
        if hidden := _hidden(context, devices.expression, [top]):
            return _unknown(fact(first, "init"), hidden)
        return fact(first, "init", devices=chosen)
    function, target = call
    if hidden := _hidden(context, devices.expression, [top, program.scopes[target]]):
        return _unknown(fact(first, "init"), hidden)
    body = program.scopes[target].body
    own_names = _local_names(context, devices.expression, target)
    if inside or own_names:
        outside = [decider for decider in inside if decider not in body]
        if outside:
            return _problem(fact(first, "init"), program.location(outside[0]).span.line, file)
        deciders = [decider for decider in devices.deciders if decider in body]
        begin = _first_in(context, body, deciders)
        if begin is None:
            return _problem(fact(first, "init"), program.location(deciders[-1]).span.line, file)
        return fact(begin, "init", devices=chosen)
    arguments = tuple(
        [("*" if isinstance(arg, ast.Starred) else "", program.anchor(arg)) for arg in function.args]
        + [
            (f"{keyword.arg}=" if keyword.arg else "**", program.anchor(keyword.value))
            for keyword in function.keywords
        ]
    )
    return fact(
        function, "launch", function=program.anchor(function.func), arguments=arguments, devices=chosen
    )


def _problem(script: Script, line: int, file: SourceFile) -> Script:
    problem = Problem(
        f"the devices are chosen at line {line}, after the first side effect that only ranks may have",
        "choose the devices (device_ids, args.gpus, CUDA_VISIBLE_DEVICES) before anything is printed, written, "
        "downloaded or drawn",
    )
    return replace(script, problem=problem)


def _unknown(script: Script, name: ast.Name) -> Script:
    problem = Problem(
        f"the devices are chosen by `{name.id}`, which has no value yet where the ranks start",
        "take device_ids from an option of the program",
    )
    return replace(script, problem=problem)


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run when the file is run, those under the main guard in place of the guard."""
    for statement in body:
        if isinstance(statement, ast.If) and is_main_guard(statement.test):
            yield from statement.body
        else:
            yield statement


def _before(context: Context, holder: ast.stmt, first: ast.stmt) -> bool:
    return context.program.order[id(holder)] < context.program.order[id(first)]


def _holder(context: Context, decider: ast.stmt, statements: list[ast.stmt]) -> ast.stmt | None:
    """The top-level statement that a statement is, or is a part of; None where it runs in a function."""
    for statement in statements:
        if any(decider is node for node in context.program.descendants(statement)):
            return statement
    return None


def _pure(context: Context, statement: ast.stmt | ast.expr) -> bool:
    """Whether running a piece of code twice does no harm: nothing written, printed, drawn or fetched."""
    if isinstance(
        statement, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    ):
        return True
    return not any(_effect(context, node) for node in context.program.descendants(statement)) and not any(
        _effect(context, node)
        for index in context.program.entered(statement)
        for part in context.program.scopes[index].body
        for node in context.program.descendants(part)
    )


def _names_device(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    return any(is_cuda_string(node) for node in ast.walk(statement))


def _effect(context: Context, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    call = context.program.call(node)
    if call is None or not call.callees:
        return not (isinstance(node.func, ast.Attribute) and _on_plain_data(context, node.func))
    return any(_impure(context, callee, call) for callee in call.callees)


def _on_plain_data(context: Context, function: ast.Attribute) -> bool:
    """Methods of strings, lists and dicts: ``"a,b".split(",")``, ``args.gpus.split(",")``."""
    plain = {
        "split",
        "strip",
        "join",
        "format",
        "lower",
        "upper",
        "replace",
        "append",
        "update",
        "get",
        "items",
    }
    plain |= {"keys", "values", "startswith", "endswith", "extend", "pop", "setdefault", "copy"}
    return function.attr in plain


def _impure(context: Context, callee: object, call: Call) -> bool:
    if isinstance(callee, Func | Bound):
        return False  # what it runs is looked at on its own
    if isinstance(callee, Cls):
        outside = [base for base in context.program.bases(callee) if isinstance(base, Ext)]
        return any(not base.name.startswith(PURE) for base in outside)
    name = full_name(callee)  # type: ignore[arg-type]
    if not name:
        function = call.node.func
        return not (isinstance(function, ast.Attribute) and _on_plain_data(context, function))
    last = name.rpartition(".")[2]
    if name in IMPURE or (name.startswith("pathlib.") and last in IMPURE_METHODS):
        return True
    return not name.startswith(PURE)


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


def _devices(context: Context, file: SourceFile) -> _Devices:
    """What chooses the devices: ``device_ids`` of the wrap, assignments to CUDA_VISIBLE_DEVICES."""
    program = context.program
    runs = context.program_runs(file)
    expression: ast.expr | None = None
    deciders: list[ast.stmt] = []
    for call in context.wraps:
        given = call.argument("device_ids", 1)
        source = _source(context, given) if id(call.node) in runs and given is not None else None
        if source is not None and not _all_devices(context, source):
            expression = source
            nodes = list(ast.walk(expression))
            for node in nodes:
                if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                    known = program.definitions(node) if id(node) in program.nodes else []
                    deciders += [
                        program.statement(found) for found in known if _is_code(found) and found not in nodes
                    ]
                    deciders += _attribute_sets(context, node, runs)
    for node in program.nodes.values():
        if id(node) in runs and isinstance(node, ast.Assign) and VISIBLE in ast.dump(node.targets[0]):
            deciders.append(node)
    return _Devices(expression, tuple(deciders))


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


def _source(context: Context, given: ast.expr) -> ast.expr:
    """An expression with what is given for functions' parameters in their place.

    Its names are the program's own nodes. Where nothing took the place of a name, so is the whole expression.
    """
    if isinstance(given, ast.Name):
        argument = _argument(context, given)
        return given if argument is None else _source(context, argument)
    changed: ast.expr = copy.copy(given)
    for field, value in ast.iter_fields(given):
        if isinstance(value, ast.AST):
            setattr(changed, field, _source(context, value))  # type: ignore[arg-type]
        elif isinstance(value, list):
            parts = [_source(context, part) if isinstance(part, ast.AST) else part for part in value]
            setattr(changed, field, parts)
    same = all(getattr(changed, field) == value for field, value in ast.iter_fields(given))
    return given if same else changed


def _argument(context: Context, name: ast.Name) -> ast.expr | None:
    """What is given for a parameter, where that is one place, or its default; None for other names."""
    found = given(context, name)
    if found:
        return found[0] if len(found) == 1 else None
    definitions = context.program.definitions(name)
    alone = definitions[0] if len(definitions) == 1 else None
    return _default(context, alone) if isinstance(alone, ast.arg) else None


def given(context: Context, name: ast.Name) -> list[ast.expr]:
    """What calls of the project give for a parameter; nothing for other names."""
    definitions = context.program.definitions(name)
    if len(definitions) != 1 or not isinstance(definitions[0], ast.arg):
        return []
    return [
        argument
        for call in context.program.calls
        for callee in call.callees
        if isinstance(callee, Func | Bound)
        and _has_parameter(context, callee, definitions[0])
        and (argument := _given(context, call, callee, name.id)) is not None
    ]


def _default(context: Context, parameter: ast.arg) -> ast.expr | None:
    args = context.program.parent(parameter)
    if not isinstance(args, ast.arguments):
        return None
    named = [*args.posonlyargs, *args.args]
    defaults = dict(zip([arg.arg for arg in reversed(named)], reversed(args.defaults), strict=False))
    keywords = zip([arg.arg for arg in args.kwonlyargs], args.kw_defaults, strict=True)
    return {**defaults, **dict(keywords)}.get(parameter.arg)


def _has_parameter(context: Context, callee: Func | Bound, parameter: ast.arg) -> bool:
    func = callee.func if isinstance(callee, Bound) else callee
    return context.program.scope(parameter) is context.program.scopes[func.scope]


def _given(context: Context, call: Call, callee: Func | Bound, name: str) -> ast.expr | None:
    func = callee.func if isinstance(callee, Bound) else callee
    params = context.program.scopes[func.scope].params[1 if isinstance(callee, Bound) else 0 :]
    return call.argument(name, params.index(name)) if name in params else None


def _written(context: Context, expression: ast.expr | None, file: SourceFile) -> Anchor | str | None:
    """An expression where the ranks start: as it is edited, or as it is written in another file."""
    if expression is None:
        return None
    written = id(expression) in context.program.nodes and context.program.file(expression) is file
    return context.program.anchor(expression) if written else ast.unparse(expression)


def _hidden(context: Context, expression: ast.expr | None, scopes: list[Scope]) -> ast.Name | None:
    """A name of an expression that none of some scopes binds."""
    program = context.program
    nodes = list(ast.walk(expression)) if expression is not None else []
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            outside = [definition for definition in program.definitions(node) if definition not in nodes]
            if any(program.scope(definition) not in scopes for definition in outside):
                return node
    return None


def _local_names(context: Context, expression: ast.expr | None, scope: int) -> bool:
    """Whether an expression uses names of a function."""
    if expression is None:
        return False
    inner = context.program.scopes[scope]
    return any(isinstance(node, ast.Name) and node.id in inner.names for node in ast.walk(expression))


def _first_in(context: Context, body: list[ast.stmt], deciders: list[ast.stmt]) -> ast.stmt | None:
    """The first statement after all deciders, if nothing before it has a side effect."""
    last = max((body.index(decider) for decider in deciders), default=-1)
    for index, statement in enumerate(body):
        if index > last:
            if not _pure(context, statement):
                return statement
        elif not _pure(context, statement):
            return None
    return None
