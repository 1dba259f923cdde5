"""Joints: the place in a round of the training behind which a rank needs the whole batch again.

Behind the last forward nothing of a round costs much, and anything may look at all samples: the loss, what is counted,
what decides. So a rank takes its part of a batch only as far as the forward, as nn.DataParallel's replicas do, and what
is needed of it later is joined there, ``labels, outputs = ddp.whole_batch((labels, outputs))``. What follows is the
original's, whatever it computes. The program is looked at as if it did that (``views``); what is used behind the joint
and was not joined is seen there as any part of a batch.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dp2ddp.analyse.api.containers import CHANGES
from dp2ddp.analyse.api.devices import MOVES
from dp2ddp.analyse.api.layers import GRAD
from dp2ddp.analyse.api.tensors import OF_GRADIENTS
from dp2ddp.analyse.context import COMPREHENSIONS, LOOPS, Context, Rounds, disables_gradients, is_inserted
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.forwards import Forwards
from dp2ddp.analyse.dataflow.kinds import DEALT, PLAIN, Kind, Unclear
from dp2ddp.analyse.dataflow.samples.joined import is_output
from dp2ddp.analyse.dataflow.samples.writes.looks import looks_in
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.signature import Signature
from dp2ddp.analyse.program.sources import How
from dp2ddp.analyse.program.values import Inst, Made
from dp2ddp.analyse.training import nested
from dp2ddp.analyse.training.loops import BatchLoop, is_of_round, takes_next
from dp2ddp.analyse.views import View, insert, insert_imports
from dp2ddp.facts import SHARDED_ONLY, Joint, Obstacle
from dp2ddp.plan import Anchor

WHOLE, COUNT = "_whole_batch_of_joint", "_batch_sum_of_joint"
"""What ``ddp.whole_batch`` and ``ddp.batch_sum`` are called where programs are looked at as if they had joints."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
CALLS = 8
"""How many functions deep a round is followed, and by how many places it may come to a joint."""


class Unjoinable(Exception):
    """A round can't be joined at one place."""


@dataclass(frozen=True)
class Site:
    """A joint: behind which statement, and the names that are the whole batch's from there on.

    ``counts``: of which those are numbers of samples. ``if_grad``: as ``facts.Joint`` has it.
    """

    statement: ast.stmt
    names: tuple[str, ...]
    counts: tuple[str, ...] = ()
    if_grad: bool = False


def find(
    context: Context, loops: list[BatchLoop], programs: frozenset[Path], needless: Container[Anchor] = ()
) -> list[Site]:
    """The joints of the rounds of some programs' training, where they have one; ``needless``: where none is needed."""
    training = [it for it in loops if it.trains]
    samples = Forwards(context)
    sites: dict[int, list[Site]] = {}
    for loop in training:
        if context.run_by(loop.node) & programs:
            found = _Round(context, samples, loop, loops).sites()
            if not any(context.program.anchor(it.statement) in needless for it in found):
                sites[id(loop)] = found
    joined = [it for it in training if sites.get(id(it))]
    while True:
        own = frozenset[int]().union(*(it.runs for it in joined))
        apart = (it.runs - _within(it, joined) for it in loops if it not in joined)
        others = frozenset[int]().union(*apart)
        shared = {
            id(site.statement)
            for it in joined
            for site in sites[id(it)]
            if id(site.statement) in others or not only_runs_in(context, site.statement, joined, own)
        }
        left = [
            it
            for it in joined
            if all(
                id(site.statement) not in shared or _joins_with_gradients(context, site, joined, loops)
                for site in sites[id(it)]
            )
        ]
        if len(left) == len(joined):
            break
        joined = left
    placed: dict[int, Site] = {}
    for site in (site for it in joined for site in sites[id(it)]):
        known = placed.setdefault(id(site.statement), site)  # several loops may run one function
        names = tuple(dict.fromkeys((*known.names, *site.names)))
        counts = tuple(dict.fromkeys((*known.counts, *site.counts)))
        placed[id(site.statement)] = Site(site.statement, names, counts, id(site.statement) in shared)
    return list(placed.values())


def _within(outer: BatchLoop, loops: Iterable[BatchLoop]) -> frozenset[int]:
    """What some loops run that stand in the rounds of another one."""
    inner = (it for it in loops if id(it.node) in outer.runs and id(outer.node) not in it.runs)
    return frozenset[int]().union(*(it.runs for it in inner))


