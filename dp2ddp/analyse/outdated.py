"""What today's PyTorch, and what comes with it, do not run any more: found by what it means, mended where that is safe.

``FORMS`` and the names of ``api/outdated.py`` are the whole list. A mend changes some characters of one line, so that
the program runs, and says the same as it did with the version that it was written for; all the analysis then sees the
mended program. What still runs is left alone, with a warning or not, and so is what a question for the version decides
about, or an attempt that may fail.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dp2ddp.analyse.api.iteration import OLD_NEXT, SAMPLER_INITS
from dp2ddp.analyse.api.layers import SCHEDULERS
from dp2ddp.analyse.api.naming import LOADER
from dp2ddp.analyse.api.outdated import (
    ATTEMPTED,
    PYTHON_2,
    PYTHON_2_METHODS,
    REMOVED_MODULES,
    REMOVED_NAMES,
    VERSIONS,
    Removed,
)
from dp2ddp.analyse.api.tensors import COMPARES, KEEPS_TRANSPOSED, TAKES_MASK, TO_ARRAY
from dp2ddp.analyse.context import Context, is_main_guard
from dp2ddp.analyse.dataflow.dimensions import Dimensions
from dp2ddp.analyse.program.link import Program
from dp2ddp.analyse.program.values import Bound, Cls, Ext, Func, Inst, full_name
from dp2ddp.facts import Outdated
from dp2ddp.legacy import KEYWORD, NOW, Kind, Mend
from dp2ddp.plan import Anchor
from dp2ddp.source import SourceFile, Span, span_of


@dataclass(frozen=True)
class Form(Removed):
    """What is no name, but written so: how it is found."""

    find: Finder


Place = tuple[SourceFile, tuple[int, int], tuple[int, int]]
"""A file, and lines and columns in it."""
Found = tuple[ast.AST, "list[Mend] | None"]
"""Where something stands, and its mends; None where it has none."""
Finder = Callable[["_Search", ast.AST], Found | None]


class _Search:
    """One program, searched."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.program: Program = context.program
        self.dimensions = Dimensions(context)

    def span(self, place: Place, after: str, expected: str = ".*") -> list[Mend] | None:
        """Other characters from one place to another; None where it is not one line that says what is ``expected``."""
        file, (line, start), (end_line, end) = place
        if line != end_line or not re.fullmatch(expected, file.lines[line - 1][start:end]):
            return None
        return [Mend(line, start, end, after)]

    def whole(self, node: ast.AST) -> Place:
        """Where a node stands."""
        file = self.program.file(node)
        span = span_of(node, file)
        return file, (span.line, span.column), (span.end_line, span.end_column)

    def behind(self, first: ast.AST, last: ast.AST) -> Place:
        """What stands behind one node, to the end of another."""
        file, _, start = self.whole(first)
        return file, start, self.whole(last)[2]

    def is_free(self, name: str, node: ast.AST) -> bool:
        """Whether one of Python's own names means that at a place."""
        path = self.program.file(node).path
        scopes = (it for it in self.program.scopes if it.file.path == path and not it.is_class)
        return hasattr(builtins, name) and not any(name in scope.names for scope in scopes)

    @cached_property
    def live(self) -> set[int]:
        """The functions and classes that the programs mention in what they run, and so may run."""
        found: set[int] = set()
        files = {
            path: self.program.modules[path] for path in self.context.reached if path in self.program.modules
        }
        waiting = [scope.index for scope in files.values()]
        while waiting:
            scope = self.program.scopes[index := waiting.pop()]
            if index in found:
                continue
            found.add(index)
            if scope.is_class:
                waiting += [it.index for it in self.program.scopes if it.parent is scope]
                waiting += [it.scope for it in self.program.bases(Cls(index)) if isinstance(it, Cls)]
            for node in self.program.body(scope):
                waiting += [self.program.by_node[id(node)].index] if isinstance(node, ast.Lambda) else []
                if isinstance(node, ast.Name | ast.Attribute) and not self._is_for_others(node):
                    for value in self.program.values(node):
                        value = value.func if isinstance(value, Bound) else value
                        waiting += [value.scope] if isinstance(value, Func | Cls) else []
        return found

    def _is_for_others(self, node: ast.AST) -> bool:
        """Whether a node is only run where its file is a program, and that is none that trains."""
        if self.program.file(node) in self.context.scripts:
            return False
        around = (it for it in self.program.ancestors(node) if isinstance(it, ast.If))
        return any(is_main_guard(it.test) for it in around)

    def is_run(self, node: ast.AST) -> bool:
        """Whether a program that trains may run a node."""
        return self.program.scope(node).index in self.live and not self._is_for_others(node)


