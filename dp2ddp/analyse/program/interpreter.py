"""Runs statements and expressions on values: every form of assignment is here, and nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from dp2ddp.analyse.api.iteration import ITERATION, NUMBERS_OR_PAIRS
from dp2ddp.analyse.program.attributes import Attributes
from dp2ddp.analyse.program.calling import Calling
from dp2ddp.analyse.program.calls import Arguments
from dp2ddp.analyse.program.classes import Classes
from dp2ddp.analyse.program.containers import Containers
from dp2ddp.analyse.program.dispatch import Dispatch
from dp2ddp.analyse.program.names import Lookup
from dp2ddp.analyse.program.outside import Outside
from dp2ddp.analyse.program.scopes import Scope, Tree
from dp2ddp.analyse.program.special import Special
from dp2ddp.analyse.program.store import Store
from dp2ddp.analyse.program.values import NOTHING, OWN, Cls, Coll, Const, Func, Made, Values, full_name


@dataclass
class Interpreter:
    """Statements and expressions of one scope at a time."""

    tree: Tree
    store: Store
    classes: Classes
    names: Lookup
    containers: Containers
    outside: Outside
    calling: Calling
    attributes: Attributes
    dispatch: Dispatch
    special: Special

    def execute(self, node: ast.AST, scope: Scope) -> None:
        """Run a statement, without those that stand in it."""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                for expression in (
                    *node.decorator_list,
                    *node.args.defaults,
                    *filter(None, node.args.kw_defaults),
                ):
                    self.evaluate(expression, scope)
                inner = self.tree.by_node[id(node)]
                self.store.define(scope, node.name, node, self.calling.decorated(node, Func(inner.index)))
                self._defaults(inner, scope)
            case ast.ClassDef():
                for expression in (*node.bases, *node.decorator_list, *(k.value for k in node.keywords)):
                    self.evaluate(expression, scope)
                made = Cls(self.tree.by_node[id(node)].index)
                self.calling.announced(node, made)
                self.store.define(scope, node.name, node, self.calling.decorated(node, made))
            case ast.Import():
                for alias in node.names:
                    self.names.import_(node, alias, scope)
            case ast.ImportFrom():
                for alias in node.names:
                    self.names.import_from(node, alias, scope)
            case ast.Assign():
                values = self.evaluate(node.value, scope)
                for target in node.targets:
                    self._assign(target, values, scope, node)
            case ast.AnnAssign():
                if node.value is not None:
                    self._assign(node.target, self.evaluate(node.value, scope), scope, node)
            case ast.AugAssign():
                values = self.evaluate(node.value, scope)
                current = self.evaluate(node.target, scope)
                self._assign(node.target, values | current, scope, node)
            case ast.For() | ast.AsyncFor():
                values = self.evaluate(node.iter, scope)
                self.calling.enter_by(node, values, *ITERATION)
                self._assign_each(node.target, values, node.iter, scope, node)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    values = self.evaluate(item.context_expr, scope)
                    values |= self.calling.enter_by(node, values, "__enter__", "__exit__")
                    if item.optional_vars is not None:
                        self._assign(item.optional_vars, values, scope, node)
            case ast.Match():
                values = self.evaluate(node.subject, scope)
                for case in node.cases:
                    if isinstance(case.pattern, ast.MatchAs) and case.pattern.name:
                        self.store.define(scope, case.pattern.name, case.pattern, values)
                    self._execute_all(ast.iter_child_nodes(case), scope)
            case (
                ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name))
            ):
                self.store.define(scope, name, node, NOTHING)  # parts of what is matched are not followed
                self._execute_all(ast.iter_child_nodes(node), scope)
            case ast.Return():
                if node.value is not None:
                    values = self.evaluate(node.value, scope)
                    self.store.grow(self.store.returns[scope.index], values, ~scope.index)
            case _:
                self._execute_all(ast.iter_child_nodes(node), scope)

    def _execute_all(self, nodes: Iterable[ast.AST], scope: Scope) -> None:
        for node in nodes:
            if isinstance(node, ast.expr):
                self.evaluate(node, scope)
            elif not isinstance(node, ast.stmt):
                self.execute(node, scope)

    def _defaults(self, inner: Scope, scope: Scope) -> None:
        for arg, value in inner.signature.defaults:
            self.store.define(inner, arg.arg, arg, self.evaluate(value, scope))

    def _assign(self, target: ast.expr, values: Values, scope: Scope, at: ast.AST) -> None:
        match target:
            case ast.Name():
                self.store.define(scope, target.id, target, values)
                self.store.known[id(target)] = values
            case ast.Attribute():
                for owner in self.evaluate(target.value, scope):
                    self.store.set_field(owner, target.attr, target, values)
            case ast.Tuple() | ast.List():
                for index, element in enumerate(target.elts):
                    if isinstance(element, ast.Starred):
                        rest = self.containers.elements(values)
                        some = self.containers.collected(element, rest) if rest else NOTHING
                        self._assign(element.value, some, scope, at)
                    else:
                        self._assign(element, self.containers.item(values, str(index)), scope, at)
            case ast.Subscript():
                self.evaluate(target.slice, scope)
                key = target.slice.value if isinstance(target.slice, ast.Constant) else "*"
                for owner in self.evaluate(target.value, scope):
                    self.store.set_field(owner, f"[{key}]", target, values)

    def _assign_each(
        self, target: ast.expr, values: Values, iterated: ast.expr, scope: Scope, at: ast.AST
    ) -> None:
        """Give a loop's variables what is gone through; what ``enumerate`` and ``zip`` pair, each its own."""
        each = self.containers.elements(values)
        call = self.store.calls.get(id(iterated))
        parts = call.node.args if call is not None and call.names & NUMBERS_OR_PAIRS else []
        if "builtins.enumerate" in (call.names if call is not None else ()):
            parts = [ast.Constant(0), *parts[:1]]
        if not isinstance(target, ast.Tuple) or len(target.elts) != len(parts):
            self._assign(target, each, scope, at)
            return
        for index, (element, part) in enumerate(zip(target.elts, parts, strict=True)):
            if isinstance(part, ast.Constant):  # the number that enumerate() begins with
                self._assign(element, NOTHING, scope, at)
                continue
            given = self.store.values(part)
            own = self.containers.elements(given)
            if not given or not all(
                isinstance(it, Coll) for it in given
            ):  # what hands out may hand out pairs
                own = frozenset(it for it in own if isinstance(it, OWN)) | self.containers.item(
                    each, str(index)
                )
            self._assign(element, own, scope, at)

    def evaluate(self, node: ast.expr, scope: Scope) -> Values:
        """What an expression may be, as far as is known by now."""
        key, known = id(node), self.store.known
        if isinstance(node, ast.Constant) and key in known:
            return known[key]
        values = self._compute(node, scope)
        before = known.get(key, NOTHING)
        if values <= before:
            return before
        known[key] = before | values
        self.store.changed = True
        self.store.wrote(key)
        if key in self.tree.base_nodes:
            self.classes.grown(self.tree.base_nodes[key])
        return known[key]

    def _compute(self, node: ast.expr, scope: Scope) -> Values:
        match node:
            case ast.Constant():
                return (
                    frozenset([Const(node.value)])
                    if isinstance(node.value, str | int | float | bool)
                    else NOTHING
                )
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as number)):
                return frozenset([Const(-number)])
            case ast.Name():
                return self.names.name(node, scope)
            case ast.Attribute():
                owners = self.evaluate(node.value, scope)
                found = frozenset().union(
                    *(self.attributes.attribute(owner, node.attr, node) for owner in owners)
                )
                return self.outside.fewer(found)
            case ast.Call():
                callees = self.evaluate(node.func, scope)
                for argument in node.args:
                    self.evaluate(argument, scope)
                for keyword in node.keywords:
                    self.evaluate(keyword.value, scope)
                return self.dispatch.call(node, callees, scope)
            case ast.IfExp():
                self.evaluate(node.test, scope)
                otherwise = self.special.otherwise(node.test, self.evaluate(node.orelse, scope))
                return self.evaluate(node.body, scope) | otherwise
            case ast.BinOp(op=ast.Div()):
                self.evaluate(node.right, scope)
                left = self.evaluate(node.left, scope)  # a path and a name make a path
                if _is_string(node.right):
                    return frozenset([Made("pathlib.Path", id(node))])
                return frozenset(value for value in left if full_name(value).startswith("pathlib."))
            case ast.BinOp(op=ast.Add() | ast.BitOr()):
                return self._joined(node, self.evaluate(node.left, scope), self.evaluate(node.right, scope))
            case ast.BoolOp():
                return frozenset().union(*[self.evaluate(value, scope) for value in node.values])
            case ast.NamedExpr():
                values = self.evaluate(node.value, scope)
                self._assign(node.target, values, scope, node)
                return values
            case ast.Tuple() | ast.List() | ast.Set():
                collection = Coll(id(node))
                for index, element in enumerate(node.elts):
                    self.store.set_field(collection, f"[{index}]", element, self.evaluate(element, scope))
                return frozenset([collection])
            case ast.Dict():
                collection = Coll(id(node))
                for key, value in zip(node.keys, node.values, strict=True):
                    if key is None:
                        self.containers.fill(collection, Arguments(((value, self.evaluate(value, scope)),)))
                        continue
                    self.evaluate(key, scope)
                    name = key.value if isinstance(key, ast.Constant) else "*"
                    self.store.set_field(collection, f"[{name}]", value, self.evaluate(value, scope))
                return frozenset([collection])
            case ast.Subscript():
                owners = self.evaluate(node.value, scope)
                self.evaluate(node.slice, scope)
                found = self.dispatch.subscripted(owners, node, scope)
                others = (it for it in owners if not self.containers.is_filled(it))
                return found or frozenset().union(*map(self.outside.element, others))
            case ast.Starred() | ast.Await():
                return self.evaluate(node.value, scope)
            case ast.Lambda():
                inner = self.tree.by_node[id(node)]
                self._defaults(inner, scope)
                self.store.grow(
                    self.store.returns[inner.index], self.evaluate(node.body, inner), ~inner.index
                )
                return frozenset([Func(inner.index)])
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._comprehension(node, scope)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.evaluate(child, scope)
        return NOTHING

    def _joined(self, node: ast.BinOp, *parts: Values) -> Values:
        """``list + list`` and ``dictionary | dictionary``; unknown where none of them is known to be one."""
        if not any(isinstance(it, Coll) for values in parts for it in values):
            return NOTHING
        collection = Coll(id(node))
        for part, values in zip((node.left, node.right), parts, strict=True):
            if isinstance(node.op, ast.BitOr):
                self.containers.fill(collection, Arguments(((part, values),)))
            else:
                self.store.set_field(collection, "[*]", part, self.containers.elements(values))
        return frozenset([collection])

    def _comprehension(self, node: ast.expr, scope: Scope) -> Values:
        for generator in node.generators:  # type: ignore[attr-defined]
            values = self.evaluate(generator.iter, scope)
            self.calling.enter_by(generator, values, *ITERATION)
            self._assign_each(generator.target, values, generator.iter, scope, node)
            for condition in generator.ifs:
                self.evaluate(condition, scope)
        collection = Coll(id(node))
        if isinstance(node, ast.DictComp):
            self.evaluate(node.key, scope)
            self.store.set_field(collection, "[*]", node.value, self.evaluate(node.value, scope))
        else:
            element = node.elt  # type: ignore[attr-defined]
            self.store.set_field(collection, "[*]", element, self.evaluate(element, scope))
        return frozenset([collection])


def _is_string(node: ast.expr) -> bool:
    """``"name"``, ``f"{name}"`` and ``"{}".format(name)``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "format" and _is_string(node.func.value)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
