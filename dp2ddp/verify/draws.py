"""The global random generators: torch's, Python's and, where it is loaded, numpy's."""

from __future__ import annotations

import base64
import hashlib
import importlib
import os
import pickle
import random
import secrets
import sys
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch

from dp2ddp.runtime import held
from dp2ddp.verify.asked import Asked, is_of

NAMES = ("torch", "Python", "numpy", "the GPU")


def begin(number: int) -> None:
    """Seed what no script has seeded: Python's generator and numpy's, which begin otherwise in every process."""
    random.seed(number)
    with suppress(ModuleNotFoundError):
        importlib.import_module("numpy").random.seed(number)


def name_alike(number: int, folder: str) -> None:
    """Have what a program in ``folder`` calls unique come out the same in every run: ids, keys, random names."""
    drawn, is_own = random.Random(f"unique {number}"), is_of(folder)

    def identified(version: int) -> Any:
        return uuid.UUID(int=drawn.getrandbits(128), version=version)

    def tokens(form: Callable[[bytes], Any]) -> Any:
        return lambda nbytes=None: form(
            drawn.randbytes(secrets.DEFAULT_ENTROPY if nbytes is None else nbytes)
        )

    own = [
        (uuid, "uuid1", lambda *_args, **_kwargs: identified(1)),
        (uuid, "uuid4", lambda: identified(4)),
        (os, "urandom", drawn.randbytes),
        (secrets, "token_bytes", tokens(bytes)),
        (secrets, "token_hex", tokens(bytes.hex)),
        (secrets, "token_urlsafe", tokens(lambda it: base64.urlsafe_b64encode(it).rstrip(b"=").decode())),
    ]
    for module, name, draw in own:
        setattr(module, name, _of_own(getattr(module, name), draw, is_own))


def _of_own(real: Any, draw: Callable[..., Any], is_own: Callable[[str], bool]) -> Asked:
    def asked(file: str, *args: Any, **kwargs: Any) -> Any:
        return (draw if is_own(file) else real)(*args, **kwargs)

    return Asked(real, asked)


def states() -> tuple[Any, ...]:
    """The generators' states."""
    numpy = sys.modules.get("numpy")
    gpu = torch.cuda.default_generators
    return (
        torch.default_generator.get_state(),
        random.getstate(),
        numpy.random.get_state() if numpy is not None else None,
        gpu[torch._C._cuda_getDevice()].get_state() if gpu else None,
    )


def restore(kept: tuple[Any, ...]) -> None:
    """Give the generators the states that ``states`` returned."""
    of_torch, of_python, of_numpy, of_gpu = kept
    torch.default_generator.set_state(of_torch)
    random.setstate(of_python)
    if of_numpy is not None:
        sys.modules["numpy"].random.set_state(of_numpy)
    if of_gpu is not None:
        torch.cuda.default_generators[torch._C._cuda_getDevice()].set_state(of_gpu)


def seed(key: Any) -> None:
    """Seed the generators with what ``key`` comes to."""
    number = zlib.crc32(repr(key).encode())
    torch.default_generator.manual_seed(number)
    random.seed(number)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(number)
    if torch.cuda.default_generators:
        torch.cuda.default_generators[torch._C._cuda_getDevice()].manual_seed(number)


def digests(kept: tuple[Any, ...]) -> dict[str, str]:
    """Each generator's state in a few letters, by its name."""
    named = zip(NAMES, kept, strict=True)
    return {
        name: hashlib.blake2b(_bytes(it), digest_size=8).hexdigest() for name, it in named if it is not None
    }


def _bytes(state: Any) -> bytes:
    return state.numpy().tobytes() if isinstance(state, torch.Tensor) else pickle.dumps(state)


class Watched:
    """Generators that were seeded, and are drawn from since then or not.

    Args:
        before: their states before that.
    """

    def __init__(self, before: tuple[Any, ...]) -> None:
        self._before, self._seeded = before, digests(states())

    def drawn_from(self) -> dict[str, str]:
        """The generators that were drawn from, and what states they had before they were seeded."""
        now, before = digests(states()), digests(self._before)
        return {
            name: before[name]
            for name, state in self._seeded.items()
            if now.get(name) != state and name in before
        }


class Own:
    """Generators that a data set holds, or that its code names.

    Args:
        generators: they.
    """

    NAME = "the data set"

    def __init__(self, generators: Sequence[held.Held]) -> None:
        self._generators = generators

    def seed(self, key: Any) -> None:
        """Seed each with what ``key`` comes to."""
        for number, generator in enumerate(self._generators):
            generator.seed(zlib.crc32(repr((key, number)).encode()))
        self._seeded = self._digest()

    def drawn_from(self) -> dict[str, str]:
        """The state that they had before they were seeded, by their name, if any has been drawn from since then."""
        return {self.NAME: self._before} if self._digest() != self._seeded else {}

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Leave them as they were before the block."""
        self._before, states = self._digest(), [it.get() for it in self._generators]
        try:
            yield
        finally:
            for generator, state in zip(self._generators, states, strict=True):
                generator.set(state)

    def _digest(self) -> str:
        found = hashlib.blake2b(digest_size=8)
        for generator in self._generators:
            found.update(_bytes(generator.get()))
        return found.hexdigest()


@contextmanager
def kept() -> Iterator[tuple[Any, ...]]:
    """Leave the generators as they were before the block; gives their states."""
    before = states()
    try:
        yield before
    finally:
        restore(before)


def shift_seeds(offset: int) -> None:
    """Add ``offset`` to every seed that a script sets, and to what torch begins with."""

    def shifted(function: Any) -> Any:
        def call(seed: Any = None, *args: Any, **kwargs: Any) -> Any:
            return function(seed + offset if isinstance(seed, int) else seed, *args, **kwargs)

        return call

    torch.manual_seed(offset)
    torch.manual_seed = torch.random.manual_seed = shifted(torch.manual_seed)
    random.seed = shifted(random.seed)
    if "numpy" in sys.modules:
        numpy = sys.modules["numpy"].random
        numpy.seed = shifted(numpy.seed)
