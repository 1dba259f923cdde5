"""Where the program names a GPU: each rank has its own."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from dp2ddp.analyse.api.devices import (
    AVAILABLE,
    BINDS,
    BLOCKS,
    COUNT,
    DEVICE_ARGUMENTS,
    DEVICE_FIRST,
    DEVICE_OF_TENSOR,
    DEVICE_TYPES,
    MOVES,
    READS_SETTINGS,
)
from dp2ddp.analyse.api.processes import ENDS, TELLS, THREADS
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.processes.branches import is_shared
from dp2ddp.analyse.processes.conditions import (
    assigned,
    counts_gpus,
    is_call_of,
    is_choice,
    is_cuda_string,
    is_device,
    number_of,
    origin,
)
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.values import Cls, Const, Inst, Value, full_name
from dp2ddp.facts import Device, Obstacle, Script


def collect(
    context: Context, skipped: set[int], early: set[int], at_home: set[int], unbound: set[int]
) -> tuple[Device, ...]:
    """Every place that names a GPU by its number, but those in ``skipped`` (moves that belong to a wrap).

    ``"cuda"`` and ``.cuda()`` are the current GPU, which the runtime makes the rank's own, so they stay.
    ``early``: what runs before the ranks know which devices they have. There a device has no number yet.
    ``at_home``: what runs where the runtime takes any device for the rank's own; how many there are counts there, too.
    ``unbound``: what runs where the current GPU may not be the rank's.
    """
    program = context.program
    choosing = _choosing(context)
    spelled = _is_spelled(context)
    found: dict[int, Device] = {}
    for node in list(program.nodes.values()):
        counted = is_call_of(context, node, COUNT) and _is_in_forward(context, node)
        if not (context.runs_in_training(node) or counted) or id(node) in skipped:
            continue
        plain = spelled or id(node) in early
        named = _unnumbered(context, node) if plain else _devices(context, node)
        for place, device in named:
            if id(node) in at_home and device.kind != "count":
                continue
            if device.kind != "count" or (id(node) not in choosing and not is_shared(context, node)):
                beside = _beside(context, node, place, device)
                found.setdefault(id(place), replace(device, beside=beside))
    found = _once(context, found)
    found = {
        key: it for key, it in found.items() if key in unbound or not is_current(context.program.nodes[key])
    }
    return tuple(sorted(found.values(), key=lambda device: (device.path, device.at.span)))


def _is_in_forward(context: Context, node: ast.AST) -> bool:
    """Whether a place is in a forward of a module that such a program may train, or in what that calls."""
    inside = context.program.scope(node).index in context.forwards
    return inside and context.program.file(node).path in context.reached


def _is_spelled(context: Context) -> bool:
    """Whether a device's text is compared: ``str(device) == "cuda"`` is not true of one with a number."""
    return any(
        isinstance(node, ast.Compare)
        and any(is_call_of(context, it, "builtins.str") for it in ast.walk(node))
        and any(isinstance(it, ast.Constant) and it.value == "cuda" for it in ast.walk(node))
        and context.runs_in_training(node)
        for node in context.program.nodes.values()
    )


def _once(context: Context, found: dict[int, Device]) -> dict[int, Device]:
    """The same, one for both branches of a condition that does nothing but choose between two devices."""
    chosen = {key for key, device in found.items() if device.kind == "device" and not device.beside}
    for node in list(context.program.nodes.values()):
        match node:
            case ast.If(
                body=[ast.Assign(targets=[target], value=one)],
                orelse=[ast.Assign(targets=[other], value=two)],
            ) if ast.unparse(target) == ast.unparse(other):
                target = context.program.anchor(target)
            case ast.IfExp(body=one, orelse=two):
                target = None
            case _:
                continue
        inside = {id(it) for it in ast.walk(node)} & found.keys()
        if {id(one), id(two)} == inside <= chosen and not _is_elif(context, node):
            if is_choice(context, node.test):
                found = {key: device for key, device in found.items() if key not in inside}
                kind = "device" if target is None else "either"
                found[id(node)] = Device(**context.place(node), kind=kind, operand=target)
    return found


def _is_elif(context: Context, node: ast.AST) -> bool:
    parent = context.program.parent(node)
    return isinstance(node, ast.If) and isinstance(parent, ast.If) and parent.orelse == [node]


