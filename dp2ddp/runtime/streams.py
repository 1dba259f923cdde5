"""The states of the global random generators: torch's on the CPU, Python's, and numpy's where it is loaded."""

from __future__ import annotations

import ctypes
import pickle
import random
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class _Generator:
    """A global generator: its state, as a value that can be compared and pickled; how to set it; that of a seed."""

    get: Callable[[], Any]
    set: Callable[[Any], None]
    seeded: Callable[[int], Any]


def of_torch(generator: torch.Generator) -> bytes:
    """The state of one of torch's generators."""
    state = generator.get_state()
    return ctypes.string_at(state.data_ptr(), state.numel())  # bytes(tensor.numpy()), without numpy


def set_torch(generator: torch.Generator, state: bytes) -> None:
    """Give one of torch's generators a state that ``of_torch`` gave."""
    generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


def seeded_torch(seed: int) -> bytes:
    """The state that ``torch.manual_seed(seed)`` leaves."""
    return of_torch(torch.Generator().manual_seed(seed))


def _numpy() -> Any:
    return sys.modules["numpy"].random


_GENERATORS = {
    "torch": _Generator(
        get=lambda: of_torch(torch.default_generator),
        set=lambda state: set_torch(torch.default_generator, state),
        seeded=seeded_torch,
    ),
    "python": _Generator(
        get=random.getstate, set=random.setstate, seeded=lambda seed: random.Random(seed).getstate()
    ),
    "numpy": _Generator(
        get=lambda: pickle.dumps(_numpy().get_state()),
        set=lambda state: _numpy().set_state(pickle.loads(state)),
        seeded=lambda seed: pickle.dumps(_numpy().RandomState(seed % 2**32).get_state()),
    ),
}


def loaded() -> list[str]:
    """The names of the generators that there are."""
    return [name for name in _GENERATORS if name != "numpy" or "numpy" in sys.modules]


def states() -> dict[str, Any]:
    """The states of all global generators, by name; it can be pickled."""
    return {name: _GENERATORS[name].get() for name in loaded()}


def seeded(seed: int) -> dict[str, Any]:
    """The states that seeding all global generators with ``seed`` leaves; seeds nothing."""
    return {name: _GENERATORS[name].seeded(seed) for name in loaded()}


def set_states(wanted: Mapping[str, Any]) -> None:
    """Give the global generators these states; what is not loaded here is left out."""
    for name in loaded():
        if name in wanted:
            _GENERATORS[name].set(wanted[name])


class Stream:
    """Draws from the global generators that begin in given states, whatever else draws from them in between.

    As long as nothing else draws, they go on together: a generator that is where the stream is goes along with it.

    Args:
        states: by name, as ``states`` gives them.
    """

    def __init__(self, states: Mapping[str, Any]) -> None:
        self._states = {name: state for name, state in states.items() if name in loaded()}
        self._apart: set[str] = set()  # the generators that have been elsewhere

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Draw from this stream within the block."""
        own = {name: _GENERATORS[name].get() for name in self._states}
        elsewhere = [name for name, state in own.items() if state != self._states[name]]
        self._apart.update(elsewhere)
        for name in elsewhere:
            _GENERATORS[name].set(self._states[name])
        try:
            yield
        finally:
            self._states = {name: _GENERATORS[name].get() for name in own}
            for name in elsewhere:
                _GENERATORS[name].set(own[name])

    def following(self) -> dict[str, Any]:
        """States for a stream after this one: the generators', unless that would repeat what this one has drawn."""
        return {
            name: _GENERATORS[name].seeded(_hash(state)) if name in self._apart else state
            for name, state in states().items()
        }


def _hash(state: Any) -> int:
    return zlib.crc32(pickle.dumps(state))


def sent_apart(number: int) -> dict[str, Any]:
    """States that follow from those that the generators have and from ``number``; sets nothing."""
    return {name: _GENERATORS[name].seeded(_hash((state, number))) for name, state in states().items()}
