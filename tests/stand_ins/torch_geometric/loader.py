"""Batches that are lists of graphs."""

from __future__ import annotations

from typing import Any

import torch


class DataListLoader(torch.utils.data.DataLoader):
    """A DataLoader that leaves graphs apart."""

    def __init__(self, dataset: Any, batch_size: int = 1, shuffle: bool = False, **kwargs: Any) -> None:
        super().__init__(dataset, batch_size, shuffle, collate_fn=lambda data_list: data_list, **kwargs)
