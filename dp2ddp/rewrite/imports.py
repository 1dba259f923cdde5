"""Adding import lines where a file's imports stand, and removing names that nothing uses any more."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

import libcst as cst

from dp2ddp.plan import AddImport
from dp2ddp.rewrite.errors import RewriteError

_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_OWN = "dp2ddp"
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Delete, ast.Pass, ast.Assert)

Import = ast.Import | ast.ImportFrom


def add_imports(text: str, edits: Iterable[AddImport], newline: str) -> str:
    """The text with these import lines added, each once; those of other packages first, then our own."""
    statements = {_line(edit.statement): None for edit in edits}
    for statement in sorted(statements, key=lambda it: _is_own(_parsed(it))):
        text = _add(text, statement, newline)
    return text


def _line(statement: str) -> str:
    return ast.unparse(_parsed(statement))


def _parsed(statement: str) -> Import:
    try:
        body = ast.parse(statement.strip()).body
    except SyntaxError:
        body = []
    if len(body) == 1 and isinstance(body[0], (ast.Import, ast.ImportFrom)):
        return body[0]
    raise RewriteError(f"{statement!r} is not an import")


def _add(text: str, statement: str, newline: str) -> str:
    tree = ast.parse(text)
    new = _parsed(statement)
    missing = [alias for alias in new.names if not _is_there(tree, new, alias)]
    if not missing:
        return text
    new.names = missing
    line = ast.unparse(new)
    lines = _LINES.findall(text)
    region = _region(tree, {_bound(alias) for alias in missing})
    beside = _nearest(region, new)
    if beside is not None:
        return _put(lines, _end(tree, beside), [line], newline)
    imports = [node for node in region if _has_import(node)]
    own = _is_own(new)
    if imports:
        future = not own and all(_module(node) == "__future__" for node in imports)
        at = _end(tree, imports[-1])
        follows = own and at < len(lines) and lines[at].strip() != ""
        return _put(lines, at, [""] * (own or future) + [line] + [""] * follows, newline)
    if region and _is_docstring(region[0]):
        at = _end(tree, region[0])
        follows = at < len(lines) and lines[at].strip() != ""
        return _put(lines, at, ["", line] + [""] * follows, newline)
    if not tree.body:
        return _put(lines, len(lines), [line], newline)
    return _put(lines, _start(tree.body[0]) - 1, [line, ""], newline)


def _put(lines: list[str], at: int, new: Sequence[str], newline: str) -> str:
    """The lines with new ones after the first ``at``."""
    above, below = lines[:at], lines[at:]
    added = [line + newline for line in new]
    if above and not above[-1].endswith(
        ("\n", "\r")
    ):  # the file ends without a line end: it goes on doing so
        above[-1] += newline
        added[-1] = added[-1].removesuffix(newline)
    return "".join([*above, *added, *below])


def _is_there(tree: ast.Module, new: Import, alias: ast.alias) -> bool:
    """Whether the file itself imports the same under the same name, before its top level uses it."""
    name = _bound(alias)
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            same = _module(node) == _module(new) and type(node) is type(new)
            if same and any((it.name, it.asname) == (alias.name, alias.asname) for it in node.names):
                return True
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and name in _names(node):
            return False
    return False


def _region(tree: ast.Module, names: set[str]) -> list[ast.stmt]:
    """The statements at the top that imports stand among, up to the first use of one of the names."""
    region: list[ast.stmt] = []
    for node in tree.body:
        if names & _names(node) or not (_is_simple(node) or _has_import(node)) or _is_main(node):
            break
        region.append(node)
    return region


def _is_simple(node: ast.stmt) -> bool:
    if isinstance(node, (ast.If, ast.Try)):
        return all(_is_simple(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt))
    return isinstance(node, (*_SIMPLE, ast.Import, ast.ImportFrom))


def _has_import(node: ast.stmt) -> bool:
    if isinstance(node, (ast.If, ast.Try)):
        return any(isinstance(child, (ast.Import, ast.ImportFrom)) for child in ast.walk(node))
    return isinstance(node, (ast.Import, ast.ImportFrom))


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in _names(node.test)


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _nearest(region: Iterable[ast.stmt], new: Import) -> ast.stmt | None:
    """The last of the import lines that share most of the new module's path, if any shares its package."""
    best, nearest = 0, None
    for node in region:
        shared = max((_shared(name, _module(new)) for name in _modules(node)), default=0)
        if shared and shared >= best:
            best, nearest = shared, node
    return nearest


def _shared(one: str, other: str) -> int:
    count = 0
    for left, right in zip(one.split("."), other.split("."), strict=False):
        if not left or left != right:
            break
        count += 1
    return count


