"""What differs between processes that each have a part of every batch, followed through the whole program.

It begins with the batches of the training loops and with what the model makes of them, and goes on through names,
attributes, containers, arguments and results, and through conditions: what is done under one that every process answers
by its own part is another in each of them. Where that decides how a process goes on, or what is trained, parts of the
batches can't be trained with.
"""

from __future__ import annotations

import ast
from collections import defaultdict

from dp2ddp.analyse.context import Context
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.kinds import PLAIN, Kind, Unclear
from dp2ddp.analyse.program.values import is_outside_name
from dp2ddp.analyse.rank_variance.expressions import Expressions
from dp2ddp.analyse.rank_variance.statements import Statements
from dp2ddp.analyse.rank_variance.store import MANY, PARTS, SIZED, SURELY, Found, Frame, Store
from dp2ddp.analyse.rank_variance.work import Work
from dp2ddp.analyse.training.gathering import compared
from dp2ddp.analyse.training.loops import BatchLoop
from dp2ddp.analyse.training.metrics import Judged
from dp2ddp.analyse.training.reports import Reports
from dp2ddp.facts import SHARDED_ONLY, Obstacle

# Where a value is asked for how a process goes on.
DECIDES = (
    *(
        ast.If,
        ast.While,
        ast.For,
        ast.AsyncFor,
        ast.Match,
        ast.Try,
        ast.Assert,
        ast.Raise,
        ast.Break,
        ast.Continue,
    ),
    *(ast.Return, ast.IfExp, ast.BoolOp, ast.comprehension),
)


def obstacles(
    context: Context, loops: list[BatchLoop], judged: Judged, reported: Reports, drawn: frozenset[int]
) -> tuple[Obstacle, ...]:
    """What the processes would decide each in its own way, where the batches of the training are dealt.

    ``drawn``: what they draw from generators that all keep in the same state.
    """
    return _Following(context, loops, judged, reported, drawn).obstacles()


