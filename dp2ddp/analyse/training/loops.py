"""Which loops train: the loop over batches, and the loop over epochs round it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from dp2ddp.analyse.api.containers import CHANGES, FEEDS_METERS
from dp2ddp.analyse.api.files import PICTURES
from dp2ddp.analyse.api.handing import ASKING
from dp2ddp.analyse.api.iteration import COUNTERS, DRAWS_BATCHES, HANDS_OUT, NEXT_METHODS
from dp2ddp.analyse.api.naming import LOADER
from dp2ddp.analyse.api.parallel import is_runtime
from dp2ddp.analyse.api.purity import DRAWS_NOTHING, HOLDS
from dp2ddp.analyse.api.python import DICTIONARIES, IMPORTING
from dp2ddp.analyse.api.tensors import (
    BY_ROW,
    FILLS,
    GIVEN_SIZES,
    HANDS_ON,
    JOINS_TENSORS,
    PASSES_PICTURES_ON,
    REPEATS,
    VARIABLE,
)
from dp2ddp.analyse.context import LOOPS, Context, is_copy, is_inserted, once
from dp2ddp.analyse.dataflow.forwards import modes_before
from dp2ddp.analyse.dataflow.losses import is_any_loss
from dp2ddp.analyse.processes.conditions import assigned, counts_gpus, is_call_of
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.sources import How
from dp2ddp.analyse.program.updates import updated
from dp2ddp.analyse.program.values import Cls, Inst, Made, Values, full_name, is_outside_name
from dp2ddp.facts import NO_TIER, SHARDED_ONLY, Effect, EpochLoop, Loader, Obstacle, Problem
from dp2ddp.plan import Anchor

# Names that are followed to what they are made of.
DEPTH = 8
# What is given a loader, and keeps it or asks for it: any other function from outside may draw from it.
HOLDING = (*ASKING, *HOLDS, *DRAWS_NOTHING)


@dataclass(frozen=True)
class BatchLoop:
    """A ``for`` over batches, in a statement or a comprehension, and the loaders that it may draw from.

    ``runs``: identities of all nodes that it may run. ``draws``: the expressions whose elements it gets, behind
    ``enumerate``, ``tqdm`` and the like; empty where they are not followed. ``passing``: identities of those calls.
    ``pulls``: the ``next(…)`` by which it takes a batch, where it is no loop over a loader itself.
    """

    node: ast.AST
    source: ast.expr
    loaders: frozenset[int]
    trains: bool
    runs: frozenset[int]
    draws: tuple[ast.expr, ...]
    passing: frozenset[int]
    pulls: ast.Call | None = None


def batch_loops(context: Context) -> list[BatchLoop]:
    """Every loop over a DataLoader that a training program runs."""
    program = context.program
    backwards = {id(node) for node in context.backwards}
    found = []
    for node in list(program.nodes.values()):
        if isinstance(node, ast.For | ast.comprehension) and context.runs_in_training(node):
            loaders = context.made(context.iterated(program.values(node.iter)), LOADER)
            if loaders and not _copies(context, node) and not context.hands_out(node):
                body = getattr(node, "body", [])
                runs = set().union(*(context.runs(statement) for statement in body))
                trains = bool(runs & backwards)
                passing: set[int] = set()
                draws = tuple(_draws(context, node.iter, passing) or ())
                found.append(
                    BatchLoop(
                        node,
                        node.iter,
                        frozenset(loaders),
                        trains,
                        frozenset(context.runs(node)),
                        draws,
                        frozenset(passing),
                    )
                )
    found += _pulling(context)
    return [*found, *_evaluating_own(context, [it for it in found if it.trains])]


def _evaluating_own(context: Context, training: list[BatchLoop]) -> Iterator[BatchLoop]:
    """Loops that run a wrapped model, after ``model.eval()``, on batches that no loader hands out.

    They are no part of the batches that are trained on: nothing of a round of a training loop is what they go over.
    """
    program = context.program
    backwards = {id(node) for node in context.backwards}
    rounds = frozenset[int]().union(*(it.runs for it in training))
    for loop in list(program.nodes.values()):
        if not isinstance(loop, ast.For) or not context.runs_in_training(loop):
            continue
        forwards = [
            it
            for part in loop.body
            for it in ast.walk(part)
            if isinstance(it, ast.Call) and context.is_wrapped(program.values(it.func))
        ]
        if not forwards or context.made(context.iterated(program.values(loop.iter)), LOADER):
            continue
        modes = {model: mode for call, model, mode in modes_before(program, loop) if not call.args}
        runs = context.runs(loop)
        evaluates = all(modes.get(ast.unparse(it.func)) == "eval" for it in forwards)
        if evaluates and not runs & backwards and not is_of_round(context, loop.iter, rounds):
            yield BatchLoop(loop, loop.iter, frozenset(), False, frozenset(runs), (), frozenset())


def is_of_round(context: Context, node: ast.expr, rounds: frozenset[int], depth: int = 0) -> bool:
    """Whether an expression may be made of what a round of a training loop takes or makes."""
    program = context.program
    if depth > DEPTH:
        return True
    for part in ast.walk(node):
        for made in program.definitions(part) if isinstance(part, ast.Name | ast.Attribute) else ():
            if isinstance(made, ast.arg):
                scope = program.scope(made)
                if scope.owner is not None and made in scope.signature.places[:1]:
                    continue
                given = program.given(made)
                if not given or any(is_of_round(context, it, rounds, depth + 1) for it in given):
                    return True
            elif id(made) in rounds:
                source = program.source(made)
                if source.how is not How.ASSIGNED or is_of_round(context, source.value, rounds, depth + 1):  # type: ignore[arg-type]
                    return True
    return False


def _pulling(context: Context) -> Iterator[BatchLoop]:
    """Loops that train with what they pull from an iterator over a loader, which nothing else pulls from."""
    program = context.program
    for call in program.calls:
        if (own := own_batch(call.node)) is not None:
            before = getattr(own, "own_loop", None)
            for loop in _pulled_in(context, call.node) if before is None else [before]:
                yield BatchLoop(
                    loop,
                    own,
                    frozenset({id(own)}),
                    True,
                    frozenset(context.runs(loop)),
                    (own,),
                    frozenset({id(call.node)}),
                    call.node,
                )
            continue
        loop = _pulled_by(context, call.node)
        made = assigned(context, call.node.args[0]) if loop is not None else []
        begun = [program.call(it) for it in made if not (isinstance(it, ast.Constant) and it.value is None)]
        drawn = [it.node.args[0] for it in begun if it is not None and it.names == {"builtins.iter"}]
        sites = [context.made(program.values(it), LOADER) for it in drawn]
        if loop is None or len(drawn) < len(begun) or not sites or not all(sites):
            continue
        iterator: ast.Name = call.node.args[0]  # type: ignore[assignment]
        definitions = {id(it) for it in program.definitions(iterator)}
        uses = [
            node
            for node in ast.walk(program.file(iterator).tree)
            if isinstance(node, ast.Name)
            and node.id == iterator.id
            and isinstance(node.ctx, ast.Load)
            and definitions & {id(it) for it in program.definitions(node)}
        ]
        pulls = (it for it in uses if not _asks_if_begun(program.parent(it), it))
        if all(_pulled_by(context, program.parent(use)) is not None for use in pulls):
            yield BatchLoop(
                loop,
                iterator,
                frozenset().union(*sites),
                True,
                frozenset(context.runs(loop)),
                tuple(drawn),
                frozenset({id(call.node), *(id(it.node) for it in begun if it is not None)}),
                call.node,
            )


def _asks_if_begun(around: ast.AST | None, name: ast.Name) -> bool:
    """``not batches``, ``batches is None`` and ``if batches``: whether a name has an iterator yet."""
    match around:
        case ast.UnaryOp(op=ast.Not()) | ast.Compare(ops=[ast.Is() | ast.IsNot()]) | ast.BoolOp():
            return True
        case ast.If(test=test) | ast.IfExp(test=test):
            return test is name
    return False


def own_batch(node: ast.AST) -> ast.Call | None:
    """What stands for a loader in an expression that stands for a batch which the program makes itself."""
    match node:
        case ast.Call(args=[ast.Call() as made]) if is_inserted(node) and hasattr(made, "own_batch"):
            return made
    return None


def _pulled_in(context: Context, node: ast.AST) -> Iterator[ast.AST]:
    """The innermost loops with a backward pass that come to a place."""
    backwards = {id(it) for it in context.backwards}
    waiting, seen = [node], set[int]()
    while waiting:
        inner = waiting.pop()
        for around in context.program.ancestors(inner):
            if isinstance(around, LOOPS) and context.runs_one_of(around, backwards):
                if id(around) not in seen:
                    seen.add(id(around))
                    yield around
                break
            if (
                isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                and id(around) not in seen
            ):
                seen.add(id(around))
                scope = context.program.by_node[id(around)].index
                waiting += filter(context.runs_in_training, context.callers.get(scope, ()))
                break


def _pulled_by(context: Context, node: ast.AST | None) -> ast.AST | None:
    """The innermost loop with a backward pass that calls ``next(name)``."""
    call = context.program.call(node) if isinstance(node, ast.Call) else None
    if call is None or call.names != {"builtins.next"} or not context.runs_in_training(call.node):
        return None
    if len(call.node.args) != 1 or not isinstance(call.node.args[0], ast.Name):
        return None
    backwards = {id(it) for it in context.backwards}
    for around in context.program.ancestors(call.node):
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return None
        if isinstance(around, ast.For | ast.While) and context.runs_one_of(around, backwards):
            return around
    return None


def evaluated_apart(context: Context, loops: list[BatchLoop]) -> frozenset[int]:
    """Identities of the calls in rounds of the training that give a function the model, and nothing of a batch.

    With all that stands in functions which the training enters by such calls alone. Evaluations of loaders are looked
    at as such.
    """
    program = context.program
    found, others = set[int](), set[int]()
    forwards = {id(it.node) for it in program.calls if context.is_wrapped(it.callees)}
    elsewhere = {id(it.node) for it in loops if not it.trains} | set(map(id, context.backwards))
    for loop in loops:
        if loop.trains and isinstance(loop.node, ast.For | ast.While):
            calls = (it for it in map(program.nodes.get, loop.runs) if isinstance(it, ast.Call))
            entering = {id(it): it for it in calls if program.called_scopes(it)}
            apart = {
                key
                for key, it in entering.items()
                if key not in forwards
                and context.runs_one_of(it, forwards)
                and not context.runs_one_of(it, elsewhere)
                and _is_given_no_batch(context, loop, it)
            }
            found |= apart
            others |= entering.keys() - apart
    nodes = program.nodes
    while found:
        inside = {scope for key in found if key in nodes for scope in program.called_scopes(nodes[key])}
        shared = {scope for key in others - found for scope in program.called_scopes(nodes[key])}
        bodies = {id(it) for scope in inside - shared for it in program.body(program.scopes[scope])}
        if bodies <= found:
            break
        found |= bodies
    return frozenset(found)


def _is_given_no_batch(context: Context, loop: BatchLoop, call: ast.Call) -> bool:
    """Whether what a call runs takes no batch of a loop, is given nothing of one, and finds none that is kept."""
    program, runs = context.program, context.runs(call)
    if any(_takes_from(context, loop, it) for it in runs):
        return False
    used = list(_used_by(context, call))
    inside = map(program.nodes.get, runs)
    read = {it.attr for it in inside if isinstance(it, ast.Attribute) and isinstance(it.ctx, ast.Load)}
    held = {id(made) for it in used for made in program.definitions(it)}
    for node in filter(None, map(program.nodes.get, loop.runs - runs)):
        kept = _kept(node)
        if isinstance(kept, ast.Name):
            outside = is_outside_name(program.values(kept))  # a module, of which a function is called
            is_found = not outside and not held.isdisjoint(_definitions(context, kept))
        else:
            is_found = kept in read
        if is_found and not _is_plain_kept(context, loop, node):
            return False
    return all(_is_of_no_batch(context, loop, it) for it in used)


def _kept(node: ast.AST) -> ast.Name | str | None:
    """The name, or attribute, of which a node changes what that holds; None if it does no such thing."""
    match node:
        case ast.Attribute(attr=name, ctx=ast.Store()):
            return name
        case ast.Subscript(value=holder, ctx=ast.Store()):
            pass
        case ast.Call(func=ast.Attribute(value=holder, attr=method)) if method in FEEDS_METERS | CHANGES or (
            method.endswith("_") and not method.startswith("_")
        ):
            pass
        case _:
            return None
    while isinstance(holder, ast.Subscript):
        holder = holder.value
    return (
        holder.attr if isinstance(holder, ast.Attribute) else holder if isinstance(holder, ast.Name) else None
    )


def _definitions(context: Context, name: ast.Name, depth: int = 0) -> set[int]:
    """Identities of the definitions of a name, and of names that are given for it, where it is a parameter."""
    found: set[int] = set()
    for made in context.program.definitions(name) if depth < DEPTH else ():
        found.add(id(made))
        for given in context.program.given(made) if isinstance(made, ast.arg) else ():
            for it in ast.walk(given):
                if isinstance(it, ast.Name):
                    found |= _definitions(context, it, depth + 1)
    return found


def _used_by(context: Context, call: ast.Call) -> Iterator[ast.Name]:
    """The names that a call, and what it runs, get from round it."""
    program = context.program
    entered = {program.scope(program.nodes[it]).index for it in context.runs(call) if it in program.nodes}
    entered -= {program.scope(call).index}
    for name in program.in_order(context.runs(call)):
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load):
            own = program.scope(name).index in entered
            if not own or any(program.scope(it).index not in entered for it in program.definitions(name)):
                yield name


def _is_plain_kept(context: Context, loop: BatchLoop, node: ast.AST) -> bool:
    """Whether what a node stores or adds somewhere is nothing of the batch."""
    statement = context.program.statement(node)
    if isinstance(node, ast.Call):
        return all(_is_plain(context, loop, it, 0) for it in handed(node))
    value = statement.value if isinstance(statement, ast.Assign | ast.AugAssign) else None
    return value is not None and _is_plain(context, loop, value, 0)


def _is_plain(context: Context, loop: BatchLoop, node: ast.expr, depth: int) -> bool:
    """Whether an expression is made of constants, names of no batch and objects of these alone."""
    made = (context.program.call(it) for it in ast.walk(node) if isinstance(it, ast.Call))
    if not all(
        it is not None and it.callees and all(isinstance(of, Cls) for of in it.callees) for it in made
    ):
        return False
    names = (it for it in ast.walk(node) if isinstance(it, ast.Name))
    return all(_is_of_no_batch(context, loop, it, depth) for it in names)


def _is_of_no_batch(context: Context, loop: BatchLoop, name: ast.Name, depth: int = 0) -> bool:
    """Whether a name is given its value outside of a loop, or by numbers, objects and such names alone."""
    program = context.program
    if depth > DEPTH:
        return False
    for definition in program.definitions(name):
        if isinstance(definition, ast.arg):
            scope = program.scope(definition)
            if not scope.body or id(scope.body[0]) not in loop.runs:
                continue
            if scope.owner is not None and scope.params[:1] == [definition.arg]:
                continue  # the object of a method: what is kept in it is asked for apart
            given = program.given(definition)
            if not given or not all(_is_plain(context, loop, it, depth + 1) for it in given):
                return False
        elif id(definition) in loop.runs:
            statement = program.statement(definition)
            value = statement.value if isinstance(statement, ast.Assign | ast.AugAssign) else None
            if value is None or not _is_plain(context, loop, value, depth + 1):
                return False
    return True


def _takes_from(context: Context, loop: BatchLoop, key: int) -> bool:
    """Whether a node may take a batch of what a loop draws from."""
    program = context.program
    match node := program.nodes.get(key):
        case ast.For(iter=source) | ast.comprehension(iter=source) | ast.YieldFrom(value=source):
            return bool(context.made(context.iterated(program.values(source)), LOADER) & loop.loaders)
    return isinstance(node, ast.Call) and takes_next(context, node)


def takes_next(context: Context, call: ast.Call) -> bool:
    """Whether a call takes the next of what something hands out: ``next(batches)``, ``batches.next()``."""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return method in NEXT_METHODS or "builtins.next" in context.program.names_of(call)


def _copies(context: Context, node: ast.AST) -> bool:
    """Whether a loop only puts the batches in a list, whose elements another loop gets."""
    around = context.program.parent(node)
    return isinstance(around, ast.ListComp) and is_copy(around)


def _draws(context: Context, source: ast.expr, passing: set[int], depth: int = 0) -> list[ast.expr] | None:
    """The expressions behind ``enumerate``, ``tqdm``, names for these and lists, that are loaders themselves."""
    values = context.program.values(source)
    behind = [it for value in values for it in context.sources(value)]
    handings = [context.handing(value) for value in values if isinstance(value, Inst)]
    passing |= {key for it in handings if it is not None for key in it.calls}
    generated = [context.generated(value) for value in values if isinstance(value, Inst)]
    passing |= {id(it.iter) for it in generated if it is not None}
    if not behind:
        return [source]
    written = isinstance(source, ast.Call | ast.ListComp)
    sources = (
        list(dict.fromkeys(behind)) if written else assigned(context, source) or _entered(context, source)
    )
    call = context.program.call(source) if written else None
    own = call is not None and bool(
        context.program.handed_on(call)
    )  # it may hand on what it is given as it is, too
    if depth > 6 or not sources or (written and len(values) > 1 and not own):
        return None
    if isinstance(source, ast.Call):
        passing.add(id(source))
    found = [_draws(context, it, passing, depth + 1) for it in sources]
    return None if None in found else [draw for draws in found for draw in draws or ()]


def _entered(context: Context, name: ast.expr) -> list[ast.expr]:
    """What a name stands for that hands itself out where it is entered: ``with tqdm(loader) as bar:``."""
    made = [context.program.source(it) for it in context.program.definitions(name)]
    found = [it.value for it in made if it.how is How.ENTERED and it.value is not None and not it.place]
    values = context.program.values(name)
    return found if len(made) == 1 and all(context.program.values(it) == values for it in found) else []


def training_loaders(loops: list[BatchLoop]) -> set[int]:
    return {site for loop in loops if loop.trains for site in loop.loaders}


def together(context: Context, loops: list[BatchLoop]) -> dict[int, list[int]]:
    """The loaders of the training, with their places among those that a loop draws from at once, as ``zip`` does."""
    found: dict[int, list[int]] = {}
    for loop in loops:
        for place, draw in enumerate(loop.draws if loop.trains else ()):
            for site in context.made(context.program.values(draw), LOADER):
                places = found.setdefault(site, [])
                places += [place] if place not in places else []
    return found


def pulled(loops: list[BatchLoop]) -> set[int]:
    """The loaders whose batches a loop pulls: no loop over epochs begins with them."""
    return {site for loop in loops if loop.pulls is not None for site in loop.loaders}


def evaluated(context: Context, loops: list[BatchLoop]) -> set[int]:
    """The loaders of loops that train on some and only evaluate on others."""
    return {site for loop in loops if evaluates_too(context, loop) for site in loop.loaders}


def drawn(context: Context, loops: list[BatchLoop]) -> tuple[list[ast.expr], set[int]]:
    """Where the training draws from loaders that something else draws from, too, and these loaders."""
    training = training_loaders(loops)
    others = {site for loop in loops if not loop.trains for site in loop.loaders}
    others |= {site for call in _by_hand(context, loops, alone=True) for site in _drawn_by(context, call)}
    others |= {it for it in training if not context.makes_loaders_only(context.program.node(it))}
    dealt = training & others
    while True:
        waiting = [loop for loop in loops if loop.trains and loop.loaders & dealt]
        more = dealt.union(*(loop.loaders for loop in waiting))
        if more == dealt:
            break
        dealt = more
    if not all(loop.draws for loop in waiting):
        return [], set()
    return list(dict.fromkeys(draw for loop in waiting for draw in loop.draws)), dealt


def drawn_together(
    context: Context, loops: list[BatchLoop], effects: tuple[Effect, ...], drawn: set[int]
) -> set[int]:
    """The loaders from which all processes draw, of those that something has ``drawn`` from: not the main one alone."""
    return (drawn | context.whole_loaders) - drawn_alone(context, loops, effects)


def drawn_anywhere(context: Context, loops: list[BatchLoop]) -> set[int]:
    """The loaders that something draws from, in loops or by hand."""
    sites = set().union(*(loop.loaders for loop in loops), *_yielded(context).values())
    return sites.union(*(_drawn_by(context, it) for it in _by_hand(context, [])))


@once
def _yielded(context: Context) -> dict[int, set[int]]:
    """The loaders whose batches generators hand on as they are, ``yield from loader``, by the node that does so."""
    program = context.program
    return {
        key: context.made(context.iterated(program.values(node.value)), LOADER)
        for key, node in program.nodes.items()
        if isinstance(node, ast.YieldFrom) and context.runs_in_training(node)
    }


def drawn_alone(context: Context, loops: list[BatchLoop], effects: tuple[Effect, ...]) -> set[int]:
    """The loaders from which only the main process draws somewhere."""
    program = context.program
    guards = [it for it in effects if it.kind in ("guard", "test")]
    paths = {it.path for it in guards}
    inside = [
        it.node
        for it in program.calls
        if program.file(it.node).path in paths
        and any(guard.covers(program.anchor(it.node)) for guard in guards)
    ]
    runs = set().union(*(context.runs(node) for node in inside))
    loops = [
        loop for loop in loops if id(loop.source) in runs or any(_covers(context, it, loop) for it in guards)
    ]
    calls = [it for it in _by_hand(context, []) if id(it.node) in runs]
    yielded = (sites for key, sites in _yielded(context).items() if key in runs)
    return set().union(*(loop.loaders for loop in loops), *(_drawn_by(context, it) for it in calls), *yielded)


def _covers(context: Context, guard: Effect, loop: BatchLoop) -> bool:
    return guard.covers(context.program.anchor(loop.source))


def _by_hand(context: Context, loops: list[BatchLoop], alone: bool = False) -> list[Call]:
    """Calls that draw from a loader, and are not part of a loop's header; ``alone``: apart from the training loops."""
    known = set().union(*(loop.passing for loop in loops))
    known |= context.runs_before_own
    training = [loop for loop in loops if loop.trains and alone]
    known |= set().union(*(loop.runs for loop in training))
    shared = set().union(*(_passed(context, loop.source) for loop in training))
    return [
        call
        for call in context.program.calls
        if _may_draw(call)
        and context.runs_in_training(call.node)
        and id(call.node) not in known
        and _drawn_by(context, call)
        and not any(_passed(context, argument) & shared for argument in handed(call.node))
    ]


