"""The condition under which a model is wrapped: whether it stays, goes, or has the wrap after it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from itertools import takewhile

from dp2ddp.analyse.context import LOOPS, Context, is_main_guard, once
from dp2ddp.analyse.processes import branches
from dp2ddp.analyse.processes.answers import Answers
from dp2ddp.analyse.processes.conditions import (
    asks_for_gpus,
    asks_machine,
    assigned,
    counts_gpus,
    decides_device,
    is_choice,
    is_true,
    leaves_before,
)
from dp2ddp.analyse.wrapping.moving import is_move, moves_after, only_moves, outermost, uses
from dp2ddp.analyse.wrapping.unwrapped import bare_uses, contradicts, given_bare, in_wrapped, named_again
from dp2ddp.facts import NO_TIER, SHARDED_ONLY, Condition, Problem
from dp2ddp.plan import Anchor


@dataclass(frozen=True)
class Unsettled(Problem):
    """It can't be told when a model is wrapped. ``is_condition``: where it is not, it is as if nothing wrapped it."""

    is_condition: bool = False


def unclear(message: str, help: str, cause: Anchor | None = None) -> Problem:
    """Whether the model is wrapped can't be told: it stays where it is, and a model that is not wrapped is one, too."""
    return Unsettled(message, help, SHARDED_ONLY, cause=cause)


def _sometimes(condition: str, help: str, cause: Anchor | None = None) -> Problem:
    """The model is wrapped under a ``condition`` that stays."""
    twice = condition.startswith("if `not isinstance(") and "DataParallel" in condition
    message = f"the model is wrapped only {condition}: "
    message += (
        "this prevents wrapping it twice" if twice else "otherwise the script runs on one GPU, as before"
    )
    return Unsettled(message, help, SHARDED_ONLY, cause=cause, is_condition=True)


def _where(ifs: list[tuple[ast.If, ast.AST]]) -> str:
    """The innermost condition of a wrap, in words."""
    condition, branch = ifs[0]
    return f"if `{ast.unparse(condition.test)}`" + ("" if branch in condition.body else " is false")


def condition_of(
    context: Context, call: ast.expr, module: ast.expr, statement: ast.stmt
) -> Condition | Problem | None:
    """The ``if`` that decides whether the model is wrapped; None if it always is."""
    found = _deciding(context, call, module, statement)
    within = takewhile(lambda it: it is not statement, context.program.ancestors(call))
    if isinstance(found, Condition) and any(isinstance(it, ast.ListComp | ast.GeneratorExp) for it in within):
        return _sometimes("under a condition in this expression", "wrap each model in a separate statement")
    return found


