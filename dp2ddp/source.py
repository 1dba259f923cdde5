"""Reading: which files there are, what they say, and where in them something stands.

``read`` takes what the command line names and follows imports from there to the other files of the project.
Paths are absolute and resolved: a file that is reached twice, by a symbolic link for instance, is one file.
"""

from __future__ import annotations

import ast
import copy
import difflib
import importlib.util
import io
import json
import keyword
import os
import re
import shlex
import sys
import tokenize
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import islice
from pathlib import Path

from dp2ddp import entrypoints, legacy
from dp2ddp.ignored import LeftOut, Pattern
from dp2ddp.legacy import Mend
from dp2ddp.libraries import FOLDERS, installed_in, is_installed
from dp2ddp.texts import ANY, NAME, PACKAGE, Texts, matches

NOTEBOOK = ".ipynb"
STDIN = "<stdin>"
"""The name of the file that ``-`` stands for."""

RUNTIME = "dp2ddp.runtime"
"""What converted scripts import; a project may have a copy of it, by another name."""

COPY = b"__dp2ddp_runtime__ = "
"""What the first file of such a copy holds."""
_NOT_OURS = frozenset({"__pycache__", "build", "dist", "node_modules"}) | FOLDERS
# What imports by name, and by path: there, at which place that is given.
_BY_NAME = frozenset({"import_module", "__import__", "run_module"})
_BY_PATH = {"load_source": 1, "spec_from_file_location": 1, "SourceFileLoader": 1, "run_path": 0}
# What starts a command, as another program.
_STARTING = frozenset({"system", "popen", "Popen", "call", "run", "check_call", "check_output"})
_IMPORTING = (*_BY_NAME, *_BY_PATH, "exec(", "os.system", "subprocess", "Popen", "check_call")
_WRITTEN = re.compile(r"\bfrom\s+(?P<module>[\w.*]+)\s+import\s+(?P<names>[\w*, ]+)")
_LISTING = ("listdir", "glob", "iter_modules", "walk_packages")
# What a file holds that reads the checkpoints of a wrapped model by their keys; how many files are looked at, how deep.
_OF_WRAPS = (b"DataParallel", b"module.", b".module", b"[7:]")
_MOST_BESIDE, _DEEPEST_BESIDE = 1000, 3
# What stands in the folder of a project, and not in those below it.
_OF_REPOSITORIES = (".git", "pyproject.toml", "setup.py", "setup.cfg")
_OF_PROJECTS = (*_OF_REPOSITORIES, "README.md", "README.rst", "README", "LICENSE", "requirements.txt")
# How many files that load something are those of a collection of programs.
_MANY = 40
# What is not in a folder of a project that is only explained by a README of its own.
_OF_WHOLE_PROJECTS = (
    *(*_OF_REPOSITORIES, "LICENSE", "LICENSE.txt", "LICENSE.md", "license.txt", "COPYING"),
    *("requirements.txt", "environment.yml", "environment.yaml", "Pipfile"),
)
# The shell scripts that may put folders on Python's search path, how they do, and how they name their own folder.
_SHELL = (".sh", ".bash")
_SETS_PATH = re.compile(r"""\bPYTHONPATH=((?:"[^"\n]*"|'[^'\n]*'|\$\([^)\n]*\)|`[^`\n]*`|[^\s;&"'`])+)""")
_HERE = r"""\$PWD\b|\$\{PWD\}|\$\(pwd\)|`pwd`|\$\(dirname "?\$0"?\)"""
# What Python has imported before a program begins, or finds before it looks into any folder.
_STARTED_WITH = frozenset(sys.builtin_module_names) | frozenset(
    "abc codecs encodings genericpath importlib io ntpath os posixpath runpy site stat zipimport".split()
)
# The standard library has a module of this name, Python's own tests, which no program means.
_STANDARD = frozenset(sys.stdlib_module_names) - {"test"}
# What no program imports by name.
_OWN_NAMES = frozenset({"__init__", "__main__"})


@dataclass(frozen=True, order=True)
class Span:
    """A range of source text: lines count from 1, columns from 0 in characters, the end is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, order=True)
class Location:
    """A range in a file."""

    path: Path
    span: Span

    def __str__(self) -> str:
        return f"{self.path}:{self.span.line}"


@dataclass(frozen=True)
class Import:
    """One module that a file imports; ``names`` are what ``from … import`` takes out of it.

    ``path``: that of its file, where that is what it is imported by. In both ``*`` stands for what is only known when
    the program runs: it may be any module that matches.
    """

    module: str
    level: int = 0
    names: tuple[str, ...] = ()
    path: str = ""


@dataclass(frozen=True)
class SourceFile:
    """A parsed file. ``text`` keeps the file's own line endings.

    ``mends``: what was changed in what ``disk`` says, so that today's Python and libraries run it; ``text`` is after
    that.
    """

    path: Path
    text: str
    encoding: str
    tree: ast.Module = field(repr=False, compare=False)
    mends: tuple[Mend, ...] = ()
    disk: str = ""

    @property
    def written(self) -> str:
        """What the file on disk says."""
        return self.disk if self.mends else self.text

    def mended(self, mends: Iterable[Mend]) -> SourceFile:
        """The file after more mends, of ``text``. Raises ``SyntaxError`` and ``ValueError`` as parsing does."""
        every = legacy.ordered([*self.mends, *(legacy.unmended(mend, self.mends) for mend in mends)])
        text = legacy.mended(self.written, every)
        return replace(self, text=text, tree=parse(text), mends=every, disk=self.written)

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The lines as Python counts them, without their endings."""
        return tuple(re.split("\r\n|\r|\n", self.text))

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree, as ``ast.walk`` gives them."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def identifiers(self) -> frozenset[str]:
        """Every identifier that it uses; the tree may be without branches that are not converted."""
        return _identifiers(self.text)

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """Every import, those inside of functions and conditions too."""
        chosen = (item for items in self.chosen_imports.values() for item in items)
        beside = [Import(ANY, 1)] if self.path.name == "__init__.py" and _offers_all(self) else []
        return (*_imports(self), *chosen, *beside)

    @property
    def is_relative(self) -> bool:
        """Whether it imports relative to its package, or is one's program: its path cannot start it."""
        return self.path.name == "__main__.py" or any(item.level for item in self.imports)

    @cached_property
    def chosen_imports(self) -> Mapping[int, tuple[Import, ...]]:
        """What calls of ``import_module`` and the like may import, by the identity of the call in the tree."""
        asks = any(word in self.text for word in _IMPORTING)
        return dict(_chosen_imports(self)) if asks else {}

    @cached_property
    def texts(self) -> Texts:
        """What strings its expressions may be."""
        return Texts(self.tree, str(self.path))

    @cached_property
    def path_edits(self) -> tuple[tuple[str, bool], ...]:
        """The folders it puts on ``sys.path``, where that can be told, and whether it puts them first."""
        return tuple(_path_edits(self)) if "sys" in self.text and "path" in self.text else ()


@dataclass(frozen=True)
class Unreadable:
    """A file that cannot be read or parsed: where and why.

    ``legacy``: it is of an older Python. ``text`` is what it says, if it is text.
    """

    path: Path
    line: int | None
    reason: str
    legacy: bool = False
    text: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True)
