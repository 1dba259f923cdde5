"""What the processes must do together, or alike: what they meet in, what they train with, what trains them."""

from __future__ import annotations

import ast
from functools import cached_property

from dp2ddp.analyse.api.files import SAVES
from dp2ddp.analyse.api.layers import CHANGES_TRAINING, CLIPS, STEERS, STEERS_OR_COMPUTES
from dp2ddp.analyse.api.processes import ENDS
from dp2ddp.analyse.api.purity import COPIES_OBJECT
from dp2ddp.analyse.api.randomness import DRAWS_NUMBERS, DRAWS_TENSORS
from dp2ddp.analyse.context import Context, root_name
from dp2ddp.analyse.processes.conditions import is_rate
from dp2ddp.analyse.program.calls import Call, handed
from dp2ddp.analyse.program.values import NOTHING, Ext, Inst, Made, Value
from dp2ddp.analyse.rank_variance.decisions import above
from dp2ddp.analyse.rank_variance.store import Frame
from dp2ddp.analyse.training.loops import BatchLoop, own_batch
from dp2ddp.analyse.training.metrics import is_report


class Work:
    """The places of such work in a program.

    ``met``: where the processes meet; ``drawn``: what they draw from generators that all keep in the same state.
    """

    def __init__(
        self, context: Context, loops: list[BatchLoop], met: frozenset[int], drawn: frozenset[int]
    ) -> None:
        self.context, self.program = context, context.program
        self.loops, self.met, self.drawn = loops, met, drawn

    @cached_property
    def inside(self) -> frozenset[int]:
        """What stands in a training loop, and in no loop there that evaluates."""
        found: set[int] = set()
        for loop in sorted(self.loops, key=lambda it: self.program.order[id(it.node)]):
            own = {id(it) for it in self.program.descendants(loop.node)}
            found = found | own if loop.trains else found - own
        return frozenset(found)

    @cached_property
    def evaluated(self) -> frozenset[int]:
        """What stands in evaluation loops, whatever calls the functions that these stand in."""
        loops = (it for it in self.loops if not it.trains)
        return frozenset(id(node) for loop in loops for node in self.program.descendants(loop.node))

    @cached_property
    def drawing(self) -> dict[int, BatchLoop]:
        return {id(loop.node): loop for loop in self.loops}

    @cached_property
    def pulled(self) -> frozenset[int]:
        return frozenset(id(loop.pulls) for loop in self.loops if loop.pulls is not None)

    @cached_property
    def rounds(self) -> frozenset[int]:
        """What rounds of training loops run."""
        return frozenset[int]().union(*(loop.runs for loop in self.loops if loop.trains))

    @cached_property
    def columns(self) -> frozenset[int]:
        """What hands out, before the loop, a rank's columns of what its batches are cut from."""
        found = (it.pulls for it in self.loops if it.pulls is not None)
        return frozenset(id(it) for it in found if (made := own_batch(it)) and made.own_batch.dim)  # type: ignore[attr-defined]

    @cached_property
    def _working(self) -> frozenset[int]:
        """What the processes must do together, or alike."""
        nodes = self.program.nodes.values()
        return frozenset(
            id(node) for node in nodes if self.context.runs_in_training(node) and self._is_work(node)
        )

    @cached_property
    def _working_scopes(self) -> set[int]:
        return above(self.context, (self.program.nodes[key] for key in self._working))

    def _is_work(self, node: ast.AST) -> bool:
        if any(id(node) in it for it in (self.met, self.pulled, self.drawing, self.drawn)):
            return True
        if is_rate(self.context, node) or self.steered(node):
            return True
        call = self.program.call(node)
        if call is None:
            return False
        if self.context.method(call.node) in CHANGES_TRAINING:
            return not self.program.called_scopes(node)
        if call.names & (SAVES | ENDS) or _clips(call) or _makes(call):
            return True
        if call.names & COPIES_OBJECT and any("state_dict" in ast.unparse(it) for it in call.node.args):
            return True
        if id(node) in self.inside and is_report(self.context, call.node):
            return True
        return self.context.is_wrapped(call.callees)

    def steered(self, node: ast.AST) -> bool:
        """Whether a statement changes a parameter or its gradient, or what trains, draws or computes."""
        match node:
            case ast.Assign(targets=[target]) | ast.AugAssign(target=target):
                changed = [target]
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=target))):
                return self._is_parameter(target)
            case _:
                return False
        while isinstance(changed[-1], ast.Subscript):
            changed.append(changed[-1].value)
        held = changed[-1]
        owners = self.program.values(held.value) if isinstance(held, ast.Attribute) else NOTHING
        plain = isinstance(node, ast.Assign) and isinstance(target, ast.Name)
        return not plain and self._is_parameter(target) or any(map(self._steers, owners))

    def _is_parameter(self, node: ast.expr) -> bool:
        """Whether a loop over parameters gives a name that an expression begins with."""
        name = root_name(node)
        return any(
            "parameters(" in ast.unparse(around.iter)
            for made in (self.program.definitions(name) if name is not None else ())
            for around in self.program.ancestors(made)
            if isinstance(around, ast.For | ast.comprehension) and made in ast.walk(around.target)
        )

    def _steers(self, value: Value) -> bool:
        """Whether an object trains, draws or computes: what it has is of weight for every process."""
        if isinstance(value, Made):
            return value.name.startswith(STEERS_OR_COMPUTES)
        bases = self.program.bases(value.cls) if isinstance(value, Inst) else []
        drawing = any(isinstance(it, Ext) and it.name.startswith("torch.utils.data.") for it in bases)
        return drawing or value in self.context.trained_modules

    def works(self, node: ast.AST) -> bool:
        if id(node) in self._working:
            return True
        return isinstance(node, ast.Call) and bool(self.program.called_scopes(node) & self._working_scopes)

    def deciding(self, node: ast.AST, frame: Frame) -> list[ast.expr]:
        """What is set in an optimizer or a parameter, a schedule is told, or a closure returns."""
        call = self.program.call(node)
        if call is not None and (is_rate(self.context, node) or _makes(call)):
            return handed(call.node)
        if call is not None and _clips(call):
            return handed(call.node)[1:]
        if call is not None and id(node) in self.drawn and any(map(_takes_sizes, call.names)):
            return handed(call.node)
        match node:
            case ast.Assign(value=value) | ast.AugAssign(value=value):
                return [value] if is_rate(self.context, node) or self.steered(node) else []
            case ast.Expr(value=ast.Call() as changing) if self.steered(node):
                return handed(changing)
            case ast.Return(value=ast.expr() as value) if frame.scope in self.context.closures:
                return [value]
            case ast.Call(func=ast.Attribute(attr="step"), args=args):
                return [] if self.program.called_scopes(node) else args
        return []


def _clips(call: Call) -> bool:
    return any(name.endswith(CLIPS) for name in call.names)


def _takes_sizes(name: str) -> bool:
    """Whether a function draws as many numbers as its arguments say, and no tensor's shape."""
    return name.startswith(DRAWS_NUMBERS) or name in DRAWS_TENSORS


def _makes(call: Call) -> bool:
    """Whether an optimizer, a schedule, a loader or a sampler is made."""
    names = [it.name for it in call.callees if isinstance(it, Ext)]
    return any(it.startswith(STEERS) and it.rpartition(".")[2][:1].isupper() for it in names)