def _joins_with_gradients(
    context: Context, site: Site, joined: list[BatchLoop], loops: Iterable[BatchLoop]
) -> bool:
    """Whether rounds of some loops come to a joint with gradients, and all else without: nothing is joined then.

    What the rounds themselves do without gradients is of parts of batches, too, but for what they evaluate.
    """
    program = context.program
    training = {id(it.node) for it in joined}
    others = {id(it.node) for it in loops} - training
    waiting: list[tuple[ast.AST, bool, bool]] = [(site.statement, False, False)]
    seen = set[tuple[int, bool, bool]]()
    while waiting:
        place, evaluates, is_quiet = waiting.pop()
        for around in program.ancestors(place):
            is_quiet |= disables_gradients(program, around)
            if id(around) in training:
                if evaluates is not is_quiet:
                    return False
                break
            evaluates |= id(around) in others
            if isinstance(around, FUNCTIONS):
                state = program.by_node[id(around)].index, evaluates, is_quiet
                calls = context.callers.get(state[0], [])
                if not calls and not (is_quiet and evaluates):
                    return False
                waiting += [(it, evaluates, is_quiet) for it in calls] if state not in seen else []
                seen.add(state)
                break
        else:
            if not (is_quiet and evaluates):
                return False
    return not site.counts


def only_runs_in(context: Context, node: ast.AST, loops: list[BatchLoop], runs: frozenset[int]) -> bool:
    """Whether nothing but rounds of some loops, which run ``runs``, comes to a place."""
    program, seen = context.program, set[int]()
    waiting = [node]
    while waiting:
        place = waiting.pop()
        index = program.scope(place).index
        if any(program.is_inside(place, it.node) for it in loops) or index in seen:
            continue
        seen.add(index)
        calls = context.callers.get(index, [])
        if not calls or not all(id(it) in runs for it in calls):
            return False
        waiting += calls
    return True


def looked_at(context: Context, sites: list[Site]) -> Context:
    """The programs as they would be with joints."""
    view = View(context)
    changed: dict[int, ast.Module] = {}
    for site in sites:
        names = ", ".join(site.names)
        given = f"({names})" if len(site.names) > 1 else names
        texts = [f"{names} = {WHOLE}({given})", *(f"{it} = {COUNT}({it})" for it in site.counts)]
        first, *others = made = ast.parse("\n".join(texts)).body
        known = view.twin(site.statement), site.names, site.counts, site.if_grad
        first.value.joins = known  # type: ignore[attr-defined]
        for it in others:
            it.value.joins_count = True  # type: ignore[attr-defined]
        tree = view.tree(site.statement)
        insert(tree, view.twin(site.statement), made)
        changed[id(tree)] = tree
    for tree in changed.values():
        insert_imports(tree, f"from dp2ddp.runtime import batch_sum as {COUNT}, whole_batch as {WHOLE}")
    return view.linked()


def facts(context: Context) -> Iterator[Joint]:
    """The joints that programs are looked at with."""
    for node in list(context.program.nodes.values()):
        if (known := getattr(node, "joins", None)) is not None:
            statement, names, counts, if_grad = known
            place, entries = context.place(statement), context.lists_are_entries
            hoisted = tuple(nested.hoisted(context, statement))
            yield Joint(
                **place, names=names, counts=counts, entries=entries, if_grad=if_grad, hoisted=hoisted
            )


def obstacles(context: Context, loops: Iterable[BatchLoop]) -> Iterator[Obstacle]:
    """What is of a part of the batch behind a joint all the same: it must not meet what is of all ranks'."""
    rounds = context.joined
    if not rounds.after:
        return
    samples = Forwards(context)
    elsewhere = frozenset[int]().union(*(it.runs for it in loops if it.trains)) - rounds.after
    for key, node in context.program.nodes.items():
        if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
            continue
        if is_inserted(node) or key in rounds.before:
            continue
        is_behind = key in rounds.behind
        made = context.program.definitions(node)
        others = [it for it in made if id(it) in elsewhere and not is_inserted(it)]
        strays = (is_behind and _is_stray(samples, it, rounds) for it in others)
        if others and any(map(is_inserted, made)) or any(strays):
            message = f"if sharded, `{ast.unparse(node)}` could be of the local or of the global batch"
            yield context.obstacle(node, message, "", SHARDED_ONLY)
        elif is_behind:
            value = kinds.tensor(samples.of(node), node)
            if isinstance(value, Kind) and value not in (*PLAIN, Kind.WHOLE, Kind.UNKNOWN):
                message = (
                    f"if sharded, `{ast.unparse(node)}`, used after the forward, would be of the local batch"
                )
                yield context.obstacle(node, message, "", SHARDED_ONLY)


