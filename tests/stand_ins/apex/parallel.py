"""What apex's DistributedDataParallel does, on a CPU, by the arguments that the tests' programs give it."""

from __future__ import annotations

import torch
import torch.distributed as dist


class DistributedDataParallel(torch.nn.Module):
    """Parameters of the first rank for all, and gradients that are added up after the backward pass, and divided then.

    What has no gradient is left out. Without ``delay_allreduce`` those that have one must stay the same ones.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        message_size: int = 10000000,
        delay_allreduce: bool = False,
        gradient_predivide_factor: float = 1.0,
    ) -> None:
        super().__init__()
        self.module = module
        self.delay_allreduce = delay_allreduce
        self.gradient_predivide_factor = gradient_predivide_factor
        self._ready: list[str] = []
        self._expected: list[str] = []
        for name, parameter in module.named_parameters():
            dist.broadcast(parameter.data, 0)
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(lambda _, name=name: self._arrived(name))

    def forward(self, *inputs: object, **more: object) -> object:
        self._ready = []
        return self.module(*inputs, **more)

    def _arrived(self, name: str) -> None:
        if not self._ready:
            torch.autograd.Variable._execution_engine.queue_callback(self._average)
        self._ready.append(name)

    def _average(self) -> None:
        self._expected = self._expected or sorted(self._ready)
        if not self.delay_allreduce and sorted(self._ready) != self._expected:
            raise RuntimeError("other parameters have gradients than at first")
        for parameter in self.module.parameters():
            if parameter.grad is not None:
                parameter.grad /= self.gradient_predivide_factor
                dist.all_reduce(parameter.grad)
                parameter.grad *= self.gradient_predivide_factor / dist.get_world_size()