class Project:
    """All files of one run: the ones asked for and those that they import.

    ``root`` is the working folder, or where that does not contain all files asked for, the one that does.
    ``aliases`` says which file a path through a symbolic link is; ``named`` are the files asked for by name.
    ``installed``: the programs that installing the project makes, by paths that are no files, with their names.
    ``homes``: the folders of the projects that files asked for by name belong to; ``beside``: other files in these,
    which may read what they save.
    ``copies``: the folders that are copies of the runtime, whose files are none of the project's. ``notebooks``: those
    in the folders asked for that have to do with DataParallel.
    """

    root: Path
    files: Mapping[Path, SourceFile]
    unreadable: tuple[Unreadable, ...] = ()
    asked: tuple[Path, ...] = ()
    aliases: Mapping[Path, Path] = field(default_factory=dict)
    named: frozenset[Path] = frozenset()
    installed: Mapping[Path, str] = field(default_factory=dict)
    beside: Mapping[Path, SourceFile] = field(default_factory=dict)
    copies: frozenset[Path] = frozenset()
    notebooks: tuple[Path, ...] = ()
    homes: Mapping[Path, Path] = field(default_factory=dict)

    @classmethod
    def of(cls, texts: Mapping[Path, str], root: Path | None = None) -> Project:
        """A project that is only in memory. Raises ``SyntaxError`` and ``ValueError`` as parsing does."""
        files = {path: _parsed(path, text, "utf-8") for path, text in texts.items()}
        return cls(root or _common([path.parent for path in files]), files, asked=tuple(files))

    def with_texts(self, texts: Mapping[Path, str]) -> Project:
        """The same project where some files say something else. Raises as ``of`` does."""
        changed = {
            path: replace(self.files[path], text=text, tree=parse(text), mends=(), disk="")
            for path, text in texts.items()
        }
        return replace(self, files={**self.files, **changed})

    def mended(self, mends: Mapping[Path, Iterable[Mend]]) -> Project:
        """The same project after mends of some files. Raises as ``of`` does."""
        changed = {path: self.files[path].mended(found) for path, found in mends.items()}
        return replace(self, files={**self.files, **changed})

    def only(self, paths: Iterable[Path]) -> Project:
        """The same project as if only these of its files had been asked for."""
        asked = tuple(paths)
        reached = frozenset().union(*(self._finder.reach(path) for path in asked))
        files = {path: file for path, file in self.files.items() if path in reached}
        unreadable = tuple(file for file in self.unreadable if file.path in reached)
        return replace(self, files=files, unreadable=unreadable, asked=asked)

    def resolve(self, importer: Path, module: str, level: int = 0) -> Path | None:
        """The file of this project that ``importer`` gets for a module, if it is one of them.

        ``from ..pkg import mod`` asks for ``("pkg", 2)``, and for ``("pkg.mod", 2)`` to learn whether ``mod``
        is a module. Where a name could mean two files, the script that imports the importer decides.
        """
        search = self._finder.search(self._entries.get(importer, importer))
        found = self._finder.locate(search, importer, module, level)
        return found if found in self.files else None

    def places(self, importer: Path, module: str) -> tuple[Path, ...] | None:
        """The folders of the project from which a module may be that was not found; None: it was, or is installed."""
        if module in _STANDARD or _is_installed(module) or self.resolve(importer, module):
            return None
        return next(self._finder.places(importer, module), ())

    def runtime(self, importer: Path, module: str, level: int = 0) -> str:
        """What the installed runtime calls a module, if ``importer`` gets it from a copy in the project."""
        parts = module.split(".") if self.copies else []
        search = self._finder.search(self._entries.get(importer, importer)) if parts else ()
        for count in range(1, len(parts) + 1):
            found = self._finder.locate(search, importer, ".".join(parts[:count]), level)
            if found is not None and found.parent in self.copies:
                return ".".join([RUNTIME, *parts[count:]])
        return ""

    def takes_copy(self, file: SourceFile) -> bool:
        """Whether a file imports the runtime from a copy in the project."""
        modules = {(it.module, it.level) for it in file.imports}
        modules |= {(f"{it.module}.{name}".strip("."), it.level) for it in file.imports for name in it.names}
        return any(self.runtime(file.path, *module) for module in modules)

    def has_runtime(self, file: SourceFile) -> bool:
        """Whether a file imports the runtime."""
        names = {it.module for it in file.imports}
        names |= {f"{it.module}.{name}" for it in file.imports for name in it.names}
        return any(f"{it}.".startswith(f"{RUNTIME}.") for it in names) or self.takes_copy(file)

    def searched(self, program: Path, by_module: bool = False) -> tuple[Path, ...]:
        """The user's folders in which Python looks for modules when a program is started, by ``-m`` or its path."""
        self._finder.reach(program)
        folders = self._finder.searches[program].folders
        top = program.parent
        while top / "__init__.py" in self.files:
            top = top.parent
        usual = (program.parent, top, self.root)
        return (top if by_module else program.parent, *(it for it in folders if it not in usual))

    def imported(self, importer: Path, item: Import) -> tuple[Path, ...]:
        """The files of this project that ``importer`` may get for an import by name or path."""
        search = self._finder.search(self._entries.get(importer, importer))
        found = self._finder.candidates(search, importer, item)
        return tuple(path for path in found if path in self.files)

    def reaches(self, path: Path) -> frozenset[Path]:
        """The files that run when this one is run: itself and what it imports, all the way."""
        return self._finder.reach(path).intersection(self.files)

    def unreadable_from(self, path: Path) -> tuple[Unreadable, ...]:
        """The files that this one always imports, all the way, and that cannot be read."""
        needed = self._finder.needs(path) if self.unreadable else ()
        return tuple(file for file in self.unreadable if file.path in needed)

    @cached_property
    def around(self) -> dict[Path, bytes]:
        """What the Python files and notebooks hold that lie in the folders of the projects, and are none of its own."""
        homes = dict.fromkeys(self.homes.values())
        return {path: data for home in homes for path, data in _below(home, self.files.keys())}

    @cached_property
    def importers(self) -> dict[frozenset[Path], tuple[SourceFile, ...]]:
        """What ``importers_beside`` has found."""
        return {}

    @cached_property
    def _finder(self) -> _Finder:
        of_copies = (folder / "__init__.py" for folder in self.copies)
        known = {path: path for path in (*(it.path for it in self.unreadable), *self.files, *of_copies)}
        listed: dict[Path, set[str]] = {}
        for path in (*known, *self.aliases):
            for around in (path, *path.parents):
                listed.setdefault(around.parent, set()).add(around.name)
        return _Finder(
            self.root,
            lambda path: known.get(path) or self.aliases.get(path),
            self.files.get,
            lambda folder: sorted(listed.get(folder, ())),
        )

    @cached_property
    def _entries(self) -> dict[Path, Path]:
        """For every file, the script through which it is reached."""
        imported: set[Path] = set()
        for path, file in self.files.items():
            imported.update(self._finder.targets(file, self._finder.search(path)) - {path})
        by_depth = sorted(self.files, key=lambda path: (len(path.parts), path))
        entries: dict[Path, Path] = {}
        for entry in by_depth:
            if entry not in imported:
                for path in self._finder.reach(entry):
                    entries.setdefault(path, entry)
        return entries


def read(
    paths: Iterable[str | Path],
    stdin: bytes | None = None,
    exclude: Iterable[Pattern] = (),
    instead: Mapping[Path, bytes] | None = None,
) -> Project:
    """Find and parse files and folders, and all local files that they import.

    ``-`` is standard input, ``stdin`` what was read from it. Folders are searched without what git ignores and what
    ``exclude`` names; a file that is asked for, or imported, is read all the same. What cannot be read is part of the
    result. ``instead``: what some files are taken to hold.
    """
    return _Reader(Path.cwd(), tuple(exclude), instead or {}).read(paths, stdin)