def _is_stray(samples: Forwards, definition: ast.AST, rounds: Rounds) -> bool:
    """Whether a name gets something of a part where a round comes to no joint."""
    if id(definition) in rounds.before:
        return False
    value = samples.program.source(definition).plain
    return value is not None and kinds.tensor(samples.of(value), value) not in (*PLAIN, Kind.UNKNOWN)


def rounds(context: Context, loops: list[BatchLoop]) -> Rounds:
    """What the rounds of programs that are looked at with joints run before these, and only behind them.

    Rounds of the loop that a joint is for: not of one that this loop stands in.
    """
    apart = frozenset[int]().union(*(it.runs for it in loops if not it.trains))
    apart |= context.evaluated_apart
    before, after = set[int](), set[int]()
    joints = [it for it in context.program.nodes.values() if hasattr(it, "joins")]
    training = [it for it in loops if it.trains]
    for loop in training:
        own = loop.runs - _within(loop, training)
        for node in joints:
            if id(node) in own:
                first, then = around(context, loop, context.program.statement(node))
                before |= first
                after |= then
    return Rounds(frozenset(before), frozenset(after - before), apart)


def around(context: Context, loop: BatchLoop, joint: ast.stmt) -> tuple[frozenset[int], frozenset[int]]:
    """Identities of what a round of a loop runs up to a statement, that included, and of what it runs behind it.

    Raises ``Unjoinable`` where the round does not come by just once.
    """
    program = context.program
    before: list[ast.stmt] = []
    after: list[ast.stmt] = []
    waiting, seen = [joint], set[int]()
    stored = set[int]()  # what a call that comes to the joint gives a name behind it
    while waiting:
        inside = waiting.pop()
        if id(inside) in seen or len(seen) > CALLS:
            raise Unjoinable
        seen.add(id(inside))
        before += [inside] * (inside is joint)
        while True:
            block = program.block(inside)
            index = block.index(inside)
            before += block[:index]
            after += block[index + 1 :]
            match program.parent(inside):
                case outer if outer is loop.node:
                    break
                case ast.FunctionDef() as function:
                    callers = context.callers.get(program.by_node[id(function)].index, ())
                    calls = [it for it in callers if id(it) in loop.runs]
                    if not calls:
                        raise Unjoinable
                    entering = [*map(program.statement, calls)]
                    waiting += entering
                    given = (target for it in entering for target in getattr(it, "targets", ()))
                    stored |= {id(part) for target in given for part in ast.walk(target)}
                    break
                case ast.With() | ast.If() as outer:
                    inside = outer
                case _:
                    raise Unjoinable
    first = frozenset[int]().union(*map(context.runs, before))
    then = frozenset[int]().union(stored, *map(context.runs, after))
    return first, then - first