def _deciding(
    context: Context, call: ast.expr, module: ast.expr, statement: ast.stmt
) -> Condition | Problem | None:
    program = context.program
    for around in program.ancestors(call):
        if around is choice_of(context, call, module):
            continue
        if isinstance(around, ast.IfExp | ast.BoolOp) and program.statement(around) is statement:
            return _sometimes("under a condition in this expression", "wrap it in a separate statement")
        if isinstance(around, ast.stmt):
            break
    ifs: list[tuple[ast.If, ast.AST]] = []
    outermost: ast.If | None = None
    inside: ast.AST = statement
    if (past := _led_past(context, statement, module)) is not None:
        return _sometimes(f"if `{ast.unparse(past.test)}` (line {past.lineno}) is false", "wrap it always")
    for around in program.ancestors(statement):
        if isinstance(inside, ast.stmt) and _made_anew(program.block(inside), inside, module):
            if not _is_named_instead(context, inside, statement):
                break
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            break
        if isinstance(around, LOOPS):
            if not _goes_over_models(around, module):
                return unclear(
                    "the model is wrapped in a loop",
                    "wrap each model in a line of its own, outside of the loop",
                )
            where = "in a loop over models" + (f", {_where(ifs)}" if ifs else "")
            return _sometimes(where, "wrap each in a separate statement")
        if isinstance(around, ast.If):
            if is_main_guard(around.test):
                break
            outermost = around
            if not is_true(around.test) and not _wraps_always(context, around, statement):
                ifs.append((around, inside))
        inside = around
    if not ifs:
        return None
    alone = not branches.is_shared(context, statement)
    beside = context.branches is not None and context.run_by(statement) & context.branches.scripts
    if (
        not beside
        and isinstance(statement, ast.Assign)
        and any(_whole(context, around, branch, statement.targets[0]) is not None for around, branch in ifs)
    ):
        return unclear(
            "one branch of the `if` wraps the model, the other only a part of it", "wrap the same in both"
        )
    if (kept := _kept(context, call, ifs)) is not None:
        return kept
    if beside and not (alone and len(ifs) == 1 and _goes(context, ifs[0][0], statement)):
        return _beside(context, ifs, outermost, statement)
    for condition, branch in ifs:
        asks = branch in condition.body and asks_for_gpus(context, condition.test)
        if not asks and not is_choice(context, condition.test):
            return _sometimes(_where([(condition, branch)]), "wrap it always")
    used = next(bare_uses(context, call), None)
    plain = all(
        branch in condition.body and asks_for_gpus(context, condition.test) for condition, branch in ifs
    )
    if not plain and all(_is_for_others(context, it.test) for it, _ in ifs):
        text = f"the model stays unwrapped where `{ast.unparse(ifs[0][0].test)}` is false: other scripts may use it so"
        return Problem(text, "", NO_TIER, works=True)
    if used is not None and not plain:
        return _sometimes(_where(ifs), f"wrap it always, and use {in_wrapped(used)}", context.cause(used))
    given = None if plain else given_bare(context, call)
    if given is not None:
        return _sometimes(_where(ifs), "wrap it always, and pass its `.module`", context.cause(given))
    if _stays(context, ifs, statement):
        return Problem(
            "the model stays unwrapped with a single rank, where its checkpoints are loaded in another way",
            "",
            NO_TIER,
            works=True,
        )
    condition, branch = ifs[0]
    if statement is not branch or not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return _sometimes(_where(ifs), "write `model = nn.DataParallel(model)` there")
    found = (
        _nested(context, ifs, statement) if len(ifs) > 1 else _movable(context, condition, statement, module)
    )
    if isinstance(found, Condition) and _is_part(context, statement):
        if plain and not any(_is_set(context, it.test) for it, _ in ifs):
            return replace(found, guard="{ddp}.get_world_size() > 1")
        if all(is_choice(context, it.test) for it, _ in ifs):
            test = ast.unparse(condition.test)
            text = f"this part of the model is wrapped only if `{test}`: its checkpoint keys have `module.` only then"
            return Problem(text, "", NO_TIER, works=True)  # without it one process trains
        return _sometimes(_where(ifs), "wrap it always")
    return found


@once
def choice_of(context: Context, call: ast.expr, module: ast.expr) -> ast.IfExp | None:
    """``nn.DataParallel(model) if torch.cuda.device_count() > 1 else model``, where nothing needs the bare model."""
    node = outermost(context, call).node
    around = context.program.parent(node)
    if not isinstance(around, ast.IfExp) or around.test is node:
        return None
    asks = around.body is node and asks_for_gpus(context, around.test)
    if not asks and not is_choice(context, around.test):
        return None
    other = around.orelse if around.body is node else around.body
    while is_move(other):
        other = other.func.value  # type: ignore[attr-defined]
    if ast.unparse(other) != ast.unparse(module):
        return None
    bare = [it for it in bare_uses(context, call) if context.runs_in_training(it)]
    if not asks and (bare or given_bare(context, call) is not None):
        return None
    answers = Answers(context)
    said, bare = answers.around(call), [*bare, *bare_uses(context, call, ast.Store)]
    return None if any(contradicts(context, answers, it, said) for it in bare) else around