def _choosing(context: Context) -> set[int]:
    """What runs in functions that say which devices there are to be: before there are ranks to count."""
    program = context.program
    found: set[int] = set()
    for call in context.wraps:
        given = context.wrappers.argument(call, "device_ids", 1)
        names = [it for it in ast.walk(given) if isinstance(it, ast.Name | ast.Attribute)] if given else []
        for definition in (it for name in names for it in program.definitions(name)):
            statement = program.statement(definition) if not isinstance(definition, ast.arg) else None
            if isinstance(statement, ast.Assign):
                here = {id(node) for node in program.descendants(statement.value)}
                found |= context.runs(statement.value) - here
    return found


def obstacles(context: Context, at_home: set[int]) -> Iterator[Obstacle]:
    """GPUs that have to be chosen by their numbers, for parts of a model; ``at_home`` as in ``collect``."""
    yield from _split(context, at_home)


def _beside(context: Context, node: ast.AST, place: ast.AST, device: Device) -> bool:
    """Whether a GPU is named for DataParallel and for the ranks of a distributed branch beside, which keep it.

    One that is no number is theirs by itself, where they make their GPUs the current ones.
    """
    if context.branches is None or not is_shared(context, node):
        return False
    numbered = device.kind in ("device", "name", "cuda") and not is_current(place)
    return device.kind == "current" or (numbered and not context.branches.binds)


def is_current(node: ast.AST) -> bool:
    """Whether a place names the current GPU, not one by its number."""
    match node:
        case ast.Constant(value="cuda"):
            return True
        case ast.Call() if _is_cuda(node):
            named = [*node.args[:1], *(it.value for it in node.keywords if it.arg == "device")]
            return all(isinstance(it, ast.Constant) and it.value is None for it in named)
        case ast.Call(func=function, args=[named], keywords=[]) if _makes_device(function):
            parts = (named.body, named.orelse) if isinstance(named, ast.IfExp) else (named,)
            names = [part.value if isinstance(part, ast.Constant) else None for part in parts]
            return "cuda" in names and set(names) <= DEVICE_TYPES
    return False


def _makes_device(function: ast.expr) -> bool:
    return ast.unparse(function).rpartition(".")[2] == "device"


def unbound(context: Context, scripts: Iterable[Script]) -> set[int]:
    """What runs where the current GPU may not be the rank's, though the runtime makes it that.

    That is where the file of the program is not begun yet, and in threads that may have been started before CUDA was
    in use. What makes another GPU the current one for a while is given the rank's instead.
    """
    program = context.program
    found: set[int] = set()
    for script in scripts:
        for path in script.reaches - {script.program}:
            run = context.runs_when_imported(path)
            moved = any(_moves_to_a_name(program.nodes[key]) for key in run if key in program.nodes)
            found |= {key for key in run if moved or not _only_names(context, program.nodes.get(key))}
    for call in program.calls:
        if any(name.startswith(THREADS) for name in call.names):
            found |= context.runs(call.node)
    for scope in program.scopes:
        family = program.bases(scope.owner) if scope.owner is not None else ()
        if any(full_name(it) == "threading.Thread" for it in family):
            found.update(*(context.runs(statement) for statement in scope.body))
    return found


def _moves_to_a_name(node: ast.AST) -> bool:
    """Whether something is put on a device that was chosen elsewhere."""
    if not isinstance(node, ast.Call):
        return False
    named = [it.value for it in node.keywords if it.arg == "device"]
    if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
        named += node.args[:1]
    return any(isinstance(it, ast.Name | ast.Attribute) for it in named)


def _only_names(context: Context, node: ast.AST | None) -> bool:
    """Whether a device is only named, and nothing is put there yet."""
    return node is not None and is_call_of(context, node, "torch.device")


