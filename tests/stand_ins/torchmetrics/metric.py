"""Where torchmetrics has its base class."""

import torch
import torch.distributed as dist


class Metric:
    def __init__(self):
        self._is_synced = False
        self.reset()

    def reset(self):
        self.total = torch.zeros(())

    def sync(self, dist_sync_fn=None, process_group=None, should_sync=True, distributed_available=None):
        if not should_sync or not (dist.is_available() and dist.is_initialized()):
            return
        self._before = self.total
        self.total = self.total.clone()
        dist.all_reduce(self.total)
        self._is_synced = True

    def compute(self):
        self.sync()
        value = self._value()
        if self._is_synced:
            self.total, self._is_synced = self._before, False
        return value