# Forms


def _index(search: _Search, node: ast.AST) -> Found | None:
    """``loss.data[0]``, ``total[0]``, ``loss.cpu().numpy()[0]``."""
    match node:
        case ast.Subscript(value=value, slice=ast.Constant(value=0), ctx=ast.Load()):
            if search.dimensions.is_single(value):
                return node, search.span(search.behind(_tensor(value), node), ".item()", r"[.\[].*\]")
    return None


def _tensor(node: ast.expr) -> ast.expr:
    """The tensor behind ``.data``, ``.cpu()`` and ``.numpy()``."""
    match node:
        case ast.Attribute(value=inner, attr="data"):
            return _tensor(inner)
        case ast.Call(func=ast.Attribute(value=inner, attr=method), args=[], keywords=[]) if (
            method in TO_ARRAY
        ):
            return _tensor(inner)
    return node


def _next(search: _Search, node: ast.AST) -> Found | None:
    """``iterator.next()`` of a DataLoader."""
    match node:
        case ast.Call(func=ast.Attribute(value=iterator, attr="next"), args=[], keywords=[]):
            call = search.program.call(node)
            if call is None or not call.names <= OLD_NEXT or not all(map(full_name, call.callees)):
                return None
            if _draws(search.context, iterator):
                file, start, _ = search.whole(iterator)
                called = search.span(search.behind(iterator, node), ")", r"\.next\(\)")
                free = called is not None and start[0] == called[0].line and search.is_free("next", node)
                return node, [Mend(*start, start[1], "next("), *called] if free else None  # type: ignore[misc]
    return None


def _draws(context: Context, iterator: ast.expr) -> bool:
    values = context.behind(context.program.values(iterator))
    own = any(isinstance(it, Inst) and context.program.derives(it, LOADER) for it in values)
    return own or bool(context.made(values, LOADER))


def _view(search: _Search, node: ast.AST) -> Found | None:
    """``correct[:k].view(-1)``, of comparisons with a transposed tensor."""
    match node:
        case ast.Call(
            func=ast.Attribute(
                attr="view",
                value=ast.Subscript(value=value, slice=ast.Slice(lower=None, upper=upper)) as part,
            ) as method,
            args=[size],
        ):
            one = upper is not None and _is_one(search, upper)
            if not one and ast.unparse(size) == "-1" and _is_transposed(search, value):
                return node, search.span(search.behind(part, method), ".reshape", r"\.view")
    return None