def _split(context: Context, at_home: set[int]) -> Iterator[Obstacle]:
    """Parts of a model placed on different GPUs by their numbers."""
    numbers: dict[str, ast.AST] = {}
    for node in context.program.nodes.values():
        if not context.runs_in_training(node):
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value[:5] == "cuda:":
            if not _is_mapped(context, node, to=True):
                numbers.setdefault(node.value[5:], node)
        if _is_cuda(node) and node.args and isinstance(node.args[0], ast.Constant):
            numbers.setdefault(str(node.args[0].value), node)
    numbers = {number: node for number, node in numbers.items() if number.isdigit()}
    spread = [
        it
        for it in context.program.nodes.values()
        if context.runs_in_training(it) and _is_spread(context, it)
    ]
    placed = [
        it
        for it in spread
        if id(it) not in at_home and not _is_compared(context, it) and not _is_switched_off(context, it)
    ]
    if placed:
        yield context.obstacle(
            placed[0],
            f"GPUs are used by index, `{ast.unparse(placed[0])}`, as by a model that is split over GPUs",
            "model parallelism is not converted; put the whole model on one GPU",
        )
    elif len(numbers) > 1:
        node = list(numbers.values())[-1]
        yield context.obstacle(
            node,
            f"GPUs {', '.join(sorted(numbers))} are used by index, as by a model that is split over GPUs",
            "model parallelism is not converted; put the whole model on one GPU",
        )


def _is_spread(context: Context, node: ast.AST) -> bool:
    """Whether something names one GPU after the other, as a loop numbers them, and is put there or compared with it.

    Not a list of GPUs, ``[f"cuda:{i}" for i in range(n)]``: it is for a wrap.
    """
    number = number_of(node) if _is_cuda(node) or _is_cuda_format(node) else None
    names = [it for it in ast.walk(number) if isinstance(it, ast.Name)] if number is not None else []
    if not any(_is_of_loop(context, it) for it in names):
        return False
    named = [it for it in _names_of(context, node) if isinstance(it, ast.Name)]  # type: ignore[arg-type]
    uses = [node, *(it for target in named for it in _uses(context, target))]
    return _is_cuda(node) or any(_is_put_there(context, it) or _is_compared(context, it) for it in uses)


def _is_of_loop(context: Context, name: ast.Name) -> bool:
    """Whether a name is what a loop goes through, or made of that: ``i``, ``gpu = i % 2``."""
    definitions = context.program.definitions(name) if id(name) in context.program.nodes else []
    return any(
        isinstance(around, ast.For | ast.comprehension) and it in ast.walk(around.target)
        for it in definitions
        for around in context.program.ancestors(it)
    )


def _is_put_there(context: Context, node: ast.AST) -> bool:
    """Whether a tensor or a module is put on a device that is named so."""
    around = context.program.parent(node)
    if isinstance(around, ast.Call) and is_call_of(context, around, "torch.device"):
        return _is_put_there(context, around)
    if isinstance(around, ast.keyword):
        return around.arg == "device" and not is_call_of(
            context, context.program.parent(around), "torch.device"
        )
    moves = (
        isinstance(around, ast.Call) and isinstance(around.func, ast.Attribute) and around.func.attr in MOVES
    )
    return moves and node in around.args[:1]  # type: ignore[union-attr]


def _is_compared(context: Context, node: ast.AST) -> bool:
    return isinstance(context.program.parent(node), ast.Compare)


def _is_switched_off(context: Context, node: ast.AST) -> bool:
    """Whether something stands under a switch that nothing in the training turns on: ``if self.model_parallel:``."""
    for around in context.program.ancestors(node):
        if isinstance(around, ast.If) and isinstance(around.test, ast.Attribute | ast.Name):
            inside = any(node in ast.walk(it) for it in around.body)
            given = [it for it in assigned(context, around.test) if context.runs_in_training(it)]
            if inside and given and all(isinstance(it, ast.Constant) and not it.value for it in given):
                return True
    return False


