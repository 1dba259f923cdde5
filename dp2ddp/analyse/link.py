"""Who is who: follows values through all files of a project.

Every expression is given the set of *values* it may have: classes, functions, modules, and objects named by the
place that makes them. Names, attributes, arguments, return values and containers pass values on until nothing
new arrives (a points-to analysis, insensitive to calling context). Names are sensitive to the order of
statements: a use sees the assignments that can reach it.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from dp2ddp.plan import Anchor
from dp2ddp.source import Location, Project, SourceFile, span_of

CANONICAL = {
    "torch.nn.parallel.DataParallel": "torch.nn.DataParallel",
    "torch.nn.parallel.data_parallel.DataParallel": "torch.nn.DataParallel",
    "torch.nn.parallel.data_parallel.data_parallel": "torch.nn.parallel.data_parallel",
    "torch.nn.parallel.distributed.DistributedDataParallel": "torch.nn.parallel.DistributedDataParallel",
    "torch.utils.data.dataloader.DataLoader": "torch.utils.data.DataLoader",
    "torch.utils.data.dataset.Dataset": "torch.utils.data.Dataset",
    "torch.utils.data.distributed.DistributedSampler": "torch.utils.data.DistributedSampler",
    "torch.accelerator.is_available": "torch.cuda.is_available",
    "torch.accelerator.device_count": "torch.cuda.device_count",
    "six.moves.urllib": "urllib",
    "torch.utils.tensorboard.writer.SummaryWriter": "torch.utils.tensorboard.SummaryWriter",
    "tqdm.auto.tqdm": "tqdm.tqdm",
    "tqdm.autonotebook.tqdm": "tqdm.tqdm",
    "tqdm.notebook.tqdm": "tqdm.tqdm",
    "tqdm.std.tqdm": "tqdm.tqdm",
    "tqdm.auto.trange": "tqdm.trange",
}
WRAP = "torch.nn.DataParallel"
FUNCTION = "torch.nn.parallel.data_parallel"
APEX_WRAP = "apex.parallel.DistributedDataParallel"
OTHER_WRAPS = {"torch.nn.parallel.DistributedDataParallel", APEX_WRAP}
DDP_WRAPS = {
    *OTHER_WRAPS,
    "dp2ddp.runtime.DistributedDataParallel",
    "dp2ddp.runtime.DataParallel",
}
LOADER = "torch.utils.data.DataLoader"

# What `from torch.utils.data import *` brings, to tell it from other star imports beside it.
DATA_NAMES = frozenset("""
    DataLoader Dataset TensorDataset IterableDataset Subset ConcatDataset ChainDataset random_split Sampler
    RandomSampler SequentialSampler SubsetRandomSampler WeightedRandomSampler BatchSampler DistributedSampler
    default_collate get_worker_info
    """.split())
# Methods of modules and tensors that return the object itself, or its copy on another device or of another type.
SAME_OBJECT = frozenset("""
    to cuda cpu train eval half float double bfloat16 type requires_grad_ share_memory apply contiguous detach clone
    """.split())
# What returns its argument, or a copy of it.
COPIES = {
    "copy.copy",
    "copy.deepcopy",
    "collections.OrderedDict",
    "builtins.dict",
    "dp2ddp.runtime.shard",
    "dp2ddp.runtime.shard_batches",
    "dp2ddp.runtime.divide_batches",
}
# What changes layers of a model, and hands it back.
CONVERTS_NORMS = {
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm",
    "torch.nn.modules.batchnorm.SyncBatchNorm.convert_sync_batchnorm",
    "apex.parallel.convert_syncbn_model",
}
COPIES |= CONVERTS_NORMS
# Prepares a model and optimizers for mixed precision, and hands them back.
INITIALIZE = "apex.amp.initialize"
# What hands out the elements of its first argument.
ITERATORS = frozenset("""
    builtins.enumerate builtins.iter builtins.list builtins.tuple builtins.reversed builtins.next
    tqdm.tqdm itertools.islice rich.progress.track
    """.split())


@dataclass(frozen=True)
class Ext:
    """Something outside the project, by its full name."""

    name: str


@dataclass(frozen=True)
class Mod:
    """A module of the project."""

    path: Path


@dataclass(frozen=True)
class Func:
    """A function or lambda of the project."""

    scope: int


@dataclass(frozen=True)
class Cls:
    """A class of the project."""

    scope: int


@dataclass(frozen=True)
class Inst:
    """An object of a project's class, by the call that makes it."""

    cls: Cls
    site: int


@dataclass(frozen=True)
class Bound:
    """A method of a project's class with its object."""

    func: Func
    owner: Value


@dataclass(frozen=True)
class Made:
    """What a call of something outside the project returns: its full name and the call."""

    name: str
    site: int


@dataclass(frozen=True)
class Member:
    """An attribute of an object from outside the project."""

    owner: Value
    name: str


@dataclass(frozen=True)
class Coll:
    """A tuple, list, set or dict display."""

    site: int


@dataclass(frozen=True)
class Const:
    """A literal."""

    value: object


Value = Ext | Mod | Func | Cls | Inst | Bound | Made | Member | Coll | Const
Values = frozenset[Value]
NOTHING: Values = frozenset()


