"""Which devices the wraps of a program name: their ``device_ids``, and what options make of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.analyse.api.devices import COUNT
from dp2ddp.analyse.api.inspection import LIST_TYPES, TYPE_QUESTIONS
from dp2ddp.analyse.api.parallel import WRAP
from dp2ddp.analyse.context import LOOPS, Context, is_main_guard
from dp2ddp.analyse.processes.answers import is_options
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
from dp2ddp.analyse.processes.deciders import attribute_sets
from dp2ddp.analyse.program.values import Ext, full_name
from dp2ddp.analyse.wrappers import asks_for_wrap
from dp2ddp.source import SourceFile

CALLS = 4
"""How many calls are gone back from a wrap to the condition under which it is made."""


@dataclass(frozen=True)
class Devices:
    """The expression that chooses the devices, where a ``wrap`` has it, and the statements that it depends on."""

    expression: ast.expr | None = None
    wrap: ast.Call | None = None
    deciders: tuple[ast.stmt, ...] = ()


def wanted_devices(context: Context, file: SourceFile) -> Devices:
    """The devices as a wrap is given them: its ``device_ids``, or one alone unless an option asks for several.

    One alone only where nothing else is wrapped on all of them.
    """
    chosen = []
    for given, devices in each_wanted(context, file):
        if given:
            return devices
        chosen.append(devices)
    everywhere = any(it.expression is None for it in chosen)
    different = {ast.dump(it.expression) for it in chosen if it.expression is not None}
    return Devices() if everywhere or len(different) != 1 else chosen[0]


def each_wanted(context: Context, file: SourceFile) -> Iterator[tuple[bool, Devices]]:
    """The devices of each wrap of a program, and whether the wrap names them."""
    runs = context.program_runs(file)
    for wrap in context.wraps:
        if id(wrap.node) in runs:
            given = context.wrappers.argument(wrap, "device_ids", 1)
            if given is not None and (
                all_devices(context, given) or _is_of_wrapper(context, wrap.node, given)
            ):
                given = None
            expression = _by_option(context, wrap.node, given) or given
            yield given is not None, Devices(expression, wrap.node)


def _is_of_wrapper(context: Context, wrap: ast.Call, given: ast.expr) -> bool:
    """Whether devices are those that another DataParallel has: ``model.device_ids``, where a model may be one."""
    if not isinstance(given, ast.Attribute) or given.attr != "device_ids":
        return False
    model = ast.dump(given.value)
    return context.is_wrapped(context.program.values(given.value)) or any(
        asks_for_wrap(part) and ast.dump(part.args[0]) == model  # type: ignore[attr-defined]
        for test, wraps, _ in _choices(context, wrap)
        for part, holds in _parts(test, wraps)
        if holds
    )


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
    there: list[ast.expr] = []
    for test, wraps, others in _choices(context, wrap):
        if is_true(test):
            continue  # as the program runs with DataParallel
        parts = [
            (it, it if holds else ast.UnaryOp(ast.Not(), it), holds) for it, holds in _parts(test, wraps)
        ]
        if given is not None:
            there += [literal for part, literal, _ in parts if _asks_if_there(context, part, given)]
        if any(_goes_on_wrapped(context, it, wrap) for part in others for it in ast.walk(part)):
            return _where_all(there, ast.Constant(None), given) if there and given is not None else None
        alone = alone or _single(context, others)
        for part, literal, _ in parts:
            if literal in there:
                asked.append(literal)
                switches.append(_switches_gpus(context, part, others))
                continue
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
        return _where_all(there, ast.Constant(None), given) if there and given is not None else None
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


def _asks_if_there(context: Context, test: ast.expr, devices: ast.expr) -> bool:
    """Whether a condition asks for what devices are read of: without it they can't be said.

    ``"gpus" in settings`` of ``settings["gpus"]``; ``settings is not None``, ``hasattr(settings, "gpus")`` and
    ``isinstance(settings, Settings)`` of ``settings.gpus``.
    """
    parts = [it for it in ast.walk(devices) if isinstance(it, ast.Attribute | ast.Subscript)]
    held = {ast.dump(it.value) for it in parts}
    match test:
        case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[owner]):
            keyed = [it for it in parts if isinstance(it, ast.Subscript)]
            return any(ast.dump(it.slice) == ast.dump(key) for it in keyed) and ast.dump(owner) in held
        case ast.Compare(left=owner, ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return ast.dump(owner) in held
        case ast.Call(args=[owner, _]) if is_call_of(
            context, test, "builtins.hasattr", "builtins.isinstance"
        ):
            return ast.dump(owner) in held
        case ast.Name() | ast.Attribute() | ast.Subscript():
            return ast.dump(test) in held
    return False


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
    return is_call_of(context, asked, *TYPE_QUESTIONS) and bool(named) and named <= LIST_TYPES


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
    sets = {it: attribute_sets(context, it, runs) for it in asked_of}
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
            alone: ast.expr = _single(context, others) or _numbered(context) or ast.Constant(1)
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


def all_devices(context: Context, given: ast.expr) -> bool:
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
            all_devices(context, source) or is_call_of(context, source, COUNT) for source in sources
        )
    return inner is not given and is_call_of(context, inner, COUNT)