def _is_cuda(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "cuda"


def _counts_devices(context: Context, call: Call) -> bool:
    """Whether a call counts a wrapped model's devices. One of its own class asks ``ddp.DataParallel``, which knows."""
    match call.node:
        case ast.Call(func=ast.Name(id="len"), args=[ast.Attribute(value=model, attr="device_ids")]):
            return context.is_wrapped(context.program.values(model)) and not context.in_own_wrapper(call)
    return False


def _devices(context: Context, node: ast.AST) -> Iterator[tuple[ast.AST, Device]]:
    if _is_mapped(context, node):
        return
    match node:
        case ast.JoinedStr() | ast.BinOp() | ast.Call() if _is_spread(context, node):
            return  # such code is right as it is, where it does not run; else the program is refused
        case ast.JoinedStr() | ast.BinOp() | ast.Call() if _is_cuda_format(node):
            if not _given_as_device(context, node):
                yield node, _device(context, node, "name")
        case ast.Call():
            call = context.program.call(node)
            if call is not None and _counts_devices(context, call):
                yield node, _device(context, node, "count")
            elif call is not None:
                yield from _call(context, call)
        case ast.Constant(value=str()) if _numbered(node) and not _given_as_device(context, node):
            yield node, _device(context, node, "name")
        case ast.Subscript() if _is_named_first(context, node):
            yield node, _device(context, node, "number" if _is_counted(context, node) else "device")


def _is_mapped(context: Context, node: ast.AST, to: bool = False) -> bool:
    """Whether a GPU is that of a file, which goes elsewhere: ``{"cuda:0": f"cuda:{gpu}"}``, a map for ``torch.load``.

    ``to``: or the one that it goes to.
    """
    match context.program.parent(node):
        case ast.Dict(keys=keys, values=values):
            pairs = [(key, value) for key, value in zip(keys, values, strict=True) if key is not None]
        case ast.DictComp(key=key, value=value):
            pairs = [(key, value)]
        case _:
            return False
    found = (pair for pair in pairs if node is pair[0] or (to and node is pair[1]))
    return any(is_gpu(context, key) and is_gpu(context, value) for key, value in found)


def _unnumbered(context: Context, node: ast.AST) -> Iterator[tuple[ast.AST, Device]]:
    """The same, where a device is that of the rank, whichever it gets: ``torch.device("cuda")``."""
    for place, device in _devices(context, node):
        if device.kind != "device":
            yield place, device
            continue
        given = place.args[0] if is_call_of(context, place, "torch.device") else place  # type: ignore[attr-defined]
        chosen = isinstance(given, ast.IfExp)
        for part in (given.body, given.orelse) if chosen else (given,):
            if (not chosen or is_gpu(context, part)) and ast.unparse(part) != "'cuda'":
                yield part, _device(context, part, "name")


def _numbered(node: ast.Constant) -> bool:
    return node.value[:5] == "cuda:" and node.value[5:].isdigit()


def _given_as_device(context: Context, node: ast.AST) -> bool:
    """Whether a string is part of an expression that becomes this rank's device."""
    for around in context.program.ancestors(node):
        if isinstance(around, ast.stmt | ast.JoinedStr):
            return isinstance(around, ast.JoinedStr)
        if isinstance(around, ast.Call) and (call := context.program.call(around)) is not None:
            return any(place is node or node in ast.walk(place) for place, _ in _call(context, call))
    return False


def _device(
    context: Context,
    node: ast.AST,
    kind: str,
    operand: ast.AST | None = None,
    extra: ast.AST | None = None,
    number: ast.AST | None = None,
) -> Device:
    program = context.program
    return Device(
        **context.place(node),
        kind=kind,
        operand=program.anchor(operand) if operand is not None else None,
        extra=program.anchor(extra) if extra is not None else None,
        number=program.anchor(number) if number is not None else None,
    )


def _call(context: Context, call: Call) -> Iterator[tuple[ast.AST, Device]]:
    node = call.node
    if "torch.device" in call.names and (asked := _asked_of_device(context, node)) is not None:
        yield node, _device(context, context.program.parent(node), "type", asked)  # type: ignore[arg-type]
    elif "torch.device" in call.names and node.args:
        first = node.args[0]
        if isinstance(first, ast.IfExp):
            if is_gpu(context, first.body) and is_call_of(context, first.test, AVAILABLE):
                yield node, _device(context, node, "device")
            else:
                parts = (first.body, first.orelse)
                gpus = [part for part in parts if is_gpu(context, part)]
                yield from ((part, _device(context, part, "name")) for part in gpus)
                named = [part for part in parts if _is_of_settings(context, part)]
                yield from ((part, _device(context, part, "named", part)) for part in named)
        elif is_gpu(context, first):
            yield node, _device(context, node, "device")
        elif _is_of_settings(context, first):
            yield node, _device(context, node, "named", first)
    elif call.names & BINDS:
        statement = context.program.statement(node)
        if isinstance(statement, ast.Expr):
            yield node, _device(context, statement, "current", call.argument("device", 0))
    elif call.names & BLOCKS:
        given = call.argument("device", 0)
        parts = (given.body, given.orelse) if isinstance(given, ast.IfExp) else (given,)
        others = (it for it in parts if it is not None and not _is_own(context, it))
        yield from ((it, _device(context, it, "device")) for it in others)
    elif COUNT in call.names:
        if _counts_replicas(context, node):
            yield node, _device(context, node, "count")
            yield from ((it, _device(context, it, "any", node.func)) for it in _asking_for_any(context, node))
    elif "torch.load" in call.names:
        if any(it.arg is None for it in node.keywords):
            return  # it may be among what `**` gives
        if call.argument("map_location", 1) is None:
            if not _is_data(context, context.program.scope(node).owner):  # samples are kept on the CPU
                yield node, _device(context, node, "load")
        elif _is_moved_by(context, call.argument("map_location", 1)):
            yield node, _device(context, node, "load")
        else:
            yield from _arguments(context, call)
    elif _is_cuda(node) and not _own_method(context, call):
        if _is_storage(context, node.func.value):  # type: ignore[attr-defined]
            return  # it has no `.to()`; what loads with it gets a function of the runtime's
        blocking = call.argument("non_blocking", 1)
        number = call.argument("device", 0)
        if isinstance(number, ast.Call) and getattr(number.func, "attr", "") == DEVICE_OF_TENSOR:
            return  # `.cuda(inputs.get_device())` is where the rank's tensors are
        yield node, _device(context, node, "cuda", node.func.value, blocking, number)  # type: ignore[attr-defined]
    else:
        yield from _arguments(context, call)


def _is_own(context: Context, node: ast.expr, depth: int = 0) -> bool:
    """Whether something that a block makes the current GPU is the rank's own, or none at all.

    That is where a tensor is, or a device that is the rank's where it is made.
    """
    match node:
        case ast.Constant(value=None) | ast.UnaryOp(op=ast.USub()):
            return True  # such a block does nothing
        case ast.Call(func=ast.Attribute(attr=attr)) if attr == DEVICE_OF_TENSOR:
            return True
    if depth > 4 or is_gpu(context, node):
        return is_current(node)
    if is_device(context, node):
        return True
    sources = _sources(context, node)
    if not sources:
        return isinstance(node, ast.Attribute) and node.attr == "device"
    return all(_is_own(context, it, depth + 1) for it in sources)


def _sources(context: Context, node: ast.expr) -> list[ast.expr]:
    """What a name, an attribute or a parameter may be."""
    if id(node) not in context.program.nodes or not isinstance(node, ast.Name | ast.Attribute):
        return []
    found = context.program.definitions(node)
    if found and all(isinstance(it, ast.arg) for it in found):
        return [source for it in found for source in context.program.given(it)]  # type: ignore[arg-type]
    return assigned(context, node)


def _is_moved_by(context: Context, function: ast.expr | None) -> bool:
    """Whether a function that places what is loaded names a GPU: ``lambda storage, loc: storage.cuda(0)``."""
    given = (
        [function] if isinstance(function, ast.Lambda) else assigned(context, function) if function else []
    )
    moved = (it.body for it in given if isinstance(it, ast.Lambda))
    return any(_is_cuda(it) and it.args and _is_storage(context, it.func.value) for it in moved)  # type: ignore[attr-defined]


def _is_storage(context: Context, node: ast.expr) -> bool:
    """Whether something is the first of two that a lambda is given, as a function that places what is loaded is."""
    around = next((it for it in context.program.ancestors(node) if isinstance(it, ast.Lambda)), None)
    names = [it.arg for it in around.args.args] if around is not None else []
    return len(names) == 2 and isinstance(node, ast.Name) and node.id == names[0]


def _asked_of_device(context: Context, node: ast.Call) -> ast.expr | None:
    """The device that is compared with a GPU by its number: ``device`` of ``device == torch.device("cuda:0")``."""
    match context.program.parent(node):
        case ast.Compare(left=one, ops=[ast.Eq()], comparators=[other]) if node.args:
            asked = one if other is node else other
            numbered = is_gpu(context, node.args[0]) and not is_current(node)
            return asked if numbered and is_device(context, asked) else None
    return None


def _is_data(context: Context, value: Value | None) -> bool:
    """Whether something is a class of data sets."""
    family = context.program.bases(value) if isinstance(value, Cls) else []
    return any(full_name(it).startswith("torch.utils.data.") for it in family)


def _arguments(context: Context, call: Call) -> Iterator[tuple[ast.AST, Device]]:
    """``"cuda"`` and ``"cuda:0"`` given as a device."""
    function = call.node.func
    places = [keyword.value for keyword in call.node.keywords if keyword.arg in DEVICE_ARGUMENTS]
    if isinstance(function, ast.Attribute) and function.attr == "to":
        places += call.node.args[:1]
    if "torch.load" in call.names:
        places += call.node.args[1:2]
    if call.names & DEVICE_FIRST:
        places += call.node.args[:1]
    for place in places:
        numbered = is_gpu(context, place) or _is_first_of_wrap(context, place)
        if numbered and not isinstance(place, ast.IfExp) and not _is_spread(context, place):
            yield place, _device(context, place, "device")
        elif _is_of_settings(context, place) and (call.names or not call.callees):
            source = _named_for_places(context, place)
            yield source, _device(context, source, "named", source)


def _is_of_settings(context: Context, node: ast.expr) -> bool:
    """Whether a text that may name a GPU is read from a file: ``config["device"]``; or says that it is the CPU."""
    values = context.program.values(node)
    origins = [origin(it) for it in values if not (isinstance(it, Const) and it.value in DEVICE_TYPES)]
    return bool(origins) and all(it is not None and it.name.startswith(READS_SETTINGS) for it in origins)


def _named_for_places(context: Context, node: ast.expr) -> ast.expr:
    """What a name is assigned once, if it is used for nothing but as a device; else where it is used."""
    sources = assigned(context, node) if isinstance(node, ast.Name) else []
    if len(sources) != 1 or isinstance(sources[0], ast.IfExp) or not _is_of_settings(context, sources[0]):
        return node
    uses = [it for target in _names_of(context, sources[0]) for it in _uses(context, target)]
    return sources[0] if uses and all(_is_device_argument(context, it) for it in uses) else node


def _is_device_argument(context: Context, node: ast.expr) -> bool:
    """Whether something is what a call of torch's takes as a device."""
    around = context.program.parent(node)
    if isinstance(around, ast.keyword):
        return around.arg in DEVICE_ARGUMENTS
    if not isinstance(around, ast.Call) or node not in around.args[:1]:
        return False
    moves = isinstance(around.func, ast.Attribute) and around.func.attr == "to"
    return moves or is_call_of(context, around, "torch.device")


def _is_first_of_wrap(context: Context, node: ast.expr, depth: int = 0) -> bool:
    """Whether a name is the number of a GPU in every case: a literal, an option, or one of those of a wrap.

    ``main = gpu_ids[0]``, also as a parameter.
    """
    if isinstance(node, ast.Subscript):
        return is_of_wrap(context, node)
    if not isinstance(node, ast.Name) or depth > 4 or id(node) not in context.program.nodes:
        return False
    given = _sources(context, node)
    return bool(given) and all(
        _is_number(context, it) or _is_first_of_wrap(context, it, depth + 1) for it in given
    )


def is_of_wrap(context: Context, node: ast.Subscript) -> bool:
    """Whether something is one of the GPUs that a wrap is given: ``gpu_ids[0]``."""
    if not isinstance(node.ctx, ast.Load) or not isinstance(node.slice, ast.Constant):
        return False
    wraps = (context.wrappers.argument(call, "device_ids", 1) for call in context.wraps)
    lists = set().union(*(_spellings(context, it) for it in wraps if it is not None))
    return bool(lists & _spellings(context, node.value))


def _spellings(context: Context, devices: ast.expr, depth: int = 0) -> set[str]:
    """A list of devices as it is written here, and where it comes from as a parameter or under another name."""
    if not isinstance(devices, ast.Name | ast.Attribute) or depth > 4:
        return set()
    found = {ast.unparse(devices)}
    if id(devices) in context.program.nodes:
        parameters = [it for it in context.program.definitions(devices) if isinstance(it, ast.arg)]
        given = [source for it in parameters for source in context.program.given(it)]
        for source in given or assigned(context, devices):
            found |= _spellings(context, source, depth + 1)
    return found


def _is_named_first(context: Context, node: ast.Subscript) -> bool:
    """Whether one of a wrap's GPUs gets a name which is a device elsewhere, or the CPU in other cases.

    ``device = gpu_ids[0] if gpu_ids else "cpu"``. Where the name is nothing but that GPU, its uses are looked at.
    """
    targets = _names_of(context, node)
    if not targets or not is_of_wrap(context, node):
        return False
    uses = [it for target in targets for it in _uses(context, target)]
    return any(_is_place(context, it) for it in uses) and not any(
        _is_first_of_wrap(context, it) for it in uses
    )


def _names_of(context: Context, node: ast.expr) -> list[ast.expr]:
    """The names that an expression is assigned to, by itself or as a branch of ``x if … else y``."""
    around = context.program.parent(node)
    while isinstance(around, ast.IfExp) and node is not around.test:
        node, around = around, context.program.parent(around)
    simple = isinstance(around, ast.Assign) and around.value is node
    return [it for it in around.targets if isinstance(it, ast.Name | ast.Attribute)] if simple else []  # type: ignore[union-attr]


def _uses(context: Context, target: ast.expr) -> list[ast.expr]:
    """Where a name that is assigned is read, in whichever file; an attribute under any object's name."""
    kind, name = (ast.Name, target.id) if isinstance(target, ast.Name) else (ast.Attribute, target.attr)  # type: ignore[attr-defined]
    return [
        it
        for it in context.program.nodes.values()
        if isinstance(it, kind)
        and isinstance(it.ctx, ast.Load)  # type: ignore[attr-defined]
        and (it.id if isinstance(it, ast.Name) else it.attr) == name  # type: ignore[attr-defined]
        and (isinstance(it, ast.Attribute) or target in context.program.definitions(it))
    ]


def _is_place(context: Context, node: ast.expr) -> bool:
    """Whether something is given to a call that may take it as a device."""
    around = context.program.parent(node)
    if isinstance(around, ast.keyword):
        return True
    if not isinstance(around, ast.Call) or node not in around.args:
        return False
    call = context.program.call(around)
    return call is None or not any(name.startswith("builtins.") for name in call.names)


def _is_counted(context: Context, node: ast.Subscript) -> bool:
    """Whether the number is a number somewhere, too: it is compared, counted with or written."""
    uses = (it for target in _names_of(context, node) for it in _uses(context, target))
    return any(
        isinstance(context.program.parent(it), ast.Compare | ast.BinOp | ast.FormattedValue | ast.Subscript)
        for it in uses
    )


def _is_number(context: Context, node: ast.expr) -> bool:
    if isinstance(node, ast.Subscript):
        return is_of_wrap(context, node)
    return not is_cuda_string(node) and not _is_cuda_format(node) and is_gpu(context, node)


def is_gpu(context: Context, node: ast.AST) -> bool:
    """An expression that names a GPU: ``"cuda"``, ``f"cuda:{args.gpu}"``, a literal or an option that is its number."""
    if is_cuda_string(node) or _is_cuda_format(node):
        return True
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int) and not isinstance(node.value, bool)
    if isinstance(node, ast.Attribute):
        parsed = any(full_name(value).endswith(".parse_args") for value in context.program.values(node.value))
        return parsed and node.attr in context.integer_options
    return False


