"""What statements make differ between processes: names, attributes, containers, and what some processes leave out."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.analyse.api.layers import STEERS_OR_COMPUTES, TRAINS
from dp2ddp.analyse.api.tensors import IS_ITS_DATA
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.kinds import Kind, Unclear
from dp2ddp.analyse.processes.writes import is_write
from dp2ddp.analyse.program.calls import handed
from dp2ddp.analyse.program.values import Coll, Ext, Func, Inst, Made, Mod, Value, is_outside_name
from dp2ddp.analyse.rank_variance.callees import is_outside
from dp2ddp.analyse.rank_variance.expressions import Expressions
from dp2ddp.analyse.rank_variance.store import (
    CHOSEN,
    DRAWN,
    FUNCTIONS,
    MANY,
    NUMBER,
    SIZED,
    SURELY,
    Found,
    Frame,
    Keyed,
    any_of,
    key_of,
)
from dp2ddp.analyse.training.metrics import reporters_of
from dp2ddp.analyse.training.reports import Reports

LEAVING = ast.Break | ast.Continue | ast.Return | ast.Raise


class Statements:
    """Goes through the statements of a function, in one way in which it is called."""

    def __init__(
        self, context: Context, expressions: Expressions, reported: Reports, fed: frozenset[int]
    ) -> None:
        self.context, self.program = context, context.program
        self.store, self.work, self.expressions = expressions.store, expressions.work, expressions
        self.reported, self.fed = reported, fed
        self.reporters = reporters_of(context)
        self.leaving: dict[tuple[int, Frame], ast.AST] = {}
        """What leaves out work in a frame: looked at when all that differs is found."""

    def visit(self, node: ast.AST, frame: Frame, found: Found) -> None:
        match node:
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                if self.expressions.differs(test, frame, found):
                    self.store.add(found.tests, node)
            case ast.Match(subject=subject):
                if self.expressions.differs(subject, frame, found):
                    self.store.add(found.tests, node)
            case ast.BoolOp(values=[*first, _]):
                if any(self.expressions.differs(it, frame, found) for it in first):
                    self.store.add(found.tests, node)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, value, self.expressions.how(value, frame, found), node, frame, found)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(
                target=target, value=value
            ):
                self._bind(target, value, self.expressions.how(value, frame, found), node, frame, found)
            case ast.AugAssign(target=target, value=value):
                how = self.expressions.how(value, frame, found) | self._before(target, frame, found)
                self._bind(target, None, how, node, frame, found)
            case ast.For() | ast.AsyncFor():
                self._take(node, frame, found)
            case ast.comprehension(target=target, iter=source):
                self._unpack(target, source, self.expressions.how(source, frame, found), node, frame, found)
            case ast.withitem(optional_vars=ast.expr() as target, context_expr=given):
                self._bind(target, None, self.expressions.how(given, frame, found), node, frame, found)
            case ast.Call():
                self._call(node, frame, found)
            case ast.Delete(targets=targets):
                for target in targets:
                    self._bind(target, None, 0, node, frame, found)
            case ast.Return(value=ast.expr() as value) | ast.Yield(value=ast.expr() as value):
                self._return(value, frame, found)
        self._skip(node, frame, found)

    def _before(self, target: ast.expr, frame: Frame, found: Found) -> int:
        if not isinstance(target, ast.Name):
            return 0
        return any_of(self.store.read(found.names, id(it)) for it in self.program.definitions(target))

    def _take(self, node: ast.For | ast.AsyncFor, frame: Frame, found: Found) -> None:
        """What a loop gets in each round."""
        loop = self.work.drawing.get(id(node))
        if loop is not None and loop.pulls is None:
            how = DRAWN if loop.trains else 0
            self._unpack(node.target, node.iter, how, node, frame, found)
            return
        how = self.expressions.how(node.iter, frame, found)
        self._unpack(node.target, node.iter, how, node, frame, found)
        if self._rounds(node.iter, how, frame, found):
            self.store.add(found.tests, node)

    def _rounds(self, source: ast.expr, how: int, frame: Frame, found: Found) -> bool:
        """Whether a loop over something has more rounds in some processes."""
        call = self.program.call(source)
        if call is not None and "builtins.range" in call.names:
            return bool(how & ~SIZED)
        if not how & NUMBER or how & MANY or self.expressions.goes_through_keys(source):
            return bool(how & MANY)
        drawn = kinds.tensor(self.reported.values.drawn(source), source)
        return drawn is Kind.EACH or isinstance(drawn, Unclear)

    def _unpack(
        self, target: ast.expr, source: ast.expr, how: int, node: ast.AST, frame: Frame, found: Found
    ) -> None:
        """Bind what a loop takes one after the other; ``enumerate`` counts alike everywhere, keys may be alike."""
        call = self.program.call(source)
        counts = call is not None and "builtins.enumerate" in call.names
        alike = not how & MANY and self.expressions.goes_through_keys(source)
        method = self.context.method(source) if alike else ""
        if isinstance(target, ast.Tuple) and (counts or method == "items"):
            target = target.elts[-1]
        elif method == "keys":
            return
        self._bind(target, None, how & ~MANY & ~SIZED, node, frame, found)

    def _bind(
        self, target: ast.expr, value: ast.expr | None, how: int, node: ast.AST, frame: Frame, found: Found
    ) -> None:
        chosen = frame.chosen or self.store.decider(node, found) is not None
        self._put(target, value, how | (CHOSEN if chosen else 0), chosen, frame, found)

    def _put(
        self, target: ast.expr, value: ast.expr | None, how: int, chosen: bool, frame: Frame, found: Found
    ) -> None:
        match target:
            case ast.Starred(value=inner):
                self._put(inner, None, how, chosen, frame, found)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                parts = self._parts(value, how, len(targets), frame, found)
                own = value.elts if isinstance(value, ast.Tuple | ast.List) else []
                for index, part in enumerate(targets):
                    given = own[index] if len(own) == len(targets) else None
                    self._put(part, given, parts[index] | (CHOSEN if chosen else 0), chosen, frame, found)
            case ast.Name() if isinstance(value, ast.Dict) and all(
                key_of(it) is not None for it in value.keys
            ):
                for known in (found.names, self.store.shared):
                    self.store.grow(known, id(target), CHOSEN if chosen else 0)
                    for key, part in zip(value.keys, value.values, strict=True):
                        own = self.expressions.how(part, frame, found)
                        self.store.grow(known, id(target), own, entry=key_of(key))
            case ast.Name() if how:
                self.store.grow(found.names, id(target), how)
                self.store.grow(self.store.shared, id(target), how)
            case ast.Attribute(value=holder, attr=name) if how:
                owners = self.store.owners(holder, frame)
                for owner in owners or (None,):
                    self.store.grow(self.store.fields[name], owner, how | SURELY, name)
                    if isinstance(owner, Mod):
                        self.store.grow(self.store.shared, id(target), how)
            case ast.Subscript(value=holder, slice=index):
                at = self.expressions.how(index, frame, found)
                self._change(holder, how | (CHOSEN if at & ~SIZED else 0), frame, found, key_of(index))

    def _parts(self, value: ast.expr | None, how: int, count: int, frame: Frame, found: Found) -> list[int]:
        """How the entries of what is unpacked differ."""
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == count:
            return [self.expressions.how(it, frame, found) for it in value.elts]
        if how & SIZED and not how & NUMBER:
            return [DRAWN, *[0] * (count - 1)]
        if isinstance(value, ast.Call) and id(value) not in self.reported.whole:
            call = self.program.call(value)
            entries = self.expressions.entries(value, frame, found) if call and not is_outside(call) else []
            handed = [self.store.of(it.frame).parts for it in entries]
            if handed and all(it is not None and len(it) == count for it in handed):
                return [any_of(it) for it in zip(*handed, strict=True)]  # type: ignore[arg-type]
        return [how] * count

    def _change(self, held: ast.expr, how: int, frame: Frame, found: Found, entry: str | None = None) -> None:
        """Something is put into what an expression stands for; into a dict, under the key ``entry``."""
        if not how or any(map(self._is_part_of_training, self.program.values(held))):
            return
        how |= SURELY
        for owner in self.program.namespaces(held):
            self._change(owner, how, frame, found)  # under a name that is made as the program runs
        match held:
            case ast.Subscript(value=holder, slice=index):
                self._change(holder, how, frame, found, key_of(index))
                return
            case ast.Call(func=ast.Attribute(value=holder)):
                if not is_outside_name(self.program.values(holder)):  # `torch.cat(rows)` is no part of torch
                    self._change(holder, how, frame, found)
                return
            case ast.Attribute(value=holder, attr=name) if name in IS_ITS_DATA and not self.store.owners(
                holder, frame
            ):
                self._change(holder, how, frame, found)  # the same elements, and no field of every object
                return
            case ast.Attribute(value=holder, attr=name):
                if any(isinstance(it, Ext | Func) for it in self.program.values(held)):
                    return
                for owner in self.store.owners(holder, frame) or (None,):
                    self.store.grow(self.store.fields[name], owner, how, name, entry)
            case ast.Name():
                self._change_name(held, how, frame, found, entry)
            case _:
                return
        scope = self.program.scope(held)
        own = isinstance(held, ast.Name) and any(
            isinstance(it, ast.arg) for it in self.program.definitions(held)
        )
        for value in self.program.values(held) if not own else ():
            if isinstance(value, Coll | Made | Inst):
                at = self.program.scope_of.get(value.site)
                if not isinstance(held, ast.Name) or at is not scope or scope.is_module:
                    self.store.grow(self.store.held, value, how, entry=entry)

    def _is_part_of_training(self, value: Value) -> bool:
        """Whether an object is a module, or trains or draws: what changes those is looked at where it is done."""
        return (
            self.context.module_class(value)
            or isinstance(value, Made)
            and value.name.startswith(STEERS_OR_COMPUTES)
        )

    def _change_name(self, name: ast.Name, how: int, frame: Frame, found: Found, entry: str | None) -> None:
        scope = self.program.scope(name)
        for made in self.program.variable(name):
            if self.program.scope_of.get(id(made)) is not scope:
                self.store.grow(self.store.foreign, id(made), how, entry=entry)
        own = [it for it in scope.signature.every if it.arg == name.id]
        for made in dict.fromkeys([*self.program.definitions(name), *own]):
            if self.program.scope_of.get(id(made)) is scope:
                self.store.grow(found.names, id(made), how, entry=entry)
                self.store.grow(self.store.shared, id(made), how, entry=entry)
                if isinstance(made, ast.arg):
                    self.store.grow(found.changed, id(made), how, frame, entry)

    def _call(self, node: ast.Call, frame: Frame, found: Found) -> None:
        """What a call does to what it is given."""
        for entry in self.expressions.entries(node, frame, found):
            inner = self.store.of(entry.frame)
            for changed, how in inner.changed.items():
                key, part = (changed.held, changed.key) if isinstance(changed, Keyed) else (changed, None)
                if key in entry.given:
                    self._change(entry.given[key], how, frame, found, part)
        call = self.program.call(node)
        if call is None or not is_outside(call) and call.callees or self.reporters.has(node):
            return
        if any(map(is_write, call.names)):
            return  # a picture: what is written is never read
        around = self.program.parent(node)
        if (
            not isinstance(around, ast.Expr | ast.Lambda)
            or self.context.method(node) in TRAINS
            or self.context.is_wrapped(call.callees)
        ):
            return
        chosen = frame.chosen or self.store.decider(node, found) is not None
        how = any_of(self.expressions.how(it, frame, found) for it in handed(node)) & ~SIZED
        how |= CHOSEN if chosen else 0
        if call.sets_attribute:
            self._set(node, how, frame, found)
        elif isinstance(node.func, ast.Attribute) and not is_outside_name(
            self.program.values(node.func.value)
        ):
            self._change(node.func.value, how, frame, found)
        elif node.args and (
            self.expressions.is_collection(node.args[0]) or not self.program.values(node.args[0])
        ):
            self._change(node.args[0], how, frame, found)

    def _set(self, node: ast.Call, how: int, frame: Frame, found: Found) -> None:
        """``setattr(object, name, value)``; with a name that is not written out, it may be any."""
        held, name = node.args[:2]
        if not isinstance(name, ast.Constant):
            self._change(held, how, frame, found)
            return
        for owner in self.store.owners(held, frame) or (None,):
            if how:
                self.store.grow(self.store.fields[str(name.value)], owner, how | SURELY, str(name.value))

    def _return(self, value: ast.expr, frame: Frame, found: Found) -> None:
        chosen = CHOSEN if frame.chosen or self.store.decider(value, found) is not None else 0
        how = self.expressions.how(value, frame, found) | chosen
        if how & ~found.returned:
            found.returned |= how
            self.store.wake(frame)
        if isinstance(value, ast.Tuple):
            parts = tuple(self.expressions.how(it, frame, found) | chosen for it in value.elts)
            if found.parts is not None and len(found.parts) == len(parts):
                parts = tuple(one | other for one, other in zip(found.parts, parts, strict=True))
            if found.parts != parts:
                found.parts = parts
                self.store.wake(frame)

    def _skip(self, node: ast.AST, frame: Frame, found: Found) -> None:
        """What some processes come to no more, because they leave a loop or a function, or have an exception."""
        if isinstance(node, LEAVING):
            why = self.store.decider(node, found)
        elif isinstance(node, ast.Assert):
            why = (
                node if self.expressions.differs(node.test, frame, found) else self.store.decider(node, found)
            )
        elif isinstance(node, ast.Call):
            fails = any(self.store.of(it.frame).fails for it in self.expressions.entries(node, frame, found))
            why = self.program.statement(node) if fails else None
        else:
            return
        if why is None:
            return
        if isinstance(node, ast.Raise | ast.Assert | ast.Call) and not self._is_caught(node):
            if not found.fails:
                found.fails = True
                self.store.wake(frame)
            return
        for span in self._left_out(node, why):
            if self._is_work_within(span, frame):
                self.leaving[id(why), frame] = why
            elif span not in found.spans:
                found.spans[span] = why
                self.store.again(frame)

    def _is_work_within(self, span: tuple[int, int], frame: Frame) -> bool:
        """Whether leaving decides already, and nothing more is to be said of what comes after it."""
        first, last = span
        nodes = (it for it in self.store.body(frame.scope) if isinstance(it, ast.stmt | ast.expr))
        within = (it for it in nodes if first <= self.program.order[id(it)] <= last)
        return any(self.work.works(it) or id(it) in self.fed for it in within)

    def _is_caught(self, node: ast.AST) -> bool:
        inside = node
        for around in self.program.ancestors(node):
            if isinstance(around, FUNCTIONS):
                return False
            if isinstance(around, ast.Try) and around.handlers and inside in around.body:
                return True
            inside = around
        return False

    def _left_out(self, node: ast.AST, why: ast.AST) -> Iterator[tuple[int, int]]:
        """The places that are skipped by leaving at a node: the rest of a loop, or of the function."""
        order = self.program.order
        after = self._last(why if not isinstance(node, ast.Assert | ast.Call) else node) + 1
        for around in self.program.ancestors(node):
            if isinstance(around, ast.For | ast.While | ast.AsyncFor):
                start = order[id(around.test)] if isinstance(around, ast.While) else order[id(around.body[0])]
                if isinstance(node, ast.Continue):
                    yield after, self._last(around.body[-1])
                    return
                yield start, self._last(around)
                if isinstance(node, ast.Break):
                    return
            if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
                yield after, self._last(around)
                return
        yield after, len(order)

    def _last(self, node: ast.AST) -> int:
        return max(self.program.order[id(it)] for it in ast.walk(node) if isinstance(it, ast.stmt | ast.expr))
