"""Noise that a training loop draws for the samples of a batch: the original is given what the converted program drew.

Each rank of the converted program draws for its part, by ``ddp.local_random``; the original draws for the whole batch,
by the same functions in the same order. What they draw between two batches corresponds by the function's name and the
shape of all parts together. Only whole tensors and arrays do: what is drawn number by number is not aligned.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from dp2ddp.verify import draws

NAMES = frozenset("""
    rand randn randint normal rand_like randn_like randint_like bernoulli normal_ uniform_ bernoulli_ random_
    exponential_
    """.split())
"""torch's functions and methods that draw what does not depend on gradients."""
_RUNTIME = "dp2ddp.runtime"
OF_NUMPY = "rand randn randint normal uniform random random_sample standard_normal binomial beta".split()


Place = tuple[int, Any, int]
"""Where in a training something is drawn: after how many steps, in which pass over data, and in which batch of it."""


@dataclass(frozen=True)
class Drawn:
    """What was drawn: a tensor, also where it was an array of numpy's.

    ``first``: what rank 0 drew of it.
    """

    place: Place
    name: str
    value: torch.Tensor
    first: torch.Tensor | None = None


class Noted(TorchFunctionMode):
    """What one rank of the converted program draws for its parts; and what it draws of their size, as all ranks do.

    Args:
        alike: is told the name of what draws a tensor of as many rows as the part has, its value, and where that
            was.
        rows: tells how many samples the part has.
        place: tells where the training is.
        inside: tells whether a wrapped model runs, whose draws are aligned otherwise.
    """

    def __init__(
        self,
        alike: Callable[[str, torch.Tensor, Place], None],
        rows: Callable[[], int],
        place: Callable[[], Place],
        inside: Callable[[], bool],
    ) -> None:
        super().__init__()
        self.drawn: list[Drawn] = []
        self._alike, self._rows, self._place, self._inside = alike, rows, place, inside
        self._patched: Any = None
        self._entered = False
        self._is_local = False

    def patch(self) -> None:
        """Hear of what is drawn, with ``ddp.local_random`` once the program has imported the runtime."""
        if not self._entered:
            self._entered = True
            self.__enter__()
        runtime = sys.modules.get(_RUNTIME)
        if runtime is not None and runtime is not self._patched:
            self._patched = runtime
            runtime.local_random = self._noting(runtime.local_random)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        value = function(*args, **(kwargs or {}))
        name = getattr(function, "__name__", "")
        if name in NAMES and isinstance(value, torch.Tensor) and value.dim() and not self._is_local:
            if len(value) == self._rows() and not self._inside():
                self._alike(name, value, self._place())
        return value

    @contextmanager
    def _locally(self) -> Iterator[None]:
        outer, self._is_local = self._is_local, True
        try:
            yield
        finally:
            self._is_local = outer

    def _noting(self, local_random: Any) -> Any:
        @functools.wraps(local_random)
        def noting(function: Any) -> Any:
            own, name = local_random(function), getattr(function, "__name__", "")

            @functools.wraps(own, updated=())
            def drawing(*args: Any, **kwargs: Any) -> Any:
                with self._locally():
                    value = own(*args, **kwargs)
                is_noise = name in NAMES or name in OF_NUMPY
                if is_noise and hasattr(value, "shape") and len(value.shape) and not self._inside():
                    self.drawn.append(
                        Drawn(self._place(), name, torch.as_tensor(value).detach().cpu().clone())
                    )
                return value

            return drawing

        return noting

    def write(self, folder: Path, rank: int) -> None:
        """Write down what was drawn, for ``joined``."""
        if self.drawn:
            torch.save([(it.place, it.name, it.value) for it in self.drawn], folder / f"{rank}.noise")


def joined(folder: Path) -> list[Drawn]:
    """What all ranks of a run drew, put together to what the original draws; none where they do not fit together."""
    files = sorted(folder.glob("*.noise"), key=lambda path: int(path.stem))
    ranks = [[Drawn(*it) for it in torch.load(path)] for path in files]
    if not ranks or len({tuple((it.place, it.name, it.value.shape[1:]) for it in one) for one in ranks}) > 1:
        return []
    return [
        Drawn(column[0].place, column[0].name, torch.cat([it.value for it in column]), column[0].value)
        for column in zip(*ranks, strict=True)
    ]


class Given(TorchFunctionMode):
    """Gives the original what the converted program drew.

    Args:
        drawn: all of that, in order.
        place, inside: as for ``Noted``.
    """

    def __init__(
        self, drawn: Sequence[Drawn], place: Callable[[], Place], inside: Callable[[], bool]
    ) -> None:
        super().__init__()
        self._left, self._place, self._inside = list(drawn), place, inside

    def patch(self) -> None:
        """Stand in for torch's generators, and numpy's, from now on."""
        self.__enter__()
        if "numpy" in sys.modules:
            numpys = sys.modules["numpy"].random
            for name in OF_NUMPY:
                setattr(numpys, name, self._giving(name, getattr(numpys, name)))

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if name not in NAMES or not self._is_next(name):
            return function(*args, **(kwargs or {}))
        before = draws.states()
        value = function(*args, **(kwargs or {}))
        given = self._given(value, before)
        if given is not None:
            value.data.copy_(given)
        return value

    def _giving(self, name: str, function: Any) -> Any:
        @functools.wraps(function)
        def giving(*args: Any, **kwargs: Any) -> Any:
            if not self._is_next(name):
                return function(*args, **kwargs)
            before = draws.states()
            value = function(*args, **kwargs)
            given = self._given(value, before)
            return value if given is None else given.numpy().astype(value.dtype)

        return giving

    def _is_next(self, name: str) -> bool:
        """Whether what is to be given next was drawn by a function of this name, at this place."""
        place = self._place()
        while self._left and self._left[0].place != place and self._is_left(place):
            self._left.pop(0)  # of an evaluation, whose batches the ranks divide otherwise
        return (
            bool(self._left)
            and (self._left[0].place, self._left[0].name) == (place, name)
            and not self._inside()
        )

    def _is_left(self, place: Place) -> bool:
        return self._left[0].place[0] < place[0] or any(it.place == place for it in self._left)

    def _given(self, value: Any, before: tuple[Any, ...]) -> torch.Tensor | None:
        """What to give in the place of a value, if it is of that shape; the generators are as ``before`` then."""
        drawn = self._left[0]
        fitting = (drawn.value, drawn.first)  # of an evaluation, each rank may draw for whole batches
        given = next(
            (it for it in fitting if it is not None and it.shape == getattr(value, "shape", None)), None
        )
        if given is not None:
            draws.restore(before)  # what all ranks share did not move in the converted program
            self._left.pop(0)
        return given
