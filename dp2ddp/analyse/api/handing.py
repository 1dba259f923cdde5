"""What hands back what it is given, the object that it is called of, or elements of those; what only asks."""

from __future__ import annotations

from dp2ddp.analyse.api.iteration import PROGRESS_BARS

# Methods of modules and tensors that return the object itself, or its copy on another device or of another type.
SAME_OBJECT = frozenset("""
    to cuda cpu train eval half float double bfloat16 type requires_grad_ share_memory apply contiguous detach clone
    """.split())
# What returns its argument, or a copy of it.
COPIES = {
    "copy.copy",
    "copy.deepcopy",
    "torch.compile",
    "dp2ddp.runtime.local_batch",
    "dp2ddp.runtime.share",
    "dp2ddp.runtime.shard",
    "dp2ddp.runtime.shard_batches",
    "dp2ddp.runtime.divide_batches",
}
# What returns some elements of its first argument in a collection; what returns one of them.
SELECTS = frozenset({"random.sample", "random.choices", "numpy.random.choice", "numpy.random.permutation"})
TAKES_ONE = frozenset({"builtins.next", "random.choice"})
# What changes layers of a model, and hands it back.
CONVERTS_NORMS = {
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm",
    "torch.nn.modules.batchnorm.SyncBatchNorm.convert_sync_batchnorm",
    "apex.parallel.convert_syncbn_model",
}
COPIES |= CONVERTS_NORMS
# Prepares a model and optimizers for mixed precision, and hands them back.
INITIALIZE = "apex.amp.initialize"
# What hands back all that it is given by these parameters, which come first: one alone, or several together.
HANDS_BACK = {INITIALIZE: ("models", "optimizers")}
# What hands out the elements of its first argument in another order.
REORDERS = frozenset("builtins.sorted builtins.set builtins.frozenset builtins.reversed".split())
# What hands out the elements of its first argument; those of its second.
ITERATORS = REORDERS | PROGRESS_BARS | frozenset("""
    builtins.enumerate builtins.iter builtins.list builtins.tuple builtins.next
    itertools.islice itertools.cycle
    """.split())
FILTERS = frozenset({"builtins.filter"})
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
