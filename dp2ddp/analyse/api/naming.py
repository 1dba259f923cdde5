"""The one name of what torch and others offer under several, and what star imports bring."""

from __future__ import annotations

from functools import cache

CANONICAL = {
    "torch.nn.modules.Module": "torch.nn.Module",
    "torch.nn.parallel.DataParallel": "torch.nn.DataParallel",
    "torch.nn.parallel.data_parallel.DataParallel": "torch.nn.DataParallel",
    "torch.nn.parallel.data_parallel.data_parallel": "torch.nn.parallel.data_parallel",
    "torch.nn.parallel.distributed.DistributedDataParallel": "torch.nn.parallel.DistributedDataParallel",
    "torch.utils.data.dataloader.DataLoader": "torch.utils.data.DataLoader",
    "torch.utils.data.dataset.Dataset": "torch.utils.data.Dataset",
    "torch.utils.data.distributed.DistributedSampler": "torch.utils.data.DistributedSampler",
    "torch.accelerator.is_available": "torch.cuda.is_available",
    "torch.accelerator.device_count": "torch.cuda.device_count",
    "six.moves.urllib": "urllib",
    "torch.utils.tensorboard.writer.SummaryWriter": "torch.utils.tensorboard.SummaryWriter",
    "fastprogress.fastprogress.progress_bar": "fastprogress.progress_bar",
    "fastprogress.fastprogress.master_bar": "fastprogress.master_bar",
    "tqdm.auto.tqdm": "tqdm.tqdm",
    "tqdm.autonotebook.tqdm": "tqdm.tqdm",
    "tqdm.notebook.tqdm": "tqdm.tqdm",
    "tqdm.std.tqdm": "tqdm.tqdm",
    "tqdm.auto.trange": "tqdm.trange",
}
LOADER = "torch.utils.data.DataLoader"

# What `from torch.utils.data import *` brings, to tell it from other star imports beside it.
DATA_NAMES = frozenset("""
    DataLoader Dataset TensorDataset IterableDataset Subset ConcatDataset ChainDataset random_split Sampler
    RandomSampler SequentialSampler SubsetRandomSampler WeightedRandomSampler BatchSampler DistributedSampler
    default_collate get_worker_info
    """.split())


@cache
def canonical(name: str) -> str:
    """The name by which everything here knows what has this full name."""
    if name.startswith("torch.nn.modules.") and name.count(".") > 3:
        name = "torch.nn." + name.split(".", 4)[4]
    for known, canonical in CANONICAL.items():
        if name == known or name.startswith(known + "."):
            return canonical + name[len(known) :]
    return name
