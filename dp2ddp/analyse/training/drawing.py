"""Random numbers that the training loop draws for the samples of a batch: each rank needs its own for its part.

All ranks draw alike from the global generators. That is right for what is one thing for the whole batch (a resolution,
mixup's lambda, a decision), and stays so. What a wrapped model draws is each rank's own already.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from dp2ddp.analyse.api.randomness import DRAWING_SAMPLERS, GENERATOR_HOMES, SAMPLES_HOME
from dp2ddp.analyse.context import LOOPS, Context
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.forwards import is_in_training_mode
from dp2ddp.analyse.dataflow.kinds import BY_SAMPLE, DEALT, Kind, Unclear
from dp2ddp.analyse.dataflow.samples.follower import Samples
from dp2ddp.analyse.dataflow.samples.layers import called, layers_in
from dp2ddp.analyse.processes import alike
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.values import Made
from dp2ddp.analyse.training import bare
from dp2ddp.analyse.training.loops import BatchLoop
from dp2ddp.facts import SHARDED_ONLY, Draw, Gather, Obstacle

OF_SAMPLES = (*BY_SAMPLE, Kind.PICKED, Kind.COUNT, Kind.SHAPE)
"""What a part has as much of as it has samples."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def run_on_parts(context: Context, loops: Iterable[BatchLoop], gathers: Iterable[Gather]) -> dict[int, Call]:
    """The calls that training loops run on parts of the batches, by the identities of their nodes.

    What runs on the rows of the whole batch is left out, and wrapped models, also by themselves where they evaluate.
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
        evaluates = call.callees & context.wrapped and is_in_training_mode(context, call.node) is False
        if not (context.is_wrapped(call.callees) or evaluates or program.anchor(node) in joining):
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
        self._calls = [it for it in on_parts if self._draws(it) and id(it.node) not in context.joined.behind]

    def facts(self) -> Iterator[Draw]:
        """The draws for samples from the global generators."""
        for call in self._calls:
            if self._is_for_samples(call) and self._is_global(call):
                function = self.program.anchor(call.node.func)
                yield Draw(**self.context.place(call.node), function=function, what=ast.unparse(call.node))

    def common(self) -> frozenset[int]:
        """The draws from the generators that all ranks keep in the same state, by the identities of their nodes."""
        return frozenset(id(it.node) for it in self._calls if not self._is_for_samples(it))

    def obstacles(self) -> Iterator[Obstacle]:
        """Draws that may be for samples, and can't be made each rank's own."""
        for call in self._calls:
            shown = f"`{ast.unparse(call.node)}`"
            if self._is_for_samples(call):
                if not self._is_global(call):
                    message = f"{shown} draws the same numbers on all ranks, for different samples"
                    given = call.argument("generator") is not None
                    help = "drop its `generator=` argument" if given else ""
                    yield self.context.obstacle(call.node, message, help, SHARDED_ONLY)
            elif self._may_be_for_samples(call):
                message = f"{shown} may draw the same numbers on all ranks, for different samples"
                assumes = f"{shown} does not draw random numbers for single samples"
                yield self.context.obstacle(call.node, message, "", SHARDED_ONLY, assumes=assumes)

    def _may_be_for_samples(self, call: Call) -> bool:
        """Whether it is not known if a draw is for each sample: by what decides its amount, or a loop round it."""
        deciding = [call.node.func.value] if self._in_place(call) else self._decides(call)  # type: ignore[attr-defined]
        amounts = [kinds.tensor(self._samples.of(it), it) for it in deciding]
        unclear = [it for it in amounts if isinstance(it, Unclear)]
        named = not (self._in_place(call) or self._is_of_layer(call) or alike.is_of_distribution(call))
        if any(not named or self._is_length(it.place) for it in unclear):
            return True
        return any(self._is_over(around, DEALT) for around in self._around(call.node))

    def _is_length(self, place: ast.AST) -> bool:
        """Whether something asks for the length of what may be a list, or rows."""
        call = self.program.call(place) if isinstance(place, ast.Call) else None
        asked = call is not None and call.names == {"builtins.len"} and handed(call.node)
        return bool(asked) and self._samples.of(asked[0]) in DEALT

    def _draws(self, call: Call) -> bool:
        if alike.draws(call) or call.names & bare.RANDOM or any(map(_is_sampler, call.names)):
            return True
        return self._is_of_layer(call)

    def _is_of_layer(self, call: Call) -> bool:
        """Whether a layer of torch is run that draws, by itself or in a container: those of the project are entered."""
        layers = (it for it in self.program.values(called(call.node)) if isinstance(it, Made))
        return any(map(layers_in(self.context).may_draw, layers))

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
        amounts = [self._samples.of(it) for it in self._decides(call)]
        if any(kinds.holds(amount, kind) for amount in amounts for kind in OF_SAMPLES):
            return True
        return any(self._is_over(around, [Kind.EACH]) for around in self._around(call.node))

    def _decides(self, call: Call) -> list[ast.expr]:
        """What decides how many numbers are drawn: what is given, and what a distribution is made of."""
        given = [*handed(call.node)]
        if alike.is_of_distribution(call):
            source = call.node.func.value  # type: ignore[attr-defined]
            sites = [self.program.node(it.site) for it in self.program.values(source) if isinstance(it, Made)]
            made = (handed(it) for it in sites if isinstance(it, ast.Call))
            given += [source, *(it for its in made for it in its)]
        return [it.value if isinstance(it, ast.Starred) else it for it in given]

    def _around(self, node: ast.AST) -> Iterator[ast.AST]:
        """The loops round a place, within its function and within the loop over batches."""
        for around in self.program.ancestors(node):
            if isinstance(around, FUNCTIONS) or id(around) in self._batches:
                return
            yield around

    def _is_over(self, around: ast.AST, drawn: Iterable[Kind]) -> bool:
        """Whether a loop, or comprehension, draws such values."""
        sources = [around] if isinstance(around, LOOPS) else getattr(around, "generators", [])
        return any(self._samples.drawn(it.iter) in drawn for it in sources if hasattr(it, "iter"))

    def _is_global(self, call: Call) -> bool:
        """Whether a call draws from a generator that ``local_random`` looks after."""
        if call.argument("generator") is not None:
            return False
        of_libraries = all(name.rpartition(".")[0] in GENERATOR_HOMES for name in call.names)
        layer = any(isinstance(it, Made) for it in self.program.values(called(call.node)))
        return of_libraries or layer or alike.is_of_distribution(call)


def _is_sampler(name: str) -> bool:
    """Whether something makes a sampler that draws where it is iterated, as many numbers as it is given."""
    return name.startswith(SAMPLES_HOME) and name.endswith(DRAWING_SAMPLERS)