def _is_one(search: _Search, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression is the number 1, or runs through tuples of it alone: ``for k in (1,)``."""
    match node:
        case ast.Constant():
            return node.value == 1
        case ast.Tuple() | ast.List():
            return bool(node.elts) and all(_is_one(search, it, depth + 1) for it in node.elts)
        case ast.Name() if depth < 6:
            sources: list[ast.expr] = []
            for definition in search.program.definitions(node):
                around = search.program.parent(definition)
                if isinstance(definition, ast.arg):
                    sources += search.program.given(definition) or [ast.Constant(None)]
                elif isinstance(around, ast.For | ast.comprehension) and around.target is definition:
                    sources.append(around.iter)
                elif isinstance(around, ast.Assign) and definition in around.targets:
                    sources.append(around.value)
                else:
                    return False
            return bool(sources) and all(_is_one(search, it, depth + 1) for it in sources)
    return False


def _is_transposed(search: _Search, node: ast.expr, depth: int = 0) -> bool:
    """Whether a tensor of two dimensions has its numbers in the order of its columns, wherever it comes from."""
    match node:
        case ast.Call(func=ast.Attribute(attr="t"), args=[]):
            return True
        case ast.Call(func=ast.Attribute(attr="transpose" | "permute", value=ast.Call() | ast.Name())):
            return len(node.args) == 2 and {ast.unparse(it) for it in node.args} == {"0", "1"}
        case ast.Attribute(attr="T"):
            return True
        case ast.Call(func=ast.Attribute(attr=method, value=value)) if method in KEEPS_TRANSPOSED:
            return _is_transposed(search, value, depth)
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq()], comparators=[_]):
            return _is_transposed(search, left, depth)
        case ast.Name() if depth < 6:
            found = search.program.definitions(node)
            statements = [it for it in map(search.program.parent, found) if isinstance(it, ast.Assign)]
            return (
                bool(found)
                and len(statements) == len(found)
                and all(_is_transposed(search, it.value, depth + 1) for it in statements)
            )
    return False


def _mask(search: _Search, node: ast.AST) -> Found | None:
    """``x.masked_fill_(mask.byte(), 0)``."""
    match node:
        case ast.Call(func=ast.Attribute(attr=method), args=[mask, *_]) if method in TAKES_MASK and not (
            search.program.entered(node)
        ):
            match mask:
                case ast.Call(func=ast.Attribute(attr="byte"), args=[], keywords=[]):
                    file, _, end = search.whole(mask)
                    return mask, search.span((file, end, end), ".bool()")
    return None


def _difference(search: _Search, node: ast.AST) -> Found | None:
    """``1 - x.gt(0)``."""
    match node:
        case ast.BinOp(op=ast.Sub(), left=ast.Constant(), right=right) if _is_mask(right):
            return node, None
        case ast.UnaryOp(op=ast.USub(), operand=right) if _is_mask(right):
            return node, None
    return None


def _is_mask(node: ast.expr) -> bool:
    """Whether something is a tensor of yes and no: only these have such methods."""
    match node:
        case ast.Call(func=ast.Attribute(attr=method), args=[_], keywords=[]) if method in COMPARES:
            return True
        case ast.Call(func=ast.Attribute(attr="bool"), args=[], keywords=[]):
            return True
    return False


def _source(search: _Search, node: ast.AST) -> Found | None:
    """``super().__init__(data_source)`` in a sampler."""
    call = search.program.call(node)
    if call is None or not call.names or not call.names <= SAMPLER_INITS or not isinstance(node, ast.Call):
        return None
    if not isinstance(node.func, ast.Attribute) or not isinstance(node.func.value, ast.Call):
        return None
    given = [*node.args, *(it.value for it in node.keywords)]
    return (node, search.span(search.behind(node.func, node), "()", r"\(.*\)")) if given else None


def _verbose(search: _Search, node: ast.AST) -> Found | None:
    """``ReduceLROnPlateau(optimizer, verbose=True)``."""
    call = search.program.call(node)
    if call is None or not call.names or not all(it.startswith(SCHEDULERS) for it in call.names):
        return None
    given = next((it for it in call.node.keywords if it.arg == "verbose"), None)
    if given is None:
        return None
    others = [*call.node.args, *(it.value for it in call.node.keywords)]
    before = [it for it in others if search.program.order[id(it)] < search.program.order[id(given.value)]]
    if not before:
        return given, None
    return given, search.span(search.behind(before[-1], given.value), "", r"\s*,\s*verbose\s*=\s*\w+")


def _function(search: _Search, node: ast.AST) -> Found | None:
    """``Detect()(x)`` of an autograd function whose ``forward`` takes an object."""
    call = search.program.call(node)
    for callee in call.callees if call is not None else ():
        if isinstance(callee, Inst) and search.program.derives(callee, "torch.autograd.Function"):
            forward = search.program.methods(callee, "forward", node)
            scopes = [search.program.scopes[index].node for index in forward]
            marks = [ast.unparse(it) for scope in scopes for it in getattr(scope, "decorator_list", ())]
            if scopes and "staticmethod" not in marks:
                return node, None
    return None


def _redirected(search: _Search, node: ast.AST) -> Found | None:
    """``print >> log, x``."""
    match node:
        case ast.BinOp(op=ast.RShift(), left=ast.Name(id="print")) if search.is_free("print", node):
            return node, None
    return None


def _builtin(search: _Search, node: ast.AST) -> Found | None:
    """``xrange(10)``, where nothing gives it that name."""
    if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load) or node.id not in PYTHON_2:
        return None
    path = search.program.file(node).path
    scopes = [it for it in search.program.scopes if it.file.path == path]
    if search.program.values(node) or any(node.id in it.names or it.stars for it in scopes):
        return None
    now = PYTHON_2[node.id]
    return node, search.span(search.whole(node), now) if now and search.is_free(now, node) else None


def _method(search: _Search, node: ast.AST) -> Found | None:
    """``numbers.iteritems()`` of what is no object of the project's."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=owner, attr=name) as method, args=[], keywords=[]
        ) if name in PYTHON_2_METHODS and not search.program.entered(node):
            if any(isinstance(it, Inst) for it in search.program.values(owner)):
                return None
            now = f".{PYTHON_2_METHODS[name]}"
            return node, search.span(search.behind(owner, method), now, rf"\.{name}")
    return None