class _Round:
    """Where a round of one training loop is joined, and what."""

    def __init__(
        self, context: Context, samples: Forwards, loop: BatchLoop, loops: Iterable[BatchLoop]
    ) -> None:
        self.context, self.program, self.samples, self.loop = context, context.program, samples, loop
        self.apart = frozenset[int]().union(
            *(it.runs for it in loops if not it.trains and id(it.node) in loop.runs),
            context.evaluated_apart & loop.runs,
        )
        """Identities of what evaluations run within the round."""
        self._over_batches = frozenset(id(it.node) for it in loops)
        # of a loop that pulls its batches, it is a counter
        self.target = getattr(loop.node, "target", None) if loop.pulls is None else None
        self.forwards: list[ast.Call] = []

    def sites(self) -> list[Site]:
        """The joints of a round: several where it may go several ways, each of which comes to one; none if it can't."""
        if not isinstance(self.loop.node, ast.For | ast.While):
            return []
        if len(self.loop.draws) > 1 and len(self.loop.loaders) > 1:
            return []  # what comes of several loaders has parts of several sizes
        try:
            self.forwards = self._forwards()
            if any(map(self._asks_for_gradients, self.nodes(self.loop.runs - self.apart))):
                return []
            return self._within(self.loop.node.body, frozenset(map(id, self.forwards)), 0)
        except Unjoinable:
            return []

    def _forwards(self) -> list[ast.Call]:
        """The calls of wrapped models that are given something of the batch."""
        found = []
        for call in self.calls(self.loop.runs - self.apart):
            if not self.context.is_wrapped(call.callees):
                continue
            given = [kinds.tensor(self.samples.of(it), it) for it in _given(call.node)]
            if all(it in PLAIN for it in given):
                continue
            if not all(it in (*DEALT, *PLAIN) for it in given) or any(
                map(self.samples.is_cut, _given(call.node))
            ):
                raise Unjoinable
            found.append(call.node)
        return found

    def _within(self, block: list[ast.stmt], forwards: frozenset[int], depth: int) -> list[Site]:
        """The joints within a block that runs some forwards: behind the last statement that does, or inside of it.

        Raises ``Unjoinable`` where there are none.
        """
        running = [it for it in block if self.context.runs_one_of(it, forwards)]
        if not running or depth > CALLS:
            raise Unjoinable
        last = running[-1]
        if not isinstance(last, ast.Return | ast.While | ast.Try):
            try:
                return [_Joining(self, _behind_moves(block, last)).site()]
            except Unjoinable:
                pass
        for ways in self._inside(last) if len(running) == 1 else ():
            run = [frozenset[int]().union(*map(self.context.runs, it)) & forwards for it in ways]
            if forwards <= frozenset[int]().union(*run):
                taken = zip(ways, run, strict=True)
                return [site for way, some in taken if some for site in self._within(way, some, depth + 1)]
        raise Unjoinable

    def _inside(self, statement: ast.stmt) -> Iterator[list[list[ast.stmt]]]:
        """The blocks of a statement, and the functions that each of its calls may enter, of which one is run."""
        if isinstance(statement, ast.With):
            yield [statement.body]
        elif isinstance(statement, ast.If):
            yield [statement.body, statement.orelse]
        elif not isinstance(statement, ast.For | ast.While | ast.Try):
            for node in ast.walk(statement):
                entered = sorted(self.program.called_scopes(node)) if self._is_run_once(node) else []
                yield [self.program.scopes[index].body for index in entered]

    def _is_run_once(self, node: ast.AST) -> bool:
        """Whether a call runs just once when its statement does."""
        if not isinstance(node, ast.Call):
            return False
        for it in self.program.ancestors(node):
            if isinstance(it, ast.stmt):
                return True
            if isinstance(it, (*COMPREHENSIONS, ast.Lambda, ast.IfExp, ast.BoolOp)):
                return False
        return False

    def nodes(self, keys: Iterable[int]) -> Iterator[ast.AST]:
        nodes = self.program.nodes
        return (nodes[it] for it in keys if it in nodes)

    def calls(self, keys: Iterable[int]) -> Iterator[Call]:
        for node in self.nodes(keys):
            if isinstance(node, ast.Call) and (call := self.program.call(node)) is not None:
                yield call

    @cached_property
    def taking(self) -> frozenset[int]:
        """Identities of what takes a batch, anywhere in the programs."""
        return frozenset(id(it) for it in self.program.nodes.values() if self._takes_batch(it))

    def _takes_batch(self, node: ast.AST) -> bool:
        if isinstance(node, ast.For | ast.comprehension):
            return id(node) in self._over_batches
        return isinstance(node, ast.Call) and takes_next(self.context, node)

    def _asks_for_gradients(self, node: ast.AST) -> bool:
        """Whether something asks for gradients by what is fed to a model: these are of all samples, or of a part."""
        match node:
            case ast.Attribute(attr=name, value=value) if name in OF_GRADIENTS:
                return kinds.tensor(self.samples.of(value), value) not in PLAIN
            case ast.Call():
                call = self.program.call(node)
                return call is not None and GRAD in call.names
        return False


def _given(node: ast.Call) -> Iterator[ast.expr]:
    """What a call is given."""
    for it in handed(node):
        yield it.value if isinstance(it, ast.Starred) else it


def _behind_moves(block: list[ast.stmt], statement: ast.stmt) -> ast.stmt:
    """A statement, or the last of those behind it that only move a name to a device: ``labels = labels.cuda()``."""
    for later in block[block.index(statement) + 1 :]:
        match later:
            case ast.Assign(
                targets=[ast.Name()], value=ast.Call(func=ast.Attribute(value=ast.Name(), attr=method))
            ) if (method in MOVES):
                statement = later
            case _:
                break
    return statement


