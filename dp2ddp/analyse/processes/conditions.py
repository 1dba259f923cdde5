"""Conditions: which ones ask for a GPU, and which ones every process answers alike."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.analyse.api.containers import KEYED, SETTING_METHODS
from dp2ddp.analyse.api.devices import AVAILABLE, COUNT, DEVICES
from dp2ddp.analyse.api.inspection import ASKS_OPTIONS, TYPE_QUESTIONS
from dp2ddp.analyse.api.options import OPTIONS
from dp2ddp.analyse.api.python import DICTIONARIES
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.program.calls import handed
from dp2ddp.analyse.program.sources import How
from dp2ddp.analyse.program.values import Coll, Const, Ext, Inst, Made, Value, full_name

# What may be asked of options.
ANSWERED = ASKS_OPTIONS | DICTIONARIES | {AVAILABLE, COUNT}


def is_true(test: ast.expr) -> bool:
    """``if True``: what is left of a condition that has only one answer."""
    return isinstance(test, ast.Constant) and test.value is True


def is_cuda_string(node: ast.AST | None) -> bool:
    return (
        isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.split(":")[0] == "cuda"
    )


def number_of(node: ast.AST) -> ast.expr | None:
    """What stands for the number of a GPU: ``x`` of ``f"cuda:{x}"``, ``"cuda:%d" % x``, ``"cuda:" + str(x)``."""
    match node:
        case ast.JoinedStr(values=[ast.Constant(value="cuda:"), ast.FormattedValue(value=number)]):
            return number
        case ast.BinOp(left=ast.Constant(value="cuda:%d" | "cuda:%s"), op=ast.Mod(), right=number):
            return number
        case ast.BinOp(left=ast.Constant(value="cuda:"), op=ast.Add(), right=ast.Call(args=[number])):
            return number
        case ast.BinOp(left=ast.Constant(value="cuda:"), op=ast.Add(), right=number):
            return number
        case ast.Call(func=ast.Attribute(attr="format", value=ast.Constant(value=str())), args=[number]):
            return number if is_cuda_string(node.func.value) else None  # type: ignore[attr-defined]
        case ast.Call(func=ast.Attribute(attr="cuda"), args=[number, *_]):
            return number
        case ast.Call(
            func=ast.Attribute(attr="set_device", value=ast.Attribute(attr="cuda") | ast.Name(id="cuda")),
            args=[number],
        ):
            return number
    return None


def is_call_of(context: Context, node: ast.AST, *names: str) -> bool:
    call = context.program.call(node) if isinstance(node, ast.Call) else None
    return call is not None and bool(call.names & set(names))


def asks_for_gpus(context: Context, test: ast.expr, flags: bool = True, depth: int = 0) -> bool:
    """Whether a condition says no more than that there is a GPU, or that there are several.

    ``device_count() > 1``, ``is_available()``, ``device.type == "cuda"``, and names that such a thing was assigned to.
    With ``flags``, an option beside them counts where the same condition also decides the device (``use_cuda``).
    """
    if depth > 4:
        return False
    match test:
        case ast.Call():
            return is_call_of(context, test, AVAILABLE)
        case ast.BoolOp(op=ast.And()):
            asks = [asks_for_gpus(context, value, flags, depth + 1) for value in test.values]
            return all(asks) or (flags and any(asks) and decides_device(context, test))
        case ast.Compare(ops=[operator], comparators=[right]):
            if counts_gpus(context, test.left) and isinstance(operator, ast.Gt | ast.GtE | ast.NotEq):
                return isinstance(right, ast.Constant)
            if isinstance(operator, ast.Eq) and (
                is_cuda_string(right)
                or (is_call_of(context, right, "torch.device") and any(map(is_cuda_string, handed(right))))
            ):
                return is_device(context, test.left)
            if isinstance(operator, ast.NotEq) and isinstance(right, ast.Constant) and right.value == "cpu":
                return is_device(context, test.left)
            return False
        case ast.Name() | ast.Attribute():
            sources = assigned(context, test)
            if sources and all(asks_for_gpus(context, source, flags, depth + 1) for source in sources):
                return True
            return flags and needs_gpu(context, test) and decides_device(context, test)
    return False


def asks_machine(context: Context, test: ast.expr, depth: int = 0) -> bool:
    """Whether a condition is answered by the GPUs that there are, and by nothing that a user may choose."""
    match test:
        case ast.Constant():
            return True
        case ast.BoolOp(values=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
            return all(asks_machine(context, it, depth) for it in parts)
        case (
            ast.UnaryOp(operand=asked) | ast.NamedExpr(value=asked) | ast.Attribute(attr="type", value=asked)
        ):
            return asks_machine(context, asked, depth)
        case ast.Compare():
            return all(asks_machine(context, it, depth) for it in (test.left, *test.comparators))
        case ast.IfExp():
            return all(asks_machine(context, it, depth) for it in (test.test, test.body, test.orelse))
        case ast.Call():
            call = context.program.call(test)
            known = call is not None and bool(call.names) and call.names <= ANSWERED | DEVICES
            return known and all(asks_machine(context, it, depth) for it in handed(test))
        case ast.Name() | ast.Attribute():
            given = [context.program.given(it) for it in _parameters(context, test)]
            sources = [it for sources in given for it in sources] if all(given) else []
            sources = sources or assigned(context, test)
            choices = (
                [it for source in sources for it in _chosen_by(context, source)] if len(sources) > 1 else []
            )
            return (
                bool(sources)
                and depth < 6
                and all(asks_machine(context, it, depth + 1) for it in (*sources, *choices))
            )
    return False


def _chosen_by(context: Context, source: ast.expr) -> Iterator[ast.expr]:
    """The conditions under which a name gets a value, in its function."""
    inside: ast.AST = source
    for around in context.program.ancestors(source):
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return
        if isinstance(around, ast.If) and inside is not around.test:
            yield around.test
        inside = around


def _parameters(context: Context, name: ast.expr) -> list[ast.arg]:
    """The parameters that a name is, if it is nothing else."""
    found = context.program.definitions(name)
    return (
        [it for it in found if isinstance(it, ast.arg)]
        if all(isinstance(it, ast.arg) for it in found)
        else []
    )


def is_choice(context: Context, test: ast.expr, seen: set[ast.expr] | None = None) -> bool:
    """Whether a condition is answered by options, constants and the GPUs that there are: alike in every process.

    ``seen``: what has been asked on the way. A value that comes of itself (``options.gpu = gpu`` in a function that is
    called with ``options.gpu``) is decided by where it comes of else.
    """
    program = context.program
    seen = set() if seen is None else seen
    if test in seen:
        return True
    match test:
        case ast.Constant():
            return True
        case ast.BoolOp():
            return all(is_choice(context, value, seen) for value in test.values)
        case ast.UnaryOp():
            return is_choice(context, test.operand, seen)
        case ast.NamedExpr():
            return is_choice(context, test.value, seen)
        case ast.Compare(left=ast.Call() as kind) if is_call_of(context, kind, "builtins.type"):
            return is_choice(context, kind, seen)
        case ast.Compare():
            return all(is_choice(context, value, seen) for value in (test.left, *test.comparators))
        case ast.BinOp():
            return is_choice(context, test.left, seen) and is_choice(context, test.right, seen)
        case ast.Tuple() | ast.List():
            return all(is_choice(context, value, seen) for value in test.elts)
        case ast.Dict():
            return all(is_choice(context, value, seen) for value in test.values)
        case ast.IfExp():
            return all(is_choice(context, value, seen) for value in (test.test, test.body, test.orelse))
        case ast.Attribute(attr="type", value=device) if _is_chosen_device(context, device, set(seen)):
            return True  # its number may differ
        case ast.ListComp():
            sources = [part for it in test.generators for part in (it.iter, *it.ifs)]
            return all(is_choice(context, source, seen) for source in (*sources, test.elt))
        case ast.Subscript():
            return is_choice(context, test.value, seen) and is_choice(context, test.slice, seen)
        case ast.Call():
            call = program.call(test)
            known = call is not None and bool(call.names) and call.names <= ANSWERED
            if known and call.names <= TYPE_QUESTIONS:  # type: ignore[union-attr]
                return is_choice(context, test.args[0], seen)
            methods = isinstance(test.func, ast.Attribute) and test.func.attr in SETTING_METHODS
            if methods:
                return is_choice(context, test.func.value, seen)
            return known and all(is_choice(context, given, seen) for given in handed(test))
        case ast.Name() | ast.Attribute():
            values = program.values(test)
            if values and all(_is_settled(context, value, set()) for value in values):
                return True
            found = program.definitions(test)
            parameters = [it for it in found if isinstance(it, ast.arg)]
            sources = [source for it in parameters for source in program.given(it)]
            if parameters and len(parameters) == len(found):
                seen.add(test)
                return bool(sources) and all(is_choice(context, source, seen) for source in sources)
            held = assigned(context, test) or _unpacked(context, test)
            seen.add(test)
            return bool(held) and all(is_choice(context, source, seen) for source in held)
    return False


def _is_chosen_device(context: Context, device: ast.expr, seen: set[ast.expr]) -> bool:
    """Whether it is the same in every process what kind of device a name is: by ``torch.device`` of a choice."""
    held = [device] if isinstance(device, ast.Call) else assigned(context, device)
    return bool(held) and all(
        is_call_of(context, it, *DEVICES) and all(is_choice(context, given, seen) for given in handed(it))
        for it in held
    )


def _is_settled(context: Context, value: Value, seen: set[Value]) -> bool:
    """Whether a value is a literal, an option, or a table of such."""
    if isinstance(value, Const) or full_name(value).startswith(OPTIONS) or value in seen:
        return True
    if not isinstance(value, Coll | Inst):
        return False
    seen.add(value)
    held = list(context.program.entries(value))
    return bool(held) and all(
        isinstance(node, ast.Constant)
        or (bool(values) and all(_is_settled(context, it, seen) for it in values))
        for node, values in held
    )


def _unpacked(context: Context, name: ast.expr) -> list[ast.expr]:
    """What a name gets of a loop, or of a tuple that a function returns, with the conditions that choose it.

    Empty where that is not known.
    """
    program = context.program
    found: list[ast.expr] = []
    for definition in program.definitions(name):
        around = program.parent(definition)
        if isinstance(around, ast.comprehension) and around.target is definition:
            found.append(around.iter)
            continue
        statement = program.statement(around) if isinstance(around, ast.Tuple) else None
        if not isinstance(statement, ast.Assign) or statement.targets != [around]:
            return []
        tuples = returned(context, statement.value)
        if not tuples or not all(isinstance(it, ast.Tuple) for it in tuples):
            return []
        place = around.elts.index(definition)  # type: ignore[union-attr]
        for it in tuples:
            if place >= len(it.elts):  # type: ignore[attr-defined]
                return []
            chosen = it.elts[place]  # type: ignore[attr-defined]
            found += [chosen, *_tests(context, chosen)]
    return found


def returned(context: Context, node: ast.expr) -> list[ast.expr]:
    """What a function of the project returns; empty where that is not known."""
    call = context.program.call(node) if isinstance(node, ast.Call) else None
    scopes = context.program.called_scopes(node) if call is not None and not call.names else set()
    results = (it for index in scopes for it in context.program.results(context.program.scopes[index]))
    return [it.value for it in results if isinstance(it, ast.Return) and it.value is not None]


def _tests(context: Context, node: ast.expr) -> list[ast.expr]:
    """The conditions round a place, and round the assignments to a name that may be there."""
    program = context.program
    places = [node, *program.definitions(node)]
    return [
        around.test
        for place in places
        if not isinstance(place, ast.arg)
        for around in program.ancestors(place)
        if isinstance(around, ast.If)
    ]


def needs_gpu(context: Context, test: ast.expr) -> bool:
    """Whether a flag that decides the device is true only where there is a GPU."""
    sources = assigned(context, test)
    return bool(sources) and all(
        any(is_call_of(context, inner, AVAILABLE) for inner in ast.walk(source)) for source in sources
    )


def counts_gpus(context: Context, node: ast.expr, perhaps: bool = False, depth: int = 0) -> bool:
    """Whether an expression is the number of GPUs, or of those that a model is wrapped for; ``perhaps``: or may be."""
    match node:
        case ast.Call(func=ast.Name(id="len"), args=[ast.Attribute(attr="device_ids")]):
            return True
        case ast.Call(func=ast.Name(id="len"), args=[held]):
            wraps = (context.wrappers.argument(call, "device_ids", 1) for call in context.wraps)
            return any(it is not None and ast.unparse(it) == ast.unparse(held) for it in wraps)
        case ast.Call():
            return is_call_of(context, node, COUNT)
        case ast.Name() | ast.Attribute() if depth < 4:
            found = [counts_gpus(context, it, perhaps, depth + 1) for it in assigned(context, node)]
            return any(found) if perhaps else bool(found) and all(found)
    return False


def is_device(context: Context, node: ast.expr) -> bool:
    """Whether an expression is a device, its string or its ``.type``."""
    if isinstance(node, ast.Attribute) and node.attr == "type":
        node = node.value
    values = context.program.values(node)
    return any(
        (isinstance(value, Const) and isinstance(value.value, str) and value.value.split(":")[0] == "cuda")
        or getattr(value, "name", "") in DEVICES
        for value in values
    )


def comes_from_file(context: Context, node: ast.expr) -> bool:
    """Whether an expression is all that a file holds, or a part of it."""
    origins = [origin(value) for value in context.program.values(node)]
    return bool(origins) and all(it is not None and it.name == "torch.load" for it in origins)


def origin(value: object) -> Made | None:
    """What a value is taken out of, where something outside has made that."""
    while not isinstance(value, Made | Const | Ext) and hasattr(value, "owner"):
        value = value.owner
    return value if isinstance(value, Made) else None


def assigned(context: Context, node: ast.expr) -> list[ast.expr]:
    """The right sides of the assignments that a name or attribute may come from; empty where one is unknown."""
    found: list[ast.expr] = []
    program = context.program
    for definition in program.definitions(node):
        source = program.source(definition)
        value, left = source.written if source.how is How.ASSIGNED else (None, ())
        if value is None or left:
            return []
        found.append(value)
    if not found and isinstance(node, ast.Attribute):
        # `args.cuda = …` on a parser's namespace, wherever it was set.
        found += _attributes(context, node.value, node.attr)
    return found


def held_as(context: Context, node: ast.expr) -> list[ast.expr]:
    """What is stored as an attribute, or under a key of a dict or list, as far as that is written out."""
    match node:
        case ast.Attribute(value=owner, attr=name) if not context.program.definitions(node):
            return [*dict.fromkeys((*_attributes(context, owner, name), *entries(context, owner, name)))]
        case ast.Subscript(value=held, slice=ast.Constant(value=key)):
            return [*dict.fromkeys(entries(context, held, key))]
        case ast.Call(func=ast.Attribute(value=held, attr=method), args=[ast.Constant(value=key), *_]):
            return [*dict.fromkeys(entries(context, held, key))] if method in KEYED else []
    return []


def _attributes(context: Context, owner: ast.expr, name: str) -> Iterator[ast.expr]:
    """What is assigned to an attribute of an object, wherever that is."""
    values = context.program.values(owner)
    for target, statement in context.attribute_assignments.get(name, ()):
        if len(statement.targets) == 1 and context.program.values(target.value) & values:
            yield statement.value


def entries(context: Context, held: ast.expr, key: object) -> Iterator[ast.expr]:
    """What is stored under a key of a dict, or at a place of a list, and nothing else that it holds."""
    program = context.program
    values = program.values(held)
    for target, statement in context.entry_assignments.get(key, ()):
        if program.values(target.value) & values:
            yield statement.value
    for call in context.entry_updates:
        if program.values(call.func.value) & values:  # type: ignore[attr-defined]
            yield from _written_under(call, key)
            for given in call.args[:1]:
                yield from _written_under(given, key)
    for value in values:
        made = program.nodes.get(value.site) if isinstance(value, Coll | Made) else None
        if isinstance(made, ast.arg):  # `**given`
            calls = context.callers.get(program.scope(made).index, ())
            yield from (it for call in calls for it in _written_under(call, key))
        else:
            yield from _written_under(made, key)


def _written_under(node: ast.AST | None, key: object) -> Iterator[ast.expr]:
    """What stands under a key, or at a place, in a dict, list or call as it is written."""
    match node:
        case ast.Dict(keys=keys, values=parts):
            named = zip(keys, parts, strict=True)
            yield from (it for name, it in named if isinstance(name, ast.Constant) and name.value == key)
        case ast.Call(keywords=keywords):
            yield from (it.value for it in keywords if it.arg == key)
        case ast.List(elts=parts) | ast.Tuple(elts=parts) if type(key) is int and -len(parts) <= key < len(
            parts
        ):
            if not any(isinstance(it, ast.Starred) for it in parts):
                yield parts[key]


def leaves_before(context: Context, statement: ast.stmt) -> list[ast.If]:
    """The conditions before a statement, in its block, under which a function returns: ``if alone: return model``."""
    program = context.program
    if program.scope(statement).is_module:
        return []
    block = program.block(statement)
    before = (it for it in block[: block.index(statement)] if isinstance(it, ast.If) and not it.orelse)
    return [it for it in before if isinstance(it.body[-1], ast.Return)]


def decides_device(context: Context, test: ast.expr) -> bool:
    """Whether the same condition also chooses between ``"cuda"`` and ``"cpu"``, or stands round ``.cuda()``."""
    return ast.dump(test) in context.device_tests


def is_rate(context: Context, node: ast.AST) -> bool:
    """Whether a piece of code sets something of an optimizer's."""
    match node:
        case ast.Call(func=ast.Attribute(attr="update" | "setdefault", value=held)):
            groups = [held]
        case ast.Assign(targets=targets):
            groups = [it.value for it in targets if isinstance(it, ast.Subscript)]
        case _:
            target = getattr(node, "target", None)
            groups = [target.value] if isinstance(target, ast.Subscript) else []
    return any("param_group" in ast.unparse(it) or _is_group(context, it) for it in groups)


def _is_group(context: Context, node: ast.expr) -> bool:
    """Whether a name runs through the groups of an optimizer."""
    around = (context.program.parent(it) for it in context.program.definitions(node))
    return any(isinstance(it, ast.For) and "param_groups" in ast.unparse(it.iter) for it in around)