# The list of forms; of names and modules, see ``api/outdated.py``

FORMS = (
    Form("indexing a scalar tensor", "PyTorch 1.0", "`.item()`", _index),
    Form("the `.next()` method of a DataLoader iterator", "PyTorch 1.13", "`next(iterator)`", _next),
    Form("`view` on a non-contiguous tensor", "PyTorch 1.7", "`.reshape(-1)`", _view),
    Form("indexing by a uint8 mask", "PyTorch 2", "`.bool()`", _mask),
    Form("subtraction with a bool mask", "PyTorch 1.2", "`~mask`, or `1 - mask.long()`", _difference),
    Form("an argument to torch's Sampler", "PyTorch 2.10", "`.__init__()`", _source),
    Form("an argument of a learning rate scheduler", "PyTorch 2.7", "", _verbose),
    Form("calling an autograd.Function instance", "PyTorch 1.5", "static methods and `apply`", _function),
    Form("`print >>file`", "Python 3.0", "`print(…, file=…)`", _redirected),
    Form("a Python 2 builtin", "Python 3.0", "its Python 3 equivalent", _builtin),
    Form("a method of Python 2", "Python 3.0", "its Python 3 equivalent", _method),
)


def _name(search: _Search, node: ast.AST) -> tuple[Removed, Found] | None:
    """An attribute, or an imported name, that is gone."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return _imported(search, node)
    if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
        return None
    values = search.program.values(node)
    names = {full_name(value) for value in values if isinstance(value, Ext)}
    row = REMOVED_NAMES.get(names.pop()) if len(names) == len(values) == 1 else None
    if row is None or node.attr != row.what.rpartition(".")[2]:
        return None
    return row, (node, _renamed(search, node, row))


def _renamed(search: _Search, node: ast.Attribute, row: Removed) -> list[Mend] | None:
    """An attribute by its new name: of the same module, of one inside it, or of Python itself."""
    module, name = row.place
    own = row.what.rpartition(".")[0]
    if module == "builtins":
        return search.span(search.whole(node), name) if search.is_free(name, node) else None
    if (module + ".").startswith(own + "."):
        return search.span(search.behind(node.value, node), f"{module.removeprefix(own)}.{name}", r"\.\w+")
    return None


def _imported(search: _Search, node: ast.Import | ast.ImportFrom) -> tuple[Removed, Found] | None:
    """``from torchvision.models.utils import load_state_dict_from_url``."""
    if isinstance(node, ast.Import):
        gone = [(it, REMOVED_MODULES[it.name]) for it in node.names if _is_gone(search, node, it.name)]
        return (gone[0][1], (node, _modules(search, gone))) if gone else None
    if node.level or not node.module:
        return None
    if _is_gone(search, node, node.module) and REMOVED_MODULES[node.module].module:
        row = REMOVED_MODULES[node.module]
        return row, (node, _from(search.program.file(node), node, row.module))
    rows = [REMOVED_NAMES.get(f"{node.module}.{alias.name}") for alias in node.names]
    named = [(alias, row) for alias, row in zip(node.names, rows, strict=True) if row is not None]
    if not named:
        within = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        found = [REMOVED_MODULES[it] for it in within if _is_gone(search, node, it)]
        return (found[0], (node, None)) if found else None
    modules = {row.place[0] for _, row in named}
    whole = len(named) == len(node.names)
    if len(modules) > 1 or not modules <= ({node.module} if not whole else modules - {""}):
        return named[0][1], (node, None)
    mends = _from(search.program.file(node), node, modules.pop())
    for alias, row in named:
        if row.place[1] != alias.name and mends is not None:
            new = search.span(search.whole(alias), f"{row.place[1]} as {alias.asname or alias.name}")
            mends = None if new is None else [*mends, *new]
    return named[0][1], (node, mends)


def _is_gone(search: _Search, node: ast.AST, module: str) -> bool:
    """Whether a module is gone, and none of the project's has its name."""
    path = search.program.file(node).path
    return module in REMOVED_MODULES and search.program.project.resolve(path, module) is None


