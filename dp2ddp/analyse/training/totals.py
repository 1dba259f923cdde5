"""Sums that are added up in a loop over batches, and combined once after it."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass

from dp2ddp.analyse.context import Context
from dp2ddp.analyse.program.updates import Update, updated
from dp2ddp.analyse.training.gathering import ADDITIVE
from dp2ddp.analyse.training.loops import BatchLoop
from dp2ddp.analyse.training.tensors import Tensors
from dp2ddp.analyse.training.whole_batch import WholeBatch


@dataclass(frozen=True)
class Totals:
    """Sums that a loop over batches adds up for what comes after it, and what it adds to them."""

    loop: ast.For
    names: tuple[str, ...]
    added: tuple[ast.expr, ...]


class Adding:
    """Finds such sums."""

    def __init__(
        self, context: Context, values: WholeBatch, tensors: Tensors, loops: list[BatchLoop]
    ) -> None:
        self.program, self.values, self.tensors = context.program, values, tensors
        self.loops = loops
        self.totals: list[Totals] = []
        self.summed: set[int] = set()

    def add_up(self, nodes: list[ast.AST]) -> None:
        added: dict[str, list[Update]] = defaultdict(list)
        for it in filter(None, map(updated, nodes)):
            if isinstance(it.target, ast.Name):
                added[it.target.id].append(it)
        found: dict[int, list[str]] = defaultdict(list)
        values: dict[int, list[ast.expr]] = defaultdict(list)
        loops = {id(loop.node): loop.node for loop in self.loops if loop.trains}
        for name, updates in added.items():
            around = {self._loop(it.statement, loops) for it in updates}
            loop = around.pop() if len(around) == 1 else None
            if (
                loop is None
                or self.values.is_trained(updates[0].target)
                or not self._is_for_after(updates, loop)
                or not all(self.values.comes_alike(it.value) for it in updates)  # type: ignore[arg-type]
            ):
                continue
            if all(self.values.of(it.value) in ADDITIVE and isinstance(it.op, ast.Add) for it in updates):
                found[id(loop)].append(name)
                values[id(loop)] += [it.value for it in updates]
                self.summed |= {id(it.statement) for it in updates}
                self.values.whole |= {id(it.value) for it in updates}
        self.values.forget()
        self.totals += [
            Totals(loops[key], tuple(names), tuple(values[key]))  # type: ignore[arg-type]
            for key, names in found.items()
        ]

    def _loop(self, statement: ast.stmt, loops: dict[int, ast.AST]) -> ast.For | None:
        """The training loop over batches that a statement stands in."""
        for around in self.program.ancestors(statement):
            if id(around) in loops:
                return around if isinstance(around, ast.For) else None
            if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
                break
        return None

    def _is_for_after(self, updates: list[Update], loop: ast.For) -> bool:
        """Whether a sum begins at 0 right before a loop, and is looked at after it only; all processes come there."""
        program = self.program
        scope = program.scope(loop)
        block = program.block(loop)
        targets, reads = [it.target for it in updates], {id(it.read) for it in updates}
        name = targets[0].id  # type: ignore[union-attr]
        inside = {id(node) for node in ast.walk(loop)}
        tree = program.file(loop).tree if scope.is_module else scope.node
        seen = False
        for node in ast.walk(tree):
            if isinstance(node, ast.Global | ast.Nonlocal) and name in node.names:
                return False
            if not isinstance(node, ast.Name) or node.id != name or not isinstance(node.ctx, ast.Load):
                continue
            if id(node) in reads:
                continue
            if id(node) in inside or (
                program.scope(node) is not scope and name not in program.scope(node).names
            ):
                return False
            seen |= any(it in targets for it in program.definitions(node))
        looked = [it.read or it.target for it in updates]
        before = {it for node in looked for it in program.definitions(node)} - set(targets)
        begins = [
            self.tensors.right_side(it)
            for it in before
            if program.statement(it) in block and id(it) not in inside
        ]
        return (
            seen
            and len(begins) == len(before) > 0
            and all(isinstance(it, ast.Constant) and it.value == 0 for it in begins)
            and not loop.orelse
            and self.values.comes_alike(loop)  # type: ignore[arg-type]
        )