@dataclass
class Scope:
    """A module, class or function body, with the names it binds."""

    index: int
    node: ast.AST
    file: SourceFile
    parent: Scope | None
    names: set[str] = field(default_factory=set)
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)
    stars: list[str | Path] = field(default_factory=list)

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)

    @property
    def is_module(self) -> bool:
        return isinstance(self.node, ast.Module)

    @property
    def owner(self) -> Cls | None:
        """The class that a function is a method of."""
        return Cls(self.parent.index) if self.parent is not None and self.parent.is_class else None

    @property
    def body(self) -> list[ast.stmt]:
        body = self.node.body  # type: ignore[attr-defined]
        return body if isinstance(body, list) else [ast.copy_location(ast.Return(value=body), body)]

    @property
    def params(self) -> list[str]:
        if not isinstance(self.node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return []
        args = self.node.args
        return [arg.arg for arg in (*args.posonlyargs, *args.args)]


@dataclass(frozen=True)
class Call:
    """A call: its node, the scope it stands in, and what it may call."""

    node: ast.Call
    scope: Scope
    callees: Values

    def argument(self, keyword: str, position: int | None = None) -> ast.expr | None:
        """The expression given for a parameter, by name or by position; None where it is not given."""
        for given in self.node.keywords:
            if given.arg == keyword:
                return given.value
        if position is not None and position < len(self.node.args):
            before = self.node.args[: position + 1]
            if not any(isinstance(argument, ast.Starred) for argument in before):
                return before[position]
        return None

    @property
    def names(self) -> set[str]:
        """Full names of the callees outside the project; calling an object is calling its ``__call__``."""
        return {
            f"{name}.__call__" if isinstance(callee, Made) else name
            for callee in self.callees
            if (name := full_name(callee))
        }


def full_name(value: Value) -> str:
    """``torch.nn.DataParallel`` for the class, ``torch.nn.DataParallel.state_dict`` for a method of its object."""
    if isinstance(value, Ext | Made):
        return value.name
    if isinstance(value, Member):
        owner = full_name(value.owner)
        return f"{owner}.{value.name}" if owner else ""
    return ""


def closure(values: Values, after: Callable[[Value], Iterable[Value]]) -> Values:
    """Values with all that ``after`` leads to from them."""
    found: set[Value] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if value not in found:
            found.add(value)
            waiting += after(value)
    return frozenset(found)


class Program:
    """A linked project: ask it for the values of an expression, the calls, and what stands round a node."""

    def __init__(self, project: Project, files: Iterable[SourceFile]) -> None:
        self.project = project
        self.files = list(files)
        self.scopes: list[Scope] = []
        self.scope_of: dict[int, Scope] = {}
        self.file_of: dict[int, SourceFile] = {}
        self.parents: dict[int, ast.AST] = {}
        self.nodes: dict[int, ast.AST] = {}
        self.order: dict[int, int] = {}
        self.modules: dict[Path, Scope] = {}
        self.by_node: dict[int, Scope] = {}
        self._definitions: dict[tuple[int, str], dict[int, set[Value]]] = defaultdict(dict)
        self._definition_nodes: dict[int, ast.AST] = {}
        self._fields: dict[Value, dict[str, dict[int, set[Value]]]] = defaultdict(dict)
        self._returns: dict[int, set[Value]] = defaultdict(set)
        self._values: dict[int, Values] = {}
        self._calls: dict[int, Call] = {}
        self.misplaced: list[ast.stmt] = []
        """Statements that hold an anchored expression whose position is not known."""
        self._changed = False
        self._families: dict[Cls, list[Value]] = {}
        self._subclasses: dict[Value, list[Cls]] = {}
        for file in self.files:
            self._collect(file.tree, file, None)
        self._link()

    # Structure

    def _collect(self, tree: ast.Module, file: SourceFile, parent: Scope | None) -> None:
        scope = self._scope(tree, file, parent)
        self.modules[file.path] = scope
        self._walk(tree, scope, file)

    def _scope(self, node: ast.AST, file: SourceFile, parent: Scope | None) -> Scope:
        scope = Scope(len(self.scopes), node, file, parent)
        self.scopes.append(scope)
        self.by_node[id(node)] = scope
        return scope

    def _walk(self, node: ast.AST, scope: Scope, file: SourceFile) -> None:
        for child in ast.iter_child_nodes(node):
            self.parents[id(child)] = node
            self.nodes[id(child)] = child
            self.order[id(child)] = len(self.order)
            self.scope_of[id(child)] = scope
            self.file_of[id(child)] = file
            inner = scope
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
                if not isinstance(child, ast.Lambda):
                    scope.names.add(child.name)
                inner = self._scope(child, file, scope)
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                    every = ast.walk(child.args)
                    inner.names.update(arg.arg for arg in every if isinstance(arg, ast.arg))
            elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store | ast.Del):
                scope.names.add(child.id)
            elif isinstance(child, ast.Import | ast.ImportFrom):
                for alias in child.names:
                    scope.names.add(alias.asname or alias.name.partition(".")[0])
            elif isinstance(child, ast.ExceptHandler) and child.name:
                scope.names.add(child.name)
            elif isinstance(child, ast.Global):
                scope.globals.update(child.names)
            elif isinstance(child, ast.Nonlocal):
                scope.nonlocals.update(child.names)
            self._walk(child, inner, file)

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self.parents.get(id(node))

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """What stands round a node, inside out."""
        current = self.parent(node)
        while current is not None:
            yield current
            current = self.parent(current)

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds a node."""
        while not isinstance(node, ast.stmt):
            node = self.parents[id(node)]
        return node

    def scope(self, node: ast.AST) -> Scope:
        return self.scope_of[id(node)]

    def file(self, node: ast.AST) -> SourceFile:
        return self.file_of[id(node)]

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The list of statements that a statement stands in."""
        parent = self.parents[id(statement)]
        for _, value in ast.iter_fields(parent):
            if isinstance(value, list) and any(entry is statement for entry in value):
                return value
        raise LookupError(ast.dump(statement))

    def anchor(self, node: ast.AST) -> Anchor:
        file = self.file(node)
        if not self.is_placed(node):
            self.misplaced.append(self.statement(node))
        return Anchor(file.path, "stmt" if isinstance(node, ast.stmt) else "expr", span_of(node, file))

    def is_placed(self, node: ast.AST) -> bool:
        """Whether a node stands where it says: before Python 3.12, expressions inside f-strings may not."""
        inside = any(isinstance(around, ast.JoinedStr) for around in self.ancestors(node))
        if sys.version_info >= (3, 12) or not inside:
            return True
        try:
            there = ast.parse(ast.get_source_segment(self.file(node).text, node) or "", mode="eval").body
        except SyntaxError:
            return False
        return ast.dump(there) == ast.dump(node)

    def location(self, node: ast.AST) -> Location:
        file = self.file(node)
        return Location(file.path, span_of(node, file))

    def descendants(self, node: ast.AST) -> Iterator[ast.AST]:
        """A node and all below it that run with it: the bodies of functions are left out."""
        yield node
        for child in _run_with(node):
            yield from self.descendants(child)

    def body(self, scope: Scope) -> Iterator[ast.AST]:
        """All nodes that run when a module, class or function runs."""
        for statement in scope.body:
            yield from self.descendants(statement)

    # Linking

    def _link(self) -> None:
        for _ in range(50):
            self._changed = False
            self._families, self._subclasses = {}, {}  # more bases may be known now
            for scope in self.scopes:
                for statement in scope.body:
                    self._execute(statement, scope)
            if not self._changed:
                return

    def _grow(self, target: set[Value], values: Iterable[Value]) -> None:
        before = len(target)
        target.update(values)
        self._changed |= len(target) != before

    def _define(self, scope: Scope, name: str, node: ast.AST, values: Iterable[Value]) -> None:
        owner = self._owner(scope, name)
        self._definition_nodes[id(node)] = node
        self._grow(self._definitions[owner.index, name].setdefault(id(node), set()), values)

    def _owner(self, scope: Scope, name: str) -> Scope:
        if name in scope.globals:
            return self.modules[scope.file.path]
        if name in scope.nonlocals and scope.parent:
            return self._owner(scope.parent, name)
        return scope

    def _execute(self, node: ast.AST, scope: Scope) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                for expression in (
                    *node.decorator_list,
                    *node.args.defaults,
                    *filter(None, node.args.kw_defaults),
                ):
                    self._evaluate(expression, scope)
                inner = self.by_node[id(node)]
                self._define(scope, node.name, node, [Func(inner.index)])
                self._defaults(node.args, inner, scope)
            case ast.ClassDef():
                for expression in (*node.bases, *node.decorator_list, *(k.value for k in node.keywords)):
                    self._evaluate(expression, scope)
                self._define(scope, node.name, node, [Cls(self.by_node[id(node)].index)])
            case ast.Import():
                for alias in node.names:
                    self._import(node, alias, scope)
            case ast.ImportFrom():
                for alias in node.names:
                    self._import_from(node, alias, scope)
            case ast.Assign():
                values = self._evaluate(node.value, scope)
                for target in node.targets:
                    self._assign(target, values, scope, node)
            case ast.AnnAssign():
                if node.value is not None:
                    self._assign(node.target, self._evaluate(node.value, scope), scope, node)
            case ast.AugAssign():
                values = self._evaluate(node.value, scope)
                current = self._evaluate(node.target, scope)
                self._assign(node.target, values | current, scope, node)
            case ast.For() | ast.AsyncFor():
                values = self._evaluate(node.iter, scope)
                self._assign(node.target, self._elements(values), scope, node)
                self._execute_all(node.body, scope)
                self._execute_all(node.orelse, scope)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    values = self._evaluate(item.context_expr, scope)
                    if item.optional_vars is not None:
                        self._assign(item.optional_vars, values, scope, node)
                self._execute_all(node.body, scope)
            case ast.Return():
                if node.value is not None:
                    self._grow(self._returns[scope.index], self._evaluate(node.value, scope))
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self._evaluate(child, scope)
                    else:
                        self._execute(child, scope)

    def _execute_all(self, nodes: Iterable[ast.AST], scope: Scope) -> None:
        for node in nodes:
            self._execute(node, scope)

    def _defaults(self, args: ast.arguments, inner: Scope, scope: Scope) -> None:
        named = [*args.posonlyargs, *args.args]
        pairs = [*zip(reversed(named), reversed(args.defaults), strict=False)]
        pairs += [(arg, value) for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True) if value]
        for arg, value in pairs:
            self._define(inner, arg.arg, arg, self._evaluate(value, scope))

    def _import(self, node: ast.Import, alias: ast.alias, scope: Scope) -> None:
        whole = alias.name if alias.asname else alias.name.partition(".")[0]
        found = self.project.resolve(scope.file.path, whole)
        bound = alias.asname or whole
        self._define(scope, bound, alias, [Mod(found) if found else Ext(_canonical(whole))])

    def _import_from(self, node: ast.ImportFrom, alias: ast.alias, scope: Scope) -> None:
        path = scope.file.path
        found = self.project.resolve(path, node.module or "", node.level)
        if alias.name == "*":
            source: str | Path | None = found or node.module
            if source and source not in scope.stars:
                scope.stars.append(source)
                self._changed = True
            return
        full = f"{node.module}.{alias.name}" if node.module else alias.name
        submodule = self.project.resolve(path, full, node.level)
        values: set[Value] = set()
        if found:
            values |= self._global(found, alias.name)
        if submodule and not values:
            values.add(Mod(submodule))
        if not found and not submodule and not node.level:
            values.add(Ext(_canonical(full)))
        self._define(scope, alias.asname or alias.name, alias, values)

    def _global(self, path: Path, name: str, seen: frozenset[Path] = frozenset()) -> Values:
        """The values of a module's name, star imports included."""
        module = self.modules.get(path)
        if module is None or path in seen:
            return NOTHING
        if (module.index, name) in self._definitions:
            return frozenset().union(*self._definitions[module.index, name].values())
        return self._starred(module, name, seen | {path})

    def _starred(self, module: Scope, name: str, seen: frozenset[Path]) -> Values:
        for source in reversed(module.stars):
            if isinstance(source, Path):
                if values := self._global(source, name, seen):
                    return values
        outside = [source for source in module.stars if isinstance(source, str)]
        if hasattr(builtins, name):
            return NOTHING
        if "torch.utils.data" in outside and len(outside) > 1:
            outside = [source for source in outside if (source == "torch.utils.data") == (name in DATA_NAMES)]
        return frozenset(Ext(_canonical(f"{source}.{name}")) for source in outside)

    def _assign(self, target: ast.expr, values: Values, scope: Scope, at: ast.AST) -> None:
        match target:
            case ast.Name():
                self._define(scope, target.id, target, values)
                self._values[id(target)] = values
            case ast.Attribute():
                for owner in self._evaluate(target.value, scope):
                    self._set_field(owner, target.attr, target, values)
            case ast.Tuple() | ast.List():
                for index, element in enumerate(target.elts):
                    if isinstance(element, ast.Starred):
                        self._assign(element.value, self._elements(values), scope, at)
                    else:
                        self._assign(element, self._item(values, str(index)), scope, at)
            case ast.Subscript():
                key = target.slice.value if isinstance(target.slice, ast.Constant) else "*"
                for owner in self._evaluate(target.value, scope):
                    self._set_field(owner, f"[{key}]", target, values)

    def _set_field(self, owner: Value, name: str, node: ast.AST, values: Iterable[Value]) -> None:
        if isinstance(owner, Inst):
            owner = owner.cls  # one set of fields for all objects of a class
        if isinstance(owner, Mod):
            module = self.modules[owner.path]
            self._definition_nodes[id(node)] = node
            self._grow(self._definitions[module.index, name].setdefault(id(node), set()), values)
        elif not isinstance(owner, Const | Ext | Func):
            self._definition_nodes[id(node)] = node
            self._grow(self._fields[owner].setdefault(name, {}).setdefault(id(node), set()), values)

    def _field(self, owner: Value, name: str) -> dict[int, set[Value]]:
        return self._fields.get(owner, {}).get(name, {})

    def _item(self, values: Values, key: str) -> Values:
        found: set[Value] = set()
        for value in self._behind(values):
            for name in (f"[{key}]", "[*]"):
                for entry in self._field(value, name).values():
                    found |= entry
            if isinstance(value, Made) and value.name not in ITERATORS:
                found.add(Member(value, "[]"))
        return frozenset(found)

    def _elements(self, values: Values) -> Values:
        found: set[Value] = set()
        for value in self._behind(values):
            if isinstance(value, Coll):
                for name, entries in self._fields.get(value, {}).items():
                    if name.startswith("["):
                        found.update(*entries.values())
            elif isinstance(value, Made) and value.name not in ITERATORS:
                found.add(Member(value, "[]"))
        return frozenset(found)

    def _behind(self, values: Values) -> Values:
        """Values with those that they hand out the elements of."""
        return closure(
            values,
            lambda value: (
                self._argument_values(value, 0)
                if isinstance(value, Made) and value.name in ITERATORS
                else NOTHING
            ),
        )

    def _argument_values(self, made: Made, position: int) -> Values:
        call = self._calls.get(made.site)
        if call is None or position >= len(call.node.args):
            return NOTHING
        return self._values.get(id(call.node.args[position]), NOTHING)

    def _evaluate(self, node: ast.expr, scope: Scope) -> Values:
        values = self._compute(node, scope)
        before = self._values.get(id(node), NOTHING)
        if not values <= before:
            self._values[id(node)] = before | values
            self._changed = True
        return self._values.get(id(node), NOTHING)

    def _compute(self, node: ast.expr, scope: Scope) -> Values:
        match node:
            case ast.Constant():
                return (
                    frozenset([Const(node.value)])
                    if isinstance(node.value, str | int | float | bool)
                    else NOTHING
                )
            case ast.Name():
                return self._name(node, scope)
            case ast.Attribute():
                owners = self._evaluate(node.value, scope)
                return frozenset().union(*(self._attribute(owner, node.attr, node) for owner in owners))
            case ast.Call():
                return self._call(node, scope)
            case ast.IfExp():
                self._evaluate(node.test, scope)
                otherwise = self._evaluate(node.orelse, scope)
                if _asks_for_wrap(node.test):
                    otherwise = frozenset(
                        v for v in otherwise if not (isinstance(v, Made) and v.name == WRAP)
                    )
                return self._evaluate(node.body, scope) | otherwise
            case ast.BinOp(op=ast.Div()):
                self._evaluate(node.right, scope)
                left = self._evaluate(node.left, scope)  # a path and a name make a path
                if _is_string(node.right):
                    return frozenset([Made("pathlib.Path", id(node))])
                return frozenset(value for value in left if full_name(value).startswith("pathlib."))
            case ast.BoolOp():
                return frozenset().union(*[self._evaluate(value, scope) for value in node.values])
            case ast.NamedExpr():
                values = self._evaluate(node.value, scope)
                self._assign(node.target, values, scope, node)
                return values
            case ast.Tuple() | ast.List() | ast.Set():
                collection = Coll(id(node))
                for index, element in enumerate(node.elts):
                    self._set_field(collection, f"[{index}]", element, self._evaluate(element, scope))
                return frozenset([collection])
            case ast.Dict():
                collection = Coll(id(node))
                for key, value in zip(node.keys, node.values, strict=True):
                    if key is not None:
                        self._evaluate(key, scope)
                    name = key.value if isinstance(key, ast.Constant) else "*"
                    self._set_field(collection, f"[{name}]", value, self._evaluate(value, scope))
                return frozenset([collection])
            case ast.Subscript():
                owners = self._evaluate(node.value, scope)
                self._evaluate(node.slice, scope)
                if isinstance(node.slice, ast.Constant):
                    found = self._item(owners, str(node.slice.value))
                else:
                    found = self._elements(owners)
                return found or frozenset(Member(owner, "[]") for owner in owners if isinstance(owner, Made))
            case ast.Starred() | ast.Await():
                return self._evaluate(node.value, scope)
            case ast.Lambda():
                inner = self.by_node[id(node)]
                self._grow(self._returns[inner.index], self._evaluate(node.body, inner))
                return frozenset([Func(inner.index)])
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._comprehension(node, scope)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._evaluate(child, scope)
        return NOTHING

    def _comprehension(self, node: ast.expr, scope: Scope) -> Values:
        for generator in node.generators:  # type: ignore[attr-defined]
            values = self._evaluate(generator.iter, scope)
            self._assign(generator.target, self._elements(values), scope, node)
            for condition in generator.ifs:
                self._evaluate(condition, scope)
        collection = Coll(id(node))
        if isinstance(node, ast.DictComp):
            self._evaluate(node.key, scope)
            self._set_field(collection, "[*]", node.value, self._evaluate(node.value, scope))
        else:
            element = node.elt  # type: ignore[attr-defined]
            self._set_field(collection, "[*]", element, self._evaluate(element, scope))
        return frozenset([collection])

    def _name(self, node: ast.Name, scope: Scope) -> Values:
        name = node.id
        owner: Scope | None = self._owner(scope, name)
        direct = owner
        while owner is not None:
            if name in owner.names or (owner.index, name) in self._definitions:
                if not (owner.is_class and owner is not direct):
                    return self._reaching(owner, name, node, same=owner is self.scope_of.get(id(node)))
            owner = owner.parent
        module = self.modules[scope.file.path]
        if values := self._starred(module, name, frozenset([module.file.path])):
            return values
        return frozenset([Ext(f"builtins.{name}")]) if hasattr(builtins, name) else NOTHING

    def _reaching(self, owner: Scope, name: str, use: ast.AST, same: bool) -> Values:
        definitions = self._definitions.get((owner.index, name), {})
        nodes = {key: self._definition_nodes[key] for key in definitions}
        kept = self.reaching(nodes.values(), use) if same else self.surviving(nodes.values())
        return frozenset().union(*(definitions[id(node)] for node in kept))

    def reaching(self, definitions: Iterable[ast.AST], use: ast.AST) -> list[ast.AST]:
        """The definitions of one name that can reach a use in the same body.

        An assignment in a block that also holds the use hides all that come before it; later ones count only
        round a loop that holds both, and where nothing in that loop hides them again before the use.
        """
        around = [use, *self.ancestors(use)]
        loops = [node for node in around if isinstance(node, ast.For | ast.While | ast.AsyncFor)]
        current = self.statement(use) if not isinstance(use, ast.stmt) else use
        kept: list[ast.AST] = []
        later: list[ast.AST] = []
        hiding: ast.AST | None = None
        for node in sorted(definitions, key=lambda node: self.order.get(id(node), 0)):
            comprehension = self._comprehension_of(node)
            if comprehension is not None:
                if any(entry is comprehension for entry in around):
                    return [node]
                continue
            holder = node if isinstance(node, ast.stmt) else self._holder(node)
            if self._is_later(node, holder, use, current):
                later.append(node)
                continue
            if self._is_in_other_branch(holder, around):
                continue
            if self._hides(holder, around):
                kept, hiding = [], holder
            kept.append(node)
            attempt = self._attempt(holder, around)
            if attempt is not None:
                within = [it for it in kept if attempt in self.ancestors(it)]
                if self._is_made_in_all(attempt, [self._holder(it) for it in within]):
                    kept, hiding = within, attempt
        hidden = {id(outer) for outer in self.ancestors(hiding)} if hiding is not None else set()
        for node in later:
            holders = {id(outer) for outer in (node, *self.ancestors(node))}
            if any(id(loop) in holders and id(loop) not in hidden for loop in loops):
                kept.append(node)
        return kept

    def surviving(self, definitions: Iterable[ast.AST]) -> list[ast.AST]:
        """The definitions of one name that may hold when the body that makes them has run."""
        kept: list[ast.AST] = []
        for node in sorted(definitions, key=lambda node: self.order.get(id(node), 0)):
            scope = self.scope_of.get(id(node))
            holder = node if isinstance(node, ast.stmt) else self._holder(node)
            if scope is not None and self._hides(holder, [holder, scope.node]):
                kept = [old for old in kept if self.scope_of.get(id(old)) is not scope]
            if self._comprehension_of(node) is None:
                kept.append(node)
        return kept

    def _comprehension_of(self, node: ast.AST) -> ast.AST | None:
        """The comprehension that a name is the variable of."""
        for around in self.ancestors(node):
            if isinstance(around, ast.stmt):
                return None
            if isinstance(around, ast.comprehension):
                return self.parent(around)
        return None

    def _attempt(self, holder: ast.AST, around: list[ast.AST]) -> ast.Try | None:
        """The ``try`` whose last handler an assignment stands in, before what stands inside ``around``."""
        handler = self.parent(holder)
        attempt = self.parent(handler) if isinstance(handler, ast.ExceptHandler) else None
        if not isinstance(attempt, ast.Try) or handler is not attempt.handlers[-1] or attempt in around:
            return None
        return attempt if any(other in around for other in self.block(attempt)) else None

    def _is_made_in_all(self, attempt: ast.Try, holders: list[ast.AST]) -> bool:
        """Whether the body of a ``try`` and its handlers either assign or go elsewhere."""
        parts = [attempt.body, *(handler.body for handler in attempt.handlers)]
        leaving = ast.Raise | ast.Return | ast.Continue | ast.Break
        return all(isinstance(part[-1], leaving) or any(it in part for it in holders) for part in parts)

    def _is_in_other_branch(self, holder: ast.AST, around: list[ast.AST]) -> bool:
        """Whether an assignment stands in one branch of a condition, and what stands inside ``around`` in the other."""
        inside = holder
        for outer in self.ancestors(holder):
            place = next((i for i, entry in enumerate(around) if entry is outer), None)
            if place is not None:
                if not isinstance(outer, ast.If) or around[place - 1] is outer.test:
                    return False
                here, there = (any(it is part for it in outer.body) for part in (inside, around[place - 1]))
                loops = any(isinstance(it, ast.For | ast.While | ast.AsyncFor) for it in around[place:])
                return here != there and not loops
            inside = outer
        return False

    def _is_later(self, node: ast.AST, holder: ast.AST, use: ast.AST, current: ast.stmt) -> bool:
        if holder is current and not isinstance(current, ast.For | ast.With | ast.AsyncFor | ast.AsyncWith):
            return True  # `x = f(x)`: the right side is evaluated first
        return self.order.get(id(node), 0) > self.order.get(id(use), 0)

    def _holder(self, node: ast.AST) -> ast.AST:
        while not isinstance(node, ast.stmt) and id(node) in self.parents:
            node = self.parents[id(node)]
        return node

    def _hides(self, holder: ast.AST, around: list[ast.AST]) -> bool:
        if isinstance(holder, ast.AugAssign | ast.For | ast.AsyncFor) or not isinstance(holder, ast.stmt):
            return False
        part, block = holder, self.parent(holder)
        while isinstance(block, ast.With | ast.AsyncWith) or (
            isinstance(block, ast.If) and self._wraps(holder)
        ):
            if any(entry is block for entry in around):
                return True
            part, block = block, self.parent(block)
        if isinstance(block, ast.If | ast.Try | ast.For | ast.While):  # in the same branch, too
            return any(entry is other for other in self.block(part) for entry in around)
        return any(entry is block for entry in around[1:])

    def _wraps(self, holder: ast.AST) -> bool:
        """``model = nn.DataParallel(model)``: under whatever condition it stands, it will always run."""
        value = holder.value if isinstance(holder, ast.Assign) else None
        while isinstance(value, ast.Call):
            if Ext(WRAP) in self._values.get(id(value.func), NOTHING):
                return True
            value = value.func.value if isinstance(value.func, ast.Attribute) else None
        return False

    def _attribute(self, owner: Value, name: str, node: ast.AST) -> Values:
        match owner:
            case Ext():
                return frozenset([Ext(_canonical(f"{owner.name}.{name}"))])
            case Mod():
                if values := self._global(owner.path, name):
                    return values
                inner = (
                    self.project.resolve(owner.path, name, 1) if owner.path.name == "__init__.py" else None
                )
                return frozenset([Mod(inner)]) if inner else NOTHING
            case Inst() | Cls():
                return self._member(owner, name, node)
            case Made() if owner.name in ({WRAP} | DDP_WRAPS) and name == "module":
                given = self._argument_values(owner, 0)
                # `model = nn.DataParallel(model)` in two branches: what each wraps is not the other's wrapper
                return frozenset(v for v in given if not (isinstance(v, Made) and v.name == WRAP))
            case Made() | Member() | Coll():
                stored: set[Value] = set()
                for values in self._field(owner, name).values():
                    stored |= values
                depth = 0
                at: Value = owner
                while isinstance(at, Member):
                    at, depth = at.owner, depth + 1
                return frozenset(stored | ({Member(owner, name)} if depth < 4 else set()))
        return NOTHING

    def bases(self, cls: Cls) -> list[Value]:
        """A class of the project and all its bases, in the order in which attributes are looked up, roughly."""
        if cls not in self._families:
            found: list[Value] = [cls]
            for value in found:
                if isinstance(value, Cls):
                    node = self.scopes[value.scope].node
                    for base in node.bases:  # type: ignore[attr-defined]
                        found += [
                            entry for entry in self._values.get(id(base), NOTHING) if entry not in found
                        ]
            self._families[cls] = found
        return self._families[cls]

    def derives(self, value: Value, name: str) -> bool:
        """Whether an object's class derives from a class outside the project, by its full name."""
        if isinstance(value, Inst):
            return any(isinstance(base, Ext) and base.name == name for base in self.bases(value.cls))
        return False

    def _member(self, owner: Inst | Cls, name: str, node: ast.AST) -> Values:
        cls = owner.cls if isinstance(owner, Inst) else owner
        family = [*self.bases(cls), *self._derived(cls)]
        found: set[Value] = set()
        for base in family:
            stored = self._field(base, name)
            nodes = [self._definition_nodes[key] for key in stored]
            # In the method that sets it, an attribute follows the order of statements as a name does.
            near = [n for n in nodes if self.scope_of.get(id(n)) is self.scope_of.get(id(node))]
            chosen = self.reaching(near, node) if near and isinstance(self.parent(node), ast.AST) else []
            for entry in chosen or self.surviving(nodes):
                found |= stored[id(entry)]
        for base in self.bases(cls):
            if isinstance(base, Cls) and (base.scope, name) in self._definitions:
                for values in self._definitions[base.scope, name].values():
                    found.update(self._method(value, owner) for value in values)
                break
        own = (self.scopes[base.scope].names for base in self.bases(cls) if isinstance(base, Cls))
        if not found and not any(name in names for names in own):
            outside = [base for base in self.bases(cls) if isinstance(base, Ext)]
            outside = [base for base in outside if base.name != "builtins.object"]  # it has no attributes
            found.update(Member(Made(base.name, getattr(owner, "site", 0)), name) for base in outside)
        return frozenset(found)

    def _method(self, value: Value, owner: Inst | Cls) -> Value:
        """What is found in a class, as it comes out of an object or out of the class itself."""
        if not isinstance(value, Func):
            return value
        marks = getattr(self.scopes[value.scope].node, "decorator_list", [])
        if any(isinstance(mark, ast.Name) and mark.id == "classmethod" for mark in marks):
            return Bound(value, owner.cls if isinstance(owner, Inst) else owner)
        return Bound(value, owner) if isinstance(owner, Inst) else value

    def _derived(self, cls: Cls) -> list[Cls]:
        """Subclasses whose fields a method of the base may read."""
        if not self._subclasses:
            for scope in self.scopes:
                if scope.is_class:
                    other = Cls(scope.index)
                    for base in self.bases(other)[1:]:
                        self._subclasses.setdefault(base, []).append(other)
            self._subclasses.setdefault(cls, [])
        return self._subclasses.get(cls, [])

    def _call(self, node: ast.Call, scope: Scope) -> Values:
        callees = self._evaluate(node.func, scope)
        for argument in node.args:
            self._evaluate(argument, scope)
        for keyword in node.keywords:
            self._evaluate(keyword.value, scope)
        if isinstance(node.func, ast.Name) and node.func.id == "super" and len(node.args) in (0, 2):
            self._calls[id(node)] = Call(node, scope, NOTHING)
            return self._super(scope, node)
        self._calls[id(node)] = Call(node, scope, callees)
        found: set[Value] = set()
        for callee in callees:
            match callee:
                case Func():
                    found |= self._invoke(callee, None, node)
                case Bound():
                    found |= self._invoke(callee.func, callee.owner, node)
                case Cls():
                    made = Inst(callee, id(node))
                    found.add(made)
                    for method in self._member(made, "__init__", node):
                        if isinstance(method, Bound):
                            self._invoke(method.func, made, node)
                case Inst():
                    for name in ("__call__", "forward"):
                        for method in self._member(callee, name, node):
                            if isinstance(method, Bound):
                                found |= self._invoke(method.func, callee, node)
                case Member(owner=Coll()) if callee.name == "append" and len(node.args) == 1:
                    values = self._values.get(id(node.args[0]), NOTHING)
                    self._set_field(callee.owner, "[*]", node, values)
                case Member(owner=Coll()) if callee.name in ("values", "copy"):
                    found.add(callee.owner)
                case Member(owner=Coll()) if callee.name in ("get", "pop"):
                    found |= self._elements(frozenset([callee.owner]))
                case Member() if callee.name in SAME_OBJECT and isinstance(node.func, ast.Attribute):
                    found |= self._values.get(id(node.func.value), NOTHING)
                case Ext(name="builtins.getattr") if len(node.args) > 1:
                    found |= self._getattr(node)
                case Ext(name="importlib.import_module") if node.args:
                    found |= self._module(node.args[0], scope)
                case Ext(name=name) if name == INITIALIZE:
                    found |= self._initialized(node)
                case Ext() if callee.name in COPIES and node.args:
                    found |= self._values.get(id(node.args[0]), NOTHING)
                case Ext() | Member():
                    name = full_name(callee)
                    if name and not _is_tensor(name):
                        found.add(Made(name, id(node)))
        return frozenset(found)

    def _module(self, name: ast.expr, scope: Scope) -> Values:
        """The module of the project that a literal name stands for."""
        known = isinstance(name, ast.Constant) and isinstance(name.value, str)
        path = self.project.resolve(scope.file.path, name.value) if known else None  # type: ignore[attr-defined]
        return frozenset([Mod(path)]) if path else NOTHING

    def _initialized(self, node: ast.Call) -> Values:
        """What apex hands back: the model, and the optimizers where it is given some."""
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        given = [*node.args[:2], *(named[it] for it in ("models", "optimizers") if it in named)]
        handed = [self._values.get(id(it), NOTHING) for it in given]
        if len(given) != 2:
            return handed[0] if handed else NOTHING
        collection = Coll(id(node))
        for index, values in enumerate(handed):
            self._set_field(collection, f"[{index}]", given[index], values)
        return frozenset([collection])

    def _getattr(self, node: ast.Call) -> Values:
        key = node.args[1]
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
            return NOTHING
        owners = self._values.get(id(node.args[0]), NOTHING)
        return frozenset().union(*(self._attribute(owner, key.value, node) for owner in owners))

    def _super(self, scope: Scope, node: ast.Call) -> Values:
        """``super()``, or ``super(Own, self)``, in a method of a class."""
        current: Scope | None = scope
        while current is not None and not current.is_class:
            current = current.parent
        if current is None:
            return NOTHING
        own = Cls(current.index)
        if node.args and own not in self._values.get(id(node.args[0]), NOTHING):
            return NOTHING
        bases = [base for base in self.bases(own) if base != own]
        return frozenset(
            Inst(base, id(node)) if isinstance(base, Cls) else Made(full_name(base), id(node))
            for base in bases
        )

    def _invoke(self, func: Func, owner: Value | None, node: ast.Call) -> Values:
        """Pass a call's arguments to the function's parameters; its return values come back."""
        inner = self.scopes[func.scope]
        params = inner.params
        args = inner.node.args  # type: ignore[attr-defined]
        named = {arg.arg: arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)}
        static = any(
            isinstance(d, ast.Name) and d.id == "staticmethod"
            for d in getattr(inner.node, "decorator_list", [])
        )
        if owner is not None and params and not static:
            self._define(inner, params[0], named[params[0]], [owner])
            params = params[1:]
        for index, argument in enumerate(node.args):
            if isinstance(argument, ast.Starred):
                break
            values = self._values.get(id(argument), NOTHING)
            if index < len(params):
                self._define(inner, params[index], named[params[index]], values)
        for keyword in node.keywords:
            values = self._values.get(id(keyword.value), NOTHING)
            if keyword.arg in named:
                self._define(inner, keyword.arg, named[keyword.arg], values)
            elif keyword.arg is None:
                for name, arg in named.items():
                    if name in params and (given := self._item(values, name)):
                        self._define(inner, name, arg, given)
            elif args.kwarg is not None:
                collection = Coll(id(args.kwarg))
                self._set_field(collection, f"[{keyword.arg}]", keyword.value, values)
                self._define(inner, args.kwarg.arg, args.kwarg, [collection])
        return frozenset(self._returns[func.scope])

    # Questions

    def values(self, node: ast.AST) -> Values:
        """What an expression may be."""
        return self._values.get(id(node), NOTHING)

    def call(self, node: ast.AST) -> Call | None:
        return self._calls.get(id(node))

    @cached_property
    def calls(self) -> list[Call]:
        """Every call of the project, in source order."""
        return sorted(self._calls.values(), key=lambda call: self.order[id(call.node)])

    def node(self, site: int) -> ast.AST:
        """The node that makes a value."""
        return self.nodes[site]

    def definitions(self, name: ast.AST) -> list[ast.AST]:
        """The statements whose assignment to a name (or ``self.x``) can reach its use."""
        if isinstance(name, ast.Name):
            scope: Scope | None = self._owner(self.scope(name), name.id)
            while scope is not None:
                entries = self._definitions.get((scope.index, name.id))
                if entries:
                    nodes = [self._definition_nodes[key] for key in entries]
                    own = scope is self.scope(name)
                    return self.reaching(nodes, name) if own else nodes
                scope = scope.parent
        if isinstance(name, ast.Attribute):
            found = []
            for owner in self.values(name.value):
                key = owner.cls if isinstance(owner, Inst) else owner
                found += [self._definition_nodes[entry] for entry in self._field(key, name.attr)]
            # An earlier call may have set it, where the method that asks for it does not always do so before.
            near = [node for node in found if self.scope_of.get(id(node)) is self.scope(name)]
            reached, around = self.reaching(near, name), [name, *self.ancestors(name)]
            return reached if any(self._hides(self._holder(it), around) for it in reached) else found
        return []

    def variable(self, name: ast.Name) -> list[ast.AST]:
        """All that gives a name its value, wherever it stands: other functions may say ``global`` or ``nonlocal``."""
        scope: Scope | None = self._owner(self.scope(name), name.id)
        while scope is not None:
            if entries := self._definitions.get((scope.index, name.id)):
                return [self._definition_nodes[key] for key in entries]
            scope = scope.parent
        return []

    def exported(self, path: Path, name: str) -> list[ast.AST]:
        """What gives a file's name its values when it is imported."""
        module = self.modules.get(path)
        entries = self._definitions.get((module.index, name), {}) if module is not None else {}
        return [self._definition_nodes[key] for key in entries]

    def parameter_values(self, scope: Scope, name: str) -> Values:
        """What a parameter may be given."""
        return frozenset().union(*self._definitions.get((scope.index, name), {}).values())

    def given(self, parameter: ast.arg) -> list[ast.expr]:
        """What the calls of a function give a parameter, its default included; empty where one can't be seen."""
        scope = self.scope(parameter)
        args = scope.node.args  # type: ignore[attr-defined]
        every = [*args.posonlyargs, *args.args]
        pairs = [*zip(reversed(every), reversed(args.defaults), strict=False)]
        pairs += zip(args.kwonlyargs, args.kw_defaults, strict=True)
        default = next((default for arg, default in pairs if arg is parameter), None)
        found: list[ast.expr | None] = []
        for call in self.calls:
            for callee in call.callees:
                func = callee.func if isinstance(callee, Bound) else callee
                if isinstance(callee, Cls | Inst):
                    names = ("__init__",) if isinstance(callee, Cls) else ("__call__", "forward")
                    made = Inst(callee, id(call.node)) if isinstance(callee, Cls) else callee
                    entered = set().union(*(self.methods(made, name, call.node) for name in names))
                    bound = True
                else:
                    entered, bound = {func.scope} if isinstance(func, Func) else set(), isinstance(
                        callee, Bound
                    )
                if scope.index not in entered:
                    continue
                if any(isinstance(it, ast.Starred) for it in call.node.args) or any(
                    keyword.arg is None for keyword in call.node.keywords
                ):
                    return []
                position = every.index(parameter) - bound if parameter in every else None
                if position == -1:
                    return []  # the object whose method it is
                found.append(call.argument(parameter.arg, position) or default)
        return list(dict.fromkeys(it for it in found if it is not None))

    def fields(self, owner: Inst) -> Iterator[tuple[str, Values]]:
        """The attributes of an object, with their values."""
        for base in self.bases(owner.cls):
            for name, entries in self._fields.get(base, {}).items():
                yield name, frozenset().union(*entries.values())

    def module_names(self, module: Scope) -> Iterator[tuple[str, Values]]:
        """The names of a module, with their values."""
        for (index, name), entries in self._definitions.items():
            if index == module.index:
                yield name, frozenset().union(*entries.values())

    def contents(self, values: Values) -> Values:
        """Values with all that they hold: elements of containers, at any depth."""
        found = set(values)
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            if isinstance(value, Coll):
                for entries in self._fields.get(value, {}).values():
                    new = set().union(*entries.values()) - found
                    found |= new
                    waiting += new
        return frozenset(found)

    def called_scopes(self, node: ast.AST) -> set[int]:
        """The functions that running a piece of code may enter directly."""
        found: set[int] = set()
        for inner in self.descendants(node):
            call = self._calls.get(id(inner))
            if call is not None:
                found |= self._entered(call)
        return found

    def _entered(self, call: Call) -> set[int]:
        found: set[int] = set()
        passed = [value for argument in handed(call.node) for value in self.values(argument)]
        outside = any(isinstance(callee, Ext | Member | Made) for callee in call.callees)
        for value in (*call.callees, *(passed if outside else ())):
            match value:
                case Func():
                    found.add(value.scope)
                case Bound():
                    found.add(value.func.scope)
                case Cls():
                    found |= self.methods(Inst(value, id(call.node)), "__init__", call.node)
                case Inst() if value in call.callees:
                    found |= self.methods(value, "__call__", call.node) | self.methods(
                        value, "forward", call.node
                    )
                case Made(name="functools.partial"):
                    found |= self._partial(value)
        return found

    def _partial(self, made: Made) -> set[int]:
        """The functions behind ``functools.partial(function, …)``."""
        found: set[int] = set()
        for value in self._argument_values(made, 0):
            function = value.func if isinstance(value, Bound) else value
            found |= {function.scope} if isinstance(function, Func) else set()
        return found

    def targets(self, callee: object, call: Call) -> Iterator[tuple[int, Value | None, bool]]:
        """The functions behind a callee, the object of each, and whether that is its first parameter."""
        match callee:
            case Func():
                yield callee.scope, None, False
            case Bound():
                marks = getattr(self.scopes[callee.func.scope].node, "decorator_list", ())
                yield callee.func.scope, callee.owner, "staticmethod" not in map(ast.unparse, marks)
            case Cls():
                made = Inst(callee, id(call.node))
                yield from ((it, made, True) for it in self.methods(made, "__init__", call.node))
            case Inst():
                called = self.methods(callee, "__call__", call.node)
                called = called or self.methods(callee, "forward", call.node)
                yield from ((it, callee, True) for it in called)

    def methods(self, owner: Inst, name: str, node: ast.AST) -> set[int]:
        """The functions behind an object's method, at a place."""
        return {value.func.scope for value in self._member(owner, name, node) if isinstance(value, Bound)}

    def entered(self, node: ast.AST) -> set[int]:
        """The functions that running a piece of code may enter, at any depth."""
        found: set[int] = set()
        waiting = self.called_scopes(node)
        while waiting:
            index = waiting.pop()
            if index not in found:
                found.add(index)
                for statement in self.scopes[index].body:
                    waiting |= self.called_scopes(statement) - found
        return found


