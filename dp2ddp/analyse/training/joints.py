"""Joints: the place in a round of the training behind which a rank needs the whole batch again.

Behind the last forward nothing of a round costs much, and anything may look at all samples: the loss, what is counted,
what decides. So a rank takes its part of a batch only as far as the forward, as nn.DataParallel's replicas do, and what
is needed of it later is joined there, ``labels, outputs = ddp.whole_batch((labels, outputs))``. What follows is the
original's, whatever it computes. The program is looked at as if it did that (``views``); what is used behind the joint
and was not joined is seen there as any part of a batch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dp2ddp.analyse.api import operations
from dp2ddp.analyse.api.devices import MOVES
from dp2ddp.analyse.api.layers import GRAD
from dp2ddp.analyse.api.tensors import OF_GRADIENTS
from dp2ddp.analyse.context import LOOPS, Context, Rounds
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.forwards import Forwards
from dp2ddp.analyse.dataflow.kinds import DEALT, PLAIN, Kind
from dp2ddp.analyse.dataflow.samples.layers import called
from dp2ddp.analyse.dataflow.samples.writes.looks import looks_in
from dp2ddp.analyse.processes import alike
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.values import Inst, Made
from dp2ddp.analyse.training import bare
from dp2ddp.analyse.training.loops import BatchLoop
from dp2ddp.analyse.views import View, insert, insert_imports
from dp2ddp.facts import Joint

WHOLE = "_whole_batch_of_joint"
"""What ``ddp.whole_batch`` is called where programs are looked at as if they had joints."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
CALLS = 8
"""How many functions deep a round is followed."""


class Unjoinable(Exception):
    """A round can't be joined at one place."""


@dataclass(frozen=True)
class Site:
    """A joint: behind which statement, and the names that are the whole batch's from there on."""

    statement: ast.stmt
    names: tuple[str, ...]


def find(context: Context, loops: list[BatchLoop], programs: frozenset[Path]) -> list[Site]:
    """The joints of some programs: of all rounds of the training of each, or of none."""
    training = [it for it in loops if it.trains and context.run_by(it.node) & programs]
    samples = Forwards(context)
    found: dict[int, Site] = {}
    for loop in training:
        try:
            found[id(loop)] = _Joining(context, samples, loop, loops).site()
        except Unjoinable:
            pass
    left = [it for it in training if id(it) in found]
    while not_all := {it for loop in training if loop not in left for it in context.run_by(loop.node)}:
        kept = [it for it in left if not context.run_by(it.node) & not_all]
        if len(kept) == len(left):
            break
        left = kept
    placed: dict[int, Site] = {}
    for site in (found[id(it)] for it in left):
        known = placed.setdefault(id(site.statement), site)
        names = tuple(dict.fromkeys((*known.names, *site.names)))  # several loops may run one function
        placed[id(site.statement)] = Site(site.statement, names)
    return list(placed.values())


def looked_at(context: Context, sites: list[Site]) -> Context:
    """The programs as they would be with joints."""
    view = View(context.program)
    changed: dict[int, ast.Module] = {}
    for site in sites:
        names = ", ".join(site.names)
        given = f"({names})" if len(site.names) > 1 else names
        statement = ast.parse(f"{names} = {WHOLE}({given})").body[0]
        statement.value.joins = view.twin(site.statement), site.names  # type: ignore[attr-defined]
        tree = view.tree(site.statement)
        insert(tree, view.twin(site.statement), [statement])
        changed[id(tree)] = tree
    for tree in changed.values():
        insert_imports(tree, f"from dp2ddp.runtime import whole_batch as {WHOLE}")
    return view.linked()


def facts(context: Context) -> Iterator[Joint]:
    """The joints that programs are looked at with."""
    for node in list(context.program.nodes.values()):
        if (known := getattr(node, "joins", None)) is not None:
            statement, names = known
            yield Joint(**context.place(statement), names=names)


def rounds(context: Context, loops: Iterable[BatchLoop]) -> Rounds:
    """What the rounds of programs that are looked at with joints run before these, and only behind them."""
    before, after = set[int](), set[int]()
    joints = [it for it in context.program.nodes.values() if hasattr(it, "joins")]
    for loop in loops:
        for node in joints:
            if loop.trains and id(node) in loop.runs:
                first, then = around(context, loop, context.program.statement(node))
                before |= first
                after |= then
    return Rounds(frozenset(before), frozenset(after - before))


