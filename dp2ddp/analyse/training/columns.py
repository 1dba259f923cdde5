"""Sequences side by side, ``(T, N)``, that a loop trains on a few steps of at a time: ``text[start : start + 35]``.

The model is wrapped by ``DataParallel(model, dim=1)``: each replica has some of the columns. Where batches are cut from
one tensor that is made before the loop, a rank takes its columns of that once, and of the state with which the model
begins. What the loop then cuts and hands on is the rank's own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from enum import Enum, auto

from dp2ddp.analyse.api.files import SAVES
from dp2ddp.analyse.api.parallel import WRAP
from dp2ddp.analyse.api.tensors import FILLS, ZEROS
from dp2ddp.analyse.context import LOOPS, Context
from dp2ddp.analyse.dataflow.forwards import is_in_training_mode
from dp2ddp.analyse.dataflow.samples.indices import first_of
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.signature import is_spread
from dp2ddp.analyse.program.sources import How
from dp2ddp.analyse.training.own_batches import FUNCTIONS, Site, entered, given_to
from dp2ddp.facts import OwnBatch

DIM = 1

DEPTH = 4
"""How many functions deep something is handed on."""


class Fed(Enum):
    """How something comes to a model."""

    NOT = auto()
    GIVEN = auto()
    CARRIED = auto()
    """It is what a round has made for the next one, or what the first begins with."""


def find(context: Context, covered: Iterable[int]) -> list[Site]:
    """What a rank takes its columns of, where all that is trained is wrapped for samples in dimension 1.

    ``covered``: identities of what loops over loaders run.
    """
    covered = frozenset(covered)
    found: dict[int, Site] = {}
    for backward in context.backwards:
        if context.runs_in_training(backward) and is_wrapped_so(context, backward):
            sites = None if id(backward) in covered else _of_step(context, backward)
            if not sites:
                return []
            found |= {id(it.node): it for it in sites}
    return list(found.values())


def is_wrapped_so(context: Context, node: ast.AST) -> bool:
    """Whether every model is that the programs wrap which run a place."""
    programs = context.run_by(node)
    wraps = [it for it in context.wraps if context.run_by(it.node) & programs]
    return bool(wraps) and all(map(has_dim, wraps))


def has_dim(wrap: Call) -> bool:
    """Whether a wrap says that samples are in dimension 1."""
    dim = wrap.argument("dim", 3)
    return (
        WRAP in wrap.names and not is_spread(wrap.node) and isinstance(dim, ast.Constant) and dim.value == DIM
    )


def _of_step(context: Context, backward: ast.Call) -> list[Site] | None:
    loops = [*_loops_round(context, backward)]
    (loop,) = loops if len(loops) == 1 else (None,)
    return None if loop is None else _Tracing(context, loop).sites(backward)


def _loops_round(context: Context, node: ast.AST, depth: int = 0) -> Iterator[ast.AST]:
    """The innermost loops that come to a place."""
    for around in context.program.ancestors(node):
        if isinstance(around, LOOPS):
            yield around
            return
        if isinstance(around, FUNCTIONS):
            scope = context.program.by_node[id(around)].index
            for call in context.callers.get(scope, ()) if depth < DEPTH else ():
                if context.runs_in_training(call):
                    yield from _loops_round(context, call, depth + 1)
            return


class _Tracing:
    """Follows what a round of a loop is trained with back to what is made before the loop."""

    def __init__(self, context: Context, loop: ast.AST) -> None:
        self.context = context
        self.program = context.program
        self._loop = loop
        self._runs = context.runs(loop)
        self._cut: dict[int, ast.AST] = {}  # the names of what batches are cut from, where they are given it
        self._begun: dict[int, ast.AST] = {}  # and of the states with which models begin
        self._handed_on: set[int] = set()  # the names of these, in every round
        self._seen: set[tuple[int, Fed, bool]] = set()

    def sites(self, backward: ast.Call) -> list[Site] | None:
        """What a rank takes its columns of; None where that can't be said."""
        self._follow(self.context.loss(backward), fed=Fed.NOT, cut=False)
        if not self._cut or not all(self._is_on_columns(it) for it in self.program.calls):
            return None
        if any(map(self._is_kept, self.program.calls)):
            return None
        found = [self._site(it, False) for it in self._cut.values()]
        found += [self._site(it, True) for it in self._begun.values() if id(it) not in self._cut]
        return None if None in found else found  # type: ignore[return-value]

    def _is_on_columns(self, call: Call) -> bool:
        """Whether a call in a round is no training forward, or one on what is cut of the same."""
        if id(call.node) not in self._runs or not self.context.is_wrapped(call.callees):
            return True
        own = _Tracing(self.context, self._loop)
        own._follow(call.node, fed=Fed.NOT, cut=False)
        found = bool(own._cut) and own._cut.keys() <= self._cut.keys()
        return found or is_in_training_mode(self.context, call.node) is False

    def _is_kept(self, call: Call) -> bool:
        """Whether a call saves what a model hands on: a rank has its own columns of that."""
        return bool(call.names & SAVES) and any(
            id(made) in self._handed_on for it in ast.walk(call.node) for made in self.program.definitions(it)
        )

    def _site(self, definition: ast.AST, is_structure: bool) -> Site | None:
        made, statement = self._made(definition), self.program.statement(definition)
        alone = isinstance(statement, ast.Assign) and len(statement.targets) == 1
        if made is None or not alone or not self._is_for_loop(definition):
            return None
        return Site(made, OwnBatch(is_loop=False, is_structure=is_structure, dim=DIM), self._loop)

    def _made(self, definition: ast.AST) -> ast.Call | None:
        """The call that makes all that a name is given."""
        source = self.program.source(definition)
        value, left = source.written if source.how is How.ASSIGNED else (None, ())
        return value if isinstance(value, ast.Call) and not left else None

    def _is_for_loop(self, definition: ast.AST, depth: int = 0) -> bool:
        """Whether nothing but the loop uses a name, and what asks for the length of its sequences."""
        for use in self.program.nodes.values():
            if not isinstance(use, ast.Name | ast.Attribute) or not isinstance(use.ctx, ast.Load):
                continue
            if definition in self.program.definitions(use) and id(use) not in self._runs:
                if not _asks_length(self.program.parent(use), self.program) and (
                    depth == DEPTH or not self._is_given_on(use, depth)
                ):
                    return False
        return True

    def _is_given_on(self, use: ast.expr, depth: int) -> bool:
        """Whether functions of the project are given something that run the loop, and use it for that alone."""
        around = self.program.parent(use)
        around = self.program.parent(around) if isinstance(around, ast.keyword) else around
        call = self.program.call(around) if isinstance(around, ast.Call) else None
        if call is None or id(self._loop) not in self.context.runs(call.node):
            return False
        scopes = entered(self.context, call)
        taken = [it for scope in scopes for it in scope.signature.named if use in self.program.given(it)]
        return (
            bool(taken)
            and len(taken) == len(scopes)
            and all(self._is_for_loop(it, depth + 1) for it in taken)
        )

    def _follow(self, node: ast.AST, fed: Fed, cut: bool) -> None:
        """``fed``: how a model is given what comes of it; ``cut``: of some steps of it."""
        key = id(node), fed, cut
        if key in self._seen:
            return
        self._seen.add(key)
        match node:
            case ast.Name():
                self._named(node, fed, cut)
            case ast.Subscript(value=held, slice=index):
                self._follow(held, fed, cut or isinstance(first_of(index), ast.Slice))
            case ast.Call():
                self._called(node, fed, cut)
            case ast.Attribute(value=held) if not self.program.definitions(node):
                self._follow(held, Fed.NOT, cut)
            case ast.Attribute() | ast.Constant() | ast.Lambda():
                pass
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                self._follow(node.elt, fed, cut)
            case _:
                for it in ast.iter_child_nodes(node):
                    if isinstance(it, ast.expr):
                        self._follow(it, fed, cut)

    def _called(self, node: ast.Call, fed: Fed, cut: bool) -> None:
        call = self.program.call(node)
        if call is not None and self.context.is_wrapped(call.callees):
            for it in handed(node):
                self._follow(it, Fed.GIVEN, False)
            return
        if scopes := entered(self.context, call):
            for scope in scopes:
                for it in self.program.results(scope):
                    if isinstance(it, ast.Return) and it.value is not None:
                        self._follow(it.value, fed, cut)
            return
        receiver, given = given_to(self.context, node)
        is_loss = fed is Fed.NOT and not receiver
        for it in receiver or (given if is_loss else given[:1]):
            self._follow(it, fed, cut)

    def _named(self, node: ast.Name, fed: Fed, cut: bool) -> None:
        definitions = self.program.definitions(node)
        if fed is Fed.GIVEN and any(
            id(it) in self._runs and not isinstance(it, ast.arg) for it in definitions
        ):
            fed = Fed.CARRIED
        if fed is Fed.CARRIED:
            self._handed_on.update(map(id, definitions))
        for definition in definitions:
            if isinstance(definition, ast.arg):
                for it in self.program.given(definition):
                    if id(it) in self._runs or not self._is_entered(definition):
                        self._follow(it, fed, cut)
            elif id(definition) in self._runs:
                source = self.program.source(definition)
                if source.value is not None and source.how in (How.ASSIGNED, How.AUGMENTED, How.ELEMENT):
                    self._follow(source.value, fed, cut)
            elif cut:
                self._cut[id(definition)] = definition
            elif fed is Fed.CARRIED and self._makes_states(definition):
                self._begun[id(definition)] = definition

    def _is_entered(self, parameter: ast.arg) -> bool:
        """Whether a round calls the function of a parameter."""
        body = self.program.scope(parameter).body
        return bool(body) and body[0] is not self._loop and id(body[0]) in self._runs

    def _makes_states(self, definition: ast.AST) -> bool:
        """Whether a name is given what a function of the project makes, or a tensor of a size that is given."""
        made = self._made(definition)
        call = self.program.call(made) if made is not None else None
        return bool(entered(self.context, call)) or (call is not None and bool(call.names & (FILLS | ZEROS)))


def _asks_length(around: ast.AST | None, program: object) -> bool:
    """``len(text)``, ``text.size(0)`` and ``text.shape[0]``."""
    match around:
        case ast.Call(func=ast.Name(id="len")):
            return True
        case ast.Attribute(attr="size"):
            call = program.parent(around)  # type: ignore[attr-defined]
            return isinstance(call, ast.Call) and [ast.unparse(it) for it in call.args] == ["0"]
        case ast.Attribute(attr="shape"):
            index = program.parent(around)  # type: ignore[attr-defined]
            return isinstance(index, ast.Subscript) and ast.unparse(index.slice) == "0"
    return False
