"""Which loops train: the loop over batches, and the loop over epochs round it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.analyse.context import LOOPS, Context
from dp2ddp.analyse.link import LOADER, Inst, Values
from dp2ddp.facts import EpochLoop, Loader, Obstacle, Problem


@dataclass(frozen=True)
class BatchLoop:
    """A ``for`` over batches, and the loaders that it may draw from."""

    node: ast.For
    loaders: frozenset[int]
    trains: bool


def batch_loops(context: Context) -> list[BatchLoop]:
    """Every loop over a DataLoader that a training program runs."""
    program = context.program
    backwards = {id(node) for node in context.backwards}
    found = []
    for node in list(program.nodes.values()):
        if isinstance(node, ast.For) and context.runs_in_training(node):
            loaders = context.made(context.iterated(program.values(node.iter)), LOADER)
            if loaders:
                body = set().union(*(context.runs(statement) for statement in node.body))
                found.append(BatchLoop(node, frozenset(loaders), bool(body & backwards)))
    return found


def training_loaders(loops: list[BatchLoop]) -> set[int]:
    return {site for loop in loops if loop.trains for site in loop.loaders}


def obstacles(context: Context, loops: list[BatchLoop]) -> Iterator[Obstacle]:
    """Steps that no loop over a DataLoader is found round, and loaders drawn from in other ways."""
    program = context.program
    covered = set().union(*(context.runs(loop.node) for loop in loops if loop.trains)) if loops else set()
    for node in context.backwards:
        if context.runs_in_training(node) and id(node) not in covered:
            yield _obstacle(
                context,
                node,
                "no loop over a DataLoader was found round this backward()",
                "draw the batches with `for … in loader`, from a torch.utils.data.DataLoader made in this project",
            )
    training = training_loaders(loops)
    for loop in loops:
        if not loop.trains and loop.loaders & training:
            yield _obstacle(
                context,
                loop.node.iter,
                "this loader serves training and evaluation",
                "make a second loader for evaluation: the one for training is sharded",
            )
    for call in program.calls:
        if (
            call.names & {"builtins.next", "builtins.iter", "builtins.zip", "itertools.cycle"}
            and call.node.args
        ):
            parent = program.parent(call.node)
            drawn = {
                site
                for argument in call.node.args
                for site in context.made(context.iterated(program.values(argument)), LOADER)
            }
            if drawn & training and not (
                isinstance(parent, ast.For) and parent.iter is call.node and len(drawn) == 1
            ):
                yield _obstacle(
                    context,
                    call.node,
                    "a training loader is drawn from by hand",
                    "iterate over it with one `for` loop",
                )


def _obstacle(context: Context, node: ast.AST, message: str, help: str) -> Obstacle:
    anchor = context.program.anchor(node)
    return Obstacle(at=anchor, ddp=context.ddp(anchor.path), problem=Problem(message, help))


def collect(context: Context, loops: list[BatchLoop], loaders: tuple[Loader, ...]) -> tuple[EpochLoop, ...]:
    """Every loop over epochs, with the sampler that it must tell the epoch."""
    facts: list[EpochLoop] = []
    made = {loader.at: loader for loader in loaders}
    for site in sorted(training_loaders(loops), key=lambda site: context.program.order[site]):
        loader = made.get(context.program.anchor(context.program.node(site)))
        if loader is None or loader.problem or loader.shuffle is False:
            continue
        starts = [loop.node for loop in loops if loop.trains and site in loop.loaders]
        for loop in _epoch_loops(context, starts):
            fact = _epoch_loop(context, loop, loader, site)
            if fact not in facts:
                facts.append(fact)
    return tuple(facts)


def _epoch_loops(context: Context, starts: list[ast.For]) -> list[ast.stmt]:
    """The nearest loops round the loops over batches, through the functions that hold them."""
    program = context.program
    found: list[ast.stmt] = []
    waiting: list[ast.AST] = list(starts)
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        for around in program.ancestors(node):
            if isinstance(around, LOOPS):
                if around not in found:
                    found.append(around)
                break
            if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                scope = program.by_node[id(around)].index
                waiting += [
                    call.node
                    for call in program.calls
                    if scope in program.called_scopes(call.node) and context.runs_in_training(call.node)
                ]
                break
    return sorted(found, key=lambda node: program.order[id(node)])


def _epoch_loop(context: Context, loop: ast.stmt, loader: Loader, site: int) -> EpochLoop:
    program = context.program
    first = loop.body[0]  # type: ignore[attr-defined]
    anchor = program.anchor(first)
    ddp = context.ddp(anchor.path)
    variable, rename = _variable(context, loop)
    if not variable:
        problem = Problem(
            "this loop over epochs has no counter that the sampler could be told",
            "write it as `for epoch in range(…)`",
        )
        return EpochLoop(anchor, ddp, "", "", problem=problem)
    sampler = _sampler(context, loop, loader, site)
    if not sampler:
        problem = Problem(
            f"the training loader has no name in this loop over epochs (it is made at {loader.path.name}:"
            f"{loader.at.span.line})",
            "pass the loader to this loop, or keep it in an attribute",
        )
        return EpochLoop(anchor, ddp, "", "", problem=problem)
    return EpochLoop(anchor, ddp, sampler, variable, rename)


def _variable(context: Context, loop: ast.stmt) -> tuple[str, object]:
    """The epoch's number in a loop, and the place of a ``_`` that must be given a name for it."""
    if isinstance(loop, ast.For):
        target = loop.target
        if isinstance(target, ast.Tuple) and isinstance(loop.iter, ast.Call) and target.elts:
            if "builtins.enumerate" in (
                context.program.call(loop.iter).names if context.program.call(loop.iter) else ()
            ):
                target = target.elts[0]
        if isinstance(target, ast.Name):
            if target.id == "_":
                path = context.program.file(loop).path
                return context.fresh(path, "epoch"), context.program.anchor(target)
            return target.id, None
    if isinstance(loop, ast.While):
        tested = {node.id for node in ast.walk(loop.test) if isinstance(node, ast.Name)}
        for statement in loop.body:
            if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
                if statement.target.id in tested and isinstance(statement.op, ast.Add):
                    return statement.target.id, None
    return "", None