def around(context: Context, loop: BatchLoop, joint: ast.stmt) -> tuple[frozenset[int], frozenset[int]]:
    """Identities of what a round of a loop runs up to a statement, that included, and of what it runs behind it.

    Raises ``Unjoinable`` where the round does not come by just once.
    """
    program = context.program
    before: list[ast.stmt] = []
    after: list[ast.stmt] = []
    waiting, seen = [joint], set[int]()
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
                    waiting += map(program.statement, calls)
                    break
                case ast.With() | ast.If() as outer:
                    inside = outer
                case _:
                    raise Unjoinable
    first = frozenset[int]().union(*map(context.runs, before))
    then = frozenset[int]().union(*map(context.runs, after))
    return first, then - first


class _Joining:
    """Where a round of one training loop is joined, and what."""

    def __init__(
        self, context: Context, samples: Forwards, loop: BatchLoop, loops: Iterable[BatchLoop]
    ) -> None:
        self.context, self.program, self.samples, self.loop = context, context.program, samples, loop
        evaluated = [it.runs for it in loops if not it.trains and id(it.node) in loop.runs]
        self._apart = frozenset[int]().union(*evaluated)
        self._target = getattr(loop.node, "target", None)

    def site(self) -> Site:
        """The joint of a round. Raises ``Unjoinable`` where there is none."""
        if not isinstance(self.loop.node, ast.For | ast.While):
            raise Unjoinable
        before, after = self.before, self.after
        backwards = {id(it) for it in self.context.backwards} & self.loop.runs
        if not backwards <= after or backwards & before:
            raise Unjoinable
        if any(map(self._asks_for_gradients, self._nodes(self.loop.runs - self._apart))):
            raise Unjoinable
        if any(map(self._keeps, self._nodes(before))):
            raise Unjoinable
        if any(map(self._draws, self._calls(after - self._apart))):
            raise Unjoinable
        names = tuple(self._names())
        if not names:
            raise Unjoinable
        return Site(self.statement, names)

    # The place

    @cached_property
    def forwards(self) -> list[ast.Call]:
        """The calls of wrapped models that are given something of the batch."""
        found = []
        for call in self._calls(self.loop.runs - self._apart):
            if not self.context.is_wrapped(call.callees):
                continue
            given = [kinds.tensor(self.samples.of(it), it) for it in self._given(call.node)]
            if all(it in PLAIN for it in given):
                continue
            if not all(it in (*DEALT, *PLAIN) for it in given):
                raise Unjoinable
            found.append(call.node)
        if not found:
            raise Unjoinable
        return found

    def _given(self, node: ast.Call) -> Iterator[ast.expr]:
        for it in handed(node):
            yield it.value if isinstance(it, ast.Starred) else it

    @cached_property
    def statement(self) -> ast.stmt:
        """The last statement with a forward, in the innermost block that all forwards stand in."""
        chains = [dict(self._blocks(it)) for it in self.forwards]
        for key, statement in chains[0].items():
            if all(key in chain for chain in chains[1:]):
                block = self.program.block(statement)
                last = max((chain[key] for chain in chains), key=block.index)
                if isinstance(last, ast.Return | ast.While | ast.Try):
                    raise Unjoinable
                return self._behind_moves(block, last)
        raise Unjoinable

    def _behind_moves(self, block: list[ast.stmt], statement: ast.stmt) -> ast.stmt:
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

    def _blocks(self, node: ast.AST) -> Iterator[tuple[int, ast.stmt]]:
        """The blocks that a place stands in within its function and the loop, inside out, with the statement there."""
        for it in (node, *self.program.ancestors(node)):
            if it is self.loop.node or isinstance(it, FUNCTIONS):
                return
            if isinstance(it, ast.stmt):
                yield id(self.program.block(it)), it

    @cached_property
    def _around(self) -> tuple[frozenset[int], frozenset[int]]:
        before, after = around(self.context, self.loop, self.statement)
        return before - self._apart, after

    @property
    def before(self) -> frozenset[int]:
        """Identities of what a round runs up to the joint."""
        return self._around[0]

    @property
    def after(self) -> frozenset[int]:
        """Identities of what only runs behind it."""
        return self._around[1]

    def _nodes(self, keys: Iterable[int]) -> Iterator[ast.AST]:
        nodes = self.program.nodes
        return (nodes[it] for it in keys if it in nodes)

    def _calls(self, keys: Iterable[int]) -> Iterator[Call]:
        for node in self._nodes(keys):
            if isinstance(node, ast.Call) and (call := self.program.call(node)) is not None:
                yield call

    # What is in the way

    def _asks_for_gradients(self, node: ast.AST) -> bool:
        """Whether something asks for gradients by what is fed to a model: these are of all samples, or of a part."""
        match node:
            case ast.Attribute(attr=name, value=value) if name in OF_GRADIENTS:
                return kinds.tensor(self.samples.of(value), value) not in PLAIN
            case ast.Call():
                call = self.program.call(node)
                return call is not None and GRAD in call.names
        return False

    def _keeps(self, node: ast.AST) -> bool:
        """Whether something of a part is kept elsewhere than in a name before it is joined."""
        match node:
            case ast.Expr(value=ast.Call() as call):
                made = self.program.call(call)
                if made is not None and self.context.is_wrapped(made.callees):
                    return False
                return any(not self._is_plain(it) for it in self._given(call))
            case ast.Attribute(ctx=ast.Store()):
                source = self.program.source(node)
                return source.value is None or not self._is_plain(source.value)
        return False

    def _is_plain(self, node: ast.expr) -> bool:
        return kinds.tensor(self.samples.of(node), node) in (*PLAIN, Kind.UNKNOWN)

    def _draws(self, call: Call) -> bool:
        """Whether something draws random numbers, of which each rank has its own behind a forward."""
        if alike.draws(call) or call.names & bare.RANDOM:
            return True
        if any((row := operations.operation(it)) is not None and row.random for it in call.names):
            return True
        return any(self._is_random(it) for it in self.program.values(called(call.node)))

    def _is_random(self, value: object) -> bool:
        """Whether a module that is not wrapped may draw: it is run behind the joint."""
        if isinstance(value, Made):
            return value.name.startswith(("torch.nn.Dropout", "torch.nn.RReLU", "torch.nn.Sequential"))
        return isinstance(value, Inst) and self._has_random_layers(value)

    def _has_random_layers(self, value: Inst) -> bool:
        fields = (held for _, some in self.program.fields(value) for held in some)
        return any(isinstance(it, Made) and self._is_random(it) for it in fields)

    # What is joined

    def _names(self) -> Iterator[str]:
        """The names of what a round has made of a part, and uses behind the joint."""
        uses: dict[str, list[ast.Name]] = {}
        for node in self.program.body(self.program.scope(self.statement)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) in self.after:
                made = self.program.definitions(node)
                if any(map(self._is_of_round, made)) and not self._is_plain(node):
                    uses.setdefault(node.id, []).append(node)
        for name, some in uses.items():
            self._check(name, some)
            yield name

    def _is_of_round(self, definition: ast.AST) -> bool:
        """Whether a round gives a name its value before the joint."""
        if isinstance(definition, ast.arg):
            return self.program.scope(definition) is self.program.scope(self.statement)
        return id(definition) in self.before or self._is_target(definition)

    def _is_target(self, definition: ast.AST) -> bool:
        return self._target is not None and self.program.is_inside(definition, self._target)

    def _check(self, name: str, uses: list[ast.Name]) -> None:
        """Raise ``Unjoinable`` where a name can't be made the whole batch's at the joint."""
        definitions = {id(it): it for use in uses for it in self.program.definitions(use)}
        before = [it for it in definitions.values() if self._is_of_round(it)]
        if any(kinds.tensor(self.samples.of(it), it) not in (*DEALT, Kind.PICKED) for it in uses):
            raise Unjoinable
        if not any(map(self._is_always_made, before)):
            raise Unjoinable
        around_it = self.program.body(self.program.scope(self.statement))
        if any(self._is_handed_on(it, name) for it in around_it):
            raise Unjoinable
        rounds = frozenset([id(self.loop.node)])
        if not all(map(self._is_fresh, before)):
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
        for around in self.program.ancestors(definition):
            if around is self.loop.node or isinstance(around, FUNCTIONS) or id(around) in round_:
                return True
            if isinstance(around, ast.If):
                name = ast.unparse(definition)
                if not all(self._makes(block, name) for block in (around.body, around.orelse)):
                    return False
            elif isinstance(around, (*LOOPS, ast.Try)):
                return False
        return True

    def _makes(self, block: list[ast.stmt], name: str) -> bool:
        return any(
            isinstance(it, ast.Name) and it.id == name and isinstance(it.ctx, ast.Store)
            for statement in block
            for it in ast.walk(statement)
        )

    def _is_fresh(self, definition: ast.AST) -> bool:
        """Whether a name gets what a model has just made."""
        if isinstance(definition, ast.arg):
            return False
        value = self.program.source(definition).value
        return isinstance(value, ast.Call) and value in self.forwards
