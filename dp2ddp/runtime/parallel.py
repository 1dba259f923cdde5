"""torch.nn.parallel's steps on many processes: ``scatter``, ``replicate``, ``parallel_apply``, ``gather``.

They stand in the place of torch's where a program goes these steps by itself. Every rank calls them alike, with whole
batches: ``parallel_apply`` runs, on each rank, the replica that is this rank's, and gives all ranks all outputs, in
order and with their graph. What is done between the steps is done on every rank with the same values. All is on this
rank's own device, whichever devices are named: their number counts.

- *Fewer parts than ranks.* The others run the first part again; nothing of it goes into outputs or gradients.
- *Replicas called by hand*, past ``parallel_apply``, compute their parts on every rank: right, and no faster.
- *Synchronised BatchNorm* that replicas are told of (see ``callbacks``) shares its sums with the other ranks' replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch

from . import copies, evaluation, nested, outputs, parts, ranks
from . import scatter as cutting
from .exchange import exchange
from .runner import Runner

_FORWARD = "DataParallel's forward"


def is_alone() -> bool:
    """Whether this process runs all replicas, of which there is one: no ranks, or batches of its own to evaluate."""
    return ranks.is_alone(_FORWARD) or evaluation.is_running()


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> list[Any]:
    """torch.nn.parallel.scatter: the parts of ``inputs``, at most as many as ``target_gpus``."""
    whole = _moved(inputs, ranks.device())
    return cutting.pieces(whole, len(target_gpus), lambda tensor: tensor.chunk(len(target_gpus), dim))


def scatter_kwargs(
    inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, target_gpus: Sequence[Any], dim: int = 0
) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:
    """torch.nn.parallel.scatter_gather.scatter_kwargs: the parts of a call's arguments."""
    inputs, kwargs = _moved((tuple(inputs), dict(kwargs or {})), ranks.device())
    if not inputs and not kwargs:
        return (), ()
    calls = cutting.scatter(
        inputs, kwargs, len(target_gpus), lambda tensor: tensor.chunk(len(target_gpus), dim)
    )
    return tuple(positional for positional, _ in calls), tuple(named for _, named in calls)


def replicate(
    network: torch.nn.Module, devices: Sequence[Any], detach: bool = False
) -> list[torch.nn.Module]:
    """torch.nn.parallel.replicate: as many copies as ``devices``; they share the parameters."""
    return copies.made(network, len(devices), None if is_alone() else Runner.of(network))


def parallel_apply(
    modules: Sequence[torch.nn.Module],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:
    """torch.nn.parallel.parallel_apply: the outputs of ``modules``, each for its part of the inputs.

    Raises:
        RuntimeError: the ranks were given different batches; or there are more replicas than ranks.
    """
    if len(modules) != len(inputs):
        raise AssertionError(
            f"{len(modules)} modules, but inputs for {len(inputs)}: pass one input for each module"
        )
    positional = [it if isinstance(it, list | tuple) else (it,) for it in inputs]
    named = list(kwargs_tup) if kwargs_tup else [{} for _ in positional]
    calls = list(zip(positional, named, strict=True))
    tags = [tag for module in modules if (tag := copies.tag(module)) is not None and tag.runner is not None]
    takers = [tag.index for tag in tags]
    of_one = len({id(tag.runner) for tag in tags}) == 1 and len(set(takers)) == len(modules)
    if is_alone() or not of_one:
        return [module(*args, **kwargs) for module, (args, kwargs) in zip(modules, calls, strict=True)]
    runner = tags[0].runner
    return apply(runner, calls, takers, modules)


def apply(
    runner: Runner, calls: Sequence[Any], takers: Sequence[int], modules: Sequence[torch.nn.Module] = ()
) -> list[Any]:
    """All outputs of a module, each rank having computed one of them.

    Args:
        calls: the arguments of each call, by place and by name.
        takers: which rank makes each call.
        modules: the copies that the calls are of, where there are some.
    """
    world = ranks.get_world_size()
    if len(calls) > world:
        raise RuntimeError(
            f"scatter() splits the batch into {len(calls)} parts for {runner.name}, but there are {world} "
            f"processes: start {len(calls)} processes"
        )
    runner.replica.unsettle()
    leaves = nested.flatten(calls, dataclasses=True)
    held = [it for leaf in leaves if not isinstance(leaf, torch.Tensor) for it in outputs.inside(leaf)]
    described = runner.describe([*leaves, *held])  # the module may change its inputs
    own = takers.index(ranks.get_rank()) if ranks.get_rank() in takers else None
    part, ties = outputs.own_part(calls, takers, own or 0)
    kept = _Buffers(runner.module) if own is None and ranks.is_main_process() else None
    copy = modules[own or 0] if modules else None
    with nullcontext() if copy is None else copies.acting_as(copy, runner.module, own is not None):
        output = runner.run(*part)
    tensors = parts.tensors(output)
    if kept is not None:
        kept.put_back()
    message = outputs.Message.of(output, tensors)
    answers = exchange(_FORWARD, (described, None if own is None else message))
    runner.compare([inputs for inputs, _ in answers])
    runner.has_run()
    messages = [message or outputs.Message(None, ()) for _, message in answers]
    found = outputs.share(tensors, ties, messages, own is not None, runner.replica)
    return [messages[rank].filled(found[rank]) for rank in takers]


class _Buffers:
    """A module's buffers as they are."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._held = [(part, dict(part._buffers)) for part in module.modules()]
        self._values = [(it, it.detach().clone()) for it in module.buffers()]

    def put_back(self) -> None:
        """Give the module its buffers back, with their values."""
        for part, buffers in self._held:
            part._buffers.update(buffers)
        for buffer, value in self._values:
            buffer.data.copy_(value)


def gather(gathered: Sequence[Any], target_device: Any = None, dim: int = 0) -> Any:
    """torch.nn.parallel.gather: the replicas' outputs as one.

    Raises:
        TypeError: an output is neither a tensor nor None.
    """
    whole = outputs.joined(list(gathered), dim)
    return _moved(whole, torch.device("cpu")) if is_cpu(target_device) else whole


def is_cpu(target_device: Any) -> bool:
    """Whether outputs are to be gathered on the CPU."""
    return target_device == -1 or (target_device is not None and str(target_device) == "cpu")


def _moved(value: Any, device: torch.device) -> Any:
    leaves = nested.flatten(value, dataclasses=True)
    moved = [
        it.to(device, non_blocking=device.type != "cpu") if isinstance(it, torch.Tensor) else it
        for it in leaves
    ]
    return nested.unflatten(value, moved, dataclasses=True)
