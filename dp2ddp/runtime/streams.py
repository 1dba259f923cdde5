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
    """A global generator: its state, as a value that can be compared and pickled; how to set it; that of a seed.

    ``keep`` and ``put_back`` are faster, for a state that stays where it is.
    """

    get: Callable[[], Any]
    set: Callable[[Any], None]
    seeded: Callable[[int], Any]
    keep: Callable[[], Any]
    put_back: Callable[[Any], None]


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


class _Numpys:
    """numpy's global generator, kept and put back through its memory: numpy's own functions take 25 microseconds each.

    Beside that memory numpy holds back every second Gaussian. So the memory alone is the state only where it is what it
    was when none was held back.
    """

    _SIZE = 4 * 624 + 4  # of a Mersenne Twister: its key and the position in it

    def __init__(self) -> None:
        self._known = b""  # the memory, with nothing held back

    def _address(self) -> int | None:
        generator = _numpy().mtrand._rand._bit_generator
        return generator.ctypes.state_address if type(generator).__name__ == "MT19937" else None

    def keep(self) -> Any:
        """The state: its memory, or as numpy gives it."""
        address = self._address()
        memory = b"" if address is None else ctypes.string_at(address, self._SIZE)
        if memory and memory == self._known:
            return memory
        state = _numpy().get_state()
        if not memory or state[3] or memory != _memory(state):
            return state
        self._known = memory
        return memory

    def put_back(self, state: Any) -> None:
        """Set a state that ``keep`` gave."""
        if not isinstance(state, bytes):
            _numpy().set_state(state)
            self._known = b""
            return
        address = self._address()
        if address is not None and ctypes.string_at(address, self._SIZE) == self._known:
            ctypes.memmove(address, state, self._SIZE)
        else:
            key = sys.modules["numpy"].frombuffer(state[:-4], dtype="uint32")
            _numpy().set_state(("MT19937", key, int.from_bytes(state[-4:], sys.byteorder), 0, 0.0))
        self._known = state


def _memory(state: Any) -> bytes:
    """What a state that numpy gives looks like in memory."""
    return state[1].tobytes() + int(state[2]).to_bytes(4, sys.byteorder)


_numpys = _Numpys()
_GENERATORS = {
    "torch": _Generator(
        get=lambda: of_torch(torch.default_generator),
        set=lambda state: set_torch(torch.default_generator, state),
        seeded=seeded_torch,
        keep=torch.default_generator.get_state,
        put_back=torch.default_generator.set_state,
    ),
    "python": _Generator(
        get=random.getstate,
        set=random.setstate,
        seeded=lambda seed: random.Random(seed).getstate(),
        keep=random.getstate,
        put_back=random.setstate,
    ),
    "numpy": _Generator(
        get=lambda: pickle.dumps(_numpy().get_state()),
        set=lambda state: _numpy().set_state(pickle.loads(state)),
        seeded=lambda seed: pickle.dumps(_numpy().RandomState(seed % 2**32).get_state()),
        keep=_numpys.keep,
        put_back=_numpys.put_back,
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


def kept() -> dict[str, Any]:
    """The states of all global generators, by name, for ``put_back`` alone."""
    return {name: _GENERATORS[name].keep() for name in loaded()}


def put_back(kept: Mapping[str, Any]) -> None:
    """Give the global generators states that ``kept`` gave."""
    for name, state in kept.items():
        _GENERATORS[name].put_back(state)


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
