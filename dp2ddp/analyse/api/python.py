"""What Python's own parts do that the linker follows: containers, properties, records, imports by name."""

from __future__ import annotations

# Classes of lists, and those whose objects are dictionaries, or hold by attribute what they are given by name.
LISTS = {"builtins.list", "collections.deque", "builtins.set"}
# Lists of modules: they hold what they are given, and are modules themselves.
MODULE_LISTS = {"torch.nn.ModuleList"}
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
# The one that makes what it is asked for, by the function that it is given first.
MAKES_ENTRIES = "collections.defaultdict"
# What shows each part of what it is given, one after the other.
SHOWS_PARTS = DICTIONARIES | {
    "json.dumps",
    "builtins.str",
    "builtins.repr",
    "builtins.list",
    "builtins.tuple",
}
TABLE_METHODS = frozenset("""
    add append appendleft copy extend get insert items pop popleft setdefault update values
    """.split())
# Those of them that put one thing into a collection.
PUTS_ONE = frozenset({"add", "append", "appendleft"})
# The methods that making an object runs.
CONSTRUCTING = ("__init__", "__new__", "__post_init__")
PROPERTIES = {"builtins.property", "functools.cached_property"}
NAMED_TUPLE = "typing.NamedTuple"
RECORDS = {"dataclasses.dataclass", "attr.s", "attrs.define", NAMED_TUPLE, "pydantic.BaseModel"}
# What imports a module by its name.
IMPORTING = {"importlib.import_module", "builtins.__import__"}
# What runs a module of the project as a program, and returns its names.
RUNS_MODULES = ("run_path", "run_module")
RUNS = {f"runpy.{name}" for name in RUNS_MODULES}
LOADING = IMPORTING | RUNS
LOADING |= {
    "imp.load_source",
    "importlib.util.spec_from_file_location",
    "importlib.machinery.SourceFileLoader",
}
ENUMERATIONS = ("enum.Enum", "enum.IntEnum", "enum.Flag", "enum.StrEnum")
# What hands out the names of a module, a function or an object; what runs a text.
NAMESPACES = frozenset({"builtins.globals", "builtins.locals", "builtins.vars"})
EVALUATES = frozenset({"builtins.eval", "builtins.exec", "cProfile.run"})