def span_of(node: ast.AST, file: SourceFile) -> Span:
    """Where a node stands, in characters (``ast`` counts the bytes of UTF-8)."""
    start_line, start, end_line, end = node.lineno, node.col_offset, node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
    return Span(start_line, _column(file, start_line, start), end_line, _column(file, end_line, end))


class Assign(ast.Assign):
    """``x: int = 0`` outside of classes: an assignment as any other, with an ``annotation``.

    It has the name of the class that it derives from: ``ast.unparse`` goes by that.
    """

    _fields = ("targets", "annotation", "value", "type_comment")


def _plain(tree: ast.Module) -> ast.Module:
    """Make annotated assignments plain ones; the body of a class that may be a record has fields, which stay."""
    for node in ast.walk(tree):
        fields = isinstance(node, ast.ClassDef) and bool(node.bases or node.decorator_list)
        for name in () if fields else ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            for place, statement in enumerate(block) if isinstance(block, list) else ():
                if isinstance(statement, ast.AnnAssign) and statement.value is not None:
                    made = Assign([statement.target], statement.annotation, statement.value, None)
                    block[place] = ast.copy_location(made, statement)
    return tree


NAMED_BY_TEXT = ("vars(", "__dict__", "setattr")
"""What a file mentions that names attributes by texts."""


class _NamedByText(ast.NodeTransformer):
    """Makes attributes whose names are written as texts plain ones, at the place of what they were."""

    def __init__(self, rebound: frozenset[str]) -> None:
        self.rebound = rebound

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        owner, name = self._owner(node.value), _identifier(node.slice)
        if owner is None or name is None:
            return node
        return ast.copy_location(ast.Attribute(owner, name, node.ctx), node)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        self.generic_visit(node)
        given = list(self._given(node.value)) if isinstance(node.value, ast.Call) else []
        if not given:
            return node
        targets: list[ast.expr] = [
            ast.copy_location(ast.Attribute(copy.deepcopy(owner), name, ast.Store()), node.value)
            for owner, name, _ in given
        ]
        values = [value for _, _, value in given]
        if len(given) > 1:
            targets = [ast.copy_location(ast.Tuple(targets, ast.Store()), node.value)]
            values = [ast.copy_location(ast.Tuple(values, ast.Load()), node.value)]
        return ast.copy_location(ast.Assign(targets, values[0]), node)

    def _given(self, call: ast.Call) -> Iterator[tuple[ast.expr, str, ast.expr]]:
        """What a call gives attributes: of which object, under which name, what; nothing where not all is written."""
        match call:
            case ast.Call(func=ast.Name(id="setattr"), args=[owner, key, value], keywords=[]):
                if "setattr" in self.rebound:
                    return
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="object"), attr="__setattr__"),
                args=[owner, key, value],
                keywords=[],
            ):
                pass
            case ast.Call(
                func=ast.Attribute(value=ast.Name() as owner, attr="__setattr__"),
                args=[key, value],
                keywords=[],
            ):
                pass
            case ast.Call(
                func=ast.Attribute(value=names, attr="__setitem__"), args=[key, value], keywords=[]
            ):
                owner = self._owner(names)  # type: ignore[assignment]
            case ast.Call(func=ast.Attribute(value=names, attr="update"), args=tables, keywords=named):
                pairs = [(ast.Constant(it.arg), it.value) for it in named]
                for table in tables:
                    if not isinstance(table, ast.Dict):
                        return
                    pairs += zip(table.keys, table.values, strict=True)  # type: ignore[arg-type]
                owner = self._owner(names)  # type: ignore[assignment]
                keys = [_identifier(key) for key, _ in pairs]
                if owner is not None and None not in keys:
                    yield from ((owner, str(key), it) for key, (_, it) in zip(keys, pairs, strict=True))
                return
            case _:
                return
        if owner is not None and (name := _identifier(key)) is not None:
            yield owner, name, value

    def _owner(self, names: ast.expr) -> ast.expr | None:
        return None if isinstance(names, ast.Call) and "vars" in self.rebound else namespace(names)


def namespace(node: ast.expr) -> ast.expr | None:
    """The object whose attributes an expression holds by their names: ``vars(it)``, ``it.__dict__``."""
    match node:
        case ast.Call(func=ast.Name(id="vars"), args=[owner], keywords=[]) if not isinstance(
            owner, ast.Starred
        ):
            return owner
        case ast.Attribute(value=owner, attr="__dict__"):
            return owner
    return None


def _identifier(node: ast.AST | None) -> str | None:
    """A text that is written out and can be an attribute's name."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value if node.value.isidentifier() and not keyword.iskeyword(node.value) else None
    return None


def _named(tree: ast.Module) -> ast.Module:
    rebound = {it.id for it in ast.walk(tree) if isinstance(it, ast.Name) and isinstance(it.ctx, ast.Store)}
    rebound |= {it.arg for it in ast.walk(tree) if isinstance(it, ast.arg)}
    rebound |= {it.name for it in ast.walk(tree) if isinstance(it, ast.FunctionDef | ast.ClassDef)}
    rebound |= {it.asname or it.name for it in ast.walk(tree) if isinstance(it, ast.alias)}
    return _NamedByText(frozenset(rebound)).visit(tree)


def parse(text: str) -> ast.Module:
    """Parse without showing the warnings that the code would give its own author.

    Annotated assignments come as plain ones (``Assign``), and ``vars(it)["name"]``, ``setattr(it, "name", value)``
    and their like as ``it.name`` and its assignment, so that nobody reads them otherwise.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = _plain(ast.parse(text))
            return _named(tree) if any(it in text for it in NAMED_BY_TEXT) else tree
        except (RecursionError, MemoryError):
            raise SyntaxError("it is nested too deeply") from None


def decode(data: bytes) -> tuple[str, str]:
    """The text of a Python file with its line endings as they are, and its encoding (PEP 263).

    A byte order mark is part of the encoding (``utf-8-sig``), so that it is there again when encoded.
    """
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    text = data.decode(encoding)
    if text.encode(encoding) != data:
        raise ValueError(f"it could not be written back in its encoding, {encoding}")
    return text, encoding


def load(path: Path, data: bytes) -> SourceFile | Unreadable:
    """Decode and parse one file."""
    if path.suffix == NOTEBOOK:
        script, notebook = shlex.quote(f"{path.stem}.py"), shlex.quote(path.name)
        how = f"make a script of it by jupyter nbconvert --to script {notebook}, and convert {script}"
        return Unreadable(path, None, f"a notebook can't start ranks: {how}")
    return _loaded(path, data)


def _loaded(path: Path, data: bytes) -> SourceFile | Unreadable:
    try:
        text, encoding = decode(data)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return Unreadable(path, line, f"not text in its encoding, {error.encoding}: {error.reason}")
    except (SyntaxError, ValueError) as error:
        return Unreadable(path, 1, _one_line(error))
    if "\0" in text:
        return Unreadable(
            path, text.count("\n", 0, text.index("\0")) + 1, "not Python: it contains a null byte"
        )
    try:
        return _parsed(path, text, encoding)
    except (SyntaxError, ValueError) as error:
        name = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        line, old = getattr(error, "lineno", None), legacy.reason(error, text, shlex.quote(str(name)))
        return Unreadable(path, line, old or f"not valid Python: {_one_line(error)}", bool(old), text)


