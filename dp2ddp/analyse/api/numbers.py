"""Numbers and settings: what makes one, passes one on, or is one where programs count and average."""

from __future__ import annotations

# Builtins, by their last names: those that make one number; those that give one of several numbers, or its amount.
MAKES_NUMBER = frozenset({"len", "float", "int", "round", "bool"})
CHOOSES_NUMBER = frozenset({"max", "min", "abs"})
CASTS_NUMBER = frozenset({"float", "int"})
MAKES_PYTHON_NUMBER = frozenset({"builtins.int", "builtins.float", "builtins.bool"})
LONGEST = frozenset({"builtins.max", "builtins.min"})
# What makes a number of one thing, however long that is.
COUNTS_ONE = frozenset({"builtins.len", "builtins.int"})
# Those that hand a tensor on as it is, or in a list; those and what makes numbers or other collections of it.
HANDS_TENSOR_ON = frozenset({"float", "list", "tuple", "reversed"})
OF_ONE = HANDS_TENSOR_ON | {"int", "abs", "round", "dict", "iter"}
# Those that compute something of several numbers.
OF_SEVERAL = frozenset("max min pow any all bool range str".split())
# What computes one number of single numbers, beside `math` and what of torch does so number by number.
COMPUTES_NUMBER = frozenset(f"builtins.{name}" for name in (*CHOOSES_NUMBER, *CASTS_NUMBER, "pow", "round"))
COMPUTES_NUMBER |= {f"numpy.{name}" for name in "sqrt log exp maximum minimum power".split()}
# What passes a number on: one that is made from the clock is the clock's.
PASSES_NUMBER_ON = frozenset(f"builtins.{name}" for name in "int float round abs min max str hash".split())
# What is agreed on together with what it is given.
AGREED_TOGETHER = PASSES_NUMBER_ON | frozenset("""
    builtins.len builtins.sorted builtins.list builtins.next
    """.split())
# What makes one number of what it is given: functions, and how the names of others begin.
MAKES_NUMBER_OF = frozenset("""
    builtins.float builtins.int builtins.round builtins.sum builtins.max builtins.min builtins.abs builtins.len
    numpy.mean numpy.nanmean numpy.sum numpy.median numpy.sqrt numpy.average numpy.exp
    """.split())
NUMBER_HOMES = ("math.", "sklearn.metrics.", "statistics.", "scipy.stats.")
# Attributes and methods that are one number: of tensors and arrays, and of what programs average in.
NUMBERS = frozenset("item mean sum max min avg val count global_avg std".split())
# The attributes of an object that adds numbers up and counts them.
METERS = (frozenset({"sum", "count"}), frozenset({"total", "count"}))
