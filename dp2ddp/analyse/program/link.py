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
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heappop, heappush
from itertools import islice
from pathlib import Path

from dp2ddp.plan import Anchor
from dp2ddp.source import Import, Location, Project, SourceFile, span_of
from dp2ddp.texts import ANY, matches

CANONICAL = {
    "torch.nn.modules.Module": "torch.nn.Module",
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
# The methods in which DataParallel deals a batch to its replicas.
STEPS = ("replicate", "scatter", "gather", "parallel_apply")
# The functions that torch has for that, by the names of the runtime's.
STEP_FUNCTIONS = {
    "torch.nn.parallel.replicate": "replicate",
    "torch.nn.parallel.replicate.replicate": "replicate",
    "torch.nn.parallel.data_parallel.replicate": "replicate",
    "torch.nn.parallel.scatter": "scatter",
    "torch.nn.parallel.scatter_gather.scatter": "scatter",
    "torch.nn.parallel.scatter_gather.scatter_kwargs": "scatter_kwargs",
    "torch.nn.parallel.data_parallel.scatter_kwargs": "scatter_kwargs",
    "torch.nn.parallel.parallel_apply": "parallel_apply",
    "torch.nn.parallel.parallel_apply.parallel_apply": "parallel_apply",
    "torch.nn.parallel.data_parallel.parallel_apply": "parallel_apply",
    "torch.nn.parallel.gather": "gather",
    "torch.nn.parallel.scatter_gather.gather": "gather",
    "torch.nn.parallel.data_parallel.gather": "gather",
}
# Classes outside of torch that derive from DataParallel; the end of the name, where projects hold copies of them.
DERIVED = {
    "torch_geometric.nn.DataParallel",
    "torch_geometric.nn.data_parallel.DataParallel",
    "sync_batchnorm.DataParallelWithCallback",
    "sync_batchnorm.replicate.DataParallelWithCallback",
}
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
    "dp2ddp.runtime.share",
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
# Where options come from: what reads the command line or a file of settings, and the objects that hold them.
GIVEN = "command line.option"
OPTIONS = (
    GIVEN,
    "absl.flags.",
    "addict.",
    "argparse.",
    "attrdict.",
    "box.",
    "configargparse.",
    "configparser.",
    "docopt.",
    "easydict.",
    "json.",
    "jsonargparse.",
    "ml_collections.",
    "munch.",
    "omegaconf.",
    "pyhocon.",
    "toml.",
    "tomllib.",
    "types.SimpleNamespace",
    "tyro.",
    "yacs.",
    "yaml.",
)
# Classes of lists, and those whose objects are dictionaries, or hold by attribute what they are given by name.
LISTS = {"builtins.list", "collections.deque", "builtins.set"}
DICTIONARIES = {
    "addict.Dict",
    "argparse.Namespace",
    "box.Box",
    "builtins.dict",
    "collections.OrderedDict",
    "collections.defaultdict",
    "easydict.EasyDict",
    "ml_collections.ConfigDict",
    "munch.Munch",
    "munch.munchify",
    "types.SimpleNamespace",
}
TABLE_METHODS = frozenset("add append copy extend get insert items pop setdefault update values".split())
# The methods that making an object runs.
CONSTRUCTING = ("__init__", "__new__", "__post_init__")
PROPERTIES = {"builtins.property", "functools.cached_property"}
RECORDS = {"dataclasses.dataclass", "attr.s", "attrs.define", "typing.NamedTuple", "pydantic.BaseModel"}
# What imports a module by its name.
IMPORTING = {"importlib.import_module", "builtins.__import__"}
# What is given functions and classes, and calls none of them.
ASKING = ("inspect.", "typing.", "functools.update_wrapper", "functools.wraps") + tuple(
    f"builtins.{name}"
    for name in (
        "callable",
        "getattr",
        "hasattr",
        "id",
        "isinstance",
        "issubclass",
        "len",
        "print",
        "setattr",
        "type",
    )
)
# What runs a module of the project as a program, and returns its names.
RUNS_MODULES = ("run_path", "run_module")
RUNS = {f"runpy.{name}" for name in RUNS_MODULES}
LOADING = IMPORTING | RUNS
LOADING |= {
    "imp.load_source",
    "importlib.util.spec_from_file_location",
    "importlib.machinery.SourceFileLoader",
}
# What lets the command line choose among the functions that it is given, and calls them.
COMMANDS = {
    "argh.dispatch_command",
    "argh.dispatch_commands",
    "clize.run",
    "defopt.run",
    "fire.Fire",
    "fire.core.Fire",
    "jsonargparse.CLI",
    "jsonargparse.auto_cli",
    "plac.call",
    "typer.run",
    "tyro.cli",
}
# Decorators that call the function they are given.
RUNNING_DECORATORS = {"sacred.Experiment.automain"}
# Decorators whose functions are given options; the configuration that one gives.
OFFERED = ("click.", "cyclopts.", "rich_click.", "sacred.", "typer.")
CONFIGURED = {"hydra.main": "omegaconf.DictConfig"}


# How many attributes, elements and calls from something outside the project are followed: a value that goes round in
# a circle would have another name each time.
FARTHEST = 4
# Attributes of how many things from outside the project one expression may be before it is unknown.
MOST = 24


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


@dataclass(frozen=True)
class Names:
    """The names of a module, function, class or object as a dictionary: ``globals()``, ``vars(x)``, ``x.__dict__``."""

    owner: Value


Value = Ext | Mod | Func | Cls | Inst | Bound | Made | Member | Coll | Const | Names
Values = frozenset[Value]
NOTHING: Values = frozenset()
# What is the project's own: what a name may be of which nothing is known.
OWN = Mod | Func | Cls | Inst | Bound | Coll
UNKNOWN = frozenset([ANY])


@dataclass(frozen=True)
class Arguments:
    """What something is called with: by place, up to ``rest`` that ``*x`` hands out; by name; what ``**x`` is."""

    places: tuple[tuple[ast.AST, Values], ...] = ()
    rest: tuple[ast.AST, Values] | None = None
    names: tuple[tuple[str, ast.AST, Values], ...] = ()
    dictionaries: tuple[Values, ...] = ()

    def after(self, first: Arguments) -> Arguments:
        """These arguments behind others."""
        if first.rest is not None:
            return Arguments(first.places, first.rest, first.names + self.names)
        return Arguments(
            first.places + self.places,
            self.rest,
            first.names + self.names,
            first.dictionaries + self.dictionaries,
        )


class Ordered(frozenset[Value]):
    """Values that are gone through in the order of the source, not by where they lie in memory."""

    order: tuple[Value, ...]

    @classmethod
    def of(cls, values: Collection[Value]) -> Ordered:
        """Distinct values in the order in which they are given."""
        made = cls(values)
        made.order = tuple(values)
        return made

    def __iter__(self) -> Iterator[Value]:
        return iter(self.order)


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

    @cached_property
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

    @cached_property
    def names(self) -> frozenset[str]:
        """Full names of the callees outside the project; calling an object is calling its ``__call__``."""
        return frozenset(
            f"{name}.__call__" if isinstance(callee, Made) else name
            for callee in self.callees
            if (name := full_name(callee))
        )


def full_name(value: Value) -> str:
    """``torch.nn.DataParallel`` for the class, ``torch.nn.DataParallel.state_dict`` for a method of its object."""
    if isinstance(value, Ext | Made):
        return value.name
    if isinstance(value, Member):
        owner = full_name(value.owner)
        return f"{owner}.{value.name}" if owner else ""
    return ""


@dataclass
class _Definitions:
    """What gives one name its values, in source order: ``nodes`` with their ``orders``; ``inside`` comprehensions."""

    nodes: list[ast.AST] = field(default_factory=list)
    orders: list[int] = field(default_factory=list)
    inside: dict[int, ast.AST] = field(default_factory=dict)
    count: int = 0


@dataclass(frozen=True)
class _Around:
    """What stands round a place, inside out, with the place of each, the blocks that it is in, and the loops."""

    nodes: list[ast.AST]
    places: dict[int, int]
    blocks: set[int]
    loops: list[ast.AST]

    @classmethod
    def whole(cls, node: ast.AST, body: ast.AST) -> _Around:
        """Where a body has run to its end, in none of its blocks; ``node`` is something in it."""
        return cls([node, body], {id(node): 0, id(body): 1}, set(), [])


def closure(values: Values, after: Callable[[Value], Iterable[Value]]) -> Values:
    """Values with all that ``after`` leads to from them."""
    found: dict[Value, None] = {}
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if value not in found:
            found[value] = None
            waiting += after(value)
    return Ordered.of(found)


def is_derived(name: str) -> bool:
    """Whether a class outside the project is known to derive from DataParallel, by its full name."""
    return any(name == known or name.endswith(f".{known}") for known in DERIVED)


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
        self.misplaced: list[ast.stmt] = []
        """Statements that hold an anchored expression whose position is not known."""
        self._blocks: dict[int, list[ast.stmt]] = {}
        self._ends: dict[int, int] = {}
        self._base_nodes: set[int] = set()
        self.wrappers: frozenset[Cls] = frozenset()
        """The classes of the project whose objects are DataParallels."""
        self._forget()
        for file in self.files:
            self._collect(file.tree, file, None)
        self._link()
        if wrappers := frozenset(self._wrapping()):
            self._forget()
            self.wrappers = wrappers
            self._link()

    def _forget(self) -> None:
        """What linking finds out."""
        self._definitions: dict[tuple[int, str], dict[int, set[Value]]] = defaultdict(dict)
        self._definition_nodes: dict[int, ast.AST] = {}
        self._fields: dict[Value, dict[str, dict[int, set[Value]]]] = defaultdict(dict)
        self._returns: dict[int, set[Value]] = defaultdict(set)
        self._values: dict[int, Values] = {}
        self._calls: dict[int, Call] = {}
        self._changed = False
        self._running_scope: int | None = None
        self._readers: dict[object, set[int]] = defaultdict(set)
        """The functions that have read something: a name's definitions, an attribute, what is returned, an argument."""
        self._stale: set[int] = set()
        """The functions that have read what has changed since; those that stand first are run first."""
        self._queue: list[int] = []
        self._in_order: dict[tuple[int, str], _Definitions] = {}
        self._kept: dict[tuple[int, int, str], tuple[int, list[int]]] = {}
        self._asked_for_wraps = False
        self._found: dict[int, list[ast.AST]] = {}
        self._running: dict[int, tuple[ast.AST, ...]] = {}
        self._entering: dict[int, frozenset[int]] = {}
        self._entering_of: dict[int, frozenset[int]] = {}
        self._entering_deep: dict[frozenset[int], frozenset[int]] = {}
        self._wrappers: dict[int, set[int]] = defaultdict(set)
        self._put_in_place: set[tuple[int, Value]] = set()
        self._held: dict[Value, set[Value]] = defaultdict(set)
        self._implicit: dict[int, set[int]] = defaultdict(
            set
        )  # the functions that other nodes than calls enter
        self._getters: dict[int, set[Bound]] = defaultdict(set)
        self._groups: set[Value] = set()  # functions that packages for command lines make commands of
        self._returning: dict[int, bool] = {}
        self._asked: dict[int, bool] = {}
        self._unseen: set[int] = set()  # functions that something else than a call calls
        self._known_texts: dict[int, frozenset[str]] = {}
        self._families: dict[Cls, list[Value]] = {}
        self._subclasses: dict[Value, list[Cls]] = {}
        self._supers: dict[int, Values] = {}
        """The objects that calls of ``super()`` stand for."""
        self._derivation: dict[str, int] = {}
        """The names of what calls make of what came of other calls, with the steps from the first one."""

    # Structure

    def _collect(self, tree: ast.Module, file: SourceFile, parent: Scope | None) -> None:
        scope = self._scope(tree, file, parent)
        self.modules[file.path] = scope
        self._walk(tree, scope, file)

    def _scope(self, node: ast.AST, file: SourceFile, parent: Scope | None) -> Scope:
        scope = Scope(len(self.scopes), node, file, parent)
        self.scopes.append(scope)
        self.by_node[id(node)] = scope
        if isinstance(node, ast.Lambda):
            (returned,) = scope.body
            self.scope_of[id(returned)], self.file_of[id(returned)] = scope, file
            self.parents[id(returned)] = node
        return scope

    def _walk(self, tree: ast.AST, scope: Scope, file: SourceFile) -> None:
        waiting = [(child, tree, scope) for child in reversed(self._children(tree))]
        walked = []
        while waiting:
            node, parent, scope = waiting.pop()
            self.parents[id(node)] = parent
            self.nodes[id(node)] = node
            self.order[id(node)] = len(self.order)
            self.scope_of[id(node)] = scope
            self.file_of[id(node)] = file
            walked.append(node)
            inner = self._bound_by(node, scope, file)
            waiting += [(child, node, inner) for child in reversed(self._children(node))]
        for node in reversed(walked):
            end = self._ends.setdefault(id(node), self.order[id(node)])
            around = id(self.parents[id(node)])
            self._ends[around] = max(end, self._ends.get(around, end))

    def _children(self, node: ast.AST) -> list[ast.AST]:
        """What a node is made of; the blocks of statements among that are noted."""
        found: list[ast.AST] = []
        for _, value in ast.iter_fields(node):
            if isinstance(value, ast.AST):
                found.append(value)
            elif isinstance(value, list):
                found += (it for it in value if isinstance(it, ast.AST))
                if value and isinstance(value[0], ast.stmt):
                    self._blocks.update((id(it), value) for it in value)
        return found

    def _bound_by(self, node: ast.AST, scope: Scope, file: SourceFile) -> Scope:
        """Note the names that a node binds. Returns the scope of what stands in it."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            if not isinstance(node, ast.Lambda):
                scope.names.add(node.name)
            inner = self._scope(node, file, scope)
            if isinstance(node, ast.ClassDef):
                self._base_nodes.update(map(id, node.bases))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                inner.names.update(arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg))
            return inner
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            scope.names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                scope.names.add(alias.asname or alias.name.partition(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            scope.names.add(node.name)
        elif isinstance(node, ast.Global):
            scope.globals.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            scope.nonlocals.update(node.names)
        return scope

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self.parents.get(id(node))

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """What stands round a node, inside out."""
        parents = self.parents
        current = parents.get(id(node))
        while current is not None:
            yield current
            current = parents.get(id(current))

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
        return self._blocks[id(statement)]

    def anchor(self, node: ast.AST) -> Anchor:
        file = self.file(node)
        if not self.is_placed(node):
            self.misplaced.append(self.statement(node))
        return Anchor(file.path, "stmt" if isinstance(node, ast.stmt) else "expr", span_of(node, file))

    def node_at(self, at: Anchor) -> ast.stmt | ast.expr | None:
        """The node that an anchor stands for."""
        kind = ast.stmt if at.kind == "stmt" else ast.expr
        found = (it for it in self.nodes.values() if isinstance(it, kind) and it.lineno == at.span.line)
        return next((it for it in found if self.file(it).path == at.path and self.anchor(it) == at), None)

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
        running, waiting = self._running, [node]
        while waiting:
            current = waiting.pop()
            yield current
            below = running.get(id(current))
            if below is None:
                below = tuple(_run_with(current))[::-1]
                if id(current) in self.nodes:  # else it may go, and another one may be where it was
                    running[id(current)] = below
            waiting += below

    def body(self, scope: Scope) -> Iterator[ast.AST]:
        """All nodes that run when a module, class or function runs."""
        for statement in scope.body:
            yield from self.descendants(statement)

    # Linking

    def _link(self) -> None:
        """Run every function again and again until nothing new comes of it: first those that read what has changed."""
        for _ in range(50):
            self._changed = False
            self._families, self._subclasses = {}, {}  # more bases may be known now
            for scope in self.scopes:
                self._run(scope)
            if not self._changed:
                break
            budget = 100 * len(
                self.scopes
            )  # runs; what is not seen by then is seen in the next round, or not at all
            while self._queue and budget:
                budget -= 1
                index = heappop(self._queue)
                if index in self._stale:
                    self._run(self.scopes[index])
        self._running_scope = None
        self._readers.clear()
        self._stale.clear()
        for key, call in self._calls.items():
            if len(call.callees) > 1:
                self._calls[key] = Call(call.node, call.scope, self.ordered(call.callees))

    def _run(self, scope: Scope) -> None:
        self._stale.discard(scope.index)
        self._running_scope = scope.index
        for statement in scope.body:
            self._execute(statement, scope)

    def _read(self, key: object) -> None:
        """Note what the function that is run depends on."""
        if self._running_scope is not None:
            self._readers[key].add(self._running_scope)

    def _wrote(self, key: object) -> None:
        for index in self._readers.get(key, NOTHING) - self._stale:  # type: ignore[operator]
            self._stale.add(index)
            heappush(self._queue, index)

    def _wrapping(self) -> Iterator[Cls]:
        """The classes that derive from DataParallel, and modules that do with replicas what it does."""
        for scope in self.scopes:
            if scope.is_class:
                cls = Cls(scope.index)
                names = {full_name(base) for base in self.bases(cls)}
                if WRAP in names or any(map(is_derived, names)) or self._replicates(cls):
                    yield cls

    def _replicates(self, cls: Cls) -> bool:
        """Whether a class is a copy of torch's own: a module whose methods make replicas, and run them."""
        if Ext("torch.nn.Module") not in self.bases(cls):
            return False
        functions = [it for it in self.scopes if it.owner == cls]
        calls = (
            self._calls.get(id(node))
            for it in functions
            for node in self.body(it)
            if isinstance(node, ast.Call)
        )
        steps = {STEP_FUNCTIONS.get(name) for call in calls if call is not None for name in call.names}
        return {"replicate", "parallel_apply"} <= steps

    def _grow(self, target: set[Value], values: Iterable[Value], key: object) -> None:
        before = len(target)
        target.update(values)
        if len(target) != before:
            self._changed = True
            self._wrote(key)

    def _define(self, scope: Scope, name: str, node: ast.AST, values: Iterable[Value]) -> None:
        self._give((self._owner(scope, name).index, name), node, values)

    def _give(self, key: tuple[int, str], node: ast.AST, values: Iterable[Value]) -> None:
        """Have a node give a name of a scope some values."""
        entries = self._definitions[key]
        if id(node) not in entries:
            self._definition_nodes[id(node)] = node
            entries[id(node)] = set()
            self._wrote(key)
        self._grow(entries[id(node)], values, key)

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
                self._define(scope, node.name, node, self._decorated(node, Func(inner.index)))
                self._defaults(node.args, inner, scope)
            case ast.ClassDef():
                for expression in (*node.bases, *node.decorator_list, *(k.value for k in node.keywords)):
                    self._evaluate(expression, scope)
                made = Cls(self.by_node[id(node)].index)
                self._announced(node, made)
                self._define(scope, node.name, node, self._decorated(node, made))
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
                self._enter_by(node, values, "__iter__", "__next__")
                self._assign_each(node.target, values, node.iter, scope, node)
                self._execute_all(node.body, scope)
                self._execute_all(node.orelse, scope)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    values = self._evaluate(item.context_expr, scope)
                    values |= self._enter_by(node, values, "__enter__", "__exit__")
                    if item.optional_vars is not None:
                        self._assign(item.optional_vars, values, scope, node)
                self._execute_all(node.body, scope)
            case ast.Return():
                if node.value is not None:
                    values = self._evaluate(node.value, scope)
                    self._grow(self._returns[scope.index], values, ~scope.index)
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
        outside = self.project.runtime(scope.file.path, whole) or _canonical(whole)
        self._define(scope, bound, alias, [Mod(found) if found else Ext(outside)])

    def _import_from(self, node: ast.ImportFrom, alias: ast.alias, scope: Scope) -> None:
        path = scope.file.path
        found = self.project.resolve(path, node.module or "", node.level)
        copied = self.project.runtime(path, node.module or "", node.level)
        if alias.name == "*":
            source: str | Path | None = found or copied or node.module
            if source and source not in scope.stars:
                scope.stars.append(source)
                self._changed = True
                self._wrote(("*", scope.index))
            return
        full = f"{node.module}.{alias.name}" if node.module else alias.name
        submodule = self.project.resolve(path, full, node.level)
        values: set[Value] = set()
        if found:
            values |= self._global(found, alias.name)
        if submodule and not values:
            values.add(Mod(submodule))
        copied = f"{copied}.{alias.name}" if copied else self.project.runtime(path, full, node.level)
        if copied:
            values.add(Ext(copied))
        elif not found and not submodule and not node.level:
            values.add(Ext(_canonical(full)))
        self._define(scope, alias.asname or alias.name, alias, values)

    def _global(self, path: Path, name: str, seen: frozenset[Path] = frozenset()) -> Values:
        """The values of a module's name, star imports included."""
        module = self.modules.get(path)
        if module is None or path in seen:
            return NOTHING
        self._read((module.index, name))
        if (module.index, name) in self._definitions:
            return frozenset().union(*self._definitions[module.index, name].values())
        return self._starred(module, name, seen | {path})

    def _starred(self, module: Scope, name: str, seen: frozenset[Path]) -> Values:
        self._read(("*", module.index))
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

    def _assign_each(
        self, target: ast.expr, values: Values, iterated: ast.expr, scope: Scope, at: ast.AST
    ) -> None:
        """Give a loop's variables what is gone through; what ``enumerate`` and ``zip`` pair, each its own."""
        each = self._elements(values)
        call = self._calls.get(id(iterated))
        parts = (
            call.node.args if call is not None and call.names & {"builtins.zip", "builtins.enumerate"} else []
        )
        if "builtins.enumerate" in (call.names if call is not None else ()):
            parts = [ast.Constant(0), *parts[:1]]
        if not isinstance(target, ast.Tuple) or len(target.elts) != len(parts):
            self._assign(target, each, scope, at)
            return
        for index, (element, part) in enumerate(zip(target.elts, parts, strict=True)):
            own = frozenset(it for it in self._elements(self.values(part)) if isinstance(it, OWN))
            self._assign(element, self._item(each, str(index)) | own, scope, at)

    def _enter_by(self, node: ast.AST, values: Values, *names: str) -> Values:
        """Know the methods of objects that a statement runs. Returns what the first one returns."""
        found: set[Value] = set()
        for value in values:
            for name in names if isinstance(value, Inst) else ():
                methods = (it for it in self._member(value, name, node) if isinstance(it, Bound))
                for method in methods:  # type: ignore[arg-type]
                    self._implicit[id(node)].add(method.func.scope)
                    returned = self._invoke(method.func, value, Arguments(), False)
                    found |= returned if name == names[0] else NOTHING
        return frozenset(found)

    def _set_field(self, owner: Value, name: str, node: ast.AST, values: Iterable[Value]) -> None:
        if isinstance(owner, Inst):
            owner = owner.cls  # one set of fields for all objects of a class
        if isinstance(owner, Names):
            inner = owner.owner.cls if isinstance(owner.owner, Inst) else owner.owner
            text = name.removeprefix("[").removesuffix("]")
            owner, name = (inner, text) if text.isidentifier() else (Names(inner), text)
        if isinstance(owner, Mod):
            if owner.path in self.modules:  # else it has nothing to do with what is linked
                self._give((self.modules[owner.path].index, name), node, values)
        elif not isinstance(owner, Const | Ext | Func | Bound):
            self._definition_nodes[id(node)] = node
            entries = self._fields[owner].setdefault(name, {})
            before = len(entries), len(entries.get(id(node), ()))
            self._grow(entries.setdefault(id(node), set()), values, (owner, name))
            if before != (len(entries), len(entries[id(node)])):
                self._wrote((owner, name))
                self._wrote((owner, "[") if name.startswith("[") else None)

    def _field(self, owner: Value, name: str) -> dict[int, set[Value]]:
        self._read((owner, name))
        return self._fields.get(owner, {}).get(name, {})

    def _item(self, values: Values, key: str) -> Values:
        found: set[Value] = set()
        for value in self._behind(values):
            for name in (f"[{key}]", "[*]"):
                for holder in self._holders(value):
                    for entry in self._field(holder, name).values():
                        found |= entry
            if isinstance(value, Made) and value.name not in ITERATORS:
                found |= self._part(value, "[]")
        return frozenset(found)

    def _elements(self, values: Values) -> Values:
        found: set[Value] = set()
        for value in self._behind(values):
            for holder in self._holders(value):
                self._read((holder, "["))
                for name, entries in self._fields.get(holder, {}).items():
                    if name.startswith("["):
                        found.update(*entries.values())
            if isinstance(value, Made) and value.name not in ITERATORS:
                found |= self._part(value, "[]")
            elif isinstance(value, Cls) and any(map(_is_enumeration, self.bases(value))):
                found.add(Inst(value, id(self.scopes[value.scope].node)))
        return frozenset(found)

    def _holders(self, value: Value) -> list[Value]:
        """Whose fields hold the elements of a value."""
        return self.bases(value.cls) if isinstance(value, Inst) else [value]

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
        self._read(id(call.node.args[position]))
        return self._values.get(id(call.node.args[position]), NOTHING)

    def _evaluate(self, node: ast.expr, scope: Scope) -> Values:
        values = self._compute(node, scope)
        before = self._values.get(id(node), NOTHING)
        if not values <= before:
            self._values[id(node)] = before | values
            self._changed = True
            self._wrote(id(node))
            if id(node) in self._base_nodes:
                self._families, self._subclasses = {}, {}
                self._wrote("bases")
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
                found = frozenset().union(*(self._attribute(owner, node.attr, node) for owner in owners))
                return self._fewer(found)
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
                found = self._subscripted(owners, node, scope)
                return found or frozenset().union(
                    *(self._part(owner, "[]") for owner in owners if isinstance(owner, Made))
                )
            case ast.Starred() | ast.Await():
                return self._evaluate(node.value, scope)
            case ast.Lambda():
                inner = self.by_node[id(node)]
                self._grow(self._returns[inner.index], self._evaluate(node.body, inner), ~inner.index)
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
            self._assign_each(generator.target, values, generator.iter, scope, node)
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
            self._read((owner.index, name))
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
        known = self._sorted((owner.index, name))
        key = id(use) if same else 0, owner.index, name
        size, kept = self._kept.get(key, (0, []))
        if size != len(definitions):
            self._asked_for_wraps = False
            kept = [id(it) for it in (self._reached(known, use) if same else self.surviving(known.nodes))]
            if not self._asked_for_wraps:  # else more may be known in the next round
                self._kept[key] = len(definitions), kept
        return frozenset().union(*(definitions[it] for it in kept))

    def _sorted(self, key: tuple[int, str]) -> _Definitions:
        """What gives a name of a scope its values, in source order."""
        definitions = self._definitions.get(key, {})
        known = self._in_order.setdefault(key, _Definitions())
        if known.count < len(definitions):
            self._add(known, (self._definition_nodes[it] for it in islice(definitions, known.count, None)))
        return known

    def _add(self, known: _Definitions, definitions: Iterable[ast.AST]) -> _Definitions:
        for node in definitions:
            known.count += 1
            order = self.order.get(id(node), 0)
            comprehension = self._comprehension_of(node)
            if comprehension is not None:
                other = known.inside.setdefault(id(comprehension), node)
                if self.order.get(id(other), 0) > order:
                    known.inside[id(comprehension)] = node
            else:
                place = bisect_right(known.orders, order)
                known.orders.insert(place, order)
                known.nodes.insert(place, node)
        return known

    def reaching(self, definitions: Iterable[ast.AST], use: ast.AST) -> list[ast.AST]:
        """The definitions of one name that can reach a use in the same body.

        An assignment in a block that also holds the use hides all that come before it; later ones count only
        round a loop that holds both, and where nothing in that loop hides them again before the use.
        """
        return self._reached(self._add(_Definitions(), definitions), use)

    def _reached(self, known: _Definitions, use: ast.AST) -> list[ast.AST]:
        around = self._around([use, *self.ancestors(use)])
        if known.inside:
            own = [known.inside[it] for it in around.places if it in known.inside]
            if own:
                return [min(own, key=lambda node: self.order[id(node)])]
        current = self.statement(use) if not isinstance(use, ast.stmt) else use
        starts = isinstance(current, ast.For | ast.With | ast.AsyncFor | ast.AsyncWith)
        after = bisect_right(known.orders, self.order.get(id(use), 0))
        kept: list[ast.AST] = []
        again: list[ast.AST] = []
        hiding: ast.AST | None = None
        branches = self._other_branches(around)
        branch = next(branches, None)
        for place in range(after - 1, -1, -1):
            node, at = known.nodes[place], known.orders[place]
            holder = self._holder(node)
            if holder is current and not starts:
                again.append(node)  # `x = f(x)`: the right side is evaluated first
                continue
            while branch is not None and at < branch[0]:
                branch = next(branches, None)
            if branch is not None and at <= branch[1]:
                continue
            attempt = self._attempt(holder, around)
            if attempt is not None:
                first = bisect_right(known.orders, self.order[id(attempt)])
                within = [it for it in known.nodes[first : place + 1] if self._holder(it) is not current]
                if self._is_made_in_all(attempt, list(map(self._holder, within))):
                    kept += reversed(within)
                    hiding = attempt
                    break
            kept.append(node)
            if self._hides(holder, around):
                hiding = holder
                break
        hidden = {id(outer) for outer in self.ancestors(hiding)} if hiding is not None else set()
        loop = next((it for it in reversed(around.loops) if id(it) not in hidden), None)
        kept.reverse()
        if loop is not None:
            first, end = self.order[id(loop)], self._ends[id(loop)]
            kept += [it for it in reversed(again) if first < self.order[id(it)] <= end]
            kept += known.nodes[after : bisect_right(known.orders, end)]
        return kept

    def surviving(self, definitions: Iterable[ast.AST]) -> list[ast.AST]:
        """The definitions of one name that may hold when the body that makes them has run."""
        kept: dict[int, list[ast.AST]] = {}
        for node in sorted(definitions, key=lambda node: self.order.get(id(node), 0)):
            scope = self.scope_of.get(id(node))
            holder = self._holder(node)
            own = kept.setdefault(-1 if scope is None else scope.index, [])
            if scope is not None and self._hides(holder, _Around.whole(holder, scope.node)):
                own.clear()
            if self._comprehension_of(node) is None:
                own.append(node)
        found = [node for own in kept.values() for node in own]
        return sorted(found, key=lambda node: self.order.get(id(node), 0)) if len(kept) > 1 else found

    def _around(self, nodes: list[ast.AST]) -> _Around:
        """What stands round a place, inside out."""
        blocks = {id(self._blocks[id(node)]) for node in nodes if id(node) in self._blocks}
        loops = [node for node in nodes if isinstance(node, ast.For | ast.While | ast.AsyncFor)]
        return _Around(nodes, {id(node): place for place, node in enumerate(nodes)}, blocks, loops)

    def _comprehension_of(self, node: ast.AST) -> ast.AST | None:
        """The comprehension that a name is the variable of."""
        for around in self.ancestors(node):
            if isinstance(around, ast.stmt):
                return None
            if isinstance(around, ast.comprehension):
                return self.parent(around)
        return None

    def _attempt(self, holder: ast.AST, around: _Around) -> ast.Try | None:
        """The ``try`` whose last handler an assignment stands in, before what stands inside ``around``."""
        handler = self.parent(holder)
        attempt = self.parent(handler) if isinstance(handler, ast.ExceptHandler) else None
        if (
            not isinstance(attempt, ast.Try)
            or handler is not attempt.handlers[-1]
            or id(attempt) in around.places
        ):
            return None
        return attempt if id(self.block(attempt)) in around.blocks else None

    def _is_made_in_all(self, attempt: ast.Try, holders: list[ast.AST]) -> bool:
        """Whether the body of a ``try`` and its handlers either assign or go elsewhere."""
        parts = [attempt.body, *(handler.body for handler in attempt.handlers)]
        leaving = ast.Raise | ast.Return | ast.Continue | ast.Break
        return all(isinstance(part[-1], leaving) or any(it in part for it in holders) for part in parts)

    def _other_branches(self, around: _Around) -> Iterator[tuple[int, int]]:
        """The branches of conditions, by their order, that do not run where a place in the others does."""
        outermost = around.places[id(around.loops[-1])] if around.loops else 0
        for place in range(outermost + 1, len(around.nodes)):  # those in a loop may, in its next round
            outer, inside = around.nodes[place], around.nodes[place - 1]
            if isinstance(outer, ast.If) and inside is not outer.test:
                if self._blocks.get(id(inside)) is not outer.body:
                    yield self.order[id(outer.body[0])], self._ends[id(outer.body[-1])]

    def _holder(self, node: ast.AST) -> ast.AST:
        while not isinstance(node, ast.stmt) and id(node) in self.parents:
            node = self.parents[id(node)]
        return node

    def _hides(self, holder: ast.AST, around: _Around) -> bool:
        if isinstance(holder, ast.AugAssign | ast.For | ast.AsyncFor) or not isinstance(holder, ast.stmt):
            return False
        part, block = holder, self.parent(holder)
        while isinstance(block, ast.With | ast.AsyncWith) or (
            isinstance(block, ast.If) and self._wraps(holder)
        ):
            if id(block) in around.places:
                return True
            part, block = block, self.parent(block)
        if isinstance(block, ast.If | ast.Try | ast.For | ast.While):  # in the same branch, too
            return id(self.block(part)) in around.blocks
        return around.places.get(id(block), 0) > 0

    def _wraps(self, holder: ast.AST) -> bool:
        """``model = nn.DataParallel(model)``: under whatever condition it stands, it will always run."""
        value = holder.value if isinstance(holder, ast.Assign) else None
        self._asked_for_wraps |= isinstance(value, ast.Call)
        while isinstance(value, ast.Call):
            self._read(id(value.func))
            if any(map(self.is_wrapper, self._values.get(id(value.func), NOTHING))):
                return True
            value = value.func.value if isinstance(value.func, ast.Attribute) else None
        return False

    def _attribute(self, owner: Value, name: str, node: ast.AST) -> Values:
        match owner:
            case Ext():
                return frozenset([Ext(_canonical(f"{owner.name}.{name}"))])
            case Mod() | Cls() | Inst() if name == "__dict__":
                return frozenset([Names(owner)])
            case Mod():
                if values := self._global(owner.path, name):
                    return values
                inner = (
                    self.project.resolve(owner.path, name, 1) if owner.path.name == "__init__.py" else None
                )
                if inner is None and name == "load_module":  # of a loader, which stands for what it loads
                    return frozenset([Member(owner, name)])
                return frozenset([Mod(inner)]) if inner else NOTHING
            case Cls() if name == "__subclasses__":
                return frozenset([Member(owner, name)])
            case Inst() if name == "value" and any(map(_is_enumeration, self.bases(owner.cls))):
                return self._entries(owner.cls)
            case Inst() if self._is_table(owner) and (entry := self._entry(owner, name)):
                return entry
            case Inst() | Cls():
                return self._got(self._member(owner, name, node), node) or self._set_by_name(owner, name)
            case Names():
                return frozenset([Member(owner, name)])
            case Func() if owner in self._groups:
                return frozenset([Member(owner, name)])
            case Made() if owner.name in ({WRAP} | DDP_WRAPS) and name == "module":
                # `model = nn.DataParallel(model)` in two branches: what each wraps is not the other's wrapper
                given = self._wrapped(owner)
                return frozenset(v for v in given if not (isinstance(v, Made) and v.name == WRAP))
            case Made(name=made) if made == WRAP and (found := self._of_own_class(owner, name, node)):
                return found
            case Made() | Member() | Coll():
                stored: set[Value] = set()
                for values in self._field(owner, name).values():
                    stored |= values
                if isinstance(owner, Coll) and (entry := self._field(owner, f"[{name}]")):
                    return frozenset(stored.union(*entry.values()))  # `options.name` of a dictionary
                return frozenset(stored | self._part(owner, name))
        return NOTHING

    def _part(self, owner: Value, name: str) -> Values:
        """An attribute, or the elements, of something from outside the project; nothing where that is too far."""
        return frozenset([Member(owner, name)] if self._steps(owner) < FARTHEST else [])

    def _fewer(self, values: Values) -> Values:
        """Values, without attributes of too many things from outside the project: which of them it is, nobody knows."""
        parts = {it for it in values if isinstance(it, Member)}
        return values - parts if len(parts) > MOST else values

    def _steps(self, value: Value) -> int:
        """How many attributes and calls lie between a value and what was called or made first."""
        steps = 0
        while isinstance(value, Member):
            value, steps = value.owner, steps + 1
        return steps + (self._derivation.get(value.name, 0) if isinstance(value, Made) else 0)

    # DataParallels of classes of the project

    def is_wrapper(self, callee: object) -> bool:
        """Whether a callee makes a DataParallel."""
        return callee in self.wrappers or (
            isinstance(callee, Ext) and (callee.name == WRAP or is_derived(callee.name))
        )

    def own_classes(self, wrap: Value) -> list[Cls]:
        """The classes of the project that a DataParallel may be of."""
        call = self._calls.get(wrap.site) if isinstance(wrap, Made) and wrap.name == WRAP else None
        return [it for it in call.callees if isinstance(it, Cls) and it in self.wrappers] if call else []

    def _of_own_class(self, wrap: Made, name: str, node: ast.AST) -> Values:
        """What a DataParallel has that its class gives it; and what its model has, where it hands on what is asked."""
        classes = self.own_classes(wrap)
        if not classes:
            return NOTHING
        owners = [wrap, *(base for cls in classes for base in self.bases(cls))]
        found = {it for owner in owners for entries in self._field(owner, name).values() for it in entries}
        for cls in classes:
            found |= {self._method(it, wrap) for it in self._inherited(cls, name)}
        if not found and any(self._inherited(cls, "__getattr__") for cls in classes):
            found |= {it for inner in self._wrapped(wrap) for it in self._attribute(inner, name, node)}
        return frozenset(found)

    def _inherited(self, cls: Cls, name: str) -> Values:
        """What the project gives a class under a name: its own, or that of the first base that has one."""
        for base in self.bases(cls):
            if isinstance(base, Cls):
                self._read((base.scope, name))
            if isinstance(base, Cls) and (base.scope, name) in self._definitions:
                return frozenset().union(*self._definitions[base.scope, name].values())
        return NOTHING

    def steps(self, wrap: Value) -> dict[str, set[int]]:
        """What a call of a DataParallel runs of its own classes: their functions, by name."""
        found: dict[str, set[int]] = {}
        for cls in self.own_classes(wrap):
            for name in ("__call__", "forward", *STEPS):
                scopes = {it.scope for it in self._inherited(cls, name) if isinstance(it, Func)}
                if scopes:
                    found.setdefault(name, set()).update(scopes)
        return found

    def wrap_argument(self, call: Call, keyword: str, position: int) -> ast.expr | None:
        """What a call gives DataParallel's own ``__init__`` for a parameter, through those of classes that derive."""
        if not any(map(self.is_wrapper, call.callees)):
            return None
        classes = [it for it in call.callees if isinstance(it, Cls) and it in self.wrappers]
        if not classes:
            return call.argument(keyword, position)
        for cls in classes:
            found = self._handed_up(cls, call, keyword, position)
            if found is not None:
                return found
        return None

    def _handed_up(
        self, cls: Cls, call: Call, keyword: str, position: int, seen: frozenset[int] = frozenset()
    ) -> ast.expr | None:
        """The same, for one class: what its ``__init__`` gives ``super().__init__``, and the call gives it."""
        for init in self._inherited(cls, "__init__"):
            scope = self.scopes[init.scope] if isinstance(init, Func) else None
            if scope is None or scope.owner is None or scope.index in seen:
                continue
            bases = [it for it in self.bases(scope.owner) if it != scope.owner]
            own = next((it for it in bases if isinstance(it, Cls) and self._inherited(it, "__init__")), None)
            for above in self._calls_up(scope):
                if own is not None:
                    given = self._handed_up(own, above, keyword, position, seen | {scope.index})
                else:
                    given = above.argument(keyword, position)
                if given is not None:
                    return self._given_by(call, given, scope)
                if own is None and (found := call.argument(keyword, _handed_on(above, position, scope))):
                    return found
            return self._assigned(scope, keyword, call)
        return call.argument(keyword, position)

    def _calls_up(self, init: Scope) -> Iterator[Call]:
        """``super().__init__(…)`` in an ``__init__``."""
        for node in self.body(init):
            match node:
                case ast.Call(func=ast.Attribute(attr="__init__", value=ast.Call(func=ast.Name(id="super")))):
                    yield Call(node, init, NOTHING)
                case ast.Call(func=ast.Attribute(attr="__init__", value=base), args=[_, *args]):
                    if any(map(self.is_wrapper, self.values(base))):
                        yield Call(ast.Call(node.func, args, node.keywords), init, NOTHING)

    def _assigned(self, init: Scope, name: str, call: Call) -> ast.expr | None:
        """``self.module = module``, in an ``__init__`` that hands nothing up: the first parameter that is given so."""
        for node in self.body(init):
            match node:
                case ast.Assign(
                    targets=[ast.Attribute(value=ast.Name(id=me), attr=attr)], value=ast.Name() as value
                ) if (attr == name and init.params[:1] == [me] and value.id in init.params):
                    return self._given_by(call, value, init)
        return None

    def _given_by(self, call: Call, given: ast.expr, scope: Scope) -> ast.expr | None:
        """What a call gives a function, where that hands on one of its parameters; else what it hands on itself."""
        named = [it.arg for it in scope.node.args.kwonlyargs]  # type: ignore[attr-defined]
        match given:
            case ast.Name(id=name) if name in scope.params:
                return call.argument(name, scope.params.index(name) - 1)
            case ast.Name(id=name) if name in named:
                return call.argument(name)
        return given

    def _wrapped(self, wrap: Made) -> Values:
        """The modules that a DataParallel may wrap."""
        call = self._calls.get(wrap.site)
        if call is None:
            return NOTHING
        given = (
            call.argument("module", 0) if call.names & DDP_WRAPS else self.wrap_argument(call, "module", 0)
        )
        if given is None:
            return NOTHING
        self._read(id(given))
        return self._values.get(id(given), NOTHING)

    def _entry(self, table: Inst, name: str) -> Values:
        """What a dictionary of a class of the project has under a name, which it may have as an attribute, too."""
        own = (self.scopes[base.scope].names for base in self.bases(table.cls) if isinstance(base, Cls))
        known = name in TABLE_METHODS or any(name in names for names in own)
        return NOTHING if known else self._item(frozenset([table]), name)

    def _entries(self, cls: Cls) -> Values:
        """The values of an enumeration."""
        found: set[Value] = set()
        for base in self.bases(cls):
            for name in self.scopes[base.scope].names if isinstance(base, Cls) else ():
                found.update(*self._definitions.get((base.scope, name), {}).values())
        return frozenset(found)

    def _set_by_name(self, owner: Inst | Cls, name: str) -> Values:
        """What ``setattr`` with a name like this one gives an object, where nothing else does."""
        found: set[Value] = set()
        for base in self.bases(owner.cls if isinstance(owner, Inst) else owner):
            for text, entries in self._fields.get(Names(base), {}).items():
                if matches([text], name):
                    found.update(*entries.values())
        return frozenset(found)

    def bases(self, cls: Cls) -> list[Value]:
        """A class of the project and all its bases, in the order in which attributes are looked up, roughly."""
        self._read("bases")
        if cls not in self._families:
            found: list[Value] = [cls]
            for value in found:
                if isinstance(value, Cls):
                    node = self.scopes[value.scope].node
                    for base in node.bases:  # type: ignore[attr-defined]
                        found += [entry for entry in self.values(base) if entry not in found]
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
            if isinstance(base, Cls):
                self._read((base.scope, name))
            if isinstance(base, Cls) and (base.scope, name) in self._definitions:
                for values in self._definitions[base.scope, name].values():
                    found |= self._methods(values, owner)
                break
        own = (self.scopes[base.scope].names for base in self.bases(cls) if isinstance(base, Cls))
        if not found and not any(name in names for names in own):
            outside = [base for base in self.bases(cls) if isinstance(base, Ext)]
            outside = [base for base in outside if base.name != "builtins.object"]  # it has no attributes
            found.update(Member(Made(base.name, getattr(owner, "site", 0)), name) for base in outside)
        return frozenset(found)

    def _got(self, values: Values, node: ast.AST) -> Values:
        """What an attribute of an object is, where some of its values are properties: what those return."""
        found = set(values)
        for value in values:
            if isinstance(value, Bound) and isinstance(value.owner, Inst) and self._is_property(value.func):
                self._getters[id(node)].add(value)
                self._implicit[id(node)].add(value.func.scope)
                found = (found - {value}) | self._invoke(value.func, value.owner, Arguments())
        return frozenset(found)

    def _is_property(self, function: Func) -> bool:
        """Whether a function is called where it is asked for as an attribute."""
        marks = getattr(self.scopes[function.scope].node, "decorator_list", ())
        return any(full_name(it) in PROPERTIES for mark in marks for it in self.values(mark))

    def _methods(self, values: Iterable[Value], owner: Inst | Cls) -> Values:
        """What is found in a class, as it comes out of an object: that of ``super()`` is the object it stands for."""
        objects = (self._supers.get(owner.site) if isinstance(owner, Inst) else None) or (owner,)
        return frozenset(self._method(value, it) for value in values for it in objects)

    def _method(self, value: Value, owner: Inst | Cls | Made) -> Value:
        """What is found in a class, as it comes out of an object or out of the class itself."""
        if not isinstance(value, Func):
            return value
        marks = getattr(self.scopes[value.scope].node, "decorator_list", [])
        if any(isinstance(mark, ast.Name) and mark.id == "classmethod" for mark in marks):
            return Bound(value, owner.cls if isinstance(owner, Inst) else owner)
        return Bound(value, owner) if isinstance(owner, Inst | Made) else value

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
        callees = self._outside_wrappers(node, callees)
        if len(callees) > 1:
            callees = (
                frozenset(it for it in callees if self._fits(it, node) and self._returns_it(it, node))
                or callees
            )
        if any(map(self.is_wrapper, callees)):
            callees |= {Ext(WRAP)}
        self._calls[id(node)] = Call(node, scope, callees)
        given: Arguments | None = None
        found: set[Value] = set()
        for callee in callees:
            match callee:
                case Cls() if callee in self.wrappers:
                    given = given or self._arguments(node)
                    for init in self._inherited(callee, "__init__"):
                        if isinstance(init, Func):
                            self._invoke(init, Made(WRAP, id(node)), given)
                case Ext() if is_derived(callee.name):
                    pass
                case Made(name=made) if made == WRAP:
                    given = given or self._arguments(node)
                    for name in ("__call__", "forward"):
                        for scope_index in self.steps(callee).get(name, ()):
                            found |= self._invoke(Func(scope_index), callee, given)
                case Func() | Bound() | Cls() | Inst() | Made(name="functools.partial"):
                    given = given or self._arguments(node)
                    found |= self._apply(callee, given, node)
                case Member() if callee.name in TABLE_METHODS and isinstance(node.func, ast.Attribute):
                    found |= self._table_method(node, node.func, scope)
                    found |= self._outside(callee, node)
                case Member() if callee.name in SAME_OBJECT and isinstance(node.func, ast.Attribute):
                    found |= self._values.get(id(node.func.value), NOTHING)
                case Member(owner=Func()) if callee.owner in self._groups:
                    self._hold(callee.owner, node)
                case Member(owner=Cls()) if callee.name == "__subclasses__":
                    found |= self._collected(node, self._derived(callee.owner))
                case Ext(name="builtins.getattr") if len(node.args) > 1:
                    found |= self._getattr(node, scope)
                case Ext(name="builtins.setattr") if len(node.args) == 3:
                    self._setattr(node, scope)
                case Ext(name="builtins.globals" | "builtins.locals" | "builtins.vars"):
                    found |= self._namespace(callee.name, node, scope)
                case Ext(name="builtins.eval" | "builtins.exec" | "cProfile.run") if (
                    len(node.args) > 0 and id(node) not in scope.file.chosen_imports
                ):
                    found |= self._evaluated(node, scope) | self._outside(callee, node)
                case Ext(name="builtins.next") if node.args:
                    taken = self._elements(self._values.get(id(node.args[0]), NOTHING))
                    found |= {it for it in taken if isinstance(it, OWN)} | self._outside(callee, node)
                case Ext(name="inspect.getmembers") if node.args:
                    members = self._members(self._values.get(id(node.args[0]), NOTHING), UNKNOWN, node)
                    found |= self._pairs(node, members)
                case Ext(name="builtins.exec") if id(node) in scope.file.chosen_imports:
                    self._executed(node, scope)
                case Ext() if callee.name in LOADING:
                    found |= self._modules(node, scope)
                case Member(owner=Mod(), name="load_module"):
                    found.add(callee.owner)
                case Ext(name="importlib.util.module_from_spec") if node.args:
                    found |= {it for it in self._values.get(id(node.args[0]), NOTHING) if isinstance(it, Mod)}
                case Ext() if callee.name in COMMANDS:
                    self._offer(self.contents(frozenset().union(*map(self.values, handed(node)))))
                    found |= self._outside(callee, node)
                case Ext(name=name) if name == INITIALIZE:
                    found |= self._initialized(node)
                case Ext() if callee.name in DICTIONARIES:
                    made = self._dictionary(node)
                    plain = callee.name.startswith(("builtins.", "collections."))
                    found |= made if made and plain else made | self._outside(callee, node)
                case Ext() if callee.name in COPIES and node.args:
                    found |= self._values.get(id(node.args[0]), NOTHING)
                case Ext() | Member():
                    found |= self._outside(callee, node)
        return frozenset(found)

    def _fits(self, callee: Value, node: ast.Call) -> bool:
        """Whether a function, or the constructor of a class, takes what a call gives: else it is not what is called."""
        func, bound = (callee.func, True) if isinstance(callee, Bound) else (callee, False)
        if isinstance(callee, Cls):
            first = next(
                (it for it in self.bases(callee) if not isinstance(it, Cls) or self._own(it, "__init__")),
                None,
            )
            func, bound = (self._own(first, "__init__")[0], True) if isinstance(first, Cls) else (None, True)
        starred = any(isinstance(it, ast.Starred) for it in node.args) or any(
            not it.arg for it in node.keywords
        )
        if not isinstance(func, Func) or starred:
            return True
        inner = self.scopes[func.scope].node
        args: ast.arguments = inner.args  # type: ignore[attr-defined]
        marks = [ast.unparse(it) for it in getattr(inner, "decorator_list", ())]
        if marks and not isinstance(callee, Cls):
            return True  # it may be given something more, or less
        every = [it.arg for it in (*args.posonlyargs, *args.args)][bound:]
        named = {str(it.arg) for it in node.keywords}
        needed = set(every[: max(0, len(every) - len(args.defaults))])
        needed |= {
            it.arg for it, value in zip(args.kwonlyargs, args.kw_defaults, strict=True) if value is None
        }
        surplus = len(node.args) > len(every) and args.vararg is None
        unknown = args.kwarg is None and not named <= {*every, *(it.arg for it in args.kwonlyargs)}
        return not surplus and not unknown and needed <= {*every[: len(node.args)], *named}

    def _returns_it(self, callee: Value, node: ast.Call) -> bool:
        """Whether a function returns something, where a call's result is asked for an attribute: None has none."""
        func = callee.func if isinstance(callee, Bound) else callee
        if not isinstance(func, Func) or not self._is_asked(node):
            return True
        inner = self.scopes[func.scope]
        if isinstance(inner.node, ast.Lambda) or inner.node.decorator_list:  # type: ignore[attr-defined]
            return True
        if func.scope not in self._returning:
            found = (it for part in inner.body for it in self.descendants(part))
            self._returning[func.scope] = any(
                isinstance(it, ast.Yield | ast.YieldFrom)
                or (isinstance(it, ast.Return) and it.value is not None)
                for it in found
            )
        return self._returning[func.scope]

    def _is_asked(self, node: ast.expr) -> bool:
        """Whether what an expression gives is asked for an attribute, at once or by the name that it is given."""
        parent = self.parents[id(node)]
        if isinstance(parent, ast.Attribute):
            return True
        if not isinstance(parent, ast.Assign) or [type(it) for it in parent.targets] != [ast.Name]:
            return False
        if id(node) not in self._asked:
            name = parent.targets[0].id  # type: ignore[attr-defined]
            uses = (it for it in ast.walk(self.scope_of[id(node)].node) if isinstance(it, ast.Attribute))
            self._asked[id(node)] = any(isinstance(it.value, ast.Name) and it.value.id == name for it in uses)
        return self._asked[id(node)]

    def _outside(self, callee: Ext | Member, node: ast.Call) -> Values:
        """What a call of something outside the project returns."""
        name = full_name(callee)
        if not name or _is_tensor(name):
            return NOTHING
        self._derivation.setdefault(name, self._steps(callee))
        return frozenset([Made(name, id(node))])

    def _arguments(self, node: ast.Call, first: int = 0) -> Arguments:
        """What a call gives, from one place on."""
        places: list[tuple[ast.AST, Values]] = []
        rest: tuple[ast.AST, Values] | None = None
        for argument in node.args[first:]:
            values = self._values.get(id(argument), NOTHING)
            if isinstance(argument, ast.Starred):
                rest = argument, values
                break
            places.append((argument, values))
        names, dictionaries = [], []
        for keyword in node.keywords:
            values = self._values.get(id(keyword.value), NOTHING)
            if keyword.arg is None:
                dictionaries.append(values)
            else:
                names.append((keyword.arg, keyword.value, values))
        return Arguments(tuple(places), rest, tuple(names), tuple(dictionaries))

    def _apply(
        self, callee: Value, given: Arguments, site: ast.AST, seen: bool = True, depth: int = 0
    ) -> Values:
        """Call something of the project; what it returns comes back. ``seen``: by a call with these arguments."""
        match callee:
            case Func():
                return self._invoke(callee, None, given, seen)
            case Bound():
                return self._invoke(callee.func, callee.owner, given, seen)
            case Cls():
                made = Inst(callee, id(site))
                for name in CONSTRUCTING:
                    for method in self._member(made, name, site):
                        if isinstance(method, Bound):
                            self._invoke(method.func, made, given, seen)
                if self._is_table(made):
                    self._fill(made, given)
                for place, name in enumerate(self._recorded(callee)):
                    for node, values in [
                        *given.places[place : place + 1],
                        *((n, v) for it, n, v in given.names if it == name),
                    ]:
                        self._set_field(made, name, node, values)
                return frozenset([made])
            case Inst():
                methods = (self._member(callee, name, site) for name in ("__call__", "forward"))
                called = [it for found in methods for it in found if isinstance(it, Bound)]
                return frozenset().union(*(self._invoke(it.func, callee, given, seen) for it in called))
            case Made(name="functools.partial") if depth < 3 and callee.site in self._calls:
                prepared = given.after(self._arguments(self._calls[callee.site].node, first=1))
                targets = self._argument_values(callee, 0)
                return frozenset().union(
                    *(self._apply(it, prepared, site, False, depth + 1) for it in targets)
                )
        return NOTHING

    # What is chosen by name

    def _recorded(self, cls: Cls) -> list[str]:
        """The fields of a class whose constructor is made of them, in their order."""
        found: dict[str, None] = {}
        for base in reversed(self.bases(cls)):
            node = self.scopes[base.scope].node if isinstance(base, Cls) else None
            marks = [it for mark in getattr(node, "decorator_list", ()) for it in self._marks(mark)]
            outside = self.bases(base)[1:] if isinstance(base, Cls) else []
            if isinstance(node, ast.ClassDef) and any(full_name(it) in RECORDS for it in (*marks, *outside)):
                fields = (it.target for it in node.body if isinstance(it, ast.AnnAssign))
                found |= dict.fromkeys(it.id for it in fields if isinstance(it, ast.Name))
        return list(found)

    def _marks(self, decorator: ast.expr) -> Values:
        """What a decorator is, without the arguments that it is given."""
        return self.values(decorator.func if isinstance(decorator, ast.Call) else decorator)

    def _fill(self, table: Inst, given: Arguments) -> None:
        """Put what a dictionary of a class of the project is made of into it."""
        for node, values in given.places:
            for value in values:
                held = self._fields.get(value, {}) if isinstance(value, Coll) else {}
                for name, entries in list(held.items()):
                    for values_of in entries.values():
                        self._set_field(table, name, node, values_of)
                if isinstance(value, Made | Member):  # of something outside, one part is as good as another
                    part = Member(value, "[]") if isinstance(value, Made) else value
                    self._set_field(table, "[*]", node, [part])
        for name, node, values in given.names:
            self._set_field(table, f"[{name}]", node, values)

    def _decorated(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, value: Value
    ) -> set[Value]:
        """What a definition gives its name: itself, and the objects of the project that decorators make of it.

        Decorators run, and may keep what they are given; a function that one puts in its place is known to call it.
        """
        found = {value}
        for decorator in reversed(node.decorator_list):
            for callee in self._values.get(id(decorator), NOTHING):
                if isinstance(callee, Func | Bound | Cls | Inst | Made):
                    made = self._apply(callee, Arguments(((node, frozenset([value])),)), decorator, False)
                    self._implicit[id(node)] |= self._functions(callee, decorator, True)
                    found |= {it for it in made if isinstance(it, Inst)}
                    if isinstance(value, Func):
                        self._wrap_in(value, made)
            if isinstance(value, Func):
                self._known_outside(decorator, value)
        return found

    def _wrap_in(self, value: Func, made: Values) -> None:
        """Know the functions that take another one's place when they are called: those that a decorator makes."""
        functions = (self.scopes[it.scope] for it in made if isinstance(it, Func) and it != value)
        wrappers = {
            it.index for it in functions if it.parent and not (it.parent.is_module or it.parent.is_class)
        }
        if not wrappers <= self._wrappers[value.scope]:
            self._wrappers[value.scope] |= wrappers
            self._put_in_place |= {(it, value) for it in wrappers}
            self._changed = True

    def _known_outside(self, decorator: ast.expr, value: Func) -> None:
        """``@group.command()``: an object from outside knows a function, and may call it when it is called."""
        root = decorator
        while isinstance(root, ast.Attribute | ast.Call):
            root = root.value if isinstance(root, ast.Attribute) else root.func
        groups = {it for it in self.values(root) if it in self._groups and it != value}
        holders = {it for it in self.values(root) if isinstance(it, Made)} if root is not decorator else set()
        for owner in groups | holders:
            self._grow(self._held[owner], [value], ("held", owner))
        call = self._calls.get(id(decorator))
        names = {full_name(it) for it in (call.callees if call is not None else self.values(decorator))}
        offered = bool(groups) or any(name.startswith(OFFERED) for name in names)
        if offered and value not in self._groups:
            self._groups.add(value)
            self._changed = True
        if offered or names & CONFIGURED.keys():
            config = next((CONFIGURED[name] for name in names if name in CONFIGURED), GIVEN)
            self._offer(frozenset([value]), config)

    def _hold(self, owner: Func, node: ast.Call) -> None:
        """``group.add_command(function)``."""
        for values in map(self.values, handed(node)):
            self._grow(
                self._held[owner], (it for it in values if isinstance(it, Func | Made)), ("held", owner)
            )

    def _offer(self, values: Values, kind: str = GIVEN) -> None:
        """Know that functions are given options for their parameters."""
        for value in values:
            node = self.scopes[value.scope].node if isinstance(value, Func) else None
            if isinstance(node, ast.FunctionDef):
                self._unseen.add(value.scope)
                for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                    self._define(self.by_node[id(node)], arg.arg, arg, [Made(kind, id(arg))])

    def _outside_wrappers(self, node: ast.Call, callees: Values) -> Values:
        """Callees without what a wrapper calls in whose place it stands: calls of that lead there by themselves."""
        if isinstance(node.func, ast.Name) and self._put_in_place:
            scope: Scope | None = self.scope_of[id(node)]
            while scope is not None and not scope.is_module:
                index = scope.index
                if node.func.id in scope.names:
                    break
                callees = frozenset(it for it in callees if (index, it) not in self._put_in_place)
                scope = scope.parent
        return callees

    def _announced(self, node: ast.ClassDef, made: Cls) -> None:
        """Tell bases and metaclass of a new class, as ``__init_subclass__`` and ``__init__`` are told."""
        given = Arguments(
            names=tuple((it.arg, it.value, self.values(it.value)) for it in node.keywords if it.arg)
        )
        for base in self.bases(made)[1:]:
            if isinstance(base, Cls):
                for value in self._own(base, "__init_subclass__"):
                    self._invoke(value, made, given, False)
        for keyword in node.keywords:
            for meta in self.values(keyword.value) if keyword.arg == "metaclass" else ():
                for value in self._own(meta, "__init__") if isinstance(meta, Cls) else ():
                    self._invoke(value, made, Arguments(), False)

    def _own(self, cls: Cls, name: str) -> list[Func]:
        """The functions that a class itself defines by a name."""
        found = self._definitions.get((cls.scope, name), {}).values()
        return [it for values in found for it in values if isinstance(it, Func)]

    def _texts(self, node: ast.expr) -> frozenset[str]:
        """The strings that an expression may be, with ``*`` for what is not known of them."""
        if id(node) not in self._known_texts:
            self._known_texts[id(node)] = self.file_of[id(node)].texts.of(node)
        return self._known_texts[id(node)]

    def _members(self, owners: Values, texts: frozenset[str], node: ast.AST) -> Values:
        """What owners have by a name of which not all is known: what is the project's own, if nothing is known."""
        found: set[Value] = set()
        exact = [text for text in texts if text.isidentifier()]
        for owner in owners:
            for name in exact:
                found |= self._attribute(owner, name, node)
            for name in self._member_names(owner) if len(exact) < len(texts) else ():
                if matches(texts, name) and not (name.startswith("__") and name.endswith("__")):
                    found |= self._attribute(owner, name, node)
            for holder in self._holders(owner):
                for entries in self._fields.get(Names(holder), {}).values():
                    found |= set().union(*entries.values())
            if isinstance(owner, Mod) and texts != UNKNOWN and owner.path.name == "__init__.py":
                inner = (self.project.imported(owner.path, Import(text, 1)) for text in sorted(texts))
                found |= {Mod(path) for paths in inner for path in paths}
        if texts == UNKNOWN:  # nothing calls the function that it stands in by a name which may be any
            inside = {around.index for around in self._enclosing(node)}
            here = {it for it in found if isinstance(it, Func) and it.scope in inside}
            found = {it for it in found if isinstance(it, OWN)} - here
        return frozenset(found)

    def _enclosing(self, node: ast.AST) -> Iterator[Scope]:
        """The functions and classes that a node stands in."""
        scope = self.scope_of.get(id(node))
        while scope is not None and not scope.is_module:
            yield scope
            scope = scope.parent

    def _member_names(self, owner: Value, seen: frozenset[Path] = frozenset()) -> set[str]:
        match owner:
            case Mod() if owner.path in self.modules and owner.path not in seen:
                module = self.modules[owner.path]
                starred = (it for it in module.stars if isinstance(it, Path))
                inherited = (self._member_names(Mod(it), seen | {owner.path}) for it in starred)
                return module.names.union(*inherited)
            case Func():
                return self.scopes[owner.scope].names
            case Inst() | Cls():
                cls = owner.cls if isinstance(owner, Inst) else owner
                family = [it for it in self.bases(cls) if isinstance(it, Cls)]
                own = (self.scopes[it.scope].names for it in family)
                fields = ({name for name in self._fields.get(it, {}) if name.isidentifier()} for it in family)
                return set().union(*own, *fields)
            case Coll():
                return {name for name in self._fields.get(owner, {}) if name.isidentifier()}
        return set()

    def _namespace(self, name: str, node: ast.Call, scope: Scope) -> Values:
        """``globals()``, ``locals()``, ``vars(x)``."""
        if node.args:
            return frozenset(it for owner in self.values(node.args[0]) for it in self._dict_of(owner, node))
        at = scope if name != "builtins.globals" and not scope.is_module else None
        owner = Func(at.index) if at is not None else Mod(scope.file.path)
        return frozenset([Names(owner)])

    def _dict_of(self, owner: Value, node: ast.Call) -> Values:
        if isinstance(owner, Mod | Cls | Inst):
            return frozenset([Names(owner)])
        return frozenset([owner]) if isinstance(owner, Coll) else frozenset([Made("builtins.vars", id(node))])

    def _evaluated(self, node: ast.Call, scope: Scope) -> Values:
        """What ``eval`` makes of a name, or of a call: ``eval(f"models.{name}")``, ``eval(name + "()")``."""
        found: set[Value] = set()
        for text in self._texts(node.args[0]):
            path, called, _ = text.partition("(")
            if text == ANY and not self._is_called(node):
                continue
            first, *others = path.split(".")
            values = self._visible(first, node, scope)
            for name in others:
                values = self._members(values, frozenset([name]), node)
            if called:
                self._implicit[id(node)] |= set().union(*(self._functions(it, node, True) for it in values))
                values = frozenset().union(*(self._apply(it, Arguments(), node, False) for it in values))
            found |= values
        return frozenset(found)

    def _is_called(self, node: ast.expr) -> bool:
        """Whether what an expression gives is called, at once or by the name that it is given."""
        parent = self.parents[id(node)]
        names = [ast.unparse(it) for it in parent.targets] if isinstance(parent, ast.Assign) else []
        calls = (
            (it for it in ast.walk(self.scope_of[id(node)].node) if isinstance(it, ast.Call)) if names else ()
        )
        return getattr(parent, "func", None) is node or any(ast.unparse(it.func) in names for it in calls)

    def _visible(self, text: str, node: ast.AST, scope: Scope) -> Values:
        """What names of a place may be that match a text."""
        owners: list[Value] = []
        around: Scope | None = scope
        while around is not None:
            if not around.is_class:
                owners.append(Mod(around.file.path) if around.is_module else Func(around.index))
            around = around.parent
        return self._members(frozenset(owners), frozenset([text]), node)

    def _modules(self, node: ast.Call, scope: Scope) -> Values:
        """The modules of the project that a call may import, by name or path."""
        path = scope.file.path
        items = scope.file.chosen_imports.get(id(node), ())
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        named = len(node.args) > 3 or any(it.arg == "fromlist" for it in node.keywords)
        if called == "__import__" and not named:
            items = tuple(replace(it, module=it.module.partition(".")[0]) for it in items)
        found = {Mod(found) for item in items for found in self.project.imported(path, item)}
        return frozenset(Names(it) for it in found) if called in RUNS_MODULES else frozenset(found)

    def _executed(self, node: ast.Call, scope: Scope) -> None:
        """Define what the import statements define that ``exec`` is given."""
        for item in scope.file.chosen_imports[id(node)]:
            found = self.project.imported(scope.file.path, item)
            if item.path:  # the text of a file, which runs here
                self._implicit[id(node)] |= {self.modules[it].index for it in found if it in self.modules}
                continue
            modules = frozenset(map(Mod, found))
            for name in item.names or sorted(set().union(*map(self._member_names, modules))):
                self._define(scope, name, node, self._members(modules, frozenset([name]), node))

    def _collected(self, node: ast.AST, values: Iterable[Value]) -> Values:
        """A collection of some values, made by a node."""
        collection = Coll(id(node))
        self._set_field(collection, "[*]", node, values)
        return frozenset([collection])

    def _pairs(self, node: ast.Call, values: Values) -> Values:
        """A collection of pairs of a name and one of some values."""
        pair = Coll(id(node.func))
        self._set_field(pair, "[1]", node, values)
        return self._collected(node, [pair])

    def _dictionary(self, node: ast.Call) -> Values:
        """What ``dict(x, a=y)`` makes, or another class whose objects hold what they are given by name."""
        collection = Coll(id(node))
        found: set[Value] = set()
        given = self.values(node.args[0]) if node.args else NOTHING
        for value in given:
            pairs = [it for it in self._elements(frozenset([value])) if isinstance(it, Coll)]
            if (
                isinstance(value, Coll)
                and pairs
                and not isinstance(self.nodes[value.site], ast.Dict | ast.Call)
            ):
                self._set_field(collection, "[*]", node, self._item(frozenset(pairs), "1"))
                found.add(collection)
            else:
                found.add(value)
        for keyword in node.keywords:
            values = self.values(keyword.value)
            if keyword.arg is not None:
                self._set_field(collection, f"[{keyword.arg}]", keyword.value, values)
                found.add(collection)
            else:
                found |= {it for it in values if isinstance(it, Coll)}
        return frozenset(found)

    def _table_method(self, node: ast.Call, function: ast.Attribute, scope: Scope) -> Values:
        """What a method of a list or dictionary does and returns: ``table.update(x)``, ``table.items()``."""
        owners = frozenset(it for it in self.values(function.value) if self._is_table(it))
        given = [self.values(argument) for argument in node.args]
        match function.attr, node.args:
            case "append" | "add", [_]:
                self._put(owners, "[*]", node, given[0])
            case "insert", [_, _]:
                self._put(owners, "[*]", node, given[1])
            case "extend", [_]:
                self._put(owners, "[*]", node, self._elements(given[0]))
            case "update", _:
                for values in given:
                    self._put(owners, "[*]", node, self._held_by(values, node))
                for keyword in node.keywords:
                    key = "*" if keyword.arg is None else keyword.arg
                    values = self.values(keyword.value)
                    self._put(
                        owners, f"[{key}]", keyword.value, values if keyword.arg else self._elements(values)
                    )
            case "copy", []:
                return owners
            case "values", []:
                names = frozenset(it for it in owners if isinstance(it, Names))
                return (owners - names) | (
                    self._collected(node, self._held_by(names, node)) if names else NOTHING
                )
            case "items", []:
                return self._pairs(node, self._held_by(owners, node)) if owners else NOTHING
            case "get" | "pop" | "setdefault", [key, *_]:
                found = self._looked_up(owners, key, node)
                if function.attr == "setdefault" and len(given) > 1:
                    self._put(owners, f"[{self._key(key)}]", node, given[1])
                return found.union(*given[1:]) if owners else NOTHING
        return NOTHING

    def _held_by(self, owners: Values, node: ast.AST) -> Values:
        """What lists and dictionaries hold, under whatever key."""
        spaces = frozenset(it.owner for it in owners if isinstance(it, Names))
        return self._elements(owners) | (self._members(spaces, UNKNOWN, node) if spaces else NOTHING)

    def _is_table(self, value: Value) -> bool:
        """Whether a value is a list or dictionary whose entries are known."""
        if isinstance(value, Inst):
            return any(
                isinstance(it, Ext) and it.name in DICTIONARIES | LISTS for it in self.bases(value.cls)
            )
        return isinstance(value, Coll | Names) or (
            isinstance(value, Made) and value.name in DICTIONARIES | LISTS
        )

    def _key(self, node: ast.expr) -> str:
        """The key that an expression is, ``*`` where that is not known."""
        return str(node.value) if isinstance(node, ast.Constant) else ANY

    def _put(self, owners: Values, name: str, node: ast.AST, values: Iterable[Value]) -> None:
        for owner in owners:
            self._set_field(owner, name, node, values)

    def _looked_up(self, owners: Values, key: ast.expr, node: ast.AST) -> Values:
        """What owners hold under a key."""
        spaces = frozenset(it.owner for it in owners if isinstance(it, Names))
        named = self._members(spaces, self._texts(key), node) if spaces else NOTHING
        others = owners - {Names(it) for it in spaces} if spaces else owners
        if isinstance(key, ast.Constant):
            return named | self._item(others, str(key.value))
        return named | self._elements(others)

    def _subscripted(self, owners: Values, node: ast.Subscript, scope: Scope) -> Values:
        """What ``table[key]`` may be."""
        found = set(self._looked_up(owners, node.slice, node))
        for owner in owners:
            if owner == Ext("sys.modules"):
                found |= self._module_named(node.slice, scope)
            elif isinstance(owner, Inst):
                given = Arguments(((node.slice, self.values(node.slice)),))
                for method in self._member(owner, "__getitem__", node):
                    if isinstance(method, Bound):
                        found |= self._invoke(method.func, owner, given, False)
            elif isinstance(owner, Cls) and any(map(_is_enumeration, self.bases(owner))):
                found.add(Inst(owner, id(node)))
        return frozenset(found)

    def _module_named(self, name: ast.expr, scope: Scope) -> Values:
        """``sys.modules[__name__]``."""
        if isinstance(name, ast.Name) and name.id == "__name__":
            return frozenset([Mod(scope.file.path)])
        path = self.project.resolve(scope.file.path, name.value) if _is_text(name) else None  # type: ignore[attr-defined]
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

    def _getattr(self, node: ast.Call, scope: Scope) -> Values:
        owners = self.values(node.args[0])
        texts = self._texts(node.args[1])
        found = self.values(node.args[2]) if len(node.args) > 2 else NOTHING
        for text in texts:
            if ANY not in text and "\0" not in text:
                found = found.union(*(self._attribute(owner, text, node) for owner in owners))
            else:
                found |= self._members(owners, frozenset([text]), node)
        return found

    def _setattr(self, node: ast.Call, scope: Scope) -> None:
        values = self.values(node.args[2])
        for text in self._texts(node.args[1]):
            for owner in self.values(node.args[0]):
                if ANY in text or "\0" in text:
                    self._set_field(Names(owner), text, node, values)
                else:
                    self._set_field(owner, text, node, values)

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
        self._supers[id(node)] = self._selves(scope, current)
        return frozenset(  # what the bases inherit themselves is found through them
            Inst(base, id(node)) if isinstance(base, Cls) else Made(full_name(base), id(node))
            for given in current.node.bases  # type: ignore[attr-defined]
            for base in self.values(given)
        )

    def _selves(self, scope: Scope, cls: Scope) -> Values:
        """The objects whose method of a class a place stands in: ``super()`` is these, looked at as one of a base."""
        while scope.parent is not cls and scope.parent is not None:
            scope = scope.parent
        if not scope.params:
            return NOTHING
        key = scope.index, scope.params[0]
        self._read(key)
        found = set().union(*self._definitions.get(key, {}).values())
        return frozenset(it for it in found if isinstance(it, Inst))

    def _invoke(self, func: Func, owner: Value | None, given: Arguments, seen: bool = True) -> Values:
        """Pass arguments to the function's parameters; its return values come back."""
        inner = self.scopes[func.scope]
        if not seen:
            self._unseen.add(func.scope)
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
        for index, (node, values) in enumerate(given.places):
            if index < len(params):
                self._define(inner, params[index], named[params[index]], values)
            elif args.vararg is not None:
                self._surplus(inner, args.vararg, f"[{index - len(params)}]", node, values)
        if given.rest is not None:
            node, values = given.rest
            for index, name in enumerate(params[len(given.places) :]):
                if item := self._item(values, str(index)):
                    self._define(inner, name, named[name], item)
            if args.vararg is not None:
                self._surplus(inner, args.vararg, "[*]", node, self._elements(values))
        for name, node, values in given.names:
            if name in named:
                self._define(inner, name, named[name], values)
            elif args.kwarg is not None:
                self._surplus(inner, args.kwarg, f"[{name}]", node, values)
        for values in given.dictionaries:
            for name, arg in named.items():
                if (name in params or arg in args.kwonlyargs) and (item := self._item(values, name)):
                    self._define(inner, name, arg, item)
            if args.kwarg is not None and (colls := {it for it in values if isinstance(it, Coll)}):
                self._define(inner, args.kwarg.arg, args.kwarg, colls)
        self._read(~func.scope)
        return frozenset(self._returns[func.scope])

    def _surplus(self, inner: Scope, parameter: ast.arg, name: str, node: ast.AST, values: Values) -> None:
        """Put what no other parameter takes into that of ``*args`` or ``**kwargs``."""
        collection = Coll(id(parameter))
        self._set_field(collection, name, node, values)
        self._define(inner, parameter.arg, parameter, [collection])

    # Questions

    def values(self, node: ast.AST) -> Values:
        """What an expression may be."""
        found = self._values.get(id(node), NOTHING)
        if len(found) > 1 and not isinstance(found, Ordered):
            found = self._values[id(node)] = self.ordered(found)
        return found

    def ordered(self, values: Iterable[Value]) -> Values:
        """Values in an order that is the same in each run."""
        distinct = [*values] if isinstance(values, Ordered) else sorted({*values}, key=self._place)
        return Ordered.of(distinct)

    def _place(self, value: Value) -> tuple[object, ...]:
        """What values are sorted by."""
        match value:
            case Ext():
                return 0, 0, value.name
            case Mod():
                return 1, 0, str(value.path)
            case Func() | Cls():
                return 2, value.scope, type(value).__name__
            case Inst():
                return 3, self.order.get(value.site, -1), str(value.cls.scope)
            case Bound():
                return 4, value.func.scope, "", *self._place(value.owner)
            case Made():
                return 5, self.order.get(value.site, -1), value.name
            case Member():
                return 6, 0, value.name, *self._place(value.owner)
            case Coll():
                return 7, self.order.get(value.site, -1), ""
            case Names():
                return 8, 0, "", *self._place(value.owner)
        return 9, 0, repr(value)

    def getters(self, node: ast.AST) -> set[Bound]:
        """The properties that an attribute may be."""
        return self._getters.get(id(node), set())

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
        if id(name) not in self.nodes:
            return self._defining(name)
        if id(name) not in self._found:
            self._found[id(name)] = self._defining(name)
        return list(self._found[id(name)])

    def _defining(self, name: ast.AST) -> list[ast.AST]:
        if isinstance(name, ast.Name):
            scope: Scope | None = self._owner(self.scope(name), name.id)
            while scope is not None:
                entries = self._definitions.get((scope.index, name.id))
                if entries:
                    if scope is self.scope(name):
                        return self._reached(self._sorted((scope.index, name.id)), name)
                    return [self._definition_nodes[key] for key in entries]
                scope = scope.parent
        if isinstance(name, ast.Attribute):
            found = []
            for owner in self.values(name.value):
                key = owner.cls if isinstance(owner, Inst) else owner
                found += [self._definition_nodes[entry] for entry in self._field(key, name.attr)]
            # An earlier call may have set it, where the method that asks for it does not always do so before.
            near = [node for node in found if self.scope_of.get(id(node)) is self.scope(name)]
            reached, around = self.reaching(near, name), self._around([name, *self.ancestors(name)])
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
        return self.ordered(frozenset().union(*self._definitions.get((scope.index, name), {}).values()))

    def given(self, parameter: ast.arg) -> list[ast.expr]:
        """What the calls of a function give a parameter, its default included; empty where one can't be seen."""
        scope = self.scope(parameter)
        args = scope.node.args  # type: ignore[attr-defined]
        every = [*args.posonlyargs, *args.args]
        pairs = [*zip(reversed(every), reversed(args.defaults), strict=False)]
        pairs += zip(args.kwonlyargs, args.kw_defaults, strict=True)
        default = next((default for arg, default in pairs if arg is parameter), None)
        found: list[ast.expr | None] = []
        if scope.index in self._unseen:
            return []
        for call, bound in self._passing.get(scope.index, ()):
            if any(isinstance(it, ast.Starred) for it in call.node.args) or any(
                keyword.arg is None for keyword in call.node.keywords
            ):
                return []
            position = every.index(parameter) - bound if parameter in every else None
            if position == -1:
                return []  # the object whose method it is
            found.append(call.argument(parameter.arg, position) or default)
        return list(dict.fromkeys(it for it in found if it is not None))

    @cached_property
    def _passing(self) -> dict[int, list[tuple[Call, bool]]]:
        """The calls that enter each function, in source order, and whether the first parameter is an object's."""
        found: dict[int, list[tuple[Call, bool]]] = defaultdict(list)
        for call in self.calls:
            for callee in call.callees:
                for index, _, bound in self.targets(callee, call):
                    found[index].append((call, bound))
        return found

    def fields(self, owner: Inst) -> Iterator[tuple[str, Values]]:
        """The attributes of an object, with their values."""
        for base in self.bases(owner.cls):
            for name, entries in self._fields.get(base, {}).items():
                yield name, self.ordered(frozenset().union(*entries.values()))

    def module_names(self, module: Scope) -> Iterator[tuple[str, Values]]:
        """The names of a module, with their values."""
        for (index, name), entries in self._definitions.items():
            if index == module.index:
                yield name, self.ordered(frozenset().union(*entries.values()))

    def entries(self, value: Value) -> Iterator[tuple[ast.AST, Values]]:
        """What a list or dictionary is known to hold, each with the node that puts it there."""
        for holder in self._holders(value) if self._is_table(value) else ():
            for name, entries in self._fields.get(holder, {}).items():
                if name.startswith("["):
                    yield from (
                        (self._definition_nodes[key], self.ordered(it)) for key, it in entries.items()
                    )

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
        return self.ordered(found)

    def called_scopes(self, node: ast.AST) -> frozenset[int]:
        """The functions that running a piece of code may enter directly."""
        known = self._entering.get(id(node))
        if known is not None:
            return known
        entered: set[int] = set()
        for inner in self.descendants(node):
            call = self._calls.get(id(inner))
            if call is not None:
                entered |= self._entered(call)
            elif isinstance(inner, ast.FunctionDef) and self._runs_itself(inner):
                entered.add(self.by_node[id(inner)].index)
            if id(inner) in self._implicit:
                entered |= self._implicit[id(inner)]
        found = frozenset(entered)
        if id(node) in self.nodes:
            self._entering[id(node)] = found
        return found

    def _runs_itself(self, node: ast.FunctionDef) -> bool:
        """Whether a decorator calls the function that it is given, where the file is run: ``@experiment.automain``."""
        values = (it for decorator in node.decorator_list for it in self.values(decorator))
        return any(full_name(value) in RUNNING_DECORATORS for value in values)

    def _entered(self, call: Call) -> set[int]:
        found: set[int] = set()
        passed = [value for argument in handed(call.node) for value in self.values(argument)]
        outside = any(isinstance(callee, Ext | Member | Made) for callee in call.callees)
        outside = outside and not any(name.startswith(ASKING) for name in call.names)
        for value in (*call.callees, *(passed if outside else ())):
            found |= self._functions(value, call.node, value in call.callees)
        if call.names & COMMANDS:
            found |= self._commanded(call, passed)
        if call.names & RUNS:
            modules = (it.owner for it in self.values(call.node) if isinstance(it, Names))
            found |= {
                self.modules[it.path].index
                for it in modules
                if isinstance(it, Mod) and it.path in self.modules
            }
        if self._held:
            found |= {it.scope for it in self._run_by_holder(call, passed) if isinstance(it, Func)}
        for index in list(found):
            found |= self._wrappers.get(index, set())
        return found

    def _functions(self, value: Value, node: ast.AST, called: bool, depth: int = 0) -> set[int]:
        """The functions that calling a value enters."""
        match value:
            case Func():
                return {value.scope}
            case Bound():
                return {value.func.scope}
            case Cls():
                made = Inst(value, id(node))
                return set().union(*(self.methods(made, name, node) for name in CONSTRUCTING))
            case Inst() if called:
                return self.methods(value, "__call__", node) | self.methods(value, "forward", node)
            case Made() if called and value.name == WRAP:
                return set().union(*self.steps(value).values())
            case Made(name="functools.partial") if depth < 3:
                targets = self._argument_values(value, 0)
                return set().union(*(self._functions(it, node, called, depth + 1) for it in targets))
        return set()

    def _commanded(self, call: Call, passed: list[Value]) -> set[int]:
        """The functions that a command line may choose: those given, all methods of a class, all of the module."""
        owners = {it for it in passed if isinstance(it, Cls | Inst)}
        held = self.contents(frozenset(passed))
        if not handed(call.node):
            held |= self._members(frozenset([Mod(call.scope.file.path)]), UNKNOWN, call.node)
        methods = self._members(frozenset(owners), UNKNOWN, call.node)
        functions = (it.func if isinstance(it, Bound) else it for it in held | methods)
        return {it.scope for it in functions if isinstance(it, Func)}

    def _run_by_holder(self, call: Call, passed: list[Value]) -> Values:
        """The functions that an object knows which is called, or a method of it, unless it is told them here."""
        around = self.parents[id(call.node)]
        decorates = call.node in getattr(around, "decorator_list", ())
        if decorates or any(isinstance(it, Func) or it in self._held for it in passed):
            return NOTHING
        owners = set()
        for callee in call.callees:
            while isinstance(callee, Member):
                callee = callee.owner
            owners.add(callee)
        return closure(frozenset(owners), lambda it: self._held.get(it, ())) - owners

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

    def entered(self, node: ast.AST) -> frozenset[int]:
        """The functions that running a piece of code may enter, at any depth."""
        first = self.called_scopes(node)
        if first not in self._entering_deep:
            found: set[int] = set()
            waiting = set(first)
            while waiting:
                index = waiting.pop()
                found.add(index)
                waiting |= self._entered_by(index) - found
            self._entering_deep[first] = frozenset(found)
        return self._entering_deep[first]

    def _entered_by(self, index: int) -> frozenset[int]:
        """The functions that a function may enter directly."""
        if index not in self._entering_of:
            every = map(self.called_scopes, self.scopes[index].body)
            self._entering_of[index] = frozenset().union(*every)
        return self._entering_of[index]


def _handed_on(call: Call, position: int, scope: Scope) -> int | None:
    """Where a method is given what it hands on at a position: among its ``*args``, behind its own parameters."""
    for place, argument in enumerate(call.node.args):
        if isinstance(argument, ast.Starred):
            return len(scope.params) - 1 + position - place if position >= place else None
    return None


def handed(node: ast.Call) -> list[ast.expr]:
    """All that a call is given, by place and by name."""
    return [*node.args, *(keyword.value for keyword in node.keywords)]


def is_runtime(names: Set[str]) -> bool:
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


def _is_enumeration(base: Value) -> bool:
    return isinstance(base, Ext) and base.name in ("enum.Enum", "enum.IntEnum", "enum.Flag", "enum.StrEnum")


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


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