def _is_cuda_format(node: ast.AST) -> bool:
    """``f"cuda:{args.gpu}"`` and ``"cuda:" + str(gpu)``."""
    if isinstance(node, ast.JoinedStr) and node.values:
        return is_cuda_string(node.values[0])
    if isinstance(node, ast.BinOp):
        return is_cuda_string(node.left)
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "format"
        and is_cuda_string(node.func.value)
    )


def _own_method(context: Context, call: Call) -> bool:
    """A ``cuda`` method of the project's own classes."""
    return any(not isinstance(callee, Const) and hasattr(callee, "func") for callee in call.callees) or any(
        isinstance(value, Inst | Cls) and not context.module_class(value)
        for value in context.program.values(call.node.func.value)  # type: ignore[attr-defined]
    )


def _counts_replicas(context: Context, node: ast.Call) -> bool:
    """Not where the question is whether there is a GPU at all, nor where GPUs are listed, or the machine is judged."""
    inside: ast.AST = node
    parent = context.program.parent(node)
    while isinstance(parent, ast.IfExp) and inside is not parent.test:
        inside, parent = parent, context.program.parent(parent)
    if isinstance(parent, ast.Assign):
        uses = [use for name in _names_of(context, node) for use in _uses(context, name)]
        judged = [_is_judged(context, it) for it in uses]
        limits = [_is_limit(context, it) for it in uses]
        known = (a or b or _is_told(context, it) for a, b, it in zip(judged, limits, uses, strict=True))
        return not uses or not (all(judged) or (any(limits) and all(known)))
    if isinstance(parent, ast.Compare):
        if _only_tells(context, parent):
            return False
        least = 2 if isinstance(parent.ops[0], ast.GtE) else 1  # `device_count() >= 1` asks for any
        others = [parent.left, *parent.comparators]
        return any(
            isinstance(o, ast.Constant) and isinstance(o.value, int) and o.value >= least for o in others
        )
    if isinstance(parent, ast.Call) and is_call_of(context, parent, "builtins.range"):
        return False
    return not isinstance(parent, ast.If | ast.BoolOp | ast.UnaryOp | ast.IfExp)