def _of_cells(data: bytes) -> bytes:
    """The Python code of a notebook, without its commands (``%run``, ``!pip``) and cells that are not Python."""
    try:
        cells = json.loads(data)["cells"]
        texts = ["".join(it["source"]) for it in cells if it["cell_type"] == "code"]
    except (ValueError, LookupError, TypeError):
        return b""
    plain = (re.sub(r"(?m)^(\s*)[%!?].*", r"\1pass", it) for it in texts)
    return "\n".join(it for it in plain if _is_python(it)).encode(errors="replace")


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def _parsed(path: Path, text: str, encoding: str) -> SourceFile:
    """A text parsed, as Python from before 3.7 if need be."""
    try:
        return SourceFile(path, text, encoding, parse(text))
    except SyntaxError:
        mends = legacy.mends(text)
        if not mends:
            raise
        after = legacy.mended(text, mends)
        return SourceFile(path, after, encoding, parse(after), mends, text)


def spaced_out(text: str) -> str:
    """A text that Python takes, with one space for each tab that its lines begin with: no column of it moves."""
    return legacy.spaced(text)


def indentations(text: str) -> dict[int, str]:
    """What each logical line of a text is indented by, by the line that it begins on, from 0."""
    return legacy.indentations(text)


class _Reader:
    """Reads the files of one run, each once."""

    def __init__(self, cwd: Path, exclude: tuple[Pattern, ...], instead: Mapping[Path, bytes]) -> None:
        self.cwd = cwd.resolve()
        self.exclude = exclude
        self.instead = instead
        self.files: dict[Path, SourceFile] = {}
        self.unreadable: dict[Path, Unreadable] = {}
        self.aliases: dict[Path, Path] = {}
        self.canonical: dict[Path, Path | None] = {}
        self.installed: dict[Path, str] = {}
        self.copies: dict[Path, bool] = {}
        self.notebooks: dict[Path, None] = {}
        self.trees: frozenset[Path] = frozenset()

    def read(self, paths: Iterable[str | Path], stdin: bytes | None) -> Project:
        asked: dict[Path, None] = {}
        named: set[Path] = set()
        alone: dict[Path, None] = {}
        folders: list[Path] = []
        for name in paths:
            if str(name) == "-":
                path = self.cwd / STDIN
                self._keep(path, load(path, stdin or b""))
                asked[path] = None
                named.add(path)
                folders.append(self.cwd)
                continue
            path = Path(os.path.realpath(name))
            named.add(path)
            folders.append(path if path.is_dir() else path.parent)
            for found in self._discover(path) if path.is_dir() else [path]:
                self._load(found)
                asked[found] = None
            if not path.is_dir():
                alone[path] = None
        inside = all(folder.is_relative_to(self.cwd) for folder in folders)
        root = self.cwd if inside else _common(folders)
        self.trees = frozenset(_tree(folder, root) for folder in {path.parent for path in asked})
        finder = _Finder(root, self._find, self.files.get, _listing)
        for path in asked:
            finder.reach(path)
        for path in alone:
            self._install(_declaring(path), finder.reach(path))
        for path in self.installed:
            finder.reach(path)
        for path in list(self.files):
            self._packages(path)
        unreadable = tuple(self.unreadable[path] for path in sorted(self.unreadable))
        files = dict(sorted(self.files.items()))
        homes = {path: self._searched(_home(path, root, finder.reach(path)), root) for path in alone}
        beside = {it.path: it for home in dict.fromkeys(homes.values()) for it in self._beside(home)}
        known = frozenset(named)
        copies = frozenset(folder for folder, is_copy in self.copies.items() if is_copy)
        return Project(
            root,
            files,
            unreadable,
            tuple(asked),
            self.aliases,
            known,
            self.installed,
            beside,
            copies,
            tuple(self.notebooks),
            homes,
        )

    def _searched(self, home: Path, root: Path) -> Path:
        """Where readers of a program's checkpoints are looked for: in its whole project, or else in a folder of it.

        Where so many files load something that it is a collection of programs, it is those beside the program.
        """
        whole = _whole_project(home, root)
        if whole == home:
            return home
        return home if len(list(islice(self._loading(whole), _MANY))) == _MANY else whole

    def _beside(self, home: Path) -> Iterator[SourceFile]:
        """The files in a folder, and below it, that load something by the names that a wrap gives."""
        for path, data in self._loading(home):
            if isinstance(file := load(path, data), SourceFile):
                yield file

    def _loading(self, home: Path) -> Iterator[tuple[Path, bytes]]:
        known = self.files.keys() | self.unreadable.keys()
        for path, data in _below(home, known):
            if b"load" in data and any(it in data for it in _OF_WRAPS):
                yield path, data

    def _discover(self, folder: Path) -> Iterator[Path]:
        def failed(error: OSError) -> None:
            path = Path(error.filename)
            self._keep(path, Unreadable(path, None, _os_reason(error) + alike(path)))

        left_out = LeftOut(folder, self.exclude)
        for where, folders, names in os.walk(folder, onerror=failed):
            here = Path(where)
            left_out.enter(here)
            if self._is_copy(here):
                folders[:] = []
                continue
            inner = (name for name in folders if _is_ours(here / name))
            folders[:] = sorted(name for name in inner if not left_out.has(here / name, True))
            for name in sorted({*names} - installed_in(here)):
                if name.endswith(NOTEBOOK) and not left_out.has(here / name, False):
                    self._note(here / name)
                is_python = name.endswith(".py") and not name.startswith(".")
                if is_python and not left_out.has(here / name, False):
                    yield Path(os.path.realpath(here / name))
            yield from self._install(here / name for name in names if name in entrypoints.FILES)

    def _install(self, declaring: Iterable[Path], of: Set[Path] | None = None) -> list[Path]:
        """Know the programs that some files declare, those that call one of some modules; the scripts among all."""
        scripts: dict[Path, None] = {}
        for path in declaring:
            try:
                found = entrypoints.declared(path.name, path.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue
            for pattern in found.scripts:
                inside = of is None and not Path(pattern).is_absolute() and ".." not in Path(pattern).parts
                matching = (it for it in (path.parent.glob(pattern) if inside else ()) if _is_script(it))
                scripts |= dict.fromkeys(Path(os.path.realpath(it)) for it in matching)
            for point in found.points:
                place = _place(path.parent, point.module)
                if place is not None and (of is None or place[1] in of):
                    launcher = place[0] / f"<{point.name}>"
                    self._keep(launcher, load(launcher, point.program.encode()))
                    self.installed[launcher] = point.name
        return list(scripts)

    def _note(self, notebook: Path) -> None:
        try:
            if b"DataParallel" in notebook.read_bytes():
                self.notebooks[notebook] = None
        except OSError:
            pass

    def _is_copy(self, folder: Path) -> bool:
        """Whether a folder is a copy of the runtime: what is in it is not the user's."""
        if folder not in self.copies:
            try:
                self.copies[folder] = COPY in (folder / "__init__.py").read_bytes()
            except OSError:
                self.copies[folder] = False
        return self.copies[folder]

    def _load(self, path: Path) -> None:
        if path in self.files or path in self.unreadable or self._is_copy(path.parent):
            return
        try:
            if path.exists() and not path.is_file():
                raise OSError(None, "it is no regular file")
            data = self.instead.get(path)
            self._keep(path, load(path, path.read_bytes() if data is None else data))
        except OSError as error:
            self._keep(path, Unreadable(path, None, _os_reason(error) + alike(path)))

    def _keep(self, path: Path, file: SourceFile | Unreadable) -> None:
        if isinstance(file, Unreadable):
            self.unreadable[path] = file
        else:
            self.files[path] = file

    def _packages(self, path: Path) -> None:
        """Know the packages that a file is in: from where they start, absolute imports are found."""
        while self._find(init := path.parent / "__init__.py") and path.parent != path:
            path = init.parent

    def _is_of_project(self, path: Path) -> bool:
        """Whether a file is the user's to change: it was asked for, or lies in the project, and was not installed."""
        return path in self.files or any(map(path.is_relative_to, self.trees)) and not is_installed(path)

    def _find(self, candidate: Path) -> Path | None:
        """The file at a path, read, if there is one and it belongs to the user."""
        if candidate not in self.canonical and candidate.suffix == ".py" and not os.path.exists(candidate):
            self.canonical[candidate] = None  # as most are that are looked for
        if candidate not in self.canonical:
            path = Path(os.path.realpath(candidate))
            is_there = path in self.files or _is_file(path)
            self.canonical[candidate] = path if is_there and self._is_of_project(path) else None
            if self.canonical[candidate]:
                self._load(path)
                if path != candidate:
                    self.aliases[candidate] = path
        return self.canonical[candidate]


@dataclass(frozen=True)
class _Search:
    """``sys.path`` as far as it concerns the user's files; ``first``: the folders in it before the standard library.

    Those put first by the program are none of them: what torch takes of the standard library is imported by then.
    """

    folders: tuple[Path, ...]
    first: tuple[Path, ...] = ()


class _Finder:
    """Finds modules as Python does.

    ``find`` says which file a path is, ``get`` what is in it, ``listing`` what a folder holds.
    """

    def __init__(
        self,
        root: Path,
        find: Callable[[Path], Path | None],
        get: Callable[[Path], SourceFile | None],
        listing: Callable[[Path], Iterable[str]],
    ) -> None:
        self.root = root
        self.find = find
        self.get = get
        self.listing = cache(listing)
        self.searches: dict[Path, _Search] = {}
        self.reached: dict[Path, frozenset[Path]] = {}
        self.located: dict[tuple[_Search, str], Path | None] = {}
        self.targeted: dict[tuple[_Search, Path], frozenset[Path]] = {}
        self.same: dict[_Search, _Search] = {}
        self.elsewhere: dict[tuple[Path, str], tuple[Path, ...]] = {}

    def reach(self, entry: Path) -> frozenset[Path]:
        """All files that run when ``entry`` is run as a script, itself included."""
        if entry not in self.reached:
            search = self.search(entry)
            while True:
                found = self._reach(entry, search)
                extended = self._edited(entry, search, found)
                if extended == search:
                    break
                search = extended
            self.searches[entry] = search
            self.reached[entry] = frozenset(found)
        return self.reached[entry]

    def needs(self, entry: Path) -> frozenset[Path]:
        """What is left of those without the ones that only may be imported by name."""
        self.reach(entry)
        return frozenset(self._reach(entry, self.searches[entry], certain=True))

    def search(self, entry: Path) -> _Search:
        """``sys.path`` as far as it concerns the user's files when ``entry`` is run."""
        if entry not in self.searches:
            package = folder = entry.parent
            while self.find(package / "__init__.py") and package != package.parent:
                package = package.parent
            named = _named_by(entry, self.root)
            first = (package if self._is_of_package(entry) else folder, *named)
            usual = (folder, *named, package, *([self.root] if folder.is_relative_to(self.root) else []))
            usual += _installed_from(folder)
            search = _Search(tuple(dict.fromkeys(usual)), tuple(dict.fromkeys(first)))
            self.searches[entry] = self._edited(entry, search, [entry])
        return self.searches[entry]

    def _is_of_package(self, path: Path) -> bool:
        """Whether a file is imported from its package, or started by ``-m``: its folder is then not searched."""
        file = self.get(path)
        inside = file is not None and self.find(path.parent / "__init__.py") is not None
        return inside and ("__main__" not in file.text or file.is_relative)

    def targets(self, file: SourceFile, search: _Search) -> frozenset[Path]:
        """The files that the imports of one file run, or may run."""
        if (search, file.path) not in self.targeted:
            self.targeted[search, file.path] = self._targets(file, search)
        return self.targeted[search, file.path]

    def _targets(self, file: SourceFile, search: _Search, certain: bool = False) -> frozenset[Path]:
        found: set[Path] = set()
        for item in file.imports:
            if item.path or ANY in item.module:
                if not certain or ANY not in item.path + item.module:
                    found |= self._with_packages(self.candidates(search, file.path, item))
                continue
            parts = item.module.split(".") if item.module else []
            modules = [".".join(parts[:n]) for n in range(0 if item.level else 1, len(parts) + 1)]
            modules += [f"{item.module}.{name}".lstrip(".") for name in item.names]
            for module in modules:
                path = self.locate(search, file.path, module, item.level)
                if path:
                    found.add(path)
        return frozenset(found)

    def candidates(self, search: _Search, importer: Path, item: Import) -> list[Path]:
        """The files that an import may get, of which not all is known."""
        if not item.path and ANY not in item.module:
            found = self.locate(search, importer, item.module, item.level)
            return [found] if found else []
        if item.path:
            paths = dict.fromkeys(
                Path(os.path.normpath(base / item.path)) for base in (*search.folders, self.root)
            )
            names = [(Path(path.anchor), list(path.parts[1:])) for path in paths]
        else:
            folders = (
                [_above(importer, item.level)]
                if item.level
                else [*search.folders, *self.search(importer).folders]
            )
            names = [(folder, item.module.split(".")) for folder in dict.fromkeys(folders)]
        found = [path for folder, parts in names for path in self._matching(folder, parts, bool(item.path))]
        return list(dict.fromkeys(path for path in found if path != importer))

    def _matching(self, folder: Path, parts: list[str], by_path: bool) -> Iterator[Path]:
        first, *others = parts
        if ANY not in first:
            listed = [first]
        elif by_path:
            listed = [name for name in self.listing(folder) if matches([first], name)]
        else:
            names = dict.fromkeys(name.removesuffix(".py") for name in self.listing(folder))
            listed = [
                it for it in names if it.isidentifier() and it not in _OWN_NAMES and matches([first], it)
            ]
        for name in listed:
            if others:
                yield from self._matching(folder / name, others, by_path)
            elif path := self.find(folder / name) if by_path else self._in_folder(folder, [name]):
                if path.suffix == ".py":
                    yield path

    def _with_packages(self, paths: Iterable[Path]) -> set[Path]:
        """Files with those of the packages that they are in, which run before them."""
        found: set[Path] = set()
        for path in paths:
            found.add(path)
            folder = path.parent
            while init := self.find(folder / "__init__.py"):
                found.add(init)
                folder = folder.parent
        return found

    def locate(self, search: _Search, importer: Path, module: str, level: int) -> Path | None:
        if level:
            return self._in_folder(_above(importer, level), module.split(".") if module else [])
        if not module or module.partition(".")[0] == "dp2ddp":
            return None
        if module.partition(".")[0] in _STANDARD:
            found = self._before_standard(search, module)
            return found if found != importer else None
        found = self._in_search(search, module)
        return found or self._in_search(self.search(importer), module) or self._elsewhere(importer, module)

    def _elsewhere(self, importer: Path, module: str) -> Path | None:
        """The one file of a repository that a module may be which nothing else has the name of.

        How it gets onto the search path is not known; but it has the names that are imported from it.
        """
        parts = module.split(".")
        file = self.get(importer)
        if file is None or _is_installed(parts[0]):
            return None
        if (importer.parent, module) not in self.elsewhere:
            self.elsewhere[importer.parent, module] = next(self.places(importer, module), ())
        folders = self.elsewhere[importer.parent, module]
        found = self._in_folder(folders[0], parts) if len(folders) == 1 else None
        text = self.get(found) if found is not None else None
        return found if text is not None and _offers(text, module, file, folders[0]) else None

    def places(self, importer: Path, module: str) -> Iterator[tuple[Path, ...]]:
        """The folders from which a module may be imported, of the nearest project that has any, then farther ones."""
        parts = module.split(".")
        for home in _homes(importer.parent, self.root):
            found = tuple(it for it in _folders_of(home) if self._in_folder(it, parts))
            if found:
                yield found

    def _before_standard(self, search: _Search, module: str) -> Path | None:
        """The user's file that hides a module of the standard library from a program, if one does."""
        parts = module.split(".")
        if parts[0] in _STARTED_WITH:
            return None
        hiding = next((it for it in search.first if self._in_folder(it, parts[:1])), None)
        return self._in_folder(hiding, parts) if hiding is not None else None

    def _in_search(self, search: _Search, module: str) -> Path | None:
        key = search, module
        if key not in self.located:
            parts = module.split(".")
            self.located[key] = None
            for folder in search.folders:
                if found := self._in_folder(folder, parts):
                    self.located[key] = found
                    break
                if self._in_folder(folder, parts[:1]):  # it is here and nowhere else: not a namespace package
                    break
        return self.located[key]

    def _in_folder(self, folder: Path, parts: list[str]) -> Path | None:
        path = folder.joinpath(*parts)
        return self.find(path / "__init__.py") or (
            self.find(path.parent / f"{path.name}.py") if parts else None
        )

    def _reach(self, entry: Path, search: _Search, certain: bool = False) -> list[Path]:
        found, seen = [entry], {entry}
        for path in found:
            file = self.get(path)
            targets = self._targets(file, search, certain=True) if certain and file else None
            new = sorted((self.targets(file, search) if targets is None else targets) - seen) if file else []
            found += new
            seen.update(new)
        return found

    def _edited(self, entry: Path, search: _Search, files: Iterable[Path]) -> _Search:
        before: list[Path] = []
        after: list[Path] = []
        for path in files:
            file = self.get(path)
            for name, first in file.path_edits if file else ():
                for base in (
                    entry.parent,
                    self.root,
                ):  # a relative one counts from where the script is started
                    folder = Path(os.path.normpath(base / name))
                    if folder not in search.folders:
                        (before if first else after).append(folder)
        edited = replace(search, folders=tuple(dict.fromkeys([*before, *search.folders, *after])))
        return self.same.setdefault(edited, edited)  # compared often: quick if it is the same object


def _identifiers(text: str) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(parse(text)):
        match node:
            case ast.Name():
                found.add(node.id)
            case ast.arg():
                found.add(node.arg)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.add(node.name)
            case ast.alias():
                found.add((node.asname or node.name).partition(".")[0])
            case ast.ExceptHandler(name=str()):
                found.add(node.name)
            case ast.Global() | ast.Nonlocal():
                found.update(node.names)
    return frozenset(found)


def _imports(file: SourceFile) -> Iterator[Import]:
    for node in file.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name)
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names if alias.name != "*")
            yield Import(node.module or "", node.level, names)