def _modules(search: _Search, gone: list[tuple[ast.alias, Removed]]) -> list[Mend] | None:
    """``import cPickle as pickle`` by the modules' new names; what they were called stays, as the code says that."""
    mends: list[Mend] = []
    for alias, row in gone:
        name = alias.asname or alias.name
        new = row.module if row.module == name else f"{row.module} as {name}"
        place = search.span(search.whole(alias), new) if row.module else None
        if place is None:
            return None
        mends += place
    return mends


def _from(file: SourceFile, node: ast.ImportFrom, module: str) -> list[Mend] | None:
    """An import from another module."""
    if module == node.module:
        return []
    span, text = span_of(node, file), file.lines[node.lineno - 1]
    start = text.find(str(node.module), span.column + len("from "))
    return [Mend(node.lineno, start, start + len(str(node.module)), module)] if start >= 0 else None


# The search


def _is_guarded(search: _Search, node: ast.AST) -> bool:
    """Whether a version decides that something is run, or it stands in a short attempt that may fail."""
    inside = node
    for around in search.program.ancestors(node):
        if isinstance(around, ast.If | ast.IfExp) and inside is not around.test:
            if _asks_for_version(search, around.test):
                return True
        if isinstance(around, ast.BoolOp):
            before = around.values[: around.values.index(inside)]  # type: ignore[arg-type]
            if any(_asks_for_version(search, it) for it in before):
                return True
        if isinstance(around, ast.Try) and len(around.body) == 1 and any(map(_catches, around.handlers)):
            return True
        if isinstance(around, ast.ExceptHandler) and _catches(around):
            return True
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
            return False
        inside = around
    return False


def _catches(handler: ast.ExceptHandler) -> bool:
    kinds = getattr(handler.type, "elts", [handler.type]) if handler.type is not None else []
    return handler.type is None or any(ast.unparse(it) in ATTEMPTED for it in kinds)


def _asks_for_version(search: _Search, test: ast.AST, depth: int = 0) -> bool:
    for node in ast.walk(test):
        if getattr(node, "attr", getattr(node, "id", "")) in VERSIONS:
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hasattr":
            return True
        if isinstance(node, ast.Name) and depth < 3:
            for definition in search.program.definitions(node):
                statement = (
                    search.program.statement(definition) if not isinstance(definition, ast.arg) else None
                )
                if isinstance(statement, ast.Assign) and _asks_for_version(
                    search, statement.value, depth + 1
                ):
                    return True
    return False