def _is_judged(context: Context, use: ast.expr) -> bool:
    """Whether the number of GPUs is only compared to say something of the machine."""
    test = context.program.parent(use)
    return isinstance(test, ast.Compare) and _only_tells(context, test)


def _is_limit(context: Context, use: ast.expr) -> bool:
    """Whether the number of GPUs is what that of one must be below: ``if device >= count``, ``device < count``."""
    test = context.program.parent(use)
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return False
    below = ast.Lt | ast.GtE if use is not test.left else ast.Gt | ast.LtE
    other = test.comparators[0] if use is test.left else test.left
    counted = isinstance(other, ast.Constant) or counts_gpus(context, other, perhaps=True)
    lengths = any(is_call_of(context, it, "builtins.len") for it in ast.walk(other))
    return isinstance(test.ops[0], below) and not counted and not lengths


def _is_told(context: Context, use: ast.expr) -> bool:
    """Whether a number only goes into what is said."""
    statement = context.program.statement(use)
    if isinstance(statement, ast.Assert):
        return statement.msg is not None and context.program.is_inside(use, statement.msg)
    return _tells(context, statement)


def _asking_for_any(context: Context, count: ast.Call) -> Iterator[ast.expr]:
    """Where a name for the number of GPUs chooses the GPU or the CPU: ``"cuda" if n_gpu > 0 else "cpu"``.

    There is a rank where there is no GPU, too.
    """
    program = context.program
    for use in (use for name in _names_of(context, count) for use in _uses(context, name)):
        inside: ast.expr = use
        match program.parent(use):
            case (
                ast.Compare(left=left, ops=[ast.Gt() | ast.NotEq()], comparators=[ast.Constant(value=0)])
                | ast.Compare(left=left, ops=[ast.GtE()], comparators=[ast.Constant(value=1)])
            ) as test if (left is use):
                inside = test
        part, around = inside, program.parent(inside)
        while isinstance(around, ast.BoolOp):
            part, around = around, program.parent(around)
        if (
            isinstance(around, ast.If | ast.IfExp)
            and part is around.test
            and program.file(use) is program.file(count)
        ):
            branches = [around.body] if isinstance(around, ast.IfExp) else around.body
            if any(_needs_gpu(it) for branch in branches for it in ast.walk(branch)):
                yield inside


