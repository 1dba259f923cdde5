"""Random numbers that the training loop draws for the samples of a batch: each rank needs its own for its part.

All ranks draw alike from the global generators. That is right for what is one thing for the whole batch (a resolution,
mixup's lambda, a decision), and stays so. What a wrapped model draws is each rank's own already.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from dp2ddp.analyse.api.randomness import GENERATOR_HOMES
from dp2ddp.analyse.context import LOOPS, Context
from dp2ddp.analyse.dataflow.kinds import BY_SAMPLE, Kind, Unclear
from dp2ddp.analyse.dataflow.samples.follower import Samples
from dp2ddp.analyse.dataflow.samples.layers import called
from dp2ddp.analyse.processes import alike
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.values import Made
from dp2ddp.analyse.training import bare
from dp2ddp.analyse.training.loops import BatchLoop
from dp2ddp.facts import SHARDED_ONLY, Draw, Gather, Obstacle

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def run_on_parts(context: Context, loops: Iterable[BatchLoop], gathers: Iterable[Gather]) -> dict[int, Call]:
    """The calls that training loops run on parts of the batches: those of wrapped models and what runs on the rows of
    the whole batch left out. By the identities of their nodes.
    """
    joining = {gather.call for gather in gathers}
    waiting: list[ast.AST] = [it for loop in loops if loop.trains for it in getattr(loop.node, "body", [])]
    entered: set[int] = set()
    found: dict[int, Call] = {}
    program = context.program
    while waiting:
        node = waiting.pop()
        waiting += ast.iter_child_nodes(node)
        call = program.call(node) if isinstance(node, ast.Call) else None
        if call is None:
            continue
        found[id(node)] = call
        if not (context.is_wrapped(call.callees) or program.anchor(node) in joining):
            scopes = {it for callee in call.callees for it, _, _ in program.targets(callee, call)} - entered
            entered |= scopes
            waiting += [it for scope in scopes for it in program.scopes[scope].body]
    return found


class Drawing:
    """What the training loops of one program draw.

    Args:
        on_parts: the calls that they run on parts of the batches.
    """

    def __init__(self, context: Context, loops: Iterable[BatchLoop], on_parts: Iterable[Call]) -> None:
        self.context = context
        self.program = context.program
        self._batches = {id(loop.node) for loop in loops if loop.trains}
        self._samples = Samples(context)
        self._calls = [it for it in on_parts if self._draws(it)]

    def facts(self) -> Iterator[Draw]:
        """The draws for samples from the global generators."""
        for call in self._calls:
            if self._is_for_samples(call) and self._is_global(call):
                function = self.program.anchor(call.node.func)
                yield Draw(**self.context.place(call.node), function=function, what=ast.unparse(call.node))

    def obstacles(self) -> Iterator[Obstacle]:
        """Draws that may be for samples, and can't be made each rank's own."""
        for call in self._calls:
            shown = f"`{ast.unparse(call.node)}`"
            if self._is_for_samples(call):
                if not self._is_global(call):
                    message = f"{shown} draws the same numbers on all ranks, for different samples"
                    yield self.context.obstacle(
                        call.node, message, "drop its `generator=` argument", SHARDED_ONLY
                    )
            elif self._in_place(call) and isinstance(self._samples.of(call.node.func.value), Unclear):  # type: ignore[attr-defined]
                message = f"{shown} may draw the same numbers on all ranks, for different samples"
                assumes = f"{shown} does not draw random numbers for single samples"
                yield self.context.obstacle(call.node, message, "", SHARDED_ONLY, assumes=assumes)

    def _draws(self, call: Call) -> bool:
        if alike.draws(call) or call.names & bare.RANDOM:
            return True
        layers = self.program.values(called(call.node))
        return any(isinstance(it, Made) and it.name.startswith("torch.nn.Dropout") for it in layers)

    def _in_place(self, call: Call) -> bool:
        function = call.node.func
        return (
            isinstance(function, ast.Attribute) and function.attr in alike.DRAWING_METHODS and not call.names
        )

    def _is_for_samples(self, call: Call) -> bool:
        """Whether a draw is for each sample: of as many numbers, or made once for each."""
        drawn = [call.node, call.node.func.value] if self._in_place(call) else [call.node]  # type: ignore[attr-defined]
        if any(self._samples.of(it) in BY_SAMPLE for it in drawn):
            return True
        return any(self._is_over_samples(around) for around in self._around(call.node))

    def _around(self, node: ast.AST) -> Iterator[ast.AST]:
        """The loops round a place, within its function and within the loop over batches."""
        for around in self.program.ancestors(node):
            if isinstance(around, FUNCTIONS) or id(around) in self._batches:
                return
            yield around

    def _is_over_samples(self, around: ast.AST) -> bool:
        sources = [around] if isinstance(around, LOOPS) else getattr(around, "generators", [])
        return any(self._samples.drawn(it.iter) is Kind.EACH for it in sources if hasattr(it, "iter"))

    def _is_global(self, call: Call) -> bool:
        """Whether a call draws from a generator that ``local_random`` looks after."""
        if call.argument("generator") is not None:
            return False
        of_libraries = all(name.rpartition(".")[0] in GENERATOR_HOMES for name in call.names)
        layer = any(isinstance(it, Made) for it in self.program.values(called(call.node)))
        return of_libraries or layer
