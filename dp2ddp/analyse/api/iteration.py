"""Loaders, samplers and iterators: what hands out elements, of what, and in which order."""

from __future__ import annotations

from dp2ddp.analyse.api.naming import LOADER

# What begins to iterate over an object, and what takes its next element; how that is called and imported by hand.
ITERATION = ("__iter__", "__next__")
NEXT_METHODS = ("__next__", "next")
BEGINS = ("__init__", "__iter__")
# By which a class that derives from DataLoader hands out what it makes itself.
OWN_ITERATION = (*ITERATION, "_get_iterator")
OLD_NEXT = frozenset({"builtins.iter.next", "builtins.enumerate.next", f"{LOADER}.__iter__.next"})

# Going over something

# What shows how far a loop has come over its first argument.
PROGRESS_BARS = frozenset("""
    tqdm.tqdm rich.progress.track fastprogress.progress_bar fastprogress.master_bar progressbar.progressbar
    alive_progress.alive_it
    """.split())
# What hands out all elements of its first argument, in order, one by one, with their number or alone.
HANDS_OUT_ALL = PROGRESS_BARS | frozenset("""
    builtins.enumerate builtins.iter prefetch_generator.BackgroundGenerator
    """.split())
# What hands out elements of its first argument, or with ``zip`` of all: all or some, once or again, in any order.
HANDS_OUT = HANDS_OUT_ALL | frozenset("""
    itertools.islice itertools.cycle builtins.list builtins.tuple builtins.sorted builtins.reversed builtins.zip
    """.split())
# The same of their first argument alone.
HANDS_FIRST_OUT = HANDS_OUT - {"builtins.zip"}
# What of elements has nothing to do with their order.
ORDERLESS = frozenset("""
    builtins.sorted builtins.len builtins.set builtins.sum builtins.max builtins.min
    """.split())
# What goes through what it is given.
GOES_THROUGH = (HANDS_OUT | ORDERLESS - {"builtins.len"}) | frozenset("""
    builtins.all builtins.any builtins.dict builtins.filter builtins.map builtins.next itertools.chain
    """.split())
# What calls a function with one element of each; with what it returned last and the next element: where the function
# stands, and what it begins with.
MAPS = frozenset({"builtins.map"})
FOLDS = {"functools.reduce": (0, 2), "itertools.accumulate": (1, None)}
COLLECTS_RETURNED = MAPS | {"itertools.accumulate"}
# What hands elements of several on together, or with a number.
NUMBERS_OR_PAIRS = frozenset({"builtins.zip", "builtins.enumerate"})
# What copies a sequence.
COPIES_SEQUENCE = frozenset({"builtins.list", "builtins.tuple", "builtins.iter"})
# What goes through several collections at once, or through one and its numbers.
SIDE_BY_SIDE = frozenset({"builtins.enumerate", "builtins.zip"})
# What hands out all elements in another order.
IN_ANOTHER_ORDER = frozenset({"builtins.sorted", "builtins.reversed"})
# Methods after which a list has the same elements in another order.
SORTS_IN_PLACE = frozenset({"sort", "reverse"})
# What hands out all or some elements, each as it is.
COLLECTS = frozenset(f"builtins.{name}" for name in ("list", "tuple", "filter", "reversed", "sorted"))
# Builtins that hand on the parts of what they are given, by their last names; those that take nothing apart.
HANDS_PARTS_OUT = frozenset({"zip", "enumerate", "reversed"})
KEEPS_WHOLE = frozenset({"len", "print", "zip", "str", "list", "sorted"})
# What draws from a loader that it is given.
DRAWS_BATCHES = frozenset(
    {"builtins.next", "builtins.iter", "builtins.zip", "builtins.list", "itertools.cycle"}
)
# What counts; those that end.
RANGES = frozenset({"builtins.range", "tqdm.trange"})
COUNTERS = RANGES | {"itertools.count"}

# torch's DataLoader

# Its arguments, by their places.
LOADER_ARGUMENTS = {
    "dataset": 0,
    "batch_size": 1,
    "shuffle": 2,
    "sampler": 3,
    "batch_sampler": 4,
    "num_workers": 5,
    "collate_fn": 6,
    "drop_last": 8,
    "generator": 12,
}
# Those that change nothing of the order; those that are functions; those that are samplers.
ORDERLESS_ARGUMENTS = frozenset({"num_workers", "collate_fn"})
FUNCTION_ARGUMENTS = ("worker_init_fn", "collate_fn")
SAMPLER_ARGUMENTS = ("sampler", "batch_sampler")
# What objects keep of what they are made with, under the names of the parameters.
KEPT_ARGUMENTS = {
    LOADER: {it: LOADER_ARGUMENTS[it] for it in ("dataset", *SAMPLER_ARGUMENTS, "collate_fn", "generator")},
    "torch.utils.data.Subset": {"dataset": 0, "indices": 1},
}
# What a loader says of the batches that it draws.
SAYS_OF_BATCHES = frozenset({"batch_size", "sampler", "batch_sampler", "drop_last", "_index_sampler"})
# What puts samples together where nothing else is told to.
COLLATES = frozenset(
    f"torch.utils.data.{module}{name}"
    for module in ("", "dataloader.", "_utils.collate.")
    for name in ("default_collate", "default_convert")
)
# The sampler for ranks, and the constructor of all samplers.
DISTRIBUTED_SAMPLER = "torch.utils.data.DistributedSampler"
SAMPLER_INITS = frozenset({"torch.utils.data.Sampler.__init__", "torch.utils.data.sampler.Sampler.__init__"})
