"""nn.DataParallel's contract on many processes: whole batches in, whole outputs out, each rank computing its chunk.

Every rank draws the same batches and runs the same lines. A forward cuts the batch as nn.DataParallel does, runs this
rank's chunk through DistributedDataParallel and gathers the outputs with their graph, so that any loss of the outputs
is that of the whole batch, on every rank. What holds, and why:

- *Gradients.* Each rank's loss is the whole one. What comes back to its own rows is taken W times (see ``rows``), for
  DistributedDataParallel's average to cancel the W. Nothing else weighs.
- *Fewer chunks than ranks.* The others run the first chunk again; nothing of it goes into outputs or gradients.
- *Buffers.* Rank 0's are kept after each forward, as nn.DataParallel keeps replica 0's.
- *Random numbers.* Outside of the forward the ranks must go on drawing the same, but the forward draws other amounts on
  each of them (dropout on chunks of 3 and of 1 row). So it draws from a stream of its own.
- *Ranks that hold different batches all the same* are noticed in the first training forwards, and now and then later.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.utils import _to_kwargs

from . import compiling, evaluation, graph, nested, parts, ranks, rows, streams
from .exchange import exchange
from .model import DistributedDataParallel, cuda_index
from .scatter import Call, scatter

_FORWARD = "DataParallel's forward"
_COMPARED_FIRST = 4  # training forwards whose inputs are compared, from the first one
_COMPARED_EVERY = 100  # and then one in so many
_ELEMENTS = 64  # that are compared of each tensor, evenly spread
_numbers = itertools.count()
_STEPS = ("replicate", "scatter", "parallel_apply", "gather")  # of nn.DataParallel's forward
_TOLERANCE = 1e-3  # relative: inputs that other layers computed differ in their last bits


def data_parallel(
    module: torch.nn.Module,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """torch.nn.parallel.data_parallel on as many processes as there are, where nothing is trained.

    Every rank calls it with the same inputs, runs its chunk of them through the module and gets the outputs of all.

    Raises:
        RuntimeError: gradients are enabled: they would stay each rank's own; or see DataParallel's forward.
    """
    if torch.is_grad_enabled() and not ranks.is_alone("data_parallel()"):
        raise RuntimeError(
            "data_parallel() outside of torch.no_grad() would give each rank gradients of its own"
        )
    if not isinstance(inputs, tuple):
        inputs = () if inputs is None else (inputs,)
    return _Untrained(module, device_ids, output_device, dim)(*inputs, **(module_kwargs or {}))


class DataParallel(torch.nn.DataParallel):
    """nn.DataParallel, and an instance of it, on as many processes as there are.

    Every rank calls with the same batch, as a script does that draws its batches as it did for nn.DataParallel, and
    gets the outputs of all of it: any loss is the original's, on every rank. Outputs are tensors and None, nested in
    lists, tuples, dicts and dataclasses. A 0-dim one becomes a vector: an element for each replica that got a chunk.

    It may be made before the process group exists, and before the module is moved: what needs them is made at the
    first forward. A module that is on the CPU then, where the rank has a GPU, goes there. In a plain process or a
    group of one a call is one of the module, with the inputs moved to its GPU.

    Args:
        module: the model.
        device_ids, output_device: kept as the script has them. The rank's own device is used, whatever they say, but
            outputs go to the CPU with ``output_device=-1``.
        dim: the dimension of the samples, in inputs and outputs.

    Raises:
        RuntimeError: in a forward, the ranks were given different batches, or returned outputs that don't fit together;
            in a backward pass, ``torch.autograd.grad`` with respect to parameters, of which no rank knows the whole;
            where a step of nn.DataParallel's forward is replaced, its ``replicate`` for one.
        TypeError: in a forward, an output is neither a tensor nor None.
    """

    def __init__(
        self, module: torch.nn.Module, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        torch.nn.Module.__init__(self)
        self.module = module
        self.dim = dim
        self.device_ids = list(range(ranks.get_world_size()) if device_ids is None else device_ids)
        self.output_device = output_device
        if output_device is None and self.device_ids:
            self.output_device = self.device_ids[0]
        if ranks.get_world_size() > 1:
            compiling.leave_out()
        self._forget()

    def _forget(self) -> None:
        """What is no part of a copy."""
        self._has_come = False  # whether the module is where it computes
        self._replicas: list[_Replica] = []  # at most one; in a list, so that it is no submodule
        self._draws: list[_Draws] = []
        self._forwards = 0  # training forwards so far

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _STEPS and ranks.get_world_size() > 1:
            raise RuntimeError(
                f"this changes what nn.DataParallel does with its replicas, its `{name}`, and there are none: each "
                "process has a module of its own. Use layers that need no such thing, torch.nn.SyncBatchNorm for one"
            )
        super().__setattr__(name, value)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if not self._has_come:
            self._come_to_device()
        if ranks.is_alone(_FORWARD) or evaluation.is_running():
            return self._forward_alone(inputs, kwargs)
        if not self._replicas:
            self._replicas.append(self._replicated())
            self._draws.append(_Draws(next(_numbers)))
        replica = self._replicas[0]
        replica.unsettle()
        described = self._describe((inputs, kwargs))  # the module may change its inputs
        calls = self._scatter(inputs, kwargs)
        rank = ranks.get_rank()
        has_chunk = rank < len(calls)
        own_inputs, own_kwargs = calls[rank if has_chunk else 0]
        with self._draws[0].drawn(replica.device):
            output = replica(*own_inputs, **own_kwargs)
        if torch.is_grad_enabled() or self.module.training:
            replica.share_buffers()
        return self._gather(output, has_chunk, described)

    def _replicated(self) -> _Replica:
        return _Replica(self.module)

    def _come_to_device(self) -> None:
        self._has_come = True
        first, device = next(self.module.parameters(), None), ranks.device()
        if first is not None and first.device.type == "cpu" and device.type == "cuda":
            self.module.to(device)

    def _forward_alone(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        first = next(self.module.parameters(), None)
        if first is not None and first.device.type == "cuda" and (inputs or kwargs):
            moved, moved_kwargs = _to_kwargs(inputs, kwargs, first.device, False)
            inputs, kwargs = moved[0], moved_kwargs[0]
        return self.module(*inputs, **kwargs)

    # Into chunks

    def _scatter(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Call]:
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

    def _gather(self, output: Any, has_chunk: bool, inputs: _Inputs) -> Any:
        """All ranks' outputs joined, with their graph."""
        leaves = nested.flatten(output, dataclasses=True)
        for leaf in leaves:
            if leaf is not None and not isinstance(leaf, torch.Tensor):
                raise TypeError(
                    f"{type(self.module).__name__} returns an object of type {type(leaf).__name__}, and DataParallel "
                    "can gather tensors and None only, also in lists, tuples, dicts and dataclasses"
                )
        own = [None if leaf is None else _Own.of(leaf, self.dim, has_chunk) for leaf in leaves]
        answers = exchange(_FORWARD, (inputs, [_Output() if it is None else it.output for it in own]))
        self._compare([theirs for theirs, _ in answers], [outputs for _, outputs in answers])
        columns = zip(*(outputs for _, outputs in answers), strict=True)
        whole = [self._gather_one(it, column) for it, column in zip(own, columns, strict=True)]
        return nested.unflatten(output, whole, dataclasses=True)

    def _gather_one(self, own: _Own | None, column: tuple[_Output, ...]) -> torch.Tensor | None:
        if own is None or not column[0].kind:  # None on rank 0 is None, as it is in replica 0
            return None
        tensor, replica = own.tensor, self._replicas[0]
        requires_grad = torch.is_grad_enabled() and any(output.requires_grad for output in column)
        if requires_grad and not tensor.requires_grad:  # constants on this rank, and not on others
            tensor = tensor.detach().requires_grad_()
            replica.expect_backward(tensor)
        whole = rows.gather_rows(tensor, own.dim, [output.size for output in column])
        if requires_grad:
            whole.grad_fn.register_prehook(replica.refuse_own_gradients)
        return whole.cpu() if self.output_device == -1 else whole

    # Whether the ranks agree

    def _describe(self, arguments: Any) -> _Inputs:
        tensors = parts.tensors(arguments)
        shapes = [(str(tensor.dtype), list(tensor.shape)) for tensor in tensors]
        if not torch.is_grad_enabled():
            return _Inputs(shapes, None)
        number, self._forwards = self._forwards, self._forwards + 1
        is_compared = number < _COMPARED_FIRST or number % _COMPARED_EVERY == 0
        return _Inputs(shapes, [_elements(tensor) for tensor in tensors] if is_compared else None)

    def _compare(self, inputs: list[_Inputs], outputs: list[list[_Output]]) -> None:
        """Complain, on every rank, about what can't be one batch."""
        for rank in range(1, len(inputs)):
            difference = inputs[0].difference(inputs[rank])
            if difference:
                raise RuntimeError(
                    f"the ranks were given different batches: {type(self.module).__name__} is called with "
                    f"{difference.format(one='rank 0', other=f'rank {rank}')}. With DataParallel every rank draws the "
                    "same batches in the same order, from the same seed; a loader that is divided among the ranks "
                    "needs DistributedDataParallel"
                )
        kinds = [[output.kind for output in their] for their in outputs]
        for rank in range(1, len(kinds)):
            fits = len(kinds[rank]) == len(kinds[0]) and all(
                first in ("", other) for first, other in zip(kinds[0], kinds[rank], strict=True)
            )
            if not fits:
                raise RuntimeError(
                    f"the outputs of {type(self.module).__name__} on the ranks' chunks can't be joined along dimension "
                    f"{self.dim}: rank 0 has {_listed(kinds[0])}, rank {rank} has {_listed(kinds[rank])}"
                )

    # Copies

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        for name in ("_has_come", "_replicas", "_draws", "_forwards"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._forget()


class _Replica(DistributedDataParallel):
    """The module on this rank's chunk."""

    _weighs = False
    _shares_buffers = False

    def refuse_own_gradients(self, _: Any) -> None:
        """Complain in a pass that would return gradients of parameters without having them averaged."""
        if graph.is_accumulating():
            return
        for node in self._passes.nodes.values() if self._reduces else ():
            try:
                torch._C._will_engine_execute_node(node)
            except RuntimeError:  # torch can't say it of a leaf that torch.autograd.grad returns
                raise RuntimeError(
                    "torch.autograd.grad with respect to parameters of a DataParallel model would give each rank the "
                    "gradients of its own rows: call backward() and read them from .grad"
                ) from None


class _Untrained(DataParallel):
    """A model for one call, without gradients."""

    def _replicated(self) -> _Replica:
        return _Constant(self.module)


class _Constant(_Replica):
    """The module on this rank's chunk, with parameters that all ranks have alike and whose gradients none needs."""

    def _arrange(self, new: bool) -> None:
        self._place_at(cuda_index(self.module))
        self._follow_parameters()


class _Draws:
    """The random numbers of this rank's forwards, on the CPU and on its GPU.

    Args:
        number: of the model, among those that were called: another one draws other numbers.
    """

    def __init__(self, number: int) -> None:
        own = (torch.initial_seed(), number, ranks.get_rank())
        self._seed = int.from_bytes(hashlib.sha256(repr(own).encode()).digest()[:8], "little") % 2**63
        self._states = streams.seeded(self._seed)
        self._of_gpu: torch.Tensor | None = None

    @contextmanager
    def drawn(self, device: torch.device) -> Iterator[None]:
        """Draw from this stream within the block; the generators are afterwards as they were before."""
        before = streams.states()
        gpu = torch.cuda.default_generators[device.index] if device.type == "cuda" else None
        gpu_before = None if gpu is None else gpu.get_state()
        streams.set_states(self._states)
        if gpu is not None:
            if self._of_gpu is None:
                self._of_gpu = torch.Generator(device).manual_seed(self._seed).get_state()
            gpu.set_state(self._of_gpu)
        try:
            yield
        finally:
            self._states = streams.states()
            streams.set_states(before)
            if gpu is not None:
                self._of_gpu = gpu.get_state()
                gpu.set_state(gpu_before)


@dataclass(frozen=True)
class _Inputs:
    """What ranks tell each other of the batch they were given."""

    shapes: list[tuple[str, list[int]]]
    elements: list[list[float]] | None

    def difference(self, other: _Inputs) -> str:
        """What differs, for ``str.format(one=…, other=…)``; empty where nothing does."""
        if self.shapes != other.shapes:
            mine, theirs = (_listed([f"{kind} {size}" for kind, size in it.shapes]) for it in (self, other))
            return f"tensors of {mine} on {{one}} and {theirs} on {{other}}"
        pairs = enumerate(zip(self.elements or (), other.elements or (), strict=True))
        differing = [index for index, (mine, theirs) in pairs if not _is_close(mine, theirs)]
        return f"other values on {{one}} than on {{other}} in tensor {differing[0]}" if differing else ""


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


def _elements(tensor: torch.Tensor) -> list[float]:
    """Some elements of a tensor, and the sums of all and of their sizes."""
    flat = tensor.detach().flatten()
    if flat.is_complex():
        flat = torch.view_as_real(flat).flatten()
    some = flat[:: max(1, flat.numel() // _ELEMENTS)].double()
    floats = flat if flat.is_floating_point() else flat.double()
    sizes = torch.linalg.vector_norm(floats, 1, dtype=torch.double)
    return [*some.tolist(), *torch.stack([flat.sum(dtype=torch.double), sizes]).tolist()]


def _is_close(mine: list[float], theirs: list[float]) -> bool:
    (*some, total, size), (*other_some, other_total, _) = mine, theirs
    largest = max(map(abs, some), default=0.0)
    pairs = [(a, b, largest) for a, b in zip(some, other_some, strict=True)] + [(total, other_total, size)]
    return all(a == b or math.isnan(a) and math.isnan(b) or abs(a - b) <= _TOLERANCE * c for a, b, c in pairs)


def _listed(values: list[Any]) -> str:
    return ", ".join(map(str, values)) or "none"