def _chosen_imports(file: SourceFile) -> Iterator[tuple[int, tuple[Import, ...]]]:
    for node in file.nodes:
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            given = {it.arg: it.value for it in node.keywords} | dict(enumerate(node.args))
            if called in _BY_NAME:
                name = given.get(0) or given.get("name") or given.get("mod_name")
                package = given.get(1) or given.get("package") if called == "import_module" else None
                items = tuple(_named_imports(file, name, package)) if name is not None else ()
                if name is not None and file.texts.of(name) == {ANY}:
                    items = tuple(Import("", path=f"{folder}{os.sep}*.py") for folder in _own_folders(file))
            elif called in _BY_PATH:
                path = given.get(_BY_PATH[called]) or given.get("location") or given.get("path")
                texts = file.texts.of(path) if path is not None else ()
                items = tuple(
                    Import("", path=text) for text in sorted(texts) if _is_known(text.split(os.sep))
                )
            elif called == "exec" and node.args:
                items = (*_written_imports(file.texts.of(node.args[0])), *_opened(file, node.args[0]))
            elif called in _STARTING and node.args:
                items = tuple(Import("", path=path) for path in _started(file, node.args[0]))
            else:
                continue
            if items:
                yield id(node), items


def _written_imports(texts: Iterable[str]) -> Iterator[Import]:
    """The imports of statements that a program puts together: ``exec(f"from models.{name} import Net")``."""
    for text in sorted(texts):
        for found in _WRITTEN.finditer(text):
            module = found["module"].lstrip(".")
            names = tuple(name.strip() for name in found["names"].split(",") if name.strip().isidentifier())
            if _is_known(module.split(".")):
                yield Import(module, len(found["module"]) - len(module), names)