def _modules(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [_module(node)] if isinstance(node, ast.ImportFrom) else []


def _module(node: ast.stmt) -> str:
    if isinstance(node, ast.Import):
        return node.names[0].name
    return "." * node.level + (node.module or "") if isinstance(node, ast.ImportFrom) else ""


def _is_own(node: Import) -> bool:
    return _module(node).startswith((_OWN, "."))


def _bound(alias: ast.alias) -> str:
    return alias.asname or alias.name.split(".")[0]


def _names(node: ast.AST) -> set[str]:
    return {it.id for it in ast.walk(node) if isinstance(it, ast.Name)}


def _start(node: ast.stmt) -> int:
    return min([node.lineno, *(it.lineno for it in getattr(node, "decorator_list", ()))])


def _end(tree: ast.Module, node: ast.stmt) -> int:
    """The last line of a statement and of those that begin on it."""
    end = node.end_lineno or node.lineno
    for other in tree.body[tree.body.index(node) + 1 :]:
        if other.lineno > end:
            break
        end = max(end, other.end_lineno or end)
    return end


def drop_imports(text: str, names: Iterable[str]) -> str:
    """The text without the imports of those of the names that nothing uses."""
    for name in dict.fromkeys(names):
        if not _is_used(text, name):
            text = _drop(text, name)
    return text


def _is_used(text: str, name: str) -> bool:
    """Whether anything may refer to a name: code, ``__all__``, an annotation in quotes or in a comment."""
    word = re.compile(rf"\b{re.escape(name)}\b")
    if re.search(rf"#\s*type:[^\r\n]*\b{re.escape(name)}\b", text):
        return True
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and node.id == name:
            return True
        if isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names:
            return True
        if any(word.search(string) for string in _speaking(node)):
            return True
    return False


def _speaking(node: ast.AST) -> Iterator[str]:
    """Strings that are code: annotations, and the names in ``__all__``."""
    places = [getattr(node, "annotation", None), getattr(node, "returns", None)]
    targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
    assigned = isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign))
    if assigned and any(isinstance(it, ast.Name) and it.id == "__all__" for it in targets):
        places.append(node.value)
    for place in places:
        if isinstance(place, ast.AST):
            for it in ast.walk(place):
                if isinstance(it, ast.Constant) and isinstance(it.value, str):
                    yield it.value


def _drop(text: str, name: str) -> str:
    """The text without any import that binds the name. One that is all there is to a block stays."""
    tree = ast.parse(text)
    lines = _LINES.findall(text)
    alone = {id(body[0]) for node in ast.walk(tree) for body in _bodies(node) if len(body) == 1}
    spans = [
        (node.lineno - 1, node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        and id(node) not in alone
        and _module(node) != "__future__"
        if any(_bound(alias) == name for alias in node.names)
    ]
    for start, end in sorted(set(spans), reverse=True):
        rest = _without("".join(lines[start:end]), name)
        if rest is not None:
            lines[start:end] = [rest] if rest else []
            if not rest:
                _close(lines, start)
    return "".join(lines)


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    if not isinstance(node, (ast.Module, ast.Lambda, ast.IfExp)):
        for role in ("body", "orelse", "finalbody"):
            body = getattr(node, role, None)
            if isinstance(body, list) and body:
                yield body


def _close(lines: list[str], at: int) -> None:
    """Leave as many blank lines where a line was removed as the larger of the two gaps had."""
    above, below = at, at
    while above and not lines[above - 1].strip():
        above -= 1
    while below < len(lines) and not lines[below].strip():
        below += 1
    if above == 0:
        del lines[:below]
    elif above < at < below:
        del lines[at : at + min(at - above, below - at)]


def _without(statement: str, name: str) -> str | None:
    """A line of imports without one name, empty if nothing is left; None if it cannot be taken apart."""
    indented = statement[:1] in (" ", "\t")
    opening = "if 1:\n" if indented else ""
    try:
        module = cst.parse_module(opening + statement)
    except cst.ParserSyntaxError:  # it shares its lines with something larger
        return None
    block = module.body[0].body if indented else module  # type: ignore[attr-defined]
    if len(block.body) != 1 or not isinstance(block.body[0], cst.SimpleStatementLine):
        return None
    line = block.body[0]
    parts = [it for part in line.body if (it := _shortened(part, name)) is not None]
    if not parts:
        return ""
    if len(parts) < len(line.body):
        parts[-1] = parts[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
    return module.deep_replace(line, line.with_changes(body=parts)).code.removeprefix(opening)


def _shortened(part: cst.BaseSmallStatement, name: str) -> cst.BaseSmallStatement | None:
    if not isinstance(part, (cst.Import, cst.ImportFrom)) or isinstance(part.names, cst.ImportStar):
        return part
    aliases = list(part.names)
    for at in reversed(range(len(aliases))):
        if _name(aliases[at]) == name:
            gone = aliases.pop(at)
            if not aliases:
                return None
            if at == len(aliases):
                aliases[-1] = aliases[-1].with_changes(comma=gone.comma)
            elif isinstance(gone.comma, cst.Comma) and at and _own_lines(gone.comma):
                aliases[at - 1] = _with_lines(aliases[at - 1], _own_lines(gone.comma))
    return part.with_changes(names=aliases)


def _name(alias: cst.ImportAlias) -> str:
    return alias.evaluated_alias or alias.evaluated_name.split(".")[0]


def _own_lines(comma: cst.Comma) -> list[cst.EmptyLine]:
    """The comments on lines of their own after a comma."""
    space = comma.whitespace_after
    return list(space.empty_lines) if isinstance(space, cst.ParenthesizedWhitespace) else []


def _with_lines(alias: cst.ImportAlias, lines: list[cst.EmptyLine]) -> cst.ImportAlias:
    if isinstance(alias.comma, cst.Comma) and isinstance(
        space := alias.comma.whitespace_after, cst.ParenthesizedWhitespace
    ):
        space = space.with_changes(empty_lines=[*space.empty_lines, *lines])
        return alias.with_changes(comma=alias.comma.with_changes(whitespace_after=space))
    return alias
