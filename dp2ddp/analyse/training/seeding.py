"""Whether the seed of torch's generator may be set only after something has been made."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property

from dp2ddp.analyse.api.randomness import SEEDS_TORCH
from dp2ddp.analyse.context import LOOPS, Context

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class Seeding:
    """Asked for loaders: what a sampler draws is the script's own order only if the seed is set when it reads that."""

    context: Context
    _surely: dict[int, bool] = field(default_factory=dict)

    def is_late(self, node: ast.AST) -> bool:
        """Whether the seed may be set after a node has run, and not surely before."""
        return bool(self._calls) and self._is_late(node, set())

    def _is_late(self, node: ast.AST, seen: set[int]) -> bool:
        program = self.context.program
        holder = self._holder(node)
        here = self._calls.get(id(holder), [])
        if any(self._precedes(call, node) for call in here):
            return False
        if any(self._may_follow(call, node) for call in here):
            return True
        if isinstance(holder, ast.Module):  # imported, it has run when its importers go on
            home = program.file(node).path
            elsewhere = (program.file(it).path for it in self._seeds if self.context.runs_in_training(it))
            return home not in self.context.run_by(node) and any(it != home for it in elsewhere)
        if id(holder) in seen:
            return False
        seen.add(id(holder))
        callers = self.context.callers.get(program.by_node[id(holder)].index, [])
        return not callers or any(self._is_late(it, seen) for it in callers)

    @cached_property
    def _seeds(self) -> list[ast.Call]:
        calls = self.context.program.calls
        return [it.node for it in calls if it.names & SEEDS_TORCH and self.context.runs_in_training(it.node)]

    @cached_property
    def _calls(self) -> dict[int, list[ast.Call]]:
        """The calls that may set the seed, through others too, by the function or module that they stand in.

        What a loader calls in its workers sets theirs.
        """
        program, loaders = self.context.program, {id(call.node) for call in self.context.loaders}
        found: dict[int, list[ast.Call]] = {}
        waiting, seen = list(self._seeds), set()
        while waiting:
            call = waiting.pop()
            if id(call) in seen or id(call) in loaders:
                continue
            seen.add(id(call))
            holder = self._holder(call)
            found.setdefault(id(holder), []).append(call)
            if not isinstance(holder, ast.Module):
                waiting += self.context.callers.get(program.by_node[id(holder)].index, [])
        return found

    def _holder(self, node: ast.AST) -> ast.AST:
        """The function or module that runs a node."""
        around = (*_FUNCTIONS, ast.Lambda, ast.Module)
        found = next((it for it in self.context.program.ancestors(node) if isinstance(it, around)), None)
        return found or self.context.program.file(node).tree

    def _may_follow(self, call: ast.Call, node: ast.AST) -> bool:
        """Whether a call of the same function may run after a node: not in another branch.

        What stands before it in a loop follows it in the next round only, which runs the node again.
        """
        program = self.context.program
        later = program.order[id(call)] > program.order[id(node)]
        around = {id(it) for it in program.ancestors(node)}
        common = next((it for it in program.ancestors(call) if id(it) in around), None)
        return later and not (isinstance(common, ast.If) and self._are_branches(common, node, call))

    def _are_branches(self, condition: ast.If, *nodes: ast.AST) -> bool:
        is_inside = self.context.program.is_inside
        sides = [any(is_inside(node, it) for it in condition.body) for node in nodes]
        return len(set(sides)) > 1

    def _precedes(self, call: ast.Call, node: ast.AST) -> bool:
        """Whether a call of the same function has surely set the seed when a node runs."""
        program = self.context.program
        around = [*program.ancestors(node), node]
        block = self._block(call)
        first = next((it for it in around if any(it is one for one in block)), None)
        before = first is not None and program.order[id(first)] > program.order[id(call)]
        return before and not program.is_inside(call, first) and self._sets(call)

    def _block(self, call: ast.Call) -> list[ast.stmt]:
        """The statements of which one surely runs a call when it runs."""
        program = self.context.program
        statement = program.statement(call)
        while isinstance(around := program.parent(statement), ast.With):
            statement = around
        conditional = (ast.If, ast.Try, ast.Match, *LOOPS, *_FUNCTIONS, ast.ClassDef)
        inner = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.ListComp, ast.GeneratorExp)
        within = (it for it in program.ancestors(call) if program.is_inside(it, statement))
        if isinstance(statement, conditional) or any(isinstance(it, inner) for it in within):
            return []
        return program.block(statement)

    def _sets(self, call: ast.Call) -> bool:
        """Whether a call surely sets the seed: itself, or in what it calls."""
        program = self.context.program
        found = program.call(call)
        if found is None or found.names & SEEDS_TORCH:
            return found is not None
        scopes = [program.scopes[it] for it in program.entered_by(found)]
        return bool(scopes) and all(self._function_sets(it.node) for it in scopes)

    def _function_sets(self, function: ast.AST) -> bool:
        if id(function) not in self._surely:
            self._surely[id(function)] = False  # of itself, where functions call one another
            body = getattr(function, "body", [])
            calls = self._calls.get(id(function), [])
            self._surely[id(function)] = any(self._block(it) is body and self._sets(it) for it in calls)
        return self._surely[id(function)]
