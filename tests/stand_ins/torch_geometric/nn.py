"""DataParallel for lists of graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_geometric.data import Batch, Data


class DataParallel(torch.nn.DataParallel):
    """Gives every GPU some of the graphs, so many that each has about as many nodes, as one."""

    def __init__(self, module: torch.nn.Module, device_ids: Any = None, output_device: Any = None) -> None:
        super().__init__(module, device_ids, output_device)
        self.src_device = torch.device(f"cuda:{self.device_ids[0]}" if self.device_ids else "cpu")

    def forward(self, data_list: Sequence[Data]) -> Any:
        """The outputs for all graphs."""
        if not data_list:
            return None
        if not self.device_ids or len(self.device_ids) == 1:
            return self.module(Batch.from_data_list(data_list).to(self.src_device))
        inputs = self.scatter(data_list, self.device_ids)
        replicas = self.replicate(self.module, self.device_ids[: len(inputs)])
        outputs = self.parallel_apply(replicas, inputs, None)
        return self.gather(outputs, self.output_device)

    def scatter(self, data_list: Sequence[Data], device_ids: Sequence[int]) -> list[Batch]:
        """The graphs for each GPU."""
        gpus = min(len(device_ids), len(data_list))
        nodes = torch.tensor([0, *(data.num_nodes for data in data_list)]).cumsum(0)
        middles = (nodes[:-1] + nodes[1:]) / 2
        places = (gpus * middles / nodes[-1]).long().tolist()
        parts = [
            [it for it, place in zip(data_list, places, strict=True) if place == gpu] for gpu in range(gpus)
        ]
        parts = [part for part in parts if part]
        return [
            Batch.from_data_list(part).to(torch.device(f"cuda:{device}"))
            for part, device in zip(parts, device_ids, strict=False)
        ]