def find(context: Context) -> tuple[Outdated, ...]:
    """What a program that trains with DataParallel runs into, in source order; its mends are of what was parsed."""
    if not context.scripts:
        return ()
    search = _Search(context)
    taken: list[tuple[Path, Mend]] = []
    groups: dict[tuple[Path, Removed, bool], list[tuple[ast.AST, list[Mend]]]] = {}
    found = [
        (context.program.file(node).path, node, row, it)
        for node in context.program.nodes.values()
        for row, it in _rows(search, node)
        if not _is_guarded(search, node)
    ]
    run = {(path, row) for path, node, row, _ in found if search.is_run(node)}
    for path, node, row, (place, mends) in found:
        # what is mended in one place of a file is mended in all: who can tell that the others never run
        if search.is_run(node) or ((path, row) in run and mends is not None):
            if not context.program.is_placed(place):
                place, mends = context.program.statement(place), None
            if any(_overlap(one, it) for one in mends or () for other, it in taken if other == path):
                mends = None
            taken += [(path, mend) for mend in mends or ()]
            groups.setdefault((path, row, mends is not None), []).append((place, mends or []))
    return tuple(_fact(context, row, places) for (_, row, _), places in groups.items())


def _overlap(one: Mend, other: Mend) -> bool:
    return one.line == other.line and one.start < other.end and other.start < one.end


def _rows(search: _Search, node: ast.AST) -> Iterator[tuple[Removed, Found]]:
    if (named := _name(search, node)) is not None:
        yield named
    for row in FORMS:
        if (found := row.find(search, node)) is not None:
            yield row, found


def _fact(context: Context, row: Removed, found: list[tuple[ast.AST, list[Mend]]]) -> Outdated:
    first = found[0][0]
    form = isinstance(row, Form)
    what = f"`{ast.unparse(first)}`, {row.what}, fails since" if form else f"`{row.what}` was removed in"
    instead = f"`{row.instead.removeprefix('builtins.')}`" if row.module or row.place[1] else row.instead
    mends = tuple(mend for _, some in found for mend in some)
    lines = tuple(context.program.location(place).span.line for place, _ in found)
    at = context.program.anchor(first)
    imported = any(
        context.program.scope(it).is_module and isinstance(context.program.statement(it), IMPORTS)
        for it, _ in found
    )
    said = {"what": f"{what} {row.since}", "instead": instead, "mends": mends, "fails_at_import": imported}
    return _outdated(context, at, lines[1:], **said)


IMPORTS = ast.Import | ast.ImportFrom


def _outdated(context: Context, at: Anchor, lines: Iterable[int], **more: Any) -> Outdated:
    project = context.program.project
    scripts = (file.path for file in context.scripts if at.path in project.reaches(file.path))
    others = tuple(sorted({*lines} - {at.span.line}))
    return Outdated(at, "", scripts=frozenset(scripts), lines=others, **more)


# What can't be parsed

SPELLED = {
    Kind.ARGUMENT: (f"`{KEYWORD}` is a keyword since Python 3.7", f"`{KEYWORD}=` replaced by `{NOW}=`"),
    Kind.NAME: (f"`{KEYWORD}` is a keyword since Python 3.7", f"the variable is now `{NOW}`"),
    Kind.ATTRIBUTE: (
        f"`{KEYWORD}` is a keyword since Python 3.7",
        f'the attribute is now read by `getattr(…, "{KEYWORD}")`',
    ),
    Kind.INDENTATION: (
        "tabs are mixed with spaces, a TabError in Python 3",
        "tabs replaced by spaces (tab stops of 8)",
    ),
}


def spelled(context: Context) -> Iterator[Outdated]:
    """What was written otherwise so that the files of the programs can be parsed."""
    for file in context.program.files:
        for kind, (what, instead) in SPELLED.items():
            mends = tuple(mend for mend in file.mends if mend.kind is kind)
            if mends:
                at = Anchor(
                    file.path, "expr", Span(mends[0].line, mends[0].start, mends[0].line, mends[0].end)
                )
                lines = [mend.line for mend in mends]
                yield _outdated(context, at, lines, what=what, instead=instead, mends=mends, syntax=True)
