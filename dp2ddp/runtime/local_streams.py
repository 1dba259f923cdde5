"""Random numbers of each rank's own: those that are drawn for its samples.

Outside of this the generators are in the same states on all ranks, from ``init`` on: weights, splits, orders and
decisions are drawn alike. What is drawn for samples comes from streams that begin elsewhere on each rank, so that no
two samples of a global batch share numbers:

- what a wrapped model draws in a forward (dropout), in ``DistributedDataParallel`` and ``DataParallel``;
- what a loader that is divided among the ranks draws to fetch samples, here or in its workers (see ``fetching``);
- what a function draws that was given to ``local_random``.

A stream follows from the seed that the ranks have in common and from the rank. The generators are afterwards as they
were before: ranks that draw different amounts for their samples go on alike.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, TypeVar

import torch

from . import ranks, streams

Given = ParamSpec("Given")
Result = TypeVar("Result")

_REMEMBERED = 64  # blocks that may be computed once more
_is_inside = False  # whether a stream of this rank's own is drawn from


def seed_of(*key: Any) -> int:
    """A seed that follows from ``key`` and this rank: another one on each rank, from 0 to 2**63 - 1."""
    text = repr((*key, ranks.get_rank()))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") % 2**63


def _of_gpu(device: torch.device) -> torch.Generator | None:
    """The global generator of a GPU; None for the CPU, and while a CUDA graph is captured, which keeps its own."""
    if device.type != "cuda":
        return None
    torch.cuda.init()  # before that there are none
    found = torch.cuda.default_generators[device.index or 0 :][:1]
    return found[0] if found and not torch.cuda.is_current_stream_capturing() else None


@dataclass(frozen=True)
class _Position:
    """Where generators are: the global ones, and a GPU's, if that is drawn from."""

    states: Mapping[str, Any]
    of_gpu: torch.Tensor | None = None

    @staticmethod
    def now(gpu: torch.Generator | None) -> _Position:
        return _Position(streams.kept(), None if gpu is None else gpu.get_state())

    def take(self, gpu: torch.Generator | None) -> None:
        streams.put_back(self.states)
        if gpu is not None and self.of_gpu is not None:
            gpu.set_state(self.of_gpu)


@dataclass(eq=False)
class _Block:
    """What was drawn before: where torch's generator was that all ranks share, and where the stream began.

    ``repeated``: the backward pass that has computed it once more.
    """

    shared: torch.Tensor
    begun: _Position
    repeated: int = -1


class LocalStream:
    """Draws of this rank's own from the global generators: torch's on the CPU and on a GPU, Python's, numpy's.

    What is computed once more in a backward pass (``torch.utils.checkpoint``) draws again what it drew: it is known by
    the state of torch's generator, which checkpoints set to what it was.

    Args:
        key: tells it from other streams; the same on all ranks.
        seed: that all ranks have in common; None for torch's. Where that is set to another one the stream begins anew,
            and it goes on where it was when the program brings the first one's state back (``torch.set_rng_state``).
    """

    def __init__(self, *key: Any, seed: int | None = None) -> None:
        self._key, self._given = key, seed
        self._seed = (-1, -1)  # the one in common that it has begun with, and its own
        self._position = _Position({})
        self._left: dict[int, tuple[int, _Position]] = (
            {}
        )  # by the seed in common: its own, and where it was left
        self._past: deque[_Block] = deque(maxlen=_REMEMBERED)

    @contextmanager
    def drawn(self, device: torch.device) -> Iterator[None]:
        """Draw from this stream within the block, and on the GPU ``device``, if it is one.

        A block within another one goes on with the outer one's stream. In other threads than the main one the
        generators are left alone, since the main one draws from them meanwhile; but for those of backward passes.
        """
        global _is_inside
        backward = torch._C._current_graph_task_id()  # -1: none runs
        is_aside = backward == -1 and threading.current_thread() is not threading.main_thread()
        if _is_inside or is_aside:
            yield
            return
        gpu = _of_gpu(device)
        before = _Position.now(gpu)
        past = None if backward == -1 else self._recalled(before.states["torch"], backward)
        begun = self._begun(before.states["torch"]) if past is None else past.begun
        if backward == -1:
            self._past.append(_Block(before.states["torch"], begun))
        begun.take(gpu)
        self._seed_new(begun, before, gpu)
        _is_inside = True
        try:
            yield
        finally:
            _is_inside = False
            if past is None:
                now = _Position.now(gpu)
                self._position = now if gpu is not None else replace(now, of_gpu=begun.of_gpu)
            before.take(gpu)

    def _begun(self, shared: torch.Tensor) -> _Position:
        """Where the stream is; where it begins, if the ranks have another seed in common now."""
        common = torch.initial_seed() if self._given is None else self._given
        if common != self._seed[0]:
            self._left[self._seed[0]] = (self._seed[1], self._position)
            if common not in self._left or torch.equal(
                shared, torch.Generator().manual_seed(common).get_state()
            ):
                self._left = dict([*self._left.items()][-_REMEMBERED:])
                self._left[common] = (seed_of(common, *self._key), _Position({}))
            own, self._position = self._left.pop(common)
            self._seed = (common, own)
        return self._position

    def _seed_new(self, begun: _Position, before: _Position, gpu: torch.Generator | None) -> None:
        """Seed the generators that this stream has not drawn from: all where it begins, numpy's once it is loaded."""
        own = self._seed[1]
        if len(begun.states) < len(before.states):
            new = streams.seeded(own)
            streams.set_states({name: state for name, state in new.items() if name not in begun.states})
        if gpu is not None and begun.of_gpu is None:
            gpu.set_state(torch.Generator(gpu.device).manual_seed(own).get_state())

    def _recalled(self, shared: torch.Tensor, backward: int) -> _Block | None:
        """The last block drawn where torch's shared generator is now, that this backward pass has not repeated."""
        for block in reversed(self._past):
            if block.repeated != backward and torch.equal(block.shared, shared):
                block.repeated = backward
                return block
        return None


_of_functions = LocalStream("functions")


def local_random(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """The same function, drawing this rank's own random numbers: for this rank's part of a batch.

    All ranks draw alike from torch's, numpy's and Python's generators: right for what is one thing for the whole batch
    (a resolution, mixup's lambda), and wrong for noise on a part of it, which every rank would draw the same::

        noisy = images + 0.1 * ddp.local_random(torch.randn_like)(images)

    Args:
        function: anything that draws when it is called: ``torch.randn_like``, ``noise.normal_``, a module, a function
            of the program.

    Returns:
        The same function, drawing from a stream of this rank's own that follows from ``torch.manual_seed``. In a plain
        process or a group of one, ``function`` itself.
    """
    if ranks.get_world_size() == 1:
        return function

    @functools.wraps(function, updated=())
    def drawing(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        with _of_functions.drawn(ranks.device()):
            return function(*args, **kwargs)

    return drawing