def _sampler(context: Context, loop: ast.stmt, loader: Loader, site: int) -> str:
    """How the loader's sampler is called in a loop: by its own name, or through the loader."""
    program = context.program
    made = program.node(site)
    scope = program.scope(loop)
    path = program.file(loop).path
    if program.file(made).path == path:
        here = program.scope(made)
        visible = here is scope or (here.is_module and loader.sampler not in scope.names)
        if visible and not scope.is_class and _always_made(context, made, loop):
            return loader.sampler
    for node in program.descendants(loop):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            if site in context.made(program.values(node), LOADER) and _bound_outside(context, node, loop):
                return f"{ast.unparse(node)}.sampler"
    for name, values in _visible(context, scope):
        if context.made(values, LOADER) == {site}:
            return f"{name}.sampler"
    return ""


def _always_made(context: Context, made: ast.AST, loop: ast.stmt) -> bool:
    """Not under a condition that the loop does not stand under too."""
    around = {id(node) for node in context.program.ancestors(loop)}
    return all(
        id(node) in around or not isinstance(node, ast.If | ast.Try | ast.For | ast.While)
        for node in context.program.ancestors(made)
    )


def _bound_outside(context: Context, node: ast.expr, loop: ast.stmt) -> bool:
    inside = {id(inner) for inner in ast.walk(loop)}
    return not any(id(definition) in inside for definition in context.program.definitions(node))


def _visible(context: Context, scope: object) -> Iterator[tuple[str, Values]]:
    """Attributes of ``self`` and global names that a function can use, with their values."""
    program = context.program
    params = scope.params  # type: ignore[attr-defined]
    parent = scope.parent  # type: ignore[attr-defined]
    if params and parent is not None and parent.is_class:
        for owner in program.parameter_values(scope, params[0]):
            if isinstance(owner, Inst):
                yield from ((f"{params[0]}.{name}", values) for name, values in program.fields(owner))
    module = program.modules[scope.file.path]  # type: ignore[attr-defined]
    for name, values in program.module_names(module):
        if name not in scope.names:  # type: ignore[attr-defined]
            yield name, values
