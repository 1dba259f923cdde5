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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import torch

from . import ranks, streams

Given = ParamSpec("Given")
Result = TypeVar("Result")

_is_inside = False  # whether a stream of this rank's own is drawn from


def seed_of(*key: Any) -> int:
    """A seed that follows from ``key`` and this rank: another one on each rank, from 0 to 2**63 - 1."""
    text = repr((*key, ranks.get_rank()))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") % 2**63


class LocalStream:
    """Draws of this rank's own from the global generators: torch's on the CPU and on a GPU, Python's, numpy's.

    Args:
        key: tells it from other streams; the same on all ranks.
        seed: that all ranks have in common; None for torch's, and it begins anew where that is set to another one.
    """

    def __init__(self, *key: Any, seed: int | None = None) -> None:
        self._key, self._given = key, seed
        self._begun: int | None = None  # the seed in common that it has begun with
        self._states: dict[str, Any] = {}
        self._of_gpu: torch.Tensor | None = None

    def _begin(self, device: torch.device) -> torch.Generator | None:
        """Begin, if it has not yet, and begin the generators that are new; the GPU's, if one is to be drawn from."""
        common = torch.initial_seed() if self._given is None else self._given
        if common != self._begun:
            self._begun, self._own_seed = common, seed_of(common, *self._key)
            self._states, self._of_gpu = {}, None
        if len(self._states) < len(streams.loaded()):
            self._states = {**streams.seeded(self._own_seed), **self._states}
        if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            return None
        if self._of_gpu is None:
            self._of_gpu = torch.Generator(device).manual_seed(self._own_seed).get_state()
        return torch.cuda.default_generators[device.index or 0]

    @contextmanager
    def drawn(self, device: torch.device) -> Iterator[None]:
        """Draw from this stream within the block, and on the GPU ``device``, if it is one.

        A block within another one goes on with the outer one's stream. In other threads than the main one the
        generators are left alone, since the main one draws from them meanwhile.
        """
        global _is_inside
        if _is_inside or threading.current_thread() is not threading.main_thread():
            yield
            return
        gpu = self._begin(device)
        before = streams.states()
        gpu_before = None if gpu is None else gpu.get_state()
        streams.set_states(self._states)
        if gpu is not None:
            gpu.set_state(self._of_gpu)
        _is_inside = True
        try:
            yield
        finally:
            _is_inside = False
            self._states = streams.states()
            streams.set_states(before)
            if gpu is not None:
                self._of_gpu = gpu.get_state()
                gpu.set_state(gpu_before)


_of_functions = LocalStream("functions")


def local_random(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """A function that draws random numbers of each rank's own, for this rank's part of a batch.

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