class _Joining:
    """What is joined behind one statement of a round."""

    def __init__(self, round_: _Round, statement: ast.stmt) -> None:
        self.round, self.statement, self.loop = round_, statement, round_.loop
        self.context, self.program, self.samples = round_.context, round_.program, round_.samples
        self.scope = self.program.scope(statement)
        before, self.after = around(self.context, self.loop, statement)
        self.before = before - round_.apart
        """Identities of what a round runs up to the joint, and of what it only runs behind it: ``after``."""
        self.running = frozenset(self._running())
        """The functions that the joint stands in, or that call these, by their scopes' indices."""

    def _running(self) -> Iterator[int]:
        waiting: list[ast.AST] = [self.statement]
        seen = set[int]()
        while waiting:
            index = self.program.scope(waiting.pop()).index
            if index not in seen:
                seen.add(index)
                yield index
                if index != self.program.scope(self.loop.node).index:
                    waiting += (it for it in self.context.callers.get(index, ()) if id(it) in self.loop.runs)

    def site(self) -> Site:
        """The joint. Raises ``Unjoinable`` where that is none."""
        backwards = {id(it) for it in self.context.backwards} & self.loop.runs
        if backwards & self.before:
            raise Unjoinable
        target = [] if self.round.target is None else ast.walk(self.round.target)
        if any(map(self._keeps, (*self._handling(), *target))):
            raise Unjoinable
        behind = self.after - self.round.apart
        if behind & self.round.taking:
            raise Unjoinable
        calls = list(self.round.calls(behind))
        if any(map(self._is_of_model, calls)):
            raise Unjoinable
        uses = self._uses()
        counts = tuple(name for name, some in uses.items() if self._is_count(some))
        names = tuple(name for name in uses if name not in counts)
        for name in uses:
            self._check(name, uses[name], name in counts)
        if not names:
            raise Unjoinable
        return Site(self.statement, names, counts)

    # What is in the way

    def _handling(self) -> Iterator[ast.AST]:
        """What is run up to the joint, without functions that are only given what is the same on all ranks."""
        program = self.program
        entered = set(self.running)
        waiting = [it for it in self.round.nodes(self.before) if program.scope(it).index in entered]
        while waiting:
            node = waiting.pop()
            yield node
            if isinstance(node, ast.Call):
                new = set(program.called_scopes(node)) - entered
                if not self._may_give_part(node):
                    new = {it for it in new if self._reads_round(program.scopes[it])}
                entered |= new
                bodies = (program.body(program.scopes[index]) for index in new)
                waiting += (it for body in bodies for it in body if id(it) in self.before)

    def _reads_round(self, scope: Scope) -> bool:
        """Whether a function reads names of the round that are not its own."""
        names = (it for it in self.program.body(scope) if isinstance(it, ast.Name))
        made = (it for name in names for it in self.program.definitions(name))
        return any(id(it) in self._made and self.program.scope(it) is not scope for it in made)

    def _may_give_part(self, node: ast.Call) -> bool:
        """Whether a call may give a function something of a part: an argument, or the object whose method it is."""
        receiver = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return not all(map(self._is_plain, (*_given(node), *receiver)))

    def _keeps(self, node: ast.AST) -> bool:
        """Whether something of a part is kept elsewhere than in a name before it is joined."""
        match node:
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(value=holder, attr=method))
            ) if method in CHANGES and self._is_own(holder):
                return False
            case ast.Expr(value=ast.Call() as call):
                made = self.program.call(call)
                if made is not None and self.context.is_wrapped(made.callees):
                    return False
                return any(not self._is_plain(it) for it in _given(call))
            case ast.Call(func=ast.Attribute(value=holder, attr=method)) if method in CHANGES:
                return not self._is_own(holder) and any(not self._is_plain(it) for it in _given(node))
            case ast.Attribute(ctx=ast.Store()):
                return self._may_be_of_part(node)
            case ast.Subscript(ctx=ast.Store(), value=holder):
                return not self._is_own(holder) and self._may_be_of_part(node)
            case ast.FunctionDef() | ast.Lambda():
                defaults = (it for _, it in Signature.of(node).defaults)
                return not all(map(self._is_plain, defaults))
        return False

    def _may_be_of_part(self, stored: ast.AST) -> bool:
        """Whether what is stored somewhere may be of a part of the batch."""
        if kinds.tensor(self.samples.of(stored), stored) in PLAIN:
            return False
        source = self.program.source(stored)
        return source.how is not How.ASSIGNED or source.value is None or not self._is_plain(source.value)

    def _is_own(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether something is made in each round anew; what a function is given is, where all calls give such."""
        made = self.program.definitions(node) if isinstance(node, ast.Name) and depth <= CALLS else []
        return bool(made) and all(id(it) in self._made or self._is_given_own(it, depth) for it in made)

    def _is_given_own(self, definition: ast.AST, depth: int) -> bool:
        if not isinstance(definition, ast.arg):
            return False
        given = [it for it in self.program.given(definition) if id(it) in self.loop.runs]
        return bool(given) and all(self._is_own(it, depth + 1) for it in given)

    def _is_plain(self, node: ast.expr) -> bool:
        """Whether something is the same on all ranks, however their parts differ."""
        value = kinds.tensor(self.samples.of(node), node)
        unfollowed = value is Kind.UNKNOWN or isinstance(value, Unclear)
        return value in PLAIN or unfollowed and not self._is_of_part(node)

    def _is_of_part(self, node: ast.AST, depth: int = 0) -> bool:
        """Whether something may be made of a rank's part of the batch."""
        if depth > CALLS:
            return True
        for part in ast.walk(node):
            match part:
                case ast.Call() if self._takes_part(part):
                    return True
                case ast.Name() | ast.Attribute() if isinstance(part.ctx, ast.Load):
                    if any(self._gets_part(it, depth + 1) for it in self.program.definitions(part)):
                        return True
        return False

    def _takes_part(self, node: ast.Call) -> bool:
        """Whether a call that is given nothing of a part may come by one: takes a batch, or reads the round's names."""
        if self.context.runs_one_of(node, self.round.taking - self.round.apart):
            return True
        return any(self._reads_round(self.program.scopes[it]) for it in self.program.called_scopes(node))

    def _gets_part(self, definition: ast.AST, depth: int) -> bool:
        """Whether a definition may give something of a rank's part."""
        if isinstance(definition, ast.arg):
            if self.program.scope(definition).index not in self.running:
                return True
            return any(self._is_of_part(it, depth) for it in self.program.given(definition))
        if id(definition) not in self._made:
            return False
        if kinds.tensor(self.samples.of(definition), definition) in PLAIN:
            return False
        source = self.program.source(definition)
        if source.value is None or source.how is How.AUGMENTED or self._is_target(definition):
            return True
        return self._is_of_part(source.written[0], depth)  # type: ignore[arg-type]

    def _is_of_model(self, call: Call) -> bool:
        """Whether a call runs a layer of a wrapped model by itself: ``model.module.head(x)``."""
        function = call.node.func
        owner = self.program.values(function.value) if isinstance(function, ast.Attribute) else frozenset()
        layers = any(isinstance(it, Inst | Made) and self.context.module_class(it) for it in call.callees)
        trained = self.context.is_wrapped(owner) or bool(owner & self.context.trained_modules)
        return layers and trained and self._has_gradients(call.node)

    def _has_gradients(self, node: ast.AST) -> bool:
        """Whether something is run behind the joint that may get gradients, in one of the ways that lead to it."""
        program = self.program
        waiting, seen = [node], set[int]()
        while waiting:
            for around in program.ancestors(waiting.pop()):
                if around is self.loop.node:
                    return True
                if disables_gradients(program, around):
                    break
                if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                    index = program.by_node[id(around)].index
                    callers = self.context.callers.get(index, ()) if index not in seen else ()
                    seen.add(index)
                    waiting += (it for it in callers if id(it) in self.after)
                    break
        return False

    # What is joined

    def _uses(self) -> dict[str, list[ast.Name]]:
        """The names of what a round has made of a part, with their uses behind the joint: in the program's order."""
        uses: dict[str, list[ast.Name]] = {}
        order = self.program.order
        for node in sorted(self.round.nodes(self.after), key=lambda it: order[id(it)]):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                made = self.program.definitions(node)
                if any(map(self._is_of_round, made)) and not self._is_plain(node):
                    uses.setdefault(node.id, []).append(node)
        return uses

    def _is_count(self, uses: list[ast.Name]) -> bool:
        """Whether a name is the number of samples in a part."""
        return all(self.samples.of(it) is Kind.COUNT for it in uses)

    def _is_of_round(self, definition: ast.AST) -> bool:
        """Whether a round gives a name its value before the joint."""
        if isinstance(definition, ast.arg):
            if self.program.scope(definition).index not in self.running:
                return False  # of a function that is given what is joined
            given = self.program.given(definition)
            return not given or any(is_of_round(self.context, it, self._made) for it in given)
        return id(definition) in self._made

    @cached_property
    def _made(self) -> frozenset[int]:
        """Identities of what a round runs up to the joint, and of what it begins with."""
        target = [] if self.round.target is None else ast.walk(self.round.target)
        return self.before.union(map(id, target))

    def _is_target(self, definition: ast.AST) -> bool:
        return self.round.target is not None and self.program.is_inside(definition, self.round.target)

    def _check(self, name: str, uses: list[ast.Name], is_count: bool) -> None:
        """Raise ``Unjoinable`` where a name can't be made the whole batch's at the joint."""
        definitions = {id(it): it for use in uses for it in self.program.definitions(use)}
        before = [it for it in definitions.values() if self._is_of_round(it)]
        if any(self.program.scope(it) is not self.scope for it in before):
            raise Unjoinable  # a name of a function round it
        is_fresh = all(is_output(self.context, it) for it in before)  # what a model has just made
        made = set(map(id, before))
        own = [it for it in uses if made.issuperset(map(id, self.program.definitions(it)))]  # none made anew
        rows = (kinds.tensor(self.samples.of(it), it) in (*DEALT, Kind.PICKED) for it in own or uses)
        if not is_fresh and not is_count and not all(rows):
            raise Unjoinable
        if not any(map(self._is_always_made, before)):
            raise Unjoinable
        around_it = self.program.body(self.scope)
        if any(self._is_handed_on(it, name) for it in around_it):
            raise Unjoinable
        rounds = frozenset([id(self.loop.node)])
        if not is_fresh and not is_count:
            if looks_in(self.context).is_written_from(uses[0], self.statement, rounds):
                raise Unjoinable

    def _is_handed_on(self, node: ast.AST, name: str) -> bool:
        """Whether the next round uses, before its joint, what a name has in this one."""
        if not isinstance(node, ast.Name) or node.id != name or id(node) not in self.before:
            return False
        made = self.program.definitions(node) if isinstance(node.ctx, ast.Load) else []
        later = (it for it in made if not isinstance(it, ast.arg) and not self._is_target(it))
        return any(self.program.order[id(it)] > self.program.order[id(node)] for it in later)

    def _is_always_made(self, definition: ast.AST) -> bool:
        """Whether a definition runs in every round, or one of a branch has its like in the other."""
        if isinstance(definition, ast.arg) or self._is_target(definition):
            return True
        round_ = {id(it) for it in self.program.ancestors(self.statement)}
        name = ast.unparse(definition)
        for around in self.program.ancestors(definition):
            if around is self.loop.node or isinstance(around, FUNCTIONS) or id(around) in round_:
                return True
            match around:
                case ast.If(body=body, orelse=others):
                    ways = [body, others]
                case ast.Try(body=body, handlers=handlers):
                    ways = [body, *(it.body for it in handlers)]
                case _:
                    ways = [[]] * isinstance(around, (*LOOPS, ast.Match))
            if not all(_makes(block, name) or _leaves(block) for block in ways):
                return False
        return True


def _makes(block: list[ast.stmt], name: str) -> bool:
    """Whether a block gives a name a value whatever it runs."""
    for statement in block:
        match statement:
            case ast.If(body=body, orelse=others):
                ways = [body, others]
            case ast.Try(body=body, handlers=handlers):
                ways = [body, *(it.body for it in handlers)]
            case ast.With(body=body):
                ways = [body]
            case ast.For() | ast.While() | ast.Match() | ast.FunctionDef() | ast.ClassDef():
                continue
            case _:
                stores = (it for it in ast.walk(statement) if isinstance(it, ast.Name))
                if any(it.id == name and isinstance(it.ctx, ast.Store) for it in stores):
                    return True
                continue
        if all(_makes(it, name) or _leaves(it) for it in ways):
            return True
    return False


def _leaves(block: list[ast.stmt]) -> bool:
    """Whether nothing behind a block is run in this round when it is."""
    return bool(block) and isinstance(block[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)