class _Following:
    """Goes through every function in every way in which it is called, until nothing more is found to differ."""

    def __init__(
        self,
        context: Context,
        loops: list[BatchLoop],
        judged: Judged,
        reported: Reports,
        drawn: frozenset[int],
    ) -> None:
        self.context, self.program = context, context.program
        self.reported, self.fed = reported, judged.fed
        self.store = Store(context.program)
        self.work = Work(context, loops, judged.whole.union(id(it.node) for it in reported.combined), drawn)
        self.expressions = Expressions(context, self.store, self.work, reported)
        self.statements = Statements(context, self.expressions, reported, judged.fed)
        self.found: dict[int, list[tuple[bool, Obstacle]]] = defaultdict(list)
        """For each place, whether something led to a decision that is one by others, and what is said of it."""

    def obstacles(self) -> tuple[Obstacle, ...]:
        for file in self.context.scripts:
            self.store.frame = Frame(self.program.modules[file.path].index)
            self.store.of(self.store.frame)
        while self.store.waiting:
            self.store.frame = next(iter(self.store.waiting))
            del self.store.waiting[self.store.frame]
            for node in self.store.body(self.store.frame.scope):
                self.statements.visit(node, self.store.frame, self.store.frames[self.store.frame])
        for (_, frame), why in self.statements.leaving.items():
            self._obstacle(why, _asked_for(why), frame, self.store.frames[frame])
        for frame, found in list(self.store.frames.items()):
            for node in self.store.body(frame.scope) if not frame.chosen else ():  # its call decides already
                self._decide(node, frame, found)
        said = [min(it, key=lambda one: (one[0], one[1].problem.message)) for it in self.found.values()]
        first = [obstacle for follows, obstacle in said if not follows]
        causes = set().union(*(it.scripts for it in first))
        return (*first, *(it for follows, it in said if follows and not it.scripts <= causes))

    def _decide(self, node: ast.AST, frame: Frame, found: Found) -> None:
        """What decides how a process goes on, or what it is trained with."""
        ends = isinstance(node, ast.Raise) and (frame.trains or id(node) in self.work.inside)
        why = None
        if ends or self.work.works(node):
            why = self.store.decider(node, found)
        elif id(node) in self.fed:  # loops over samples were looked at there
            why = self.store.decider(node, found, rounds=False)
        if why is not None:
            self._obstacle(why, _asked_for(why), frame, found)
        for value in self.work.deciding(node, frame):
            if self.expressions.how(value, frame, found) & ~SIZED:
                is_written = id(node) in self.program.file_of  # what a lambda returns is in no statement
                self._obstacle(node if is_written else value, value, frame, found)
        if id(node) in self.fed and isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            is_module = isinstance(node, ast.Name) and is_outside_name(self.program.values(node))
            if self.expressions.how(node, frame, found) & SURELY and not is_module:
                value = kinds.tensor(self.reported.values.of(node), node)
                if value in PLAIN:
                    self._obstacle(node, node, frame, found)

    def _obstacle(self, node: ast.AST, asked: ast.AST, frame: Frame, found: Found) -> None:
        cause = self._cause(asked, frame, found)
        unknown = None if cause is None else self._unknown(asked, cause, frame, found)
        differs = "which differs across ranks" if unknown is None else "which may differ across ranks"
        cure = "ask a number of all ranks: `ddp.mean(…)`"
        if id(node) in self.work.drawn:
            cure = "draw equally many numbers on all ranks"
        obstacle = self.context.obstacle(
            node,
            f"{self._use(node)} {self._shown(node, asked, cause, found)}, {differs}",
            cure if unknown is None else "",
            SHARDED_ONLY,
            assumes="" if unknown is None else f"`{ast.unparse(unknown)}` is the same on all ranks",
        )
        follows = bool(self.expressions.how(asked, frame, found) & MANY)
        self.found[id(node)].append((follows, obstacle))

    def _use(self, node: ast.AST) -> str:
        """What is done at a place with a value of which the training depends."""
        if id(node) in self.work.drawn:
            return "how many numbers are drawn depends on"
        return "control flow depends on" if isinstance(node, DECIDES) else "training depends on"

    def _shown(self, node: ast.AST, asked: ast.AST, cause: ast.AST | None, found: Found) -> str:
        """What a decision depends on, with where that gets its value."""
        if cause is None:
            return f"`{ast.unparse(asked)}`" if isinstance(asked, ast.expr) else "a value"
        made = [
            it
            for it in self.program.definitions(cause)
            if id(it) in found.names and not isinstance(it, ast.arg)
        ]
        lines = sorted(
            {self.program.location(it).span.line for it in made} - {self.program.location(node).span.line}
        )
        return f"`{ast.unparse(cause)}`" + (f" (line {lines[-1]})" if lines else "")

    def _unknown(self, asked: ast.AST, cause: ast.AST, frame: Frame, found: Found) -> ast.AST | None:
        """What may differ in an expression, and is not known to: None where some of it is.

        A condition is answered by the results of calls in it, not by what these are given.
        """
        parts = [*compared(asked)] if isinstance(asked, ast.expr) else []
        parts = [it for it in parts if self.expressions.how(it, frame, found) & ~SIZED] or [cause]
        return None if any(map(self._is_measured, parts)) else parts[0]

    def _is_measured(self, node: ast.AST) -> bool:
        """Whether it is known that something is of this process's part of a batch, and not only that it may be."""
        if not isinstance(node, ast.expr) or id(node) not in self.program.file_of:
            return False
        value = kinds.tensor(self.reported.values.of(node), node)
        if isinstance(value, Unclear):
            return value.refuted
        return value not in (*PLAIN, Kind.UNKNOWN, Kind.WHOLE)

    def _cause(self, node: ast.AST, frame: Frame, found: Found) -> ast.AST | None:
        """What differs in an expression."""
        if not isinstance(node, PARTS) or not self.expressions.how(node, frame, found) & ~SIZED:
            return None if isinstance(node, PARTS) else node
        if isinstance(node, ast.Name) or isinstance(node, ast.Call) and ast.unparse(node.func) == "len":
            return node
        children = (
            it
            for it in ast.iter_child_nodes(node)
            if isinstance(it, PARTS) and not is_outside_name(self.program.values(it))
        )
        return next((it for child in children if (it := self._cause(child, frame, found))), node)


def _asked_for(why: ast.AST) -> ast.AST:
    """What a condition, or a loop, asks for."""
    match why:
        case ast.If(test=asked) | ast.While(test=asked) | ast.IfExp(test=asked) | ast.Assert(test=asked):
            return asked
        case ast.For(iter=asked) | ast.AsyncFor(iter=asked) | ast.Match(subject=asked):
            return asked
    return why
