"""What only looks at its arguments: builtins and others that ask, and never call or keep what they are given."""

from __future__ import annotations

# What asks for an attribute by its name; what asks for it or sets it.
GETS_ATTRIBUTES = frozenset({"builtins.getattr", "builtins.hasattr"})
ATTRIBUTES_BY_NAME = GETS_ATTRIBUTES | {"builtins.setattr"}
# What asks for a class: by full name, and as it is written.
ASKS_CLASS = frozenset({"builtins.isinstance", "builtins.issubclass"})
ASKS_CLASS_AS = ("isinstance", "issubclass")
# How a condition is written that tells a wrapped model from a bare one.
ASKS_FOR_WRAP = ("hasattr", "isinstance", "type(")
# What looks at a class or function and does not call it.
LOOKS_AT_FUNCTIONS = frozenset(f"builtins.{name}" for name in """
    isinstance issubclass hasattr getattr callable id type print str repr
    """.split())
# What never calls what it is given, by the beginning of its name, and what of that does.
CALLS_NOTHING = ("math.", "numpy.", "PIL.Image.")
CALLS_FUNCTIONS = frozenset(f"numpy.{name}" for name in """
    apply_along_axis apply_over_axes array2string fromfunction frompyfunc genfromtxt loadtxt mask_indices
    ma.apply_along_axis ma.apply_over_axes pad piecewise set_printoptions vectorize
    """.split()) | {"PIL.Image.eval", "PIL.Image.Image.point"}
# What asks for the kind of a value, or prints it, and hands nothing of it on: by last name, and by full name.
ASKS_TYPE = frozenset({"isinstance", "type", "hasattr", "print"})
ASKS_ABOUT_DATA = frozenset(f"builtins.{name}" for name in (*sorted(ASKS_TYPE), "callable"))
# What asks for the size of something.
SIZES = frozenset({"builtins.len", "builtins.range"})
# What asks for the kind of a value, or for its size: nothing of its numbers.
ASKS_KIND_OR_SIZE = SIZES | frozenset("""
    builtins.isinstance builtins.hasattr builtins.type builtins.callable
    torch.is_tensor torch.is_floating_point numpy.isscalar
    """.split())
# What may be asked of options to decide on devices, beside for devices themselves.
ASKS_OPTIONS = frozenset(
    f"builtins.{name}" for name in "len int bool str isinstance type list range any all".split()
)
LIST_TYPES = frozenset({"builtins.list", "builtins.tuple"})
# What asks for the type of its first argument.
TYPE_QUESTIONS = frozenset({"builtins.isinstance", "builtins.type"})
# What a condition may call that the main process alone evaluates, by the beginning of its name.
ASKS = (
    "os.path.",
    "builtins.len",
    "builtins.isinstance",
    "builtins.hasattr",
    "builtins.bool",
    "builtins.range",
    "builtins.enumerate",
    "builtins.zip",
    "builtins.sorted",
    "builtins.list",
    "builtins.str",
    "os.listdir",
    "os.access",
    "glob.",
)


def calls_nothing(names: frozenset[str]) -> bool:
    """Whether what has one of these names never calls a function that it is given."""
    return bool(names) and all(
        it in ASKS_KIND_OR_SIZE | LOOKS_AT_FUNCTIONS
        or (it.startswith(CALLS_NOTHING) and it not in CALLS_FUNCTIONS)
        for it in names
    )