def _opened(file: SourceFile, node: ast.expr) -> Iterator[Import]:
    """The files whose text an expression reads: ``open("train.py").read()``."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and getattr(inner.func, "id", "") == "open" and inner.args:
            for path in sorted(file.texts.of(inner.args[0])):
                if _is_known(path.split(os.sep)):
                    yield Import("", path=path)


def _started(file: SourceFile, node: ast.expr) -> list[str]:
    """The Python files that a command line starts, written as a text or as a list of words."""
    words = node.elts if isinstance(node, ast.List | ast.Tuple) else [node]
    texts = (text for word in words for text in file.texts.of(word))
    found = (path for text in texts for path in text.split() if path.endswith(".py") and ANY not in path)
    return list(dict.fromkeys(found))


def _named_imports(file: SourceFile, name: ast.expr, package: ast.expr | None) -> Iterator[Import]:
    """What the module may be that an expression names; ``package``: what a relative name counts from."""
    own = (NAME, PACKAGE) if file.path.name == "__init__.py" else (PACKAGE,)
    for text in sorted(file.texts.of(name)):
        start = next((it for it in own if text.startswith(f"{it}.")), "")
        if text.startswith("."):
            module, level = text.lstrip("."), len(text) - len(text.lstrip("."))
            for around in sorted(file.texts.of(package)) if package is not None else ():
                if around in own:
                    yield Import(module, level)
                elif _is_known(around.split(".")):
                    parts = around.split(".")
                    yield Import(".".join([*parts[: len(parts) - level + 1], module]))
        elif start:
            yield Import(text[len(start) + 1 :], 1)
        elif "\0" not in text and _is_known(text.split(".")):
            yield Import(text)


def _is_known(parts: Iterable[str]) -> bool:
    """Whether something is known of a module's name, or of a path."""
    return any(part.strip(ANY) for part in parts)


