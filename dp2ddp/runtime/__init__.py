"""What converted scripts import: ``from dp2ddp import runtime as ddp``.

Depends on torch alone (2.4 or newer) and on nothing else of dp2ddp: the folder can be copied into a repository.
In a plain process everything works as if it were not there.
"""

from . import parallel
from .arguments import take_local_rank
from .aside import is_initialized, set_device, stand_aside, stands_aside, watch_in_helpers
from .checkpoint import strip_module_prefix, unwrap
from .combine import batch_sum, gather, local_sum, mean, sum
from .data import local_batch_size, local_workers, shared_seed
from .data_parallel import DataParallel, adapted, data_parallel
from .devices import device, map_location, use_devices
from .gradients import sync_gradients
from .local_batch import local_batch
from .local_streams import local_random
from .loss import batch_loss, loss_weight, whole_batch
from .model import DistributedDataParallel
from .process import barrier, from_main_process, input, main_process_first, open, print, save
from .ranks import (
    get_local_rank,
    get_local_world_size,
    get_rank,
    get_replica_count,
    get_world_size,
    is_main_process,
)
from .shard import divide_batches, shard, shard_batches
from .share import share
from .squeeze import squeeze
from .stand_in import on_main_process
from .start import init, launch

take_local_rank()
watch_in_helpers()

__dp2ddp_runtime__ = True  # by this name a copy of the folder in somebody's project is recognised

__all__ = [
    "DataParallel",
    "DistributedDataParallel",
    "adapted",
    "barrier",
    "batch_loss",
    "batch_sum",
    "data_parallel",
    "device",
    "divide_batches",
    "from_main_process",
    "gather",
    "get_local_rank",
    "get_local_world_size",
    "get_rank",
    "get_replica_count",
    "get_world_size",
    "init",
    "input",
    "is_initialized",
    "is_main_process",
    "launch",
    "local_batch",
    "local_batch_size",
    "local_workers",
    "local_random",
    "local_sum",
    "loss_weight",
    "main_process_first",
    "map_location",
    "mean",
    "on_main_process",
    "open",
    "parallel",
    "print",
    "save",
    "set_device",
    "shard",
    "shard_batches",
    "share",
    "shared_seed",
    "squeeze",
    "stand_aside",
    "stands_aside",
    "strip_module_prefix",
    "sum",
    "sync_gradients",
    "unwrap",
    "use_devices",
    "whole_batch",
]
