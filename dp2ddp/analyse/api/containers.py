"""What the methods of Python's lists, dicts, sets, deques and strings do, by their names."""

from __future__ import annotations

# Methods that change a list, a dict, a set, a deque in place: ``tests/test_api.py`` runs them.
LIST_CHANGES = frozenset("append clear extend insert pop remove reverse sort".split())
DICT_CHANGES = frozenset("clear pop popitem setdefault update".split())
SET_CHANGES = frozenset("""
    add clear difference_update discard intersection_update pop remove symmetric_difference_update update
    """.split())
DEQUE_CHANGES = LIST_CHANGES - {"sort"} | {"appendleft", "extendleft", "popleft", "rotate"}
# Those of all of them, to know a change by the method's name alone: without ``sort``, which tensors have, too, and
# which changes nothing there.
CHANGES = (LIST_CHANGES | DICT_CHANGES | SET_CHANGES | DEQUE_CHANGES) - {"sort"}
# Methods that change more of a list than its end.
CHANGES_BEYOND_APPENDING = (CHANGES | LIST_CHANGES) - {"append"}
# Methods that put what they are given at the end of a list.
APPENDS = frozenset({"append", "extend"})
# Methods after which what a list has stands elsewhere in it; functions that are given the list and do so.
MOVES_ELEMENTS = frozenset("appendleft extendleft insert pop popleft remove reverse rotate sort".split())
SHUFFLES = frozenset({"random.shuffle", "numpy.random.shuffle"})
# Methods that put what they are given into a list.
LIST_ADDS = frozenset({"append", "extend", "insert"})
# Methods that keep what they are given in a list, a dict or a set.
KEEPS = frozenset({"append", "update", "add", "extend", "setdefault", "__setitem__"})
# Methods that keep the last of what they are given, or all of it: a meter's, a list's.
RECORDS_VALUES = frozenset({"update", "append"})
# Methods that take a number to add it to others, or to keep it: of meters, lists and sets.
FEEDS = frozenset({"update", "append", "extend", "add", "push"})
# Those, and what loggers and meters of other packages call it.
FEEDS_METERS = FEEDS | {"step", "log", "record", "put", "meter", "add_value"}
# What writes into the array that it is given first, and reads the rest.
FILLS_FIRST = frozenset(
    f"numpy.{name}" for name in ("add.at", "subtract.at", "maximum.at", "minimum.at", "put", "copyto")
)
# Those and all else that changes what it is given first.
CHANGES_FIRST = FILLS_FIRST | SHUFFLES
CHANGES_FIRST |= {f"numpy.{name}" for name in ("fill_diagonal", "place", "putmask")}
# Methods that change the entries of a dict of arguments.
ENTRY_CHANGES = frozenset({"update", "setdefault", "pop"})
# Methods that hand one element out.
ONE_ELEMENT = frozenset({"get", "pop"})
# Methods of dicts that hand out what stands at a key.
KEYED = frozenset({"get", "pop", "setdefault"})
# Methods of dicts that hand out what is in them, as an element or several.
DICT_LOOKUPS = frozenset({"items", "values", "get", "pop"})
# Methods of dicts that hand out what is in them, their keys, or a dict of the same.
DICT_CONTENTS = DICT_LOOKUPS | {"keys", "copy"}
# Methods of dicts that hand out the keys, alone or with what they lead to.
KEY_VIEWS = frozenset({"items", "keys"})
# Methods of dicts that go through all entries.
DICT_VIEWS = KEY_VIEWS | {"values"}
# What makes a dict that is empty, if it is given none of its entries, and which argument those would be.
EMPTY_DICTS = {"builtins.dict": 0, "collections.OrderedDict": 0, "collections.defaultdict": 1}
# What makes a dict of tables and of what it is given by name.
PLAIN_DICTS = frozenset({"builtins.dict", "collections.OrderedDict"})
# Methods of dicts by which keys are read or written.
KEY_METHODS = KEY_VIEWS | {"update", "pop", "get"}
# Functions that take the keys out of a dict, or copy it.
TAKES_KEYS = frozenset(f"builtins.{name}" for name in "dict enumerate list set sorted tuple zip".split()) | {
    "collections.OrderedDict"
}
# Methods that take one element out.
TAKES_OUT = frozenset({"pop", "popleft", "popitem"})
# Methods of strings and dicts that settings are asked by.
SETTING_METHODS = frozenset({"split", "startswith", "endswith", "lower", "upper", "strip", "get"})
# Where methods of strings that take them apart have what is behind the separator.
BEHIND_SEPARATOR = {"split": 1, "partition": 2}
# Methods of strings, lists, dicts and sets: ``args.gpus.split(",")``.
PLAIN_METHODS = frozenset(
    name for kind in (str, list, dict, set) for name in dir(kind) if not name.startswith("_")
)
# Methods of strings, lists, dicts and paths that only ask.
ASKING_METHODS = frozenset("""
    startswith endswith format join split strip lower upper replace items keys values get
    exists is_file is_dir glob iterdir with_suffix joinpath
    """.split())
# The methods that say whether an object is true.
TRUTH = ("__bool__", "__len__")
# What makes a collection, by the beginning of its name.
COLLECTIONS = ("builtins.list", "builtins.dict", "builtins.set", "collections.")
# Python's own types, and those of collections, by the beginning of their names.
PLAIN_HOMES = ("builtins.", "collections.")
# What makes a set.
MAKES_SETS = frozenset({"builtins.set", "builtins.frozenset"})
# What makes a sequence of another, in the same order: by name.
SEQUENCES = frozenset({"list", "tuple"})
# What makes an empty list or dictionary where it is given nothing, as `[]` and `{}`.
BEGINS_EMPTY = PLAIN_DICTS | {"builtins.list"}
