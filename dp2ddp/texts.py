"""What strings an expression may be: literals put together, ``*`` for each part that is only known when it runs."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

ANY = "*"
"""A part that is not known."""
NAME = "\0name"
"""What ``__name__`` is, which the file alone does not say."""
PACKAGE = "\0package"
"""What ``__package__`` is."""

_MOST = 16
_DEEPEST = 20
_SAME = ("resolve", "absolute", "as_posix", "expanduser")
_SPLITS = ("os.path.split", "osp.split", "path.split")
_FILE_OF = ("getfile", "getsourcefile")
_SAME_OF_ARGUMENT = ("abspath", "realpath", "normpath", "str", "fspath", "expanduser")


@dataclass(frozen=True)
class Texts:
    """The strings that expressions of one file may be. ``path`` is what ``__file__`` is."""

    tree: ast.Module = field(repr=False, compare=False)
    path: str
    _found: dict[str, frozenset[str]] = field(default_factory=dict, repr=False, compare=False)

    def of(self, node: ast.expr) -> frozenset[str]:
        """All strings that an expression may be, each with ``*`` for what is not known of it."""
        return self._of(node, 0)

    def exact(self, node: ast.expr) -> str | None:
        """The string that an expression is, where it is one and all of it is known."""
        found = self.of(node)
        text = next(iter(found)) if len(found) == 1 else ANY
        return None if ANY in text or "\0" in text else text

    def assigned(self, name: str) -> list[ast.expr]:
        """What is assigned to a name, anywhere in the file."""
        return [value for value in self._assigned.get(name, ()) if value is not None]

    @cached_property
    def _assigned(self) -> Mapping[str, list[ast.expr | None]]:
        """What is assigned to each name, anywhere in the file; None for what is no expression.

        To parameters, what calls in this file give them.
        """
        found: dict[str, list[ast.expr | None]] = {}
        plain: set[int] = set()
        nodes = list(ast.walk(self.tree))
        calls: dict[str, list[ast.Call]] = {}
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                calls.setdefault(node.func.id, []).append(node)
        for node in nodes:
            if isinstance(node, ast.FunctionDef) and node.name in calls:
                for name, given in _given(node, calls[node.name]):
                    found.setdefault(name, []).append(given)
                    plain.update(id(it) for it in node.args.args)
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    if isinstance(target, ast.Name):
                        found.setdefault(target.id, []).append(node.value)
                        plain.add(id(target))
            elif isinstance(node, ast.For | ast.comprehension) and isinstance(node.target, ast.Name):
                if elements := _written_out(node.iter):
                    found.setdefault(node.target.id, []).extend(elements)
                    plain.add(id(node.target))
            elif isinstance(node, ast.arg) and id(node) not in plain:
                found.setdefault(node.arg, []).append(None)
            elif isinstance(node, ast.alias):
                found.setdefault(node.asname or node.name.partition(".")[0], []).append(None)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in plain:
                found.setdefault(node.id, []).append(None)
        return found

    def _of(self, node: ast.expr | None, depth: int) -> frozenset[str]:
        found = frozenset(self._parts(node, depth + 1)) if node is not None and depth < _DEEPEST else _UNKNOWN
        return found if 0 < len(found) <= _MOST else _UNKNOWN

    def _parts(self, node: ast.expr, depth: int) -> Iterable[str]:
        match node:
            case ast.Constant(value=str() as text):
                return [text]
            case ast.Constant(value=int() as number):
                return [str(number)]
            case ast.Name(id="__file__"):
                return [self.path]
            case ast.Name(id="__name__"):
                return [NAME]
            case ast.Name(id="__package__"):
                return [PACKAGE]
            case ast.Name():
                return self._name(node.id, depth)
            case ast.FormattedValue(conversion=-1, format_spec=None):
                return self._of(node.value, depth)
            case ast.BinOp(op=ast.Div()):
                return self._joined(os.sep, [node.left, node.right], depth)
            case ast.JoinedStr() | ast.BinOp() if found := parts(node):
                return self._joined("", found, depth)
            case ast.IfExp():
                return self._of(node.body, depth) | self._of(node.orelse, depth)
            case ast.BoolOp(op=ast.Or()):
                return {text for value in node.values for text in self._of(value, depth)}
            case ast.Subscript(value=ast.Attribute(attr="path" | "argv" as attr, value=ast.Name(id="sys"))):
                # the folder of the program, and the program: what is put on `sys.path` counts from there
                first = isinstance(node.slice, ast.Constant) and node.slice.value == 0
                return [os.curdir if attr == "path" else os.path.join(os.curdir, ANY)] if first else _UNKNOWN
            case ast.Subscript(value=ast.Call(func=function, args=[path]), slice=ast.Constant(value=0)) if (
                ast.unparse(function) in _SPLITS
            ):
                return map(_folder, self._of(path, depth))
            case ast.Attribute(attr="pardir"):
                return [os.pardir]
            case ast.Attribute(attr="curdir"):
                return [os.curdir]
            case ast.Attribute(attr="parent"):
                return map(_folder, self._of(node.value, depth))
            case ast.Subscript(
                value=ast.Attribute(attr="parents", value=start), slice=ast.Constant(value=int() as up)
            ):
                return (_folder(text, up + 1) for text in self._of(start, depth))
            case ast.Call():
                return self._called(node, depth)
        return _UNKNOWN

    def _name(self, name: str, depth: int) -> frozenset[str]:
        """All strings that a name may be; one that is made of itself is not known."""
        if name not in self._found:
            self._found[name] = _UNKNOWN
            values = self._assigned.get(name, [None])
            self._found[name] = frozenset(text for value in values for text in self._of(value, depth))
        return self._found[name]

    def _called(self, node: ast.Call, depth: int) -> Iterable[str]:
        function = node.func
        name = _last(function)
        owner = function.value if isinstance(function, ast.Attribute) else None
        if owner is not None and name in _SAME and not node.args:
            return self._of(owner, depth)
        if name in ("getcwd", "cwd"):
            return [os.curdir]
        if not node.args or any(isinstance(it, ast.Starred) for it in node.args):
            return _UNKNOWN
        if isinstance(owner, ast.Constant) and isinstance(owner.value, str):
            if name == "format" and (found := parts(node)):
                return self._joined("", found, depth)
            if name == "join" and isinstance(node.args[0], ast.List | ast.Tuple):
                return self._joined(owner.value, node.args[0].elts, depth)
            return _UNKNOWN
        if name == "dirname":
            return map(_folder, self._of(node.args[0], depth))
        if name in _FILE_OF:
            return [self.path]
        if name in _SAME_OF_ARGUMENT:
            return self._of(node.args[0], depth)
        if name in ("join", "Path", "PurePath", "joinpath"):
            first = [owner] if name == "joinpath" and owner is not None else []
            return self._joined(os.sep, [*first, *node.args], depth)
        return _UNKNOWN

    def _joined(self, between: str, parts: Iterable[ast.expr | None], depth: int) -> Iterable[str]:
        found: frozenset[str] | None = None
        join: Callable[[str, str], str] = _path if between == os.sep else lambda one, two: one + between + two
        for part in parts:
            texts = self._of(part, depth)
            found = texts if found is None else frozenset(join(one, two) for one in found for two in texts)
            if len(found) > _MOST:
                return _UNKNOWN
        return found or [""]


_UNKNOWN = frozenset([ANY])
_SPECIFIER = re.compile(r"%(?:\([^)]*\))?[-#0 +]*\d*(?:\.\d+)?[a-zA-Z]")
_FIELD = re.compile(r"\{([^{}:!]*)[^{}]*\}")


def parts(node: ast.expr) -> list[ast.expr | None]:
    """What a text is put together of: literals, and values, None for one that is not known; empty for any other."""
    match node:
        case ast.JoinedStr(values=values):
            return [*values]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [left, right]
        case ast.BinOp(left=ast.Constant(value=str(form)), op=ast.Mod(), right=right):
            values = right.elts if isinstance(right, ast.Tuple) else [right]
            return _filled(_SPECIFIER.split(form.replace("%%", "%")), [*values])
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(value=str(form)), attr="format"),
            args=values,
            keywords=named,
        ):
            known = not any(isinstance(it, ast.Starred) for it in values) and all(it.arg for it in named)
            return _formatted(
                form, values if known else [], {it.arg: it.value for it in named if it.arg and known}
            )
    return []


def _formatted(form: str, values: list[ast.expr], named: Mapping[str, ast.expr]) -> list[ast.expr | None]:
    """``"{}.{name}".format(x, name=y)``."""
    pieces = _FIELD.split(form)
    chosen: list[ast.expr | None] = []
    for place, key in enumerate(pieces[1::2]):
        number = int(key) if key.isdecimal() else place if not key else len(values)
        chosen.append(named.get(key) or (values[number] if number < len(values) else None))
    return _filled(pieces[::2], chosen)


def _filled(pieces: list[str], values: list[ast.expr | None]) -> list[ast.expr | None]:
    """Pieces of text with values between them."""
    if len(values) != len(pieces) - 1:
        values = [None] * (len(pieces) - 1)
    found: list[ast.expr | None] = [ast.Constant(pieces[0])]
    for value, piece in zip(values, pieces[1:], strict=True):
        found += [value, ast.Constant(piece)]
    return found


def _written_out(sequence: ast.expr) -> list[ast.expr]:
    """The elements of a list or tuple that stands there; empty for any other."""
    elements = sequence.elts if isinstance(sequence, ast.List | ast.Tuple) else []
    return [] if any(isinstance(it, ast.Starred) for it in elements) else elements


def _given(function: ast.FunctionDef, calls: list[ast.Call]) -> Iterator[tuple[str, ast.expr | None]]:
    """What calls give the parameters of a function; None where that is not seen."""
    params = [it.arg for it in function.args.args]
    defaults = dict(zip(reversed(params), reversed(function.args.defaults), strict=False))
    for call in calls:
        named = {it.arg: it.value for it in call.keywords}
        hidden = None in named or any(isinstance(it, ast.Starred) for it in call.args)
        for place, name in enumerate(params):
            given = call.args[place] if place < len(call.args) else named.get(name, defaults.get(name))
            yield name, None if hidden else given


def _path(one: str, two: str) -> str:
    return two if one == "" else os.path.join(one, two)


def _folder(text: str, up: int = 1) -> str:
    for _ in range(up):
        if os.path.basename(text) in (os.curdir, os.pardir):
            text = os.path.join(text, os.pardir)
        else:
            text = ANY if text == ANY else os.path.dirname(text)
    return text


def _last(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def matches(texts: Iterable[str], name: str) -> bool:
    """Whether a name may be one of some texts."""
    return any(re.fullmatch(".*".join(map(re.escape, text.split(ANY))), name) for text in texts)
