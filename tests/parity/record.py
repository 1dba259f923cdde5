"""Run a training script as it is, and write down what it did.

    PARITY='{"out": "runs/1", "float64": true}' python record.py train.py --epochs 2

The script is not touched: torch is patched before it starts, and its own launcher, which starts the ranks by
running the same command again, brings the patches along. `PARITY` is a JSON object:

    out        folder that gets one file per rank (`0.pt`, `1.pt`, …)
    float64    make float64 the default type
    replicas   play nn.DataParallel on so many GPUs (see `reference`); absent: leave CUDA as it is
    plan       file with the training batches to draw instead of the sampler's, epoch by epoch
    parameters "all": after every optimizer step · "last": after the last one only

Written down: the training batches of each epoch as sample numbers, the size of the batches that the script's own
sampler dealt, the loss of every backward, the parameters after the optimizer's steps.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import dataloader


class Recorder:
    """Patches torch to note what one process does, and writes the notes to a file."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.rank: int | None = None
        self.losses: list[float] = []
        self.parameters: list[torch.Tensor] = []
        self.steps = 0
        self.epochs: list[list[list[int]]] = []
        self.evaluations: list[list[list[int]]] = []
        self.own_sizes: list[list[int]] = []
        self.plan = torch.load(settings["plan"]) if settings.get("plan") else None

    def patch(self) -> None:
        """Put the notes into torch, and make the changes that `settings` asks for."""
        if self.settings.get("float64"):
            torch.set_default_dtype(torch.float64)
        if self.settings.get("replicas"):
            from reference import pretend

            pretend(self.settings["replicas"])
        self._patch_backward()
        self._patch_batches()
        register_optimizer_step_post_hook(self._after_step)

    def _patch_backward(self) -> None:
        backward = torch.Tensor.backward

        inside = False

        def noted(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if inside:  # a function mode sends backward through torch.Tensor.backward once more
                return backward(tensor, *args, **kwargs)
            if tensor.numel() == 1:
                self.losses.append(tensor.detach().double().item())
            inside = True
            try:
                return backward(tensor, *args, **kwargs)
            finally:
                inside = False

        torch.Tensor.backward = noted

    def _after_step(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        self.steps += 1
        self.rank = current_rank()
        parameters = [parameter.detach() for group in optimizer.param_groups for parameter in group["params"]]
        flat = torch.cat([parameter.flatten().double().cpu() for parameter in parameters])
        if self.settings.get("parameters", "all") == "last":
            self.parameters.clear()
        self.parameters.append(flat)

    def _patch_batches(self) -> None:
        """Note every batch of sample numbers a loader draws; deal those of the plan where there is one."""
        iterator_class = dataloader._BaseDataLoaderIter
        next_index = iterator_class._next_index

        def noted(iterator: Any) -> Any:
            try:
                index = next_index(iterator)
            except StopIteration:
                iterator.parity_epoch = None
                raise
            if not isinstance(index, list):
                return index
            training = is_training_set(iterator._dataset)
            epochs = self.epochs if training else self.evaluations
            if getattr(iterator, "parity_epoch", None) is None:
                iterator.parity_epoch = len(epochs)
                epochs.append([])
                if training:
                    self.own_sizes.append([])
            epoch = iterator.parity_epoch
            if training:
                self.own_sizes[epoch].append(len(index))
                if self.plan is not None:
                    index = self._planned(epoch, len(epochs[epoch]))
            epochs[epoch].append(list(index))
            return index

        iterator_class._next_index = noted

    def _planned(self, epoch: int, step: int) -> list[int]:
        if epoch >= len(self.plan) or step >= len(self.plan[epoch]):
            raise StopIteration  # `own_sizes` shows that the script wanted more
        return self.plan[epoch][step]

    def write(self) -> None:
        """Write the notes of this process, if it trained or read data at all: a launching agent does neither."""
        if not (self.losses or self.epochs or self.evaluations):
            return
        out = Path(self.settings["out"])
        rank = current_rank() if self.rank is None else self.rank
        notes = {
            "rank": rank,
            "losses": self.losses,
            "parameters": self.parameters,
            "steps": self.steps,
            "epochs": self.epochs,
            "evaluations": self.evaluations,
            "own_sizes": self.own_sizes,
        }
        partial = out / f"{rank}.pt.partial"
        torch.save(notes, partial)
        partial.replace(out / f"{rank}.pt")


def is_training_set(dataset: Any) -> bool:
    """Whether `dataset`, or the one it is a part of, was made with `train=True`."""
    while not hasattr(dataset, "train") and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    return bool(getattr(dataset, "train", False))


def current_rank() -> int:
    """This process's rank: from the process group where there is one, else from the environment."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    return int(os.environ.get("RANK", "0"))


def main() -> None:
    """Run the script that the command line names, recorded as `PARITY` says; just run it where that is not set."""
    script = sys.argv[1]
    recorder = Recorder(json.loads(os.environ["PARITY"])) if "PARITY" in os.environ else None
    if recorder is not None:
        recorder.patch()  # it imports from this folder, whose place the script's takes
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(script).resolve().parent)
    if recorder is None:
        runpy.run_path(script, run_name="__main__")
        return
    process = os.getpid()
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        if os.getpid() == process:
            recorder.write()


if __name__ == "__main__":
    main()