def _offers_all(file: SourceFile) -> bool:
    """Whether a package makes ``__all__`` of what is in its folder: ``from package import *`` imports all modules."""
    for node in file.tree.body if "__all__" in file.text else ():
        if isinstance(node, ast.Assign) and any(getattr(it, "id", "") == "__all__" for it in node.targets):
            if not isinstance(node.value, ast.List | ast.Tuple):
                return any(word in file.text for word in _LISTING)
    return False


def _path_edits(file: SourceFile) -> Iterator[tuple[str, bool]]:
    nodes = file.nodes
    helpers = {
        node.name: helper
        for node in nodes
        if isinstance(node, ast.FunctionDef) and (helper := _path_helper(node)) is not None
    }
    for node in nodes:
        values, first = _path_edit(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in helpers:
            position, first = helpers[node.func.id]
            values = node.args[position : position + 1]
        for value in values:
            for folder in sorted(file.texts.of(value)):
                if ANY not in folder and "\0" not in folder:
                    yield folder, first


def _own_folders(file: SourceFile) -> list[str]:
    """The folders that a file puts on ``sys.path`` for modules that it chooses: not those that it is in itself."""
    folders = dict.fromkeys(folder for folder, _ in _path_edits(file))
    return [it for it in folders if not file.path.is_relative_to(os.path.realpath(file.path.parent / it))]


def _path_edit(node: ast.AST) -> tuple[list[ast.expr], bool]:
    """What a node puts on ``sys.path``, and whether it puts it first."""
    if isinstance(node, ast.AugAssign) and _is_sys_path(node.target):
        return _elements(node.value), False
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_sys_path(node.func.value):
        if node.func.attr == "insert" and len(node.args) == 2:
            return [node.args[1]], True
        if node.func.attr == "append" and len(node.args) == 1:
            return [node.args[0]], False
        if node.func.attr == "extend" and len(node.args) == 1:
            return _elements(node.args[0]), False
    return [], False


def _path_helper(function: ast.FunctionDef) -> tuple[int, bool] | None:
    """Which argument of a function it puts on ``sys.path``, and whether it puts it first."""
    params = [arg.arg for arg in function.args.args]
    for node in ast.walk(function):
        values, first = _path_edit(node)
        for value in values:
            if isinstance(value, ast.Name) and value.id in params:
                return params.index(value.id), first
    return None


def _is_sys_path(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "path" and getattr(node.value, "id", "") == "sys"


def _elements(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, (ast.List, ast.Tuple)) else []


def _scripts_below(folder: Path, endings: tuple[str, ...] = (".py",)) -> Iterator[Path]:
    """The Python files in a folder and those in it, a few levels deep."""
    for where, folders, names in os.walk(folder):
        here = Path(where)
        deep = len(here.relative_to(folder).parts) >= _DEEPEST_BESIDE
        folders[:] = [] if deep else sorted(name for name in folders if _is_ours(here / name))
        own = sorted(name for name in {*names} - installed_in(here) if name.endswith(endings))
        yield from (Path(os.path.realpath(here / name)) for name in own)


def _below(folder: Path, known: Set[Path]) -> Iterator[tuple[Path, bytes]]:
    """The Python files and notebooks in a folder, and below it, that are not ``known`` yet, and what they hold."""
    for place in islice(_scripts_below(folder, (".py", NOTEBOOK)), _MOST_BESIDE):
        if place not in known:
            try:
                yield place, place.read_bytes()
            except OSError:
                continue


def importers_beside(project: Project, wanted: frozenset[Path]) -> tuple[SourceFile, ...]:
    """The files in the folders of a project, beside those that are read, that import any of the ``wanted`` ones.

    By their own names, or through what imports them: a package that takes in what they have, a module beside.
    """
    if wanted not in project.importers:
        project.importers[wanted] = _importers_beside(project, wanted) if wanted else ()
    return project.importers[wanted]


def _importers_beside(project: Project, wanted: frozenset[Path]) -> tuple[SourceFile, ...]:
    read: dict[Path, SourceFile] = {}
    names = re.compile(b"|".join(re.escape(it) for it in sorted(_modules(wanted))))
    passing = {it for it in project.files if project.reaches(it) & wanted} - wanted
    whole, looked = project, set[Path]()
    while True:
        through = _importing(_modules(passing))
        fits = [it for it, data in project.around.items() if names.search(data) or through.search(data)]
        new = [it for it in fits if it not in looked]
        if not new:
            break
        looked.update(new)
        held = {it: project.around[it] for it in new}
        loaded = (
            _loaded(it, _of_cells(data) if it.suffix == NOTEBOOK else data) for it, data in held.items()
        )
        read |= {it.path: it for it in loaded if isinstance(it, SourceFile)}
        whole = replace(project, files={**project.files, **read})
        passing |= {it for it in read if whole.reaches(it) & wanted}
    return tuple(read[path] for path in sorted(read) if whole.reaches(path) & wanted)


def _modules(files: Iterable[Path]) -> set[bytes]:
    """The last names by which files are imported."""
    return {(it.parent.name if it.stem == "__init__" else it.stem).encode() for it in files}


def _importing(names: Iterable[bytes]) -> re.Pattern[bytes]:
    """What a file says that imports a module of one of these names."""
    any_of = b"|".join(re.escape(it) for it in sorted(names))
    head = rb"\b(?:from|import)\b[^\n(]*(?:\([^)]*)?|\b(?:import_module|__import__)\b"
    return re.compile(rb"(?:%s)\b(?:%s)\b" % (head, any_of) if any_of else rb"(?!)")


def _is_ours(folder: Path) -> bool:
    foreign = _NOT_OURS | installed_in(folder.parent)
    hidden = folder.name.startswith(".")
    return not hidden and folder.name not in foreign and not _is_file(folder / "pyvenv.cfg")


def _home(path: Path, root: Path, reached: Iterable[Path]) -> Path:
    """The folder of the project that a program belongs to: the nearest round it that says so, or else ``root``.

    One with a README alone is a part of the project, where the program imports files from beside it.
    """
    inside = path.is_relative_to(root)
    used = [it for it in reached if inside and it.is_relative_to(root)]
    for folder in path.parents:
        beyond = not (inside and folder.is_relative_to(root))
        alone = not beyond and all(it.is_relative_to(folder) for it in used)
        if _has_any(folder, _OF_PROJECTS if alone else _OF_REPOSITORIES):
            return folder
    return root if inside else path.parent


def _whole_project(folder: Path, root: Path) -> Path:
    """A folder of a project, or the one round it that has more, where it has nothing but a README: of ``train``.

    Up to that of the repository; where there is none, up to that round ``root``, which holds all that was asked for.
    """
    last = _repository(folder) or root.parent
    around = (it for it in (folder, *folder.parents) if it.is_relative_to(last))
    return next((it for it in around if _has_any(it, _OF_WHOLE_PROJECTS)), folder)


@cache
def _repository(folder: Path) -> Path | None:
    """The folder of the repository that a folder is in."""
    around = (folder, *folder.parents)
    return next((it for it in around if _has_any(it, _OF_REPOSITORIES)), None)


@cache
def _tree(folder: Path, root: Path) -> Path:
    """The folder that holds all of the project that a program in a folder belongs to: what is beyond it is foreign.

    Where nothing tells, that round the one in which the command was given: programs put ``..`` on ``sys.path``.
    """
    around = (folder, *folder.parents)
    repository = _repository(folder)
    if repository is None:
        home = root if folder.is_relative_to(root) else folder
        return next((it for it in (home, *home.parents) if _has_any(it, _OF_PROJECTS)), home.parent)
    if git := next((it for it in around if (it / ".git").exists()), None):
        return git
    inside = (it for it in around if it.is_relative_to(root) and _has_any(it, _OF_PROJECTS))
    return min((repository, *inside), key=lambda it: len(it.parts))


def _has_any(folder: Path, names: Iterable[str]) -> bool:
    return any((folder / name).exists() for name in names)


def _installed_from(folder: Path) -> tuple[Path, ...]:
    """Where the modules of the repository that a folder is in lie, if it is installed."""
    home = _repository(folder)
    return (home, home / "src") if home is not None else ()


def _named_by(entry: Path, root: Path) -> tuple[Path, ...]:
    """The folders which ``PYTHONPATH`` names, of the repository that a program is in, or else below where it is read.

    As it is set here, or by the project's own shell scripts: the nearest ones above the program.
    """
    folder = entry.parent
    repository = _repository(folder)
    home = repository or (root if folder.is_relative_to(root) else folder)
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    found = [Path(os.path.realpath(it)) for it in given if it]
    above = [it for it in (folder, *folder.parents) if it.is_relative_to(home)]
    if scripts := next(filter(None, map(_scripts_setting_path, above)), ()):
        own = [it for it in scripts if entry.name in it[1]]  # others may be those of other programs
        for script, text in own or scripts:
            found += _set_by(script.parent, home, text)
    own = (it for it in found if it.is_relative_to(home) and _repository(it) == repository and it.is_dir())
    return tuple(dict.fromkeys(own))


@cache
def _scripts_setting_path(folder: Path) -> tuple[tuple[Path, str], ...]:
    """The shell scripts in a folder that set ``PYTHONPATH``, with what they say."""
    found = []
    for script in (folder / name for name in _entries_of(folder) if name.endswith(_SHELL)):
        try:
            text = script.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if _SETS_PATH.search(text):
            found.append((script, text))
    return tuple(found)


def _set_by(folder: Path, home: Path, text: str) -> Iterator[Path]:
    """The folders that a shell script puts on ``PYTHONPATH``; it is started in its own folder, or in ``home``."""
    for match in _SETS_PATH.finditer(text):
        for name in re.sub(_HERE, ".", match[1]).replace('"', "").replace("'", "").split(":"):
            if name and not set("$`(){}") & set(name):
                yield from (Path(os.path.realpath(base / name)) for base in (folder, home))


@cache
def _is_installed(package: str) -> bool:
    """Whether this Python finds a package."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return True


@cache
def _homes(folder: Path, root: Path) -> tuple[Path, ...]:
    """The folders of the projects that a folder is in, the nearest first, up to that of the repository.

    Where there is none, up to ``root``, which holds all that was asked for.
    """
    found: list[Path] = []
    repository = _repository(folder)
    for around in (folder, *folder.parents):
        beyond = not around.is_relative_to(root) if repository is None else around == repository.parent
        if beyond and (found or repository is not None):
            break
        if around == root or _has_any(around, _OF_PROJECTS):
            found.append(around)
    return tuple(found)


@cache
def _folders_of(home: Path) -> tuple[Path, ...]:
    """The folders of a project that have Python files or packages."""
    files = islice(_scripts_below(home), _MOST_BESIDE)
    found = dict.fromkeys(folder for it in files for folder in (it.parent, it.parent.parent))
    return tuple(it for it in found if it.is_relative_to(home))


def _offers(file: SourceFile, module: str, importer: SourceFile, folder: Path) -> bool:
    """Whether a file, or the package that it makes, has all that an importer takes of a module."""
    words = set(re.findall(r"\w+", file.text))
    items = [it for it in importer.imports if it.module == module and not it.level]
    taken = {name for it in items for name in it.names}
    taken |= set(re.findall(rf"\b{re.escape(module)}\.(\w+)", importer.text))
    inside = folder.joinpath(*module.split("."))
    return all(it in words or (inside / f"{it}.py").exists() or (inside / it).is_dir() for it in taken)


def _declaring(path: Path) -> list[Path]:
    """The files next above another one that may declare programs."""
    for folder in path.parents:
        if found := [folder / name for name in entrypoints.FILES if _is_file(folder / name)]:
            return found
    return []


@dataclass(frozen=True)
class Installed:
    """A program that installing a project makes: where it would lie, what it says, and the file that it calls."""

    path: Path
    text: str
    module: Path


def installed(path: Path) -> Installed | None:
    """The program of this name that the project in the path's folder declares, if no file has it."""
    for file in _declaring(path):
        try:
            points = entrypoints.declared(file.name, file.read_text(encoding="utf-8")).points
        except (OSError, ValueError):
            continue
        for point in points:
            place = _place(file.parent, point.module)
            if point.name == path.name and place is not None:
                return Installed(place[0] / f"<{point.name}>", point.program, place[1])
    return None


def dotted(path: Path, packages: Container[Path] | None = None) -> str:
    """A file's dotted name from where its packages start.

    Args:
        packages: the known ``__init__.py``; None: those on the disk.
    """
    names, folder = [] if path.name == "__main__.py" else [path.stem], path.parent
    while (folder / "__init__.py").is_file() if packages is None else folder / "__init__.py" in packages:
        names.append(folder.name)
        folder = folder.parent
    return ".".join(reversed(names))


def _place(folder: Path, module: str) -> tuple[Path, Path] | None:
    """The folder from which a module is imported, that of a project or one in it, and the module's file."""
    parts = module.split(".")
    try:
        inside = sorted(it for it in folder.iterdir() if it.is_dir() and _is_ours(it))
    except OSError:
        inside = []
    for start in (folder, *inside):
        path = start.joinpath(*parts)
        for file in (path / "__init__.py", path.parent / f"{path.name}.py"):
            if _is_file(file):
                return start, Path(os.path.realpath(file))
    return None


def _is_script(path: Path) -> bool:
    """Whether a file is a Python program, by its first line or its name."""
    try:
        with path.open("rb") as file:
            return path.suffix == ".py" or (file.read(2) == b"#!" and b"python" in file.readline())
    except OSError:
        return False


def _listing(folder: Path) -> list[str]:
    """What a folder holds that may be the user's modules."""
    return [name for name in _entries_of(folder) if name.endswith(".py") or _is_ours(folder / name)]


def _entries_of(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _above(importer: Path, level: int) -> Path:
    """The folder that a relative import of so many dots counts from."""
    folder = importer.parent
    for _ in range(level - 1):
        folder = folder.parent
    return folder


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _common(folders: Iterable[Path]) -> Path:
    return Path(os.path.commonpath([*dict.fromkeys(folders)]))


def _column(file: SourceFile, line: int, column: int) -> int:
    text = file.lines[line - 1]
    return column if text.isascii() else len(text.encode()[:column].decode())


def alike(path: Path) -> str:
    """Which file is perhaps meant by a path where there is none: ``; did you mean train.py?``."""
    try:
        names = [] if os.path.lexists(path) else os.listdir(path.parent)
    except OSError:
        return ""
    close = difflib.get_close_matches(path.name, names, 1, 0.75)
    return f"; did you mean {close[0]}?" if close else ""


def _os_reason(error: OSError) -> str:
    return f"cannot be read: {(error.strerror or _one_line(error)).lower()}"


def _one_line(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return " ".join((text or type(error).__name__).split())
