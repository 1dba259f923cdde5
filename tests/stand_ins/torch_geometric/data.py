"""Graphs, and several of them as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


class Data:
    """A graph: what its nodes have, edges between them, and what it is to be taken for."""

    def __init__(self, x: torch.Tensor, edge_index: torch.Tensor, y: torch.Tensor) -> None:
        self.x, self.edge_index, self.y = x, edge_index, y

    @property
    def num_nodes(self) -> int:
        """How many nodes it has."""
        return len(self.x)

    def to(self, device: Any) -> Data:
        """The same graph, on a device."""
        for name, value in vars(self).items():
            if isinstance(value, torch.Tensor):
                setattr(self, name, value.to(device))
        return self


class Batch(Data):
    """Several graphs as one that falls apart; ``batch`` says of each node whose it is."""

    batch: torch.Tensor

    @staticmethod
    def from_data_list(data_list: Sequence[Data]) -> Batch:
        """Graphs, one after the other."""
        starts = torch.tensor([0, *(data.num_nodes for data in data_list)]).cumsum(0)
        edges = [data.edge_index + int(start) for data, start in zip(data_list, starts, strict=False)]
        found = Batch(
            torch.cat([data.x for data in data_list]),
            torch.cat(edges, 1),
            torch.cat([data.y for data in data_list]),
        )
        counts = torch.tensor([data.num_nodes for data in data_list])
        found.batch = torch.arange(len(data_list)).repeat_interleave(counts)
        return found
