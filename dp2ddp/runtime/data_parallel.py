"""nn.DataParallel's contract on many processes: whole batches in, whole outputs out, each rank computing its chunk.

Every rank draws the same batches and runs the same lines. A forward cuts the batch as nn.DataParallel does, runs this
rank's chunk through DistributedDataParallel and gathers the outputs with their graph, so that any loss of the outputs
is that of the whole batch, on every rank. What holds, and why:

- *Gradients.* Each rank's loss is the whole one. What comes back to its own rows is taken W times (see ``rows``), for
  DistributedDataParallel's average to cancel the W. Nothing else weighs.
- *Fewer chunks than ranks.* The others run the first chunk again; nothing of it goes into outputs or gradients.
- *Buffers*, and parameters that a forward writes. Rank 0's are kept, as nn.DataParallel keeps replica 0's. Attributes
  that it stores are forgotten (see ``attributes``).
- *Random numbers*, and ranks that hold different batches all the same: see ``runner``.
- *Classes of one's own* that derive from it may replace the steps of nn.DataParallel's forward, ``scatter``,
  ``replicate``, ``parallel_apply`` and ``gather``, or the forward that goes them (see ``parallel``).
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch.distributed.utils import _to_kwargs

from . import (
    again,
    attributes,
    callbacks,
    checkpoint,
    compiling,
    copies,
    devices,
    evaluation,
    home,
    nested,
    parallel,
    parts,
    ranks,
    rows,
    torchmetrics_apart,
    unstarted,
)
from .exchange import exchange
from .outputs import ungathered
from .runner import Inputs, Runner, listed
from .scatter import Call, scatter
from .wrapping import StandsForModel, unwrapped

_FORWARD = "DataParallel's forward"
_STEPS = ("replicate", "scatter", "parallel_apply", "gather")  # of nn.DataParallel's forward
_AT_HOME = ("forward", "scatter", "gather")  # what may name devices


def data_parallel(
    module: torch.nn.Module,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
    *,
    detached: bool = False,
) -> Any:
    """torch.nn.parallel.data_parallel on as many processes as there are.

    Every rank calls it with the same inputs, runs its chunk of them through the module and gets the outputs of all.
    Where gradients are enabled, those of the module's parameters become the whole batch's, as ``DataParallel``'s do.

    Args:
        module, inputs, device_ids, output_device, dim, module_kwargs: as torch's has them.
        detached: compute the outputs without a graph, where gradients are enabled and nothing asks for them.

    Raises:
        RuntimeError: see DataParallel's forward.
    """
    if detached:
        with torch.no_grad():
            return data_parallel(module, inputs, device_ids, output_device, dim, module_kwargs)
    if not isinstance(inputs, tuple):
        inputs = () if inputs is None else (inputs,)
    wrapper = DataParallel if torch.is_grad_enabled() else _Untrained
    return wrapper(module, device_ids, output_device, dim)(*inputs, **(module_kwargs or {}))


class DataParallel(StandsForModel, torch.nn.DataParallel):
    """nn.DataParallel, and an instance of it, on as many processes as there are.

    Every rank calls with the same batch, as a script does that draws its batches as it did for nn.DataParallel, and
    gets the outputs of all of it: any loss is the original's, on every rank. Outputs are tensors and None, nested in
    lists, tuples, dicts and dataclasses. A 0-dim one becomes a vector: an element for each replica that got a chunk.

    It may be made before the process group exists, and before the module is moved: what needs them is made at the
    first forward. A module that is on the CPU then, where the rank has a GPU, goes there. In a plain process or a
    group of one a call is one of the module, where that is, with the inputs moved to its GPU.

    A class that derives from it may have a ``scatter`` and a ``gather`` of its own, with what nn.DataParallel gives
    them: ``scatter`` gets the whole batch, on every rank, and ``device_ids`` of as many entries as there are ranks, all
    of them this rank's device; each rank runs its part of what it returns, which may be anything. ``gather`` gets the
    outputs of all parts, in order and with their graph, on this rank's device. A GPU that one of them names by its
    number is this rank's, too. A forward of its own may go nn.DataParallel's steps by itself.

    Args:
        module: the model; a class of one's own may also assign it as ``self.module``. Of an nn.DataParallel it is the
            model in it, as of another of this class.
        device_ids: taken as nn.DataParallel takes them. Each rank uses its own device, whatever they say.
        output_device: the same, but outputs go to the CPU where it is -1.
        dim: the dimension of the samples, in inputs and outputs.

    Attributes:
        device_ids: this rank's GPU, as often as there are ranks; empty in a plain process without a GPU.
        output_device: this rank's GPU, or -1.

    Raises:
        RuntimeError: in a forward, the ranks were given different batches, or returned outputs that don't fit together,
            or there are more parts than ranks; in a backward pass, ``torch.autograd.grad`` with respect to parameters,
            of which no rank knows the whole.
        TypeError: in a forward, an output is neither a tensor nor None, and no ``gather`` of one's own takes it.
    """

    dim = 0
    _has_come = False  # whether the module is where it computes
    _gathers_on_cpu = False

    def __init__(
        self,
        module: torch.nn.Module | None = None,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
    ) -> None:
        again.start_if_misled()
        torch.nn.Module.__init__(self)
        if module is not None:
            # A checkpoint may hold the whole of nn.DataParallel, which would use all GPUs of the machine in each rank.
            self.module = unwrapped(module, DataParallel, torch.nn.DataParallel)
        self.dim = dim
        self.output_device = output_device
        if ranks.get_world_size() > 1:
            compiling.leave_out()
        if module is not None:
            callbacks.refuse_waiting(module)
        self._forget()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in _AT_HOME:
            step = inspect.getattr_static(cls, name)
            if isinstance(step, FunctionType) and _is_own(step, name):
                setattr(cls, name, home.at_home(step))

    def _forget(self) -> None:
        """What is no part of a copy."""
        self._has_come = False
        self._runners: list[Runner] = []  # at most one; in a list, so that it is no submodule
        self._attributes: list[attributes.Attributes] = []  # at most one

    def __setattr__(self, name: str, value: Any) -> None:
        own = name in _AT_HOME and callable(value)  # a step of this object alone
        super().__setattr__(name, home.at_home(value) if own else value)

    # What nn.DataParallel says of devices

    @property
    def device_ids(self) -> list[int]:
        device = ranks.device()
        count = 1 if evaluation.is_running() else ranks.get_world_size()
        if device.type == "cpu" and ranks.get_world_size() == 1:
            return []
        return [device.index or 0] * count

    @device_ids.setter
    def device_ids(self, _: Any) -> None:
        """Each rank has its own device."""

    @property
    def output_device(self) -> int:
        return -1 if self._gathers_on_cpu else ranks.device().index or 0

    @output_device.setter
    def output_device(self, wanted: Any) -> None:
        self._gathers_on_cpu = parallel.is_cpu(wanted)

    @property
    def src_device_obj(self) -> torch.device:
        """The device of the module."""
        return ranks.device()

    # A call

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        alone = ranks.is_alone(_FORWARD)
        if alone:  # the model stays where the program has put it: on the CPU, if that is chosen
            unstarted.report()
        elif not self._has_come:
            self._has_come = True
            devices.bring(self.module)
            torchmetrics_apart.begin()
        if self._has_own_steps() and self.device_ids:
            return self._forward_by_steps(inputs, kwargs, alone)
        if alone or evaluation.is_running():
            return self._forward_alone(inputs, kwargs)
        runner = self._runner()
        runner.replica.unsettle()
        described = runner.describe((inputs, kwargs))  # the module may change its inputs
        calls = self._chunks(inputs, kwargs)
        rank = ranks.get_rank()
        has_chunk = rank < len(calls)
        output = runner.run(*calls[rank if has_chunk else 0])
        runner.has_run()
        return self._whole(output, has_chunk, described)

    def _runner(self) -> Runner:
        if not self._runners:
            self._runners.append(self._make_runner())
        return self._runners[0]

    def _make_runner(self) -> Runner:
        return Runner.of(self.module)

    def _forward_alone(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        first = next(self.module.parameters(), None)
        if first is not None and first.device.type == "cuda" and (inputs or kwargs):
            moved, moved_kwargs = _to_kwargs(inputs, kwargs, first.device, False)
            inputs, kwargs = moved[0], moved_kwargs[0]
        with home.away():
            return self._run_module(inputs, kwargs)

    def _run_module(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The module's output, past its runner."""
        if ranks.get_world_size() == 1:
            return self.module(*inputs, **kwargs)
        if not self._attributes:
            self._attributes.append(attributes.Attributes(self.module))
        return self._attributes[0].run(self.module, inputs, kwargs)

    # In nn.DataParallel's steps, where a class or an object has some of its own

    def _has_own_steps(self, *names: str) -> bool:
        return any(
            name in self.__dict__ or _is_own(inspect.getattr_static(type(self), name), name)
            for name in names or _STEPS
        )

    def _forward_by_steps(self, inputs: tuple[Any, ...], kwargs: dict[str, Any], alone: bool) -> Any:
        inputs, kwargs = self.scatter(inputs, kwargs, self.device_ids)
        if not inputs and not kwargs:
            inputs, kwargs = ((),), ({},)
        if alone:  # nn.DataParallel gathers nothing on one GPU
            return self.module(*inputs[0], **kwargs[0])
        if self._has_own_steps("replicate", "parallel_apply"):
            replicas = self.replicate(self.module, self.device_ids[: len(inputs)])
            found = self.parallel_apply(replicas, inputs, kwargs)
        elif evaluation.is_running():
            found = [self._run_module(it, named) for it, named in zip(inputs, kwargs, strict=True)]
        else:
            found = parallel.apply(self._runner(), [*zip(inputs, kwargs, strict=True)], range(len(inputs)))
        return self.gather(found, self.output_device)

    def replicate(self, module: torch.nn.Module, device_ids: Any) -> list[torch.nn.Module]:
        if module is not self.module or parallel.is_alone():
            return parallel.replicate(module, device_ids)
        return copies.made(module, len(device_ids), self._runner())

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Any) -> Any:
        return parallel.scatter_kwargs(inputs, kwargs, device_ids, self.dim)

    def parallel_apply(self, replicas: Any, inputs: Any, kwargs: Any) -> list[Any]:
        return parallel.parallel_apply(replicas, inputs, kwargs)

    def gather(self, outputs: Any, output_device: Any) -> Any:
        return parallel.gather(outputs, output_device, self.dim)

    # Into chunks

    def _chunks(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Call]:
        """The calls that all ranks make, as many as there are chunks; in this rank's own, tensors with their graph."""
        world = ranks.get_world_size()
        calls = scatter(inputs, kwargs, world, lambda tensor: tensor.chunk(world, self.dim))
        if not torch.is_grad_enabled() or not any(t.requires_grad for t in parts.tensors((inputs, kwargs))):
            return calls
        count, own = len(calls), ranks.get_rank() if ranks.get_rank() < len(calls) else 0

        def cut(tensor: torch.Tensor) -> list[torch.Tensor]:
            chunks = list(tensor.chunk(world, self.dim))
            if tensor.requires_grad and own < len(chunks):
                sizes = [chunk.size(self.dim) for chunk in chunks[:count]]
                start = sum(sizes[:own])
                taken = slice(start, start + sizes[own])
                sizes += [0] * (world - len(sizes))
                chunks[own] = rows.scatter_rows(tensor, self.dim, sizes, taken)
            return chunks

        return scatter(inputs, kwargs, world, cut)

    # And whole again

    def _whole(self, output: Any, has_chunk: bool, inputs: Inputs) -> Any:
        """All ranks' outputs joined, with their graph."""
        leaves = nested.flatten(output, dataclasses=True)
        for leaf in leaves:
            if leaf is not None and not isinstance(leaf, torch.Tensor):
                raise TypeError(ungathered(leaf, type(self.module).__name__))
        own = [None if leaf is None else _Own.of(leaf, self.dim, has_chunk) for leaf in leaves]
        answers = exchange(_FORWARD, (inputs, [_Output() if it is None else it.output for it in own]))
        self._runner().compare([theirs for theirs, _ in answers])
        self._compare_outputs([theirs for _, theirs in answers])
        columns = zip(*(theirs for _, theirs in answers), strict=True)
        whole = [self._whole_one(it, column) for it, column in zip(own, columns, strict=True)]
        return nested.unflatten(output, whole, dataclasses=True)

    def _whole_one(self, own: _Own | None, column: tuple[_Output, ...]) -> torch.Tensor | None:
        if own is None or not column[0].kind:  # None on rank 0 is None, as it is in replica 0
            return None
        tensor, replica = own.tensor, self._runner().replica
        requires_grad = torch.is_grad_enabled() and any(output.requires_grad for output in column)
        if requires_grad and not tensor.requires_grad:  # constants on this rank, and not on others
            tensor = tensor.detach().requires_grad_()
            replica.expect_backward(tensor)
        whole = rows.gather_rows(tensor, own.dim, [output.size for output in column])
        if requires_grad:
            whole.grad_fn.register_prehook(replica.refuse_own_gradients)
        return whole.cpu() if self._gathers_on_cpu else whole

    def _compare_outputs(self, outputs: list[list[_Output]]) -> None:
        """Complain, on every rank, about what can't be one batch's outputs."""
        kinds = [[output.kind for output in their] for their in outputs]
        for rank in range(1, len(kinds)):
            fits = len(kinds[rank]) == len(kinds[0]) and all(
                first in ("", other) for first, other in zip(kinds[0], kinds[rank], strict=True)
            )
            if not fits:
                raise RuntimeError(
                    f"the outputs of {type(self.module).__name__} on the ranks' chunks can't be joined along dimension "
                    f"{self.dim}: rank 0 has {listed(kinds[0])}, rank {rank} has {listed(kinds[rank])}"
                )

    # Copies

    def __reduce_ex__(self, protocol: Any) -> Any:
        return checkpoint.reduced(self, DataParallel) or super().__reduce_ex__(protocol)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        for name in ("_has_come", "_runners", "_attributes"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._forget()


@functools.cache
def adapted(kind: type[torch.nn.Module]) -> type[DataParallel]:
    """A class that derives from nn.DataParallel, as one that derives from ``DataParallel``; it keeps its own steps.

    For a class that stands in a package, PyTorch Geometric's for one.

    Raises:
        TypeError: the class does not derive from nn.DataParallel.
    """
    if not issubclass(kind, torch.nn.DataParallel):
        raise TypeError(
            f"{kind.__module__}.{kind.__qualname__} does not derive from nn.DataParallel: wrap the model in "
            "ddp.DataParallel instead"
        )
    if issubclass(kind, DataParallel):
        return kind
    more = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__reduce_ex__": _reduced}
    return type(kind.__name__, (kind, DataParallel), more)


def _reduced(self: Any, _: Any) -> Any:
    """How an object of an adapted class is copied: the class by that which it adapts."""
    return _remade, (type(self).__mro__[1],), self.__getstate__()


def _remade(kind: type[torch.nn.Module]) -> DataParallel:
    found = adapted(kind)
    return found.__new__(found)


def _is_own(step: Any, name: str) -> bool:
    """Whether a step of the forward is not the one that DataParallel has."""
    return step is not DataParallel.__dict__[name]


class _Untrained(DataParallel):
    """A model for one call, without gradients."""

    def _make_runner(self) -> Runner:
        return Runner(self.module, constant=True)


@dataclass(frozen=True)
class _Output:
    """What ranks tell each other of one output; of None, nothing."""

    kind: str = ""
    size: int = 0
    requires_grad: bool = False


@dataclass(frozen=True)
class _Own:
    """This rank's rows of one output."""

    tensor: torch.Tensor
    dim: int

    @staticmethod
    def of(tensor: torch.Tensor, dim: int, has_chunk: bool) -> _Own:
        """The rows of ``tensor``, none of them where the rank computed another one's chunk."""
        if tensor.dim() == 0:
            tensor, dim = tensor.reshape(1), 0
        return _Own(tensor if has_chunk else tensor.narrow(dim, 0, 0), dim)

    @property
    def output(self) -> _Output:
        others = list(self.tensor.shape)
        del others[self.dim]
        return _Output(f"{self.tensor.dtype} {others}", self.tensor.size(self.dim), self.tensor.requires_grad)
