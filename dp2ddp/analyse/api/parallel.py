"""The names of what runs a model on several devices: DataParallel, its parts, and what takes its place."""

from __future__ import annotations

from collections.abc import Set

WRAP = "torch.nn.DataParallel"
FUNCTION = "torch.nn.parallel.data_parallel"
# The methods in which DataParallel deals a batch to its replicas.
STEPS = ("replicate", "scatter", "gather", "parallel_apply")
# The functions that torch has for that, by the names of the runtime's.
STEP_FUNCTIONS = {
    "torch.nn.parallel.replicate": "replicate",
    "torch.nn.parallel.replicate.replicate": "replicate",
    "torch.nn.parallel.data_parallel.replicate": "replicate",
    "torch.nn.parallel.scatter": "scatter",
    "torch.nn.parallel.scatter_gather.scatter": "scatter",
    "torch.nn.parallel.scatter_gather.scatter_kwargs": "scatter_kwargs",
    "torch.nn.parallel.data_parallel.scatter_kwargs": "scatter_kwargs",
    "torch.nn.parallel.parallel_apply": "parallel_apply",
    "torch.nn.parallel.parallel_apply.parallel_apply": "parallel_apply",
    "torch.nn.parallel.data_parallel.parallel_apply": "parallel_apply",
    "torch.nn.parallel.gather": "gather",
    "torch.nn.parallel.scatter_gather.gather": "gather",
    "torch.nn.parallel.data_parallel.gather": "gather",
}
# Classes outside of torch that derive from DataParallel; the end of the name, where projects hold copies of them.
DERIVED = {
    "torch_geometric.nn.DataParallel",
    "torch_geometric.nn.data_parallel.DataParallel",
    "sync_batchnorm.DataParallelWithCallback",
    "sync_batchnorm.replicate.DataParallelWithCallback",
}
APEX_WRAP = "apex.parallel.DistributedDataParallel"
OTHER_WRAPS = {"torch.nn.parallel.DistributedDataParallel", APEX_WRAP}
DDP_WRAPS = {
    *OTHER_WRAPS,
    "dp2ddp.runtime.DistributedDataParallel",
    "dp2ddp.runtime.DataParallel",
}


def is_derived(name: str) -> bool:
    """Whether a class outside the project is known to derive from DataParallel, by its full name."""
    return any(name == known or name.endswith(f".{known}") for known in DERIVED)


def is_runtime(names: Set[str]) -> bool:
    """Whether what is called is of the runtime, by all its names."""
    return bool(names) and all(name.startswith("dp2ddp.runtime.") for name in names)