def handed(node: ast.Call) -> list[ast.expr]:
    """All that a call is given, by place and by name."""
    return [*node.args, *(keyword.value for keyword in node.keywords)]


def is_runtime(names: set[str]) -> bool:
    """Whether what is called is of the runtime, by all its names."""
    return bool(names) and all(name.startswith("dp2ddp.runtime.") for name in names)


def _asks_for_wrap(test: ast.expr) -> bool:
    """``hasattr(model, "module")`` and ``isinstance(model, nn.DataParallel)``."""
    match test:
        case ast.Call(func=ast.Name(id="hasattr"), args=[_, ast.Constant(value="module")]):
            return True
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, kind]):
            return "DataParallel" in ast.unparse(kind)
    return False


def _is_string(node: ast.expr) -> bool:
    """``"name"``, ``f"{name}"`` and ``"{}".format(name)``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "format" and _is_string(node.func.value)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_tensor(name: str) -> bool:
    """Whether a call returns a tensor or array, or ends a chain: nobody asks who those are, and they multiply."""
    parts = name.split(".")
    function = parts[0] == "torch" and len(parts) == 2 and parts[1] not in ("load", "device", "Generator")
    array = parts[0] == "numpy" and "random" not in parts
    if function or array or name.startswith(("torch.nn.functional.", "torch.autograd.")):
        return True
    # A method of its own result, in a loop or in functions that call each other, makes chains without end.
    return len(parts) > 8 or (parts[-1] in parts[2:-1] and parts[0] != "pathlib")


def _run_with(node: ast.AST) -> Iterator[ast.AST]:
    """The children of a node that run when it does."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults))
    elif isinstance(node, ast.Lambda):
        yield from (*node.args.defaults, *filter(None, node.args.kw_defaults))
    else:
        yield from ast.iter_child_nodes(node)


def _canonical(name: str) -> str:
    if name.startswith("torch.nn.modules.") and name.count(".") > 3:
        name = "torch.nn." + name.split(".", 4)[4]
    for known, canonical in CANONICAL.items():
        if name == known or name.startswith(known + "."):
            return canonical + name[len(known) :]
    return name