def _needs_gpu(node: ast.AST) -> bool:
    """Whether something only goes where there is a GPU: ``"cuda"``, ``model.cuda()``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "cuda"
    return isinstance(node, ast.expr) and is_cuda_string(node)


def _only_tells(context: Context, test: ast.expr) -> bool:
    """Whether a condition decides no more than what is said of the machine: a warning, or an end with an error."""
    inside: ast.AST = test
    for around in context.program.ancestors(test):
        if isinstance(around, ast.Assert):
            return inside is around.test
        if isinstance(around, ast.If):
            return inside is around.test and all(_tells(context, it) for it in (*around.body, *around.orelse))
        if isinstance(around, ast.IfExp):
            alone = inside is around.test and isinstance(context.program.parent(around), ast.Expr)
            return alone and all(_says(context, it) for it in (around.body, around.orelse))
        if not isinstance(around, ast.BoolOp | ast.UnaryOp):
            return False
        inside = around
    return False


def _tells(context: Context, statement: ast.stmt) -> bool:
    match statement:
        case ast.Raise() | ast.Pass():
            return True
        case ast.Expr(value=value):
            return _says(context, value)
    return False


def _says(context: Context, value: ast.expr) -> bool:
    """Whether an expression does no more than that, and says no number of GPUs."""
    if not isinstance(value, ast.Call):
        return isinstance(value, ast.Constant)
    found = context.program.call(value)
    names = found.names if found is not None else frozenset()
    counts = any(is_call_of(context, it, COUNT) for it in ast.walk(value))
    return bool(names) and not counts and all(name in ENDS or name.startswith(TELLS) for name in names)