def _led_past(context: Context, statement: ast.stmt, module: ast.expr) -> ast.If | None:
    """``if count < 2: return model`` before a wrap."""
    program = context.program
    bare = program.values(module)
    for inside in (statement, *program.ancestors(statement)):
        if isinstance(inside, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return None
        for before in leaves_before(context, inside) if isinstance(inside, ast.stmt) else ():
            given = before.body[-1].value  # type: ignore[attr-defined]
            if given is not None and program.contents(program.values(given)) & bare:
                return before
    return None


def _stays(context: Context, ifs: list[tuple[ast.If, ast.AST]], statement: ast.stmt) -> bool:
    """Whether a model is wrapped wherever there are several processes, and the keys of a checkpoint change for one.

    Then it has to stay bare there: no condition but the number of GPUs leads past the wrap, or the program ends.
    """
    (inner, branch), *outer = ifs
    if not _counts_several(context, inner.test) or branch is not statement or statement not in inner.body:
        return False
    keys = (it for part in inner.orelse for it in ast.walk(part) if isinstance(it, ast.Constant))
    ends = (around.orelse if inside in around.body else around.body for around, inside in outer)
    return any(it.value == "module." for it in keys) and all(
        any(isinstance(part, ast.Raise) for part in block) for block in ends
    )


def _is_for_others(context: Context, test: ast.expr) -> bool:
    """Whether a condition is what a function is given, in a file that other programs may import, too."""
    program = context.program
    found = program.definitions(test) if isinstance(test, ast.Name) else []
    shared = program.file(test) not in context.scripts
    return shared and bool(found) and all(isinstance(it, ast.arg) for it in found)


def _is_set(context: Context, test: ast.expr) -> bool:
    """Whether settings answer how many GPUs there are to be, ``len(args.gpus) > 1``, and not the machine."""
    counted = (it.args[0] for it in ast.walk(test) if isinstance(it, ast.Call) and _called(it) == "len")
    return any(not asks_machine(context, it) or _is_literal(context, it) for it in counted)


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _is_literal(context: Context, node: ast.expr, depth: int = 0) -> bool:
    """Whether a list is written out in the program."""
    if isinstance(node, ast.List | ast.Tuple):
        return all(isinstance(it, ast.Constant) for it in node.elts)
    parameters = [it for it in context.program.definitions(node) if isinstance(it, ast.arg)]
    sources = [it for parameter in parameters for it in context.program.given(parameter)]
    sources = sources or assigned(context, node)
    return bool(sources) and depth < 6 and all(_is_literal(context, it, depth + 1) for it in sources)


def _is_part(context: Context, statement: ast.stmt) -> bool:
    """Whether what is wrapped is a part of a model: in checkpoints of one process its keys have no ``module.``."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    is_held = isinstance(target, ast.Attribute | ast.Subscript)
    owners = context.program.values(target.value) if is_held else frozenset()  # type: ignore[union-attr]
    return bool(owners) and all(map(context.module_class, owners))


def _kept(context: Context, call: ast.expr, ifs: list[tuple[ast.If, ast.AST]]) -> Problem | None:
    """A wrap under a condition by which the rest of the program tells a wrapped model from a bare one, too.

    ``model.module.encode(x) if n_gpu > 1 else model.encode(x)``. So the condition stays.
    """
    answers = Answers(context)
    said = answers.around(call)
    bare = [it for it in bare_uses(context, call) if context.runs_in_training(it)]
    stored = (it for it in bare_uses(context, call, ast.Store) if context.runs_in_training(it))
    places = [(it, it) for it in (*bare, *stored)]
    places += [(it, bare[0]) for it in named_again(context, call) if bare]
    used = next((it for place, it in places if contradicts(context, answers, place, said)), None)
    if used is None:
        return None
    test = ast.unparse(ifs[0][0].test)
    if all(branch in around.body and _counts_several(context, around.test) for around, branch in ifs):
        where, shown = f"where `{test}` is false", ast.unparse(used)
        text = f"the model stays unwrapped with a single rank, {where}: `{shown}` needs that"
        return Problem(text, "", NO_TIER, works=True)
    return _sometimes(_where(ifs), f"always wrap it, and use {in_wrapped(used)}")


def _counts_several(context: Context, test: ast.expr) -> bool:
    """Whether a condition is no more than that there are several GPUs: that there are several ranks, now."""
    match test:
        case ast.Compare(left=asked, ops=[ast.Gt()], comparators=[ast.Constant(value=1)]):
            return counts_gpus(context, asked)
    return False


def _goes_over_models(loop: ast.AST, module: ast.expr) -> bool:
    """Whether each round of a loop wraps another model: one that the loop's target names."""
    if not isinstance(loop, ast.For):
        return False
    names = {it.id for it in ast.walk(loop.target) if isinstance(it, ast.Name)}
    return any(isinstance(it, ast.Name) and it.id in names for it in ast.walk(module))


def _used_inside(context: Context, use: ast.AST) -> Problem:
    """The wrapped model is used where it may not be wrapped after all."""
    return unclear(
        f"`{ast.unparse(use).splitlines()[0]}` uses the wrapped model inside the `if` that wraps it",
        "move it after the `if`",
        context.cause(use),
    )


def _made_anew(block: list[ast.stmt], inside: ast.stmt, module: ast.expr) -> bool:
    """Whether the statements before one always make the model that it wraps."""
    name = ast.unparse(module)

    def makes(statement: ast.stmt) -> bool:
        if isinstance(statement, ast.If):
            branches = (statement.body, statement.orelse)
            return all(
                any(isinstance(part, ast.Raise) or makes(part) for part in branch) for branch in branches
            )
        return (
            isinstance(statement, ast.Assign)
            and any(ast.unparse(target) == name for target in statement.targets)
            and not uses(statement.value, name)
        )

    return any(makes(before) for before in block[: block.index(inside)])


def _is_named_instead(context: Context, inside: ast.stmt, statement: ast.stmt) -> bool:
    """Whether the other branch of a condition round a wrap gives a model of its own the name of the wrapped one."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    names = {ast.unparse(it) for it in targets}
    for around in context.program.ancestors(inside):
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            return False
        if isinstance(around, ast.If):
            inner = any(context.program.is_inside(statement, it) for it in around.body)
            other = around.orelse if inner else around.body
            stored = (
                it for part in other for it in ast.walk(part) if isinstance(it, ast.Name | ast.Attribute)
            )
            if any(isinstance(it.ctx, ast.Store) and ast.unparse(it) in names for it in stored):
                return not _wraps_always(context, around, statement)
    return False


def _wraps_always(context: Context, condition: ast.If, statement: ast.stmt) -> bool:
    """Whether every branch of a condition wraps what a statement wraps, or ends the program."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target = ast.unparse(statement.targets[0])

    def wraps(block: list[ast.stmt]) -> bool:
        return any(
            isinstance(part, ast.Raise)
            or (isinstance(part, ast.If) and wraps(part.body) and wraps(part.orelse))
            or (
                isinstance(part, ast.Assign)
                and [ast.unparse(it) for it in part.targets] == [target]
                and context.is_wrapped(context.program.values(part.value))
            )
            for part in block
        )

    return wraps([condition])


def _nested(
    context: Context, ifs: list[tuple[ast.If, ast.AST]], statement: ast.Assign
) -> Condition | Problem:
    """One condition inside of others, none of which chooses the device: the wrap goes after the outermost."""
    program = context.program
    target = ast.unparse(statement.targets[0])
    chooses = any(
        decides_device(context, condition.test) and not asks_for_gpus(context, condition.test, flags=False)
        for condition, _ in ifs
    )
    if chooses or any(condition.orelse for condition, _ in ifs):
        return _sometimes(_where(ifs), "make `if torch.cuda.device_count() > 1` the only condition")
    moves = list(moves_after(context, statement))
    for condition, branch in ifs:
        later = condition.body[condition.body.index(branch) + 1 :]
        for other in later:
            if other not in moves and uses(other, target):
                return _sometimes(_where(ifs), "use the wrapped model after the `if`", context.cause(other))
    return Condition(
        at=program.anchor(ifs[-1][0]),
        statement=program.anchor(statement),
        target=program.anchor(statement.targets[0]),
        whole=all(it is branch or it in moves for condition, branch in ifs for it in condition.body),
        alternative=False,
        option=False,
        inner=tuple(program.anchor(condition) for condition, _ in ifs[:-1]),
    )


def _goes(context: Context, condition: ast.If, statement: ast.stmt) -> bool:
    """Whether a condition is there for one statement alone, and asks for GPUs: the statement takes its place."""
    alone = condition.body == [statement] and not condition.orelse
    return alone and asks_for_gpus(context, condition.test, flags=False)


def _beside(
    context: Context, ifs: list[tuple[ast.If, ast.AST]], outermost: ast.If | None, statement: ast.stmt
) -> Condition | Problem:
    """The conditions that choose between DataParallel and a distributed branch: it is wrapped after them."""
    guard = branches.condition(context, statement)
    is_lifted = guard is not None
    if guard is None:
        guard = f"not {context.ddp(context.program.file(statement).path)}.stands_aside()"
    if outermost is None or not isinstance(statement, ast.Assign):
        return unclear(
            "this wrap is no assignment of its own, and a distributed branch runs it, too",
            "write `model = nn.DataParallel(model)` there",
        )
    target = statement.targets[0]
    for around, branch in ifs:
        lost = branches.unsaid(context, around.test, branch in around.body)
        if not lost and _is_about_gpus(context, around, branch):
            continue
        whole = _whole(context, around, branch, target)
        # where the other branch may choose a GPU, the wrap goes on only beside a condition that says so
        is_told = is_lifted or branch in around.body
        if whole is not None or (is_told and not lost and is_choice(context, around.test)):
            target = whole or target
        else:
            return unclear(
                f"the model is wrapped only if `{ast.unparse(around.test)}`",
                "keep only the condition that selects the distributed branch",
            )
    name = ast.unparse(target)
    for around in (statement, *context.program.ancestors(statement)):
        block = context.program.block(around) if isinstance(around, ast.stmt) else []
        if around is outermost:
            break
        later = block[block.index(around) + 1 :] if around in block else []
        for it in later:
            if uses(it, name) and not only_moves(context, it, name):
                return _used_inside(context, it)
    return Condition(
        at=context.program.anchor(outermost),
        statement=context.program.anchor(statement),
        target=name,
        whole=False,
        alternative=False,
        option=True,
        guard=guard,
        part=target is not statement.targets[0],
    )


def _is_about_gpus(context: Context, around: ast.If, branch: ast.AST) -> bool:
    """Whether a branch of a condition is the one for GPUs."""
    if branch in around.body:
        return asks_for_gpus(context, around.test)
    match around.test:
        case ast.UnaryOp(op=ast.Not(), operand=test):
            return asks_for_gpus(context, test)
    return False


def _whole(context: Context, around: ast.If, branch: ast.AST, target: ast.expr) -> ast.expr | None:
    """The model that one branch of a condition wraps, and the other a part of."""
    owner = target.value if isinstance(target, ast.Attribute) else target
    names = {ast.unparse(target), ast.unparse(owner)}

    def wraps(block: list[ast.stmt]) -> bool:
        return any(
            isinstance(it, ast.Assign)
            and context.is_wrapped(context.program.values(it.value))
            and names
            & {name for to in it.targets for name in (ast.unparse(to), ast.unparse(getattr(to, "value", to)))}
            for it in block
        )

    return owner if wraps(around.body) and wraps(around.orelse) else None


def _movable(
    context: Context, condition: ast.If, statement: ast.Assign, module: ast.expr
) -> Condition | Problem:
    program = context.program
    target = ast.unparse(statement.targets[0])
    where = _where([(condition, statement)])
    moves = list(moves_after(context, statement))
    block = program.block(statement)
    other_block = condition.orelse if block is condition.body else condition.body
    rest = [other for other in block if other is not statement and other not in moves]
    for later in rest[block.index(statement) :]:
        if uses(later, target):
            return _sometimes(where, "use the wrapped model after the `if`", context.cause(later))
    otherwise = [other for other in other_block if not only_moves(context, other, target)]
    if any(uses(other, target) for other in otherwise):
        return _sometimes(where, "create it before the `if`, and only wrap it there")
    asks = asks_for_gpus(context, condition.test, flags=False)
    option = not asks and decides_device(context, condition.test)
    if (condition.orelse or option) and ast.unparse(module) != target:
        return _sometimes(where, f"use one name: `{target} = nn.DataParallel({target})`")
    return Condition(
        at=program.anchor(condition),
        statement=program.anchor(statement),
        target=program.anchor(statement.targets[0]),
        whole=not rest and not otherwise,
        alternative=bool(condition.orelse),
        option=option,
    )