def _passed(context: Context, source: ast.expr) -> Values:
    """The iterators between an expression and the loaders that it draws from."""
    behind = context.behind(context.program.values(source))
    return frozenset(value for value in behind if context.sources(value))


def _may_draw(call: Call) -> bool:
    """Whether a call draws from a loader that it is given, or may: ``update_bn(loader, model)``."""
    if call.names & DRAWS_BATCHES:
        return True
    outside = bool(call.names) and not call.names & (HANDS_OUT | DICTIONARIES | {LOADER})
    return outside and not is_runtime(call.names) and not any(it.startswith(HOLDING) for it in call.names)


def _run_in_training_mode(context: Context, loop: BatchLoop) -> ast.Call | None:
    """The call of a wrapped model in a loop that trains nothing, after ``model.train()``."""
    modes = {model: mode for call, model, mode in modes_before(context.program, loop.node) if not call.args}
    for part in getattr(loop.node, "body", []):
        for node in ast.walk(part):
            if isinstance(node, ast.Call) and modes.get(ast.unparse(node.func)) == "train":
                if _is_of_wrap(context, node.func):
                    return node
    return None


def _is_of_wrap(context: Context, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression is a wrapped model, or something from outside that is made of one: its average."""
    program = context.program
    values = program.values(node)
    if context.is_wrapped(values):
        return True
    made = (
        program.call(program.node(it.site)) for it in values if isinstance(it, Made) and it.name != LOADER
    )
    given = (it for call in made if call is not None for it in handed(call.node))
    return depth < 3 and any(_is_of_wrap(context, it, depth + 1) for it in given)


def _drawn_by(context: Context, call: Call) -> set[int]:
    """The loaders that a call draws from."""
    found = [context.iterated(context.program.values(argument)) for argument in handed(call.node)]
    return set().union(*(context.made(values, LOADER) for values in found))


def obstacles(context: Context, loops: list[BatchLoop]) -> Iterator[Obstacle]:
    """Steps that no loop over a DataLoader is found round, and loaders drawn from in other ways."""
    program = context.program
    covered = set().union(*(loop.runs for loop in loops if loop.trains))
    by_hand = _by_hand(context, loops)
    told: set[int] = set()
    for node in context.backwards:
        place = program.scope(node).index
        if context.runs_in_training(node) and id(node) not in covered and place not in told:
            told.add(place)
            at, message, help = _undrawn(context, by_hand, node)
            yield context.obstacle(at, message, help, SHARDED_ONLY)
    training = training_loaders(loops)
    _, dealt = drawn(context, loops)
    for loop in loops:
        if not loop.trains and loop.loaders & (training - dealt):
            yield context.obstacle(
                loop.source,
                f"`{ast.unparse(loop.source)}` is used for both training and evaluation",
                "use a second loader for evaluation",
                SHARDED_ONLY,
            )
        if evaluates_too(context, loop):
            yield from _chosen_between(context, loop)
        elif not loop.trains and (run := _run_in_training_mode(context, loop)) is not None:
            yield context.obstacle(
                run,
                f"`{ast.unparse(run.func)}` runs in training mode here without an optimizer step",
                "call `model.module` or set `model.eval()`",
                SHARDED_ONLY,
            )
    for call in by_hand:
        if (
            id(call.node) in covered
            and not hasattr(call.node, "whole_source")
            and _drawn_by(context, call) - training
            and _trains_with(context, call.node)
        ):
            yield context.obstacle(
                call.node,
                f"`{ast.unparse(call.node)}` draws whole batches of another loader",
                "iterate over both in one loop, with zip()",
                SHARDED_ONLY,
            )
    yield from _sized_by_batch(context, training)
    yield from _copied_for_gpus(context)
    apart = {id(call.node) for call in _by_hand(context, loops, alone=True)}
    for call in by_hand:
        if _drawn_by(context, call) & training and any(_is_of_wrap(context, it) for it in handed(call.node)):
            yield context.obstacle(
                call.node,
                f"`{ast.unparse(call.node.func)}()` runs the wrapped model on whole batches, not for training",
                "pass `model.module`",
                SHARDED_ONLY,
                of_parts=True,
            )
        if _drawn_by(context, call) & (training if id(call.node) not in apart else training - dealt):
            yield context.obstacle(
                call.node,
                f"`{ast.unparse(call.node)}` takes training batches outside a `for` loop over the loader",
                "use one `for` loop over it",
                SHARDED_ONLY,
            )


def _trains_with(context: Context, drawn: ast.Call) -> bool:
    """Whether a backward pass begins with what is made of a batch that is taken by hand."""
    program = context.program
    body = list(program.body(program.scope(drawn)))
    known: set[int] = set()

    def uses(node: ast.AST) -> bool:
        inner = list(ast.walk(node))
        return drawn in inner or any(
            known & {id(it) for it in program.definitions(name)}
            for name in inner
            if isinstance(name, ast.Name)
        )

    while True:
        new = {
            id(name)
            for node in body
            if isinstance(node, ast.Assign) and uses(node.value)
            for target in node.targets
            for name in ast.walk(target)
            if isinstance(name, ast.Name)
        }
        if new <= known:
            break
        known |= new
    backwards = {program.scope(it).index for it in context.backwards}
    if any(
        node in context.backwards and uses(context.loss(node)) for node in body if isinstance(node, ast.Call)
    ):
        return True
    return any(
        any(map(uses, handed(node))) and program.entered(node) & backwards
        for node in body
        if isinstance(node, ast.Call)
    )


def _sized_by_batch(context: Context, training: set[int]) -> Iterator[Obstacle]:
    """Tensors as large as the global batch: a rank's part of it is smaller."""
    program = context.program
    sizes: dict[str, set[int]] = {}
    numbers = set()
    for site in training:
        call = context.loader_call(site)
        given = call.argument("batch_size", 1) if call is not None else None
        if isinstance(given, ast.Constant):
            numbers.add(given.value)
        elif given is not None:
            made = sizes.setdefault(ast.unparse(given), set())
            made |= {id(it) for it in program.definitions(given)}
            numbers |= {it.value for it in assigned(context, given) if isinstance(it, ast.Constant)}
    compared = _compared(context) if numbers else frozenset()
    for call in program.calls:
        function = call.node.func
        shapes = bool(call.names & FILLS) or (
            isinstance(function, ast.Attribute) and function.attr in GIVEN_SIZES
        )
        if not shapes or not context.runs_in_training(call.node) or id(call.node) in context.joined.after:
            continue
        parts = _sizes(call)
        first = getattr(parts[0], "value", None) if parts and isinstance(parts[0], ast.Constant) else None
        as_many = id(call.node) in compared and first in numbers  # elsewhere a number may be that of anything
        named = any(_is_size(context, part, sizes) for part in parts)
        if (named or as_many) and not is_only_shown(context, call.node):
            yield context.obstacle(
                call.node,
                f"`{ast.unparse(call.node)}` is the size of the global batch: if sharded, a rank has fewer samples",
                "use `len(inputs)`",
                SHARDED_ONLY,
            )


def _is_size(context: Context, node: ast.expr, sizes: dict[str, set[int]]) -> bool:
    """Whether an expression is a loader's batch size; a name may have got another value: ``n = len(inputs)``."""
    made = sizes.get(ast.unparse(node))
    if made is None:
        return False
    found = context.program.definitions(node) if isinstance(node, ast.Name) else []
    is_argument = any(isinstance(it, ast.arg) for it in found)
    return not found or is_argument or any(id(it) in made for it in found)


def _compared(context: Context) -> frozenset[int]:
    """Identities of the new tensors that losses are given."""
    found = set()
    for call in context.program.calls:
        if is_any_loss(context, call) and context.runs_in_training(call.node):
            waiting, seen = handed(call.node), set[int]()
            while waiting:
                node = waiting.pop()
                if id(node) in seen:
                    continue
                seen.add(id(node))
                match node:
                    case ast.Call(func=ast.Attribute(value=inner, attr=method)) if method in BY_ROW:
                        waiting.append(inner)
                    case ast.Call(args=[inner]) if is_call_of(context, node, VARIABLE):
                        waiting.append(inner)
                    case ast.Call():
                        found.add(id(node))
                    case ast.Name() | ast.Attribute():
                        waiting += assigned(context, node)
    return frozenset(found)


def _copied_for_gpus(context: Context) -> Iterator[Obstacle]:
    """Tensors with a row for each GPU, of which nn.DataParallel gives every replica its own."""
    for call in context.program.calls:
        if not context.runs_in_training(call.node):
            continue
        name = getattr(call.node.func, "attr", "")
        parts = _sizes(call)
        if call.names & JOINS_TENSORS:
            parts = [it for part in parts if isinstance(part, ast.BinOp) for it in (part.left, part.right)]
        elif name not in REPEATS:
            continue
        if any(counts_gpus(context, part, perhaps=True) for part in parts):
            yield context.obstacle(
                call.node,
                f"`{ast.unparse(call.node)}` has one row per GPU, which nn.DataParallel splits over the GPUs",
                "pass a single row",
                SHARDED_ONLY,
            )


def _sizes(call: Call) -> list[ast.expr]:
    """What a call is given by place, those in tuples and lists too."""
    return [part for argument in call.node.args for part in getattr(argument, "elts", [argument])]


def is_only_shown(context: Context, made: ast.expr) -> bool:
    """Whether a tensor, and what models make of it, is only made pictures of: fixed noise, for one."""
    program = context.program
    waiting: list[ast.AST] = [made]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        parent = program.parent(node)
        if isinstance(parent, ast.Attribute):
            around = program.parent(parent)
            called = isinstance(around, ast.Call) and around.func is parent
            if parent.attr not in HANDS_ON or (called and around.args and parent.attr != "to"):
                return False
            waiting.append(around if called else parent)  # type: ignore[arg-type]
        elif isinstance(parent, ast.Call):
            call = program.call(parent)
            if call is None or not call.names:
                return False
            if all(name.endswith(PICTURES) for name in call.names):
                continue
            if not context.is_wrapped(call.callees) and not call.names <= PASSES_PICTURES_ON:
                return False
            waiting.append(parent)
        elif isinstance(parent, ast.Assign) and [type(it) for it in parent.targets] == [ast.Name]:
            (target,) = parent.targets
            if id(target) not in seen:
                seen.add(id(target))
                names = [
                    it for it in program.nodes.values() if isinstance(it, ast.Name) and it.id == target.id
                ]
                uses = [it for it in names if isinstance(it.ctx, ast.Load)]
                waiting += [it for it in uses if target in program.definitions(it)]
        else:
            return False
    return bool(seen)


def _undrawn(context: Context, by_hand: list[Call], backward: ast.Call) -> tuple[ast.expr, str, str]:
    """Why no loop over a DataLoader is found round a backward pass: where, what it is, and what to do."""
    help = "take the batches in a loop over a DataLoader"
    if (handed := _handed_out(context, backward)) is not None:
        source, name = handed
        message = f"this loop is over {name}, which may not hand out the batches of a DataLoader"
        return source, message, "loop over a DataLoader that gives these batches"
    around = next((it for it in context.program.ancestors(backward) if isinstance(it, LOOPS)), None)
    runs = context.runs(around) if around is not None else set()
    taken = [it.node for it in by_hand if it.names == {"builtins.next"}]
    for call in (it for it in taken if id(it) in runs):
        if _is_one_of_several(context, call):
            message = f"`{ast.unparse(call)}` takes a batch from each of several loaders"
            return call, message, "use one loader with a batch sampler"
        message = f"training batches are taken with `{ast.unparse(call)}`"
        return call, message, "use a `for` loop over the DataLoader"
    trained = (it for it in context.program.calls if context.runs_in_training(it.node))
    hidden = [it.node for it in trained if it.names & IMPORTING and not context.program.values(it.node)]
    if hidden and not any(map(context.runs_in_training, (it.node for it in context.loaders))):
        message = f"no DataLoader was found; `{ast.unparse(hidden[0])}` imports a module chosen at run time"
        return hidden[0], message, "import the module by its name"
    return backward, f"no loop over a DataLoader was found around `{ast.unparse(backward)}`", help


def _handed_out(context: Context, node: ast.AST) -> tuple[ast.expr, str] | None:
    """What a loop round a place is over, and the class of the project whose objects hand that out."""
    program = context.program
    for around in program.ancestors(node):
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return None
        for value in context.iterated(program.values(around.iter)) if isinstance(around, ast.For) else ():
            if isinstance(value, Inst) and program.methods(value, "__iter__", around.iter):
                return around.iter, program.scopes[value.cls.scope].node.name  # type: ignore[attr-defined]
    return None


def _is_one_of_several(context: Context, taken: ast.Call) -> bool:
    """Whether a batch is taken for each round of a loop that goes over several iterators."""
    names = [it for it in ast.walk(taken.args[0]) if isinstance(it, ast.Name)]
    made = {id(it) for name in names for it in context.program.definitions(name)}
    loops = (it for it in context.program.ancestors(taken) if isinstance(it, ast.For))
    return any(made & {id(it) for it in ast.walk(loop.target)} for loop in loops)


def _chosen_between(context: Context, loop: BatchLoop) -> Iterator[Obstacle]:
    """A loop that trains and evaluates by different functions: what these measure is not among the training's numbers.

    Numbers of the loop itself are combined alike in both: its loaders hand out parts that weigh by their samples.
    """
    if _unconditional(context, loop):
        yield context.obstacle(
            loop.source,
            "this loop over batches calls a function that trains, and another that evaluates",
            "write a loop for each",
            SHARDED_ONLY,
            assumes=f"the result of evaluating `{ast.unparse(loop.source)}` is a mean over samples",
        )


def evaluates_too(context: Context, loop: BatchLoop) -> bool:
    """Whether a loop trains, and may only evaluate what comes from another loader."""
    several = len(loop.loaders) > 1 or any(_makes_several(context, site) for site in loop.loaders)
    return loop.trains and several and _may_only_evaluate(context, loop)


def _makes_several(context: Context, site: int) -> bool:
    """Whether a call is repeated: in a loop, or in a function that is called in several places."""
    node = context.program.node(site)
    for around in context.program.ancestors(node):
        if isinstance(around, (*LOOPS, ast.comprehension, ast.ListComp, ast.DictComp, ast.GeneratorExp)):
            return True
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            break
    return len(context.callers.get(context.program.scope(node).index, ())) > 1


def _may_only_evaluate(context: Context, loop: BatchLoop) -> bool:
    """Whether all backward() calls of a loop are under conditions, or in one of several functions that it may call."""
    chosen = frozenset().union(*_alternatives(context, loop))
    return all(id(node) in chosen for node in _unconditional(context, loop))


def _unconditional(context: Context, loop: BatchLoop) -> list[ast.Call]:
    """The backward() calls of a loop that stand under no condition."""
    inside = context.runs(loop.node)
    return [
        node
        for node in context.backwards
        if id(node) in inside
        and not any(
            isinstance(around, ast.If) and id(around) in inside for around in context.program.ancestors(node)
        )
    ]


def _alternatives(context: Context, loop: BatchLoop) -> Iterator[set[int]]:
    """What runs in one of the functions that a loop may call in one place, and not in each: ``self.step(batch)``.

    Those that all train are none, as whichever is called trains. Functions that it calls one after the other, hooks,
    are no alternatives; nor is one that only raises.
    """
    program = context.program
    inside = context.runs(loop.node)
    backwards = {id(it) for it in context.backwards}
    loops = (*LOOPS, ast.comprehension, ast.ListComp, ast.DictComp, ast.GeneratorExp)
    for key in inside:
        call = program.call(program.nodes[key]) if key in program.nodes else None
        if call is None:
            continue
        around = list(takewhile(lambda it: it is not loop.node, program.ancestors(call.node)))
        if any(isinstance(it, loops) for it in around):
            continue
        targets = {index for callee in call.callees for index, _, _ in program.targets(callee, call)}
        scopes = [program.scopes[index] for index in targets]
        bodies = [it.body for it in scopes if not all(isinstance(st, ast.Raise | ast.Expr) for st in it.body)]
        if len(bodies) > 1:
            runs = [set[int]().union(*map(context.runs, body)) for body in bodies]
            if all(map(backwards.isdisjoint, runs)) or not any(map(backwards.isdisjoint, runs)):
                continue
            yield set[int]().union(*runs) - set.intersection(*runs)


def collect(context: Context, loops: list[BatchLoop], loaders: tuple[Loader, ...]) -> tuple[EpochLoop, ...]:
    """Every loop over epochs, with the sampler that it must tell the epoch."""
    anchors = {site: context.program.anchor(context.program.node(site)) for site in training_loaders(loops)}
    made = {loader.at: loader for loader in loaders if not (loader.problem or loader.shard)}
    sampled = {site: made[at] for site, at in anchors.items() if at in made}
    untold: list[EpochLoop] = []
    while True:
        found = _told(context, loops, sampled)
        problems = [loop for loop in found if loop.problem is not None]
        if not problems:
            return (*untold, *found)
        untold += problems
        left = {loop.loader for loop in problems}
        sampled = {site: loader for site, loader in sampled.items() if loader.at not in left}


def _told(context: Context, loops: list[BatchLoop], sampled: dict[int, Loader]) -> tuple[EpochLoop, ...]:
    """The loops over epochs in which loaders with a DistributedSampler, by where they are made, are drawn from."""
    facts: list[EpochLoop] = []
    for site in sorted(sampled, key=lambda site: context.program.order[site]):
        loader = sampled[site]
        if loader.shuffle is False:
            continue
        starts = [
            start
            for loop in loops
            if loop.trains and site in loop.loaders
            for start in _starts(context, loop)
        ]
        for loop in _epoch_loops(context, starts):
            fact = _epoch_loop(context, loop, sampled, site)
            if fact not in facts:
                facts.append(fact)
    return tuple(facts)


def _starts(context: Context, loop: BatchLoop) -> list[ast.AST]:
    """Where a loop's batches are drawn: in its header, or where they are put in a list."""
    if isinstance(loop.node, ast.comprehension):
        return [loop.node]
    apart = [
        draw
        for draw in loop.draws
        if context.program.statement(draw) is not loop.node and not _is_of_object(context, draw)
    ]
    return apart if loop.draws and len(apart) == len(loop.draws) else [loop.node]


def _is_of_object(context: Context, draw: ast.expr) -> bool:
    """Whether a loader is given to an object of the project, or held by one, which draws from it in each loop anew."""
    program = context.program
    around = program.parent(draw)
    call = program.parent(around) if isinstance(around, ast.keyword) else around
    made = program.call(call) if isinstance(call, ast.Call) else None
    if made is not None and any(isinstance(it, Cls) for it in made.callees):
        return True
    return any(isinstance(it, ast.For) and context.hands_out(it) for it in program.ancestors(draw))


def _epoch_loops(context: Context, starts: list[ast.AST]) -> list[ast.stmt]:
    """The nearest loops with a counter round the loops over batches, through the functions that hold them.

    Where none has a counter, the nearest ones.
    """
    program = context.program
    counted: list[ast.stmt] = []
    others: list[ast.stmt] = []
    waiting = list(starts)
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        for around in program.ancestors(node):
            if isinstance(around, LOOPS):
                if _counter(context, around) is not None:
                    if around not in counted:
                        counted.append(around)
                    break
                others.append(around)
            if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                scope = program.by_node[id(around)].index
                waiting += filter(context.runs_in_training, context.callers.get(scope, ()))
                break
    return sorted(counted or others[:1], key=lambda node: program.order[id(node)])


def _epoch_loop(context: Context, loop: ast.stmt, sampled: dict[int, Loader], site: int) -> EpochLoop:
    loader = sampled[site]
    place = {**context.place(loop.body[0]), "loader": loader.at}  # type: ignore[attr-defined]
    variable, rename = _variable(context, loop)
    if not variable:
        problem = "the epoch loop has no epoch number for `sampler.set_epoch()`"
        return EpochLoop(**place, sampler="", variable="", problem=Problem(problem, "", NO_TIER))
    if _is_repeated(context, loop):
        problem = "the epoch loop runs several times from the same epoch"
        return EpochLoop(**place, sampler="", variable="", problem=Problem(problem, "", NO_TIER))
    sampler = _sampler(context, loop, sampled, site)
    if not sampler:
        problem = "its sampler can't be reached from the epoch loop"
        return EpochLoop(**place, sampler="", variable="", problem=Problem(problem, "", NO_TIER))
    return EpochLoop(**place, sampler=sampler, variable=variable, rename=rename)


def _apart(context: Context, calls: list[ast.Call]) -> list[ast.Call]:
    """Those of some calls of a function that stand in no other choice of the same call: ``super().train()``."""
    others = {id(it) for it in calls}
    scopes = [context.program.scope(it).index for it in calls]
    return [
        it
        for it, scope in zip(calls, scopes, strict=True)
        if not any(id(call) in others - {id(it)} for call in context.callers.get(scope, ()))
    ]


def _is_repeated(context: Context, loop: ast.AST, depth: int = 0) -> bool:
    """Whether a loop over epochs is come to again: in another loop, or by several calls. It begins with 0 each time."""
    program = context.program
    for around in program.ancestors(loop):
        if isinstance(around, LOOPS):
            return True
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            scope = program.by_node[id(around)]
            calls = _apart(
                context, list(filter(context.runs_in_training, context.callers.get(scope.index, ())))
            )
            return len(calls) > 1 or (depth < 6 and any(_is_repeated(context, it, depth + 1) for it in calls))
    return False


def _variable(context: Context, loop: ast.stmt) -> tuple[str, Anchor | None]:
    """The epoch's number in a loop, and the place of a ``_`` that must be given a name for it."""
    counter = _counter(context, loop)
    if counter is None:
        return "", None
    if counter.id == "_":
        return context.fresh(context.program.file(loop).path, "epoch"), context.program.anchor(counter)
    return counter.id, None


def _counter(context: Context, loop: ast.stmt) -> ast.Name | None:
    """The name that counts a loop's rounds: of ``for i in range(…)``, or ``i += 1`` in a ``while`` that tests it."""
    if isinstance(loop, ast.For):
        target = loop.target
        source: ast.AST = loop.iter
        while (call := context.program.call(source) if isinstance(source, ast.Call) else None) is not None:
            if call.names & COUNTERS:
                return target if isinstance(target, ast.Name) else None
            if "builtins.enumerate" in call.names:
                first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else None
                return first if isinstance(first, ast.Name) else None
            through = call.node.args[:1] if call.names & HANDS_OUT else context.program.handed_on(call)
            if len(through) != 1:
                return None
            source = through[0]
        if isinstance(source, ast.Name) and isinstance(target, ast.Name):
            held = context.program.values(source)
            if held and all(full_name(value) in COUNTERS | HANDS_OUT for value in held):
                return target
    if isinstance(loop, ast.While):
        tested = {node.id for node in ast.walk(loop.test) if isinstance(node, ast.Name)}
        for statement in loop.body:
            change = updated(statement)
            if change is not None and isinstance(change.target, ast.Name):
                if change.target.id in tested and isinstance(change.op, ast.Add):
                    return change.target
    return None


def _sampler(context: Context, loop: ast.stmt, sampled: dict[int, Loader], site: int) -> str:
    """How the loader's sampler is called in a loop: by its own name, or through that of the loader."""
    program, loader = context.program, sampled[site]
    made = program.node(site)
    scope = program.scope(loop)
    path = program.file(loop).path
    if program.file(made).path == path:
        here = program.scope(made)
        visible = here is scope or (here.is_module and loader.sampler not in scope.names)
        if visible and not scope.is_class and _always_made(context, made, loop):
            return loader.sampler
    for node in program.descendants(loop):
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Load):
            sites = context.made(program.values(node), LOADER)
            if site in sites and sites <= sampled.keys() and _bound_outside(context, node, loop):
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
    """Whether all names of an expression have their values where a loop begins."""
    inside = {id(inner) for inner in ast.walk(loop)}
    made = (it for part in ast.walk(node) for it in context.program.definitions(part))
    return not any(id(definition) in inside for definition in made)


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
